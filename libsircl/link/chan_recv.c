/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of a direction: puts frames back in order, hands them to posted receives, and tells the
 * sender how far it may go. Invariant: a place of the window or of the table is credited again only when its
 * frame has been consumed (relay: sent on and released), in order, so the credit is a prefix and never goes
 * back. Credits go out when a quarter of the window or of the table has been freed; the sender always has
 * half a window left then, which is more than a fragment with its skip can need.
 */
#include <stdlib.h>
#include <string.h>
#include "link/chan_internal.h"

/* Who can do with less leaves two thirds of the arena to those who cannot, and the later ones something. */
static uint32_t modest(const struct arena *a, uint32_t window, uint32_t least)
{
	size_t pool = arena_size(a) / 3, used = arena_used(a), room = used < pool ? (pool - used) / 4 : 0;

	while (window > least && window > room)
		window = window / 2 & ~4095u;
	return window > least ? window : least;
}

sircl_result_t rx_alloc(struct chan_net *net, struct rx *rx, int side, uint32_t window, uint32_t least)
{
	struct arena *a = link_arena(net->side[side].link);
	if (least < window)
		window = modest(a, window, least);
	rx->arena_off = arena_alloc(a, window);
	if (rx->arena_off == SIZE_MAX)
		return SIRCL_NO_MEMORY;
	rx->alloc = rx->window = window;
	rx->nframes = window_frames(window);
	rx->frame = calloc(rx->nframes, sizeof(*rx->frame));
	if (!rx->frame) {
		arena_free(a, rx->arena_off);
		return SIRCL_NO_MEMORY;
	}
	rx->base = (uint8_t *)arena_base(a) + rx->arena_off;
	rx->next = rx->cons = rx->freed = rx->seen = rx->msg = rx->told = net->first;
	return SIRCL_SUCCESS;
}

void rx_free(struct chan_net *net, struct rx *rx, int side)
{
	if (rx->base && net->side[side].link)
		arena_free(link_arena(net->side[side].link), rx->arena_off);
	rx->base = NULL;
	free(rx->frame);
	rx->frame = NULL;
}

/* The channel is given up; nothing of what has not been handed on yet will be. */
static void rx_give_up(struct chan_net *net, struct tick *t, struct rx *rx, struct reason why)
{
	rx_stop(net, rx, why);
	if (rx->chan) {
		chan_fail(rx->chan, &why);
		chan_recv_end(rx->chan, t, why);
	} else {
		tx_end(net, &rx->relay->tx, why);
	}
}

static void rx_damaged(struct chan_net *net, struct tick *t, struct rx *rx, const struct rx_frame *f)
{
	const struct tx *tx = rx->relay ? &rx->relay->tx : &rx->chan->tx; /* a channel's own way back */
	struct reason why = { .why = WHY_DAMAGED, .at = (uint16_t)net->cfg.self, .detail = f->lane };

	why.to = neighbour(net, rx->relay ? !tx->h.side : tx->h.side);
	log_warn(&net->cfg.ctx->log,
		 "rank %d: %u bytes of message %u of channel %u came damaged over lane %u of the cable from "
		 "rank %d; the channel is given up",
		 rank_at(net, why.at), f->len, f->msg, tx->id, f->lane, rank_at(net, why.to));
	rx_give_up(net, t, rx, why);
}

static void rx_protocol(struct chan_net *net, struct tick *t, struct rx *rx, const char *what,
			const struct link_frame *f)
{
	const struct slot *s = rx->slot;
	net->protocol_errors++;
	if (!rx->discard)
		log_warn(&net->cfg.ctx->log,
			 "channel %u from rank %d to rank %d: %s (frame %u, message %u, length %u, offset "
			 "%llu); the channel is given up",
			 s ? s->id : 0, s ? rank_at(net, s->src) : -1, s ? rank_at(net, s->dst) : -1, what,
			 f->fno, f->msg, f->len, (unsigned long long)f->off);
	rx_give_up(net, t, rx, (struct reason){ .why = WHY_PROTOCOL, .at = (uint16_t)net->cfg.self });
}

/* The frame follows from the one before; its full window position is noted. */
static bool rx_frame_ok(const struct chan_net *net, const struct rx *rx, struct rx_frame *f)
{
	uint64_t place;

	if ((f->len == 0 && !(f->flags & CHAN_LAST)) || (f->check && !net->checksum))
		return false;
	if (f->flags & CHAN_DIRECT)
		return rx->chan != NULL;
	place = f->len ? window_place(rx->next_pos, rx->window, f->len) : rx->next_pos;
	if (f->len > rx_frag(rx) || f->off != (uint32_t)place)
		return false;
	f->off = place;
	return true;
}

