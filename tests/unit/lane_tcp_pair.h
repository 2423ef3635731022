/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two tcp lanes in one process, for the tests of the provider: `a` connects, `b` accepts. Time is the test's
 * own: time limits are reached by moving it. What poll reports is collected in struct seen.
 */
#ifndef LANE_TCP_PAIR_H
#define LANE_TCP_PAIR_H
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "lane/tcp_internal.h"

#define ARENA (1u << 20)
#define NOTES 64u

struct seen {
	int up, suspect, fenced, down;
	uint32_t up_epoch, suspect_epoch, fenced_epoch, down_epoch;
	bool gone;
	uint64_t notes, done, next; /* next: the note number that has to come */
	bool unordered;
	char why[300];
};

struct end {
	struct sircl_ctx ctx;
	struct lane *l;
	struct lane_addr addr;
	uint8_t *arena;
	struct tick t;
	struct seen seen;
	/* called for every note, before the next poll */
	void (*on_note)(struct end *, const struct lane_note *);
	void *arg;
};

struct pair {
	struct key_ring keys[2];
	struct tcp_tune tune;
	struct end a, b;
};

static inline uint64_t real_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static inline int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline void end_cfg(struct pair *p, struct end *e, const char *dev, struct lane_cfg *cfg)
{
	bool connects = e == &p->a;

	e->ctx.log.fd = e->ctx.log.fd ? e->ctx.log.fd : 2;
	e->t.now = e->t.now ? e->t.now : SEC;
	*cfg = (struct lane_cfg){
		.ctx = &e->ctx,
		.keys = &p->keys[connects ? 0 : 1],
		.lab = "test",
		.job = "a job's identity",
		.cable = 3,
		.lane = 1,
		.self = connects ? 0 : 1,
		.peer = connects ? 1 : 0,
		.connects = connects,
		.dev = dev,
		.max_notes = NOTES,
		.arena_base = e->arena,
		.arena_len = ARENA,
		.arena_fd = -1,
		.provider = &p->tune,
	};
}

static inline sircl_result_t end_open(struct pair *p, struct end *e, const char *dev)
{
	struct lane_cfg cfg;

	if (!e->arena)
		e->arena = calloc(1, ARENA);
	ck_assert_ptr_nonnull(e->arena);
	end_cfg(p, e, dev, &cfg);
	return lane_tcp_ops.open(&cfg, &e->l, &e->addr);
}

static inline void pair_keys(struct pair *p, const char *a, const char *b)
{
	ck_assert_int_eq(key_ring_init(&p->keys[0]), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_init(&p->keys[1]), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&p->keys[0], KEY_UNIQUE_ID, a, strlen(a)), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&p->keys[1], KEY_UNIQUE_ID, b, strlen(b)), SIRCL_SUCCESS);
}

static inline struct pair *pair_new(void)
{
	struct pair *p = calloc(1, sizeof(*p));

	ck_assert_ptr_nonnull(p);
	pair_keys(p, "the key", "the key");
	return p;
}

static inline void pair_open(struct pair *p)
{
	ck_assert_int_eq(end_open(p, &p->b, NULL), SIRCL_SUCCESS);
	ck_assert_int_eq(end_open(p, &p->a, NULL), SIRCL_SUCCESS);
}

static inline void pair_close(struct pair *p)
{
	lane_tcp_ops.close(p->a.l);
	lane_tcp_ops.close(p->b.l);
	free(p->a.arena);
	free(p->b.arena);
	free(p);
}

/* One poll of at most `max` events. */
static inline int end_poll_max(struct end *e, int max)
{
	struct lane_event ev[64];
	int n, i;

	e->t.now += USEC;
	n = lane_tcp_ops.poll(e->l, &e->t, ev, max);
	ck_assert_int_le(n, max);
	for (i = 0; i < n; i++) {
		struct seen *s = &e->seen;

		switch (ev[i].ev) {
		case LANE_UP:
			s->up++;
			s->up_epoch = ev[i].epoch;
			break;
		case LANE_NOTE:
			if (ev[i].note.w[0] != s->next)
				s->unordered = true;
			s->next = ev[i].note.w[0] + 1;
			s->notes++;
			if (e->on_note)
				e->on_note(e, &ev[i].note);
			break;
		case LANE_DONE:
			s->done += ev[i].done;
			break;
		case LANE_SUSPECT:
			s->suspect++;
			s->suspect_epoch = ev[i].epoch;
			s->gone = ev[i].gone;
			snprintf(s->why, sizeof(s->why), "%s", ev[i].why);
			break;
		case LANE_FENCED:
			s->fenced++;
			s->fenced_epoch = ev[i].epoch;
			break;
		case LANE_DOWN:
			s->down++;
			s->down_epoch = ev[i].epoch;
			s->gone = ev[i].gone;
			snprintf(s->why, sizeof(s->why), "%s", ev[i].why);
			break;
		}
	}
	return n;
}

static inline int end_poll(struct end *e)
{
	return end_poll_max(e, 64);
}

/* Polls both until `cond`, for what is sure to come: five seconds, and at least some passes, since a busy
 * machine may let the test stand still between the two looks at the clock. */
#define POLL_UNTIL(p, cond) \
	do { \
		uint64_t until_ = real_now() + 5 * SEC; \
		for (int pass_ = 0; !(cond) && (pass_ < 100 || real_now() < until_); pass_++) { \
			end_poll(&(p)->a); \
			end_poll(&(p)->b); \
		} \
	} while (0)
#define POLL_END_UNTIL(e, cond) \
	do { \
		uint64_t until_ = real_now() + 5 * SEC; \
		for (int pass_ = 0; !(cond) && (pass_ < 100 || real_now() < until_); pass_++) \
			end_poll(e); \
	} while (0)

static inline void pair_up(struct pair *p, uint32_t epoch)
{
	int na = p->a.seen.up, nb = p->b.seen.up;

	lane_tcp_ops.allow(p->b.l, epoch);
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, epoch), SIRCL_SUCCESS);
	POLL_UNTIL(p, p->a.seen.up > na && p->b.seen.up > nb);
	ck_assert_int_eq(p->a.seen.up, na + 1);
	ck_assert_int_eq(p->b.seen.up, nb + 1);
	ck_assert_uint_eq(p->a.seen.up_epoch, epoch);
	ck_assert_uint_eq(p->b.seen.up_epoch, epoch);
	ck_assert_uint_eq(lane_tcp_ops.peer_export(p->a.l)->len, ARENA);
	ck_assert_uint_eq(lane_tcp_ops.peer_export(p->b.l)->len, ARENA);
}

/* One put of note number `number`; true if it was accepted. */
static inline bool end_put(struct end *e, const void *src, uint32_t len, uint64_t off, uint64_t number)
{
	struct lane_put put = { .src = src,
				.len = len,
				.dst = lane_tcp_ops.peer_export(e->l),
				.dst_off = off,
				.note = { .w = { number, len, off, 4, 5, ~0ull } } };

	return lane_tcp_ops.put(e->l, &e->t, &put, 1) == 1;
}
#endif
