/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the public header: checks, then one prepared operation of the engine. */
#include <string.h>
#include "api/internal.h"
#include "device/device.h"

/* Preparing may fail without harm to the communicator; from the start on, a failure ends it. */
static sircl_result_t run(sircl_comm_t comm, const struct op_args *args)
{
	struct tick t;

	if (!comm->team) {
		size_t bytes = args->count * type_size(args->type);

		if (bytes && args->in != args->out)
			memmove(args->out, args->in, bytes);
		atomic_fetch_add_explicit(&comm->ops, 1, memory_order_relaxed);
		return SIRCL_SUCCESS;
	}
	CHECK(op_prepare(comm->op, args));
	t = ctx_tick(&comm->ctx);
	CHECK(engine_start(comm->fabric->engine, &t, comm->op));
	return engine_wait(comm->fabric->engine, comm->op);
}

static sircl_result_t all_reduce(sircl_comm_t comm, const struct op_args *a, sircl_stream_t stream)
{
	static const char call[] = "sircl_all_reduce";
	size_t bytes;

	CHECK(device_check_stream(stream, call));
	CHECK(check_type(call, a->type));
	CHECK(check_op(call, a->type, a->op));
	CHECK(check_buffer(call, "send", a->in, a->count));
	CHECK(check_buffer(call, "recv", a->out, a->count));
	CHECK(check_count(call, a->count, a->type, 1, &bytes));
	CHECK(check_overlap(call, a->in, bytes, a->out, bytes, 0));
	return run(comm, a);
}

sircl_result_t sircl_all_reduce(const void *send, void *recv, size_t count, sircl_type_t type, sircl_op_t op,
				sircl_comm_t comm, sircl_stream_t stream)
{
	struct op_args a = {
		.kind = COLL_ALL_REDUCE, .in = send, .out = recv, .count = count, .type = type, .op = op
	};

	CHECK(api_begin(comm, "sircl_all_reduce", true));
	return api_end(comm, all_reduce(comm, &a, stream));
}

static sircl_result_t all_gather(sircl_comm_t comm, const struct op_args *a, sircl_stream_t stream)
{
	static const char call[] = "sircl_all_gather";
	size_t bytes;

	CHECK(device_check_stream(stream, call));
	CHECK(check_type(call, a->type));
	CHECK(check_buffer(call, "send", a->in, a->count));
	CHECK(check_buffer(call, "recv", a->out, a->count));
	CHECK(check_count(call, a->count, a->type, (size_t)comm->n, &bytes));
	CHECK(check_overlap(call, a->in, bytes, a->out, bytes * (size_t)comm->n, bytes * (size_t)comm->rank));
	return run(comm, a);
}

sircl_result_t sircl_all_gather(const void *send, void *recv, size_t count, sircl_type_t type,
				sircl_comm_t comm, sircl_stream_t stream)
{
	struct op_args a = { .kind = COLL_ALL_GATHER,
			     .in = send,
			     .out = recv,
			     .count = count,
			     .type = type,
			     .op = SIRCL_SUM };

	CHECK(api_begin(comm, "sircl_all_gather", true));
	return api_end(comm, all_gather(comm, &a, stream));
}
