// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives on simulated positions, against a plain reference. A squad is a communicator: all positions, or
 * some of them, in any order of ranks. Its members run the same list of operations, several of which may be
 * started at once (a group).
 */
#include "colls.h"
#include <stdlib.h>
#include <string.h>
#include "../unit/coll_ref.h"
#include "engine/engine.h"

#define GROUP_MAX 3

struct call {
	struct op *op;
	struct cr_bufs bufs;
	void *registered; /* NULL: not */
	int job;
	bool running, held; /* held: finished, waits until its memory can be withdrawn */
};

struct member {
	struct team *team;
	struct call call[GROUP_MAX];
	int next, left; /* jobs: to be started; not finished */
	uint64_t start_at;
};

struct squad {
	int n, njobs, group;
	enum coll_shape shape;
	uint16_t node_of[COLL_MAX_RANKS], rank_of[COLL_MAX_RANKS];
	struct coll_ref job[COLLS_MAX];
	uint8_t *expect[COLLS_MAX]; /* where all ranks have the same result */
	struct member member[WORLD_MAX]; /* by position of the squad */
};

struct colls {
	struct world *world;
	uint64_t random;
	int n, nsquads;
	struct squad squad[SQUADS_MAX];
	struct engine *engine[WORLD_MAX];
	bool open;
};

static uint64_t draw(struct colls *c, uint64_t below)
{
	uint64_t z = c->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % below;
}

static void draw_job(struct colls *c, struct squad *s, struct coll_ref *j)
{
	j->kind = draw(c, 3) == 0 ? COLL_ALL_REDUCE : (enum coll_kind)draw(c, COLL_KINDS);
	j->type = draw(c, 2) ? SIRCL_BFLOAT16 : (sircl_type_t)draw(c, SIRCL_TYPE_COUNT);
	j->op = draw(c, 2) ? SIRCL_SUM : (sircl_op_t)draw(c, REDUCE_OPS);
	j->count = draw(c, 4) == 0 ? draw(c, 64) : draw(c, draw(c, 4) ? 3000 : 12000);
	j->special = draw(c, 4) == 0;
	j->n = s->n;
	j->shape = s->shape;
	j->root = coll_has_root(j->kind) ? (int)draw(c, (uint64_t)s->n) : 0;
	j->seed = draw(c, 1u << 30);
	memcpy(j->rank_of, s->rank_of, sizeof(j->rank_of));
	if (j->kind == COLL_ALL_GATHER || j->kind == COLL_REDUCE_SCATTER || j->kind == COLL_ALL_TO_ALL ||
	    j->kind == COLL_GATHER || j->kind == COLL_SCATTER) /* of one share */
		j->count = j->count * 2 / (size_t)s->n;
}

/* All positions, or some: any subset of a ring that is opened somewhere, or closed through relays. */
static void draw_squad(struct colls *c, struct squad *s, const struct world_cfg *cfg, bool whole)
{
	int left = whole ? c->n : 2 + (int)draw(c, (uint64_t)c->n - 1);
	int first = cfg->ring ? (int)draw(c, (uint64_t)c->n) : 0, more = left;

	s->shape = cfg->ring && (whole || draw(c, 2)) ? SHAPE_RING : SHAPE_LINE;
	for (int k = 0; k < c->n; k++) {
		int q = whole ? k : (first + k) % c->n;

		if ((int)draw(c, (uint64_t)(c->n - k)) >= more && !whole)
			continue;
		s->node_of[s->n++] = (uint16_t)q;
		more--;
	}
	for (int p = 0; p < s->n; p++) { /* a random permutation */
		int k = (int)draw(c, (uint64_t)p + 1);

		s->rank_of[p] = s->rank_of[k];
		s->rank_of[k] = (uint16_t)p;
	}
}

