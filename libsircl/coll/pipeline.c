/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline, the kinds that sum: partial sums travel along the cables, every position adds its own and passes
 * the result on, rounded after every +.
 *
 * reduce on a ring: the first half of the data travels upwards from the position above the root all the way
 * round to it, the second half downwards from the one below. On a line both ends send the whole towards the
 * root, which adds (from below + own) + from above with one rounding.
 * all-reduce on a line: the first half is summed upwards from position 0 and comes back down as the result,
 * the second half the other way: each cable carries the data once each way.
 * reduce-scatter on a line: a chain from each end to the share's owner, which adds as the root above.
 */
#include "coll/internal.h"

/* Receives a partial sum from `from`, like block `as`, and adds the own contribution; returns the REDUCE. */
static int add_own(struct build *b, enum plan_chan from, int as, struct plan_span own, struct plan_span dst,
		   unsigned flags)
{
	struct plan_span src[2] = { build_scratch(b, as), own };
	int recv = build_recv(b, from, src[0]), sum = build_reduce(b, dst, src, 2, flags);

	build_after(b, sum, recv);
	return sum;
}

static void describe(struct build *b, const char *name, const char *order, int nblocks)
{
	b->plan->name = name;
	b->plan->order = order;
	b->plan->nblocks = (uint16_t)nblocks;
	b->plan->window = 1;
	b->plan->depth = 0;
}

/* One chain through a position that is not its end: hop 0 is its beginning. */
static void link_of_chain(struct build *b, enum plan_chan to, int block, int hop)
{
	enum plan_chan from = to == PLAN_NEXT ? PLAN_PREV : PLAN_NEXT;
	struct plan_span sum = build_in(block);
	int ready = -1;

	if (hop > 0) {
		sum = build_scratch(b, block);
		ready = add_own(b, from, block, build_in(block), sum, 0);
	}
	build_after(b, build_send(b, to, sum), ready);
}

/*
 * The end of chains on a line: whatever comes from PREV and NEXT is added to the own, in this order from
 * below upwards.
 */
static void end_of_chains(struct build *b, int as, struct plan_span own, struct plan_span dst)
{
	struct plan_span src[3];
	int recv[2] = { -1, -1 }, n = 0, sum;

	if (b->key->pos > 0) {
		src[n++] = build_scratch(b, as);
		recv[0] = build_recv(b, PLAN_PREV, src[0]);
	}
	src[n++] = own;
	if (b->key->pos < b->key->n - 1) {
		src[n++] = build_scratch(b, as);
		recv[1] = build_recv(b, PLAN_NEXT, src[n - 1]);
	}
	sum = build_reduce(b, dst, src, n, PLAN_FINISH);
	build_after(b, sum, recv[0]);
	build_after(b, sum, recv[1]);
}

static void reduce_line(struct build *b, int root)
{
	const struct plan_key *k = b->key;

	describe(b, "reduce/pipeline",
		 "((p0 + p1) + .. + root) + ((pn-1 + pn-2) + ..) (p: position along the cables), rounded "
		 "after "
		 "every + but the root's first",
		 1);
	if (k->pos < root)
		link_of_chain(b, PLAN_NEXT, 0, k->pos);
	else if (k->pos > root)
		link_of_chain(b, PLAN_PREV, 0, k->n - 1 - k->pos);
	else
		end_of_chains(b, 0, build_in(0), build_out(0));
}

void build_reduce_pipeline(struct build *b)
{
	const struct plan_key *k = b->key;
	int root = position_of(k, k->root);

	if (k->shape == SHAPE_LINE) {
		reduce_line(b, root);
		return;
	}
	describe(b, "reduce/pipeline",
		 "first half: positions r+1, r+2, .., r (r: the root's), second half: r-1, r-2, .., r, "
		 "rounded "
		 "after every +",
		 2);
	if (k->pos == root) {
		add_own(b, PLAN_PREV, 0, build_in(0), build_out(0), PLAN_FINISH);
		add_own(b, PLAN_NEXT, 1, build_in(1), build_out(1), PLAN_FINISH);
		return;
	}
	link_of_chain(b, PLAN_NEXT, 0, (k->pos - root - 1 + k->n) % k->n);
	link_of_chain(b, PLAN_PREV, 1, (root - 1 - k->pos + k->n) % k->n);
}

