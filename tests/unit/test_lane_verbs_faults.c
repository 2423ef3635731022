/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs lane when something is not as it should be: a peer that has proved nothing and guesses keys, a
 * device that takes half of a put or does not notify, ends that differ in MTU. Over tests/fakeverbs: no
 * hardware.
 */
#include <errno.h>
#include "lane_verbs_pair.h"

static void v_open_both(struct vpair *v)
{
	for (int i = 0; i < 2; i++)
		if (v_open_end(v, i) != SIRCL_SUCCESS)
			ck_abort_msg("%s", error_last()->msg);
}

/* ---- who has proved nothing ---- */

/* Keys are small numbers, which devices give out in order. */
START_TEST(test_verbs_stranger_who_guesses_a_key_writes_nothing)
{
	uint8_t data[56] = { 1 }, msg[AUTH_MSG_MAX], bytes[64];
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	struct ibv_send_wr wr, *bad;
	struct rdma_cm_event *e;
	struct stranger s;
	struct ibv_sge sge;
	const uint8_t *arena;
	struct ibv_mr *mr;
	struct auth au;
	struct vpair v;
	size_t n;

	fakeverbs_seed(0);
	v_open(&v);
	v.p.ops->allow(v.p.e[1].l, 1);
	auth_start(&au, &v.p.e[0].keys, true, "x", 1, NULL, 0); /* knows a fingerprint, that is no secret */
	ck_assert_int_eq(auth_step(&au, NULL, 0, msg, &n), SIRCL_SUCCESS);
	auth_bare(&au, data + 4);
	knock(&v, &s, data, sizeof(data));
	wait_half_open(&v, 1);
	ck_assert_int_eq(fakeverbs_lib.cm.rdma_get_cm_event(s.ch, &e), 0);
	ck_assert_int_eq(e->event, RDMA_CM_EVENT_ESTABLISHED);
	fakeverbs_lib.cm.rdma_ack_cm_event(e);
	memset(bytes, 0x55, sizeof(bytes));
	mr = fakeverbs_lib.ibv.ibv_reg_mr(s.pd, bytes, sizeof(bytes), 0);
	ck_assert_ptr_nonnull(mr);
	arena = arena_base(v.p.e[1].arena);
	sge = (struct ibv_sge){ .addr = (uintptr_t)bytes, .length = sizeof(bytes), .lkey = mr->lkey };
	wr = (struct ibv_send_wr){ .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.rdma = { .remote_addr = (uintptr_t)arena,
						.rkey = v_lane(&v, 1)->region[0].mr->rkey } };
	ck_assert_int_eq(ibv_post_send(s.id->qp, &wr, &bad), 0);
	for (int i = 0; i < 3000 && ibv_poll_cq(s.cq, 1, &wc) == 0; i++)
		h_settle(&v.p, 1);
	ck_assert_int_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
	for (size_t i = 0; i < H_ARENA; i++)
		ck_assert_uint_eq(arena[i], 0);
	leave(&s, mr);
	h_up(&v.p, 1);
	v_close(&v);
}
END_TEST

/* Of both ends: whether the peer may write when the connection is asked for, accepted; and once it is up. */
static bool closed[2], trusted[2];
static int see_access(int end, struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS) {
		closed[end] |= a->qp_access_flags == 0;
		trusted[end] |= a->qp_access_flags == IBV_ACCESS_REMOTE_WRITE;
	}
	return fakeverbs_lib.ibv.ibv_modify_qp(qp, a, mask);
}
static int see_access_0(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	return see_access(0, qp, a, mask);
}
static int see_access_1(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	return see_access(1, qp, a, mask);
}
static int see_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	ck_assert(closed[0] && !trusted[0]);
	return fakeverbs_lib.cm.rdma_connect(id, p);
}
static int see_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	ck_assert(closed[1] && !trusted[1]);
	return fakeverbs_lib.cm.rdma_accept(id, p);
}

