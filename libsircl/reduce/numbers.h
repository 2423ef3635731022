/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element: from memory to what it is computed in, and back. Part of kernels.h, which see. Without
 * branches, so that the compiler can vectorise; without conversion instructions of 16-bit floats, which not
 * all sets have.
 *
 * Narrow floats have a float32's layout with fewer bits, so a normal number is shifted and its exponent
 * moved. Subnormals go through an addition or multiplication that is exact, or rounds where the narrow type
 * would.
 */
typedef float k_f32 __attribute__((aligned(1), may_alias));
typedef double k_f64 __attribute__((aligned(1), may_alias));
typedef uint8_t k_u8 __attribute__((may_alias));
typedef int8_t k_i8 __attribute__((may_alias));
typedef uint16_t k_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t k_u32 __attribute__((aligned(1), may_alias));
typedef int32_t k_i32 __attribute__((aligned(1), may_alias));
typedef uint64_t k_u64 __attribute__((aligned(1), may_alias));
typedef int64_t k_i64 __attribute__((aligned(1), may_alias));

#define F32_INF 0x7f800000u
#define F32_NAN 0x7fc00000u
#define F32_ABS 0x7fffffffu
#define F64_INF 0x7ff0000000000000ull
#define F64_NAN 0x7ff8000000000000ull
#define F64_ABS 0x7fffffffffffffffull

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

