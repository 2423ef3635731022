/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels, as text: included once per instruction set with
 *   KERNEL_SET     the name of the table to define
 *   KERNEL_TARGET  function attributes that select the instruction set, or nothing
 *   KERNEL_SCALAR  defined: not vectorised
 * Every kernel is one loop with constant number of sources and constant flags, which the compiler vectorises.
 * Pointers may have any alignment, and dst may be one of the sources: element i is read before it is written
 * and nothing else of it is read, which KERNEL_LOOP tells the vectoriser.
 */
#include <stdint.h>
#include <string.h>
#include "reduce/internal.h"

#if defined(__clang__) && defined(KERNEL_SCALAR)
#define KERNEL_LOOP _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
#elif defined(__clang__)
#define KERNEL_LOOP _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#elif defined(KERNEL_SCALAR)
#pragma GCC optimize("no-tree-vectorize", "no-tree-slp-vectorize")
#define KERNEL_LOOP
#else
#define KERNEL_LOOP _Pragma("GCC ivdep")
#endif
#define KERNEL_INLINE KERNEL_TARGET static inline __attribute__((always_inline))

#include "reduce/numbers.h"

/* ---- fused sums: type, sources, accumulator flags ---- */
#define KERNEL(T, N, A) \
	KERNEL_TARGET static void T##_sum_##N##_##A(void *dst, const void *const src[], size_t n) \
	{ \
		const void *s0 = src[0], *s1 = (N) > 1 ? src[1] : NULL, *s2 = (N) > 2 ? src[2] : NULL, \
			   *s3 = (N) > 3 ? src[3] : NULL; \
\
		KERNEL_LOOP \
		for (size_t i = 0; i < n; i++) { \
			float v = (A)&REDUCE_ACC_IN ? load_f32(s0, i) : load_##T(s0, i); \
\
			if ((N) > 1) \
				v = v + load_##T(s1, i); \
			if ((N) > 2) \
				v = v + load_##T(s2, i); \
			if ((N) > 3) \
				v = v + load_##T(s3, i); \
			if ((A)&REDUCE_ACC_OUT) \
				store_f32(dst, i, v); \
			else \
				store_##T(dst, i, v); \
		} \
	}
#define KERNEL_FLAGS(T, N) KERNEL(T, N, 0) KERNEL(T, N, 1) KERNEL(T, N, 2) KERNEL(T, N, 3)
#define KERNEL_ROW(T, N) \
	{ \
		T##_sum_##N##_0, T##_sum_##N##_1, T##_sum_##N##_2, T##_sum_##N##_3 \
	}
#define KERNEL_FUSED(T) \
	KERNEL_FLAGS(T, 1) \
	KERNEL_FLAGS(T, 2) \
	KERNEL_FLAGS(T, 3) \
	KERNEL_FLAGS(T, 4) \
	static const struct reduce_fused T##_sum = { { KERNEL_ROW(T, 1), KERNEL_ROW(T, 2), KERNEL_ROW(T, 3), \
						       KERNEL_ROW(T, 4) } };

