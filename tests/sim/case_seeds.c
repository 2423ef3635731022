// SPDX-License-Identifier: Apache-2.0
/*
 * (d) Random runs: positions, lanes, windows, sizes, traffic and faults, all from the seed. A run has either
 * one kind of fault (so that replays and refused duplicates can be put down to it) or all of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cases.h"
#include "colls.h"
#include "traffic.h"

#define MIXED FAULT_KINDS

struct totals {
	uint64_t runs, operations, collectives, bytes, wrong, hung, lost_lanes, relayed, bad_seed[16];
	uint64_t coll[COLL_KINDS], squads, groups;
	struct sim_fault_count fault[FAULT_KINDS];
	struct link_totals kind[FAULT_KINDS + 1], link;
};

struct run {
	struct traffic t; /* first: what the traffic's own steps are given is also the run */
	struct world w;
	struct colls *colls;
	struct world_cfg cfg;
	unsigned kinds;
	int faults, kind; /* kind: of all the faults, MIXED */
	uint64_t span;
};

static uint64_t draw(uint64_t *x, uint64_t below)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % below;
}

static uint32_t draw_length(uint64_t *x)
{
	switch (draw(x, 8)) {
	case 0:
		return 0;
	case 1:
	case 2:
		return (uint32_t)draw(x, 64);
	case 3:
	case 4:
		return (uint32_t)draw(x, 4096);
	case 5:
	case 6:
		return (uint32_t)draw(x, 16384);
	default:
		return (uint32_t)draw(x, 50000);
	}
}

static void draw_way(uint64_t *x, struct way *y, int most)
{
	int n = 1 + (int)draw(x, (uint64_t)most);

	y->send_depth = 1 + (int)draw(x, DEPTH_MAX);
	y->recv_depth = 1 + (int)draw(x, DEPTH_MAX);
	if (draw(x, 4) == 0)
		y->recv_from = draw(x, 3 * MSEC);
	if (draw(x, 4) == 0)
		y->send_from = draw(x, MSEC);
	for (int k = 0; k < n; k++)
		traffic_message(y, draw_length(x), draw(x, 4) == 0);
}

static void draw_conv(uint64_t *x, struct run *r, int from, int to, enum link_side via)
{
	struct conv *c = traffic_conv(&r->t, from, to, via, 4096u << draw(x, 5));
	uint64_t ways = draw(x, 4);

	if (ways != 1)
		draw_way(x, &c->way[0], 10);
	if (ways != 0)
		draw_way(x, &c->way[1], 10);
	for (int i = 0; i < 2; i++)
		if (draw(x, 4) == 0)
			c->open_at[i] = draw(x, MSEC);
}

static void draw_traffic(uint64_t *x, struct run *r)
{
	int n = r->cfg.n, cables = r->cfg.ring ? n : n - 1;

	for (int i = 0; i < cables; i++)
		if (draw(x, 3) != 0)
			draw_conv(x, r, i, (i + 1) % n, LINK_NEXT);
	if (n >= 3 && r->cfg.ring &&
	    draw(x, 3) == 0) { /* streams all round, the shape that deadlocks with a pool */
		int hops = n > 4 ? 2 + (int)draw(x, 2) : 2;

		for (int i = 0; i < n; i++)
			draw_conv(x, r, i, (i + hops) % n, LINK_NEXT);
	} else if (n >= 3) {
		for (uint64_t k = draw(x, 4); k > 0; k--) {
			int from = (int)draw(x, (uint64_t)n), to = (int)draw(x, (uint64_t)n);
			enum link_side via = (enum link_side)draw(x, 2);

			if (from == to)
				continue;
			if (!r->cfg.ring)
				via = to > from ? LINK_NEXT : LINK_PREV;
			draw_conv(x, r, from, to, via);
		}
	}
	if (r->t.nconvs == 0)
		draw_conv(x, r, 0, 1, LINK_NEXT);
	if (draw(x, 4) == 0) { /* one receiver never posts */
		struct conv *c = &r->t.conv[draw(x, (uint64_t)r->t.nconvs)];

		c->way[draw(x, 2)].recv_from = NEVER;
	}
}

static void step(struct wnode *n, struct tick *t)
{
	struct run *r = n->user;

	traffic_step(n, t);
	if (r->colls)
		colls_step(n, t, r->colls);
}

static uint64_t deadline(struct wnode *n)
{
	struct run *r = n->user;
	uint64_t d = traffic_deadline(n);

	return r->colls ? tick_min(d, colls_deadline(n, r->colls)) : d;
}

static bool done(struct world *w)
{
	struct run *r = w->cfg.user;

	return traffic_done(w) && (!r->colls || colls_done(r->colls));
}

