/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sircl_comm_split: every rank tells colour and key, and finds by itself who its new communicator is and how
 * it lies along the cables. The id of the new teams is given by rank 0 of the parent out of its own numbers,
 * so that no two teams that share a rank ever have the same; the colours of one split, which share none, may.
 */
#include <stdio.h>
#include <string.h>
#include "api/internal.h"
#include "api/split_shape.h"

struct told {
	int32_t colour, key;
	uint32_t id; /* of rank 0: for the new teams; 0: it has none left */
};

static uint32_t take_id(struct home *h)
{
	uint32_t n = atomic_fetch_add_explicit(&h->next_id, 1, memory_order_relaxed);
	uint32_t owner = (uint32_t)h->fabric->pos << TEAM_OWNER_SHIFT;

	_Static_assert((COLL_MAX_RANKS << TEAM_OWNER_SHIFT) == TEAM_ID_LIMIT, "owner and number fit");
	if (n < 1u << TEAM_OWNER_SHIFT)
		return owner | n;
	atomic_store_explicit(&h->next_id, 1u << TEAM_OWNER_SHIFT, memory_order_relaxed);
	return 0;
}

/* The collective over the parent. A call of the user's own never matches it. */
static sircl_result_t exchange(sircl_comm_t c, const struct told *mine, struct told *all)
{
	struct op_args a = { .kind = COLL_ALL_GATHER,
			     .in = mine,
			     .out = all,
			     .count = sizeof(*mine),
			     .type = SIRCL_UINT8,
			     .op = SIRCL_SUM,
			     .meeting = true };
	struct sircl_request *r;
	sircl_result_t ret;

	if (!c->team) {
		all[0] = *mine;
		return SIRCL_SUCCESS;
	}
	r = request_coll(c);
	if (!r)
		return error_last()->code;
	ret = op_prepare(r->op, &a);
	if (ret == SIRCL_SUCCESS) {
		request_start(r);
		wait_requests(r);
		ret = request_result(r);
	}
	request_release(r);
	return ret;
}

/* With the first split comes the team over which all ranks meet when they have no communicator left. */
static sircl_result_t make_home_team(sircl_comm_t c)
{
	struct home *h = c->home;
	struct fabric *f = h->fabric;
	struct team_cfg cfg = { .name = h->name,
				.id = HOME_TEAM,
				.rank = f->rank,
				.n = f->n,
				.pos = f->pos,
				.shape = f->ring ? SHAPE_RING : SHAPE_LINE,
				.class = f->class,
				.op_timeout = h->op_timeout };
	sircl_result_t ret = SIRCL_SUCCESS;
	struct tick t;

	if (f->n == 1 || h->team)
		return SIRCL_SUCCESS;
	memcpy(cfg.rank_of, f->rank_of, sizeof(cfg.rank_of));
	for (int p = 0; p < f->n; p++)
		cfg.node_of[p] = (uint16_t)p;
	engine_lock(f->engine);
	t = ctx_tick(&h->ctx);
	ret = team_create(f->engine, &t, &cfg, &h->team);
	if (ret == SIRCL_SUCCESS) {
		ret = op_create(h->team, &h->op);
		if (ret != SIRCL_SUCCESS) {
			team_destroy(h->team, &t);
			h->team = NULL; /* its absence is what says that there is no meeting */
		}
	}
	engine_unlock(f->engine);
	return ret;
}

static void place(sircl_comm_t child, const struct split_shape *s)
{
	memcpy(child->rank_of, s->rank_of, sizeof(child->rank_of));
	memcpy(child->node_of, s->node_of, sizeof(child->node_of));
	child->ring = s->ring;
	for (int p = 0; p < s->n; p++) {
		child->pos_of[s->rank_of[p]] = (uint16_t)p;
		if (s->rank_of[p] == child->rank)
			child->pos = p;
	}
}

