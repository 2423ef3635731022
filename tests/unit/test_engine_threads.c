/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of one process over shm lanes, each with its own context, links, engine and background
 * thread: what a sanitizer for threads can see of token, channels and waiting. Also: no allocation in steady
 * state.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "engine/internal.h"
#include "engine_ref.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

static atomic_ulong allocations;

#ifndef SANITIZED
/* The C library calls these for everybody, so every allocation of the process is counted. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *malloc(size_t n)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_realloc(p, n);
}
#endif

static atomic_ulong copies;

/* The system call that copies into another process; the library's calls come here. */
ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long nfrom, const struct iovec *to,
			  unsigned long nto, unsigned long flags)
{
	atomic_fetch_add_explicit(&copies, 1, memory_order_relaxed);
	return syscall(SYS_process_vm_writev, pid, from, nfrom, to, nto, flags);
}

#define RANKS 4

struct rank {
	struct ring *ring;
	int pos;
	struct sircl_ctx ctx;
	struct key_ring keys;
	struct chan_net *net;
	struct link *link[LINK_SIDES];
	struct engine *engine;
	struct team *team;
	struct op *op;
	pthread_t thread;
	char why[700]; /* what went wrong */
};

struct ring {
	int n, lanes, rounds;
	char lab[40];
	uint16_t rank_of[COLL_MAX_RANKS];
	struct rank rank[RANKS];
	pthread_barrier_t barrier;
	void (*body)(struct rank *);
	atomic_int begun; /* calls of collective() that have started their operation */
	unsigned long steady, copied; /* allocations, copies by system calls, in steady state */
};

static const char *no_environment(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void broken(struct rank *r, const char *what)
{
	if (!r->why[0])
		snprintf(r->why, sizeof(r->why), "position %d: %s", r->pos, what);
}

static void notice(void *user, struct tick *t, const struct chan_notice *n)
{
	struct rank *r = user;
	struct sircl_error err = { (sircl_result_t)n->code, "told" };

	(void)t;
	if (r->team)
		team_fail(r->team, &err);
}

static void open_rank(struct ring *g, int p, size_t slice)
{
	struct rank *r = &g->rank[p];
	struct chan_net_cfg nc = { .ctx = &r->ctx,
				   .self = p,
				   .n = g->n,
				   .ring = true,
				   .relay_limit = 1 << 20,
				   .notice = notice,
				   .user = r,
				   .rank_of = g->rank_of };

	r->ring = g;
	r->pos = p;
	ck_assert_int_eq(params_load_from(&r->ctx.params, no_environment, NULL), SIRCL_SUCCESS);
	r->ctx.params.num[PARAM_SLICE] = (int64_t)slice;
	r->ctx.params.num[PARAM_WINDOW] = 262144;
	r->ctx.log = (struct log){ .level = LOG_NONE, .fd = 2 };
	r->ctx.rank = p;
	r->ctx.nranks = g->n;
	r->ctx.clock = lane_clock_real;
	ck_assert_int_eq(key_ring_init(&r->keys), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&r->keys, KEY_UNIQUE_ID, "secret of the job", 17), SIRCL_SUCCESS);
	ck_assert_int_eq(chan_net_create(&nc, &r->net), SIRCL_SUCCESS);
}

static void open_link(struct ring *g, int p, enum link_side side, int cable)
{
	struct rank *r = &g->rank[p];
	int peer = (p + (side == LINK_NEXT ? 1 : g->n - 1)) % g->n;
	struct link_cfg lc = { .ctx = &r->ctx,
			       .keys = &r->keys,
			       .lab = g->lab,
			       .side = side,
			       .cable = (uint16_t)cable,
			       .self = (uint16_t)p,
			       .peer = (uint16_t)peer,
			       .self_rank = (uint16_t)p,
			       .peer_rank = (uint16_t)peer,
			       .connects = side == LINK_NEXT,
			       .nlanes = g->lanes,
			       .arena_bytes = 4 << 20,
			       .ops = chan_net_link_ops(),
			       .user = r->net };

	for (int l = 0; l < g->lanes; l++)
		lc.lane[l].ops = &lane_shm_ops;
	ck_assert_msg(link_open(&lc, &r->link[side]) == SIRCL_SUCCESS, "%s", error_last()->msg);
	chan_net_set_link(r->net, side, r->link[side]);
}

