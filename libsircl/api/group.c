/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: a list of the calling thread's requests, checked and prepared when they are called, started
 * together at the outermost end. All starts come before the first wait, so no order of sends and receives
 * inside a group can wait for itself.
 */
#include "api/internal.h"

struct group {
	unsigned depth;
	struct sircl_request *head, *tail; /* by `more` */
	struct sircl_error failed; /* the first call that failed its checks */
};
static _Thread_local struct group group;

bool group_open(void)
{
	return group.depth > 0;
}

void group_note(sircl_result_t result)
{
	if (group.depth > 0 && result != SIRCL_SUCCESS && group.failed.code == SIRCL_SUCCESS)
		group.failed = *error_last();
}

void group_collect(struct sircl_request *r, sircl_request_t *handle)
{
	r->handle = handle;
	if (handle)
		*handle = r;
	if (group.tail)
		group.tail->more = r;
	else
		group.head = r;
	group.tail = r;
}

sircl_result_t sircl_group_begin(void)
{
	if (group.depth++ == 0)
		group.failed.code = SIRCL_SUCCESS;
	return SIRCL_SUCCESS;
}

/* Nothing has begun: gives all requests back. A communicator that another thread is in a call with, or that
 * belongs to the parent of a fork, is left alone. */
static sircl_result_t drop_all(struct sircl_request *list, const struct sircl_error *why)
{
	for (struct sircl_request *r = list, *next; r; r = next) {
		sircl_comm_t c = r->comm;

		next = r->more;
		if (r->handle)
			*r->handle = NULL;
		if (api_begin(c, "sircl_group_end", API_ANY) != SIRCL_SUCCESS)
			continue;
		request_release(r);
		(void)error_again(why);
		(void)api_end(c, why->code);
	}
	return error_again(why);
}

static bool has_begun(const struct sircl_comm *list, const struct sircl_comm *c)
{
	while (list && list != c)
		list = list->group_next;
	return list != NULL;
}

static void end_all(sircl_comm_t list)
{
	for (sircl_comm_t c = list, next; c; c = next) {
		next = c->group_next;
		(void)api_end(c, SIRCL_SUCCESS);
	}
}

/* Begins a call on each communicator once. */
static sircl_result_t begin_all(struct sircl_request *list, sircl_comm_t *comms)
{
	*comms = NULL;
	for (struct sircl_request *r = list; r; r = r->more) {
		sircl_result_t ret;

		if (has_begun(*comms, r->comm))
			continue;
		ret = api_begin(r->comm, "sircl_group_end", API_DATA);
		if (ret != SIRCL_SUCCESS) {
			end_all(*comms);
			return ret;
		}
		r->comm->group_next = *comms;
		*comms = r->comm;
	}
	return SIRCL_SUCCESS;
}

/* Starts all; leaves a list of those that belong to blocking calls. */
static struct sircl_request *start_all(struct sircl_request *list)
{
	struct sircl_request *blocking = NULL, **tail = &blocking;

	for (struct sircl_request *r = list, *next; r; r = next) {
		next = r->more;
		r->more = NULL;
		request_start(r);
		if (r->handle)
			continue;
		*tail = r;
		tail = &r->more;
	}
	for (struct sircl_request *r = blocking; r; r = r->more)
		self_give_up(r);
	return blocking;
}

/* Of the blocking calls: results and end. Requests of _start calls stay with their owners. */
static struct sircl_error finish(struct sircl_request *blocking)
{
	struct sircl_error first = { .code = SIRCL_SUCCESS };

	for (struct sircl_request *r = blocking, *next; r; r = next) {
		sircl_comm_t c = r->comm;
		sircl_result_t ret = request_result(r);

		next = r->more;
		if (ret != SIRCL_SUCCESS && first.code == SIRCL_SUCCESS)
			first = *error_last();
		if (ret != SIRCL_SUCCESS)
			c->last = *error_last();
		request_release(r);
	}
	return first;
}

static sircl_result_t run(struct sircl_request *list)
{
	struct sircl_request *blocking;
	struct sircl_error e;
	sircl_comm_t comms;

	if (begin_all(list, &comms) != SIRCL_SUCCESS) {
		e = *error_last();
		return drop_all(list, &e);
	}
	blocking = start_all(list);
	wait_requests(blocking);
	e = finish(blocking);
	end_all(comms);
	return e.code == SIRCL_SUCCESS ? SIRCL_SUCCESS : error_again(&e);
}

sircl_result_t sircl_group_end(void)
{
	struct sircl_request *list = group.head;

	if (group.depth == 0)
		return error_set(SIRCL_INVALID_USAGE,
				 "sircl_group_end: this thread is in no group: call sircl_group_begin first");
	if (--group.depth > 0)
		return SIRCL_SUCCESS;
	group.head = group.tail = NULL;
	if (group.failed.code != SIRCL_SUCCESS)
		return drop_all(list, &group.failed);
	return run(list);
}
