/* SPDX-License-Identifier: Apache-2.0 */
/* The modules of sircl-bench: command line, percentiles, inputs and checks, the table's layout. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "../../bench/bench_stats.h"
#include "../../bench/bench_table.h"
#include "../../bench/bench_verify.h"

#define MAX_ARGS 40

static char msg[256];

static enum options_result parse(struct options *o, const char *line)
{
	static char copy[512];
	char *argv[MAX_ARGS + 1] = { "sircl-bench" }, *save = NULL;
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *t = strtok_r(copy, " ", &save); t && argc < MAX_ARGS; t = strtok_r(NULL, " ", &save))
		argv[argc++] = t;
	argv[argc] = NULL;
	msg[0] = '\0';
	return options_parse(o, argc, argv, msg, sizeof(msg));
}

START_TEST(test_bench_options_default_to_those_of_nccl_tests)
{
	struct options o;

	ck_assert_int_eq(parse(&o, "all_reduce"), OPTIONS_OK);
	ck_assert_uint_eq(o.min_bytes, 32 << 20);
	ck_assert_uint_eq(o.max_bytes, 32 << 20);
	ck_assert_uint_eq(o.step_bytes, 1 << 20);
	ck_assert_int_eq(o.factor, 0);
	ck_assert_int_eq(o.iters, 20);
	ck_assert_int_eq(o.warmup, 5);
	ck_assert(o.check);
	ck_assert_int_eq(o.ntypes, 1);
	ck_assert_int_eq(o.types[0], SIRCL_FLOAT32);
	ck_assert_int_eq(o.nops, 1);
	ck_assert_int_eq(o.ops[0], SIRCL_SUM);
	ck_assert_int_eq(o.ranks, 0);
}
END_TEST

START_TEST(test_bench_options_are_read)
{
	struct options o;

	ck_assert_int_eq(
		parse(&o, "all_gather -b 8 -e 64M -f 4 -n 7 -w 0 -c 0 -d bfloat16 -o sum --ranks 4 --lanes 2 "
			  "--transport tcp --algo ring --digest --json out.json --memory plain"),
		OPTIONS_OK);
	ck_assert_int_eq(o.coll, BENCH_ALL_GATHER);
	ck_assert_uint_eq(o.min_bytes, 8);
	ck_assert_uint_eq(o.max_bytes, 64 << 20);
	ck_assert_int_eq(o.factor, 4);
	ck_assert_int_eq(o.iters, 7);
	ck_assert_int_eq(o.warmup, 0);
	ck_assert(!o.check);
	ck_assert_int_eq(o.types[0], SIRCL_BFLOAT16);
	ck_assert_int_eq(o.ranks, 4);
	ck_assert_int_eq(o.lanes, 2);
	ck_assert_str_eq(o.transport, "tcp");
	ck_assert_str_eq(o.algo, "ring");
	ck_assert_str_eq(o.json, "out.json");
	ck_assert(o.digest && o.plain_memory && !o.plant_error);
	ck_assert_int_eq(parse(&o, "all_reduce -b 1G"), OPTIONS_OK); /* above the default of -e */
	ck_assert_uint_eq(o.max_bytes, 1 << 30);
	ck_assert_int_eq(parse(&o, "all_reduce -d all -o all --plant-error"), OPTIONS_OK);
	ck_assert_int_eq(o.ntypes, 2);
	ck_assert(o.plant_error);
	ck_assert_int_eq(parse(&o, "all_gather -d all"), OPTIONS_OK);
	ck_assert_int_eq(o.ntypes, SIRCL_TYPE_COUNT);
}
END_TEST

START_TEST(test_bench_options_refuse_with_one_sentence)
{
	static const struct {
		const char *line, *part;
	} bad[] = {
		{ "", "which collective" },
		{ "broadcast", "no such collective: broadcast" },
		{ "all_reduce -b", "needs a value" },
		{ "all_reduce --json", "needs a value" },
		{ "all_reduce -b 12Q", "12Q: not a size" },
		{ "all_reduce -b -3", "-3: not a size" },
		{ "all_reduce -e 99999999999G", "not a size" },
		{ "all_reduce -f 1", "1: not a number from 2" },
		{ "all_reduce -n 0", "0: not a number from 1" },
		{ "all_reduce -n 5x", "5x: not a number" },
		{ "all_reduce -c 2", "2: not 0 or 1" },
		{ "all_reduce -d bf16", "bf16: not a type" },
		{ "all_reduce -o plus", "plus: not an operation" },
		{ "all_reduce --ranks 0", "0: not a number from 1 to 64" },
		{ "all_reduce --ranks 65", "65: not a number" },
		{ "all_reduce --lanes 9", "9: not a number from 1 to 8" },
		{ "all_reduce --memory gpu", "gpu: not alloc" },
		{ "all_reduce -x", "no such option: -x" },
		{ "all_reduce --frobnicate", "no such option: --frobnicate" },
		{ "all_reduce extra", "unexpected: extra" },
		{ "all_reduce -b 1M -e 1K", "below the smallest" },
		{ "all_reduce -c 0 --plant-error", "needs -c 1" },
	};
	struct options o;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(parse(&o, bad[i].line) == OPTIONS_BAD, "%s", bad[i].line);
		ck_assert_msg(strstr(msg, bad[i].part) != NULL, "'%s': %s", bad[i].line, msg);
	}
	ck_assert_int_eq(parse(&o, "--help"), OPTIONS_HELP);
	ck_assert_int_eq(parse(&o, "all_reduce -h"), OPTIONS_HELP);
}
END_TEST

