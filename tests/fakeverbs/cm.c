/* SPDX-License-Identifier: Apache-2.0 */
/* What librdmacm exports, as far as it is called: ids, connections between them by messages in the shared
 * file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include "internal.h"

/* ---- events ---- */
void fv_tell(struct fid *owner, struct fid *f, enum rdma_cm_event_type type, int status, const void *data,
	     uint8_t len, uint8_t padded)
{
	struct fcmev *e = calloc(1, sizeof(*e));

	if (e == NULL)
		fv_die("out of memory");
	e->owner = owner;
	e->e.id = &f->id;
	e->e.listen_id = owner != f ? &owner->id : NULL;
	e->e.event = type;
	e->e.status = status;
	if (padded > 0) { /* the length that is told is that of the field */
		if (len > 0)
			memcpy(e->data, data, len);
		e->e.param.conn.private_data = e->data;
		e->e.param.conn.private_data_len = padded;
	}
	e->e.param.conn.retry_count = f->retry;
	e->e.param.conn.rnr_retry_count = f->rnr;
	e->e.param.conn.qp_num = f->peer_num;
	evq_push(&((struct fcmchan *)(void *)owner->id.channel)->q, &e->n);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct fcmchan *ch;

	if (!fv_attach(true) || fv_fail(EMFILE))
		return NULL;
	ch = calloc(1, sizeof(*ch));
	if (ch == NULL || !evq_init(&ch->q)) {
		free(ch);
		return NULL;
	}
	ch->c.fd = ch->q.fd;
	fv_count(K_CMCHAN, 1);
	return &ch->c;
}

void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	struct fcmchan *ch = (struct fcmchan *)(void *)c;

	if (ch->refs != 0)
		fv_die("an event channel is destroyed before %d ids of it", ch->refs);
	evq_end(&ch->q);
	free(ch);
	fv_count(K_CMCHAN, -1);
}

int rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **out)
{
	struct fcmchan *ch = (struct fcmchan *)(void *)c;
	struct fcmev *e;

	if (evq_any(&ch->q) && fv_fail(ENOMEM))
		return -1;
	e = (void *)evq_pop(&ch->q);
	if (e == NULL)
		return -1;
	atomic_fetch_add(&e->owner->unacked, 1);
	fv_count(K_UNACKED, 1);
	*out = &e->e;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct fcmev *e = (void *)((uint8_t *)event - offsetof(struct fcmev, e));
	bool fail = fv_fail(EIO);

	atomic_fetch_sub(&e->owner->unacked, 1);
	fv_count(K_UNACKED, -1);
	free(e);
	return fail ? -1 : 0;
}

/* ---- ids ---- */
struct fid *fv_new_id(struct rdma_event_channel *c, void *context, enum rdma_port_space ps)
{
	struct fid *f = calloc(1, sizeof(*f));

	if (f == NULL)
		fv_die("out of memory");
	f->id.channel = c;
	f->id.context = context;
	f->id.ps = ps;
	f->id.qp_type = IBV_QPT_RC;
	f->num = atomic_fetch_add(&fv.s->next, 1);
	f->ack_timeout = -1;
	f->listener = -1;
	f->due = f->timewait = FV_NEVER;
	((struct fcmchan *)(void *)c)->refs++;
	f->next = fv.ids;
	fv.ids = f;
	fv_count(K_ID, 1);
	return f;
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	if (c == NULL || ps != RDMA_PS_TCP)
		return fails(EINVAL);
	if (fv_fail(ENOMEM))
		return -1;
	fv_lock();
	*id = &fv_new_id(c, context, ps)->id;
	fv_unlock();
	return 0;
}

void fv_use_device(struct fid *f, struct fdev *d)
{
	f->ctx = fv_context(d, true);
	if (f->ctx == NULL)
		fv_die("out of memory");
	f->id.verbs = &f->ctx->c;
	f->id.port_num = 1;
}

bool fv_send_to(struct fid *f, uint32_t proc, uint32_t gen, uint32_t dev, struct fv_msg *m)
{
	struct fv_proc *p = &fv.s->proc[proc];
	bool there = false;

	if (!fv_path(f->ctx->dev->index, dev))
		return false; /* lost on the way */
	m->from_proc = fv.self;
	m->from_gen = atomic_load(&fv.s->proc[fv.self].gen);
	m->from = f->num;
	m->dev = f->ctx->dev->index;
	fv_slock();
	if (atomic_load(&p->used) && atomic_load(&p->gen) == gen) {
		uint32_t head = atomic_load(&p->mail_head);

		if (head - p->mail_tail < FV_MAIL) {
			p->mail[head % FV_MAIL] = *m;
			atomic_store(&p->mail_head, head + 1);
			there = true;
		}
	}
	fv_sunlock();
	fv_bell(proc);
	return there;
}

