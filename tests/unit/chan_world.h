/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for tests of channels: nodes on a ring or line, joined by fake links that keep link.h's promises
 * and no more. Frames are delivered exactly once, in any order, late; a posted source is read when its frame
 * lands, not before; a link says NO at random; landing in memory that is not registered fails the test.
 * Everything follows from the seed. Defines all of link.h that the channel layer uses, so the real link is
 * not linked.
 */
#ifndef CHAN_WORLD_H
#define CHAN_WORLD_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "link/chan_internal.h"

#define W_NODES 8
#define W_FLIGHT 64
#define W_REGIONS 8
#define W_LANE 5 /* by which everything comes */

/* Check writes a line for every assertion it passes; what is asserted often only says something when it
 * fails. */
#define W_OK(cond) \
	do { \
		if (!(cond)) \
			ck_abort_msg("%s", #cond); \
	} while (0)

struct link_mem {
	uint8_t *p;
	size_t len;
	uint16_t region;
	bool used, exported;
	int busy; /* frames in flight from or to it */
};
struct flight {
	bool used, landed, delivered, copied;
	struct link_put put;
	uint8_t *copy;
	uint64_t land, note, ack;
};
struct world;
struct link {
	struct world *w;
	struct link *peer;
	int node;
	enum link_side side;
	struct arena *arena;
	struct link_mem mem[W_REGIONS]; /* [0]: the arena */
	uint64_t announce[W_REGIONS]; /* when the peer hears of it; 0: never */
	struct flight out[W_FLIGHT]; /* of this end */
	int nout, window;
	bool dead;
	struct sircl_error err;
	uint64_t puts;
};
struct world {
	int n;
	bool ring;
	uint64_t seed, now;
	unsigned delay, no_percent, done_limit; /* ns at most; link_put says NO; copies up to this are DONE */
	uint32_t max_put;
	struct sircl_ctx ctx[W_NODES];
	struct chan_net *net[W_NODES];
	struct link link[W_NODES][LINK_SIDES];
	struct chan_notice heard[W_NODES][64];
	int nheard[W_NODES];
	bool stopped[W_NODES]; /* its program is not run */
	int damage; /* the how-manieth next frame with bytes lands with a bit turned round */
	bool hostile; /* nodes tell lies: a put that lands nowhere is not ours to judge */
};

static inline uint64_t w_rand(struct world *w, uint64_t below)
{
	w->seed += 0x9e3779b97f4a7c15ull;
	uint64_t z = w->seed;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	return below ? z % below : 0;
}

/* ---- link.h ---- */
bool link_room(const struct link *l)
{
	return !l->dead && l->nout < l->window;
}
bool link_lossless(const struct link *l)
{
	(void)l;
	return false;
}

uint32_t link_max_put(const struct link *l)
{
	return l->w->max_put;
}
uint32_t link_frame_now(const struct link *l)
{
	return l->w->max_put;
}
enum link_put_result link_put(struct link *l, struct tick *t, const struct link_put *p)
{
	struct world *w = l->w;
	W_OK(p->frame.kind >= 16);
	W_OK(p->frame.len <= w->max_put);
	if (!link_room(l) || w_rand(w, 100) < w->no_percent)
		return LINK_PUT_NO;
	if (p->frame.len) /* a region is used only when it has been announced */
		W_OK(p->region < W_REGIONS && (w->hostile || !l->peer->announce[p->region]));
	struct flight *f = NULL;
	for (int i = 0; i < W_FLIGHT && !f; i++)
		if (!l->out[i].used)
			f = &l->out[i];
	W_OK(f != NULL);
	*f = (struct flight){ .used = true, .put = *p };
	f->copied = p->frame.len <= w->done_limit || !p->smem;
	if (f->copied && p->frame.len) {
		f->copy = malloc(p->frame.len);
		memcpy(f->copy, p->src, p->frame.len);
		f->put.src = f->copy;
		f->put.smem = NULL;
	}
	if (f->put.smem)
		((struct link_mem *)f->put.smem)->busy++;
	f->land = t->now + w_rand(w, w->delay);
	f->note = f->land + w_rand(w, w->delay);
	f->ack = f->note + w_rand(w, w->delay);
	l->nout++;
	l->puts++;
	return f->copied ? LINK_PUT_DONE : LINK_PUT_POSTED;
}
static void w_land(struct link *l, struct flight *f)
{
	struct world *w = l->w;
	uint32_t len = f->put.frame.len;
	if (!f->landed && len) {
		struct link_mem *m = &l->peer->mem[f->put.region];
		bool in =
			m->used && m->exported && f->put.dst_off <= m->len && len <= m->len - f->put.dst_off;
		if (!in && w->hostile)
			goto landed;
		if (!in)
			ck_abort_msg("a put lands outside exported memory");
		memcpy(m->p + f->put.dst_off, f->put.src, len);
		if (w->damage && --w->damage == 0)
			m->p[f->put.dst_off + w_rand(w, len)] ^= (uint8_t)(1u << w_rand(w, 8));
	}
landed:
	f->landed = true;
}
static void w_drop(struct link *l, struct flight *f)
{
	if (f->put.smem)
		((struct link_mem *)f->put.smem)->busy--;
	free(f->copy);
	f->used = false;
	l->nout--;
}
bool link_progress(struct link *l, struct tick *t)
{
	struct world *w = l->w;
	const struct link_user_ops *ops = chan_net_link_ops();
	struct chan_net *net = w->net[l->node];
	bool any = false;
	if (l->dead)
		return false;
	for (int i = 1; i < W_REGIONS; i++)
		if (l->peer->announce[i] && l->peer->announce[i] <= t->now) {
			l->peer->announce[i] = 0;
			ops->region(net, l, (uint16_t)i, l->peer->mem[i].len);
		}
	int from = (int)w_rand(w, W_FLIGHT); /* any order */
	for (int k = 0; k < W_FLIGHT && !l->dead; k++) {
		int i = (from + k) % W_FLIGHT;
		struct flight *f = &l->peer->out[i];
		if (f->used && !f->delivered && f->note <= t->now) {
			w_land(l->peer, f);
			f->delivered = any = true;
			f->put.frame.lane = W_LANE;
			ops->deliver(net, l, t, &f->put.frame);
		}
		f = &l->out[i];
		if (f->used && f->delivered && f->ack <= t->now) {
			struct link_put p = f->put;
			bool copied = f->copied;
			w_drop(l, f);
			any = true;
			if (!copied && p.owner)
				ops->released(net, l, p.owner, p.frame.fno);
		}
	}
	return any;
}
uint64_t link_deadline(const struct link *l)
{
	(void)l;
	return NEVER;
}
int link_arm(struct link *l, struct pollfd *fds, int max)
{
	(void)l, (void)fds, (void)max;
	return 0;
}
void link_beside(struct link *a, struct link *b)
{
	(void)a, (void)b;
}
const struct sircl_error *link_error(const struct link *l)
{
	return &l->err;
}
struct arena *link_arena(const struct link *l)
{
	return l->arena;
}
size_t link_arena_off(const struct link *l, size_t off)
{
	(void)l;
	return off;
}
uint64_t link_peer_arena(const struct link *l)
{
	return l->peer->mem[0].len;
}
sircl_result_t link_source_add(struct link *l, void *p, size_t n, const struct link_mem **out)
{
	for (uint16_t i = 1; i < W_REGIONS; i++)
		if (!l->mem[i].used) {
			l->mem[i] = (struct link_mem){ .p = p, .len = n, .region = i, .used = true };
			*out = &l->mem[i];
			return SIRCL_SUCCESS;
		}
	return error_set(SIRCL_NO_MEMORY, "no region left");
}
sircl_result_t link_region_add(struct link *l, struct tick *t, void *p, size_t n, const struct link_mem **out)
{
	sircl_result_t r = link_source_add(l, p, n, out);
	if (r != SIRCL_SUCCESS)
		return r;
	l->mem[(*out)->region].exported = true;
	l->announce[(*out)->region] = t->now + 1 + w_rand(l->w, 2 * l->w->delay);
	return SIRCL_SUCCESS;
}
uint16_t link_mem_region(const struct link_mem *m)
{
	return m->region;
}
sircl_result_t link_region_remove(struct link *l, struct tick *t, const struct link_mem *m)
{
	(void)t;
	if (m->busy)
		return error_set(SIRCL_INVALID_USAGE, "a frame is in flight");
	if (m->exported)
		chan_net_link_ops()->region(l->w->net[l->peer->node], l->peer, m->region, 0);
	l->announce[m->region] = 0;
	l->mem[m->region].used = false;
	return SIRCL_SUCCESS;
}

/* ---- the world ---- */
static void w_notice(void *user, struct tick *t, const struct chan_notice *n)
{
	struct world *w = ((struct link *)user)->w;
	int node = ((struct link *)user)->node;
	(void)t;
	if (w->nheard[node] < 64)
		w->heard[node][w->nheard[node]++] = *n;
}

static inline void w_create(struct world *w, int n, bool ring, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->n = n;
	w->ring = ring;
	w->seed = seed * 7919 + 1;
	w->delay = 3000;
	w->no_percent = 10;
	w->done_limit = 2048;
	w->max_put = 1u << 20;
	for (int i = 0; i < n; i++) {
		struct chan_net_cfg cfg = { .ctx = &w->ctx[i],
					    .self = i,
					    .n = n,
					    .ring = ring,
					    .relay_limit = 64u << 20,
					    .notice = w_notice };
		w->ctx[i] =
			(struct sircl_ctx){ .rank = i, .nranks = n, .log = { .level = LOG_NONE, .fd = 2 } };
		cfg.user = &w->link[i][0];
		for (int s = 0; s < LINK_SIDES; s++) {
			struct link *l = &w->link[i][s];
			int j = s == LINK_NEXT ? (i + 1) % n : (i + n - 1) % n;
			l->w = w;
			l->node = i;
			l->side = (enum link_side)s;
			l->peer = &w->link[j][!s];
			l->window = 64;
		}
		ck_assert_int_eq(chan_net_create(&cfg, &w->net[i]), SIRCL_SUCCESS);
		for (int s = 0; s < LINK_SIDES; s++) {
			struct link *l = &w->link[i][s];
			if (!ring && ((i == 0 && s == LINK_PREV) || (i == n - 1 && s == LINK_NEXT)))
				continue;
			ck_assert_int_eq(arena_create(&l->arena, "test", 8u << 20), SIRCL_SUCCESS);
			l->mem[0] = (struct link_mem){ .p = arena_base(l->arena),
						       .len = arena_size(l->arena),
						       .used = true,
						       .exported = true };
			chan_net_set_link(w->net[i], (enum link_side)s, l);
		}
	}
}

static inline struct tick w_tick(const struct world *w)
{
	return (struct tick){ .now = w->now };
}

/* One step of time: what is due lands, every node (in any order) runs once. */
static inline void w_step(struct world *w)
{
	w->now += 1 + w_rand(w, w->delay / 4);
	for (int i = 0; i < w->n; i++)
		for (int s = 0; s < LINK_SIDES; s++)
			for (int k = 0; w->link[i][s].nout && k < W_FLIGHT; k++) {
				struct flight *f = &w->link[i][s].out[k];
				if (f->used && !f->delivered && f->land <= w->now && w_rand(w, 2))
					w_land(&w->link[i][s], f);
			}
	int first = (int)w_rand(w, (uint64_t)w->n);
	for (int i = 0; i < w->n; i++) {
		int node = (first + i) % w->n;
		struct tick t = w_tick(w);
		if (!w->stopped[node])
			(void)chan_net_progress(w->net[node], &t);
	}
}

/* Both ends of the link die as a fenced link does: some of what was in flight has landed. */
static inline void w_kill(struct world *w, int node, enum link_side side)
{
	struct link *e[2] = { &w->link[node][side], w->link[node][side].peer };
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < W_FLIGHT; k++)
			if (e[i]->out[k].used) {
				if (w_rand(w, 2) && !e[i]->out[k].delivered)
					w_land(e[i], &e[i]->out[k]);
				w_drop(e[i], &e[i]->out[k]);
			}
	for (int i = 0; i < 2; i++) {
		e[i]->dead = true;
		e[i]->err.code = SIRCL_REMOTE_ERROR;
		snprintf(e[i]->err.msg, sizeof(e[i]->err.msg), "cable of rank %d is gone", e[i]->node);
		chan_net_link_ops()->dead(w->net[e[i]->node], e[i]);
	}
}

