/* SPDX-License-Identifier: Apache-2.0 */
/* The ring map: rings and lines of any order, twins that share a wire, management networks, mis-cabling. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/ifaces.h"
#include "fabric/ringmap.h"

#define LANES 2
static struct map_rank r[COLL_MAX_RANKS];

static void ports(int n, int per_rank)
{
	memset(r, 0, sizeof(r));
	for (int i = 0; i < n; i++) {
		snprintf(r[i].host, sizeof(r[i].host), "spark-%c", 'a' + i);
		r[i].nports = per_rank;
		for (int k = 0; k < per_rank; k++) {
			snprintf(r[i].port[k].name, 16, "p%d", k);
			r[i].port[k].index = (uint32_t)(3 + k);
			r[i].port[k].pci_domain = (uint32_t)(k % LANES * 2);
		}
	}
}

static void heard(int a, int pa, int b, int pb)
{
	struct map_heard *h = &r[a].heard[r[a].nheard++];

	ck_assert_int_lt(r[a].nheard, MAP_HEARD_MAX);
	h->port = (uint8_t)pa;
	h->rank = (uint16_t)b;
	h->peer_port = (uint8_t)pb;
}

/* A cable joins ports a0.. of rank a and b0.. of rank b, LANES each, all on one wire. */
static void cable(int a, int a0, int b, int b0)
{
	int rank[2] = { a, b }, first[2] = { a0, b0 };

	for (int x = 0; x < 2; x++)
		for (int y = 0; y < 2; y++)
			for (int i = 0; i < LANES; i++)
				for (int k = 0; k < LANES; k++)
					if (x != y || i != k)
						heard(rank[x], first[x] + i, rank[y], first[y] + k);
}

static void ring_in_order(const int *order, int n)
{
	ports(n, 2 * LANES);
	for (int p = 0; p < n; p++)
		cable(order[p], 0, order[(p + 1) % n], LANES);
}

START_TEST(ring_order_follows_the_cables_for_any_permutation)
{
	static const int orders[][4] = { { 0, 1, 2, 3 }, { 0, 2, 1, 3 }, { 3, 1, 0, 2 }, { 2, 3, 0, 1 } };
	struct ring_map m;

	for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
		const int *o = orders[i];
		int at0 = 0;

		ring_in_order(o, 4);
		ck_assert_int_eq(ring_map_build(r, 4, 0, true, &m), SIRCL_SUCCESS);
		ck_assert(m.ring);
		ck_assert_int_eq(m.ncables, 4);
		ck_assert_int_eq(m.rank_of[0], 0);
		while (o[at0] != 0)
			at0++;
		ck_assert_int_eq(m.rank_of[2], o[(at0 + 2) % 4]); /* the opposite is the opposite */
		ck_assert_int_lt(m.rank_of[1], m.rank_of[3]);
		for (int p = 0; p < 4; p++) {
			ck_assert_int_eq(m.cable[p].rank[0], m.rank_of[p]);
			ck_assert_int_eq(m.cable[p].rank[1], m.rank_of[(p + 1) % 4]);
			ck_assert_int_eq(m.cable[p].nlanes, LANES);
			for (int l = 0; l < LANES; l++)
				ck_assert_int_eq(
					r[m.cable[p].rank[0]].port[m.cable[p].port[0][l]].pci_domain,
					r[m.cable[p].rank[1]].port[m.cable[p].port[1][l]].pci_domain);
		}
	}
}
END_TEST

START_TEST(lanes_pair_by_domain_even_if_indices_are_swapped_at_one_end)
{
	struct ring_map m;
	int o[] = { 0, 1, 2 };

	ring_in_order(o, 3);
	r[1].port[2].pci_domain = 2; /* rank 1's ports of the cable to rank 0 come in the other order */
	r[1].port[3].pci_domain = 0;
	ck_assert_int_eq(ring_map_build(r, 3, 0, true, &m), SIRCL_SUCCESS);
	ck_assert_int_eq(m.cable[0].port[0][0], 0);
	ck_assert_int_eq(m.cable[0].port[1][0], 3);
	ck_assert_int_eq(m.cable[0].port[1][1], 2);
}
END_TEST

