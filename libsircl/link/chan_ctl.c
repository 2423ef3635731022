/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control frames: what each half of a direction owes to the other, sent when the link has room, and what it
 * hears. Nothing here depends on the order of arrival: an answer to a label that has been given back is not
 * taken for its successor's (labels come round after 64 uses of the index), FIN may come before OPEN, GRANT
 * and STOP before ACCEPT, a credit after a higher one.
 */
#include <string.h>
#include "link/chan_internal.h"

void hop_owe(struct chan_net *net, struct hop *h, unsigned owed)
{
	struct side *s = &net->side[h->side];
	if (s->dead)
		return;
	h->owed |= (uint8_t)owed;
	if (h->listed)
		return;
	h->listed = true;
	h->next = NULL;
	*s->ctl_end = h;
	s->ctl_end = &h->next;
}

bool label_take(struct chan_net *net, struct tx *tx, int side)
{
	struct side *s = &net->side[side];
	if (s->free_count == 0)
		return false;
	tx->label = s->free_label[s->free_head++ % CHAN_LABELS];
	s->free_count--;
	s->tx[tx->label % CHAN_LABELS] = tx;
	return true;
}

static void label_give(struct side *s, struct tx *tx)
{
	s->tx[tx->label % CHAN_LABELS] = NULL;
	s->free_label[(s->free_head + s->free_count++) % CHAN_LABELS] = (uint16_t)(tx->label + CHAN_LABELS);
}

static void reason_pack(struct link_frame *f, const struct reason *r)
{
	f->msg = r->why;
	f->off = r->detail;
	f->tag = r->at | (uint64_t)r->to << 16;
}

static struct reason reason_unpack(const struct link_frame *f)
{
	return (struct reason){
		.why = f->msg > WHY_NONE && f->msg < WHY_END ? (enum chan_why)f->msg : WHY_PROTOCOL,
		.at = (uint16_t)f->tag,
		.to = (uint16_t)(f->tag >> 16),
		.detail = f->off,
	};
}

static bool say(struct chan_net *net, struct tick *t, int side, struct link_frame f)
{
	struct link_put p = { .frame = f };
	return link_put(net->side[side].link, t, &p) != LINK_PUT_NO;
}

static bool tx_say(struct chan_net *net, struct tick *t, struct tx *tx)
{
	int side = tx->h.side;
	if (tx->h.owed & OWE_OPEN) {
		if (!say(net, t, side,
			 (struct link_frame){ .label = tx->label,
					      .kind = CHAN_OPEN,
					      .msg = tx->id,
					      .fno = tx->fno,
					      .off = tx->window,
					      .tag = tx->src | (uint64_t)tx->dst << 16 |
						     (uint64_t)(tx->least / 64) << 32 }))
			return false;
		tx->h.owed &= (uint8_t)~OWE_OPEN;
	}
	if (tx->h.owed & OWE_FIN) {
		struct link_frame f = { .label = tx->label, .kind = CHAN_FIN, .fno = tx->fno };
		reason_pack(&f, &tx->why);
		if (!say(net, t, side, f))
			return false;
		tx->h.owed &= (uint8_t)~OWE_FIN;
	}
	if (tx->h.owed & OWE_HINT) {
		if (tx->state == TX_OPEN &&
		    !say(net, t, side,
			 (struct link_frame){ .label = tx->label, .kind = CHAN_HINT, .off = tx->hint }))
			return false;
		tx->h.owed &= (uint8_t)~OWE_HINT;
	}
	return true;
}

void tx_hint(struct chan_net *net, struct tx *tx, uint64_t word)
{
	tx->hint = word;
	tx->hinted = true;
	if (tx->state == TX_OPEN)
		hop_owe(net, &tx->h, OWE_HINT);
}

void chan_hint(struct chan *c, struct tick *t, uint64_t word)
{
	tx_hint(c->net, &c->tx, word);
	ctl_flush(c->net, t, c->cfg.via);
}

