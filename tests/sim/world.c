// SPDX-License-Identifier: Apache-2.0
/* Builds a ring or line of nodes on lane/sim, connects it, ends it. */
#include "world.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PUTS_MAX_EVENTS 20000000ull /* a run that needs more does not get anywhere */

void world_fail(struct world *w, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (w->failure[0])
		return;
	n = snprintf(w->failure, sizeof(w->failure), "%s, at %.3f ms: ", w->phase ? w->phase : "?",
		     w->sim ? (double)sim_now(w->sim) / 1e6 : 0.0);
	va_start(ap, fmt);
	vsnprintf(w->failure + n, sizeof(w->failure) - (size_t)n, fmt, ap);
	va_end(ap);
}

static const char *no_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void tell(void *arg, const char *sentence)
{
	world_fail(arg, "%s", sentence);
}

static void on_notice(void *user, struct tick *t, const struct chan_notice *n)
{
	struct wnode *node = user;

	(void)t;
	(void)n;
	node->world->notices++;
}

static void run(void *arg, struct tick *t)
{
	struct wnode *n = arg;
	const struct world_cfg *c = &n->world->cfg;

	if (c->drive)
		c->drive(n, t);
	else if (n->net)
		chan_net_progress(n->net, t);
	if (c->step)
		c->step(n, t);
	for (int s = 0; s < LINK_SIDES; s++)
		if (n->link[s] && link_state(n->link[s]) == LINK_DEAD)
			world_fail(n->world, "link of position %d to %s is dead: %s", n->pos,
				   s == LINK_NEXT ? "next" : "prev", link_error(n->link[s])->msg);
}

static uint64_t deadline(void *arg)
{
	struct wnode *n = arg;
	const struct world_cfg *c = &n->world->cfg;
	uint64_t d = NEVER;

	if (c->drive_deadline)
		d = c->drive_deadline(n);
	else if (n->net)
		d = chan_net_deadline(n->net);
	return c->deadline ? tick_min(d, c->deadline(n)) : d;
}

/* The link of `pos` on `side`, its lanes' ports in provider[]. */
static bool open_link(struct world *w, int pos, enum link_side side, struct sim_port *const *port, int cable)
{
	const struct world_cfg *c = &w->cfg;
	struct wnode *n = &w->node[pos];
	int peer = (pos + (side == LINK_NEXT ? 1 : c->n - 1)) % c->n;
	struct link_cfg cfg = {
		.ctx = &n->ctx,
		.lab = "sim",
		.side = side,
		.cable = (uint16_t)cable,
		.self = (uint16_t)pos,
		.peer = (uint16_t)peer,
		.self_rank = (uint16_t)pos,
		.peer_rank = (uint16_t)peer,
		.connects = side == LINK_NEXT,
		.nlanes = c->lanes,
		.arena_bytes = c->arena_bytes,
		.window = c->link_window,
		.ops = chan_net_link_ops(),
		.user = n->net,
	};

	for (int l = 0; l < c->lanes; l++) {
		cfg.lane[l].ops = &lane_sim_ops;
		cfg.lane[l].provider = port[l];
	}
	if (link_open(&cfg, &n->link[side]) != SIRCL_SUCCESS) {
		world_fail(w, "link_open: %s", error_last()->msg);
		return false;
	}
	chan_net_set_link(n->net, side, n->link[side]);
	return true;
}

static bool open_node(struct world *w, int pos)
{
	const struct world_cfg *c = &w->cfg;
	struct wnode *n = &w->node[pos];
	struct chan_net_cfg net = { .ctx = &n->ctx,
				    .self = pos,
				    .n = c->n,
				    .ring = c->ring,
				    .relay_limit = c->relay_limit,
				    .notice = on_notice,
				    .user = n };

	n->world = w;
	n->pos = pos;
	n->user = c->user;
	if (params_load_from(&n->ctx.params, no_environment, NULL) != SIRCL_SUCCESS) {
		world_fail(w, "parameters: %s", error_last()->msg);
		return false;
	}
	if (c->heartbeat_ms)
		n->ctx.params.num[PARAM_HEARTBEAT] = c->heartbeat_ms;
	if (c->suspect_ms)
		n->ctx.params.num[PARAM_SUSPECT] = c->suspect_ms;
	if (c->timeout_ms)
		n->ctx.params.num[PARAM_TIMEOUT] = c->timeout_ms;
	n->ctx.params.num[PARAM_ALGO] = c->algo;
	if (c->window)
		n->ctx.params.num[PARAM_WINDOW] = c->window;
	if (c->slice)
		n->ctx.params.num[PARAM_SLICE] = c->slice;
	n->ctx.log.level = getenv("SIRCL_TEST_LOG") ? LOG_TRACE : LOG_NONE;
	n->ctx.log.subsys = LOG_ALL;
	n->ctx.log.fd = 2;
	n->ctx.log.rank = pos;
	n->ctx.rank = pos;
	n->ctx.nranks = c->n;
	n->ctx.clock = sim_clock;
	n->ctx.clock_arg = w->sim;
	if (chan_net_create(&net, &n->net) != SIRCL_SUCCESS) {
		world_fail(w, "chan_net_create: %s", error_last()->msg);
		return false;
	}
	n->node = sim_node(w->sim, &(struct sim_program){ .run = run, .deadline = deadline, .arg = n });
	if (c->mem_bytes) {
		n->mem = malloc(c->mem_bytes);
		if (!n->mem)
			abort();
	}
	return true;
}

