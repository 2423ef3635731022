/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: builders say which block travels from where in which direction over how many hops (struct flow);
 * this file turns that into one position's SENDs and RECVs, with scratch for what is only passed on.
 *
 * Order. Hop h of a flow has the time base + h * stride; a position takes all that passes it in the order of
 * time, at equal times SENDs first. No two messages of a channel and direction have the same time, so both
 * ends agree about their order. Nothing waits for anything later: a relay's SEND for the RECV of the hop
 * before, a RECV for the release of the SEND that last used its memory, which is earlier, or, where it
 * overwrites IN, no later. So these plans end with a window of one slice.
 */
#include <stdlib.h>
#include "coll/internal.h"

struct route_event {
	uint32_t t;
	uint16_t transit; /* number of the flow among those that touch this position */
	uint8_t op, chan;
};

struct route_transit {
	struct flow f;
	int hop; /* this position is so many hops from the flow's source */
	struct plan_span span; /* where its data is here, and the step after which it is there */
	int ready;
};

/* A scratch block for passing on: free after `send`, of time t. */
struct route_relay {
	struct plan_span span;
	uint32_t t;
	int send;
	bool busy;
};

void route_init(struct route *r, struct build *b)
{
	*r = (struct route){ .b = b, .idle = 2 };
	for (int i = 0; i < ROUTE_BLOCKS; i++)
		r->sent[i] = -1;
}

void route_free(struct route *r)
{
	free(r->event);
	free(r->transit);
	free(r->relay);
}

/* Room for one more element of *p. */
static bool more(struct build *b, void **p, unsigned n, size_t size)
{
	void *q;

	if (b->err)
		return false;
	if (n & (n - 1)) /* grows when n is 0 or a power of two */
		return true;
	q = realloc(*p, (n ? 2 * (size_t)n : 1) * size);
	if (!q) {
		b->err = error_set(SIRCL_NO_MEMORY, "no memory for building a plan");
		return false;
	}
	*p = q;
	return true;
}

static void event(struct route *r, uint32_t t, enum plan_op op, enum plan_chan chan, unsigned transit)
{
	if (!more(r->b, (void **)&r->event, r->nevents, sizeof(*r->event)))
		return;
	r->event[r->nevents++] = (struct route_event){ t, (uint16_t)transit, (uint8_t)op, (uint8_t)chan };
}

void route_flow(struct route *r, const struct flow *f)
{
	const struct plan_key *k = r->b->key;
	enum plan_chan to = f->dir > 0 ? PLAN_NEXT : PLAN_PREV, from = f->dir > 0 ? PLAN_PREV : PLAN_NEXT;
	int hop = f->dir * (k->pos - f->src);
	unsigned id = r->ntransits;

	if (k->shape == SHAPE_RING)
		hop = (hop + k->n) % k->n;
	if (hop < 0 || hop > f->hops || f->hops == 0 ||
	    !more(r->b, (void **)&r->transit, r->ntransits, sizeof(*r->transit)))
		return;
	r->transit[r->ntransits++] = (struct route_transit){ *f, hop, f->from, f->ready };
	if (hop > 0)
		event(r, f->base + (uint32_t)hop * f->stride, PLAN_RECV, from, id);
	if (hop < f->hops)
		event(r, f->base + (uint32_t)(hop + 1) * f->stride, PLAN_SEND, to, id);
}

static int by_time(const void *x, const void *y)
{
	const struct route_event *a = x, *b = y;

	if (a->t != b->t)
		return a->t < b->t ? -1 : 1;
	if (a->op != b->op)
		return a->op == PLAN_SEND ? -1 : 1;
	return (int)a->chan - (int)b->chan;
}

/*
 * A scratch block like `as`, to be written at time t: of those whose last SEND is earlier the oldest, if some
 * others stay idle (so that it seldom has to wait for the release), else a new one. Its number, or -1.
 */
static int relay_take(struct route *r, uint32_t t, uint16_t as)
{
	int best = -1;
	unsigned idle = 0;

	for (unsigned i = 0; i < r->nrelays; i++) {
		const struct route_relay *x = &r->relay[i];

		if (x->busy || x->span.as != as || x->t >= t)
			continue;
		idle++;
		if (best < 0 || x->t < r->relay[best].t)
			best = (int)i;
	}
	if (best < 0 || idle <= r->idle) {
		if (!more(r->b, (void **)&r->relay, r->nrelays, sizeof(*r->relay)))
			return -1;
		best = (int)r->nrelays++;
		r->relay[best] = (struct route_relay){ .span = build_scratch(r->b, as), .send = -1 };
	}
	r->relay[best].busy = true;
	return best;
}

struct plan_span route_scratch(struct route *r, uint32_t t, uint16_t as, int *last_send)
{
	int i = relay_take(r, t, as);

	*last_send = i >= 0 ? r->relay[i].send : -1;
	return i >= 0 ? r->relay[i].span : build_out(0);
}

void route_scratch_sent(struct route *r, uint32_t t, struct plan_span span, int send)
{
	for (unsigned i = 0; i < r->nrelays; i++) {
		struct route_relay *x = &r->relay[i];

		if (x->span.block != span.block)
			continue;
		x->busy = false;
		x->t = t;
		x->send = send;
	}
}

static void receive(struct route *r, const struct route_event *e, struct route_transit *x)
{
	const struct flow *f = &x->f;
	bool here = x->hop == f->hops || f->all;
	int last = -1;

	if (!here)
		x->span = route_scratch(r, e->t, f->as, &last);
	else if (f->into.buf == PLAN_SCRATCH)
		x->span = build_scratch(r->b, f->as);
	else
		x->span = f->into;
	x->ready = build_recv(r->b, (enum plan_chan)e->chan, x->span);
	build_released(r->b, x->ready, last);
	if (here && f->into.buf == PLAN_OUT)
		build_released(r->b, x->ready, r->sent[f->into.block]);
	if (here && f->into.buf == PLAN_SCRATCH)
		r->got[f->part][f->src] = (struct held){ x->span, x->ready };
}

static void pass_on(struct route *r, const struct route_event *e, const struct route_transit *x)
{
	int send = build_send(r->b, (enum plan_chan)e->chan, x->span);
	const struct plan *p = r->b->plan;

	build_after(r->b, send, x->ready);
	if (x->span.buf == PLAN_SCRATCH)
		route_scratch_sent(r, e->t, x->span, send);
	else if (x->span.buf == PLAN_IN && !p->in_part && !p->out_part)
		r->sent[x->span.block] = send;
}

void route_run(struct route *r)
{
	if (!r->b->err && r->nevents)
		qsort(r->event, r->nevents, sizeof(*r->event), by_time);
	for (unsigned i = 0; i < r->nevents && !r->b->err; i++) {
		const struct route_event *e = &r->event[i];

		if (e->op == PLAN_RECV)
			receive(r, e, &r->transit[e->transit]);
		else
			pass_on(r, e, &r->transit[e->transit]);
	}
	r->nevents = r->ntransits = 0;
}
