/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: create, query, abort, finalize, destroy; unique ids. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/internal.h"
#include "fabric/rdv.h"

int sircl_version(void)
{
	return SIRCL_VERSION;
}

const char *sircl_strerror(sircl_result_t result)
{
	switch (result) {
	case SIRCL_SUCCESS:
		return "success";
	case SIRCL_INVALID_ARGUMENT:
		return "invalid argument";
	case SIRCL_INVALID_USAGE:
		return "invalid usage";
	case SIRCL_UNSUPPORTED:
		return "unsupported";
	case SIRCL_BAD_CONFIG:
		return "bad configuration";
	case SIRCL_SYSTEM_ERROR:
		return "system error";
	case SIRCL_NO_MEMORY:
		return "out of memory";
	case SIRCL_TIMEOUT:
		return "time limit reached";
	case SIRCL_REMOTE_ERROR:
		return "another rank failed";
	case SIRCL_MISMATCH:
		return "ranks issued different calls";
	case SIRCL_ABORTED:
		return "aborted";
	case SIRCL_INTERNAL_ERROR:
		return "internal error";
	case SIRCL_IN_PROGRESS:
		return "in progress";
	}
	return "unknown result";
}

const char *sircl_last_error(sircl_comm_t comm)
{
	if (comm && comm->magic == COMM_MAGIC)
		return comm->last.msg;
	return error_last()->msg;
}

static sircl_result_t ctx_open(struct sircl_ctx *ctx, int rank, int n)
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

static void ctx_close(struct sircl_ctx *ctx)
{
	log_close(&ctx->log);
	params_free(&ctx->params);
}

/* A rendezvous root outlives the call that made it: it ends by itself when its job has met. */
struct id_root {
	struct sircl_ctx ctx;
	struct rdv_root *root;
};

static void id_root_done(void *arg)
{
	struct id_root *r = arg;

	ctx_close(&r->ctx);
	free(r);
}

sircl_result_t sircl_get_unique_id(sircl_unique_id_t *id)
{
	struct id_root *r;
	sircl_result_t ret;

	if (!id)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_get_unique_id: id is NULL");
	r = calloc(1, sizeof(*r));
	if (!r)
		return error_set(SIRCL_NO_MEMORY, "sircl_get_unique_id: no memory");
	ret = ctx_open(&r->ctx, -1, 0);
	if (ret == SIRCL_SUCCESS) {
		ret = fabric_make_id(&r->ctx, id, &r->root);
		if (ret != SIRCL_SUCCESS)
			ctx_close(&r->ctx);
	}
	if (ret != SIRCL_SUCCESS) {
		free(r);
		return ret;
	}
	rdv_root_leave(r->root, id_root_done, r);
	return SIRCL_SUCCESS;
}

static const struct sircl_error *lost_link(const struct sircl_comm *c)
{
	for (int side = 0; side < LINK_SIDES; side++)
		if (c->fabric && c->fabric->link[side] && link_state(c->fabric->link[side]) == LINK_DEAD)
			return link_error(c->fabric->link[side]);
	return NULL;
}

/* Called by whoever drives. */
static void on_notice(void *user, struct tick *t, const struct chan_notice *n)
{
	struct sircl_comm *c = user;
	struct sircl_error e = { .code = (sircl_result_t)n->code };
	int origin, subject;

	(void)t;
	if (!c->team) { /* make_team looks at it */
		if (!c->has_early)
			c->early = *n;
		c->has_early = true;
		return;
	}
	origin = c->fabric->rank_of[n->origin];
	subject = c->fabric->rank_of[n->subject];
	if (n->kind == NOTICE_DEAD && n->origin == c->pos && lost_link(c)) {
		e = *lost_link(c);
	} else if (n->kind == NOTICE_DEAD) {
		snprintf(e.msg, sizeof(e.msg),
			 "rank %d: rank %d has lost its neighbour, rank %d (the process has ended, or all "
			 "lanes of the cable are gone): see what "
			 "both printed last; this communicator has ended",
			 c->rank, origin, subject);
	} else if (e.code == SIRCL_ABORTED) {
		snprintf(e.msg, sizeof(e.msg), "rank %d: the communicator was aborted by rank %d", c->rank,
			 origin);
	} else if (subject != origin && subject != c->rank) {
		snprintf(e.msg, sizeof(e.msg),
			 "rank %d: rank %d has failed because of rank %d (%s) and ended the communicator: "
			 "see its "
			 "sentence",
			 c->rank, origin, subject, sircl_strerror(e.code));
	} else {
		snprintf(e.msg, sizeof(e.msg),
			 "rank %d: rank %d has failed (%s) and ended the communicator: see its sentence",
			 c->rank, origin, sircl_strerror(e.code));
	}
	team_fail(c->team, &e);
}