bool world_create(struct world *w, const struct world_cfg *cfg)
{
	struct sim_port *a[LANES_MAX], *b[LANES_MAX];

	memset(w, 0, sizeof(*w));
	w->cfg = *cfg;
	w->phase = "start";
	if (sim_create(&w->sim, cfg->fabric, cfg->seed) != SIRCL_SUCCESS)
		return false;
	sim_on_violation(w->sim, tell, w);
	for (int i = 0; i < cfg->n; i++)
		if (!open_node(w, i))
			return false;
	w->cables = cfg->n == 1 ? 0 : cfg->ring ? cfg->n : cfg->n - 1;
	for (int c = 0; c < w->cables; c++) {
		int far = (c + 1) % cfg->n;

		for (int l = 0; l < cfg->lanes; l++)
			sim_cable_lane(w->sim, c, l, w->node[c].node, w->node[far].node, &a[l], &b[l]);
		if (!open_link(w, c, LINK_NEXT, a, c) || !open_link(w, far, LINK_PREV, b, c))
			return false;
	}
	return true;
}

static bool failed(struct world *w)
{
	return w->failure[0] != 0;
}

struct runner {
	struct world *w;
	bool (*done)(struct world *);
	uint64_t most;
};

static bool over(void *arg)
{
	struct runner *r = arg;

	return failed(r->w) || sim_events(r->w->sim) > r->most || (r->done && r->done(r->w));
}

bool world_run(struct world *w, bool (*done)(struct world *), uint64_t patience)
{
	for (int i = 0; i < w->cfg.n; i++)
		sim_wake(w->sim, w->node[i].node);
	return world_go_on(w, done, patience);
}

bool world_go_on(struct world *w, bool (*done)(struct world *), uint64_t patience)
{
	struct runner r = { .w = w, .done = done, .most = sim_events(w->sim) + PUTS_MAX_EVENTS };

	return sim_run(w->sim, over, &r, sim_now(w->sim) + patience) && !failed(w) &&
	       sim_events(w->sim) <= r.most;
}

void world_settle(struct world *w, uint64_t ns)
{
	world_run(w, NULL, ns);
}

static bool all_up(struct world *w)
{
	for (int i = 0; i < w->cfg.n; i++)
		for (int s = 0; s < LINK_SIDES; s++)
			if (w->node[i].link[s] && link_state(w->node[i].link[s]) != LINK_UP)
				return false;
	return true;
}

bool world_connect(struct world *w)
{
	w->phase = "connect";
	for (int i = 0; i < w->cfg.n; i++)
		for (int s = 0; s < LINK_SIDES; s++) {
			struct link *l = w->node[i].link[s];
			struct link_addr addr;
			struct tick t = { .now = sim_now(w->sim) };
			int peer = (i + (s == LINK_NEXT ? 1 : w->cfg.n - 1)) % w->cfg.n;

			if (!l)
				continue;
			link_local_addr(w->node[peer].link[!s], &addr);
			if (link_connect(l, &t, &addr) != SIRCL_SUCCESS) {
				world_fail(w, "link_connect: %s", error_last()->msg);
				return false;
			}
		}
	if (!world_run(w, all_up, 5 * SEC)) {
		world_fail(w, "links are not up after 5 s");
		return false;
	}
	for (int i = 0; i < w->cfg.n && w->cfg.mem_bytes; i++) {
		struct tick t = { .now = sim_now(w->sim) };

		if (chan_net_register(w->node[i].net, &t, w->node[i].mem, w->cfg.mem_bytes) !=
		    SIRCL_SUCCESS) {
			world_fail(w, "chan_net_register: %s", error_last()->msg);
			return false;
		}
	}
	return true;
}

static bool all_closed(struct world *w)
{
	for (int i = 0; i < w->cfg.n; i++)
		for (int s = 0; s < LINK_SIDES; s++)
			if (w->node[i].link[s] && !link_closed(w->node[i].link[s]))
				return false;
	return true;
}

bool world_bye(struct world *w)
{
	w->phase = "goodbye";
	for (int i = 0; i < w->cfg.n; i++)
		for (int s = 0; s < LINK_SIDES; s++)
			if (w->node[i].link[s]) {
				struct tick t = { .now = sim_now(w->sim) };

				link_bye(w->node[i].link[s], &t);
			}
	if (world_run(w, all_closed, 20 * SEC))
		return true;
	world_fail(w, "links are not closed after 20 s");
	return false;
}

void world_totals(const struct world *w, struct link_totals *out)
{
	for (int i = 0; i < w->cfg.n; i++)
		for (int s = 0; s < LINK_SIDES; s++) {
			struct link_stats st;

			if (!w->node[i].link[s])
				continue;
			link_stats(w->node[i].link[s], &st);
			out->replayed += st.frames_replayed;
			out->refused += st.duplicates_refused;
			out->states += st.states_sent;
			out->fences += st.fences;
			out->reconnects += st.reconnects;
			out->sent += st.frames_sent;
		}
}

void world_destroy(struct world *w)
{
	for (int i = 0; i < w->cfg.n; i++) {
		struct wnode *n = &w->node[i];

		if (n->net)
			chan_net_destroy(n->net);
		for (int s = 0; s < LINK_SIDES; s++)
			if (n->link[s])
				link_close(n->link[s]);
		params_free(&n->ctx.params);
		free(n->mem);
	}
	sim_destroy(w->sim);
}