/* The result of a half comes back from `from`; its memory may still be sent from as a partial sum. */
static void result(struct build *b, enum plan_chan from, enum plan_chan to, int half, int partial, bool pass)
{
	int recv = build_recv(b, from, build_out(half));

	build_released(b, recv, partial);
	if (pass)
		build_after(b, build_send(b, to, build_out(half)), recv);
}

void build_all_reduce_pipeline(struct build *b)
{
	const struct plan_key *k = b->key;
	int partial[2], ready[2];

	describe(b, "all_reduce/pipeline",
		 "first half: positions 0, 1, .., n-1, second half: n-1, .., 1, 0, rounded after every +", 2);
	for (int h = 0; h < 2; h++) {
		enum plan_chan to = h ? PLAN_PREV : PLAN_NEXT, from = h ? PLAN_NEXT : PLAN_PREV;
		int hop = h ? k->n - 1 - k->pos : k->pos;
		bool last = hop == k->n - 1;

		ready[h] = hop ? add_own(b, from, h, build_in(h), build_out(h), last ? PLAN_FINISH : 0) : -1;
		partial[h] = last ? -1 : build_send(b, to, hop ? build_out(h) : build_in(h));
		if (!last)
			build_after(b, partial[h], ready[h]);
	}
	for (int h = 0; h < 2; h++) {
		enum plan_chan to = h ? PLAN_NEXT : PLAN_PREV, from = h ? PLAN_PREV : PLAN_NEXT;
		int hop = h ? k->n - 1 - k->pos : k->pos;

		if (hop == k->n - 1)
			build_after(b, build_send(b, to, build_out(h)), ready[h]);
		else
			result(b, from, to, h, partial[h], hop > 0);
	}
}

/*
 * The shares of all owners on one side, the farthest first: each travels as long as possible. Sums to be sent
 * lie in scratch that is used again when the SEND of an earlier share is released.
 */
static void chains_to(struct build *b, struct route *r, int dir)
{
	const struct plan_key *k = b->key;
	enum plan_chan to = dir > 0 ? PLAN_NEXT : PLAN_PREV, from = dir > 0 ? PLAN_PREV : PLAN_NEXT;
	int end = dir > 0 ? k->n - 1 : 0, begin = k->n - 1 - end;
	uint32_t t = 0;

	for (int owner = end; owner != k->pos; owner -= dir) {
		struct plan_span own = build_in(k->rank_of[owner]), sum = own;
		int ready = -1, last, send;

		if (k->pos != begin) {
			sum = route_scratch(r, t, 0, &last);
			ready = add_own(b, from, 0, own, sum, 0);
			build_released(b, ready, last);
		}
		send = build_send(b, to, sum);
		build_after(b, send, ready);
		if (k->pos != begin)
			route_scratch_sent(r, t, sum, send);
		t++;
	}
}

void build_reduce_scatter_pipeline(struct build *b)
{
	const struct plan_key *k = b->key;
	struct route r;

	describe(b, "reduce_scatter/pipeline",
		 "share of position b: ((p0 + p1) + .. + pb) + ((pn-1 + pn-2) + ..) (p: position along the "
		 "cables), rounded after every + but b's first",
		 k->n);
	b->plan->parts = 1;
	b->plan->out_part = true;
	for (int dir = 1; dir >= -1; dir -= 2) {
		route_init(&r, b); /* a store per direction: neither waits for the other */
		chains_to(b, &r, dir);
		route_free(&r);
	}
	end_of_chains(b, 0, build_in(k->rank_of[k->pos]), build_out(0));
}
