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

static uint64_t later(uint64_t now, uint64_t one_in)
{
	return fv.seed != 0 && fv_random(one_in) == 0 ? now + fv_random(LATE) : now;
}

static void sooner(uint64_t *next, uint64_t at)
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

struct fmr *fv_mr(uint32_t key)
{
	struct fmr *m = fv.mr[(key >> 8) % 4096];

	return m != NULL && (m->m.lkey == key || m->m.rkey == key) ? m : NULL;
}

/* Where the device finds [addr, addr + len) of a region, NULL: not allowed. */
static uint8_t *memory(const struct fqp *q, uint32_t key, bool remote, uint64_t addr, uint32_t len,
		       int access)
{
	struct fmr *m = fv_mr(key);
	uint64_t base;

	if (m == NULL || (remote ? m->m.rkey : m->m.lkey) != key || m->m.pd != q->q.pd ||
	    (m->access & access) != access)
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

static void recv_failed(struct fqp *q, enum ibv_wc_status status, uint64_t wr_id, uint32_t upto)
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
static bool effects(struct fqp *q, uint64_t now, bool all)
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
			recv_failed(q, IBV_WC_WR_FLUSH_ERR, i->wc.wr_id, i->upto);
		item_pop(q);
	}
}

void fv_qp_error(struct fqp *q)
{
	if (atomic_load(&q->state) == IBV_QPS_ERR)
		return;
	atomic_store(&q->state, IBV_QPS_ERR);
	if (q->peer != NULL)
		effects(q, 0, true);
	atomic_store(&q->s->state, IBV_QPS_ERR);
	fv_drop_items(q);
	if (q->rx_active)
		q->rq_cur--; /* taken, but not complete */
	q->rx_active = false;
	q->flush_due = later(fv_now(), 2);
	fv_bell(fv.self);
	if (q->peer != NULL)
		fv_bell(q->peer->proc);
}

static bool flush(struct fqp *q, uint64_t now, uint64_t *next)
{
	bool any = false;

	if (now < q->flush_due) {
		sooner(next, q->flush_due);
		return false;
	}
	while (q->sq_una != atomic_load_explicit(&q->sq_head, memory_order_acquire)) {
		send_done(q, IBV_WC_WR_FLUSH_ERR);
		any = true;
	}
	q->sq_cur = q->sq_una;
	while (q->rq_cur != atomic_load_explicit(&q->rq_head, memory_order_acquire)) {
		struct frwqe *w = &q->rq[q->rq_cur++ % q->cap.max_recv_wr];

		recv_failed(q, IBV_WC_WR_FLUSH_ERR, w->wr_id, q->rq_cur);
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
		from = memory(q, w->sge[i].lkey, false, w->sge[i].addr + off, part, 0);
		if (from == NULL)
			return false;
		memcpy(to, from, part);
		to += part;
		n -= part;
		off = 0;
	}
	return true;
}

/* One packet into the ring; false: no room, or w->bad. */
static bool emit(struct fqp *q, struct fwqe *w)
{
	struct fv_sqp *s = q->s;
	uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&s->tail, memory_order_acquire); /* partner: responder() */
	uint32_t n = w->len - w->off < FV_PACKET ? w->len - w->off : FV_PACKET;
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
	atomic_store_explicit(&s->head, head + need, memory_order_release); /* partner: responder() */
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
	bool any = false, gone = false, path;
	uint32_t head = atomic_load_explicit(&q->sq_head, memory_order_acquire);

	if (q->sq_una == head) {
		q->stalled = 0;
		return false;
	}
	path = fv_path(q->s->dev, q->peer_dev);
	if (path && now >= q->ack_due) {
		any = acknowledged(q, &gone);
		if (any)
			q->ack_due = later(now, 4);
	} else if (path) {
		sooner(next, q->ack_due);
	}
	if (atomic_load(&q->state) == IBV_QPS_ERR)
		return true;
	if ((gone || !path) && q->sq_una != head) {
		uint64_t limit = (uint64_t)(4096.0 * (double)(1u << q->timeout) * (q->retry + 1) * fv.time);

		if (q->stalled == 0)
			q->stalled = now;
		if (now - q->stalled >= limit) {
			send_done(q, IBV_WC_RETRY_EXC_ERR);
			fv_qp_error(q);
			return true;
		}
		sooner(next, q->stalled + limit);
		return any;
	}
	q->stalled = 0;
	if (now < q->tx_due) {
		sooner(next, q->tx_due);
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
		q->tx_due = later(now, 8);
	return any;
}

