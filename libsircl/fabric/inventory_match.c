/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of RDMA ports: is it one of these, are two of them one cage, which address is at an index. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/ifaces.h"
#include "fabric/inventory.h"

/* One entry of a filter, `len` characters: NAME or NAME:PORT; what may follow a second colon (NCCL's rail and
 * plane) says nothing about ports. */
static bool entry_matches(const char *entry, size_t len, bool exact, const void *what)
{
	const struct rdma_port *p = what;
	const char *colon = memchr(entry, ':', len);
	size_t name = colon ? (size_t)(colon - entry) : len;
	uint32_t port = 0;

	if (len == 0 || strncmp(entry, p->device, name) != 0 || (exact && p->device[name] != '\0'))
		return false;
	if (!colon || ++colon == entry + len)
		return true;
	for (; colon < entry + len && *colon != ':'; colon++) {
		if (*colon < '0' || *colon > '9' || port > 255)
			return false;
		port = port * 10 + (uint32_t)(*colon - '0');
	}
	return port == p->port;
}

bool rdma_port_matches(const char *filter, const struct rdma_port *p)
{
	return filter_matches(filter, entry_matches, p);
}

static bool same_function(const struct rdma_port *a, const struct rdma_port *b)
{
	if (!strcmp(a->device, b->device) && a->port == b->port)
		return true;
	return a->pci_domain != PCI_NONE && a->pci_domain == b->pci_domain && a->pci_bus == b->pci_bus &&
	       a->pci_slot == b->pci_slot && a->pci_function == b->pci_function;
}

bool rdma_port_sisters(const struct rdma_port *a, const struct rdma_port *b)
{
	bool card, cage;

	if (a->image_guid && b->image_guid)
		card = a->image_guid == b->image_guid;
	else
		card = a->switch_id[0] && !strcmp(a->switch_id, b->switch_id);
	if (a->phys_port[0] && b->phys_port[0])
		cage = !strcmp(a->phys_port, b->phys_port);
	else
		cage = a->pci_function != PCI_NONE && a->pci_function == b->pci_function;
	return card && cage && !same_function(a, b);
}

enum gid_kind { GID_NO_LANE, GID_LINK_LOCAL, GID_IPV4 };

static enum gid_kind gid_kind(const struct rdma_gid *g)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (g->v2 && g->b[0] == 0xfe && (g->b[1] & 0xc0) == 0x80)
		return GID_LINK_LOCAL;
	return g->v2 && !memcmp(g->b, mapped, sizeof(mapped)) ? GID_IPV4 : GID_NO_LANE;
}

static void gid_text(const struct rdma_gid *g, char buf[INET6_ADDRSTRLEN])
{
	if (gid_kind(g) == GID_IPV4)
		inet_ntop(AF_INET, g->b + 12, buf, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, g->b, buf, INET6_ADDRSTRLEN);
}

/* "1 (fe80::1), 4 (192.168.100.10)", as many as fit. */
static void gids_text(const struct rdma_port *p, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; i < p->ngids; i++) {
		char addr[INET6_ADDRSTRLEN], part[80];
		int len;

		if (gid_kind(&p->gid[i]) == GID_NO_LANE)
			continue;
		gid_text(&p->gid[i], addr);
		len = snprintf(part, sizeof(part), "%s%u (%s)", at ? ", " : "", p->gid[i].index, addr);
		if (at + (size_t)len + sizeof(", ...") > n) {
			memcpy(buf + at, ", ...", sizeof(", ..."));
			return;
		}
		memcpy(buf + at, part, (size_t)len + 1);
		at += (size_t)len;
	}
}

sircl_result_t rdma_port_gid(const struct rdma_port *p, int index, struct rdma_gid *out)
{
	const struct rdma_gid *g = NULL;
	char valid[256], addr[INET6_ADDRSTRLEN], what[128] = "is empty";

	for (int i = 0; i < p->ngids && !g; i++)
		if ((int64_t)p->gid[i].index == index)
			g = &p->gid[i];
	if (g && gid_kind(g) != GID_NO_LANE) {
		*out = *g;
		return SIRCL_SUCCESS;
	}
	if (g) {
		gid_text(g, addr);
		snprintf(what, sizeof(what), "(%s) is %s", addr,
			 g->v2 ? "neither a link-local IPv6 nor an IPv4 address" : "RoCE v1");
	}
	gids_text(p, valid, sizeof(valid));
	return error_set(SIRCL_BAD_CONFIG,
			 "SIRCL_GID_INDEX=%d (or NCCL_IB_GID_INDEX): GID %d of %s port %u (%s) %s; allowed "
			 "there: %s; or unset it, RDMA lanes find their address by themselves",
			 index, index, p->device, p->port, p->netdev[0] ? p->netdev : "no netdev", what,
			 valid[0] ? valid : "none, its netdev has no address");
}
