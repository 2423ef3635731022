/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that must not be. A peer has proved that it belongs to the job, so it may spoil its own channels,
 * but nothing that it says may write outside a window, crash, or hold memory after the channels are closed.
 */
#include "chan_world.h"

static struct world w;
#define NX 12

struct user {
	struct chan *c;
	struct xfer s[NX], r[NX];
	uint8_t *buf;
	bool posted[NX];
};

static struct link_frame lie(int node)
{
	static const uint8_t kinds[] = { CHAN_DATA,   CHAN_DATA,   CHAN_DATA,   CHAN_OPEN,
					 CHAN_ACCEPT, CHAN_CREDIT, CHAN_GRANT,  CHAN_STOP,
					 CHAN_FIN,    CHAN_GONE,   CHAN_NOTICE, CHAN_KIND_END };
	struct link_frame f = {
		.kind = kinds[w_rand(&w, sizeof(kinds))],
		.label = (uint16_t)(w_rand(&w, 4) + (w_rand(&w, 8) == 0 ? w_rand(&w, 65536) : 0)),
		.flags = (uint8_t)w_rand(&w, 5),
		.msg = (uint32_t)w_rand(&w, 12),
		.fno = (uint32_t)w_rand(&w, 40),
		.len = (uint32_t)w_rand(&w, w_rand(&w, 3) ? 5000 : 64),
		.off = w_rand(&w, 3) ? w_rand(&w, 300) * 64 : w_rand(&w, 0) ^ ~0ull,
		.tag = w_rand(&w, 3) ? w_rand(&w, 3) | w_rand(&w, 4) << 16 : w_rand(&w, 100000),
	};
	(void)node;
	if (f.kind != CHAN_DATA)
		f.len = 0;
	if (w_rand(&w, 30) == 0)
		f.off = f.tag = ~0ull;
	if (w_rand(&w, 30) == 0)
		f.fno = f.msg = ~0u;
	return f;
}

START_TEST(test_chan_lies_do_no_harm)
{
	uint64_t caught = 0;
	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct user u[4] = { 0 };
		static const int at[4] = { 0, 1, 0, 2 };
		w_create(&w, 3, true, seed);
		w.hostile = true;
		w_open(&w, 0, 1, LINK_NEXT, 1, 16384, &u[0].c, &u[1].c);
		w_open(&w, 0, 2, LINK_NEXT, 2, 16384, &u[2].c, &u[3].c);
		for (int i = 0; i < 4; i++) {
			struct tick t = w_tick(&w);
			u[i].buf = calloc(NX, 40000);
			if (seed % 2)
				ck_assert_int_eq(chan_net_register(w.net[at[i]], &t, u[i].buf, NX * 40000),
						 SIRCL_SUCCESS);
			for (int m = 0; m < NX; m++) {
				uint8_t *b = u[i].buf + (size_t)m * 40000;
				W_OK(chan_send(u[i].c, &t, b, w_rand(&w, 40000), 0, &u[i].s[m]));
				W_OK(m % 4 == 3 ? chan_recv_view(u[i].c, &t, 40000, &u[i].r[m])
						: chan_recv(u[i].c, &t, b, 40000, &u[i].r[m]));
			}
		}
		for (int k = 0; k < 400; k++) {
			w_step(&w);
			if (k > 20 && w_rand(&w, 10) == 0) {
				int node = (int)w_rand(&w, 3), s = (int)w_rand(&w, 2);
				struct link_frame f = lie(node);
				struct tick t = w_tick(&w);
				chan_net_link_ops()->deliver(w.net[node], &w.link[node][s], &t, &f);
			}
			for (int i = 0; i < 4; i++)
				for (int m = 3; m < NX; m += 4) {
					struct tick t = w_tick(&w);
					const void *p;
					size_t n = chan_view(u[i].c, &u[i].r[m], &p);
					if (n) {
						/* what may be read lies in the window */
						const uint8_t *base = u[i].c->rx.base;
						W_OK((const uint8_t *)p >= base &&
						     (const uint8_t *)p + n <= base + 16384);
						chan_consume(u[i].c, &t, &u[i].r[m], n);
					}
				}
		}
		for (int i = 0; i < 4; i++) {
			struct tick t = w_tick(&w);
			chan_close(u[i].c, &t);
		}
		for (int k = 0; k < 200; k++)
			w_step(&w);
		/* a lie may keep an end waiting for frames that do not exist; the end of the link ends that
		 * too */
		for (int i = 0; i < 3; i++)
			w_kill(&w, i, LINK_NEXT);
		for (int k = 0; k < 3; k++)
			w_step(&w);
		for (int i = 0; i < 4; i++)
			for (int m = 0; m < NX; m++) {
				W_OK(u[i].s[m].finished || u[i].s[m].err);
				W_OK(u[i].r[m].finished || u[i].r[m].err);
			}
		for (int i = 0; i < 3; i++) {
			struct chan_net_stats st;
			chan_net_stats(w.net[i], &st);
			caught += w.net[i]->protocol_errors;
			ck_assert_int_eq(st.channels + st.relays, 0);
			ck_assert_uint_eq(st.relay_bytes, 0);
			for (int s = 0; s < LINK_SIDES; s++)
				ck_assert_uint_eq(arena_used(w.link[i][s].arena), 0);
		}
		w_destroy(&w);
		for (int i = 0; i < 4; i++)
			free(u[i].buf);
	}
	ck_assert_uint_gt(caught, 2000);
}
END_TEST

