/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan format: a collective written as data, one plan per position. Independent of count, type, operation
 * and slice size, so it is built once per (kind, algorithm, n, shape, positions, root) and cached
 * (coll/coll.h).
 *
 * Spans. A buffer is cut into `nblocks` blocks; block b of a count of c elements is [b*c/nblocks,
 * (b+1)*c/nblocks). IN and OUT of an all-reduce have c = count; of an all-gather IN is one block (PLAN_WHOLE)
 * and OUT has nblocks = n blocks of count elements each. SCRATCH block s has the same length as the block it
 * stands for (`as`).
 *
 * Slices. The engine cuts every block into slices of S bytes (chosen per operation, the same on all ranks)
 * and runs slice i of a step when slice i of its `after` steps is finished (data is there) and of its
 * `released` SENDs acknowledged (a replay may still read their source). The k-th message on a channel is the
 * k-th (SEND step, slice) in step-major order; the peer's RECVs must match in that order.
 *
 * REDUCE: dst = ((src0 + src1) + src2) + src3, in fp32 inside a step, rounded once to the type; more than 4
 * summands go through an fp32 accumulator (PLAN_ACC_F32: dst, and src[0] if it is the same span, are fp32
 * scratch).
 */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H
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
	PLAN_ACC_F32 = 1, /* REDUCE: dst is an fp32 accumulator in SCRATCH */
	PLAN_ACC_IN = 2, /* REDUCE: src[0] is an fp32 accumulator in SCRATCH */
	PLAN_FUSE = 4, /* RECV into SCRATCH whose only reader is the REDUCE that is the next step: the engine
			* may reduce from the channel's window and never fill the scratch block */
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
	uint8_t whole_in; /* 1: IN is one block of the same length as one OUT block (all-gather) */
	uint32_t window; /* fewest slices that a channel must be able to hold un-consumed for this plan not to
			    deadlock (prover) */
	struct plan_step step[];
};
#endif
