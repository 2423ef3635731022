/* SPDX-License-Identifier: Apache-2.0 */
/* fakeverbs when something goes wrong: violations, flushes, late writes, cut cables, dead processes. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "fakeverbs_pair.h"

/* ---- violations ---- */
START_TEST(test_fake_forbidden_write_ends_both_queue_pairs)
{
	struct pair p;
	struct shape s = USUAL;
	struct ibv_sge sge = { .length = 16 };
	struct ibv_send_wr *bad,
		wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
	uint64_t flushed = 0;

	if (_i == 0)
		s.access = IBV_ACCESS_LOCAL_WRITE;
	p_up(&p, s);
	memset(p.e[0].mem, 0xee, P_MEM);
	sge.addr = (uintptr_t)p.e[0].mem;
	sge.lkey = p.e[0].mr->lkey;
	wr.wr.rdma.remote_addr = (uintptr_t)p.e[1].mem;
	wr.wr.rdma.rkey = p.e[1].mr->rkey;
	if (_i == 1)
		wr.wr.rdma.rkey = p.e[1].mr->lkey;
	if (_i == 2)
		wr.wr.rdma.remote_addr += P_MEM - 15;
	if (_i == 3)
		wr.wr.rdma.remote_addr -= 1;
	if (_i == 4)
		wr.wr.rdma.rkey += 1;
	if (_i == 5) {
		ck_assert_int_eq(ibv_dereg_mr(p.e[1].mr), 0);
		p.e[1].mr = ibv_reg_mr(p.e[1].pd, p.e[1].mem, P_MEM, s.access);
	}
	ck_assert_int_eq(p_recv(&p.e[1], 9, 0, 16), 0);
	ck_assert_int_eq(p_recv(&p.e[0], 8, 0, 16), 0);
	ck_assert_int_eq(ibv_post_send(p.e[0].id->qp, &wr, &bad), 0);
	ck_assert_int_eq(p_send(&p.e[0], 4, 0, 16, 0), 0);
	p_is(&p.e[0], 3, IBV_WC_REM_ACCESS_ERR); /* although it asked for none */
	for (int i = 0; i < 2; i++) { /* two queues have no order between them */
		struct ibv_wc wc = p_wc(&p.e[0]);

		ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		flushed |= wc.wr_id;
	}
	ck_assert_uint_eq(flushed, 4 | 8);
	p_is(&p.e[1], 9, IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < P_MEM; i++)
		ck_assert_int_eq(p.e[1].mem[i], 0);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_send_that_is_too_long)
{
	struct pair p;

	p_up(&p, USUAL);
	ck_assert_int_eq(p_recv(&p.e[1], 9, 0, 15), 0);
	ck_assert_int_eq(p_send(&p.e[0], 4, 0, 16, 0), 0);
	p_is(&p.e[1], 9, IBV_WC_LOC_LEN_ERR);
	p_is(&p.e[0], 4, IBV_WC_REM_INV_REQ_ERR);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_local_key_is_checked)
{
	struct pair p;

	p_up(&p, USUAL);
	ck_assert_int_eq(p_recv(&p.e[1], 9, 0, 16), 0);
	p.e[0].mr->lkey ^= 1;
	ck_assert_int_eq(p_send(&p.e[0], 4, 0, 16, 0), 0);
	p_is(&p.e[0], 4, IBV_WC_LOC_PROT_ERR);
	p_none(&p.e[1], 10);
	p_down(&p);
}
END_TEST

