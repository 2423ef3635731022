/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of all kinds on real numbers, for any root, ring and line, permuted ranks, in place and not, sums,
 * averages and pre-multiplied sums: an interpreter that shares nothing with the prover or the engine, and the
 * documented orders written down once more in plain code.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coll/coll.h"
#include "reduce/reduce.h"

#define SLICES 3
#define MAX_N COLL_MAX_RANKS

static uint64_t seed = 7;

static unsigned rnd(unsigned below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(seed >> 33) % below;
}

struct message {
	uint16_t step, slice;
	size_t len;
	uint8_t *data; /* as it was sent: a replay must find the same */
	bool released;
};

struct wire {
	struct message *m;
	int sent, got, first; /* first: all before are released */
};

struct node {
	struct plan *plan;
	uint8_t *in, *out, *own; /* own: what `in` held at the start */
	uint8_t *scratch;
	int *done, *freed;
	struct wire wire[PLAN_CHANS];
};

struct job {
	struct plan_key key;
	sircl_type_t type;
	sircl_op_t op;
	size_t count, size, in_bytes, out_bytes, slice, stride;
	bool in_place;
	long left; /* slices of steps that are not done */
	struct node node[MAX_N];
};

static struct job j;

static bool shares(enum coll_kind k)
{
	return k == COLL_ALL_GATHER || k == COLL_REDUCE_SCATTER || k == COLL_ALL_TO_ALL || k == COLL_GATHER ||
	       k == COLL_SCATTER;
}

/* Elements [lo, hi) of the buffer that a span is in; of scratch, as if it were a whole buffer. */
static void extent(const struct plan *p, const struct plan_span *x, size_t *lo, size_t *hi)
{
	bool part = (x->buf == PLAN_IN && p->in_part) || (x->buf == PLAN_OUT && p->out_part);
	size_t b = x->buf == PLAN_SCRATCH ? x->as : x->block, nb = part ? p->parts : p->nblocks;
	size_t c = p->parts && !part ? j.count * p->n : j.count;

	*lo = b * c / nb;
	*hi = (b + 1) * c / nb;
}

static uint8_t *place(struct node *d, const struct plan_span *x, int slice, bool wide, size_t *elems)
{
	size_t lo, hi, at = (size_t)slice * j.slice;

	extent(d->plan, x, &lo, &hi);
	*elems = at >= hi - lo ? 0 : hi - lo - at < j.slice ? hi - lo - at : j.slice;
	if (x->buf == PLAN_SCRATCH)
		return d->scratch + x->block * j.stride * 8 + at * (wide ? reduce_acc_size(j.type) : j.size);
	return (x->buf == PLAN_IN ? d->in : d->out) + (lo + at) * j.size;
}

static bool may_start(const struct node *d, const struct plan_step *s, int i)
{
	for (int k = 0; k < 4; k++)
		if (s->after[k] != PLAN_NONE && d->done[s->after[k]] <= i)
			return false;
	for (int k = 0; k < 2; k++)
		if (s->released[k] != PLAN_NONE && d->freed[s->released[k]] <= i)
			return false;
	return true;
}

static void sum(struct node *d, const struct plan_step *s, int i, int rank)
{
	float scalar = 0.5f + (float)rank;
	struct reduce_arg arg = { .ranks = j.key.n };
	const void *src[4];
	size_t n, other;
	uint8_t *dst = place(d, &s->dst, i, s->flags & PLAN_ACC_OUT, &n);
	uint32_t bits;

	memcpy(&bits, &scalar, 4);
	bits >>= j.size == 2 ? 16 : 0;
	memcpy(&arg.scalar, &bits, 4);
	for (int k = 0; k < s->nsrc; k++) {
		src[k] = place(d, &s->src[k], i, k == 0 && (s->flags & PLAN_ACC_IN), &other);
		ck_assert_uint_eq(n, other);
	}
	reduce_run(j.type, j.op, s->flags & (PLAN_ACC_OUT | PLAN_ACC_IN | PLAN_FINISH | PLAN_SCALE), &arg,
		   dst, src, s->nsrc, n);
}