/* ---- responder ---- */
static void refuse(struct fqp *q, uint32_t msn, enum ibv_wc_status theirs)
{
	atomic_store(&q->s->nak_msn, msn);
	atomic_store(&q->s->nak, theirs);
	if (theirs == IBV_WC_REM_ACCESS_ERR)
		fv_async(q->ctx, IBV_EVENT_QP_ACCESS_ERR, q, NULL);
	fv_qp_error(q);
}

static bool land(struct fqp *q, struct fitem *i)
{
	uint8_t *to = memory(q, i->rkey, true, i->addr, i->len, IBV_ACCESS_REMOTE_WRITE);

	if (to == NULL)
		return false;
	memcpy(to, i->data, i->len);
	i->landed = true;
	atomic_fetch_add(&fv.landed, 1);
	return true;
}

static bool settle(struct fqp *q, uint64_t now, uint64_t *next)
{
	bool any = false;

	for (struct fitem *i = q->items; i != NULL; i = i->next) {
		if (i->held)
			continue;
		if (i->due > now) {
			sooner(next, i->due);
		} else if (i->kind == ITEM_PIECE && !i->landed) {
			if (!land(q, i)) { /* deregistered meanwhile */
				refuse(q, i->msn, IBV_WC_REM_ACCESS_ERR);
				return true;
			}
			any = true;
		}
	}
	return effects(q, now, false) || any;
}

static struct fitem *item_add(struct fqp *q, int kind, const struct fv_packet *p, uint32_t bytes)
{
	struct fitem *i = calloc(1, sizeof(*i) + bytes);

	if (i == NULL)
		fv_die("out of memory");
	i->kind = kind;
	i->msn = p->msn;
	*q->items_end = i;
	q->items_end = &i->next;
	q->nitems++;
	return i;
}

static void add_pieces(struct fqp *q, const struct fv_packet *p, uint64_t now)
{
	const uint8_t *from = (const void *)(p + 1);
	uint32_t off = 0;

	while (off < p->bytes) {
		uint32_t n = p->bytes - off;
		struct fitem *i;

		if (fv.seed != 0 && n > 1 && fv_random(2) == 0)
			n = (uint32_t)fv_random(n - 1) + 1;
		i = item_add(q, ITEM_PIECE, p, n);
		i->due = later(now, 6);
		i->held = q->rx_hold;
		i->rkey = p->rkey;
		i->addr = p->raddr + off;
		i->len = n;
		memcpy(i->data, from + off, n);
		off += n;
	}
}

static bool scatter(struct fqp *q, const struct frwqe *w, uint32_t off, const uint8_t *from, uint32_t n)
{
	for (int i = 0; i < w->nsge && n > 0; i++) {
		uint32_t len = w->sge[i].length, part;
		uint8_t *to;

		if (off >= len) {
			off -= len;
			continue;
		}
		part = len - off < n ? len - off : n;
		to = memory(q, w->sge[i].lkey, false, w->sge[i].addr + off, part, IBV_ACCESS_LOCAL_WRITE);
		if (to == NULL)
			return false;
		memcpy(to, from, part);
		from += part;
		n -= part;
		off = 0;
	}
	return true;
}

/* A receive for the message; false: none posted, the sender waits. */
static bool take_receive(struct fqp *q, const struct fv_packet *p, uint64_t now, uint64_t *next)
{
	uint32_t retries = atomic_load(&q->peer->rnr_retry);

	if (q->rq_cur != atomic_load_explicit(&q->rq_head, memory_order_acquire)) {
		q->rq_cur++;
		q->rnr = false;
		return true;
	}
	if (!q->rnr) {
		q->rnr = true;
		q->rnr_since = now;
		atomic_fetch_add(&fv.rnr, 1);
	}
	if (retries < 7) {
		uint64_t until = q->rnr_since + (uint64_t)(10e6 * (retries + 1) * fv.time);

		if (now >= until)
			refuse(q, p->msn, IBV_WC_RNR_RETRY_EXC_ERR);
		else
			sooner(next, until);
	}
	return false;
}

static void complete_message(struct fqp *q, const struct fv_packet *p, uint64_t now, bool receives)
{
	struct fitem *recv = NULL;
	bool ack_first = fv_random(2) == 0;

	if (ack_first)
		item_add(q, ITEM_ACK, p, 0);
	if (receives) {
		struct frwqe *w = &q->rq[(q->rq_cur - 1) % q->cap.max_recv_wr];

		recv = item_add(q, ITEM_RECV, p, 0);
		recv->due = later(now, 6);
		recv->upto = q->rq_cur;
		recv->solicited = p->solicited;
		recv->wc = (struct ibv_wc){ .wr_id = w->wr_id,
					    .opcode = p->op == OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM
									    : IBV_WC_RECV,
					    .byte_len = p->msg_len,
					    .qp_num = q->q.qp_num,
					    .src_qp = q->peer_num };
		if (p->op == OP_WRITE_IMM || p->op == OP_SEND_IMM) {
			recv->wc.imm_data = p->imm;
			recv->wc.wc_flags = IBV_WC_WITH_IMM;
		}
	}
	if (!ack_first)
		item_add(q, ITEM_ACK, p, 0)->due = later(now, 8);
}

