/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives in the simulator: communicators of all or some positions, each with its list of collectives of
 * every kind, type and operation, some started several at once, each after a delay of its own; every result
 * is compared bit for bit with a plain reference in the documented order.
 */
#ifndef TESTS_SIM_COLLS_H
#define TESTS_SIM_COLLS_H
#include "coll/coll.h"
#include "world.h"

#define COLLS_MAX 8
#define SQUADS_MAX 3

struct colls;
/* n operations of all positions, and perhaps some of other communicators, drawn from the seed. */
struct colls *colls_new(uint64_t seed, const struct world_cfg *, int n);
/* Before the world is created: drives the engines and steps the operations. */
void colls_hook(struct colls *, struct world_cfg *);
bool colls_open(struct colls *, struct world *); /* engines: after world_create, before world_connect */
bool colls_start(struct colls *); /* teams: after world_connect */
void colls_step(struct wnode *, struct tick *, struct colls *);
uint64_t colls_deadline(const struct wnode *, const struct colls *);
bool colls_done(const struct colls *);
/* Adds the operations that all members have finished, by kind; communicators beside the first; those with
 * groups. */
void colls_count(const struct colls *, uint64_t kinds[COLL_KINDS], uint64_t *squads, uint64_t *groups);
void colls_close(struct colls *); /* teams and engines; channels go on closing in the world's own time */
void colls_free(struct colls *);
void colls_where(const struct colls *, char *buf, size_t n);
#endif