static void send(struct node *d, const struct plan_step *s, int step, int i)
{
	struct wire *w = &d->wire[s->chan];
	struct message *m = &w->m[w->sent++];
	size_t n;
	uint8_t *src = place(d, &s->src[0], i, false, &n);

	*m = (struct message){ .step = (uint16_t)step, .slice = (uint16_t)i, .len = n * j.size };
	m->data = malloc(m->len + 1);
	memcpy(m->data, src, m->len);
}

static bool receive(struct node *d, const struct plan_step *s, int pos, int i)
{
	int n = j.key.n, peer = (pos + (s->chan == PLAN_NEXT ? 1 : n - 1)) % n;
	struct wire *w = &j.node[peer].wire[!s->chan];
	size_t len;
	uint8_t *dst = place(d, &s->dst, i, false, &len);

	if (w->got == w->sent)
		return false;
	ck_assert_uint_eq(w->m[w->got].len, len * j.size);
	memcpy(dst, w->m[w->got++].data, len * j.size);
	return true;
}

static bool run(int pos, int step)
{
	struct node *d = &j.node[pos];
	const struct plan_step *s = &d->plan->step[step];
	int i = d->done[step];
	size_t n;
	uint8_t *dst;

	if (!may_start(d, s, i))
		return false;
	switch (s->op) {
	case PLAN_SEND:
		send(d, s, step, i);
		break;
	case PLAN_RECV:
		if (!receive(d, s, pos, i))
			return false;
		break;
	case PLAN_REDUCE:
		sum(d, s, i, d->plan->rank);
		break;
	default:
		dst = place(d, &s->dst, i, false, &n);
		memmove(dst, place(d, &s->src[0], i, false, &n), n * j.size);
	}
	d->done[step]++;
	j.left--;
	return true;
}

/* Releases messages, in order of sending, some before they are received (the neighbour's window has them) and
 * some late; none may have changed since. */
static bool release(struct node *d, struct wire *w, bool all)
{
	bool moved = false;
	size_t n;

	while (w->first < w->sent && (all || rnd(3))) {
		struct message *m = &w->m[w->first++];
		const uint8_t *src = place(d, &d->plan->step[m->step].src[0], m->slice, false, &n);

		ck_assert_msg(!memcmp(src, m->data, m->len), "%s: position %u, the source of step %u changes",
			      d->plan->name, d->plan->pos, m->step);
		d->freed[m->step]++;
		moved = true;
	}
	return moved;
}

/* One pass over the steps of a position: a channel's messages stay in their order. */
static bool pass(int pos)
{
	struct node *d = &j.node[pos];
	bool moved = false, blocked[2][PLAN_CHANS] = { { false } };

	for (int s = 0; s < d->plan->nsteps; s++) {
		const struct plan_step *x = &d->plan->step[s];
		bool *line = x->op <= PLAN_RECV ? &blocked[x->op == PLAN_RECV][x->chan] : NULL;

		while (d->done[s] < SLICES && !(line && *line) && rnd(8) && run(pos, s))
			moved = true;
		if (line && d->done[s] < SLICES)
			*line = true;
	}
	return moved;
}

static void execute(void)
{
	for (int idle = 0; j.left && idle < 100;) {
		bool moved = false;

		for (int k = 0; k < j.key.n; k++) {
			int pos = (int)rnd(j.key.n);

			moved |= pass(pos);
			for (int c = 0; c < PLAN_CHANS; c++)
				moved |= release(&j.node[pos], &j.node[pos].wire[c], false);
		}
		idle = moved ? 0 : idle + 1;
	}
	for (int p = 0; p < j.key.n; p++)
		for (int s = 0; s < j.node[p].plan->nsteps; s++)
			ck_assert_msg(j.node[p].done[s] == SLICES, "%s of %u: position %d stuck in step %d",
				      j.node[p].plan->name, j.key.n, p, s);
}

/* ---- the documented orders ---- */

