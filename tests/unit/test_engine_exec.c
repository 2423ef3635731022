/* SPDX-License-Identifier: Apache-2.0 */
/* The executor over simulated channels: results, order, limits, ends. */
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

static uint64_t no_clock(void *arg)
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

static const char *no_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void setup(struct world *w, const struct setting *set)
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
		ck_assert_int_eq(engine_create(&ec, &r->engine), SIRCL_SUCCESS);
		ck_assert_int_eq(team_create(r->engine, &w->tick, &tc, &r->team), SIRCL_SUCCESS);
		ck_assert_int_eq(op_create(r->team, &r->op), SIRCL_SUCCESS);
	}
}

static void teardown(struct world *w)
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
static bool run(struct world *w, unsigned frozen)
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

static void prepare(struct world *w, int p, const struct ref_job *j)
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

static void start(struct world *w, int p)
{
	ck_assert_msg(engine_start(w->rank[p].engine, &w->tick, w->rank[p].op) == SIRCL_SUCCESS, "%s",
		      error_last()->msg);
}

/* One collective on all ranks; in place on those whose bit is set. */
static void collective(struct world *w, struct ref_job *j, unsigned in_place)
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

static void all_sizes(enum coll_kind kind, enum coll_algo algo, int n, enum coll_shape shape)
{
	static const size_t counts[] = { 0, 1, 2, 3, 17, 255, 1000, 4099, 30011 };
	struct setting set = {
		.n = n, .shape = shape, .algo = algo, .slice = 1024, .window = 65536, .seed = 7
	};
	struct world w;

	setup(&w, &set);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct ref_job j = { .kind = kind,
				     .algo = algo,
				     .type = i % 2 ? SIRCL_FLOAT32 : SIRCL_BFLOAT16,
				     .count = counts[i],
				     .n = n,
				     .seed = i + 1 };

		collective(&w, &j, 0);
		j.type = i % 2 ? SIRCL_BFLOAT16 : SIRCL_FLOAT32;
		collective(&w, &j, 0xffff);
		collective(&w, &j, 0x5a5a);
	}
	teardown(&w);
}

START_TEST(test_engine_all_reduce_gives_the_documented_bits)
{
	for (int n = 2; n <= 8; n++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = 0; shape < 2; shape++)
				if (coll_can(COLL_ALL_REDUCE, (enum coll_algo)algo, n,
					     (enum coll_shape)shape))
					all_sizes(COLL_ALL_REDUCE, (enum coll_algo)algo, n,
						  (enum coll_shape)shape);
}
END_TEST

START_TEST(test_engine_all_gather_gives_every_rank_everything)
{
	for (int n = 2; n <= 8; n++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = 0; shape < 2; shape++)
				if (coll_can(COLL_ALL_GATHER, (enum coll_algo)algo, n,
					     (enum coll_shape)shape))
					all_sizes(COLL_ALL_GATHER, (enum coll_algo)algo, n,
						  (enum coll_shape)shape);
}
END_TEST

/* 64-byte slices of a block of 16 KiB would be one round; a small limit of scratch is reached with large
 * slices. */
