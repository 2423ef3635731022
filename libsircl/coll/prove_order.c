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
	uint64_t *reach; /* nodes x words: what comes after */
	size_t words;
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
	g->words = (2 * inst + 63) / 64;
	g->head = malloc((2 * inst + 1) * sizeof(g->head[0]));
	g->edge = malloc((11 * inst + 1) * sizeof(g->edge[0]));
	g->order = malloc((2 * inst + 1) * sizeof(g->order[0]));
	g->reach = calloc(2 * inst * g->words + 1, sizeof(g->reach[0]));
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

static void graph_close(struct graph *g)
{
	for (int k = g->nodes - 1; k >= 0; k--) {
		int u = g->order[k];
		uint64_t *r = g->reach + (size_t)u * g->words;

		for (int e = g->head[u]; e >= 0; e = g->edge[e].next) {
			int v = g->edge[e].to;
			const uint64_t *x = g->reach + (size_t)v * g->words;

			r[v / 64] |= 1ull << (v % 64);
			for (size_t w = 0; w < g->words; w++)
				r[w] |= x[w];
		}
	}
}

static bool before(const struct graph *g, int a, int b)
{
	return g->reach[(size_t)a * g->words + (size_t)b / 64] >> (b % 64) & 1;
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

/* Reads first: of two faults in one place, "unacknowledged" says more than "at once". */
static bool races(struct proof *f, const struct graph *g, int pos, bool writes)
{
	const struct plan *p = f->plan[pos];

	for (int w = 0; w < p->nsteps; w++) {
		const struct plan_step *s = &p->step[w];

		if (s->op == PLAN_SEND || prove_is_nothing(f, pos, s))
			continue;
		for (int o = 0; o < p->nsteps; o++) {
			const struct plan_step *t = &p->step[o];

			if (o == w || prove_is_nothing(f, pos, t))
				continue;
			for (int k = 0; !writes && k < t->nsrc; k++)
				if (prove_same(f, pos, &t->src[k], &s->dst) &&
				    !ordered(f, g, pos, w, &s->dst, o, false))
					return true;
			if (writes && o > w && t->op != PLAN_SEND && prove_same(f, pos, &t->dst, &s->dst) &&
			    !ordered(f, g, pos, w, &s->dst, o, true))
				return true;
		}
	}
	return false;
}

#define MAX_NODES 32768 /* the closure of this many takes 128 MiB */

bool prove_order(struct proof *f, sircl_result_t *err)
{
	struct graph g = { 0 };
	int *waits = NULL, node, pos, step;
	bool ok = false;

	if (2 * f->base[f->n] > MAX_NODES) {
		*err = error_set(SIRCL_UNSUPPORTED, "plans with %d steps in all are too large to prove",
				 f->base[f->n] / f->slices);
		return false;
	}
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
	graph_close(&g);
	for (pos = 0; pos < f->n; pos++)
		if (races(f, &g, pos, false) || races(f, &g, pos, true))
			goto out;
	ok = prove_values(f, g.order, err);
out:
	free(waits);
	graph_free(&g);
	return ok;
}
