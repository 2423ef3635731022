/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a netdev to its RDMA device. librdmacm does it: an id that is bound to an address of the netdev has
 * the device, the port and the GID that belong to it, so no index of a GID table is kept anywhere; they move.
 * Messages about what the device refuses are made here, too.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include "lane/verbs_internal.h"

#define GIDS_TOLD 16 /* valid indices that one message names */

const char *verbs_errno(int err, char *buf, size_t n)
{
	return strerror_r(err, buf, n); /* GNU: returns the text */
}

const char *verbs_where(const struct verbs_lane *l, char buf[VERBS_WHERE_MAX])
{
	if (l->device[0])
		snprintf(buf, VERBS_WHERE_MAX, "%s (%s port %u)", l->dev, l->device, l->port);
	else
		snprintf(buf, VERBS_WHERE_MAX, "%s",
			 l->dev[0]    ? l->dev
			 : l->cfg.dev ? l->cfg.dev
				      : "any netdev");
	return buf;
}

/* "verbs lane 0 of cable 1 to position 2 on eth0 (mlx5_0 port 1)"; a probe has no lane. */
static const char *who(const struct verbs_lane *l, char *buf, size_t n)
{
	char where[VERBS_WHERE_MAX];

	if (l->base.ops)
		snprintf(buf, n, "verbs lane %u of cable %u to position %u on %s", l->cfg.lane, l->cfg.cable,
			 l->cfg.peer, verbs_where(l, where));
	else
		snprintf(buf, n, "RDMA on %s", verbs_where(l, where));
	return buf;
}

/* A line "CmaFree:   123 kB" of /proc/meminfo, -1: not there. */
static long meminfo(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	size_t n = strlen(name);
	long v = -1;

	if (!f)
		return -1;
	while (v < 0 && fgets(line, sizeof(line), f))
		if (strncmp(line, name, n) == 0 && line[n] == ':')
			v = strtol(line + n + 1, NULL, 10);
	fclose(f);
	return v;
}

static void memory_cure(char *buf, size_t n)
{
	long total = meminfo("CmaTotal"), cma_free = meminfo("CmaFree");
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
		snprintf(buf, n,
			 "; the limit of locked memory (RLIMIT_MEMLOCK) is %llu KiB; raise it: ulimit -l "
			 "unlimited, docker run --ulimit memlock=-1, or `memlock unlimited` in "
			 "/etc/security/limits.conf",
			 (unsigned long long)r.rlim_cur >> 10);
	else if (total == 0 && cma_free > 0)
		snprintf(buf, n,
			 "; locked memory is unlimited, but free pages lie in an area that cannot be pinned "
			 "(CmaTotal 0 kB, CmaFree %ld kB, as with kernel 7.0): boot with kho=off or kernel "
			 "6.17",
			 cma_free);
	else
		snprintf(buf, n,
			 "; locked memory is unlimited (RLIMIT_MEMLOCK), so the kernel or the device has no "
			 "room (CmaTotal %ld kB, CmaFree %ld kB): free memory, or use fewer ranks",
			 total, cma_free);
}

sircl_result_t verbs_error(const struct verbs_lane *l, const char *what, int err)
{
	char buf[96], name[192], cure[320] = "";

	if (err == ENOMEM)
		memory_cure(cure, sizeof(cure));
	else if (err == EMFILE || err == ENFILE)
		snprintf(cure, sizeof(cure), "; raise the limit of open files (ulimit -n)");
	else if (err == EFAULT)
		snprintf(cure, sizeof(cure), "; memory must be mapped and writable from end to end");
	else if (err == EACCES || err == EPERM)
		snprintf(cure, sizeof(cure),
			 "; /dev/infiniband must be readable and writable (containers: --device "
			 "/dev/infiniband)");
	return error_set(err == ENOMEM ? SIRCL_NO_MEMORY : SIRCL_SYSTEM_ERROR, "%s: %s: %s%s",
			 who(l, name, sizeof(name)), what, verbs_errno(err, buf, sizeof(buf)), cure);
}

static int nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

/* The GID that an address is. */
static void gid_of(const struct sockaddr_storage *a, union ibv_gid *gid)
{
	struct sockaddr_in6 s6;
	struct sockaddr_in s4;

	memset(gid, 0, sizeof(*gid));
	if (a->ss_family == AF_INET6) {
		memcpy(&s6, a, sizeof(s6));
		memcpy(gid->raw, &s6.sin6_addr, 16);
	} else {
		memcpy(&s4, a, sizeof(s4));
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &s4.sin_addr, 4);
	}
}

