/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child of a fork has the communicators of its parent in memory, but neither its threads nor a place of its
 * own on the cables: it must not touch them. A handler counts forks, so that no call has to ask the system
 * who it is.
 */
#include <pthread.h>
#include "api/internal.h"

static _Atomic unsigned generation; /* relaxed: changes only where there is one thread */

static void in_child(void)
{
	atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void watch(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

void fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch);
}

unsigned fork_generation(void)
{
	return atomic_load_explicit(&generation, memory_order_relaxed);
}
