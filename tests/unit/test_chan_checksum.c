/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIRCL_CHECKSUM: one bit of one frame's bytes turned round on its way, for every frame of a run and every
 * way that bytes can take (staged, viewed in the window, granted, relayed). Nothing of it may reach a user.
 */
#include "chan_world.h"

static struct world w;

enum way { STAGED, VIEWED, GRANTED, RELAYED, WAYS };
#define MSGS 6
#define BYTES 40000

struct run {
	struct chan *from, *to;
	uint8_t *src, *dst;
	struct xfer s[MSGS], r[MSGS];
	size_t seen[MSGS];
	int hops;
};

static void start(struct run *u, enum way way, int damage, bool checksum)
{
	struct tick t;

	w_create(&w, 3, true, (uint64_t)damage * WAYS + way + 1);
	for (int i = 0; i < 3; i++)
		w.net[i]->checksum = checksum;
	*u = (struct run){ .hops = way == RELAYED ? 2 : 1 };
	w_open(&w, 0, u->hops, LINK_NEXT, 7, 16384, &u->from, &u->to);
	for (int k = 0; k < 200; k++)
		w_step(&w);
	u->src = malloc(MSGS * BYTES);
	u->dst = calloc(MSGS, BYTES);
	for (size_t i = 0; i < MSGS * BYTES; i++)
		u->src[i] = flow_byte(9, 0, i);
	t = w_tick(&w);
	if (way == GRANTED)
		ck_assert_int_eq(chan_net_register(w.net[1], &t, u->dst, MSGS * BYTES), SIRCL_SUCCESS);
	for (int m = 0; m < MSGS; m++) {
		t = w_tick(&w);
		W_OK(way == VIEWED ? chan_recv_view(u->to, &t, BYTES, &u->r[m])
				   : chan_recv(u->to, &t, u->dst + (size_t)m * BYTES, BYTES, &u->r[m]));
	}
	for (int k = 0; k < 100; k++) /* the grants are there */
		w_step(&w);
	w.damage = damage;
	for (int m = 0; m < MSGS; m++) {
		t = w_tick(&w);
		W_OK(chan_send(u->from, &t, u->src + (size_t)m * BYTES, BYTES, 1, &u->s[m]));
	}
}

/* Every byte that a user is told of is right; false: one is not. */
static bool look(struct run *u, enum way way)
{
	for (int m = 0; m < MSGS; m++) {
		const uint8_t *want = u->src + (size_t)m * BYTES;
		struct tick t = w_tick(&w);
		const void *p;
		size_t n;

		while (way == VIEWED && (n = chan_view(u->to, &u->r[m], &p)) > 0) {
			if (memcmp(p, want + u->seen[m], n))
				return false;
			u->seen[m] += n;
			chan_consume(u->to, &t, &u->r[m], n);
		}
		if (way != VIEWED && memcmp(u->dst + (size_t)m * BYTES, want, u->r[m].done))
			return false;
	}
	return true;
}

static void finish(struct run *u)
{
	free(u->src);
	free(u->dst);
	w_destroy(&w);
}

static bool all_ended(const struct run *u)
{
	for (int m = 0; m < MSGS; m++)
		if (!u->r[m].finished && u->r[m].err == SIRCL_SUCCESS)
			return false;
	return true;
}

/* Runs until all has ended; false: a wrong byte was handed on. */
static bool run(struct run *u, enum way way)
{
	for (int k = 0; k < 20000 && !all_ended(u); k++) {
		w_step(&w);
		if (!look(u, way))
			return false;
	}
	ck_assert(all_ended(u));
	return true;
}

START_TEST(test_chan_checksum_keeps_damage_from_the_user)
{
	for (enum way way = STAGED; way < WAYS; way++) {
		int struck = 0;

		for (int damage = 1; damage < 60; damage++) {
			struct run u;
			const char *msg;

			start(&u, way, damage, true);
			ck_assert_msg(run(&u, way), "way %d, frame %d: a wrong byte was handed on", way,
				      damage);
			if (w.damage == 0) {
				struck++;
				for (int k = 0; k < 400; k++)
					w_step(&w);
				msg = chan_error(u.to)->msg;
				ck_assert_int_eq(chan_error(u.to)->code, SIRCL_SYSTEM_ERROR);
				ck_assert_int_eq(chan_error(u.from)->code, SIRCL_SYSTEM_ERROR);
				ck_assert_int_eq(u.r[MSGS - 1].err, SIRCL_SYSTEM_ERROR);
				ck_assert_msg(strstr(msg, "channel 7 from rank") &&
						      strstr(msg, "over lane 5") &&
						      strstr(msg, "SIRCL_CHECKSUM"),
					      "%s", msg);
				ck_assert_msg(strstr(msg, "what rank 1 got from rank 0") ||
						      (way == RELAYED &&
						       strstr(msg, "what rank 2 got from rank 1")),
					      "%s", msg);
			} else {
				ck_assert_int_eq(u.r[MSGS - 1].err, SIRCL_SUCCESS);
			}
			finish(&u);
		}
		/* the test has struck, and reached the end of the run too */
		ck_assert_int_gt(struck, way == GRANTED ? 4 : 30);
	}
}
END_TEST

/* That it is the checksum which does it. */
START_TEST(test_chan_damage_passes_without_checksum)
{
	for (enum way way = STAGED; way < WAYS; way++) {
		struct run u;

		start(&u, way, 3, false);
		ck_assert(!run(&u, way));
		finish(&u);
	}
}
END_TEST

/* Window positions pass 2^32 with the high half of the field taken. */
START_TEST(test_chan_checksum_works_beyond_positions_of_32_bits)
{
	struct run u;

	start(&u, STAGED, 0, true);
	ck_assert(run(&u, STAGED));
	for (int k = 0; k < 400; k++) /* no credit is under way */
		w_step(&w);
	u.from->tx.pos += 1ull << 32;
	u.from->tx.limit += 1ull << 32;
	u.to->rx.next_pos += 1ull << 32;
	u.to->rx.freed_pos += 1ull << 32;
	u.to->rx.told_pos += 1ull << 32;
	memset(u.dst, 0, MSGS * BYTES);
	for (int m = 0; m < MSGS; m++) {
		struct tick t = w_tick(&w);

		W_OK(chan_recv(u.to, &t, u.dst + (size_t)m * BYTES, BYTES, &u.r[m]));
		W_OK(chan_send(u.from, &t, u.src + (size_t)m * BYTES, BYTES, 1, &u.s[m]));
	}
	ck_assert(run(&u, STAGED));
	ck_assert_mem_eq(u.src, u.dst, MSGS * BYTES);
	finish(&u);
}
END_TEST

W_MAIN("chan_checksum", test_chan_checksum_keeps_damage_from_the_user,
       test_chan_damage_passes_without_checksum, test_chan_checksum_works_beyond_positions_of_32_bits)
