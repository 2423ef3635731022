/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one process, on the public header: so that a thread sanitizer sees all of them. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sircl/sircl.h"

#define RANKS_MAX 16

struct rank_ctx {
	int rank, n;
	sircl_comm_t comm;
	const sircl_unique_id_t *id;
	void (*body)(struct rank_ctx *);
	int checks, failures;
};

#define EXPECT(r, cond) \
	do { \
		(r)->checks++; \
		if (!(cond)) { \
			(r)->failures++; \
			fprintf(stderr, "%s:%d: rank %d: %s; last error: %s\n", __FILE__, __LINE__, \
				(r)->rank, #cond, sircl_last_error((r)->comm)); \
		} \
	} while (0)

static inline void *rank_main(void *arg)
{
	struct rank_ctx *r = arg;

	EXPECT(r, sircl_comm_create(&r->comm, NULL, r->rank, r->n, r->id) == SIRCL_SUCCESS);
	if (!r->comm) {
		fprintf(stderr, "rank %d: %s\n", r->rank, sircl_last_error(NULL));
		return NULL;
	}
	r->body(r);
	return NULL;
}

/* Runs `body` on n ranks; each destroys its communicator itself (or not). Prints and returns the number of
 * failures. */
static inline int run_ranks(const char *name, int n, void (*body)(struct rank_ctx *))
{
	struct rank_ctx r[RANKS_MAX];
	pthread_t t[RANKS_MAX];
	sircl_unique_id_t id;
	int failures = 0, checks = 0;

	if (sircl_get_unique_id(&id) != SIRCL_SUCCESS) {
		fprintf(stderr, "%s: %s\n", name, sircl_last_error(NULL));
		return 1;
	}
	for (int i = 0; i < n; i++) {
		r[i] = (struct rank_ctx){ .rank = i, .n = n, .id = &id, .body = body };
		if (pthread_create(&t[i], NULL, rank_main, &r[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < n; i++) {
		pthread_join(t[i], NULL);
		failures += r[i].failures;
		checks += r[i].checks;
	}
	printf("  %-4s %s (%d ranks, %d checks)\n", failures ? "FAIL" : "ok", name, n, checks);
	return failures;
}
#endif
