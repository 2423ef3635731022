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

sircl_result_t comm_config(sircl_comm_t c, const char *call, const sircl_config_t *given, uint64_t *start)
{
	sircl_config_t cfg = SIRCL_CONFIG_INIT;

	if (given) {
		if (given->size < sizeof(size_t) || given->size > 4096)
			return error_set(SIRCL_INVALID_ARGUMENT,
					 "%s: config.size is %zu: start from SIRCL_CONFIG_INIT", call,
					 given->size);
		memcpy(&cfg, given, given->size < sizeof(cfg) ? given->size : sizeof(cfg));
	}
	if (cfg.name)
		snprintf(c->name, sizeof(c->name), "%s", cfg.name);
	if (cfg.op_timeout_ms)
		c->op_timeout = cfg.op_timeout_ms * MSEC;
	if (cfg.start_timeout_ms)
		*start = cfg.start_timeout_ms * MSEC;
	return SIRCL_SUCCESS;
}

sircl_comm_t comm_new(struct home *h, int rank, int n)
{
	struct sircl_comm *c = calloc(1, sizeof(*c));

	if (c)
		c->peer = calloc((size_t)n, sizeof(*c->peer));
	if (!c || !c->peer) {
		free(c);
		(void)error_set(SIRCL_NO_MEMORY, "no memory for a communicator of %d ranks", n);
		return NULL;
	}
	c->magic = COMM_MAGIC;
	c->born = fork_generation();
	c->home = h;
	c->ctx = &h->ctx;
	c->fabric = h->fabric;
	c->rank = rank;
	c->n = n;
	atomic_init(&c->bytes, sizeof(*c) + (size_t)n * sizeof(*c->peer));
	return c;
}

void comm_free(sircl_comm_t c)
{
	request_free_all(c);
	free(c->premul);
	free(c->peer);
	c->magic = 0;
	free(c);
}

sircl_result_t comm_open_team(sircl_comm_t c)
{
	struct fabric *f = c->fabric;
	struct team_cfg cfg = { .name = c->name,
				.id = c->id,
				.rank = c->rank,
				.n = c->n,
				.pos = c->pos,
				.shape = c->ring ? SHAPE_RING : SHAPE_LINE,
				.class = f->class,
				.op_timeout = c->op_timeout };
	sircl_result_t ret = SIRCL_SUCCESS;
	struct tick t;

	memcpy(cfg.rank_of, c->rank_of, sizeof(cfg.rank_of));
	memcpy(cfg.node_of, c->node_of, sizeof(cfg.node_of));
	engine_lock(f->engine);
	t = ctx_tick(c->ctx);
	if (c->n > 1)
		ret = team_create(f->engine, &t, &cfg, &c->team);
	if (ret == SIRCL_SUCCESS && c->team)
		ret = op_create(c->team, &c->op);
	if (ret == SIRCL_SUCCESS)
		home_add(c->home, &t, c);
	engine_unlock(f->engine);
	return ret;
}

void comm_close(sircl_comm_t c)
{
	struct engine *e = c->fabric->engine;
	struct tick t;

	engine_lock(e);
	t = ctx_tick(c->ctx);
	for (sircl_comm_t *at = &c->home->comms; *at; at = &(*at)->next) {
		if (*at == c) {
			*at = c->next;
			break;
		}
	}
	p2p_close_all(c, &t);
	request_free_all(c);
	op_destroy(c->op);
	team_destroy(c->team, &t);
	c->op = NULL;
	c->team = NULL;
	mem_deregister_all(c, &t);
	engine_unlock(e);
}

/* NULL: an error is set. */
static struct home *home_new(int rank, int n)
{
	struct home *h = calloc(1, sizeof(*h));

	if (!h) {
		(void)error_set(SIRCL_NO_MEMORY, "sircl_comm_create: no memory");
		return NULL;
	}
	if (ctx_open(&h->ctx, rank, n) != SIRCL_SUCCESS) {
		free(h);
		return NULL;
	}
	atomic_init(&h->refs, 1);
	atomic_init(&h->next_id, HOME_TEAM + 1);
	return h;
}

