/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a context from end to end, and its orderly stop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/internal.h"
#include "fabric/wire.h"

enum { RELAYED_CHANNELS = 16, FAR_PEERS = 8, MORE_TEAMS = 7, MORE_WINDOW = 1 << 20 };

/*
 * Receive memory of a link: for the first communicator a window each of its team and of a neighbour's
 * messages, and one to spare; for more communicators more, unless windows are huge; far peers; what is
 * relayed. All pairs of ranks have at least a small window: about n * n / 4 directions pass each node, half
 * of them come by each of its links.
 */
static void arena_sizes(const struct start *s, size_t *arena, size_t *relay)
{
	size_t window = chan_window(param_num(&s->ctx->params, PARAM_WINDOW)),
	       far = chan_window(param_num(&s->ctx->params, PARAM_RELAY_WINDOW)), n = (size_t)s->cfg->n,
	       pairs = n * n / 4 * chan_least(s->cfg->n);

	*relay = n > 2 ? RELAYED_CHANNELS * far + 2 * pairs : 0;
	*arena = 3 * window + MORE_TEAMS * (window < MORE_WINDOW ? window : MORE_WINDOW) +
		 (n < FAR_PEERS ? n : FAR_PEERS) * far + n * chan_least(s->cfg->n) +
		 (n > 2 ? RELAYED_CHANNELS * far + pairs : 0);
}

static int position_of(const struct ring_map *m, int rank)
{
	for (int p = 0; p < m->n; p++)
		if (m->rank_of[p] == rank)
			return p;
	return -1;
}

static const struct lane_ops *cable_ops(const struct start *s, int c)
{
	static const char *const names[] = {
		[CLASS_SHM] = "shm", [CLASS_TCP] = "tcp", [CLASS_VERBS] = "verbs"
	};

	return lane_provider(names[s->use[c].class]);
}

static sircl_result_t open_link(struct start *s, enum link_side side, size_t arena)
{
	int c = start_cable_at(s, side), peer;
	struct link_cfg cfg = { .ctx = s->ctx,
				.keys = &s->f->keys,
				.lab = s->rdv.lab,
				.side = side,
				.cable = (uint16_t)c,
				.arena_bytes = arena,
				.ops = chan_net_link_ops(),
				.user = s->f->net };

	if (c < 0)
		return SIRCL_SUCCESS;
	peer = (s->f->pos + (side == LINK_NEXT ? 1 : s->map.n - 1)) % s->map.n;
	memcpy(cfg.job, s->rdv.job, sizeof(cfg.job));
	cfg.self = (uint16_t)s->f->pos;
	cfg.peer = (uint16_t)peer;
	cfg.self_rank = (uint16_t)s->cfg->rank;
	cfg.peer_rank = s->map.rank_of[peer];
	cfg.connects = s->f->pos < peer;
	cfg.nlanes = s->map.cable[c].nlanes;
	for (int l = 0; l < cfg.nlanes; l++) {
		cfg.lane[l].ops = cable_ops(s, c);
		cfg.lane[l].dev = start_netdev(s, side, l);
	}
	CHECK(link_open(&cfg, &s->f->link[side]));
	chan_net_set_link(s->f->net, side, s->f->link[side]);
	return SIRCL_SUCCESS;
}

static void write_addr(struct wire *w, const struct link *l)
{
	struct link_addr a = { .nlanes = 0 };

	if (l)
		link_local_addr(l, &a);
	wire_put(w, a.nlanes, 1);
	for (uint32_t i = 0; i < a.nlanes; i++) {
		wire_put(w, a.lane[i].len, 2);
		wire_put_bytes(w, a.lane[i].b, a.lane[i].len);
	}
}

