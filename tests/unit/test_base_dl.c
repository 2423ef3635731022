/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries opened at run time: once, by many threads at a time, and with one sentence when absent. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/dl.h"
#include "base/internal.h"

START_TEST(test_dl_absent_library_gives_one_sentence_with_the_package)
{
	static const char *const symbols[] = { "f", NULL };
	void **table = (void **)1;

	ck_assert_int_eq(dl_load("libsircl-absent.so.23", "libabsent23", symbols, &table),
			 SIRCL_SYSTEM_ERROR);
	ck_assert_ptr_null(table);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "libsircl-absent.so.23"));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "apt-get install libabsent23"));
	ck_assert_ptr_null(strchr(error_last()->msg, '\n'));
}
END_TEST

START_TEST(test_dl_library_without_a_symbol_is_refused_by_name)
{
	static const char *const symbols[] = { "sodium_init", "sodium_there_is_no_such", NULL };
	void **table;

	ck_assert_int_eq(dl_load("libsodium.so.23", "libsodium23", symbols, &table), SIRCL_SYSTEM_ERROR);
	ck_assert_ptr_null(table);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "sodium_there_is_no_such"));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "libsodium23"));
}
END_TEST

static void *opener(void *arg)
{
	static atomic_int order;
	pthread_barrier_t *b = arg;
	void *const *table;

	pthread_barrier_wait(b);
	/* the last ones come when the table is there, and nothing but dl_open has told them of it */
	usleep(atomic_fetch_add_explicit(&order, 1, memory_order_relaxed) / 2 * 3000);
	ck_assert_int_eq(dl_open(DL_SODIUM, &table), SIRCL_SUCCESS);
	for (int i = 0; i < 8; i++)
		ck_assert_ptr_nonnull(table[i]);
	return (void *)(uintptr_t)table;
}

START_TEST(test_dl_open_gives_all_threads_one_complete_table)
{
	enum { N = 4 };
	pthread_t t[N];
	pthread_barrier_t b;
	void *const *table = NULL;
	void *got;

	pthread_barrier_init(&b, NULL, N);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, opener, &b), 0);
	for (int i = 0; i < N; i++) {
		pthread_join(t[i], &got);
		if (i == 0)
			table = got;
		ck_assert_ptr_eq(got, (void *)(uintptr_t)table);
	}
	pthread_barrier_destroy(&b);
	for (int i = 0; i < 8; i++)
		ck_assert_ptr_nonnull(table[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base_dl");
	TCase *c = tcase_create("dl");
	SRunner *r;
	int failed;

	tcase_add_test(c, test_dl_absent_library_gives_one_sentence_with_the_package);
	tcase_add_test(c, test_dl_library_without_a_symbol_is_refused_by_name);
	/* each in a fresh process, so that each time somebody is the first */
	tcase_add_loop_test(c, test_dl_open_gives_all_threads_one_complete_table, 0, 50);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
