/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mean of a vector over all ranks: an all-reduce.
 *
 *   make && sircl run -n 4 -- ./all_reduce
 */
#include <sircl/sircl.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000000

/* Errors of a communicator are told by it; before there is one, by the thread. */
#define TRY(comm, call) \
	do { \
		if ((call) != SIRCL_SUCCESS) { \
			fprintf(stderr, "%s: %s\n", #call, sircl_last_error(comm)); \
			return 1; \
		} \
	} while (0)

static int env(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value ? atoi(value) : otherwise;
}

static int mean(sircl_comm_t comm, int rank, int size)
{
	float *x;
	void *memory;

	/* any memory will do; this is reached without a copy */
	TRY(comm, sircl_mem_alloc(comm, COUNT * sizeof(*x), &memory));
	x = memory;
	for (int i = 0; i < COUNT; i++)
		x[i] = (float)(rank + i % 10);
	TRY(comm, sircl_all_reduce(x, x, COUNT, SIRCL_FLOAT32, SIRCL_AVG, comm, SIRCL_HOST)); /* in place */
	for (int i = 0; i < COUNT; i++) {
		if (x[i] != (float)(size - 1) / 2 + (float)(i % 10)) {
			fprintf(stderr, "rank %d: element %d is %g\n", rank, i, x[i]);
			return 1;
		}
	}
	printf("rank %d of %d: the mean of element 0 is %g\n", rank, size, x[0]);
	return 0;
}

int main(void)
{
	/* sircl run sets them; under MPI or Slurm take theirs */
	int rank = env("SIRCL_RANK", 0), size = env("SIRCL_NRANKS", 1), status;
	sircl_comm_t comm;

	/* without an id, the ranks meet as the environment says */
	TRY(NULL, sircl_comm_create(&comm, NULL, rank, size, NULL));
	status = mean(comm, rank, size);
	if (status)
		sircl_comm_abort(comm); /* the others must not wait for this rank */
	if (sircl_comm_destroy(comm) != SIRCL_SUCCESS && !status) {
		fprintf(stderr, "sircl_comm_destroy: %s\n", sircl_last_error(NULL));
		status = 1;
	}
	return status;
}
