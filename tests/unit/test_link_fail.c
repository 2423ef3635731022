/* SPDX-License-Identifier: Apache-2.0 */
/* A link whose lanes fail: fences, replay, epochs, reconnection, suspicion, death. On a lane that does what
 * the test says. */
#include "link_fake.h"

static uint32_t rnd(uint32_t *s)
{
	*s = *s * 1664525u + 1013904223u;
	return *s >> 8;
}

static struct link_stats stats_of(const struct fake_pair *f, int me)
{
	struct link_stats s;

	link_stats(f->p.end[me].link, &s);
	return s;
}

/* Lane 0 dies just after its k-th put, with or without an error at either end; what is in flight then lands
 * late, in part, until fenced. */
static void killed_at(int nlanes, uint32_t k, unsigned seen, bool revive, const struct lane_ops *ops)
{
	struct fake_pair *f = fake_pair_new(nlanes, ops, 16);
	uint64_t died = 0, from;
	uint32_t seed = k * 4 + seen + 1;

	fake_pair_up(f);
	from = f->lane[0].end[0].puts + f->lane[0].end[1].puts;
	for (int i = 0; i < nlanes; i++)
		f->lane[i].rate = 1;
	for (int i = 0; i < 2; i++) {
		f->p.end[i].goal = 60;
		f->p.end[i].ack_soon = i == 0;
		f->p.end[i].smem =
			ops->needs_reg ? link_mem_find(f->p.end[i].link, f->p.end[i].src, 1) : NULL;
	}
	for (uint64_t end = f->p.now + 5 * SEC; f->p.now < end && !f->p.fail;) {
		if (!died && f->lane[0].end[0].puts + f->lane[0].end[1].puts >= from + k) {
			died = f->p.now;
			fake_die(&f->lane[0], seen);
		}
		if (died && revive && f->p.now > died + 400 * MSEC && f->lane[0].dead)
			fake_revive(&f->lane[0]);
		if (f->lane[0].dead && f->p.now < died + 5 * MSEC)
			for (int e = 0; e < 2; e++)
				if (rnd(&seed) % 8 == 0)
					fake_land(&f->lane[0].end[e]);
		if (pair_done(&f->p) && (!revive || (died && f->p.now > died + 3 * SEC)))
			break;
		fake_step(f, died && f->p.now > died + 2 * MSEC ? 200 * USEC : 10 * USEC);
	}
	ck_assert_msg(!f->p.fail, "%s (k %u seen %u)", f->p.fail, k, seen);
	fake_must_finish(f, SEC);
	ck_assert(died);
	pair_check(&f->p);
	ck_assert_int_eq(f->p.end[0].dead + f->p.end[1].dead, 0);
	if (revive) {
		ck_assert_int_eq(link_state(f->p.end[0].link), LINK_UP);
		ck_assert_int_eq(link_state(f->p.end[1].link), LINK_UP);
		ck_assert_uint_eq(f->p.end[0].link->lane[0].epoch, f->p.end[1].link->lane[0].epoch);
		if (seen || nlanes > 1)
			ck_assert_uint_gt(f->p.end[0].link->lane[0].epoch, 1);
	}
	fake_pair_free(f);
}

START_TEST(test_link_replays_frames_of_dead_lane_once)
{
	for (uint32_t k = 0; k < 30; k++)
		for (unsigned seen = 0; seen < 4; seen++)
			killed_at(2, k, seen, false, &fake_ops);
}
END_TEST

START_TEST(test_link_replays_staged_frames_too)
{
	for (uint32_t k = 0; k < 20; k++)
		killed_at(3, k, k % 4, false, &fake_copy_ops);
}
END_TEST

START_TEST(test_link_lane_comes_back_in_a_newer_epoch)
{
	for (uint32_t k = 0; k < 12; k++)
		for (unsigned seen = 0; seen < 4; seen++)
			killed_at(2, k, seen, true, &fake_ops);
}
END_TEST

START_TEST(test_link_single_lane_comes_back_and_replays)
{
	for (uint32_t k = 0; k < 30; k++)
		for (unsigned seen = 1; seen < 4; seen++)
			killed_at(1, k, seen, true, &fake_ops);
}
END_TEST

