/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATE: acknowledgement, suspicion, fence request, fence answer and heartbeat in one message. It is one
 * snapshot, built in one piece after the fences it names; unsequenced, not retained, idempotent; it has its
 * own slots, so that full windows cannot hold it up.
 *
 * At most two STATEs of a lane are un-echoed, else heartbeats would use up a stopped peer's receive slots;
 * and a third one that is sent only while the peer's own two wait for our echo, else both ends could wait for
 * each other. Every header carries the echo. LINK_PROBES more are probes: an end whose window is full and
 * whose STATEs are un-echoed posts nothing, so it would never see that the peer has fenced its only lanes; a
 * probe after 1, 2, 4, 8 times the suspicion limit makes the provider notice.
 */
#include "link/link_internal.h"

static void snapshot(const struct link *l, struct state_msg *m)
{
	*m = (struct state_msg){ .magic = STATE_MAGIC,
				 .window = (uint16_t)l->window,
				 .nlanes = (uint16_t)l->nlanes,
				 .cum = ack_now(l) };
	for (int i = 0; i < l->nlanes; i++)
		m->floor[i] = l->lane[i].floor;
	if (!l->rx_ahead || m->cum != l->rx_cum)
		return;
	for (uint32_t k = 0; k < l->window; k++) {
		uint32_t b = (uint32_t)(m->cum + k) & l->mask;

		if (l->rx_bits[b / 64] >> b % 64 & 1)
			m->bits[k / 64] |= 1ull << k % 64;
	}
}

static bool may_send(const struct link *l, const struct link_lane *ln)
{
	uint32_t out = ln->states_sent - ln->states_echoed;

	if (ln->phase != LL_UP)
		return false;
	if (out < 2 || (out < 3 && ln->states_got - ln->echo_told >= 2))
		return true;
	return out < LINK_SLOTS - 1 && ln->probes < LINK_PROBES &&
	       l->now >= ln->echoed_at + (l->suspect << ln->probes);
}

/* Sends a STATE on this lane if it may; what could not be sent stays due. */
bool state_send(struct link *l, int lane, struct tick *t)
{
	struct link_lane *ln = &l->lane[lane];
	uint32_t n = state_bytes(l->window);
	size_t off = slot_off(lane, ln->states_sent + 1);
	struct state_msg *m = (void *)((uint8_t *)arena_base(l->send_arena) + off);
	struct frame_hdr h = { .kind = LINK_KIND_STATE, .fno = ln->states_sent + 1, .len = n };
	struct lane_put p = {
		.src = m, .len = n, .smem = &l->region[1].lm[lane], .dst = &ln->arena, .dst_off = off
	};

	if (ln->phase != LL_UP) {
		ln->state_due = false;
		return false;
	}
	ln->state_due = true;
	if (!may_send(l, ln)) /* an echo sets busy again; until then only time changes that */
		return false;
	snapshot(l, m);
	h.tag = crc32c(0, m, n);
	if (!lane_post(l, ln, t, &h, &p)) {
		l->busy = true;
		return false;
	}
	if (ln->states_sent - ln->states_echoed >= 2 && l->now >= ln->echoed_at + l->suspect) {
		ln->probes++;
		ln->echoed_at = l->now;
	}
	ln->states_sent++;
	ln->state_due = ln->fresh = false;
	l->state_any = false;
	l->rx_news = 0;
	l->rx_news_bytes = 0;
	l->ack_at = NEVER;
	l->stats.states_sent++;
	return true;
}

/* The peer echoes every second STATE at the latest, whatever it has to do. */
void link_probe(struct link *l, struct tick *t)
{
	for (int i = 0; i < l->nlanes; i++)
		if (!l->lane[i].ops->can_fence && !l->dead && !l->dying && may_send(l, &l->lane[i]))
			(void)state_send(l, i, t);
}

/* On one lane, the least busy that may; if none may now, as soon as one can. */
void state_send_any(struct link *l, struct tick *t)
{
	unsigned without = 0;
	int i;

	l->ack_at = NEVER;
	l->state_any = true;
	while ((i = lane_best(l, 0, 0, without)) >= 0) {
		bool due = l->lane[i].state_due;

		if (state_send(l, i, t))
			return;
		l->lane[i].state_due = due;
		without |= 1u << i;
	}
}

void state_all(struct link *l)
{
	for (int i = 0; i < l->nlanes; i++)
		l->lane[i].state_due = l->lane[i].phase == LL_UP;
	l->busy = true;
}

void state_got(struct link *l, int lane, struct tick *t, const struct frame_hdr *h)
{
	struct link_lane *ln = &l->lane[lane];
	int32_t step = (int32_t)(h->fno - ln->states_got);
	uint32_t n = state_bytes(l->window);
	struct state_msg m = { .magic = 0 };

	if (step <= 0) { /* a note that was delivered twice; its slot may hold a later one */
		l->stats.duplicates_refused++;
		return;
	}
	if (step > 1) {
		lane_suspect(l, lane, t, "a control message is missing");
		return;
	}
	if (h->len >= offsetof(struct state_msg, bits) && h->len <= sizeof(m))
		memcpy(&m, (uint8_t *)arena_base(l->arena) + slot_off(lane, h->fno), h->len);
	if (m.magic != STATE_MAGIC || h->tag != crc32c(0, &m, h->len)) {
		l->bad_headers++;
		lane_suspect(l, lane, t, "a control message is damaged");
		return;
	}
	ln->states_got++;
	if (ln->states_got - ln->echo_told >= 2) {
		ln->state_due = true;
		l->busy = true;
	}
	if (m.window != l->window || m.nlanes != l->nlanes || h->len != n) {
		link_die(l, t, SIRCL_BAD_CONFIG,
			 "%d lanes and a window of %u frames here, %u and %u there; give both ranks the same "
			 "parameters",
			 l->nlanes, l->window, m.nlanes, m.window);
		return;
	}
	if (m.cum > l->next) {
		lane_suspect(l, lane, t, "the peer acknowledges frames that were never sent");
		return;
	}
	/* floors first: what callbacks of released frames put goes to lanes that the peer has not fenced */
	for (int i = 0; i < l->nlanes; i++)
		lane_peer_floor(l, i, t, m.floor[i]);
	acked_set(l, t, &m);
	for (int i = 0; i < l->nlanes; i++)
		if (l->lane[i].stale)
			replay_stale(l, i, m.floor[i]);
}
