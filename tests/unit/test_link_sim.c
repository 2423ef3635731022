/* SPDX-License-Identifier: Apache-2.0 */
/* A link on the simulator's lanes, which are as nasty as RDMA may be: pieces, late landings, lost errors. */
#include "lane/sim.h"
#include "link_pair.h"

/* As lane_sim_ops, but little is copied: sources are retained, read late, released by acknowledgement. */
static struct lane_ops direct_ops;

struct sim_pair {
	struct pair p;
	struct sim *sim;
	int node[2], nlanes;
	bool idle_ok; /* done although acknowledgements are missing */
};

static void run_end(struct pair_end *e, struct tick *t)
{
	e->pair->now = t->now;
	link_progress(e->link, t);
	pair_send(e, t);
}

static void run(void *arg, struct tick *t)
{
	run_end(arg, t);
}

static uint64_t deadline(void *arg)
{
	return link_deadline(((struct pair_end *)arg)->link);
}

static void violation(void *arg, const char *sentence)
{
	struct pair *p = arg;

	if (!p->fail)
		p->fail = strdup(sentence);
}

static bool finished(void *arg)
{
	struct sim_pair *s = arg;

	return s->p.fail || pair_done(&s->p) || s->p.end[0].dead || s->p.end[1].dead;
}

static bool never(void *arg)
{
	return ((struct sim_pair *)arg)->p.fail;
}

static bool all_up(void *arg)
{
	struct sim_pair *s = arg;

	return link_state(s->p.end[0].link) == LINK_UP && link_state(s->p.end[1].link) == LINK_UP;
}

static struct sim_pair *sim_pair_new(const struct sim_fabric *fabric, uint64_t seed, int nlanes,
				     uint32_t window, bool registered)
{
	struct sim_pair *s = calloc(1, sizeof(*s));
	void *provider[2][LANES_MAX];
	struct tick t;

	s->nlanes = nlanes;
	ck_assert_int_eq(sim_create(&s->sim, fabric, seed), SIRCL_SUCCESS);
	sim_on_violation(s->sim, violation, &s->p);
	for (int e = 0; e < 2; e++)
		s->node[e] = sim_node(
			s->sim,
			&(struct sim_program){ .run = run, .deadline = deadline, .arg = &s->p.end[e] });
	for (int i = 0; i < nlanes; i++) {
		struct sim_port *a, *b;

		sim_cable_lane(s->sim, 0, i, s->node[0], s->node[1], &a, &b);
		provider[0][i] = a;
		provider[1][i] = b;
	}
	direct_ops = lane_sim_ops;
	direct_ops.copy_limit = 128;
	for (int e = 0; e < 2; e++)
		pair_open(&s->p, e, nlanes, registered ? &direct_ops : &lane_sim_ops, provider[e], window);
	link_test_start(s->p.end[0].link, (1ull << 32) - 50, 12345);
	link_test_start(s->p.end[1].link, 12345, (1ull << 32) - 50);
	pair_connect(&s->p);
	t = (struct tick){ .now = s->p.now };
	for (int e = 0; e < 2; e++)
		if (registered)
			must(link_region_add(s->p.end[e].link, &t, s->p.end[e].src, PAIR_SLOTS * PAIR_BYTES,
					     &s->p.end[e].smem) == SIRCL_SUCCESS,
			     "register");
	sim_wake(s->sim, s->node[0]);
	sim_wake(s->sim, s->node[1]);
	must(sim_run(s->sim, all_up, s, 100 * MSEC), "lanes come up");
	return s;
}

