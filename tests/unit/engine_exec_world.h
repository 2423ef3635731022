/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a collective over simulated channels (engine_fake.h), in step with the reference (engine_ref.h).
 */
#ifndef TESTS_ENGINE_EXEC_WORLD_H
#define TESTS_ENGINE_EXEC_WORLD_H
#include <unistd.h>
#include "engine_fake.h"
#include "engine_ref.h"

struct rank {
	struct sircl_ctx ctx;
	struct engine *engine;
	struct team *team;
	struct op *op;
	struct ref_bufs bufs;
};

struct world {
	struct fake fake;
	struct rank rank[FAKE_N]; /* by position */
	int n;
	uint16_t rank_of[COLL_MAX_RANKS];
	struct tick tick;
};

static inline uint64_t no_clock(void *arg)
{
	(void)arg;
	abort(); /* nothing below engine_wait may ask */
}

struct setting {
	int n;
	enum coll_shape shape;
	enum coll_algo algo;
	size_t slice, window;
	uint64_t seed, op_timeout;
};

static inline const char *no_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static inline void setup(struct world *w, const struct setting *set)
{
	int n = set->n;

	memset(w, 0, sizeof(*w));
	w->n = n;
	fake_init(&w->fake, n, set->seed);
	for (int p = 0; p < n; p++)
		w->rank_of[p] = (uint16_t)((p * (n % 3 ? 3 : 1) + 1) % n);
	for (int p = 0; p < n; p++) {
		struct rank *r = &w->rank[p];
		struct engine_cfg ec = { .ctx = &r->ctx, .net = &w->fake.net[p], .ranks_here = 1 };
		struct team_cfg tc = { .name = "comm",
				       .id = 1,
				       .rank = w->rank_of[p],
				       .n = n,
				       .pos = p,
				       .shape = set->shape,
				       .class = CLASS_SIM,
				       .op_timeout = set->op_timeout ? set->op_timeout : 30 * SEC };

		ck_assert_int_eq(params_load_from(&r->ctx.params, no_environment, NULL), SIRCL_SUCCESS);
		r->ctx.params.num[PARAM_SLICE] = (int64_t)set->slice;
		r->ctx.params.num[PARAM_ALGO] = set->algo;
		if (set->window)
			r->ctx.params.num[PARAM_WINDOW] = (int64_t)set->window;
		r->ctx.rank = w->rank_of[p];
		r->ctx.clock = no_clock;
		r->ctx.log = (struct log){ .level = LOG_NONE, .fd = 2 };
		memcpy(tc.rank_of, w->rank_of, sizeof(tc.rank_of));
		for (uint16_t q = 0; q < n; q++)
			tc.node_of[q] = q;
		ck_assert_int_eq(engine_create(&ec, &r->engine), SIRCL_SUCCESS);
		ck_assert_int_eq(team_create(r->engine, &w->tick, &tc, &r->team), SIRCL_SUCCESS);
		ck_assert_int_eq(op_create(r->team, &r->op), SIRCL_SUCCESS);
	}
}

static inline void teardown(struct world *w)
{
	for (int p = 0; p < w->n; p++) {
		op_destroy(w->rank[p].op);
		team_destroy(w->rank[p].team, &w->tick);
		ck_assert_uint_ge(engine_memory(w->rank[p].engine), 1);
		engine_destroy(w->rank[p].engine);
		params_free(&w->rank[p].ctx.params);
	}
	fake_free(&w->fake);
}

/* Drives ranks in random order, except those in `frozen`, until all others' operations are done; false:
 * nothing moves any more. */
static inline bool run(struct world *w, unsigned frozen)
{
	int idle = 0;

	while (idle < 3000) {
		int p = (int)fake_random(&w->fake, (uint64_t)w->n);
		bool busy, all = true;

		for (int i = 0; i < w->n; i++)
			all &= (frozen >> i & 1) || op_done(w->rank[i].op);
		if (all)
			return true;
		w->tick.now += 100;
		if (!(frozen >> p & 1))
			idle = engine_drive(w->rank[p].engine, &w->tick, &busy) ? 0 : idle + 1;
	}
	return false;
}

static inline void prepare(struct world *w, int p, const struct ref_job *j)
{
	struct rank *r = &w->rank[p];
	struct op_args a = { .kind = j->kind,
			     .in = r->bufs.in,
			     .out = r->bufs.out,
			     .count = j->count,
			     .type = j->type,
			     .op = SIRCL_SUM };

	ck_assert_msg(op_prepare(r->op, &a) == SIRCL_SUCCESS, "%s", error_last()->msg);
}

static inline void start(struct world *w, int p)
{
	ck_assert_msg(engine_start(w->rank[p].engine, &w->tick, w->rank[p].op) == SIRCL_SUCCESS, "%s",
		      error_last()->msg);
}

/* One collective on all ranks; in place on those whose bit is set. */
static inline void collective(struct world *w, struct ref_job *j, unsigned in_place)
{
	void *expect = malloc(j->count * ref_elem(j) * (size_t)j->n + 1);

	memcpy(j->rank_of, w->rank_of, sizeof(j->rank_of));
	ref_result(j, expect);
	for (int p = 0; p < w->n; p++) {
		ref_alloc(j, w->rank_of[p], in_place >> p & 1, &w->rank[p].bufs);
		prepare(w, p, j);
		if (fake_random(&w->fake, 2))
			start(w, p);
		else
			w->rank[p].bufs.in_bytes |= 1ull << 63; /* later */
	}
	for (int p = 0; p < w->n; p++) {
		bool busy;

		engine_drive(w->rank[(p + 1) % w->n].engine, &w->tick, &busy);
		if (w->rank[p].bufs.in_bytes >> 63)
			start(w, p);
		w->rank[p].bufs.in_bytes &= ~(1ull << 63);
	}
	ck_assert_msg(run(w, 0), "hung: %s of %zu, algorithm %s, n %d", coll_kind_name(j->kind), j->count,
		      coll_algo_name(j->algo), j->n);
	for (int p = 0; p < w->n; p++) {
		ck_assert_int_eq(op_result(w->rank[p].op, NULL), SIRCL_SUCCESS);
		ck_assert_msg(ref_check(j, w->rank_of[p], &w->rank[p].bufs, expect),
			      "wrong: %s of %zu %s, algorithm %s, n %d, position %d, in place %x, seed %llu",
			      coll_kind_name(j->kind), j->count, type_name(j->type), coll_algo_name(j->algo),
			      j->n, p, in_place, (unsigned long long)j->seed);
		ref_free(&w->rank[p].bufs);
	}
	free(expect);
}

static inline void begin_all(struct world *w, struct ref_job *j, int except)
{
	memcpy(j->rank_of, w->rank_of, sizeof(j->rank_of));
	for (int p = 0; p < w->n; p++) {
		ref_alloc(j, w->rank_of[p], false, &w->rank[p].bufs);
		prepare(w, p, j);
		if (p != except)
			start(w, p);
	}
}

static inline void free_bufs(struct world *w)
{
	for (int p = 0; p < w->n; p++)
		ref_free(&w->rank[p].bufs);
}
#endif
