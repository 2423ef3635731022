/* SPDX-License-Identifier: Apache-2.0 */
/* The log: form of a line, levels, subsystems, file names, and that it changes nothing around it. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/param.h"

static int pipefd[2];
static char got[8192];

static struct log to_pipe(enum log_level level, uint32_t subsys)
{
	ck_assert_int_eq(pipe2(pipefd, O_NONBLOCK | O_CLOEXEC), 0);
	return (struct log){ .level = level, .subsys = subsys, .fd = pipefd[1], .rank = 3, .host = "spark2" };
}

static const char *read_pipe(void)
{
	const ssize_t n = read(pipefd[0], got, sizeof(got) - 1);

	got[n > 0 ? n : 0] = '\0';
	close(pipefd[0]);
	close(pipefd[1]);
	return got;
}

/* An environment of three settings. */
struct env {
	const char *debug, *subsys, *file;
};
static const char *get(void *arg, const char *name)
{
	const struct env *e = arg;

	if (strcmp(name, "SIRCL_DEBUG") == 0)
		return e->debug;
	if (strcmp(name, "NCCL_DEBUG_SUBSYS") == 0)
		return e->subsys;
	return strcmp(name, "SIRCL_DEBUG_FILE") == 0 ? e->file : NULL;
}

static struct log from(const char *debug, const char *subsys, const char *file)
{
	struct env e = { debug, subsys, file };
	struct params p;
	struct log l;

	ck_assert_int_eq(params_load_from(&p, get, &e), SIRCL_SUCCESS);
	log_init(&l, &p, 1);
	params_free(&p);
	return l;
}

START_TEST(test_log_line_has_host_pid_tid_rank_and_level)
{
	struct log l = to_pipe(LOG_INFO, LOG_ALL);
	char want[128];

	log_info(&l, LOG_LANE, "lane %d uses %s", 2, "tcp");
	snprintf(want, sizeof(want), "spark2:%d:%d [3] SIRCL INFO lane 2 uses tcp\n", (int)getpid(),
		 (int)gettid());
	ck_assert_str_eq(read_pipe(), want);
	l = to_pipe(LOG_INFO, LOG_ALL);
	l.rank = -1;
	log_warn(&l, "w");
	ck_assert_ptr_nonnull(strstr(read_pipe(), " [-] SIRCL WARN w\n"));
}
END_TEST

START_TEST(test_log_level_and_subsystem_choose_lines)
{
	struct log l = to_pipe(LOG_INFO, LOG_LINK);

	log_trace(&l, LOG_LINK, "no trace");
	log_info(&l, LOG_LANE, "no lane");
	log_info(&l, LOG_LINK, "yes link");
	log_warn(&l, "yes warn");
	log_error(&l, "yes error");
	ck_assert_ptr_null(strstr(read_pipe(), "no "));
	ck_assert_ptr_nonnull(strstr(got, "INFO yes link"));
	ck_assert_ptr_nonnull(strstr(got, "WARN yes warn"));
	ck_assert_ptr_nonnull(strstr(got, "ERROR yes error"));
	l = to_pipe(LOG_NONE, LOG_ALL);
	log_error(&l, "nothing at all");
	ck_assert_str_eq(read_pipe(), "");
}
END_TEST

START_TEST(test_log_entry_is_one_line_of_bounded_length)
{
	struct log l = to_pipe(LOG_INFO, LOG_ALL);
	char big[4000];

	log_warn(&l, "a\nb\033[0m\n\n");
	ck_assert_ptr_nonnull(strstr(read_pipe(), "a?b?[0m\n"));
	ck_assert_ptr_eq(strchr(got, '\n'), got + strlen(got) - 1);
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	l = to_pipe(LOG_INFO, LOG_ALL);
	log_warn(&l, "%s", big);
	ck_assert_uint_eq(strlen(read_pipe()), 1024);
	ck_assert_str_eq(got + 1020, "...\n");
}
END_TEST

