/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is freed and mapped again at the same address between two collectives, ranks as threads. A
 * network card that has pinned the old pages would go on using them: so nothing may be registered that the
 * caller has not registered, and what he deregisters must be let go.
 *
 * remap RANKS: must be right. remap RANKS forgotten: the same with registrations that are not taken back,
 * which the header forbids; tells how many elements are wrong, so that one can see whether the lanes below
 * would notice (exit status 0 if any are).
 */
#include <stdint.h>
#include <sys/mman.h>
#include "ranks.h"

#define COUNT ((size_t)1 << 18) /* 1 MiB of float: far above what is copied into the library's own memory */
#define BYTES (COUNT * sizeof(float))
#define ROUNDS 6

enum how { NEVER_REGISTERED, ALWAYS_REGISTERED, BY_TURNS, FORGOTTEN };
static enum how how;
static _Atomic long wrong_total;

/* New pages where the old ones were; NULL: anywhere. The old ones are gone in the same moment. */
static float *pages(void *at)
{
	void *p = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0),
		       -1, 0);

	if (p == MAP_FAILED)
		exit(1);
	return p;
}

static float value(int rank, int round, size_t i)
{
	return (float)((i * 7 + (size_t)round * 13 + (size_t)rank) % 101);
}

static long look(const struct rank_ctx *r, const float *out, int round)
{
	long wrong = 0;

	for (size_t i = 0; i < COUNT; i++) {
		float sum = 0;

		for (int k = 0; k < r->n; k++)
			sum += value(k, round, i);
		wrong += out[i] != sum;
	}
	return wrong;
}

static void body(struct rank_ctx *r)
{
	float *in = NULL, *out = NULL;
	bool had = false;

	for (int round = 0; round < ROUNDS; round++) {
		bool reg = how == ALWAYS_REGISTERED || (how == BY_TURNS && round % 2) ||
			   (how == FORGOTTEN && round == 0);
		long wrong;

		in = pages(in);
		out = pages(out);
		if (reg) {
			EXPECT(r, sircl_register(r->comm, in, BYTES) == SIRCL_SUCCESS);
			EXPECT(r, sircl_register(r->comm, out, BYTES) == SIRCL_SUCCESS);
			had = true;
		}
		for (size_t i = 0; i < COUNT; i++)
			in[i] = value(r->rank, round, i);
		EXPECT(r, sircl_all_reduce(in, out, COUNT, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) ==
				  SIRCL_SUCCESS);
		wrong = look(r, out, round);
		wrong_total += wrong;
		EXPECT(r, how == FORGOTTEN || wrong == 0);
		if (had && how != FORGOTTEN) {
			EXPECT(r, sircl_deregister(r->comm, in) == SIRCL_SUCCESS);
			EXPECT(r, sircl_deregister(r->comm, out) == SIRCL_SUCCESS);
			had = false;
		}
		EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	}
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	munmap(in, BYTES);
	munmap(out, BYTES);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 2, failures = 0;

	if (n < 1 || n > RANKS_MAX)
		return 2;
	if (argc > 2 && !strcmp(argv[2], "forgotten")) {
		how = FORGOTTEN;
		failures = run_ranks("registrations that nobody took back", n, body);
		printf("wrong elements: %ld\n", (long)wrong_total);
		return failures || wrong_total == 0 ? 1 : 0;
	}
	for (how = NEVER_REGISTERED; how <= BY_TURNS; how++) {
		static const char *const names[] = { "memory that is never registered, mapped anew",
						     "registered, deregistered, mapped anew, registered",
						     "registered every other time" };

		failures += run_ranks(names[how], n, body);
	}
	printf("%d passed, %d failed, 0 skipped\n", failures ? 0 : 1, failures ? 1 : 0);
	return failures ? 1 : 0;
}