static sircl_result_t read_config(struct sircl_comm *c, const sircl_config_t *given, uint64_t *start)
{
	sircl_config_t cfg = SIRCL_CONFIG_INIT;

	if (given) {
		if (given->size < sizeof(size_t) || given->size > 4096)
			return error_set(
				SIRCL_INVALID_ARGUMENT,
				"sircl_comm_create: config.size is %zu: start from SIRCL_CONFIG_INIT",
				given->size);
		memcpy(&cfg, given, given->size < sizeof(cfg) ? given->size : sizeof(cfg));
	}
	snprintf(c->name, sizeof(c->name), "%s", cfg.name ? cfg.name : "comm");
	*start = (cfg.start_timeout_ms ? cfg.start_timeout_ms
				       : (uint64_t)param_num(&c->ctx.params, PARAM_START_TIMEOUT)) *
		 MSEC;
	c->op_timeout =
		(cfg.op_timeout_ms ? cfg.op_timeout_ms : (uint64_t)param_num(&c->ctx.params, PARAM_TIMEOUT)) *
		MSEC;
	return SIRCL_SUCCESS;
}

static sircl_result_t make_team(struct sircl_comm *c)
{
	struct fabric *f = c->fabric;
	struct team_cfg cfg = { .name = c->name,
				.id = COMM_TEAM,
				.rank = c->rank,
				.n = c->n,
				.pos = f->pos,
				.shape = f->ring ? SHAPE_RING : SHAPE_LINE,
				.class = f->class,
				.op_timeout = c->op_timeout };
	struct team *team = NULL;
	struct tick t;
	sircl_result_t ret;

	if (c->n == 1)
		return SIRCL_SUCCESS;
	memcpy(cfg.rank_of, f->rank_of, sizeof(cfg.rank_of));
	for (int p = 0; p < c->n; p++)
		cfg.node_of[p] = (uint16_t)p;
	engine_lock(f->engine);
	t = ctx_tick(&c->ctx);
	ret = team_create(f->engine, &t, &cfg, &team);
	if (ret == SIRCL_SUCCESS)
		ret = op_create(team, &c->op);
	c->team = team; /* under the lock: on_notice reads it */
	if (team && c->has_early)
		on_notice(c, &t, &c->early);
	engine_unlock(f->engine);
	return ret;
}

static sircl_result_t destroy(struct sircl_comm *c, uint64_t goodbye)
{
	sircl_result_t ret;

	if (c->fabric && c->team) {
		struct tick t;

		engine_lock(c->fabric->engine);
		t = ctx_tick(&c->ctx);
		p2p_close_all(c, &t);
		if (c->op)
			op_destroy(c->op);
		team_destroy(c->team, &t);
		c->team = NULL;
		engine_unlock(c->fabric->engine);
	}
	ret = fabric_stop(c->fabric, goodbye);
	mem_free_all(c);
	ctx_close(&c->ctx);
	free(c->peer);
	c->magic = 0;
	free(c);
	return ret;
}

sircl_result_t sircl_comm_create(sircl_comm_t *comm, const sircl_config_t *config, int rank, int size,
				 const sircl_unique_id_t *id)
{
	struct sircl_comm *c;
	struct fabric_cfg f = { .rank = rank, .n = size, .id = id, .notice = on_notice };
	uint64_t start = 0;
	sircl_result_t ret;

	if (!comm)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_comm_create: comm is NULL");
	*comm = NULL;
	if (size < 1 || size > COLL_MAX_RANKS || rank < 0 || rank >= size)
		return error_set(
			SIRCL_INVALID_ARGUMENT,
			"sircl_comm_create: rank %d of %d is out of range: 1 to %d ranks, 0 <= rank < size",
			rank, size, COLL_MAX_RANKS);
	c = calloc(1, sizeof(*c));
	if (!c)
		return error_set(SIRCL_NO_MEMORY, "sircl_comm_create: no memory");
	c->rank = rank;
	c->n = size;
	ret = ctx_open(&c->ctx, rank, size);
	if (ret != SIRCL_SUCCESS) {
		free(c);
		return ret;
	}
	c->magic = COMM_MAGIC;
	c->peer = calloc((size_t)size, sizeof(*c->peer));
	if (!c->peer) {
		(void)error_set(SIRCL_NO_MEMORY, "sircl_comm_create: no memory");
		goto fail;
	}
	CHECK_GOTO(read_config(c, config, &start), fail);
	f.ctx = &c->ctx;
	f.user = c;
	f.limit = c->ctx.clock(c->ctx.clock_arg) + start;
	CHECK_GOTO(fabric_start(&f, &c->fabric), fail);
	c->pos = c->fabric->pos;
	CHECK_GOTO(make_team(c), fail);
	log_info(&c->ctx.log, LOG_INIT, "communicator \"%s\" is up: rank %d of %d, position %d of a %s",
		 c->name, rank, size, c->pos, c->fabric->ring ? "ring" : "line");
	*comm = c;
	return SIRCL_SUCCESS;
fail:;
	struct sircl_error e = *error_last();

	log_error(&c->ctx.log, "%s", e.msg);
	destroy(c, 0);
	return error_again(&e);
}

