/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of provider per cable: what ranks tell each other comes through whole, and all maps of offers
 * give the cables, the lanes and the sentences that they should. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/provider.h"
#include "fabric/rdv.h"

#define N 4
static struct ring_map map;
static struct record rec[N];
static uint16_t leader[N];
static struct rank_offer offer[N];
static struct cable_use use[N];

/* A ring of N machines, `lanes` lanes per cable; every port can run verbs. Ports: NEXT first, then PREV. */
static void healthy(int lanes)
{
	memset(&map, 0, sizeof(map));
	memset(offer, 0, sizeof(offer));
	memset(rec, 0, sizeof(rec));
	map.n = map.ncables = N;
	map.ring = true;
	for (int i = 0; i < N; i++) {
		struct map_cable *k = &map.cable[i];

		leader[i] = map.rank_of[i] = (uint16_t)i;
		snprintf(rec[i].host, sizeof(rec[i].host), "spark-%c", 'a' + i);
		rec[i].nports = 2 * lanes;
		k->rank[0] = (uint16_t)i;
		k->rank[1] = (uint16_t)((i + 1) % N);
		k->nlanes = lanes;
		for (int l = 0; l < lanes; l++) {
			k->port[0][l] = (uint8_t)l;
			k->port[1][l] = (uint8_t)(lanes + l);
			snprintf(rec[i].port[l].name, 16, "n%d", l);
			snprintf(rec[i].port[lanes + l].name, 16, "p%d", l);
		}
		for (int s = 0; s < LINK_SIDES; s++) {
			offer[i].side[s].nlanes = lanes;
			for (int l = 0; l < lanes; l++) {
				struct lane_offer *o = &offer[i].side[s].lane[l];

				o->verbs = true;
				o->port = 1;
				o->mtu = 4096;
				o->family = 6;
				snprintf(o->device, sizeof(o->device), "roce%d%c%d", i,
					 s == LINK_NEXT ? 'n' : 'p', l);
			}
		}
	}
}

static void cannot(int rank, enum link_side side, int lane, const char *why)
{
	struct lane_offer *o = &offer[rank].side[side].lane[lane];

	o->verbs = false;
	snprintf(o->why_not, sizeof(o->why_not), "%s", why);
}

static sircl_result_t choose(enum provider_want want)
{
	return provider_choose(want, &map, rec, leader, offer, use);
}

static const char *text(int c)
{
	static char buf[600];

	return provider_text(&map, rec, offer, use, c, buf, sizeof(buf));
}

START_TEST(test_offers_come_out_as_they_went_in_and_cut_ones_are_refused)
{
	uint8_t buf[RDV_BLOB_MAX], again[RDV_BLOB_MAX];
	struct rank_offer back;
	size_t n;

	healthy(LANES_MAX);
	cannot(1, LINK_PREV, 3, "no cable");
	offer[1].side[LINK_PREV].lane[3].filtered = true;
	n = offer_write(&offer[1], buf, sizeof(buf));
	ck_assert_int_eq(offer_read(&back, 1, "b", buf, n), SIRCL_SUCCESS);
	ck_assert_mem_eq(&back, &offer[1], sizeof(back));
	ck_assert_uint_eq(offer_write(&back, again, sizeof(again)), n);
	ck_assert_mem_eq(buf, again, n);
	/* each prefix lies at the end of its own allocation, so that a sanitizer sees a byte too many */
	for (size_t k = 0; k < n; k++) {
		uint8_t *part = malloc(k ? k : 1);

		memcpy(part, buf, k);
		ck_assert_msg(offer_read(&back, 1, "b", part, k) == SIRCL_REMOTE_ERROR, "%zu of %zu", k, n);
		free(part);
	}
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "rank 1 (b)"));
}
END_TEST

