/* SPDX-License-Identifier: Apache-2.0 */
/* One channel between neighbours: order, contents, windows, views, grants, numbers. */
#include "chan_world.h"

static struct world w;
static struct chan *a, *b;

static void run_seeds(uint64_t seeds, int nmsg, size_t max, uint32_t window, enum flow_mode mode, bool both,
		      bool reg)
{
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct flow f[2];
		w_create(&w, 2, true, seed);
		w_open(&w, 0, 1, LINK_NEXT, 7, window, &a, &b);
		flow_init(&w, &f[0], a, b, nmsg, max, mode);
		flow_init(&w, &f[1], b, a, nmsg, max, mode);
		for (int i = 0; reg && i < 2; i++) {
			struct tick t = w_tick(&w);
			ck_assert_int_eq(chan_net_register(w.net[i], &t, f[i].src_mem, f[i].src_len),
					 SIRCL_SUCCESS);
			ck_assert_int_eq(chan_net_register(w.net[!i], &t, f[i].dst_mem, f[i].dst_len),
					 SIRCL_SUCCESS);
		}
		flows_run(&w, f, both ? 2 : 1, 200000);
		for (int k = 0; k < 20000 && !(chan_idle(a) && chan_idle(b)); k++)
			w_step(&w);
		ck_assert(chan_idle(a) && chan_idle(b));
		ck_assert_uint_eq(w.net[0]->protocol_errors + w.net[1]->protocol_errors, 0);
		if (reg) {
			struct chan_net_stats st;
			chan_net_stats(w.net[0], &st);
			if (max > 100000)
				ck_assert_uint_gt(st.granted_bytes, 0);
		}
		w_destroy(&w);
		flow_free(&f[0]);
		flow_free(&f[1]);
	}
}

START_TEST(test_chan_keeps_order_over_an_unordered_link)
{
	run_seeds(40, 40, 9000, 65536, FLOW_LAND, false, false);
}
END_TEST

START_TEST(test_chan_wraps_the_smallest_window)
{
	run_seeds(20, 40, 20000, 4096, FLOW_LAND, true, false);
}
END_TEST

START_TEST(test_chan_carries_messages_larger_than_the_window_both_ways)
{
	run_seeds(6, 12, 300000, 65536, FLOW_LAND, true, false);
}
END_TEST

START_TEST(test_chan_carries_5_mib)
{
	struct flow f;
	w_create(&w, 2, true, 3);
	w_open(&w, 0, 1, LINK_NEXT, 1, 1u << 20, &a, &b);
	flow_init(&w, &f, a, b, 2, 5u << 20, FLOW_LAND);
	flows_run(&w, &f, 1, 100000);
	w_destroy(&w);
	flow_free(&f);
}
END_TEST

START_TEST(test_chan_view_reads_in_place)
{
	run_seeds(20, 30, 60000, 65536, FLOW_VIEW, true, false);
}
END_TEST

START_TEST(test_chan_views_and_landings_mix)
{
	run_seeds(20, 40, 70000, 16384, FLOW_MIXED, true, true);
}
END_TEST

START_TEST(test_chan_grants_land_in_registered_memory)
{
	run_seeds(12, 12, 600000, 65536, FLOW_LAND, true, true);
}
END_TEST

START_TEST(test_chan_grant_frees_a_sender_that_has_used_up_its_window)
{
	static uint8_t src[300000], dst[300000];
	struct xfer s, r;
	struct chan_net_stats st;
	w_create(&w, 2, true, 5);
	w.no_percent = 0;
	w_open(&w, 0, 1, LINK_NEXT, 7, 65536, &a, &b);
	struct tick t = w_tick(&w);
	ck_assert_int_eq(chan_net_register(w.net[1], &t, dst, sizeof(dst)), SIRCL_SUCCESS);
	ck_assert(chan_send(a, &t, src, sizeof(src), 0, &s));
	for (int k = 0; k < 300; k++)
		w_step(&w);
	chan_net_stats(w.net[0], &st);
	ck_assert_uint_eq(st.staged_bytes, 65536);
	t = w_tick(&w);
	ck_assert(chan_recv(b, &t, dst, sizeof(dst), &r));
	for (int k = 0; k < 300; k++)
		w_step(&w);
	ck_assert(s.finished && r.finished);
	chan_net_stats(w.net[0], &st);
	ck_assert_uint_gt(st.granted_bytes, 150000);
	w_destroy(&w);
}
END_TEST