static void sim_go(struct sim_pair *s, uint64_t limit, const char *what, uint64_t k)
{
	const struct pair_end *a = &s->p.end[0], *b = &s->p.end[1];
	bool ok;

	sim_wake(s->sim, s->node[0]);
	sim_wake(s->sim, s->node[1]);
	ok = sim_run(s->sim, finished, s, sim_now(s->sim) + limit);
	if (s->p.fail || !ok || a->dead || b->dead)
		ck_abort_msg("%s %llu, seed %llu: %s; A sent %u/%u got %u released %u/%u dead %d, B sent "
			     "%u/%u got %u "
			     "released %u/%u dead %d; %s %s",
			     what, (unsigned long long)k, (unsigned long long)sim_seed(s->sim),
			     s->p.fail ? s->p.fail : "not finished", a->sent, a->goal, a->got, a->released,
			     a->posted, a->dead, b->sent, b->goal, b->got, b->released, b->posted, b->dead,
			     link_error(a->link)->msg, link_error(b->link)->msg);
	sim_run(s->sim, never, s, sim_now(s->sim) + 2 * SEC); /* whatever is late has landed by then */
	pair_check(&s->p);
	for (int e = 0; e < 2; e++) /* a duplicate is refused only where the note was delivered twice */
		ck_assert_int_eq(s->p.end[e].dead, 0);
}

static void sim_pair_free(struct sim_pair *s)
{
	pair_close(&s->p);
	sim_destroy(s->sim);
	free(s);
}

static struct link_stats stats_of(const struct sim_pair *s, int e)
{
	struct link_stats st;

	link_stats(s->p.end[e].link, &st);
	return st;
}

START_TEST(test_link_sim_exactly_once_with_a_lane_killed_at_every_put)
{
	uint64_t replayed = 0, fences = 0;

	for (int registered = 0; registered < 2; registered++)
		for (uint64_t k = 0; k < 60; k++)
			for (unsigned seen = 0; seen < 4; seen++) {
				struct sim_pair *s = sim_pair_new(&sim_hostile, k + 1, 2, 8, registered);

				s->p.end[0].goal = s->p.end[1].goal = 25;
				s->p.end[0].len = 900;
				s->p.end[0].ack_soon = true;
				sim_kill_at_put(s->sim, k, seen);
				sim_go(s, 20 * SEC, "killed at put", k);
				for (int e = 0; e < 2; e++) {
					replayed += stats_of(s, e).frames_replayed;
					fences += stats_of(s, e).fences;
					ck_assert_uint_eq(stats_of(s, e).duplicates_refused, 0);
				}
				sim_pair_free(s);
			}
	ck_assert_uint_gt(replayed, 300);
	ck_assert_uint_gt(fences, 600);
}
END_TEST

START_TEST(test_link_sim_revived_lane_carries_frames_again)
{
	for (uint64_t k = 0; k < 24; k++) {
		struct sim_pair *s = sim_pair_new(&sim_hostile, k + 1, 2, 8, true);
		uint64_t before;

		s->p.end[0].goal = s->p.end[1].goal = 25;
		sim_kill_at_put(s->sim, k, (unsigned)k % 4);
		sim_go(s, 20 * SEC, "killed at put", k);
		sim_revive(s->sim, 0, 0);
		sim_revive(s->sim, 0, 1);
		must(sim_run(s->sim, all_up, s, sim_now(s->sim) + 3 * SEC), "both lanes come up again");
		before = stats_of(s, 0).lane_bytes_sent[0];
		ck_assert_uint_eq(s->p.end[0].link->lane[0].epoch, s->p.end[1].link->lane[0].epoch);
		s->p.end[0].goal = 300;
		sim_go(s, 20 * SEC, "after revival", k);
		ck_assert_uint_gt(stats_of(s, 0).lane_bytes_sent[0] - before, 1000);
		sim_pair_free(s);
	}
}
END_TEST

