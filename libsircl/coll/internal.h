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

/* The builders; each fills in name, order, nblocks, parts, depth, window and the steps. A barrier has the
 * plans of an all-reduce. */
void build_all_reduce_matchings(struct build *);
void build_all_reduce_doubling(struct build *);
void build_all_reduce_exchange(struct build *);
void build_all_reduce_ring(struct build *);
void build_all_reduce_two_shot(struct build *);
void build_all_reduce_pipeline(struct build *);
void build_all_gather_exchange(struct build *);
void build_all_gather_ring(struct build *);
void build_reduce_scatter_exchange(struct build *);
void build_reduce_scatter_ring(struct build *);
void build_reduce_scatter_pipeline(struct build *);
void build_broadcast_exchange(struct build *);
void build_broadcast_pipeline(struct build *);
void build_reduce_exchange(struct build *);
void build_reduce_pipeline(struct build *);
void build_all_to_all_exchange(struct build *);
void build_gather_exchange(struct build *);
void build_scatter_exchange(struct build *);

/* What follows from a plan's steps (derive.c). */
void plan_mark_fusable(struct build *); /* RECVs that the engine may reduce from the channel's window */
void plan_scale(struct build *); /* the plan of a pre-multiplied sum from that of a sum */
void plan_count_held(const struct plan *, uint16_t *held, uint16_t *wide);

static inline int position_of(const struct plan_key *k, int rank)
{
	int p = 0;

	while (k->rank_of[p] != rank)
		p++;
	return p;
}

/* How many hops the contribution of position p travels towards NEXT (up) and PREV (down) in an exchange. */
int exchange_up(const struct plan_key *, int p);
int exchange_down(const struct plan_key *, int p);

/* Where a contribution is on this position, and the step after which it is there (-1: from the start). */
struct held {
	struct plan_span span;
	int recv;
};
/* dst = the sum of held[0..n-1] (by position) in rank order, with one rounding. Returns the last step. */
int sum_in_rank_order(struct build *, const struct held held[], struct plan_span dst, int as);

/* ---- routes (route.c) ---- */

#define ROUTE_BLOCKS (2 * COLL_MAX_RANKS)

struct flow {
	int src, hops, dir; /* position; dir +1: upwards, towards NEXT; -1: downwards */
	bool all; /* everybody on the way takes it, not only the last */
	int part; /* which of `got` it arrives in */
	uint16_t as; /* which block's length it has */
	struct plan_span from; /* at the source */
	int ready; /* at the source: the step after which it is there; -1: from the start */
	struct plan_span into; /* where it is taken. SCRATCH: a fresh block, noted in `got` */
	uint32_t base, stride; /* hop h travels at time base + h * stride */
};

struct route {
	struct build *b;
	struct route_event *event;
	struct route_transit *transit;
	struct route_relay *relay;
	unsigned nevents, ntransits, nrelays;
	unsigned idle; /* blocks of scratch that are kept back for a while after their SEND */
	int sent[ROUTE_BLOCKS]; /* SEND of each block of IN; -1: none */
	struct held got[2][COLL_MAX_RANKS]; /* per part, by source */
};

void route_init(struct route *, struct build *);
void route_free(struct route *);
void route_flow(struct route *, const struct flow *);
void route_run(struct route *); /* makes the steps of all flows since the last call */
/* Scratch of the same store for a builder's own use: written at time t, when `last_send` is released; read by
 * the SEND that is then told to route_scratch_sent. */
struct plan_span route_scratch(struct route *, uint32_t t, uint16_t as, int *last_send);
void route_scratch_sent(struct route *, uint32_t t, struct plan_span, int send);
#endif
