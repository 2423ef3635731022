/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data: puts become chains of work requests, completions become notes. Every byte from the peer that steers
 * something is checked before it is used: headers by CRC, the place of a SEND by the table of regions (that
 * of a WRITE is checked by the NIC).
 */
#include <arpa/inet.h>
#include <string.h>
#include "base/crc32c.h"
#include "lane/dma.h"
#include "lane/verbs_internal.h"

/* ---- out ---- */

struct verbs_head *verbs_head_make(struct verbs_lane *l, enum verbs_kind kind, uint64_t addr, uint32_t key,
				   uint32_t len, const struct lane_note *note, uint32_t seq)
{
	struct verbs_head *h = &l->heads[seq % l->cfg.max_notes];

	*h = (struct verbs_head){ .kind = htole32(VERBS_MAGIC | kind),
				  .addr = htole64(addr),
				  .key = htole32(key),
				  .len = htole32(len) };
	if (note)
		h->note = *note;
	h->crc = htole32(crc32c(0, h, sizeof(*h)));
	return h;
}

/* Posts up to VERBS_CHAIN puts as one chain, its last request signalled. Returns how many were posted, those
 * included of which the WRITE alone was: its bytes may land until the fence, so the link must know of it. */
static int chain(struct verbs_lane *l, const struct lane_put *p, int n)
{
	struct ibv_send_wr wr[2 * VERBS_CHAIN], *bad = NULL;
	struct ibv_sge sge[2 * VERBS_CHAIN];
	struct verbs_conn *c = &l->conn;
	int nwr = 0, nsge = 0, err, first[VERBS_CHAIN], posted = 0;

	for (int i = 0; i < n; i++) {
		uint32_t seq = c->put_seq + (uint32_t)i, len = p[i].len;
		uint64_t addr = len ? p[i].dst->addr + p[i].dst_off : 0;
		uint32_t key = len ? p[i].dst->key : 0;
		bool eager = len <= VERBS_EAGER;
		struct verbs_head *h = verbs_head_make(l, eager ? VERBS_PUT : VERBS_WRITTEN, addr, key, len,
						       &p[i].note, seq);
		struct ibv_sge head_sge = { .addr = (uintptr_t)h,
					    .length = sizeof(*h),
					    .lkey = l->mem_mr->lkey };
		struct ibv_sge data_sge = { .addr = (uintptr_t)p[i].src,
					    .length = len,
					    .lkey = len ? (uint32_t)p[i].smem->impl : 0 };
		struct ibv_send_wr *w = &wr[nwr];

		first[i] = nwr++;
		*w = (struct ibv_send_wr){ .wr_id = verbs_wr_id(WR_PUT, c->qp.gen, seq + 1),
					   .next = w + 1,
					   .sg_list = &sge[nsge] };
		if (eager) {
			sge[nsge++] = head_sge;
			if (len)
				sge[nsge++] = data_sge;
			w->num_sge = len ? 2 : 1;
			w->opcode = IBV_WR_SEND;
			w->send_flags = sizeof(*h) + len <= l->inline_max ? IBV_SEND_INLINE : 0;
		} else {
			sge[nsge++] = data_sge;
			w->num_sge = 1;
			w->opcode = IBV_WR_RDMA_WRITE;
			w->wr.rdma.remote_addr = addr;
			w->wr.rdma.rkey = key;
			w = &wr[nwr++];
			*w = (struct ibv_send_wr){ .wr_id = verbs_wr_id(WR_PUT, c->qp.gen, seq + 1),
						   .next = w + 1,
						   .sg_list = &sge[nsge],
						   .num_sge = 1,
						   .opcode = IBV_WR_RDMA_WRITE_WITH_IMM };
			sge[nsge++] = head_sge;
			w->send_flags = sizeof(*h) <= l->inline_max ? IBV_SEND_INLINE : 0;
			w->imm_data = htonl(seq % l->cfg.max_notes);
			w->wr.rdma.remote_addr =
				c->peer.ring + (seq % l->cfg.max_notes) * sizeof(struct verbs_head);
			w->wr.rdma.rkey = c->peer.ring_key;
		}
	}
	sircl_assert(nwr > 0);
	wr[nwr - 1].next = NULL;
	wr[nwr - 1].send_flags |= IBV_SEND_SIGNALED;
	dma_wmb();
	err = ibv_post_send(c->qp.qp, wr, &bad);
	if (!err)
		return n;
	verbs_suspect_errno(l, "posting failed", err);
	for (int i = 0; i < n && bad && bad >= wr && bad < wr + nwr; i++)
		posted += first[i] < bad - wr;
	return posted;
}

