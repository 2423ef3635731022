/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which provider carries each cable. Each end asks its ports whether verbs lanes can run over them; all ranks
 * tell each other what they found; the choice is a pure function of that, so all make the same one.
 *
 * A cable's lanes have one provider: verbs if at least one lane can at both ends (lanes that cannot are left
 * out: one RoCE lane is faster than any number of tcp lanes), else tcp.
 */
#ifndef FABRIC_PROVIDER_H
#define FABRIC_PROVIDER_H
#include "fabric/record.h"
#include "link/link.h"

/* One end of a lane. */
struct lane_offer {
	bool verbs, filtered; /* filtered: SIRCL_HCA leaves the device out */
	char device[64]; /* "": none */
	uint32_t port, mtu; /* of the RDMA device; mtu: bytes of a RoCE packet now */
	uint8_t family; /* of the address that its lane would have: 4 or 6 */
	char why_not[224]; /* a clause; "" if it can */
};

/* What a rank has at its two cables, lanes in the order of the map. */
struct rank_offer {
	struct {
		int nlanes; /* 0: no cable, or a shm cable, which needs none */
		struct lane_offer lane[LANES_MAX];
	} side[LINK_SIDES];
};

enum provider_want { WANT_AUTO, WANT_SHM, WANT_TCP, WANT_VERBS }; /* SIRCL_TRANSPORT */

struct cable_use {
	enum coll_class class; /* CLASS_SHM, CLASS_TCP, CLASS_VERBS */
	int left_out; /* lanes of the map that verbs cannot use */
	/* The first lane end that cannot run verbs, while verbs was asked for: rank, its offer; else -1. */
	int rank;
	struct lane_offer no;
	char netdev[16]; /* "": loopback */
};

size_t offer_write(const struct rank_offer *, void *buf, size_t n);
/* `rank`, `host`: for the message. */
sircl_result_t offer_read(struct rank_offer *, int rank, const char *host, const void *buf, size_t n);
/*
 * Fills use[] for each cable of the map, and takes lanes that are left out from the map and from the offers.
 * offer: of each rank; NULL: nobody was asked (shm, tcp). SIRCL_BAD_CONFIG: WANT_VERBS, and a cable cannot.
 */
sircl_result_t provider_choose(enum provider_want, struct ring_map *, const struct record *,
			       const uint16_t *leader, struct rank_offer *offer, struct cable_use *use);
/* The slowest of all cables; CLASS_SHM if there is none. */
enum coll_class provider_class(const struct cable_use *, int ncables);
/* One line about cable c: "cable 0: verbs, 2 lanes: ...", and why not verbs, unless a cable below c has the
 * same reason. Into buf, returns buf. */
const char *provider_text(const struct ring_map *, const struct record *, const struct rank_offer *,
			  const struct cable_use *, int c, char *buf, size_t n);
#endif
