/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of a direction: cuts messages into fragments, gives each a place in the next hop's window
 * or, under a grant, in the receiver's own memory, and hands them to the link. Invariant: a fragment is put
 * only inside the credit (window position and frame number), whatever else waits, so it always has room where
 * it goes. A source belongs to us until the prefix of frames that covers it has been released by the link.
 */
#include "link/chan_internal.h"

void tx_init(struct tx *tx, struct chan_net *net, int side)
{
	tx->h.side = (uint8_t)side;
	tx->h.is_tx = true;
	tx->turn = CHAN_QUANTUM;
	tx->fno = tx->flimit = tx->una = tx->msg = net->first;
}

void tx_ready(struct chan_net *net, struct tx *tx)
{
	struct side *s = &net->side[tx->h.side];
	if (tx->listed || s->dead || tx->state != TX_OPEN)
		return;
	tx->listed = true;
	tx->next = NULL;
	*s->data_end = tx;
	s->data_end = &tx->next;
}

bool tx_place(const struct chan_net *net, const struct tx *tx, uint32_t len, uint64_t *place)
{
	*place = len ? window_place(tx->pos, tx->window, len) : tx->pos;
	if (!num_before(tx->fno, tx->flimit))
		return false;
	if (chan_plant & CHAN_BREAK_POOL) {
		const struct side *s = &net->side[tx->h.side];
		if (len && s->pool_held && s->pool_held + round64(len) > tx->window)
			return false;
	}
	return *place + round64(len) <= tx->limit;
}

bool tx_turn(struct tx *tx, uint32_t len)
{
	return len <= tx->turn || tx->turn == CHAN_QUANTUM;
}

/* Puts the fragment that `p` describes as frame tx->fno; a windowed one at `place`. The caller moves on
 * unless the link says NO. */
enum link_put_result tx_put(struct chan_net *net, struct tick *t, struct tx *tx, struct link_put *p,
			    uint64_t place, uint32_t check)
{
	struct link_frame *f = &p->frame;
	bool direct = f->flags & CHAN_DIRECT;
	f->label = tx->label;
	f->kind = CHAN_DATA;
	f->fno = tx->fno;
	if (!direct) {
		f->off = place;
		p->region = 0;
		p->dst_off = tx->peer_off + place % tx->window;
	}
	f->off = (uint32_t)f->off | (uint64_t)check << 32;
	p->owner = tx;
	enum link_put_result r = link_put(net->side[tx->h.side].link, t, p);
	if (r == LINK_PUT_NO)
		return r;
	if (!direct) {
		if (chan_plant & CHAN_BREAK_POOL) {
			tx->pool_held += round64(f->len);
			net->side[tx->h.side].pool_held += round64(f->len);
		}
		tx->pos = place + round64(f->len);
	}
	tx->turn -= f->len < tx->turn ? f->len : tx->turn;
	tx->fno++;
	tx->posted += r == LINK_PUT_POSTED;
	return r;
}

void tx_credit(struct chan_net *net, struct tx *tx, uint64_t limit, uint32_t flimit)
{
	if (chan_plant & CHAN_BREAK_POOL) {
		/* what the receiver has freed leaves the pool; skipped bytes were never in it */
		uint64_t out = limit < tx->pos + tx->window ? tx->pos + tx->window - limit : 0;
		if (out < tx->pool_held) {
			net->side[tx->h.side].pool_held -= tx->pool_held - out;
			tx->pool_held = out;
			for (struct chan *c = net->chans; c; c = c->next)
				tx_ready(net, &c->tx);
			for (struct relay *r = net->relays; r; r = r->next)
				tx_ready(net, &r->tx);
		}
	}
	/* credits may overtake each other: each names a prefix, so the highest is the truth */
	if (limit > tx->limit)
		tx->limit = limit;
	if (num_before(tx->flimit, flimit))
		tx->flimit = flimit;
	tx_ready(net, tx);
}

/* The grant for the present message, if it may be used. A shorter one than the message is left alone: the
 * receiver will find the message too long, from the window. */
