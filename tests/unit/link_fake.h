/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane under the test's thumb: what was put lies in flight until the test lets it land, in either direction
 * and one item at a time; a path can die with or without an error at either end, and what is in flight then
 * may still land, byte by byte from the source as it is then, until the receiving end has fenced.
 */
#ifndef TESTS_LINK_FAKE_H
#define TESTS_LINK_FAKE_H
#include <stdlib.h>
#include "link_pair.h"

#define FAKE_QUEUE 2048
#define FAKE_EVENTS 4096

struct fake_item {
	struct lane_put put;
	uint32_t epoch, key;
};
struct fake_end {
	struct lane_base base;
	struct fake_lane *lane;
	int me;
	struct lane_cfg cfg;
	bool up, suspected;
	uint32_t epoch, fenced, allowed;
	struct lane_mem mem[LANE_REGIONS_MAX];
	bool exported[LANE_REGIONS_MAX]; /* the peer may write it */
	struct lane_export peer_arena;
	uint64_t named_len; /* what the peer says of its arena; 0: the truth */
	/* in flight towards this end */
	struct fake_item q[FAKE_QUEUE];
	uint32_t head, tail;
	struct lane_event ev[FAKE_EVENTS];
	uint32_t ev_head, ev_tail;
	uint32_t room; /* puts accepted; 0: no limit */
	uint64_t fences, puts, notes;
	bool hold_fence; /* LANE_FENCED waits */
	bool full; /* put takes nothing */
	uint32_t lost; /* a put of this epoch did not land; as soon as the path works, posts fail */
};
struct fake_lane {
	struct fake_end end[2];
	bool dead; /* the path: nothing lands by itself */
	bool no_connect, no_answer, refused, half_open; /* half_open: only the connecting end comes up */
	bool manual; /* items land only by fake_land */
	uint32_t rate; /* items that land in a pass by themselves, 0: all */
};

static inline void fake_event(struct fake_end *e, struct lane_event ev)
{
	must(e->ev_tail - e->ev_head < FAKE_EVENTS, "too many events");
	e->ev[e->ev_tail++ % FAKE_EVENTS] = ev;
}

static sircl_result_t fake_open(const struct lane_cfg *cfg, struct lane **out, struct lane_addr *addr)
{
	struct fake_end *e = cfg->provider;

	e->cfg = *cfg;
	e->mem[0] = (struct lane_mem){ .base = cfg->arena_base, .len = cfg->arena_len };
	e->exported[0] = true;
	e->allowed = UINT32_MAX;
	addr->len = 1;
	*out = (struct lane *)(void *)e;
	return SIRCL_SUCCESS;
}

static sircl_result_t fake_connect(struct lane *lane, struct tick *t, const struct lane_addr *peer,
				   uint32_t epoch)
{
	struct fake_end *e = (void *)lane, *o = &e->lane->end[!e->me];

	(void)t;
	(void)peer;
	must(!e->up, "connect while up");
	must(epoch > e->fenced, "connect in a fenced epoch");
	if (e->lane->no_answer)
		return SIRCL_SUCCESS;
	if (!e->lane->dead && !e->lane->no_connect && o->up && epoch > o->epoch) {
		if (!o->suspected)
			fake_event(o, (struct lane_event){ .ev = LANE_SUSPECT,
							   .epoch = o->epoch,
							   .why = "peer reconnects" });
		o->suspected = true;
	}
	if (e->lane->dead || e->lane->no_connect || o->up || epoch < o->allowed) {
		fake_event(e, (struct lane_event){ .ev = LANE_DOWN,
						   .epoch = epoch,
						   .why = "refused",
						   .gone = e->lane->refused });
		return SIRCL_SUCCESS;
	}
	for (int i = 0; i < 2; i++) {
		struct fake_end *x = &e->lane->end[i];

		if (i != e->me && e->lane->half_open)
			continue;
		x->up = true;
		x->suspected = false;
		x->epoch = epoch;
		x->head = x->tail; /* nothing old can be there: both have fenced */
		x->peer_arena = (struct lane_export){ .key = 0,
						      .len = x->named_len ? x->named_len
									  : e->lane->end[!i].mem[0].len };
		fake_event(x, (struct lane_event){ .ev = LANE_UP, .epoch = epoch });
	}
	return SIRCL_SUCCESS;
}

static void fake_allow(struct lane *lane, uint32_t min)
{
	((struct fake_end *)(void *)lane)->allowed = min;
}

static sircl_result_t fake_reg(struct lane *lane, uint32_t id, void *p, size_t n, struct lane_mem *m,
			       struct lane_export *x)
{
	struct fake_end *e = (void *)lane;

