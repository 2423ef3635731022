/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to reduce/. One set of kernels is compiled per instruction set from the same text (kernels.h), and
 * a table of each says what it has. All sets give equal bits: lanes of a vector never mix, contraction is
 * off, and a NaN result is always the canonical quiet NaN, because which operand's payload survives an
 * addition depends on how the compiler ordered it and on the processor.
 */
#ifndef REDUCE_INTERNAL_H
#define REDUCE_INTERNAL_H
#include "reduce/reduce.h"

enum reduce_isa { REDUCE_GENERIC, REDUCE_AVX2, REDUCE_AVX512, REDUCE_ISAS };

#define REDUCE_SRC_MAX 4

/* n elements from 1..4 sources; the number of sources and the accumulator flags are in the choice of kernel.
 */
typedef void reduce_fn(void *dst, const void *const src[], size_t n);

/* fn[sources - 1][accumulator flags] of one type and operation. */
struct reduce_kernels {
	reduce_fn *fn[REDUCE_SRC_MAX][4];
};

/* NULL: not there for this type and operation. */
extern const struct reduce_kernels *const reduce_generic[SIRCL_TYPE_COUNT][SIRCL_OP_COUNT];
extern const struct reduce_kernels *const reduce_avx2[SIRCL_TYPE_COUNT][SIRCL_OP_COUNT];
extern const struct reduce_kernels *const reduce_avx512[SIRCL_TYPE_COUNT][SIRCL_OP_COUNT];

/* Whether this processor and this build have the set. */
bool reduce_isa_usable(enum reduce_isa);
/* The best of the usable ones. */
enum reduce_isa reduce_isa_best(void);
const char *reduce_isa_name(enum reduce_isa);
/* The kernel of one set, which must be usable; NULL: not supported. */
reduce_fn *reduce_kernel(enum reduce_isa, sircl_type_t, sircl_op_t, unsigned acc, int nsrc);
#endif
