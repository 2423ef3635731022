/* SPDX-License-Identifier: Apache-2.0 */
/* Names, and a plan as text. */
#include <stdarg.h>
#include <stdio.h>
#include "coll/internal.h"

const char *coll_kind_name(enum coll_kind kind)
{
	static const char *const name[COLL_KINDS] = {
		[COLL_ALL_REDUCE] = "all_reduce",
		[COLL_ALL_GATHER] = "all_gather",
		[COLL_REDUCE_SCATTER] = "reduce_scatter",
		[COLL_BROADCAST] = "broadcast",
		[COLL_REDUCE] = "reduce",
		[COLL_ALL_TO_ALL] = "all_to_all",
		[COLL_GATHER] = "gather",
		[COLL_SCATTER] = "scatter",
		[COLL_BARRIER] = "barrier",
	};

	return (unsigned)kind < COLL_KINDS ? name[kind] : "?";
}

const char *coll_algo_name(enum coll_algo algo)
{
	static const char *const name[ALGO_COUNT] = {
		[ALGO_AUTO] = "auto",         [ALGO_TWO_MATCHINGS] = "two-matchings",
		[ALGO_EXCHANGE] = "exchange", [ALGO_RING] = "ring",
		[ALGO_DOUBLING] = "doubling", [ALGO_TWO_SHOT] = "two-shot",
		[ALGO_PIPELINE] = "pipeline",
	};

	return (unsigned)algo < ALGO_COUNT ? name[algo] : "?";
}

struct text {
	char *buf;
	size_t room;
	int len; /* as snprintf counts: what it would be with enough room */
};

static void say(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *fmt, ...)
{
	size_t at = (size_t)t->len < t->room ? (size_t)t->len : t->room;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->room ? t->buf + at : NULL, t->room - at, fmt, ap);
	va_end(ap);
	t->len += n > 0 ? n : 0;
}

static void say_span(struct text *t, const struct plan_span *x)
{
	switch (x->buf) {
	case PLAN_IN:
		say(t, "in[%u]", x->block);
		break;
	case PLAN_OUT:
		say(t, "out[%u]", x->block);
		break;
	default:
		say(t, "scratch%u[%u]", x->block, x->as);
	}
}

static void say_step(struct text *t, const struct plan *p, int i)
{
	const struct plan_step *s = &p->step[i];
	const char *sep = "  after";

	say(t, "%4d  ", i);
	switch (s->op) {
	case PLAN_SEND:
		say_span(t, &s->src[0]);
		say(t, " -> %s", s->chan == PLAN_NEXT ? "next" : "prev");
		break;
	case PLAN_RECV:
		say_span(t, &s->dst);
		say(t, " <- %s%s", s->chan == PLAN_NEXT ? "next" : "prev",
		    s->flags & PLAN_FUSE ? " (fuse)" : "");
		break;
	default:
		say_span(t, &s->dst);
		say(t, " =%s", s->flags & PLAN_ACC_OUT ? " fp32" : "");
		for (int k = 0; k < s->nsrc; k++) {
			say(t, "%s", k ? " + " : " ");
			say_span(t, &s->src[k]);
		}
	}
	for (int k = 0; k < 4; k++) {
		if (s->after[k] != PLAN_NONE) {
			say(t, "%s %u", sep, s->after[k]);
			sep = "";
		}
	}
	sep = "  released";
	for (int k = 0; k < 2; k++) {
		if (s->released[k] != PLAN_NONE) {
			say(t, "%s %u", sep, s->released[k]);
			sep = "";
		}
	}
	say(t, "\n");
}

int plan_print(const struct plan *p, char *buf, size_t n)
{
	struct text t = { buf, n, 0 };

	say(&t, "%s, position %u of %u (rank %u): %u blocks, %u scratch, window %u, order: %s\n", p->name,
	    p->pos, p->n, p->rank, p->nblocks, p->nscratch, p->window, p->order);
	for (int i = 0; i < p->nsteps; i++)
		say_step(&t, p, i);
	return t.len;
}
