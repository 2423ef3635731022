/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange: every contribution travels to every position, in a ring n/2 hops both ways (n even: the farthest
 * one upwards only), in a line all the way to both ends. An all-reduce then sums everything locally in rank
 * order, in fp32, with one rounding: more than 4 summands go through an accumulator. An all-gather receives
 * into OUT and relays from there.
 *
 * On each channel a position first sends its own contribution, then relays in the order of arrival: nearest
 * first. The sum of slice 0 needs the farthest contribution, which arrives behind all slices of the nearer
 * ones: so scratch must be as deep as a block has slices.
 */
#include "coll/internal.h"

int exchange_up(const struct plan_key *k, int p)
{
	return k->shape == SHAPE_RING ? k->n / 2 : k->n - 1 - p;
}

int exchange_down(const struct plan_key *k, int p)
{
	return k->shape == SHAPE_RING ? (k->n - 1) / 2 : p;
}

/*
 * Sends, receives and relays. held[q] gets the place of the contribution of position q; held[own].span is
 * given. With to_out, q's lands in OUT block rank_of[q]. sent: the up to two SENDs of the own one.
 */
static void spread(struct build *b, struct held held[], bool to_out, int sent[2])
{
	const struct plan_key *k = b->key;
	int n = k->n, pos = k->pos;

	held[pos].recv = -1;
	sent[0] = exchange_up(k, pos) ? build_send(b, PLAN_NEXT, held[pos].span) : -1;
	sent[1] = exchange_down(k, pos) ? build_send(b, PLAN_PREV, held[pos].span) : -1;
	for (int d = 1; d < n; d++) {
		for (int side = 0; side < 2; side++) {
			/* upward travellers come in from PREV and leave by NEXT */
			enum plan_chan from = side == 0 ? PLAN_PREV : PLAN_NEXT;
			enum plan_chan to = side == 0 ? PLAN_NEXT : PLAN_PREV;
			int q = side == 0 ? pos - d : pos + d, hops;

			if (k->shape == SHAPE_LINE && (q < 0 || q >= n))
				continue;
			q = (q + n) % n;
			hops = side == 0 ? exchange_up(k, q) : exchange_down(k, q);
			if (d > hops)
				continue;
			held[q].span = to_out ? build_out(k->rank_of[q]) : build_scratch(b, 0);
			held[q].recv = build_recv(b, from, held[q].span);
			if (d < hops)
				build_after(b, build_send(b, to, held[q].span), held[q].recv);
		}
	}
}

int sum_in_rank_order(struct build *b, const struct held held[], struct plan_span dst, int as)
{
	const struct plan_key *k = b->key;
	struct plan_span acc = { 0 }, src[4];
	int by_rank[COLL_MAX_RANKS], before = -1, r = 0;

	for (int p = 0; p < k->n; p++)
		by_rank[k->rank_of[p]] = p;
	if (k->n > 4)
		acc = build_scratch(b, as);
	while (r < k->n) {
		int nsrc = 0, recv[4], step;
		unsigned flags = 0;

		if (before >= 0) {
			flags |= PLAN_ACC_IN;
			recv[0] = before;
			src[nsrc++] = acc;
		}
		for (; nsrc < 4 && r < k->n; nsrc++, r++) {
			recv[nsrc] = held[by_rank[r]].recv;
			src[nsrc] = held[by_rank[r]].span;
		}
		flags |= r < k->n ? PLAN_ACC_OUT : PLAN_FINISH;
		step = build_reduce(b, r < k->n ? acc : dst, src, nsrc, flags);
		for (int i = 0; i < nsrc; i++)
			build_after(b, step, recv[i]);
		before = step;
	}
	return before;
}

void build_all_reduce_exchange(struct build *b)
{
	struct held held[COLL_MAX_RANKS];
	int sent[2], sum;

	b->plan->name = "all_reduce/exchange";
	b->plan->order = "rank order, in fp32, one rounding";
	b->plan->nblocks = 1;
	b->plan->window = 1;
	b->plan->depth = b->key->n <= 2 ? 1 : 0;
	held[b->key->pos].span = build_in(0);
	spread(b, held, false, sent);
	sum = sum_in_rank_order(b, held, build_out(0), 0);
	build_released(b, sum, sent[0]);
	build_released(b, sum, sent[1]);
}

void build_all_gather_exchange(struct build *b)
{
	struct held held[COLL_MAX_RANKS];
	int sent[2];

	b->plan->name = "all_gather/exchange";
	b->plan->order = "no sum";
	b->plan->nblocks = b->key->n;
	b->plan->parts = 1;
	b->plan->in_part = true;
	b->plan->window = 1;
	b->plan->depth = 1;
	held[b->key->pos].span = build_in(0);
	spread(b, held, true, sent);
	build_copy(b, build_out(b->key->rank_of[b->key->pos]), build_in(0));
}
