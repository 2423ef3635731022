/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the two ends of a shm lane meet: an abstract SOCK_SEQPACKET socket (no file is left behind, whatever
 * happens), the handshake of base/auth, then one packet each way with the descriptors of the shared memory.
 *
 * Invariant: nothing that a connection says has any effect before it has proved a key of the job; until then
 * it is a stranger, of which there are SHM_HALF_OPEN at most, each for SHM_LIMIT. The epoch travels in the
 * hellos, which the proof covers; job, cable, lane and positions are its context.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "lane/shm_internal.h"

struct shm_hello {
	uint32_t magic, epoch;
};

static void fill_addr(struct sockaddr_un *a, socklen_t *len, const char *name, size_t n)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path + 1, name, n); /* leading NUL: abstract */
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

sircl_result_t shm_listen(struct shm_lane *l)
{
	const struct lane_cfg *c = &l->cfg;
	struct sockaddr_un a;
	socklen_t len;
	uint64_t job;
	uint32_t salt;

	memcpy(&job, c->job, sizeof(job));
	/* The salt keeps two lanes of one name apart, and a squatter from knowing the name before it is
	 * bound. */
	if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt) ||
	    getrandom(&l->probe, sizeof(l->probe), 0) != sizeof(l->probe))
		return error_set(SIRCL_SYSTEM_ERROR, "%s: getrandom: %s", l->label, strerror(errno));
	snprintf(l->name, sizeof(l->name), "sircl/%.24s/%016llx/%u.%u/%u-%u/%08x",
		 c->lab != NULL ? c->lab : "-", (unsigned long long)job, c->cable, c->lane, c->self, c->peer,
		 salt);
	if (c->connects)
		return SIRCL_SUCCESS;
	fill_addr(&a, &len, l->name, strlen(l->name));
	l->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->listen_fd < 0 || bind(l->listen_fd, (struct sockaddr *)&a, len) != 0 ||
	    listen(l->listen_fd, 64) != 0)
		return error_set(SIRCL_SYSTEM_ERROR, "%s: cannot listen at the abstract unix socket %s: %s",
				 l->label, l->name, strerror(errno));
	return SIRCL_SUCCESS;
}

void shm_conn_drop(struct shm_lane *l, struct shm_conn *c)
{
	if (c->step == SHM_SETTING_UP)
		shm_path_close(l, &c->path);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->step = SHM_FREE;
}

/* Ends the half-open epoch with LANE_DOWN; l->down_why is set. */
static void half_failed(struct shm_lane *l)
{
	l->down_epoch = l->half.epoch;
	l->down_owed = true;
	l->down_gone = false;
	l->busy = true;
	shm_conn_drop(l, &l->half);
}

#define half_fail(l, ...) \
	do { \
		snprintf((l)->down_why, sizeof((l)->down_why), __VA_ARGS__); \
		half_failed(l); \
	} while (0)

static void start_auth(struct shm_lane *l, struct shm_conn *c, uint32_t epoch)
{
	const struct lane_cfg *g = &l->cfg;
	struct shm_hello h = { .magic = SHM_MAGIC, .epoch = epoch };
	uint16_t lower = g->connects ? g->self : g->peer, upper = g->connects ? g->peer : g->self;
	uint16_t n[4] = { g->cable, g->lane, lower, upper };
	uint8_t ctx[40] = "sircl-shm";

	memcpy(ctx + 16, g->job, 16);
	memcpy(ctx + 32, n, sizeof(n));
	auth_start(&c->auth, g->keys, g->connects, ctx, sizeof(ctx), &h, sizeof(h));
}

static void proving(struct shm_lane *l, struct shm_conn *c, int fd, uint32_t epoch)
{
	c->step = SHM_PROVING;
	c->fd = fd;
	c->epoch = epoch;
	start_auth(l, c, epoch);
}