/* ---- the error state ---- */
START_TEST(test_fake_error_state_flushes_everything_in_order)
{
	struct pair p;
	uint64_t sends = 0, recvs = 100;

	fakeverbs_seed((uint64_t)_i);
	p_up(&p, USUAL);
	for (uint64_t i = 0; i < 20; i++) {
		ck_assert_int_eq(p_send(&p.e[0], i, 0, 16, 0), 0); /* no receive there: outstanding */
		ck_assert_int_eq(p_recv(&p.e[0], 100 + i, 0, 16), 0);
	}
	p_error(&p.e[0]);
	ck_assert_int_eq(p_send(&p.e[0], 20, 0, 16, 0), 0); /* afterwards as well */
	ck_assert_int_eq(p_recv(&p.e[0], 120, 0, 16), 0);
	while (sends < 21 || recvs < 121) {
		struct ibv_wc wc = p_wc(&p.e[0]);

		ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		ck_assert_uint_eq(wc.qp_num, p.e[0].id->qp->qp_num);
		ck_assert_uint_eq(wc.wr_id, wc.wr_id >= 100 ? recvs : sends);
		recvs += wc.wr_id >= 100;
		sends += wc.wr_id < 100;
	}
	p_none(&p.e[0], 5);
	p_none(&p.e[1], 0);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_sender_is_not_answered_by_a_queue_pair_in_error)
{
	struct pair p;

	p_up(&p, USUAL);
	if (_i == 0)
		p_error(&p.e[1]);
	else
		p_qp_down(&p.e[1]);
	ck_assert_int_eq(p_send(&p.e[0], 4, 0, 16, 0), 0);
	p_is(&p.e[0], 4, IBV_WC_RETRY_EXC_ERR);
	p_down(&p);
}
END_TEST

/* What was in flight when the sender died lands, unless the receiver's queue pair is in the error state. */
START_TEST(test_fake_held_writes)
{
	struct pair p;
	struct fakeverbs_counts c;

	p_up(&p, USUAL);
	memset(p.e[0].mem, 0x77, P_MEM);
	fakeverbs_hold(2);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 0), 0);
	ck_assert_int_eq(p_write(&p, 0, 1, 0, 0, 100, -1), 0);
	ck_assert_int_eq(p_write(&p, 0, 2, 0, 200, 100, 5), 0);
	for (int i = 0; fakeverbs_held() < 2; i++) {
		ck_assert_int_lt(i, 5000);
		p_sleep(1);
	}
	p_none(&p.e[1], 5);
	ck_assert_int_eq(p.e[1].mem[0] | p.e[1].mem[99] | p.e[1].mem[200] | p.e[1].mem[299], 0);
	p_error(&p.e[0]);
	p_qp_down(&p.e[0]);
	if (_i == 0) {
		ck_assert_int_ge(fakeverbs_release(), 2);
		ck_assert_int_eq(p.e[1].mem[0] & p.e[1].mem[99] & p.e[1].mem[200] & p.e[1].mem[299], 0x77);
		p_ok(&p.e[1], 1);
	} else {
		p_error(&p.e[1]);
		ck_assert_int_eq(fakeverbs_held(), 0);
		ck_assert_int_eq(fakeverbs_release(), 0);
		p_is(&p.e[1], 1, IBV_WC_WR_FLUSH_ERR);
		ck_assert_int_eq(p.e[1].mem[0] | p.e[1].mem[99] | p.e[1].mem[200] | p.e[1].mem[299], 0);
		fakeverbs_counts(&c);
		ck_assert_uint_ge(c.dropped, 2);
	}
	p_down(&p);
}
END_TEST

