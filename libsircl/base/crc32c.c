/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C: a table for any machine, the CPU's own instruction where there is one. The choice is asked of the
 * C library's record of the CPU at each call (a load, no system call), so that there is no state here.
 */
#include "base/crc32c.h"
#include "base/crc32c_internal.h"
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

/*
 * A CRC is linear, so the table entry of a byte is the sum (xor) of the entries of its bits; below, the
 * entries of the bytes 1 << k, that is 1 << k shifted 8 times through the reflected polynomial 0x82f63b78.
 */
#define E(i) \
	(((i)&1 ? 0xf26b8303u : 0) ^ ((i)&2 ? 0xe13b70f7u : 0) ^ ((i)&4 ? 0xc79a971fu : 0) ^ \
	 ((i)&8 ? 0x8ad958cfu : 0) ^ ((i)&16 ? 0x105ec76fu : 0) ^ ((i)&32 ? 0x20bd8edeu : 0) ^ \
	 ((i)&64 ? 0x417b1dbcu : 0) ^ ((i)&128 ? 0x82f63b78u : 0))
#define E4(i) E(i), E((i) + 1), E((i) + 2), E((i) + 3)
#define E16(i) E4(i), E4((i) + 4), E4((i) + 8), E4((i) + 12)
#define E64(i) E16(i), E16((i) + 16), E16((i) + 32), E16((i) + 48)
static const uint32_t table[256] = { E64(0), E64(64), E64(128), E64(192) };

uint32_t crc32c_table(uint32_t seed, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint32_t crc = ~seed;

	while (n-- > 0)
		crc = crc >> 8 ^ table[(crc ^ *b++) & 0xff];
	return ~crc;
}

#if defined(__x86_64__)
bool crc32c_have_cpu(void)
{
	return __builtin_cpu_supports("sse4.2") != 0;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_cpu(uint32_t seed, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint64_t crc = ~seed, w;

	for (; n >= sizeof(w); n -= sizeof(w), b += sizeof(w)) {
		memcpy(&w, b, sizeof(w));
		crc = _mm_crc32_u64(crc, w);
	}
	while (n-- > 0)
		crc = _mm_crc32_u8((uint32_t)crc, *b++);
	return ~(uint32_t)crc;
}
#elif defined(__aarch64__)
bool crc32c_have_cpu(void)
{
	return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

/* Assembler rather than arm_acle.h: the two compilers name the target attribute differently. */
uint32_t crc32c_cpu(uint32_t seed, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint32_t crc = ~seed;
	uint64_t w;

	for (; n >= sizeof(w); n -= sizeof(w), b += sizeof(w)) {
		memcpy(&w, b, sizeof(w));
		__asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(w));
	}
	while (n-- > 0)
		__asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*b++));
	return ~crc;
}
#else
bool crc32c_have_cpu(void)
{
	return false;
}

uint32_t crc32c_cpu(uint32_t seed, const void *p, size_t n)
{
	return crc32c_table(seed, p, n);
}
#endif

uint32_t crc32c(uint32_t seed, const void *p, size_t n)
{
	return crc32c_have_cpu() ? crc32c_cpu(seed, p, n) : crc32c_table(seed, p, n);
}
