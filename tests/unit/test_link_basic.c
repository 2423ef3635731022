/* SPDX-License-Identifier: Apache-2.0 */
/* A link in peace: frames both ways, windows, acknowledgements, heartbeats, regions, goodbye. */
#include "link_fake.h"

static void both_ways(int nlanes, const struct lane_ops *ops, uint32_t goal, uint32_t len, uint32_t window,
		      uint64_t start)
{
	struct fake_pair *f = fake_pair_new(nlanes, ops, window);

	link_test_start(f->p.end[0].link, start, start / 2);
	link_test_start(f->p.end[1].link, start / 2, start);
	fake_pair_up(f);
	for (int i = 0; i < 2; i++) {
		f->p.end[i].goal = goal;
		f->p.end[i].len = len;
		f->p.end[i].smem =
			ops->needs_reg ? link_mem_find(f->p.end[i].link, f->p.end[i].src, len) : NULL;
	}
	fake_must_finish(f, SEC);
	pair_check(&f->p);
	fake_pair_free(f);
}

START_TEST(test_link_delivers_every_frame_once_both_ways)
{
	for (int nlanes = 1; nlanes <= 4; nlanes++) {
		both_ways(nlanes, &fake_ops, 3000, 100, 64, 0);
		both_ways(nlanes, &fake_copy_ops, 3000, 60, 64, 0);
		both_ways(nlanes, &fake_copy_ops, 3000, 1000, 64,
			  0); /* unregistered: staged although large */
		both_ways(nlanes, &fake_lossless_ops, 3000, 100, 64, 0);
		both_ways(nlanes, &fake_ops, 1000, 0, 8, 0);
		both_ways(nlanes, &fake_ops, 3000, 16, 1024, 0);
	}
}
END_TEST

START_TEST(test_link_numbers_wrap_on_the_wire)
{
	for (int nlanes = 1; nlanes <= 3; nlanes++) {
		both_ways(nlanes, &fake_ops, 2000, 32, 64, (1ull << 32) - 700);
		both_ways(nlanes, &fake_lossless_ops, 2000, 32, 64, (1ull << 32) - 700);
		both_ways(nlanes, &fake_ops, 2000, 32, 1024, (1ull << 33) - 1000);
	}
}
END_TEST

START_TEST(test_link_window_full_both_ways_moves_on)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 8);

	fake_pair_up(f);
	f->lane[0].manual = f->lane[1].manual = true;
	f->p.end[0].goal = f->p.end[1].goal = 100;
	fake_run(f, 3 * MSEC, 50 * USEC);
	ck_assert_uint_eq(f->p.end[0].sent, 8);
	ck_assert_uint_eq(f->p.end[1].sent, 8);
	ck_assert(!link_room(f->p.end[0].link));
	{
		struct link_put put = { .frame = { .kind = LINK_KIND_USER } };
		struct tick t = fake_tick(f);

		ck_assert_int_eq(link_put(f->p.end[0].link, &t, &put), LINK_PUT_NO);
	}
	f->lane[0].manual = f->lane[1].manual = false;
	fake_must_finish(f, SEC);
	pair_check(&f->p);
	fake_pair_free(f);
}
END_TEST

