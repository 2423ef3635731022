// SPDX-License-Identifier: Apache-2.0
/*
 * (e) Rates in virtual time, on the fabric with the constants of a ring of four Sparks: what a lost lane, or
 * a lane that is slower than its sister, costs a large collective. Every result is compared byte for byte:
 * all ranks with one another, and each fabric with the whole one.
 */
#include <stdlib.h>
#include <string.h>
#include "base/crc32c.h"
#include "cases.h"
#include "engine/engine.h"
#include "world.h"

#define N 4
#define LANES 2
#define BYTES ((size_t)64 << 20) /* of an all-reduce, and of what an all-gather ends with */
#define TIMES 3
/* Gbit/s of the better lane of the uneven cable, so that this cable is what limits a rank, and not its
 * processor: through windows that copies everything once more. */
#define FAST(registered) ((registered) ? 40.0 : 16.0)

struct rate_case {
	enum coll_kind kind;
	bool registered; /* buffers, so that receives are granted; else everything goes through windows */
	double fast, slow; /* Gbit/s of the lanes of cable 0, next to position 0; 0: as the fabric has them */
	bool lost; /* lane 1 of cable 0 is dead from the start */
	unsigned cut_at; /* the lane dies after so many puts of the measured operation; 0: never */
};

struct rate_run {
	struct world w;
	struct team *team[N];
	struct op *op[N];
	uint8_t *in[N], *out[N];
	uint64_t replayed, share[LANES]; /* bytes that position 0 sent to position 1 by each lane */
	uint32_t bits;
	double gbs; /* bytes of the operation per ns */
};

static bool drive(struct wnode *n, struct tick *t)
{
	bool busy, any = false;

	while (engine_drive(n->engine, t, &busy))
		any = true;
	return any;
}

static uint64_t drive_deadline(struct wnode *n)
{
	return engine_deadline(n->engine);
}

static bool all_done(struct world *w)
{
	struct rate_run *r = w->cfg.user;

	for (int p = 0; p < N; p++)
		if (!op_done(r->op[p]))
			return false;
	return true;
}

/* bf16 numbers of all sizes about 1. */
static void fill(uint8_t *p, size_t bytes, unsigned seed)
{
	uint16_t *v = (uint16_t *)(void *)p;
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < bytes / 2; i++) {
		x = x * 1664525u + 1013904223u;
		v[i] = (uint16_t)(0x3f00 + (x >> 16 & 0x80ff));
	}
}

static bool rate_open(struct rate_run *r, const struct rate_case *c)
{
	struct world_cfg cfg = { .fabric = &sim_spark,
				 .seed = 1,
				 .n = N,
				 .lanes = LANES,
				 .ring = true,
				 .arena_bytes = (size_t)8 << 20,
				 .relay_limit = (size_t)8 << 20,
				 .drive = drive,
				 .drive_deadline = drive_deadline,
				 .algo = ALGO_RING,
				 .user = r };
	size_t in = c->kind == COLL_ALL_GATHER ? BYTES / N : BYTES;

	if (!world_create(&r->w, &cfg))
		return false;
	if (c->fast > 0) {
		sim_lane_rate(r->w.sim, 0, 0, c->fast);
		sim_lane_rate(r->w.sim, 0, 1, c->slow);
	}
	for (int p = 0; p < N; p++) {
		struct engine_cfg e = { .ctx = &r->w.node[p].ctx, .net = r->w.node[p].net, .ranks_here = 1 };

		if (engine_create(&e, &r->w.node[p].engine) != SIRCL_SUCCESS)
			return false;
		r->in[p] = malloc(in);
		r->out[p] = malloc(BYTES);
		if (!r->in[p] || !r->out[p])
			abort();
		fill(r->in[p], in, (unsigned)p);
		if (c->kind == COLL_ALL_GATHER) /* in place */
			memcpy(r->out[p] + (size_t)p * in, r->in[p], in);
	}
	if (!world_connect(&r->w))
		return false;
	if (c->lost)
		sim_kill(r->w.sim, 0, 1, 3);
	for (int p = 0; p < N; p++) {
		struct tick t = { .now = sim_now(r->w.sim) };
		struct team_cfg team = { .name = "rate",
					 .id = 1,
					 .rank = p,
					 .n = N,
					 .pos = p,
					 .shape = SHAPE_RING,
					 .class = CLASS_SIM,
					 .op_timeout = 30 * SEC };

		for (int i = 0; i < N; i++)
			team.rank_of[i] = team.node_of[i] = (uint16_t)i;
		if (c->registered &&
		    (chan_net_register(r->w.node[p].net, &t, r->in[p], in) != SIRCL_SUCCESS ||
		     chan_net_register(r->w.node[p].net, &t, r->out[p], BYTES) != SIRCL_SUCCESS))
			return false;
		if (team_create(r->w.node[p].engine, &t, &team, &r->team[p]) != SIRCL_SUCCESS ||
		    op_create(r->team[p], &r->op[p]) != SIRCL_SUCCESS)
			return false;
	}
	return true;
}

