/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels over the real link on simulated lanes: closed, or their cable cut, at every moment of a run.
 * Memory of a transfer that has ended is filled with a pattern at once and must keep it, however late lanes
 * land.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lane/sim.h"
#include "link/chan_internal.h"

#define N 3
#define LANES 2
#define NX 10
#define SIZE 40000u
#define ENDS 4
#define MUST(cond) \
	do { \
		if (!(cond)) \
			ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #cond); \
	} while (0)

struct end {
	struct chan *c;
	int node;
	bool closed;
	struct xfer s[NX], r[NX];
	bool s_over[NX], r_over[NX];
	uint8_t *mem; /* NX sources, NX destinations */
};
struct node {
	struct sircl_ctx ctx;
	struct chan_net *net;
	struct link *link[LINK_SIDES];
	int sim_node;
	size_t arena0[LINK_SIDES]; /* the link's own */
};
static struct sim *sim;
static struct node node[N];
static struct end end[ENDS]; /* 0-1: neighbours, granted; 2-3: through node 1 */
static uint64_t stop_at;
static char violation[512];

static const char *no_env(void *arg, const char *name)
{
	(void)arg;
	return strcmp(name, "SIRCL_TIMEOUT") ? NULL : "1000";
}

static void look(struct end *e)
{
	for (int i = 0; i < NX; i++) {
		uint8_t *src = e->mem + (size_t)i * SIZE, *dst = src + (size_t)NX * SIZE;
		if (!e->s_over[i] && (e->s[i].finished || e->s[i].err)) {
			e->s_over[i] = true;
			memset(src, 0x99, SIZE);
		}
		if (!e->r_over[i] && (e->r[i].finished || e->r[i].err)) {
			e->r_over[i] = true;
			if (e->r[i].finished)
				for (size_t k = 0; k < SIZE; k++)
					MUST(dst[k] == 0x11);
			memset(dst, 0x77, SIZE);
		}
	}
}

static void run(void *arg, struct tick *t)
{
	struct node *n = arg;
	(void)chan_net_progress(n->net, t);
	for (int i = 0; i < ENDS; i++)
		if (&node[end[i].node] == n && end[i].mem)
			look(&end[i]);
}

static uint64_t deadline(void *arg)
{
	return chan_net_deadline(((struct node *)arg)->net);
}

static void tell(void *arg, const char *sentence)
{
	(void)arg;
	if (!violation[0])
		snprintf(violation, sizeof(violation), "%s", sentence);
}

static bool at_event(void *arg)
{
	(void)arg;
	return sim_events(sim) >= stop_at;
}

static void open_links(uint64_t seed)
{
	struct sim_port *port[N][LINK_SIDES][LANES];
	struct link_addr addr[N][LINK_SIDES];
	struct tick t = { 0 };
	violation[0] = 0;
	ck_assert_int_eq(sim_create(&sim, &sim_hostile, seed), SIRCL_SUCCESS);
	sim_on_violation(sim, tell, NULL);
	for (int i = 0; i < N; i++)
		node[i].sim_node = sim_node(
			sim, &(struct sim_program){ .run = run, .deadline = deadline, .arg = &node[i] });
	for (int i = 0; i < N; i++)
		for (int l = 0; l < LANES; l++)
			sim_cable_lane(sim, i, l, node[i].sim_node, node[(i + 1) % N].sim_node,
				       &port[i][LINK_NEXT][l], &port[(i + 1) % N][LINK_PREV][l]);
	for (int i = 0; i < N; i++) {
		struct node *n = &node[i];
		n->ctx = (struct sircl_ctx){ .rank = i,
					     .nranks = N,
					     .log = { .level = LOG_NONE, .fd = 2 },
					     .clock = sim_clock,
					     .clock_arg = sim };
		ck_assert_int_eq(params_load_from(&n->ctx.params, no_env, NULL), SIRCL_SUCCESS);
		struct chan_net_cfg nc = {
			.ctx = &n->ctx, .self = i, .n = N, .ring = true, .relay_limit = 1u << 20
		};
		ck_assert_int_eq(chan_net_create(&nc, &n->net), SIRCL_SUCCESS);
		for (int s = 0; s < LINK_SIDES; s++) {
			int j = s == LINK_NEXT ? (i + 1) % N : (i + N - 1) % N;
			struct link_cfg lc = { .ctx = &n->ctx,
					       .lab = "t",
					       .side = (enum link_side)s,
					       .cable = (uint16_t)(s == LINK_NEXT ? i : j),
					       .self = (uint16_t)i,
					       .peer = (uint16_t)j,
					       .self_rank = (uint16_t)i,
					       .peer_rank = (uint16_t)j,
					       .connects = s == LINK_NEXT,
					       .nlanes = LANES,
					       .arena_bytes = 1u << 20,
					       .ops = chan_net_link_ops(),
					       .user = n->net };
			for (int l = 0; l < LANES; l++) {
				lc.lane[l].ops = &lane_sim_ops;
				lc.lane[l].provider = port[i][s][l];
			}
			ck_assert_int_eq(link_open(&lc, &n->link[s]), SIRCL_SUCCESS);
			chan_net_set_link(n->net, (enum link_side)s, n->link[s]);
			n->arena0[s] = arena_used(link_arena(n->link[s]));
			link_local_addr(n->link[s], &addr[i][s]);
		}
	}
	for (int i = 0; i < N; i++)
		for (int s = 0; s < LINK_SIDES; s++) {
			int j = s == LINK_NEXT ? (i + 1) % N : (i + N - 1) % N;
			ck_assert_int_eq(link_connect(node[i].link[s], &t, &addr[j][!s]), SIRCL_SUCCESS);
		}
	for (int i = 0; i < N; i++)
		sim_wake(sim, node[i].sim_node);
	sim_run(sim, NULL, NULL, 2 * MSEC);
}

