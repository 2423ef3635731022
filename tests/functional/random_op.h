/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation of the random program: what every rank gives and what every rank must get, from a seed. Sums
 * of floats are of small whole numbers, exact in every order and every type, so results are compared byte for
 * byte. Buffers have any alignment, and bytes around them that nobody may touch.
 */
#ifndef TESTS_RANDOM_OP_H
#define TESTS_RANDOM_OP_H
#include <stdint.h>
#include "ranks.h"

enum kind {
	ALL_REDUCE,
	ALL_GATHER,
	REDUCE_SCATTER,
	BROADCAST,
	REDUCE,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	BARRIER,
	MESSAGE, /* from rank `root` to rank `to` */
	KINDS
};
static const char *const kind_names[KINDS] = { "all_reduce", "all_gather", "reduce_scatter", "broadcast",
					       "reduce",     "all_to_all", "gather",         "scatter",
					       "barrier",    "message" };
enum { PREMUL = SIRCL_OP_COUNT, OPS };

struct desc {
	enum kind kind;
	sircl_type_t type;
	int op, root, to, comm;
	size_t count;
	bool in_place, started;
	uint64_t seed;
};

struct place { /* a rank's in the communicator */
	int rank, n;
	sircl_comm_t comm;
};

#define GUARD 48
struct buffer {
	uint8_t *base, *at;
	size_t bytes;
};

struct inst { /* what one rank holds of an operation */
	struct desc d;
	struct place p;
	struct buffer in, out; /* in place: only the larger */
	uint8_t *send, *recv;
	sircl_request_t request[2]; /* a message to oneself has two */
	sircl_op_t op;
	bool made_op;
};

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static inline uint64_t noise(uint64_t seed, int from, int to, size_t i)
{
	return mix(seed + (uint64_t)from * 0x9e3779b97f4a7c15ull + (uint64_t)to * 0xd1342543de82ef95ull +
		   i * 0x2545f4914f6cdd1dull);
}

static inline size_t size_of(sircl_type_t t)
{
	static const uint8_t size[SIRCL_TYPE_COUNT] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	return size[t];
}

static inline bool is_integer(sircl_type_t t)
{
	return t <= SIRCL_UINT64;
}

static inline bool is_signed(sircl_type_t t)
{
	return t == SIRCL_INT8 || t == SIRCL_INT32 || t == SIRCL_INT64;
}

static inline bool is_float8(sircl_type_t t)
{
	return t == SIRCL_FLOAT8E4M3 || t == SIRCL_FLOAT8E5M2;
}

/* A small whole number in a float type. */
static inline uint64_t encode(sircl_type_t t, uint64_t v)
{
	static const struct {
		uint8_t mantissa, bias;
	} f[SIRCL_TYPE_COUNT] = {
		[SIRCL_FLOAT16] = { 10, 15 },  [SIRCL_FLOAT32] = { 23, 127 },  [SIRCL_BFLOAT16] = { 7, 127 },
		[SIRCL_FLOAT8E4M3] = { 3, 7 }, [SIRCL_FLOAT8E5M2] = { 2, 15 }, [SIRCL_FLOAT64] = { 52, 0 }
	};
	unsigned e = 0, m = f[t].mantissa, bias = t == SIRCL_FLOAT64 ? 1023 : f[t].bias;

	if (!v)
		return 0;
	while (v >> (e + 1))
		e++;
	v -= 1ull << e;
	return (uint64_t)(e + bias) << m | (e <= m ? v << (m - e) : v >> (e - m));
}

/* Cut to the type and widened again, as the type's sign says. */
static inline uint64_t wrap(sircl_type_t t, uint64_t v)
{
	unsigned spare = 64 - 8 * (unsigned)size_of(t);

	return is_signed(t) ? (uint64_t)((int64_t)(v << spare) >> spare) : v << spare >> spare;
}

static inline void store(uint8_t *p, sircl_type_t t, size_t i, uint64_t bits)
{
	memcpy(p + i * size_of(t), &bits, size_of(t)); /* little endian */
}

