// SPDX-License-Identifier: Apache-2.0
/*
 * (c) A small exhaustive run: four positions in a ring, two relayed conversations of two messages that share
 * a relay, windows of one and of two messages, one lane that dies at any of the moments; every choice of the
 * scheduler at the first CHOICES moments where more than one event could come next. Depth first: a run
 * replays a list of choices, takes the first of each further one and leaves the rest to the seed; then the
 * last choice that can be raised is raised.
 */
#include <stdio.h>
#include <string.h>
#include "cases.h"
#include "traffic.h"

#define CHOICES 12
#define WIDTH 2 /* of the events that could come next, so many of the earliest are tried */

struct search {
	uint8_t taken[CHOICES], width[CHOICES];
	int known, depth;
	struct sim *sim;
};

static int choose(void *arg, int n)
{
	struct search *s = arg;
	int k = s->depth;

	if (++s->depth == CHOICES)
		sim_set_chooser(s->sim, NULL, NULL); /* from here on the seed decides */
	s->width[k] = (uint8_t)(n < WIDTH ? n : WIDTH);
	if (k >= s->known) {
		s->taken[k] = 0;
		s->known = k + 1;
	}
	return s->taken[k];
}

/* The next list in depth-first order; false: that was the last. */
static bool advance(struct search *s)
{
	int k = s->known < CHOICES ? s->known : CHOICES;

	while (k-- > 0)
		if (s->taken[k] + 1 < s->width[k]) {
			s->taken[k]++;
			s->known = k + 1;
			return true;
		}
	return false;
}

static bool one(struct search *s, uint32_t window, uint64_t kill_at, unsigned seen, uint64_t *trace,
		struct link_totals *sum)
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
		.arena_bytes = 256 << 10,
		.relay_limit = 256 << 10,
		.step = traffic_step,
		.deadline = traffic_deadline,
		.user = &t,
	};
	bool ok;

	calm.jitter_ns = 300; /* with a chooser: events this near may come in any order */
	calm.pieces = 1;
	traffic_init(&t);
	for (int i = 0; i < 2; i++) {
		struct conv *c = traffic_conv(&t, i, i + 2, LINK_NEXT, window);

		for (int k = 0; k < 2; k++)
			traffic_message(&c->way[0], 4096, false);
	}
	if (world_create(&w, &cfg) && world_connect(&w)) {
		w.phase = "exhaustive";
		world_settle(&w, 300 * USEC);
		s->depth = 0;
		s->sim = w.sim;
		sim_set_chooser(w.sim, choose, s);
		if (kill_at != NEVER)
			sim_kill_at_put(w.sim, kill_at, seen);
		traffic_ready(&t, &w, 0);
		if (!world_run(&w, traffic_done, 20 * SEC)) {
			char where[512];

			traffic_where(&t, where, sizeof(where));
			world_fail(&w, "hung:%s", where);
		}
		traffic_close(&t);
		world_settle(&w, MSEC);
		world_totals(&w, sum);
	}
	*trace = sim_trace(w.sim);
	ok = w.failure[0] == 0;
	if (!ok) {
		printf("  window %u, death at %lld, choices", window, (long long)kill_at);
		for (int k = 0; k < s->known && k < CHOICES; k++)
			printf(" %d/%d", s->taken[k], s->width[k]);
		printf(": %s\n", w.failure);
	}
	world_destroy(&w);
	traffic_free(&t);
	return ok;
}

bool case_exhaustive(const struct options *o)
{
	uint64_t runs = 0, bad = 0, trace, all = 0;
	struct link_totals sum = { 0 };
	double start = seconds();

	for (uint32_t window = 4096; window <= 8192; window += 4096)
		for (int kill = o->thorough ? -1 : 1; kill < (o->thorough ? 4 : 2) && bad < 5; kill++) {
			struct search s = { .known = 0 };

			do {
				bad += !one(&s, window, kill < 0 ? NEVER : (uint64_t)kill * 3,
					    (unsigned)kill & 3, &trace, &sum);
				all ^= trace;
				runs++;
			} while (advance(&s) && bad < 5);
			if (o->verbose)
				printf("  window %u death %d: %llu runs so far\n", window, kill,
				       (unsigned long long)runs);
		}
	printf("(c) every choice of the first %d moments, at most %d ways each: %llu runs, %llu frames "
	       "replayed, wrong "
	       "%llu, trace %016llx, %.1f s\n",
	       CHOICES, WIDTH, (unsigned long long)runs, (unsigned long long)sum.replayed,
	       (unsigned long long)bad, (unsigned long long)all, seconds() - start);
	return bad == 0;
}
