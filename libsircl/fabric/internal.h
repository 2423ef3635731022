/* SPDX-License-Identifier: Apache-2.0 */
/* Private to fabric/: the steps of a start. */
#ifndef FABRIC_INTERNAL_H
#define FABRIC_INTERNAL_H
#include "fabric/fabric.h"
#include "fabric/ifaces.h"
#include "fabric/rdv.h"
#include "fabric/record.h"

struct start {
	struct sircl_ctx *ctx;
	struct fabric *f;
	const struct fabric_cfg *cfg;
	uint64_t limit;
	struct rdv rdv;
	struct record rec[COLL_MAX_RANKS];
	struct iface port[MAP_PORTS_MAX]; /* this rank's candidates, in the order of rec[rank].port */
	uint16_t leader[COLL_MAX_RANKS]; /* the lowest rank on the machine of each */
	struct ring_map map;
	bool devices; /* lanes run over network devices: hello has found the map */
	const struct lane_ops *ops;
};

/* Where the rendezvous is and with which keys; serves it if this rank must. */
sircl_result_t start_meet(struct start *);
/* Candidate ports of this rank, the management interface marked. */
sircl_result_t start_ports(struct start *, struct record *);
/* Provider and map: from rank order on one machine, else by hello. All ranks get the same. */
sircl_result_t start_cabling(struct start *);
/* Opens links, exchanges their addresses, connects, waits. */
sircl_result_t start_links(struct start *);
#endif
