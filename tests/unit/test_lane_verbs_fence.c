/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fence of the verbs lane, with WRITEs that arrive late on purpose, and every call of rdma-core failing
 * in turn. Over tests/fakeverbs: no hardware.
 */
#include <errno.h>
#include "lane_verbs_pair.h"

#define LATE 6
#define LATE_LEN (32u << 10)

/* Puts of WRITEs that the receiver's device holds back. */
static void plant(struct vpair *v)
{
	uint64_t note[6] = { 0 };
	uint64_t until;

	fakeverbs_hold(2 * LATE); /* a large put is two */
	h_fill(arena_base(v->p.e[0].send), H_ARENA, 5);
	for (uint32_t i = 0; i < LATE; i++) {
		note[0] = i;
		ck_assert_int_eq(h_put(&v->p.e[0], (size_t)i * LATE_LEN, LATE_LEN,
				       v->p.ops->peer_export(v->p.e[0].l), (uint64_t)i * LATE_LEN, note),
				 1);
	}
	until = h_tick(&v->p.e[0]).now + 5 * SEC;
	while (fakeverbs_held() < 2 * LATE && h_tick(&v->p.e[0]).now < until)
		h_pump(&v->p);
	ck_assert_int_eq(fakeverbs_held(), 2 * LATE);
}

static bool untouched(const struct vpair *v)
{
	const uint8_t *p = arena_base(v->p.e[1].arena);

	for (size_t i = 0; i < H_ARENA; i++)
		if (p[i])
			return false;
	return true;
}

/* What makes the tests below honest: without the receiver's fence the held bytes do land. */
START_TEST(test_verbs_late_writes_land_while_the_receiver_is_not_fenced)
{
	struct vpair v;

	fakeverbs_seed(0);
	v_open(&v);
	h_up(&v.p, 1);
	plant(&v);
	ck_assert(untouched(&v));
	ck_assert_int_gt(fakeverbs_release(), 0);
	for (int i = 0; i < LATE; i++)
		h_wait(&v.p, 1, i ? h_find(&v.p.e[1], 0, LANE_NOTE) : 0, LANE_NOTE, 3000);
	ck_assert(!untouched(&v));
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_late_writes_never_land_after_the_receivers_fence)
{
	struct vpair v;
	int at;

	fakeverbs_seed((uint64_t)_i);
	v_open(&v);
	/* a fence waits 20 ms until the peer is told, and a busy machine may stand still as long */
	v.p.e[0].ctx.clock = v.p.e[1].ctx.clock = v_slow_clock;
	h_up(&v.p, 1);
	plant(&v);
	v.p.ops->fence(v.p.e[1].l, 1);
	at = h_wait(&v.p, 1, 0, LANE_FENCED, 3000);
	ck_assert_uint_eq(v.p.e[1].seen[at].ev.epoch, 1);
	ck_assert(untouched(&v));
	fakeverbs_release();
	h_settle(&v.p, 20);
	ck_assert(untouched(&v));
	ck_assert_int_eq(h_count(&v.p.e[1], LANE_NOTE), 0);
	/* the sender hears of it, as no evidence against the process */
	at = h_wait(&v.p, 0, 0, LANE_SUSPECT, 2000);
	ck_assert(!v.p.e[0].seen[at].ev.gone);
	v.p.ops->fence(v.p.e[0].l, 1);
	h_wait(&v.p, 0, 0, LANE_FENCED, 3000);
	h_up(&v.p, 2);
	h_settle(&v.p, 10);
	ck_assert(untouched(&v));
	v_close(&v);
}
END_TEST

/* The order of the protocol, receiver first: a sender that has fenced says nothing about late bytes. */
START_TEST(test_verbs_senders_fence_alone_does_not_stop_what_is_under_way)
{
	struct vpair v;

	fakeverbs_seed(0);
	v_open(&v);
	h_up(&v.p, 1);
	plant(&v);
	v.p.ops->fence(v.p.e[0].l, 1);
	h_wait(&v.p, 0, 0, LANE_FENCED, 3000);
	ck_assert(untouched(&v));
	if (fakeverbs_release() > 0) {
		h_settle(&v.p, 10);
		ck_assert(!untouched(&v));
	}
	v.p.ops->fence(v.p.e[1].l, 1);
	h_wait(&v.p, 1, 0, LANE_FENCED, 3000);
	v_close(&v);
}
END_TEST