START_TEST(test_link_replays_nothing_before_the_peers_floor)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);

	fake_pair_up(f);
	f->lane[0].no_connect = true;
	f->lane[0].manual = true; /* nothing lands, but it could */
	f->p.end[0].goal = 16;
	fake_run(f, 100 * USEC, 10 * USEC);
	f->lane[0].end[1].hold_fence = true;
	fake_die(&f->lane[0], 1);
	fake_run(f, 100 * MSEC, 50 * USEC);
	ck_assert_uint_eq(f->lane[0].end[0].fences, 1);
	ck_assert_uint_eq(f->lane[0].end[1].fences, 1); /* told by A's STATE */
	ck_assert_uint_lt(f->p.end[1].got, 16);
	ck_assert_uint_eq(stats_of(f, 0).frames_replayed, 0);
	f->lane[0].end[1].hold_fence = false;
	fake_must_finish(f, 10 * MSEC);
	ck_assert_uint_gt(stats_of(f, 0).frames_replayed, 0);
	ck_assert_uint_eq(stats_of(f, 1).duplicates_refused, 0);
	pair_check(&f->p);
	fake_pair_free(f);
}
END_TEST

/* The own fence need not be complete. */
START_TEST(test_link_replays_on_the_peers_fence_alone)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);

	fake_pair_up(f);
	f->lane[0].manual = true;
	f->p.end[0].goal = 16;
	fake_run(f, 100 * USEC, 10 * USEC);
	f->lane[0].end[0].hold_fence = true;
	fake_die(&f->lane[0], 2);
	fake_must_finish(f, 10 * MSEC);
	pair_check(&f->p);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_false_alarms_on_different_lanes_cost_no_link)
{
	for (uint32_t k = 0; k < 40; k++) {
		struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);

		fake_pair_up(f);
		f->lane[0].rate = f->lane[1].rate = 1;
		f->p.end[0].goal = f->p.end[1].goal = 200;
		for (uint32_t i = 0; i < k; i++)
			fake_step(f, 10 * USEC);
		for (int e = 0; e < 2; e++) {
			f->lane[e].end[e].suspected = true;
			fake_event(
				&f->lane[e].end[e],
				(struct lane_event){ .ev = LANE_SUSPECT, .epoch = 1, .why = "false alarm" });
		}
		fake_must_finish(f, SEC);
		pair_check(&f->p);
		fake_run(f, 100 * MSEC, 100 * USEC);
		for (int e = 0; e < 2; e++) {
			ck_assert_int_eq(link_state(f->p.end[e].link), LINK_UP);
			for (int i = 0; i < 2; i++) {
				ck_assert_uint_ge(f->p.end[e].link->lane[i].epoch, 2);
				ck_assert_uint_eq(f->p.end[e].link->lane[i].epoch,
						  f->p.end[!e].link->lane[i].epoch);
			}
		}
		fake_pair_free(f);
	}
}
END_TEST

START_TEST(test_link_reads_old_states_without_harm)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 8);
	struct fake_end *to = &f->lane[1].end[0];

	fake_pair_up(f);
	fake_run(f, 60 * MSEC, MSEC);
	/* STATEs towards A lie on lane 1 while lane 0 goes many laps further */
	f->lane[1].manual = true;
	f->p.end[0].ack_soon = true;
	f->p.end[1].hold = true;
	for (int lap = 0; lap < 30; lap++) {
		f->p.end[0].goal += 24;
		while (f->p.end[0].released < f->p.end[0].posted || f->p.end[0].sent < f->p.end[0].goal) {
			fake_step(f, 10 * USEC);
			while (fake_land(&f->lane[1].end[1]))
				;
			ck_assert_msg(!f->p.fail, "%s", f->p.fail);
			if (to->head != to->tail && f->p.end[0].released + 8 >= f->p.end[0].posted &&
			    lap % 3 == 0)
				break;
		}
	}
	ck_assert_uint_gt(to->tail - to->head, 0);
	while (fake_land(to))
		fake_step(f, 10 * USEC);
	f->lane[1].manual = false;
	fake_must_finish(f, SEC);
	pair_check(&f->p);
	ck_assert_uint_eq(stats_of(f, 0).frames_replayed, 0);
	ck_assert_uint_eq(stats_of(f, 0).fences, 0);
	fake_pair_free(f);
}
END_TEST