/* ---- conversions ---- */
#define KERNEL_LOAD(T, W) \
	KERNEL_TARGET static void T##_load(void *dst, const void *src, size_t n) \
	{ \
		KERNEL_LOOP \
		for (size_t i = 0; i < n; i++) \
			((k_##W *)dst)[i] = load_##T(src, i); \
	}
#define KERNEL_STORE(T, W) \
	KERNEL_TARGET static void T##_store(void *dst, const void *src, size_t n) \
	{ \
		KERNEL_LOOP \
		for (size_t i = 0; i < n; i++) \
			store_##T(dst, i, load_##W(src, i)); \
	}

/* ---- two operands; W names a type of numbers.h that is computed in itself ---- */
#define KERNEL_OP2(NAME, W, EXPR) \
	KERNEL_TARGET static void NAME(void *dst, const void *pa, const void *pb, size_t n) \
	{ \
		KERNEL_LOOP \
		for (size_t i = 0; i < n; i++) { \
			k_##W a = ((const k_##W *)pa)[i], b = ((const k_##W *)pb)[i]; \
\
			((k_##W *)dst)[i] = (k_##W)(EXPR); \
		} \
	}
#define KERNEL_FLOAT_OPS(W) \
	KERNEL_OP2(W##_op_sum, W, a + b) \
	KERNEL_OP2(W##_op_prod, W, a *b) \
	KERNEL_OP2(W##_op_max, W, max_##W(a, b)) \
	KERNEL_OP2(W##_op_min, W, min_##W(a, b))
/* Sum and product modulo 2^n are the same for signed and unsigned, and defined for unsigned. */
#define KERNEL_INT_OPS(S, U) \
	KERNEL_OP2(U##_op_sum, U, a + b) \
	KERNEL_OP2(U##_op_prod, U, a *b) \
	KERNEL_OP2(U##_op_max, U, a > b ? a : b) \
	KERNEL_OP2(U##_op_min, U, a < b ? a : b) \
	KERNEL_OP2(S##_op_max, S, a > b ? a : b) \
	KERNEL_OP2(S##_op_min, S, a < b ? a : b)
#define KERNEL_OPS(T, U) \
	{ \
		[BASIC_SUM] = U##_op_sum, [BASIC_PROD] = U##_op_prod, [BASIC_MAX] = T##_op_max, \
		[BASIC_MIN] = T##_op_min \
	}
#define KERNEL_DIV(W, D) \
	KERNEL_TARGET static void W##_div(void *dst, const void *src, uint32_t by, size_t n) \
	{ \
		const D d = (D)by; \
\
		KERNEL_LOOP \
		for (size_t i = 0; i < n; i++) \
			((k_##W *)dst)[i] = ((const k_##W *)src)[i] / d; \
	}

/* clang-format off */
KERNEL_FUSED(f32)
KERNEL_FUSED(bf16)
KERNEL_FUSED(f16)

KERNEL_LOAD(i8, i64)
KERNEL_LOAD(u8, u64)
KERNEL_LOAD(i32, i64)
KERNEL_LOAD(u32, u64)
KERNEL_LOAD(f16, f32)
KERNEL_LOAD(bf16, f32)
KERNEL_LOAD(e4m3, f32)
KERNEL_LOAD(e5m2, f32)

KERNEL_STORE(i8, i64)
KERNEL_STORE(u8, u64)
KERNEL_STORE(i32, i64)
KERNEL_STORE(u32, u64)
KERNEL_STORE(f16, f32)
KERNEL_STORE(bf16, f32)
KERNEL_STORE(e4m3, f32)
KERNEL_STORE(e5m2, f32)
KERNEL_STORE(f32, f32)
KERNEL_STORE(f64, f64)

KERNEL_FLOAT_OPS(f32)
KERNEL_FLOAT_OPS(f64)
KERNEL_INT_OPS(i8, u8)
KERNEL_INT_OPS(i32, u32)
KERNEL_INT_OPS(i64, u64)

KERNEL_DIV(f32, float)
KERNEL_DIV(f64, double)
KERNEL_DIV(i64, int64_t)
KERNEL_DIV(u64, uint64_t)

const struct reduce_kernels KERNEL_SET = {
	.sum = { [SIRCL_FLOAT32] = &f32_sum, [SIRCL_BFLOAT16] = &bf16_sum, [SIRCL_FLOAT16] = &f16_sum },
	.native = { [SIRCL_INT8] = KERNEL_OPS(i8, u8),
		    [SIRCL_UINT8] = KERNEL_OPS(u8, u8),
		    [SIRCL_INT32] = KERNEL_OPS(i32, u32),
		    [SIRCL_UINT32] = KERNEL_OPS(u32, u32),
		    [SIRCL_INT64] = KERNEL_OPS(i64, u64),
		    [SIRCL_UINT64] = KERNEL_OPS(u64, u64) },
	.load = { [SIRCL_INT8] = i8_load, [SIRCL_UINT8] = u8_load, [SIRCL_INT32] = i32_load,
		  [SIRCL_UINT32] = u32_load, [SIRCL_FLOAT16] = f16_load, [SIRCL_BFLOAT16] = bf16_load,
		  [SIRCL_FLOAT8E4M3] = e4m3_load, [SIRCL_FLOAT8E5M2] = e5m2_load },
	.store = { [SIRCL_INT8] = i8_store, [SIRCL_UINT8] = u8_store, [SIRCL_INT32] = i32_store,
		   [SIRCL_UINT32] = u32_store, [SIRCL_FLOAT16] = f16_store, [SIRCL_BFLOAT16] = bf16_store,
		   [SIRCL_FLOAT8E4M3] = e4m3_store, [SIRCL_FLOAT8E5M2] = e5m2_store,
		   [SIRCL_FLOAT32] = f32_store, [SIRCL_FLOAT64] = f64_store },
	.tidy = { [WIDE_F32] = f32_store, [WIDE_F64] = f64_store },
	.op = { [WIDE_F32] = KERNEL_OPS(f32, f32), [WIDE_F64] = KERNEL_OPS(f64, f64),
		[WIDE_I64] = KERNEL_OPS(i64, u64), [WIDE_U64] = KERNEL_OPS(u64, u64) },
	.div = { [WIDE_F32] = f32_div, [WIDE_F64] = f64_div, [WIDE_I64] = i64_div, [WIDE_U64] = u64_div },
};
/* clang-format on */
