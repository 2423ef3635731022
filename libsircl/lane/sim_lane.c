// SPDX-License-Identifier: Apache-2.0
/*
 * The provider on simulated wires: ops, events, handshake. The handshake is the three messages of base/auth.h
 * (without keys: the same messages, empty). The connecting side is up after the second, the accepting side
 * after the third; in between it is half-open: bytes may land, notes wait. allow() with a higher epoch takes
 * a half-open end back at once, and nothing of that epoch lands afterwards.
 */
#include <stdlib.h>
#include <string.h>
#include "lane/sim_internal.h"

static const char *const why_text[] = {
	[WHY_DIED] = "the simulated path died",
	[WHY_CLOSED] = "the peer's end is closed",
	[WHY_NO_ANSWER] = "no answer within the retry limit",
	[WHY_REFUSED] = "the peer refused the connection",
	[WHY_NEWER] = "the peer asks for a newer epoch",
	[WHY_ALARM] = "a false alarm",
	[WHY_CANCEL] = "the handshake was taken back",
	[WHY_KEYS] = "the peer does not hold a key of this job",
	[WHY_GONE] = "the peer's process is gone",
	[WHY_NOBODY] = "nobody listens at the peer's end",
};

static struct sim_port *port_of(struct lane *l)
{
	return (struct sim_port *)(void *)l;
}

static const struct sim_port *port_of_const(const struct lane *l)
{
	return (const struct sim_port *)(const void *)l;
}

static struct lane_event *event_add(struct sim_port *port)
{
	struct lane_event *e;

	if (port->nevents == port->room_events) { /* grows to its working size, then never again */
		uint32_t room = port->room_events ? 2 * port->room_events : 64;
		struct lane_event *more = malloc(room * sizeof(*more));

		sircl_assert(more != NULL);
		for (uint32_t i = 0; i < port->nevents; i++)
			more[i] = port->events[(port->first_event + i) % port->room_events];
		free(port->events);
		port->events = more;
		port->first_event = 0;
		port->room_events = room;
	}
	e = &port->events[(port->first_event + port->nevents++) % port->room_events];
	memset(e, 0, sizeof(*e));
	return e;
}

void port_event(struct sim_port *port, enum lane_ev ev, uint32_t epoch, int why)
{
	struct lane_event *e = event_add(port);

	e->ev = ev;
	e->epoch = epoch;
	e->why = why < 0 ? NULL : why_text[why];
	e->gone = why == WHY_GONE || why == WHY_NOBODY;
	sim_wake_node(port->node, sim_here(port->sim));
}

void port_note(struct sim_port *port, uint32_t epoch, const struct lane_note *note)
{
	struct lane_event *e = event_add(port);

	e->ev = LANE_NOTE;
	e->epoch = epoch;
	e->note = *note;
	port->unpolled++;
	sim_wake_node(port->node, sim_here(port->sim));
}

/* For rates only: it wakes nobody, and several become one. */
void port_done(struct sim_port *port, uint32_t epoch)
{
	struct lane_event *e;

	if (!port->open || port->state != PORT_UP || port->epoch != epoch)
		return;
	if (port->nevents) {
		e = &port->events[(port->first_event + port->nevents - 1) % port->room_events];
		if (e->ev == LANE_DONE && e->epoch == epoch) {
			e->done++;
			return;
		}
	}
	e = event_add(port);
	e->ev = LANE_DONE;
	e->epoch = epoch;
	e->done = 1;
}

/* A handshake has ended without success. */
static void port_down(struct sim_port *port, enum sim_reason why)
{
	uint32_t epoch = port->epoch;

	port->state = PORT_IDLE;
	wire_fence(port, epoch);
	port_event(port, LANE_DOWN, epoch, why);
}

void port_suspect(struct sim_port *port, uint32_t epoch, enum sim_reason why)
{
	if (!port->open || port->epoch != epoch)
		return;
	if (port->state == PORT_CONNECTING || port->state == PORT_HALF) {
		port_down(port, why);
	} else if (port->state == PORT_UP && !port->suspected) {
		port->suspected = true;
		port_event(port, LANE_SUSPECT, epoch, why);
	}
}

void port_fenced(struct sim_port *port, uint32_t epoch)
{
	if (!port->open)
		return;
	if (port->state != PORT_IDLE && port->epoch <= epoch)
		port->state = PORT_IDLE;
	wire_fence(port, epoch);
	port_event(port, LANE_FENCED, epoch, -1);
}

