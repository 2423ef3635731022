/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank tells all others in the first round, and the checks on what everybody said: versions,
 * parameters that must agree, one machine or several. */
#ifndef FABRIC_RECORD_H
#define FABRIC_RECORD_H
#include "fabric/ringmap.h"

#define RECORD_PARAMS_MAX 12

struct record {
	uint32_t version, wire;
	char host[64];
	uint8_t machine[16]; /* boot, network and process namespace, user: alike = can share memory */
	int32_t pid;
	uint32_t limit_ms; /* what is left of this rank's time for the start */
	uint32_t max_lanes; /* SIRCL_LANES */
	int64_t params[RECORD_PARAMS_MAX]; /* in the order of record.c; must be the same everywhere */
	int nports;
	struct map_port port[MAP_PORTS_MAX];
};

void record_make(struct record *, struct sircl_ctx *, uint64_t limit);
size_t record_write(const struct record *, void *buf, size_t n);
sircl_result_t record_read(struct record *, int rank, const void *buf, size_t n);
/* One sentence if the ranks do not fit together. The same on all ranks. */
sircl_result_t records_agree(const struct record *, int n);
/* Cores are shared by all ranks of one kernel, whatever their namespaces. */
bool record_same_cores(const struct record *, const struct record *);
/* leader[i]: the lowest rank on the machine of rank i. Returns the number of machines. */
int records_machines(const struct record *, int n, uint16_t *leader);
#endif
