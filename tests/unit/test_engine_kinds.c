/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind by every algorithm, over simulated channels: all ranks, roots, types, operations, in place. */
#include "engine_exec_world.h"
#include "engine_kinds.h"
#include "engine/internal.h"

static unsigned turn; /* walks through types and operations */

static void pick(struct call *c, enum coll_algo algo)
{
	do {
		turn++;
		c->type = (sircl_type_t)(turn % SIRCL_TYPE_COUNT);
		c->op = coll_reduces(c->kind) ? (sircl_op_t)((turn + turn / SIRCL_TYPE_COUNT) % REDUCE_OPS)
					      : SIRCL_SUM;
	} while (!call_possible(algo, c->type, c->op));
	c->seed = turn;
}

static void one(struct world *w, const struct call *c, unsigned in_place, const char *algo)
{
	struct call_bufs b[FAKE_N];

	for (int p = 0; p < w->n; p++) {
		int rank = w->rank_of[p];
		struct op_args a;

		call_alloc(c, rank, in_place >> rank & 1, turn & 1, &b[p]);
		a = call_args(c, rank, &b[p]);
		ck_assert_msg(op_prepare(w->rank[p].op, &a) == SIRCL_SUCCESS, "%s", error_last()->msg);
	}
	for (int p = 0; p < w->n; p++)
		start(w, (p + (int)turn) % w->n);
	ck_assert_msg(run(w, 0), "hung: %s of %zu by %s, n %d, root %d", coll_kind_name(c->kind), c->count,
		      algo, c->n, c->root);
	for (int p = 0; p < w->n; p++) {
		struct sircl_error err;

		ck_assert_msg(op_result(w->rank[p].op, &err) == SIRCL_SUCCESS, "%s", err.msg);
		ck_assert_msg(call_check(c, w->rank_of[p], &b[p]),
			      "wrong: %s of %zu %s, %s, by %s, n %d, root %d, position %d, in place %x, "
			      "turn %u",
			      coll_kind_name(c->kind), c->count, type_name(c->type), op_name(c->op), algo,
			      c->n, c->root, p, in_place, turn);
		call_free(&b[p]);
	}
}

static void sizes(struct world *w, enum coll_kind kind, enum coll_algo algo)
{
	static const size_t counts[] = { 0, 1, 2, 7, 61, 1025 };
	int roots = coll_has_root(kind) ? w->n : 1;

	for (int root = 0; root<roots; root += w->n> 5 ? 3 : 1) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			struct call c = { .kind = kind, .count = counts[i], .n = w->n, .root = root };

			pick(&c, algo);
			one(w, &c, turn % 3 == 0 ? 0xff : turn % 3 == 1 ? 0x5a : 0, coll_algo_name(algo));
		}
	}
}

static void by_all(enum coll_kind kind, size_t scratch)
{
	for (int n = 1; n <= FAKE_N; n++) {
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++) {
			for (int shape = 0; shape < 2; shape++) {
				struct setting set = { .n = n,
						       .shape = (enum coll_shape)shape,
						       .algo = (enum coll_algo)algo,
						       .slice = scratch ? 64 : 512,
						       .window = 65536,
						       .seed = turn + 1 };
				struct world w;

				if (!coll_can(kind, set.algo, n, set.shape))
					continue;
				setup(&w, &set);
				for (int p = 0; scratch && p < n; p++)
					w.rank[p].team->scratch_limit = scratch;
				sizes(&w, kind, set.algo);
				teardown(&w);
			}
		}
	}
}

START_TEST(test_engine_runs_every_kind_by_every_algorithm)
{
	by_all((enum coll_kind)_i, 0);
}
END_TEST

/* Scratch for a slice or two of every block: many rounds. */
START_TEST(test_engine_rounds_change_no_result)
{
	by_all((enum coll_kind)_i, 4096);
}
END_TEST

