/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random program on the public header. Every rank draws the same calls from one seed: all kinds, types and
 * operations, several communicators out of splits of splits, which end in any order, blocking and started
 * calls and groups over several communicators, messages between all pairs and to oneself. What the ranks do
 * in different orders is what the header leaves to them: the order of calls on different communicators in a
 * group, and in which order, and how, they wait.
 *
 * `api_random [N [FIRST_SEED [SEEDS [STEPS]]]]`: N ranks as threads; or under sircl run, where N is ignored.
 * A seed that fails is printed and replays.
 */
#include <unistd.h>
#include "random_op.h"

#define COMMS 6
#define PENDING 48
#define GROUP 10

struct member_list {
	sircl_comm_t comm; /* NULL: this rank is no member */
	bool live;
	int n, world[RANKS_MAX];
};

struct prog {
	uint64_t seed, all, own; /* generators: equal on all ranks, of this rank */
	int rank, n, step;
	struct member_list c[COMMS];
	struct inst pending[PENDING];
	int npending;
	const char *doing;
};

static int steps = 60;

static uint64_t draw(uint64_t *g, uint64_t below)
{
	*g += 0x9e3779b97f4a7c15ull;
	return mix(*g) % below;
}

/* Ends the whole program: the other ranks could only wait. */
static void fail(const struct prog *p, const struct inst *o, const char *what)
{
	fprintf(stderr, "FAIL: seed %llu, %d ranks, step %d, rank %d: %s: %s", (unsigned long long)p->seed,
		p->n, p->step, p->rank, p->doing, what);
	if (o)
		fprintf(stderr,
			": %s of %zu, type %d, operation %d, root %d, to %d, communicator %d, place %d of "
			"%d%s%s",
			kind_names[o->d.kind], o->d.count, (int)o->d.type, o->d.op, o->d.root, o->d.to,
			o->d.comm, o->p.rank, o->p.n, o->d.in_place ? ", in place" : "",
			o->d.started ? ", started" : "");
	fprintf(stderr, ": %s\n", sircl_last_error(NULL));
	_exit(1);
}

static int place_in(const struct member_list *m, int rank)
{
	for (int i = 0; i < m->n; i++)
		if (m->world[i] == rank)
			return i;
	return -1;
}

static int draw_comm(struct prog *p)
{
	int c;

	do
		c = (int)draw(&p->all, COMMS);
	while (!p->c[c].live);
	return c;
}

static size_t draw_count(struct prog *p, int n)
{
	static const size_t small[] = { 0, 1, 2, 3, 7, 64, 1000 };

	switch (draw(&p->all, 8)) {
	case 0:
	case 1:
		return small[draw(&p->all, sizeof(small) / sizeof(*small))];
	case 2:
		return draw(&p->all, 120000 / (size_t)n) | 1;
	case 3:
		return draw(&p->all, 20000);
	default:
		return draw(&p->all, 700);
	}
}

static struct desc draw_desc(struct prog *p, int comm, bool messages)
{
	int n = p->c[comm].n;
	struct desc d = { .comm = comm,
			  .kind = (enum kind)draw(&p->all, messages ? KINDS + 3 : BARRIER + 1) };

	if (d.kind > MESSAGE)
		d.kind = MESSAGE;
	d.type = (sircl_type_t)draw(&p->all, SIRCL_TYPE_COUNT);
	d.op = reduces(d.kind) ? (int)draw(&p->all, OPS) : SIRCL_SUM;
	if (d.op == SIRCL_AVG && is_integer(d.type) && getenv("SIRCL_ALGO"))
		d.op = SIRCL_SUM; /* not every algorithm has it, and a group must not be refused on some ranks
				     only */
	d.root = (int)draw(&p->all, (uint64_t)n);
	d.to = (int)draw(&p->all, (uint64_t)n);
	d.count = draw_count(p, n);
	d.in_place = draw(&p->all, 3) == 0;
	d.started = draw(&p->all, 2);
	d.seed = draw(&p->all, UINT64_MAX);
	return d;
}

/* False: this rank has no part in it. */
static bool take_part(struct prog *p, const struct desc *d, struct inst *o)
{
	const struct member_list *m = &p->c[d->comm];
	struct place at = { .rank = place_in(m, p->rank), .n = m->n, .comm = m->comm };
	uint64_t scalar;

	if (at.rank < 0 || (d->kind == MESSAGE && at.rank != d->root && at.rank != d->to))
		return false;
	inst_open(o, d, &at);
	o->op = (sircl_op_t)d->op;
	if (d->op == PREMUL) {
		scalar = scalar_of(d, at.rank);
		if (!is_integer(d->type))
			scalar = encode(d->type, scalar);
		if (sircl_op_create_premul_sum(&o->op, &scalar, d->type, at.comm) != SIRCL_SUCCESS)
			fail(p, o, "no pre-multiplied sum");
		o->made_op = true;
	}
	return true;
}

static void finish(struct prog *p, struct inst *o)
{
	size_t bad = inst_check(o);
	char what[64];

	if (bad) {
		snprintf(what, sizeof(what), "%zu wrong elements", bad);
		fail(p, o, what);
	}
	inst_close(o);
}

