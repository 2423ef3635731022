/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NIC of a process: what moves bytes. Requester: reads posted sends into the ring, completes them as the
 * peer acknowledges. Responder: takes packets out of the peer's ring, lands them in this process's memory.
 *
 * The promises that it keeps, and no more: messages of a queue pair take effect in order, so a receive
 * completes after all bytes before it have landed; the bytes of WRITEs land in pieces in any order until
 * then; an acknowledgement and the receiver's completion are unordered; nothing lands once the responder's
 * queue pair is in the error state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

#define LATE 200000u /* ns: what is late is late by up to this much */

uint64_t fv_later(uint64_t now, uint64_t one_in)
{
	return fv.seed != 0 && fv_random(one_in) == 0 ? now + fv_random(LATE) : now;
}

void fv_sooner(uint64_t *next, uint64_t at)
{
	if (at < *next)
		*next = at;
}

bool fv_path(uint32_t a, uint32_t b)
{
	struct fv_sdev *d = fv.s->dev;

	return !atomic_load(&d[a].down) && !atomic_load(&d[b].down) && !atomic_load(&d[a].fatal) &&
	       !atomic_load(&d[b].fatal);
}

/* Where the device finds [addr, addr + len) of a region, NULL: not allowed. */
uint8_t *fv_memory(const struct fqp *q, uint32_t key, bool remote, uint64_t addr, uint32_t len, int access)
{
	struct fmr *m = fv.mr[(key & ~FV_REMOTE) >> 8 & 4095];
	uint64_t base;

	if (m == NULL || (remote ? m->key | FV_REMOTE : m->key) != key || m->m.pd != q->q.pd ||
	    (m->access & access) != access || (remote && ((int)atomic_load(&q->access) & access) != access))
		return NULL;
	base = (uintptr_t)m->m.addr;
	if (addr < base || len > m->m.length || addr - base > m->m.length - len)
		return NULL;
	return m->mem + (addr - base);
}

/* ---- completions ---- */
void cq_push(struct fcq *cq, const struct ibv_wc *wc, struct fqp *q, uint32_t upto, bool send, bool solicited)
{
	bool fire = false, over = false;

	pthread_mutex_lock(&cq->mu);
	if (!cq->dead && cq->count == (uint32_t)cq->c.cqe) {
		cq->dead = over = true;
	} else if (!cq->dead) {
		cq->e[(cq->head + cq->count++) % (uint32_t)cq->c.cqe] =
			(struct fcqe){ .wc = *wc, .q = q, .upto = upto, .send = send };
		fire = cq->armed == 2 || (cq->armed == 1 && (solicited || wc->status != IBV_WC_SUCCESS));
		if (fire)
			cq->armed = 0;
	}
	if (fire && cq->c.channel != NULL) {
		struct fcqev *e = calloc(1, sizeof(*e));

		e->cq = cq;
		evq_push(&((struct fchan *)(void *)cq->c.channel)->q, &e->n);
	}
	pthread_mutex_unlock(&cq->mu);
	if (over) {
		fprintf(stderr, "fakeverbs: a completion queue of %d entries overflows\n", cq->c.cqe);
		atomic_fetch_add(&fv.cq_overflows, 1);
		fv_async((struct fctx *)(void *)cq->c.context, IBV_EVENT_CQ_ERR, NULL, cq);
	}
}

/* Of a failed work request only wr_id, status, qp_num and vendor_err mean anything. */
static struct ibv_wc failed(uint64_t wr_id, enum ibv_wc_status status, uint32_t num)
{
	return (struct ibv_wc){ .wr_id = wr_id,
				.status = status,
				.opcode = (enum ibv_wc_opcode)0x5a,
				.vendor_err = 0xf4,
				.byte_len = 0xdeadbeef,
				.qp_num = num };
}

static void send_done(struct fqp *q, enum ibv_wc_status status)
{
	struct fwqe *w = &q->sq[q->sq_una++ % q->cap.max_send_wr];
	struct ibv_wc wc = failed(w->wr_id, status, q->q.qp_num);

	if (status == IBV_WC_SUCCESS) {
		wc.opcode =
			w->opcode == OP_WRITE || w->opcode == OP_WRITE_IMM ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
		wc.vendor_err = 0;
	}
	if (w->signalled || status != IBV_WC_SUCCESS)
		cq_push((struct fcq *)(void *)q->q.send_cq, &wc, q, q->sq_una, true, false);
}

void fv_recv_failed(struct fqp *q, enum ibv_wc_status status, uint64_t wr_id, uint32_t upto)
{
	struct ibv_wc wc = failed(wr_id, status, q->q.qp_num);

	cq_push((struct fcq *)(void *)q->q.recv_cq, &wc, q, upto, false, true);
}

/* ---- the end of a queue pair ---- */
static void item_pop(struct fqp *q)
{
	struct fitem *i = q->items;

	q->items = i->next;
	if (q->items == NULL)
		q->items_end = &q->items;
	q->nitems--;
	free(i);
}