START_TEST(test_engine_rounds_bound_scratch_and_keep_bits)
{
	struct setting set = {
		.n = 5, .algo = ALGO_EXCHANGE, .slice = 1 << 20, .window = 4 << 20, .seed = 3
	};
	struct ref_job j = { .kind = COLL_ALL_REDUCE,
			     .algo = ALGO_EXCHANGE,
			     .type = SIRCL_BFLOAT16,
			     .count = (6 << 19) + 5,
			     .n = 5,
			     .seed = 9 };
	struct world w;

	setup(&w, &set);
	w.fake.max_piece = 1 << 20;
	collective(&w, &j, 0x15);
	/* 4 slices of 1 MiB in each of 4 blocks and a wide accumulator, not 6 MiB each */
	ck_assert_uint_lt(engine_memory(w.rank[0].engine), 26u << 20);
	teardown(&w);
	set = (struct setting){ .n = 4, .algo = ALGO_TWO_MATCHINGS, .slice = 1 << 20, .seed = 3 };
	j.algo = ALGO_TWO_MATCHINGS;
	j.n = 4;
	setup(&w, &set);
	w.fake.max_piece = 1 << 20;
	collective(&w, &j, 0x5);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_bits_do_not_depend_on_slices_and_windows)
{
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct setting set = { .n = 2 + (int)(seed % 7),
				       .algo = seed % 2 ? ALGO_RING : ALGO_EXCHANGE,
				       .slice = 64 << (seed % 7),
				       .window = 65536 << (seed % 3),
				       .seed = seed };
		struct ref_job j = { .kind = COLL_ALL_REDUCE,
				     .algo = set.algo,
				     .type = SIRCL_BFLOAT16,
				     .count = 9001,
				     .n = set.n,
				     .seed = 42 };
		struct world w;

		setup(&w, &set);
		w.fake.max_delay = seed % 5 * 40;
		w.fake.max_piece = seed % 3 ? 128 : 9000;
		collective(&w, &j, (unsigned)seed * 37);
		teardown(&w);
	}
}
END_TEST

START_TEST(test_engine_one_rank_copies)
{
	struct setting set = { .n = 1, .seed = 1 };
	struct ref_job j = { .kind = COLL_ALL_REDUCE,
			     .algo = ALGO_EXCHANGE,
			     .type = SIRCL_FLOAT32,
			     .count = 1000,
			     .n = 1,
			     .seed = 4 };
	struct world w;

	setup(&w, &set);
	collective(&w, &j, 0);
	j.kind = COLL_ALL_GATHER;
	collective(&w, &j, 1);
	ck_assert_uint_eq(team_ops(w.rank[0].team), 2);
	teardown(&w);
}
END_TEST

/* Several operations of a team run in order of their numbers. */
START_TEST(test_engine_operations_of_a_team_run_in_order)
{
	struct setting set = { .n = 3, .algo = ALGO_RING, .slice = 256, .seed = 5 };
	struct ref_job j[3];
	struct ref_bufs b[3][3];
	struct op *op[3][3];
	struct world w;
	void *expect = malloc(1 << 20);

	setup(&w, &set);
	for (int k = 0; k < 3; k++) {
		j[k] = (struct ref_job){ .kind = k == 1 ? COLL_ALL_GATHER : COLL_ALL_REDUCE,
					 .algo = ALGO_RING,
					 .type = SIRCL_FLOAT32,
					 .count = 3000 + (size_t)k,
					 .n = 3,
					 .seed = 20 + (uint64_t)k };
		memcpy(j[k].rank_of, w.rank_of, sizeof(j[k].rank_of));
		for (int p = 0; p < 3; p++) {
			struct op_args a = { .kind = j[k].kind, .count = j[k].count, .type = j[k].type };

			ref_alloc(&j[k], w.rank_of[p], false, &b[k][p]);
			a.in = b[k][p].in;
			a.out = b[k][p].out;
			ck_assert_int_eq(op_create(w.rank[p].team, &op[k][p]), SIRCL_SUCCESS);
			ck_assert_int_eq(op_prepare(op[k][p], &a), SIRCL_SUCCESS);
			ck_assert_int_eq(engine_start(w.rank[p].engine, &w.tick, op[k][p]), SIRCL_SUCCESS);
			ck_assert_int_eq(engine_start(w.rank[p].engine, &w.tick, op[k][p]),
					 SIRCL_INVALID_USAGE);
		}
	}
	for (int i = 0; i < 200000 && !(op_done(op[2][0]) && op_done(op[2][1]) && op_done(op[2][2])); i++) {
		bool busy;

		engine_drive(w.rank[i % 3].engine, &w.tick, &busy);
		for (int p = 0; p < 3; p++)
			ck_assert(op_done(op[0][p]) >= op_done(op[1][p]) &&
				  op_done(op[1][p]) >= op_done(op[2][p]));
	}
	for (int k = 0; k < 3; k++) {
		ref_result(&j[k], expect);
		for (int p = 0; p < 3; p++) {
			ck_assert_int_eq(op_result(op[k][p], NULL), SIRCL_SUCCESS);
			ck_assert(ref_check(&j[k], w.rank_of[p], &b[k][p], expect));
			op_destroy(op[k][p]);
			ref_free(&b[k][p]);
		}
	}
	ck_assert_uint_eq(team_ops(w.rank[1].team), 3);
	free(expect);
	teardown(&w);
}
END_TEST

