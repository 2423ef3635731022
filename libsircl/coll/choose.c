/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of algorithm and slice: pure functions of what all ranks know, so that all choose alike. A model
 * with two constants per class gives each algorithm's time: hops that follow one another, and bytes over the
 * busiest cable in one direction. Integers only: the same on every processor.
 */
#include <stdio.h>
#include "coll/internal.h"
#include "reduce/reduce.h"

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

/*
 * exchange. s: the caller's count in bytes. Where everybody has something for everybody, the middle of a line
 * carries n/2 shares of n/2 ranks each way, and every cable of a ring half of that; what has one root is
 * worst next to it.
 */
static struct load load_of_exchange(enum coll_kind kind, uint64_t s, uint64_t n, enum coll_shape shape)
{
	uint64_t far = shape == SHAPE_LINE ? n - 1 : n / 2;
	uint64_t pairs = shape == SHAPE_LINE ? (n * n + 3) / 4 : (n * n + 7) / 8;

	switch (kind) {
	case COLL_REDUCE_SCATTER:
	case COLL_ALL_TO_ALL:
		return (struct load){ far, pairs * s, 2 * pairs * s, 2 * pairs };
	case COLL_BROADCAST:
		return n == 2 ? (struct load){ 1, s, s, 1 } : (struct load){ far, s, 2 * s, 2 };
	case COLL_REDUCE:
		return (struct load){ far, far * s, far * s, far };
	default: /* everything to everybody */
		return (struct load){ far, far * s, (n - 1) * s, n - 1 };
	}
}

static struct load load_of_ring(enum coll_kind kind, uint64_t s, uint64_t n)
{
	if (kind == COLL_ALL_REDUCE)
		return (struct load){ 2 * (n - 1), (n - 1) * s / n, 2 * (n - 1) * s / n, 4 * (n - 1) };
	return (struct load){ n - 1, (n - 1) * s / 2, (n - 1) * s, 2 * (n - 1) };
}

static struct load load_of_pipeline(enum coll_kind kind, uint64_t s, uint64_t n, enum coll_shape shape)
{
	if (kind == COLL_ALL_REDUCE)
		return (struct load){ 2 * (n - 1), s, 2 * s, 4 };
	if (kind == COLL_REDUCE_SCATTER)
		return (struct load){ n - 1, (n - 1) * s, (n - 1) * s, n - 1 };
	return (struct load){ n - 1, shape == SHAPE_RING ? s / 2 : s,
			      kind == COLL_BROADCAST && shape == SHAPE_LINE ? 2 * s : s, 2 };
}

/* Contributions lie in scratch, and the way back begins when a whole block has come together: that costs an
 * eighth beside the ring, whose sums flow on. */
static struct load load_of_two_shot(uint64_t s, uint64_t n, enum coll_shape shape)
{
	uint64_t pairs = shape == SHAPE_LINE ? n * n / 4 : n * n / 8, half = n / 2;
	uint64_t cable = (pairs + half) * s / n * 9 / 8;

	return (struct load){ shape == SHAPE_LINE ? 2 * (n - 1) : 2 * half, cable, 2 * cable,
			      2 * pairs + n - 1 };
}

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
		return load_of_ring(kind, s, n);
	case ALGO_TWO_SHOT:
		return load_of_two_shot(s, n, shape);
	case ALGO_PIPELINE:
		return load_of_pipeline(kind, s, n, shape);
	default:
		return load_of_exchange(kind, s, n, shape);
	}
}

/*
 * Ranks of class shm share the cores. So where one root sends or receives more than others, what the busiest
 * rank sends and what all do count half each; and the halves of a pipeline, which go opposite ways round,
 * take turns. Broadcast and reduce, exchange against pipeline, us, second of 7 medians, 4 ranks on 2 cores:
 * at 16, 64, 256 KiB: broadcast 4.5 and 12.2, 11 and 21, 50 and 67; reduce 6.7 and 12.3, 21 and 18, 139 and
 * 79; 8 ranks at 32, 128 KiB: broadcast 36 and 98, 136 and 209; reduce 101 and 115, 458 and 228.
 */
static void share_cores(struct load *l, enum coll_kind kind, enum coll_algo algo, uint64_t s, uint64_t n,
			enum coll_shape shape)
{
	uint64_t all = n - 1;

	if (kind == COLL_REDUCE && algo == ALGO_EXCHANGE) /* every contribution by itself, all the way */
		all = shape == SHAPE_RING ? n * n / 4 : n * (n - 1) / 2;
	l->rank = (l->rank + all * s / n) / 2;
	if (algo == ALGO_PIPELINE && shape == SHAPE_RING)
		l->hops *= 2;
}

static uint64_t time_of(enum coll_kind kind, enum coll_algo algo, uint64_t bytes, int n,
			enum coll_class class, enum coll_shape shape)
{
	uint64_t s = bytes < BYTES_MAX ? bytes : BYTES_MAX, t;
	struct load l = load_of(kind, algo, s, n, shape);

	if (class == CLASS_SHM && (kind == COLL_BROADCAST || kind == COLL_REDUCE))
		share_cores(&l, kind, algo, s, (uint64_t)n, shape);
	t = l.hops * classes[class].hop_ns + l.msgs * classes[class].msg_ns +
	    l.cable * 1000 / classes[class].cable;
	return classes[class].rank ? t + l.rank * 1000 / classes[class].rank : t;
}