/* ---- limits ---- */
START_TEST(test_fake_queues_are_as_long_as_asked_for_until_polled)
{
	struct pair p;
	struct fakeverbs_counts c;

	p_up(&p, USUAL);
	for (uint64_t i = 0; i < 32; i++) {
		ck_assert_int_eq(p_recv(&p.e[1], i, 0, 16), 0);
		ck_assert_int_eq(p_send(&p.e[0], i, 0, 16, i == 31 ? IBV_SEND_SIGNALED : 0), 0);
	}
	p_sleep(50); /* they are done by now, but nobody has seen it */
	ck_assert_int_eq(p_send(&p.e[0], 32, 0, 16, 0), ENOMEM);
	ck_assert_int_eq(p_recv(&p.e[1], 32, 0, 16), ENOMEM);
	fakeverbs_counts(&c);
	ck_assert_uint_eq(c.queue_full, 2);
	p_ok(&p.e[0], 31);
	p_ok(&p.e[1], 0);
	ck_assert_int_eq(p_recv(&p.e[1], 32, 0, 16), 0);
	ck_assert_int_eq(p_recv(&p.e[1], 33, 0, 16), ENOMEM);
	for (uint64_t i = 0; i < 32; i++)
		ck_assert_int_eq(p_send(&p.e[0], 33 + i, 0, 16, 0), 0);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_completion_queue_overflow_is_fatal_to_it)
{
	struct pair p;
	struct shape s = USUAL;
	struct ibv_async_event ae;
	struct fakeverbs_counts c;

	s.cqe = 4;
	p_up(&p, s);
	for (uint64_t i = 0; i < 5; i++) {
		ck_assert_int_eq(p_recv(&p.e[1], i, 0, 16), 0);
		ck_assert_int_eq(p_send(&p.e[0], i, 0, 16, 0), 0);
	}
	ck_assert(p_readable(p.e[1].id->verbs->async_fd, 5000));
	ck_assert_int_eq(ibv_get_async_event(p.e[1].id->verbs, &ae), 0);
	ck_assert_int_eq(ae.event_type, IBV_EVENT_CQ_ERR);
	ck_assert_ptr_eq(ae.element.cq, p.e[1].cq);
	ibv_ack_async_event(&ae);
	for (uint64_t i = 0; i < 4; i++)
		p_ok(&p.e[1], i);
	p_none(&p.e[1], 5);
	fakeverbs_counts(&c);
	ck_assert_uint_eq(c.cq_overflows, 1);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_what_is_in_use_is_busy)
{
	struct pair p;

	p_up(&p, USUAL);
	ck_assert_int_eq(ibv_destroy_cq(p.e[0].cq), EBUSY);
	ck_assert_int_eq(ibv_destroy_comp_channel(p.e[0].ch), EBUSY);
	ck_assert_int_eq(ibv_dealloc_pd(p.e[0].pd), EBUSY);
	p_qp_down(&p.e[0]);
	ck_assert_int_eq(ibv_dealloc_pd(p.e[0].pd), EBUSY); /* its region */
	p_down(&p);
}
END_TEST

/* ---- memory ---- */
START_TEST(test_fake_pinned_region_keeps_its_pages)
{
	struct pair p;
	struct ibv_mr *mr;
	uint8_t *at;
	struct ibv_sge sge = { .length = 64 };
	struct ibv_send_wr *bad, wr = { .wr_id = 3,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED };
	int shared = _i == 1 ? MAP_SHARED : MAP_PRIVATE;

	setenv("FAKEVERBS_PIN", "1", 1);
	p_up(&p, USUAL);
	at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, shared | MAP_ANONYMOUS, -1, 0);
	strcpy((char *)at, "before");
	mr = ibv_reg_mr(p.e[1].pd, at, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ck_assert_ptr_nonnull(mr);
	ck_assert_str_eq((char *)at, "before");
	memset(p.e[0].mem, 0x31, 64);
	sge.addr = (uintptr_t)p.e[0].mem;
	sge.lkey = p.e[0].mr->lkey;
	wr.wr.rdma.remote_addr = (uintptr_t)at;
	wr.wr.rdma.rkey = mr->rkey;
	ck_assert_int_eq(ibv_post_send(p.e[0].id->qp, &wr, &bad), 0);
	p_ok(&p.e[0], 3);
	ck_assert_int_eq(at[63], 0x31);
	ck_assert_ptr_eq(
		mmap(at, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
	ck_assert_int_eq(ibv_post_send(p.e[0].id->qp, &wr, &bad), 0);
	p_ok(&p.e[0], 3);
	ck_assert_int_eq(at[0] | at[63], 0); /* the device went on to the old pages */
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	munmap(at, 8192);
	ck_assert_ptr_null(ibv_reg_mr(p.e[1].pd, at, 8192, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, EFAULT);
	p_down(&p);
}
END_TEST

/* ---- failures on purpose, leaks ---- */
START_TEST(test_fake_planned_failure_strikes_once_and_destroys_nevertheless)
{
	struct pair p;
	uint64_t calls;
	struct ibv_pd *pd;

	p_up(&p, USUAL);
	calls = fakeverbs_calls();
	ck_assert_int_eq(p_recv(&p.e[1], 0, 0, 16), 0);
	ck_assert_uint_eq(fakeverbs_calls(), calls + 1);
	p_none(&p.e[1], 0);
	ck_assert_uint_eq(fakeverbs_calls(), calls + 1); /* nothing to poll: not counted */
	fakeverbs_fail_at(1, 0);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 16), ENOMEM);
	ck_assert(fakeverbs_failed());
	fakeverbs_fail_at(2, ENOSPC);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 16), 0);
	ck_assert(!fakeverbs_failed());
	ck_assert_int_eq(p_send(&p.e[0], 1, 0, 16, 0), ENOSPC);
	ck_assert_int_eq(p_send(&p.e[0], 1, 0, 16, 0), 0);
	fakeverbs_fail_at(1, 0);
	ck_assert_int_ne(ibv_req_notify_cq(p.e[0].cq, 0), 0);
	fakeverbs_fail_at(1, 0);
	ck_assert_ptr_null(ibv_alloc_pd(p.e[0].id->verbs));
	pd = ibv_alloc_pd(p.e[0].id->verbs);
	fakeverbs_fail_at(1, 0);
	ck_assert_int_ne(ibv_dealloc_pd(pd), 0); /* is gone all the same */
	p_down(&p);
}
END_TEST

