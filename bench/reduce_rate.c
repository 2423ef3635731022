/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate of the arithmetic alone: dst = src0 op src1 for each type and operation on each instruction set of
 * this machine, in GB of dst per second, the best of several batches. The buffers stay in the second-level
 * cache, as the pieces of a collective do.
 *
 *   reduce_rate [KIBIBYTES]      size of each buffer; default 64
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "reduce/internal.h"

#define BATCHES 15
#define BATCH_SECONDS 0.002

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct buffers {
	void *dst, *src[2];
	size_t bytes;
};

static double rate(const struct buffers *b, enum reduce_set set, sircl_type_t type, sircl_op_t op)
{
	const struct reduce_arg arg = { .ranks = 2 };
	const void *const src[2] = { b->src[0], b->src[1] };
	const size_t n = b->bytes / type_size(type);
	double best = 0;

	for (int k = 0; k < BATCHES; k++) {
		const double begin = seconds();
		double end;
		size_t calls = 0;

		do {
			reduce_run_on(set, type, op, REDUCE_FINISH, &arg, b->dst, src, 2, n);
			calls++;
			end = seconds();
		} while (end - begin < BATCH_SECONDS);
		if ((double)(calls * b->bytes) / (end - begin) > best)
			best = (double)(calls * b->bytes) / (end - begin);
	}
	return best * 1e-9;
}

static void table(const struct buffers *b, enum reduce_set set)
{
	printf("%s, 2 sources, GB/s of result\n%-10s", reduce_set_name(set), "");
	for (int op = 0; op < SIRCL_OP_COUNT; op++)
		printf("%10s", op_name((sircl_op_t)op));
	for (int t = 0; t < SIRCL_TYPE_COUNT; t++) {
		printf("\n%-10s", type_name((sircl_type_t)t));
		for (int op = 0; op < SIRCL_OP_COUNT; op++)
			printf("%10.2f", rate(b, set, (sircl_type_t)t, (sircl_op_t)op));
		fflush(stdout);
	}
	printf("\n\n");
}

int main(int argc, char **argv)
{
	struct buffers b = { .bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 10 };

	if (argc > 2 || b.bytes == 0) {
		fprintf(stderr, "usage: reduce_rate [KIBIBYTES]\n");
		return 2;
	}
	b.dst = aligned_alloc(64, b.bytes);
	b.src[0] = aligned_alloc(64, b.bytes);
	b.src[1] = aligned_alloc(64, b.bytes);
	if (!b.dst || !b.src[0] || !b.src[1]) {
		fprintf(stderr, "reduce_rate: no memory for three buffers of %zu bytes\n", b.bytes);
		return 1;
	}
	/* ordinary numbers in every type: no overflow, no subnormal */
	for (int s = 0; s < 2; s++)
		memset(b.src[s], 0x3b + s, b.bytes);
	for (int set = REDUCE_GENERIC; set < REDUCE_SETS; set++)
		if (reduce_set_usable((enum reduce_set)set))
			table(&b, (enum reduce_set)set);
	free(b.dst);
	free(b.src[0]);
	free(b.src[1]);
	return 0;
}
