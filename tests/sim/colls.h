/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives in the simulator: every position runs the same list of all-reduces and all-gathers through its
 * own engine, starting each after a delay of its own, and compares every result bit for bit with a plain
 * reference in the documented order of the sum.
 */
#ifndef TESTS_SIM_COLLS_H
#define TESTS_SIM_COLLS_H
#include "world.h"

#define COLLS_MAX 8

struct colls;
/* n operations drawn from the seed, for a world of this configuration. NULL: none. */
struct colls *colls_new(uint64_t seed, const struct world_cfg *, int n);
/* Before the world is created: drives the engines and steps the operations. */
void colls_hook(struct colls *, struct world_cfg *);
bool colls_open(struct colls *, struct world *); /* engines: after world_create, before world_connect */
bool colls_start(struct colls *); /* teams: after world_connect */
void colls_step(struct wnode *, struct tick *, struct colls *);
uint64_t colls_deadline(const struct wnode *, const struct colls *);
bool colls_done(const struct colls *);
uint64_t colls_finished(const struct colls *); /* operations that all positions have finished */
void colls_close(struct colls *); /* teams and engines; channels go on closing in the world's own time */
void colls_free(struct colls *);
void colls_where(const struct colls *, char *buf, size_t n);
#endif