void fv_answer(struct fid *f, uint32_t type, int status, const void *data, uint8_t len)
{
	struct fv_msg m = { .type = type, .to = f->peer_id, .status = status, .len = len };

	if (len > 0)
		memcpy(m.data, data, len);
	if (f->num_told != 0) {
		m.num = f->num_told;
		fv_slot_of(m.num, &m.slot);
	}
	fv_send_to(f, f->peer_proc, f->peer_gen, f->peer_dev, &m);
}

static void stop_listening(struct fid *f)
{
	if (f->listener < 0)
		return;
	fv_slock();
	fv.s->listener[f->listener].used = 0;
	fv_sunlock();
	f->listener = -1;
}

static bool of_id(struct evn *n, void *f)
{
	struct fcmev *e = (struct fcmev *)(void *)n;

	return e->owner == f || fid_of(e->e.id) == f;
}

static void forget(struct fid *f);
static void drop_event(struct evn *n)
{
	struct fcmev *e = (struct fcmev *)(void *)n;

	if (e->e.event == RDMA_CM_EVENT_CONNECT_REQUEST) /* nobody has seen the id that came with it */
		forget(fid_of(e->e.id));
}

static void forget(struct fid *f)
{
	struct fid **p;

	for (p = &fv.ids; *p != NULL && *p != f; p = &(*p)->next)
		;
	if (*p == NULL)
		return;
	*p = f->next;
	stop_listening(f);
	if (f->state == ID_REQUEST || f->state == ID_RESPONSE)
		fv_answer(f, MSG_REJ, 4, NULL, 0);
	else if (f->state == ID_UP || f->state == ID_ACCEPTED)
		fv_answer(f, MSG_DREQ, 0, NULL, 0);
	if (f->id.qp != NULL)
		qp_of(f)->q.qp_context = NULL;
	evq_purge(&((struct fcmchan *)(void *)f->id.channel)->q, of_id, drop_event, f);
	((struct fcmchan *)(void *)f->id.channel)->refs--;
	free(f);
	fv_count(K_ID, -1);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct fid *f = fid_of(id);
	bool fail = fv_fail(EIO);

	if (atomic_load(&f->unacked) != 0)
		fv_die("rdma_destroy_id would wait for ever: %d events are not acknowledged",
		       atomic_load(&f->unacked));
	if (id->qp != NULL)
		fv_die("rdma_destroy_id before rdma_destroy_qp");
	fv_lock();
	forget(f);
	fv_unlock();
	return fail ? -1 : 0;
}

static bool port_taken(const uint8_t addr[16], uint16_t port)
{
	for (int i = 0; i < FV_LISTENERS; i++) {
		struct fv_listener *l = &fv.s->listener[i];

		if (l->used && l->port == port && l->netns == fv.netns && memcmp(l->addr, addr, 16) == 0)
			return true;
	}
	return false;
}

/* Takes the port from now on; 0: any. */
static int take_port(struct fid *f)
{
	int i, err = 0;

	fv_slock();
	if (f->sport == 0) {
		do {
			fv.s->next_port = fv.s->next_port >= 60000 ? 20000 : fv.s->next_port + 1;
			f->sport = htons((uint16_t)fv.s->next_port);
		} while (port_taken(f->src, f->sport));
	} else if (port_taken(f->src, f->sport)) {
		err = EADDRINUSE;
	}
	for (i = 0; i < FV_LISTENERS && fv.s->listener[i].used; i++)
		;
	if (err == 0 && i == FV_LISTENERS)
		err = ENOMEM;
	if (err == 0) {
		fv.s->listener[i] = (struct fv_listener){
			.used = 1, .proc = fv.self, .id = 0, .netns = fv.netns, .port = f->sport
		};
		memcpy(fv.s->listener[i].addr, f->src, 16);
		f->listener = i;
	}
	fv_sunlock();
	return err;
}

static bool link_local(const uint8_t a[16])
{
	return a[0] == 0xfe && (a[1] & 0xc0) == 0x80;
}

