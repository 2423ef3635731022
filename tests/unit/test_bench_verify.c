/* SPDX-License-Identifier: Apache-2.0 */
/* What sircl-bench compares results with: bits of floats, exact inputs, wrapping integers, every kind. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../bench/bench_verify.h"

/* The value of an element's bits, read by the definition of its type and by nothing that the bench uses. */
static double decode(sircl_type_t t, uint64_t bits)
{
	static const struct {
		int exponent, fraction;
	} shape[SIRCL_TYPE_COUNT] = {
		[SIRCL_FLOAT16] = { 5, 10 },  [SIRCL_BFLOAT16] = { 8, 7 },   [SIRCL_FLOAT32] = { 8, 23 },
		[SIRCL_FLOAT64] = { 11, 52 }, [SIRCL_FLOAT8E4M3] = { 4, 3 }, [SIRCL_FLOAT8E5M2] = { 5, 2 }
	};
	int eb = shape[t].exponent, fb = shape[t].fraction, bias = (1 << (eb - 1)) - 1;
	int e = (int)(bits >> fb & ((1u << eb) - 1));
	double m = (double)(bits & ((1ull << fb) - 1)), sign = bits >> (eb + fb) & 1 ? -1 : 1;

	if (e == 0)
		return sign * ldexp(m, 1 - bias - fb);
	if (t == SIRCL_FLOAT8E4M3 ? e == 15 && m == 7 : e == (1 << eb) - 1)
		return t == SIRCL_FLOAT8E4M3 || m != 0 ? NAN : sign * INFINITY;
	return sign * ldexp(m + ldexp(1, fb), e - bias - fb);
}

static const sircl_type_t floats[] = { SIRCL_FLOAT8E4M3, SIRCL_FLOAT8E5M2, SIRCL_FLOAT16,
				       SIRCL_BFLOAT16,   SIRCL_FLOAT32,    SIRCL_FLOAT64 };
#define FLOATS (sizeof(floats) / sizeof(floats[0]))

/* Every value of the small types comes back, and what lies between two goes to the nearer, halves to even. */
START_TEST(test_bench_bits_round_to_nearest_even)
{
	int bad = 0;

	for (size_t k = 0; k < 4; k++) {
		sircl_type_t t = floats[k];
		uint64_t sign = 1ull << (8 * bench_type_size(t) - 1);

		for (uint64_t b = 0; b + 1 < sign; b++) {
			double x = decode(t, b), y = decode(t, b + 1), half = (x + y) / 2;

			if (!isfinite(x))
				break;
			if (t == SIRCL_BFLOAT16 && b < 0x80) /* float32's own subnormals are not used */
				continue;
			bad += bench_bits(t, x) != b || bench_bits(t, -x) != (b | sign);
			if (!isfinite(y))
				continue;
			bad += bench_bits(t, half) != (b & 1 ? b + 1 : b);
			bad += bench_bits(t, half - (y - x) / 8) != b ||
			       bench_bits(t, half + (y - x) / 8) != b + 1;
		}
	}
	ck_assert_int_eq(bad, 0);
	ck_assert_uint_eq(bench_bits(SIRCL_FLOAT8E4M3, 448), 0x7e);
	ck_assert_uint_eq(bench_bits(SIRCL_FLOAT8E4M3, 1e4), 0x7f);
	ck_assert_uint_eq(bench_bits(SIRCL_FLOAT8E5M2, 1e6), 0x7c);
	ck_assert_uint_eq(bench_bits(SIRCL_FLOAT16, -1e6), 0xfc00);
	ck_assert_uint_eq(bench_bits(SIRCL_BFLOAT16, 0x1.fep127 * 1.004), 0x7f80);
	ck_assert_uint_eq(bench_bits(SIRCL_FLOAT32, 1.5), 0x3fc00000);
	ck_assert_uint_eq(bench_bits(SIRCL_FLOAT64, -2), 0xc000000000000000);
}
END_TEST

static double combine(sircl_op_t op, double a, double b)
{
	switch (op) {
	case SIRCL_PROD:
		return a * b;
	case SIRCL_MIN:
		return a < b ? a : b;
	case SIRCL_MAX:
		return a > b ? a : b;
	default:
		return a + b;
	}
}

/* However a library orders a sum or a product, no partial result needs rounding. */
START_TEST(test_bench_floats_are_exact_in_any_order)
{
	int bad = 0;

	for (size_t k = 0; k < FLOATS; k++)
		for (int op = 0; op < SIRCL_AVG; op++)
			for (int n = 1; n <= 64; n++)
				for (size_t i = 0; i < 60; i++) {
					struct verify_case c = { .type = floats[k],
								 .op = (sircl_op_t)op,
								 .n = n };
					int step = n % 7 ? 7 : 5, r = (int)i % n;
					double v, acc = 0;

					if (n % step == 0)
						step = 1;
					for (int j = 0; j < n; j++, r = (r + step) % n) {
						v = decode(c.type, verify_value(&c, r, i));
						acc = j ? combine(c.op, acc, v) : v;
						bad += decode(c.type, bench_bits(c.type, acc)) != acc;
					}
				}
	ck_assert_int_eq(bad, 0);
}
END_TEST

