/* SPDX-License-Identifier: Apache-2.0 */
/* Segments by union-find, cables from segments, ring order from cables. Deterministic; see ringmap.h. */
#include "fabric/ringmap.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/ifaces.h"

struct build {
	const struct map_rank *r;
	int n, max_lanes;
	int parent[COLL_MAX_RANKS * MAP_PORTS_MAX];
	struct map_cable cable[COLL_MAX_RANKS * 2];
	int ncables;
};

static int find(struct build *b, int x)
{
	while (b->parent[x] != x)
		x = b->parent[x] = b->parent[b->parent[x]];
	return x;
}

static int node(int rank, int port)
{
	return rank * MAP_PORTS_MAX + port;
}

static void join_segments(struct build *b)
{
	for (int i = 0; i < b->n * MAP_PORTS_MAX; i++)
		b->parent[i] = i;
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->r[i].nheard; k++) {
			const struct map_heard *h = &b->r[i].heard[k];
			int x, y;

			if (h->rank >= b->n || h->port >= b->r[i].nports ||
			    h->peer_port >= b->r[h->rank].nports)
				continue;
			x = find(b, node(i, h->port));
			y = find(b, node(h->rank, h->peer_port));
			b->parent[x > y ? x : y] = x > y ? y : x;
		}
}

static bool domains_pair(const struct map_rank *a, const uint8_t *port, int n)
{
	for (int i = 0; i < n; i++) {
		if (a->port[port[i]].pci_domain == PCI_DOMAIN_UNKNOWN)
			return false;
		for (int k = 0; k < i; k++)
			if (a->port[port[k]].pci_domain == a->port[port[i]].pci_domain)
				return false;
	}
	return true;
}

/* ports[0..n), by PCI domain. */
static void sort_by_domain(const struct map_rank *r, uint8_t *port, int n)
{
	for (int i = 1; i < n; i++)
		for (int k = i; k > 0 && r->port[port[k]].pci_domain < r->port[port[k - 1]].pci_domain; k--) {
			uint8_t swap = port[k];

			port[k] = port[k - 1];
			port[k - 1] = swap;
		}
}

/* Ports are in ascending interface index already (map_rank.port is). */
static void pair_lanes(const struct build *b, struct map_cable *c, uint8_t p[2][MAP_PORTS_MAX])
{
	const struct map_rank *x = &b->r[c->rank[0]], *y = &b->r[c->rank[1]];
	int limit = b->max_lanes > 0 && b->max_lanes < LANES_MAX ? b->max_lanes : LANES_MAX;
	bool by_domain = domains_pair(x, p[0], c->nports[0]) && domains_pair(y, p[1], c->nports[1]);
	int common = 0;

	for (int i = 0; i < c->nports[0]; i++)
		for (int k = 0; k < c->nports[1]; k++)
			common += x->port[p[0][i]].pci_domain == y->port[p[1][k]].pci_domain;
	if (by_domain && common > 0) {
		/* so that lanes with the same number lie in the same domain on both cables of a machine */
		sort_by_domain(x, p[0], c->nports[0]);
		for (int i = 0; i < c->nports[0]; i++)
			for (int k = 0; k < c->nports[1] && c->nlanes < limit; k++)
				if (x->port[p[0][i]].pci_domain == y->port[p[1][k]].pci_domain) {
					c->port[0][c->nlanes] = p[0][i];
					c->port[1][c->nlanes++] = p[1][k];
				}
		return;
	}
	for (int i = 0; i < c->nports[0] && i < c->nports[1] && c->nlanes < limit; i++) {
		c->port[0][c->nlanes] = p[0][i];
		c->port[1][c->nlanes++] = p[1][i];
	}
}

/* A segment is looked at from its lowest port, so each is seen once, in a fixed order. */
static void add_cable(struct build *b, int seg)
{
	struct map_cable c = { .nlanes = 0 };
	uint8_t p[2][MAP_PORTS_MAX];
	int ranks = 0;

	for (int i = 0; i < b->n; i++) {
		int here = 0;

		for (int k = 0; k < b->r[i].nports; k++) {
			if (find(b, node(i, k)) != seg)
				continue;
			if (b->r[i].port[k].excluded)
				return;
			if (ranks < 2)
				p[ranks][here] = (uint8_t)k;
			here++;
		}
		if (!here)
			continue;
		if (ranks == 2)
			return; /* three machines in one segment: a switch, not a cable */
		c.rank[ranks] = (uint16_t)i;
		c.nports[ranks++] = here;
	}
	if (ranks != 2 || b->ncables == COLL_MAX_RANKS * 2)
		return;
	pair_lanes(b, &c, p);
	b->cable[b->ncables++] = c;
}

