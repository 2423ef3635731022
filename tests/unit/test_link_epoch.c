/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs: handshakes that come up at one end only, too late, or in an epoch that somebody has fenced. On a
 * lane that does what the test says. */
#include "link_fake.h"

/* Only the connecting end has come up; what it posts goes nowhere. It notices, fences, and the frames come
 * another way; the epoch is never used. */
START_TEST(test_link_half_open_lane_is_given_up)
{
	for (int nlanes = 1; nlanes < 3; nlanes++) {
		struct fake_pair *f = fake_pair_new(nlanes, &fake_ops, 16);

		fake_pair_up(f);
		fake_die(&f->lane[0], 3);
		fake_run(f, 5 * MSEC, 100 * USEC);
		fake_revive(&f->lane[0]);
		f->lane[0].half_open = true;
		f->p.end[0].goal = 100;
		fake_run(f, 20 * MSEC, 100 * USEC);
		ck_assert_int_eq(f->p.end[0].link->lane[0].phase, LL_UP);
		ck_assert_int_eq(f->p.end[1].link->lane[0].phase, LL_DOWN);
		f->lane[0].half_open = false;
		fake_must_finish(f, 2 * SEC);
		pair_check(&f->p);
		fake_run(f, SEC, MSEC);
		ck_assert_int_eq(link_state(f->p.end[1].link), LINK_UP);
		ck_assert_uint_ge(f->p.end[1].link->lane[0].epoch, 3);
		fake_pair_free(f);
	}
}
END_TEST

START_TEST(test_link_never_up_in_an_epoch_that_was_given_up)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	struct fake_end *b = &f->lane[0].end[1];

	fake_pair_up(f);
	fake_die(&f->lane[0], 3);
	fake_run(f, 500 * MSEC, MSEC); /* A has tried several epochs and told them as fenced */
	ck_assert_uint_ge(f->p.end[1].link->lane[0].floor, 4);
	ck_assert_uint_gt(b->allowed,
			  f->p.end[1].link->lane[0].floor); /* a half-open handshake was taken back */
	b->up = true;
	b->epoch = 2;
	fake_event(b, (struct lane_event){ .ev = LANE_UP, .epoch = 2 }); /* a late handshake */
	fake_step(f, MSEC);
	ck_assert_int_ne(f->p.end[1].link->lane[0].phase, LL_UP);
	ck_assert_uint_eq(b->fenced, 2);
	fake_pair_free(f);
}
END_TEST

/* The handshake that this end is trying gets no answer, and the peer says that it has fenced that epoch: the
 * handshake is taken back at the provider, and when it comes up all the same it is not used. */
START_TEST(test_link_takes_back_a_handshake_that_the_peer_has_fenced)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	struct fake_end *a = &f->lane[0].end[0];
	struct link_lane *la = &f->p.end[0].link->lane[0];
	uint32_t tried;

	fake_pair_up(f);
	f->lane[0].no_answer = true;
	fake_die(&f->lane[0], 3);
	fake_run(f, 60 * MSEC, MSEC);
	ck_assert_int_eq(la->phase, LL_TRYING);
	tried = la->epoch;
	f->p.end[1].link->lane[0].floor = tried; /* it was half open there and was given up */
	state_all(f->p.end[1].link);
	fake_run(f, 2 * MSEC, 100 * USEC);
	ck_assert_uint_eq(a->allowed, tried + 1); /* from now on the provider may not report it */
	ck_assert_int_eq(la->phase, LL_DOWN);
	ck_assert_uint_eq(la->floor, tried);
	a->up = true;
	a->epoch = tried;
	fake_event(a, (struct lane_event){ .ev = LANE_UP, .epoch = tried }); /* it was on its way */
	fake_step(f, 100 * USEC);
	ck_assert_int_ne(la->phase, LL_UP);
	ck_assert_uint_eq(a->fenced, tried);
	f->lane[0].no_answer = false;
	fake_revive(&f->lane[0]);
	fake_run(f, 3 * SEC, MSEC);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_UP);
	ck_assert_uint_gt(la->epoch, tried);
	ck_assert_uint_eq(f->p.end[1].link->lane[0].epoch, la->epoch);
	fake_pair_free(f);
}
END_TEST

/* The floor that counts is the own one too, although the peer knows nothing of it yet. */
START_TEST(test_link_never_up_in_an_epoch_that_it_has_fenced_itself)
{
	for (int me = 0; me < 2; me++) {
		struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
		struct fake_end *e = &f->lane[0].end[me];
		struct link_lane *ln = &f->p.end[me].link->lane[0];

		fake_pair_up(f);
		f->stopped[!me] = true; /* the peer says nothing */
		f->lane[0].no_connect = true;
		fake_die(&f->lane[0], 1u << me);
		fake_run(f, 2 * MSEC, 100 * USEC);
		ck_assert_int_eq(ln->phase, LL_DOWN);
		ck_assert_uint_ge(ln->floor, 1);
		ck_assert_uint_eq(ln->peer_floor, 0);
		e->up = true;
		e->epoch = 1;
		fake_event(e, (struct lane_event){ .ev = LANE_UP, .epoch = 1 });
		fake_step(f, 100 * USEC);
		ck_assert_int_ne(ln->phase, LL_UP);
		ck_assert_uint_eq(e->fenced, 1);
		fake_pair_free(f);
	}
}
END_TEST

/* The connecting end knows which epoch it asked for. */
START_TEST(test_link_never_up_in_another_epoch_than_it_tried)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	struct fake_end *a = &f->lane[0].end[0];
	struct link_lane *la = &f->p.end[0].link->lane[0];
	uint32_t other;

	fake_pair_up(f);
	f->lane[0].no_answer = true;
	fake_die(&f->lane[0], 3);
	fake_run(f, 60 * MSEC, MSEC);
	ck_assert_int_eq(la->phase, LL_TRYING);
	other = la->epoch + 1;
	a->up = true;
	a->epoch = other;
	fake_event(a, (struct lane_event){ .ev = LANE_UP, .epoch = other });
	fake_step(f, 100 * USEC);
	ck_assert_int_ne(la->phase, LL_UP);
	ck_assert_uint_eq(a->fenced, other);
	fake_pair_free(f);
}
END_TEST

/* A lone half-open lane on which nothing is posted is given up too. */
START_TEST(test_link_lane_that_never_speaks_is_given_up)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 16);

	fake_pair_up(f);
	fake_die(&f->lane[0], 3);
	fake_run(f, 5 * MSEC, 100 * USEC);
	fake_revive(&f->lane[0]);
	f->lane[0].half_open = true;
	fake_run(f, 3 * SEC, MSEC);
	ck_assert_uint_ge(f->lane[0].end[0].fences, 3);
	f->lane[0].half_open = false;
	fake_run(f, 3 * SEC, MSEC);
	ck_assert_int_eq(link_state(f->p.end[1].link), LINK_UP);
	fake_pair_free(f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_epoch");
	TCase *c = tcase_create("link_epoch");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_link_half_open_lane_is_given_up);
	tcase_add_test(c, test_link_never_up_in_an_epoch_that_was_given_up);
	tcase_add_test(c, test_link_takes_back_a_handshake_that_the_peer_has_fenced);
	tcase_add_test(c, test_link_never_up_in_an_epoch_that_it_has_fenced_itself);
	tcase_add_test(c, test_link_never_up_in_another_epoch_than_it_tried);
	tcase_add_test(c, test_link_lane_that_never_speaks_is_given_up);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