static const struct grant *chan_grant(const struct chan *c, const struct send_msg *m)
{
	const struct grant *g = &c->tx.grant[c->tx.msg % CHAN_GRANTS];
	if (!g->valid || g->msg != c->tx.msg || g->len < m->len)
		return NULL;
	/* the GRANT may have overtaken the announcement of its region */
	uint64_t len = c->net->side[c->tx.h.side].region_len[g->region];
	return g->off <= len && m->len <= len - g->off ? g : NULL;
}

static uint32_t frag_now(const struct chan_net *net, const struct tx *tx, bool direct)
{
	const struct link *l = net->side[tx->h.side].link;
	uint32_t most = link_frame_now(l) & ~63u, frag = tx->frag;
	/* Where this processor copies, a fragment is a system call, and smaller ones overlap nothing. */
	if (direct)
		frag = link_lossless(l) ? most : CHAN_DIRECT_FRAG;
	return most < frag ? most : frag;
}

static enum pump chan_pump(struct chan *c, struct tick *t)
{
	struct chan_net *net = c->net;
	struct tx *tx = &c->tx;
	while (c->s_cur != c->s_tail) {
		struct send_msg *m = &c->sq[c->s_cur % CHAN_QUEUE];
		const struct grant *g = chan_grant(c, m);
		size_t rest = m->len - m->sent;
		uint32_t most = frag_now(net, tx, g);
		uint32_t len = rest < most ? (uint32_t)rest : most;
		uint64_t place = 0;
		if (tx->fno - tx->una >= tx->nframes)
			return PUMP_IDLE; /* released() wakes it */
		if (g ? !num_before(tx->fno, tx->flimit) : !tx_place(net, tx, len, &place))
			return PUMP_IDLE; /* CREDIT wakes it */
		if (!tx_turn(tx, len))
			return PUMP_AGAIN;
		bool last = len == rest, end = last && c->s_cur + 1 == c->s_tail;
		struct link_put p = {
			.frame = { .flags = (uint8_t)((last ? CHAN_LAST : 0) | (g ? CHAN_DIRECT : 0)),
				   .msg = tx->msg,
				   .len = len,
				   .off = m->sent,
				   .tag = m->tag },
			.src = len ? (const uint8_t *)m->src + m->sent : NULL,
			.smem = m->smem,
			.ack_soon = end && len > CHAN_ACK_SOON,
		};
		if (g) {
			p.region = g->region;
			p.dst_off = g->off + m->sent;
		}
		uint32_t fno = tx->fno;
		enum link_put_result r = tx_put(net, t, tx, &p, place, chan_sum(net, p.src, len));
		if (r == LINK_PUT_NO)
			return PUMP_FULL;
		tx->frame[fno % tx->nframes] =
			(struct tx_frame){ .len = len, .last = last, .released = r == LINK_PUT_DONE };
		*(g ? &net->st.granted_bytes : &net->st.staged_bytes) += len;
		m->sent += len;
		if (last) {
			c->s_cur++;
			tx->msg++;
		}
		if (r == LINK_PUT_DONE)
			chan_send_settle(c);
	}
	return PUMP_IDLE;
}

static enum pump tx_pump(struct chan_net *net, struct tick *t, struct tx *tx)
{
	if (tx->state != TX_OPEN)
		return PUMP_IDLE;
	return tx->chan ? chan_pump(tx->chan, t) : relay_pump(net, t, tx->relay);
}

void tx_pump_now(struct chan_net *net, struct tick *t, struct tx *tx)
{
	struct side *s = &net->side[tx->h.side];
	if (!s->data && !s->dead) {
		enum pump p = tx_pump(net, t, tx);
		if (p != PUMP_FULL)
			tx->turn = CHAN_QUANTUM;
		if (p == PUMP_IDLE)
			return;
	}
	tx_ready(net, tx);
}

/* Fair round: each channel in turn sends at most a quantum. */
bool data_flush(struct chan_net *net, struct tick *t, int side)
{
	struct side *s = &net->side[side];
	bool any = false;
	for (int turns = 0; s->data && turns < 256; turns++) {
		struct tx *tx = s->data;
		uint32_t was = tx->fno;
		enum pump p = tx_pump(net, t, tx);
		any |= tx->fno != was;
		s->full = p == PUMP_FULL;
		if (s->full)
			break; /* it keeps its turn */
		s->data = tx->next;
		if (!s->data)
			s->data_end = &s->data;
		tx->listed = false;
		tx->turn = CHAN_QUANTUM;
		if (tx->state >= TX_FIN)
			net->reap = true; /* it may have waited for this to be freed */
		if (p == PUMP_AGAIN)
			tx_ready(net, tx);
	}
	return any;
}

