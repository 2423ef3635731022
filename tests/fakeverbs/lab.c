/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lab: the shared file, the processes in it, their devices, and the NIC thread. A process is alive as
 * long as it holds the lock on its byte of the file (released by the kernel whatever happens), so what the
 * dead have left behind harms nobody; the last to go removes the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/futex.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "internal.h"

struct fv fv = { .mu = PTHREAD_MUTEX_INITIALIZER };
static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;

void fv_die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fprintf(stderr, "fakeverbs: ");
	vfprintf(stderr, format, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	fflush(NULL);
	abort();
}

uint64_t fv_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t fv_random(uint64_t below)
{
	if (fv.seed == 0 || below == 0)
		return 0;
	fv.rng = fv.rng * 6364136223846793005u + 1442695040888963407u;
	return (fv.rng >> 33) % below;
}

void fv_count(enum fv_kind kind, int n)
{
	atomic_fetch_add_explicit(&fv.objects[kind], n, memory_order_relaxed);
}

bool fv_fail(int plausible)
{
	uint64_t n = atomic_fetch_add(&fv.calls, 1) + 1;
	int err;

	if (n != atomic_load(&fv.fail_at))
		return false;
	err = atomic_load(&fv.fail_err);
	atomic_store(&fv.failed, true);
	errno = err != 0 ? err : plausible;
	return true;
}

/* A waiting caller goes before the NIC's next round. */
void fv_lock(void)
{
	atomic_fetch_add_explicit(&fv.waiters, 1, memory_order_relaxed);
	pthread_mutex_lock(&fv.mu);
	atomic_fetch_sub_explicit(&fv.waiters, 1, memory_order_relaxed);
}

void fv_unlock(void)
{
	pthread_mutex_unlock(&fv.mu);
}

void fv_slock(void)
{
	if (pthread_mutex_lock(&fv.s->mu) == EOWNERDEAD)
		pthread_mutex_consistent(&fv.s->mu);
}

void fv_sunlock(void)
{
	pthread_mutex_unlock(&fv.s->mu);
}

