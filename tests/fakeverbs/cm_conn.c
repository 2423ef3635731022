/* SPDX-License-Identifier: Apache-2.0 */
/* What librdmacm exports: queue pairs of ids, and connections. The other half is cm_wire.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

/* ---- queue pairs ---- */
struct fv_sqp *fv_slot(uint32_t dev, uint32_t *slot)
{
	struct fv_sqp *s = NULL;

	fv_slock();
	for (uint32_t i = 0; i < FV_QPS && s == NULL; i++) {
		struct fv_sqp *c = &fv.s->qp[i], *reader = &fv.s->qp[c->peer_slot];

		/* A ring may be taken when its owner has gone and so has the reader, or he has read all. */
		if (atomic_load(&c->num) != 0 &&
		    (!atomic_load(&c->released) ||
		     (c->peer_num != 0 && atomic_load(&reader->num) == c->peer_num &&
		      !atomic_load(&reader->released) && atomic_load(&reader->state) != IBV_QPS_ERR &&
		      atomic_load(&c->head) != atomic_load(&c->tail))))
			continue;
		s = c;
		*slot = i;
		atomic_store(&s->num, 0);
		s->proc = fv.self;
		s->dev = dev;
		s->peer_num = 0;
		atomic_store(&s->released, 0);
		atomic_store(&s->state, IBV_QPS_INIT);
		atomic_store(&s->ack, 0);
		atomic_store(&s->nak, 0);
		atomic_store(&s->head, 0);
		atomic_store(&s->tail, 0);
		atomic_store(&s->num, atomic_fetch_add(&fv.s->next, 1) & 0xffffff);
	}
	fv_sunlock();
	return s;
}

bool fv_slot_of(uint32_t num, uint32_t *slot)
{
	for (*slot = 0; *slot < FV_QPS; ++*slot)
		if (atomic_load(&fv.s->qp[*slot].num) == num)
			return true;
	*slot = 0;
	return false;
}

static struct fqp *create(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_context *c = pd->context;
	struct ibv_qp_cap *cap = &a->cap;
	struct fqp *q;

	/* Objects of another context of the same device are strangers. */
	errno = EINVAL;
	if (a->qp_type != IBV_QPT_RC || a->send_cq == NULL || a->recv_cq == NULL ||
	    a->send_cq->context != c || a->recv_cq->context != c || a->srq != NULL ||
	    cap->max_send_wr > 16384 || cap->max_recv_wr > 16384 || cap->max_send_sge > FV_SGE ||
	    cap->max_recv_sge > FV_SGE || cap->max_inline_data > FV_INLINE)
		return NULL;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return NULL;
	q->cap = *cap;
	q->sq = calloc(cap->max_send_wr + 1u, sizeof(*q->sq));
	q->rq = calloc(cap->max_recv_wr + 1u, sizeof(*q->rq));
	if (q->sq == NULL || q->rq == NULL)
		fv_die("out of memory");
	q->cap.max_send_wr += cap->max_send_wr == 0;
	q->cap.max_recv_wr += cap->max_recv_wr == 0;
	pthread_mutex_init(&q->mu, NULL);
	q->items_end = &q->items;
	q->sig_all = a->sq_sig_all != 0;
	q->path_mtu = FV_PACKET;
	fv_lock();
	q->ctx = ctx_of(c);
	q->s = fv_slot(q->ctx->dev->index, &q->slot);
	if (q->s == NULL)
		fv_die("more than %d queue pairs", FV_QPS);
	q->q.context = c;
	q->q.qp_context = a->qp_context;
	q->q.pd = pd;
	q->q.send_cq = a->send_cq;
	q->q.recv_cq = a->recv_cq;
	q->q.qp_num = atomic_load(&q->s->num);
	q->q.qp_type = IBV_QPT_RC;
	((struct fpd *)(void *)pd)->refs++;
	((struct fcq *)(void *)a->send_cq)->refs++;
	((struct fcq *)(void *)a->recv_cq)->refs++;
	q->next = fv.qps;
	fv.qps = q;
	fv_unlock();
	fv_count(K_QP, 1);
	return q;
}

/* In the reset state: all else is the program's doing. */
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct fqp *q;

	if (fv_fail(ENOMEM))
		return NULL;
	q = create(pd, a);
	return q != NULL ? &q->q : NULL;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct fqp *q;

	if (fv_fail(ENOMEM))
		return -1;
	if (id->verbs == NULL || id->qp != NULL || pd == NULL || pd->context != id->verbs)
		return fails(EINVAL);
	q = create(pd, a);
	if (q == NULL)
		return -1;
	fv_lock();
	atomic_store(&q->access, IBV_ACCESS_REMOTE_WRITE); /* as librdmacm does */
	atomic_store(&q->state, IBV_QPS_INIT);
	q->q.state = IBV_QPS_INIT;
	id->qp = &q->q;
	id->pd = pd;
	id->send_cq = a->send_cq;
	id->recv_cq = a->recv_cq;
	fv_unlock();
	return 0;
}

