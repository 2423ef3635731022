/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring map. On one machine the ring follows the ranks; between machines hello finds it.
 * Decisions are functions of what all ranks said in the same round, so all reach the same one in the same
 * round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/hello.h"
#include "fabric/internal.h"
#include "fabric/wire.h"

#define HELLO_ROUND (100 * MSEC)
enum {
	ROUNDS_STABLE = 3 /* a ring must look the same this often: a late twin makes a lane more */,
	ROUNDS_LINE = 30,
	ROUNDS_BAD = 10
};

/* The interface that the rendezvous goes over. */
static bool is_management(const struct start *s, const struct iface *i, const struct sockaddr_storage *local)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)local;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)local;
	const char *named = param_str(&s->ctx->params, PARAM_SOCKET_IFNAME);

	if (named && *named && iface_matches(named, i->name))
		return true;
	if (local->ss_family == AF_INET)
		return i->has_v4 && i->v4.s_addr == in->sin_addr.s_addr;
	if (local->ss_family != AF_INET6)
		return false;
	if (in6->sin6_scope_id && in6->sin6_scope_id == i->index)
		return true;
	return i->has_global6 && !memcmp(&i->global6, &in6->sin6_addr, sizeof(i->global6));
}

sircl_result_t start_ports(struct start *s, struct record *rec)
{
	struct iface list[IFACES_MAX];
	struct sockaddr_storage local = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(local);
	int n;

	CHECK(ifaces_read(list, IFACES_MAX, &n, "/sys"));
	getsockname(s->rdv.fd, (struct sockaddr *)&local, &len);
	for (int i = 0; i < n && rec->nports < MAP_PORTS_MAX; i++) {
		struct map_port *p = &rec->port[rec->nports];

		if (!iface_candidate(&list[i], param_str(&s->ctx->params, PARAM_IFNAME)))
			continue;
		memcpy(p->name, list[i].name, sizeof(p->name));
		p->index = list[i].index;
		p->pci_domain = list[i].pci_domain;
		p->mtu = list[i].mtu;
		p->excluded = is_management(s, &list[i], &local);
		s->port[rec->nports++] = list[i];
		log_info(&s->ctx->log, LOG_FABRIC, "port %s: index %u, mtu %u, PCI domain %d%s", p->name,
			 p->index, p->mtu, p->pci_domain == PCI_DOMAIN_UNKNOWN ? -1 : (int)p->pci_domain,
			 p->excluded ? ", management: no lane" : "");
	}
	return SIRCL_SUCCESS;
}

/* Rank order, `lanes` lanes per cable, no devices: shm, or tcp over loopback. */
static void local_map(struct start *s, int lanes)
{
	struct ring_map *m = &s->map;
	int n = s->cfg->n;

	memset(m, 0, sizeof(*m));
	m->n = n;
	m->ring = n > 2; /* two ranks need one cable; a line of two is as good as a ring */
	m->ncables = n == 1 ? 0 : n == 2 ? 1 : n;
	for (int p = 0; p < n; p++)
		m->rank_of[p] = (uint16_t)p;
	for (int p = 0; p < m->ncables; p++) {
		m->cable[p].rank[0] = (uint16_t)p;
		m->cable[p].rank[1] = (uint16_t)((p + 1) % n);
		m->cable[p].nlanes = lanes;
		m->cable[p].local = 1;
	}
	snprintf(m->text, sizeof(m->text), "rank order, %d lane%s per cable", lanes, lanes == 1 ? "" : "s");
}

static void write_heard(const struct map_rank *me, uint8_t *buf, size_t n, size_t *len)
{
	struct wire w = wire_over(buf, n);

	wire_put(&w, (uint64_t)me->nheard, 2);
	for (int i = 0; i < me->nheard; i++) {
		wire_put(&w, me->heard[i].port, 1);
		wire_put(&w, me->heard[i].rank, 2);
		wire_put(&w, me->heard[i].peer_port, 1);
	}
	*len = w.pos;
}

