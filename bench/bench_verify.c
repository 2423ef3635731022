/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs, expected results, digests. */
#include <string.h>
#include "bench_verify.h"

#define CHUNK 4096 /* bytes of a stream that are made at a time */

static uint64_t mix(uint64_t rank, uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15ull + (rank + 1) * 0xc2b2ae3d27d4eb4full;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 32;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 29;
}

/* ---- what is moved ---- */

/* Bytes [from, from + bytes) of a rank's stream; bytes <= CHUNK. */
static void stream(int rank, uint64_t from, void *to, size_t bytes)
{
	uint64_t word[CHUNK / 8 + 2];
	size_t skip = from % 8;

	for (size_t i = 0; i * 8 < skip + bytes; i++)
		word[i] = mix((uint64_t)rank, from / 8 + i);
	memcpy(to, (const char *)word + skip, bytes);
}

static void stream_fill(int rank, void *buf, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += CHUNK)
		stream(rank, at, (char *)buf + at, bytes - at < CHUNK ? bytes - at : CHUNK);
}

static size_t differ(const void *a, const void *b, size_t bytes, size_t size)
{
	size_t wrong = 0;

	if (!memcmp(a, b, bytes))
		return 0;
	for (size_t i = 0; i < bytes; i += size)
		wrong += memcmp((const char *)a + i, (const char *)b + i, size) != 0;
	return wrong;
}

/* Elements at buf that are not what a rank's stream has from byte `from` on. */
static size_t stream_wrong(int rank, uint64_t from, const void *buf, size_t bytes, size_t size)
{
	char want[CHUNK];
	size_t wrong = 0;

	for (size_t at = 0; at < bytes; at += CHUNK) {
		size_t part = bytes - at < CHUNK ? bytes - at : CHUNK;

		stream(rank, from + at, want, part);
		wrong += differ(want, (const char *)buf + at, part, size);
	}
	return wrong;
}

/* ---- what is reduced ---- */

static bool is_signed(sircl_type_t t)
{
	return t == SIRCL_INT8 || t == SIRCL_INT32 || t == SIRCL_INT64;
}

/* Bits of a type as a whole number, its sign extended. */
static uint64_t widen(sircl_type_t t, uint64_t bits)
{
	unsigned up = 64 - 8 * (unsigned)bench_type_size(t);

	bits <<= up;
	return is_signed(t) ? (uint64_t)((int64_t)bits >> up) : bits >> up;
}

static uint64_t integer_value(const struct verify_case *c, int rank, size_t i)
{
	return widen(c->type, mix((uint64_t)rank, i) | (c->op == SIRCL_PROD));
}

static uint64_t integer_result(const struct verify_case *c, size_t i)
{
	uint64_t acc = integer_value(c, 0, i);

	for (int r = 1; r < c->n; r++) {
		uint64_t v = integer_value(c, r, i);
		bool less = is_signed(c->type) ? (int64_t)v < (int64_t)acc : v < acc;

		if (c->op == SIRCL_PROD)
			acc *= v;
		else if (c->op == SIRCL_MIN)
			acc = less ? v : acc;
		else if (c->op == SIRCL_MAX)
			acc = less ? acc : v;
		else
			acc += v;
	}
	if (c->op != SIRCL_AVG)
		return acc;
	return is_signed(c->type) ? (uint64_t)((int64_t)acc / c->n) : acc / (uint64_t)c->n;
}

/* A number from 0 to below - 1 from 32 random bits. */
static uint32_t pick(uint64_t random, uint32_t below)
{
	return (uint32_t)(((random & 0xffffffffu) * below) >> 32);
}

/* Whether this rank is one of the `some` of n ranks, others at each element. */
static bool chosen(int rank, int n, size_t i, int some)
{
	return n <= some ||
	       ((uint32_t)rank + pick(mix(1 << 20, i), (uint32_t)n)) % (uint32_t)n < (uint32_t)some;
}

static double factor(int rank, int n, size_t i)
{
	uint64_t x = mix((uint64_t)rank, i);
	double v = x >> 63 ? -1 : 1;

	if (chosen(rank, n, i, 1)) /* the others' are powers of two */
		v *= 1.5;
	if (chosen(rank, n, i, 6)) /* 2^-6 to 2^6 have room in any type */
		v *= (double[]){ 0.5, 1, 2 }[pick(x, 3)];
	return v;
}

static double float_value(const struct verify_case *c, int rank, size_t i)
{
	int digits = bench_type_digits(c->type), some, room;

	if (c->op == SIRCL_PROD)
		return factor(rank, c->n, i);
	room = 1 << (digits < 20 ? digits : 20); /* whole numbers up to this one are exact */
	some = c->n < room ? c->n : room;
	if (c->op == SIRCL_SUM || c->op == SIRCL_AVG) {
		if (!chosen(rank, c->n, i, some))
			return 0;
		room /= some;
	}
	return (double)pick(mix((uint64_t)rank, i), 2 * (uint32_t)room + 1) - room;
}

