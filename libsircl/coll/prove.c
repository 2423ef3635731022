/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover. Runs its parts on all plans of a collective, for one slice and for several, with IN and OUT
 * apart and the same. What it takes for granted is what plan.h promises and the engine has to keep.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coll/prove_internal.h"

int prove_class(const struct plan *p, const struct plan_span *x)
{
	int block = x->buf == PLAN_SCRATCH ? x->as : x->block;

	return p->parts ? block % p->parts : block;
}

int prove_in_blocks(const struct plan *p)
{
	return p->in_part ? p->parts : p->nblocks;
}

int prove_out_blocks(const struct plan *p)
{
	return p->out_part ? p->parts : p->nblocks;
}

int prove_cells(const struct plan *p)
{
	return prove_in_blocks(p) + prove_out_blocks(p) + p->nscratch;
}

bool prove_has_in(const struct proof *f, int pos)
{
	return (f->kind != COLL_BROADCAST && f->kind != COLL_SCATTER) || f->plan[pos]->rank == f->root;
}

bool prove_has_out(const struct proof *f, int pos)
{
	return (f->kind != COLL_REDUCE && f->kind != COLL_GATHER) || f->plan[pos]->rank == f->root;
}

/* First IN, then OUT, then scratch. In place the smaller of IN and OUT lies within the other. */
int prove_cell(const struct proof *f, int pos, const struct plan_span *x)
{
	const struct plan *p = f->plan[pos];
	int in = prove_in_blocks(p), own = p->rank * p->parts;

	if (x->buf == PLAN_SCRATCH)
		return in + prove_out_blocks(p) + x->block;
	if (x->buf == PLAN_IN)
		return f->alias && p->in_part ? in + own + x->block : x->block;
	if (!f->alias || p->in_part)
		return in + x->block;
	return p->out_part ? own + x->block : x->block;
}

bool prove_is_nothing(const struct proof *f, int pos, const struct plan_step *s)
{
	return s->op == PLAN_COPY && prove_cell(f, pos, &s->dst) == prove_cell(f, pos, &s->src[0]);
}

char *prove_span_text(const struct plan_span *x, char *buf, size_t n)
{
	static const char *const name[] = {
		[PLAN_IN] = "in", [PLAN_OUT] = "out", [PLAN_SCRATCH] = "scratch"
	};

	snprintf(buf, n, "%s[%u]", name[x->buf], x->block);
	return buf;
}

bool prove_fail(struct proof *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->report->why, sizeof(f->report->why), fmt, ap);
	va_end(ap);
	return false;
}

/* Messages of the busiest direction: with a window of so many no window is ever full. */
static int most_messages(const struct proof *f)
{
	int most = 1;

	for (int l = 0; l < f->nlanes; l++)
		if (f->lane[l].count * f->slices > most)
			most = f->lane[l].count * f->slices;
	return most;
}

static bool windows(struct proof *f, int window, sircl_result_t *err)
{
	int pos = 0, step = 0, most = most_messages(f), need = 1, stuck_pos = 0, stuck_step = 0;

	if (!prove_ends(f, most, &pos, &step, err))
		return !*err && prove_fail(f,
					   "deadlock whatever the window: position %d waits in step %d for "
					   "ever",
					   pos, step);
	while (need < most && !prove_ends(f, need, &pos, &step, err) && !*err)
		need++;
	if (*err)
		return false;
	if (need > f->report->need_window)
		f->report->need_window = (uint16_t)need;
	if (prove_ends(f, window, &stuck_pos, &stuck_step, err))
		return true;
	return !*err &&
	       prove_fail(f,
			  "deadlock with a window of %d slices (needs %d): position %d waits in step %d for "
			  "ever",
			  window, need, stuck_pos, stuck_step);
}

static bool prove_once(struct proof *f, int window, sircl_result_t *err)
{
	bool ok = prove_shape(f, err) && prove_order(f, err) && windows(f, window, err);

	for (int l = 0; l < f->nlanes; l++)
		free(f->lane[l].send);
	return ok;
}

sircl_result_t plan_prove(enum coll_kind kind, int root, const struct plan *const by_position[], int n,
			  int window, struct plan_report *report)
{
	sircl_result_t err = SIRCL_SUCCESS;
	int steps = 0;

	memset(report, 0, sizeof(*report));
	if (n < 1 || n > COLL_MAX_RANKS || root < 0 || root >= n)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "plans of %d positions with root %d: 1 to %d can be proved", n, root,
				 COLL_MAX_RANKS);
	for (int p = 0; p < n; p++)
		steps += by_position[p]->nsteps;
	report->ok = true;
	for (int k = 0; k < (steps > PROVE_BIG ? 2 : 4) && report->ok; k++) {
		struct proof f = { .kind = kind, .root = root, .plan = by_position, .n = n };

		f.report = report;
		f.slices = k < 2 ? 1 : PROVE_SLICES;
		f.alias = k % 2 != 0;
		report->ok = prove_once(&f, window, &err) && !err;
	}
	return err;
}
