/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relays: one direction of another pair's channel, straight on from one link to the other. Frames leave in
 * the channel's order, out of the window of the link they came by. Invariants: a frame goes on only inside
 * the next hop's credit; its place is free only when the next link has released it; a relay holds `window`
 * bytes, no more, and all relays of a node no more than its limit.
 */
#include <stdlib.h>
#include "link/chan_internal.h"

/* The memory that relayed frames are sent from, as the outgoing link knows it; NULL: that link stages. It is
 * the other neighbour's to write: the one at the end of the outgoing link must not reach it. */
static const struct link_mem *relay_mem(struct chan_net *net, int out)
{
	struct side *s = &net->side[out];
	if (!s->cross_tried) {
		struct arena *a = link_arena(net->side[!out].link);
		s->cross_tried = true;
		if (link_source_add(s->link, arena_base(a), arena_size(a), &s->cross) != SIRCL_SUCCESS)
			s->cross = NULL;
	}
	return s->cross;
}

/* Half of the limit goes to whole windows, the rest to those who cannot do with less and to least ones. */
static uint32_t relay_window(const struct chan_net *net, const struct slot *s)
{
	return net->st.relay_bytes + s->window > net->cfg.relay_limit / 2 ? s->least : s->window;
}

void relay_open(struct chan_net *net, struct slot *s)
{
	int in = s->h.side, out = !in;
	uint32_t window = relay_window(net, s);
	struct reason why = { .at = (uint16_t)net->cfg.self, .detail = window };
	struct relay *r = NULL;
	if (!net->side[out].link) {
		why.why = WHY_NO_WAY;
		goto refuse;
	}
	if (net->side[out].dead) {
		why.why = WHY_BROKEN;
		why.to = neighbour(net, out);
		goto refuse;
	}
	if (net->st.relay_bytes + window > net->cfg.relay_limit) {
		why.why = WHY_LIMIT;
		goto refuse;
	}
	why.why = WHY_ARENA;
	r = calloc(1, sizeof(*r));
	if (!r || rx_alloc(net, &r->rx, in, window, s->least) != SIRCL_SUCCESS)
		goto refuse;
	tx_init(&r->tx, net, out);
	if (!label_take(net, &r->tx, out)) {
		why.why = WHY_TABLE;
		rx_free(net, &r->rx, in);
		goto refuse;
	}
	(void)relay_mem(net, out);
	struct rx *rx = &r->rx;
	struct tx *tx = &r->tx;
	rx->relay = tx->relay = r;
	rx->slot = s;
	rx->bound = true;
	s->rx = rx;
	/* frames keep their numbers all the way */
	rx->next = rx->cons = rx->freed = rx->told = s->first;
	tx->fno = tx->flimit = tx->una = s->first;
	tx->src = s->src;
	tx->dst = s->dst;
	tx->id = s->id;
	tx->window = rx->alloc;
	tx->least = s->least;
	tx->nframes = rx->nframes;
	r->memory = sizeof(*r) + rx->nframes * sizeof(*rx->frame) + rx->alloc;
	r->next = net->relays;
	net->relays = r;
	net->st.relays++;
	net->st.relay_bytes += rx->alloc;
	net->st.memory_bytes += r->memory;
	hop_owe(net, &tx->h, OWE_OPEN);
	return;
refuse:
	free(r);
	slot_refuse(net, s, why);
}

void relay_accepted(struct chan_net *net, struct relay *r)
{
	struct rx *rx = &r->rx;
	if (!rx->slot || rx->slot->refused)
		return;
	/* the least window of the way, so that one size of fragment fits every hop */
	if (r->tx.window < rx->window)
		rx->window = r->tx.window;
	if (window_frames(rx->window) < rx->nframes)
		rx->nframes = window_frames(rx->window);
	rx->accepted = true;
	hop_owe(net, &rx->slot->h, OWE_ACCEPT);
}

static void relay_check_end(struct chan_net *net, struct relay *r)
{
	if (r->rx.over && !r->rx.discard && r->rx.cons == r->rx.next)
		tx_end(net, &r->tx, r->rx.fin_why);
}

