/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine executes plans over channels. One per context (a context is an object: one per communicator made
 * by rendezvous today; many in one process in tests, as threads or in the simulator).
 *
 * Driver token: whoever waits takes it and drives: links, channels and all running operations advance
 * together. Never two drivers. A background thread (engine_background) takes over only when nobody has driven
 * for ~100 us, and sleeps on the lanes' descriptors when nothing happens. Nothing here reads a clock but
 * ctx->clock in engine_wait and the background thread.
 *
 * Operations are prepared objects: op_prepare_* once, then engine_start: a trigger (a call today, a word in
 * memory later). The number of the operation is taken at the start. A team is what a communicator is to the
 * engine: channels to NEXT and PREV and a count of operations.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H
#include <sched.h>
#include "coll/coll.h"
#include "engine/plan.h"
#include "link/chan.h"
#include "reduce/reduce.h"

struct engine;
struct team;
struct op;

struct engine_cfg {
	struct sircl_ctx *ctx;
	struct chan_net *net; /* the caller's; must outlive the engine */
	bool background; /* start the background thread (never in the simulator) */
	const cpu_set_t *cpus; /* where the background thread runs, read at creation; NULL: left alone */
	int ranks_here; /* ranks on this machine, for the waiting rule: more than cores -> spin under 1 us,
			   then yield */
};
sircl_result_t engine_create(const struct engine_cfg *, struct engine **);
/* What the owner moves on in every round of whoever drives, with the token held; true: it has moved. */
void engine_also(struct engine *, bool (*more)(void *, struct tick *), void *arg);
void engine_destroy(struct engine *); /* ends the background thread first */

/* Takes the token, advances everything once, gives it back. True: something happened. *busy: something
 * happened, or somebody else drives: worth calling again at once. */
bool engine_drive(struct engine *, struct tick *, bool *busy);
/* Takes the token for a caller that wants to call chan_* or link_* itself (waits for the present driver to
 * finish its round); gives it back. */
void engine_lock(struct engine *);
void engine_unlock(struct engine *);
uint64_t engine_deadline(const struct engine *); /* latest time to be driven although nothing arrives */

/* The engine's channels have ids below 2^30, made of the team and the cable; ids above are free for others.
 */
#define TEAM_ID_LIMIT (1u << 22)
#define TEAM_CHAN_ID(team, cable) ((uint32_t)(team) << 8 | (uint32_t)(cable))

struct team_cfg {
	const char *name;
	uint32_t
		id; /* the same on all ranks of the team, unique in the context: channel ids derive from it */
	int rank, n, pos; /* within the team */
	enum coll_shape shape;
	enum coll_class class;
	uint16_t rank_of[COLL_MAX_RANKS]; /* position -> rank, both within the team */
	/* Position within the team -> position within the net. They ascend round the ring, so that NEXT of
	 * the team leaves by the NEXT cable of the machine; neighbours of a team that are none in the net are
	 * joined through relays. */
	uint16_t node_of[COLL_MAX_RANKS];
	uint64_t op_timeout; /* ns */
};
/* Opens the team's channels; does not block. */
sircl_result_t team_create(struct engine *, struct tick *, const struct team_cfg *, struct team **);
/* Why the team has ended (first error, kept), or SIRCL_SUCCESS. Any thread. */
sircl_result_t team_error(const struct team *, struct sircl_error *);
/* Ends the team with this error: running operations finish with it. Any thread. Does not tell others. */
void team_fail(struct team *, const struct sircl_error *);
/* The same with the token held, and tells all other ranks, with `subject` (position in the net) as whom it is
 * about. Nothing if the team has ended already: that was told. */
void team_fail_all(struct team *, struct tick *, const struct sircl_error *, int subject);
/* How long a failed end waits for the news why a peer has closed its channel, and for the peer to give back
 * memory that it may still write to; then the link is killed, which fences its lanes. */
#define HEARSAY_GRACE (150 * MSEC)
#define CLOSE_GRACE (2 * SEC)
void team_destroy(struct team *, struct tick *); /* closes channels; no operation may be running */

struct op_args {
	enum coll_kind kind;
	const void *in;
	void *out;
	size_t count; /* elements, as the public call gives them: all-gather, reduce-scatter, all-to-all,
			 gather, scatter: of one rank's share */
	sircl_type_t type;
	sircl_op_t op; /* or REDUCE_PREMUL_SUM */
	uint64_t scalar; /* of a pre-multiplied sum; ranks may differ */
	int root; /* rank; 0 for kinds without */
	bool meeting; /* the library's own, at the end: any algorithm, and no call of the user matches it */
};
/* A reusable operation object. One operation of it runs at a time; those of a team run in the order in which
 * they were started. Tables and scratch are the team's. */
sircl_result_t op_create(struct team *, struct op **);
void op_destroy(struct op *);
/* Chooses algorithm and slice, finds the plan; allocates where a plan is new or larger than any before.
 * What a rank does not have (IN of a broadcast on others than the root) may be NULL; a barrier has neither
 * buffers, count nor type. SIRCL_UNSUPPORTED etc. leave the team unharmed. */
sircl_result_t op_prepare(struct op *, const struct op_args *);
/* Takes the next number and starts. */
sircl_result_t engine_start(struct engine *, struct tick *, struct op *);
bool op_done(const struct op *); /* acquire: the result is there, sources are free */
sircl_result_t op_result(const struct op *, struct sircl_error *);
const char *op_algo(const struct op *);
/* The collective of a single rank, at once: a copy, or the product of a pre-multiplied sum. Needs no team. */
void op_run_alone(const struct op_args *, struct tick *);
/* Drives (or waits for the driver) until the operation is done. Spins, yields, then sleeps on the lanes until
 * engine_deadline. */
sircl_result_t engine_wait(struct engine *, struct op *);
/*
 * The same until `until(arg)` is true, or ctx->clock passes `limit` (SIRCL_TIMEOUT, no message). `until` is
 * called with the token held, so it may read links, channels and transfers; it must not block or take the
 * token. For start-up, point-to-point, shutdown. The caller does not hold the token.
 */
sircl_result_t engine_wait_until(struct engine *, bool (*until)(void *), void *arg, uint64_t limit);
void engine_kick(struct engine *); /* wakes a sleeping driver; any thread */

/* The flight recorder: the last 64 operations of a team, newest last, as text for reports. */
int team_flight_text(const struct team *, char *buf, size_t n);
uint64_t team_ops(const struct team *);
/* Bytes that the team holds by itself: channels, tables, scratch. With the engine locked. */
size_t team_memory(const struct team *);
size_t engine_memory(const struct engine *); /* bytes of scratch and tables */

/*
 * The tag that travels in the first frame of every collective (rule 9), 64 bits: number 12, kind 4, type 4,
 * operation 3, root 6, count 35 (2^35 - 1: "or more").
 */
uint64_t op_tag(uint64_t number, const struct op_args *);
void op_tag_text(uint64_t tag, char *buf, size_t n); /* "all_reduce of 1024 bfloat16, sum, number 17" */
#endif
