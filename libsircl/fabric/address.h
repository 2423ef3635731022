/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of the rendezvous: "host:port", "[v6]:port", "unix:@abstract-name"; and the unique id that
 * carries one with a secret. */
#ifndef FABRIC_ADDRESS_H
#define FABRIC_ADDRESS_H
#include <sys/socket.h>
#include "base/ctx.h"

#define ADDRESS_TEXT 160
#define ID_SECRET 16

struct address {
	struct sockaddr_storage ss;
	socklen_t len;
};

/* `what` names the variable or argument in the sentence. Resolves names (may ask DNS: start only). */
sircl_result_t address_parse(const char *text, const char *what, struct address *);
const char *address_text(const struct address *, char buf[ADDRESS_TEXT]);
bool address_is_unix(const struct address *);
/*
 * The address of the management interface of this machine with port 0: SIRCL_SOCKET_IFNAME's, else the one
 * with the default route, else the first that is up with a global address, else loopback.
 */
sircl_result_t address_management(const struct sircl_ctx *, struct address *);

sircl_result_t id_pack(sircl_unique_id_t *, const struct address *, const uint8_t secret[ID_SECRET]);
/* Checks magic, version and hash. */
sircl_result_t id_unpack(const sircl_unique_id_t *, struct address *, uint8_t secret[ID_SECRET]);
#endif
