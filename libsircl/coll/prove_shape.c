/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover, part 1: every plan by itself is well formed, and SENDs pair with RECVs: as many on both ends of
 * each direction, of the same blocks in the same order.
 */
#include <stdlib.h>
#include "coll/prove_internal.h"

static bool span_ok(const struct plan *p, const struct plan_span *x)
{
	if (x->buf == PLAN_IN)
		return x->block < prove_in_blocks(p);
	if (x->buf == PLAN_OUT)
		return x->block < prove_out_blocks(p);
	return x->buf == PLAN_SCRATCH && x->block < p->nscratch && x->as < p->nblocks;
}

static bool there(const struct proof *f, int pos, const struct plan_span *x)
{
	return (x->buf != PLAN_IN || prove_has_in(f, pos)) && (x->buf != PLAN_OUT || prove_has_out(f, pos));
}

/* What the flags stand on. */
static bool flags_ok(struct proof *f, const struct plan *p, int i)
{
	const struct plan_step *s = &p->step[i];
	unsigned sum = PLAN_ACC_OUT | PLAN_ACC_IN | PLAN_FINISH | PLAN_SCALE;

	if (s->flags & ~(s->op == PLAN_REDUCE ? sum : s->op == PLAN_RECV ? (unsigned)PLAN_FUSE : 0u))
		return prove_fail(f, "position %d, step %d has flags that it cannot have", p->pos, i);
	if (s->op == PLAN_REDUCE && !coll_reduces(f->kind) && f->kind != COLL_BARRIER)
		return prove_fail(f, "position %d, step %d: there is no sum in this kind", p->pos, i);
	if ((s->flags & PLAN_ACC_OUT) && s->dst.buf != PLAN_SCRATCH)
		return prove_fail(f, "position %d, step %d: an accumulator must be scratch", p->pos, i);
	if ((s->flags & PLAN_SCALE) && (s->nsrc != 1 || s->src[0].buf != PLAN_IN ||
					s->dst.buf != PLAN_SCRATCH || s->flags != PLAN_SCALE))
		return prove_fail(f, "position %d, step %d scales other than from IN to scratch", p->pos, i);
	return true;
}

static bool step_ok(struct proof *f, const struct plan *p, int i)
{
	const struct plan_step *s = &p->step[i];
	bool writes = s->op != PLAN_SEND;
	const struct plan_span *own = writes ? &s->dst : &s->src[0];
	int want = s->op == PLAN_RECV ? 0 : 1;

	if (s->op > PLAN_COPY || (s->op <= PLAN_RECV && s->chan >= PLAN_CHANS) ||
	    (s->op == PLAN_REDUCE ? s->nsrc < 1 || s->nsrc > 4 : s->nsrc != want))
		return prove_fail(f, "position %d, step %d: no such step", p->pos, i);
	if (!span_ok(p, own))
		return prove_fail(f, "position %d, step %d: no such block", p->pos, i);
	if (!there(f, p->pos, own))
		return prove_fail(f, "position %d, step %d touches a buffer that this rank does not have",
				  p->pos, i);
	for (int k = 0; k < s->nsrc; k++) {
		if (!span_ok(p, &s->src[k]))
			return prove_fail(f, "position %d, step %d: no such block as source %d", p->pos, i,
					  k);
		if (!there(f, p->pos, &s->src[k]))
			return prove_fail(
				f, "position %d, step %d touches a buffer that this rank does not have",
				p->pos, i);
		if (prove_class(p, &s->src[k]) != prove_class(p, own))
			return prove_fail(f, "position %d, step %d: block %d meets block %d", p->pos, i,
					  prove_class(p, &s->src[k]), prove_class(p, own));
	}
	if (writes && s->dst.buf == PLAN_IN)
		return prove_fail(f, "position %d, step %d writes to IN", p->pos, i);
	return flags_ok(f, p, i);
}

/* In a plan that scales, nothing else reads IN. */
static bool scaled_ok(struct proof *f, const struct plan *p)
{
	bool scales = false;

	for (int i = 0; i < p->nsteps; i++)
		scales |= (p->step[i].flags & PLAN_SCALE) != 0;
	for (int i = 0; scales && i < p->nsteps; i++)
		for (int k = 0; k < p->step[i].nsrc; k++)
			if (p->step[i].src[k].buf == PLAN_IN && !(p->step[i].flags & PLAN_SCALE))
				return prove_fail(f, "position %d, step %d reads IN past the scaling", p->pos,
						  i);
	return true;
}