static void open_ends(bool reg)
{
	static const struct {
		int node, peer, id;
		enum link_side via;
	} e[ENDS] = {
		{ 0, 1, 1, LINK_NEXT }, { 1, 0, 1, LINK_PREV }, { 0, 2, 2, LINK_NEXT }, { 2, 0, 2, LINK_PREV }
	};
	for (int i = 0; i < ENDS; i++) {
		struct tick t = { .now = sim_now(sim) };
		struct chan_cfg cfg = {
			.id = (uint32_t)e[i].id, .peer = (uint16_t)e[i].peer, .via = e[i].via, .window = 32768
		};
		uint8_t *mem = malloc(2 * NX * SIZE);
		end[i] = (struct end){ .node = e[i].node };
		memset(mem, 0x11, NX * SIZE);
		memset(mem + NX * SIZE, 0xee, NX * SIZE);
		if (reg)
			ck_assert_int_eq(chan_net_register(node[e[i].node].net, &t, mem, 2 * NX * SIZE),
					 SIRCL_SUCCESS);
		ck_assert_int_eq(chan_open(node[e[i].node].net, &t, &cfg, &end[i].c), SIRCL_SUCCESS);
		for (int m = 0; m < NX; m++) {
			MUST(chan_send(end[i].c, &t, mem + (size_t)m * SIZE, SIZE, 0, &end[i].s[m]));
			MUST(chan_recv(end[i].c, &t, mem + (size_t)(NX + m) * SIZE, SIZE, &end[i].r[m]));
		}
		end[i].mem = mem;
		sim_wake(sim, node[e[i].node].sim_node);
	}
}

static void shut(int i)
{
	struct tick t = { .now = sim_now(sim) };
	if (!end[i].closed)
		chan_close(end[i].c, &t);
	end[i].closed = true;
	sim_wake(sim, node[end[i].node].sim_node);
}

static void finish(bool links_live)
{
	for (int i = 0; i < ENDS; i++)
		for (int m = 0; m < NX; m++) {
			MUST(end[i].s_over[m] && end[i].r_over[m]);
			const uint8_t *src = end[i].mem + (size_t)m * SIZE, *dst = src + NX * SIZE;
			for (size_t k = 0; k < SIZE; k++)
				MUST(src[k] == 0x99 && dst[k] == 0x77);
		}
	ck_assert_str_eq(violation, "");
	for (int i = 0; i < N; i++) {
		struct chan_net_stats st;
		chan_net_stats(node[i].net, &st);
		ck_assert_int_eq(st.channels + st.relays, 0);
		ck_assert_uint_eq(node[i].net->protocol_errors, 0);
		for (int s = 0; s < LINK_SIDES && links_live; s++)
			ck_assert_uint_eq(arena_used(link_arena(node[i].link[s])), node[i].arena0[s]);
	}
	for (int i = 0; i < N; i++) {
		for (int s = 0; s < LINK_SIDES; s++)
			link_close(node[i].link[s]);
		chan_net_destroy(node[i].net);
		params_free(&node[i].ctx.params);
	}
	sim_destroy(sim);
	for (int i = 0; i < ENDS; i++) {
		free(end[i].mem);
		end[i].mem = NULL;
	}
}