START_TEST(test_more_lanes_than_a_link_has_are_refused)
{
	uint8_t buf[RDV_BLOB_MAX];
	struct rank_offer back;
	size_t each;

	healthy(LANES_MAX);
	each = (offer_write(&offer[0], buf, sizeof(buf)) - LINK_SIDES) / (LINK_SIDES * LANES_MAX);
	memset(buf, 0, sizeof(buf));
	buf[0] = LANES_MAX + 1; /* all of them are there, and none at the other side */
	ck_assert_int_eq(offer_read(&back, 1, "b", buf, 1 + (LANES_MAX + 1) * each + 1), SIRCL_REMOTE_ERROR);
	buf[0] = LANES_MAX;
	ck_assert_int_eq(offer_read(&back, 1, "b", buf, 1 + LANES_MAX * each + 1), SIRCL_SUCCESS);
}
END_TEST

START_TEST(test_garbage_is_read_and_chosen_from_within_bounds)
{
	uint8_t buf[RDV_BLOB_MAX];
	uint32_t rnd = 1;
	size_t n;

	healthy(LANES_MAX);
	n = offer_write(&offer[2], buf, sizeof(buf));
	for (int k = 0; k < 5000; k++) {
		size_t at;
		uint8_t was;
		char line[64];

		healthy(LANES_MAX);
		rnd = rnd * 1664525u + 1013904223u;
		at = k % 3 == 0 ? 0 : (rnd >> 8) % n;
		was = buf[at];
		buf[at] = (uint8_t)(rnd >> 24);
		if (offer_read(&offer[2], 2, "c", buf, n) == SIRCL_SUCCESS) {
			ck_assert_int_eq(choose(WANT_AUTO), SIRCL_SUCCESS);
			for (int c = 0; c < N; c++)
				ck_assert_uint_lt(
					strlen(provider_text(&map, rec, offer, use, c, line, sizeof(line))),
					sizeof(line));
		}
		buf[at] = was;
	}
}
END_TEST

START_TEST(test_a_ring_whose_ports_all_can_is_verbs_throughout)
{
	healthy(2);
	ck_assert_int_eq(choose(WANT_AUTO), SIRCL_SUCCESS);
	for (int c = 0; c < N; c++) {
		ck_assert_int_eq(use[c].class, CLASS_VERBS);
		ck_assert_int_eq(map.cable[c].nlanes, 2);
	}
	ck_assert_int_eq(provider_class(use, N), CLASS_VERBS);
	ck_assert_str_eq(text(3),
			 "cable 3: verbs, 2 lanes: rank 3 roce3n0 port 1 (RoCE MTU 4096), roce3n1 port 1 "
			 "(RoCE MTU 4096) - rank 0 roce0p0 port 1 (RoCE MTU 4096), roce0p1 port 1 (RoCE "
			 "MTU 4096)");
	ck_assert_int_eq(choose(WANT_VERBS), SIRCL_SUCCESS);
}
END_TEST

START_TEST(test_a_machine_without_rdma_has_tcp_on_its_two_cables_only)
{
	healthy(2);
	for (int s = 0; s < LINK_SIDES; s++)
		for (int l = 0; l < 2; l++)
			cannot(2, (enum link_side)s, l, "no rdma-core");
	ck_assert_int_eq(choose(WANT_AUTO), SIRCL_SUCCESS);
	for (int c = 0; c < N; c++) {
		ck_assert_int_eq(use[c].class, c == 1 || c == 2 ? CLASS_TCP : CLASS_VERBS);
		ck_assert_int_eq(map.cable[c].nlanes, 2);
	}
	ck_assert_int_eq(provider_class(use, N), CLASS_TCP); /* the slowest, wherever it is */
	ck_assert_str_eq(text(1),
			 "cable 1: tcp, 2 lanes; not verbs: rank 2 (spark-c), port p0: no rdma-core");
	ck_assert_str_eq(text(2),
			 "cable 2: tcp, 2 lanes; not verbs: rank 2 (spark-c), port n0: as for cable 1");
}
END_TEST

