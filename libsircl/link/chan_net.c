/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's channels and relays over its two links: what the links call, progress, registered memory, numbers.
 * Nothing is freed while links call back; chan_net_progress frees at its end.
 */
#include <stdlib.h>
#include <string.h>
#include "link/chan_internal.h"

#ifdef SIRCL_PLANT
unsigned chan_plant; /* set by a test program before it opens anything */
#endif

sircl_result_t chan_net_create(const struct chan_net_cfg *cfg, struct chan_net **out)
{
	*out = NULL;
	if (cfg->n < 1 || cfg->n > 65535 || cfg->self < 0 || cfg->self >= cfg->n)
		return error_set(SIRCL_INVALID_ARGUMENT, "position %d of %d", cfg->self, cfg->n);
	struct chan_net *net = calloc(1, sizeof(*net));
	if (!net)
		return error_set(SIRCL_NO_MEMORY, "no memory for the channels of rank %d", cfg->ctx->rank);
	net->seen = calloc((size_t)cfg->n, sizeof(*net->seen));
	if (!net->seen) {
		free(net);
		return error_set(SIRCL_NO_MEMORY, "no memory for the channels of rank %d", cfg->ctx->rank);
	}
	net->cfg = *cfg;
	net->checksum = param_num(&cfg->ctx->params, PARAM_CHECKSUM) != 0;
	net->st.relay_limit = cfg->relay_limit;
	net->st.memory_bytes = sizeof(*net) + (size_t)cfg->n * sizeof(*net->seen);
	for (int i = 0; i < LINK_SIDES; i++) {
		struct side *s = &net->side[i];
		s->ctl_end = &s->ctl;
		s->data_end = &s->data;
		s->free_count = CHAN_LABELS;
		for (uint32_t k = 0; k < CHAN_LABELS; k++) {
			s->free_label[k] = (uint16_t)k;
			s->slot[k].h.side = (uint8_t)i;
		}
	}
	*out = net;
	return SIRCL_SUCCESS;
}

static void net_deliver(void *user, struct link *l, struct tick *t, const struct link_frame *f)
{
	struct chan_net *net = user;
	int side = side_of(net, l);
	net->now = t->now;
	if (!net->side[side].dead)
		ctl_deliver(net, t, side, f);
}

static void net_released(void *user, struct link *l, void *owner, uint32_t fno)
{
	struct chan_net *net = user;
	/* once a link is dead its owners are given up, and may be freed */
	if (owner && !net->side[side_of(net, l)].dead)
		tx_released(net, owner, fno);
}

static void net_region(void *user, struct link *l, uint16_t region, uint64_t len)
{
	struct chan_net *net = user;
	struct side *s = &net->side[side_of(net, l)];
	if (region < LANE_REGIONS_MAX)
		s->region_len[region] = len;
}

/* Every lane of the link is fenced: nothing can land, nothing is read. */
static void side_ends(struct chan_net *net, int side, enum chan_why reason)
{
	struct side *s = &net->side[side];
	struct tick t = { .now = net->now };
	struct reason why = { .why = reason, .at = (uint16_t)net->cfg.self, .to = neighbour(net, side) };
	if (s->dead)
		return;
	s->dead = true;
	net->ended = true;
	for (; s->ctl; s->ctl = s->ctl->next) {
		s->ctl->listed = false;
		s->ctl->owed = 0;
	}
	for (; s->data; s->data = s->data->next)
		s->data->listed = false;
	s->ctl_end = &s->ctl;
	s->data_end = &s->data;
	notice_side_dead(net, side);
	for (uint32_t i = 0; i < CHAN_LABELS; i++) {
		struct rx *rx = s->slot[i].used ? s->slot[i].rx : NULL;
		if (rx && !rx->over) {
			/* what has arrived in order is good; there will be no more */
			rx->fin = rx->over = true;
			rx->fin_fno = rx->next;
			rx->fin_why = why;
		}
		if (s->slot[i].used)
			slot_clear(net, &s->slot[i]);
	}
	for (struct chan *c = net->chans; c; c = c->next)
		if (c->cfg.via == (enum link_side)side)
			chan_side_dead(c, &t, why);
	for (struct relay *r = net->relays; r; r = r->next)
		relay_side_dead(net, &t, r, side, why);
	net->reap = true;
	if (reason == WHY_BROKEN)
		chan_net_notify(net, &t, NOTICE_DEAD, why.to, SIRCL_REMOTE_ERROR, 0);
}

