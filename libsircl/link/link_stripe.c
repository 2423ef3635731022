/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lane carries a frame: the one that will have finished it first, (bytes under way + its own) / weight.
 *
 * Weights compare lanes, and only lanes that work at the same time can be compared: whatever holds up this
 * process or the peer's holds up all of them alike, while a rate taken alone would blame the lane that
 * happened to be in use. So weights come from *races*. A race runs from when at least two lanes have work
 * until each has finished something and RACE_BYTES are through. A lane that runs out of work while another
 * still has some was not what we waited for: how fast it could have been is not known, so it may win weight
 * by that race and never lose any. If all of them are found without work in one pass nothing is known.
 *
 * A lane that is hardly used is hardly raced. So that one bad measurement is not for ever, a lane that has
 * been idle for a while (in bytes on its sisters, `probe_gap`) gets one frame while a sister is at work; when
 * it turns out to be slow again it is left alone for four times as long: in a collective such a frame holds
 * everybody up, once for each link of the ring.
 *
 * No lane gets more than its part of QUEUE_BYTES. What is beyond waits outside, and chooses its lane when a
 * place is free: with a lane's latest speed, and behind no long queue that control messages stand in too.
 *
 * The lanes with the same number of a machine's two links share a PCI domain. What the other link has under
 * way there is in this one's way, so it counts; and if the other link has lost a lane, this one keeps off
 * those it has left, while they work: round a ring the poorer cable sets the pace.
 */
#include "link/link_internal.h"

#define RACE_BYTES (512u << 10) /* a race is over */
#define RACE_LEAST (128u << 10) /* fewer say nothing about bandwidth */
#define RACE_LANE (16u << 10) /* nor do fewer of one lane: control messages are small */
#define RACE_GAPS 4
#define RACE_FALL 4 /* no race makes a lane more than so many times worse: it may have been bad luck */
#define RACE_MEMORY (2u << 20) /* so many bytes ago a race counts half */
#define UNTESTED 4 /* with fewer races behind it a lane has */
#define UNTESTED_BYTES (1u << 20) /* no deeper queue than this, or one frame */
#define NEW_RACES 2 /* with fewer it is new: it may be slow, and what it has then holds up an operation */
#define NEW_BYTES (256u << 10) /* so no deeper queue than this, */
#define NEW_FRAME (64u << 10) /* of such frames; what probes a slow lane is no longer either */
#define NEW_UNTIL (8u << 20) /* bytes of the link; from then on it is used although it was never raced */
#define QUEUE_BYTES (1536u << 10) /* covers the time in which a processor sums and does not look here */
#define QUEUE_LEAST (512u << 10) /* of one lane: two frames, so that one goes while the next is posted */
#define PROBE_FIRST (1u << 20)
#define PROBE_LAST (1u << 30)
#define SLOWER \
	(64u << 10) /* bytes: while the other link is in use, spread less: it may need what is slow here */
#define LEFT_ALONE (1ull << 40) /* bytes: only if there is no other lane */
#define WEIGHT_LEAST (1.0 / 64)
#define WEIGHT_ALIKE 1.15 /* lanes that differ by less take turns */

static bool usable(const struct link *l, const struct link_lane *ln, uint16_t region, uint32_t len)
{
	return ln->phase == LL_UP && !ln->fresh &&
	       (len == 0 || region == 0 || l->peer_region[region].lanes == (1u << l->nlanes) - 1);
}

static bool at_work(const struct link_lane *ln)
{
	return ln->phase == LL_UP && ln->posted != ln->done;
}

static unsigned bit(const struct link *l, const struct link_lane *ln)
{
	return 1u << (ln - l->lane);
}

static uint64_t under_way(const struct link_lane *ln)
{
	return ln->phase == LL_UP ? ln->posted_bytes - ln->done_bytes : 0;
}

static bool in_use(const struct link *l)
{
	return l && l->una != l->next;
}

/* Bytes of the other link that are in the way of ours on lane i, more than on the lane where they are fewest.
 */
static uint64_t beside(const struct link *l, int i)
{
	const struct link *o = l->other;
	uint64_t least = UINT64_MAX;

	if (!o || o->nlanes != l->nlanes)
		return 0;
	if (o->nup < l->nup && o->lane[i].phase == LL_UP && in_use(o))
		return LEFT_ALONE;
	for (int k = 0; k < l->nlanes; k++)
		if (under_way(&o->lane[k]) < least)
			least = under_way(&o->lane[k]);
	return under_way(&o->lane[i]) - least;
}

/* Whether the lane's queue has no place for `len` bytes. */
static bool queue_full(const struct link *l, const struct link_lane *ln, uint32_t len)
{
	uint64_t most = QUEUE_BYTES / (unsigned)l->nup;

	return under_way(ln) + len > (most > QUEUE_LEAST ? most : QUEUE_LEAST);
}