void tx_released(struct chan_net *net, struct tx *tx, uint32_t fno)
{
	sircl_assert(tx->posted > 0);
	tx->posted--;
	if (tx->relay) {
		relay_released(net, tx->relay, fno);
	} else {
		sircl_assert(fno - tx->una < tx->nframes);
		tx->frame[fno % tx->nframes].released = true;
		chan_send_settle(tx->chan);
		tx_ready(net, tx);
	}
	if (tx->posted == 0)
		net->reap = true;
}

static void send_error(struct chan *c, struct xfer *x)
{
	if (!c->closed)
		chan_fail(c, &c->send_why);
	x->err = c->closed ? SIRCL_ABORTED : reason_code(&c->send_why);
}

void chan_send_settle(struct chan *c)
{
	struct tx *tx = &c->tx;
	while (tx->una != tx->fno && tx->frame[tx->una % tx->nframes].released) {
		const struct tx_frame *f = &tx->frame[tx->una++ % tx->nframes];
		struct send_msg *m = &c->sq[c->s_head % CHAN_QUEUE];
		if (m->x)
			m->x->done += f->len;
		if (f->last) {
			if (m->x)
				m->x->finished = true;
			c->s_head++;
		}
	}
	/* a message that was cut short ends when its last source byte is free */
	if (c->send_ended && tx->posted == 0) {
		for (; c->s_head != c->s_tail; c->s_head++) {
			struct xfer *x = c->sq[c->s_head % CHAN_QUEUE].x;
			if (x)
				send_error(c, x);
		}
		c->s_cur = c->s_tail;
	}
}

void chan_send_end(struct chan *c, struct reason why)
{
	if (!c->send_ended) {
		c->send_ended = true;
		c->send_why = why;
	}
	uint32_t keep = c->s_cur;
	if (keep != c->s_tail && c->sq[keep % CHAN_QUEUE].sent > 0)
		keep++;
	while (c->s_tail != keep) {
		struct xfer *x = c->sq[--c->s_tail % CHAN_QUEUE].x;
		if (x)
			send_error(c, x);
	}
	chan_send_settle(c);
}

void tx_end(struct chan_net *net, struct tx *tx, struct reason why)
{
	if (tx->state >= TX_FIN)
		return;
	tx->state = TX_FIN;
	tx->why = why;
	if (chan_plant & CHAN_BREAK_POOL) {
		net->side[tx->h.side].pool_held -= tx->pool_held;
		tx->pool_held = 0;
	}
	net->reap = true;
	if (net->side[tx->h.side].dead)
		tx->state = TX_GONE;
	else
		hop_owe(net, &tx->h, OWE_FIN);
}

bool chan_send(struct chan *c, struct tick *t, const void *src, size_t len, uint64_t tag, struct xfer *x)
{
	if (c->s_tail - c->s_head >= CHAN_QUEUE)
		return false;
	*x = (struct xfer){ .len = len, .tag = tag };
	if (c->send_ended) {
		send_error(c, x);
		return true;
	}
	if (len > CHAN_MSG_MAX) {
		x->err = error_set(SIRCL_INVALID_ARGUMENT,
				   "a message of %zu bytes is longer than the %llu that a channel takes", len,
				   CHAN_MSG_MAX);
		return true;
	}
	struct send_msg *m = &c->sq[c->s_tail % CHAN_QUEUE];
	const struct reg *r = len ? reg_find(c->net, src, len) : NULL;
	*m = (struct send_msg){
		.src = src, .len = len, .tag = tag, .smem = r ? r->mem[c->cfg.via] : NULL, .x = x
	};
	bool first = c->s_cur == c->s_tail;
	c->s_tail++;
	if (c->tx.state == TX_OPEN && first)
		tx_pump_now(c->net, t, &c->tx);
	else
		tx_ready(c->net, &c->tx);
	return true;
}

bool chan_idle(const struct chan *c)
{
	return c->s_head == c->s_tail && c->tx.posted == 0;
}
