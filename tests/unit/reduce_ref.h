/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reduction must give, slowly: numbers are decoded to doubles or 64-bit integers, combined one at a
 * time, and rounded by looking for the nearest. Shares no code with reduce/. A suite that knows the order of
 * an algorithm computes whole collectives with it: ref_load, then ref_op for each further summand, ref_round
 * where a hop rounds, ref_finish after the last one, ref_store.
 */
#ifndef REDUCE_REF_H
#define REDUCE_REF_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "reduce/reduce.h"

/* One number in what its type is computed in: a float32 is a double that happens to be one. */
struct ref_num {
	double f; /* float types */
	uint64_t u; /* integers, sign-extended */
};

struct ref_format {
	int exponent, fraction; /* bits */
	bool infinity; /* else the largest code of each sign is NaN, and that is all there is */
	uint32_t nan; /* canonical */
};

static inline const struct ref_format *ref_format(sircl_type_t t)
{
	static const struct ref_format f16 = { 5, 10, true, 0x7e00 }, bf16 = { 8, 7, true, 0x7fc0 },
				       e4m3 = { 4, 3, false, 0x7f }, e5m2 = { 5, 2, true, 0x7e };

	switch (t) {
	case SIRCL_FLOAT16:
		return &f16;
	case SIRCL_BFLOAT16:
		return &bf16;
	case SIRCL_FLOAT8E4M3:
		return &e4m3;
	case SIRCL_FLOAT8E5M2:
		return &e5m2;
	default:
		return NULL;
	}
}

static inline bool ref_signed(sircl_type_t t)
{
	return t == SIRCL_INT8 || t == SIRCL_INT32 || t == SIRCL_INT64;
}

static inline bool ref_integer(sircl_type_t t)
{
	return ref_signed(t) || t == SIRCL_UINT8 || t == SIRCL_UINT32 || t == SIRCL_UINT64;
}

/* Bytes of an element, of an accumulator. */
static inline size_t ref_size(sircl_type_t t, bool acc)
{
	static const size_t size[SIRCL_TYPE_COUNT] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	if (!acc)
		return size[t];
	return ref_integer(t) || t == SIRCL_FLOAT64 ? 8 : 4;
}

static inline double ref_decode(const struct ref_format *f, uint32_t bits)
{
	const int bias = (1 << (f->exponent - 1)) - 1, top = (1 << f->exponent) - 1;
	const int e = (int)(bits >> f->fraction) & top;
	const uint32_t m = bits & ((1u << f->fraction) - 1);
	const double sign = bits >> (f->exponent + f->fraction) & 1 ? -1.0 : 1.0;

	if (e == top && f->infinity)
		return m ? (double)NAN : sign * (double)INFINITY;
	if (e == top && m == (1u << f->fraction) - 1)
		return (double)NAN;
	if (e == 0)
		return sign * ldexp(m, 1 - bias - f->fraction);
	return sign * ldexp(m + (1u << f->fraction), e - bias - f->fraction);
}

/* Codes of one sign are in the order of their values: counts steps up from the value's exponent, and looks
 * whether the remainder is below, above or on the half. */
static inline uint32_t ref_encode(const struct ref_format *f, double x)
{
	const int bias = (1 << (f->exponent - 1)) - 1;
	const uint32_t sign = signbit(x) ? 1u << (f->exponent + f->fraction) : 0;
	const uint32_t inf = ((1u << f->exponent) - 1) << f->fraction;
	const uint32_t max = f->infinity ? inf - 1 : (1u << (f->exponent + f->fraction)) - 2;
	uint32_t code;
	double steps, whole;
	int e;

	if (isnan(x))
		return f->nan;
	x = fabs(x);
	if (isinf(x))
		return f->infinity ? sign | inf : f->nan;
	e = x > 0 ? ilogb(x) : -10000;
	if (e < 1 - bias)
		e = 1 - bias;
	steps = ldexp(x, f->fraction - e);
	whole = floor(steps);
	if (steps - whole > 0.5 || (steps - whole == 0.5 && fmod(whole, 2) == 1))
		whole += 1;
	if (e > bias + 1)
		code = max + 1;
	else /* the implicit one is among the steps, so that the first normal number has e + bias = 1 */
		code = (uint32_t)((double)(uint32_t)((e + bias - 1) << f->fraction) + whole);
	if (code > max)
		return f->infinity ? sign | inf : f->nan;
	return sign | code;
}

