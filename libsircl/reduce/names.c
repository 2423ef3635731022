/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and names of types and operations: one table each. Names are those of nccl-tests. */
#include "reduce/reduce.h"

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

static const char *const ops[REDUCE_OPS] = {
	[SIRCL_SUM] = "sum", [SIRCL_PROD] = "prod", [SIRCL_MAX] = "max",
	[SIRCL_MIN] = "min", [SIRCL_AVG] = "avg",   [REDUCE_PREMUL_SUM] = "premul sum",
};

size_t type_size(sircl_type_t type)
{
	return (unsigned)type < SIRCL_TYPE_COUNT ? types[type].size : 0;
}

const char *type_name(sircl_type_t type)
{
	return (unsigned)type < SIRCL_TYPE_COUNT ? types[type].name : "?";
}

const char *op_name(sircl_op_t op)
{
	return (unsigned)op < REDUCE_OPS ? ops[op] : "?";
}

bool type_is_integer(sircl_type_t type)
{
	return (unsigned)type <= SIRCL_UINT64;
}

size_t reduce_acc_size(sircl_type_t type)
{
	return type_is_integer(type) || type == SIRCL_FLOAT64 ? 8 : 4;
}
