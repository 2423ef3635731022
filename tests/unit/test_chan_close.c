/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of channels at every moment: closed, broken, opened in any order. A transfer that has ended with an
 * error is never touched again: its buffer is filled with a pattern at that moment and must still have it at
 * the end.
 */
#include "chan_world.h"

static struct world w;
#define XFERS 24
struct end {
	struct chan *c;
	int node;
	bool closed;
	struct xfer s[XFERS], r[XFERS];
	uint8_t *sbuf, *rbuf; /* XFERS x SIZE */
	bool sended[XFERS], rended[XFERS];
};
#define SIZE 50000u

static void end_init(struct end *e, struct chan *c, int node, bool reg)
{
	*e = (struct end){ .c = c, .node = node, .sbuf = malloc(XFERS * SIZE), .rbuf = malloc(XFERS * SIZE) };
	struct tick t = w_tick(&w);
	memset(e->sbuf, 0x11, XFERS * SIZE);
	memset(e->rbuf, 0xee, XFERS * SIZE);
	if (reg) {
		ck_assert_int_eq(chan_net_register(w.net[node], &t, e->sbuf, XFERS * SIZE), SIRCL_SUCCESS);
		ck_assert_int_eq(chan_net_register(w.net[node], &t, e->rbuf, XFERS * SIZE), SIRCL_SUCCESS);
	}
	for (int i = 0; i < XFERS; i++) {
		W_OK(chan_send(c, &t, e->sbuf + (size_t)i * SIZE, i % 3 ? SIZE : 100, 0, &e->s[i]));
		if (i % 5 != 4)
			W_OK(chan_recv(c, &t, e->rbuf + (size_t)i * SIZE, SIZE, &e->r[i]));
		else
			W_OK(chan_recv_view(c, &t, SIZE, &e->r[i]));
	}
}

/* Notes ends, and takes the memory back at once. */
static void end_look(struct end *e)
{
	for (int i = 0; i < XFERS; i++) {
		struct tick t = w_tick(&w);
		const void *p;
		size_t n;
		while (!e->closed && i % 5 == 4 && (n = chan_view(e->c, &e->r[i], &p)) > 0)
			chan_consume(e->c, &t, &e->r[i], n);
		if (!e->rended[i] && e->r[i].err) {
			e->rended[i] = true;
			memset(e->rbuf + (size_t)i * SIZE, 0x77, SIZE);
		}
		if (!e->sended[i] && (e->s[i].err || e->s[i].finished)) {
			e->sended[i] = true;
			memset(e->sbuf + (size_t)i * SIZE, 0x99, SIZE);
		}
	}
}

static bool end_over(const struct end *e)
{
	for (int i = 0; i < XFERS; i++)
		if (!(e->s[i].err || e->s[i].finished) || !(e->r[i].err || e->r[i].finished))
			return false;
	return true;
}

static void end_check(const struct end *e)
{
	for (int i = 0; i < XFERS; i++) {
		const uint8_t *b = e->rbuf + (size_t)i * SIZE;
		uint64_t len = e->r[i].len;
		if (e->rended[i])
			for (size_t k = 0; k < SIZE; k++)
				W_OK(b[k] == 0x77);
		else if (e->r[i].finished && i % 5 != 4)
			for (size_t k = 0; k < len; k++)
				W_OK(b[k] ==
				     0x11); /* what the peer sent, before it scribbled over its source */
	}
}

static void end_free(struct end *e)
{
	free(e->sbuf);
	free(e->rbuf);
}

static void close_end(struct end *e)
{
	struct tick t = w_tick(&w);
	if (e->closed)
		return;
	end_look(e);
	chan_close(e->c, &t);
	e->closed = true;
}

