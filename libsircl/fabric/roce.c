/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the ports on this rank's cables whether verbs lanes can run over them, tells everybody, and lets
 * provider.c choose. Not asked where the answer cannot matter: shm, tcp, and auto within one machine.
 */
#include <stdio.h>
#include <string.h>
#include "fabric/internal.h"
#include "lane/verbs.h"

int start_cable_at(const struct start *s, enum link_side side)
{
	int p = s->f->pos, c = side == LINK_NEXT ? p : p - 1;

	if (s->map.ring)
		c = (c + s->map.n) % s->map.n;
	return c >= 0 && c < s->map.ncables ? c : -1;
}

/* The map counts the ports of the machine's first rank; they have the same names for all. */
static const struct map_port *port_of(const struct start *s, enum link_side side, int lane)
{
	int c = start_cable_at(s, side);
	const struct map_cable *k = c < 0 ? NULL : &s->map.cable[c];

	if (!k || !s->devices || k->local || lane >= k->nlanes)
		return NULL;
	return &s->rec[s->leader[s->cfg->rank]].port[k->port[side == LINK_NEXT ? 0 : 1][lane]];
}

const char *start_netdev(const struct start *s, enum link_side side, int lane)
{
	const struct map_port *p = port_of(s, side, lane);
	int c = start_cable_at(s, side);

	if (p)
		return p->name;
	return c >= 0 && s->use[c].class == CLASS_VERBS && s->nloopback ? s->loopback[lane % s->nloopback]
									: NULL;
}

bool start_lanes_beside(const struct start *s)
{
	for (int l = 0; l < LANES_MAX; l++) {
		const struct map_port *a = port_of(s, LINK_NEXT, l), *b = port_of(s, LINK_PREV, l);

		if (a && b && a->pci_domain != PCI_DOMAIN_UNKNOWN && b->pci_domain != PCI_DOMAIN_UNKNOWN &&
		    a->pci_domain != b->pci_domain)
			return false;
	}
	return true;
}

/* The filter, and what it is called in the environment. */
struct filter {
	const char *text, *name;
	bool hit; /* a device passes */
	int there; /* devices seen */
	char list[200];
	size_t at;
};

static struct filter filter_make(const struct start *s)
{
	const char *text = param_str(&s->ctx->params, PARAM_HCA);

	return (struct filter){ .text = text ? text : "",
				.name = s->ctx->params.origin[PARAM_HCA] == PARAM_NCCL ? "NCCL_IB_HCA"
										       : "SIRCL_HCA" };
}

static bool filter_passes(struct filter *f, const struct rdma_port *p)
{
	bool pass = rdma_port_matches(f->text, p);

	f->hit |= pass;
	f->there++;
	if (f->at < sizeof(f->list) && !strstr(f->list, p->device))
		f->at += (size_t)snprintf(f->list + f->at, sizeof(f->list) - f->at, "%s%s", f->at ? ", " : "",
					  p->device);
	return pass;
}

static sircl_result_t filter_check(const struct start *s, const struct filter *f)
{
	if (f->hit || !f->there)
		return SIRCL_SUCCESS;
	return error_set(
		SIRCL_BAD_CONFIG,
		"rank %d (%s): %s=%s leaves no RDMA device; this machine has %s; allowed are prefixes "
		"of names, each with an optional :port, = in front for whole names, ^ for all but these",
		s->cfg->rank, s->ctx->host, f->name, f->text, f->list);
}

static void leave_out(struct lane_offer *o, const struct filter *f)
{
	o->verbs = false;
	o->filtered = true;
	snprintf(o->why_not, sizeof(o->why_not), "%s=%.60s leaves out %s", f->name, f->text, o->device);
}

