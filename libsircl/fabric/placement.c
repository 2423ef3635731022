/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of CPUs for the background thread. How many kinds of cores there are is not assumed: a GB10 has
 * two that show as five frequencies, so "fast" is whatever comes within a tenth of the fastest. Where that
 * and the card's locality leave nothing out, the scheduler knows as much as this, and the thread is left
 * alone.
 */
#include "fabric/placement_internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "fabric/inventory_sysfs.h"

/* From the card's own list of CPUs, else from that of its NUMA node. */
static void near_from_sysfs(const char *sysfs, const char *pci, struct cores *c)
{
	uint32_t domain, bus, slot, function;
	char list[4096], dev[32];
	const char *bad;
	int64_t node;

	if (!pci || !pci_parse(pci, &domain, &bus, &slot, &function))
		return;
	snprintf(dev, sizeof(dev), "%04x:%02x:%02x.%x", domain, bus, slot, function);
	if (!sysfs_text(list, sizeof(list), "%s/bus/pci/devices/%s/local_cpulist", sysfs, dev)) {
		node = sysfs_number(0, 65535, -1, "%s/bus/pci/devices/%s/numa_node", sysfs, dev);
		if (node < 0 || !sysfs_text(list, sizeof(list), "%s/devices/system/node/node%d/cpulist",
					    sysfs, (int)node))
			return;
	}
	c->has_near = cpulist_parse(list, &c->near, &bad);
}

/* Frequencies of unlike cores are no measure of their speed, capacities are; but not every machine has them.
 */
void cores_from_sysfs(const char *sysfs, const char *pci, const cpu_set_t *allowed, struct cores *c)
{
	static const char *const measure[] = { "cpu_capacity", "cpufreq/cpuinfo_max_freq" };
	bool all = false;

	memset(c, 0, sizeof(*c));
	for (int m = 0; m < 2 && !all; m++) {
		all = true;
		for (int i = 0; i < CPU_SETSIZE && all; i++) {
			if (!CPU_ISSET(i, allowed))
				continue;
			c->speed[i] = (uint32_t)sysfs_number(
				1, UINT32_MAX, 0, "%s/devices/system/cpu/cpu%d/%s", sysfs, i, measure[m]);
			all = c->speed[i] != 0;
		}
	}
	near_from_sysfs(sysfs, pci, c);
}

/* Those of `set` within a tenth of the fastest; all, if of one of them the speed is unknown. The number of
 * different speeds, 0: unknown. */
static int fastest(const struct cores *c, const cpu_set_t *set, cpu_set_t *fast)
{
	uint32_t seen[CPU_SETSIZE], max = 0;
	int n = 0, k;

	*fast = *set;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, set))
			continue;
		if (c->speed[i] == 0)
			return 0;
		max = c->speed[i] > max ? c->speed[i] : max;
		for (k = 0; k < n && seen[k] != c->speed[i]; k++)
			;
		seen[k] = c->speed[i];
		n += k == n;
	}
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, set) && (uint64_t)c->speed[i] * 10 < (uint64_t)max * 9)
			CPU_CLR(i, fast);
	return n;
}

/* The part of `set` that is process r's of n, in ascending order; all of it where there is not one for each.
 */
static void share(cpu_set_t *set, int r, int n)
{
	int count = CPU_COUNT(set), k = 0;

	if (n <= 1 || n > count || r < 0 || r >= n)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, set))
			continue;
		if (k < count * r / n || k >= count * (r + 1) / n)
			CPU_CLR(i, set);
		k++;
	}
}

