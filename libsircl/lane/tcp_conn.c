/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One established connection: records out (batched, paced, continued after a partial write), records in
 * (large payloads straight to their place, small ones through the staging buffer), acknowledgements both
 * ways. Every byte from the peer is checked before it is used: header by CRC, place by the table of regions,
 * acknowledgements against what was sent.
 */
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/crc32c.h"
#include "lane/tcp_internal.h"

void tcp_up(struct tcp_lane *l, int fd, uint32_t epoch, uint64_t peer_len)
{
	struct tcp_conn *c = &l->conn;

	memset(c, 0, offsetof(struct tcp_conn, iov));
	c->tx_puts = c->tx_bytes = c->acked_puts = c->acked_bytes = 0;
	c->fd = fd;
	c->epoch = epoch;
	c->peer_len = peer_len;
	c->rx_open = true;
	l->peer_export = (struct lane_export){ .len = peer_len, .key = 0 };
	l->state = TCP_UP;
	l->accepting = false;
	l->min_epoch = epoch + 1;
	l->ev_up = true;
	l->ev_suspect = false;
	l->done = 0;
}

void tcp_suspect(struct tcp_lane *l, bool gone, const char *fmt, ...)
{
	va_list ap;

	if (l->state != TCP_UP)
		return; /* once per epoch */
	va_start(ap, fmt);
	vsnprintf(l->why_suspect, sizeof(l->why_suspect), fmt, ap);
	va_end(ap);
	l->state = TCP_SUSPECT;
	l->gone_suspect = gone;
	l->ev_suspect = true;
}

/* ---- out ---- */

static uint32_t record(struct tcp_lane *l, struct tcp_rec *r, enum tcp_kind kind, const struct tcp_txput *p,
		       uint32_t len)
{
	struct tcp_conn *c = &l->conn;
	uint32_t hlen = tcp_kind_len(kind);

	c->ack_sent_puts = c->rx_puts;
	c->ack_sent_bytes = c->rx_bytes;
	r->kind = htole32(TCP_MAGIC | kind);
	r->crc = 0;
	r->ack_puts = htole32(c->rx_puts);
	r->ack_bytes = htole32(c->rx_bytes);
	if (p) {
		r->region = htole32(p->region);
		r->len = htole32(len);
		r->off = htole64(p->off + c->off);
		if (kind == TCP_LAST)
			r->note = p->note;
	}
	r->crc = htole32(crc32c(0, r, hlen));
	return hlen;
}

static void batch_add(struct tcp_conn *c, const void *p, size_t n)
{
	/* sendmsg does not write to it */
	c->iov[c->niov++] = (struct iovec){ .iov_base = (void *)(uintptr_t)p, .iov_len = n };
}

/* Makes records of what is queued, as far as the window lets; if there are none and the peer is owed an
 * acknowledgement, that. False: nothing to send. */
static bool build(struct tcp_lane *l)
{
	struct tcp_conn *c = &l->conn;
	int nrec = 0;

	c->iov_at = c->niov = 0;
	while (nrec < TCP_BATCH && c->n && c->tx_bytes - c->acked_bytes <= l->window - l->seg) {
		const struct tcp_txput *p = &l->q[c->head];
		struct tcp_rec *r = &c->rec[nrec++];
		uint32_t len = p->len - c->off;
		bool last = len <= l->seg;
		uint32_t hlen;

		len = last ? len : l->seg;
		hlen = record(l, r, last ? TCP_LAST : TCP_PART, p, len);
		batch_add(c, r, hlen);
		if (len)
			batch_add(c, p->src + c->off, len);
		c->tx_bytes += hlen + len;
		c->off += len;
		if (last) {
			c->off = 0;
			c->head = (c->head + 1) % l->cfg.max_notes;
			c->n--;
			c->tx_puts++;
		}
	}
	if (!nrec && c->rx_bytes - c->ack_sent_bytes >= l->ack_every) {
		batch_add(c, &c->rec[0], record(l, &c->rec[0], TCP_ACK, NULL, 0));
		nrec++;
	}
	return nrec > 0;
}