START_TEST(test_chan_bad_frame_ends_its_channel_by_name_and_no_other)
{
	struct chan *a, *b, *c, *d;
	struct xfer r, s;
	uint8_t buf[64] = { 0 };
	w_create(&w, 2, true, 1);
	w_open(&w, 0, 1, LINK_NEXT, 1, 16384, &a, &b);
	w_open(&w, 0, 1, LINK_NEXT, 2, 16384, &c, &d);
	for (int k = 0; k < 300; k++)
		w_step(&w);
	struct tick t = w_tick(&w);
	ck_assert(chan_recv(b, &t, buf, 64, &r));
	struct link_frame f = { .kind = CHAN_DATA, .label = a->tx.label, .fno = 0, .len = 100000, .off = 0 };
	chan_net_link_ops()->deliver(w.net[1], &w.link[1][LINK_PREV], &t, &f);
	ck_assert_int_eq(chan_error(b)->code, SIRCL_INTERNAL_ERROR);
	for (int k = 0; k < 300; k++)
		w_step(&w);
	ck_assert_int_eq(r.err, SIRCL_INTERNAL_ERROR);
	ck_assert_ptr_nonnull(strstr(chan_error(a)->msg, "rank 1 has read a frame that must not be"));
	t = w_tick(&w);
	ck_assert(chan_recv(d, &t, buf, 64, &r) && chan_send(c, &t, buf, 64, 0, &s));
	for (int k = 0; k < 300; k++)
		w_step(&w);
	ck_assert(r.finished && s.finished);
	w_destroy(&w);
}
END_TEST

/* What is in the window may be read in place; a frame that says it is elsewhere, or of the message behind,
 * may not. */
START_TEST(test_chan_view_stays_in_its_window_and_its_message)
{
	for (int kind = 0; kind < 2; kind++) {
		struct chan *a, *b;
		struct xfer r;
		const void *p;
		size_t n;
		w_create(&w, 2, true, 1);
		w_open(&w, 0, 1, LINK_NEXT, 1, 16384, &a, &b);
		for (int k = 0; k < 300; k++)
			w_step(&w);
		struct tick t = w_tick(&w);
		ck_assert(chan_recv_view(b, &t, 1u << 30, &r));
		/* both are here before the first is looked at: the one behind comes first */
		struct link_frame f = { .kind = CHAN_DATA,
					.label = a->tx.label,
					.flags = CHAN_LAST | (kind ? 0 : CHAN_DIRECT),
					.fno = 1,
					.msg = kind ? 1 : 0,
					.len = kind ? 64 : 1u << 29,
					.off = kind ? 64 : 8192 };
		chan_net_link_ops()->deliver(w.net[1], &w.link[1][LINK_PREV], &t, &f);
		f = (struct link_frame){ .kind = CHAN_DATA, .label = a->tx.label, .fno = 0, .len = 64 };
		chan_net_link_ops()->deliver(w.net[1], &w.link[1][LINK_PREV], &t, &f);
		for (int k = 0; k < 3; k++)
			while ((n = chan_view(b, &r, &p)) > 0) {
				const uint8_t *base = b->rx.base;
				ck_assert((const uint8_t *)p >= base && n <= 16384 &&
					  (const uint8_t *)p + n <= base + 16384);
				chan_consume(b, &t, &r, n);
			}
		ck_assert_int_eq(chan_error(b)->code, SIRCL_INTERNAL_ERROR);
		ck_assert(!r.finished && r.err == SIRCL_INTERNAL_ERROR);
		w_destroy(&w);
	}
}
END_TEST

