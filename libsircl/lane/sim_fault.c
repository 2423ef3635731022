// SPDX-License-Identifier: Apache-2.0
/*
 * Faults: given by the test one at a time, or drawn from the seed. Random ones leave the fabric able to heal:
 * a lane that dies for good has a living sister on its cable; every other death is followed by a revival. A
 * random fault looks for a lane with puts in flight, and waits a little for one, three times out of four,
 * since the others prove little.
 */
#include "lane/sim_internal.h"

#define WAITS 400u

static const char *const names[FAULT_KINDS] = {
	[FAULT_KILL] = "lane dies",       [FAULT_REVIVE] = "lane comes back",
	[FAULT_FREEZE] = "process stops", [FAULT_DUP] = "note comes twice",
	[FAULT_LATE] = "lane is late",    [FAULT_FALSE_ALARM] = "false alarm",
};

const char *sim_fault_name(enum sim_fault f)
{
	return names[f];
}

static struct sim_wire *need(struct sim *s, int cable, int lane)
{
	struct sim_wire *w = sim_wire_of(s, cable, lane);

	sircl_assert(w != NULL);
	return w;
}

void sim_kill(struct sim *s, int cable, int lane, unsigned seen)
{
	s->count[FAULT_KILL].planned++;
	wire_kill(need(s, cable, lane), seen, WHY_DIED);
}

bool sim_is_dead(struct sim *s, int cable, int lane)
{
	return need(s, cable, lane)->dead;
}

void sim_kill_at_put_of(struct sim *s, int cable, int lane, int end, uint32_t k, unsigned seen)
{
	struct sim_dir *d = &need(s, cable, lane)->dir[end];

	d->kill_in = k + 1;
	d->kill_seen = (uint8_t)seen;
}

void sim_kill_at_put(struct sim *s, uint64_t k, unsigned seen)
{
	s->count[FAULT_KILL].planned++;
	s->kill_at = s->puts + k;
	s->kill_seen = seen;
}

void sim_revive(struct sim *s, int cable, int lane)
{
	s->count[FAULT_REVIVE].planned++;
	wire_revive(need(s, cable, lane));
}

static bool alarm_at(struct sim_wire *w, int end)
{
	struct sim_port *port = &w->end[end];

	if (!port->open || port->state != PORT_UP || port->suspected)
		return false;
	if (wire_busy(w))
		w->sim->count[FAULT_FALSE_ALARM].struck++;
	port_suspect(port, port->epoch, WHY_ALARM);
	return true;
}

void sim_false_alarm(struct sim *s, int cable, int lane, int end)
{
	s->count[FAULT_FALSE_ALARM].planned++;
	alarm_at(need(s, cable, lane), end);
}

static void stall(struct sim_wire *w, unsigned dirs, uint64_t ns)
{
	struct sim *s = w->sim;
	bool struck = false;

	for (int i = 0; i < 2; i++) {
		struct sim_dir *d = &w->dir[i];

		if (!(dirs >> i & 1))
			continue;
		struck = struck || d->queue.n;
		if (d->stalled_until < s->now + ns)
			d->stalled_until = s->now + ns;
	}
	s->count[FAULT_LATE].struck += struck;
}

void sim_stall(struct sim *s, int cable, int lane, unsigned dirs, uint64_t ns)
{
	s->count[FAULT_LATE].planned++;
	stall(need(s, cable, lane), dirs, ns);
}

static bool touches(const struct sim_wire *w, const struct sim_node *n)
{
	return w->end[0].node == n || w->end[1].node == n;
}

static void freeze(struct sim_node *n, uint64_t ns)
{
	struct sim *s = n->sim;

	for (struct sim_wire *w = s->wires; w; w = w->next)
		if (touches(w, n) && wire_busy(w)) {
			s->count[FAULT_FREEZE].struck++;
			break;
		}
	if (n->frozen_until < s->now + ns)
		n->frozen_until = s->now + ns;
	sim_wake_node(n, s->now); /* that is: when it thaws */
}

void sim_freeze(struct sim *s, int node, uint64_t ns)
{
	s->count[FAULT_FREEZE].planned++;
	freeze(s->node[node], ns);
}

