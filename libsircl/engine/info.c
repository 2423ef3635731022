/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the executor wants to know about a plan besides its steps, computed once per plan: which messages a
 * channel carries in which order, which sums become possible when a step moves, which RECVs can be summed
 * straight from the channel's window, and which scratch blocks need memory at all.
 */
#include "engine/internal.h"
#include <stdlib.h>
#include <string.h>

static bool same_span(const struct plan_span *a, const struct plan_span *b)
{
	return a->buf == b->buf && a->block == b->block;
}

static bool in_scratch(const struct plan_span *s)
{
	return s->buf == PLAN_SCRATCH;
}

static bool is_sum(const struct plan_step *s)
{
	return s->op == PLAN_REDUCE || s->op == PLAN_COPY;
}

/* Which source of step k + 1 the RECV k can be summed from, or -1. */
static int fusable(const struct plan *p, int k)
{
	const struct plan_step *r = &p->step[k], *s = r + 1;
	int which = -1;

	if (r->op != PLAN_RECV || !(r->flags & PLAN_FUSE) || !in_scratch(&r->dst) || k + 1 >= p->nsteps ||
	    s->op != PLAN_REDUCE || same_span(&s->dst, &r->dst))
		return -1;
	for (int i = 0; i < s->nsrc; i++) {
		if (!same_span(&s->src[i], &r->dst))
			continue;
		if (which >= 0 || (i == 0 && (s->flags & PLAN_ACC_IN)))
			return -1;
		which = i;
	}
	return which;
}

/* A fused RECV leaves its scratch block empty, so nobody else may look at that block. */
static void find_fused(struct plan_info *in)
{
	const struct plan *p = in->plan;

	for (int k = 0; k < p->nsteps; k++)
		in->fused[k] = (int8_t)fusable(p, k);
	for (int k = 0; k < p->nsteps; k++) {
		const struct plan_step *s = &p->step[k];

		if (s->op != PLAN_SEND && in_scratch(&s->dst) && in->fused[k] < 0)
			in->stored[s->dst.block] = true;
		for (int i = 0; i < nsources(s); i++)
			if (in_scratch(&s->src[i]) && (k == 0 || in->fused[k - 1] != i))
				in->stored[s->src[i].block] = true;
		if (s->op == PLAN_REDUCE && (s->flags & PLAN_ACC_OUT) && in_scratch(&s->dst))
			in->wide[s->dst.block] = true;
	}
	for (int k = 0; k < p->nsteps; k++) {
		if (in->fused[k] >= 0 && in->stored[p->step[k].dst.block])
			in->fused[k] = -1;
		if (in->fused[k] >= 0)
			in->fused_reduce[k + 1] = true;
	}
}

static void collect_waits(struct plan_info *in, uint16_t k)
{
	const struct plan_step *s = &in->plan->step[k];
	struct plan_waits *w = &in->waits[k];

	for (int i = 0; i < 4; i++)
		if (s->after[i] != PLAN_NONE && !(in->fused_reduce[k] && s->after[i] + 1 == k))
			w->step[w->n++] = s->after[i];
	for (int i = 0; i < 2; i++)
		if (s->released[i] != PLAN_NONE)
			w->step[w->n++] = s->released[i];
}

/* Calls for every (step, scratch block with memory) that the step touches. */
static void accessors(const struct plan_info *in, void (*found)(void *, uint16_t block, uint16_t step),
		      void *arg)
{
	for (uint16_t k = 0; k < in->plan->nsteps; k++) {
		const struct plan_step *s = &in->plan->step[k];

		if (s->op != PLAN_SEND && in_scratch(&s->dst) && in->stored[s->dst.block])
			found(arg, s->dst.block, k);
		for (int i = 0; i < nsources(s); i++)
			if (in_scratch(&s->src[i]) && in->stored[s->src[i].block])
				found(arg, s->src[i].block, k);
	}
}

/* Calls for every (step that moves, sum that may become ready). Duplicates are harmless. */
static void dependents(const struct plan_info *in, void (*found)(void *, uint16_t step, uint16_t sum),
		       void *arg)
{
	for (uint16_t k = 0; k < in->plan->nsteps; k++) {
		const struct plan_step *s = &in->plan->step[k];

		if (!is_sum(s) || in->fused_reduce[k])
			continue;
		for (int i = 0; i < 4; i++)
			if (s->after[i] != PLAN_NONE)
				found(arg, s->after[i], k);
		for (int i = 0; i < 2; i++)
			if (s->released[i] != PLAN_NONE)
				found(arg, s->released[i], k);
		if (!in_scratch(&s->dst) || !in->stored[s->dst.block])
			continue;
		for (uint32_t i = in->acc_at[s->dst.block]; i < in->acc_at[s->dst.block + 1]; i++)
			found(arg, in->acc[i], k);
	}
}

struct csr {
	uint32_t *at;
	uint16_t *val;
};

