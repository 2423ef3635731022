/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tag of a collective: 64 bits that say which call this is, so that ranks that issued different calls
 * find out by the first frame. From the low end: number 12, kind 4, type 4, operation 3, root 6, count 35.
 * What does not matter to a kind (the operation of an all-gather) is 0.
 */
#include "engine/internal.h"
#include <stdio.h>

#define COUNT_MAX ((1ull << 35) - 1)
#define KIND_MEETING 15u
_Static_assert(COLL_KINDS <= KIND_MEETING, "kinds fit beside the meeting");

static bool kind_reduces(unsigned kind)
{
	return coll_reduces((enum coll_kind)kind);
}

uint64_t op_tag(uint64_t number, const struct op_args *a)
{
	uint64_t count = a->count < COUNT_MAX ? a->count : COUNT_MAX;
	uint64_t op = kind_reduces(a->kind) ? (uint64_t)a->op & 7 : 0;

	uint64_t kind = a->meeting ? KIND_MEETING : (uint64_t)a->kind & 15;

	return (number & 0xfff) | kind << 12 | ((uint64_t)a->type & 15) << 16 | op << 20 | count << 29;
}

void op_tag_text(uint64_t tag, char *buf, size_t n)
{
	unsigned kind = tag >> 12 & 15, type = tag >> 16 & 15, op = tag >> 20 & 7;
	unsigned long long count = tag >> 29;

	if (kind == KIND_MEETING) {
		snprintf(buf, n, MEETING_TEXT ", number %llu", (unsigned long long)(tag & 0xfff));
		return;
	}
	snprintf(buf, n, "%s of %llu%s %s%s%s, number %llu",
		 kind < COLL_KINDS ? coll_kind_name((enum coll_kind)kind) : "an unknown collective", count,
		 count == COUNT_MAX ? " or more" : "",
		 type < SIRCL_TYPE_COUNT ? type_name((sircl_type_t)type) : "elements of an unknown type",
		 kind_reduces(kind) ? ", " : "",
		 !kind_reduces(kind)   ? ""
		 : op < SIRCL_OP_COUNT ? op_name((sircl_op_t)op)
				       : "unknown operation",
		 (unsigned long long)(tag & 0xfff));
}