START_TEST(test_verbs_queue_pairs_of_both_ends_open_after_the_proof_alone)
{
	struct vpair v;

	memset(closed, 0, sizeof(closed));
	memset(trusted, 0, sizeof(trusted));
	v_init(&v);
	v.lib[0].ibv.ibv_modify_qp = see_access_0;
	v.lib[1].ibv.ibv_modify_qp = see_access_1;
	v.lib[0].cm.rdma_connect = see_connect;
	v.lib[1].cm.rdma_accept = see_accept;
	v_open_both(&v);
	h_up(&v.p, 1);
	ck_assert(trusted[0] && trusted[1]);
	v_close(&v);
}
END_TEST

/* The request tells the peer how long to wait for acknowledgements, which it takes from the route. */
static int see_route(struct rdma_cm_id *id, int ms)
{
	ck_assert_int_eq(fakeverbs_ack_timeout(id), VERBS_ACK_TIMEOUT);
	return fakeverbs_lib.cm.rdma_resolve_route(id, ms);
}

START_TEST(test_verbs_ack_timeout_is_set_before_the_route)
{
	struct vpair v;

	v_init(&v);
	v.lib[0].cm.rdma_resolve_route = see_route;
	v_open_both(&v);
	h_up(&v.p, 1);
	v_close(&v);
}
END_TEST

/* ---- a device that fails ---- */

static int (*real_post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int takes; /* work requests of a chain */
static int post_some(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *last = wr, *rest;
	int err;

	if (takes == 0) {
		*bad = wr;
		return ENOMEM;
	}
	for (int i = 1; i < takes; i++)
		last = last->next;
	rest = last->next;
	last->next = NULL;
	err = real_post(qp, wr, bad);
	last->next = rest;
	*bad = rest;
	return err ? err : ENOMEM;
}

/* Bytes that a device has taken may land until the fence: a put counts as posted from its first request on,
 * or the link would not wait for the fence before it uses the place again. */
START_TEST(test_verbs_put_whose_bytes_alone_were_posted_is_posted)
{
	static const struct {
		uint32_t len[3];
		int takes, posted;
	} cases[] = {
		{ { 20000, 20000, 20000 }, 0, 0 }, { { 20000, 20000, 20000 }, 1, 1 },
		{ { 20000, 20000, 20000 }, 2, 1 }, { { 20000, 20000, 20000 }, 3, 2 },
		{ { 100, 20000, 100 }, 1, 1 },     { { 100, 20000, 100 }, 2, 2 },
		{ { 100, 20000, 100 }, 3, 2 },
	};

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		struct lane_put put[3];
		struct ibv_context *c;
		struct vpair v;
		struct tick t;
		int at;

		v_open(&v);
		h_up(&v.p, 1);
		t = h_tick(&v.p.e[0]);
		for (int i = 0; i < 3; i++)
			put[i] = (struct lane_put){ .src = arena_base(v.p.e[0].send),
						    .len = cases[k].len[i],
						    .smem = &v.p.e[0].send_mem,
						    .dst = v.p.ops->peer_export(v.p.e[0].l) };
		c = v_lane(&v, 0)->pd->context;
		real_post = c->ops.post_send;
		takes = cases[k].takes;
		c->ops.post_send = post_some;
		ck_assert_int_eq(v.p.ops->put(v.p.e[0].l, &t, put, 3), cases[k].posted);
		c->ops.post_send = real_post;
		at = h_wait(&v.p, 0, 0, LANE_SUSPECT, 1000);
		ck_assert_ptr_nonnull(strstr(v.p.e[0].seen[at].why, "posting failed"));
		v_close(&v);
	}
}
END_TEST

static int no_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq, (void)solicited;
	return EIO;
}

