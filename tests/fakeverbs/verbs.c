/* SPDX-License-Identifier: Apache-2.0 */
/* What libibverbs exports, as far as it is called. Sizes are granted as asked for, never more. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include "internal.h"

static struct fctx *ctx_of(struct ibv_context *c)
{
	return (struct fctx *)(void *)c;
}

static int dead(struct ibv_context *c)
{
	return atomic_load(&ctx_of(c)->dev->s->fatal) ? EIO : 0;
}

/* ---- devices and contexts ---- */
struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list;

	if (!fv_attach(true) || fv_fail(ENOSYS))
		return NULL;
	fv_lock();
	fv_devices();
	list = calloc((size_t)fv.ndev + 1, sizeof(struct ibv_device *));
	for (int i = 0; list != NULL && i < fv.ndev; i++)
		list[i] = &fv.dev[i].d;
	if (n != NULL)
		*n = list != NULL ? fv.ndev : 0;
	fv_unlock();
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

struct fctx *fv_context(struct fdev *d, bool of_cm)
{
	int i = (int)(d - fv.dev);
	struct fctx *c;

	if (of_cm && fv.cm_ctx[i] != NULL)
		return fv.cm_ctx[i];
	c = calloc(1, sizeof(*c));
	if (c == NULL || !evq_init(&c->async)) {
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	c->dev = d;
	c->c = (struct ibv_context){ .device = &d->d,
				     .ops = { .poll_cq = fv_poll_cq,
					      .req_notify_cq = fv_req_notify_cq,
					      .post_send = fv_post_send,
					      .post_recv = fv_post_recv },
				     .cmd_fd = -1,
				     .async_fd = c->async.fd,
				     .num_comp_vectors = 1 };
	c->seen = atomic_load(&d->s->nev);
	c->next = fv.ctxs;
	fv.ctxs = c;
	if (of_cm)
		fv.cm_ctx[i] = c;
	else
		fv_count(K_CTX, 1);
	return c;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct fctx *c = NULL;

	if (!fv_attach(true) || fv_fail(ENOMEM))
		return NULL;
	fv_lock();
	if (atomic_load(&((struct fdev *)(void *)d)->s->fatal))
		errno = EIO;
	else
		c = fv_context((struct fdev *)(void *)d, false);
	fv_unlock();
	return c != NULL ? &c->c : NULL;
}

int ibv_close_device(struct ibv_context *context)
{
	struct fctx *c = ctx_of(context), **p;
	bool fail = fv_fail(EIO);

	fv_lock();
	if (c->refs != 0)
		fv_die("a context of %s is closed while %d domains, queues or channels of it live",
		       context->device->name, c->refs);
	for (p = &fv.ctxs; *p != c; p = &(*p)->next)
		;
	*p = c->next;
	fv_unlock();
	evq_end(&c->async);
	free(c);
	fv_count(K_CTX, -1);
	return fail ? -1 : 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	if (fv_fail(EIO))
		return errno;
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "fake");
	a->node_guid = htobe64(0xfa4e000000000000u + ctx_of(c)->dev->index);
	a->sys_image_guid = a->node_guid;
	a->max_mr_size = UINT64_MAX;
	a->max_qp = FV_QPS;
	a->max_qp_wr = 16384;
	a->max_sge = FV_SGE;
	a->max_cq = 4096;
	a->max_cqe = 1 << 20;
	a->max_mr = 4095;
	a->max_pd = 4096;
	a->max_qp_rd_atom = 16;
	a->max_qp_init_rd_atom = 16;
	a->phys_port_cnt = 1;
	return dead(c);
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	return bytes >= 4096   ? IBV_MTU_4096
	       : bytes >= 2048 ? IBV_MTU_2048
	       : bytes >= 1024 ? IBV_MTU_1024
	       : bytes >= 512  ? IBV_MTU_512
			       : IBV_MTU_256;
}

