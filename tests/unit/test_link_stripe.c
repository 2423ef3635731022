/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a link uses lanes that are equal, and lanes that are not: real links on lane/sim in virtual time. One
 * end streams frames within a window that opens in order, as a channel's does; the time of a transfer is held
 * against what the lanes could carry.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lane/sim.h"
#include "link/link_internal.h"

#define GBPS 80.0 /* of the fast lane: 10 bytes per ns */
#define MEM ((size_t)4 << 20)
#define MIB ((uint64_t)1 << 20)

struct end {
	struct sircl_ctx ctx;
	struct link *link;
	int node;
	uint8_t *mem;
	const struct link_mem *m;
	uint16_t region; /* the peer's */
	uint64_t goal, sent, prefix, got; /* frames */
	uint8_t *released; /* by number modulo WINDOW_MOST */
	uint32_t len;
	uint64_t window; /* bytes */
};
static struct sim *sim;
static struct end end[2];
static uint64_t due; /* frames that both ends together shall have received */

#define WINDOW_MOST 4096

static const char *no_env(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void deliver(void *user, struct link *l, struct tick *t, const struct link_frame *f)
{
	struct end *e = user;

	(void)l;
	(void)t;
	(void)f;
	e->got++;
}

static void released(void *user, struct link *l, void *owner, uint32_t fno)
{
	struct end *e = user;

	(void)l;
	(void)owner;
	e->released[fno % WINDOW_MOST] = 1;
	while (e->prefix < e->sent && e->released[e->prefix % WINDOW_MOST])
		e->released[e->prefix++ % WINDOW_MOST] = 0;
}

static void region(void *user, struct link *l, uint16_t id, uint64_t len)
{
	(void)l;
	((struct end *)user)->region = len ? id : 0;
}

static const struct link_user_ops ops = { .deliver = deliver, .released = released, .region = region };

static void run(void *arg, struct tick *t)
{
	struct end *e = arg;

	link_progress(e->link, t);
	while (e->region && e->sent < e->goal && (e->sent - e->prefix + 1) * e->len <= e->window) {
		struct link_put put = {
			.frame = { .kind = LINK_KIND_USER, .fno = (uint32_t)e->sent, .len = e->len },
			.src = e->mem + e->sent * e->len % MEM,
			.smem = e->m,
			.region = e->region,
			.dst_off = e->sent * e->len % MEM,
			.owner = e,
			.ack_soon = e->sent + 1 == e->goal
		};

		enum link_put_result r = link_put(e->link, t, &put);

		if (r == LINK_PUT_NO)
			break;
		e->sent++;
		if (r == LINK_PUT_DONE) /* copied */
			released(e, e->link, e, (uint32_t)e->sent - 1);
	}
}

static uint64_t deadline(void *arg)
{
	return link_deadline(((struct end *)arg)->link);
}

static bool ready(void *arg)
{
	(void)arg;
	return end[0].region && end[1].region && link_state(end[0].link) == LINK_UP &&
	       link_state(end[1].link) == LINK_UP;
}

static bool arrived(void *arg)
{
	(void)arg;
	return end[0].got + end[1].got >= due;
}

/* Two links over `n` lanes of these rates, relative to GBPS. */
static void open_pair(int n, const double *rate)
{
	struct sim_fabric f = { .latency_ns = 1600,
				.lane_gbps = GBPS,
				.pieces = 1,
				.cost = { .fixed_ns = { [COST_POST] = 300, [COST_EVENT] = 200 } } };
	struct sim_port *port[2][LANES_MAX];
	struct tick t = { 0 };

	memset(end, 0, sizeof(end));
	due = 0;
	ck_assert_int_eq(sim_create(&sim, &f, 1), SIRCL_SUCCESS);
	for (int i = 0; i < 2; i++)
		end[i].node = sim_node(
			sim, &(struct sim_program){ .run = run, .deadline = deadline, .arg = &end[i] });
	for (int i = 0; i < n; i++) {
		sim_cable_lane(sim, 0, i, end[0].node, end[1].node, &port[0][i], &port[1][i]);
		sim_lane_rate(sim, 0, i, rate[i] * GBPS);
	}
	for (int k = 0; k < 2; k++) {
		struct end *e = &end[k];
		struct link_cfg cfg = { .ctx = &e->ctx,
					.side = k ? LINK_PREV : LINK_NEXT,
					.lab = "stripe",
					.self = (uint16_t)k,
					.peer = (uint16_t)!k,
					.connects = k == 0,
					.nlanes = n,
					.arena_bytes = 4096,
					.ops = &ops,
					.user = e };

		e->ctx.clock = sim_clock;
		e->ctx.clock_arg = sim;
		e->ctx.log.level = LOG_NONE;
		ck_assert_int_eq(params_load_from(&e->ctx.params, no_env, NULL), SIRCL_SUCCESS);
		for (int i = 0; i < n; i++) {
			cfg.lane[i].ops = &lane_sim_ops;
			cfg.lane[i].provider = port[k][i];
		}
		e->released = calloc(1, WINDOW_MOST);
		e->mem = calloc(1, MEM);
		ck_assert_msg(link_open(&cfg, &e->link) == SIRCL_SUCCESS, "%s", error_last()->msg);
	}
	for (int k = 1; k >= 0; k--) {
		struct link_addr a;

		link_local_addr(end[!k].link, &a);
		ck_assert_int_eq(link_connect(end[k].link, &t, &a), SIRCL_SUCCESS);
		ck_assert_int_eq(link_region_add(end[k].link, &t, end[k].mem, MEM, &end[k].m), SIRCL_SUCCESS);
		sim_wake(sim, end[k].node);
	}
	ck_assert(sim_run(sim, ready, NULL, SEC));
}

static void close_pair(void)
{
	for (int k = 0; k < 2; k++) {
		link_close(end[k].link);
		params_free(&end[k].ctx.params);
		free(end[k].mem);
		free(end[k].released);
	}
	sim_destroy(sim);
}

/* End `k` has `bytes` more to send. */
static void more(int k, uint64_t bytes, uint32_t len, uint64_t window)
{
	end[k].len = len;
	end[k].window = window;
	end[k].goal += bytes / len;
	due += bytes / len;
	sim_wake(sim, end[k].node);
}

/* Until everything has arrived; bytes per ns of what end 0 sends now. */
static double transfer(uint64_t bytes, uint32_t len, uint64_t window)
{
	uint64_t from = sim_now(sim);

	more(0, bytes, len, window);
	ck_assert(sim_run(sim, arrived, NULL, from + 10 * SEC));
	return (double)bytes / (double)(sim_now(sim) - from);
}

static uint64_t carried(int lane);
uint64_t carried(int lane)
{
	struct link_stats s;

	link_stats(end[0].link, &s);
	return s.lane_bytes_sent[lane];
}

/* What part of the bytes sent since both lanes had carried a and b went over lane 1. */
static double share1(uint64_t a, uint64_t b)
{
	double x = (double)(carried(0) - a), y = (double)(carried(1) - b);

	return y / (x + y);
}

/* Frames and windows as channels use them: eager ones, those of the default window, granted ones. */
static const struct {
	uint32_t len;
	uint64_t window;
} shape[] = { { 8 << 10, 1 << 20 },  { 64 << 10, 1 << 20 },   { 256 << 10, 1 << 20 },
	      { 64 << 10, 4 << 20 }, { 256 << 10, 16 << 20 }, { 256 << 10, 64 << 20 } };
#define SHAPES (int)(sizeof(shape) / sizeof(shape[0]))

START_TEST(test_link_stripes_two_equal_lanes_alike)
{
	double rate[] = { 1, 1 };

	for (int i = 0; i < SHAPES; i++) {
		double got, part;

		open_pair(2, rate);
		got = transfer(256 * MIB, shape[i].len, shape[i].window);
		part = share1(0, 0);
		ck_assert_msg(part > 0.4 && part < 0.6, "frames of %u: lane 1 carried %.3f", shape[i].len,
			      part);
		if (shape[i].len > 8 << 10)
			ck_assert_msg(got > 0.85 * 2 * GBPS / 8, "frames of %u: %.2f bytes per ns",
				      shape[i].len, got);
		close_pair();
	}
}
END_TEST

START_TEST(test_link_lane_of_half_the_rate_adds_its_part)
{
	for (int slow = 0; slow < 2; slow++)
		for (int i = 1; i < SHAPES; i++) {
			double rate[] = { slow ? 1 : 0.5, slow ? 0.5 : 1 }, got;

			open_pair(2, rate);
			got = transfer(512 * MIB, shape[i].len, shape[i].window) / (1.5 * GBPS / 8);
			ck_assert_msg(got > 0.85, "frames of %u, window %llu: %.3f of the sum", shape[i].len,
				      (unsigned long long)shape[i].window, got);
			close_pair();
		}
}
END_TEST

START_TEST(test_link_lane_of_a_tenth_of_the_rate_holds_nothing_up)
{
	for (int slow = 0; slow < 2; slow++)
		for (int i = 1; i < SHAPES; i++) {
			double rate[] = { slow ? 1 : 0.1, slow ? 0.1 : 1 }, got;

			open_pair(2, rate);
			got = transfer(512 * MIB, shape[i].len, shape[i].window) / (GBPS / 8);
			ck_assert_msg(got > 0.95, "frames of %u, window %llu: %.3f of the fast lane alone",
				      shape[i].len, (unsigned long long)shape[i].window, got);
			close_pair();
		}
}
END_TEST

START_TEST(test_link_slow_lane_among_four_both_ways)
{
	double rate[] = { 1, 0.1, 1, 1 }, got;
	uint64_t from, bytes = 512 * MIB;

	for (int i = 1; i < SHAPES; i++) {
		open_pair(4, rate);
		from = sim_now(sim);
		more(0, bytes, shape[i].len, 4 * shape[i].window);
		more(1, bytes, shape[i].len, 4 * shape[i].window);
		ck_assert(sim_run(sim, arrived, NULL, from + 10 * SEC));
		got = (double)bytes / (double)(sim_now(sim) - from) / (3 * GBPS / 8);
		ck_assert_msg(got > 0.85, "frames of %u: %.3f of the three fast lanes", shape[i].len, got);
		close_pair();
	}
}
END_TEST

/* A lane that was held up once is not blamed for long, whether the load is heavy or comes in messages. */
START_TEST(test_link_lane_that_was_held_up_gets_its_half_again)
{
	double rate[] = { 1, 1 }, part;
	uint64_t a, b;

	for (int heavy = 0; heavy < 2; heavy++)
		for (int i = 1; i < SHAPES; i++) {
			open_pair(2, rate);
			transfer(16 * MIB, shape[i].len, shape[i].window);
			for (int k = 0; k < 5; k++) {
				sim_stall(sim, 0, 1, 3, 5 * MSEC);
				transfer(8 * MIB, shape[i].len, shape[i].window);
			}
			a = carried(0);
			b = carried(1);
			for (int k = 0; k < (heavy ? 1 : 128); k++)
				transfer(heavy ? 128 * MIB : MIB, shape[i].len, shape[i].window);
			part = share1(a, b);
			if (heavy || shape[i].len <= 256 << 10)
				ck_assert_msg(part > 0.4 && part < 0.6,
					      "frames of %u, heavy %d: lane 1 carried %.3f", shape[i].len,
					      heavy, part);
			close_pair();
		}
}
END_TEST

/* However wrong the opinion of a lane is, it is found out. */
START_TEST(test_link_wrong_weight_corrects_itself)
{
	double rate[] = { 1, 1 }, part;
	uint64_t a, b;

	for (int heavy = 0; heavy < 2; heavy++)
		for (int i = 1; i < SHAPES; i++) {
			open_pair(2, rate);
			transfer(16 * MIB, shape[i].len, shape[i].window);
			end[0].link->lane[1].weight = 1.0 / 64;
			a = carried(0);
			b = carried(1);
			for (int k = 0; k < (heavy ? 1 : 64); k++)
				transfer(heavy ? 128 * MIB : 2 * MIB, shape[i].len, shape[i].window);
			part = share1(a, b);
			ck_assert_msg(part > 0.4 && part < 0.6, "frames of %u, heavy %d: lane 1 carried %.3f",
				      shape[i].len, heavy, part);
			close_pair();
		}
}
END_TEST

/* A lane that becomes slow, and fast again. */
START_TEST(test_link_follows_a_rate_that_changes)
{
	double rate[] = { 1, 1 }, got, part;
	uint64_t a, b;

	for (int i = 1; i < SHAPES; i++) {
		open_pair(2, rate);
		transfer(128 * MIB, shape[i].len, shape[i].window);
		sim_lane_rate(sim, 0, 1, 0.1 * GBPS);
		transfer(256 * MIB, shape[i].len, shape[i].window);
		got = transfer(512 * MIB, shape[i].len, shape[i].window) / (GBPS / 8);
		ck_assert_msg(got > 0.95, "frames of %u, window %llu: %.3f of the fast lane alone",
			      shape[i].len, (unsigned long long)shape[i].window, got);
		sim_lane_rate(sim, 0, 1, GBPS);
		transfer(1280 * MIB, shape[i].len, shape[i].window); /* it may be probed so rarely by now */
		a = carried(0);
		b = carried(1);
		transfer(256 * MIB, shape[i].len, shape[i].window);
		part = share1(a, b);
		ck_assert_msg(part > 0.4 && part < 0.6, "frames of %u, window %llu: lane 1 carried %.3f",
			      shape[i].len, (unsigned long long)shape[i].window, part);
		close_pair();
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_stripe");
	TCase *c = tcase_create("link_stripe");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_link_stripes_two_equal_lanes_alike);
	tcase_add_test(c, test_link_lane_of_half_the_rate_adds_its_part);
	tcase_add_test(c, test_link_lane_of_a_tenth_of_the_rate_holds_nothing_up);
	tcase_add_test(c, test_link_slow_lane_among_four_both_ways);
	tcase_add_test(c, test_link_lane_that_was_held_up_gets_its_half_again);
	tcase_add_test(c, test_link_wrong_weight_corrects_itself);
	tcase_add_test(c, test_link_follows_a_rate_that_changes);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
