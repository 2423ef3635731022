/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point-to-point operations: one channel per peer, opened at first use. A message that is larger than a
 * channel's limit goes as several, cut alike at both ends. The tag of each carries type and count, so that a
 * receive that does not match says so.
 */
#include <stdio.h>
#include "api/internal.h"
#include "device/device.h"

#define P2P_PART (256ull << 20) /* well under CHAN_MSG_MAX */
#define P2P_REPORT (30 * SEC)

/* The shorter way; for the opposite position both ends must choose the same path: the lower one goes by NEXT.
 */
static enum link_side way_to(const struct sircl_comm *c, int pos)
{
	int forward = (pos - c->pos + c->n) % c->n;

	if (!c->fabric->ring)
		return pos > c->pos ? LINK_NEXT : LINK_PREV;
	if (2 * forward == c->n)
		return c->pos < pos ? LINK_NEXT : LINK_PREV;
	return 2 * forward < c->n ? LINK_NEXT : LINK_PREV;
}

static int position_of(const struct sircl_comm *c, int rank)
{
	int p = 0;

	while (c->fabric->rank_of[p] != rank)
		p++;
	return p;
}

static bool neighbours(const struct sircl_comm *c, int pos)
{
	int d = pos > c->pos ? pos - c->pos : c->pos - pos;

	return d == 1 || (c->fabric->ring && d == c->n - 1);
}

/* Engine locked. */
static sircl_result_t channel(sircl_comm_t c, struct tick *t, int peer, struct chan **out)
{
	int pos = position_of(c, peer);
	struct chan_cfg cfg = { .id = P2P_CHANNEL, .peer = (uint16_t)pos, .via = way_to(c, pos) };

	cfg.window = chan_window(
		param_num(&c->ctx.params, neighbours(c, pos) ? PARAM_WINDOW : PARAM_RELAY_WINDOW));
	if (!c->peer[peer].chan)
		CHECK(chan_open(c->fabric->net, t, &cfg, &c->peer[peer].chan));
	*out = c->peer[peer].chan;
	return SIRCL_SUCCESS;
}

struct p2p {
	sircl_comm_t comm;
	struct chan *chan;
	struct xfer xfer;
	bool sends;
};

static bool finished(void *arg)
{
	const struct p2p *p = arg;
	struct sircl_error e;

	return p->xfer.finished || p->xfer.err != SIRCL_SUCCESS ||
	       team_error(p->comm->team, &e) != SIRCL_SUCCESS;
}

static bool ended(void *arg)
{
	const struct p2p *p = arg;

	return p->xfer.finished || p->xfer.err != SIRCL_SUCCESS;
}

/* The communicator has ended meanwhile: the transfer must not touch the buffer any more before the caller
 * gets it back. A peer that does not give it back loses its link. */
static sircl_result_t give_up(struct p2p *p, const struct sircl_error *why, int peer)
{
	struct fabric *f = p->comm->fabric;
	struct sircl_error keep = *why;
	struct link *l;
	struct tick t;

	engine_lock(f->engine);
	t = ctx_tick(&p->comm->ctx);
	if (!ended(p)) {
		chan_close(p->chan, &t);
		p->comm->peer[peer].chan = NULL;
	}
	engine_unlock(f->engine);
	if (engine_wait_until(f->engine, ended, p, t.now + CLOSE_GRACE) == SIRCL_SUCCESS)
		return error_again(&keep);
	engine_lock(f->engine);
	t = ctx_tick(&p->comm->ctx);
	l = f->link[way_to(p->comm, position_of(p->comm, peer))];
	if (link_state(l) != LINK_DEAD)
		link_kill(l, &t, &keep);
	engine_unlock(f->engine);
	/* as with collectives: it ends with the last fence, and no error is worth a write to freed memory */
	engine_wait_until(f->engine, ended, p, NEVER);
	return error_again(&keep);
}

static bool has_failed(void *arg)
{
	const struct sircl_comm *c = arg;
	struct sircl_error e;

	return team_error(c->team, &e) != SIRCL_SUCCESS;
}

