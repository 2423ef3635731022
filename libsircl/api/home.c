/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the communicators of one sircl_comm_create share, and its end. A rank passes on what others send, so
 * it may close its links only when no rank has a communicator left: as long as there was no split, the
 * meeting of the one communicator says so; after a split, a last meeting over a team of all ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/internal.h"

sircl_result_t ctx_open(struct sircl_ctx *ctx, int rank, int n)
{
	sircl_result_t ret;

	CHECK(params_load(&ctx->params));
	ret = reduce_use((enum reduce_set)param_num(&ctx->params, PARAM_CPU));
	if (ret != SIRCL_SUCCESS) {
		params_free(&ctx->params);
		return ret;
	}
	log_init(&ctx->log, &ctx->params, rank);
	log_info(&ctx->log, LOG_INIT, "reductions use the %s instructions (SIRCL_CPU=%s)", reduce_used(),
		 param_str(&ctx->params, PARAM_CPU));
	ctx->rank = rank;
	ctx->nranks = n;
	if (gethostname(ctx->host, sizeof(ctx->host) - 1) != 0)
		snprintf(ctx->host, sizeof(ctx->host), "unknown");
	ctx->clock = lane_clock_real;
	return SIRCL_SUCCESS;
}

void ctx_close(struct sircl_ctx *ctx)
{
	log_close(&ctx->log);
	params_free(&ctx->params);
}

/* ---- news ---- */

static const struct sircl_error *lost_link(const struct fabric *f)
{
	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side] && link_state(f->link[side]) == LINK_DEAD)
			return link_error(f->link[side]);
	return NULL;
}

/* Rank of a node in a communicator, -1: no member. */
static int member_at(const struct sircl_comm *c, int node)
{
	for (int p = 0; p < c->n; p++)
		if (c->node_of[p] == node)
			return c->rank_of[p];
	return -1;
}

struct node_name {
	char text[112];
};

static struct node_name node_name(const struct sircl_comm *c, int node)
{
	struct node_name n;
	int rank = member_at(c, node);

	if (rank >= 0)
		snprintf(n.text, sizeof(n.text), "rank %d", rank);
	else
		snprintf(n.text, sizeof(n.text), "rank %d of communicator \"%s\"", c->fabric->rank_of[node],
			 c->home->name);
	return n;
}

static struct sircl_error news_of(const struct sircl_comm *c, const struct chan_notice *n)
{
	struct sircl_error e = { .code = (sircl_result_t)n->code };
	struct node_name origin = node_name(c, n->origin), subject = node_name(c, n->subject);

	if (n->kind == NOTICE_DEAD && n->origin == c->fabric->pos && lost_link(c->fabric))
		e = *lost_link(c->fabric);
	else if (n->kind == NOTICE_DEAD)
		snprintf(e.msg, sizeof(e.msg),
			 "rank %d: %s has lost its neighbour, %s (the process has ended, or all "
			 "lanes of the cable are gone): see what both printed last; this communicator has "
			 "ended",
			 c->rank, origin.text, subject.text);
	else if (e.code == SIRCL_ABORTED)
		snprintf(e.msg, sizeof(e.msg), "rank %d: the communicator was aborted by %s", c->rank,
			 origin.text);
	else if (n->subject != n->origin && n->subject != c->fabric->pos)
		snprintf(e.msg, sizeof(e.msg),
			 "rank %d: %s has failed because of %s (%s) and ended the communicator: see its "
			 "sentence",
			 c->rank, origin.text, subject.text, sircl_strerror(e.code));
	else
		snprintf(e.msg, sizeof(e.msg),
			 "rank %d: %s has failed (%s) and ended the communicator: see its sentence", c->rank,
			 origin.text, sircl_strerror(e.code));
	return e;
}

/* A death ends every communicator; an abort the one it names, if who tells it is a member: ids are unique
 * among communicators that share a rank. */
static bool concerns(const struct sircl_comm *c, const struct chan_notice *n)
{
	return n->kind == NOTICE_DEAD || (n->arg == c->id && member_at(c, n->origin) >= 0);
}

static void comm_notice(sircl_comm_t c, struct tick *t, const struct chan_notice *n)
{
	struct sircl_error e = news_of(c, n);

	comm_fail(c, t, &e, false, 0);
}

bool home_round(void *user, struct tick *t)
{
	const struct home *h = user;
	bool moved = false;

	for (sircl_comm_t c = h->comms; c; c = c->next)
		if (p2p_busy(c))
			moved |= p2p_round(c, t);
	return moved;
}

