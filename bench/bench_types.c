/* SPDX-License-Identifier: Apache-2.0 */
/* Two tables, and the bits of small numbers. */
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

void bench_put(sircl_type_t t, void *buf, size_t i, uint32_t v)
{
	float f = (float)v;
	double d = v;
	uint64_t wide = v;
	uint16_t half;
	uint32_t u;

	switch (t) {
	case SIRCL_FLOAT32:
		memcpy((char *)buf + 4 * i, &f, 4);
		break;
	case SIRCL_BFLOAT16: /* exact: 8 significant bits, or 256 */
		memcpy(&u, &f, 4);
		half = (uint16_t)(u >> 16);
		memcpy((char *)buf + 2 * i, &half, 2);
		break;
	case SIRCL_FLOAT64:
		memcpy((char *)buf + 8 * i, &d, 8);
		break;
	default: /* the low bytes; this library runs on little-endian machines */
		memcpy((char *)buf + types[t].size * i, &wide, types[t].size);
	}
}
