/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of engine/ share. Everything here belongs to whoever holds the driver token, except the
 * fields marked atomic.
 *
 * Order of messages. The engine cuts every block into slices and runs them in rounds of `round` slices: the
 * messages of a channel and direction are ordered by (round, step, slice within the round). All ranks compute
 * the same `round`, so both ends agree. A round is as long as a block unless the blocks that a plan holds
 * would fill more than SCRATCH_LIMIT; then scratch holds one round of slices (slice i lives at i mod round),
 * and slice i is written only when every step that touches the same scratch block is through with slice i -
 * round. A round by itself is what the prover has proved, and rounds only add waits for earlier rounds.
 */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H
#include <pthread.h>
#include <stdatomic.h>
#include "engine/engine.h"

_Static_assert((int)PLAN_ACC_OUT == (int)REDUCE_ACC_OUT && (int)PLAN_ACC_IN == (int)REDUCE_ACC_IN &&
		       (int)PLAN_FINISH == (int)REDUCE_FINISH && (int)PLAN_SCALE == (int)REDUCE_SCALE,
	       "flags of steps are passed on");

#define EXEC_QUEUE 64 /* messages in flight per channel and direction, a power of two below CHAN_QUEUE */
#define EXEC_BUDGET (512u << 10) /* bytes summed or copied before the channels are looked at again */
#define SCRATCH_LIMIT ((size_t)16 << 20)
#define FLIGHT_OPS 64
/* Most bytes of a channel's window where all ranks share a machine. 4 ranks on 2 cores, all-reduce of 64 KiB
 * and 4 MiB, us (first quartiles of 9 and 7 medians): 64 KiB 41 and 3725, 256 KiB 39 and 2935, 1 MiB 44 and
 * 3119. */
#define SHM_WINDOW ((int64_t)256 << 10)
#define LATE_REPORT (30 * SEC)
#define HINT_AFTER (500 * MSEC) /* see limit.c */

enum exec_dir { DIR_SEND, DIR_RECV, DIRS };

/* Steps of which slice i must be through before slice i of this one may begin, in one list. A REDUCE that
 * reads the window does not wait for the RECV that it completes. */
struct plan_waits {
	uint16_t n, step[6];
};

/* Facts about a plan that do not depend on count or type; built once per plan. */
struct plan_info {
	struct plan_info *next;
	const struct plan *plan;
	uint16_t nlist[PLAN_CHANS][DIRS]; /* SENDs and RECVs of a channel in order of steps */
	uint16_t *list[PLAN_CHANS][DIRS];
	struct plan_waits *waits; /* per step */
	uint32_t *dep_at; /* nsteps + 1: where the dependents of a step begin in dep */
	uint16_t *dep; /* REDUCE and COPY steps that may become ready when this step moves */
	uint32_t *acc_at; /* nscratch + 1 */
	uint16_t *acc; /* steps that touch a stored scratch block */
	int8_t *fused; /* per step: -1, or, for a fused RECV, which source of the next step it is */
	bool *fused_reduce; /* per step: run by the RECV before it */
	bool *stored; /* per scratch block: it needs memory */
	bool *wide; /* per scratch block: accumulator */
	uint64_t *sums; /* bit per step: REDUCE and COPY steps that are run by themselves */
	size_t bytes;
};

/* One message handed to a channel. Slots end in order, because messages of a channel do. */
struct slot {
	struct xfer x;
	struct op *op;
	uint32_t len, off; /* view mode: bytes consumed */
	uint16_t step;
	bool view, checked;
};

struct slot_queue {
	uint32_t head, tail;
	struct slot slot[EXEC_QUEUE];
};

struct team_chan {
	struct chan *chan; /* NULL: no neighbour there, or closed */
	uint16_t peer; /* position in the team */
	uint16_t cable; /* between which positions of the team: the lower one's */
	struct link_watch watch; /* limit.c's, since the operation started */
	struct slot_queue q[DIRS];
};