/* One end of one lane is enough to leave it out; what stays moves down, at both ends alike. */
START_TEST(test_a_lane_that_cannot_is_left_out_at_both_ends)
{
	healthy(3);
	cannot(1, LINK_PREV, 1, "no address");
	ck_assert_int_eq(choose(WANT_VERBS), SIRCL_SUCCESS);
	ck_assert_int_eq(use[0].class, CLASS_VERBS);
	ck_assert_int_eq(use[0].left_out, 1);
	ck_assert_int_eq(map.cable[0].nlanes, 2);
	ck_assert_int_eq(map.cable[0].port[0][1], 2);
	ck_assert_int_eq(map.cable[0].port[1][1], 5);
	ck_assert_int_eq(offer[0].side[LINK_NEXT].nlanes, 2);
	ck_assert_int_eq(offer[1].side[LINK_PREV].nlanes, 2);
	ck_assert_str_eq(offer[0].side[LINK_NEXT].lane[1].device, "roce0n2");
	ck_assert_str_eq(offer[1].side[LINK_PREV].lane[1].device, "roce1p2");
	ck_assert_ptr_nonnull(strstr(text(0), "; 1 lane left out: rank 1 (spark-b), port p1: no address"));
	for (int c = 1; c < N; c++) {
		ck_assert_int_eq(map.cable[c].nlanes, 3);
		ck_assert_int_eq(use[c].left_out, 0);
	}
}
END_TEST

/* IPv6 switched off at one end alone: the two addresses would never meet. */
START_TEST(test_ends_with_addresses_of_two_families_are_told_apart_before_they_wait)
{
	healthy(2);
	for (int l = 0; l < 2; l++)
		offer[1].side[LINK_PREV].lane[l].family = 4;
	offer[2].side[LINK_NEXT].lane[1].family = 4;
	for (int s = 0; s < LINK_SIDES; s++)
		for (int l = 0; l < 2; l++) /* cable 3: IPv4 at both ends is as good */
			offer[s ? 0 : 3].side[s].lane[l].family = 4;
	ck_assert_int_eq(choose(WANT_AUTO), SIRCL_SUCCESS);
	ck_assert_int_eq(use[0].class, CLASS_TCP);
	ck_assert_int_eq(use[0].rank, 1);
	ck_assert_ptr_nonnull(strstr(text(0),
				     "; not verbs: rank 1 (spark-b), port p0: its RoCE address is "
				     "IPv4, that of the other end (rank 0, spark-a) link-local IPv6"));
	ck_assert_int_eq(use[2].class, CLASS_VERBS);
	ck_assert_int_eq(use[2].left_out, 1);
	ck_assert_int_eq(use[3].class, CLASS_VERBS);
	ck_assert_int_eq(use[3].left_out, 0);
	ck_assert_int_eq(choose(WANT_VERBS), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "IPv6"));
}
END_TEST

/* Each end has a port that can, but no lane can at both. */
START_TEST(test_ports_that_can_on_different_lanes_make_no_verbs_cable)
{
	healthy(2);
	cannot(3, LINK_NEXT, 0, "left");
	cannot(0, LINK_PREV, 1, "right");
	ck_assert_int_eq(choose(WANT_AUTO), SIRCL_SUCCESS);
	ck_assert_int_eq(use[3].class, CLASS_TCP);
	ck_assert_int_eq(map.cable[3].nlanes, 2); /* tcp has them all */
	ck_assert_int_eq(choose(WANT_VERBS), SIRCL_BAD_CONFIG);
}
END_TEST

START_TEST(test_verbs_on_a_cable_that_cannot_is_an_error_that_names_rank_host_port_and_reason)
{
	static const char *const parts[] = { "SIRCL_TRANSPORT=verbs", "cable 2", "rank 2 (spark-c)",
					     "rank 3 (spark-d)",      "port p0", "no RDMA device",
					     "SIRCL_TRANSPORT=auto" };

	healthy(1);
	cannot(3, LINK_PREV, 0, "no RDMA device");
	ck_assert_int_eq(choose(WANT_VERBS), SIRCL_BAD_CONFIG);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		ck_assert_msg(strstr(error_last()->msg, parts[i]) != NULL, "%s not in: %s", parts[i],
			      error_last()->msg);
}
END_TEST

