/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: memory that a peer may map or a NIC may write. Invariant: what is free and what is used is recorded
 * outside the arena, in blocks that cover [0, size) without gap or overlap, in ascending order, and no two
 * neighbouring blocks are both free; so nothing that a peer writes can mislead the allocator. The file is
 * sealed against shrinking: a peer that holds it cannot make our accesses fault.
 */
#include "base/arena.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_ALIGN ((size_t)64)
#define MEMFD_NAME_MAX 249 /* memfd_create(2) */

struct block {
	size_t off, len;
	bool used;
};

struct arena {
	void *base;
	size_t size, used;
	int fd;
	struct block *block;
	size_t nblocks, room;
};

size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

sircl_result_t arena_create(struct arena **out, const char *name, size_t bytes)
{
	const size_t page = page_size();
	sircl_result_t ret;
	char file[MEMFD_NAME_MAX + 1];
	struct arena *a;
	size_t size;

	*out = NULL;
	if (bytes == 0 || bytes > (size_t)INT64_MAX - page)
		return error_set(SIRCL_INVALID_ARGUMENT, "arena %s: %zu bytes cannot be allocated", name,
				 bytes);
	size = (bytes + page - 1) / page * page;
	a = calloc(1, sizeof(*a));
	if (a == NULL)
		return error_set(SIRCL_NO_MEMORY, "arena %s: out of memory", name);
	a->room = 16;
	a->block = calloc(a->room, sizeof(*a->block));
	if (a->block == NULL) {
		ret = error_set(SIRCL_NO_MEMORY, "arena %s: out of memory", name);
		goto err_arena;
	}
	snprintf(file, sizeof(file), "%s", name);
	a->fd = memfd_create(file, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (a->fd < 0) {
		ret = error_set(SIRCL_SYSTEM_ERROR, "arena %s: memfd_create: %s", name, strerror(errno));
		goto err_block;
	}
	if (ftruncate(a->fd, (off_t)size) != 0 ||
	    fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		ret = error_set(SIRCL_SYSTEM_ERROR, "arena %s: sizing it to %zu bytes: %s", name, size,
				strerror(errno));
		goto err_fd;
	}
	a->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	if (a->base == MAP_FAILED) {
		ret = error_set(errno == ENOMEM ? SIRCL_NO_MEMORY : SIRCL_SYSTEM_ERROR,
				"arena %s: mapping %zu bytes: %s", name, size, strerror(errno));
		goto err_fd;
	}
	a->size = size;
	a->block[0] = (struct block){ .off = 0, .len = size };
	a->nblocks = 1;
	*out = a;
	return SIRCL_SUCCESS;
err_fd:
	close(a->fd);
err_block:
	free(a->block);
err_arena:
	free(a);
	return ret;
}

void arena_destroy(struct arena *a)
{
	if (a == NULL)
		return;
	munmap(a->base, a->size);
	close(a->fd);
	free(a->block);
	free(a);
}

void *arena_base(const struct arena *a)
{
	return a->base;
}

size_t arena_size(const struct arena *a)
{
	return a->size;
}

int arena_fd(const struct arena *a)
{
	return a->fd;
}

size_t arena_used(const struct arena *a)
{
	return a->used;
}

/* Makes room for one more block at index i; false when out of memory. */
static bool blocks_insert(struct arena *a, size_t i)
{
	if (a->nblocks == a->room) {
		struct block *more = realloc(a->block, 2 * a->room * sizeof(*more));

		if (more == NULL)
			return false;
		a->block = more;
		a->room *= 2;
	}
	memmove(&a->block[i + 1], &a->block[i], (a->nblocks - i) * sizeof(*a->block));
	a->nblocks++;
	return true;
}

static void blocks_remove(struct arena *a, size_t i)
{
	a->nblocks--;
	memmove(&a->block[i], &a->block[i + 1], (a->nblocks - i) * sizeof(*a->block));
}

size_t arena_alloc(struct arena *a, size_t bytes)
{
	size_t len, i;

	if (bytes > a->size)
		return SIZE_MAX;
	if (bytes == 0)
		bytes = 1;
	len = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
	for (i = 0; i < a->nblocks; i++)
		if (!a->block[i].used && a->block[i].len >= len)
			break;
	if (i == a->nblocks)
		return SIZE_MAX;
	if (a->block[i].len > len) {
		if (!blocks_insert(a, i + 1))
			return SIZE_MAX;
		a->block[i + 1] =
			(struct block){ .off = a->block[i].off + len, .len = a->block[i].len - len };
		a->block[i].len = len;
	}
	a->block[i].used = true;
	a->used += len;
	return a->block[i].off;
}

void arena_free(struct arena *a, size_t off)
{
	size_t lo = 0, hi = a->nblocks, i;

	while (hi - lo > 1) {
		i = lo + (hi - lo) / 2;
		if (a->block[i].off <= off)
			lo = i;
		else
			hi = i;
	}
	i = lo;
	sircl_assert(a->block[i].off == off && a->block[i].used);
	a->block[i].used = false;
	a->used -= a->block[i].len;
	if (i + 1 < a->nblocks && !a->block[i + 1].used) {
		a->block[i].len += a->block[i + 1].len;
		blocks_remove(a, i + 1);
	}
	if (i > 0 && !a->block[i - 1].used) {
		a->block[i - 1].len += a->block[i].len;
		blocks_remove(a, i);
	}
}
