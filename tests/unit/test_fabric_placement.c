/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the background thread goes, on the cores of a DGX Spark as built from recorded facts (sysfs_tree.h),
 * read by our own fallback and by hwloc, which must agree; on this machine as well, without assumptions.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include "fabric/inventory_sysfs.h"
#include "fabric/placement_internal.h"
#include "sysfs_tree.h"

static struct tree tree;
static struct sircl_ctx ctx;
static int pipefd[2];
static cpu_set_t set, all20;
static bool bind;
static char logged[4096], list[512];

static const char *getter(void *arg, const char *name)
{
	return strcmp(name, "SIRCL_PROGRESS_CPU") == 0 ? arg : NULL;
}

static void begin(const char *progress_cpu)
{
	const char *bad;

	memset(&ctx, 0, sizeof(ctx));
	ck_assert_int_eq(params_load_from(&ctx.params, getter, (void *)(uintptr_t)progress_cpu),
			 SIRCL_SUCCESS);
	ck_assert_int_eq(pipe2(pipefd, O_NONBLOCK | O_CLOEXEC), 0);
	ctx.log = (struct log){ .level = LOG_INFO, .subsys = LOG_ENGINE, .fd = pipefd[1], .rank = 0 };
	ck_assert(cpulist_parse("0-19", &all20, &bad));
}

/* The end of a choice: the lines that it has logged. */
static int end(void)
{
	ssize_t n = read(pipefd[0], logged, sizeof(logged) - 1);
	int lines = 0;

	logged[n > 0 ? n : 0] = '\0';
	for (const char *s = logged; (s = strchr(s, '\n')); s++)
		lines++;
	close(pipefd[0]);
	close(pipefd[1]);
	params_free(&ctx.params);
	return lines;
}

/* The CPUs chosen among `allowed`, "-" for none, with one INFO line in each case. */
static const char *choice(const char *sysfs, const char *pci, int r, int n, const char *allowed)
{
	const char *bad;
	cpu_set_t may;

	begin(NULL);
	ck_assert(cpulist_parse(allowed, &may, &bad));
	ck_assert_int_eq(placement_among(&ctx, sysfs, pci, r, n, &may, &set, &bind), SIRCL_SUCCESS);
	ck_assert_int_eq(end(), 1);
	return bind ? cpulist_text(&set, list, sizeof(list)) : "-";
}

static const char *built(const char *pci, int r, int n, const char *allowed)
{
	return choice(tree.sys, pci, r, n, allowed);
}

static void spark(bool capacity, bool frequency)
{
	spark_build(&tree, &(struct spark){ .cage = { true, true } });
	spark_cpus(&tree, capacity, frequency);
}

START_TEST(test_placement_spark_has_ten_fast_cores_among_five_speeds)
{
	for (int how = 1; how < 4; how++) {
		spark(how & 1, how & 2);
		ck_assert_str_eq(built("0000:01:00.0", 0, 1, "0-19"), "5-9,15-19");
		ck_assert_ptr_nonnull(strstr(logged, "5-9,15-19 (5 speeds)"));
		ck_assert_ptr_nonnull(strstr(logged, "near the card at 0000:01:00.0"));
		ck_assert_str_eq(built(NULL, 0, 1, "0-19"), "5-9,15-19");
		ck_assert_ptr_null(strstr(logged, "card"));
		tree_free(&tree);
	}
}
END_TEST

START_TEST(test_placement_stays_within_what_the_process_may_use)
{
	spark(true, true);
	ck_assert_str_eq(built(NULL, 0, 1, "0-6"), "5-6");
	ck_assert_str_eq(built(NULL, 0, 1, "10-19"), "15-19");
	ck_assert_str_eq(built(NULL, 0, 1, "3,19"), "19");
	ck_assert_str_eq(built(NULL, 0, 1, "5-9,15-19"), "-"); /* alike */
	ck_assert_str_eq(built(NULL, 0, 1, "0-4,10-14"), "-"); /* slow ones alone are alike too */
	ck_assert_str_eq(built(NULL, 0, 1, "7"), "-");
	ck_assert_str_eq(built(NULL, 0, 1, "0-25"), "-"); /* of six nothing is known */
	tree_free(&tree);
}
END_TEST

