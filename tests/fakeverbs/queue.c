/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues and queue pairs, as their user sees them. Sizes are granted as asked for, never more. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

/* ---- completion queues ---- */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct fchan *ch;

	if (fv_fail(EMFILE) || (errno = fv_dead(c)) != 0)
		return NULL;
	ch = calloc(1, sizeof(*ch));
	if (ch == NULL || !evq_init(&ch->q)) {
		free(ch);
		return NULL;
	}
	ch->c = (struct ibv_comp_channel){ .context = c, .fd = ch->q.fd };
	fv_lock();
	ctx_of(c)->refs++;
	fv_unlock();
	fv_count(K_COMPCHAN, 1);
	return &ch->c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	struct fchan *ch = (struct fchan *)(void *)c;
	bool fail = fv_fail(EIO);

	fv_lock();
	if (ch->refs != 0) {
		fv_unlock();
		return EBUSY;
	}
	ctx_of(c->context)->refs--;
	fv_unlock();
	evq_end(&ch->q);
	free(ch);
	fv_count(K_COMPCHAN, -1);
	return fail ? errno : 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *arg, struct ibv_comp_channel *ch,
			     int vector)
{
	struct fcq *cq;

	if (fv_fail(ENOMEM) || (errno = fv_dead(c)) != 0)
		return NULL;
	errno = EINVAL;
	if (cqe < 1 || cqe > 1 << 20 || vector != 0 || (ch != NULL && ch->context != c))
		return NULL;
	cq = calloc(1, sizeof(*cq));
	if (cq == NULL || (cq->e = calloc((size_t)cqe, sizeof(*cq->e))) == NULL) {
		free(cq);
		return NULL;
	}
	cq->c.context = c;
	cq->c.channel = ch;
	cq->c.cq_context = arg;
	cq->c.cqe = cqe;
	pthread_mutex_init(&cq->mu, NULL);
	fv_lock();
	ctx_of(c)->refs++;
	if (ch != NULL)
		((struct fchan *)(void *)ch)->refs++;
	fv_unlock();
	fv_count(K_CQ, 1);
	return &cq->c;
}

static bool of_cq(struct evn *n, void *cq)
{
	return ((struct fcqev *)(void *)n)->cq == cq;
}

static bool async_of_cq(struct evn *n, void *cq)
{
	return ((struct fasync *)(void *)n)->cq == cq;
}

int ibv_destroy_cq(struct ibv_cq *c)
{
	struct fcq *cq = (struct fcq *)(void *)c;
	bool fail = fv_fail(EIO);

	fv_lock();
	if (cq->refs != 0) {
		fv_unlock();
		return EBUSY;
	}
	if (cq->unacked != 0 || atomic_load(&cq->async_unacked) != 0)
		fv_die("ibv_destroy_cq would wait for ever: %u events are not acknowledged", cq->unacked);
	ctx_of(c->context)->refs--;
	if (c->channel != NULL) {
		((struct fchan *)(void *)c->channel)->refs--;
		evq_purge(&((struct fchan *)(void *)c->channel)->q, of_cq, NULL, cq);
	}
	evq_purge(&ctx_of(c->context)->async, async_of_cq, NULL, cq);
	fv_unlock();
	pthread_mutex_destroy(&cq->mu);
	free(cq->e);
	free(cq);
	fv_count(K_CQ, -1);
	return fail ? errno : 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **out, void **arg)
{
	struct fchan *ch = (struct fchan *)(void *)c;
	struct fcqev *e;

	if (evq_any(&ch->q) && fv_fail(EIO))
		return -1;
	e = (void *)evq_pop(&ch->q);
	if (e == NULL)
		return -1;
	pthread_mutex_lock(&e->cq->mu);
	e->cq->unacked++;
	pthread_mutex_unlock(&e->cq->mu);
	fv_count(K_UNACKED, 1);
	*out = &e->cq->c;
	*arg = e->cq->c.cq_context;
	free(e);
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *c, unsigned int n)
{
	struct fcq *cq = (struct fcq *)(void *)c;

	pthread_mutex_lock(&cq->mu);
	if (n > cq->unacked)
		fv_die("%u events of a completion queue are acknowledged, %u were got", n, cq->unacked);
	cq->unacked -= n;
	pthread_mutex_unlock(&cq->mu);
	fv_count(K_UNACKED, -(int)n);
}

