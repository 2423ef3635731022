/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point to point: every rank sends to the next and receives from the previous one, whatever the cables are.
 *
 *   make && sircl run -n 4 -- ./send_recv
 */
#include <sircl/sircl.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 100000

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

static int shift(sircl_comm_t comm, int rank, int size)
{
	static int32_t out[COUNT], in[COUNT];
	int next = (rank + 1) % size, prev = (rank + size - 1) % size;

	for (int i = 0; i < COUNT; i++)
		out[i] = rank + i;
	/* in a group both run together: one after the other, all ranks might wait in their send */
	TRY(NULL, sircl_group_begin());
	TRY(comm, sircl_send(out, COUNT, SIRCL_INT32, next, comm, SIRCL_HOST));
	TRY(comm, sircl_recv(in, COUNT, SIRCL_INT32, prev, comm, SIRCL_HOST));
	TRY(NULL, sircl_group_end());
	for (int i = 0; i < COUNT; i++) {
		if (in[i] != prev + i) {
			fprintf(stderr, "rank %d: element %d is %d\n", rank, i, in[i]);
			return 1;
		}
	}
	printf("rank %d has what rank %d sent\n", rank, prev);
	return 0;
}

int main(void)
{
	/* sircl run sets them; under MPI or Slurm take theirs */
	int rank = env("SIRCL_RANK", 0), size = env("SIRCL_NRANKS", 1), status;
	sircl_comm_t comm;

	/* without an id, the ranks meet as the environment says */
	TRY(NULL, sircl_comm_create(&comm, NULL, rank, size, NULL));
	status = shift(comm, rank, size);
	if (status)
		sircl_comm_abort(comm); /* the others must not wait for this rank */
	if (sircl_comm_destroy(comm) != SIRCL_SUCCESS && !status) {
		fprintf(stderr, "sircl_comm_destroy: %s\n", sircl_last_error(NULL));
		status = 1;
	}
	return status;
}
