/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring. Every rank takes the time of each of its runs; the ranks then tell each other mean, percentiles
 * and wrong elements, so that all have the same row. Between runs there is no barrier: an operation is its
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
#define LATE_US 1000 /* how much later than the others a rank enters a barrier that is checked */

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

/* Touched, so that no run meets a page for the first time. */
static bool get_memory(struct bench *b, void **p)
{
	size_t bytes = b->o->max_bytes + GUARD;

	if (b->o->plain_memory) {
		if (posix_memalign(p, (size_t)sysconf(_SC_PAGESIZE), bytes)) {
			fprintf(stderr, "sircl-bench: rank %d: no memory for %zu bytes\n", b->s->rank, bytes);
			*p = NULL;
			return false;
		}
	} else if (sircl_mem_alloc(b->s->comm, bytes, p) != SIRCL_SUCCESS) {
		*p = NULL;
		return session_failed(b->s, "sircl_mem_alloc");
	}
	memset(*p, 0, bytes);
	return true;
}

static void put_memory(const struct bench *b, void *p)
{
	if (b->o->plain_memory)
		free(p);
	else if (p)
		sircl_mem_free(b->s->comm, p);
}

/* What no root needs of this rank is not allocated: large sizes leave no room for it. */
static bool get_pair(struct bench *b, struct buffers *p)
{
	int rank = b->s->rank, n = b->s->n, root = b->o->root == ROOT_ALL ? rank : b->o->root;

	return (!kind_in(b->kind, 1, rank, root, n) || get_memory(b, &p->send)) &&
	       (!kind_out(b->kind, 1, rank, root, n) || get_memory(b, &p->recv));
}

bool bench_open(struct bench *b, const struct options *o, struct session *s, const struct rank_facts facts[],
		enum bench_kind kind)
{
	*b = (struct bench){ .o = o, .s = s, .facts = facts, .kind = kind };
	b->time = calloc((size_t)o->iters, sizeof(b->time[0]));
	b->pair = calloc((size_t)o->rotate, sizeof(b->pair[0]));
	if (!b->time || !b->pair) {
		fprintf(stderr, "sircl-bench: rank %d: no memory for %d times and %d pairs of buffers\n",
			s->rank, o->iters, o->rotate);
		return false;
	}
	for (int i = 0; i < o->rotate; i++)
		if (!get_pair(b, &b->pair[i]))
			return false;
	return true;
}

void bench_close(struct bench *b)
{
	for (int i = 0; b->pair && i < b->o->rotate; i++) {
		put_memory(b, b->pair[i].send);
		put_memory(b, b->pair[i].recv);
	}
	free(b->pair);
	free(b->time);
}

/* What one run of this rank reads and writes: NULL where it has nothing. */
struct place {
	char *in, *out;
	size_t in_count, out_count; /* elements */
	bool shared; /* one is part of the other */
};

static struct place place_of(const struct bench *b, const struct row *r, int where, int pair)
{
	size_t share = (size_t)b->s->rank * r->count * bench_type_size(r->type);
	struct place p = { .in_count = kind_in(r->kind, r->count, b->s->rank, r->root, b->s->n),
			   .out_count = kind_out(r->kind, r->count, b->s->rank, r->root, b->s->n) };

	if (p.in_count)
		p.in = b->pair[pair].send;
	if (p.out_count)
		p.out = b->pair[pair].recv;
	if (where == OUT_OF_PLACE || !p.in || !p.out)
		return p;
	p.shared = true;
	p.in = p.out;
	if (p.in_count < p.out_count)
		p.in += share;
	else if (p.out_count < p.in_count)
		p.out += share;
	return p;
}

static struct verify_case verify_of(const struct bench *b, const struct row *r)
{
	return (struct verify_case){ .kind = r->kind,
				     .type = r->type,
				     .op = r->op,
				     .count = r->count,
				     .root = r->root,
				     .n = b->s->n };
}

