/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a verbs lane: what the link registers, and a block of its own for receive slots, headers and
 * handshakes. Only what was exported, and the ring of notes, can be written by the peer.
 */
#include <errno.h>
#include <stdio.h>
#include "lane/verbs_internal.h"

sircl_result_t verbs_reg(struct lane *lane, uint32_t id, void *base, size_t len, struct lane_mem *mem,
			 struct lane_export *exp)
{
	struct verbs_lane *l = (struct verbs_lane *)(void *)lane;
	struct verbs_region *r;

	if (id >= LANE_REGIONS_MAX || l->region[id].mr)
		return error_set(SIRCL_INVALID_USAGE, "verbs lane %u of cable %u: region %u is %s",
				 l->cfg.lane, l->cfg.cable, id,
				 id < LANE_REGIONS_MAX ? "registered already" : "beyond the table");
	r = &l->region[id];
	if (l->dead)
		goto dead;
	/* reading locally needs no right */
	r->mr = l->lib->ibv.ibv_reg_mr(l->pd, base, len,
				       exp ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0);
	if (!r->mr) {
		int err = errno;
		char what[80];

		if (l->min_epoch && (err == EIO || err == ENODEV)) {
			verbs_device_dead(l, "the RDMA device does not take memory any more");
			goto dead;
		}
		snprintf(what, sizeof(what), "ibv_reg_mr of %zu bytes at %p", len, base);
		return verbs_error(l, what, err);
	}
	r->base = base;
	r->len = len;
	r->exported = exp != NULL;
	if (id >= l->nregions)
		l->nregions = id + 1;
	if (mem)
		*mem = (struct lane_mem){ .base = base, .len = len, .id = id, .impl = r->mr->lkey };
	if (exp)
		*exp = (struct lane_export){ .addr = (uintptr_t)base, .len = len, .key = r->mr->rkey };
	return SIRCL_SUCCESS;
dead:
	/* this lane never comes up again; its sisters need the memory */
	if (mem)
		*mem = (struct lane_mem){ .base = base, .len = len, .id = id };
	if (exp)
		*exp = (struct lane_export){ .addr = (uintptr_t)base, .len = len };
	return SIRCL_SUCCESS;
}

void verbs_unreg(struct lane *lane, struct lane_mem *mem)
{
	struct verbs_lane *l = (struct verbs_lane *)(void *)lane;

	if (mem->id >= LANE_REGIONS_MAX || !l->region[mem->id].mr)
		return;
	l->lib->ibv.ibv_dereg_mr(l->region[mem->id].mr);
	l->region[mem->id] = (struct verbs_region){ 0 };
	while (l->nregions && !l->region[l->nregions - 1].mr)
		l->nregions--;
}

sircl_result_t verbs_open_memory(struct verbs_lane *l)
{
	size_t slots = (size_t)l->nslots * VERBS_SLOT;
	size_t heads = ((size_t)l->cfg.max_notes * sizeof(struct verbs_head) + 63) & ~(size_t)63;
	size_t hs = (2 * (VERBS_HALF_OPEN + 1) + 1) * VERBS_HS_BUF;
	struct lane_export arena;
	uint8_t *p;

	/* a shared mapping: a child made by fork() does not take pages away from under the device */
	CHECK(arena_create(&l->mem, "sircl-verbs", slots + 2 * heads + hs));
	p = arena_base(l->mem);
	l->slots = p;
	l->heads = (struct verbs_head *)(void *)(p + slots);
	l->hs_bytes = p + slots + heads;
	l->ring = (struct verbs_head *)(void *)(p + slots + heads + hs);
	l->out.in = l->hs_bytes;
	l->out.out = l->hs_bytes + VERBS_HS_BUF;
	for (size_t i = 0; i < VERBS_HALF_OPEN; i++) {
		l->half[i].in = l->hs_bytes + (2 * i + 2) * VERBS_HS_BUF;
		l->half[i].out = l->half[i].in + VERBS_HS_BUF;
	}
	l->answer = l->hs_bytes + 2 * (VERBS_HALF_OPEN + 1) * VERBS_HS_BUF;
	l->mem_mr = l->lib->ibv.ibv_reg_mr(l->pd, p, slots + heads + hs, IBV_ACCESS_LOCAL_WRITE);
	if (!l->mem_mr)
		return verbs_error(l, "ibv_reg_mr of receive slots", errno);
	l->ring_mr = l->lib->ibv.ibv_reg_mr(l->pd, l->ring, heads,
					    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!l->ring_mr)
		return verbs_error(l, "ibv_reg_mr of the ring of notes", errno);
	return verbs_reg((struct lane *)(void *)l, 0, l->cfg.arena_base, l->cfg.arena_len, NULL, &arena);
}

void verbs_close_memory(struct verbs_lane *l)
{
	for (uint32_t i = 0; i < l->nregions; i++)
		if (l->region[i].mr)
			l->lib->ibv.ibv_dereg_mr(l->region[i].mr);
	l->nregions = 0;
	if (l->ring_mr)
		l->lib->ibv.ibv_dereg_mr(l->ring_mr);
	if (l->mem_mr)
		l->lib->ibv.ibv_dereg_mr(l->mem_mr);
	l->ring_mr = l->mem_mr = NULL;
	if (l->mem)
		arena_destroy(l->mem);
	l->mem = NULL;
}