/* Sums in rank order and rounds once, or has nothing to sum. */
static bool in_rank_order(enum coll_kind kind, enum coll_algo algo)
{
	return !coll_reduces(kind) || algo == ALGO_EXCHANGE || algo == ALGO_TWO_SHOT;
}

static bool possible(enum coll_kind kind, enum coll_algo algo, int n, enum coll_shape shape, bool ordered)
{
	return coll_can(kind, algo, n, shape) && (!ordered || in_rank_order(kind, algo));
}

static sircl_result_t cannot(enum coll_kind kind, enum coll_algo forced, int n, enum coll_shape shape,
			     const char *ordered)
{
	char list[80] = "";
	int len = 0;

	for (int a = ALGO_AUTO + 1; a < ALGO_COUNT; a++)
		if (possible(kind, (enum coll_algo)a, n, shape, ordered))
			len += snprintf(list + len, sizeof(list) - (size_t)len, "%s%s", len ? ", " : "",
					coll_algo_name((enum coll_algo)a));
	if (ordered)
		return error_set(SIRCL_UNSUPPORTED,
				 "SIRCL_ALGO=%s: not possible for %s with %s, which is summed in rank order; "
				 "possible: auto, %s",
				 coll_algo_name(forced), coll_kind_name(kind), ordered, list);
	return error_set(SIRCL_UNSUPPORTED,
			 "SIRCL_ALGO=%s: not possible for %s on a %s of %d ranks; possible: auto, %s",
			 coll_algo_name(forced), coll_kind_name(kind), shape == SHAPE_RING ? "ring" : "line",
			 n, list);
}

/* Whether the algorithm exists for this kind on any fabric at all. */
static bool has(enum coll_kind kind, enum coll_algo algo)
{
	return coll_can(kind, algo, 2, SHAPE_RING) || coll_can(kind, algo, 2, SHAPE_LINE);
}

sircl_result_t coll_choose(enum coll_kind kind, sircl_type_t type, sircl_op_t op, size_t bytes, int n,
			   enum coll_class class, enum coll_shape shape, enum coll_algo forced,
			   bool deterministic, enum coll_algo *out)
{
	/* why only rank order will do; an integer average truncates, so no partial one can be passed on */
	const char *ordered = !coll_reduces(kind)                        ? NULL
			      : deterministic                            ? "SIRCL_DETERMINISTIC=1"
			      : op == SIRCL_AVG && type_is_integer(type) ? "an average of integers"
									 : NULL;
	uint64_t best = UINT64_MAX;

	if (forced != ALGO_AUTO && has(kind, forced)) {
		if (!coll_can(kind, forced, n, shape))
			return cannot(kind, forced, n, shape, NULL);
		if (!possible(kind, forced, n, shape, ordered))
			return cannot(kind, forced, n, shape, ordered);
		*out = forced;
		return SIRCL_SUCCESS;
	}
	*out = ALGO_EXCHANGE; /* exists everywhere */
	for (int a = ALGO_AUTO + 1; a < ALGO_COUNT; a++) {
		uint64_t t;

		if (!possible(kind, (enum coll_algo)a, n, shape, ordered))
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

/* Bytes of a block of the plan, of which a slice is cut. */
static size_t block_of(enum coll_kind kind, enum coll_algo algo, size_t bytes, int n)
{
	/* What travels as one past all ranks goes in many slices: the last rank begins n - 2 of them after
	 * the first. */
	if (kind == COLL_BROADCAST || (algo == ALGO_PIPELINE && kind != COLL_REDUCE_SCATTER))
		return bytes / 2 / (size_t)n;
	switch (algo) {
	case ALGO_RING:
		return kind == COLL_ALL_REDUCE ? bytes / (2 * (size_t)n) : bytes / 2;
	case ALGO_TWO_SHOT:
		return bytes / (size_t)n;
	case ALGO_TWO_MATCHINGS:
		return bytes / 2;
	default:
		return bytes;
	}
}

/* At least as many blocks as any plan holds in scratch, wide ones counted eight times (int8 in 64 bits). */
static size_t held_of(enum coll_kind kind, enum coll_algo algo, int n)
{
	size_t all = (size_t)n;

	if (algo == ALGO_RING || algo == ALGO_PIPELINE)
		return 8;
	if (coll_reduces(kind) || kind == COLL_BARRIER)
		return n <= 4 ? 2 * all : 3 * all + 16;
	return all < 32 ? all + 8 : 40;
}

#define SCRATCH_MOST ((size_t)16 << 20) /* as the engine's; a round shall be of four slices or more */

size_t coll_slice(enum coll_kind kind, enum coll_algo algo, size_t bytes, int n, enum coll_class class,
		  size_t window, size_t forced)
{
	size_t slice, most = SCRATCH_MOST / 4 / held_of(kind, algo, n) / 64 * 64;

	if (forced)
		return up64(forced);
	/* a few slices of every block, to overlap its sums and relays with its travel; never so large that
	 * the window holds less than four */
	slice = block_of(kind, algo, bytes, n) / 4;
	if (slice < classes[class].slice_min)
		slice = classes[class].slice_min;
	if (slice > window / 4)
		slice = window / 4;
	if (slice > most)
		slice = most;
	return slice < 64 ? 64 : up64(slice);
}
