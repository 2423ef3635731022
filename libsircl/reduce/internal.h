/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to reduce/. One set of kernels is compiled per instruction set from the same text (kernels.h), and
 * a table of each says what it has. All sets give equal bits: lanes of a vector never mix, contraction is
 * off, the processor's rounding and flushing of subnormals are set for the time of a call (reduce.c), and a
 * NaN result is always the canonical quiet NaN, because which operand's payload survives an addition depends
 * on how the compiler ordered it and on the processor.
 */
#ifndef REDUCE_INTERNAL_H
#define REDUCE_INTERNAL_H
#include "reduce/reduce.h"

#define REDUCE_SRC_MAX 4
/* Elements that pass through the wide buffers at once: two of 4 KiB, on the stack. */
#define REDUCE_CHUNK 512

/* What a type is computed in. */
enum reduce_wide { WIDE_F32, WIDE_F64, WIDE_I64, WIDE_U64, WIDES };

/* The operations that kernels know: avg and the pre-multiplied sum are sums with something before or after.
 */
enum reduce_basic { BASIC_SUM, BASIC_PROD, BASIC_MAX, BASIC_MIN, BASICS };

/* All: n elements, any alignment; dst may be one of the sources if it is as wide. */
typedef void reduce_fn(void *dst, const void *const src[], size_t n);
typedef void reduce_op2(void *dst, const void *a, const void *b, size_t n);
typedef void reduce_conv(void *dst, const void *src, size_t n);
typedef void reduce_div(void *dst, const void *src, uint32_t by, size_t n);

/* Sums of the types that inference adds most, every number of sources and accumulator in one loop. */
struct reduce_fused {
	reduce_fn *fn[REDUCE_SRC_MAX][4]; /* [sources - 1][accumulator flags] */
};

struct reduce_kernels {
	const struct reduce_fused *sum[SIRCL_TYPE_COUNT]; /* NULL: none */
	reduce_op2
		*native[SIRCL_TYPE_COUNT][BASICS]; /* integers in their own width, modulo 2^n; NULL: none */
	reduce_conv *load[SIRCL_TYPE_COUNT]; /* type -> wide; NULL: the type is its own wide type */
	reduce_conv *store[SIRCL_TYPE_COUNT]; /* wide -> type, rounded; NULL: a copy */
	reduce_conv *tidy[WIDES]; /* wide -> wide, NaNs made canonical; NULL: a copy */
	reduce_op2 *op[WIDES][BASICS];
	reduce_div *div[WIDES];
};

extern const struct reduce_kernels reduce_generic, reduce_avx2, reduce_avx512, reduce_neon;

/* Whether this processor and this build have the set. */
bool reduce_set_usable(enum reduce_set);
enum reduce_set reduce_set_resolve(enum reduce_set); /* REDUCE_AUTO: the best usable one */
enum reduce_set reduce_set_wanted(void); /* what reduce_run uses */
const char *reduce_set_name(enum reduce_set);
/* reduce_run with a given set, which must be usable, or REDUCE_AUTO. */
void reduce_run_on(enum reduce_set, sircl_type_t, sircl_op_t, unsigned flags, const struct reduce_arg *,
		   void *dst, const void *const src[], int nsrc, size_t n);
#endif
