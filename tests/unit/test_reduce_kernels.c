/* SPDX-License-Identifier: Apache-2.0 */
/* Every type, operation and flag on every instruction set of this machine, bit for bit against the reference
 * (reduce_ref.h): lengths, addresses, dst equal to a source, sources of special values. */
#include <check.h>
#include <stdlib.h>
#include "reduce_ref.h"
#include "reduce/internal.h"

#define N_MAX 1100 /* more than two chunks */
#define GUARD 64
#define BYTES (N_MAX * 8 + 2 * GUARD)

static uint64_t seed = 1;

static uint64_t rng(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return seed >> 32 | seed << 32;
}

static uint64_t any(void)
{
	return rng() ^ rng() >> 13;
}

/* A float of the given layout: zero, infinity, NaN, subnormal, largest, one; then some bits flipped. */
static uint64_t special(int exponent, int fraction)
{
	const uint64_t inf = ((1ull << exponent) - 1) << fraction, one = (inf >> 1) & inf, ulp = 1;
	const uint64_t v[] = { 0,
			       ulp,
			       (1ull << fraction) - 1,
			       1ull << fraction,
			       (1ull << fraction) + 1,
			       one,
			       one + 1,
			       one - 1,
			       one + (1ull << (fraction - 1)),
			       one + ((uint64_t)fraction << fraction),
			       inf - 1,
			       inf - 2,
			       inf,
			       inf + 1,
			       inf + (1ull << (fraction - 1)),
			       inf + (1ull << fraction) - 1,
			       inf - (1ull << fraction) };
	uint64_t u = v[rng() % (sizeof(v) / sizeof(v[0]))];

	if (rng() % 3 == 0) /* a number near one, so that sums meet ties */
		u = one + ((rng() % 8) << fraction) + (any() & ((1ull << fraction) - 1));
	if (rng() % 8 == 0)
		u = any();
	return u | (rng() & 1) << (exponent + fraction);
}

/* A float32 whose bits below a narrow type's are zero, a half, or next to it. */
static uint64_t near_tie(sircl_type_t t)
{
	const struct ref_format *f = ref_format(t);
	const int cut = 23 - (f ? f->fraction : 7) + (int)(rng() % 3);
	const uint64_t half = 1ull << (cut - 1), u = special(8, 23);
	const int bias = f ? (1 << (f->exponent - 1)) - 1 : 127;
	uint64_t e = u & 0x7f800000u;

	if (rng() % 2) /* in the narrow type's range, subnormals and overflow included */
		e = (uint64_t)(127 - bias - 3 + (int)(rng() % (unsigned)(2 * bias + 6))) << 23 & 0x7f800000u;
	return (u & 0x80000000u) | e | (((u & 0x7fffffu) & ~(2 * half - 1)) + half + rng() % 3 - 1);
}

static uint64_t number(sircl_type_t t, bool acc)
{
	static const uint64_t edge[] = { 0,
					 1,
					 2,
					 3,
					 5,
					 127,
					 128,
					 255,
					 0x7fffffff,
					 0x80000000,
					 0xffffffff,
					 0x7fffffffffffffffull,
					 0x8000000000000000ull,
					 0xffffffffffffffffull };
	const struct ref_format *f = ref_format(t);

	if (ref_integer(t))
		return rng() % 2 ? any() : edge[rng() % (sizeof(edge) / sizeof(edge[0]))] - rng() % 2;
	if (t == SIRCL_FLOAT64)
		return special(11, 52);
	if (t == SIRCL_FLOAT32 || acc)
		return rng() % 2 ? special(8, 23) : near_tie(t);
	return special(f->exponent, f->fraction);
}

static void fill(sircl_type_t t, bool acc, uint8_t *p, size_t n)
{
	const size_t size = ref_size(t, acc);

	for (size_t i = 0; i < n; i++) {
		uint64_t u = number(t, acc);

		memcpy(p + i * size, &u, size);
	}
}

struct shape {
	sircl_type_t type;
	sircl_op_t op;
	unsigned flags;
	int nsrc;
	size_t n;
	int align; /* 0..7: sources and dst at different odd addresses */
	int same; /* dst is this source; -1: apart */
};

static void differ(const struct shape *c, enum reduce_set set, const uint8_t *got, const uint8_t *want,
		   size_t dst)
{
	for (size_t i = 0; i < BYTES; i++)
		ck_assert_msg(
			got[i] == want[i],
			"%s: %s of %s, flags %u, %d sources, n %zu, align %d, dst = source %d: byte %td is "
			"%02x, not %02x",
			reduce_set_name(set), op_name(c->op), type_name(c->type), c->flags, c->nsrc, c->n,
			c->align, c->same, (ptrdiff_t)i - (ptrdiff_t)dst, got[i], want[i]);
}

