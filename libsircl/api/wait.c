/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for requests. Collectives need only a driver; point-to-point queues are moved on here, between the
 * rounds of the driver. With communicators of several engines each is driven in turn; when nothing moves,
 * this thread sleeps with one of them for a moment, and the background threads drive the others meanwhile.
 */
#include "api/internal.h"

#define IDLE_TURNS 64 /* without news before a thread with several engines sleeps */
#define NAP_MIN (50 * USEC)
#define NAP_MAX (2 * MSEC)

struct waiter {
	struct sircl_request *at; /* the first that is not done */
	sircl_comm_t comms; /* by wait_next; each has a thread's call begun on it */
	struct engine *engine; /* whose token is held when settled() is asked */
	bool several;
};

static void advance(struct waiter *w)
{
	while (w->at && request_done(w->at))
		w->at = w->at->more;
}

/* With the token of w->engine: all is done, or comm_pump has something to do. */
static bool settled(void *arg)
{
	struct waiter *w = arg;

	for (sircl_comm_t c = w->comms; c; c = c->wait_next) {
		if (c->fabric->engine != w->engine || !p2p_busy(c))
			continue;
		p2p_reap(c);
		if (p2p_attention(c))
			return true;
	}
	advance(w);
	return !w->at;
}

static void list_comms(struct waiter *w)
{
	w->comms = NULL;
	w->several = false;
	for (struct sircl_request *r = w->at; r; r = r->more) {
		sircl_comm_t c = r->comm;

		if (c->listed)
			continue;
		c->listed = true;
		c->wait_since = 0;
		c->wait_next = w->comms;
		w->several |= w->comms && w->comms->fabric->engine != c->fabric->engine;
		w->comms = c;
	}
}

/* Until when nothing needs to be looked at, as long as nothing happens. */
static uint64_t look_again(struct waiter *w)
{
	uint64_t limit = NEVER;

	for (sircl_comm_t c = w->comms; c; c = c->wait_next) {
		struct tick t;

		if (!p2p_busy(c))
			continue;
		t = ctx_tick(c->ctx);
		limit = tick_min(limit, p2p_look(c, &t));
	}
	return limit;
}

/* One round of each engine; true if any of them moved. */
static bool drive_all(struct waiter *w)
{
	bool any = false;

	for (sircl_comm_t c = w->comms; c; c = c->wait_next) {
		struct tick t = ctx_tick(c->ctx);
		bool busy = false;

		if (!c->team)
			continue;
		engine_drive(c->fabric->engine, &t, &busy);
		any |= busy;
	}
	return any;
}

static void wait_several(struct waiter *w)
{
	unsigned idle = 0;
	uint64_t nap = NAP_MIN;

	for (advance(w); w->at; advance(w)) {
		sircl_comm_t c = w->at->comm;
		uint64_t now = c->ctx->clock(c->ctx->clock_arg);
		bool moved = drive_all(w);

		for (sircl_comm_t p = w->comms; p; p = p->wait_next)
			comm_pump(p);
		(void)look_again(w);
		if (moved) {
			idle = 0;
			nap = NAP_MIN;
		} else if (++idle > IDLE_TURNS) {
			w->engine = c->fabric->engine;
			engine_wait_until(w->engine, settled, w, now + nap);
			nap = tick_min(2 * nap, NAP_MAX);
		}
	}
}

static void wait_one(struct waiter *w)
{
	w->engine = w->comms->fabric->engine;
	for (;;) {
		for (sircl_comm_t c = w->comms; c; c = c->wait_next)
			comm_pump(c);
		advance(w);
		if (!w->at)
			return;
		(void)engine_wait_until(w->engine, settled, w, look_again(w));
	}
}

void wait_requests(struct sircl_request *list)
{
	struct waiter w = { .at = list };

	advance(&w);
	if (!w.at)
		return;
	list_comms(&w);
	sircl_assert(w.comms);
	if (w.several)
		wait_several(&w);
	else if (!w.at->more && w.at->op && !p2p_busy(w.comms))
		(void)engine_wait(w.comms->fabric->engine, w.at->op);
	else
		wait_one(&w);
	for (sircl_comm_t c = w.comms; c; c = c->wait_next)
		c->listed = false;
}
