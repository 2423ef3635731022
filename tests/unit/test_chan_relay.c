/* SPDX-License-Identifier: Apache-2.0 */
/* Channels through relays: order and contents over many hops, no channel stops another, memory, refusals,
 * notices. */
#include "chan_world.h"

static struct world w;

static void relay_memory_within_formula(void)
{
	for (int i = 0; i < w.n; i++) {
		struct chan_net_stats st;
		chan_net_stats(w.net[i], &st);
		ck_assert_uint_le(st.relay_peak, st.relay_bytes);
		ck_assert_uint_eq(w.net[i]->protocol_errors, 0);
	}
}

/* A relay sends from the arena of the link by which frames come: the neighbour on the other side neither
 * hears of that memory nor may write it (chan_world.h fails a put that tries). */
static void relay_memory_is_no_region(int relay)
{
	for (int s = 0; s < LINK_SIDES; s++) {
		const struct side *side = &w.net[relay]->side[s];
		ck_assert_ptr_nonnull(side->cross);
		ck_assert_ptr_eq(side->cross->p, arena_base(w.link[relay][!s].arena));
		ck_assert(!side->cross->exported);
	}
	for (int i = 0; i < w.n; i++)
		for (int s = 0; s < LINK_SIDES; s++)
			for (int r = 1; r < LANE_REGIONS_MAX; r++)
				ck_assert_uint_eq(w.net[i]->side[s].region_len[r], 0);
}

START_TEST(test_chan_relays_over_2_to_6_hops)
{
	for (int hops = 2; hops <= 6; hops++)
		for (uint64_t seed = 1; seed <= 3; seed++) {
			struct chan *a, *b;
			struct flow f[2];
			struct chan_net_stats st;
			w_create(&w, 7, seed % 2, seed * 10 + (uint64_t)hops);
			w_open(&w, 0, hops, LINK_NEXT, 5, seed == 1 ? 4096 : 65536, &a, &b);
			ck_assert_int_eq(chan_hops(a), hops);
			flow_init(&w, &f[0], a, b, 20, 50000, FLOW_MIXED);
			flow_init(&w, &f[1], b, a, 20, 50000, FLOW_MIXED);
			flows_run(&w, f, 2, 200000);
			relay_memory_within_formula();
			relay_memory_is_no_region(1);
			chan_net_stats(w.net[1], &st);
			ck_assert_int_eq(st.relays, 2);
			ck_assert_uint_eq(st.relay_bytes, 2 * (seed == 1 ? 4096u : 65536u));
			ck_assert_uint_gt(st.relayed_frames, 20);
			w_destroy(&w);
			flow_free(&f[0]);
			flow_free(&f[1]);
		}
}
END_TEST

START_TEST(test_chan_four_relayed_streams_round_the_ring_do_not_deadlock)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct flow f[8];
		w_create(&w, 4, true, seed);
		for (int i = 0; i < 4; i++) {
			struct chan *a, *b, *c, *d;
			w_open(&w, i, (i + 2) % 4, LINK_NEXT, (uint32_t)i, 4096, &a, &b);
			w_open(&w, i, (i + 1) % 4, LINK_NEXT, (uint32_t)(10 + i), 4096, &c, &d);
			flow_init(&w, &f[i], a, b, 20, 8000, FLOW_LAND);
			flow_init(&w, &f[4 + i], c, d, 20, 8000, FLOW_LAND);
		}
		/* the receiver of the stream 0 -> 2 has not posted: everybody else finishes */
		f[0].no_post = true;
		for (int k = 0; k < 50000; k++) {
			bool all = true;
			for (int i = 0; i < 8; i++)
				all &= flow_step(&w, &f[i]) || i == 0;
			w_step(&w);
			if (all)
				break;
		}
		for (int i = 1; i < 8; i++)
			ck_assert_int_eq(f[i].recv_done, 20);
		relay_memory_within_formula();
		f[0].no_post = false;
		flows_run(&w, f, 8, 100000);
		relay_memory_within_formula();
		w_destroy(&w);
		for (int i = 0; i < 8; i++)
			flow_free(&f[i]);
	}
}
END_TEST

START_TEST(test_chan_relay_takes_no_more_than_the_next_hops_room)
{
	/* the far end has not posted: the relay holds at most a window, the origin stops after two */
	struct chan *a, *b;
	struct flow f;
	struct chan_net_stats st;
	w_create(&w, 3, false, 3);
	w_open(&w, 0, 2, LINK_NEXT, 5, 16384, &a, &b);
	flow_init(&w, &f, a, b, 60, 4000, FLOW_LAND);
	f.no_post = true;
	for (int k = 0; k < 5000; k++) {
		(void)flow_step(&w, &f);
		w_step(&w);
	}
	chan_net_stats(w.net[1], &st);
	ck_assert_uint_gt(st.relay_peak, 0);
	ck_assert_uint_le(st.relay_peak, 16384);
	ck_assert_uint_le(a->tx.pos, 2 * 16384);
	w_destroy(&w);
	flow_free(&f);
}
END_TEST