static void all_gone(void)
{
	for (int i = 0; i < w.n; i++) {
		struct chan_net_stats st;
		chan_net_stats(w.net[i], &st);
		ck_assert_int_eq(st.channels, 0);
		ck_assert_int_eq(st.relays, 0);
		ck_assert_uint_eq(st.relay_bytes, 0);
		ck_assert_uint_eq(w.net[i]->protocol_errors, 0);
		for (int s = 0; s < LINK_SIDES; s++) {
			if (!w.link[i][s].arena || w.link[i][s].dead)
				continue;
			ck_assert_uint_eq(arena_used(w.link[i][s].arena), 0);
			ck_assert_uint_eq(w.net[i]->side[s].free_count, CHAN_LABELS);
			for (uint32_t k = 0; k < CHAN_LABELS; k++)
				W_OK(!w.net[i]->side[s].slot[k].used);
		}
	}
}

/* kill: link `kill` (its lower node) dies at step k; else end 0 closes at step k, end 1 some time after. */
static void run(int hops, uint64_t seed, int k_close, int kill, bool both, bool reg)
{
	struct end e[2];
	struct chan *a, *b;
	w_create(&w, hops + 2, true, seed);
	w_open(&w, 0, hops, LINK_NEXT, 3, 16384, &a, &b);
	end_init(&e[0], a, 0, reg);
	end_init(&e[1], b, hops, reg);
	int first = seed % 2;
	int gap = both ? 0 : 1500;
	bool over = false;
	for (int k = 0; k < 40000; k++) {
		if (kill >= 0 && k == k_close)
			w_kill(&w, kill, LINK_NEXT);
		if (kill < 0 && k == k_close)
			close_end(&e[first]);
		if (kill < 0 && k == k_close + gap)
			close_end(&e[!first]);
		w_step(&w);
		end_look(&e[0]);
		end_look(&e[1]);
		/* the other end hears of it by itself */
		over = end_over(&e[0]) && end_over(&e[1]);
		if (over && k > k_close && (kill >= 0 || k > k_close + gap))
			break;
		if (kill < 0 && !both && k == k_close + gap - 1)
			W_OK(over);
	}
	W_OK(over);
	for (int i = 0; i < 2; i++) {
		bool err = false;
		for (int x = 0; x < XFERS; x++) {
			sircl_result_t r = e[i].r[x].err ? e[i].r[x].err : e[i].s[x].err;
			err |= r != SIRCL_SUCCESS;
			if (r)
				W_OK(r == (kill < 0 && i == first ? SIRCL_ABORTED : SIRCL_REMOTE_ERROR) ||
				     (both && r == SIRCL_ABORTED));
		}
		if (err && kill >= 0)
			W_OK(chan_error(e[i].c)->code == SIRCL_REMOTE_ERROR);
	}
	close_end(&e[0]);
	close_end(&e[1]);
	for (int k = 0; k < 3000; k++)
		w_step(&w);
	W_OK(w_quiet(&w));
	end_check(&e[0]);
	end_check(&e[1]);
	all_gone();
	w_destroy(&w);
	end_free(&e[0]);
	end_free(&e[1]);
}

START_TEST(test_chan_close_at_every_moment_of_a_staged_run)
{
	for (int k = 0; k < 160; k += 3)
		run(1, (uint64_t)k, k, -1, k % 2, false);
}
END_TEST

START_TEST(test_chan_close_at_every_moment_of_a_granted_run)
{
	for (int k = 0; k < 160; k += 2)
		run(1, (uint64_t)k / 2, k, -1, k % 4 == 0, true);
}
END_TEST

START_TEST(test_chan_close_at_every_moment_of_a_relayed_run)
{
	for (int k = 0; k < 240; k += 4)
		run(2 + k % 3, (uint64_t)k / 4, k, -1, k % 8 == 0, k % 3 == 0);
}
END_TEST

START_TEST(test_chan_dead_link_at_every_moment_ends_all_by_name)
{
	for (int k = 0; k < 200; k += 2)
		run(1 + k / 2 % 3, (uint64_t)k, k, k / 2 % (1 + k / 2 % 3), false, k % 4 == 0);
}
END_TEST

