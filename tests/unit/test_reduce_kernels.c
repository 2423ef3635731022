/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels against a plain reference, bit for bit, on every instruction set of this machine: special
 * values, odd lengths, odd addresses, dst equal to a source, accumulators. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reduce/internal.h"

#define N_MAX 300
#define GUARD 64

static uint32_t bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

static float from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* Rounds by comparing distances in double, not by adding to the bits. */
static uint16_t ref_bf16(float f)
{
	uint32_t u = bits(f), lo = u & 0xffff0000u, hi = lo + 0x10000u;
	double x = fabs((double)f), a, b;

	if (isnan(f))
		return 0x7fc0;
	if (isinf(f) || u == lo)
		return (uint16_t)(u >> 16);
	a = fabs((double)from_bits(lo));
	b = (hi & 0x7fffffffu) == 0x7f800000u ? ldexp(1.0, 128) : fabs((double)from_bits(hi));
	if (x - a < b - x)
		return (uint16_t)(lo >> 16);
	if (x - a > b - x)
		return (uint16_t)(hi >> 16);
	return (uint16_t)((lo >> 16) & 1 ? hi >> 16 : lo >> 16);
}

static float get(sircl_type_t t, bool acc, const uint8_t *p, size_t i)
{
	uint16_t h;
	float f;

	if (t == SIRCL_FLOAT32 || acc) {
		memcpy(&f, p + 4 * i, 4);
		return f;
	}
	memcpy(&h, p + 2 * i, 2);
	return from_bits((uint32_t)h << 16);
}

static void put(sircl_type_t t, bool acc, uint8_t *p, size_t i, float f)
{
	if (t == SIRCL_FLOAT32 || acc) {
		uint32_t u = isnan(f) ? 0x7fc00000u : bits(f);

		memcpy(p + 4 * i, &u, 4);
	} else {
		uint16_t h = ref_bf16(f);

		memcpy(p + 2 * i, &h, 2);
	}
}

static void reference(sircl_type_t t, unsigned acc, uint8_t *dst, uint8_t *const src[], int nsrc, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		volatile float v = get(t, (acc & REDUCE_ACC_IN) != 0, src[0], i);

		for (int s = 1; s < nsrc; s++)
			v = v + get(t, false, src[s], i);
		put(t, (acc & REDUCE_ACC_OUT) != 0, dst, i, v);
	}
}

static uint32_t rng(uint64_t *s)
{
	*s = *s * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*s >> 32);
}

/* Every special value, its neighbours, or any bits. */
static uint32_t nasty(uint64_t *s)
{
	static const uint32_t v[] = { 0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x800000,
				      0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
				      0x7f800001, 0xffc00123, 0x7fc00000, 0x7fbfffff, 0x3f808000, 0x3f818000,
				      0x3f807fff, 0x3f808001, 0x7f7f8000, 0x7f7f7fff, 0xff7f8000, 0x00008000,
				      0x00018000, 0x4b800000, 0x33800000 };
	uint32_t r = rng(s);

	if (r % 4)
		return v[rng(s) % (sizeof(v) / sizeof(v[0]))];
	if (r % 8)
		return (rng(s) & 0x807fffffu) | (110 + rng(s) % 30) << 23;
	return rng(s);
}

static void fill(uint8_t *p, size_t bytes, uint64_t *s, bool halves)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4) {
		uint32_t u = nasty(s);

		if (halves) /* the interesting bits of a bfloat16 are the upper ones */
			u = (u >> 16) | (nasty(s) & 0xffff0000u);
		memcpy(p + i, &u, 4);
	}
}

static void one(enum reduce_isa isa, sircl_type_t t, unsigned acc, int nsrc, size_t n, int align, int same,
		uint64_t *seed)
{
	static uint8_t mem[REDUCE_SRC_MAX][N_MAX * 4 + 2 * GUARD], out[N_MAX * 4 + 2 * GUARD],
		want[N_MAX * 4 + 2 * GUARD];
	uint8_t *src[REDUCE_SRC_MAX], *dst = out + GUARD + (align ? (align + 1) % 7 : 0);
	const void *csrc[REDUCE_SRC_MAX];
	size_t size = t == SIRCL_FLOAT32 || (acc & REDUCE_ACC_OUT) ? 4 : 2;

	for (int s = 0; s < nsrc; s++) {
		bool wide = t == SIRCL_FLOAT32 || (s == 0 && (acc & REDUCE_ACC_IN));

		src[s] = mem[s] + GUARD + (align ? (align * (s + 1)) % 8 : 0);
		csrc[s] = src[s];
		fill(src[s], n * 4 + 4, seed, !wide);
	}
	memset(out, 0xa5, sizeof(out));
	memset(want, 0xa5, sizeof(want));
	reference(t, acc, want + (dst - out), src, nsrc, n);
	if (same >= 0) { /* dst is a source of the same width */
		reduce_kernel(isa, t, SIRCL_SUM, acc, nsrc)(src[same], csrc, n);
		memcpy(dst, src[same], n * size);
	} else {
		reduce_kernel(isa, t, SIRCL_SUM, acc, nsrc)(dst, csrc, n);
	}
	if (memcmp(out, want, sizeof(out)))
		for (size_t i = 0; i < sizeof(out); i++)
			ck_assert_msg(
				out[i] == want[i],
				"%s %s flags %u, %d sources, n %zu, align %d, dst = source %d: byte %zd is "
				"%02x, not %02x",
				reduce_isa_name(isa), type_name(t), acc, nsrc, n, align, same,
				(ptrdiff_t)i - (dst - out), out[i], want[i]);
}

static const sircl_type_t reducible[] = { SIRCL_FLOAT32, SIRCL_BFLOAT16 };

