/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and what must come out, to the bit and from the public header alone.
 *
 * What is only moved is a stream of random bytes per rank. What is reduced are integers of any bits (odd for
 * a product, which would soon be 0 otherwise), computed modulo 2^n, and floats so small that no order of the
 * operation rounds before its end: whole numbers whose partial sums have no more digits than the type;
 * factors of 1, 2, 1/2, and 1.5 at one rank. An average is divided in fp32 (fp64) and rounded once, so it is
 * exact as well; no tolerance is needed anywhere. Where a type has too few digits for all ranks (fp8), some
 * give 0, others at each element.
 */
#ifndef BENCH_VERIFY_H
#define BENCH_VERIFY_H
#include "bench_kinds.h"
#include "bench_types.h"

struct verify_case {
	enum bench_kind kind;
	sircl_type_t type;
	sircl_op_t op;
	size_t count; /* as in the call */
	int root, n;
};

/* The bits of element i of a rank's input to a reduction. */
uint64_t verify_value(const struct verify_case *, int rank, size_t i);
/* This rank's input, kind_in() elements. */
void verify_fill(const struct verify_case *, int rank, void *in);
/* Random values of mixed magnitude; equal for equal (rank, i), independent of the size. */
void verify_fill_random(sircl_type_t, void *buf, size_t count, int rank);
/* Wrong elements of this rank's result, kind_out() elements. */
size_t verify_result(const struct verify_case *, int rank, const void *out);
/* Elements [from, to) of an input filled by verify_fill that have changed. */
size_t verify_kept(const struct verify_case *, int rank, const void *in, size_t from, size_t to);
/* A 64-bit hash of bytes, continued from `seed`. */
uint64_t verify_digest(uint64_t seed, const void *buf, size_t bytes);
#endif