/* One message each way in turn is one put each way: acknowledgements travel along. */
START_TEST(test_link_ping_pong_is_one_put_per_message)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 64);
	struct link_stats s;
	uint64_t puts;

	fake_pair_up(f);
	link_stats(f->p.end[0].link, &s);
	puts = s.lane[0].puts;
	for (uint32_t n = 1; n <= 1000; n++) {
		f->p.end[0].goal = n;
		while (f->p.end[1].got < n)
			fake_step(f, USEC);
		f->p.end[1].goal = n;
		while (f->p.end[0].got < n)
			fake_step(f, USEC);
	}
	link_stats(f->p.end[0].link, &s);
	ck_assert_uint_le(s.lane[0].puts - puts, 1000 + 2); /* + a heartbeat */
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_asks_for_acknowledgement_at_once)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 64);
	uint64_t t0;

	fake_pair_up(f);
	f->p.end[0].goal = 1;
	t0 = f->p.now;
	while (!f->p.end[0].released)
		fake_step(f, USEC);
	ck_assert_uint_ge(f->p.now - t0, 100 * USEC); /* lazily */
	f->p.end[0].ack_soon = true;
	f->p.end[0].goal = 2;
	t0 = f->p.now;
	while (f->p.end[0].released < 2)
		fake_step(f, USEC);
	ck_assert_uint_le(f->p.now - t0, 6 * USEC);
	pair_check(&f->p);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_idle_beats_and_nothing_else)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 64);
	uint64_t puts, deadlines = 0;

	fake_pair_up(f);
	fake_run(f, 200 * MSEC, MSEC);
	puts = f->lane[0].end[0].puts;
	for (uint64_t end = f->p.now + 10 * SEC; f->p.now < end; deadlines++) {
		uint64_t at = tick_min(link_deadline(f->p.end[0].link), link_deadline(f->p.end[1].link));

		fake_step(f, at > f->p.now ? at - f->p.now : 1);
	}
	puts = f->lane[0].end[0].puts - puts;
	ck_assert_uint_ge(puts, 190); /* one in 50 ms */
	ck_assert_uint_le(puts, 202);
	ck_assert_uint_le(deadlines, 2000);
	ck_assert_int_eq(link_state(f->p.end[0].link), LINK_UP);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_lossless_idle_is_silent)
{
	struct fake_pair *f = fake_pair_new(2, &fake_lossless_ops, 64);
	uint64_t puts;

	fake_pair_up(f);
	f->p.end[0].goal = 5;
	fake_must_finish(f, 100 * MSEC);
	puts = f->lane[0].end[0].puts;
	fake_run(f, 10 * SEC, MSEC);
	ck_assert_uint_eq(f->lane[0].end[0].puts, puts);
	ck_assert_uint_eq(link_deadline(f->p.end[0].link), NEVER);
	fake_pair_free(f);
}
END_TEST

/* Lane 1 is ten times slower; frames go where they arrive first, so it gets about a tenth. */
START_TEST(test_link_stripes_by_rate)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 256);
	struct link_stats s;
	double share;

	fake_pair_up(f);
	f->lane[0].rate = 10;
	f->lane[1].rate = 1;
	f->p.end[0].goal = 40000;
	f->p.end[0].len = 1000;
	f->p.end[0].ack_soon = true;
	while (f->p.end[1].got < 40000 && !f->p.fail)
		fake_step(f, 10 * USEC);
	link_stats(f->p.end[0].link, &s);
	share = (double)s.lane_bytes_sent[1] / (double)(s.lane_bytes_sent[0] + s.lane_bytes_sent[1]);
	ck_assert_msg(share > 0.05 && share < 0.16, "slow lane's share %.3f", share);
	fake_must_finish(f, SEC);
	pair_check(&f->p);
	fake_pair_free(f);
}
END_TEST

/* Equal lanes share a stream equally, lossless ones too. */
START_TEST(test_link_stripes_equal_lanes_equally)
{
	const struct lane_ops *ops[] = { &fake_ops, &fake_lossless_ops };

	for (int o = 0; o < 2; o++) {
		struct fake_pair *f = fake_pair_new(4, ops[o], 256);
		struct link_stats s;

		fake_pair_up(f);
		for (int i = 0; i < 4; i++)
			f->lane[i].rate = 4;
		f->p.end[0].goal = 20000;
		fake_must_finish(f, 20 * SEC);
		pair_check(&f->p);
		link_stats(f->p.end[0].link, &s);
		for (int i = 0; i < 4; i++) {
			ck_assert_uint_ge(s.lane_bytes_sent[i], 400000);
			/* the other end knows by which it came; the rest are STATEs */
			ck_assert_uint_ge(f->p.end[1].by_lane[i], 400000);
			ck_assert_uint_le(f->p.end[1].by_lane[i], s.lane_bytes_sent[i]);
		}
		fake_pair_free(f);
	}
}
END_TEST