START_TEST(test_placement_processes_share_the_fast_cores)
{
	static const char *const of4[] = { "5-6", "7-9", "15-16", "17-19" };
	cpu_set_t seen;
	int most = 0, least = 99;

	spark(true, true);
	for (int r = 0; r < 4; r++)
		ck_assert_str_eq(built(NULL, r, 4, "0-19"), of4[r]);
	for (int n = 1; n <= 10; n++) {
		CPU_ZERO(&seen);
		for (int r = 0; r < n; r++) {
			cpu_set_t both;

			built(NULL, r, n, "0-19");
			CPU_AND(&both, &seen, &set);
			ck_assert_int_eq(CPU_COUNT(&both), 0);
			CPU_OR(&seen, &seen, &set);
			most = n == 10 && CPU_COUNT(&set) > most ? CPU_COUNT(&set) : most;
			least = CPU_COUNT(&set) < least ? CPU_COUNT(&set) : least;
		}
		ck_assert_str_eq(cpulist_text(&seen, list, sizeof(list)), "5-9,15-19");
	}
	ck_assert_int_eq(most, 1);
	ck_assert_int_eq(least, 1);
	for (int r = 0; r < 11; r++)
		ck_assert_str_eq(built(NULL, r, 11, "0-19"), "5-9,15-19");
	ck_assert_str_eq(built(NULL, -1, 4, "0-19"), "5-9,15-19"); /* it does not know which one it is */
	ck_assert_str_eq(built(NULL, 0, 0, "0-19"), "5-9,15-19");
	tree_free(&tree);
}
END_TEST

START_TEST(test_placement_prefers_the_card_s_locality)
{
	spark(true, true);
	tree_file(&tree, "0-9", "bus/pci/devices/0000:01:00.0/local_cpulist");
	tree_file(&tree, "0-4", "bus/pci/devices/0000:01:00.1/local_cpulist");
	tree_unreadable(&tree, "bus/pci/devices/0002:01:00.0/local_cpulist");
	tree_file(&tree, "1", "bus/pci/devices/0002:01:00.0/numa_node");
	tree_file(&tree, "10-19", "devices/system/node/node1/cpulist");
	tree_unreadable(&tree, "bus/pci/devices/0002:01:00.1/local_cpulist");
	tree_file(&tree, "-1", "bus/pci/devices/0002:01:00.1/numa_node");
	ck_assert_str_eq(built("0000:01:00.0", 0, 1, "0-19"), "5-9");
	ck_assert_str_eq(built("0000:01:00.1", 0, 1, "0-19"), "5-9,15-19"); /* fast before near */
	ck_assert_ptr_nonnull(strstr(logged, "none of them near the card at 0000:01:00.1"));
	ck_assert_str_eq(built("0002:01:00.0", 0, 1, "0-19"), "15-19");
	ck_assert_str_eq(built("0002:01:00.1", 0, 1, "0-19"), "5-9,15-19");
	ck_assert_str_eq(built("0009:01:00.0", 0, 1, "0-19"), "5-9,15-19");
	ck_assert_str_eq(built("rxe0/../../..", 0, 1, "0-19"), "5-9,15-19");
	/* alike, but not all near: the near ones */
	ck_assert_str_eq(built("0000:01:00.0", 0, 1, "5-9,15-19"), "5-9");
	ck_assert_str_eq(built("0000:01:00.0", 1, 2, "5-9,15-19"), "7-9");
	ck_assert_str_eq(built("0000:01:00.0", 0, 1, "15-19"), "-");
	tree_free(&tree);
}
END_TEST

START_TEST(test_placement_without_knowledge_leaves_the_thread_alone)
{
	spark(false, false);
	ck_assert_str_eq(built("0000:01:00.0", 0, 1, "0-19"), "-");
	ck_assert_ptr_nonnull(strstr(logged, "left alone"));
	tree_rmdir(&tree, "devices/system");
	ck_assert_str_eq(built("0000:01:00.0", 0, 1, "0-19"), "-");
	ck_assert_str_eq(choice("/no such folder", NULL, 0, 1, "0-19"), "-");
	tree_free(&tree);
}
END_TEST

