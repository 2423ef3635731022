/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point-to-point requests: one channel per peer, opened at first use, and before it a queue per direction in
 * the order of the calls. A message that is larger than a channel's limit goes as several, cut alike at both
 * ends. The tag of each carries type and count, so that a receive that does not match says so.
 */
#include <stdio.h>
#include "api/internal.h"
#include "device/device.h"

#define P2P_PART (256ull << 20) /* well under CHAN_MSG_MAX */
#define P2P_INFLIGHT (CHAN_QUEUE / 2)
_Static_assert(P2P_PART <= CHAN_MSG_MAX, "a part is a message");

static uint16_t node_at(const struct sircl_comm *c, int rank)
{
	return c->node_of[c->pos_of[rank]];
}

/* Engine locked. */
static sircl_result_t channel(sircl_comm_t c, struct tick *t, int peer, struct chan **out)
{
	struct chan_cfg cfg = { .id = P2P_CHANNEL(c->id),
				.peer = node_at(c, peer),
				.via = p2p_way(c, peer),
				.least = chan_least(c->fabric->n) };
	bool relayed = chan_net_hops(c->fabric->net, cfg.peer, cfg.via) > 1;

	cfg.window = chan_window(param_num(&c->ctx->params, relayed ? PARAM_RELAY_WINDOW : PARAM_WINDOW));
	if (!c->peer[peer].chan)
		CHECK(chan_open(c->fabric->net, t, &cfg, &c->peer[peer].chan));
	*out = c->peer[peer].chan;
	return SIRCL_SUCCESS;
}

/* The shorter way in the fabric; for the opposite node both ends must choose the same path: the lower one
 * goes by NEXT. */
enum link_side p2p_way(const struct sircl_comm *c, int peer)
{
	const struct fabric *f = c->fabric;
	int node = node_at(c, peer), forward = (node - f->pos + f->n) % f->n;

	if (!f->ring)
		return node > f->pos ? LINK_NEXT : LINK_PREV;
	if (2 * forward == f->n)
		return f->pos < node ? LINK_NEXT : LINK_PREV;
	return 2 * forward < f->n ? LINK_NEXT : LINK_PREV;
}

/* "send 12 elements of float" in 64 bits: type 8, number of the part 16, count 40. */
static uint64_t tag_of(const struct sircl_request *r, unsigned part)
{
	return (uint64_t)r->type << 56 | (uint64_t)(part & 0xffff) << 40 | (r->count & ((1ull << 40) - 1));
}

/* ---- queues ---- */

uint64_t p2p_active(const struct sircl_comm *c, int dir)
{
	return atomic_load_explicit(&c->active[dir], memory_order_relaxed);
}

/* Engine locked. */
static void set_active(sircl_comm_t c, int dir, uint64_t peers)
{
	atomic_store_explicit(&c->active[dir], peers, memory_order_relaxed);
}

bool p2p_busy(const struct sircl_comm *c)
{
	return (p2p_active(c, P2P_SEND) | p2p_active(c, P2P_RECV)) != 0;
}

static bool can_queue(const struct p2p_queue *q)
{
	return q->behind && q->behind->queued - q->behind->done < P2P_XFERS && q->inflight < P2P_INFLIGHT;
}

static sircl_result_t queue_part(struct sircl_request *r, struct tick *t)
{
	sircl_comm_t c = r->comm;
	size_t at = r->queued * P2P_PART, n = r->bytes - at < P2P_PART ? r->bytes - at : P2P_PART;
	char *p = r->bytes ? r->buf + at : r->buf;
	struct xfer *x = &r->xfer[r->queued % P2P_XFERS];
	struct chan *chan;
	bool queued;

	CHECK(channel(c, t, r->peer, &chan));
	*x = (struct xfer){ .done = 0 };
	queued = r->dir == P2P_SEND ? chan_send(chan, t, p, n, tag_of(r, r->queued), x)
				    : chan_recv(chan, t, p, n, x);
	sircl_assert(queued); /* P2P_INFLIGHT is below the channel's queue */
	r->queued++;
	c->peer[r->peer].q[r->dir].inflight++;
	return SIRCL_SUCCESS;
}

static void set_trouble(sircl_comm_t c, const struct sircl_error *e, int rank)
{
	if (c->trouble)
		return;
	c->trouble = true;
	c->why = *e;
	c->why_rank = rank;
}

