/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of lane/sim: nodes whose program logs what their lanes report and checks, at each note, that all
 * bytes of its put are there. A put's note carries {number, offset, length, tag}; its bytes follow from (tag,
 * number, position).
 */
#ifndef TESTS_UNIT_SIM_PAIR_H
#define TESTS_UNIT_SIM_PAIR_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lane/sim.h"

#define PAIR_LANES 4
#define PAIR_ARENA (1u << 18)
#define PAIR_LOG 1024

struct pair_end {
	struct pair *pair;
	struct sim_port *port;
	struct lane *lane;
	struct lane_addr addr;
	struct lane_mem smem;
	uint8_t *arena, *source;
	struct lane_event log[PAIR_LOG];
	uint64_t when[PAIR_LOG];
	int nlog;
	uint32_t posted;
	uint64_t torn; /* notes whose bytes were not there */
	uint64_t done;
};

struct pair {
	struct sim *sim;
	int node[2], lanes;
	struct pair_end end[2][PAIR_LANES];
	bool mute; /* programs do not poll */
	char violation[400];
};

static inline uint8_t pair_byte(uint64_t tag, uint64_t number, uint64_t i)
{
	return (uint8_t)(tag * 91 + number * 37 + i * 7 + (i >> 8) + 1);
}

static void pair_poll(struct pair_end *e, struct tick *t)
{
	struct lane_event ev[8];
	int n;

	while ((n = lane_sim_ops.poll(e->lane, t, ev, 8)) > 0)
		for (int i = 0; i < n; i++) {
			const uint64_t *w = ev[i].note.w;

			if (ev[i].ev == LANE_DONE) {
				e->done += ev[i].done;
				continue;
			}
			ck_assert_int_lt(e->nlog, PAIR_LOG);
			e->when[e->nlog] = t->now;
			e->log[e->nlog++] = ev[i];
			if (ev[i].ev == LANE_NOTE)
				for (uint64_t b = 0; b < w[2]; b++)
					if (e->arena[w[1] + b] != pair_byte(w[3], w[0], b)) {
						e->torn++;
						break;
					}
		}
}

static void pair_run0(void *arg, struct tick *t)
{
	struct pair *p = arg;

	for (int l = 0; l < p->lanes && !p->mute; l++)
		if (p->end[0][l].lane)
			pair_poll(&p->end[0][l], t);
}

static void pair_run1(void *arg, struct tick *t)
{
	struct pair *p = arg;

	for (int l = 0; l < p->lanes && !p->mute; l++)
		if (p->end[1][l].lane)
			pair_poll(&p->end[1][l], t);
}

static void pair_tell(void *arg, const char *sentence)
{
	struct pair *p = arg;

	snprintf(p->violation, sizeof(p->violation), "%s", sentence);
}

static void pair_open_end(struct pair *p, int i, int l, const struct key_ring *keys, uint32_t max_notes)
{
	struct pair_end *e = &p->end[i][l];
	struct lane_cfg cfg = {
		.keys = keys,
		.cable = 0,
		.lane = (uint16_t)l,
		.self = (uint16_t)i,
		.peer = (uint16_t)!i,
		.connects = i == 0,
		.max_notes = max_notes,
		.arena_base = e->arena,
		.arena_len = PAIR_ARENA,
		.arena_fd = -1,
		.provider = e->port,
	};

	ck_assert_int_eq(lane_sim_ops.open(&cfg, &e->lane, &e->addr), SIRCL_SUCCESS);
	ck_assert_int_eq(lane_sim_ops.reg(e->lane, 1, e->source, PAIR_ARENA, &e->smem, NULL), SIRCL_SUCCESS);
}

static struct pair *pair_make(const struct sim_fabric *f, uint64_t seed, int lanes)
{
	struct pair *p = calloc(1, sizeof(*p));

	ck_assert_ptr_nonnull(p);
	p->lanes = lanes;
	ck_assert_int_eq(sim_create(&p->sim, f, seed), SIRCL_SUCCESS);
	sim_on_violation(p->sim, pair_tell, p);
	p->node[0] = sim_node(p->sim, &(struct sim_program){ .run = pair_run0, .arg = p });
	p->node[1] = sim_node(p->sim, &(struct sim_program){ .run = pair_run1, .arg = p });
	for (int l = 0; l < lanes; l++) {
		sim_cable_lane(p->sim, 0, l, p->node[0], p->node[1], &p->end[0][l].port, &p->end[1][l].port);
		for (int i = 0; i < 2; i++) {
			p->end[i][l].pair = p;
			p->end[i][l].arena = calloc(1, PAIR_ARENA);
			p->end[i][l].source = calloc(1, PAIR_ARENA);
		}
	}
	return p;
}

static void pair_free(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		for (int l = 0; l < p->lanes; l++) {
			if (p->end[i][l].lane)
				lane_sim_ops.close(p->end[i][l].lane);
			free(p->end[i][l].arena);
			free(p->end[i][l].source);
		}
	sim_destroy(p->sim);
	free(p);
}

static inline void pair_for(struct pair *p, uint64_t ns)
{
	sim_run(p->sim, NULL, NULL, sim_now(p->sim) + ns);
}

static inline struct tick pair_now(struct pair *p)
{
	return (struct tick){ .now = sim_now(p->sim) };
}

static inline int pair_count(const struct pair_end *e, enum lane_ev ev)
{
	int n = 0;

	for (int i = 0; i < e->nlog; i++)
		n += e->log[i].ev == ev;
	return n;
}

static inline const struct lane_event *pair_last(const struct pair_end *e, enum lane_ev ev)
{
	for (int i = e->nlog; i-- > 0;)
		if (e->log[i].ev == ev)
			return &e->log[i];
	return NULL;
}

/* Both ends of lane l go for `epoch`; end 0 connects. */
static void pair_connect(struct pair *p, int l, uint32_t epoch)
{
	struct tick t = pair_now(p);

	lane_sim_ops.allow(p->end[1][l].lane, epoch);
	ck_assert_int_eq(lane_sim_ops.connect(p->end[0][l].lane, &t, &p->end[1][l].addr, epoch),
			 SIRCL_SUCCESS);
}

static struct pair *pair_up(const struct sim_fabric *f, uint64_t seed, int lanes)
{
	struct pair *p = pair_make(f, seed, lanes);

	for (int l = 0; l < lanes; l++) {
		pair_open_end(p, 0, l, NULL, 0);
		pair_open_end(p, 1, l, NULL, 0);
		pair_connect(p, l, 1);
	}
	pair_for(p, MSEC);
	for (int l = 0; l < lanes; l++)
		for (int i = 0; i < 2; i++) {
			ck_assert_int_eq(pair_count(&p->end[i][l], LANE_UP), 1);
			ck_assert_uint_eq(pair_last(&p->end[i][l], LANE_UP)->epoch, 1);
		}
	return p;
}

/* Posts `len` bytes at offset `off` (the same here and there). */
static int pair_put(struct pair_end *e, uint64_t off, uint32_t len, uint64_t tag)
{
	struct tick t = pair_now(e->pair);
	struct lane_put put = { .src = e->source + off,
				.len = len,
				.smem = &e->smem,
				.dst = lane_sim_ops.peer_export(e->lane),
				.dst_off = off,
				.note.w = { e->posted, off, len, tag } };

	for (uint32_t b = 0; b < len; b++)
		e->source[off + b] = pair_byte(tag, e->posted, b);
	e->posted++;
	return lane_sim_ops.put(e->lane, &t, &put, 1);
}
#endif