int verbs_put(struct verbs_lane *l, const struct lane_put *p, int n)
{
	struct verbs_conn *c = &l->conn;
	int done = 0;

	while (done < n && l->state == VERBS_UP) {
		uint32_t room = l->cfg.max_notes - (c->put_seq - c->done_seq);
		int k = n - done < VERBS_CHAIN ? n - done : VERBS_CHAIN, posted;

		if ((uint32_t)k > room)
			k = (int)room;
		if (!k)
			break;
		for (int i = 0; i < k; i++) {
			sircl_assert(p[done + i].len <= VERBS_MAX_PUT);
			sircl_assert(!p[done + i].len ||
				     (p[done + i].dst_off <= p[done + i].dst->len &&
				      p[done + i].len <= p[done + i].dst->len - p[done + i].dst_off));
		}
		posted = chain(l, p + done, k);
		for (int i = 0; i < posted; i++) {
			l->stats.puts++;
			l->stats.put_bytes += p[done + i].len;
		}
		c->put_seq += (uint32_t)posted;
		done += posted;
	}
	return done;
}

/* ---- in ---- */

static void broken(struct verbs_lane *l, const char *what)
{
	char where[VERBS_WHERE_MAX];

	verbs_suspect(l, false, "%s: %s", verbs_where(l, where), what);
}

/* A header's kind, 0: it is none. Makes a copy: the peer could write to the ring again. */
static uint32_t take_head(const struct verbs_head *from, struct verbs_head *h)
{
	uint32_t crc, kind;

	memcpy(h, from, sizeof(*h));
	crc = le32toh(h->crc);
	h->crc = 0;
	kind = le32toh(h->kind) - VERBS_MAGIC;
	if (kind < VERBS_PUT || kind > VERBS_FENCED || crc32c(0, h, sizeof(*h)) != crc)
		return 0;
	h->addr = le64toh(h->addr);
	h->key = le32toh(h->key);
	h->len = le32toh(h->len);
	return kind;
}

/* Where a SEND's bytes belong, NULL: outside what was exported. */
static uint8_t *place(const struct verbs_lane *l, const struct verbs_head *h)
{
	for (uint32_t i = 0; i < l->nregions; i++) {
		const struct verbs_region *r = &l->region[i];
		uint64_t off = h->addr - (uintptr_t)r->base;

		if (r->mr && r->exported && r->mr->rkey == h->key)
			return off <= r->len && h->len <= r->len - off ? r->base + off : NULL;
	}
	return NULL;
}

static bool note(struct verbs_lane *l, const struct verbs_head *h, struct lane_event *ev)
{
	if (l->conn.mute)
		return false;
	*ev = (struct lane_event){ .ev = LANE_NOTE, .epoch = l->conn.epoch, .note = h->note };
	l->stats.notes++;
	l->stats.note_bytes += h->len;
	return true;
}

/* A receive has completed. True: an event. */
static bool received(struct verbs_lane *l, const struct ibv_wc *wc, struct lane_event *ev)
{
	const uint32_t slot = (uint32_t)wc->wr_id;
	const struct verbs_head *from;
	struct verbs_head h;
	bool imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
	uint32_t kind, entry;
	uint8_t *dst;

	l->repost[l->nrepost++] = slot;
	if (l->conn.said)
		return false; /* nothing follows it */
	if (imm) {
		entry = ntohl(wc->imm_data);
		if (entry >= l->cfg.max_notes) {
			broken(l, "the peer sent a note that has no place");
			return false;
		}
		from = &l->ring[entry];
	} else {
		from = (const void *)(l->slots + slot * VERBS_SLOT);
		if (wc->byte_len < sizeof(h)) {
			broken(l, "the peer sent bytes that are no record");
			return false;
		}
	}
	kind = take_head(from, &h);
	if (!kind || imm != (kind == VERBS_WRITTEN)) {
		broken(l, "a record's header failed its checksum");
		return false;
	}
	if (kind == VERBS_FENCED) {
		l->conn.said = true;
		verbs_suspect(l, false, "the peer has fenced epoch %u", l->conn.epoch);
		l->gone_suspect = false; /* also if the end of the connection was seen before */
		return false;
	}
	if (kind == VERBS_PUT) {
		if (h.len != wc->byte_len - sizeof(h)) {
			broken(l, "the peer sent a record of another length than it says");
			return false;
		}
		dst = h.len ? place(l, &h) : NULL;
		if (h.len && !dst) {
			broken(l, "the peer wrote outside the memory it was given");
			return false;
		}
		if (h.len)
			memcpy(dst, (const uint8_t *)from + sizeof(h), h.len);
	}
	return note(l, &h, ev);
}

