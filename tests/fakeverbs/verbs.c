/* SPDX-License-Identifier: Apache-2.0 */
/* What libibverbs exports, as far as it is called: devices, memory, asynchronous events. Queues: queue.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include "internal.h"

int fv_dead(struct ibv_context *c)
{
	return atomic_load(&ctx_of(c)->dev->s->fatal) ? EIO : 0;
}

/* ---- devices and contexts ---- */
struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list;

	if (!fv_attach(true) || fv_fail(ENOSYS))
		return NULL;
	fv_lock();
	fv_devices();
	list = calloc((size_t)fv.ndev + 1, sizeof(struct ibv_device *));
	for (int i = 0; list != NULL && i < fv.ndev; i++)
		list[i] = &fv.dev[i].d;
	if (n != NULL)
		*n = list != NULL ? fv.ndev : 0;
	fv_unlock();
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

struct fctx *fv_context(struct fdev *d, bool of_cm)
{
	int i = (int)(d - fv.dev);
	struct fctx *c;

	if (of_cm && fv.cm_ctx[i] != NULL)
		return fv.cm_ctx[i];
	c = calloc(1, sizeof(*c));
	if (c == NULL || !evq_init(&c->async)) {
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	c->dev = d;
	c->c = (struct ibv_context){ .device = &d->d,
				     .ops = { .poll_cq = fv_poll_cq,
					      .req_notify_cq = fv_req_notify_cq,
					      .post_send = fv_post_send,
					      .post_recv = fv_post_recv },
				     .cmd_fd = -1,
				     .async_fd = c->async.fd,
				     .num_comp_vectors = 1 };
	c->seen = atomic_load(&d->s->nev);
	c->next = fv.ctxs;
	fv.ctxs = c;
	if (of_cm)
		fv.cm_ctx[i] = c;
	else
		fv_count(K_CTX, 1);
	return c;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct fctx *c = NULL;

	if (!fv_attach(true) || fv_fail(ENOMEM))
		return NULL;
	fv_lock();
	if (atomic_load(&((struct fdev *)(void *)d)->s->fatal))
		errno = EIO;
	else
		c = fv_context((struct fdev *)(void *)d, false);
	fv_unlock();
	return c != NULL ? &c->c : NULL;
}

int ibv_close_device(struct ibv_context *context)
{
	struct fctx *c = ctx_of(context), **p;
	bool fail = fv_fail(EIO);

	fv_lock();
	if (c->refs != 0)
		fv_die("a context of %s is closed while %d domains, queues or channels of it live",
		       context->device->name, c->refs);
	for (p = &fv.ctxs; *p != c; p = &(*p)->next)
		;
	*p = c->next;
	fv_unlock();
	evq_end(&c->async);
	free(c);
	fv_count(K_CTX, -1);
	return fail ? -1 : 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	if (fv_fail(EIO))
		return errno;
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "fake");
	a->node_guid = htobe64(0xfa4e000000000000u + ctx_of(c)->dev->index);
	a->sys_image_guid = a->node_guid;
	a->max_mr_size = UINT64_MAX;
	a->max_qp = FV_QPS;
	a->max_qp_wr = 16384;
	a->max_sge = FV_SGE;
	a->max_cq = 4096;
	a->max_cqe = 1 << 20;
	a->max_mr = 4095;
	a->max_pd = 4096;
	a->max_qp_rd_atom = 16;
	a->max_qp_init_rd_atom = 16;
	a->phys_port_cnt = 1;
	return fv_dead(c);
}

enum ibv_mtu fv_mtu(uint32_t bytes)
{
	return bytes >= 4096   ? IBV_MTU_4096
	       : bytes >= 2048 ? IBV_MTU_2048
	       : bytes >= 1024 ? IBV_MTU_1024
	       : bytes >= 512  ? IBV_MTU_512
			       : IBV_MTU_256;
}

uint32_t fv_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

