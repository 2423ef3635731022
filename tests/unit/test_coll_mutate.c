/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover against an interpreter that knows nothing of it (plan_interp.h). What the builders build gives
 * the right result under hostile schedules: odd counts, in place and not, 1 to 8 lanes, scratch of any depth,
 * and always the same order of sums. And when a random mutation of a plan changes what comes out under any of
 * these schedules, the prover must have refused it.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan_interp.h"

#define MUTATIONS 1000
#define MUST_CHANGE 300
#define MAX_KEYS 4096

static uint64_t seed = 7; /* MUTATE_SEED=n: another campaign */

static int rnd(int below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (int)((seed >> 33) % (unsigned)below);
}

struct set {
	struct plan_key key;
	struct plan *plan[COLL_MAX_RANKS];
};

static void key_init(struct plan_key *k, int kind, int algo, int shape, int n, bool shuffled)
{
	*k = (struct plan_key){ .kind = (enum coll_kind)kind,
				.algo = (enum coll_algo)algo,
				.shape = (enum coll_shape)shape,
				.n = (uint16_t)n };
	for (int p = 0; p < n; p++)
		k->rank_of[p] = (uint16_t)p;
	for (int p = n - 1; shuffled && p > 0; p--) {
		int q = rnd(p + 1);
		uint16_t t = k->rank_of[p];

		k->rank_of[p] = k->rank_of[q];
		k->rank_of[q] = t;
	}
	if (coll_has_root(k->kind))
		k->root = (uint16_t)rnd(n);
}

static struct set build(const struct plan_key *key)
{
	struct set s = { .key = *key };
	struct plan_key k = *key;

	for (int p = 0; p < k.n; p++) {
		k.pos = (uint16_t)p;
		ck_assert_msg(plan_build(&k, &s.plan[p]) == SIRCL_SUCCESS, "%s", error_last()->msg);
	}
	return s;
}

static void drop(struct set *s)
{
	for (int p = 0; p < s->key.n; p++)
		free(s->plan[p]);
}

/* Everything that can be built for n in from..to. Pre-multiplied sums: for every kind that has them. */
static int list_keys(struct plan_key *key, int from, int to)
{
	int n = 0;

	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
			for (int shape = 0; shape < 2; shape++)
				for (int ranks = from; ranks <= to; ranks++) {
					if (!coll_can((enum coll_kind)kind, (enum coll_algo)algo, ranks,
						      (enum coll_shape)shape))
						continue;
					ck_assert_int_lt(n + 2, MAX_KEYS);
					key_init(&key[n++], kind, algo, shape, ranks, true);
					if (!coll_reduces((enum coll_kind)kind))
						continue;
					key_init(&key[n], kind, algo, shape, ranks, true);
					key[n++].scaled = true;
				}
	return n;
}

static const char *key_text(const struct plan_key *k)
{
	static char text[200];

	snprintf(text, sizeof(text), "%s by %s%s on a %s of %u, root %u", coll_kind_name(k->kind),
		 coll_algo_name(k->algo), k->scaled ? ", scaled," : "", k->shape ? "line" : "ring", k->n,
		 k->root);
	return text;
}

/* ---- schedules ---- */

static const unsigned lazies[] = { 0,
				   LAZY_RELEASE,
				   LAZY_LAND,
				   LAZY_SUM,
				   LAZY_POST,
				   LAZY_RELEASE | LAZY_LAND,
				   LAZY_STEP,
				   LAZY_POS,
				   LAZY_STEP | LAZY_RELEASE,
				   LAZY_STEP | LAZY_LAND };

static struct interp_cfg schedule(const struct set *s, int k, int pos, int step)
{
	struct interp_cfg c = { .kind = s->key.kind, .n = s->key.n, .root = s->key.root };

