/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two links, face to face, with an application at each end that notices every way in which "exactly once" can
 * fail: a frame twice, a frame with wrong bytes, a byte that lands in memory that was delivered already, a
 * source that is read after it was released. Lanes are the caller's (link_fake.h or lane/sim).
 */
#ifndef TESTS_LINK_PAIR_H
#define TESTS_LINK_PAIR_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "link/link_internal.h"

#define PAIR_SLOTS 512 /* places of frames in an arena; also the most frames ahead of the receiver */
#define PAIR_BYTES 1024 /* of a place */
#define PAIR_MAX 100000
#define PAIR_FREE 0xdd /* what memory holds that belongs to nobody */

/* As ck_assert, which writes to a file even when all is well, but for places that are passed a million times.
 */
#define must(cond, what) \
	do { \
		if (!(cond)) \
			ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, what); \
	} while (0)

struct pair;
struct pair_end {
	struct pair *pair;
	int me;
	struct sircl_ctx ctx;
	struct link *link;
	uint32_t goal, sent, got, released, posted; /* frames */
	uint32_t len; /* of each frame */
	uint8_t *seen; /* by number: delivered */
	uint8_t *src; /* PAIR_SLOTS places; refilled with PAIR_FREE when released */
	const struct link_mem *smem;
	size_t win; /* offset of the places in the arena */
	bool ack_soon, hold; /* hold: sends nothing */
	int dead, regions;
	uint64_t by_lane[LANES_MAX]; /* bytes delivered */
	uint64_t region_len[LANE_REGIONS_MAX];
	bool (*check_release)(struct pair_end *, uint32_t fno);
};
struct pair {
	struct pair_end end[2];
	uint64_t now;
	const struct key_ring *keys;
	const char *lab;
	char *fail; /* what went wrong first, instead of an assertion inside a callback */
};

static inline void pair_fail(struct pair *p, const char *what, uint32_t fno)
{
	if (!p->fail && asprintf(&p->fail, "%s, frame %u, at %llu us", what, fno,
				 (unsigned long long)(p->now / USEC)) < 0)
		abort();
}

static inline uint8_t pair_byte(int from, uint32_t fno, uint32_t i)
{
	return (uint8_t)(fno * 7 + i * 13 + (uint32_t)from * 101 + (fno >> 8) + 1);
}

static void pair_deliver(void *user, struct link *l, struct tick *t, const struct link_frame *f)
{
	struct pair_end *e = user;
	uint8_t *at =
		(uint8_t *)arena_base(link_arena(l)) + e->win + (size_t)(f->fno % PAIR_SLOTS) * PAIR_BYTES;

	(void)t;
	if (f->fno >= PAIR_MAX || e->seen[f->fno])
		pair_fail(e->pair, "delivered twice", f->fno);
	if (f->kind != LINK_KIND_USER + 3 || f->label != 77 || f->tag != f->fno * 3ull ||
	    f->off != f->fno + 5ull || f->msg != ~f->fno || f->flags != 9)
		pair_fail(e->pair, "header changed", f->fno);
	e->seen[f->fno] = 1;
	e->got++;
	e->by_lane[f->lane % LANES_MAX] += f->len;
	for (uint32_t i = 0; i < f->len; i++)
		if (at[i] != pair_byte(!e->me, f->fno, i)) {
			pair_fail(e->pair, "wrong bytes", f->fno);
			break;
		}
	memset(at, PAIR_FREE, PAIR_BYTES);
}

static void pair_released(void *user, struct link *l, void *owner, uint32_t fno)
{
	struct pair_end *e = user;

	(void)l;
	if (owner != e)
		pair_fail(e->pair, "released to a stranger", fno);
	if (!e->pair->end[!e->me].seen[fno])
		pair_fail(e->pair, "released before the peer has it", fno);
	e->released++;
	memset(e->src + (size_t)(fno % PAIR_SLOTS) * PAIR_BYTES, PAIR_FREE, PAIR_BYTES);
}

static void pair_region(void *user, struct link *l, uint16_t region, uint64_t len)
{
	struct pair_end *e = user;

	(void)l;
	e->regions += len ? 1 : -1;
	e->region_len[region] = len;
}

static void pair_dead(void *user, struct link *l)
{
	struct pair_end *e = user;

	(void)l;
	e->dead++;
}

static const struct link_user_ops pair_ops = {
	.deliver = pair_deliver, .released = pair_released, .region = pair_region, .dead = pair_dead
};

static uint64_t pair_clock(void *arg)
{
	return ((struct pair *)arg)->now;
}

/* One end; ops and providers of its lanes are given. Parameters come from nowhere, so all are defaults. */
static inline const char *pair_getenv(void *arg, const char *name)
{
	(void)arg;
	return strcmp(name, "SIRCL_DEBUG") ? NULL : getenv("SIRCL_TEST_LOG") ? "trace" : "none";
}

