/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: prepared objects. Preparing has two parts: what follows from (kind, count, type, operation) -
 * algorithm, plan, slices, lengths, scratch - and the addresses. Preparing the same call again costs only the
 * part that has changed. Nothing here is allocated unless a plan or its scratch is larger than any before.
 */
#include "engine/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sircl_result_t op_create(struct team *t, struct op **out)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		return error_set(SIRCL_NO_MEMORY, "no memory for an operation");
	op->team = t;
	engine_account(t->engine, sizeof(*op), 0);
	*out = op;
	return SIRCL_SUCCESS;
}

void op_destroy(struct op *op)
{
	if (!op)
		return;
	/* Acquire: partner of the release in finish_head, which was the last to touch op. */
	sircl_assert(atomic_load_explicit(&op->state, memory_order_acquire) != OP_RUNNING);
	engine_account(op->team->engine, 0,
		       sizeof(*op) + op->run_cap * sizeof(*op->run) + op->ready_cap * sizeof(*op->ready) +
			       op->place_cap * sizeof(*op->place) + op->scratch_cap);
	free(op->run);
	free(op->place);
	free(op->ready);
	free(op->scratch);
	free(op);
}

const char *op_algo(const struct op *op)
{
	return op->plan ? coll_algo_name(op->algo) : "copy";
}

bool op_done(const struct op *op)
{
	return atomic_load_explicit(&op->state, memory_order_acquire) == OP_DONE; /* partner: finish_head */
}

sircl_result_t op_result(const struct op *op, struct sircl_error *err)
{
	if (!op_done(op)) {
		if (err)
			*err = (struct sircl_error){ .code = SIRCL_IN_PROGRESS, .msg = "still running" };
		return SIRCL_IN_PROGRESS;
	}
	if (op->result != SIRCL_SUCCESS)
		return team_error(op->team, err);
	if (err)
		*err = (struct sircl_error){ .code = SIRCL_SUCCESS };
	return SIRCL_SUCCESS;
}

/* ---- lengths ---- */

/* First element of block b when c elements are cut into nb: floor(b * c / nb) without overflow. */
static size_t block_start(size_t c, size_t nb, size_t b)
{
	return b * (c / nb) + b * (c % nb) / nb;
}

struct extent {
	size_t start, len; /* elements */
};

static struct extent block_extent(const struct op *op, uint8_t buf, uint16_t block)
{
	const struct plan *p = op->plan;
	size_t c = op->args.count, nb = p->nblocks;
	size_t start;

	if (op->args.kind == COLL_ALL_GATHER) {
		if (buf == PLAN_IN)
			nb = p->parts;
		else
			c *= (size_t)op->team->cfg.n;
	}
	start = block_start(c, nb, block);
	return (struct extent){ start, block_start(c, nb, block + 1u) - start };
}

static struct extent span_extent(const struct op *op, const struct plan_span *s)
{
	return s->buf == PLAN_SCRATCH ? block_extent(op, PLAN_OUT, s->as)
				      : block_extent(op, s->buf, s->block);
}

static uint32_t slices_of(const struct op *op, size_t bytes)
{
	return (uint32_t)((bytes + op->slice - 1) / op->slice);
}

/* ---- memory ---- */

static sircl_result_t grow(struct op *op, void **p, size_t *cap, size_t need, size_t size, const char *what)
{
	void *more;

	if (need <= *cap)
		return SIRCL_SUCCESS;
	more = realloc(*p, need * size);
	if (!more)
		return error_set(SIRCL_NO_MEMORY, "rank %d has no memory for %zu bytes of %s",
				 op->team->cfg.rank, need * size, what);
	engine_account(op->team->engine, (need - *cap) * size, 0);
	*p = more;
	*cap = need;
	return SIRCL_SUCCESS;
}

/* Bytes of one scratch block that stands for `as`, and its stride per slice. */
static size_t scratch_bytes(const struct op *op, uint16_t block, size_t as_bytes, uint32_t *stride)
{
	size_t widen = op->info->wide[block] ? 4 / op->elem : 1;
	uint32_t n = slices_of(op, as_bytes);
	size_t bytes;

	/* An accumulator has 4 bytes an element; types that are wider than that are never accumulated so. */
	widen = widen ? widen : 1;
	*stride = (uint32_t)(op->slice * widen);
	bytes = n > op->round ? (size_t)op->round * *stride : as_bytes * widen;
	return (bytes + 63) & ~(size_t)63;
}

static void set_operand(struct op *op, struct operand *o, const struct plan_span *s, uint32_t nslices)
{
	o->buf = s->buf;
	o->folded = false;
	o->stride = op->slice;
	o->p = NULL;
	if (s->buf != PLAN_SCRATCH) {
		o->off = span_extent(op, s).start * op->elem;
		return;
	}
	o->off = op->place[s->block];
	scratch_bytes(op, s->block, 0, &o->stride);
	o->folded = nslices > op->round;
}