static inline bool w_quiet(const struct world *w)
{
	for (int i = 0; i < w->n; i++)
		for (int s = 0; s < LINK_SIDES; s++)
			if (w->link[i][s].nout)
				return false;
	return true;
}

static inline void w_destroy(struct world *w)
{
	for (int i = 0; i < w->n; i++) {
		chan_net_destroy(w->net[i]);
		for (int s = 0; s < LINK_SIDES; s++) {
			for (int k = 0; k < W_FLIGHT; k++)
				if (w->link[i][s].out[k].used)
					free(w->link[i][s].out[k].copy);
			if (w->link[i][s].arena)
				arena_destroy(w->link[i][s].arena);
		}
	}
}

/* Opens both ends of a channel, in either order, some time apart. */
static inline void w_open(struct world *w, int a, int b, enum link_side via, uint32_t id, uint32_t window,
			  struct chan **ca, struct chan **cb)
{
	struct chan_cfg at_a = { .id = id, .peer = (uint16_t)b, .via = via, .window = window };
	struct chan_cfg at_b = {
		.id = id, .peer = (uint16_t)a, .via = (enum link_side) !via, .window = window
	};
	bool swap = w_rand(w, 2);
	struct tick t = w_tick(w);
	ck_assert_int_eq(chan_open(w->net[swap ? b : a], &t, swap ? &at_b : &at_a, swap ? cb : ca),
			 SIRCL_SUCCESS);
	for (uint64_t k = w_rand(w, 8); k; k--)
		w_step(w);
	t = w_tick(w);
	ck_assert_int_eq(chan_open(w->net[swap ? a : b], &t, swap ? &at_a : &at_b, swap ? ca : cb),
			 SIRCL_SUCCESS);
}

