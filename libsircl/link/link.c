/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link as an object: open, connect, progress, close, and what others may ask of it. Everything is
 * allocated here, in link_open; nothing is allocated later. The order of work in one link_progress matters
 * and is written down there.
 */
#include <stdio.h>
#include <stdlib.h>
#include "link/link_internal.h"

#ifdef SIRCL_PLANT
unsigned link_plant;
#endif

#define STAGE_BYTES_LOSSY ((size_t)2 << 20) /* frames copied on the way out: 256 of 8 KiB */

static sircl_result_t check_cfg(const struct link_cfg *cfg)
{
	uint32_t w = cfg->window;

	if (cfg->nlanes < 1 || cfg->nlanes > LANES_MAX)
		return error_set(SIRCL_INTERNAL_ERROR,
				 "rank %u: a link to rank %u with %d lanes; 1 to %d are possible",
				 cfg->self_rank, cfg->peer_rank, cfg->nlanes, LANES_MAX);
	if (w && (w < 8 || w > LINK_WINDOW_MAX || (w & (w - 1))))
		return error_set(SIRCL_INTERNAL_ERROR,
				 "rank %u: a link window of %u frames; a power of two, 8 to %u, is possible",
				 cfg->self_rank, w, LINK_WINDOW_MAX);
	return SIRCL_SUCCESS;
}

static sircl_result_t open_lane(struct link *l, int i)
{
	struct link_lane *ln = &l->lane[i];
	const struct link_cfg *c = &l->cfg;
	uint32_t slots = 1;
	struct lane_cfg lc = {
		.ctx = l->ctx,
		.keys = c->keys,
		.lab = c->lab,
		.cable = c->cable,
		.lane = (uint16_t)i,
		.self = c->self,
		.peer = c->peer,
		.connects = c->connects,
		.dev = c->lane[i].dev,
		.max_notes = l->window + LINK_SLOTS,
		.arena_base = arena_base(l->arena),
		.arena_len = arena_size(l->arena),
		.arena_fd = arena_fd(l->arena),
		.provider = c->lane[i].provider,
	};

	memcpy(lc.job, c->job, sizeof(lc.job));
	ln->ops = c->lane[i].ops;
	snprintf(ln->dev, sizeof(ln->dev), "%s", c->lane[i].dev ? c->lane[i].dev : "-");
	snprintf(ln->why, sizeof(ln->why), "never connected");
	ln->backoff = LINK_BACKOFF_MIN;
	while (slots < lc.max_notes)
		slots *= 2;
	ln->done_mask = slots - 1;
	ln->put_end = calloc(slots, sizeof(*ln->put_end));
	if (!ln->put_end)
		return error_set(SIRCL_NO_MEMORY, "rank %u: no memory for a lane to rank %u", c->self_rank,
				 c->peer_rank);
	CHECK(ln->ops->open(&lc, &ln->lane, &l->addr.lane[i]));
	/* the arena is registered by open under number 0; the send memory is for this end only */
	l->region[0].lm[i] = (struct lane_mem){ .base = lc.arena_base, .len = lc.arena_len, .id = 0 };
	return ln->ops->reg(ln->lane, 1, l->region[1].base, l->region[1].len, &l->region[1].lm[i], NULL);
}

static void own_region(struct link *l, uint16_t id, struct arena *a)
{
	l->region[id] = (struct link_mem){
		.link = l,
		.base = arena_base(a),
		.len = arena_size(a),
		.id = id,
		.used = true,
		.exported = id == 0,
		.gen = 1,
	};
}

static sircl_result_t open_memory(struct link *l, const char *name)
{
	size_t stage = l->lossless && !l->needs_reg ? 0 : STAGE_BYTES_LOSSY;

	CHECK(arena_create(&l->arena, name, LINK_CONTROL_BYTES + l->cfg.arena_bytes));
	sircl_assert(arena_alloc(l->arena, LINK_CONTROL_BYTES) == 0); /* the peer counts on it */
	CHECK(arena_create(&l->send_arena, "sircl-send", LINK_CONTROL_BYTES + stage));
	l->stage = (uint8_t *)arena_base(l->send_arena) + LINK_CONTROL_BYTES;
	l->stage_size = stage;
	own_region(l, 0, l->arena);
	own_region(l, 1, l->send_arena);
	l->nregions = 2;
	return SIRCL_SUCCESS;
}

