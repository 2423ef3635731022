/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels, as text: included once per instruction set with
 *   KERNEL_SET     the name of the table to define
 *   KERNEL_TARGET  function attributes that select the instruction set, or nothing
 * Every kernel is one loop with constant number of sources and constant flags, which the compiler vectorises.
 * Pointers may have any alignment, and dst may be one of the sources: element i is read before it is written
 * and nothing else of it is read, which KERNEL_LOOP tells the vectoriser.
 */
#include <stdint.h>
#include <string.h>
#include "reduce/internal.h"

#if defined(__clang__)
#define KERNEL_LOOP _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define KERNEL_LOOP _Pragma("GCC ivdep")
#endif
#define KERNEL_INLINE KERNEL_TARGET static inline __attribute__((always_inline))

typedef float k_f32 __attribute__((aligned(1), may_alias));
typedef uint16_t k_u16 __attribute__((aligned(1), may_alias));

KERNEL_INLINE uint32_t k_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

KERNEL_INLINE float k_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

KERNEL_INLINE float load_f32(const void *p, size_t i)
{
	return ((const k_f32 *)p)[i];
}

KERNEL_INLINE void store_f32(void *p, size_t i, float f)
{
	uint32_t u = k_bits(f);

	((k_f32 *)p)[i] = k_float((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u);
}

KERNEL_INLINE float load_bf16(const void *p, size_t i)
{
	return k_float((uint32_t)((const k_u16 *)p)[i] << 16);
}

/* Round to nearest, ties to even. The carry of the rounding may run into the exponent: that is right, also
 * into infinity. */
KERNEL_INLINE void store_bf16(void *p, size_t i, float f)
{
	uint32_t u = k_bits(f);
	uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;

	((k_u16 *)p)[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : r);
}

#define KERNEL_SUM(a, b) ((a) + (b))

/* type, operation, combining macro, sources, flags */
#define KERNEL(T, O, OP, N, A) \
	KERNEL_TARGET static void T##_##O##_##N##_##A(void *dst, const void *const src[], size_t n) \
	{ \
		const void *s0 = src[0], *s1 = (N) > 1 ? src[1] : NULL, *s2 = (N) > 2 ? src[2] : NULL, \
			   *s3 = (N) > 3 ? src[3] : NULL; \
\
		KERNEL_LOOP \
		for (size_t i = 0; i < n; i++) { \
			float v = (A)&REDUCE_ACC_IN ? load_f32(s0, i) : load_##T(s0, i); \
\
			if ((N) > 1) \
				v = OP(v, load_##T(s1, i)); \
			if ((N) > 2) \
				v = OP(v, load_##T(s2, i)); \
			if ((N) > 3) \
				v = OP(v, load_##T(s3, i)); \
			if ((A)&REDUCE_ACC_OUT) \
				store_f32(dst, i, v); \
			else \
				store_##T(dst, i, v); \
		} \
	}
#define KERNEL_FLAGS(T, O, OP, N) \
	KERNEL(T, O, OP, N, 0) KERNEL(T, O, OP, N, 1) KERNEL(T, O, OP, N, 2) KERNEL(T, O, OP, N, 3)
#define KERNEL_ROW(T, O, N) \
	{ \
		T##_##O##_##N##_0, T##_##O##_##N##_1, T##_##O##_##N##_2, T##_##O##_##N##_3 \
	}
#define KERNELS(T, O, OP) \
	KERNEL_FLAGS(T, O, OP, 1) \
	KERNEL_FLAGS(T, O, OP, 2) \
	KERNEL_FLAGS(T, O, OP, 3) \
	KERNEL_FLAGS(T, O, OP, 4) \
	static const struct reduce_kernels T##_##O = { { KERNEL_ROW(T, O, 1), KERNEL_ROW(T, O, 2), \
							 KERNEL_ROW(T, O, 3), KERNEL_ROW(T, O, 4) } };

/* clang-format off */
KERNELS(f32, sum, KERNEL_SUM)
KERNELS(bf16, sum, KERNEL_SUM)

const struct reduce_kernels *const KERNEL_SET[SIRCL_TYPE_COUNT][SIRCL_OP_COUNT] = {
	[SIRCL_FLOAT32] = { [SIRCL_SUM] = &f32_sum },
	[SIRCL_BFLOAT16] = { [SIRCL_SUM] = &bf16_sum },
};
/* clang-format on */
