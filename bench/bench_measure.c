/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring. Every rank takes the time of each of its runs; the ranks then tell each other mean, percentiles
 * and wrong elements, so that all have the same row. Between runs there is no barrier: a collective is its
 * own.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bench_measure.h"
#include "bench_stats.h"
#include "bench_verify.h"

#define GUARD 256 /* bytes after the result that nobody may write */
#define GUARD_BYTE 0x5c

struct report {
	struct stats t;
	uint64_t wrong, digest;
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static bool get_memory(struct bench *b, size_t bytes, void **p)
{
	if (b->o->plain_memory) {
		if (posix_memalign(p, (size_t)sysconf(_SC_PAGESIZE), bytes)) {
			fprintf(stderr, "sircl-bench: rank %d: no memory for %zu bytes\n", b->s->rank, bytes);
			*p = NULL;
			return false;
		}
		return true;
	}
	return sircl_mem_alloc(b->s->comm, bytes, p) == SIRCL_SUCCESS ||
	       session_failed(b->s, "sircl_mem_alloc");
}

bool bench_open(struct bench *b, const struct options *o, struct session *s)
{
	*b = (struct bench){ .o = o, .s = s, .room = o->max_bytes };
	b->time = calloc((size_t)o->iters, sizeof(b->time[0]));
	if (!b->time) {
		fprintf(stderr, "sircl-bench: rank %d: no memory for %d times\n", s->rank, o->iters);
		return false;
	}
	/* touched, so that no run meets a page for the first time */
	if (!get_memory(b, o->max_bytes + GUARD, &b->send))
		return false;
	memset(b->send, 0, o->max_bytes + GUARD);
	if (!get_memory(b, o->max_bytes + GUARD, &b->recv))
		return false;
	memset(b->recv, 0, o->max_bytes + GUARD);
	return true;
}

void bench_close(struct bench *b)
{
	if (b->o->plain_memory) {
		free(b->send);
		free(b->recv);
	} else {
		if (b->send)
			sircl_mem_free(b->s->comm, b->send);
		if (b->recv)
			sircl_mem_free(b->s->comm, b->recv);
	}
	free(b->time);
}

/* This rank's input for a run in place. */
static void *own_place(const struct bench *b, const struct row *r)
{
	if (b->o->coll == BENCH_ALL_GATHER)
		return (char *)b->recv + (size_t)b->s->rank * r->count * bench_type_size(r->type);
	return b->recv;
}

static bool run(struct bench *b, const struct row *r, int place)
{
	const void *in = place == IN_PLACE ? own_place(b, r) : b->send;
	sircl_result_t ret;

	if (b->o->coll == BENCH_ALL_GATHER)
		ret = sircl_all_gather(in, b->recv, r->count, r->type, b->s->comm, SIRCL_HOST);
	else
		ret = sircl_all_reduce(in, b->recv, r->count, r->type, r->op, b->s->comm, SIRCL_HOST);
	return ret == SIRCL_SUCCESS ||
	       session_failed(b->s, b->o->coll == BENCH_ALL_GATHER ? "sircl_all_gather" : "sircl_all_reduce");
}

static bool time_it(struct bench *b, const struct row *r, int place, struct stats *t)
{
	verify_fill(r->type, place == IN_PLACE ? own_place(b, r) : b->send, r->count, b->s->rank, b->s->n);
	for (int i = 0; i < b->o->warmup; i++)
		if (!run(b, r, place))
			return false;
	if (!session_all(b->s, true)) /* start together */
		return false;
	for (int i = 0; i < b->o->iters; i++) {
		double start = now_us();

		if (!run(b, r, place))
			return false;
		b->time[i] = now_us() - start;
	}
	*t = stats_of(b->time, (size_t)b->o->iters);
	return true;
}

/* recv and its guard are spoilt first, so that a result that was not written shows. */
static bool run_fresh(struct bench *b, const struct row *r, int place, bool random)
{
	void *in = place == IN_PLACE ? own_place(b, r) : b->send;

	memset(b->recv, 0xa5, r->bytes);
	memset((char *)b->recv + r->bytes, GUARD_BYTE, GUARD);
	if (random)
		verify_fill_random(r->type, in, r->count, b->s->rank);
	else
		verify_fill(r->type, in, r->count, b->s->rank, b->s->n);
	return run(b, r, place);
}

static bool check_it(struct bench *b, const struct row *r, int place, uint64_t *wrong)
{
	const unsigned char *guard = (unsigned char *)b->recv + r->bytes;

	*wrong = 0;
	if (!run_fresh(b, r, place, false))
		return false;
	if (b->o->plant_error && !b->planted && r->bytes) {
		b->planted = true;
		if (b->s->rank == b->s->n - 1)
			((unsigned char *)b->recv)[r->bytes - 1] ^= 1;
	}
	*wrong = verify_result(b->o->coll, r->type, b->recv, r->count, b->s->n);
	for (int i = 0; i < GUARD; i++)
		*wrong += guard[i] != GUARD_BYTE;
	if (place == OUT_OF_PLACE) /* the input is the caller's */
		*wrong += verify_input(r->type, b->send, r->count, b->s->rank, b->s->n);
	return true;
}

static double bus_factor(const struct bench *b)
{
	double n = b->s->n;

	return b->o->coll == BENCH_ALL_GATHER ? (n - 1) / n : 2 * (n - 1) / n;
}

static void combine(const struct bench *b, const struct report all[], struct row *r, int place)
{
	struct measured *m = &r->m[place];

	m->wrong = 0;
	for (int k = 0; k < b->s->n; k++) {
		if (all[k].t.mean > all[m->slowest].t.mean)
			m->slowest = k;
		m->wrong += all[k].wrong;
		if (all[k].digest != all[0].digest)
			r->same_bits = false;
	}
	m->mean = all[m->slowest].t.mean;
	m->p50 = all[m->slowest].t.p50;
	m->p99 = all[m->slowest].t.p99;
	m->min = all[m->slowest].t.min;
	m->max = all[m->slowest].t.max;
	m->algbw = stats_bandwidth((double)r->bytes, m->mean);
	m->busbw = m->algbw * bus_factor(b);
	r->digest = verify_digest(r->digest, &all[0].digest, sizeof(all[0].digest));
}

bool bench_row(struct bench *b, size_t bytes, sircl_type_t type, sircl_op_t op, struct row *r)
{
	size_t unit = bench_type_size(type) * (b->o->coll == BENCH_ALL_GATHER ? (size_t)b->s->n : 1);
	struct report mine, *all = calloc((size_t)b->s->n, sizeof(*all));
	bool ok = all != NULL;

	*r = (struct row){ .count = bytes / unit, .type = type, .op = op, .same_bits = true };
	r->bytes = r->count * unit;
	for (int place = 0; ok && place < PLACES; place++) {
		memset(&mine, 0, sizeof(mine));
		ok = time_it(b, r, place, &mine.t);
		if (ok && b->o->check)
			ok = check_it(b, r, place, &mine.wrong);
		if (ok && b->o->digest) {
			ok = run_fresh(b, r, place, true);
			mine.digest = verify_digest(r->bytes, b->recv, r->bytes);
		}
		ok = ok && session_gather(b->s, &mine, all, sizeof(mine));
		if (ok)
			combine(b, all, r, place);
	}
	free(all);
	return ok;
}
