/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs provider: one RC queue pair per lane and epoch, connected by librdmacm. This file has the lane's
 * life and its operations table; verbs_dev.c finds the device, verbs_cm.c has the handshakes, verbs_event.c
 * what comes out of descriptors, verbs_qp.c queue pairs and the fence, verbs_data.c the data, verbs_mem.c
 * registered memory.
 *
 * A put of at most VERBS_EAGER bytes is one SEND into a receive slot, and the receiver's CPU copies it; a
 * larger one is a WRITE to its place and a WRITE_WITH_IMM of its note. Order comes from completions alone,
 * memory is never polled. The NIC acknowledges for a stopped process: silence is not noticed here, the link's
 * heartbeats do that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lane/verbs_internal.h"

static struct verbs_lane *verbs(struct lane *l)
{
	return (struct verbs_lane *)(void *)l;
}
static const struct verbs_lane *verbs_const(const struct lane *l)
{
	return (const struct verbs_lane *)(const void *)l;
}

static void verbs_close(struct lane *lane)
{
	struct verbs_lane *l = verbs(lane);

	if (!l)
		return;
	verbs_hs_close(l);
	if (l->conn.qp.id)
		verbs_qp_destroy(l, &l->conn.qp);
	verbs_close_memory(l);
	verbs_close_device(l);
	free(l);
}

static sircl_result_t verbs_open(const struct lane_cfg *cfg, struct lane **out, struct lane_addr *local)
{
	struct verbs_lane *l;
	sircl_result_t ret;

	if (!cfg->keys || !cfg->keys->n)
		return error_set(
			SIRCL_INVALID_ARGUMENT,
			"verbs lane %u of cable %u: there is no key of the job, a verbs lane needs one",
			cfg->lane, cfg->cable);
	l = calloc(1, sizeof(*l));
	if (!l)
		return error_set(SIRCL_NO_MEMORY, "verbs lane %u of cable %u: no memory", cfg->lane,
				 cfg->cable);
	l->base.ops = &lane_verbs_ops;
	l->cfg = *cfg;
	if (!l->cfg.max_notes)
		l->cfg.max_notes = 1;
	l->nslots = l->cfg.max_notes + 4; /* and what fences say */
	l->out.connects = true;
	CHECK_GOTO(verbs_open_device(l), fail);
	CHECK_GOTO(verbs_open_memory(l), fail);
	if (!cfg->connects && l->lib->cm.rdma_listen(l->anchor, VERBS_HALF_OPEN)) {
		ret = verbs_error(l, "rdma_listen", errno);
		goto fail;
	}
	CHECK_GOTO(verbs_addr_pack(l, local), fail);
	*out = (struct lane *)(void *)l;
	return SIRCL_SUCCESS;
fail:
	verbs_close((struct lane *)(void *)l);
	return ret;
}

static sircl_result_t verbs_connect(struct lane *lane, struct tick *t, const struct lane_addr *peer,
				    uint32_t epoch)
{
	struct verbs_lane *l = verbs(lane);
	struct sockaddr_storage a;

	l->now = t->now;
	CHECK(verbs_addr_unpack(l, peer, &a));
	if (l->state != VERBS_DOWN || epoch < l->min_epoch)
		return error_set(
			SIRCL_INVALID_USAGE,
			"verbs lane %u of cable %u to position %u: epoch %u may not come up (lowest: %u%s)",
			l->cfg.lane, l->cfg.cable, l->cfg.peer, epoch, l->min_epoch,
			l->state == VERBS_DOWN ? "" : ", not fenced yet");
	verbs_tell_mtu_differs(l, verbs_addr_mtu(peer), 0);
	verbs_hs_cancel(l, UINT32_MAX, "another attempt was started");
	verbs_hs_connect(l, &a, epoch);
	return SIRCL_SUCCESS;
}

static void verbs_allow(struct lane *lane, uint32_t min_epoch)
{
	struct verbs_lane *l = verbs(lane);

	if (min_epoch > l->min_epoch)
		l->min_epoch = min_epoch;
	l->accepting = true;
	verbs_hs_cancel(l, l->min_epoch, "cancelled: the epoch is fenced");
}

static const struct lane_export *verbs_peer_export(const struct lane *lane)
{
	return &verbs_const(lane)->peer_export;
}

static int verbs_lane_put(struct lane *lane, struct tick *t, const struct lane_put *p, int n)
{
	struct verbs_lane *l = verbs(lane);

	l->now = t->now;
	return l->state == VERBS_UP ? verbs_put(l, p, n) : 0;
}

/* System calls are for descriptors that woke the driver, and else for a timer: never one per poll. */
static void look(struct verbs_lane *l)
{
	bool busy = l->nhalf || l->out.state != VERBS_HS_FREE;

	if (!l->look && l->now < l->next_look)
		return;
	l->look = false;
	l->next_look = l->now + (busy ? VERBS_LOOK_HS_NS : VERBS_LOOK_NS);
	verbs_look(l);
}

