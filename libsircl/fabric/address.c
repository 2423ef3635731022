/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and printing of rendezvous addresses; the layout of the unique id. */
#include "fabric/address.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/auth.h"
#include "base/crc32c.h"
#include "fabric/ifaces.h"
#include "fabric/wire.h"

static sircl_result_t parse_unix(const char *name, const char *what, struct address *a)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&a->ss;
	size_t n = strlen(name);

	if (n < 2 || name[0] != '@' || n > sizeof(un->sun_path))
		return error_set(SIRCL_BAD_CONFIG,
				 "%s: \"unix:%s\" is not an address: unix:@NAME with a name of 1 to %zu "
				 "characters is allowed",
				 what, name, sizeof(un->sun_path) - 1);
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, name, n);
	un->sun_path[0] = '\0'; /* abstract: vanishes with its last user, leaves nothing in the file system */
	a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	return SIRCL_SUCCESS;
}

sircl_result_t address_parse(const char *text, const char *what, struct address *a)
{
	char host[256];
	const char *colon = strrchr(text, ':'), *from = text, *to = colon;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *res = NULL;
	char *end = NULL;
	long port = colon ? strtol(colon + 1, &end, 10) : 0;
	int rc;

	memset(a, 0, sizeof(*a));
	if (!strncmp(text, "unix:", 5))
		return parse_unix(text + 5, what, a);
	if (colon && text[0] == '[' && colon > text + 1 && colon[-1] == ']') {
		from = text + 1;
		to = colon - 1;
	} else if (colon && memchr(text, ':', (size_t)(colon - text))) {
		colon = NULL; /* a bare IPv6 address: which colon begins the port? */
	}
	if (!colon || to == from || (size_t)(to - from) >= sizeof(host) || !end || *end || end == colon + 1 ||
	    port < 1 || port > 65535)
		return error_set(SIRCL_BAD_CONFIG,
				 "%s: \"%s\" is not an address: HOST:PORT, [IPV6]:PORT or unix:@NAME is "
				 "allowed, port 1 to 65535",
				 what, text);
	memcpy(host, from, (size_t)(to - from));
	host[to - from] = '\0';
	rc = getaddrinfo(host, colon + 1, &hints, &res);
	if (rc != 0)
		return error_set(SIRCL_BAD_CONFIG, "%s: host \"%s\" cannot be resolved: %s", what, host,
				 gai_strerror(rc));
	memcpy(&a->ss, res->ai_addr, res->ai_addrlen);
	a->len = res->ai_addrlen;
	freeaddrinfo(res);
	return SIRCL_SUCCESS;
}

bool address_is_unix(const struct address *a)
{
	return a->ss.ss_family == AF_UNIX;
}

const char *address_text(const struct address *a, char buf[ADDRESS_TEXT])
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a->ss;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->ss;
	const struct sockaddr_un *un = (const struct sockaddr_un *)&a->ss;
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->ss.ss_family == AF_UNIX) {
		int n = (int)(a->len - offsetof(struct sockaddr_un, sun_path)) - 1;

		snprintf(buf, ADDRESS_TEXT, "unix:@%.*s", n > 0 ? n : 0, un->sun_path + 1);
	} else if (a->ss.ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(buf, ADDRESS_TEXT, "[%s]:%u", host, ntohs(in6->sin6_port));
	} else {
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(buf, ADDRESS_TEXT, "%s:%u", host, ntohs(in->sin_port));
	}
	return buf;
}

/* Unique id, 128 bytes: "SIRC", version 1, family, port 2, secret 16, address 16, scope 4, name length 1,
 * name 79, crc32c 4. */
enum { ID_VERSION = 1, ID_NAME = 79 };