/* The exported function fills the fields of its time only: up to link_layer. */
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *a = (void *)compat;
	struct fdev *d = ctx_of(c)->dev;

	if (fv_fail(EIO))
		return errno;
	if (port != 1)
		return EINVAL;
	memset(a, 0, offsetof(struct ibv_port_attr, flags));
	a->state = atomic_load(&d->s->down) ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	a->max_mtu = IBV_MTU_4096;
	fv_lock();
	fv_devices();
	a->active_mtu = mtu_of(d->s->mtu);
	fv_unlock();
	a->gid_tbl_len = 16;
	a->max_msg_sz = 1u << 30;
	a->pkey_tbl_len = 1;
	a->active_width = 2;
	a->active_speed = 64;
	a->phys_state = a->state == IBV_PORT_ACTIVE ? 5 : 3;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return dead(c);
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	union ibv_gid all[16];

	if (fv_fail(EIO))
		return -1;
	if (port != 1 || index < 0 || index >= 16) {
		errno = EINVAL;
		return -1;
	}
	fv_lock();
	fv_gids(ctx_of(c)->dev, all, 16);
	fv_unlock();
	*gid = all[index];
	return 0;
}

/* ---- domains and memory ---- */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct fpd *pd;

	if (fv_fail(ENOMEM) || (errno = dead(c)) != 0)
		return NULL;
	pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return NULL;
	pd->p.context = c;
	fv_lock();
	ctx_of(c)->refs++;
	fv_unlock();
	fv_count(K_PD, 1);
	return &pd->p;
}

int ibv_dealloc_pd(struct ibv_pd *p)
{
	struct fpd *pd = (struct fpd *)(void *)p;
	bool fail = fv_fail(EIO);

	fv_lock();
	if (pd->refs != 0) {
		fv_unlock();
		return EBUSY;
	}
	ctx_of(p->context)->refs--;
	fv_unlock();
	free(pd);
	fv_count(K_PD, -1);
	return fail ? errno : 0;
}

static bool mapped(const uint8_t *at, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char in;

	return mincore((void *)((uintptr_t)at & ~(page - 1)), page, &in) == 0 &&
	       mincore((void *)((uintptr_t)(at + len - 1) & ~(page - 1)), page, &in) == 0;
}

/* A second mapping of the pages, as a device holds on to pages and not to addresses: private ones become
 * shared first. MAP_FAILED: cannot be done. */