void port_limit(struct sim_port *port, uint32_t handshake)
{
	if (port->open && port->handshake == handshake &&
	    (port->state == PORT_CONNECTING || port->state == PORT_HALF))
		port_down(port, WHY_NO_ANSWER);
}

static sircl_result_t sim_open(const struct lane_cfg *cfg, struct lane **out, struct lane_addr *local)
{
	struct sim_port *port = cfg->provider;

	*out = NULL;
	if (!port)
		return error_set(SIRCL_INVALID_ARGUMENT, "lane/sim: cable %u lane %u has no simulated port",
				 cfg->cable, cfg->lane);
	if (port->open)
		return error_set(SIRCL_INVALID_USAGE, "lane/sim: cable %u lane %u is open already",
				 cfg->cable, cfg->lane);
	if (cfg->keys && cfg->keys->n > 0 && !port->auth) {
		port->auth = malloc(sizeof(*port->auth));
		if (!port->auth)
			return error_set(SIRCL_NO_MEMORY, "lane/sim: no memory for a handshake");
	}
	port->base.ops = &lane_sim_ops;
	port->cfg = *cfg;
	port->open = true;
	port->suspected = false;
	port->life++;
	port->state = PORT_IDLE;
	port->epoch = port->fenced = port->min_epoch = 0;
	port->nevents = port->first_event = port->unpolled = 0;
	memset(&port->stats, 0, sizeof(port->stats));
	memset(port->region, 0, sizeof(port->region));
	if (cfg->arena_len)
		port->region[0] = (struct sim_region){ .base = cfg->arena_base,
						       .len = cfg->arena_len,
						       .life = ++port->region_lives,
						       .exported = true };
	memset(local, 0, sizeof(*local));
	local->len = 3;
	local->b[0] = (uint8_t)port->wire->cable;
	local->b[1] = (uint8_t)port->wire->lane;
	local->b[2] = (uint8_t)port->end;
	*out = (struct lane *)(void *)port;
	return SIRCL_SUCCESS;
}

static void message_send(struct sim_port *from, enum message_kind kind, uint32_t epoch, const void *auth,
			 size_t nauth)
{
	struct sim *s = from->sim;
	struct sim_message *m = s->spare_message;

	if (m)
		s->spare_message = m->next;
	else
		m = malloc(sizeof(*m));
	sircl_assert(m != NULL);
	m->to = &from->wire->end[!from->end];
	m->kind = kind;
	m->epoch = epoch;
	m->life = from->life;
	m->region0 = (struct lane_export){ .len = from->region[0].len, .key = 0 };
	m->nauth = (uint32_t)nauth;
	memcpy(m->auth, auth ? auth : "", nauth);
	sim_push(s,
		 sim_here(s) + s->fabric.latency_ns +
			 (s->choose ? 0 : sim_random(s, s->fabric.jitter_ns + 1)),
		 SE_MESSAGE, m, epoch, kind);
}

static bool has_keys(const struct sim_port *port)
{
	return port->cfg.keys && port->cfg.keys->n > 0;
}

/* One step of the proof; false if it failed. Without keys there is nothing to prove. */
static bool prove(struct sim_port *port, const struct sim_message *in, uint8_t *out, size_t *nout)
{
	*nout = 0;
	if (!has_keys(port))
		return !in || in->nauth == 0;
	if (in && in->nauth == 0)
		return false;
	return auth_step(port->auth, in ? in->auth : NULL, in ? in->nauth : 0, out, nout) == SIRCL_SUCCESS;
}

static void begin(struct sim_port *port, enum port_state state, uint32_t epoch)
{
	uint8_t context[32] = { 0 };

	port->state = state;
	port->epoch = epoch;
	port->suspected = false;
	port->handshake++;
	sim_push(port->sim, sim_here(port->sim) + SIM_HANDSHAKE, SE_LIMIT, port, port->handshake, 0);
	if (!has_keys(port))
		return;
	memcpy(context, port->cfg.job, 16);
	memcpy(context + 16, &port->cfg.cable, 2);
	memcpy(context + 18, &port->cfg.lane, 2);
	memcpy(context + 20, &epoch, 4);
	auth_start(port->auth, port->cfg.keys, state == PORT_CONNECTING, context, sizeof(context), NULL, 0);
}

