/* SPDX-License-Identifier: Apache-2.0 */
/* What waiting does not do: look at an operation that cannot have moved, read the clock while things move. */
#include "engine_fake.h"

struct rank {
	struct fake fake;
	struct sircl_ctx ctx;
	struct engine *engine;
	struct team *team;
	struct op *op;
	float in[256], out[256];
	unsigned clocks, rounds;
};

static uint64_t counting_clock(void *arg)
{
	struct rank *r = arg;

	return 1000 + 100ull * ++r->clocks;
}

static const char *no_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

/* Position 0 of a ring of four whose other positions never come. */
static void setup(struct rank *r, struct tick *t)
{
	struct engine_cfg ec = { .ctx = &r->ctx, .net = &r->fake.net[0], .ranks_here = 64 };
	struct team_cfg tc = { .id = 1,
			       .n = 4,
			       .class = CLASS_SHM,
			       .rank_of = { 0, 1, 2, 3 },
			       .node_of = { 0, 1, 2, 3 },
			       .op_timeout = SEC };

	memset(r, 0, sizeof(*r));
	fake_init(&r->fake, 4, 1);
	ck_assert_int_eq(params_load_from(&r->ctx.params, no_environment, NULL), SIRCL_SUCCESS);
	r->ctx.clock = counting_clock;
	r->ctx.clock_arg = r;
	r->ctx.log = (struct log){ .level = LOG_NONE, .fd = 2 };
	ck_assert_int_eq(engine_create(&ec, &r->engine), SIRCL_SUCCESS);
	ck_assert_int_eq(team_create(r->engine, t, &tc, &r->team), SIRCL_SUCCESS);
	ck_assert_int_eq(op_create(r->team, &r->op), SIRCL_SUCCESS);
}

static void teardown(struct rank *r, struct tick *t)
{
	op_destroy(r->op);
	team_destroy(r->team, t);
	engine_destroy(r->engine);
	params_free(&r->ctx.params);
	fake_free(&r->fake);
}

START_TEST(test_engine_does_not_look_at_what_cannot_have_moved)
{
	static struct rank r;
	struct tick t = { .now = 1000 };
	struct op_args a = {
		.kind = COLL_ALL_REDUCE, .in = r.in, .out = r.out, .count = 256, .type = SIRCL_FLOAT32
	};
	struct sircl_error err = { SIRCL_ABORTED, "enough" };
	struct xfer *x;
	uint64_t views;
	bool busy;

	setup(&r, &t);
	ck_assert_int_eq(op_prepare(r.op, &a), SIRCL_SUCCESS);
	ck_assert_int_eq(engine_start(r.engine, &t, r.op), SIRCL_SUCCESS);
	/* the first message has begun to arrive, so that a look at the operation is a look at its window */
	x = r.fake.net[0].chan[0]->in[0].x;
	x->tagged = true;
	x->tag = op_tag(0, &a);
	r.fake.net[0].news = true;
	while (engine_drive(r.engine, &t, &busy))
		;
	views = r.fake.views;
	ck_assert_uint_gt(views, 0); /* it does wait for something to sum */
	for (int i = 0; i < 100; i++) {
		t.now += 100;
		ck_assert(!engine_drive(r.engine, &t, &busy));
	}
	ck_assert_uint_eq(r.fake.views, views);
	r.fake.net[0].news = true; /* now it may have */
	engine_drive(r.engine, &t, &busy);
	ck_assert_uint_gt(r.fake.views, views);
	team_fail(r.team, &err);
	for (int i = 0; i < 100 && !op_done(r.op); i++)
		engine_drive(r.engine, &t, &busy);
	teardown(&r, &t);
}
END_TEST

static bool a_thousand_rounds(void *arg)
{
	struct rank *r = arg;

	r->fake.net[0].news = true; /* something happens in every round */
	return ++r->rounds >= 1000;
}

START_TEST(test_engine_wait_reads_the_clock_seldom_while_things_move)
{
	static struct rank r;
	struct tick t = { .now = 1000 };

	setup(&r, &t);
	ck_assert_int_eq(engine_wait_until(r.engine, a_thousand_rounds, &r, NEVER), SIRCL_SUCCESS);
	ck_assert_uint_le(r.clocks, 1000 / 8 + 2);
	ck_assert_uint_ge(r.clocks, 1000 / 20); /* but it does, since a limit may be near */
	teardown(&r, &t);
}
END_TEST

START_TEST(test_engine_window_of_shared_memory_is_at_most_256_KiB)
{
	static struct rank r;
	struct tick t = { .now = 1000 };

	setup(&r, &t);
	ck_assert_int_eq(param_num(&r.ctx.params, PARAM_WINDOW), 1 << 20);
	ck_assert_uint_eq(r.fake.net[0].chan[0]->cfg.window, 256 << 10);
	teardown(&r, &t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine cost");
	TCase *c = tcase_create("cost");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_engine_does_not_look_at_what_cannot_have_moved);
	tcase_add_test(c, test_engine_wait_reads_the_clock_seldom_while_things_move);
	tcase_add_test(c, test_engine_window_of_shared_memory_is_at_most_256_KiB);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
