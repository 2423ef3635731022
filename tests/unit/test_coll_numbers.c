/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on real numbers: an interpreter of its own, which shares nothing with the prover, runs the plans of
 * all positions in random order, slice by slice, reads the source of a SEND at any moment before its release,
 * and compares the result bit for bit with the sum in the order that the algorithm documents, written down
 * here a second time.
 */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coll/coll.h"
#include "reduce/reduce.h"

#define MAX_N 8
#define MAX_COUNT 700
#define MAX_SLICES 6
#define MAX_STEPS 128
#define MAX_SCRATCH 40

static uint64_t seed;

static unsigned rnd(unsigned below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(seed >> 33) % below;
}

/* ---- the interpreter ---- */

struct node {
	struct plan *plan;
	uint8_t in[MAX_COUNT * 4], out[MAX_N * MAX_COUNT * 4];
	uint8_t scratch[MAX_SCRATCH][MAX_COUNT * 4];
	uint8_t *inp; /* in, or its place in out */
	int done[MAX_STEPS], released[MAX_STEPS]; /* slices; SEND: done = queued */
	uint64_t freed[MAX_STEPS]; /* SEND: bit i: slice i is released */
};

struct message {
	int step, slice;
	bool taken;
	size_t len;
	uint8_t data[MAX_COUNT * 4];
};

struct world {
	enum coll_kind kind;
	sircl_type_t type;
	size_t count, size, slice;
	int n;
	struct node node[MAX_N];
	struct message *wire[MAX_N][PLAN_CHANS]; /* by sender */
	int sent[MAX_N][PLAN_CHANS], got[MAX_N][PLAN_CHANS];
};

static void extent(const struct world *w, const struct plan *p, const struct plan_span *x, size_t *lo,
		   size_t *hi)
{
	size_t b = x->buf == PLAN_SCRATCH ? x->as : x->block, c = w->count, nb = p->nblocks;

	if (p->parts && x->buf == PLAN_IN)
		nb = p->parts;
	else if (p->parts)
		c *= (size_t)w->n;
	*lo = b * c / nb;
	*hi = (b + 1) * c / nb;
}

static uint8_t *place(struct world *w, struct node *d, const struct plan_span *x, int slice, bool acc,
		      size_t *elems)
{
	size_t lo, hi, at = (size_t)slice * w->slice, size = acc ? 4 : w->size;

	extent(w, d->plan, x, &lo, &hi);
	*elems = at >= hi - lo ? 0 : hi - lo - at < w->slice ? hi - lo - at : w->slice;
	if (x->buf == PLAN_SCRATCH)
		return d->scratch[x->block] + at * size;
	return (x->buf == PLAN_IN ? d->inp : d->out) + (lo + at) * size;
}

static bool may_start(const struct node *d, const struct plan_step *s, int i)
{
	for (int k = 0; k < 4; k++)
		if (s->after[k] != PLAN_NONE && d->done[s->after[k]] <= i)
			return false;
	for (int k = 0; k < 2; k++)
		if (s->released[k] != PLAN_NONE && !(d->freed[s->released[k]] >> i & 1))
			return false;
	return true;
}

static void take(struct world *w, int pos, int chan, struct message *m)
{
	struct node *d = &w->node[pos];
	const uint8_t *src = place(w, d, &d->plan->step[m->step].src[0], m->slice, false, &m->len);

	(void)chan;
	m->len *= w->size;
	if (m->taken) /* a replay must find the same bytes */
		ck_assert_msg(!memcmp(m->data, src, m->len), "%s: source changed", d->plan->name);
	memcpy(m->data, src, m->len);
	m->taken = true;
}

