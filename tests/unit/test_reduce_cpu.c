/* SPDX-License-Identifier: Apache-2.0 */
/* SIRCL_CPU: which instruction set reductions use, and the refusal of one that the processor lacks. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/param.h"
#include "reduce/internal.h"

static enum reduce_set lacking(void)
{
	for (int s = REDUCE_GENERIC; s < REDUCE_SETS; s++)
		if (!reduce_set_usable((enum reduce_set)s))
			return (enum reduce_set)s;
	return REDUCE_AUTO;
}

START_TEST(test_cpu_choices_are_the_sets)
{
	char list[64] = "";

	for (int s = REDUCE_AUTO; s < REDUCE_SETS; s++) {
		strcat(list, s ? "|" : "");
		strcat(list, reduce_set_name((enum reduce_set)s));
	}
	ck_assert_str_eq(param_info(PARAM_CPU)->choices, list);
	ck_assert_str_eq(reduce_set_name((enum reduce_set)9), "?");
}
END_TEST

START_TEST(test_cpu_use_takes_what_is_there_and_auto_the_best)
{
	ck_assert(reduce_set_usable(REDUCE_GENERIC));
	for (int s = REDUCE_GENERIC; s < REDUCE_SETS; s++) {
		if (!reduce_set_usable((enum reduce_set)s))
			continue;
		ck_assert_int_eq(reduce_use((enum reduce_set)s), SIRCL_SUCCESS);
		ck_assert_str_eq(reduce_used(), reduce_set_name((enum reduce_set)s));
		ck_assert_int_eq(reduce_set_wanted(), s);
	}
	ck_assert_int_eq(reduce_use(REDUCE_AUTO), SIRCL_SUCCESS);
#if defined(__aarch64__)
	ck_assert_str_eq(reduce_used(), "neon");
#elif defined(__x86_64__)
	ck_assert_str_eq(reduce_used(), reduce_set_usable(REDUCE_AVX512) ? "avx512"
					: reduce_set_usable(REDUCE_AVX2) ? "avx2"
									 : "generic");
#endif
}
END_TEST

START_TEST(test_cpu_without_the_instructions_is_a_sentence)
{
	const enum reduce_set s = lacking();

	ck_assert_int_ne(s, REDUCE_AUTO); /* no processor has both AVX2 and NEON */
	ck_assert_int_eq(reduce_use(REDUCE_GENERIC), SIRCL_SUCCESS);
	ck_assert_int_eq(reduce_use(s), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "SIRCL_CPU="));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, reduce_set_name(s)));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "it has generic"));
	ck_assert_str_eq(reduce_used(), "generic"); /* unchanged */
}
END_TEST

START_TEST(test_cpu_is_read_when_a_communicator_is_created)
{
	sircl_comm_t comm;
	float a = 1.5f, out = 0;

	setenv("SIRCL_CPU", "generic", 1);
	ck_assert_int_eq(sircl_comm_create(&comm, NULL, 0, 1, NULL), SIRCL_SUCCESS);
	ck_assert_str_eq(reduce_used(), "generic");
	ck_assert_int_eq(sircl_all_reduce(&a, &out, 1, SIRCL_FLOAT32, SIRCL_SUM, comm, SIRCL_HOST),
			 SIRCL_SUCCESS);
	ck_assert(out == a);
	ck_assert_int_eq(sircl_comm_destroy(comm), SIRCL_SUCCESS);

	setenv("SIRCL_CPU", reduce_set_name(lacking()), 1);
	ck_assert_int_eq(sircl_comm_create(&comm, NULL, 0, 1, NULL), SIRCL_BAD_CONFIG);
	ck_assert_ptr_null(comm);
	ck_assert_ptr_nonnull(strstr(sircl_last_error(NULL), "SIRCL_CPU="));

	setenv("SIRCL_CPU", "sse", 1);
	ck_assert_int_eq(sircl_comm_create(&comm, NULL, 0, 1, NULL), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(sircl_last_error(NULL), "auto generic avx2 avx512 neon"));
	unsetenv("SIRCL_CPU");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reduce_cpu");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_add_test(t, test_cpu_choices_are_the_sets);
	tcase_add_test(t, test_cpu_use_takes_what_is_there_and_auto_the_best);
	tcase_add_test(t, test_cpu_without_the_instructions_is_a_sentence);
	tcase_add_test(t, test_cpu_is_read_when_a_communicator_is_created);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
