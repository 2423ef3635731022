/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of channels: opening, meeting the peer's end, ending. The two directions of a channel are opened and
 * ended each on its own; an end that was refused or broken ends the other direction too, so that both users
 * hear of it. Invariant: a transfer ends with an error only when no put can land in its buffer and no lane
 * reads its source: staged receives at once, granted ones when all frames that the sender counts in its FIN
 * are here (or the link is dead, which means fenced), sends when the frames already put are released.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "link/chan_internal.h"

sircl_result_t reason_code(const struct reason *r)
{
	switch (r->why) {
	case WHY_LIMIT:
	case WHY_ARENA:
	case WHY_TABLE:
		return SIRCL_NO_MEMORY;
	case WHY_PROTOCOL:
		return SIRCL_INTERNAL_ERROR;
	case WHY_DAMAGED:
		return SIRCL_SYSTEM_ERROR;
	default:
		return SIRCL_REMOTE_ERROR;
	}
}

void chan_fail(struct chan *c, const struct reason *r)
{
	const struct chan_net *net = c->net;
	const struct sircl_error *le;
	char text[256] = "";
	int at = rank_at(net, r->at), to = rank_at(net, r->to);
	if (c->err.code != SIRCL_SUCCESS)
		return;
	switch (r->why) {
	case WHY_CLOSED:
		snprintf(text, sizeof(text), "rank %d has closed it", at);
		break;
	case WHY_BROKEN:
		le = net->side[c->cfg.via].link ? link_error(net->side[c->cfg.via].link) : NULL;
		if (r->at == net->cfg.self && le && le->msg[0]) {
			c->err = *le;
			c->err.code = SIRCL_REMOTE_ERROR;
			return;
		}
		snprintf(text, sizeof(text),
			 "rank %d has lost its cable to rank %d, which this channel passes; see the log of "
			 "rank %d for the lanes",
			 at, to, at);
		break;
	case WHY_LEFT:
		snprintf(text, sizeof(text),
			 "rank %d has destroyed its communicator, and this channel passes it; every rank "
			 "must stay "
			 "until all have called sircl_comm_finalize or sircl_comm_destroy",
			 to);
		break;
	case WHY_LIMIT:
		snprintf(text, sizeof(text),
			 "rank %d would have to relay it and has no relay memory left for %llu bytes more; "
			 "lower SIRCL_RELAY_WINDOW or open fewer channels between ranks that are not "
			 "neighbours",
			 at, (unsigned long long)r->detail);
		break;
	case WHY_ARENA:
		snprintf(text, sizeof(text),
			 "rank %d has no receive memory left on that link for a window of %llu bytes; lower "
			 "SIRCL_WINDOW or open fewer channels",
			 at, (unsigned long long)r->detail);
		break;
	case WHY_NO_WAY:
		snprintf(text, sizeof(text),
			 "the line of cables ends at rank %d; the other direction may have a way", at);
		break;
	case WHY_DAMAGED:
		snprintf(text, sizeof(text),
			 "what rank %d got from rank %d over lane %u of their cable is not what was sent "
			 "(SIRCL_CHECKSUM): memory, cable or adapter is bad at one of them",
			 at, to, (unsigned)r->detail);
		break;
	case WHY_TABLE:
		snprintf(text, sizeof(text), "rank %d passes %u channels on that link already; close some",
			 at, CHAN_LABELS);
		break;
	default:
		snprintf(text, sizeof(text),
			 "rank %d has read a frame that must not be; this is a defect in the library or a "
			 "mixture of versions",
			 at);
	}
	(void)error_set(reason_code(r), "channel %u from rank %d to rank %d: %s", c->cfg.id,
			net->cfg.ctx->rank, rank_at(net, c->cfg.peer), text);
	c->err = *error_last();
}

struct tomb *tomb_find(struct chan_net *net, int side, uint32_t id, uint16_t peer, bool closed_here)
{
	for (uint32_t i = 0; i < CHAN_TOMBS; i++) {
		struct tomb *t = &net->tomb[(net->tomb_next + i) % CHAN_TOMBS];
		if (t->used && t->closed_here == closed_here && t->side == side && t->id == id &&
		    t->peer == peer)
			return t;
	}
	return NULL;
}

void tomb_add(struct chan_net *net, int side, uint32_t id, uint16_t peer, bool closed_here, struct reason why)
{
	net->tomb[net->tomb_next++ % CHAN_TOMBS] = (struct tomb){ .used = true,
								  .closed_here = closed_here,
								  .side = (uint8_t)side,
								  .peer = peer,
								  .id = id,
								  .why = why };
}

struct chan *chan_waiting(struct chan_net *net, int side, uint32_t id, uint16_t peer)
{
	struct chan *found = NULL; /* the list has the newest first */
	for (struct chan *c = net->chans; c; c = c->next)
		if (!c->met && c->cfg.via == (enum link_side)side && c->cfg.id == id && c->cfg.peer == peer)
			found = c;
	return found;
}

