/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs provider, as far as others need it: RC queue pairs over RoCE, made through librdmacm, so that the
 * device and its GID follow from an address of the netdev. rdma-core is opened at run time.
 */
#ifndef LANE_VERBS_H
#define LANE_VERBS_H
#include "lane/lane.h"

/* The RDMA port behind a netdev. */
struct verbs_port {
	char device[64];
	uint32_t port;
	uint8_t family; /* of the address that a lane would have: 4 or 6 */
	uint32_t mtu, mtu_max; /* bytes of a RoCE packet: now, and at most */
	uint64_t node_guid, image_guid; /* host order */
};

/*
 * Whether lanes can run over netdev `dev` (NULL: the first that can), found out as a lane would: by binding
 * to its address. SIRCL_SUCCESS, or why not: no rdma-core, no RDMA device behind it, no address, a
 * SIRCL_GID_INDEX that is not there. Blocking, at start only.
 */
sircl_result_t verbs_probe(struct sircl_ctx *, const char *dev, struct verbs_port *);

/* lane_cfg.provider of a verbs lane: NULL, or this (tests). A zero means the usual. */
struct verbs_lib;
struct verbs_tune {
	const struct verbs_lib *lib; /* lane/verbs_lib.h */
};
#endif
