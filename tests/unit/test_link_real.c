/* SPDX-License-Identifier: Apache-2.0 */
/* A link on the lanes of life: shm and tcp over loopback, in one process and between two. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "link_pair.h"

static struct key_ring keys;
static char lab[32];

static void make_keys(void)
{
	const char *tag = getenv("SIRCL_LAB");

	if (tag && *tag)
		snprintf(lab, sizeof(lab), "%.16s-link", tag);
	else
		snprintf(lab, sizeof(lab), "%d", (int)getpid());
	ck_assert_msg(key_ring_init(&keys) == SIRCL_SUCCESS, "%s", error_last()->msg);
	ck_assert_int_eq(key_ring_add(&keys, KEY_FILE, "a secret of this test", 21), SIRCL_SUCCESS);
}

static void open_ends(struct pair *p, const struct lane_ops *ops, int nlanes, uint32_t window, int only)
{
	void *provider[LANES_MAX] = { NULL };

	p->keys = &keys;
	p->lab = lab;
	p->now = lane_clock_real(NULL);
	for (int e = 0; e < 2; e++)
		if (only < 0 || only == e)
			pair_open(p, e, nlanes, ops, provider, window);
}

static void step(struct pair *p)
{
	for (int e = 0; e < 2; e++) {
		struct tick t = { .now = lane_clock_real(NULL) };

		p->now = t.now;
		link_progress(p->end[e].link, &t);
		pair_send(&p->end[e], &t);
	}
}

static void finish(struct pair *p, const char *name, int nlanes)
{
	uint64_t limit = lane_clock_real(NULL) + 20 * SEC;

	while (!pair_done(p) && !p->fail && p->now < limit)
		step(p);
	if (p->fail || !pair_done(p))
		ck_abort_msg("%s, %d lanes: %s; A sent %u got %u released %u/%u (%s), B sent %u got %u "
			     "released %u/%u "
			     "(%s)",
			     name, nlanes, p->fail ? p->fail : "not finished", p->end[0].sent, p->end[0].got,
			     p->end[0].released, p->end[0].posted, link_error(p->end[0].link)->msg,
			     p->end[1].sent, p->end[1].got, p->end[1].released, p->end[1].posted,
			     link_error(p->end[1].link)->msg);
	pair_check(p);
}

static void up(struct pair *p)
{
	uint64_t limit = lane_clock_real(NULL) + 10 * SEC;

	pair_connect(p);
	while (link_state(p->end[0].link) != LINK_UP || link_state(p->end[1].link) != LINK_UP) {
		step(p);
		must(p->now < limit, "lanes come up");
	}
}

static const struct lane_ops *const providers[] = { &lane_shm_ops, &lane_tcp_ops };

START_TEST(test_link_real_lanes_deliver_once)
{
	const struct lane_ops *ops = providers[_i];

	make_keys();
	for (int nlanes = 1; nlanes <= 4; nlanes *= 2) {
		struct pair p = { .now = 0 };

		open_ends(&p, ops, nlanes, 64, -1);
		up(&p);
		for (int e = 0; e < 2; e++) {
			p.end[e].goal = 5000;
			p.end[e].len = 700;
			p.end[e].ack_soon = e;
		}
		finish(&p, ops->name, nlanes);
		for (int e = 0; e < 2; e++) {
			struct link_stats s;

			link_stats(p.end[e].link, &s);
			ck_assert_uint_eq(s.duplicates_refused, 0);
			ck_assert_uint_eq(s.fences, 0);
			ck_assert_uint_eq(s.frames_sent, 5000);
			ck_assert_uint_eq(s.bytes_received, 5000ull * 700);
		}
		pair_close(&p);
	}
}
END_TEST

START_TEST(test_link_real_region_is_reached)
{
	const struct lane_ops *ops = providers[_i];
	struct pair p = { .now = 0 };
	static uint8_t far[1 << 17], near[1 << 17];
	const struct link_mem *m;
	struct tick t;
	uint64_t limit;
	struct link_put put = {
		.frame = { .label = 77, .kind = LINK_KIND_USER + 3, .flags = 9, .msg = ~0u, .off = 5 },
		.src = near,
		.dst_off = 4096
	};

	make_keys();
	open_ends(&p, ops, 2, 64, -1);
	up(&p);
	t = (struct tick){ .now = p.now };
	ck_assert_int_eq(link_region_add(p.end[1].link, &t, far, sizeof(far), &m), SIRCL_SUCCESS);
	limit = p.now + 5 * SEC;
	while (!p.end[0].regions && p.now < limit)
		step(&p);
	ck_assert_int_eq(p.end[0].regions, 1);
	for (size_t i = 0; i < sizeof(near); i++)
		near[i] = (uint8_t)(i * 31 + i / 256);
	put.region = link_mem_region(m);
	put.frame.len = 100000;
	p.end[1].seen[0] = 0;
	t.now = p.now;
	while (link_put(p.end[0].link, &t, &put) == LINK_PUT_NO)
		step(&p);
	for (uint64_t until = p.now + 5 * SEC; !p.end[1].got && p.now < until;)
		step(&p);
	ck_assert_mem_eq(far + 4096, near, 100000);
	for (int i = 0; i < 4096; i++)
		must(far[i] == 0, "nothing before");
	pair_close(&p);
}
END_TEST

/* A peer of the job that goes wrong: what its lane puts into memory that this link only sends from is
 * refused, the lane is lost and comes back. Small puts: shm's large ones are the kernel's to allow. */