static sircl_result_t describe(const struct build *b, sircl_result_t code, const char *what)
{
	char list[400] = "";
	size_t at = 0;

	for (int i = 0; i < b->ncables && at < sizeof(list) - 1; i++) {
		int k = snprintf(list + at, sizeof(list) - at, "%s%d(%s)-%d(%s) %d lane%s", i ? ", " : "",
				 b->cable[i].rank[0], b->r[b->cable[i].rank[0]].host, b->cable[i].rank[1],
				 b->r[b->cable[i].rank[1]].host, b->cable[i].nlanes,
				 b->cable[i].nlanes == 1 ? "" : "s");

		at += k > 0 ? (size_t)k : 0;
	}
	return error_set(code, "%s; cables seen between ranks: %s", what, at ? list : "none");
}

static int cable_between(const struct build *b, int x, int y, int skip)
{
	for (int i = 0; i < b->ncables; i++)
		if (i != skip && ((b->cable[i].rank[0] == x && b->cable[i].rank[1] == y) ||
				  (b->cable[i].rank[1] == x && b->cable[i].rank[0] == y)))
			return i;
	return -1;
}

/* Puts cable i into the map as the one from position p, where `from` is, to p + 1. */
static void place_cable(const struct build *b, struct ring_map *m, int i, int p, int from)
{
	struct map_cable c = b->cable[i];

	if (c.rank[0] != from) {
		struct map_cable s = c;

		c.rank[0] = s.rank[1];
		c.rank[1] = s.rank[0];
		c.nports[0] = s.nports[1];
		c.nports[1] = s.nports[0];
		memcpy(c.port[0], s.port[1], sizeof(c.port[0]));
		memcpy(c.port[1], s.port[0], sizeof(c.port[1]));
	}
	m->cable[p] = c;
	m->ncables = p + 1;
}

static int leader_of(const struct build *b, int rank)
{
	return b->r[rank].shares ? b->r[rank].leader : rank;
}

/* The map of machines becomes the map of ranks: those of a machine take its place, joined by local cables. */
static void place_ranks(const struct build *b, struct ring_map *m)
{
	struct ring_map machines = *m;
	int lanes = b->max_lanes > 0 && b->max_lanes < LANES_MAX ? b->max_lanes : 1, at = 0;

	m->ncables = 0;
	for (int p = 0; p < machines.n; p++) {
		for (int i = 0; i < b->n; i++) {
			if (leader_of(b, i) != machines.rank_of[p])
				continue;
			if (at > 0 && leader_of(b, m->rank_of[at - 1]) == machines.rank_of[p])
				m->cable[m->ncables++] = (struct map_cable){
					.rank = { m->rank_of[at - 1], (uint16_t)i },
					.nlanes = lanes,
					.local = 1,
				};
			m->rank_of[at++] = (uint16_t)i;
		}
		if (p < machines.ncables)
			m->cable[m->ncables++] = machines.cable[p];
	}
	m->n = at;
	for (int c = 0; c < m->ncables; c++) {
		m->cable[c].rank[0] = m->rank_of[c];
		m->cable[c].rank[1] = m->rank_of[c + 1 < at ? c + 1 : 0];
	}
}

static void write_text(struct ring_map *m)
{
	size_t at = (size_t)snprintf(m->text, sizeof(m->text), "%d", m->rank_of[0]);

	for (int p = 0; p < m->ncables && at < sizeof(m->text) - 16; p++)
		at += (size_t)snprintf(m->text + at, sizeof(m->text) - at, " =%d= %d", m->cable[p].nlanes,
				       m->rank_of[(p + 1) % m->n]);
}