static bool send_packet(struct shm_lane *l, int fd, const void *p, size_t n)
{
	l->stats.syscalls++;
	return send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

static void dial(struct shm_lane *l)
{
	struct shm_conn *c = &l->half;
	struct sockaddr_un a;
	socklen_t len;
	uint8_t out[AUTH_MSG_MAX];
	size_t nout = 0;
	int one = 1;

	fill_addr(&a, &len, (const char *)l->peer_addr.b, l->peer_addr.len);
	l->stats.syscalls++;
	if (connect(c->fd, (struct sockaddr *)&a, len) != 0) {
		if (errno == EAGAIN || errno == EINTR) /* its queue of connections is full: the next poll */
			return;
		bool refused = errno == ECONNREFUSED;

		half_fail(l, "cannot connect to the peer's unix socket %.*s: %s%s", l->peer_addr.len,
			  (const char *)l->peer_addr.b, strerror(errno),
			  refused ? " (its process has ended, or is in another network namespace)" : "");
		l->down_gone = refused;
		return;
	}
	/* After connect, which else would give this socket a name of the kernel's choice. */
	if (setsockopt(c->fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) != 0) {
		half_fail(l, "SO_PASSCRED: %s", strerror(errno));
		return;
	}
	proving(l, c, c->fd, c->epoch);
	if (auth_step(&c->auth, NULL, 0, out, &nout) != SIRCL_SUCCESS) {
		half_fail(l, "%.180s", error_last()->msg);
		return;
	}
	if (!send_packet(l, c->fd, out, nout))
		half_fail(l, "the peer has closed the connection");
}

sircl_result_t shm_dial(struct shm_lane *l, uint32_t epoch)
{
	struct shm_conn *c = &l->half;

	shm_conn_drop(l, c);
	c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return error_set(SIRCL_SYSTEM_ERROR, "%s: socket: %s", l->label, strerror(errno));
	c->step = SHM_DIALLING;
	c->epoch = epoch;
	c->limit = 0;
	return SIRCL_SUCCESS;
}

/* One packet with descriptors and credentials. -1: nothing (errno), 0: closed. Stray descriptors are closed.
 */
static ssize_t recv_packet(struct shm_lane *l, int fd, void *buf, size_t max, int fds[3], int *nfds,
			   pid_t *pid)
{
	union {
		struct cmsghdr align;
		char b[CMSG_SPACE(3 * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} u;
	struct iovec v = { buf, max };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof(u.b)
	};
	ssize_t r;

	*nfds = 0;
	*pid = 0;
	l->stats.syscalls++;
	r = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (r < 0)
		return r;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h != NULL; h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level != SOL_SOCKET)
			continue;
		if (h->cmsg_type == SCM_CREDENTIALS) {
			struct ucred cr;

			memcpy(&cr, CMSG_DATA(h), sizeof(cr));
			*pid = cr.pid;
		} else if (h->cmsg_type == SCM_RIGHTS) {
			int n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));

			for (int i = 0; i < n; i++) {
				int got;

				memcpy(&got, CMSG_DATA(h) + (size_t)i * sizeof(int), sizeof(int));
				if (*nfds < 3)
					fds[(*nfds)++] = got;
				else
					close(got);
			}
		}
	}
	return r;
}

static void close_fds(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

static bool send_setup(struct shm_lane *l, struct shm_conn *c)
{
	union {
		struct cmsghdr align;
		char b[CMSG_SPACE(3 * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} u = { 0 };
	struct ucred me = { .pid = getpid(), .uid = geteuid(), .gid = getegid() }, peer;
	socklen_t npeer = sizeof(peer);
	struct shm_setup s;
	struct iovec v = { &s, sizeof(s) };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof(u.b)
	};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	bool same = getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &npeer) == 0 && peer.pid == me.pid;
	int queue_fd = shm_path_make(l, &c->path);
	bool ok;

	if (queue_fd < 0)
		return false;
	c->step = SHM_SETTING_UP;
	c->path.epoch = c->epoch;
	shm_path_offer(l, &c->path, c->epoch, same, &s);
	int fds[3] = { l->cfg.arena_fd, queue_fd, c->path.wake_fd };
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(h), fds, sizeof(fds));
	h = CMSG_NXTHDR(&m, h);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_CREDENTIALS;
	h->cmsg_len = CMSG_LEN(sizeof(me));
	memcpy(CMSG_DATA(h), &me, sizeof(me));
	l->stats.syscalls++;
	ok = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(s);
	if (!ok)
		snprintf(l->down_why, sizeof(l->down_why), "passing the shared memory to the peer failed: %s",
			 strerror(errno));
	close(queue_fd);
	return ok;
}

