/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous root: one thread, one listening socket, one job. Connections that have not proved a key
 * within AUTH_LIMIT are dropped and are bounded in number; nothing of theirs but the handshake is parsed.
 * Invariant: a round's answer is sent only when every rank has given its blob; the first failure, from
 * whomever, is sent to everybody and ends the job.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "fabric/rdv_internal.h"
#include "fabric/wire.h"

static uint64_t now(const struct rdv_root *r)
{
	return r->ctx->clock(r->ctx->clock_arg);
}

static void drop(struct rdv_root *r, struct conn *c)
{
	if (c->state == CONN_MEMBER && c->rank >= 0)
		r->member[c->rank] = -1;
	close(c->fd);
	free(c->in);
	free(c->out);
	memset(c, 0, sizeof(*c));
	c->fd = -1;
}

static bool queue(struct conn *c, const void *p, size_t n)
{
	uint8_t *grown = realloc(c->out, c->nout + n);

	if (!grown)
		return false;
	memcpy(grown + c->nout, p, n);
	c->out = grown;
	c->nout += n;
	return true;
}

static bool queue_message(struct conn *c, enum rdv_type type, const void *body, size_t n)
{
	uint8_t head[5];
	struct wire w = wire_over(head, sizeof(head));

	wire_put(&w, n, 4);
	wire_put(&w, type, 1);
	return queue(c, head, sizeof(head)) && queue(c, body, n);
}

static void queue_failure(struct rdv_root *r, struct conn *c)
{
	uint8_t body[4 + ERROR_MSG_MAX];
	struct wire w = wire_over(body, sizeof(body));

	wire_put(&w, r->fail_code, 4);
	wire_put_bytes(&w, r->fail_msg, strlen(r->fail_msg));
	queue_message(c, RDV_FAIL, body, w.pos);
}

/* The first sentence wins; everybody gets it, also who comes while we linger. The job is over. */
static void fail_all(struct rdv_root *r, sircl_result_t code, const char *msg)
{
	if (r->failed)
		return;
	r->failed = true;
	r->deadline = now(r) + LINGER;
	r->fail_code = code;
	snprintf(r->fail_msg, sizeof(r->fail_msg), "%s", msg);
	log_info(&r->ctx->log, LOG_INIT, "rendezvous: failed: %s", msg);
	for (int i = 0; i < CONNS; i++)
		if (r->conn[i].state == CONN_MEMBER)
			queue_failure(r, &r->conn[i]);
}

static void fail_conn(struct rdv_root *r, struct conn *c, const char *msg)
{
	fail_all(r, SIRCL_INVALID_ARGUMENT, msg);
	queue_failure(r, c);
}

static void on_join(struct rdv_root *r, struct conn *c, struct wire *w)
{
	unsigned version = (unsigned)wire_get(w, 2);
	int n = (int)wire_get(w, 2), rank = (int)wire_get(w, 2);
	uint64_t limit = now(r) + tick_min(wire_get(w, 8), 1000ull * 86400 * 365) * MSEC;
	char msg[256];

	if (r->failed) {
		queue_failure(r, c);
	} else if (w->bad || version != RDV_VERSION) {
		snprintf(msg, sizeof(msg),
			 "a rank speaks rendezvous version %u, the root speaks %d: use the same libsircl on "
			 "all ranks",
			 version, RDV_VERSION);
		fail_conn(r, c, msg);
	} else if (n < 1 || n > COLL_MAX_RANKS || rank >= n) {
		snprintf(msg, sizeof(msg), "rank %d of %d is out of range: 1 to %d ranks, 0 <= rank < size",
			 rank, n, COLL_MAX_RANKS);
		fail_conn(r, c, msg);
	} else if (r->n && n != r->n) {
		snprintf(msg, sizeof(msg),
			 "rank %d was started with size %d, the ranks before it with size %d: give all the "
			 "same",
			 rank, n, r->n);
		fail_conn(r, c, msg);
	} else if (r->member[rank] >= 0) {
		snprintf(msg, sizeof(msg),
			 "two processes came to the rendezvous as rank %d: give each rank once", rank);
		fail_conn(r, c, msg);
	} else {
		/* a little earlier than the rank itself would give up, so that its sentence can still reach
		 * it */
		limit -= tick_min(200 * MSEC, (limit - now(r)) / 4);
		r->deadline = r->n ? tick_min(r->deadline, limit) : limit;
		r->n = n;
		r->joined++;
		r->member[rank] = (int)(c - r->conn);
		c->rank = rank;
		c->state = CONN_MEMBER;
	}
}

