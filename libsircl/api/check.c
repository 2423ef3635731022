/* SPDX-License-Identifier: Apache-2.0 */
/* Argument checks and the frame of every public call. */
#include <stdio.h>
#include <string.h>
#include "api/internal.h"

sircl_result_t comm_error(const struct sircl_comm *c, struct sircl_error *e)
{
	if (c->team)
		return team_error(c->team, e);
	*e = (struct sircl_error){ .code = SIRCL_SUCCESS };
	if (atomic_load_explicit(&c->aborted, memory_order_relaxed))
		*e = abort_error(c);
	return e->code;
}

struct sircl_error abort_error(const struct sircl_comm *c)
{
	struct sircl_error e = { .code = SIRCL_ABORTED };

	snprintf(e.msg, sizeof(e.msg), "rank %d: sircl_comm_abort was called on communicator \"%s\"", c->rank,
		 c->name);
	return e;
}

sircl_result_t api_begin(sircl_comm_t comm, const char *call, bool usable)
{
	struct sircl_error e;

	if (!comm || comm->magic != COMM_MAGIC)
		return error_set(
			SIRCL_INVALID_ARGUMENT,
			"%s: not a communicator: pass what sircl_comm_create returned, before its destroy",
			call);
	/* acquire: what the thread before wrote; partner: release in api_end */
	if (atomic_exchange_explicit(&comm->in_call, true, memory_order_acquire))
		return error_set(SIRCL_INVALID_USAGE,
				 "%s: another thread is inside a call on communicator \"%s\": one thread at "
				 "a time, or one communicator per "
				 "thread",
				 call, comm->name);
	if (!usable)
		return SIRCL_SUCCESS;
	if (atomic_load_explicit(&comm->finalized,
				 memory_order_relaxed)) /* written by the thread that is inside only */
		return api_end(comm, error_set(SIRCL_INVALID_USAGE,
					       "%s: communicator \"%s\" is finalized: only destroy is legal",
					       call, comm->name));
	if (comm_error(comm, &e) != SIRCL_SUCCESS)
		return api_end(comm, error_again(&e));
	return SIRCL_SUCCESS;
}

sircl_result_t api_end(sircl_comm_t comm, sircl_result_t result)
{
	if (result != SIRCL_SUCCESS)
		comm->last = *error_last();
	atomic_store_explicit(&comm->in_call, false, memory_order_release); /* partner: api_begin */
	return result;
}

sircl_result_t check_buffer(const char *call, const char *name, const void *p, size_t count)
{
	if (!p && count)
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: %s is NULL but count is %zu", call, name,
				 count);
	return SIRCL_SUCCESS;
}

sircl_result_t check_type(const char *call, sircl_type_t type)
{
	if ((int)type < 0 || type >= SIRCL_TYPE_COUNT)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: type %d does not exist: 0 (int8) to %d are allowed, see sircl_type_t",
				 call, (int)type, SIRCL_TYPE_COUNT - 1);
	return SIRCL_SUCCESS;
}

sircl_result_t check_op(const char *call, sircl_type_t type, sircl_op_t op)
{
	if ((int)op < 0 || op >= SIRCL_OP_COUNT)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: operation %d does not exist: 0 (sum) to %d are allowed, see sircl_op_t",
				 call, (int)op, SIRCL_OP_COUNT - 1);
	if (!reduce_supports(type, op))
		return error_set(SIRCL_UNSUPPORTED,
				 "%s: %s of %s is not in this version: sum of float and bfloat16 are", call,
				 op_name(op), type_name(type));
	return SIRCL_SUCCESS;
}

sircl_result_t check_count(const char *call, size_t count, sircl_type_t type, size_t factor, size_t *bytes)
{
	size_t one = type_size(type);

	/* half the address space: no object is larger, and offsets may be added without a carry */
	if (__builtin_mul_overflow(count, one, bytes) || __builtin_mul_overflow(*bytes, factor, &one) ||
	    one > PTRDIFF_MAX)
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: %zu elements of %s%s do not fit into memory",
				 call, count, type_name(type), factor > 1 ? " from each rank" : "");
	return SIRCL_SUCCESS;
}

sircl_result_t check_overlap(const char *call, const void *a, size_t na, const void *b, size_t nb,
			     size_t in_place)
{
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

	if (!na || !nb || x == y + in_place || x + na <= y || y + nb <= x)
		return SIRCL_SUCCESS;
	return error_set(SIRCL_INVALID_ARGUMENT,
			 "%s: send (%p, %zu bytes) and recv (%p, %zu bytes) overlap: give disjoint buffers, "
			 "or in place send == recv%s",
			 call, a, na, b, nb, in_place || nb != na ? " + rank * count" : "");
}
