/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the RDMA ports of this machine. Nothing is taken from names. A port's netdev is the one that its GIDs
 * name, else the one on the same PCI function, else (soft-RoCE) the device's parent.
 */
#include "fabric/inventory.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/inventory_sysfs.h"

enum { DEVICES_MAX = 64, NETDEVS_MAX = 256, PORTS_PER_DEVICE = 16 };

struct netdev {
	char name[16], function[SYSFS_NAME_MAX]; /* function: of its device link, "" if it has none */
	int64_t dev_port; /* -1: unreadable */
};

struct reader {
	const char *sysfs;
	struct inventory *inv;
	int nnetdevs;
	bool netdevs_known;
	struct netdev netdev[NETDEVS_MAX];
	char name[NETDEVS_MAX][SYSFS_NAME_MAX];
	char device[DEVICES_MAX][SYSFS_NAME_MAX];
};

static void read_netdevs(struct reader *r)
{
	int n = sysfs_names(r->name, NETDEVS_MAX, "%s/class/net", r->sysfs);

	r->netdevs_known = n >= 0;
	for (int i = 0; i < n; i++) {
		struct netdev *d = &r->netdev[r->nnetdevs];

		if (strlen(r->name[i]) >= sizeof(d->name))
			continue;
		memcpy(d->name, r->name[i], strlen(r->name[i]) + 1);
		sysfs_link(d->function, sizeof(d->function), "%s/class/net/%s/device", r->sysfs, d->name);
		d->dev_port = sysfs_number(0, UINT32_MAX, -1, "%s/class/net/%s/dev_port", r->sysfs, d->name);
		r->nnetdevs++;
	}
}

static bool is_netdev(const struct reader *r, const char *name)
{
	for (int i = 0; i < r->nnetdevs; i++)
		if (!strcmp(r->netdev[i].name, name))
			return true;
	return !r->netdevs_known; /* then it cannot be said */
}

/* Of the netdevs on a PCI function that with the port's number, else the only one. */
static bool netdev_of_function(const struct reader *r, const char *function, uint32_t port, char name[16])
{
	const struct netdev *any = NULL, *same = NULL;
	int n = 0, nsame = 0;

	for (int i = 0; *function && i < r->nnetdevs; i++) {
		const struct netdev *d = &r->netdev[i];

		if (strcmp(d->function, function) != 0)
			continue;
		n++;
		any = d;
		if (d->dev_port == (int64_t)port - 1) {
			nsame++;
			same = d;
		}
	}
	if (n != 1)
		any = nsame == 1 ? same : NULL;
	if (any)
		memcpy(name, any->name, sizeof(any->name));
	return any != NULL;
}

/* "4cbb:4703:0000:a110" in host order; 0 for anything else. */
static uint64_t read_guid(const char *sysfs, const char *device, const char *what)
{
	unsigned part[4];
	char text[32];
	int end = 0;

	if (!sysfs_text(text, sizeof(text), "%s/class/infiniband/%s/%s", sysfs, device, what) ||
	    strspn(text, "0123456789abcdefABCDEF:") != strlen(text) ||
	    sscanf(text, "%4x:%4x:%4x:%4x%n", &part[0], &part[1], &part[2], &part[3], &end) != 4 ||
	    text[end] != '\0')
		return 0;
	return (uint64_t)part[0] << 48 | (uint64_t)part[1] << 32 | (uint64_t)part[2] << 16 | part[3];
}

/* "200 Gb/sec (2X NDR)", "2.5 Gb/sec (1X SDR)" in Mbit/s; 0 for anything else. */
static uint32_t rate_of(const char *s)
{
	uint64_t mbps = 0, unit = 100;
	const char *from = s;

	for (; *s >= '0' && *s <= '9'; s++) {
		mbps = mbps * 10 + (uint64_t)(*s - '0') * 1000;
		if (mbps > UINT32_MAX)
			return 0;
	}
	if (s == from)
		return 0;
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10)
			mbps += (uint64_t)(*s - '0') * unit;
	return strncmp(s, " Gb/sec", 7) == 0 && mbps <= UINT32_MAX ? (uint32_t)mbps : 0;
}

static void read_gids(const struct reader *r, struct rdma_port *p)
{
	static const uint8_t none[16];
	char text[64], type[32], name[64];

	for (uint32_t i = 0; i < INVENTORY_GIDS_MAX; i++) {
		struct rdma_gid *g = &p->gid[p->ngids];

		/* an empty slot reads as zeros, and its attributes not at all */
		if (!sysfs_text(text, sizeof(text), "%s/class/infiniband/%s/ports/%u/gids/%u", r->sysfs,
				p->device, p->port, i) ||
		    inet_pton(AF_INET6, text, g->b) != 1 || !memcmp(g->b, none, sizeof(none)))
			continue;
		g->index = i;
		g->v2 = sysfs_text(type, sizeof(type), "%s/class/infiniband/%s/ports/%u/gid_attrs/types/%u",
				   r->sysfs, p->device, p->port, i) &&
			!strcmp(type, "RoCE v2");
		p->ngids++;
		/* a netdev that is not here belongs to another network namespace */
		if (!p->netdev[0] &&
		    sysfs_text(name, sizeof(name), "%s/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u",
			       r->sysfs, p->device, p->port, i) &&
		    strlen(name) < sizeof(p->netdev) && is_netdev(r, name))
			memcpy(p->netdev, name, strlen(name) + 1);
	}
}

