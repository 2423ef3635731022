/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sysfs says about the ports on this machine's cables: the two functions of a cage are sisters and share
 * one wire, so they must lie on the same cable, and both be up or down.
 */
#include "fabric/internal.h"

static const struct rdma_port *sister_of(const struct inventory *inv, const struct rdma_port *p)
{
	for (int i = 0; i < inv->n; i++)
		if (rdma_port_sisters(p, &inv->port[i]))
			return &inv->port[i];
	return NULL;
}

static void look_at_port(const struct start *s, const struct rdma_port *p)
{
	const struct rdma_port *q = sister_of(s->inventory, p);

	log_info(&s->ctx->log, LOG_FABRIC,
		 "port %s: %s port %u, cage %s, PCI %04x:%02x:%02x.%x, %u Mb/s, sister %s", p->netdev,
		 p->device, p->port, p->phys_port[0] ? p->phys_port : "unknown",
		 p->pci_domain == PCI_NONE ? 0 : p->pci_domain, p->pci_domain == PCI_NONE ? 0 : p->pci_bus,
		 p->pci_domain == PCI_NONE ? 0 : p->pci_slot, p->pci_domain == PCI_NONE ? 0 : p->pci_function,
		 p->rate_mbps, q ? q->device : "none");
	if (q && p->active && !q->active)
		log_warn(&s->ctx->log,
			 "rank %d (%s): %s (%s) is up and its sister on the same wire, %s (%s), is not, so "
			 "its "
			 "lane is missing: look at `ip link show %s`",
			 s->cfg->rank, s->ctx->host, p->device, p->netdev, q->device,
			 q->netdev[0] ? q->netdev : "no interface", q->netdev[0] ? q->netdev : "");
}

/* Ports of one cable end that are no sisters: cages lie in one segment. */
static void look_at_cable(const struct start *s, enum link_side side)
{
	const struct rdma_port *first = NULL;

	for (int l = 0; l < LANES_MAX; l++) {
		const char *name = start_netdev(s, side, l);
		const struct rdma_port *p = name ? inventory_find(s->inventory, name) : NULL;

		if (p && first && sister_of(s->inventory, first) && !rdma_port_sisters(first, p)) {
			log_warn(
				&s->ctx->log,
				"cable %d: %s and %s of rank %d (%s) hear each other but are no sisters of "
				"one cage: a switch lies between, or cables are swapped; one cable joins one "
				"cage to one cage",
				start_cable_at(s, side), first->netdev, p->netdev, s->cfg->rank,
				s->ctx->host);
			return;
		}
		if (!first)
			first = p;
	}
}

void start_cages(struct start *s)
{
	/* one rank speaks for its machine about ports, each about its own cables */
	for (int i = 0; s->leader[s->cfg->rank] == s->cfg->rank && i < s->rec[s->cfg->rank].nports; i++) {
		const struct map_port *m = &s->rec[s->cfg->rank].port[i];
		const struct rdma_port *p = m->excluded ? NULL : inventory_find(s->inventory, m->name);

		if (p)
			look_at_port(s, p);
	}
	for (int side = 0; side < LINK_SIDES; side++)
		look_at_cable(s, (enum link_side)side);
}