START_TEST(test_reduce_all_sets_give_the_reference_bits)
{
	static const size_t ns[] = { 0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 257, 300 };
	uint64_t seed = 1;

	for (int isa = 0; isa < REDUCE_ISAS; isa++) {
		if (!reduce_isa_usable((enum reduce_isa)isa))
			continue;
		for (int k = 0; k < 2; k++)
			for (unsigned acc = 0; acc < 4; acc++)
				for (int nsrc = 1; nsrc <= REDUCE_SRC_MAX; nsrc++)
					for (size_t j = 0; j < sizeof(ns) / sizeof(ns[0]); j++)
						for (int align = 0; align < 4; align++)
							one((enum reduce_isa)isa, reducible[k], acc, nsrc,
							    ns[j], align, -1, &seed);
	}
}
END_TEST

START_TEST(test_reduce_dst_may_be_any_source)
{
	uint64_t seed = 7;

	for (int isa = 0; isa < REDUCE_ISAS; isa++) {
		if (!reduce_isa_usable((enum reduce_isa)isa))
			continue;
		for (int k = 0; k < 2; k++)
			for (int nsrc = 1; nsrc <= REDUCE_SRC_MAX; nsrc++)
				for (int same = 0; same < nsrc; same++)
					for (size_t n = 1; n < 80; n += 13) {
						one((enum reduce_isa)isa, reducible[k], 0, nsrc, n,
						    (int)(n % 4), same, &seed);
						/* an accumulator is as wide as itself only */
						if (same == 0)
							one((enum reduce_isa)isa, reducible[k],
							    REDUCE_ACC_OUT | REDUCE_ACC_IN, nsrc, n, 1, 0,
							    &seed);
					}
	}
}
END_TEST

START_TEST(test_reduce_bf16_rounds_every_float_to_nearest_even)
{
	/* every upper half with the lower halves where the rounding turns; through an fp32 accumulator, so
	 * that nothing but the rounding happens */
	static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
	static float acc[65536];
	static uint16_t out[65536];
	const void *src[1] = { acc };

	for (size_t l = 0; l < sizeof(low) / sizeof(low[0]); l++) {
		for (uint32_t h = 0; h < 65536; h++) {
			uint32_t u = h << 16 | low[l];

			memcpy(&acc[h], &u, 4);
		}
		reduce_run(SIRCL_BFLOAT16, SIRCL_SUM, REDUCE_ACC_IN, NULL, out, src, 1, 65536);
		for (uint32_t h = 0; h < 65536; h++) {
			ck_assert_msg(out[h] == ref_bf16(acc[h]), "%08x", h << 16 | low[l]);
			if (isnan(acc[h])) /* stays a NaN, and a quiet one */
				ck_assert_uint_eq(out[h] & 0x7fc0u, 0x7fc0u);
		}
	}
}
END_TEST

START_TEST(test_reduce_rounds_once_within_a_step)
{
	/* 256 + 0.5 + 0.5 + 1: in bfloat16 every addition alone would round back to 256 */
	uint16_t a = 0x4380, b = 0x3f00, c = 0x3f80, out;
	const void *src[4] = { &a, &b, &b, &c };

	reduce_run(SIRCL_BFLOAT16, SIRCL_SUM, 0, NULL, &out, src, 4, 1);
	ck_assert_uint_eq(out, 0x4381); /* 258 */
}
END_TEST

START_TEST(test_reduce_keeps_minus_zero)
{
	uint32_t z = 0x80000000u, out;
	const void *src[4] = { &z, &z, &z, &z };

	for (int n = 1; n <= 4; n++) {
		reduce_run(SIRCL_FLOAT32, SIRCL_SUM, 0, NULL, &out, src, n, 1);
		ck_assert_uint_eq(out, 0x80000000u);
	}
}
END_TEST

START_TEST(test_reduce_supports_what_it_has_and_names_everything)
{
	size_t size[SIRCL_TYPE_COUNT] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	for (int t = 0; t < SIRCL_TYPE_COUNT; t++) {
		ck_assert_uint_eq(type_size((sircl_type_t)t), size[t]);
		ck_assert_str_ne(type_name((sircl_type_t)t), "?");
		for (int o = 0; o < SIRCL_OP_COUNT; o++)
			ck_assert_int_eq(reduce_supports((sircl_type_t)t, (sircl_op_t)o),
					 o == SIRCL_SUM && (t == SIRCL_FLOAT32 || t == SIRCL_BFLOAT16));
	}
	for (int o = 0; o < SIRCL_OP_COUNT; o++)
		ck_assert_str_ne(op_name((sircl_op_t)o), "?");
	ck_assert_uint_eq(type_size((sircl_type_t)99), 0);
	ck_assert_uint_eq(type_size((sircl_type_t)-1), 0);
	ck_assert_str_eq(type_name((sircl_type_t)99), "?");
	ck_assert(!reduce_supports((sircl_type_t)-1, SIRCL_SUM));
	ck_assert(!reduce_supports(SIRCL_FLOAT32, (sircl_op_t)77));
	ck_assert_ptr_null(reduce_kernel(REDUCE_GENERIC, SIRCL_FLOAT32, SIRCL_SUM, 0, 5));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reduce_kernels");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_reduce_all_sets_give_the_reference_bits);
	tcase_add_test(t, test_reduce_dst_may_be_any_source);
	tcase_add_test(t, test_reduce_bf16_rounds_every_float_to_nearest_even);
	tcase_add_test(t, test_reduce_rounds_once_within_a_step);
	tcase_add_test(t, test_reduce_keeps_minus_zero);
	tcase_add_test(t, test_reduce_supports_what_it_has_and_names_everything);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
