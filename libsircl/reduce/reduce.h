/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of reductions: type x operation, vectorised by the compiler, compiled with -ffp-contract=off so
 * that all paths give equal bits. dst[i] = round(((src0[i] op src1[i]) op src2[i]) op src3[i]), inside in
 * fp32 for float types of 32 bits and less; round to nearest even.
 */
#ifndef REDUCE_REDUCE_H
#define REDUCE_REDUCE_H
#include <stdbool.h>
#include <stddef.h>
#include "sircl/sircl.h"

size_t type_size(sircl_type_t); /* bytes; 0: no such type */
const char *type_name(sircl_type_t); /* nccl-tests' names: "float", "bfloat16", ... */
const char *op_name(sircl_op_t); /* "sum", ... */
bool reduce_supports(sircl_type_t, sircl_op_t);

/* What the accumulator flags of plan.h mean here. */
enum reduce_acc { REDUCE_ACC_OUT = 1 /* dst is float[] */, REDUCE_ACC_IN = 2 /* src[0] is float[] */ };
/*
 * nsrc 1..4 sources of n elements; any alignment; dst may be one of the sources, no other overlap. Not
 * supported: defect (asserts).
 */
void reduce_run(sircl_type_t, sircl_op_t, unsigned acc, void *dst, const void *const src[], int nsrc,
		size_t n);
#endif