void chan_bind(struct chan *c, struct slot *s)
{
	struct rx *rx = &c->rx;
	c->met = true;
	if (c->closed || c->recv_ended) {
		slot_refuse(c->net, s,
			    c->closed ? (struct reason){ .why = WHY_CLOSED, .at = (uint16_t)c->net->cfg.self }
				      : c->recv_why);
		return;
	}
	if (s->window < rx->window) {
		rx->window = s->window;
		rx->nframes = window_frames(s->window);
	}
	rx->next = rx->cons = rx->freed = rx->seen = rx->told = rx->msg = s->first;
	rx->slot = s;
	rx->bound = rx->accepted = true;
	s->rx = rx;
	hop_owe(c->net, &s->h, OWE_ACCEPT);
	chan_recv_owe_grants(c);
}

int chan_net_hops(const struct chan_net *net, uint16_t peer, enum link_side via)
{
	int d = via == LINK_NEXT ? peer - net->cfg.self : net->cfg.self - peer;
	if (d < 0)
		d = net->cfg.ring ? d + net->cfg.n : 0;
	return d;
}

static sircl_result_t chan_check(struct chan_net *net, const struct chan_cfg *cfg)
{
	static const char *const name[] = { "NEXT", "PREV" };
	if (cfg->via >= LINK_SIDES || cfg->peer >= net->cfg.n || cfg->peer == net->cfg.self)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "channel %u: no way %d to position %u of %d from position %d", cfg->id,
				 (int)cfg->via, cfg->peer, net->cfg.n, net->cfg.self);
	if (!net->side[cfg->via].link || chan_net_hops(net, cfg->peer, cfg->via) == 0)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "channel %u: rank %d has no way to rank %d by %s; on a line only one "
				 "direction leads there",
				 cfg->id, net->cfg.ctx->rank, rank_at(net, cfg->peer), name[cfg->via]);
	if (cfg->window < 4096 || cfg->window % 4096 || cfg->window > 1u << 30)
		return error_set(
			SIRCL_INVALID_ARGUMENT,
			"channel %u: a window of %u bytes; it must be a multiple of 4096, at most 1 GiB",
			cfg->id, cfg->window);
	for (const struct chan *c = net->chans; c; c = c->next)
		if (!c->closed && c->cfg.id == cfg->id && c->cfg.peer == cfg->peer && c->cfg.via == cfg->via)
			return error_set(SIRCL_INVALID_USAGE, "channel %u to rank %d by %s is open already",
					 cfg->id, rank_at(net, cfg->peer), name[cfg->via]);
	if (net->side[cfg->via].dead) {
		const struct sircl_error *le = link_error(net->side[cfg->via].link);
		return error_set(SIRCL_REMOTE_ERROR, "%s", le && le->msg[0] ? le->msg : "the link is dead");
	}
	return SIRCL_SUCCESS;
}

void chan_free(struct chan *c, bool windows)
{
	if (windows)
		rx_free(c->net, &c->rx, c->cfg.via);
	free(c->rx.frame);
	free(c->tx.frame);
	free(c->sq);
	free(c->rq);
	free(c);
}

/* What the peer has done already: opened, or opened and closed. */
static void chan_meet(struct chan *c)
{
	struct chan_net *net = c->net;
	struct slot *oldest = NULL;
	struct tomb *tomb = tomb_find(net, c->cfg.via, c->cfg.id, c->cfg.peer, false);
	if (tomb) {
		tomb->used = false;
		c->met = c->recv_ended = true;
		c->recv_why = tomb->why;
		return;
	}
	for (uint32_t i = 0; i < CHAN_LABELS; i++) {
		struct slot *s = &net->side[c->cfg.via].slot[i];
		if (s->used && s->opened && !s->refused && !s->fin && !s->rx && s->id == c->cfg.id &&
		    s->src == c->cfg.peer && s->dst == net->cfg.self && (!oldest || s->order < oldest->order))
			oldest = s;
	}
	if (oldest)
		chan_bind(c, oldest);
}

