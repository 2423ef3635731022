// SPDX-License-Identifier: Apache-2.0
/*
 * (c) A small exhaustive run: four positions in a ring, a relayed conversation of two messages, the smallest
 * window that a channel allows (four fragments) and twice that, one lane that dies at its k-th put, seen by
 * any of its ends. Every choice that a
 * scheduler has at the first events is tried: which of the puts in flight lands, which program runs,
 * when the error, the fence, the death itself come. A program runs until it finds nothing more to do; timers
 * come when nothing else is left; there is no LANE_DONE, which serves striping only.
 *
 * Schedules that differ only in the order of neighbouring events that commute (lane/sim_explore.c says which
 * and why) end in the same state, so one of each such class is run. Depth first with sleep sets (Godefroid):
 * an event that was tried first at a moment need not be tried again below its brothers until something has
 * happened that does not commute with it. A schedule of so many events is never lost that way, since swapping
 * neighbours changes no length: the first of its class, in the order in which brothers are tried, is run. A
 * run replays a list of choices, takes the first of each further one, and leaves what comes afterwards to
 * time; then the last choice that can be raised is raised.
 */
#include <stdio.h>
#include <string.h>
#include "cases.h"
#include "traffic.h"

#define EVENTS_MAX 16
#define WIDTH 64
#define NEAR (50 * USEC) /* events this near may come in any order; less than any timer */

struct moment {
	int n, taken;
	struct sim_choice c[WIDTH];
	bool sleeps[WIDTH]; /* tried before, in an order that comes to the same */
};
struct search {
	struct moment at[EVENTS_MAX];
	int events, known, depth;
	uint32_t window, message; /* bytes */
	bool asleep; /* everything that could come next sleeps: this run comes to the same as an earlier one
		      */
	struct sim *sim;
	/* of all that was searched */
	uint64_t runs, cut, died, bad, trace;
	struct link_totals sum;
};

static int place(const struct moment *m, uint64_t id)
{
	for (int i = 0; i < m->n; i++)
		if (m->c[i].id == id)
			return i;
	return -1;
}

/* What sleeps at the moment after `was`. */
static void inherit(struct moment *m, const struct moment *was)
{
	for (int i = 0; i < was->n; i++) {
		int k = place(m, was->c[i].id);

		if (k >= 0 && was->sleeps[i] && !sim_dependent(&was->c[i], &was->c[was->taken]))
			m->sleeps[k] = true;
	}
}

static int next_awake(const struct moment *m, int from)
{
	while (from < m->n && m->sleeps[from])
		from++;
	return from < m->n ? from : -1;
}

static int choose(void *arg, const struct sim_choice *c, int n)
{
	struct search *s = arg;
	struct moment *m = &s->at[s->depth];

	if (s->depth == s->known) {
		s->known++;
		m->n = n;
		memcpy(m->c, c, (size_t)n * sizeof(*c));
		memset(m->sleeps, 0, sizeof(m->sleeps));
		if (s->depth)
			inherit(m, m - 1);
		m->taken = next_awake(m, 0);
		if (m->taken < 0) {
			s->asleep = true;
			return -1;
		}
	}
	if (++s->depth == s->events)
		sim_set_chooser(s->sim, NULL, NULL); /* from here on time decides */
	return m->taken;
}

/* The next list in depth-first order; false: that was the last. */
static bool advance(struct search *s)
{
	while (s->known) {
		struct moment *m = &s->at[s->known - 1];
		int k = m->taken;

		if (k >= 0) {
			m->sleeps[k] = true;
			m->taken = next_awake(m, k + 1);
			if (m->taken >= 0)
				return true;
		}
		s->known--;
	}
	return false;
}

struct death {
	int cable, lane, end, put; /* just after that put of that end; put < 0: none */
	unsigned seen;
};

static bool begun(struct world *w)
{
	const struct traffic *t = w->cfg.user;

	return t->conv[0].way[0].queued > 0;
}

static void judge(struct search *s, struct world *w, struct traffic *t, const struct death *d, bool done)
{
	if (!done) {
		char where[512];

		traffic_where(t, where, sizeof(where));
		world_fail(w, "hung:%s", where);
	}
	traffic_close(t);
	world_settle(w, MSEC);
	world_totals(w, &s->sum);
	s->runs++;
	s->died += d->put >= 0 && sim_is_dead(w->sim, d->cable, d->lane);
	s->trace ^= sim_trace(w->sim);
	if (!w->failure[0])
		return;
	s->bad++;
	printf("  window %u, messages of %u, cable %d lane %d end %d dies at put %d, seen %u, choices",
	       s->window, s->message, d->cable, d->lane, d->end, d->put, d->seen);
	for (int k = 0; k < s->known; k++)
		printf(" %d/%d", s->at[k].taken, s->at[k].n);
	printf(": %s\n", w->failure);
}

