/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: one running operation each. They come from pools of their communicator, so that nothing is
 * allocated once as many have run at once as ever will; a collective's keeps its operation of the engine,
 * with its tables, in the pool.
 */
#include <stdlib.h>
#include "api/internal.h"

/* Relaxed: by the thread that has the request. */
static void set_state(struct sircl_request *r, enum request_state s)
{
	atomic_store_explicit(&r->state, s, memory_order_relaxed);
}

static enum request_state state(const struct sircl_request *r)
{
	return atomic_load_explicit(&r->state, memory_order_relaxed);
}

static struct sircl_request *request_get(sircl_comm_t c, struct sircl_request **pool)
{
	struct sircl_request *r = *pool;

	if (r) {
		*pool = r->next;
	} else {
		r = calloc(1, sizeof(*r));
		if (!r) {
			(void)error_set(SIRCL_NO_MEMORY, "rank %d has no memory for a request", c->rank);
			return NULL;
		}
		r->comm = c;
		atomic_fetch_add_explicit(&c->bytes, sizeof(*r), memory_order_relaxed);
	}
	r->magic = REQUEST_MAGIC;
	set_state(r, REQUEST_COLLECTED);
	r->next = r->more = NULL;
	r->handle = NULL;
	r->result = SIRCL_SUCCESS;
	c->unfinished++;
	return r;
}

struct sircl_request *request_coll(sircl_comm_t c)
{
	struct sircl_request *r = request_get(c, &c->free_coll);

	if (!r)
		return NULL;
	r->is_coll = true;
	if (c->team && !r->op && op_create(c->team, &r->op) != SIRCL_SUCCESS) {
		request_release(r);
		return NULL;
	}
	return r;
}

struct sircl_request *request_p2p(sircl_comm_t c)
{
	return request_get(c, &c->free_p2p);
}

void request_release(struct sircl_request *r)
{
	struct sircl_request **pool = r->is_coll ? &r->comm->free_coll : &r->comm->free_p2p;

	set_state(r, REQUEST_FREE);
	r->magic = 0;
	r->next = *pool;
	*pool = r;
	r->comm->unfinished--;
}

static void free_pool(sircl_comm_t c, struct sircl_request **pool)
{
	while (*pool) {
		struct sircl_request *r = *pool;

		*pool = r->next;
		if (r->op && c->team) /* without: the child of a fork, where the engine is not ours */
			op_destroy(r->op);
		free(r);
	}
}

void request_free_all(sircl_comm_t c)
{
	free_pool(c, &c->free_coll);
	free_pool(c, &c->free_p2p);
}

static void start_coll(struct sircl_request *r)
{
	sircl_comm_t c = r->comm;
	struct tick t = ctx_tick(c->ctx);

	if (!r->op) {
		set_state(r, REQUEST_DONE);
		r->result = comm_error(c, NULL);
		if (r->result != SIRCL_SUCCESS)
			return;
		op_run_alone(&r->args, &t);
		atomic_fetch_add_explicit(&c->ops, 1, memory_order_relaxed);
		return;
	}
	r->result = engine_start(c->fabric->engine, &t, r->op);
	if (r->result != SIRCL_SUCCESS)
		set_state(r, REQUEST_DONE);
}

void request_start(struct sircl_request *r)
{
	set_state(r, REQUEST_RUNNING);
	if (r->is_coll)
		start_coll(r);
	else if (r->peer == r->comm->rank)
		self_start(r);
	else
		p2p_enqueue(r);
}

bool request_done(const struct sircl_request *r)
{
	/* partner: set_done in p2p.c */
	enum request_state s = atomic_load_explicit(&r->state, memory_order_acquire);

	return s == REQUEST_DONE || (s == REQUEST_RUNNING && r->op && op_done(r->op));
}

static sircl_result_t unmatched(const struct sircl_request *r)
{
	return error_set(SIRCL_INVALID_USAGE,
			 "rank %d: sircl_%s to itself would wait for ever: its %s was not started, and this "
			 "thread would have to: put both into one group, or start the other first",
			 r->comm->rank, r->dir == P2P_SEND ? "send" : "recv",
			 r->dir == P2P_SEND ? "recv" : "send");
}

