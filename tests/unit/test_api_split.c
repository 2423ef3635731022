/* SPDX-License-Identifier: Apache-2.0 */
/* How a split lies along the cables. */
#include <check.h>
#include "api/split_shape.h"

#define N 8

static struct split_member member[COLL_MAX_RANKS];
static uint16_t node[COLL_MAX_RANKS];

/* Ranks of the set, with equal keys, in a fabric in which rank r is at node r. */
static struct split_shape of(unsigned set, int nodes, bool ring)
{
	struct split_shape s;

	for (int r = 0; r < nodes; r++) {
		member[r] = (struct split_member){ .colour = set >> r & 1 ? 3 : 4, .key = 0 };
		node[r] = (uint16_t)r;
	}
	split_shape(member, node, nodes, 3, nodes, ring, &s);
	return s;
}

START_TEST(test_ranks_are_ordered_by_key_then_rank)
{
	static const int keys[N] = { 5, -1, 5, 0, 9, 0, -1, 2 };
	static const int want[] = { 1, 6, 3, 5, 0, 2, 4 };
	struct split_shape s;

	for (int r = 0; r < N; r++) {
		member[r] = (struct split_member){ .colour = r == 7, .key = keys[r] };
		node[r] = (uint16_t)((r * 3) % N);
	}
	split_shape(member, node, N, 0, N, true, &s);
	ck_assert_int_eq(s.n, 7);
	for (int r = 0; r < s.n; r++)
		ck_assert_int_eq(s.parent_of[r], want[r]);
	/* and a rank's place is where its machine is */
	for (int p = 0; p < s.n; p++)
		ck_assert_int_eq(s.node_of[p], node[s.parent_of[s.rank_of[p]]]);
}
END_TEST

START_TEST(test_ring_if_no_gap_is_longer_than_half)
{
	ck_assert(of(0xff, 8, true).ring);
	ck_assert(of(0x11, 8, true).ring); /* 0 and 4 of 8: both ways are as long */
	ck_assert(of(0x5, 4, true).ring); /* {0,2} of 4 */
	ck_assert(of(0x3, 2, true).ring);
	ck_assert(!of(0x3, 3, true).ring);
	ck_assert(!of(0x7, 8, true).ring);
	ck_assert(of(0x29, 8, true).ring); /* 0, 3, 5: gaps 3, 2, 3 */
	ck_assert(!of(0xff, 8, false).ring); /* a line carries no ring */
	ck_assert(!of(0x1, 8, true).ring);
}
END_TEST

START_TEST(test_line_opens_at_the_longest_gap)
{
	struct split_shape s = of(0xc1, 8, true); /* 0, 6, 7: the gap is from 0 to 6 */

	ck_assert_int_eq(s.n, 3);
	ck_assert_int_eq(s.node_of[0], 6);
	ck_assert_int_eq(s.node_of[1], 7);
	ck_assert_int_eq(s.node_of[2], 0);
	ck_assert_int_eq(s.rank_of[0], 1);
	ck_assert_int_eq(s.rank_of[2], 0);
	s = of(0xc1, 8, false);
	ck_assert_int_eq(s.node_of[0], 0);
}
END_TEST

/* For every set: nodes ascend round the ring, once round at most, and each member is there once. */
START_TEST(test_positions_ascend)
{
	for (int nodes = 1; nodes <= N; nodes++)
		for (unsigned set = 1; set < 1u << nodes; set++)
			for (int ring = 0; ring < 2; ring++) {
				struct split_shape s = of(set, nodes, ring);
				unsigned seen = 0;
				int hops = 0;

				ck_assert_int_eq(s.n, __builtin_popcount(set));
				for (int p = 0; p < s.n; p++) {
					seen |= 1u << s.node_of[p];
					if (p)
						hops += (s.node_of[p] - s.node_of[p - 1] + nodes) % nodes;
				}
				ck_assert_uint_eq(seen, set);
				ck_assert_int_lt(hops, nodes);
				/* a line on a ring is the shorter way for every two that follow each other */
				for (int p = 1; ring && p < s.n; p++)
					ck_assert_int_le(
						2 * ((s.node_of[p] - s.node_of[p - 1] + nodes) % nodes),
						nodes);
			}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("api split");
	TCase *c = tcase_create("shape");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(c, test_ranks_are_ordered_by_key_then_rank);
	tcase_add_test(c, test_ring_if_no_gap_is_longer_than_half);
	tcase_add_test(c, test_line_opens_at_the_longest_gap);
	tcase_add_test(c, test_positions_ascend);
	suite_add_tcase(s, c);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
