/* SPDX-License-Identifier: Apache-2.0 */
/* How a link dies, and what it does not die of: time limits, dead and stopped processes, link_kill. */
#include "link_fake.h"

static struct link_stats stats_of(const struct fake_pair *f, int me)
{
	struct link_stats s;

	link_stats(f->p.end[me].link, &s);
	return s;
}

/* Both lanes dead and nobody sees it: the time limit, only with something outstanding; and the user hears of
 * it only when the last lane is fenced. */
START_TEST(test_link_dies_at_the_limit_and_only_after_the_last_fence)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	const char *msg;

	fake_pair_up(f);
	for (int i = 0; i < 2; i++)
		fake_die(&f->lane[i], 0);
	fake_run(f, 100 * SEC, 10 * MSEC);
	ck_assert_int_eq(f->p.end[0].dead, 0); /* nothing outstanding: no hurry */
	f->p.end[0].goal = 4;
	f->lane[1].end[0].hold_fence = true;
	fake_run(f, 29 * SEC, 10 * MSEC);
	ck_assert_uint_eq(f->lane[0].end[0].fences, 0);
	fake_run(f, 5 * SEC, 10 * MSEC);
	ck_assert_uint_eq(f->lane[0].end[0].fences, 1);
	ck_assert_uint_eq(f->lane[1].end[0].fences, 1);
	ck_assert_int_eq(f->p.end[0].dead, 0);
	ck_assert_int_ne(link_state(f->p.end[0].link), LINK_DEAD);
	f->lane[1].end[0].hold_fence = false;
	fake_run(f, SEC, 10 * MSEC);
	ck_assert_int_eq(f->p.end[0].dead, 1);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_DEAD);
	ck_assert_int_eq(link_error(f->p.end[0].link)->code, SIRCL_TIMEOUT);
	msg = link_error(f->p.end[0].link)->msg;
	ck_assert_msg(strstr(msg, "rank 0") && strstr(msg, "rank 1") && strstr(msg, "cable 0") &&
			      strstr(msg, "lane 0 fake") && strstr(msg, "lane 1 fake") &&
			      strstr(msg, "SIRCL_TIMEOUT"),
		      "%s", msg);
	/* the peer, idle, has lost its lanes and waits for them */
	ck_assert_int_eq(f->p.end[1].dead, 0);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_stopped_peer_is_not_suspected_and_dies_only_at_the_limit)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	uint64_t puts;

	fake_pair_up(f);
	f->p.end[0].goal = 10;
	f->stopped[1] = true;
	f->lane[0].manual = f->lane[1].manual = true; /* a NIC takes them, its software does not */
	puts = f->lane[0].end[0].puts;
	fake_run(f, 25 * SEC, 5 * MSEC);
	ck_assert_uint_eq(stats_of(f, 0).fences, 0);
	ck_assert_uint_le(f->lane[0].end[0].puts - puts, 10 + 2 + 6); /* heartbeats; probes */
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_UP);
	f->stopped[1] = false;
	f->lane[0].manual = f->lane[1].manual = false;
	fake_must_finish(f, SEC);
	pair_check(&f->p);
	ck_assert_uint_eq(stats_of(f, 0).fences + stats_of(f, 1).fences, 0);
	/* a stop of our own is no silence of the peer either */
	f->p.end[0].goal = 20;
	fake_step(f, USEC);
	fake_step(f, 120 * SEC);
	fake_must_finish(f, SEC);
	ck_assert_uint_eq(stats_of(f, 0).fences + stats_of(f, 1).fences, 0);
	f->stopped[1] = true;
	f->p.end[0].goal = 30;
	f->lane[0].manual = f->lane[1].manual = true;
	fake_run(f, 31 * SEC, 5 * MSEC);
	ck_assert_int_eq(f->p.end[0].dead, 1);
	fake_pair_free(f);
}
END_TEST