/* Ranks of one machine: no ports, no devices. */
START_TEST(test_within_a_machine_auto_is_shm_and_verbs_goes_through_a_device)
{
	healthy(2);
	for (int c = 0; c < N; c++)
		map.cable[c].local = 1;
	ck_assert_int_eq(provider_choose(WANT_AUTO, &map, rec, leader, NULL, use), SIRCL_SUCCESS);
	ck_assert_int_eq(provider_class(use, N), CLASS_SHM);
	ck_assert_int_eq(provider_choose(WANT_SHM, &map, rec, leader, NULL, use), SIRCL_SUCCESS);
	ck_assert_int_eq(provider_class(use, N), CLASS_SHM);
	ck_assert_int_eq(provider_choose(WANT_TCP, &map, rec, leader, NULL, use), SIRCL_SUCCESS);
	ck_assert_int_eq(provider_class(use, N), CLASS_TCP);
	ck_assert_int_eq(use[0].rank, -1); /* nobody is to blame for what was asked for */
	ck_assert_str_eq(text(0), "cable 0: tcp, 2 lanes");
	ck_assert_int_eq(choose(WANT_VERBS), SIRCL_SUCCESS);
	ck_assert_int_eq(provider_class(use, N), CLASS_VERBS);
	map.cable[1].local = 0;
	ck_assert_int_eq(choose(WANT_AUTO), SIRCL_SUCCESS);
	ck_assert_int_eq(use[0].class, CLASS_SHM);
	ck_assert_int_eq(use[1].class, CLASS_VERBS);
	ck_assert_int_eq(provider_class(use, N), CLASS_VERBS);
	ck_assert_int_eq(provider_class(use, 0), CLASS_SHM);
}
END_TEST

/* A rank that says less than the map has lanes. */
START_TEST(test_lanes_that_nobody_spoke_of_are_not_verbs)
{
	healthy(2);
	offer[1].side[LINK_NEXT].nlanes = 1;
	offer[3].side[LINK_NEXT].nlanes = 0;
	ck_assert_int_eq(choose(WANT_AUTO), SIRCL_SUCCESS);
	ck_assert_int_eq(use[1].class, CLASS_VERBS);
	ck_assert_int_eq(map.cable[1].nlanes, 1);
	ck_assert_int_eq(use[3].class, CLASS_TCP);
	ck_assert_int_eq(use[3].rank, 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric/provider");
	TCase *t = tcase_create("provider");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_offers_come_out_as_they_went_in_and_cut_ones_are_refused);
	tcase_add_test(t, test_more_lanes_than_a_link_has_are_refused);
	tcase_add_test(t, test_garbage_is_read_and_chosen_from_within_bounds);
	tcase_add_test(t, test_a_ring_whose_ports_all_can_is_verbs_throughout);
	tcase_add_test(t, test_a_machine_without_rdma_has_tcp_on_its_two_cables_only);
	tcase_add_test(t, test_a_lane_that_cannot_is_left_out_at_both_ends);
	tcase_add_test(t, test_ends_with_addresses_of_two_families_are_told_apart_before_they_wait);
	tcase_add_test(t, test_ports_that_can_on_different_lanes_make_no_verbs_cable);
	tcase_add_test(t, test_verbs_on_a_cable_that_cannot_is_an_error_that_names_rank_host_port_and_reason);
	tcase_add_test(t, test_within_a_machine_auto_is_shm_and_verbs_goes_through_a_device);
	tcase_add_test(t, test_lanes_that_nobody_spoke_of_are_not_verbs);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