static const char *address_text(const struct sockaddr_storage *a, char buf[INET6_ADDRSTRLEN])
{
	const struct sockaddr_in6 *s6 = (const void *)a;
	const struct sockaddr_in *s4 = (const void *)a;

	return inet_ntop(a->ss_family,
			 a->ss_family == AF_INET6 ? (const void *)&s6->sin6_addr
						  : (const void *)&s4->sin_addr,
			 buf, INET6_ADDRSTRLEN);
}

/* An address that a lane may have, port 0: IPv6 link-local or, `any6`, any IPv6; or IPv4. */
static bool usable(const struct ifaddrs *i, int family, bool any6, struct sockaddr_storage *out)
{
	struct sockaddr_in6 s6;

	memset(out, 0, sizeof(*out));
	if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP))
		return false;
	if (family == AF_INET) {
		memcpy(out, i->ifa_addr, sizeof(struct sockaddr_in));
		return true;
	}
	memcpy(&s6, i->ifa_addr, sizeof(s6));
	if (!IN6_IS_ADDR_LINKLOCAL(&s6.sin6_addr) && !any6)
		return false;
	s6.sin6_port = 0;
	s6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&s6.sin6_addr) ? if_nametoindex(i->ifa_name) : 0;
	memcpy(out, &s6, sizeof(s6));
	return true;
}

/* Binds the anchor to the address. 0, or errno: ENODEV if no RDMA device has it. */
static int bind_anchor(struct verbs_lane *l, const struct sockaddr_storage *a, const char *netdev)
{
	struct rdma_cm_id *id = NULL;
	struct sockaddr_storage copy = *a;
	int err;

	if (l->lib->cm.rdma_create_id(l->events, &id, NULL, RDMA_PS_TCP))
		return errno ? errno : EIO;
	if (l->lib->cm.rdma_bind_addr(id, (struct sockaddr *)&copy)) {
		err = errno ? errno : EIO;
		l->lib->cm.rdma_destroy_id(id);
		return err;
	}
	if (!id->verbs) {
		l->lib->cm.rdma_destroy_id(id);
		return ENODEV;
	}
	l->anchor = id;
	l->local = *a;
	snprintf(l->dev, sizeof(l->dev), "%s", netdev);
	l->ifindex = if_nametoindex(netdev);
	snprintf(l->device, sizeof(l->device), "%s", l->lib->ibv.ibv_get_device_name(id->verbs->device));
	l->port = id->port_num;
	return 0;
}

static void unbind_anchor(struct verbs_lane *l)
{
	if (l->anchor)
		l->lib->cm.rdma_destroy_id(l->anchor);
	l->anchor = NULL;
}

/* The device's RoCE v2 entries; where sysfs does not tell the type, every entry counts. */
static bool gid_is_v2(const struct verbs_lane *l, int index)
{
	char path[192], type[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%d", l->device,
		 l->port, index);
	f = fopen(path, "re");
	if (!f)
		return true;
	if (!fgets(type, sizeof(type), f))
		type[0] = '\0';
	fclose(f);
	return strncmp(type, "RoCE v2", 7) == 0;
}

static int gid_count(const struct verbs_lane *l)
{
	struct ibv_port_attr attr = { 0 };

	if (l->lib->ibv.ibv_query_port(l->anchor->verbs, (uint8_t)l->port, &attr))
		return 0;
	return attr.gid_tbl_len;
}

/* The address of this lane's netdev that is this GID. */
static bool gid_address(const struct verbs_lane *l, const struct ifaddrs *all, const union ibv_gid *gid,
			struct sockaddr_storage *out)
{
	static const int families[] = { AF_INET6, AF_INET };
	union ibv_gid mine;

	for (size_t f = 0; f < 2; f++)
		for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
			if (strcmp(i->ifa_name, l->dev) != 0 || !usable(i, families[f], true, out))
				continue;
			gid_of(out, &mine);
			if (memcmp(&mine, gid, sizeof(mine)) == 0)
				return true;
		}
	return false;
}