/* An operation may go as soon as the call has been made. */
static void drop_op(struct prog *p, struct inst *o)
{
	if (o->made_op && sircl_op_destroy(o->op, o->p.comm) != SIRCL_SUCCESS)
		fail(p, o, "sircl_op_destroy");
	o->made_op = false;
}

static void wait_for(struct prog *p, struct inst *o)
{
	for (int k = 0; k < 2; k++) {
		int done = 0;

		if (draw(&p->own, 2))
			while (!done)
				if (sircl_test(&o->request[k], &done) != SIRCL_SUCCESS)
					fail(p, o, "sircl_test");
		if (sircl_wait(&o->request[k]) != SIRCL_SUCCESS || o->request[k])
			fail(p, o, "sircl_wait");
	}
	finish(p, o);
}

/* Waits for what is pending, of one communicator or (-1) of all, each rank in an order of its own. */
static void drain(struct prog *p, int comm)
{
	int left = 0;

	for (int i = p->npending - 1; i > 0; i--) {
		int k = (int)draw(&p->own, (uint64_t)i + 1);
		struct inst x = p->pending[i];

		p->pending[i] = p->pending[k];
		p->pending[k] = x;
	}
	for (int i = 0; i < p->npending; i++) {
		if (comm >= 0 && p->pending[i].d.comm != comm)
			p->pending[left++] = p->pending[i];
		else
			wait_for(p, &p->pending[i]);
	}
	p->npending = left;
}

static struct inst *pend(struct prog *p, const struct inst *o)
{
	p->pending[p->npending] = *o;
	return &p->pending[p->npending++];
}

static void one(struct prog *p)
{
	struct desc d = draw_desc(p, draw_comm(p), true);
	struct inst o, *q;

	p->doing = "one call";
	if (d.kind == MESSAGE && d.root == d.to)
		d.started = true;
	if (p->npending == PENDING)
		drain(p, -1);
	if (!take_part(p, &d, &o))
		return;
	if (d.started) {
		q = pend(p, &o);
		if (call_start(q) != SIRCL_SUCCESS)
			fail(p, q, "start");
		drop_op(p, q);
		return;
	}
	if (call_now(&o) != SIRCL_SUCCESS)
		fail(p, &o, "call");
	drop_op(p, &o);
	finish(p, &o);
}

/* Several calls as a group. Calls on communicators of one parity come first; which one, each rank says. */
static void group(struct prog *p)
{
	struct desc d[GROUP];
	struct inst o[GROUP];
	bool in[GROUP] = { false };
	int n = 1 + (int)draw(&p->all, GROUP), first = (int)draw(&p->own, 2), comm;

	p->doing = "a group";
	for (int i = 0; i < n; i++) {
		comm = draw_comm(p);
		d[i] = draw_desc(p, comm, true);
		d[i].started &= d[i].kind != MESSAGE || d[i].root != d[i].to;
	}
	if (p->npending + n > PENDING)
		drain(p, -1);
	for (int i = 0; i < n; i++)
		in[i] = take_part(p, &d[i], &o[i]);
	sircl_group_begin();
	for (int way = 0; way < 2; way++)
		for (int i = 0; i < n; i++) {
			struct inst *q = &o[i];

			if (!in[i] || d[i].comm % 2 != (way ^ first))
				continue;
			if (d[i].started)
				q = pend(p, q);
			if ((d[i].started ? call_start(q) : call_now(q)) != SIRCL_SUCCESS)
				fail(p, q, "in a group");
		}
	if (sircl_group_end() != SIRCL_SUCCESS)
		fail(p, NULL, "sircl_group_end");
	for (int i = 0; i < n; i++) {
		if (!in[i])
			continue;
		drop_op(p, &o[i]);
		if (d[i].started)
			continue;
		finish(p, &o[i]);
	}
	for (int i = 0; i < p->npending; i++)
		p->pending[i].made_op = false;
}

/* Messages between all pairs, more than a channel's queue holds if `deep`, waited for in any order. */
static void storm(struct prog *p)
{
	int comm = draw_comm(p), n = p->c[comm].n;
	int deep = draw(&p->all, 4) == 0 ? 150 : 2, total_n = 0, me = place_in(&p->c[comm], p->rank);
	struct inst *o = calloc((size_t)deep * (size_t)(n * n), sizeof(*o));
	uint64_t seed = draw(&p->all, UINT64_MAX);

	p->doing = "messages between all pairs";
	for (int k = 0; me >= 0 && k < deep; k++)
		for (int a = 0; a < n * n; a++) {
			struct desc d = {
				.kind = MESSAGE, .comm = comm, .root = a / n, .to = a % n, .started = true
			};

			d.seed = mix(seed + (uint64_t)(k * n * n + a));
			d.type = (sircl_type_t)(d.seed % SIRCL_TYPE_COUNT);
			d.count = deep > 2 ? d.seed % 90 : d.seed % 9000;
			if (!take_part(p, &d, &o[total_n]))
				continue;
			if (call_start(&o[total_n++]) != SIRCL_SUCCESS)
				fail(p, &o[total_n - 1], "start");
		}
	for (int i = total_n - 1; i >= 0; i--) {
		int k = (int)draw(&p->own, (uint64_t)i + 1);

		wait_for(p, &o[k]);
		o[k] = o[i];
	}
	free(o);
}

