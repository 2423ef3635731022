/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sircl_comm_split with ranks as threads: members that are no neighbours, permuted keys, SIRCL_NO_COLOUR,
 * splits of splits, parents that go first, one that ends with an error. `api_split [N]`.
 */
#include <stdint.h>
#include <time.h>
#include "ranks.h"

static void end(struct rank_ctx *r)
{
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

/* A communicator does what it should: who is who, a sum, a gather, and a message between every two. */
static void works(struct rank_ctx *r, sircl_comm_t c, int rank, int n, const int *world)
{
	static const size_t big = 200003;
	int32_t *x = malloc(big * sizeof(*x)), me = r->rank, who[RANKS_MAX];
	sircl_info_t info = { .size = sizeof(info) };
	int64_t want = 0;
	size_t bad = 0;

	EXPECT(r, sircl_comm_query(c, &info) == SIRCL_SUCCESS && info.rank == rank && info.nranks == n);
	EXPECT(r, sircl_all_gather(&me, who, 1, SIRCL_INT32, c, SIRCL_HOST) == SIRCL_SUCCESS);
	for (int k = 0; k < n; k++) {
		bad += who[k] != world[k];
		want += world[k];
	}
	EXPECT(r, bad == 0);
	for (size_t i = 0; i < big; i++)
		x[i] = (int32_t)i + me;
	EXPECT(r, sircl_all_reduce(x, x, big, SIRCL_INT32, SIRCL_SUM, c, SIRCL_HOST) == SIRCL_SUCCESS);
	for (size_t i = 0; i < big; i++)
		bad += x[i] != (int32_t)(i * (size_t)n + (size_t)want);
	EXPECT(r, bad == 0);
	sircl_group_begin();
	for (int k = 0; k < n; k++) {
		sircl_send(&me, 1, SIRCL_INT32, k, c, SIRCL_HOST);
		sircl_recv(&who[k], 1, SIRCL_INT32, k, c, SIRCL_HOST);
	}
	EXPECT(r, sircl_group_end() == SIRCL_SUCCESS);
	for (int k = 0; k < n; k++)
		bad += who[k] != world[k];
	EXPECT(r, bad == 0);
	free(x);
}

static int members(const struct rank_ctx *r, int modulo, bool backwards, int *world)
{
	int n = 0;

	for (int i = 0; i < r->n; i++) {
		int k = backwards ? r->n - 1 - i : i;

		if (k % modulo == r->rank % modulo)
			world[n++] = k;
	}
	return n;
}

static int place(const int *world, int rank)
{
	int i = 0;

	while (world[i] != rank)
		i++;
	return i;
}

static void parity(struct rank_ctx *r)
{
	sircl_comm_t even;
	sircl_config_t cfg = SIRCL_CONFIG_INIT;
	int world[RANKS_MAX], n = members(r, 2, false, world);
	int all[RANKS_MAX];

	cfg.name = "parity";
	for (int i = 0; i < r->n; i++)
		all[i] = i;
	EXPECT(r, sircl_comm_split(r->comm, r->rank % 2, 0, &cfg, &even) == SIRCL_SUCCESS);
	works(r, even, place(world, r->rank), n, world);
	works(r, r->comm, r->rank, r->n, all); /* both live */
	works(r, even, place(world, r->rank), n, world);
	EXPECT(r, sircl_comm_destroy(even) == SIRCL_SUCCESS);
	works(r, r->comm, r->rank, r->n, all);
	end(r);
}

/* All with the keys turned round; then some without a colour; parents first. */
static void keys(struct rank_ctx *r)
{
	sircl_comm_t turned, some, last;
	int world[RANKS_MAX], two[RANKS_MAX], n = members(r, 1, true, world);

	EXPECT(r, sircl_comm_split(r->comm, 7, -r->rank, NULL, &turned) == SIRCL_SUCCESS);
	works(r, turned, r->n - 1 - r->rank, n, world);
	end(r); /* the parent is gone */
	EXPECT(r,
	       sircl_comm_split(turned, r->rank == 1 ? SIRCL_NO_COLOUR : 0, 0, NULL, &some) == SIRCL_SUCCESS);
	EXPECT(r, (some == NULL) == (r->rank == 1));
	for (int i = 0, k = 0; i < n; i++)
		if (world[i] != 1)
			two[k++] = world[i];
	EXPECT(r, sircl_comm_destroy(turned) == SIRCL_SUCCESS);
	if (!some)
		return;
	works(r, some, place(two, r->rank), r->n - 1, two);
	EXPECT(r, sircl_comm_split(some, r->rank, 0, NULL, &last) == SIRCL_SUCCESS); /* alone */
	works(r, last, 0, 1, &r->rank);
	EXPECT(r, sircl_comm_destroy(some) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_destroy(last) == SIRCL_SUCCESS);
}

/* Registered memory is of all, and goes with the communicator it was registered with. */
static void memory(struct rank_ctx *r)
{
	static const size_t n = 100000;
	sircl_comm_t child;
	void *p;

	EXPECT(r, sircl_mem_alloc(r->comm, n * sizeof(int32_t), &p) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_split(r->comm, 0, 0, NULL, &child) == SIRCL_SUCCESS);
	EXPECT(r, sircl_register(child, (char *)p + 64, 64) == SIRCL_INVALID_ARGUMENT);
	EXPECT(r, sircl_broadcast(p, p, n, SIRCL_INT32, 0, child, SIRCL_HOST) == SIRCL_SUCCESS);
	end(r);
	EXPECT(r, sircl_mem_alloc(child, 4096, &p) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_destroy(child) == SIRCL_SUCCESS);
}

/* An abort ends one communicator only. */
static void abort_one(struct rank_ctx *r)
{
	sircl_comm_t a, b;
	int world[RANKS_MAX], n = members(r, 2, false, world);
	sircl_result_t e = SIRCL_SUCCESS, got = SIRCL_SUCCESS;

	EXPECT(r, sircl_comm_split(r->comm, 0, 0, NULL, &a) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_split(r->comm, r->rank % 2, 0, NULL, &b) == SIRCL_SUCCESS);
	if (r->rank == 0)
		EXPECT(r, sircl_comm_abort(a) == SIRCL_SUCCESS);
	got = sircl_barrier(a, SIRCL_HOST);
	EXPECT(r, got == SIRCL_ABORTED);
	EXPECT(r, sircl_comm_async_error(b, &e) == SIRCL_SUCCESS && e == SIRCL_SUCCESS);
	works(r, b, place(world, r->rank), n, world);
	sircl_comm_destroy(a);
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_abort(b) == SIRCL_SUCCESS); /* by everybody; the others live */
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	sircl_comm_destroy(b);
	end(r);
}

