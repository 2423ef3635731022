/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a collective costs a rank's processor, apart from waiting: four contexts in one process and one
 * thread, driven in turn, over simulated lanes or shared memory. bench/instructions.sh counts the
 * instructions of `measured`; by itself the program prints the nanoseconds per operation and rank.
 *
 *   ring_cost sim|shm BYTES OPERATIONS [KIND]
 *
 * KIND: all_reduce (if left out), all_gather ...; root is rank 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/engine.h"
#include "lane/sim.h"

#define RANKS 4
#define WARM_UP 200
#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif

struct rank {
	struct ring *ring;
	struct sircl_ctx ctx;
	struct key_ring keys;
	struct chan_net *net;
	struct link *link[LINK_SIDES];
	struct engine *engine;
	struct team *team;
	struct op *op;
	float *in, *out;
	int node;
};

struct ring {
	const struct lane_ops *ops;
	struct sim *sim; /* NULL: real lanes */
	char lab[32];
	struct rank rank[RANKS];
	enum coll_kind kind;
	size_t count;
};

static void fail(const char *what)
{
	fprintf(stderr, "ring_cost: %s: %s\n", what, error_last()->msg);
	exit(1);
}

#define MUST(call) \
	do { \
		if ((call) != SIRCL_SUCCESS) \
			fail(#call); \
	} while (0)

static void notice(void *user, struct tick *t, const struct chan_notice *n)
{
	(void)user;
	(void)t;
	(void)n;
}

static void sim_turn(void *arg, struct tick *t)
{
	struct rank *r = arg;
	bool busy;

	while (r->engine && engine_drive(r->engine, t, &busy))
		;
}

static uint64_t sim_turn_deadline(void *arg)
{
	struct rank *r = arg;

	return r->engine ? engine_deadline(r->engine) : NEVER;
}

static void open_rank(struct ring *g, int p)
{
	struct rank *r = &g->rank[p];
	struct chan_net_cfg nc = { .ctx = &r->ctx, .self = p, .n = RANKS, .ring = true, .notice = notice };

	r->ring = g;
	MUST(params_load(&r->ctx.params));
	r->ctx.log = (struct log){ .level = LOG_NONE, .fd = 2 };
	r->ctx.rank = p;
	r->ctx.nranks = RANKS;
	r->ctx.clock = g->sim ? sim_clock : lane_clock_real;
	r->ctx.clock_arg = g->sim;
	MUST(key_ring_init(&r->keys));
	MUST(key_ring_add(&r->keys, KEY_UNIQUE_ID, "secret of the job", 17));
	MUST(chan_net_create(&nc, &r->net));
	if (g->sim)
		r->node = sim_node(
			g->sim,
			&(struct sim_program){ .run = sim_turn, .deadline = sim_turn_deadline, .arg = r });
}

static void open_link(struct ring *g, int p, enum link_side side, int cable, struct sim_port *port)
{
	struct rank *r = &g->rank[p];
	int peer = (p + (side == LINK_NEXT ? 1 : RANKS - 1)) % RANKS;
	struct link_cfg lc = { .ctx = &r->ctx,
			       .keys = &r->keys,
			       .lab = g->lab,
			       .side = side,
			       .cable = (uint16_t)cable,
			       .self = (uint16_t)p,
			       .peer = (uint16_t)peer,
			       .self_rank = (uint16_t)p,
			       .peer_rank = (uint16_t)peer,
			       .connects = side == LINK_NEXT,
			       .nlanes = 1,
			       .lane[0] = { .ops = g->ops, .provider = port },
			       .arena_bytes = 4 << 20,
			       .ops = chan_net_link_ops(),
			       .user = r->net };

	MUST(link_open(&lc, &r->link[side]));
	chan_net_set_link(r->net, side, r->link[side]);
}

static void connect_links(struct ring *g)
{
	struct tick t = ctx_tick(&g->rank[0].ctx);

	for (int p = 0; p < RANKS; p++) {
		for (int s = 0; s < LINK_SIDES; s++) {
			struct link_addr a;

			link_local_addr(g->rank[(p + (s == LINK_NEXT ? 1 : RANKS - 1)) % RANKS].link[!s], &a);
			MUST(link_connect(g->rank[p].link[s], &t, &a));
		}
	}
}

static void open_team(struct ring *g, int p)
{
	struct rank *r = &g->rank[p];
	struct engine_cfg ec = { .ctx = &r->ctx, .net = r->net, .ranks_here = RANKS };
	struct team_cfg tc = { .name = "comm",
			       .id = 1,
			       .rank = p,
			       .n = RANKS,
			       .pos = p,
			       .shape = SHAPE_RING,
			       .class = g->sim ? CLASS_SIM : CLASS_SHM,
			       .op_timeout = 30 * SEC };
	struct tick t = ctx_tick(&r->ctx);

	for (int i = 0; i < RANKS; i++)
		tc.rank_of[i] = tc.node_of[i] = (uint16_t)i;
	MUST(engine_create(&ec, &r->engine));
	MUST(team_create(r->engine, &t, &tc, &r->team));
	MUST(op_create(r->team, &r->op));
	r->in = malloc(RANKS * g->count * sizeof(float) + 64);
	r->out = malloc(RANKS * g->count * sizeof(float) + 64);
	if (!r->in || !r->out)
		fail("no memory");
	for (size_t i = 0; i < RANKS * g->count; i++)
		r->in[i] = (float)(p + 1);
}

static bool all_done(void *arg)
{
	const struct ring *g = arg;

	for (int p = 0; p < RANKS; p++)
		if (!op_done(g->rank[p].op))
			return false;
	return true;
}

static bool all_up(void *arg)
{
	const struct ring *g = arg;

	for (int p = 0; p < RANKS; p++)
		for (int s = 0; s < LINK_SIDES; s++)
			if (link_state(g->rank[p].link[s]) != LINK_UP)
				return false;
	return true;
}

static void run_until(struct ring *g, bool (*done)(void *))
{
	bool busy;

	if (g->sim) {
		for (int p = 0; p < RANKS; p++)
			sim_wake(g->sim, g->rank[p].node);
		if (!sim_run(g->sim, done, g, sim_now(g->sim) + 10 * SEC))
			fail("it hangs");
		return;
	}
	while (!done(g)) {
		for (int p = 0; p < RANKS; p++) {
			struct tick t = ctx_tick(&g->rank[p].ctx);

			engine_drive(g->rank[p].engine, &t, &busy);
		}
	}
}

static void operation(struct ring *g)
{
	for (int p = 0; p < RANKS; p++) {
		struct rank *r = &g->rank[p];
		struct op_args a = { .kind = g->kind,
				     .in = r->in,
				     .out = r->out,
				     .count = g->count,
				     .type = SIRCL_FLOAT32,
				     .op = SIRCL_SUM };
		struct tick t = ctx_tick(&r->ctx);

		MUST(op_prepare(r->op, &a));
		MUST(engine_start(r->engine, &t, r->op));
	}
	run_until(g, all_done);
	for (int p = 0; p < RANKS; p++) {
		struct sircl_error err;

		if (op_result(g->rank[p].op, &err) != SIRCL_SUCCESS) {
			fprintf(stderr, "ring_cost: %s\n", err.msg);
			exit(1);
		}
	}
}

/* The tool finds it by its name, so it stays a function of its own. */
APART static void measured(struct ring *g, int n)
{
	for (int i = 0; i < n; i++)
		operation(g);
	__asm__ __volatile__("" ::: "memory"); /* no tail call: the tool looks for the return */
}

static enum coll_kind kind_of(const char *name)
{
	int k = 0;

	while (k < COLL_KINDS && strcmp(coll_kind_name((enum coll_kind)k), name) != 0)
		k++;
	return (enum coll_kind)k;
}

/* Of the kinds that sum everything for everybody; what others give is the tests' business. */
static void check_sums(const struct ring *g)
{
	for (size_t i = 0; i < g->count && g->kind == COLL_ALL_REDUCE; i++)
		if (g->rank[i % RANKS].out[i] != 10)
			fail("wrong result");
}

int main(int argc, char **argv)
{
	static struct ring ring;
	struct sim_port *a[RANKS] = { 0 }, *b[RANKS] = { 0 };
	struct ring *g = &ring;
	uint64_t from;
	long n;

	if (argc < 4 || argc > 5 || (strcmp(argv[1], "sim") != 0 && strcmp(argv[1], "shm") != 0) ||
	    (n = atol(argv[3])) < 1 || (g->kind = kind_of(argc > 4 ? argv[4] : "all_reduce")) == COLL_KINDS) {
		fprintf(stderr, "usage: ring_cost sim|shm BYTES OPERATIONS [KIND]\n");
		return 2;
	}
	g->count = strtoul(argv[2], NULL, 0) / sizeof(float);
	g->ops = strcmp(argv[1], "sim") != 0 ? &lane_shm_ops : &lane_sim_ops;
	snprintf(g->lab, sizeof(g->lab), "cost-%d", (int)getpid());
	if (g->ops == &lane_sim_ops)
		MUST(sim_create(&g->sim, &sim_spark, 1));
	for (int p = 0; p < RANKS; p++)
		open_rank(g, p);
	for (int c = 0; c < RANKS; c++) {
		int far = (c + 1) % RANKS;

		if (g->sim)
			sim_cable_lane(g->sim, c, 0, g->rank[c].node, g->rank[far].node, &a[c], &b[c]);
		open_link(g, c, LINK_NEXT, c, a[c]);
		open_link(g, far, LINK_PREV, c, b[c]);
	}
	connect_links(g);
	for (int p = 0; p < RANKS; p++)
		open_team(g, p);
	run_until(g, all_up);
	for (int i = 0; i < WARM_UP; i++)
		operation(g);
	from = lane_clock_real(NULL);
	measured(g, (int)n);
	printf("%.1f ns\n", (double)(lane_clock_real(NULL) - from) / (double)n / RANKS);
	check_sums(g);
	return 0;
}