static int stays(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	if (a->qp_state == IBV_QPS_ERR)
		return EIO;
	return fakeverbs_lib.ibv.ibv_modify_qp(qp, a, mask);
}

/* A queue pair that cannot be brought to the error state is destroyed before LANE_FENCED is reported. */
START_TEST(test_verbs_queue_pair_that_does_not_obey_is_destroyed)
{
	struct vpair v;

	fakeverbs_seed(0);
	v_init(&v);
	v.lib[1].ibv.ibv_modify_qp = stays;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(v_open_end(&v, i), SIRCL_SUCCESS);
	h_up(&v.p, 1);
	plant(&v);
	v.p.ops->fence(v.p.e[1].l, 1);
	h_wait(&v.p, 1, 0, LANE_FENCED, 3000);
	fakeverbs_release();
	h_settle(&v.p, 20);
	ck_assert(untouched(&v));
	v_close(&v);
}
END_TEST

static struct ibv_cq *late_cq;
static int late;
static int (*real_poll)(struct ibv_cq *, int, struct ibv_wc *);
static int late_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	if (cq == late_cq && late > 0) {
		late--;
		return 0;
	}
	return real_poll(cq, n, wc);
}

static int then_late(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	if (a->qp_state == IBV_QPS_ERR)
		late = 5;
	return fakeverbs_lib.ibv.ibv_modify_qp(qp, a, mask);
}

/* What completed before the fence is reported before LANE_FENCED, though nobody polled in between. */
START_TEST(test_verbs_notes_that_were_there_are_reported_before_the_fence)
{
	struct vpair v;
	struct tick t;
	int fenced, n = 0;

	fakeverbs_seed((uint64_t)_i);
	v_init(&v);
	v.lib[1].ibv.ibv_modify_qp = then_late;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(v_open_end(&v, i), SIRCL_SUCCESS);
	h_up(&v.p, 1);
	h_settle(&v.p, 5);
	for (uint64_t i = 0; i < 40; i++) {
		uint64_t note[6] = { i };

		ck_assert_int_eq(h_put(&v.p.e[0], 0, 64, v.p.ops->peer_export(v.p.e[0].l), i * 64, note), 1);
	}
	for (int i = 0; i < 5000 && v.p.e[0].done < 40; i++) { /* they have arrived */
		t = h_tick(&v.p.e[0]);
		h_poll(&v.p.e[0], &t);
		usleep(100);
	}
	ck_assert_uint_eq(v.p.e[0].done, 40);
	ck_assert_int_eq(h_count(&v.p.e[1], LANE_NOTE), 0);
	late_cq = v_lane(&v, 1)->cq; /* completions show a few looks after the queue pair's end */
	real_poll = late_cq->context->ops.poll_cq;
	late_cq->context->ops.poll_cq = late_poll;
	late = INT32_MAX;
	v.p.ops->fence(v.p.e[1].l, 1);
	v.p.e[1].max = 3;
	fenced = h_wait(&v.p, 1, 0, LANE_FENCED, 3000);
	for (int i = 0; i < fenced; i++)
		if (v.p.e[1].seen[i].ev.ev == LANE_NOTE)
			ck_assert_uint_eq(v.p.e[1].seen[i].ev.note.w[0], (uint64_t)n++);
	ck_assert_int_eq(n, 40);
	v_close(&v);
}
END_TEST

/* ---- every call fails once ---- */

/* Forty times as fast as the clock, so that time limits do not make the test long. */
static uint64_t fast_clock(void *arg)
{
	return h_clock(arg) * 40;
}

