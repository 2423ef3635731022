/* SPDX-License-Identifier: Apache-2.0 */
/* Two connected queue pairs on fakeverbs, for its own tests: end 0 connects, end 1 accepts. */
#ifndef FAKEVERBS_PAIR_H
#define FAKEVERBS_PAIR_H
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../fakeverbs/fakeverbs.h"

#define P_MEM 65536

struct end {
	struct rdma_event_channel *ec;
	struct rdma_cm_id *anchor, *id; /* anchor: bound, at the accepting end it listens */
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *mem;
};
struct pair {
	struct end e[2];
	struct sockaddr_in addr;
};
struct shape {
	int cqe;
	uint32_t send_wr, recv_wr;
	int sig_all, access;
	uint8_t rnr, timeout;
};
#define USUAL \
	(struct shape) \
	{ \
		.cqe = 256, .send_wr = 32, .recv_wr = 32, \
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, .rnr = 7, .timeout = 8 \
	}

static inline void p_sleep(int ms)
{
	struct timespec t = { .tv_nsec = ms * 1000000L };

	nanosleep(&t, NULL);
}

static inline bool p_readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* The next event, which must be `type` (TIMEWAIT_EXIT passed over); data: of up to 196 bytes, or NULL. */
static inline struct rdma_cm_id *p_event(struct end *e, enum rdma_cm_event_type type, void *data)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	do {
		ck_assert_msg(p_readable(e->ec->fd, 10000), "no event, %s was expected",
			      rdma_event_str(type));
		ck_assert_int_eq(rdma_get_cm_event(e->ec, &ev), 0);
		id = ev->id;
		if (ev->event == RDMA_CM_EVENT_TIMEWAIT_EXIT && type != ev->event) {
			rdma_ack_cm_event(ev);
			ev = NULL;
		}
	} while (ev == NULL);
	ck_assert_str_eq(rdma_event_str(ev->event), rdma_event_str(type));
	if (data != NULL)
		memcpy(data, ev->param.conn.private_data, ev->param.conn.private_data_len);
	ck_assert_int_eq(rdma_ack_cm_event(ev), 0);
	return id;
}

static inline void p_memory(struct end *e, struct ibv_context *c, const struct shape *s)
{
	e->pd = ibv_alloc_pd(c);
	ck_assert_ptr_nonnull(e->pd);
	e->mem = aligned_alloc(65536, P_MEM);
	memset(e->mem, 0, P_MEM);
	e->mr = ibv_reg_mr(e->pd, e->mem, P_MEM, s->access);
	ck_assert_ptr_nonnull(e->mr);
}

static inline void p_objects(struct end *e, const struct shape *s)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
				      .sq_sig_all = s->sig_all,
				      .cap = { .max_send_wr = s->send_wr,
					       .max_recv_wr = s->recv_wr,
					       .max_send_sge = 4,
					       .max_recv_sge = 4,
					       .max_inline_data = 128 } };

	if (e->pd == NULL)
		p_memory(e, e->id->verbs, s);
	e->ch = ibv_create_comp_channel(e->id->verbs);
	ck_assert_ptr_nonnull(e->ch);
	e->cq = ibv_create_cq(e->id->verbs, s->cqe, e, e->ch, 0);
	ck_assert_ptr_nonnull(e->cq);
	a.send_cq = a.recv_cq = e->cq;
	ck_assert_int_eq(rdma_create_qp(e->id, e->pd, &a), 0);
}

static inline void p_listen(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	p->addr.sin_family = AF_INET;
	p->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 2; i++) {
		p->e[i].ec = rdma_create_event_channel();
		ck_assert_ptr_nonnull(p->e[i].ec);
	}
	ck_assert_int_eq(rdma_create_id(p->e[1].ec, &p->e[1].anchor, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(p->e[1].anchor, (struct sockaddr *)&p->addr), 0);
	ck_assert_int_eq(rdma_listen(p->e[1].anchor, 4), 0);
	p->addr.sin_port = rdma_get_src_port(p->e[1].anchor);
	ck_assert_int_ne(p->addr.sin_port, 0);
}