bool chan_hinted(struct chan *c, uint64_t *word)
{
	bool any = c->rx.hinted;

	c->rx.hinted = false;
	*word = c->rx.hint;
	return any;
}

/* One that comes when its channel has ended, whose label may be another's now, is of no use. */
static void hint_deliver(struct chan_net *net, int side, const struct link_frame *f)
{
	struct slot *s = &net->side[side].slot[f->label % CHAN_LABELS];

	if (!s->used || s->label != f->label || !s->rx)
		return;
	if (s->rx->relay)
		tx_hint(net, &s->rx->relay->tx, f->off);
	s->rx->hint = f->off;
	s->rx->hinted = true;
}

static bool accept_say(struct chan_net *net, struct tick *t, const struct slot *s)
{
	const struct rx *rx = s->rx;
	return say(net, t, s->h.side,
		   (struct link_frame){ .label = s->label,
					.kind = CHAN_ACCEPT,
					.msg = rx->nframes,
					.fno = rx_frag(rx),
					.off = link_arena_off(net->side[s->h.side].link, rx->arena_off),
					.tag = rx->window });
}

static bool credit_say(struct chan_net *net, struct tick *t, const struct slot *s)
{
	struct rx *rx = s->rx;
	if (!say(net, t, s->h.side,
		 (struct link_frame){ .label = s->label,
				      .kind = CHAN_CREDIT,
				      .off = rx->freed_pos + rx->window,
				      .fno = rx->freed + rx->nframes }))
		return false;
	rx->told = rx->freed;
	rx->told_pos = rx->freed_pos;
	net->st.credits_sent++;
	return true;
}

/* Says one of what is owed. False: the link has no room. */
static bool slot_say_one(struct chan_net *net, struct tick *t, struct slot *s, unsigned what)
{
	struct link_frame f = { .label = s->label };
	switch (what) {
	case OWE_ACCEPT:
		return accept_say(net, t, s);
	case OWE_STOP:
		f.kind = CHAN_STOP;
		reason_pack(&f, &s->stop);
		return say(net, t, s->h.side, f);
	case OWE_CREDIT:
		return credit_say(net, t, s);
	case OWE_GRANT:
		return chan_recv_grant(s->rx->chan, t, s);
	default:
		f.kind = CHAN_GONE;
		return say(net, t, s->h.side, f);
	}
}

static bool slot_say(struct chan_net *net, struct tick *t, struct slot *s)
{
	if (s->h.owed & OWE_GONE)
		s->h.owed = OWE_GONE; /* the sender has no use for anything else */
	else if (s->h.owed & OWE_STOP)
		s->h.owed = OWE_STOP;
	for (unsigned what = OWE_ACCEPT; what <= OWE_GONE; what <<= 1) {
		if (!(s->h.owed & what))
			continue;
		if (!slot_say_one(net, t, s, what))
			return false;
		s->h.owed &= (uint8_t)~what;
		if (what == OWE_GONE)
			slot_clear(net, s);
	}
	return true;
}

/* Forgets a slot; its hop must not be listed, or be about to leave the list. */
void slot_clear(struct chan_net *net, struct slot *s)
{
	if (s->rx)
		s->rx->slot = NULL;
	struct hop h = { .next = s->h.next, .side = s->h.side, .listed = s->h.listed };
	*s = (struct slot){ .h = h };
	net->reap = true;
}

void ctl_flush(struct chan_net *net, struct tick *t, int side)
{
	struct side *s = &net->side[side];
	while (s->ctl) {
		struct hop *h = s->ctl;
		s->full = !(h->is_tx ? tx_say(net, t, (struct tx *)h) : slot_say(net, t, (struct slot *)h));
		if (s->full)
			return;
		s->ctl = h->next;
		if (!s->ctl)
			s->ctl_end = &s->ctl;
		h->listed = false;
	}
}

void slot_refuse(struct chan_net *net, struct slot *s, struct reason why)
{
	s->refused = true;
	s->stop = why;
	hop_owe(net, &s->h, OWE_STOP);
}