static bool run(struct bench *b, const struct row *r, const struct place *p)
{
	struct kind_call c = { .kind = r->kind,
			       .in = p->in,
			       .out = p->out,
			       .count = r->count,
			       .type = r->type,
			       .op = r->op,
			       .root = r->root,
			       .rank = b->s->rank,
			       .n = b->s->n,
			       .comm = b->s->comm };

	return kind_run(&c) == SIRCL_SUCCESS || session_failed(b->s, kind_info(r->kind)->call);
}

static struct place next_place(struct bench *b, const struct row *r, int where)
{
	int pair = b->turn;

	b->turn = (b->turn + 1) % b->o->rotate;
	return place_of(b, r, where, pair);
}

static bool time_it(struct bench *b, const struct row *r, int where, struct stats *t)
{
	struct verify_case c = verify_of(b, r);
	struct place p;

	for (int i = 0; i < b->o->rotate; i++) {
		p = place_of(b, r, where, i);
		if (p.in)
			verify_fill(&c, b->s->rank, p.in);
	}
	for (int i = 0; i < b->o->warmup; i++) {
		p = next_place(b, r, where);
		if (!run(b, r, &p))
			return false;
	}
	if (!session_all(b->s, true)) /* start together */
		return false;
	for (int i = 0; i < b->o->iters; i++) {
		double start = now_us();

		p = next_place(b, r, where);
		if (!run(b, r, &p))
			return false;
		b->time[i] = now_us() - start;
	}
	*t = stats_of(b->time, (size_t)b->o->iters);
	return true;
}

/* Result and guard are spoilt first, so that what was not written, or should not have been, shows. */
static bool run_fresh(struct bench *b, const struct row *r, const struct place *p, bool random)
{
	size_t size = bench_type_size(r->type);
	struct verify_case c = verify_of(b, r);

	if (p->out) {
		memset(p->out, 0xa5, p->out_count * size);
		memset(p->out + p->out_count * size, GUARD_BYTE, GUARD);
	}
	if (p->in && random)
		verify_fill_random(r->type, p->in, p->in_count, b->s->rank);
	else if (p->in)
		verify_fill(&c, b->s->rank, p->in);
	return run(b, r, p);
}

/* The last rank that gets something has a wrong byte. */
static void plant(struct bench *b, const struct row *r, const struct place *p)
{
	int last = b->s->n - 1;

	if (!b->o->plant_error || b->planted || !r->bytes)
		return;
	while (last > 0 && !kind_out(r->kind, r->count, last, r->root, b->s->n))
		last--;
	b->planted = true;
	if (b->s->rank == last && p->out)
		p->out[p->out_count * bench_type_size(r->type) - 1] ^= 1;
}

/* The input is the caller's, but for the part of it that is the result. */
static uint64_t changed_input(const struct verify_case *c, int rank, const struct place *p)
{
	size_t share = (size_t)rank * c->count;

	if (!p->in)
		return 0;
	if (!p->shared)
		return verify_kept(c, rank, p->in, 0, p->in_count);
	if (p->in_count <= p->out_count)
		return 0;
	return verify_kept(c, rank, p->in, 0, share) +
	       verify_kept(c, rank, p->in, share + c->count, p->in_count);
}

static bool check_it(struct bench *b, const struct row *r, int where, uint64_t *wrong)
{
	size_t size = bench_type_size(r->type);
	struct verify_case c = verify_of(b, r);
	struct place p = next_place(b, r, where);

	*wrong = 0;
	if (!run_fresh(b, r, &p, false))
		return false;
	plant(b, r, &p);
	*wrong = verify_result(&c, b->s->rank, p.out) + changed_input(&c, b->s->rank, &p);
	/* where the result lies inside the input, what follows is input and looked at already */
	if (p.out && !(p.shared && p.in_count > p.out_count))
		for (int i = 0; i < GUARD; i++)
			*wrong += (unsigned char)p.out[p.out_count * size + i] != GUARD_BYTE;
	return true;
}

