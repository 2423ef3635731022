/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of the NIC: takes packets out of the peer's ring, lands their bytes in this process's
 * memory. Promises: nic.c.
 */
#include <stdlib.h>
#include <string.h>
#include "internal.h"

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
	uint8_t *to = fv_memory(q, i->rkey, true, i->addr, i->len, IBV_ACCESS_REMOTE_WRITE);

	if (to == NULL)
		return false;
	for (struct fitem *e = q->items; e != i; e = e->next)
		if (e->kind == ITEM_PIECE && !e->landed) {
			atomic_fetch_add(&fv.disorder, 1);
			break;
		}
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
			fv_sooner(next, i->due);
		} else if (i->kind == ITEM_PIECE && !i->landed) {
			if (!land(q, i)) { /* deregistered meanwhile */
				refuse(q, i->msn, IBV_WC_REM_ACCESS_ERR);
				return true;
			}
			any = true;
		}
	}
	return fv_effects(q, now, false) || any;
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
		i->due = fv_later(now, 6);
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
		to = fv_memory(q, w->sge[i].lkey, false, w->sge[i].addr + off, part, IBV_ACCESS_LOCAL_WRITE);
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
			fv_sooner(next, until);
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
		recv->due = fv_later(now, 6);
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
		item_add(q, ITEM_ACK, p, 0)->due = fv_later(now, 8);
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
			fv_effects(q, now, true);
			fv_recv_failed(q, fits ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR, w->wr_id,
				       q->rq_cur);
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
	if (p->bytes > 0 &&
	    fv_memory(q, p->rkey, true, p->raddr, p->bytes, IBV_ACCESS_REMOTE_WRITE) == NULL) {
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

bool fv_responder(struct fqp *q, uint64_t now, uint64_t *next)
{
	struct fv_sqp *s = q->peer;
	bool any = settle(q, now, next);

	while (atomic_load(&q->state) != IBV_QPS_ERR && q->nitems < FV_ITEMS &&
	       fv_path(q->s->dev, q->peer_dev)) {
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