static void one(const struct shape *c)
{
	static uint8_t mem[REDUCE_SRC_MAX][BYTES], out[BYTES], want[BYTES], keep[BYTES];
	struct reduce_arg arg = { .ranks = 1 + (uint32_t)(rng() % 9), .scalar = number(c->type, false) };
	const void *src[REDUCE_SRC_MAX];
	size_t at = GUARD + (size_t)(c->align ? (c->align + 1) % 8 : 0);
	uint8_t *dst = out;

	for (int s = 0; s < c->nsrc; s++) {
		uint8_t *p = mem[s] + GUARD + (size_t)(c->align * (s + 1)) % 8;

		fill(c->type, s == 0 && (c->flags & REDUCE_ACC_IN), p, c->n);
		src[s] = p;
	}
	if (c->same >= 0) {
		dst = mem[c->same];
		at = (size_t)((const uint8_t *)src[c->same] - dst);
		memcpy(keep, dst, BYTES);
		memcpy(want, dst, BYTES);
	} else {
		memset(keep, 0xa5, BYTES);
		memset(want, 0xa5, BYTES);
	}
	ref_run(c->type, c->op, c->flags, &arg, want + at, src, c->nsrc, c->n);
	for (int set = REDUCE_GENERIC; set < REDUCE_SETS; set++) {
		if (!reduce_set_usable((enum reduce_set)set))
			continue;
		memcpy(dst, keep, BYTES);
		reduce_run_on((enum reduce_set)set, c->type, c->op, c->flags, &arg, dst + at, src, c->nsrc,
			      c->n);
		if (memcmp(dst, want, BYTES))
			differ(c, (enum reduce_set)set, dst, want, at);
	}
}

#define EACH_TYPE(t) for (sircl_type_t t = (sircl_type_t)0; t < SIRCL_TYPE_COUNT; t = (sircl_type_t)(t + 1))
#define EACH_OP(o) for (sircl_op_t o = (sircl_op_t)0; o < (sircl_op_t)REDUCE_OPS; o = (sircl_op_t)(o + 1))

START_TEST(test_reduce_every_type_operation_flag_and_number_of_sources)
{
	static const size_t ns[] = { 130, 61, 512, 513, 77 };

	EACH_TYPE(t)
	EACH_OP(o)
	for (unsigned f = 0; f < 8; f++)
		for (int nsrc = 1; nsrc <= REDUCE_SRC_MAX; nsrc++) {
			struct shape c = { t, o, (f & 3) | (f & 4 ? REDUCE_FINISH : 0u), nsrc, 0, 0, -1 };

			for (int k = 0; k < 2; k++) {
				c.n = ns[rng() % 5];
				c.align = (int)(rng() % 8);
				one(&c);
			}
		}
}
END_TEST

START_TEST(test_reduce_every_length_and_alignment)
{
	static const size_t edges[] = { 511, 512, 513, 1023, 1024, 1025, 1100 };

	EACH_TYPE(t)
	{
		for (size_t n = 0; n <= 130; n++)
			for (int k = 0; k < 3; k++)
				one(&(struct shape){ t, (sircl_op_t)((n + (size_t)k * 2) % REDUCE_OPS),
						     k == 2 ? REDUCE_FINISH : 0u, 2 + (int)(n % 3), n,
						     (int)(n % 8), -1 });
		for (int align = 0; align < 8; align++) {
			one(&(struct shape){ t, SIRCL_SUM, 0, 2, 67, align, -1 });
			one(&(struct shape){ t, SIRCL_MIN, 0, 3, 67, align, -1 });
		}
		for (size_t k = 0; k < sizeof(edges) / sizeof(edges[0]); k++) {
			one(&(struct shape){ t, SIRCL_AVG, REDUCE_FINISH, 4, edges[k], 1, -1 });
			one(&(struct shape){ t, SIRCL_PROD, REDUCE_ACC_OUT, 3, edges[k], 3, -1 });
			one(&(struct shape){ t, SIRCL_MAX, REDUCE_ACC_IN, 3, edges[k], 5, -1 });
		}
	}
}
END_TEST

