/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: reduce-scatter + all-gather, pipelined, half of every block each way round. Block B of n is cut into
 * the plan's blocks 2B and 2B + 1 (so nblocks = 2n, and B is still elements [B*c/n, (B+1)*c/n)); the first
 * half travels upwards (towards NEXT), the second downwards. Every cable carries the same in both directions,
 * and losing one lane of two costs a Spark no bandwidth.
 *
 * Upwards, position p sends B = p-1 from IN; then n-1 times it receives a partial sum of B = p-2, p-3, .., p,
 * adds its own and passes it on; B = p is then complete and travels on through all positions. Downwards the
 * same with the signs turned. Partial sums live in OUT, also when OUT is IN: B's own contribution is read
 * only by the REDUCE that replaces it; only p-1 is sent from IN, and is overwritten only by the final value,
 * released then.
 */
#include "coll/internal.h"

/* Position or block `x` steps downstream of `p`: dir +1 upwards, -1 downwards. */
static int at(const struct build *b, int p, int dir, int x)
{
	int n = b->key->n;

	return ((p + dir * x) % n + n) % n;
}

struct half {
	int dir, h; /* +1 and 0: upwards; -1 and 1: downwards */
	enum plan_chan to, from;
	int ready; /* step after which the block that is sent next is there; -1: from the start */
	struct plan_span partial; /* reduce-scatter: the sum that is sent next */
	int sent[COLL_MAX_RANKS]; /* last SEND of each block: its memory must be released before it is written
				   */
};

static void reduce_scatter_step(struct build *b, struct half *f, int s)
{
	int pos = b->key->pos, out = at(b, pos, f->dir, -1 - s), in = at(b, pos, f->dir, -2 - s);
	struct plan_span own = build_in(2 * in + f->h), src[2];
	int recv;

	f->sent[out] = build_send(b, f->to, s == 0 ? build_in(2 * out + f->h) : build_out(2 * out + f->h));
	build_after(b, f->sent[out], f->ready);
	src[0] = build_scratch(b, 2 * in + f->h);
	src[1] = own;
	recv = build_recv(b, f->from, src[0]);
	f->ready = build_reduce(b, build_out(2 * in + f->h), src, 2, s == b->key->n - 2 ? PLAN_FINISH : 0);
	build_after(b, f->ready, recv);
}

static void all_gather_step(struct build *b, struct half *f, int s)
{
	int pos = b->key->pos, out = at(b, pos, f->dir, -s), in = at(b, pos, f->dir, -1 - s), send;

	send = build_send(b, f->to, build_out(2 * out + f->h));
	build_after(b, send, f->ready);
	f->ready = build_recv(b, f->from, build_out(2 * in + f->h));
	build_released(b, f->ready, f->sent[in]);
}

static void halves(struct half f[2])
{
	f[0] = (struct half){ .dir = 1, .h = 0, .to = PLAN_NEXT, .from = PLAN_PREV, .ready = -1 };
	f[1] = (struct half){ .dir = -1, .h = 1, .to = PLAN_PREV, .from = PLAN_NEXT, .ready = -1 };
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < COLL_MAX_RANKS; j++)
			f[i].sent[j] = -1;
}

void build_all_reduce_ring(struct build *b)
{
	int n = b->key->n;
	struct half f[2];

	b->plan->name = "all_reduce/ring";
	b->plan->order =
		"block b of n: positions b+1, b+2, .., b in its first half, b-1, b-2, .., b in its second, "
		"rounded after every +";
	b->plan->nblocks = (uint16_t)(2 * n);
	b->plan->window = 1;
	b->plan->depth = 1;
	halves(f);
	for (int s = 0; s < n - 1; s++)
		for (int h = 0; h < 2; h++)
			reduce_scatter_step(b, &f[h], s);
	for (int s = 0; s < n - 1; s++)
		for (int h = 0; h < 2; h++)
			all_gather_step(b, &f[h], s);
}

void build_all_gather_ring(struct build *b)
{
	const struct plan_key *k = b->key;
	struct half f[2];

	b->plan->name = "all_gather/ring";
	b->plan->order = "no sum";
	b->plan->nblocks = (uint16_t)(2 * k->n);
	b->plan->parts = 2;
	b->plan->in_part = true;
	b->plan->window = 1;
	b->plan->depth = 1;
	halves(f);
	for (int s = 0; s < k->n - 1; s++) {
		for (int h = 0; h < 2; h++) {
			int out = k->rank_of[at(b, k->pos, f[h].dir, -s)];
			int in = k->rank_of[at(b, k->pos, f[h].dir, -1 - s)];
			int send = build_send(b, f[h].to, s == 0 ? build_in(h) : build_out(2 * out + h));

			build_after(b, send, f[h].ready);
			f[h].ready = build_recv(b, f[h].from, build_out(2 * in + h));
		}
	}
	for (int h = 0; h < 2; h++)
		build_copy(b, build_out(2 * k->rank_of[k->pos] + h), build_in(h));
}

/*
 * Reduce-scatter. Block B is the share of the rank at position B; partial sums live in scratch, since OUT has
 * room for one share only and IN must not change.
 */
void build_reduce_scatter_ring(struct build *b)
{
	const struct plan_key *k = b->key;
	struct route r;
	struct half f[2];

	b->plan->name = "reduce_scatter/ring";
	b->plan->order =
		"share of position b: positions b+1, b+2, .., b in its first half, b-1, b-2, .., b in "
		"its second, rounded after every +";
	b->plan->nblocks = (uint16_t)(2 * k->n);
	b->plan->parts = 2;
	b->plan->out_part = true;
	b->plan->window = 1;
	halves(f);
	route_init(&r, b);
	for (int s = 0; s < k->n - 1; s++) {
		for (int h = 0; h < 2; h++) {
			int in = 2 * k->rank_of[at(b, k->pos, f[h].dir, -2 - s)] + h;
			int first = 2 * k->rank_of[at(b, k->pos, f[h].dir, -1)] + h, last = -1, send;
			bool own = s == k->n - 2;
			struct plan_span src[2];

			if (s == 0)
				f[h].partial = build_in(first);
			send = build_send(b, f[h].to, f[h].partial);
			build_after(b, send, f[h].ready);
			if (s > 0)
				route_scratch_sent(&r, (uint32_t)s, f[h].partial, send);
			src[0] = build_scratch(b, h);
			src[1] = build_in(in);
			f[h].partial =
				own ? build_out(h) : route_scratch(&r, (uint32_t)s + 1, (uint16_t)h, &last);
			send = build_recv(b, f[h].from, src[0]);
			f[h].ready = build_reduce(b, f[h].partial, src, 2, own ? PLAN_FINISH : 0);
			build_after(b, f[h].ready, send);
			build_released(b, f[h].ready, last);
		}
	}
	route_free(&r);
}