/* The peer's hello, which the proof covers. */
static bool hello_of(const struct shm_conn *c, struct shm_hello *h)
{
	if (c->auth.npeer_hello != sizeof(*h))
		return false;
	memcpy(h, c->auth.peer_hello, sizeof(*h));
	return h->magic == SHM_MAGIC;
}

/* An accepted connection that has proved itself becomes the half-open epoch, waits for that, or is refused.
 */
static void admit(struct shm_lane *l, struct shm_conn *c, struct tick *t)
{
	if (c->epoch < l->min_epoch || (l->path.open && c->epoch <= l->path.epoch)) {
		shm_conn_drop(l, c);
		return;
	}
	if (l->path.open)
		shm_path_fail(l, &l->path, "the peer connects again, for epoch %u", c->epoch);
	if (l->path.open || !l->allowed) {
		c->step = SHM_PROVED;
		if (t->now >= c->limit)
			shm_conn_drop(l, c);
		return;
	}
	if (l->half.step != SHM_FREE)
		half_fail(l, "the peer connects again, for epoch %u", c->epoch);
	l->half = *c;
	l->half.step = SHM_PROVED;
	c->fd = -1;
	c->step = SHM_FREE;
	if (!send_setup(l, &l->half))
		half_failed(l);
}

static void stranger_gone(struct shm_lane *l, struct shm_conn *c, struct tick *t, const char *why)
{
	if (t->now >= l->next_warn) {
		l->next_warn = t->now + 60 * SEC;
		log_warn(&l->cfg.ctx->log, "%s: refused a connection that proved no key of this job: %s",
			 l->label, why);
	}
	shm_conn_drop(l, c);
}

static void stranger_progress(struct shm_lane *l, struct shm_conn *c, struct tick *t)
{
	uint8_t in[AUTH_MSG_MAX], out[AUTH_MSG_MAX];

	if (c->step == SHM_PROVED)
		admit(l, c, t);
	while (c->step == SHM_PROVING) {
		int fds[3], nfds;
		size_t nout = 0;
		struct shm_hello h;
		pid_t pid;
		ssize_t r = recv_packet(l, c->fd, in, sizeof(in), fds, &nfds, &pid);

		if (r < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (t->now >= c->limit)
				stranger_gone(l, c, t, "it said nothing in time");
			return;
		}
		close_fds(fds, r < 0 ? 0 : nfds);
		if (r <= 0) {
			/* A peer that has given up (cancelled, ended) looks the same: no warning. */
			shm_conn_drop(l, c);
			return;
		}
		if (auth_step(&c->auth, in, (size_t)r, out, &nout) != SIRCL_SUCCESS) {
			stranger_gone(l, c, t, error_last()->msg);
			return;
		}
		if (c->auth.state == AUTH_OK) {
			admit(l, c, t);
			return;
		}
		/* Refusing an old epoch early gives nothing away: it is said again after the proof. */
		if (!hello_of(c, &h) || h.epoch < l->min_epoch || nout == 0 ||
		    !send_packet(l, c->fd, out, nout)) {
			shm_conn_drop(l, c);
			return;
		}
		c->epoch = h.epoch;
	}
}

/* Side A has the answer of B. */
static void prove_step(struct shm_lane *l, const void *in, size_t nin)
{
	struct shm_conn *c = &l->half;
	uint8_t out[AUTH_MSG_MAX];
	size_t nout = 0;
	struct shm_hello h;

	if (auth_step(&c->auth, in, nin, out, &nout) != SIRCL_SUCCESS) {
		half_fail(l, "%.180s", error_last()->msg);
		return;
	}
	if (c->auth.state != AUTH_OK || nout == 0 || !hello_of(c, &h)) {
		half_fail(l, "the peer speaks another version of the lane's handshake");
		return;
	}
	if (!send_packet(l, c->fd, out, nout))
		half_fail(l, "the peer has closed the connection");
	else if (!send_setup(l, c))
		half_failed(l);
}

