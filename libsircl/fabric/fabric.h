/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From nothing to connected links: rendezvous over the management network, hello on every candidate
 * interface, ring map, lanes. Blocking, at start only; every wait has a limit and a sentence that names rank
 * and address.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H
#include "engine/engine.h"
#include "link/chan.h"

/* A unique id's contents; exactly SIRCL_UNIQUE_ID_BYTES on the wire. */
struct fabric_id;

/* Rendezvous root: a listening socket and a thread that serves one job. */
struct fabric_root;
/*
 * Opens the root on the management interface (or a unix socket, when `local`), with a fresh secret, and
 * writes the id.
 */
sircl_result_t fabric_root_create(struct sircl_ctx *, bool local, sircl_unique_id_t *, struct fabric_root **);
void fabric_root_destroy(struct fabric_root *); /* waits for a job that is being served, at most its limit */

/* Everything a started context has. */
struct fabric {
	struct sircl_ctx *ctx;
	struct key_ring keys;
	uint8_t job[16];
	int rank, n, pos;
	bool ring;
	uint16_t rank_of[COLL_MAX_RANKS]; /* position -> rank */
	enum coll_class class;
	int ranks_here; /* ranks of this job on this machine */
	struct chan_net *net;
	struct link *link[LINK_SIDES]; /* NULL: none */
	struct engine *engine;
};

struct fabric_cfg {
	struct sircl_ctx *ctx; /* the caller's; must outlive the fabric */
	int rank, n;
	const sircl_unique_id_t *id; /* NULL: from the environment */
	uint64_t limit; /* time (ctx->clock) by which everything must be up */
	void (*notice)(void *user, struct tick *, const struct chan_notice *);
	void *user;
};
/*
 * Meets the other ranks, finds the cabling (shm and loopback tcp: rank order), opens and connects links,
 * creates net and engine. All ranks get the same outcome: go, or one sentence.
 */
sircl_result_t fabric_start(const struct fabric_cfg *, struct fabric **);
/* Orderly: BYE on both links, waits at most `limit_ns`, then frees everything. */
sircl_result_t fabric_stop(struct fabric *, uint64_t limit_ns);

/* For sircl run: a secret for SIRCL_SECRET (hex), at least 65 bytes of room. */
sircl_result_t fabric_make_secret(char *hex, size_t n);
#endif
