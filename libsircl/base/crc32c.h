/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli, reflected 0x82f63b78, as iSCSI, RFC 3720 appendix B.4). SSE4.2 or ARMv8 instructions
 * where the CPU has them. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H
#include <stddef.h>
#include <stdint.h>
uint32_t crc32c(uint32_t seed, const void *p,
		size_t n); /* seed 0 to begin; chain by passing the last result */
#endif