static void csr_count(void *arg, uint16_t key, uint16_t val)
{
	(void)val;
	((struct csr *)arg)->at[key + 1]++;
}

/* at[key] walks up to where the next key begins; csr_build moves it back. */
static void csr_add(void *arg, uint16_t key, uint16_t val)
{
	struct csr *c = arg;

	c->val[c->at[key]++] = val;
}

static sircl_result_t csr_build(struct plan_info *in, uint32_t nkeys, uint32_t **at, uint16_t **val,
				void (*walk)(const struct plan_info *, void (*)(void *, uint16_t, uint16_t),
					     void *))
{
	struct csr c = { .at = calloc(nkeys + 1, sizeof(uint32_t)) };

	if (!c.at)
		return error_set(SIRCL_NO_MEMORY, "no memory for the tables of a plan");
	*at = c.at;
	walk(in, csr_count, &c);
	for (uint32_t k = 0; k < nkeys; k++)
		c.at[k + 1] += c.at[k];
	c.val = calloc(c.at[nkeys] + 1, sizeof(uint16_t));
	if (!c.val)
		return error_set(SIRCL_NO_MEMORY, "no memory for the tables of a plan");
	*val = c.val;
	in->bytes += (nkeys + 1) * sizeof(uint32_t) + (c.at[nkeys] + 1) * sizeof(uint16_t);
	walk(in, csr_add, &c);
	memmove(c.at + 1, c.at, nkeys * sizeof(uint32_t));
	c.at[0] = 0;
	return SIRCL_SUCCESS;
}

static void info_free(struct plan_info *in)
{
	if (!in)
		return;
	free(in->list[0][0]);
	free(in->waits);
	free(in->dep_at);
	free(in->dep);
	free(in->acc_at);
	free(in->acc);
	free(in->fused);
	free(in->sums);
	free(in);
}

static sircl_result_t info_build(const struct plan *p, struct plan_info **out)
{
	struct plan_info *in = calloc(1, sizeof(*in));
	uint16_t *lists;
	sircl_result_t ret = SIRCL_NO_MEMORY;

	if (!in)
		goto fail_memory;
	in->plan = p;
	in->bytes = sizeof(*in) + p->nsteps * (4 * sizeof(uint16_t) + 2 + sizeof(*in->waits)) +
		    2u * p->nscratch + 4;
	lists = calloc((size_t)p->nsteps * PLAN_CHANS * DIRS + 1, sizeof(*lists));
	in->list[0][0] = lists;
	in->fused = calloc(1, 2u * p->nsteps + 2u * p->nscratch + 4);
	in->sums = calloc((p->nsteps + 63u) / 64 + 1, sizeof(*in->sums));
	in->waits = calloc(p->nsteps + 1u, sizeof(*in->waits));
	if (!lists || !in->fused || !in->sums || !in->waits)
		goto fail_memory;
	in->fused_reduce = (bool *)in->fused + p->nsteps;
	in->stored = in->fused_reduce + p->nsteps;
	in->wide = in->stored + p->nscratch;
	for (int c = 0; c < PLAN_CHANS; c++)
		for (int d = 0; d < DIRS; d++)
			in->list[c][d] = lists + (size_t)(c * DIRS + d) * p->nsteps;
	for (uint16_t k = 0; k < p->nsteps; k++) {
		const struct plan_step *s = &p->step[k];
		int d = s->op == PLAN_SEND ? DIR_SEND : DIR_RECV;

		if (!is_sum(s))
			in->list[s->chan][d][in->nlist[s->chan][d]++] = k;
	}
	find_fused(in);
	for (uint16_t k = 0; k < p->nsteps; k++)
		collect_waits(in, k);
	for (int k = 0; k < p->nsteps; k++)
		if (is_sum(&p->step[k]) && !in->fused_reduce[k])
			in->sums[k / 64] |= 1ull << (k % 64);
	CHECK_GOTO(csr_build(in, p->nscratch, &in->acc_at, &in->acc, accessors), fail);
	CHECK_GOTO(csr_build(in, p->nsteps, &in->dep_at, &in->dep, dependents), fail);
	*out = in;
	return SIRCL_SUCCESS;
fail_memory:
	error_set(ret, "no memory for the tables of plan %s", p->name);
fail:
	info_free(in);
	return ret;
}

sircl_result_t plan_info_get(struct engine *e, const struct plan *p, const struct plan_info **out)
{
	struct plan_info *in;

	for (in = e->infos; in; in = in->next)
		if (in->plan == p)
			break;
	if (!in) {
		CHECK(info_build(p, &in));
		in->next = e->infos;
		e->infos = in;
		engine_account(e, in->bytes, 0);
	}
	*out = in;
	return SIRCL_SUCCESS;
}

void plan_info_free(struct engine *e)
{
	while (e->infos) {
		struct plan_info *in = e->infos;

		e->infos = in->next;
		info_free(in);
	}
}