/* End 0, up to its request. */
static inline void p_connect(struct pair *p, const struct shape *s, const void *data, uint8_t len)
{
	struct rdma_conn_param c = {
		.private_data = data, .private_data_len = len, .retry_count = 2, .rnr_retry_count = s->rnr
	};
	uint8_t timeout = s->timeout;

	ck_assert_int_eq(rdma_create_id(p->e[0].ec, &p->e[0].id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(p->e[0].id, NULL, (struct sockaddr *)&p->addr, 1000), 0);
	p_event(&p->e[0], RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	ck_assert_int_eq(rdma_set_option(p->e[0].id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1),
			 0);
	ck_assert_int_eq(rdma_resolve_route(p->e[0].id, 1000), 0);
	p_event(&p->e[0], RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	p_objects(&p->e[0], s);
	ck_assert_int_eq(rdma_connect(p->e[0].id, &c), 0);
}

/* Up to the request in the hands of end 1. */
static inline void p_request(struct pair *p, const struct shape *s, const void *data, uint8_t len, void *got)
{
	uint8_t timeout = s->timeout;

	p_connect(p, s, data, len);
	p->e[1].id = p_event(&p->e[1], RDMA_CM_EVENT_CONNECT_REQUEST, got);
	ck_assert_int_eq(rdma_set_option(p->e[1].id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1),
			 0);
}

static inline void p_up(struct pair *p, struct shape s)
{
	struct rdma_conn_param c = { .rnr_retry_count = s.rnr };

	p_listen(p);
	p_request(p, &s, NULL, 0, NULL);
	p_objects(&p->e[1], &s);
	ck_assert_int_eq(rdma_accept(p->e[1].id, &c), 0);
	p_event(&p->e[0], RDMA_CM_EVENT_ESTABLISHED, NULL);
	p_event(&p->e[1], RDMA_CM_EVENT_ESTABLISHED, NULL);
}

static inline void p_qp_down(struct end *e)
{
	if (e->id != NULL && e->id->qp != NULL)
		rdma_destroy_qp(e->id);
	if (e->id != NULL)
		ck_assert_int_eq(rdma_destroy_id(e->id), 0);
	e->id = NULL;
}

/* Everything, and nothing may be left. */
static inline void p_down(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		struct end *e = &p->e[i];

		p_qp_down(e);
		if (e->anchor != NULL)
			ck_assert_int_eq(rdma_destroy_id(e->anchor), 0);
		if (e->mr != NULL)
			ck_assert_int_eq(ibv_dereg_mr(e->mr), 0);
		if (e->cq != NULL)
			ck_assert_int_eq(ibv_destroy_cq(e->cq), 0);
		if (e->ch != NULL)
			ck_assert_int_eq(ibv_destroy_comp_channel(e->ch), 0);
		if (e->pd != NULL)
			ck_assert_int_eq(ibv_dealloc_pd(e->pd), 0);
		rdma_destroy_event_channel(e->ec);
		free(e->mem);
	}
	if (fakeverbs_open_objects() != 0)
		fakeverbs_print_objects();
	ck_assert_int_eq(fakeverbs_open_objects(), 0);
}

static inline int p_recv(struct end *e, uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->mem + off, .length = len, .lkey = e->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return ibv_post_recv(e->id->qp, &wr, &bad);
}

static inline int p_send(struct end *e, uint64_t id, uint32_t off, uint32_t len, unsigned flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->mem + off, .length = len, .lkey = e->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags
	};

	return ibv_post_send(e->id->qp, &wr, &bad);
}

/* From `off` of e to `to` of the other; imm >= 0: with it. */
static inline int p_write(struct pair *p, int i, uint64_t id, uint32_t off, uint32_t to, uint32_t len,
			  int imm)
{
	struct end *e = &p->e[i], *o = &p->e[1 - i];
	struct ibv_sge sge = { .addr = (uintptr_t)e->mem + off, .length = len, .lkey = e->mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .wr_id = id,
		       .sg_list = &sge,
		       .num_sge = 1,
		       .opcode = imm < 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM,
		       .send_flags = IBV_SEND_SIGNALED,
		       .imm_data = htonl((uint32_t)imm),
		       .wr.rdma = { .remote_addr = (uintptr_t)o->mem + to, .rkey = o->mr->rkey } };

	return ibv_post_send(e->id->qp, &wr, &bad);
}

/* The next completion; fails after 10 s. */
static inline struct ibv_wc p_wc(struct end *e)
{
	struct ibv_wc wc;
	int n;

	for (int ms = 0; (n = ibv_poll_cq(e->cq, 1, &wc)) == 0; ms++) {
		ck_assert_msg(ms < 20000, "no completion");
		if (ms > 50)
			p_sleep(1);
	}
	ck_assert_int_eq(n, 1);
	return wc;
}

static inline void p_none(struct end *e, int ms)
{
	struct ibv_wc wc;

	for (; ms >= 0; ms--) {
		ck_assert_int_eq(ibv_poll_cq(e->cq, 1, &wc), 0);
		p_sleep(1);
	}
}

static inline void p_is(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = p_wc(e);

	ck_assert_uint_eq(wc.wr_id, id);
	ck_assert_str_eq(ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

static inline void p_ok(struct end *e, uint64_t id)
{
	p_is(e, id, IBV_WC_SUCCESS);
}

static inline void p_error(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	ck_assert_int_eq(ibv_modify_qp(e->id->qp, &a, IBV_QP_STATE), 0);
}

static inline void p_fill(uint8_t *at, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++) {
		seed = seed * 1103515245u + 12345u;
		at[i] = (uint8_t)(seed >> 16);
	}
}
#endif
