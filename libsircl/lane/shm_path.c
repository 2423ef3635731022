/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared memory of one epoch of a shm lane, and how its end is noticed.
 *
 * Invariant: when path->stopped is set, every put that the peer ever made on this epoch is finished: its
 * bytes and notes are visible here, and there will be no more. The peer says so itself (REVOKE, REVOKED; it
 * says it between two puts), or its process has ended: the kernel closes a process's descriptors only after
 * it has left its memory, so when the socket hangs up nobody copies any more. An end that closes a lane
 * unmaps first and then closes the socket, for the same reason.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <fcntl.h>
#include <unistd.h>
#include "lane/shm_internal.h"

void shm_path_init(struct shm_path *p)
{
	*p = (struct shm_path){ .wake_fd = -1, .peer_wake_fd = -1, .pidfd = -1, .sock = -1 };
}

void shm_path_fail(struct shm_lane *l, struct shm_path *p, const char *fmt, ...)
{
	va_list ap;

	if (p->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(l->why, sizeof(l->why), fmt, ap);
	va_end(ap);
	p->failed = true;
	l->busy = true;
}

static bool map_fd(struct shm_map *m, int fd, size_t len)
{
	void *a = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (a == MAP_FAILED)
		return false;
	/* A forked child must not be a third process that has this memory. */
	madvise(a, len, MADV_DONTFORK);
	m->base = a;
	m->len = len;
	return true;
}

static void unmap(struct shm_map *m)
{
	if (m->base != NULL)
		munmap(m->base, m->len);
	m->base = NULL;
}

/* The last one who uses a mapping in common (SHM_DIRECT) unmaps it; users is 0 when each end has its own. */
static void release_queue(struct shm_map *m)
{
	struct shm_queue *q = m->base;

	/* acq_rel: what the other did with it happens before the unmapping */
	if (q == NULL || !SHM_DIRECT || atomic_load_explicit(&q->users, memory_order_acquire) == 0 ||
	    atomic_fetch_sub_explicit(&q->users, 1, memory_order_acq_rel) == 1)
		unmap(m);
	m->base = NULL;
}

static uint32_t queue_entries(const struct shm_lane *l)
{
	uint32_t n = 64;

	while (n < l->cfg.max_notes + 16 && n < 65536)
		n *= 2;
	return n;
}

/* The receiving half: queue and eventfd. Returns the queue's memfd, or -1 and l->down_why. */
int shm_path_make(struct shm_lane *l, struct shm_path *p)
{
	uint32_t entries = queue_entries(l);
	size_t len = shm_queue_bytes(entries);
	char name[64];
	int fd;

	shm_path_init(p);
	snprintf(name, sizeof(name), "sircl-notes-%u.%u-%u", l->cfg.cable, l->cfg.lane, l->cfg.self);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)len) != 0)
		goto err;
	/* The peer cannot make our mapping fault by making the file shorter. */
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (!map_fd(&p->rx, fd, len))
		goto err;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake_fd < 0)
		goto err;
	p->rxq = p->rx.base;
	p->rx_mask = entries - 1;
	p->rx_bounce = (uint8_t *)(p->rxq->ring + entries);
	return fd;
err:
	snprintf(l->down_why, sizeof(l->down_why), "no memory for the queue of notes (%zu bytes): %s", len,
		 strerror(errno));
	unmap(&p->rx);
	if (fd >= 0)
		close(fd);
	return -1;
}

void shm_path_offer(struct shm_lane *l, struct shm_path *p, uint32_t epoch, bool same_process,
		    struct shm_setup *s)
{
	*s = (struct shm_setup){ .magic = SHM_MAGIC,
				 .epoch = epoch,
				 .entries = p->rx_mask + 1,
				 .bounce = SHM_BOUNCE,
				 .arena_len = l->cfg.arena_len,
				 .probe_addr = (uint64_t)(uintptr_t)&l->probe,
				 .probe = l->probe };
	if (SHM_DIRECT && same_process) {
		s->queue_addr = (uint64_t)(uintptr_t)p->rxq;
		s->arena_addr = (uint64_t)(uintptr_t)l->cfg.arena_base;
		/* relaxed: the peer learns of it through the socket */
		atomic_store_explicit(&p->rxq->users, 2, memory_order_relaxed);
	}
}

/* Whether the kernel lets this process at the peer's memory, and the pid means the process we think. */
static bool probe(const struct shm_setup *s, pid_t pid)
{
	uint64_t word = 0;
	struct iovec to = { &word, sizeof(word) };
	struct iovec from = { shm_at(s->probe_addr), sizeof(word) };

	return pid > 0 && process_vm_readv(pid, &to, 1, &from, 1, 0) == sizeof(word) && word == s->probe;
}

static bool big_enough(int fd, uint64_t len)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_size >= 0 && (uint64_t)st.st_size >= len;
}