enum flight_state { FLIGHT_NONE, FLIGHT_RUNNING, FLIGHT_DONE, FLIGHT_FAILED };
/* Atomic, relaxed: a report may be written by any thread; a torn entry is one line of a report. */
struct flight {
	_Atomic uint64_t number, count, started, finished;
	_Atomic uint32_t what; /* kind | type << 8 | op << 16 | algo << 24 */
	_Atomic uint32_t root;
	_Atomic uint32_t state;
};

enum team_phase { TEAM_OPEN, TEAM_CLOSING, TEAM_CLOSED };

struct team {
	struct engine *engine;
	struct team *next;
	char name[64];
	struct team_cfg cfg;
	uint32_t window, relay_window; /* of channels to neighbours, and through relays */
	uint32_t least_window; /* of all channels of all its ranks: what slices are cut for */
	enum coll_algo forced;
	bool deterministic;
	size_t forced_slice;
	uint64_t next_number;
	_Atomic uint64_t ops_finished;
	struct op *head, *tail; /* started operations; the head runs */
	/* What the running operation needs, laid out by shape.c, kept for the next one. */
	struct step_run *run;
	size_t run_cap;
	uint64_t *ready;
	size_t ready_cap;
	size_t *place; /* per scratch block: where it begins in scratch */
	size_t place_cap;
	uint8_t *scratch; /* SCRATCH_LIMIT bytes of address space */
	size_t scratch_limit, scratch_used; /* tests make the limit smaller; used: reached so far */
	uint64_t shapes, laid; /* shapes found; the one that the tables hold */
	const void *laid_in, *laid_out;
	struct team_chan ch[PLAN_CHANS];
	enum team_phase phase;
	bool killed;
	uint64_t close_at;
	uint64_t hearsay_at; /* 0: none; else when `hearsay` ends the team unless somebody knows better */
	struct sircl_error hearsay;
	_Atomic int failed; /* 0, 1: being written, 2: err is valid */
	struct sircl_error err;
	struct flight flight[FLIGHT_OPS];
	uint64_t tag_of[FLIGHT_OPS]; /* number modulo that: of the latest calls */
};

/* A place in memory of a step: slice i is at p + (i, or i mod round) * stride. */
struct operand {
	uint8_t *p;
	size_t off; /* from the beginning of its buffer */
	uint32_t stride;
	uint8_t buf;
	bool folded;
};

struct step_run {
	uint32_t nslices, issued, done; /* done: finished; of a SEND: its source is free */
	size_t len; /* bytes of its block in the type */
	struct operand dst, src[4];
};

struct cursor {
	uint32_t idx, slice, round; /* place in the list of steps; next slice; round */
	bool end;
};

enum op_state { OP_IDLE, OP_RUNNING, OP_DONE };

struct op {
	struct team *team;
	struct op *next;
	struct op_args args;
	bool prepared;
	size_t elem;
	enum coll_algo algo;
	const struct plan *plan; /* NULL: one rank, a copy */
	const struct plan_info *info;
	uint64_t shape; /* number of what the last preparing found */
	uint32_t slice, round, nslices_max;
	struct step_run *run; /* the team's while the operation runs, as ready is */
	uint64_t *ready; /* bit per step: a REDUCE or COPY that may be able to move */
	size_t ready_words;
	uint8_t byte; /* what a barrier sums */
	uint64_t left, total; /* slices of steps that are not finished */
	struct cursor cur[PLAN_CHANS][DIRS];
	uint64_t number, tag;
	uint64_t begun, last_move, check_at, progress_sum;
	bool again; /* the last pass moved something, so another may */
	bool heard[PLAN_CHANS]; /* a frame of this operation has come from there */
	bool warned;
	_Atomic int state;
	sircl_result_t result;
};

struct engine {
	struct engine_cfg cfg;
	struct plan_cache *plans;
	struct plan_info *infos;
	bool (*more)(void *, struct tick *); /* engine_also; with more_arg the token's */
	void *more_arg;
	struct team *teams;
	_Atomic size_t memory;
	/* The driver token: the owner's pthread_self, 0 = free. depth is the owner's. */
	_Atomic uintptr_t owner;
	unsigned depth;
	uint64_t now; /* of the latest round; the token's */
	/* Waiting */
	_Atomic uint64_t last_caller; /* when somebody but the background thread last drove */
	_Atomic int waiting; /* threads inside engine_wait* */
	_Atomic int sleepers; /* those of them inside ppoll */
	_Atomic bool bg_armed; /* the background thread sleeps on the lanes' descriptors */
	_Atomic bool bg_stop;
	bool has_thread, has_cpus;
	cpu_set_t cpus; /* of the background thread, if has_cpus */
	pthread_t thread;
	int wake_fd, bg_fd;
	uint64_t spin;
	bool crowded; /* more ranks than cores */
};

