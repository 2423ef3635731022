/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of cores and a card's locality as hwloc sees them. hwloc is opened at run time; its inline helpers
 * would link to it, so they are not used. A topology of our own is loaded and freed: any thread may do that.
 */
#include "fabric/placement_internal.h"
#ifdef HAVE_HWLOC
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include "base/dl.h"
#include "fabric/inventory_sysfs.h"

/* The prototypes are the header's, the functions are found at run time; the order is that of dl.c. */
struct hwloc {
	__typeof__(hwloc_topology_init) *init;
	__typeof__(hwloc_topology_set_components) *set_components;
	__typeof__(hwloc_topology_set_io_types_filter) *io_filter;
	__typeof__(hwloc_topology_set_cache_types_filter) *cache_filter;
	__typeof__(hwloc_topology_set_type_filter) *filter;
	__typeof__(hwloc_topology_load) *load;
	__typeof__(hwloc_topology_destroy) *destroy;
	__typeof__(hwloc_topology_is_thissystem) *is_thissystem;
	__typeof__(hwloc_get_nbobjs_by_depth) *count;
	__typeof__(hwloc_get_obj_by_depth) *object;
	__typeof__(hwloc_bitmap_alloc) *bitmap;
	__typeof__(hwloc_bitmap_free) *bitmap_free;
	__typeof__(hwloc_bitmap_isset) *isset;
	__typeof__(hwloc_cpukinds_get_nr) *kinds;
	__typeof__(hwloc_cpukinds_get_info) *kind;
};

static sircl_result_t topology_load(const struct hwloc *h, hwloc_topology_t *t)
{
	/* x86 moves the calling thread from core to core; the others look for GPUs; sysfs has the PCI devices
	 */
	static const char *const unwanted[] = { "x86",  "pci",  "opencl", "cuda",
						"nvml", "rsmi", "gl",     "levelzero" };

	if (h->init(t) != 0)
		return error_set(SIRCL_SYSTEM_ERROR, "hwloc cannot make a topology");
	for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		(void)h->set_components(*t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
	h->cache_filter(*t, HWLOC_TYPE_FILTER_KEEP_NONE);
	h->io_filter(*t, HWLOC_TYPE_FILTER_KEEP_NONE);
	h->filter(*t, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	if (h->load(*t) != 0) {
		h->destroy(*t);
		return error_set(SIRCL_SYSTEM_ERROR, "hwloc cannot read this machine");
	}
	if (!h->is_thissystem(*t)) {
		h->destroy(*t);
		return error_set(SIRCL_SYSTEM_ERROR,
				 "hwloc was told to describe another machine (HWLOC_XMLFILE, HWLOC_FSROOT)");
	}
	return SIRCL_SUCCESS;
}

static void copy_set(const struct hwloc *h, hwloc_const_bitmap_t from, cpu_set_t *to)
{
	CPU_ZERO(to);
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		if (h->isset(from, i))
			CPU_SET(i, to);
}

static void find_near(const struct hwloc *h, hwloc_topology_t t, const char *pci, struct cores *c)
{
	uint32_t domain, bus, slot, function;
	int n = h->count(t, HWLOC_TYPE_DEPTH_PCI_DEVICE);

	if (!pci || !pci_parse(pci, &domain, &bus, &slot, &function))
		return;
	for (int i = 0; i < n; i++) {
		hwloc_obj_t o = h->object(t, HWLOC_TYPE_DEPTH_PCI_DEVICE, (unsigned)i);

		if (!o || !o->attr || o->attr->pcidev.domain != domain || o->attr->pcidev.bus != bus ||
		    o->attr->pcidev.dev != slot || o->attr->pcidev.func != function)
			continue;
		while (o && !o->cpuset) /* what is no card but has cores */
			o = o->parent;
		if (o) {
			copy_set(h, o->cpuset, &c->near);
			c->has_near = true;
		}
		return;
	}
}

/* The info `name` of a kind as a number, 0 if it has none. */
static uint32_t info_number(const struct hwloc_info_s *info, unsigned n, const char *name)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(info[i].name, name)) {
			unsigned long v = strtoul(info[i].value, NULL, 10);

			return v <= UINT32_MAX ? (uint32_t)v : 0;
		}
	return 0;
}

/*
 * A speed for each CPU from the first that all kinds have: capacity, frequency, rank of efficiency. Of ranks
 * only the order is known, so all but the highest count as slow. False: kinds do not have it.
 */
static bool kinds_by(const struct hwloc *h, hwloc_topology_t t, hwloc_bitmap_t set, const char *info_name,
		     struct cores *c)
{
	int n = h->kinds(t, 0);

	memset(c->speed, 0, sizeof(c->speed));
	for (int k = 0; k < n; k++) {
		struct hwloc_info_s *info = NULL;
		unsigned ninfo = 0;
		int rank = -1;
		uint32_t speed;
		cpu_set_t cpus;

		if (h->kind(t, (unsigned)k, set, &rank, &ninfo, &info, 0) != 0)
			return false;
		if (info_name)
			speed = info_number(info, ninfo, info_name);
		else
			speed = rank < 0 ? 0 : rank == n - 1 ? 2 : 1;
		if (speed == 0)
			return false;
		copy_set(h, set, &cpus);
		for (int i = 0; i < CPU_SETSIZE; i++)
			if (CPU_ISSET(i, &cpus))
				c->speed[i] = speed;
	}
	return n > 0;
}

sircl_result_t cores_from_hwloc(const char *pci, struct cores *c)
{
	const struct hwloc *h;
	void *const *table;
	hwloc_topology_t t;
	hwloc_bitmap_t set;

	memset(c, 0, sizeof(*c));
	CHECK(dl_open(DL_HWLOC, &table));
	h = (const struct hwloc *)(const void *)table;
	CHECK(topology_load(h, &t));
	find_near(h, t, pci, c);
	set = h->bitmap();
	if (set && !kinds_by(h, t, set, "LinuxCapacity", c) && !kinds_by(h, t, set, "FrequencyMaxMHz", c) &&
	    !kinds_by(h, t, set, NULL, c))
		memset(c->speed, 0, sizeof(c->speed));
	if (set)
		h->bitmap_free(set);
	h->destroy(t);
	return SIRCL_SUCCESS;
}
#else
sircl_result_t cores_from_hwloc(const char *pci, struct cores *c)
{
	(void)pci;
	(void)c;
	return error_set(SIRCL_SYSTEM_ERROR, "this library was built without hwloc; to have it: apt-get "
					     "install libhwloc-dev libhwloc15, and build again");
}
#endif
