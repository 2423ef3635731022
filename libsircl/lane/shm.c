/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane/shm: lanes between two processes of one machine. This file has the provider's table and decides which
 * event comes when; shm_internal.h tells how the rest is divided.
 *
 * Order of events of an epoch: LANE_UP; notes; LANE_SUSPECT once; notes that were written before the peer
 * stopped; LANE_FENCED when the peer has stopped AND the queue was found empty after that was known. A lane
 * is suspected only for what has certainly happened (the peer's process has ended, it closed or fenced the
 * lane, it broke a bound), never for silence: its CPU may be in the middle of a copy.
 *
 * A poll that finds nothing costs one acquire load. The sockets are looked at every SHM_CHECK of the caller's
 * time, at the first poll after arm(), and at every poll while a handshake is going on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lane/shm_internal.h"

static struct shm_lane *shm(struct lane *l)
{
	return (struct shm_lane *)(void *)l;
}

static const struct shm_lane *shm_const(const struct lane *l)
{
	return (const struct shm_lane *)(const void *)l;
}

static void shm_free(struct shm_lane *l)
{
	for (int i = 0; i < SHM_HALF_OPEN; i++)
		shm_conn_drop(l, &l->stranger[i]);
	shm_conn_drop(l, &l->half);
	shm_path_close(l, &l->path);
	if (l->listen_fd >= 0)
		close(l->listen_fd);
	free(l);
}

static sircl_result_t shm_open(const struct lane_cfg *cfg, struct lane **lane, struct lane_addr *local)
{
	struct shm_lane *l;
	sircl_result_t ret;

	if (cfg->arena_fd < 0 || cfg->arena_len == 0)
		return error_set(SIRCL_INTERNAL_ERROR,
				 "shm lane %u of cable %u: its receive memory is no memfd", cfg->lane,
				 cfg->cable);
	if (cfg->keys == NULL || cfg->keys->n == 0)
		return error_set(SIRCL_BAD_CONFIG,
				 "shm lane %u of cable %u: no key of the job; set SIRCL_KEY_FILE, or start "
				 "with sircl run",
				 cfg->lane, cfg->cable);
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return error_set(SIRCL_NO_MEMORY, "shm lane %u of cable %u: no memory", cfg->lane,
				 cfg->cable);
	l->base.ops = &lane_shm_ops;
	l->cfg = *cfg;
	l->listen_fd = -1;
	l->half.fd = -1;
	for (int i = 0; i < SHM_HALF_OPEN; i++)
		l->stranger[i].fd = -1;
	shm_path_init(&l->path);
	snprintf(l->label, sizeof(l->label), "rank %d: shm lane %u of cable %u from position %u to %u",
		 cfg->ctx->rank, cfg->lane, cfg->cable, cfg->self, cfg->peer);
	CHECK_GOTO(shm_listen(l), err);
	local->len = (uint16_t)strlen(l->name);
	memcpy(local->b, l->name, local->len);
	l->region[0] = (struct lane_mem){ .base = cfg->arena_base, .len = cfg->arena_len, .id = 0 };
	l->region_exported[0] = true;
	*lane = (struct lane *)l;
	return SIRCL_SUCCESS;
err:
	shm_free(l);
	return ret;
}

/* Gives up a half-open epoch below `min`; it will not come up. */
static void cancel_below(struct shm_lane *l, uint32_t min)
{
	if (l->half.step == SHM_FREE || l->half.epoch >= min)
		return;
	snprintf(l->down_why, sizeof(l->down_why), "the handshake was cancelled for a newer epoch");
	l->down_epoch = l->half.epoch;
	l->down_owed = l->busy = true;
	l->down_gone = false;
	shm_conn_drop(l, &l->half);
}

static sircl_result_t shm_connect(struct lane *lane, struct tick *t, const struct lane_addr *peer,
				  uint32_t epoch)
{
	struct shm_lane *l = shm(lane);

	if (l->path.open)
		return error_set(SIRCL_INTERNAL_ERROR,
				 "%s: connect for epoch %u while epoch %u is not fenced", l->label, epoch,
				 l->path.epoch);
	if (peer->len == 0 || peer->len > sizeof(l->name) - 1)
		return error_set(SIRCL_INTERNAL_ERROR, "%s: the peer's address is no unix socket", l->label);
	l->peer_addr = *peer;
	CHECK(shm_dial(l, epoch));
	l->half.limit = t->now + SHM_LIMIT;
	return SIRCL_SUCCESS;
}

