/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lab: the shared file, the processes in it, their devices, and the NIC thread. A process is alive as
 * long as it holds the lock on its byte of the file (released by the kernel whatever happens), so what the
 * dead have left behind harms nobody; the last to go removes the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "internal.h"

#define BYTES (1L << 40) /* where the processes' bytes are, behind the end of the file */

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
	*l = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = BYTES + proc, .l_len = 1 };
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

/* Removes the files that labs left behind whose last process was killed. */
static void sweep(void)
{
	glob_t g;

	if (glob("/dev/shm/sircl-fakeverbs-*", 0, NULL, &g) != 0)
		return;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		struct flock l = {
			.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = BYTES, .l_len = FV_PROCS
		};
		int fd = open(g.gl_pathv[i], O_RDWR | O_CLOEXEC);

		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fcntl(fd, F_OFD_GETLK, &l) == 0 &&
		    l.l_type == F_UNLCK)
			unlink(g.gl_pathv[i]);
		close(fd);
	}
	globfree(&g);
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
	if (!fv.seeded)
		fakeverbs_seed(seed != NULL ? strtoull(seed, NULL, 0) : 1);
	sweep();
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
