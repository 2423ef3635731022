/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives through the whole house below the api, on simulated lanes, with faults. */
#include "engine_world.h"

static void sizes(enum coll_kind kind, enum coll_algo algo, int n, enum coll_shape shape)
{
	static const size_t counts[] = { 0, 1, 17, 1001, 20011 };
	struct ew_cfg cfg = { .n = n,
			      .shape = shape,
			      .algo = algo,
			      .lanes = 1 + n % 3,
			      .slice = 4096,
			      .seed = (uint64_t)(n * 100 + algo * 10 + shape) };
	struct ew w;

	ew_create(&w, &cfg);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct ref_job j = { .kind = kind,
				     .algo = algo,
				     .type = (i + (size_t)n) % 2 ? SIRCL_FLOAT32 : SIRCL_BFLOAT16,
				     .count = counts[i],
				     .n = n,
				     .seed = i + 1 };

		ew_collective(&w, &j, (unsigned)(0x3300f >> i), i == 4 ? 0x55 : 0);
	}
	ew_destroy(&w);
}

static void all_n(enum coll_kind kind)
{
	for (int n = 1; n <= 8; n++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = 0; shape < 2; shape++)
				if (n > 1 && coll_can(kind, (enum coll_algo)algo, n, (enum coll_shape)shape))
					sizes(kind, (enum coll_algo)algo, n, (enum coll_shape)shape);
}

START_TEST(test_engine_all_reduce_over_real_channels_gives_the_documented_bits)
{
	all_n(COLL_ALL_REDUCE);
}
END_TEST

START_TEST(test_engine_all_gather_over_real_channels_gives_every_rank_everything)
{
	all_n(COLL_ALL_GATHER);
}
END_TEST

/* More than a window, the algorithm's own slices, memory registered on some ranks. */
START_TEST(test_engine_large_operations_pass_windows_and_grants)
{
	for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++) {
		if (!coll_can(COLL_ALL_REDUCE, (enum coll_algo)algo, 4, SHAPE_RING))
			continue;
		struct ew_cfg cfg = { .n = 4, .algo = (enum coll_algo)algo, .window = 262144, .seed = 77 };
		struct ref_job j = { .kind = COLL_ALL_REDUCE,
				     .algo = (enum coll_algo)algo,
				     .type = SIRCL_BFLOAT16,
				     .count = (1 << 19) + 333,
				     .n = 4,
				     .seed = 5 };
		struct ew w;

		ew_create(&w, &cfg);
		ew_collective(&w, &j, 0x3, 0x6);
		if (coll_can(COLL_ALL_GATHER, (enum coll_algo)algo, 4, SHAPE_RING)) {
			struct chan_net_stats st;

			j.kind = COLL_ALL_GATHER;
			ew_collective(&w, &j, 0x5, 0xf);
			chan_net_stats(w.node[0].net, &st);
			ck_assert_uint_gt(st.granted_bytes, 1 << 20);
		}
		ew_destroy(&w);
	}
}
END_TEST

/* A lane dies at put k, for many k, seen by none, one or both ends. */
START_TEST(test_engine_operations_survive_the_loss_of_any_lane_at_any_put)
{
	uint64_t struck = 0, replayed = 0;

	for (uint64_t k = 0; k < 60; k++) {
		struct ew_cfg cfg = { .n = 4, .algo = ALGO_RING, .slice = 2048, .lanes = 2, .seed = 900 + k };
		struct ref_job j = { .kind = k % 2 ? COLL_ALL_GATHER : COLL_ALL_REDUCE,
				     .algo = ALGO_RING,
				     .type = SIRCL_FLOAT32,
				     .count = 9001,
				     .n = 4,
				     .seed = k };
		struct ew w;
		uint64_t before;

		ew_create(&w, &cfg);
		before = sim_puts(w.sim);
		ew_begin(&w, &j, (unsigned)k, (unsigned)(k >> 1));
		sim_kill_at_put(w.sim, k * 3, (unsigned)(k % 4));
		for (int p = 0; p < 4; p++)
			ew_start(&w, p);
		ew_finish(&w, &j);
		for (int p = 0; p < 4; p++) {
			for (int s = 0; s < LINK_SIDES; s++) {
				struct link_stats st;

				link_stats(w.node[p].link[s], &st);
				replayed += st.frames_replayed;
			}
		}
		struck += sim_puts(w.sim) - before > k * 3;
		ew_end(&w);
		ew_destroy(&w);
	}
	ck_assert_uint_ge(struck, 50);
	ck_assert_uint_gt(replayed, 0);
}
END_TEST

