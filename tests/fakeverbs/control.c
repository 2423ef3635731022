/* SPDX-License-Identifier: Apache-2.0 */
/* The controls: seeds, failures on purpose, counts of objects, cables. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "internal.h"
#include "lane/verbs_lib.h"

#define ENTRY(result, name, args) .name = (result(*) args)(void (*)(void))name,
const struct verbs_lib fakeverbs_lib = {
	.ibv = { VERBS_IBV_FUNCTIONS(ENTRY) },
	.cm = { VERBS_CM_FUNCTIONS(ENTRY) },
};

void fakeverbs_seed(uint64_t seed)
{
	pthread_mutex_lock(&fv.mu);
	fv.seed = seed;
	fv.seeded = true;
	fv.rng = seed * 0x9e3779b97f4a7c15u + 1;
	pthread_mutex_unlock(&fv.mu);
}

void fakeverbs_fail_at(uint64_t k, int err)
{
	fv_attach(true);
	atomic_store(&fv.fail_err, err);
	atomic_store(&fv.failed, false);
	atomic_store(&fv.fail_at, k == 0 ? 0 : atomic_load(&fv.calls) + k);
}

uint64_t fakeverbs_calls(void)
{
	return atomic_load(&fv.calls);
}

bool fakeverbs_failed(void)
{
	return atomic_load(&fv.failed);
}

void fakeverbs_hold(int k)
{
	fv_lock();
	fv.hold = k;
	fv_unlock();
}

void fakeverbs_counts(struct fakeverbs_counts *c)
{
	*c = (struct fakeverbs_counts){ .rnr = atomic_load(&fv.rnr),
					.landed = atomic_load(&fv.landed),
					.disorder = atomic_load(&fv.disorder),
					.dropped = atomic_load(&fv.dropped),
					.sends = atomic_load(&fv.sends),
					.writes = atomic_load(&fv.writes),
					.cq_overflows = atomic_load(&fv.cq_overflows),
					.queue_full = atomic_load(&fv.queue_full) };
}

int fakeverbs_open_objects(void)
{
	int n = 0;

	for (int i = 0; i < K_COUNT; i++)
		n += atomic_load(&fv.objects[i]);
	return n;
}

void fakeverbs_print_objects(void)
{
	static const char *const names[K_COUNT] = {
		[K_ID] = "rdma_cm_id",
		[K_QP] = "queue pair",
		[K_CQ] = "completion queue",
		[K_PD] = "domain",
		[K_MR] = "region",
		[K_CTX] = "context",
		[K_COMPCHAN] = "completion channel",
		[K_CMCHAN] = "rdma event channel",
		[K_UNACKED] = "un-acknowledged event",
	};

	for (int i = 0; i < K_COUNT; i++)
		if (atomic_load(&fv.objects[i]) != 0)
			fprintf(stderr, "fakeverbs: still open: %s: %d\n", names[i],
				atomic_load(&fv.objects[i]));
}

int fakeverbs_ack_timeout(const struct rdma_cm_id *id)
{
	return ((const struct fid *)(const void *)id)->ack_timeout;
}

static struct fv_sdev *named(const char *dev)
{
	if (!fv_attach(true))
		return NULL;
	for (uint32_t i = 0; i < fv.s->ndev; i++)
		if (fv.s->dev[i].netns == fv.netns && strcmp(fv.s->dev[i].name, dev) == 0)
			return &fv.s->dev[i];
	return NULL;
}

static int port(const char *dev, uint32_t down)
{
	struct fv_sdev *s = named(dev);

	if (s == NULL)
		return -1;
	if (atomic_exchange(&s->down, down) != down)
		fv_dev_event(s, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
	return 0;
}

int fakeverbs_cut(const char *dev)
{
	return port(dev, 1);
}

int fakeverbs_mend(const char *dev)
{
	return port(dev, 0);
}

int fakeverbs_gid_shuffle(const char *dev)
{
	struct fv_sdev *s = named(dev);

	if (s == NULL)
		return -1;
	atomic_fetch_add(&s->shuffle, 1);
	fv_dev_event(s, IBV_EVENT_GID_CHANGE);
	return 0;
}

int fakeverbs_gid_hole(const char *dev, int index)
{
	struct fv_sdev *s = named(dev);

	if (s == NULL)
		return -1;
	atomic_store(&s->hole, index);
	fv_dev_event(s, IBV_EVENT_GID_CHANGE);
	return 0;
}

int fakeverbs_mtu(const char *dev, uint32_t connects, uint32_t accepts)
{
	struct fv_sdev *s = named(dev);

	if (s == NULL)
		return -1;
	atomic_store(&s->mtu_connects, connects);
	atomic_store(&s->mtu_accepts, accepts);
	return 0;
}

int fakeverbs_fatal(const char *dev)
{
	struct fv_sdev *s = named(dev);

	if (s == NULL)
		return -1;
	atomic_store(&s->fatal, 1);
	fv_dev_event(s, IBV_EVENT_DEVICE_FATAL);
	return 0;
}
