/* SPDX-License-Identifier: Apache-2.0 */
/* Who drives, and how waiting sleeps: driver token, engine_wait_until. */
#include "engine_wait_stub.h"

START_TEST(test_engine_wait_until_ends_at_its_limit_and_sleeps_meanwhile)
{
	struct stand s;
	uint64_t begun, cpu;

	setup(&s, false, 1);
	begun = real_clock(NULL);
	cpu = cpu_time();
	ck_assert_int_eq(engine_wait_until(s.engine, never, NULL, begun + 300 * MSEC), SIRCL_TIMEOUT);
	ck_assert_uint_ge(real_clock(NULL) - begun, 300 * MSEC);
	ck_assert_uint_lt(cpu_time() - cpu, 60 * MSEC);
	ck_assert_int_ge(s.net.arms, 1);
	teardown(&s);
}
END_TEST

static bool armed_often(void *arg)
{
	return ((struct stand *)arg)->net.arms > 10;
}

START_TEST(test_engine_wait_drives_at_the_deadline)
{
	struct stand s;
	uint64_t begun = real_clock(NULL);

	setup(&s, false, 1);
	atomic_store(&s.net.deadline, begun);
	/* with a deadline in the past it only pretends to sleep, else this takes ten seconds */
	ck_assert_int_eq(engine_wait_until(s.engine, armed_often, &s, begun + 5 * SEC), SIRCL_SUCCESS);
	atomic_store(&s.net.deadline, NEVER);
	teardown(&s);
}
END_TEST

static void *set_later(void *arg)
{
	usleep(30000);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

struct kicker {
	struct stand *s;
	atomic_bool *flag;
};

static void *kick_later(void *arg)
{
	struct kicker *k = arg;

	usleep(30000);
	atomic_store(k->flag, true);
	engine_kick(k->s->engine);
	return NULL;
}

START_TEST(test_engine_kick_wakes_a_sleeping_waiter)
{
	uint64_t best = NEVER;

	/* un-kicked it sleeps for a second; one of several tries finds the machine awake */
	for (int i = 0; i < TRIES && best >= 500 * MSEC; i++) {
		atomic_bool flag = false;
		struct stand s;
		struct kicker k = { &s, &flag };
		uint64_t begun;
		pthread_t t;

		setup(&s, false, 1);
		begun = real_clock(NULL);
		pthread_create(&t, NULL, kick_later, &k);
		ck_assert_int_eq(engine_wait_until(s.engine, is_set, &flag, begun + 5 * SEC), SIRCL_SUCCESS);
		best = tick_min(best, real_clock(NULL) - begun);
		pthread_join(t, NULL);
		teardown(&s);
	}
	ck_assert_uint_lt(best, 500 * MSEC);
}
END_TEST

START_TEST(test_engine_news_on_a_descriptor_wakes_a_waiter)
{
	struct stand s;
	uint64_t begun;
	int rounds;
	pthread_t t;
	atomic_bool flag = false;

	setup(&s, false, 1);
	begun = real_clock(NULL);
	arrive(&s);
	pthread_create(&t, NULL, set_later, &flag);
	for (int i = 0; i < 5; i++) {
		arrive(&s);
		engine_wait_until(s.engine, never, NULL, begun + (uint64_t)(i + 1) * 5 * MSEC);
	}
	rounds = s.net.rounds;
	ck_assert_int_ge(rounds, 5);
	pthread_join(t, NULL);
	teardown(&s);
}
END_TEST

struct contender {
	struct stand *s;
	long *shared; /* plain: the token protects it */
};

static void *contend(void *arg)
{
	struct contender *c = arg;

	for (int i = 0; i < 3000; i++) {
		struct tick t = { .now = real_clock(NULL) };
		bool busy;

		engine_lock(c->s->engine);
		engine_lock(c->s->engine); /* its owner may take it again */
		++*c->shared;
		engine_unlock(c->s->engine);
		engine_unlock(c->s->engine);
		engine_drive(c->s->engine, &t, &busy);
	}
	return NULL;
}

START_TEST(test_engine_token_has_one_owner_at_a_time)
{
	struct stand s;
	long shared = 0;
	struct contender c = { &s, &shared };
	pthread_t t[3];

	setup(&s, true, 1);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, contend, &c);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(shared, 9000);
	teardown(&s);
}
END_TEST