/* A rank that has no communicator left passes on what the others send, for as long as they like: here longer
 * than SIRCL_TIMEOUT. */
static void relaying(struct rank_ctx *r)
{
	sircl_comm_t some;
	int world[RANKS_MAX], n = 0;
	struct timespec pause = { .tv_sec = 3, .tv_nsec = 500 * 1000 * 1000 };

	for (int i = 0; i < r->n; i++)
		if (i != 1)
			world[n++] = i;
	EXPECT(r, sircl_comm_split(r->comm, r->rank == 1 ? SIRCL_NO_COLOUR : 0, 0, NULL, &some) ==
			  SIRCL_SUCCESS);
	end(r);
	if (!some)
		return;
	nanosleep(&pause, NULL);
	works(r, some, place(world, r->rank), n, world);
	EXPECT(r, sircl_comm_destroy(some) == SIRCL_SUCCESS);
}

/* Two threads of each rank, each with its own communicator of one home. */
static void *beside(void *arg)
{
	sircl_comm_t c = arg;
	sircl_info_t info = { .size = sizeof(info) };
	int32_t x = 1, y = 0, bad = 0;

	sircl_comm_query(c, &info);
	for (int i = 0; i < 200; i++) {
		bad += sircl_all_reduce(&x, &y, 1, SIRCL_INT32, SIRCL_SUM, c, SIRCL_HOST) != SIRCL_SUCCESS;
		bad += y != info.nranks;
	}
	bad += sircl_comm_destroy(c) != SIRCL_SUCCESS;
	return (void *)(intptr_t)bad;
}

static void threads(struct rank_ctx *r)
{
	sircl_comm_t child;
	pthread_t t;
	void *bad;

	EXPECT(r, sircl_comm_split(r->comm, r->rank % 2, 0, NULL, &child) == SIRCL_SUCCESS);
	if (pthread_create(&t, NULL, beside, child) != 0)
		exit(1);
	EXPECT(r, beside(r->comm) == NULL);
	r->comm = NULL;
	pthread_join(t, &bad);
	EXPECT(r, bad == NULL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*body)(struct rank_ctx *);
	} test[] = {
		{ "even and odd ranks, who are no neighbours", parity },
		{ "keys, no colour, splits of splits, parents that go first", keys },
		{ "memory of parents and children", memory },
		{ "an abort ends one communicator only", abort_one },
		{ "communicators of one home in several threads", threads },
	};
	int n = argc > 1 ? atoi(argv[1]) : 4, failed = 0, passed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (n < 2 || n > RANKS_MAX) {
		fprintf(stderr, "usage: api_split [N], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	for (size_t i = 0; i < sizeof(test) / sizeof(*test); i++)
		run_ranks(test[i].name, n, test[i].body) ? failed++ : passed++;
	setenv("SIRCL_TIMEOUT", "1500", 1);
	run_ranks("a rank without a communicator goes on relaying", n, relaying) ? failed++ : passed++;
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
