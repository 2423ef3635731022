/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover, part 3: values. A value is a block of the data of the whole collective (its label), how often
 * each position's contribution is in it, in which order, and what was done to it; or it is not written yet.
 * Computed in one order; part 2 has shown that any other gives the same.
 */
#include <stdlib.h>
#include <string.h>
#include "coll/prove_internal.h"

struct value {
	int label; /* -1: not written */
	bool wide; /* an accumulator: not of the type of the data */
	bool scaled, finished; /* PLAN_SCALE, PLAN_FINISH */
	uint64_t order; /* digest of the order of the sum and of its roundings */
	int16_t first, last; /* ranks first..last one after the other, not rounded before the last; -1: no */
	uint8_t times[COLL_MAX_RANKS]; /* by position */
};

struct values {
	struct value *cell, *passing; /* memory; what each instance has read or is on its way */
	int *source; /* RECV instance -> its SEND instance */
	int base[COLL_MAX_RANKS + 1]; /* first cell of a position */
	int scaled; /* of the results so far: -1 none, 0, 1 */
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
	return (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
}

static struct value *cell(const struct proof *f, const struct values *v, int pos, const struct plan_span *x,
			  int slice)
{
	return &v->cell[v->base[pos] + prove_cell(f, pos, x) * f->slices + slice];
}

/* Which data IN block b of a position is: only ranks' shares and what goes to different ranks differ. */
static int in_label(const struct proof *f, int pos, int b)
{
	const struct plan *p = f->plan[pos];

	if (f->kind == COLL_ALL_TO_ALL)
		return p->rank * f->n * p->parts + b;
	return p->in_part ? p->rank * p->parts + b : b;
}

/* Which data OUT block b must be. */
static int out_label(const struct proof *f, int pos, int b)
{
	const struct plan *p = f->plan[pos];

	if (f->kind == COLL_ALL_TO_ALL)
		return (b / p->parts * f->n + p->rank) * p->parts + b % p->parts;
	return p->out_part ? p->rank * p->parts + b : b;
}

/* How often the contribution of position q must be in OUT block b. */
static int out_times(const struct proof *f, int pos, int b, int q)
{
	int rank = f->plan[q]->rank;

	switch (f->kind) {
	case COLL_ALL_GATHER:
	case COLL_GATHER:
	case COLL_ALL_TO_ALL:
		return rank == b / f->plan[pos]->parts;
	case COLL_BROADCAST:
	case COLL_SCATTER:
		return rank == f->root;
	default:
		return 1;
	}
}

static void fill_in(const struct proof *f, const struct values *v, int pos)
{
	int blocks = prove_in_blocks(f->plan[pos]);

	for (int b = 0; b < blocks && prove_has_in(f, pos); b++) {
		struct plan_span x = { PLAN_IN, (uint16_t)b, (uint16_t)b };

		for (int i = 0; i < f->slices; i++) {
			struct value *c = cell(f, v, pos, &x, i);

			c->label = in_label(f, pos, b);
			c->times[pos] = 1;
			c->order = mix(f->plan[pos]->rank + 1u);
			c->first = c->last = (int16_t)f->plan[pos]->rank;
		}
	}
}

static bool read_one(struct proof *f, const struct values *v, int pos, int step, int k, int slice,
		     struct value *sum)
{
	const struct plan_step *s = &f->plan[pos]->step[step];
	const struct value *c = cell(f, v, pos, &s->src[k], slice);
	bool acc = s->op == PLAN_REDUCE && k == 0 && (s->flags & PLAN_ACC_IN);
	char text[32];

