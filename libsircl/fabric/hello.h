/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hello: small authenticated multicast datagrams on every candidate interface (IPv6 link-local
 * ff02::5349:5243, IPv4 239.255.83.82 where IPv6 is off), never forwarded by any router, that tell who is at
 * the other end of which port.
 */
#ifndef FABRIC_HELLO_H
#define FABRIC_HELLO_H
#include "base/auth.h"
#include "fabric/ifaces.h"
#include "fabric/ringmap.h"

struct hello;
/* Opens a socket per port; a port whose socket cannot be opened is left out with a WARN line. job: which
 * job's hellos count. */
sircl_result_t hello_open(struct sircl_ctx *, const struct key_ring *, const uint8_t job[16], int rank,
			  const struct iface *ports, int nports, struct hello **);
/* Sends and listens for `ns`; adds what is heard to *me (each pair once). */
void hello_run(struct hello *, uint64_t ns, struct map_rank *me);
void hello_close(struct hello *);
#endif
