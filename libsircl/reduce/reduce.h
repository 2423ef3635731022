/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of reductions: type x operation, vectorised by the compiler, compiled with -ffp-contract=off so
 * that all paths give equal bits. dst[i] = round(((src0[i] op src1[i]) op src2[i]) op src3[i]), computed
 * wide: in fp32 for float types of up to 32 bits, in fp64 for fp64, in 64-bit integers of the same sign,
 * modulo 2^64, for integers. Rounding to the type is to nearest even, fp8 e4m3 overflows to NaN, e5m2, fp16
 * and bf16 to infinity; integers keep their low bits. Every NaN result is the type's canonical quiet NaN. min
 * and max give NaN if any input is NaN, and take -0 as less than +0.
 */
#ifndef REDUCE_REDUCE_H
#define REDUCE_REDUCE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sircl/sircl.h"

size_t type_size(sircl_type_t); /* bytes; 0: no such type */
const char *type_name(sircl_type_t); /* nccl-tests' names: "float", "bfloat16", ... */
/* The operations of the public header, and the sum of elements that were multiplied before. */
#define REDUCE_PREMUL_SUM SIRCL_OP_COUNT
#define REDUCE_OPS (SIRCL_OP_COUNT + 1)
const char *op_name(sircl_op_t); /* "sum", ..., "premul sum" */
bool reduce_supports(sircl_type_t, sircl_op_t);
bool type_is_integer(sircl_type_t);
/* Bytes of an element of an accumulator: 4 for float types of up to 32 bits, else 8. */
size_t reduce_acc_size(sircl_type_t);

/* As the flags of the same names in plan.h; the values are the same. */
enum reduce_flag {
	REDUCE_ACC_OUT = 1, /* dst is wide and not rounded */
	REDUCE_ACC_IN = 2, /* src[0] is wide */
	REDUCE_FINISH = 8, /* SIRCL_AVG: divide by `ranks` before rounding, integers truncating toward zero;
			      nothing for other operations */
	REDUCE_SCALE = 16, /* nsrc 1, no accumulators: dst = round(src * scalar) */
};
struct reduce_arg {
	uint32_t ranks;
	uint64_t scalar; /* its first bytes are one element of the type */
};
/*
 * nsrc 1..4 sources of n elements; any alignment; dst may be one of the sources if it is as wide, no other
 * overlap. The arg may be NULL without FINISH and SCALE. Not supported: defect (asserts). Any thread. The
 * caller's rounding mode and flushing of subnormals do not count, and are left as they were.
 */
void reduce_run(sircl_type_t, sircl_op_t, unsigned flags, const struct reduce_arg *, void *dst,
		const void *const src[], int nsrc, size_t n);

/* The instruction sets that the kernels are compiled for; the numbers are those of SIRCL_CPU's choices. */
enum reduce_set { REDUCE_AUTO, REDUCE_GENERIC, REDUCE_AVX2, REDUCE_AVX512, REDUCE_NEON, REDUCE_SETS };
/*
 * What reduce_run uses from now on in the whole process. REDUCE_AUTO, the state at the start: the best that
 * the processor has. SIRCL_BAD_CONFIG and a sentence if this processor or build lacks the set. Any thread; as
 * all sets give equal bits, a call beside running reductions does no harm.
 */
sircl_result_t reduce_use(enum reduce_set);
const char *reduce_used(void); /* "avx512", ... */
#endif