START_TEST(test_link_regions_are_announced_used_and_withdrawn)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 64);
	struct tick t;
	static uint8_t mem[4096], src[100];
	const struct link_mem *m, *other;
	struct link_put put = {
		.frame = { .label = 77, .kind = LINK_KIND_USER + 3, .flags = 9, .msg = ~0u, .off = 5 },
		.src = src,
		.dst_off = 1000
	};

	fake_pair_up(f);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_add(f->p.end[1].link, &t, mem, sizeof(mem), &m), SIRCL_SUCCESS);
	ck_assert_ptr_eq(link_mem_find(f->p.end[1].link, mem + 96, 4000), m);
	ck_assert_ptr_null(link_mem_find(f->p.end[1].link, mem + 97, 4000));
	ck_assert_int_eq(f->p.end[0].regions, 0);
	fake_run(f, MSEC, 50 * USEC);
	ck_assert_int_eq(f->p.end[0].regions, 1);
	ck_assert_uint_eq(f->p.end[0].region_len[link_mem_region(m)], sizeof(mem));
	memset(src, 0x5a, sizeof(src));
	put.region = link_mem_region(m);
	put.frame.len = sizeof(src);
	t = fake_tick(f);
	ck_assert_int_eq(link_put(f->p.end[0].link, &t, &put), LINK_PUT_POSTED);
	ck_assert_int_eq(link_region_add(f->p.end[0].link, &t, src, sizeof(src), &other), SIRCL_SUCCESS);
	fake_run(f, MSEC, 50 * USEC);
	ck_assert_mem_eq(mem + 1000, src, sizeof(src));
	ck_assert_uint_eq(mem[999] | mem[1100], 0);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_remove(f->p.end[1].link, &t, m), SIRCL_SUCCESS);
	fake_run(f, MSEC, 50 * USEC);
	ck_assert_int_eq(f->p.end[0].regions, 0);
	/* the number comes again with other memory */
	t = fake_tick(f);
	ck_assert_int_eq(link_region_add(f->p.end[1].link, &t, mem, 64, &m), SIRCL_SUCCESS);
	fake_run(f, MSEC, 50 * USEC);
	ck_assert_uint_eq(f->p.end[0].region_len[link_mem_region(m)], 64);
	fake_pair_free(f);
}
END_TEST