START_TEST(test_fake_leak_is_told_at_exit)
{
	static struct rdma_event_channel *kept; /* no leak to others who look for some */
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (_i == 0)
			setenv("FAKEVERBS_LEAKS", "1", 1);
		if (_i != 2)
			kept = rdma_create_event_channel();
		else
			rdma_destroy_event_channel(rdma_create_event_channel());
		exit(kept == NULL && _i != 2 ? 3 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), _i == 0 ? 1 : 0);
}
END_TEST

/* ---- cables ---- */
static void next_async(struct ibv_context *c, enum ibv_event_type type)
{
	struct ibv_async_event ae;

	ck_assert(p_readable(c->async_fd, 5000));
	ck_assert_int_eq(ibv_get_async_event(c, &ae), 0);
	ck_assert_str_eq(ibv_event_type_str(ae.event_type), ibv_event_type_str(type));
	ibv_ack_async_event(&ae);
}

START_TEST(test_fake_cut_cable_stalls_and_then_ends)
{
	struct pair p;
	struct shape s = USUAL;
	struct ibv_context *own;
	struct ibv_port_attr a;

	s.timeout = _i == 0 ? 18 : 12; /* 3 * 1 s, 3 * 17 ms */
	p_up(&p, s);
	own = ibv_open_device(p.e[0].id->verbs->device);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 16), 0);
	ck_assert_int_eq(fakeverbs_cut("fake_lo"), 0);
	next_async(own, IBV_EVENT_PORT_ERR);
	next_async(p.e[0].id->verbs, IBV_EVENT_PORT_ERR);
	ck_assert_int_eq(ibv_query_port(own, 1, (struct _compat_ibv_port_attr *)(void *)&a), 0);
	ck_assert_int_eq(a.state, IBV_PORT_DOWN);
	ck_assert_int_eq(p_send(&p.e[0], 2, 0, 16, IBV_SEND_SIGNALED), 0);
	if (_i == 1) {
		p_is(&p.e[0], 2, IBV_WC_RETRY_EXC_ERR);
		p_none(&p.e[1], 5);
	} else {
		p_none(&p.e[0], 20);
		ck_assert_int_eq(fakeverbs_mend("fake_lo"), 0);
		next_async(own, IBV_EVENT_PORT_ACTIVE);
		p_ok(&p.e[0], 2);
		p_ok(&p.e[1], 1);
	}
	ck_assert_int_eq(ibv_close_device(own), 0);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_request_over_a_cut_cable_is_unreachable)
{
	struct pair p;
	struct shape s = USUAL;

	p_listen(&p);
	ck_assert_int_eq(fakeverbs_cut("fake_lo"), 0);
	p_connect(&p, &s, NULL, 0);
	p_event(&p.e[0], RDMA_CM_EVENT_UNREACHABLE, NULL);
	p_down(&p);
}
END_TEST

START_TEST(test_fake_fatal_device_takes_all_with_it)
{
	struct pair p;

	p_up(&p, USUAL);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 16), 0);
	ck_assert_int_eq(fakeverbs_fatal("fake_lo"), 0);
	next_async(p.e[0].id->verbs, IBV_EVENT_DEVICE_FATAL);
	p_event(&p.e[0], RDMA_CM_EVENT_DEVICE_REMOVAL, NULL);
	p_is(&p.e[1], 1, IBV_WC_WR_FLUSH_ERR);
	ck_assert_ptr_null(ibv_alloc_pd(p.e[0].id->verbs));
	ck_assert_int_eq(errno, EIO);
	p_down(&p);
}
END_TEST

