// SPDX-License-Identifier: Apache-2.0
/*
 * The simulator's world: a heap of events in virtual time, nodes with a CPU each, cables. One thread; the
 * order of events, and so everything, follows from the seed. A node's program runs at an instant of the
 * world; what it spends (struct tick) makes its CPU busy, and whatever it posts happens at its own time.
 * World time never goes backwards.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lane/sim_internal.h"

#define SIM_POLL_NS 50 /* least time between two calls of a program that asks to be called at once */

const struct sim_fabric sim_hostile = {
	.cost = { .fixed_ns = { 100, 100, 20, 20, 100 }, .per_byte_ps = { 0, 0, 50, 50, 0 } },
	.latency_ns = 1500,
	.jitter_ns = 12000,
	.pieces = 4,
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t sim_random(struct sim *s, uint64_t below)
{
	s->rng += 0x9e3779b97f4a7c15ull;
	return below ? mix(s->rng) % below : 0;
}

uint64_t sim_late(struct sim *s)
{
	uint64_t top = 1000ull << sim_random(s, 15); /* 1 us .. 16 ms */

	return top + sim_random(s, top);
}

/* The heap: binary, by (time, seq). */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

static void sift_up(struct sim_event *h, uint32_t i)
{
	struct sim_event e = h[i];

	while (i > 0 && before(&e, &h[(i - 1) / 2])) {
		h[i] = h[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h[i] = e;
}

static void sift_down(struct sim_event *h, uint32_t n, uint32_t i)
{
	struct sim_event e = h[i];
	uint32_t c;

	while ((c = 2 * i + 1) < n) {
		if (c + 1 < n && before(&h[c + 1], &h[c]))
			c++;
		if (!before(&h[c], &e))
			break;
		h[i] = h[c];
		i = c;
	}
	h[i] = e;
}

void sim_push(struct sim *s, uint64_t time, enum sim_event_kind kind, void *p, uint32_t gen, unsigned arg)
{
	if (s->nheap == s->room) {
		s->room = s->room ? 2 * s->room : 1024;
		s->heap = realloc(s->heap, s->room * sizeof(*s->heap));
		sircl_assert(s->heap != NULL);
	}
	s->heap[s->nheap] = (struct sim_event){
		.time = time < s->now ? s->now : time,
		.seq = s->seq++,
		.p = p,
		.gen = gen,
		.arg = (uint16_t)arg,
		.kind = (uint8_t)kind,
	};
	sift_up(s->heap, s->nheap++);
}

static struct sim_event take(struct sim *s, uint32_t i)
{
	struct sim_event e = s->heap[i];

	s->heap[i] = s->heap[--s->nheap];
	if (i < s->nheap) {
		sift_up(s->heap, i);
		sift_down(s->heap, s->nheap, i);
	}
	return e;
}

sircl_result_t sim_create(struct sim **out, const struct sim_fabric *f, uint64_t seed)
{
	struct sim *s = calloc(1, sizeof(*s));

	*out = NULL;
	if (!s)
		return error_set(SIRCL_NO_MEMORY, "no memory for a simulator");
	s->fabric = *f;
	if (s->fabric.pieces < 1)
		s->fabric.pieces = 1;
	if (s->fabric.pieces > SIM_PIECES_MAX)
		s->fabric.pieces = SIM_PIECES_MAX;
	s->seed = seed;
	s->rng = mix(seed + 0x9e3779b97f4a7c15ull);
	s->kill_at = NEVER;
	s->lane_rate = f->lane_gbps / 8;
	s->domain_rate = f->domain_gbps / 8;
	s->tx_rate = f->host_tx_gbs;
	s->rx_rate = f->host_rx_gbs;
	s->rated = s->lane_rate > 0 || s->domain_rate > 0 || s->tx_rate > 0 || s->rx_rate > 0;
	*out = s;
	return SIRCL_SUCCESS;
}

void sim_destroy(struct sim *s)
{
	if (!s)
		return;
	for (struct sim_wire *w = s->wires, *next; w; w = next) {
		next = w->next;
		wire_free(w);
	}
	for (uint32_t i = 0; i < s->nheap; i++) { /* what only an event knew of */
		const struct sim_event *e = &s->heap[i];

		if (e->kind == SE_PIECE || e->kind == SE_ARRIVE)
			wire_unref(e->p);
		else if (e->kind == SE_MESSAGE)
			free(e->p);
	}
	for (struct flight *f = s->spare, *next; f; f = next) {
		next = f->next;
		free(f->copy);
		free(f);
	}
	for (struct sim_message *m = s->spare_message, *next; m; m = next) {
		next = m->next;
		free(m);
	}
	for (struct sim_wire *w = s->wires, *next; w; w = next) {
		next = w->next;
		free(w);
	}
	for (int i = 0; i < s->nnodes; i++)
		free(s->node[i]);
	free(s->node);
	free(s->heap);
	free(s);
}

uint64_t sim_here(const struct sim *s)
{
	return s->running ? s->running->now : s->now;
}

uint64_t sim_clock(void *sim)
{
	return sim_here(sim);
}

uint64_t sim_now(const struct sim *s)
{
	return s->now;
}

uint64_t sim_events(const struct sim *s)
{
	return s->nevents;
}

uint64_t sim_puts(const struct sim *s)
{
	return s->puts;
}

uint64_t sim_seed(const struct sim *s)
{
	return s->seed;
}

uint64_t sim_trace(const struct sim *s)
{
	return s->trace;
}

uint64_t sim_in_flight(const struct sim *s)
{
	return s->flights;
}

void sim_on_violation(struct sim *s, void (*tell)(void *, const char *), void *arg)
{
	s->tell = tell;
	s->tell_arg = arg;
}

void sim_violation(struct sim *s, const char *fmt, ...)
{
	char text[320];
	int n = snprintf(text, sizeof(text), "seed %llu, %llu ns, event %llu: ", (unsigned long long)s->seed,
			 (unsigned long long)s->now, (unsigned long long)s->nevents);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	if (s->tell) {
		s->tell(s->tell_arg, text);
		return;
	}
	fprintf(stderr, "lane/sim: %s\n", text);
	abort();
}

int sim_node(struct sim *s, const struct sim_program *p)
{
	struct sim_node *n = calloc(1, sizeof(*n));
	struct sim_node **more = realloc(s->node, (size_t)(s->nnodes + 1) * sizeof(struct sim_node *));

	sircl_assert(n != NULL && more != NULL);
	s->node = more;
	s->node[s->nnodes] = n;
	n->sim = s;
	n->number = s->nnodes++;
	n->cost = s->fabric.cost;
	n->run_at = n->run_seq = NEVER;
	if (p)
		n->program = *p;
	sim_wake_node(n, s->now);
	return n->number;
}

void sim_cable_lane(struct sim *s, int cable, int lane, int a, int b, struct sim_port **at_a,
		    struct sim_port **at_b)
{
	struct sim_wire *w = calloc(1, sizeof(*w)), **link = &s->wires;

	sircl_assert(w != NULL && a != b && a < s->nnodes && b < s->nnodes && !sim_wire_of(s, cable, lane));
	w->sim = s;
	w->cable = cable;
	w->lane = lane;
	w->rate = s->lane_rate;
	for (int i = 0; i < 2; i++) {
		w->end[i].sim = s;
		w->end[i].wire = w;
		w->end[i].end = i;
		w->end[i].node = s->node[i ? b : a];
	}
	while (*link) {
		link = &(*link)->next;
		w->number++;
	}
	*link = w;
	*at_a = &w->end[0];
	*at_b = &w->end[1];
}

void sim_lane_rate(struct sim *s, int cable, int lane, double gbps)
{
	sircl_assert(s->rated && gbps > 0);
	sim_wire_of(s, cable, lane)->rate = gbps / 8;
}

struct sim_wire *sim_wire_of(struct sim *s, int cable, int lane)
{
	struct sim_wire *w = s->wires;

	while (w && (w->cable != cable || w->lane != lane))
		w = w->next;
	return w;
}

/* A node has at most one SE_RUN that counts: the earliest. Others in the heap are stale and do nothing. */
void sim_wake_node(struct sim_node *n, uint64_t when)
{
	if (when < n->free_at)
		when = n->free_at;
	if (when < n->frozen_until)
		when = n->frozen_until;
	if (when < n->sim->now)
		when = n->sim->now;
	if (!n->program.run || n->dead || n->run_at <= when)
		return;
	n->run_at = when;
	n->run_seq = n->sim->seq;
	sim_push(n->sim, when, SE_RUN, n, 0, 0);
}

void sim_wake(struct sim *s, int node)
{
	sim_wake_node(s->node[node], s->now);
}

static void run_program(struct sim_node *n)
{
	struct sim *s = n->sim;
	struct tick t = { .now = s->now, .cost = &n->cost };
	uint64_t deadline;

	if (n->frozen_until > s->now) {
		n->run_at = n->run_seq = NEVER;
		sim_wake_node(n, s->now);
		return;
	}
	n->run_at = n->run_seq = NEVER;
	s->running = &t;
	do { /* with a chooser, until it finds nothing more */
		n->again = false;
		n->program.run(n->program.arg, &t);
	} while (n->again && s->choose);
	s->running = NULL;
	n->free_at = t.now;
	deadline = n->program.deadline ? n->program.deadline(n->program.arg) : NEVER;
	/* again: it polled something, so there may be more: a program need not drain its lanes in one call */
	if (n->again)
		sim_wake_node(n, t.now > s->now ? t.now : s->now + SIM_POLL_NS);
	else if (deadline != NEVER)
		sim_wake_node(n, deadline > s->now + SIM_POLL_NS ? deadline : s->now + SIM_POLL_NS);
}

static void hash(struct sim *s, const struct sim_event *e)
{
	s->trace = mix(s->trace + s->now * 31 + e->kind + ((uint64_t)e->gen << 8) + ((uint64_t)e->arg << 48));
}

static void step(struct sim *s)
{
	uint32_t i = s->choose ? sim_choose(s) : 0;
	struct sim_event e;
	struct sim_port *port;

	if (i == s->nheap)
		return;
	e = take(s, i);
	if (s->choose && sim_stale(&e)) { /* taken out of turn: time does not pass */
		if (e.kind == SE_PIECE)
			wire_unref(e.p);
		return;
	}
	if (e.time > s->now)
		s->now = e.time;
	if (e.kind == SE_RUN && ((struct sim_node *)e.p)->run_seq != e.seq)
		return;
	s->nevents++;
	hash(s, &e);
	switch ((enum sim_event_kind)e.kind) {
	case SE_RUN:
		run_program(e.p);
		break;
	case SE_PUMP:
		wire_pump(e.p, e.arg);
		break;
	case SE_ARRIVE:
		wire_arrive(e.p, e.arg);
		break;
	case SE_PIECE:
		if (e.gen == ((struct flight *)e.p)->gen)
			wire_piece(e.p, e.arg);
		wire_unref(e.p);
		break;
	case SE_MESSAGE:
		port_message(e.p);
		break;
	case SE_LIMIT:
		port_limit(e.p, e.gen);
		break;
	case SE_ERROR:
		port = e.p;
		port->wire->dir[port->end].error_due = false;
		if ((port->life & 0xfff) == e.arg >> 4)
			port_suspect(port, e.gen, (enum sim_reason)(e.arg & 15));
		break;
	case SE_FENCED:
		port = e.p;
		if ((uint16_t)port->life == e.arg)
			port_fenced(port, e.gen);
		break;
	case SE_DONE:
		port = e.p;
		if ((uint16_t)port->life == e.arg)
			port_done(port, e.gen);
		break;
	case SE_KILL:
		wire_kill(e.p, e.arg, WHY_DIED);
		break;
	case SE_REVIVE:
		wire_revive(e.p);
		break;
	case SE_FAULT:
		fault_strike(s, (enum sim_fault)e.arg, e.gen);
		break;
	}
}

bool sim_run(struct sim *s, bool (*finished)(void *), void *arg, uint64_t until)
{
	s->halted = false;
	while (!finished || !finished(arg)) {
		if (s->halted)
			return false;
		if (!s->nheap || s->heap[0].time > until) {
			if (s->now < until && until != NEVER)
				s->now = until; /* time passes although nothing happens */
			return false;
		}
		step(s);
	}
	return true;
}