struct colls *colls_new(uint64_t seed, const struct world_cfg *cfg, int n)
{
	struct colls *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->random = seed ^ 0xc011ull << 32;
	c->n = cfg->n;
	c->nsquads = draw(c, 3) ? 1 : 1 + (int)draw(c, SQUADS_MAX);
	for (int i = 0; i < c->nsquads; i++) {
		struct squad *s = &c->squad[i];

		draw_squad(c, s, cfg, i == 0);
		s->njobs = i == 0 ? n : 1 + (int)draw(c, 3);
		s->group = draw(c, 2) ? 1 : 1 + (int)draw(c, GROUP_MAX);
		for (int k = 0; k < s->njobs; k++)
			draw_job(c, s, &s->job[k]);
		for (int p = 0; p < s->n; p++)
			s->member[p].left = s->njobs;
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

/* An algorithm may be forced if every operation can do with it. */
static bool may_force(const struct colls *c, enum coll_algo algo)
{
	enum coll_algo chosen;

	for (int i = 0; i < c->nsquads; i++)
		for (int k = 0; k < c->squad[i].njobs; k++) {
			const struct coll_ref *j = &c->squad[i].job[k];

			if (coll_choose(j->kind, j->type, j->op, 1, j->n, CLASS_SIM, j->shape, algo, false,
					&chosen) != SIRCL_SUCCESS)
				return false;
		}
	return true;
}

void colls_hook(struct colls *c, struct world_cfg *cfg)
{
	cfg->drive = drive;
	cfg->drive_deadline = drive_deadline;
	if (draw(c, 2))
		cfg->algo = (int)draw(c, ALGO_COUNT);
	if (!may_force(c, (enum coll_algo)cfg->algo))
		cfg->algo = ALGO_AUTO;
	cfg->window = 65536u << draw(c, 2);
	cfg->slice = draw(c, 3) ? 0 : 1024u << draw(c, 4);
}

bool colls_open(struct colls *c, struct world *w)
{
	c->world = w;
	for (int p = 0; p < c->n; p++) {
		struct engine_cfg cfg = { .ctx = &w->node[p].ctx, .net = w->node[p].net, .ranks_here = 1 };

		if (engine_create(&cfg, &c->engine[p]) != SIRCL_SUCCESS) {
			world_fail(w, "engine_create: %s", error_last()->msg);
			return false;
		}
		w->node[p].engine = c->engine[p];
	}
	return true;
}

static bool start_member(struct colls *c, int squad, int p)
{
	struct squad *s = &c->squad[squad];
	struct member *m = &s->member[p];
	struct tick t = { .now = sim_now(c->world->sim) };
	struct team_cfg cfg = { .name = "sim",
				.id = 1 + (uint32_t)squad,
				.rank = s->rank_of[p],
				.n = s->n,
				.pos = p,
				.shape = s->shape,
				.class = CLASS_SIM,
				.op_timeout = 30 * SEC };

	memcpy(cfg.rank_of, s->rank_of, sizeof(cfg.rank_of));
	memcpy(cfg.node_of, s->node_of, sizeof(cfg.node_of));
	if (team_create(c->engine[s->node_of[p]], &t, &cfg, &m->team) != SIRCL_SUCCESS)
		return false;
	for (int k = 0; k < s->group; k++)
		if (op_create(m->team, &m->call[k].op) != SIRCL_SUCCESS)
			return false;
	m->start_at = t.now + draw(c, 100 * USEC);
	return true;
}

bool colls_start(struct colls *c)
{
	for (int i = 0; i < c->nsquads; i++)
		for (int p = 0; p < c->squad[i].n; p++)
			if (!start_member(c, i, p)) {
				world_fail(c->world, "team or operation: %s", error_last()->msg);
				return false;
			}
	c->open = true;
	return true;
}

static void begin(struct colls *c, struct squad *s, int p, struct call *call, struct tick *t)
{
	struct member *m = &s->member[p];
	struct wnode *n = &c->world->node[s->node_of[p]];
	struct coll_ref *j = &s->job[m->next];
	int rank = s->rank_of[p];
	struct op_args a = { .kind = j->kind,
			     .count = j->count,
			     .type = j->type,
			     .op = j->op,
			     .root = j->root,
			     .scalar = cr_scalar(j, rank) };

	cr_alloc(j, rank, draw(c, 2) != 0, &call->bufs);
	a.in = call->bufs.in;
	a.out = call->bufs.out;
	call->registered =
		draw(c, 3) == 0 && call->bufs.memory[1] && !call->bufs.in_place ? call->bufs.out : NULL;
	if (call->registered &&
	    chan_net_register(n->net, t, call->bufs.out, call->bufs.out_bytes) != SIRCL_SUCCESS)
		world_fail(c->world, "collective %d: register: %s", m->next, error_last()->msg);
	call->job = m->next++;
	if (op_prepare(call->op, &a) != SIRCL_SUCCESS ||
	    engine_start(c->engine[s->node_of[p]], t, call->op) != SIRCL_SUCCESS) {
		world_fail(c->world, "collective %d: %s", call->job, error_last()->msg);
		return;
	}
	call->running = true;
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

/* The first to finish computes what all must have; where each rank has something else, each does. */
static bool check(struct squad *s, const struct call *call, int rank, char *why, size_t room)
{
	struct coll_ref *j = &s->job[call->job];
	bool same = j->kind == COLL_ALL_REDUCE || j->kind == COLL_ALL_GATHER || j->kind == COLL_BROADCAST;

	if (same && s->expect[call->job]) {
		snprintf(why, room, "rank %d: not what the first to finish has", rank);
		return memcmp(s->expect[call->job], call->bufs.out, call->bufs.out_bytes) == 0;
	}
	if (!cr_check(j, rank, &call->bufs, why, room))
		return false;
	if (same && call->bufs.out_bytes) {
		s->expect[call->job] = malloc(call->bufs.out_bytes);
		if (!s->expect[call->job])
			abort();
		memcpy(s->expect[call->job], call->bufs.out, call->bufs.out_bytes);
	}
	return true;
}

static void finish(struct colls *c, struct squad *s, int p, struct call *call)
{
	struct coll_ref *j = &s->job[call->job];
	struct sircl_error err;
	char why[128];

	call->running = false;
	call->held = true;
	if (op_result(call->op, &err) != SIRCL_SUCCESS) {
		world_fail(c->world, "collective %d of position %d: %s", call->job, s->node_of[p], err.msg);
		return;
	}
	if (!algo_of(op_algo(call->op), &j->algo)) {
		world_fail(c->world, "collective %d: unknown algorithm %s", call->job, op_algo(call->op));
		return;
	}
	if (!check(s, call, s->rank_of[p], why, sizeof(why)))
		world_fail(c->world, "collective %d (%s, %s, %zu %s, %s, root %d, %d ranks) wrong data, %s",
			   call->job, coll_kind_name(j->kind), op_algo(call->op), j->count,
			   type_name(j->type), op_name(j->op), j->root, j->n, why);
}

static void step_member(struct colls *c, struct squad *s, int p, struct tick *t)
{
	struct member *m = &s->member[p];
	struct wnode *n = &c->world->node[s->node_of[p]];

	for (int k = 0; k < s->group; k++) {
		struct call *call = &m->call[k];

		if (call->running && op_done(call->op))
			finish(c, s, p, call);
		if (!call->held)
			continue;
		if (call->registered && chan_net_deregister(n->net, t, call->registered) != SIRCL_SUCCESS) {
			m->start_at = t->now + 20 * USEC; /* a frame from it is still to be acknowledged */
			continue;
		}
		cr_free(&call->bufs);
		call->held = false;
		m->left--;
		m->start_at = t->now + (draw(c, 4) ? draw(c, 5 * USEC) : draw(c, 500 * USEC));
	}
	for (int k = 0; k < s->group; k++)
		if (!m->call[k].running && !m->call[k].held && m->next < s->njobs && t->now >= m->start_at)
			begin(c, s, p, &m->call[k], t);
}

void colls_step(struct wnode *n, struct tick *t, struct colls *c)
{
	if (!c->open)
		return;
	for (int i = 0; i < c->nsquads; i++)
		for (int p = 0; p < c->squad[i].n; p++)
			if (c->squad[i].node_of[p] == n->pos)
				step_member(c, &c->squad[i], p, t);
}

static uint64_t member_deadline(const struct squad *s, const struct member *m)
{
	bool idle = false, held = false;

	for (int k = 0; k < s->group; k++) {
		held |= m->call[k].held;
		idle |= !m->call[k].held && !m->call[k].running;
	}
	return held || (idle && m->next < s->njobs) ? m->start_at : NEVER;
}

uint64_t colls_deadline(const struct wnode *n, const struct colls *c)
{
	uint64_t d = NEVER;

	for (int i = 0; c->open && i < c->nsquads; i++)
		for (int p = 0; p < c->squad[i].n; p++)
			if (c->squad[i].node_of[p] == n->pos)
				d = tick_min(d, member_deadline(&c->squad[i], &c->squad[i].member[p]));
	return d;
}

bool colls_done(const struct colls *c)
{
	for (int i = 0; i < c->nsquads; i++)
		for (int p = 0; p < c->squad[i].n; p++)
			if (c->squad[i].member[p].left)
				return false;
	return true;
}

void colls_count(const struct colls *c, uint64_t kinds[COLL_KINDS], uint64_t *squads, uint64_t *groups)
{
	for (int i = 0; i < c->nsquads; i++) {
		const struct squad *s = &c->squad[i];
		int most = 0;

		for (int p = 0; p < s->n; p++)
			most = s->member[p].left > most ? s->member[p].left : most;
		for (int k = 0; k < s->njobs - most; k++)
			kinds[s->job[k].kind]++;
		*groups += s->group > 1;
	}
	*squads += (uint64_t)c->nsquads - 1;
}

static void close_member(struct colls *c, struct member *m)
{
	struct tick t = { .now = sim_now(c->world->sim) };

	for (int k = 0; k < GROUP_MAX; k++) {
		if (m->call[k].op)
			op_destroy(m->call[k].op);
		m->call[k].op = NULL;
	}
	if (m->team)
		team_destroy(m->team, &t);
	m->team = NULL;
}

static bool at_rest(const struct colls *c)
{
	for (int i = 0; i < c->nsquads; i++)
		for (int p = 0; p < c->squad[i].n; p++)
			for (int k = 0; k < GROUP_MAX; k++)
				if (c->squad[i].member[p].call[k].running)
					return false;
	return true;
}

void colls_close(struct colls *c)
{
	if (!c->world || !at_rest(c))
		return; /* only after a failure: the end of the world frees nothing under it */
	for (int i = 0; i < c->nsquads; i++)
		for (int p = 0; p < c->squad[i].n; p++)
			close_member(c, &c->squad[i].member[p]);
	for (int p = 0; p < c->n; p++) {
		if (c->engine[p])
			engine_destroy(c->engine[p]);
		c->engine[p] = NULL;
		c->world->node[p].engine = NULL;
	}
	c->open = false;
}

void colls_free(struct colls *c)
{
	for (int i = 0; i < c->nsquads; i++)
		for (int k = 0; k < COLLS_MAX; k++)
			free(c->squad[i].expect[k]);
	free(c);
}

void colls_where(const struct colls *c, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; i < c->nsquads; i++)
		for (int p = 0; p < c->squad[i].n && at + 80 < n; p++)
			at += (size_t)snprintf(
				buf + at, n - at, " communicator %d, position %d: %d of %d left;", i,
				c->squad[i].node_of[p], c->squad[i].member[p].left, c->squad[i].njobs);
}
