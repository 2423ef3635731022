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

int prove_block(const struct plan *p, const struct plan_span *x)
{
	if (x->buf == PLAN_SCRATCH)
		return x->as;
	return x->buf == PLAN_IN && p->parts ? p->rank * p->parts + x->block : x->block;
}

bool prove_same(const struct proof *f, int pos, const struct plan_span *a, const struct plan_span *b)
{
	if ((a->buf == PLAN_SCRATCH) != (b->buf == PLAN_SCRATCH))
		return false;
	if (a->buf == PLAN_SCRATCH || (a->buf == b->buf))
		return a->block == b->block;
	return f->alias && prove_block(f->plan[pos], a) == prove_block(f->plan[pos], b);
}

bool prove_is_nothing(const struct proof *f, int pos, const struct plan_step *s)
{
	return s->op == PLAN_COPY && prove_same(f, pos, &s->dst, &s->src[0]);
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

	while (need <= most && !prove_ends(f, need, &pos, &step, err) && !*err)
		need++;
	if (*err)
		return false;
	if (need > most)
		return prove_fail(f, "deadlock whatever the window: position %d waits in step %d for ever",
				  pos, step);
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

sircl_result_t plan_prove(enum coll_kind kind, const struct plan *const by_position[], int n, int window,
			  struct plan_report *report)
{
	static const int slices[] = { 1, PROVE_SLICES };
	sircl_result_t err = SIRCL_SUCCESS;

	memset(report, 0, sizeof(*report));
	if (n < 1 || n > COLL_MAX_RANKS)
		return error_set(SIRCL_INVALID_ARGUMENT, "plans of %d positions: 1 to %d can be proved", n,
				 COLL_MAX_RANKS);
	report->ok = true;
	for (int k = 0; k < 4 && report->ok; k++) {
		struct proof f = { .kind = kind, .plan = by_position, .n = n, .report = report };

		f.slices = slices[k / 2];
		f.alias = k % 2 != 0;
		report->ok = prove_once(&f, window, &err) && !err;
	}
	return err;
}
