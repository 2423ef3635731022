/* SPDX-License-Identifier: Apache-2.0 */
/* Teams of nodes that are no neighbours, over real channels and relays, several at once in one engine. */
#include "engine_kinds.h"
#include "engine_world.h"
#include "engine/internal.h"

#define TEAMS 3

struct member {
	struct team *team;
	struct op *op;
	struct call_bufs bufs;
};

struct group {
	int n, node[EW_MAX];
	uint16_t rank_of[COLL_MAX_RANKS];
	struct call call;
	struct member m[EW_MAX]; /* by position */
};

struct teams {
	struct ew w;
	struct group g[TEAMS];
	int n;
};

static void open_member(struct teams *t, int g, int pos)
{
	struct group *gr = &t->g[g];
	struct ew_node *n = &t->w.node[gr->node[pos]];
	struct tick tick = ew_tick(&t->w);
	struct team_cfg tc = { .name = "part",
			       .id = (uint32_t)(2 + g),
			       .rank = gr->rank_of[pos],
			       .n = gr->n,
			       .pos = pos,
			       .shape = t->w.cfg.shape,
			       .class = CLASS_SIM,
			       .op_timeout = 30 * SEC };

	for (int p = 0; p < gr->n; p++)
		tc.node_of[p] = (uint16_t)gr->node[p];
	memcpy(tc.rank_of, gr->rank_of, sizeof(tc.rank_of));
	n->ctx.params.num[PARAM_RELAY_WINDOW] = 65536;
	ck_assert_msg(team_create(n->engine, &tick, &tc, &gr->m[pos].team) == SIRCL_SUCCESS, "%s",
		      error_last()->msg);
	ck_assert_int_eq(op_create(gr->m[pos].team, &gr->m[pos].op), SIRCL_SUCCESS);
}

/* nodes: per team the digits of its nodes. */
static void open_teams(struct teams *t, const struct ew_cfg *cfg, const char *const nodes[], int nteams)
{
	memset(t, 0, sizeof(*t));
	ew_create(&t->w, cfg);
	t->n = nteams;
	for (int g = 0; g < nteams; g++) {
		struct group *gr = &t->g[g];

		gr->n = (int)strlen(nodes[g]);
		for (int p = 0; p < gr->n; p++) {
			gr->node[p] = nodes[g][p] - '0';
			gr->rank_of[p] = (uint16_t)((p + 1) % gr->n);
		}
		for (int p = 0; p < gr->n; p++)
			open_member(t, g, p);
	}
}

static void close_teams(struct teams *t)
{
	struct tick tick = ew_tick(&t->w);

	for (int g = 0; g < t->n; g++) {
		for (int p = 0; p < t->g[g].n; p++) {
			op_destroy(t->g[g].m[p].op);
			team_destroy(t->g[g].m[p].team, &tick);
		}
	}
	ew_destroy(&t->w);
}

static bool teams_done(void *arg)
{
	struct teams *t = arg;

	for (int g = 0; g < t->n; g++)
		for (int p = 0; p < t->g[g].n; p++)
			if (!op_done(t->g[g].m[p].op))
				return false;
	return ew_done(&t->w);
}

static void begin_group(struct teams *t, struct group *gr)
{
	for (int p = 0; p < gr->n; p++) {
		struct member *m = &gr->m[p];
		struct op_args a;

		call_alloc(&gr->call, gr->rank_of[p], (gr->call.seed + (unsigned)p) % 3 == 0, 0, &m->bufs);
		a = call_args(&gr->call, gr->rank_of[p], &m->bufs);
		ck_assert_msg(op_prepare(m->op, &a) == SIRCL_SUCCESS, "%s", error_last()->msg);
	}
	for (int p = 0; p < gr->n; p++) {
		struct ew_node *n = &t->w.node[gr->node[p]];
		struct tick tick = ew_tick(&t->w);

		ck_assert_msg(engine_start(n->engine, &tick, gr->m[p].op) == SIRCL_SUCCESS, "%s",
			      error_last()->msg);
		sim_wake(t->w.sim, n->node);
	}
}

static void check_group(struct group *gr)
{
	for (int p = 0; p < gr->n; p++) {
		struct sircl_error err;

		ck_assert_msg(op_result(gr->m[p].op, &err) == SIRCL_SUCCESS, "position %d: %s", p, err.msg);
		ck_assert_msg(call_check(&gr->call, gr->rank_of[p], &gr->m[p].bufs),
			      "wrong: %s of %zu %s by %s, team of %d from node %d, position %d",
			      coll_kind_name(gr->call.kind), gr->call.count, type_name(gr->call.type),
			      op_algo(gr->m[p].op), gr->n, gr->node[0], p);
		call_free(&gr->m[p].bufs);
	}
}

