/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of the command line. Everything is checked here, so that nothing starts on a wrong one. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "bench_options.h"

#define KIND_NAMES \
	"all_reduce all_gather reduce_scatter broadcast reduce all_to_all gather scatter sendrecv barrier"

const char *options_what(const struct options *o)
{
	return o->nkinds == 1 ? kind_info(o->kinds[0])->name : "all";
}

void options_help(FILE *to)
{
	fputs("Usage: sircl-bench KIND|all [options]\n"
	      "\n"
	      "Times an operation and checks every element of its result on every rank. KIND: all_reduce,\n"
	      "all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter, sendrecv (to the\n"
	      "next rank, from the previous one, in a group), barrier. all: each of them, and a summary.\n"
	      "\n"
	      "  -b, --minbytes SIZE       smallest size (32M); K, M, G are powers of 1024\n"
	      "  -e, --maxbytes SIZE       largest size (32M, or that of -b if larger)\n"
	      "  -i, --stepbytes SIZE      added from size to size (1M)\n"
	      "  -f, --stepfactor N        or: multiplied from size to size\n"
	      "  -n, --iters N             timed runs of each size (20; all: 5)\n"
	      "  -w, --warmup_iters N      runs before them (5; all: 1)\n"
	      "  -c, --check 0|1           check results (1)\n"
	      "  -d, --datatype TYPE|all   int8 uint8 int32 uint32 int64 uint64 half float double bfloat16\n"
	      "                            f8e4m3 f8e5m2 (float)\n"
	      "  -o, --op OP|all           sum prod max min avg (sum)\n"
	      "  -r, --root RANK|all       root of broadcast, reduce, gather, scatter (0)\n"
	      "      --ranks N             start N ranks on this machine (else: those of sircl run)\n"
	      "      --lanes N             lanes per cable (SIRCL_LANES)\n"
	      "      --transport NAME      auto, shm, tcp, verbs (SIRCL_TRANSPORT)\n"
	      "      --algo NAME           auto, exchange, ring, .. (SIRCL_ALGO; see sircl params)\n"
	      "      --memory alloc|plain  buffers from sircl_mem_alloc, or from malloc (alloc)\n"
	      "      --rotate N            N pairs of buffers that take turns, so that none is warm (1)\n"
	      "      --digest              one more run of each size on random values; prints a hash of the "
	      "results\n"
	      "      --csv FILE            results as comma-separated values, a line per size and place\n"
	      "      --json FILE           results as JSON: with p50, p99 and the slowest rank\n"
	      "      --plant-error         spoil one byte of one result of each kind: the check must fail\n"
	      "  -h, --help\n"
	      "\n"
	      "Sizes are those of the larger buffer: all ranks' shares together for all_gather,\n"
	      "reduce_scatter, all_to_all, gather and scatter. Times are means of a rank's runs; of all "
	      "ranks\n"
	      "the slowest counts. busbw is algbw times 2(n-1)/n for all_reduce, (n-1)/n for those five, 1 "
	      "for\n"
	      "the others. Checks are to the bit: the inputs are such that no order of a sum rounds.\n"
	      "Exit status: 0 all right, 1 a check failed, 2 wrong usage, configuration or another error.\n",
	      to);
}

static bool parse_size(const char *s, size_t *out)
{
	unsigned long long v;
	unsigned shift = 0;
	char *end;

	errno = 0;
	if (!isdigit((unsigned char)*s))
		return false;
	v = strtoull(s, &end, 10);
	switch (*end) {
	case 'g':
	case 'G':
		shift += 10;
		__attribute__((fallthrough));
	case 'm':
	case 'M':
		shift += 10;
		__attribute__((fallthrough));
	case 'k':
	case 'K':
		shift += 10;
		end++;
		if (*end == 'B')
			end++;
		break;
	default:
		break;
	}
	if (errno || *end || v > (SIZE_MAX >> 1) >> shift)
		return false;
	*out = (size_t)v << shift;
	return true;
}

static bool parse_int(const char *s, int min, int max, int *out)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(s, &end, 10);
	if (errno || end == s || *end || v < min || v > max)
		return false;
	*out = (int)v;
	return true;
}