/* A scratch block has one class and one width of elements, whatever it is used for; and there are not more
 * than the plans of all positions say. */
static bool scratch_ok(struct proof *f, const struct plan *p, sircl_result_t *err)
{
	enum { UNUSED = -1 };
	int *class = malloc((2u * p->nscratch + 1) * sizeof(class[0])), *wide = class + p->nscratch;
	int nwide = 0, narrow = 0;
	bool ok = true;

	if (!class) {
		*err = error_set(SIRCL_NO_MEMORY, "no memory for proving a plan");
		return false;
	}
	for (int s = 0; s < 2 * p->nscratch; s++)
		class[s] = UNUSED;
	for (int i = 0; ok && i < p->nsteps; i++) {
		const struct plan_step *s = &p->step[i];
		int acc = (s->flags & PLAN_ACC_OUT) != 0, b = s->dst.block, c = prove_class(p, &s->dst);

		if (s->op == PLAN_SEND || s->dst.buf != PLAN_SCRATCH)
			continue;
		if ((class[b] != UNUSED && class[b] != c) || (wide[b] != UNUSED && wide[b] != acc))
			ok = prove_fail(f, "position %d, step %d uses scratch[%d] in another size", p->pos, i,
					b);
		nwide += class[b] == UNUSED && acc;
		narrow += class[b] == UNUSED && !acc && !(s->flags & PLAN_FUSE);
		class[b] = c;
		wide[b] = acc;
	}
	free(class);
	if (ok && (narrow > p->held || nwide > p->held_wide))
		ok = prove_fail(f,
				"position %d has %d scratch blocks and %d accumulators, held says %u and %u",
				p->pos, narrow, nwide, p->held, p->held_wide);
	return ok;
}

static bool waits_ok(struct proof *f, const struct plan *p, int i)
{
	const struct plan_step *s = &p->step[i];
	int block = prove_class(p, s->op == PLAN_SEND ? &s->src[0] : &s->dst);

	for (int k = 0; k < 6; k++) {
		int x = k < 4 ? s->after[k] : s->released[k - 4];
		const struct plan_step *o;

		if (x == PLAN_NONE)
			continue;
		if (x >= p->nsteps || x == i)
			return prove_fail(f, "position %d, step %d waits for step %d, which is none", p->pos,
					  i, x);
		o = &p->step[x];
		if ((o->op == PLAN_SEND) != (k >= 4))
			return prove_fail(f, "position %d, step %d: step %d is %s SEND", p->pos, i, x,
					  k >= 4 ? "no" : "a");
		if (prove_class(p, o->op == PLAN_SEND ? &o->src[0] : &o->dst) != block)
			return prove_fail(f, "position %d, step %d waits for step %d of another block",
					  p->pos, i, x);
	}
	return true;
}

static int touches(const struct plan_step *s, uint16_t scratch)
{
	int n = s->op != PLAN_SEND && s->dst.buf == PLAN_SCRATCH && s->dst.block == scratch;

	for (int k = 0; k < s->nsrc; k++)
		n += s->src[k].buf == PLAN_SCRATCH && s->src[k].block == scratch;
	return n;
}

/* A fused RECV must lead into one source of the next step, and nowhere else: its scratch stays empty. */
static bool fuse_ok(struct proof *f, const struct plan *p, int i)
{
	const struct plan_step *s = &p->step[i], *next = s + 1;

	if (!(s->flags & PLAN_FUSE))
		return true;
	if (s->op != PLAN_RECV || s->dst.buf != PLAN_SCRATCH || i + 1 >= p->nsteps || next->op != PLAN_REDUCE)
		return prove_fail(f, "position %d, step %d cannot be fused with the next", p->pos, i);
	if (touches(next, s->dst.block) != 1 ||
	    (next->dst.buf == PLAN_SCRATCH && next->dst.block == s->dst.block))
		return prove_fail(f, "position %d, step %d is fused, but the next does not read it once",
				  p->pos, i);
	for (int j = 0; j < p->nsteps; j++)
		if (j != i && j != i + 1 && touches(&p->step[j], s->dst.block))
			return prove_fail(f,
					  "position %d, step %d is fused, but step %d uses its scratch too",
					  p->pos, i, j);
	return true;
}