/* What took effect, in order, up to the first that has not. */
bool fv_effects(struct fqp *q, uint64_t now, bool all)
{
	bool any = false;
	struct fitem *i;

	while ((i = q->items) != NULL && (all || i->due <= now)) {
		if (i->kind == ITEM_PIECE && !i->landed)
			break;
		if (i->kind == ITEM_RECV)
			cq_push((struct fcq *)(void *)q->q.recv_cq, &i->wc, q, i->upto, false, i->solicited);
		if (i->kind == ITEM_ACK) {
			atomic_store(&q->s->ack, i->msn);
			fv_bell(q->peer->proc);
		}
		item_pop(q);
		any = true;
	}
	return any;
}

void fv_drop_items(struct fqp *q)
{
	while (q->items != NULL) {
		struct fitem *i = q->items;

		if (i->kind == ITEM_PIECE && !i->landed)
			atomic_fetch_add(&fv.dropped, 1);
		if (i->kind == ITEM_RECV && atomic_load(&q->state) == IBV_QPS_ERR)
			fv_recv_failed(q, IBV_WC_WR_FLUSH_ERR, i->wc.wr_id, i->upto);
		item_pop(q);
	}
}

void fv_qp_error(struct fqp *q)
{
	if (atomic_load(&q->state) == IBV_QPS_ERR)
		return;
	atomic_store(&q->state, IBV_QPS_ERR);
	if (q->peer != NULL)
		fv_effects(q, 0, true);
	atomic_store(&q->s->state, IBV_QPS_ERR);
	fv_drop_items(q);
	if (q->rx_active)
		q->rq_cur--; /* taken, but not complete */
	q->rx_active = false;
	q->flush_due = fv_later(fv_now(), 2);
	fv_bell(fv.self);
	if (q->peer != NULL)
		fv_bell(q->peer->proc);
}

static bool flush(struct fqp *q, uint64_t now, uint64_t *next)
{
	bool any = false;

	if (now < q->flush_due) {
		fv_sooner(next, q->flush_due);
		return false;
	}
	while (q->sq_una != atomic_load_explicit(&q->sq_head, memory_order_acquire)) {
		send_done(q, IBV_WC_WR_FLUSH_ERR);
		any = true;
	}
	q->sq_cur = q->sq_una;
	while (q->rq_cur != atomic_load_explicit(&q->rq_head, memory_order_acquire)) {
		struct frwqe *w = &q->rq[q->rq_cur++ % q->cap.max_recv_wr];

		fv_recv_failed(q, IBV_WC_WR_FLUSH_ERR, w->wr_id, q->rq_cur);
		any = true;
	}
	return any;
}

/* ---- requester ---- */
static bool gather(struct fqp *q, struct fwqe *w, uint32_t off, uint32_t n, uint8_t *to)
{
	if (w->is_inline) {
		memcpy(to, w->data + off, n);
		return true;
	}
	for (int i = 0; i < w->nsge && n > 0; i++) {
		uint32_t len = w->sge[i].length, part;
		uint8_t *from;

		if (off >= len) {
			off -= len;
			continue;
		}
		part = len - off < n ? len - off : n;
		from = fv_memory(q, w->sge[i].lkey, false, w->sge[i].addr + off, part, 0);
		if (from == NULL)
			return false;
		memcpy(to, from, part);
		to += part;
		n -= part;
		off = 0;
	}
	return true;
}

static uint32_t packet_of(const struct fqp *q, const struct fwqe *w)
{
	return w->len - w->off < q->path_mtu ? w->len - w->off : q->path_mtu;
}

/* What both ports take. A larger packet is lost, however often it is sent. */
static uint32_t largest_packet(const struct fqp *q)
{
	const struct fv_sdev *d[2] = { &fv.s->dev[q->s->dev], &fv.s->dev[q->peer_dev] };
	uint32_t n = FV_PACKET;

	for (int i = 0; i < 4; i++) {
		uint32_t mtu = fv_port_mtu(d[i / 2], i % 2);

		if (mtu < n)
			n = mtu;
	}
	return n;
}

/* One packet into the ring; false: no room, or w->bad. */
static bool emit(struct fqp *q, struct fwqe *w)
{
	struct fv_sqp *s = q->s;
	uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&s->tail, memory_order_acquire); /* partner: fv_responder() */
	uint32_t n = packet_of(q, w);
	uint32_t need = (uint32_t)sizeof(struct fv_packet) + ((n + 7) & ~7u), left = FV_RING - head % FV_RING;
	struct fv_packet *p;

	if (FV_RING - (head - tail) < need + (left < need ? left : 0))
		return false;
	if (left < need) {
		p = (void *)(s->ring + head % FV_RING);
		p->total = left;
		p->op = OP_PAD;
		head += left;
	}
	p = (void *)(s->ring + head % FV_RING);
	if (!gather(q, w, w->off, n, (uint8_t *)(p + 1))) {
		w->bad = IBV_WC_LOC_PROT_ERR;
		return false;
	}
	*p = (struct fv_packet){ .total = need,
				 .op = (uint8_t)w->opcode,
				 .first = w->off == 0,
				 .last = w->off + n == w->len,
				 .solicited = w->solicited,
				 .msn = w->msn,
				 .msg_len = w->len,
				 .bytes = n,
				 .imm = w->imm,
				 .rkey = w->rkey,
				 .raddr = w->raddr + w->off };
	w->off += n;
	atomic_store_explicit(&s->head, head + need, memory_order_release); /* partner: fv_responder() */
	if (p->last)
		q->sq_cur++;
	return true;
}