/* Everybody's blob is here: the answer is the same bytes for all. */
static void answer_round(struct rdv_root *r)
{
	size_t len = r->round == 0 ? RDV_FIRST : 0;
	uint8_t *body;
	struct wire w;

	for (int i = 0; i < r->n; i++)
		len += 4 + r->blob[i].len;
	body = malloc(len ? len : 1);
	if (!body) {
		fail_all(r, SIRCL_NO_MEMORY, "no memory at the rendezvous");
		return;
	}
	w = wire_over(body, len);
	if (r->round == 0) {
		wire_put_bytes(&w, r->job, RDV_JOB);
		wire_put(&w, r->keys.n == 0, 1);
		wire_put_bytes(&w, r->job_key, KEY_BYTES);
		wire_put_text(&w, r->lab, sizeof(r->lab));
	}
	for (int i = 0; i < r->n; i++) {
		wire_put(&w, r->blob[i].len, 4);
		wire_put_bytes(&w, r->blob[i].p, r->blob[i].len);
	}
	for (int i = 0; i < r->n; i++) {
		if (!queue_message(&r->conn[r->member[i]], RDV_ROUND, body, len))
			fail_all(r, SIRCL_NO_MEMORY, "no memory at the rendezvous");
		free(r->blob[i].p);
		r->blob[i] = (struct blob){ 0 };
	}
	free(body);
	r->given = 0;
	r->round++;
}

static void on_message(struct rdv_root *r, struct conn *c, uint8_t type, uint8_t *body, size_t len)
{
	struct wire w = wire_over(body, len);

	if (c->state == CONN_JOINING && type == RDV_JOIN) {
		on_join(r, c, &w);
		return;
	}
	if (r->failed || c->state != CONN_MEMBER)
		return;
	if (type == RDV_BLOB && !r->blob[c->rank].given && len <= RDV_BLOB_MAX) {
		struct blob *b = &r->blob[c->rank];

		b->p = malloc(len ? len : 1);
		if (!b->p) {
			fail_all(r, SIRCL_NO_MEMORY, "no memory at the rendezvous");
			return;
		}
		memcpy(b->p, body, len);
		b->len = len;
		b->given = true;
		if (++r->given == r->n)
			answer_round(r);
	} else if (type == RDV_FAIL && len >= 4) {
		char msg[ERROR_MSG_MAX];
		sircl_result_t code = (sircl_result_t)wire_get(&w, 4);

		snprintf(msg, sizeof(msg), "%.*s", (int)(len - 4), (const char *)body + 4);
		fail_all(r, code == SIRCL_SUCCESS || code > SIRCL_IN_PROGRESS ? SIRCL_REMOTE_ERROR : code,
			 msg);
	} else if (type == RDV_LEAVE && r->blob[c->rank].given) {
		char msg[128];

		snprintf(msg, sizeof(msg),
			 "rank %d left in the middle of round %d of the start: see what it printed last",
			 c->rank, r->round);
		fail_all(r, SIRCL_REMOTE_ERROR, msg);
	} else if (type == RDV_LEAVE) {
		r->left++;
		c->state = CONN_JOINING; /* its end of file is no failure any more */
		r->member[c->rank] = -1;
		if (r->left == r->n)
			r->done = true;
	}
}

static bool proved(struct rdv_root *r, struct conn *c)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (r->keys.n > 0)
		return false;
	return address_is_unix(&r->at) && getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
	       peer.uid == geteuid();
}

