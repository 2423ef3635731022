/* SPDX-License-Identifier: Apache-2.0 */
/* The paths behind crc32c(), for the test that compares them. Each takes and returns what crc32c() does. */
#ifndef BASE_CRC32C_INTERNAL_H
#define BASE_CRC32C_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
uint32_t crc32c_table(uint32_t seed, const void *p, size_t n);
bool crc32c_have_cpu(void); /* this CPU has the instruction */
uint32_t crc32c_cpu(uint32_t seed, const void *p, size_t n); /* only where crc32c_have_cpu() */
#endif
