/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting. A thread that waits drives: rounds without a pause while things happen; then it spins for a
 * moment, then gives the processor away between rounds, and after IDLE_BLOCK without any news it arms the
 * lanes, gives the token back and sleeps on their descriptors until engine_deadline. With more ranks than
 * cores spinning only takes the processor from the rank that is waited for, so there is none (four ranks on
 * two cores, 1 KiB, first quartile of 9 medians: 9.4 us without, 10.5 us with 500 ns, 15.6 us with 1 us).
 *
 * The background thread drives only when nobody else does (links must be answered and relays must flow while
 * the application computes). It has three moods: looking (timed naps of 100 us .. 1 ms, only a stamp is
 * read), driving (rounds until nothing happens for a moment), armed (asleep on the descriptors). A caller
 * that drives takes the token without asking it; since a poll disarms the lanes, a caller that stops driving
 * wakes an armed background thread once, which then looks, drives and arms again.
 *
 * This is the one place above lane/ that reads a clock, and only ctx->clock.
 */
#include "engine/internal.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IDLE_BLOCK (1 * MSEC)
#define CLOCK_ROUNDS 8 /* in which things happen, without a look at the clock */
#define SPIN_CROWDED 0ull
#define SPIN_ALONE (50 * USEC)
#define TAKE_OVER (100 * USEC)
#define LOOK_MIN (100 * USEC)
#define LOOK_MAX (1 * MSEC)
#define FDS_MAX (LINK_SIDES * LANES_MAX * 4 + 1)

static uint64_t clock_now(const struct engine *e)
{
	return e->cfg.ctx->clock(e->cfg.ctx->clock_arg);
}

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("isb" ::: "memory");
#endif
}

static void ring(int fd)
{
	uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void drain(int fd)
{
	uint64_t n;

	while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}

/* Sleeps on the first n descriptors and on `fd` for at most `ns`; at least a millisecond's granularity is not
 * needed, ppoll has nanoseconds. */
static void sleep_on(struct pollfd *fds, int n, int fd, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / SEC), .tv_nsec = (long)(ns % SEC) };

	fds[n] = (struct pollfd){ .fd = fd, .events = POLLIN };
	ppoll(fds, (nfds_t)n + 1, &ts, NULL);
	if (fds[n].revents & POLLIN)
		drain(fd);
}

static uint64_t until_ns(uint64_t at, uint64_t now)
{
	uint64_t ns = at > now ? at - now : 0;

	return ns < SEC ? ns : SEC;
}

void wait_op_done(struct engine *e)
{
	/* The result was stored before; a waiter counts itself into `sleepers` before it looks at the result
	 * for the last time. Both sides need the full fence between their store and their load. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&e->sleepers, memory_order_relaxed) > 0)
		ring(e->wake_fd);
}

void engine_kick(struct engine *e)
{
	atomic_thread_fence(
		memory_order_seq_cst); /* as in wait_op_done; the partner is in nap and bg_sleep */
	if (atomic_load_explicit(&e->sleepers, memory_order_relaxed) > 0)
		ring(e->wake_fd);
	if (atomic_load_explicit(&e->bg_armed, memory_order_relaxed))
		ring(e->bg_fd);
}

void wait_left(struct engine *e)
{
	/* Relaxed: armed before this caller's round took the token from the background thread, and the token
	 * orders the two; armed after it: then there is nothing to re-arm. */
	if (atomic_load_explicit(&e->bg_armed, memory_order_relaxed) &&
	    atomic_load_explicit(&e->waiting, memory_order_relaxed) == 0 &&
	    atomic_exchange_explicit(&e->bg_armed, false, memory_order_relaxed))
		ring(e->bg_fd);
}

static bool any_failed(const struct engine *e)
{
	for (const struct team *t = e->teams; t; t = t->next)
		/* Relaxed: only tells whether to go round once more; team.c loads with acquire. */
		if (t->phase == TEAM_OPEN && atomic_load_explicit(&t->failed, memory_order_relaxed))
			return true;
	return false;
}

