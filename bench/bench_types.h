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

/* Writes `v`, 0 <= v <= 256, as element i. Types without arithmetic here hold its bits. */
void bench_put(sircl_type_t, void *buf, size_t i, uint32_t v);
#endif
