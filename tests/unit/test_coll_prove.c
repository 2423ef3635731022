/* SPDX-License-Identifier: Apache-2.0 */
/* The prover accepts what the builders build, for every n, shape and order of ranks, and refuses real plans
 * into which one fault each was planted. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coll/coll.h"

struct set {
	int n, root;
	struct plan *plan[COLL_MAX_RANKS];
};

static uint64_t seed = 1;

static int rnd(int below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (int)((seed >> 33) % (unsigned)below);
}

enum perm { IDENTITY, REVERSED, SHUFFLED, PERMS = SHUFFLED + 3 };

static void key_init(struct plan_key *k, enum coll_kind kind, enum coll_algo algo, enum coll_shape shape,
		     int n, int perm)
{
	*k = (struct plan_key){ .kind = kind, .algo = algo, .shape = shape, .n = (uint16_t)n };
	for (int p = 0; p < n; p++)
		k->rank_of[p] = (uint16_t)(perm == REVERSED ? n - 1 - p : p);
	for (int p = n - 1; perm >= SHUFFLED && p > 0; p--) {
		int q = rnd(p + 1);
		uint16_t t = k->rank_of[p];

		k->rank_of[p] = k->rank_of[q];
		k->rank_of[q] = t;
	}
}

static struct set build_key(const struct plan_key *key)
{
	struct set s = { .n = key->n, .root = key->root };
	struct plan_key k = *key;

	for (int p = 0; p < k.n; p++) {
		k.pos = (uint16_t)p;
		ck_assert_msg(plan_build(&k, &s.plan[p]) == SIRCL_SUCCESS, "%s", error_last()->msg);
	}
	return s;
}

static struct set build(enum coll_kind kind, enum coll_algo algo, enum coll_shape shape, int n, int perm)
{
	struct plan_key k;

	key_init(&k, kind, algo, shape, n, perm);
	return build_key(&k);
}

static void drop(struct set *s)
{
	for (int p = 0; p < s->n; p++)
		free(s->plan[p]);
}

static struct plan_report prove(enum coll_kind kind, const struct set *s, int window)
{
	struct plan_report r;

	ck_assert_msg(plan_prove(kind, s->root, (const struct plan *const *)s->plan, s->n, window, &r) ==
			      SIRCL_SUCCESS,
		      "%s", error_last()->msg);
	return r;
}

static void show(const struct plan *p)
{
	static char text[65536];

	plan_print(p, text, sizeof(text));
	fputs(text, stderr);
}

static void prove_built(const struct plan_key *k)
{
	struct set s = build_key(k);
	struct plan_report r = prove(k->kind, &s, (int)s.plan[0]->window);

	if (!r.ok)
		show(s.plan[0]);
	ck_assert_msg(r.ok, "%s%s on a %s of %d, root %u: %s", s.plan[0]->name, k->scaled ? " scaled" : "",
		      k->shape ? "line" : "ring", k->n, k->root, r.why);
	ck_assert_uint_eq(r.need_window, s.plan[0]->window);
	ck_assert_uint_gt(r.steps_run, 0);
	drop(&s);
}

/* First and last rank, and one between. */
static int prove_roots(struct plan_key *k)
{
	int proved = 0;

	for (int i = 0; i < 3; i++) {
		k->root = (uint16_t)(i == 0 ? 0 : i == 1 ? k->n - 1 : rnd(k->n));
		for (int scaled = 0; scaled <= (coll_reduces(k->kind) && k->n > 1); scaled++) {
			k->scaled = scaled;
			prove_built(k);
			proved++;
		}
		if (!coll_has_root(k->kind))
			break;
	}
	return proved;
}

static int prove_all(int from, int to, int perms)
{
	struct plan_key k;
	int proved = 0;

	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = SHAPE_RING; shape <= SHAPE_LINE; shape++)
				for (int n = from; n <= to; n++)
					for (int perm = 0; perm < perms; perm++) {
						if (!coll_can((enum coll_kind)kind, (enum coll_algo)algo, n,
							      (enum coll_shape)shape))
							continue;
						key_init(&k, (enum coll_kind)kind, (enum coll_algo)algo,
							 (enum coll_shape)shape, n, perm);
						proved += prove_roots(&k);
					}
	return proved;
}

