/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of algorithm and slice, and the plan cache. */
#include <check.h>
#include <string.h>
#include "coll/coll.h"

static enum coll_algo choose(enum coll_kind kind, size_t bytes, int n, enum coll_class class,
			     enum coll_shape shape)
{
	enum coll_algo a = ALGO_AUTO;

	ck_assert_int_eq(
		coll_choose(kind, SIRCL_BFLOAT16, SIRCL_SUM, bytes, n, class, shape, ALGO_AUTO, false, &a),
		SIRCL_SUCCESS);
	return a;
}

START_TEST(test_choose_gives_what_exists_and_never_goes_back)
{
	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (int class = 0; class < CLASS_COUNT; class ++)
			for (int shape = SHAPE_RING; shape <= SHAPE_LINE; shape++)
				for (int n = 1; n <= COLL_MAX_RANKS; n++) {
					enum coll_algo last = ALGO_AUTO;
					int changes = 0;

					if (!coll_can((enum coll_kind)kind, ALGO_EXCHANGE, n,
						      (enum coll_shape)shape))
						continue; /* a kind without plans yet */
					for (size_t bytes = 0; bytes < (size_t)1 << 62;
					     bytes = bytes * 2 + 8) {
						enum coll_algo a = choose((enum coll_kind)kind, bytes, n,
									  (enum coll_class) class,
									  (enum coll_shape)shape);

						ck_assert(coll_can((enum coll_kind)kind, a, n,
								   (enum coll_shape)shape));
						changes += last != ALGO_AUTO && a != last;
						last = a;
					}
					ck_assert_int_le(changes, 2);
				}
}
END_TEST

START_TEST(test_choose_takes_two_matchings_for_small_and_ring_for_large)
{
	for (int class = 0; class < CLASS_COUNT; class ++) {
		enum coll_class c = (enum coll_class) class;

		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 1024, 4, c, SHAPE_RING),
				 c == CLASS_SHM || c == CLASS_TCP ? ALGO_DOUBLING : ALGO_TWO_MATCHINGS);
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 64 << 10, 4, c, SHAPE_RING),
				 c == CLASS_SHM ? ALGO_DOUBLING : ALGO_TWO_MATCHINGS);
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 64 << 20, 4, c, SHAPE_RING), ALGO_RING);
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 1024, 3, c, SHAPE_RING), ALGO_EXCHANGE);
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 64 << 20, 3, c, SHAPE_RING), ALGO_RING);
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 64 << 20, 4, c, SHAPE_LINE), ALGO_EXCHANGE);
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 64 << 20, 2, c, SHAPE_LINE), ALGO_TWO_MATCHINGS);
		ck_assert_int_eq(choose(COLL_ALL_GATHER, 1024, 4, c, SHAPE_RING), ALGO_EXCHANGE);
	}
	/* on a Spark ring they cross where half a transfer costs four hops more */
	ck_assert_int_eq(choose(COLL_ALL_REDUCE, 256 << 10, 4, CLASS_VERBS, SHAPE_RING), ALGO_TWO_MATCHINGS);
	ck_assert_int_eq(choose(COLL_ALL_REDUCE, 1 << 20, 4, CLASS_VERBS, SHAPE_RING), ALGO_RING);
	ck_assert_int_eq(choose(COLL_ALL_GATHER, 64 << 20, 4, CLASS_VERBS, SHAPE_RING), ALGO_RING);
}
END_TEST

START_TEST(test_choose_deterministic_means_rank_order)
{
	enum coll_algo a;

	for (int n = 1; n <= 8; n++)
		for (size_t bytes = 1; bytes < 1u << 30; bytes *= 8) {
			ck_assert_int_eq(coll_choose(COLL_ALL_REDUCE, SIRCL_FLOAT32, SIRCL_SUM, bytes, n,
						     CLASS_SHM, SHAPE_RING, ALGO_AUTO, true, &a),
					 SIRCL_SUCCESS);
			ck_assert_int_eq(a, ALGO_EXCHANGE);
		}
}
END_TEST

START_TEST(test_choose_obeys_force_or_says_what_is_possible)
{
	enum coll_algo a = ALGO_AUTO;

	ck_assert_int_eq(coll_choose(COLL_ALL_REDUCE, SIRCL_FLOAT32, SIRCL_SUM, 8, 4, CLASS_SHM, SHAPE_RING,
				     ALGO_RING, false, &a),
			 SIRCL_SUCCESS);
	ck_assert_int_eq(a, ALGO_RING);
	ck_assert_int_eq(coll_choose(COLL_ALL_REDUCE, SIRCL_FLOAT32, SIRCL_SUM, 8, 5, CLASS_SHM, SHAPE_LINE,
				     ALGO_TWO_MATCHINGS, false, &a),
			 SIRCL_UNSUPPORTED);
	ck_assert_str_eq(
		error_last()->msg,
		"SIRCL_ALGO=two-matchings: not possible for all_reduce on a line of 5 ranks; possible: auto, "
		"exchange, two-shot, pipeline");
	ck_assert_int_eq(coll_choose(COLL_ALL_GATHER, SIRCL_FLOAT32, SIRCL_SUM, 8, 4, CLASS_SHM, SHAPE_LINE,
				     ALGO_RING, false, &a),
			 SIRCL_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "possible: auto, exchange"));
	/* two-matchings is no all-gather at all: it forces the all-reduces of a program, not its all-gathers
	 */
	ck_assert_int_eq(coll_choose(COLL_ALL_GATHER, SIRCL_FLOAT32, SIRCL_SUM, 8, 4, CLASS_SHM, SHAPE_RING,
				     ALGO_TWO_MATCHINGS, false, &a),
			 SIRCL_SUCCESS);
	ck_assert_int_eq(a, choose(COLL_ALL_GATHER, 8, 4, CLASS_SHM, SHAPE_RING));
}
END_TEST