START_TEST(test_link_real_peer_cannot_write_what_is_not_exported)
{
	const struct lane_ops *ops = providers[_i];
	static uint8_t source[8192];
	const struct link_mem *m;
	struct pair p = { .now = 0 };

	make_keys();
	open_ends(&p, ops, 2, 64, -1);
	up(&p);
	ck_assert_int_eq(link_source_add(p.end[1].link, source, sizeof(source), &m), SIRCL_SUCCESS);
	for (int k = 0; k < 2; k++) {
		struct link *victim = p.end[1].link, *peer = p.end[0].link;
		uint8_t *mem = k ? source : arena_base(victim->send_arena);
		size_t len = k ? sizeof(source) : arena_size(victim->send_arena);
		const uint8_t *at = mem + len - 512;
		struct lane_export guess = { .addr = (uintptr_t)mem, .len = len, .key = k ? m->id : 1 };
		struct lane_put put = { .src = arena_base(peer->send_arena),
					.len = 512,
					.smem = &peer->region[1].lm[k],
					.dst = &guess,
					.dst_off = len - 512 };
		struct link_stats before, after;
		uint64_t limit = p.now + 5 * SEC;
		struct tick t = { .now = p.now };

		memset(arena_base(peer->send_arena), 0x77, 512);
		link_stats(victim, &before);
		for (int i = 0; i < 512; i++)
			must(at[i] != 0x77, "it is not there before");
		ck_assert_int_eq(ops->put(peer->lane[k].lane, &t, &put, 1), 1);
		do {
			step(&p);
			link_stats(victim, &after);
			must(p.now < limit, "the lane is fenced");
		} while (after.fences == before.fences);
		for (int i = 0; i < 512; i++)
			must(at[i] != 0x77, "nothing was written");
		limit = p.now + 5 * SEC;
		while (link_state(peer) != LINK_UP || link_state(victim) != LINK_UP) {
			step(&p);
			must(p.now < limit, "the lane comes back");
		}
	}
	pair_close(&p);
}
END_TEST

/* Whatever its application does: a peer that is driven now and then answers, with heartbeats or without. */
START_TEST(test_link_real_living_peer_is_heard_and_a_stopped_one_is_not)
{
	const struct lane_ops *ops = providers[_i];
	struct link_watch w = { .begun = false };
	struct pair p = { .now = 0 };
	struct tick t;
	int passes = 0;

	make_keys();
	open_ends(&p, ops, 2, 64, -1);
	up(&p);
	for (int look = 0; look < 24; look++) {
		for (uint64_t until = p.now + 30 * MSEC; p.now < until;) {
			if (look < 12) {
				step(&p);
				continue;
			}
			p.now = lane_clock_real(NULL);
			t = (struct tick){ .now = p.now };
			link_progress(p.end[0].link, &t);
		}
		t = (struct tick){ .now = p.now };
		link_look(p.end[0].link, &t, &w);
		if (look < 12)
			must(!link_is_deaf(&w, p.now, 30 * MSEC), "it is heard while it lives");
		must(!link_is_stuck(&w, p.now, 0), "nothing was sent");
	}
	must(link_is_deaf(&w, p.now, 200 * MSEC), "it is not heard when it is stopped");
	/* and our own stop is no silence of the peer */
	for (uint64_t until = p.now + 100 * MSEC; p.now < until || passes < 100; passes++)
		step(&p);
	link_look(p.end[0].link, &t, &w);
	must(!link_is_deaf(&w, p.now, 0), "it is heard again");
	t = (struct tick){ .now = p.now + 3600 * SEC };
	link_look(p.end[0].link, &t, &w);
	must(!link_is_deaf(&w, t.now, SEC), "one look in vain after a long gap");
	pair_close(&p);
}
END_TEST

START_TEST(test_link_real_goodbye)
{
	const struct lane_ops *ops = providers[_i];
	struct pair p = { .now = 0 };
	struct tick t;
	uint64_t limit;

	make_keys();
	open_ends(&p, ops, 2, 64, -1);
	up(&p);
	p.end[0].goal = 50;
	finish(&p, ops->name, 2);
	t = (struct tick){ .now = p.now };
	limit = p.now + 5 * SEC;
	for (int e = 0; e < 2; e++)
		link_bye(p.end[e].link, &t);
	while (!link_closed(p.end[0].link) || !link_closed(p.end[1].link)) {
		step(&p);
		must(p.now < limit, "both know in time");
	}
	ck_assert_int_eq(p.end[0].dead + p.end[1].dead, 0);
	pair_close(&p);
}
END_TEST