/* The steps of one kind on one channel, in order. */
static int list(const struct plan *p, enum plan_op op, enum plan_chan chan, uint16_t *out)
{
	int n = 0;

	for (int i = 0; i < p->nsteps; i++)
		if (p->step[i].op == op && p->step[i].chan == chan)
			out[n++] = (uint16_t)i;
	return n;
}

static bool pair(struct proof *f, int pos, enum plan_chan chan, sircl_result_t *err)
{
	struct prove_lane *l = &f->lane[f->nlanes];
	const struct plan *a, *b;
	int got;

	l->from = pos;
	l->to = (pos + (chan == PLAN_NEXT ? 1 : f->n - 1)) % f->n;
	a = f->plan[l->from];
	b = f->plan[l->to];
	l->send = calloc((size_t)a->nsteps + b->nsteps + 1, sizeof(l->send[0]));
	if (!l->send) {
		*err = error_set(SIRCL_NO_MEMORY, "no memory for proving a plan");
		return false;
	}
	f->nlanes++;
	l->recv = l->send + a->nsteps;
	l->count = list(a, PLAN_SEND, chan, l->send);
	got = list(b, PLAN_RECV, chan == PLAN_NEXT ? PLAN_PREV : PLAN_NEXT, l->recv);
	if (l->count != got)
		return prove_fail(f, "position %d sends %d messages to %s, position %d receives %d of them",
				  l->from, l->count, chan == PLAN_NEXT ? "next" : "prev", l->to, got);
	for (int k = 0; k < got; k++) {
		int x = prove_class(a, &a->step[l->send[k]].src[0]),
		    y = prove_class(b, &b->step[l->recv[k]].dst);

		if (x != y)
			return prove_fail(
				f,
				"position %d sends block %d in step %d, position %d receives it as block "
				"%d in step %d",
				l->from, x, l->send[k], l->to, y, l->recv[k]);
	}
	return true;
}

/* Whether the plan cuts IN and OUT as its kind must, and as position 0 does. */
static bool cut_ok(const struct proof *f, const struct plan *a)
{
	bool in = f->kind == COLL_ALL_GATHER || f->kind == COLL_GATHER;
	bool out = f->kind == COLL_REDUCE_SCATTER || f->kind == COLL_SCATTER;
	bool shares = in || out || f->kind == COLL_ALL_TO_ALL;
	const struct plan *z = f->plan[0];

	return a->nblocks == z->nblocks && a->parts == z->parts && a->held == z->held &&
	       a->held_wide == z->held_wide && a->in_part == in && a->out_part == out && a->parts <= 2 &&
	       (a->parts != 0) == shares && (!a->parts || a->nblocks == f->n * a->parts);
}

static bool plan_ok(struct proof *f, const struct plan *a, sircl_result_t *err)
{
	for (int i = 0; i < a->nsteps; i++)
		if (!step_ok(f, a, i) || !fuse_ok(f, a, i))
			return false;
	for (int i = 0; i < a->nsteps; i++)
		if (!waits_ok(f, a, i))
			return false;
	return scaled_ok(f, a) && scratch_ok(f, a, err);
}

bool prove_shape(struct proof *f, sircl_result_t *err)
{
	uint64_t ranks = 0;

	for (int p = 0; p < f->n; p++) {
		const struct plan *a = f->plan[p];

		if (a->n != f->n || a->pos != p || a->rank >= f->n || (ranks & 1ull << a->rank))
			return prove_fail(f, "plan %d says position %u of %u, rank %u", p, a->pos, a->n,
					  a->rank);
		ranks |= 1ull << a->rank;
		f->pos_of[a->rank] = p;
		if (!cut_ok(f, a))
			return prove_fail(
				f, "position %d cuts the data into %u blocks in %u parts, position 0 into %u",
				p, a->nblocks, a->parts, f->plan[0]->nblocks);
		f->base[p + 1] = f->base[p] + a->nsteps * f->slices;
	}
	for (int p = 0; p < f->n; p++)
		if (!plan_ok(f, f->plan[p], err))
			return false;
	for (int p = 0; p < f->n; p++)
		for (int c = 0; c < PLAN_CHANS; c++)
			if (!pair(f, p, (enum plan_chan)c, err))
				return false;
	return true;
}