START_TEST(test_engine_random_faults_change_no_bit)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		int n = 2 + (int)(seed % 5);
		struct ew_cfg cfg = { .n = n, .lanes = 2 + (int)(seed % 2), .slice = 1024, .seed = seed };
		struct ref_job j = { .type = SIRCL_BFLOAT16, .n = n, .seed = seed };
		struct ew w;

		cfg.algo = j.algo = seed % 3 == 0         ? ALGO_EXCHANGE
				    : seed % 3 == 1       ? ALGO_RING
				    : n % 2 == 0 && n < 5 ? ALGO_TWO_MATCHINGS
							  : ALGO_EXCHANGE;
		ew_create(&w, &cfg);
		sim_plan_faults(w.sim, (1u << FAULT_KINDS) - 1, 4, sim_now(w.sim), sim_now(w.sim) + MSEC);
		for (int i = 0; i < 4; i++) {
			j.count = 3000 + (size_t)(seed * 37 + (uint64_t)i * 501);
			j.kind = i % 2 && cfg.algo != ALGO_TWO_MATCHINGS ? COLL_ALL_GATHER : COLL_ALL_REDUCE;
			ew_collective(&w, &j, (unsigned)(seed * 11), (unsigned)(seed * 5));
		}
		ew_destroy(&w);
	}
}
END_TEST

/* A rank whose call differs: everybody ends, by name, nobody hangs. */
START_TEST(test_engine_mismatch_ends_all_ranks_with_an_error)
{
	for (int odd = 0; odd < 5; odd++) {
		for (int what = 0; what < 3; what++) {
			struct ew_cfg cfg = { .n = 5, .seed = (uint64_t)(odd * 3 + what) };
			struct ref_job j = {
				.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 5000, .n = 5
			};
			struct ref_job o = j;
			bool named = false;
			struct ew w;

			if (what == 0)
				o.count = 4999;
			else if (what == 1)
				o.type = SIRCL_BFLOAT16;
			else
				o.kind = COLL_ALL_GATHER;
			ew_create(&w, &cfg);
			ew_begin(&w, &j, 0, 0);
			ref_free(&w.node[odd].bufs);
			ref_alloc(&o, w.rank_of[odd], false, &w.node[odd].bufs);
			ew_prepare(&w, odd, &o);
			for (int p = 0; p < 5; p++)
				ew_start(&w, p);
			ck_assert(sim_run(w.sim, ew_done, &w, sim_now(w.sim) + 5 * SEC));
			for (int p = 0; p < 5; p++) {
				struct sircl_error err;

				ck_assert_int_ne(op_result(w.node[p].op, &err), SIRCL_SUCCESS);
				named |= err.code == SIRCL_MISMATCH &&
					 strstr(err.msg, "called all_reduce of 5000 float") &&
					 strstr(err.msg, "while rank");
			}
			ck_assert(named);
			ew_end(&w);
			ew_destroy(&w);
		}
	}
}
END_TEST

/* Both ranks only send, more than a window holds. */
START_TEST(test_engine_two_roots_do_not_wait_for_each_other)
{
	static uint8_t buf[2][300000];
	struct ew_cfg cfg = { .n = 2, .seed = (uint64_t)_i, .shape = (enum coll_shape)(_i % 2) };
	struct sircl_error err;
	bool named = false;
	struct ew w;

	ew_create(&w, &cfg);
	for (int p = 0; p < 2; p++) {
		struct op_args a = { .kind = COLL_BROADCAST,
				     .in = buf[p],
				     .out = buf[p],
				     .count = sizeof(buf[p]),
				     .type = SIRCL_UINT8,
				     .root = w.rank_of[p] };

		ck_assert_int_eq(op_prepare(w.node[p].op, &a), SIRCL_SUCCESS);
		ew_start(&w, p);
	}
	ck_assert(sim_run(w.sim, ew_done, &w, sim_now(w.sim) + 5 * SEC));
	for (int p = 0; p < 2; p++) {
		ck_assert_int_ne(op_result(w.node[p].op, &err), SIRCL_SUCCESS);
		named |= err.code == SIRCL_MISMATCH &&
			 strstr(err.msg, "called broadcast of 300000 uint8 from rank 0, number 0") &&
			 strstr(err.msg, "called broadcast of 300000 uint8 from rank 1, number 0");
	}
	ck_assert(named);
	ew_destroy(&w);
}
END_TEST

