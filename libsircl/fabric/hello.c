/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and datagrams of hello.h. A datagram: "SIRH", version 1, port 1, rank 2, job 16, MAC 16. Anything
 * else is ignored. */
#include "fabric/hello.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "fabric/wire.h"

enum { HELLO_VERSION = 1, HELLO_BODY = 24, HELLO_LEN = HELLO_BODY + 16 };
#define HELLO_EVERY (25 * MSEC)

struct hello {
	struct sircl_ctx *ctx;
	const struct key_ring *keys;
	uint8_t job[16];
	int rank, n;
	int fd[MAP_PORTS_MAX]; /* -1: left out */
	struct iface port[MAP_PORTS_MAX];
	uint8_t msg[MAP_PORTS_MAX][HELLO_LEN];
};

static uint16_t hello_port(const uint8_t job[16])
{
	return (uint16_t)(30000 + (job[0] | job[1] << 8) % 20000);
}

static bool open_v6(const struct hello *h, int fd, const struct iface *i)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(hello_port(h->job)) };
	struct ipv6_mreq group = { .ipv6mr_interface = i->index };
	int on = 1, hops = 1, index = (int)i->index;

	inet_pton(AF_INET6, "ff02::5349:5243", &group.ipv6mr_multiaddr);
	return !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) &&
	       !bind(fd, (struct sockaddr *)&any, sizeof(any)) &&
	       !setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) &&
	       !setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof(hops)) &&
	       !setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof(index)) &&
	       !setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &group, sizeof(group));
}

static bool open_v4(const struct hello *h, int fd, const struct iface *i)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(hello_port(h->job)) };
	struct ip_mreqn group = { .imr_ifindex = (int)i->index };
	int on = 1, ttl = 1;

	inet_pton(AF_INET, "239.255.83.82", &group.imr_multiaddr);
	return !bind(fd, (struct sockaddr *)&any, sizeof(any)) &&
	       !setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) &&
	       !setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof(ttl)) &&
	       !setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &group, sizeof(group)) &&
	       !setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group));
}

static int open_port(struct hello *h, const struct iface *i)
{
	int fd = socket(i->has_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
			   sizeof(on)); /* two jobs on one ring may hash alike */
		/* not permitted everywhere; the interface of each datagram is checked as well */
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, i->name, (socklen_t)strlen(i->name) + 1);
	}
	if (fd < 0 || !(i->has_v6 ? open_v6(h, fd, i) : open_v4(h, fd, i))) {
		log_warn(&h->ctx->log, "hello: interface %s cannot be used: %s; it will carry no lane",
			 i->name, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

sircl_result_t hello_open(struct sircl_ctx *ctx, const struct key_ring *keys, const uint8_t job[16], int rank,
			  const struct iface *ports, int nports, struct hello **out)
{
	struct hello *h = calloc(1, sizeof(*h));

	*out = NULL;
	if (!h)
		return error_set(SIRCL_NO_MEMORY, "rank %d: no memory for hello", rank);
	h->ctx = ctx;
	h->keys = keys;
	h->rank = rank;
	h->n = nports;
	memcpy(h->job, job, 16);
	for (int i = 0; i < nports; i++) {
		struct wire w = wire_over(h->msg[i], HELLO_LEN);
		sircl_result_t ret;

		h->port[i] = ports[i];
		wire_put_bytes(&w, "SIRH", 4);
		wire_put(&w, HELLO_VERSION, 1);
		wire_put(&w, (uint64_t)i, 1);
		wire_put(&w, (uint64_t)rank, 2);
		wire_put_bytes(&w, job, 16);
		ret = key_ring_mac(keys, h->msg[i], HELLO_BODY, h->msg[i] + HELLO_BODY);
		if (ret != SIRCL_SUCCESS) {
			h->n = i;
			hello_close(h);
			return ret;
		}
		h->fd[i] = open_port(h, &ports[i]);
	}
	*out = h;
	return SIRCL_SUCCESS;
}

static void send_all(struct hello *h)
{
	struct sockaddr_in6 to6 = { .sin6_family = AF_INET6, .sin6_port = htons(hello_port(h->job)) };
	struct sockaddr_in to4 = { .sin_family = AF_INET, .sin_port = htons(hello_port(h->job)) };

	inet_pton(AF_INET6, "ff02::5349:5243", &to6.sin6_addr);
	inet_pton(AF_INET, "239.255.83.82", &to4.sin_addr);
	for (int i = 0; i < h->n; i++) {
		const void *to = h->port[i].has_v6 ? (const void *)&to6 : &to4;
		socklen_t len = h->port[i].has_v6 ? sizeof(to6) : sizeof(to4);

		to6.sin6_scope_id = h->port[i].index;
		/* an address that is still tentative, a port without carrier: the next one will do */
		if (h->fd[i] >= 0 && sendto(h->fd[i], h->msg[i], HELLO_LEN, MSG_DONTWAIT, to, len) < 0)
			continue;
	}
}

static uint32_t arrival_index(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			return info.ipi6_ifindex;
		}
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			return (uint32_t)info.ipi_ifindex;
		}
	}
	return 0;
}