static void shm_allow(struct lane *lane, uint32_t min_epoch)
{
	struct shm_lane *l = shm(lane);

	l->allowed = true;
	if (min_epoch > l->min_epoch)
		l->min_epoch = min_epoch;
	cancel_below(l, min_epoch);
	l->next_check = 0;
}

static sircl_result_t shm_reg(struct lane *lane, uint32_t id, void *base, size_t len, struct lane_mem *mem,
			      struct lane_export *export)
{
	struct shm_lane *l = shm(lane);

	if (id >= LANE_REGIONS_MAX || (id == 0 && base != l->cfg.arena_base))
		return error_set(SIRCL_INTERNAL_ERROR, "%s: region %u cannot be registered, %d is the last",
				 l->label, id, LANE_REGIONS_MAX - 1);
	*mem = (struct lane_mem){ .base = base, .len = len, .id = id };
	l->region[id] = *mem;
	l->region_exported[id] = export != NULL || id == 0;
	if (export)
		*export = (struct lane_export){ .addr = id == 0 ? 0 : (uint64_t)(uintptr_t)base,
						.len = len,
						.key = id };
	return SIRCL_SUCCESS;
}

static void shm_unreg(struct lane *lane, struct lane_mem *mem)
{
	if (mem->id > 0 && mem->id < LANE_REGIONS_MAX)
		shm(lane)->region_exported[mem->id] = false;
}

static const struct lane_export *shm_peer_export(const struct lane *lane)
{
	return &shm_const(lane)->peer_export;
}

static int shm_put(struct lane *lane, struct tick *t, const struct lane_put *put, int n)
{
	struct shm_lane *l = shm(lane);

	if (!l->path.open || l->path.failed || l->path.fencing)
		return 0;
	n = shm_queue_put(l, put, n);
	for (int i = 0; i < n; i++)
		tick_charge(t, COST_POST, put[i].len);
	return n;
}

static void disarm(struct shm_lane *l)
{
	uint64_t n;

	l->armed = false;
	l->next_check = 0; /* the sleep may have ended because of a socket */
	if (!l->path.open)
		return;
	/* relaxed: nothing is read on the strength of it; at worst a sender writes the eventfd once more */
	atomic_store_explicit(&l->path.rxq->armed, 0, memory_order_relaxed);
	l->stats.syscalls++;
	(void)!read(l->path.wake_fd, &n, sizeof(n));
}

static int report(struct lane_event *ev, enum lane_ev kind, uint32_t epoch, const char *why)
{
	*ev = (struct lane_event){ .ev = kind, .epoch = epoch, .why = why };
	return 1;
}

/* The fence is complete when the peer has stopped and everything it wrote before is delivered. */
static int finish_fence(struct shm_lane *l, struct lane_event *ev, int max)
{
	int n = 0;

	if (l->path.open && l->path.epoch <= l->fenced_epoch) {
		if (!l->path.stopped) {
			shm_path_revoke(l, &l->path);
			return 0;
		}
		n = shm_queue_drain(l, ev, max);
		if (n == max) {
			l->busy = true; /* there may be more */
			return n;
		}
		shm_path_close(l, &l->path);
	}
	l->fenced_owed = false;
	return n + report(&ev[n], LANE_FENCED, l->fenced_epoch, NULL);
}

/* Everything but notes. ev has room for at least one. */
static int poll_slow(struct shm_lane *l, struct tick *t, struct lane_event *ev, int max)
{
	int n = 0;

	l->busy = false;
	l->next_check = t->now + SHM_CHECK;
	if (l->path.open && !l->path.stopped)
		shm_path_check(l, &l->path);
	if (l->fenced_owed)
		n += finish_fence(l, ev, max);
	if (n < max) {
		bool was_open = l->path.open;

		shm_conn_progress(l, t);
		if (!was_open && l->path.open) {
			n += report(&ev[n], LANE_UP, l->path.epoch, NULL);
		}
	}
	if (n < max && l->path.open && l->path.failed && !l->path.reported && !l->path.fencing) {
		l->path.reported = true;
		n += report(&ev[n], LANE_SUSPECT, l->path.epoch, l->why);
		ev[n - 1].gone = l->path.gone;
	}
	if (n < max && l->down_owed) {
		l->down_owed = false;
		n += report(&ev[n], LANE_DOWN, l->down_epoch, l->down_why);
		ev[n - 1].gone = l->down_gone;
	}
	if (n == max || l->down_owed || (l->path.failed && !l->path.reported && !l->path.fencing))
		l->busy = true;
	if (shm_conn_any(l))
		l->next_check = 0;
	return n;
}

