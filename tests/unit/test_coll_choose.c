/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of algorithm and slice, and the plan cache. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "coll/coll.h"
#include "reduce/reduce.h"

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
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 64 << 20, 4, c, SHAPE_LINE), ALGO_PIPELINE);
		ck_assert_int_eq(choose(COLL_ALL_REDUCE, 64 << 20, 2, c, SHAPE_LINE), ALGO_TWO_MATCHINGS);
		ck_assert_int_eq(choose(COLL_ALL_GATHER, 1024, 4, c, SHAPE_RING), ALGO_EXCHANGE);
	}
	/* on a Spark ring they cross where half a transfer costs four hops more */
	ck_assert_int_eq(choose(COLL_ALL_REDUCE, 256 << 10, 4, CLASS_VERBS, SHAPE_RING), ALGO_TWO_MATCHINGS);
	ck_assert_int_eq(choose(COLL_ALL_REDUCE, 1 << 20, 4, CLASS_VERBS, SHAPE_RING), ALGO_RING);
	ck_assert_int_eq(choose(COLL_ALL_GATHER, 64 << 20, 4, CLASS_VERBS, SHAPE_RING), ALGO_RING);
}
END_TEST

START_TEST(test_choose_in_shared_memory_pipelines_only_what_is_large)
{
	for (int n = 3; n <= 16; n++) {
		ck_assert_int_eq(choose(COLL_BROADCAST, 32 << 10, n, CLASS_SHM, SHAPE_RING), ALGO_EXCHANGE);
		ck_assert_int_eq(choose(COLL_REDUCE, 16 << 10, n, CLASS_SHM, SHAPE_RING), ALGO_EXCHANGE);
		ck_assert_int_eq(choose(COLL_BROADCAST, 4 << 20, n, CLASS_SHM, SHAPE_RING), ALGO_PIPELINE);
	}
	for (int n = 4; n <= 16; n++)
		ck_assert_int_eq(choose(COLL_REDUCE, 256 << 10, n, CLASS_SHM, SHAPE_RING), ALGO_PIPELINE);
	/* where ranks have machines of their own, the halves go round at the same time */
	ck_assert_int_eq(choose(COLL_BROADCAST, 64 << 10, 4, CLASS_VERBS, SHAPE_RING), ALGO_PIPELINE);
}
END_TEST

/* Every kind, shape, n: forced or not, what must be in rank order is. */
static void expect_rank_order(sircl_type_t type, sircl_op_t op, bool deterministic)
{
	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (int shape = SHAPE_RING; shape <= SHAPE_LINE; shape++)
			for (int n = 1; n <= COLL_MAX_RANKS; n++)
				for (size_t bytes = 1; bytes < 1u << 30; bytes *= 8)
					for (int f = ALGO_AUTO; f < ALGO_COUNT; f++) {
						enum coll_algo a = ALGO_AUTO;
						sircl_result_t r =
							coll_choose((enum coll_kind)kind, type, op, bytes, n,
								    CLASS_SHM, (enum coll_shape)shape,
								    (enum coll_algo)f, deterministic, &a);

						if (r == SIRCL_UNSUPPORTED && f != ALGO_AUTO)
							continue;
						ck_assert_int_eq(r, SIRCL_SUCCESS);
						ck_assert(!coll_reduces((enum coll_kind)kind) ||
							  a == ALGO_EXCHANGE || a == ALGO_TWO_SHOT);
					}
}

START_TEST(test_choose_deterministic_means_rank_order)
{
	enum coll_algo a;

	expect_rank_order(SIRCL_FLOAT32, SIRCL_SUM, true);
	ck_assert_int_eq(coll_choose(COLL_ALL_REDUCE, SIRCL_FLOAT32, SIRCL_SUM, 8, 4, CLASS_SHM, SHAPE_RING,
				     ALGO_RING, true, &a),
			 SIRCL_UNSUPPORTED);
	ck_assert_str_eq(error_last()->msg,
			 "SIRCL_ALGO=ring: not possible for all_reduce with SIRCL_DETERMINISTIC=1, which is "
			 "summed in rank order; possible: auto, exchange, two-shot");
}
END_TEST

START_TEST(test_choose_averages_integers_in_rank_order)
{
	enum coll_algo a;

	for (int t = 0; t < SIRCL_TYPE_COUNT; t++)
		if (type_is_integer((sircl_type_t)t))
			expect_rank_order((sircl_type_t)t, SIRCL_AVG, false);
	ck_assert_int_eq(coll_choose(COLL_REDUCE, SIRCL_INT32, SIRCL_AVG, 8, 4, CLASS_SHM, SHAPE_RING,
				     ALGO_PIPELINE, false, &a),
			 SIRCL_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "an average of integers"));
	ck_assert_int_eq(coll_choose(COLL_REDUCE, SIRCL_FLOAT32, SIRCL_AVG, 8, 4, CLASS_SHM, SHAPE_RING,
				     ALGO_PIPELINE, false, &a),
			 SIRCL_SUCCESS);
	ck_assert_int_eq(coll_choose(COLL_BROADCAST, SIRCL_INT32, SIRCL_AVG, 8, 4, CLASS_SHM, SHAPE_RING,
				     ALGO_PIPELINE, true, &a),
			 SIRCL_SUCCESS);
}
END_TEST

