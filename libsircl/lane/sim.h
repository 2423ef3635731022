/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated fabric: virtual time, one thread, any number of nodes (processes), cables and lanes, as nasty
 * as RDMA may be. It runs the real code above lane/. Everything follows from the seed; a failing seed
 * replays.
 *
 * What a hostile lane does: a put's bytes land in pieces, each at its own time, before its note; puts in
 * flight when the path dies may land later (or never) until the receiving end has fenced; two lanes are
 * unordered; each end of a dead lane sees an error or nothing; a note may be delivered twice (FAULT_DUP); a
 * frozen node's lanes go on taking bytes and acknowledging; a source is read when its bytes land, not when it
 * is posted.
 */
#ifndef LANE_SIM_H
#define LANE_SIM_H
#include "lane/lane.h"

struct sim;
struct sim_port; /* one end of one lane: lane_cfg.provider */

/* Constants of a fabric. Zero in a field of wire: no limit. */
struct sim_fabric {
	struct cost cost; /* of every node's CPU */
	uint64_t latency_ns; /* one way */
	uint64_t jitter_ns; /* each piece is late by 0..jitter more (hostile runs) */
	double lane_gbps; /* one lane, each way */
	double domain_gbps; /* lanes of one PCI domain of a node share it, each way; lane i belongs to domain
			       i % 2 */
	double host_tx_gbs, host_rx_gbs; /* GB/s of a node's NIC, all lanes */
	uint32_t pieces; /* a put lands in up to this many pieces, in any order (1: at once) */
};
extern const struct sim_fabric
	sim_spark; /* constants of a DGX Spark ring, with their sources, in sim_spark.c */
extern const struct sim_fabric sim_hostile; /* small latencies, large jitter, pieces */

enum sim_fault {
	FAULT_KILL,
	FAULT_REVIVE,
	FAULT_FREEZE,
	FAULT_DUP,
	FAULT_LATE,
	FAULT_FALSE_ALARM,
	FAULT_KINDS
};
struct sim_fault_count {
	uint64_t planned, struck; /* struck: it hit a lane with puts in flight (FREEZE: a node with an
				     operation running) */
};

/* A node's program: called with its tick when something arrived for it, when its deadline has come, or after
 * sim_wake. It must not block. `deadline` gives the next time it wants to be called. */
struct sim_program {
	void (*run)(void *arg, struct tick *);
	uint64_t (*deadline)(void *arg);
	void *arg;
};

sircl_result_t sim_create(struct sim **, const struct sim_fabric *, uint64_t seed);
void sim_destroy(struct sim *);
uint64_t sim_clock(void *sim); /* for ctx->clock: the time of the node that runs, else of the world */
uint64_t sim_random(struct sim *, uint64_t below);
int sim_node(struct sim *, const struct sim_program *); /* a new node's number */
/* The two ends of lane `lane` of `cable` between nodes a and b (a != b, or the same pair twice for N = 2). */
void sim_cable_lane(struct sim *, int cable, int lane, int a, int b, struct sim_port **at_a,
		    struct sim_port **at_b);
/* This lane runs at `gbps` each way instead of the fabric's lane_gbps, which must not be 0; before any
 * traffic or in mid-flight. */
void sim_lane_rate(struct sim *, int cable, int lane, double gbps);
/* Runs until `finished` returns true (checked after every event), no event is left, or virtual time `until`.
 * Returns true if finished. */
bool sim_run(struct sim *, bool (*finished)(void *arg), void *arg, uint64_t until);
void sim_wake(struct sim *, int node); /* call its program at once (as soon as its CPU is free) */
uint64_t sim_now(const struct sim *);
uint64_t sim_events(const struct sim *);

/* Faults, at once. seen: bit 0: the end at a sees an error, bit 1: the end at b. */
void sim_kill(struct sim *, int cable, int lane, unsigned seen);
void sim_revive(struct sim *, int cable, int lane);
bool sim_is_dead(struct sim *, int cable, int lane);
void sim_false_alarm(struct sim *, int cable, int lane,
		     int end); /* that end reports LANE_SUSPECT though nothing is wrong */
/* Everything in flight on the lane, and what is posted meanwhile, is late by `ns`; nothing is lost. dirs: bit
 * 0: what the end at a sent, bit 1: what the end at b sent. */
void sim_stall(struct sim *, int cable, int lane, unsigned dirs, uint64_t ns);
void sim_freeze(struct sim *, int node, uint64_t ns); /* its program is not called; its lanes go on */
void sim_kill_node(struct sim *, int node); /* process death: lanes die, both neighbours see errors */
void sim_dup_next(struct sim *, int cable, int lane); /* the next note on it is delivered twice */
/* The k-th put posted from now on anywhere (k = 0: the next) makes its lane die just after being posted; for
 * "at frame k" tests. */
void sim_kill_at_put(struct sim *, uint64_t k, unsigned seen);
uint64_t sim_puts(const struct sim *);
/* The same for the k-th put from now on of one end (0: a, 1: b) of one lane. */
void sim_kill_at_put_of(struct sim *, int cable, int lane, int end, uint32_t k, unsigned seen);
/*
 * Exhaustive runs. If a chooser is set it is called before every event, with the `n` >= 1 of them that could
 * as well come next (all within jitter_ns of the earliest, which has place 0), and returns which does; -1:
 * sim_run ends at once and returns false. Nothing is random while there is one: every put lands in one piece,
 * and whatever else could be late is simply left to the chooser.
 */
struct sim_choice {
	uint64_t id; /* of the event, as long as it is pending */
	uint64_t touches; /* places that it reads or changes, see sim_explore.c */
	uint64_t adds; /* places to which it only adds, in any order with others that do */
	const uint8_t *from, *to; /* and the `len` bytes that it copies */
	uint32_t len;
};
void sim_set_chooser(struct sim *, int (*choose)(void *arg, const struct sim_choice *, int n), void *arg);
/* Two events that both could come next: true if their order may make a difference. */
bool sim_dependent(const struct sim_choice *, const struct sim_choice *);
/* A plan of random faults from the seed: `n` of them, spread over virtual time [from, to), only such that the
 * fabric can heal (never all lanes of a cable dead for good). kinds: bit mask of enum sim_fault. */
void sim_plan_faults(struct sim *, unsigned kinds, int n, uint64_t from, uint64_t to);
void sim_fault_counts(const struct sim *, struct sim_fault_count out[FAULT_KINDS]);
const char *sim_fault_name(enum sim_fault);
uint64_t sim_seed(const struct sim *);
/* A hash of everything that has happened, in order: two runs of the same seed and programs give the same. */
uint64_t sim_trace(const struct sim *);
/* Puts in flight now on all lanes: posted and neither landed nor lost. */
uint64_t sim_in_flight(const struct sim *);
/* What a broken promise does (a put that lands in, or is read from, memory that is not registered; more puts
 * outstanding than promised): prints the sentence with the seed and aborts, unless this is set. */
void sim_on_violation(struct sim *, void (*tell)(void *arg, const char *sentence), void *arg);
#endif