/* ---- flows: one direction of a channel, checked byte by byte ---- */
enum flow_mode { FLOW_LAND, FLOW_VIEW, FLOW_MIXED };
#define FLOW_MSGS 64
struct flow {
	struct chan *from, *to;
	int nmsg, sent, send_done, posted, recv_done;
	enum flow_mode mode;
	uint32_t salt;
	bool no_post; /* the receiver never posts */
	size_t len[FLOW_MSGS], viewed[FLOW_MSGS];
	uint8_t *src[FLOW_MSGS], *dst[FLOW_MSGS];
	struct xfer sx[FLOW_MSGS], rx[FLOW_MSGS];
	bool view[FLOW_MSGS], ended[FLOW_MSGS];
	uint8_t *src_mem, *dst_mem; /* all of them */
	size_t src_len, dst_len;
};

static inline uint8_t flow_byte(uint32_t salt, int msg, size_t i)
{
	return (uint8_t)((salt * 131u + (unsigned)msg * 29u + i + (i >> 8) * 7u + (i >> 16) * 13u) ^ 0x5a);
}

static inline void flow_init(struct world *w, struct flow *f, struct chan *from, struct chan *to, int nmsg,
			     size_t max, enum flow_mode mode)
{
	memset(f, 0, sizeof(*f));
	f->from = from;
	f->to = to;
	f->nmsg = nmsg;
	f->mode = mode;
	f->salt = (uint32_t)w_rand(w, 1000);
	size_t total = 0;
	for (int i = 0; i < nmsg; i++) {
		f->len[i] = w_rand(w, 4) ? w_rand(w, max + 1) : w_rand(w, 3) * 64;
		if (f->len[i] > max)
			f->len[i] = max;
		total += f->len[i] + 64;
	}
	f->src_len = f->dst_len = total;
	f->src_mem = malloc(total);
	f->dst_mem = malloc(total);
	size_t at = 0;
	for (int m = 0; m < nmsg; m++) {
		f->src[m] = f->src_mem + at;
		f->dst[m] = f->dst_mem + at;
		at += f->len[m] + 64;
		for (size_t i = 0; i < f->len[m]; i++)
			f->src[m][i] = flow_byte(f->salt, m, i);
		memset(f->dst[m], 0xee, f->len[m] + 64);
		f->view[m] = mode == FLOW_VIEW || (mode == FLOW_MIXED && w_rand(w, 2));
	}
}

