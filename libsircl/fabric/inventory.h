/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RDMA ports of this machine as sysfs shows them (InfiniBand's own, which cannot be lanes, left out):
 * which netdev is which device and port, which functions are sisters (one cage of one card), what the GID
 * table holds, which cores are fast and near. For the choice of devices, placement, messages and diagnosis;
 * connections themselves need none of it.
 */
#ifndef FABRIC_INVENTORY_H
#define FABRIC_INVENTORY_H
#include "base/ctx.h"

#define INVENTORY_PORTS_MAX 32
#define INVENTORY_GIDS_MAX 256
#define PCI_NONE 0xffffffffu

struct rdma_gid {
	uint32_t index;
	uint8_t b[16];
	bool v2; /* RoCE v2; else v1 */
};

struct rdma_port {
	char device[64], netdev[16]; /* netdev "": none */
	uint32_t port;
	uint64_t node_guid, image_guid; /* host order, 0: unreadable */
	char phys_port[16], switch_id[72]; /* "": unreadable */
	uint32_t pci_domain, pci_bus, pci_slot, pci_function; /* PCI_NONE: no PCI device */
	int numa; /* -1: unknown */
	bool active;
	uint32_t rate_mbps; /* 0: unknown */
	int ngids;
	struct rdma_gid gid[INVENTORY_GIDS_MAX]; /* holes left out */
};

struct inventory {
	int n;
	struct rdma_port port[INVENTORY_PORTS_MAX];
};

/*
 * sysfs: "/sys", or a tree for tests. No RDMA device at all is a success with n = 0; what is unreadable is
 * left out. Ports in natural order of their devices' names. Allocates: free it. Blocking, at start only.
 */
sircl_result_t inventory_read(const char *sysfs, struct inventory **);
void inventory_free(struct inventory *);
/* The port behind a netdev, or NULL. */
const struct rdma_port *inventory_find(const struct inventory *, const char *netdev);
/*
 * SIRCL_HCA, NCCL_IB_HCA: a comma list of device prefixes, each with an optional :port; `=` in front: exact
 * names; `^` in front: all but these; both as `^=`. Empty or NULL: all.
 */
bool rdma_port_matches(const char *filter, const struct rdma_port *);
/*
 * Two functions of one cage of one card: the same sys_image_guid (else the same phys_switch_id), and the same
 * phys_port_name (else, if one of them has none, the same PCI function number), and not the same function.
 * Never by slot or by name.
 */
bool rdma_port_sisters(const struct rdma_port *, const struct rdma_port *);
/*
 * SIRCL_GID_INDEX on this port: SIRCL_SUCCESS and the GID, or one sentence with the valid indices (RoCE v2,
 * not empty, IPv6 link-local or IPv4-mapped) and their addresses.
 */
sircl_result_t rdma_port_gid(const struct rdma_port *, int index, struct rdma_gid *);
#endif
