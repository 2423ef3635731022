/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes part: starting local ranks, the communicator, small exchanges between all ranks. */
#ifndef BENCH_RANKS_H
#define BENCH_RANKS_H
#include <stdint.h>
#include "bench_options.h"

struct session {
	sircl_comm_t comm;
	int rank, n;
};

/* What every rank tells of itself. */
struct rank_facts {
	int pid, position, next_lanes, prev_lanes;
	uint64_t machine; /* equal: one kernel, one monotonic clock */
	char host[64], transport[16];
};

/* Whether this process must become `sircl run` first: --ranks was given, and nobody has started us as a rank.
 */
bool ranks_must_launch(const struct options *);
/* Becomes `sircl run` (beside this program) with this command line. Returns only on failure, having said why.
 */
void ranks_launch(const struct options *, char *argv[]);
/* Hands --lanes, --transport, --algo to the library, creates the communicator. False: has said why. */
bool session_open(struct session *, const struct options *);
/* all[r * bytes] = mine of rank r. False: has said why. */
bool session_gather(const struct session *, const void *mine, void *all, size_t bytes);
/* Whether `ok` is true on all ranks. */
bool session_all(const struct session *, bool ok);
bool session_facts(const struct session *, struct rank_facts all[]);
/* Ends the communicator in order. */
bool session_close(struct session *);
/* Says what failed, on stderr; returns false. */
bool session_failed(const struct session *, const char *call);
#endif
