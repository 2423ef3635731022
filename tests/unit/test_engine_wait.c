/* SPDX-License-Identifier: Apache-2.0 */
/* Who drives, and how waiting sleeps: driver token, engine_wait_until, background thread. The channels are a
 * stub that counts who drives. */
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

static bool take(struct chan *c, struct xfer *x)
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

static uint64_t real_clock(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static const char *no_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void setup(struct stand *s, bool background, int ranks_here)
{
	struct engine_cfg cfg = {
		.ctx = &s->ctx, .net = &s->net, .background = background, .ranks_here = ranks_here
	};

	memset(s, 0, sizeof(*s));
	params_load_from(&s->ctx.params, no_environment, NULL);
	s->ctx.log = (struct log){ .level = LOG_NONE, .fd = 2 };
	s->ctx.clock = real_clock;
	s->net.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	s->net.deadline = NEVER;
	s->net.owner = pthread_self();
	ck_assert_int_eq(engine_create(&cfg, &s->engine), SIRCL_SUCCESS);
}

static void teardown(struct stand *s)
{
	engine_destroy(s->engine);
	close(s->net.fd);
	params_free(&s->ctx.params);
}

static void arrive(struct stand *s)
{
	uint64_t one = 1;

	ck_assert_int_eq(write(s->net.fd, &one, sizeof(one)), sizeof(one));
}

/* Waits up to 2 s for *n to exceed `than`. */
static bool grows(atomic_int *n, int than)
{
	for (int i = 0; i < 20000; i++) {
		if (atomic_load(n) > than)
			return true;
		usleep(100);
	}
	return false;
}

static uint64_t cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

static bool is_set(void *arg)
{
	return atomic_load((atomic_bool *)arg);
}

START_TEST(test_engine_wait_until_ends_at_its_limit_and_sleeps_meanwhile)
{
	struct stand s;
	uint64_t begun = real_clock(NULL), cpu = cpu_time(), took;

	setup(&s, false, 1);
	ck_assert_int_eq(engine_wait_until(s.engine, never, NULL, begun + 100 * MSEC), SIRCL_TIMEOUT);
	took = real_clock(NULL) - begun;
	ck_assert_uint_ge(took, 100 * MSEC);
	ck_assert_uint_lt(cpu_time() - cpu, 20 * MSEC);
	ck_assert_int_ge(s.net.arms, 1);
	teardown(&s);
}
END_TEST

START_TEST(test_engine_wait_drives_at_the_deadline)
{
	struct stand s;
	uint64_t begun = real_clock(NULL);

	setup(&s, false, 1);
	atomic_store(&s.net.deadline, begun);
	engine_wait_until(s.engine, never, NULL, begun + 30 * MSEC);
	ck_assert_int_gt(s.net.arms, 10); /* with a deadline in the past it only pretends to sleep */
	atomic_store(&s.net.deadline, NEVER);
	teardown(&s);
}
END_TEST

static void *set_later(void *arg)
{
	usleep(30000);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

struct kicker {
	struct stand *s;
	atomic_bool *flag;
};

static void *kick_later(void *arg)
{
	struct kicker *k = arg;

	usleep(30000);
	atomic_store(k->flag, true);
	engine_kick(k->s->engine);
	return NULL;
}

START_TEST(test_engine_kick_wakes_a_sleeping_waiter)
{
	atomic_bool flag = false;
	struct stand s;
	struct kicker k = { &s, &flag };
	uint64_t begun;
	pthread_t t;

	setup(&s, false, 1);
	begun = real_clock(NULL);
	pthread_create(&t, NULL, kick_later, &k);
	ck_assert_int_eq(engine_wait_until(s.engine, is_set, &flag, begun + 5 * SEC), SIRCL_SUCCESS);
	ck_assert_uint_lt(real_clock(NULL) - begun, 500 * MSEC); /* un-kicked it sleeps for a second */
	pthread_join(t, NULL);
	teardown(&s);
}
END_TEST

START_TEST(test_engine_news_on_a_descriptor_wakes_a_waiter)
{
	struct stand s;
	uint64_t begun;
	int rounds;
	pthread_t t;
	atomic_bool flag = false;

	setup(&s, false, 1);
	begun = real_clock(NULL);
	arrive(&s);
	pthread_create(&t, NULL, set_later, &flag);
	for (int i = 0; i < 5; i++) {
		arrive(&s);
		engine_wait_until(s.engine, never, NULL, begun + (uint64_t)(i + 1) * 5 * MSEC);
	}
	rounds = s.net.rounds;
	ck_assert_int_ge(rounds, 5);
	pthread_join(t, NULL);
	teardown(&s);
}
END_TEST

START_TEST(test_engine_background_drives_when_nobody_does)
{
	struct stand s;
	uint64_t begun;
	int before;

	setup(&s, true, 1);
	ck_assert(grows(&s.net.arms, 0)); /* it sleeps armed now */
	before = s.net.foreign;
	begun = real_clock(NULL);
	arrive(&s);
	ck_assert(grows(&s.net.foreign, before));
	ck_assert_uint_lt(real_clock(NULL) - begun, 200 * MSEC);
	teardown(&s);
}
END_TEST

START_TEST(test_engine_background_costs_nothing_when_nothing_happens)
{
	struct stand s;
	int rounds;

	setup(&s, true, 8);
	ck_assert(grows(&s.net.arms, 0));
	usleep(20000);
	rounds = s.net.rounds;
	usleep(200000);
	ck_assert_int_le(s.net.rounds, rounds + 2);
	teardown(&s);
}
END_TEST

/* Drives for `ns`; true if this thread was never off the processor long enough for somebody to take over. */
static bool drive_for(struct stand *s, uint64_t ns, int *refused)
{
	uint64_t last = real_clock(NULL), until = last + ns, now;
	bool steady = true;

	while ((now = real_clock(NULL)) < until) {
		struct tick t = { .now = now };
		bool busy = false;

		steady &= now - last < 50 * USEC;
		last = now;
		engine_drive(s->engine, &t, &busy);
		*refused += busy;
	}
	return steady && now - last < 50 * USEC;
}

START_TEST(test_engine_background_never_takes_the_token_from_a_fast_caller)
{
	int disturbed = 0, refused = 0;
	bool before = false; /* the last moment was steady too */
	struct stand s;

	setup(&s, true, 1);
	ck_assert(grows(&s.net.arms, 0));
	drive_for(&s, 5 * MSEC, &refused); /* it notices the caller */
	for (int i = 0; i < 200; i++) {
		int foreign = s.net.foreign;
		bool steady;

		refused = 0;
		steady = drive_for(&s, MSEC, &refused);
		if (steady && before)
			disturbed += refused > 0 || s.net.foreign > foreign;
		before = steady;
	}
	ck_assert_int_le(disturbed, 1);
	teardown(&s);
}
END_TEST

START_TEST(test_engine_background_arms_anew_after_a_caller_has_driven)
{
	struct stand s;

	setup(&s, true, 1);
	for (int i = 0; i < 5; i++) {
		struct tick t;
		bool busy;
		int arms;

		ck_assert(grows(&s.net.arms, i));
		usleep(5000);
		arms = s.net.arms;
		t = (struct tick){ .now = real_clock(NULL) };
		engine_drive(s.engine, &t, &busy); /* a poll disarms the lanes */
		ck_assert(grows(&s.net.arms, arms));
		ck_assert_uint_lt(real_clock(NULL) - t.now, 500 * MSEC); /* un-rung it sleeps for a second */
		engine_lock(s.engine);
		engine_unlock(s.engine);
	}
	teardown(&s);
}
END_TEST

START_TEST(test_engine_background_stays_away_while_a_caller_waits)
{
	struct stand s;
	int before;

	setup(&s, true, 1);
	ck_assert(grows(&s.net.arms, 0));
	for (int i = 0; i < 100; i++) /* news without end */
		atomic_fetch_add(&s.net.events, 1);
	engine_wait_until(s.engine, never, NULL, real_clock(NULL) + 10 * MSEC);
	before = s.net.foreign;
	engine_wait_until(s.engine, never, NULL, real_clock(NULL) + 50 * MSEC);
	ck_assert_int_le(s.net.foreign, before + 2);
	teardown(&s);
}
END_TEST

/* One thread named "sircl" with every signal blocked. */
START_TEST(test_engine_background_thread_has_a_name_and_takes_no_signal)
{
	struct stand s;
	struct dirent *d;
	int found = 0;
	DIR *dir;

	setup(&s, true, 1);
	ck_assert(grows(&s.net.arms, 0));
	dir = opendir("/proc/self/task");
	ck_assert_ptr_nonnull(dir);
	while ((d = readdir(dir))) {
		char path[300], line[200], name[64] = "";
		unsigned long long blocked = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", d->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f)) {
			sscanf(line, "Name: %63s", name);
			sscanf(line, "SigBlk: %llx", &blocked);
		}
		if (f)
			fclose(f);
		if (strcmp(name, "sircl") == 0) {
			found++;
			ck_assert((blocked >> (2 - 1) & 1) && (blocked >> (15 - 1) & 1) &&
				  (blocked >> (10 - 1) & 1));
		}
	}
	closedir(dir);
	ck_assert_int_eq(found, 1);
	teardown(&s);
}
END_TEST

struct contender {
	struct stand *s;
	long *shared; /* plain: the token protects it */
};

static void *contend(void *arg)
{
	struct contender *c = arg;

	for (int i = 0; i < 3000; i++) {
		struct tick t = { .now = real_clock(NULL) };
		bool busy;

		engine_lock(c->s->engine);
		engine_lock(c->s->engine); /* its owner may take it again */
		++*c->shared;
		engine_unlock(c->s->engine);
		engine_unlock(c->s->engine);
		engine_drive(c->s->engine, &t, &busy);
	}
	return NULL;
}

START_TEST(test_engine_token_has_one_owner_at_a_time)
{
	struct stand s;
	long shared = 0;
	struct contender c = { &s, &shared };
	pthread_t t[3];

	setup(&s, true, 1);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, contend, &c);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(shared, 9000);
	teardown(&s);
}
END_TEST

