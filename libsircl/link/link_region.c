/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: memory that the peer may put into, and sources, which have a number of the same table but which
 * the peer neither hears of nor may write. Each region is registered on all lanes and announced with one
 * sequenced note per lane, over any lane; the peer uses it once all are known. The notes are unordered, and
 * numbers are used again, so each carries the generation of its number: an older one is ignored, a newer one
 * withdraws what was known before.
 */
#include <stdio.h>
#include "link/link_internal.h"

#define FIRST_USER_REGION 2

static void unregister(struct link *l, struct link_mem *m, int lanes)
{
	for (int i = 0; i < lanes; i++)
		l->lane[i].ops->unreg(l->lane[i].lane, &m->lm[i]);
}

static sircl_result_t mem_add(struct link *l, void *p, size_t n, bool exported, struct link_mem **out)
{
	struct link_mem *m = NULL;
	uint16_t id;

	for (id = FIRST_USER_REGION; id < LANE_REGIONS_MAX; id++)
		if (!l->region[id].used && !l->region[id].owe_withdraw) {
			m = &l->region[id];
			break;
		}
	if (!m)
		return error_set(
			SIRCL_INVALID_USAGE,
			"rank %u: %d memory regions are registered, which is the limit; deregister some",
			l->cfg.self_rank, LANE_REGIONS_MAX - FIRST_USER_REGION);
	for (int i = 0; i < l->nlanes; i++) {
		sircl_result_t r = l->lane[i].ops->reg(l->lane[i].lane, id, p, n, &m->lm[i],
						       exported ? &m->exp[i] : NULL);

		if (r != SIRCL_SUCCESS) {
			unregister(l, m, i);
			return r;
		}
	}
	m->link = l;
	m->base = p;
	m->len = n;
	m->id = id;
	m->used = true;
	m->exported = exported;
	m->gen++;
	if (id >= l->nregions)
		l->nregions = id + 1;
	*out = m;
	return SIRCL_SUCCESS;
}

/* Says now what is owed, or later. */
static void tell(struct link *l, struct tick *t)
{
	l->owe_regions = l->busy = true;
	if (!l->dead)
		region_pump(l, t);
}

sircl_result_t link_region_add(struct link *l, struct tick *t, void *p, size_t n, const struct link_mem **out)
{
	struct link_mem *m;

	CHECK(mem_add(l, p, n, true, &m));
	m->owe_region = (uint8_t)((1u << l->nlanes) - 1);
	tell(l, t);
	*out = m;
	return SIRCL_SUCCESS;
}

sircl_result_t link_source_add(struct link *l, void *p, size_t n, const struct link_mem **out)
{
	struct link_mem *m;

	CHECK(mem_add(l, p, n, false, &m));
	*out = m;
	return SIRCL_SUCCESS;
}

sircl_result_t link_region_remove(struct link *l, struct tick *t, const struct link_mem *cm)
{
	struct link_mem *m = &l->region[cm->id];

	sircl_assert(m == cm && m->used && m->id >= FIRST_USER_REGION);
	for (uint64_t s = l->una; s != l->next && !l->dead; s++) {
		const struct sent_frame *f = &l->sent[s & l->mask];

		if (f->smem == cm && (f->state == SENT_POSTED || f->state == SENT_QUEUED))
			return error_set(SIRCL_INVALID_USAGE,
					 "rank %u: memory %p is still being sent to rank %u; wait for the "
					 "operation before "
					 "deregistering it",
					 l->cfg.self_rank, m->base, l->cfg.peer_rank);
	}
	unregister(l, m, l->nlanes);
	m->used = false;
	m->gen++;
	m->owe_region = 0;
	m->owe_withdraw = m->exported; /* of a source the peer has not heard */
	while (l->nregions > FIRST_USER_REGION && !l->region[l->nregions - 1].used &&
	       !l->region[l->nregions - 1].owe_withdraw)
		l->nregions--;
	if (m->exported)
		tell(l, t);
	return SIRCL_SUCCESS;
}

/* Sends what is owed as far as there is room. */
void region_pump(struct link *l, struct tick *t)
{
	if (!l->connecting)
		return; /* owed until there is somebody to tell */
	for (int id = FIRST_USER_REGION; id < l->nregions; id++) {
		struct link_mem *m = &l->region[id];

		while (m->owe_region) {
			int i = __builtin_ctz(m->owe_region);
			struct link_frame f = { .label = (uint16_t)id,
						.kind = LINK_KIND_REGION,
						.flags = (uint8_t)i,
						.msg = m->gen,
						.fno = m->exp[i].key,
						.off = m->exp[i].addr,
						.tag = m->exp[i].len };

			if (!put_control(l, t, &f))
				goto later;
			m->owe_region &= (uint8_t)(m->owe_region - 1);
		}
		if (m->owe_withdraw) {
			struct link_frame f = { .label = (uint16_t)id,
						.kind = LINK_KIND_WITHDRAW,
						.msg = m->gen };

			if (!put_control(l, t, &f))
				goto later;
			m->owe_withdraw = false;
		}
	}
	l->owe_regions = false;
	return;
later:
	l->busy = true;
}

void region_got(struct link *l, const struct frame_hdr *h)
{
	struct peer_region *r;
	int lane = h->flags;

	if (h->label < FIRST_USER_REGION || h->label >= LANE_REGIONS_MAX || lane >= l->nlanes)
		return;
	r = &l->peer_region[h->label];
	if ((int32_t)(h->msg - r->gen) < 0)
		return;
	if (h->msg != r->gen) {
		bool told = r->told;

		*r = (struct peer_region){ .gen = h->msg };
		if (told && l->cfg.ops->region)
			l->cfg.ops->region(l->cfg.user, l, h->label, 0);
	}
	if (h->kind == LINK_KIND_WITHDRAW)
		return;
	l->lane[lane].peer_exp[h->label] =
		(struct lane_export){ .addr = h->off, .len = h->tag, .key = h->fno };
	r->lanes |= (uint8_t)(1u << lane);
	/* a lane whose provider cannot reach this memory (export of length 0) makes the region unusable: any
	 * lane may have to replay */
	r->len = r->lanes == (1u << lane) ? h->tag : (h->tag < r->len ? h->tag : r->len);
	if (r->lanes == (1u << l->nlanes) - 1 && !r->told && r->len) {
		r->told = true;
		if (l->cfg.ops->region)
			l->cfg.ops->region(l->cfg.user, l, h->label, r->len);
	}
}

uint16_t link_mem_region(const struct link_mem *m)
{
	sircl_assert(m->exported);
	return m->id;
}

const struct link_mem *link_mem_find(const struct link *l, const void *p, size_t n)
{
	for (int id = 0; id < l->nregions; id++) {
		const struct link_mem *m = &l->region[id];

		if (m->used && (const char *)p >= (const char *)m->base &&
		    (size_t)((const char *)p - (const char *)m->base) <= m->len &&
		    n <= m->len - (size_t)((const char *)p - (const char *)m->base))
			return m;
	}
	return NULL;
}