static void read_addr(struct wire *w, struct link_addr *a)
{
	memset(a, 0, sizeof(*a));
	a->nlanes = (uint32_t)wire_get(w, 1);
	if (a->nlanes > LANES_MAX)
		w->bad = true;
	for (uint32_t i = 0; i < a->nlanes && !w->bad; i++) {
		a->lane[i].len = (uint16_t)wire_get(w, 2);
		if (a->lane[i].len > sizeof(a->lane[i].b))
			w->bad = true;
		else
			wire_get_bytes(w, a->lane[i].b, a->lane[i].len);
	}
}

/* The addresses of what the neighbour at `side` opened towards us. */
static sircl_result_t peer_addr(const struct start *s, enum link_side side, struct link_addr *a)
{
	int peer = s->map.rank_of[(s->f->pos + (side == LINK_NEXT ? 1 : s->map.n - 1)) % s->map.n];
	struct wire w = wire_over((void *)(uintptr_t)s->rdv.blob[peer].p, s->rdv.blob[peer].len);
	struct link_addr next, prev;

	read_addr(&w, &next);
	read_addr(&w, &prev);
	*a = side == LINK_NEXT ? prev : next;
	if (w.bad || a->nlanes == 0)
		return error_set(
			SIRCL_REMOTE_ERROR,
			"rank %d (%s) sent malformed lane addresses: install the same version everywhere",
			peer, s->rec[peer].host);
	return SIRCL_SUCCESS;
}

struct wait_links {
	const struct start *s;
	bool all; /* every lane, not only one per link */
};

static bool links_up(void *arg)
{
	const struct wait_links *w = arg;

	for (int side = 0; side < LINK_SIDES; side++) {
		const struct link *l = w->s->f->link[side];

		if (!l)
			continue;
		switch (link_state(l)) {
		case LINK_UP:
			break;
		case LINK_DEAD:
			return true; /* looked at by the caller */
		case LINK_DEGRADED:
			if (!w->all)
				break;
			return false;
		default:
			return false;
		}
	}
	return true;
}

/* What else could be wrong with a cable, depending on what carries it. */
static const char *suspicion(const struct start *s, enum link_side side, int c, char *buf, size_t n)
{
	const struct rank_offer *o = &s->offer[s->cfg->rank];
	size_t at;

	if (s->use[c].class != CLASS_VERBS)
		return "does a firewall block it?";
	at = (size_t)snprintf(buf, n, "is RoCE between the two whole (`rdma link`, and ib_write_bw -d");
	for (int l = 0; l < s->map.cable[c].nlanes && at < n; l++)
		at += (size_t)snprintf(buf + at, n - at, "%s %s", l ? "," : "", o->side[side].lane[l].device);
	if (at < n)
		snprintf(buf + at, n - at, ")? SIRCL_TRANSPORT=tcp does without");
	return buf;
}

/* What the first lane that is not up says of itself. */
static const char *lane_why(const struct link_stats *st)
{
	for (int i = 0; i < st->lanes; i++)
		if (st->lane_why[i])
			return st->lane_why[i];
	return "nothing is known";
}

/* Engine locked. */
static sircl_result_t look_at_links(struct start *s)
{
	for (int side = 0; side < LINK_SIDES; side++) {
		const struct link *l = s->f->link[side];
		int c = start_cable_at(s, (enum link_side)side), peer;
		struct link_stats st;
		char buf[300];

		if (!l)
			continue;
		peer = s->map.cable[c].rank[side == LINK_NEXT ? 1 : 0];
		if (link_state(l) == LINK_DEAD)
			return error_again(link_error(l));
		link_stats(l, &st);
		if (link_state(l) == LINK_CONNECTING)
			return error_set(SIRCL_TIMEOUT,
					 "rank %d: no lane of cable %d to rank %d (%s) came up within the "
					 "limit (%d lanes, %s; %s); is that process "
					 "alive, %s",
					 s->cfg->rank, c, peer, s->rec[peer].host, st.lanes,
					 cable_ops(s, c)->name, lane_why(&st),
					 suspicion(s, (enum link_side)side, c, buf, sizeof(buf)));
		if (link_state(l) == LINK_DEGRADED)
			log_warn(&s->ctx->log,
				 "rank %d: cable %d to rank %d (%s): only %d of %d lanes are up (%s; %s); %s",
				 s->cfg->rank, c, peer, s->rec[peer].host, st.lanes_up, st.lanes,
				 cable_ops(s, c)->name, lane_why(&st),
				 suspicion(s, (enum link_side)side, c, buf, sizeof(buf)));
	}
	return SIRCL_SUCCESS;
}