/* Called by whoever drives. */
void home_notice(void *user, struct tick *t, const struct chan_notice *n)
{
	struct home *h = user;
	bool known = false;

	for (sircl_comm_t c = h->comms; c; c = c->next) {
		if (!concerns(c, n))
			continue;
		comm_notice(c, t, n);
		known = true;
	}
	if (n->kind == NOTICE_DEAD && !h->dead) {
		h->dead = true;
		h->death = *n;
	}
	if (n->kind == NOTICE_DEAD && h->team) {
		struct sircl_error e = { .code = SIRCL_REMOTE_ERROR };

		snprintf(e.msg, sizeof(e.msg), "rank %d: rank %d has lost its neighbour, rank %d",
			 h->ctx.rank, h->fabric->rank_of[n->origin], h->fabric->rank_of[n->subject]);
		team_fail(h->team, &e);
	} else if (n->kind != NOTICE_DEAD && !known) {
		h->early[h->nearly++ % EARLY_NOTICES] = *n;
	}
}

void home_add(struct home *h, struct tick *t, sircl_comm_t c)
{
	c->next = h->comms;
	h->comms = c;
	if (h->dead)
		comm_notice(c, t, &h->death);
	for (unsigned i = 0; i < EARLY_NOTICES && i < h->nearly; i++)
		if (concerns(c, &h->early[i]))
			comm_notice(c, t, &h->early[i]);
}

/* ---- the end ---- */

sircl_result_t comm_meet(struct home *h, struct op *op, const void *mine, void *all, size_t bytes)
{
	struct op_args a = { .kind = COLL_ALL_GATHER,
			     .in = mine,
			     .out = all,
			     .count = bytes,
			     .type = SIRCL_UINT8,
			     .op = SIRCL_SUM,
			     .meeting = true };
	struct tick t;

	CHECK(op_prepare(op, &a));
	t = ctx_tick(&h->ctx);
	CHECK(engine_start(h->fabric->engine, &t, op));
	return engine_wait(h->fabric->engine, op);
}

static bool met(void *arg)
{
	const struct home *h = arg;

	return team_error(h->team, NULL) != SIRCL_SUCCESS || chan_net_met(h->fabric->net);
}

static bool idle(void *arg)
{
	const struct home *h = arg;

	if (team_error(h->team, NULL) != SIRCL_SUCCESS)
		return true;
	for (int side = 0; side < LINK_SIDES; side++)
		if (h->fabric->link[side] && !link_idle(h->fabric->link[side]))
			return false;
	return true;
}

static sircl_result_t not_taken(const struct home *h)
{
	const struct fabric *f = h->fabric;
	struct link_stats st = { 0 };

	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side] && !link_idle(f->link[side]))
			link_stats(f->link[side], &st);
	return error_set(SIRCL_TIMEOUT,
			 "rank %d: sircl_comm_destroy: rank %u at the other end of cable %u has not taken "
			 "everything that was sent to it within %llu ms (%d of %d lanes up): is that process "
			 "stopped, or the cable bad?",
			 h->ctx.rank, st.peer_rank, st.cable, (unsigned long long)(h->op_timeout / MSEC),
			 st.lanes_up, st.lanes);
}

static sircl_result_t last_meeting(struct home *h)
{
	struct engine *e = h->fabric->engine;
	uint8_t mine = 1, all[COLL_MAX_RANKS];
	struct sircl_error err;

	if (engine_wait_until(e, met, h, h->ctx.clock(h->ctx.clock_arg) + h->op_timeout) == SIRCL_TIMEOUT)
		return error_set(SIRCL_TIMEOUT,
				 "rank %d: sircl_comm_destroy: the other end of a channel has not opened it "
				 "within %llu ms: let every rank destroy its communicators of \"%s\"",
				 h->ctx.rank, (unsigned long long)(h->op_timeout / MSEC), h->name);
	CHECK(comm_meet(h, h->op, &mine, all, 1));
	if (engine_wait_until(e, idle, h, h->ctx.clock(h->ctx.clock_arg) + h->op_timeout) == SIRCL_TIMEOUT)
		return not_taken(h);
	return team_error(h->team, &err) == SIRCL_SUCCESS ? SIRCL_SUCCESS : error_again(&err);
}

sircl_result_t home_stop(struct home *h, bool meet, uint64_t goodbye)
{
	struct sircl_error first = { .code = SIRCL_SUCCESS };
	struct tick t;
	sircl_result_t ret;

	if (h->team) {
		ret = meet ? last_meeting(h) : SIRCL_SUCCESS;
		if (ret != SIRCL_SUCCESS) {
			first = *error_last();
			goodbye = 0;
		}
		engine_lock(h->fabric->engine);
		t = ctx_tick(&h->ctx);
		op_destroy(h->op);
		team_destroy(h->team, &t);
		h->team = NULL;
		engine_unlock(h->fabric->engine);
	}
	ret = fabric_stop(h->fabric, goodbye);
	if (first.code != SIRCL_SUCCESS)
		ret = error_again(&first);
	ctx_close(&h->ctx);
	free(h);
	return ret;
}