/* Lane i of both cables of every machine is in the same domain, whatever the order of its interfaces. */
START_TEST(lanes_with_the_same_number_lie_in_the_same_domain_on_all_cables)
{
	struct ring_map m;
	int o[] = { 0, 1, 2 };

	ring_in_order(o, 3);
	for (int k = 0; k < 2 * LANES; k++)
		r[1].port[k].pci_domain = (uint32_t)((k + 1) % LANES * 2);
	ck_assert_int_eq(ring_map_build(r, 3, 0, true, &m), SIRCL_SUCCESS);
	for (int c = 0; c < 3; c++)
		for (int l = 0; l < LANES; l++)
			for (int end = 0; end < 2; end++)
				ck_assert_int_eq(
					r[m.cable[c].rank[end]].port[m.cable[c].port[end][l]].pci_domain,
					l * 2);
}
END_TEST

START_TEST(unknown_domains_pair_by_index_and_lanes_can_be_capped)
{
	struct ring_map m;
	int o[] = { 0, 1, 2 };

	ring_in_order(o, 3);
	r[1].port[2].pci_domain = PCI_DOMAIN_UNKNOWN;
	ck_assert_int_eq(ring_map_build(r, 3, 0, true, &m), SIRCL_SUCCESS);
	ck_assert_int_eq(m.cable[0].port[1][0], 2);
	ck_assert_int_eq(m.cable[0].port[1][1], 3);
	ck_assert_int_eq(ring_map_build(r, 3, 1, true, &m), SIRCL_SUCCESS);
	ck_assert_int_eq(m.cable[0].nlanes, 1);
}
END_TEST

START_TEST(missing_cable_makes_a_line_that_begins_at_the_lower_end)
{
	struct ring_map m;

	ports(4, 4);
	cable(2, 0, 3, 2);
	cable(1, 0, 2, 2);
	cable(0, 0, 1, 2);
	ck_assert_int_eq(ring_map_build(r, 4, 0, true, &m), SIRCL_IN_PROGRESS);
	ck_assert_int_eq(ring_map_build(r, 4, 0, false, &m), SIRCL_SUCCESS);
	ck_assert(!m.ring);
	ck_assert_int_eq(m.ncables, 3);
	for (int p = 0; p < 4; p++)
		ck_assert_int_eq(m.rank_of[p], p);
}
END_TEST

START_TEST(two_ranks_with_one_cable_are_a_line_with_two_a_ring)
{
	struct ring_map m;

	ports(2, 4);
	cable(0, 0, 1, 2);
	ck_assert_int_eq(ring_map_build(r, 2, 0, false, &m), SIRCL_SUCCESS);
	ck_assert(!m.ring);
	ck_assert_int_eq(m.ncables, 1);
	cable(0, 2, 1, 0);
	ck_assert_int_eq(ring_map_build(r, 2, 0, true, &m), SIRCL_SUCCESS);
	ck_assert(m.ring);
	ck_assert_int_eq(m.ncables, 2);
	ck_assert_int_eq(m.cable[1].rank[0], 1);
	ck_assert_int_eq(m.cable[1].rank[1], 0);
	ck_assert_int_eq(m.cable[1].port[1][0], 2);
	ck_assert_int_eq(m.cable[0].port[0][0], 0);
}
END_TEST

START_TEST(a_segment_of_three_machines_is_no_cable)
{
	struct ring_map m;
	int o[] = { 0, 1, 2, 3 };

	ring_in_order(o, 4);
	for (int i = 0; i < 4; i++)
		r[i].nports = 5;
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			if (i != k)
				heard(i, 4, k, 4);
	ck_assert_int_eq(ring_map_build(r, 4, 0, true, &m), SIRCL_SUCCESS);
	ck_assert_int_eq(m.ncables, 4);
}
END_TEST

