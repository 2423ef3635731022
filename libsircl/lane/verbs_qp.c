/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs: how they are made, what is posted on them besides puts, what is said when one comes up or
 * breaks, and the fence.
 *
 * A fence has two steps. First the peer is told, if it is likely to hear it, so that it does not take the end
 * of the connection for the end of the process. Then the queue pair goes to the error state: from there
 * nothing lands. What has completed before is still reported; a marker at the end of each queue comes out
 * after everything else.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include "lane/dma.h"
#include "lane/verbs_internal.h"

/* ---- queue pairs ---- */

int verbs_qp_trust(struct verbs_lane *l, struct verbs_qp *q)
{
	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	return l->lib->ibv.ibv_modify_qp(q->qp, &attr, IBV_QP_ACCESS_FLAGS);
}

/* What the connection manager says of the state that comes next. */
static int next_state(struct verbs_lane *l, struct verbs_qp *q, enum ibv_qp_state state,
		      struct ibv_qp_attr *attr, int *mask)
{
	*attr = (struct ibv_qp_attr){ .qp_state = state };
	*mask = 0;
	if (l->lib->cm.rdma_init_qp_attr(q->id, attr, mask))
		return errno ? errno : EIO;
	return 0;
}

/*
 * A queue pair of our own, not rdma_create_qp's: librdmacm would move it by itself, at both ends to the path
 * MTU that the connecting end asks for; what is larger than the other end's port takes is lost for ever. (It
 * would also agree on the vendor's enhancements, which need a queue pair that it moves; here nobody asks.)
 */
int verbs_qp_create(struct verbs_lane *l, struct verbs_qp *q, struct rdma_cm_id *id)
{
	static const uint32_t inlines[] = { VERBS_INLINE, sizeof(struct verbs_head), 0 };
	struct ibv_qp_attr attr;
	int err = EIO, mask;

	for (size_t i = 0; i < 3; i++) { /* a device that cannot have as much inline says EINVAL */
		struct ibv_qp_init_attr init = {
			.send_cq = l->cq,
			.recv_cq = l->cq,
			/* a put is two requests at most; handshake, fence and marker are the others */
			.cap = { .max_send_wr = 2 * l->cfg.max_notes + 4,
				 .max_recv_wr = l->nslots + 2,
				 .max_send_sge = 2,
				 .max_recv_sge = 1,
				 .max_inline_data = inlines[i] },
			.qp_type = IBV_QPT_RC,
		};

		q->qp = l->lib->ibv.ibv_create_qp(l->pd, &init);
		if (q->qp) {
			l->inline_max = init.cap.max_inline_data;
			l->gen = (l->gen + 1) & 0xffffffu;
			q->id = id;
			q->gen = l->gen;
			err = next_state(l, q, IBV_QPS_INIT, &attr, &mask);
			if (err)
				return err;
			/* the connection manager would let the peer write to any memory whose key it guesses
			 */
			attr.qp_access_flags = 0;
			return l->lib->ibv.ibv_modify_qp(q->qp, &attr, mask);
		}
		err = errno ? errno : EIO;
		if (err != EINVAL)
			break;
	}
	return err;
}

/* The path MTU that both ends can: the request has the connecting end's, of when it looked for the way. */
static enum ibv_mtu path_mtu(struct verbs_lane *l, enum ibv_mtu asked, uint32_t limit)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	verbs_refresh_mtu(l);
	if (l->mtu && (!limit || l->mtu < limit))
		limit = l->mtu;
	while (mtu < asked && mtu < IBV_MTU_4096 && (!limit || verbs_mtu_bytes(mtu + 1) <= limit))
		mtu++;
	return mtu;
}

int verbs_qp_ready(struct verbs_lane *l, struct verbs_qp *q, uint32_t limit)
{
	struct ibv_qp_attr attr;
	int mask, err;

	err = next_state(l, q, IBV_QPS_RTR, &attr, &mask);
	if (err)
		return err;
	attr.path_mtu = path_mtu(l, attr.path_mtu, limit);
	attr.max_dest_rd_atomic = 1; /* nothing is read */
	err = l->lib->ibv.ibv_modify_qp(q->qp, &attr, mask);
	if (!err)
		err = next_state(l, q, IBV_QPS_RTS, &attr, &mask);
	if (err)
		return err;
	attr.max_rd_atomic = 1;
	return l->lib->ibv.ibv_modify_qp(q->qp, &attr, mask);
}

