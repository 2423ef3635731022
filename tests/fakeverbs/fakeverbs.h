/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controls of fakeverbs, a stand-in for rdma-core over shared memory (README.md of tests/). Programs use
 * it as rdma-core; tests use these beside. All functions may be called from any thread. Nothing here has
 * anything to do with hardware: it keeps the promises of RC queue pairs and no more.
 */
#ifndef FAKEVERBS_H
#define FAKEVERBS_H
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* The exported functions, not the macros of the same name, as in lane/verbs_lib.h. */
#undef ibv_reg_mr
#undef ibv_query_port

struct verbs_lib;
extern const struct verbs_lib fakeverbs_lib; /* lane/verbs_lib.h, filled with the functions of the fake */

/* 0: everything as early as possible; else what is late, in pieces or out of order follows from it. Default:
 * $FAKEVERBS_SEED, else 1. */
void fakeverbs_seed(uint64_t seed);

/* The k-th call from now on (k = 1: the next) fails with `err` (0: one that fits the call). k = 0: none.
 * Destructors do their work and report failure. Calls that cannot fail, and polls and gets that find nothing,
 * are not counted. */
void fakeverbs_fail_at(uint64_t k, int err);
uint64_t fakeverbs_calls(void); /* since the process began */
bool fakeverbs_failed(void); /* the planned failure has come */

/* Holds the bytes of the next k WRITEs that arrive at queue pairs of this process, and with them whatever is
 * behind on the same queue pair. */
void fakeverbs_hold(int k);
int fakeverbs_held(void); /* WRITEs held now (dropped ones not included) */
/* Lets go. What belongs to a queue pair in the error state has been dropped. Returns how many pieces
 * landed. */
int fakeverbs_release(void);

struct fakeverbs_counts {
	uint64_t rnr; /* messages that found no receive */
	uint64_t landed, dropped; /* pieces of WRITEs */
	uint64_t disorder; /* pieces that landed before an earlier one of their queue pair */
	uint64_t sends, writes; /* messages that arrived */
	uint64_t cq_overflows, queue_full; /* posts that were refused */
};
void fakeverbs_counts(struct fakeverbs_counts *);

/* Living objects of this process: ids, queue pairs, completion queues, domains, regions, contexts (those that
 * librdmacm keeps open not included), channels, un-acknowledged events. */
int fakeverbs_open_objects(void);
void fakeverbs_print_objects(void);

int fakeverbs_ack_timeout(const struct rdma_cm_id *); /* as set by RDMA_OPTION_ID_ACK_TIMEOUT; -1: not */

/* Cables, in all processes of the lab. dev: "fake_lo" of this network namespace. -1: no such device. */
int fakeverbs_cut(const char *dev);
int fakeverbs_mend(const char *dev);
int fakeverbs_gid_shuffle(const char *dev); /* another order each time */
int fakeverbs_gid_hole(const char *dev, int index); /* an empty entry there; -1: none */
/* What the port takes, in bytes, of the ends that connect and of those that accept: one device may be both
 * ends of a cable. 0: what fits the netdev. Larger packets are lost. ibv_query_port does not know of it. */
int fakeverbs_mtu(const char *dev, uint32_t connects, uint32_t accepts);
int fakeverbs_fatal(const char *dev); /* for good */
#endif
