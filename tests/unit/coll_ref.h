/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a collective must give, written from the documented orders (plan->order, the public header), not from
 * plans: contents of every rank's input, and the expected bits of every rank's result. Arithmetic is
 * reduce_ref.h's. For tests only: slow and obvious.
 */
#ifndef COLL_REF_H
#define COLL_REF_H
#include <stdio.h>
#include <stdlib.h>
#include "coll/coll.h"
#include "reduce_ref.h"

struct coll_ref {
	enum coll_kind kind;
	enum coll_algo algo; /* what the library has chosen */
	enum coll_shape shape;
	sircl_type_t type;
	sircl_op_t op; /* or REDUCE_PREMUL_SUM */
	size_t count; /* as in the public call */
	int n, root;
	uint16_t rank_of[COLL_MAX_RANKS]; /* position -> rank */
	uint64_t seed;
	bool special; /* NaN, infinities, subnormals, overflow among the contents */
};

static inline uint64_t cr_hash(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t h = a * 0x9e3779b97f4a7c15ull ^ (b + 0x632be59bd9b4e019ull) * 0xbf58476d1ce4e5b9ull ^
		     (c + 1) * 0x94d049bb133111ebull;

	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9ull;
	return h ^ h >> 32;
}

static inline size_t cr_start(size_t c, size_t nb, size_t b)
{
	return (size_t)((unsigned __int128)b * c / nb);
}

/* Elements of a rank's input and result; 0: it has none. */
static inline size_t cr_in_count(const struct coll_ref *j, int rank)
{
	switch (j->kind) {
	case COLL_REDUCE_SCATTER:
	case COLL_ALL_TO_ALL:
		return j->count * (size_t)j->n;
	case COLL_SCATTER:
		return rank == j->root ? j->count * (size_t)j->n : 0;
	case COLL_BROADCAST:
		return rank == j->root ? j->count : 0;
	case COLL_BARRIER:
		return 0;
	default:
		return j->count;
	}
}

static inline size_t cr_out_count(const struct coll_ref *j, int rank)
{
	switch (j->kind) {
	case COLL_ALL_GATHER:
	case COLL_ALL_TO_ALL:
		return j->count * (size_t)j->n;
	case COLL_GATHER:
		return rank == j->root ? j->count * (size_t)j->n : 0;
	case COLL_REDUCE:
		return rank == j->root ? j->count : 0;
	case COLL_BARRIER:
		return 0;
	default:
		return j->count;
	}
}

/* Element i of rank's input, into p. */
static inline void cr_value(const struct coll_ref *j, int rank, size_t i, void *p)
{
	uint64_t h = cr_hash(j->seed, (uint64_t)rank, i);
	struct ref_num v = { .u = h >> 20 };

	if (j->special && h % 5 == 0) { /* any bits at all */
		v.u = cr_hash(h, i, j->seed);
		memcpy(p, &v.u, ref_size(j->type, false));
		return;
	}
	v.f = ((double)(int64_t)(h >> 12) / 4.5e15 - 0.5) * (double)(1u << (h & 7));
	if (j->op == SIRCL_PROD)
		v.f = v.f < 0 ? v.f / 64 - 1 : v.f / 64 + 1;
	v.f = ref_wide(j->type, v.f);
	ref_store(j->type, false, p, 0, v);
}

/* The scalar of a rank in a pre-multiplied sum. */
static inline uint64_t cr_scalar(const struct coll_ref *j, int rank)
{
	struct ref_num v = { .f = 0.75 + rank % 3 * 0.5, .u = 3 + (uint64_t)rank };
	uint64_t bits = 0;

	ref_store(j->type, false, &bits, 0, v);
	return bits;
}

static inline struct ref_num cr_own(const struct coll_ref *j, int rank, size_t i)
{
	uint64_t raw = 0, scalar;
	struct ref_num v;

	cr_value(j, rank, i, &raw);
	v = ref_load(j->type, false, &raw, 0);
	if (j->op != REDUCE_PREMUL_SUM)
		return v;
	scalar = cr_scalar(j, rank);
	return ref_scale(j->type, v, &scalar);
}

