/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one size: times it out of place and in place, checks it, takes its digest. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H
#include "bench_ranks.h"

/* One of out of place, in place. Times in us; those of the slowest rank. */
struct measured {
	bool done; /* this kind has this place */
	double mean, p50, p99, min, max;
	double algbw, busbw; /* GB/s */
	int slowest; /* the rank with the largest mean */
	uint64_t wrong; /* elements, on all ranks together; of a barrier: ranks that left too early */
};

enum { OUT_OF_PLACE, IN_PLACE, PLACES };

struct row {
	enum bench_kind kind;
	size_t bytes, count; /* of the larger buffer; elements as in the call */
	sircl_type_t type;
	sircl_op_t op;
	int root; /* -1: this kind has none */
	struct measured m[PLACES];
	uint64_t digest; /* rank 0's; of all ranks where results differ by kind */
	bool same_bits; /* false: ranks that must get the same do not */
};

struct buffers {
	void *send, *recv; /* NULL: this rank needs none */
};

struct bench {
	const struct options *o;
	struct session *s;
	const struct rank_facts *facts;
	enum bench_kind kind;
	struct buffers *pair; /* o->rotate */
	int turn; /* the pair of the next run */
	double *time; /* o->iters */
	bool planted;
};

/* For rows of one kind. False: has said why; close it all the same. */
bool bench_open(struct bench *, const struct options *, struct session *, const struct rank_facts[],
		enum bench_kind);
void bench_close(struct bench *);
/* `r` has kind, bytes (at most that many are used), type, op, root; the same on all ranks, and every rank
 * gets the same row. False: has said why. */
bool bench_row(struct bench *, struct row *r);
#endif
