/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tcp provider: one non-blocking socket per lane and epoch. This file has the lane's life and its
 * operations table; tcp_hs.c the handshakes, tcp_conn.c the stream of records, tcp_sock.c addresses and
 * devices.
 *
 * The kernel's acknowledgement is not delivery (a stopped peer's kernel acknowledges), so records carry their
 * own, which give LANE_DONE and pace the sender. Silence is not noticed here: the link's heartbeats do that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lane/tcp_internal.h"

static struct tcp_lane *tcp(struct lane *l)
{
	return (struct tcp_lane *)(void *)l;
}
static const struct tcp_lane *tcp_const(const struct lane *l)
{
	return (const struct tcp_lane *)(const void *)l;
}

static void tcp_close(struct lane *lane)
{
	struct tcp_lane *l = tcp(lane);

	if (!l)
		return;
	tcp_hs_close(l);
	if (l->conn.fd >= 0)
		close(l->conn.fd);
	if (l->listener >= 0)
		close(l->listener);
	free(l->q);
	free(l->stage);
	free(l);
}

static sircl_result_t tcp_reg(struct lane *lane, uint32_t id, void *base, size_t len, struct lane_mem *mem,
			      struct lane_export *exp)
{
	struct tcp_lane *l = tcp(lane);

	if (id >= LANE_REGIONS_MAX || l->region[id].used)
		return error_set(SIRCL_INVALID_USAGE, "tcp lane %u of cable %u: region %u is %s", l->cfg.lane,
				 l->cfg.cable, id,
				 id < LANE_REGIONS_MAX ? "registered already" : "beyond the table");
	l->region[id].base = base;
	l->region[id].len = len;
	l->region[id].used = true;
	l->region[id].exported = exp || id == 0;
	if (mem)
		*mem = (struct lane_mem){ .base = base, .len = len, .id = id };
	if (exp)
		*exp = (struct lane_export){ .len = len, .key = id };
	return SIRCL_SUCCESS;
}

static void tcp_unreg(struct lane *lane, struct lane_mem *mem)
{
	struct tcp_lane *l = tcp(lane);
	struct tcp_conn *c = &l->conn;

	if (mem->id >= LANE_REGIONS_MAX || !l->region[mem->id].used)
		return;
	l->region[mem->id].used = false;
	/* Against the rules of the link, but it comes from outside: never write into memory that was taken
	 * back. */
	if (c->in_rec && c->left && c->region == mem->id) {
		c->in_rec = c->rx_open = false;
		c->rx_bad = true;
		tcp_suspect(l, false, "the peer was writing into memory that has been withdrawn");
	}
}

static sircl_result_t tcp_open(const struct lane_cfg *cfg, struct lane **out, struct lane_addr *local)
{
	const struct tcp_tune *tune = cfg->provider;
	struct tcp_lane *l;
	sircl_result_t ret;
	int i;

	if (!cfg->keys || !cfg->keys->n)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "tcp lane %u of cable %u: there is no key of the job, a tcp lane needs one",
				 cfg->lane, cfg->cable);
	l = calloc(1, sizeof(*l));
	if (!l)
		return error_set(SIRCL_NO_MEMORY, "tcp lane %u of cable %u: no memory", cfg->lane,
				 cfg->cable);
	l->base.ops = &lane_tcp_ops;
	l->cfg = *cfg;
	if (!l->cfg.max_notes)
		l->cfg.max_notes = 1;
	l->sys = tune && tune->sys ? tune->sys : &tcp_sys_real;
	l->window = tune && tune->window ? tune->window : TCP_WINDOW;
	l->seg = tune && tune->seg ? tune->seg : TCP_SEG;
	l->ack_every = tune && tune->ack_every ? tune->ack_every : TCP_ACK_EVERY;
	l->sndbuf = tune && tune->sndbuf ? tune->sndbuf : (int)(2 * l->window);
	sircl_assert(l->ack_every <= l->window - l->seg);
	l->conn.fd = l->listener = l->out.fd = -1;
	l->out.connects = true;
	for (i = 0; i < TCP_HALF_OPEN; i++)
		l->half[i].fd = -1;
	l->q = calloc(l->cfg.max_notes, sizeof(*l->q));
	l->stage = malloc(TCP_STAGE);
	if (!l->q || !l->stage) {
		ret = error_set(SIRCL_NO_MEMORY, "tcp lane %u of cable %u: no memory", cfg->lane, cfg->cable);
		goto fail;
	}
	CHECK_GOTO(tcp_reg((struct lane *)(void *)l, 0, cfg->arena_base, cfg->arena_len, NULL, NULL), fail);
	CHECK_GOTO(tcp_find_device(l), fail);
	if (!cfg->connects)
		CHECK_GOTO(tcp_listen(l), fail);
	CHECK_GOTO(tcp_addr_pack(l, local), fail);
	*out = (struct lane *)(void *)l;
	return SIRCL_SUCCESS;
