/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lane/sim*.c. sim.c is the world (events, nodes, time), sim_wire.c what is between two ends (puts
 * in flight, death), sim_lane.c the provider (ops and handshake), sim_fault.c the random faults.
 */
#ifndef LANE_SIM_INTERNAL_H
#define LANE_SIM_INTERNAL_H
#include "lane/sim.h"

#define SIM_PIECES_MAX 8
#define SIM_CHUNK 8192u /* bytes that take their turn on shared links at once */
#define SIM_RETRY (500 * MSEC) /* a put without answer becomes an error at the sender */
#define SIM_HANDSHAKE (20 * MSEC) /* limit of a handshake */
#define SIM_REFUSED (10 * USEC)

enum sim_event_kind {
	SE_RUN, /* p: node */
	SE_PUMP, /* p: wire, arg: direction: the sending side may start its next chunk */
	SE_ARRIVE, /* p: flight: its last chunk reaches the receiver's NIC */
	SE_PIECE, /* p: flight, arg: piece */
	SE_MESSAGE, /* p: message of a handshake */
	SE_LIMIT, /* p: port, gen: handshake number */
	SE_ERROR, /* p: port, gen: epoch, arg: index of the reason */
	SE_FENCED, /* p: port, gen: epoch */
	SE_DONE, /* p: port, gen: epoch */
	SE_KILL, /* p: wire, arg: seen */
	SE_REVIVE, /* p: wire */
	SE_FAULT, /* arg: enum sim_fault, gen: times put off */
};

struct sim_event {
	uint64_t time, seq;
	void *p;
	uint32_t gen;
	uint16_t arg;
	uint8_t kind;
};

/* Rates in bytes per ns; 0: no limit. A server is free from then on. */
struct sim_node {
	struct sim *sim;
	int number;
	struct sim_program program;
	struct cost cost;
	uint64_t free_at; /* its CPU */
	uint64_t run_at, run_seq; /* time and number of the SE_RUN that counts, NEVER: none */
	uint64_t frozen_until;
	bool dead, again;
	uint64_t tx_host, rx_host, tx_domain[2], rx_domain[2]; /* when these servers are free */
};

/* A put on its way. */
struct flight {
	struct flight *next, *prev;
	struct sim_wire *wire;
	uint8_t dir; /* index of the sending end */
	uint8_t npieces, left;
	uint8_t landed[SIM_PIECES_MAX];
	bool gone; /* nothing of it counts any more; freed when its last event has passed */
	bool orphan; /* its note never comes; bytes may */
	bool sent; /* wholly with the network: the sender's fence does not call it back */
	uint32_t refs; /* events that point here */
	uint32_t gen; /* events of an older one do not count */
	uint32_t epoch, rx_life;
	uint32_t queued,
		arriving; /* rated fabrics: bytes not yet given to the network, not yet at the receiver */
	uint64_t arrived_at;
	uint32_t cut[SIM_PIECES_MAX + 1];
	const uint8_t *src;
	uint8_t *copy; /* what was to be read, taken when the sender had fenced */
	size_t copy_room;
	uint32_t len, src_region, src_life;
	struct lane_export dst;
	uint64_t dst_off;
	struct lane_note note;
};

struct sim_list {
	struct flight *head, *tail;
	uint32_t n;
};

struct sim_dir {
	struct sim_list queue; /* in order of posting, notes to come */
	struct sim_list orphans;
	uint64_t busy; /* rated: when the lane itself is free */
	bool pumping;
	bool broken; /* nothing posted now arrives: dead, or the receiver is not there */
	bool lost; /* something was lost: stays broken until the next epoch */
	bool error_due;
	uint64_t stalled_until;
	uint32_t kill_in; /* the lane dies at this put, 1: the next; 0: no such plan */
	uint8_t kill_seen;
};

enum port_state { PORT_IDLE, PORT_CONNECTING, PORT_HALF, PORT_UP, PORT_FENCING };

struct sim_region {
	uint8_t *base;
	size_t len;
	uint32_t life; /* 0: not registered */
	bool exported; /* the peer may write it */
};

struct sim_port {
	struct lane_base base; /* struct lane of an open port */
	struct sim *sim;
	struct sim_wire *wire;
	struct sim_node *node;
	int end; /* 0, 1 */
	bool open, suspected;
	uint32_t life; /* counts open() */
	uint32_t peer_life; /* of the other end, from the handshake */
	enum port_state state;
	uint32_t epoch; /* of CONNECTING, HALF, UP, FENCING */
	uint32_t fenced; /* nothing of this or an older one may land */
	uint32_t min_epoch; /* 0: nothing allowed yet */
	uint32_t handshake; /* number of the present one */
	struct lane_cfg cfg;
	struct lane_export peer_export;
	struct sim_region region[LANE_REGIONS_MAX];
	uint32_t region_lives;
	struct lane_event *events; /* a ring */
	uint32_t nevents, first_event, room_events;
	uint32_t unpolled; /* notes among them */
	struct lane_stats stats;
	struct auth *auth;
};

