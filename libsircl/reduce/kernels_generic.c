/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for what every processor of the architecture has (x86-64: SSE2; aarch64: NEON). */
#define KERNEL_SET reduce_generic
#define KERNEL_TARGET
#include "reduce/kernels.h"