static sircl_result_t from_parameter(struct sircl_ctx *ctx, const char *list, const cpu_set_t *allowed,
				     cpu_set_t *set, bool *bind)
{
	char may[128], not [128];
	const char *bad;
	cpu_set_t no;

	if (!strcmp(list, "none")) {
		log_info(&ctx->log, LOG_ENGINE, "background thread: left alone (SIRCL_PROGRESS_CPU=none)");
		return SIRCL_SUCCESS;
	}
	cpulist_text(allowed, may, sizeof(may));
	if (!cpulist_parse(list, set, &bad))
		return error_set(
			SIRCL_BAD_CONFIG,
			"rank %d (%s): the environment variable SIRCL_PROGRESS_CPU=%.80s is not allowed (at "
			"\"%.20s\"); allowed: none, or CPUs and ranges of CPUs with commas between, "
			"e.g. 7 or 5-9,15 (this process may use %s)",
			ctx->rank, ctx->host, list, bad, may);
	CPU_XOR(&no, set, allowed);
	CPU_AND(&no, &no, set);
	if (CPU_COUNT(&no))
		return error_set(SIRCL_BAD_CONFIG,
				 "rank %d (%s): the environment variable SIRCL_PROGRESS_CPU=%.80s names CPUs "
				 "that this "
				 "process may not use (%s); it may use %s: choose among these, or widen its "
				 "set (taskset, cpuset of the container)",
				 ctx->rank, ctx->host, list, cpulist_text(&no, not, sizeof(not )), may);
	*bind = true;
	log_info(&ctx->log, LOG_ENGINE, "background thread: CPUs %s (SIRCL_PROGRESS_CPU)",
		 cpulist_text(set, may, sizeof(may)));
	return SIRCL_SUCCESS;
}

sircl_result_t placement_among(struct sircl_ctx *ctx, const char *sysfs, const char *pci, int local_rank,
			       int local_n, const cpu_set_t *allowed, cpu_set_t *set, bool *bind)
{
	const char *list = param_str(&ctx->params, PARAM_PROGRESS_CPU), *near = "";
	char source[192] = "sysfs", text[128], all[128];
	struct cores c;
	cpu_set_t both;
	int kinds;

	*bind = false;
	if (list && *list)
		return from_parameter(ctx, list, allowed, set, bind);
	if (strcmp(sysfs, "/sys") != 0 || !sysfs_exists("%s/devices/system/cpu", sysfs)) {
		/* hwloc would describe the machine itself, or complain on stderr that it cannot */
		cores_from_sysfs(sysfs, pci, allowed, &c);
	} else if (cores_from_hwloc(pci, &c) == SIRCL_SUCCESS) {
		memcpy(source, "hwloc", sizeof("hwloc"));
	} else {
		snprintf(source, sizeof(source), "sysfs, since %.160s", error_last()->msg);
		error_clear(); /* not an error of this call */
		cores_from_sysfs(sysfs, pci, allowed, &c);
	}
	kinds = fastest(&c, allowed, set);
	if (c.has_near) {
		CPU_AND(&both, set, &c.near);
		if (CPU_COUNT(&both))
			*set = both;
		near = CPU_COUNT(&both) ? ", near the card at " : ", none of them near the card at ";
	}
	if (CPU_EQUAL(set, allowed)) {
		log_info(
			&ctx->log, LOG_ENGINE,
			"background thread: left alone, cores are alike and near or not known to differ (%s)",
			source);
		return SIRCL_SUCCESS;
	}
	cpulist_text(set, all, sizeof(all));
	share(set, local_rank, local_n);
	*bind = true;
	log_info(&ctx->log, LOG_ENGINE,
		 "background thread: CPUs %s; fast ones %s (%d speeds)%s%s; process %d of %d here (%s)",
		 cpulist_text(set, text, sizeof(text)), all, kinds, near, *near ? pci : "", local_rank,
		 local_n, source);
	return SIRCL_SUCCESS;
}

sircl_result_t placement_choose(struct sircl_ctx *ctx, const char *sysfs, const char *pci, int local_rank,
				int local_n, cpu_set_t *set, bool *bind)
{
	cpu_set_t allowed;

	*bind = false;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
		log_info(&ctx->log, LOG_ENGINE,
			 "background thread: left alone, this process's CPUs cannot be read: %s",
			 strerror(errno));
		return SIRCL_SUCCESS;
	}
	return placement_among(ctx, sysfs, pci, local_rank, local_n, &allowed, set, bind);
}