/* Places every stored scratch block; a block that stands for several places gets the largest. */
static sircl_result_t place_scratch(struct op *op)
{
	const struct plan *p = op->plan;
	size_t *at = op->place, total = 0;
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
	return grow(op, (void **)&op->scratch, &op->scratch_cap, total, 1, "scratch");
}

static void shape_steps(struct op *op)
{
	const struct plan *p = op->plan;

	op->total = 0;
	op->nslices_max = 1;
	for (int k = 0; k < p->nsteps; k++) {
		const struct plan_step *s = &p->step[k];
		const struct plan_span *whole = s->op == PLAN_SEND ? &s->src[0] : &s->dst;
		int nsrc = s->op == PLAN_RECV ? 0 : s->op == PLAN_REDUCE ? s->nsrc : 1;
		struct step_run *r = &op->run[k];

		r->len = span_extent(op, whole).len * op->elem;
		r->nslices = slices_of(op, r->len);
		op->total += r->nslices;
		if (r->nslices > op->nslices_max)
			op->nslices_max = r->nslices;
		if (s->op != PLAN_SEND)
			set_operand(op, &r->dst, &s->dst, r->nslices);
		for (int i = 0; i < nsrc; i++)
			set_operand(op, &r->src[i], &s->src[i], r->nslices);
	}
}

/*
 * The same on all ranks: a function of algorithm, n and slice alone. The ring sums from the window and needs
 * no scratch; for the others a rank holds about n blocks.
 */
static uint32_t round_of(const struct op *op)
{
	size_t fit;

	if (op->algo == ALGO_RING)
		return UINT32_MAX;
	fit = SCRATCH_LIMIT / ((size_t)op->slice * (size_t)op->team->cfg.n);
	return fit < 4 ? 4 : (uint32_t)fit;
}

static sircl_result_t shape(struct op *op, const struct op_args *a)
{
	struct team *t = op->team;
	struct engine *e = t->engine;
	size_t bytes = a->count * type_size(a->type);
	struct plan_key key = {
		.kind = a->kind, .shape = t->cfg.shape, .n = (uint16_t)t->cfg.n, .pos = (uint16_t)t->cfg.pos
	};
	enum coll_algo algo;
	sircl_result_t ret;

	op->args = *a;
	op->elem = type_size(a->type);
	op->plan = NULL;
	op->info = NULL;
	op->total = 0;
	if (t->cfg.n == 1) {
		op->algo = ALGO_AUTO;
		return SIRCL_SUCCESS;
	}
	CHECK(coll_choose(a->kind, a->type, a->op, bytes, t->cfg.n, t->cfg.class, t->cfg.shape,
			  a->meeting ? ALGO_AUTO : t->forced, t->deterministic, &algo));
	op->algo = key.algo = algo;
	memcpy(key.rank_of, t->cfg.rank_of, sizeof(key.rank_of));
	op->slice = (uint32_t)coll_slice(a->kind, algo, bytes, t->cfg.n, t->cfg.class, t->window,
					 t->forced_slice);
	op->round = round_of(op);
	token_take(e); /* the caches are the engine's */
	ret = plan_get(e->plans, &key, &op->plan);
	if (ret == SIRCL_SUCCESS)
		ret = plan_info_get(e, op->plan, &op->info);
	engine_unlock(e);
	CHECK_GOTO(ret, fail);
	CHECK_GOTO(grow(op, (void **)&op->run, &op->run_cap, op->plan->nsteps, sizeof(*op->run), "tables"),
		   fail);
	op->ready_words = (op->plan->nsteps + 63u) / 64;
	CHECK_GOTO(
		grow(op, (void **)&op->ready, &op->ready_cap, op->ready_words, sizeof(*op->ready), "tables"),
		fail);
	CHECK_GOTO(grow(op, (void **)&op->place, &op->place_cap, op->plan->nscratch, sizeof(*op->place),
			"tables"),
		   fail);
	CHECK_GOTO(place_scratch(op), fail);
	shape_steps(op);
	return SIRCL_SUCCESS;
fail:
	op->plan = NULL;
	return ret;
}

static void point_operand(struct operand *o, uint8_t *const base[])
{
	o->p = base[o->buf] ? base[o->buf] + o->off : NULL;
}