static void ring_open(struct ring *g, int n, int lanes, size_t slice, void (*body)(struct rank *))
{
	const char *lab = getenv("SIRCL_LAB");

	memset(g, 0, sizeof(*g));
	g->n = n;
	g->lanes = lanes;
	g->body = body;
	snprintf(g->lab, sizeof(g->lab), "%.16s-%d", lab ? lab : "eng", (int)getpid());
	pthread_barrier_init(&g->barrier, NULL, (unsigned)n);
	for (int p = 0; p < n; p++)
		g->rank_of[p] = (uint16_t)p;
	for (int p = 0; p < n; p++)
		open_rank(g, p, slice);
	for (int c = 0; c < n; c++) {
		open_link(g, c, LINK_NEXT, c);
		open_link(g, (c + 1) % n, LINK_PREV, c);
	}
}

static bool links_up(void *arg)
{
	struct rank *r = arg;

	return link_state(r->link[LINK_NEXT]) == LINK_UP && link_state(r->link[LINK_PREV]) == LINK_UP;
}

static bool links_closed(void *arg)
{
	struct rank *r = arg;

	return link_closed(r->link[LINK_NEXT]) && link_closed(r->link[LINK_PREV]);
}

/* One rank's life. Addresses of links do not change after link_open, so they can be read without the token.
 */
static void *rank_main(void *arg)
{
	struct rank *r = arg;
	struct ring *g = r->ring;
	struct engine_cfg ec = { .ctx = &r->ctx, .net = r->net, .background = true, .ranks_here = g->n };
	struct team_cfg tc = { .name = "comm",
			       .id = 1,
			       .rank = r->pos,
			       .n = g->n,
			       .pos = r->pos,
			       .shape = SHAPE_RING,
			       .class = CLASS_SHM,
			       .op_timeout = 30 * SEC };
	struct link_addr addr[LINK_SIDES];
	struct tick t;

	memcpy(tc.rank_of, g->rank_of, sizeof(tc.rank_of));
	for (uint16_t q = 0; q < g->n; q++)
		tc.node_of[q] = q;
	for (int s = 0; s < LINK_SIDES; s++)
		link_local_addr(g->rank[(r->pos + (s == LINK_NEXT ? 1 : g->n - 1)) % g->n].link[!s],
				&addr[s]);
	pthread_barrier_wait(&g->barrier);
	if (engine_create(&ec, &r->engine) != SIRCL_SUCCESS)
		broken(r, error_last()->msg);
	engine_lock(r->engine);
	t = ctx_tick(&r->ctx);
	for (int s = 0; s < LINK_SIDES; s++)
		if (link_connect(r->link[s], &t, &addr[s]) != SIRCL_SUCCESS)
			broken(r, error_last()->msg);
	engine_unlock(r->engine);
	if (engine_wait_until(r->engine, links_up, r, t.now + 20 * SEC) != SIRCL_SUCCESS)
		broken(r, "links are not up");
	t = ctx_tick(&r->ctx);
	if (team_create(r->engine, &t, &tc, &r->team) != SIRCL_SUCCESS ||
	    op_create(r->team, &r->op) != SIRCL_SUCCESS)
		broken(r, error_last()->msg);
	pthread_barrier_wait(&g->barrier);
	g->body(r);
	pthread_barrier_wait(&g->barrier);
	engine_lock(r->engine);
	t = ctx_tick(&r->ctx);
	for (int s = 0; s < LINK_SIDES; s++)
		link_bye(r->link[s], &t);
	engine_unlock(r->engine);
	engine_wait_until(r->engine, links_closed, r, t.now + 20 * SEC);
	op_destroy(r->op);
	t = ctx_tick(&r->ctx);
	team_destroy(r->team, &t);
	engine_destroy(r->engine);
	pthread_barrier_wait(&g->barrier);
	return NULL;
}