	c.scaled = s->key.scaled;
	c.in_place = k % 2 != 0;
	c.fuse = rnd(2);
	c.backwards = rnd(2);
	c.slice = 1u + (unsigned)rnd(2);
	c.count = (size_t)(coll_has_root(s->key.kind) || s->plan[0]->parts ? 3 : s->plan[0]->nblocks + 1) +
		  2u * (unsigned)rnd(3);
	c.count |= 1;
	c.round = rnd(3) ? 64 : 1 + rnd(2);
	c.window = (int)s->plan[0]->window + (rnd(2) ? rnd(8) : 0);
	c.lanes = 1 + rnd(INTERP_LANES);
	c.lazy = lazies[k % (int)(sizeof(lazies) / sizeof(lazies[0]))];
	if (s->key.n > 6) /* one event at a time takes long there */
		c.lazy &= LAZY_STEP;
	c.lazy_pos = pos;
	c.lazy_step = step;
	c.seed = (uint64_t)rnd(1 << 30);
	return c;
}

static enum interp_end interpret(const struct set *s, const struct interp_cfg *c, uint64_t *digest)
{
	return interp_run(c, (const struct plan *const *)s->plan, digest);
}

static bool proved(const struct set *s, struct plan_report *r)
{
	ck_assert_msg(plan_prove(s->key.kind, s->key.root, (const struct plan *const *)s->plan, s->key.n,
				 (int)s->plan[0]->window, r) == SIRCL_SUCCESS,
		      "%s", error_last()->msg);
	return r->ok;
}

/* ---- what the builders build ---- */

static void runs_right(const struct plan_key *key, int schedules)
{
	static const char *const end[] = { "right", "wrong", "hung", "a source changes before its release",
					   "touches what is not there" };
	struct set s = build(key);

	for (int k = 0; k < schedules; k++) {
		int pos = rnd(key->n);
		struct interp_cfg c = schedule(&s, schedules > 1 ? k : rnd(20), pos,
					       s.plan[pos]->nsteps ? rnd(s.plan[pos]->nsteps) : 0);
		uint64_t a, b;
		enum interp_end e = interpret(&s, &c, &a);

		ck_assert_msg(e == INTERP_OK,
			      "%s: %s (count %zu, slice %zu, round %d, window %d, lanes %d, "
			      "lazy %u, seed %llu%s)",
			      key_text(key), end[e], c.count, c.slice, c.round, c.window, c.lanes, c.lazy,
			      (unsigned long long)c.seed, c.in_place ? ", in place" : "");
		/* Neither lanes nor timing nor slices are in the bits. */
		c.lazy = key->n > 6 ? 0 : lazies[rnd(6)];
		c.lanes = 1 + c.lanes % INTERP_LANES;
		c.slice = 1u + (unsigned)rnd(4);
		c.round = 64;
		c.fuse = !c.fuse;
		c.in_place = !c.in_place;
		c.seed++;
		ck_assert_int_eq(interpret(&s, &c, &b), INTERP_OK);
		ck_assert_msg(a == b, "%s: another order of the sum", key_text(key));
	}
	drop(&s);
}

START_TEST(test_plans_give_the_right_result_under_hostile_schedules)
{
	static struct plan_key key[MAX_KEYS];
	int n = list_keys(key, 2, 16);

	for (int i = 0; i < n; i++)
		runs_right(&key[i], key[i].n <= 4 ? 20 : key[i].n <= 6 ? 6 : 1);
}
END_TEST

START_TEST(test_bits_do_not_depend_on_the_number_of_lanes)
{
	static struct plan_key key[MAX_KEYS];
	int n = list_keys(key, 2, 5);

	for (int i = 0; i < n; i++) {
		struct set s = build(&key[i]);
		struct interp_cfg c = schedule(&s, i, 0, 0);
		uint64_t one = 0, digest;

		c.slice = 5; /* not a multiple of the lanes: pieces of unequal length, and empty ones */
		for (c.lanes = 1; c.lanes <= INTERP_LANES; c.lanes++, c.seed++) {
			ck_assert_msg(interpret(&s, &c, &digest) == INTERP_OK, "%s with %d lanes",
				      key_text(&key[i]), c.lanes);
			one = c.lanes == 1 ? digest : one;
			ck_assert_msg(digest == one, "%s: other bits with %d lanes", key_text(&key[i]),
				      c.lanes);
		}
		drop(&s);
	}
}
END_TEST

/* ---- mutations ---- */

enum mutation { DROP, DOUBLE, SWAP, UNWAIT, BLOCK, CHANNEL, SOURCE, FLAG, KINDS };
static const char *const mutation_name[] = { "drop",  "double",  "swap",   "unwait",
					     "block", "channel", "source", "flag" };