/* One slice of one step, if it can run now. */
static bool run(struct world *w, int pos, int step)
{
	struct node *d = &w->node[pos];
	struct plan_step *s = &d->plan->step[step];
	int i = d->done[step], peer, *cursor;
	const void *src[4];
	struct message *m;
	size_t elems, other;
	uint8_t *dst;

	if (i == MAX_SLICES || !may_start(d, s, i))
		return false;
	switch (s->op) {
	case PLAN_SEND:
		for (int k = 0; k < step; k++) /* in step-major order */
			if (d->plan->step[k].op == PLAN_SEND && d->plan->step[k].chan == s->chan &&
			    d->done[k] < MAX_SLICES)
				return false;
		w->wire[pos][s->chan][w->sent[pos][s->chan]++] = (struct message){ .step = step, .slice = i };
		break;
	case PLAN_RECV:
		for (int k = 0; k < step; k++)
			if (d->plan->step[k].op == PLAN_RECV && d->plan->step[k].chan == s->chan &&
			    d->done[k] < MAX_SLICES)
				return false;
		peer = (pos + (s->chan == PLAN_NEXT ? 1 : w->n - 1)) % w->n;
		cursor = &w->got[peer][!s->chan];
		if (*cursor == w->sent[peer][!s->chan])
			return false;
		m = &w->wire[peer][!s->chan][(*cursor)++];
		take(w, peer, !s->chan, m);
		dst = place(w, d, &s->dst, i, false, &elems);
		ck_assert_uint_eq(elems * w->size, m->len);
		memcpy(dst, m->data, m->len);
		break;
	case PLAN_REDUCE:
		dst = place(w, d, &s->dst, i, s->flags & PLAN_ACC_OUT, &elems);
		for (int k = 0; k < s->nsrc; k++) {
			src[k] = place(w, d, &s->src[k], i, k == 0 && (s->flags & PLAN_ACC_IN), &other);
			ck_assert_uint_eq(elems, other);
		}
		reduce_run(w->type, SIRCL_SUM,
			   (s->flags & PLAN_ACC_OUT ? REDUCE_ACC_OUT : 0u) |
				   (s->flags & PLAN_ACC_IN ? REDUCE_ACC_IN : 0u),
			   NULL, dst, src, s->nsrc, elems);
		break;
	default:
		dst = place(w, d, &s->dst, i, false, &elems);
		src[0] = place(w, d, &s->src[0], i, false, &other);
		ck_assert_uint_eq(elems, other);
		memmove(dst, src[0], elems * w->size);
	}
	d->done[step]++;
	return true;
}

/* Acknowledges a message that has arrived, after looking at its source once more, as a replay would. */
static bool acknowledge(struct world *w, int pos, int chan)
{
	int n = w->got[pos][chan], k = n ? (int)rnd((unsigned)n) : 0;
	struct message *m = &w->wire[pos][chan][k];
	struct node *d = &w->node[pos];

	if (!n || (d->freed[m->step] >> m->slice & 1))
		return false;
	take(w, pos, chan, m);
	d->freed[m->step] |= 1ull << m->slice;
	return true;
}

static void execute(struct world *w)
{
	int idle = 0;

	while (idle < 20000) {
		int pos = (int)rnd((unsigned)w->n);
		bool moved;

		if (rnd(4) == 0)
			moved = acknowledge(w, pos, (int)rnd(PLAN_CHANS));
		else
			moved = run(w, pos, (int)rnd(w->node[pos].plan->nsteps));
		idle = moved ? 0 : idle + 1;
	}
	for (int p = 0; p < w->n; p++)
		for (int s = 0; s < w->node[p].plan->nsteps; s++)
			ck_assert_msg(w->node[p].done[s] == MAX_SLICES, "%s: position %d stuck in step %d",
				      w->node[p].plan->name, p, s);
}

/* ---- the documented orders, written down again ---- */

static float get(const struct world *w, const uint8_t *p, size_t i)
{
	uint32_t u;
	uint16_t h;
	float f;

	if (w->type == SIRCL_FLOAT32) {
		memcpy(&f, p + 4 * i, 4);
		return f;
	}
	memcpy(&h, p + 2 * i, 2);
	u = (uint32_t)h << 16;
	memcpy(&f, &u, 4);
	return f;
}