KERNEL_INLINE uint64_t k_bits64(double f)
{
	uint64_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

KERNEL_INLINE double k_double(uint64_t u)
{
	double f;

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

	((k_f32 *)p)[i] = k_float((u & F32_ABS) > F32_INF ? F32_NAN : u);
}

KERNEL_INLINE double load_f64(const void *p, size_t i)
{
	return ((const k_f64 *)p)[i];
}

KERNEL_INLINE void store_f64(void *p, size_t i, double f)
{
	uint64_t u = k_bits64(f);

	((k_f64 *)p)[i] = k_double((u & F64_ABS) > F64_INF ? F64_NAN : u);
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

	((k_u16 *)p)[i] = (uint16_t)((u & F32_ABS) > F32_INF ? 0x7fc0u : r);
}

/* A subnormal is its fraction times the smallest normal number: that number with the fraction set, less it.
 */
KERNEL_INLINE float k_from_half(uint32_t h)
{
	const uint32_t one = 1u << 23, a = h & 0x7fffu, v = (a << 13) + 112u * one;
	const uint32_t sub = k_bits(k_float(v + one) - k_float(113u * one));
	const uint32_t r = a < 0x400u ? sub : a >= 0x7c00u ? v | F32_INF : v;

	return k_float(r | (h & 0x8000u) << 16);
}

KERNEL_INLINE float load_f16(const void *p, size_t i)
{
	return k_from_half(((const k_u16 *)p)[i]);
}

/* e5m2 is the upper half of a float16. */
KERNEL_INLINE float load_e5m2(const void *p, size_t i)
{
	return k_from_half((uint32_t)((const k_u8 *)p)[i] << 8);
}

KERNEL_INLINE float load_e4m3(const void *p, size_t i)
{
	const uint32_t b = ((const k_u8 *)p)[i], one = 1u << 23, a = b & 0x7fu, v = (a << 20) + 120u * one;
	const uint32_t sub = k_bits(k_float(v + one) - k_float(121u * one));
	const uint32_t r = a < 8u ? sub : a == 0x7fu ? F32_NAN : v;

	return k_float(r | (b & 0x80u) << 24);
}

/*
 * |f| in a narrow float's bits, before overflow: `cut` fraction bits go, the exponent's bias shrinks by
 * `bias`. Below the smallest normal number, whose float32 bits are `normal`, adding `magic` rounds at the
 * narrow type's smallest step, because that is the unit in the last place of magic.
 */
KERNEL_INLINE uint32_t k_narrow(uint32_t a, int cut, uint32_t bias, uint32_t normal, float magic)
{
	const uint32_t r = (a - (bias << 23) + (1u << (cut - 1)) - 1u + ((a >> cut) & 1u)) >> cut;
	const uint32_t sub = k_bits(k_float(a < normal ? a : 0) + magic) - k_bits(magic);

	return a < normal ? sub : r;
}

KERNEL_INLINE void store_f16(void *p, size_t i, float f)
{
	uint32_t u = k_bits(f), a = u & F32_ABS;
	uint32_t r = k_narrow(a, 13, 112, 0x38800000u, 0.5f);

	r = r > 0x7c00u ? 0x7c00u : r;
	r |= (u >> 16) & 0x8000u;
	((k_u16 *)p)[i] = (uint16_t)(a > F32_INF ? 0x7e00u : r);
}

KERNEL_INLINE void store_e5m2(void *p, size_t i, float f)
{
	uint32_t u = k_bits(f), a = u & F32_ABS;
	uint32_t r = k_narrow(a, 21, 112, 0x38800000u, 128.0f);

	r = r > 0x7cu ? 0x7cu : r;
	r |= (u >> 24) & 0x80u;
	((k_u8 *)p)[i] = (uint8_t)(a > F32_INF ? 0x7eu : r);
}

/* There is no infinity: what rounds to more than 448 is NaN. */
KERNEL_INLINE void store_e4m3(void *p, size_t i, float f)
{
	uint32_t u = k_bits(f), a = u & F32_ABS;
	uint32_t r = k_narrow(a, 20, 120, 0x3c800000u, 16384.0f);

	((k_u8 *)p)[i] = (uint8_t)(r > 0x7eu ? 0x7fu : r | ((u >> 24) & 0x80u));
}

#define KERNEL_INTEGER(T, W) \
	KERNEL_INLINE W load_##T(const void *p, size_t i) \
	{ \
		return (W)((const k_##T *)p)[i]; \
	} \
	KERNEL_INLINE void store_##T(void *p, size_t i, W v) \
	{ \
		((k_##T *)p)[i] = (k_##T)v; \
	}

/* clang-format off */
KERNEL_INTEGER(i8, int64_t)
KERNEL_INTEGER(u8, uint64_t)
KERNEL_INTEGER(i32, int64_t)
KERNEL_INTEGER(u32, uint64_t)
KERNEL_INTEGER(i64, int64_t)
KERNEL_INTEGER(u64, uint64_t)
/* clang-format on */

/* Bits that compare as integers as the floats do, -0 below +0. */
KERNEL_INLINE int32_t k_order(float f)
{
	int32_t u = (int32_t)k_bits(f);

	return u ^ ((u >> 31) & (int32_t)F32_ABS);
}

KERNEL_INLINE int64_t k_order64(double f)
{
	int64_t u = (int64_t)k_bits64(f);

	return u ^ ((u >> 63) & (int64_t)F64_ABS);
}

/* A NaN of either operand wins; which one does not matter, it is made canonical at the store. */
KERNEL_INLINE float max_f32(float a, float b)
{
	float m = k_order(a) > k_order(b) ? a : b;

	m = (k_bits(a) & F32_ABS) > F32_INF ? a : m;
	return (k_bits(b) & F32_ABS) > F32_INF ? b : m;
}

KERNEL_INLINE float min_f32(float a, float b)
{
	float m = k_order(a) < k_order(b) ? a : b;

	m = (k_bits(a) & F32_ABS) > F32_INF ? a : m;
	return (k_bits(b) & F32_ABS) > F32_INF ? b : m;
}

KERNEL_INLINE double max_f64(double a, double b)
{
	double m = k_order64(a) > k_order64(b) ? a : b;

	m = (k_bits64(a) & F64_ABS) > F64_INF ? a : m;
	return (k_bits64(b) & F64_ABS) > F64_INF ? b : m;
}

KERNEL_INLINE double min_f64(double a, double b)
{
	double m = k_order64(a) < k_order64(b) ? a : b;

	m = (k_bits64(a) & F64_ABS) > F64_INF ? a : m;
	return (k_bits64(b) & F64_ABS) > F64_INF ? b : m;
}
