/* SPDX-License-Identifier: Apache-2.0 */
/* The executor over simulated channels: different calls, errors, limits, ends, the flight recorder. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include "engine_exec_world.h"

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
	ck_assert_int_ge(w.fake.probes,
			 200 / 4); /* else silence would not mean anything on lanes without heartbeats */
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

START_TEST(test_engine_flight_recorder_is_logged_when_the_team_ends)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 8 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .algo = ALGO_EXCHANGE, .type = SIRCL_FLOAT32, .n = 2, .seed = 1
	};
	struct sircl_error err = { SIRCL_ABORTED, "enough" };
	char text[16384] = "";
	struct world w;
	int fd = memfd_create("log", 0);

	ck_assert_int_ge(fd, 0);
	setup(&w, &set);
	for (size_t i = 0; i < 3; i++) {
		j.count = 1 + i;
		collective(&w, &j, 0);
	}
	j.count = 9;
	begin_all(&w, &j, 1);
	w.rank[0].ctx.log = (struct log){ .level = LOG_INFO, .subsys = LOG_ENGINE, .fd = fd };
	team_fail(w.rank[0].team, &err);
	ck_assert(run(&w, 2));
	ck_assert_int_gt(pread(fd, text, sizeof(text) - 1, 0), 0);
	ck_assert_msg(strstr(text, "comm: flight recorder: number 0: all_reduce of 1 float") != NULL, "%s",
		      text);
	ck_assert_msg(strstr(text, "number 3: all_reduce of 9 float, sum by exchange, started at") != NULL,
		      "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "running"));
	close(fd);
	free_bufs(&w);
	teardown(&w);
}
END_TEST

struct asker {
	struct world *w;
	const float *out;
	float sum;
	sircl_result_t result;
	struct sircl_error err;
};

static void *ask_for_result(void *arg)
{
	struct asker *a = arg;

	while (!op_done(a->w->rank[0].op))
		sched_yield();
	a->result = op_result(a->w->rank[0].op, &a->err);
	for (int i = 0; i < 1000; i++)
		a->sum += a->out[i];
	return NULL;
}

static void *ask_for_error(void *arg)
{
	struct asker *a = arg;

	while (team_error(a->w->rank[0].team, &a->err) == SIRCL_SUCCESS)
		sched_yield();
	return NULL;
}

/* One that never has the token learns of the end from op_done or team_error alone. A sanitizer for threads
 * sees whether what it then reads was written before. */
START_TEST(test_engine_thread_that_only_asks_reads_what_is_whole)
{
	struct setting set = { .n = 2, .algo = ALGO_EXCHANGE, .seed = 3 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .algo = ALGO_EXCHANGE, .type = SIRCL_FLOAT32, .count = 1000, .n = 2
	};
	struct sircl_error why = { SIRCL_ABORTED,
				   "a sentence of some length, so that half of it would show" };

	for (int round = 0; round < 20; round++) {
		struct world w;
		struct asker a = { .w = &w };
		float expect[1000], sum = 0;
		pthread_t thread;

		setup(&w, &set);
		begin_all(&w, &j, -1);
		ref_result(&j, expect);
		for (int i = 0; i < 1000; i++)
			sum += expect[i];
		a.out = (const float *)(const void *)w.rank[0].bufs.out;
		ck_assert_int_eq(pthread_create(&thread, NULL, ask_for_result, &a), 0);
		ck_assert(run(&w, 0));
		pthread_join(thread, NULL);
		ck_assert_int_eq(a.result, SIRCL_SUCCESS);
		ck_assert(a.sum == sum);
		ck_assert_int_eq(pthread_create(&thread, NULL, ask_for_error, &a), 0);
		team_fail(w.rank[0].team, &why);
		pthread_join(thread, NULL);
		ck_assert_str_eq(a.err.msg, why.msg);
		free_bufs(&w);
		teardown(&w);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine ends");
	TCase *c = tcase_create("exec");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_engine_different_calls_are_an_error_with_both_texts);
	tcase_add_test(c, test_engine_different_kinds_and_numbers_are_an_error);
	tcase_add_test(c, test_engine_first_error_of_a_team_is_kept);
	tcase_add_test(c, test_engine_no_operation_ends_while_the_peer_may_still_write);
	tcase_add_test(c, test_engine_silent_neighbour_is_a_named_error_after_the_limit);
	tcase_add_test(c, test_engine_late_rank_is_reported_once_and_is_no_error);
	tcase_add_test(c, test_engine_bad_choices_leave_the_team_usable);
	tcase_add_test(c, test_engine_flight_recorder_keeps_the_last_64);
	tcase_add_test(c, test_engine_flight_recorder_is_logged_when_the_team_ends);
	tcase_add_test(c, test_engine_thread_that_only_asks_reads_what_is_whole);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
