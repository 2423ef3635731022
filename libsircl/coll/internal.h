/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to coll/: the builder that grows a plan step by step. Builders call it without checking; the first
 * failure is kept in `err` and turns everything after it into nothing.
 */
#ifndef COLL_INTERNAL_H
#define COLL_INTERNAL_H
#include "coll/coll.h"

struct build {
	const struct plan_key *key;
	struct plan *plan;
	unsigned room; /* steps allocated */
	sircl_result_t err;
};

/* Spans. Scratch gets a fresh number. */
struct plan_span build_in(int block);
struct plan_span build_out(int block);
struct plan_span build_scratch(struct build *, int as);

/* Steps; each returns its number. */
int build_send(struct build *, enum plan_chan, struct plan_span src);
int build_recv(struct build *, enum plan_chan, struct plan_span dst);
int build_reduce(struct build *, struct plan_span dst, const struct plan_span src[], int nsrc,
		 unsigned flags);
int build_copy(struct build *, struct plan_span dst, struct plan_span src);
/* Slice i of `step` waits until slice i of `other` is finished; until slice i of the SEND `send` is released.
 * Negative: nothing to wait for. */
void build_after(struct build *, int step, int other);
void build_released(struct build *, int step, int send);

/* The builders; each fills in name, order, nblocks, parts, depth, window and the steps. */
void build_all_reduce_matchings(struct build *);
void build_all_reduce_doubling(struct build *);
void build_all_reduce_exchange(struct build *);
void build_all_reduce_ring(struct build *);
void build_all_gather_exchange(struct build *);
void build_all_gather_ring(struct build *);

/* How many hops the contribution of position p travels towards NEXT (up) and PREV (down) in an exchange. */
int exchange_up(const struct plan_key *, int p);
int exchange_down(const struct plan_key *, int p);
#endif