START_TEST(test_placement_hostile_values_are_no_knowledge)
{
	static const char *const speed[] = {
		"0", "-1", "fast", "99999999999999999999", "4294967296", "1024 x"
	};
	static const char *const near[] = { "0-99999", "5-", "-", ",", "9-5", "x", "0-9,", "0-9 ", "0,,9" };

	spark(true, false);
	for (size_t i = 0; i < sizeof(speed) / sizeof(speed[0]); i++) {
		tree_file(&tree, speed[i], "devices/system/cpu/cpu7/cpu_capacity");
		ck_assert_str_eq(built(NULL, 0, 1, "0-19"), "-");
	}
	tree_file(&tree, "4294967295", "devices/system/cpu/cpu7/cpu_capacity");
	ck_assert_str_eq(built(NULL, 0, 1, "0-19"), "7");
	tree_file(&tree, "1024", "devices/system/cpu/cpu7/cpu_capacity");
	for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
		tree_file(&tree, near[i], "bus/pci/devices/0000:01:00.0/local_cpulist");
		/* a trailing blank is trimmed like the end of the line */
		ck_assert_str_eq(built("0000:01:00.0", 0, 1, "0-19"),
				 strcmp(near[i], "0-9 ") ? "5-9,15-19" : "5-9");
	}
	tree_free(&tree);
}
END_TEST

/* ---- SIRCL_PROGRESS_CPU ---- */

static sircl_result_t told(const char *value, const char *allowed)
{
	sircl_result_t ret;
	const char *bad;
	cpu_set_t may;

	begin(value);
	ck_assert(cpulist_parse(allowed, &may, &bad));
	error_clear();
	ret = placement_among(&ctx, tree.sys, NULL, 1, 4, &may, &set, &bind);
	ck_assert_int_eq(end(), ret == SIRCL_SUCCESS);
	return ret;
}

START_TEST(test_placement_parameter_is_obeyed)
{
	spark(true, true);
	ck_assert_int_eq(told("none", "0-19"), SIRCL_SUCCESS);
	ck_assert(!bind);
	ck_assert_int_eq(told("7", "0-19"), SIRCL_SUCCESS);
	ck_assert(bind);
	ck_assert_str_eq(cpulist_text(&set, list, sizeof(list)), "7");
	ck_assert_int_eq(told("0-2,10,11,1", "0-19"),
			 SIRCL_SUCCESS); /* slow ones, if so wished, and not shared */
	ck_assert(bind);
	ck_assert_str_eq(cpulist_text(&set, list, sizeof(list)), "0-2,10-11");
	ck_assert_ptr_nonnull(strstr(logged, "CPUs 0-2,10-11 (SIRCL_PROGRESS_CPU)"));
	ck_assert_int_eq(told("0-19", "0-19"), SIRCL_SUCCESS);
	ck_assert(bind);
	ck_assert_int_eq(told("", "0-19"), SIRCL_SUCCESS); /* unset */
	ck_assert_str_eq(cpulist_text(&set, list, sizeof(list)), "7-9");
	tree_free(&tree);
}
END_TEST

START_TEST(test_placement_parameter_that_is_no_list_is_one_sentence)
{
	static const struct {
		const char *value, *where;
	} bad[] = {
		{ "x", "at \"x\"" },         { "None", "at \"None\"" },
		{ "1-", "at \"1-\"" },       { "1,,2", "at \",2\"" },
		{ "1,", "at \"\"" },         { "9-5", "at \"9-5\"" },
		{ "1 2", "at \"1 2\"" },     { "-1", "at \"-1\"" },
		{ "1024", "at \"1024\"" },   { "0-1024", "at \"0-1024\"" },
		{ "1,3-4x", "at \"3-4x\"" }, { "99999999999999999999", "at \"9999" },
	};

	spark(true, true);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *msg = error_last()->msg;

		ck_assert_msg(told(bad[i].value, "0-19") == SIRCL_BAD_CONFIG, "%s", bad[i].value);
		ck_assert(!bind);
		ck_assert_msg(strstr(msg, "SIRCL_PROGRESS_CPU=") && strstr(msg, bad[i].value), "%s", msg);
		ck_assert_msg(strstr(msg, bad[i].where) != NULL, "%s", msg);
		ck_assert_msg(strstr(msg, "may use 0-19") != NULL, "%s", msg);
		ck_assert_msg(strstr(msg, "allowed: none, or CPUs") != NULL, "%s", msg);
	}
	tree_free(&tree);
}
END_TEST

