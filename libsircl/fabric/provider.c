/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other about RoCE at their ports, and the choice; see provider.h. No I/O. */
#include "fabric/provider.h"
#include <stdio.h>
#include <string.h>
#include "fabric/wire.h"

size_t offer_write(const struct rank_offer *o, void *buf, size_t n)
{
	struct wire w = wire_over(buf, n);

	for (int side = 0; side < LINK_SIDES; side++) {
		wire_put(&w, (uint64_t)o->side[side].nlanes, 1);
		for (int l = 0; l < o->side[side].nlanes; l++) {
			const struct lane_offer *x = &o->side[side].lane[l];

			wire_put(&w, (x->verbs ? 1u : 0u) | (x->filtered ? 2u : 0u), 1);
			wire_put_text(&w, x->device, sizeof(x->device));
			wire_put(&w, x->port, 4);
			wire_put(&w, x->mtu, 4);
			wire_put(&w, x->family, 1);
			wire_put_text(&w, x->why_not, sizeof(x->why_not));
		}
	}
	sircl_assert(!w.bad);
	return w.pos;
}

sircl_result_t offer_read(struct rank_offer *o, int rank, const char *host, const void *buf, size_t n)
{
	struct wire w = wire_over((void *)(uintptr_t)buf, n);

	memset(o, 0, sizeof(*o));
	for (int side = 0; side < LINK_SIDES && !w.bad; side++) {
		int lanes = (int)wire_get(&w, 1);

		if (lanes > LANES_MAX)
			w.bad = true;
		for (int l = 0; l < lanes && !w.bad; l++) {
			struct lane_offer *x = &o->side[side].lane[l];
			uint64_t flags = wire_get(&w, 1);

			x->verbs = flags & 1;
			x->filtered = flags & 2;
			wire_get_text(&w, x->device, sizeof(x->device));
			x->port = (uint32_t)wire_get(&w, 4);
			x->mtu = (uint32_t)wire_get(&w, 4);
			x->family = (uint8_t)wire_get(&w, 1);
			wire_get_text(&w, x->why_not, sizeof(x->why_not));
		}
		o->side[side].nlanes = w.bad ? 0 : lanes;
	}
	if (w.bad || w.pos != n)
		return error_set(SIRCL_REMOTE_ERROR,
				 "rank %d (%s) sent a malformed report of its RDMA ports: install the same "
				 "version everywhere",
				 rank, host);
	return SIRCL_SUCCESS;
}

/* The offer of lane l at one end (0: from position p, its NEXT). NULL: that end said nothing about it. */
static struct lane_offer *offer_at(const struct map_cable *k, struct rank_offer *offer, int end, int l)
{
	struct rank_offer *o = &offer[k->rank[end]];
	enum link_side side = end == 0 ? LINK_NEXT : LINK_PREV;

	return l < o->side[side].nlanes ? &o->side[side].lane[l] : NULL;
}

static void keep_lane(struct map_cable *k, struct rank_offer *offer, int from, int to)
{
	for (int end = 0; end < 2; end++) {
		k->port[end][to] = k->port[end][from];
		*offer_at(k, offer, end, to) = *offer_at(k, offer, end, from);
	}
}

static void blame(struct cable_use *u, const struct map_cable *k, const struct record *rec,
		  const uint16_t *leader, int end, int l, const struct lane_offer *no)
{
	if (u->rank >= 0)
		return;
	u->rank = k->rank[end];
	if (no)
		u->no = *no;
	else
		snprintf(u->no.why_not, sizeof(u->no.why_not), "it said nothing about this lane");
	if (!k->local && rec[leader[u->rank]].nports > k->port[end][l])
		memcpy(u->netdev, rec[leader[u->rank]].port[k->port[end][l]].name, sizeof(u->netdev));
}

/* IPv6 at one end and IPv4 at the other do not meet: the end without IPv6 cannot. */
static void one_family(const struct map_cable *k, const struct record *rec, struct rank_offer *offer, int l)
{
	struct lane_offer *o[2] = { offer_at(k, offer, 0, l), offer_at(k, offer, 1, l) };

	if (!o[0] || !o[1] || !o[0]->verbs || !o[1]->verbs || o[0]->family == o[1]->family)
		return;
	for (int end = 0; end < 2; end++) {
		int other = k->rank[1 - end];

		if (o[end]->family == 6)
			continue;
		o[end]->verbs = false;
		snprintf(o[end]->why_not, sizeof(o[end]->why_not),
			 "its RoCE address is IPv4, that of the other end (rank %d, %.60s) link-local "
			 "IPv6: switch IPv6 on, or off, at both (or unset SIRCL_GID_INDEX)",
			 other, rec[other].host);
	}
}

/* Looks at one cable between machines, or a local one with WANT_VERBS. */
static void choose_cable(struct map_cable *k, const struct record *rec, const uint16_t *leader,
			 struct rank_offer *offer, struct cable_use *u)
{
	int kept = 0, lanes = k->nlanes;