/* As soft-RoCE with ports that differ, and queue pairs that librdmacm moves. */
START_TEST(test_fake_packets_larger_than_a_port_takes_never_arrive)
{
	struct pair p;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	const char *dev;

	p_listen(&p);
	dev = ibv_get_device_name(p.e[1].anchor->verbs->device);
	ck_assert_int_eq(fakeverbs_mtu(dev, 4096, 1024), 0);
	p_request(&p, &USUAL, NULL, 0, NULL);
	p_objects(&p.e[1], &USUAL);
	ck_assert_int_eq(rdma_accept(p.e[1].id, &(struct rdma_conn_param){ .rnr_retry_count = 7 }), 0);
	for (int i = 0; i < 2; i++) {
		p_event(&p.e[i], RDMA_CM_EVENT_ESTABLISHED, NULL);
		ck_assert_int_eq(ibv_query_qp(p.e[i].id->qp, &a, IBV_QP_PATH_MTU, &init), 0);
		ck_assert_int_eq(a.path_mtu, IBV_MTU_4096); /* the connecting end's */
	}
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 8192), 0);
	ck_assert_int_eq(p_recv(&p.e[1], 2, 0, 8192), 0);
	ck_assert_int_eq(p_send(&p.e[0], 3, 0, 1024, IBV_SEND_SIGNALED), 0);
	p_ok(&p.e[1], 1);
	p_ok(&p.e[0], 3);
	ck_assert_int_eq(p_send(&p.e[0], 4, 0, 1025, IBV_SEND_SIGNALED), 0);
	p_is(&p.e[0], 4, IBV_WC_RETRY_EXC_ERR);
	p_none(&p.e[1], 5);
	ck_assert_int_eq(fakeverbs_mtu(dev, 0, 0), 0);
	p_down(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fakeverbs_faults");
	TCase *v = tcase_create("violations"), *e = tcase_create("error"), *l = tcase_create("limits");
	TCase *f = tcase_create("failures"), *c = tcase_create("cables");
	SRunner *r;
	int failed;

	tcase_set_timeout(v, 30);
	tcase_add_loop_test(v, test_fake_forbidden_write_ends_both_queue_pairs, 0, 6);
	tcase_add_test(v, test_fake_send_that_is_too_long);
	tcase_add_test(v, test_fake_local_key_is_checked);
	suite_add_tcase(s, v);
	tcase_set_timeout(e, 30);
	tcase_add_loop_test(e, test_fake_error_state_flushes_everything_in_order, 0, 4);
	tcase_add_loop_test(e, test_fake_sender_is_not_answered_by_a_queue_pair_in_error, 0, 2);
	tcase_add_loop_test(e, test_fake_held_writes, 0, 2);
	suite_add_tcase(s, e);
	tcase_set_timeout(l, 30);
	tcase_add_test(l, test_fake_queues_are_as_long_as_asked_for_until_polled);
	tcase_add_test(l, test_fake_completion_queue_overflow_is_fatal_to_it);
	tcase_add_test(l, test_fake_what_is_in_use_is_busy);
	suite_add_tcase(s, l);
	tcase_set_timeout(f, 30);
	tcase_add_loop_test(f, test_fake_pinned_region_keeps_its_pages, 0, 2);
	tcase_add_test(f, test_fake_planned_failure_strikes_once_and_destroys_nevertheless);
	tcase_add_loop_test(f, test_fake_leak_is_told_at_exit, 0, 3);
	suite_add_tcase(s, f);
	tcase_set_timeout(c, 30);
	tcase_add_loop_test(c, test_fake_cut_cable_stalls_and_then_ends, 0, 2);
	tcase_add_test(c, test_fake_request_over_a_cut_cable_is_unreachable);
	tcase_add_test(c, test_fake_fatal_device_takes_all_with_it);
	tcase_add_test(c, test_fake_packets_larger_than_a_port_takes_never_arrive);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
