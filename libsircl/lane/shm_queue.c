/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path of lane/shm: one sender, one receiver, a ring of notes of one cache line each in the
 * receiver's memfd.
 *
 * Order. The sender copies a put's bytes, fills the note, then stores note.seq; the receiver loads seq with
 * acquire. That pair alone makes bytes and note readable. The other way the receiver stores `consumed` (and
 * `freed`) with release after it has read notes (and bounced bytes); the sender loads them with acquire
 * before it writes over them.
 *
 * Sleep. The receiver stores armed = 1, then looks at the next seq once more; the sender stores seq, then
 * looks at armed. Each writes one word and then reads the other's (Dekker): without one total order of the
 * four both could read the old value, and the receiver would sleep on a note for ever. So these four are
 * seq_cst, and no weaker pair with a fence is used because TSan does not understand fences.
 *
 * Memory of the peer other than its arena is not mapped here. Large puts to it go through the kernel in one
 * copy; small ones, and all of them where the kernel refuses (ptrace scope, another user namespace), through
 * the bounce ring behind the notes, and the receiver copies them to their place before it reports the note.
 * There it refuses what it has not exported. In the copy by the kernel nobody asks it: who may make one may
 * write to all of this process's memory, lane or no lane.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "lane/shm_internal.h"

size_t shm_queue_bytes(uint32_t entries)
{
	return sizeof(struct shm_queue) + entries * sizeof(struct shm_note) + SHM_BOUNCE;
}

static void wake(struct shm_lane *l, struct shm_path *p)
{
	uint64_t one = 1;

	/* Whoever takes the flag down is the one who writes; a burst of puts costs one system call. */
	if (atomic_exchange_explicit(&p->txq->armed, 0, memory_order_seq_cst) == 0)
		return;
	l->stats.syscalls++;
	/* It fails only when the counter is full, and then the sleeper is awake anyway. */
	(void)!write(p->peer_wake_fd, &one, sizeof(one));
}

enum copied { COPIED, COPY_LATER, COPY_FAILED };

static enum copied copy_bounce(struct shm_path *p, const struct lane_put *put, uint32_t *slot)
{
	uint64_t size = (sizeof(struct shm_record) + put->len + 63) & ~63ull;
	uint64_t at = p->bounce_head % SHM_BOUNCE, start = p->bounce_head;
	struct shm_record *r;

	if (at + size > SHM_BOUNCE) { /* skip the end: a record is in one piece */
		start += SHM_BOUNCE - at;
		at = 0;
	}
	if (start + size - p->freed_seen > SHM_BOUNCE) {
		/* partner: the release in unbounce */
		p->freed_seen = atomic_load_explicit(&p->txq->freed, memory_order_acquire);
		if (start + size - p->freed_seen > SHM_BOUNCE)
			return COPY_LATER;
	}
	r = (struct shm_record *)(void *)(p->tx_bounce + at);
	r->off = put->dst_off;
	r->region = put->dst->key;
	r->len = put->len;
	r->end = start + size;
	memcpy(r + 1, put->src, put->len);
	p->bounce_head = start + size;
	*slot = (uint32_t)(at / 64) + 1;
	return COPIED;
}

static enum copied copy_kernel(struct shm_lane *l, struct shm_path *p, const struct lane_put *put)
{
	size_t done = 0;

	while (done < put->len) {
		struct iovec from = { (char *)shm_at((uintptr_t)put->src) + done, put->len - done };
		struct iovec to = { (char *)shm_at(put->dst->addr + put->dst_off) + done, put->len - done };
		ssize_t r = process_vm_writev(p->peer_pid, &from, 1, &to, 1, 0);

		l->stats.syscalls++;
		if (r > 0) {
			done += (size_t)r;
			continue;
		}
		if (r < 0 && (errno == EPERM || errno == ENOSYS || errno == ENOMEM)) {
			log_info(&l->cfg.ctx->log, LOG_LANE,
				 "%s: process_vm_writev to process %d is refused (%s); puts to registered "
				 "memory "
				 "take two copies from now on",
				 l->label, (int)p->peer_pid, strerror(errno));
			p->vm_ok = false;
			return COPY_LATER; /* the caller goes through the bounce ring, from the beginning */
		}
		shm_path_fail(l, p, "writing to the peer's registered memory failed: %s",
			      r < 0 ? strerror(errno) : "it is not mapped there");
		return COPY_FAILED;
	}
	return COPIED;
}

