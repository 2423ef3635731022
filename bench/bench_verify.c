/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs, expected results, digests. */
#include <string.h>
#include "bench_verify.h"

/* The largest power of two m with n * (m - 1) <= 256: sums of n values below m are exact in bfloat16. */
static uint32_t mask_for(int nranks)
{
	uint32_t m = 256;

	while (m > 2 && (uint32_t)nranks * (m - 1) > 256)
		m /= 2;
	return m - 1;
}

static uint32_t mix(uint32_t rank, size_t i)
{
	uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15ull + (uint64_t)rank * 0xc2b2ae3d27d4eb4full;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return (uint32_t)(x >> 32);
}

uint32_t verify_value(int rank, size_t i, int nranks)
{
	return (mix((uint32_t)rank, i) >> 16) & mask_for(nranks);
}

void verify_fill(sircl_type_t t, void *buf, size_t count, int rank, int nranks)
{
	for (size_t i = 0; i < count; i++)
		bench_put(t, buf, i, verify_value(rank, i, nranks));
}

void verify_fill_random(sircl_type_t t, void *buf, size_t count, int rank)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t r = mix((uint32_t)rank + 1000, i), u;
		uint16_t half;
		uint64_t wide;
		double d;

		/* any sign, any fraction, exponents from 2^-7 to 2^8 */
		u = (r & 0x807fffffu) | (120u + ((r >> 23) & 15u)) << 23;
		half = (uint16_t)(u >> 16);
		wide = (uint64_t)r << 32 | (r * 0x9e3779b1u);
		switch (t) {
		case SIRCL_FLOAT32:
			memcpy((char *)buf + 4 * i, &u, 4);
			break;
		case SIRCL_BFLOAT16:
			memcpy((char *)buf + 2 * i, &half, 2);
			break;
		case SIRCL_FLOAT64:
			d = (double)(int32_t)r / 4099.0;
			memcpy((char *)buf + 8 * i, &d, 8);
			break;
		default:
			memcpy((char *)buf + bench_type_size(t) * i, &wide, bench_type_size(t));
		}
	}
}

static size_t wrong_at(sircl_type_t t, const void *recv, size_t i, uint32_t want)
{
	uint64_t expected[1];
	size_t size = bench_type_size(t);

	bench_put(t, expected, 0, want);
	return memcmp((const char *)recv + size * i, expected, size) != 0;
}

size_t verify_result(enum bench_coll coll, sircl_type_t t, const void *recv, size_t count, int nranks)
{
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t sum = 0;

		for (int r = 0; r < nranks; r++) {
			uint32_t v = verify_value(r, i, nranks);

			sum += v;
			if (coll == BENCH_ALL_GATHER)
				wrong += wrong_at(t, recv, (size_t)r * count + i, v);
		}
		if (coll == BENCH_ALL_REDUCE)
			wrong += wrong_at(t, recv, i, sum);
	}
	return wrong;
}

size_t verify_input(sircl_type_t t, const void *buf, size_t count, int rank, int nranks)
{
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++)
		wrong += wrong_at(t, buf, i, verify_value(rank, i, nranks));
	return wrong;
}

uint64_t verify_digest(uint64_t seed, const void *buf, size_t bytes)
{
	const unsigned char *p = buf;
	uint64_t h = seed ^ 0xcbf29ce484222325ull, w;

	for (; bytes >= 8; bytes -= 8, p += 8) {
		memcpy(&w, p, 8);
		h = (h ^ w) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	for (; bytes; bytes--, p++) {
		h = (h ^ *p) * 0x100000001b3ull;
		h ^= h >> 32;
	}
	return h;
}
