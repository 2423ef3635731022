/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handshakes: from a socket to a connection whose two ends have proved that they know a key of the job and
 * mean the same lane and epoch. Nothing a stranger sends has an effect but one warning a minute: an accepting
 * end reports nothing before the proof is complete.
 *
 * The accepting end answers at once, also while it is up or not yet allowed; a connection that is proved
 * waits until allow() lets its epoch come up, and the connecting end is up only when it hears GO. So a newer
 * epoch that knocks while this end is up is noticed (suspect), and taken as soon as the link has fenced.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "lane/handshake.h"
#include "lane/tcp_internal.h"

static const char magic[8] = { 'S', 'I', 'R', 'C', 'L', 't', 'c', 'p' };

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static void start_auth(struct tcp_lane *l, struct tcp_hs *h)
{
	uint8_t ctx[LANE_AUTH_CONTEXT], hello[TCP_HELLO_LEN] = { 0 };
	uint64_t len = htole64(l->cfg.arena_len);

	lane_auth_context(ctx, magic, &l->cfg, h->connects, h->epoch, TCP_VERSION);
	put32(hello, TCP_VERSION);
	put32(hello + 4, h->epoch);
	memcpy(hello + 8, &len, 8);
	auth_start(&h->auth, l->cfg.keys, h->connects, ctx, sizeof(ctx), hello, sizeof(hello));
}

static void hs_free(struct tcp_lane *l, struct tcp_hs *h)
{
	if (h->state == TCP_HS_FREE)
		return;
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	h->state = TCP_HS_FREE;
	if (!h->connects)
		l->nhalf--;
}

/* The connecting side's handshake has failed. */
static void down(struct tcp_lane *l, struct tcp_hs *h, bool gone, const char *what)
{
	if (l->ndown == TCP_DOWNS) {
		memmove(l->down, l->down + 1, sizeof(l->down) - sizeof(l->down[0]));
		l->ndown--;
	}
	l->down[l->ndown++] = h->epoch;
	l->gone_down = gone;
	snprintf(l->why_down, sizeof(l->why_down), "%s", what);
	hs_free(l, h);
}

/* A peer that is none, or cannot prove it. `what` NULL: not worth a word. */
static void drop(struct tcp_lane *l, struct tcp_hs *h, const char *what)
{
	hs_free(l, h);
	if (!what)
		return;
	l->strangers++;
	if (l->now < l->warn_next)
		return;
	log_warn(&l->cfg.ctx->log,
		 "tcp lane %u of cable %u (device %s, to position %u): dropped %u connection%s that did not "
		 "belong here: %s",
		 l->cfg.lane, l->cfg.cable, l->dev[0] ? l->dev : "loopback", l->cfg.peer, l->strangers,
		 l->strangers == 1 ? "" : "s", what);
	l->strangers = 0;
	l->warn_next = l->now + TCP_WARN_NS;
}

static void fail(struct tcp_lane *l, struct tcp_hs *h, const char *what)
{
	if (h->connects)
		down(l, h, false, what);
	else
		drop(l, h, what);
}

void tcp_hs_connect(struct tcp_lane *l, const struct sockaddr_storage *to, socklen_t n, uint32_t epoch)
{
	struct tcp_hs *h = &l->out;
	char buf[96], text[160];
	int err;

	h->state = TCP_HS_AUTH;
	h->fd = -1;
	h->connects = true;
	h->epoch = epoch;
	h->began = l->now;
	h->limit = l->now + TCP_HANDSHAKE_NS;
	h->nin = h->nout = h->out_at = 0;
	if (tcp_socket(l, &h->fd) != SIRCL_SUCCESS) {
		h->fd = -1;
		down(l, h, false, error_last()->msg);
		return;
	}
	err = tcp_prepare(l, h->fd);
	if (!err && l->sys->connect(h->fd, (const struct sockaddr *)to, n) < 0 && errno != EINPROGRESS)
		err = errno;
	if (err) {
		snprintf(text, sizeof(text), "connecting failed: %s", tcp_errno(err, buf, sizeof(buf)));
		down(l, h, err == ECONNREFUSED, text);
		return;
	}
	start_auth(l, h);
	memcpy(h->out, magic, 8);
	put32(h->out + 8, TCP_VERSION);
	put32(h->out + 12, epoch);
	if (auth_step(&h->auth, NULL, 0, h->out + TCP_PREFACE_LEN, &h->nout) != SIRCL_SUCCESS)
		down(l, h, false, error_last()->msg);
	h->nout += TCP_PREFACE_LEN;
}

