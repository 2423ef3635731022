/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring or line of nodes in the simulator: contexts, links and channel nets, as a process would have them.
 * Everything is a function of the configuration and the seed.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "lane/sim.h"
#include "link/chan.h"

#define WORLD_MAX 12

struct engine;
struct world;
struct wnode {
	struct world *world;
	int pos, node; /* node: the simulator's number */
	struct sircl_ctx ctx;
	struct chan_net *net;
	struct link *link[LINK_SIDES];
	struct engine *engine; /* NULL: none */
	uint8_t *mem; /* registered on both links, if the configuration says so */
	void *user; /* of the steps */
};

struct world_cfg {
	const struct sim_fabric *fabric;
	uint64_t seed;
	int n, lanes;
	bool ring;
	uint32_t link_window; /* frames, 0: default */
	size_t arena_bytes, relay_limit, mem_bytes;
	int algo; /* parameters of the engine; 0: defaults */
	uint32_t window, slice;
	int heartbeat_ms, suspect_ms, timeout_ms; /* 0: defaults */
	/* Called with progress made and its time; must not block. deadline may be NULL. */
	void (*step)(struct wnode *, struct tick *);
	uint64_t (*deadline)(struct wnode *);
	bool (*drive)(struct wnode *, struct tick *); /* instead of chan_net_progress; NULL */
	uint64_t (*drive_deadline)(struct wnode *);
	void *user;
};

struct world {
	struct world_cfg cfg;
	struct sim *sim;
	struct wnode node[WORLD_MAX];
	int cables;
	char failure[1024]; /* the first thing that went wrong */
	uint64_t notices;
	const char *phase;
};

bool world_create(struct world *, const struct world_cfg *);
/* Connects all links and waits until all lanes are up. */
bool world_connect(struct world *);
/* Runs until done(world); a failure or the end of patience ends it too. False: did not end by itself. */
bool world_run(struct world *, bool (*done)(struct world *), uint64_t patience);
bool world_go_on(struct world *, bool (*done)(struct world *), uint64_t patience); /* wakes nobody first */
/* Lets time pass: late puts land, heartbeats go. */
void world_settle(struct world *, uint64_t ns);
bool world_bye(struct world *); /* both-sided goodbye on all links */
void world_destroy(struct world *);
void world_fail(struct world *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct link_totals {
	uint64_t replayed, refused, states, fences, reconnects, sent;
};
void world_totals(const struct world *, struct link_totals *); /* adds */
#endif
