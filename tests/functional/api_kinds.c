/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every collective of the public header, with ranks as threads: all roots, counts 0, 1 and odd, unaligned
 * buffers, in place and not, blocking and started; wrong arguments harm nothing. `api_kinds [N]`.
 */
#include <stdint.h>
#include "ranks.h"

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, GATHER, SCATTER, KINDS };
static const char *const names[KINDS] = { "all_reduce", "all_gather", "reduce_scatter", "broadcast",
					  "reduce",     "all_to_all", "gather",         "scatter" };
#define T SIRCL_INT32

/* Element i of what rank `from` has for rank `to` (or for all: to = 0). */
static int32_t value(int from, int to, size_t i)
{
	return (int32_t)(i * 7 + (size_t)from * 1000003 + (size_t)to * 10007);
}

static bool whole_in(enum kind k)
{
	return k == REDUCE_SCATTER || k == ALL_TO_ALL || k == SCATTER;
}

static bool whole_out(enum kind k)
{
	return k == ALL_GATHER || k == ALL_TO_ALL || k == GATHER;
}

static bool sends(enum kind k, int rank, int root)
{
	return (k != BROADCAST && k != SCATTER) || rank == root;
}

static bool receives(enum kind k, int rank, int root)
{
	return (k != REDUCE && k != GATHER) || rank == root;
}

/* What element i of this rank's result is. */
static int32_t expected(enum kind k, int rank, int n, int root, size_t count, size_t i)
{
	uint32_t sum = 0;

	switch (k) {
	case ALL_REDUCE:
	case REDUCE:
		for (int r = 0; r < n; r++)
			sum += (uint32_t)value(r, 0, i);
		return (int32_t)sum;
	case REDUCE_SCATTER:
		for (int r = 0; r < n; r++)
			sum += (uint32_t)value(r, rank, i);
		return (int32_t)sum;
	case ALL_GATHER:
	case GATHER:
		return value((int)(i / count), 0, i % count);
	case ALL_TO_ALL:
		return value((int)(i / count), rank, i % count);
	case SCATTER:
		return value(root, rank, i);
	default:
		return value(root, 0, i);
	}
}

static sircl_result_t issue(enum kind k, const void *s, void *d, size_t c, int root, sircl_comm_t comm)
{
	switch (k) {
	case ALL_REDUCE:
		return sircl_all_reduce(s, d, c, T, SIRCL_SUM, comm, SIRCL_HOST);
	case ALL_GATHER:
		return sircl_all_gather(s, d, c, T, comm, SIRCL_HOST);
	case REDUCE_SCATTER:
		return sircl_reduce_scatter(s, d, c, T, SIRCL_SUM, comm, SIRCL_HOST);
	case BROADCAST:
		return sircl_broadcast(s, d, c, T, root, comm, SIRCL_HOST);
	case REDUCE:
		return sircl_reduce(s, d, c, T, SIRCL_SUM, root, comm, SIRCL_HOST);
	case ALL_TO_ALL:
		return sircl_all_to_all(s, d, c, T, comm, SIRCL_HOST);
	case GATHER:
		return sircl_gather(s, d, c, T, root, comm, SIRCL_HOST);
	default:
		return sircl_scatter(s, d, c, T, root, comm, SIRCL_HOST);
	}
}

static sircl_result_t issue_start(enum kind k, const void *s, void *d, size_t c, int root, sircl_comm_t comm,
				  sircl_request_t *q)
{
	switch (k) {
	case ALL_REDUCE:
		return sircl_all_reduce_start(s, d, c, T, SIRCL_SUM, comm, SIRCL_HOST, q);
	case ALL_GATHER:
		return sircl_all_gather_start(s, d, c, T, comm, SIRCL_HOST, q);
	case REDUCE_SCATTER:
		return sircl_reduce_scatter_start(s, d, c, T, SIRCL_SUM, comm, SIRCL_HOST, q);
	case BROADCAST:
		return sircl_broadcast_start(s, d, c, T, root, comm, SIRCL_HOST, q);
	case REDUCE:
		return sircl_reduce_start(s, d, c, T, SIRCL_SUM, root, comm, SIRCL_HOST, q);
	case ALL_TO_ALL:
		return sircl_all_to_all_start(s, d, c, T, comm, SIRCL_HOST, q);
	case GATHER:
		return sircl_gather_start(s, d, c, T, root, comm, SIRCL_HOST, q);
	default:
		return sircl_scatter_start(s, d, c, T, root, comm, SIRCL_HOST, q);
	}
}

