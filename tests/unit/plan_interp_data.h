/* SPDX-License-Identifier: Apache-2.0 */
/* Of plan_interp.h: its state, what goes in and must come out, and where a span lies in memory. */
#ifndef PLAN_INTERP_DATA_H
#define PLAN_INTERP_DATA_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "coll/coll.h"

#define INTERP_LANES 8

enum interp_end {
	INTERP_OK,
	INTERP_WRONG, /* a result is not what it must be, or ranks differ in the order of a sum */
	INTERP_HUNG,
	INTERP_RACE, /* the source of a SEND changed before its release */
	INTERP_FAULT /* touches what is not there; lengths or numbers of messages differ */
};

/* What happens only when nothing else can. */
enum interp_lazy {
	LAZY_RELEASE = 1,
	LAZY_LAND = 2,
	LAZY_SUM = 4,
	LAZY_STEP = 8,
	LAZY_POS = 16,
	LAZY_POST = 32
};

struct interp_cfg {
	enum coll_kind kind;
	int n, root; /* root: a rank */
	bool scaled, in_place;
	bool fuse; /* sums read messages from the window where a RECV is marked so */
	bool backwards; /* later steps are tried first */
	size_t count, slice; /* elements */
	int round; /* slices that scratch holds at once */
	int window, lanes;
	unsigned lazy;
	int lazy_pos, lazy_step;
	uint64_t seed;
};

struct interp_elem {
	uint64_t sum, order;
};

struct interp_msg {
	uint16_t step, slice; /* at the sender */
	uint16_t to_step; /* at the receiver; the same slice */
	bool started, staged, released, posted, ended;
	unsigned landed; /* bit per piece */
	size_t len;
	struct interp_elem *data; /* as it landed last, or as it was staged */
};

struct interp_wire {
	int n, started, posted, ended;
	int over; /* so many are ended and released */
	struct interp_msg *m;
};

struct interp_node {
	const struct plan *plan;
	struct interp_elem *in, *out, *scratch; /* in, out: NULL if the rank has none */
	size_t block_max; /* elements of a scratch block */
	uint64_t *done; /* by step: bit per slice; of a SEND: released */
	int *slices; /* by step */
	int *sum, nsums; /* REDUCEs and COPYs that are not done, in either order */
	int *fused; /* by step: source of the next step that this RECV feeds, or -1 */
};

struct interp {
	const struct interp_cfg *cfg;
	struct interp_node node[COLL_MAX_RANKS];
	struct interp_wire wire[COLL_MAX_RANKS][PLAN_CHANS]; /* by sender */
	enum interp_end end;
	uint64_t rnd;
	bool moved, hurry, last_resort;
	void *owned[16 * COLL_MAX_RANKS];
	int nowned;
};

static inline uint64_t interp_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185ull;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44dull;
	return x ^ x >> 33;
}

static inline uint64_t interp_random(struct interp *w)
{
	w->rnd += 0x9e3779b97f4a7c15ull;
	return interp_mix(w->rnd);
}

static inline void *interp_alloc(struct interp *w, size_t n, size_t size)
{
	void *p = calloc(n + 1, size);

	if (!p)
		abort();
	return w->owned[w->nowned++] = p;
}

static inline void interp_is(struct interp *w, enum interp_end e)
{
	if (w->end == INTERP_OK)
		w->end = e;
}

/* ---- what goes in and what must come out, element by element ---- */

static inline bool interp_in_part(enum coll_kind k)
{
	return k == COLL_ALL_GATHER || k == COLL_GATHER;
}
static inline bool interp_out_part(enum coll_kind k)
{
	return k == COLL_REDUCE_SCATTER || k == COLL_SCATTER;
}
static inline bool interp_shares(enum coll_kind k)
{
	return interp_in_part(k) || interp_out_part(k) || k == COLL_ALL_TO_ALL;
}
static inline size_t interp_in_len(const struct interp_cfg *c)
{
	return interp_shares(c->kind) && !interp_in_part(c->kind) ? c->count * (size_t)c->n : c->count;
}
static inline size_t interp_out_len(const struct interp_cfg *c)
{
	return interp_shares(c->kind) && !interp_out_part(c->kind) ? c->count * (size_t)c->n : c->count;
}

static inline uint64_t interp_scalar(const struct interp_cfg *c, int rank)
{
	return c->scaled ? interp_mix((uint64_t)rank + 77) | 1 : 1;
}

static inline struct interp_elem interp_given(int rank, size_t i)
{
	uint64_t x = interp_mix(((uint64_t)rank + 1) << 32 | i);

	return (struct interp_elem){ x, interp_mix(x + 1) };
}

