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

#define N_MOST 5
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
	int n; /* ranks */
	uint64_t seed;
	bool lost; /* lane 1 of cable 0 is dead from the start */
	unsigned cut_at; /* the lane dies after so many puts of the measured operation; 0: never */
};

struct rate_run {
	struct world w;
	struct team *team[N_MOST];
	struct op *op[N_MOST];
	uint8_t *in[N_MOST], *out[N_MOST];
	int n;
	uint64_t replayed, share[LANES]; /* bytes that position 0 sent to position 1 by each lane */
	uint32_t bits;
	size_t bytes; /* of the result */
	double gbs, first; /* bytes of the operation per ns; first: of the one before these */
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

	for (int p = 0; p < r->n; p++)
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

static size_t part(const struct rate_run *r) /* of an all-gather, of one rank */
{
	return BYTES / (size_t)r->n & ~(size_t)63;
}

static bool rate_open(struct rate_run *r, const struct rate_case *c)
{
	struct world_cfg cfg = { .fabric = &sim_spark,
				 .seed = c->seed,
				 .n = r->n,
				 .lanes = LANES,
				 .ring = true,
				 .arena_bytes = (size_t)8 << 20,
				 .relay_limit = (size_t)8 << 20,
				 .drive = drive,
				 .drive_deadline = drive_deadline,
				 .algo = ALGO_RING,
				 .user = r };
	size_t in = c->kind == COLL_ALL_GATHER ? part(r) : BYTES;

	if (!world_create(&r->w, &cfg))
		return false;
	if (c->fast > 0) {
		sim_lane_rate(r->w.sim, 0, 0, c->fast);
		sim_lane_rate(r->w.sim, 0, 1, c->slow);
	}
	for (int p = 0; p < r->n; p++) {
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
	for (int p = 0; p < r->n; p++) {
		struct tick t = { .now = sim_now(r->w.sim) };
		struct team_cfg team = { .name = "rate",
					 .id = 1,
					 .rank = p,
					 .n = r->n,
					 .pos = p,
					 .shape = SHAPE_RING,
					 .class = CLASS_SIM,
					 .op_timeout = 30 * SEC };

		for (int i = 0; i < r->n; i++)
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
			     .count = c->kind == COLL_ALL_GATHER ? part(r) / 2 : BYTES / 2,
			     .type = SIRCL_BFLOAT16,
			     .op = SIRCL_SUM };

	lanes_of(r, before);
	for (int p = 0; p < r->n; p++) {
		struct tick t = { .now = from };

		a.in = c->kind == COLL_ALL_GATHER ? r->out[p] + (size_t)p * part(r) : r->in[p];
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
	for (int p = 0; p < r->n; p++) {
		struct sircl_error err;

		if (op_result(r->op[p], &err) != SIRCL_SUCCESS)
			world_fail(&r->w, "position %d: %s", p, err.msg);
		if (memcmp(r->out[p], r->out[0], r->bytes) != 0)
			world_fail(&r->w, "positions 0 and %d have different results", p);
	}
	return sim_now(r->w.sim) - from;
}

static void rate_close(struct rate_run *r)
{
	struct tick t = { .now = sim_now(r->w.sim) };

	for (int p = 0; p < r->n; p++) {
		if (r->op[p])
			op_destroy(r->op[p]);
		if (r->team[p])
			team_destroy(r->team[p], &t);
	}
	for (int p = 0; p < r->n; p++) {
		if (r->w.node[p].engine)
			engine_destroy(r->w.node[p].engine);
		r->w.node[p].engine = NULL;
	}
	world_destroy(&r->w);
	for (int p = 0; p < r->n; p++) {
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
	r->n = c->n;
	r->bytes = c->kind == COLL_ALL_GATHER ? part(r) * (size_t)r->n : BYTES;
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
	r->bits = crc32c(0, r->out[0], r->bytes);
	ok = ns && !r->w.failure[0];
	r->first = first ? (double)r->bytes / (double)first : 0;
	r->gbs = ns ? TIMES * (double)r->bytes / (double)ns : 0;
	printf("  %-10s %-10s %-26s %7.3f GB/s (first %7.3f), lane 1 carried %4.1f %%, bits %08x\n",
	       coll_kind_name(c->kind), c->registered ? "registered" : "windows", name, r->gbs, r->first,
	       100.0 * (double)r->share[1] / (double)(r->share[0] + r->share[1] + 1), r->bits);
	if (!ok)
		printf("  FAIL  %s\n", r->w.failure);
	rate_close(r);
	return ok;
}

/* Runs it and holds it against `of` times `least`. */
static bool holds(const char *name, const struct rate_case *c, struct rate_run *run, double of, double least,
		  uint32_t bits)
{
	struct rate_run r;
	bool ok = measure(name, c, &r);

	if (ok && r.bits != bits) {
		printf("  FAIL  %s: other bits than on the whole fabric\n", name);
		ok = false;
	}
	if (ok) {
		printf("    %.3f of %.3f GB/s, at least %.2f\n", r.gbs / of, of, least);
		ok = r.gbs >= least * of;
	}
	if (!ok)
		printf("  FAIL  %s, %s\n", coll_kind_name(c->kind), name);
	*run = r;
	return ok;
}

static int ranks_of(const struct options *o)
{
	return o->ranks ? o->ranks : 4;
}

/* A lane dies at its k-th put of an operation, for the first k at which it had something that had to be sent
 * again. */
static bool dies_on_the_way(struct rate_case *c, uint32_t bits)
{
	static const unsigned at[] = { 20, 21, 22, 23, 40, 41, 42, 43 };
	struct rate_run r;
	bool ok = true, replayed = false;

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]) && ok && !replayed; i++) {
		c->cut_at = at[i];
		ok = measure("a lane dies on the way", c, &r);
		if (ok && r.bits != bits) {
			printf("  FAIL  other bits than on the whole fabric\n");
			ok = false;
		}
		replayed = r.replayed > 0;
	}
	c->cut_at = 0;
	if (ok && !replayed)
		printf("  FAIL  no frame was ever sent again: the lane was idle\n");
	return ok && replayed;
}

/* What needs no operation before it: nothing is known of the lanes then. */
static bool first_holds(const struct rate_run *r, double of)
{
	printf("    the first operation %.3f of it, at least 0.95\n", r->first / of);
	if (r->first >= 0.95 * of)
		return true;
	printf("  FAIL  the first operation\n");
	return false;
}

static bool rates_of(enum coll_kind kind, bool registered, const struct options *o)
{
	struct rate_case c = {
		.kind = kind, .registered = registered, .n = ranks_of(o), .seed = o->first_seed
	};
	struct rate_run whole, fast, run;
	bool ok;

	if (!measure("whole ring", &c, &whole))
		return false;
	c.lost = true;
	/* a rank that only gathers sends as fast as its whole side can: what is left is less, against that */
	ok = holds("one lane of four lost", &c, &run, whole.gbs, kind == COLL_ALL_REDUCE ? 0.9 : 0.8,
		   whole.bits);
	c.lost = false;
	ok = dies_on_the_way(&c, whole.bits) && ok;
	c.fast = c.slow = FAST(registered);
	c.lost = true;
	ok = measure("the fast lane alone", &c, &fast) && fast.bits == whole.bits && ok;
	c.lost = false;
	c.slow = c.fast / 10;
	ok = holds("its sister at 1/10", &c, &run, fast.gbs, 0.95, whole.bits) && ok;
	ok = first_holds(&run, fast.gbs) && ok;
	c.slow = c.fast / 2;
	ok = holds("its sister at 1/2", &c, &run, 1.5 * fast.gbs, 0.85, whole.bits) && ok;
	return ok;
}

bool case_rates(const struct options *o)
{
	bool ok = true;

	printf("(e) 64 MiB in virtual time, %d ranks, two lanes per cable, seed %llu\n", ranks_of(o),
	       (unsigned long long)o->first_seed);
	ok = rates_of(COLL_ALL_REDUCE, true, o) && ok;
	if (o->thorough) {
		ok = rates_of(COLL_ALL_REDUCE, false, o) && ok;
		ok = rates_of(COLL_ALL_GATHER, true, o) && ok;
		ok = rates_of(COLL_ALL_GATHER, false, o) && ok;
	}
	return ok;
}
