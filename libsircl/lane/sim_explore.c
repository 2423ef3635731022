/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which event comes next when a chooser decides, and which events commute.
 *
 * What an event reads or changes is a set of places, four for each wire and one for each node:
 *   list of a direction  puts in flight, whether what is posted still arrives
 *   end of a wire        its events that wait to be polled, its state
 *   node                 the program's own memory and the node's CPU
 * A program's run polls all its ends and posts on all its outgoing directions; a put that lands leaves its
 * direction and adds to the receiving end; LANE_DONE adds to the sending end; everything else (messages of
 * handshakes, errors, fences, death) counts for the whole wire, and so does any event of a wire that is not
 * up at both ends and in order. Two puts that land on one direction add to the same places, but the notes
 * come out in the order of posting whichever lands first, so they commute. An event that only *makes* another
 * one, in the heap, does not touch what that one will. A landing put also copies bytes: two of them commute
 * only if neither writes what the other reads or writes.
 *
 * Two events without a common place commute: done in either order they leave the same places, the same
 * pending events and the same bytes. What differs is virtual time (the later of two comes at its own time or
 * at the other's), so this holds where no decision hangs on time: as long as the runs that are compared are
 * shorter than the shortest timer of the code above, here 100 us.
 */
#include "lane/sim_internal.h"

#define CHOICES_MAX 64
#define PLACES 4
enum place { LIST0, LIST1, END0, END1 };
#define WIRES_MAX 12 /* with four places each 48 bits; above them a bit for each node */

static uint64_t bit(const struct sim_wire *w, unsigned place)
{
	sircl_assert(w->number < WIRES_MAX);
	return 1ull << ((unsigned)w->number * PLACES + place);
}

static uint64_t whole(const struct sim_wire *w)
{
	return bit(w, LIST0) | bit(w, LIST1) | bit(w, END0) | bit(w, END1);
}

static uint64_t node_bit(const struct sim_node *n)
{
	sircl_assert(n->number < 64 - WIRES_MAX * PLACES);
	return 1ull << (WIRES_MAX * PLACES + n->number);
}

static bool in_order(const struct sim_wire *w)
{
	for (int i = 0; i < 2; i++)
		if (w->end[i].state != PORT_UP || w->end[i].suspected || w->dir[i].broken ||
		    w->dir[i].orphans.n || w->end[i].epoch != w->end[0].epoch)
			return false;
	return !w->dead && !w->dup;
}

static uint64_t run_touches(const struct sim_node *n)
{
	uint64_t set = node_bit(n);

	for (const struct sim_wire *w = n->sim->wires; w; w = w->next)
		for (unsigned i = 0; i < 2; i++)
			if (w->end[i].node == n)
				set |= in_order(w) ? bit(w, END0 + i) | bit(w, LIST0 + i) : whole(w);
	return set;
}

static void describe(const struct sim_event *e, struct sim_choice *c)
{
	const struct flight *f = e->p;
	const struct sim_port *port = e->p;
	const struct sim_region *r;

	*c = (struct sim_choice){ .id = e->seq, .touches = UINT64_MAX };
	switch ((enum sim_event_kind)e->kind) {
	case SE_RUN:
		c->touches = run_touches(e->p);
		break;
	case SE_PIECE:
		c->touches = whole(f->wire);
		if (in_order(f->wire) && f->epoch == f->wire->end[0].epoch) {
			c->touches = 0;
			c->adds = bit(f->wire, LIST0 + f->dir) | bit(f->wire, END1 - f->dir);
		}
		if (!f->len || f->dst.key >= LANE_REGIONS_MAX)
			break;
		r = &f->wire->end[!f->dir].region[f->dst.key];
		c->from = f->src_life ? f->src : NULL;
		c->to = r->life ? r->base + f->dst_off : NULL;
		c->len = f->len;
		break;
	case SE_DONE:
		c->touches = in_order(port->wire) ? bit(port->wire, END0 + (unsigned)port->end)
						  : whole(port->wire);
		break;
	case SE_MESSAGE:
		c->touches = whole(((const struct sim_message *)e->p)->to->wire);
		break;
	case SE_LIMIT:
	case SE_ERROR:
	case SE_FENCED:
		c->touches = whole(port->wire);
		break;
	case SE_KILL:
	case SE_REVIVE:
		c->touches = whole(e->p);
		break;
	case SE_PUMP: /* these two take their turn at what the lanes of a node share */
	case SE_ARRIVE:
	case SE_FAULT:
		break;
	}
}

static bool overlap(const uint8_t *a, uint32_t na, const uint8_t *b, uint32_t nb)
{
	return a && b && a < b + nb && b < a + na;
}

bool sim_dependent(const struct sim_choice *a, const struct sim_choice *b)
{
	return (a->touches & (b->touches | b->adds)) || (a->adds & b->touches) ||
	       overlap(a->to, a->len, b->to, b->len) || overlap(a->to, a->len, b->from, b->len) ||
	       overlap(a->from, a->len, b->to, b->len);
}

bool sim_stale(const struct sim_event *e)
{
	const struct sim_port *port = e->p;

	if (e->kind == SE_RUN)
		return ((const struct sim_node *)e->p)->run_seq != e->seq;
	if (e->kind == SE_PIECE)
		return ((const struct flight *)e->p)->gone || ((const struct flight *)e->p)->gen != e->gen;
	if (e->kind == SE_LIMIT)
		return !port->open || port->handshake != e->gen ||
		       (port->state != PORT_CONNECTING && port->state != PORT_HALF);
	return false;
}

void sim_set_chooser(struct sim *s, int (*choose)(void *, const struct sim_choice *, int), void *arg)
{
	s->choose = choose;
	s->choose_arg = arg;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

uint32_t sim_choose(struct sim *s)
{
	struct sim_choice choice[CHOICES_MAX] = { 0 };
	uint32_t pick[CHOICES_MAX] = { 0 }, n = 0, j, first = s->nheap;
	int k;

	for (uint32_t i = 0; i < s->nheap; i++) {
		if (sim_stale(&s->heap[i]))
			return i; /* nobody's choice */
		if (first == s->nheap || before(&s->heap[i], &s->heap[first]))
			first = i;
	}
	for (uint32_t i = 0; i < s->nheap; i++) {
		if (s->heap[i].time > s->heap[first].time + s->fabric.jitter_ns)
			continue;
		sircl_assert(n < CHOICES_MAX);
		for (j = n++; j > 0 && before(&s->heap[i], &s->heap[pick[j - 1]]); j--)
			pick[j] = pick[j - 1];
		pick[j] = i;
	}
	for (uint32_t i = 0; i < n; i++)
		describe(&s->heap[pick[i]], &choice[i]);
	k = s->choose(s->choose_arg, choice, (int)n);
	s->halted = k < 0;
	return k < 0 ? s->nheap : pick[(uint32_t)k < n ? (uint32_t)k : 0];
}