START_TEST(the_excluded_port_is_no_cable_even_between_two_machines)
{
	struct ring_map m;

	ports(2, 3);
	cable(0, 0, 1, 0);
	heard(0, 2, 1, 2);
	heard(1, 2, 0, 2);
	r[0].port[2].excluded = r[1].port[2].excluded = true;
	ck_assert_int_eq(ring_map_build(r, 2, 0, false, &m), SIRCL_SUCCESS);
	ck_assert_int_eq(m.ncables, 1);
}
END_TEST

START_TEST(a_third_cable_is_named)
{
	struct ring_map m;
	int o[] = { 0, 1, 2, 3 };

	ring_in_order(o, 4);
	r[0].nports = r[2].nports = 6;
	cable(0, 4, 2, 4);
	ck_assert_int_eq(ring_map_build(r, 4, 0, false, &m), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "rank 0 (spark-a) has 3 cables"));
}
END_TEST

START_TEST(two_separate_rings_are_refused_and_nothing_heard_waits)
{
	struct ring_map m;

	ports(6, 4);
	cable(0, 0, 1, 2), cable(1, 0, 2, 2), cable(2, 0, 0, 2);
	cable(3, 0, 4, 2), cable(4, 0, 5, 2), cable(5, 0, 3, 2);
	ck_assert_int_eq(ring_map_build(r, 6, 0, false, &m), SIRCL_BAD_CONFIG);
	ports(4, 4);
	ck_assert_int_eq(ring_map_build(r, 4, 0, false, &m), SIRCL_IN_PROGRESS);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "none"));
}
END_TEST

START_TEST(reports_out_of_range_are_ignored)
{
	struct ring_map m;
	int o[] = { 0, 1, 2, 3 };

	ring_in_order(o, 4);
	heard(0, 0, 63, 1);
	heard(0, 200, 1, 1);
	heard(0, 0, 1, 250);
	ck_assert_int_eq(ring_map_build(r, 4, 0, true, &m), SIRCL_SUCCESS);
}
END_TEST

START_TEST(rings_of_3_to_64)
{
	struct ring_map m;
	int o[64];

	for (int n = 3; n <= 64; n++) {
		for (int i = 0; i < n; i++)
			o[i] = i;
		ring_in_order(o, n);
		ck_assert_int_eq(ring_map_build(r, n, 0, true, &m), SIRCL_SUCCESS);
		ck_assert(m.ring);
	}
}
END_TEST

/* Machines 0, 1, 2 in a ring of cables; where[rank]: the machine. Their lowest ranks report. */
static void shared_machines(const int *where, int n, bool close)
{
	int lead[3] = { -1, -1, -1 };

	ports(n, 2 * LANES);
	for (int i = 0; i < n; i++) {
		if (lead[where[i]] < 0)
			lead[where[i]] = i;
		r[i].shares = true;
		r[i].leader = (uint16_t)lead[where[i]];
		if (lead[where[i]] != i)
			r[i].nports = 0;
	}
	for (int k = 0; k < (close ? 3 : 2); k++)
		cable(lead[k], 0, lead[(k + 1) % 3], LANES);
}

START_TEST(ranks_of_a_machine_follow_each_other_between_its_cables)
{
	static const int where[] = { 0, 2, 1, 0, 1, 1 }, order[] = { 0, 3, 1, 2, 4, 5 };
	static const bool local[] = { true, false, false, true, true, false };
	struct ring_map m;

	shared_machines(where, 6, true);
	ck_assert_int_eq(ring_map_build(r, 6, 0, true, &m), SIRCL_SUCCESS);
	ck_assert(m.ring);
	ck_assert_int_eq(m.n, 6);
	ck_assert_int_eq(m.ncables, 6);
	for (int p = 0; p < 6; p++) {
		ck_assert_int_eq(m.rank_of[p], order[p]);
		ck_assert_int_eq(m.cable[p].local, local[p]);
		ck_assert_int_eq(m.cable[p].rank[0], order[p]);
		ck_assert_int_eq(m.cable[p].rank[1], order[(p + 1) % 6]);
		ck_assert_int_eq(m.cable[p].nlanes, local[p] ? 1 : LANES);
	}
	/* machine 0's cable to machine 2 is at its PREV ports, 2's at its NEXT ones */
	ck_assert_int_eq(m.cable[1].port[0][0], LANES);
	ck_assert_int_eq(m.cable[1].port[1][0], 0);
}
END_TEST

