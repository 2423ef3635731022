/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: the last FLIGHT_OPS operations of a team. Written by the driver, read by any thread
 * that makes a report; every field is a relaxed atomic, so that a report never waits, and a line that is
 * being overwritten is at worst a mixture of two operations.
 */
#include "engine/internal.h"
#include <stdio.h>

#define SET(x, v) atomic_store_explicit(&(x), (v), memory_order_relaxed)
#define GET(x) atomic_load_explicit(&(x), memory_order_relaxed)

void flight_start(struct op *op, uint64_t now)
{
	struct flight *f = &op->team->flight[op->number % FLIGHT_OPS];
	const struct op_args *a = &op->args;

	SET(f->number, op->number);
	SET(f->count, a->count);
	SET(f->started, now);
	SET(f->finished, 0);
	SET(f->what,
	    (uint32_t)a->kind | (uint32_t)a->type << 8 | (uint32_t)a->op << 16 | (uint32_t)op->algo << 24);
	SET(f->root, (uint32_t)a->root);
	SET(f->state, FLIGHT_RUNNING);
}

void flight_end(struct op *op, uint64_t now, bool ok)
{
	struct flight *f = &op->team->flight[op->number % FLIGHT_OPS];

	if (GET(f->number) != op->number)
		return;
	SET(f->finished, now);
	SET(f->state, ok ? FLIGHT_DONE : FLIGHT_FAILED);
}

static int flight_line(const struct flight *f, char *buf, size_t n)
{
	static const char *const state[] = { "", "running", "finished", "failed" };
	uint32_t what = GET(f->what), s = GET(f->state);
	struct op_args a = { .kind = (enum coll_kind)(what & 255),
			     .type = (sircl_type_t)(what >> 8 & 255),
			     .op = (sircl_op_t)(what >> 16 & 255),
			     .root = (int)GET(f->root),
			     .count = (size_t)GET(f->count) };
	uint64_t started = GET(f->started), finished = GET(f->finished);
	char call[112];
	int len;

	call_text(&a, "", call, sizeof(call));
	len = snprintf(buf, n, "number %llu: %s by %s, started at %.6f s, %s",
		       (unsigned long long)GET(f->number), call, coll_algo_name((enum coll_algo)(what >> 24)),
		       (double)started / 1e9, state[s <= FLIGHT_FAILED ? s : 0]);

	if (finished && len > 0 && (size_t)len < n)
		len += snprintf(buf + len, n - (size_t)len, " after %.1f us",
				(double)(finished - started) / 1e3);
	return len;
}

/* Tells each operation, oldest first, as a line. */
static void flight_each(const struct team *t, void (*tell)(void *, const char *line, size_t len), void *arg)
{
	uint64_t newest = 0;

	for (int i = 0; i < FLIGHT_OPS; i++)
		if (GET(t->flight[i].state) != FLIGHT_NONE && GET(t->flight[i].number) > newest)
			newest = GET(t->flight[i].number);
	for (uint64_t k = newest >= FLIGHT_OPS ? newest - FLIGHT_OPS + 1 : 0; k <= newest; k++) {
		const struct flight *f = &t->flight[k % FLIGHT_OPS];
		char line[256];
		int len;

		if (GET(f->state) == FLIGHT_NONE || GET(f->number) != k)
			continue;
		len = flight_line(f, line, sizeof(line));
		if (len >= 0)
			tell(arg, line, (size_t)len);
	}
}

struct flight_buf {
	char *p;
	size_t room, used;
};

static void to_buf(void *arg, const char *line, size_t len)
{
	struct flight_buf *b = arg;

	if (b->used < b->room)
		snprintf(b->p + b->used, b->room - b->used, "%s\n", line);
	b->used += len + 1;
}

int team_flight_text(const struct team *t, char *buf, size_t n)
{
	struct flight_buf b = { buf, n, 0 };

	if (n)
		buf[0] = '\0';
	flight_each(t, to_buf, &b);
	return (int)b.used;
}

static void to_log(void *arg, const char *line, size_t len)
{
	const struct team *t = arg;

	(void)len;
	log_info(&t->engine->cfg.ctx->log, LOG_ENGINE, "%s: flight recorder: %s", t->name, line);
}

void flight_report(struct team *t)
{
	if (log_on(&t->engine->cfg.ctx->log, LOG_INFO, LOG_ENGINE))
		flight_each(t, to_log, t);
}
