/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the placement share among themselves and with their tests. */
#ifndef FABRIC_PLACEMENT_INTERNAL_H
#define FABRIC_PLACEMENT_INTERNAL_H
#include "fabric/placement.h"

struct cores {
	uint32_t speed[CPU_SETSIZE]; /* of each CPU; only their ratios mean something. 0: unknown */
	bool has_near;
	cpu_set_t near; /* the PCI device's locality, if has_near */
};

/* SIRCL_SYSTEM_ERROR and why not: no hwloc, not built with it, it describes another machine. */
sircl_result_t cores_from_hwloc(const char *pci, struct cores *);
void cores_from_sysfs(const char *sysfs, const char *pci, const cpu_set_t *allowed, struct cores *);
/* placement_choose with the CPUs that may be used given. */
sircl_result_t placement_among(struct sircl_ctx *, const char *sysfs, const char *pci, int local_rank,
			       int local_n, const cpu_set_t *allowed, cpu_set_t *, bool *bind);
#endif