static void begin_all(struct world *w, struct ref_job *j, int except)
{
	memcpy(j->rank_of, w->rank_of, sizeof(j->rank_of));
	for (int p = 0; p < w->n; p++) {
		ref_alloc(j, w->rank_of[p], false, &w->rank[p].bufs);
		prepare(w, p, j);
		if (p != except)
			start(w, p);
	}
}

static void free_bufs(struct world *w)
{
	for (int p = 0; p < w->n; p++)
		ref_free(&w->rank[p].bufs);
}

START_TEST(test_engine_different_calls_are_an_error_with_both_texts)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 6 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 1000, .n = 2, .seed = 1
	};
	struct sircl_error err;
	struct world w;
	char ours[64], theirs[64];

	setup(&w, &set);
	begin_all(&w, &j, 1);
	j.count = 10;
	prepare(&w, 1, &j);
	start(&w, 1);
	ck_assert(run(&w, 0));
	snprintf(ours, sizeof(ours), "rank %d called all_reduce of 1000 float, sum, number 0", w.rank_of[0]);
	snprintf(theirs, sizeof(theirs), "rank %d called all_reduce of 10 float, sum, number 0",
		 w.rank_of[1]);
	for (int p = 0; p < 2; p++) {
		ck_assert_int_eq(op_result(w.rank[p].op, &err), SIRCL_MISMATCH);
		ck_assert_msg(strstr(err.msg, ours) && strstr(err.msg, theirs), "%s", err.msg);
		ck_assert_uint_eq(w.fake.net[p].notices, 1);
		ck_assert_uint_eq(w.fake.net[p].notice_code, SIRCL_MISMATCH);
		ck_assert_int_eq(engine_start(w.rank[p].engine, &w.tick, w.rank[p].op), SIRCL_MISMATCH);
	}
	free_bufs(&w);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_different_kinds_and_numbers_are_an_error)
{
	struct setting set = { .n = 4, .seed = 6 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 999, .n = 4, .seed = 1
	};
	struct sircl_error err;
	int seen = 0;
	struct world w;

	setup(&w, &set);
	begin_all(&w, &j, 2);
	ref_free(&w.rank[2].bufs);
	j.kind = COLL_ALL_GATHER;
	ref_alloc(&j, w.rank_of[2], false, &w.rank[2].bufs);
	prepare(&w, 2, &j);
	start(&w, 2);
	run(&w, 0);
	for (int p = 0; p < 4; p++)
		if (op_result(w.rank[p].op, &err) == SIRCL_MISMATCH)
			seen++;
	ck_assert_int_ge(seen, 1);
	/* the api's notice callback does this */
	err = (struct sircl_error){ SIRCL_MISMATCH, "told" };
	for (int p = 0; p < 4; p++)
		team_fail(w.rank[p].team, &err);
	ck_assert(run(&w, 0));
	free_bufs(&w);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_first_error_of_a_team_is_kept)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 6 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 1000, .n = 2, .seed = 1
	};
	struct sircl_error a = { SIRCL_ABORTED, "first" }, b = { SIRCL_TIMEOUT, "second" }, got;
	struct world w;

	setup(&w, &set);
	begin_all(&w, &j, 1);
	team_fail(w.rank[0].team, &a);
	team_fail(w.rank[0].team, &b);
	ck_assert(!op_done(w.rank[0].op));
	ck_assert(run(&w, 2));
	ck_assert_int_eq(op_result(w.rank[0].op, &got), SIRCL_ABORTED);
	ck_assert_str_eq(got.msg, "first");
	ck_assert_uint_eq(w.fake.net[0].notices, 0);
	free_bufs(&w);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_no_operation_ends_while_the_peer_may_still_write)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 6 };
	struct ref_job j = {
		.kind = COLL_ALL_GATHER, .type = SIRCL_FLOAT32, .count = 1000, .n = 2, .seed = 1
	};
	struct sircl_error a = { SIRCL_ABORTED, "aborted" };
	struct world w;
	bool busy;

	setup(&w, &set);
	w.fake.no_revoke = true;
	begin_all(&w, &j, 1);
	team_fail(w.rank[0].team, &a);
	ck_assert(!run(&w, 2));
	ck_assert_uint_lt(engine_deadline(w.rank[0].engine), w.tick.now + 3 * SEC);
	w.tick.now = engine_deadline(w.rank[0].engine) - 1;
	engine_drive(w.rank[0].engine, &w.tick, &busy);
	ck_assert_int_eq(w.fake.kills, 0);
	w.tick.now += 1;
	engine_drive(w.rank[0].engine, &w.tick, &busy);
	ck_assert_int_ge(w.fake.kills, 1);
	ck_assert(run(&w, 2));
	ck_assert_int_eq(op_result(w.rank[0].op, NULL), SIRCL_ABORTED);
	free_bufs(&w);
	teardown(&w);
}
END_TEST

