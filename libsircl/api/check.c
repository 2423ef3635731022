/* SPDX-License-Identifier: Apache-2.0 */
/* Argument checks and the frame of every public call. */
#include <stdio.h>
#include <string.h>
#include "api/internal.h"

sircl_result_t comm_error(const struct sircl_comm *c, struct sircl_error *e)
{
	if (c->team)
		return team_error(c->team, e);
	if (atomic_load_explicit(&c->ended, memory_order_acquire) != 2) { /* partner: comm_fail */
		if (e)
			*e = (struct sircl_error){ .code = SIRCL_SUCCESS };
		return SIRCL_SUCCESS;
	}
	if (e)
		*e = c->end;
	return c->end.code;
}

void comm_fail(sircl_comm_t c, struct tick *t, const struct sircl_error *e, bool told, int node)
{
	int none = 0;

	if (c->team && told)
		team_fail_all(c->team, t, e, node);
	else if (c->team)
		team_fail(c->team, e);
	else if (atomic_compare_exchange_strong_explicit(&c->ended, &none, 1, memory_order_relaxed,
							 memory_order_relaxed)) {
		c->end = *e;
		atomic_store_explicit(&c->ended, 2, memory_order_release); /* partner: comm_error */
	}
}

struct sircl_error abort_error(const struct sircl_comm *c)
{
	struct sircl_error e = { .code = SIRCL_ABORTED };

	snprintf(e.msg, sizeof(e.msg), "rank %d: sircl_comm_abort was called on communicator \"%s\"", c->rank,
		 c->name);
	return e;
}

sircl_result_t api_look(sircl_comm_t comm, const char *call)
{
	if (!comm || comm->magic != COMM_MAGIC)
		return error_set(
			SIRCL_INVALID_ARGUMENT,
			"%s: not a communicator: pass what sircl_comm_create returned, before its destroy",
			call);
	if (comm->born != fork_generation())
		return error_set(SIRCL_INVALID_USAGE,
				 "%s: communicator \"%s\" belongs to the parent of this process, which has "
				 "forked: use it there, and make one of its own in the child after fork "
				 "(destroy here frees memory only)",
				 call, comm->name);
	return SIRCL_SUCCESS;
}

sircl_result_t api_begin(sircl_comm_t comm, const char *call, enum api_mode mode)
{
	struct sircl_error e;

	CHECK(api_look(comm, call));
	if (mode != API_DATA && group_open())
		return error_set(SIRCL_INVALID_USAGE,
				 "%s: not inside a group: only collectives and point-to-point calls are, "
				 "call sircl_group_end first",
				 call);
	/* acquire: what the thread before wrote; partner: release in api_end */
	if (atomic_exchange_explicit(&comm->in_call, true, memory_order_acquire))
		return error_set(SIRCL_INVALID_USAGE,
				 "%s: another thread is inside a call on communicator \"%s\": one thread at "
				 "a time, or one communicator per thread",
				 call, comm->name);
	if (mode == API_ANY)
		return SIRCL_SUCCESS;
	if (atomic_load_explicit(&comm->finalized,
				 memory_order_relaxed)) /* written by the thread that is inside only */
		return api_end(comm, error_set(SIRCL_INVALID_USAGE,
					       "%s: communicator \"%s\" is finalized: only destroy is legal",
					       call, comm->name));
	if (comm_error(comm, NULL) == SIRCL_SUCCESS)
		return SIRCL_SUCCESS;
	comm_error(comm, &e);
	return api_end(comm, error_again(&e));
}

sircl_result_t api_end(sircl_comm_t comm, sircl_result_t result)
{
	if (result != SIRCL_SUCCESS)
		comm->last = *error_last();
	atomic_store_explicit(&comm->in_call, false, memory_order_release); /* partner: api_begin */
	return result;
}

static bool callers_error(sircl_result_t result)
{
	return result == SIRCL_INVALID_ARGUMENT || result == SIRCL_INVALID_USAGE ||
	       result == SIRCL_UNSUPPORTED;
}

sircl_result_t api_end_data(sircl_comm_t comm, sircl_result_t result)
{
	struct sircl_error e;
	struct tick t;

	if (result != SIRCL_SUCCESS && !callers_error(result) && comm_error(comm, NULL) == SIRCL_SUCCESS) {
		e = *error_last();
		engine_lock(comm->fabric->engine);
		t = ctx_tick(comm->ctx);
		comm_fail(comm, &t, &e, true, comm->rank);
		engine_unlock(comm->fabric->engine);
		(void)error_again(&e);
	}
	return api_end(comm, result);
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

sircl_result_t check_root(const char *call, const struct sircl_comm *c, int root)
{
	if (root < 0 || root >= c->n)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: root %d is no rank of communicator \"%s\": 0 to %d are allowed", call,
				 root, c->name, c->n - 1);
	return SIRCL_SUCCESS;
}

sircl_result_t check_count(const char *call, size_t count, sircl_type_t type, size_t factor, size_t *bytes)
{
	size_t all;

	/* half the address space: no object is larger, and offsets may be added without a carry */
	if (__builtin_mul_overflow(count, type_size(type), bytes) ||
	    __builtin_mul_overflow(*bytes, factor, &all) || all > PTRDIFF_MAX)
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: %zu elements of %s%s do not fit into memory",
				 call, count, type_name(type), factor > 1 ? " for each rank" : "");
	return SIRCL_SUCCESS;
}

sircl_result_t check_overlap(const char *call, const void *a, size_t na, const void *b, size_t nb,
			     ptrdiff_t in_place, const char *cure)
{
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

	if (!na || !nb || x == y + (uintptr_t)in_place || x + na <= y || y + nb <= x)
		return SIRCL_SUCCESS;
	return error_set(SIRCL_INVALID_ARGUMENT,
			 "%s: send (%p, %zu bytes) and recv (%p, %zu bytes) overlap: give disjoint buffers, "
			 "or in place %s",
			 call, a, na, b, nb, cure);
}