/* engine.c */
bool token_try(struct engine *);
void token_take(struct engine *);
void token_give(struct engine *);
bool drive_holding(struct engine *, struct tick *); /* one round; the caller has the token */
void engine_account(struct engine *, size_t more, size_t less);
/* wait.c */
sircl_result_t wait_create(struct engine *);
void wait_destroy(struct engine *);
void wait_op_done(struct engine *); /* wakes threads that sleep until an operation is done */
void wait_left(struct engine *); /* a caller stops driving: the background thread must arm anew */
/* info.c */
sircl_result_t plan_info_get(struct engine *, const struct plan *, const struct plan_info **);
void plan_info_free(struct engine *);
/* team.c */
/*
 * A channel has ended because of the peer; this thread's last error says how it looks from here. If the link
 * is dead, that is the cause, and the channel layer has told everybody. Else the peer has failed or left for
 * a reason of its own, and the news of it is under way (it may take another path): wait for it a little, it
 * says more.
 */
void team_hearsay(struct team *, struct tick *, const struct team_chan *);
/* news: a transfer may have changed since the last call. Without, an operation that could not move before is
 * not looked at. */
bool team_progress(struct team *, struct tick *, bool news);
uint64_t team_deadline(const struct team *);
int team_rank(const struct team *, int pos);
/* shape.c */
sircl_result_t tables_create(struct team *);
void tables_destroy(struct team *);
size_t tables_memory(const struct team *);
/* Algorithm, plan, slice, round; takes the token. */
sircl_result_t shape_find(struct op *, const struct op_args *);
void shape_lay(struct op *); /* fills the team's tables for op, as far as they do not hold it already */
/* op.c */
void op_begin(struct op *, struct tick *); /* becomes the running operation of its team */
/* A call in words, without its number; more: behind the count. */
void call_text(const struct op_args *, const char *more, char *buf, size_t n);
/* exec.c */
bool exec_progress(struct op *, struct tick *);
/* error_last() ends the team, everywhere; peer: position in the team, whom it is about. */
/* The team ends: the rank at the other end of a channel has made another call. */
void exec_mismatch(struct team *, struct tick *, const struct team_chan *, uint64_t tag, uint64_t our_tag);
void exec_fail(struct op *, struct tick *, int peer);
#define OP_TAG_NUMBERS 0xfffu /* the number in a tag */
#define MEETING_TEXT "sircl_comm_finalize (or destroy)"
void op_text(const struct op *, char *buf, size_t n);
/* limit.c */
/* What the neighbours say that they wait in. */
void limit_hinted(struct team *, struct tick *);
void limit_check(struct op *, struct tick *);
/* flight.c */
void flight_start(struct op *, uint64_t now);
void flight_end(struct op *, uint64_t now, bool ok);
void flight_report(struct team *); /* INFO lines, when the team ends with an error */

static inline int nsources(const struct plan_step *s)
{
	return s->op == PLAN_RECV ? 0 : s->op == PLAN_REDUCE ? s->nsrc : 1;
}

static inline bool step_through(const struct step_run *r, uint32_t slice)
{
	return r->done > slice || r->done == r->nslices;
}

static inline uint8_t *operand_at(const struct operand *o, uint32_t slice, uint32_t round)
{
	return o->p + (size_t)(o->folded ? slice % round : slice) * o->stride;
}

static inline uint32_t slice_len(const struct op *op, const struct step_run *r, uint32_t slice)
{
	size_t rest = r->len - (size_t)slice * op->slice;

	return rest < op->slice ? (uint32_t)rest : op->slice;
}
#endif
