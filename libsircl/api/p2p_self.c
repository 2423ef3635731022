/* SPDX-License-Identifier: Apache-2.0 */
/* A send and a receive of one rank meet in memory, in order. At most one of the two queues is not empty. */
#include <stdio.h>
#include <string.h>
#include "api/internal.h"

static void mismatch(const struct sircl_request *send, const struct sircl_request *recv)
{
	sircl_comm_t c = send->comm;
	struct sircl_error e = { .code = SIRCL_MISMATCH };
	struct tick t;

	snprintf(e.msg, sizeof(e.msg),
		 "rank %d: sircl_recv of %zu %s from itself meets its sircl_send of %zu %s: give the same "
		 "count and type",
		 c->rank, recv->count, type_name(recv->type), send->count, type_name(send->type));
	engine_lock(c->fabric->engine);
	t = ctx_tick(c->ctx);
	comm_fail(c, &t, &e, true, c->fabric->pos);
	engine_unlock(c->fabric->engine);
}

static void meet(struct sircl_request *send, struct sircl_request *recv)
{
	sircl_comm_t c = send->comm;

	send->state = recv->state = REQUEST_DONE;
	if (send->count != recv->count || send->type != recv->type) {
		mismatch(send, recv);
		send->result = recv->result = SIRCL_MISMATCH;
		return;
	}
	if (send->bytes)
		memmove(recv->buf, send->buf, send->bytes);
	atomic_fetch_add_explicit(&c->ops, 2, memory_order_relaxed);
}

void self_start(struct sircl_request *r)
{
	struct p2p_queue *mine = &r->comm->self[r->dir], *other = &r->comm->self[!r->dir];
	struct sircl_request *partner = other->head;

	if (partner) {
		other->head = partner->next;
		if (!other->head)
			other->tail = NULL;
		if (r->dir == P2P_SEND)
			meet(r, partner);
		else
			meet(partner, r);
		return;
	}
	r->next = NULL;
	if (mine->tail)
		mine->tail->next = r;
	else
		mine->head = r;
	mine->tail = r;
}

void self_cancel(struct sircl_request *r)
{
	struct p2p_queue *q = &r->comm->self[r->dir];
	struct sircl_request **at = &q->head, *last = NULL;

	while (*at && *at != r) {
		last = *at;
		at = &last->next;
	}
	if (!*at)
		return;
	*at = r->next;
	if (q->tail == r)
		q->tail = last;
}
