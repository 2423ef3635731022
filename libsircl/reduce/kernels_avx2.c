/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX2; empty on other architectures. */
#if defined(__x86_64__)
#define KERNEL_SET reduce_avx2
#define KERNEL_TARGET __attribute__((target("avx2")))
#include "reduce/kernels.h"
#else
typedef int reduce_no_avx2; /* a translation unit may not be empty */
#endif