/* Writes what is pending. False: it is not all out (yet, or the handshake has failed). */
static bool flush(struct tcp_lane *l, struct tcp_hs *h)
{
	char buf[96], text[160];

	while (h->out_at < h->nout) {
		struct iovec v = { .iov_base = h->out + h->out_at, .iov_len = h->nout - h->out_at };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
		/* EAGAIN also while the connection is being made; its failure comes out here, too */
		ssize_t w = l->sys->sendmsg(h->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (w < 0) {
			int err = errno;

			if (err == EINTR)
				continue;
			if (err != EAGAIN && err != EWOULDBLOCK) {
				snprintf(text, sizeof(text), "connecting failed: %s",
					 tcp_errno(err, buf, sizeof(buf)));
				if (h->connects)
					down(l, h, err == ECONNREFUSED, text);
				else
					drop(l, h, NULL);
			}
			return false;
		}
		h->out_at += (size_t)w;
	}
	h->nout = h->out_at = 0;
	return true;
}

/* Reads until h->in has `need` bytes, never more: what follows belongs to the next stage. */
static bool fill(struct tcp_lane *l, struct tcp_hs *h, size_t need)
{
	char buf[96], text[200];

	while (h->nin < need) {
		struct iovec v = { .iov_base = h->in + h->nin, .iov_len = need - h->nin };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
		ssize_t r = l->sys->recvmsg(h->fd, &m, MSG_DONTWAIT);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return false;
		if (r <= 0) {
			if (r < 0)
				snprintf(text, sizeof(text), "the handshake failed: %s",
					 tcp_errno(errno, buf, sizeof(buf)));
			else
				snprintf(text, sizeof(text),
					 "the peer closed the connection during the handshake "
					 "(not ready, a fenced epoch, another job or another key)");
			fail(l, h, h->connects || (r == 0 && h->nin) ? text : NULL);
			return false;
		}
		h->nin += (size_t)r;
	}
	return true;
}

/* Has a whole self-delimited message of base/auth.h (or GO) in h->in. */
static bool message(struct tcp_lane *l, struct tcp_hs *h)
{
	size_t len;

	if (!fill(l, h, 2))
		return false;
	len = get16(h->in);
	if (len < TCP_GO_LEN || len > AUTH_MSG_MAX) {
		fail(l, h, "bytes that are no handshake");
		return false;
	}
	return fill(l, h, len);
}

static bool hello_ok(const struct tcp_hs *h)
{
	return h->auth.npeer_hello == TCP_HELLO_LEN && get32(h->auth.peer_hello) == TCP_VERSION &&
	       get32(h->auth.peer_hello + 4) == h->epoch;
}

static uint64_t hello_len(const struct tcp_hs *h)
{
	uint64_t v;

	memcpy(&v, h->auth.peer_hello + 8, 8);
	return le64toh(v);
}

static bool preface(struct tcp_lane *l, struct tcp_hs *h)
{
	if (!fill(l, h, TCP_PREFACE_LEN))
		return false;
	if (memcmp(h->in, magic, 8) != 0) {
		drop(l, h, "bytes that are no handshake");
		return false;
	}
	if (get32(h->in + 8) != TCP_VERSION) {
		drop(l, h, "another version of the tcp lane's protocol; all ranks need the same libsircl");
		return false;
	}
	h->epoch = get32(h->in + 12);
	h->nin = 0;
	if (h->epoch < l->min_epoch ||
	    h->epoch == UINT32_MAX) { /* a floor is a promise; epochs do not wrap */
		drop(l, h, NULL);
		return false;
	}
	start_auth(l, h);
	h->state = TCP_HS_AUTH;
	return true;
}

/* One message of the proof. */
static bool prove(struct tcp_lane *l, struct tcp_hs *h)
{
	size_t nin;

	if (!message(l, h))
		return false;
	nin = h->nin;
	h->nin = 0;
	if (auth_step(&h->auth, h->in, nin, h->out, &h->nout) != SIRCL_SUCCESS) {
		fail(l, h, error_last()->msg);
		return false;
	}
	if (h->auth.state == AUTH_OK) {
		if (!hello_ok(h)) {
			fail(l, h, "the peer's hello is of another version or epoch");
			return false;
		}
		h->state = h->connects ? TCP_HS_GO : TCP_HS_PROVED;
	}
	return true;
}

static bool await_go(struct tcp_lane *l, struct tcp_hs *h)
{
	int fd = h->fd;

	if (!message(l, h))
		return false;
	if (h->nin != TCP_GO_LEN || h->in[2] != 'G') {
		down(l, h, false, "bytes that are no handshake");
		return false;
	}
	if (l->state != TCP_DOWN || h->epoch < l->min_epoch) {
		down(l, h, false, "the epoch is fenced");
		return false;
	}
	h->fd = -1;
	hs_free(l, h);
	tcp_up(l, fd, h->epoch, hello_len(h));
	return false;
}

static void step(struct tcp_lane *l, struct tcp_hs *h)
{
	bool more = true;

	while (more && h->state != TCP_HS_FREE && flush(l, h)) {
		switch (h->state) {
		case TCP_HS_PREFACE:
			more = preface(l, h);
			break;
		case TCP_HS_AUTH:
			more = prove(l, h);
			break;
		case TCP_HS_GO:
			more = await_go(l, h);
			break;
		case TCP_HS_PROVED: /* the peer says nothing more until GO; a byte or an end means that it has
				       gone */
			if (fill(l, h, 1))
				drop(l, h, "bytes before the end of the handshake");
			more = false;
			break;
		case TCP_HS_FREE:
			break;
		}
	}
	if (h->state != TCP_HS_FREE && l->now >= h->limit)
		fail(l, h, h->connects ? "no answer within 2 s" : "nothing was proved within 2 s");
}

/* Brings up the newest proved connection if it may come up; else makes it known. */
static void settle(struct tcp_lane *l)
{
	static const uint8_t go[TCP_GO_LEN] = { TCP_GO_LEN, 0, 'G' };
	struct iovec v = { .iov_base = (void *)(uintptr_t)go, .iov_len = sizeof(go) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct tcp_hs *best = NULL;
	int i, fd;

	for (i = 0; i < TCP_HALF_OPEN; i++) {
		struct tcp_hs *h = &l->half[i];

		if (h->state != TCP_HS_PROVED)
			continue;
		if (best && best->epoch >= h->epoch) {
			drop(l, h, NULL);
			continue;
		}
		if (best)
			drop(l, best, NULL);
		best = h;
	}
	if (!best)
		return;
	if (best->epoch < l->min_epoch) {
		drop(l, best, NULL);
		return;
	}
	if (l->state == TCP_UP || l->state == TCP_SUSPECT) { /* its epoch is newer: min_epoch is above ours */
		tcp_suspect(l, false, "the peer reconnects with epoch %u", best->epoch);
		return;
	}
	if (l->state != TCP_DOWN || !l->accepting || l->ev_fenced)
		return;
	if (l->sys->sendmsg(best->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) != TCP_GO_LEN) {
		drop(l, best, NULL);
		return;
	}
	fd = best->fd;
	best->fd = -1;
	hs_free(l, best);
	tcp_up(l, fd, best->epoch, hello_len(best));
}

static void take(struct tcp_lane *l, int fd)
{
	struct tcp_hs *h = NULL;
	int i;

	/* All slots taken: the oldest has to go. A real peer needs a moment, a stranger that sits there for
	 * two seconds must not keep it out. */
	for (i = 0; i < TCP_HALF_OPEN; i++) {
		struct tcp_hs *s = &l->half[i];

		if (s->state == TCP_HS_FREE) {
			h = s;
			break;
		}
		if (s->state != TCP_HS_PROVED && (!h || s->began < h->began))
			h = s;
	}
	if (!h || tcp_prepare(l, fd) != 0) {
		close(fd);
		return;
	}
	if (h->state != TCP_HS_FREE)
		drop(l, h, "too many at once");
	h->state = TCP_HS_PREFACE;
	h->fd = fd;
	h->connects = false;
	h->epoch = 0;
	h->began = l->now;
	h->limit = l->now + TCP_HANDSHAKE_NS;
	h->nin = h->nout = h->out_at = 0;
	l->nhalf++;
}

static void accept_some(struct tcp_lane *l)
{
	char buf[96];
	int i;

	if (l->listener < 0 || l->now < l->listen_pause)
		return;
	if (!l->look && l->state == TCP_UP && l->now < l->next_look)
		return;
	l->look = false;
	l->next_look = l->now + TCP_LISTEN_NS;
	for (i = 0; i < TCP_HALF_OPEN; i++) {
		int fd;

		l->stats.syscalls++;
		fd = l->sys->accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			take(l, fd);
			continue;
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			break;
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		/* out of descriptors or memory: the listener stays ready, so leave it alone for a while */
		l->listen_pause = l->now + 100 * MSEC;
		if (l->now >= l->warn_next) {
			log_warn(&l->cfg.ctx->log,
				 "tcp lane %u of cable %u to position %u: accepting failed: %s", l->cfg.lane,
				 l->cfg.cable, l->cfg.peer, tcp_errno(errno, buf, sizeof(buf)));
			l->warn_next = l->now + TCP_WARN_NS;
		}
		break;
	}
}

void tcp_hs_poll(struct tcp_lane *l)
{
	int i;

	if (l->out.state != TCP_HS_FREE)
		step(l, &l->out);
	accept_some(l);
	if (!l->nhalf)
		return;
	for (i = 0; i < TCP_HALF_OPEN; i++)
		if (l->half[i].state != TCP_HS_FREE)
			step(l, &l->half[i]);
	settle(l);
}

void tcp_hs_cancel(struct tcp_lane *l, uint32_t below, const char *why)
{
	int i;

	if (l->out.state != TCP_HS_FREE && l->out.epoch < below)
		down(l, &l->out, false, why);
	for (i = 0; i < TCP_HALF_OPEN; i++)
		if (l->half[i].state > TCP_HS_PREFACE && l->half[i].epoch < below)
			drop(l, &l->half[i], NULL);
}

void tcp_hs_close(struct tcp_lane *l)
{
	int i;

	hs_free(l, &l->out);
	for (i = 0; i < TCP_HALF_OPEN; i++)
		hs_free(l, &l->half[i]);
}

uint64_t tcp_hs_deadline(const struct tcp_lane *l)
{
	uint64_t t = l->out.state != TCP_HS_FREE ? l->out.limit : NEVER;
	int i;

	if (l->listen_pause > l->now)
		t = tick_min(t, l->listen_pause);
	if (l->unarmed)
		t = tick_min(t, l->now + MSEC);
	for (i = 0; l->nhalf && i < TCP_HALF_OPEN; i++)
		if (l->half[i].state != TCP_HS_FREE)
			t = tick_min(t, l->half[i].limit);
	return t;
}

static int arm_one(const struct tcp_hs *h, struct pollfd *p)
{
	if (h->state == TCP_HS_FREE)
		return 0;
	*p = (struct pollfd){ .fd = h->fd, .events = h->out_at < h->nout ? POLLOUT : POLLIN };
	return 1;
}

int tcp_hs_arm(struct tcp_lane *l, struct pollfd *p, int max)
{
	int i, n = 0;

	l->unarmed = false;
	if (l->listener >= 0 && l->now >= l->listen_pause) {
		if (n < max) {
			p[n++] = (struct pollfd){ .fd = l->listener, .events = POLLIN };
			l->look = true;
		} else {
			l->unarmed = true;
		}
	}
	if (l->out.state != TCP_HS_FREE) {
		if (n < max)
			n += arm_one(&l->out, p + n);
		else
			l->unarmed = true;
	}
	for (i = 0; l->nhalf && i < TCP_HALF_OPEN; i++) {
		if (n < max)
			n += arm_one(&l->half[i], p + n);
		else if (l->half[i].state != TCP_HS_FREE)
			l->unarmed = true;
	}
	return n;
}
