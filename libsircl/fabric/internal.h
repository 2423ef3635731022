/* SPDX-License-Identifier: Apache-2.0 */
/* Private to fabric/: the steps of a start. */
#ifndef FABRIC_INTERNAL_H
#define FABRIC_INTERNAL_H
#include "fabric/fabric.h"
#include "fabric/ifaces.h"
#include "fabric/inventory.h"
#include "fabric/placement.h"
#include "fabric/provider.h"
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
	int machines;
	bool devices; /* lanes run over network devices: hello has found the map */
	struct inventory *inventory; /* this machine's RDMA ports; NULL: not looked at */
	struct rank_offer offer[COLL_MAX_RANKS]; /* once providers are chosen: of the lanes in use */
	struct cable_use use[COLL_MAX_RANKS];
	char loopback[LANES_MAX][16]; /* netdevs of verbs lanes within this machine, in turns */
	int nloopback;
};

/* Where the rendezvous is and with which keys; serves it if this rank must. */
sircl_result_t start_meet(struct start *);
/* Candidate ports of this rank, the management interface marked. */
sircl_result_t start_ports(struct start *, struct record *);
/* The map: from rank order on one machine, else by hello. All ranks get the same. */
sircl_result_t start_cabling(struct start *);
/* The provider of each cable. All ranks get the same. */
sircl_result_t start_providers(struct start *);
/* The cable at this side of this rank, or -1; and the netdev of one of its lanes here, NULL: none. */
int start_cable_at(const struct start *, enum link_side);
const char *start_netdev(const struct start *, enum link_side, int lane);
/* Where the background thread should run; *bind false: anywhere. */
sircl_result_t start_placement(const struct start *, cpu_set_t *, bool *bind);
/* Logs device, cage and sister of this machine's ports, and warns where they do not fit the cables. */
void start_cages(struct start *);
/* Whether lanes with the same number of both links may share a PCI link of this machine: true unless their
 * PCI domains are known and differ. */
bool start_lanes_beside(const struct start *);
/* Opens links, exchanges their addresses, connects, waits. */
sircl_result_t start_links(struct start *);
#endif