START_TEST(test_engine_spins_less_when_ranks_outnumber_cores)
{
	struct stand s;

	setup(&s, false, 100000);
	ck_assert(s.engine->crowded && s.engine->spin < USEC);
	teardown(&s);
	setup(&s, false, 1);
	ck_assert(!s.engine->crowded && s.engine->spin >= 10 * USEC);
	teardown(&s);
}
END_TEST

struct failer {
	struct team *team;
	unsigned after_us;
};

static void *fail_later(void *arg)
{
	struct failer *f = arg;
	struct sircl_error err = { SIRCL_ABORTED, "aborted by hand" };

	usleep(f->after_us);
	team_fail(f->team, &err);
	return NULL;
}

START_TEST(test_engine_failure_by_another_thread_ends_every_waiter)
{
	static float in[10], out[10]; /* never touched */
	struct team_cfg tc = { .id = 1,
			       .n = 2,
			       .shape = SHAPE_RING,
			       .class = CLASS_SHM,
			       .op_timeout = 30 * SEC,
			       .rank_of = { 0, 1 } };
	struct op_args a = {
		.kind = COLL_ALL_REDUCE, .in = in, .out = out, .count = 10, .type = SIRCL_FLOAT32
	};

	for (int bg = 0; bg < 2; bg++) {
		for (unsigned us = 0; us < 40000; us = us * 3 + 100) {
			struct failer f = { .after_us = us };
			struct tick t = { .now = real_clock(NULL) };
			struct stand s;
			struct op *op;
			pthread_t thread;

			setup(&s, bg, 1);
			ck_assert_int_eq(team_create(s.engine, &t, &tc, &f.team), SIRCL_SUCCESS);
			ck_assert_int_eq(op_create(f.team, &op), SIRCL_SUCCESS);
			ck_assert_int_eq(op_prepare(op, &a), SIRCL_SUCCESS);
			pthread_create(&thread, NULL, fail_later, &f);
			if (engine_start(s.engine, &t, op) == SIRCL_SUCCESS) {
				ck_assert_int_eq(engine_wait(s.engine, op), SIRCL_ABORTED);
				ck_assert_str_eq(error_last()->msg, "aborted by hand");
			}
			ck_assert_uint_lt(real_clock(NULL) - t.now, 900 * MSEC); /* no sleep of a second */
			pthread_join(thread, NULL);
			op_destroy(op);
			team_destroy(f.team, &t);
			teardown(&s);
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine waiting");
	TCase *c = tcase_create("wait");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_engine_wait_until_ends_at_its_limit_and_sleeps_meanwhile);
	tcase_add_test(c, test_engine_wait_drives_at_the_deadline);
	tcase_add_test(c, test_engine_kick_wakes_a_sleeping_waiter);
	tcase_add_test(c, test_engine_news_on_a_descriptor_wakes_a_waiter);
	tcase_add_test(c, test_engine_background_drives_when_nobody_does);
	tcase_add_test(c, test_engine_background_costs_nothing_when_nothing_happens);
	tcase_add_test(c, test_engine_background_never_takes_the_token_from_a_fast_caller);
	tcase_add_test(c, test_engine_background_arms_anew_after_a_caller_has_driven);
	tcase_add_test(c, test_engine_background_stays_away_while_a_caller_waits);
	tcase_add_test(c, test_engine_background_thread_has_a_name_and_takes_no_signal);
	tcase_add_test(c, test_engine_token_has_one_owner_at_a_time);
	tcase_add_test(c, test_engine_spins_less_when_ranks_outnumber_cores);
	tcase_add_test(c, test_engine_failure_by_another_thread_ends_every_waiter);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
