/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a lane (docs/protocol.md, table) and everything that depends on time: retries,
 * heartbeats, suspicion, limits.
 *
 * floor = newest epoch that is fenced here. It is a promise: this end will never again be UP in an epoch that
 * is not above it, so it may be told to the peer, which then posts the missing frames elsewhere.
 */
#include <stdio.h>
#include "link/link_internal.h"

static uint32_t max32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void retry_later(struct link *l, struct link_lane *ln, struct tick *t)
{
	ln->retry_at = t->now + ln->backoff;
	ln->backoff = tick_min(ln->backoff * 2, LINK_BACKOFF_MAX);
	timer_at(l, ln->retry_at);
}

/* The lane is down: the floor is raised, told on every path, and the next epoch may come. */
static void down(struct link *l, int lane, struct tick *t, uint32_t floor)
{
	struct link_lane *ln = &l->lane[lane];

	ln->phase = LL_DOWN;
	ln->floor = max32(max32(ln->floor, floor), ln->peer_floor);
	state_all(l);
	if (l->cfg.connects)
		retry_later(l, ln, t);
	else if (!ln->late_fence)
		ln->ops->allow(ln->lane, l->dying || l->dead ? UINT32_MAX : ln->floor + 1);
	timer_at(l, t->now); /* perhaps it was the last one */
}

void lane_suspect(struct link *l, int lane, struct tick *t, const char *why)
{
	struct link_lane *ln = &l->lane[lane];

	if (ln->phase != LL_UP)
		return;
	if (why != ln->why) {
		snprintf(ln->why, sizeof(ln->why), "%.*s", LINK_WHY_MAX - 1, why);
		ln->gone = false;
	}
	ln->phase = LL_SUSP;
	ln->stale = true;
	ln->state_due = false;
	l->nup--;
	stripe_down(l);
	l->stats.fences++;
	if (l->dying || l->peer_bye)
		log_info(&l->ctx->log, LOG_LINK, "link %s to rank %u: lane %d (%s %s) epoch %u is closed: %s",
			 side_name(l), l->cfg.peer_rank, lane, ln->ops->name, ln->dev, ln->epoch, ln->why);
	else
		log_warn(&l->ctx->log,
			 "link %s to rank %u: lane %d (%s %s, cable %u) epoch %u is fenced: %s; %d of %d "
			 "lanes are up",
			 side_name(l), l->cfg.peer_rank, lane, ln->ops->name, ln->dev, l->cfg.cable,
			 ln->epoch, ln->why, l->nup, l->nlanes);
	if (link_plant &
	    LINK_BREAK_NO_FENCE) { /* the floor without the fence, which follows when it is late */
		ln->late_fence = true;
		ln->retry_at = t->now + 5 * MSEC;
		timer_at(l, ln->retry_at);
		ln->floor = max32(ln->epoch, ln->peer_floor);
		ln->phase = LL_DOWN;
		state_all(l);
		return;
	}
	ln->ops->fence(ln->lane, ln->epoch);
	l->busy = true;
}

/* LANE_FENCED: nothing of this epoch can land any more, and all its notes have been seen. */
void lane_fenced(struct link *l, int lane, struct tick *t)
{
	l->lane[lane].late_fence = false;
	down(l, lane, t, l->lane[lane].epoch);
}