static void port_up(struct sim_port *port)
{
	struct sim_dir *out = &port->wire->dir[port->end];

	port->state = PORT_UP;
	out->broken = port->wire->dead;
	out->lost = out->error_due = false;
	out->stalled_until = 0;
	port_event(port, LANE_UP, port->epoch, -1);
	wire_deliver(port->wire, !port->end);
}

static void on_request(struct sim_port *port, const struct sim_message *m)
{
	uint8_t answer[AUTH_MSG_MAX];
	size_t n;

	if (port->state == PORT_UP && m->epoch > port->epoch)
		port_suspect(port, port->epoch, WHY_NEWER);
	if (port->state == PORT_HALF && m->epoch > port->epoch)
		port_down(port, WHY_NEWER); /* the peer has given that one up */
	if (port->cfg.connects || port->state != PORT_IDLE || !port->min_epoch ||
	    m->epoch < port->min_epoch || m->epoch <= port->fenced) {
		message_send(port, MSG_REFUSE, m->epoch, NULL, 0);
		return;
	}
	begin(port, PORT_HALF, m->epoch);
	if (!prove(port, m, answer, &n)) {
		message_send(port, MSG_REFUSE, m->epoch, NULL, 0);
		port_down(port, WHY_KEYS);
		return;
	}
	port->peer_export = m->region0;
	port->peer_life = m->life;
	message_send(port, MSG_ANSWER, m->epoch, answer, n);
}

void port_message(struct sim_message *m)
{
	struct sim_port *port = m->to;
	struct sim *s = port->sim;
	uint8_t answer[AUTH_MSG_MAX];
	size_t n;

	m->next = s->spare_message;
	s->spare_message = m;
	if (port->wire->dead && !port->wire->end[0].node->dead && !port->wire->end[1].node->dead)
		return;
	if (!port->open || port->node->dead) {
		/* the machine answers for a process that is not there */
		if (m->kind == MSG_REQUEST)
			message_send(port, MSG_NOBODY, m->epoch, NULL, 0);
		return;
	}
	switch (m->kind) {
	case MSG_REQUEST:
		on_request(port, m);
		break;
	case MSG_ANSWER:
		if (port->state != PORT_CONNECTING || port->epoch != m->epoch)
			break;
		if (!prove(port, m, answer, &n)) {
			port_down(port, WHY_KEYS);
			break;
		}
		port->peer_export = m->region0;
		port->peer_life = m->life;
		message_send(port, MSG_CONFIRM, m->epoch, answer, n);
		port_up(port);
		break;
	case MSG_CONFIRM:
		if (port->state != PORT_HALF || port->epoch != m->epoch)
			break;
		if (!prove(port, m, answer, &n))
			port_down(port, WHY_KEYS);
		else
			port_up(port);
		break;
	case MSG_REFUSE:
	case MSG_NOBODY:
		if (port->state == PORT_CONNECTING && port->epoch == m->epoch)
			port_down(port, m->kind == MSG_NOBODY ? WHY_NOBODY : WHY_REFUSED);
		break;
	}
}

static sircl_result_t sim_connect(struct lane *l, struct tick *t, const struct lane_addr *peer,
				  uint32_t epoch)
{
	struct sim_port *port = port_of(l);
	uint8_t first[AUTH_MSG_MAX];
	size_t n;

	(void)t;
	(void)peer; /* a port has only one other end */
	if (!port->cfg.connects || port->state != PORT_IDLE || epoch <= port->fenced)
		return error_set(
			SIRCL_INVALID_USAGE,
			"lane/sim: cable %u lane %u: connect for epoch %u is not legal now (%s, fenced up to "
			"%u)",
			port->cfg.cable, port->cfg.lane, epoch,
			port->state == PORT_IDLE ? "idle" : "not idle", port->fenced);
	begin(port, PORT_CONNECTING, epoch);
	if (!prove(port, NULL, first, &n))
		return error_again(error_last());
	message_send(port, MSG_REQUEST, epoch, first, n);
	return SIRCL_SUCCESS;
}

static void sim_allow(struct lane *l, uint32_t min_epoch)
{
	struct sim_port *port = port_of(l);

	if (min_epoch > port->min_epoch)
		port->min_epoch = min_epoch;
	if ((port->state == PORT_CONNECTING || port->state == PORT_HALF) && port->epoch < min_epoch)
		port_down(port, WHY_CANCEL);
}

static sircl_result_t sim_reg(struct lane *l, uint32_t id, void *p, size_t n, struct lane_mem *mem,
			      struct lane_export *out)
{
	struct sim_port *port = port_of(l);
	struct sim_region *r;

