/* SPDX-License-Identifier: Apache-2.0 */
/* n nodes with engine, channels and links over lane/sim, in virtual time. */
#ifndef ENGINE_WORLD_H
#define ENGINE_WORLD_H
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"
#include "engine_ref.h"
#include "lane/sim.h"

#define EW_MAX 8

struct ew_cfg {
	const struct sim_fabric *fabric; /* NULL: sim_hostile */
	uint64_t seed;
	int n, lanes;
	enum coll_shape shape;
	enum coll_algo algo;
	size_t slice, window;
	uint64_t op_timeout;
};

struct ew_node {
	struct ew *world;
	int pos, node;
	struct sircl_ctx ctx;
	struct chan_net *net;
	struct link *link[LINK_SIDES];
	struct engine *engine;
	struct team *team;
	struct op *op;
	struct ref_bufs bufs;
	bool registered;
	int notices;
};

struct ew {
	struct ew_cfg cfg;
	struct sim *sim;
	struct ew_node node[EW_MAX];
	uint16_t rank_of[COLL_MAX_RANKS];
	char violation[300];
	unsigned skip; /* positions that ew_done does not wait for */
};

static const char *ew_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void ew_violation(void *arg, const char *sentence)
{
	struct ew *w = arg;

	if (!w->violation[0])
		snprintf(w->violation, sizeof(w->violation), "%s", sentence);
}

static void ew_run(void *arg, struct tick *t)
{
	struct ew_node *n = arg;
	bool busy;

	if (!n->engine)
		return;
	for (int i = 0; i < 10000; i++)
		if (!engine_drive(n->engine, t, &busy))
			return;
}

static uint64_t ew_deadline(void *arg)
{
	struct ew_node *n = arg;

	return n->engine ? engine_deadline(n->engine) : NEVER;
}

/* As the api does. */
static void ew_notice(void *user, struct tick *t, const struct chan_notice *notice)
{
	struct ew_node *n = user;
	struct sircl_error err = { .code = (sircl_result_t)notice->code };

	(void)t;
	n->notices++;
	if (notice->kind != NOTICE_ABORT || !n->team || notice->arg != 1)
		return;
	snprintf(err.msg, sizeof(err.msg), "told by position %u", notice->origin);
	team_fail(n->team, &err);
}

static void ew_open_node(struct ew *w, int p)
{
	struct ew_node *n = &w->node[p];
	struct chan_net_cfg nc = { .ctx = &n->ctx,
				   .self = p,
				   .n = w->cfg.n,
				   .ring = w->cfg.shape == SHAPE_RING,
				   .relay_limit = 1 << 20,
				   .notice = ew_notice,
				   .user = n,
				   .rank_of = w->rank_of };

	n->world = w;
	n->pos = p;
	ck_assert_int_eq(params_load_from(&n->ctx.params, ew_environment, NULL), SIRCL_SUCCESS);
	n->ctx.params.num[PARAM_ALGO] = w->cfg.algo;
	n->ctx.params.num[PARAM_SLICE] = (int64_t)w->cfg.slice;
	n->ctx.params.num[PARAM_WINDOW] = (int64_t)w->cfg.window;
	n->ctx.log = (struct log){ .level = getenv("SIRCL_TEST_LOG") ? LOG_TRACE : LOG_NONE,
				   .subsys = LOG_ALL,
				   .fd = 2,
				   .rank = p };
	n->ctx.rank = w->rank_of[p];
	n->ctx.nranks = w->cfg.n;
	n->ctx.clock = sim_clock;
	n->ctx.clock_arg = w->sim;
	ck_assert_int_eq(chan_net_create(&nc, &n->net), SIRCL_SUCCESS);
	n->node = sim_node(w->sim, &(struct sim_program){ .run = ew_run, .deadline = ew_deadline, .arg = n });
}

static void ew_open_link(struct ew *w, int p, enum link_side side, struct sim_port *const port[], int cable)
{
	struct ew_node *n = &w->node[p];
	int peer = (p + (side == LINK_NEXT ? 1 : w->cfg.n - 1)) % w->cfg.n;
	struct link_cfg lc = { .ctx = &n->ctx,
			       .lab = "engine",
			       .side = side,
			       .cable = (uint16_t)cable,
			       .self = (uint16_t)p,
			       .peer = (uint16_t)peer,
			       .self_rank = w->rank_of[p],
			       .peer_rank = w->rank_of[peer],
			       .connects = side == LINK_NEXT,
			       .nlanes = w->cfg.lanes,
			       .arena_bytes = 2 * w->cfg.window + (2 << 20),
			       .ops = chan_net_link_ops(),
			       .user = n->net };

	for (int l = 0; l < w->cfg.lanes; l++) {
		lc.lane[l].ops = &lane_sim_ops;
		lc.lane[l].provider = port[l];
	}
	ck_assert_msg(link_open(&lc, &n->link[side]) == SIRCL_SUCCESS, "%s", error_last()->msg);
	chan_net_set_link(n->net, side, n->link[side]);
}