/* Ends the communicator, here and everywhere. */
static sircl_result_t fail(sircl_comm_t c, const struct sircl_error *why, int peer)
{
	struct sircl_error e = *why;
	struct tick t;

	/* the peer has closed: it has a reason of its own, and the news of it may take another path */
	if (e.code == SIRCL_REMOTE_ERROR)
		engine_wait_until(c->fabric->engine, has_failed, c,
				  c->ctx.clock(c->ctx.clock_arg) + HEARSAY_GRACE);
	engine_lock(c->fabric->engine);
	t = ctx_tick(&c->ctx);
	team_fail_all(c->team, &t, &e, position_of(c, peer));
	engine_unlock(c->fabric->engine);
	team_error(c->team, &e);
	return error_again(&e);
}

/* The neighbour on the way is stopped or cut off. */
static sircl_result_t silent(struct p2p *p, int peer, size_t bytes, enum link_side side, uint64_t waited)
{
	sircl_comm_t c = p->comm;
	int next = (c->pos + (side == LINK_NEXT ? 1 : c->n - 1)) % c->n;
	struct sircl_error e = { .code = SIRCL_TIMEOUT };

	snprintf(e.msg, sizeof(e.msg),
		 "rank %d: sircl_%s of %zu bytes with rank %d has waited %.1f s, and nothing at all is heard "
		 "from "
		 "rank %d on cable %d (%s). Is that machine or process stopped, or the cable bad? "
		 "SIRCL_TIMEOUT (now "
		 "%llu ms) is the limit",
		 c->rank, p->sends ? "send" : "recv", bytes, peer, (double)waited / 1e9,
		 c->fabric->rank_of[next], side == LINK_NEXT ? c->pos : next,
		 side == LINK_NEXT ? "NEXT" : "PREV", (unsigned long long)(c->op_timeout / MSEC));
	(void)fail(c, &e, c->fabric->rank_of[next]);
	team_error(c->team, &e);
	return give_up(p, &e, peer);
}

static sircl_result_t wait_for(struct p2p *p, int peer, size_t bytes)
{
	sircl_comm_t c = p->comm;
	enum link_side side = way_to(c, position_of(c, peer));
	uint64_t started = c->ctx.clock(c->ctx.clock_arg), now = started, report = started + P2P_REPORT;
	struct link_watch w = { .begun = false };
	struct sircl_error e;
	sircl_result_t ret;

	/* a living peer may take as long as it likes; its death ends the channel. Report every 30 s who is
	 * waited for. */
	while ((ret = engine_wait_until(c->fabric->engine, finished, p, now + c->op_timeout / 8)) ==
	       SIRCL_TIMEOUT) {
		struct tick t;

		engine_lock(c->fabric->engine);
		t = ctx_tick(&c->ctx);
		link_look(c->fabric->link[side], &t, &w);
		engine_unlock(c->fabric->engine);
		now = t.now;
		if (link_is_deaf(&w, now, c->op_timeout - c->op_timeout / 8))
			return silent(p, peer, bytes, side, now - started);
		if (now < report)
			continue;
		report = now + P2P_REPORT;
		log_warn(&c->ctx.log, "rank %d: sircl_%s of %zu bytes has waited %llu s for rank %d", c->rank,
			 p->sends ? "send" : "recv", bytes, (unsigned long long)((now - started) / SEC),
			 peer);
	}
	CHECK(ret);
	if (p->xfer.finished && p->xfer.err == SIRCL_SUCCESS)
		return SIRCL_SUCCESS;
	if (team_error(c->team, &e) != SIRCL_SUCCESS)
		return give_up(p, &e, peer);
	e = *chan_error(p->chan);
	if (e.code == SIRCL_SUCCESS) {
		e.code = p->xfer.err;
		snprintf(e.msg, sizeof(e.msg), "rank %d: sircl_%s of %zu bytes with rank %d: %s", c->rank,
			 p->sends ? "send" : "recv", bytes, peer, sircl_strerror(p->xfer.err));
	}
	return fail(c, &e, peer);
}

