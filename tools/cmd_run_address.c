/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the ranks of several machines meet: an address of the first host that the others reach, found out at
 * that host. A host's own name often leads to loopback there (127.0.1.1 in Debian's /etc/hosts), and a name
 * that only ssh's configuration knows leads nowhere; so the name is tried first, then the address that this
 * machine uses towards another host of the job, then the one that ssh came to.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "cmd_run.h"

/* Of this machine, and of use to others. Link-local ones are not: each machine names their interface
 * otherwise. */
static bool is_useful(const struct sockaddr *a, socklen_t len)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} any;
	bool useful = false;
	int fd;

	memset(&any, 0, sizeof(any));
	if (len > sizeof(any))
		return false;
	memcpy(&any, a, len);
	if (a->sa_family == AF_INET) {
		const uint32_t ip = ntohl(any.in.sin_addr.s_addr);

		any.in.sin_port = 0;
		useful = ip >> 24 != 127 && ip != 0;
	} else if (a->sa_family == AF_INET6) {
		const struct in6_addr *ip = &any.in6.sin6_addr;

		any.in6.sin6_port = 0;
		useful = !IN6_IS_ADDR_LOOPBACK(ip) && !IN6_IS_ADDR_LINKLOCAL(ip) &&
			 !IN6_IS_ADDR_UNSPECIFIED(ip) && !IN6_IS_ADDR_V4MAPPED(ip);
	}
	fd = useful ? socket(a->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
	useful = fd >= 0 && bind(fd, &any.sa, len) == 0;
	if (fd >= 0)
		close(fd);
	return useful;
}

static bool as_text(const struct sockaddr *a, socklen_t len, char *text, size_t n)
{
	return is_useful(a, len) && getnameinfo(a, len, text, (socklen_t)n, NULL, 0, NI_NUMERICHOST) == 0;
}

/* The address that this machine would send from; nothing is sent. */
static bool towards(const struct addrinfo *to, char *text, size_t n)
{
	struct sockaddr_storage own = { 0 };
	socklen_t len = sizeof(own);
	const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const bool known = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
			   getsockname(fd, (struct sockaddr *)&own, &len) == 0;

	if (fd >= 0)
		close(fd);
	return known && as_text((struct sockaddr *)&own, len, text, n);
}

static bool from_name(const char *name, int flags, bool other, char *text, size_t n)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = flags }, *res = NULL;
	bool found = false;

	if (getaddrinfo(name, "9", &hints, &res) != 0)
		return false;
	for (const struct addrinfo *a = res; a != NULL && !found; a = a->ai_next)
		found = other ? towards(a, text, n) : as_text(a->ai_addr, a->ai_addrlen, text, n);
	freeaddrinfo(res);
	return found;
}

bool own_address(const char *host, const char *other, char *text, size_t n)
{
	const char *connection = getenv("SSH_CONNECTION"); /* client address, port, server address, port */
	char server[80];

	if (from_name(host, 0, false, text, n) || (*other != '\0' && from_name(other, 0, true, text, n)))
		return true;
	return connection != NULL && sscanf(connection, "%*s %*s %79s", server) == 1 &&
	       from_name(server, AI_NUMERICHOST, false, text, n);
}