static int sizes(const char *line, size_t out[], int max)
{
	struct options o;
	size_t b;
	int n = 0;

	ck_assert_int_eq(parse(&o, line), OPTIONS_OK);
	b = o.min_bytes;
	do
		out[n++] = b;
	while (n < max && options_next_size(&o, &b));
	return n;
}

START_TEST(test_bench_sizes_end_at_the_largest)
{
	size_t s[32];

	ck_assert_int_eq(sizes("all_reduce -b 8 -e 1K -f 4", s, 32), 4);
	ck_assert_uint_eq(s[3], 512);
	ck_assert_int_eq(sizes("all_reduce -b 8 -e 32 -i 8", s, 32), 4);
	ck_assert_uint_eq(s[3], 32);
	ck_assert_int_eq(sizes("all_reduce -b 0 -e 8 -f 2", s, 32), 5); /* 0 1 2 4 8 */
	ck_assert_uint_eq(s[1], 1);
	ck_assert_int_eq(sizes("all_reduce -b 1M", s, 32), 32);
	ck_assert_uint_eq(s[31], 32 << 20);
}
END_TEST

START_TEST(test_bench_percentiles_are_values_of_the_series)
{
	double v[200], one = 3;
	struct stats s;

	for (int i = 0; i < 200; i++)
		v[i] = (i * 77) % 200 + 1; /* 1..200, shuffled */
	s = stats_of(v, 200);
	ck_assert(s.mean == 100.5);
	ck_assert(s.min == 1);
	ck_assert(s.max == 200);
	ck_assert(s.p50 == 100);
	ck_assert(s.p99 == 198);
	ck_assert(stats_percentile(v, 200, 100) == 200);
	ck_assert(stats_percentile(v, 200, 0) == 1);
	s = stats_of(&one, 1);
	ck_assert(s.p50 == 3 && s.p99 == 3 && s.mean == 3);
	ck_assert(stats_bandwidth(1e9, 1e6) == 1.0);
	ck_assert(stats_bandwidth(1e9, 0) == 0);
}
END_TEST

/* The sum as a plain rank would form it, rounding to bfloat16 after every addition, from the last rank down:
 * exact whatever the order. */
START_TEST(test_bench_values_have_exact_sums)
{
	int inexact = 0;

	for (int n = 1; n <= 64; n++)
		for (size_t i = 0; i < 500; i++) {
			uint32_t sum = 0;
			float f = 0;

			for (int r = n - 1; r >= 0; r--) {
				uint16_t half;
				uint32_t u;

				bench_put(SIRCL_BFLOAT16, &half, 0, verify_value(r, i, n));
				u = (uint32_t)half << 16;
				{
					float x;

					memcpy(&x, &u, 4);
					f += x;
				}
				memcpy(&u, &f, 4);
				inexact += (u & 0xffff) != 0;
				sum += verify_value(r, i, n);
			}
			inexact += f != (float)sum || sum > 256;
		}
	ck_assert_int_eq(inexact, 0);
}
END_TEST