sircl_result_t link_open(const struct link_cfg *cfg, struct link **out)
{
	const struct params *p = &cfg->ctx->params;
	sircl_result_t ret;
	struct link *l;
	char name[32];

	*out = NULL;
	CHECK(check_cfg(cfg));
	l = calloc(1, sizeof(*l));
	if (!l)
		return error_set(SIRCL_NO_MEMORY, "rank %u: no memory for a link to rank %u", cfg->self_rank,
				 cfg->peer_rank);
	l->ctx = cfg->ctx;
	l->cfg = *cfg;
	l->nlanes = cfg->nlanes;
	l->window = cfg->window ? cfg->window : 256;
	l->mask = l->window - 1;
	l->heartbeat = (uint64_t)param_num(p, PARAM_HEARTBEAT) * MSEC;
	l->suspect = (uint64_t)param_num(p, PARAM_SUSPECT) * MSEC;
	l->timeout = (uint64_t)param_num(p, PARAM_TIMEOUT) * MSEC;
	l->start_timeout = (uint64_t)param_num(p, PARAM_START_TIMEOUT) * MSEC;
	l->ack_at = NEVER;
	l->next_timer = NEVER;
	l->lossless = true;
	l->max_put = UINT32_MAX;
	for (int i = 0; i < l->nlanes; i++) {
		const struct lane_ops *ops = cfg->lane[i].ops;

		l->lossless &= ops->lossless;
		l->needs_reg |= ops->needs_reg;
		if (ops->max_put < l->max_put)
			l->max_put = ops->max_put;
		if (ops->copy_limit > l->copy_limit)
			l->copy_limit = ops->copy_limit;
	}
	/* a lossless link needs acknowledgements only to move its window and to say that it is idle */
	l->ack_delay = l->lossless ? MSEC : 100 * USEC;
	snprintf(name, sizeof(name), "sircl-%s", cfg->side == LINK_NEXT ? "next" : "prev");
	CHECK_GOTO(open_memory(l, name), fail);
	if (l->stage_size && l->max_put > l->stage_size / 2)
		l->max_put = (uint32_t)(l->stage_size / 2);
	if (l->stage_size && l->copy_limit > l->stage_size / 2)
		l->copy_limit = (uint32_t)(l->stage_size / 2);
	l->sent = calloc(l->window, sizeof(*l->sent));
	if (!l->sent) {
		ret = error_set(SIRCL_NO_MEMORY, "rank %u: no memory for %u frames to rank %u",
				cfg->self_rank, l->window, cfg->peer_rank);
		goto fail;
	}
	l->addr.nlanes = (uint32_t)l->nlanes;
	for (int i = 0; i < l->nlanes; i++)
		CHECK_GOTO(open_lane(l, i), fail);
	*out = l;
	return SIRCL_SUCCESS;
fail:
	link_close(l);
	return ret;
}

void link_beside(struct link *a, struct link *b)
{
	if (a->other)
		a->other->other = NULL;
	a->other = b;
	if (b)
		b->other = a;
}

void link_close(struct link *l)
{
	if (!l)
		return;
	if (l->other)
		l->other->other = NULL;
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];

		if (ln->lane)
			ln->ops->close(ln->lane); /* with all its registrations */
		free(ln->put_end);
	}
	free(l->sent);
	if (l->send_arena)
		arena_destroy(l->send_arena);
	if (l->arena)
		arena_destroy(l->arena);
	free(l);
}

void link_local_addr(const struct link *l, struct link_addr *out)
{
	*out = l->addr;
}

sircl_result_t link_connect(struct link *l, struct tick *t, const struct link_addr *peer)
{
	if (peer->nlanes != (uint32_t)l->nlanes)
		return error_set(SIRCL_BAD_CONFIG,
				 "rank %u: cable %u to rank %u has %d lanes here and %u there; set "
				 "SIRCL_LANES alike on "
				 "both, or check the cabling",
				 l->cfg.self_rank, l->cfg.cable, l->cfg.peer_rank, l->nlanes, peer->nlanes);
	l->peer_addr = *peer;
	l->now = l->opened_at = t->now;
	l->connecting = true;
	for (int i = 0; i < l->nlanes; i++) {
		l->lane[i].retry_at = t->now;
		if (!l->cfg.connects)
			l->lane[i].ops->allow(l->lane[i].lane, l->lane[i].floor + 1);
	}
	for (int i = 0; i < l->nlanes && l->cfg.connects; i++)
		lane_try(l, i, t);
	timer_at(l, t->now + l->heartbeat);
	return SIRCL_SUCCESS;
}

/*
 * One pass. First what was due before anything arrives (an acknowledgement that no frame has taken along).
 * Then the lanes, each at least once, so that no timer is judged before everything that had arrived was seen:
 * a process that was stopped finds its peer alive, not late. Then what the events asked for; timers last.
 */
