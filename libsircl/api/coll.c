/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the public header: checks by a table, then one prepared operation of the engine. */
#include <string.h>
#include "api/internal.h"
#include "device/device.h"

enum who { NOBODY, ROOT, ALL };

/* How a kind uses its buffers. `whole`: count * size elements, else count. */
struct form {
	const char *call;
	enum who sends, receives; /* who needs the buffer; others' is not looked at */
	bool send_whole, recv_whole;
	const char *cure; /* for overlaps: what in place means */
};

static const struct form forms[COLL_KINDS] = {
	[COLL_ALL_REDUCE] = { "sircl_all_reduce", ALL, ALL, false, false, "send == recv" },
	[COLL_ALL_GATHER] = { "sircl_all_gather", ALL, ALL, false, true, "send == recv + rank * count" },
	[COLL_REDUCE_SCATTER] = { "sircl_reduce_scatter", ALL, ALL, true, false,
				  "recv == send + rank * count" },
	[COLL_BROADCAST] = { "sircl_broadcast", ROOT, ALL, false, false, "send == recv" },
	[COLL_REDUCE] = { "sircl_reduce", ALL, ROOT, false, false, "send == recv" },
	[COLL_ALL_TO_ALL] = { "sircl_all_to_all", ALL, ALL, true, true, "send == recv" },
	[COLL_GATHER] = { "sircl_gather", ALL, ROOT, false, true, "send == recv + root * count" },
	[COLL_SCATTER] = { "sircl_scatter", ROOT, ALL, true, false, "recv == send + root * count" },
	[COLL_BARRIER] = { "sircl_barrier", NOBODY, NOBODY, false, false, "" },
};

static bool needs(enum who who, const struct op_args *a, const struct sircl_comm *c)
{
	return who == ALL || (who == ROOT && a->root == c->rank);
}

static sircl_result_t check_buffers(const struct form *f, const struct sircl_comm *c, struct op_args *a)
{
	bool sends = needs(f->sends, a, c), receives = needs(f->receives, a, c);
	bool whole = f->send_whole || f->recv_whole;
	size_t bytes;
	ptrdiff_t share; /* where this rank's share lies in a whole buffer: in place */

	CHECK(check_count(f->call, a->count, a->type, whole ? (size_t)c->n : 1, &bytes));
	if (!sends)
		a->in = NULL;
	if (!receives)
		a->out = NULL;
	if (sends)
		CHECK(check_buffer(f->call, "send", a->in, a->count));
	if (receives)
		CHECK(check_buffer(f->call, "recv", a->out, a->count));
	if (!sends || !receives)
		return SIRCL_SUCCESS;
	share = f->send_whole == f->recv_whole ? 0 : (ptrdiff_t)(bytes * (size_t)c->rank);
	return check_overlap(f->call, a->in, f->send_whole ? bytes * (size_t)c->n : bytes, a->out,
			     f->recv_whole ? bytes * (size_t)c->n : bytes, f->send_whole ? -share : share,
			     f->cure);
}

static sircl_result_t check(sircl_comm_t c, struct op_args *a, sircl_stream_t stream)
{
	const struct form *f = &forms[a->kind];

	CHECK(device_check_stream(stream, f->call));
	if (a->kind == COLL_BARRIER)
		return SIRCL_SUCCESS;
	CHECK(check_type(f->call, a->type));
	if (coll_reduces(a->kind))
		CHECK(check_op(f->call, c, a));
	if (coll_has_root(a->kind))
		CHECK(check_root(f->call, c, a->root));
	return check_buffers(f, c, a);
}

/* Preparing may fail without harm to the communicator; from the start on, a failure ends it. */
static sircl_result_t run_now(sircl_comm_t c, const struct op_args *a)
{
	struct tick t;

	CHECK(op_prepare(c->op, a));
	t = ctx_tick(c->ctx);
	CHECK(engine_start(c->fabric->engine, &t, c->op));
	return engine_wait(c->fabric->engine, c->op);
}

static sircl_result_t issue(sircl_comm_t c, struct op_args *a, sircl_stream_t stream, sircl_request_t *handle)
{
	struct sircl_request *r;
	sircl_result_t ret;

	CHECK(check(c, a, stream));
	if (c->team && !handle && !group_open() && !p2p_busy(c))
		return run_now(c, a);
	r = request_coll(c);
	if (!r)
		return error_last()->code;
	r->args = *a;
	ret = r->op ? op_prepare(r->op, a) : SIRCL_SUCCESS;
	if (ret != SIRCL_SUCCESS) {
		request_release(r);
		return ret;
	}
	return request_issue(r, handle);
}

static sircl_result_t call(sircl_comm_t c, struct op_args a, sircl_stream_t stream, sircl_request_t *handle)
{
	const char *name = forms[a.kind].call;
	sircl_result_t ret = api_begin(c, name, API_DATA);

	if (ret == SIRCL_SUCCESS)
		ret = api_end_data(c, issue(c, &a, stream, handle));
	group_note(ret);
	return ret;
}