static float rounded(float f)
{
	uint32_t u;

	if (j.size == 4)
		return f;
	memcpy(&u, &f, 4);
	u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
	memcpy(&f, &u, 4);
	return f;
}

static float get(const uint8_t *p, size_t i)
{
	uint32_t u = 0;
	float f;

	memcpy((uint8_t *)&u + 4 - j.size, p + i * j.size, j.size);
	memcpy(&f, &u, 4);
	return f;
}

/* What position p contributes to element i of the whole. */
static float own(int p, size_t i)
{
	volatile float f = get(j.node[p].own, i);

	return j.key.scaled ? rounded(f * (0.5f + (float)j.key.rank_of[p])) : f;
}

static float finished(float f)
{
	return rounded(j.op == SIRCL_AVG ? f / (float)j.key.n : f);
}

/* Positions from, from + dir, .. as many as `len`, rounded after every +; whole: it is the result. */
static float chain(int from, int dir, int len, size_t i, bool whole)
{
	int n = j.key.n;
	volatile float v = own((from + n) % n, i);

	for (int k = 1; k < len; k++) {
		v = v + own((((from + dir * k) % n) + n) % n, i);
		v = whole && k == len - 1 ? finished(v) : rounded(v);
	}
	return v;
}

/* The two chains of a line meet at b. */
static float meet(int b, size_t i)
{
	int n = j.key.n;
	volatile float v = own(b, i);

	if (b > 0)
		v = chain(0, 1, b, i, false) + v;
	if (b < n - 1)
		v = v + chain(n - 1, -1, n - 1 - b, i, false);
	return finished(v);
}

static float rank_order(size_t i)
{
	volatile float v = 0;

	for (int r = 0; r < j.key.n; r++)
		for (int p = 0; p < j.key.n; p++)
			if (j.key.rank_of[p] == r)
				v = r == 0 ? own(p, i) : v + own(p, i);
	return finished(v);
}

static int position_of(int rank)
{
	int p = 0;

	while (j.key.rank_of[p] != rank)
		p++;
	return p;
}

static float want_pairs(size_t i, bool first)
{
	volatile float a = own(0, i) + own(first ? 1 : 3 % j.key.n, i), b;

	if (j.key.n == 2)
		return finished(own(0, i) + own(1, i));
	b = first ? own(2, i) + own(3, i) : own(1, i) + own(2, i);
	return finished(rounded(a) + rounded(b));
}

/* Element i of what is summed; owner: of a share, of a root. */
static float want(size_t i)
{
	bool share = j.key.kind == COLL_REDUCE_SCATTER, line = j.key.shape == SHAPE_LINE;
	int n = j.key.n, owner = position_of(share ? (int)(i / j.count) : j.key.root);
	bool first = (share ? i % j.count : i) < j.count / 2;
	size_t b = 0;

	switch (j.key.algo) {
	case ALGO_TWO_MATCHINGS:
		return want_pairs(i, first);
	case ALGO_DOUBLING:
		return want_pairs(i, true);
	case ALGO_RING:
		if (!share) {
			while (i >= (b + 1) * j.count / (size_t)n)
				b++;
			owner = (int)b;
			first = i < (2 * b + 1) * j.count / (2 * (size_t)n);
		}
		return chain(owner + (first ? 1 : -1), first ? 1 : -1, n, i, true);
	case ALGO_PIPELINE:
		if (j.key.kind == COLL_ALL_REDUCE)
			return chain(first ? 0 : n - 1, first ? 1 : -1, n, i, true);
		return line ? meet(owner, i) : chain(owner + (first ? 1 : -1), first ? 1 : -1, n, i, true);
	default:
		return rank_order(i);
	}
}

static void compare_sum(const struct node *d, size_t from)
{
	for (size_t i = 0; i < j.count; i++) {
		float got = get(d->out, i), should = want(from + i);

		ck_assert_msg(!memcmp(&got, &should, 4),
			      "%s%s, %s of %u, root %u, %s, position %u, element %zu of %zu: %a not %a",
			      d->plan->name, j.key.scaled ? " scaled" : "",
			      j.key.shape == SHAPE_RING ? "ring" : "line", j.key.n, j.key.root, op_name(j.op),
			      d->plan->pos, i, j.count, got, should);
	}
}

