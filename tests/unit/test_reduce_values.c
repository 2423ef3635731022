/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow types by exhaustion: every pair of 8-bit values, every 16-bit value against special ones, every tie
 * of every narrow float; and the state of the processor's arithmetic. */
#include <check.h>
#include <fenv.h>
#include <stdlib.h>
#include "reduce_ref.h"
#include "reduce/internal.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define EACH_SET(s) \
	for (enum reduce_set s = REDUCE_GENERIC; s < REDUCE_SETS; s = (enum reduce_set)(s + 1)) \
		if (reduce_set_usable(s))
#define EACH_OP(o) for (sircl_op_t o = (sircl_op_t)0; o < (sircl_op_t)REDUCE_OPS; o = (sircl_op_t)(o + 1))

static uint8_t a[65536 * 2], b[65536 * 2], got[65536 * 8], want[65536 * 8];

/* n elements of a op b, on every set. */
static void compare_n(sircl_type_t t, sircl_op_t o, unsigned flags, const struct reduce_arg *arg, int nsrc,
		      size_t n)
{
	const size_t size = ref_size(t, (flags & REDUCE_ACC_OUT) != 0);
	const void *src[2] = { a, b };

	ref_run(t, o, flags, arg, want, src, nsrc, n);
	EACH_SET(s)
	{
		memset(got, 0x5a, n * size);
		reduce_run_on(s, t, o, flags, arg, got, src, nsrc, n);
		for (size_t i = 0; i < n; i++)
			if (memcmp(got + i * size, want + i * size, size) != 0)
				ck_abort_msg(
					"%s: %s of %s, flags %u: element %zu (%02x %02x .., %02x %02x ..): "
					"%02x %02x .., not %02x %02x ..",
					reduce_set_name(s), op_name(o), type_name(t), flags, i,
					a[i * ref_size(t, false)], a[i * ref_size(t, false) + 1],
					b[i * ref_size(t, false)], b[i * ref_size(t, false) + 1],
					got[i * size], got[i * size + 1], want[i * size], want[i * size + 1]);
	}
}

static void compare(sircl_type_t t, sircl_op_t o, unsigned flags, const struct reduce_arg *arg, int nsrc)
{
	compare_n(t, o, flags, arg, nsrc, 65536);
}

START_TEST(test_reduce_every_pair_of_8_bit_values)
{
	static const sircl_type_t types[] = { SIRCL_INT8, SIRCL_UINT8, SIRCL_FLOAT8E4M3, SIRCL_FLOAT8E5M2 };
	const struct reduce_arg two = { .ranks = 2 }, seven = { .ranks = 7 };

	for (size_t i = 0; i < 65536; i++) {
		a[i] = (uint8_t)(i >> 8);
		b[i] = (uint8_t)i;
	}
	for (size_t k = 0; k < 4; k++) {
		EACH_OP(o)
		{
			compare(types[k], o, 0, &two, 2);
			compare(types[k], o, REDUCE_ACC_OUT, &two, 2);
		}
		compare(types[k], SIRCL_AVG, REDUCE_FINISH, &two, 2);
		compare(types[k], SIRCL_AVG, REDUCE_FINISH, &seven, 2);
	}
}
END_TEST

START_TEST(test_reduce_every_8_bit_value_times_every_scalar)
{
	static const sircl_type_t types[] = { SIRCL_INT8, SIRCL_UINT8, SIRCL_FLOAT8E4M3, SIRCL_FLOAT8E5M2 };

	for (size_t i = 0; i < 256; i++)
		a[i] = (uint8_t)i;
	for (size_t k = 0; k < 4; k++)
		for (uint64_t scalar = 0; scalar < 256; scalar++)
			compare_n(types[k], REDUCE_PREMUL_SUM, REDUCE_SCALE,
				  &(struct reduce_arg){ .scalar = scalar }, 1, 256);
}
END_TEST

static void put16(uint8_t *p, size_t i, uint32_t v)
{
	uint16_t h = (uint16_t)v;

	memcpy(p + 2 * i, &h, 2);
}

START_TEST(test_reduce_every_16_bit_value_with_special_ones)
{
	/* float16: smallest, largest subnormal, smallest normal, 1, 1 + 2^-10, largest, infinity, two NaNs;
	 * the same bits are as good for bfloat16, whose own largest, one and infinity follow */
	static const uint16_t v[] = { 0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xbc01, 0x7bff,
				      0xfc00, 0x7c01, 0xfe12, 0x3f80, 0xbf81, 0x7f7f, 0xff80, 0x7f81 };
	static const sircl_type_t types[] = { SIRCL_FLOAT16, SIRCL_BFLOAT16 };
	const struct reduce_arg three = { .ranks = 3 };

	for (size_t i = 0; i < 65536; i++)
		put16(a, i, (uint32_t)i);
	for (size_t k = 0; k < 2; k++) {
		for (size_t j = 0; j < sizeof(v) / sizeof(v[0]); j++) {
			for (size_t i = 0; i < 65536; i++)
				put16(b, i, v[j]);
			for (sircl_op_t o = SIRCL_SUM; o <= SIRCL_MIN; o = (sircl_op_t)(o + 1))
				compare(types[k], o, 0, NULL, 2);
			compare(types[k], SIRCL_AVG, REDUCE_FINISH, &three, 2);
		}
		compare(types[k], SIRCL_MAX, 0, NULL, 1);
		compare(types[k], SIRCL_MAX, REDUCE_ACC_OUT, NULL, 1);
		compare(types[k], SIRCL_SUM, 0, NULL, 1);
	}
}
END_TEST