static sircl_result_t start(sircl_comm_t c, struct op_args a, sircl_stream_t stream, sircl_request_t *request)
{
	sircl_result_t ret;

	if (request) {
		*request = NULL;
		return call(c, a, stream, request);
	}
	ret = error_set(SIRCL_INVALID_ARGUMENT, "%s_start: request is NULL", forms[a.kind].call);
	group_note(ret);
	return ret;
}

static struct op_args reduction(enum coll_kind kind, const void *send, void *recv, size_t count,
				sircl_type_t type, sircl_op_t op, int root)
{
	return (struct op_args){
		.kind = kind, .in = send, .out = recv, .count = count, .type = type, .op = op, .root = root
	};
}

static struct op_args movement(enum coll_kind kind, const void *send, void *recv, size_t count,
			       sircl_type_t type, int root)
{
	return reduction(kind, send, recv, count, type, SIRCL_SUM, root);
}

sircl_result_t sircl_all_reduce(const void *send, void *recv, size_t count, sircl_type_t type, sircl_op_t op,
				sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, reduction(COLL_ALL_REDUCE, send, recv, count, type, op, 0), stream, NULL);
}

sircl_result_t sircl_all_reduce_start(const void *send, void *recv, size_t count, sircl_type_t type,
				      sircl_op_t op, sircl_comm_t comm, sircl_stream_t stream,
				      sircl_request_t *request)
{
	return start(comm, reduction(COLL_ALL_REDUCE, send, recv, count, type, op, 0), stream, request);
}

sircl_result_t sircl_all_gather(const void *send, void *recv, size_t count, sircl_type_t type,
				sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, movement(COLL_ALL_GATHER, send, recv, count, type, 0), stream, NULL);
}

sircl_result_t sircl_all_gather_start(const void *send, void *recv, size_t count, sircl_type_t type,
				      sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request)
{
	return start(comm, movement(COLL_ALL_GATHER, send, recv, count, type, 0), stream, request);
}

sircl_result_t sircl_reduce_scatter(const void *send, void *recv, size_t count, sircl_type_t type,
				    sircl_op_t op, sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, reduction(COLL_REDUCE_SCATTER, send, recv, count, type, op, 0), stream, NULL);
}

sircl_result_t sircl_reduce_scatter_start(const void *send, void *recv, size_t count, sircl_type_t type,
					  sircl_op_t op, sircl_comm_t comm, sircl_stream_t stream,
					  sircl_request_t *request)
{
	return start(comm, reduction(COLL_REDUCE_SCATTER, send, recv, count, type, op, 0), stream, request);
}

sircl_result_t sircl_broadcast(const void *send, void *recv, size_t count, sircl_type_t type, int root,
			       sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, movement(COLL_BROADCAST, send, recv, count, type, root), stream, NULL);
}

sircl_result_t sircl_broadcast_start(const void *send, void *recv, size_t count, sircl_type_t type, int root,
				     sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request)
{
	return start(comm, movement(COLL_BROADCAST, send, recv, count, type, root), stream, request);
}

sircl_result_t sircl_reduce(const void *send, void *recv, size_t count, sircl_type_t type, sircl_op_t op,
			    int root, sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, reduction(COLL_REDUCE, send, recv, count, type, op, root), stream, NULL);
}

sircl_result_t sircl_reduce_start(const void *send, void *recv, size_t count, sircl_type_t type,
				  sircl_op_t op, int root, sircl_comm_t comm, sircl_stream_t stream,
				  sircl_request_t *request)
{
	return start(comm, reduction(COLL_REDUCE, send, recv, count, type, op, root), stream, request);
}

sircl_result_t sircl_all_to_all(const void *send, void *recv, size_t count, sircl_type_t type,
				sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, movement(COLL_ALL_TO_ALL, send, recv, count, type, 0), stream, NULL);
}

sircl_result_t sircl_all_to_all_start(const void *send, void *recv, size_t count, sircl_type_t type,
				      sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request)
{
	return start(comm, movement(COLL_ALL_TO_ALL, send, recv, count, type, 0), stream, request);
}

sircl_result_t sircl_gather(const void *send, void *recv, size_t count, sircl_type_t type, int root,
			    sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, movement(COLL_GATHER, send, recv, count, type, root), stream, NULL);
}

sircl_result_t sircl_gather_start(const void *send, void *recv, size_t count, sircl_type_t type, int root,
				  sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request)
{
	return start(comm, movement(COLL_GATHER, send, recv, count, type, root), stream, request);
}

sircl_result_t sircl_scatter(const void *send, void *recv, size_t count, sircl_type_t type, int root,
			     sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, movement(COLL_SCATTER, send, recv, count, type, root), stream, NULL);
}

sircl_result_t sircl_scatter_start(const void *send, void *recv, size_t count, sircl_type_t type, int root,
				   sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request)
{
	return start(comm, movement(COLL_SCATTER, send, recv, count, type, root), stream, request);
}

sircl_result_t sircl_barrier(sircl_comm_t comm, sircl_stream_t stream)
{
	return call(comm, movement(COLL_BARRIER, NULL, NULL, 0, SIRCL_INT8, 0), stream, NULL);
}

sircl_result_t sircl_barrier_start(sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request)
{
	return start(comm, movement(COLL_BARRIER, NULL, NULL, 0, SIRCL_INT8, 0), stream, request);
}
