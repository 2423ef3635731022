/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is not there: for every k, the k-th allocation of a call fails on rank 0. It says so, the other
 * ranks end with an error or with a result instead of waiting, and everything can be destroyed. `api_oom
 * [N]`.
 */
#include <stdint.h>
#include <time.h>
#include "ranks.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FAILS 1
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
#else
#define FAILS 0
#endif

static _Thread_local long left; /* allocations of this thread until one fails; 0: none does */
static _Thread_local bool has_failed;

#if FAILS
static bool fails(void)
{
	if (!left || --left)
		return false;
	has_failed = true;
	return true;
}

/* The library's calls come here as well: visible names of the program go first. */
#pragma GCC visibility push(default)
void *malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}
#pragma GCC visibility pop
#endif

static long fail_at; /* read by all ranks of a round */
static bool reached; /* written by rank 0 */
static pthread_barrier_t all_created; /* so that a failure does not meet a start */

static void arm(const struct rank_ctx *r)
{
	pthread_barrier_wait(&all_created);
	has_failed = false;
	left = r->rank == 0 ? fail_at : 0;
}

/* Rank 0 has succeeded, or lacks memory; the others have succeeded or been told something. */
static void disarm(struct rank_ctx *r, sircl_result_t got)
{
	left = 0;
	EXPECT(r, got == SIRCL_SUCCESS || strlen(sircl_last_error(NULL)) > 8);
	if (r->rank != 0)
		return;
	reached = has_failed;
	EXPECT(r, got == SIRCL_NO_MEMORY || (got == SIRCL_SUCCESS && !has_failed));
}

static void end(struct rank_ctx *r)
{
	sircl_comm_destroy(r->comm); /* with or without an error */
	r->comm = NULL;
}

static void splitting(struct rank_ctx *r)
{
	sircl_comm_t child;

	arm(r);
	disarm(r, sircl_comm_split(r->comm, 0, 0, NULL, &child));
	if (child)
		sircl_comm_destroy(child);
	end(r);
}

static void summing(struct rank_ctx *r)
{
	int32_t x = 1, y = 0;

	arm(r);
	disarm(r, sircl_all_reduce(&x, &y, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST));
	end(r);
}

static void starting(struct rank_ctx *r)
{
	static int32_t x[RANKS_MAX], y[RANKS_MAX][RANKS_MAX];
	sircl_request_t q;
	sircl_result_t ret;

	arm(r);
	ret = sircl_all_gather_start(&x[r->rank], y[r->rank], 1, SIRCL_INT32, r->comm, SIRCL_HOST, &q);
	if (ret == SIRCL_SUCCESS)
		ret = sircl_wait(&q);
	disarm(r, ret);
	end(r);
}

static void messages(struct rank_ctx *r)
{
	int32_t x = 1, y = 0;

	arm(r);
	sircl_group_begin();
	sircl_send(&x, 1, SIRCL_INT32, (r->rank + 1) % r->n, r->comm, SIRCL_HOST);
	sircl_recv(&y, 1, SIRCL_INT32, (r->rank + r->n - 1) % r->n, r->comm, SIRCL_HOST);
	disarm(r, sircl_group_end());
	end(r);
}

/* Memory and operations are this rank's alone: afterwards all goes on. */
static void alone(struct rank_ctx *r)
{
	double half = 0.5;
	int32_t x = 1, y = 0;
	sircl_op_t op;
	sircl_result_t ret;
	void *p;

	arm(r);
	ret = sircl_op_create_premul_sum(&op, &half, SIRCL_FLOAT64, r->comm);
	if (ret == SIRCL_SUCCESS)
		ret = sircl_mem_alloc(r->comm, 100, &p);
	disarm(r, ret);
	EXPECT(r, sircl_all_reduce(&x, &y, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST) == SIRCL_SUCCESS &&
			  y == r->n);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Nobody waits for a rank that could not begin: far below SIRCL_TIMEOUT. */
static int each(const char *name, int n, void (*body)(struct rank_ctx *))
{
	int failed = 0;
	double slowest = 0;

	for (fail_at = 1, reached = true; reached && !failed && FAILS; fail_at++) {
		double start = now_s();

		pthread_barrier_init(&all_created, NULL, (unsigned)n);
		reached = false;
		failed = run_ranks(name, n, body);
		if (now_s() - start > slowest)
			slowest = now_s() - start;
	}
	printf("%s: %ld allocations failed in turn, at most %.1f s\n", name, FAILS ? fail_at - 2 : 0,
	       slowest);
	return failed || slowest > 10;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*body)(struct rank_ctx *);
	} test[] = {
		{ "split", splitting },
		{ "blocking collective", summing },
		{ "started collective", starting },
		{ "messages in a group", messages },
		{ "memory and operations", alone },
	};
	int n = argc > 1 ? atoi(argv[1]) : 3, failed = 0, passed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	setenv("SIRCL_DEBUG", "none", 0); /* every rank warns of those that have ended before it */
	if (n < 2 || n > RANKS_MAX) {
		fprintf(stderr, "usage: api_oom [N], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	for (size_t i = 0; i < sizeof(test) / sizeof(*test); i++)
		each(test[i].name, n, test[i].body) ? failed++ : passed++;
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
