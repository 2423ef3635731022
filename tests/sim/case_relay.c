// SPDX-License-Identifier: Apache-2.0
/*
 * (b) Four relayed streams round a ring of four (0 to 2, 1 to 3, 2 to 0, 3 to 1, all the same way round),
 * traffic between all neighbours, and one more relayed stream whose receiver does not post. Nothing may stand
 * still but that stream; nobody else may be slower than without it by more than a tenth; a relay never holds
 * more than window bytes per relayed direction.
 */
#include <stdio.h>
#include "cases.h"
#include "traffic.h"

#define WINDOW 16384u
#define MESSAGES 40

struct result {
	uint64_t last, blocked_bytes, relay_peak, relay_bytes, messages;
	int blocked_received;
};

static bool one(uint64_t seed, bool blocked, enum link_side via, struct result *out)
{
	static struct traffic t;
	static struct world w;
	struct world_cfg cfg = {
		.fabric = &sim_spark,
		.seed = seed,
		.n = 4,
		.lanes = 2,
		.ring = true,
		.arena_bytes = 4 << 20,
		.relay_limit = 4 << 20,
		.mem_bytes = 4 << 20,
		.step = traffic_step,
		.deadline = traffic_deadline,
		.user = &t,
	};
	struct conv *c, *dam = NULL;
	bool ok;

	traffic_init(&t);
	for (int i = 0; i < 4; i++) {
		c = traffic_conv(&t, i, (i + 2) % 4, via, WINDOW);
		for (int k = 0; k < MESSAGES; k++)
			traffic_message(&c->way[0], 12000, k % 4 == 3);
		c = traffic_conv(&t, i, (i + 1) % 4, LINK_NEXT, 65536);
		for (int d = 0; d < 2; d++)
			for (int k = 0; k < MESSAGES; k++)
				traffic_message(&c->way[d], 20000, false);
	}
	if (blocked) { /* over the same relays as stream 0, towards a receiver that is busy elsewhere */
		dam = traffic_conv(&t, 0, 2, via, WINDOW);
		for (int k = 0; k < 20; k++)
			traffic_message(&dam->way[0], 12000, false);
		dam->way[0].send_depth = DEPTH_MAX;
		dam->way[0].recv_from = NEVER;
	}
	if (world_create(&w, &cfg) && world_connect(&w)) {
		uint64_t start = sim_now(w.sim);

		w.phase = "relays";
		traffic_ready(&t, &w, 50);
		if (!world_run(&w, traffic_done, 20 * SEC)) {
			char where[512];

			traffic_where(&t, where, sizeof(where));
			world_fail(&w, "hung:%s", where);
		}
		out->last = sim_now(w.sim) - start;
		out->messages = t.messages;
		for (int i = 0; i < 4; i++) {
			struct chan_net_stats st;

			chan_net_stats(w.node[i].net, &st);
			if (st.relay_peak > out->relay_peak)
				out->relay_peak = st.relay_peak;
			if (st.relay_bytes > out->relay_bytes)
				out->relay_bytes = st.relay_bytes;
		}
		if (dam) {
			/* one that posts at last gets everything */
			dam->way[0].recv_from = 0;
			t.left = 2 * (uint64_t)dam->way[0].n - (uint64_t)dam->way[0].sent;
			if (!world_run(&w, traffic_done, SEC))
				world_fail(&w, "the stream that waited did not go on");
		}
		traffic_close(&t);
		world_settle(&w, 5 * MSEC);
	}
	ok = w.failure[0] == 0;
	if (!ok)
		printf("  seed %llu %s: %s\n", (unsigned long long)seed,
		       blocked ? "with one that waits" : "all post", w.failure);
	world_destroy(&w);
	traffic_free(&t);
	return ok;
}

bool case_relays(const struct options *o)
{
	bool ok = true;
	double start = seconds();

	(void)o;
	for (int via = LINK_NEXT; via <= LINK_PREV; via++) {
		struct result without = { 0 }, with = { 0 };
		/* a node relays one stream of the four (two directions), and the node after 0 one more */
		uint64_t formula = 2 * 2 * (uint64_t)WINDOW;

		ok = one(1, false, (enum link_side)via, &without) && ok;
		ok = one(1, true, (enum link_side)via, &with) && ok;
		printf("(b) four relayed streams via %s and neighbours: %llu messages in %.1f us; %.1f us "
		       "when one more "
		       "receiver does not post; a relay holds at most %llu bytes (formula: %llu)\n",
		       via == LINK_NEXT ? "next" : "prev", (unsigned long long)without.messages,
		       (double)without.last / 1e3, (double)with.last / 1e3,
		       (unsigned long long)with.relay_peak, (unsigned long long)formula);
		if (with.relay_peak > formula || with.relay_peak == 0 || with.relay_bytes > formula) {
			printf("  a relay held %llu bytes of %llu reserved\n",
			       (unsigned long long)with.relay_peak, (unsigned long long)with.relay_bytes);
			ok = false;
		}
		if (with.last > without.last + without.last / 10) {
			printf("  others were slowed by the receiver that does not post\n");
			ok = false;
		}
	}
	printf("(b) %.1f s\n", seconds() - start);
	return ok;
}
