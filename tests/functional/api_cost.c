/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What requests and groups cost: no allocation once as many have run at once as ever will. And messages so
 * large that they go in several parts, which a blocking collective must move on (not with SHORT set). And how
 * many system calls copy between registered buffers in shared memory.
 * `api_cost [N]`.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "ranks.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
static _Atomic long allocations;

/* The library's calls come here as well: visible names of the program go first. */
#pragma GCC visibility push(default)
void *malloc(size_t n)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_realloc(p, n);
}
#pragma GCC visibility pop
#else
#define COUNTS 0
static _Atomic long allocations;
#endif

static _Atomic long copies;

#pragma GCC visibility push(default)
ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long nfrom, const struct iovec *to,
			  unsigned long nto, unsigned long flags)
{
	atomic_fetch_add_explicit(&copies, 1, memory_order_relaxed);
	return syscall(SYS_process_vm_writev, pid, from, nfrom, to, nto, flags);
}
#pragma GCC visibility pop

#define N 5000

static void round_of_all(struct rank_ctx *r, sircl_comm_t c, int32_t *x)
{
	sircl_request_t q[4];
	int bad = 0;

	for (int k = 0; k < 4; k++)
		bad += sircl_all_reduce_start(x, x + N, N, SIRCL_INT32, SIRCL_MAX, c, SIRCL_HOST, &q[k]) !=
		       SIRCL_SUCCESS;
	bad += sircl_broadcast(x, x, N, SIRCL_INT32, 1, c, SIRCL_HOST) != SIRCL_SUCCESS;
	for (int k = 3; k >= 0; k--)
		bad += sircl_wait(&q[k]) != SIRCL_SUCCESS;
	sircl_group_begin();
	for (int k = 0; k < r->n; k++) {
		bad += sircl_send(x, N, SIRCL_INT32, k, c, SIRCL_HOST) != SIRCL_SUCCESS;
		bad += sircl_recv(x + (k + 1) * N, N, SIRCL_INT32, k, c, SIRCL_HOST) != SIRCL_SUCCESS;
	}
	bad += sircl_barrier(c, SIRCL_HOST) != SIRCL_SUCCESS;
	bad += sircl_group_end() != SIRCL_SUCCESS;
	EXPECT(r, bad == 0);
}

static _Atomic long before;

static void steady(struct rank_ctx *r)
{
	static int32_t x[RANKS_MAX][(RANKS_MAX + 1) * N];

	for (int i = 0; i < 20; i++)
		round_of_all(r, r->comm, x[r->rank]);
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	if (r->rank == 0)
		before = allocations;
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	for (int i = 0; i < 100; i++)
		round_of_all(r, r->comm, x[r->rank]);
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	if (r->rank == 0) {
		long more = allocations - before; /* printf allocates */

		printf("       allocations in 100 rounds of %d ranks: %ld%s\n", r->n, more,
		       COUNTS ? "" : " (not counted under a sanitizer)");
		EXPECT(r, more == 0);
	}
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

#define PARTS ((size_t)(512u << 20) + 12345) /* three parts */

static void parts(struct rank_ctx *r)
{
	unsigned char *p = r->rank < 2 ? malloc(PARTS) : NULL;
	int32_t one = 1, all = 0;
	sircl_request_t q = NULL;
	size_t bad = 0;

	for (size_t i = 0; r->rank == 0 && i < PARTS; i += 4093)
		p[i] = (unsigned char)(i / 4093 * 7);
	if (r->rank == 0)
		EXPECT(r,
		       sircl_send_start(p, PARTS, SIRCL_UINT8, 1, r->comm, SIRCL_HOST, &q) == SIRCL_SUCCESS);
	if (r->rank == 1)
		EXPECT(r, sircl_recv(p, PARTS, SIRCL_UINT8, 0, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r,
	       sircl_all_reduce(&one, &all, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, sircl_wait(&q) == SIRCL_SUCCESS && all == r->n);
	for (size_t i = 0; r->rank == 1 && i < PARTS; i += 4093)
		bad += p[i] != (unsigned char)(i / 4093 * 7);
	EXPECT(r, bad == 0);
	free(p);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

#define MIBS 8

/* Each rank sends MIBS to the next: at most one copying call for each MiB, where the buffers are registered.
 */
static void large(struct rank_ctx *r)
{
	size_t bytes = (size_t)MIBS << 20;
	void *in, *out;
	long calls;

	EXPECT(r, sircl_mem_alloc(r->comm, bytes, &in) == SIRCL_SUCCESS);
	EXPECT(r, sircl_mem_alloc(r->comm, bytes, &out) == SIRCL_SUCCESS);
	memset(in, r->rank + 1, bytes);
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	sircl_group_begin();
	EXPECT(r, sircl_send(in, bytes, SIRCL_UINT8, (r->rank + 1) % r->n, r->comm, SIRCL_HOST) ==
			  SIRCL_SUCCESS);
	EXPECT(r, sircl_recv(out, bytes, SIRCL_UINT8, (r->rank + r->n - 1) % r->n, r->comm, SIRCL_HOST) ==
			  SIRCL_SUCCESS);
	EXPECT(r, sircl_group_end() == SIRCL_SUCCESS);
	EXPECT(r, ((unsigned char *)out)[bytes - 1] == (r->rank + r->n - 1) % r->n + 1);
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	calls = copies;
	if (r->rank == 0)
		printf("       copying calls of %d ranks for %d MiB each: %ld\n", r->n, MIBS, calls);
	EXPECT(r, calls <= (long)r->n * MIBS);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 4, failed = 0, passed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (n < 2 || n > RANKS_MAX) {
		fprintf(stderr, "usage: api_cost [N], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	run_ranks("no allocation in a steady state", n, steady) ? failed++ : passed++;
	run_ranks("one copying call for a MiB", n, large) ? failed++ : passed++;
	if (!getenv("SHORT"))
		run_ranks("a message of several parts beside a collective", n, parts) ? failed++ : passed++;
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