START_TEST(test_chan_far_ends_name_the_broken_cable)
{
	struct chan *a, *b;
	struct xfer s, r;
	uint8_t buf[10] = { 0 };
	w_create(&w, 5, true, 1);
	w_open(&w, 0, 3, LINK_NEXT, 3, 16384, &a, &b);
	for (int k = 0; k < 500; k++)
		w_step(&w);
	ck_assert(chan_is_open(a) && chan_is_open(b));
	struct tick t = w_tick(&w);
	ck_assert(chan_recv(b, &t, buf, 10, &r) && chan_recv(a, &t, buf, 10, &s));
	w_kill(&w, 1, LINK_NEXT);
	for (int k = 0; k < 500; k++)
		w_step(&w);
	ck_assert_int_eq(r.err, SIRCL_REMOTE_ERROR);
	ck_assert_int_eq(s.err, SIRCL_REMOTE_ERROR);
	ck_assert_ptr_nonnull(strstr(chan_error(a)->msg, "rank 1 has lost its cable to rank 2"));
	ck_assert_ptr_nonnull(strstr(chan_error(b)->msg, "rank 2 has lost its cable to rank 1"));
	/* and a channel opened now is refused in the same words */
	struct chan *c;
	struct chan_cfg cfg = { .id = 4, .peer = 3, .via = LINK_NEXT, .window = 16384 };
	t = w_tick(&w);
	ck_assert_int_eq(chan_open(w.net[0], &t, &cfg, &c), SIRCL_SUCCESS);
	ck_assert(chan_send(c, &t, buf, 10, 0, &s));
	for (int k = 0; k < 500; k++)
		w_step(&w);
	ck_assert_int_eq(s.err, SIRCL_REMOTE_ERROR);
	ck_assert_ptr_nonnull(strstr(chan_error(c)->msg, "rank 1 has lost its cable to rank 2"));
	w_destroy(&w);
}
END_TEST

START_TEST(test_chan_own_dead_link_gives_the_links_sentence)
{
	struct chan *a, *b, *c;
	struct xfer r;
	w_create(&w, 3, true, 1);
	w_open(&w, 0, 1, LINK_NEXT, 3, 16384, &a, &b);
	struct tick t = w_tick(&w);
	ck_assert(chan_recv(a, &t, NULL, 0, &r));
	w_kill(&w, 0, LINK_NEXT);
	ck_assert_int_eq(r.err, SIRCL_REMOTE_ERROR);
	ck_assert_str_eq(chan_error(a)->msg, "cable of rank 0 is gone");
	ck_assert(chan_recv(a, &t, NULL, 0, &r));
	ck_assert_int_eq(r.err, SIRCL_REMOTE_ERROR);
	ck_assert(chan_send(a, &t, NULL, 0, 0, &r));
	ck_assert_int_eq(r.err, SIRCL_REMOTE_ERROR);
	struct chan_cfg cfg = { .id = 4, .peer = 1, .via = LINK_NEXT, .window = 16384 };
	ck_assert_int_eq(chan_open(w.net[0], &t, &cfg, &c), SIRCL_REMOTE_ERROR);
	ck_assert_str_eq(error_last()->msg, "cable of rank 0 is gone");
	w_destroy(&w);
}
END_TEST