void lane_came_up(struct link *l, int lane, struct tick *t, uint32_t epoch)
{
	struct link_lane *ln = &l->lane[lane];
	const struct lane_export *arena = ln->ops->peer_export(ln->lane);
	bool small;

	if (ln->phase == LL_UP || ln->phase == LL_SUSP)
		return; /* cannot be: the provider waits for the fence */
	/* STATEs have their place in it, and places that were accepted stay valid in every epoch */
	small = arena->len < LINK_CONTROL_BYTES || arena->len < link_peer_arena(l);
	if (small)
		snprintf(ln->why, sizeof(ln->why), "the peer's receive memory is too small (%llu bytes)",
			 (unsigned long long)arena->len);
	if (epoch <= ln->floor || epoch <= ln->peer_floor || l->dying || small ||
	    (ln->phase == LL_TRYING && epoch != ln->epoch)) {
		ln->phase = LL_SUSP; /* a promise was made about this epoch */
		ln->epoch = epoch;
		ln->ops->fence(ln->lane, epoch);
		return;
	}
	ln->phase = LL_UP;
	ln->epoch = epoch;
	ln->floor = epoch - 1;
	ln->fresh = ln->state_due = true;
	ln->heard = ln->gone = false;
	ln->states_sent = ln->states_echoed = ln->states_got = ln->echo_told = ln->probes = 0;
	ln->up_at = ln->sent_at = ln->echoed_at = t->now;
	ln->silent_since = 0;
	stripe_up(l, ln);
	ln->arena = *arena;
	if (epoch > 1 && l->ever_up)
		l->stats.reconnects++;
	l->nup++;
	l->ever_up = true;
	l->gone_since = 0;
	l->busy = true;
	log_info(&l->ctx->log, LOG_LINK, "link %s to rank %u: lane %d (%s %s, cable %u) is up, epoch %u",
		 side_name(l), l->cfg.peer_rank, lane, ln->ops->name, ln->dev, l->cfg.cable, epoch);
	timer_at(l, t->now + l->heartbeat);
	state_send(l, lane, t);
}

/* The handshake for `epoch` has ended without LANE_UP; the peer may be up in it, so it counts as fenced. */
void lane_failed(struct link *l, int lane, struct tick *t, uint32_t epoch)
{
	down(l, lane, t, epoch);
}

void lane_try(struct link *l, int lane, struct tick *t)
{
	struct link_lane *ln = &l->lane[lane];

	ln->epoch = max32(ln->floor, ln->peer_floor) + 1;
	ln->phase = LL_TRYING;
	if (ln->ops->connect(ln->lane, t, &l->peer_addr.lane[lane], ln->epoch) != SIRCL_SUCCESS) {
		snprintf(ln->why, sizeof(ln->why), "%.*s", LINK_WHY_MAX - 1, error_last()->msg);
		ln->gone = false;
		ln->phase = LL_DOWN; /* nothing has left: the epoch can be used again */
		retry_later(l, ln, t);
	}
}

/* The peer says that it has fenced `floor` and everything older. A fence is for both directions. */
void lane_peer_floor(struct link *l, int lane, struct tick *t, uint32_t floor)
{
	struct link_lane *ln = &l->lane[lane];

	if (floor <= ln->peer_floor)
		return;
	ln->peer_floor = floor;
	switch (ln->phase) {
	case LL_UP:
		if (ln->epoch <= floor)
			lane_suspect(l, lane, t, "the peer has fenced it");
		break;
	case LL_SUSP:
		break;
	case LL_TRYING:
		if (ln->epoch <= floor) {
			ln->ops->allow(ln->lane, floor + 1); /* gives the handshake up */
			down(l, lane, t, floor);
		}
		break;
	case LL_DOWN:
		if (floor > ln->floor)
			down(l, lane, t, floor);
		break;
	}
}

/*
 * Called in a pass in which something was heard. A lane is silent from the moment a sister is heard and it is
 * not; it is suspected when a sister is still heard `suspect` later and the peer was never quiet in between.
 * So neither a stopped peer (no sister is heard) nor a stop of our own (every lane was polled first) costs a
 * lane.
 */
void lane_silence(struct link *l, struct tick *t)
{
	bool paused = peer_paused(l, t);

	if (paused)
		l->peer_awake_since = t->now;
	l->heard_at = t->now;
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];

		if (ln->phase != LL_UP || !ln->ops->can_fence || (l->heard & (1u << i)))
			continue;
		if (!ln->silent_since || paused)
			ln->silent_since = t->now;
		else if (t->now - ln->silent_since >= l->suspect)
			lane_suspect(l, i, t, "it is silent while the peer is heard on another lane");
	}
}