/* What comes out of integers, computed here in 128 bits or by hand. */
START_TEST(test_bench_integers_wrap_and_averages_truncate)
{
	struct verify_case c = { .kind = KIND_ALL_REDUCE, .count = 200, .n = 5 };

	for (int t = SIRCL_INT8; t <= SIRCL_UINT64; t++)
		for (int op = 0; op < SIRCL_OP_COUNT; op++) {
			size_t size = bench_type_size((sircl_type_t)t);
			bool sign = t == SIRCL_INT8 || t == SIRCL_INT32 || t == SIRCL_INT64;
			unsigned char out[200 * 8];

			c.type = (sircl_type_t)t;
			c.op = (sircl_op_t)op;
			for (size_t i = 0; i < c.count; i++) {
				__int128 acc = 0;
				uint64_t res;

				for (int r = 0; r < c.n; r++) {
					uint64_t b = verify_value(&c, r, i);
					__int128 v = sign && b >> (8 * size - 1)
							     ? (__int128)b - ((__int128)1 << 8 * size)
							     : (__int128)b;

					if (!r)
						acc = v;
					else if (op == SIRCL_PROD)
						acc = (__int128)((uint64_t)acc * (uint64_t)v);
					else if (op == SIRCL_MIN)
						acc = v < acc ? v : acc;
					else if (op == SIRCL_MAX)
						acc = v > acc ? v : acc;
					else
						acc += v;
				}
				res = (uint64_t)acc;
				if (op == SIRCL_AVG)
					res = sign ? (uint64_t)((int64_t)res / c.n) : res / 5;
				memcpy(out + i * size, &res, size);
			}
			ck_assert_msg(verify_result(&c, 0, out) == 0, "%s %s",
				      bench_type_name((sircl_type_t)t), bench_op_name((sircl_op_t)op));
		}
}
END_TEST

enum { N = 3, COUNT = 37, ROOM = N * COUNT * 8 };

/* What this rank gets of a correct collective, from all ranks' inputs alone. */
static void correct(const struct verify_case *c, int rank, char *const in[N], char *out)
{
	size_t size = bench_type_size(c->type), bytes = c->count * size;

	switch (c->kind) {
	case KIND_ALL_GATHER:
	case KIND_GATHER:
		for (int r = 0; r < N; r++)
			memcpy(out + (size_t)r * bytes, in[r], bytes);
		break;
	case KIND_ALL_TO_ALL:
		for (int r = 0; r < N; r++)
			memcpy(out + (size_t)r * bytes, in[r] + (size_t)rank * bytes, bytes);
		break;
	case KIND_BROADCAST:
		memcpy(out, in[c->root], bytes);
		break;
	case KIND_SCATTER:
		memcpy(out, in[c->root] + (size_t)rank * bytes, bytes);
		break;
	case KIND_SENDRECV:
		memcpy(out, in[(rank + N - 1) % N], bytes);
		break;
	default: /* sums of int8 or float64 */
		for (size_t i = 0; i < c->count; i++) {
			size_t at = i + (c->kind == KIND_REDUCE_SCATTER ? (size_t)rank * c->count : 0);
			double d, sum = 0;
			int8_t small = 0;

			for (int r = 0; r < N; r++) {
				small = (int8_t)(small + ((int8_t *)in[r])[at]);
				memcpy(&d, in[r] + (c->type == SIRCL_FLOAT64 ? at : 0) * size,
				       c->type == SIRCL_FLOAT64 ? 8 : 0);
				sum = r && c->type == SIRCL_FLOAT64 ? sum + d : d;
			}
			if (c->type == SIRCL_FLOAT64)
				memcpy(out + i * size, &sum, 8);
			else
				out[i] = (char)small;
		}
	}
}

/* For every kind: the right result passes, and each single byte that is changed is one wrong element. */
START_TEST(test_bench_check_sees_every_single_wrong_byte)
{
	enum bench_kind kind = (enum bench_kind)_i;
	static char in[N][ROOM], out[ROOM];
	char *const all[N] = { in[0], in[1], in[2] };

	for (int t = 0; t < 2; t++) {
		struct verify_case c = { .kind = kind,
					 .type = t ? SIRCL_FLOAT64 : SIRCL_INT8,
					 .op = SIRCL_SUM,
					 .count = COUNT,
					 .root = 1,
					 .n = N };
		size_t size = bench_type_size(c.type);

		for (int r = 0; r < N; r++)
			verify_fill(&c, r, in[r]);
		for (int r = 0; r < N; r++) {
			size_t gives = kind_in(kind, COUNT, r, c.root, N),
			       gets = kind_out(kind, COUNT, r, c.root, N);

			correct(&c, r, all, out);
			ck_assert_uint_eq(verify_result(&c, r, out), 0);
			for (size_t b = 0; b < gets * size; b++) {
				out[b] ^= (char)0x80;
				ck_assert_uint_eq(verify_result(&c, r, out), 1);
				out[b] ^= (char)0x80;
			}
			ck_assert_uint_eq(verify_kept(&c, r, in[r], 0, gives), 0);
			for (size_t b = 0; b < gives * size; b++) {
				size_t e = b / size;

				in[r][b] ^= 1;
				ck_assert_uint_eq(verify_kept(&c, r, in[r], 0, gives), 1);
				ck_assert_uint_eq(verify_kept(&c, r, in[r], e, e + 1), 1);
				ck_assert_uint_eq(verify_kept(&c, r, in[r], 0, e), 0);
				in[r][b] ^= 1;
			}
			if (gives)
				ck_assert_uint_gt(verify_kept(&c, (r + 1) % N, in[r], 0, COUNT), 0);
		}
	}
}
END_TEST