/* The communicator of all ranks lies along the cables as the fabric does. */
static void place(struct sircl_comm *c)
{
	const struct fabric *f = c->fabric;

	c->id = COMM_TEAM;
	c->pos = f->pos;
	c->ring = f->ring;
	memcpy(c->rank_of, f->rank_of, sizeof(c->rank_of));
	for (int p = 0; p < c->n; p++) {
		c->node_of[p] = (uint16_t)p;
		c->pos_of[c->rank_of[p]] = (uint16_t)p;
	}
}

/* A home's first communicator is there before its rank says that it is: then all others may use it, and end.
 */
static sircl_result_t ready(void *user, struct fabric *f)
{
	struct home *h = user;
	struct sircl_comm *c = h->first;

	engine_lock(f->engine); /* news may come already */
	c->fabric = h->fabric = f;
	engine_unlock(f->engine);
	engine_also(f->engine, home_round, h);
	place(c);
	return comm_open_team(c);
}

static sircl_result_t start(struct sircl_comm *c, const sircl_config_t *config, const sircl_unique_id_t *id)
{
	struct home *h = c->home;
	struct fabric_cfg f = { .ctx = &h->ctx,
				.rank = c->rank,
				.n = c->n,
				.id = id,
				.notice = home_notice,
				.ready = ready,
				.user = h };
	uint64_t limit = (uint64_t)param_num(&h->ctx.params, PARAM_START_TIMEOUT) * MSEC;

	c->op_timeout = (uint64_t)param_num(&h->ctx.params, PARAM_TIMEOUT) * MSEC;
	snprintf(c->name, sizeof(c->name), "comm");
	CHECK(comm_config(c, "sircl_comm_create", config, &limit));
	memcpy(h->name, c->name, sizeof(h->name));
	h->op_timeout = c->op_timeout;
	f.limit = h->ctx.clock(h->ctx.clock_arg) + limit;
	h->first = c;
	CHECK(fabric_start(&f));
	log_info(&h->ctx.log, LOG_INIT, "communicator \"%s\" is up: rank %d of %d, position %d of a %s",
		 c->name, c->rank, c->n, c->pos, c->ring ? "ring" : "line");
	return SIRCL_SUCCESS;
}

static sircl_result_t start_failed(struct home *h, sircl_comm_t c)
{
	struct sircl_error e = *error_last();

	log_error(&h->ctx.log, "%s", e.msg);
	if (c) {
		if (h->fabric)
			comm_close(c);
		comm_free(c);
	}
	home_stop(h, false, 0);
	return error_again(&e);
}

sircl_result_t sircl_comm_create(sircl_comm_t *comm, const sircl_config_t *config, int rank, int size,
				 const sircl_unique_id_t *id)
{
	sircl_comm_t c;
	struct home *h;

	if (!comm)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_comm_create: comm is NULL");
	*comm = NULL;
	if (group_open())
		return error_set(SIRCL_INVALID_USAGE,
				 "sircl_comm_create: not inside a group: call sircl_group_end first");
	if (size < 1 || size > COLL_MAX_RANKS || rank < 0 || rank >= size)
		return error_set(
			SIRCL_INVALID_ARGUMENT,
			"sircl_comm_create: rank %d of %d is out of range: 1 to %d ranks, 0 <= rank < size",
			rank, size, COLL_MAX_RANKS);
	fork_watch();
	h = home_new(rank, size);
	if (!h)
		return error_last()->code;
	c = comm_new(h, rank, size);
	if (!c || start(c, config, id) != SIRCL_SUCCESS)
		return start_failed(h, c);
	*comm = c;
	return SIRCL_SUCCESS;
}

static int rank_beside(const struct sircl_comm *c, int step)
{
	int pos = c->pos + step;

	if (c->n == 1 || (!c->ring && (pos < 0 || pos >= c->n)))
		return -1;
	return c->rank_of[(pos + c->n) % c->n];
}

