/* SPDX-License-Identifier: Apache-2.0 */
/* The executor over simulated channels: results and order. */
#include "engine_exec_world.h"

static void all_sizes(enum coll_kind kind, enum coll_algo algo, int n, enum coll_shape shape)
{
	static const size_t counts[] = { 0, 1, 2, 3, 17, 255, 1000, 4099, 30011 };
	struct setting set = {
		.n = n, .shape = shape, .algo = algo, .slice = 1024, .window = 65536, .seed = 7
	};
	struct world w;

	setup(&w, &set);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct ref_job j = { .kind = kind,
				     .algo = algo,
				     .type = i % 2 ? SIRCL_FLOAT32 : SIRCL_BFLOAT16,
				     .count = counts[i],
				     .n = n,
				     .seed = i + 1 };

		collective(&w, &j, 0);
		j.type = i % 2 ? SIRCL_BFLOAT16 : SIRCL_FLOAT32;
		collective(&w, &j, 0xffff);
		collective(&w, &j, 0x5a5a);
	}
	teardown(&w);
}

START_TEST(test_engine_all_reduce_gives_the_documented_bits)
{
	for (int n = 2; n <= 8; n++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = 0; shape < 2; shape++)
				if (coll_can(COLL_ALL_REDUCE, (enum coll_algo)algo, n,
					     (enum coll_shape)shape))
					all_sizes(COLL_ALL_REDUCE, (enum coll_algo)algo, n,
						  (enum coll_shape)shape);
}
END_TEST

START_TEST(test_engine_all_gather_gives_every_rank_everything)
{
	for (int n = 2; n <= 8; n++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = 0; shape < 2; shape++)
				if (coll_can(COLL_ALL_GATHER, (enum coll_algo)algo, n,
					     (enum coll_shape)shape))
					all_sizes(COLL_ALL_GATHER, (enum coll_algo)algo, n,
						  (enum coll_shape)shape);
}
END_TEST

/* 64-byte slices of a block of 16 KiB would be one round; a small limit of scratch is reached with large
 * slices. */
START_TEST(test_engine_rounds_bound_scratch_and_keep_bits)
{
	struct setting set = {
		.n = 5, .algo = ALGO_EXCHANGE, .slice = 1 << 20, .window = 4 << 20, .seed = 3
	};
	struct ref_job j = { .kind = COLL_ALL_REDUCE,
			     .algo = ALGO_EXCHANGE,
			     .type = SIRCL_BFLOAT16,
			     .count = (6 << 19) + 5,
			     .n = 5,
			     .seed = 9 };
	struct world w;

	setup(&w, &set);
	w.fake.max_piece = 1 << 20;
	collective(&w, &j, 0x15);
	/* 4 slices of 1 MiB in each of 4 blocks and a wide accumulator, not 6 MiB each */
	ck_assert_uint_lt(engine_memory(w.rank[0].engine), 26u << 20);
	teardown(&w);
	set = (struct setting){ .n = 4, .algo = ALGO_TWO_MATCHINGS, .slice = 1 << 20, .seed = 3 };
	j.algo = ALGO_TWO_MATCHINGS;
	j.n = 4;
	setup(&w, &set);
	w.fake.max_piece = 1 << 20;
	collective(&w, &j, 0x5);
	teardown(&w);
}
END_TEST

START_TEST(test_engine_bits_do_not_depend_on_slices_and_windows)
{
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct setting set = { .n = 2 + (int)(seed % 7),
				       .algo = seed % 2 ? ALGO_RING : ALGO_EXCHANGE,
				       .slice = 64 << (seed % 7),
				       .window = 65536 << (seed % 3),
				       .seed = seed };
		struct ref_job j = { .kind = COLL_ALL_REDUCE,
				     .algo = set.algo,
				     .type = SIRCL_BFLOAT16,
				     .count = 9001,
				     .n = set.n,
				     .seed = 42 };
		struct world w;

		setup(&w, &set);
		w.fake.max_delay = seed % 5 * 40;
		w.fake.max_piece = seed % 3 ? 128 : 9000;
		collective(&w, &j, (unsigned)seed * 37);
		teardown(&w);
	}
}
END_TEST

