/* SPDX-License-Identifier: Apache-2.0 */
/* lane/shm inside one process: the queue's limits, the bounce ring, sleeping and waking, two threads,
 * strangers. */
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
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

START_TEST(test_shm_idle_poll_makes_no_system_call)
{
	struct pair p;
	struct tick t;
	uint64_t before;

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	h_settle(&p, 3);
	t = h_tick(&p.e[0]);
	before = inner(&p, 0)->stats.syscalls;
	for (int i = 0; i < 1000; i++)
		h_poll(&p.e[0], &t);
	ck_assert_uint_le(inner(&p, 0)->stats.syscalls - before, 2); /* at most one look at the sockets */
	h_close(&p);
}
END_TEST

START_TEST(test_shm_full_queue_takes_no_more_and_loses_nothing)
{
	struct pair p;
	uint64_t note[6] = { 0 }, sent = 0, got = 0;

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	for (int lap = 0; lap < 3; lap++) {
		int from = p.e[1].nseen;

		for (;; sent++) {
			note[0] = sent;
			if (h_put(&p.e[0], 0, 8, p.ops->peer_export(p.e[0].l), 0, note) == 0)
				break;
		}
		ck_assert_uint_eq(sent - got, inner(&p, 0)->path.tx_entries);
		ck_assert_uint_ge(sent - got, 256); /* what max_notes asked for */
		while (got < sent) {
			from = h_wait(&p, 1, from, LANE_NOTE, 1000) + 1;
			ck_assert_uint_eq(p.e[1].seen[from - 1].ev.note.w[0], got);
			got++;
		}
	}
	h_close(&p);
}
END_TEST

/* Registered memory when the kernel does not help: every size, and more than the bounce ring holds. */
START_TEST(test_shm_bounce_ring_carries_all_when_the_kernel_refuses)
{
	struct pair p;
	struct lane_mem mem;
	struct lane_export export;
	uint8_t *user = calloc(1, H_ARENA);
	uint64_t note[6] = { 0 };
	uint32_t random = 99, lens[64];
	int refused = 0, sent = 0, got = 0, from = 0;

	ck_assert_ptr_nonnull(user);
	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	from = p.e[1].nseen;
	ck_assert_int_eq(p.ops->reg(p.e[1].l, 7, user, H_ARENA, &mem, &export), SIRCL_SUCCESS);
	inner(&p, 0)->path.vm_ok = false;
	inner(&p, 0)->path.direct = inner(&p, 0)->path.direct && SHM_DIRECT;
	for (int i = 0; i < 300; i++) {
		while (sent < 300 && sent - got < 64) {
			uint32_t len = h_random(&random) % (sent % 5 == 0 ? H_ARENA : 5000) + 1;

			if (sent == 17)
				len = SHM_MAX_PUT;
			note[0] = (uint64_t)sent;
			h_fill(arena_base(p.e[0].send), len, (uint32_t)sent);
			if (h_put(&p.e[0], 0, len, &export, H_ARENA - len, note) == 0) {
				refused++;
				break;
			}
			lens[sent % 64] = len;
			sent++;
		}
		/* one at a time: each is at its place when its note is seen, and the next is not yet there */
		p.e[1].max = 1;
		from = h_wait(&p, 1, from, LANE_NOTE, 1000) + 1;
		ck_assert_uint_eq(p.e[1].seen[from - 1].ev.note.w[0], (uint64_t)got);
		if (!SHM_DIRECT)
			ck_assert(h_filled(user + H_ARENA - lens[got % 64], lens[got % 64], (uint32_t)got));
		got++;
	}
	ck_assert_int_eq(got, 300);
	if (!SHM_DIRECT)
		ck_assert_int_gt(refused, 0); /* the ring was full at times */
	ck_assert_int_eq(h_count(&p.e[0], LANE_SUSPECT), 0);
	h_close(&p);
	free(user);
}
END_TEST