void sim_kill_node(struct sim *s, int node)
{
	struct sim_node *n = s->node[node];

	n->dead = true;
	for (struct sim_wire *w = s->wires; w; w = w->next) {
		if (!touches(w, n))
			continue;
		for (int i = 0; i < 2; i++)
			if (w->end[i].node == n && w->end[i].open)
				wire_fence(&w->end[i], w->end[i].epoch);
		wire_kill(w, w->end[0].node == n ? 2 : 1, WHY_GONE);
	}
}

void sim_dup_next(struct sim *s, int cable, int lane)
{
	s->count[FAULT_DUP].planned++;
	need(s, cable, lane)->dup++;
}

static struct sim_wire *pick(struct sim *s, bool dead)
{
	bool busy = sim_random(s, 4) != 0 && !dead;

	for (;; busy = false) {
		uint64_t n = 0, k;

		for (struct sim_wire *w = s->wires; w; w = w->next)
			n += w->dead == dead && (!busy || wire_busy(w));
		if (n) {
			k = sim_random(s, n);
			for (struct sim_wire *w = s->wires;; w = w->next)
				if (w->dead == dead && (!busy || wire_busy(w)) && k-- == 0)
					return w;
		}
		if (!busy)
			return NULL;
	}
}

static bool has_sister(const struct sim_wire *w)
{
	for (const struct sim_wire *o = w->sim->wires; o; o = o->next)
		if (o != w && o->cable == w->cable && !o->dead)
			return true;
	return false;
}

static bool anything_in_flight(const struct sim *s)
{
	for (const struct sim_wire *w = s->wires; w; w = w->next)
		if (!w->dead && wire_busy(w))
			return true;
	return false;
}

void fault_strike(struct sim *s, enum sim_fault kind, uint32_t waited)
{
	struct sim_wire *w;
	bool comes_back;

	if (kind != FAULT_REVIVE && waited < WAITS && !anything_in_flight(s) &&
	    (waited || sim_random(s, 4))) {
		sim_push(s, s->now + 500 + sim_random(s, 2 * USEC), SE_FAULT, NULL, waited + 1, kind);
		return;
	}
	w = pick(s, kind == FAULT_REVIVE);

	if (kind == FAULT_FREEZE) {
		freeze(s->node[sim_random(s, (uint64_t)s->nnodes)],
		       sim_random(s, 8) ? sim_late(s) : 200 * MSEC + sim_random(s, 200 * MSEC));
		return;
	}
	if (!w)
		return;
	switch (kind) {
	case FAULT_KILL:
		comes_back = (s->fault_kinds & 1u << FAULT_REVIVE) && (!has_sister(w) || sim_random(s, 3));
		if (!comes_back && !has_sister(w))
			break;
		wire_kill(w, (unsigned)sim_random(s, 4), WHY_DIED);
		if (comes_back) {
			s->count[FAULT_REVIVE].planned++;
			sim_push(s,
				 s->now + (sim_random(s, 4) ? sim_late(s)
							    : 100 * MSEC + sim_random(s, 300 * MSEC)),
				 SE_REVIVE, w, 0, 0);
		}
		break;
	case FAULT_REVIVE:
		wire_revive(w);
		break;
	case FAULT_DUP:
		w->dup++;
		break;
	case FAULT_LATE:
		stall(w, 1 + (unsigned)sim_random(s, 3),
		      sim_random(s, 4) ? sim_late(s) : 200 * MSEC + sim_random(s, 200 * MSEC));
		break;
	case FAULT_FALSE_ALARM:
		alarm_at(w, (int)sim_random(s, 2));
		break;
	case FAULT_FREEZE:
	case FAULT_KINDS:
		break;
	}
}

void sim_plan_faults(struct sim *s, unsigned kinds, int n, uint64_t from, uint64_t to)
{
	enum sim_fault possible[FAULT_KINDS];
	uint64_t m = 0;

	for (unsigned k = 0; k < FAULT_KINDS; k++)
		if (kinds >> k & 1)
			possible[m++] = (enum sim_fault)k;
	s->fault_kinds |= kinds;
	for (int i = 0; i < n && m; i++) {
		enum sim_fault kind = possible[sim_random(s, m)];

		s->count[kind].planned++;
		sim_push(s, from + sim_random(s, to > from ? to - from : 1), SE_FAULT, NULL, 0, kind);
	}
}

void sim_fault_counts(const struct sim *s, struct sim_fault_count out[FAULT_KINDS])
{
	for (int i = 0; i < FAULT_KINDS; i++)
		out[i] = s->count[i];
}
