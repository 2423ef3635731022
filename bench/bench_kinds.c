/* SPDX-License-Identifier: Apache-2.0 */
/* One table, and one call of the library per kind. */
#include <string.h>
#include "bench_kinds.h"

static const struct kind_info kinds[KINDS] = {
	[KIND_ALL_REDUCE] = { "all_reduce", "sircl_all_reduce", .reduces = true, .in_place = true,
			      .same = true },
	[KIND_ALL_GATHER] = { "all_gather", "sircl_all_gather", .in_place = true, .same = true,
			      .whole = true },
	[KIND_REDUCE_SCATTER] = { "reduce_scatter", "sircl_reduce_scatter", .reduces = true, .in_place = true,
				  .whole = true },
	[KIND_BROADCAST] = { "broadcast", "sircl_broadcast", .rooted = true, .in_place = true, .same = true },
	[KIND_REDUCE] = { "reduce", "sircl_reduce", .reduces = true, .rooted = true, .in_place = true },
	[KIND_ALL_TO_ALL] = { "all_to_all", "sircl_all_to_all", .in_place = true, .whole = true },
	[KIND_GATHER] = { "gather", "sircl_gather", .rooted = true, .in_place = true, .whole = true },
	[KIND_SCATTER] = { "scatter", "sircl_scatter", .rooted = true, .in_place = true, .whole = true },
	[KIND_SENDRECV] = { "sendrecv", "sircl_send and sircl_recv", .in_place = false },
	[KIND_BARRIER] = { "barrier", "sircl_barrier", .same = true },
};

const struct kind_info *kind_info(enum bench_kind k)
{
	return &kinds[k];
}

bool kind_find(const char *name, enum bench_kind *k)
{
	for (int i = 0; i < KINDS; i++) {
		if (!strcmp(kinds[i].name, name)) {
			*k = (enum bench_kind)i;
			return true;
		}
	}
	return false;
}

size_t kind_unit(enum bench_kind k, int n)
{
	return kinds[k].whole ? (size_t)n : 1;
}

size_t kind_in(enum bench_kind k, size_t count, int rank, int root, int n)
{
	switch (k) {
	case KIND_REDUCE_SCATTER:
	case KIND_ALL_TO_ALL:
		return count * (size_t)n;
	case KIND_SCATTER:
		return rank == root ? count * (size_t)n : 0;
	case KIND_BROADCAST:
		return rank == root ? count : 0;
	case KIND_BARRIER:
		return 0;
	default:
		return count;
	}
}

size_t kind_out(enum bench_kind k, size_t count, int rank, int root, int n)
{
	switch (k) {
	case KIND_ALL_GATHER:
	case KIND_ALL_TO_ALL:
		return count * (size_t)n;
	case KIND_GATHER:
		return rank == root ? count * (size_t)n : 0;
	case KIND_REDUCE:
		return rank == root ? count : 0;
	case KIND_BARRIER:
		return 0;
	default:
		return count;
	}
}

double kind_bus_factor(enum bench_kind k, int n)
{
	double all = n;

	if (k == KIND_ALL_REDUCE)
		return 2 * (all - 1) / all;
	return kinds[k].whole ? (all - 1) / all : 1;
}

static sircl_result_t sendrecv(const struct kind_call *c)
{
	int next = (c->rank + 1) % c->n, prev = (c->rank + c->n - 1) % c->n;
	sircl_result_t ret = sircl_group_begin(), end;

	if (ret != SIRCL_SUCCESS)
		return ret;
	ret = sircl_send(c->in, c->count, c->type, next, c->comm, SIRCL_HOST);
	if (ret == SIRCL_SUCCESS)
		ret = sircl_recv(c->out, c->count, c->type, prev, c->comm, SIRCL_HOST);
	end = sircl_group_end();
	return ret == SIRCL_SUCCESS ? end : ret;
}

sircl_result_t kind_run(const struct kind_call *c)
{
	switch (c->kind) {
	case KIND_ALL_REDUCE:
		return sircl_all_reduce(c->in, c->out, c->count, c->type, c->op, c->comm, SIRCL_HOST);
	case KIND_ALL_GATHER:
		return sircl_all_gather(c->in, c->out, c->count, c->type, c->comm, SIRCL_HOST);
	case KIND_REDUCE_SCATTER:
		return sircl_reduce_scatter(c->in, c->out, c->count, c->type, c->op, c->comm, SIRCL_HOST);
	case KIND_BROADCAST:
		return sircl_broadcast(c->in, c->out, c->count, c->type, c->root, c->comm, SIRCL_HOST);
	case KIND_REDUCE:
		return sircl_reduce(c->in, c->out, c->count, c->type, c->op, c->root, c->comm, SIRCL_HOST);
	case KIND_ALL_TO_ALL:
		return sircl_all_to_all(c->in, c->out, c->count, c->type, c->comm, SIRCL_HOST);
	case KIND_GATHER:
		return sircl_gather(c->in, c->out, c->count, c->type, c->root, c->comm, SIRCL_HOST);
	case KIND_SCATTER:
		return sircl_scatter(c->in, c->out, c->count, c->type, c->root, c->comm, SIRCL_HOST);
	case KIND_SENDRECV:
		return sendrecv(c);
	default:
		return sircl_barrier(c->comm, SIRCL_HOST);
	}
}
