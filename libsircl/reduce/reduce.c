/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of arithmetic, put together from the kernels of one instruction set. What is common has a kernel
 * of its own that runs over all elements: sums of float, bfloat16 and float16, and integers in their own
 * width. The rest goes in chunks through a wide buffer on the stack: load, combine, divide, store. A chunk of
 * dst is written when all of that chunk's sources have been read, and it lies on no other chunk of them.
 */
#include <string.h>
#include "base/error.h"
#include "reduce/internal.h"

struct work {
	const struct reduce_kernels *k;
	sircl_type_t type;
	enum reduce_wide wide;
	enum reduce_basic op;
	unsigned flags;
	const struct reduce_arg *arg;
};

/* By set; NULL: this build has none of it. */
static const struct reduce_kernels *const tables[REDUCE_SETS] = {
	[REDUCE_GENERIC] = &reduce_generic,
#if defined(__x86_64__)
	[REDUCE_AVX2] = &reduce_avx2,
	[REDUCE_AVX512] = &reduce_avx512,
#elif defined(__aarch64__)
	[REDUCE_NEON] = &reduce_neon,
#endif
};

static enum reduce_wide wide_of(sircl_type_t t)
{
	if (type_is_integer(t))
		return t == SIRCL_INT8 || t == SIRCL_INT32 || t == SIRCL_INT64 ? WIDE_I64 : WIDE_U64;
	return t == SIRCL_FLOAT64 ? WIDE_F64 : WIDE_F32;
}

static enum reduce_basic basic_of(sircl_op_t op)
{
	switch (op) {
	case SIRCL_PROD:
		return BASIC_PROD;
	case SIRCL_MAX:
		return BASIC_MAX;
	case SIRCL_MIN:
		return BASIC_MIN;
	default:
		return BASIC_SUM;
	}
}

/*
 * The rounding mode, the flushing of subnormals and the trapping of exceptions of this thread are the
 * application's; one that was linked with -ffast-math flushes, and its sums would have other bits than those
 * of the other ranks. To nearest, nothing flushed, nothing trapped; the old state for fp_leave.
 */
#if defined(__x86_64__)
#define FP_PLAIN 0x1f80u
#define FP_STICKY 0x3fu
static uint64_t fp_get(void)
{
	return __builtin_ia32_stmxcsr();
}
static void fp_set(uint64_t state)
{
	__builtin_ia32_ldmxcsr((unsigned)state);
}
#elif defined(__aarch64__)
#define FP_PLAIN 0u
#define FP_STICKY 0u
static uint64_t fp_get(void)
{
	uint64_t state;

	__asm__ volatile("mrs %0, fpcr" : "=r"(state));
	return state;
}
static void fp_set(uint64_t state)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(state));
}
#else
#define FP_PLAIN 0u
#define FP_STICKY 0u
static uint64_t fp_get(void)
{
	return FP_PLAIN;
}
static void fp_set(uint64_t state)
{
	(void)state;
}
#endif

static uint64_t fp_enter(void)
{
	uint64_t old = fp_get();

	if ((old & ~(uint64_t)FP_STICKY) != FP_PLAIN)
		fp_set(FP_PLAIN);
	return old;
}

static void fp_leave(uint64_t old)
{
	if ((old & ~(uint64_t)FP_STICKY) != FP_PLAIN)
		fp_set(old);
}

static void copy(void *dst, const void *src, size_t bytes)
{
	if (dst != src && bytes)
		memcpy(dst, src, bytes);
}

/* A chunk of a source in wide elements: where it is, or in buf. */
static const void *widen(const struct work *w, bool acc, const void *src, void *buf, size_t n)
{
	reduce_conv *load = w->k->load[w->type];

	if (acc || !load)
		return src;
	load(buf, src, n);
	return buf;
}

static void narrow(const struct work *w, void *dst, const void *src, size_t n)
{
	reduce_conv *store = w->flags & REDUCE_ACC_OUT ? w->k->tidy[w->wide] : w->k->store[w->type];

	if (store)
		store(dst, src, n);
	else
		copy(dst, src, n * reduce_acc_size(w->type));
}

static void wide_chunk(const struct work *w, void *dst, const void *const src[], int nsrc, size_t n)
{
	const struct reduce_fused *sum = w->op == BASIC_SUM ? w->k->sum[w->type] : NULL;
	uint64_t buf[REDUCE_CHUNK], more[REDUCE_CHUNK];
	const void *at = buf;

	if (sum) {
		sum->fn[nsrc - 1][REDUCE_ACC_OUT | (w->flags & REDUCE_ACC_IN)](buf, src, n);
	} else {
		at = widen(w, (w->flags & REDUCE_ACC_IN) != 0, src[0], buf, n);
		for (int s = 1; s < nsrc; s++) {
			w->k->op[w->wide][w->op](buf, at, widen(w, false, src[s], more, n), n);
			at = buf;
		}
	}
	if (w->flags & REDUCE_FINISH) {
		w->k->div[w->wide](buf, at, w->arg->ranks, n);
		at = buf;
	}
	narrow(w, dst, at, n);
}

/* Integers in their own width: what is cut off at the end cannot be told from what is never computed. */
static void native_chunk(const struct work *w, void *dst, const void *const src[], int nsrc, size_t n)
{
	reduce_op2 *op = w->k->native[w->type][w->op];
	uint64_t buf[REDUCE_CHUNK];

	op(buf, src[0], src[1], n);
	for (int s = 2; s < nsrc - 1; s++)
		op(buf, buf, src[s], n);
	op(dst, buf, src[nsrc - 1], n);
}

