/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending side: frames get a number and a lane, are kept until the peer link has them, and are posted
 * again when the lane they were last posted on is fenced at the peer and the peer lacks them.
 *
 * Retention: sent[s % window] holds frame s from its first post until una has passed it. A lossless lane has
 * copied the frame when put() returns, so such an entry only keeps its place in the window.
 *
 * Staging: frames up to copy_limit, and unregistered ones where a lane needs registration, are copied to a
 * ring in the send memory; the ring gives back in order, as una passes.
 */
#include "link/link_internal.h"

/* Posts one header with its bytes; every header carries the acknowledgement and the echo of now. */
bool lane_post(struct link *l, struct link_lane *ln, struct tick *t, struct frame_hdr *h, struct lane_put *p)
{
	h->ack = (uint32_t)ack_now(l);
	h->echo = (uint8_t)ln->states_got;
	frame_seal(h, &p->note);
	if (ln->ops->put(ln->lane, t, p, 1) != 1)
		return false;
	ln->echo_told = ln->states_got;
	ln->sent_at = t->now;
	ln->bytes_sent += p->len;
	if (!ln->ops->lossless)
		stripe_posted(l, ln, t->now, p->len);
	if (l->rx_news && !l->rx_ahead) { /* the cumulative number says everything */
		l->rx_news = 0;
		l->rx_news_bytes = 0;
		l->ack_at = NEVER;
	}
	return true;
}

/* ---- frames ---- */

static bool post_frame(struct link *l, int i, struct tick *t, uint64_t s, struct sent_frame *f)
{
	struct link_lane *ln = &l->lane[i];
	struct frame_hdr h = { .seq = (uint32_t)s,
			       .label = f->frame.label,
			       .kind = f->frame.kind,
			       .flags = f->frame.flags,
			       .msg = f->frame.msg,
			       .fno = f->frame.fno,
			       .len = f->frame.len,
			       .off = f->frame.off,
			       .tag = f->frame.tag,
			       .bits = f->ack_soon ? LINK_BIT_ACK_SOON : 0 };
	struct lane_put p = { .src = f->src,
			      .len = f->frame.len,
			      .smem = f->smem ? &f->smem->lm[i] : NULL,
			      .dst = f->region ? &ln->peer_exp[f->region] : &ln->arena,
			      .dst_off = f->dst_off };

	if (!lane_post(l, ln, t, &h, &p))
		return false;
	f->lane = (uint8_t)i;
	f->epoch = ln->epoch;
	f->posted_at = t->now;
	f->post_no = ++l->post_no;
	return true;
}

/* Posts it on the best lane that takes it. */
static bool post_best(struct link *l, struct tick *t, uint64_t s, struct sent_frame *f)
{
	unsigned without = 0;
	int i;

	while ((i = lane_best(l, f->region, f->frame.len, without)) >= 0) {
		if (post_frame(l, i, t, s, f))
			return true;
		without |= 1u << i;
	}
	return false;
}

/* Room for `len` contiguous bytes in the staging ring; *take: what must be given back. NULL: none. */
static uint8_t *stage_alloc(struct link *l, uint32_t len, uint32_t *take)
{
	size_t off = l->stage_head % l->stage_size, need = ((size_t)len + 63) & ~(size_t)63, pad = 0;

	if (off + need > l->stage_size) {
		pad = l->stage_size - off;
		off = 0;
	}
	if (need > l->stage_size || l->stage_head + pad + need - l->stage_tail > l->stage_size)
		return NULL;
	*take = (uint32_t)(pad + need);
	return l->stage + off;
}

static enum link_put_result refuse(struct link *l, struct tick *t)
{
	if (!l->wanted && l->una == l->next) {
		l->moved_at = t->now;
		timer_at(l, t->now + l->heartbeat);
	}
	l->wanted = true;
	return LINK_PUT_NO;
}

/* Numbers, posts and keeps a frame. f is filled in but for what the post adds. */
static bool send_new(struct link *l, struct tick *t, struct sent_frame *f)
{
	uint64_t s = l->next;

	if (!post_best(l, t, s, f))
		return false;
	if (l->una == l->next) {
		l->moved_at = t->now;
		timer_at(l, t->now + l->heartbeat);
		if (!l->lossless)
			l->stage_tail = l->stage_head;
	}
	l->next++;
	l->turn++;
	l->stage_head += f->stage;
	l->wanted = false;
	return true;
}

enum link_put_result link_put(struct link *l, struct tick *t, const struct link_put *put)
{
	struct sent_frame *f = &l->sent[l->next & l->mask];
	uint32_t len = put->frame.len;

	if (l->dead || l->dying || l->bye_sent)
		return LINK_PUT_NO;
	sircl_assert(len <= l->max_put && put->frame.kind >= LINK_KIND_USER &&
		     put->region < LANE_REGIONS_MAX);
	if (l->next - l->una >= l->window || !l->nup)
		return refuse(l, t);
	f->frame = put->frame;
	f->region = put->region;
	f->dst_off = put->dst_off;
	f->owner = put->owner;
	f->src = put->src;
	f->smem = put->smem;
	f->stage = 0;
	f->tell = false;
	if (len && l->stage_size && (len <= l->copy_limit || (l->needs_reg && !put->smem))) {
		uint8_t *at = stage_alloc(l, len, &f->stage);

		if (at) {
			memcpy(at, put->src, len);
			tick_charge(t, COST_COPY, len);
			f->src = at;
			f->smem = &l->region[1];
		} else if (l->needs_reg && !put->smem) {
			return refuse(l, t);
		}
	}
	f->tell = len && !f->stage && !l->lossless;
	f->ack_soon = put->ack_soon && f->tell; /* else nobody waits for the source */
	if (!send_new(l, t, f))
		return refuse(l, t);
	f->state = l->lossless ? SENT_ACKED : SENT_POSTED;
	l->stats.frames_sent++;
	l->stats.bytes_sent += len;
	return f->tell ? LINK_PUT_POSTED : LINK_PUT_DONE;
}

