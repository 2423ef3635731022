/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels between n engines in one thread, for tests of the executor alone: ordered byte queues with a
 * window, random pieces and random delays of acknowledgement. A source is read when its bytes move, and again
 * when it is released: a source that changed in between is a failure, and so is a landing in memory after a
 * transfer has ended. Defines the functions of chan.h and link.h that the engine calls, so the library's own
 * are not linked.
 */
#ifndef ENGINE_FAKE_H
#define ENGINE_FAKE_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"

#define FAKE_N 8
#define FAKE_Q 256

struct fake_msg {
	const uint8_t *src;
	uint8_t *dst;
	size_t len, moved, consumed, max;
	uint64_t tag, sum, release_at;
	bool view;
	struct xfer *x;
};

struct chan {
	struct chan_net *net;
	struct chan *peer;
	struct chan_cfg cfg;
	struct fake_msg out[FAKE_Q], in[FAKE_Q];
	uint32_t out_head, out_move, out_tail, in_head, in_tail; /* out_move: the one whose bytes move */
	uint8_t *win; /* bytes that have arrived and are not taken */
	size_t win_start, win_fill;
	struct { /* messages of which bytes have arrived */
		size_t len;
		uint64_t tag;
	} arrived[FAKE_Q];
	uint32_t arr_head, arr_tail;
	bool closed;
	struct sircl_error err;
};

struct chan_net {
	int pos;
	struct chan *chan[4];
	int nchan;
	struct fake *fake;
	uint64_t notices, notice_code;
	bool news; /* a transfer has changed while somebody else had his turn */
};

struct fake {
	struct chan_net net[FAKE_N];
	int n;
	uint64_t rng, rounds, views; /* views: calls of chan_view */
	size_t max_piece, max_delay;
	uint64_t notes; /* what link_stats says was heard */
	int probes; /* how often the peer was asked for a sign of life */
	int kills;
	bool hold; /* nothing moves */
	bool no_revoke; /* a closed channel's transfers end only when the link is killed */
};

static uint64_t fake_random(struct fake *f, uint64_t below)
{
	f->rng ^= f->rng << 13;
	f->rng ^= f->rng >> 7;
	f->rng ^= f->rng << 17;
	return below ? f->rng % below : 0;
}

static uint64_t fake_hash(const uint8_t *p, size_t n)
{
	uint64_t h = 1469598103934665603ull;

	for (; n >= 8; p += 8, n -= 8) {
		uint64_t w;

		memcpy(&w, p, 8);
		h = (h ^ w) * 1099511628211ull;
		h ^= h >> 32;
	}
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 1099511628211ull;
	return h;
}

sircl_result_t chan_open(struct chan_net *net, struct tick *tick, const struct chan_cfg *cfg,
			 struct chan **out)
{
	struct chan *c = calloc(1, sizeof(*c));
	struct chan_net *peer = &net->fake->net[cfg->peer];

	(void)tick;
	c->net = net;
	c->cfg = *cfg;
	c->win = malloc(cfg->window);
	net->chan[net->nchan++] = c;
	for (int i = 0; i < peer->nchan; i++) {
		if (peer->chan[i]->cfg.id != cfg->id || peer->chan[i] == c)
			continue;
		ck_assert(peer->chan[i]->cfg.via != cfg->via);
		c->peer = peer->chan[i];
		peer->chan[i]->peer = c;
	}
	*out = c;
	return SIRCL_SUCCESS;
}

bool chan_send(struct chan *c, struct tick *t, const void *p, size_t len, uint64_t tag, struct xfer *x)
{
	(void)t;
	if (c->out_tail - c->out_head == FAKE_Q || c->err.code)
		return false;
	ck_assert(len > 0);
	c->out[c->out_tail++ % FAKE_Q] =
		(struct fake_msg){ .src = p, .len = len, .tag = tag, .x = x, .sum = fake_hash(p, len) };
	return true;
}

static bool fake_post(struct chan *c, void *p, size_t max, bool view, struct xfer *x)
{
	if (c->in_tail - c->in_head == FAKE_Q || c->err.code)
		return false;
	c->in[c->in_tail++ % FAKE_Q] = (struct fake_msg){ .dst = p, .max = max, .view = view, .x = x };
	return true;
}

bool chan_recv(struct chan *c, struct tick *t, void *p, size_t max, struct xfer *x)
{
	(void)t;
	return fake_post(c, p, max, false, x);
}

bool chan_recv_view(struct chan *c, struct tick *t, size_t max, struct xfer *x)
{
	(void)t;
	return fake_post(c, NULL, max, true, x);
}