/* Partners: bell and sleeping are both seq_cst here and in nic_main, so one of the two sees the other. */
void fv_bell(uint32_t proc)
{
	struct fv_proc *p = &fv.s->proc[proc];

	atomic_fetch_add(&p->bell, 1);
	if (atomic_load(&p->sleeping) != 0)
		syscall(SYS_futex, &p->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- event queues ---- */
bool evq_init(struct evq *q)
{
	*q = (struct evq){ .fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC) };
	q->last = &q->first;
	pthread_mutex_init(&q->mu, NULL);
	return q->fd >= 0;
}

void evq_end(struct evq *q)
{
	while (q->first != NULL) {
		struct evn *n = q->first;

		q->first = n->next;
		free(n);
	}
	close(q->fd);
	pthread_mutex_destroy(&q->mu);
}

void evq_push(struct evq *q, struct evn *n)
{
	uint64_t one = 1;

	n->next = NULL;
	pthread_mutex_lock(&q->mu);
	*q->last = n;
	q->last = &n->next;
	pthread_mutex_unlock(&q->mu);
	if (write(q->fd, &one, sizeof(one)) < 0)
		fv_die("an event cannot be written");
}

bool evq_any(struct evq *q)
{
	bool any;

	pthread_mutex_lock(&q->mu);
	any = q->first != NULL;
	pthread_mutex_unlock(&q->mu);
	return any;
}

/* An event that was purged leaves its count behind: then there is one more turn. */
struct evn *evq_pop(struct evq *q)
{
	uint64_t n;
	struct evn *e;

	do {
		if (read(q->fd, &n, sizeof(n)) < 0)
			return NULL;
		pthread_mutex_lock(&q->mu);
		e = q->first;
		if (e != NULL) {
			q->first = e->next;
			if (q->first == NULL)
				q->last = &q->first;
		}
		pthread_mutex_unlock(&q->mu);
	} while (e == NULL);
	return e;
}

void evq_purge(struct evq *q, bool (*match)(struct evn *, void *), void (*drop)(struct evn *), void *arg)
{
	struct evn **p, *e, *gone = NULL;

	pthread_mutex_lock(&q->mu);
	for (p = &q->first; (e = *p) != NULL;) {
		if (match(e, arg)) {
			*p = e->next;
			e->next = gone;
			gone = e;
		} else {
			p = &e->next;
		}
	}
	q->last = p;
	pthread_mutex_unlock(&q->mu);
	while ((e = gone) != NULL) {
		gone = e->next;
		if (drop != NULL)
			drop(e);
		free(e);
	}
}

/* ---- processes ---- */
static bool byte_lock(int fd, uint32_t proc, int cmd, struct flock *l)
{
	*l = (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (1L << 40) + proc, .l_len = 1
	};
	return fcntl(fd, cmd, l) == 0;
}

static bool locked(uint32_t proc)
{
	struct flock l;

	return byte_lock(fv.fd, proc, F_OFD_GETLK, &l) && l.l_type != F_UNLCK;
}

/* Gives back what a process that has gone held; the shared lock. */
static void bury(uint32_t proc)
{
	for (int i = 0; i < FV_LISTENERS; i++)
		if (fv.s->listener[i].used && fv.s->listener[i].proc == proc)
			fv.s->listener[i].used = 0;
	for (int i = 0; i < FV_QPS; i++)
		if (atomic_load(&fv.s->qp[i].num) != 0 && fv.s->qp[i].proc == proc) {
			atomic_store(&fv.s->qp[i].state, IBV_QPS_ERR);
			atomic_store(&fv.s->qp[i].released, 1);
		}
	atomic_fetch_add(&fv.s->proc[proc].gen, 1);
	atomic_store(&fv.s->proc[proc].used, 0);
}

bool fv_alive(uint32_t proc, uint32_t gen)
{
	struct fv_proc *p = &fv.s->proc[proc];

	if (atomic_load(&p->gen) != gen)
		return false;
	if (proc == fv.self || locked(proc))
		return true;
	fv_slock();
	if (atomic_load(&p->gen) == gen)
		bury(proc);
	fv_sunlock();
	return false;
}

static void *nic_main(void *arg)
{
	struct fv_proc *me = &fv.s->proc[fv.self];

	(void)arg;
	pthread_setname_np(pthread_self(), "fake-nic");
	while (!atomic_load(&fv.stop)) {
		uint32_t bell = atomic_load(&me->bell);
		uint64_t now = fv_now(), next = now + 100000000;
		struct timespec t;
		bool moved;

		pthread_mutex_lock(&fv.mu);
		moved = fv_step(now, &next);
		pthread_mutex_unlock(&fv.mu);
		while (atomic_load_explicit(&fv.waiters, memory_order_relaxed) > 0)
			sched_yield();
		if (moved)
			continue;
		atomic_store(&me->sleeping, 1);
		now = fv_now();
		if (next > now && atomic_load(&me->bell) == bell) {
			t.tv_sec = (time_t)((next - now) / 1000000000u);
			t.tv_nsec = (long)((next - now) % 1000000000u);
			syscall(SYS_futex, &me->bell, FUTEX_WAIT, bell, &t, NULL, 0);
		}
		atomic_store(&me->sleeping, 0);
	}
	return NULL;
}

/* Opens the file, locked: nobody else joins or leaves meanwhile. */
static int open_file(void)
{
	struct stat a, b;

	for (;;) {
		int fd = open(fv.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		if (fd < 0)
			return -1;
		if (flock(fd, LOCK_EX) == 0 && fstat(fd, &a) == 0 && stat(fv.path, &b) == 0 &&
		    a.st_ino == b.st_ino)
			return fd;
		close(fd); /* removed by the last of those before */
	}
}

static bool anyone(void)
{
	for (uint32_t i = 0; i < FV_PROCS; i++)
		if (i != fv.self && locked(i))
			return true;
	return false;
}

static void leave(void)
{
	if (!fv.up)
		return;
	if (fv.has_nic) {
		atomic_store(&fv.stop, true);
		fv_bell(fv.self);
		pthread_join(fv.nic, NULL);
	}
	fv_slock();
	bury(fv.self);
	fv_sunlock();
	for (uint32_t i = 0; i < FV_PROCS; i++)
		if (i != fv.self && atomic_load(&fv.s->proc[i].used))
			fv_bell(i);
	flock(fv.fd, LOCK_EX);
	if (!anyone())
		unlink(fv.path);
	fv.up = false;
	close(fv.fd);
}

static void in_child(void)
{
	struct fv none = { .mu = PTHREAD_MUTEX_INITIALIZER };

	if (!fv.up)
		return;
	close(fv.fd);
	munmap(fv.s, sizeof(*fv.s));
	memcpy(&fv, &none, sizeof(fv));
}

/* After main, and after whatever the library cleans up. */
__attribute__((destructor)) static void at_end(void)
{
	bool leaks =
		fv.up && fv.has_nic && getenv("FAKEVERBS_LEAKS") != NULL && fakeverbs_open_objects() != 0;

	if (leaks)
		fakeverbs_print_objects();
	leave();
	if (leaks) {
		fflush(NULL);
		_exit(1);
	}
}

static bool attach(bool nic)
{
	const char *lab = getenv("SIRCL_LAB"), *seed = getenv("FAKEVERBS_SEED"),
		   *at = getenv("FAKEVERBS_FAIL_AT");
	const char *scale = getenv("FAKEVERBS_TIME"), *pin = getenv("FAKEVERBS_PIN");
	static bool hooked;
	struct stat st;
	struct flock l;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	snprintf(fv.path, sizeof(fv.path), "/dev/shm/sircl-fakeverbs-%s", lab != NULL && *lab ? lab : pid);
	fakeverbs_seed(seed != NULL ? strtoull(seed, NULL, 0) : 1);
	if (at != NULL)
		atomic_store(&fv.fail_at, strtoull(at, NULL, 0));
	fv.time = scale != NULL && atof(scale) > 0 ? atof(scale) : 1;
	fv.pin = pin != NULL && strcmp(pin, "1") == 0;
	fv.netns = stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
	fv.fd = open_file();
	if (fv.fd < 0)
		return false;
	fv.self = FV_PROCS;
	if (!anyone() && (ftruncate(fv.fd, 0) != 0 || ftruncate(fv.fd, sizeof(*fv.s)) != 0))
		return false;
	fv.s = mmap(NULL, sizeof(*fv.s), PROT_READ | PROT_WRITE, MAP_SHARED, fv.fd, 0);
	if (fv.s == MAP_FAILED)
		return false;
	if (!atomic_load(&fv.s->ready)) {
		pthread_mutexattr_t a;

		pthread_mutexattr_init(&a);
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
		pthread_mutex_init(&fv.s->mu, &a);
		atomic_store(&fv.s->next, 0x11);
		fv.s->next_port = 20000;
		for (int i = 0; i < FV_DEVS; i++)
			atomic_store(&fv.s->dev[i].hole, -1);
		atomic_store(&fv.s->ready, 1);
	}
	for (fv.self = 0; fv.self < FV_PROCS; fv.self++)
		if (!locked(fv.self) && byte_lock(fv.fd, fv.self, F_OFD_SETLK, &l))
			break;
	if (fv.self == FV_PROCS)
		fv_die("more than %d processes in %s", FV_PROCS, fv.path);
	fv_slock();
	if (atomic_load(&fv.s->proc[fv.self].used)) /* it died */
		bury(fv.self);
	fv.s->proc[fv.self].mail_tail = atomic_load(&fv.s->proc[fv.self].mail_head);
	atomic_store(&fv.s->proc[fv.self].used, 1);
	fv_sunlock();
	flock(fv.fd, LOCK_UN);
	if (!hooked)
		pthread_atfork(NULL, NULL, in_child);
	hooked = true;
	fv.has_nic = nic;
	atomic_store(&fv.stop, false);
	if (nic) {
		sigset_t all, old;

		fv_devices();
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		if (pthread_create(&fv.nic, NULL, nic_main, NULL) != 0)
			fv_die("no thread");
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	atomic_store(&fv.up, true);
	return true;
}

bool fv_attach(bool nic)
{
	bool ok;

	if (atomic_load_explicit(&fv.up, memory_order_acquire))
		return true;
	pthread_mutex_lock(&attaching);
	ok = fv.up || attach(nic);
	pthread_mutex_unlock(&attaching);
	if (!ok)
		errno = ENOSYS;
	return ok;
}

/* ---- devices ---- */
bool fv_map_addr(const struct sockaddr *a, uint8_t out[16], uint16_t *port, uint32_t *scope)
{
	const struct sockaddr_in *in = (const void *)a;
	const struct sockaddr_in6 *in6 = (const void *)a;

	memset(out, 0, 16);
	*scope = 0;
	if (a->sa_family == AF_INET) {
		out[10] = out[11] = 0xff;
		memcpy(out + 12, &in->sin_addr, 4);
		*port = in->sin_port;
	} else if (a->sa_family == AF_INET6) {
		memcpy(out, &in6->sin6_addr, 16);
		*port = in6->sin6_port;
		*scope = in6->sin6_scope_id;
	} else {
		return false;
	}
	return true;
}

/* The largest RoCE packet that fits into the netdev's. */
static uint32_t roce_mtu(const char *netdev)
{
	struct ifreq r = { 0 };
	uint32_t mtu = 4096;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", netdev);
	if (fd < 0 || ioctl(fd, SIOCGIFMTU, &r) != 0)
		r.ifr_mtu = 1500;
	if (fd >= 0)
		close(fd);
	while (mtu > 256 && (int)mtu + 76 > r.ifr_mtu) /* headers of IPv6, UDP and InfiniBand */
		mtu /= 2;
	return mtu;
}

static struct fdev *device_of(const char *netdev)
{
	struct fv_sdev *s = NULL;
	struct fdev *d;

	for (int i = 0; i < fv.ndev; i++)
		if (strcmp(fv.dev[i].s->netdev, netdev) == 0)
			return &fv.dev[i];
	for (uint32_t i = 0; i < fv.s->ndev && s == NULL; i++)
		if (fv.s->dev[i].netns == fv.netns && strcmp(fv.s->dev[i].netdev, netdev) == 0)
			s = &fv.s->dev[i];
	if (fv.ndev == 64 || (s == NULL && fv.s->ndev == FV_DEVS))
		return NULL;
	if (s == NULL) {
		s = &fv.s->dev[fv.s->ndev++];
		s->netns = fv.netns;
		snprintf(s->netdev, sizeof(s->netdev), "%s", netdev);
		snprintf(s->name, sizeof(s->name), "fake_%s", netdev);
	}
	d = &fv.dev[fv.ndev++];
	d->s = s;
	d->index = (uint32_t)(s - fv.s->dev);
	d->d.node_type = IBV_NODE_CA;
	d->d.transport_type = IBV_TRANSPORT_IB;
	snprintf(d->d.name, sizeof(d->d.name), "%s", s->name);
	snprintf(d->d.dev_name, sizeof(d->d.dev_name), "uverbs%u", d->index);
	return d;
}

static bool wanted(const struct ifaddrs *i, uint8_t addr[16])
{
	uint16_t port;
	uint32_t scope;

	return i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) != 0 &&
	       fv_map_addr(i->ifa_addr, addr, &port, &scope);
}

static bool makes_device(const uint8_t a[16])
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)a) ||
	       IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)(const void *)a);
}