START_TEST(test_placement_parameter_beyond_the_process_s_cpus_is_one_sentence)
{
	const char *msg = error_last()->msg;

	spark(true, true);
	ck_assert_int_eq(told("4-9", "0-6"), SIRCL_BAD_CONFIG);
	ck_assert(!bind);
	ck_assert_msg(
		strstr(msg,
		       "SIRCL_PROGRESS_CPU=4-9 names CPUs that this process may not use (7-9); it may use "
		       "0-6") != NULL,
		"%s", msg);
	tree_free(&tree);
}
END_TEST

/* ---- this machine ---- */

START_TEST(test_placement_of_this_machine_is_within_its_cpus)
{
	cpu_set_t may, both;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(may), &may), 0);
	begin(NULL);
	ck_assert_int_eq(placement_choose(&ctx, "/sys", NULL, 0, 1, &set, &bind), SIRCL_SUCCESS);
	ck_assert_int_eq(end(), 1);
	if (bind) {
		CPU_AND(&both, &set, &may);
		ck_assert_int_gt(CPU_COUNT(&set), 0);
		ck_assert(CPU_EQUAL(&both, &set));
	}
	begin("1023");
	ck_assert_int_eq(placement_choose(&ctx, "/sys", NULL, 0, 1, &set, &bind),
			 CPU_ISSET(1023, &may) ? SIRCL_SUCCESS : SIRCL_BAD_CONFIG);
	end();
	/* looking has moved nobody */
	ck_assert_int_eq(sched_getaffinity(0, sizeof(both), &both), 0);
	ck_assert(CPU_EQUAL(&both, &may));
}
END_TEST

/* ---- hwloc ---- */

#ifdef HAVE_HWLOC
/* hwloc reads the tree as if it were this machine: both variables are its own, for such tests. */
static const char *by_hwloc(const char *pci, int r, int n, const char *allowed)
{
	const char *got;

	setenv("HWLOC_FSROOT", tree.root, 1);
	setenv("HWLOC_THISSYSTEM", "1", 1);
	got = choice("/sys", pci, r, n, allowed);
	unsetenv("HWLOC_FSROOT");
	unsetenv("HWLOC_THISSYSTEM");
	ck_assert_msg(strstr(logged, "(hwloc)") != NULL, "%s", logged);
	return got;
}

START_TEST(test_placement_by_hwloc_is_that_by_sysfs)
{
	for (int how = 1; how < 4; how++) {
		spark(how & 1, how & 2);
		ck_assert_str_eq(by_hwloc("0000:01:00.0", 0, 1, "0-19"), "5-9,15-19");
		ck_assert_ptr_nonnull(strstr(logged, "near the card at 0000:01:00.0"));
		ck_assert_str_eq(by_hwloc("0000:01:00.0", 3, 4, "0-19"), "17-19");
		ck_assert_str_eq(by_hwloc(NULL, 0, 1, "0-6"), "5-6");
		ck_assert_str_eq(by_hwloc(NULL, 0, 1, "5-9,15-19"), "-");
		tree_file(&tree, "003e0", "bus/pci/devices/0002:01:00.1/local_cpus");
		ck_assert_str_eq(by_hwloc("0002:01:00.1", 0, 1, "0-19"), "5-9");
		ck_assert_str_eq(by_hwloc("0002:01:00.0", 0, 1, "0-19"), "5-9,15-19");
		ck_assert_str_eq(by_hwloc("0009:01:00.0", 0, 1, "0-19"), "5-9,15-19");
		ck_assert_ptr_null(strstr(logged, "the card"));
		tree_free(&tree);
	}
	spark(false, false);
	ck_assert_str_eq(by_hwloc("0000:01:00.0", 0, 1, "0-19"), "-");
	tree_free(&tree);
}
END_TEST

START_TEST(test_placement_hwloc_about_another_machine_is_not_believed)
{
	spark(true, true);
	setenv("HWLOC_FSROOT", tree.root, 1);
	choice("/sys", NULL, 0, 1, "0-19");
	ck_assert_msg(strstr(logged, "another machine") != NULL, "%s", logged);
	ck_assert_ptr_null(strstr(logged, "(hwloc)"));
	unsetenv("HWLOC_FSROOT");
	tree_free(&tree);
}
END_TEST

