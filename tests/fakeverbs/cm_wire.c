/* SPDX-License-Identifier: Apache-2.0 */
/* The NIC's half of connections: messages that arrive, peers that have gone, times that have come. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

#define TIMEWAIT \
	20000000u /* ns until an id that was disconnected is told that its time of waiting is over \
		   */
#define LOOK 100000000u /* ns between two looks whether the peers' processes live */
enum { REJ_STALE = 10, REJ_NO_SERVICE = 8 };

static void fail_qp(struct fid *f)
{
	if (f->id.qp != NULL)
		fv_qp_error((struct fqp *)(void *)f->id.qp);
}

static struct fid *find(uint32_t num)
{
	struct fid *f;

	for (f = fv.ids; f != NULL && f->num != num; f = f->next)
		;
	return f;
}

static void set_peer(struct fid *f, const struct fv_msg *m)
{
	f->peer_proc = m->from_proc;
	f->peer_gen = m->from_gen;
	f->peer_id = m->from;
	f->peer_dev = m->dev;
	f->peer_slot = m->slot;
	f->peer_num = m->num;
}

/* The answer to a message for an id that is not there, or not in that state. */
static void turn_down(const struct fv_msg *m, int status)
{
	struct fid f = { .num = 0 };
	struct fctx ctx = { .dev = fv.dev };

	for (int i = 0; i < fv.ndev; i++)
		if (fv_path(fv.dev[i].index, m->dev))
			ctx.dev = &fv.dev[i];
	f.ctx = &ctx;
	set_peer(&f, m);
	fv_answer(&f, m->type == MSG_DREQ ? MSG_DREP : MSG_REJ, status, NULL, 0);
}

static int requests(const struct fid *l)
{
	int n = 0;

	for (struct fid *f = fv.ids; f != NULL; f = f->next)
		n += f->state == ID_REQUEST && f->id.channel == l->id.channel;
	return n;
}

static void request(struct fid *l, const struct fv_msg *m)
{
	struct fid *f;

	if (l == NULL || l->state != ID_LISTEN || requests(l) >= l->backlog) {
		turn_down(m, REJ_NO_SERVICE);
		return;
	}
	f = fv_new_id(l->id.channel, l->id.context, l->id.ps);
	fv_use_device(f, l->ctx->dev);
	memcpy(f->src, m->dst, 16);
	memcpy(f->dst, m->src, 16);
	f->sport = m->dport;
	f->dport = m->sport;
	f->retry = m->retry;
	f->rnr = m->rnr;
	f->mtu = m->mtu;
	f->state = ID_REQUEST;
	set_peer(f, m);
	fv_tell(l, f, RDMA_CM_EVENT_CONNECT_REQUEST, 0, m->data, m->len, CM_REQ_DATA);
}

static void disconnected(struct fid *f, uint64_t now)
{
	f->state = ID_OFF;
	f->due = FV_NEVER;
	f->timewait = now + TIMEWAIT;
	fv_tell(f, f, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0, 0);
}

static void refused(struct fid *f, enum rdma_cm_event_type type, int status, const struct fv_msg *m)
{
	f->state = ID_OFF;
	f->due = FV_NEVER;
	fail_qp(f);
	fv_tell(f, f, type, status, m != NULL ? m->data : NULL, m != NULL ? m->len : 0, CM_REJ_DATA);
}

static void message(const struct fv_msg *m, uint64_t now)
{
	struct fid *f = find(m->to);

	switch (m->type) {
	case MSG_REQ:
		request(f, m);
		return;
	case MSG_REP:
		if (f == NULL || f->state != ID_CONNECT) {
			turn_down(m, REJ_STALE);
			return;
		}
		set_peer(f, m);
		f->state = ID_UP;
		f->due = FV_NEVER;
		if (f->id.qp == NULL) { /* the program's own: it says when it is ready */
			f->state = ID_RESPONSE;
			fv_tell(f, f, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, m->data, m->len, CM_REP_DATA);
			return;
		}
		fv_cm_connected(f);
		fv_answer(f, MSG_RTU, 0, NULL, 0);
		fv_tell(f, f, RDMA_CM_EVENT_ESTABLISHED, 0, m->data, m->len, CM_REP_DATA);
		return;
	case MSG_RTU:
		if (f != NULL && f->state == ID_ACCEPTED) {
			f->state = ID_UP;
			fv_tell(f, f, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0, 0);
		}
		return;
	case MSG_REJ:
		if (f != NULL && (f->state == ID_CONNECT || f->state == ID_ACCEPTED))
			refused(f, RDMA_CM_EVENT_REJECTED, m->status, m);
		return;
	case MSG_DREQ:
		turn_down(m, 0);
		if (f != NULL && (f->state == ID_RESPONSE || f->state == ID_UP || f->state == ID_ACCEPTED ||
				  f->state == ID_DISC))
			disconnected(f, now);
		return;
	case MSG_DREP:
		if (f != NULL && f->state == ID_DISC)
			disconnected(f, now);
		return;
	default:
		return;
	}
}

static bool times(struct fid *f, uint64_t now, uint64_t *next)
{
	uint64_t first = f->due < f->timewait ? f->due : f->timewait;
	bool waits = f->state == ID_CONNECT || f->state == ID_RESPONSE || f->state == ID_ACCEPTED ||
		     f->state == ID_UP || f->state == ID_DISC;

	if (first > now && first < *next)
		*next = first;
	if (waits && f->peer_proc < FV_PROCS &&
	    (fv.look ? !fv_alive(f->peer_proc, f->peer_gen)
		     : atomic_load(&fv.s->proc[f->peer_proc].gen) != f->peer_gen)) {
		if (f->state == ID_CONNECT || f->state == ID_RESPONSE || f->state == ID_ACCEPTED)
			refused(f, RDMA_CM_EVENT_REJECTED, REJ_STALE, NULL);
		else
			disconnected(f, now); /* its kernel has said good-bye for it */
		return true;
	}
	if (f->timewait <= now) {
		f->timewait = FV_NEVER;
		fv_tell(f, f, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0, 0);
		return true;
	}
	if (f->due > now)
		return false;
	/* A peer that lives may take its time. */
	if (f->state == ID_CONNECT && f->delivered && fv_path(f->ctx->dev->index, f->peer_dev)) {
		f->due = now + (uint64_t)(FV_UNREACHABLE * fv.time);
		return true;
	}
	if (f->state == ID_CONNECT && f->due == 0)
		refused(f, RDMA_CM_EVENT_REJECTED, REJ_NO_SERVICE, NULL);
	else if (f->state == ID_CONNECT)
		refused(f, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
	else if (f->state == ID_DISC)
		disconnected(f, now);
	f->due = FV_NEVER;
	return true;
}

bool fv_cm_step(uint64_t now, uint64_t *next)
{
	struct fv_proc *me = &fv.s->proc[fv.self];
	bool any = false;

	while (atomic_load(&me->mail_head) != me->mail_tail) {
		struct fv_msg m;

		fv_slock();
		m = me->mail[me->mail_tail % FV_MAIL];
		me->mail_tail++;
		fv_sunlock();
		message(&m, now);
		any = true;
	}
	fv.look = now - fv.looked >= LOOK;
	if (fv.look)
		fv.looked = now;
	for (struct fid *f = fv.ids; f != NULL; f = f->next)
		any |= times(f, now, next);
	return any;
}

void fv_cm_removal(struct fdev *d)
{
	for (struct fid *f = fv.ids; f != NULL; f = f->next)
		if (f->ctx != NULL && f->ctx->dev == d) {
			fail_qp(f);
			fv_tell(f, f, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0, 0);
		}
}
