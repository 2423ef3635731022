/* SPDX-License-Identifier: Apache-2.0 */
/* lane/shm between two threads: bytes before notes, no wake is lost, ends in the middle of it. What TSan is
 * shown. */
#include <pthread.h>
#include "lane_harness.h"
#include "lane/shm_internal.h"

#if SHM_DIRECT
#define SLOWER 10 /* TSan */
#else
#define SLOWER 1
#endif

static struct shm_lane *inner(struct pair *p, int end)
{
	return (struct shm_lane *)(void *)p->e[end].l;
}

struct side {
	struct end *e;
	pthread_t thread;
	uint64_t rounds, got, timeouts;
	_Atomic(uint64_t) sleeps;
	struct side *sleeping; /* the other side, whose first sleep a burst waits for */
	uint64_t until; /* on a busy machine time ends a test, not the number of rounds */
	uint32_t random;
	bool sleeper, last; /* last: a note with w[1] set was seen */
};

static bool late(const struct side *s)
{
	return h_clock(NULL) >= s->until;
}

#define TLEN 3000

static void side_hook(struct end *e, const struct lane_event *ev)
{
	struct side *s = e->hook_arg;

	if (ev->ev != LANE_NOTE)
		return;
	ck_assert_uint_eq(ev->note.w[0], s->got);
	ck_assert(h_filled((uint8_t *)arena_base(e->arena) + (s->got % 2) * TLEN, TLEN, (uint32_t)s->got));
	s->last = ev->note.w[1] != 0;
	s->got++;
}

static void side_wait(struct side *s, uint64_t target)
{
	const struct lane_ops *ops = s->e->pair->ops;
	struct tick t = h_tick(s->e);
	int tries = 0;

	while (s->got < target && !s->last) {
		t = h_tick(s->e);
		h_poll(s->e, &t);
		if (s->got >= target || s->last)
			return;
		if (!s->sleeper) {
			sched_yield();
			continue;
		}
		/* a different number of polls before each sleep, so that the race is met at every place */
		if (tries++ < (int)(h_random(&s->random) % 8))
			continue;
		struct pollfd fds[16];
		int n = ops->arm(s->e->l, fds, 16);

		if (n < 0)
			continue;
		s->sleeps++;
		/* asleep although a note is there, for long: then no wake came. Else the other is only slow.
		 */
		if (poll(fds, (nfds_t)n, 2000) == 0 &&
		    shm_queue_ready(&inner(s->e->pair, s->e->index)->path) && poll(fds, (nfds_t)n, 2000) == 0)
			s->timeouts++;
	}
}

static void wait_asleep(struct side *s)
{
	for (int ms = 0; atomic_load(&s->sleeps) == 0 && ms < 20000; ms++)
		usleep(1000);
}

static void *ping_pong(void *arg)
{
	struct side *s = arg;
	struct end *e = s->e;
	const struct lane_ops *ops = e->pair->ops;
	uint64_t note[6] = { 0 };

	for (uint64_t i = 0; note[1] == 0; i++) {
		if (e->index == 1)
			side_wait(s, i + 1);
		note[1] = e->index == 1 ? s->last : i + 1 == s->rounds || (i > 8 && late(s));
		if (s->sleeper && i == 8) /* which now finds nothing, and sleeps for the first time */
			wait_asleep(s->sleeping);
		h_fill(arena_base(e->send), TLEN, (uint32_t)i);
		note[0] = i;
		while (h_put(e, 0, TLEN, ops->peer_export(e->l), (i % 2) * TLEN, note) == 0)
			sched_yield();
		if (s->sleeper && h_random(&s->random) % 16 == 0)
			usleep(h_random(&s->random) % 50);
		if (e->index == 0)
			side_wait(s, i + 1);
	}
	return NULL;
}