/* What frames are only sent from: registered on every lane, exported on none, and the peer hears nothing. */
START_TEST(test_link_sources_are_neither_exported_nor_announced)
{
	struct fake_pair *f = fake_pair_new(2, &fake_copy_ops, 64);
	struct pair_end *from = &f->p.end[0];
	const struct link_mem *m, *region;
	uint64_t puts;
	struct tick t;
	int number;

	fake_pair_up(f);
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_nonnull(f->lane[i].end[0].mem[1].base);
		ck_assert(!f->lane[i].end[0].exported[1]); /* the link's own send memory */
	}
	puts = f->lane[0].end[0].puts + f->lane[1].end[0].puts;
	ck_assert_int_eq(link_source_add(from->link, from->src, PAIR_SLOTS * PAIR_BYTES, &m), SIRCL_SUCCESS);
	ck_assert(link_idle(from->link));
	ck_assert_uint_eq(f->lane[0].end[0].puts + f->lane[1].end[0].puts, puts);
	ck_assert_ptr_eq(link_mem_find(from->link, from->src, 1), m);
	number = m->id;
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_eq(f->lane[i].end[0].mem[number].base, from->src);
		ck_assert(!f->lane[i].end[0].exported[number]);
	}
	/* frames longer than what is copied are sent from it, on both lanes */
	from->smem = m;
	from->len = 500;
	from->goal = 20;
	fake_must_finish(f, 100 * MSEC);
	ck_assert_uint_eq(from->posted, 20);
	ck_assert_int_eq(f->p.end[1].regions, 0);
	f->lane[0].manual = f->lane[1].manual = true;
	from->goal = 21;
	fake_run(f, MSEC, 50 * USEC);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_remove(from->link, &t, m), SIRCL_INVALID_USAGE);
	f->lane[0].manual = f->lane[1].manual = false;
	fake_must_finish(f, 100 * MSEC);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_remove(from->link, &t, m), SIRCL_SUCCESS);
	ck_assert(link_idle(from->link));
	for (int i = 0; i < 2; i++)
		ck_assert_ptr_null(f->lane[i].end[0].mem[number].base);
	/* its number is free for a region, which is announced, and after that for a source again */
	t = fake_tick(f);
	ck_assert_int_eq(link_region_add(from->link, &t, from->src, 4096, &region), SIRCL_SUCCESS);
	ck_assert_int_eq(link_mem_region(region), number);
	fake_run(f, MSEC, 50 * USEC);
	ck_assert_int_eq(f->p.end[1].regions, 1);
	ck_assert_uint_eq(f->p.end[1].region_len[number], 4096);
	for (int i = 0; i < 2; i++)
		ck_assert(f->lane[i].end[0].exported[number]);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_remove(from->link, &t, region), SIRCL_SUCCESS);
	fake_run(f, MSEC, 50 * USEC);
	ck_assert_int_eq(f->p.end[1].regions, 0);
	ck_assert_int_eq(link_source_add(from->link, from->src, 4096, &m), SIRCL_SUCCESS);
	ck_assert_int_eq(m->id, number);
	for (int i = 0; i < 2; i++)
		ck_assert(!f->lane[i].end[0].exported[number]);
	fake_run(f, MSEC, 50 * USEC);
	ck_assert_int_eq(f->p.end[1].regions, 0);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_region_in_flight_is_not_removed)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 64);
	const struct link_mem *m;
	struct tick t;

	fake_pair_up(f);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_add(f->p.end[0].link, &t, f->p.end[0].src, PAIR_SLOTS * PAIR_BYTES, &m),
			 SIRCL_SUCCESS);
	fake_run(f, MSEC, 50 * USEC);
	f->p.end[0].smem = m;
	f->lane[0].manual = true;
	f->p.end[0].goal = 1;
	fake_run(f, MSEC, 50 * USEC);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_remove(f->p.end[0].link, &t, m), SIRCL_INVALID_USAGE);
	f->lane[0].manual = false;
	fake_must_finish(f, 100 * MSEC);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_remove(f->p.end[0].link, &t, m), SIRCL_SUCCESS);
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_region_notes_may_overtake_each_other)
{
	for (int first = 0; first < 2; first++) {
		struct fake_pair *f = fake_pair_new(2, &fake_ops, 64);
		static uint8_t mem[4096];
		const struct link_mem *m;
		struct tick t;

		fake_pair_up(f);
		f->lane[0].manual = f->lane[1].manual = true;
		t = fake_tick(f);
		for (int i = 0; i < 12; i++) { /* added and removed under one number, all still in flight */
			ck_assert_int_eq(link_region_add(f->p.end[1].link, &t, mem, 1000 + (size_t)i, &m),
					 SIRCL_SUCCESS);
			if (i < 11)
				ck_assert_int_eq(link_region_remove(f->p.end[1].link, &t, m), SIRCL_SUCCESS);
		}
		while (fake_land(&f->lane[first].end[0]))
			;
		fake_run(f, MSEC, 50 * USEC);
		f->lane[0].manual = f->lane[1].manual = false;
		fake_run(f, MSEC, 50 * USEC);
		ck_assert_int_eq(f->p.end[0].regions, 1);
		ck_assert_uint_eq(f->p.end[0].region_len[link_mem_region(m)], 1011);
		fake_pair_free(f);
	}
}
END_TEST

START_TEST(test_link_goodbye_waits_for_both_and_for_everything)
{
	const struct lane_ops *ops[] = { &fake_ops, &fake_lossless_ops };

	for (int o = 0; o < 2; o++) {
		struct fake_pair *f = fake_pair_new(2, ops[o], 64);
		struct tick t;

		fake_pair_up(f);
		f->p.end[0].goal = 60;
		f->p.end[1].goal = 300;
		fake_step(f, USEC);
		t = fake_tick(f);
		link_bye(f->p.end[0].link, &t);
		ck_assert(!link_closed(f->p.end[0].link));
		fake_run(f, 100 * MSEC, 50 * USEC);
		ck_assert(!link_closed(f->p.end[0].link));
		ck_assert(!link_closed(f->p.end[1].link));
		ck_assert_uint_eq(f->p.end[0].got, 300);
		t = fake_tick(f);
		link_bye(f->p.end[1].link, &t);
		fake_run(f, 10 * MSEC, 50 * USEC);
		ck_assert(link_closed(f->p.end[0].link));
		ck_assert(link_closed(f->p.end[1].link));
		/* the first to go hangs up: no error at the other */
		f->stopped[0] = true;
		for (int i = 0; i < 2; i++)
			fake_hup(&f->lane[i], 1);
		fake_run(f, 5 * SEC, MSEC);
		ck_assert_int_eq(f->p.end[1].dead, 0);
		ck_assert(link_closed(f->p.end[1].link));
		pair_check(&f->p);
		fake_pair_free(f);
	}
}
END_TEST