START_TEST(shared_machines_in_a_line)
{
	static const int where[] = { 1, 0, 1, 2 };
	struct ring_map m;

	shared_machines(where, 4, false);
	ck_assert_int_eq(ring_map_build(r, 4, 0, true, &m), SIRCL_IN_PROGRESS);
	ck_assert_int_eq(ring_map_build(r, 4, 4, false, &m), SIRCL_SUCCESS);
	ck_assert(!m.ring);
	ck_assert_int_eq(m.ncables, 3);
	ck_assert(!m.cable[0].local && m.cable[1].local && !m.cable[2].local);
	ck_assert_int_eq(m.cable[1].nlanes, 4); /* no ports to run out of */
	ck_assert_str_eq(m.text, "1 =2= 0 =4= 2 =2= 3");
}
END_TEST

START_TEST(two_machines_of_two_ranks)
{
	struct ring_map m;

	ports(4, 4);
	for (int i = 0; i < 4; i++) {
		r[i].shares = true;
		r[i].leader = (uint16_t)(i & ~1);
	}
	ck_assert_int_eq(ring_map_build(r, 4, 0, false, &m), SIRCL_IN_PROGRESS);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "no cable joins ranks 0 and 2"));
	cable(0, 0, 2, 2);
	ck_assert_int_eq(ring_map_build(r, 4, 0, false, &m), SIRCL_SUCCESS);
	ck_assert_int_eq(m.ncables, 3);
	cable(0, 2, 2, 0);
	ck_assert_int_eq(ring_map_build(r, 4, 0, true, &m), SIRCL_SUCCESS);
	ck_assert(m.ring);
	ck_assert_int_eq(m.ncables, 4);
	ck_assert_int_eq(m.cable[3].rank[0], 3);
	ck_assert_int_eq(m.cable[3].rank[1], 0);
	ck_assert_int_eq(m.cable[3].port[0][0], 0);
	ck_assert_int_eq(m.cable[3].port[1][0], 2);
}
END_TEST

START_TEST(interface_filters_read_as_nccls)
{
	ck_assert(iface_matches("", "eth0") && iface_matches(NULL, "eth0") && iface_matches("eth,ib", "ib0"));
	ck_assert(!iface_matches("=eth", "eth0") && iface_matches("=eth0", "eth0") &&
		  !iface_matches("^eth", "eth0"));
	ck_assert(iface_matches("^=eth", "eth0") && !iface_matches("^=eth0", "eth0") &&
		  !iface_matches("ib", "eth0"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric/ringmap");
	TCase *t = tcase_create("map");
	SRunner *run = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, ring_order_follows_the_cables_for_any_permutation);
	tcase_add_test(t, lanes_pair_by_domain_even_if_indices_are_swapped_at_one_end);
	tcase_add_test(t, lanes_with_the_same_number_lie_in_the_same_domain_on_all_cables);
	tcase_add_test(t, unknown_domains_pair_by_index_and_lanes_can_be_capped);
	tcase_add_test(t, missing_cable_makes_a_line_that_begins_at_the_lower_end);
	tcase_add_test(t, two_ranks_with_one_cable_are_a_line_with_two_a_ring);
	tcase_add_test(t, a_segment_of_three_machines_is_no_cable);
	tcase_add_test(t, the_excluded_port_is_no_cable_even_between_two_machines);
	tcase_add_test(t, a_third_cable_is_named);
	tcase_add_test(t, two_separate_rings_are_refused_and_nothing_heard_waits);
	tcase_add_test(t, reports_out_of_range_are_ignored);
	tcase_add_test(t, rings_of_3_to_64);
	tcase_add_test(t, ranks_of_a_machine_follow_each_other_between_its_cables);
	tcase_add_test(t, shared_machines_in_a_line);
	tcase_add_test(t, two_machines_of_two_ranks);
	tcase_add_test(t, interface_filters_read_as_nccls);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed ? 1 : 0;
}
