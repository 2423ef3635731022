/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices: news that every node must hear, flooded over both links. A node passes each on once, to the link
 * that it did not come by, and tells its user once; (origin, number) says which is which. Numbers are
 * remembered 64 back, since a link may deliver a later notice first.
 */
#include "link/chan_internal.h"

static bool notice_is_new(struct chan_net *net, const struct chan_notice *n)
{
	struct notice_seen *s = &net->seen[n->origin];
	if (num_before(s->top, n->number)) {
		uint32_t by = n->number - s->top;
		s->bits = by < 64 ? s->bits << by : 0;
		s->top = n->number;
	}
	uint32_t back = s->top - n->number;
	if (back >= 64 || (s->bits >> back & 1))
		return false;
	s->bits |= 1ull << back;
	return true;
}

/* Keeps it until both links have taken it. With 64 waiting the oldest must go; its twin runs the other way.
 */
static void notice_spread(struct chan_net *net, struct tick *t, const struct chan_notice *n, unsigned sides)
{
	for (int i = 0; i < LINK_SIDES; i++)
		if (!net->side[i].link || net->side[i].dead)
			sides &= ~(1u << i);
	struct notice_rec *r = &net->notice[net->notice_next++ % CHAN_NOTICES];
	if (r->owed)
		log_warn(&net->cfg.ctx->log,
			 "notice %u of rank %d could not be passed on: a link takes nothing", r->n.number,
			 rank_at(net, r->n.origin));
	*r = (struct notice_rec){ .n = *n, .owed = (uint8_t)sides };
	net->notices_owed |= sides;
	if (net->cfg.notice)
		net->cfg.notice(net->cfg.user, t, n);
}

void notice_flush(struct chan_net *net, struct tick *t, int side)
{
	if (!(net->notices_owed >> side & 1))
		return;
	/* oldest first */
	for (uint32_t k = 0; k < CHAN_NOTICES; k++) {
		struct notice_rec *r = &net->notice[(net->notice_next + k) % CHAN_NOTICES];
		if (!(r->owed >> side & 1))
			continue;
		struct link_put p = { .frame = { .label = r->n.origin,
						 .kind = CHAN_NOTICE,
						 .flags = (uint8_t)r->n.kind,
						 .msg = r->n.number,
						 .fno = r->n.code,
						 .off = r->n.arg,
						 .tag = r->n.subject } };
		net->side[side].full = link_put(net->side[side].link, t, &p) == LINK_PUT_NO;
		if (net->side[side].full)
			return;
		r->owed &= (uint8_t) ~(1u << side);
	}
	net->notices_owed &= ~(1u << side);
}

void notice_deliver(struct chan_net *net, struct tick *t, int side, const struct link_frame *f)
{
	struct chan_notice n = { .kind = (enum notice_kind)f->flags,
				 .origin = f->label,
				 .subject = (uint16_t)f->tag,
				 .number = f->msg,
				 .code = f->fno,
				 .arg = f->off };
	if (n.origin >= net->cfg.n || n.subject >= net->cfg.n || f->tag != n.subject ||
	    (n.kind != NOTICE_DEAD && n.kind != NOTICE_ABORT) || n.code == SIRCL_SUCCESS ||
	    n.code >= SIRCL_IN_PROGRESS) {
		net->protocol_errors++;
		return;
	}
	if (notice_is_new(net, &n))
		notice_spread(net, t, &n, 1u << !side);
}

void notice_side_dead(struct chan_net *net, int side)
{
	for (uint32_t k = 0; k < CHAN_NOTICES; k++)
		net->notice[k].owed &= (uint8_t) ~(1u << side);
	net->notices_owed &= ~(1u << side);
}

void chan_net_notify(struct chan_net *net, struct tick *t, enum notice_kind kind, uint16_t subject,
		     uint32_t code, uint64_t arg)
{
	struct chan_notice n = { .kind = kind,
				 .origin = (uint16_t)net->cfg.self,
				 .subject = subject,
				 .number = ++net->notice_number,
				 .code = code,
				 .arg = arg };
	(void)notice_is_new(net, &n);
	notice_spread(net, t, &n, 3);
	for (int i = 0; i < LINK_SIDES; i++)
		if (net->side[i].link && !net->side[i].dead)
			notice_flush(net, t, i);
}