	*m = e->mem[id] = (struct lane_mem){ .base = p, .len = n, .id = id };
	e->exported[id] = x != NULL;
	if (x)
		*x = (struct lane_export){ .key = id, .len = n, .addr = (uint64_t)(uintptr_t)p };
	return SIRCL_SUCCESS;
}

static void fake_unreg(struct lane *lane, struct lane_mem *m)
{
	((struct fake_end *)(void *)lane)->mem[m->id].base = NULL;
}

static const struct lane_export *fake_peer(const struct lane *lane)
{
	return &((const struct fake_end *)(const void *)lane)->peer_arena;
}

static int fake_put(struct lane *lane, struct tick *t, const struct lane_put *p, int n)
{
	struct fake_end *e = (void *)lane, *o = &e->lane->end[!e->me];

	(void)t;
	must(e->up, "put on a lane that is not up");
	for (int i = 0; i < n; i++) {
		if (e->full || (e->room && o->tail - o->head >= e->room))
			return i;
		must(o->tail - o->head < FAKE_QUEUE, "too many puts");
		o->q[o->tail++ % FAKE_QUEUE] = (struct fake_item){ .put = p[i],
								   .epoch = e->epoch,
								   .key = p[i].len ? p[i].dst->key : 0 };
		if (e->base.ops->lossless && p[i].len) { /* is there already */
			must(o->exported[p[i].dst->key], "put into memory that was not exported");
			memcpy((uint8_t *)o->mem[p[i].dst->key].base + p[i].dst_off, p[i].src, p[i].len);
			o->q[(o->tail - 1) % FAKE_QUEUE].put.len = 0;
		}
		e->puts++;
	}
	return n;
}

/* The oldest item in flight towards this end lands; false: there is none. */
static inline bool fake_land(struct fake_end *e)
{
	struct fake_item *it;

	if (e->head == e->tail)
		return false;
	it = &e->q[e->head++ % FAKE_QUEUE];
	if (it->epoch <= e->fenced || !e->up || it->epoch != e->epoch) { /* fenced: it cannot */
		e->lane->end[!e->me].lost = it->epoch;
		return true;
	}
	if (it->put.len) {
		struct lane_mem *m = &e->mem[it->key];

		must(e->exported[it->key], "put into memory that was not exported");
		must(m->base && it->put.dst_off + it->put.len <= m->len, "put outside a region");
		memcpy((uint8_t *)m->base + it->put.dst_off, it->put.src, it->put.len);
	}
	e->notes++;
	fake_event(e, (struct lane_event){ .ev = LANE_NOTE, .epoch = e->epoch, .note = it->put.note });
	fake_event(&e->lane->end[!e->me],
		   (struct lane_event){ .ev = LANE_DONE, .epoch = e->epoch, .done = 1 });
	return true;
}

static int fake_poll(struct lane *lane, struct tick *t, struct lane_event *ev, int max)
{
	struct fake_end *e = (void *)lane;
	int n = 0;

	(void)t;
	if (!e->lane->dead && !e->lane->manual)
		for (uint32_t k = 0; (!e->lane->rate || k < e->lane->rate) && fake_land(e); k++)
			;
	if (e->up && e->lost == e->epoch && !e->suspected && !e->lane->dead && !e->lane->half_open) {
		e->suspected = true;
		fake_event(e, (struct lane_event){ .ev = LANE_SUSPECT,
						   .epoch = e->epoch,
						   .why = "the peer's end is fenced" });
	}
	while (n < max && e->ev_head != e->ev_tail) {
		if (e->hold_fence && e->ev[e->ev_head % FAKE_EVENTS].ev == LANE_FENCED)
			break;
		ev[n++] = e->ev[e->ev_head++ % FAKE_EVENTS];
	}
	return n;
}

static int fake_arm(struct lane *lane, struct pollfd *p, int max)
{
	(void)lane;
	(void)p;
	(void)max;
	return 0;
}

static uint64_t fake_deadline(const struct lane *lane)
{
	(void)lane;
	return NEVER;
}

static void fake_fence(struct lane *lane, uint32_t epoch)
{
	struct fake_end *e = (void *)lane;

	e->fences++;
	while (e->base.ops->lossless && fake_land(e))
		;
	e->up = false;
	e->fenced = epoch;
	fake_event(e, (struct lane_event){ .ev = LANE_FENCED, .epoch = epoch });
}

static void fake_close(struct lane *lane)
{
	(void)lane;
}

static void fake_stats(const struct lane *lane, struct lane_stats *s)
{
	*s = (struct lane_stats){ .puts = ((const struct fake_end *)(const void *)lane)->puts };
}