/* Element i of p, an accumulator or not. */
static inline struct ref_num ref_load(sircl_type_t t, bool acc, const void *p, size_t i)
{
	const size_t size = ref_size(t, acc);
	struct ref_num v = { 0, 0 };
	uint64_t raw = 0;
	float f;

	memcpy(&raw, (const char *)p + i * size, size); /* little-endian */
	if (ref_integer(t)) {
		if (ref_signed(t) && size < 8 && raw >> (8 * size - 1))
			raw |= ~0ull << (8 * size);
		v.u = raw;
	} else if (size == 8) {
		memcpy(&v.f, &raw, 8);
	} else if (size == 4) {
		memcpy(&f, &raw, 4);
		v.f = (double)f;
	} else {
		v.f = ref_decode(ref_format(t), (uint32_t)raw);
	}
	return v;
}

static inline void ref_store(sircl_type_t t, bool acc, void *p, size_t i, struct ref_num v)
{
	const size_t size = ref_size(t, acc);
	uint64_t raw = v.u;
	float f = (float)v.f;

	if (!ref_integer(t)) {
		raw = 0;
		if (size == 8 && isnan(v.f))
			raw = 0x7ff8000000000000ull;
		else if (size == 8)
			memcpy(&raw, &v.f, 8);
		else if (size == 4 && isnan(v.f))
			raw = 0x7fc00000u;
		else if (size == 4)
			memcpy(&raw, &f, 4);
		else
			raw = ref_encode(ref_format(t), v.f);
	}
	memcpy((char *)p + i * size, &raw, size);
}

/* v as it is after it was stored in the type. */
static inline struct ref_num ref_round(sircl_type_t t, struct ref_num v)
{
	uint64_t mem;

	ref_store(t, false, &mem, 0, v);
	return ref_load(t, false, &mem, 0);
}

/* A result of float arithmetic, in what the type is computed in. A double holds sums, products and quotients
 * of two float32 precisely enough that rounding twice is rounding once. */
static inline double ref_wide(sircl_type_t t, double f)
{
	return t == SIRCL_FLOAT64 ? f : (double)(float)f;
}

static inline bool ref_less(sircl_type_t t, struct ref_num a, struct ref_num b)
{
	if (ref_signed(t)) /* the sign bit turned: -1 comes before 0 */
		return (a.u ^ 1ull << 63) < (b.u ^ 1ull << 63);
	if (ref_integer(t))
		return a.u < b.u;
	if (a.f == b.f)
		return signbit(a.f) && !signbit(b.f);
	return a.f < b.f;
}

/* a op b; an average and a pre-multiplied sum add. */
static inline struct ref_num ref_op(sircl_type_t t, sircl_op_t op, struct ref_num a, struct ref_num b)
{
	struct ref_num v = { 0, 0 };

	if (op == SIRCL_MAX || op == SIRCL_MIN) {
		if (!ref_integer(t) && (isnan(a.f) || isnan(b.f)))
			return isnan(a.f) ? a : b;
		return ref_less(t, a, b) == (op == SIRCL_MAX) ? b : a;
	}
	if (op == SIRCL_PROD) {
		v.u = a.u * b.u;
		v.f = ref_wide(t, a.f * b.f);
	} else {
		v.u = a.u + b.u;
		v.f = ref_wide(t, a.f + b.f);
	}
	return v;
}

/* After the contributions of all ranks, before the rounding. */
static inline struct ref_num ref_finish(sircl_type_t t, sircl_op_t op, struct ref_num v, unsigned ranks)
{
	if (op != SIRCL_AVG)
		return v;
	v.f = ref_wide(t, v.f / (double)ranks);
	if (ref_signed(t) && v.u >> 63) /* of the magnitude: towards zero */
		v.u = 0 - (0 - v.u) / ranks;
	else
		v.u = v.u / ranks;
	return v;
}

/* An element times the scalar of a pre-multiplied sum, rounded to the type. */
static inline struct ref_num ref_scale(sircl_type_t t, struct ref_num v, const void *scalar)
{
	return ref_round(t, ref_op(t, SIRCL_PROD, v, ref_load(t, false, scalar, 0)));
}

/* What reduce_run must do. */
static inline void ref_run(sircl_type_t t, sircl_op_t op, unsigned flags, const struct reduce_arg *arg,
			   void *dst, const void *const src[], int nsrc, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct ref_num v = ref_load(t, (flags & REDUCE_ACC_IN) != 0, src[0], i);

		for (int s = 1; s < nsrc; s++)
			v = ref_op(t, op, v, ref_load(t, false, src[s], i));
		if (flags & REDUCE_SCALE)
			v = ref_scale(t, v, &arg->scalar);
		if (flags & REDUCE_FINISH)
			v = ref_finish(t, op, v, arg->ranks);
		ref_store(t, (flags & REDUCE_ACC_OUT) != 0, dst, i, v);
	}
}
#endif