static inline sircl_op_t cr_op(const struct coll_ref *j)
{
	return j->op == REDUCE_PREMUL_SUM ? SIRCL_SUM : j->op;
}

static inline struct ref_num cr_at(const struct coll_ref *j, int pos, size_t i)
{
	return cr_own(j, j->rank_of[(pos % j->n + j->n) % j->n], i);
}

static inline struct ref_num cr_add(const struct coll_ref *j, struct ref_num a, struct ref_num b)
{
	return ref_op(j->type, cr_op(j), a, b);
}

static inline struct ref_num cr_in_rank_order(const struct coll_ref *j, size_t i)
{
	struct ref_num v = cr_own(j, 0, i);

	for (int r = 1; r < j->n; r++)
		v = cr_add(j, v, cr_own(j, r, i));
	return v;
}

/* Positions from, from + dir, ..: `n` of them, rounded after every + but the last. */
static inline struct ref_num cr_chain(const struct coll_ref *j, int from, int dir, int n, size_t i)
{
	struct ref_num v = cr_at(j, from, i);

	for (int k = 1; k < n; k++)
		v = cr_add(j, k == 1 ? v : ref_round(j->type, v), cr_at(j, from + dir * k, i));
	return v;
}

/* A line: ((p0 + p1) + .. + p) + ((pn-1 + pn-2) + ..), rounded after every + but p's first. */
static inline struct ref_num cr_from_both_ends(const struct coll_ref *j, int p, size_t i)
{
	struct ref_num v = cr_at(j, p, i);

	if (p > 0)
		v = cr_add(j, ref_round(j->type, cr_chain(j, 0, 1, p, i)), v);
	if (p < j->n - 1)
		v = cr_add(j, v, ref_round(j->type, cr_chain(j, j->n - 1, -1, j->n - 1 - p, i)));
	return v;
}

static inline struct ref_num cr_tree(const struct coll_ref *j, bool first, size_t i)
{
	struct ref_num a, b;

	if (j->n == 2)
		return cr_add(j, cr_at(j, 0, i), cr_at(j, 1, i));
	a = cr_add(j, cr_at(j, 0, i), cr_at(j, first ? 1 : 3, i));
	b = first ? cr_add(j, cr_at(j, 2, i), cr_at(j, 3, i)) : cr_add(j, cr_at(j, 1, i), cr_at(j, 2, i));
	return cr_add(j, ref_round(j->type, a), ref_round(j->type, b));
}

/* e: element of the `count` of the call; i: element of the inputs; owner: position whose share it is. */
static inline struct ref_num cr_reduced(const struct coll_ref *j, size_t e, size_t i, int owner)
{
	bool first = e < cr_start(j->count, 2, 1);
	size_t b = 0;

	switch (j->algo) {
	case ALGO_TWO_MATCHINGS:
		return cr_tree(j, first, i);
	case ALGO_DOUBLING:
		return cr_tree(j, true, i);
	case ALGO_RING:
		if (j->kind == COLL_REDUCE_SCATTER)
			return cr_chain(j, first ? owner + 1 : owner - 1, first ? 1 : -1, j->n, i);
		while (cr_start(j->count, 2 * (size_t)j->n, b + 1) <= e)
			b++;
		return b % 2 == 0 ? cr_chain(j, (int)b / 2 + 1, 1, j->n, i)
				  : cr_chain(j, (int)b / 2 - 1, -1, j->n, i);
	case ALGO_PIPELINE:
		if (j->kind == COLL_ALL_REDUCE)
			return first ? cr_chain(j, 0, 1, j->n, i) : cr_chain(j, j->n - 1, -1, j->n, i);
		if (j->shape == SHAPE_LINE)
			return cr_from_both_ends(j, owner, i);
		return cr_chain(j, first ? owner + 1 : owner - 1, first ? 1 : -1, j->n, i);
	default:
		return cr_in_rank_order(j, i);
	}
}

static inline int cr_position(const struct coll_ref *j, int rank)
{
	int p = 0;

	while (j->rank_of[p] != rank)
		p++;
	return p;
}

