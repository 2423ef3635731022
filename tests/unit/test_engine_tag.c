/* SPDX-License-Identifier: Apache-2.0 */
/* The tag of a collective. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"

START_TEST(test_tag_text_names_the_call)
{
	struct op_args a = {
		.kind = COLL_ALL_REDUCE, .count = 1024, .type = SIRCL_BFLOAT16, .op = SIRCL_SUM
	};
	char text[128];

	op_tag_text(op_tag(17, &a), text, sizeof(text));
	ck_assert_str_eq(text, "all_reduce of 1024 bfloat16, sum, number 17");
	a.kind = COLL_ALL_GATHER;
	op_tag_text(op_tag(4096 + 3, &a), text, sizeof(text));
	ck_assert_str_eq(text, "all_gather of 1024 bfloat16, number 3");
	a = (struct op_args){ .kind = COLL_BROADCAST, .count = 12, .type = SIRCL_FLOAT32, .root = 3 };
	op_tag_text(op_tag(5, &a), text, sizeof(text));
	ck_assert_str_eq(text, "broadcast of 12 float from rank 3, number 5");
	a.kind = COLL_REDUCE;
	a.op = REDUCE_PREMUL_SUM;
	a.root = 63;
	op_tag_text(op_tag(5, &a), text, sizeof(text));
	ck_assert_str_eq(text, "reduce of 12 float, premul sum, to rank 63, number 5");
	a.kind = COLL_BARRIER;
	op_tag_text(op_tag(6, &a), text, sizeof(text));
	ck_assert_str_eq(text, "barrier, number 6");
	a.meeting = true;
	op_tag_text(op_tag(9, &a), text, sizeof(text));
	ck_assert_str_eq(text, "sircl_comm_finalize (or destroy), number 9");
}
END_TEST

START_TEST(test_tag_differs_in_everything_that_matters)
{
	struct op_args a = { .kind = COLL_ALL_REDUCE, .count = 10, .type = SIRCL_FLOAT32 }, b = a;
	int x, y;

	b.count = 11;
	ck_assert_uint_ne(op_tag(1, &a), op_tag(1, &b));
	b = a;
	b.type = SIRCL_BFLOAT16;
	ck_assert_uint_ne(op_tag(1, &a), op_tag(1, &b));
	b = a;
	b.kind = COLL_ALL_GATHER;
	ck_assert_uint_ne(op_tag(1, &a), op_tag(1, &b));
	b = a;
	b.op = SIRCL_MAX;
	ck_assert_uint_ne(op_tag(1, &a), op_tag(1, &b));
	ck_assert_uint_ne(op_tag(1, &a), op_tag(2, &a));
	b = a;
	b.in = &x; /* where it lies does not */
	b.out = &y;
	ck_assert_uint_eq(op_tag(1, &a), op_tag(1, &b));
	b = a;
	b.root = 1; /* an all-reduce has no root */
	ck_assert_uint_eq(op_tag(1, &a), op_tag(1, &b));
	a.kind = b.kind = COLL_REDUCE;
	ck_assert_uint_ne(op_tag(1, &a), op_tag(1, &b));
	b = a;
	b.op = REDUCE_PREMUL_SUM;
	ck_assert_uint_ne(op_tag(1, &a), op_tag(1, &b));
	b = a;
	a.kind = b.kind = COLL_ALL_GATHER; /* and an all-gather has no operation */
	b.op = SIRCL_MAX;
	ck_assert_uint_eq(op_tag(1, &a), op_tag(1, &b));
	b = a;
	b.meeting = true; /* the same call of a user is not the meeting at the end */
	ck_assert_uint_ne(op_tag(1, &a), op_tag(1, &b));
}
END_TEST

START_TEST(test_tag_of_anything_is_printable)
{
	struct op_args a = { .kind = COLL_ALL_REDUCE, .count = SIZE_MAX, .type = SIRCL_FLOAT32 };
	uint64_t tag = 1;
	char text[160];

	for (int i = 0; i < 10000; i++) {
		tag = tag * 6364136223846793005ull + 1442695040888963407ull;
		op_tag_text(tag, text, sizeof(text));
		ck_assert(strlen(text) > 10);
	}
	op_tag_text(op_tag(1, &a), text, sizeof(text));
	ck_assert(strstr(text, "34359738367 or more float"));
	op_tag_text(tag, text, 5);
	ck_assert_uint_eq(strlen(text), 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine tag");
	TCase *c = tcase_create("tag");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(c, test_tag_text_names_the_call);
	tcase_add_test(c, test_tag_differs_in_everything_that_matters);
	tcase_add_test(c, test_tag_of_anything_is_printable);
	suite_add_tcase(s, c);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