START_TEST(test_chan_registered_sources_are_kept_until_released)
{
	run_seeds(20, 40, 20000, 65536, FLOW_LAND, true, true);
}
END_TEST

START_TEST(test_chan_numbers_wrap)
{
	for (uint64_t seed = 1; seed < 6; seed++) {
		struct flow f[2];
		w_create(&w, 2, true, seed);
		w.net[0]->first = w.net[1]->first = 0xffffffe0u;
		w_open(&w, 0, 1, LINK_NEXT, 7, 65536, &a, &b);
		flow_init(&w, &f[0], a, b, FLOW_MSGS, 200000, FLOW_LAND);
		flow_init(&w, &f[1], b, a, FLOW_MSGS, 3000, FLOW_VIEW);
		struct tick t = w_tick(&w);
		ck_assert_int_eq(chan_net_register(w.net[1], &t, f[0].dst_mem, f[0].dst_len), SIRCL_SUCCESS);
		flows_run(&w, f, 2, 100000);
		ck_assert_uint_lt(b->rx.cons, 100000);
		ck_assert_uint_lt(b->rx.msg, 100);
		w_destroy(&w);
		flow_free(&f[0]);
		flow_free(&f[1]);
	}
}
END_TEST

START_TEST(test_chan_sender_stops_at_the_credit)
{
	struct flow f;
	w_create(&w, 2, true, 5);
	w_open(&w, 0, 1, LINK_NEXT, 7, 16384, &a, &b);
	flow_init(&w, &f, a, b, 30, 5000, FLOW_LAND);
	f.no_post = true;
	for (int k = 0; k < 3000; k++) {
		(void)flow_step(&w, &f);
		w_step(&w);
	}
	ck_assert_uint_le(a->tx.pos, 16384);
	ck_assert_uint_le(a->tx.fno, 16);
	ck_assert_int_lt(f.send_done, 30);
	f.no_post = false;
	flows_run(&w, &f, 1, 100000);
	w_destroy(&w);
	flow_free(&f);
}
END_TEST

START_TEST(test_chan_credits_are_not_per_message)
{
	struct flow f;
	struct chan_net_stats st;
	w_create(&w, 2, true, 5);
	w_open(&w, 0, 1, LINK_NEXT, 7, 1u << 20, &a, &b);
	flow_init(&w, &f, a, b, 60, 64, FLOW_LAND);
	flows_run(&w, &f, 1, 100000);
	chan_net_stats(w.net[1], &st);
	ck_assert_uint_le(st.credits_sent, 1);
	w_destroy(&w);
	flow_free(&f);
}
END_TEST

START_TEST(test_chan_one_small_message_is_one_frame_sent_at_once)
{
	uint8_t buf[8192] = { 1 };
	struct xfer x;
	w_create(&w, 2, true, 5);
	w.no_percent = 0;
	w_open(&w, 0, 1, LINK_NEXT, 7, 1u << 20, &a, &b);
	for (int k = 0; k < 200; k++)
		w_step(&w);
	ck_assert(chan_is_open(a) && chan_is_open(b));
	uint64_t puts = w.link[0][LINK_NEXT].puts;
	struct tick t = w_tick(&w);
	ck_assert(chan_send(a, &t, buf, sizeof(buf), 1, &x));
	ck_assert_uint_eq(w.link[0][LINK_NEXT].puts, puts + 1);
	for (int k = 0; k < 200; k++)
		w_step(&w);
	ck_assert_uint_eq(w.link[0][LINK_NEXT].puts, puts + 1);
	ck_assert(x.finished);
	w_destroy(&w);
}
END_TEST