	if (id == 0 || id >= LANE_REGIONS_MAX || port->region[id].life)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "lane/sim: cable %u lane %u: region number %u is not free", port->cfg.cable,
				 port->cfg.lane, id);
	r = &port->region[id];
	*r = (struct sim_region){
		.base = p, .len = n, .life = ++port->region_lives, .exported = out != NULL
	};
	*mem = (struct lane_mem){ .base = p, .len = n, .id = id };
	if (out)
		*out = (struct lane_export){ .len = n, .key = id };
	return SIRCL_SUCCESS;
}

static void sim_unreg(struct lane *l, struct lane_mem *mem)
{
	port_of(l)->region[mem->id].life = 0;
}

static const struct lane_export *sim_peer_export(const struct lane *l)
{
	return &port_of_const(l)->peer_export;
}

static int sim_put(struct lane *l, struct tick *t, const struct lane_put *p, int n)
{
	struct sim_port *port = port_of(l);

	if (port->state != PORT_UP)
		return 0;
	for (int i = 0; i < n; i++) {
		sircl_assert(p[i].len <= lane_sim_ops.max_put);
		sircl_assert(p[i].len == 0 || (p[i].smem && p[i].smem->id < LANE_REGIONS_MAX && p[i].dst));
		tick_charge(t, COST_POST, p[i].len);
		port->stats.puts++;
		port->stats.put_bytes += p[i].len;
		wire_put(port, t->now, &p[i]);
	}
	return n;
}

static int sim_poll(struct lane *l, struct tick *t, struct lane_event *out, int max)
{
	struct sim_port *port = port_of(l);
	int n = 0;

	while (n < max && port->nevents) {
		out[n] = port->events[port->first_event];
		port->first_event = (port->first_event + 1) % port->room_events;
		port->nevents--;
		if (out[n].ev == LANE_NOTE) {
			port->unpolled--;
			tick_charge(t, COST_EVENT, 0);
		}
		n++;
	}
	if (n)
		port->node->again = true;
	return n;
}

static int sim_arm(struct lane *l, struct pollfd *fds, int max)
{
	(void)fds;
	(void)max;
	return port_of(l)->nevents ? -1 : 0;
}

static uint64_t sim_deadline(const struct lane *l)
{
	return port_of_const(l)->nevents ? 0 : NEVER;
}

static void sim_fence(struct lane *l, uint32_t epoch)
{
	struct sim_port *port = port_of(l);
	struct sim *s = port->sim;
	uint64_t takes = USEC;

	if ((port->state == PORT_CONNECTING || port->state == PORT_HALF) && port->epoch <= epoch)
		port_down(port, WHY_CANCEL);
	if (port->state == PORT_UP && port->epoch <= epoch)
		port->state = PORT_FENCING;
	if (s->fabric.jitter_ns && !s->choose)
		takes += sim_random(s, 4) ? sim_random(s, 2 * s->fabric.jitter_ns) : sim_late(s);
	sim_push(s, sim_here(s) + takes, SE_FENCED, port, epoch, port->life);
}

static void sim_close(struct lane *l)
{
	struct sim_port *port = port_of(l), *peer = &port->wire->end[!port->end];
	struct sim *s = port->sim;

	if (port->state == PORT_UP && !port->wire->dead && peer->open && peer->epoch == port->epoch)
		sim_push(s, sim_here(s) + s->fabric.latency_ns, SE_ERROR, peer, peer->epoch,
			 WHY_GONE | peer->life << 4);
	wire_fence(port, port->epoch);
	port->open = false;
	port->state = PORT_IDLE;
}

static void sim_stats(const struct lane *l, struct lane_stats *out)
{
	*out = port_of_const(l)->stats;
}

const struct lane_ops lane_sim_ops = {
	.name = "sim",
	.can_fence = true,
	.lossless = false,
	.needs_reg = true,
	.max_put = 1u << 20,
	.copy_limit = 8192,
	.open = sim_open,
	.connect = sim_connect,
	.allow = sim_allow,
	.reg = sim_reg,
	.unreg = sim_unreg,
	.peer_export = sim_peer_export,
	.put = sim_put,
	.poll = sim_poll,
	.arm = sim_arm,
	.deadline = sim_deadline,
	.fence = sim_fence,
	.close = sim_close,
	.stats = sim_stats,
};