/* Who sleeps without a notification would never wake; who does not sleep at all has a core for itself. */
START_TEST(test_verbs_device_that_does_not_notify_is_looked_at_every_millisecond)
{
	int (*real)(struct ibv_cq *, int);
	struct pollfd fds[8];
	struct ibv_context *c;
	struct vpair v;
	struct tick t;
	int n = -1;

	v_open(&v);
	c = v_lane(&v, 1)->pd->context;
	real = c->ops.req_notify_cq;
	c->ops.req_notify_cq = no_notify;
	ck_assert_int_gt(v.p.ops->arm(v.p.e[1].l, fds, 8), 0); /* nothing can come */
	ck_assert_uint_eq(v.p.ops->deadline(v.p.e[1].l), NEVER);
	h_up(&v.p, 1);
	for (int i = 0; i < 2000 && n < 0; i++) {
		t = h_tick(&v.p.e[1]);
		h_poll(&v.p.e[1], &t);
		n = v.p.ops->arm(v.p.e[1].l, fds, 8);
	}
	ck_assert_int_gt(n, 0);
	ck_assert_uint_le(v.p.ops->deadline(v.p.e[1].l), t.now + MSEC);
	ck_assert_int_eq(h_count(&v.p.e[1], LANE_SUSPECT), 0);
	c->ops.req_notify_cq = real;
	v_close(&v);
}
END_TEST

static int no_completions(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq, (void)n, (void)wc;
	return -1;
}

START_TEST(test_verbs_nobody_sleeps_on_what_arming_finds_out)
{
	int (*real)(struct ibv_cq *, int, struct ibv_wc *);
	struct pollfd fds[8];
	struct ibv_context *c;
	struct vpair v;
	struct tick t;
	int n = -1;

	v_open(&v);
	h_up(&v.p, 1);
	for (int i = 0; i < 2000 && n < 0; i++) {
		t = h_tick(&v.p.e[1]);
		h_poll(&v.p.e[1], &t);
		n = v.p.ops->arm(v.p.e[1].l, fds, 8);
	}
	ck_assert_int_gt(n, 0);
	c = v_lane(&v, 1)->pd->context;
	real = c->ops.poll_cq;
	c->ops.poll_cq = no_completions;
	ck_assert_int_eq(v.p.ops->arm(v.p.e[1].l, fds, 8), -1);
	h_poll(&v.p.e[1], &t);
	ck_assert_int_eq(h_count(&v.p.e[1], LANE_SUSPECT), 1);
	c->ops.poll_cq = real;
	v_close(&v);
}
END_TEST

/* ---- ends that differ ---- */

static int query_port_1024(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	int ret = fakeverbs_lib.ibv.ibv_query_port(c, port, a);

	a->active_mtu = IBV_MTU_1024;
	return ret;
}
static int query_port_4096(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	int ret = fakeverbs_lib.ibv.ibv_query_port(c, port, a);

	a->active_mtu = a->max_mtu = IBV_MTU_4096;
	return ret;
}
static int no_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)id, (void)p;
	errno = EINVAL;
	return -1;
}

START_TEST(test_verbs_own_trouble_at_accepting_is_no_strangers)
{
	struct vpair v;

	v_init(&v);
	v.lib[1].cm.rdma_accept = no_accept;
	v_open_both(&v);
	h_connect(&v.p, 1);
	h_wait(&v.p, 0, 0, LANE_DOWN, 2500);
	ck_assert_int_eq(v_logged(&v, "was not taken"), 1);
	ck_assert_int_eq(v_logged(&v, "did not belong here"), 0);
	v_close(&v);
}
END_TEST