static sircl_result_t read_heard(struct start *s, struct map_rank *r)
{
	for (int i = 0; i < s->cfg->n; i++) {
		struct wire w = wire_over((void *)(uintptr_t)s->rdv.blob[i].p, s->rdv.blob[i].len);
		int n = (int)wire_get(&w, 2);

		if (n > MAP_HEARD_MAX)
			w.bad = true;
		for (int k = 0; k < n && !w.bad; k++) {
			r[i].heard[k].port = (uint8_t)wire_get(&w, 1);
			r[i].heard[k].rank = (uint16_t)wire_get(&w, 2);
			r[i].heard[k].peer_port = (uint8_t)wire_get(&w, 1);
		}
		r[i].nheard = n;
		if (w.bad)
			return error_set(SIRCL_REMOTE_ERROR,
					 "rank %d (%s) sent a malformed report of what it heard", i,
					 s->rec[i].host);
	}
	return SIRCL_SUCCESS;
}

static bool same_map(const struct ring_map *a, const struct ring_map *b)
{
	return a->ncables == b->ncables && !memcmp(a->rank_of, b->rank_of, sizeof(a->rank_of)) &&
	       !memcmp(a->cable, b->cable, sizeof(a->cable));
}

/* The same number on all ranks: from the shortest limit that any of them has. */
static int rounds_allowed(const struct start *s)
{
	uint32_t ms = UINT32_MAX;

	for (int i = 0; i < s->cfg->n; i++)
		ms = s->rec[i].limit_ms < ms ? s->rec[i].limit_ms : ms;
	return (int)(ms / 2 / (HELLO_ROUND / MSEC)) + 1;
}

static int lanes_allowed(const struct start *s)
{
	int lanes = 0;

	for (int i = 0; i < s->cfg->n; i++)
		if (s->rec[i].max_lanes && (!lanes || (int)s->rec[i].max_lanes < lanes))
			lanes = (int)s->rec[i].max_lanes;
	return lanes;
}

static void report_map(const struct start *s)
{
	const struct ring_map *m = &s->map;

	log_info(&s->ctx->log, LOG_FABRIC, "%s of %d, in cable order: %s", m->ring ? "ring" : "line", m->n,
		 m->text);
	if (!m->ring && m->n > 2 && s->cfg->rank == 0)
		log_warn(&s->ctx->log,
			 "the cable between rank %d (%s) and rank %d (%s) is missing: running as a line, "
			 "slower than a ring; plug it in, or "
			 "check its ports with `ip link`",
			 m->rank_of[m->n - 1], s->rec[m->rank_of[m->n - 1]].host, m->rank_of[0],
			 s->rec[m->rank_of[0]].host);
	for (int c = 0; c < m->ncables; c++) {
		const struct map_cable *k = &m->cable[c];

		if (k->nports[0] != k->nports[1] && s->cfg->rank == 0)
			log_warn(&s->ctx->log,
				 "cable %d: rank %d (%s) has %d ports on it, rank %d (%s) has %d: only %d "
				 "lanes are used",
				 c, k->rank[0], s->rec[k->rank[0]].host, k->nports[0], k->rank[1],
				 s->rec[k->rank[1]].host, k->nports[1], k->nlanes);
		for (int l = 0; l < k->nlanes && !k->local; l++)
			log_info(&s->ctx->log, LOG_FABRIC, "cable %d lane %d: rank %d %s - rank %d %s", c, l,
				 k->rank[0], s->rec[s->leader[k->rank[0]]].port[k->port[0][l]].name,
				 k->rank[1], s->rec[s->leader[k->rank[1]]].port[k->port[1][l]].name);
	}
}

