/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on numbers: an interpreter that shares nothing with the prover. It runs the plans of all positions in
 * a random, hostile order and says whether the result is what the kind of collective means, in plain words
 * and element by element. An element carries a sum of random 64-bit contributions and a digest of the order
 * in which they were added. A message travels in pieces, one per lane, in any order; the source of a SEND is
 * read at any moment before its release, and once more then; a wide accumulator looks like noise to whoever
 * takes it for data. Everything that nobody has written is noise.
 */
#ifndef PLAN_INTERP_H
#define PLAN_INTERP_H
#include "plan_interp_data.h"

/* ---- conditions ---- */

static inline bool interp_through(const struct interp *w, int pos, int step, int i)
{
	return step >= w->node[pos].plan->nsteps || (w->node[pos].done[step] >> i & 1) ||
	       i >= interp_slices(w, pos, step);
}

static inline bool interp_touches(const struct plan_step *s, unsigned scratch)
{
	if (s->op != PLAN_SEND && s->dst.buf == PLAN_SCRATCH && s->dst.block == scratch)
		return true;
	for (int k = 0; k < s->nsrc; k++)
		if (s->src[k].buf == PLAN_SCRATCH && s->src[k].block == scratch)
			return true;
	return false;
}

static inline bool interp_ready(const struct interp *w, int pos, int step, int i)
{
	const struct interp_node *d = &w->node[pos];
	const struct plan_step *s = &d->plan->step[step];
	bool fed = step > 0 && d->fused[step - 1] >= 0; /* its RECV ends together with it */

	for (int k = 0; k < 6; k++) {
		unsigned x = k < 4 ? s->after[k] : s->released[k - 4];

		if (x != PLAN_NONE && !(fed && (int)x == step - 1) && !interp_through(w, pos, (int)x, i))
			return false;
	}
	if (i < w->cfg->round || s->op == PLAN_SEND || s->dst.buf != PLAN_SCRATCH)
		return true;
	for (int o = 0; o < d->plan->nsteps; o++)
		if (interp_touches(&d->plan->step[o], s->dst.block) &&
		    !interp_through(w, pos, o, i - w->cfg->round))
			return false;
	return true;
}

/* Whether the schedule lets this happen now. */
static inline bool interp_may(struct interp *w, unsigned what, int pos, int step)
{
	const struct interp_cfg *c = w->cfg;
	unsigned lazy = c->lazy & what;

	if (pos == c->lazy_pos && (c->lazy & LAZY_POS))
		lazy = LAZY_POS;
	if (pos == c->lazy_pos && step == c->lazy_step && (c->lazy & LAZY_STEP))
		lazy = LAZY_STEP;
	if (lazy)
		return w->last_resort && !w->moved;
	return w->hurry || interp_random(w) % 2;
}

/* ---- messages ---- */

static inline int interp_peer(const struct interp *w, int pos, int chan)
{
	return (pos + (chan == PLAN_NEXT ? 1 : w->cfg->n - 1)) % w->cfg->n;
}

/* Copies piece j of a message from where it is now to `to`. */
static inline void interp_piece(struct interp *w, struct interp_msg *m, const struct interp_elem *from,
				struct interp_elem *to, int j)
{
	size_t k = (size_t)w->cfg->lanes, lo = (size_t)j * m->len / k, hi = ((size_t)j + 1) * m->len / k;

	if (hi == lo)
		return;
	if (from != m->data)
		memcpy(m->data + lo, from + lo, (hi - lo) * sizeof(*to));
	if (to)
		memcpy(to + lo, m->data + lo, (hi - lo) * sizeof(*to));
}

static inline const struct interp_elem *interp_source(struct interp *w, int pos, struct interp_msg *m)
{
	size_t n;

	if (m->staged)
		return m->data;
	return interp_place(w, pos, &w->node[pos].plan->step[m->step].src[0], m->slice, &n);
}

/* A piece lands, perhaps not for the first time. */
static inline void interp_land(struct interp *w, int pos, int chan, struct interp_msg *m)
{
	int j = (int)(interp_random(w) % (unsigned)w->cfg->lanes), to = interp_peer(w, pos, chan);
	const struct interp_node *d = &w->node[to];
	const struct interp_elem *src = interp_source(w, pos, m);
	struct interp_elem *dst = NULL;
	size_t n = m->len;

	if (d->fused[m->to_step] < 0)
		dst = interp_place(w, to, &d->plan->step[m->to_step].dst, m->slice, &n);
	if (n != m->len)
		interp_is(w, INTERP_FAULT);
	if (w->end != INTERP_OK)
		return;
	while (w->hurry && (m->landed >> j & 1))
		j = (j + 1) % w->cfg->lanes;
	interp_piece(w, m, src, dst, j);
	m->landed |= 1u << j;
	w->moved = true;
}