/* false: it has to wait, or the queue pair has failed */
static bool arrive(struct fqp *q, const struct fv_packet *p, uint64_t now, uint64_t *next)
{
	if (p->op == OP_SEND || p->op == OP_SEND_IMM) {
		struct frwqe *w;
		uint64_t room = 0;
		bool fits;

		if (p->first && !take_receive(q, p, now, next))
			return false;
		q->rx_off = p->first ? 0 : q->rx_off;
		q->rx_active = true;
		w = &q->rq[(q->rq_cur - 1) % q->cap.max_recv_wr];
		for (int i = 0; i < w->nsge; i++)
			room += w->sge[i].length;
		fits = room >= p->msg_len;
		if (!fits || !scatter(q, w, q->rx_off, (const void *)(p + 1), p->bytes)) {
			q->rx_active = false;
			effects(q, now, true);
			recv_failed(q, fits ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR, w->wr_id, q->rq_cur);
			refuse(q, p->msn, fits ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
			return false;
		}
		q->rx_off += p->bytes;
		if (p->last) {
			q->rx_active = false;
			atomic_fetch_add(&fv.sends, 1);
			complete_message(q, p, now, true);
		}
		return true;
	}
	if (p->bytes > 0 && memory(q, p->rkey, true, p->raddr, p->bytes, IBV_ACCESS_REMOTE_WRITE) == NULL) {
		refuse(q, p->msn, IBV_WC_REM_ACCESS_ERR);
		return false;
	}
	if (p->last && p->op == OP_WRITE_IMM && !take_receive(q, p, now, next))
		return false;
	if (p->first) {
		q->rx_hold = fv.hold > 0 && p->msg_len > 0;
		fv.hold -= q->rx_hold;
	}
	add_pieces(q, p, now);
	if (p->last) {
		atomic_fetch_add(&fv.writes, 1);
		complete_message(q, p, now, p->op == OP_WRITE_IMM);
	}
	return true;
}

static bool responder(struct fqp *q, uint64_t now, uint64_t *next)
{
	struct fv_sqp *s = q->peer;
	bool any = settle(q, now, next);

	while (atomic_load(&q->state) != IBV_QPS_ERR && q->nitems < 200 && fv_path(q->s->dev, q->peer_dev)) {
		uint64_t tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
		struct fv_packet *p = (void *)(s->ring + tail % FV_RING);

		if (atomic_load(&s->num) != q->peer_num)
			break;
		if (atomic_load_explicit(&s->head, memory_order_acquire) == tail) /* partner: emit() */
			break;
		if (p->op != OP_PAD && !arrive(q, p, now, next))
			break;
		atomic_store_explicit(&s->tail, tail + p->total, memory_order_release); /* partner: emit() */
		fv_bell(s->proc); /* there is room again */
		any = true;
	}
	return settle(q, now, next) || any;
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
			any |= responder(q, now, next);
		if (q->peer != NULL && atomic_load(&q->state) == IBV_QPS_RTS)
			any |= requester(q, now, next);
		if (atomic_load(&q->state) == IBV_QPS_ERR)
			any |= flush(q, now, next);
	}
	return any;
}

int fakeverbs_held(void)
{
	uint32_t last = 0;
	int n = 0;

	fv_lock();
	for (struct fqp *q = fv.qps; q != NULL; q = q->next) {
		last = 0;
		for (struct fitem *i = q->items; i != NULL; i = i->next)
			if (i->held && !i->landed && i->msn != last) {
				last = i->msn;
				n++;
			}
	}
	fv_unlock();
	return n;
}

int fakeverbs_release(void)
{
	int n = 0;

	fv_lock();
	fv.hold = 0;
	for (struct fqp *q = fv.qps; q != NULL; q = q->next) {
		q->rx_hold = false;
		for (struct fitem *i = q->items; i != NULL; i = i->next) {
			if (!i->held)
				continue;
			i->held = false;
			i->due = 0;
			n += land(q, i);
		}
	}
	fv_unlock();
	fv_bell(fv.self);
	return n;
}