START_TEST(test_coll_all_builders_are_proved_for_n_2_to_16)
{
	int few = prove_all(2, 8, PERMS), many = prove_all(9, 16, 2);

	/* Every kind, algorithm, shape and root asked for; a pre-multiplied sum counts again. */
	ck_assert_int_eq(few, 540 * PERMS);
	ck_assert_int_eq(many, 600 * 2);
}
END_TEST

START_TEST(test_coll_one_rank_and_many_are_proved)
{
	ck_assert_int_gt(prove_all(1, 1, 1), 0);
	ck_assert_int_gt(prove_all(23, 23, 1), 0);
}
END_TEST

START_TEST(test_coll_sixty_four_ranks_are_proved)
{
	static const struct {
		enum coll_kind kind;
		enum coll_algo algo;
	} spot[] = { { COLL_ALL_REDUCE, ALGO_RING },     { COLL_BROADCAST, ALGO_PIPELINE },
		     { COLL_REDUCE_SCATTER, ALGO_RING }, { COLL_REDUCE, ALGO_PIPELINE },
		     { COLL_ALL_GATHER, ALGO_EXCHANGE }, { COLL_GATHER, ALGO_EXCHANGE } };

	for (size_t i = 0; i < sizeof(spot) / sizeof(spot[0]); i++) {
		struct plan_key k;

		key_init(&k, spot[i].kind, spot[i].algo, SHAPE_RING, 64, SHUFFLED);
		k.root = coll_has_root(k.kind) ? 17 : 0;
		prove_built(&k);
	}
}
END_TEST

START_TEST(test_coll_plans_that_do_not_exist_are_refused)
{
	struct plan_key k;
	struct plan *p;

	key_init(&k, COLL_ALL_REDUCE, ALGO_TWO_MATCHINGS, SHAPE_RING, 3, 0);
	ck_assert_int_eq(plan_build(&k, &p), SIRCL_INTERNAL_ERROR);
	ck_assert_ptr_null(p);
	key_init(&k, COLL_ALL_REDUCE, ALGO_RING, SHAPE_LINE, 4, 0);
	ck_assert_int_eq(plan_build(&k, &p), SIRCL_INTERNAL_ERROR);
	key_init(&k, COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_LINE, 4, 0);
	k.pos = 4;
	ck_assert_int_eq(plan_build(&k, &p), SIRCL_INTERNAL_ERROR);
}
END_TEST

/* ---- planted faults ---- */

static int find(const struct plan *p, enum plan_op op, enum plan_chan chan, int skip)
{
	for (int i = 0; i < p->nsteps; i++)
		if (p->step[i].op == op && (op >= PLAN_REDUCE || p->step[i].chan == chan) && skip-- == 0)
			return i;
	ck_abort_msg("no such step");
	return -1;
}

static void expect(enum coll_kind kind, struct set *s, int window, const char *part)
{
	struct plan_report r = prove(kind, s, window);

	ck_assert_msg(!r.ok, "not caught; expected: %s", part);
	ck_assert_msg(strstr(r.why, part) != NULL, "caught as '%s', expected '%s'", r.why, part);
	drop(s);
}

START_TEST(test_prover_catches_a_missing_contribution)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 4, SHUFFLED);

	s.plan[2]->step[find(s.plan[2], PLAN_REDUCE, 0, 0)].nsrc = 3;
	expect(COLL_ALL_REDUCE, &s, 4, "not all contributions");
	s = build(COLL_ALL_REDUCE, ALGO_RING, SHAPE_RING, 5, IDENTITY);
	{
		struct plan_step *r = &s.plan[1]->step[find(s.plan[1], PLAN_REDUCE, 0, 3)];

		r->nsrc = 1; /* passes on without its own */
	}
	expect(COLL_ALL_REDUCE, &s, 4, "not all contributions");
	s = build(COLL_ALL_GATHER, ALGO_RING, SHAPE_RING, 4, SHUFFLED);
	s.plan[3]->step[find(s.plan[3], PLAN_COPY, 0, 1)].dst.block ^= 1;
	expect(COLL_ALL_GATHER, &s, 4, "block");
	s = build(COLL_ALL_GATHER, ALGO_EXCHANGE, SHAPE_LINE, 3, SHUFFLED);
	s.plan[0]->nsteps--; /* the COPY of its own */
	expect(COLL_ALL_GATHER, &s, 4, "is not written");
}
END_TEST

