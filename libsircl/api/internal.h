/* SPDX-License-Identifier: Apache-2.0 */
/* Private to api/: what a communicator is, and how every public call begins and ends. */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H
#include <stdatomic.h>
#include "fabric/fabric.h"

#define COMM_MAGIC 0x53495243u /* "SIRC" */
#define COMM_TEAM 1u /* team id of the whole communicator within its context */
#define P2P_CHANNEL 0x50325000u /* channel id of point-to-point traffic between any two positions */

struct comm_memory {
	struct comm_memory *next;
	void *base;
	size_t bytes;
	bool ours; /* sircl_mem_alloc: we unmap it */
};

struct comm_peer {
	struct chan *chan; /* opened at the first send or receive */
	uint64_t sent, received;
};

struct sircl_comm {
	uint32_t magic;
	struct sircl_ctx ctx;
	char name[64];
	int rank, n, pos;
	struct fabric *fabric;
	struct team *team; /* NULL with one rank */
	struct op *op; /* the one blocking collective at a time */
	struct comm_peer *peer;
	struct comm_memory *memory;
	uint64_t op_timeout;
	_Atomic uint64_t
		ops; /* finished: point to point, and collectives of one rank; relaxed, for reports */
	_Atomic bool
		aborted; /* of one rank, which has no team that could end; relaxed: it says nothing else */
	bool has_early; /* news that came before there was a team; engine locked */
	struct chan_notice early;
	_Atomic bool in_call; /* a thread is inside: a second one is refused */
	_Atomic bool finalized;
	struct sircl_error last; /* of the last failed call */
};

/*
 * Begins a call: checks handle, thread rule, state and (if `usable`) that the communicator has not ended. A
 * failed begin needs no end.
 */
sircl_result_t api_begin(sircl_comm_t, const char *call, bool usable);
/* Ends it: keeps the sentence of a failure for sircl_last_error, returns `result`. */
sircl_result_t api_end(sircl_comm_t, sircl_result_t result);

/* What has ended the communicator, or SIRCL_SUCCESS. Any thread. */
sircl_result_t comm_error(const struct sircl_comm *, struct sircl_error *);
struct sircl_error abort_error(const struct sircl_comm *);

/* One sentence for each wrong argument; no side effects. */
sircl_result_t check_buffer(const char *call, const char *name, const void *p, size_t count);
sircl_result_t check_type(const char *call, sircl_type_t);
sircl_result_t check_op(const char *call, sircl_type_t, sircl_op_t);
/* bytes = count * size of type * factor; an error if that does not fit. */
sircl_result_t check_count(const char *call, size_t count, sircl_type_t, size_t factor, size_t *bytes);
/* [a, a + na) and [b, b + nb) must be disjoint, or a == b + in_place. */
sircl_result_t check_overlap(const char *call, const void *a, size_t na, const void *b, size_t nb,
			     size_t in_place);

/* mem.c: forgets all memory of a communicator. */
void mem_free_all(sircl_comm_t);
/* p2p.c: closes channels; engine locked by the caller. */
void p2p_close_all(sircl_comm_t, struct tick *);
bool p2p_all_idle(const struct sircl_comm *);
#endif