static void setup_step(struct shm_lane *l, const void *in, size_t nin, int fds[3], int nfds, pid_t pid)
{
	struct shm_conn *c = &l->half;
	struct shm_setup s;

	if (nin != sizeof(s) || nfds != 3) {
		close_fds(fds, nfds);
		half_fail(l, "the peer offers memory that does not fit this version of the library");
		return;
	}
	memcpy(&s, in, sizeof(s));
	if (s.epoch != c->epoch || !shm_path_join(l, &c->path, &s, fds, pid)) {
		if (s.epoch != c->epoch)
			snprintf(l->down_why, sizeof(l->down_why), "the peer means another epoch (%u)",
				 s.epoch);
		close_fds(fds, nfds);
		half_failed(l);
		return;
	}
	close_fds(fds, 2);
	l->path = c->path;
	l->path.sock = c->fd;
	l->path.open = true;
	l->allowed = false; /* the next epoch needs the link's word */
	l->peer_export = (struct lane_export){ .addr = 0, .len = s.arena_len, .key = 0 };
	c->fd = -1;
	c->step = SHM_FREE;
}

static void half_progress(struct shm_lane *l, struct tick *t)
{
	struct shm_conn *c = &l->half;
	uint8_t in[AUTH_MSG_MAX];

	if (c->step == SHM_DIALLING)
		dial(l);
	while (c->step == SHM_PROVING || c->step == SHM_SETTING_UP) {
		int fds[3], nfds;
		pid_t pid;
		ssize_t r = recv_packet(l, c->fd, in, sizeof(in), fds, &nfds, &pid);

		if (r < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (r <= 0) {
			half_fail(l, "the peer has closed the connection in the handshake%s",
				  c->step == SHM_PROVING ? " (it may refuse epoch or key)" : "");
		} else if (c->step == SHM_PROVING) {
			close_fds(fds, nfds);
			prove_step(l, in, (size_t)r);
		} else {
			setup_step(l, in, (size_t)r, fds, nfds, pid);
		}
	}
	if (c->step != SHM_FREE && t->now >= c->limit)
		half_fail(l, "the peer has not answered within %u ms", (unsigned)(SHM_LIMIT / MSEC));
}

/* A free place, or that of the stranger who has said too little for longest: silence keeps nobody out. */
static struct shm_conn *place(struct shm_lane *l, struct tick *t)
{
	struct shm_conn *oldest = NULL;

	for (int i = 0; i < SHM_HALF_OPEN; i++) {
		struct shm_conn *c = &l->stranger[i];

		if (c->step == SHM_FREE)
			return c;
		if (c->step == SHM_PROVING && c->limit + SHM_PATIENCE <= t->now + SHM_LIMIT &&
		    (oldest == NULL || c->limit < oldest->limit))
			oldest = c;
	}
	return oldest;
}

static void accept_some(struct shm_lane *l, struct tick *t)
{
	int one = 1;

	for (int i = 0; i < SHM_HALF_OPEN; i++) {
		struct shm_conn *c = place(l, t);
		int fd;

		if (c == NULL)
			return;
		l->stats.syscalls++;
		fd = accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) != 0) {
			close(fd);
			return;
		}
		if (c->step != SHM_FREE)
			stranger_gone(l, c, t, "it said too little, and others came");
		proving(l, c, fd, 0);
		c->limit = t->now + SHM_LIMIT;
	}
}

void shm_conn_progress(struct shm_lane *l, struct tick *t)
{
	if (l->listen_fd >= 0 && (l->allowed || l->path.open))
		accept_some(l, t);
	for (int i = 0; i < SHM_HALF_OPEN; i++)
		if (l->stranger[i].step != SHM_FREE)
			stranger_progress(l, &l->stranger[i], t);
	if (l->half.step != SHM_FREE) {
		if (l->half.limit == 0)
			l->half.limit = t->now + SHM_LIMIT;
		half_progress(l, t);
	}
}

bool shm_conn_any(const struct shm_lane *l)
{
	if (l->half.step != SHM_FREE)
		return true;
	for (int i = 0; i < SHM_HALF_OPEN; i++)
		if (l->stranger[i].step == SHM_PROVING)
			return true;
	return false;
}
