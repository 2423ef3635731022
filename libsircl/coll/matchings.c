/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two-matchings: recursive doubling whose partners are neighbours. A ring of 4 has two perfect matchings,
 * 0-1|2-3 and 1-2|3-0 (positions). The first half of the data uses them in this order, the second half in the
 * other, so that both cables of every machine work in both phases. Phase 1 gives every pair its sum, phase 2
 * adds the two pairs' sums:
 *
 *   first half   (p0 + p1) + (p2 + p3)        second half   (p0 + p3) + (p1 + p2)
 *
 * Both partners add in this order. The pair's sum lives in scratch, not in OUT: OUT may be IN, of which a
 * SEND may still be unacknowledged, and phase 2 shall not wait for that.
 *
 * A ring of 2 exchanges one half over each cable, a line of 2 the whole over the only one: p0 + p1.
 *
 * doubling: the same with the whole data as the first half. Half as many messages, which count where the
 * bytes do not; one cable of each machine rests in each phase.
 */
#include "coll/internal.h"

/* The other end of this position's cable in matching m, as the channel towards it. */
static enum plan_chan partner(int pos, int m)
{
	return (pos + m) % 2 == 0 ? PLAN_NEXT : PLAN_PREV;
}

/* RECV from `chan` and add to `mine`, in the documented order; returns the REDUCE. */
static int combine(struct build *b, enum plan_chan chan, int block, struct plan_span mine, bool mine_first,
		   struct plan_span dst, unsigned flags)
{
	struct plan_span theirs = build_scratch(b, block), src[2];
	int recv = build_recv(b, chan, theirs), reduce;

	src[mine_first ? 0 : 1] = mine;
	src[mine_first ? 1 : 0] = theirs;
	reduce = build_reduce(b, dst, src, 2, flags);
	build_after(b, reduce, recv);
	return reduce;
}

static void two(struct build *b, int halves)
{
	struct plan *p = b->plan;
	int pos = b->key->pos, sent[2], sum;

	p->order = "p0 + p1 (p: position along the cables), in fp32, one rounding";
	p->nblocks = (uint16_t)halves;
	p->depth = 1;
	for (int h = 0; h < halves; h++)
		sent[h] = build_send(b, partner(pos, h), build_in(h));
	for (int h = 0; h < halves; h++) {
		sum = combine(b, partner(pos, h), h, build_in(h), pos == 0, build_out(h), PLAN_FINISH);
		build_released(b, sum, sent[h]);
	}
}

static void four(struct build *b, int halves)
{
	struct plan *p = b->plan;
	int pos = b->key->pos, sent[2], paired[2], sum;
	struct plan_span pair[2];

	p->order =
		halves == 1
			? "(p0 + p1) + (p2 + p3) (p: position along the cables), each + in fp32 and rounded"
			: "first half (p0 + p1) + (p2 + p3), second half (p0 + p3) + (p1 + p2) (p: position "
			  "along the cables), each + in fp32 and rounded";
	p->nblocks = (uint16_t)halves;
	p->depth = 0;
	for (int h = 0; h < halves; h++)
		sent[h] = build_send(b, partner(pos, h), build_in(h));
	for (int h = 0; h < halves; h++) {
		enum plan_chan chan = partner(pos, h);
		int other = (pos + (chan == PLAN_NEXT ? 1 : 3)) % 4;

		pair[h] = build_scratch(b, h);
		paired[h] = combine(b, chan, h, build_in(h), pos < other, pair[h], 0);
		build_after(b, build_send(b, partner(pos, 1 - h), pair[h]), paired[h]);
	}
	for (int h = 0; h < halves; h++) {
		bool with_p0 = h == 0 ? pos < 2 : pos == 0 || pos == 3;

		sum = combine(b, partner(pos, 1 - h), h, pair[h], with_p0, build_out(h), PLAN_FINISH);
		build_after(b, sum, paired[h]);
		build_released(b, sum, sent[h]);
	}
}

void build_all_reduce_matchings(struct build *b)
{
	b->plan->name = "all_reduce/two-matchings";
	b->plan->window = 1;
	if (b->key->n == 2)
		two(b, b->key->shape == SHAPE_RING ? 2 : 1);
	else
		four(b, 2);
}

void build_all_reduce_doubling(struct build *b)
{
	b->plan->name = "all_reduce/doubling";
	b->plan->window = 1;
	if (b->key->n == 2)
		two(b, 1);
	else
		four(b, 1);
}