	for (int l = 0; l < lanes; l++) {
		bool can = true;

		one_family(k, rec, offer, l);
		for (int end = 0; end < 2; end++) {
			const struct lane_offer *o = offer_at(k, offer, end, l);

			if (o && o->verbs)
				continue;
			can = false;
			blame(u, k, rec, leader, end, l, o);
		}
		u->left_out += !can;
	}
	if (u->left_out == lanes) {
		u->class = CLASS_TCP;
		u->left_out = 0;
		return;
	}
	u->class = CLASS_VERBS;
	for (int l = 0; l < lanes; l++) {
		const struct lane_offer *a = offer_at(k, offer, 0, l), *b = offer_at(k, offer, 1, l);

		if (a && a->verbs && b && b->verbs)
			keep_lane(k, offer, l, kept++);
	}
	k->nlanes = kept;
	for (int end = 0; end < 2; end++)
		offer[k->rank[end]].side[end == 0 ? LINK_NEXT : LINK_PREV].nlanes = kept;
}

static const char *at_port(const struct cable_use *u, char *buf, size_t n)
{
	if (u->netdev[0])
		snprintf(buf, n, ", port %s", u->netdev);
	else
		buf[0] = '\0';
	return buf;
}

sircl_result_t provider_choose(enum provider_want want, struct ring_map *m, const struct record *rec,
			       const uint16_t *leader, struct rank_offer *offer, struct cable_use *use)
{
	for (int c = 0; c < m->ncables; c++) {
		struct map_cable *k = &m->cable[c];
		struct cable_use *u = &use[c];
		char port[32];

		*u = (struct cable_use){ .class = CLASS_TCP, .rank = -1 };
		if (k->local && want != WANT_TCP && want != WANT_VERBS)
			u->class = CLASS_SHM;
		else if (want != WANT_TCP && offer)
			choose_cable(k, rec, leader, offer, u);
		if (want == WANT_VERBS && u->class != CLASS_VERBS)
			return error_set(SIRCL_BAD_CONFIG,
					 "SIRCL_TRANSPORT=verbs, but cable %d between rank %d (%s) and rank "
					 "%d (%s) cannot carry RoCE lanes: rank %d (%s)%s: %s. "
					 "SIRCL_TRANSPORT=auto takes another way there",
					 c, k->rank[0], rec[k->rank[0]].host, k->rank[1],
					 rec[k->rank[1]].host, u->rank, u->rank < 0 ? "?" : rec[u->rank].host,
					 at_port(u, port, sizeof(port)), u->no.why_not);
	}
	return SIRCL_SUCCESS;
}

enum coll_class provider_class(const struct cable_use *use, int ncables)
{
	enum coll_class worst = CLASS_SHM;

	for (int c = 0; c < ncables; c++)
		if (use[c].class == CLASS_TCP || (use[c].class == CLASS_VERBS && worst == CLASS_SHM))
			worst = use[c].class;
	return worst;
}

/* An earlier cable with the same reason at the same rank or, of the same kind, at another; -1: none. */
static int said_before(const struct cable_use *use, int c)
{
	for (int i = 0; i < c; i++)
		if (use[i].rank >= 0 && !strcmp(use[i].no.why_not, use[c].no.why_not))
			return i;
	return -1;
}

const char *provider_text(const struct ring_map *m, const struct record *rec, const struct rank_offer *offer,
			  const struct cable_use *use, int c, char *buf, size_t n)
{
	static const char *const names[] = {
		[CLASS_SHM] = "shm", [CLASS_TCP] = "tcp", [CLASS_VERBS] = "verbs"
	};
	const struct map_cable *k = &m->cable[c];
	const struct cable_use *u = &use[c];
	size_t at = (size_t)snprintf(buf, n, "cable %d: %s, %d lane%s", c, names[u->class], k->nlanes,
				     k->nlanes == 1 ? "" : "s");
	char port[32];
	int before;

#define ADD(...) (at += at < n ? (size_t)snprintf(buf + at, n - at, __VA_ARGS__) : 0)
	for (int end = 0; u->class == CLASS_VERBS && end < 2; end++) {
		const struct lane_offer *o = offer[k->rank[end]].side[end == 0 ? LINK_NEXT : LINK_PREV].lane;

		ADD("%srank %d", end == 0 ? ": " : " - ", k->rank[end]);
		for (int l = 0; l < k->nlanes; l++)
			ADD("%s%s port %u (RoCE MTU %u)", l == 0 ? " " : ", ", o[l].device, o[l].port,
			    o[l].mtu);
	}
	if (u->rank >= 0) {
		if (u->left_out)
			ADD("; %d lane%s left out", u->left_out, u->left_out == 1 ? "" : "s");
		else
			ADD("; not verbs");
		before = said_before(use, c);
		ADD(": rank %d (%s)%s", u->rank, rec[u->rank].host, at_port(u, port, sizeof(port)));
		if (before >= 0)
			ADD(": as for cable %d", before);
		else
			ADD(": %s", u->no.why_not);
	}
#undef ADD
	return buf;
}