static sircl_result_t wait_links(struct start *s)
{
	struct wait_links w = { .s = s, .all = true };
	uint64_t t = s->ctx->clock(s->ctx->clock_arg), half = t + (s->limit > t ? (s->limit - t) / 2 : 0);
	sircl_result_t looked,
		ret = engine_wait_until(s->f->engine, links_up, &w, tick_min(half, t + 5 * SEC));

	if (ret == SIRCL_TIMEOUT) {
		w.all = false;
		ret = engine_wait_until(s->f->engine, links_up, &w,
					s->limit > 300 * MSEC ? s->limit - 300 * MSEC : s->limit);
	}
	engine_lock(s->f->engine);
	looked = look_at_links(s);
	engine_unlock(s->f->engine);
	return looked == SIRCL_SUCCESS ? ret : looked;
}

static int ranks_here(const struct start *s)
{
	int n = 0;

	for (int i = 0; i < s->cfg->n; i++)
		n += record_same_cores(&s->rec[i], &s->rec[s->cfg->rank]);
	return n;
}

sircl_result_t start_links(struct start *s)
{
	struct chan_net_cfg net = { .ctx = s->ctx,
				    .self = s->f->pos,
				    .n = s->map.n,
				    .ring = s->map.ring,
				    .notice = s->cfg->notice,
				    .user = s->cfg->user,
				    .rank_of = s->f->rank_of };
	struct engine_cfg eng = { .ctx = s->ctx, .background = true, .ranks_here = s->f->ranks_here };
	cpu_set_t cpus;
	bool bind;
	size_t arena;
	uint8_t buf[2 + 2 * LANES_MAX * (2 + sizeof(((struct lane_addr *)0)->b))];
	struct wire w = wire_over(buf, sizeof(buf));

	/* what this rank alone may find wrong is found before the round, where the others hear of it at once
	 */
	CHECK(start_placement(s, &cpus, &bind));
	arena_sizes(s, &arena, &net.relay_limit);
	CHECK(chan_net_create(&net, &s->f->net));
	CHECK(open_link(s, LINK_NEXT, arena));
	CHECK(open_link(s, LINK_PREV, arena));
	if (s->f->link[LINK_NEXT] && !start_lanes_beside(s))
		link_beside(s->f->link[LINK_NEXT], NULL);
	write_addr(&w, s->f->link[LINK_NEXT]);
	write_addr(&w, s->f->link[LINK_PREV]);
	if (s->map.ncables)
		CHECK(rdv_round(&s->rdv, buf, w.pos));
	for (int side = 0; side < LINK_SIDES; side++) {
		struct link_addr a;
		struct tick t = ctx_tick(s->ctx);

		if (!s->f->link[side])
			continue;
		CHECK(peer_addr(s, (enum link_side)side, &a));
		CHECK(link_connect(s->f->link[side], &t, &a));
	}
	eng.net = s->f->net;
	if (bind)
		eng.cpus = &cpus;
	CHECK(engine_create(&eng, &s->f->engine));
	CHECK(wait_links(s));
	s->f->given = true;
	CHECK(s->cfg->ready(s->cfg->user, s->f));
	return s->map.ncables ? rdv_round(&s->rdv, "", 0) /* everybody is up */ : SIRCL_SUCCESS;
}