START_TEST(test_bench_kinds_have_the_sizes_and_factors_of_nccl_tests)
{
	static const struct {
		enum bench_kind kind;
		size_t unit, in[2], out[2]; /* per count, of 4 ranks: on the root, on another */
		double factor;
	} want[] = {
		{ KIND_ALL_REDUCE, 1, { 1, 1 }, { 1, 1 }, 1.5 },
		{ KIND_ALL_GATHER, 4, { 1, 1 }, { 4, 4 }, 0.75 },
		{ KIND_REDUCE_SCATTER, 4, { 4, 4 }, { 1, 1 }, 0.75 },
		{ KIND_BROADCAST, 1, { 1, 0 }, { 1, 1 }, 1 },
		{ KIND_REDUCE, 1, { 1, 1 }, { 1, 0 }, 1 },
		{ KIND_ALL_TO_ALL, 4, { 4, 4 }, { 4, 4 }, 0.75 },
		{ KIND_GATHER, 4, { 1, 1 }, { 4, 0 }, 0.75 },
		{ KIND_SCATTER, 4, { 4, 0 }, { 1, 1 }, 0.75 },
		{ KIND_SENDRECV, 1, { 1, 1 }, { 1, 1 }, 1 },
		{ KIND_BARRIER, 1, { 0, 0 }, { 0, 0 }, 1 },
	};

	ck_assert_uint_eq(sizeof(want) / sizeof(want[0]), KINDS);
	for (size_t k = 0; k < KINDS; k++) {
		ck_assert_uint_eq(kind_unit(want[k].kind, 4), want[k].unit);
		ck_assert(kind_bus_factor(want[k].kind, 4) == want[k].factor);
		for (int r = 0; r < 2; r++) {
			ck_assert_uint_eq(kind_in(want[k].kind, 10, r ? 3 : 2, 2, 4), 10 * want[k].in[r]);
			ck_assert_uint_eq(kind_out(want[k].kind, 10, r ? 3 : 2, 2, 4), 10 * want[k].out[r]);
		}
	}
}
END_TEST

START_TEST(test_bench_digest_depends_on_every_byte_and_the_order)
{
	unsigned char a[61];
	uint64_t d;

	for (size_t i = 0; i < sizeof(a); i++)
		a[i] = (unsigned char)(i * 37);
	d = verify_digest(5, a, sizeof(a));
	ck_assert_uint_ne(d, verify_digest(6, a, sizeof(a)));
	ck_assert_uint_ne(d, verify_digest(5, a, sizeof(a) - 1));
	for (size_t i = 0; i < sizeof(a); i++) {
		a[i] ^= 0x10;
		ck_assert_uint_ne(d, verify_digest(5, a, sizeof(a)));
		a[i] ^= 0x10;
	}
	ck_assert_uint_eq(d, verify_digest(5, a, sizeof(a)));
}
END_TEST

START_TEST(test_bench_random_values_round_differently_in_different_orders)
{
	float a[100], b[100], c[100];
	int differ = 0;

	verify_fill_random(SIRCL_FLOAT32, a, 100, 0);
	verify_fill_random(SIRCL_FLOAT32, b, 100, 1);
	verify_fill_random(SIRCL_FLOAT32, c, 100, 2);
	for (int i = 0; i < 100; i++) {
		volatile float x = a[i] + b[i], y = b[i] + c[i];

		differ += x + c[i] != a[i] + y;
	}
	ck_assert_int_gt(differ, 20);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_verify");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_bench_bits_round_to_nearest_even);
	tcase_add_test(t, test_bench_floats_are_exact_in_any_order);
	tcase_add_test(t, test_bench_integers_wrap_and_averages_truncate);
	tcase_add_loop_test(t, test_bench_check_sees_every_single_wrong_byte, 0, KINDS);
	tcase_add_test(t, test_bench_kinds_have_the_sizes_and_factors_of_nccl_tests);
	tcase_add_test(t, test_bench_digest_depends_on_every_byte_and_the_order);
	tcase_add_test(t, test_bench_random_values_round_differently_in_different_orders);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