/* Share `to` of OUT is share `from` of what position p had. */
static void compare_share(const struct node *d, size_t to, int p, size_t from)
{
	size_t bytes = j.count * j.size;

	ck_assert_msg(!memcmp(d->out + to * bytes, j.node[p].own + from * bytes, bytes),
		      "%s, %s of %u, root %u: position %u, share %zu", d->plan->name,
		      j.key.shape == SHAPE_RING ? "ring" : "line", j.key.n, j.key.root, d->plan->pos, to);
}

static void compare(const struct node *d)
{
	enum coll_kind kind = j.key.kind;
	bool root = d->plan->rank == j.key.root;

	if (coll_reduces(kind) || kind == COLL_BARRIER) {
		if (kind != COLL_REDUCE || root)
			compare_sum(d, kind == COLL_REDUCE_SCATTER ? d->plan->rank * j.count : 0);
	} else if (kind == COLL_BROADCAST) {
		compare_share(d, 0, position_of(j.key.root), 0);
	} else if (kind == COLL_SCATTER) {
		compare_share(d, 0, position_of(j.key.root), d->plan->rank);
	} else if (kind != COLL_GATHER || root) {
		for (int p = 0; p < j.key.n; p++)
			compare_share(d, j.key.rank_of[p], p, kind == COLL_ALL_TO_ALL ? d->plan->rank : 0);
	}
	if (!j.in_place) /* IN is the caller's */
		ck_assert(!d->in || !memcmp(d->in, d->own, j.in_bytes));
}

/* ---- one run ---- */

static void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float f = (float)((int)rnd(2000001) - 1000000) * (rnd(2) ? 1.0f : 0x1p-12f);
		uint32_t u;

		memcpy(&u, &f, 4);
		memcpy(p + i * j.size, (uint8_t *)&u + 4 - j.size, j.size);
	}
}

/* Buffers of one position; NULL where the kind has none there, so that a touch is seen. */
static void buffers(struct node *d)
{
	const struct plan *p = d->plan;
	bool root = p->rank == j.key.root,
	     one_in = j.key.kind == COLL_BROADCAST || j.key.kind == COLL_SCATTER;
	bool one_out = j.key.kind == COLL_REDUCE || j.key.kind == COLL_GATHER;
	size_t share = j.count * j.size, whole = share * (p->parts ? p->n : 1u);
	bool has_in = !one_in || root, has_out = !one_out || root;

	j.in_bytes = p->in_part ? share : whole;
	j.out_bytes = p->out_part ? share : whole;
	d->in = has_in ? malloc(j.in_bytes + 1) : NULL;
	d->own = malloc(j.in_bytes + 1);
	if (has_in)
		fill(d->in, j.in_bytes / j.size);
	if (has_in)
		memcpy(d->own, d->in, j.in_bytes);
	if (has_in && has_out && j.in_place) { /* one memory: the larger buffer, and its own share of it */
		uint8_t *both = malloc(whole + 1), *at = both + (whole > share ? p->rank * share : 0);

		memcpy(p->in_part ? at : both, d->in, j.in_bytes);
		free(d->in);
		d->in = p->in_part ? at : both;
		d->out = p->out_part ? at : both;
	} else {
		d->out = has_out ? malloc(j.out_bytes + 1) : NULL;
	}
}

static void drop(struct node *d)
{
	bool whole_in = !d->plan->in_part;

	for (int c = 0; c < PLAN_CHANS; c++) {
		release(d, &d->wire[c], true);
		for (int k = 0; k < d->wire[c].sent; k++)
			free(d->wire[c].m[k].data);
		free(d->wire[c].m);
	}
	if (j.in_place && d->in && d->out) {
		free(whole_in ? d->in : d->out);
	} else {
		free(d->in);
		free(d->out);
	}
	free(d->own);
	free(d->scratch);
	free(d->done);
	free(d->freed);
	free(d->plan);
}