/* One completion of the connection. True: an event. */
static bool completed(struct verbs_lane *l, const struct ibv_wc *wc, struct lane_event *ev)
{
	struct verbs_conn *c = &l->conn;
	enum verbs_wr kind = verbs_wr_kind(wc->wr_id);
	char where[VERBS_WHERE_MAX];
	uint32_t seq = (uint32_t)wc->wr_id;

	if (kind == WR_MARK_IN || kind == WR_MARK_OUT) {
		c->mark_in |= kind == WR_MARK_IN;
		c->mark_out |= kind == WR_MARK_OUT;
		return false;
	}
	if (kind == WR_SAY)
		c->told = true;
	if (wc->status != IBV_WC_SUCCESS) {
		c->broken = true;
		verbs_suspect(l, false, "%s: %s (vendor error %u)", verbs_where(l, where),
			      l->lib->ibv.ibv_wc_status_str(wc->status), wc->vendor_err);
		return false;
	}
	if (kind == WR_RECV)
		return received(l, wc, ev);
	if (kind == WR_PUT && seq - c->done_seq <= c->put_seq - c->done_seq) {
		l->done += seq - c->done_seq;
		c->done_seq = seq;
	}
	return false;
}

static struct verbs_hs *hs_of(struct verbs_lane *l, uint32_t gen)
{
	if (l->out.state != VERBS_HS_FREE && l->out.qp.qp && l->out.qp.gen == gen)
		return &l->out;
	for (int i = 0; l->nhalf && i < VERBS_HALF_OPEN; i++)
		if (l->half[i].state != VERBS_HS_FREE && l->half[i].qp.qp && l->half[i].qp.gen == gen)
			return &l->half[i];
	return NULL;
}

static void give_back(struct verbs_lane *l)
{
	struct verbs_conn *c = &l->conn;
	int err, n = l->nrepost;

	l->nrepost = 0;
	if (!n || c->broken || (l->state != VERBS_UP && l->state != VERBS_SUSPECT))
		return;
	err = verbs_post_some(l, &c->qp, l->repost, n);
	if (err)
		verbs_suspect_errno(l, "posting a receive failed", err);
}

/* Takes completions from the queue. False: there are none. */
static bool fill(struct verbs_lane *l)
{
	int n;

	if (l->wc_at < l->wc_n)
		return true;
	l->wc_at = l->wc_n = 0;
	n = ibv_poll_cq(l->cq, VERBS_POLL, l->wc);
	if (n < 0) {
		l->conn.broken = true;
		broken(l, "polling the completion queue failed");
	}
	if (n <= 0)
		return false;
	dma_rmb(); /* before the bytes that these completions speak of */
	l->wc_n = n;
	return true;
}

int verbs_completions(struct verbs_lane *l, struct lane_event *ev, int max)
{
	int n = 0;

	/* no lane starves its sisters: with `max` events, or soon after, it is another's turn */
	for (int taken = 0; n < max && taken < 8 * VERBS_POLL && fill(l); taken++) {
		const struct ibv_wc *wc = &l->wc[l->wc_at++];
		uint32_t gen = verbs_wr_gen(wc->wr_id);
		struct verbs_hs *h;

		if (l->conn.qp.id && gen == l->conn.qp.gen) {
			n += completed(l, wc, &ev[n]);
			if (l->nrepost == VERBS_POLL)
				give_back(l);
			continue;
		}
		h = hs_of(l, gen);
		if (h)
			verbs_hs_completion(l, h, wc);
		if (l->ev_up)
			break;
	}
	give_back(l);
	return n;
}

/* Before sleeping: asks for a notification, then looks for what came before it. */
bool verbs_stash(struct verbs_lane *l)
{
	struct ibv_cq *cq;
	void *context;

	if (l->wc_at < l->wc_n)
		return true;
	if (l->notified) { /* the last one may have come by now */
		l->stats.syscalls++;
		if (!l->lib->ibv.ibv_get_cq_event(l->channel, &cq, &context)) {
			l->lib->ibv.ibv_ack_cq_events(cq, 1);
			l->notified = false;
		}
	}
	if (!l->notified) {
		l->stats.syscalls++;
		l->notified = ibv_req_notify_cq(l->cq, 0) == 0;
		/* without it (the device is gone) no long sleep while something may come, and none cut short
		 * when nothing can */
		l->unarmed |=
			!l->notified && (l->state != VERBS_DOWN || l->nhalf || l->out.state != VERBS_HS_FREE);
	}
	return fill(l);
}