int fv_poll_cq(struct ibv_cq *c, int max, struct ibv_wc *wc)
{
	struct fcq *cq = (struct fcq *)(void *)c;
	int n = 0;

	pthread_mutex_lock(&cq->mu);
	if (cq->count > 0 && fv_fail(EIO)) {
		pthread_mutex_unlock(&cq->mu);
		return -1;
	}
	for (; n < max && cq->count > 0; n++, cq->count--) {
		struct fcqe *e = &cq->e[cq->head++ % (uint32_t)c->cqe];

		wc[n] = e->wc;
		atomic_store_explicit(e->send ? &e->q->sq_free : &e->q->rq_free, e->upto,
				      memory_order_release);
	}
	pthread_mutex_unlock(&cq->mu);
	if (n == 0)
		sched_yield(); /* the NIC is a thread */
	return n;
}

/* One event for the next completion after this. */
int fv_req_notify_cq(struct ibv_cq *c, int solicited_only)
{
	struct fcq *cq = (struct fcq *)(void *)c;

	if (fv_fail(EIO))
		return errno;
	pthread_mutex_lock(&cq->mu);
	if (cq->armed != 2)
		cq->armed = solicited_only ? 1 : 2;
	pthread_mutex_unlock(&cq->mu);
	return 0;
}

/* ---- queue pairs ---- */
static int to_init(struct fqp *q, const struct ibv_qp_attr *a, int mask)
{
	if (atomic_load(&q->state) == IBV_QPS_INIT && mask == (IBV_QP_STATE | IBV_QP_ACCESS_FLAGS))
		goto set;
	if (atomic_load(&q->state) != IBV_QPS_RESET || mask != FV_MASK_INIT || a->port_num != 1 ||
	    a->pkey_index != 0)
		return EINVAL;
	atomic_store(&q->state, IBV_QPS_INIT);
set:
	atomic_store(&q->access, a->qp_access_flags);
	return 0;
}

static int to_rtr(struct fqp *q, const struct ibv_qp_attr *a, int mask)
{
	if (atomic_load(&q->state) != IBV_QPS_INIT || mask != FV_MASK_RTR || a->path_mtu < IBV_MTU_256 ||
	    a->path_mtu > IBV_MTU_4096)
		return EINVAL;
	q->peer_num = a->dest_qp_num;
	q->path_mtu = fv_mtu_bytes(a->path_mtu);
	fv_slot_of(q->peer_num, &q->s->peer_slot); /* if it has gone, whoever looks finds another number */
	q->s->peer_num = q->peer_num;
	q->peer = &fv.s->qp[q->s->peer_slot];
	q->peer_dev = q->peer->dev;
	atomic_store(&q->s->state, IBV_QPS_RTR);
	atomic_store(&q->state, IBV_QPS_RTR);
	return 0;
}

static int to_rts(struct fqp *q, const struct ibv_qp_attr *a, int mask)
{
	if (atomic_load(&q->state) != IBV_QPS_RTR || mask != FV_MASK_RTS)
		return EINVAL;
	q->timeout = a->timeout;
	q->retry = a->retry_cnt;
	q->rnr_retry = a->rnr_retry;
	atomic_store(&q->s->rnr_retry, q->rnr_retry);
	atomic_store(&q->s->state, IBV_QPS_RTS);
	atomic_store(&q->state, IBV_QPS_RTS);
	return 0;
}

static int modify(struct fqp *q, const struct ibv_qp_attr *a, int mask)
{
	if (mask == IBV_QP_ACCESS_FLAGS) {
		if (atomic_load(&q->state) == IBV_QPS_ERR || atomic_load(&q->state) == IBV_QPS_RESET)
			return EINVAL;
		atomic_store(&q->access, a->qp_access_flags);
		return 0;
	}
	if (!(mask & IBV_QP_STATE))
		return EINVAL;
	switch (a->qp_state) {
	case IBV_QPS_INIT:
		return to_init(q, a, mask);
	case IBV_QPS_RTR:
		return to_rtr(q, a, mask);
	case IBV_QPS_RTS:
		return to_rts(q, a, mask);
	case IBV_QPS_ERR:
		fv_qp_error(q);
		return 0;
	default:
		return EINVAL;
	}
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct fqp *q = (struct fqp *)(void *)qp;
	int err;

	if (fv_fail(EIO))
		return errno;
	fv_lock();
	err = modify(q, a, mask);
	if (err == 0 && (mask & IBV_QP_STATE))
		qp->state = a->qp_state;
	fv_unlock();
	fv_bell(fv.self);
	return err;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct fqp *q = (struct fqp *)(void *)qp;

	(void)mask;
	if (fv_fail(EIO))
		return errno;
	memset(a, 0, sizeof(*a));
	memset(init, 0, sizeof(*init));
	fv_lock();
	a->qp_state = a->cur_qp_state = (enum ibv_qp_state)atomic_load(&q->state);
	a->path_mtu = fv_mtu(q->path_mtu);
	a->dest_qp_num = q->peer_num;
	a->timeout = q->timeout;
	a->retry_cnt = q->retry;
	a->rnr_retry = q->rnr_retry;
	a->port_num = 1;
	a->cap = init->cap = q->cap;
	fv_unlock();
	init->send_cq = qp->send_cq;
	init->recv_cq = qp->recv_cq;
	init->qp_type = IBV_QPT_RC;
	return 0;
}

