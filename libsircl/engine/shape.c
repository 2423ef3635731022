/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of an operation: algorithm, plan, slices, and where every step's data lies. Found when the
 * operation is prepared; laid out in its team's tables and scratch when its turn comes, because only the
 * running operation needs them: thousands may be prepared. A team's scratch is SCRATCH_LIMIT bytes of address
 * space; memory is used as far as an operation has reached.
 */
#include "engine/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Slices that scratch shall hold of each block, so that sums, travel and acknowledgements overlap. */
#define SCRATCH_DEPTH 4

/* ---- lengths ---- */

/* First element of block b when c elements are cut into nb: floor(b * c / nb) without overflow. */
static size_t block_start(size_t c, size_t nb, size_t b)
{
	return b * (c / nb) + b * (c % nb) / nb;
}

struct extent {
	size_t start, len; /* elements */
};

static struct extent block_extent(const struct op *op, uint16_t block, bool part)
{
	const struct plan *p = op->plan;
	size_t c = op->args.count, nb = p->parts ? p->parts : p->nblocks;
	size_t b = p->parts ? block % p->parts : block;
	size_t start = block_start(c, nb, b), len = block_start(c, nb, b + 1) - start;

	if (p->parts && !part)
		start += block / p->parts * c; /* the share of that rank */
	return (struct extent){ start, len };
}

static struct extent span_extent(const struct op *op, const struct plan_span *s)
{
	if (s->buf == PLAN_SCRATCH)
		return block_extent(op, s->as, false);
	return block_extent(op, s->block, s->buf == PLAN_IN ? op->plan->in_part : op->plan->out_part);
}

static uint32_t slices_of(const struct op *op, size_t bytes)
{
	return (uint32_t)((bytes + op->slice - 1) / op->slice);
}

static size_t widening(sircl_type_t type)
{
	return reduce_acc_size(type) / type_size(type);
}

/* ---- tables ---- */

static sircl_result_t grow(struct team *t, void **p, size_t *cap, size_t need, size_t size)
{
	void *more;

	if (need <= *cap)
		return SIRCL_SUCCESS;
	more = realloc(*p, need * size);
	if (!more)
		return error_set(SIRCL_NO_MEMORY, "rank %d has no memory for %zu bytes of tables",
				 t->cfg.rank, need * size);
	engine_account(t->engine, (need - *cap) * size, 0);
	*p = more;
	*cap = need;
	return SIRCL_SUCCESS;
}

/* Room for this plan; the running operation's tables may move. */
static sircl_result_t tables_grow(struct team *t, const struct plan *p)
{
	struct op *running = t->head;
	sircl_result_t ret;

	CHECK_GOTO(grow(t, (void **)&t->run, &t->run_cap, p->nsteps, sizeof(*t->run)), out);
	CHECK_GOTO(grow(t, (void **)&t->ready, &t->ready_cap, (p->nsteps + 63u) / 64, sizeof(*t->ready)),
		   out);
	CHECK_GOTO(grow(t, (void **)&t->place, &t->place_cap, p->nscratch, sizeof(*t->place)), out);
out:
	if (running) {
		running->run = t->run;
		running->ready = t->ready;
	}
	return ret;
}

