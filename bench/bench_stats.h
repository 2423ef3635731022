/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a series of times. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H
#include <stddef.h>

struct stats {
	double mean, min, max, p50, p99;
};

/* Of n > 0 values; sorts them. Percentiles are values of the series (nearest rank). */
struct stats stats_of(double *v, size_t n);
/* The value that p percent of the sorted series do not exceed. */
double stats_percentile(const double *sorted, size_t n, double p);
/* GB/s (10^9) for `bytes` in `us`. */
double stats_bandwidth(double bytes, double us);
#endif
