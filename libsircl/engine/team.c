/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team: what a communicator is to the engine. Its channels, its queue of operations, and its end. The first
 * error is kept; any thread may report one. The driver then closes the channels, waits until no transfer can
 * land in a caller's memory any more, and only then ends the operations. A peer that does not give memory
 * back within CLOSE_GRACE loses its link, which fences every lane.
 */
#include "engine/internal.h"
#include <stdio.h>
#include <stdlib.h>

_Static_assert((EXEC_QUEUE & (EXEC_QUEUE - 1)) == 0 && EXEC_QUEUE < CHAN_QUEUE, "EXEC_QUEUE");

int team_rank(const struct team *t, int pos)
{
	return t->cfg.rank_of[pos];
}

/* Position at the end of a side, or -1. */
static int neighbour(const struct team_cfg *c, enum plan_chan side)
{
	int pos = side == PLAN_NEXT ? c->pos + 1 : c->pos - 1;

	if (c->n == 1)
		return -1;
	if (pos >= 0 && pos < c->n)
		return pos;
	return c->shape == SHAPE_RING ? (pos + c->n) % c->n : -1;
}

static sircl_result_t open_side(struct team *t, struct tick *tick, enum plan_chan side)
{
	struct team_chan *tc = &t->ch[side];
	int peer = neighbour(&t->cfg, side);
	struct chan_cfg cfg;

	if (peer < 0)
		return SIRCL_SUCCESS;
	tc->peer = (uint16_t)peer;
	tc->cable = (uint16_t)(side == PLAN_NEXT ? t->cfg.pos : peer);
	cfg = (struct chan_cfg){ .id = TEAM_CHAN_ID(t->cfg.id, tc->cable),
				 .peer = t->cfg.node_of[peer],
				 .via = side == PLAN_NEXT ? LINK_NEXT : LINK_PREV,
				 .window = t->window };
	if (chan_net_hops(t->engine->cfg.net, cfg.peer, cfg.via) > 1)
		cfg.window = t->relay_window;
	return chan_open(t->engine->cfg.net, tick, &cfg, &tc->chan);
}

static void close_sides(struct team *t, struct tick *tick)
{
	for (int c = 0; c < PLAN_CHANS; c++) {
		struct chan *chan = t->ch[c].chan;

		t->ch[c].chan = NULL;
		if (chan)
			chan_close(chan, tick);
	}
}

/* The same on all ranks. A window in shared memory is memory that one rank has just written and the other
 * reads next: as long as it stays in their caches. Larger ones hide no latency, since there is none. */
static uint32_t window_of(const struct team_cfg *cfg, int64_t window)
{
	return chan_window(cfg->class == CLASS_SHM && window > SHM_WINDOW ? SHM_WINDOW : window);
}

/* Whether any two neighbours of the team are none in the net: all ranks find the same. */
static bool has_relays(const struct engine *e, const struct team_cfg *c)
{
	const struct chan_net *net = e->cfg.net;
	uint16_t other = c->node_of[c->pos == 0];

	for (int p = 0; p + 1 < c->n; p++)
		if (c->node_of[p + 1] - c->node_of[p] != 1)
			return true;
	if (c->n < 2 || c->shape != SHAPE_RING)
		return false;
	/* once round is there one way and there the other way */
	return c->node_of[0] + chan_net_hops(net, other, LINK_NEXT) + chan_net_hops(net, other, LINK_PREV) -
		       c->node_of[c->n - 1] !=
	       1;
}