/* The fake loses packets that are larger than one of the ports takes, as soft-RoCE does. */
START_TEST(test_verbs_ends_whose_mtus_differ_use_the_lower)
{
	static const uint32_t lens[] = { 100, VERBS_EAGER, VERBS_MAX_PUT };

	for (int low = 0; low < 2; low++) {
		char dev[64];
		struct vpair v;

		v_init(&v);
		v.lib[low].ibv.ibv_query_port = query_port_1024;
		v.lib[1 - low].ibv.ibv_query_port = query_port_4096;
		v_open_both(&v);
		snprintf(dev, sizeof(dev), "%s", v_lane(&v, 0)->device);
		ck_assert_int_eq(fakeverbs_mtu(dev, low == 0 ? 1024 : 4096, low == 1 ? 1024 : 4096), 0);
		h_up(&v.p, 1);
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
			for (int k = 0; k < 2; k++) {
				int from = v.p.e[1 - k].nseen;
				uint64_t note[6] = { i };

				h_fill(arena_base(v.p.e[k].send), lens[i], (uint32_t)(i + 10));
				ck_assert_int_eq(h_put(&v.p.e[k], 0, lens[i],
						       v.p.ops->peer_export(v.p.e[k].l), 64, note),
						 1);
				h_wait(&v.p, 1 - k, from, LANE_NOTE, 5000);
				ck_assert(h_filled((char *)arena_base(v.p.e[1 - k].arena) + 64, lens[i],
						   (uint32_t)(i + 10)));
			}
		ck_assert_int_eq(h_count(&v.p.e[0], LANE_SUSPECT) + h_count(&v.p.e[1], LANE_SUSPECT), 0);
		ck_assert_int_eq(v_logged(&v, "path MTU 1024 "), 2);
		ck_assert_int_eq(v_logged(&v, "ACK timeout 14"), 2);
		ck_assert_int_eq(v_logged(&v, "the ends differ"), 2); /* each end once */
		ck_assert_int_eq(fakeverbs_mtu(dev, 0, 0), 0);
		v_close(&v);
	}
}
END_TEST

static struct ibv_qp_attr steps[2][2]; /* of each end: to RTR, to RTS */
static int note_step(int end, struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	if ((mask & IBV_QP_STATE) && (a->qp_state == IBV_QPS_RTR || a->qp_state == IBV_QPS_RTS))
		steps[end][a->qp_state == IBV_QPS_RTS] = *a;
	return fakeverbs_lib.ibv.ibv_modify_qp(qp, a, mask);
}
static int note_step_0(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	return note_step(0, qp, a, mask);
}
static int note_step_1(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	return note_step(1, qp, a, mask);
}

/* Queue pairs are moved by the lane itself, so what was asked for must not get lost on the way. */
START_TEST(test_verbs_queue_pairs_get_what_was_asked_for)
{
	struct vpair v;

	v_init(&v);
	v.lib[0].ibv.ibv_modify_qp = note_step_0;
	v.lib[1].ibv.ibv_modify_qp = note_step_1;
	v_open_both(&v);
	h_up(&v.p, 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(steps[i][0].dest_qp_num, v_lane(&v, 1 - i)->conn.qp.qp->qp_num);
		ck_assert_uint_eq(steps[i][0].max_dest_rd_atomic, 1);
		ck_assert_uint_eq(steps[i][1].max_rd_atomic, 1);
		ck_assert_uint_eq(steps[i][1].timeout, VERBS_ACK_TIMEOUT);
		ck_assert_uint_eq(steps[i][1].retry_cnt, VERBS_RETRY);
		ck_assert_uint_eq(steps[i][1].rnr_retry, VERBS_RNR_RETRY);
	}
	v_close(&v);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane verbs: faults (over fakeverbs)");
	TCase *c = tcase_create("faults");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_verbs_stranger_who_guesses_a_key_writes_nothing);
	tcase_add_test(c, test_verbs_queue_pairs_of_both_ends_open_after_the_proof_alone);
	tcase_add_test(c, test_verbs_ack_timeout_is_set_before_the_route);
	tcase_add_test(c, test_verbs_put_whose_bytes_alone_were_posted_is_posted);
	tcase_add_test(c, test_verbs_device_that_does_not_notify_is_looked_at_every_millisecond);
	tcase_add_test(c, test_verbs_nobody_sleeps_on_what_arming_finds_out);
	tcase_add_test(c, test_verbs_own_trouble_at_accepting_is_no_strangers);
	tcase_add_test(c, test_verbs_ends_whose_mtus_differ_use_the_lower);
	tcase_add_test(c, test_verbs_queue_pairs_get_what_was_asked_for);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