START_TEST(test_log_keeps_errno)
{
	struct log l = to_pipe(LOG_INFO, LOG_ALL);

	errno = ENOENT;
	log_warn(&l, "m: %m");
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_ptr_nonnull(strstr(read_pipe(), "m: No such file"));
	l.fd = 999; /* and when the write fails */
	errno = ENOENT;
	log_warn(&l, "x");
	ck_assert_int_eq(errno, ENOENT);
}
END_TEST

START_TEST(test_log_init_reads_levels)
{
	static const struct {
		const char *text;
		enum log_level level;
	} t[] = { { NULL, LOG_WARN },   { "none", LOG_NONE },  { "VERSION", LOG_ERROR }, { "WARN", LOG_WARN },
		  { "info", LOG_INFO }, { "ABORT", LOG_INFO }, { "Trace", LOG_TRACE } };
	struct log l;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		l = from(t[i].text, NULL, NULL);
		ck_assert_int_eq(l.level, t[i].level);
		ck_assert_int_eq(l.fd, 2);
		ck_assert_int_eq(l.rank, 1);
		ck_assert_str_ne(l.host, "");
		log_close(&l);
	}
	log_init(&l, NULL, -1);
	ck_assert_int_eq(l.level, LOG_WARN);
}
END_TEST

START_TEST(test_log_init_reads_subsystems)
{
	ck_assert_uint_eq(from("info", NULL, NULL).subsys, LOG_ALL);
	ck_assert_uint_eq(from("info", "INIT,link", NULL).subsys, LOG_INIT | LOG_LINK);
	ck_assert_uint_eq(from("info", "^LANE", NULL).subsys, LOG_ALL & ~LOG_LANE);
	ck_assert_uint_eq(from("info", "TUNING,NET", NULL).subsys, LOG_NET); /* a name of NCCL's */
	ck_assert_uint_eq(from("info", "ALL", NULL).subsys, LOG_ALL);
}
END_TEST

START_TEST(test_log_file_name_is_expanded_and_appended_to)
{
	const char *lab = getenv("SIRCL_LAB");
	char dir[64], pattern[128], path[256];
	struct log l;
	FILE *f;

	if (lab)
		snprintf(dir, sizeof(dir), "/tmp/sircl-log-%.24s-XXXXXX", lab);
	else
		snprintf(dir, sizeof(dir), "/tmp/sircl-log-%d-XXXXXX", (int)getpid());
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(pattern, sizeof(pattern), "%s/%%h.%%p.%%%%.%%q", dir);
	for (int i = 0; i < 2; i++) {
		l = from("info", NULL, pattern);
		ck_assert_int_gt(l.fd, 2);
		ck_assert_int_eq(fcntl(l.fd, F_GETFL) & O_NONBLOCK, 0);
		log_info(&l, LOG_INIT, "entry %d", i);
		snprintf(path, sizeof(path), "%s/%s.%d.%%.%%q", dir, l.host, (int)getpid());
		log_close(&l);
		log_close(&l);
	}
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s is missing", path);
	ck_assert_ptr_nonnull(fgets(got, sizeof(got), f));
	ck_assert_ptr_nonnull(strstr(got, "INFO entry 0\n"));
	ck_assert_ptr_nonnull(fgets(got, sizeof(got), f));
	ck_assert_ptr_nonnull(strstr(got, "INFO entry 1\n"));
	fclose(f);
	unlink(path);
	rmdir(dir);
}
END_TEST

START_TEST(test_log_file_that_cannot_be_opened_means_stderr)
{
	struct log l = from("none", NULL, "/nonexistent/dir/log");

	ck_assert_int_eq(l.fd, 2);
	log_close(&l);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base_log");
	TCase *c = tcase_create("log");
	SRunner *r;
	int failed;

	tcase_add_test(c, test_log_line_has_host_pid_tid_rank_and_level);
	tcase_add_test(c, test_log_level_and_subsystem_choose_lines);
	tcase_add_test(c, test_log_entry_is_one_line_of_bounded_length);
	tcase_add_test(c, test_log_keeps_errno);
	tcase_add_test(c, test_log_init_reads_levels);
	tcase_add_test(c, test_log_init_reads_subsystems);
	tcase_add_test(c, test_log_file_name_is_expanded_and_appended_to);
	tcase_add_test(c, test_log_file_that_cannot_be_opened_means_stderr);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