sircl_result_t team_create(struct engine *e, struct tick *tick, const struct team_cfg *cfg, struct team **out)
{
	const struct params *p = &e->cfg.ctx->params;
	struct team *t;
	sircl_result_t ret;

	if (cfg->n < 1 || cfg->n > COLL_MAX_RANKS || cfg->pos < 0 || cfg->pos >= cfg->n ||
	    cfg->id >= TEAM_ID_LIMIT)
		return error_set(SIRCL_INVALID_ARGUMENT, "team of %d ranks at position %d: 1 to %d ranks",
				 cfg->n, cfg->pos, COLL_MAX_RANKS);
	t = calloc(1, sizeof(*t));
	if (!t)
		return error_set(SIRCL_NO_MEMORY, "no memory for a team");
	t->engine = e;
	t->cfg = *cfg;
	snprintf(t->name, sizeof(t->name), "%s", cfg->name ? cfg->name : "comm");
	t->cfg.name = t->name;
	t->window = window_of(cfg, param_num(p, PARAM_WINDOW));
	t->relay_window = chan_window(param_num(p, PARAM_RELAY_WINDOW));
	t->least_window = t->window;
	if (t->relay_window < t->window && has_relays(e, cfg))
		t->least_window = t->relay_window;
	t->forced = (enum coll_algo)param_num(p, PARAM_ALGO);
	t->deterministic = param_num(p, PARAM_DETERMINISTIC) != 0;
	t->forced_slice = (size_t)param_num(p, PARAM_SLICE);
	token_take(e);
	CHECK_GOTO(tables_create(t), fail);
	for (int c = 0; c < PLAN_CHANS; c++)
		CHECK_GOTO(open_side(t, tick, (enum plan_chan)c), fail);
	t->next = e->teams;
	e->teams = t;
	engine_account(e, sizeof(*t), 0);
	engine_unlock(e);
	*out = t;
	return SIRCL_SUCCESS;
fail:
	close_sides(t, tick);
	tables_destroy(t);
	engine_unlock(e);
	free(t);
	return ret;
}

void team_destroy(struct team *t, struct tick *tick)
{
	struct engine *e;

	if (!t)
		return;
	e = t->engine;
	token_take(e);
	sircl_assert(!t->head);
	close_sides(t, tick);
	for (struct team **at = &e->teams; *at; at = &(*at)->next) {
		if (*at == t) {
			*at = t->next;
			break;
		}
	}
	tables_destroy(t);
	engine_account(e, 0, sizeof(*t));
	engine_unlock(e);
	free(t);
}

sircl_result_t team_error(const struct team *t, struct sircl_error *err)
{
	/* Acquire: partner of the release in team_fail, so that err is whole. */
	if (atomic_load_explicit(&t->failed, memory_order_acquire) != 2) {
		if (err)
			*err = (struct sircl_error){ .code = SIRCL_SUCCESS };
		return SIRCL_SUCCESS;
	}
	if (err)
		*err = t->err;
	return t->err.code;
}

void team_fail(struct team *t, const struct sircl_error *err)
{
	int none = 0;

	/* Relaxed: only the winner writes, and what it publishes is published by the release below. */
	if (!atomic_compare_exchange_strong_explicit(&t->failed, &none, 1, memory_order_relaxed,
						     memory_order_relaxed))
		return;
	t->err = *err;
	if (t->err.code == SIRCL_SUCCESS)
		t->err.code = SIRCL_INTERNAL_ERROR;
	atomic_store_explicit(&t->failed, 2, memory_order_release); /* partner: team_error, team_progress */
	engine_kick(t->engine);
}

void team_fail_all(struct team *t, struct tick *tick, const struct sircl_error *err, int subject)
{
	if (team_error(t, NULL) != SIRCL_SUCCESS)
		return;
	team_fail(t, err);
	chan_net_notify(t->engine->cfg.net, tick, NOTICE_ABORT, (uint16_t)subject, t->err.code, t->cfg.id);
}

uint64_t team_ops(const struct team *t)
{
	return atomic_load_explicit(&t->ops_finished, memory_order_relaxed);
}

size_t team_memory(const struct team *t)
{
	size_t bytes = sizeof(*t) + tables_memory(t);

	for (int c = 0; c < PLAN_CHANS; c++)
		bytes += t->ch[c].chan ? chan_memory(t->ch[c].chan) : 0;
	return bytes;
}

static void finish_head(struct team *t, struct tick *tick, sircl_result_t result)
{
	struct op *op = t->head;

	t->head = op->next;
	if (!t->head)
		t->tail = NULL;
	op->next = NULL;
	op->result = result;
	flight_end(op, tick->now, result == SIRCL_SUCCESS);
	if (result == SIRCL_SUCCESS)
		atomic_fetch_add_explicit(&t->ops_finished, 1, memory_order_relaxed);
	/* Release: partner of the acquire in op_done; the result is in memory, and op is the waiter's again.
	 */
	atomic_store_explicit(&op->state, OP_DONE, memory_order_release);
	wait_op_done(t->engine);
}