static bool ew_up(void *arg)
{
	struct ew *w = arg;

	for (int p = 0; p < w->cfg.n; p++)
		for (int s = 0; s < LINK_SIDES; s++)
			if (w->node[p].link[s] && link_state(w->node[p].link[s]) != LINK_UP)
				return false;
	return true;
}

static void ew_wake(struct ew *w)
{
	for (int p = 0; p < w->cfg.n; p++)
		sim_wake(w->sim, w->node[p].node);
}

static struct tick ew_tick(struct ew *w)
{
	return (struct tick){ .now = sim_now(w->sim) };
}

static int ew_cables(const struct ew *w)
{
	return w->cfg.n == 1 ? 0 : w->cfg.shape == SHAPE_RING ? w->cfg.n : w->cfg.n - 1;
}

static void ew_connect(struct ew *w)
{
	struct tick t = ew_tick(w);

	for (int p = 0; p < w->cfg.n; p++) {
		for (int s = 0; s < LINK_SIDES; s++) {
			int peer = (p + (s == LINK_NEXT ? 1 : w->cfg.n - 1)) % w->cfg.n;
			struct link_addr a;

			if (!w->node[p].link[s])
				continue;
			link_local_addr(w->node[peer].link[!s], &a);
			ck_assert_int_eq(link_connect(w->node[p].link[s], &t, &a), SIRCL_SUCCESS);
		}
	}
	ew_wake(w);
	ck_assert_msg(sim_run(w->sim, ew_up, w, sim_now(w->sim) + 5 * SEC), "links are not up after 5 s");
}

static void ew_team(struct ew *w, int p)
{
	struct ew_node *n = &w->node[p];
	struct tick t = ew_tick(w);
	struct team_cfg tc = { .name = "comm",
			       .id = 1,
			       .rank = w->rank_of[p],
			       .n = w->cfg.n,
			       .pos = p,
			       .shape = w->cfg.shape,
			       .class = CLASS_SIM,
			       .op_timeout = w->cfg.op_timeout ? w->cfg.op_timeout : 30 * SEC };

	memcpy(tc.rank_of, w->rank_of, sizeof(tc.rank_of));
	for (uint16_t q = 0; q < w->cfg.n; q++)
		tc.node_of[q] = q;
	ck_assert_msg(team_create(n->engine, &t, &tc, &n->team) == SIRCL_SUCCESS, "%s", error_last()->msg);
	ck_assert_int_eq(op_create(n->team, &n->op), SIRCL_SUCCESS);
}

static void ew_create(struct ew *w, const struct ew_cfg *cfg)
{
	static const struct sim_fabric *const hostile = &sim_hostile;
	struct sim_port *a[LANES_MAX], *b[LANES_MAX];

	memset(w, 0, sizeof(*w));
	w->cfg = *cfg;
	if (!w->cfg.lanes)
		w->cfg.lanes = 2;
	if (!w->cfg.window)
		w->cfg.window = 65536;
	for (int p = 0; p < cfg->n; p++)
		w->rank_of[p] = (uint16_t)((p * (cfg->n % 3 ? 3 : 1) + 1) % cfg->n);
	ck_assert_int_eq(sim_create(&w->sim, cfg->fabric ? cfg->fabric : hostile, cfg->seed), SIRCL_SUCCESS);
	sim_on_violation(w->sim, ew_violation, w);
	for (int p = 0; p < cfg->n; p++)
		ew_open_node(w, p);
	for (int c = 0; c < ew_cables(w); c++) {
		int far = (c + 1) % cfg->n;

		for (int l = 0; l < w->cfg.lanes; l++)
			sim_cable_lane(w->sim, c, l, w->node[c].node, w->node[far].node, &a[l], &b[l]);
		ew_open_link(w, c, LINK_NEXT, a, c);
		ew_open_link(w, far, LINK_PREV, b, c);
	}
	for (int p = 0; p < cfg->n; p++) {
		struct engine_cfg ec = { .ctx = &w->node[p].ctx, .net = w->node[p].net, .ranks_here = 1 };

		ck_assert_int_eq(engine_create(&ec, &w->node[p].engine), SIRCL_SUCCESS);
	}
	ew_connect(w);
	for (int p = 0; p < cfg->n; p++)
		ew_team(w, p);
	ew_wake(w);
}