void rx_deliver(struct chan_net *net, struct tick *t, struct slot *s, const struct link_frame *f)
{
	struct rx *rx = s->rx;
	if (!rx || !rx->accepted) {
		net->protocol_errors++; /* refused or not yet answered: there is no window that it could be in
					 */
		return;
	}
	struct rx_frame *e = &rx->frame[f->fno % rx->nframes];
	if (f->fno - rx->freed >= rx->nframes || num_before(f->fno, rx->next) || e->state != RX_EMPTY ||
	    (rx->fin && !num_before(f->fno, rx->fin_fno))) {
		rx_protocol(net, t, rx, "a frame outside the credit", f);
		return;
	}
	*e = (struct rx_frame){ .state = RX_ARRIVED,
				.flags = f->flags,
				.len = f->len,
				.msg = f->msg,
				.lane = f->lane,
				.check = (uint32_t)(f->off >> 32),
				.off = (uint32_t)f->off,
				.tag = f->tag };
	bool moved = false;
	while (rx->next - rx->freed < rx->nframes && rx->frame[rx->next % rx->nframes].state == RX_ARRIVED) {
		e = &rx->frame[rx->next % rx->nframes];
		if (!rx_frame_ok(net, rx, e)) {
			rx_protocol(net, t, rx, "a frame that does not follow from the one before", f);
			e->flags |= CHAN_DIRECT; /* takes no place in the window */
		} else if (!(e->flags & CHAN_DIRECT) && !rx->discard &&
			   chan_sum(net, rx->base + e->off % rx->window, e->len) != e->check) {
			rx_damaged(net, t, rx, e);
		}
		if (!(e->flags & CHAN_DIRECT))
			rx->next_pos = e->off + round64(e->len);
		if (rx->relay) {
			rx->relay->held += round64(e->len);
			net->held += round64(e->len);
		}
		rx->next++;
		moved = true;
	}
	if (!moved)
		return;
	rx_check_over(net, t, rx);
	if (rx->chan)
		chan_recv_advance(rx->chan, t);
	else
		relay_arrived(net, t, rx->relay);
}

/* Gives back the places of frames < upto; a relay's only as far as the next link has released them. */
void rx_free_frames(struct chan_net *net, struct rx *rx, uint32_t upto)
{
	while (rx->freed != upto) {
		struct rx_frame *f = &rx->frame[rx->freed % rx->nframes];
		/* the next link may still read a posted frame's bytes */
		if (rx->relay && (f->state == RX_POSTED || (f->state == RX_ARRIVED && !rx->discard)))
			break;
		if (rx->relay) {
			rx->relay->held -= round64(f->len);
			net->held -= round64(f->len);
		}
		if (!(f->flags & CHAN_DIRECT))
			rx->freed_pos = f->off + round64(f->len);
		f->state = RX_EMPTY;
		rx->freed++;
	}
	if (!rx->slot || rx->fin || rx->discard)
		return;
	uint32_t nq = rx->nframes / 4, wq = rx->window / 4;
	if (chan_plant & CHAN_BREAK_POOL)
		nq = wq = 1;
	if (rx->freed - rx->told >= nq || rx->freed_pos - rx->told_pos >= wq)
		hop_owe(net, &rx->slot->h, OWE_CREDIT);
}

static void recv_pop(struct chan *c)
{
	c->r_head++;
	if (num_before(c->r_grant, c->r_head))
		c->r_grant = c->r_head;
}

static bool recv_grantable(const struct chan *c, const struct recv_msg *m)
{
	return m->reg && m->reg->mem[c->cfg.via] && !m->view && m->x && !m->granted;
}

static uint32_t grant_limit(const struct chan *c)
{
	return c->r_tail - c->r_head < CHAN_GRANTS ? c->r_tail : c->r_head + CHAN_GRANTS;
}

void chan_recv_owe_grants(struct chan *c)
{
	if (c->hops != 1 || !c->rx.slot || !c->rx.accepted || c->rx.fin || c->rx.discard)
		return;
	uint32_t end = grant_limit(c);
	while (c->r_grant != end && !recv_grantable(c, &c->rq[c->r_grant % CHAN_QUEUE]))
		c->r_grant++;
	if (c->r_grant != end)
		hop_owe(c->net, &c->rx.slot->h, OWE_GRANT);
}