static void net_dead(void *user, struct link *l)
{
	struct chan_net *net = user;

	side_ends(net, side_of(net, l), WHY_BROKEN);
}

static void net_left(void *user, struct link *l)
{
	struct chan_net *net = user;

	side_ends(net, side_of(net, l), WHY_LEFT);
}

const struct link_user_ops *chan_net_link_ops(void)
{
	static const struct link_user_ops ops = { .deliver = net_deliver,
						  .released = net_released,
						  .region = net_region,
						  .dead = net_dead,
						  .left = net_left };
	return &ops;
}

void chan_net_set_link(struct chan_net *net, enum link_side side, struct link *l)
{
	net->side[side].link = l;
	if (l && net->side[!side].link)
		link_beside(l, net->side[!side].link);
}

struct link *chan_net_link(const struct chan_net *net, enum link_side side)
{
	return net->side[side].link;
}

bool chan_net_progress(struct chan_net *net, struct tick *t)
{
	bool busy = false;
	net->now = t->now;
	for (int i = 0; i < LINK_SIDES; i++)
		if (net->side[i].link)
			busy |= link_progress(net->side[i].link, t);
	for (int i = 0; i < LINK_SIDES; i++) {
		struct side *s = &net->side[i];
		if (!s->link || s->dead || !(s->ctl || s->data || net->notices_owed))
			continue;
		s->full = false;
		bool had = s->ctl || (net->notices_owed >> i & 1);
		ctl_flush(net, t, i);
		if (!s->full)
			notice_flush(net, t, i);
		busy |= had && !s->full;
		if (!s->full)
			busy |= data_flush(net, t, i);
	}
	if (net->reap) {
		net->reap = false;
		chan_reap(net);
		relay_reap(net, false);
	}
	net->now = t->now;
	busy |= net->ended;
	net->ended = false;
	return busy;
}

static bool side_pending(const struct chan_net *net, int i)
{
	const struct side *s = &net->side[i];
	return s->link && !s->dead && (s->ctl || s->data || (net->notices_owed >> i & 1));
}

uint64_t chan_net_deadline(const struct chan_net *net)
{
	uint64_t d = NEVER;
	for (int i = 0; i < LINK_SIDES; i++) {
		if (net->side[i].link)
			d = tick_min(d, link_deadline(net->side[i].link));
		/* a link without room (window full, no lane up) says itself when to call it; with room it
		 * refused for want of a lane's or its own memory, which comes back unannounced */
		if (side_pending(net, i) && !net->side[i].full)
			d = tick_min(d, net->now);
		else if (side_pending(net, i) && link_room(net->side[i].link))
			d = tick_min(d, net->now + CHAN_RETRY);
	}
	return net->reap ? tick_min(d, net->now) : d;
}

int chan_net_arm(struct chan_net *net, struct pollfd *fds, int max)
{
	int n = 0;
	for (int i = 0; i < LINK_SIDES; i++) {
		if (!net->side[i].link)
			continue;
		if (side_pending(net, i) && !net->side[i].full)
			return -1;
		int k = link_arm(net->side[i].link, fds + n, max - n);
		if (k < 0)
			return -1;
		n += k;
	}
	return n;
}

bool chan_net_met(const struct chan_net *net)
{
	for (const struct chan *c = net->chans; c; c = c->next)
		if (!c->closed && !c->met)
			return false;
	return true;
}

