/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: what a communicator is, and how every public call begins and ends.
 *
 * Communicators that came from one sircl_comm_create share a home: context, fabric, engine. Different threads
 * may use different communicators of a home, so what they share is touched with the engine locked or is
 * atomic. Everything else of a communicator belongs to the one thread that is inside a call on it.
 */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H
#include <stdatomic.h>
#include "fabric/fabric.h"

#define COMM_MAGIC 0x53495243u /* "SIRC" */
#define REQUEST_MAGIC 0x53495251u /* "SIRQ" */
#define COMM_TEAM 1u /* team id of the communicator that sircl_comm_create makes */
#define HOME_TEAM 2u /* and of the ranks' last meeting, once there was a split */
#define TEAM_OWNER_SHIFT \
	16 /* ids of splits: who gave it (a node), and its count: no two teams of a fabric \
	      that share a rank have the same */
/* Channel of point-to-point traffic between two ranks of a team. Above the engine's (engine.h), and team ids
 * are below 2^22. */
#define P2P_CHANNEL(team) (0x40000000u | (team))
#define EARLY_NOTICES 8

enum p2p_dir { P2P_SEND, P2P_RECV, P2P_DIRS };

struct home {
	struct sircl_ctx ctx;
	struct fabric *fabric;
	sircl_comm_t first; /* of all ranks, while it starts */
	_Atomic int refs; /* communicators; release and acquire, so that the last sees what the others did */
	_Atomic uint32_t next_id; /* relaxed: a counter */
	/* With the engine locked: */
	sircl_comm_t comms;
	struct team *team; /* of all ranks; NULL until the first split */
	bool dead; /* a rank has died: every communicator that is made later ends at once */
	struct chan_notice death;
	struct chan_notice early[EARLY_NOTICES]; /* news about teams that are not here yet, a ring */
	unsigned nearly;
	/* Of the thread that destroys the last communicator: */
	struct op *op;
	uint64_t op_timeout;
	char name[64];
};

struct comm_memory {
	struct comm_memory *next;
	void *base;
	size_t bytes;
	bool ours; /* sircl_mem_alloc: we unmap it */
};

/* First in, first out. `behind` is the first that is not wholly handed to the channel. */
struct p2p_queue {
	struct sircl_request *head, *tail, *behind;
	unsigned inflight; /* messages in the channel */
};

struct comm_peer {
	struct chan *chan; /* opened at the first send or receive */
	struct p2p_queue q[P2P_DIRS];
};

struct premul {
	bool used;
	sircl_type_t type;
	uint64_t scalar;
};

struct sircl_comm {
	uint32_t magic;
	unsigned born; /* fork_generation() */
	struct home *home;
	struct sircl_ctx *ctx; /* the home's */
	struct fabric *fabric; /* the home's */
	sircl_comm_t next; /* in the home's list */
	char name[64];
	uint32_t id; /* of the team */
	int rank, n, pos;
	bool ring;
	uint16_t rank_of[COLL_MAX_RANKS]; /* position -> rank */
	uint16_t pos_of[COLL_MAX_RANKS]; /* rank -> position */
	uint16_t node_of[COLL_MAX_RANKS]; /* position -> position in the fabric */
	struct team *team; /* NULL with one rank */
	struct op *op; /* the one blocking collective at a time */
	struct comm_memory *memory;
	uint64_t op_timeout;
	_Atomic uint64_t ops; /* finished: point to point, and collectives of one rank; for reports */
	_Atomic size_t bytes; /* of requests and tables; for reports */
	/* End of a communicator of one rank, which has no team: 0, 1: being written, 2: `end` is valid. */
	_Atomic int ended;
	struct sircl_error end;
	_Atomic bool in_call; /* a thread is inside: a second one is refused */
	_Atomic bool finalized;
	struct sircl_error last; /* of the last failed call */
	/* requests */
	struct sircl_request *free_coll, *free_p2p;
	size_t unfinished; /* given out */
	sircl_comm_t wait_next; /* list of the call that waits */
	bool listed;
	sircl_comm_t group_next; /* list of the group that ends */
	/* point to point */
	struct comm_peer *peer;
	/* The queues, with the engine locked: whoever drives moves them on. A bit per rank: queue not empty;
	 * has a `behind`. The first is relaxed: read without the lock only to skip what has none. */
	_Atomic uint64_t active[P2P_DIRS];
	uint64_t behind[P2P_DIRS];
	struct p2p_queue self[P2P_DIRS];
	bool trouble, trouble_noted; /* a transfer has ended with `why`; told to all at trouble_at */
	struct sircl_error why;
	int why_rank;
	uint64_t trouble_at;
	bool closing, killed; /* the communicator has ended: the transfers are being taken back */
	uint64_t close_at;
	struct link_watch watch[LINK_SIDES];
	uint64_t wait_since, look_at, report_at;
	/* pre-multiplied sums */
	struct premul *premul;
	unsigned npremul;
};