static void lanes_of(struct rate_run *r, uint64_t out[LANES])
{
	struct link_stats s;

	link_stats(r->w.node[0].link[LINK_NEXT], &s);
	for (int l = 0; l < LANES; l++)
		out[l] = s.lane_bytes_sent[l];
}

/* One operation from beginning to end; ns. */
static uint64_t rate_once(struct rate_run *r, const struct rate_case *c)
{
	uint64_t from = sim_now(r->w.sim), before[LANES], after[LANES];
	struct op_args a = { .kind = c->kind,
			     .count = c->kind == COLL_ALL_GATHER ? BYTES / N / 2 : BYTES / 2,
			     .type = SIRCL_BFLOAT16,
			     .op = SIRCL_SUM };

	lanes_of(r, before);
	for (int p = 0; p < N; p++) {
		struct tick t = { .now = from };

		a.in = c->kind == COLL_ALL_GATHER ? r->out[p] + (size_t)p * (BYTES / N) : r->in[p];
		a.out = r->out[p];
		if (op_prepare(r->op[p], &a) != SIRCL_SUCCESS ||
		    engine_start(r->w.node[p].engine, &t, r->op[p]) != SIRCL_SUCCESS) {
			world_fail(&r->w, "%s", error_last()->msg);
			return 0;
		}
	}
	if (!world_run(&r->w, all_done, 10 * SEC)) {
		world_fail(&r->w, "not finished after 10 s");
		return 0;
	}
	lanes_of(r, after);
	for (int l = 0; l < LANES; l++)
		r->share[l] = after[l] - before[l];
	for (int p = 0; p < N; p++) {
		struct sircl_error err;

		if (op_result(r->op[p], &err) != SIRCL_SUCCESS)
			world_fail(&r->w, "position %d: %s", p, err.msg);
		if (memcmp(r->out[p], r->out[0], BYTES) != 0)
			world_fail(&r->w, "positions 0 and %d have different results", p);
	}
	return sim_now(r->w.sim) - from;
}

static void rate_close(struct rate_run *r)
{
	struct tick t = { .now = sim_now(r->w.sim) };

	for (int p = 0; p < N; p++) {
		if (r->op[p])
			op_destroy(r->op[p]);
		if (r->team[p])
			team_destroy(r->team[p], &t);
	}
	for (int p = 0; p < N; p++) {
		if (r->w.node[p].engine)
			engine_destroy(r->w.node[p].engine);
		r->w.node[p].engine = NULL;
	}
	world_destroy(&r->w);
	for (int p = 0; p < N; p++) {
		free(r->in[p]);
		free(r->out[p]);
	}
}

