/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From nothing to connected links: rendezvous over the management network, hello on every candidate
 * interface, ring map, lanes. Blocking, at start only; every wait has a limit and a sentence that names rank
 * and address.
 *
 * A machine is what shares memory: ranks with the same kernel (boot id), network and process namespace and
 * user. Ranks of one machine follow each other along the ring, in rank order, over shm lanes (loopback if
 * SIRCL_TRANSPORT=tcp). Between machines lanes run over the cables that hello finds: the machine's lowest
 * rank has its PREV cable, the highest its NEXT. The job's class is that of its slowest lanes.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H
#include "engine/engine.h"
#include "link/chan.h"

struct rdv_root;

/*
 * For sircl_get_unique_id: opens a rendezvous root on the management interface with a fresh secret and writes
 * the id. `ctx` must outlive the root; rdv_root_stop (fabric/rdv.h) ends it.
 */
sircl_result_t fabric_make_id(struct sircl_ctx *, sircl_unique_id_t *, struct rdv_root **);

/* Everything a started context has. */
struct fabric {
	struct sircl_ctx *ctx;
	struct key_ring keys;
	uint8_t job[16];
	int rank, n, pos;
	bool ring;
	uint16_t rank_of[COLL_MAX_RANKS]; /* position -> rank */
	enum coll_class class;
	bool nics; /* a cable has verbs lanes */
	int ranks_here; /* ranks of this job on this machine */
	struct chan_net *net;
	struct link *link[LINK_SIDES]; /* NULL: none */
	struct engine *engine;
	struct rdv_root *root; /* on the rank that serves the rendezvous itself */
	bool given; /* to the caller, by `ready` */
};

struct fabric_cfg {
	struct sircl_ctx *ctx; /* the caller's; must outlive the fabric */
	int rank, n;
	const sircl_unique_id_t *id; /* NULL: from the environment */
	uint64_t limit; /* time (ctx->clock) by which everything must be up */
	void (*notice)(void *user, struct tick *, const struct chan_notice *);
	/*
	 * Called once, when links and engine are there and before any rank may go on: what it opens is open
	 * before a peer that is done already can have gone again. From here on the fabric is the caller's to
	 * stop, also if the start fails after all.
	 */
	sircl_result_t (*ready)(void *user, struct fabric *);
	void *user;
};
/*
 * Meets the other ranks, finds the cabling (shm and loopback tcp: rank order), opens and connects links,
 * creates net and engine. All ranks get the same outcome: go, or one sentence.
 */
sircl_result_t fabric_start(const struct fabric_cfg *);
/* Orderly: BYE on both links, waits at most `limit_ns`, then frees everything. */
sircl_result_t fabric_stop(struct fabric *, uint64_t limit_ns);
#endif