/* News is believed of ranks that exist, of kinds and results that exist. */
START_TEST(test_chan_notice_about_nobody_is_not_told)
{
	static const struct link_frame bad[] = {
		{ .flags = NOTICE_DEAD, .label = 3, .fno = SIRCL_REMOTE_ERROR },
		{ .flags = NOTICE_DEAD, .tag = 3, .fno = SIRCL_REMOTE_ERROR },
		{ .flags = NOTICE_DEAD, .tag = 65535, .fno = SIRCL_REMOTE_ERROR },
		{ .flags = 0, .fno = SIRCL_REMOTE_ERROR },
		{ .flags = 3, .fno = SIRCL_REMOTE_ERROR },
		{ .flags = NOTICE_ABORT, .fno = SIRCL_SUCCESS },
		{ .flags = NOTICE_ABORT, .fno = SIRCL_IN_PROGRESS },
		{ .flags = NOTICE_ABORT, .fno = ~0u },
	};
	w_create(&w, 3, true, 1);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tick t = w_tick(&w);
		struct link_frame f = bad[i];
		f.kind = CHAN_NOTICE;
		f.msg = (uint32_t)i + 1;
		chan_net_link_ops()->deliver(w.net[1], &w.link[1][LINK_PREV], &t, &f);
	}
	for (int k = 0; k < 100; k++)
		w_step(&w);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(w.nheard[i], 0);
	ck_assert_uint_eq(w.net[1]->protocol_errors, sizeof(bad) / sizeof(bad[0]));
	w_destroy(&w);
}
END_TEST

/* Where the window lies is the peer's word; it must lie in what the peer has given. */
START_TEST(test_chan_window_outside_the_peers_memory_is_refused)
{
	for (int kind = 0; kind < 4; kind++) {
		struct chan *a;
		struct chan_cfg cfg = { .id = 1, .peer = 1, .via = LINK_NEXT, .window = 16384 };
		w_create(&w, 2, true, 1);
		struct tick t = w_tick(&w);
		ck_assert_int_eq(chan_open(w.net[0], &t, &cfg, &a), SIRCL_SUCCESS);
		uint64_t len = link_peer_arena(&w.link[0][LINK_NEXT]);
		const uint64_t off[] = { len - 16384 + 64, len, ~0ull - 63, len - 16384 };
		struct link_frame f = { .kind = CHAN_ACCEPT,
					.label = a->tx.label,
					.msg = 16,
					.fno = 4096,
					.off = off[kind],
					.tag = 16384 };
		chan_net_link_ops()->deliver(w.net[0], &w.link[0][LINK_NEXT], &t, &f);
		if (kind == 3)
			ck_assert_int_eq(a->tx.state, TX_OPEN);
		else
			ck_assert_int_eq(chan_error(a)->code, SIRCL_INTERNAL_ERROR);
		w_destroy(&w);
	}
}
END_TEST

W_MAIN("chan_hostile", test_chan_lies_do_no_harm, test_chan_bad_frame_ends_its_channel_by_name_and_no_other,
       test_chan_view_stays_in_its_window_and_its_message, test_chan_notice_about_nobody_is_not_told,
       test_chan_window_outside_the_peers_memory_is_refused)