/* Everything at once, many seeds: deaths that heal, false alarms, stops, stalls, notes twice. */
START_TEST(test_link_sim_exactly_once_under_random_faults)
{
	uint64_t replayed = 0, refused = 0, fences = 0, reconnects = 0;
	struct sim_fault_count sum[FAULT_KINDS] = { 0 }, c[FAULT_KINDS];

	const char *more = getenv("SIRCL_TEST_SEEDS");
	uint64_t seeds = more ? strtoull(more, NULL, 10) : 300;

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct sim_pair *s =
			sim_pair_new(&sim_hostile, seed, 1 + (int)(seed % 4), 8u << seed % 5, seed & 1);
		uint64_t now = sim_now(s->sim);

		s->p.end[0].goal = 50 + (uint32_t)(seed * 7 % 200);
		s->p.end[1].goal = (uint32_t)(seed * 13 % 200);
		s->p.end[0].len = (uint32_t)(seed * 31 % PAIR_BYTES);
		s->p.end[1].len = (uint32_t)(seed * 57 % PAIR_BYTES);
		s->p.end[1].ack_soon = seed % 3 == 0;
		sim_plan_faults(s->sim, (1u << FAULT_KINDS) - 1, 1 + (int)(seed % 6), now, now + 300 * USEC);
		sim_go(s, 60 * SEC, "random faults", seed);
		sim_fault_counts(s->sim, c);
		for (int k = 0; k < FAULT_KINDS; k++)
			sum[k].struck += c[k].struck;
		for (int e = 0; e < 2; e++) {
			struct link_stats st = stats_of(s, e);

			replayed += st.frames_replayed;
			refused += st.duplicates_refused;
			fences += st.fences;
			reconnects += st.reconnects;
		}
		sim_pair_free(s);
	}
	for (int k = 0; k < FAULT_KINDS; k++)
		if (k != FAULT_REVIVE && k != FAULT_FREEZE)
			ck_assert_msg(sum[k].struck > 0, "%s never struck",
				      sim_fault_name((enum sim_fault)k));
	ck_assert_uint_gt(replayed, 100);
	ck_assert_uint_gt(refused, 0);
	ck_assert_uint_gt(fences, 100);
	ck_assert_uint_gt(reconnects, 50);
}
END_TEST

static bool one_dead(void *arg)
{
	struct sim_pair *s = arg;

	return s->p.end[0].dead || s->p.end[1].dead;
}

START_TEST(test_link_sim_dead_process_is_known_in_a_second)
{
	for (int who = 0; who < 2; who++) {
		struct sim_pair *s = sim_pair_new(&sim_hostile, 5, 3, 16, true);
		uint64_t now = sim_now(s->sim);

		sim_kill_node(s->sim, s->node[who]);
		must(sim_run(s->sim, one_dead, s, now + SEC), "known within a second");
		ck_assert_int_eq(s->p.end[!who].dead, 1);
		ck_assert_int_eq(link_error(s->p.end[!who].link)->code, SIRCL_REMOTE_ERROR);
		sim_pair_free(s);
	}
}
END_TEST

START_TEST(test_link_sim_stopped_node_costs_nothing)
{
	struct sim_pair *s = sim_pair_new(&sim_hostile, 9, 2, 16, true);

	s->p.end[0].goal = 400;
	s->p.end[1].goal = 400;
	for (int k = 0; k < 5; k++) {
		sim_wake(s->sim, s->node[0]);
		sim_wake(s->sim, s->node[1]);
		sim_run(s->sim, finished, s, sim_now(s->sim) + 20 * USEC);
		sim_freeze(s->sim, s->node[k & 1], 2 * SEC);
		sim_run(s->sim, never, s, sim_now(s->sim) + 2 * SEC);
	}
	sim_go(s, 10 * SEC, "stopped", 0);
	ck_assert_uint_eq(stats_of(s, 0).fences + stats_of(s, 1).fences, 0);
	sim_pair_free(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_sim");
	TCase *c = tcase_create("link_sim");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_link_sim_exactly_once_with_a_lane_killed_at_every_put);
	tcase_add_test(c, test_link_sim_revived_lane_carries_frames_again);
	tcase_add_test(c, test_link_sim_exactly_once_under_random_faults);
	tcase_add_test(c, test_link_sim_dead_process_is_known_in_a_second);
	tcase_add_test(c, test_link_sim_stopped_node_costs_nothing);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