static void one(struct search *s, const struct death *d)
{
	static struct traffic t;
	static struct world w;
	struct sim_fabric calm = sim_hostile;
	struct world_cfg cfg = {
		.fabric = &calm,
		.seed = 1,
		.n = 4,
		.lanes = 2,
		.ring = true,
		.link_window = 8,
		.arena_bytes = 64 << 10,
		.relay_limit = 256 << 10,
		.step = traffic_step,
		.deadline = traffic_deadline,
		.user = &t,
	};
	struct conv *c;
	bool done;

	calm.jitter_ns = NEAR;
	calm.pieces = 1;
	traffic_init(&t);
	c = traffic_conv(&t, 0, 2, LINK_NEXT, s->window);
	for (int k = 0; k < 2; k++)
		traffic_message(&c->way[0], s->message, false);
	s->depth = 0;
	s->asleep = false;
	if (world_create(&w, &cfg) && world_connect(&w)) {
		w.phase = "exhaustive";
		s->sim = w.sim;
		c->way[0].send_from = sim_now(w.sim) + 2 * MSEC;
		traffic_ready(&t, &w, 0);
		world_settle(&w, MSEC); /* the channel is open */
		if (d->put >= 0)
			sim_kill_at_put_of(w.sim, d->cable, d->lane, d->end, (uint32_t)d->put, d->seen);
		world_run(&w, begun, 2 * MSEC);
		sim_set_chooser(w.sim, choose, s);
		done = world_go_on(&w, traffic_done, 20 * SEC);
		if (s->asleep)
			s->cut++;
		else
			judge(s, &w, &t, d, done);
	} else {
		s->bad++;
		printf("  %s\n", w.failure);
	}
	traffic_close(&t);
	world_destroy(&w);
	traffic_free(&t);
}

/* Every schedule with this death; true if it has struck in any. */
static bool every(struct search *s, const struct death *d, int verbose)
{
	uint64_t died = s->died, runs = s->runs;

	s->known = 0;
	do {
		one(s, d);
	} while (advance(s) && s->bad < 5);
	if (verbose)
		printf("  window %u, messages of %u, cable %d lane %d end %d put %d seen %u: %llu schedules, "
		       "death "
		       "struck in %llu\n",
		       s->window, s->message, d->cable, d->lane, d->end, d->put, d->seen,
		       (unsigned long long)(s->runs - runs), (unsigned long long)(s->died - died));
	return s->died > died;
}

/* Every lane that carries anything, every put of either end, until there are no more puts. */
static void every_death(struct search *s, int verbose)
{
	struct death d = { .put = -1 };

	every(s, &d, verbose);
	for (d.cable = 0; d.cable < 2; d.cable++)
		for (d.lane = 0; d.lane < 2; d.lane++)
			for (d.end = 0; d.end < 2; d.end++)
				for (d.seen = 0; d.seen < 4; d.seen++)
					for (d.put = 0; every(s, &d, verbose) && s->bad < 5; d.put++)
						;
}

/* Full: each message takes the whole window, so that the second waits for credit, and there are more puts in
 * flight and so far more schedules. */
static bool shape(const struct options *o, bool full)
{
	static struct search s;
	struct death d = { .cable = 0, .lane = 0, .end = 1, .put = 2, .seen = 3 };
	double start = seconds();

	s = (struct search){ .events = full ? o->events - 5 : o->events };
	if (s.events < 1)
		return true;
	/* the smallest windows that a channel allows, and twice that */
	for (s.window = 4096; s.window <= 8192; s.window += 4096) {
		s.message = full ? s.window : s.window / 4;
		if (o->thorough)
			every_death(&s, o->verbose);
		else
			every(&s, &d, o->verbose);
	}
	printf("(c) %s, every schedule of the first %d events: %llu schedules (%llu more were cut short, "
	       "being the same), "
	       "%llu with a death, %llu frames replayed, wrong %llu, trace %016llx, %.1f s\n",
	       full ? "messages that fill the window" : "two frames", s.events, (unsigned long long)s.runs,
	       (unsigned long long)s.cut, (unsigned long long)s.died, (unsigned long long)s.sum.replayed,
	       (unsigned long long)s.bad, (unsigned long long)s.trace, seconds() - start);
	return s.bad == 0;
}

bool case_exhaustive(const struct options *o)
{
	bool ok = shape(o, false);

	return shape(o, true) && ok;
}