START_TEST(test_chan_windows_of_the_ends_may_differ)
{
	for (int swap = 0; swap < 2; swap++) {
		struct chan *a, *b;
		struct flow f[2];
		w_create(&w, 4, true, 3);
		struct tick t = w_tick(&w);
		struct chan_cfg ca = { .id = 1, .peer = 3, .via = LINK_NEXT, .window = swap ? 65536 : 8192 };
		struct chan_cfg cb = { .id = 1, .peer = 0, .via = LINK_PREV, .window = swap ? 8192 : 65536 };
		ck_assert_int_eq(chan_open(w.net[0], &t, &ca, &a), SIRCL_SUCCESS);
		ck_assert_int_eq(chan_open(w.net[3], &t, &cb, &b), SIRCL_SUCCESS);
		flow_init(&w, &f[0], a, b, 20, 30000, FLOW_LAND);
		flow_init(&w, &f[1], b, a, 20, 30000, FLOW_LAND);
		flows_run(&w, f, 2, 100000);
		ck_assert_uint_eq(a->tx.window, 8192);
		ck_assert_uint_eq(b->tx.window, 8192);
		relay_memory_within_formula();
		w_destroy(&w);
		flow_free(&f[0]);
		flow_free(&f[1]);
	}
}
END_TEST

START_TEST(test_chan_fragment_fits_every_lane_of_the_way)
{
	struct chan *a, *b;
	struct flow f;
	w_create(&w, 4, true, 3);
	w.max_put = 1000;
	w_open(&w, 0, 3, LINK_NEXT, 5, 65536, &a, &b);
	flow_init(&w, &f, a, b, 10, 30000, FLOW_LAND);
	flows_run(&w, &f, 1, 100000);
	ck_assert_uint_eq(a->tx.frag, 960);
	w_destroy(&w);
	flow_free(&f);
}
END_TEST

static void refused(const char *sentence, sircl_result_t code, void (*prepare)(void))
{
	struct chan *a, *b;
	struct xfer s, r, s2, r2;
	uint8_t buf[100] = { 0 };
	w_create(&w, 4, true, 3);
	prepare();
	w_open(&w, 0, 3, LINK_NEXT, 5, 65536, &a, &b);
	struct tick t = w_tick(&w);
	ck_assert(chan_send(a, &t, buf, sizeof(buf), 0, &s) && chan_recv(a, &t, buf, sizeof(buf), &r));
	ck_assert(chan_send(b, &t, buf, sizeof(buf), 0, &s2) && chan_recv(b, &t, buf, sizeof(buf), &r2));
	for (int k = 0; k < 3000 && !(s.err && r.err && (s2.err || s2.finished) && r2.err); k++)
		w_step(&w);
	ck_assert_int_eq(s.err, code);
	ck_assert_int_eq(r.err, code);
	ck_assert(s2.finished || s2.err == code); /* it may have left before its partner was refused */
	ck_assert_int_eq(r2.err, code);
	ck_assert_ptr_nonnull(strstr(chan_error(a)->msg, sentence));
	ck_assert_ptr_nonnull(strstr(chan_error(b)->msg, sentence));
	chan_close(a, &t);
	chan_close(b, &t);
	for (int k = 0; k < 3000; k++)
		w_step(&w);
	for (int i = 0; i < 4; i++) {
		struct chan_net_stats st;
		chan_net_stats(w.net[i], &st);
		ck_assert_int_eq(st.channels, 0);
		ck_assert_int_eq(st.relays, 0);
		ck_assert_uint_eq(st.relay_bytes, 0);
		ck_assert_uint_eq(w.net[i]->protocol_errors, 0);
	}
	w_destroy(&w);
}

static void no_memory_at_2(void)
{
	w.net[2]->cfg.relay_limit = 65536; /* one direction fits, the other does not */
}
static void no_arena_at_1(void)
{
	while (arena_alloc(w.link[1][LINK_PREV].arena, 65536) != SIZE_MAX)
		;
}
static void no_label_at_1(void)
{
	w.net[1]->side[LINK_NEXT].free_count = 0;
}

START_TEST(test_chan_relay_without_memory_refuses_by_name)
{
	refused("rank 2 would have to relay it and has no relay memory left for 65536 bytes more",
		SIRCL_NO_MEMORY, no_memory_at_2);
	refused("rank 1 has no receive memory left", SIRCL_NO_MEMORY, no_arena_at_1);
	refused("rank 1 passes 1024 channels on that link already", SIRCL_NO_MEMORY, no_label_at_1);
}
END_TEST

