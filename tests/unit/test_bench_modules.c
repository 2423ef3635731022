/* SPDX-License-Identifier: Apache-2.0 */
/* The modules of sircl-bench: command line, percentiles, the layout of what it prints. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "../../bench/bench_csv.h"
#include "../../bench/bench_progress.h"
#include "../../bench/bench_stats.h"

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
			  "--transport tcp --algo ring --digest --json out.json --csv out.csv --memory plain "
			  "-r 3 "
			  "--rotate 7"),
		OPTIONS_OK);
	ck_assert_int_eq(o.nkinds, 1);
	ck_assert_int_eq(o.kinds[0], KIND_ALL_GATHER);
	ck_assert_str_eq(options_what(&o), "all_gather");
	ck_assert_int_eq(o.root, 3);
	ck_assert_int_eq(o.rotate, 7);
	ck_assert_str_eq(o.csv, "out.csv");
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
	ck_assert_int_eq(o.ntypes, SIRCL_TYPE_COUNT);
	ck_assert_int_eq(o.nops, SIRCL_OP_COUNT);
	ck_assert(o.plant_error);
	ck_assert_int_eq(parse(&o, "broadcast --root all"), OPTIONS_OK);
	ck_assert_int_eq(o.root, ROOT_ALL);
	ck_assert_int_eq(parse(&o, "all"), OPTIONS_OK); /* many rows, fewer runs of each */
	ck_assert_int_eq(o.nkinds, KINDS);
	ck_assert_int_eq(o.iters, 5);
	ck_assert_int_eq(o.warmup, 1);
	ck_assert_str_eq(options_what(&o), "all");
	ck_assert_int_eq(parse(&o, "all -n 30"), OPTIONS_OK);
	ck_assert_int_eq(o.iters, 30);
	for (int k = 0; k < KINDS; k++) {
		ck_assert_int_eq(parse(&o, kind_info((enum bench_kind)k)->name), OPTIONS_OK);
		ck_assert_int_eq(o.nkinds, 1);
		ck_assert_int_eq(o.kinds[0], k);
	}
}
END_TEST

