/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of the tcp provider: the device's address, the listener, addresses in rendezvous records. A lane
 * belongs to one device: SO_BINDTODEVICE at both ends, a source address of that device, and for IPv6
 * link-local addresses the scope, which is local to each machine and therefore never on the wire.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "lane/tcp_internal.h"

static int real_bind(int fd, const struct sockaddr *a, socklen_t n)
{
	return bind(fd, a, n);
}
static int real_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	return getsockname(fd, a, n);
}
static int real_accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	return accept4(fd, a, n, flags);
}
static int real_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	return connect(fd, a, n);
}

/* wrappers where glibc's prototype has a transparent union */
const struct tcp_sys tcp_sys_real = {
	.socket = socket,
	.setsockopt = setsockopt,
	.bind = real_bind,
	.listen = listen,
	.getsockname = real_getsockname,
	.accept4 = real_accept4,
	.connect = real_connect,
	.sendmsg = sendmsg,
	.recvmsg = recvmsg,
};

const char *tcp_errno(int err, char *buf, size_t n)
{
	return strerror_r(err, buf, n); /* GNU: returns the text */
}

static sircl_result_t sock_error(const struct tcp_lane *l, const char *what, int err)
{
	char buf[96];

	return error_set(SIRCL_SYSTEM_ERROR, "tcp lane %u of cable %u to position %u (device %s): %s: %s%s",
			 l->cfg.lane, l->cfg.cable, l->cfg.peer, l->dev[0] ? l->dev : "loopback", what,
			 tcp_errno(err, buf, sizeof(buf)),
			 err == EMFILE || err == ENFILE ? "; raise the limit of open files (ulimit -n)" : "");
}

static bool is_link_local(const struct sockaddr *a)
{
	struct sockaddr_in6 s;

	memcpy(&s, a, sizeof(s));
	return IN6_IS_ADDR_LINKLOCAL(&s.sin6_addr);
}

/* Fills l->local (port 0): IPv6 link-local of the device, else its IPv4 address; loopback without a device.
 */
sircl_result_t tcp_find_device(struct tcp_lane *l)
{
	struct sockaddr_in lo = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ifaddrs *all, *i;
	bool up = false;

	if (!l->cfg.dev) {
		memcpy(&l->local, &lo, sizeof(lo));
		l->local_len = sizeof(lo);
		return SIRCL_SUCCESS;
	}
	if (strlen(l->cfg.dev) >= IFNAMSIZ)
		return error_set(SIRCL_BAD_CONFIG,
				 "tcp lane %u of cable %u: \"%s\" is no device name (at most %d characters)",
				 l->cfg.lane, l->cfg.cable, l->cfg.dev, IFNAMSIZ - 1);
	snprintf(l->dev, sizeof(l->dev), "%s", l->cfg.dev);
	l->ifindex = if_nametoindex(l->dev);
	if (!l->ifindex)
		return sock_error(l, "there is no such device", errno);
	if (getifaddrs(&all) < 0)
		return sock_error(l, "listing the addresses", errno);
	for (i = all; i; i = i->ifa_next) {
		if (strcmp(i->ifa_name, l->dev) != 0)
			continue;
		up = (i->ifa_flags & IFF_UP) != 0;
		if (!i->ifa_addr)
			continue;
		if (i->ifa_addr->sa_family == AF_INET6 && is_link_local(i->ifa_addr)) {
			struct sockaddr_in6 s;

			memcpy(&s, i->ifa_addr, sizeof(s));
			s.sin6_port = 0;
			s.sin6_scope_id = l->ifindex;
			memcpy(&l->local, &s, sizeof(s));
			l->local_len = sizeof(s);
			break;
		}
		if (i->ifa_addr->sa_family == AF_INET && !l->local_len) {
			memcpy(&l->local, i->ifa_addr, sizeof(struct sockaddr_in));
			l->local_len = sizeof(struct sockaddr_in);
		}
	}
	freeifaddrs(all);
	if (!l->local_len)
		return error_set(
			SIRCL_SYSTEM_ERROR, "tcp lane %u of cable %u to position %u: device %s %s; %s",
			l->cfg.lane, l->cfg.cable, l->cfg.peer, l->dev,
			up ? "has neither an IPv6 link-local nor an IPv4 address" : "is down",
			up ? "give it one, or switch IPv6 on (sysctl net.ipv6.conf.DEVICE.disable_ipv6=0)"
			   : "set it up (ip link set DEVICE up)");
	return SIRCL_SUCCESS;
}