START_TEST(test_shm_receiver_refuses_a_record_outside_its_memory)
{
	struct pair p;
	struct lane_mem mem;
	struct lane_export export;
	uint8_t *user = calloc(2, 4096);
	uint64_t note[6] = { 0 };
	int at;

	if (SHM_DIRECT)
		return;
	ck_assert_ptr_nonnull(user);
	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	ck_assert_int_eq(p.ops->reg(p.e[1].l, 7, user, 4096, &mem, &export), SIRCL_SUCCESS);
	export.len = 8192; /* a wrong export: the sender's own check passes */
	h_fill(arena_base(p.e[0].send), 200, 1);
	ck_assert_int_eq(h_put(&p.e[0], 0, 200, &export, 4000, note), 1);
	at = h_wait(&p, 1, 0, LANE_SUSPECT, 1000);
	ck_assert_ptr_nonnull(strstr(p.e[1].seen[at].why, "outside"));
	ck_assert(!p.e[1].seen[at].ev.gone);
	ck_assert_int_eq(h_count(&p.e[1], LANE_NOTE), 0);
	for (int i = 0; i < 8192; i++)
		ck_assert_uint_eq(user[i], 0);
	p.ops->fence(p.e[1].l, 1);
	h_wait(&p, 1, at, LANE_FENCED, 1000);
	h_close(&p);
	free(user);
}
END_TEST

START_TEST(test_shm_fence_of_a_living_peer_waits_for_its_word)
{
	struct pair p;
	uint64_t note[6] = { 0 };
	struct tick t;
	int at;

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	p.ops->fence(p.e[1].l, 1);
	/* Only the fencing end is polled: the other may be in the middle of a copy. */
	for (int i = 0; i < 30; i++) {
		usleep(1000);
		t = h_tick(&p.e[1]);
		h_poll(&p.e[1], &t);
	}
	ck_assert_int_eq(h_count(&p.e[1], LANE_FENCED), 0);
	/* What it still puts is delivered, then the fence. */
	ck_assert_int_eq(h_put(&p.e[0], 0, 8, p.ops->peer_export(p.e[0].l), 0, note), 1);
	at = h_wait(&p, 1, 0, LANE_FENCED, 1000);
	ck_assert_int_eq(h_count(&p.e[1], LANE_NOTE), 1);
	ck_assert_int_lt(h_find(&p.e[1], 0, LANE_NOTE), at);
	at = h_wait(&p, 0, 0, LANE_SUSPECT, 1000);
	ck_assert(!p.e[0].seen[at].ev.gone);
	ck_assert_int_eq(h_put(&p.e[0], 0, 8, p.ops->peer_export(p.e[0].l), 0, note), 0);
	p.ops->fence(p.e[0].l, 1);
	h_wait(&p, 0, 0, LANE_FENCED, 1000);
	h_close(&p);
}
END_TEST

/* The lane's look at its sockets is a poll(2): here something can happen just before it. */
static _Thread_local void (*before_poll)(struct pair *);
static _Thread_local struct pair *before_poll_arg;

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };
	void (*hook)(struct pair *) = before_poll;

	before_poll = NULL;
	if (hook != NULL)
		hook(before_poll_arg);
	return ppoll(fds, n, ms < 0 ? NULL : &t, NULL);
}

static void put_and_answer(struct pair *p)
{
	uint64_t note[6] = { 42 };
	struct tick t = h_tick(&p->e[0]);

	ck_assert_int_eq(h_put(&p->e[0], 0, 8, p->ops->peer_export(p->e[0].l), 0, note), 1);
	inner(p, 0)->next_check = 0;
	h_poll(&p->e[0], &t);
	ck_assert_int_eq(h_count(&p->e[0], LANE_SUSPECT), 1); /* it has heard, and answered */
}

START_TEST(test_shm_note_put_while_the_fence_looks_is_delivered_before_it)
{
	struct pair p;
	struct tick t;
	int note, fenced;

	h_open(&p, &lane_shm_ops);
	h_up(&p, 1);
	h_settle(&p, 3);
	p.ops->fence(p.e[1].l, 1);
	before_poll_arg = &p;
	before_poll = put_and_answer;
	t = h_tick(&p.e[1]);
	h_poll(&p.e[1], &t); /* finds no note, then looks, and hears that the peer has stopped */
	ck_assert(before_poll == NULL);
	fenced = h_wait(&p, 1, 0, LANE_FENCED, 1000);
	note = h_find(&p.e[1], 0, LANE_NOTE);
	ck_assert_int_ge(note, 0);
	ck_assert_int_lt(note, fenced);
	h_close(&p);
}
END_TEST