START_TEST(test_bench_options_refuse_with_one_sentence)
{
	static const struct {
		const char *line, *part;
	} bad[] = {
		{ "", "which kind" },
		{ "alltoall", "no such kind: alltoall: all_reduce all_gather" },
		{ "broadcast -r -2", "-2: not a rank or all" },
		{ "broadcast --root x", "x: not a rank or all" },
		{ "all_reduce --rotate 0", "0: not a number from 1" },
		{ "all_reduce --csv", "needs a value" },
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
	table_head(f, &opt, KIND_ALL_REDUCE, facts, 1);
}

START_TEST(test_bench_table_has_the_layout_of_nccl_tests)
{
	struct row r = {
		.bytes = 1024,
		.count = 512,
		.type = SIRCL_BFLOAT16,
		.op = SIRCL_SUM,
		.root = -1,
		.same_bits = true,
		.m = { { .done = true, .mean = 9.876, .algbw = 0.104, .busbw = 0.156 },
		       { .done = true, .mean = 12345.6, .algbw = 1.5, .busbw = 2.25, .wrong = 3 } }
	};
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
	r.kind = KIND_ALL_GATHER;
	r.digest = 0xabc;
	r.same_bits = false;
	s = printed(print_row, &r);
	ck_assert_ptr_nonnull(strstr(s, "    none      -1 "));
	ck_assert_ptr_nonnull(strstr(s, "  N/A"));
	ck_assert_ptr_nonnull(strstr(s, "  0000000000000abc ranks differ\n"));
	free(s);
	totals_add(&t, &r);
	ck_assert_uint_eq(t.wrong, 7); /* different bits count */
	r.kind = KIND_SENDRECV;
	r.m[IN_PLACE].done = false;
	s = printed(print_row, &r);
	ck_assert_ptr_nonnull(strstr(s, "      N/A     N/A     N/A    N/A  0000"));
	free(s);
	totals_add(&t, &r);
	ck_assert_int_eq(t.values, 5);
}
END_TEST

static void print_summary(FILE *f, const void *totals)
{
	table_summary(f, &opt, totals);
}

START_TEST(test_bench_summary_has_a_line_per_kind)
{
	struct totals t[KINDS] = { [KIND_SCATTER] = { .wrong = 4, .rows = 2 },
				   [KIND_BARRIER] = { .rows = 1, .busbw = 3, .values = 2 } };
	char *s, name[32];

	ck_assert_int_eq(parse(&opt, "all"), OPTIONS_OK);
	s = printed(print_summary, t);
	for (int k = 0; k < KINDS; k++) {
		snprintf(name, sizeof(name), "\n# %-14s ", kind_info((enum bench_kind)k)->name);
		ck_assert_msg(strstr(s, name) != NULL, "%s", name);
	}
	ck_assert_ptr_nonnull(strstr(s, "# scatter             2           4      0.000  FAILED\n"));
	ck_assert_ptr_nonnull(strstr(s, "# barrier             1           0      1.500  OK\n"));
	ck_assert_ptr_nonnull(strstr(s, "# Out of bounds values : 4 FAILED\n"));
	free(s);
}
END_TEST

static void print_csv(FILE *f, const void *r)
{
	csv_head(f);
	csv_row(f, &opt, 4, r);
}

START_TEST(test_bench_csv_has_a_line_per_place)
{
	struct row r = {
		.kind = KIND_REDUCE,
		.bytes = 64,
		.count = 16,
		.type = SIRCL_INT32,
		.op = SIRCL_MAX,
		.root = 2,
		.m = { { .done = true, .mean = 1.5, .p50 = 1, .p99 = 2, .min = 0.5, .max = 3, .slowest = 1 },
		       { .done = true, .wrong = 9 } }
	};
	char *s;

	ck_assert_int_eq(parse(&opt, "reduce"), OPTIONS_OK);
	s = printed(print_csv, &r);
	ck_assert_str_eq(s,
			 "kind,nranks,size,count,type,redop,root,place,time_us,p50_us,p99_us,min_us,max_us,"
			 "slowest_rank,algbw_gbs,busbw_gbs,wrong,digest\n"
			 "reduce,4,64,16,int32,max,2,out,1.500,1.000,2.000,0.500,3.000,1,0,0,0,\n"
			 "reduce,4,64,16,int32,max,2,in,0.000,0.000,0.000,0.000,0.000,0,0,0,9,\n");
	free(s);
	r.m[IN_PLACE].done = false;
	s = printed(print_csv, &r);
	ck_assert_ptr_null(strstr(s, ",in,"));
	free(s);
}
END_TEST

START_TEST(test_bench_progress_counts_rows_and_is_for_terminals)
{
	struct options o;
	struct progress p;
	struct row r = { .kind = KIND_REDUCE };
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	ck_assert_int_eq(parse(&o, "all_reduce -b 8 -e 64 -f 2 -d all -o all"), OPTIONS_OK);
	ck_assert_int_eq(progress_total(&o, 4), 4 * 12 * 5);
	ck_assert_int_eq(parse(&o, "gather -b 8 -e 64 -f 2 -o all -r all"), OPTIONS_OK);
	ck_assert_int_eq(progress_total(&o, 4), 4 * 4);
	ck_assert_int_eq(parse(&o, "all -b 8 -e 8 -o all -r all"), OPTIONS_OK);
	ck_assert_int_eq(progress_total(&o, 3), 5 + 1 + 5 + 3 + 15 + 1 + 3 + 3 + 1 + 1);
	progress_open(&p, f, 3, 100);
	progress_step(&p, &r, 200);
	fflush(f);
	ck_assert_uint_eq(n, 0); /* no terminal */
	p.to = f;
	progress_step(&p, &r, 100.5); /* not long yet */
	fflush(f);
	ck_assert_uint_eq(n, 0);
	progress_step(&p, &r, 103);
	ck_assert_ptr_nonnull(strstr(text, "row 3 of 3, 3 s: reduce"));
	progress_clear(&p);
	ck_assert_str_eq(text + n - 4, "\r\033[K");
	fclose(f);
	free(text);
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
	tcase_add_test(t, test_bench_table_has_the_layout_of_nccl_tests);
	tcase_add_test(t, test_bench_summary_has_a_line_per_kind);
	tcase_add_test(t, test_bench_csv_has_a_line_per_place);
	tcase_add_test(t, test_bench_progress_counts_rows_and_is_for_terminals);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