START_TEST(test_reduce_dst_may_be_any_source)
{
	EACH_TYPE(t)
	EACH_OP(o)
	for (int nsrc = 1; nsrc <= REDUCE_SRC_MAX; nsrc++)
		for (int same = 0; same < nsrc; same++)
			for (int k = 0; k < 3; k++) {
				const size_t n = (size_t[]){ 1, 100, 1030 }[k];
				const unsigned acc = REDUCE_ACC_IN | REDUCE_ACC_OUT;

				if (k == 2 && o != SIRCL_PROD && o != SIRCL_AVG)
					continue;
				one(&(struct shape){ t, o, REDUCE_FINISH, nsrc, n, k, same });
				/* an accumulator is as wide as another source only if the type is wide */
				if (same == 0 || ref_size(t, true) == ref_size(t, false))
					one(&(struct shape){ t, o, acc, nsrc, n, 1, same });
			}
}
END_TEST

START_TEST(test_reduce_scales_by_the_scalar)
{
	EACH_TYPE(t)
	for (int k = 0; k < 40; k++)
		one(&(struct shape){ t, k % 2 ? (sircl_op_t)REDUCE_PREMUL_SUM : SIRCL_SUM, REDUCE_SCALE, 1,
				     k < 30 ? (size_t)k * 7 : 500 + (size_t)k * 13, k % 8, k % 3 ? -1 : 0 });
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

START_TEST(test_reduce_integer_averages_sum_in_64_bits_and_truncate)
{
	const struct reduce_arg three = { .ranks = 3 };
	int8_t a = -128, b = -128, c = 127, o8;
	uint64_t m = UINT64_MAX, two = 2, o64;
	uint32_t h = 0xffffffffu, o32;
	int64_t lo = INT64_MIN, neg = -1, i64;

	reduce_run(SIRCL_INT8, SIRCL_AVG, REDUCE_FINISH, &three, &o8, (const void *[]){ &a, &b, &c }, 3, 1);
	ck_assert_int_eq(o8, -43); /* -129 / 3 */
	a = -5;
	b = 0;
	c = 1;
	reduce_run(SIRCL_INT8, SIRCL_AVG, REDUCE_FINISH, &three, &o8, (const void *[]){ &a, &b, &c }, 3, 1);
	ck_assert_int_eq(o8, -1); /* -4 / 3 */
	reduce_run(SIRCL_UINT32, SIRCL_AVG, REDUCE_FINISH, &three, &o32, (const void *[]){ &h, &h, &h }, 3,
		   1);
	ck_assert_uint_eq(o32, h);
	reduce_run(SIRCL_UINT64, SIRCL_AVG, REDUCE_FINISH, &three, &o64, (const void *[]){ &m, &two, &two },
		   3, 1);
	ck_assert_uint_eq(o64, 1); /* the sum wraps to 3 */
	reduce_run(SIRCL_INT64, SIRCL_AVG, REDUCE_FINISH, &three, &i64, (const void *[]){ &lo, &neg }, 2, 1);
	ck_assert_int_eq(i64, INT64_MAX / 3); /* the sum wraps to INT64_MAX */
}
END_TEST

START_TEST(test_reduce_supports_and_names_everything)
{
	static const size_t size[SIRCL_TYPE_COUNT] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	EACH_TYPE(t)
	{
		ck_assert_uint_eq(type_size(t), size[t]);
		ck_assert_uint_eq(reduce_acc_size(t), ref_size(t, true));
		ck_assert_int_eq(type_is_integer(t), ref_integer(t));
		ck_assert_str_ne(type_name(t), "?");
		EACH_OP(o)
		ck_assert(reduce_supports(t, o));
	}
	EACH_OP(o)
	ck_assert_str_ne(op_name(o), "?");
	ck_assert_uint_eq(type_size((sircl_type_t)99), 0);
	ck_assert_uint_eq(type_size((sircl_type_t)-1), 0);
	ck_assert_str_eq(type_name((sircl_type_t)99), "?");
	ck_assert(!reduce_supports((sircl_type_t)-1, SIRCL_SUM));
	ck_assert(!reduce_supports(SIRCL_FLOAT32, (sircl_op_t)77));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reduce_kernels");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_reduce_every_type_operation_flag_and_number_of_sources);
	tcase_add_test(t, test_reduce_every_length_and_alignment);
	tcase_add_test(t, test_reduce_dst_may_be_any_source);
	tcase_add_test(t, test_reduce_scales_by_the_scalar);
	tcase_add_test(t, test_reduce_rounds_once_within_a_step);
	tcase_add_test(t, test_reduce_integer_averages_sum_in_64_bits_and_truncate);
	tcase_add_test(t, test_reduce_supports_and_names_everything);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
