/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover, part 2: what is ordered with what. The graph has an edge wherever the format promises an order:
 * START before END; dependencies; SENDs, landings and arrivals of one direction in turn; a message sent
 * before it is there. No other order is assumed: nothing of windows, of scratch depth, of speed; and a SEND
 * stays unacknowledged until the last moment at which something has asked for its release. Two accesses to
 * the same memory of which one writes must be ordered, END before START: then every run gives what one run
 * gives, and the values are computed once, in any order that the graph allows.
 */
#include <stdlib.h>
#include <string.h>
#include "coll/prove_internal.h"

struct edge {
	int to, next;
};

struct graph {
	int nodes, nedges;
	int *head; /* first edge of a node, -1 */
	struct edge *edge;
	int *order; /* topological */
	int from; /* first instance of the position that `reach` is for */
	uint64_t *reach; /* nodes x words: which STARTs of that position come after */
	size_t words, room;
};

static void edge(struct graph *g, int from, int to)
{
	g->edge[g->nedges] = (struct edge){ to, g->head[from] };
	g->head[from] = g->nedges++;
}

static void step_edges(const struct proof *f, struct graph *g, int pos, int step)
{
	const struct plan_step *s = &f->plan[pos]->step[step];

	for (int i = 0; i < f->slices; i++) {
		edge(g, prove_start(f, pos, step, i), prove_end(f, pos, step, i));
		if (s->flags & PLAN_FUSE) /* has no destination, so the engine posts it without waiting */
			continue;
		for (int k = 0; k < 4; k++)
			if (s->after[k] != PLAN_NONE)
				edge(g, prove_end(f, pos, s->after[k], i), prove_start(f, pos, step, i));
		for (int k = 0; k < 2; k++)
			if (s->released[k] != PLAN_NONE)
				edge(g, prove_end(f, pos, s->released[k], i), prove_start(f, pos, step, i));
	}
}

static void lane_edges(const struct proof *f, struct graph *g, const struct prove_lane *l)
{
	for (int m = 0; m < l->count * f->slices; m++) {
		int send = l->send[m / f->slices], recv = l->recv[m / f->slices], i = m % f->slices;

		edge(g, prove_start(f, l->from, send, i), prove_end(f, l->to, recv, i));
		if (m > 0) {
			int j = (m - 1) % f->slices;

			edge(g, prove_start(f, l->from, l->send[(m - 1) / f->slices], j),
			     prove_start(f, l->from, send, i));
			edge(g, prove_start(f, l->to, l->recv[(m - 1) / f->slices], j),
			     prove_start(f, l->to, recv, i));
			edge(g, prove_end(f, l->to, l->recv[(m - 1) / f->slices], j),
			     prove_end(f, l->to, recv, i));
		}
	}
}

static bool graph_make(const struct proof *f, struct graph *g)
{
	size_t inst = (size_t)f->base[f->n];

	g->nodes = (int)(2 * inst);
	for (int p = 0; p < f->n; p++)
		if ((size_t)(f->base[p + 1] - f->base[p] + 63) / 64 > g->room)
			g->room = (size_t)(f->base[p + 1] - f->base[p] + 63) / 64;
	g->head = malloc((2 * inst + 1) * sizeof(g->head[0]));
	g->edge = malloc((11 * inst + 1) * sizeof(g->edge[0]));
	g->order = malloc((2 * inst + 1) * sizeof(g->order[0]));
	g->reach = malloc((2 * inst * g->room + 1) * sizeof(g->reach[0]));
	if (!g->head || !g->edge || !g->order || !g->reach)
		return false;
	for (int i = 0; i < g->nodes; i++)
		g->head[i] = -1;
	for (int p = 0; p < f->n; p++)
		for (int s = 0; s < f->plan[p]->nsteps; s++)
			step_edges(f, g, p, s);
	for (int l = 0; l < f->nlanes; l++)
		lane_edges(f, g, &f->lane[l]);
	return true;
}

static void graph_free(struct graph *g)
{
	free(g->head);
	free(g->edge);
	free(g->order);
	free(g->reach);
}

/* Which position and step an instance belongs to. */
static void whose(const struct proof *f, int instance, int *pos, int *step)
{
	*pos = 0;
	while (instance >= f->base[*pos + 1])
		++*pos;
	*step = (instance - f->base[*pos]) / f->slices;
}

/* Fills in order; false: there is a cycle, through *node. */
static bool graph_sort(struct graph *g, int *waits, int *node)
{
	int done = 0, n = 0;

	memset(waits, 0, (size_t)g->nodes * sizeof(waits[0]));
	for (int i = 0; i < g->nedges; i++)
		waits[g->edge[i].to]++;
	for (int i = 0; i < g->nodes; i++)
		if (!waits[i])
			g->order[n++] = i;
	for (; done < n; done++)
		for (int e = g->head[g->order[done]]; e >= 0; e = g->edge[e].next)
			if (!--waits[g->edge[e].to])
				g->order[n++] = g->edge[e].to;
	if (n == g->nodes)
		return true;
	*node = 0;
	while (!waits[*node])
		++*node;
	return false;
}