/* The process at one end is gone: the other knows within a second, whichever end connects. */
START_TEST(test_link_dead_process_is_known_in_a_second)
{
	for (int alive = 0; alive < 2; alive++)
		for (int lossless = 0; lossless < 2; lossless++) {
			struct fake_pair *f = fake_pair_new(2, lossless ? &fake_lossless_ops : &fake_ops, 16);
			uint64_t t0;

			fake_pair_up(f);
			f->p.end[alive].goal = 3;
			fake_run(f, 10 * MSEC, MSEC);
			f->stopped[!alive] = true;
			t0 = f->p.now;
			for (int i = 0; i < 2; i++)
				fake_hup(&f->lane[i], alive);
			while (!f->p.end[alive].dead && f->p.now < t0 + 5 * SEC)
				fake_step(f, MSEC);
			ck_assert_msg(f->p.now - t0 < (lossless ? 5 * MSEC : 700 * MSEC),
				      "known after %llu ms", (unsigned long long)((f->p.now - t0) / MSEC));
			ck_assert_int_eq(f->p.end[alive].dead, 1);
			ck_assert_int_eq(link_error(f->p.end[alive].link)->code, SIRCL_REMOTE_ERROR);
			ck_assert_ptr_nonnull(strstr(link_error(f->p.end[alive].link)->msg, "has ended"));
			fake_run(f, SEC, MSEC);
			ck_assert_int_eq(f->p.end[alive].dead, 1);
			fake_pair_free(f);
		}
}
END_TEST

/* Lanes that were lost without a word from the process are no dead process. */
START_TEST(test_link_lost_lanes_are_no_dead_process)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);

	fake_pair_up(f);
	for (int i = 0; i < 2; i++)
		fake_die(&f->lane[i], 3);
	f->p.end[0].goal = 10;
	fake_run(f, 20 * SEC, 5 * MSEC);
	ck_assert_int_eq(f->p.end[0].dead + f->p.end[1].dead, 0);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_DEGRADED);
	for (int i = 0; i < 2; i++)
		fake_revive(&f->lane[i]);
	fake_must_finish(f, 2 * SEC);
	fake_run(f, 2 * SEC, 5 * MSEC);
	pair_check(&f->p);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_UP);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_kill_fences_then_tells)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	struct sircl_error why = { .code = SIRCL_ABORTED, .msg = "aborted by rank 3" };
	struct tick t;

	fake_pair_up(f);
	f->p.end[0].goal = 10;
	fake_step(f, USEC);
	t = fake_tick(f);
	f->lane[0].end[0].hold_fence = true;
	link_kill(f->p.end[0].link, &t, &why);
	ck_assert(!link_room(f->p.end[0].link));
	fake_run(f, 10 * MSEC, MSEC);
	ck_assert_int_eq(f->p.end[0].dead, 0);
	f->lane[0].end[0].hold_fence = false;
	fake_run(f, 10 * MSEC, MSEC);
	ck_assert_int_eq(f->p.end[0].dead, 1);
	ck_assert_int_eq(link_error(f->p.end[0].link)->code, SIRCL_ABORTED);
	ck_assert_ptr_nonnull(strstr(link_error(f->p.end[0].link)->msg, "aborted by rank 3"));
	/* nothing comes up again */
	fake_run(f, 2 * SEC, MSEC);
	ck_assert_int_ne(f->p.end[0].link->lane[0].phase, LL_UP);
	ck_assert_int_eq(f->p.end[0].dead, 1);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_start_limit_names_the_peer)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);

	f->lane[0].no_connect = f->lane[1].no_connect = f->lane[0].refused = f->lane[1].refused = true;
	pair_connect(&f->p);
	fake_run(f, 59 * SEC, 10 * MSEC);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_CONNECTING);
	fake_run(f, 3 * SEC, 10 * MSEC);
	for (int e = 0; e < 2; e++) {
		ck_assert_int_eq(f->p.end[e].dead, 1);
		ck_assert_ptr_nonnull(strstr(link_error(f->p.end[e].link)->msg, "SIRCL_START_TIMEOUT"));
	}
	fake_pair_free(f);
}
END_TEST