/* Nothing is known of it yet. */
static bool is_new(const struct link *l, const struct link_lane *ln)
{
	return ln->races < NEW_RACES && l->striped - ln->up_striped < NEW_UNTIL;
}

static bool probe_due(const struct link *l, const struct link_lane *ln)
{
	return !at_work(ln) && l->striped - ln->tried_at >= ln->probe_gap;
}

/* Whether nobody knows yet if the lane is the best, and enough waits on it until somebody does. */
static bool untested_full(const struct link *l, const struct link_lane *ln, uint32_t len)
{
	uint64_t most = is_new(l, ln) ? NEW_BYTES : UNTESTED_BYTES;

	return l->nup > 1 && ln->races < UNTESTED && under_way(ln) && under_way(ln) + len > most &&
	       under_way(ln) + len > 2ull * len;
}

uint32_t link_frame_now(const struct link *l)
{
	if (l->lossless || l->nup < 2 || l->max_put <= NEW_FRAME)
		return l->max_put;
	for (int i = 0; i < l->nlanes; i++) {
		const struct link_lane *ln = &l->lane[i];

		if (ln->phase == LL_UP && (is_new(l, ln) || (ln->weight * 2 <= 1 && probe_due(l, ln))))
			return NEW_FRAME;
	}
	return l->max_put;
}

/* The lane that will have finished `len` more bytes first, of those not in `without`; -1: none can carry it
 * now. */
int lane_best(const struct link *l, uint16_t region, uint32_t len, unsigned without)
{
	double best_time = 0;
	int best = -1, probe = -1;
	uint32_t from;

	if (l->nlanes == 1)
		return !without && usable(l, &l->lane[0], region, len) ? 0 : -1;
	/* Start at a lane that changes every 16 frames: ties and lossless lanes, where time says nothing, are
	 * spread without tearing every short run of frames apart. */
	from = l->turn / 16;
	for (int k = 0; k < l->nlanes; k++) {
		int i = (int)((from + (uint32_t)k) % (uint32_t)l->nlanes);
		const struct link_lane *ln = &l->lane[i];
		double weight = ln->weight * WEIGHT_ALIKE >= 1 ? 1 : ln->weight, time;
		uint64_t out = ln->posted_bytes - ln->done_bytes;

		if ((without & (1u << i)) || !usable(l, ln, region, len))
			continue;
		if (l->lossless)
			return i;
		if (len >= RACE_LANE && probe_due(l, ln))
			probe = i;
		if (weight < 1 && len >= RACE_LANE && in_use(l->other))
			out += SLOWER;
		time = (double)(out + len + beside(l, i)) / weight;
		if (best < 0 || time < best_time) {
			best = i;
			best_time = time;
		}
	}
	if (best < 0 || l->lossless || !at_work(&l->lane[best]))
		return best;
	if (probe >= 0)
		return probe;
	if (len >= RACE_LANE && queue_full(l, &l->lane[best], len))
		return -1;
	/* Nobody knows yet whether it is the best: wait for it, but do not pile more on it, nor on a worse
	 * one. */
	if (len >= RACE_LANE && untested_full(l, &l->lane[best], len))
		return -1;
	return best;
}

/* ---- races ---- */

static void race_start(struct link *l)
{
	unsigned who = 0;

	l->racing = l->rested = 0;
	l->race_bytes = l->race_gap = 0;
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];

		if (!at_work(ln))
			continue;
		who |= 1u << i;
		ln->race_from = ln->race_end = ln->head_since;
		ln->race_bytes = 0;
	}
	if (who & (who - 1))
		l->racing = who;
}

/* Whether every lane in the race has finished enough, and long enough against how late we may have seen it.
 */
static bool race_all_in(const struct link *l)
{
	for (int i = 0; i < l->nlanes; i++)
		if ((l->racing & (1u << i)) &&
		    (l->lane[i].race_bytes < RACE_LANE ||
		     (!l->rested && l->lane[i].race_end - l->lane[i].race_from < RACE_GAPS * l->race_gap)))
			return false;
	return true;
}