static void ring_run(struct ring *g)
{
	for (int p = 0; p < g->n; p++)
		ck_assert_int_eq(pthread_create(&g->rank[p].thread, NULL, rank_main, &g->rank[p]), 0);
	for (int p = 0; p < g->n; p++)
		pthread_join(g->rank[p].thread, NULL);
	for (int p = 0; p < g->n; p++) {
		struct rank *r = &g->rank[p];

		chan_net_destroy(r->net);
		for (int s = 0; s < LINK_SIDES; s++)
			link_close(r->link[s]);
		key_ring_wipe(&r->keys);
		params_free(&r->ctx.params);
	}
	for (int p = 0; p < g->n; p++)
		ck_assert_msg(!g->rank[p].why[0], "%s", g->rank[p].why);
	pthread_barrier_destroy(&g->barrier);
}

static bool collective(struct rank *r, const struct ref_job *j, struct ref_bufs *b)
{
	struct op_args a = {
		.kind = j->kind, .in = b->in, .out = b->out, .count = j->count, .type = j->type
	};
	struct tick t = ctx_tick(&r->ctx);

	bool started =
		op_prepare(r->op, &a) == SIRCL_SUCCESS && engine_start(r->engine, &t, r->op) == SIRCL_SUCCESS;

	atomic_fetch_add(&r->ring->begun, 1);
	if (!started || engine_wait(r->engine, r->op) != SIRCL_SUCCESS) {
		broken(r, error_last()->msg);
		return false;
	}
	return true;
}

static enum coll_algo algo_of(const struct rank *r)
{
	for (int a = ALGO_AUTO + 1; a < ALGO_COUNT; a++)
		if (strcmp(coll_algo_name((enum coll_algo)a), op_algo(r->op)) == 0)
			return (enum coll_algo)a;
	return ALGO_AUTO;
}

static void many(struct rank *r)
{
	static const size_t counts[] = { 1, 1000, 30001, 0, 200003 };

	for (size_t i = 0; i < 2 * sizeof(counts) / sizeof(counts[0]); i++) {
		struct ref_job j = { .kind = i % 3 == 2 ? COLL_ALL_GATHER : COLL_ALL_REDUCE,
				     .type = i % 2 ? SIRCL_BFLOAT16 : SIRCL_FLOAT32,
				     .count = counts[i % 5],
				     .n = r->ring->n,
				     .seed = i };
		void *expect = malloc(j.count * 4 * (size_t)j.n + 1);
		struct ref_bufs b;

		memcpy(j.rank_of, r->ring->rank_of, sizeof(j.rank_of));
		ref_alloc(&j, r->pos, (i + (size_t)r->pos) % 2, &b);
		if (r->pos == (int)(i % 4))
			usleep(3000); /* the background threads take over elsewhere */
		if (collective(r, &j, &b)) {
			j.algo = algo_of(r);
			ref_result(&j, expect);
			if (!ref_check(&j, r->pos, &b, expect))
				broken(r, "wrong result");
		}
		ref_free(&b);
		free(expect);
		if (r->why[0])
			return;
	}
}

START_TEST(test_engine_ranks_as_threads_over_shm_get_the_documented_bits)
{
	for (int lanes = 1; lanes <= 2; lanes++) {
		for (int n = 2; n <= RANKS; n += 2) {
			struct ring g;

			ring_open(&g, n, lanes, lanes == 2 ? 4096 : 0, many);
			ring_run(&g);
		}
	}
}
END_TEST

#define STEADY_COUNT 40000
#define POOL 3

/* Every kind by every algorithm, on a pool of operations that comes round differently each time. */
static void steady_round(struct rank *r, struct op *pool[], unsigned *turn, float *in, float *out)
{
	for (int k = 0; k < COLL_KINDS; k++) {
		for (int algo = ALGO_AUTO + 1; algo < ALGO_COUNT; algo++) {
			struct op_args a = { .kind = (enum coll_kind)k,
					     .in = in,
					     .out = out,
					     .type = SIRCL_FLOAT32,
					     .op = *turn % 2 ? SIRCL_AVG : SIRCL_MAX };

			if (!coll_can(a.kind, (enum coll_algo)algo, r->ring->n, SHAPE_RING))
				continue;
			r->team->forced = (enum coll_algo)algo;
			for (int small = 0; small < 2; small++) {
				struct op *op = pool[(*turn)++ % POOL];
				struct tick t = ctx_tick(&r->ctx);

				a.count = small ? 16 : STEADY_COUNT;
				a.root = coll_has_root(a.kind) ? 1 + small : 0;
				if (op_prepare(op, &a) != SIRCL_SUCCESS ||
				    engine_start(r->engine, &t, op) != SIRCL_SUCCESS ||
				    engine_wait(r->engine, op) != SIRCL_SUCCESS) {
					broken(r, error_last()->msg);
					return;
				}
			}
		}
	}
}