static inline bool interp_whole(const struct interp *w, const struct interp_msg *m)
{
	return m->landed == (1u << w->cfg->lanes) - 1;
}

/* The peer's link has the message: the source is free from now on. */
static inline void interp_release(struct interp *w, int pos, struct interp_msg *m)
{
	const struct interp_elem *src = interp_source(w, pos, m);

	if (!src)
		return;
	if (!interp_whole(w, m)) {
		for (int j = 0; j < w->cfg->lanes; j++)
			if (!(m->landed >> j & 1))
				interp_piece(w, m, src, NULL, j);
		m->staged = true;
	}
	if (memcmp(src, m->data, m->len * sizeof(*src))) /* a replay reads it again */
		interp_is(w, INTERP_RACE);
	m->released = true;
	w->node[pos].done[m->step] |= 1ull << m->slice;
	w->moved = true;
}

static inline void interp_end_recv(struct interp *w, int to, struct interp_wire *x)
{
	struct interp_msg *m = &x->m[x->ended++];

	m->ended = true;
	w->node[to].done[m->to_step] |= 1ull << m->slice;
	w->moved = true;
}

static inline void interp_wire_pass(struct interp *w, int pos, int chan)
{
	struct interp_wire *x = &w->wire[pos][chan];
	int to = interp_peer(w, pos, chan);
	struct interp_msg *m;

	if (x->posted < x->n) {
		m = &x->m[x->posted];
		if ((w->node[to].fused[m->to_step] >= 0 || interp_ready(w, to, m->to_step, m->slice)) &&
		    interp_may(w, LAZY_POST, to, m->to_step)) {
			m->posted = w->moved = true;
			x->posted++;
		}
	}
	if (x->started < x->n) {
		m = &x->m[x->started];
		if (interp_ready(w, pos, m->step, m->slice) && interp_may(w, 0, pos, m->step)) {
			m->started = w->moved = true;
			x->started++;
		}
	}
	while (x->over < x->ended && x->m[x->over].released)
		x->over++;
	for (int k = x->over; k < x->started && k < x->ended + w->cfg->window; k++) {
		m = &x->m[k];
		if (m->posted && !m->ended && !interp_whole(w, m) && interp_may(w, LAZY_LAND, to, m->to_step))
			interp_land(w, pos, chan, m);
		if (!m->released && interp_may(w, LAZY_RELEASE, pos, m->step))
			interp_release(w, pos, m);
	}
	if (x->ended < x->posted) {
		m = &x->m[x->ended];
		if (w->node[to].fused[m->to_step] < 0 && interp_whole(w, m) &&
		    interp_may(w, 0, to, m->to_step))
			interp_end_recv(w, to, x);
	}
}

/* ---- sums ---- */

static inline void interp_compute(struct interp *w, int pos, int step, int i, const struct interp_elem *piece)
{
	const struct plan_step *s = &w->node[pos].plan->step[step];
	const struct interp_elem *src[4];
	const uint64_t wide = 0xa5a5a5a5deadbeefull;
	size_t n, m;
	struct interp_elem *dst = interp_place(w, pos, &s->dst, i, &n);

	for (int k = 0; k < s->nsrc; k++) {
		src[k] = interp_place(w, pos, &s->src[k], i, &m);
		if (piece && k == w->node[pos].fused[step - 1])
			src[k] = piece;
		if (m != n)
			interp_is(w, INTERP_FAULT);
	}
	for (size_t e = 0; w->end == INTERP_OK && e < n; e++) {
		struct interp_elem v = src[0][e];

		if (s->op == PLAN_REDUCE && (s->flags & PLAN_ACC_IN))
			v.sum ^= wide;
		for (int k = 1; k < s->nsrc; k++) {
			v.sum += src[k][e].sum;
			v.order = interp_mix(v.order) * 3 + src[k][e].order;
		}
		if (s->flags & PLAN_SCALE)
			v.sum *= interp_scalar(w->cfg, w->node[pos].plan->rank);
		if ((s->flags & PLAN_FINISH) && coll_reduces(w->cfg->kind) && w->cfg->n > 1)
			v.sum = interp_finish(v.sum);
		if (s->op == PLAN_REDUCE && (s->flags & PLAN_ACC_OUT))
			v.sum ^= wide;
		else if (s->op == PLAN_REDUCE)
			v.order = interp_mix(v.order + 5); /* rounded */
		dst[e] = v;
	}
	w->node[pos].done[step] |= 1ull << i;
	w->moved = true;
}