static void plan(struct run *r, uint64_t seed)
{
	static const unsigned kinds[] = { 1u << FAULT_KILL,        1u << FAULT_KILL | 1u << FAULT_REVIVE,
					  1u << FAULT_FREEZE,      1u << FAULT_DUP,
					  1u << FAULT_LATE,        1u << FAULT_FALSE_ALARM,
					  (1u << FAULT_KINDS) - 1, (1u << FAULT_KINDS) - 1 };
	static const int kind[] = { FAULT_KILL, FAULT_REVIVE,      FAULT_FREEZE, FAULT_DUP,
				    FAULT_LATE, FAULT_FALSE_ALARM, MIXED,        MIXED };
	uint64_t x = seed * 0x632be59bd9b4e019ull;
	uint64_t which = draw(&x, 8);

	memset(&r->cfg, 0, sizeof(r->cfg));
	r->cfg.fabric = &sim_hostile;
	r->cfg.seed = seed;
	r->cfg.n = 2 + (int)draw(&x, draw(&x, 4) ? 4 : 11);
	r->cfg.ring = draw(&x, 4) != 0;
	r->cfg.lanes = 1 + (int)draw(&x, 4);
	r->cfg.link_window = 8u << draw(&x, 4);
	r->cfg.arena_bytes = 4 << 20;
	r->cfg.relay_limit = 4 << 20;
	r->cfg.mem_bytes = 512 << 10;
	if (draw(&x, 2)) {
		r->cfg.heartbeat_ms = 5;
		r->cfg.suspect_ms = 25;
	}
	r->cfg.step = step;
	r->cfg.deadline = deadline;
	r->cfg.user = &r->t;
	r->kinds = kinds[which];
	r->kind = kind[which];
	r->faults = 1 + (int)draw(&x, 4);
	r->span = 50 * USEC << draw(&x, 6);
	traffic_init(&r->t);
	r->colls = NULL;
	if (draw(&x, 2) == 0) {
		r->colls = colls_new(seed, &r->cfg, 1 + (int)draw(&x, 6));
		colls_hook(r->colls, &r->cfg);
	}
	if (!r->colls || draw(&x, 2))
		draw_traffic(&x, r);
}

static void execute(struct run *r)
{
	if (!world_create(&r->w, &r->cfg) || (r->colls && !colls_open(r->colls, &r->w)) ||
	    !world_connect(&r->w) || (r->colls && !colls_start(r->colls)))
		return;
	r->w.phase = "traffic";
	for (int i = 0; i < r->t.nconvs; i++) { /* times were drawn from the beginning of the traffic */
		struct conv *c = &r->t.conv[i];
		uint64_t now = sim_now(r->w.sim);

		for (int d = 0; d < 2; d++) {
			c->open_at[d] += now;
			c->way[d].send_from += now;
			if (c->way[d].recv_from != NEVER)
				c->way[d].recv_from += now;
		}
	}
	traffic_ready(&r->t, &r->w, 50);
	sim_plan_faults(r->w.sim, r->kinds, r->faults, sim_now(r->w.sim), sim_now(r->w.sim) + r->span);
	if (!world_run(&r->w, done, 25 * SEC)) {
		char where[500], colls[300] = "";

		traffic_where(&r->t, where, sizeof(where));
		if (r->colls)
			colls_where(r->colls, colls, sizeof(colls));
		world_fail(&r->w, "hung:%s%s", where, colls);
	}
	world_settle(&r->w, 40 * MSEC);
	traffic_check_poison(&r->t);
	r->w.phase = "close";
	traffic_close(&r->t);
	if (r->colls && r->w.failure[0] == 0)
		colls_close(r->colls);
	if (r->w.failure[0] == 0) {
		world_settle(&r->w, 5 * MSEC);
		world_bye(&r->w);
	}
}

static bool one(uint64_t seed, struct totals *sum, int verbose)
{
	static struct run r;
	struct sim_fault_count c[FAULT_KINDS];
	struct link_totals link = { 0 };
	bool ok, hung;

	plan(&r, seed);
	execute(&r);
	ok = r.w.failure[0] == 0;
	hung = strstr(r.w.failure, "hung") != NULL || strstr(r.w.failure, "not closed") != NULL;
	sum->runs++;
	sum->operations += r.t.messages;
	if (r.colls) {
		uint64_t kinds[COLL_KINDS] = { 0 };

		colls_count(r.colls, kinds, &sum->squads, &sum->groups);
		for (int k = 0; k < COLL_KINDS; k++) {
			sum->coll[k] += kinds[k];
			sum->collectives += kinds[k];
			sum->operations += kinds[k];
		}
	}
	sum->bytes += r.t.bytes;
	sum->wrong += !ok && !hung;
	sum->hung += hung;
	sim_fault_counts(r.w.sim, c);
	world_totals(&r.w, &link);
	for (int k = 0; k < FAULT_KINDS; k++) {
		sum->fault[k].planned += c[k].planned;
		sum->fault[k].struck += c[k].struck;
	}
	sum->lost_lanes += c[FAULT_KILL].struck;
	sum->kind[r.kind].replayed += link.replayed;
	sum->kind[r.kind].refused += link.refused;
	sum->link.replayed += link.replayed;
	sum->link.refused += link.refused;
	sum->link.sent += link.sent;
	sum->link.states += link.states;
	if (!ok || verbose)
		printf("  seed %llu (%s of %d, %d lanes, %d conversations, %s): %s; %llu messages, %llu "
		       "frames, %llu "
		       "replayed, %.3f ms, %llu events, trace %016llx\n",
		       (unsigned long long)seed, r.cfg.ring ? "ring" : "line", r.cfg.n, r.cfg.lanes,
		       r.t.nconvs, r.kind == MIXED ? "all kinds" : sim_fault_name((enum sim_fault)r.kind),
		       ok ? "ok" : r.w.failure, (unsigned long long)r.t.messages,
		       (unsigned long long)link.sent, (unsigned long long)link.replayed,
		       (double)sim_now(r.w.sim) / 1e6, (unsigned long long)sim_events(r.w.sim),
		       (unsigned long long)sim_trace(r.w.sim));
	fflush(stdout);
	if (r.colls)
		colls_close(r.colls);
	world_destroy(&r.w);
	traffic_free(&r.t);
	if (r.colls)
		colls_free(r.colls);
	return ok;
}