static inline bool reduces(enum kind k)
{
	return k == ALL_REDUCE || k == REDUCE_SCATTER || k == REDUCE;
}

static inline bool has_root(enum kind k)
{
	return k == BROADCAST || k == REDUCE || k == GATHER || k == SCATTER;
}

static inline bool whole_in(enum kind k)
{
	return k == REDUCE_SCATTER || k == ALL_TO_ALL || k == SCATTER;
}

static inline bool whole_out(enum kind k)
{
	return k == ALL_GATHER || k == ALL_TO_ALL || k == GATHER;
}

static inline bool sends(const struct desc *d, int rank)
{
	return d->kind != BARRIER &&
	       ((d->kind != BROADCAST && d->kind != SCATTER && d->kind != MESSAGE) || rank == d->root);
}

static inline bool receives(const struct desc *d, int rank)
{
	if (d->kind == MESSAGE)
		return rank == d->to;
	return d->kind != BARRIER && ((d->kind != REDUCE && d->kind != GATHER) || rank == d->root);
}

/* ---- sums ---- */

/* What rank `from` gives as element i of share `to` of a sum; whole numbers, not encoded. */
static inline uint64_t summand(const struct desc *d, int n, int from, int to, size_t i)
{
	uint64_t h = noise(d->seed, d->op == SIRCL_AVG && !is_integer(d->type) ? 0 : from, to, i) >> 7;

	if (is_integer(d->type))
		return wrap(d->type, h);
	switch (d->op) {
	case SIRCL_PROD:
		return from < 7 ? 1 + h % 2 : 1; /* 2^7 is in every type */
	case SIRCL_MIN:
	case SIRCL_MAX:
		return h % 8;
	case SIRCL_AVG: /* the same of all ranks */
		return is_float8(d->type) ? (n <= 8 ? h % 2 : 0) : h % 16;
	default:
		return is_float8(d->type) ? (from < 7 ? h % 2 : 0) : h % 8;
	}
}

/* Of a pre-multiplied sum; 8 is the largest sum that float8e5m2 can hold and all below it. */
static inline uint64_t scalar_of(const struct desc *d, int from)
{
	if (is_integer(d->type))
		return wrap(d->type, noise(d->seed, from, 77, 0));
	return is_float8(d->type) ? (from == 0 ? 2 : 1) : 1 + (uint64_t)from % 3;
}

static inline uint64_t fold(const struct desc *d, uint64_t a, uint64_t b)
{
	bool less = is_signed(d->type) ? (int64_t)b < (int64_t)a : b < a;

	switch (d->op) {
	case SIRCL_PROD:
		return a * b;
	case SIRCL_MIN:
		return less ? b : a;
	case SIRCL_MAX:
		return less ? a : b;
	default:
		return a + b;
	}
}

static inline uint64_t total(const struct desc *d, int n, int to, size_t i)
{
	uint64_t v = 0;

	for (int r = 0; r < n; r++) {
		uint64_t x = summand(d, n, r, to, i) * (d->op == PREMUL ? scalar_of(d, r) : 1);

		v = r == 0 ? x : fold(d, v, x);
		if (is_integer(d->type) && d->op != SIRCL_AVG)
			v = wrap(d->type, v);
	}
	if (d->op == SIRCL_AVG)
		v = is_signed(d->type) ? (uint64_t)((int64_t)v / n) : v / (uint64_t)n;
	return is_integer(d->type) ? v : encode(d->type, v);
}

/* ---- what lies in the buffers, as bits ---- */

static inline uint64_t given(const struct desc *d, int n, int rank, size_t i)
{
	int to = whole_in(d->kind) ? (int)(i / d->count) : 0;
	size_t at = whole_in(d->kind) ? i % d->count : i;
	uint64_t v;

	if (!reduces(d->kind))
		return noise(d->seed, rank, to, at);
	v = summand(d, n, rank, to, at);
	return is_integer(d->type) ? v : encode(d->type, v);
}