START_TEST(test_engine_late_rank_is_waited_for)
{
	struct ew_cfg cfg = { .n = 4, .seed = 3 };
	struct ref_job j = {
		.kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 5000, .n = 4, .algo = ALGO_RING
	};
	struct ew w;

	cfg.algo = ALGO_RING;
	ew_create(&w, &cfg);
	ew_begin(&w, &j, 0, 0);
	for (int p = 1; p < 4; p++)
		ew_start(&w, p);
	sim_run(w.sim, ew_done, &w, sim_now(w.sim) + 100 * SEC);
	for (int p = 1; p < 4; p++)
		ck_assert(!op_done(w.node[p].op));
	ew_start(&w, 0);
	ew_finish(&w, &j);
	ew_end(&w);
	ew_destroy(&w);
}
END_TEST

START_TEST(test_engine_frozen_rank_is_an_error_everywhere_after_the_limit)
{
	struct ew_cfg cfg = { .n = 4, .seed = 3, .algo = ALGO_RING, .op_timeout = 2 * SEC };
	struct ref_job j = { .kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 50000, .n = 4 };
	struct sircl_error err;
	bool named = false;
	char who[64];
	struct ew w;

	ew_create(&w, &cfg);
	ew_begin(&w, &j, 0, 0xf);
	sim_freeze(w.sim, w.node[2].node, 1000 * SEC);
	for (int p = 0; p < 4; p++)
		if (p != 2)
			ew_start(&w, p);
	w.skip = 1 << 2;
	snprintf(who, sizeof(who), "nothing at all is heard from it on cable");
	ck_assert(sim_run(w.sim, ew_done, &w, sim_now(w.sim) + 20 * SEC));
	for (int p = 0; p < 4; p++) {
		if (p == 2)
			continue;
		ck_assert_int_ne(op_result(w.node[p].op, &err), SIRCL_SUCCESS);
		named |= err.code == SIRCL_TIMEOUT && strstr(err.msg, who);
	}
	ck_assert(named);
	for (int p = 0; p < 4; p++)
		w.node[p].registered = false;
	ew_end(&w);
	ew_destroy(&w);
}
END_TEST

START_TEST(test_engine_dead_rank_ends_the_operation_everywhere)
{
	struct ew_cfg cfg = { .n = 4, .seed = 3, .algo = ALGO_RING, .op_timeout = 4 * SEC };
	struct ref_job j = { .kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 50000, .n = 4 };
	struct ew w;

	ew_create(&w, &cfg);
	ew_begin(&w, &j, 0, 0);
	for (int p = 0; p < 4; p++)
		if (p != 1)
			ew_start(&w, p);
	sim_run(w.sim, ew_done, &w, sim_now(w.sim) + MSEC);
	sim_kill_node(w.sim, w.node[1].node);
	w.skip = 1 << 1;
	ck_assert(sim_run(w.sim, ew_done, &w, sim_now(w.sim) + 60 * SEC));
	for (int p = 0; p < 4; p++)
		if (p != 1)
			ck_assert_int_ne(op_result(w.node[p].op, NULL), SIRCL_SUCCESS);
	ew_end(&w);
	ew_destroy(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine on simulated lanes");
	TCase *c = tcase_create("ring");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 120);
	tcase_add_test(c, test_engine_all_reduce_over_real_channels_gives_the_documented_bits);
	tcase_add_test(c, test_engine_all_gather_over_real_channels_gives_every_rank_everything);
	tcase_add_test(c, test_engine_large_operations_pass_windows_and_grants);
	tcase_add_test(c, test_engine_operations_survive_the_loss_of_any_lane_at_any_put);
	tcase_add_test(c, test_engine_random_faults_change_no_bit);
	tcase_add_test(c, test_engine_mismatch_ends_all_ranks_with_an_error);
	tcase_add_loop_test(c, test_engine_two_roots_do_not_wait_for_each_other, 0, 6);
	tcase_add_test(c, test_engine_late_rank_is_waited_for);
	tcase_add_test(c, test_engine_frozen_rank_is_an_error_everywhere_after_the_limit);
	tcase_add_test(c, test_engine_dead_rank_ends_the_operation_everywhere);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