static uint8_t *alias_of(uint8_t *at, size_t len)
{
	uint8_t *alias = mremap(at, 0, len, MREMAP_MAYMOVE);
	int fd;

	if (alias != MAP_FAILED)
		return alias; /* they are shared already */
	fd = memfd_create("fakeverbs", MFD_CLOEXEC);
	if (fd < 0)
		return MAP_FAILED;
	if (ftruncate(fd, (off_t)len) == 0)
		alias = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (alias != MAP_FAILED) {
		memcpy(alias, at, len);
		if (mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			fv_die("%zu bytes at %p cannot be pinned", len, (void *)at);
	}
	close(fd);
	return alias;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct fmr *m;
	uint32_t i;

	if (fv_fail(ENOMEM) || (errno = dead(pd->context)) != 0)
		return NULL;
	errno = EINVAL;
	if (len == 0 || ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return NULL;
	errno = EFAULT;
	if (!mapped(addr, len))
		return NULL;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	m->mem = addr;
	if (fv.pin && (uintptr_t)addr % page == 0 && len % page == 0)
		m->mem = alias_of(addr, len);
	if (m->mem == MAP_FAILED) {
		fprintf(stderr, "fakeverbs: %zu bytes at %p cannot be pinned: %s\n", len, addr,
			strerror(errno));
		goto err_free;
	}
	fv_lock();
	for (i = 1; i < 4096 && fv.mr[i] != NULL; i++)
		;
	if (i == 4096) {
		fv_unlock();
		errno = ENOMEM;
		goto err_free;
	}
	m->access = access;
	m->m = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = len, .handle = i };
	m->m.lkey = (i << 8) | (++fv.mr_gen & 0xff);
	m->m.rkey = m->m.lkey | 0x80000000u; /* another number, so that nobody takes one for the other */
	fv.mr[i] = m;
	((struct fpd *)(void *)pd)->refs++;
	fv_unlock();
	fv_count(K_MR, 1);
	return &m->m;
err_free:
	if (m->mem != addr && m->mem != MAP_FAILED)
		munmap(m->mem, len);
	free(m);
	return NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fmr *m = (struct fmr *)(void *)mr;
	bool fail = fv_fail(EIO);

	fv_lock();
	fv.mr[mr->handle] = NULL;
	((struct fpd *)(void *)mr->pd)->refs--;
	fv_unlock();
	if (m->mem != mr->addr)
		munmap(m->mem, mr->length);
	free(m);
	fv_count(K_MR, -1);
	return fail ? errno : 0;
}

/* ---- completion queues ---- */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct fchan *ch;

	if (fv_fail(EMFILE) || (errno = dead(c)) != 0)
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

	if (fv_fail(ENOMEM) || (errno = dead(c)) != 0)
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
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct fqp *q = (struct fqp *)(void *)qp;

	if (fv_fail(EIO))
		return errno;
	if (!(mask & IBV_QP_STATE) || a->qp_state != IBV_QPS_ERR)
		return EINVAL; /* all else is the connection manager's */
	fv_lock();
	fv_qp_error(q);
	qp->state = IBV_QPS_ERR;
	fv_unlock();
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct fqp *q = (struct fqp *)(void *)qp;
	struct fv_sdev *dev = fv.s->dev;
	uint32_t mtu;

	(void)mask;
	if (fv_fail(EIO))
		return errno;
	memset(a, 0, sizeof(*a));
	memset(init, 0, sizeof(*init));
	fv_lock();
	mtu = dev[q->s->dev].mtu;
	if (q->peer != NULL && dev[q->peer_dev].mtu < mtu)
		mtu = dev[q->peer_dev].mtu;
	a->qp_state = a->cur_qp_state = (enum ibv_qp_state)atomic_load(&q->state);
	a->path_mtu = mtu_of(mtu);
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

/* ---- asynchronous events ---- */
void fv_async(struct fctx *c, enum ibv_event_type type, struct fqp *q, struct fcq *cq)
{
	struct fasync *e = calloc(1, sizeof(*e));

	if (e == NULL)
		fv_die("out of memory");
	e->e.event_type = type;
	if (q != NULL)
		e->e.element.qp = &q->q;
	else if (cq != NULL)
		e->e.element.cq = &cq->c;
	else
		e->e.element.port_num = type == IBV_EVENT_DEVICE_FATAL ? 0 : 1;
	e->q = q;
	e->cq = cq;
	evq_push(&c->async, &e->n);
}

static _Atomic int *unacked_of(struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct fcq *)(void *)e->element.cq)->async_unacked;
	case IBV_EVENT_QP_ACCESS_ERR:
		return &((struct fqp *)(void *)e->element.qp)->async_unacked;
	default:
		return NULL;
	}
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *out)
{
	struct fasync *e;

	if (evq_any(&ctx_of(c)->async) && fv_fail(EIO))
		return -1;
	e = (void *)evq_pop(&ctx_of(c)->async);
	if (e == NULL)
		return -1;
	*out = e->e;
	free(e);
	if (unacked_of(out) != NULL)
		atomic_fetch_add(unacked_of(out), 1);
	fv_count(K_UNACKED, 1);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	if (unacked_of(e) != NULL)
		atomic_fetch_sub(unacked_of(e), 1);
	fv_count(K_UNACKED, -1);
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
	};

	return (size_t)status < sizeof(names) / sizeof(names[0]) && names[status] != NULL ? names[status]
											  : "unknown";
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return "CQ error";
	case IBV_EVENT_QP_ACCESS_ERR:
		return "local access violation work queue error";
	case IBV_EVENT_DEVICE_FATAL:
		return "local catastrophic error";
	case IBV_EVENT_PORT_ACTIVE:
		return "port active";
	case IBV_EVENT_PORT_ERR:
		return "port error";
	case IBV_EVENT_GID_CHANGE:
		return "GID table change";
	default:
		return "unknown";
	}
}