static bool parse_types(struct options *o, const char *s)
{
	o->ntypes = 1;
	if (bench_type_find(s, &o->types[0]))
		return true;
	if (strcmp(s, "all") != 0)
		return false;
	o->ntypes = 0;
	for (int t = 0; t < SIRCL_TYPE_COUNT; t++)
		o->types[o->ntypes++] = (sircl_type_t)t;
	return true;
}

static bool parse_ops(struct options *o, const char *s)
{
	o->nops = 1;
	if (bench_op_find(s, &o->ops[0]))
		return true;
	if (strcmp(s, "all") != 0)
		return false;
	o->nops = 0;
	for (int op = 0; op < SIRCL_OP_COUNT; op++)
		o->ops[o->nops++] = (sircl_op_t)op;
	return true;
}

static bool parse_root(struct options *o, const char *s)
{
	o->root = ROOT_ALL;
	return !strcmp(s, "all") || parse_int(s, 0, INT_MAX, &o->root);
}

static bool parse_kind(struct options *o, const char *s)
{
	o->nkinds = 1;
	if (kind_find(s, &o->kinds[0]))
		return true;
	if (strcmp(s, "all") != 0)
		return false;
	o->nkinds = 0;
	for (int k = 0; k < KINDS; k++)
		o->kinds[o->nkinds++] = (enum bench_kind)k;
	o->iters = 5; /* hundreds of rows */
	o->warmup = 1;
	return true;
}

enum {
	OPT_RANKS = 256,
	OPT_LANES,
	OPT_TRANSPORT,
	OPT_ALGO,
	OPT_MEMORY,
	OPT_ROTATE,
	OPT_DIGEST,
	OPT_CSV,
	OPT_JSON,
	OPT_PLANT
};

static const struct option longs[] = {
	{ "minbytes", required_argument, NULL, 'b' },
	{ "maxbytes", required_argument, NULL, 'e' },
	{ "stepbytes", required_argument, NULL, 'i' },
	{ "stepfactor", required_argument, NULL, 'f' },
	{ "iters", required_argument, NULL, 'n' },
	{ "warmup_iters", required_argument, NULL, 'w' },
	{ "check", required_argument, NULL, 'c' },
	{ "datatype", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, 'o' },
	{ "root", required_argument, NULL, 'r' },
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "lanes", required_argument, NULL, OPT_LANES },
	{ "transport", required_argument, NULL, OPT_TRANSPORT },
	{ "algo", required_argument, NULL, OPT_ALGO },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "rotate", required_argument, NULL, OPT_ROTATE },
	{ "digest", no_argument, NULL, OPT_DIGEST },
	{ "csv", required_argument, NULL, OPT_CSV },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "plant-error", no_argument, NULL, OPT_PLANT },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* What an option takes, for the sentence; NULL: it was all right. */
