/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's life and its driver token. Whoever holds the token may touch channels, links, teams and
 * running operations; nobody else may. The token is given back after every round, so a driver holds it for
 * microseconds and nobody ever waits for a sleeping one. It may be taken again by its owner (a callback
 * inside a round, a caller of engine_lock that starts an operation).
 */
#include "engine/internal.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

static uintptr_t self(void)
{
	return (uintptr_t)pthread_self();
}

bool token_try(struct engine *e)
{
	uintptr_t none = 0;

	/* Relaxed: only this thread can have stored its own name, so if we read it, we own the token. */
	if (atomic_load_explicit(&e->owner, memory_order_relaxed) == self()) {
		e->depth++;
		return true;
	}
	/* Acquire: partner of the release in token_give; all that the last driver wrote is ours now. */
	if (!atomic_compare_exchange_strong_explicit(&e->owner, &none, self(), memory_order_acquire,
						     memory_order_relaxed))
		return false;
	e->depth = 1;
	return true;
}

void token_take(struct engine *e)
{
	struct timespec nap = { .tv_nsec = 50000 };

	/* The owner gives it back after its round, which ends: bounded by the work of one round. */
	for (unsigned tries = 0; !token_try(e); tries++) {
		if (tries < 1000)
			sched_yield();
		else
			nanosleep(&nap, NULL);
	}
}

void token_give(struct engine *e)
{
	sircl_assert(atomic_load_explicit(&e->owner, memory_order_relaxed) == self());
	/* Release: partner of the acquire in token_try. */
	if (--e->depth == 0)
		atomic_store_explicit(&e->owner, 0, memory_order_release);
}

void engine_account(struct engine *e, size_t more, size_t less)
{
	/* Relaxed: a counter for reports. */
	atomic_fetch_add_explicit(&e->memory, more - less, memory_order_relaxed);
}

size_t engine_memory(const struct engine *e)
{
	return atomic_load_explicit(&e->memory, memory_order_relaxed);
}

bool drive_holding(struct engine *e, struct tick *tick)
{
	bool news, moved;

	e->now = tick->now;
	moved = news = chan_net_progress(e->cfg.net, tick);
	for (struct team *t = e->teams; t; t = t->next)
		moved |= team_progress(t, tick, news);
	if (e->more)
		moved |= e->more(e->more_arg, tick);
	return moved;
}

void engine_also(struct engine *e, bool (*more)(void *, struct tick *), void *arg)
{
	token_take(e);
	e->more = more;
	e->more_arg = arg;
	token_give(e);
}

bool engine_drive(struct engine *e, struct tick *tick, bool *busy)
{
	bool moved;

	if (!token_try(e)) {
		*busy = true;
		return false;
	}
	/* Relaxed: a hint for the background thread, which takes the token anyway. */
	atomic_store_explicit(&e->last_caller, tick->now, memory_order_relaxed);
	moved = drive_holding(e, tick);
	*busy = moved;
	token_give(e);
	wait_left(e);
	return moved;
}

void engine_lock(struct engine *e)
{
	token_take(e);
}

void engine_unlock(struct engine *e)
{
	token_give(e);
	wait_left(e);
}

uint64_t engine_deadline(const struct engine *e)
{
	uint64_t at = chan_net_deadline(e->cfg.net);

	for (const struct team *t = e->teams; t; t = t->next)
		at = tick_min(at, team_deadline(t));
	return at;
}

sircl_result_t engine_create(const struct engine_cfg *cfg, struct engine **out)
{
	struct engine *e = calloc(1, sizeof(*e));
	sircl_result_t ret;

	if (!e)
		return error_set(SIRCL_NO_MEMORY, "no memory for the engine");
	e->cfg = *cfg;
	e->memory = sizeof(*e);
	CHECK_GOTO(plan_cache_create(&e->plans), fail_engine);
	CHECK_GOTO(wait_create(e), fail_plans);
	*out = e;
	return SIRCL_SUCCESS;
fail_plans:
	plan_cache_destroy(e->plans);
fail_engine:
	free(e);
	return ret;
}

void engine_destroy(struct engine *e)
{
	if (!e)
		return;
	wait_destroy(e);
	sircl_assert(!e->teams);
	plan_info_free(e);
	plan_cache_destroy(e->plans);
	free(e);
}
