/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the steps of a plan that a builder has made. */
#include <stdlib.h>
#include <string.h>
#include "coll/internal.h"

static bool in_scratch(const struct plan_span *x)
{
	return x->buf == PLAN_SCRATCH;
}

static bool reads(const struct plan_step *s, const struct plan_span *x)
{
	for (int i = 0; i < s->nsrc; i++)
		if (s->src[i].buf == x->buf && s->src[i].block == x->block)
			return true;
	return false;
}

void plan_mark_fusable(struct build *b)
{
	struct plan *p = b->plan;
	uint16_t *uses = calloc(p->nscratch + 1u, sizeof(*uses)); /* steps that read or write it */

	if (!uses) {
		b->err = error_set(SIRCL_NO_MEMORY, "no memory for building a plan");
		return;
	}
	for (int i = 0; i < p->nsteps; i++) {
		const struct plan_step *s = &p->step[i];

		if (s->op != PLAN_SEND && in_scratch(&s->dst))
			uses[s->dst.block]++;
		for (int k = 0; k < s->nsrc; k++)
			if (in_scratch(&s->src[k]))
				uses[s->src[k].block]++;
	}
	for (int i = 0; i + 1 < p->nsteps; i++) {
		struct plan_step *s = &p->step[i], *next = s + 1;

		if (s->op == PLAN_RECV && in_scratch(&s->dst) && uses[s->dst.block] == 2 &&
		    next->op == PLAN_REDUCE && reads(next, &s->dst))
			s->flags |= PLAN_FUSE;
	}
	free(uses);
}

void plan_count_held(const struct plan *p, uint16_t *held, uint16_t *wide)
{
	uint64_t seen[(UINT16_MAX + 1) / 64] = { 0 };

	*held = *wide = 0;
	for (int i = 0; i < p->nsteps; i++) {
		const struct plan_step *s = &p->step[i];
		uint16_t b = s->dst.block;

		if (s->op == PLAN_SEND || !in_scratch(&s->dst) || (s->flags & PLAN_FUSE) ||
		    (seen[b / 64] >> (b % 64) & 1))
			continue;
		seen[b / 64] |= 1ull << (b % 64);
		++*(s->flags & PLAN_ACC_OUT ? wide : held);
	}
}

/* Everything that a step names by number moves down by `by` steps. */
static void renumber(struct plan_step *s, unsigned by)
{
	for (int k = 0; k < 4; k++)
		if (s->after[k] != PLAN_NONE)
			s->after[k] = (uint16_t)(s->after[k] + by);
	for (int k = 0; k < 2; k++)
		if (s->released[k] != PLAN_NONE)
			s->released[k] = (uint16_t)(s->released[k] + by);
}

/*
 * Every block of IN that the plan uses is multiplied into scratch first, and whoever read IN reads that, once
 * it is there. What overwrites IN in place still waits for the same steps, and those come after the product.
 */
void plan_scale(struct build *b)
{
	struct build top = { .key = b->key, .room = 32 };
	struct plan *p = b->plan;
	int product[ROUTE_BLOCKS], n;

	top.plan = calloc(1, sizeof(*p) + top.room * sizeof(p->step[0]));
	if (!top.plan) {
		b->err = error_set(SIRCL_NO_MEMORY, "no memory for building a plan");
		return;
	}
	*top.plan = *p; /* all but the steps */
	top.plan->nsteps = 0;
	for (int i = 0; i < ROUTE_BLOCKS; i++)
		product[i] = -1;
	for (int i = 0; i < p->nsteps; i++) {
		for (int k = 0; k < p->step[i].nsrc; k++) {
			struct plan_span *x = &p->step[i].src[k], in = *x;

			if (x->buf != PLAN_IN || product[x->block] >= 0)
				continue;
			product[x->block] =
				build_reduce(&top, build_scratch(&top, in.as), &in, 1, PLAN_SCALE);
		}
	}
	n = top.plan->nsteps;
	for (int i = 0; i < p->nsteps && !top.err; i++) {
		struct plan_step s = p->step[i];
		int at = build_copy(&top, s.dst, s.src[0]);

		if (at < 0)
			break;
		renumber(&s, (unsigned)n);
		top.plan->step[at] = s;
		for (int k = 0; k < s.nsrc; k++) {
			if (s.src[k].buf != PLAN_IN)
				continue;
			top.plan->step[at].src[k] = top.plan->step[product[s.src[k].block]].dst;
			build_after(&top, at, product[s.src[k].block]);
		}
	}
	free(b->plan);
	*b = top;
}