bool shm_path_join(struct shm_lane *l, struct shm_path *p, const struct shm_setup *s, const int fd[3],
		   pid_t pid)
{
	size_t len = shm_queue_bytes(s->entries);

	if (s->magic != SHM_MAGIC || s->bounce != SHM_BOUNCE || s->entries < 64 || s->entries > 65536 ||
	    (s->entries & (s->entries - 1)) != 0 || s->arena_len == 0 || !big_enough(fd[0], s->arena_len) ||
	    !big_enough(fd[1], len)) {
		snprintf(l->down_why, sizeof(l->down_why),
			 "the peer offers memory that does not fit this version of the library");
		return false;
	}
	if (SHM_DIRECT && s->queue_addr != 0 && pid == getpid()) {
		p->direct = true;
		p->tx = (struct shm_map){ shm_at(s->queue_addr), len };
		p->arena = (struct shm_map){ shm_at(s->arena_addr), s->arena_len };
	} else if (!map_fd(&p->arena, fd[0], s->arena_len) || !map_fd(&p->tx, fd[1], len)) {
		snprintf(l->down_why, sizeof(l->down_why),
			 "mapping the peer's memory (%llu bytes) failed: %s",
			 (unsigned long long)s->arena_len + len, strerror(errno));
		unmap(&p->arena);
		return false;
	}
	p->txq = p->tx.base;
	p->tx_entries = s->entries;
	p->tx_bounce = (uint8_t *)(p->txq->ring + s->entries);
	p->peer_wake_fd = fd[2];
	p->peer_pid = pid;
	p->pidfd = pid > 0 && pid != getpid() ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	p->vm_ok = probe(s, pid);
	if (!p->vm_ok)
		log_info(
			&l->cfg.ctx->log, LOG_LANE,
			"%s: this process may not write to the memory of process %d (%s); puts to registered "
			"memory take two copies. kernel.yama.ptrace_scope = 0 would allow one",
			l->label, (int)pid, pid > 0 ? strerror(errno) : "it is in another pid namespace");
	return true;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void shm_path_close(struct shm_lane *l, struct shm_path *p)
{
	(void)l;
	if (SHM_DIRECT && p->rxq != NULL) {
		/* A sender that uses our arena by our own address: it sees `closed`, or we see `copying`. */
		atomic_store_explicit(&p->rxq->closed, 1, memory_order_seq_cst);
		while (atomic_load_explicit(&p->rxq->copying, memory_order_seq_cst) != 0)
			sched_yield();
	}
	if (!p->direct)
		unmap(&p->arena);
	release_queue(&p->tx);
	release_queue(&p->rx);
	close_fd(&p->sock); /* last: it tells the peer that we put nothing more */
	close_fd(&p->peer_wake_fd);
	close_fd(&p->wake_fd);
	close_fd(&p->pidfd);
	shm_path_init(p);
}

static void peer_gone(struct shm_lane *l, struct shm_path *p, const char *what)
{
	p->stopped = p->gone = true;
	l->busy = true;
	shm_path_fail(l, p, "%s (process %d)", what, (int)p->peer_pid);
}

static void send_word(struct shm_lane *l, struct shm_path *p, uint32_t kind)
{
	struct shm_word w = { .kind = kind, .epoch = p->epoch };

	l->stats.syscalls++;
	/* It fails when the peer has gone, which the next check sees; it cannot be full: two words at most.
	 */
	(void)!send(p->sock, &w, sizeof(w), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void shm_path_revoke(struct shm_lane *l, struct shm_path *p)
{
	if (p->asked || p->stopped)
		return;
	p->asked = true;
	send_word(l, p, SHM_REVOKE);
}

static void read_words(struct shm_lane *l, struct shm_path *p)
{
	for (;;) {
		struct shm_word w;
		ssize_t r = recv(p->sock, &w, sizeof(w), MSG_DONTWAIT);

		l->stats.syscalls++;
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (r <= 0) {
			peer_gone(l, p, "the peer's process has ended or closed the lane");
			return;
		}
		if (r != sizeof(w) || w.epoch != p->epoch)
			continue;
		if (w.kind == SHM_REVOKE) {
			p->stopped = true;
			l->busy = true;
			if (!p->asked) {
				p->asked = true; /* our answer is also our promise to put nothing more */
				send_word(l, p, SHM_REVOKED);
			}
			shm_path_fail(l, p, "the peer has fenced the lane");
		} else if (w.kind == SHM_REVOKED) {
			p->stopped = true;
			l->busy = true;
		}
	}
}

void shm_path_check(struct shm_lane *l, struct shm_path *p)
{
	struct pollfd fds[2] = { { .fd = p->sock, .events = POLLIN }, { .fd = p->pidfd, .events = POLLIN } };

	l->stats.syscalls++;
	if (poll(fds, 2, 0) <= 0)
		return;
	if (fds[0].revents != 0)
		read_words(l, p);
	/* A child that the peer has forked may hold the socket open after the peer itself has ended. */
	if (!p->stopped && fds[1].revents != 0)
		peer_gone(l, p, "the peer's process has ended");
}
