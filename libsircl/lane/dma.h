/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers between this CPU and memory that a NIC reads or writes. The C11 fences order CPUs among
 * themselves (inner shareable on ARM); a NIC is outside that domain, so it needs the outer shareable kind, as
 * rdma-core uses it. On x86 the hardware keeps this order and only the compiler must.
 */
#ifndef LANE_DMA_H
#define LANE_DMA_H

/* After seeing that the NIC has written something (a completion), before reading what it wrote earlier. */
static inline void dma_rmb(void)
{
#if defined(__aarch64__)
	__asm__ __volatile__("dmb oshld" ::: "memory");
#elif defined(__x86_64__)
	__asm__ __volatile__("" ::: "memory");
#else
	__sync_synchronize();
#endif
}

/* After writing what the NIC shall read, before telling it to. */
static inline void dma_wmb(void)
{
#if defined(__aarch64__)
	__asm__ __volatile__("dmb oshst" ::: "memory");
#elif defined(__x86_64__)
	__asm__ __volatile__("" ::: "memory");
#else
	__sync_synchronize();
#endif
}
#endif
