/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of the kernel: by instruction set of this processor, type, operation, number of sources. The
 * processor's features are looked up at every call: that is a load and a test of what the start-up code of
 * the compiler's library left behind, and needs no state of ours.
 */
#include "base/error.h"
#include "reduce/internal.h"

bool reduce_isa_usable(enum reduce_isa isa)
{
	switch (isa) {
	case REDUCE_GENERIC:
		return true;
#if defined(__x86_64__)
	case REDUCE_AVX2:
		return __builtin_cpu_supports("avx2") != 0;
	case REDUCE_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl");
#endif
	default:
		return false;
	}
}

enum reduce_isa reduce_isa_best(void)
{
	if (reduce_isa_usable(REDUCE_AVX512))
		return REDUCE_AVX512;
	if (reduce_isa_usable(REDUCE_AVX2))
		return REDUCE_AVX2;
	return REDUCE_GENERIC;
}

const char *reduce_isa_name(enum reduce_isa isa)
{
	static const char *const name[REDUCE_ISAS] = {
		[REDUCE_GENERIC] = "generic",
		[REDUCE_AVX2] = "avx2",
		[REDUCE_AVX512] = "avx512",
	};

	return isa < REDUCE_ISAS ? name[isa] : "?";
}

static const struct reduce_kernels *find(enum reduce_isa isa, sircl_type_t type, sircl_op_t op)
{
	if ((unsigned)type >= SIRCL_TYPE_COUNT || (unsigned)op >= SIRCL_OP_COUNT)
		return NULL;
	switch (isa) {
#if defined(__x86_64__)
	case REDUCE_AVX2:
		return reduce_avx2[type][op];
	case REDUCE_AVX512:
		return reduce_avx512[type][op];
#endif
	default:
		return reduce_generic[type][op];
	}
}

reduce_fn *reduce_kernel(enum reduce_isa isa, sircl_type_t type, sircl_op_t op, unsigned acc, int nsrc)
{
	const struct reduce_kernels *k = find(isa, type, op);

	if (!k || nsrc < 1 || nsrc > REDUCE_SRC_MAX || acc > (REDUCE_ACC_OUT | REDUCE_ACC_IN))
		return NULL;
	return k->fn[nsrc - 1][acc];
}

bool reduce_supports(sircl_type_t type, sircl_op_t op)
{
	return find(REDUCE_GENERIC, type, op) != NULL;
}

void reduce_run(sircl_type_t type, sircl_op_t op, unsigned flags, const struct reduce_arg *arg, void *dst,
		const void *const src[], int nsrc, size_t n)
{
	reduce_fn *fn =
		reduce_kernel(reduce_isa_best(), type, op, flags & (REDUCE_ACC_OUT | REDUCE_ACC_IN), nsrc);

	(void)arg;

	sircl_assert(fn != NULL);
	fn(dst, src, n);
}