static int prepare(struct fqp *q, const struct ibv_send_wr *wr, struct fwqe *w)
{
	static const uint8_t ops[] = { [IBV_WR_RDMA_WRITE] = OP_WRITE,
				       [IBV_WR_RDMA_WRITE_WITH_IMM] = OP_WRITE_IMM,
				       [IBV_WR_SEND] = OP_SEND,
				       [IBV_WR_SEND_WITH_IMM] = OP_SEND_IMM };

	if ((size_t)wr->opcode >= sizeof(ops) ||
	    (wr->num_sge > 0 && (uint32_t)wr->num_sge > q->cap.max_send_sge))
		return EINVAL;
	*w = (struct fwqe){ .wr_id = wr->wr_id,
			    .opcode = ops[wr->opcode],
			    .imm = wr->imm_data,
			    .raddr = wr->wr.rdma.remote_addr,
			    .rkey = wr->wr.rdma.rkey,
			    .nsge = wr->num_sge,
			    .signalled = q->sig_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0,
			    .solicited = (wr->send_flags & IBV_SEND_SOLICITED) != 0,
			    .is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0 };
	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		if (w->is_inline && w->len + w->sge[i].length > q->cap.max_inline_data)
			return ENOMEM;
		if (w->is_inline && w->sge[i].length > 0)
			memcpy(w->data + w->len, (void *)(uintptr_t)w->sge[i].addr, w->sge[i].length);
		w->len += w->sge[i].length;
	}
	return 0;
}

int fv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fqp *q = (struct fqp *)(void *)qp;
	int err = 0;

	pthread_mutex_lock(&q->mu);
	for (; wr != NULL; wr = wr->next) {
		uint32_t head = atomic_load_explicit(&q->sq_head, memory_order_relaxed);
		uint32_t state = atomic_load_explicit(&q->state, memory_order_relaxed);

		if (fv_fail(ENOMEM))
			err = errno;
		else if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
			err = EINVAL;
		else if (head - atomic_load_explicit(&q->sq_free, memory_order_acquire) >= q->cap.max_send_wr)
			err = ENOMEM;
		else
			err = prepare(q, wr, &q->sq[head % q->cap.max_send_wr]);
		if (err != 0)
			break;
		atomic_store_explicit(&q->sq_head, head + 1, memory_order_release);
	}
	if (err == ENOMEM)
		atomic_fetch_add(&fv.queue_full, 1);
	if (err != 0)
		*bad = wr;
	pthread_mutex_unlock(&q->mu);
	fv_bell(fv.self);
	return err;
}

int fv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fqp *q = (struct fqp *)(void *)qp;
	int err = 0;

	pthread_mutex_lock(&q->mu);
	for (; wr != NULL; wr = wr->next) {
		uint32_t head = atomic_load_explicit(&q->rq_head, memory_order_relaxed);
		struct frwqe *w;

		if (fv_fail(ENOMEM))
			err = errno;
		else if ((uint32_t)wr->num_sge > q->cap.max_recv_sge)
			err = EINVAL;
		else if (head - atomic_load_explicit(&q->rq_free, memory_order_acquire) >= q->cap.max_recv_wr)
			err = ENOMEM;
		if (err != 0)
			break;
		w = &q->rq[head % q->cap.max_recv_wr];
		w->wr_id = wr->wr_id;
		w->nsge = wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			w->sge[i] = wr->sg_list[i];
		atomic_store_explicit(&q->rq_head, head + 1, memory_order_release);
	}
	if (err == ENOMEM)
		atomic_fetch_add(&fv.queue_full, 1);
	if (err != 0)
		*bad = wr;
	pthread_mutex_unlock(&q->mu);
	fv_bell(fv.self);
	return err;
}