void chan_net_destroy(struct chan_net *net)
{
	if (!net)
		return;
	/* links may be closed already: their arenas, and the windows in them, are not touched */
	while (net->chans) {
		struct chan *c = net->chans;
		net->chans = c->next;
		for (uint32_t i = c->s_head; i != c->s_tail; i++)
			if (c->sq[i % CHAN_QUEUE].x)
				c->sq[i % CHAN_QUEUE].x->err = SIRCL_ABORTED;
		for (uint32_t i = c->r_head; i != c->r_tail; i++)
			if (c->rq[i % CHAN_QUEUE].x)
				c->rq[i % CHAN_QUEUE].x->err = SIRCL_ABORTED;
		chan_free(c, false);
	}
	relay_reap(net, true);
	free(net->seen);
	free(net);
}

const struct reg *reg_find(const struct chan_net *net, const void *p, size_t n)
{
	const uint8_t *b = p;
	for (int i = 0; i < net->nreg; i++) {
		const struct reg *r = &net->reg[i];
		if (r->p && b >= r->p && n <= r->len && (size_t)(b - r->p) <= r->len - n)
			return r;
	}
	return NULL;
}

sircl_result_t chan_net_register(struct chan_net *net, struct tick *t, void *p, size_t n)
{
	uint8_t *b = p;
	struct reg *r = NULL;
	sircl_result_t ret;
	if (!p || n == 0)
		return error_set(SIRCL_INVALID_ARGUMENT, "registering %zu bytes at %p", n, p);
	for (int i = 0; i < net->nreg; i++) {
		struct reg *o = &net->reg[i];
		if (o->p && b < o->p + o->len && o->p < b + n)
			return error_set(SIRCL_INVALID_USAGE,
					 "[%p, +%zu) overlaps [%p, +%zu), which is registered", p, n,
					 (void *)o->p, o->len);
		if (!o->p && !r)
			r = o;
	}
	if (!r && net->nreg == CHAN_REGS)
		return error_set(SIRCL_NO_MEMORY, "%d ranges are registered already; deregister some",
				 CHAN_REGS);
	if (!r)
		r = &net->reg[net->nreg++];
	*r = (struct reg){ 0 };
	for (int i = 0; i < LINK_SIDES; i++)
		if (net->side[i].link && !net->side[i].dead)
			CHECK_GOTO(link_region_add(net->side[i].link, t, p, n, &r->mem[i]), err_regions);
	r->p = p;
	r->len = n;
	return SIRCL_SUCCESS;
err_regions:
	for (int i = 0; i < LINK_SIDES; i++)
		if (r->mem[i])
			(void)link_region_remove(net->side[i].link, t, r->mem[i]);
	return ret;
}

static bool reg_in_use(const struct chan_net *net, const struct reg *r)
{
	for (const struct chan *c = net->chans; c; c = c->next) {
		for (uint32_t i = c->s_head; i != c->s_tail; i++) {
			const struct send_msg *m = &c->sq[i % CHAN_QUEUE];
			if (m->len && (const uint8_t *)m->src < r->p + r->len &&
			    r->p < (const uint8_t *)m->src + m->len)
				return true;
		}
		for (uint32_t i = c->r_head; i != c->r_tail; i++)
			if (c->rq[i % CHAN_QUEUE].reg == r)
				return true;
	}
	return false;
}

sircl_result_t chan_net_deregister(struct chan_net *net, struct tick *t, void *p)
{
	struct reg *r = NULL;
	for (int i = 0; i < net->nreg; i++)
		if (net->reg[i].p == p && p)
			r = &net->reg[i];
	if (!r)
		return error_set(SIRCL_INVALID_USAGE, "%p is not the beginning of registered memory", p);
	if (reg_in_use(net, r))
		return error_set(
			SIRCL_INVALID_USAGE,
			"[%p, +%zu) is used by a transfer that has not ended; deregister it afterwards", p,
			r->len);
	for (int i = 0; i < LINK_SIDES; i++) {
		if (r->mem[i] && net->side[i].link && !net->side[i].dead)
			CHECK(link_region_remove(net->side[i].link, t, r->mem[i]));
		r->mem[i] = NULL; /* said again after a failure, it goes on with the other link */
	}
	r->p = NULL;
	return SIRCL_SUCCESS;
}

void chan_net_stats(const struct chan_net *net, struct chan_net_stats *out)
{
	*out = net->st;
}