static inline void flow_check(const struct flow *f, int m, const uint8_t *p, size_t off, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != flow_byte(f->salt, m, off + i))
			ck_abort_msg("message %d (%zu bytes): byte %zu is wrong", m, f->len[m], off + i);
}

/* Posts and polls; returns true when every message is sent, received and right. */
static inline bool flow_step(struct world *w, struct flow *f)
{
	struct tick t = w_tick(w);
	while (f->sent < f->nmsg && w_rand(w, 3)) {
		if (!chan_send(f->from, &t, f->src[f->sent], f->len[f->sent], 1000 + (uint64_t)f->sent,
			       &f->sx[f->sent]))
			break;
		f->sent++;
	}
	while (!f->no_post && f->posted < f->nmsg && w_rand(w, 3)) {
		int m = f->posted;
		bool ok = f->view[m] ? chan_recv_view(f->to, &t, f->len[m], &f->rx[m])
				     : chan_recv(f->to, &t, f->dst[m], f->len[m] + w_rand(w, 64), &f->rx[m]);
		if (!ok)
			break;
		f->posted++;
	}
	for (; f->send_done < f->sent; f->send_done++) {
		struct xfer *x = &f->sx[f->send_done];
		W_OK(x->err == SIRCL_SUCCESS);
		if (!x->finished)
			break;
		W_OK(x->done == f->len[f->send_done]);
		/* the source is ours again: who still reads it reads rubbish */
		memset(f->src[f->send_done], 0xdd, f->len[f->send_done]);
	}
	for (; f->recv_done < f->posted; f->recv_done++) {
		int m = f->recv_done;
		struct xfer *x = &f->rx[m];
		W_OK(x->err == SIRCL_SUCCESS);
		const void *p;
		size_t n;
		while (f->view[m] && (n = chan_view(f->to, x, &p)) > 0) {
			W_OK(f->viewed[m] + n <= x->done);
			if (n % 16)
				W_OK(f->viewed[m] + n == f->len[m]);
			flow_check(f, m, p, f->viewed[m], n);
			if (w_rand(w, 3) == 0)
				n = n > 100 ? 48 : n;
			f->viewed[m] += n;
			chan_consume(f->to, &t, x, n);
			if (w_rand(w, 4) == 0)
				break;
		}
		if (x->done || x->finished) {
			W_OK(x->tagged);
			W_OK(x->tag == 1000 + (uint64_t)m);
		}
		if (!x->finished)
			break;
		W_OK(x->len == f->len[m]);
		W_OK(x->done == f->len[m]);
		if (!f->view[m])
			flow_check(f, m, f->dst[m], 0, f->len[m]);
		for (int i = 0; i < 64; i++)
			W_OK(f->dst[m][f->len[m] + (size_t)i] == 0xee);
	}
	return f->send_done == f->nmsg && (f->no_post || f->recv_done == f->nmsg);
}