/* One step of the handshake from c->in; false: drop the stranger. */
static bool on_auth(struct rdv_root *r, struct conn *c, const uint8_t *msg, size_t n)
{
	uint8_t out[AUTH_MSG_MAX];
	size_t nout = 0;

	if (auth_step(&c->auth, msg, n, out, &nout) != SIRCL_SUCCESS) {
		log_warn(&r->ctx->log, "rendezvous: a connection was refused: %s", error_last()->msg);
		return false;
	}
	if (nout && !queue(c, out, nout))
		return false;
	if (c->auth.state == AUTH_OK)
		c->state = CONN_JOINING;
	return true;
}

/* Takes whole messages out of c->in. False: drop. */
static bool parse(struct rdv_root *r, struct conn *c)
{
	size_t at = 0;

	for (;;) {
		const uint8_t *p = c->in + at;
		size_t have = c->nin - at, need;

		if (c->state == CONN_AUTH) {
			if (have < 2)
				break;
			need = p[0] | (size_t)p[1] << 8;
			if (need < 2 || need > AUTH_MSG_MAX)
				return false;
			if (have < need)
				break;
			if (!on_auth(r, c, p, need))
				return false;
		} else {
			if (have < 5)
				break;
			need = (size_t)(p[0] | p[1] << 8 | p[2] << 16) + ((size_t)p[3] << 24) + 5;
			if (need > RDV_BLOB_MAX + 5)
				return false;
			if (have < need)
				break;
			on_message(r, c, p[4], c->in + at + 5, need - 5);
		}
		at += need;
	}
	memmove(c->in, c->in + at, c->nin - at);
	c->nin -= at;
	return true;
}

static void gone(struct rdv_root *r, struct conn *c)
{
	char msg[160];

	if (c->state == CONN_MEMBER && !r->failed && !r->done) {
		snprintf(msg, sizeof(msg),
			 "rank %d went away during the start (round %d): see what it printed last", c->rank,
			 r->round);
		drop(r, c);
		fail_all(r, SIRCL_REMOTE_ERROR, msg);
		return;
	}
	drop(r, c);
}

static void read_conn(struct rdv_root *r, struct conn *c)
{
	for (;;) {
		ssize_t k = recv(c->fd, c->in + c->nin, c->cap - c->nin, MSG_DONTWAIT);

		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (k <= 0) {
			gone(r, c);
			return;
		}
		c->nin += (size_t)k;
		if (!parse(r, c)) {
			gone(r, c);
			return;
		}
	}
}

static void write_conn(struct rdv_root *r, struct conn *c)
{
	while (c->out_at < c->nout) {
		ssize_t k = send(c->fd, c->out + c->out_at, c->nout - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (k < 0) {
			gone(r, c);
			return;
		}
		c->out_at += (size_t)k;
	}
	c->nout = c->out_at = 0;
}

static void accept_all(struct rdv_root *r)
{
	for (;;) {
		int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), strangers = 0;
		struct conn *c = NULL, *oldest = NULL;

		if (fd < 0)
			return;
		for (int i = 0; i < CONNS; i++) {
			struct conn *k = &r->conn[i];

			if (k->state == CONN_AUTH) {
				strangers++;
				oldest = !oldest || k->since < oldest->since ? k : oldest;
			} else if (k->state == CONN_FREE && !c) {
				c = k;
			}
		}
		/* a rank needs milliseconds for its proof, so who has been silent longest has to go:
		 * strangers that hold connections keep no rank out */
		if ((strangers >= STRANGERS || !c) && oldest) {
			drop(r, oldest);
			c = oldest;
		}
		if (!c) {
			close(fd);
			continue;
		}
		memset(c, 0, sizeof(*c));
		c->fd = fd;
		c->rank = -1;
		c->since = now(r);
		c->cap = RDV_BLOB_MAX + 5 + AUTH_MSG_MAX;
		c->in = malloc(c->cap);
		c->state = proved(r, c) ? CONN_JOINING : CONN_AUTH;
		if (!c->in || (c->state == CONN_AUTH && r->keys.n == 0)) {
			drop(r, c);
			continue;
		}
		auth_start(&c->auth, &r->keys, false, RDV_AUTH_CONTEXT, sizeof(RDV_AUTH_CONTEXT), "", 0);
	}
}