/* The peer's memory must have room for what the link itself puts there; nothing is put to a smaller one. */
START_TEST(test_link_puts_nothing_where_the_peer_has_no_room_for_it)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 16);

	f->lane[0].end[0].named_len = LINK_CONTROL_BYTES - 1;
	pair_connect(&f->p);
	fake_run(f, 62 * SEC, 10 * MSEC);
	ck_assert_uint_eq(f->lane[0].end[0].puts, 0);
	ck_assert_int_eq(f->p.end[0].dead, 1);
	ck_assert_ptr_nonnull(strstr(link_error(f->p.end[0].link)->msg, "receive memory is too small"));
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_different_windows_are_an_error_at_both_ends)
{
	struct fake_pair *f = calloc(1, sizeof(*f));

	f->nlanes = 1;
	f->p.now = SEC;
	for (int me = 0; me < 2; me++) {
		void *provider = &f->lane[0].end[me];

		f->lane[0].end[me].base.ops = &fake_ops;
		f->lane[0].end[me].lane = &f->lane[0];
		f->lane[0].end[me].me = me;
		pair_open(&f->p, me, 1, &fake_ops, &provider, me ? 64 : 32);
	}
	pair_connect(&f->p);
	fake_run(f, 100 * MSEC, MSEC);
	ck_assert_int_eq(f->p.end[0].dead, 1);
	ck_assert_int_eq(f->p.end[1].dead, 1);
	ck_assert_int_eq(link_error(f->p.end[1].link)->code, SIRCL_BAD_CONFIG);
	fake_pair_free(f);
}
END_TEST

/* The peer leaves although we have something for it. */
START_TEST(test_link_peer_that_left_is_named)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 16);
	struct tick t;

	fake_pair_up(f);
	t = fake_tick(f);
	link_bye(f->p.end[0].link, &t);
	fake_run(f, 10 * MSEC, MSEC);
	f->stopped[0] = true;
	fake_hup(&f->lane[0], 1);
	fake_step(f, MSEC);
	fake_step(f, MSEC);
	f->p.end[1].goal = 3;
	for (int k = 0; k < 700; k++) {
		struct link_put put = { .frame = { .kind = LINK_KIND_USER } };

		t = fake_tick(f);
		ck_assert_int_eq(link_put(f->p.end[1].link, &t, &put), LINK_PUT_NO);
		fake_step(f, MSEC);
	}
	ck_assert_int_eq(f->p.end[1].dead, 1);
	ck_assert_ptr_nonnull(strstr(link_error(f->p.end[1].link)->msg, "has left"));
	fake_pair_free(f);
}
END_TEST

/* The peer has fenced (and so hung up) every lane by itself and is slow to answer: it is not dead. */
START_TEST(test_link_hang_up_is_no_dead_process_while_a_connection_is_tried)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);

	fake_pair_up(f);
	for (int i = 0; i < 2; i++) {
		f->lane[i].no_answer = true;
		fake_event(&f->lane[i].end[0],
			   (struct lane_event){
				   .ev = LANE_SUSPECT, .epoch = 1, .why = "end of file", .gone = true });
	}
	fake_run(f, 2 * SEC, MSEC);
	ck_assert_int_eq(f->p.end[0].dead, 0);
	fake_pair_free(f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_end");
	TCase *c = tcase_create("link_end");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_link_dies_at_the_limit_and_only_after_the_last_fence);
	tcase_add_test(c, test_link_stopped_peer_is_not_suspected_and_dies_only_at_the_limit);
	tcase_add_test(c, test_link_dead_process_is_known_in_a_second);
	tcase_add_test(c, test_link_lost_lanes_are_no_dead_process);
	tcase_add_test(c, test_link_kill_fences_then_tells);
	tcase_add_test(c, test_link_start_limit_names_the_peer);
	tcase_add_test(c, test_link_puts_nothing_where_the_peer_has_no_room_for_it);
	tcase_add_test(c, test_link_different_windows_are_an_error_at_both_ends);
	tcase_add_test(c, test_link_peer_that_left_is_named);
	tcase_add_test(c, test_link_hang_up_is_no_dead_process_while_a_connection_is_tried);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