static inline uint64_t interp_finish(uint64_t sum)
{
	return 3 * sum + 1; /* stands for the division of an average: shows if it is left out or done twice */
}

/* The sum of all contributions to element i of IN. */
static inline uint64_t interp_total(const struct interp *w, size_t i)
{
	uint64_t sum = 0;

	for (int r = 0; r < w->cfg->n; r++)
		sum += interp_given(r, i).sum * interp_scalar(w->cfg, r);
	return w->cfg->n > 1 && coll_reduces(w->cfg->kind) ? interp_finish(sum) : sum;
}

static inline uint64_t interp_want(const struct interp *w, int rank, size_t i)
{
	const struct interp_cfg *c = w->cfg;
	size_t own = (size_t)rank * c->count;

	switch (c->kind) {
	case COLL_ALL_GATHER:
	case COLL_GATHER:
		return interp_given((int)(i / c->count), i % c->count).sum;
	case COLL_REDUCE_SCATTER:
		return interp_total(w, own + i);
	case COLL_BROADCAST:
		return interp_given(c->root, i).sum;
	case COLL_SCATTER:
		return interp_given(c->root, own + i).sum;
	case COLL_ALL_TO_ALL:
		return interp_given((int)(i / c->count), own + i % c->count).sum;
	default:
		return interp_total(w, i);
	}
}

static inline void interp_check(struct interp *w, uint64_t *digest)
{
	const struct interp_cfg *c = w->cfg;
	size_t nin = interp_in_len(c), nout = interp_out_len(c);
	const struct interp_elem *first = w->node[0].out;
	bool same = c->kind == COLL_ALL_REDUCE || c->kind == COLL_BARRIER;

	*digest = 0;
	for (int p = 0; p < c->n; p++) {
		const struct interp_node *d = &w->node[p];

		for (size_t i = 0; d->out && i < nout; i++) {
			if (d->out[i].sum != interp_want(w, d->plan->rank, i) ||
			    (same && d->out[i].order != first[i].order))
				interp_is(w, INTERP_WRONG);
			*digest = interp_mix(*digest ^ d->out[i].order);
		}
		for (size_t i = 0; !c->in_place && d->in && i < nin; i++)
			if (d->in[i].sum != interp_given(d->plan->rank, i).sum)
				interp_is(w, INTERP_WRONG);
	}
}

/* ---- memory ---- */

/* Elements of a span: as plan.h cuts them. False: there is no such thing. */
static inline bool interp_extent(const struct interp *w, const struct plan *p, const struct plan_span *x,
				 size_t *lo, size_t *len)
{
	size_t c = w->cfg->count, k = p->nblocks, b = x->buf == PLAN_SCRATCH ? x->as : x->block;

	if ((x->buf == PLAN_IN && p->in_part) || (x->buf == PLAN_OUT && p->out_part))
		k = p->parts;
	else if (p->parts)
		c *= (size_t)w->cfg->n;
	if (x->buf > PLAN_SCRATCH || b >= k || (x->buf == PLAN_SCRATCH && x->block >= p->nscratch))
		return false;
	*lo = b * c / k;
	*len = (b + 1) * c / k - *lo;
	return true;
}

/* Slice i of a span; NULL (and a fault) if it is not there. */
static inline struct interp_elem *interp_place(struct interp *w, int pos, const struct plan_span *x, int i,
					       size_t *n)
{
	struct interp_node *d = &w->node[pos];
	size_t lo, len, at = (size_t)i * w->cfg->slice;

	*n = 0;
	if (!interp_extent(w, d->plan, x, &lo, &len) || (x->buf == PLAN_IN && !d->in) ||
	    (x->buf == PLAN_OUT && !d->out)) {
		interp_is(w, INTERP_FAULT);
		return NULL;
	}
	*n = at >= len ? 0 : len - at < w->cfg->slice ? len - at : w->cfg->slice;
	if (x->buf == PLAN_SCRATCH)
		return d->scratch + x->block * d->block_max + (size_t)(i % w->cfg->round) * w->cfg->slice;
	return (x->buf == PLAN_IN ? d->in : d->out) + lo + at;
}

static inline int interp_count_slices(const struct interp *w, int pos, int step)
{
	const struct plan_step *s = &w->node[pos].plan->step[step];
	size_t lo, len;

	if (!interp_extent(w, w->node[pos].plan, s->op == PLAN_SEND ? &s->src[0] : &s->dst, &lo, &len))
		return -1;
	return (int)((len + w->cfg->slice - 1) / w->cfg->slice);
}

static inline int interp_slices(const struct interp *w, int pos, int step)
{
	return w->node[pos].slices[step];
}
#endif
