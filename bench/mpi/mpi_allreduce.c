/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side of bench/compare.sh: MPI_Allreduce of floats, timed as sircl-bench times: every rank the
 * mean of its runs, no barrier between them, the slowest rank counts. Prints the microseconds.
 *
 *   mpi_allreduce BYTES ITERS WARMUP
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int wrong(const float *recv, int count, int n)
{
	int bad = 0;

	for (int i = 0; i < count; i++)
		bad += recv[i] != (float)(n * (i % 50) + n * (n - 1) / 2);
	return bad;
}

int main(int argc, char *argv[])
{
	int rank, n, count, iters, warmup, bad;
	double start, mine, slowest;
	float *send, *recv;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (argc != 4) {
		if (rank == 0)
			fprintf(stderr, "usage: mpi_allreduce BYTES ITERS WARMUP\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	count = atoi(argv[1]) / (int)sizeof(float);
	iters = atoi(argv[2]);
	warmup = atoi(argv[3]);
	send = malloc((size_t)count * sizeof(float) + 1);
	recv = calloc((size_t)count + 1, sizeof(float));
	if (!send || !recv)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int i = 0; i < count; i++)
		send[i] = (float)(rank + i % 50);
	for (int i = 0; i < warmup; i++)
		MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int i = 0; i < iters; i++)
		MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	mine = (MPI_Wtime() - start) / iters * 1e6;
	MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	bad = wrong(recv, count, n);
	if (bad)
		fprintf(stderr, "mpi_allreduce: rank %d: %d wrong elements\n", rank, bad);
	if (rank == 0)
		printf("%.3f\n", slowest);
	free(send);
	free(recv);
	MPI_Finalize();
	return bad != 0;
}