static bool acknowledged(struct fqp *q, bool *gone)
{
	struct fv_sqp *p = q->peer;
	uint32_t ack = atomic_load(&p->ack), nak = atomic_load(&p->nak), at = atomic_load(&p->nak_msn);
	bool any = false;

	*gone = atomic_load(&p->state) == IBV_QPS_ERR || atomic_load(&p->released) != 0;
	if (atomic_load(&p->num) != q->peer_num) { /* someone else's by now */
		*gone = true;
		return false;
	}
	while (q->sq_una != q->sq_cur) {
		struct fwqe *w = &q->sq[q->sq_una % q->cap.max_send_wr];

		if ((int32_t)(ack - w->msn) >= 0 || (nak != 0 && (int32_t)(at - w->msn) > 0)) {
			send_done(q, IBV_WC_SUCCESS);
			any = true;
			continue;
		}
		break;
	}
	if (nak != 0 && q->sq_una != atomic_load(&q->sq_head) &&
	    q->sq[q->sq_una % q->cap.max_send_wr].msn == at) {
		send_done(q, (enum ibv_wc_status)nak);
		fv_qp_error(q);
		any = true;
	}
	return any;
}

static bool requester(struct fqp *q, uint64_t now, uint64_t *next)
{
	bool any = false, gone = false, path, lost;
	uint32_t head = atomic_load_explicit(&q->sq_head, memory_order_acquire);

	if (q->sq_una == head) {
		q->stalled = 0;
		return false;
	}
	path = fv_path(q->s->dev, q->peer_dev);
	if (path && now >= q->ack_due) {
		any = acknowledged(q, &gone);
		if (any)
			q->ack_due = fv_later(now, 4);
	} else if (path) {
		fv_sooner(next, q->ack_due);
	}
	if (atomic_load(&q->state) == IBV_QPS_ERR)
		return true;
	lost = q->sq_cur != head && packet_of(q, &q->sq[q->sq_cur % q->cap.max_send_wr]) > largest_packet(q);
	if ((gone || !path || lost) && q->sq_una != head) {
		uint64_t limit = (uint64_t)(4096.0 * (double)(1u << q->timeout) * (q->retry + 1) * fv.time);

		if (q->stalled == 0)
			q->stalled = now;
		if (now - q->stalled >= limit) {
			send_done(q, IBV_WC_RETRY_EXC_ERR);
			fv_qp_error(q);
			return true;
		}
		fv_sooner(next, q->stalled + limit);
		return any;
	}
	q->stalled = 0;
	if (now < q->tx_due) {
		fv_sooner(next, q->tx_due);
		return any;
	}
	while (q->sq_cur != head) {
		struct fwqe *w = &q->sq[q->sq_cur % q->cap.max_send_wr];

		if (w->off == 0 && w->msn == 0)
			w->msn = ++q->tx_msn;
		if (w->bad == IBV_WC_SUCCESS && emit(q, w)) {
			any = true;
			fv_bell(q->peer->proc);
			continue;
		}
		if (w->bad != IBV_WC_SUCCESS && q->sq_una == q->sq_cur) {
			send_done(q, w->bad);
			fv_qp_error(q);
			any = true;
		}
		break;
	}
	if (any)
		q->tx_due = fv_later(now, 8);
	return any;
}

static bool device_events(void)
{
	bool any = false;

	for (struct fctx *c = fv.ctxs; c != NULL; c = c->next) {
		struct fv_sdev *s = c->dev->s;

		for (; c->seen != atomic_load(&s->nev); c->seen++) {
			enum ibv_event_type type = atomic_load(&s->ev[c->seen % 64]);

			any = true;
			fv_async(c, type, NULL, NULL);
			if (type != IBV_EVENT_DEVICE_FATAL)
				continue;
			for (struct fqp *q = fv.qps; q != NULL; q = q->next)
				if (q->ctx == c)
					fv_qp_error(q);
			if (fv.cm_ctx[c->dev - fv.dev] == c)
				fv_cm_removal(c->dev);
		}
	}
	return any;
}

bool fv_step(uint64_t now, uint64_t *next)
{
	bool any = device_events();

	any |= fv_cm_step(now, next);
	for (struct fqp *q = fv.qps; q != NULL; q = q->next) {
		uint32_t state = atomic_load(&q->state);

		if (q->peer != NULL && (state == IBV_QPS_RTR || state == IBV_QPS_RTS))
			any |= fv_responder(q, now, next);
		if (q->peer != NULL && atomic_load(&q->state) == IBV_QPS_RTS)
			any |= requester(q, now, next);
		if (atomic_load(&q->state) == IBV_QPS_ERR)
			any |= flush(q, now, next);
	}
	return any;
}