static void scale(const struct work *w, void *dst, const void *src, size_t n)
{
	const size_t size = type_size(w->type);
	uint64_t buf[REDUCE_CHUNK], factor[REDUCE_CHUNK];
	const size_t all = n < REDUCE_CHUNK ? n : REDUCE_CHUNK;

	for (size_t i = 0; i < all; i++)
		memcpy((char *)factor + i * size, &w->arg->scalar, size);
	if (w->k->load[w->type]) {
		w->k->load[w->type](buf, factor, all);
		memcpy(factor, buf, sizeof(factor));
	}
	for (size_t i = 0; i < n; i += REDUCE_CHUNK) {
		size_t m = n - i < REDUCE_CHUNK ? n - i : REDUCE_CHUNK;

		w->k->op[w->wide][BASIC_PROD](buf, widen(w, false, (const char *)src + i * size, buf, m),
					      factor, m);
		narrow(w, (char *)dst + i * size, buf, m);
	}
}

typedef void chunk_fn(const struct work *, void *dst, const void *const src[], int nsrc, size_t n);

static void in_chunks(const struct work *w, chunk_fn *fn, void *dst, const void *const src[], int nsrc,
		      size_t n)
{
	const size_t size = type_size(w->type), acc = reduce_acc_size(w->type);
	const size_t step = w->flags & REDUCE_ACC_OUT ? acc : size;

	for (size_t i = 0; i < n; i += REDUCE_CHUNK) {
		const void *at[REDUCE_SRC_MAX];

		for (int s = 0; s < nsrc; s++)
			at[s] = (const char *)src[s] + i * (s == 0 && w->flags & REDUCE_ACC_IN ? acc : size);
		fn(w, (char *)dst + i * step, at, nsrc, n - i < REDUCE_CHUNK ? n - i : REDUCE_CHUNK);
	}
}

static void run(const struct work *w, void *dst, const void *const src[], int nsrc, size_t n)
{
	const unsigned acc = w->flags & (REDUCE_ACC_OUT | REDUCE_ACC_IN);
	const bool finish = w->flags & REDUCE_FINISH;
	const bool native = type_is_integer(w->type) && !finish &&
			    (!acc || type_size(w->type) == reduce_acc_size(w->type));

	if (w->flags & REDUCE_SCALE)
		scale(w, dst, src[0], n);
	else if (w->op == BASIC_SUM && w->k->sum[w->type] && !finish)
		w->k->sum[w->type]->fn[nsrc - 1][acc](dst, src, n);
	else if (native && nsrc == 1)
		copy(dst, src[0], n * type_size(w->type));
	else if (native && nsrc == 2)
		w->k->native[w->type][w->op](dst, src[0], src[1], n);
	else
		in_chunks(w, native ? native_chunk : wide_chunk, dst, src, nsrc, n);
}

bool reduce_supports(sircl_type_t type, sircl_op_t op)
{
	return (unsigned)type < SIRCL_TYPE_COUNT && (unsigned)op < REDUCE_OPS;
}

static void run_with(const struct reduce_kernels *k, sircl_type_t type, sircl_op_t op, unsigned flags,
		     const struct reduce_arg *arg, void *dst, const void *const src[], int nsrc, size_t n)
{
	struct work w = { .k = k, .type = type, .op = basic_of(op), .flags = flags, .arg = arg };
	uint64_t fp;

	if (op != SIRCL_AVG)
		w.flags &= ~(unsigned)REDUCE_FINISH;
	sircl_assert(!(w.flags & REDUCE_FINISH) || (arg && arg->ranks > 0));
	sircl_assert(!(flags & REDUCE_SCALE) ||
		     (arg && nsrc == 1 && !(flags & (REDUCE_ACC_OUT | REDUCE_ACC_IN))));
	w.wide = wide_of(type);
	fp = fp_enter();
	run(&w, dst, src, nsrc, n);
	fp_leave(fp);
}

static inline void run_by(const struct reduce_kernels *k, sircl_type_t type, sircl_op_t op, unsigned flags,
			  const struct reduce_arg *arg, void *dst, const void *const src[], int nsrc,
			  size_t n)
{
	const struct reduce_fused *sum;
	uint64_t fp;

	sircl_assert(k && reduce_supports(type, op) && nsrc >= 1 && nsrc <= REDUCE_SRC_MAX);
	sum = k->sum[type];
	if (op != SIRCL_SUM || !sum || (flags & REDUCE_SCALE)) {
		run_with(k, type, op, flags, arg, dst, src, nsrc, n);
		return;
	}
	fp = fp_enter(); /* what is called most, the short way */
	sum->fn[nsrc - 1][flags & (REDUCE_ACC_OUT | REDUCE_ACC_IN)](dst, src, n);
	fp_leave(fp);
}

void reduce_run_on(enum reduce_set set, sircl_type_t type, sircl_op_t op, unsigned flags,
		   const struct reduce_arg *arg, void *dst, const void *const src[], int nsrc, size_t n)
{
	run_by(tables[reduce_set_resolve(set)], type, op, flags, arg, dst, src, nsrc, n);
}

void reduce_run(sircl_type_t type, sircl_op_t op, unsigned flags, const struct reduce_arg *arg, void *dst,
		const void *const src[], int nsrc, size_t n)
{
	run_by(tables[reduce_set_wanted()], type, op, flags, arg, dst, src, nsrc, n);
}
