/* SPDX-License-Identifier: Apache-2.0 */
/* What the handshakes of providers with a wire have in common: little-endian numbers, and what a proof is
 * about. */
#ifndef LANE_HANDSHAKE_H
#define LANE_HANDSHAKE_H
#include <endian.h>
#include <string.h>
#include "lane/lane.h"

#define LANE_AUTH_CONTEXT 40

static inline void put16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, 2);
}
static inline void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}
static inline uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return le32toh(v);
}

/* The context of base/auth.h: provider, job, cable, lane, epoch, direction, version; the same at both ends.
 */
static inline void lane_auth_context(uint8_t ctx[LANE_AUTH_CONTEXT], const char magic[8],
				     const struct lane_cfg *cfg, bool connects, uint32_t epoch,
				     uint32_t version)
{
	memcpy(ctx, magic, 8);
	memcpy(ctx + 8, cfg->job, 16);
	put16(ctx + 24, cfg->cable);
	put16(ctx + 26, cfg->lane);
	put32(ctx + 28, epoch);
	put16(ctx + 32, connects ? cfg->self : cfg->peer);
	put16(ctx + 34, connects ? cfg->peer : cfg->self);
	put32(ctx + 36, version);
}
#endif
