/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time limits of a running operation, in tick time. Two cases that look alike from here (nothing moves) and
 * must not be confused:
 *  - the transport has stalled: nothing at all is heard from the neighbour, or its link holds a frame that is
 *    never acknowledged, for op_timeout: the team ends with an error;
 *  - the neighbour lives (its heartbeats arrive) but sends nothing for this operation: some rank has not
 *    entered it. That may be the neighbour or one behind it; one warning says who is waited for, no error.
 * Looked at only every op_timeout / 8 (the first time sooner), so a running operation pays nothing.
 */
#include "engine/internal.h"
#include <stdio.h>

static enum link_side side_of(int c)
{
	return c == PLAN_NEXT ? LINK_NEXT : LINK_PREV;
}

static bool waits_for(const struct team_chan *tc)
{
	return tc->q[DIR_SEND].head != tc->q[DIR_SEND].tail || tc->q[DIR_RECV].head != tc->q[DIR_RECV].tail;
}

static uint64_t progress_of(const struct team *t)
{
	uint64_t sum = 0;

	for (int c = 0; c < PLAN_CHANS; c++)
		for (int d = 0; d < DIRS; d++)
			for (uint32_t i = t->ch[c].q[d].head; i != t->ch[c].q[d].tail; i++)
				sum += t->ch[c].q[d].slot[i % EXEC_QUEUE].x.done;
	return sum;
}

static void stalled(struct op *op, struct tick *tick, int c, bool silent)
{
	struct team *t = op->team;
	struct team_chan *tc = &t->ch[c];
	const struct slot_queue *q =
		tc->q[DIR_RECV].head != tc->q[DIR_RECV].tail ? &tc->q[DIR_RECV] : &tc->q[DIR_SEND];
	struct link *l = chan_net_link(t->engine->cfg.net, side_of(c));
	struct link_stats st = { 0 };
	uint16_t node = t->cfg.node_of[tc->peer];
	char text[128], who[64] = "it";
	struct sircl_error err;

	if (l)
		link_stats(l, &st);
	/* through relays it is the first of them that is looked at, and to be named */
	if (l && chan_net_hops(t->engine->cfg.net, node, side_of(c)) > 1) {
		node = st.peer;
		snprintf(who, sizeof(who), "rank %u of all, which lies between,", st.peer_rank);
	}
	op_text(op, text, sizeof(text));
	error_set(
		SIRCL_TIMEOUT,
		"%s: %s has not moved for %.1f s: rank %d waits to %s rank %d (step %u of %s), and %s%s%s on "
		"cable %u "
		"(%s, %d of %d lanes up). Is that machine or process stopped, or the cable bad? "
		"SIRCL_TIMEOUT "
		"(now %llu ms) is the limit",
		t->name, text, (double)(tick->now - op->last_move) / 1e9, t->cfg.rank,
		q == &tc->q[DIR_RECV] ? "receive from" : "send to", team_rank(t, tc->peer),
		q->slot[q->head % EXEC_QUEUE].step, op->plan->name,
		silent ? "nothing at all is heard from " : "", who,
		silent ? "" : " does not acknowledge what was sent", st.cable,
		c == PLAN_NEXT ? "NEXT" : "PREV", st.lanes_up, st.lanes,
		(unsigned long long)(t->cfg.op_timeout / MSEC));
	err = *error_last();
	team_fail_all(t, tick, &err, node);
}

static void late(struct op *op, uint64_t now)
{
	struct team *t = op->team;
	char text[128];

	op_text(op, text, sizeof(text));
	for (int c = 0; c < PLAN_CHANS; c++) {
		const struct team_chan *tc = &t->ch[c];

		if (tc->q[DIR_RECV].head == tc->q[DIR_RECV].tail)
			continue;
		op->warned = true;
		log_warn(&t->engine->cfg.ctx->log,
			 "%s: rank %d has waited %.0f s for rank %d, which lives but %s %s%s; this is no "
			 "error",
			 t->name, t->cfg.rank, (double)(now - op->last_move) / 1e9, team_rank(t, tc->peer),
			 op->heard[c] ? "waits itself for another rank in" : "has not entered", text,
			 op->heard[c] ? "" : ", or waits itself for another rank");
		/* Whoever has not entered is the news; a neighbour that waits itself only if there is none.
		 */
		if (!op->heard[c])
			return;
	}
}

/*
 * Ranks whose calls differ may all wait to receive, or one may have had nothing to do and be gone: then no
 * frame tells. So who waits for longer says in what, beside the stream, to both neighbours, who know what
 * they have called under that number. If they have not called it yet, it is said again.
 */
static void hint(struct op *op, struct tick *tick)
{
	for (int c = 0; c < PLAN_CHANS; c++)
		if (op->team->ch[c].chan)
			chan_hint(op->team->ch[c].chan, tick, op->tag);
}

void limit_hinted(struct team *t, struct tick *tick)
{
	for (int c = 0; c < PLAN_CHANS; c++) {
		uint64_t tag, back, ours;

		if (!t->ch[c].chan || !chan_hinted(t->ch[c].chan, &tag))
			continue;
		back = (t->next_number - tag) & OP_TAG_NUMBERS;
		if (back == 0 || back > FLIGHT_OPS || back > t->next_number)
			continue;
		ours = t->tag_of[(t->next_number - back) % FLIGHT_OPS];
		if (ours == tag)
			continue;
		exec_mismatch(t, tick, &t->ch[c], tag, ours);
		return;
	}
}

void limit_check(struct op *op, struct tick *tick)
{
	struct team *t = op->team;
	uint64_t limit = t->cfg.op_timeout, sum = progress_of(t), quiet, lasting;
	uint64_t now = tick->now;

	if (sum != op->progress_sum)
		op->last_move = now;
	op->progress_sum = sum;
	quiet = now - op->last_move;
	op->check_at = now + limit / 8;
	if (quiet >= tick_min(limit / 8, HINT_AFTER))
		hint(op, tick);
	else
		op->check_at = op->last_move + tick_min(limit / 8, HINT_AFTER);
	/* Watching began up to limit / 8 after the last move; several heartbeats must be missing. */
	lasting = limit - limit / 4;
	if (lasting < 4 * (uint64_t)param_num(&t->engine->cfg.ctx->params, PARAM_HEARTBEAT) * MSEC)
		lasting = 4 * (uint64_t)param_num(&t->engine->cfg.ctx->params, PARAM_HEARTBEAT) * MSEC;
	for (int c = 0; c < PLAN_CHANS; c++) {
		struct link *l = chan_net_link(t->engine->cfg.net, side_of(c));
		struct link_watch *w = &t->ch[c].watch;
		bool deaf;

		if (!t->ch[c].chan || !l || !waits_for(&t->ch[c]))
			continue;
		link_look(l, tick, w);
		if (quiet < limit)
			continue;
		deaf = link_is_deaf(w, now, lasting);
		if (deaf || link_is_stuck(w, now, lasting)) {
			stalled(op, tick, c, deaf);
			return;
		}
	}
	if (!op->warned && quiet >= tick_min(LATE_REPORT, limit))
		late(op, now);
}
