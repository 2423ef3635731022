/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator: rates and times as configured (a Spark ring), and a chooser that reaches every order. */
#include "sim_pair.h"

/* Nanoseconds that `n` puts of PAIR_ARENA bytes take on each of the lanes in `mask`. */
static uint64_t spark_time(int lanes, unsigned mask, int n)
{
	struct pair *p = pair_up(&sim_spark, 1, lanes);
	uint64_t start = sim_now(p->sim), end = 0;
	struct tick t = pair_now(p);

	for (int k = 0; k < n; k++)
		for (int l = 0; l < lanes; l++) {
			struct lane_put put = { .src = p->end[0][l].source,
						.len = PAIR_ARENA,
						.smem = &p->end[0][l].smem,
						.dst = lane_sim_ops.peer_export(p->end[0][l].lane) };

			if (mask >> l & 1)
				lane_sim_ops.put(p->end[0][l].lane, &t, &put, 1);
		}
	pair_for(p, SEC);
	for (int l = 0; l < lanes; l++)
		for (int i = 0; i < p->end[1][l].nlog; i++)
			if (p->end[1][l].log[i].ev == LANE_NOTE && p->end[1][l].when[i] > end)
				end = p->end[1][l].when[i];
	pair_free(p);
	return end - start;
}

static void near(uint64_t got, double want)
{
	ck_assert_msg((double)got > 0.99 * want && (double)got < 1.01 * want, "%llu ns, expected %.0f",
		      (unsigned long long)got, want);
}

START_TEST(test_sim_spark_rates_are_as_configured)
{
	double bytes = 64.0 * PAIR_ARENA, fixed = 1600 + 200;

	near(spark_time(1, 1, 64), bytes / (109.0 / 8) + fixed); /* one lane */
	near(spark_time(2, 3, 64), 2 * bytes / 24.4 + fixed); /* both lanes of a cable: the host's side */
	near(spark_time(3, 5, 64), 2 * bytes / (109.0 / 8) + fixed); /* lanes 0 and 2 share a domain */
	near(spark_time(4, 15, 64), 4 * bytes / 24.4 + fixed);
}
END_TEST

START_TEST(test_sim_spark_small_put_takes_latency_post_and_event)
{
	struct pair *p = pair_up(&sim_spark, 1, 1);
	struct cost cost = sim_spark.cost;
	struct tick t = { .now = sim_now(p->sim), .cost = &cost };
	uint64_t start = t.now;
	struct lane_put put = { .src = p->end[0][0].source,
				.len = 8,
				.smem = &p->end[0][0].smem,
				.dst = lane_sim_ops.peer_export(p->end[0][0].lane) };

	lane_sim_ops.put(p->end[0][0].lane, &t, &put, 1);
	ck_assert_uint_eq(t.now - start, 300);
	pair_for(p, MSEC);
	ck_assert_uint_eq(p->end[1][0].when[p->end[1][0].nlog - 1] - start, 300 + 1 + 1600 + 200);
	pair_free(p);
}
END_TEST

/* A hub with two neighbours, two lanes to each. Time for 32 puts on each lane of the mask; `in`: into the
 * hub. */
static void star(bool in, unsigned mask, double rate)
{
	struct pair *p = calloc(1, sizeof(*p));
	int node[3];
	uint64_t start;
	double total = 0;

	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(sim_create(&p->sim, &sim_spark, 1), SIRCL_SUCCESS);
	p->lanes = 4;
	for (int i = 0; i < 3; i++)
		node[i] = sim_node(p->sim, NULL);
	for (int l = 0; l < 4; l++) {
		int far = node[1 + l / 2];

		sim_cable_lane(p->sim, l / 2, l % 2, in ? far : node[0], in ? node[0] : far,
			       &p->end[0][l].port, &p->end[1][l].port);
		for (int i = 0; i < 2; i++) {
			p->end[i][l].pair = p;
			p->end[i][l].arena = malloc(PAIR_ARENA);
			p->end[i][l].source = calloc(1, PAIR_ARENA);
			pair_open_end(p, i, l, NULL, 0);
		}
		pair_connect(p, l, 1);
	}
	pair_for(p, MSEC);
	for (int k = 0; k < 32; k++)
		for (int l = 0; l < 4; l++) {
			struct tick t = pair_now(p);
			struct lane_put put = { .src = p->end[0][l].source,
						.len = PAIR_ARENA,
						.smem = &p->end[0][l].smem,
						.dst = lane_sim_ops.peer_export(p->end[0][l].lane) };

			if (!(mask >> l & 1))
				continue;
			lane_sim_ops.put(p->end[0][l].lane, &t, &put, 1);
			total += PAIR_ARENA;
		}
	start = sim_now(p->sim);
	while (sim_in_flight(p->sim))
		pair_for(p, 1000);
	near(sim_now(p->sim) - start, total / rate + 1600);
	pair_free(p);
}