/* Walks from `first` along cables; the first step goes to `second`. Returns how many ranks were visited. */
static int walk(const struct build *b, struct ring_map *m, int first, int second, bool *closed)
{
	bool seen[COLL_MAX_RANKS] = { false };
	int prev = first, at = second, p = 1;

	m->rank_of[0] = (uint16_t)first;
	seen[first] = true;
	while (!seen[at]) {
		int next = -1;

		m->rank_of[p++] = (uint16_t)at;
		seen[at] = true;
		for (int y = 0; y < b->n && next < 0; y++)
			if (y != prev && y != at && cable_between(b, at, y, -1) >= 0)
				next = y;
		if (next < 0)
			break;
		prev = at;
		at = next;
	}
	*closed = p > 2 && at == first;
	return p;
}

/* Rank 0 is one of their leaders. Two cables make a ring of them. */
static sircl_result_t two_machines(const struct build *b, struct ring_map *m, bool want_ring)
{
	int other = 1, c, d;
	char what[64];

	while (leader_of(b, other) != other)
		other++;
	c = cable_between(b, 0, other, -1);
	d = c < 0 ? -1 : cable_between(b, 0, other, c);
	m->rank_of[1] = (uint16_t)other;
	if (c >= 0)
		place_cable(b, m, c, 0, 0);
	if (d >= 0) {
		m->ring = true;
		place_cable(b, m, d, 1, other);
	}
	snprintf(what, sizeof(what), "%s cable joins ranks 0 and %d", c < 0 ? "no" : "one", other);
	if (c < 0 || (!m->ring && want_ring))
		return describe(b, SIRCL_IN_PROGRESS, what);
	return SIRCL_SUCCESS;
}

sircl_result_t ring_map_build(const struct map_rank *r, int n, int max_lanes, bool want_ring,
			      struct ring_map *m)
{
	struct build *b = calloc(1, sizeof(*b));
	int degree[COLL_MAX_RANKS] = { 0 }, first = 0, second = -1, got, machines = 0;
	sircl_result_t ret = SIRCL_SUCCESS;
	bool closed = false;

	memset(m, 0, sizeof(*m));
	m->n = n;
	if (!b)
		return error_set(SIRCL_NO_MEMORY, "no memory for the ring map");
	b->r = r;
	b->n = n;
	b->max_lanes = max_lanes;
	if (n == 1) {
		m->text[0] = '0';
		goto out;
	}
	join_segments(b);
	for (int s = 0; s < n * MAP_PORTS_MAX; s++)
		if (find(b, s) == s)
			add_cable(b, s);
	for (int i = 0; i < n; i++)
		machines += leader_of(b, i) == i;
	m->n = machines;
	for (int i = 0; i < b->ncables; i++) {
		degree[b->cable[i].rank[0]]++;
		degree[b->cable[i].rank[1]]++;
	}
	for (int i = 0; i < n; i++)
		if (degree[i] > 2) {
			char what[256];

			snprintf(what, sizeof(what),
				 "rank %d (%s) has %d cables to other ranks, a ring allows 2: unplug one, or "
				 "exclude its ports with "
				 "SIRCL_IFNAME",
				 i, r[i].host, degree[i]);
			ret = describe(b, SIRCL_BAD_CONFIG, what);
			goto out;
		}
	if (machines == 2) {
		ret = two_machines(b, m, want_ring);
		goto text;
	}
	for (int i = n - 1; i >= 0; i--)
		if (degree[i] == 1)
			first = i; /* a line begins at its end with the lower rank */
	for (int y = n - 1; y >= 0; y--)
		if (y != first && cable_between(b, first, y, -1) >= 0)
			second = y;
	if (second < 0) {
		ret = describe(b, SIRCL_IN_PROGRESS,
			       "the ranks are not joined by cables into a ring or a line");
		goto out;
	}
	got = walk(b, m, first, second, &closed);
	if (got < machines) {
		ret = describe(b, closed ? SIRCL_BAD_CONFIG : SIRCL_IN_PROGRESS,
			       "the ranks are not joined by cables into one ring or line");
		goto out;
	}
	m->ring = closed;
	for (int p = 0; p < machines - (closed ? 0 : 1); p++)
		place_cable(b, m, cable_between(b, m->rank_of[p], m->rank_of[(p + 1) % machines], -1), p,
			    m->rank_of[p]);
	if (!closed && want_ring)
		ret = describe(b, SIRCL_IN_PROGRESS, "the ranks form a line, not a ring");
text:
	if (m->ncables) {
		place_ranks(b, m);
		write_text(m);
	}
out:
	free(b);
	return ret;
}
