/* SPDX-License-Identifier: Apache-2.0 */
/* lane/shm inside one process: the queue's limits, the bounce ring, sleeping and waking, strangers. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "lane_harness.h"
#include "lane/shm_internal.h"

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
		ck_assert(h_filled(user + H_ARENA - lens[got % 64], lens[got % 64], (uint32_t)got));
		got++;
	}
	ck_assert_int_eq(got, 300);
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
	tcase_add_test(c, test_shm_open_wants_a_key_and_a_memfd);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
