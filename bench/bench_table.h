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
	uint64_t digest;
};

void totals_add(struct totals *, const struct row *);
double totals_average(const struct totals *);
void table_head(FILE *, const struct options *, const struct rank_facts[], int n);
void table_row(FILE *, const struct options *, const struct row *);
void table_foot(FILE *, const struct options *, const struct totals *);
#endif