static void fake_take(struct chan *c, struct fake_msg *m, size_t n)
{
	c->win_start = (c->win_start + (n + 15) / 16 * 16) % c->cfg.window;
	c->win_fill -= (n + 15) / 16 * 16;
	m->consumed += n;
	m->x->done = m->consumed;
	if (m->consumed == m->len) {
		m->x->len = m->len;
		m->x->finished = true;
		c->in_head++;
		c->arr_head++;
	}
}

int chan_net_hops(const struct chan_net *net, uint16_t peer, enum link_side via)
{
	int d = via == LINK_NEXT ? peer - net->pos : net->pos - peer;

	return d < 0 ? d + net->fake->n : d;
}

void chan_hint(struct chan *c, struct tick *t, uint64_t word)
{
	(void)c;
	(void)t;
	(void)word;
}

bool chan_hinted(struct chan *c, uint64_t *word)
{
	(void)c;
	(void)word;
	return false;
}

size_t chan_memory(const struct chan *c)
{
	(void)c;
	return 0;
}

bool chan_peek(const struct chan *c, uint64_t *tag)
{
	if (c->in_head != c->in_tail || c->arr_head == c->arr_tail)
		return false;
	*tag = c->arrived[c->arr_head % FAKE_Q].tag;
	return true;
}

/* Contiguous readable bytes of the oldest receive. */
static size_t fake_readable(struct chan *c, const struct fake_msg *m)
{
	size_t n = m->len - m->consumed;

	if (n > c->win_fill)
		n = c->win_fill;
	if (n > c->cfg.window - c->win_start)
		n = c->cfg.window - c->win_start;
	return n;
}

size_t chan_view(struct chan *c, struct xfer *x, const void **p)
{
	struct fake_msg *m = &c->in[c->in_head % FAKE_Q];
	size_t n;

	c->net->fake->views++;
	if (c->in_head == c->in_tail || m->x != x || c->arr_head == c->arr_tail || !x->tagged)
		return 0;
	n = fake_readable(c, m);
	if (n > 16 && fake_random(c->net->fake, 2))
		n = 16 + fake_random(c->net->fake, n - 16) / 16 * 16;
	*p = c->win + c->win_start;
	return n;
}

void chan_consume(struct chan *c, struct tick *t, struct xfer *x, size_t n)
{
	struct fake_msg *m = &c->in[c->in_head % FAKE_Q];

	(void)t;
	ck_assert(m->x == x && n <= fake_readable(c, m));
	fake_take(c, m, n);
}

/* Bytes move towards the peer's window. */
static bool fake_move(struct chan *c)
{
	struct fake *f = c->net->fake;
	struct fake_msg *m = &c->out[c->out_move % FAKE_Q];
	struct chan *to = c->peer;
	size_t n, at, first;

	if (f->hold || !to || to->closed || c->out_move == c->out_tail)
		return false;
	if (m->moved == 0 && to->arr_tail - to->arr_head == FAKE_Q)
		return false;
	n = 16 * (1 + fake_random(f, f->max_piece / 16));
	if (n > m->len - m->moved)
		n = m->len - m->moved;
	if (n > to->cfg.window - to->win_fill)
		n = (to->cfg.window - to->win_fill) / 16 * 16;
	if (n == 0)
		return false;
	at = (to->win_start + to->win_fill) % to->cfg.window;
	first = n < to->cfg.window - at ? n : to->cfg.window - at;
	memcpy(to->win + at, m->src + m->moved, first);
	memcpy(to->win, m->src + m->moved + first, n - first);
	to->net->news = true;
	to->win_fill += (n + 15) / 16 * 16; /* the next message begins aligned */
	if (m->moved == 0) {
		to->arrived[to->arr_tail % FAKE_Q].len = m->len;
		to->arrived[to->arr_tail++ % FAKE_Q].tag = m->tag;
	}
	m->moved += n;
	if (m->moved == m->len) {
		m->release_at = f->rounds + fake_random(f, f->max_delay + 1);
		c->out_move++;
	}
	return true;
}

static bool fake_land(struct chan *c)
{
	struct fake_msg *m = &c->in[c->in_head % FAKE_Q];
	size_t n;

	if (c->in_head == c->in_tail || c->arr_head == c->arr_tail || c->closed)
		return false;
	m->len = c->arrived[c->arr_head % FAKE_Q].len;
	m->x->tag = c->arrived[c->arr_head % FAKE_Q].tag;
	m->x->tagged = true;
	if (m->len > m->max) {
		m->x->err = SIRCL_MISMATCH;
		c->in_head++;
		return true;
	}
	if (m->view)
		return false;
	n = fake_readable(c, m);
	if (n == 0)
		return false;
	memcpy(m->dst + m->consumed, c->win + c->win_start, n);
	fake_take(c, m, n);
	return true;
}

