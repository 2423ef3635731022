// SPDX-License-Identifier: Apache-2.0
/*
 * (a) A lane dies at frame k, for every k of a run, seen by neither end, by one, by the other, by both. Two
 * positions, two lanes; small, staged and granted messages both ways.
 */
#include <stdio.h>
#include "cases.h"
#include "traffic.h"

static void fill(struct traffic *t)
{
	static const uint32_t len[] = { 64, 0, 20000, 700, 40000, 3, 9000, 128 };
	struct conv *c;

	traffic_init(t);
	c = traffic_conv(t, 0, 1, LINK_NEXT, 65536);
	for (int d = 0; d < 2; d++)
		for (int k = 0; k < 32; k++)
			traffic_message(&c->way[d], len[(k + 3 * d) % 8], k % 3 == 1);
}

/* Runs with a death at put k (NEVER: none); *puts = puts of the run after the start. */
static bool one(uint64_t k, unsigned seen, uint64_t seed, uint64_t *puts, struct link_totals *sum,
		bool verbose)
{
	static struct traffic t;
	static struct world w;
	struct world_cfg cfg = {
		.fabric = &sim_hostile,
		.seed = seed,
		.n = 2,
		.lanes = 2,
		.ring = false,
		.link_window = 16,
		.arena_bytes = 1 << 20,
		.relay_limit = 1 << 20,
		.mem_bytes = 1 << 20,
		.step = traffic_step,
		.deadline = traffic_deadline,
		.user = &t,
	};
	bool ok;

	fill(&t);
	if (world_create(&w, &cfg) && world_connect(&w)) {
		w.phase = "traffic";
		*puts = sim_puts(w.sim);
		if (k != NEVER)
			sim_kill_at_put(w.sim, k, seen);
		traffic_ready(&t, &w, 50);
		if (!world_run(&w, traffic_done, 20 * SEC)) {
			char where[512];

			traffic_where(&t, where, sizeof(where));
			world_fail(&w, "hung:%s", where);
		}
		*puts = sim_puts(w.sim) - *puts;
		world_settle(&w, 40 * MSEC);
		traffic_check_poison(&t);
		traffic_close(&t);
		world_settle(&w, 5 * MSEC);
		world_totals(&w, sum);
	}
	ok = w.failure[0] == 0;
	if (!ok || verbose)
		printf("  frame %lld seen by %u: %s\n", (long long)k, seen, ok ? "ok" : w.failure);
	world_destroy(&w);
	traffic_free(&t);
	return ok;
}

bool case_every_frame(const struct options *o)
{
	struct link_totals sum = { 0 };
	uint64_t puts = 0, ignored, runs = 0, bad = 0;
	double start = seconds();

	if (!one(NEVER, 0, 1, &puts, &sum, o->verbose))
		bad++;
	for (uint64_t k = 0; k < puts && bad < 5; k++)
		for (unsigned seen = 0; seen < 4; seen++, runs++)
			bad += !one(k, seen, 1 + k, &ignored, &sum, o->verbose);
	printf("(a) a lane dies at frame k: %llu runs (%llu frames x 4 ways to see it), %llu frames "
	       "replayed, wrong "
	       "%llu, %.1f s\n",
	       (unsigned long long)runs, (unsigned long long)puts, (unsigned long long)sum.replayed,
	       (unsigned long long)bad, seconds() - start);
	return bad == 0 && sum.replayed > 0;
}