static int bind_to(struct fid *f, const struct sockaddr *a)
{
	struct fdev *d;
	uint32_t scope;
	int err;

	if (f->state != ID_IDLE || !fv_map_addr(a, f->src, &f->sport, &scope))
		return EINVAL;
	if (link_local(f->src) && scope == 0)
		return EINVAL;
	d = fv_dev_of(f->src, link_local(f->src) ? scope : 0);
	if (d == NULL || atomic_load(&d->s->fatal))
		return ENODEV;
	err = take_port(f);
	if (err != 0)
		return err;
	fv_use_device(f, d);
	memcpy(&f->id.route.addr.src_storage, a,
	       a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	f->id.route.addr.src_sin.sin_port = f->sport; /* at the same place for both families */
	f->state = ID_BOUND;
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *a)
{
	int err;

	if (fv_fail(EADDRNOTAVAIL))
		return -1;
	fv_lock();
	err = bind_to(fid_of(id), a);
	fv_unlock();
	return err == 0 ? 0 : fails(err);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return fid_of(id)->sport;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct fid *f = fid_of(id);
	int err = 0;

	if (fv_fail(EADDRINUSE))
		return -1;
	fv_lock();
	if (f->state != ID_BOUND) {
		err = EINVAL;
	} else {
		f->state = ID_LISTEN;
		f->backlog = backlog > 0 ? backlog : 128;
		fv_slock();
		fv.s->listener[f->listener].id = f->num;
		fv_sunlock();
	}
	fv_unlock();
	return err == 0 ? 0 : fails(err);
}

/* The address is some device's, in whatever process of the lab. */
static bool known(const uint8_t a[16])
{
	bool yes = false;

	fv_slock();
	for (uint32_t i = 0; i < fv.s->ndev; i++)
		for (uint32_t k = 0; k < fv.s->dev[i].naddr; k++)
			yes |= memcmp(fv.s->dev[i].addr[k], a, 16) == 0;
	fv_sunlock();
	return yes;
}

static int resolve(struct fid *f, const struct sockaddr *src, const struct sockaddr *dst)
{
	uint32_t scope;
	int err = 0;

	if (src != NULL && f->state == ID_IDLE)
		err = bind_to(f, src);
	if (err != 0)
		return err;
	if (!fv_map_addr(dst, f->dst, &f->dport, &scope) ||
	    (link_local(f->dst) && scope == 0 && f->ctx == NULL))
		return EINVAL;
	if (f->state == ID_IDLE) { /* a local address, or whatever device there is first */
		struct fdev *d = fv_dev_of(f->dst, link_local(f->dst) ? scope : 0);

		if (d == NULL && fv.ndev > 0)
			d = &fv.dev[0];
		if (d == NULL)
			return ENODEV;
		memcpy(f->src, d->s->addr[0], 16);
		fv_use_device(f, d);
		f->state = ID_BOUND;
	}
	if (f->state != ID_BOUND)
		return EINVAL;
	memcpy(&f->id.route.addr.dst_storage, dst,
	       dst->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	if (known(f->dst)) {
		f->state = ID_ADDR;
		fv_tell(f, f, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0, 0);
	} else {
		fv_tell(f, f, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, NULL, 0, 0);
	}
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	int err;

	(void)timeout_ms;
	if (fv_fail(ENODEV))
		return -1;
	fv_lock();
	err = resolve(fid_of(id), src, dst);
	fv_unlock();
	return err == 0 ? 0 : fails(err);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct fid *f = fid_of(id);
	bool ok;

	(void)timeout_ms;
	if (fv_fail(ENETUNREACH))
		return -1;
	fv_lock();
	ok = f->state == ID_ADDR;
	if (ok) {
		f->state = ID_ROUTE;
		f->mtu = fv_port_mtu(f->ctx->dev->s, true); /* nobody asks the other end */
		fv_tell(f, f, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0, 0);
	}
	fv_unlock();
	return ok ? 0 : fails(EINVAL);
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	struct fid *f = fid_of(id);

	if (fv_fail(ENOSYS))
		return -1;
	if (level != RDMA_OPTION_ID || name > RDMA_OPTION_ID_ACK_TIMEOUT)
		return fails(ENOSYS);
	if (name != RDMA_OPTION_ID_ACK_TIMEOUT)
		return 0;
	if (len != 1)
		return fails(EINVAL);
	fv_lock();
	f->ack_timeout = *(uint8_t *)value & 31;
	fv_unlock();
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type type)
{
	static const char *const names[] = { "ADDR_RESOLVED",  "ADDR_ERROR",      "ROUTE_RESOLVED",
					     "ROUTE_ERROR",    "CONNECT_REQUEST", "CONNECT_RESPONSE",
					     "CONNECT_ERROR",  "UNREACHABLE",     "REJECTED",
					     "ESTABLISHED",    "DISCONNECTED",    "DEVICE_REMOVAL",
					     "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE",
					     "TIMEWAIT_EXIT" };

	return (size_t)type < sizeof(names) / sizeof(names[0]) ? names[type] : "unknown";
}
