/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public header as a user meets it, with ranks as threads: results, argument errors that harm nothing,
 * memory, mismatched calls, abort, limits, life and death. `api [N]`: with N ranks (default 4);
 * SIRCL_TRANSPORT and SIRCL_LANES choose the lanes.
 */
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include "ranks.h"

static int nranks = 4;

static void reduce_and_check(struct rank_ctx *r, size_t n)
{
	float *in = calloc(n + 1, sizeof(float)), *out = calloc(n + 1, sizeof(float));
	size_t bad = 0;

	for (size_t i = 0; i < n; i++)
		in[i] = (float)(i % 13) + (float)r->rank;
	EXPECT(r,
	       sircl_all_reduce(in, out, n, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	for (size_t i = 0; i < n; i++)
		bad += out[i] != (float)(i % 13) * (float)r->n + (float)(r->n * (r->n - 1) / 2);
	EXPECT(r, bad == 0);
	/* in place */
	EXPECT(r,
	       sircl_all_reduce(in, in, n, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, memcmp(in, out, n * sizeof(float)) == 0);
	free(in);
	free(out);
}

static void gather_and_check(struct rank_ctx *r, size_t n)
{
	unsigned char *all = malloc(n * (size_t)r->n + 1);
	size_t bad = 0;

	for (size_t i = 0; i < n; i++)
		all[(size_t)r->rank * n + i] = (unsigned char)(i * 3 + (size_t)r->rank * 17);
	EXPECT(r, sircl_all_gather(all + (size_t)r->rank * n, all, n, SIRCL_UINT8, r->comm, SIRCL_HOST) ==
			  SIRCL_SUCCESS);
	for (int k = 0; k < r->n; k++)
		for (size_t i = 0; i < n; i++)
			bad += all[(size_t)k * n + i] != (unsigned char)(i * 3 + (size_t)k * 17);
	EXPECT(r, bad == 0);
	free(all);
}

static void results(struct rank_ctx *r)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 5, 17, 1000, 4099, 65537, 700001 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		reduce_and_check(r, sizes[i]);
		gather_and_check(r, sizes[i]);
	}
	EXPECT(r, sircl_comm_finalize(r->comm) == SIRCL_SUCCESS);
	EXPECT(r, sircl_all_reduce(NULL, NULL, 0, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) ==
			  SIRCL_INVALID_USAGE);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

/* every wrong argument is refused with a sentence, and the communicator still works after each */
static void arguments(struct rank_ctx *r)
{
	float a[64] = { 0 }, b[64 * RANKS_MAX];
	char stream;
	sircl_info_t info = { .size = sizeof(info) };
	sircl_result_t e;
	struct {
		sircl_result_t got, want;
	} t[] = {
		{ sircl_all_reduce(NULL, b, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_reduce(a, NULL, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_reduce(a, b, 4, (sircl_type_t)99, SIRCL_SUM, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_reduce(a, b, 4, (sircl_type_t)-1, SIRCL_SUM, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_reduce(a, b, 4, SIRCL_FLOAT32, (sircl_op_t)17, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_reduce(a, b, SIZE_MAX / 2, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_reduce(a, b, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, NULL), SIRCL_UNSUPPORTED },
		{ sircl_all_reduce(a, b, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, &stream), SIRCL_UNSUPPORTED },
		{ sircl_all_reduce(a, a + 1, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_reduce(a, b, 4, SIRCL_FLOAT32, SIRCL_SUM, NULL, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_all_gather(b + 1, b, 4, SIRCL_FLOAT32, r->comm, SIRCL_HOST), SIRCL_INVALID_ARGUMENT },
		{ sircl_all_gather(a, b, SIZE_MAX / 8, SIRCL_FLOAT32, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_send(a, 4, SIRCL_FLOAT32, r->n, r->comm, SIRCL_HOST), SIRCL_INVALID_ARGUMENT },
		{ sircl_send(a, 4, SIRCL_FLOAT32, -1, r->comm, SIRCL_HOST), SIRCL_INVALID_ARGUMENT },
		{ sircl_recv(a, 4, SIRCL_FLOAT32, r->rank, r->comm, SIRCL_HOST), SIRCL_INVALID_USAGE },
		{ sircl_send(a, 4, SIRCL_FLOAT32, r->rank, r->comm, SIRCL_HOST), SIRCL_INVALID_USAGE },
		{ sircl_recv(NULL, 4, SIRCL_FLOAT32, (r->rank + 1) % r->n, r->comm, SIRCL_HOST),
		  SIRCL_INVALID_ARGUMENT },
		{ sircl_register(r->comm, NULL, 10), SIRCL_INVALID_ARGUMENT },
		{ sircl_register(r->comm, a, 0), SIRCL_INVALID_ARGUMENT },
		{ sircl_deregister(r->comm, a), SIRCL_INVALID_ARGUMENT },
		{ sircl_mem_free(r->comm, a), SIRCL_INVALID_ARGUMENT },
		{ sircl_mem_alloc(r->comm, 0, (void **)&e), SIRCL_INVALID_ARGUMENT },
		{ sircl_mem_alloc(r->comm, 10, NULL), SIRCL_INVALID_ARGUMENT },
		{ sircl_comm_query(r->comm, NULL), SIRCL_INVALID_ARGUMENT },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		if (t[i].got != t[i].want)
			fprintf(stderr, "case %zu: got %s, want %s\n", i, sircl_strerror(t[i].got),
				sircl_strerror(t[i].want));
		EXPECT(r, t[i].got == t[i].want);
	}
	EXPECT(r, sircl_all_reduce(a, NULL, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) ==
			  SIRCL_INVALID_ARGUMENT);
	EXPECT(r, strstr(sircl_last_error(r->comm), "recv is NULL") != NULL);
	EXPECT(r, sircl_comm_async_error(r->comm, &e) == SIRCL_SUCCESS && e == SIRCL_SUCCESS);
	reduce_and_check(r, 1000);
	EXPECT(r, sircl_comm_query(r->comm, &info) == SIRCL_SUCCESS);
	EXPECT(r, info.rank == r->rank && info.nranks == r->n && info.operations >= 2);
	EXPECT(r, info.memory_bytes > 0 && info.memory_bytes <= 64ull << 20);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

static void memory(struct rank_ctx *r)
{
	size_t n = 300000;
	void *p = NULL, *q = NULL;
	float *mine = malloc(n * sizeof(float));

	EXPECT(r, sircl_mem_alloc(r->comm, n * sizeof(float), &p) == SIRCL_SUCCESS);
	EXPECT(r, ((uintptr_t)p & ((uintptr_t)sysconf(_SC_PAGESIZE) - 1)) == 0);
	EXPECT(r, sircl_register(r->comm, mine, n * sizeof(float)) == SIRCL_SUCCESS);
	EXPECT(r, sircl_register(r->comm, mine + 5, 100) == SIRCL_INVALID_ARGUMENT);
	for (int round = 0; round < 3; round++) {
		float *in = round & 1 ? p : (void *)mine, *out = round & 1 ? (void *)mine : p;
		size_t bad = 0;

		for (size_t i = 0; i < n; i++)
			in[i] = (float)(i % 7) + (float)round;
		EXPECT(r, sircl_all_reduce(in, out, n, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) ==
				  SIRCL_SUCCESS);
		for (size_t i = 0; i < n; i++)
			bad += out[i] != ((float)(i % 7) + (float)round) * (float)r->n;
		EXPECT(r, bad == 0);
	}
	EXPECT(r, sircl_deregister(r->comm, mine) == SIRCL_SUCCESS);
	EXPECT(r, sircl_mem_free(r->comm, p) == SIRCL_SUCCESS);
	EXPECT(r, sircl_mem_alloc(r->comm, 100, &q) == SIRCL_SUCCESS); /* freed with the communicator */
	reduce_and_check(r, 5000);
	free(mine);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

static void p2p(struct rank_ctx *r)
{
	static const size_t sizes[] = { 0, 1, 1000, 70000, 3000000 };

	/* every pair in a fixed order, both ways */
	for (int a = 0; a < r->n; a++)
		for (int b = a + 1; b < r->n; b++)
			for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
				unsigned char *buf = malloc(sizes[k] + 1);
				size_t bad = 0;

				if (r->rank == a) {
					for (size_t i = 0; i < sizes[k]; i++)
						buf[i] = (unsigned char)(i * 5 + (size_t)(a * 16 + b));
					EXPECT(r, sircl_send(buf, sizes[k], SIRCL_UINT8, b, r->comm,
							     SIRCL_HOST) == SIRCL_SUCCESS);
				} else if (r->rank == b) {
					EXPECT(r, sircl_recv(buf, sizes[k], SIRCL_UINT8, a, r->comm,
							     SIRCL_HOST) == SIRCL_SUCCESS);
					for (size_t i = 0; i < sizes[k]; i++)
						bad += buf[i] !=
						       (unsigned char)(i * 5 + (size_t)(a * 16 + b));
					EXPECT(r, bad == 0);
				}
				free(buf);
			}
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

/* rule 9: an error on every rank that names both calls, not a hang */
static void mismatch(struct rank_ctx *r)
{
	float a[100] = { 0 }, b[100 * RANKS_MAX];
	sircl_result_t e = SIRCL_SUCCESS, got;

	got = sircl_all_reduce(a, b, r->rank == 1 ? 99 : 100, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST);
	/* a rank may have finished before it heard: the next call tells */
	for (int i = 0; i < 1000 && got == SIRCL_SUCCESS; i++)
		got = sircl_all_reduce(a, b, 100, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST);
	EXPECT(r, got != SIRCL_SUCCESS);
	EXPECT(r, sircl_last_error(r->comm)[0] != '\0');
	/* who saw it names both calls; who heard of it names who saw it */
	if (!strstr(sircl_last_error(r->comm), "has failed"))
		EXPECT(r,
		       strstr(sircl_last_error(r->comm), "99") && strstr(sircl_last_error(r->comm), "100"));
	else
		EXPECT(r, strstr(sircl_last_error(r->comm), "different calls"));
	EXPECT(r, sircl_comm_async_error(r->comm, &e) == SIRCL_SUCCESS && e == got);
	EXPECT(r, sircl_all_reduce(a, b, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) == got);
	sircl_comm_destroy(r->comm);
	r->comm = NULL;
}

/* A receive that does not match its send: both counts are named where it is seen, and the news reaches ranks
 * that have no part in it. */
static void p2p_mismatch(struct rank_ctx *r)
{
	float a[100] = { 0 }, b[100] = { 0 };
	sircl_result_t got = SIRCL_SUCCESS, want = SIRCL_MISMATCH;

	if (r->rank == 0)
		(void)sircl_send(a, 99, SIRCL_FLOAT32, 1, r->comm, SIRCL_HOST);
	else if (r->rank == 1)
		got = sircl_recv(b, 100, SIRCL_FLOAT32, 0, r->comm, SIRCL_HOST);
	if (r->rank != 1) /* wait for the news */
		got = sircl_all_reduce(a, b, 100, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST);
	EXPECT(r, got == want);
	if (r->rank == 1)
		EXPECT(r, strstr(sircl_last_error(r->comm), "sircl_recv of 100 float from rank 0") != NULL &&
				  strstr(sircl_last_error(r->comm), "sircl_send of 99 float") != NULL);
	else
		EXPECT(r,
		       strstr(sircl_last_error(r->comm),
			      r->rank == 0 ? "rank 1 has failed (ranks issued different"
					   : "rank 1 has failed because of rank 0 (ranks issued different") !=
			       NULL);
	sircl_comm_destroy(r->comm);
	r->comm = NULL;
}

static void aborted(struct rank_ctx *r)
{
	float a[100] = { 0 }, b[100];
	struct timespec pause = { .tv_nsec = 300 * 1000 * 1000 };

	reduce_and_check(r, 10);
	/* whoever is in it is through with the sums; that it ends well is not sure on a rank that is late */
	(void)sircl_barrier(r->comm, SIRCL_HOST);
	if (r->rank == 0) {
		nanosleep(&pause, NULL); /* the others wait in a collective that rank 0 never enters */
		EXPECT(r, sircl_comm_abort(r->comm) == SIRCL_SUCCESS);
	}
	EXPECT(r,
	       sircl_all_reduce(a, b, 100, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) == SIRCL_ABORTED);
	/* who called it hears of the call, the others of the caller */
	EXPECT(r, strstr(sircl_last_error(r->comm),
			 r->rank == 0 ? "sircl_comm_abort was called on" : "aborted by rank 0") != NULL);
	sircl_comm_destroy(r->comm);
	r->comm = NULL;
}

static int late_ranks(void)
{
	sircl_config_t c = SIRCL_CONFIG_INIT;
	sircl_unique_id_t id;
	sircl_comm_t comm = (sircl_comm_t)&c;
	sircl_result_t r;
	struct timespec a, b;
	double s;

	c.start_timeout_ms = 1000; /* the answer comes a fifth before it, so that who waits hears it */
	if (sircl_get_unique_id(&id) != SIRCL_SUCCESS)
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &a);
	r = sircl_comm_create(&comm, &c, 1, 3, &id);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	if (r != SIRCL_TIMEOUT || comm != NULL || s > 5 ||
	    !strstr(sircl_last_error(NULL), "rank 0, 2 of 3")) {
		printf("  FAIL a limit names the missing ranks: %s, %.1f s: %s\n", sircl_strerror(r), s,
		       sircl_last_error(NULL));
		return 1;
	}
	printf("  ok   a limit names the missing ranks (%.1f s)\n", s);
	return 0;
}

static int single_rank(void)
{
	sircl_comm_t comm;
	float x = 3, y = 0;
	sircl_info_t info = { .size = sizeof(info) };
	sircl_result_t ended;
	int ok = sircl_comm_create(&comm, NULL, 0, 1, NULL) == SIRCL_SUCCESS &&
		 sircl_all_reduce(&x, &y, 1, SIRCL_FLOAT32, SIRCL_SUM, comm, SIRCL_HOST) == SIRCL_SUCCESS &&
		 y == 3 && sircl_comm_query(comm, &info) == SIRCL_SUCCESS && info.next_rank == -1 &&
		 sircl_comm_abort(comm) == SIRCL_SUCCESS &&
		 sircl_all_reduce(&x, &y, 1, SIRCL_FLOAT32, SIRCL_SUM, comm, SIRCL_HOST) == SIRCL_ABORTED &&
		 strstr(sircl_last_error(comm), "sircl_comm_abort was called") != NULL &&
		 sircl_comm_async_error(comm, &ended) == SIRCL_SUCCESS && ended == SIRCL_ABORTED &&
		 sircl_comm_destroy(comm) == SIRCL_SUCCESS;
	int wrong = sircl_comm_create(&comm, NULL, 1, 1, NULL) == SIRCL_INVALID_ARGUMENT &&
		    sircl_comm_create(&comm, NULL, 0, 0, NULL) == SIRCL_INVALID_ARGUMENT &&
		    sircl_comm_create(NULL, NULL, 0, 1, NULL) == SIRCL_INVALID_ARGUMENT &&
		    sircl_comm_destroy(NULL) == SIRCL_INVALID_ARGUMENT;

	printf("  %-4s one rank alone works and can be aborted; ranks out of range are refused\n",
	       ok && wrong ? "ok" : "FAIL");
	return !(ok && wrong);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*body)(struct rank_ctx *);
	} test[] = {
		{ "results of all-reduce and all-gather, odd sizes, in place", results },
		{ "wrong arguments are refused and harm nothing", arguments },
		{ "own, allocated and registered memory", memory },
		{ "send and receive between all pairs", p2p },
		{ "a mismatched call is an error on every rank", mismatch },
		{ "a receive that does not match its send is told to every rank", p2p_mismatch },
		{ "abort ends every rank by name", aborted },
	};
	int failed = 0, passed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		nranks = atoi(argv[1]);
	if (nranks < 2 || nranks > RANKS_MAX) {
		fprintf(stderr, "usage: api [N], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	for (size_t i = 0; i < sizeof(test) / sizeof(*test); i++)
		run_ranks(test[i].name, nranks, test[i].body) ? failed++ : passed++;
	late_ranks() ? failed++ : passed++;
	single_rank() ? failed++ : passed++;
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