/* A note that is delivered twice, data or STATE, at any time. */
START_TEST(test_link_refuses_notes_delivered_twice)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	struct lane_note old[2][64];
	uint32_t n[2] = { 0, 0 }, seed = 7;

	fake_pair_up(f);
	f->lane[0].rate = f->lane[1].rate = 2;
	f->p.end[0].goal = f->p.end[1].goal = 2000;
	while (!pair_done(&f->p) && !f->p.fail) {
		for (int e = 0; e < 2; e++) {
			struct fake_end *x = &f->lane[0].end[e];

			for (uint32_t k = x->ev_head; k != x->ev_tail; k++)
				if (x->ev[k % FAKE_EVENTS].ev == LANE_NOTE)
					old[e][n[e]++ % 64] = x->ev[k % FAKE_EVENTS].note;
			if (x->head != x->tail)
				old[e][n[e]++ % 64] = x->q[x->head % FAKE_QUEUE].put.note;
			if (n[e] > 64 && rnd(&seed) % 4 == 0)
				fake_event(x, (struct lane_event){
						      .ev = LANE_NOTE,
						      .epoch = 1,
						      .note = old[e][(n[e] - 2 - rnd(&seed) % 60) % 64] });
		}
		fake_step(f, 10 * USEC);
	}
	ck_assert_msg(!f->p.fail, "%s", f->p.fail);
	pair_check(&f->p);
	ck_assert_uint_gt(stats_of(f, 0).duplicates_refused, 20);
	ck_assert_uint_eq(stats_of(f, 0).fences, 0);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_damaged_header_costs_the_lane_not_the_link)
{
	for (int word = 0; word < 6; word++)
		for (int bit = 0; bit < 64; bit += 5) {
			struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
			struct fake_end *to = &f->lane[0].end[1];

			fake_pair_up(f);
			f->lane[0].manual = true;
			f->p.end[0].goal = 40;
			fake_step(f, 10 * USEC);
			while (to->head == to->tail)
				fake_step(f, 10 * USEC);
			to->q[to->head % FAKE_QUEUE].put.note.w[word] ^= 1ull << bit;
			fake_land(to);
			f->lane[0].manual = false;
			fake_must_finish(f, SEC);
			pair_check(&f->p);
			ck_assert_uint_eq(f->p.end[1].link->bad_headers, 1);
			ck_assert_uint_eq(stats_of(f, 1).fences, 1);
			fake_pair_free(f);
		}
}
END_TEST

START_TEST(test_link_garbage_never_crashes)
{
	for (uint32_t seed = 1; seed < 400; seed++) {
		struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
		uint32_t s = seed;
		struct frame_hdr h;

		fake_pair_up(f);
		for (size_t i = 0; i < sizeof(h); i++)
			((uint8_t *)&h)[i] = (uint8_t)rnd(&s);
		if (seed & 1)
			h.seq = rnd(&s) % 64;
		if (seed & 2)
			h.kind = (uint8_t)(rnd(&s) % 6);
		if (seed & 4)
			h.fno = 1 + rnd(&s) % 3;
		if (seed & 8)
			h.label = rnd(&s) % 64;
		if (h.kind >= LINK_KIND_USER)
			h.kind = 0; /* the channel layer's to judge */
		h.crc = frame_crc(&h);
		for (int k = 0; k < 2; k++) {
			struct lane_event ev = { .ev = LANE_NOTE, .epoch = 1 };

			memcpy(&ev.note, &h, sizeof(h));
			fake_event(&f->lane[k].end[1], ev);
		}
		fake_run(f, 10 * MSEC, 100 * USEC);
		fake_pair_free(f);
	}
}
END_TEST

/* A peer that stops and runs in turns is heard first on one lane, then on the other. */
START_TEST(test_link_stuttering_peer_costs_no_lane)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);

	fake_pair_up(f);
	f->p.end[0].goal = 3000;
	f->p.end[1].goal = 3000;
	f->lane[0].rate = f->lane[1].rate = 1;
	for (int k = 0; k < 100; k++) {
		f->stopped[1] = true;
		f->lane[0].manual = f->lane[1].manual = true;
		fake_run(f, 400 * MSEC, 10 * MSEC);
		f->stopped[1] = false;
		f->lane[0].manual = f->lane[1].manual = false;
		fake_step(f, 10 * USEC);
		fake_step(f, 10 * USEC);
	}
	f->lane[0].rate = f->lane[1].rate = 0;
	fake_must_finish(f, SEC);
	pair_check(&f->p);
	ck_assert_uint_eq(stats_of(f, 0).fences + stats_of(f, 1).fences, 0);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_silent_lane_is_suspected_while_its_sister_is_heard)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	uint64_t t0;

	fake_pair_up(f);
	fake_run(f, 200 * MSEC, MSEC);
	t0 = f->p.now;
	f->lane[1].manual = f->lane[1].no_connect = true;
	while (!stats_of(f, 0).fences && f->p.now < t0 + SEC)
		fake_step(f, MSEC);
	ck_assert_uint_ge(f->p.now - t0, 240 * MSEC);
	ck_assert_uint_le(f->p.now - t0, 360 * MSEC);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_DEGRADED);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_retries_with_back_off)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 16);
	uint32_t epoch;

	fake_pair_up(f);
	fake_die(&f->lane[0], 3);
	fake_run(f, SEC, MSEC);
	epoch = f->p.end[0].link->lane[0].epoch;
	ck_assert_uint_ge(epoch, 6); /* 10, 20, 40, ... ms */
	ck_assert_uint_le(epoch, 9);
	fake_run(f, 10 * SEC, MSEC);
	ck_assert_uint_ge(f->p.end[0].link->lane[0].epoch, epoch + 9);
	ck_assert_uint_le(f->p.end[0].link->lane[0].epoch, epoch + 11);
	fake_pair_free(f);
}
END_TEST

