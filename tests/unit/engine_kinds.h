/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of every kind, type and operation with their results, written from the public header. Elements of
 * float types are small integers, so that no order of a sum and no rounding changes its bits: what is tested
 * is that every element gets where it belongs, once. Orders and roundings have tests of their own.
 */
#ifndef ENGINE_KINDS_H
#define ENGINE_KINDS_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"
#include "reduce_ref.h"

struct call {
	enum coll_kind kind;
	sircl_type_t type;
	sircl_op_t op;
	size_t count;
	int n, root;
	uint64_t seed;
};

#define CALL_GUARD 64

struct call_bufs {
	uint8_t *mem[2]; /* with guards on both sides */
	uint8_t *in, *out; /* NULL: this rank has none */
	size_t in_elems, out_elems;
	bool in_place;
};

static inline uint64_t call_random(const struct call *c, int rank, size_t i)
{
	uint64_t h = (c->seed * 1000003 + (uint64_t)rank) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;

	h ^= h >> 29;
	h *= 0x94d049bb133111ebull;
	return h ^ h >> 32;
}

static inline struct ref_num call_number(const struct call *c, uint64_t random)
{
	int most = type_size(c->type) == 1 ? 1 : 2;
	struct ref_num v = { .f = (double)((int)(random % (unsigned)(2 * most + 1)) - most), .u = random };

	return ref_round(c->type, v);
}

/* Element i of what rank gives, and the factor of its pre-multiplied sum. */
static inline struct ref_num call_value(const struct call *c, int rank, size_t i)
{
	return call_number(c, call_random(c, rank, i));
}

static inline uint64_t call_scalar(const struct call *c, int rank)
{
	struct ref_num v = { .f = rank % 2 ? -1 : 1, .u = 3 + 2 * (uint64_t)rank };
	uint64_t raw = 0;

	ref_store(c->type, false, &raw, 0, v);
	return raw;
}

static inline bool call_shares(enum coll_kind k) /* count is that of one rank's share */
{
	return k == COLL_ALL_GATHER || k == COLL_REDUCE_SCATTER || k == COLL_ALL_TO_ALL || k == COLL_GATHER ||
	       k == COLL_SCATTER;
}

static inline size_t call_in_elems(const struct call *c, int rank)
{
	if (c->kind == COLL_BARRIER ||
	    ((c->kind == COLL_BROADCAST || c->kind == COLL_SCATTER) && rank != c->root))
		return 0;
	return call_shares(c->kind) && c->kind != COLL_ALL_GATHER && c->kind != COLL_GATHER
		       ? c->count * (size_t)c->n
		       : c->count;
}

static inline size_t call_out_elems(const struct call *c, int rank)
{
	if (c->kind == COLL_BARRIER ||
	    ((c->kind == COLL_REDUCE || c->kind == COLL_GATHER) && rank != c->root))
		return 0;
	return call_shares(c->kind) && c->kind != COLL_REDUCE_SCATTER && c->kind != COLL_SCATTER
		       ? c->count * (size_t)c->n
		       : c->count;
}

static inline struct ref_num call_sum(const struct call *c, size_t i)
{
	struct ref_num s = { 0, 0 };

	for (int r = 0; r < c->n; r++) {
		struct ref_num v = call_value(c, r, i);
		uint64_t scalar = call_scalar(c, r);

		if (c->op == REDUCE_PREMUL_SUM)
			v = ref_scale(c->type, v, &scalar);
		s = r ? ref_op(c->type, c->op, s, v) : v;
	}
	return c->n > 1 ? ref_finish(c->type, c->op, s, (unsigned)c->n) : s;
}

/* Element i of what rank gets. */
static inline struct ref_num call_expect(const struct call *c, int rank, size_t i)
{
	size_t share = (size_t)rank * c->count;

	switch (c->kind) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE:
		return call_sum(c, i);
	case COLL_REDUCE_SCATTER:
		return call_sum(c, share + i);
	case COLL_BROADCAST:
		return call_value(c, c->root, i);
	case COLL_SCATTER:
		return call_value(c, c->root, share + i);
	case COLL_ALL_TO_ALL:
		return call_value(c, (int)(i / c->count), share + i % c->count);
	default:
		return call_value(c, (int)(i / c->count), i % c->count);
	}
}

