/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this machine, as far as lanes and the rendezvous care. */
#ifndef FABRIC_IFACES_H
#define FABRIC_IFACES_H
#include <netinet/in.h>
#include "base/ctx.h"

#define IFACES_MAX 32
#define PCI_DOMAIN_UNKNOWN 0xffffffffu

struct iface {
	char name[16];
	uint32_t index, mtu, pci_domain;
	bool up, loopback, ether, multicast, wireless;
	bool has_v6, has_v4; /* v6: a link-local address */
	struct in6_addr v6;
	struct in_addr v4;
	bool has_global6;
	struct in6_addr global6;
};

/* Reads them all, ascending by index. sysfs: "/sys", or a tree for tests. */
sircl_result_t ifaces_read(struct iface *, int max, int *n, const char *sysfs);
/*
 * NCCL's filter syntax: a comma list of prefixes; `=` in front: exact names; `^` in front: all but these.
 * Empty or NULL matches everything. entry: whether one of the list (n bytes, maybe 0) means `what`.
 */
typedef bool filter_entry(const char *entry, size_t n, bool exact, const void *what);
bool filter_matches(const char *filter, filter_entry *, const void *what);
bool iface_matches(const char *filter, const char *name);
/* May carry a lane: up, running, ethernet, multicast, not wireless, has a link-local v6 or a v4 address,
 * passes the filter. */
bool iface_candidate(const struct iface *, const char *filter);
#endif