/* tcp: an end that fences a lane by itself: it comes back, nothing is lost. */
START_TEST(test_link_real_lane_is_replaced)
{
	struct pair p = { .now = 0 };
	struct link_stats s;

	make_keys();
	open_ends(&p, &lane_tcp_ops, 2, 64, -1);
	up(&p);
	for (int k = 0; k < 12; k++) {
		struct tick t;
		struct link *l = p.end[k & 1].link;
		uint64_t until = p.now + 5 * SEC;

		p.end[0].goal = p.end[1].goal = 200 * (uint32_t)(k + 1);
		for (int i = 0; i < 5; i++)
			step(&p);
		while (l->lane[k / 2 & 1].phase != LL_UP) {
			step(&p);
			must(p.now < until, "the lane comes up again");
		}
		t = (struct tick){ .now = p.now };
		lane_suspect(l, k / 2 & 1, &t, "for the test");
		finish(&p, "tcp", 2);
	}
	link_stats(p.end[0].link, &s);
	ck_assert_uint_ge(s.fences, 6);
	for (uint64_t until = p.now + 3 * SEC; p.now < until && link_state(p.end[0].link) != LINK_UP;)
		step(&p);
	ck_assert_int_eq(link_state(p.end[0].link), LINK_UP);
	pair_close(&p);
}
END_TEST

/* Two processes; one is killed in mid-transfer: the other knows within a second and says who. */
static void killed(const struct lane_ops *ops, int victim)
{
	struct pair p = { .now = 0 };
	struct link_addr mine, theirs;
	int ab[2][2], me, alive = !victim;
	uint64_t t0, took = 0;
	struct tick t;
	pid_t child;

	make_keys();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pipe(ab[i]), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	me = child ? alive : victim;
	open_ends(&p, ops, 2, 64, me);
	link_local_addr(p.end[me].link, &mine);
	if (write(ab[me][1], &mine, sizeof(mine)) != sizeof(mine) ||
	    read(ab[!me][0], &theirs, sizeof(theirs)) != sizeof(theirs))
		abort();
	t = (struct tick){ .now = lane_clock_real(NULL) };
	if (link_connect(p.end[me].link, &t, &theirs) != SIRCL_SUCCESS)
		abort();
	t0 = t.now;
	while (child ? !p.end[me].got || t.now < t0 + 100 * MSEC : t.now < t0 + 20 * SEC) {
		struct link_put put = {
			.frame = { .kind = LINK_KIND_USER + 3, .label = 77, .flags = 9, .msg = ~0u, .off = 5 }
		};

		t = (struct tick){ .now = lane_clock_real(NULL) };
		link_progress(p.end[me].link, &t);
		memset(p.end[me].seen, 0, 1);
		link_put(p.end[me].link, &t, &put);
		must(t.now < t0 + 20 * SEC, "something arrives");
	}
	if (!child)
		_exit(1);
	kill(child, SIGKILL);
	t0 = lane_clock_real(NULL);
	for (uint64_t last = t0; !p.end[me].dead && t.now < t0 + 10 * SEC; last = t.now) {
		t = (struct tick){ .now = lane_clock_real(NULL) };
		link_progress(p.end[me].link, &t);
		/* a pause of this process, which a busy machine may make, counts a little */
		took += t.now - last < 10 * MSEC ? t.now - last : 10 * MSEC;
	}
	ck_assert_int_eq(p.end[me].dead, 1);
	ck_assert_msg(took < SEC, "known after %llu ms", (unsigned long long)(took / MSEC));
	ck_assert_ptr_nonnull(strstr(link_error(p.end[me].link)->msg,
				     victim ? "of rank 1 has ended" : "of rank 0 has ended"));
	waitpid(child, NULL, 0);
	pair_close_end(&p.end[me]);
	free(p.fail);
	for (int i = 0; i < 4; i++)
		close(ab[i / 2][i % 2]);
}

START_TEST(test_link_real_killed_process_is_known_in_a_second)
{
	killed(providers[_i / 2], _i % 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_real");
	TCase *c = tcase_create("link_real");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_link_real_lanes_deliver_once, 0, 2);
	tcase_add_loop_test(c, test_link_real_region_is_reached, 0, 2);
	tcase_add_loop_test(c, test_link_real_peer_cannot_write_what_is_not_exported, 0, 2);
	tcase_add_loop_test(c, test_link_real_living_peer_is_heard_and_a_stopped_one_is_not, 0, 2);
	tcase_add_loop_test(c, test_link_real_goodbye, 0, 2);
	tcase_add_test(c, test_link_real_lane_is_replaced);
	tcase_add_loop_test(c, test_link_real_killed_process_is_known_in_a_second, 0, 4);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