START_TEST(test_engine_spins_less_when_ranks_outnumber_cores)
{
	struct stand s;

	setup(&s, false, 100000);
	ck_assert(s.engine->crowded && s.engine->spin < USEC);
	teardown(&s);
	setup(&s, false, 1);
	ck_assert(!s.engine->crowded && s.engine->spin >= 10 * USEC);
	teardown(&s);
}
END_TEST

struct failer {
	struct team *team;
	unsigned after_us;
};

static void *fail_later(void *arg)
{
	struct failer *f = arg;
	struct sircl_error err = { SIRCL_ABORTED, "aborted by hand" };

	usleep(f->after_us);
	team_fail(f->team, &err);
	return NULL;
}

/* Waits in an operation until another thread lets it fail after `us`; how long that took. */
static uint64_t wait_for_failure(bool bg, unsigned us)
{
	static float in[10], out[10]; /* never touched */
	struct team_cfg tc = { .id = 1,
			       .n = 2,
			       .shape = SHAPE_RING,
			       .class = CLASS_SHM,
			       .op_timeout = 30 * SEC,
			       .rank_of = { 0, 1 },
			       .node_of = { 0, 1 } };
	struct op_args a = {
		.kind = COLL_ALL_REDUCE, .in = in, .out = out, .count = 10, .type = SIRCL_FLOAT32
	};

	struct failer f = { .after_us = us };
	struct tick t = { .now = real_clock(NULL) };
	uint64_t took;
	struct stand s;
	struct op *op;
	pthread_t thread;

	setup(&s, bg, 1);
	ck_assert_int_eq(team_create(s.engine, &t, &tc, &f.team), SIRCL_SUCCESS);
	ck_assert_int_eq(op_create(f.team, &op), SIRCL_SUCCESS);
	ck_assert_int_eq(op_prepare(op, &a), SIRCL_SUCCESS);
	pthread_create(&thread, NULL, fail_later, &f);
	if (engine_start(s.engine, &t, op) == SIRCL_SUCCESS) {
		ck_assert_int_eq(engine_wait(s.engine, op), SIRCL_ABORTED);
		ck_assert_str_eq(error_last()->msg, "aborted by hand");
	}
	took = real_clock(NULL) - t.now;
	pthread_join(thread, NULL);
	op_destroy(op);
	team_destroy(f.team, &t);
	teardown(&s);
	return took;
}

START_TEST(test_engine_failure_by_another_thread_ends_every_waiter)
{
	for (int bg = 0; bg < 2; bg++) {
		for (unsigned us = 0; us < 40000; us = us * 3 + 100) {
			uint64_t best = NEVER;

			for (int i = 0; i < TRIES && best >= 900 * MSEC; i++)
				best = tick_min(best, wait_for_failure(bg, us));
			ck_assert_uint_lt(best, 900 * MSEC); /* no sleep of a second */
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine waiting");
	TCase *c = tcase_create("wait");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_engine_wait_until_ends_at_its_limit_and_sleeps_meanwhile);
	tcase_add_test(c, test_engine_wait_drives_at_the_deadline);
	tcase_add_test(c, test_engine_kick_wakes_a_sleeping_waiter);
	tcase_add_test(c, test_engine_news_on_a_descriptor_wakes_a_waiter);
	tcase_add_test(c, test_engine_token_has_one_owner_at_a_time);
	tcase_add_test(c, test_engine_spins_less_when_ranks_outnumber_cores);
	tcase_add_test(c, test_engine_failure_by_another_thread_ends_every_waiter);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
