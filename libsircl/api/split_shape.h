/* SPDX-License-Identifier: Apache-2.0 */
/* How the members of a split lie along the cables: a pure function, so that all of them find the same. */
#ifndef API_SPLIT_SHAPE_H
#define API_SPLIT_SHAPE_H
#include <stdbool.h>
#include <stdint.h>
#include "coll/coll.h"

struct split_member {
	int32_t colour, key;
};

struct split_shape {
	int n; /* members of the colour */
	bool ring;
	uint16_t parent_of[COLL_MAX_RANKS]; /* rank -> rank in the parent, ordered by (key, rank in the
					       parent) */
	uint16_t rank_of[COLL_MAX_RANKS]; /* position -> rank */
	uint16_t node_of[COLL_MAX_RANKS]; /* position -> node; ascending round the ring from position 0 */
};

/*
 * The communicator of `colour`. member and parent_node: of each rank of the parent (n of them); nodes and
 * net_ring: of the fabric that carries it all. It is a ring if the fabric is one and no two members that
 * follow each other are more than half of it apart: then every piece of the ring is used once. Else a line,
 * opened at the longest gap (the first of several, from node 0 up).
 */
void split_shape(const struct split_member *member, const uint16_t *parent_node, int n, int colour, int nodes,
		 bool net_ring, struct split_shape *);
#endif
