/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that lanes reach without staging: ours (sircl_mem_alloc) or the caller's (sircl_register). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "api/internal.h"

/* With the engine locked: the ranges of all communicators of the home, which other threads may use. */
static sircl_result_t register_range(sircl_comm_t comm, struct comm_memory *new)
{
	struct tick t = ctx_tick(comm->ctx);

	for (struct sircl_comm *c = comm->home->comms; c; c = c->next)
		for (struct comm_memory *m = c->memory; m; m = m->next)
			if ((char *)new->base < (char *)m->base + m->bytes &&
			    (char *)m->base < (char *)new->base + new->bytes)
				return error_set(
					SIRCL_INVALID_ARGUMENT,
					"sircl_register: %p, %zu bytes overlaps %p, %zu bytes, which "
					"is registered with communicator \"%s\": deregister that first",
					new->base, new->bytes, m->base, m->bytes, c->name);
	return chan_net_register(comm->fabric->net, &t, new->base, new->bytes);
}

static sircl_result_t add(sircl_comm_t comm, void *base, size_t bytes, bool ours)
{
	struct comm_memory *m = malloc(sizeof(*m));
	sircl_result_t ret;

	if (!m)
		return error_set(SIRCL_NO_MEMORY, "no memory for the record of a registration");
	*m = (struct comm_memory){ .base = base, .bytes = bytes, .ours = ours };
	engine_lock(comm->fabric->engine);
	ret = register_range(comm, m);
	if (ret == SIRCL_SUCCESS) {
		m->next = comm->memory;
		comm->memory = m;
	}
	engine_unlock(comm->fabric->engine);
	if (ret != SIRCL_SUCCESS)
		free(m);
	return ret;
}

static sircl_result_t deregister_range(sircl_comm_t comm, struct comm_memory **at)
{
	struct comm_memory *m = *at;
	struct tick t;
	sircl_result_t ret;

	engine_lock(comm->fabric->engine);
	t = ctx_tick(comm->ctx);
	ret = chan_net_deregister(comm->fabric->net, &t, m->base);
	if (ret == SIRCL_SUCCESS)
		*at = m->next;
	engine_unlock(comm->fabric->engine);
	return ret;
}

static sircl_result_t take_out(sircl_comm_t comm, const char *call, void *base, bool ours)
{
	struct comm_memory **at = &comm->memory, *m;

	while (*at && (*at)->base != base)
		at = &(*at)->next;
	m = *at;
	if (!m || m->ours != ours)
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: %p was not made by %s on this communicator",
				 call, base, ours ? "sircl_mem_alloc" : "sircl_register");
	CHECK(deregister_range(comm, at));
	if (m->ours)
		munmap(m->base, m->bytes);
	free(m);
	return SIRCL_SUCCESS;
}

static sircl_result_t alloc(sircl_comm_t comm, size_t bytes, void **ptr)
{
	size_t page = page_size(), whole = (bytes + page - 1) / page * page;
	sircl_result_t ret;
	void *p;

	if (!ptr || bytes == 0 || whole < bytes)
		return error_set(SIRCL_INVALID_ARGUMENT, "sircl_mem_alloc: %s",
				 !ptr ? "ptr is NULL" : "bytes must be at least 1 and fit into memory");
	p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return error_set(SIRCL_NO_MEMORY, "sircl_mem_alloc: %zu bytes: %s", bytes, strerror(errno));
	ret = add(comm, p, whole, true);
	if (ret != SIRCL_SUCCESS)
		munmap(p, whole);
	else
		*ptr = p;
	return ret;
}

sircl_result_t sircl_mem_alloc(sircl_comm_t comm, size_t bytes, void **ptr)
{
	CHECK(api_begin(comm, "sircl_mem_alloc", API_USABLE));
	return api_end(comm, alloc(comm, bytes, ptr));
}

sircl_result_t sircl_mem_free(sircl_comm_t comm, void *ptr)
{
	CHECK(api_begin(comm, "sircl_mem_free", API_ANY));
	return api_end(comm, take_out(comm, "sircl_mem_free", ptr, true));
}

sircl_result_t sircl_register(sircl_comm_t comm, void *ptr, size_t bytes)
{
	CHECK(api_begin(comm, "sircl_register", API_USABLE));
	if (!ptr || bytes == 0 || (uintptr_t)ptr + bytes < bytes)
		return api_end(comm, error_set(SIRCL_INVALID_ARGUMENT, "sircl_register: %s",
					       !ptr ? "ptr is NULL"
						    : "bytes must be at least 1 and end within memory"));
	return api_end(comm, add(comm, ptr, bytes, false));
}

sircl_result_t sircl_deregister(sircl_comm_t comm, void *ptr)
{
	CHECK(api_begin(comm, "sircl_deregister", API_ANY));
	return api_end(comm, take_out(comm, "sircl_deregister", ptr, false));
}

void mem_deregister_all(sircl_comm_t comm, struct tick *t)
{
	for (struct comm_memory *m = comm->memory; m; m = m->next)
		(void)chan_net_deregister(comm->fabric->net, t, m->base);
}

void mem_free_all(sircl_comm_t comm)
{
	while (comm->memory) {
		struct comm_memory *m = comm->memory;

		comm->memory = m->next;
		if (m->ours)
			munmap(m->base, m->bytes);
		free(m);
	}
}
