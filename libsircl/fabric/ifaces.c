/* SPDX-License-Identifier: Apache-2.0 */
/* Inventory of network interfaces (getifaddrs, sysfs) and the choice of the management address. */
#include "fabric/ifaces.h"
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fabric/address.h"

static uint32_t read_mtu(const char *sysfs, const char *name)
{
	char path[PATH_MAX];
	unsigned v = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/class/net/%s/mtu", sysfs, name);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%u", &v) != 1)
			v = 0;
		fclose(f);
	}
	return v;
}

/* The PCI domain of a netdev: its device link ends in DDDD:BB:SS.F. Virtual devices have none. */
static uint32_t read_domain(const char *sysfs, const char *name)
{
	char path[PATH_MAX], target[PATH_MAX];
	ssize_t n;
	const char *last;
	unsigned domain, bus, slot, function;

	snprintf(path, sizeof(path), "%s/class/net/%s/device", sysfs, name);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return PCI_DOMAIN_UNKNOWN;
	target[n] = '\0';
	last = strrchr(target, '/');
	last = last ? last + 1 : target;
	if (sscanf(last, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return PCI_DOMAIN_UNKNOWN;
	return domain;
}

static bool is_wireless(const char *sysfs, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/class/net/%s/phy80211", sysfs, name);
	return stat(path, &st) == 0;
}

static struct iface *find_or_add(struct iface *list, int max, int *n, const char *name, const char *sysfs)
{
	struct iface *i;

	for (int k = 0; k < *n; k++)
		if (!strcmp(list[k].name, name))
			return &list[k];
	if (*n == max)
		return NULL;
	i = &list[(*n)++];
	memset(i, 0, sizeof(*i));
	snprintf(i->name, sizeof(i->name), "%s", name);
	i->index = if_nametoindex(name);
	i->mtu = read_mtu(sysfs, name);
	i->pci_domain = read_domain(sysfs, name);
	i->wireless = is_wireless(sysfs, name);
	return i;
}

static int by_index(const void *a, const void *b)
{
	const struct iface *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

sircl_result_t ifaces_read(struct iface *list, int max, int *n, const char *sysfs)
{
	struct ifaddrs *all;

	*n = 0;
	if (getifaddrs(&all) != 0)
		return error_set(SIRCL_SYSTEM_ERROR,
				 "the network interfaces of this machine cannot be listed: %s",
				 strerror(errno));
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		struct iface *i;

		if (!a->ifa_addr || strchr(a->ifa_name, ':'))
			continue;
		i = find_or_add(list, max, n, a->ifa_name, sysfs);
		if (!i)
			continue;
		i->up = (a->ifa_flags & IFF_UP) && (a->ifa_flags & IFF_RUNNING);
		i->loopback = (a->ifa_flags & IFF_LOOPBACK) != 0;
		i->multicast = (a->ifa_flags & IFF_MULTICAST) != 0;
		if (a->ifa_addr->sa_family == AF_PACKET) {
			i->ether = ((const struct sockaddr_ll *)(const void *)a->ifa_addr)->sll_hatype ==
				   ARPHRD_ETHER;
		} else if (a->ifa_addr->sa_family == AF_INET && !i->has_v4) {
			i->v4 = ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr;
			i->has_v4 = true;
		} else if (a->ifa_addr->sa_family == AF_INET6) {
			const struct sockaddr_in6 *in6 =
				(const struct sockaddr_in6 *)(const void *)a->ifa_addr;

			if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) && !i->has_v6) {
				i->v6 = in6->sin6_addr;
				i->has_v6 = true;
			} else if (!IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) && !i->has_global6) {
				i->global6 = in6->sin6_addr;
				i->has_global6 = true;
			}
		}
	}
	freeifaddrs(all);
	qsort(list, (size_t)*n, sizeof(*list), by_index);
	return SIRCL_SUCCESS;
}

bool filter_matches(const char *filter, filter_entry *entry, const void *what)
{
	bool not = false, exact = false, hit = false;

	if (!filter || !*filter)
		return true;
	if (*filter == '^') {
		not = true;
		filter++;
	}
	if (*filter == '=') {
		exact = true;
		filter++;
	}
	while (*filter) {
		size_t n = strcspn(filter, ",");

		hit = hit || entry(filter, n, exact, what);
		filter += n + (filter[n] == ',');
	}
	return hit != not ;
}

static bool names(const char *entry, size_t n, bool exact, const void *what)
{
	const char *name = what;

	return n && !strncmp(entry, name, n) && (!exact || name[n] == '\0');
}

bool iface_matches(const char *filter, const char *name)
{
	return filter_matches(filter, names, name);
}

bool iface_candidate(const struct iface *i, const char *filter)
{
	return i->up && !i->loopback && i->ether && i->multicast && !i->wireless &&
	       (i->has_v6 || i->has_v4) && iface_matches(filter, i->name);
}

/* The interface of the IPv4 default route, "" if there is none. */
static void default_route(char name[16])
{
	char line[256], dev[16];
	unsigned long dest;
	FILE *f = fopen("/proc/net/route", "re");

	name[0] = '\0';
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%15s %lx", dev, &dest) == 2 && dest == 0 && !name[0])
			memcpy(name, dev, sizeof(dev));
	if (f)
		fclose(f);
}

static bool management_from(const struct iface *i, struct address *a)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&a->ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->ss;

	memset(a, 0, sizeof(*a));
	if (i->has_v4) {
		in->sin_family = AF_INET;
		in->sin_addr = i->v4;
		a->len = sizeof(*in);
	} else if (i->has_global6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_addr = i->global6;
		a->len = sizeof(*in6);
	} else {
		return false; /* link-local only: other machines could not tell which of their interfaces
				 leads here */
	}
	return true;
}

sircl_result_t address_management(const struct sircl_ctx *ctx, struct address *a)
{
	const char *filter = param_str(&ctx->params, PARAM_SOCKET_IFNAME);
	struct iface list[IFACES_MAX];
	char route[16];
	int n;

	CHECK(ifaces_read(list, IFACES_MAX, &n, "/sys"));
	default_route(route);
	if (filter && *filter) {
		for (int k = 0; k < n; k++)
			if (list[k].up && iface_matches(filter, list[k].name) && management_from(&list[k], a))
				return SIRCL_SUCCESS;
		return error_set(SIRCL_BAD_CONFIG,
				 "SIRCL_SOCKET_IFNAME=%s: no interface of that name is up with an IPv4 or "
				 "global IPv6 address",
				 filter);
	}
	for (int k = 0; k < n; k++)
		if (list[k].up && !strcmp(list[k].name, route) && management_from(&list[k], a))
			return SIRCL_SUCCESS;
	for (int k = 0; k < n; k++)
		if (list[k].up && !list[k].loopback && management_from(&list[k], a))
			return SIRCL_SUCCESS;
	for (int k = 0; k < n; k++)
		if (list[k].up && list[k].loopback && management_from(&list[k], a))
			return SIRCL_SUCCESS;
	return error_set(SIRCL_SYSTEM_ERROR, "no network interface of this machine has an address for the "
					     "rendezvous: bring one up, or set SIRCL_ROOT");
}