void rx_stop(struct chan_net *net, struct rx *rx, struct reason why)
{
	rx->discard = true;
	if (!rx->slot || rx->fin || rx->slot->refused)
		return;
	slot_refuse(net, rx->slot, why);
}

void rx_check_over(struct chan_net *net, struct tick *t, struct rx *rx)
{
	if (!rx->fin || rx->over || num_before(rx->next, rx->fin_fno))
		return;
	rx->over = true;
	if (rx->slot)
		hop_owe(net, &rx->slot->h, OWE_GONE);
	if (rx->chan)
		chan_recv_end(rx->chan, t, rx->fin_why);
}

/* FIN and OPEN are both here. */
static void slot_finish(struct chan_net *net, struct tick *t, struct slot *s)
{
	struct rx *rx = s->rx;
	if (!rx) {
		if (!s->refused)
			tomb_add(net, s->h.side, s->id, s->src, false, s->fin_why);
		hop_owe(net, &s->h, OWE_GONE);
		return;
	}
	rx->fin = true;
	rx->fin_fno = s->fin_fno;
	rx->fin_why = s->fin_why;
	rx_check_over(net, t, rx);
	if (rx->relay)
		relay_arrived(net, t, rx->relay);
}

static void open_deliver(struct chan_net *net, struct tick *t, struct slot *s, const struct link_frame *f)
{
	int side = s->h.side;
	if (s->opened) {
		net->protocol_errors++;
		return;
	}
	s->opened = true;
	s->id = f->msg;
	s->first = f->fno;
	s->src = (uint16_t)f->tag;
	s->dst = (uint16_t)(f->tag >> 16);
	s->order = net->opens++;
	struct reason bad = { .why = WHY_PROTOCOL, .at = (uint16_t)net->cfg.self };
	if (f->off < 4096 || f->off > 1u << 30 || f->off % 64 || s->src >= net->cfg.n ||
	    s->dst >= net->cfg.n || s->src == net->cfg.self) {
		net->protocol_errors++;
		slot_refuse(net, s, bad);
	} else {
		s->window = (uint32_t)f->off;
		s->least = (uint32_t)(f->tag >> 32) * 64;
		if (s->least < 4096 || s->least > s->window)
			s->least = s->window;
		if (s->dst != net->cfg.self) {
			relay_open(net, s);
		} else {
			struct chan *c = chan_waiting(net, side, s->id, s->src);
			struct tomb *tomb = c ? NULL : tomb_find(net, side, s->id, s->src, true);
			if (c) {
				chan_bind(c, s);
			} else if (tomb) {
				tomb->used = false;
				slot_refuse(net, s, tomb->why);
			}
		}
	}
	if (s->fin)
		slot_finish(net, t, s);
}

static void from_sender(struct chan_net *net, struct tick *t, int side, const struct link_frame *f)
{
	struct slot *s = &net->side[side].slot[f->label % CHAN_LABELS];
	if (s->used && s->label != f->label) {
		net->protocol_errors++; /* a label is used again only after our GONE */
		return;
	}
	if (f->kind == CHAN_DATA) {
		if (s->used)
			rx_deliver(net, t, s, f);
		else
			net->protocol_errors++;
		return;
	}
	if (!s->used) {
		s->used = true;
		s->label = f->label;
	}
	if (f->kind == CHAN_OPEN) {
		open_deliver(net, t, s, f);
	} else if (!s->fin) {
		s->fin = true;
		s->fin_fno = f->fno;
		s->fin_why = reason_unpack(f);
		if (s->opened)
			slot_finish(net, t, s);
	}
}

static void stop_deliver(struct chan_net *net, struct tick *t, struct tx *tx, struct reason why)
{
	if (tx->state >= TX_FIN)
		return;
	if (tx->chan)
		chan_stopped(tx->chan, t, why);
	else
		relay_stopped(net, tx->relay, why);
}