static void clean(struct fcq *cq, const struct fqp *q)
{
	uint32_t n, kept = 0, size = (uint32_t)cq->c.cqe;

	pthread_mutex_lock(&cq->mu);
	for (n = 0; n < cq->count; n++)
		if (cq->e[(cq->head + n) % size].q != q)
			cq->e[(cq->head + kept++) % size] = cq->e[(cq->head + n) % size];
	cq->count = kept;
	pthread_mutex_unlock(&cq->mu);
}

static bool async_of(struct evn *n, void *q)
{
	return ((struct fasync *)(void *)n)->q == q;
}

static void destroy(struct fqp *q)
{
	struct fqp **p;

	if (atomic_load(&q->async_unacked) != 0)
		fv_die("destroying a queue pair would wait for ever: an asynchronous event is not "
		       "acknowledged");
	fv_lock();
	for (p = &fv.qps; *p != q; p = &(*p)->next)
		;
	*p = q->next;
	fv_qp_error(q);
	fv_drop_items(q);
	atomic_store(&q->s->released, 1);
	clean((struct fcq *)(void *)q->q.send_cq, q);
	clean((struct fcq *)(void *)q->q.recv_cq, q);
	evq_purge(&q->ctx->async, async_of, NULL, q);
	((struct fpd *)(void *)q->q.pd)->refs--;
	((struct fcq *)(void *)q->q.send_cq)->refs--;
	((struct fcq *)(void *)q->q.recv_cq)->refs--;
	fv_unlock();
	pthread_mutex_destroy(&q->mu);
	free(q->sq);
	free(q->rq);
	free(q);
	fv_count(K_QP, -1);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	bool fail = fv_fail(EIO);

	destroy((struct fqp *)(void *)qp);
	return fail ? errno : 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	destroy(qp_of(fid_of(id)));
	id->qp = NULL;
}

/* What the connection manager knows of the state, the usual set of attributes. */
static int attributes(struct fid *f, struct ibv_qp_attr *a, int *mask)
{
	bool there = f->state == ID_REQUEST || f->state == ID_ACCEPTED || f->state == ID_RESPONSE ||
		     f->state == ID_UP;

	switch (a->qp_state) {
	case IBV_QPS_INIT:
		a->pkey_index = 0;
		a->port_num = 1;
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		*mask = FV_MASK_INIT;
		return f->ctx != NULL ? 0 : EINVAL;
	case IBV_QPS_RTR:
		a->path_mtu = fv_mtu(f->mtu);
		a->dest_qp_num = f->peer_num;
		a->max_dest_rd_atomic = 1;
		*mask = FV_MASK_RTR;
		return there ? 0 : EINVAL;
	case IBV_QPS_RTS:
		a->timeout = (uint8_t)(f->ack_timeout >= 0 ? f->ack_timeout : 18);
		a->retry_cnt = f->retry;
		a->rnr_retry = f->rnr;
		a->max_rd_atomic = 1;
		*mask = FV_MASK_RTS;
		return there ? 0 : EINVAL;
	default:
		return EINVAL;
	}
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	int err;

	if (fv_fail(EINVAL))
		return -1;
	fv_lock();
	err = attributes(fid_of(id), a, mask);
	fv_unlock();
	return err == 0 ? 0 : fails(err);
}

void fv_cm_connected(struct fid *f)
{
	struct fqp *q = qp_of(f);

	if (q == NULL || atomic_load(&q->state) != IBV_QPS_INIT)
		return;
	q->peer = &fv.s->qp[f->peer_slot];
	q->peer_num = f->peer_num;
	q->peer_dev = f->peer_dev;
	q->timeout = (uint8_t)(f->ack_timeout >= 0 ? f->ack_timeout : 18);
	q->retry = f->retry;
	q->rnr_retry = f->rnr;
	q->path_mtu = f->mtu;
	q->s->peer_slot = f->peer_slot;
	q->s->peer_num = f->peer_num;
	atomic_store(&q->s->rnr_retry, q->rnr_retry);
	q->q.state = IBV_QPS_RTS;
	atomic_store(&q->s->state, IBV_QPS_RTS);
	atomic_store(&q->state, IBV_QPS_RTS);
}

/* ---- connections ---- */
static uint8_t at_most_7(uint8_t n)
{
	return n > 7 ? 7 : n;
}