static inline uint64_t wanted(const struct desc *d, int n, int rank, size_t i)
{
	if (reduces(d->kind))
		return total(d, n, d->kind == REDUCE_SCATTER ? rank : 0, i);
	if (whole_out(d->kind))
		return noise(d->seed, (int)(i / d->count), d->kind == ALL_TO_ALL ? rank : 0, i % d->count);
	return noise(d->seed, d->root, d->kind == SCATTER ? rank : 0, i);
}

/* ---- buffers ---- */

static inline void buffer_new(struct buffer *b, size_t bytes, unsigned off)
{
	b->bytes = bytes;
	b->base = malloc(bytes + 2 * GUARD + 16);
	if (!b->base)
		exit(3);
	memset(b->base, 0xa5, bytes + 2 * GUARD + 16);
	b->at = b->base + GUARD + off % 16;
}

static inline bool buffer_whole(const struct buffer *b)
{
	bool ok = true;

	for (const uint8_t *p = b->base; b->base && p < b->at; p++)
		ok &= *p == 0xa5;
	for (const uint8_t *p = b->at + b->bytes; b->base && p < b->base + b->bytes + 2 * GUARD + 16; p++)
		ok &= *p == 0xa5;
	return ok;
}

static inline void inst_open(struct inst *o, const struct desc *d, const struct place *p)
{
	size_t n = (size_t)p->n, es = size_of(d->type);
	size_t nin = whole_in(d->kind) ? n * d->count : d->count,
	       nout = whole_out(d->kind) ? n * d->count : d->count;
	bool s = sends(d, p->rank), r = receives(d, p->rank);

	*o = (struct inst){ .d = *d, .p = *p };
	o->send = (uint8_t *)8; /* an address that faults */
	if (d->kind == BARRIER)
		return;
	if (s && r && d->in_place && d->kind != MESSAGE) {
		size_t share = (size_t)p->rank * d->count * es;

		buffer_new(&o->out, (nin > nout ? nin : nout) * es,
			   (unsigned)mix(d->seed + (uint64_t)p->rank));
		o->send = o->out.at + (whole_out(d->kind) && !whole_in(d->kind) ? share : 0);
		o->recv = o->out.at + (whole_in(d->kind) && !whole_out(d->kind) ? share : 0);
	} else {
		if (s) {
			buffer_new(&o->in, nin * es, (unsigned)mix(d->seed + 3 * (uint64_t)p->rank));
			o->send = o->in.at;
		}
		if (r) {
			buffer_new(&o->out, nout * es, (unsigned)mix(d->seed + 5 * (uint64_t)p->rank));
			o->recv = o->out.at;
		}
	}
	for (size_t i = 0; s && i < nin; i++)
		store(o->send, d->type, i, given(d, p->n, p->rank, i));
}

/* The number of wrong elements; a damaged guard is one. */
static inline size_t inst_check(const struct inst *o)
{
	const struct desc *d = &o->d;
	size_t n = (size_t)o->p.n, es = size_of(d->type), bad = 0;
	size_t nin = whole_in(d->kind) ? n * d->count : d->count,
	       nout = whole_out(d->kind) ? n * d->count : d->count;
	bool apart = o->in.base != NULL;
	uint8_t e[8];

	for (size_t i = 0; receives(d, o->p.rank) && i < nout; i++) {
		store(e, d->type, 0, wanted(d, o->p.n, o->p.rank, i));
		bad += memcmp(e, o->recv + i * es, es) != 0;
	}
	/* what was sent is as it was: apart, or, of a whole buffer in place, beside one's own share */
	for (size_t i = 0; sends(d, o->p.rank) && i < nin; i++) {
		if (!apart && (d->kind != REDUCE_SCATTER && d->kind != SCATTER))
			break;
		if (!apart && i / d->count == (size_t)o->p.rank)
			continue;
		store(e, d->type, 0, given(d, o->p.n, o->p.rank, i));
		bad += memcmp(e, o->send + i * es, es) != 0;
	}
	return bad + !buffer_whole(&o->in) + !buffer_whole(&o->out);
}

