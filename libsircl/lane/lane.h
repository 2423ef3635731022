/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: one path to one neighbour. ONE verb: put bytes into memory that the peer exported, then deliver a
 * note.
 *
 * What every provider promises, and the link builds on:
 *  - note n is delivered after all bytes of put n are readable by this CPU; notes of one lane, of one epoch,
 * arrive in order, each once; nothing else about order is promised, and two lanes are unordered;
 *  - a put's bytes may land in pieces at any time from put() until this end has reported LANE_FENCED for its
 * epoch, never after;
 *  - the source of a put is read from put() until the LINK releases the frame (the peer link has acknowledged
 * it, or the lane is fenced at the peer), so the link keeps it that long; a `lossless` provider has copied it
 * when put() returns and cannot lose it;
 *  - the peer writes region 0 and regions whose export was asked for, nothing else: whatever it tries, a lane
 * that would have to write elsewhere is suspected instead (shm: but for what the kernel lets any process of
 * this user do);
 *  - no function blocks; put, poll, arm never allocate.
 *
 * Life: open -> listening at `local`. connect (one side: cfg.connects) or allow (the other) for an epoch ->
 * handshake with mutual proof (base/auth.h, context = job id, cable, lane, epoch) -> LANE_UP{epoch} at both
 * ends. Error, closed by the peer, or a peer that asks for a newer epoch while this end is up -> LANE_SUSPECT
 * (once per epoch). fence(epoch) -> LANE_FENCED{epoch}. Then allow/connect again with a higher epoch. A
 * handshake that fails gives LANE_DOWN{epoch}. One thread (the driver) uses a lane.
 */
#ifndef LANE_LANE_H
#define LANE_LANE_H
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/auth.h"
#include "base/ctx.h"

#define LANES_MAX 8 /* lanes of one link */
#define LANE_REGIONS_MAX 64 /* memory regions of one lane */

/* The address of an open lane: provider-defined bytes that travel in rendezvous records. No pointers. */
struct lane_addr {
	uint16_t len;
	uint8_t b[126];
};

/* Memory that this end registered; `id` is the number the link gave it, the same on all lanes of the link. */
struct lane_mem {
	void *base;
	size_t len;
	uint32_t id;
	uint64_t impl;
};

/* What the peer needs in order to put into a region: travels in a note, so it is small. tcp, sim: key = id;
 * shm: addr = the owner's address for process_vm_writev, unless the region is the arena, which the peer maps;
 * verbs: rkey and address. */
struct lane_export {
	uint64_t addr;
	uint64_t len;
	uint32_t key;
};

/* 48 bytes, authored by the link (link/frame.h), opaque to the lane. */
struct lane_note {
	uint64_t w[6];
};

struct lane_put {
	const void *src; /* NULL when len is 0 */
	uint32_t len;
	const struct lane_mem *smem; /* the registered region that holds src; NULL only if !ops->needs_reg */
	const struct lane_export *dst; /* ignored when len is 0 */
	uint64_t dst_off; /* from the beginning of the exported region */
	struct lane_note note;
};

enum lane_ev {
	LANE_UP, /* epoch; peer_export is valid from here on */
	LANE_NOTE, /* note */
	LANE_DONE, /* `done` more puts are certainly at the peer's link; for striping and rates only, in order
		      of posting. A lossless provider has none: what it has accepted is there */
	LANE_SUSPECT, /* epoch; why */
	LANE_FENCED, /* epoch: nothing of this or an older epoch can land here, and all its notes have been
			delivered */
	LANE_DOWN, /* epoch: a handshake ended without LANE_UP; why */
};

struct lane_event {
	enum lane_ev ev;
	uint32_t epoch;
	uint32_t done;
	struct lane_note note;
	const char *why; /* one clause; valid until the next poll of this lane */
	bool gone; /* SUSPECT, DOWN: evidence that the peer's process is not there: hang-up, end of file,
		      reset, refused connection. Not: silence, carrier loss, time limits, protocol errors */
};