static void one(void)
{
	struct plan_key k = j.key;

	j.size = type_size(j.type);
	j.slice = j.stride = 0;
	j.left = 0;
	for (int p = 0; p < k.n; p++) {
		struct node *d = &j.node[p];

		memset(d, 0, sizeof(*d));
		k.pos = (uint16_t)p;
		ck_assert_int_eq(plan_build(&k, &d->plan), SIRCL_SUCCESS);
		j.stride = (shares(k.kind) ? j.count / d->plan->parts : j.count / d->plan->nblocks) + 1;
		j.slice = j.stride / SLICES + 1;
		j.left += (long)d->plan->nsteps * SLICES;
		buffers(d);
		d->scratch = malloc(d->plan->nscratch * j.stride * 8 + 1);
		d->done = calloc(d->plan->nsteps + 1u, sizeof(int));
		d->freed = calloc(d->plan->nsteps + 1u, sizeof(int));
		for (int c = 0; c < PLAN_CHANS; c++)
			d->wire[c].m = calloc(d->plan->nsteps * SLICES + 1u, sizeof(struct message));
	}
	execute();
	for (int p = 0; p < k.n; p++)
		compare(&j.node[p]);
	for (int p = 0; p < k.n; p++)
		drop(&j.node[p]);
}

static void key_init(int kind, int algo, int shape, int n)
{
	j.key = (struct plan_key){ .kind = (enum coll_kind)kind,
				   .algo = (enum coll_algo)algo,
				   .shape = (enum coll_shape)shape,
				   .n = (uint16_t)n };
	for (int p = 0; p < n; p++)
		j.key.rank_of[p] = (uint16_t)p;
	for (int p = n - 1; p > 0; p--) {
		unsigned q = rnd((unsigned)p + 1);
		uint16_t t = j.key.rank_of[p];

		j.key.rank_of[p] = j.key.rank_of[q];
		j.key.rank_of[q] = t;
	}
}

/* All operations that change the plan or its arithmetic, one after the other. */
static void vary(int turn)
{
	static const size_t counts[] = { 37, 1, 0, 8, 3, 101 };
	bool sums = coll_reduces(j.key.kind);

	j.type = turn % 2 ? SIRCL_FLOAT32 : SIRCL_BFLOAT16;
	j.in_place = turn / 2 % 2;
	j.count = counts[turn % 6];
	j.op = sums && turn % 3 == 1 ? SIRCL_AVG : SIRCL_SUM;
	j.key.scaled = sums && turn % 3 == 2;
	if (j.key.scaled)
		j.op = (sircl_op_t)REDUCE_PREMUL_SUM;
}

static void all(int kind, int from, int to, int step)
{
	int turn = 0;

	for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++)
		for (int shape = SHAPE_RING; shape <= SHAPE_LINE; shape++)
			for (int n = from; n <= to; n += step) {
				int roots = n > 16                                ? 1
					    : coll_has_root((enum coll_kind)kind) ? n
					    : n > 8                               ? 2
										  : 4;

				if (!coll_can((enum coll_kind)kind, (enum coll_algo)algo, n,
					      (enum coll_shape)shape) ||
				    (n > 16 && (n == 64) != (shape == SHAPE_RING)))
					continue;
				for (int r = 0; r < roots; r++) {
					key_init(kind, algo, shape, n);
					j.key.root = coll_has_root((enum coll_kind)kind) ? (uint16_t)r : 0;
					vary(turn++ + n);
					one();
				}
			}
}

START_TEST(test_coll_kind_gives_the_documented_bits)
{
	all(_i, 2, 16, 1);
}
END_TEST

START_TEST(test_coll_kind_works_for_many_ranks)
{
	all(_i, 25, 64, 39); /* a line of 25, a ring of 64 */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("coll_kinds");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_coll_kind_gives_the_documented_bits, 0, COLL_KINDS);
	tcase_add_loop_test(t, test_coll_kind_works_for_many_ranks, 0, COLL_KINDS);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad ? 1 : 0;
}
