/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building plans: the growing list of steps, what is common to all builders, and the table of builders. A
 * plan's steps per channel are in the order in which its messages travel.
 */
#include <stdlib.h>
#include <string.h>
#include "coll/internal.h"

struct plan_span build_in(int block)
{
	return (struct plan_span){ PLAN_IN, (uint16_t)block, (uint16_t)block };
}

struct plan_span build_out(int block)
{
	return (struct plan_span){ PLAN_OUT, (uint16_t)block, (uint16_t)block };
}

struct plan_span build_scratch(struct build *b, int as)
{
	return (struct plan_span){ PLAN_SCRATCH, b->plan ? b->plan->nscratch++ : 0, (uint16_t)as };
}

static struct plan_step *step_new(struct build *b, enum plan_op op)
{
	struct plan_step *s;

	if (b->err)
		return NULL;
	if (b->plan->nsteps == b->room) {
		unsigned room = 2 * b->room;
		struct plan *p = realloc(b->plan, sizeof(*p) + room * sizeof(p->step[0]));

		if (!p) {
			b->err = error_set(SIRCL_NO_MEMORY, "no memory for a plan of %u steps", room);
			return NULL;
		}
		b->plan = p;
		b->room = room;
	}
	sircl_assert(b->plan->nsteps < PLAN_NONE); /* 64 ranks come to a few thousand */
	s = &b->plan->step[b->plan->nsteps++];
	memset(s, 0, sizeof(*s));
	s->op = (uint8_t)op;
	for (int i = 0; i < 4; i++)
		s->after[i] = PLAN_NONE;
	for (int i = 0; i < 2; i++)
		s->released[i] = PLAN_NONE;
	return s;
}

static int step_number(const struct build *b, const struct plan_step *s)
{
	return s ? (int)(s - b->plan->step) : -1;
}

int build_send(struct build *b, enum plan_chan chan, struct plan_span src)
{
	struct plan_step *s = step_new(b, PLAN_SEND);

	if (s) {
		s->chan = (uint8_t)chan;
		s->nsrc = 1;
		s->src[0] = src;
	}
	return step_number(b, s);
}

int build_recv(struct build *b, enum plan_chan chan, struct plan_span dst)
{
	struct plan_step *s = step_new(b, PLAN_RECV);

	if (s) {
		s->chan = (uint8_t)chan;
		s->dst = dst;
	}
	return step_number(b, s);
}

int build_reduce(struct build *b, struct plan_span dst, const struct plan_span src[], int nsrc,
		 unsigned flags)
{
	struct plan_step *s = step_new(b, PLAN_REDUCE);

	if (s) {
		s->dst = dst;
		s->nsrc = (uint8_t)nsrc;
		s->flags = (uint8_t)flags;
		for (int i = 0; i < nsrc; i++)
			s->src[i] = src[i];
	}
	return step_number(b, s);
}

int build_copy(struct build *b, struct plan_span dst, struct plan_span src)
{
	struct plan_step *s = step_new(b, PLAN_COPY);

	if (s) {
		s->dst = dst;
		s->nsrc = 1;
		s->src[0] = src;
	}
	return step_number(b, s);
}

static void add(uint16_t *list, int room, int x)
{
	int i = 0;

	while (i < room && list[i] != PLAN_NONE)
		i++;
	sircl_assert(i < room); /* no builder has more dependencies */
	list[i] = (uint16_t)x;
}

void build_after(struct build *b, int step, int other)
{
	if (!b->err && other >= 0)
		add(b->plan->step[step].after, 4, other);
}

void build_released(struct build *b, int step, int send)
{
	if (!b->err && send >= 0)
		add(b->plan->step[step].released, 2, send);
}

typedef void build_fn(struct build *);

static build_fn *const builders[COLL_KINDS][ALGO_COUNT] = {
	[COLL_ALL_REDUCE] = {
		[ALGO_TWO_MATCHINGS] = build_all_reduce_matchings,
		[ALGO_EXCHANGE] = build_all_reduce_exchange,
		[ALGO_RING] = build_all_reduce_ring,
		[ALGO_DOUBLING] = build_all_reduce_doubling,
		[ALGO_TWO_SHOT] = build_all_reduce_two_shot,
		[ALGO_PIPELINE] = build_all_reduce_pipeline,
	},
	[COLL_ALL_GATHER] = {
		[ALGO_EXCHANGE] = build_all_gather_exchange,
		[ALGO_RING] = build_all_gather_ring,
	},
	[COLL_REDUCE_SCATTER] = {
		[ALGO_EXCHANGE] = build_reduce_scatter_exchange,
		[ALGO_RING] = build_reduce_scatter_ring,
		[ALGO_PIPELINE] = build_reduce_scatter_pipeline,
	},
	[COLL_BROADCAST] = {
		[ALGO_EXCHANGE] = build_broadcast_exchange,
		[ALGO_PIPELINE] = build_broadcast_pipeline,
	},
	[COLL_REDUCE] = {
		[ALGO_EXCHANGE] = build_reduce_exchange,
		[ALGO_PIPELINE] = build_reduce_pipeline,
	},
	[COLL_ALL_TO_ALL] = { [ALGO_EXCHANGE] = build_all_to_all_exchange },
	[COLL_GATHER] = { [ALGO_EXCHANGE] = build_gather_exchange },
	[COLL_SCATTER] = { [ALGO_EXCHANGE] = build_scatter_exchange },
	[COLL_BARRIER] = {
		[ALGO_EXCHANGE] = build_all_reduce_exchange,
		[ALGO_DOUBLING] = build_all_reduce_doubling,
	},
};