static inline void pair_open(struct pair *p, int me, int nlanes, const struct lane_ops *ops,
			     void *const provider[], uint32_t window)
{
	struct pair_end *e = &p->end[me];
	struct link_cfg cfg = {
		.ctx = &e->ctx,
		.side = me ? LINK_PREV : LINK_NEXT,
		.keys = p->keys,
		.lab = p->lab ? p->lab : "test",
		.cable = 0,
		.self = (uint16_t)me,
		.peer = (uint16_t)!me,
		.self_rank = (uint16_t)me,
		.peer_rank = (uint16_t)!me,
		.connects = me == 0,
		.nlanes = nlanes,
		.arena_bytes = PAIR_SLOTS * PAIR_BYTES,
		.window = window,
		.ops = &pair_ops,
		.user = e,
	};

	e->pair = p;
	e->me = me;
	e->seen = calloc(1, PAIR_MAX);
	e->len = 100;
	ck_assert_int_eq(params_load_from(&e->ctx.params, pair_getenv, NULL), SIRCL_SUCCESS);
	log_init(&e->ctx.log, &e->ctx.params, me);
	e->ctx.clock = pair_clock;
	e->ctx.clock_arg = p;
	for (int i = 0; i < nlanes; i++) {
		cfg.lane[i].ops = ops;
		cfg.lane[i].provider = provider[i];
	}
	ck_assert_msg(link_open(&cfg, &e->link) == SIRCL_SUCCESS, "%s", error_last()->msg);
	e->win = arena_alloc(link_arena(e->link), PAIR_SLOTS * PAIR_BYTES);
	ck_assert_uint_ne(e->win, SIZE_MAX);
	memset((uint8_t *)arena_base(link_arena(e->link)) + e->win, PAIR_FREE, PAIR_SLOTS * PAIR_BYTES);
	e->src = malloc(PAIR_SLOTS * PAIR_BYTES);
	memset(e->src, PAIR_FREE, PAIR_SLOTS * PAIR_BYTES);
}

static inline void pair_connect(struct pair *p)
{
	struct tick t = { .now = p->now };

	for (int i = 1; i >= 0; i--) {
		struct link_addr a;

		link_local_addr(p->end[!i].link, &a);
		ck_assert_int_eq(link_connect(p->end[i].link, &t, &a), SIRCL_SUCCESS);
	}
}

/* Sends what it may; a place is used again when the frame before it was delivered and, here, is free. */
static inline void pair_send(struct pair_end *e, struct tick *t)
{
	struct pair_end *to = &e->pair->end[!e->me];

	while (!e->hold && e->sent < e->goal) {
		uint32_t n = e->sent;
		uint8_t *src = e->src + (size_t)(n % PAIR_SLOTS) * PAIR_BYTES;
		struct link_put put = { .frame = { .label = 77,
						   .kind = LINK_KIND_USER + 3,
						   .flags = 9,
						   .msg = ~n,
						   .fno = n,
						   .len = e->len,
						   .off = n + 5ull,
						   .tag = n * 3ull },
					.src = src,
					.smem = e->smem,
					.dst_off = to->win + (size_t)(n % PAIR_SLOTS) * PAIR_BYTES,
					.owner = e,
					.ack_soon = e->ack_soon };
		enum link_put_result r;

		if (n >= PAIR_SLOTS && (!to->seen[n - PAIR_SLOTS] || src[0] != PAIR_FREE))
			return;
		if (!link_room(e->link))
			return;
		for (uint32_t i = 0; i < e->len; i++)
			src[i] = pair_byte(e->me, n, i);
		if (e->len)
			src[0] = pair_byte(e->me, n, 0);
		r = link_put(e->link, t, &put);
		if (r != LINK_PUT_POSTED)
			memset(src, PAIR_FREE, PAIR_BYTES);
		if (r == LINK_PUT_NO)
			return;
		e->posted += r == LINK_PUT_POSTED;
		e->sent++;
	}
}

static inline bool pair_done(const struct pair *p)
{
	for (int i = 0; i < 2; i++)
		if (p->end[i].sent < p->end[i].goal || p->end[!i].got < p->end[i].goal ||
		    !link_idle(p->end[i].link) || p->end[i].released < p->end[i].posted)
			return false;
	return true;
}

/* After everything was delivered: nothing has landed since. */
static inline void pair_check(struct pair *p)
{
	ck_assert_msg(!p->fail, "%s", p->fail);
	for (int i = 0; i < 2; i++) {
		const uint8_t *w = (uint8_t *)arena_base(link_arena(p->end[i].link)) + p->end[i].win;

		ck_assert_uint_eq(p->end[i].got, p->end[!i].goal);
		ck_assert_uint_eq(p->end[i].released, p->end[i].posted);
		for (size_t k = 0; k < PAIR_SLOTS * PAIR_BYTES; k++)
			must(w[k] == PAIR_FREE, "a byte landed after delivery");
	}
}

static inline void pair_close_end(struct pair_end *e)
{
	link_close(e->link);
	free(e->src);
	free(e->seen);
	log_close(&e->ctx.log);
	params_free(&e->ctx.params);
}

static inline void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		pair_close_end(&p->end[i]);
	free(p->fail);
}
#endif
