/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread: it drives when nobody does, costs nothing when nothing happens, and stays away. */
#include <dirent.h>
#include <limits.h>
#include "engine_wait_stub.h"

START_TEST(test_engine_background_drives_when_nobody_does)
{
	uint64_t best = NEVER, begun;
	struct stand s;
	int before;

	for (int i = 0; i < TRIES && best >= 200 * MSEC; i++) {
		setup(&s, true, 1);
		ck_assert(grows(&s.net.arms, 0)); /* it sleeps armed now */
		before = s.net.foreign;
		begun = real_clock(NULL);
		arrive(&s);
		ck_assert(grows(&s.net.foreign, before));
		best = tick_min(best, real_clock(NULL) - begun);
		teardown(&s);
	}
	ck_assert_uint_lt(best, 200 * MSEC);
}
END_TEST

START_TEST(test_engine_background_costs_nothing_when_nothing_happens)
{
	struct stand s;
	int rounds, least = INT_MAX;

	setup(&s, true, 8);
	ck_assert(grows(&s.net.arms, 0));
	for (int i = 0; i < TRIES && least > 2; i++) { /* it may be late to its rest */
		usleep(20000);
		rounds = s.net.rounds;
		usleep(200000);
		rounds = s.net.rounds - rounds;
		least = rounds < least ? rounds : least;
	}
	ck_assert_int_le(least, 2);
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
	int disturbed = INT_MAX, refused = 0;
	struct stand s;

	setup(&s, true, 1);
	ck_assert(grows(&s.net.arms, 0));
	/* what it has begun when this thread was away may be seen for as long as a busy machine keeps it from
	 * going on: then once more */
	for (int try = 0; try < TRIES && disturbed > 1; try++) {
		bool before = false; /* the last moment was steady too */

		disturbed = 0;
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
		uint64_t best = NEVER;

		for (int k = 0; k < TRIES && best >= 500 * MSEC; k++) { /* un-rung it sleeps for a second */
			struct tick t;
			bool busy;
			int arms;

			ck_assert(grows(&s.net.arms, i));
			usleep(5000);
			arms = s.net.arms;
			t = (struct tick){ .now = real_clock(NULL) };
			engine_drive(s.engine, &t, &busy); /* a poll disarms the lanes */
			ck_assert(grows(&s.net.arms, arms));
			best = tick_min(best, real_clock(NULL) - t.now);
			engine_lock(s.engine);
			engine_unlock(s.engine);
		}
		ck_assert_uint_lt(best, 500 * MSEC);
	}
	teardown(&s);
}
END_TEST

START_TEST(test_engine_background_stays_away_while_a_caller_waits)
{
	struct stand s;
	int least = INT_MAX;

	setup(&s, true, 1);
	ck_assert(grows(&s.net.arms, 0));
	for (int k = 0; k < TRIES && least > 2; k++) { /* the caller may be away between two calls */
		int before, foreign;

		for (int i = 0; i < 100; i++) /* news without end */
			atomic_fetch_add(&s.net.events, 1);
		engine_wait_until(s.engine, never, NULL, real_clock(NULL) + 10 * MSEC);
		before = s.net.foreign;
		engine_wait_until(s.engine, never, NULL, real_clock(NULL) + 50 * MSEC);
		foreign = s.net.foreign - before;
		least = foreign < least ? foreign : least;
	}
	ck_assert_int_le(least, 2);
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

/* The thread named "sircl" of this process, 0 if there is none. */
static int background_tid(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *d;
	int tid = 0;

	ck_assert_ptr_nonnull(dir);
	while ((d = readdir(dir))) {
		char path[300], name[64] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && !strcmp(name, "sircl\n"))
			tid = atoi(d->d_name);
		if (f)
			fclose(f);
	}
	closedir(dir);
	return tid;
}

/* The highest CPU that this process may use; on a machine with one CPU the test proves less. */
START_TEST(test_engine_background_runs_where_it_is_told_and_nobody_else_does)
{
	cpu_set_t all, one, got;
	struct stand s;
	int last = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all))
			last = i;
	CPU_ZERO(&one);
	CPU_SET(last, &one);
	setup_on(&s, true, 1, &one, -1);
	CPU_ZERO(&one); /* the engine has its own copy */
	ck_assert(grows(&s.net.arms, 0)); /* it is bound before it drives */
	ck_assert_int_eq(sched_getaffinity(background_tid(), sizeof(got), &got), 0);
	ck_assert_int_eq(CPU_COUNT(&got), 1);
	ck_assert(CPU_ISSET(last, &got));
	ck_assert_int_eq(sched_getaffinity(0, sizeof(got), &got), 0);
	ck_assert(CPU_EQUAL(&got, &all));
	teardown(&s);
}
END_TEST

START_TEST(test_engine_background_that_cannot_be_bound_says_so_and_runs_anywhere)
{
	char text[1024] = "";
	cpu_set_t none;
	struct stand s;
	int fd[2];

	ck_assert_int_eq(pipe(fd), 0);
	CPU_ZERO(&none);
	setup_on(&s, true, 1, &none, fd[1]);
	ck_assert(grows(&s.net.arms, 0));
	ck_assert_int_gt(read(fd[0], text, sizeof(text) - 1), 0);
	ck_assert_ptr_nonnull(strstr(text, "cannot be bound to the CPUs chosen for it"));
	teardown(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine background");
	TCase *c = tcase_create("wait");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_engine_background_drives_when_nobody_does);
	tcase_add_test(c, test_engine_background_costs_nothing_when_nothing_happens);
	tcase_add_test(c, test_engine_background_never_takes_the_token_from_a_fast_caller);
	tcase_add_test(c, test_engine_background_arms_anew_after_a_caller_has_driven);
	tcase_add_test(c, test_engine_background_stays_away_while_a_caller_waits);
	tcase_add_test(c, test_engine_background_thread_has_a_name_and_takes_no_signal);
	tcase_add_test(c, test_engine_background_runs_where_it_is_told_and_nobody_else_does);
	tcase_add_test(c, test_engine_background_that_cannot_be_bound_says_so_and_runs_anywhere);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