static sircl_result_t start_records(struct start *s)
{
	uint8_t buf[RDV_BLOB_MAX];
	struct record mine;

	record_make(&mine, s->ctx, s->limit);
	CHECK(start_ports(s, &mine));
	CHECK(rdv_round(&s->rdv, buf, record_write(&mine, buf, sizeof(buf))));
	for (int i = 0; i < s->cfg->n; i++)
		CHECK(record_read(&s->rec[i], i, s->rdv.blob[i].p, s->rdv.blob[i].len));
	CHECK(records_agree(s->rec, s->cfg->n));
	memcpy(s->f->job, s->rdv.job, sizeof(s->f->job));
	if (s->rdv.has_job_key)
		CHECK(key_ring_add(&s->f->keys, KEY_UNIQUE_ID, s->rdv.job_key, sizeof(s->rdv.job_key)));
	return SIRCL_SUCCESS;
}

static sircl_result_t run_steps(struct start *s)
{
	struct fabric *f = s->f;

	CHECK(start_records(s));
	CHECK(start_cabling(s));
	f->ring = s->map.ring;
	f->pos = position_of(&s->map, s->cfg->rank);
	memcpy(f->rank_of, s->map.rank_of, sizeof(f->rank_of));
	CHECK(start_providers(s));
	f->class = provider_class(s->use, s->map.ncables);
	for (int c = 0; c < s->map.ncables; c++)
		f->nics |= s->use[c].class == CLASS_VERBS;
	f->ranks_here = ranks_here(s);
	return start_links(s);
}

/* One rank meets nobody: no rendezvous, no links. */
static sircl_result_t start_alone(struct start *s)
{
	s->map.n = 1;
	s->f->class = CLASS_SHM;
	s->f->ranks_here = 1;
	return start_links(s);
}

sircl_result_t fabric_start(const struct fabric_cfg *cfg)
{
	struct start *s = calloc(1, sizeof(*s));
	struct fabric *f = calloc(1, sizeof(*f));
	sircl_result_t ret;

	if (!s || !f) {
		free(s);
		free(f);
		return error_set(SIRCL_NO_MEMORY, "rank %d: no memory to start", cfg->rank);
	}
	f->ctx = cfg->ctx;
	f->rank = cfg->rank;
	f->n = cfg->n;
	s->ctx = cfg->ctx;
	s->cfg = cfg;
	s->f = f;
	s->limit = cfg->limit;
	s->rdv.fd = -1;
	if (cfg->n == 1) {
		ret = start_alone(s);
	} else {
		ret = start_meet(s);
		if (ret == SIRCL_SUCCESS) {
			ret = run_steps(s);
			if (ret != SIRCL_SUCCESS)
				ret = rdv_fail(&s->rdv, error_last());
		}
		rdv_leave(&s->rdv);
	}
	inventory_free(s->inventory);
	free(s);
	if (ret != SIRCL_SUCCESS && !f->given) {
		struct sircl_error e = *error_last();

		fabric_stop(f, 0);
		return error_again(&e);
	}
	return ret;
}

/* A neighbour that has our goodbye but not said its own has not come to its destroy yet. It needs nothing of
 * ours any more, so it is waited for only so long that the ordinary case ends in order. */
#define GOODBYE_LINGER (1 * SEC)

/* Our own channels must have ended on the wire too: after the goodbye a link carries no more answers. */
static bool channels_gone(void *arg)
{
	const struct fabric *f = arg;
	struct chan_net_stats st;

	chan_net_stats(f->net, &st);
	return st.relays == 0 && st.channels == 0;
}

static bool bye_taken(void *arg)
{
	const struct fabric *f = arg;

	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side] && !link_bye_taken(f->link[side]) && link_state(f->link[side]) != LINK_DEAD)
			return false;
	return true;
}

static bool both_closed(void *arg)
{
	const struct fabric *f = arg;

	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side] && !link_closed(f->link[side]) && link_state(f->link[side]) != LINK_DEAD)
			return false;
	return true;
}