enum how { APART, IN_PLACE, STARTED, HOWS };

static void set(char *p, size_t i, int32_t v)
{
	memcpy(p + i * sizeof(v), &v, sizeof(v));
}

static int32_t get(const char *p, size_t i)
{
	int32_t v;

	memcpy(&v, p + i * sizeof(v), sizeof(v));
	return v;
}

/* One byte off every alignment. What a rank does not need is an address that faults. */
static void one(struct rank_ctx *r, enum kind k, size_t count, int root, enum how how)
{
	size_t n = (size_t)r->n, nin = whole_in(k) ? count * n : count,
	       nout = whole_out(k) ? count * n : count;
	char *a = calloc(count * n + 1, sizeof(int32_t)), *b = calloc(count * n + 1, sizeof(int32_t));
	char *in = a + 1, *out = b + 1;
	sircl_request_t q = NULL;
	size_t bad = 0;

	if (how == IN_PLACE) {
		out = in;
		if (whole_out(k) && !whole_in(k))
			in += (size_t)r->rank * count * sizeof(int32_t);
		if (whole_in(k) && !whole_out(k))
			out += (size_t)r->rank * count * sizeof(int32_t);
	}
	for (size_t i = 0; sends(k, r->rank, root) && i < nin; i++)
		set(in, i, value(r->rank, whole_in(k) ? (int)(i / count) : 0, whole_in(k) ? i % count : i));
	if (!sends(k, r->rank, root))
		in = (char *)8;
	if (!receives(k, r->rank, root))
		out = NULL;
	if (how == STARTED) {
		EXPECT(r, issue_start(k, in, out, count, root, r->comm, &q) == SIRCL_SUCCESS);
		EXPECT(r, sircl_wait(&q) == SIRCL_SUCCESS && q == NULL);
	} else {
		EXPECT(r, issue(k, in, out, count, root, r->comm) == SIRCL_SUCCESS);
	}
	for (size_t i = 0; receives(k, r->rank, root) && i < nout; i++)
		bad += get(out, i) != expected(k, r->rank, r->n, root, count, i);
	if (bad)
		fprintf(stderr, "rank %d: %s of %zu from root %d, way %d: %zu wrong\n", r->rank, names[k],
			count, root, (int)how, bad);
	EXPECT(r, bad == 0);
	free(a);
	free(b);
}