/* Fails on what is wrong whatever the other end can: parameters. */
static sircl_result_t ask(const struct start *s, const char *netdev, struct filter *f, struct lane_offer *o)
{
	const struct rdma_port *known = s->inventory ? inventory_find(s->inventory, netdev) : NULL;
	struct rdma_port found = { .port = 0 };
	struct verbs_port v = { .port = 0 };
	sircl_result_t ret;

	memset(o, 0, sizeof(*o));
	if (known) {
		snprintf(o->device, sizeof(o->device), "%s", known->device);
		o->port = known->port;
		if (!filter_passes(f, known)) {
			leave_out(o, f);
			return SIRCL_SUCCESS;
		}
	}
	ret = verbs_probe(s->ctx, netdev, &v);
	if (ret != SIRCL_SUCCESS) {
		const struct sircl_error e = *error_last();

		snprintf(o->why_not, sizeof(o->why_not), "%.*s", (int)sizeof(o->why_not) - 1, e.msg);
		/* the other ranks read it as well */
		return ret == SIRCL_BAD_CONFIG
			       ? error_set(ret, "rank %d (%s): %s", s->cfg->rank, s->ctx->host, e.msg)
			       : SIRCL_SUCCESS;
	}
	snprintf(o->device, sizeof(o->device), "%s", v.device);
	o->port = v.port;
	o->mtu = v.mtu;
	o->family = v.family;
	o->verbs = true;
	memcpy(found.device, o->device, sizeof(found.device));
	found.port = v.port;
	if (!filter_passes(f, &found))
		leave_out(o, f);
	return SIRCL_SUCCESS;
}

/* Whether the offer's device is one of the first n. */
static bool offered(const struct lane_offer *o, const struct lane_offer *of, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(of[i].device, o->device) && of[i].port == o->port)
			return true;
	return false;
}

/*
 * Verbs lanes within this machine: there and back through one device, each lane through another one as far as
 * there are any. The loopback interface comes last: where it leads to a device, that has another name as
 * well.
 */
static sircl_result_t ask_loopback(struct start *s, struct filter *f, struct lane_offer *lane, int n)
{
	struct iface list[IFACES_MAX];
	struct sircl_error first = { .code = SIRCL_SUCCESS };
	struct lane_offer o, no = { .why_not = "no interface is up" };
	int ports, found = 0;

	CHECK(ifaces_read(list, IFACES_MAX, &ports, "/sys"));
	for (int i = 0; i < 2 * ports && found < n; i++) {
		const struct iface *p = &list[i % ports];

		if (!p->up || p->loopback != (i >= ports))
			continue;
		if (ask(s, p->name, f, &o) != SIRCL_SUCCESS) { /* the parameter may fit another device */
			if (first.code == SIRCL_SUCCESS)
				first = *error_last();
		} else if (!o.verbs) {
			if (!no.device[0])
				no = o;
		} else if (!offered(&o, lane, found)) {
			memcpy(s->loopback[found], p->name, sizeof(p->name));
			lane[found++] = o;
		}
	}
	s->nloopback = found;
	if (!found && first.code != SIRCL_SUCCESS)
		return error_again(&first);
	for (int l = found; l < n; l++)
		lane[l] = found ? lane[l % found] : no;
	return SIRCL_SUCCESS;
}

static sircl_result_t ask_all(struct start *s, struct rank_offer *mine)
{
	struct filter f = filter_make(s);
	enum provider_want want = (enum provider_want)param_num(&s->ctx->params, PARAM_TRANSPORT);

	memset(mine, 0, sizeof(*mine));
	for (int i = 0; s->inventory && i < s->inventory->n; i++)
		filter_passes(&f, &s->inventory->port[i]);
	for (int side = 0; side < LINK_SIDES; side++) {
		int c = start_cable_at(s, (enum link_side)side);
		const struct map_cable *k = c < 0 ? NULL : &s->map.cable[c];

		if (!k || (k->local && want != WANT_VERBS))
			continue;
		mine->side[side].nlanes = k->nlanes;
		if (k->local)
			CHECK(ask_loopback(s, &f, mine->side[side].lane, k->nlanes));
		for (int l = 0; l < k->nlanes && !k->local; l++)
			CHECK(ask(s, start_netdev(s, (enum link_side)side, l), &f,
				  &mine->side[side].lane[l]));
	}
	return filter_check(s, &f);
}

