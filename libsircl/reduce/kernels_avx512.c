/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX-512; empty on other architectures. */
#if defined(__x86_64__)
#define KERNEL_SET reduce_avx512
#define KERNEL_TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))
#include "reduce/kernels.h"
#else
typedef int reduce_no_avx512; /* a translation unit may not be empty */
#endif