START_TEST(test_prover_catches_a_contribution_that_counts_twice)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_LINE, 6, SHUFFLED);
	struct plan_step *r = &s.plan[5]->step[find(s.plan[5], PLAN_REDUCE, 0, 1)];

	r->src[2] = r->src[1];
	expect(COLL_ALL_REDUCE, &s, 4, "not all contributions");
	s = build(COLL_ALL_REDUCE, ALGO_TWO_MATCHINGS, SHAPE_RING, 4, IDENTITY);
	r = &s.plan[0]->step[find(s.plan[0], PLAN_REDUCE, 0, 2)];
	r->src[1] = r->src[0];
	s.plan[0]->step[find(s.plan[0], PLAN_REDUCE, 0, 2) - 1].flags = 0;
	for (int p = 0; p < s.n; p++) /* what is not fused needs memory */
		s.plan[p]->held++;
	expect(COLL_ALL_REDUCE, &s, 4, "not all contributions");
}
END_TEST

START_TEST(test_prover_catches_a_read_before_the_write)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_RING, SHAPE_RING, 4, IDENTITY);

	s.plan[1]->step[find(s.plan[1], PLAN_SEND, PLAN_NEXT, 1)].after[0] = PLAN_NONE;
	expect(COLL_ALL_REDUCE, &s, 4, "may ");
	s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 5, IDENTITY);
	s.plan[4]->step[find(s.plan[4], PLAN_REDUCE, 0, 1)].after[0] = PLAN_NONE; /* the accumulator */
	expect(COLL_ALL_REDUCE, &s, 4, "before step");
	s = build(COLL_ALL_GATHER, ALGO_EXCHANGE, SHAPE_LINE, 4, IDENTITY);
	s.plan[1]->step[find(s.plan[1], PLAN_SEND, PLAN_NEXT, 1)].after[0] = PLAN_NONE; /* a relay */
	expect(COLL_ALL_GATHER, &s, 4, "may read out");
	s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 3, IDENTITY);
	s.plan[0]->step[find(s.plan[0], PLAN_SEND, PLAN_NEXT, 0)].src[0].buf = PLAN_OUT;
	expect(COLL_ALL_REDUCE, &s, 4, "nobody has written");
}
END_TEST

START_TEST(test_prover_catches_overwriting_what_is_unacknowledged)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_RING, SHAPE_RING, 4, IDENTITY);
	struct plan_step *x;

	/* a final block over the partial sum that was sent on */
	x = &s.plan[3]->step[find(s.plan[3], PLAN_RECV, PLAN_PREV, 4)];
	ck_assert_uint_ne(x->released[0], PLAN_NONE);
	x->released[0] = PLAN_NONE;
	expect(COLL_ALL_REDUCE, &s, 4, "unacknowledged");
	/* only wrong in place: the sum over IN, which was sent */
	s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_LINE, 5, SHUFFLED);
	x = &s.plan[2]->step[find(s.plan[2], PLAN_REDUCE, 0, 1)];
	ck_assert_uint_ne(x->released[1], PLAN_NONE);
	x->released[1] = PLAN_NONE;
	expect(COLL_ALL_REDUCE, &s, 4, "unacknowledged");
	s = build(COLL_ALL_REDUCE, ALGO_TWO_MATCHINGS, SHAPE_RING, 4, IDENTITY);
	s.plan[0]->step[find(s.plan[0], PLAN_REDUCE, 0, 3)].released[0] = PLAN_NONE;
	expect(COLL_ALL_REDUCE, &s, 4, "unacknowledged");
	s = build(COLL_ALL_REDUCE, ALGO_TWO_MATCHINGS, SHAPE_LINE, 2, IDENTITY);
	s.plan[1]->step[find(s.plan[1], PLAN_REDUCE, 0, 0)].released[0] = PLAN_NONE;
	expect(COLL_ALL_REDUCE, &s, 4, "unacknowledged");
}
END_TEST

/*
 * A circle through a full window. On the cable 0 -> 1 travel X (first half, phase 1), then Y (second half,
 * phase 2). 0 sends its part of phase 1 to 3 only when Y is released; that and what follows it reaches 2,
 * then 1; and 1 accepts X only then. With room for all slices of X and Y it ends, with less it does not.
 */