/* SIRCL_GID_INDEX: the address that this entry of the table is, compared by value. */
static sircl_result_t obey_index(struct verbs_lane *l, const struct ifaddrs *all, int index)
{
	char list[512] = "", name[192], text[INET6_ADDRSTRLEN];
	struct sockaddr_storage a;
	union ibv_gid gid;
	int n = gid_count(l), told = 0, err;
	size_t at = 0;

	if (index < n && !l->lib->ibv.ibv_query_gid(l->anchor->verbs, (uint8_t)l->port, index, &gid) &&
	    gid_is_v2(l, index) && gid_address(l, all, &gid, &a)) {
		char netdev[IF_NAMESIZE];

		snprintf(netdev, sizeof(netdev), "%s", l->dev);
		unbind_anchor(l);
		err = bind_anchor(l, &a, netdev);
		if (err)
			return verbs_error(l, "binding to the address of SIRCL_GID_INDEX", err);
		log_info(&l->cfg.ctx->log, LOG_LANE, "%s: GID index %d is %s", who(l, name, sizeof(name)),
			 index, address_text(&a, text));
		return SIRCL_SUCCESS;
	}
	for (int i = 0; i < n && told < GIDS_TOLD && at < sizeof(list); i++) {
		if (l->lib->ibv.ibv_query_gid(l->anchor->verbs, (uint8_t)l->port, i, &gid) ||
		    !gid_is_v2(l, i) || !gid_address(l, all, &gid, &a))
			continue;
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%d (%s)", told++ ? ", " : "", i,
				       address_text(&a, text));
	}
	return error_set(SIRCL_BAD_CONFIG,
			 "%s: SIRCL_GID_INDEX (NCCL_IB_GID_INDEX) is %d, which is no RoCE v2 address of this "
			 "netdev; valid are %s; better leave it unset: an address is found by itself",
			 who(l, name, sizeof(name)), index, told ? list : "none");
}

/* Tries the addresses of `dev`, or of every netdev; loopback last. */
static int find_anchor(struct verbs_lane *l, const struct ifaddrs *all, bool *up, bool *addressed)
{
	static const int families[] = { AF_INET6, AF_INET };
	const char *dev = l->cfg.dev;
	struct sockaddr_storage a;
	int err = ENODEV;

	for (int lo = 0; lo < 2; lo++)
		for (size_t f = 0; f < 2; f++)
			for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
				bool is_lo = (i->ifa_flags & IFF_LOOPBACK) != 0;
				int e;

				if (is_lo != (lo == 1) || (dev && strcmp(i->ifa_name, dev) != 0))
					continue;
				*up |= (i->ifa_flags & IFF_UP) != 0;
				if (!usable(i, families[f], is_lo, &a))
					continue;
				*addressed = true;
				e = bind_anchor(l, &a, i->ifa_name);
				if (!e)
					return 0;
				if (e != ENODEV && e != EADDRNOTAVAIL)
					err = e;
				/* not the next family instead: the peer's lane has the first */
				if (dev && err != ENODEV)
					return err;
			}
	return err;
}

static sircl_result_t find_device(struct verbs_lane *l)
{
	int64_t index = param_num(&l->cfg.ctx->params, PARAM_GID_INDEX);
	bool up = false, addressed = false;
	char name[192];
	struct ifaddrs *all;
	sircl_result_t ret = SIRCL_SUCCESS;
	int err;

	if (l->cfg.dev) {
		if (strlen(l->cfg.dev) >= IF_NAMESIZE)
			return error_set(SIRCL_BAD_CONFIG, "\"%s\" is no device name (at most %d characters)",
					 l->cfg.dev, IF_NAMESIZE - 1);
		snprintf(l->dev, sizeof(l->dev), "%s", l->cfg.dev);
		errno = 0;
		if (!if_nametoindex(l->dev)) {
			/* ENOENT: glibc could not make a socket to ask with */
			err = errno == ENOENT ? EMFILE : errno;
			return verbs_error(
				l, err == ENODEV ? "there is no such netdev" : "looking up the netdev", err);
		}
	}
	if (getifaddrs(&all) < 0)
		return verbs_error(l, "listing the addresses", errno);
	err = find_anchor(l, all, &up, &addressed);
	if (err == ENODEV)
		ret = error_set(
			SIRCL_SYSTEM_ERROR, "%s: %s", who(l, name, sizeof(name)),
			!up          ? "it is down; set it up (ip link set DEVICE up)"
			: !addressed ? "it has neither an IPv6 link-local nor an IPv4 address; give it "
				       "one, or switch IPv6 on (sysctl net.ipv6.conf.DEVICE.disable_ipv6=0)"
				     : "there is no RDMA device behind it (rdma link shows them)");
	else if (err)
		ret = verbs_error(l, "binding to its address", err);
	else if (index >= 0)
		ret = obey_index(l, all, (int)index);
	freeifaddrs(all);
	return ret;
}