sircl_result_t request_result(const struct sircl_request *r)
{
	struct sircl_error e;

	if (state(r) != REQUEST_DONE && r->op)
		return op_result(r->op, &e) == SIRCL_SUCCESS ? SIRCL_SUCCESS : error_again(&e);
	if (r->result == SIRCL_SUCCESS)
		return SIRCL_SUCCESS;
	if (r->result == SIRCL_INVALID_USAGE && !r->is_coll) /* of self_give_up; others have failed since */
		return unmatched(r);
	return comm_error(r->comm, &e) == SIRCL_SUCCESS ? r->result : error_again(&e);
}

static bool is_unmatched(const struct sircl_request *r)
{
	return !r->is_coll && r->peer == r->comm->rank && state(r) == REQUEST_RUNNING;
}

void self_give_up(struct sircl_request *r)
{
	if (!is_unmatched(r))
		return;
	self_cancel(r);
	set_state(r, REQUEST_DONE);
	r->result = SIRCL_INVALID_USAGE; /* request_result says why */
}

sircl_result_t request_issue(struct sircl_request *r, sircl_request_t *handle)
{
	sircl_result_t ret;

	if (group_open()) {
		group_collect(r, handle);
		return SIRCL_SUCCESS;
	}
	request_start(r);
	if (handle) {
		*handle = r;
		return SIRCL_SUCCESS;
	}
	self_give_up(r);
	wait_requests(r);
	ret = request_result(r);
	request_release(r);
	return ret;
}

/* ---- the public calls ---- */

/* The partner will not be started any more. */
static void self_settle(struct sircl_request *r)
{
	if (!is_unmatched(r) || comm_error(r->comm, NULL) == SIRCL_SUCCESS)
		return;
	self_cancel(r);
	set_state(r, REQUEST_DONE);
	r->result = comm_error(r->comm, NULL);
}

static sircl_result_t begin(sircl_request_t r, const char *call)
{
	if (r->magic != REQUEST_MAGIC)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: not a request: pass what a _start call gave, until it has ended", call);
	CHECK(api_begin(r->comm, call, API_ANY));
	if (state(r) == REQUEST_COLLECTED) /* by a group of another thread */
		return api_end(r->comm,
			       error_set(SIRCL_INVALID_USAGE,
					 "%s: the request belongs to a group that has not ended", call));
	self_settle(r);
	return SIRCL_SUCCESS;
}

static sircl_result_t end(sircl_request_t *request)
{
	struct sircl_request *r = *request;
	sircl_comm_t c = r->comm;
	sircl_result_t ret = request_result(r);

	*request = NULL;
	request_release(r);
	return api_end(c, ret);
}

sircl_result_t sircl_test(sircl_request_t *request, int *done)
{
	struct sircl_request *r;
	struct tick t;
	bool busy;

	if (!request || !done)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_test: %s is NULL",
				 request ? "done" : "request");
	*done = 1;
	r = *request;
	if (!r)
		return SIRCL_SUCCESS;
	*done = 0;
	CHECK(begin(r, "sircl_test"));
	if (!request_done(r) && r->comm->team) {
		t = ctx_tick(r->comm->ctx);
		engine_drive(r->comm->fabric->engine, &t, &busy);
		comm_pump(r->comm);
	}
	if (!request_done(r))
		return api_end(r->comm, SIRCL_SUCCESS);
	*done = 1;
	return end(request);
}

sircl_result_t sircl_wait(sircl_request_t *request)
{
	struct sircl_request *r;

	if (!request)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_wait: request is NULL");
	r = *request;
	if (!r)
		return SIRCL_SUCCESS;
	CHECK(begin(r, "sircl_wait"));
	if (is_unmatched(r))
		return api_end(r->comm, unmatched(r));
	r->more = NULL;
	wait_requests(r);
	return end(request);
}