uint32_t fv_port_mtu(const struct fv_sdev *s, bool connects)
{
	uint32_t told = atomic_load(connects ? &s->mtu_connects : &s->mtu_accepts);

	return told != 0 ? told : s->mtu;
}

/* The exported function fills the fields of its time only: up to link_layer. */
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *a = (void *)compat;
	struct fdev *d = ctx_of(c)->dev;

	if (fv_fail(EIO))
		return errno;
	if (port != 1)
		return EINVAL;
	memset(a, 0, offsetof(struct ibv_port_attr, flags));
	a->state = atomic_load(&d->s->down) ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	a->max_mtu = IBV_MTU_4096;
	fv_lock();
	fv_devices();
	a->active_mtu = fv_mtu(d->s->mtu);
	fv_unlock();
	a->gid_tbl_len = 16;
	a->max_msg_sz = 1u << 30;
	a->pkey_tbl_len = 1;
	a->active_width = 2;
	a->active_speed = 64;
	a->phys_state = a->state == IBV_PORT_ACTIVE ? 5 : 3;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return fv_dead(c);
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	union ibv_gid all[16];

	if (fv_fail(EIO))
		return -1;
	if (port != 1 || index < 0 || index >= 16) {
		errno = EINVAL;
		return -1;
	}
	fv_lock();
	fv_gids(ctx_of(c)->dev, all, 16);
	fv_unlock();
	*gid = all[index];
	return 0;
}

/* ---- domains and memory ---- */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct fpd *pd;

	if (fv_fail(ENOMEM) || (errno = fv_dead(c)) != 0)
		return NULL;
	pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return NULL;
	pd->p.context = c;
	fv_lock();
	ctx_of(c)->refs++;
	fv_unlock();
	fv_count(K_PD, 1);
	return &pd->p;
}

int ibv_dealloc_pd(struct ibv_pd *p)
{
	struct fpd *pd = (struct fpd *)(void *)p;
	bool fail = fv_fail(EIO);

	fv_lock();
	if (pd->refs != 0) {
		fv_unlock();
		return EBUSY;
	}
	ctx_of(p->context)->refs--;
	fv_unlock();
	free(pd);
	fv_count(K_PD, -1);
	return fail ? errno : 0;
}

/* Whether a page may be written to; kernels before 5.14 cannot say. */
static bool writable(uintptr_t p, size_t page)
{
	static char mine[65536] __attribute__((aligned(65536))); /* a page, however large */

	return !madvise((void *)p, page, MADV_POPULATE_WRITE) || madvise(mine, page, MADV_POPULATE_WRITE);
}

/* What a device can pin: mapped throughout, and pages that may be written to if the device is to write. */
static bool mapped(const uint8_t *at, size_t len, bool writes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)at & ~(page - 1), to = ((uintptr_t)at + len + page - 1) & ~(page - 1);
	unsigned char in[256];

	if (to <= from)
		return false;
	for (uintptr_t p = from; p < to; p += sizeof(in) * page) {
		size_t n = to - p < sizeof(in) * page ? to - p : sizeof(in) * page;

		if (mincore((void *)p, n, in))
			return false;
		if (writes && !writable(p, page))
			return false;
	}
	return true;
}

/* A second mapping of the pages, as a device holds on to pages and not to addresses: private ones become
 * shared first. MAP_FAILED: cannot be done. */
