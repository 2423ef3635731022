/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends of one lane of any provider, for tests of what lane.h promises: end 0 connects, end 1 accepts.
 * Every event is kept in order, and a hook sees each at the moment it is polled. Real providers are polled in
 * turn by the test's thread; in the simulator the ends are programs of two nodes and pump() lets virtual time
 * go on.
 */
#ifndef LANE_HARNESS_H
#define LANE_HARNESS_H
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/arena.h"
#include "lane/lane.h"
#ifdef HARNESS_SIM
#include "lane/sim.h"
#endif
#ifdef HARNESS_VERBS
#include "../fakeverbs/fakeverbs.h"
#include "lane/verbs.h"
#endif

#define H_ARENA (1u << 20)
#define H_SEEN 16384

struct pair;
struct seen {
	struct lane_event ev;
	char why[200];
};
struct end {
	struct pair *pair;
	int index;
	struct lane *l;
	struct sircl_ctx ctx;
	struct key_ring keys;
	struct arena *arena, *send; /* region 0; region 1: memory that puts are sent from, not exported */
	struct lane_mem send_mem;
	struct lane_addr addr;
	struct seen *seen;
	int nseen;
	uint64_t done;
	void (*hook)(struct end *, const struct lane_event *);
	void *hook_arg;
	int max; /* events per poll */
};
struct pair {
	const struct lane_ops *ops;
	struct end e[2];
	char lab[32];
#ifdef HARNESS_SIM
	struct sim *sim;
	struct sim_port *port[2];
#endif
};

static inline uint64_t h_clock(void *arg)
{
	struct timespec t;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec;
}

static inline struct tick h_tick(const struct end *e)
{
	return (struct tick){ .now = e->ctx.clock(e->ctx.clock_arg) };
}

static inline const char *h_lab(char buf[32])
{
	const char *lab = getenv("SIRCL_LAB");

	if (lab != NULL && *lab != '\0')
		snprintf(buf, 32, "%.20s", lab);
	else
		snprintf(buf, 32, "%d", (int)getpid());
	return buf;
}

static inline void h_poll(struct end *e, struct tick *t)
{
	struct lane_event ev[64];
	int n;

	if (e->l == NULL)
		return;
	n = e->pair->ops->poll(e->l, t, ev, e->max);
	ck_assert_int_le(n, e->max);
	for (int i = 0; i < n; i++) {
		struct seen *s = &e->seen[e->nseen % H_SEEN];

		s->ev = ev[i];
		s->why[0] = '\0';
		if (ev[i].why != NULL)
			snprintf(s->why, sizeof(s->why), "%s", ev[i].why);
		e->nseen++;
		if (ev[i].ev == LANE_DONE)
			e->done += ev[i].done;
		if (e->hook != NULL)
			e->hook(e, &ev[i]);
	}
}

static inline bool h_is_sim(const struct pair *p)
{
	return strcmp(p->ops->name, "sim") == 0;
}

#ifdef HARNESS_SIM
static inline void h_sim_run(void *arg, struct tick *t)
{
	h_poll(arg, t);
}
static inline uint64_t h_sim_deadline(void *arg)
{
	struct end *e = arg;

	uint64_t d = e->l == NULL ? NEVER : e->pair->ops->deadline(e->l);

	/* virtual time stands still when nobody wants to be called */
	return tick_min(d, sim_now(e->pair->sim) + 20 * USEC);
}
static inline bool h_sim_never(void *arg)
{
	(void)arg;
	return false;
}
#endif

static inline void h_pump(struct pair *p)
{
#ifdef HARNESS_SIM
	if (p->sim != NULL) {
		sim_wake(p->sim, 0);
		sim_wake(p->sim, 1);
		sim_run(p->sim, h_sim_never, NULL, sim_now(p->sim) + 20 * USEC);
		return;
	}
#endif
	for (int i = 0; i < 2; i++) {
		struct tick t = h_tick(&p->e[i]);

		h_poll(&p->e[i], &t);
	}
}

/* Index of the first event of this kind at or after `from`, or -1. */
static inline int h_find(const struct end *e, int from, enum lane_ev ev)
{
	for (int i = from; i < e->nseen; i++)
		if (e->seen[i % H_SEEN].ev.ev == ev)
			return i;
	return -1;
}
static inline int h_count(const struct end *e, enum lane_ev ev)
{
	int n = 0;

	for (int i = 0; i < e->nseen; i++)
		n += e->seen[i % H_SEEN].ev.ev == ev;
	return n;
}

