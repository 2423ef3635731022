/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of operation that can be timed: what they take, what they give, how they are called. */
#ifndef BENCH_KINDS_H
#define BENCH_KINDS_H
#include <stdbool.h>
#include <stddef.h>
#include "sircl/sircl.h"

enum bench_kind {
	KIND_ALL_REDUCE,
	KIND_ALL_GATHER,
	KIND_REDUCE_SCATTER,
	KIND_BROADCAST,
	KIND_REDUCE,
	KIND_ALL_TO_ALL,
	KIND_GATHER,
	KIND_SCATTER,
	KIND_SENDRECV, /* everybody sends to rank + 1 and receives from rank - 1, as one group */
	KIND_BARRIER,
	KINDS
};

struct kind_info {
	const char *name, *call; /* "all_reduce", "sircl_all_reduce" */
	bool reduces, rooted; /* takes an operation, a root */
	bool in_place; /* may run in place */
	bool same; /* all ranks get the same */
	bool whole; /* the larger buffer holds a share for every rank */
};

const struct kind_info *kind_info(enum bench_kind);
bool kind_find(const char *name, enum bench_kind *);
/* Elements of the larger buffer per element of `count`. */
size_t kind_unit(enum bench_kind, int n);
/* Elements that this rank gives and gets; 0 where it has none. */
size_t kind_in(enum bench_kind, size_t count, int rank, int root, int n);
size_t kind_out(enum bench_kind, size_t count, int rank, int root, int n);
/* What algbw is multiplied with to compare with the rate of a wire: nccl-tests' doc/PERFORMANCE.md. */
double kind_bus_factor(enum bench_kind, int n);

struct kind_call {
	enum bench_kind kind;
	const void *in;
	void *out;
	size_t count;
	sircl_type_t type;
	sircl_op_t op;
	int root, rank, n;
	sircl_comm_t comm;
};
sircl_result_t kind_run(const struct kind_call *);
#endif