struct lane_cfg {
	struct sircl_ctx *ctx;
	const struct key_ring *keys;
	const char *lab; /* tag for socket names */
	uint8_t job[16]; /* job id: the same at both ends, different for two jobs */
	uint16_t cable, lane; /* for messages and the handshake: cable number, lane within it */
	uint16_t self, peer; /* positions, for messages and names */
	bool connects; /* this end connects (the other accepts) */
	const char *dev; /* netdev to bind to; NULL: loopback (verbs: the first netdev that can) */
	uint32_t max_notes; /* the link never has more puts outstanding (un-acknowledged) on this lane */
	void *arena_base; /* region 0: the link's receive memory, registered by open */
	size_t arena_len;
	int arena_fd; /* memfd of region 0, -1: none */
	void *provider; /* lane/sim: struct sim_port * */
};

struct lane_stats {
	uint64_t puts, put_bytes, notes, note_bytes, syscalls;
};

struct lane; /* providers embed struct lane_base first */

struct lane_ops {
	const char *name;
	bool can_fence; /* false (shm: the sender's CPU copies): such a lane is never suspected for silence;
			 * only the peer process's end fences it */
	bool lossless; /* true (shm): a put that was accepted is at the peer; sources are free at once,
			  nothing is replayed */
	bool needs_reg; /* sources must lie in registered memory (verbs, sim); the link stages everything else
			 */
	uint32_t max_put; /* most bytes of one put */
	uint32_t copy_limit; /* the link copies frames up to this size to its own send memory, so that the
				source is free at once */
	sircl_result_t (*open)(const struct lane_cfg *, struct lane **, struct lane_addr *local);
	/* Starts a handshake for `epoch` with the lane at `peer`. Ends in LANE_UP or LANE_DOWN within 2 s. */
	sircl_result_t (*connect)(struct lane *, struct tick *, const struct lane_addr *peer, uint32_t epoch);
	/* Accepting side: epochs >= min_epoch may come up from now on. Also cancels (either side) a half-open
	 * handshake of an epoch < min_epoch: it will never report LANE_UP. */
	void (*allow)(struct lane *, uint32_t min_epoch);
	/* Memory that puts may read and, if the export is asked for (not NULL), that the peer may write. */
	sircl_result_t (*reg)(struct lane *, uint32_t id, void *, size_t, struct lane_mem *,
			      struct lane_export *);
	void (*unreg)(struct lane *,
		      struct lane_mem *); /* needs the local fence, or no frame in flight from or to it */
	const struct lane_export *(*peer_export)(const struct lane *); /* the peer's region 0 */
	int (*put)(struct lane *, struct tick *, const struct lane_put *,
		   int n); /* accepts 0..n of them, in order */
	int (*poll)(struct lane *, struct tick *, struct lane_event *, int max);
	int (*arm)(struct lane *, struct pollfd *,
		   int max); /* before sleeping: fds to watch, or -1 if something is ready now */
	uint64_t (*deadline)(
		const struct lane *); /* poll must be called by then although no fd is ready; NEVER */
	void (*fence)(struct lane *, uint32_t epoch);
	void (*close)(struct lane *);
	/* counters for reports; payload bytes and puts, both directions, since open */
	void (*stats)(const struct lane *, struct lane_stats *);
};

struct lane_base {
	const struct lane_ops *ops;
};

static inline const struct lane_ops *lane_ops_of(const struct lane *l)
{
	return ((const struct lane_base *)(const void *)l)->ops;
}

extern const struct lane_ops lane_shm_ops, lane_tcp_ops, lane_sim_ops;
extern const struct lane_ops lane_verbs_ops; /* only where the headers of rdma-core are */
/* "shm", "tcp", "verbs"; NULL if unknown, or not in this build (verbs: no headers of rdma-core) */
const struct lane_ops *lane_provider(const char *name);
uint64_t lane_clock_real(void *arg); /* CLOCK_MONOTONIC, ns */
#endif
