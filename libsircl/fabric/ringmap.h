/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From who heard whom to a ring (or line) of cables with numbered lanes. A pure function of its input, so
 * that every rank that has the same reports reaches the same map. No I/O.
 *
 * Ports that hear each other lie in one segment. A segment with ports of exactly two machines is a cable; one
 * with more machines is a switch or the management network and no cable. Within a cable, lanes pair ports of
 * the same PCI domain where all domains are known and distinct at both ends, else by ascending interface
 * index.
 *
 * Cables join machines. Ranks of one machine follow each other in rank order, joined by local cables: the
 * lowest has the machine's PREV cable, the highest its NEXT.
 */
#ifndef FABRIC_RINGMAP_H
#define FABRIC_RINGMAP_H
#include "base/error.h"
#include "coll/coll.h"
#include "lane/lane.h"

#define MAP_PORTS_MAX 20 /* candidate ports of one rank: two cables of 8 lanes, management, some more */
#define MAP_HEARD_MAX 512 /* one rank's report: each of its 20 ports hears at most 7 twins and 8 far ones */

struct map_port {
	char name[16];
	uint32_t index, pci_domain, mtu;
	bool excluded; /* the management interface */
};

struct map_heard {
	uint8_t port; /* mine */
	uint16_t rank; /* whom */
	uint8_t peer_port; /* on which of theirs */
};

struct map_rank {
	char host[64];
	uint16_t leader; /* the lowest rank on the same machine, if `shares`: the only one of them with ports
			    and reports */
	bool shares; /* its machine with the rank `leader`, which may be itself */
	int nports, nheard;
	struct map_port port[MAP_PORTS_MAX];
	struct map_heard heard[MAP_HEARD_MAX];
};

struct map_cable {
	uint16_t rank[2]; /* at position p (its NEXT) and p + 1 (its PREV) */
	int nlanes;
	uint8_t port[2][LANES_MAX];
	int local; /* 1: between two ranks of one machine: no device, no ports */
	int nports[2]; /* ports seen at each end: more than nlanes: some are unused */
};

struct ring_map {
	int n;
	bool ring;
	uint16_t rank_of[COLL_MAX_RANKS]; /* position -> rank */
	int ncables; /* n on a ring, n - 1 on a line; cable p joins positions p and p + 1 (mod n) */
	struct map_cable cable[COLL_MAX_RANKS];
	char text[512]; /* "0 =2= 1 =2= 2 ..." for the INFO line */
};

/*
 * SIRCL_SUCCESS: a connected ring or line. SIRCL_IN_PROGRESS: not all ranks are joined yet (or only as a line
 * while `want_ring`); the thread's error tells what is seen. SIRCL_BAD_CONFIG: cabling that no waiting mends
 * (a rank with three cables). max_lanes: 0: all.
 */
sircl_result_t ring_map_build(const struct map_rank *, int n, int max_lanes, bool want_ring,
			      struct ring_map *);
#endif