static void queue_more(sircl_comm_t c, struct tick *t, enum p2p_dir dir)
{
	for (uint64_t set = c->behind[dir]; set; set &= set - 1) {
		int peer = __builtin_ctzll(set);
		struct p2p_queue *q = &c->peer[peer].q[dir];

		while (can_queue(q)) {
			if (queue_part(q->behind, t) != SIRCL_SUCCESS) {
				set_trouble(c, error_last(), peer);
				return;
			}
			if (q->behind->queued == q->behind->parts)
				q->behind = q->behind->next;
		}
		if (!q->behind)
			c->behind[dir] &= ~(1ull << peer);
	}
}

void p2p_enqueue(struct sircl_request *r)
{
	sircl_comm_t c = r->comm;
	struct p2p_queue *q = &c->peer[r->peer].q[r->dir];
	struct tick t;

	r->next = NULL;
	engine_lock(c->fabric->engine);
	if (q->tail)
		q->tail->next = r;
	else
		q->head = r;
	q->tail = r;
	if (!q->behind)
		q->behind = r;
	set_active(c, r->dir, p2p_active(c, r->dir) | 1ull << r->peer);
	c->behind[r->dir] |= 1ull << r->peer;
	t = ctx_tick(c->ctx);
	p2p_step(c, &t);
	engine_unlock(c->fabric->engine);
}

/* ---- what has ended ---- */

static void mismatch(const struct sircl_request *r, uint64_t tag)
{
	struct sircl_error e = { .code = SIRCL_MISMATCH };

	snprintf(e.msg, sizeof(e.msg),
		 "rank %d: sircl_recv of %zu %s from rank %d meets its sircl_send of %llu %s: give the same "
		 "count and type on both ranks",
		 r->comm->rank, r->count, type_name(r->type), r->peer,
		 (unsigned long long)(tag & ((1ull << 40) - 1)),
		 tag >> 56 < SIRCL_TYPE_COUNT ? type_name((sircl_type_t)(tag >> 56)) : "?");
	set_trouble(r->comm, &e, r->peer);
}

static void part_failed(const struct sircl_request *r, const struct xfer *x)
{
	sircl_comm_t c = r->comm;
	struct chan *chan = c->peer[r->peer].chan;
	struct sircl_error e = { .code = x->err };

	if (chan && chan_error(chan)->code != SIRCL_SUCCESS)
		e = *chan_error(chan);
	else
		snprintf(e.msg, sizeof(e.msg), "rank %d: sircl_%s of %zu bytes with rank %d: %s", c->rank,
			 r->dir == P2P_SEND ? "send" : "recv", r->bytes, r->peer, sircl_strerror(x->err));
	set_trouble(c, &e, r->peer);
}

/* True: the oldest message of r has ended well. */
static bool part_done(struct sircl_request *r)
{
	const struct xfer *x = &r->xfer[r->done % P2P_XFERS];

	if (!x->finished && x->err == SIRCL_SUCCESS)
		return false;
	if (r->dir == P2P_RECV && x->tagged && x->tag != tag_of(r, r->done)) {
		mismatch(r, x->tag);
		return false;
	}
	if (x->err != SIRCL_SUCCESS) {
		part_failed(r, x);
		return false;
	}
	r->done++;
	return true;
}

/* The caller's thread may see the end at once, and has the request again. */
static void set_done(struct sircl_request *r, sircl_result_t result)
{
	r->result = result;
	atomic_store_explicit(&r->state, REQUEST_DONE, memory_order_release); /* partner: request_done */
}

static bool reap_queue(sircl_comm_t c, struct p2p_queue *q)
{
	bool any = false;

	while (q->head) {
		struct sircl_request *r = q->head;

		while (r->done < r->queued && part_done(r))
			q->inflight--;
		if (r->done < r->parts)
			break;
		q->head = r->next;
		set_done(r, SIRCL_SUCCESS);
		atomic_fetch_add_explicit(&c->ops, 1, memory_order_relaxed);
		any = true;
	}
	return any;
}

static bool reap(sircl_comm_t c, enum p2p_dir dir)
{
	bool any = false;

	for (uint64_t set = p2p_active(c, dir); set; set &= set - 1) {
		int peer = __builtin_ctzll(set);
		struct p2p_queue *q = &c->peer[peer].q[dir];

		any |= reap_queue(c, q);
		if (!q->head) {
			q->tail = NULL;
			set_active(c, dir, p2p_active(c, dir) & ~(1ull << peer));
		}
	}
	return any;
}

bool p2p_reap(sircl_comm_t c)
{
	bool any;

	if (c->closing)
		return false; /* end_step looks at them */
	any = reap(c, P2P_SEND);
	return reap(c, P2P_RECV) || any;
}