/* All types and operations in one place, by the algorithm that takes them all. */
START_TEST(test_engine_takes_every_type_and_operation)
{
	for (int kind = 0; kind < COLL_KINDS; kind++) {
		struct setting set = { .n = 5, .algo = ALGO_EXCHANGE, .slice = 256, .seed = 3 };
		struct world w;

		setup(&w, &set);
		for (int type = 0; type < SIRCL_TYPE_COUNT; type++) {
			for (int op = 0; op < (coll_reduces((enum coll_kind)kind) ? REDUCE_OPS : 1); op++) {
				struct call c = { .kind = (enum coll_kind)kind,
						  .type = (sircl_type_t)type,
						  .op = (sircl_op_t)op,
						  .count = 301,
						  .n = 5,
						  .root = coll_has_root((enum coll_kind)kind) ? 3 : 0,
						  .seed = (uint64_t)(type * 8 + op) };

				one(&w, &c, (unsigned)type, "exchange");
			}
		}
		teardown(&w);
	}
}
END_TEST

START_TEST(test_engine_refuses_calls_that_cannot_be)
{
	struct setting set = { .n = 3, .algo = ALGO_EXCHANGE, .seed = 3 };
	struct op_args a = { .kind = COLL_BROADCAST, .count = 4, .type = SIRCL_INT8, .root = 3 };
	struct world w;

	setup(&w, &set);
	ck_assert_int_eq(op_prepare(w.rank[0].op, &a), SIRCL_INVALID_ARGUMENT);
	ck_assert_str_eq(error_last()->msg, "broadcast: root 3 is no rank: 0 to 2");
	a.root = -1;
	ck_assert_int_eq(op_prepare(w.rank[0].op, &a), SIRCL_INVALID_ARGUMENT);
	ck_assert_int_eq(engine_start(w.rank[0].engine, &w.tick, w.rank[0].op), SIRCL_INVALID_USAGE);
	teardown(&w);
}
END_TEST

/* A slice of which scratch cannot hold one per block is refused before anything is sent. */
START_TEST(test_engine_refuses_slices_that_scratch_cannot_hold)
{
	struct setting set = { .n = 4, .algo = ALGO_EXCHANGE, .slice = 16 << 20, .seed = 3 };
	static float in[64], out[64];
	struct op_args a = {
		.kind = COLL_ALL_REDUCE, .in = in, .out = out, .count = 64, .type = SIRCL_FLOAT32
	};
	struct world w;

	setup(&w, &set);
	ck_assert_int_eq(op_prepare(w.rank[0].op, &a), SIRCL_BAD_CONFIG);
	ck_assert_msg(
		strstr(error_last()->msg, "SIRCL_SLICE=16777216 is too large for all_reduce by exchange"),
		"%s", error_last()->msg);
	a.kind = COLL_ALL_GATHER; /* has none in scratch */
	ck_assert_int_eq(op_prepare(w.rank[0].op, &a), SIRCL_SUCCESS);
	teardown(&w);
}
END_TEST

/* However many operations are prepared, scratch is one, and no larger than its limit. */
START_TEST(test_engine_operations_of_a_team_share_their_scratch)
{
	struct setting set = { .n = 4, .algo = ALGO_EXCHANGE, .slice = 65536, .seed = 3 };
	struct call c = { .kind = COLL_ALL_REDUCE, .type = SIRCL_BFLOAT16, .count = 3 << 20, .n = 4 };
	struct call_bufs b[4];
	struct op *op[64];
	struct world w;
	size_t before;

	setup(&w, &set);
	w.fake.max_piece = 1 << 20;
	one(&w, &c, 0, "exchange");
	before = engine_memory(w.rank[0].engine);
	ck_assert_uint_ge(before, 8 << 20);
	ck_assert_uint_le(before, SCRATCH_LIMIT + (1 << 20));
	call_alloc(&c, 0, true, 0, &b[0]);
	for (int i = 0; i < 64; i++) {
		struct op_args a = call_args(&c, 0, &b[0]);

		ck_assert_int_eq(op_create(w.rank[0].team, &op[i]), SIRCL_SUCCESS);
		ck_assert_int_eq(op_prepare(op[i], &a), SIRCL_SUCCESS);
	}
	ck_assert_uint_le(engine_memory(w.rank[0].engine), before + 64 * 1024);
	for (int i = 0; i < 64; i++)
		op_destroy(op[i]);
	call_free(&b[0]);
	teardown(&w);
}
END_TEST

