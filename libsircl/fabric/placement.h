/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the background thread should run: fast cores near the network card. From hwloc, opened at run time;
 * without it, from sysfs (cpu_capacity, maximum frequency); without either, anywhere.
 */
#ifndef FABRIC_PLACEMENT_H
#define FABRIC_PLACEMENT_H
#include <sched.h>
#include "base/ctx.h"

/*
 * The CPUs for the background thread of this process among those that it may use: SIRCL_PROGRESS_CPU, else
 * the fastest kind of cores, of these the ones in the locality of PCI device `pci` ("0000:01:00.0", NULL:
 * unknown). Returns false (leave the thread alone): "none", one kind of cores and no locality, nothing left.
 * `local_rank` of `local_n`: with several processes on a machine each gets its share, but the CPUs of
 * SIRCL_PROGRESS_CPU are for each of them. "Fastest": within a tenth of the fastest core. `sysfs`: "/sys", or
 * a tree for tests, which hwloc is not asked about. Logs one INFO line. Blocking, at start only.
 * A SIRCL_PROGRESS_CPU that names CPUs which this process may not use is SIRCL_BAD_CONFIG.
 */
sircl_result_t placement_choose(struct sircl_ctx *, const char *sysfs, const char *pci, int local_rank,
				int local_n, cpu_set_t *, bool *bind);
#endif