static float rounded(const struct world *w, float f)
{
	uint32_t u;

	if (w->type == SIRCL_FLOAT32)
		return f;
	memcpy(&u, &f, 4);
	u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
	memcpy(&f, &u, 4);
	return f;
}

static float want_sum(const struct world *w, const struct plan_key *k, uint8_t (*in)[MAX_COUNT * 4], size_t i)
{
	size_t n = k->n, b;
	float p[MAX_N], v;
	int dir, q;

	for (size_t j = 0; j < n; j++)
		p[j] = get(w, in[j], i);
	switch (k->algo) {
	case ALGO_TWO_MATCHINGS:
		if (n == 2)
			return rounded(w, p[0] + p[1]);
		if (i < w->count / 2)
			return rounded(w, rounded(w, p[0] + p[1]) + rounded(w, p[2] + p[3]));
		return rounded(w, rounded(w, p[0] + p[3]) + rounded(w, p[1] + p[2]));
	case ALGO_DOUBLING:
		return n == 2 ? rounded(w, p[0] + p[1])
			      : rounded(w, rounded(w, p[0] + p[1]) + rounded(w, p[2] + p[3]));
	case ALGO_PIPELINE:
		v = 0;
		for (size_t s = 0; s < n; s++) {
			size_t from = i < w->count / 2 ? s : n - 1 - s;

			v = s == 0 ? p[from] : rounded(w, v + p[from]);
		}
		return v;
	case ALGO_RING:
		for (b = 0; i >= (b + 1) * w->count / n;)
			b++;
		dir = i < (2 * b + 1) * w->count / (2 * n) ? 1 : (int)n - 1;
		q = (int)b;
		v = 0;
		for (size_t s = 0; s < n; s++) {
			q = (q + dir) % (int)n;
			v = s == 0 ? p[q] : rounded(w, v + p[q]);
		}
		return v;
	default:
		v = 0;
		for (size_t r = 0; r < n; r++)
			for (size_t j = 0; j < n; j++)
				if (k->rank_of[j] == r)
					v = r == 0 ? p[j] : v + p[j];
		return rounded(w, v);
	}
}

static struct world *w;
static uint8_t original[MAX_N][MAX_COUNT * 4];

static void setup(const struct plan_key *key, sircl_type_t type, size_t count, size_t slice, bool in_place)
{
	struct plan_key k = *key;

	memset(w, 0, offsetof(struct world, node));
	memset(w->sent, 0, sizeof(w->sent));
	memset(w->got, 0, sizeof(w->got));
	w->kind = k.kind;
	w->type = type;
	w->size = type_size(type);
	w->count = count;
	w->slice = slice;
	w->n = k.n;
	for (int p = 0; p < k.n; p++) {
		struct node *d = &w->node[p];

		k.pos = (uint16_t)p;
		ck_assert_int_eq(plan_build(&k, &d->plan), SIRCL_SUCCESS);
		ck_assert_int_le(d->plan->nsteps, MAX_STEPS);
		ck_assert_int_le(d->plan->nscratch, MAX_SCRATCH);
		memset(d->done, 0, sizeof(d->done));
		memset(d->freed, 0, sizeof(d->freed));
		memset(d->out, 0xee, sizeof(d->out));
		memset(d->scratch, 0xdd, sizeof(d->scratch));
		d->inp = d->in;
		if (in_place)
			d->inp = d->out + (k.kind == COLL_ALL_GATHER ? k.rank_of[p] * count * w->size : 0);
		for (size_t i = 0; i < count; i++) {
			float f = (float)((int)rnd(2000001) - 1000000) * (rnd(2) ? 1.0f : 0x1p-12f);
			uint32_t u;

			memcpy(&u, &f, 4);
			memcpy(d->inp + i * w->size, w->size == 4 ? (uint8_t *)&u : (uint8_t *)&u + 2,
			       w->size);
		}
		memcpy(original[p], d->inp, count * w->size);
	}
}