static uint8_t *alias_of(uint8_t *at, size_t len)
{
	uint8_t *alias = mremap(at, 0, len, MREMAP_MAYMOVE);
	int fd;

	if (alias != MAP_FAILED)
		return alias; /* they are shared already */
	fd = memfd_create("fakeverbs", MFD_CLOEXEC);
	if (fd < 0)
		return MAP_FAILED;
	if (ftruncate(fd, (off_t)len) == 0)
		alias = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (alias != MAP_FAILED) {
		memcpy(alias, at, len);
		if (mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			fv_die("%zu bytes at %p cannot be pinned", len, (void *)at);
	}
	close(fd);
	return alias;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct fmr *m;
	uint32_t i;

	if (fv_fail(ENOMEM) || (errno = fv_dead(pd->context)) != 0)
		return NULL;
	errno = EINVAL;
	if (len == 0 || ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return NULL;
	if (!mapped(addr, len, access & IBV_ACCESS_LOCAL_WRITE)) {
		errno = EFAULT;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	m->mem = addr;
	if (fv.pin && (uintptr_t)addr % page == 0 && len % page == 0)
		m->mem = alias_of(addr, len);
	if (m->mem == MAP_FAILED) {
		fprintf(stderr, "fakeverbs: %zu bytes at %p cannot be pinned: %s\n", len, addr,
			strerror(errno));
		goto err_free;
	}
	fv_lock();
	for (i = 1; i < 4096 && fv.mr[i] != NULL; i++)
		;
	if (i == 4096) {
		fv_unlock();
		errno = ENOMEM;
		goto err_free;
	}
	m->access = access;
	m->m = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = len, .handle = i };
	m->key = (i << 8) | (++fv.mr_gen & 0xff);
	m->m.lkey = m->key;
	m->m.rkey = m->key | FV_REMOTE; /* another number, so that nobody takes one for the other */
	fv.mr[i] = m;
	((struct fpd *)(void *)pd)->refs++;
	fv_unlock();
	fv_count(K_MR, 1);
	return &m->m;
err_free:
	if (m->mem != addr && m->mem != MAP_FAILED)
		munmap(m->mem, len);
	free(m);
	return NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fmr *m = (struct fmr *)(void *)mr;
	bool fail = fv_fail(EIO);

	fv_lock();
	fv.mr[mr->handle] = NULL;
	((struct fpd *)(void *)mr->pd)->refs--;
	fv_unlock();
	if (m->mem != mr->addr)
		munmap(m->mem, mr->length);
	free(m);
	fv_count(K_MR, -1);
	return fail ? errno : 0;
}

/* ---- asynchronous events ---- */
void fv_async(struct fctx *c, enum ibv_event_type type, struct fqp *q, struct fcq *cq)
{
	struct fasync *e = calloc(1, sizeof(*e));

	if (e == NULL)
		fv_die("out of memory");
	e->e.event_type = type;
	if (q != NULL)
		e->e.element.qp = &q->q;
	else if (cq != NULL)
		e->e.element.cq = &cq->c;
	else
		e->e.element.port_num = type == IBV_EVENT_DEVICE_FATAL ? 0 : 1;
	e->q = q;
	e->cq = cq;
	evq_push(&c->async, &e->n);
}

static _Atomic int *unacked_of(struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct fcq *)(void *)e->element.cq)->async_unacked;
	case IBV_EVENT_QP_ACCESS_ERR:
		return &((struct fqp *)(void *)e->element.qp)->async_unacked;
	default:
		return NULL;
	}
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *out)
{
	struct fasync *e;

	if (evq_any(&ctx_of(c)->async) && fv_fail(EIO))
		return -1;
	e = (void *)evq_pop(&ctx_of(c)->async);
	if (e == NULL)
		return -1;
	*out = e->e;
	free(e);
	if (unacked_of(out) != NULL)
		atomic_fetch_add(unacked_of(out), 1);
	fv_count(K_UNACKED, 1);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	if (unacked_of(e) != NULL)
		atomic_fetch_sub(unacked_of(e), 1);
	fv_count(K_UNACKED, -1);
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
	};

	return (size_t)status < sizeof(names) / sizeof(names[0]) && names[status] != NULL ? names[status]
											  : "unknown";
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return "CQ error";
	case IBV_EVENT_QP_ACCESS_ERR:
		return "local access violation work queue error";
	case IBV_EVENT_DEVICE_FATAL:
		return "local catastrophic error";
	case IBV_EVENT_PORT_ACTIVE:
		return "port active";
	case IBV_EVENT_PORT_ERR:
		return "port error";
	case IBV_EVENT_GID_CHANGE:
		return "GID table change";
	default:
		return "unknown";
	}
}