static void *asker(void *arg)
{
	struct cores *c = arg;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(cores_from_hwloc("0000:01:00.0", c), SIRCL_SUCCESS);
	return NULL;
}

START_TEST(test_placement_hwloc_may_be_asked_by_several_threads)
{
	static struct cores c[4];
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, asker, &c[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (int i = 1; i < 4; i++)
		ck_assert_mem_eq(&c[i], &c[0], sizeof(c[0]));
}
END_TEST

/* A process whose loader finds a file that is no library: absent, and cannot be opened, are alike. */
START_TEST(test_placement_without_hwloc_is_by_sysfs_and_says_so)
{
	char dir[PATH_MAX], self[PATH_MAX];
	int status;
	pid_t pid;

	tree_new(&tree);
	tree_file(&tree, "no library", "lib/libhwloc.so.15");
	snprintf(dir, sizeof(dir), "%s/lib", tree.sys);
	self[readlink("/proc/self/exe", self, sizeof(self) - 1)] = '\0';
	pid = fork();
	if (pid == 0) {
		setenv("LD_LIBRARY_PATH", dir, 1);
		execl(self, self, "without-hwloc", (char *)NULL);
		_exit(9);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
	tree_free(&tree);
}
END_TEST

/* In that process, where Check is not. */
static int without_hwloc(void)
{
	sircl_result_t ret;
	ssize_t n;

	if (params_load_from(&ctx.params, getter, NULL) != SIRCL_SUCCESS || pipe2(pipefd, O_NONBLOCK) != 0)
		return 2;
	ctx.log = (struct log){ .level = LOG_INFO, .subsys = LOG_ENGINE, .fd = pipefd[1], .rank = 0 };
	ret = placement_choose(&ctx, "/sys", NULL, 0, 1, &set, &bind);
	params_free(&ctx.params);
	n = read(pipefd[0], logged, sizeof(logged) - 1);
	logged[n > 0 ? n : 0] = '\0';
	if (ret == SIRCL_SUCCESS && strstr(logged, "sysfs, since libhwloc.so.15 cannot be opened") &&
	    strstr(logged, "apt-get install libhwloc15") && strchr(logged, '\n') == strrchr(logged, '\n') &&
	    error_last()->code == SIRCL_SUCCESS)
		return 0;
	fprintf(stderr, "%d: %s\n", ret, logged);
	return 1;
}
#endif

int main(int argc, char **argv)
{
	Suite *s;
	TCase *c;
	SRunner *sr;
	int failed;

#ifdef HAVE_HWLOC
	if (argc > 1 && !strcmp(argv[1], "without-hwloc"))
		return without_hwloc();
#else
	(void)argc;
	(void)argv;
#endif
	s = suite_create("fabric placement");
	c = tcase_create("placement");
	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_placement_spark_has_ten_fast_cores_among_five_speeds);
	tcase_add_test(c, test_placement_stays_within_what_the_process_may_use);
	tcase_add_test(c, test_placement_processes_share_the_fast_cores);
	tcase_add_test(c, test_placement_prefers_the_card_s_locality);
	tcase_add_test(c, test_placement_without_knowledge_leaves_the_thread_alone);
	tcase_add_test(c, test_placement_hostile_values_are_no_knowledge);
	tcase_add_test(c, test_placement_parameter_is_obeyed);
	tcase_add_test(c, test_placement_parameter_that_is_no_list_is_one_sentence);
	tcase_add_test(c, test_placement_parameter_beyond_the_process_s_cpus_is_one_sentence);
	tcase_add_test(c, test_placement_of_this_machine_is_within_its_cpus);
#ifdef HAVE_HWLOC
	tcase_add_test(c, test_placement_by_hwloc_is_that_by_sysfs);
	tcase_add_test(c, test_placement_hwloc_about_another_machine_is_not_believed);
	tcase_add_test(c, test_placement_hwloc_may_be_asked_by_several_threads);
	if (!getenv("SIRCL_TEST_EMULATED")) /* the emulator does not start other programs */
		tcase_add_test(c, test_placement_without_hwloc_is_by_sysfs_and_says_so);
#endif
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
