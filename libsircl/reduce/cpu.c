/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of the instruction set. It is the process's and not a context's, because the processor is: what
 * is stored here changes the speed and never a bit of a result.
 */
#include <stdatomic.h>
#include <stdio.h>
#include "base/error.h"
#include "reduce/internal.h"

static _Atomic int wanted = REDUCE_AUTO; /* AUTO: the best has not been looked up yet */

static const char *const names[REDUCE_SETS] = {
	[REDUCE_AUTO] = "auto",     [REDUCE_GENERIC] = "generic", [REDUCE_AVX2] = "avx2",
	[REDUCE_AVX512] = "avx512", [REDUCE_NEON] = "neon",
};

/* The processor's features are a load and a test of what the compiler's start-up code left behind. */
bool reduce_set_usable(enum reduce_set set)
{
	switch (set) {
	case REDUCE_GENERIC:
		return true;
#if defined(__x86_64__)
	case REDUCE_AVX2:
		return __builtin_cpu_supports("avx2") != 0;
	case REDUCE_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl");
#elif defined(__aarch64__)
	case REDUCE_NEON:
		return true;
#endif
	default:
		return false;
	}
}

static enum reduce_set best(void)
{
	static const enum reduce_set order[] = { REDUCE_AVX512, REDUCE_AVX2, REDUCE_NEON };

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (reduce_set_usable(order[i]))
			return order[i];
	return REDUCE_GENERIC;
}

enum reduce_set reduce_set_resolve(enum reduce_set set)
{
	return set == REDUCE_AUTO ? best() : set;
}

enum reduce_set reduce_set_wanted(void)
{
	/* relaxed: nothing else is published with it */
	enum reduce_set set = (enum reduce_set)atomic_load_explicit(&wanted, memory_order_relaxed);
	int none = REDUCE_AUTO;

	if (__builtin_expect(set != REDUCE_AUTO, 1))
		return set;
	set = best();
	/* what reduce_use has stored meanwhile stays */
	atomic_compare_exchange_strong_explicit(&wanted, &none, (int)set, memory_order_relaxed,
						memory_order_relaxed);
	return set;
}

const char *reduce_set_name(enum reduce_set set)
{
	return (unsigned)set < REDUCE_SETS ? names[set] : "?";
}

const char *reduce_used(void)
{
	return names[reduce_set_wanted()];
}

sircl_result_t reduce_use(enum reduce_set set)
{
	char list[64] = "";
	int at = 0;

	if (set == REDUCE_AUTO || reduce_set_usable(set)) {
		atomic_store_explicit(&wanted, (int)set, memory_order_relaxed);
		return SIRCL_SUCCESS;
	}
	for (int s = REDUCE_GENERIC; s < REDUCE_SETS; s++)
		if (reduce_set_usable((enum reduce_set)s))
			at += snprintf(list + at, sizeof(list) - (size_t)at, " %s", names[s]);
	return error_set(SIRCL_BAD_CONFIG,
			 "SIRCL_CPU=%s: this processor, or this build, lacks these instructions; it has%s: "
			 "set one of these, or auto for the best of them",
			 reduce_set_name(set), list);
}