START_TEST(test_shm_strangers_do_not_keep_the_peer_out)
{
	struct pair p;
	int fd[20];

	h_open(&p, &lane_shm_ops);
	p.e[1].ctx.log.level = LOG_NONE;
	p.ops->allow(p.e[1].l, 1);
	for (int i = 0; i < 20; i++) {
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		char junk[600];

		memcpy(a.sun_path + 1, p.e[1].addr.b, p.e[1].addr.len);
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(
			connect(fd[i], (struct sockaddr *)&a,
				(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + p.e[1].addr.len)),
			0);
		memset(junk, i * 37, sizeof(junk));
		if (i % 2 == 0) /* ten say nothing at all: more than there are places */
			ck_assert_int_gt(send(fd[i], junk, (size_t)(i * 30 + 1), MSG_NOSIGNAL), 0);
		h_pump(&p);
	}
	h_up(&p, 1);
	ck_assert_int_eq(h_count(&p.e[1], LANE_DOWN), 0);
	for (int i = 0; i < 20; i++)
		close(fd[i]);
	h_close(&p);
}
END_TEST

/* ---- two threads ---- */
struct side {
	struct end *e;
	pthread_t thread;
	uint64_t rounds, got, timeouts, sleeps;
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
		if (poll(fds, (nfds_t)n, 2000) == 0)
			s->timeouts++;
	}
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
		note[1] = e->index == 1 ? s->last : i + 1 == s->rounds || late(s);
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
			.e = &p.e[i], .rounds = rounds, .random = 7u + (uint32_t)i, .sleeper = sleeper
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
		if (sleeper && s[i].got > 100)
			ck_assert_uint_gt(s[i].sleeps, s[i].got / 20);
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
 * look and the sleep is met from both sides. */
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
		.e = &p.e[0], .rounds = 100000 / SLOWER, .random = 5, .until = h_clock(NULL) + SEC
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

START_TEST(test_shm_open_wants_a_key_and_a_memfd)
{
	struct pair p;
	struct lane_cfg cfg;
	struct lane *l = NULL;
	struct lane_addr addr;
	struct key_ring none = { 0 };

	h_open(&p, &lane_shm_ops);
	cfg = h_cfg(&p.e[1]);
	cfg.keys = &none;
	ck_assert_int_eq(lane_shm_ops.open(&cfg, &l, &addr), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "SIRCL_KEY_FILE"));
	cfg = h_cfg(&p.e[1]);
	cfg.arena_fd = -1;
	ck_assert_int_eq(lane_shm_ops.open(&cfg, &l, &addr), SIRCL_INTERNAL_ERROR);
	ck_assert_ptr_null(l);
	h_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane/shm in one process");
	TCase *c = tcase_create("shm");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_shm_idle_poll_makes_no_system_call);
	tcase_add_test(c, test_shm_full_queue_takes_no_more_and_loses_nothing);
	tcase_add_test(c, test_shm_bounce_ring_carries_all_when_the_kernel_refuses);
	tcase_add_test(c, test_shm_receiver_refuses_a_record_outside_its_memory);
	tcase_add_test(c, test_shm_fence_of_a_living_peer_waits_for_its_word);
	tcase_add_test(c, test_shm_note_put_while_the_fence_looks_is_delivered_before_it);
	tcase_add_test(c, test_shm_strangers_do_not_keep_the_peer_out);
	tcase_add_test(c, test_shm_two_threads_see_bytes_before_notes);
	tcase_add_test(c, test_shm_sleeper_is_woken_for_every_note);
	tcase_add_test(c, test_shm_no_wake_is_lost_in_bursts);
	tcase_add_test(c, test_shm_two_threads_reuse_the_queue_lap_after_lap);
	tcase_add_test(c, test_shm_close_while_the_peer_puts_is_clean);
	tcase_add_test(c, test_shm_fence_delivers_every_note_that_was_put_before_it);
	tcase_add_test(c, test_shm_open_wants_a_key_and_a_memfd);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