START_TEST(test_chan_peer_receives_what_was_sent_before_the_close)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct chan *a, *b;
		struct xfer s[4], r[5];
		static uint8_t src[4][3000], dst[5][3000];
		int hops = 1 + (int)(seed % 3);
		w_create(&w, 5, true, seed);
		w_open(&w, 0, hops, LINK_NEXT, 3, 16384, &a, &b);
		for (int k = 0; k < 300; k++)
			w_step(&w);
		struct tick t = w_tick(&w);
		for (int i = 0; i < 4; i++) {
			memset(src[i], i + 1, 3000);
			ck_assert(chan_send(a, &t, src[i], 3000, 0, &s[i]));
		}
		while (!s[3].finished)
			w_step(&w);
		t = w_tick(&w);
		chan_close(a, &t);
		if (seed % 2) {
			/* even if the link is lost afterwards, when it is all there */
			for (int k = 0; k < 300; k++)
				w_step(&w);
			w_kill(&w, 0, LINK_NEXT);
			if (hops > 1)
				w_kill(&w, hops - 1, LINK_NEXT);
		}
		for (int i = 0; i < 5; i++) {
			t = w_tick(&w);
			ck_assert(chan_recv(b, &t, dst[i], 3000, &r[i]));
		}
		for (int k = 0; k < 500; k++)
			w_step(&w);
		for (int i = 0; i < 4; i++) {
			ck_assert(r[i].finished);
			ck_assert_int_eq(memcmp(dst[i], src[i], 3000), 0);
		}
		ck_assert_int_eq(r[4].err, SIRCL_REMOTE_ERROR);
		if (seed % 2 == 0)
			ck_assert_ptr_nonnull(strstr(chan_error(b)->msg, "rank 0 has closed it"));
		w_destroy(&w);
	}
}
END_TEST

START_TEST(test_chan_ends_meet_in_any_order)
{
	/* three channels, each opened and closed by both ends at any time, also before the other has opened
	 * it */
	for (uint64_t seed = 1; seed <= 300; seed++) {
		int hops = 1 + (int)(seed % 3), next[2] = { 0, 0 };
		struct chan *c[2] = { NULL, NULL };
		struct xfer s[2][3] = { 0 }, r[2][3] = { 0 };
		static uint8_t what[2][3], got[2][3];
		int at[2] = { 0, 0 };
		w_create(&w, 5, true, seed);
		for (int k = 0; k < 4000 && (next[0] < 3 || next[1] < 3 || c[0] || c[1]); k++) {
			w_step(&w);
			for (int i = 0; i < 2; i++) {
				struct tick t = w_tick(&w);
				struct chan_cfg cfg = { .id = (uint32_t)next[i],
							.peer = (uint16_t)(i ? 0 : hops),
							.via = i ? LINK_PREV : LINK_NEXT,
							.window = 8192 };
				if (!c[i] && next[i] < 3 && w_rand(&w, 20) == 0) {
					int m = next[i]++;
					at[i] = k;
					W_OK(chan_open(w.net[i ? hops : 0], &t, &cfg, &c[i]) ==
					     SIRCL_SUCCESS);
					what[i][m] = (uint8_t)(m + 1);
					W_OK(chan_send(c[i], &t, &what[i][m], 1, (uint64_t)m, &s[i][m]));
					W_OK(chan_recv(c[i], &t, &got[i][m], 1, &r[i][m]));
				} else if (c[i]) {
					int m = next[i] - 1;
					bool heard = r[i][m].finished || r[i][m].err;
					if (r[i][m].finished)
						W_OK(got[i][m] == m + 1);
					/* an impatient user closes before anything happens */
					if (heard || (k - at[i] < 5 && w_rand(&w, 50) == 0)) {
						chan_close(c[i], &t);
						c[i] = NULL;
					}
				}
			}
		}
		W_OK(next[0] == 3 && next[1] == 3 && !c[0] && !c[1]);
		for (int k = 0; k < 500; k++)
			w_step(&w);
		all_gone();
		w_destroy(&w);
	}
}
END_TEST

