/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles by the nearest rank, means, bandwidths. */
#include <math.h>
#include <stdlib.h>
#include "bench_stats.h"

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double stats_percentile(const double *sorted, size_t n, double p)
{
	double rank = ceil(p / 100.0 * (double)n);

	if (rank < 1)
		rank = 1;
	if (rank > (double)n)
		rank = (double)n;
	return sorted[(size_t)rank - 1];
}

struct stats stats_of(double *v, size_t n)
{
	struct stats s = { 0 };

	for (size_t i = 0; i < n; i++)
		s.mean += v[i];
	s.mean /= (double)n;
	qsort(v, n, sizeof(v[0]), ascending);
	s.min = v[0];
	s.max = v[n - 1];
	s.p50 = stats_percentile(v, n, 50);
	s.p99 = stats_percentile(v, n, 99);
	return s;
}

double stats_bandwidth(double bytes, double us)
{
	return us > 0 ? bytes / us / 1e3 : 0;
}
