/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan builders, the choice of algorithm, the prover, the cache. Plans are data: no I/O, no clock, no
 * allocation besides the plans.
 */
#ifndef COLL_COLL_H
#define COLL_COLL_H
#include <stdbool.h>
#include <stddef.h>
#include "base/ctx.h"
#include "engine/plan.h"
#include "sircl/sircl.h"

enum coll_kind {
	COLL_ALL_REDUCE,
	COLL_ALL_GATHER,
	COLL_REDUCE_SCATTER,
	COLL_BROADCAST,
	COLL_REDUCE,
	COLL_ALL_TO_ALL,
	COLL_GATHER,
	COLL_SCATTER,
	COLL_BARRIER, /* the engine runs it as an all-reduce of one byte of its own */
	COLL_KINDS
};
enum coll_algo {
	ALGO_AUTO,
	ALGO_TWO_MATCHINGS,
	ALGO_EXCHANGE, /* everybody's data to whoever needs it, both ways round, sums in rank order */
	ALGO_RING,
	ALGO_DOUBLING,
	ALGO_TWO_SHOT, /* all-reduce: exchange to owners, sum in rank order, all-gather */
	ALGO_PIPELINE, /* one half of the data all the way round each way; on a line: to and from the ends */
	ALGO_COUNT
};
enum coll_shape { SHAPE_RING, SHAPE_LINE };
enum coll_class {
	CLASS_SHM,
	CLASS_TCP,
	CLASS_VERBS,
	CLASS_SIM,
	CLASS_COUNT
}; /* the slowest provider of the job */
#define COLL_MAX_RANKS 64

const char *coll_kind_name(enum coll_kind); /* "all_reduce" */
const char *coll_algo_name(enum coll_algo); /* "two-matchings" */

static inline bool coll_has_root(enum coll_kind k)
{
	return k == COLL_BROADCAST || k == COLL_REDUCE || k == COLL_GATHER || k == COLL_SCATTER;
}
static inline bool coll_reduces(enum coll_kind k) /* takes an operation */
{
	return k == COLL_ALL_REDUCE || k == COLL_REDUCE_SCATTER || k == COLL_REDUCE;
}

/*
 * What a plan depends on. rank_of[p] = rank at position p. root: a rank; 0 where the kind has none. scaled: a
 * pre-multiplied sum: plan_build derives it from the plain plan (see PLAN_SCALE).
 */
struct plan_key {
	enum coll_kind kind;
	enum coll_algo algo;
	enum coll_shape shape;
	uint16_t n, pos;
	uint16_t root;
	bool scaled;
	uint16_t rank_of[COLL_MAX_RANKS];
};

/*
 * Whether this algorithm exists for this kind, n, shape.
 *   two-matchings  all-reduce: rings of 2 and 4 and the line of 2
 *   doubling       all-reduce, barrier: the same
 *   exchange       every kind, everywhere
 *   ring           all-reduce, all-gather, reduce-scatter: rings
 *   two-shot       all-reduce, everywhere
 *   pipeline       broadcast, reduce: everywhere; all-reduce, reduce-scatter: lines
 */
bool coll_can(enum coll_kind, enum coll_algo, int n, enum coll_shape);
/*
 * The choice: a pure function, equal on all ranks. forced: SIRCL_ALGO; a kind that has no such algorithm on
 * any fabric is not meant by it and chooses freely; one that has it, but not for this n and shape:
 * SIRCL_UNSUPPORTED with the list of what is possible. bytes: count times size of type, as the caller gives
 * count. deterministic, and an average of integers: only what sums in rank order (exchange, two-shot), also
 * against `forced`: then SIRCL_UNSUPPORTED.
 */
sircl_result_t coll_choose(enum coll_kind, sircl_type_t, sircl_op_t, size_t bytes, int n, enum coll_class,
			   enum coll_shape, enum coll_algo forced, bool deterministic, enum coll_algo *out);
/* Bytes of a slice for this choice, a multiple of 64; pure as well. forced: SIRCL_SLICE or 0. window: of the
 * channel. */
size_t coll_slice(enum coll_kind, enum coll_algo, size_t bytes, int n, enum coll_class, size_t window,
		  size_t forced);

struct plan_cache;
sircl_result_t plan_cache_create(struct plan_cache **);
void plan_cache_destroy(struct plan_cache *);
/* Builds or finds. The plan belongs to the cache. Allocates only on the first use of a key. */
sircl_result_t plan_get(struct plan_cache *, const struct plan_key *, const struct plan **);
/* Builds one plan, to be freed with free(). */
sircl_result_t plan_build(const struct plan_key *, struct plan **);

/*
 * The prover: runs all n plans on symbols, with every slice of every block, channels of `window` slices and
 * arbitrary delays of acknowledgements, and checks that every output block has every contribution exactly
 * once, that nothing is read before it is written, that nothing is overwritten while a SEND of it is
 * unacknowledged, that SENDs and RECVs pair up, that averages are divided and pre-multiplied sums scaled
 * exactly once (plan.h), that sums have one order on all ranks, and that it ends with the windows given; for
 * IN and OUT apart and in place. root: a rank. What order says is taken at its word where it begins with
 * "rank order".
 */
struct plan_report {
	bool ok;
	char why[256]; /* position, step, block: what is wrong */
	uint64_t steps_run;
	uint16_t need_window; /* fewest slices with which it ends */
};
sircl_result_t plan_prove(enum coll_kind, int root, const struct plan *const by_position[], int n, int window,
			  struct plan_report *);
/* A plan as text, one line per step. */
int plan_print(const struct plan *, char *buf, size_t n);
#endif