static void race_judge(struct link *l)
{
	double speed[LANES_MAX] = { 0 }, speeds = 0, weights = 0, top = 0;
	unsigned last = 0;

	if (l->race_bytes < RACE_LEAST)
		return;
	for (int i = 0; i < l->nlanes; i++)
		if ((l->rested & (1u << i)) && l->lane[i].race_end == l->now)
			last |= 1u << i;
	if (l->rested == l->racing)
		l->rested &= ~last; /* those that we waited for */
	if (!l->rested && last == l->racing)
		return;
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];

		if (!(l->racing & (1u << i)))
			continue;
		if (ln->race_end <= ln->race_from)
			return;
		speed[i] = (double)ln->race_bytes / (double)(ln->race_end - ln->race_from);
		speeds += speed[i];
		weights += ln->weight;
	}
	for (int i = 0; i < l->nlanes; i++) /* a lane that ran out of work can not lose */
		if ((l->rested & (1u << i)) && speed[i] / speeds * weights < l->lane[i].weight)
			return;
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];
		double age = (double)(l->striped - ln->raced_at), gain = age / (age + RACE_MEMORY);

		gain = gain < 0.5 ? gain : 0.5;
		if (ln->races < UNTESTED) /* the mean of the first ones */
			gain = 1.0 / (ln->races + 1);
		if (l->racing & (1u << i)) {
			double to = ln->weight + gain * (speed[i] / speeds * weights - ln->weight);

			ln->weight = to > ln->weight / RACE_FALL ? to : ln->weight / RACE_FALL;
		}
		if (ln->phase == LL_UP && ln->weight > top)
			top = ln->weight;
	}
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];

		ln->weight = ln->weight / top > WEIGHT_LEAST ? ln->weight / top : WEIGHT_LEAST;
		if (ln->weight * 2 > 1)
			ln->probe_gap = PROBE_FIRST;
		if (l->racing & (1u << i)) {
			ln->raced_at = ln->tried_at = l->striped;
			ln->races++;
		}
	}
}

/* ---- what lanes do ---- */

void stripe_up(struct link *l, struct link_lane *ln)
{
	ln->posted = ln->done = ln->posted_bytes = ln->done_bytes = ln->rate_bytes = 0;
	ln->rate = 0;
	ln->weight = 1;
	ln->races = 0;
	ln->raced_at = ln->tried_at = ln->up_striped = l->striped;
	ln->probe_gap = PROBE_FIRST;
}

/* A lane is not up any more: the others go on without it. */
void stripe_down(struct link *l)
{
	race_start(l);
}

/* `puts` more puts are through. A rate is taken over stretches in which the lane was never idle. */
static void through(struct link *l, struct link_lane *ln, uint64_t puts)
{
	uint64_t end, bytes, now = l->now; /* one time for all that a pass finds */

	ln->done += puts;
	end = ln->put_end[(ln->done - 1) & ln->done_mask];
	bytes = end - ln->done_bytes;
	ln->rate_bytes += bytes;
	ln->done_bytes = end;
	if (ln->rate_bytes >= 128 << 10 && now > ln->rate_from) {
		double r = (double)ln->rate_bytes / (double)(now - ln->rate_from);

		ln->rate = ln->rate > 0 ? ln->rate + (r - ln->rate) / 8 : r;
		ln->rate_bytes = 0;
		ln->rate_from = now;
	}
	if (ln->done == ln->posted)
		ln->rate_bytes = 0;
	ln->head_since = l->before; /* it was through after the pass before, at the earliest */
	if (l->racing & ~l->rested & bit(l, ln)) {
		ln->race_bytes += bytes;
		ln->race_end = now;
		l->race_bytes += bytes;
		if (now - l->before > l->race_gap)
			l->race_gap = now - l->before;
	}
}

void stripe_done(struct link *l, struct link_lane *ln, uint64_t puts)
{
	if (puts > ln->posted - ln->done)
		puts = ln->posted - ln->done; /* given up before: put_end had no room to remember */
	if (!puts)
		return;
	through(l, ln, puts);
	if (!(l->racing & bit(l, ln)))
		return;
	if (ln->done == ln->posted) {
		if (ln->race_bytes < RACE_LANE) { /* it only had a few words to say */
			race_start(l);
			return;
		}
		l->rested |= bit(l, ln);
	}
	if ((l->race_bytes >= RACE_BYTES || l->rested) && race_all_in(l)) {
		race_judge(l);
		race_start(l);
	}
}

void stripe_idle(struct link *l)
{
	for (int i = 0; i < l->nlanes; i++)
		stripe_done(l, &l->lane[i], l->lane[i].posted - l->lane[i].done);
}

void stripe_posted(struct link *l, struct link_lane *ln, uint64_t now, uint32_t len)
{
	bool was_idle = ln->posted == ln->done;

	if (was_idle) {
		ln->rate_from = ln->head_since = now;
		ln->rate_bytes = 0;
		if (len >= RACE_LANE && l->striped - ln->tried_at >= ln->probe_gap) { /* the probe */
			ln->tried_at = l->striped;
			if (ln->weight * 2 <= 1 && ln->probe_gap < PROBE_LAST)
				ln->probe_gap *= 4;
		}
	} else if (ln->posted - ln->done > ln->done_mask) {
		stripe_done(l, ln, 1); /* the provider is late with LANE_DONE: the oldest is through */
	}
	ln->posted_bytes += len;
	l->striped += len;
	ln->put_end[ln->posted++ & ln->done_mask] = ln->posted_bytes;
	if (was_idle && !l->racing && l->nup > 1)
		race_start(l);
}
