/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan format: a collective written as data, one plan per position. Independent of count, type, operation
 * and slice size, so it is built once per (kind, algorithm, n, shape, positions, root) and cached
 * (coll/coll.h).
 *
 * Spans. A buffer is cut into `nblocks` blocks; block b of a count of c elements is [b*c/nblocks,
 * (b+1)*c/nblocks). IN and OUT of an all-reduce have c = count, both cut into nblocks. OUT of an all-gather
 * has c = n * count, cut into nblocks = n * whole_in; IN has c = count, cut into whole_in (1 or 2) blocks, so
 * that IN block j of rank r is as long as OUT block r * whole_in + j, which it is when the call is in place.
 * SCRATCH block s has the same length as the OUT block it stands for (`as`), 4 bytes an element if it is an
 * accumulator (PLAN_ACC_F32). `after` and `released` name only steps on blocks of the same length and offset.
 *
 * In place. A plan must be right both when IN and OUT are the same memory (all-gather: IN is its own place in
 * OUT) and when they are not. A COPY onto itself is no step.
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
	uint16_t n, pos, rank; /* whose plan this is */
	uint8_t whole_in; /* all-gather: blocks of IN, 1 or 2; 0: IN is cut as OUT is (all-reduce) */
	uint16_t depth; /* fewest slices that a scratch block must hold at once for this plan not to deadlock;
			   0: as many as the block has */
	uint32_t window; /* fewest slices that a channel must be able to hold un-consumed for this plan not to
			    deadlock (prover) */
	struct plan_step step[];
};
#endif