static int connect_to(struct fid *f, const struct rdma_conn_param *c)
{
	struct fv_msg m = { .type = MSG_REQ };
	uint32_t proc = FV_PROCS, gen = 0;

	if (f->state != ID_ROUTE || (f->id.qp == NULL && (c == NULL || c->qp_num == 0)))
		return EINVAL;
	f->retry = c != NULL ? at_most_7(c->retry_count) : 7;
	f->rnr = c != NULL ? at_most_7(c->rnr_retry_count) : 7;
	m.retry = f->retry;
	m.rnr = f->rnr;
	m.len = c != NULL ? c->private_data_len : 0;
	if (m.len > 0)
		memcpy(m.data, c->private_data, m.len);
	f->num_told = f->id.qp != NULL ? f->id.qp->qp_num : c->qp_num;
	fv_slot_of(f->num_told, &m.slot);
	m.num = f->num_told;
	m.mtu = f->mtu;
	memcpy(m.src, f->src, 16);
	memcpy(m.dst, f->dst, 16);
	m.sport = f->sport;
	m.dport = f->dport;
	f->state = ID_CONNECT;
	f->due = fv_now() + (uint64_t)(FV_UNREACHABLE * fv.time);
	fv_slock();
	for (int i = 0; i < FV_LISTENERS; i++) {
		struct fv_listener *l = &fv.s->listener[i];

		/* 127.0.0.1 is another machine's in every network namespace */
		if (l->used && l->id != 0 && l->port == f->dport && memcmp(l->addr, f->dst, 16) == 0 &&
		    (l->netns == fv.netns || (f->dst[12] != 127 && !(f->dst[0] == 0 && f->dst[10] == 0)))) {
			proc = l->proc;
			gen = atomic_load(&fv.s->proc[proc].gen);
			m.to = l->id;
		}
	}
	for (uint32_t i = 0; i < fv.s->ndev; i++)
		for (uint32_t k = 0; k < fv.s->dev[i].naddr; k++)
			if (memcmp(fv.s->dev[i].addr[k], f->dst, 16) == 0 &&
			    (fv.s->dev[i].netns == fv.netns || f->peer_dev == 0))
				f->peer_dev = i;
	fv_sunlock();
	f->peer_proc = proc;
	f->peer_gen = gen;
	if (proc != FV_PROCS)
		f->delivered = fv_send_to(f, proc, gen, f->peer_dev, &m);
	else if (fv_path(f->ctx->dev->index, f->peer_dev))
		f->due = 0; /* nobody listens there */
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *c)
{
	int err;

	if (fv_fail(ENOMEM))
		return -1;
	if (c != NULL && c->private_data_len > CM_REQ_DATA)
		return fails(EINVAL);
	fv_lock();
	err = connect_to(fid_of(id), c);
	fv_unlock();
	fv_bell(fv.self);
	return err == 0 ? 0 : fails(err);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *c)
{
	struct fid *f = fid_of(id);
	int err = 0;

	if (fv_fail(ENOMEM))
		return -1;
	if (c != NULL && c->private_data_len > CM_REP_DATA)
		return fails(EINVAL);
	fv_lock();
	if (f->state != ID_REQUEST || (id->qp == NULL && (c == NULL || c->qp_num == 0))) {
		err = EINVAL;
	} else {
		f->num_told = id->qp != NULL ? id->qp->qp_num : c->qp_num;
		if (c != NULL)
			f->rnr = at_most_7(c->rnr_retry_count);
		f->state = ID_ACCEPTED;
		fv_cm_connected(f);
		fv_answer(f, MSG_REP, 0, c != NULL ? c->private_data : NULL,
			  c != NULL ? c->private_data_len : 0);
	}
	fv_unlock();
	return err == 0 ? 0 : fails(err);
}

/* The program's own queue pair is ready. */
int rdma_establish(struct rdma_cm_id *id)
{
	struct fid *f = fid_of(id);
	int err = 0;

	if (fv_fail(ENOMEM))
		return -1;
	fv_lock();
	if (f->state != ID_RESPONSE || id->qp != NULL) {
		err = EINVAL;
	} else {
		f->state = ID_UP;
		fv_answer(f, MSG_RTU, 0, NULL, 0);
	}
	fv_unlock();
	return err == 0 ? 0 : fails(err);
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct fid *f = fid_of(id);
	int err = 0;

	if (fv_fail(EIO))
		return -1;
	if (len > CM_REJ_DATA)
		return fails(EINVAL);
	fv_lock();
	if (f->state != ID_REQUEST) {
		err = EINVAL;
	} else {
		fv_answer(f, MSG_REJ, 28, data, len);
		f->state = ID_OFF;
	}
	fv_unlock();
	return err == 0 ? 0 : fails(err);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct fid *f = fid_of(id);
	int err = 0;

	if (fv_fail(EIO))
		return -1;
	fv_lock();
	if (id->qp != NULL)
		fv_qp_error(qp_of(f));
	if (f->state == ID_UP || f->state == ID_ACCEPTED) {
		fv_answer(f, MSG_DREQ, 0, NULL, 0);
		f->state = ID_DISC;
		f->due = fv_now() + 200000000;
	} else if (f->state != ID_DISC) {
		err = EINVAL;
	}
	fv_unlock();
	fv_bell(fv.self);
	return err == 0 ? 0 : fails(err);
}