/* NULL: an error is set. */
static sircl_comm_t make_child(sircl_comm_t c, const struct split_shape *s, uint32_t id,
			       const sircl_config_t *config)
{
	sircl_comm_t child;
	uint64_t unused;
	sircl_result_t ret;
	int rank = 0;

	while (s->parent_of[rank] != c->rank)
		rank++;
	child = comm_new(c->home, rank, s->n);
	if (!child)
		return NULL;
	memcpy(child->name, c->name, sizeof(child->name));
	child->op_timeout = c->op_timeout;
	child->id = id;
	place(child, s);
	ret = comm_config(child, "sircl_comm_split", config, &unused);
	if (ret == SIRCL_SUCCESS)
		ret = comm_open_team(child);
	if (ret != SIRCL_SUCCESS) {
		struct sircl_error e = *error_last();

		comm_close(child);
		comm_free(child);
		(void)error_again(&e);
		return NULL;
	}
	atomic_fetch_add_explicit(&c->home->refs, 1, memory_order_relaxed); /* the parent holds one */
	return child;
}

/* This rank cannot take part any more: the parent ends everywhere, and those who have the child hear of it as
 * well. */
static sircl_result_t give_up(sircl_comm_t c, uint32_t id)
{
	struct sircl_error e = *error_last();
	struct tick t;

	engine_lock(c->fabric->engine);
	t = ctx_tick(c->ctx);
	if (c->team)
		chan_net_notify(c->fabric->net, &t, NOTICE_ABORT, (uint16_t)c->fabric->pos, e.code, id);
	comm_fail(c, &t, &e, true, c->fabric->pos);
	engine_unlock(c->fabric->engine);
	return error_again(&e);
}

static sircl_result_t split(sircl_comm_t c, int colour, int key, const sircl_config_t *config,
			    sircl_comm_t *child)
{
	struct told mine = { .colour = colour, .key = key }, all[COLL_MAX_RANKS] = { { 0 } };
	struct split_member member[COLL_MAX_RANKS];
	uint16_t node[COLL_MAX_RANKS];
	struct split_shape s;

	if (c->rank == 0)
		mine.id = take_id(c->home);
	CHECK(exchange(c, &mine, all));
	if (!all[0].id)
		return error_set(SIRCL_UNSUPPORTED,
				 "sircl_comm_split: rank 0 of communicator \"%s\" has been rank 0 of %u "
				 "splits, and no more are possible: create a communicator anew",
				 c->name, 1u << TEAM_OWNER_SHIFT);
	if (make_home_team(c) != SIRCL_SUCCESS)
		return give_up(c, all[0].id);
	if (colour == SIRCL_NO_COLOUR)
		return SIRCL_SUCCESS;
	for (int r = 0; r < c->n; r++) {
		member[r] = (struct split_member){ .colour = all[r].colour, .key = all[r].key };
		node[r] = c->node_of[c->pos_of[r]];
	}
	split_shape(member, node, c->n, colour, c->fabric->n, c->fabric->ring, &s);
	*child = make_child(c, &s, all[0].id, config);
	if (!*child)
		return give_up(c, all[0].id);
	log_info(&c->ctx->log, LOG_INIT,
		 "communicator \"%s\" is split from \"%s\": rank %d of %d, position %d of a %s",
		 (*child)->name, c->name, (*child)->rank, s.n, (*child)->pos, s.ring ? "ring" : "line");
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_comm_split(sircl_comm_t comm, int colour, int key, const sircl_config_t *config,
				sircl_comm_t *child)
{
	if (!child)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_comm_split: child is NULL");
	*child = NULL;
	CHECK(api_begin(comm, "sircl_comm_split", API_USABLE));
	if (colour < SIRCL_NO_COLOUR)
		return api_end(comm, error_set(SIRCL_INVALID_ARGUMENT,
					       "sircl_comm_split: colour %d is not allowed: 0 and more, or "
					       "SIRCL_NO_COLOUR",
					       colour));
	if (config && (config->size < sizeof(size_t) || config->size > 4096))
		return api_end(comm,
			       error_set(SIRCL_INVALID_ARGUMENT,
					 "sircl_comm_split: config.size is %zu: start from SIRCL_CONFIG_INIT",
					 config->size));
	return api_end_data(comm, split(comm, colour, key, config, child));
}