/* After a fence STATE goes by every path: one of them may be a dead end. */
START_TEST(test_link_tells_a_fence_on_every_path)
{
	struct fake_pair *f = fake_pair_new(3, &fake_ops, 16);
	uint64_t puts[3];

	fake_pair_up(f);
	for (int i = 0; i < 3; i++)
		puts[i] = f->lane[i].end[0].puts;
	fake_die(&f->lane[0], 1);
	fake_step(f, USEC);
	fake_step(f, USEC);
	fake_step(f, USEC);
	for (int i = 1; i < 3; i++)
		ck_assert_uint_gt(f->lane[i].end[0].puts, puts[i]);
	fake_pair_free(f);
}
END_TEST

/* Frames on lane 1 vanish in one direction only, so it is not silent here; later ones arrive on lane 0. */
START_TEST(test_link_late_frame_costs_the_lane)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 64);
	uint64_t t0;

	fake_pair_up(f);
	f->p.end[1].link->suspect = 1000 * SEC; /* the other end does not notice */
	f->p.end[0].goal = 64; /* on both lanes */
	f->lane[1].manual = true;
	for (int i = 0; i < 400; i++) {
		fake_step(f, 2 * MSEC);
		while (fake_land(&f->lane[1].end[0]))
			;
		f->p.end[0].goal = 64 + (uint32_t)i;
		if (stats_of(f, 0).fences)
			break;
	}
	t0 = f->p.now;
	ck_assert_uint_eq(stats_of(f, 0).fences, 1);
	ck_assert_ptr_nonnull(strstr(f->p.end[0].link->lane[1].why, "late"));
	ck_assert_uint_le(t0, 2 * SEC);
	f->lane[1].manual = false;
	fake_must_finish(f, 5 * SEC);
	pair_check(&f->p);
	fake_pair_free(f);
}
END_TEST

/* Stopped between the reading of one lane and of the next, the peer acknowledges the first when it goes on.
 */
START_TEST(test_link_peer_that_was_stopped_costs_no_lane)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 64);
	struct link_stats before;

	fake_pair_up(f);
	f->p.end[0].goal = 20;
	fake_must_finish(f, 5 * SEC);
	before = stats_of(f, 0);
	f->lane[1].manual = true;
	f->p.end[0].goal = 40; /* on both lanes; what lane 1 carries is not read before the stop */
	fake_run(f, 2 * MSEC, MSEC);
	f->stopped[1] = true;
	fake_run(f, 600 * MSEC, MSEC);
	f->stopped[1] = false;
	fake_run(f, 20 * MSEC, MSEC);
	f->lane[1].manual = false;
	fake_must_finish(f, 5 * SEC);
	fake_run(f, SEC, MSEC);
	ck_assert_uint_eq(stats_of(f, 0).fences, before.fences);
	ck_assert_uint_eq(stats_of(f, 1).fences, 0);
	ck_assert_uint_eq(stats_of(f, 0).frames_replayed, 0);
	pair_check(&f->p);
	fake_pair_free(f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_fail");
	TCase *c = tcase_create("link_fail");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_link_replays_frames_of_dead_lane_once);
	tcase_add_test(c, test_link_replays_staged_frames_too);
	tcase_add_test(c, test_link_lane_comes_back_in_a_newer_epoch);
	tcase_add_test(c, test_link_single_lane_comes_back_and_replays);
	tcase_add_test(c, test_link_replays_nothing_before_the_peers_floor);
	tcase_add_test(c, test_link_replays_on_the_peers_fence_alone);
	tcase_add_test(c, test_link_false_alarms_on_different_lanes_cost_no_link);
	tcase_add_test(c, test_link_reads_old_states_without_harm);
	tcase_add_test(c, test_link_refuses_notes_delivered_twice);
	tcase_add_test(c, test_link_damaged_header_costs_the_lane_not_the_link);
	tcase_add_test(c, test_link_garbage_never_crashes);
	tcase_add_test(c, test_link_stuttering_peer_costs_no_lane);
	tcase_add_test(c, test_link_silent_lane_is_suspected_while_its_sister_is_heard);
	tcase_add_test(c, test_link_retries_with_back_off);
	tcase_add_test(c, test_link_tells_a_fence_on_every_path);
	tcase_add_test(c, test_link_late_frame_costs_the_lane);
	tcase_add_test(c, test_link_peer_that_was_stopped_costs_no_lane);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