static void steady(struct rank *r)
{
	size_t bytes = STEADY_COUNT * RANKS * sizeof(float);
	float *in = calloc(1, bytes), *out = calloc(1, bytes);
	struct op *pool[POOL] = { r->op };
	unsigned long before = 0, copied = 0;
	unsigned turn = 0;
	struct tick t;

	engine_lock(r->engine);
	t = ctx_tick(&r->ctx);
	if (chan_net_register(r->net, &t, out, bytes) != SIRCL_SUCCESS)
		broken(r, error_last()->msg);
	engine_unlock(r->engine);

	for (int i = 1; i < POOL; i++)
		if (op_create(r->team, &pool[i]) != SIRCL_SUCCESS)
			broken(r, error_last()->msg);
	for (int i = 0; i < 5; i++) {
		pthread_barrier_wait(&r->ring->barrier);
		if (i == 1)
			before = atomic_load(&allocations), copied = atomic_load(&copies);
		pthread_barrier_wait(&r->ring->barrier);
		if (!r->why[0])
			steady_round(r, pool, &turn, in, out);
	}
	pthread_barrier_wait(&r->ring->barrier);
	if (r->pos == 0) {
		r->ring->steady = atomic_load(&allocations) - before;
		r->ring->copied = atomic_load(&copies) - copied;
	}
	pthread_barrier_wait(&r->ring->barrier);
	for (int i = 1; i < POOL; i++)
		op_destroy(pool[i]);
	free(in);
	free(out);
}

START_TEST(test_engine_allocates_nothing_and_makes_no_call_to_copy_in_steady_state)
{
	struct ring g;

	ring_open(&g, 4, 1, 0, steady);
	ring_run(&g);
#ifndef SANITIZED
	ck_assert_uint_gt(atomic_load(&allocations), 100); /* the counting counts */
	ck_assert_uint_eq(g.steady, 0);
#endif
	ck_assert_uint_eq(g.copied, 0); /* no message is as long as one call is worth */
}
END_TEST

/* One rank aborts while the others wait in an operation that it never enters. */
static void aborting(struct rank *r)
{
	struct sircl_error err = { SIRCL_ABORTED, "by hand" };
	struct ref_job j = { .kind = COLL_ALL_REDUCE, .type = SIRCL_FLOAT32, .count = 5000, .n = r->ring->n };
	struct ref_bufs b;

	ref_alloc(&j, r->pos, false, &b);
	if (r->pos == 1) {
		struct tick t;

		while (atomic_load(&r->ring->begun) < r->ring->n - 1)
			usleep(1000);
		usleep(20000);
		engine_lock(r->engine);
		t = ctx_tick(&r->ctx);
		team_fail(r->team, &err);
		chan_net_notify(r->net, &t, NOTICE_ABORT, 1, SIRCL_ABORTED, 1);
		engine_unlock(r->engine);
	} else {
		if (collective(r, &j, &b))
			broken(r, "an operation without rank 1 has succeeded");
		else if (op_result(r->op, NULL) == SIRCL_ABORTED ||
			 op_result(r->op, NULL) == SIRCL_REMOTE_ERROR)
			r->why[0] = '\0';
	}
	ref_free(&b);
}

START_TEST(test_engine_abort_on_one_rank_ends_the_others_wait)
{
	struct ring g;
	uint64_t begun = lane_clock_real(NULL);

	ring_open(&g, 4, 1, 0, aborting);
	ring_run(&g);
	ck_assert_uint_lt(lane_clock_real(NULL) - begun, 15 * SEC);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine in threads over shm");
	TCase *c = tcase_create("threads");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 90);
	tcase_add_test(c, test_engine_ranks_as_threads_over_shm_get_the_documented_bits);
	tcase_add_test(c, test_engine_allocates_nothing_and_makes_no_call_to_copy_in_steady_state);
	tcase_add_test(c, test_engine_abort_on_one_rank_ends_the_others_wait);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