#define P2P_XFERS 2 /* messages of one request that are with the channel at once */
enum request_state { REQUEST_FREE, REQUEST_COLLECTED, REQUEST_RUNNING, REQUEST_DONE };
struct sircl_request {
	uint32_t magic;
	_Atomic enum request_state state; /* release where a message ends, acquire in request_done */
	sircl_comm_t comm;
	struct sircl_request *next; /* in the pool or in a queue */
	struct sircl_request *more; /* in the list of a group or a wait */
	sircl_request_t *handle; /* in a group: where the caller keeps it; NULL: of a blocking call */
	sircl_result_t result; /* of what is no operation of the engine */
	bool is_coll;
	struct op *op; /* a collective's, kept in the pool; NULL: point to point, or one rank */
	struct op_args args; /* collective of one rank */
	/* point to point */
	enum p2p_dir dir;
	int peer;
	sircl_type_t type;
	size_t count, bytes;
	char *buf;
	unsigned parts, queued, done;
	struct xfer xfer[P2P_XFERS];
};

enum api_mode {
	API_DATA, /* collectives and point to point: may be in a group; the communicator has not ended */
	API_USABLE, /* not in a group; has not ended */
	API_ANY /* not in a group */
};
/* Begins a call: checks handle, fork, thread rule and state. A failed begin needs no end. */
sircl_result_t api_begin(sircl_comm_t, const char *call, enum api_mode);
/* Ends it: keeps the sentence of a failure for sircl_last_error, returns `result`. */
sircl_result_t api_end(sircl_comm_t, sircl_result_t result);
/* The same of a call that other ranks wait for: an error that is not the caller's ends the communicator. */
sircl_result_t api_end_data(sircl_comm_t, sircl_result_t result);
/* For what any thread may call at any time: only the handle and the fork. */
sircl_result_t api_look(sircl_comm_t, const char *call);

/* What has ended the communicator, or SIRCL_SUCCESS; e may be NULL. Any thread. */
sircl_result_t comm_error(const struct sircl_comm *, struct sircl_error *e);
/* Ends it here (told: and everywhere, because of the rank at `node` of the fabric). Engine locked. */
void comm_fail(sircl_comm_t, struct tick *, const struct sircl_error *, bool told, int node);
struct sircl_error abort_error(const struct sircl_comm *);

/* fork.c: changes in every child of a fork. */
void fork_watch(void);
unsigned fork_generation(void);

/* check.c: one sentence for each wrong argument; no side effects. */
sircl_result_t check_buffer(const char *call, const char *name, const void *p, size_t count);
sircl_result_t check_type(const char *call, sircl_type_t);
sircl_result_t check_root(const char *call, const struct sircl_comm *, int root);
/* bytes = count * size of type; an error if factor times that does not fit. */
sircl_result_t check_count(const char *call, size_t count, sircl_type_t, size_t factor, size_t *bytes);
/* [a, a + na) and [b, b + nb) must be disjoint, or a == b + in_place. */
sircl_result_t check_overlap(const char *call, const void *a, size_t na, const void *b, size_t nb,
			     ptrdiff_t in_place, const char *cure);
/* premul.c: checks an operation of the public header; a pre-multiplied sum becomes REDUCE_PREMUL_SUM and its
 * scalar. */
sircl_result_t check_op(const char *call, const struct sircl_comm *, struct op_args *);