static sircl_result_t hello_rounds(struct start *s, struct hello *h, struct map_rank *r)
{
	int stable = 0, rounds = rounds_allowed(s), lanes = lanes_allowed(s);
	struct ring_map last = { .n = 0 };

	for (int round = 0;; round++) {
		uint8_t buf[2 + 4 * MAP_HEARD_MAX];
		size_t len;
		sircl_result_t ret;

		if (h)
			hello_run(h, HELLO_ROUND, &r[s->cfg->rank]);
		write_heard(&r[s->cfg->rank], buf, sizeof(buf), &len);
		CHECK(rdv_round(&s->rdv, buf, len));
		CHECK(read_heard(s, r));
		ret = ring_map_build(r, s->cfg->n, lanes, round < ROUNDS_LINE, &s->map);
		if (ret == SIRCL_SUCCESS) {
			stable = same_map(&s->map, &last) ? stable + 1 : 1;
			last = s->map;
			if (stable >= ROUNDS_STABLE)
				return SIRCL_SUCCESS;
		} else if (round >= rounds || (ret == SIRCL_BAD_CONFIG && round >= ROUNDS_BAD)) {
			struct sircl_error e = *error_last();

			return error_set(ret == SIRCL_IN_PROGRESS ? SIRCL_TIMEOUT : ret,
					 "no ring of cables: %.480s. Check carrier (ip link), cages, "
					 "SIRCL_IFNAME; IPv6 "
					 "must be on, or off, at both ends of a cable",
					 e.msg);
		}
	}
}

static sircl_result_t find_map(struct start *s)
{
	static const char none[] = "rank %d (%s) has no network interface that could carry a lane (up, "
				   "ethernet, not the management "
				   "interface): check cables and `ip link`, SIRCL_IFNAME";
	struct map_rank *r = calloc((size_t)s->cfg->n, sizeof(*r));
	struct hello *h = NULL;
	sircl_result_t ret;

	if (!r)
		return error_set(SIRCL_NO_MEMORY, "rank %d: no memory for hello", s->cfg->rank);
	for (int i = 0; i < s->cfg->n; i++) {
		int usable = 0;

		memcpy(r[i].host, s->rec[i].host, sizeof(r[i].host));
		r[i].leader = s->leader[i];
		r[i].shares = true;
		if (s->leader[i] != i)
			continue;
		r[i].nports = s->rec[i].nports;
		memcpy(r[i].port, s->rec[i].port, sizeof(r[i].port));
		for (int k = 0; k < r[i].nports; k++)
			usable += !r[i].port[k].excluded;
		if (!usable) {
			ret = error_set(SIRCL_BAD_CONFIG, none, i, s->rec[i].host);
			goto out;
		}
	}
	/* one rank speaks and listens for its machine */
	if (s->leader[s->cfg->rank] == s->cfg->rank)
		CHECK_GOTO(hello_open(s->ctx, &s->f->keys, s->rdv.job, s->cfg->rank, s->port,
				      s->rec[s->cfg->rank].nports, &h),
			   out);
	ret = hello_rounds(s, h, r);
out:
	hello_close(h);
	free(r);
	return ret;
}

sircl_result_t start_cabling(struct start *s)
{
	const char *want = param_str(&s->ctx->params, PARAM_TRANSPORT);
	bool one;
	int lanes = lanes_allowed(s);

	s->machines = records_machines(s->rec, s->cfg->n, s->leader);
	one = s->machines == 1;
	if (!strcmp(want, "shm") && !one)
		return error_set(SIRCL_BAD_CONFIG, "SIRCL_TRANSPORT=shm, but the ranks are not on one "
						   "machine (in one network and process namespace, under "
						   "one user): use auto or tcp");
	s->devices = !one;
	if (one) {
		local_map(s, lanes ? lanes : 1);
		log_info(&s->ctx->log, LOG_FABRIC, "%s", s->map.text);
		return SIRCL_SUCCESS;
	}
	CHECK(find_map(s));
	report_map(s);
	return SIRCL_SUCCESS;
}