/* The message that a fused RECV waits for: NULL: not here yet. */
static inline struct interp_wire *interp_arrived(struct interp *w, int pos, int step, int i)
{
	int chan = w->node[pos].plan->step[step].chan, peer = interp_peer(w, pos, chan);
	struct interp_wire *x = &w->wire[peer][!chan];
	struct interp_msg *m = &x->m[x->ended];

	return x->ended < x->posted && m->to_step == step && m->slice == i && interp_whole(w, m) ? x : NULL;
}

static inline void interp_sum(struct interp *w, int pos, int step, int i)
{
	const struct interp_node *d = &w->node[pos];
	struct interp_wire *x = NULL;

	if ((d->done[step] >> i & 1) || !interp_ready(w, pos, step, i))
		return;
	if (step > 0 && d->fused[step - 1] >= 0) {
		x = interp_arrived(w, pos, step - 1, i);
		if (!x)
			return;
	}
	if (!interp_may(w, LAZY_SUM, pos, step))
		return;
	interp_compute(w, pos, step, i, x ? x->m[x->ended].data : NULL);
	if (x)
		interp_end_recv(w, pos, x);
}

static inline void interp_sums(struct interp *w, int pos)
{
	struct interp_node *d = &w->node[pos];
	int left = 0;

	for (int k = 0; k < d->nsums; k++) {
		int step = d->sum[k], slices = d->slices[step];

		for (int i = 0; i < slices; i++)
			interp_sum(w, pos, step, i);
		if (d->done[step] != (1ull << slices) - 1)
			d->sum[left++] = step;
	}
	d->nsums = left;
}

static inline void interp_pass(struct interp *w)
{
	int first = (int)(interp_random(w) % (unsigned)w->cfg->n);

	for (int k = 0; k < w->cfg->n; k++) {
		int pos = (first + k) % w->cfg->n;

		for (int c = 0; c < PLAN_CHANS; c++)
			interp_wire_pass(w, pos, c);
		interp_sums(w, pos);
	}
}

/* ---- setting up and running ---- */

/* Which source of the next step this RECV feeds directly; -1: none. */
static inline int interp_feeds(const struct plan *p, int k)
{
	const struct plan_step *s = &p->step[k], *next = s + 1;
	int which = -1;

	if (s->op != PLAN_RECV || !(s->flags & PLAN_FUSE) || s->dst.buf != PLAN_SCRATCH ||
	    k + 1 >= p->nsteps || next->op != PLAN_REDUCE)
		return -1;
	for (int o = 0; o < p->nsteps; o++)
		if (o != k && o != k + 1 && interp_touches(&p->step[o], s->dst.block))
			return -1;
	if (next->dst.buf == PLAN_SCRATCH && next->dst.block == s->dst.block)
		return -1;
	for (int i = 0; i < next->nsrc; i++)
		if (next->src[i].buf == PLAN_SCRATCH && next->src[i].block == s->dst.block) {
			if (which >= 0 || (i == 0 && (next->flags & PLAN_ACC_IN)))
				return -1;
			which = i;
		}
	return which;
}

/* The messages of a channel and direction: by round, step, slice. Returns how many. */
static inline int interp_list(struct interp *w, int pos, enum plan_op op, int chan, struct interp_msg *m)
{
	const struct plan *p = w->node[pos].plan;
	int n = 0, r = w->cfg->round;

	for (int round = 0; round * r < 64; round++) {
		bool more = false;

		for (int s = 0; s < p->nsteps; s++) {
			int slices = interp_slices(w, pos, s);

			if (p->step[s].op != op || p->step[s].chan != chan)
				continue;
			more |= slices > round * r;
			for (int i = round * r; i < slices && i < (round + 1) * r; i++, n++) {
				if (!m)
					continue;
				if (op == PLAN_RECV) {
					if (m[n].slice != i)
						interp_is(w, INTERP_FAULT);
					m[n].to_step = (uint16_t)s;
					continue;
				}
				m[n].step = (uint16_t)s;
				m[n].slice = (uint16_t)i;
			}
		}
		if (!more)
			break;
	}
	return n;
}

static inline void interp_wire_set(struct interp *w, int pos, int chan)
{
	struct interp_wire *x = &w->wire[pos][chan];
	int to = interp_peer(w, pos, chan);
	struct interp_elem *data;

	x->n = interp_list(w, pos, PLAN_SEND, chan, NULL);
	if (x->n != interp_list(w, to, PLAN_RECV, !chan, NULL)) {
		interp_is(w, INTERP_FAULT);
		return;
	}
	x->m = interp_alloc(w, (size_t)x->n, sizeof(*x->m));
	data = interp_alloc(w, (size_t)x->n * w->cfg->slice, sizeof(*data));
	interp_list(w, pos, PLAN_SEND, chan, x->m);
	interp_list(w, to, PLAN_RECV, !chan, x->m);
	for (int k = 0; k < x->n && w->end == INTERP_OK; k++) {
		struct interp_msg *m = &x->m[k];
		size_t got;

		m->data = data + (size_t)k * w->cfg->slice;
		(void)interp_place(w, pos, &w->node[pos].plan->step[m->step].src[0], m->slice, &m->len);
		(void)interp_place(w, to, &w->node[to].plan->step[m->to_step].dst, m->slice, &got);
		if (got != m->len)
			interp_is(w, INTERP_FAULT);
	}
}