static enum copied copy_put(struct shm_lane *l, struct shm_path *p, const struct lane_put *put,
			    uint32_t *slot)
{
	const struct lane_export *dst = put->dst;
	uint64_t limit = dst->key == 0 && p->arena.len < dst->len ? p->arena.len : dst->len;

	if (put->len > SHM_MAX_PUT || put->len > limit || put->dst_off > limit - put->len) {
		shm_path_fail(
			l, p,
			"a put of %u bytes at offset %llu does not fit in the peer's region %u of %llu bytes",
			put->len, (unsigned long long)put->dst_off, dst->key, (unsigned long long)limit);
		return COPY_FAILED;
	}
	if (dst->key == 0) {
		memcpy((char *)p->arena.base + put->dst_off, put->src, put->len);
		return COPIED;
	}
	if (p->vm_ok && put->len >= SHM_SINGLE_COPY) {
		enum copied c;

		if (SHM_DIRECT && p->direct) { /* stands for the kernel's copy, which TSan does not see */
			memcpy((char *)shm_at(dst->addr + put->dst_off), put->src, put->len);
			return COPIED;
		}
		c = copy_kernel(l, p, put);
		if (c != COPY_LATER)
			return c;
	}
	return copy_bounce(p, put, slot);
}

/* SHM_DIRECT: the receiver's memory may go away under us; it waits while `copying`. */
static bool direct_enter(struct shm_path *p)
{
	atomic_store_explicit(&p->txq->copying, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&p->txq->closed, memory_order_seq_cst) == 0)
		return true;
	atomic_store_explicit(&p->txq->copying, 0, memory_order_seq_cst);
	return false;
}

static void direct_leave(struct shm_path *p)
{
	atomic_store_explicit(&p->txq->copying, 0, memory_order_seq_cst);
}

int shm_queue_put(struct shm_lane *l, const struct lane_put *put, int n)
{
	struct shm_path *p = &l->path;
	int i;

	if (SHM_DIRECT && p->direct && !direct_enter(p))
		return 0;
	for (i = 0; i < n; i++) {
		struct shm_note *e = &p->txq->ring[p->head & (p->tx_entries - 1)];
		uint32_t slot = 0;

		if (p->head - p->consumed_seen >= p->tx_entries) {
			/* partner: the release in shm_queue_drain */
			p->consumed_seen = atomic_load_explicit(&p->txq->consumed, memory_order_acquire);
			if (p->head - p->consumed_seen >= p->tx_entries)
				break;
		}
		if (put[i].len != 0 && copy_put(l, p, &put[i], &slot) != COPIED)
			break;
		e->note = put[i].note;
		e->len = put[i].len;
		e->bounce = slot;
		p->head++;
		/* Releases bytes and note to the acquire in shm_queue_drain; seq_cst for Dekker (above). */
		atomic_store_explicit(&e->seq, p->head, memory_order_seq_cst);
		l->stats.puts++;
		l->stats.put_bytes += put[i].len;
	}
	if (i > 0 && atomic_load_explicit(&p->txq->armed, memory_order_seq_cst) != 0)
		wake(l, p);
	if (SHM_DIRECT && p->direct)
		direct_leave(p);
	return i;
}

/* Copies a record to its place. False: it lies outside what this end has exported. */
static bool unbounce(struct shm_lane *l, struct shm_path *p, const struct shm_note *e)
{
	uint64_t at = (uint64_t)(e->bounce - 1) * 64;
	const struct lane_mem *m;
	struct shm_record r; /* a copy: what was checked is what is used */

	if (at > SHM_BOUNCE - sizeof(r))
		goto outside;
	memcpy(&r, p->rx_bounce + at, sizeof(r));
	if (r.len > SHM_BOUNCE - sizeof(r) - at || r.region >= LANE_REGIONS_MAX ||
	    !l->region_exported[r.region])
		goto outside;
	m = &l->region[r.region];
	if (r.len > m->len || r.off > m->len - r.len)
		goto outside;
	memcpy((char *)m->base + r.off, p->rx_bounce + at + sizeof(r), r.len);
	/* partner: the acquire in copy_bounce */
	atomic_store_explicit(&p->rxq->freed, r.end, memory_order_release);
	return true;
outside:
	shm_path_fail(l, p, "the peer put outside the memory that is exported to it");
	return false;
}

int shm_queue_drain(struct shm_lane *l, struct lane_event *ev, int max)
{
	struct shm_path *p = &l->path;
	uint64_t tail = p->tail;
	int n = 0;

	while (n < max) {
		struct shm_note *e = &p->rxq->ring[tail & p->rx_mask];

		/* partner: the store of seq in shm_queue_put */
		if (atomic_load_explicit(&e->seq, memory_order_acquire) != tail + 1)
			break;
		if (e->bounce != 0 && !unbounce(l, p, e))
			break;
		ev[n] = (struct lane_event){ .ev = LANE_NOTE, .epoch = p->epoch, .note = e->note };
		l->stats.note_bytes += e->len;
		n++;
		tail++;
	}
	if (n > 0) {
		l->stats.notes += (uint64_t)n;
		p->tail = tail;
		/* partner: the acquire in shm_queue_put. Once per batch: the sender reads it once per lap. */
		atomic_store_explicit(&p->rxq->consumed, tail, memory_order_release);
	}
	return n;
}

bool shm_queue_ready(const struct shm_path *p)
{
	return atomic_load_explicit(&p->rxq->ring[p->tail & p->rx_mask].seq, memory_order_seq_cst) ==
	       p->tail + 1;
}