static bool wait_any(struct vpair *v, int end, int from, enum lane_ev a, enum lane_ev b)
{
	uint64_t until = h_clock(NULL) + 3 * SEC;

	while (h_clock(NULL) < until) {
		if (h_find(&v->p.e[end], from, a) >= 0)
			return true;
		if (h_find(&v->p.e[end], from, b) >= 0)
			return false;
		h_pump(&v->p);
	}
	ck_abort_msg("end %d stands still: %d events", end, v->p.e[end].nseen);
}

/* Up, both kinds of puts, fence; whatever fails, each step ends. Returns the epochs that came up. */
static int life(struct vpair *v)
{
	uint64_t note[6] = { 0 };
	int ups = 0;

	for (uint32_t epoch = 1; epoch <= 2; epoch++) {
		int from[2] = { v->p.e[0].nseen, v->p.e[1].nseen };
		struct tick t = h_tick(&v->p.e[0]);

		v->p.ops->allow(v->p.e[1].l, epoch);
		/* refused with a sentence: an address that could not be bound left another family */
		if (v->p.ops->connect(v->p.e[0].l, &t, &v->p.e[1].addr, epoch) == SIRCL_SUCCESS &&
		    wait_any(v, 0, from[0], LANE_UP, LANE_DOWN)) {
			ups++;
			for (int i = 0; i < 6; i++)
				h_put(&v->p.e[0], 0, i % 2 ? 20000 : 100, v->p.ops->peer_export(v->p.e[0].l),
				      (uint64_t)i * 32768, note);
			for (int i = 0; i < 20; i++) {
				struct pollfd fds[8];

				v->p.ops->arm(v->p.e[1].l, fds, 8);
				h_pump(&v->p);
			}
		}
		for (int i = 0; i < 2; i++)
			v->p.ops->fence(v->p.e[i].l, epoch);
		for (int i = 0; i < 2; i++)
			wait_any(v, i, from[i], LANE_FENCED, LANE_FENCED);
	}
	return ups;
}

START_TEST(test_verbs_every_call_may_fail_once)
{
	int failed = 0, refused = 0, hurt = 0;
	uint64_t k;

	fakeverbs_seed(0);
	for (k = 1; k < 2000; k++) {
		struct vpair v;
		bool open = true;

		v_init(&v);
		v.p.e[0].ctx.clock = v.p.e[1].ctx.clock = fast_clock;
		fakeverbs_fail_at(k, 0);
		for (int i = 0; open && i < 2; i++)
			if (v_open_end(&v, i) != SIRCL_SUCCESS) {
				ck_assert_str_ne(error_last()->msg, "");
				open = false;
				refused++;
			}
		if (open)
			hurt += life(&v) < 2;
		for (int i = 0; i < 2; i++) {
			if (v.p.e[i].l)
				v.p.ops->close(v.p.e[i].l);
			v.p.e[i].l = NULL;
		}
		if (!fakeverbs_failed()) {
			fakeverbs_fail_at(0, 0);
			v_close(&v);
			break;
		}
		failed++;
		fakeverbs_fail_at(0, 0);
		v_close(&v); /* and nothing is left */
	}
	ck_assert_int_lt((int)k, 2000);
	ck_assert_int_gt(failed, 60);
	ck_assert_int_gt(refused, 10);
	ck_assert_int_gt(hurt, 5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane verbs: fence and failures (over fakeverbs)");
	TCase *c = tcase_create("fence"), *f = tcase_create("failures");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_verbs_late_writes_land_while_the_receiver_is_not_fenced);
	tcase_add_loop_test(c, test_verbs_late_writes_never_land_after_the_receivers_fence, 0, 4);
	tcase_add_test(c, test_verbs_senders_fence_alone_does_not_stop_what_is_under_way);
	tcase_add_test(c, test_verbs_queue_pair_that_does_not_obey_is_destroyed);
	tcase_add_loop_test(c, test_verbs_notes_that_were_there_are_reported_before_the_fence, 0, 6);
	suite_add_tcase(s, c);
	tcase_set_timeout(f, 120);
	tcase_add_test(f, test_verbs_every_call_may_fail_once);
	suite_add_tcase(s, f);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