/* "send 12 elements of float" in 64 bits: type 8, number of the part 16, count 40. */
static uint64_t p2p_tag(sircl_type_t type, size_t count, unsigned part)
{
	return (uint64_t)type << 56 | (uint64_t)(part & 0xffff) << 40 | (count & ((1ull << 40) - 1));
}

static sircl_result_t mismatch(sircl_comm_t c, int peer, sircl_type_t type, size_t count, uint64_t tag)
{
	struct sircl_error e = { .code = SIRCL_MISMATCH };

	snprintf(e.msg, sizeof(e.msg),
		 "rank %d: sircl_recv of %zu %s from rank %d meets its sircl_send of %llu %s: give the same "
		 "count and type on both ranks",
		 c->rank, count, type_name(type), peer, (unsigned long long)(tag & ((1ull << 40) - 1)),
		 tag >> 56 < SIRCL_TYPE_COUNT ? type_name((sircl_type_t)(tag >> 56)) : "?");
	return fail(c, &e, peer);
}

static sircl_result_t one_part(struct p2p *p, void *buf, size_t bytes, uint64_t tag, int peer)
{
	sircl_comm_t c = p->comm;
	struct tick t;
	sircl_result_t ret;
	bool queued = false;

	p->xfer = (struct xfer){ .done = 0 };
	engine_lock(c->fabric->engine);
	t = ctx_tick(&c->ctx);
	ret = channel(c, &t, peer, &p->chan);
	if (ret == SIRCL_SUCCESS)
		queued = p->sends ? chan_send(p->chan, &t, buf, bytes, tag, &p->xfer)
				  : chan_recv(p->chan, &t, buf, bytes, &p->xfer);
	engine_unlock(c->fabric->engine);
	CHECK(ret);
	sircl_assert(queued); /* blocking calls, one at a time: the queue cannot be full */
	return wait_for(p, peer, bytes);
}

static sircl_result_t transfer(sircl_comm_t c, const char *call, void *buf, size_t count, sircl_type_t type,
			       int peer, sircl_stream_t stream, bool sends)
{
	struct p2p p = { .comm = c, .sends = sends };
	size_t bytes, at = 0;
	unsigned part = 0;

	CHECK(device_check_stream(stream, call));
	CHECK(check_type(call, type));
	CHECK(check_buffer(call, "buf", buf, count));
	CHECK(check_count(call, count, type, 1, &bytes));
	if (peer < 0 || peer >= c->n || peer == c->rank)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: peer %d is not allowed: another rank, 0 to %d (this is rank %d)", call,
				 peer, c->n - 1, c->rank);
	do {
		size_t n = bytes - at < P2P_PART ? bytes - at : P2P_PART;
		uint64_t tag = p2p_tag(type, count, part++);
		sircl_result_t ret = one_part(&p, (char *)buf + at, n, tag, peer);

		if (!sends && p.xfer.tagged && p.xfer.tag != tag)
			return mismatch(c, peer, type, count, p.xfer.tag);
		CHECK(ret);
		at += n;
	} while (at < bytes);
	atomic_fetch_add_explicit(&c->ops, 1, memory_order_relaxed);
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_send(const void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
			  sircl_stream_t stream)
{
	CHECK(api_begin(comm, "sircl_send", true));
	return api_end(comm,
		       transfer(comm, "sircl_send", (void *)(uintptr_t)buf, count, type, peer, stream, true));
}

sircl_result_t sircl_recv(void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
			  sircl_stream_t stream)
{
	CHECK(api_begin(comm, "sircl_recv", true));
	return api_end(comm, transfer(comm, "sircl_recv", buf, count, type, peer, stream, false));
}

bool p2p_all_idle(const struct sircl_comm *c)
{
	for (int i = 0; i < c->n; i++)
		if (c->peer[i].chan && chan_error(c->peer[i].chan)->code == SIRCL_SUCCESS &&
		    !chan_idle(c->peer[i].chan))
			return false;
	return true;
}

void p2p_close_all(sircl_comm_t c, struct tick *t)
{
	for (int i = 0; i < c->n; i++) {
		if (c->peer[i].chan)
			chan_close(c->peer[i].chan, t);
		c->peer[i].chan = NULL;
	}
}