sircl_result_t chan_open(struct chan_net *net, struct tick *t, const struct chan_cfg *cfg, struct chan **out)
{
	sircl_result_t ret;
	uint32_t nframes = window_frames(cfg->window);
	uint32_t least = cfg->least && cfg->least < cfg->window ? cfg->least : cfg->window;
	*out = NULL;
	CHECK(chan_check(net, cfg));
	struct chan *c = calloc(1, sizeof(*c));
	if (!c)
		return error_set(SIRCL_NO_MEMORY, "channel %u to rank %d: no memory", cfg->id,
				 rank_at(net, cfg->peer));
	*c = (struct chan){ .net = net, .cfg = *cfg, .hops = chan_net_hops(net, cfg->peer, cfg->via) };
	c->sq = calloc(CHAN_QUEUE, sizeof(*c->sq));
	c->rq = calloc(CHAN_QUEUE, sizeof(*c->rq));
	c->tx.frame = calloc(nframes, sizeof(*c->tx.frame));
	tx_init(&c->tx, net, cfg->via);
	if (!c->sq || !c->rq || !c->tx.frame ||
	    rx_alloc(net, &c->rx, cfg->via, cfg->window, least) != SIRCL_SUCCESS) {
		ret = error_set(SIRCL_NO_MEMORY,
				"channel %u to rank %d: no receive memory left on the link for a window of "
				"%u bytes (%zu of %zu in use); "
				"lower SIRCL_WINDOW or open fewer channels",
				cfg->id, rank_at(net, cfg->peer), least,
				arena_used(link_arena(net->side[cfg->via].link)),
				arena_size(link_arena(net->side[cfg->via].link)));
		goto err_chan;
	}
	if (!label_take(net, &c->tx, cfg->via)) {
		ret = error_set(SIRCL_NO_MEMORY,
				"channel %u to rank %d: the link has %u channels already; close some",
				cfg->id, rank_at(net, cfg->peer), CHAN_LABELS);
		goto err_window;
	}
	c->tx.chan = c->rx.chan = c;
	c->tx.id = cfg->id;
	c->tx.src = (uint16_t)net->cfg.self;
	c->tx.dst = cfg->peer;
	c->tx.window = cfg->window;
	c->tx.least = least;
	c->tx.nframes = nframes;
	c->memory = sizeof(*c) + CHAN_QUEUE * (sizeof(*c->sq) + sizeof(*c->rq)) +
		    nframes * (sizeof(*c->tx.frame) + sizeof(*c->rx.frame)) + c->rx.alloc;
	c->next = net->chans;
	net->chans = c;
	net->st.channels++;
	net->st.memory_bytes += c->memory;
	hop_owe(net, &c->tx.h, OWE_OPEN);
	chan_meet(c);
	ctl_flush(net, t, cfg->via);
	*out = c;
	return SIRCL_SUCCESS;
err_window:
	rx_free(net, &c->rx, cfg->via);
err_chan:
	chan_free(c, false);
	return ret;
}

void chan_stopped(struct chan *c, struct tick *t, struct reason why)
{
	if (why.why != WHY_CLOSED)
		chan_fail(c, &why);
	tx_end(c->net, &c->tx, why);
	chan_send_end(c, why);
	if (!c->rx.bound) {
		/* the peer's end was never accepted by us, so it has sent nothing and will not */
		chan_recv_end(c, t, why);
	} else if (why.why != WHY_CLOSED && why.why != WHY_BROKEN) {
		/* one way was refused: the other is of no use, and its sender must hear of it */
		rx_stop(c->net, &c->rx, why);
		chan_recv_end(c, t, why);
	}
}

void chan_side_dead(struct chan *c, struct tick *t, struct reason why)
{
	chan_fail(c, &why);
	c->tx.state = TX_GONE;
	c->tx.posted = 0;
	c->tx.una = c->tx.fno;
	c->met = true;
	chan_send_end(c, why);
	chan_recv_end(c, t, why);
	c->net->reap = true;
}

void chan_close(struct chan *c, struct tick *t)
{
	struct chan_net *net = c->net;
	struct reason why = { .why = WHY_CLOSED, .at = (uint16_t)net->cfg.self };
	sircl_assert(!c->closed);
	c->closed = true;
	tx_end(net, &c->tx, why);
	chan_send_end(c, why);
	rx_stop(net, &c->rx, why);
	chan_recv_end(c, t, why);
	net->reap = true;
	if (!net->side[c->cfg.via].dead)
		ctl_flush(net, t, c->cfg.via);
}

/* Frees what has ended on the wire and for the user. */
void chan_reap(struct chan_net *net)
{
	for (struct chan **pc = &net->chans; *pc;) {
		struct chan *c = *pc;
		const struct tx *tx = &c->tx;
		if (!c->closed || tx->state != TX_GONE || tx->posted || tx->h.listed || tx->listed ||
		    c->rx.slot || c->s_head != c->s_tail || c->r_head != c->r_tail) {
			pc = &c->next;
			continue;
		}
		if (!c->met)
			tomb_add(net, c->cfg.via, c->cfg.id, c->cfg.peer, true, c->send_why);
		*pc = c->next;
		net->st.channels--;
		net->st.memory_bytes -= c->memory;
		chan_free(c, true);
	}
}

bool chan_is_open(const struct chan *c)
{
	return c->tx.state == TX_OPEN || c->rx.bound;
}

const struct sircl_error *chan_error(const struct chan *c)
{
	return &c->err;
}

int chan_hops(const struct chan *c)
{
	return c->hops;
}

size_t chan_memory(const struct chan *c)
{
	return c->memory;
}
