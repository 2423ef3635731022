/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: defaults, origin, empty = unset, and every bad value is refused with a sentence. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/param.h"

/* An environment: "NAME=value" strings, NULL at the end. */
static const char *get(void *arg, const char *name)
{
	const char *const *env = arg;
	const size_t n = strlen(name);

	for (; *env != NULL; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

#define LOAD(p, ...) params_load_from(p, get, (void *)(const char *const[]){ __VA_ARGS__, NULL })

static void refused(const char *setting, const char *must_say)
{
	struct params p;

	error_clear();
	ck_assert_msg(LOAD(&p, setting) == SIRCL_BAD_CONFIG, "%s was accepted", setting);
	ck_assert_int_eq(error_last()->code, SIRCL_BAD_CONFIG);
	ck_assert_msg(strstr(error_last()->msg, setting) != NULL, "no %s in: %s", setting, error_last()->msg);
	ck_assert_msg(strstr(error_last()->msg, must_say) != NULL, "no '%s' in: %s", must_say,
		      error_last()->msg);
	for (int i = 0; i < PARAM_COUNT; i++)
		ck_assert_ptr_null(p.str[i]);
}

START_TEST(test_param_defaults_hold_when_nothing_is_set)
{
	struct params p;

	ck_assert_int_eq(LOAD(&p, NULL), SIRCL_SUCCESS);
	for (int i = 0; i < PARAM_COUNT; i++) {
		const struct param_info *in = param_info((enum param_id)i);

		ck_assert_int_eq(p.origin[i], PARAM_DEFAULT);
		ck_assert_ptr_nonnull(in->help);
		ck_assert_int_eq(strncmp(in->name, "SIRCL_", 6), 0);
		if (in->type == PARAM_TYPE_STR && in->def[0] == '\0')
			ck_assert_ptr_null(p.str[i]);
		if (in->type == PARAM_TYPE_ENUM)
			ck_assert_str_eq(p.str[i], in->def);
	}
	ck_assert_int_eq(param_num(&p, PARAM_WINDOW), 1 << 20);
	ck_assert_int_eq(param_num(&p, PARAM_RANK), -1);
	ck_assert_str_eq(param_str(&p, PARAM_ALGO), "auto");
	ck_assert_int_eq(param_num(&p, PARAM_ALGO), 0);
	params_free(&p);
}
END_TEST

START_TEST(test_param_names_are_unique)
{
	for (int i = 0; i < PARAM_COUNT; i++)
		for (int k = 0; k < i; k++)
			ck_assert_str_ne(param_info((enum param_id)i)->name,
					 param_info((enum param_id)k)->name);
}
END_TEST

START_TEST(test_param_values_come_from_the_environment)
{
	struct params p;
	char buf[64];

	ck_assert_int_eq(LOAD(&p, "SIRCL_LANES=8", "SIRCL_WINDOW=96k", "SIRCL_ALGO=Two-Matchings",
			      "SIRCL_ROOT=host:1", "SIRCL_KEY=geheim", "SIRCL_SPIN=-1"),
			 SIRCL_SUCCESS);
	ck_assert_int_eq(param_num(&p, PARAM_LANES), 8);
	ck_assert_int_eq(p.origin[PARAM_LANES], PARAM_ENV);
	ck_assert_int_eq(param_num(&p, PARAM_WINDOW), 96 * 1024);
	ck_assert_str_eq(param_text(&p, PARAM_WINDOW, buf, sizeof(buf)), "96K");
	ck_assert_str_eq(param_str(&p, PARAM_ALGO), "two-matchings");
	ck_assert_int_eq(param_num(&p, PARAM_ALGO), 1);
	ck_assert_str_eq(param_str(&p, PARAM_ROOT), "host:1");
	ck_assert_str_eq(param_text(&p, PARAM_ROOT, buf, sizeof(buf)), "host:1");
	ck_assert_int_eq(param_num(&p, PARAM_SPIN), -1);
	ck_assert_str_eq(param_str(&p, PARAM_KEY), "geheim");
	params_free(&p);
	ck_assert_ptr_null(p.str[PARAM_KEY]);
}
END_TEST

START_TEST(test_param_secrets_are_not_shown)
{
	struct params p;
	char buf[64];

	ck_assert_int_eq(LOAD(&p, "SIRCL_KEY=geheim", "SIRCL_SECRET=0123"), SIRCL_SUCCESS);
	ck_assert_str_eq(param_text(&p, PARAM_KEY, buf, sizeof(buf)), "(set)");
	ck_assert_str_eq(param_text(&p, PARAM_SECRET, buf, sizeof(buf)), "(set)");
	params_free(&p);
	ck_assert_int_eq(LOAD(&p, NULL), SIRCL_SUCCESS);
	ck_assert_str_eq(param_text(&p, PARAM_KEY, buf, sizeof(buf)), "");
	params_free(&p);
}
END_TEST

START_TEST(test_param_empty_is_unset)
{
	struct params p;

	ck_assert_int_eq(
		LOAD(&p, "SIRCL_LANES=", "SIRCL_ALGO=", "SIRCL_ROOT=", "SIRCL_DEBUG=", "NCCL_DEBUG="),
		SIRCL_SUCCESS);
	ck_assert_int_eq(param_num(&p, PARAM_LANES), 0);
	ck_assert_int_eq(p.origin[PARAM_LANES], PARAM_DEFAULT);
	ck_assert_ptr_null(param_str(&p, PARAM_ROOT));
	ck_assert_int_eq(p.origin[PARAM_DEBUG], PARAM_DEFAULT);
	params_free(&p);
}
END_TEST

START_TEST(test_param_nccl_is_obeyed_only_where_ours_is_unset)
{
	struct params p;

	ck_assert_int_eq(LOAD(&p, "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME==eth0"), SIRCL_SUCCESS);
	ck_assert_str_eq(param_str(&p, PARAM_DEBUG), "info");
	ck_assert_int_eq(p.origin[PARAM_DEBUG], PARAM_NCCL);
	ck_assert_str_eq(param_str(&p, PARAM_SOCKET_IFNAME), "=eth0");
	params_free(&p);
	ck_assert_int_eq(LOAD(&p, "NCCL_DEBUG=INFO", "SIRCL_DEBUG=trace"), SIRCL_SUCCESS);
	ck_assert_str_eq(param_str(&p, PARAM_DEBUG), "trace");
	ck_assert_int_eq(p.origin[PARAM_DEBUG], PARAM_ENV);
	params_free(&p);
	ck_assert_int_eq(LOAD(&p, "NCCL_DEBUG=INFO", "SIRCL_DEBUG="), SIRCL_SUCCESS);
	ck_assert_str_eq(param_str(&p, PARAM_DEBUG), "info");
	params_free(&p);
}
END_TEST

START_TEST(test_param_what_nccl_takes_is_no_error)
{
	struct params p;

	/* NCCL ignores an unknown level and unknown subsystems */
	ck_assert_int_eq(LOAD(&p, "NCCL_DEBUG=loud", "NCCL_DEBUG_SUBSYS=TUNING,INIT"), SIRCL_SUCCESS);
	ck_assert_str_eq(param_str(&p, PARAM_DEBUG), "warn");
	ck_assert_int_eq(p.origin[PARAM_DEBUG], PARAM_DEFAULT);
	ck_assert_str_eq(param_str(&p, PARAM_DEBUG_SUBSYS), "TUNING,INIT");
	params_free(&p);
}
END_TEST

START_TEST(test_param_bad_values_are_refused_and_say_what_is_allowed)
{
	static const char *const bad[][2] = {
		{ "SIRCL_ALGO=banana", "auto two-matchings exchange ring" },
		{ "SIRCL_ALGO=rin", "one of" },
		{ "SIRCL_ALGO=ring ", "one of" },
		{ "SIRCL_ALGO=auto|ring", "one of" },
		{ "SIRCL_ALGO=|", "one of" },
		{ "SIRCL_DEBUG=loud", "warn" },
		{ "SIRCL_DEBUG_SUBSYS=TUNING", "INIT" },
		{ "SIRCL_DEBUG_SUBSYS=INIT,,LINK", "INIT" },
		{ "SIRCL_LANES=9", "from 0 to 8" },
		{ "SIRCL_LANES=-1", "from 0 to 8" },
		{ "SIRCL_LANES=four", "from 0 to 8" },
		{ "SIRCL_LANES=4x", "from 0 to 8" },
		{ "SIRCL_LANES= 4", "from 0 to 8" },
		{ "SIRCL_LANES=4 ", "from 0 to 8" },
		{ "SIRCL_LANES=+4", "from 0 to 8" },
		{ "SIRCL_LANES=-", "from 0 to 8" },
		{ "SIRCL_LANES=0x4", "from 0 to 8" },
		{ "SIRCL_LANES=4K", "from 0 to 8" },
		{ "SIRCL_LANES=18446744073709551620", "from 0 to 8" },
		{ "SIRCL_WINDOW=1", "from 64K to 256M" },
		{ "SIRCL_WINDOW=1G", "from 64K to 256M" },
		{ "SIRCL_WINDOW=1MB", "K, M, G" },
		{ "SIRCL_WINDOW=M", "K, M, G" },
		{ "SIRCL_WINDOW=9007199254740993G", "from 64K to 256M" },
		{ "SIRCL_WINDOW=18014398509482084K", "from 64K to 256M" }, /* 100K, if it wrapped */
		{ "SIRCL_DETERMINISTIC=2", "0 1" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(bad[i][0], bad[i][1]);
}
END_TEST

START_TEST(test_param_a_foreign_value_in_a_sentence_is_cut_and_printable)
{
	struct params p;
	char big[4096] = "SIRCL_LANES=\033[2J";

	memset(big + strlen(big), 'x', sizeof(big) - 100);
	ck_assert_int_eq(LOAD(&p, big), SIRCL_BAD_CONFIG);
	ck_assert_ptr_null(strchr(error_last()->msg, '\033'));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "..."));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "from 0 to 8"));
}
END_TEST

START_TEST(test_param_load_reads_the_real_environment)
{
	struct params p;

	ck_assert_int_eq(setenv("SIRCL_LANES", "3", 1), 0);
	ck_assert_int_eq(params_load(&p), SIRCL_SUCCESS);
	ck_assert_int_eq(param_num(&p, PARAM_LANES), 3);
	params_free(&p);
	params_free(&p); /* twice does no harm */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base_param");
	TCase *c = tcase_create("param");
	SRunner *r;
	int failed;

	tcase_add_test(c, test_param_defaults_hold_when_nothing_is_set);
	tcase_add_test(c, test_param_names_are_unique);
	tcase_add_test(c, test_param_values_come_from_the_environment);
	tcase_add_test(c, test_param_secrets_are_not_shown);
	tcase_add_test(c, test_param_empty_is_unset);
	tcase_add_test(c, test_param_nccl_is_obeyed_only_where_ours_is_unset);
	tcase_add_test(c, test_param_what_nccl_takes_is_no_error);
	tcase_add_test(c, test_param_bad_values_are_refused_and_say_what_is_allowed);
	tcase_add_test(c, test_param_a_foreign_value_in_a_sentence_is_cut_and_printable);
	tcase_add_test(c, test_param_load_reads_the_real_environment);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
