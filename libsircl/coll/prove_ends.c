/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover, part 4: does it end? Runs everything that can run until nothing can. Nothing that runs can stop
 * something else from running, so one order stands for all. Here windows and scratch depth count: message m
 * leaves when message m - window is consumed (fused: by the REDUCE), slice i of scratch is written when all
 * readers of slice i - depth have ended (a SEND: is released). A SEND is acknowledged when it has left.
 */
#include <stdlib.h>
#include "coll/prove_internal.h"

struct run {
	uint8_t *started, *ended; /* by instance; of a SEND: ended = has left and is acknowledged */
	int window;
	bool moved;
};

static bool ready(const struct proof *f, const struct run *r, int pos, int step, int slice)
{
	const struct plan *p = f->plan[pos];
	const struct plan_step *s = &p->step[step];
	int depth = p->depth ? p->depth : f->slices;

	for (int k = 0; k < 6; k++) {
		int x = k < 4 ? s->after[k] : s->released[k - 4];

		if (x != PLAN_NONE && !r->ended[prove_instance(f, pos, x, slice)])
			return false;
	}
	if (s->op == PLAN_SEND || s->dst.buf != PLAN_SCRATCH || slice < depth)
		return true;
	for (int o = 0; o < p->nsteps; o++)
		for (int k = 0; k < p->step[o].nsrc; k++)
			if (prove_cell(f, pos, &p->step[o].src[k]) == prove_cell(f, pos, &s->dst) &&
			    !r->ended[prove_instance(f, pos, o, slice - depth)])
				return false;
	return true;
}

static void mark(struct run *r, uint8_t *what)
{
	*what = 1;
	r->moved = true;
}

/* Message m of a direction has left its window's place. */
static bool consumed(const struct proof *f, const struct run *r, const struct prove_lane *l, int m)
{
	int step = l->recv[m / f->slices];

	if (f->plan[l->to]->step[step].flags & PLAN_FUSE)
		step++;
	return r->ended[prove_instance(f, l->to, step, m % f->slices)];
}

static void run_lane(const struct proof *f, struct run *r, const struct prove_lane *l)
{
	for (int m = 0; m < l->count * f->slices; m++) {
		int send = l->send[m / f->slices], recv = l->recv[m / f->slices], i = m % f->slices;
		int s = prove_instance(f, l->from, send, i), d = prove_instance(f, l->to, recv, i), s1 = -1,
		    d1 = -1;

		if (m > 0) {
			int j = (m - 1) % f->slices;

			s1 = prove_instance(f, l->from, l->send[(m - 1) / f->slices], j);
			d1 = prove_instance(f, l->to, l->recv[(m - 1) / f->slices], j);
		}
		if (!r->started[s] && (s1 < 0 || r->started[s1]) && ready(f, r, l->from, send, i))
			mark(r, &r->started[s]);
		if (!r->started[d] && (d1 < 0 || r->started[d1]) && ready(f, r, l->to, recv, i))
			mark(r, &r->started[d]);
		if (r->started[s] && !r->ended[s] && (s1 < 0 || r->ended[s1]) &&
		    (m < r->window || consumed(f, r, l, m - r->window)))
			mark(r, &r->ended[s]);
		if (r->started[d] && !r->ended[d] && r->ended[s] && (m == 0 || consumed(f, r, l, m - 1)))
			mark(r, &r->ended[d]);
	}
}

static void run_local(const struct proof *f, struct run *r, int pos)
{
	const struct plan *p = f->plan[pos];

	for (int step = 0; step < p->nsteps; step++) {
		if (p->step[step].op != PLAN_REDUCE && p->step[step].op != PLAN_COPY)
			continue;
		for (int i = 0; i < f->slices; i++) {
			int x = prove_instance(f, pos, step, i);

			if (!r->ended[x] && ready(f, r, pos, step, i)) {
				r->started[x] = 1;
				mark(r, &r->ended[x]);
			}
		}
	}
}

bool prove_ends(struct proof *f, int window, int *pos, int *step, sircl_result_t *err)
{
	size_t inst = (size_t)f->base[f->n];
	struct run r = { .window = window };
	bool ok = true;

	r.started = calloc(2 * inst + 1, 1);
	if (!r.started) {
		*err = error_set(SIRCL_NO_MEMORY, "no memory for proving a plan");
		return false;
	}
	r.ended = r.started + inst;
	do {
		r.moved = false;
		for (int l = 0; l < f->nlanes; l++)
			run_lane(f, &r, &f->lane[l]);
		for (int p = 0; p < f->n; p++)
			run_local(f, &r, p);
	} while (r.moved);
	for (int p = 0; ok && p < f->n; p++) {
		for (int x = f->base[p]; ok && x < f->base[p + 1]; x++) {
			if (!r.ended[x]) {
				*pos = p;
				*step = (x - f->base[p]) / f->slices;
				ok = false;
			}
		}
	}
	free(r.started);
	return ok;
}
