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

static bool reads(const struct plan_step *s, const struct plan_span *x)
{
	for (int i = 0; i < s->nsrc; i++)
		if (s->src[i].buf == x->buf && s->src[i].block == x->block)
			return true;
	return false;
}

/* Marks every RECV that the engine may reduce from the channel's window. */
static void mark_fusable(struct plan *p)
{
	for (int i = 0; i + 1 < p->nsteps; i++) {
		struct plan_step *s = &p->step[i];
		int readers = 0;

		if (s->op != PLAN_RECV || s->dst.buf != PLAN_SCRATCH)
			continue;
		for (int j = 0; j < p->nsteps; j++)
			readers += reads(&p->step[j], &s->dst);
		if (readers == 1 && p->step[i + 1].op == PLAN_REDUCE && reads(&p->step[i + 1], &s->dst))
			s->flags |= PLAN_FUSE;
	}
}

typedef void build_fn(struct build *);

static build_fn *const builders[COLL_KINDS][ALGO_COUNT] = {
	[COLL_ALL_REDUCE] = {
		[ALGO_TWO_MATCHINGS] = build_all_reduce_matchings,
		[ALGO_EXCHANGE] = build_all_reduce_exchange,
		[ALGO_RING] = build_all_reduce_ring,
		[ALGO_DOUBLING] = build_all_reduce_doubling,
	},
	[COLL_ALL_GATHER] = {
		[ALGO_EXCHANGE] = build_all_gather_exchange,
		[ALGO_RING] = build_all_gather_ring,
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
	default:
		return true;
	}
}

sircl_result_t plan_build(const struct plan_key *key, struct plan **out)
{
	struct build b = { .key = key, .room = 32 };

	*out = NULL;
	if (!coll_can(key->kind, key->algo, key->n, key->shape) || key->pos >= key->n)
		return error_set(SIRCL_INTERNAL_ERROR, "no plan for %s by %s, position %u of a %s of %u",
				 coll_kind_name(key->kind), coll_algo_name(key->algo), key->pos,
				 key->shape == SHAPE_RING ? "ring" : "line", key->n);
	b.plan = calloc(1, sizeof(*b.plan) + b.room * sizeof(b.plan->step[0]));
	if (!b.plan)
		return error_set(SIRCL_NO_MEMORY, "no memory for a plan");
	b.plan->n = key->n;
	b.plan->pos = key->pos;
	b.plan->rank = key->rank_of[key->pos];
	builders[key->kind][key->algo](&b);
	if (b.err) {
		free(b.plan);
		return b.err;
	}
	mark_fusable(b.plan);
	*out = b.plan;
	return SIRCL_SUCCESS;
}