/* Each rank enters late once; nobody on the same machine, whose clock is the same, may have left before. */
static bool check_barrier(struct bench *b, const struct row *r, uint64_t *wrong)
{
	struct {
		double entered, left;
	} mine, *all = calloc((size_t)b->s->n, sizeof(*all));
	const struct rank_facts *me = &b->facts[b->s->rank];
	struct place none = { 0 };
	bool ok = all != NULL, early;

	*wrong = 0;
	for (int late = 0; ok && late < b->s->n; late++) {
		if (late == b->s->rank)
			usleep(LATE_US);
		mine.entered = now_us();
		ok = run(b, r, &none);
		mine.left = now_us();
		if (b->o->plant_error && late == 0 && b->s->rank == b->s->n - 1)
			mine.left = 0;
		ok = ok && session_gather(b->s, &mine, all, sizeof(mine));
		early = false;
		for (int k = 0; ok && k < b->s->n; k++)
			early = early || (b->facts[k].machine == me->machine && mine.left < all[k].entered);
		*wrong += early;
	}
	free(all);
	return ok;
}

static void combine(const struct bench *b, const struct report all[], struct row *r, int where)
{
	const struct kind_info *kind = kind_info(r->kind);
	struct measured *m = &r->m[where];

	m->done = true;
	for (int k = 0; k < b->s->n; k++) {
		const struct report *of = &all[PLACES * k + where];

		if (of->t.mean > all[PLACES * m->slowest + where].t.mean)
			m->slowest = k;
		m->wrong += of->wrong;
		if (kind->same && of->digest != all[where].digest)
			r->same_bits = false;
		if (k == 0 || !kind->same)
			r->digest = verify_digest(r->digest, &of->digest, sizeof(of->digest));
	}
	m->mean = all[PLACES * m->slowest + where].t.mean;
	m->p50 = all[PLACES * m->slowest + where].t.p50;
	m->p99 = all[PLACES * m->slowest + where].t.p99;
	m->min = all[PLACES * m->slowest + where].t.min;
	m->max = all[PLACES * m->slowest + where].t.max;
	m->algbw = stats_bandwidth((double)r->bytes, m->mean);
	m->busbw = m->algbw * kind_bus_factor(r->kind, b->s->n);
}

static bool one_place(struct bench *b, const struct row *r, int where, struct report *mine)
{
	struct place p;

	if (!time_it(b, r, where, &mine->t))
		return false;
	if (b->o->check && !(r->kind == KIND_BARRIER ? check_barrier(b, r, &mine->wrong)
						     : check_it(b, r, where, &mine->wrong)))
		return false;
	if (!b->o->digest)
		return true;
	p = next_place(b, r, where);
	if (!run_fresh(b, r, &p, true))
		return false;
	if (p.out)
		mine->digest = verify_digest(r->bytes, p.out, p.out_count * bench_type_size(r->type));
	return true;
}

bool bench_row(struct bench *b, struct row *r)
{
	int places = kind_info(r->kind)->in_place ? PLACES : 1;
	size_t unit = bench_type_size(r->type) * kind_unit(r->kind, b->s->n);
	struct report mine[PLACES], *all = calloc((size_t)b->s->n * PLACES, sizeof(*all));
	bool ok = all != NULL;

	if (!ok)
		fprintf(stderr, "sircl-bench: rank %d: no memory for results\n", b->s->rank);
	memset(mine, 0, sizeof(mine));
	r->count = r->bytes / unit;
	r->bytes = r->count * unit;
	r->same_bits = true;
	for (int where = 0; ok && where < places; where++)
		ok = one_place(b, r, where, &mine[where]);
	ok = ok && session_gather(b->s, mine, all, sizeof(mine));
	for (int where = 0; ok && where < places; where++)
		combine(b, all, r, where);
	free(all);
	return ok;
}