/* One collective on every team and one of all ranks, at the same time. */
static void all_at_once(struct teams *t, unsigned turn)
{
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 7001, .n = t->w.cfg.n, .seed = turn
	};

	j.algo = t->w.cfg.algo;
	ew_begin(&t->w, &j, 0x5, 0);
	for (int p = 0; p < t->w.cfg.n; p++)
		ew_start(&t->w, p);
	for (int g = 0; g < t->n; g++) {
		struct group *gr = &t->g[g];

		gr->call = (struct call){ .kind = (enum coll_kind)((turn + (unsigned)g) % COLL_KINDS),
					  .type = turn % 2 ? SIRCL_INT32 : SIRCL_FLOAT16,
					  .count = turn % 3 ? 20011 : 13,
					  .n = gr->n,
					  .seed = turn };
		if (coll_has_root(gr->call.kind))
			gr->call.root = (int)(turn % (unsigned)gr->n);
		begin_group(t, gr);
	}
	ck_assert_msg(sim_run(t->w.sim, teams_done, t, sim_now(t->w.sim) + 20 * SEC), "hung in turn %u",
		      turn);
	ew_finish(&t->w, &j);
	ew_end(&t->w);
	for (int g = 0; g < t->n; g++)
		check_group(&t->g[g]);
}

static const struct {
	const char *nodes[TEAMS];
	int n, teams;
} layouts[] = {
	{ { "02", "13", "0123" }, 4, 3 },
	{ { "013", "24", "14" }, 5, 3 },
	{ { "0245", "13", "05" }, 6, 3 },
	{ { "02" }, 3, 1 },
};

START_TEST(test_engine_teams_of_non_neighbours_give_right_results_side_by_side)
{
	for (int shape = 0; shape < 2; shape++) {
		struct ew_cfg cfg = { .n = layouts[_i].n,
				      .shape = (enum coll_shape)shape,
				      .algo = ALGO_EXCHANGE,
				      .slice = 4096,
				      .seed = (uint64_t)(_i * 2 + shape) };
		struct teams t;

		open_teams(&t, &cfg, layouts[_i].nodes, layouts[_i].teams);
		for (unsigned turn = 0; turn < 2 * COLL_KINDS; turn++)
			all_at_once(&t, turn);
		close_teams(&t);
	}
}
END_TEST

/* Relays give what SIRCL_RELAY_WINDOW says, to the relayed channels only. */
START_TEST(test_engine_relayed_channels_have_the_window_of_relays)
{
	static const char *const nodes[] = { "02" };
	struct ew_cfg cfg = { .n = 4, .algo = ALGO_EXCHANGE, .window = 262144, .seed = 5 };
	struct teams t;

	open_teams(&t, &cfg, nodes, 1);
	all_at_once(&t, 1);
	for (int p = 0; p < 4; p++) {
		struct chan_net_stats st;

		chan_net_stats(t.w.node[p].net, &st);
		/* one channel through each of the other two, both directions */
		ck_assert_uint_eq(st.relay_bytes, p % 2 ? 2 * 65536 : 0);
		ck_assert_uint_eq(t.w.node[p].team->least_window, 262144);
	}
	for (int p = 0; p < 2; p++) /* slices are cut for the smaller window, on all ranks */
		ck_assert_uint_eq(t.g[0].m[p].team->least_window, 65536);
	close_teams(&t);
}
END_TEST

/* A wrap around the ring may be the only way that is relayed. */
START_TEST(test_engine_slices_suit_the_least_window_of_the_team)
{
	static const char *const nodes[] = { "012" };
	struct ew_cfg cfg = { .n = 4, .algo = ALGO_EXCHANGE, .window = 262144, .seed = 5 };
	struct teams t;

	open_teams(&t, &cfg, nodes, 1);
	for (int p = 0; p < 3; p++)
		ck_assert_uint_eq(t.g[0].m[p].team->least_window, 65536);
	close_teams(&t);
	cfg.shape = SHAPE_LINE;
	open_teams(&t, &cfg, nodes, 1);
	for (int p = 0; p < 3; p++)
		ck_assert_uint_eq(t.g[0].m[p].team->least_window, 262144);
	close_teams(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine teams");
	TCase *c = tcase_create("teams");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, test_engine_teams_of_non_neighbours_give_right_results_side_by_side, 0,
			    sizeof(layouts) / sizeof(layouts[0]));
	tcase_add_test(c, test_engine_relayed_channels_have_the_window_of_relays);
	tcase_add_test(c, test_engine_slices_suit_the_least_window_of_the_team);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