static void find_netdev(const struct reader *r, struct rdma_port *p, const char *function)
{
	char name[64];

	if (p->netdev[0] || netdev_of_function(r, function, p->port, p->netdev))
		return;
	if (sysfs_text(name, sizeof(name), "%s/class/infiniband/%s/parent", r->sysfs, p->device) &&
	    strlen(name) < sizeof(p->netdev) && is_netdev(r, name))
		memcpy(p->netdev, name, strlen(name) + 1);
}

/* The PCI function and its node; a device without one (soft-RoCE) has those of its netdev. */
static void read_place(const struct reader *r, struct rdma_port *p, const char *function)
{
	char of_netdev[SYSFS_NAME_MAX] = "";
	bool own = pci_parse(function, &p->pci_domain, &p->pci_bus, &p->pci_slot, &p->pci_function);

	if (!own && p->netdev[0])
		sysfs_link(of_netdev, sizeof(of_netdev), "%s/class/net/%s/device", r->sysfs, p->netdev);
	if (!own && !pci_parse(of_netdev, &p->pci_domain, &p->pci_bus, &p->pci_slot, &p->pci_function))
		p->pci_domain = p->pci_bus = p->pci_slot = p->pci_function = PCI_NONE;
	p->numa = own ? (int)sysfs_number(-1, 65535, -1, "%s/class/infiniband/%s/device/numa_node", r->sysfs,
					  p->device)
		      : (int)sysfs_number(-1, 65535, -1, "%s/class/net/%s/device/numa_node", r->sysfs,
					  p->netdev[0] ? p->netdev : "-");
}

static void read_port(struct reader *r, const char *device, uint32_t port)
{
	struct rdma_port *p = &r->inv->port[r->inv->n];
	char text[64], function[SYSFS_NAME_MAX];

	if (r->inv->n == INVENTORY_PORTS_MAX)
		return;
	if (sysfs_text(text, sizeof(text), "%s/class/infiniband/%s/ports/%u/link_layer", r->sysfs, device,
		       port) &&
	    strcmp(text, "Ethernet") != 0)
		return;
	memset(p, 0, sizeof(*p));
	memcpy(p->device, device, strlen(device) + 1);
	p->port = port;
	p->node_guid = read_guid(r->sysfs, device, "node_guid");
	p->image_guid = read_guid(r->sysfs, device, "sys_image_guid");
	p->active = sysfs_text(text, sizeof(text), "%s/class/infiniband/%s/ports/%u/state", r->sysfs, device,
			       port) &&
		    !strncmp(text, "4:", 2);
	if (sysfs_text(text, sizeof(text), "%s/class/infiniband/%s/ports/%u/rate", r->sysfs, device, port))
		p->rate_mbps = rate_of(text);
	sysfs_link(function, sizeof(function), "%s/class/infiniband/%s/device", r->sysfs, device);
	read_gids(r, p);
	find_netdev(r, p, function);
	read_place(r, p, function);
	if (p->netdev[0]) {
		sysfs_text(p->phys_port, sizeof(p->phys_port), "%s/class/net/%s/phys_port_name", r->sysfs,
			   p->netdev);
		sysfs_text(p->switch_id, sizeof(p->switch_id), "%s/class/net/%s/phys_switch_id", r->sysfs,
			   p->netdev);
	}
	r->inv->n++;
}

static void read_device(struct reader *r, const char *device)
{
	char port[PORTS_PER_DEVICE][SYSFS_NAME_MAX];
	int n = sysfs_names(port, PORTS_PER_DEVICE, "%s/class/infiniband/%s/ports", r->sysfs, device);

	for (int i = 0; i < n; i++) {
		char *end;
		unsigned long v = strtoul(port[i], &end, 10);

		if (port[i][0] >= '1' && port[i][0] <= '9' && *end == '\0' && v <= 255)
			read_port(r, device, (uint32_t)v);
	}
}

sircl_result_t inventory_read(const char *sysfs, struct inventory **out)
{
	struct reader *r = calloc(1, sizeof(*r));
	struct inventory *inv = calloc(1, sizeof(*inv));
	int n;

	*out = NULL;
	if (!r || !inv) {
		free(r);
		free(inv);
		return error_set(SIRCL_NO_MEMORY, "no memory for the list of RDMA devices");
	}
	r->sysfs = sysfs;
	r->inv = inv;
	n = sysfs_names(r->device, DEVICES_MAX, "%s/class/infiniband", sysfs);
	if (n < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
		int err = errno;

		free(r);
		free(inv);
		return error_set(SIRCL_SYSTEM_ERROR,
				 "%s/class/infiniband cannot be listed: %s; is the limit of open files "
				 "(ulimit -n) reached?",
				 sysfs, strerror(err));
	}
	if (n > 0)
		read_netdevs(r);
	for (int i = 0; i < n; i++)
		read_device(r, r->device[i]);
	free(r);
	*out = inv;
	return SIRCL_SUCCESS;
}

void inventory_free(struct inventory *inv)
{
	free(inv);
}

const struct rdma_port *inventory_find(const struct inventory *inv, const char *netdev)
{
	for (int i = 0; netdev && *netdev && i < inv->n; i++)
		if (!strcmp(inv->port[i].netdev, netdev))
			return &inv->port[i];
	return NULL;
}