static void on_deadline(struct rdv_root *r)
{
	char msg[ERROR_MSG_MAX], missing[256] = "", text[ADDRESS_TEXT];
	size_t at = 0;
	bool coming = r->joined < r->n;

	for (int i = 0; i < r->n && at < sizeof(missing) - 8; i++)
		if (coming ? r->member[i] < 0 : !r->blob[i].given)
			at += (size_t)snprintf(missing + at, sizeof(missing) - at, "%s%d", at ? ", " : "", i);
	if (coming)
		snprintf(msg, sizeof(msg),
			 "rank %s of %d did not come to the rendezvous at %s within the limit: start it, "
			 "with the same SIRCL_ROOT and key; "
			 "is the address reachable from its machine? (limit: SIRCL_START_TIMEOUT)",
			 missing, r->n, address_text(&r->at, text));
	else
		snprintf(msg, sizeof(msg),
			 "rank %s of %d did not answer in round %d of the start within the limit", missing,
			 r->n, r->round);
	fail_all(r, SIRCL_TIMEOUT, msg);
}

/* Closing with unread bytes in a socket resets it and may destroy the sentence on its way: stay until the
 * others have closed. */
static bool all_gone(const struct rdv_root *r)
{
	for (int i = 0; i < CONNS; i++)
		if (r->conn[i].state != CONN_FREE && r->conn[i].state != CONN_AUTH)
			return false;
	return true;
}

void *rdv_serve(void *arg)
{
	struct rdv_root *r = arg;
	struct pollfd p[CONNS + 2];

	while (!r->done && !(r->failed && (all_gone(r) || now(r) >= r->deadline))) {
		int which[CONNS], k = 2, wait = 1000;
		uint64_t t = now(r);

		p[0] = (struct pollfd){ .fd = r->quit, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = r->listener, .events = POLLIN };
		for (int i = 0; i < CONNS; i++) {
			struct conn *c = &r->conn[i];

			if (c->state == CONN_AUTH && t - c->since > AUTH_LIMIT)
				drop(r, c);
			if (c->state == CONN_FREE)
				continue;
			which[k - 2] = i;
			p[k++] = (struct pollfd){
				.fd = c->fd, .events = (short)(POLLIN | (c->out_at < c->nout ? POLLOUT : 0))
			};
		}
		if (r->n && !r->failed && t >= r->deadline) {
			on_deadline(r);
			continue;
		}
		if (r->n || r->failed)
			wait = (int)tick_min((r->deadline > t ? r->deadline - t : 0) / MSEC + 1, 1000);
		if (poll(p, (nfds_t)k, wait) < 0 && errno != EINTR)
			break;
		if (p[0].revents) {
			fail_all(r, SIRCL_ABORTED, "the process that serves the rendezvous ended it");
			for (int i = 0; i < CONNS; i++)
				if (r->conn[i].state != CONN_FREE)
					write_conn(r, &r->conn[i]);
			break;
		}
		for (int i = 2; i < k; i++) {
			struct conn *c = &r->conn[which[i - 2]];

			if (c->state != CONN_FREE && (p[i].revents & (POLLIN | POLLHUP | POLLERR)))
				read_conn(r, c);
		}
		if (p[1].revents)
			accept_all(r);
		for (int i = 0; i < CONNS; i++)
			if (r->conn[i].state != CONN_FREE)
				write_conn(r, &r->conn[i]);
	}
	/* close now, so that late comers are refused instead of waiting */
	for (int i = 0; i < CONNS; i++)
		if (r->conn[i].state != CONN_FREE)
			drop(r, &r->conn[i]);
	close(r->listener);
	r->listener = -1;
	rdv_root_ended(r);
	return NULL;
}