/* Fills in reach for one position. */
static void graph_close(const struct proof *f, struct graph *g, int pos)
{
	int count = f->base[pos + 1] - f->base[pos];

	g->from = f->base[pos];
	g->words = (size_t)(count + 63) / 64;
	memset(g->reach, 0, (size_t)g->nodes * g->words * sizeof(g->reach[0]));
	for (int k = g->nodes - 1; k >= 0; k--) {
		int u = g->order[k];
		uint64_t *r = g->reach + (size_t)u * g->words;

		for (int e = g->head[u]; e >= 0; e = g->edge[e].next) {
			int v = g->edge[e].to, x = v / 2 - g->from;
			const uint64_t *next = g->reach + (size_t)v * g->words;

			if (v % 2 == 0 && x >= 0 && x < count)
				r[x / 64] |= 1ull << (x % 64);
			for (size_t w = 0; w < g->words; w++)
				r[w] |= next[w];
		}
	}
}

/* a: any event; b: a START of the position that reach is for. */
static bool before(const struct graph *g, int a, int b)
{
	int x = b / 2 - g->from;

	return g->reach[(size_t)a * g->words + (size_t)x / 64] >> (x % 64) & 1;
}

/* `w` writes `x`, `o` reads (or writes) the same memory. */
static bool ordered(struct proof *f, const struct graph *g, int pos, int w, const struct plan_span *x, int o,
		    bool writes)
{
	const struct plan_step *other = &f->plan[pos]->step[o];
	char text[32];

	for (int i = 0; i < f->slices; i++) {
		if (before(g, prove_end(f, pos, w, i), prove_start(f, pos, o, i)) ||
		    before(g, prove_end(f, pos, o, i), prove_start(f, pos, w, i)))
			continue;
		prove_span_text(x, text, sizeof(text));
		if (writes)
			return prove_fail(f, "position %d: steps %d and %d may write %s at once", pos, w, o,
					  text);
		if (other->op == PLAN_SEND && o < w)
			return prove_fail(f,
					  "position %d: step %d overwrites %s while SEND step %d may be "
					  "unacknowledged",
					  pos, w, text, o);
		if (o > w)
			return prove_fail(f, "position %d: step %d may read %s before step %d has written it",
					  pos, o, text, w);
		return prove_fail(f, "position %d: step %d may overwrite %s before step %d has read it", pos,
				  w, text, o);
	}
	return true;
}

/* Who touches a cell: a list for each cell of a position. */
struct touch {
	int step, next;
	bool writes;
	const struct plan_span *span;
};

struct touches {
	int n;
	int *head; /* by cell, -1 */
	struct touch *t;
};

static void touch(struct touches *l, int cell, int step, bool writes, const struct plan_span *x)
{
	l->t[l->n] = (struct touch){ step, l->head[cell], writes, x };
	l->head[cell] = l->n++;
}

static bool touches_make(const struct proof *f, int pos, struct touches *l)
{
	const struct plan *p = f->plan[pos];
	int cells = prove_cells(p);

	l->head = calloc((size_t)cells + 1, sizeof(l->head[0]));
	l->t = calloc(5u * p->nsteps + 1, sizeof(l->t[0]));
	if (!l->head || !l->t)
		return false;
	for (int c = 0; c < cells; c++)
		l->head[c] = -1;
	for (int s = p->nsteps - 1; s >= 0; s--) {
		const struct plan_step *x = &p->step[s];

		if (prove_is_nothing(f, pos, x))
			continue;
		for (int k = 0; k < x->nsrc; k++)
			touch(l, prove_cell(f, pos, &x->src[k]), s, false, &x->src[k]);
		if (x->op != PLAN_SEND)
			touch(l, prove_cell(f, pos, &x->dst), s, true, &x->dst);
	}
	return true;
}

/* Writers against readers, or against other writers. */
static bool races(struct proof *f, const struct graph *g, int pos, const struct touches *l, bool writes)
{
	int cells = prove_cells(f->plan[pos]);

	for (int c = 0; c < cells; c++)
		for (int w = l->head[c]; w >= 0; w = l->t[w].next)
			for (int o = writes ? l->t[w].next : l->head[c]; l->t[w].writes && o >= 0;
			     o = l->t[o].next)
				if (l->t[o].writes == writes && l->t[o].step != l->t[w].step &&
				    !ordered(f, g, pos, l->t[w].step, l->t[w].span, l->t[o].step, writes))
					return true;
	return false;
}

/* Reads first: of two faults in one place, "unacknowledged" says more than "at once". */
static bool no_races(struct proof *f, struct graph *g, int pos, sircl_result_t *err)
{
	struct touches l = { 0 };
	bool ok = false;

	graph_close(f, g, pos);
	if (touches_make(f, pos, &l))
		ok = !races(f, g, pos, &l, false) && !races(f, g, pos, &l, true);
	else
		*err = error_set(SIRCL_NO_MEMORY, "no memory for proving a plan");
	free(l.head);
	free(l.t);
	return ok;
}

bool prove_order(struct proof *f, sircl_result_t *err)
{
	struct graph g = { 0 };
	int *waits = NULL, node, pos, step;
	bool ok = false;

	if (graph_make(f, &g))
		waits = malloc((size_t)(g.nodes + 1) * sizeof(waits[0]));
	if (!waits) {
		*err = error_set(SIRCL_NO_MEMORY, "no memory for proving a plan");
		goto out;
	}
	if (!graph_sort(&g, waits, &node)) {
		whose(f, node / 2, &pos, &step);
		prove_fail(f, "deadlock whatever the window: position %d, step %d waits for itself", pos,
			   step);
		goto out;
	}
	for (pos = 0; pos < f->n; pos++)
		if (!no_races(f, &g, pos, err))
			goto out;
	ok = prove_values(f, g.order, err);
out:
	free(waits);
	graph_free(&g);
	return ok;
}
