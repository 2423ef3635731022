/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side of bench/compare.sh: one of MPI's collectives on floats, timed as sircl-bench times: every
 * rank the mean of its runs, no barrier between them, the slowest rank counts. Prints the microseconds. The
 * root is rank 0.
 *
 *   mpi_collective KIND BYTES ITERS WARMUP
 *
 * KIND as sircl-bench names it; BYTES: of the larger buffer.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call {
	float *send, *recv;
	int count, rank, n; /* count: of the call */
};

static void all_reduce(const struct call *c)
{
	MPI_Allreduce(c->send, c->recv, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(const struct call *c)
{
	MPI_Allgather(c->send, c->count, MPI_FLOAT, c->recv, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(const struct call *c)
{
	MPI_Reduce_scatter_block(c->send, c->recv, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* MPI has one buffer: the root's is what it sends. */
static void broadcast(const struct call *c)
{
	MPI_Bcast(c->rank == 0 ? c->send : c->recv, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void reduce(const struct call *c)
{
	MPI_Reduce(c->send, c->recv, c->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void all_to_all(const struct call *c)
{
	MPI_Alltoall(c->send, c->count, MPI_FLOAT, c->recv, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void gather(const struct call *c)
{
	MPI_Gather(c->send, c->count, MPI_FLOAT, c->recv, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void scatter(const struct call *c)
{
	MPI_Scatter(c->send, c->count, MPI_FLOAT, c->recv, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void sendrecv(const struct call *c)
{
	MPI_Sendrecv(c->send, c->count, MPI_FLOAT, (c->rank + 1) % c->n, 0, c->recv, c->count, MPI_FLOAT,
		     (c->rank + c->n - 1) % c->n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(const struct call *c)
{
	(void)c;
	MPI_Barrier(MPI_COMM_WORLD);
}

static const struct kind {
	const char *name;
	void (*run)(const struct call *);
	int whole; /* the larger buffer has n times count elements */
} kinds[] = {
	{ "all_reduce", all_reduce, 0 },
	{ "all_gather", all_gather, 1 },
	{ "reduce_scatter", reduce_scatter, 1 },
	{ "broadcast", broadcast, 0 },
	{ "reduce", reduce, 0 },
	{ "all_to_all", all_to_all, 1 },
	{ "gather", gather, 1 },
	{ "scatter", scatter, 1 },
	{ "sendrecv", sendrecv, 0 },
	{ "barrier", barrier, 0 },
};

static const struct kind *find(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

/* Only the all-reduce's is checked: that what is timed does what it says. */
static int wrong(const struct kind *k, const struct call *c)
{
	int bad = 0;

	for (int i = 0; k->run == all_reduce && i < c->count; i++)
		bad += c->recv[i] != (float)(c->n * (i % 50) + c->n * (c->n - 1) / 2);
	return bad;
}

static double timed(const struct kind *k, const struct call *c, int iters, int warmup)
{
	double start, mine, slowest = 0;

	for (int i = 0; i < warmup; i++)
		k->run(c);
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int i = 0; i < iters; i++)
		k->run(c);
	mine = (MPI_Wtime() - start) / iters * 1e6;
	MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	return slowest;
}

int main(int argc, char *argv[])
{
	struct call c;
	const struct kind *k;
	int elements, bad;
	double us;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &c.n);
	if (argc != 5 || !(k = find(argv[1]))) {
		if (c.rank == 0)
			fprintf(stderr, "usage: mpi_collective KIND BYTES ITERS WARMUP\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
		return 2;
	}
	elements = atoi(argv[2]) / (int)sizeof(float);
	c.count = k->whole ? elements / c.n : elements;
	c.send = malloc((size_t)elements * sizeof(float) + 1);
	c.recv = calloc((size_t)elements + 1, sizeof(float));
	if (!c.send || !c.recv) {
		MPI_Abort(MPI_COMM_WORLD, 2);
		return 2;
	}
	for (int i = 0; i < elements; i++)
		c.send[i] = (float)(c.rank + i % 50);
	us = timed(k, &c, atoi(argv[3]), atoi(argv[4]));
	bad = wrong(k, &c);
	if (bad)
		fprintf(stderr, "mpi_collective: rank %d: %d wrong elements\n", c.rank, bad);
	if (c.rank == 0)
		printf("%.3f\n", us);
	free(c.send);
	free(c.recv);
	MPI_Finalize();
	return bad != 0;
}