static struct set circle(void)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_TWO_MATCHINGS, SHAPE_RING, 4, IDENTITY);

	s.plan[0]->step[find(s.plan[0], PLAN_SEND, PLAN_PREV, 0)].released[0] =
		(uint16_t)find(s.plan[0], PLAN_SEND, PLAN_NEXT, 1);
	s.plan[3]->step[find(s.plan[3], PLAN_SEND, PLAN_PREV, 0)].after[0] =
		(uint16_t)find(s.plan[3], PLAN_RECV, PLAN_NEXT, 1);
	s.plan[1]->step[find(s.plan[1], PLAN_RECV, PLAN_PREV, 0)].after[0] =
		(uint16_t)find(s.plan[1], PLAN_RECV, PLAN_NEXT, 1);
	return s;
}

START_TEST(test_prover_catches_a_deadlock_with_the_given_window)
{
	struct set s = circle();
	struct plan_report r;

	for (int window = 0; window < 6; window++) {
		r = prove(COLL_ALL_REDUCE, &s, window);
		ck_assert(!r.ok);
		ck_assert_msg(strstr(r.why, "deadlock with a window of") != NULL, "%s", r.why);
	}
	r = prove(COLL_ALL_REDUCE, &s, 6);
	ck_assert_msg(r.ok, "%s", r.why);
	ck_assert_uint_eq(r.need_window, 6);
	drop(&s);
}
END_TEST

START_TEST(test_prover_catches_a_deadlock_of_shallow_scratch)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 4, IDENTITY);

	s.plan[1]->depth = 2;
	expect(COLL_ALL_REDUCE, &s, 100, "deadlock whatever the window");
	s = build(COLL_ALL_REDUCE, ALGO_TWO_MATCHINGS, SHAPE_RING, 4, IDENTITY);
	for (int p = 0; p < 4; p++)
		s.plan[p]->depth = 1;
	expect(COLL_ALL_REDUCE, &s, 100, "deadlock");
}
END_TEST

START_TEST(test_prover_catches_a_circle_of_waits)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 3, IDENTITY);

	for (int p = 0; p < 3; p++)
		s.plan[p]->step[find(s.plan[p], PLAN_SEND, PLAN_NEXT, 0)].after[0] =
			(uint16_t)find(s.plan[p], PLAN_RECV, PLAN_PREV, 0);
	expect(COLL_ALL_REDUCE, &s, 100, "waits for itself");
}
END_TEST

START_TEST(test_prover_catches_unpaired_and_malformed_steps)
{
	struct set s = build(COLL_ALL_GATHER, ALGO_RING, SHAPE_RING, 4, IDENTITY);
	struct plan_step *x;
	struct plan_span t;
	int i, j;

	s.plan[1]->step[find(s.plan[1], PLAN_SEND, PLAN_NEXT, 1)].chan = PLAN_PREV;
	expect(COLL_ALL_GATHER, &s, 4, "receives");
	s = build(COLL_ALL_GATHER, ALGO_RING, SHAPE_RING, 4, IDENTITY); /* the other half */
	s.plan[1]->step[find(s.plan[1], PLAN_SEND, PLAN_NEXT, 0)].src[0].block ^= 1;
	expect(COLL_ALL_GATHER, &s, 4, "receives it as");
	s = build(COLL_ALL_GATHER, ALGO_RING, SHAPE_RING, 4, IDENTITY); /* two receives swapped */
	i = find(s.plan[2], PLAN_RECV, PLAN_PREV, 0);
	j = find(s.plan[2], PLAN_RECV, PLAN_PREV, 2);
	t = s.plan[2]->step[i].dst;
	s.plan[2]->step[i].dst = s.plan[2]->step[j].dst;
	s.plan[2]->step[j].dst = t;
	for (int k = 0; k < s.plan[2]->nsteps; k++)
		s.plan[2]->step[k].after[0] = PLAN_NONE;
	expect(COLL_ALL_GATHER, &s, 4, "before step");
	s = build(COLL_ALL_REDUCE, ALGO_RING, SHAPE_RING, 4, IDENTITY);
	x = &s.plan[0]->step[find(s.plan[0], PLAN_REDUCE, 0, 0)];
	x->src[1].block ^= 1;
	expect(COLL_ALL_REDUCE, &s, 4, "meets block");
	s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 5, IDENTITY);
	x = &s.plan[0]->step[find(s.plan[0], PLAN_REDUCE, 0, 1)];
	x->flags &= (uint8_t)~PLAN_ACC_IN;
	expect(COLL_ALL_REDUCE, &s, 4, "accumulator");
	s = build(COLL_ALL_REDUCE, ALGO_RING, SHAPE_RING, 4, IDENTITY);
	x = &s.plan[0]->step[find(s.plan[0], PLAN_REDUCE, 0, 0)];
	x->dst.buf = PLAN_IN;
	expect(COLL_ALL_REDUCE, &s, 4, "writes to IN");
	s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 4, IDENTITY);
	s.plan[0]->step[find(s.plan[0], PLAN_RECV, PLAN_PREV, 0)].flags |= PLAN_FUSE; /* it is relayed too */
	expect(COLL_ALL_REDUCE, &s, 4, "fused");
	s = build(COLL_ALL_GATHER, ALGO_EXCHANGE, SHAPE_RING, 3, IDENTITY);
	s.plan[2]->rank = 0;
	expect(COLL_ALL_GATHER, &s, 4, "says position");
}
END_TEST