struct narrow {
	sircl_type_t type;
	uint32_t max, over, sign; /* largest number; what lies above it; sign bit */
	bool signed_over;
};

/* The tie above code c and the float32 on either side of it, both signs: six values and what they round to.
 * The bits of a narrow float are in the order of the values, so the expectation needs no arithmetic: between
 * codes c and c + 1 the half goes to the even one. */
static void ties_of(const struct narrow *f, uint32_t c, uint32_t in[6], uint32_t out[6])
{
	const struct ref_format *r = ref_format(f->type);
	/* above the largest the step is that of its binade: take it from below */
	const double lo = ref_decode(r, c);
	const double hi = c < f->max ? ref_decode(r, c + 1) : 2 * lo - ref_decode(r, c - 1);
	const float tie = (float)((lo + hi) / 2);
	const uint32_t up = c < f->max ? c + 1 : f->over;
	uint32_t u;

	ck_assert(lo < tie && tie < hi);
	memcpy(&u, &tie, 4);
	for (int k = 0; k < 6; k++) {
		const int d = k % 3 - 1;
		const uint32_t w = d < 0 ? c : d > 0 || (c & 1) ? up : c; /* 448 of e4m3 is even: 464 stays */
		const uint32_t sign = w == f->over && !f->signed_over ? 0 : f->sign;

		in[k] = (u + (uint32_t)d) | (k < 3 ? 0 : 0x80000000u);
		out[k] = k < 3 ? w : w | sign;
	}
}

START_TEST(test_reduce_rounds_ties_to_even)
{
	static const struct narrow f[] = { { SIRCL_FLOAT16, 0x7bff, 0x7c00, 0x8000, true },
					   { SIRCL_BFLOAT16, 0x7f7f, 0x7f80, 0x8000, true },
					   { SIRCL_FLOAT8E5M2, 0x7b, 0x7c, 0x80, true },
					   { SIRCL_FLOAT8E4M3, 0x7e, 0x7f, 0x80, false } };
	static uint32_t in[6 * 0x8000], expect[6 * 0x8000];
	const void *src[1] = { in }; /* through an accumulator: nothing but the rounding happens */

	for (size_t k = 0; k < 4; k++) {
		const size_t n = 6 * (f[k].max + 1), size = ref_size(f[k].type, false);

		for (uint32_t c = 0; c <= f[k].max; c++)
			ties_of(&f[k], c, in + 6 * c, expect + 6 * c);
		EACH_SET(s)
		for (int o = SIRCL_SUM; o <= SIRCL_MAX; o += SIRCL_MAX) {
			reduce_run_on(s, f[k].type, (sircl_op_t)o, REDUCE_ACC_IN, NULL, got, src, 1, n);
			for (size_t i = 0; i < n; i++) {
				uint32_t g = 0;

				memcpy(&g, got + i * size, size);
				ck_assert_msg(g == expect[i], "%s: %s: float32 %08x is %x, not %x",
					      reduce_set_name(s), type_name(f[k].type), in[i], g, expect[i]);
			}
		}
	}
}
END_TEST

/* One float32 through an accumulator. */
static uint32_t rounded(enum reduce_set s, sircl_type_t t, sircl_op_t o, uint32_t bits)
{
	const void *src[1] = { &bits };
	uint32_t out = 0;

	reduce_run_on(s, t, o, REDUCE_ACC_IN, NULL, &out, src, 1, 1);
	return out;
}