static bool accept_deliver(struct chan_net *net, struct tx *tx, const struct link_frame *f)
{
	uint32_t most = link_max_put(net->side[tx->h.side].link) & ~63u;
	uint64_t room = link_peer_arena(net->side[tx->h.side].link);
	if (tx->state != TX_OPENING)
		return true; /* it was refused or closed, and this was late */
	if (f->tag < 4096 || f->tag > tx->window || f->tag % 64 || f->msg == 0 || f->msg > tx->nframes ||
	    f->fno == 0 || f->fno % 64 || f->fno > window_frag((uint32_t)f->tag) || f->tag > room ||
	    f->off > room - f->tag)
		return false;
	tx->window = (uint32_t)f->tag;
	tx->peer_off = f->off;
	tx->frag = f->fno < most ? f->fno : most;
	tx->limit = tx->window;
	tx->flimit = tx->fno + f->msg;
	tx->state = TX_OPEN;
	if (tx->hinted)
		hop_owe(net, &tx->h, OWE_HINT);
	if (tx->relay)
		relay_accepted(net, tx->relay);
	tx_ready(net, tx);
	return true;
}

static bool credit_deliver(struct chan_net *net, struct tx *tx, const struct link_frame *f)
{
	if (tx->state != TX_OPEN)
		return tx->state != TX_OPENING;
	if (f->off > tx->pos + tx->window || num_before(tx->fno + tx->nframes, f->fno))
		return false;
	tx_credit(net, tx, f->off, f->fno);
	return true;
}

static bool grant_deliver(struct chan_net *net, struct tx *tx, const struct link_frame *f)
{
	struct grant *g = &tx->grant[f->msg % CHAN_GRANTS];
	if (!tx->chan || f->fno >= LANE_REGIONS_MAX)
		return false;
	if (!g->valid || num_before(g->msg, f->msg))
		*g = (struct grant){
			.valid = true, .region = (uint16_t)f->fno, .msg = f->msg, .off = f->off, .len = f->tag
		};
	tx_ready(net, tx); /* direct frames need no place in a window that may be full */
	return true;
}

static void from_receiver(struct chan_net *net, struct tick *t, int side, const struct link_frame *f)
{
	struct side *s = &net->side[side];
	struct tx *tx = s->tx[f->label % CHAN_LABELS];
	bool ok = true;
	if (!tx || tx->label != f->label)
		return; /* late: the label has been given back */
	switch (f->kind) {
	case CHAN_ACCEPT:
		ok = accept_deliver(net, tx, f);
		break;
	case CHAN_CREDIT:
		ok = credit_deliver(net, tx, f);
		break;
	case CHAN_GRANT:
		ok = grant_deliver(net, tx, f);
		break;
	case CHAN_STOP:
		stop_deliver(net, t, tx, reason_unpack(f));
		break;
	default: /* CHAN_GONE */
		ok = tx->state == TX_FIN && !(tx->h.owed & (OWE_OPEN | OWE_FIN));
		if (ok) {
			tx->state = TX_GONE;
			label_give(s, tx);
			net->reap = true;
		}
	}
	if (!ok) {
		net->protocol_errors++;
		stop_deliver(net, t, tx,
			     (struct reason){ .why = WHY_PROTOCOL, .at = (uint16_t)net->cfg.self });
	}
}

void ctl_deliver(struct chan_net *net, struct tick *t, int side, const struct link_frame *f)
{
	switch (f->kind) {
	case CHAN_DATA:
	case CHAN_OPEN:
	case CHAN_FIN:
		from_sender(net, t, side, f);
		break;
	case CHAN_HINT:
		hint_deliver(net, side, f);
		break;
	case CHAN_ACCEPT:
	case CHAN_CREDIT:
	case CHAN_GRANT:
	case CHAN_STOP:
	case CHAN_GONE:
		from_receiver(net, t, side, f);
		break;
	case CHAN_NOTICE:
		notice_deliver(net, t, side, f);
		break;
	default:
		net->protocol_errors++;
	}
}