static void fill_links(const struct sircl_comm *c, sircl_info_t *i)
{
	const struct fabric *f = c->fabric;
	int lanes[LINK_SIDES] = { 0, 0 }, rank[LINK_SIDES] = { -1, -1 };

	for (int side = 0; side < LINK_SIDES; side++) {
		struct link_stats st;

		if (!f->link[side])
			continue;
		link_stats(f->link[side], &st);
		lanes[side] = st.lanes_up;
		rank[side] = f->rank_of[(c->pos + (side == LINK_NEXT ? 1 : c->n - 1)) % c->n];
		i->bytes_sent[side] = st.bytes_sent;
		i->bytes_received[side] = st.bytes_received;
		i->frames_replayed += st.frames_replayed;
		_Static_assert(sizeof(i->lane_bytes_sent[0]) == sizeof(st.lane_bytes_sent),
			       "LANES_MAX is in the public structure");
		memcpy(i->lane_bytes_sent[side], st.lane_bytes_sent, sizeof(st.lane_bytes_sent));
		i->memory_bytes += st.memory_bytes;
	}
	i->next_lanes = lanes[LINK_NEXT];
	i->prev_lanes = lanes[LINK_PREV];
	i->next_rank = rank[LINK_NEXT];
	i->prev_rank = rank[LINK_PREV];
}

sircl_result_t sircl_comm_query(sircl_comm_t comm, sircl_info_t *info)
{
	static const char *const names[CLASS_COUNT] = { "shm", "tcp", "verbs", "sim" };
	sircl_info_t i = { .size = sizeof(i) };
	struct chan_net_stats net;

	if (!comm || comm->magic != COMM_MAGIC)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_comm_query: not a communicator");
	if (!info || info->size < sizeof(size_t) || info->size > 4096)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "sircl_comm_query: info is NULL, or info.size is not sizeof(sircl_info_t)");
	i.size = info->size;
	i.rank = comm->rank;
	i.nranks = comm->n;
	i.position = comm->pos;
	i.ring = comm->fabric->ring;
	snprintf(i.transport, sizeof(i.transport), "%s", comm->n == 1 ? "none" : names[comm->fabric->class]);
	engine_lock(comm->fabric->engine);
	fill_links(comm, &i);
	chan_net_stats(comm->fabric->net, &net);
	i.memory_bytes += net.memory_bytes + engine_memory(comm->fabric->engine);
	i.operations = atomic_load_explicit(&comm->ops, memory_order_relaxed) +
		       (comm->team ? team_ops(comm->team) : 0);
	engine_unlock(comm->fabric->engine);
	memcpy(info, &i, info->size < sizeof(i) ? info->size : sizeof(i));
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_comm_async_error(sircl_comm_t comm, sircl_result_t *error)
{
	struct sircl_error e = { .code = SIRCL_SUCCESS };

	if (!comm || comm->magic != COMM_MAGIC || !error)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_comm_async_error: %s",
				 error ? "not a communicator" : "error is NULL");
	*error = comm_error(comm, &e);
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_comm_abort(sircl_comm_t comm)
{
	struct sircl_error e;
	struct tick t;

	if (!comm || comm->magic != COMM_MAGIC)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_comm_abort: not a communicator");
	if (!comm->team) {
		atomic_store_explicit(&comm->aborted, true, memory_order_relaxed);
		return SIRCL_SUCCESS;
	}
	e = abort_error(comm);
	engine_lock(comm->fabric->engine);
	t = ctx_tick(&comm->ctx);
	/* the team's channels are closed in a round of the driver, so behind the news why */
	team_fail_all(comm->team, &t, &e, comm->pos);
	engine_unlock(comm->fabric->engine);
	engine_kick(comm->fabric->engine);
	return SIRCL_SUCCESS;
}