bool chan_recv_grant(struct chan *c, struct tick *t, struct slot *s)
{
	uint32_t end = grant_limit(c);
	for (; c->r_grant != end && !c->rx.fin && !c->rx.discard; c->r_grant++) {
		struct recv_msg *m = &c->rq[c->r_grant % CHAN_QUEUE];
		if (!recv_grantable(c, m))
			continue;
		const struct link_mem *mem = m->reg->mem[c->cfg.via];
		struct link_put p = { .frame = {
					      .label = s->label,
					      .kind = CHAN_GRANT,
					      .msg = c->rx.msg + (c->r_grant - c->r_head) + (c->skip ? 1 : 0),
					      .fno = link_mem_region(mem),
					      .off = (uint64_t)(m->buf - m->reg->p),
					      .tag = m->max,
				      } };
		if (link_put(c->net->side[c->cfg.via].link, t, &p) == LINK_PUT_NO)
			return false;
		m->granted = true;
	}
	return true;
}

/* The message is longer than the receive: the transfer ends, the rest of the message is skipped. The sender
 * never uses a grant that is too short, so nothing can land in the buffer. */
static void recv_too_long(struct chan *c, struct recv_msg *m)
{
	m->x->err = error_set(SIRCL_MISMATCH,
			      "channel %u from rank %d: a message is longer than the %zu bytes that its "
			      "receive has room for; "
			      "both ranks must give the same count and type",
			      c->cfg.id, rank_at(c->net, c->cfg.peer), m->max);
	if (c->err.code == SIRCL_SUCCESS)
		c->err = *error_last();
	c->skip = true;
	c->rx.seen = c->rx.cons;
	c->fused = 0;
	recv_pop(c);
}

static void recv_finish(struct chan *c, struct recv_msg *m)
{
	m->x->len = m->x->done;
	m->x->finished = true;
	c->rx.msg++;
	recv_pop(c);
}

/* View mode: tells the receive of what has arrived. False: nothing to do for frames behind it now. */
static bool view_advance(struct chan *c, struct recv_msg *m)
{
	struct rx *rx = &c->rx;
	while (rx->seen != rx->next && !m->complete) {
		const struct rx_frame *f = &rx->frame[rx->seen % rx->nframes];
		if (f->len > m->max - m->x->done) {
			recv_too_long(c, m);
			return true;
		}
		m->x->done += f->len;
		rx->seen++;
		if (f->flags & CHAN_LAST) {
			m->complete = true;
			m->x->len = m->x->done;
		}
	}
	if (!m->complete || m->used != m->x->len)
		return false;
	rx->cons = rx->seen; /* an empty frame at the end has nothing to consume */
	c->fused = 0;
	rx_free_frames(c->net, rx, rx->cons);
	recv_finish(c, m);
	return true;
}

static bool land(struct chan *c, struct tick *t, struct recv_msg *m, const struct rx_frame *f)
{
	struct xfer *x = m->x;
	if (f->flags & CHAN_DIRECT) {
		if (!m->granted || f->off != (uint32_t)x->done || f->len > m->max - x->done)
			return false;
		if (chan_sum(c->net, m->buf + x->done, f->len) != f->check) {
			rx_damaged(c->net, t, &c->rx, f);
			return true;
		}
	} else {
		if (f->len > m->max - x->done) {
			recv_too_long(c, m);
			return true;
		}
		if (f->len) {
			memcpy(m->buf + x->done, c->rx.base + f->off % c->rx.window, f->len);
			tick_charge(t, COST_COPY, f->len);
		}
	}
	x->done += f->len;
	c->rx.cons++;
	rx_free_frames(c->net, &c->rx, c->rx.cons);
	if (f->flags & CHAN_LAST)
		recv_finish(c, m);
	return true;
}

/* Ends receives that nothing can land in any more. */
static void recv_drop(struct chan *c)
{
	struct rx *rx = &c->rx;
	bool quiet = !rx->bound || rx->over;
	sircl_result_t code = c->closed ? SIRCL_ABORTED : reason_code(&c->recv_why);
	for (uint32_t i = c->r_head; i != c->r_tail; i++) {
		struct recv_msg *m = &c->rq[i % CHAN_QUEUE];
		if (!m->x || (m->granted && !quiet))
			continue;
		if (!c->closed)
			chan_fail(c, &c->recv_why);
		m->x->err = code;
		m->x = NULL;
	}
	while (c->r_head != c->r_tail && !c->rq[c->r_head % CHAN_QUEUE].x)
		recv_pop(c);
	rx->cons = rx->seen = rx->next;
	c->fused = 0;
	if (rx->bound)
		rx_free_frames(c->net, rx, rx->next);
}