static inline void inst_close(struct inst *o)
{
	free(o->in.base);
	free(o->out.base);
	*o = (struct inst){ .p.comm = NULL };
}

/* ---- calls ---- */

static inline sircl_result_t call_now(struct inst *o)
{
	const struct desc *d = &o->d;
	sircl_comm_t c = o->p.comm;
	sircl_result_t e = SIRCL_SUCCESS;

	switch (d->kind) {
	case ALL_REDUCE:
		return sircl_all_reduce(o->send, o->recv, d->count, d->type, o->op, c, SIRCL_HOST);
	case ALL_GATHER:
		return sircl_all_gather(o->send, o->recv, d->count, d->type, c, SIRCL_HOST);
	case REDUCE_SCATTER:
		return sircl_reduce_scatter(o->send, o->recv, d->count, d->type, o->op, c, SIRCL_HOST);
	case BROADCAST:
		return sircl_broadcast(o->send, o->recv, d->count, d->type, d->root, c, SIRCL_HOST);
	case REDUCE:
		return sircl_reduce(o->send, o->recv, d->count, d->type, o->op, d->root, c, SIRCL_HOST);
	case ALL_TO_ALL:
		return sircl_all_to_all(o->send, o->recv, d->count, d->type, c, SIRCL_HOST);
	case GATHER:
		return sircl_gather(o->send, o->recv, d->count, d->type, d->root, c, SIRCL_HOST);
	case SCATTER:
		return sircl_scatter(o->send, o->recv, d->count, d->type, d->root, c, SIRCL_HOST);
	case BARRIER:
		return sircl_barrier(c, SIRCL_HOST);
	default:
		if (o->p.rank == d->root)
			e = sircl_send(o->send, d->count, d->type, d->to, c, SIRCL_HOST);
		if (!e && o->p.rank == d->to)
			e = sircl_recv(o->recv, d->count, d->type, d->root, c, SIRCL_HOST);
		return e;
	}
}

static inline sircl_result_t call_start(struct inst *o)
{
	const struct desc *d = &o->d;
	sircl_comm_t c = o->p.comm;
	sircl_request_t *q = o->request;
	sircl_result_t e = SIRCL_SUCCESS;

	switch (d->kind) {
	case ALL_REDUCE:
		return sircl_all_reduce_start(o->send, o->recv, d->count, d->type, o->op, c, SIRCL_HOST, q);
	case ALL_GATHER:
		return sircl_all_gather_start(o->send, o->recv, d->count, d->type, c, SIRCL_HOST, q);
	case REDUCE_SCATTER:
		return sircl_reduce_scatter_start(o->send, o->recv, d->count, d->type, o->op, c, SIRCL_HOST,
						  q);
	case BROADCAST:
		return sircl_broadcast_start(o->send, o->recv, d->count, d->type, d->root, c, SIRCL_HOST, q);
	case REDUCE:
		return sircl_reduce_start(o->send, o->recv, d->count, d->type, o->op, d->root, c, SIRCL_HOST,
					  q);
	case ALL_TO_ALL:
		return sircl_all_to_all_start(o->send, o->recv, d->count, d->type, c, SIRCL_HOST, q);
	case GATHER:
		return sircl_gather_start(o->send, o->recv, d->count, d->type, d->root, c, SIRCL_HOST, q);
	case SCATTER:
		return sircl_scatter_start(o->send, o->recv, d->count, d->type, d->root, c, SIRCL_HOST, q);
	case BARRIER:
		return sircl_barrier_start(c, SIRCL_HOST, q);
	default:
		if (o->p.rank == d->root)
			e = sircl_send_start(o->send, d->count, d->type, d->to, c, SIRCL_HOST, q);
		if (!e && o->p.rank == d->to)
			e = sircl_recv_start(o->recv, d->count, d->type, d->root, c, SIRCL_HOST, q + 1);
		return e;
	}
}
#endif