/* A sequenced frame of the link itself, without bytes. */
bool put_control(struct link *l, struct tick *t, const struct link_frame *frame)
{
	struct sent_frame *f = &l->sent[l->next & l->mask];

	if (l->dead || l->dying || l->bye_sent || l->next - l->una >= l->window || !l->nup)
		return false;
	*f = (struct sent_frame){ .frame = *frame, .ack_soon = true };
	if (!send_new(l, t, f))
		return false;
	f->state = l->lossless ? SENT_ACKED : SENT_POSTED;
	return true;
}

bool link_room(const struct link *l)
{
	return !l->dead && !l->dying && !l->bye_sent && l->next - l->una < l->window && l->nup;
}

/* ---- acknowledgement ---- */

/* The peer has this frame: its source is free. The caller has moved una past it or keeps its place. */
static void release(struct link *l, struct sent_frame *f)
{
	if (f->state == SENT_QUEUED)
		l->nqueued--;
	if (f->post_no > l->acked_post_no)
		l->acked_post_no = f->post_no;
	f->state = SENT_ACKED;
	if (f->tell) {
		void *owner = f->owner;
		uint32_t fno = f->frame.fno;

		f->tell = false;
		if (owner && l->cfg.ops->released)
			l->cfg.ops->released(l->cfg.user, l, owner, fno);
	}
}

static void moved(struct link *l, struct tick *t)
{
	l->moved_at = t->now;
	if (l->una != l->next)
		return;
	l->stage_tail = l->stage_head;
	stripe_idle(l);
}

/* Everything below `cum` is at the peer. Callbacks may put new frames, so nothing is held across them. */
void acked_to(struct link *l, struct tick *t, uint64_t cum)
{
	if (l->lossless) {
		l->una = cum;
		moved(l, t);
		return;
	}
	while (l->una < cum) {
		struct sent_frame *f = &l->sent[l->una & l->mask];

		l->stage_tail += f->stage;
		l->una++;
		release(l, f); /* after its place is given back; f is not read once the callback has run */
	}
	moved(l, t);
}

static bool state_has(const struct state_msg *m, uint64_t s)
{
	return s < m->cum ||
	       (s - m->cum < m->window && (m->bits[(s - m->cum) / 64] >> (s - m->cum) % 64 & 1));
}

/* The set of a STATE: releases what it holds and judges what it lacks (late with evidence). */
void acked_set(struct link *l, struct tick *t, const struct state_msg *m)
{
	struct sent_frame *f;

	if (m->cum > l->una)
		acked_to(l, t, m->cum);
	if (l->lossless)
		return;
	for (uint64_t s = l->una > m->cum ? l->una : m->cum; s != l->next && s - m->cum < m->window; s++) {
		f = &l->sent[s & l->mask];
		if (state_has(m, s) && f->state != SENT_ACKED)
			release(l, f);
	}
	/*
	 * Late with evidence: the peer has a frame that was posted after this one, so its software has run
	 * since; and this one has had far more than its time. Not if the peer was stopped a moment ago: it
	 * may have read one lane before it was, and reads the others only now.
	 */
	f = &l->sent[l->una & l->mask];
	if (l->una != l->next && f->state == SENT_POSTED && f->post_no < l->acked_post_no && l->nup > 1) {
		struct link_lane *ln = &l->lane[f->lane];
		double rate = ln->rate > 0 ? ln->rate : 0.1;
		uint64_t fair =
			(uint64_t)(4 * (double)(ln->posted_bytes - ln->done_bytes + f->frame.len) / rate);

		if (ln->phase == LL_UP && f->epoch == ln->epoch && ln->ops->can_fence &&
		    t->now > f->posted_at + l->suspect + fair && t->now > l->awake_since + l->suspect &&
		    !peer_paused(l, t) && t->now > l->peer_awake_since + l->suspect)
			lane_suspect(l, f->lane, t, "a frame is late although later ones have arrived");
	}
}

/* ---- replay ---- */

/*
 * The peer has fenced epochs <= floor of this lane and has told its set at the same time (which has been
 * released): what was last posted there and is still here can not arrive any more.
 */
void replay_stale(struct link *l, int lane, uint32_t floor)
{
	struct link_lane *ln = &l->lane[lane];
	bool rest = false;

	for (uint64_t s = l->una; s != l->next; s++) {
		struct sent_frame *f = &l->sent[s & l->mask];

		if (f->state != SENT_POSTED || f->lane != lane)
			continue;
		if (f->epoch <= floor) {
			f->state = SENT_QUEUED;
			l->nqueued++;
		} else if (ln->phase != LL_UP || f->epoch != ln->epoch) {
			rest = true;
		}
	}
	ln->stale = rest;
	if (l->nqueued)
		l->busy = true;
}

void replay_pump(struct link *l, struct tick *t)
{
	for (uint64_t s = l->una; s != l->next && l->nqueued; s++) {
		struct sent_frame *f = &l->sent[s & l->mask];

		if (f->state != SENT_QUEUED)
			continue;
		if (!post_best(l, t, s, f))
			break;
		f->state = SENT_POSTED;
		l->nqueued--;
		l->stats.frames_replayed++;
	}
	if (l->nqueued)
		l->busy = true;
}