/* One sleep of a waiting thread. */
static void nap(struct engine *e, bool (*until)(void *), void *arg, uint64_t limit)
{
	struct pollfd fds[FDS_MAX];
	uint64_t at;
	int n = -1;

	if (!token_try(e)) { /* a driver at work for so long: it was descheduled, or sums something large */
		sched_yield();
		return;
	}
	atomic_fetch_add_explicit(&e->sleepers, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partner: wait_op_done, engine_kick */
	if (!until(arg) && !any_failed(e))
		n = chan_net_arm(e->cfg.net, fds, FDS_MAX - 1);
	at = tick_min(engine_deadline(e), limit);
	token_give(e);
	if (n >= 0) {
		uint64_t ns = until_ns(at, clock_now(e));

		/* One wake_fd for all: with two sleepers one may empty it before the other has looked, so
		 * they sleep only briefly. */
		if (atomic_load_explicit(&e->waiting, memory_order_relaxed) > 1)
			ns = tick_min(ns, MSEC);
		sleep_on(fds, n, e->wake_fd, ns);
	}
	atomic_fetch_sub_explicit(&e->sleepers, 1, memory_order_relaxed);
}

/* holding: `until` reads what drivers write, so it is asked with the token held. */
static bool wait_loop(struct engine *e, bool (*until)(void *), void *arg, uint64_t limit, bool holding)
{
	struct tick tick = { .now = 0 };
	uint64_t idle_since = 0; /* 0: something has just moved */
	unsigned rounds = 0;
	bool ok = true;

	/* Relaxed: keeps the background thread away; not needed for correctness. */
	atomic_fetch_add_explicit(&e->waiting, 1, memory_order_relaxed);
	while (holding || !until(arg)) {
		bool moved = false, done = false;

		if (token_try(e)) {
			/* The clock is read where nothing moves. Until then it is as late as at the latest
			 * round of anybody, such as the start of the operation. */
			if (!tick.now)
				tick.now = e->now ? e->now : clock_now(e);
			done = holding && until(arg);
			if (!done) {
				moved = drive_holding(e, &tick);
				done = holding && moved && until(arg);
			}
			token_give(e);
		}
		if (done)
			break;
		if (tick.now >= limit) {
			ok = false;
			break;
		}
		if (moved)
			idle_since = 0;
		if (moved && ++rounds % CLOCK_ROUNDS)
			continue;
		tick.now = clock_now(e);
		if (moved)
			continue;
		if (!idle_since)
			idle_since = tick.now;
		if (tick.now - idle_since < e->spin) {
			relax();
		} else if (tick.now - idle_since < IDLE_BLOCK) {
			sched_yield();
		} else {
			nap(e, until, arg, limit);
			tick.now = clock_now(e);
		}
	}
	if (tick.now)
		atomic_store_explicit(&e->last_caller, tick.now, memory_order_relaxed);
	atomic_fetch_sub_explicit(&e->waiting, 1, memory_order_relaxed);
	wait_left(e);
	return ok;
}

static bool op_is_done(void *arg)
{
	return op_done(arg);
}

sircl_result_t engine_wait(struct engine *e, struct op *op)
{
	struct sircl_error err;

	if (!op_done(op))
		wait_loop(e, op_is_done, op, NEVER, false);
	if (op_result(op, &err) != SIRCL_SUCCESS)
		return error_again(&err);
	return SIRCL_SUCCESS;
}

sircl_result_t engine_wait_until(struct engine *e, bool (*until)(void *), void *arg, uint64_t limit)
{
	return wait_loop(e, until, arg, limit, true) ? SIRCL_SUCCESS : SIRCL_TIMEOUT;
}

/* ---- the background thread ---- */

static bool bg_stopped(struct engine *e)
{
	return atomic_load_explicit(&e->bg_stop, memory_order_acquire); /* partner: wait_destroy */
}

static bool somebody_drives(struct engine *e, uint64_t now)
{
	uint64_t last = atomic_load_explicit(&e->last_caller, memory_order_relaxed);

	return atomic_load_explicit(&e->waiting, memory_order_relaxed) > 0 ||
	       (last != 0 && now < last + TAKE_OVER);
}

/* Arms and sleeps until something arrives, the deadline, or a ring. */
static void bg_sleep(struct engine *e)
{
	struct pollfd fds[FDS_MAX];
	uint64_t at;
	int n = -1;

	if (!token_try(e))
		return;
	atomic_store_explicit(&e->bg_armed, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partner: engine_kick, engine_destroy's bg_stop */
	if (!bg_stopped(e) && !any_failed(e))
		n = chan_net_arm(e->cfg.net, fds, FDS_MAX - 1);
	at = engine_deadline(e);
	token_give(e);
	if (n >= 0)
		sleep_on(fds, n, e->bg_fd, until_ns(at, clock_now(e)));
	atomic_store_explicit(&e->bg_armed, false, memory_order_relaxed);
}

/* Drives until a caller comes. */
static void bg_drive(struct engine *e)
{
	uint64_t busy_for = e->crowded ? 5 * USEC : SPIN_ALONE;
	struct tick tick = { .now = clock_now(e) };
	uint64_t news = tick.now;

	while (!bg_stopped(e) && !somebody_drives(e, tick.now)) {
		bool moved = false;

		if (token_try(e)) {
			moved = drive_holding(e, &tick);
			token_give(e);
		}
		tick.now = clock_now(e);
		if (moved) {
			news = tick.now;
		} else if (tick.now - news < busy_for) {
			sched_yield();
		} else {
			bg_sleep(e);
			tick.now = news = clock_now(e);
		}
	}
}

/* By the thread itself: a creation with attributes would fail where this only leaves it where it is. */
static void bg_bind(struct engine *e)
{
	int err = e->has_cpus ? pthread_setaffinity_np(pthread_self(), sizeof(e->cpus), &e->cpus) : 0;

	if (err)
		log_info(&e->cfg.ctx->log, LOG_ENGINE,
			 "the background thread cannot be bound to the CPUs chosen for it (%s) and runs "
			 "anywhere",
			 strerror(err));
}

static void *bg_main(void *arg)
{
	struct engine *e = arg;
	uint64_t look = LOOK_MIN;

	bg_bind(e);
	while (!bg_stopped(e)) {
		if (somebody_drives(e, clock_now(e))) {
			struct pollfd fd[1];

			sleep_on(fd, 0, e->bg_fd, look);
			look = tick_min(look * 2, LOOK_MAX);
			continue;
		}
		look = LOOK_MIN;
		bg_drive(e);
	}
	return NULL;
}

static sircl_result_t bg_start(struct engine *e)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&e->thread, NULL, bg_main, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return error_set(SIRCL_SYSTEM_ERROR,
				 "rank %d cannot start its background thread: %s. Is the limit of processes "
				 "(ulimit -u) reached?",
				 e->cfg.ctx->rank, strerror(err));
	pthread_setname_np(e->thread, "sircl");
	e->has_thread = true;
	return SIRCL_SUCCESS;
}

static int usable_cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return CPU_COUNT(&set);
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

sircl_result_t wait_create(struct engine *e)
{
	int64_t spin = param_num(&e->cfg.ctx->params, PARAM_SPIN);
	sircl_result_t ret;

	e->crowded = e->cfg.ranks_here > usable_cores();
	e->spin = spin >= 0 ? (uint64_t)spin * USEC : e->crowded ? SPIN_CROWDED : SPIN_ALONE;
	e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e->bg_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->wake_fd < 0 || e->bg_fd < 0) {
		ret = error_set(
			SIRCL_SYSTEM_ERROR,
			"rank %d cannot create an eventfd: %s. Is the limit of open files (ulimit -n) "
			"reached?",
			e->cfg.ctx->rank, strerror(errno));
		goto fail;
	}
	e->has_cpus = e->cfg.cpus != NULL;
	if (e->has_cpus)
		e->cpus = *e->cfg.cpus;
	e->cfg.cpus = NULL; /* the caller's, who may be gone when the thread comes to it */
	if (e->cfg.background)
		CHECK_GOTO(bg_start(e), fail);
	return SIRCL_SUCCESS;
fail:
	wait_destroy(e);
	return ret;
}

void wait_destroy(struct engine *e)
{
	if (e->has_thread) {
		atomic_store_explicit(&e->bg_stop, true, memory_order_release); /* partner: bg_stopped */
		ring(e->bg_fd);
		pthread_join(e->thread, NULL);
		e->has_thread = false;
	}
	if (e->wake_fd >= 0)
		close(e->wake_fd);
	if (e->bg_fd >= 0)
		close(e->bg_fd);
	e->wake_fd = e->bg_fd = -1;
}
