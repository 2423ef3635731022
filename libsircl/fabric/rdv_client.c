/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's side of the rendezvous: blocking, every wait bounded by the limit given at the join. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "fabric/rdv.h"
#include "fabric/wire.h"

static uint64_t now(const struct rdv *r)
{
	return r->ctx->clock(r->ctx->clock_arg);
}

static sircl_result_t timed_out(const struct rdv *r, const char *what)
{
	char text[ADDRESS_TEXT];

	return error_set(
		SIRCL_TIMEOUT,
		"rank %d: %s the rendezvous at %s within the limit; is rank 0 running, is the address right "
		"(SIRCL_ROOT), does a firewall drop the port? (limit: SIRCL_START_TIMEOUT)",
		r->rank, what, address_text(&r->at, text));
}

/* Waits until fd is ready for `events`; false at the limit. */
static bool wait_for(const struct rdv *r, short events)
{
	for (;;) {
		struct pollfd p = { .fd = r->fd, .events = events };
		uint64_t t = now(r);
		int rc;

		if (t >= r->limit)
			return false;
		rc = poll(&p, 1, (int)tick_min((r->limit - t) / MSEC + 1, 1000));
		if (rc > 0)
			return true;
	}
}

static sircl_result_t lost(const struct rdv *r, const char *why)
{
	char text[ADDRESS_TEXT];

	return error_set(SIRCL_REMOTE_ERROR,
			 "rank %d: the rendezvous at %s closed the connection (%s); see what its process "
			 "(rank 0) says",
			 r->rank, address_text(&r->at, text), why);
}

static sircl_result_t write_all(const struct rdv *r, const void *p, size_t n)
{
	const char *at = p;

	while (n) {
		ssize_t k = send(r->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (!wait_for(r, POLLOUT))
				return timed_out(r, "could not send to");
			continue;
		}
		if (k < 0)
			return lost(r, strerror(errno));
		at += k;
		n -= (size_t)k;
	}
	return SIRCL_SUCCESS;
}

static sircl_result_t read_all(const struct rdv *r, void *p, size_t n)
{
	char *at = p;

	while (n) {
		ssize_t k = recv(r->fd, at, n, MSG_DONTWAIT);

		if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (!wait_for(r, POLLIN))
				return timed_out(r, "got no answer from");
			continue;
		}
		if (k <= 0)
			return lost(r, k ? strerror(errno) : "end of file");
		at += k;
		n -= (size_t)k;
	}
	return SIRCL_SUCCESS;
}