fail:
	tcp_close((struct lane *)(void *)l);
	return ret;
}

static sircl_result_t tcp_connect(struct lane *lane, struct tick *t, const struct lane_addr *peer,
				  uint32_t epoch)
{
	struct tcp_lane *l = tcp(lane);
	struct sockaddr_storage a;
	socklen_t n;

	l->now = t->now;
	CHECK(tcp_addr_unpack(l, peer, &a, &n));
	if (l->state != TCP_DOWN || epoch < l->min_epoch)
		return error_set(
			SIRCL_INVALID_USAGE,
			"tcp lane %u of cable %u to position %u: epoch %u may not come up (lowest: %u%s)",
			l->cfg.lane, l->cfg.cable, l->cfg.peer, epoch, l->min_epoch,
			l->state == TCP_DOWN ? "" : ", not fenced yet");
	tcp_hs_cancel(l, UINT32_MAX, "another attempt was started");
	tcp_hs_connect(l, &a, n, epoch);
	return SIRCL_SUCCESS;
}

static void tcp_allow(struct lane *lane, uint32_t min_epoch)
{
	struct tcp_lane *l = tcp(lane);

	if (min_epoch > l->min_epoch)
		l->min_epoch = min_epoch;
	l->accepting = true;
	tcp_hs_cancel(l, l->min_epoch, "cancelled: the epoch is fenced");
}

static const struct lane_export *tcp_peer_export(const struct lane *lane)
{
	return &tcp_const(lane)->peer_export;
}

static int tcp_put(struct lane *lane, struct tick *t, const struct lane_put *p, int n)
{
	struct tcp_lane *l = tcp(lane);
	struct tcp_conn *c = &l->conn;
	int i;

	l->now = t->now;
	if (l->state != TCP_UP)
		return 0;
	for (i = 0; i < n && c->n < l->cfg.max_notes; i++) {
		uint32_t slot = (c->head + c->n) % l->cfg.max_notes;

		sircl_assert(p[i].len <= TCP_MAX_PUT);
		sircl_assert(!p[i].len ||
			     (p[i].dst_off <= p[i].dst->len && p[i].len <= p[i].dst->len - p[i].dst_off));
		l->q[slot] = (struct tcp_txput){
			.src = p[i].src,
			.len = p[i].len,
			.region = p[i].len ? p[i].dst->key : 0,
			.off = p[i].len ? p[i].dst_off : 0,
			.note = p[i].note,
		};
		c->n++;
		l->stats.puts++;
		l->stats.put_bytes += p[i].len;
	}
	if (!c->blocked)
		tcp_tx(l);
	return i;
}

/* Everything that was read has been reported: the epoch is over. */
static void forget(struct tcp_lane *l)
{
	l->state = TCP_DOWN;
	l->conn.in_rec = false;
	l->conn.rh = l->conn.rt = 0;
	l->conn.n = 0;
	l->conn.iov_at = l->conn.niov = 0;
	l->done = 0;
}