void chan_recv_advance(struct chan *c, struct tick *t)
{
	struct rx *rx = &c->rx;
	while (!rx->discard && rx->cons != rx->next) {
		struct rx_frame *f = &rx->frame[rx->cons % rx->nframes];
		if (c->skip) {
			c->skip = !(f->flags & CHAN_LAST);
			rx->msg += !c->skip;
			rx->seen = ++rx->cons;
			rx_free_frames(c->net, rx, rx->cons);
			continue;
		}
		if (c->r_head == c->r_tail)
			break;
		struct recv_msg *m = &c->rq[c->r_head % CHAN_QUEUE];
		bool direct = f->flags & CHAN_DIRECT;
		if (f->msg != rx->msg || (direct && m->view)) {
			rx_protocol(c->net, t, rx, "a message out of turn",
				    &(struct link_frame){ .msg = f->msg });
			break;
		}
		if (!m->x->tagged) {
			m->x->tag = f->tag;
			m->x->tagged = true;
		}
		if (m->view) {
			if (!view_advance(c, m))
				break;
		} else if (!land(c, t, m, f)) {
			rx_protocol(c->net, t, rx, "a direct frame without its grant",
				    &(struct link_frame){ .msg = f->msg });
		} else {
			rx->seen = rx->cons;
		}
	}
	if (rx->discard) {
		recv_drop(c);
	} else if (c->recv_ended && c->r_head != c->r_tail) {
		/* what was sent before the end has been received; the posted rest gets the reason */
		const struct recv_msg *m = &c->rq[c->r_head % CHAN_QUEUE];
		if (rx->seen == rx->next && !m->complete)
			recv_drop(c);
	}
	chan_recv_owe_grants(c);
}

void chan_recv_end(struct chan *c, struct tick *t, struct reason why)
{
	if (!c->recv_ended) {
		c->recv_ended = true;
		c->recv_why = why;
	}
	chan_recv_advance(c, t);
}

static bool recv_post(struct chan *c, struct tick *t, const struct recv_msg *with)
{
	if (c->r_tail - c->r_head >= CHAN_QUEUE)
		return false;
	*with->x = (struct xfer){ 0 };
	c->rq[c->r_tail++ % CHAN_QUEUE] = *with;
	if (c->r_tail - c->r_head == 1)
		chan_recv_advance(c, t);
	else if (with->reg)
		chan_recv_owe_grants(c);
	return true;
}

bool chan_recv(struct chan *c, struct tick *t, void *buf, size_t max, struct xfer *x)
{
	struct recv_msg m = { .buf = buf, .max = max, .x = x };
	if (c->hops == 1 && max >= CHAN_GRANT_MIN)
		m.reg = reg_find(c->net, buf, max);
	return recv_post(c, t, &m);
}

bool chan_recv_view(struct chan *c, struct tick *t, size_t max, struct xfer *x)
{
	struct recv_msg m = { .max = max, .view = true, .x = x };
	return recv_post(c, t, &m);
}

bool chan_peek(const struct chan *c, uint64_t *tag)
{
	const struct rx *rx = &c->rx;

	if (c->r_head != c->r_tail || c->skip || rx->discard || rx->cons == rx->next)
		return false;
	*tag = rx->frame[rx->cons % rx->nframes].tag;
	return true;
}

size_t chan_view(struct chan *c, struct xfer *x, const void **p)
{
	struct rx *rx = &c->rx;
	const struct recv_msg *m = &c->rq[c->r_head % CHAN_QUEUE];
	if (c->r_head == c->r_tail || m->x != x || !m->view || rx->cons == rx->seen)
		return 0;
	const struct rx_frame *f = &rx->frame[rx->cons % rx->nframes];
	*p = rx->base + f->off % rx->window + c->fused;
	return f->len - c->fused;
}

void chan_consume(struct chan *c, struct tick *t, struct xfer *x, size_t n)
{
	struct rx *rx = &c->rx;
	struct recv_msg *m = &c->rq[c->r_head % CHAN_QUEUE];
	if (c->r_head == c->r_tail || m->x != x || !m->view)
		return; /* it has ended meanwhile */
	sircl_assert(n <= m->x->done - m->used);
	m->used += n;
	while (n) {
		uint32_t rest = rx->frame[rx->cons % rx->nframes].len - c->fused;
		uint32_t k = n < rest ? (uint32_t)n : rest;
		c->fused += k;
		n -= k;
		if (k == rest) {
			rx->cons++;
			c->fused = 0;
		}
	}
	rx_free_frames(c->net, rx, rx->cons);
	if (m->complete && m->used == m->x->len)
		view_advance(c, m);
	chan_recv_advance(c, t);
}