static bool fake_release(struct chan *c)
{
	struct fake_msg *m = &c->out[c->out_head % FAKE_Q];

	if (c->out_head == c->out_move || m->release_at > c->net->fake->rounds || c->closed)
		return false;
	ck_assert_msg(fake_hash(m->src, m->len) == m->sum,
		      "the source of an unacknowledged SEND was overwritten");
	m->x->done = m->len;
	m->x->finished = true;
	c->out_head++;
	return true;
}

bool chan_net_progress(struct chan_net *net, struct tick *t)
{
	bool any = net->news;

	(void)t;
	net->news = false;
	net->fake->rounds++;
	for (int i = 0; i < net->nchan; i++) {
		struct chan *c = net->chan[i];

		while (fake_move(c)) {
			any = true;
			if (fake_random(net->fake, 4) == 0)
				break;
		}
		while (fake_land(c))
			any = true;
		while (fake_release(c))
			any = true;
	}
	return any;
}

static void fake_end_transfers(struct chan *c, sircl_result_t code)
{
	c->net->news = true;
	while (c->in_head != c->in_tail)
		c->in[c->in_head++ % FAKE_Q].x->err = code;
	while (c->out_head != c->out_tail)
		c->out[c->out_head++ % FAKE_Q].x->err = code;
	c->out_move = c->out_head;
}

void chan_close(struct chan *c, struct tick *t)
{
	(void)t;
	c->closed = true;
	if (!c->net->fake->no_revoke)
		fake_end_transfers(c, SIRCL_ABORTED);
}

const struct sircl_error *chan_error(const struct chan *c)
{
	return c->err.code ? &c->err : NULL;
}

uint64_t chan_net_deadline(const struct chan_net *net)
{
	(void)net;
	return NEVER;
}

int chan_net_arm(struct chan_net *net, struct pollfd *fds, int max)
{
	(void)net;
	(void)fds;
	(void)max;
	return 0;
}

void chan_net_notify(struct chan_net *net, struct tick *t, enum notice_kind k, uint16_t subject,
		     uint32_t code, uint64_t arg)
{
	(void)t;
	(void)k;
	(void)subject;
	(void)arg;
	net->notices++;
	net->notice_code = code;
}

/* A link is its net and side; only its address matters. */
struct link *chan_net_link(const struct chan_net *net, enum link_side side)
{
	return (struct link *)(uintptr_t)&net->chan[side];
}

static struct chan_net *fake_net_of(const struct link *l)
{
	extern struct fake *fake_now;

	for (int i = 0; i < FAKE_N; i++)
		if ((const char *)l >= (const char *)&fake_now->net[i] &&
		    (const char *)l < (const char *)(&fake_now->net[i] + 1))
			return &fake_now->net[i];
	return NULL;
}

struct fake *fake_now; /* the fabric of the running test, for functions that are given only a link */

void link_stats(const struct link *l, struct link_stats *st)
{
	*st = (struct link_stats){ .lanes = 1, .lanes_up = 1 };
	st->lane[0].notes = fake_net_of(l)->fake->notes;
}

void link_probe(struct link *l, struct tick *t)
{
	(void)t;
	fake_net_of(l)->fake->probes++;
}

bool link_idle(const struct link *l)
{
	(void)l;
	return true;
}

enum link_state link_state(const struct link *l)
{
	(void)l;
	return LINK_UP;
}

void link_kill(struct link *l, struct tick *t, const struct sircl_error *why)
{
	struct chan_net *net = fake_net_of(l);

	(void)t;
	net->fake->kills++;
	for (int i = 0; i < net->nchan; i++)
		fake_end_transfers(net->chan[i], why->code);
}

static void fake_init(struct fake *f, int n, uint64_t seed)
{
	*f = (struct fake){ .rng = seed * 0x9e3779b97f4a7c15ull + 1, .max_piece = 40000, .max_delay = 30 };
	f->n = n;
	for (int i = 0; i < n; i++) {
		f->net[i].pos = i;
		f->net[i].fake = f;
	}
	fake_now = f;
}

static void fake_free(struct fake *f)
{
	for (int i = 0; i < FAKE_N; i++) {
		for (int c = 0; c < f->net[i].nchan; c++) {
			free(f->net[i].chan[c]->win);
			free(f->net[i].chan[c]);
		}
	}
}
#endif
