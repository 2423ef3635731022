/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange and two-shot of the kinds in which a block has one source and one destination, and broadcast:
 * every block travels the shortest way, passed on by those between, and sums are made where they end, in rank
 * order with one rounding.
 *
 * In a ring of even n the opposite position is equally far both ways. Where the whole load of a cable depends
 * on it (one root; rings of 2 and 6) shares are cut in two parts that go opposite ways; elsewhere sources at
 * even positions send upwards, the others downwards, which loads the cables alike with half the messages.
 */
#include "coll/internal.h"

/* Distances that travel together: all at once would need n blocks of scratch for those on the way. */
#define GROUP 16
#define PHASE (1u << 24) /* times of a second phase: later than those of the first */

static void describe(struct build *b, const char *name, const char *order, int parts)
{
	b->plan->name = name;
	b->plan->order = order;
	b->plan->window = 1;
	b->plan->depth = 0;
	b->plan->parts = (uint8_t)parts;
	b->plan->nblocks = (uint16_t)(parts ? b->key->n * parts : 1);
}

/* Which way part j of a block goes from src to dst, and how far. */
static void shortest(const struct plan_key *k, int src, int dst, int j, int parts, struct flow *f)
{
	int up = k->shape == SHAPE_RING ? (dst - src + k->n) % k->n : dst - src;

	f->src = src;
	f->dir = up > 0 ? 1 : -1;
	f->hops = up > 0 ? up : -up;
	if (k->shape == SHAPE_LINE || 2 * up < k->n)
		return;
	if (2 * up > k->n || (parts == 2 ? j : src % 2)) {
		f->dir = -1;
		f->hops = k->n - up;
	}
}

/* Everybody to everybody: in groups of distances, hop by hop, the nearest first. */
static void time_all(struct flow *f, int j)
{
	int group = (f->hops - 1) / GROUP;

	f->base = (uint32_t)((group * 128 * 64 + f->hops) * 2 + j);
	f->stride = 128;
}

static int parts_of_all(const struct plan_key *k)
{
	return k->shape == SHAPE_RING && (k->n == 2 || k->n == 6) ? 2 : 1;
}

static int parts_of_root(const struct plan_key *k)
{
	return k->shape == SHAPE_RING && k->n % 2 == 0 ? 2 : 1;
}

void build_all_to_all_exchange(struct build *b)
{
	const struct plan_key *k = b->key;
	int parts = parts_of_all(k), own = k->rank_of[k->pos] * parts;
	struct route r;

	describe(b, "all_to_all/exchange", "no sum", parts);
	route_init(&r, b);
	for (int x = 0; x < k->n * k->n * parts; x++) {
		int j = x % parts, src = x / parts / k->n, dst = x / parts % k->n;
		struct flow f = { .as = (uint16_t)j, .ready = -1, .part = j };

		f.from = build_in(k->rank_of[dst] * parts + j);
		f.into = build_out(k->rank_of[src] * parts + j);
		shortest(k, src, dst, j, parts, &f);
		time_all(&f, j);
		route_flow(&r, &f);
	}
	route_run(&r);
	for (int j = 0; j < parts; j++)
		build_copy(b, build_out(own + j), build_in(own + j));
	route_free(&r);
}

/* Sums what has come together for this position, part j of it. */
static int sum_own(struct build *b, struct route *r, int j, int in, struct plan_span dst, int as)
{
	r->got[j][b->key->pos] = (struct held){ build_in(in), -1 };
	return sum_in_rank_order(b, r->got[j], dst, as);
}

/* Every contribution to its owner; whole: scratch is of the owner's block, not of a part. */
static void to_owners(struct route *r, int parts, bool whole)
{
	const struct plan_key *k = r->b->key;

	for (int x = 0; x < k->n * k->n * parts; x++) {
		int j = x % parts, src = x / parts / k->n, dst = x / parts % k->n;
		int block = k->rank_of[dst] * parts + j;
		struct flow f = { .ready = -1, .part = j, .as = (uint16_t)(whole ? block : j) };

		f.from = build_in(block);
		f.into.buf = PLAN_SCRATCH;
		shortest(k, src, dst, j, parts, &f);
		time_all(&f, j);
		route_flow(r, &f);
	}
	route_run(r);
}

void build_reduce_scatter_exchange(struct build *b)
{
	const struct plan_key *k = b->key;
	int parts = parts_of_all(k), own = k->rank_of[k->pos] * parts;
	struct route r;

	describe(b, "reduce_scatter/exchange", "rank order, one rounding", parts);
	b->plan->out_part = true;
	route_init(&r, b);
	to_owners(&r, parts, false);
	for (int j = 0; j < parts; j++)
		sum_own(b, &r, j, own + j, build_out(j), j);
	route_free(&r);
}

/*
 * two-shot: block B of n (cut in halves in rings of 2 and 6) is summed by the rank B, whose result then
 * travels to everybody both ways. In place the result overwrites a contribution, which must have left.
 */