	prove_span_text(&s->src[k], text, sizeof(text));
	if (c->label < 0)
		return prove_fail(f, "position %d: step %d reads %s, which nobody has written", pos, step,
				  text);
	if (c->wide != acc)
		return prove_fail(f, "position %d: step %d reads %s as %s", pos, step, text,
				  acc ? "an accumulator, which it is not" : "data, but it is an accumulator");
	if (k > 0 && c->label != sum->label)
		return prove_fail(f, "position %d: step %d adds block %d to block %d", pos, step, c->label,
				  sum->label);
	if (k > 0 && c->scaled != sum->scaled)
		return prove_fail(f, "position %d: step %d adds what is scaled to what is not", pos, step);
	if (s->op == PLAN_REDUCE && c->finished)
		return prove_fail(f, "position %d: step %d adds to %s, which is finished", pos, step, text);
	if (k > 0 && (sum->first < 0 || c->first < 0 || c->first != c->last || c->first != sum->last + 1))
		sum->first = -1;
	else if (k == 0)
		sum->first = c->first;
	sum->last = c->last;
	sum->order = k > 0 ? mix(sum->order) * 3 + c->order : c->order;
	sum->label = c->label;
	sum->scaled = c->scaled;
	sum->finished = c->finished;
	for (int q = 0; q < f->n; q++) {
		int t = sum->times[q] + c->times[q];

		sum->times[q] = (uint8_t)(t > 255 ? 255 : t);
	}
	return true;
}

/* PLAN_FINISH stands on the sums that have every contribution, and nowhere else. */
static bool finish_ok(struct proof *f, int pos, int step, const struct value *sum)
{
	const struct plan_step *s = &f->plan[pos]->step[step];
	bool all = true, finish = (s->flags & PLAN_FINISH) != 0;

	for (int q = 0; q < f->n; q++)
		all = all && sum->times[q] > 0;
	if (!coll_reduces(f->kind) || f->n == 1 || all == finish)
		return !finish || !sum->wide ||
		       prove_fail(f, "position %d: step %d finishes a sum and does not round it", pos, step);
	return prove_fail(f, "position %d: step %d %s", pos, step,
			  all ? "completes a sum without PLAN_FINISH"
			      : "has PLAN_FINISH, but not all contributions");
}

static bool start(struct proof *f, const struct values *v, int pos, int step, int slice)
{
	const struct plan_step *s = &f->plan[pos]->step[step];
	struct value *sum = &v->passing[prove_instance(f, pos, step, slice)];

	for (int k = 0; k < s->nsrc; k++)
		if (!read_one(f, v, pos, step, k, slice, sum))
			return false;
	if (s->op != PLAN_REDUCE)
		return true;
	sum->wide = (s->flags & PLAN_ACC_OUT) != 0;
	sum->scaled |= (s->flags & PLAN_SCALE) != 0;
	sum->finished = (s->flags & PLAN_FINISH) != 0;
	if (!sum->wide && !(s->flags & PLAN_SCALE))
		sum->order = mix(sum->order + 5);
	if (!sum->wide && sum->first != sum->last && (sum->first != 0 || sum->last != f->n - 1))
		sum->first = -1;
	return finish_ok(f, pos, step, sum);
}

static void end(struct proof *f, const struct values *v, int pos, int step, int slice)
{
	const struct plan_step *s = &f->plan[pos]->step[step];
	int from = prove_instance(f, pos, step, slice);

	if (s->op == PLAN_RECV)
		from = v->source[from];
	if (s->op != PLAN_SEND)
		*cell(f, v, pos, &s->dst, slice) = v->passing[from];
}

/* The order of a sum: the same wherever the result is, and that of the ranks where the plan says so. */
static bool order_ok(struct proof *f, const struct values *v, int pos, int b, int slice)
{
	struct plan_span x = { PLAN_OUT, (uint16_t)b, (uint16_t)b };
	const struct value *c = cell(f, v, pos, &x, slice), *other = cell(f, v, 0, &x, slice);
	const char *order = f->plan[pos]->order;

	if ((f->kind == COLL_ALL_REDUCE || f->kind == COLL_BARRIER) && c->order != other->order)
		return prove_fail(
			f,
			"position %d: block %d of the result is summed in another order than on position 0",
			pos, b);
	if (coll_reduces(f->kind) && order && !strncmp(order, "rank order", 10) &&
	    (c->first != 0 || c->last != f->n - 1))
		return prove_fail(f, "position %d: block %d of the result is not summed in rank order", pos,
				  b);
	return true;
}

static bool result_block(struct proof *f, struct values *v, int pos, int b, int slice)
{
	struct plan_span x = { PLAN_OUT, (uint16_t)b, (uint16_t)b };
	const struct value *c = cell(f, v, pos, &x, slice);
	int label = out_label(f, pos, b);

	if (c->label < 0)
		return prove_fail(f, "position %d: block %d of the result is not written", pos, b);
	if (c->label != label)
		return prove_fail(f, "position %d: block %d of the result is block %d of the data, not %d",
				  pos, b, c->label, label);
	for (int q = 0; q < f->n; q++)
		if (c->times[q] != out_times(f, pos, b, q))
			return prove_fail(f,
					  "position %d: block %d of the result has the contribution of "
					  "position %d %d times, not %d",
					  pos, b, q, c->times[q], out_times(f, pos, b, q));
	if (v->scaled >= 0 && v->scaled != c->scaled)
		return prove_fail(f, "position %d: block %d of the result is %s, others are%s", pos, b,
				  c->scaled ? "scaled" : "not scaled", c->scaled ? " not" : "");
	v->scaled = c->scaled;
	return order_ok(f, v, pos, b, slice);
}

/* Every block of OUT everywhere: every contribution that belongs there, once. */
static bool result(struct proof *f, struct values *v)
{
	v->scaled = -1;
	for (int pos = 0; pos < f->n; pos++) {
		int blocks = prove_has_out(f, pos) ? prove_out_blocks(f->plan[pos]) : 0;

		for (int b = 0; b < blocks; b++)
			for (int i = 0; i < f->slices; i++)
				if (!result_block(f, v, pos, b, i))
					return false;
	}
	return true;
}

static bool values_make(const struct proof *f, struct values *v)
{
	size_t inst = (size_t)f->base[f->n];

	for (int p = 0; p < f->n; p++)
		v->base[p + 1] = v->base[p] + prove_cells(f->plan[p]) * f->slices;
	v->cell = calloc((size_t)v->base[f->n] + 1, sizeof(v->cell[0]));
	v->passing = calloc(inst + 1, sizeof(v->passing[0]));
	v->source = calloc(inst + 1, sizeof(v->source[0]));
	if (!v->cell || !v->passing || !v->source)
		return false;
	for (int l = 0; l < f->nlanes; l++) {
		const struct prove_lane *x = &f->lane[l];

		for (int m = 0; m < x->count * f->slices; m++)
			v->source[prove_instance(f, x->to, x->recv[m / f->slices], m % f->slices)] =
				prove_instance(f, x->from, x->send[m / f->slices], m % f->slices);
	}
	for (int i = 0; i < v->base[f->n]; i++)
		v->cell[i].label = -1;
	for (int p = 0; p < f->n; p++)
		fill_in(f, v, p);
	return true;
}

bool prove_values(struct proof *f, const int *order, sircl_result_t *err)
{
	struct values v = { 0 };
	size_t inst = (size_t)f->base[f->n];
	bool ok = false;

	if (!values_make(f, &v)) {
		*err = error_set(SIRCL_NO_MEMORY, "no memory for proving a plan");
		goto out;
	}
	for (size_t k = 0; k < 2 * inst; k++) {
		int instance = order[k] / 2, pos = 0, step, slice;

		while (instance >= f->base[pos + 1])
			pos++;
		step = (instance - f->base[pos]) / f->slices;
		slice = (instance - f->base[pos]) % f->slices;
		if (prove_is_nothing(f, pos, &f->plan[pos]->step[step]))
			continue;
		if (order[k] % 2)
			end(f, &v, pos, step, slice);
		else if (!start(f, &v, pos, step, slice))
			goto out;
	}
	f->report->steps_run += inst;
	ok = result(f, &v);
out:
	free(v.cell);
	free(v.passing);
	free(v.source);
	return ok;
}