START_TEST(test_chan_too_long_message_is_a_mismatch_and_the_next_is_whole)
{
	for (uint64_t seed = 1; seed < 20; seed++) {
		static uint8_t src[3][200000], dst[3][200000];
		struct xfer sx[3], rx[3];
		bool reg = seed % 2, view = seed % 3 == 0;
		w_create(&w, 2, true, seed);
		w_open(&w, 0, 1, LINK_NEXT, 7, 65536, &a, &b);
		struct tick t = w_tick(&w);
		if (reg)
			ck_assert_int_eq(chan_net_register(w.net[1], &t, dst, sizeof(dst)), SIRCL_SUCCESS);
		memset(dst, 0xee, sizeof(dst));
		for (int i = 0; i < 3; i++) {
			memset(src[i], i + 1, sizeof(src[i]));
			ck_assert(chan_send(a, &t, src[i], sizeof(src[i]), 0, &sx[i]));
			if (i == 1 && view)
				ck_assert(chan_recv_view(b, &t, 100000, &rx[i]));
			else
				ck_assert(chan_recv(b, &t, dst[i], i == 1 ? 100000 : 200000, &rx[i]));
		}
		for (int k = 0; k < 20000 && !rx[2].finished; k++) {
			const void *p;
			size_t n = view ? chan_view(b, &rx[1], &p) : 0;
			t = w_tick(&w);
			chan_consume(b, &t, &rx[1], n > 64 ? 64 : n);
			w_step(&w);
		}
		ck_assert(rx[0].finished && rx[2].finished);
		ck_assert_int_eq(rx[1].err, SIRCL_MISMATCH);
		ck_assert_ptr_nonnull(strstr(chan_error(b)->msg, "longer than the 100000 bytes"));
		ck_assert_uint_eq(dst[2][0], 3);
		ck_assert_uint_eq(dst[2][199999], 3);
		ck_assert_uint_eq(dst[1][100000], 0xee);
		ck_assert_uint_eq(w.net[0]->protocol_errors + w.net[1]->protocol_errors, 0);
		w_destroy(&w);
	}
}
END_TEST

START_TEST(test_chan_memory_in_use_cannot_be_deregistered)
{
	static uint8_t mem[100000];
	struct xfer x;
	w_create(&w, 2, true, 5);
	w_open(&w, 0, 1, LINK_NEXT, 7, 65536, &a, &b);
	struct tick t = w_tick(&w);
	ck_assert_int_eq(chan_net_register(w.net[1], &t, mem, sizeof(mem)), SIRCL_SUCCESS);
	ck_assert_int_eq(chan_net_register(w.net[1], &t, mem + 10, 10), SIRCL_INVALID_USAGE);
	ck_assert(chan_recv(b, &t, mem, sizeof(mem), &x));
	ck_assert_int_eq(chan_net_deregister(w.net[1], &t, mem), SIRCL_INVALID_USAGE);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "has not ended"));
	struct xfer s;
	ck_assert(chan_send(a, &t, mem, 60000, 0, &s));
	for (int k = 0; k < 5000 && !x.finished; k++)
		w_step(&w);
	ck_assert(x.finished);
	ck_assert_int_eq(chan_net_deregister(w.net[1], &t, mem), SIRCL_SUCCESS);
	ck_assert_int_eq(chan_net_deregister(w.net[1], &t, mem), SIRCL_INVALID_USAGE);
	ck_assert_int_eq(chan_net_register(w.net[1], &t, mem + 10, 10), SIRCL_SUCCESS);
	w_destroy(&w);
}
END_TEST

START_TEST(test_chan_long_transfer_does_not_starve_others)
{
	/* 8 MiB are queued on one channel, with credit for 1 MiB at any time; a message of 4 KiB on another
	 * waits for a turn, not for the end of it */
	struct chan *a2, *b2;
	struct flow big;
	static uint8_t src[4096], dst[4096];
	struct xfer s[10], r[10]; /* some are under way until the end */
	w_create(&w, 2, true, 9);
	w.no_percent = 0;
	w.max_put = 4096;
	w.link[0][LINK_NEXT].window = 8;
	w_open(&w, 0, 1, LINK_NEXT, 1, 1u << 20, &a, &b);
	w_open(&w, 0, 1, LINK_NEXT, 2, 65536, &a2, &b2);
	flow_init(&w, &big, a, b, 8, 1u << 20, FLOW_LAND);
	for (int m = 0; m < 10; m++) {
		for (int k = 0; k < 50; k++) {
			(void)flow_step(&w, &big);
			w_step(&w);
		}
		uint32_t fno = a->tx.fno;
		struct tick t = w_tick(&w);
		ck_assert(chan_recv(b2, &t, dst, 4096, &r[m]) && chan_send(a2, &t, src, 4096, 0, &s[m]));
		while (a2->s_cur != a2->s_tail) {
			(void)flow_step(&w, &big);
			w_step(&w);
		}
		/* at most the rest of one turn */
		ck_assert_uint_le(a->tx.fno - fno, 16 + 8);
	}
	ck_assert_int_lt(big.recv_done, 8);
	w_destroy(&w);
	flow_free(&big);
}
END_TEST