static const char *one(struct options *o, int c, const char *arg, bool *max_given)
{
	int yes;

	switch (c) {
	case 'b':
		return parse_size(arg, &o->min_bytes) ? NULL : "a size such as 8, 64K, 32M";
	case 'e':
		*max_given = true;
		return parse_size(arg, &o->max_bytes) ? NULL : "a size such as 8, 64K, 32M";
	case 'i':
		return parse_size(arg, &o->step_bytes) && o->step_bytes
			       ? NULL
			       : "a size above 0 such as 8, 64K, 32M";
	case 'f':
		return parse_int(arg, 2, 1 << 20, &o->factor) ? NULL : "a number from 2";
	case 'n':
		return parse_int(arg, 1, 100000000, &o->iters) ? NULL : "a number from 1";
	case 'w':
		return parse_int(arg, 0, 100000000, &o->warmup) ? NULL : "a number from 0";
	case 'c':
		if (!parse_int(arg, 0, 1, &yes))
			return "0 or 1";
		o->check = yes;
		return NULL;
	case 'd':
		return parse_types(o, arg) ? NULL
					   : "a type (int8 uint8 int32 uint32 int64 uint64 half float double "
					     "bfloat16 f8e4m3 f8e5m2) or all";
	case 'o':
		return parse_ops(o, arg) ? NULL : "an operation (sum prod max min avg) or all";
	case 'r':
		return parse_root(o, arg) ? NULL : "a rank or all";
	case OPT_RANKS:
		return parse_int(arg, 1, 64, &o->ranks) ? NULL : "a number from 1 to 64";
	case OPT_LANES:
		return parse_int(arg, 1, 8, &o->lanes) ? NULL : "a number from 1 to 8";
	case OPT_TRANSPORT:
		o->transport = arg;
		return NULL;
	case OPT_ALGO:
		o->algo = arg;
		return NULL;
	case OPT_MEMORY:
		o->plain_memory = !strcmp(arg, "plain");
		return o->plain_memory || !strcmp(arg, "alloc") ? NULL : "alloc or plain";
	case OPT_ROTATE:
		return parse_int(arg, 1, 1 << 16, &o->rotate) ? NULL : "a number from 1 to 65536";
	case OPT_DIGEST:
		o->digest = true;
		return NULL;
	case OPT_CSV:
		o->csv = arg;
		return *arg ? NULL : "the name of a file";
	case OPT_JSON:
		o->json = arg;
		return *arg ? NULL : "the name of a file";
	default:
		o->plant_error = true;
		return NULL;
	}
}

static enum options_result bad(char *msg, size_t n, const char *what, const char *value, const char *rest)
{
	snprintf(msg, n, "%s%s%s%s (sircl-bench --help)", what, value ? " " : "", value ? value : "", rest);
	return OPTIONS_BAD;
}

enum options_result options_parse(struct options *o, int argc, char *argv[], char *msg, size_t n)
{
	bool max_given = false;
	const char *want;
	int c;

	*o = (struct options){ .min_bytes = 32 << 20,
			       .max_bytes = 32 << 20,
			       .step_bytes = 1 << 20,
			       .iters = 20,
			       .warmup = 5,
			       .check = true,
			       .ntypes = 1,
			       .types = { SIRCL_FLOAT32 },
			       .nops = 1,
			       .ops = { SIRCL_SUM },
			       .rotate = 1 };
	if (argc < 2)
		return bad(msg, n, "which kind? " KIND_NAMES, NULL, ", or all");
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
		return OPTIONS_HELP;
	if (!parse_kind(o, argv[1]))
		return bad(msg, n, "no such kind:", argv[1], ": " KIND_NAMES ", or all");
	optind = 0; /* start afresh, whoever used getopt before */
	opterr = 0;
	while ((c = getopt_long(argc - 1, argv + 1, ":b:e:i:f:n:w:c:d:o:r:h", longs, NULL)) != -1) {
		const char *given = argv[optind];

		if (c == 'h')
			return OPTIONS_HELP;
		if (c == ':')
			return bad(msg, n, given ? given : argv[argc - 1], NULL, " needs a value");
		if (c == '?')
			return bad(msg, n, "no such option:", given ? given : argv[argc - 1], "");
		want = one(o, c, optarg, &max_given);
		if (want) {
			snprintf(msg, n, "%s: not %s (sircl-bench --help)", optarg, want);
			return OPTIONS_BAD;
		}
	}
	if (optind < argc - 1)
		return bad(msg, n, "unexpected:", argv[1 + optind], "");
	if (!max_given && o->max_bytes < o->min_bytes)
		o->max_bytes = o->min_bytes;
	if (o->max_bytes < o->min_bytes)
		return bad(msg, n, "the largest size (-e) is below the smallest (-b)", NULL, "");
	if (o->plant_error && !o->check)
		return bad(msg, n, "--plant-error needs -c 1", NULL, "");
	return OPTIONS_OK;
}

bool options_next_size(const struct options *o, size_t *bytes)
{
	size_t next;

	if (o->factor > 1) {
		if (*bytes > SIZE_MAX / (size_t)o->factor)
			return false;
		next = *bytes ? *bytes * (size_t)o->factor : 1;
	} else {
		next = *bytes + o->step_bytes;
	}
	if (next <= *bytes || next > o->max_bytes)
		return false;
	*bytes = next;
	return true;
}