static bool all_ended(const struct sircl_comm *c, unsigned *sides)
{
	bool ended = true;

	for (int d = 0; d < P2P_DIRS; d++)
		for (uint64_t set = p2p_active(c, d); set; set &= set - 1) {
			int peer = __builtin_ctzll(set);

			for (struct sircl_request *r = c->peer[peer].q[d].head; r; r = r->next)
				for (unsigned k = r->done; k < r->queued; k++) {
					const struct xfer *x = &r->xfer[k % P2P_XFERS];

					if (x->finished || x->err != SIRCL_SUCCESS)
						continue;
					ended = false;
					*sides |= 1u << p2p_way(c, peer);
				}
		}
	return ended;
}

bool p2p_attention(const struct sircl_comm *c)
{
	unsigned sides = 0;

	if (comm_error(c, NULL) != SIRCL_SUCCESS)
		return !c->closing || all_ended(c, &sides);
	if (c->trouble)
		return !c->trouble_noted;
	for (int d = 0; d < P2P_DIRS; d++)
		for (uint64_t set = c->behind[d]; set; set &= set - 1)
			if (can_queue(&c->peer[__builtin_ctzll(set)].q[d]))
				return true;
	return false;
}

/* ---- the end of a communicator ---- */

/* A transfer has failed: ends the communicator everywhere. A peer that has closed has a reason of its own,
 * and the news of it may take another path: wait for it a little. */
static void tell_trouble(sircl_comm_t c, struct tick *t)
{
	if (!c->trouble_noted) {
		c->trouble_noted = true;
		c->trouble_at = t->now + (c->why.code == SIRCL_REMOTE_ERROR ? HEARSAY_GRACE : 0);
	}
	if (t->now >= c->trouble_at)
		comm_fail(c, t, &c->why, true, node_at(c, c->why_rank));
}

static void done_with_error(sircl_comm_t c, sircl_result_t code)
{
	for (int d = 0; d < P2P_DIRS; d++) {
		for (uint64_t set = p2p_active(c, d); set; set &= set - 1) {
			struct p2p_queue *q = &c->peer[__builtin_ctzll(set)].q[d];

			for (struct sircl_request *r = q->head, *next; r; r = next) {
				next = r->next;
				set_done(r, code);
			}
			q->head = q->tail = q->behind = NULL;
		}
		set_active(c, d, 0);
		c->behind[d] = 0;
	}
}

static void kill_sides(sircl_comm_t c, struct tick *t, unsigned sides)
{
	struct sircl_error e;

	comm_error(c, &e);
	for (int s = 0; s < LINK_SIDES; s++) {
		struct link *l = c->fabric->link[s];

		if ((sides >> s & 1) && l && link_state(l) != LINK_DEAD)
			link_kill(l, t, &e);
	}
	c->killed = true;
}

/* The communicator has ended meanwhile: transfers must not touch buffers any more before their callers get
 * them back. A peer that does not give memory back loses its link: no error is worth a write to freed memory.
 */
static void end_step(sircl_comm_t c, struct tick *t)
{
	unsigned sides = 0;

	if (!c->closing) {
		c->closing = true;
		c->close_at = t->now + CLOSE_GRACE;
		p2p_close_all(c, t);
	}
	if (all_ended(c, &sides))
		done_with_error(c, comm_error(c, NULL));
	else if (!c->killed && t->now >= c->close_at)
		kill_sides(c, t, sides);
}

void p2p_step(sircl_comm_t c, struct tick *t)
{
	p2p_reap(c);
	if (!c->trouble && comm_error(c, NULL) == SIRCL_SUCCESS) {
		queue_more(c, t, P2P_RECV);
		queue_more(c, t, P2P_SEND);
	}
	if (c->trouble && comm_error(c, NULL) == SIRCL_SUCCESS)
		tell_trouble(c, t);
	if (comm_error(c, NULL) != SIRCL_SUCCESS)
		end_step(c, t);
}

bool p2p_round(sircl_comm_t c, struct tick *t)
{
	bool ended = p2p_reap(c), moved = ended;

	if (p2p_attention(c)) {
		p2p_step(c, t);
		ended |= !p2p_busy(c);
		moved = true;
	}
	if (ended)
		engine_kick(c->fabric->engine); /* its thread may sleep, and not be the one that drives */
	return moved;
}

void comm_pump(sircl_comm_t c)
{
	struct tick t;

	if (!p2p_busy(c))
		return;
	engine_lock(c->fabric->engine);
	t = ctx_tick(c->ctx);
	p2p_step(c, &t);
	engine_unlock(c->fabric->engine);
}