enum pump relay_pump(struct chan_net *net, struct tick *t, struct relay *r)
{
	struct rx *rx = &r->rx;
	struct tx *tx = &r->tx;
	enum pump ret = PUMP_IDLE;
	while (rx->cons != rx->next && !rx->discard) {
		struct rx_frame *f = &rx->frame[rx->cons % rx->nframes];
		uint64_t place;
		if (!tx_place(net, tx, f->len, &place))
			break;
		if (!tx_turn(tx, f->len)) {
			ret = PUMP_AGAIN;
			break;
		}
		struct link_put p = {
			.frame = { .flags = f->flags, .msg = f->msg, .len = f->len, .tag = f->tag },
			.src = f->len ? rx->base + f->off % rx->window : NULL,
			.smem = net->side[tx->h.side].cross,
			/* the origin waits for this place when half of the window is taken */
			.ack_soon = f->len > CHAN_ACK_SOON &&
				    ((f->flags & CHAN_LAST) || r->held > rx->window / 2),
		};
		enum link_put_result got = tx_put(net, t, tx, &p, place, f->check);
		if (got == LINK_PUT_NO) {
			ret = PUMP_FULL;
			break;
		}
		f->state = got == LINK_PUT_DONE ? RX_RELEASED : RX_POSTED;
		rx->cons++;
		net->st.relayed_frames++;
		if (got == LINK_PUT_DONE)
			rx_free_frames(net, rx, rx->cons);
	}
	relay_check_end(net, r);
	return ret;
}

void relay_arrived(struct chan_net *net, struct tick *t, struct relay *r)
{
	if (net->held > net->st.relay_peak)
		net->st.relay_peak = net->held;
	if (r->rx.discard)
		rx_free_frames(net, &r->rx, r->rx.next);
	else if (r->rx.cons != r->rx.next)
		tx_pump_now(net, t, &r->tx);
	relay_check_end(net, r);
}

void relay_released(struct chan_net *net, struct relay *r, uint32_t fno)
{
	struct rx_frame *f = &r->rx.frame[fno % r->rx.nframes];
	sircl_assert(f->state == RX_POSTED);
	f->state = RX_RELEASED;
	rx_free_frames(net, &r->rx, r->rx.discard ? r->rx.next : r->rx.cons);
}

/* The next hop wants no more. */
void relay_stopped(struct chan_net *net, struct relay *r, struct reason why)
{
	tx_end(net, &r->tx, why);
	rx_stop(net, &r->rx, why);
	rx_free_frames(net, &r->rx, r->rx.next);
}

void relay_side_dead(struct chan_net *net, struct tick *t, struct relay *r, int side, struct reason why)
{
	struct rx *rx = &r->rx;
	struct tx *tx = &r->tx;
	if (tx->h.side != side) {
		relay_arrived(net, t, r); /* what has arrived still goes on, then the reason */
		return;
	}
	tx->state = TX_GONE;
	tx->posted = 0;
	for (uint32_t i = 0; i < rx->nframes; i++)
		if (rx->frame[i].state == RX_POSTED)
			rx->frame[i].state = RX_RELEASED;
	rx_stop(net, rx, why);
	rx_free_frames(net, rx, rx->next);
}

void relay_reap(struct chan_net *net, bool all)
{
	for (struct relay **pr = &net->relays; *pr;) {
		struct relay *r = *pr;
		if (!all && (r->rx.slot || r->tx.state != TX_GONE || r->tx.posted || r->tx.h.listed ||
			     r->tx.listed)) {
			pr = &r->next;
			continue;
		}
		*pr = r->next;
		net->held -= r->held;
		net->st.relays--;
		net->st.relay_bytes -= r->rx.alloc;
		net->st.memory_bytes -= r->memory;
		if (!all)
			rx_free(net, &r->rx, !r->tx.h.side);
		else
			free(r->rx.frame);
		free(r);
	}
}
