/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving side: events of a lane, and frames: checked, told apart from duplicates by the set of what
 * has been received, counted for acknowledgement, delivered.
 *
 * Acknowledgement is lazy: every header that leaves carries the cumulative number; a STATE goes only when a
 * quarter of the window or ACK_BYTES wait for it, when a frame asks, or after ack_delay.
 */
#include <stdio.h>
#include "link/link_internal.h"

#define ACK_BYTES (256u << 10)

static void bad_header(struct link *l, int lane, struct tick *t, const char *why)
{
	l->bad_headers++;
	if (l->lane[lane].phase == LL_UP)
		lane_suspect(l, lane, t, why);
}

/* Marks frame s, which is not marked yet, as received. */
static void mark(struct link *l, uint64_t s)
{
	uint32_t b = (uint32_t)s & l->mask;

#ifdef SIRCL_PLANT
	if (s + 1 > l->rx_max)
		l->rx_max = s + 1;
#endif
	if (s == l->rx_cum && !l->rx_ahead) { /* the usual case: in order */
		l->rx_cum++;
		return;
	}
	l->rx_bits[b / 64] |= 1ull << b % 64;
	l->rx_ahead++;
	while (l->rx_ahead) {
		b = (uint32_t)l->rx_cum & l->mask;
		if (!(l->rx_bits[b / 64] >> b % 64 & 1))
			break;
		l->rx_bits[b / 64] &= ~(1ull << b % 64);
		l->rx_ahead--;
		l->rx_cum++;
	}
}

static void owe_ack(struct link *l, struct tick *t, const struct frame_hdr *h)
{
	l->rx_news++;
	l->rx_news_bytes += h->len;
	if ((h->bits & LINK_BIT_ACK_SOON) || l->rx_news >= l->window / 4 ||
	    (l->rx_news_bytes >= ACK_BYTES && !l->lossless))
		l->ack_at = t->now; /* the next pass, if no frame of this one takes it along */
	else if (l->ack_at == NEVER)
		l->ack_at = t->now + l->ack_delay;
}

static void deliver(struct link *l, int lane, struct tick *t, const struct frame_hdr *h)
{
	struct link_frame f = { .label = h->label,
				.kind = h->kind,
				.flags = h->flags,
				.msg = h->msg,
				.fno = h->fno,
				.len = h->len,
				.off = h->off,
				.tag = h->tag,
				.lane = (uint8_t)lane };

	switch (h->kind) {
	case LINK_KIND_REGION:
	case LINK_KIND_WITHDRAW:
		region_got(l, h);
		break;
	case LINK_KIND_BYE:
		l->peer_bye = true;
		break;
	default:
		l->stats.frames_received++;
		l->stats.bytes_received += h->len;
		l->cfg.ops->deliver(l->cfg.user, l, t, &f);
	}
}

static void frame_got(struct link *l, int lane, struct tick *t, const struct frame_hdr *h)
{
	int32_t ahead = (int32_t)(h->ack - (uint32_t)l->una);
	uint64_t s;
	uint32_t b;

	/* an old header says less than is known: not ahead. More than was sent: a defect there, not taken */
	if (ahead > 0 && (uint64_t)ahead <= l->next - l->una)
		acked_to(l, t, l->una + (uint64_t)ahead);
	ahead = (int32_t)(h->seq - (uint32_t)l->rx_cum);
	s = l->rx_cum + (uint64_t)(int64_t)ahead;
	b = h->seq & l->mask;
	if (ahead >= 0 && (uint32_t)ahead >= l->window) {
		bad_header(l, lane, t, "a frame far outside the window");
		return;
	}
	if (ahead < 0 || (l->rx_bits[b / 64] >> b % 64 & 1)) {
		l->stats.duplicates_refused++;
		if (link_plant & LINK_BREAK_NO_DEDUP)
			deliver(l, lane, t, h);
		return;
	}
	mark(l, s);
	owe_ack(l, t, h);
	deliver(l, lane, t, h);
}

static void note_got(struct link *l, int lane, struct tick *t, const struct lane_note *note)
{
	struct link_lane *ln = &l->lane[lane];
	struct frame_hdr h;
	uint8_t step;

	if (ln->phase != LL_UP && ln->phase != LL_SUSP && !ln->late_fence)
		return; /* cannot be: LANE_FENCED is the last of an epoch */
	if (!frame_open(note, &h)) {
		bad_header(l, lane, t, "a damaged header");
		return;
	}
	if (!(h.kind >= LINK_KIND_STATE && h.kind <= LINK_KIND_BYE) && h.kind < LINK_KIND_USER) {
		bad_header(l, lane, t, "a header of unknown kind");
		return;
	}
	ln->heard = true;
	ln->silent_since = 0;
	ln->backoff = LINK_BACKOFF_MIN;
	l->heard |= 1u << lane;
	/* notes of a lane are in order, so an echo only rises; a repeated note's is refused as too large a
	 * step */
	step = (uint8_t)(h.echo - (uint8_t)ln->states_echoed);
	if (step && step <= ln->states_sent - ln->states_echoed) {
		ln->states_echoed += step;
		ln->echoed_at = t->now;
		ln->probes = 0;
		if (ln->state_due || l->state_any)
			l->busy = true;
	}
	if (h.kind == LINK_KIND_STATE)
		state_got(l, lane, t, &h);
	else
		frame_got(l, lane, t, &h);
}

/* A connecting end can ask again, so it believes a refusal, not a hang-up, which a fence of the peer causes
 * too.
 */
static void keep_why(struct link *l, struct link_lane *ln, const struct lane_event *ev)
{
	snprintf(ln->why, sizeof(ln->why), "%.*s", LINK_WHY_MAX - 1, ev->why ? ev->why : "no reason given");
	ln->gone = ev->gone && (ev->ev == LANE_DOWN || !l->cfg.connects || !ln->ops->can_fence);
}

void lane_event(struct link *l, int lane, struct tick *t, const struct lane_event *ev)
{
	struct link_lane *ln = &l->lane[lane];

	switch (ev->ev) {
	case LANE_NOTE:
		note_got(l, lane, t, &ev->note);
		break;
	case LANE_DONE:
		stripe_done(l, ln, ev->done);
		break;
	case LANE_UP:
		lane_came_up(l, lane, t, ev->epoch);
		break;
	case LANE_SUSPECT:
		/* a lane that is fenced here already may add that there is no process any more */
		if ((ln->phase == LL_UP || ln->phase == LL_SUSP) && ev->epoch == ln->epoch) {
			keep_why(l, ln, ev);
			if (ln->phase == LL_UP)
				lane_suspect(l, lane, t, ln->why);
		}
		break;
	case LANE_FENCED:
		if (ln->phase == LL_SUSP && ev->epoch >= ln->epoch)
			lane_fenced(l, lane, t);
		else if (ln->late_fence)
			lane_fenced(l, lane, t);
		break;
	case LANE_DOWN:
		if (ln->phase == LL_TRYING && ev->epoch == ln->epoch) {
			keep_why(l, ln, ev);
			lane_failed(l, lane, t, ev->epoch);
		}
		break;
	}
}