static int shm_poll(struct lane *lane, struct tick *t, struct lane_event *ev, int max)
{
	struct shm_lane *l = shm(lane);
	int n = 0;

	if (max <= 0)
		return 0;
	if (l->armed)
		disarm(l);
	if (l->path.open)
		n = shm_queue_drain(l, ev, max);
	if (n < max && (l->busy || t->now >= l->next_check))
		n += poll_slow(l, t, ev + n, max - n);
	for (int i = 0; i < n; i++)
		tick_charge(t, COST_EVENT, 0);
	return n;
}

static int shm_arm(struct lane *lane, struct pollfd *fds, int max)
{
	struct shm_lane *l = shm(lane);
	int n = 0;

	if (l->busy)
		return -1;
#define WATCH(descriptor) \
	do { \
		if (n == max) \
			return -1; \
		fds[n++] = (struct pollfd){ .fd = (descriptor), .events = POLLIN }; \
	} while (0)
	if (l->path.open) {
		WATCH(l->path.wake_fd);
		if (!l->path.stopped) /* else it is readable for ever */
			WATCH(l->path.sock);
	} else if (l->listen_fd >= 0 && l->allowed) {
		WATCH(l->listen_fd);
	}
	if (l->half.step != SHM_FREE && l->half.fd >= 0)
		WATCH(l->half.fd);
	for (int i = 0; i < SHM_HALF_OPEN; i++)
		if (l->stranger[i].step == SHM_PROVING && n < max) /* no room: their limits end them */
			WATCH(l->stranger[i].fd);
#undef WATCH
	l->armed = true;
	if (l->path.open) {
		/* Dekker with shm_queue_put: armed, then seq; the sender: seq, then armed. */
		atomic_store_explicit(&l->path.rxq->armed, 1, memory_order_seq_cst);
		if (shm_queue_ready(&l->path)) {
			disarm(l);
			return -1;
		}
	}
	return n;
}

static uint64_t shm_deadline(const struct lane *lane)
{
	const struct shm_lane *l = shm_const(lane);
	uint64_t d = NEVER;

	if (l->busy || l->half.step == SHM_DIALLING)
		return 0;
	if (l->half.step != SHM_FREE)
		d = l->half.limit;
	for (int i = 0; i < SHM_HALF_OPEN; i++)
		if (l->stranger[i].step != SHM_FREE)
			d = tick_min(d, l->stranger[i].limit);
	return d;
}

static void shm_fence(struct lane *lane, uint32_t epoch)
{
	struct shm_lane *l = shm(lane);

	l->fenced_owed = true;
	l->fenced_epoch = epoch;
	l->busy = true;
	if (l->min_epoch <= epoch)
		l->min_epoch = epoch + 1;
	if (l->half.step != SHM_FREE && l->half.epoch <= epoch)
		shm_conn_drop(l, &l->half);
	if (l->path.open && l->path.epoch <= epoch) {
		l->path.fencing = true;
		shm_path_revoke(l, &l->path);
	}
}

static void shm_close(struct lane *lane)
{
	if (lane != NULL)
		shm_free(shm(lane));
}

static void shm_stats(const struct lane *lane, struct lane_stats *s)
{
	*s = shm_const(lane)->stats;
}

const struct lane_ops lane_shm_ops = {
	.name = "shm",
	.can_fence = false,
	.lossless = true,
	.needs_reg = false,
	.max_put = SHM_MAX_PUT,
	.copy_limit = 0,
	.open = shm_open,
	.connect = shm_connect,
	.allow = shm_allow,
	.reg = shm_reg,
	.unreg = shm_unreg,
	.peer_export = shm_peer_export,
	.put = shm_put,
	.poll = shm_poll,
	.arm = shm_arm,
	.deadline = shm_deadline,
	.fence = shm_fence,
	.close = shm_close,
	.stats = shm_stats,
};