static void compare(const struct plan_key *k)
{
	for (int p = 0; p < w->n; p++) {
		struct node *d = &w->node[p];

		for (size_t i = 0; k->kind == COLL_ALL_REDUCE && i < w->count; i++) {
			float got = get(w, d->out, i), want = want_sum(w, k, original, i);

			ck_assert_msg(!memcmp(&got, &want, 4),
				      "%s of %d, position %d, element %zu of %zu: %a not %a", d->plan->name,
				      w->n, p, i, w->count, got, want);
		}
		for (int q = 0; k->kind == COLL_ALL_GATHER && q < w->n; q++)
			ck_assert_msg(!memcmp(d->out + k->rank_of[q] * w->count * w->size, original[q],
					      w->count * w->size),
				      "%s of %d, position %d: contribution of %d", d->plan->name, w->n, p, q);
		if (d->inp == d->in)
			ck_assert(!memcmp(d->in, original[p], w->count * w->size));
	}
}

static void one(const struct plan_key *key, sircl_type_t type, size_t count, bool in_place)
{
	size_t longest = key->kind == COLL_ALL_REDUCE && key->algo == ALGO_RING ? count / 2 + 1 : count;

	setup(key, type, count, longest / 4 + 1, in_place);
	execute(w);
	compare(key);
	for (int p = 0; p < w->n; p++)
		free(w->node[p].plan);
}

static void all(enum coll_kind kind)
{
	static const size_t counts[] = { 0, 1, 3, 37, 256, MAX_COUNT - 1 };

	seed = 99;
	for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
		for (int shape = SHAPE_RING; shape <= SHAPE_LINE; shape++)
			for (int n = 1; n <= MAX_N; n++)
				for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
					struct plan_key k = { .kind = kind,
							      .algo = (enum coll_algo)algo,
							      .shape = (enum coll_shape)shape,
							      .n = (uint16_t)n };

					if (!coll_can(kind, k.algo, n, k.shape))
						continue;
					for (int p = 0; p < n; p++)
						k.rank_of[p] = (uint16_t)p;
					for (int p = n - 1; c % 2 && p > 0; p--) {
						unsigned q = rnd((unsigned)p + 1);
						uint16_t t = k.rank_of[p];

						k.rank_of[p] = k.rank_of[q];
						k.rank_of[q] = t;
					}
					one(&k, c % 3 ? SIRCL_BFLOAT16 : SIRCL_FLOAT32, counts[c],
					    (c + (size_t)n) % 2);
				}
}

START_TEST(test_coll_all_reduce_gives_the_bits_of_its_documented_order)
{
	all(COLL_ALL_REDUCE);
}
END_TEST

START_TEST(test_coll_all_gather_puts_every_rank_in_its_place)
{
	all(COLL_ALL_GATHER);
}
END_TEST

static void make_world(void)
{
	w = calloc(1, sizeof(*w));
	ck_assert_ptr_nonnull(w);
	for (int p = 0; p < MAX_N; p++)
		for (int c = 0; c < PLAN_CHANS; c++) {
			w->wire[p][c] = calloc(MAX_STEPS * MAX_SLICES, sizeof(struct message));
			ck_assert_ptr_nonnull(w->wire[p][c]);
		}
}

static void free_world(void)
{
	for (int p = 0; p < MAX_N; p++)
		for (int c = 0; c < PLAN_CHANS; c++)
			free(w->wire[p][c]);
	free(w);
}

int main(void)
{
	Suite *s = suite_create("coll_numbers");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, make_world, free_world);
	tcase_add_test(t, test_coll_all_reduce_gives_the_bits_of_its_documented_order);
	tcase_add_test(t, test_coll_all_gather_puts_every_rank_in_its_place);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