struct sim_wire {
	struct sim *sim;
	int cable, lane, number;
	double rate; /* bytes per ns, 0: no limit */
	bool dead;
	struct sim_port end[2];
	struct sim_dir dir[2]; /* dir[i]: what end i sent */
	uint32_t dup; /* notes to deliver twice */
	struct sim_wire *next;
};

enum message_kind { MSG_REQUEST, MSG_ANSWER, MSG_CONFIRM, MSG_REFUSE, MSG_NOBODY };

struct sim_message {
	struct sim_message *next;
	struct sim_port *to;
	enum message_kind kind;
	uint32_t epoch, life, nauth;
	struct lane_export region0;
	uint8_t auth[AUTH_MSG_MAX];
};

struct sim {
	struct sim_fabric fabric;
	uint64_t seed, rng, now, nevents, seq, trace;
	struct sim_event *heap;
	uint32_t nheap, room;
	struct sim_node **node;
	int nnodes;
	struct sim_wire *wires;
	struct tick *running; /* the tick of the node whose program runs */
	struct flight *spare;
	struct sim_message *spare_message;
	uint64_t flights;
	uint64_t puts, kill_at; /* puts: posted so far; kill_at: number of the deadly one */
	unsigned kill_seen;
	struct sim_fault_count count[FAULT_KINDS];
	unsigned fault_kinds;
	int (*choose)(void *, const struct sim_choice *, int);
	void *choose_arg;
	bool halted; /* by the chooser */
	void (*tell)(void *, const char *);
	void *tell_arg;
	bool rated;
	double lane_rate, domain_rate, tx_rate, rx_rate; /* bytes per ns, 0: no limit */
};

enum sim_reason {
	WHY_DIED,
	WHY_CLOSED,
	WHY_NO_ANSWER,
	WHY_REFUSED,
	WHY_NEWER,
	WHY_ALARM,
	WHY_CANCEL,
	WHY_KEYS,
	WHY_GONE, /* this and the next are evidence that there is no process */
	WHY_NOBODY
};

/* sim.c */
void sim_push(struct sim *, uint64_t time, enum sim_event_kind, void *p, uint32_t gen, unsigned arg);
void sim_wake_node(struct sim_node *, uint64_t when);
uint64_t sim_here(const struct sim *); /* time of the node that runs, else of the world */
void sim_violation(struct sim *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct sim_wire *sim_wire_of(struct sim *, int cable, int lane);
uint64_t sim_late(struct sim *); /* a random lateness: 1 us to 20 ms, small ones as likely as large ones */
/* sim_explore.c */
bool sim_stale(const struct sim_event *); /* it does nothing any more */
uint32_t sim_choose(struct sim *); /* place in the heap of the event that comes next; nheap: none, halted */
/* sim_wire.c */
void wire_put(struct sim_port *, uint64_t now, const struct lane_put *);
void wire_pump(struct sim_wire *, int dir);
void wire_arrive(struct flight *, uint32_t bytes);
void wire_piece(struct flight *, unsigned piece);
void wire_deliver(struct sim_wire *, int dir);
void wire_fence(struct sim_port *,
		uint32_t epoch); /* nothing of it lands here any more; what it sent is cut loose */
void wire_kill(struct sim_wire *, unsigned seen, enum sim_reason);
void wire_revive(struct sim_wire *);
bool wire_busy(const struct sim_wire *); /* puts in flight, either way */
void wire_unref(struct flight *);
void wire_free(struct sim_wire *);
/* sim_lane.c */
void port_event(struct sim_port *, enum lane_ev, uint32_t epoch, int why); /* enum sim_reason or -1 */
void port_note(struct sim_port *, uint32_t epoch, const struct lane_note *);
void port_done(struct sim_port *, uint32_t epoch);
void port_suspect(struct sim_port *, uint32_t epoch, enum sim_reason);
void port_fenced(struct sim_port *, uint32_t epoch);
void port_limit(struct sim_port *, uint32_t handshake);
void port_message(struct sim_message *);
/* sim_fault.c */
void fault_strike(struct sim *, enum sim_fault, uint32_t waited); /* waited: times put off so far */
#endif
