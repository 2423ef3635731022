/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of rdma-core that are called, all of them: two tables of pointers, filled at run time (or by
 * a test, with functions that fail on purpose). What verbs.h has inline (posting, polling, asking for
 * notification) goes through the device's own table and is not here.
 *
 * ibv_query_port, ibv_reg_mr: the exported functions, not the header's macros of the same name. The former
 * fills only the fields of struct ibv_port_attr up to link_layer.
 */
#ifndef LANE_VERBS_LIB_H
#define LANE_VERBS_LIB_H
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "base/error.h"

/* X(result, name, arguments) */
#define VERBS_IBV_FUNCTIONS(X) \
	X(struct ibv_device **, ibv_get_device_list, (int *)) \
	X(void, ibv_free_device_list, (struct ibv_device **)) \
	X(const char *, ibv_get_device_name, (struct ibv_device *)) \
	X(struct ibv_context *, ibv_open_device, (struct ibv_device *)) \
	X(int, ibv_close_device, (struct ibv_context *)) \
	X(int, ibv_query_device, (struct ibv_context *, struct ibv_device_attr *)) \
	X(int, ibv_query_port, (struct ibv_context *, uint8_t, struct ibv_port_attr *)) \
	X(int, ibv_query_gid, (struct ibv_context *, uint8_t, int, union ibv_gid *)) \
	X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *)) \
	X(int, ibv_dealloc_pd, (struct ibv_pd *)) \
	X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int)) \
	X(int, ibv_dereg_mr, (struct ibv_mr *)) \
	X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *)) \
	X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *)) \
	X(struct ibv_cq *, ibv_create_cq, \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int)) \
	X(int, ibv_destroy_cq, (struct ibv_cq *)) \
	X(int, ibv_get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
	X(void, ibv_ack_cq_events, (struct ibv_cq *, unsigned int)) \
	X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	X(int, ibv_destroy_qp, (struct ibv_qp *)) \
	X(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int)) \
	X(int, ibv_query_qp, (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *)) \
	X(int, ibv_get_async_event, (struct ibv_context *, struct ibv_async_event *)) \
	X(void, ibv_ack_async_event, (struct ibv_async_event *)) \
	X(const char *, ibv_wc_status_str, (enum ibv_wc_status)) \
	X(const char *, ibv_event_type_str, (enum ibv_event_type))

#define VERBS_CM_FUNCTIONS(X) \
	X(struct rdma_event_channel *, rdma_create_event_channel, (void)) \
	X(void, rdma_destroy_event_channel, (struct rdma_event_channel *)) \
	X(int, rdma_create_id, \
	  (struct rdma_event_channel *, struct rdma_cm_id **, void *, enum rdma_port_space)) \
	X(int, rdma_destroy_id, (struct rdma_cm_id *)) \
	X(int, rdma_bind_addr, (struct rdma_cm_id *, struct sockaddr *)) \
	X(int, rdma_resolve_addr, (struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int)) \
	X(int, rdma_resolve_route, (struct rdma_cm_id *, int)) \
	X(int, rdma_init_qp_attr, (struct rdma_cm_id *, struct ibv_qp_attr *, int *)) \
	X(int, rdma_connect, (struct rdma_cm_id *, struct rdma_conn_param *)) \
	X(int, rdma_listen, (struct rdma_cm_id *, int)) \
	X(int, rdma_accept, (struct rdma_cm_id *, struct rdma_conn_param *)) \
	X(int, rdma_establish, (struct rdma_cm_id *)) \
	X(int, rdma_reject, (struct rdma_cm_id *, const void *, uint8_t)) \
	X(int, rdma_disconnect, (struct rdma_cm_id *)) \
	X(int, rdma_get_cm_event, (struct rdma_event_channel *, struct rdma_cm_event **)) \
	X(int, rdma_ack_cm_event, (struct rdma_cm_event *)) \
	X(int, rdma_set_option, (struct rdma_cm_id *, int, int, void *, size_t)) \
	X(__be16, rdma_get_src_port, (struct rdma_cm_id *)) \
	X(const char *, rdma_event_str, (enum rdma_cm_event_type))

/* The macros of verbs.h would expand in the tables. */
#undef ibv_reg_mr
#undef ibv_query_port

#define VERBS_FIELD(result, name, args) result(*name) args;
struct verbs_lib {
	struct verbs_ibv {
		VERBS_IBV_FUNCTIONS(VERBS_FIELD)
	} ibv;
	struct verbs_cm {
		VERBS_CM_FUNCTIONS(VERBS_FIELD)
	} cm;
};
#undef VERBS_FIELD

/* Opens rdma-core (base/dl.h), once per process. */
sircl_result_t verbs_lib_open(const struct verbs_lib **);
#endif