/* Drops transfers that have ended, in order; true if none is left. */
static bool transfers_ended(struct team_chan *tc)
{
	bool empty = true;

	for (int d = 0; d < DIRS; d++) {
		struct slot_queue *q = &tc->q[d];

		while (q->head != q->tail) {
			const struct xfer *x = &q->slot[q->head % EXEC_QUEUE].x;

			if (!x->finished && x->err == SIRCL_SUCCESS)
				break;
			q->head++;
		}
		empty &= q->head == q->tail;
	}
	return empty;
}

/* Kills the links over which the peer has not given memory back. */
static void kill_links(struct team *t, struct tick *tick)
{
	for (int c = 0; c < PLAN_CHANS; c++) {
		struct link *l = chan_net_link(t->engine->cfg.net, c == PLAN_NEXT ? LINK_NEXT : LINK_PREV);

		if (l && !transfers_ended(&t->ch[c]) && link_state(l) != LINK_DEAD)
			link_kill(l, tick, &t->err);
	}
	t->killed = true;
}

static bool team_end(struct team *t, struct tick *tick)
{
	bool ended = true, moved = false;

	if (t->phase == TEAM_CLOSED && !t->head)
		return false;
	if (t->phase == TEAM_OPEN) {
		t->phase = TEAM_CLOSING;
		flight_report(t);
		t->close_at = tick->now + CLOSE_GRACE;
		close_sides(t, tick);
		moved = true;
	}
	for (int c = 0; c < PLAN_CHANS; c++)
		ended &= transfers_ended(&t->ch[c]);
	if (!ended) {
		if (!t->killed && tick->now >= t->close_at)
			kill_links(t, tick);
		return moved;
	}
	t->phase = TEAM_CLOSED;
	while (t->head)
		finish_head(t, tick, t->err.code);
	return true;
}

static bool has_failed(const struct team *t)
{
	return atomic_load_explicit(&t->failed, memory_order_acquire) == 2; /* partner: team_fail */
}

void team_hearsay(struct team *t, struct tick *tick, const struct team_chan *tc)
{
	struct link *l = chan_net_link(t->engine->cfg.net, tc == &t->ch[PLAN_NEXT] ? LINK_NEXT : LINK_PREV);

	if (l && link_state(l) == LINK_DEAD) {
		team_fail(t, error_last());
	} else if (!t->hearsay_at) {
		t->hearsay = *error_last();
		t->hearsay_at = tick->now + HEARSAY_GRACE;
	}
}

/* True while the team waits for the news; at the end of the grace it ends with what it knows, and says so. */
static bool waits_for_news(struct team *t, struct tick *tick)
{
	if (!t->hearsay_at)
		return false;
	if (tick->now < t->hearsay_at)
		return true;
	team_fail_all(t, tick, &t->hearsay, t->cfg.node_of[t->cfg.pos]);
	return false;
}

bool team_progress(struct team *t, struct tick *tick, bool news)
{
	bool moved = false;

	if (!has_failed(t) && waits_for_news(t, tick))
		return false;
	if (news && !has_failed(t))
		limit_hinted(t, tick);
	if (has_failed(t))
		return team_end(t, tick);
	if (!t->head || (!news && !t->head->again && tick->now < t->head->check_at))
		return false;
	moved = exec_progress(t->head, tick);
	if (has_failed(t))
		return team_end(t, tick) || moved;
	if (t->head->left == 0) {
		finish_head(t, tick, SIRCL_SUCCESS);
		if (t->head)
			op_begin(t->head, tick);
		moved = true;
	}
	return moved;
}

uint64_t team_deadline(const struct team *t)
{
	if (t->phase == TEAM_CLOSING)
		return t->killed ? NEVER : t->close_at;
	if (t->hearsay_at && t->phase == TEAM_OPEN)
		return t->hearsay_at;
	return t->head ? t->head->check_at : NEVER;
}
