/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one size: times it out of place and in place, checks it, takes its digest. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H
#include "bench_ranks.h"

/* One of out of place, in place. Times in us; those of the slowest rank. */
struct measured {
	double mean, p50, p99, min, max;
	double algbw, busbw; /* GB/s */
	int slowest; /* the rank with the largest mean */
	uint64_t wrong; /* elements, on all ranks together */
};

enum { OUT_OF_PLACE, IN_PLACE, PLACES };

struct row {
	size_t bytes, count; /* of the larger buffer; elements of one rank's input */
	sircl_type_t type;
	sircl_op_t op;
	struct measured m[PLACES];
	uint64_t digest; /* rank 0's */
	bool same_bits; /* all ranks have this digest */
};

struct bench {
	const struct options *o;
	struct session *s;
	void *send, *recv;
	size_t room; /* bytes that results may take in recv; a guard follows */
	double *time; /* o->iters */
	bool planted;
};

bool bench_open(struct bench *, const struct options *, struct session *); /* false: has said why */
void bench_close(struct bench *);
/* The same on all ranks; every rank gets the same row. False: has said why. */
bool bench_row(struct bench *, size_t bytes, sircl_type_t, sircl_op_t, struct row *);
#endif