static sircl_result_t handshake(struct rdv *r, const struct key_ring *keys)
{
	struct auth a;
	uint8_t msg[AUTH_MSG_MAX], in[AUTH_MSG_MAX];
	char text[ADDRESS_TEXT];
	sircl_result_t ret;
	size_t n, len;

	if (keys->n == 0) {
		struct ucred peer;
		socklen_t size = sizeof(peer);

		if (!address_is_unix(&r->at))
			return error_set(SIRCL_BAD_CONFIG,
					 "rank %d: this job has no key, and its ranks meet over a network: "
					 "make one with `sircl keygen "
					 "FILE`, copy it to every machine, and set SIRCL_KEY_FILE=FILE",
					 r->rank);
		if (getsockopt(r->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
			return error_set(SIRCL_REMOTE_ERROR,
					 "rank %d: the rendezvous belongs to another user (uid %d); refused",
					 r->rank, (int)peer.uid);
		return SIRCL_SUCCESS;
	}
	auth_start(&a, keys, true, RDV_AUTH_CONTEXT, sizeof(RDV_AUTH_CONTEXT), "", 0);
	CHECK(auth_step(&a, NULL, 0, msg, &n));
	CHECK(write_all(r, msg, n));
	ret = read_all(r, in, 2);
	if (ret == SIRCL_REMOTE_ERROR)
		return error_set(
			ret,
			"rank %d: the rendezvous at %s closed the connection: it has probably another key "
			"than this process; give all ranks the same SIRCL_KEY_FILE, SIRCL_KEY or unique id",
			r->rank, address_text(&r->at, text));
	CHECK(ret);
	len = in[0] | (size_t)in[1] << 8;
	if (len < 2 || len > AUTH_MSG_MAX)
		return lost(r, "it does not speak this protocol");
	CHECK(read_all(r, in + 2, len - 2));
	CHECK(auth_step(&a, in, len, msg, &n));
	return write_all(r, msg, n);
}

static sircl_result_t connect_once(struct rdv *r, bool *again)
{
	int err = 0, rc;
	socklen_t size = sizeof(err);

	*again = false;
	r->fd = socket(r->at.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (r->fd < 0)
		return error_set(SIRCL_SYSTEM_ERROR, "rank %d: no socket for the rendezvous: %s", r->rank,
				 strerror(errno));
	rc = connect(r->fd, (struct sockaddr *)&r->at.ss, r->at.len);
	if (rc != 0 && errno == EINPROGRESS) {
		if (!wait_for(r, POLLOUT))
			return timed_out(r, "cannot reach");
		getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &err, &size);
	} else if (rc != 0) {
		err = errno;
	}
	if (err == 0)
		return SIRCL_SUCCESS;
	close(r->fd);
	r->fd = -1;
	/* the root may not listen yet, its machine may still be booting */
	*again = err == ECONNREFUSED || err == EHOSTUNREACH || err == ENETUNREACH || err == ETIMEDOUT ||
		 err == ECONNRESET || err == EAGAIN;
	return error_set(SIRCL_SYSTEM_ERROR, "%s", strerror(err));
}

static sircl_result_t send_message(struct rdv *r, enum rdv_type type, const void *body, size_t len)
{
	uint8_t head[5];
	struct wire w = wire_over(head, sizeof(head));

	wire_put(&w, len, 4);
	wire_put(&w, type, 1);
	CHECK(write_all(r, head, sizeof(head)));
	return write_all(r, body, len);
}

sircl_result_t rdv_join(struct rdv *r, struct sircl_ctx *ctx, const struct address *at,
			const struct key_ring *keys, int rank, int n, uint64_t limit)
{
	uint8_t join[32];
	struct wire w = wire_over(join, sizeof(join));
	sircl_result_t ret;
	char why[128] = "", text[ADDRESS_TEXT];
	bool again;

	memset(r, 0, sizeof(*r));
	r->ctx = ctx;
	r->at = *at;
	r->fd = -1;
	r->rank = rank;
	r->n = n;
	r->limit = limit;
	r->buf = malloc(RDV_MSG_MAX);
	if (!r->buf)
		return error_set(SIRCL_NO_MEMORY, "rank %d: no memory for the rendezvous", rank);
	for (;;) {
		struct timespec pause = { .tv_nsec = 30 * 1000 * 1000 };

		ret = connect_once(r, &again);
		if (ret == SIRCL_SUCCESS)
			break;
		if (!again || now(r) + 50 * MSEC >= limit) {
			snprintf(why, sizeof(why), "%.100s", error_last()->msg);
			if (!again)
				return error_set(ret, "rank %d: cannot connect to the rendezvous at %s: %s",
						 rank, address_text(at, text), why);
			snprintf(text, sizeof(text), "cannot reach (%.100s)", why);
			return timed_out(r, text);
		}
		nanosleep(&pause, NULL);
	}
	CHECK_GOTO(handshake(r, keys), fail);
	wire_put(&w, RDV_VERSION, 2);
	wire_put(&w, (uint64_t)n, 2);
	wire_put(&w, (uint64_t)rank, 2);
	wire_put(&w, limit > now(r) ? (limit - now(r)) / MSEC : 0, 8);
	CHECK_GOTO(send_message(r, RDV_JOIN, join, w.pos), fail);
	return SIRCL_SUCCESS;
fail:
	rdv_leave(r);
	return ret;
}

static sircl_result_t read_message(struct rdv *r, uint8_t *type)
{
	uint8_t head[5];
	struct wire w = wire_over(head, sizeof(head));

	CHECK(read_all(r, head, sizeof(head)));
	r->len = (size_t)wire_get(&w, 4);
	*type = (uint8_t)wire_get(&w, 1);
	if (r->len > RDV_MSG_MAX)
		return lost(r, "a message is too long");
	return read_all(r, r->buf, r->len);
}

static sircl_result_t take_failure(struct rdv *r)
{
	struct wire w = wire_over(r->buf, r->len);
	sircl_result_t code = (sircl_result_t)wire_get(&w, 4);
	size_t n = r->len > 4 ? r->len - 4 : 0;

	r->failed = true;
	if (w.bad || code == SIRCL_SUCCESS || code > SIRCL_IN_PROGRESS)
		return lost(r, "a malformed failure");
	return error_set(code, "%.*s", (int)n, (const char *)r->buf + 4);
}

sircl_result_t rdv_round(struct rdv *r, const void *mine, size_t len)
{
	struct wire w;
	uint8_t type;

	sircl_assert(len <= RDV_BLOB_MAX);
	CHECK(send_message(r, RDV_BLOB, mine, len));
	CHECK(read_message(r, &type));
	if (type == RDV_FAIL)
		return take_failure(r);
	if (type != RDV_ROUND)
		return lost(r, "an unexpected message");
	w = wire_over(r->buf, r->len);
	if (r->round++ == 0) {
		wire_get_bytes(&w, r->job, sizeof(r->job));
		r->has_job_key = wire_get(&w, 1) != 0;
		wire_get_bytes(&w, r->job_key, sizeof(r->job_key));
		wire_get_text(&w, r->lab, sizeof(r->lab));
	}
	for (int i = 0; i < r->n; i++) {
		r->blob[i].len = (size_t)wire_get(&w, 4);
		r->blob[i].p = wire_take(&w, r->blob[i].len);
	}
	return w.bad ? lost(r, "a malformed round") : SIRCL_SUCCESS;
}

sircl_result_t rdv_fail(struct rdv *r, const struct sircl_error *e)
{
	struct sircl_error keep = *e;
	uint8_t body[4 + ERROR_MSG_MAX];
	struct wire w = wire_over(body, sizeof(body));
	uint8_t type;

	if (r->fd >= 0 && !r->failed) {
		wire_put(&w, keep.code, 4);
		wire_put_bytes(&w, keep.msg, strlen(keep.msg));
		/* the root's answer is the sentence that won; ours may have come second */
		if (send_message(r, RDV_FAIL, body, w.pos) == SIRCL_SUCCESS &&
		    read_message(r, &type) == SIRCL_SUCCESS && type == RDV_FAIL &&
		    take_failure(r) != SIRCL_SUCCESS)
			return error_last()->code;
	}
	return error_again(&keep);
}

void rdv_leave(struct rdv *r)
{
	if (r->fd >= 0) {
		struct sircl_error keep = *error_last();

		(void)send_message(r, RDV_LEAVE, "", 0);
		close(r->fd);
		error_again(&keep);
	}
	r->fd = -1;
	free(r->buf);
	r->buf = NULL;
}
