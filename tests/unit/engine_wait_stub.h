/* SPDX-License-Identifier: Apache-2.0 */
/* An engine over channels that are a stub: it counts who drives, arms and sleeps. */
#ifndef TESTS_ENGINE_WAIT_STUB_H
#define TESTS_ENGINE_WAIT_STUB_H
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "engine/internal.h"

struct chan_net {
	atomic_int rounds, arms;
	atomic_int events; /* things that will "happen" */
	atomic_uintptr_t last; /* who drove last */
	atomic_bool inside; /* two drivers at once are a defect */
	atomic_ullong deadline;
	int fd; /* what arm gives out */
	atomic_int foreign; /* rounds of threads other than `owner` */
	pthread_t owner;
};

bool chan_net_progress(struct chan_net *net, struct tick *t)
{
	uint64_t n;
	bool moved = false;

	(void)t;
	ck_assert(!atomic_exchange(&net->inside, true));
	atomic_fetch_add(&net->rounds, 1);
	if (!pthread_equal(pthread_self(), net->owner))
		atomic_fetch_add(&net->foreign, 1);
	atomic_store(&net->last, (uintptr_t)pthread_self());
	while (read(net->fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
		moved = true;
	if (atomic_load(&net->events) > 0) {
		atomic_fetch_sub(&net->events, 1);
		moved = true;
	}
	atomic_store(&net->inside, false);
	return moved;
}

uint64_t chan_net_deadline(const struct chan_net *net)
{
	return atomic_load(&((struct chan_net *)(uintptr_t)net)->deadline);
}

int chan_net_arm(struct chan_net *net, struct pollfd *fds, int max)
{
	ck_assert_int_ge(max, 1);
	atomic_fetch_add(&net->arms, 1);
	fds[0] = (struct pollfd){ .fd = net->fd, .events = POLLIN };
	return 1;
}

/* Channels that take everything and never move. */
struct chan {
	struct xfer *x[2 * CHAN_QUEUE];
	int n;
};

sircl_result_t chan_open(struct chan_net *net, struct tick *t, const struct chan_cfg *cfg, struct chan **out)
{
	(void)net;
	(void)t;
	(void)cfg;
	*out = calloc(1, sizeof(**out));
	return SIRCL_SUCCESS;
}

int chan_net_hops(const struct chan_net *net, uint16_t peer, enum link_side via)
{
	(void)net;
	(void)peer;
	(void)via;
	return 1;
}

void chan_hint(struct chan *c, struct tick *t, uint64_t word)
{
	(void)c;
	(void)t;
	(void)word;
}

bool chan_hinted(struct chan *c, uint64_t *word)
{
	(void)c;
	(void)word;
	return false;
}

size_t chan_memory(const struct chan *c)
{
	(void)c;
	return 0;
}

bool chan_peek(const struct chan *c, uint64_t *tag)
{
	(void)c;
	(void)tag;
	return false;
}

static inline bool take(struct chan *c, struct xfer *x)
{
	ck_assert_int_lt(c->n, 2 * CHAN_QUEUE);
	c->x[c->n++] = x;
	return true;
}

bool chan_send(struct chan *c, struct tick *t, const void *p, size_t len, uint64_t tag, struct xfer *x)
{
	(void)t;
	(void)p;
	(void)len;
	(void)tag;
	return take(c, x);
}

bool chan_recv(struct chan *c, struct tick *t, void *p, size_t max, struct xfer *x)
{
	(void)t;
	(void)p;
	(void)max;
	return take(c, x);
}

bool chan_recv_view(struct chan *c, struct tick *t, size_t max, struct xfer *x)
{
	return chan_recv(c, t, NULL, max, x);
}

size_t chan_view(struct chan *c, struct xfer *x, const void **p)
{
	(void)c;
	(void)x;
	(void)p;
	return 0;
}

void chan_consume(struct chan *c, struct tick *t, struct xfer *x, size_t n)
{
	(void)c;
	(void)t;
	(void)x;
	(void)n;
}

void chan_close(struct chan *c, struct tick *t)
{
	(void)t;
	for (int i = 0; i < c->n; i++)
		c->x[i]->err = SIRCL_ABORTED;
	free(c);
}

const struct sircl_error *chan_error(const struct chan *c)
{
	(void)c;
	return NULL;
}

void chan_net_notify(struct chan_net *net, struct tick *t, enum notice_kind k, uint16_t subject,
		     uint32_t code, uint64_t arg)
{
	(void)net;
	(void)t;
	(void)k;
	(void)subject;
	(void)code;
	(void)arg;
}

struct link *chan_net_link(const struct chan_net *net, enum link_side side)
{
	(void)net;
	(void)side;
	return NULL;
}

struct stand {
	struct sircl_ctx ctx;
	struct chan_net net;
	struct engine *engine;
};

static inline uint64_t real_clock(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static inline const char *no_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

/* cpus: of the background thread, or NULL; log: a descriptor for INFO lines, or -1. */
static inline void setup_on(struct stand *s, bool background, int ranks_here, const cpu_set_t *cpus, int log)
{
	struct engine_cfg cfg = { .ctx = &s->ctx,
				  .net = &s->net,
				  .background = background,
				  .cpus = cpus,
				  .ranks_here = ranks_here };

	memset(s, 0, sizeof(*s));
	params_load_from(&s->ctx.params, no_environment, NULL);
	s->ctx.log = log < 0 ? (struct log){ .level = LOG_NONE, .fd = 2 }
			     : (struct log){ .level = LOG_INFO, .subsys = LOG_ALL, .fd = log };
	s->ctx.clock = real_clock;
	s->net.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	s->net.deadline = NEVER;
	s->net.owner = pthread_self();
	ck_assert_int_eq(engine_create(&cfg, &s->engine), SIRCL_SUCCESS);
}

static inline void setup(struct stand *s, bool background, int ranks_here)
{
	setup_on(s, background, ranks_here, NULL, -1);
}

static inline void teardown(struct stand *s)
{
	engine_destroy(s->engine);
	close(s->net.fd);
	params_free(&s->ctx.params);
}

static inline void arrive(struct stand *s)
{
	uint64_t one = 1;

	ck_assert_int_eq(write(s->net.fd, &one, sizeof(one)), sizeof(one));
}

/* Waits up to 2 s for *n to exceed `than`. */
static inline bool grows(atomic_int *n, int than)
{
	for (int i = 0; i < 20000; i++) {
		if (atomic_load(n) > than)
			return true;
		usleep(100);
	}
	return false;
}

/* What a busy machine may delay is tried so often; what is wrong is late each time. */
#define TRIES 5

static inline uint64_t cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static inline bool never(void *arg)
{
	(void)arg;
	return false;
}

static inline bool is_set(void *arg)
{
	return atomic_load((atomic_bool *)arg);
}
#endif