/* The limit has come: who has not taken what it was sent, or, if all have, what is open still. */
static sircl_result_t not_answered(const struct fabric *f, uint64_t limit_ns)
{
	struct chan_net_stats st;
	char who[96] = "";
	size_t at = 0;

	engine_lock(f->engine);
	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side] && !link_idle(f->link[side]) && link_state(f->link[side]) != LINK_DEAD) {
			int to = side == LINK_NEXT ? 1 : f->n - 1;

			at += (size_t)snprintf(who + at, sizeof(who) - at, "%srank %d (cable %d)",
					       at ? ", " : "", f->rank_of[(f->pos + to) % f->n],
					       side == LINK_NEXT ? f->pos : (f->pos + to) % f->n);
		}
	chan_net_stats(f->net, &st);
	engine_unlock(f->engine);
	if (at)
		return error_set(
			SIRCL_TIMEOUT,
			"rank %d: no answer to the goodbye of this communicator within %llu ms from %s: "
			"that process is stopped or stuck, or the cable is cut",
			f->rank, (unsigned long long)(limit_ns / MSEC), who);
	return error_set(
		SIRCL_TIMEOUT,
		"rank %d: %d channels and %d relayed channels of other ranks were still open %llu ms after "
		"the end of this communicator; a rank that used them may be stuck",
		f->rank, st.channels, st.relays, (unsigned long long)(limit_ns / MSEC));
}

/* A relay lingers until the channels that pass through it are closed; then both ends of each link say
 * goodbye. */
static sircl_result_t say_goodbye(struct fabric *f, uint64_t limit_ns)
{
	struct tick t = ctx_tick(f->ctx);
	uint64_t limit = t.now + limit_ns;

	if (engine_wait_until(f->engine, channels_gone, f, limit) != SIRCL_SUCCESS)
		return not_answered(f, limit_ns);
	engine_lock(f->engine);
	t = ctx_tick(f->ctx);
	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side] && link_state(f->link[side]) != LINK_DEAD)
			link_bye(f->link[side], &t);
	engine_unlock(f->engine);
	if (engine_wait_until(f->engine, bye_taken, f, limit) != SIRCL_SUCCESS)
		return not_answered(f, limit_ns);
	t = ctx_tick(f->ctx);
	if (engine_wait_until(f->engine, both_closed, f, tick_min(limit, t.now + GOODBYE_LINGER)) !=
	    SIRCL_SUCCESS)
		log_info(&f->ctx->log, LOG_INIT,
			 "leaving before a neighbour that has not come to its destroy yet");
	return SIRCL_SUCCESS;
}

/* What was said last (an abort, an error) is still on its way: a lane that is closed now takes it back where
 * a network card has it, not a kernel's socket. Neighbours that are gone do not take it at all. */
#define LAST_WORDS (500 * MSEC)

static bool all_said(void *arg)
{
	const struct fabric *f = arg;

	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side] &&
		    (link_state(f->link[side]) == LINK_UP || link_state(f->link[side]) == LINK_DEGRADED) &&
		    !link_idle(f->link[side]))
			return false;
	return true;
}

sircl_result_t fabric_stop(struct fabric *f, uint64_t limit_ns)
{
	sircl_result_t ret = SIRCL_SUCCESS;

	if (!f)
		return ret;
	if (f->engine && limit_ns)
		ret = say_goodbye(f, limit_ns);
	else if (f->engine && f->nics) {
		struct tick t = ctx_tick(f->ctx);

		engine_wait_until(f->engine, all_said, f, t.now + LAST_WORDS);
	}
	engine_destroy(f->engine);
	if (f->net)
		chan_net_destroy(f->net);
	for (int side = 0; side < LINK_SIDES; side++)
		if (f->link[side])
			link_close(f->link[side]);
	if (f->root) {
		rdv_root_finish(f->root, 5 * SEC); /* after a failure too: others still read the sentence */
		rdv_root_stop(f->root);
	}
	key_ring_wipe(&f->keys);
	free(f);
	return ret;
}
