/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes out of the lane's descriptors: events of connections (the lane's own channel) and of the device
 * (a context of the lane's own: that of librdmacm belongs to the whole process). None of it waits, and every
 * event is acknowledged at once.
 */
#include <errno.h>
#include <string.h>
#include "lane/verbs_internal.h"

#define LOOK_EVENTS 32 /* of one kind, in one look */

void verbs_device_dead(struct verbs_lane *l, const char *what)
{
	char where[VERBS_WHERE_MAX];

	l->dead = true;
	verbs_where(l, where);
	verbs_suspect(l, false, "%s: %s", where, what);
	if (l->out.state != VERBS_HS_FREE)
		verbs_hs_fail(l, &l->out, false, "%s: %s", where, what);
	for (int i = 0; i < VERBS_HALF_OPEN; i++)
		if (l->half[i].state != VERBS_HS_FREE)
			verbs_hs_fail(l, &l->half[i], false, NULL);
}

static void connection_events(struct verbs_lane *l)
{
	for (int i = 0; i < LOOK_EVENTS; i++) {
		struct rdma_cm_event *e = NULL, copy;
		uint8_t data[256];
		size_t n = 0;

		l->stats.syscalls++;
		if (l->lib->cm.rdma_get_cm_event(l->events, &e))
			return; /* nothing more, or the kernel will tell again */
		copy = *e;
		if (e->param.conn.private_data && e->param.conn.private_data_len) {
			n = e->param.conn.private_data_len;
			memcpy(data, e->param.conn.private_data, n);
		}
		copy.param.conn.private_data = NULL;
		l->lib->cm.rdma_ack_cm_event(e);
		if (copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			verbs_device_dead(l, "the RDMA device was removed");
		else if (copy.id == l->conn.qp.id && copy.id)
			l->conn.hangup |= copy.event == RDMA_CM_EVENT_DISCONNECTED;
		else
			verbs_hs_event(l, &copy, data, n);
	}
}

static void device_event(struct verbs_lane *l, enum ibv_event_type type, int port)
{
	char where[VERBS_WHERE_MAX];

	switch (type) {
	case IBV_EVENT_PORT_ERR:
		if ((uint32_t)port != l->port)
			break;
		verbs_suspect(l, false, "%s: the port went down", verbs_where(l, where));
		if (l->out.state != VERBS_HS_FREE)
			verbs_hs_fail(l, &l->out, false, "%s: the port went down", verbs_where(l, where));
		break;
	case IBV_EVENT_GID_CHANGE:
		if ((uint32_t)port == l->port && l->state == VERBS_UP && !verbs_gid_there(l))
			verbs_suspect(l, false, "%s: the address of the lane was taken away",
				      verbs_where(l, where));
		break;
	case IBV_EVENT_DEVICE_FATAL:
		verbs_device_dead(l, "the RDMA device has failed");
		break;
	default:
		break;
	}
}

static void device_events(struct verbs_lane *l)
{
	for (int i = 0; i < LOOK_EVENTS && l->async; i++) {
		struct ibv_async_event e;
		enum ibv_event_type type;
		int port;

		l->stats.syscalls++;
		if (l->lib->ibv.ibv_get_async_event(l->async, &e)) {
			if (errno == EIO || errno == ENODEV) {
				verbs_device_dead(l, "the RDMA device is gone");
				/* its descriptor stays ready for ever: nobody may watch it any more */
				l->lib->ibv.ibv_close_device(l->async);
				l->async = NULL;
			}
			return;
		}
		type = e.event_type;
		port = e.element.port_num;
		l->lib->ibv.ibv_ack_async_event(&e);
		device_event(l, type, port);
	}
}

void verbs_look(struct verbs_lane *l)
{
	connection_events(l);
	device_events(l);
}