static void heard(struct hello *h, int port, const uint8_t *msg, struct map_rank *me)
{
	struct wire w = wire_over((void *)(uintptr_t)msg, HELLO_BODY);
	struct map_heard e = { .port = (uint8_t)port };
	uint8_t magic[4], job[16];
	unsigned version;

	wire_get_bytes(&w, magic, 4);
	version = (unsigned)wire_get(&w, 1);
	e.peer_port = (uint8_t)wire_get(&w, 1);
	e.rank = (uint16_t)wire_get(&w, 2);
	wire_get_bytes(&w, job, 16);
	if (memcmp(magic, "SIRH", 4) != 0 || version != HELLO_VERSION || memcmp(job, h->job, 16) != 0 ||
	    e.rank >= COLL_MAX_RANKS || e.peer_port >= MAP_PORTS_MAX ||
	    (e.rank == h->rank && e.peer_port == port))
		return;
	for (int i = 0; i < me->nheard; i++)
		if (me->heard[i].port == e.port && me->heard[i].rank == e.rank &&
		    me->heard[i].peer_port == e.peer_port)
			return;
	if (me->nheard < MAP_HEARD_MAX && key_ring_verify(h->keys, msg, HELLO_BODY, msg + HELLO_BODY))
		me->heard[me->nheard++] = e;
}

static void receive(struct hello *h, int port, struct map_rank *me)
{
	for (int k = 0; k < 64; k++) { /* a flood must not keep us from sending */
		uint8_t msg[HELLO_LEN + 1];
		_Alignas(struct cmsghdr) char control[128];
		struct iovec iov = { msg, sizeof(msg) };
		struct msghdr m = { .msg_iov = &iov,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(h->fd[port], &m, MSG_DONTWAIT);

		if (n < 0)
			return;
		if (n == HELLO_LEN && arrival_index(&m) == h->port[port].index)
			heard(h, port, msg, me);
	}
}

void hello_run(struct hello *h, uint64_t ns, struct map_rank *me)
{
	uint64_t t = h->ctx->clock(h->ctx->clock_arg), end = t + ns, next = t;

	while ((t = h->ctx->clock(h->ctx->clock_arg)) < end) {
		struct pollfd p[MAP_PORTS_MAX];

		if (t >= next) {
			send_all(h);
			next = t + HELLO_EVERY;
		}
		for (int i = 0; i < h->n; i++)
			p[i] = (struct pollfd){ .fd = h->fd[i], .events = POLLIN };
		if (poll(p, (nfds_t)h->n, (int)((tick_min(next, end) - t) / MSEC) + 1) <= 0)
			continue;
		for (int i = 0; i < h->n; i++)
			if (p[i].revents & POLLIN)
				receive(h, i, me);
	}
}

void hello_close(struct hello *h)
{
	if (!h)
		return;
	for (int i = 0; i < h->n; i++)
		if (h->fd[i] >= 0)
			close(h->fd[i]);
	free(h);
}