static void add(struct totals *to, const struct totals *from)
{
	/* all members are counters, but for the list of seeds at the end of the plain ones */
	uint64_t *a = (uint64_t *)to;
	const uint64_t *b = (const uint64_t *)from;

	for (size_t i = 0; i < sizeof(*to) / sizeof(uint64_t); i++)
		a[i] += b[i];
}

static void worker(const struct options *o, int job, struct totals *sum)
{
	uint64_t bad = 0;

	for (uint64_t i = (uint64_t)job; i < o->seeds && bad < 10; i += (uint64_t)o->jobs)
		bad += !one(o->first_seed + i, sum, o->verbose);
}

bool case_seeds(const struct options *o)
{
	struct totals *part = mmap(NULL, (size_t)o->jobs * sizeof(*part), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct totals sum = { 0 };
	double start = seconds();
	bool ok = true;

	if (part == MAP_FAILED)
		return false;
	fflush(stdout);
	for (int j = 1; j < o->jobs; j++)
		if (fork() == 0) {
			worker(o, j, &part[j]);
			fflush(stdout);
			_exit(0);
		}
	worker(o, 0, &part[0]);
	for (int j = 1, status; j < o->jobs; j++)
		if (wait(&status) < 0 || status != 0) {
			printf("  a worker ended with status %d\n", status);
			ok = false;
		}
	for (int j = 0; j < o->jobs; j++)
		add(&sum, &part[j]);
	munmap(part, (size_t)o->jobs * sizeof(*part));
	printf("(d) %llu seeds from %llu\n", (unsigned long long)sum.runs, (unsigned long long)o->first_seed);
	printf("    %-18s %9s %9s %16s %19s\n", "fault", "planned", "struck", "frames replayed",
	       "duplicates refused");
	for (int k = 0; k <= FAULT_KINDS; k++) {
		bool mixed = k == MIXED;

		printf("    %-18s", mixed ? "several kinds" : sim_fault_name((enum sim_fault)k));
		if (mixed)
			printf(" %9s %9s", "", "");
		else
			printf(" %9llu %9llu", (unsigned long long)sum.fault[k].planned,
			       (unsigned long long)sum.fault[k].struck);
		printf(" %16llu %19llu\n", (unsigned long long)sum.kind[k].replayed,
		       (unsigned long long)sum.kind[k].refused);
		if (!mixed && sum.fault[k].struck == 0 && o->seeds >= 100) {
			printf("  no fault of this kind struck: the run proves nothing about it\n");
			ok = false;
		}
	}
	printf("    collectives:");
	for (int k = 0; k < COLL_KINDS; k++)
		printf(" %s %llu%s", coll_kind_name((enum coll_kind)k), (unsigned long long)sum.coll[k],
		       k + 1 < COLL_KINDS ? "," : "\n");
	for (int k = 0; k < COLL_KINDS; k++)
		if (sum.coll[k] == 0 && o->seeds >= 1000) {
			printf("  no %s was run: the run proves nothing about it\n",
			       coll_kind_name((enum coll_kind)k));
			ok = false;
		}
	printf("    further communicators %llu, communicators with several operations at once %llu\n",
	       (unsigned long long)sum.squads, (unsigned long long)sum.groups);
	printf("operations run %llu (%llu collectives, the rest messages)\nlanes lost in mid-operation "
	       "%llu\nframes replayed %llu\nwrong "
	       "%llu\nhung "
	       "%llu\nseconds %.1f\n",
	       (unsigned long long)sum.operations, (unsigned long long)sum.collectives,
	       (unsigned long long)sum.lost_lanes, (unsigned long long)sum.link.replayed,
	       (unsigned long long)sum.wrong, (unsigned long long)sum.hung, seconds() - start);
	return ok && sum.wrong == 0 && sum.hung == 0 && sum.runs == o->seeds;
}
