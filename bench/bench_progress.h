/* SPDX-License-Identifier: Apache-2.0 */
/* One line on a terminal that tells how far a long run is. */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H
#include "bench_measure.h"

#define PROGRESS_AFTER_S 2 /* a run is long after that */

struct progress {
	FILE *to; /* NULL: nobody looks */
	int done, total; /* rows */
	double start, last; /* s */
	bool shown;
};

/* Rows that this command line comes to. */
int progress_total(const struct options *, int nranks);
/* to: a stream or NULL; one that is no terminal is as NULL. */
void progress_open(struct progress *, FILE *to, int total, double now_s);
/* Before a row begins. */
void progress_step(struct progress *, const struct row *next, double now_s);
/* Before anything else is written to the terminal. */
void progress_clear(struct progress *);
#endif
