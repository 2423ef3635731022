/* SPDX-License-Identifier: Apache-2.0 */
/* fakeverbs keeps the promises of RC queue pairs, and no more: connections, data, order, waiting. */
#include <signal.h>
#include "fakeverbs_pair.h"

START_TEST(test_fake_connects_and_moves_bytes)
{
	struct pair p;
	struct ibv_wc wc;

	fakeverbs_seed((uint64_t)_i);
	p_up(&p, USUAL);
	p_fill(p.e[0].mem, P_MEM, 7);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 20000), 0);
	ck_assert_int_eq(p_send(&p.e[0], 2, 0, 20000, IBV_SEND_SIGNALED), 0);
	p_ok(&p.e[0], 2);
	wc = p_wc(&p.e[1]);
	ck_assert_uint_eq(wc.wr_id, 1);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
	ck_assert_uint_eq(wc.byte_len, 20000);
	ck_assert_int_eq(memcmp(p.e[0].mem, p.e[1].mem, 20000), 0);
	ck_assert_int_eq(fakeverbs_ack_timeout(p.e[0].id), 8);
	p_down(&p);
}
END_TEST

/* ---- connections ---- */
START_TEST(test_fake_private_data_has_the_lengths_of_the_field)
{
	struct pair p;
	struct shape s = USUAL;
	uint8_t data[256], got[256] = { 0 };
	struct rdma_conn_param c = { .private_data = data, .private_data_len = 57 };

	p_fill(data, sizeof(data), 3);
	p_listen(&p);
	p_request(&p, &s, data, 50, got);
	ck_assert_int_eq(memcmp(got, data, 50), 0);
	for (int i = 50; i < 56; i++)
		ck_assert_int_eq(got[i], 0);
	ck_assert_int_eq(rdma_connect(p.e[0].id, &c), -1);
	ck_assert_int_eq(errno, EINVAL);
	p_objects(&p.e[1], &s);
	c.private_data_len = 197;
	ck_assert_int_eq(rdma_accept(p.e[1].id, &c), -1);
	ck_assert_int_eq(errno, EINVAL);
	c.private_data_len = 196;
	ck_assert_int_eq(rdma_accept(p.e[1].id, &c), 0);
	p_event(&p.e[0], RDMA_CM_EVENT_ESTABLISHED, got);
	ck_assert_int_eq(memcmp(got, data, 196), 0);
	p_event(&p.e[1], RDMA_CM_EVENT_ESTABLISHED, NULL);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_reject_carries_data_and_ends_the_queue_pair)
{
	struct pair p;
	struct shape s = USUAL;
	uint8_t got[256] = { 0 };

	p_listen(&p);
	p_request(&p, &s, NULL, 0, NULL);
	ck_assert_int_eq(p_recv(&p.e[0], 5, 0, 100), 0);
	ck_assert_int_eq(rdma_reject(p.e[1].id, "no", 2), 0);
	p_event(&p.e[0], RDMA_CM_EVENT_REJECTED, got);
	ck_assert_str_eq((char *)got, "no");
	ck_assert_int_eq(p_wc(&p.e[0]).status, IBV_WC_WR_FLUSH_ERR);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_nobody_listens)
{
	struct pair p;
	struct shape s = USUAL;
	struct rdma_conn_param c = { 0 };
	struct sockaddr_in nowhere = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("198.51.100.9") };

	p_listen(&p);
	ck_assert_int_eq(rdma_destroy_id(p.e[1].anchor), 0);
	p.e[1].anchor = NULL;
	ck_assert_int_eq(rdma_create_id(p.e[0].ec, &p.e[0].id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(p.e[0].id, (struct sockaddr *)&nowhere), -1);
	ck_assert_int_eq(errno, ENODEV);
	ck_assert_int_eq(rdma_resolve_addr(p.e[0].id, NULL, (struct sockaddr *)&nowhere, 100), 0);
	p_event(&p.e[0], RDMA_CM_EVENT_ADDR_ERROR, NULL);
	ck_assert_int_eq(rdma_destroy_id(p.e[0].id), 0);
	ck_assert_int_eq(rdma_create_id(p.e[0].ec, &p.e[0].id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(p.e[0].id, NULL, (struct sockaddr *)&p.addr, 100), 0);
	p_event(&p.e[0], RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	ck_assert_int_eq(rdma_resolve_route(p.e[0].id, 100), 0);
	p_event(&p.e[0], RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	ck_assert_int_eq(rdma_connect(p.e[0].id, &c), -1); /* no queue pair */
	p_objects(&p.e[0], &s);
	ck_assert_int_eq(rdma_connect(p.e[0].id, &c), 0);
	p_event(&p.e[0], RDMA_CM_EVENT_REJECTED, NULL);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_port_belongs_to_one)
{
	struct pair p;
	struct rdma_cm_id *id;

	p_listen(&p);
	ck_assert_int_eq(rdma_create_id(p.e[0].ec, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&p.addr), -1);
	ck_assert_int_eq(errno, EADDRINUSE);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
	p_down(&p);
}
END_TEST

/* The queue pair of the end that is told stays as it is until that end moves it. */
START_TEST(test_fake_disconnect_is_told_to_both)
{
	struct pair p;

	p_up(&p, USUAL);
	ck_assert_int_eq(p_recv(&p.e[0], 1, 0, 8), 0);
	ck_assert_int_eq(p_recv(&p.e[1], 2, 0, 8), 0);
	ck_assert_int_eq(rdma_disconnect(p.e[0].id), 0);
	p_event(&p.e[0], RDMA_CM_EVENT_DISCONNECTED, NULL);
	p_event(&p.e[1], RDMA_CM_EVENT_DISCONNECTED, NULL);
	ck_assert_int_eq(p_wc(&p.e[0]).status, IBV_WC_WR_FLUSH_ERR);
	p_none(&p.e[1], 20);
	p_event(&p.e[1], RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_request_of_a_listener_that_goes_is_rejected)
{
	struct pair p;
	struct shape s = USUAL;

	p_up(&p, s);
	p_qp_down(&p.e[0]);
	p_event(&p.e[1], RDMA_CM_EVENT_DISCONNECTED, NULL); /* destroying an id says good-bye */
	p_down(&p);
	p_listen(&p);
	p_request(&p, &s, NULL, 0, NULL);
	ck_assert_int_eq(rdma_destroy_id(p.e[1].id), 0);
	p.e[1].id = NULL;
	p_event(&p.e[0], RDMA_CM_EVENT_REJECTED, NULL);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_descriptors_can_be_non_blocking)
{
	struct pair p;
	struct rdma_cm_event *ev;
	struct ibv_async_event ae;
	struct ibv_cq *cq;
	void *arg;

	p_up(&p, USUAL);
	fcntl(p.e[0].ec->fd, F_SETFL, O_NONBLOCK);
	fcntl(p.e[0].ch->fd, F_SETFL, O_NONBLOCK);
	fcntl(p.e[0].id->verbs->async_fd, F_SETFL, O_NONBLOCK);
	ck_assert(rdma_get_cm_event(p.e[0].ec, &ev) == -1 && errno == EAGAIN);
	ck_assert(ibv_get_cq_event(p.e[0].ch, &cq, &arg) == -1 && errno == EAGAIN);
	ck_assert(ibv_get_async_event(p.e[0].id->verbs, &ae) == -1 && errno == EAGAIN);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_objects_of_another_context_are_strangers)
{
	struct pair p;
	struct ibv_context *c;
	struct ibv_pd *pd;
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };

	p_up(&p, USUAL);
	c = ibv_open_device(p.e[0].id->verbs->device);
	ck_assert_ptr_nonnull(c);
	pd = ibv_alloc_pd(c);
	rdma_destroy_qp(p.e[0].id);
	a.send_cq = a.recv_cq = p.e[0].cq;
	ck_assert_int_eq(rdma_create_qp(p.e[0].id, pd, &a), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(rdma_create_qp(p.e[0].id, p.e[0].pd, &a), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(c), 0);
	p_down(&p);
}
END_TEST

/* ends by SIGABRT */
START_TEST(test_fake_unacknowledged_event_is_caught)
{
	struct pair p;
	struct rdma_cm_event *ev;

	p_up(&p, USUAL);
	rdma_disconnect(p.e[0].id);
	ck_assert_int_eq(rdma_get_cm_event(p.e[0].ec, &ev), 0);
	p_qp_down(&p.e[0]);
}
END_TEST

START_TEST(test_fake_gid_table_follows_the_addresses)
{
	struct pair p;
	struct ibv_context *c;
	union ibv_gid g, first;
	struct ibv_async_event ae;
	static const uint8_t local[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 }, none[16];
	int at = -1;

	p_up(&p, USUAL);
	c = ibv_open_device(p.e[0].id->verbs->device);
	for (int i = 0; i < 8; i++) {
		ck_assert_int_eq(ibv_query_gid(c, 1, i, &g), 0);
		if (memcmp(g.raw, local, 16) == 0)
			at = i;
	}
	ck_assert_int_ge(at, 0);
	ck_assert_int_eq(ibv_query_gid(c, 1, 0, &first), 0);
	ck_assert_int_eq(ibv_query_gid(c, 1, 16, &g), -1);
	ck_assert_int_eq(fakeverbs_gid_hole("fake_lo", at), 0);
	ck_assert_int_eq(ibv_query_gid(c, 1, at, &g), 0);
	ck_assert_int_eq(memcmp(g.raw, none, 16), 0);
	ck_assert_int_eq(ibv_query_gid(c, 1, at + 1, &g), 0);
	ck_assert_int_eq(memcmp(g.raw, local, 16), 0);
	ck_assert_int_eq(ibv_get_async_event(c, &ae), 0);
	ck_assert_int_eq(ae.event_type, IBV_EVENT_GID_CHANGE);
	ibv_ack_async_event(&ae);
	ck_assert_int_eq(fakeverbs_gid_hole("fake_lo", -1), 0);
	ck_assert_int_eq(ibv_query_gid(c, 1, 1, &g), 0);
	if (memcmp(g.raw, none, 16) != 0) { /* two addresses: they change places */
		ck_assert_int_eq(fakeverbs_gid_shuffle("fake_lo"), 0);
		ck_assert_int_eq(ibv_query_gid(c, 1, 0, &g), 0);
		ck_assert_int_ne(memcmp(g.raw, first.raw, 16), 0);
	}
	ck_assert_int_eq(fakeverbs_gid_shuffle("fake_no"), -1);
	ck_assert_int_eq(ibv_close_device(c), 0);
	p_down(&p);
}
END_TEST

/* ---- data ---- */
START_TEST(test_fake_inline_source_is_free_at_once_and_lists_are_gathered)
{
	struct pair p;
	struct end *e = &p.e[0];
	struct ibv_sge sge[3];
	struct ibv_send_wr *bad, wr = { .wr_id = 4,
					.sg_list = sge,
					.num_sge = 3,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED };
	uint8_t own[30];

	p_up(&p, USUAL);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 100), 0);
	ck_assert_int_eq(p_recv(&p.e[1], 2, 1000, 5000), 0);
	p_fill(own, 30, 5);
	for (int i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){ .addr = (uintptr_t)own + 10u * (uint32_t)i, .length = 10 };
	ck_assert_int_eq(ibv_post_send(e->id->qp, &wr, &bad), 0);
	memset(own, 0, 30);
	p_ok(&p.e[1], 1);
	p_fill(own, 30, 5);
	ck_assert_int_eq(memcmp(p.e[1].mem, own, 30), 0);
	sge[0].length = 129; /* more than was agreed */
	ck_assert_int_ne(ibv_post_send(e->id->qp, &wr, &bad), 0);
	ck_assert_ptr_eq(bad, &wr);
	p_fill(e->mem, P_MEM, 9);
	for (int i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){ .addr = (uintptr_t)e->mem + 20000u * (uint32_t)i,
					   .length = i == 1 ? 4500 : 7,
					   .lkey = e->mr->lkey };
	wr.send_flags = IBV_SEND_SIGNALED;
	ck_assert_int_eq(ibv_post_send(e->id->qp, &wr, &bad), 0);
	ck_assert_uint_eq(p_wc(&p.e[1]).byte_len, 4514);
	ck_assert_int_eq(memcmp(p.e[1].mem + 1000, e->mem, 7), 0);
	ck_assert_int_eq(memcmp(p.e[1].mem + 1007, e->mem + 20000, 4500), 0);
	ck_assert_int_eq(memcmp(p.e[1].mem + 5507, e->mem + 40000, 7), 0);
	p_down(&p);
}
END_TEST

/* Bytes land in any order; when the note behind them is there, so are they. */
START_TEST(test_fake_writes_have_landed_before_the_immediate_behind_them)
{
	struct pair p;
	struct fakeverbs_counts before, after;
	uint32_t len = 60000;

	fakeverbs_seed((uint64_t)_i);
	fakeverbs_counts(&before);
	p_up(&p, USUAL);
	for (int round = 0; round < 20; round++) {
		struct ibv_wc wc;

		p_fill(p.e[0].mem, P_MEM, (uint32_t)(_i * 100 + round));
		ck_assert_int_eq(p_recv(&p.e[1], (uint64_t)round, 0, 0), 0);
		ck_assert_int_eq(p_write(&p, 0, 1, 0, 1000, len, -1), 0);
		ck_assert_int_eq(p_write(&p, 0, 2, 61000, 62000, 100, round), 0);
		wc = p_wc(&p.e[1]);
		ck_assert_uint_eq(wc.wr_id, (uint64_t)round);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		ck_assert(wc.wc_flags & IBV_WC_WITH_IMM);
		ck_assert_uint_eq(ntohl(wc.imm_data), (uint32_t)round);
		ck_assert_uint_eq(wc.byte_len, 100);
		ck_assert_int_eq(memcmp(p.e[1].mem + 1000, p.e[0].mem, len), 0);
		ck_assert_int_eq(memcmp(p.e[1].mem + 62000, p.e[0].mem + 61000, 100), 0);
		p_ok(&p.e[0], 1);
		p_ok(&p.e[0], 2);
	}
	fakeverbs_counts(&after);
	ck_assert_uint_eq(after.writes - before.writes, 40);
	if (_i == 0)
		ck_assert_uint_eq(after.disorder, before.disorder);
	else
		ck_assert_uint_gt(after.disorder, before.disorder);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_messages_and_completions_are_in_order)
{
	struct pair p;
	uint64_t sent = 0, got = 0, done = 0, posted = 0;

	fakeverbs_seed((uint64_t)_i);
	p_up(&p, USUAL);
	while (got < 500) {
		while (posted < 500 && posted - got < 20) {
			ck_assert_int_eq(p_recv(&p.e[1], posted, (uint32_t)(posted % 32) * 16, 16), 0);
			posted++;
		}
		while (sent < 500 && sent - done < 20) {
			*(uint64_t *)(void *)(p.e[0].mem + sent % 32 * 16) = sent;
			ck_assert_int_eq(
				p_send(&p.e[0], sent, (uint32_t)(sent % 32) * 16, 16, IBV_SEND_SIGNALED), 0);
			sent++;
		}
		p_ok(&p.e[1], got);
		ck_assert_uint_eq(*(uint64_t *)(void *)(p.e[1].mem + got % 32 * 16), got);
		got++;
		p_ok(&p.e[0], done++);
	}
	p_down(&p);
}
END_TEST

START_TEST(test_fake_completes_only_what_asks_for_it)
{
	struct pair p;
	struct shape s = USUAL;

	s.sig_all = _i;
	p_up(&p, s);
	for (uint64_t i = 0; i < 3; i++) {
		ck_assert_int_eq(p_recv(&p.e[1], i, 0, 16), 0);
		ck_assert_int_eq(p_send(&p.e[0], i, 0, 16, i == 2 ? IBV_SEND_SIGNALED : 0), 0);
		p_ok(&p.e[1], i);
	}
	for (uint64_t i = _i ? 0 : 2; i < 3; i++)
		p_ok(&p.e[0], i);
	p_none(&p.e[0], 5);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_sender_waits_for_a_receive)
{
	struct pair p;
	struct fakeverbs_counts c;

	p_up(&p, USUAL);
	ck_assert_int_eq(p_send(&p.e[0], 1, 0, 16, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(p_write(&p, 0, 2, 0, 0, 16, 9), 0);
	p_none(&p.e[0], 30);
	fakeverbs_counts(&c);
	ck_assert_uint_eq(c.rnr, 1);
	ck_assert_int_eq(p_recv(&p.e[1], 7, 0, 16), 0);
	p_ok(&p.e[0], 1);
	p_ok(&p.e[1], 7);
	p_none(&p.e[0], 10);
	ck_assert_int_eq(p_recv(&p.e[1], 8, 0, 16), 0);
	p_ok(&p.e[0], 2);
	p_ok(&p.e[1], 8);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_sender_gives_up_without_a_receive)
{
	struct pair p;
	struct shape s = USUAL;

	s.rnr = 1;
	p_up(&p, s);
	ck_assert_int_eq(p_send(&p.e[0], 1, 0, 16, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(p_wc(&p.e[0]).status, IBV_WC_RNR_RETRY_EXC_ERR);
	p_down(&p);
}
END_TEST

/* ---- waiting ---- */
static bool fires(struct end *e, int ms)
{
	struct ibv_cq *cq;
	void *arg;

	if (!p_readable(e->ch->fd, ms))
		return false;
	ck_assert_int_eq(ibv_get_cq_event(e->ch, &cq, &arg), 0);
	ck_assert_ptr_eq(cq, e->cq);
	ck_assert_ptr_eq(arg, e);
	ibv_ack_cq_events(cq, 1);
	return true;
}

START_TEST(test_fake_one_event_for_the_next_completion_after_arming)
{
	struct pair p;

	fakeverbs_seed(0);
	p_up(&p, USUAL);
	for (uint64_t i = 0; i < 8; i++)
		ck_assert_int_eq(p_recv(&p.e[1], i, 0, 16), 0);
	ck_assert_int_eq(p_send(&p.e[0], 0, 0, 16, IBV_SEND_SIGNALED), 0);
	p_ok(&p.e[0], 0);
	p_sleep(20); /* it is in the other queue */
	ck_assert(!fires(&p.e[1], 0)); /* was not armed */
	ck_assert_int_eq(ibv_req_notify_cq(p.e[1].cq, 0), 0);
	ck_assert(!fires(&p.e[1], 20)); /* was there before */
	for (uint64_t i = 1; i < 4; i++)
		ck_assert_int_eq(p_send(&p.e[0], i, 0, 16, IBV_SEND_SIGNALED), 0);
	ck_assert(fires(&p.e[1], 5000));
	for (uint64_t i = 0; i < 4; i++)
		p_ok(&p.e[1], i);
	ck_assert(!fires(&p.e[1], 20)); /* one for each arming */
	ck_assert_int_eq(ibv_req_notify_cq(p.e[1].cq, 1), 0);
	ck_assert_int_eq(p_send(&p.e[0], 4, 0, 16, 0), 0);
	p_ok(&p.e[1], 4);
	ck_assert(!fires(&p.e[1], 20)); /* not solicited */
	ck_assert_int_eq(p_send(&p.e[0], 5, 0, 16, IBV_SEND_SOLICITED), 0);
	ck_assert(fires(&p.e[1], 5000));
	p_down(&p);
}
END_TEST

START_TEST(test_fake_unacknowledged_completion_event_is_caught)
{
	struct pair p;
	struct ibv_cq *cq;
	void *arg;

	p_up(&p, USUAL);
	ck_assert_int_eq(ibv_req_notify_cq(p.e[1].cq, 0), 0);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 16), 0);
	ck_assert_int_eq(p_send(&p.e[0], 1, 0, 16, 0), 0);
	ck_assert_int_eq(ibv_get_cq_event(p.e[1].ch, &cq, &arg), 0);
	p_qp_down(&p.e[1]);
	ibv_destroy_cq(cq);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fakeverbs");
	TCase *c = tcase_create("connections"), *d = tcase_create("data"), *w = tcase_create("waiting");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_loop_test(c, test_fake_connects_and_moves_bytes, 0, 4);
	tcase_add_test(c, test_fake_private_data_has_the_lengths_of_the_field);
	tcase_add_test(c, test_fake_reject_carries_data_and_ends_the_queue_pair);
	tcase_add_test(c, test_fake_nobody_listens);
	tcase_add_test(c, test_fake_port_belongs_to_one);
	tcase_add_test(c, test_fake_disconnect_is_told_to_both);
	tcase_add_test(c, test_fake_request_of_a_listener_that_goes_is_rejected);
	tcase_add_test(c, test_fake_descriptors_can_be_non_blocking);
	tcase_add_test(c, test_fake_objects_of_another_context_are_strangers);
	tcase_add_test_raise_signal(c, test_fake_unacknowledged_event_is_caught, SIGABRT);
	tcase_add_test(c, test_fake_gid_table_follows_the_addresses);
	suite_add_tcase(s, c);
	tcase_set_timeout(d, 30);
	tcase_add_test(d, test_fake_inline_source_is_free_at_once_and_lists_are_gathered);
	tcase_add_loop_test(d, test_fake_writes_have_landed_before_the_immediate_behind_them, 0, 4);
	tcase_add_loop_test(d, test_fake_messages_and_completions_are_in_order, 0, 3);
	tcase_add_loop_test(d, test_fake_completes_only_what_asks_for_it, 0, 2);
	tcase_add_test(d, test_fake_sender_waits_for_a_receive);
	tcase_add_test(d, test_fake_sender_gives_up_without_a_receive);
	suite_add_tcase(s, d);
	tcase_set_timeout(w, 30);
	tcase_add_test(w, test_fake_one_event_for_the_next_completion_after_arming);
	tcase_add_test_raise_signal(w, test_fake_unacknowledged_completion_event_is_caught, SIGABRT);
	suite_add_tcase(s, w);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