static int verbs_poll(struct lane *lane, struct tick *t, struct lane_event *ev, int max)
{
	struct verbs_lane *l = verbs(lane);
	struct verbs_conn *c = &l->conn;
	int n = 0;

	l->now = t->now;
	look(l);
	verbs_hs_poll(l);
	if (l->ndown && max) {
		int k = l->ndown < max ? l->ndown : max;

		for (int i = 0; i < k; i++)
			ev[n++] = (struct lane_event){
				.ev = LANE_DOWN, .epoch = l->down[i], .why = l->why_down, .gone = l->gone_down
			};
		l->ndown -= k;
		memmove(l->down, l->down + k, (size_t)l->ndown * sizeof(l->down[0]));
	}
	for (int round = 0; round < 2; round++) {
		if (l->ev_up && n < max) {
			ev[n++] = (struct lane_event){ .ev = LANE_UP, .epoch = c->epoch };
			l->ev_up = false;
		}
		if (l->ev_up)
			return n;
		/* stops where a handshake ends in LANE_UP, which has to be reported before its notes */
		n += verbs_completions(l, ev + n, max - n);
		if (!l->ev_up)
			break;
	}
	if (l->wc_at < l->wc_n || l->ev_up)
		return n;
	if (c->hangup && l->state == VERBS_UP)
		verbs_suspect(l, true, "the peer has closed the connection");
	if (l->state == VERBS_SAYING || l->state == VERBS_DRAINING)
		verbs_fence_step(l);
	if (l->done && n < max) {
		ev[n++] = (struct lane_event){ .ev = LANE_DONE, .epoch = c->epoch, .done = l->done };
		l->done = 0;
	}
	if (l->ev_suspect && n < max) {
		ev[n++] = (struct lane_event){
			.ev = LANE_SUSPECT, .epoch = c->epoch, .why = l->why_suspect, .gone = l->gone_suspect
		};
		l->ev_suspect = false;
	}
	if (l->ev_fenced && n < max && l->state <= VERBS_SUSPECT) {
		ev[n++] = (struct lane_event){ .ev = LANE_FENCED, .epoch = l->fence_epoch };
		l->ev_fenced = false;
	}
	return n;
}

static int verbs_arm(struct lane *lane, struct pollfd *p, int max)
{
	struct verbs_lane *l = verbs(lane);
	const int fds[3] = { l->channel->fd, l->events->fd, l->async ? l->async->async_fd : -1 };
	int n = 0;

	if (l->ndown || l->ev_up || l->ev_suspect || (l->ev_fenced && l->state <= VERBS_SUSPECT) || l->done)
		return -1;
	l->unarmed = false;
	if (verbs_stash(l) || l->ev_suspect)
		return -1;
	for (int i = 0; i < 3; i++) {
		if (fds[i] < 0)
			continue;
		if (n < max)
			p[n++] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
		else
			l->unarmed = true;
	}
	l->look = true;
	return n;
}

static uint64_t verbs_deadline(const struct lane *lane)
{
	const struct verbs_lane *l = verbs_const(lane);
	uint64_t t = verbs_hs_deadline(l);

	if (l->state == VERBS_SAYING || l->state == VERBS_DRAINING)
		t = tick_min(t, l->conn.limit);
	if (l->unarmed)
		t = tick_min(t, l->now + MSEC);
	return t;
}

static void verbs_fence(struct lane *lane, uint32_t epoch)
{
	struct verbs_lane *l = verbs(lane);

	if (epoch >= l->min_epoch) {
		l->min_epoch = epoch + 1;
		l->accepting = false;
	}
	verbs_hs_cancel(l, l->min_epoch, "cancelled: the epoch is fenced");
	if (!l->ev_fenced || epoch > l->fence_epoch)
		l->fence_epoch = epoch;
	l->ev_fenced = true;
	if ((l->state == VERBS_UP || l->state == VERBS_SUSPECT) && epoch >= l->conn.epoch) {
		/* it never came up for the link: nothing of it may be reported */
		l->conn.mute = l->ev_up;
		l->ev_up = l->ev_suspect = false;
		verbs_fence_begin(l);
	}
}

static void verbs_stats(const struct lane *lane, struct lane_stats *s)
{
	*s = verbs_const(lane)->stats;
}

const struct lane_ops lane_verbs_ops = {
	.name = "verbs",
	.can_fence = true,
	.lossless = false,
	.needs_reg = true,
	.max_put = VERBS_MAX_PUT,
	.copy_limit = VERBS_EAGER,
	.open = verbs_open,
	.connect = verbs_connect,
	.allow = verbs_allow,
	.reg = verbs_reg,
	.unreg = verbs_unreg,
	.peer_export = verbs_peer_export,
	.put = verbs_lane_put,
	.poll = verbs_poll,
	.arm = verbs_arm,
	.deadline = verbs_deadline,
	.fence = verbs_fence,
	.close = verbs_close,
	.stats = verbs_stats,
};
