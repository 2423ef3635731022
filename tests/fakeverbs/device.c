/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: one for each netdev with an address that a GID is made of, known to all processes of the lab. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "internal.h"

bool fv_map_addr(const struct sockaddr *a, uint8_t out[16], uint16_t *port, uint32_t *scope)
{
	const struct sockaddr_in *in = (const void *)a;
	const struct sockaddr_in6 *in6 = (const void *)a;

	memset(out, 0, 16);
	*scope = 0;
	if (a->sa_family == AF_INET) {
		out[10] = out[11] = 0xff;
		memcpy(out + 12, &in->sin_addr, 4);
		*port = in->sin_port;
	} else if (a->sa_family == AF_INET6) {
		memcpy(out, &in6->sin6_addr, 16);
		*port = in6->sin6_port;
		*scope = in6->sin6_scope_id;
	} else {
		return false;
	}
	return true;
}

/* The largest RoCE packet that fits into the netdev's. */
static uint32_t roce_mtu(const char *netdev)
{
	struct ifreq r = { 0 };
	uint32_t mtu = 4096;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", netdev);
	if (fd < 0 || ioctl(fd, SIOCGIFMTU, &r) != 0)
		r.ifr_mtu = 1500;
	if (fd >= 0)
		close(fd);
	while (mtu > 256 && (int)mtu + 76 > r.ifr_mtu) /* headers of IPv6, UDP and InfiniBand */
		mtu /= 2;
	return mtu;
}

static struct fdev *device_of(const char *netdev)
{
	struct fv_sdev *s = NULL;
	struct fdev *d;

	for (int i = 0; i < fv.ndev; i++)
		if (strcmp(fv.dev[i].s->netdev, netdev) == 0)
			return &fv.dev[i];
	for (uint32_t i = 0; i < fv.s->ndev && s == NULL; i++)
		if (fv.s->dev[i].netns == fv.netns && strcmp(fv.s->dev[i].netdev, netdev) == 0)
			s = &fv.s->dev[i];
	if (fv.ndev == 64 || (s == NULL && fv.s->ndev == FV_DEVS))
		return NULL;
	if (s == NULL) {
		s = &fv.s->dev[fv.s->ndev++];
		s->netns = fv.netns;
		snprintf(s->netdev, sizeof(s->netdev), "%s", netdev);
		snprintf(s->name, sizeof(s->name), "fake_%s", netdev);
	}
	d = &fv.dev[fv.ndev++];
	d->s = s;
	d->index = (uint32_t)(s - fv.s->dev);
	d->d.node_type = IBV_NODE_CA;
	d->d.transport_type = IBV_TRANSPORT_IB;
	snprintf(d->d.name, sizeof(d->d.name), "%s", s->name);
	snprintf(d->d.dev_name, sizeof(d->d.dev_name), "uverbs%u", d->index);
	return d;
}

static bool wanted(const struct ifaddrs *i, uint8_t addr[16])
{
	uint16_t port;
	uint32_t scope;

	return i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) != 0 &&
	       fv_map_addr(i->ifa_addr, addr, &port, &scope);
}

static bool makes_device(const uint8_t a[16])
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)a) ||
	       IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)(const void *)a);
}

void fv_devices(void)
{
	struct ifaddrs *all, *i;
	uint8_t a[16];

	if (getifaddrs(&all) != 0)
		return;
	fv_slock();
	for (i = all; i != NULL; i = i->ifa_next)
		if (wanted(i, a) && makes_device(a))
			device_of(i->ifa_name);
	for (int k = 0; k < fv.ndev; k++) {
		struct fv_sdev *s = fv.dev[k].s;

		s->naddr = 0;
		s->mtu = roce_mtu(s->netdev);
		for (i = all; i != NULL; i = i->ifa_next)
			if (wanted(i, a) && strcmp(i->ifa_name, s->netdev) == 0 && s->naddr < 8)
				memcpy(s->addr[s->naddr++], a, 16);
	}
	fv_sunlock();
	freeifaddrs(all);
}

struct fdev *fv_dev_of(const uint8_t addr[16], uint32_t scope)
{
	fv_devices();
	for (int k = 0; k < fv.ndev; k++)
		for (uint32_t i = 0; i < fv.dev[k].s->naddr; i++)
			if (memcmp(fv.dev[k].s->addr[i], addr, 16) == 0 &&
			    (scope == 0 || if_nametoindex(fv.dev[k].s->netdev) == scope))
				return &fv.dev[k];
	return NULL;
}

int fv_gids(struct fdev *d, union ibv_gid *gid, int max)
{
	struct fv_sdev *s = d->s;
	uint32_t turn = atomic_load(&s->shuffle);
	int32_t hole = atomic_load(&s->hole);
	int n = 0;

	fv_devices();
	memset(gid, 0, sizeof(*gid) * (size_t)max);
	fv_slock();
	for (uint32_t i = 0; i < s->naddr && n < max; i++, n++) {
		if (n == hole && ++n == max)
			break;
		memcpy(gid[n].raw, s->addr[(i + turn) % s->naddr], 16);
	}
	fv_sunlock();
	return n;
}

void fv_dev_event(struct fv_sdev *s, enum ibv_event_type type)
{
	uint32_t n = atomic_load(&s->nev);

	atomic_store(&s->ev[n % 64], (uint8_t)type);
	atomic_store(&s->nev, n + 1);
	for (uint32_t i = 0; i < FV_PROCS; i++)
		if (atomic_load(&fv.s->proc[i].used))
			fv_bell(i);
}
