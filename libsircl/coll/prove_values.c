/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover, part 3: values. A value is how often each position's contribution is in it, and of which block;
 * or it is not written yet. Computed in one order; part 2 has shown that any other gives the same.
 */
#include <stdlib.h>
#include "coll/prove_internal.h"

struct value {
	int16_t block; /* -1: not written */
	bool f32; /* an accumulator: not of the type of the data */
	uint8_t times[COLL_MAX_RANKS]; /* by position */
};

struct values {
	struct value *cell, *passing; /* memory; what each instance has read or is on its way */
	int *source; /* RECV instance -> its SEND instance */
	int base[COLL_MAX_RANKS + 1]; /* first cell of a position */
};

static int cells_of(const struct proof *f, int pos)
{
	const struct plan *p = f->plan[pos];

	return (2 * p->nblocks + p->nscratch) * f->slices;
}

static struct value *cell(const struct proof *f, const struct values *v, int pos, const struct plan_span *x,
			  int slice)
{
	const struct plan *p = f->plan[pos];
	int at;

	if (x->buf == PLAN_SCRATCH)
		at = 2 * p->nblocks + x->block;
	else if (x->buf == PLAN_OUT || f->alias)
		at = prove_block(p, x);
	else
		at = p->nblocks + x->block;
	return &v->cell[v->base[pos] + at * f->slices + slice];
}

static void fill_in(const struct proof *f, const struct values *v, int pos)
{
	const struct plan *p = f->plan[pos];
	int blocks = p->parts ? p->parts : p->nblocks;

	for (int b = 0; b < blocks; b++) {
		struct plan_span x = { PLAN_IN, (uint16_t)b, (uint16_t)b };

		for (int i = 0; i < f->slices; i++) {
			struct value *c = cell(f, v, pos, &x, i);

			c->block = (int16_t)prove_block(p, &x);
			c->times[pos] = 1;
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
	if (c->block < 0)
		return prove_fail(f, "position %d: step %d reads %s, which nobody has written", pos, step,
				  text);
	if (c->f32 != acc)
		return prove_fail(f, "position %d: step %d reads %s as %s", pos, step, text,
				  acc ? "an accumulator, which it is not" : "data, but it is an accumulator");
	sum->block = c->block;
	for (int q = 0; q < f->n; q++) {
		int t = sum->times[q] + c->times[q];

		sum->times[q] = (uint8_t)(t > 255 ? 255 : t);
	}
	return true;
}

static bool start(struct proof *f, const struct values *v, int pos, int step, int slice)
{
	const struct plan_step *s = &f->plan[pos]->step[step];
	struct value *sum = &v->passing[prove_instance(f, pos, step, slice)];

	for (int k = 0; k < s->nsrc; k++)
		if (!read_one(f, v, pos, step, k, slice, sum))
			return false;
	sum->f32 = (s->flags & PLAN_ACC_OUT) != 0;
	return true;
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

/* Every block of OUT everywhere: every contribution that belongs there, once. */
static bool result(struct proof *f, const struct values *v)
{
	for (int pos = 0; pos < f->n; pos++) {
		for (int b = 0; b < f->plan[pos]->nblocks; b++) {
			struct plan_span x = { PLAN_OUT, (uint16_t)b, (uint16_t)b };

			for (int i = 0; i < f->slices; i++) {
				const struct value *c = cell(f, v, pos, &x, i);

				if (c->block != b)
					return prove_fail(
						f, "position %d: block %d of the result is not written", pos,
						b);
				for (int q = 0; q < f->n; q++) {
					int want = f->kind == COLL_ALL_REDUCE ||
						   f->plan[q]->rank == b / f->plan[pos]->parts;

					if (c->times[q] == want)
						continue;
					return prove_fail(
						f,
						"position %d: block %d of the result has the contribution of "
						"position %d %d times, not %d",
						pos, b, q, c->times[q], want);
				}
			}
		}
	}
	return true;
}

bool prove_values(struct proof *f, const int *order, sircl_result_t *err)
{
	struct values v = { 0 };
	size_t inst = (size_t)f->base[f->n];
	bool ok = false;

	for (int p = 0; p < f->n; p++)
		v.base[p + 1] = v.base[p] + cells_of(f, p);
	v.cell = calloc((size_t)v.base[f->n] + 1, sizeof(v.cell[0]));
	v.passing = calloc(inst + 1, sizeof(v.passing[0]));
	v.source = calloc(inst + 1, sizeof(v.source[0]));
	if (!v.cell || !v.passing || !v.source) {
		*err = error_set(SIRCL_NO_MEMORY, "no memory for proving a plan");
		goto out;
	}
	for (int l = 0; l < f->nlanes; l++)
		for (int m = 0; m < f->lane[l].count * f->slices; m++)
			v.source[prove_instance(f, f->lane[l].to, f->lane[l].recv[m / f->slices],
						m % f->slices)] =
				prove_instance(f, f->lane[l].from, f->lane[l].send[m / f->slices],
					       m % f->slices);
	for (int i = 0; i < v.base[f->n]; i++)
		v.cell[i].block = -1;
	for (int p = 0; p < f->n; p++)
		fill_in(f, &v, p);
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
