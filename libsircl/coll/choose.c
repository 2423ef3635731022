/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of algorithm and slice: pure functions of what all ranks know, so that all choose alike. A model
 * with two constants per class gives each algorithm's time: hops that follow one another, and bytes over the
 * busiest cable in one direction. Integers only: the same on every processor.
 */
#include <stdio.h>
#include "coll/internal.h"

/*
 * hop_ns: from one position's data being ready to the neighbour having it summed, for a small message.
 * msg_ns: what a message costs a rank's processor beyond that; 0: not counted.
 * cable: bytes per us of one cable in one direction. rank: bytes per us that one rank can send over all its
 * cables; 0: the cables are the limit. Ranks of class shm share the memory and the cores of one machine, so
 * rank counts for them, and cables do not. shm and tcp (loopback) are fitted to 4 ranks on a
 * busy 2-core machine; first quartiles, over 5 to 13 runs, of the slowest rank's median, us, at
 *   shm 16, 64, 256 KiB: doubling 22, 46, 261; two-matchings 39, 68, 260; ring 50, 63, 151
 *   tcp 1, 64, 256 KiB: doubling 38, 310, 1010; two-matchings 70, 303, 1044; ring -, 436, 710
 */
static const struct {
	uint32_t hop_ns, msg_ns, cable, rank;
	uint32_t slice_min;
} classes[CLASS_COUNT] = {
	[CLASS_SHM] = { 1800, 510, 1000000, 4000, 65536 },
	[CLASS_TCP] = { 4000, 12000, 2500, 546, 32768 },
	[CLASS_VERBS] = { 2500, 0, 12200, 0, 16384 }, /* one Spark cable; design section 9 */
	[CLASS_SIM] = { 2500, 0, 12200, 0, 16384 },
};

/* Bytes beyond this are as this many: no overflow below, and long past every crossover. */
#define BYTES_MAX (1ull << 40)

struct load {
	uint64_t hops, cable, rank; /* bytes: over the busiest cable one way; sent by one rank */
	uint64_t msgs; /* sent by one rank */
};

static struct load load_of(enum coll_kind kind, enum coll_algo algo, uint64_t s, int ranks,
			   enum coll_shape shape)
{
	uint64_t n = (uint64_t)ranks;

	switch (algo) {
	case ALGO_TWO_MATCHINGS:
		if (n == 2 && shape == SHAPE_LINE)
			return (struct load){ 1, s, s, 1 };
		return n == 2 ? (struct load){ 1, s / 2, s, 2 } : (struct load){ 2, s, 2 * s, 4 };
	case ALGO_DOUBLING:
		return n == 2 ? (struct load){ 1, s, s, 1 } : (struct load){ 2, 2 * s, 2 * s, 2 };
	case ALGO_RING:
		if (kind == COLL_ALL_GATHER)
			return (struct load){ n - 1, (n - 1) * s / 2, (n - 1) * s, 2 * (n - 1) };
		return (struct load){ 2 * (n - 1), (n - 1) * s / n, 2 * (n - 1) * s / n, 4 * (n - 1) };
	default:
		if (shape == SHAPE_LINE)
			return (struct load){ n - 1, (n - 1) * s, (n - 1) * s, n - 1 };
		return (struct load){ n / 2, n / 2 * s, (n - 1) * s, n - 1 };
	}
}

static uint64_t time_of(enum coll_kind kind, enum coll_algo algo, uint64_t bytes, int n,
			enum coll_class class, enum coll_shape shape)
{
	struct load l = load_of(kind, algo, bytes < BYTES_MAX ? bytes : BYTES_MAX, n, shape);
	uint64_t t = l.hops * classes[class].hop_ns + l.msgs * classes[class].msg_ns +
		     l.cable * 1000 / classes[class].cable;

	return classes[class].rank ? t + l.rank * 1000 / classes[class].rank : t;
}

static sircl_result_t cannot(enum coll_kind kind, enum coll_algo forced, int n, enum coll_shape shape)
{
	char list[80] = "";
	int len = 0;

	for (int a = ALGO_AUTO + 1; a < ALGO_COUNT; a++)
		if (coll_can(kind, (enum coll_algo)a, n, shape))
			len += snprintf(list + len, sizeof(list) - (size_t)len, "%s%s", len ? ", " : "",
					coll_algo_name((enum coll_algo)a));
	return error_set(SIRCL_UNSUPPORTED,
			 "SIRCL_ALGO=%s: not possible for %s on a %s of %d ranks; possible: auto, %s",
			 coll_algo_name(forced), coll_kind_name(kind), shape == SHAPE_RING ? "ring" : "line",
			 n, list);
}

/* Whether the algorithm exists for this kind on any fabric at all. */
static bool has(enum coll_kind kind, enum coll_algo algo)
{
	return coll_can(kind, algo, 2, SHAPE_RING);
}

sircl_result_t coll_choose(enum coll_kind kind, sircl_type_t type, sircl_op_t op, size_t bytes, int n,
			   enum coll_class class, enum coll_shape shape, enum coll_algo forced,
			   bool deterministic, enum coll_algo *out)
{
	uint64_t best = UINT64_MAX;

	(void)type; /* no crossover depends on these two yet */
	(void)op;
	if (forced != ALGO_AUTO && has(kind, forced)) {
		if (!coll_can(kind, forced, n, shape))
			return cannot(kind, forced, n, shape);
		*out = forced;
		return SIRCL_SUCCESS;
	}
	*out = ALGO_EXCHANGE; /* rank order, and it exists everywhere */
	if (deterministic && kind == COLL_ALL_REDUCE)
		return SIRCL_SUCCESS;
	for (int a = ALGO_AUTO + 1; a < ALGO_COUNT; a++) {
		uint64_t t;

		if (!coll_can(kind, (enum coll_algo)a, n, shape))
			continue;
		t = time_of(kind, (enum coll_algo)a, bytes, n, class, shape);
		if (t < best) {
			best = t;
			*out = (enum coll_algo)a;
		}
	}
	return SIRCL_SUCCESS;
}

static size_t up64(size_t x)
{
	return x > SIZE_MAX - 63 ? SIZE_MAX & ~(size_t)63 : (x + 63) & ~(size_t)63;
}

size_t coll_slice(enum coll_kind kind, enum coll_algo algo, size_t bytes, int n, enum coll_class class,
		  size_t window, size_t forced)
{
	size_t block = bytes, slice;

	if (forced)
		return up64(forced);
	if (algo == ALGO_RING)
		block = kind == COLL_ALL_REDUCE ? bytes / (2 * (size_t)n) : bytes / 2;
	else if (algo == ALGO_TWO_MATCHINGS)
		block = bytes / 2;
	/* a few slices of every block, to overlap its sums and relays with its travel; never so large that
	 * the window holds less than four */
	slice = block / 4;
	if (slice < classes[class].slice_min)
		slice = classes[class].slice_min;
	if (slice > window / 4)
		slice = window / 4;
	return slice < 64 ? 64 : up64(slice);
}