/* The peer has said goodbye, has ours, and hangs up before its acknowledgement comes. */
START_TEST(test_link_goodbye_survives_a_lost_last_word)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 64);
	struct tick t;

	fake_pair_up(f);
	t = fake_tick(f);
	link_bye(f->p.end[0].link, &t);
	fake_run(f, 10 * MSEC, 50 * USEC);
	t = fake_tick(f);
	link_bye(f->p.end[1].link, &t);
	f->stopped[0] = true;
	fake_hup(&f->lane[0], 1);
	fake_run(f, SEC, MSEC);
	ck_assert_int_eq(f->p.end[1].dead, 0);
	ck_assert(link_closed(f->p.end[1].link));
	fake_pair_free(f);
}
END_TEST

START_TEST(test_link_refuses_other_numbers_of_lanes)
{
	struct fake_pair *f = fake_pair_new(2, &fake_ops, 64);
	struct tick t = fake_tick(f);
	struct link_addr a;

	link_local_addr(f->p.end[1].link, &a);
	a.nlanes = 1;
	ck_assert_int_eq(link_connect(f->p.end[0].link, &t, &a), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "SIRCL_LANES"));
	fake_pair_free(f);
}
END_TEST

/* Unregistered frames are copied to the send memory, which is a ring: when it is full they wait. */
START_TEST(test_link_staged_frames_wait_for_room)
{
	struct fake_pair *f = fake_pair_new(1, &fake_copy_ops, 64);
	static uint8_t src[300000], far[300000];
	const struct link_mem *m;
	struct tick t;
	uint32_t sent = 0;

	fake_pair_up(f);
	t = fake_tick(f);
	ck_assert_int_eq(link_region_add(f->p.end[1].link, &t, far, sizeof(far), &m), SIRCL_SUCCESS);
	fake_run(f, MSEC, 50 * USEC);
	f->lane[0].manual = true;
	for (uint32_t k = 0; k < 40; k++) {
		struct link_put put = { .frame = { .label = 77,
						   .kind = LINK_KIND_USER + 3,
						   .flags = 9,
						   .msg = ~k,
						   .fno = k,
						   .off = k + 5,
						   .tag = k * 3,
						   .len = sizeof(src) },
					.src = src,
					.region = link_mem_region(m) };

		memset(src, (int)k + 1, sizeof(src));
		t = fake_tick(f);
		while (link_put(f->p.end[0].link, &t, &put) == LINK_PUT_NO) {
			sent = sent ? sent : k;
			while (!fake_land(&f->lane[0].end[1]))
				fake_step(f, 10 * USEC);
			for (int i = 0; i < 20; i++) {
				fake_step(f, 10 * USEC);
				fake_land(&f->lane[0].end[0]);
			}
			for (size_t i = 0; i < sizeof(far); i++)
				must(far[i] == (f->p.end[1].got ? f->p.end[1].got : 0),
				     "a staged frame was overwritten");
		}
		free(f->p.fail);
		f->p.fail = NULL; /* the bytes are checked here, not in the arena */
	}
	ck_assert_uint_ge(sent, 5);
	ck_assert_uint_le(sent, 7); /* 2 MiB */
	fake_pair_free(f);
}
END_TEST

/* The first message of an epoch is STATE, also where the lane takes nothing at that moment. */
START_TEST(test_link_first_message_of_an_epoch_is_state)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 64);
	struct link_put put = { .frame = { .kind = LINK_KIND_USER } };
	struct frame_hdr h;
	struct tick t;

	f->lane[0].manual = true;
	f->lane[0].end[0].full = true;
	pair_connect(&f->p);
	fake_run(f, MSEC, 20 * USEC);
	f->lane[0].end[0].full = false;
	t = fake_tick(f);
	ck_assert_int_eq(link_put(f->p.end[0].link, &t, &put), LINK_PUT_NO);
	fake_step(f, USEC);
	t = fake_tick(f);
	ck_assert_int_ne(link_put(f->p.end[0].link, &t, &put), LINK_PUT_NO);
	ck_assert(frame_open(&f->lane[0].end[1].q[0].put.note, &h));
	ck_assert_uint_eq(h.kind, LINK_KIND_STATE);
	fake_pair_free(f);
}
END_TEST