void p2p_close_all(sircl_comm_t c, struct tick *t)
{
	for (int i = 0; i < c->n; i++) {
		if (c->peer[i].chan)
			chan_close(c->peer[i].chan, t);
		c->peer[i].chan = NULL;
	}
}

bool p2p_all_idle(const struct sircl_comm *c)
{
	for (int i = 0; i < c->n; i++)
		if (c->peer[i].chan && chan_error(c->peer[i].chan)->code == SIRCL_SUCCESS &&
		    !chan_idle(c->peer[i].chan))
			return false;
	return true;
}

bool p2p_all_met(const struct sircl_comm *c)
{
	for (int i = 0; i < c->n; i++)
		if (c->peer[i].chan && chan_error(c->peer[i].chan)->code == SIRCL_SUCCESS &&
		    !chan_is_open(c->peer[i].chan))
			return false;
	return true;
}

size_t p2p_memory(const struct sircl_comm *c)
{
	size_t bytes = 0;

	for (int i = 0; i < c->n; i++)
		bytes += c->peer[i].chan ? chan_memory(c->peer[i].chan) : 0;
	return bytes;
}

/* ---- the calls ---- */

static sircl_result_t check(sircl_comm_t c, const char *call, const struct sircl_request *w,
			    sircl_stream_t stream, bool alone, size_t *bytes)
{
	CHECK(device_check_stream(stream, call));
	CHECK(check_type(call, w->type));
	CHECK(check_buffer(call, "buf", w->buf, w->count));
	CHECK(check_count(call, w->count, w->type, 1, bytes));
	if (w->peer < 0 || w->peer >= c->n)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: peer %d is no rank of communicator \"%s\": 0 to %d are allowed (this "
				 "is rank %d)",
				 call, w->peer, c->name, c->n - 1, c->rank);
	if (w->peer == c->rank && alone)
		return error_set(SIRCL_INVALID_USAGE,
				 "%s: rank %d cannot wait for itself: put the send and the recv into one "
				 "group, or use the _start forms",
				 call, c->rank);
	return SIRCL_SUCCESS;
}

static sircl_result_t issue(sircl_comm_t c, const char *call, const struct sircl_request *want,
			    sircl_stream_t stream, sircl_request_t *handle)
{
	struct sircl_request *r;
	size_t bytes;

	CHECK(check(c, call, want, stream, !handle && !group_open(), &bytes));
	r = request_p2p(c);
	if (!r)
		return error_last()->code;
	r->dir = want->dir;
	r->peer = want->peer;
	r->type = want->type;
	r->count = want->count;
	r->buf = want->buf;
	r->bytes = bytes;
	r->parts = bytes ? (unsigned)((bytes + P2P_PART - 1) / P2P_PART) : 1;
	r->queued = r->done = 0;
	return request_issue(r, handle);
}

static sircl_result_t call(sircl_comm_t c, const char *name, enum p2p_dir dir, const void *buf, size_t count,
			   sircl_type_t type, int peer, sircl_stream_t stream, sircl_request_t *handle)
{
	const struct sircl_request want = {
		.dir = dir, .peer = peer, .type = type, .count = count, .buf = (char *)(uintptr_t)buf
	};
	sircl_result_t ret = api_begin(c, name, API_DATA);

	if (ret == SIRCL_SUCCESS)
		ret = api_end_data(c, issue(c, name, &want, stream, handle));
	group_note(ret);
	return ret;
}

sircl_result_t sircl_send(const void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
			  sircl_stream_t stream)
{
	return call(comm, "sircl_send", P2P_SEND, buf, count, type, peer, stream, NULL);
}

sircl_result_t sircl_recv(void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
			  sircl_stream_t stream)
{
	return call(comm, "sircl_recv", P2P_RECV, buf, count, type, peer, stream, NULL);
}

static sircl_result_t no_request(const char *name)
{
	sircl_result_t ret = error_set(SIRCL_INVALID_ARGUMENT, "%s: request is NULL", name);

	group_note(ret);
	return ret;
}

sircl_result_t sircl_send_start(const void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
				sircl_stream_t stream, sircl_request_t *request)
{
	if (!request)
		return no_request("sircl_send_start");
	*request = NULL;
	return call(comm, "sircl_send", P2P_SEND, buf, count, type, peer, stream, request);
}

sircl_result_t sircl_recv_start(void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
				sircl_stream_t stream, sircl_request_t *request)
{
	if (!request)
		return no_request("sircl_recv_start");
	*request = NULL;
	return call(comm, "sircl_recv", P2P_RECV, buf, count, type, peer, stream, request);
}
