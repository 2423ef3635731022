/* SPDX-License-Identifier: Apache-2.0 */
/* Two tables, and the bits of floats. */
#include <string.h>
#include "bench_types.h"

static const struct {
	const char *name;
	size_t size;
} types[SIRCL_TYPE_COUNT] = {
	[SIRCL_INT8] = { "int8", 1 },         [SIRCL_UINT8] = { "uint8", 1 },
	[SIRCL_INT32] = { "int32", 4 },       [SIRCL_UINT32] = { "uint32", 4 },
	[SIRCL_INT64] = { "int64", 8 },       [SIRCL_UINT64] = { "uint64", 8 },
	[SIRCL_FLOAT16] = { "half", 2 },      [SIRCL_FLOAT32] = { "float", 4 },
	[SIRCL_FLOAT64] = { "double", 8 },    [SIRCL_BFLOAT16] = { "bfloat16", 2 },
	[SIRCL_FLOAT8E4M3] = { "f8e4m3", 1 }, [SIRCL_FLOAT8E5M2] = { "f8e5m2", 1 },
};

static const char *const ops[SIRCL_OP_COUNT] = {
	[SIRCL_SUM] = "sum", [SIRCL_PROD] = "prod", [SIRCL_MAX] = "max",
	[SIRCL_MIN] = "min", [SIRCL_AVG] = "avg",
};

size_t bench_type_size(sircl_type_t t)
{
	return types[t].size;
}

const char *bench_type_name(sircl_type_t t)
{
	return types[t].name;
}

const char *bench_op_name(sircl_op_t o)
{
	return ops[o];
}

bool bench_type_find(const char *name, sircl_type_t *t)
{
	for (int i = 0; i < SIRCL_TYPE_COUNT; i++) {
		if (!strcmp(types[i].name, name)) {
			*t = (sircl_type_t)i;
			return true;
		}
	}
	return false;
}

bool bench_op_find(const char *name, sircl_op_t *o)
{
	for (int i = 0; i < SIRCL_OP_COUNT; i++) {
		if (!strcmp(ops[i], name)) {
			*o = (sircl_op_t)i;
			return true;
		}
	}
	return false;
}

int bench_type_digits(sircl_type_t t)
{
	switch (t) {
	case SIRCL_FLOAT8E5M2:
		return 3;
	case SIRCL_FLOAT8E4M3:
		return 4;
	case SIRCL_BFLOAT16:
		return 8;
	case SIRCL_FLOAT16:
		return 11;
	case SIRCL_FLOAT32:
		return 24;
	case SIRCL_FLOAT64:
		return 53;
	default:
		return 0;
	}
}

/* The magnitude of a finite float in a type with `fraction` bits behind the point and smallest normal
 * exponent `emin`, as if exponents had no upper end. */
static uint32_t narrow(uint32_t u, int fraction, int emin)
{
	int e = (int)(u >> 23) - 127, below = e < emin ? emin - e : 0, shift = 23 - fraction + below;
	uint32_t m = (u & 0x7fffff) | 0x800000, kept, rest;

	if (u < 0x800000 || shift > 24) /* below half of the smallest, or a float32's own subnormal */
		return 0;
	kept = m >> shift;
	rest = m - (kept << shift);
	kept += rest > 1u << (shift - 1) || (rest == 1u << (shift - 1) && (kept & 1));
	/* a carry goes into the exponent, which is where it belongs */
	return ((uint32_t)(below ? 0 : e - emin) << fraction) + kept;
}

uint64_t bench_bits(sircl_type_t t, double v)
{
	float f = (float)v;
	uint64_t wide;
	uint32_t u, m;

	memcpy(&wide, &v, 8);
	if (t == SIRCL_FLOAT64)
		return wide;
	memcpy(&u, &f, 4);
	m = u & 0x7fffffff;
	switch (t) {
	case SIRCL_BFLOAT16:
		m = narrow(m, 7, -126);
		return (u >> 31) << 15 | (m > 0x7f80 ? 0x7f80 : m);
	case SIRCL_FLOAT16:
		m = narrow(m, 10, -14);
		return (u >> 31) << 15 | (m > 0x7c00 ? 0x7c00 : m);
	case SIRCL_FLOAT8E5M2:
		m = narrow(m, 2, -14);
		return (u >> 31) << 7 | (m > 0x7c ? 0x7c : m);
	case SIRCL_FLOAT8E4M3: /* no infinity: what is too large is NaN */
		m = narrow(m, 3, -6);
		return m > 0x7e ? 0x7f : (u >> 31) << 7 | m;
	default:
		return u;
	}
}