static void two_threads(bool sleeper, uint64_t rounds)
{
	struct pair p;
	struct side s[2];

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	for (int i = 0; i < 2; i++) {
		s[i] = (struct side){
			.e = &p.e[i],
			.rounds = rounds,
			.random = 7u + (uint32_t)i,
			.sleeper = sleeper,
			.sleeping = &s[!i],
			.until = h_clock(NULL) + SEC,
		};
		p.e[i].hook = side_hook;
		p.e[i].hook_arg = &s[i];
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&s[i].thread, NULL, ping_pong, &s[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(s[i].thread, NULL);
	for (int i = 0; i < 2; i++) {
		ck_assert(s[i].last);
		ck_assert_uint_eq(s[i].got, s[0].got);
		ck_assert_msg(s[i].timeouts == 0, "%llu wakes lost in %llu sleeps",
			      (unsigned long long)s[i].timeouts, (unsigned long long)s[i].sleeps);
		ck_assert_uint_gt(s[i].got, 8);
		if (sleeper)
			ck_assert_uint_gt(s[i].sleeps, 0);
	}
	h_close(&p);
}

START_TEST(test_shm_two_threads_see_bytes_before_notes)
{
	two_threads(false, 20000 / SLOWER);
}
END_TEST

START_TEST(test_shm_sleeper_is_woken_for_every_note)
{
	two_threads(true, 4000 / SLOWER);
}
END_TEST

/* One thread streams small notes, the other sleeps whenever it finds nothing: the window between the last
 * look and the sleep is met from both sides. After the first notes the other is waited for until it has
 * slept, and a nap now and then lets it run dry again, also where it is the slower one (a race detector). */
static void *burst(void *arg)
{
	struct side *s = arg;
	uint64_t note[6] = { 0 };

	for (uint64_t i = 0; note[1] == 0; i++) {
		note[0] = i;
		note[1] = i + 1 == s->rounds || late(s);
		while (h_put(s->e, 0, 0, NULL, 0, note) == 0)
			sched_yield();
		for (uint32_t k = h_random(&s->random) % 400; k > 0; k--)
			atomic_signal_fence(memory_order_seq_cst);
		if (i % 8 == 0)
			sched_yield();
		if (i == 8)
			wait_asleep(s->sleeping);
		if (i % 256 == 128)
			usleep(2000);
	}
	return NULL;
}

static void count_hook(struct end *e, const struct lane_event *ev)
{
	struct side *s = e->hook_arg;

	if (ev->ev != LANE_NOTE)
		return;
	ck_assert_uint_eq(ev->note.w[0], s->got);
	s->last = ev->note.w[1] != 0;
	s->got++;
}

START_TEST(test_shm_no_wake_is_lost_in_bursts)
{
	struct pair p;
	struct side tx, rx;

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	tx = (struct side){
		.e = &p.e[0],
		.rounds = 100000 / SLOWER,
		.random = 5,
		.until = h_clock(NULL) + SEC,
		.sleeping = &rx,
	};
	rx = (struct side){ .e = &p.e[1], .rounds = tx.rounds, .random = 3, .sleeper = true };
	p.e[1].hook = count_hook;
	p.e[1].hook_arg = &rx;
	ck_assert_int_eq(pthread_create(&tx.thread, NULL, burst, &tx), 0);
	side_wait(&rx, rx.rounds);
	pthread_join(tx.thread, NULL);
	ck_assert_uint_eq(rx.timeouts, 0);
	ck_assert_uint_gt(rx.sleeps, 0);
	h_close(&p);
}
END_TEST

/* Nobody sleeps, so the only thing that orders the sender's second lap behind the receiver's first is
 * `consumed`. */
static void *stream(void *arg)
{
	struct side *s = arg;
	uint64_t note[6] = { 0 };

	for (uint64_t i = 0; note[1] == 0; i++) {
		note[0] = i;
		note[1] = i >= 4 * 512 && (i + 1 == s->rounds || late(s));
		while (h_put(s->e, 0, 0, NULL, 0, note) == 0)
			sched_yield();
	}
	return NULL;
}

START_TEST(test_shm_two_threads_reuse_the_queue_lap_after_lap)
{
	struct pair p;
	struct side tx, rx;

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	ck_assert_uint_le(inner(&p, 0)->path.tx_entries, 512);
	tx = (struct side){ .e = &p.e[0], .rounds = 200000 / SLOWER, .until = h_clock(NULL) + SEC };
	rx = (struct side){ .e = &p.e[1] };
	p.e[1].hook = count_hook;
	p.e[1].hook_arg = &rx;
	ck_assert_int_eq(pthread_create(&tx.thread, NULL, stream, &tx), 0);
	side_wait(&rx, tx.rounds);
	pthread_join(tx.thread, NULL);
	ck_assert(rx.last);
	ck_assert_uint_ge(rx.got, 4 * 512);
	h_close(&p);
}
END_TEST

/* The same of the bounce ring, which comes round here ten times before the queue of notes does: only `freed`
 * orders the sender behind the receiver's copy. */
#define BLEN 60000
#define BOUNCED 7

static void bounce_hook(struct end *e, const struct lane_event *ev)
{
	struct side *s = e->hook_arg;

	if (ev->ev != LANE_NOTE)
		return;
	ck_assert_uint_eq(ev->note.w[0], s->got);
	ck_assert(h_filled(inner(e->pair, 1)->region[BOUNCED].base, BLEN, (uint32_t)s->got));
	s->last = ev->note.w[1] != 0;
	s->got++;
}

static void *stream_bounced(void *arg)
{
	struct side *s = arg;
	struct lane_export to = { .addr = (uintptr_t)inner(s->e->pair, 1)->region[BOUNCED].base,
				  .len = BLEN,
				  .key = BOUNCED };
	uint64_t note[6] = { 0 };

	for (uint64_t i = 0; note[1] == 0; i++) {
		note[0] = i;
		note[1] = i >= 200 && (i + 1 == s->rounds || late(s));
		h_fill(arena_base(s->e->send), BLEN, (uint32_t)i);
		while (h_put(s->e, 0, BLEN, &to, 0, note) == 0)
			sched_yield();
	}
	return NULL;
}

START_TEST(test_shm_two_threads_reuse_the_bounce_ring_lap_after_lap)
{
	struct pair p;
	struct side tx, rx;
	struct lane_mem mem;
	struct lane_export export;
	uint8_t *user = calloc(1, BLEN);

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	ck_assert_int_eq(p.ops->reg(p.e[1].l, BOUNCED, user, BLEN, &mem, &export), SIRCL_SUCCESS);
	tx = (struct side){ .e = &p.e[0], .rounds = 20000 / SLOWER, .until = h_clock(NULL) + SEC / 2 };
	rx = (struct side){ .e = &p.e[1] };
	p.e[1].hook = bounce_hook;
	p.e[1].hook_arg = &rx;
	p.e[1].max = 1; /* each is looked at before the next is copied to the same place */
	ck_assert_int_eq(pthread_create(&tx.thread, NULL, stream_bounced, &tx), 0);
	side_wait(&rx, tx.rounds);
	pthread_join(tx.thread, NULL);
	ck_assert(rx.last);
	ck_assert_uint_gt(rx.got, 2 * SHM_BOUNCE / BLEN);
	ck_assert_int_eq(h_count(&p.e[0], LANE_SUSPECT), 0);
	h_close(&p);
	free(user);
}
END_TEST

/* An end that closes while the other thread puts: nobody touches memory that is gone. */
static void *put_until_closed(void *arg)
{
	struct side *s = arg;
	uint64_t note[6] = { 0 };

	while (h_count(s->e, LANE_SUSPECT) == 0) {
		struct tick t = h_tick(s->e);

		note[0] = s->got++;
		h_put(s->e, 0, 20000, s->e->pair->ops->peer_export(s->e->l), 0, note);
		h_poll(s->e, &t);
	}
	return NULL;
}

START_TEST(test_shm_close_while_the_peer_puts_is_clean)
{
	uint64_t until = h_clock(NULL) + SEC;

	for (int round = 0; round < 20 && h_clock(NULL) < until; round++) {
		struct pair p;
		struct side tx;

		h_open(&p, &lane_shm_ops);
		h_up(&p, 1);
		tx = (struct side){ .e = &p.e[0] };
		ck_assert_int_eq(pthread_create(&tx.thread, NULL, put_until_closed, &tx), 0);
		for (int i = 0; i < round * 4; i++) {
			struct tick t = h_tick(&p.e[1]);

			h_poll(&p.e[1], &t);
			sched_yield();
		}
		p.ops->close(p.e[1].l);
		p.e[1].l = NULL;
		arena_destroy(p.e[1].arena);
		p.e[1].arena = NULL;
		pthread_join(tx.thread, NULL);
		ck_assert_int_eq(arena_create(&p.e[1].arena, "again", 4096), SIRCL_SUCCESS);
		h_close(&p);
	}
}
END_TEST

/* One thread puts until it is told to stop; the other fences at a random moment. */
static void *put_until_revoked(void *arg)
{
	struct side *s = arg;
	uint64_t note[6] = { 0 };

	while (h_count(s->e, LANE_SUSPECT) == 0) {
		struct tick t = h_tick(s->e);

		inner(s->e->pair, 0)->next_check = 0; /* answers at once: as soon as the other can hear it */
		h_poll(s->e, &t);
		s->e->nseen = h_find(s->e, 0, LANE_SUSPECT) < 0 ? 0 : s->e->nseen;
		note[0] = s->got;
		if (h_put(s->e, 0, 0, NULL, 0, note) == 1)
			s->got++;
		else
			sched_yield();
	}
	return NULL;
}

START_TEST(test_shm_fence_delivers_every_note_that_was_put_before_it)
{
	struct pair p;
	uint64_t until = h_clock(NULL) + SEC;

	h_open(&p, &lane_shm_ops);
	for (uint32_t epoch = 1; epoch <= 200 / SLOWER && h_clock(NULL) < until; epoch++) {
		struct side tx, rx;

		p.e[0].nseen = p.e[1].nseen = 0;
		h_up(&p, epoch);
		tx = (struct side){ .e = &p.e[0] };
		rx = (struct side){ .e = &p.e[1] };
		p.e[1].hook = count_hook;
		p.e[1].hook_arg = &rx;
		ck_assert_int_eq(pthread_create(&tx.thread, NULL, put_until_revoked, &tx), 0);
		while (rx.got < epoch % 20) {
			struct tick t = h_tick(&p.e[1]);

			h_poll(&p.e[1], &t);
			if (p.e[1].nseen == 0)
				sched_yield();
			p.e[1].nseen = 0;
		}
		p.ops->fence(p.e[1].l, epoch);
		while (h_find(&p.e[1], 0, LANE_FENCED) < 0) {
			struct tick t = h_tick(&p.e[1]);

			inner(&p, 1)->next_check = 0;
			p.e[1].nseen = 0;
			h_poll(&p.e[1], &t);
			if (p.e[1].nseen == 0)
				sched_yield();
		}
		pthread_join(tx.thread, NULL);
		ck_assert_msg(rx.got == tx.got, "epoch %u: %llu of %llu notes", epoch,
			      (unsigned long long)rx.got, (unsigned long long)tx.got);
		p.ops->fence(p.e[0].l, epoch);
		h_wait(&p, 0, 0, LANE_FENCED, 1000);
	}
	h_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane/shm, two threads");
	TCase *c = tcase_create("shm");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_shm_two_threads_see_bytes_before_notes);
	tcase_add_test(c, test_shm_sleeper_is_woken_for_every_note);
	tcase_add_test(c, test_shm_no_wake_is_lost_in_bursts);
	tcase_add_test(c, test_shm_two_threads_reuse_the_queue_lap_after_lap);
	tcase_add_test(c, test_shm_two_threads_reuse_the_bounce_ring_lap_after_lap);
	tcase_add_test(c, test_shm_close_while_the_peer_puts_is_clean);
	tcase_add_test(c, test_shm_fence_delivers_every_note_that_was_put_before_it);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
