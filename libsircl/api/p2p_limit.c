/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of point-to-point operations. A living peer may take as long as it likes; its death ends the
 * channel. What is reported is who is waited for, and what ends the communicator is a neighbour on the way of
 * which nothing at all is heard any more.
 */
#include <stdio.h>
#include "api/internal.h"

#define P2P_REPORT (30 * SEC)

/* The oldest request whose way is `side` (-1: any). */
static const struct sircl_request *oldest(const struct sircl_comm *c, int side)
{
	for (int d = 0; d < P2P_DIRS; d++)
		for (uint64_t set = p2p_active(c, d); set; set &= set - 1) {
			int peer = __builtin_ctzll(set);

			if (side < 0 || p2p_way(c, peer) == (enum link_side)side)
				return c->peer[peer].q[d].head;
		}
	return NULL;
}

/* The neighbour on the way is stopped or cut off. */
static void silent(sircl_comm_t c, struct tick *t, const struct sircl_request *r, int side)
{
	const struct fabric *f = c->fabric;
	int next = (f->pos + (side == LINK_NEXT ? 1 : f->n - 1)) % f->n;
	struct sircl_error e = { .code = SIRCL_TIMEOUT };

	snprintf(e.msg, sizeof(e.msg),
		 "rank %d: sircl_%s of %zu bytes with rank %d has waited %.1f s, and nothing at all is heard "
		 "from rank %d%s%s%s on cable %d (%s). Is that machine or process stopped, or the cable bad? "
		 "SIRCL_TIMEOUT (now %llu ms) is the limit",
		 c->rank, r->dir == P2P_SEND ? "send" : "recv", r->bytes, r->peer,
		 (double)(t->now - c->wait_since) / 1e9, f->rank_of[next],
		 c->id == COMM_TEAM ? "" : " of communicator \"", c->id == COMM_TEAM ? "" : c->home->name,
		 c->id == COMM_TEAM ? "" : "\"", side == LINK_NEXT ? f->pos : next,
		 side == LINK_NEXT ? "NEXT" : "PREV", (unsigned long long)(c->op_timeout / MSEC));
	comm_fail(c, t, &e, true, next);
}

static void look(sircl_comm_t c, struct tick *t)
{
	uint64_t lasting = c->op_timeout - c->op_timeout / 8;

	for (int side = 0; side < LINK_SIDES; side++) {
		const struct sircl_request *r = oldest(c, side);

		if (!r || !c->fabric->link[side])
			continue;
		link_look(c->fabric->link[side], t, &c->watch[side]);
		if (link_is_deaf(&c->watch[side], t->now, lasting))
			silent(c, t, r, side);
	}
}

static void limits(sircl_comm_t c, struct tick *t)
{
	const struct sircl_request *r = oldest(c, -1);

	c->look_at = t->now + c->op_timeout / 8;
	if (!c->wait_since) {
		c->wait_since = t->now;
		c->report_at = t->now + P2P_REPORT;
		for (int side = 0; side < LINK_SIDES; side++)
			c->watch[side] = (struct link_watch){ .begun = false };
		return;
	}
	look(c, t);
	if (!r || t->now < c->report_at)
		return;
	c->report_at = t->now + P2P_REPORT;
	log_warn(&c->ctx->log, "rank %d: sircl_%s of %zu bytes has waited %llu s for rank %d", c->rank,
		 r->dir == P2P_SEND ? "send" : "recv", r->bytes,
		 (unsigned long long)((t->now - c->wait_since) / SEC), r->peer);
}

uint64_t p2p_look(sircl_comm_t c, struct tick *t)
{
	uint64_t limit;

	engine_lock(c->fabric->engine);
	if (!c->wait_since || t->now >= c->look_at)
		limits(c, t);
	limit = c->look_at;
	if (c->trouble)
		limit = tick_min(limit, c->trouble_at);
	if (c->closing && !c->killed)
		limit = tick_min(limit, c->close_at);
	engine_unlock(c->fabric->engine);
	return limit;
}