static void point(struct op *op)
{
	uint8_t *base[] = {
		[PLAN_IN] = (uint8_t *)op->args.in, [PLAN_OUT] = op->args.out, [PLAN_SCRATCH] = op->scratch
	};

	for (int k = 0; op->plan && k < op->plan->nsteps; k++) {
		const struct plan_step *s = &op->plan->step[k];
		struct step_run *r = &op->run[k];
		int nsrc = s->op == PLAN_RECV ? 0 : s->op == PLAN_REDUCE ? s->nsrc : 1;

		if (s->op != PLAN_SEND)
			point_operand(&r->dst, base);
		for (int i = 0; i < nsrc; i++)
			point_operand(&r->src[i], base);
	}
}

sircl_result_t op_prepare(struct op *op, const struct op_args *a)
{
	struct op_args *have = &op->args;

	if (atomic_load_explicit(&op->state, memory_order_relaxed) == OP_RUNNING && !op_done(op))
		return error_set(SIRCL_INVALID_USAGE, "an operation is prepared again while it runs");
	if (a->kind >= COLL_KINDS || type_size(a->type) == 0)
		return error_set(SIRCL_INVALID_ARGUMENT, "unknown collective %d or type %d", (int)a->kind,
				 (int)a->type);
	if (a->kind == COLL_ALL_REDUCE && !reduce_supports(a->type, a->op))
		return error_set(SIRCL_UNSUPPORTED, "%s with %s of %s is not in this version",
				 coll_kind_name(a->kind), op_name(a->op), type_name(a->type));
	if (!op->prepared || have->kind != a->kind || have->count != a->count || have->type != a->type ||
	    have->op != a->op || have->meeting != a->meeting) {
		op->prepared = false;
		CHECK(shape(op, a));
	} else if (have->in == a->in && have->out == a->out) {
		return SIRCL_SUCCESS;
	}
	op->args = *a;
	point(op);
	op->prepared = true;
	return SIRCL_SUCCESS;
}

/* ---- start ---- */

void op_text(const struct op *op, char *buf, size_t n)
{
	const struct op_args *a = &op->args;
	bool sums = a->kind == COLL_ALL_REDUCE;

	if (a->meeting) {
		snprintf(buf, n, MEETING_TEXT ", number %llu", (unsigned long long)op->number);
		return;
	}
	snprintf(buf, n, "%s of %zu %s%s%s, number %llu", coll_kind_name(a->kind), a->count,
		 type_name(a->type), sums ? ", " : "", sums ? op_name(a->op) : "",
		 (unsigned long long)op->number);
}

void op_begin(struct op *op, struct tick *tick)
{
	struct team *t = op->team;

	op->begun = op->last_move = tick->now;
	op->check_at = tick->now + t->cfg.op_timeout / 8;
	op->progress_sum = 0;
	op->warned = false;
	op->again = true;
	op->left = op->total;
	flight_start(op, tick->now);
	for (int c = 0; c < PLAN_CHANS; c++) {
		op->heard[c] = false;
		t->ch[c].watch = (struct link_watch){ .begun = false };
		for (int d = 0; d < DIRS; d++)
			op->cur[c][d] = (struct cursor){ .end = !op->plan || op->info->nlist[c][d] == 0 };
	}
	if (!op->plan) {
		size_t bytes = op->args.count * op->elem;

		if (op->args.out != op->args.in && bytes) {
			memcpy(op->args.out, op->args.in, bytes);
			tick_charge(tick, COST_COPY, bytes);
		}
		return;
	}
	for (int k = 0; k < op->plan->nsteps; k++)
		op->run[k].issued = op->run[k].done = 0;
	memcpy(op->ready, op->info->sums, op->ready_words * sizeof(*op->ready));
}

sircl_result_t engine_start(struct engine *e, struct tick *tick, struct op *op)
{
	struct team *t = op->team;
	struct sircl_error err;

	if (!op->prepared)
		return error_set(SIRCL_INVALID_USAGE, "an operation is started that was not prepared");
	/* Acquire: partner of the release in finish_head; op is changed below. */
	if (atomic_load_explicit(&op->state, memory_order_acquire) == OP_RUNNING)
		return error_set(SIRCL_INVALID_USAGE, "an operation is started while it runs");
	if (team_error(t, &err) != SIRCL_SUCCESS)
		return error_again(&err);
	token_take(e);
	e->now = tick->now;
	op->number = t->next_number++;
	op->tag = op_tag(op->number, &op->args);
	op->next = NULL;
	/* Relaxed: the waiter is this thread, or learns of op through something stronger. */
	atomic_store_explicit(&op->state, OP_RUNNING, memory_order_relaxed);
	if (t->tail)
		t->tail->next = op;
	else
		t->head = op;
	t->tail = op;
	if (t->head == op) {
		op_begin(op, tick);
		team_progress(t, tick, true);
	}
	engine_unlock(e);
	return SIRCL_SUCCESS;
}