#define SIZES 1000

static size_t size_number(
	int i) /* 1,000 sizes from 0 to 2^40, evenly in the logarithm, odd ones among them */
{
	return i == 0 ? 0 : ((size_t)1 << (i / 25)) + ((size_t)(i % 25) << (i / 25)) / 25;
}

/* The choices of one rank for all sizes, in the order in which it happens to need them. */
static void choices_of(int rank, int n, enum coll_shape shape, uint8_t algo[COLL_KINDS][SIZES],
		       size_t slice[COLL_KINDS][SIZES])
{
	for (int j = 0; j < SIZES; j++)
		for (int kind = 0; kind < COLL_KINDS; kind++) {
			int i = rank % 2 ? SIZES - 1 - (j * 7 + rank) % SIZES : (j * 3 + rank) % SIZES;
			size_t bytes = size_number(i);
			enum coll_algo a = choose((enum coll_kind)kind, bytes, n, CLASS_SHM, shape);

			algo[kind][i] = (uint8_t)a;
			slice[kind][i] = coll_slice((enum coll_kind)kind, a, bytes, n, CLASS_SHM, 262144, 0);
		}
}

START_TEST(test_choose_is_equal_on_all_ranks_for_1000_sizes)
{
	static uint8_t first[COLL_KINDS][SIZES], algo[COLL_KINDS][SIZES];
	static size_t first_slice[COLL_KINDS][SIZES], slice[COLL_KINDS][SIZES];

	for (int shape = SHAPE_RING; shape <= SHAPE_LINE; shape++)
		for (int n = 2; n <= 9; n++)
			for (int rank = 0; rank < n; rank++) {
				memset(algo, 0xff, sizeof(algo));
				choices_of(rank, n, (enum coll_shape)shape, rank ? algo : first,
					   rank ? slice : first_slice);
				if (rank) {
					ck_assert(!memcmp(algo, first, sizeof(algo)));
					ck_assert(!memcmp(slice, first_slice, sizeof(slice)));
				}
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

START_TEST(test_slice_leaves_room_for_four_in_scratch)
{
	static const int ns[] = { 2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 47, 64 };

	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = SHAPE_RING; shape <= SHAPE_LINE; shape++)
				for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
					struct plan_key k = { .kind = (enum coll_kind)kind,
							      .algo = (enum coll_algo)algo,
							      .shape = (enum coll_shape)shape,
							      .n = (uint16_t)ns[i] };
					struct plan *p;
					size_t slice;

					if (!coll_can(k.kind, k.algo, ns[i], k.shape))
						continue;
					for (int r = 0; r < ns[i]; r++)
						k.rank_of[r] = (uint16_t)r;
					ck_assert_int_eq(plan_build(&k, &p), SIRCL_SUCCESS);
					slice = coll_slice(k.kind, k.algo, (size_t)1 << 40, ns[i],
							   CLASS_VERBS, 64 << 20, 0);
					ck_assert_msg(4 * slice * (p->held + 8u * p->held_wide) <= 16 << 20,
						      "%s of %d: slice %zu, held %u and %u", p->name, ns[i],
						      slice, p->held, p->held_wide);
					free(p);
				}
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
	k.kind = COLL_REDUCE;
	k.algo = ALGO_EXCHANGE;
	ck_assert_int_eq(plan_get(c, &k, &a), SIRCL_SUCCESS);
	k.root = 2;
	ck_assert_int_eq(plan_get(c, &k, &b), SIRCL_SUCCESS);
	ck_assert_ptr_ne(a, b);
	k.scaled = true;
	ck_assert_int_eq(plan_get(c, &k, &a), SIRCL_SUCCESS);
	ck_assert_ptr_ne(a, b);
	k.root = 4; /* no rank */
	ck_assert_int_eq(plan_get(c, &k, &b), SIRCL_INTERNAL_ERROR);
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
	ck_assert_str_eq(coll_algo_name(ALGO_TWO_SHOT), "two-shot");
	ck_assert_str_eq(coll_algo_name(ALGO_PIPELINE), "pipeline");
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
	tcase_add_test(t, test_choose_in_shared_memory_pipelines_only_what_is_large);
	tcase_add_test(t, test_choose_deterministic_means_rank_order);
	tcase_add_test(t, test_choose_averages_integers_in_rank_order);
	tcase_add_test(t, test_choose_is_equal_on_all_ranks_for_1000_sizes);
	tcase_add_test(t, test_slice_leaves_room_for_four_in_scratch);
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
