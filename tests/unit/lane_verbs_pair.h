/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends of a verbs lane over tests/fakeverbs (no hardware), with a table of functions for each end that a
 * test may change, and the log in a file.
 */
#ifndef LANE_VERBS_PAIR_H
#define LANE_VERBS_PAIR_H
#define HARNESS_VERBS 1
#include <sys/mman.h>
#include "lane/verbs_internal.h"
#include "lane_harness.h"

struct vpair {
	struct pair p;
	struct verbs_lib lib[2];
	struct verbs_tune tune[2];
	int log;
};

static inline struct verbs_lane *v_lane(struct vpair *v, int i)
{
	return (struct verbs_lane *)(void *)v->p.e[i].l;
}

static inline sircl_result_t v_open_end(struct vpair *v, int i)
{
	struct end *e = &v->p.e[i];
	struct lane_cfg cfg = h_cfg(e);

	cfg.provider = &v->tune[i];
	CHECK(v->p.ops->open(&cfg, &e->l, &e->addr));
	return v->p.ops->reg(e->l, 1, arena_base(e->send), H_ARENA, &e->send_mem, NULL);
}

/* Both ends, no lane yet. */
static inline void v_init(struct vpair *v)
{
	memset(v, 0, sizeof(*v));
	v->p.ops = &lane_verbs_ops;
	v->log = memfd_create("log", MFD_CLOEXEC);
	ck_assert_int_ge(v->log, 0);
	for (int i = 0; i < 2; i++) {
		h_end_init(&v->p, i);
		v->p.e[i].ctx.log.fd = v->log;
		v->p.e[i].ctx.log.level = LOG_INFO;
		v->p.e[i].ctx.log.subsys = LOG_ALL;
		v->lib[i] = fakeverbs_lib;
		v->tune[i].lib = &v->lib[i];
	}
}

static inline void v_open(struct vpair *v)
{
	v_init(v);
	for (int i = 0; i < 2; i++)
		if (v_open_end(v, i) != SIRCL_SUCCESS)
			ck_abort_msg("%s", error_last()->msg);
}

/* A twentieth of the clock, for time limits that a busy machine must not exceed. */
static inline uint64_t v_slow_clock(void *arg)
{
	return h_clock(arg) / 20;
}

/* How often the log has this text. */
static inline int v_logged(const struct vpair *v, const char *text)
{
	static char buf[1 << 16];
	ssize_t n = pread(v->log, buf, sizeof(buf) - 1, 0);
	int count = 0;

	buf[n > 0 ? n : 0] = '\0';
	for (const char *p = buf; (p = strstr(p, text)) != NULL; p++)
		count++;
	return count;
}

/* Everything is closed, nothing of the device is left. */
static inline void v_close(struct vpair *v)
{
	for (int i = 0; i < 2; i++)
		v->p.e[i].ctx.log.fd = 2; /* the harness closes only what log_init opened */
	h_close(&v->p);
	close(v->log);
	if (fakeverbs_open_objects() != 0) {
		fakeverbs_print_objects();
		ck_abort_msg("%d objects of the device were left open", fakeverbs_open_objects());
	}
}
/* ---- somebody who knows no key ---- */
struct stranger {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	bool has_qp;
};

/* Asks for a connection with these bytes, and says nothing more. */
static inline void knock(struct vpair *v, struct stranger *s, const void *data, uint8_t n)
{
	struct rdma_conn_param param = { .private_data = data,
					 .private_data_len = n,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 6,
					 .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC
	};
	const struct verbs_cm *cm = &fakeverbs_lib.cm;
	struct sockaddr_storage to;
	struct rdma_cm_event *e;

	memset(s, 0, sizeof(*s));
	s->ch = cm->rdma_create_event_channel();
	ck_assert_ptr_nonnull(s->ch);
	ck_assert_int_eq(cm->rdma_create_id(s->ch, &s->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(verbs_addr_unpack(v_lane(v, 0), &v->p.e[1].addr, &to), SIRCL_SUCCESS);
	ck_assert_int_eq(cm->rdma_resolve_addr(s->id, (struct sockaddr *)&v_lane(v, 0)->local,
					       (struct sockaddr *)&to, 1000),
			 0);
	ck_assert_int_eq(cm->rdma_get_cm_event(s->ch, &e), 0);
	ck_assert_int_eq(e->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	cm->rdma_ack_cm_event(e);
	ck_assert_int_eq(cm->rdma_resolve_route(s->id, 1000), 0);
	ck_assert_int_eq(cm->rdma_get_cm_event(s->ch, &e), 0);
	ck_assert_int_eq(e->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cm->rdma_ack_cm_event(e);
	s->pd = fakeverbs_lib.ibv.ibv_alloc_pd(s->id->verbs);
	s->cq = fakeverbs_lib.ibv.ibv_create_cq(s->id->verbs, 16, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = s->cq;
	ck_assert_int_eq(rdma_create_qp(s->id, s->pd, &attr), 0);
	ck_assert_int_eq(cm->rdma_connect(s->id, &param), 0);
}

/* Until end 1 has taken up n connections of which nothing is proved. */
static inline void wait_half_open(struct vpair *v, int n)
{
	for (int i = 0; i < 3000 && v_lane(v, 1)->nhalf < n; i++)
		h_settle(&v->p, 1);
	ck_assert_int_eq(v_lane(v, 1)->nhalf, n);
}

/* mr: what it has registered, NULL: nothing */
static inline void leave(struct stranger *s, struct ibv_mr *mr)
{
	if (mr)
		fakeverbs_lib.ibv.ibv_dereg_mr(mr);
	rdma_destroy_qp(s->id);
	fakeverbs_lib.cm.rdma_destroy_id(s->id);
	fakeverbs_lib.ibv.ibv_destroy_cq(s->cq);
	fakeverbs_lib.ibv.ibv_dealloc_pd(s->pd);
	fakeverbs_lib.cm.rdma_destroy_event_channel(s->ch);
}
#endif