/* home.c */
sircl_result_t ctx_open(struct sircl_ctx *, int rank, int n);
void ctx_close(struct sircl_ctx *);
void home_notice(void *home, struct tick *, const struct chan_notice *);
/* The messages of all communicators go on in every round of the driver, whatever their threads wait for. */
bool home_round(void *home, struct tick *);
/* Makes the communicator known; engine locked. */
void home_add(struct home *, struct tick *, sircl_comm_t);
/* All ranks meet (they may pass on what others still send); then the links are closed. goodbye: how long the
 * closing may take; 0: something has failed. */
sircl_result_t home_stop(struct home *, bool meet, uint64_t goodbye);
/* The library's own all-gather of `bytes` per rank. */
sircl_result_t comm_meet(struct home *, struct op *, const void *mine, void *all, size_t bytes);

/* comm.c */
sircl_comm_t comm_new(struct home *, int rank, int n); /* NULL: an error is set */
void comm_free(sircl_comm_t); /* memory only */
/* Name and limits out of the caller's configuration. */
sircl_result_t comm_config(sircl_comm_t, const char *call, const sircl_config_t *, uint64_t *start);
/* Opens the team (if more than one rank) and adds the communicator to its home. */
sircl_result_t comm_open_team(sircl_comm_t);
void comm_close(sircl_comm_t); /* channels, team, operations; leaves the home's list */

/* mem.c: the lanes forget all memory of a communicator (engine locked), then it is freed. */
void mem_deregister_all(sircl_comm_t, struct tick *);
void mem_free_all(sircl_comm_t);

/* request.c */
/* Out of the pools; NULL: an error is set. A collective's has an op if there is a team. */
struct sircl_request *request_coll(sircl_comm_t);
struct sircl_request *request_p2p(sircl_comm_t);
void request_release(struct sircl_request *); /* back to the pool */
void request_free_all(sircl_comm_t);
/* Prepared or filled in: begins. An error ends the communicator and is the request's result. */
void request_start(struct sircl_request *);
bool request_done(const struct sircl_request *);
/* After the end: the result, and this thread's last error. */
sircl_result_t request_result(const struct sircl_request *);
/* What a public call does with a request that has passed its checks: collects it if the thread is in a group,
 * else starts it and, for a blocking call (handle NULL), waits and releases it. */
sircl_result_t request_issue(struct sircl_request *, sircl_request_t *handle);

/* wait.c: until all requests of a list (by `more`) are done. The calls on their communicators have begun. */
void wait_requests(struct sircl_request *);
/* Moves the point-to-point queues of a communicator on; takes the engine's lock. */
void comm_pump(sircl_comm_t);

/* p2p.c; what says so: engine locked */
void p2p_enqueue(struct sircl_request *);
bool p2p_busy(const struct sircl_comm *);
uint64_t p2p_active(const struct sircl_comm *, int dir);
bool p2p_reap(sircl_comm_t); /* locked: what has ended; true: some */
bool p2p_attention(const struct sircl_comm *); /* locked, reaped: comm_pump has something to do */
void p2p_step(sircl_comm_t, struct tick *); /* locked */
/* In a round of the driver; true: something has moved. */
bool p2p_round(sircl_comm_t, struct tick *);
/* Who is waited for, who is not heard. Returns when to look again at the latest. */
uint64_t p2p_look(sircl_comm_t, struct tick *);
void p2p_close_all(sircl_comm_t, struct tick *); /* locked */
/* Every channel has been opened by its far end, and what was sent is acknowledged; locked. */
bool p2p_all_met(const struct sircl_comm *);
bool p2p_all_idle(const struct sircl_comm *);
enum link_side p2p_way(const struct sircl_comm *, int peer);
size_t p2p_memory(const struct sircl_comm *); /* locked: of its channels */
/* p2p_self.c: a send and a receive of the same rank */
void self_start(struct sircl_request *);
void self_cancel(struct sircl_request *);
/* A blocking call must not wait for a partner that only its own thread could start. */
void self_give_up(struct sircl_request *);

/* group.c */
bool group_open(void); /* this thread is in a group */
void group_collect(struct sircl_request *, sircl_request_t *handle);
void group_note(sircl_result_t); /* a call inside the group has failed its checks; the thread's last error
				    says why */
#endif