static bool all_gone(void *arg)
{
	(void)arg;
	for (int i = 0; i < N; i++)
		if (node[i].net->chans || node[i].net->relays)
			return false;
	return true;
}

static bool all_over(void *arg)
{
	(void)arg;
	for (int i = 0; i < ENDS; i++)
		for (int m = 0; m < NX; m++)
			if (!end[i].s_over[m] || !end[i].r_over[m])
				return false;
	return true;
}

START_TEST(test_chan_over_lanes_delivers_and_relays)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		open_links(seed);
		open_ends(seed % 2);
		MUST(sim_run(sim, all_over, NULL, SEC));
		for (int i = 0; i < ENDS; i++)
			for (int m = 0; m < NX; m++)
				MUST(end[i].s[m].finished && end[i].r[m].finished);
		struct chan_net_stats st;
		chan_net_stats(node[1].net, &st);
		ck_assert_uint_gt(st.relayed_frames, 0);
		ck_assert_uint_le(st.relay_peak, 2 * 32768);
		chan_net_stats(node[0].net, &st);
		if (seed % 2)
			ck_assert_uint_gt(st.granted_bytes, 0);
		for (int i = 0; i < ENDS; i++)
			shut(i);
		MUST(sim_run(sim, all_gone, NULL, sim_now(sim) + 3 * SEC));
		finish(true);
	}
}
END_TEST

START_TEST(test_chan_over_lanes_closes_at_every_event)
{
	for (uint64_t k = 0; k < 2400; k += 20) {
		int first = (int)(k / 20 % ENDS);
		open_links(k + 7);
		open_ends(k / 20 % 3 != 2);
		stop_at = sim_events(sim) + k;
		sim_run(sim, at_event, NULL, SEC);
		if (k % 7 == 0)
			sim_kill(sim, 0, (int)(k % LANES), (unsigned)(k % 4));
		shut(first);
		shut((first + 2) % ENDS);
		MUST(sim_run(sim, all_over, NULL, sim_now(sim) + 2 * SEC));
		for (int i = 0; i < ENDS; i++)
			shut(i);
		MUST(sim_run(sim, all_gone, NULL, sim_now(sim) + 3 * SEC));
		finish(true);
	}
}
END_TEST

START_TEST(test_chan_over_lanes_ends_by_name_when_the_cable_is_cut_at_any_event)
{
	for (uint64_t k = 0; k < 2400; k += 60) {
		int cable = (int)(k / 60 % 2);
		open_links(k + 11);
		open_ends(k / 60 % 3 != 2);
		stop_at = sim_events(sim) + k;
		sim_run(sim, at_event, NULL, SEC);
		for (int l = 0; l < LANES; l++)
			sim_kill(sim, cable, l, (unsigned)(k / 60 % 4));
		/* cable 0 is everybody's; cable 1 only the relayed channel's */
		MUST(sim_run(sim, all_over, NULL, sim_now(sim) + 20 * SEC));
		for (int i = cable ? 2 : 0; i < ENDS; i++)
			for (int m = 0; m < NX; m++) {
				sircl_result_t r = end[i].r[m].err;
				MUST(!r || r == SIRCL_REMOTE_ERROR);
				if (r)
					MUST(strstr(chan_error(end[i].c)->msg, "rank"));
			}
		for (int i = 0; i < ENDS; i++)
			shut(i);
		MUST(sim_run(sim, all_gone, NULL, sim_now(sim) + 3 * SEC));
		finish(false);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("chan_sim");
	TCase *c = tcase_create("chan_sim");
	tcase_set_timeout(c, 120);
	tcase_add_test(c, test_chan_over_lanes_delivers_and_relays);
	tcase_add_test(c, test_chan_over_lanes_closes_at_every_event);
	tcase_add_test(c, test_chan_over_lanes_ends_by_name_when_the_cable_is_cut_at_any_event);
	suite_add_tcase(s, c);
	SRunner *r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
