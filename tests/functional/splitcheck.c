/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a split test, on the public header only: even and odd ranks get a communicator each, whose
 * members may be no neighbours, and use it while the other one is in use. Rank and size come from SIRCL_RANK
 * and SIRCL_NRANKS. splitcheck COUNT ITERS: numbers per call, rounds. Every element is checked.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "sircl/sircl.h"

static int rank, size;
static sircl_comm_t comm, child;

static void must(sircl_result_t r, const char *what, sircl_comm_t of)
{
	if (r == SIRCL_SUCCESS)
		return;
	fprintf(stderr, "splitcheck: rank %d: %s: %s: %s\n", rank, what, sircl_strerror(r),
		sircl_last_error(of));
	exit(1);
}

static void expect(int64_t got, int64_t want, const char *what, size_t at)
{
	if (got == want)
		return;
	fprintf(stderr, "splitcheck: rank %d: %s: %lld instead of %lld at %zu\n", rank, what, (long long)got,
		(long long)want, at);
	exit(1);
}

static int64_t value(int r, int it, size_t i)
{
	return (int64_t)i * 7 + r * 1000003 + it;
}

static void round_of(int it, size_t n, int64_t *in, int64_t *out)
{
	int members = (size + 1 - rank % 2) / 2, me = rank / 2, next = (me + 1) % members;

	for (size_t i = 0; i < n; i++)
		in[i] = value(rank, it, i);
	must(sircl_all_reduce(in, out, n, SIRCL_INT64, SIRCL_SUM, child, SIRCL_HOST), "all_reduce", child);
	for (size_t i = 0; i < n; i++) {
		int64_t want = 0;

		for (int m = 0; m < members; m++)
			want += value(2 * m + rank % 2, it, i);
		expect(out[i], want, "all_reduce", i);
	}
	must(sircl_broadcast(in, out, n, SIRCL_INT64, it % members, child, SIRCL_HOST), "broadcast", child);
	for (size_t i = 0; i < n; i++)
		expect(out[i], value(2 * (it % members) + rank % 2, it, i), "broadcast", i);
	must(sircl_group_begin(), "group_begin", child);
	must(sircl_send(in, n, SIRCL_INT64, next, child, SIRCL_HOST), "send", child);
	must(sircl_recv(out, n, SIRCL_INT64, (me + members - 1) % members, child, SIRCL_HOST), "recv", child);
	must(sircl_group_end(), "group_end", child);
	for (size_t i = 0; i < n; i++)
		expect(out[i], value(2 * ((me + members - 1) % members) + rank % 2, it, i), "send and recv",
		       i);
}

int main(int argc, char **argv)
{
	const char *r = getenv("SIRCL_RANK"), *s = getenv("SIRCL_NRANKS");
	size_t n = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
	int iters = argc == 3 ? atoi(argv[2]) : 0;
	int64_t *in = malloc(n * 8 + 8), *out = malloc(n * 8 + 8);

	if (argc != 3 || !r || !s || !in || !out) {
		fprintf(stderr, "splitcheck COUNT ITERS, with SIRCL_RANK and SIRCL_NRANKS\n");
		return 2;
	}
	rank = atoi(r);
	size = atoi(s);
	must(sircl_comm_create(&comm, NULL, rank, size, NULL), "create", NULL);
	must(sircl_comm_split(comm, rank % 2, rank, NULL, &child), "split", comm);
	for (int it = 0; it < iters; it++)
		round_of(it, n, in, out);
	in[0] = rank; /* and the parent is as it was */
	must(sircl_all_reduce(in, out, 1, SIRCL_INT64, SIRCL_SUM, comm, SIRCL_HOST), "all_reduce", comm);
	expect(out[0], (int64_t)size * (size - 1) / 2, "all_reduce of all", 0);
	must(sircl_comm_destroy(child), "destroy", NULL);
	must(sircl_comm_destroy(comm), "destroy", NULL);
	free(in);
	free(out);
	printf("rank %d: split checked\n", rank);
	return 0;
}
