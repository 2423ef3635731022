/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels without vectors: for every processor, and to compare the others with. */
#define KERNEL_SET reduce_generic
#define KERNEL_TARGET
#define KERNEL_SCALAR
#include "reduce/kernels.h"