START_TEST(test_chan_on_a_line_knows_where_it_ends)
{
	struct chan *a, *b;
	w_create(&w, 4, false, 3);
	struct tick t = w_tick(&w);
	struct chan_cfg c = { .id = 1, .peer = 3, .via = LINK_PREV, .window = 65536 };
	ck_assert_int_eq(chan_open(w.net[0], &t, &c, &a), SIRCL_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "rank 0 has no way to rank 3 by PREV"));
	ck_assert_int_eq(chan_open(w.net[1], &t, &c, &a), SIRCL_INVALID_ARGUMENT);
	c.peer = 4;
	ck_assert_int_eq(chan_open(w.net[0], &t, &c, &a), SIRCL_INVALID_ARGUMENT);
	c = (struct chan_cfg){ .id = 1, .peer = 3, .via = LINK_NEXT, .window = 5000 };
	ck_assert_int_eq(chan_open(w.net[0], &t, &c, &a), SIRCL_INVALID_ARGUMENT);
	w_open(&w, 0, 3, LINK_NEXT, 1, 65536, &a, &b);
	c.window = 65536;
	ck_assert_int_eq(chan_open(w.net[0], &t, &c, &a), SIRCL_INVALID_USAGE);
	w_destroy(&w);
	/* a peer that believes in a ring */
	w_create(&w, 4, false, 3);
	for (int i = 0; i < 4; i++)
		w.net[i]->cfg.ring = true;
	c = (struct chan_cfg){ .id = 1, .peer = 0, .via = LINK_NEXT, .window = 65536 };
	t = w_tick(&w);
	ck_assert_int_eq(chan_open(w.net[2], &t, &c, &a), SIRCL_SUCCESS);
	struct xfer x;
	ck_assert(chan_send(a, &t, NULL, 0, 0, &x));
	for (int k = 0; k < 500; k++)
		w_step(&w);
	ck_assert_int_eq(x.err, SIRCL_REMOTE_ERROR);
	ck_assert_ptr_nonnull(strstr(chan_error(a)->msg, "the line of cables ends at rank 3"));
	w_destroy(&w);
}
END_TEST

START_TEST(test_chan_notices_reach_every_node_once)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		int n = 2 + (int)(seed % 6);
		bool ring = seed % 3;
		w_create(&w, n, ring, seed);
		for (int i = 0; i < n; i++)
			for (int k = 0; k < 3; k++) {
				struct tick t = w_tick(&w);
				chan_net_notify(w.net[i], &t, NOTICE_ABORT, (uint16_t)i, 7, (uint64_t)k);
				if (w_rand(&w, 2))
					w_step(&w);
			}
		for (int k = 0; k < 2000; k++)
			w_step(&w);
		for (int i = 0; i < n; i++) {
			int got[W_NODES][3] = { 0 };
			ck_assert_int_eq(w.nheard[i], 3 * n);
			for (int k = 0; k < w.nheard[i]; k++) {
				const struct chan_notice *h = &w.heard[i][k];
				ck_assert_int_eq(h->kind, NOTICE_ABORT);
				ck_assert_uint_eq(h->code, 7);
				ck_assert_uint_eq(h->subject, h->origin);
				got[h->origin][h->arg]++;
			}
			for (int o = 0; o < n; o++)
				for (int k = 0; k < 3; k++)
					ck_assert_int_eq(got[o][k], 1);
		}
		w_destroy(&w);
	}
}
END_TEST

START_TEST(test_chan_notice_goes_the_long_way_round_a_dead_link)
{
	w_create(&w, 5, true, 4);
	w_kill(&w, 1, LINK_NEXT);
	struct tick t = w_tick(&w);
	chan_net_notify(w.net[1], &t, NOTICE_DEAD, 3, 8, 99);
	for (int k = 0; k < 1000; k++)
		w_step(&w);
	for (int i = 0; i < 5; i++) {
		int said = 0, lost = 0;
		/* the notice, and one from each end of the link that died */
		ck_assert_int_eq(w.nheard[i], 3);
		for (int k = 0; k < 3; k++) {
			const struct chan_notice *h = &w.heard[i][k];
			ck_assert_int_eq(h->kind, NOTICE_DEAD);
			said += h->arg == 99 && h->subject == 3;
			lost += h->arg == 0 && h->origin + h->subject == 3 &&
				(h->subject == 1 || h->subject == 2);
		}
		ck_assert_int_eq(said, 1);
		ck_assert_int_eq(lost, 2);
	}
	w_destroy(&w);
}
END_TEST

W_MAIN("chan_relay", test_chan_relays_over_2_to_6_hops,
       test_chan_four_relayed_streams_round_the_ring_do_not_deadlock,
       test_chan_relay_takes_no_more_than_the_next_hops_room, test_chan_windows_of_the_ends_may_differ,
       test_chan_fragment_fits_every_lane_of_the_way, test_chan_relay_without_memory_refuses_by_name,
       test_chan_on_a_line_knows_where_it_ends, test_chan_notices_reach_every_node_once,
       test_chan_notice_goes_the_long_way_round_a_dead_link)