static void lane_timers(struct link *l, int i, struct tick *t)
{
	struct link_lane *ln = &l->lane[i];

	if (ln->phase == LL_DOWN && ln->late_fence) {
		if (t->now >= ln->retry_at)
			ln->ops->fence(ln->lane, ln->epoch);
		else
			timer_at(l, ln->retry_at);
	} else if (ln->phase == LL_DOWN && l->cfg.connects && l->connecting && !l->dying && !l->left &&
		   !link_closed(l)) {
		if (t->now >= ln->retry_at)
			lane_try(l, i, t);
		else
			timer_at(l, ln->retry_at);
	} else if (ln->phase == LL_UP && ln->ops->can_fence) {
		uint64_t beat = ln->sent_at + l->heartbeat;

		if (t->now >= beat) {
			state_send(l, i, t);
			beat = t->now + l->heartbeat;
		}
		timer_at(l, beat);
		/* The peer may have given this handshake up without our knowing; else it would have sent a
		 * STATE at once. With a sister up, lane_silence judges; alone it has more time. */
		if (!ln->heard && l->nup == 1 && t->now >= ln->up_at + 4 * l->suspect)
			lane_suspect(l, i, t, "nothing has been heard since it came up");
	}
}

/*
 * Every lane is down, and at least one says that there is no process: it hung up and did not come back, or
 * refuses connections. The others may have seen only an error. Certain at once where no lane can be fenced,
 * since such a lane hangs up only with the process.
 */
static bool all_gone(const struct link *l, bool *certain)
{
	bool any = false;

	*certain = true;
	for (int i = 0; i < l->nlanes; i++) {
		const struct link_lane *ln = &l->lane[i];

		if (ln->phase != LL_DOWN && ln->phase != LL_TRYING)
			return false;
		any |= ln->gone;
		*certain &= ln->gone && !ln->ops->can_fence;
	}
	return any;
}

static void process_gone(struct link *l, struct tick *t)
{
	bool certain;

	if (!l->ever_up || !all_gone(l, &certain)) {
		l->gone_since = 0;
		return;
	}
	if (!l->gone_since)
		l->gone_since = t->now;
	if (!certain && t->now < l->gone_since + LINK_GONE_LIMIT) {
		timer_at(l, l->gone_since + LINK_GONE_LIMIT);
		return;
	}
	if (l->peer_bye && (l->bye_sent || l->una == l->next) && !(l->wanted && !l->bye_sent)) {
		/* it had said goodbye and nothing was under way to it */
		if (!l->left && l->cfg.ops->left)
			l->cfg.ops->left(l->cfg.user, l);
		l->left = true;
	} else if (l->peer_bye)
		link_die(l, t, SIRCL_REMOTE_ERROR,
			 "rank %u has left the job although this rank still had something to send to it",
			 l->cfg.peer_rank);
	else
		link_die(l, t, SIRCL_REMOTE_ERROR,
			 "the process of rank %u has ended (every lane hung up, none came back); see its own "
			 "log for why",
			 l->cfg.peer_rank);
}

/* quiet: the pass has found nothing, so what the peer has sent was seen. */
void link_timers(struct link *l, struct tick *t, bool quiet)
{
	l->next_timer = NEVER;
	for (int i = 0; i < l->nlanes; i++)
		lane_timers(l, i, t);
	if (l->dying)
		return;
	process_gone(l, t);
	if (!l->ever_up && l->connecting) {
		if (t->now >= l->opened_at + l->start_timeout)
			link_die(l, t, SIRCL_TIMEOUT,
				 "no lane came up within %llu ms (SIRCL_START_TIMEOUT); check that the rank "
				 "runs and that "
				 "the cable is plugged",
				 (unsigned long long)(l->start_timeout / MSEC));
		else
			timer_at(l, l->opened_at + l->start_timeout);
	}
	if (l->una == l->next && !(l->wanted && !l->nup))
		return;
	if (quiet && t->now >= l->moved_at + l->timeout && !l->dying && !l->left)
		link_die(l, t, SIRCL_TIMEOUT,
			 "%llu frames were not acknowledged and nothing moved for %llu ms (SIRCL_TIMEOUT); "
			 "the rank is "
			 "stopped or the cable is cut",
			 (unsigned long long)(l->next - l->una), (unsigned long long)(l->timeout / MSEC));
	timer_at(l, t->now + l->heartbeat);
}
