/* SPDX-License-Identifier: Apache-2.0 */
/* The table on standard output, laid out as nccl-tests', so that what parses those parses these. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H
#include <stdio.h>
#include "bench_measure.h"

/* What the whole run comes to. */
struct totals {
	uint64_t wrong; /* elements, plus 1 for every row of which ranks have different bits */
	double busbw; /* sum over `values` */
	int values;
	int rows;
	uint64_t digest;
};

void totals_add(struct totals *, const struct row *);
double totals_average(const struct totals *);
void totals_join(struct totals *, const struct totals *more);
/* Names as shown: "none" where the kind has no such thing. */
const char *row_type(const struct row *);
const char *row_op(const struct row *);
/* facts NULL: the ranks have been shown already. */
void table_head(FILE *, const struct options *, enum bench_kind, const struct rank_facts[], int n);
void table_row(FILE *, const struct options *, const struct row *);
void table_foot(FILE *, const struct options *, const struct totals *);
/* Over several kinds: a line for each, then all together. */
void table_summary(FILE *, const struct options *, const struct totals by_kind[]);
#endif