START_TEST(test_bench_check_sees_every_single_wrong_byte)
{
	enum { N = 3, COUNT = 37 };
	static const sircl_type_t types[] = { SIRCL_FLOAT32, SIRCL_BFLOAT16, SIRCL_INT8, SIRCL_FLOAT64 };
	unsigned char buf[N * COUNT * 8];

	for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
		size_t size = bench_type_size(types[k]);

		for (size_t i = 0; i < COUNT; i++) {
			uint32_t sum = 0;

			for (int r = 0; r < N; r++)
				sum += verify_value(r, i, N);
			bench_put(types[k], buf, i, sum);
		}
		ck_assert_uint_eq(verify_result(BENCH_ALL_REDUCE, types[k], buf, COUNT, N), 0);
		for (size_t b = 0; b < COUNT * size; b++) {
			buf[b] ^= 1;
			ck_assert_uint_eq(verify_result(BENCH_ALL_REDUCE, types[k], buf, COUNT, N), 1);
			buf[b] ^= 1;
		}
		for (int r = 0; r < N; r++)
			verify_fill(types[k], buf + (size_t)r * COUNT * size, COUNT, r, N);
		ck_assert_uint_eq(verify_result(BENCH_ALL_GATHER, types[k], buf, COUNT, N), 0);
		ck_assert_uint_eq(verify_input(types[k], buf + COUNT * size, COUNT, 1, N), 0);
		ck_assert_uint_gt(verify_input(types[k], buf + COUNT * size, COUNT, 2, N), 0);
		for (size_t b = 0; b < N * COUNT * size; b++) {
			buf[b] ^= 0x80;
			ck_assert_uint_eq(verify_result(BENCH_ALL_GATHER, types[k], buf, COUNT, N), 1);
			buf[b] ^= 0x80;
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

static char *printed(void (*print)(FILE *, const void *), const void *arg)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	print(f, arg);
	fclose(f);
	return text;
}

static struct options opt;

static void print_row(FILE *f, const void *r)
{
	table_row(f, &opt, r);
}

static void print_foot(FILE *f, const void *t)
{
	table_foot(f, &opt, t);
}

static void print_head(FILE *f, const void *facts)
{
	table_head(f, &opt, facts, 1);
}

START_TEST(test_bench_table_has_the_layout_of_nccl_tests)
{
	struct row r = { .bytes = 1024,
			 .count = 512,
			 .type = SIRCL_BFLOAT16,
			 .op = SIRCL_SUM,
			 .same_bits = true,
			 .m = { { .mean = 9.876, .algbw = 0.104, .busbw = 0.156 },
				{ .mean = 12345.6, .algbw = 1.5, .busbw = 2.25, .wrong = 3 } } };
	struct rank_facts facts = { .pid = 42, .host = "spark", .transport = "shm" };
	struct totals t = { 0 };
	char *s;

	ck_assert_int_eq(parse(&opt, "all_reduce -b 1K -e 1K -f 2"), OPTIONS_OK);
	s = printed(print_head, &facts);
	ck_assert_ptr_nonnull(
		strstr(s, "# nThread 1 nGpus 0 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 "
			  "iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n#  Rank  0 "
			  "Group  0 Pid     42 on      spark device  0 "));
	ck_assert_ptr_nonnull(strstr(s, "#       size         count      type   redop    root     time   "
					"algbw   busbw #wrong     time   "
					"algbw   busbw #wrong\n"
					"#        (B)    (elements)                               (us)  "
					"(GB/s)  (GB/s)            (us)  "
					"(GB/s)  (GB/s)       \n"));
	free(s);
	s = printed(print_row, &r);
	ck_assert_str_eq(s, "        1024           512  bfloat16     sum      -1     9.88    0.10    0.16   "
			    "   0    12346    "
			    "1.50    2.25      3\n");
	free(s);
	totals_add(&t, &r);
	s = printed(print_foot, &t);
	ck_assert_str_eq(s, "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 1.203 \n#\n");
	free(s);
	ck_assert_int_eq(parse(&opt, "all_gather -c 0 --digest"), OPTIONS_OK);
	r.digest = 0xabc;
	r.same_bits = false;
	s = printed(print_row, &r);
	ck_assert_ptr_nonnull(strstr(s, "    none      -1 "));
	ck_assert_ptr_nonnull(strstr(s, "  N/A"));
	ck_assert_ptr_nonnull(strstr(s, "  0000000000000abc ranks differ\n"));
	free(s);
	totals_add(&t, &r);
	ck_assert_uint_eq(t.wrong, 7); /* different bits count */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_modules");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_bench_options_default_to_those_of_nccl_tests);
	tcase_add_test(t, test_bench_options_are_read);
	tcase_add_test(t, test_bench_options_refuse_with_one_sentence);
	tcase_add_test(t, test_bench_sizes_end_at_the_largest);
	tcase_add_test(t, test_bench_percentiles_are_values_of_the_series);
	tcase_add_test(t, test_bench_values_have_exact_sums);
	tcase_add_test(t, test_bench_check_sees_every_single_wrong_byte);
	tcase_add_test(t, test_bench_digest_depends_on_every_byte_and_the_order);
	tcase_add_test(t, test_bench_random_values_round_differently_in_different_orders);
	tcase_add_test(t, test_bench_table_has_the_layout_of_nccl_tests);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