#define FAKE_OPS \
	.name = "fake", .max_put = 1 << 20, .open = fake_open, .connect = fake_connect, .allow = fake_allow, \
	.reg = fake_reg, .unreg = fake_unreg, .peer_export = fake_peer, .put = fake_put, .poll = fake_poll, \
	.arm = fake_arm, .deadline = fake_deadline, .fence = fake_fence, .close = fake_close, \
	.stats = fake_stats

/* copies nothing by itself, so that sources are retained */
static const struct lane_ops fake_ops = { FAKE_OPS, .can_fence = true };
static const struct lane_ops fake_copy_ops
	__attribute__((unused)) = { FAKE_OPS, .can_fence = true, .copy_limit = 64, .needs_reg = true };
static const struct lane_ops fake_lossless_ops __attribute__((unused)) = { FAKE_OPS, .lossless = true };

static inline void fake_die(struct fake_lane *f, unsigned seen)
{
	f->dead = true;
	for (int i = 0; i < 2; i++)
		if ((seen >> i & 1) && f->end[i].up && !f->end[i].suspected) {
			f->end[i].suspected = true;
			fake_event(&f->end[i], (struct lane_event){ .ev = LANE_SUSPECT,
								    .epoch = f->end[i].epoch,
								    .why = "carrier lost" });
		}
}

/* The process at this end is gone: the other sees every lane hang up. */
static inline void fake_hup(struct fake_lane *f, int seen_by)
{
	f->dead = f->refused = true;
	if (f->end[seen_by].up && !f->end[seen_by].suspected)
		fake_event(&f->end[seen_by], (struct lane_event){ .ev = LANE_SUSPECT,
								  .epoch = f->end[seen_by].epoch,
								  .why = "end of file",
								  .gone = true });
	f->end[seen_by].suspected = true;
}

/* A revived path: what was in flight when nobody had noticed goes on. */
static inline void fake_revive(struct fake_lane *f)
{
	f->dead = false;
}

struct fake_pair {
	struct pair p;
	struct fake_lane lane[4];
	int nlanes;
	bool stopped[2]; /* a process that is stopped */
};

static inline struct fake_pair *fake_pair_new(int nlanes, const struct lane_ops *ops, uint32_t window)
{
	struct fake_pair *f = calloc(1, sizeof(*f));

	f->nlanes = nlanes;
	f->p.now = SEC;
	for (int me = 0; me < 2; me++) {
		void *provider[LANES_MAX];

		for (int i = 0; i < nlanes; i++) {
			struct fake_end *e = &f->lane[i].end[me];

			e->base.ops = ops;
			e->lane = &f->lane[i];
			e->me = me;
			provider[i] = e;
		}
		pair_open(&f->p, me, nlanes, ops, provider, window);
	}
	return f;
}

/* One pass of both ends, `ns` later. */
static inline void fake_step(struct fake_pair *f, uint64_t ns)
{
	f->p.now += ns;
	for (int me = 0; me < 2; me++) {
		struct tick t = { .now = f->p.now };

		if (f->stopped[me])
			continue;
		link_progress(f->p.end[me].link, &t);
		pair_send(&f->p.end[me], &t);
	}
}

static inline void fake_run(struct fake_pair *f, uint64_t ns, uint64_t step)
{
	for (uint64_t end = f->p.now + ns; f->p.now < end;)
		fake_step(f, step);
}

/* Until both have everything, or `ns` are over. */
static inline bool fake_finish(struct fake_pair *f, uint64_t ns)
{
	for (uint64_t end = f->p.now + ns; f->p.now < end && !f->p.fail;) {
		if (pair_done(&f->p))
			return true;
		fake_step(f, 20 * USEC);
	}
	return pair_done(&f->p);
}

static inline void fake_must_finish(struct fake_pair *f, uint64_t ns)
{
	bool ok = fake_finish(f, ns);
	const struct pair_end *a = &f->p.end[0], *b = &f->p.end[1];

	ck_assert_msg(!f->p.fail, "%s", f->p.fail);
	ck_assert_msg(ok,
		      "not finished: A sent %u/%u got %u released %u/%u, B sent %u/%u got %u released %u/%u",
		      a->sent, a->goal, a->got, a->released, a->posted, b->sent, b->goal, b->got, b->released,
		      b->posted);
}

static inline void fake_pair_up(struct fake_pair *f)
{
	pair_connect(&f->p);
	fake_run(f, MSEC, 20 * USEC);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_UP);
	ck_assert_int_eq(link_state(f->p.end[1].link), LINK_UP);
}

static inline void fake_pair_free(struct fake_pair *f)
{
	pair_close(&f->p);
	free(f);
}

static inline struct tick fake_tick(const struct fake_pair *f)
{
	return (struct tick){ .now = f->p.now };
}
#endif