/* The rate of TIMES operations after the first, which finds out what the lanes are worth. */
static bool measure(const char *name, const struct rate_case *c, struct rate_run *r)
{
	struct link_totals totals = { 0 };
	uint64_t first, ns = 0;
	bool ok;

	memset(r, 0, sizeof(*r));
	if (!rate_open(r, c))
		world_fail(&r->w, "%s", error_last()->msg);
	r->w.phase = name;
	first = r->w.failure[0] ? 0 : rate_once(r, c);
	if (first && c->cut_at)
		sim_kill_at_put_of(r->w.sim, 0, 1, 0, c->cut_at, 3);
	for (int i = 0; first && i < TIMES && !r->w.failure[0]; i++)
		ns += rate_once(r, c);
	world_totals(&r->w, &totals);
	r->replayed = totals.replayed;
	r->bits = crc32c(0, r->out[0], BYTES);
	ok = ns && !r->w.failure[0];
	r->gbs = ns ? TIMES * (double)BYTES / (double)ns : 0;
	printf("  %-10s %-10s %-26s %7.3f GB/s (first %7.3f), lane 1 carried %4.1f %%, bits %08x\n",
	       coll_kind_name(c->kind), c->registered ? "registered" : "windows", name, r->gbs,
	       first ? (double)BYTES / (double)first : 0.0,
	       100.0 * (double)r->share[1] / (double)(r->share[0] + r->share[1] + 1), r->bits);
	if (!ok)
		printf("  FAIL  %s\n", r->w.failure);
	rate_close(r);
	return ok;
}

/* Runs it and holds it against `of` times `least`. */
static bool holds(const char *name, const struct rate_case *c, double of, double least, uint32_t bits)
{
	struct rate_run r;
	bool ok = measure(name, c, &r);

	if (ok && r.bits != bits) {
		printf("  FAIL  %s: other bits than on the whole fabric\n", name);
		ok = false;
	}
	if (ok && c->cut_at && !r.replayed) {
		printf("  FAIL  %s: no frame was sent again: the lane was idle\n", name);
		ok = false;
	}
	if (ok && least > 0) {
		printf("    %.3f of %.3f GB/s, at least %.2f\n", r.gbs / of, of, least);
		ok = r.gbs >= least * of;
	}
	if (!ok)
		printf("  FAIL  %s, %s\n", coll_kind_name(c->kind), name);
	return ok;
}

static bool rates_of(enum coll_kind kind, bool registered)
{
	struct rate_case c = { .kind = kind, .registered = registered };
	struct rate_run whole, fast;
	bool ok;

	if (!measure("whole ring", &c, &whole))
		return false;
	c.lost = true;
	/* a rank that only gathers sends as fast as its whole side can: what is left is less, against that */
	ok = holds("one lane of four lost", &c, whole.gbs, kind == COLL_ALL_REDUCE ? 0.9 : 0.8, whole.bits);
	c.lost = false;
	c.cut_at = 20;
	ok = holds("a lane dies on the way", &c, 0, 0, whole.bits) && ok;
	c.cut_at = 0;
	c.fast = c.slow = FAST(registered);
	c.lost = true;
	ok = measure("the fast lane alone", &c, &fast) && fast.bits == whole.bits && ok;
	c.lost = false;
	c.slow = c.fast / 10;
	ok = holds("its sister at 1/10", &c, fast.gbs, 0.95, whole.bits) && ok;
	c.slow = c.fast / 2;
	ok = holds("its sister at 1/2", &c, 1.5 * fast.gbs, 0.85, whole.bits) && ok;
	return ok;
}

bool case_rates(const struct options *o)
{
	bool ok = true;

	printf("(e) 64 MiB in virtual time, four ranks, two lanes per cable\n");
	ok = rates_of(COLL_ALL_REDUCE, true) && ok;
	if (o->thorough) {
		ok = rates_of(COLL_ALL_REDUCE, false) && ok;
		ok = rates_of(COLL_ALL_GATHER, true) && ok;
		ok = rates_of(COLL_ALL_GATHER, false) && ok;
	}
	return ok;
}