bool coll_can(enum coll_kind kind, enum coll_algo algo, int n, enum coll_shape shape)
{
	if ((unsigned)kind >= COLL_KINDS || (unsigned)algo >= ALGO_COUNT || !builders[kind][algo] || n < 1 ||
	    n > COLL_MAX_RANKS)
		return false;
	switch (algo) {
	case ALGO_TWO_MATCHINGS:
	case ALGO_DOUBLING:
		return n == 2 || (n == 4 && shape == SHAPE_RING);
	case ALGO_RING:
		return n >= 2 && shape == SHAPE_RING;
	case ALGO_PIPELINE:
		return n >= 2 && (coll_has_root(kind) || shape == SHAPE_LINE);
	default:
		return true;
	}
}

/* One rank alone: whatever the kind, the result is its own data. */
static void build_alone(struct build *b)
{
	static const char *const name[COLL_KINDS] = {
		"all_reduce/copy", "all_gather/copy", "reduce_scatter/copy", "broadcast/copy", "reduce/copy",
		"all_to_all/copy", "gather/copy",     "scatter/copy",        "barrier/copy",
	};
	enum coll_kind kind = b->key->kind;

	b->plan->name = name[kind];
	b->plan->order = "no sum";
	b->plan->nblocks = 1;
	b->plan->window = 1;
	b->plan->depth = 1;
	if (kind == COLL_ALL_GATHER || kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_TO_ALL ||
	    kind == COLL_GATHER || kind == COLL_SCATTER)
		b->plan->parts = 1;
	b->plan->in_part = kind == COLL_ALL_GATHER || kind == COLL_GATHER;
	b->plan->out_part = kind == COLL_REDUCE_SCATTER || kind == COLL_SCATTER;
	build_copy(b, build_out(0), build_in(0));
}

/* The plan of one position, all but what depends on the other positions; NULL: error_last() says why. */
static struct plan *build_one(const struct plan_key *key)
{
	build_fn *const builder = key->n == 1 ? build_alone : builders[key->kind][key->algo];
	struct build b = { .key = key, .room = 32 };

	b.plan = calloc(1, sizeof(*b.plan) + b.room * sizeof(b.plan->step[0]));
	if (!b.plan || !builder) {
		free(b.plan);
		error_set(SIRCL_NO_MEMORY, "no memory for a plan");
		return NULL;
	}
	b.plan->n = key->n;
	b.plan->pos = key->pos;
	b.plan->rank = key->rank_of[key->pos];
	builder(&b);
	if (!b.err && key->scaled && coll_reduces(key->kind))
		plan_scale(&b);
	if (!b.err)
		plan_mark_fusable(&b);
	if (key->kind == COLL_BARRIER && key->n > 1)
		b.plan->name = key->algo == ALGO_DOUBLING ? "barrier/doubling" : "barrier/exchange";
	if (b.err) {
		free(b.plan);
		return NULL;
	}
	return b.plan;
}

sircl_result_t plan_build(const struct plan_key *key, struct plan **out)
{
	struct plan_key k = *key;
	struct plan *mine, *other;
	uint16_t held, wide;

	*out = NULL;
	if (!coll_can(key->kind, key->algo, key->n, key->shape) || key->pos >= key->n ||
	    (coll_has_root(key->kind) && key->root >= key->n))
		return error_set(SIRCL_INTERNAL_ERROR, "no plan for %s by %s, position %u of a %s of %u",
				 coll_kind_name(key->kind), coll_algo_name(key->algo), key->pos,
				 key->shape == SHAPE_RING ? "ring" : "line", key->n);
	mine = build_one(key);
	if (!mine)
		return error_last()->code;
	plan_count_held(mine, &mine->held, &mine->held_wide);
	/* What the neediest position holds decides the length of a round for all. */
	for (k.pos = 0; k.pos < k.n; k.pos++) {
		if (k.pos == key->pos)
			continue;
		other = build_one(&k);
		if (!other) {
			free(mine);
			return error_last()->code;
		}
		plan_count_held(other, &held, &wide);
		mine->held = held > mine->held ? held : mine->held;
		mine->held_wide = wide > mine->held_wide ? wide : mine->held_wide;
		free(other);
	}
	*out = mine;
	return SIRCL_SUCCESS;
}