sircl_result_t tables_create(struct team *t)
{
	t->scratch_limit = SCRATCH_LIMIT;
	if (t->cfg.n == 1)
		return SIRCL_SUCCESS;
	t->scratch = mmap(NULL, SCRATCH_LIMIT, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (t->scratch == MAP_FAILED) {
		t->scratch = NULL;
		return error_set(SIRCL_NO_MEMORY,
				 "rank %d has no %zu bytes of address space for scratch. Is the limit of it "
				 "(ulimit -v) reached?",
				 t->cfg.rank, SCRATCH_LIMIT);
	}
	return SIRCL_SUCCESS;
}

size_t tables_memory(const struct team *t)
{
	return t->run_cap * sizeof(*t->run) + t->ready_cap * sizeof(*t->ready) +
	       t->place_cap * sizeof(*t->place) + t->scratch_used;
}

void tables_destroy(struct team *t)
{
	engine_account(t->engine, 0, tables_memory(t));
	free(t->run);
	free(t->ready);
	free(t->place);
	if (t->scratch)
		munmap(t->scratch, SCRATCH_LIMIT);
}

/* ---- finding ---- */

/*
 * Slices that scratch holds of each block: the same on all ranks, since the plans of all positions name the
 * same most blocks. A slice that follows from the algorithm alone is made small enough for SCRATCH_DEPTH.
 */
static sircl_result_t round_of(struct op *op, const struct op_args *a)
{
	const struct team *t = op->team;
	const struct plan *p = op->plan;
	size_t blocks = p->held + p->held_wide * widening(a->type), most, fit;

	op->round = UINT32_MAX;
	if (!blocks)
		return SIRCL_SUCCESS;
	most = t->scratch_limit / (blocks * SCRATCH_DEPTH) / 64 * 64;
	if (!t->forced_slice && most >= 64 && op->slice > most)
		op->slice = (uint32_t)most;
	fit = t->scratch_limit / (blocks * op->slice);
	if (!fit)
		return error_set(SIRCL_BAD_CONFIG,
				 "SIRCL_SLICE=%u is too large for %s by %s with %d ranks, which holds %zu "
				 "slices at once in %zu bytes of scratch: at most %zu, or 0 for the "
				 "algorithm's choice",
				 op->slice, coll_kind_name(a->kind), coll_algo_name(op->algo), t->cfg.n,
				 blocks, t->scratch_limit, t->scratch_limit / blocks / 64 * 64);
	op->round = fit < UINT32_MAX ? (uint32_t)fit : UINT32_MAX;
	return SIRCL_SUCCESS;
}

static sircl_result_t find_plan(struct op *op, const struct op_args *a)
{
	struct team *t = op->team;
	struct engine *e = t->engine;
	struct plan_key key = { .kind = a->kind,
				.algo = op->algo,
				.shape = t->cfg.shape,
				.n = (uint16_t)t->cfg.n,
				.pos = (uint16_t)t->cfg.pos,
				.root = (uint16_t)a->root,
				.scaled = a->op == REDUCE_PREMUL_SUM };

	memcpy(key.rank_of, t->cfg.rank_of, sizeof(key.rank_of));
	CHECK(plan_get(e->plans, &key, &op->plan));
	CHECK(plan_info_get(e, op->plan, &op->info));
	return tables_grow(t, op->plan);
}

sircl_result_t shape_find(struct op *op, const struct op_args *a)
{
	struct team *t = op->team;
	size_t bytes = a->count * type_size(a->type);
	sircl_result_t ret;

	op->elem = type_size(a->type);
	op->plan = NULL;
	op->info = NULL;
	op->total = 0;
	op->algo = ALGO_AUTO;
	if (t->cfg.n == 1)
		return SIRCL_SUCCESS;
	CHECK(coll_choose(a->kind, a->type, a->op, bytes, t->cfg.n, t->cfg.class, t->cfg.shape,
			  a->meeting ? ALGO_AUTO : t->forced, t->deterministic, &op->algo));
	op->slice = (uint32_t)coll_slice(a->kind, op->algo, bytes, t->cfg.n, t->cfg.class, t->least_window,
					 t->forced_slice);
	token_take(t->engine); /* caches and tables are the driver's */
	ret = find_plan(op, a);
	op->shape = ++t->shapes;
	engine_unlock(t->engine);
	if (ret == SIRCL_SUCCESS)
		ret = round_of(op, a);
	if (ret != SIRCL_SUCCESS)
		op->plan = NULL;
	return ret;
}

/* ---- laying out ---- */

/* Bytes of one scratch block that stands for as_bytes, and its stride per slice. */
static size_t scratch_bytes(const struct op *op, uint16_t block, size_t as_bytes, uint32_t *stride)
{
	size_t widen = op->info->wide[block] ? widening(op->args.type) : 1;
	uint32_t n = slices_of(op, as_bytes);
	size_t bytes;

	*stride = (uint32_t)(op->slice * widen);
	bytes = n > op->round ? (size_t)op->round * *stride : as_bytes * widen;
	return (bytes + 63) & ~(size_t)63;
}

static void set_operand(const struct op *op, struct operand *o, const struct plan_span *s, uint32_t nslices)
{
	o->buf = s->buf;
	o->folded = false;
	o->stride = op->slice;
	o->p = NULL;
	if (s->buf != PLAN_SCRATCH) {
		o->off = span_extent(op, s).start * op->elem;
		return;
	}
	o->off = op->team->place[s->block];
	scratch_bytes(op, s->block, 0, &o->stride);
	o->folded = nslices > op->round;
}

/* Places every stored scratch block; a block that stands for several places gets the largest. */
static void place_scratch(const struct op *op)
{
	struct team *t = op->team;
	const struct plan *p = op->plan;
	size_t *at = t->place, total = 0;
	uint32_t stride;

	for (int b = 0; b < p->nscratch; b++)
		at[b] = 0;
	for (int k = 0; k < p->nsteps; k++) {
		const struct plan_span *d = &p->step[k].dst;
		size_t bytes;

		if (p->step[k].op == PLAN_SEND || d->buf != PLAN_SCRATCH || !op->info->stored[d->block])
			continue;
		bytes = scratch_bytes(op, d->block, span_extent(op, d).len * op->elem, &stride);
		if (bytes > at[d->block])
			at[d->block] = bytes;
	}
	for (int b = 0; b < p->nscratch; b++) {
		size_t bytes = at[b];

		at[b] = total;
		total += bytes;
	}
	sircl_assert(total <= SCRATCH_LIMIT); /* the plan holds more blocks than it says */
	if (total > t->scratch_used) {
		engine_account(t->engine, total - t->scratch_used, 0);
		t->scratch_used = total;
	}
}

static void lay_steps(struct op *op)
{
	const struct plan *p = op->plan;

	op->total = 0;
	op->nslices_max = 1;
	for (int k = 0; k < p->nsteps; k++) {
		const struct plan_step *s = &p->step[k];
		const struct plan_span *whole = s->op == PLAN_SEND ? &s->src[0] : &s->dst;
		struct step_run *r = &op->run[k];

		r->len = span_extent(op, whole).len * op->elem;
		r->nslices = slices_of(op, r->len);
		op->total += r->nslices;
		if (r->nslices > op->nslices_max)
			op->nslices_max = r->nslices;
		if (s->op != PLAN_SEND)
			set_operand(op, &r->dst, &s->dst, r->nslices);
		for (int i = 0; i < nsources(s); i++)
			set_operand(op, &r->src[i], &s->src[i], r->nslices);
	}
}

static void point_operand(struct operand *o, uint8_t *const base[])
{
	o->p = base[o->buf] ? base[o->buf] + o->off : NULL;
}

static void point(struct op *op)
{
	uint8_t *base[] = { [PLAN_IN] = (uint8_t *)(uintptr_t)op->args.in,
			    [PLAN_OUT] = op->args.out,
			    [PLAN_SCRATCH] = op->team->scratch };

	for (int k = 0; k < op->plan->nsteps; k++) {
		const struct plan_step *s = &op->plan->step[k];
		struct step_run *r = &op->run[k];

		if (s->op != PLAN_SEND)
			point_operand(&r->dst, base);
		for (int i = 0; i < nsources(s); i++)
			point_operand(&r->src[i], base);
	}
}

void shape_lay(struct op *op)
{
	struct team *t = op->team;

	if (!op->plan)
		return;
	op->run = t->run;
	op->ready = t->ready;
	op->ready_words = (op->plan->nsteps + 63u) / 64;
	if (t->laid != op->shape) {
		place_scratch(op);
		lay_steps(op);
		t->laid = op->shape;
	} else if (t->laid_in == op->args.in && t->laid_out == op->args.out) {
		return;
	}
	t->laid_in = op->args.in;
	t->laid_out = op->args.out;
	point(op);
}