START_TEST(test_prover_catches_a_finish_or_a_scale_out_of_place)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 5, SHUFFLED);
	struct plan_key k;
	struct plan_step *x;

	s.plan[1]->step[find(s.plan[1], PLAN_REDUCE, 0, 1)].flags &= (uint8_t)~PLAN_FINISH;
	expect(COLL_ALL_REDUCE, &s, 4, "without PLAN_FINISH");
	s = build(COLL_ALL_REDUCE, ALGO_RING, SHAPE_RING, 4, IDENTITY);
	s.plan[2]->step[find(s.plan[2], PLAN_REDUCE, 0, 0)].flags |= PLAN_FINISH;
	expect(COLL_ALL_REDUCE, &s, 4, "not all contributions");
	key_init(&k, COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 3, IDENTITY);
	k.scaled = true;
	s = build_key(&k);
	x = &s.plan[2]->step[find(s.plan[2], PLAN_REDUCE, 0, 0)];
	ck_assert_uint_eq(x->flags, PLAN_SCALE);
	s.plan[2]->step[find(s.plan[2], PLAN_SEND, PLAN_NEXT, 0)].src[0] = x->src[0];
	expect(COLL_ALL_REDUCE, &s, 4, "reads IN past the scaling");
	s = build_key(&k);
	x = &s.plan[0]->step[find(s.plan[0], PLAN_REDUCE, 0, 0)];
	x->flags = 0;
	expect(COLL_ALL_REDUCE, &s, 4, "scaled to what is not");
}
END_TEST

START_TEST(test_prover_catches_the_wrong_order_of_a_sum)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 4, SHUFFLED);
	struct plan_step *r = &s.plan[3]->step[find(s.plan[3], PLAN_REDUCE, 0, 0)];
	struct plan_span t = r->src[1];

	r->src[1] = r->src[2];
	r->src[2] = t;
	expect(COLL_ALL_REDUCE, &s, 4, "another order than on position 0");
	s = build(COLL_REDUCE_SCATTER, ALGO_EXCHANGE, SHAPE_LINE, 4, IDENTITY);
	r = &s.plan[1]->step[find(s.plan[1], PLAN_REDUCE, 0, 0)];
	ck_assert_uint_eq(r->nsrc, 4);
	t = r->src[1];
	r->src[1] = r->src[2];
	r->src[2] = t;
	expect(COLL_REDUCE_SCATTER, &s, 4, "not summed in rank order");
}
END_TEST