START_TEST(test_slice_is_a_multiple_of_64_and_fits_the_window)
{
	static const size_t windows[] = { 65536, 262144, 1 << 20, 16 << 20 };

	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int class = 0; class < CLASS_COUNT; class ++)
				for (size_t k = 0; k < sizeof(windows) / sizeof(windows[0]); k++)
					for (size_t bytes = 0; bytes < 1ull << 40; bytes = bytes * 3 + 5) {
						size_t s = coll_slice((enum coll_kind)kind,
								      (enum coll_algo)algo, bytes, 4,
								      (enum coll_class) class, windows[k], 0);

						ck_assert_uint_ge(s, 64);
						ck_assert_uint_eq(s % 64, 0);
						ck_assert_uint_le(s, windows[k] / 4);
					}
	ck_assert_uint_eq(coll_slice(COLL_ALL_REDUCE, ALGO_RING, 1 << 20, 4, CLASS_SHM, 1 << 20, 1), 64);
	ck_assert_uint_eq(coll_slice(COLL_ALL_REDUCE, ALGO_RING, 1 << 20, 4, CLASS_SHM, 1 << 20, 4096), 4096);
}
END_TEST

START_TEST(test_plan_cache_builds_every_key_once)
{
	struct plan_key k = { .kind = COLL_ALL_GATHER,
			      .algo = ALGO_RING,
			      .shape = SHAPE_RING,
			      .n = 4,
			      .pos = 1,
			      .rank_of = { 0, 1, 2, 3 } };
	const struct plan *a, *b;
	struct plan_cache *c;

	ck_assert_int_eq(plan_cache_create(&c), SIRCL_SUCCESS);
	ck_assert_int_eq(plan_get(c, &k, &a), SIRCL_SUCCESS);
	k.rank_of[7] = 9; /* beyond n: no part of the key */
	ck_assert_int_eq(plan_get(c, &k, &b), SIRCL_SUCCESS);
	ck_assert_ptr_eq(a, b);
	k.rank_of[2] = 3;
	k.rank_of[3] = 2;
	ck_assert_int_eq(plan_get(c, &k, &b), SIRCL_SUCCESS);
	ck_assert_ptr_ne(a, b);
	k.algo = ALGO_EXCHANGE;
	ck_assert_int_eq(plan_get(c, &k, &b), SIRCL_SUCCESS);
	ck_assert_str_eq(b->name, "all_gather/exchange");
	k.algo = ALGO_TWO_MATCHINGS;
	ck_assert_int_eq(plan_get(c, &k, &b), SIRCL_INTERNAL_ERROR);
	ck_assert_ptr_null(b);
	plan_cache_destroy(c);
	plan_cache_destroy(NULL);
}
END_TEST

START_TEST(test_coll_names_are_those_of_the_parameter)
{
	ck_assert_str_eq(coll_kind_name(COLL_ALL_REDUCE), "all_reduce");
	ck_assert_str_eq(coll_kind_name(COLL_ALL_GATHER), "all_gather");
	ck_assert_str_eq(coll_kind_name((enum coll_kind)77), "?");
	ck_assert_str_eq(coll_algo_name(ALGO_AUTO), "auto");
	ck_assert_str_eq(coll_algo_name(ALGO_TWO_MATCHINGS), "two-matchings");
	ck_assert_str_eq(coll_algo_name(ALGO_EXCHANGE), "exchange");
	ck_assert_str_eq(coll_algo_name(ALGO_RING), "ring");
	ck_assert_str_eq(coll_algo_name(ALGO_DOUBLING), "doubling");
	ck_assert_str_eq(coll_algo_name((enum coll_algo)77), "?");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("coll_choose");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_choose_gives_what_exists_and_never_goes_back);
	tcase_add_test(t, test_choose_takes_two_matchings_for_small_and_ring_for_large);
	tcase_add_test(t, test_choose_deterministic_means_rank_order);
	tcase_add_test(t, test_choose_obeys_force_or_says_what_is_possible);
	tcase_add_test(t, test_slice_is_a_multiple_of_64_and_fits_the_window);
	tcase_add_test(t, test_plan_cache_builds_every_key_once);
	tcase_add_test(t, test_coll_names_are_those_of_the_parameter);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