static void ew_destroy(struct ew *w)
{
	for (int p = 0; p < w->cfg.n; p++) {
		struct ew_node *n = &w->node[p];
		struct tick t = ew_tick(w);

		op_destroy(n->op);
		team_destroy(n->team, &t);
		engine_destroy(n->engine);
		n->engine = NULL;
		chan_net_destroy(n->net);
	}
	for (int p = 0; p < w->cfg.n; p++) {
		for (int s = 0; s < LINK_SIDES; s++)
			if (w->node[p].link[s])
				link_close(w->node[p].link[s]);
		params_free(&w->node[p].ctx.params);
	}
	ck_assert_msg(!w->violation[0], "%s", w->violation);
	sim_destroy(w->sim);
}

static bool ew_done(void *arg)
{
	struct ew *w = arg;

	for (int p = 0; p < w->cfg.n; p++)
		if (!(w->skip >> p & 1) && !op_done(w->node[p].op))
			return false;
	return true;
}

static void ew_prepare(struct ew *w, int p, const struct ref_job *j)
{
	struct ew_node *n = &w->node[p];
	struct op_args a = {
		.kind = j->kind, .in = n->bufs.in, .out = n->bufs.out, .count = j->count, .type = j->type
	};

	ck_assert_msg(op_prepare(n->op, &a) == SIRCL_SUCCESS, "%s", error_last()->msg);
}

static void ew_start(struct ew *w, int p)
{
	struct tick t = ew_tick(w);

	ck_assert_msg(engine_start(w->node[p].engine, &t, w->node[p].op) == SIRCL_SUCCESS, "%s",
		      error_last()->msg);
	sim_wake(w->sim, w->node[p].node);
}

/* Allocates, fills, registers (on positions whose bit is set) and starts. */
static void ew_begin(struct ew *w, struct ref_job *j, unsigned in_place, unsigned registered)
{
	memcpy(j->rank_of, w->rank_of, sizeof(j->rank_of));
	for (int p = 0; p < w->cfg.n; p++) {
		struct ew_node *n = &w->node[p];
		struct tick t = ew_tick(w);

		ref_alloc(j, w->rank_of[p], in_place >> p & 1, &n->bufs);
		n->registered = (registered >> p & 1) && n->bufs.out_bytes;
		if (n->registered)
			ck_assert_msg(chan_net_register(n->net, &t, n->bufs.out, n->bufs.out_bytes) ==
					      SIRCL_SUCCESS,
				      "%s", error_last()->msg);
		ew_prepare(w, p, j);
	}
}

static bool ew_settled(void *arg)
{
	struct ew *w = arg;

	for (int p = 0; p < w->cfg.n; p++)
		for (int s = 0; s < LINK_SIDES; s++)
			if (w->node[p].link[s] && !link_idle(w->node[p].link[s]))
				return false;
	return true;
}

static void ew_end(struct ew *w)
{
	bool any = false;

	for (int p = 0; p < w->cfg.n; p++)
		any |= w->node[p].registered;
	if (any)
		sim_run(w->sim, ew_settled, w, sim_now(w->sim) + SEC);
	for (int p = 0; p < w->cfg.n; p++) {
		struct ew_node *n = &w->node[p];
		struct tick t = ew_tick(w);

		if (n->registered)
			ck_assert_msg(chan_net_deregister(n->net, &t, n->bufs.out) == SIRCL_SUCCESS, "%s",
				      error_last()->msg);
		n->registered = false;
		ref_free(&n->bufs);
	}
}

/* Runs until all are done, and compares. */
static void ew_finish(struct ew *w, const struct ref_job *j)
{
	void *expect = malloc(j->count * ref_elem(j) * (size_t)j->n + 1);

	ref_result(j, expect);
	ck_assert_msg(sim_run(w->sim, ew_done, w, sim_now(w->sim) + 20 * SEC),
		      "hung: %s of %zu, algorithm %s, n %d, seed %llu", coll_kind_name(j->kind), j->count,
		      coll_algo_name(w->cfg.algo), j->n, (unsigned long long)w->cfg.seed);
	for (int p = 0; p < w->cfg.n; p++) {
		struct sircl_error err;

		ck_assert_msg(op_result(w->node[p].op, &err) == SIRCL_SUCCESS, "position %d: %s", p, err.msg);
		ck_assert_msg(ref_check(j, w->rank_of[p], &w->node[p].bufs, expect),
			      "wrong: %s of %zu %s, algorithm %s, n %d, position %d, seed %llu",
			      coll_kind_name(j->kind), j->count, type_name(j->type),
			      coll_algo_name(w->cfg.algo), j->n, p, (unsigned long long)w->cfg.seed);
	}
	ck_assert_msg(!w->violation[0], "%s", w->violation);
	free(expect);
}

static inline void ew_collective(struct ew *w, struct ref_job *j, unsigned in_place, unsigned registered)
{
	ew_begin(w, j, in_place, registered);
	for (int p = 0; p < w->cfg.n; p++)
		ew_start(w, p);
	ew_finish(w, j);
	ew_end(w);
}
#endif