/* Time in which the test has run: a pause of the process, as a busy machine makes them, counts a little. */
struct h_ran {
	uint64_t last, total;
};
static inline uint64_t h_ran(struct h_ran *r, uint64_t now)
{
	if (r->last)
		r->total += now - r->last < 10 * MSEC ? now - r->last : 10 * MSEC;
	r->last = now;
	return r->total;
}

/* Pumps until the end has the event; fails the test after `ms` of the ends' time, pauses left out. Returns
 * its index. */
static inline int h_wait(struct pair *p, int end, int from, enum lane_ev ev, unsigned ms)
{
	struct h_ran ran = { 0 };
	int i;

	while ((i = h_find(&p->e[end], from, ev)) < 0) {
		if (h_ran(&ran, h_tick(&p->e[end]).now) >= ms * MSEC)
			ck_abort_msg("%s: end %d has not seen event %d within %u ms; %d events, last %d (%s)",
				     p->ops->name, end, (int)ev, ms, p->e[end].nseen,
				     p->e[end].nseen > 0 ? (int)p->e[end].seen[p->e[end].nseen - 1].ev.ev
							 : -1,
				     p->e[end].nseen > 0 ? p->e[end].seen[p->e[end].nseen - 1].why : "");
		h_pump(p);
	}
	return i;
}

/* For `ms`, and at least some passes, however long the machine lets the test stand still. */
static inline void h_settle(struct pair *p, unsigned ms)
{
	uint64_t until = h_tick(&p->e[0]).now + ms * MSEC;

	for (int i = 0; i < 20 || h_tick(&p->e[0]).now < until; i++)
		h_pump(p);
}

/* Pumps until one of the ends suspects the lane; false: none does. */
static inline bool h_suspected(struct pair *p)
{
	uint64_t until = h_tick(&p->e[0]).now + 2 * SEC;

	while (h_count(&p->e[0], LANE_SUSPECT) + h_count(&p->e[1], LANE_SUSPECT) == 0 &&
	       h_tick(&p->e[0]).now < until)
		h_pump(p);
	return h_count(&p->e[0], LANE_SUSPECT) + h_count(&p->e[1], LANE_SUSPECT) > 0;
}

static inline void h_end_init(struct pair *p, int i)
{
	struct end *e = &p->e[i];

	e->pair = p;
	e->index = i;
	e->max = 16;
	e->seen = calloc(H_SEEN, sizeof(*e->seen));
	ck_assert_ptr_nonnull(e->seen);
	ck_assert_int_eq(params_load(&e->ctx.params), SIRCL_SUCCESS);
	log_init(&e->ctx.log, &e->ctx.params, i);
	e->ctx.rank = i;
	e->ctx.nranks = 2;
	e->ctx.clock = h_clock;
	ck_assert_int_eq(key_ring_init(&e->keys), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&e->keys, KEY_UNIQUE_ID, "secret of the job", 17), SIRCL_SUCCESS);
	ck_assert_int_eq(arena_create(&e->arena, i == 0 ? "h-arena-0" : "h-arena-1", H_ARENA), SIRCL_SUCCESS);
	ck_assert_int_eq(arena_create(&e->send, "h-send", H_ARENA), SIRCL_SUCCESS);
}

static inline struct lane_cfg h_cfg(struct end *e)
{
	struct pair *p = e->pair;
	struct lane_cfg cfg = {
		.ctx = &e->ctx,
		.keys = &e->keys,
		.lab = h_lab(p->lab),
		.job = "conformance job",
		.self = (uint16_t)e->index,
		.peer = (uint16_t)!e->index,
		.connects = e->index == 0,
		.max_notes = 256,
		.arena_base = arena_base(e->arena),
		.arena_len = H_ARENA,
		.arena_fd = arena_fd(e->arena),
	};
#ifdef HARNESS_SIM
	cfg.provider = p->port[e->index];
#endif
#ifdef HARNESS_VERBS
	static const struct verbs_tune tune = { .lib = &fakeverbs_lib };

	if (p->ops == &lane_verbs_ops)
		cfg.provider = (void *)(uintptr_t)&tune;
#endif
	return cfg;
}