/* Every rank takes itself for the root; true: all have ended. */
static bool all_are_root(struct world *w, enum coll_kind kind, size_t count, struct call_bufs b[])
{
	for (int p = 0; p < w->n; p++) {
		struct call c = { .kind = kind, .count = count, .n = w->n, .root = w->rank_of[p] };
		struct op_args a;

		call_alloc(&c, c.root, false, 0, &b[p]);
		a = call_args(&c, c.root, &b[p]);
		ck_assert_int_eq(op_prepare(w->rank[p].op, &a), SIRCL_SUCCESS);
		start(w, p);
	}
	return run(w, 0);
}

/* Whether somebody says that two ranks name different roots, and by which calls. */
static bool mismatch_told(struct world *w, const char *call)
{
	struct sircl_error err;
	int said = 0;

	for (int p = 0; p < w->n; p++) {
		const char *theirs;

		if (op_result(w->rank[p].op, &err) != SIRCL_MISMATCH)
			continue;
		theirs = strstr(err.msg, call);
		ck_assert_msg(theirs && strstr(err.msg, "while rank") && strstr(err.msg, "number 0"), "%s",
			      err.msg);
		said++;
	}
	return said > 0;
}

/* Several roots may only send: then nobody's window is emptied, or the message is left over. */
START_TEST(test_engine_different_roots_are_an_error_and_no_hang)
{
	static const size_t counts[] = { 12, 300000 };

	for (int algo = ALGO_EXCHANGE; algo <= ALGO_PIPELINE; algo++) {
		for (size_t i = 0; i < 2; i++) {
			struct setting set = { .n = 2 + _i % 2 * 2,
					       .shape = (enum coll_shape)(_i / 2),
					       .algo = (enum coll_algo)algo,
					       .window = 65536,
					       .seed = 11 };
			struct call_bufs b[FAKE_N], more[FAKE_N];
			struct world w;

			if (!coll_can(COLL_BROADCAST, set.algo, set.n, set.shape))
				continue;
			setup(&w, &set);
			ck_assert(all_are_root(&w, COLL_BROADCAST, counts[i], b));
			if (!mismatch_told(&w, "called broadcast of")) {
				struct call c = { .kind = COLL_ALL_GATHER, .count = 5, .n = w.n };

				/* all have sent and gone on; the next call finds what is left */
				ck_assert_uint_eq(counts[i], 12);
				for (int p = 0; p < w.n; p++) {
					struct op_args a;

					call_alloc(&c, w.rank_of[p], false, 0, &more[p]);
					a = call_args(&c, w.rank_of[p], &more[p]);
					ck_assert_int_eq(op_prepare(w.rank[p].op, &a), SIRCL_SUCCESS);
					start(&w, p);
				}
				ck_assert(run(&w, 0));
				ck_assert(mismatch_told(&w, "called all_gather of 5 int8, number 1"));
				for (int p = 0; p < w.n; p++)
					call_free(&more[p]);
			}
			for (int p = 0; p < w.n; p++)
				call_free(&b[p]);
			teardown(&w);
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine kinds");
	TCase *c = tcase_create("kinds");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, test_engine_runs_every_kind_by_every_algorithm, 0, COLL_KINDS);
	tcase_add_loop_test(c, test_engine_rounds_change_no_result, 0, COLL_KINDS);
	tcase_add_test(c, test_engine_takes_every_type_and_operation);
	tcase_add_test(c, test_engine_refuses_calls_that_cannot_be);
	tcase_add_test(c, test_engine_refuses_slices_that_scratch_cannot_hold);
	tcase_add_test(c, test_engine_operations_of_a_team_share_their_scratch);
	tcase_add_loop_test(c, test_engine_different_roots_are_an_error_and_no_hang, 0, 4);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
