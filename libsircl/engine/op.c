/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: prepared objects. Preparing finds what follows from (kind, count, type, operation, root):
 * algorithm, plan, slices, and that the scratch suffices; starting lays this out in the team's tables
 * (shape.c) when the operation's turn comes. Preparing and starting the same call again costs only what has
 * changed. Nothing here is allocated unless a plan is new or larger than any before.
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
	engine_account(op->team->engine, 0, sizeof(*op));
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

/* ---- preparing ---- */

/* What a kind does not have is the same in all its calls. */
static struct op_args plain(struct op *op, const struct op_args *a)
{
	struct op_args b = *a;

	if (b.kind == COLL_BARRIER) {
		b.in = b.out = &op->byte;
		b.count = 1;
		b.type = SIRCL_UINT8;
	}
	if (!coll_reduces(b.kind))
		b.op = SIRCL_SUM;
	if (b.op != REDUCE_PREMUL_SUM)
		b.scalar = 0;
	if (!coll_has_root(b.kind))
		b.root = 0;
	return b;
}

static sircl_result_t check(const struct op *op, const struct op_args *a)
{
	int n = op->team->cfg.n;

	if (a->kind >= COLL_KINDS || !reduce_supports(a->type, a->op))
		return error_set(SIRCL_INVALID_ARGUMENT, "unknown collective %d, type %d or operation %d",
				 (int)a->kind, (int)a->type, (int)a->op);
	if (a->root < 0 || a->root >= n)
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: root %d is no rank: 0 to %d",
				 coll_kind_name(a->kind), a->root, n - 1);
	return SIRCL_SUCCESS;
}

static bool same_shape(const struct op_args *a, const struct op_args *b)
{
	return a->kind == b->kind && a->count == b->count && a->type == b->type && a->op == b->op &&
	       a->root == b->root && a->meeting == b->meeting;
}

sircl_result_t op_prepare(struct op *op, const struct op_args *args)
{
	struct op_args a;

	if (atomic_load_explicit(&op->state, memory_order_relaxed) == OP_RUNNING && !op_done(op))
		return error_set(SIRCL_INVALID_USAGE, "an operation is prepared again while it runs");
	a = plain(op, args);
	CHECK(check(op, &a));
	if (!op->prepared || !same_shape(&op->args, &a)) {
		op->prepared = false;
		CHECK(shape_find(op, &a));
	}
	op->args = a;
	op->prepared = true;
	return SIRCL_SUCCESS;
}

/* ---- start ---- */

void call_text(const struct op_args *a, const char *more, char *buf, size_t n)
{
	bool sums = coll_reduces(a->kind), rooted = coll_has_root(a->kind);
	const char *type = type_size(a->type) ? type_name(a->type) : "elements of an unknown type";
	const char *op = a->op < REDUCE_OPS ? op_name(a->op) : "unknown operation";
	char root[32] = "";

	if (a->kind == COLL_BARRIER) {
		snprintf(buf, n, "%s", coll_kind_name(a->kind));
		return;
	}
	if (rooted)
		snprintf(root, sizeof(root), "%s%s rank %d", sums ? "," : "",
			 a->kind == COLL_BROADCAST || a->kind == COLL_SCATTER ? " from" : " to", a->root);
	snprintf(buf, n, "%s of %zu%s %s%s%s%s",
		 a->kind < COLL_KINDS ? coll_kind_name(a->kind) : "an unknown collective", a->count, more,
		 type, sums ? ", " : "", sums ? op : "", root);
}

void op_text(const struct op *op, char *buf, size_t n)
{
	char call[112] = MEETING_TEXT;

	if (!op->args.meeting)
		call_text(&op->args, "", call, sizeof(call));
	snprintf(buf, n, "%s, number %llu", call, (unsigned long long)op->number);
}

void op_run_alone(const struct op_args *a, struct tick *tick)
{
	size_t bytes = a->kind == COLL_BARRIER ? 0 : a->count * type_size(a->type);

	if (bytes && coll_reduces(a->kind) && a->op == REDUCE_PREMUL_SUM) {
		reduce_run(a->type, a->op, REDUCE_SCALE,
			   &(struct reduce_arg){ .ranks = 1, .scalar = a->scalar }, a->out, &a->in, 1,
			   a->count);
		tick_charge(tick, COST_REDUCE, bytes);
	} else if (bytes && a->out != a->in) {
		memcpy(a->out, a->in, bytes);
		tick_charge(tick, COST_COPY, bytes);
	}
}

void op_begin(struct op *op, struct tick *tick)
{
	struct team *t = op->team;

	op->begun = op->last_move = tick->now;
	op->check_at = tick->now + tick_min(t->cfg.op_timeout / 8, HINT_AFTER);
	op->progress_sum = 0;
	op->warned = false;
	op->again = true;
	shape_lay(op);
	op->left = op->total;
	flight_start(op, tick->now);
	for (int c = 0; c < PLAN_CHANS; c++) {
		op->heard[c] = false;
		t->ch[c].watch = (struct link_watch){ .begun = false };
		for (int d = 0; d < DIRS; d++)
			op->cur[c][d] = (struct cursor){ .end = !op->plan || op->info->nlist[c][d] == 0 };
	}
	if (!op->plan) {
		op_run_alone(&op->args, tick);
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
	t->tag_of[op->number % FLIGHT_OPS] = op->tag;
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