START_TEST(test_prover_catches_data_in_the_wrong_place)
{
	struct set s = build(COLL_ALL_TO_ALL, ALGO_EXCHANGE, SHAPE_LINE, 3, SHUFFLED);
	struct plan_step *x = &s.plan[0]->step[find(s.plan[0], PLAN_SEND, PLAN_NEXT, 0)];

	x->src[0].block = x->src[0].as =
		(uint16_t)((x->src[0].block + s.plan[0]->parts) % s.plan[0]->nblocks);
	expect(COLL_ALL_TO_ALL, &s, 4, "of the data, not");
	s = build(COLL_BROADCAST, ALGO_EXCHANGE, SHAPE_RING, 4, IDENTITY); /* from rank 0 */
	x = &s.plan[1]->step[find(s.plan[1], PLAN_SEND, PLAN_NEXT, 0)];
	x->src[0].buf = PLAN_IN;
	expect(COLL_BROADCAST, &s, 4, "does not have");
	s = build(COLL_GATHER, ALGO_EXCHANGE, SHAPE_LINE, 4, IDENTITY);
	x = &s.plan[1]->step[find(s.plan[1], PLAN_RECV, PLAN_NEXT, 0)];
	x->dst = (struct plan_span){ PLAN_OUT, x->dst.as, x->dst.as };
	expect(COLL_GATHER, &s, 4, "does not have");
}
END_TEST

START_TEST(test_prover_catches_scratch_used_again_too_early_or_too_much)
{
	struct set s = build(COLL_GATHER, ALGO_EXCHANGE, SHAPE_LINE, 6, IDENTITY);
	int again = 0;

	for (int p = 0; p < s.n; p++)
		for (int i = 0; i < s.plan[p]->nsteps && !again; i++) {
			struct plan_step *x = &s.plan[p]->step[i];

			if (x->op == PLAN_RECV && x->dst.buf == PLAN_SCRATCH && x->released[0] != PLAN_NONE) {
				x->released[0] = PLAN_NONE;
				again++;
			}
		}
	ck_assert_int_eq(again, 1);
	expect(COLL_GATHER, &s, 4, "unacknowledged");
	s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 5, IDENTITY);
	for (int p = 0; p < s.n; p++)
		s.plan[p]->held--;
	expect(COLL_ALL_REDUCE, &s, 4, "held says");
	s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 5, IDENTITY);
	for (int p = 0; p < s.n; p++)
		s.plan[p]->held_wide = 0;
	expect(COLL_ALL_REDUCE, &s, 4, "held says");
}
END_TEST

START_TEST(test_plan_print_tells_its_length_and_never_overflows)
{
	struct set s = build(COLL_ALL_REDUCE, ALGO_EXCHANGE, SHAPE_RING, 5, SHUFFLED);
	char all[8192], part[8192];
	int len = plan_print(s.plan[3], all, sizeof(all));

	ck_assert_int_eq(len, (int)strlen(all));
	ck_assert_int_eq(plan_print(s.plan[3], NULL, 0), len);
	for (size_t n = 1; n < (size_t)len; n += 7) {
		memset(part, 'x', sizeof(part));
		ck_assert_int_eq(plan_print(s.plan[3], part, n), len);
		ck_assert_uint_eq(strlen(part), n - 1);
		ck_assert_int_eq(part[n], 'x');
		ck_assert(!memcmp(part, all, n - 1));
	}
	ck_assert_ptr_nonnull(strstr(all, "fp32"));
	drop(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("coll_prove");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_coll_all_builders_are_proved_for_n_2_to_16);
	tcase_add_test(t, test_coll_one_rank_and_many_are_proved);
	tcase_add_test(t, test_coll_plans_that_do_not_exist_are_refused);
	tcase_add_test(t, test_prover_catches_a_missing_contribution);
	tcase_add_test(t, test_prover_catches_a_contribution_that_counts_twice);
	tcase_add_test(t, test_prover_catches_a_read_before_the_write);
	tcase_add_test(t, test_prover_catches_overwriting_what_is_unacknowledged);
	tcase_add_test(t, test_prover_catches_a_deadlock_with_the_given_window);
	tcase_add_test(t, test_prover_catches_a_deadlock_of_shallow_scratch);
	tcase_add_test(t, test_prover_catches_a_circle_of_waits);
	tcase_add_test(t, test_prover_catches_unpaired_and_malformed_steps);
	tcase_add_test(t, test_coll_sixty_four_ranks_are_proved);
	tcase_add_test(t, test_prover_catches_a_finish_or_a_scale_out_of_place);
	tcase_add_test(t, test_prover_catches_the_wrong_order_of_a_sum);
	tcase_add_test(t, test_prover_catches_data_in_the_wrong_place);
	tcase_add_test(t, test_prover_catches_scratch_used_again_too_early_or_too_much);
	tcase_add_test(t, test_plan_print_tells_its_length_and_never_overflows);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