static double float_result(const struct verify_case *c, size_t i)
{
	double acc = float_value(c, 0, i);

	for (int r = 1; r < c->n; r++) {
		double v = float_value(c, r, i);

		if (c->op == SIRCL_PROD)
			acc *= v;
		else if (c->op == SIRCL_MIN)
			acc = v < acc ? v : acc;
		else if (c->op == SIRCL_MAX)
			acc = v > acc ? v : acc;
		else
			acc += v;
	}
	if (c->op != SIRCL_AVG)
		return acc;
	return c->type == SIRCL_FLOAT64 ? acc / c->n : (double)((float)acc / (float)c->n);
}

static uint64_t low(uint64_t bits, size_t size)
{
	return size < 8 ? bits & ((1ull << 8 * size) - 1) : bits;
}

uint64_t verify_value(const struct verify_case *c, int rank, size_t i)
{
	if (bench_type_digits(c->type))
		return bench_bits(c->type, float_value(c, rank, i));
	return low(integer_value(c, rank, i), bench_type_size(c->type));
}

static uint64_t result(const struct verify_case *c, size_t i)
{
	if (bench_type_digits(c->type))
		return bench_bits(c->type, float_result(c, i));
	return low(integer_result(c, i), bench_type_size(c->type));
}

/* The low bytes: this library runs on little-endian machines. */
static bool is(const void *buf, size_t i, size_t size, uint64_t want)
{
	uint64_t got = 0;

	memcpy(&got, (const char *)buf + i * size, size);
	return got == want;
}

/* ---- both ---- */

void verify_fill(const struct verify_case *c, int rank, void *in)
{
	size_t size = bench_type_size(c->type), n = kind_in(c->kind, c->count, rank, c->root, c->n);

	if (!kind_info(c->kind)->reduces) {
		stream_fill(rank, in, n * size);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t v = verify_value(c, rank, i);

		memcpy((char *)in + i * size, &v, size);
	}
}

size_t verify_kept(const struct verify_case *c, int rank, const void *in, size_t from, size_t to)
{
	size_t size = bench_type_size(c->type), wrong = 0;

	if (!kind_info(c->kind)->reduces)
		return stream_wrong(rank, from * size, (const char *)in + from * size, (to - from) * size,
				    size);
	for (size_t i = from; i < to; i++)
		wrong += !is(in, i, size, verify_value(c, rank, i));
	return wrong;
}

size_t verify_result(const struct verify_case *c, int rank, const void *out)
{
	size_t size = bench_type_size(c->type), n = kind_out(c->kind, c->count, rank, c->root, c->n);
	size_t bytes = c->count * size, mine = (size_t)rank * bytes, wrong = 0;

	if (!n)
		return 0;
	switch (c->kind) {
	case KIND_BROADCAST:
		return stream_wrong(c->root, 0, out, bytes, size);
	case KIND_SCATTER:
		return stream_wrong(c->root, mine, out, bytes, size);
	case KIND_SENDRECV:
		return stream_wrong((rank + c->n - 1) % c->n, 0, out, bytes, size);
	case KIND_ALL_GATHER:
	case KIND_GATHER:
	case KIND_ALL_TO_ALL:
		for (int r = 0; r < c->n; r++)
			wrong += stream_wrong(r, c->kind == KIND_ALL_TO_ALL ? mine : 0,
					      (const char *)out + (size_t)r * bytes, bytes, size);
		return wrong;
	default:
		for (size_t i = 0; i < n; i++)
			wrong += !is(out, i, size,
				     result(c, i + (c->kind == KIND_REDUCE_SCATTER ? (size_t)rank * c->count
										   : 0)));
		return wrong;
	}
}

void verify_fill_random(sircl_type_t t, void *buf, size_t count, int rank)
{
	size_t size = bench_type_size(t);

	for (size_t i = 0; i < count; i++) {
		uint64_t x = mix((uint64_t)rank + 1000, i), v = x;
		uint32_t r = (uint32_t)x, u = (r & 0x807fffffu) | (123u + ((r >> 23) & 7u)) << 23;
		float f;

		/* any sign, any fraction, exponents from 2^-4 to 2^3 */
		memcpy(&f, &u, 4);
		if (t == SIRCL_FLOAT64)
			v = bench_bits(t, (double)(int32_t)r / 4099.0);
		else if (bench_type_digits(t))
			v = bench_bits(t, f);
		memcpy((char *)buf + size * i, &v, size);
	}
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
