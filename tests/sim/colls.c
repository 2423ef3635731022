// SPDX-License-Identifier: Apache-2.0
/* Collectives on simulated positions, against a plain reference. */
#include "colls.h"
#include <stdlib.h>
#include <string.h>
#include "../unit/engine_ref.h"

struct member {
	struct engine *engine;
	struct team *team;
	struct op *op;
	struct ref_bufs bufs;
	bool running, registered, held; /* held: finished, waits until its memory can be withdrawn */
	int next;
	uint64_t start_at;
};

struct colls {
	struct world *world;
	uint64_t random;
	int n, nops;
	struct ref_job job[COLLS_MAX];
	uint8_t *expect[COLLS_MAX];
	struct member member[WORLD_MAX];
	uint16_t rank_of[COLL_MAX_RANKS];
	bool open;
};

static uint64_t draw(struct colls *c, uint64_t below)
{
	uint64_t z = c->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % below;
}

struct colls *colls_new(uint64_t seed, const struct world_cfg *cfg, int n)
{
	struct colls *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->random = seed ^ 0xc011ull << 32;
	c->n = cfg->n;
	c->nops = n;
	for (int p = 0; p < c->n; p++) { /* a random permutation */
		int k = (int)draw(c, (uint64_t)p + 1);

		c->rank_of[p] = c->rank_of[k];
		c->rank_of[k] = (uint16_t)p;
	}
	for (int i = 0; i < n; i++) {
		struct ref_job *j = &c->job[i];

		j->kind = draw(c, 3) ? COLL_ALL_REDUCE : COLL_ALL_GATHER;
		j->type = draw(c, 2) ? SIRCL_BFLOAT16 : SIRCL_FLOAT32;
		j->count = draw(c, 4) == 0 ? draw(c, 64) : draw(c, draw(c, 4) ? 3000 : 12000);
		j->n = c->n;
		j->seed = draw(c, 1u << 30);
		memcpy(j->rank_of, c->rank_of, sizeof(j->rank_of));
	}
	return c;
}

static bool drive(struct wnode *n, struct tick *t)
{
	/* set by colls_hook; the world's user is whatever its own steps need */
	struct engine *e = n->engine;
	bool busy, any = false;

	if (!e)
		return chan_net_progress(n->net, t);
	while (engine_drive(e, t, &busy))
		any = true;
	return any;
}

static uint64_t drive_deadline(struct wnode *n)
{
	return n->engine ? engine_deadline(n->engine) : chan_net_deadline(n->net);
}

void colls_hook(struct colls *c, struct world_cfg *cfg)
{
	cfg->drive = drive;
	cfg->drive_deadline = drive_deadline;
	if (c->n <= 4 && draw(c, 2))
		cfg->algo = (int)draw(c, ALGO_COUNT);
	if (cfg->algo != ALGO_AUTO && (!coll_can(COLL_ALL_REDUCE, (enum coll_algo)cfg->algo, c->n,
						 cfg->ring ? SHAPE_RING : SHAPE_LINE)))
		cfg->algo = ALGO_AUTO;
	cfg->window = 65536u << draw(c, 2);
	cfg->slice = draw(c, 3) ? 0 : 1024u << draw(c, 4);
}

bool colls_open(struct colls *c, struct world *w)
{
	c->world = w;
	for (int p = 0; p < c->n; p++) {
		struct engine_cfg cfg = { .ctx = &w->node[p].ctx, .net = w->node[p].net, .ranks_here = 1 };

		if (engine_create(&cfg, &c->member[p].engine) != SIRCL_SUCCESS) {
			world_fail(w, "engine_create: %s", error_last()->msg);
			return false;
		}
		w->node[p].engine = c->member[p].engine;
	}
	return true;
}

bool colls_start(struct colls *c)
{
	struct world *w = c->world;

	for (int p = 0; p < c->n; p++) {
		struct member *m = &c->member[p];
		struct tick t = { .now = sim_now(w->sim) };
		struct team_cfg cfg = { .name = "sim",
					.id = 1,
					.rank = c->rank_of[p],
					.n = c->n,
					.pos = p,
					.shape = w->cfg.ring ? SHAPE_RING : SHAPE_LINE,
					.class = CLASS_SIM,
					.op_timeout = 30 * SEC };

		memcpy(cfg.rank_of, c->rank_of, sizeof(cfg.rank_of));
		for (uint16_t q = 0; q < c->n; q++)
			cfg.node_of[q] = q;
		if (team_create(m->engine, &t, &cfg, &m->team) != SIRCL_SUCCESS ||
		    op_create(m->team, &m->op) != SIRCL_SUCCESS) {
			world_fail(w, "team or operation: %s", error_last()->msg);
			return false;
		}
		m->start_at = t.now + draw(c, 100 * USEC);
	}
	c->open = true;
	return true;
}

