/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tag of a collective: 64 bits that say which call this is, so that ranks that issued different calls
 * find out by the first frame. From the low end: number 12, kind 4, type 4, operation 3, root 6, count 35.
 * What does not matter to a kind (the operation of an all-gather, the root of an all-reduce) is 0.
 */
#include "engine/internal.h"
#include <stdio.h>

#define COUNT_MAX ((1ull << 35) - 1)
#define KIND_MEETING 15u
_Static_assert(COLL_KINDS <= KIND_MEETING, "kinds fit beside the meeting");

uint64_t op_tag(uint64_t number, const struct op_args *a)
{
	uint64_t count = a->count < COUNT_MAX ? a->count : COUNT_MAX;
	uint64_t op = coll_reduces(a->kind) ? (uint64_t)a->op & 7 : 0;
	uint64_t root = coll_has_root(a->kind) ? (uint64_t)a->root & 63 : 0;
	uint64_t kind = a->meeting ? KIND_MEETING : (uint64_t)a->kind & 15;

	return (number & OP_TAG_NUMBERS) | kind << 12 | ((uint64_t)a->type & 15) << 16 | op << 20 |
	       root << 23 | count << 29;
}

void op_tag_text(uint64_t tag, char *buf, size_t n)
{
	struct op_args a = { .kind = (enum coll_kind)(tag >> 12 & 15),
			     .type = (sircl_type_t)(tag >> 16 & 15),
			     .op = (sircl_op_t)(tag >> 20 & 7),
			     .root = (int)(tag >> 23 & 63),
			     .count = (size_t)(tag >> 29) };
	char call[112] = MEETING_TEXT;

	if ((unsigned)a.kind != KIND_MEETING)
		call_text(&a, a.count == COUNT_MAX ? " or more" : "", call, sizeof(call));
	snprintf(buf, n, "%s, number %llu", call, (unsigned long long)(tag & OP_TAG_NUMBERS));
}
