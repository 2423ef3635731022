/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of sircl-bench: nccl-tests' flags, and ours as long options. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H
#include <stdbool.h>
#include <stdio.h>
#include "bench_kinds.h"
#include "bench_types.h"

struct options {
	enum bench_kind kinds[KINDS];
	int nkinds;
	size_t min_bytes, max_bytes, step_bytes; /* of the larger buffer, as in nccl-tests */
	int factor; /* > 1: sizes are multiplied; else step_bytes is added */
	int iters, warmup;
	bool check;
	int ntypes, nops;
	sircl_type_t types[SIRCL_TYPE_COUNT];
	sircl_op_t ops[SIRCL_OP_COUNT];
	int root; /* ROOT_ALL: every rank in turn */
	int rotate; /* pairs of buffers that take turns */
	int ranks, lanes; /* 0: not given */
	const char *transport, *algo, *json, *csv; /* NULL: not given */
	bool digest, plant_error, plain_memory;
};

#define ROOT_ALL (-1)

enum options_result { OPTIONS_OK, OPTIONS_HELP, OPTIONS_BAD };

/* Fills in *o; on OPTIONS_BAD `msg` has one sentence. argv[1] is the kind, or all. Strings stay the caller's.
 */
enum options_result options_parse(struct options *o, int argc, char *argv[], char *msg, size_t n);
void options_help(FILE *to);
/* "all_reduce", or "all". */
const char *options_what(const struct options *);
/* The size after `bytes`; false: there is none. */
bool options_next_size(const struct options *, size_t *bytes);
#endif