static void results(struct rank_ctx *r)
{
	static const size_t counts[] = { 0, 1, 3, 1001, 70001 };

	for (int k = 0; k < KINDS; k++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
			for (int root = 0; root < r->n; root++) {
				if (root && (k == ALL_REDUCE || k == ALL_GATHER || k == REDUCE_SCATTER ||
					     k == ALL_TO_ALL))
					continue;
				for (int how = 0; how < HOWS; how++)
					one(r, (enum kind)k, counts[i], root, (enum how)how);
			}
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

static void arguments(struct rank_ctx *r)
{
	int32_t a[64 * RANKS_MAX] = { 0 }, b[64 * RANKS_MAX];
	sircl_comm_t c = r->comm;
	sircl_request_t q = (sircl_request_t)&q;
	size_t huge = SIZE_MAX / 4 / (size_t)r->n + 1;
	int done = 7, other = (r->rank + 1) % r->n;
	sircl_result_t bad = SIRCL_INVALID_ARGUMENT;
	struct {
		sircl_result_t got, want;
	} t[] = {
		{ sircl_broadcast(a, b, 4, T, r->n, c, SIRCL_HOST), bad },
		{ sircl_broadcast(a, b, 4, T, -1, c, SIRCL_HOST), bad },
		{ sircl_broadcast(NULL, b, 4, T, r->rank, c, SIRCL_HOST), bad },
		{ sircl_broadcast(a, NULL, 4, T, other, c, SIRCL_HOST), bad },
		{ sircl_reduce(a, NULL, 4, T, SIRCL_SUM, r->rank, c, SIRCL_HOST), bad },
		{ sircl_reduce(a, b, 4, T, (sircl_op_t)5, r->rank, c, SIRCL_HOST), bad },
		{ sircl_reduce(a, b, 4, (sircl_type_t)12, SIRCL_SUM, r->rank, c, SIRCL_HOST), bad },
		{ sircl_reduce_scatter(a, a, 4, T, SIRCL_SUM, r->rank ? c : NULL, SIRCL_HOST), bad },
		{ sircl_reduce_scatter(a, b, huge, T, SIRCL_SUM, c, SIRCL_HOST), bad },
		{ sircl_all_to_all(a, a + 1, 4, T, c, SIRCL_HOST), bad },
		{ sircl_all_to_all(a, b, huge, T, c, SIRCL_HOST), bad },
		{ sircl_gather(a + 1, a, 4, T, r->rank, c, SIRCL_HOST), bad },
		{ sircl_gather(a, NULL, 4, T, r->rank, c, SIRCL_HOST), bad },
		{ sircl_scatter(a, a + 1, 4, T, r->rank, c, SIRCL_HOST), bad },
		{ sircl_scatter(NULL, b, 4, T, r->rank, c, SIRCL_HOST), bad },
		{ sircl_scatter(a, b, huge, T, other, c, SIRCL_HOST), bad },
		{ sircl_barrier(c, NULL), SIRCL_UNSUPPORTED },
		{ sircl_barrier(NULL, SIRCL_HOST), bad },
		{ sircl_barrier_start(c, SIRCL_HOST, NULL), bad },
		{ sircl_send_start(a, 4, T, other, c, SIRCL_HOST, NULL), bad },
		{ sircl_all_reduce_start(a, NULL, 4, T, SIRCL_SUM, c, SIRCL_HOST, &q), bad },
		{ sircl_test(NULL, &done), bad },
		{ sircl_wait(NULL), bad },
		{ sircl_group_end(), SIRCL_INVALID_USAGE },
		{ sircl_comm_split(c, -2, 0, NULL, &c), bad },
		{ sircl_comm_split(r->comm, 0, 0, NULL, NULL), bad },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		if (t[i].got != t[i].want)
			fprintf(stderr, "case %zu: got %s, want %s\n", i, sircl_strerror(t[i].got),
				sircl_strerror(t[i].want));
		EXPECT(r, t[i].got == t[i].want);
	}
	EXPECT(r, q == NULL && sircl_wait(&q) == SIRCL_SUCCESS);
	EXPECT(r, sircl_test(&q, &done) == SIRCL_SUCCESS && done == 1);
	one(r, ALL_TO_ALL, 11, 0, APART);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

/* Pre-multiplied sums: the type is checked, a handle ends with its destroy, a call issued before is not
 * harmed. */
static void premul(struct rank_ctx *r)
{
	float x[5], y[5], half = 0.5f, want = 0;
	int32_t three = 3, v = r->rank + 1, sum = 0;
	sircl_op_t op, op3;
	sircl_request_t q;

	EXPECT(r, sircl_op_create_premul_sum(NULL, &half, SIRCL_FLOAT32, r->comm) == SIRCL_INVALID_ARGUMENT);
	EXPECT(r, sircl_op_create_premul_sum(&op, &half, SIRCL_FLOAT32, r->comm) == SIRCL_SUCCESS);
	EXPECT(r, sircl_op_create_premul_sum(&op3, &three, SIRCL_INT32, r->comm) == SIRCL_SUCCESS);
	EXPECT(r, op != op3 && (int)op >= SIRCL_OP_COUNT);
	for (int i = 0; i < 5; i++)
		x[i] = (float)(r->rank * 4 + i);
	EXPECT(r,
	       sircl_all_reduce(x, y, 5, SIRCL_FLOAT32, op3, r->comm, SIRCL_HOST) == SIRCL_INVALID_ARGUMENT);
	EXPECT(r,
	       sircl_all_reduce_start(x, y, 5, SIRCL_FLOAT32, op, r->comm, SIRCL_HOST, &q) == SIRCL_SUCCESS);
	EXPECT(r, sircl_op_destroy(op, r->comm) == SIRCL_SUCCESS);
	EXPECT(r, sircl_op_destroy(op, r->comm) == SIRCL_INVALID_ARGUMENT);
	EXPECT(r, sircl_wait(&q) == SIRCL_SUCCESS);
	for (int k = 0; k < r->n; k++)
		want += 0.5f * (float)(k * 4 + 2);
	EXPECT(r, y[2] == want);
	EXPECT(r,
	       sircl_all_reduce(x, y, 5, SIRCL_FLOAT32, op, r->comm, SIRCL_HOST) == SIRCL_INVALID_ARGUMENT);
	EXPECT(r,
	       sircl_reduce(&v, &sum, 1, SIRCL_INT32, op3, r->n - 1, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, r->rank != r->n - 1 || sum == 3 * r->n * (r->n + 1) / 2);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

/* Different roots: an error on every rank by the end of the next call, no hang. */
static void roots(struct rank_ctx *r)
{
	int32_t a[4] = { 0 }, b[4] = { 0 };
	sircl_result_t got = sircl_broadcast(a, b, 4, T, r->rank == 0 ? 0 : 1, r->comm, SIRCL_HOST);

	for (int i = 0; i < 1000 && got == SIRCL_SUCCESS; i++)
		got = sircl_all_reduce(a, b, 4, T, SIRCL_SUM, r->comm, SIRCL_HOST);
	EXPECT(r, got == SIRCL_MISMATCH);
	sircl_comm_destroy(r->comm);
	r->comm = NULL;
}

/* Memory after every kind, messages with every peer and large sizes, with the defaults. */
static void memory(struct rank_ctx *r)
{
	size_t big = 9u << 20;
	char *buf = calloc(1, big * 2);
	sircl_info_t info = { .size = sizeof(info) };

	for (int k = 0; k < KINDS; k++)
		one(r, (enum kind)k, (1u << 20) + 1, 0, APART);
	for (int step = 1; step < r->n; step++) {
		sircl_group_begin();
		sircl_send(buf, big, SIRCL_INT8, (r->rank + step) % r->n, r->comm, SIRCL_HOST);
		sircl_recv(buf + big, big, SIRCL_INT8, (r->rank + r->n - step) % r->n, r->comm, SIRCL_HOST);
		EXPECT(r, sircl_group_end() == SIRCL_SUCCESS);
	}
	EXPECT(r, sircl_comm_query(r->comm, &info) == SIRCL_SUCCESS);
	EXPECT(r, info.memory_bytes <= 64ull << 20);
	if (r->rank == 0)
		printf("       memory of a communicator of %d after all this: %.1f MiB\n", r->n,
		       (double)info.memory_bytes / (1 << 20));
	free(buf);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

static int alone(void)
{
	struct rank_ctx r = { .n = 1 };
	double half = 0.5, x = 8, y = 0;
	sircl_op_t op;

	EXPECT(&r, sircl_comm_create(&r.comm, NULL, 0, 1, NULL) == SIRCL_SUCCESS);
	for (int k = 0; k < KINDS; k++)
		for (int how = 0; how < HOWS; how++)
			one(&r, (enum kind)k, 7, 0, (enum how)how);
	EXPECT(&r, sircl_barrier(r.comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(&r, sircl_op_create_premul_sum(&op, &half, SIRCL_FLOAT64, r.comm) == SIRCL_SUCCESS);
	EXPECT(&r,
	       sircl_reduce(&x, &y, 1, SIRCL_FLOAT64, op, 0, r.comm, SIRCL_HOST) == SIRCL_SUCCESS && y == 4);
	EXPECT(&r, sircl_comm_destroy(r.comm) == SIRCL_SUCCESS);
	printf("  %-4s every kind with one rank\n", r.failures ? "FAIL" : "ok");
	return r.failures;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*body)(struct rank_ctx *);
	} test[] = {
		{ "every kind: roots, counts, unaligned, in place, started", results },
		{ "wrong arguments of every kind are refused and harm nothing", arguments },
		{ "pre-multiplied sums", premul },
		{ "different roots are an error on every rank", roots },
		{ "memory stays below 64 MiB", memory },
	};
	int n = argc > 1 ? atoi(argv[1]) : 4, failed = 0, passed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (n < 2 || n > RANKS_MAX) {
		fprintf(stderr, "usage: api_kinds [N], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	for (size_t i = 0; i < sizeof(test) / sizeof(*test); i++)
		run_ranks(test[i].name, n, test[i].body) ? failed++ : passed++;
	alone() ? failed++ : passed++;
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
