/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans that a context has built: a list, because there are few. Not for several threads at once; the
 * engine's driver token orders its users.
 */
#include <stdlib.h>
#include <string.h>
#include "coll/internal.h"

struct entry {
	struct entry *next;
	struct plan_key key;
	struct plan *plan;
};

struct plan_cache {
	struct entry *first;
};

sircl_result_t plan_cache_create(struct plan_cache **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? SIRCL_SUCCESS : error_set(SIRCL_NO_MEMORY, "no memory for the plan cache");
}

void plan_cache_destroy(struct plan_cache *c)
{
	struct entry *e, *next;

	if (!c)
		return;
	for (e = c->first; e; e = next) {
		next = e->next;
		free(e->plan);
		free(e);
	}
	free(c);
}

static bool same(const struct plan_key *a, const struct plan_key *b)
{
	return a->kind == b->kind && a->algo == b->algo && a->shape == b->shape && a->n == b->n &&
	       a->pos == b->pos && a->root == b->root && a->scaled == b->scaled &&
	       !memcmp(a->rank_of, b->rank_of, a->n * sizeof(a->rank_of[0]));
}

sircl_result_t plan_get(struct plan_cache *c, const struct plan_key *key, const struct plan **out)
{
	struct entry *e;
	sircl_result_t ret;

	*out = NULL;
	for (e = c->first; e; e = e->next) {
		if (same(&e->key, key)) {
			*out = e->plan;
			return SIRCL_SUCCESS;
		}
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return error_set(SIRCL_NO_MEMORY, "no memory for the plan cache");
	CHECK_GOTO(plan_build(key, &e->plan), err_entry);
	e->key = *key;
	e->next = c->first;
	c->first = e;
	*out = e->plan;
	return SIRCL_SUCCESS;
err_entry:
	free(e);
	return ret;
}
