/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a lane may share or register: an anonymous memfd mapping, page aligned, zeroed, with a
 * first-fit allocator on top (offsets aligned to 64). Allocation happens when a channel is opened, never in
 * the data path.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

struct arena;
sircl_result_t arena_create(struct arena **, const char *name,
			    size_t bytes); /* rounded up to pages; name shows in /proc/PID/maps */
void arena_destroy(struct arena *);
void *arena_base(const struct arena *);
size_t arena_size(const struct arena *);
int arena_fd(const struct arena *); /* the arena keeps it */
size_t arena_used(const struct arena *);
/* Offset of `bytes`, or SIZE_MAX when there is no room. */
size_t arena_alloc(struct arena *, size_t bytes);
void arena_free(struct arena *, size_t off);
size_t page_size(void); /* from sysconf, never 4096 */
#endif