void fv_devices(void)
{
	struct ifaddrs *all, *i;
	uint8_t a[16];

	if (getifaddrs(&all) != 0)
		return;
	fv_slock();
	for (i = all; i != NULL; i = i->ifa_next)
		if (wanted(i, a) && makes_device(a))
			device_of(i->ifa_name);
	for (int k = 0; k < fv.ndev; k++) {
		struct fv_sdev *s = fv.dev[k].s;

		s->naddr = 0;
		s->mtu = roce_mtu(s->netdev);
		for (i = all; i != NULL; i = i->ifa_next)
			if (wanted(i, a) && strcmp(i->ifa_name, s->netdev) == 0 && s->naddr < 8)
				memcpy(s->addr[s->naddr++], a, 16);
	}
	fv_sunlock();
	freeifaddrs(all);
}

struct fdev *fv_dev_of(const uint8_t addr[16], uint32_t scope)
{
	fv_devices();
	for (int k = 0; k < fv.ndev; k++)
		for (uint32_t i = 0; i < fv.dev[k].s->naddr; i++)
			if (memcmp(fv.dev[k].s->addr[i], addr, 16) == 0 &&
			    (scope == 0 || if_nametoindex(fv.dev[k].s->netdev) == scope))
				return &fv.dev[k];
	return NULL;
}

int fv_gids(struct fdev *d, union ibv_gid *gid, int max)
{
	struct fv_sdev *s = d->s;
	uint32_t turn = atomic_load(&s->shuffle);
	int32_t hole = atomic_load(&s->hole);
	int n = 0;

	fv_devices();
	memset(gid, 0, sizeof(*gid) * (size_t)max);
	fv_slock();
	for (uint32_t i = 0; i < s->naddr && n < max; i++, n++) {
		if (n == hole && ++n == max)
			break;
		memcpy(gid[n].raw, s->addr[(i + turn) % s->naddr], 16);
	}
	fv_sunlock();
	return n;
}

void fv_dev_event(struct fv_sdev *s, enum ibv_event_type type)
{
	uint32_t n = atomic_load(&s->nev);

	atomic_store(&s->ev[n % 64], (uint8_t)type);
	atomic_store(&s->nev, n + 1);
	for (uint32_t i = 0; i < FV_PROCS; i++)
		if (atomic_load(&fv.s->proc[i].used))
			fv_bell(i);
}
