/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for NEON, which every aarch64 has; empty on other architectures. */
#if defined(__aarch64__)
#define KERNEL_SET reduce_neon
#define KERNEL_TARGET
#include "reduce/kernels.h"
#else
typedef int reduce_no_neon; /* a translation unit may not be empty */
#endif