static inline void h_lane_open(struct end *e)
{
	struct lane_cfg cfg = h_cfg(e);

	if (e->pair->ops->open(&cfg, &e->l, &e->addr) != SIRCL_SUCCESS)
		ck_abort_msg("%s: %s", e->pair->ops->name, error_last()->msg);
	ck_assert_int_eq(e->pair->ops->reg(e->l, 1, arena_base(e->send), H_ARENA, &e->send_mem, NULL),
			 SIRCL_SUCCESS);
}

static inline void h_open(struct pair *p, const struct lane_ops *ops)
{
	memset(p, 0, sizeof(*p));
	p->ops = ops;
#ifdef HARNESS_SIM
	if (h_is_sim(p)) {
		ck_assert_int_eq(sim_create(&p->sim, &sim_hostile, 1), SIRCL_SUCCESS);
		for (int i = 0; i < 2; i++) {
			struct sim_program prog = { h_sim_run, h_sim_deadline, &p->e[i] };

			ck_assert_int_eq(sim_node(p->sim, &prog), i);
		}
		sim_cable_lane(p->sim, 0, 0, 0, 1, &p->port[0], &p->port[1]);
	}
#endif
	for (int i = 0; i < 2; i++) {
		h_end_init(p, i);
#ifdef HARNESS_SIM
		if (p->sim != NULL) {
			p->e[i].ctx.clock = sim_clock;
			p->e[i].ctx.clock_arg = p->sim;
		}
#endif
		h_lane_open(&p->e[i]);
	}
}

static inline void h_connect(struct pair *p, uint32_t epoch)
{
	struct tick t = h_tick(&p->e[0]);

	p->ops->allow(p->e[1].l, epoch);
	if (p->ops->connect(p->e[0].l, &t, &p->e[1].addr, epoch) != SIRCL_SUCCESS)
		ck_abort_msg("%s: %s", p->ops->name, error_last()->msg);
}

/* Both ends up in `epoch`. */
static inline void h_up(struct pair *p, uint32_t epoch)
{
	int from[2] = { p->e[0].nseen, p->e[1].nseen };

	h_connect(p, epoch);
	for (int i = 0; i < 2; i++) {
		int at = h_wait(p, i, from[i], LANE_UP, 2500);

		ck_assert_uint_eq(p->e[i].seen[at % H_SEEN].ev.epoch, epoch);
	}
}

static inline void h_close(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		if (p->e[i].l != NULL)
			p->ops->close(p->e[i].l);
	for (int i = 0; i < 2; i++) {
		arena_destroy(p->e[i].arena);
		arena_destroy(p->e[i].send);
		free(p->e[i].seen);
		key_ring_wipe(&p->e[i].keys);
		log_close(&p->e[i].ctx.log);
		params_free(&p->e[i].ctx.params);
	}
#ifdef HARNESS_SIM
	if (p->sim != NULL)
		sim_destroy(p->sim);
#endif
}

/* One put from the end's send memory at `src_off` to the peer's region; 1: accepted. */
static inline int h_put(struct end *e, size_t src_off, uint32_t len, const struct lane_export *dst,
			uint64_t dst_off, const uint64_t note[6])
{
	struct tick t = h_tick(e);
	struct lane_put put = { .src = len > 0 ? (char *)arena_base(e->send) + src_off : NULL,
				.len = len,
				.smem = &e->send_mem,
				.dst = dst,
				.dst_off = dst_off };

	memcpy(put.note.w, note, sizeof(put.note.w));
	return e->pair->ops->put(e->l, &t, &put, 1);
}

static inline uint32_t h_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static inline void h_fill(void *buf, size_t n, uint32_t seed)
{
	uint8_t *b = buf;

	for (size_t i = 0; i < n; i++)
		b[i] = (uint8_t)((i * 7 + seed * 131 + (i >> 8) * 13) & 255);
}
static inline bool h_filled(const void *buf, size_t n, uint32_t seed)
{
	const uint8_t *b = buf;

	for (size_t i = 0; i < n; i++)
		if (b[i] != (uint8_t)((i * 7 + seed * 131 + (i >> 8) * 13) & 255))
			return false;
	return true;
}
#endif