static uint16_t *wait_of(struct plan_step *s, int k)
{
	return k < 4 ? &s->after[k] : &s->released[k - 4];
}

/* Step x is now step to[x]; PLAN_NONE: it is gone. */
static void renumber(struct plan *p, const uint16_t *to)
{
	for (int i = 0; i < p->nsteps; i++)
		for (int k = 0; k < 6; k++) {
			uint16_t *x = wait_of(&p->step[i], k);

			if (*x != PLAN_NONE)
				*x = to[*x];
		}
}

static bool move_steps(struct plan *p, enum mutation what, int i, int j)
{
	uint16_t to[4096];
	struct plan_step t = p->step[i];

	ck_assert_int_lt(p->nsteps, 4096);
	for (int k = 0; k < p->nsteps; k++)
		to[k] = (uint16_t)(k <= i || what == SWAP ? k : what == DROP ? k - 1 : k + 1);
	if (what == DROP) {
		to[i] = PLAN_NONE;
		memmove(&p->step[i], &p->step[i + 1], (size_t)(p->nsteps - i - 1) * sizeof(t));
		p->nsteps--;
	} else if (what == DOUBLE) {
		memmove(&p->step[i + 1], &p->step[i], (size_t)(p->nsteps - i) * sizeof(t));
		p->nsteps++;
	} else {
		to[i] = (uint16_t)j;
		to[j] = (uint16_t)i;
		p->step[i] = p->step[j];
		p->step[j] = t;
	}
	renumber(p, to);
	return i != j || what != SWAP;
}

static bool unwait(struct plan *p, int i)
{
	int first = rnd(6);

	for (int k = 0; k < 6; k++) {
		uint16_t *x = wait_of(&p->step[i], (first + k) % 6);

		if (*x == PLAN_NONE)
			continue;
		*x = PLAN_NONE;
		return true;
	}
	return false;
}

static struct plan_span *some_span(struct plan *p, int i)
{
	struct plan_step *s = &p->step[i];
	int k = rnd(s->nsrc + (s->op != PLAN_SEND));

	return k < s->nsrc ? &s->src[k] : &s->dst;
}

/* Another block of the same buffer, near by or, more often, of the same length. */
static bool change_block(struct plan *p, int i)
{
	struct plan_span *x = some_span(p, i);
	int step = p->parts && x->buf != PLAN_SCRATCH && rnd(4) ? p->parts : 1;
	int room = x->buf == PLAN_SCRATCH ? p->nscratch : p->nblocks;
	uint16_t was = x->block;

	x->block = (uint16_t)((x->block + step * (1 + rnd(3))) % (room + 1));
	if (x->buf != PLAN_SCRATCH)
		x->as = x->block;
	return x->block != was;
}

/* Reads what another step reads or writes. */
static bool change_source(struct plan *p, int i)
{
	struct plan_step *s = &p->step[i];
	struct plan_span *x, *y = some_span(p, rnd(p->nsteps));

	if (s->nsrc == 0)
		return false;
	x = &s->src[rnd(s->nsrc)];
	if (x->buf == y->buf && x->block == y->block)
		return false;
	*x = *y;
	return true;
}

static bool mutate(struct plan *p, enum mutation what, int i)
{
	struct plan_step *s = &p->step[i];

	switch (what) {
	case DROP:
	case DOUBLE:
		return move_steps(p, what, i, 0);
	case SWAP:
		return move_steps(p, what, i, rnd(4) ? (i + 1 + rnd(3)) % p->nsteps : rnd(p->nsteps));
	case UNWAIT:
		return unwait(p, i);
	case BLOCK:
		return change_block(p, i);
	case CHANNEL:
		s->chan ^= s->op <= PLAN_RECV;
		return s->op <= PLAN_RECV;
	case SOURCE:
		return change_source(p, i);
	default:
		s->flags ^= (uint8_t)(1u << (s->op == PLAN_REDUCE ? (rnd(2) ? 3 : rnd(2)) : 2));
		return s->op == PLAN_REDUCE || s->op == PLAN_RECV;
	}
}