static inline void flow_free(struct flow *f)
{
	free(f->src_mem);
	free(f->dst_mem);
}

/* Until all flows are through. */
static inline void flows_run(struct world *w, struct flow *f, int n, int limit)
{
	for (int k = 0; k < limit; k++) {
		bool all = true;
		for (int i = 0; i < n; i++)
			all &= flow_step(w, &f[i]);
		if (all)
			return;
		w_step(w);
	}
	for (int i = 0; i < n; i++)
		if (f[i].recv_done < f[i].nmsg)
			fprintf(stderr, "flow %d: sent %d done %d posted %d received %d of %d\n", i,
				f[i].sent, f[i].send_done, f[i].posted, f[i].recv_done, f[i].nmsg);
	ck_abort_msg("hung after %d steps", limit);
}

static inline Suite *w_suite(const char *name, const TTest *const *tests, int n)
{
	Suite *s = suite_create(name);
	TCase *c = tcase_create(name);
	tcase_set_timeout(c, 60);
	for (int i = 0; i < n; i++)
		tcase_add_test(c, tests[i]);
	suite_add_tcase(s, c);
	return s;
}
#define W_MAIN(name, ...) \
	int main(void) \
	{ \
		const TTest *const tests[] = { __VA_ARGS__ }; \
		SRunner *r = srunner_create(w_suite(name, tests, (int)(sizeof(tests) / sizeof(tests[0])))); \
		srunner_run_all(r, CK_NORMAL); \
		int failed = srunner_ntests_failed(r); \
		srunner_free(r); \
		return failed != 0; \
	}
#endif