sircl_result_t id_pack(sircl_unique_id_t *id, const struct address *a, const uint8_t secret[ID_SECRET])
{
	struct wire w = wire_over(id->bytes, sizeof(id->bytes));
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a->ss;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->ss;
	const struct sockaddr_un *un = (const struct sockaddr_un *)&a->ss;
	size_t name = a->ss.ss_family == AF_UNIX ? a->len - offsetof(struct sockaddr_un, sun_path) : 0;

	memset(id, 0, sizeof(*id));
	sircl_assert(name <= ID_NAME);
	wire_put_bytes(&w, "SIRC", 4);
	wire_put(&w, ID_VERSION, 1);
	wire_put(&w, a->ss.ss_family == AF_UNIX ? 1 : a->ss.ss_family == AF_INET ? 4 : 6, 1);
	wire_put(&w,
		 a->ss.ss_family == AF_INET    ? in->sin_port
		 : a->ss.ss_family == AF_INET6 ? in6->sin6_port
					       : 0,
		 2);
	wire_put_bytes(&w, secret, ID_SECRET);
	if (a->ss.ss_family == AF_INET6)
		wire_put_bytes(&w, &in6->sin6_addr, 16);
	else
		wire_put(&w, a->ss.ss_family == AF_INET ? in->sin_addr.s_addr : 0, 4), wire_take(&w, 12);
	wire_put(&w, a->ss.ss_family == AF_INET6 ? in6->sin6_scope_id : 0, 4);
	wire_put(&w, name, 1);
	if (name)
		memcpy(id->bytes + w.pos, un->sun_path, name);
	w.pos = SIRCL_UNIQUE_ID_BYTES - 4;
	wire_put(&w, crc32c(0, id->bytes, SIRCL_UNIQUE_ID_BYTES - 4), 4);
	return SIRCL_SUCCESS;
}

sircl_result_t id_unpack(const sircl_unique_id_t *id, struct address *a, uint8_t secret[ID_SECRET])
{
	sircl_unique_id_t copy = *id;
	struct wire w = wire_over(copy.bytes, sizeof(copy.bytes)), tail = w;
	struct sockaddr_in *in = (struct sockaddr_in *)&a->ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->ss;
	struct sockaddr_un *un = (struct sockaddr_un *)&a->ss;
	uint8_t magic[4], addr[16];
	unsigned version, family;
	uint16_t port;
	uint32_t scope;
	size_t name;

	memset(a, 0, sizeof(*a));
	wire_get_bytes(&w, magic, 4);
	version = (unsigned)wire_get(&w, 1);
	tail.pos = SIRCL_UNIQUE_ID_BYTES - 4;
	if (memcmp(magic, "SIRC", 4) != 0 ||
	    wire_get(&tail, 4) != crc32c(0, copy.bytes, SIRCL_UNIQUE_ID_BYTES - 4))
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "the unique id is damaged or was not made by sircl_get_unique_id: copy all "
				 "%d bytes of it to every rank",
				 SIRCL_UNIQUE_ID_BYTES);
	if (version != ID_VERSION)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "the unique id has version %u, this library knows %d: use the same libsircl "
				 "on all ranks",
				 version, ID_VERSION);
	family = (unsigned)wire_get(&w, 1);
	port = (uint16_t)wire_get(&w, 2);
	wire_get_bytes(&w, secret, ID_SECRET);
	wire_get_bytes(&w, addr, 16);
	scope = (uint32_t)wire_get(&w, 4);
	name = (size_t)wire_get(&w, 1);
	if (family == 1 && name >= 2 && name <= ID_NAME) {
		un->sun_family = AF_UNIX;
		wire_get_bytes(&w, un->sun_path, name);
		a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + name);
	} else if (family == 4) {
		in->sin_family = AF_INET;
		in->sin_port = port;
		memcpy(&in->sin_addr, addr, 4);
		a->len = sizeof(*in);
	} else if (family == 6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = port;
		memcpy(&in6->sin6_addr, addr, 16);
		in6->sin6_scope_id = scope;
		a->len = sizeof(*in6);
	} else {
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "the unique id names an unknown kind of address (%u)", family);
	}
	return SIRCL_SUCCESS;
}