/* After it nothing of the queue pair can land or be read. The peer learns of it. */
void verbs_qp_destroy(struct verbs_lane *l, struct verbs_qp *q)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (q->qp) {
		l->lib->ibv.ibv_modify_qp(q->qp, &attr, IBV_QP_STATE); /* before the peer learns of it */
		l->lib->cm.rdma_disconnect(q->id); /* it may not have been connected */
		l->lib->ibv.ibv_destroy_qp(q->qp);
	}
	l->lib->cm.rdma_destroy_id(q->id);
	*q = (struct verbs_qp){ 0 };
}

int verbs_post_buffer(struct verbs_lane *l, struct verbs_qp *q, enum verbs_wr kind, void *p, size_t n)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p, .length = (uint32_t)n, .lkey = l->mem_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = verbs_wr_id(kind, q->gen, 0), .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(q->qp, &wr, &bad);
}

int verbs_send_buffer(struct verbs_lane *l, struct verbs_qp *q, enum verbs_wr kind, void *p, size_t n)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p, .length = (uint32_t)n, .lkey = l->mem_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = verbs_wr_id(kind, q->gen, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | (n <= l->inline_max ? IBV_SEND_INLINE : 0),
	};
	struct ibv_send_wr *bad;

	dma_wmb();
	return ibv_post_send(q->qp, &wr, &bad);
}

/* One chain of receives. */
int verbs_post_some(struct verbs_lane *l, struct verbs_qp *q, const uint32_t *slot, int n)
{
	struct ibv_recv_wr wr[VERBS_POLL], *bad;
	struct ibv_sge sge[VERBS_POLL];

	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){ .addr = (uintptr_t)(l->slots + slot[i] * VERBS_SLOT),
					   .length = VERBS_SLOT,
					   .lkey = l->mem_mr->lkey };
		wr[i] = (struct ibv_recv_wr){ .wr_id = verbs_wr_id(WR_RECV, q->gen, slot[i]),
					      .next = i + 1 < n ? &wr[i + 1] : NULL,
					      .sg_list = &sge[i],
					      .num_sge = 1 };
	}
	return ibv_post_recv(q->qp, wr, &bad);
}

int verbs_post_slots(struct verbs_lane *l, struct verbs_qp *q)
{
	uint32_t slot[VERBS_POLL];

	for (uint32_t at = 0; at < l->nslots;) {
		int n = 0, err;

		while (n < VERBS_POLL && at < l->nslots)
			slot[n++] = at++;
		err = verbs_post_some(l, q, slot, n);
		if (err)
			return err;
	}
	return 0;
}

/* ---- up and suspect ---- */

void verbs_hello_fill(struct verbs_lane *l, struct verbs_hello *h)
{
	const struct verbs_region *arena = &l->region[0];

	verbs_refresh_mtu(l);
	*h = (struct verbs_hello){
		.version = htole32(VERBS_VERSION),
		.max_notes = htole32(l->cfg.max_notes),
		.arena = htole64((uintptr_t)arena->base),
		.arena_len = htole64(arena->len),
		.arena_key = htole32(arena->mr->rkey),
		.ring_key = htole32(l->ring_mr->rkey),
		.ring = htole64((uintptr_t)l->ring),
		.mtu = htole32(l->mtu),
		.netdev_mtu = htole32(l->netdev_mtu),
	};
}

/* Also before connecting. */
void verbs_tell_mtu_differs(struct verbs_lane *l, uint32_t mtu, uint32_t netdev)
{
	char where[VERBS_WHERE_MAX], there[32] = "";

	if (l->mtu_told || (mtu == l->mtu && (!netdev || netdev == l->netdev_mtu)))
		return;
	l->mtu_told = true;
	if (netdev)
		snprintf(there, sizeof(there), "%u, ", netdev);
	log_warn(&l->cfg.ctx->log,
		 "verbs lane %u of cable %u on %s: the ends differ: MTU %u, RoCE %u here, %sRoCE %u at "
		 "position %u; set both alike (ip link set dev %s mtu 9000)",
		 l->cfg.lane, l->cfg.cable, verbs_where(l, where), l->netdev_mtu, l->mtu, there, mtu,
		 l->cfg.peer, l->dev);
}