static inline void interp_noise(struct interp *w, struct interp_elem *e, size_t n)
{
	for (size_t i = 0; i < n; i++)
		e[i] = (struct interp_elem){ interp_random(w), interp_random(w) };
}

static inline void interp_node_set(struct interp *w, int pos, const struct plan *p)
{
	const struct interp_cfg *c = w->cfg;
	struct interp_node *d = &w->node[pos];
	size_t nin = interp_in_len(c), nout = interp_out_len(c), whole = nin > nout ? nin : nout;
	bool has_in = (c->kind != COLL_BROADCAST && c->kind != COLL_SCATTER) || p->rank == c->root;
	bool has_out = (c->kind != COLL_REDUCE && c->kind != COLL_GATHER) || p->rank == c->root;
	struct interp_elem *a = interp_alloc(w, whole, sizeof(*a)), *b = a;

	d->plan = p;
	d->block_max = c->count < c->slice ? c->slice : c->count + c->slice;
	d->scratch = interp_alloc(w, p->nscratch * d->block_max, sizeof(*a));
	d->done = interp_alloc(w, p->nsteps, sizeof(d->done[0]));
	d->fused = interp_alloc(w, p->nsteps, sizeof(d->fused[0]));
	d->slices = interp_alloc(w, p->nsteps, sizeof(d->slices[0]));
	d->sum = interp_alloc(w, p->nsteps, sizeof(d->sum[0]));
	for (int k = 0; k < p->nsteps; k++) {
		int step = c->backwards ? p->nsteps - 1 - k : k;

		if (p->step[step].op >= PLAN_REDUCE)
			d->sum[d->nsums++] = step;
	}
	for (int k = 0; k < p->nsteps; k++)
		d->slices[k] = interp_count_slices(w, pos, k);
	for (int k = 0; k < p->nsteps; k++)
		d->fused[k] = c->fuse ? interp_feeds(p, k) : -1;
	if (!c->in_place)
		b = interp_alloc(w, whole, sizeof(*a));
	interp_noise(w, a, whole);
	interp_noise(w, b, whole);
	interp_noise(w, d->scratch, p->nscratch * d->block_max);
	/* In place a share is its rank's own place in the whole buffer. */
	d->in = !has_in ? NULL : a + (c->in_place && nin < nout ? p->rank * c->count : 0);
	d->out = !has_out ? NULL : b + (c->in_place && nout < nin ? p->rank * c->count : 0);
	for (size_t i = 0; d->in && i < nin; i++)
		d->in[i] = interp_given(p->rank, i);
}

static inline void interp_drive(struct interp *w)
{
	while (w->end == INTERP_OK) {
		w->moved = w->hurry = w->last_resort = false;
		interp_pass(w);
		if (w->moved)
			continue;
		w->hurry = true;
		interp_pass(w);
		if (w->moved)
			continue;
		w->last_resort = true;
		interp_pass(w);
		if (!w->moved)
			break;
	}
}

/* Runs the plans; *digest: of the order of all sums. */
static inline enum interp_end interp_run(const struct interp_cfg *c, const struct plan *const plan[],
					 uint64_t *digest)
{
	struct interp w = { .cfg = c, .rnd = c->seed };

	*digest = 0;
	if (c->n < 1)
		return INTERP_FAULT;
	for (int p = 0; p < c->n; p++)
		interp_node_set(&w, p, plan[p]);
	for (int p = 0; p < c->n; p++) {
		for (int s = 0; s < plan[p]->nsteps; s++)
			if (interp_slices(&w, p, s) < 0 || interp_slices(&w, p, s) > 63)
				interp_is(&w, INTERP_FAULT);
		for (int ch = 0; ch < PLAN_CHANS && w.end == INTERP_OK; ch++)
			interp_wire_set(&w, p, ch);
	}
	interp_drive(&w);
	for (int p = 0; p < c->n; p++)
		for (int s = 0; s < plan[p]->nsteps; s++)
			for (int i = 0; w.end == INTERP_OK && i < interp_slices(&w, p, s); i++)
				if (!(w.node[p].done[s] >> i & 1))
					interp_is(&w, INTERP_HUNG);
	interp_check(&w, digest);
	for (int i = 0; i < w.nowned; i++)
		free(w.owned[i]);
	return w.end;
}
#endif
