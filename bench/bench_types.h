/* SPDX-License-Identifier: Apache-2.0 */
/* Types and operations by nccl-tests' names, and small numbers as elements of any type. */
#ifndef BENCH_TYPES_H
#define BENCH_TYPES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sircl/sircl.h"

size_t bench_type_size(sircl_type_t);
const char *bench_type_name(sircl_type_t);
const char *bench_op_name(sircl_op_t);
bool bench_type_find(const char *name, sircl_type_t *);
bool bench_op_find(const char *name, sircl_op_t *);

/* Significant binary digits of a float's type, the hidden one included; 0: whole numbers. */
int bench_type_digits(sircl_type_t);
/* The bits of v in a type of floats, rounded to nearest even as the public header says (those of up to 32
 * bits by way of float). */
uint64_t bench_bits(sircl_type_t, double v);
#endif