bool verbs_gid_there(const struct verbs_lane *l)
{
	int n = gid_count(l);
	union ibv_gid mine, gid;

	gid_of(&l->local, &mine);
	for (int i = 0; i < n; i++)
		if (!l->lib->ibv.ibv_query_gid(l->anchor->verbs, (uint8_t)l->port, i, &gid) &&
		    memcmp(&gid, &mine, sizeof(gid)) == 0)
			return true;
	return false;
}

uint32_t verbs_mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

void verbs_refresh_mtu(struct verbs_lane *l)
{
	struct ibv_port_attr attr = { 0 };
	struct ifreq r = { 0 };
	int fd;

	if (!l->lib->ibv.ibv_query_port(l->anchor->verbs, (uint8_t)l->port, &attr)) {
		l->mtu = verbs_mtu_bytes(attr.active_mtu);
		l->mtu_max = verbs_mtu_bytes(attr.max_mtu);
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	memcpy(r.ifr_name, l->dev, sizeof(l->dev));
	if (ioctl(fd, SIOCGIFMTU, &r) == 0)
		l->netdev_mtu = (uint32_t)r.ifr_mtu;
	close(fd);
}

/* The event channel and the anchor: all that a probe needs. */
static sircl_result_t open_anchor(struct verbs_lane *l)
{
	const struct verbs_tune *tune = l->cfg.provider;
	int err;

	if (tune && tune->lib)
		l->lib = tune->lib;
	else
		CHECK(verbs_lib_open(&l->lib));
	l->events = l->lib->cm.rdma_create_event_channel();
	if (!l->events) {
		char name[192], buf[96];

		err = errno;
		if (err != ENODEV && err != ENOENT && err != ENOSYS)
			return verbs_error(l, "rdma_create_event_channel", err);
		return error_set(SIRCL_SYSTEM_ERROR,
				 "%s: the kernel's connection manager is not there (/dev/infiniband/rdma_cm: "
				 "%s): modprobe rdma_ucm, and in a container --device /dev/infiniband",
				 who(l, name, sizeof(name)), verbs_errno(err, buf, sizeof(buf)));
	}
	err = nonblocking(l->events->fd);
	if (err)
		return verbs_error(l, "fcntl", err);
	CHECK(find_device(l));
	sircl_assert(l->anchor);
	verbs_refresh_mtu(l);
	return SIRCL_SUCCESS;
}

sircl_result_t verbs_open_device(struct verbs_lane *l)
{
	const struct verbs_ibv *ibv;
	struct ibv_device_attr attr = { 0 };
	uint32_t cqes;
	int err;

	CHECK(open_anchor(l));
	ibv = &l->lib->ibv;
	err = ibv->ibv_query_device(l->anchor->verbs, &attr);
	if (err)
		return verbs_error(l, "ibv_query_device", err);
	l->node_guid = be64toh(attr.node_guid);
	l->async = ibv->ibv_open_device(l->anchor->verbs->device);
	if (!l->async)
		return verbs_error(l, "ibv_open_device", errno);
	l->pd = ibv->ibv_alloc_pd(l->anchor->verbs);
	if (!l->pd)
		return verbs_error(l, "ibv_alloc_pd", errno);
	l->channel = ibv->ibv_create_comp_channel(l->anchor->verbs);
	if (!l->channel)
		return verbs_error(l, "ibv_create_comp_channel", errno);
	/* a full flush of both queues, and what half-open queue pairs may have left */
	cqes = l->nslots + 2 + 2 * l->cfg.max_notes + 4 + 4 * (VERBS_HALF_OPEN + 1);
	l->cq = ibv->ibv_create_cq(l->anchor->verbs, (int)cqes, NULL, l->channel, 0);
	if (!l->cq)
		return verbs_error(l, "ibv_create_cq", errno);
	err = nonblocking(l->async->async_fd);
	if (!err)
		err = nonblocking(l->channel->fd);
	if (err)
		return verbs_error(l, "fcntl", err);
	return SIRCL_SUCCESS;
}

/* Everything that was made on the device is gone by now. The anchor last: it holds the context. */
void verbs_close_device(struct verbs_lane *l)
{
	if (!l->lib)
		return;
	if (l->cq)
		l->lib->ibv.ibv_destroy_cq(l->cq);
	if (l->channel)
		l->lib->ibv.ibv_destroy_comp_channel(l->channel);
	if (l->pd)
		l->lib->ibv.ibv_dealloc_pd(l->pd);
	if (l->async)
		l->lib->ibv.ibv_close_device(l->async);
	unbind_anchor(l);
	if (l->events)
		l->lib->cm.rdma_destroy_event_channel(l->events);
	l->cq = NULL;
	l->channel = NULL;
	l->pd = NULL;
	l->async = NULL;
	l->events = NULL;
}

sircl_result_t verbs_probe(struct sircl_ctx *ctx, const char *dev, struct verbs_port *port)
{
	struct verbs_lane *l = calloc(1, sizeof(*l));
	struct ibv_device_attr attr = { 0 };
	sircl_result_t ret;
	int err;

	if (!l)
		return error_set(SIRCL_NO_MEMORY, "RDMA on %s: no memory", dev ? dev : "any netdev");
	memset(port, 0, sizeof(*port));
	l->cfg = (struct lane_cfg){ .ctx = ctx, .dev = dev };
	CHECK_GOTO(open_anchor(l), out);
	err = l->lib->ibv.ibv_query_device(l->anchor->verbs, &attr);
	if (err) {
		ret = verbs_error(l, "ibv_query_device", err);
		goto out;
	}
	snprintf(port->device, sizeof(port->device), "%s", l->device);
	port->port = l->port;
	port->family = l->local.ss_family == AF_INET6 ? 6 : 4;
	port->mtu = l->mtu;
	port->mtu_max = l->mtu_max;
	port->node_guid = be64toh(attr.node_guid);
	port->image_guid = be64toh(attr.sys_image_guid);
out:
	verbs_close_device(l);
	free(l);
	return ret;
}

/* In a record: family (4 or 6), port big endian, 4 or 16 bytes of address; RoCE MTU now and at most (little
 * endian, 2 bytes each), node GUID (8). */
sircl_result_t verbs_addr_pack(const struct verbs_lane *l, struct lane_addr *out)
{
	uint16_t port = l->cfg.connects ? 0 : l->lib->cm.rdma_get_src_port(l->anchor);
	uint16_t mtu[2] = { htole16((uint16_t)l->mtu), htole16((uint16_t)l->mtu_max) };
	uint64_t guid = htole64(l->node_guid);
	union ibv_gid gid;
	bool six = l->local.ss_family == AF_INET6;
	size_t n = six ? 16 : 4;

	*out = (struct lane_addr){ 0 };
	gid_of(&l->local, &gid);
	out->b[0] = six ? 6 : 4;
	memcpy(out->b + 1, &port, 2);
	memcpy(out->b + 3, gid.raw + 16 - n, n);
	memcpy(out->b + 3 + n, mtu, 4);
	memcpy(out->b + 7 + n, &guid, 8);
	out->len = (uint16_t)(15 + n);
	return SIRCL_SUCCESS;
}

sircl_result_t verbs_addr_unpack(const struct verbs_lane *l, const struct lane_addr *in,
				 struct sockaddr_storage *out)
{
	struct sockaddr_in6 s6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in s4 = { .sin_family = AF_INET };
	uint8_t family = in->len ? in->b[0] : 0;
	bool mine6 = l->local.ss_family == AF_INET6;
	char name[192];

	if (!(family == 6 && in->len == 31) && !(family == 4 && in->len == 19))
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: the peer's address is garbled",
				 who(l, name, sizeof(name)));
	if ((family == 6) != mine6)
		return error_set(SIRCL_BAD_CONFIG,
				 "%s: this end has an IPv%d address, the peer's (position %u) IPv%u; switch "
				 "IPv6 on, or off, at both",
				 who(l, name, sizeof(name)), mine6 ? 6 : 4, l->cfg.peer, family);
	if (in->b[1] == 0 && in->b[2] == 0)
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: the peer does not listen (both ends connect?)",
				 who(l, name, sizeof(name)));
	memset(out, 0, sizeof(*out));
	if (family == 6) {
		memcpy(&s6.sin6_port, in->b + 1, 2);
		memcpy(&s6.sin6_addr, in->b + 3, 16);
		s6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&s6.sin6_addr) ? l->ifindex : 0;
		memcpy(out, &s6, sizeof(s6));
	} else {
		memcpy(&s4.sin_port, in->b + 1, 2);
		memcpy(&s4.sin_addr, in->b + 3, 4);
		memcpy(out, &s4, sizeof(s4));
	}
	return SIRCL_SUCCESS;
}

uint32_t verbs_addr_mtu(const struct lane_addr *in)
{
	uint16_t mtu;

	memcpy(&mtu, in->b + in->len - 12, sizeof(mtu));
	return le16toh(mtu);
}