static int tcp_poll(struct lane *lane, struct tick *t, struct lane_event *ev, int max)
{
	struct tcp_lane *l = tcp(lane);
	struct tcp_conn *c = &l->conn;
	int n = 0, i;

	l->now = t->now;
	tcp_hs_poll(l);
	if (l->ndown && max) {
		int k = l->ndown < max ? l->ndown : max;

		for (i = 0; i < k; i++)
			ev[n++] = (struct lane_event){
				.ev = LANE_DOWN, .epoch = l->down[i], .why = l->why_down, .gone = l->gone_down
			};
		l->ndown -= k;
		memmove(l->down, l->down + k, (size_t)l->ndown * sizeof(l->down[0]));
	}
	if (l->ev_up && n < max) {
		ev[n++] = (struct lane_event){ .ev = LANE_UP, .epoch = c->epoch };
		l->ev_up = false;
	}
	if (l->ev_up)
		return n;
	if (l->state == TCP_UP || l->state == TCP_SUSPECT) {
		n += tcp_rx(l, ev + n, max - n);
		/* blocked: the rest of a batch; else the window may have opened, or the peer is owed an
		 * answer */
		tcp_tx(l);
	} else if (l->state == TCP_FENCING) {
		n += tcp_rx_staged(l, ev + n, max - n);
		if (!c->rx_more)
			forget(l);
	}
	if (l->done && n < max) {
		ev[n++] = (struct lane_event){ .ev = LANE_DONE, .epoch = c->epoch, .done = l->done };
		l->done = 0;
	}
	if (l->ev_suspect && n < max && !c->rx_more) {
		ev[n++] = (struct lane_event){
			.ev = LANE_SUSPECT, .epoch = c->epoch, .why = l->why_suspect, .gone = l->gone_suspect
		};
		l->ev_suspect = false;
	}
	if (l->ev_fenced && n < max && l->state != TCP_FENCING) {
		ev[n++] = (struct lane_event){ .ev = LANE_FENCED, .epoch = l->fence_epoch };
		l->ev_fenced = false;
	}
	return n;
}

static int tcp_arm(struct lane *lane, struct pollfd *p, int max)
{
	struct tcp_lane *l = tcp(lane);
	const struct tcp_conn *c = &l->conn;
	int n = 0;

	if (l->ndown || l->ev_up || l->ev_suspect || l->ev_fenced || l->done || c->rx_more ||
	    l->state == TCP_FENCING)
		return -1;
	if (l->state == TCP_UP || l->state == TCP_SUSPECT) {
		bool out = c->blocked && l->state == TCP_UP;

		/* after the end of the stream the socket is always "ready": do not watch it */
		if (c->rx_open && n < max)
			p[n++] = (struct pollfd){ .fd = c->fd,
						  .events = (short)(POLLIN | (out ? POLLOUT : 0)) };
	}
	return n + tcp_hs_arm(l, p + n, max - n);
}

static uint64_t tcp_deadline(const struct lane *lane)
{
	return tcp_hs_deadline(tcp_const(lane));
}

static void tcp_fence(struct lane *lane, uint32_t epoch)
{
	struct tcp_lane *l = tcp(lane);

	if (epoch >= l->min_epoch) {
		l->min_epoch = epoch + 1;
		l->accepting = false;
	}
	tcp_hs_cancel(l, l->min_epoch, "cancelled: the epoch is fenced");
	if (!l->ev_fenced || epoch > l->fence_epoch)
		l->fence_epoch = epoch;
	l->ev_fenced = true;
	if ((l->state == TCP_UP || l->state == TCP_SUSPECT) && epoch >= l->conn.epoch) {
		tcp_say_fenced(l);
		close(l->conn.fd);
		l->conn.fd = -1;
		l->conn.rx_open = false;
		l->state = TCP_FENCING;
		l->ev_suspect = false;
		if (l->ev_up) { /* it never came up for the link: nothing of it may be reported */
			l->ev_up = false;
			forget(l);
		}
	}
}

static void tcp_stats(const struct lane *lane, struct lane_stats *s)
{
	*s = tcp_const(lane)->stats;
}

const struct lane_ops lane_tcp_ops = {
	.name = "tcp",
	.can_fence = true,
	.lossless = false,
	.needs_reg = false,
	.max_put = TCP_MAX_PUT,
	.copy_limit = TCP_COPY_LIMIT,
	.open = tcp_open,
	.connect = tcp_connect,
	.allow = tcp_allow,
	.reg = tcp_reg,
	.unreg = tcp_unreg,
	.peer_export = tcp_peer_export,
	.put = tcp_put,
	.poll = tcp_poll,
	.arm = tcp_arm,
	.deadline = tcp_deadline,
	.fence = tcp_fence,
	.close = tcp_close,
	.stats = tcp_stats,
};