/* Writes until nothing is left, the window is full, or the socket is. */
void tcp_tx(struct tcp_lane *l)
{
	struct tcp_conn *c = &l->conn;
	char buf[96];

	while (l->state == TCP_UP) {
		struct msghdr m = { 0 };
		ssize_t w;

		if (c->iov_at == c->niov && !build(l)) {
			c->blocked = false;
			return;
		}
		m.msg_iov = c->iov + c->iov_at;
		m.msg_iovlen = (size_t)(c->niov - c->iov_at);
		l->stats.syscalls++;
		w = l->sys->sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (w < 0) {
			if (errno == EINTR)
				continue;
			c->blocked = true;
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				tcp_suspect(l, errno == EPIPE || errno == ECONNRESET, "sending failed: %s",
					    tcp_errno(errno, buf, sizeof(buf)));
			return;
		}
		while (w > 0) {
			struct iovec *v = &c->iov[c->iov_at];

			if ((size_t)w < v->iov_len) {
				v->iov_base = (uint8_t *)v->iov_base + w;
				v->iov_len -= (size_t)w;
				break;
			}
			w -= (ssize_t)v->iov_len;
			c->iov_at++;
		}
	}
}

/* Best effort: only between two records, and only if the socket has room. */
void tcp_say_fenced(struct tcp_lane *l)
{
	struct tcp_conn *c = &l->conn;
	struct tcp_rec r;
	struct iovec v = { .iov_base = &r };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (c->iov_at != c->niov)
		return;
	v.iov_len = record(l, &r, TCP_FENCED, NULL, 0);
	(void)l->sys->sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- in ---- */

static void broken(struct tcp_lane *l, const char *what)
{
	l->conn.rx_open = false;
	l->conn.rx_bad = true;
	tcp_suspect(l, false, "%s", what);
}

static bool take_ack(struct tcp_lane *l, const struct tcp_rec *r)
{
	struct tcp_conn *c = &l->conn;
	uint32_t puts = le32toh(r->ack_puts), bytes = le32toh(r->ack_bytes);

	if (puts - c->acked_puts > c->tx_puts - c->acked_puts ||
	    bytes - c->acked_bytes > c->tx_bytes - c->acked_bytes) {
		broken(l, "the peer acknowledged what was not sent");
		return false;
	}
	l->done += puts - c->acked_puts;
	c->acked_puts = puts;
	c->acked_bytes = bytes;
	return true;
}

/* Takes a record's header from the staging buffer. False: it is not there, or the stream is broken. */
static bool take_header(struct tcp_lane *l)
{
	struct tcp_conn *c = &l->conn;
	uint32_t have = c->rt - c->rh, hlen, kind, crc, region, len;
	struct tcp_rec r = { 0 };
	uint64_t off;

	if (have < TCP_ACK_LEN)
		return false;
	memcpy(&r, l->stage + c->rh, TCP_ACK_LEN);
	kind = le32toh(r.kind) - TCP_MAGIC;
	if (kind < TCP_ACK || kind > TCP_FENCED) {
		broken(l, "the peer sent bytes that are no record");
		return false;
	}
	hlen = tcp_kind_len(kind);
	if (have < hlen)
		return false;
	memcpy(&r, l->stage + c->rh, hlen);
	crc = le32toh(r.crc);
	r.crc = 0;
	if (crc32c(0, &r, hlen) != crc) {
		broken(l, "a record's header failed its checksum");
		return false;
	}
	if (!take_ack(l, &r))
		return false;
	c->rh += hlen;
	if (kind == TCP_ACK)
		return true;
	if (kind == TCP_FENCED) {
		c->rx_open = false;
		tcp_suspect(l, false, "the peer has fenced epoch %u", c->epoch);
		l->gone_suspect = false; /* also if sending has failed a moment ago */
		return true;
	}
	region = le32toh(r.region);
	len = le32toh(r.len);
	off = le64toh(r.off);
	c->rx_bytes += hlen;
	c->in_rec = true;
	c->last = kind == TCP_LAST;
	c->note = r.note;
	c->left = len;
	c->rx_big = len >= TCP_READ;
	c->region = region;
	if (!len)
		return true;
	if (region >= LANE_REGIONS_MAX || !l->region[region].used || !l->region[region].exported ||
	    off > l->region[region].len || len > l->region[region].len - off) {
		c->in_rec = false;
		broken(l, "the peer wrote outside the memory it was given");
		return false;
	}
	c->dst = l->region[region].base + off;
	return true;
}

/* Reports and lands what the staging buffer holds. */
int tcp_rx_staged(struct tcp_lane *l, struct lane_event *ev, int max)
{
	struct tcp_conn *c = &l->conn;
	int n = 0;

	c->rx_more = false;
	while (!c->rx_bad) {
		if (c->in_rec && c->left) {
			uint32_t k = c->rt - c->rh < c->left ? c->rt - c->rh : c->left;

			if (!k)
				break;
			memcpy(c->dst, l->stage + c->rh, k);
			c->dst += k;
			c->left -= k;
			c->rh += k;
			c->rx_bytes += k;
			l->stats.note_bytes += k;
			continue;
		}
		if (c->in_rec) {
			if (c->last) {
				if (n == max) {
					c->rx_more = true;
					break;
				}
				ev[n++] = (struct lane_event){ .ev = LANE_NOTE,
							       .epoch = c->epoch,
							       .note = c->note };
				c->rx_puts++;
				l->stats.notes++;
			}
			c->in_rec = false;
		}
		if (!take_header(l))
			break;
	}
	if (c->rh == c->rt)
		c->rh = c->rt = 0;
	return n;
}

/* One receive. False: nothing more is there now. */
static bool receive(struct tcp_lane *l)
{
	struct tcp_conn *c = &l->conn;
	struct iovec iov[2];
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 0 };
	uint32_t k, want = c->rx_big ? TCP_LAST_LEN : TCP_READ;
	size_t room = 0;
	char buf[96];
	ssize_t r;

	if (c->in_rec) { /* then the staging buffer is empty */
		iov[m.msg_iovlen++] = (struct iovec){ .iov_base = c->dst, .iov_len = c->left };
		room = c->left;
	} else if (c->rh) {
		memmove(l->stage, l->stage + c->rh, c->rt - c->rh);
		c->rt -= c->rh;
		c->rh = 0;
	}
	if (want > TCP_STAGE - c->rt)
		want = TCP_STAGE - c->rt;
	iov[m.msg_iovlen++] = (struct iovec){ .iov_base = l->stage + c->rt, .iov_len = want };
	room += want;
	l->stats.syscalls++;
	r = l->sys->recvmsg(c->fd, &m, MSG_DONTWAIT);
	if (r <= 0) {
		if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return false;
		c->rx_open = false;
		if (r == 0)
			tcp_suspect(l, true, "the peer closed the connection");
		else
			tcp_suspect(l, errno == ECONNRESET, "receiving failed: %s",
				    tcp_errno(errno, buf, sizeof(buf)));
		return false;
	}
	k = 0;
	if (c->in_rec) {
		k = (size_t)r < c->left ? (uint32_t)r : c->left;
		c->dst += k;
		c->left -= k;
		c->rx_bytes += k;
		l->stats.note_bytes += k;
	}
	c->rt += (uint32_t)r - k;
	return (size_t)r == room;
}

/* Reads what is there, within limits, so that one lane does not starve its sisters. */
int tcp_rx(struct tcp_lane *l, struct lane_event *ev, int max)
{
	struct tcp_conn *c = &l->conn;
	int n, reads = 0;

	n = tcp_rx_staged(l, ev, max);
	while (c->rx_open && !c->rx_more && reads++ < TCP_RECEIVES) {
		bool full = receive(l);

		n += tcp_rx_staged(l, ev + n, max - n);
		if (!full)
			break;
	}
	return n;
}
