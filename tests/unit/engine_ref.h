/* SPDX-License-Identifier: Apache-2.0 */
/* Contents and plain references for tests of collectives: written from the documented orders, not from plans.
 */
#ifndef ENGINE_REF_H
#define ENGINE_REF_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"

struct ref_job {
	enum coll_kind kind;
	enum coll_algo algo;
	sircl_type_t type;
	size_t count;
	int n;
	uint16_t rank_of[COLL_MAX_RANKS];
	uint64_t seed;
};

static float ref_bf16_to_float(uint16_t v)
{
	uint32_t u = (uint32_t)v << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static uint16_t ref_float_to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Element i of rank r: any finite value of the type. */
static float ref_value(const struct ref_job *j, int rank, size_t i)
{
	uint64_t h = (j->seed * 1000003 + (uint64_t)rank) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
	float f;

	h ^= h >> 29;
	h *= 0x94d049bb133111ebull;
	f = (float)((double)(int64_t)h / 9.3e18 * (1 << (h & 15)));
	return j->type == SIRCL_BFLOAT16 ? ref_bf16_to_float(ref_float_to_bf16(f)) : f;
}

static void ref_put(const struct ref_job *j, void *buf, size_t i, float f)
{
	if (j->type == SIRCL_BFLOAT16)
		((uint16_t *)buf)[i] = ref_float_to_bf16(f);
	else
		((float *)buf)[i] = f;
}

static float ref_rounded(const struct ref_job *j, float f)
{
	return j->type == SIRCL_BFLOAT16 ? ref_bf16_to_float(ref_float_to_bf16(f)) : f;
}

/* Value of position p. */
static float ref_at(const struct ref_job *j, int p, size_t i)
{
	return ref_value(j, j->rank_of[(p % j->n + j->n) % j->n], i);
}

static size_t ref_start(size_t c, size_t nb, size_t b)
{
	return (size_t)((unsigned __int128)b * c / nb);
}

static float ref_matchings(const struct ref_job *j, size_t i, bool first)
{
	volatile float a, b;

	if (j->n == 2)
		return ref_at(j, 0, i) + ref_at(j, 1, i);
	a = ref_at(j, 0, i) + ref_at(j, first ? 1 : 3, i);
	b = first ? ref_at(j, 2, i) + ref_at(j, 3, i) : ref_at(j, 1, i) + ref_at(j, 2, i);
	return ref_rounded(j, a) + ref_rounded(j, b);
}

static void ref_all_reduce_ring(const struct ref_job *j, void *out)
{
	for (int b = 0; b < j->n; b++) {
		for (int h = 0; h < 2; h++) {
			size_t lo = ref_start(j->count, 2 * (size_t)j->n, 2 * (size_t)b + h);
			size_t hi = ref_start(j->count, 2 * (size_t)j->n, 2 * (size_t)b + h + 1);

			for (size_t i = lo; i < hi; i++) {
				int dir = h == 0 ? 1 : -1;
				volatile float s = ref_at(j, b + dir, i);

				for (int k = 2; k <= j->n; k++)
					s = ref_rounded(j, s + ref_at(j, b + dir * k, i));
				ref_put(j, out, i, s);
			}
		}
	}
}

/* On a line: the first half from position 0 upwards, the second from the other end downwards. */
static float ref_pipeline(const struct ref_job *j, size_t i)
{
	bool up = i < ref_start(j->count, 2, 1);
	volatile float s = ref_at(j, up ? 0 : j->n - 1, i);

	for (int k = 1; k < j->n; k++)
		s = ref_rounded(j, s + ref_at(j, up ? k : j->n - 1 - k, i));
	return s;
}

/* The result every rank must have. */
static void ref_result(const struct ref_job *j, void *out)
{
	if (j->kind == COLL_ALL_GATHER) {
		for (int r = 0; r < j->n; r++)
			for (size_t i = 0; i < j->count; i++)
				ref_put(j, out, (size_t)r * j->count + i, ref_value(j, r, i));
		return;
	}
	if (j->algo == ALGO_RING) {
		ref_all_reduce_ring(j, out);
		return;
	}
	for (size_t i = 0; i < j->count; i++) {
		volatile float s = ref_value(j, 0, i);

		if (j->algo == ALGO_TWO_MATCHINGS)
			s = ref_matchings(j, i, i < ref_start(j->count, 2, 1));
		else if (j->algo == ALGO_DOUBLING)
			s = ref_matchings(j, i, true);
		else if (j->algo == ALGO_PIPELINE)
			s = ref_pipeline(j, i);
		else
			for (int r = 1; r < j->n; r++)
				s = s + ref_value(j, r, i);
		ref_put(j, out, i, s);
	}
}

static size_t ref_elem(const struct ref_job *j)
{
	return j->type == SIRCL_BFLOAT16 ? 2 : 4;
}

/* Buffers of one rank. Exact allocations, so that a sanitizer sees a byte too many. */
struct ref_bufs {
	uint8_t *in, *out;
	size_t in_bytes, out_bytes;
	bool in_place;
};

static void ref_alloc(const struct ref_job *j, int rank, bool in_place, struct ref_bufs *b)
{
	b->in_bytes = j->count * ref_elem(j);
	b->out_bytes = j->kind == COLL_ALL_GATHER ? b->in_bytes * (size_t)j->n : b->in_bytes;
	b->in_place = in_place;
	b->out = malloc(b->out_bytes + 1);
	memset(b->out, 0xa5, b->out_bytes + 1);
	b->in = !in_place                    ? malloc(b->in_bytes + 1)
		: j->kind == COLL_ALL_GATHER ? b->out + (size_t)rank * b->in_bytes
					     : b->out;
	for (size_t i = 0; i < j->count; i++)
		ref_put(j, b->in, i, ref_value(j, rank, i));
}

/* Whether the result is right and the input is untouched. */
static bool ref_check(const struct ref_job *j, int rank, const struct ref_bufs *b, const void *expect)
{
	bool ok = b->out_bytes == 0 || memcmp(b->out, expect, b->out_bytes) == 0;

	for (size_t i = 0; ok && !b->in_place && i < j->count; i++) {
		uint32_t one = 0, is = 0;

		ref_put(j, &one, 0, ref_value(j, rank, i));
		memcpy(&is, b->in + i * ref_elem(j), ref_elem(j));
		ok = one == is;
	}
	return ok;
}

static void ref_free(struct ref_bufs *b)
{
	if (!b->in_place)
		free(b->in);
	free(b->out);
}
#endif