START_TEST(test_reduce_overflow_and_nan_have_one_form)
{
	static const struct {
		sircl_type_t type;
		uint32_t in, out;
	} v[] = {
		{ SIRCL_FLOAT8E4M3, 0x43e80000, 0x7e },    { SIRCL_FLOAT8E4M3, 0x43e80001, 0x7f }, /* 464 */
		{ SIRCL_FLOAT8E4M3, 0xff800000, 0x7f },    { SIRCL_FLOAT8E4M3, 0xffc12345, 0x7f },
		{ SIRCL_FLOAT8E5M2, 0x47700000, 0x7c },    { SIRCL_FLOAT8E5M2, 0x476fffff, 0x7b }, /* 61440 */
		{ SIRCL_FLOAT8E5M2, 0xff7fffff, 0xfc },    { SIRCL_FLOAT8E5M2, 0xff800001, 0x7e },
		{ SIRCL_FLOAT16, 0x477ff000, 0x7c00 },     { SIRCL_FLOAT16, 0x477fefff, 0x7bff }, /* 65520 */
		{ SIRCL_FLOAT16, 0xff800000, 0xfc00 },     { SIRCL_FLOAT16, 0x7fa00000, 0x7e00 },
		{ SIRCL_FLOAT16, 0x33000000, 0x0000 },     { SIRCL_FLOAT16, 0x33000001, 0x0001 }, /* 2^-25 */
		{ SIRCL_BFLOAT16, 0x7f7f8000, 0x7f80 },    { SIRCL_BFLOAT16, 0x7f7f7fff, 0x7f7f },
		{ SIRCL_BFLOAT16, 0xffffffff, 0x7fc0 },    { SIRCL_BFLOAT16, 0x00008000, 0x0000 },
		{ SIRCL_FLOAT32, 0xff800001, 0x7fc00000 }, { SIRCL_FLOAT32, 0x80000001, 0x80000001 },
	};

	EACH_SET(s)
	for (size_t k = 0; k < sizeof(v) / sizeof(v[0]); k++)
		for (int o = SIRCL_SUM; o <= SIRCL_MIN; o++) {
			const uint32_t g = rounded(s, v[k].type, (sircl_op_t)o, v[k].in);

			ck_assert_msg(g == v[k].out, "%s: %s of %08x as %s is %x, not %x", reduce_set_name(s),
				      op_name((sircl_op_t)o), v[k].in, type_name(v[k].type), g, v[k].out);
		}
}
END_TEST

/* Sums and rounding at the edge of float32 and float64. */
static void check_edges(enum reduce_set s)
{
	const float tiny[2] = { 0x1p-149f, 0x1p-126f }, less[2] = { 0x1p-149f, -0x1p-149f - 0x1p-148f };
	const double dtiny = 0x1p-1074, third[2] = { 1.0, 0x1p-53 };
	const uint16_t h = 0x0001;
	float f[2];
	double d;
	uint16_t o;

	reduce_run_on(s, SIRCL_FLOAT32, SIRCL_SUM, 0, NULL, f, (const void *[]){ tiny, less }, 2, 2);
	ck_assert(f[0] == 0x1p-148f && f[1] == 0x1p-126f - 0x1p-149f - 0x1p-148f);
	reduce_run_on(s, SIRCL_FLOAT64, SIRCL_SUM, 0, NULL, &d, (const void *[]){ &dtiny, &dtiny }, 2, 1);
	ck_assert(d == 0x1p-1073);
	reduce_run_on(s, SIRCL_FLOAT64, SIRCL_SUM, 0, NULL, &d, (const void *[]){ &third[0], &third[1] }, 2,
		      1);
	ck_assert(d == 1.0);
	reduce_run_on(s, SIRCL_FLOAT16, SIRCL_PROD, 0, NULL, &o, (const void *[]){ &h, &h }, 2, 1);
	ck_assert_uint_eq(o, 0);
	reduce_run_on(s, SIRCL_FLOAT16, SIRCL_SUM, 0, NULL, &o, (const void *[]){ &h, &h }, 2, 1);
	ck_assert_uint_eq(o, 2);
}

START_TEST(test_reduce_bits_do_not_depend_on_the_callers_arithmetic)
{
	static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };

	EACH_SET(s)
	{
		for (size_t k = 0; k < 4; k++) {
			ck_assert_int_eq(fesetround(modes[k]), 0);
			/* the comparisons inside are exact in any mode */
			check_edges(s);
			ck_assert_int_eq(fegetround(), modes[k]);
		}
		fesetround(FE_TONEAREST);
#if defined(__x86_64__)
		const unsigned old = _mm_getcsr(), flush = 0x8040;

		for (unsigned one = 0x40; one <= 0x8040; one += 0x8000 - 0x40) { /* inputs; results; both */
			float f[2];
			const float tiny[2] = { 0x1p-149f, 0x1p-126f }, more[2] = { 0x1p-149f, -0x1.8p-126f };

			_mm_setcsr(old | (one & flush));
			reduce_run_on(s, SIRCL_FLOAT32, SIRCL_SUM, 0, NULL, f, (const void *[]){ tiny, more },
				      2, 2);
			ck_assert_uint_eq(_mm_getcsr() & flush, one & flush);
			_mm_setcsr(old);
			ck_assert(f[0] == 0x1p-148f && f[1] == -0x1p-127f);
		}
#endif
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reduce_values");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_reduce_every_pair_of_8_bit_values);
	tcase_add_test(t, test_reduce_every_8_bit_value_times_every_scalar);
	tcase_add_test(t, test_reduce_every_16_bit_value_with_special_ones);
	tcase_add_test(t, test_reduce_rounds_ties_to_even);
	tcase_add_test(t, test_reduce_overflow_and_nan_have_one_form);
	tcase_add_test(t, test_reduce_bits_do_not_depend_on_the_callers_arithmetic);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
