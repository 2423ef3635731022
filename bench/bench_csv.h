/* SPDX-License-Identifier: Apache-2.0 */
/* Results as comma-separated values: a line of names, then one per size and place. Columns are only added, at
 * the end. */
#ifndef BENCH_CSV_H
#define BENCH_CSV_H
#include "bench_table.h"

void csv_head(FILE *);
void csv_row(FILE *, const struct options *, int nranks, const struct row *);
#endif