sircl_result_t tcp_socket(struct tcp_lane *l, int *out)
{
	const struct sockaddr *a = (const struct sockaddr *)&l->local;
	int fd, err, one = 1;

	fd = l->sys->socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return sock_error(l, "socket", errno);
	if (l->dev[0] &&
	    l->sys->setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, l->dev, (socklen_t)strlen(l->dev) + 1) < 0) {
		if (errno != EPERM) {
			err = errno;
			close(fd);
			return sock_error(l, "binding to the device", err);
		}
		log_info(&l->cfg.ctx->log, LOG_LANE,
			 "tcp lane %u of cable %u: may not bind to %s (Linux before 5.7 wants CAP_NET_RAW), "
			 "going by its address",
			 l->cfg.lane, l->cfg.cable, l->dev);
	}
	if (l->sys->bind(fd, a, l->local_len) < 0) {
		/* A link-local address is "tentative" for a second after the port came up; it may be used
		 * already. */
		if (errno != EADDRNOTAVAIL || a->sa_family != AF_INET6 ||
		    l->sys->setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof(one)) < 0 ||
		    l->sys->bind(fd, a, l->local_len) < 0) {
			err = errno;
			close(fd);
			return sock_error(l, "binding to the address of the device", err);
		}
	}
	*out = fd;
	return SIRCL_SUCCESS;
}

sircl_result_t tcp_listen(struct tcp_lane *l)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	int fd = -1, err;

	CHECK(tcp_socket(l, &fd));
	if (l->sys->listen(fd, TCP_HALF_OPEN) < 0 || l->sys->getsockname(fd, (struct sockaddr *)&a, &n) < 0) {
		err = errno;
		close(fd);
		return sock_error(l, "listening", err);
	}
	l->listener = fd;
	return SIRCL_SUCCESS;
}

int tcp_prepare(struct tcp_lane *l, int fd)
{
	int one = 1;

	if (l->sys->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		return errno;
	/* The buffer must take what the window allows, or each segment would be written in pieces. */
	if (l->sys->setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &l->sndbuf, sizeof(l->sndbuf)) < 0)
		return errno;
	return 0;
}

/* In a record: family (4 or 6), port big endian, 4 or 16 bytes of address. */
sircl_result_t tcp_addr_pack(const struct tcp_lane *l, struct lane_addr *out)
{
	struct sockaddr_storage a = l->local;
	socklen_t n = sizeof(a);
	struct sockaddr_in6 s6;
	struct sockaddr_in s4;

	*out = (struct lane_addr){ 0 };
	if (l->listener >= 0 && l->sys->getsockname(l->listener, (struct sockaddr *)&a, &n) < 0)
		return sock_error(l, "asking for the port", errno);
	if (a.ss_family == AF_INET6) {
		memcpy(&s6, &a, sizeof(s6));
		out->b[0] = 6;
		memcpy(out->b + 1, &s6.sin6_port, 2);
		memcpy(out->b + 3, &s6.sin6_addr, 16);
		out->len = 19;
	} else {
		memcpy(&s4, &a, sizeof(s4));
		out->b[0] = 4;
		memcpy(out->b + 1, &s4.sin_port, 2);
		memcpy(out->b + 3, &s4.sin_addr, 4);
		out->len = 7;
	}
	return SIRCL_SUCCESS;
}

sircl_result_t tcp_addr_unpack(const struct tcp_lane *l, const struct lane_addr *in,
			       struct sockaddr_storage *out, socklen_t *n)
{
	struct sockaddr_in6 s6 = { .sin6_family = AF_INET6, .sin6_scope_id = l->ifindex };
	struct sockaddr_in s4 = { .sin_family = AF_INET };
	uint8_t family = in->len ? in->b[0] : 0;
	bool mine6 = l->local.ss_family == AF_INET6;

	if (!(family == 6 && in->len == 19) && !(family == 4 && in->len == 7))
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "tcp lane %u of cable %u to position %u: the peer's address is garbled",
				 l->cfg.lane, l->cfg.cable, l->cfg.peer);
	if ((family == 6) != mine6)
		return error_set(SIRCL_BAD_CONFIG,
				 "tcp lane %u of cable %u: this end's device %s has an IPv%d address, the "
				 "peer's (position %u) "
				 "IPv%u; switch IPv6 on, or off, at both",
				 l->cfg.lane, l->cfg.cable, l->dev[0] ? l->dev : "loopback", mine6 ? 6 : 4,
				 l->cfg.peer, family);
	memset(out, 0, sizeof(*out));
	if (family == 6) {
		memcpy(&s6.sin6_port, in->b + 1, 2);
		memcpy(&s6.sin6_addr, in->b + 3, 16);
		memcpy(out, &s6, sizeof(s6));
		*n = sizeof(s6);
	} else {
		memcpy(&s4.sin_port, in->b + 1, 2);
		memcpy(&s4.sin_addr, in->b + 3, 4);
		memcpy(out, &s4, sizeof(s4));
		*n = sizeof(s4);
	}
	if (in->b[1] == 0 && in->b[2] == 0)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "tcp lane %u of cable %u to position %u: the peer does not listen (both "
				 "ends connect?)",
				 l->cfg.lane, l->cfg.cable, l->cfg.peer);
	return SIRCL_SUCCESS;
}