/* Drives position p alone through virtual time, by its deadlines; `alive`: its neighbours' heartbeats arrive.
 */
static void pass_time(struct world *w, int p, uint64_t until, bool alive)
{
	while (w->tick.now < until && !op_done(w->rank[p].op)) {
		uint64_t next = engine_deadline(w->rank[p].engine);
		bool busy;

		w->tick.now = next < until ? next : until;
		w->fake.notes += alive;
		engine_drive(w->rank[p].engine, &w->tick, &busy);
	}
}

START_TEST(test_engine_silent_neighbour_is_a_named_error_after_the_limit)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 6, .op_timeout = 8 * SEC };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 1000, .n = 2, .seed = 1
	};
	struct sircl_error err;
	struct world w;
	char who[32];

	setup(&w, &set);
	begin_all(&w, &j, 1);
	run(&w, 2);
	pass_time(&w, 0, 7 * SEC, false);
	ck_assert(!op_done(w.rank[0].op));
	pass_time(&w, 0, 10 * SEC, false);
	ck_assert_int_eq(op_result(w.rank[0].op, &err), SIRCL_TIMEOUT);
	snprintf(who, sizeof(who), "rank %d", w.rank_of[1]);
	ck_assert_msg(strstr(err.msg, who) && strstr(err.msg, "all_reduce of 1000 float, sum, number 0") &&
			      strstr(err.msg, "all_reduce/exchange") && strstr(err.msg, "cable"),
		      "%s", err.msg);
	free_bufs(&w);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_late_rank_is_reported_once_and_is_no_error)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 6 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 1000, .n = 2, .seed = 1
	};
	char text[4096] = "", who[64], *at;
	void *expect = malloc(4000);
	FILE *log = tmpfile();
	struct world w;

	setup(&w, &set);
	w.rank[0].ctx.log = (struct log){ .level = LOG_WARN, .fd = fileno(log) };
	begin_all(&w, &j, 1);
	run(&w, 2);
	pass_time(&w, 0, 29 * SEC, true);
	ck_assert_int_eq(lseek(fileno(log), 0, SEEK_END), 0);
	pass_time(&w, 0, 200 * SEC, true);
	ck_assert(!op_done(w.rank[0].op));
	ck_assert_int_gt(pread(fileno(log), text, sizeof(text) - 1, 0), 0);
	snprintf(who, sizeof(who), "for rank %d, which lives but has not entered all_reduce", w.rank_of[1]);
	ck_assert_msg(strstr(text, who) != NULL, "%s", text);
	at = strchr(text, '\n');
	ck_assert(at && !at[1]);
	start(&w, 1);
	ck_assert(run(&w, 0));
	ref_result(&j, expect);
	for (int p = 0; p < 2; p++)
		ck_assert(ref_check(&j, w.rank_of[p], &w.rank[p].bufs, expect));
	fclose(log);
	free(expect);
	free_bufs(&w);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_bad_choices_leave_the_team_usable)
{
	struct setting set = { .n = 3, .algo = ALGO_TWO_MATCHINGS, .seed = 6 };
	struct op_args a = { .kind = COLL_ALL_REDUCE, .count = 10, .type = SIRCL_INT8, .op = SIRCL_SUM };
	struct world w;

	setup(&w, &set);
	a.in = a.out = &w;
	ck_assert_int_eq(op_prepare(w.rank[0].op, &a), SIRCL_UNSUPPORTED);
	a.type = SIRCL_FLOAT32;
	ck_assert_int_eq(op_prepare(w.rank[0].op, &a), SIRCL_UNSUPPORTED);
	ck_assert_int_eq(engine_start(w.rank[0].engine, &w.tick, w.rank[0].op), SIRCL_INVALID_USAGE);
	ck_assert_int_eq(team_error(w.rank[0].team, NULL), SIRCL_SUCCESS);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_flight_recorder_keeps_the_last_64)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 8 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .algo = ALGO_EXCHANGE, .type = SIRCL_FLOAT32, .n = 2, .seed = 1
	};
	char text[16384];
	int lines = 0;
	struct world w;

	setup(&w, &set);
	for (size_t i = 0; i < 70; i++) {
		j.count = 1 + i;
		collective(&w, &j, 0);
	}
	ck_assert_int_lt(team_flight_text(w.rank[0].team, text, sizeof(text)), (int)sizeof(text));
	for (char *c = text; *c; c++)
		lines += *c == '\n';
	ck_assert_int_eq(lines, 64);
	ck_assert_ptr_eq(strstr(text, "number 6: all_reduce of 7 float, sum by exchange, started at"), text);
	ck_assert(strstr(text, "number 69: all_reduce of 70 float") && !strstr(text, "running"));
	ck_assert_int_gt(team_flight_text(w.rank[0].team, text, 100), 100);
	ck_assert_uint_lt(strlen(text), 100);
	teardown(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine executor");
	TCase *c = tcase_create("exec");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_engine_all_reduce_gives_the_documented_bits);
	tcase_add_test(c, test_engine_all_gather_gives_every_rank_everything);
	tcase_add_test(c, test_engine_rounds_bound_scratch_and_keep_bits);
	tcase_add_test(c, test_engine_bits_do_not_depend_on_slices_and_windows);
	tcase_add_test(c, test_engine_one_rank_copies);
	tcase_add_test(c, test_engine_operations_of_a_team_run_in_order);
	tcase_add_test(c, test_engine_different_calls_are_an_error_with_both_texts);
	tcase_add_test(c, test_engine_different_kinds_and_numbers_are_an_error);
	tcase_add_test(c, test_engine_first_error_of_a_team_is_kept);
	tcase_add_test(c, test_engine_no_operation_ends_while_the_peer_may_still_write);
	tcase_add_test(c, test_engine_silent_neighbour_is_a_named_error_after_the_limit);
	tcase_add_test(c, test_engine_late_rank_is_reported_once_and_is_no_error);
	tcase_add_test(c, test_engine_bad_choices_leave_the_team_usable);
	tcase_add_test(c, test_engine_flight_recorder_keeps_the_last_64);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