START_TEST(test_sim_spark_node_shares_its_sides_and_domains_among_neighbours)
{
	star(true, 15, 26.8); /* everything at once: the host's side */
	star(false, 15, 24.4);
	star(true, 5, 109.0 / 8); /* lane 0 of both cables: one PCI domain */
	star(false, 5, 109.0 / 8);
	star(false, 9, 24.4); /* lane 0 of one and lane 1 of the other: two domains */
}
END_TEST

static int chosen[64], nchosen, widths[64], depth;

static int choose(void *arg, const struct sim_choice *c, int n)
{
	int k = depth++;

	(void)arg;
	(void)c;
	if (k >= 8)
		return 0;
	widths[k] = n;
	if (k >= nchosen) {
		chosen[k] = 0;
		nchosen = k + 1;
	}
	return chosen[k];
}

/* All orders of three puts on three lanes are reached. */
START_TEST(test_sim_chooser_reaches_every_order_of_lanes)
{
	bool seen[6] = { false };
	int runs = 0, k;
	struct sim_fabric f = sim_hostile;

	nchosen = 0;
	do {
		struct pair *p = pair_up(&f, 1, 3);
		uint64_t w[3];

		depth = 0;
		sim_set_chooser(p->sim, choose, NULL);
		for (int l = 0; l < 3; l++)
			pair_put(&p->end[0][l], 0, 10, 1);
		pair_for(p, MSEC);
		for (int l = 0; l < 3; l++)
			w[l] = p->end[1][l].when[p->end[1][l].nlog - 1];
		seen[(w[0] < w[1]) + 2 * (w[1] < w[2] ? (w[0] < w[2]) + 1 : 0)] = true;
		pair_free(p);
		runs++;
		for (k = (nchosen < 8 ? nchosen : 8) - 1; k >= 0 && chosen[k] + 1 >= widths[k]; k--)
			;
		if (k >= 0)
			chosen[k]++;
		nchosen = k + 1;
	} while (k >= 0 && runs < 20000);
	ck_assert_int_lt(runs, 20000);
	k = 0;
	for (int i = 0; i < 6; i++)
		k += seen[i];
	ck_assert_int_ge(k, 4);
}
END_TEST

struct offer {
	int n, calls;
	struct sim_choice c[8];
};

/* Keeps what is offered first, and stops the world there. */
static int look(void *arg, const struct sim_choice *c, int n)
{
	struct offer *o = arg;

	ck_assert_int_le(n, 8);
	o->n = n;
	o->calls++;
	memcpy(o->c, c, (size_t)n * sizeof(*c));
	return -1;
}

/* Puts that land on two lanes, or one after the other on one, commute; what copies to the same place, and
 * what another event of the same wire may depend on, does not. */
START_TEST(test_sim_tells_which_events_commute)
{
	struct sim_fabric f = sim_hostile;
	struct pair *p = pair_up(&f, 1, 3);
	struct offer o = { .n = 0 };

	sim_set_chooser(p->sim, look, &o);
	pair_put(&p->end[0][0], 0, 10, 1);
	pair_put(&p->end[0][0], 100, 10, 2);
	pair_put(&p->end[0][1], 0, 10, 3);
	pair_put(&p->end[1][2], 0, 10, 4);
	ck_assert(!sim_run(p->sim, NULL, NULL, SEC));
	ck_assert_int_eq(o.calls, 1);
	ck_assert_int_eq(o.n, 4);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < i; k++)
			ck_assert(!sim_dependent(&o.c[i], &o.c[k]));
	for (int i = 0; i < 4; i++)
		ck_assert(sim_dependent(&o.c[i], &o.c[i]));
	o.c[1].to = o.c[0].to + 5;
	ck_assert(sim_dependent(&o.c[0], &o.c[1]));
	o.c[2].touches = o.c[3].adds;
	ck_assert(sim_dependent(&o.c[2], &o.c[3]));
	ck_assert(!sim_dependent(&o.c[2], &o.c[0]));
	pair_free(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane_sim_spark");
	TCase *c = tcase_create("promises"), *r = tcase_create("rates");
	SRunner *run;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_sim_chooser_reaches_every_order_of_lanes);
	tcase_add_test(c, test_sim_tells_which_events_commute);
	tcase_add_test(r, test_sim_spark_rates_are_as_configured);
	tcase_add_test(r, test_sim_spark_small_put_takes_latency_post_and_event);
	tcase_add_test(r, test_sim_spark_node_shares_its_sides_and_domains_among_neighbours);
	suite_add_tcase(s, c);
	suite_add_tcase(s, r);
	run = srunner_create(s);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