static inline uint8_t *call_guarded(uint8_t **mem, size_t bytes, unsigned odd)
{
	*mem = malloc(bytes + 2 * CALL_GUARD + 1);
	memset(*mem, 0xa5, bytes + 2 * CALL_GUARD + 1);
	return *mem + CALL_GUARD + odd;
}

/* odd: bytes by which the buffers are not aligned, 0 or 1. */
static inline void call_alloc(const struct call *c, int rank, bool in_place, unsigned odd,
			      struct call_bufs *b)
{
	size_t size = type_size(c->type), in, out, share = (size_t)rank * c->count * size;

	memset(b, 0, sizeof(*b));
	b->in_elems = call_in_elems(c, rank);
	b->out_elems = call_out_elems(c, rank);
	in = b->in_elems * size;
	out = b->out_elems * size;
	b->in_place = in_place && in && out;
	if (in || !b->out_elems)
		b->in = in ? call_guarded(&b->mem[0], b->in_place && out > in ? out : in, odd) : NULL;
	if (b->in_place && out > in) {
		b->out = b->in;
		b->in += share;
	} else if (b->in_place) {
		b->out = b->in + (in > out ? share : 0);
	} else if (out) {
		b->out = call_guarded(&b->mem[1], out, odd);
	}
	for (size_t i = 0; i < b->in_elems; i++)
		ref_store(c->type, false, b->in, i, call_value(c, rank, i));
}

static inline struct op_args call_args(const struct call *c, int rank, const struct call_bufs *b)
{
	return (struct op_args){ .kind = c->kind,
				 .in = b->in,
				 .out = b->out,
				 .count = c->count,
				 .type = c->type,
				 .op = c->op,
				 .root = c->root,
				 .scalar = call_scalar(c, rank) };
}

static inline bool call_is(const struct call *c, const uint8_t *p, size_t i, struct ref_num v)
{
	uint64_t want = 0, is = 0;

	ref_store(c->type, false, &want, 0, v);
	memcpy(&is, p + i * type_size(c->type), type_size(c->type));
	want &= ~0ull >> (64 - 8 * type_size(c->type));
	return want == is;
}

static inline bool call_guards_hold(const struct call_bufs *b, const uint8_t *p, size_t bytes, int m)
{
	if (!b->mem[m])
		return true;
	for (const uint8_t *q = b->mem[m]; q < p; q++)
		if (*q != 0xa5)
			return false;
	for (const uint8_t *q = p + bytes; q < b->mem[m] + bytes + 2 * CALL_GUARD + 1; q++)
		if (*q != 0xa5)
			return false;
	return true;
}

/* Whether the result is right, and everything else is as it was. */
static inline bool call_check(const struct call *c, int rank, const struct call_bufs *b)
{
	size_t size = type_size(c->type), in = b->in_elems * size, out = b->out_elems * size;
	bool ok = true;

	for (size_t i = 0; ok && i < b->out_elems; i++)
		ok = call_is(c, b->out, i, call_expect(c, rank, i));
	for (size_t i = 0; ok && i < b->in_elems; i++) {
		const uint8_t *p = b->in + i * size;

		if (!b->in_place || p < b->out || p >= b->out + out)
			ok = call_is(c, b->in, i, call_value(c, rank, i));
	}
	if (b->in_place)
		return ok && call_guards_hold(b, out > in ? b->out : b->in, out > in ? out : in, 0);
	return ok && call_guards_hold(b, b->in, in, 0) && call_guards_hold(b, b->out, out, 1);
}

static inline void call_free(struct call_bufs *b)
{
	free(b->mem[0]);
	free(b->mem[1]);
}

/* An average of integers cannot be rounded at every hop. */
static inline bool call_possible(enum coll_algo algo, sircl_type_t type, sircl_op_t op)
{
	return op != SIRCL_AVG || !ref_integer(type) || algo == ALGO_EXCHANGE || algo == ALGO_TWO_SHOT;
}
#endif
