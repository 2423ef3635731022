/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that do not match, with ranks as threads: one rank names another kind, count, type, operation or
 * root, for every kind. Soon it is an error on every rank, whatever they call next, and never a hang; the
 * communicator that theirs was split from is unharmed. `mismatch [N]`.
 */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include "random_op.h"

#define SECONDS 10 /* for a case; it takes milliseconds */

static _Atomic int now_case;
static struct desc one, others;
static int odd; /* the rank that calls `one` */

static void describe(const char *what, const struct desc *d)
{
	fprintf(stderr, "  %s: %s of %zu, type %d, operation %d, root %d\n", what, kind_names[d->kind],
		d->count, (int)d->type, d->op, d->root);
}

static void *watchdog(void *arg)
{
	int at = -1, same = 0;

	(void)arg;
	for (;;) {
		struct timespec t = { .tv_sec = 1 };

		nanosleep(&t, NULL);
		same = at == atomic_load(&now_case) ? same + 1 : 0;
		at = atomic_load(&now_case);
		if (same < SECONDS)
			continue;
		fprintf(stderr, "FAIL: case %d hangs; odd rank %d\n", at, odd);
		describe("it", &one);
		describe("the others", &others);
		_exit(1);
	}
}

/* A buffer large enough for all, in and out. */
static sircl_result_t call(const struct desc *d, sircl_comm_t c, int rank, int n)
{
	struct place p = { .rank = rank, .n = n, .comm = c };
	struct inst o;
	sircl_result_t e;

	inst_open(&o, d, &p);
	o.op = (sircl_op_t)d->op;
	e = call_now(&o);
	inst_close(&o);
	return e;
}

static void meet(struct rank_ctx *r)
{
	static _Atomic unsigned arrived;
	unsigned round = atomic_load(&arrived) / (unsigned)r->n;

	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) / (unsigned)r->n == round)
		usleep(100);
}

/* Barriers are where a rank hears of it whose own call could be done. */
static void try(struct rank_ctx *r)
{
	sircl_comm_t c;
	sircl_result_t e, then;
	int i = 0;
	const struct desc *d = r->rank == odd ? &one : &others;

	EXPECT(r, sircl_comm_split(r->comm, 0, 0, NULL, &c) == SIRCL_SUCCESS);
	if (!c)
		_exit(1);
	e = call(d, c, r->rank, r->n);
	do
		then = sircl_barrier(c, SIRCL_HOST);
	while (then == SIRCL_SUCCESS && ++i < 1000);
	if (then != SIRCL_MISMATCH && then != SIRCL_REMOTE_ERROR) {
		fprintf(stderr, "rank %d: %s, then %s: %s\n", r->rank, sircl_strerror(e),
			sircl_strerror(then), sircl_last_error(c));
		describe(r->rank == odd ? "this (odd) called" : "this called", d);
		describe("the odd rank", &one);
		describe("the others", &others);
		r->failures++;
	}
	r->checks++;
	sircl_comm_destroy(c);
}

static struct desc base_of(enum kind k)
{
	return (struct desc){ .kind = k, .type = SIRCL_INT32, .op = SIRCL_SUM, .count = 5, .seed = 1 };
}

static size_t big;

/* One case: rank 0 sets it up for all. */
static void run_case(struct rank_ctx *r, const struct desc *a, const struct desc *b, int who)
{
	meet(r);
	if (r->rank == 0) {
		one = *a;
		others = *b;
		odd = who;
		atomic_fetch_add(&now_case, 1);
	}
	meet(r);
	try(r);
}

static void body(struct rank_ctx *r)
{
	for (int k = 0; k < MESSAGE; k++) {
		struct desc b = base_of((enum kind)k), a;

		for (int j = 0; j < MESSAGE; j++) {
			a = base_of((enum kind)j);
			if (j != k)
				run_case(r, &a, &b, (j + k) % r->n);
		}
		if (k == BARRIER)
			continue;
		for (int size = 0; size < 2; size++) {
			b.count = size ? big : 5;
			a = b;
			a.count = b.count + 1;
			run_case(r, &a, &b, k % r->n);
			a.count = 0;
			run_case(r, &a, &b, (k + 1) % r->n);
			run_case(r, &b, &a, (k + 1) % r->n); /* all but one have nothing to do */
			a = b;
			a.type = SIRCL_FLOAT32;
			run_case(r, &a, &b, k % r->n);
			a = b;
			a.op = SIRCL_MAX;
			if (reduces(a.kind))
				run_case(r, &a, &b, k % r->n);
			a = b;
			for (a.root = 1; has_root(a.kind) && a.root < r->n; a.root++)
				for (int who = 0; who < r->n; who++)
					run_case(r, &a, &b, who);
		}
	}
	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 4;
	pthread_t t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (n < 2 || n > RANKS_MAX) {
		fprintf(stderr, "usage: mismatch [N], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	big = 300001;
	if (pthread_create(&t, NULL, watchdog, NULL) != 0)
		return 1;
	n = run_ranks("calls that do not match are an error on every rank", n, body) != 0;
	printf("%d cases\n%d passed, %d failed, 0 skipped\n", atomic_load(&now_case), !n, n);
	return n;
}