/* Both ends have two un-echoed STATEs: each sends a third one for the echo, at once. */
START_TEST(test_link_echoes_do_not_wait_for_each_other)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 64);
	struct link_lane *a, *b;

	fake_pair_up(f);
	a = &f->p.end[0].link->lane[0];
	b = &f->p.end[1].link->lane[0];
	for (int e = 0; e < 2; e++) { /* a frame echoes without asking for an echo */
		f->p.end[e].goal = 1;
		while (!f->p.end[!e].got)
			fake_step(f, USEC);
	}
	f->lane[0].manual = true;
	ck_assert_uint_eq(a->states_sent, a->states_echoed);
	ck_assert_uint_eq(b->states_sent, b->states_echoed);
	fake_run(f, 120 * MSEC, MSEC);
	ck_assert_uint_eq(a->states_sent - a->states_echoed, 2);
	ck_assert_uint_eq(b->states_sent - b->states_echoed, 2);
	f->lane[0].manual = false;
	fake_run(f, MSEC, 20 * USEC);
	ck_assert_uint_le(a->states_sent - a->states_echoed, 1);
	ck_assert_uint_le(b->states_sent - b->states_echoed, 1);
	fake_pair_free(f);
}
END_TEST

/* Closed means: the peer has our last word. */
START_TEST(test_link_goodbye_is_not_closed_before_it_arrived)
{
	struct fake_pair *f = fake_pair_new(1, &fake_ops, 64);
	struct tick t;

	fake_pair_up(f);
	t = fake_tick(f);
	f->lane[0].manual = true;
	link_bye(f->p.end[0].link, &t);
	link_bye(f->p.end[1].link, &t);
	for (int i = 0; i < 20; i++) {
		fake_step(f, 50 * USEC);
		fake_land(&f->lane[0].end[0]);
	}
	ck_assert(f->p.end[0].link->peer_bye);
	ck_assert(!link_closed(f->p.end[0].link));
	f->lane[0].manual = false;
	fake_run(f, MSEC, 50 * USEC);
	ck_assert(link_closed(f->p.end[0].link));
	fake_pair_free(f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_basic");
	TCase *c = tcase_create("link_basic");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_link_delivers_every_frame_once_both_ways);
	tcase_add_test(c, test_link_numbers_wrap_on_the_wire);
	tcase_add_test(c, test_link_window_full_both_ways_moves_on);
	tcase_add_test(c, test_link_ping_pong_is_one_put_per_message);
	tcase_add_test(c, test_link_asks_for_acknowledgement_at_once);
	tcase_add_test(c, test_link_idle_beats_and_nothing_else);
	tcase_add_test(c, test_link_lossless_idle_is_silent);
	tcase_add_test(c, test_link_stripes_by_rate);
	tcase_add_test(c, test_link_stripes_equal_lanes_equally);
	tcase_add_test(c, test_link_regions_are_announced_used_and_withdrawn);
	tcase_add_test(c, test_link_sources_are_neither_exported_nor_announced);
	tcase_add_test(c, test_link_region_in_flight_is_not_removed);
	tcase_add_test(c, test_link_region_notes_may_overtake_each_other);
	tcase_add_test(c, test_link_goodbye_waits_for_both_and_for_everything);
	tcase_add_test(c, test_link_goodbye_survives_a_lost_last_word);
	tcase_add_test(c, test_link_refuses_other_numbers_of_lanes);
	tcase_add_test(c, test_link_staged_frames_wait_for_room);
	tcase_add_test(c, test_link_first_message_of_an_epoch_is_state);
	tcase_add_test(c, test_link_echoes_do_not_wait_for_each_other);
	tcase_add_test(c, test_link_goodbye_is_not_closed_before_it_arrived);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