static struct plan *with_room(const struct plan *p)
{
	size_t size = sizeof(*p) + p->nsteps * sizeof(p->step[0]);
	struct plan *q = malloc(size + sizeof(p->step[0]));

	ck_assert_ptr_nonnull(q);
	memcpy(q, p, size);
	return q;
}

/*
 * Whether anything else comes out, or the same added in another order, or nothing, or a source changes, under
 * any of many schedules. plain: the plan before the mutation.
 */
static enum interp_end changes(struct set *s, int pos, int step, struct plan *plain)
{
	struct plan *mutant = s->plan[pos];

	for (int k = 0; k < 40; k++) {
		struct interp_cfg c = schedule(s, k, pos, step);
		uint64_t before, after;
		enum interp_end e;

		if (k >= 20 && mutant->nsteps > 0) {
			c.lazy_pos = rnd(s->key.n);
			c.lazy_step = rnd(s->plan[c.lazy_pos]->nsteps + 1);
		}
		e = interpret(s, &c, &after);
		if (e != INTERP_OK)
			return e;
		s->plan[pos] = plain;
		ck_assert_int_eq(interpret(s, &c, &before), INTERP_OK);
		s->plan[pos] = mutant;
		if (before != after)
			return INTERP_WRONG;
	}
	return INTERP_OK;
}

struct tally {
	int done, sum, over; /* mutations; that change the result; that are refused besides */
	int all[KINDS], changed[KINDS], ends[INTERP_FAULT + 1];
};

/* One mutation of one position's plan, if it is one that can be made. */
static void mutate_once(const struct plan_key *key, struct tally *t)
{
	struct set set = build(key), *s = &set;
	int pos = rnd(key->n), step;
	static char text[65536];
	enum mutation what = rnd(3) ? (enum mutation)rnd(KINDS) : UNWAIT;
	struct plan *plain = s->plan[pos], *mutant;
	struct plan_report r;

	if (!plain->nsteps) {
		drop(s);
		return;
	}
	step = rnd(plain->nsteps);
	mutant = with_room(plain);
	s->plan[pos] = mutant;
	if (mutate(mutant, what, step)) {
		bool refused = !proved(s, &r);
		enum interp_end end = changes(s, pos, step, plain);
		bool bad = end != INTERP_OK;

		t->done++;
		t->all[what]++;
		t->changed[what] += bad;
		t->sum += bad;
		t->over += refused && !bad;
		t->ends[end]++;
		plan_print(mutant, text, sizeof(text));
		ck_assert_msg(
			refused || !bad,
			"%s: position %d, step %d, %s: changes the result, and the prover accepts it:\n%s",
			key_text(&s->key), pos, step, mutation_name[what], text);
	}
	free(mutant);
	s->plan[pos] = plain;
	drop(s);
}

START_TEST(test_prover_refuses_every_mutation_that_changes_the_result)
{
	static struct plan_key key[MAX_KEYS];
	struct tally t = { 0 };
	int n = list_keys(key, 2, 6);

	while (t.done < MUTATIONS)
		mutate_once(&key[rnd(n)], &t);
	printf("%d mutations, %d change the result, %d of them caught; refused besides: %d\n", t.done, t.sum,
	       t.sum, t.over);
	printf("  wrong %d, hung %d, source changes before its release %d, lengths or numbers differ %d\n",
	       t.ends[INTERP_WRONG], t.ends[INTERP_HUNG], t.ends[INTERP_RACE], t.ends[INTERP_FAULT]);
	for (int k = 0; k < KINDS; k++)
		printf("  %-8s %4d, %4d change the result\n", mutation_name[k], t.all[k], t.changed[k]);
	ck_assert_int_ge(t.sum, MUST_CHANGE);
	ck_assert_int_ge(t.ends[INTERP_WRONG] + t.ends[INTERP_RACE], MUST_CHANGE / 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("coll_mutate");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	const char *other = getenv("MUTATE_SEED");
	int bad;

	if (other)
		seed = strtoull(other, NULL, 0);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_plans_give_the_right_result_under_hostile_schedules);
	tcase_add_test(t, test_bits_do_not_depend_on_the_number_of_lanes);
	tcase_add_test(t, test_prover_refuses_every_mutation_that_changes_the_result);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
