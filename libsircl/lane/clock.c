// SPDX-License-Identifier: Apache-2.0
/* The real clock: the one place that reads it. */
#include <time.h>
#include "lane/lane.h"

uint64_t lane_clock_real(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}