START_TEST(test_chan_queue_is_bounded)
{
	struct xfer x[CHAN_QUEUE + 1];
	w_create(&w, 2, true, 1);
	w_open(&w, 0, 1, LINK_NEXT, 1, 65536, &a, &b);
	struct tick t = w_tick(&w);
	for (int i = 0; i < CHAN_QUEUE; i++)
		ck_assert(chan_recv(b, &t, NULL, 0, &x[i]));
	ck_assert(!chan_recv(b, &t, NULL, 0, &x[CHAN_QUEUE]));
	struct xfer s[CHAN_QUEUE + 1];
	int n = 0;
	while (n <= CHAN_QUEUE && chan_send(a, &t, NULL, 0, 5, &s[n]))
		n++;
	ck_assert_int_eq(n, CHAN_QUEUE);
	for (int k = 0; k < 20000 && !x[CHAN_QUEUE - 1].finished; k++)
		w_step(&w);
	ck_assert(x[CHAN_QUEUE - 1].finished && s[CHAN_QUEUE - 1].finished);
	w_destroy(&w);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static uint64_t allocations;
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
void *malloc(size_t n)
{
	allocations++;
	return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
	allocations++;
	return __libc_calloc(n, m);
}

START_TEST(test_chan_data_path_does_not_allocate)
{
	static uint8_t src[100000], dst[100000];
	w_create(&w, 2, true, 2);
	w.done_limit = 0; /* the fake link itself allocates for copies only */
	w_open(&w, 0, 1, LINK_NEXT, 1, 65536, &a, &b);
	struct tick t = w_tick(&w);
	ck_assert_int_eq(chan_net_register(w.net[0], &t, src, sizeof(src)), SIRCL_SUCCESS);
	ck_assert_int_eq(chan_net_register(w.net[1], &t, dst, sizeof(dst)), SIRCL_SUCCESS);
	for (int i = 0; i < 200; i++) {
		struct xfer s, r;
		if (i == 10)
			allocations = 0;
		t = w_tick(&w);
		size_t len = 1 + w_rand(&w, i % 4 ? 3000 : sizeof(src) - 1);
		W_OK(chan_recv(b, &t, dst, sizeof(dst), &r));
		W_OK(chan_send(a, &t, src, len, 0, &s));
		for (int k = 0; k < 5000 && !(r.finished && s.finished); k++)
			w_step(&w);
		W_OK(r.finished && s.finished);
	}
	ck_assert_uint_eq(allocations, 0);
	w_destroy(&w);
}
END_TEST
#else
START_TEST(test_chan_data_path_does_not_allocate)
{
}
END_TEST
#endif

W_MAIN("chan_stream", test_chan_keeps_order_over_an_unordered_link, test_chan_wraps_the_smallest_window,
       test_chan_carries_messages_larger_than_the_window_both_ways, test_chan_carries_5_mib,
       test_chan_view_reads_in_place, test_chan_views_and_landings_mix,
       test_chan_grants_land_in_registered_memory, test_chan_grant_frees_a_sender_that_has_used_up_its_window,
       test_chan_registered_sources_are_kept_until_released, test_chan_numbers_wrap,
       test_chan_sender_stops_at_the_credit, test_chan_credits_are_not_per_message,
       test_chan_one_small_message_is_one_frame_sent_at_once,
       test_chan_too_long_message_is_a_mismatch_and_the_next_is_whole,
       test_chan_memory_in_use_cannot_be_deregistered, test_chan_long_transfer_does_not_starve_others,
       test_chan_queue_is_bounded, test_chan_data_path_does_not_allocate)