START_TEST(test_engine_one_rank_copies)
{
	struct setting set = { .n = 1, .seed = 1 };
	struct ref_job j = { .kind = COLL_ALL_REDUCE,
			     .algo = ALGO_EXCHANGE,
			     .type = SIRCL_FLOAT32,
			     .count = 1000,
			     .n = 1,
			     .seed = 4 };
	struct world w;

	setup(&w, &set);
	collective(&w, &j, 0);
	j.kind = COLL_ALL_GATHER;
	collective(&w, &j, 1);
	ck_assert_uint_eq(team_ops(w.rank[0].team), 2);
	teardown(&w);
}
END_TEST

/* Several operations of a team run in order of their numbers. */
START_TEST(test_engine_operations_of_a_team_run_in_order)
{
	struct setting set = { .n = 3, .algo = ALGO_RING, .slice = 256, .seed = 5 };
	struct ref_job j[3];
	struct ref_bufs b[3][3];
	struct op *op[3][3];
	struct world w;
	void *expect = malloc(1 << 20);

	setup(&w, &set);
	for (int k = 0; k < 3; k++) {
		j[k] = (struct ref_job){ .kind = k == 1 ? COLL_ALL_GATHER : COLL_ALL_REDUCE,
					 .algo = ALGO_RING,
					 .type = SIRCL_FLOAT32,
					 .count = 3000 + (size_t)k,
					 .n = 3,
					 .seed = 20 + (uint64_t)k };
		memcpy(j[k].rank_of, w.rank_of, sizeof(j[k].rank_of));
		for (int p = 0; p < 3; p++) {
			struct op_args a = { .kind = j[k].kind, .count = j[k].count, .type = j[k].type };

			ref_alloc(&j[k], w.rank_of[p], false, &b[k][p]);
			a.in = b[k][p].in;
			a.out = b[k][p].out;
			ck_assert_int_eq(op_create(w.rank[p].team, &op[k][p]), SIRCL_SUCCESS);
			ck_assert_int_eq(op_prepare(op[k][p], &a), SIRCL_SUCCESS);
			ck_assert_int_eq(engine_start(w.rank[p].engine, &w.tick, op[k][p]), SIRCL_SUCCESS);
			ck_assert_int_eq(engine_start(w.rank[p].engine, &w.tick, op[k][p]),
					 SIRCL_INVALID_USAGE);
		}
	}
	for (int i = 0; i < 200000 && !(op_done(op[2][0]) && op_done(op[2][1]) && op_done(op[2][2])); i++) {
		bool busy;

		engine_drive(w.rank[i % 3].engine, &w.tick, &busy);
		for (int p = 0; p < 3; p++)
			ck_assert(op_done(op[0][p]) >= op_done(op[1][p]) &&
				  op_done(op[1][p]) >= op_done(op[2][p]));
	}
	for (int k = 0; k < 3; k++) {
		ref_result(&j[k], expect);
		for (int p = 0; p < 3; p++) {
			ck_assert_int_eq(op_result(op[k][p], NULL), SIRCL_SUCCESS);
			ck_assert(ref_check(&j[k], w.rank_of[p], &b[k][p], expect));
			op_destroy(op[k][p]);
			ref_free(&b[k][p]);
		}
	}
	ck_assert_uint_eq(team_ops(w.rank[1].team), 3);
	free(expect);
	teardown(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine executor");
	TCase *c = tcase_create("exec");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_engine_all_reduce_gives_the_documented_bits);
	tcase_add_test(c, test_engine_all_gather_gives_every_rank_everything);
	tcase_add_test(c, test_engine_rounds_bound_scratch_and_keep_bits);
	tcase_add_test(c, test_engine_bits_do_not_depend_on_slices_and_windows);
	tcase_add_test(c, test_engine_one_rank_copies);
	tcase_add_test(c, test_engine_operations_of_a_team_run_in_order);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
