/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and what must come out. Two kinds of input: small integers, whose sums are exact in every type
 * whatever the order, so that every element can be checked; and random values, whose sums depend on the
 * order, so that a digest tells whether two runs gave the same bits.
 */
#ifndef BENCH_VERIFY_H
#define BENCH_VERIFY_H
#include "bench_options.h"

/* Element i of rank r's input is verify_value(r, i, n). */
uint32_t verify_value(int rank, size_t i, int nranks);
void verify_fill(sircl_type_t, void *buf, size_t count, int rank, int nranks);
/* Random values of mixed magnitude; equal for equal (rank, i), independent of the size. */
void verify_fill_random(sircl_type_t, void *buf, size_t count, int rank);
/* Wrong elements of a result: count elements per rank's input. */
size_t verify_result(enum bench_coll, sircl_type_t, const void *recv, size_t count, int nranks);
/* Elements of an input filled by verify_fill that have changed. */
size_t verify_input(sircl_type_t, const void *buf, size_t count, int rank, int nranks);
/* A 64-bit hash of bytes, continued from `seed`. */
uint64_t verify_digest(uint64_t seed, const void *buf, size_t bytes);
#endif
