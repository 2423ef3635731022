/* SPDX-License-Identifier: Apache-2.0 */
/* What every room needs from its context: parameters, log, clock. The rest of a context (links, channels,
 * engine) belongs to the rooms. */
#ifndef BASE_CTX_H
#define BASE_CTX_H
#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "base/tick.h"

struct sircl_ctx {
	struct params params;
	struct log log;
	int rank, nranks;
	char host[64];
	uint64_t (*clock)(void *arg); /* ns, monotonic. The lane room supplies it: lane_clock_real, or the
					 simulator's */
	void *clock_arg;
};

static inline struct tick ctx_tick(const struct sircl_ctx *ctx)
{
	return (struct tick){ .now = ctx->clock(ctx->clock_arg) };
}
#endif