/* What the connection runs with, and what is wrong with it. */
static void tell_mtu(struct verbs_lane *l)
{
	const struct verbs_hello *peer = &l->conn.peer;
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init;
	char where[VERBS_WHERE_MAX];
	uint32_t path;

	verbs_refresh_mtu(l);
	verbs_where(l, where);
	if (l->lib->ibv.ibv_query_qp(l->conn.qp.qp, &attr, IBV_QP_PATH_MTU | IBV_QP_TIMEOUT, &init))
		return;
	path = verbs_mtu_bytes(attr.path_mtu);
	log_info(&l->cfg.ctx->log, LOG_LANE,
		 "verbs lane %u of cable %u to position %u on %s: epoch %u, path MTU %u (RoCE MTU here %u of "
		 "%u, there %u), ACK timeout %u, inline %u",
		 l->cfg.lane, l->cfg.cable, l->cfg.peer, where, l->conn.epoch, path, l->mtu, l->mtu_max,
		 peer->mtu, attr.timeout, l->inline_max);
	verbs_tell_mtu_differs(l, peer->mtu, peer->netdev_mtu);
	if (l->mtu_told)
		return;
	l->mtu_told = true;
	if (path && path < 4096 && l->mtu_max >= 4096)
		log_warn(&l->cfg.ctx->log,
			 "verbs lane %u of cable %u on %s: packets of %u bytes (netdev MTU %u), the port can "
			 "4096: ip link set dev %s mtu 9000, at both ends",
			 l->cfg.lane, l->cfg.cable, where, path, l->netdev_mtu, l->dev);
}

void verbs_up(struct verbs_lane *l, struct verbs_qp *q, uint32_t epoch, const struct verbs_hello *peer)
{
	l->conn = (struct verbs_conn){ .qp = *q, .epoch = epoch, .peer = *peer };
	l->peer_export =
		(struct lane_export){ .addr = peer->arena, .len = peer->arena_len, .key = peer->arena_key };
	l->state = VERBS_UP;
	l->accepting = false;
	l->min_epoch = epoch + 1;
	l->ev_up = true;
	l->ev_suspect = false;
	l->done = 0;
	l->nrepost = 0;
	tell_mtu(l);
}

void verbs_suspect(struct verbs_lane *l, bool gone, const char *fmt, ...)
{
	va_list ap;

	if (l->state != VERBS_UP)
		return; /* once per epoch */
	va_start(ap, fmt);
	vsnprintf(l->why_suspect, sizeof(l->why_suspect), fmt, ap);
	va_end(ap);
	l->state = VERBS_SUSPECT;
	l->gone_suspect = gone;
	l->ev_suspect = true;
}

void verbs_suspect_errno(struct verbs_lane *l, const char *what, int err)
{
	char where[VERBS_WHERE_MAX], buf[96];

	verbs_suspect(l, false, "%s: %s: %s", verbs_where(l, where), what,
		      verbs_errno(err, buf, sizeof(buf)));
}

/* ---- the fence ---- */

static void fence_finish(struct verbs_lane *l)
{
	verbs_qp_destroy(l, &l->conn.qp);
	l->state = VERBS_DOWN;
	l->done = 0;
	l->nrepost = 0;
}

/* Into the error state. What cannot be marked is destroyed at once: nothing lands after that either. */
static void fence_error(struct verbs_lane *l)
{
	struct verbs_conn *c = &l->conn;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	l->state = VERBS_DRAINING;
	c->limit = l->now + VERBS_DRAIN_NS;
	if (l->lib->ibv.ibv_modify_qp(c->qp.qp, &attr, IBV_QP_STATE) ||
	    verbs_post_buffer(l, &c->qp, WR_MARK_IN, l->slots, VERBS_SLOT) ||
	    verbs_send_buffer(l, &c->qp, WR_MARK_OUT, l->heads, sizeof(*l->heads)))
		c->mark_in = c->mark_out = true; /* what has completed is still reported */
}

void verbs_fence_begin(struct verbs_lane *l)
{
	struct verbs_conn *c = &l->conn;

	/* only where it is likely to arrive: the fence of a lane that is known to be bad does not wait */
	if (l->state == VERBS_UP && !c->broken && !c->hangup && !l->dead &&
	    c->put_seq - c->done_seq < l->cfg.max_notes) {
		struct verbs_head *h = verbs_head_make(l, VERBS_FENCED, 0, 0, 0, NULL, c->put_seq);

		if (!verbs_send_buffer(l, &c->qp, WR_SAY, h, sizeof(*h))) {
			l->state = VERBS_SAYING;
			c->limit = l->now + VERBS_SAY_NS;
			return;
		}
	}
	fence_error(l);
}

/* Every completion that was there has been taken. */
void verbs_fence_step(struct verbs_lane *l)
{
	struct verbs_conn *c = &l->conn;

	if (l->state == VERBS_SAYING && (c->told || c->said || c->broken || c->hangup || l->now >= c->limit))
		fence_error(l);
	else if (l->state == VERBS_DRAINING && ((c->mark_in && c->mark_out) || l->now >= c->limit))
		fence_finish(l);
}