void build_all_reduce_two_shot(struct build *b)
{
	const struct plan_key *k = b->key;
	int parts = parts_of_all(k), n = k->n, sum[2] = { -1, -1 };
	struct route r;

	describe(b, "all_reduce/two-shot", "rank order, one rounding", 0);
	b->plan->nblocks = (uint16_t)(n * parts);
	route_init(&r, b);
	r.idle = n <= 16 ? 1 : 0;
	to_owners(&r, parts, true);
	for (int j = 0; j < parts; j++) {
		int own = k->rank_of[k->pos] * parts + j;

		sum[j] = sum_own(b, &r, j, own, build_out(own), own);
	}
	for (int x = 0; x < 2 * n * parts; x++) {
		int side = x % 2, j = x / 2 % parts, src = x / 2 / parts;
		struct flow f = { .src = src, .dir = side ? -1 : 1, .all = true, .part = j, .stride = 128 };
		int up = exchange_up(k, src), down = exchange_down(k, src);

		f.hops = side ? down : up;
		if (k->shape == SHAPE_RING && n % 2 == 0)
			f.hops = (parts == 2 ? j : src % 2) == side ? n / 2 : n / 2 - 1;
		f.base = PHASE + (uint32_t)j;
		f.ready = sum[j];
		f.from = f.into = build_out(k->rank_of[src] * parts + j);
		f.as = f.from.as;
		route_flow(&r, &f);
	}
	route_run(&r);
	route_free(&r);
}

static void one_root(struct build *b, struct route *r, int parts, bool to_root)
{
	const struct plan_key *k = b->key;
	int root = position_of(k, k->root);

	for (int x = 0; x < k->n * parts; x++) {
		int j = x % parts, p = x / parts;
		struct flow f = { .ready = -1, .as = (uint16_t)j, .part = j };

		if (p == root)
			continue;
		shortest(k, to_root ? p : root, to_root ? root : p, j, parts, &f);
		if (to_root) { /* hop by hop, the nearest first */
			f.base = (uint32_t)(f.hops * 2 + j);
			f.stride = 256;
			f.from = build_in(j);
			f.into = build_out(k->rank_of[p] * parts + j);
		} else { /* the farthest first, one behind the other */
			f.base = (uint32_t)((k->n - f.hops) * 2 + j);
			f.stride = 2;
			f.from = build_in(k->rank_of[p] * parts + j);
			f.into = build_out(j);
		}
		if (k->kind == COLL_REDUCE)
			f.into.buf = PLAN_SCRATCH;
		route_flow(r, &f);
	}
	route_run(r);
}

void build_gather_exchange(struct build *b)
{
	const struct plan_key *k = b->key;
	int parts = parts_of_root(k), rank = k->rank_of[k->pos];
	struct route r;

	describe(b, "gather/exchange", "no sum", parts);
	b->plan->in_part = true;
	route_init(&r, b);
	one_root(b, &r, parts, true);
	for (int j = 0; j < parts && rank == k->root; j++)
		build_copy(b, build_out(rank * parts + j), build_in(j));
	route_free(&r);
}

void build_scatter_exchange(struct build *b)
{
	const struct plan_key *k = b->key;
	int parts = parts_of_root(k), rank = k->rank_of[k->pos];
	struct route r;

	describe(b, "scatter/exchange", "no sum", parts);
	b->plan->out_part = true;
	route_init(&r, b);
	one_root(b, &r, parts, false);
	for (int j = 0; j < parts && rank == k->root; j++)
		build_copy(b, build_out(j), build_in(rank * parts + j));
	route_free(&r);
}

void build_reduce_exchange(struct build *b)
{
	const struct plan_key *k = b->key;
	struct route r;

	describe(b, "reduce/exchange", "rank order, one rounding", 0);
	route_init(&r, b);
	one_root(b, &r, 1, true);
	if (k->rank_of[k->pos] == k->root)
		sum_own(b, &r, 0, 0, build_out(0), 0);
	route_free(&r);
}

/* One block from the root, `hops` far in direction dir; everybody on the way keeps it. */
static void cast(struct route *r, int root, int block, int dir, int hops)
{
	struct flow f = { .src = root, .hops = hops, .dir = dir, .all = true, .ready = -1, .stride = 2 };

	f.from = build_in(block);
	f.into = build_out(block);
	f.as = (uint16_t)block;
	f.base = (uint32_t)block;
	route_flow(r, &f);
}

static void root_copy(struct build *b)
{
	if (b->key->rank_of[b->key->pos] != b->key->root)
		return;
	for (int i = 0; i < b->plan->nblocks; i++)
		build_copy(b, build_out(i), build_in(i));
}

void build_broadcast_exchange(struct build *b)
{
	int root = position_of(b->key, b->key->root);
	struct route r;

	describe(b, "broadcast/exchange", "no sum", 0);
	route_init(&r, b);
	cast(&r, root, 0, 1, exchange_up(b->key, root));
	cast(&r, root, 0, -1, exchange_down(b->key, root));
	route_run(&r);
	root_copy(b);
	route_free(&r);
}

/* pipeline: one half all the way up, the other all the way down. On a line the whole goes to both ends. */
void build_broadcast_pipeline(struct build *b)
{
	const struct plan_key *k = b->key;
	int root = position_of(k, k->root);
	struct route r;

	describe(b, "broadcast/pipeline", "no sum", 0);
	route_init(&r, b);
	if (k->shape == SHAPE_RING) {
		b->plan->nblocks = 2;
		cast(&r, root, 0, 1, k->n - 1);
		cast(&r, root, 1, -1, k->n - 1);
	} else {
		cast(&r, root, 0, 1, k->n - 1 - root);
		cast(&r, root, 0, -1, root);
	}
	route_run(&r);
	root_copy(b);
	route_free(&r);
}