static sircl_result_t tell(struct start *s)
{
	uint8_t buf[RDV_BLOB_MAX];
	struct rank_offer *mine = &s->offer[s->cfg->rank];

	CHECK(ask_all(s, mine));
	CHECK(rdv_round(&s->rdv, buf, offer_write(mine, buf, sizeof(buf))));
	for (int i = 0; i < s->cfg->n; i++)
		CHECK(offer_read(&s->offer[i], i, s->rec[i].host, s->rdv.blob[i].p, s->rdv.blob[i].len));
	return SIRCL_SUCCESS;
}

static void report(const struct start *s)
{
	static const char *const names[] = {
		[CLASS_SHM] = "shm", [CLASS_TCP] = "tcp", [CLASS_VERBS] = "verbs"
	};
	enum coll_class class = provider_class(s->use, s->map.ncables);
	bool one = !s->devices, shm = false, verbs = false;
	char line[600];

	for (int c = 0; c < s->map.ncables; c++) {
		const struct cable_use *u = &s->use[c];

		shm |= u->class == CLASS_SHM;
		verbs |= u->class == CLASS_VERBS;
		if (u->class != CLASS_SHM && log_on(&s->ctx->log, LOG_INFO, LOG_FABRIC))
			log_info(&s->ctx->log, LOG_FABRIC, "%s",
				 provider_text(&s->map, s->rec, s->offer, s->use, c, line, sizeof(line)));
		if (s->cfg->rank == 0 && u->left_out && !u->no.filtered)
			log_warn(&s->ctx->log, "%s",
				 provider_text(&s->map, s->rec, s->offer, s->use, c, line, sizeof(line)));
	}
	log_info(&s->ctx->log, LOG_INIT, "transport %s (SIRCL_TRANSPORT=%s, %d machine%s)%s", names[class],
		 param_str(&s->ctx->params, PARAM_TRANSPORT), s->machines, one ? "" : "s",
		 one || !shm ? "" : ", shm within a machine");
	for (int c = 0; s->cfg->rank == 0 && verbs && class == CLASS_TCP && c < s->map.ncables; c++)
		if (s->use[c].class == CLASS_TCP)
			log_warn(&s->ctx->log, "other cables are faster than this one: %s",
				 provider_text(&s->map, s->rec, s->offer, s->use, c, line, sizeof(line)));
}

sircl_result_t start_providers(struct start *s)
{
	enum provider_want want = (enum provider_want)param_num(&s->ctx->params, PARAM_TRANSPORT);
	bool asked = want == WANT_VERBS || (want == WANT_AUTO && s->devices);

	if (s->devices || asked)
		CHECK(inventory_read("/sys", &s->inventory));
	if (s->devices)
		start_cages(s);
	if (asked)
		CHECK(tell(s));
	CHECK(provider_choose(want, &s->map, s->rec, s->leader, asked ? s->offer : NULL, s->use));
	report(s);
	return SIRCL_SUCCESS;
}

sircl_result_t start_placement(const struct start *s, cpu_set_t *cpus, bool *bind)
{
	const char *want = param_str(&s->ctx->params, PARAM_PROGRESS_CPU);
	const struct rdma_port *p = NULL;
	const char *netdev = NULL;
	char pci[32];
	int before = 0, here = 0;

	*bind = false;
	/* shared memory alone has no card to be near to */
	if (!s->devices && !s->inventory && !(want && *want))
		return SIRCL_SUCCESS;
	for (int side = 0; side < LINK_SIDES && !netdev; side++)
		netdev = start_netdev(s, (enum link_side)side, 0);
	if (netdev && s->inventory)
		p = inventory_find(s->inventory, netdev);
	if (p && p->pci_domain != PCI_NONE)
		snprintf(pci, sizeof(pci), "%04x:%02x:%02x.%x", p->pci_domain, p->pci_bus, p->pci_slot,
			 p->pci_function);
	for (int i = 0; i < s->cfg->n; i++)
		if (record_same_cores(&s->rec[i], &s->rec[s->cfg->rank])) {
			here++;
			before += i < s->cfg->rank;
		}
	return placement_choose(s->ctx, "/sys", p && p->pci_domain != PCI_NONE ? pci : NULL, before, here,
				cpus, bind);
}
