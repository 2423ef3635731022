/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries opened at run time. Invariant: a table that is published is complete and is never changed or
 * freed, so that after the first call opening is one atomic load. A failure is not kept: the package may be
 * installed while a process lives.
 */
#include "base/dl.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "base/internal.h"

/* In the order of struct sodium in keyring.c. */
static const char *const sodium_symbols[] = {
	"sodium_init",
	"sodium_memcmp",
	"sodium_memzero",
	"randombytes_buf",
	"crypto_generichash",
	"crypto_generichash_init",
	"crypto_generichash_update",
	"crypto_generichash_final",
	NULL,
};

/* In the order of VERBS_IBV_FUNCTIONS and VERBS_CM_FUNCTIONS in lane/verbs_lib.h. */
static const char *const ibverbs_symbols[] = {
	"ibv_get_device_list",
	"ibv_free_device_list",
	"ibv_get_device_name",
	"ibv_open_device",
	"ibv_close_device",
	"ibv_query_device",
	"ibv_query_port",
	"ibv_query_gid",
	"ibv_alloc_pd",
	"ibv_dealloc_pd",
	"ibv_reg_mr",
	"ibv_dereg_mr",
	"ibv_create_comp_channel",
	"ibv_destroy_comp_channel",
	"ibv_create_cq",
	"ibv_destroy_cq",
	"ibv_get_cq_event",
	"ibv_ack_cq_events",
	"ibv_create_qp",
	"ibv_destroy_qp",
	"ibv_modify_qp",
	"ibv_query_qp",
	"ibv_get_async_event",
	"ibv_ack_async_event",
	"ibv_wc_status_str",
	"ibv_event_type_str",
	NULL,
};
static const char *const rdmacm_symbols[] = {
	"rdma_create_event_channel",
	"rdma_destroy_event_channel",
	"rdma_create_id",
	"rdma_destroy_id",
	"rdma_bind_addr",
	"rdma_resolve_addr",
	"rdma_resolve_route",
	"rdma_init_qp_attr",
	"rdma_connect",
	"rdma_listen",
	"rdma_accept",
	"rdma_establish",
	"rdma_reject",
	"rdma_disconnect",
	"rdma_get_cm_event",
	"rdma_ack_cm_event",
	"rdma_set_option",
	"rdma_get_src_port",
	"rdma_event_str",
	NULL,
};

/* In the order of struct hwloc in placement_hwloc.c. */
static const char *const hwloc_symbols[] = {
	"hwloc_topology_init",
	"hwloc_topology_set_components",
	"hwloc_topology_set_io_types_filter",
	"hwloc_topology_set_cache_types_filter",
	"hwloc_topology_set_type_filter",
	"hwloc_topology_load",
	"hwloc_topology_destroy",
	"hwloc_topology_is_thissystem",
	"hwloc_get_nbobjs_by_depth",
	"hwloc_get_obj_by_depth",
	"hwloc_bitmap_alloc",
	"hwloc_bitmap_free",
	"hwloc_bitmap_isset",
	"hwloc_cpukinds_get_nr",
	"hwloc_cpukinds_get_info",
	NULL,
};

static const struct {
	const char *soname, *package;
	const char *const *symbols;
} libs[DL_COUNT] = {
	[DL_SODIUM] = { "libsodium.so.23", "libsodium23", sodium_symbols },
	[DL_IBVERBS] = { "libibverbs.so.1", "libibverbs1", ibverbs_symbols },
	[DL_RDMACM] = { "librdmacm.so.1", "librdmacm1", rdmacm_symbols },
	[DL_HWLOC] = { "libhwloc.so.15", "libhwloc15", hwloc_symbols },
};

sircl_result_t dl_load(const char *soname, const char *package, const char *const *symbols, void ***table)
{
	sircl_result_t ret;
	size_t n = 0, i;
	void *lib, **t;

	*table = NULL;
	lib = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		const char *why = dlerror();

		return error_set(SIRCL_SYSTEM_ERROR,
				 "%s cannot be opened (%s); install it: apt-get install %s", soname,
				 why != NULL ? why : "no reason given", package);
	}
	while (symbols[n] != NULL)
		n++;
	t = calloc(n + 1, sizeof(*t));
	if (t == NULL) {
		ret = error_set(SIRCL_NO_MEMORY, "out of memory while opening %s", soname);
		goto err_lib;
	}
	for (i = 0; i < n; i++) {
		t[i] = dlsym(lib, symbols[i]);
		if (t[i] == NULL) {
			ret = error_set(SIRCL_SYSTEM_ERROR,
					"%s has no function %s; install the version that belongs here: "
					"apt-get install --reinstall %s",
					soname, symbols[i], package);
			goto err_table;
		}
	}
	*table = t;
	return SIRCL_SUCCESS; /* the handle is kept as long as the process lives, like the table */
err_table:
	free(t);
err_lib:
	dlclose(lib);
	return ret;
}

sircl_result_t dl_open(enum dl_lib id, void *const **table)
{
	/* the one thing here that outlives a context: what is in it is the same for all of them */
	static _Atomic(void **) opened[DL_COUNT];
	/* acquire: pairs with the release of whoever published the table */
	void **t = atomic_load_explicit(&opened[id], memory_order_acquire), **other = NULL;

	*table = t;
	if (t != NULL)
		return SIRCL_SUCCESS;
	CHECK(dl_load(libs[id].soname, libs[id].package, libs[id].symbols, &t));
	/* release: the table is written before it is seen; acquire: another thread's table may be the one */
	if (!atomic_compare_exchange_strong_explicit(&opened[id], &other, t, memory_order_acq_rel,
						     memory_order_acquire)) {
		free(t); /* two threads came first; both tables are alike, the library is counted twice */
		t = other;
	}
	*table = t;
	return SIRCL_SUCCESS;
}