static bool idle(void *arg)
{
	const struct sircl_comm *c = arg;
	struct sircl_error e;

	if (team_error(c->team, &e) != SIRCL_SUCCESS)
		return true;
	for (int side = 0; side < LINK_SIDES; side++)
		if (c->fabric->link[side] && !link_idle(c->fabric->link[side]))
			return false;
	return p2p_all_idle(c);
}

/* The limit has come: which neighbour still owes an acknowledgement. */
static sircl_result_t not_taken(struct sircl_comm *c)
{
	struct fabric *f = c->fabric;
	int next = c->pos;

	engine_lock(f->engine);
	if (f->link[LINK_PREV] && !link_idle(f->link[LINK_PREV]))
		next = (c->pos + c->n - 1) % c->n;
	if (f->link[LINK_NEXT] && !link_idle(f->link[LINK_NEXT]))
		next = (c->pos + 1) % c->n;
	engine_unlock(f->engine);
	return error_set(
		SIRCL_TIMEOUT,
		"rank %d: sircl_comm_finalize: rank %d has not taken everything that was sent to it within "
		"%llu ms: is that process stopped, or the cable bad?",
		c->rank, f->rank_of[next], (unsigned long long)(c->op_timeout / MSEC));
}

static bool met(void *arg)
{
	const struct sircl_comm *c = arg;
	struct sircl_error e;

	return team_error(c->team, &e) != SIRCL_SUCCESS || chan_net_met(c->fabric->net);
}

/* Every rank may be needed to pass on what others still send: all meet once more before anybody leaves. */
static sircl_result_t meet(sircl_comm_t c)
{
	uint8_t mine = 1, all[COLL_MAX_RANKS];
	struct op_args a = { .kind = COLL_ALL_GATHER,
			     .in = &mine,
			     .out = all,
			     .count = 1,
			     .type = SIRCL_UINT8,
			     .op = SIRCL_SUM,
			     .meeting = true };
	struct tick t;

	CHECK(op_prepare(c->op, &a));
	t = ctx_tick(&c->ctx);
	CHECK(engine_start(c->fabric->engine, &t, c->op));
	return engine_wait(c->fabric->engine, c->op);
}

static sircl_result_t finalize(sircl_comm_t c)
{
	struct sircl_error e;

	atomic_store_explicit(&c->finalized, true, memory_order_relaxed); /* see api_begin */
	if (!c->team)
		return SIRCL_SUCCESS;
	/* nobody leaves while a partner's first frame to it is still on its way: it could not be answered */
	if (engine_wait_until(c->fabric->engine, met, c, c->ctx.clock(c->ctx.clock_arg) + c->op_timeout) ==
	    SIRCL_TIMEOUT)
		return error_set(
			SIRCL_TIMEOUT,
			"rank %d: sircl_comm_finalize: the other end of a channel has not opened it within "
			"%llu ms",
			c->rank, (unsigned long long)(c->op_timeout / MSEC));
	CHECK(meet(c));
	if (engine_wait_until(c->fabric->engine, idle, c, c->ctx.clock(c->ctx.clock_arg) + c->op_timeout) ==
	    SIRCL_TIMEOUT)
		return not_taken(c);
	return team_error(c->team, &e) == SIRCL_SUCCESS ? SIRCL_SUCCESS : error_again(&e);
}

sircl_result_t sircl_comm_finalize(sircl_comm_t comm)
{
	CHECK(api_begin(comm, "sircl_comm_finalize", true));
	return api_end(comm, finalize(comm));
}

sircl_result_t sircl_comm_destroy(sircl_comm_t comm)
{
	struct sircl_error e = { .code = SIRCL_SUCCESS };
	sircl_result_t ret = SIRCL_SUCCESS;

	CHECK(api_begin(comm, "sircl_comm_destroy", false));
	if (!atomic_load_explicit(&comm->finalized, memory_order_relaxed)) /* see api_begin */
		ret = finalize(comm);
	if (ret != SIRCL_SUCCESS)
		e = *error_last();
	if (ret == SIRCL_SUCCESS)
		return destroy(comm, comm->op_timeout);
	destroy(comm, 0);
	return error_again(&e);
}
