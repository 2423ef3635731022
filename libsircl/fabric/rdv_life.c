/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a rendezvous root: listening, starting its thread, waiting for it, letting it go. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "fabric/rdv_internal.h"

static void release(struct rdv_root *r)
{
	for (int i = 0; i < COLL_MAX_RANKS; i++)
		free(r->blob[i].p);
	if (r->listener >= 0)
		close(r->listener);
	if (r->quit >= 0)
		close(r->quit);
	if (r->over >= 0)
		close(r->over);
	key_ring_wipe(&r->keys);
	free(r);
}

static void release_left(struct rdv_root *r)
{
	void (*done)(void *) = r->left_done;
	void *arg = r->left_arg;

	release(r);
	done(arg);
}

void rdv_root_ended(struct rdv_root *r)
{
	uint64_t one = 1;

	if (write(r->over, &one, sizeof(one)) < 0)
		(void)0; /* rdv_root_finish runs into its limit then */
	/* whoever comes second frees; acq_rel: it sees all that the first wrote. Partner: rdv_root_leave */
	if (atomic_exchange_explicit(&r->alone, ROOT_ENDED, memory_order_acq_rel) == ROOT_LEFT)
		release_left(r);
}

static sircl_result_t listen_at(struct rdv_root *r)
{
	int on = 1;
	char text[ADDRESS_TEXT];

	r->listener = socket(r->at.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (r->listener < 0)
		return error_set(SIRCL_SYSTEM_ERROR, "no socket for the rendezvous: %s", strerror(errno));
	if (!address_is_unix(&r->at))
		setsockopt(r->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	r->at.len = r->at.len ? r->at.len : sizeof(r->at.ss);
	if (bind(r->listener, (struct sockaddr *)&r->at.ss, r->at.len) != 0 ||
	    listen(r->listener, CONNS) != 0)
		return error_set(SIRCL_SYSTEM_ERROR,
				 "the rendezvous cannot listen at %s: %s; is another job using it "
				 "(SIRCL_PORT), is the address this "
				 "machine's (SIRCL_ROOT)?",
				 address_text(&r->at, text), strerror(errno));
	if (!address_is_unix(&r->at)) {
		r->at.len = sizeof(r->at.ss);
		getsockname(r->listener, (struct sockaddr *)&r->at.ss, &r->at.len);
	}
	return SIRCL_SUCCESS;
}

sircl_result_t rdv_root_start(struct sircl_ctx *ctx, struct address *at, const struct key_ring *keys,
			      struct rdv_root **root)
{
	struct rdv_root *r = calloc(1, sizeof(*r));
	const char *lab = param_str(&ctx->params, PARAM_LAB);
	sigset_t all, old;
	sircl_result_t ret;
	int rc;

	*root = NULL;
	if (!r)
		return error_set(SIRCL_NO_MEMORY, "no memory for the rendezvous");
	r->ctx = ctx;
	r->keys = *keys;
	r->at = *at;
	r->listener = r->quit = r->over = -1;
	for (int i = 0; i < CONNS; i++)
		r->conn[i].fd = -1;
	for (int i = 0; i < COLL_MAX_RANKS; i++)
		r->member[i] = -1;
	if (lab)
		snprintf(r->lab, sizeof(r->lab), "%s", lab);
	else
		snprintf(r->lab, sizeof(r->lab), "%d", (int)getpid());
	CHECK_GOTO(auth_random(r->job, sizeof(r->job)), fail);
	CHECK_GOTO(auth_random(r->job_key, sizeof(r->job_key)), fail);
	if (keys->n > 0)
		memset(r->job_key, 0,
		       sizeof(r->job_key)); /* never a secret over a connection that is not encrypted */
	CHECK_GOTO(listen_at(r), fail);
	r->quit = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	sigfillset(&all); /* signals are the application's */
	pthread_sigmask(SIG_BLOCK, &all, &old);
	rc = r->quit < 0 || r->over < 0 ? errno : pthread_create(&r->thread, NULL, rdv_serve, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0) {
		ret = error_set(SIRCL_SYSTEM_ERROR, "no thread for the rendezvous: %s", strerror(rc));
		goto fail;
	}
	r->started = true;
	*at = r->at;
	*root = r;
	return SIRCL_SUCCESS;
fail:
	rdv_root_stop(r);
	return ret;
}

bool rdv_root_finish(struct rdv_root *r, uint64_t limit_ns)
{
	struct pollfd p = { .fd = r->over, .events = POLLIN };

	if (!r->started)
		return true;
	if (poll(&p, 1, (int)(limit_ns / MSEC)) > 0) {
		pthread_join(r->thread, NULL);
		r->started = false;
	}
	return !r->started;
}

void rdv_root_stop(struct rdv_root *r)
{
	uint64_t one = 1;

	if (!r)
		return;
	if (r->started) {
		if (write(r->quit, &one, sizeof(one)) < 0)
			(void)0; /* the counter is full: it is readable, which is all that matters */
		pthread_join(r->thread, NULL);
	}
	release(r);
}

void rdv_root_leave(struct rdv_root *r, void (*done)(void *), void *arg)
{
	pthread_t thread = r->thread;

	r->left_done = done;
	r->left_arg = arg;
	if (atomic_exchange_explicit(&r->alone, ROOT_LEFT, memory_order_acq_rel) ==
	    ROOT_ENDED) { /* partner: rdv_root_ended */
		pthread_join(thread, NULL);
		release_left(r);
	} else {
		pthread_detach(thread);
	}
}
