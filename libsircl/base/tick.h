/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time and cost come from outside: nothing above lane/ reads a clock. Whoever drives fills a struct tick from
 * ctx->clock and hands it down. In the simulator `cost` charges what a real processor would spend, by moving
 * `now`.
 */
#ifndef BASE_TICK_H
#define BASE_TICK_H
#include <stddef.h>
#include <stdint.h>

#define NEVER UINT64_MAX
#define USEC 1000ull
#define MSEC 1000000ull
#define SEC 1000000000ull

enum cost_kind { COST_POST, COST_EVENT, COST_COPY, COST_REDUCE, COST_HANDOFF, COST_KINDS };

/* Nanoseconds per event, plus picoseconds per byte, of each kind. */
struct cost {
	uint32_t fixed_ns[COST_KINDS];
	uint32_t per_byte_ps[COST_KINDS];
	uint64_t count[COST_KINDS];
};

struct tick {
	uint64_t now; /* ns, monotonic */
	struct cost *cost; /* NULL outside lane/sim */
};

/* Charges one event of `bytes`; moves t->now in the simulator only. */
static inline void tick_charge(struct tick *t, enum cost_kind k, size_t bytes)
{
	if (__builtin_expect(t->cost != NULL, 0)) {
		t->cost->count[k]++;
		t->now += t->cost->fixed_ns[k] + (uint64_t)bytes * t->cost->per_byte_ps[k] / 1000;
	}
}

static inline uint64_t tick_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
#endif
