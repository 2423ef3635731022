/* SPDX-License-Identifier: Apache-2.0 */
#include "api/split_shape.h"

static bool before(const struct split_member *member, int a, int b)
{
	return member[a].key != member[b].key ? member[a].key < member[b].key : a < b;
}

/* Insertion sort: at most 64. */
static void order_ranks(const struct split_member *member, int n, int colour, struct split_shape *s)
{
	s->n = 0;
	for (int r = 0; r < n; r++) {
		int at;

		if (member[r].colour != colour)
			continue;
		for (at = s->n++; at > 0 && before(member, r, s->parent_of[at - 1]); at--)
			s->parent_of[at] = s->parent_of[at - 1];
		s->parent_of[at] = (uint16_t)r;
	}
}

/* rank_of in order of nodes. */
static void order_positions(const uint16_t *parent_node, struct split_shape *s)
{
	for (int r = 0; r < s->n; r++) {
		uint16_t node = parent_node[s->parent_of[r]];
		int at;

		for (at = r; at > 0 && s->node_of[at - 1] > node; at--) {
			s->node_of[at] = s->node_of[at - 1];
			s->rank_of[at] = s->rank_of[at - 1];
		}
		s->node_of[at] = node;
		s->rank_of[at] = (uint16_t)r;
	}
}

/* Position 0 becomes the one at `first`. */
static void rotate(struct split_shape *s, int first)
{
	struct split_shape old = *s;

	for (int p = 0; p < s->n; p++) {
		s->node_of[p] = old.node_of[(p + first) % s->n];
		s->rank_of[p] = old.rank_of[(p + first) % s->n];
	}
}

void split_shape(const struct split_member *member, const uint16_t *parent_node, int n, int colour, int nodes,
		 bool net_ring, struct split_shape *s)
{
	int longest = 0, after = 0;

	*s = (struct split_shape){ .n = 0 };
	order_ranks(member, n, colour, s);
	order_positions(parent_node, s);
	if (!net_ring || s->n < 2)
		return;
	for (int p = 0; p < s->n; p++) {
		int next = (p + 1) % s->n;
		int gap = (s->node_of[next] - s->node_of[p] + nodes) % nodes;

		if (gap > longest) {
			longest = gap;
			after = next;
		}
	}
	s->ring = 2 * longest <= nodes;
	if (!s->ring)
		rotate(s, after);
}
