/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan format: a collective written as data, one plan per position. Independent of count, type, operation
 * and slice size, so it is built once per (kind, algorithm, n, shape, positions, root) and cached
 * (coll/coll.h).
 *
 * Spans. Block b of c elements cut into k blocks is elements [b*c/k, (b+1)*c/k). There are two ways of
 * cutting:
 *  - parts == 0 (all-reduce, broadcast, reduce, barrier): IN and OUT have c = count, both cut into nblocks.
 *  - parts 1 or 2 (all-gather, reduce-scatter, all-to-all, gather, scatter): a buffer is either whole, c = n
 * * count, cut into nblocks = n * parts (blocks r*parts .. belong to rank r), or, where in_part or out_part
 *    says so, one rank's share, c = count, cut into `parts`; block j of it is as long as block r*parts + j of
 *    a whole buffer, for every r.
 * Two blocks have the same length if they are of the same class: parts == 0: the same number; else the same
 * number modulo parts. SCRATCH block s has the length of block `as` (a number below nblocks), and wide
 * elements (reduce_acc_size) if it is an accumulator (PLAN_ACC_OUT). A scratch block may be used again for
 * another block of the same class. Sources and destination of a step, and the steps that `after` and
 * `released` name, are on blocks of the same class.
 *
 * In place. A plan must be right both when IN and OUT are apart and when they are the same memory (a share is
 * then its rank's own place in the whole buffer). A COPY onto itself is no step. What a rank does not have
 * (IN of a broadcast on others than the root, OUT of a reduce) no step may touch.
 *
 * Slices. The engine cuts every block into slices of S bytes (chosen per operation, the same on all ranks)
 * and runs slice i of a step when slice i of its `after` steps is finished (data is there) and of its
 * `released` SENDs acknowledged (a replay may still read their source). The k-th message on a channel is the
 * k-th (SEND step, slice) in step-major order; the peer's RECVs must match in that order.
 *
 * REDUCE: dst = ((src0 + src1) + src2) + src3, wide inside a step (reduce/reduce.h), rounded once to the
 * type; more than 4 summands go through a wide accumulator in scratch. The REDUCE that completes the sum of
 * all ranks has PLAN_FINISH: an average divides there, before its rounding.
 */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

enum plan_op { PLAN_SEND, PLAN_RECV, PLAN_REDUCE, PLAN_COPY };
enum plan_buf { PLAN_IN, PLAN_OUT, PLAN_SCRATCH };
enum plan_chan { PLAN_NEXT, PLAN_PREV, PLAN_CHANS }; /* towards position + 1, position - 1 */
#define PLAN_NONE 0xffffu

struct plan_span {
	uint8_t buf;
	uint16_t block; /* SCRATCH: number of the scratch block */
	uint16_t as; /* SCRATCH: which block's length and offset it has; else = block */
};

enum plan_flag {
	PLAN_ACC_OUT = 1, /* REDUCE: dst is a wide accumulator in SCRATCH */
	PLAN_ACC_IN = 2, /* REDUCE: src[0] is a wide accumulator in SCRATCH */
	PLAN_FUSE = 4, /* RECV into SCRATCH whose only reader is the REDUCE that is the next step: the engine
			* may reduce from the channel's window and never fill the scratch block */
	PLAN_FINISH = 8, /* REDUCE: dst has the contributions of all ranks now */
	PLAN_SCALE = 16, /* REDUCE of one source, IN, into SCRATCH: times the scalar of a pre-multiplied sum,
			  * rounded to the type. In a plan that has these (plan_key.scaled) nothing else reads
			  * IN */
};

struct plan_step {
	uint8_t op, chan, nsrc, flags;
	struct plan_span dst; /* RECV, REDUCE, COPY */
	struct plan_span src[4]; /* SEND, COPY: src[0] */
	uint16_t after[4]; /* step numbers or PLAN_NONE: slice i starts when slice i of these is finished
			      (RECV: landed) */
	uint16_t released[2]; /* SEND steps whose slice i must be released first */
};

struct plan {
	const char *name; /* "all_reduce/ring" */
	const char *order; /* the order of the sum, in words, for messages and documentation */
	uint16_t nsteps, nblocks, nscratch;
	uint16_t n, pos, rank; /* whose plan this is */
	uint8_t parts; /* 0, 1 or 2: see "Spans" */
	bool in_part, out_part; /* IN, OUT is one rank's share */
	uint16_t held, held_wide; /* most scratch blocks that need memory (all but those of PLAN_FUSE) in any
				     position of this plan's collective: of elements of the type, of
				     accumulators. The same in the plans of all positions, so that all find
				     the same length of a round. Both 0: a round is a whole block */
	uint16_t depth; /* fewest slices that a scratch block must hold at once for this plan not to deadlock;
			   0: as many as the block has */
	uint32_t window; /* fewest slices that a channel must be able to hold un-consumed for this plan not to
			    deadlock (prover) */
	struct plan_step step[];
};
#endif