/* Element e of rank's result, into p. */
static inline void cr_expect(const struct coll_ref *j, int rank, size_t e, void *p)
{
	size_t from = e / (j->count ? j->count : 1), rest = e % (j->count ? j->count : 1);
	size_t i = j->kind == COLL_REDUCE_SCATTER ? (size_t)rank * j->count + e : e;
	struct ref_num v;

	switch (j->kind) {
	case COLL_ALL_GATHER:
	case COLL_GATHER:
		cr_value(j, (int)from, rest, p);
		return;
	case COLL_ALL_TO_ALL:
		cr_value(j, (int)from, (size_t)rank * j->count + rest, p);
		return;
	case COLL_BROADCAST:
		cr_value(j, j->root, e, p);
		return;
	case COLL_SCATTER:
		cr_value(j, j->root, (size_t)rank * j->count + e, p);
		return;
	default:
		if (j->n == 1 && j->op != REDUCE_PREMUL_SUM) { /* a copy */
			cr_value(j, 0, i, p);
			return;
		}
		v = cr_reduced(j, e, i, cr_position(j, j->kind == COLL_REDUCE ? j->root : rank));
		ref_store(j->type, false, p, 0, ref_finish(j->type, j->op, v, (unsigned)j->n));
	}
}

/* Buffers of one rank: exact allocations, so that a sanitizer sees a byte too many. NULL: it has none. */
struct cr_bufs {
	uint8_t *in, *out;
	uint8_t *memory[2];
	size_t in_bytes, out_bytes;
	bool in_place;
};

static inline void cr_alloc(const struct coll_ref *j, int rank, bool in_place, struct cr_bufs *b)
{
	size_t elem = ref_size(j->type, false), n = cr_in_count(j, rank);
	size_t share = (size_t)rank * j->count * elem;

	*b = (struct cr_bufs){ .in_bytes = n * elem, .out_bytes = cr_out_count(j, rank) * elem };
	b->in_place = in_place && b->in_bytes && b->out_bytes;
	if (b->in_bytes)
		b->memory[0] = b->in = malloc(b->in_bytes);
	if (b->out_bytes)
		b->memory[1] = b->out = malloc(b->out_bytes);
	if ((b->in_bytes && !b->in) || (b->out_bytes && !b->out))
		abort();
	if (b->out)
		memset(b->out, 0xa5, b->out_bytes);
	if (b->in_place && b->out_bytes < b->in_bytes)
		b->out = b->in + share;
	else if (b->in_place)
		b->in = b->out + (b->in_bytes < b->out_bytes ? share : 0);
	for (size_t i = 0; i < n; i++)
		cr_value(j, rank, i, b->in + i * elem);
}

/* Whether the result is right and the input is untouched (in place: what is not result). */
static inline bool cr_check(const struct coll_ref *j, int rank, const struct cr_bufs *b, char *why,
			    size_t room)
{
	size_t elem = ref_size(j->type, false), nin = cr_in_count(j, rank), nout = cr_out_count(j, rank);
	uint64_t want;

	for (size_t i = 0; i < nout; i++) {
		want = 0;
		cr_expect(j, rank, i, &want);
		if (memcmp(&want, b->out + i * elem, elem) != 0) {
			uint64_t is = 0;

			memcpy(&is, b->out + i * elem, elem);
			snprintf(why, room, "rank %d: element %zu of the result is %#llx, not %#llx", rank, i,
				 (unsigned long long)is, (unsigned long long)want);
			return false;
		}
	}
	for (size_t i = 0; i < nin; i++) {
		const uint8_t *p = b->in + i * elem;

		want = 0;
		if (b->in_place && p >= b->out && p < b->out + b->out_bytes)
			continue;
		cr_value(j, rank, i, &want);
		if (memcmp(&want, p, elem) != 0) {
			snprintf(why, room, "rank %d: element %zu of the input has changed", rank, i);
			return false;
		}
	}
	return true;
}

static inline void cr_free(struct cr_bufs *b)
{
	free(b->memory[0]);
	free(b->memory[1]);
}
#endif