START_TEST(test_chan_opened_after_the_peer_has_closed_ends_at_once)
{
	struct chan *a, *b;
	struct xfer r;
	w_create(&w, 3, true, 1);
	struct tick t = w_tick(&w);
	struct chan_cfg ca = { .id = 1, .peer = 2, .via = LINK_NEXT, .window = 4096 };
	struct chan_cfg cb = { .id = 1, .peer = 0, .via = LINK_PREV, .window = 4096 };
	ck_assert_int_eq(chan_open(w.net[0], &t, &ca, &a), SIRCL_SUCCESS);
	chan_close(a, &t);
	for (int k = 0; k < 500; k++)
		w_step(&w);
	t = w_tick(&w);
	ck_assert_int_eq(chan_open(w.net[2], &t, &cb, &b), SIRCL_SUCCESS);
	ck_assert(chan_recv(b, &t, NULL, 0, &r));
	ck_assert_int_eq(r.err, SIRCL_REMOTE_ERROR);
	ck_assert_ptr_nonnull(strstr(chan_error(b)->msg, "rank 0 has closed it"));
	chan_close(b, &t);
	for (int k = 0; k < 500; k++)
		w_step(&w);
	all_gone();
	w_destroy(&w);
}
END_TEST

/*
 * The end of a node: it closes its channels once their partners have met, and says nothing any more from the
 * moment that no channel and no relay is left. Then nobody may still need an answer from it.
 */
START_TEST(test_chan_met_ends_close_without_an_answer_from_who_has_left)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct chan *c[5][2];
		int left = 0;
		w_create(&w, 5, true, seed);
		for (int i = 0; i < 5; i++)
			w_open(&w, i, (i + 2) % 5, LINK_NEXT, 7, 4096, &c[i][0], &c[(i + 2) % 5][1]);
		for (int k = 0; k < 2000; k++) {
			bool all = true;
			for (int i = 0; i < 5; i++)
				all &= chan_net_met(w.net[i]);
			if (all)
				break;
			w_step(&w);
		}
		for (int i = 0; i < 5; i++) {
			struct tick t = w_tick(&w);
			ck_assert(chan_net_met(w.net[i]));
			chan_close(c[i][0], &t);
			chan_close(c[i][1], &t);
			for (uint64_t k = w_rand(&w, 40); k; k--)
				w_step(&w);
		}
		for (int k = 0; k < 4000 && left < 5; k++) {
			w_step(&w);
			left = 0;
			for (int i = 0; i < 5; i++) {
				struct chan_net_stats st;
				chan_net_stats(w.net[i], &st);
				w.stopped[i] = !st.channels && !st.relays;
				left += w.stopped[i];
			}
		}
		ck_assert_msg(left == 5, "seed %llu: %d of 5 have left", (unsigned long long)seed, left);
		memset(w.stopped, 0, sizeof(w.stopped));
		for (int k = 0; k < 100; k++)
			w_step(&w);
		all_gone();
		w_destroy(&w);
	}
}
END_TEST

START_TEST(test_chan_labels_go_round)
{
	w_create(&w, 3, true, 1);
	for (int k = 0; k < 1500; k++) {
		struct chan *a, *b;
		struct tick t = w_tick(&w);
		w_open(&w, 0, 2, LINK_NEXT, (uint32_t)k, 4096, &a, &b);
		for (int i = 0; i < 3; i++)
			w_step(&w);
		t = w_tick(&w);
		chan_close(a, &t);
		chan_close(b, &t);
		w_step(&w);
	}
	for (int k = 0; k < 2000; k++)
		w_step(&w);
	all_gone();
	w_destroy(&w);
}
END_TEST

W_MAIN("chan_close", test_chan_close_at_every_moment_of_a_staged_run,
       test_chan_close_at_every_moment_of_a_granted_run, test_chan_close_at_every_moment_of_a_relayed_run,
       test_chan_dead_link_at_every_moment_ends_all_by_name, test_chan_far_ends_name_the_broken_cable,
       test_chan_own_dead_link_gives_the_links_sentence,
       test_chan_peer_receives_what_was_sent_before_the_close, test_chan_ends_meet_in_any_order,
       test_chan_opened_after_the_peer_has_closed_ends_at_once,
       test_chan_met_ends_close_without_an_answer_from_who_has_left, test_chan_labels_go_round)