static void begin(struct colls *c, struct wnode *n, struct tick *t)
{
	struct member *m = &c->member[n->pos];
	struct ref_job *j = &c->job[m->next];
	struct op_args a = { .kind = j->kind, .count = j->count, .type = j->type, .op = SIRCL_SUM };

	ref_alloc(j, c->rank_of[n->pos], draw(c, 2), &m->bufs);
	a.in = m->bufs.in;
	a.out = m->bufs.out;
	m->registered = draw(c, 3) == 0 && m->bufs.out_bytes;
	if (m->registered && chan_net_register(n->net, t, m->bufs.out, m->bufs.out_bytes) != SIRCL_SUCCESS)
		world_fail(c->world, "collective %d: register: %s", m->next, error_last()->msg);
	if (op_prepare(m->op, &a) != SIRCL_SUCCESS || engine_start(m->engine, t, m->op) != SIRCL_SUCCESS) {
		world_fail(c->world, "collective %d: %s", m->next, error_last()->msg);
		return;
	}
	m->running = true;
}

static bool algo_of(const char *name, enum coll_algo *out)
{
	for (int a = 0; a < ALGO_COUNT; a++)
		if (strcmp(name, coll_algo_name((enum coll_algo)a)) == 0) {
			*out = (enum coll_algo)a;
			return true;
		}
	return false;
}

static void finish(struct colls *c, struct wnode *n)
{
	struct member *m = &c->member[n->pos];
	struct ref_job *j = &c->job[m->next];
	struct sircl_error err;

	m->running = false;
	if (op_result(m->op, &err) != SIRCL_SUCCESS) {
		world_fail(c->world, "collective %d of position %d: %s", m->next, n->pos, err.msg);
		return;
	}
	if (!c->expect[m->next]) {
		size_t bytes = j->count * 4 * (j->kind == COLL_ALL_GATHER ? (size_t)j->n : 1);

		if (!algo_of(op_algo(m->op), &j->algo)) {
			world_fail(c->world, "collective %d: unknown algorithm %s", m->next, op_algo(m->op));
			return;
		}
		c->expect[m->next] = malloc(bytes + 1);
		if (!c->expect[m->next])
			abort();
		ref_result(j, c->expect[m->next]);
	}
	if (!ref_check(j, c->rank_of[n->pos], &m->bufs, c->expect[m->next]))
		world_fail(c->world, "collective %d (%s, %s, %zu elements) of position %d: wrong data",
			   m->next, coll_kind_name(j->kind), op_algo(m->op), j->count, n->pos);
	m->held = true;
}

void colls_step(struct wnode *n, struct tick *t, struct colls *c)
{
	struct member *m = &c->member[n->pos];

	if (!c->open)
		return;
	if (m->running && op_done(m->op))
		finish(c, n);
	if (m->held && (!m->registered || chan_net_deregister(n->net, t, m->bufs.out) == SIRCL_SUCCESS)) {
		ref_free(&m->bufs);
		m->held = false;
		m->next++;
		m->start_at = t->now + (draw(c, 4) ? draw(c, 5 * USEC) : draw(c, 500 * USEC));
	} else if (m->held) {
		m->start_at = t->now + 20 * USEC; /* a frame from it is still to be acknowledged */
	}
	if (!m->running && !m->held && m->next < c->nops && t->now >= m->start_at)
		begin(c, n, t);
}

uint64_t colls_deadline(const struct wnode *n, const struct colls *c)
{
	const struct member *m = &c->member[n->pos];

	return c->open && !m->running && (m->held || m->next < c->nops) ? m->start_at : NEVER;
}

bool colls_done(const struct colls *c)
{
	for (int p = 0; p < c->n; p++)
		if (c->member[p].next < c->nops)
			return false;
	return true;
}

uint64_t colls_finished(const struct colls *c)
{
	int least = c->nops;

	for (int p = 0; p < c->n; p++)
		least = c->member[p].next < least ? c->member[p].next : least;
	return (uint64_t)least;
}

void colls_close(struct colls *c)
{
	for (int p = 0; p < c->n; p++) {
		struct member *m = &c->member[p];
		struct tick t = { .now = sim_now(c->world->sim) };

		if (m->running || !m->engine)
			continue; /* only after a failure: the end of the world frees nothing under it */
		if (m->op)
			op_destroy(m->op);
		if (m->team)
			team_destroy(m->team, &t);
		engine_destroy(m->engine);
		c->world->node[p].engine = NULL;
		m->engine = NULL;
		m->team = NULL;
		m->op = NULL;
	}
	c->open = false;
}

void colls_free(struct colls *c)
{
	for (int i = 0; i < c->nops; i++)
		free(c->expect[i]);
	free(c);
}

void colls_where(const struct colls *c, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int p = 0; p < c->n && at + 64 < n; p++)
		at += (size_t)snprintf(buf + at, n - at, " position %d in collective %d%s;", p,
				       c->member[p].next, c->member[p].running ? "" : " (not started)");
}