bool link_progress(struct link *l, struct tick *t)
{
	struct lane_event ev[LINK_BATCH];
	uint64_t gap = t->now - l->now;
	bool any = false;

	if (l->dead)
		return false;
	if (gap > l->suspect / 2 && t->now > l->now &&
	    l->connecting) { /* nobody drove us: no silence counts */
		for (int i = 0; i < l->nlanes; i++)
			l->lane[i].silent_since = 0;
		l->moved_at += gap;
		l->awake_since = t->now;
	} else if (t->now >= l->ack_at) {
		state_send_any(l, t); /* not after a gap: it would say that nothing has come meanwhile */
	}
	l->before = l->now;
	l->now = t->now;
	l->heard = 0;
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];
		int n = ln->ops->poll(ln->lane, t, ev, LINK_BATCH);

		for (int k = 0; k < n; k++) {
			lane_event(l, i, t, &ev[k]);
			any |= ev[k].ev != LANE_DONE; /* which is for rates only */
		}
	}
	if (l->heard && l->nup > 1)
		lane_silence(l, t);
	if (l->busy) {
		l->busy = false;
		for (int i = 0; i < l->nlanes; i++)
			if (l->lane[i].state_due)
				state_send(l, i, t);
		if (l->state_any)
			state_send_any(l, t);
		if (l->nqueued)
			replay_pump(l, t);
		if (l->owe_regions)
			region_pump(l, t);
		if (l->bye_wanted || l->dying)
			end_pump(l, t);
	}
	if (t->now >= l->next_timer && !l->dead)
		link_timers(l, t, !any);
	return any;
}

uint64_t link_deadline(const struct link *l)
{
	uint64_t at = tick_min(l->next_timer, l->ack_at);

	if (l->dead)
		return NEVER;
	for (int i = 0; i < l->nlanes; i++)
		at = tick_min(at, l->lane[i].ops->deadline(l->lane[i].lane));
	return at;
}

int link_arm(struct link *l, struct pollfd *fds, int max)
{
	int n = 0;

	if (l->dead)
		return 0;
	for (int i = 0; i < l->nlanes; i++) {
		int k = l->lane[i].ops->arm(l->lane[i].lane, fds + n, max - n);

		if (k < 0)
			return -1;
		n += k;
	}
	return n;
}

enum link_state link_state(const struct link *l)
{
	if (l->dead)
		return LINK_DEAD;
	if (l->nup == l->nlanes)
		return LINK_UP;
	return l->ever_up ? LINK_DEGRADED : LINK_CONNECTING;
}

const struct sircl_error *link_error(const struct link *l)
{
	return &l->error;
}

struct arena *link_arena(const struct link *l)
{
	return l->arena;
}

size_t link_arena_off(const struct link *l, size_t arena_off)
{
	(void)l;
	return arena_off;
}

uint64_t link_peer_arena(const struct link *l)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < l->nlanes; i++)
		if (l->lane[i].arena.len && l->lane[i].arena.len < least)
			least = l->lane[i].arena.len;
	return least == UINT64_MAX ? 0 : least;
}

uint32_t link_max_put(const struct link *l)
{
	return l->max_put;
}

bool link_lossless(const struct link *l)
{
	return l->lossless;
}

bool link_idle(const struct link *l)
{
	return l->una == l->next && !l->rx_news && !l->owe_regions;
}

void link_stats(const struct link *l, struct link_stats *s)
{
	*s = l->stats;
	s->cable = l->cfg.cable;
	s->peer = l->cfg.peer;
	s->peer_rank = l->cfg.peer_rank;
	s->lanes = l->nlanes;
	s->lanes_up = l->nup;
	s->window_bytes = l->window * sizeof(*l->sent);
	s->memory_bytes = sizeof(*l) + s->window_bytes + arena_size(l->arena) + arena_size(l->send_arena);
	for (int i = 0; i < l->nlanes; i++) {
		const struct link_lane *ln = &l->lane[i];

		s->memory_bytes += (ln->done_mask + 1ull) * sizeof(*ln->put_end);
		s->lane_bytes_sent[i] = ln->bytes_sent;
		s->lane_why[i] = ln->phase == LL_UP ? NULL : ln->why;
		ln->ops->stats(ln->lane, &s->lane[i]);
	}
}

void link_test_start(struct link *l, uint64_t tx, uint64_t rx)
{
	l->una = l->next = tx;
	l->rx_cum = rx;
#ifdef SIRCL_PLANT
	l->rx_max = rx;
#endif
}