/* The cables are those of the machine: what all communicators of the home send. */
static void fill_links(const struct sircl_comm *c, sircl_info_t *i)
{
	const struct fabric *f = c->fabric;
	int lanes[LINK_SIDES] = { 0, 0 };

	for (int side = 0; side < LINK_SIDES; side++) {
		struct link_stats st;

		if (!f->link[side])
			continue;
		link_stats(f->link[side], &st);
		lanes[side] = st.lanes_up;
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
	i->next_rank = rank_beside(c, 1);
	i->prev_rank = rank_beside(c, -1);
}

/* Links and engine are counted with the communicator that made them; a split has its own part only. Engine
 * locked. */
static void fill_memory(const struct sircl_comm *c, sircl_info_t *i)
{
	struct chan_net_stats net;

	chan_net_stats(c->fabric->net, &net);
	if (c->id == COMM_TEAM)
		i->memory_bytes += net.memory_bytes + engine_memory(c->fabric->engine);
	else
		i->memory_bytes = p2p_memory(c) + (c->team ? team_memory(c->team) : 0);
	i->memory_bytes += atomic_load_explicit(&c->bytes, memory_order_relaxed);
}

sircl_result_t sircl_comm_query(sircl_comm_t comm, sircl_info_t *info)
{
	static const char *const names[CLASS_COUNT] = { "shm", "tcp", "verbs", "sim" };
	sircl_info_t i = { .size = sizeof(i) };

	CHECK(api_look(comm, "sircl_comm_query"));
	if (!info || info->size < sizeof(size_t) || info->size > 4096)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "sircl_comm_query: info is NULL, or info.size is not sizeof(sircl_info_t)");
	i.size = info->size;
	i.rank = comm->rank;
	i.nranks = comm->n;
	i.position = comm->pos;
	i.ring = comm->ring;
	snprintf(i.transport, sizeof(i.transport), "%s", comm->n == 1 ? "none" : names[comm->fabric->class]);
	engine_lock(comm->fabric->engine);
	fill_links(comm, &i);
	fill_memory(comm, &i);
	i.operations = atomic_load_explicit(&comm->ops, memory_order_relaxed) +
		       (comm->team ? team_ops(comm->team) : 0);
	engine_unlock(comm->fabric->engine);
	memcpy(info, &i, info->size < sizeof(i) ? info->size : sizeof(i));
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_comm_async_error(sircl_comm_t comm, sircl_result_t *error)
{
	CHECK(api_look(comm, "sircl_comm_async_error"));
	if (!error)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_comm_async_error: error is NULL");
	*error = comm_error(comm, NULL);
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_comm_abort(sircl_comm_t comm)
{
	struct sircl_error e;
	struct tick t;

	CHECK(api_look(comm, "sircl_comm_abort"));
	e = abort_error(comm);
	engine_lock(comm->fabric->engine);
	t = ctx_tick(comm->ctx);
	/* the team's channels are closed in a round of the driver, so behind the news why */
	comm_fail(comm, &t, &e, true, comm->fabric->pos);
	engine_unlock(comm->fabric->engine);
	engine_kick(comm->fabric->engine);
	return SIRCL_SUCCESS;
}

/* No split has been made, so this is the last communicator of its home on every rank. */
static bool alone(const struct sircl_comm *c)
{
	return c->id == COMM_TEAM && !c->home->team;
}

static bool idle(void *arg)
{
	const struct sircl_comm *c = arg;

	if (team_error(c->team, NULL) != SIRCL_SUCCESS)
		return true;
	/* other communicators may keep the links busy for ever */
	for (int side = 0; side < LINK_SIDES && alone(c); side++)
		if (c->fabric->link[side] && !link_idle(c->fabric->link[side]))
			return false;
	return p2p_all_idle(c);
}

/* The limit has come: which neighbour still owes an acknowledgement. */
static sircl_result_t not_taken(struct sircl_comm *c)
{
	struct fabric *f = c->fabric;
	int next = f->pos;

	engine_lock(f->engine);
	if (f->link[LINK_PREV] && !link_idle(f->link[LINK_PREV]))
		next = (f->pos + f->n - 1) % f->n;
	if (f->link[LINK_NEXT] && !link_idle(f->link[LINK_NEXT]))
		next = (f->pos + 1) % f->n;
	engine_unlock(f->engine);
	return error_set(SIRCL_TIMEOUT,
			 "rank %d: sircl_comm_finalize: rank %d of \"%s\" has not taken everything that was "
			 "sent to it "
			 "within %llu ms: is that process stopped, or the cable bad?",
			 c->rank, f->rank_of[next], c->home->name,
			 (unsigned long long)(c->op_timeout / MSEC));
}

static bool met(void *arg)
{
	const struct sircl_comm *c = arg;

	return team_error(c->team, NULL) != SIRCL_SUCCESS ||
	       (alone(c) ? chan_net_met(c->fabric->net) : p2p_all_met(c));
}

/* Every rank may be needed to pass on what others still send: all meet once more before anybody leaves. */
static sircl_result_t finalize(sircl_comm_t c)
{
	uint8_t mine = 1, all[COLL_MAX_RANKS];
	struct sircl_error e;

	if (c->unfinished)
		return error_set(SIRCL_INVALID_USAGE,
				 "rank %d: communicator \"%s\" has %zu requests that were not waited for: "
				 "sircl_wait or sircl_test them to their end first",
				 c->rank, c->name, c->unfinished);
	atomic_store_explicit(&c->finalized, true, memory_order_relaxed); /* see api_begin */
	if (!c->team)
		return SIRCL_SUCCESS;
	/* nobody leaves while a partner's first frame to it is still on its way: it could not be answered */
	if (engine_wait_until(c->fabric->engine, met, c, c->ctx->clock(c->ctx->clock_arg) + c->op_timeout) ==
	    SIRCL_TIMEOUT)
		return error_set(
			SIRCL_TIMEOUT,
			"rank %d: sircl_comm_finalize: the other end of a channel has not opened it within "
			"%llu ms",
			c->rank, (unsigned long long)(c->op_timeout / MSEC));
	CHECK(comm_meet(c->home, c->op, &mine, all, 1));
	if (engine_wait_until(c->fabric->engine, idle, c, c->ctx->clock(c->ctx->clock_arg) + c->op_timeout) ==
	    SIRCL_TIMEOUT)
		return not_taken(c);
	return team_error(c->team, &e) == SIRCL_SUCCESS ? SIRCL_SUCCESS : error_again(&e);
}

sircl_result_t sircl_comm_finalize(sircl_comm_t comm)
{
	CHECK(api_begin(comm, "sircl_comm_finalize", API_USABLE));
	return api_end(comm, finalize(comm));
}

/* In the child of a fork: the cables are the parent's, and so is whatever belongs to them. */
static sircl_result_t destroy_in_child(sircl_comm_t c)
{
	mem_free_all(c);
	comm_free(c);
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_comm_destroy(sircl_comm_t comm)
{
	struct sircl_error e = { .code = SIRCL_SUCCESS };
	sircl_result_t ret = SIRCL_SUCCESS, last;
	struct home *h = NULL;
	uint64_t goodbye;
	bool split;

	if (!comm || comm->magic != COMM_MAGIC)
		return api_look(comm, "sircl_comm_destroy");
	if (comm->born != fork_generation())
		return destroy_in_child(comm);
	CHECK(api_begin(comm, "sircl_comm_destroy", API_ANY));
	if (comm->unfinished)
		return api_end(comm, finalize(comm));
	if (!atomic_load_explicit(&comm->finalized, memory_order_relaxed)) /* see api_begin */
		ret = finalize(comm);
	if (ret != SIRCL_SUCCESS)
		e = *error_last();
	h = comm->home;
	split = h->team != NULL;
	goodbye = ret == SIRCL_SUCCESS || split ? comm->op_timeout : 0;
	comm_close(comm);
	mem_free_all(comm);
	comm_free(comm);
	/* release: what this communicator did in the home; acquire: what the others did, for the last */
	if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) == 1) {
		last = home_stop(h, true, goodbye);
		if (ret == SIRCL_SUCCESS)
			return last;
	}
	return ret == SIRCL_SUCCESS ? SIRCL_SUCCESS : error_again(&e);
}