static void split(struct prog *p)
{
	int from = draw_comm(p), free_at[COMMS], nfree = 0, colours;
	const struct member_list *m = &p->c[from];
	int colour[RANKS_MAX], key[RANKS_MAX], me = place_in(m, p->rank);
	sircl_comm_t child = NULL;

	p->doing = "a split";
	for (int i = 0; i < COMMS; i++)
		if (!p->c[i].live)
			free_at[nfree++] = i;
	if (!nfree)
		return;
	colours = 1 + (int)draw(&p->all, (uint64_t)(nfree < 3 ? nfree : 3));
	for (int i = 0; i < m->n; i++) {
		colour[i] = (int)draw(&p->all, (uint64_t)colours + 1) - 1;
		key[i] = (int)draw(&p->all, 4) - 2;
	}
	if (me >= 0 && sircl_comm_split(m->comm, colour[me] < 0 ? SIRCL_NO_COLOUR : colour[me] * 1000,
					key[me], NULL, &child) != SIRCL_SUCCESS)
		fail(p, NULL, "sircl_comm_split");
	if (me >= 0 && (child != NULL) != (colour[me] >= 0))
		fail(p, NULL, "a child that should not be, or none");
	for (int k = 0; k < colours; k++) {
		struct member_list *c = &p->c[free_at[k]];

		c->n = 0;
		for (int want = -2; want < 2; want++)
			for (int i = 0; i < m->n; i++)
				if (colour[i] == k && key[i] == want)
					c->world[c->n++] = m->world[i];
		c->live = c->n > 0;
		c->comm = me >= 0 && colour[me] == k ? child : NULL;
	}
}

static int living(const struct prog *p)
{
	int n = 0;

	for (int i = 0; i < COMMS; i++)
		n += p->c[i].live;
	return n;
}

static void end_one(struct prog *p)
{
	int c = draw_comm(p);
	bool early = draw(&p->all, 2);

	p->doing = "destroy";
	drain(p, c);
	if (p->c[c].comm) {
		if (early && sircl_comm_finalize(p->c[c].comm) != SIRCL_SUCCESS)
			fail(p, NULL, "sircl_comm_finalize");
		if (sircl_comm_destroy(p->c[c].comm) != SIRCL_SUCCESS)
			fail(p, NULL, "sircl_comm_destroy");
	}
	p->c[c] = (struct member_list){ .live = false };
}

static void step(struct prog *p)
{
	switch (draw(&p->all, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		group(p);
		break;
	case 4:
	case 5:
		storm(p);
		break;
	case 6:
	case 7:
		split(p);
		break;
	case 8:
		if (living(p) > 1)
			end_one(p);
		break;
	case 9:
		drain(p, -1);
		break;
	default:
		one(p);
	}
}

static uint64_t the_seed;

static void body(struct rank_ctx *r)
{
	struct prog *p = calloc(1, sizeof(*p));

	p->seed = p->all = the_seed;
	p->own = mix(the_seed * 64 + (uint64_t)r->rank);
	p->rank = r->rank;
	p->n = r->n;
	p->c[0] = (struct member_list){ .comm = r->comm, .live = true, .n = r->n };
	for (int i = 0; i < r->n; i++)
		p->c[0].world[i] = i;
	for (p->step = 0; p->step < steps; p->step++)
		step(p);
	drain(p, -1);
	while (living(p))
		end_one(p);
	free(p);
	r->comm = NULL;
	r->checks++;
}

static int run_process(int rank, int n)
{
	struct rank_ctx r = { .rank = rank, .n = n, .body = body };

	rank_main(&r);
	return r.failures;
}

int main(int argc, char **argv)
{
	const char *rank = getenv("SIRCL_RANK"), *nranks = getenv("SIRCL_NRANKS");
	int n = argc > 1 ? atoi(argv[1]) : 4, failed = 0;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1,
		 seeds = argc > 3 ? strtoull(argv[3], NULL, 0) : 10;

	setvbuf(stdout, NULL, _IOLBF, 0);
	steps = argc > 4 ? atoi(argv[4]) : steps;
	if (rank && nranks)
		n = atoi(nranks);
	if (n < 1 || n > RANKS_MAX) {
		fprintf(stderr, "usage: api_random [N [FIRST_SEED [SEEDS [STEPS]]]], 1 <= N <= %d\n",
			RANKS_MAX);
		return 2;
	}
	for (the_seed = first; the_seed < first + seeds && !failed; the_seed++) {
		char name[64];

		snprintf(name, sizeof(name), "random calls, seed %llu", (unsigned long long)the_seed);
		failed = rank && nranks ? run_process(atoi(rank), n) : run_ranks(name, n, body);
	}
	return failed != 0;
}
