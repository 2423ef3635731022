/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and groups with ranks as threads: started operations, any order of sends and receives in a group,
 * all pairs, mixed with collectives, over two communicators, to oneself, and a fork. `api_group [N]`.
 */
#include <stdint.h>
#include <sys/wait.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include "ranks.h"

#define MANY 400 /* more than a channel's queue */
#define BIG 300000

static void end(struct rank_ctx *r)
{
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

static void fill(char *p, size_t n, int from, int to)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 3 + (size_t)from * 31 + (size_t)to * 7);
}

static bool is(const char *p, size_t n, int from, int to)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (char)(i * 3 + (size_t)from * 31 + (size_t)to * 7))
			return false;
	return true;
}

static void started(struct rank_ctx *r)
{
	static const size_t n = 50001;
	int32_t *x[4], sum = 0;
	sircl_request_t q[4];
	int done = 0, left = 4;

	for (int k = 0; k < 4; k++) {
		x[k] = malloc(n * sizeof(int32_t));
		for (size_t i = 0; i < n; i++)
			x[k][i] = (int32_t)i + k + r->rank;
		EXPECT(r, sircl_all_reduce_start(x[k], x[k], n, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST,
						 &q[k]) == SIRCL_SUCCESS);
	}
	EXPECT(r,
	       sircl_comm_destroy(r->comm) == SIRCL_INVALID_USAGE); /* unfinished requests; nothing freed */
	EXPECT(r, sircl_comm_finalize(r->comm) == SIRCL_INVALID_USAGE);
	EXPECT(r, sircl_wait(&q[2]) == SIRCL_SUCCESS); /* not the first */
	for (int k = 0; left > 1; k = (k + 1) % 4) {
		if (!q[k])
			continue;
		EXPECT(r, sircl_test(&q[k], &done) == SIRCL_SUCCESS && done == !q[k]);
		left -= done;
	}
	for (int k = 0; k < 4; k++) {
		int32_t base = r->n * (r->n - 1) / 2;

		for (size_t i = 0; i < n; i++)
			sum += x[k][i] != ((int32_t)i + k) * r->n + base;
		free(x[k]);
	}
	EXPECT(r, sum == 0);
	end(r);
}

/* Many messages to one peer at once, and a blocking collective beside them. */
static void many(struct rank_ctx *r)
{
	sircl_request_t s[MANY], d[MANY];
	int32_t in[MANY], out[MANY], one = 1, all = 0;
	int next = (r->rank + 1) % r->n, prev = (r->rank + r->n - 1) % r->n, bad = 0;

	for (int i = 0; i < MANY; i++) {
		out[i] = r->rank * 1000 + i;
		bad += sircl_send_start(&out[i], 1, SIRCL_INT32, next, r->comm, SIRCL_HOST, &s[i]) !=
		       SIRCL_SUCCESS;
		bad += sircl_recv_start(&in[i], 1, SIRCL_INT32, prev, r->comm, SIRCL_HOST, &d[i]) !=
		       SIRCL_SUCCESS;
	}
	EXPECT(r, sircl_all_reduce(&one, &all, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST) ==
				  SIRCL_SUCCESS &&
			  all == r->n);
	for (int i = MANY - 1; i >= 0; i--)
		bad += sircl_wait(&d[i]) != SIRCL_SUCCESS || sircl_wait(&s[i]) != SIRCL_SUCCESS;
	for (int i = 0; i < MANY; i++)
		bad += in[i] != prev * 1000 + i;
	EXPECT(r, bad == 0);
	end(r);
}

/* A ring of sends and receives in whatever order, and all pairs at once with sums between. */
static void groups(struct rank_ctx *r)
{
	int next = (r->rank + 1) % r->n, prev = (r->rank + r->n - 1) % r->n;
	char *out = malloc((size_t)BIG * (size_t)r->n), *in = malloc((size_t)BIG * (size_t)r->n);
	int64_t sum[2] = { r->rank, 1 };

	for (int way = 0; way < 3; way++) {
		bool first = way == 0 || (way == 2 && r->rank % 2);

		fill(out, BIG, r->rank, next);
		memset(in, 0, BIG);
		EXPECT(r, sircl_group_begin() == SIRCL_SUCCESS);
		if (first)
			EXPECT(r,
			       sircl_send(out, BIG, SIRCL_INT8, next, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
		EXPECT(r, sircl_group_begin() == SIRCL_SUCCESS);
		EXPECT(r, sircl_recv(in, BIG, SIRCL_INT8, prev, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
		EXPECT(r, sircl_group_end() == SIRCL_SUCCESS); /* an inner end waits for nothing */
		if (!first)
			EXPECT(r,
			       sircl_send(out, BIG, SIRCL_INT8, next, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
		EXPECT(r, sircl_group_end() == SIRCL_SUCCESS);
		EXPECT(r, is(in, BIG, prev, r->rank));
	}
	EXPECT(r, sircl_group_begin() == SIRCL_SUCCESS);
	for (int k = 0; k < r->n; k++) {
		fill(out + (size_t)k * BIG, BIG, r->rank, k);
		sircl_send(out + (size_t)k * BIG, BIG, SIRCL_INT8, k, r->comm, SIRCL_HOST);
	}
	sircl_all_reduce(&sum[0], &sum[0], 1, SIRCL_INT64, SIRCL_SUM, r->comm, SIRCL_HOST);
	for (int k = r->n - 1; k >= 0; k--)
		sircl_recv(in + (size_t)k * BIG, BIG, SIRCL_INT8, k, r->comm, SIRCL_HOST);
	sircl_all_reduce(&sum[1], &sum[1], 1, SIRCL_INT64, SIRCL_SUM, r->comm, SIRCL_HOST);
	EXPECT(r, sircl_comm_finalize(r->comm) == SIRCL_INVALID_USAGE); /* not inside a group */
	EXPECT(r, sircl_group_end() == SIRCL_SUCCESS);
	for (int k = 0; k < r->n; k++)
		EXPECT(r, is(in + (size_t)k * BIG, BIG, k, r->rank));
	EXPECT(r, sum[0] == r->n * (r->n - 1) / 2 && sum[1] == r->n);
	free(out);
	free(in);
	end(r);
}

/* Rank 0 waits in one communicator while rank 1 wants from it, in another, more than a channel's queue holds.
 */
static void elsewhere(struct rank_ctx *r)
{
	static int32_t x[RANKS_MAX][1000];
	sircl_request_t q[1000] = { NULL };
	sircl_comm_t other;
	int bad = 0;

	EXPECT(r, sircl_comm_split(r->comm, 0, 0, NULL, &other) == SIRCL_SUCCESS);
	for (int i = 0; i < 1000; i++) {
		x[r->rank][i] = r->rank ? -1 : i;
		if (r->rank == 0)
			bad += sircl_send_start(&x[0][i], 1, SIRCL_INT32, 1, r->comm, SIRCL_HOST, &q[i]) != 0;
		if (r->rank == 1)
			bad += sircl_recv_start(&x[1][i], 1, SIRCL_INT32, 0, r->comm, SIRCL_HOST, &q[i]) != 0;
	}
	if (r->rank == 0)
		EXPECT(r, sircl_barrier(other, SIRCL_HOST) == SIRCL_SUCCESS);
	for (int i = 0; i < 1000; i++)
		bad += sircl_wait(&q[i]) != SIRCL_SUCCESS || (r->rank == 1 && x[1][i] != i);
	if (r->rank != 0)
		EXPECT(r, sircl_barrier(other, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, bad == 0);
	EXPECT(r, sircl_comm_destroy(other) == SIRCL_SUCCESS);
	end(r);
}

/* A call that fails its checks: the group starts nothing, and requests are taken back. */
static void refused(struct rank_ctx *r)
{
	int x = 1, y = 0;
	sircl_request_t q = NULL;

	sircl_group_begin();
	EXPECT(r, sircl_all_reduce_start(&x, &y, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST, &q) ==
				  SIRCL_SUCCESS &&
			  q);
	EXPECT(r, sircl_send(NULL, 1, SIRCL_INT32, 0, r->comm, SIRCL_HOST) == SIRCL_INVALID_ARGUMENT);
	EXPECT(r, sircl_group_end() == SIRCL_INVALID_ARGUMENT && !q);
	EXPECT(r, strstr(sircl_last_error(r->comm), "buf is NULL") != NULL);
	sircl_group_begin();
	sircl_all_reduce_start(&x, &y, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST, &q);
	EXPECT(r, sircl_group_end() == SIRCL_SUCCESS && q); /* only the start */
	EXPECT(r, sircl_wait(&q) == SIRCL_SUCCESS && y == r->n);
	end(r);
}

static void oneself(struct rank_ctx *r)
{
	char out[100], in[100] = { 0 }, in2[100] = { 0 };
	sircl_request_t q, w;
	int done = 1;

	fill(out, 100, r->rank, 1);
	sircl_group_begin();
	sircl_recv(in, 100, SIRCL_INT8, r->rank, r->comm, SIRCL_HOST);
	sircl_send(out, 100, SIRCL_INT8, r->rank, r->comm, SIRCL_HOST);
	EXPECT(r, sircl_group_end() == SIRCL_SUCCESS && is(in, 100, r->rank, 1));
	sircl_group_begin();
	sircl_send(out, 100, SIRCL_INT8, r->rank, r->comm, SIRCL_HOST);
	EXPECT(r, sircl_group_end() == SIRCL_INVALID_USAGE); /* nobody receives */
	EXPECT(r, sircl_send_start(out, 50, SIRCL_INT8, r->rank, r->comm, SIRCL_HOST, &q) == SIRCL_SUCCESS);
	EXPECT(r, sircl_test(&q, &done) == SIRCL_SUCCESS && !done && q);
	EXPECT(r, sircl_wait(&q) == SIRCL_INVALID_USAGE && q);
	EXPECT(r, sircl_recv_start(in2, 50, SIRCL_INT8, r->rank, r->comm, SIRCL_HOST, &w) == SIRCL_SUCCESS);
	EXPECT(r, sircl_wait(&q) == SIRCL_SUCCESS && sircl_wait(&w) == SIRCL_SUCCESS);
	EXPECT(r, is(in2, 50, r->rank, 1));
	end(r);
}

/* Two communicators with a context each; ranks use them in opposite orders. */
static sircl_unique_id_t second;

static void two(struct rank_ctx *r)
{
	sircl_comm_t c[2] = { r->comm, NULL };
	int64_t x[2] = { 1, 2 };
	char *buf[2][2];
	sircl_request_t q[2];
	int next = (r->rank + 1) % r->n, prev = (r->rank + r->n - 1) % r->n;

	EXPECT(r, sircl_comm_create(&c[1], NULL, r->rank, r->n, &second) == SIRCL_SUCCESS);
	for (int k = 0; k < 2; k++) {
		buf[k][0] = malloc(BIG);
		buf[k][1] = calloc(1, BIG);
		fill(buf[k][0], BIG, r->rank, k);
	}
	sircl_group_begin();
	for (int i = 0; i < 2; i++) {
		int k = (i + r->rank) % 2;

		sircl_recv(buf[k][1], BIG, SIRCL_INT8, prev, c[k], SIRCL_HOST);
		sircl_all_reduce(&x[k], &x[k], 1, SIRCL_INT64, SIRCL_SUM, c[k], SIRCL_HOST);
		sircl_send(buf[k][0], BIG, SIRCL_INT8, next, c[k], SIRCL_HOST);
	}
	EXPECT(r, sircl_group_end() == SIRCL_SUCCESS);
	EXPECT(r, x[0] == r->n && x[1] == 2 * r->n);
	for (int k = 0; k < 2; k++)
		EXPECT(r, is(buf[k][1], BIG, prev, k));
	sircl_group_begin();
	sircl_barrier_start(c[r->rank % 2], SIRCL_HOST, &q[0]);
	sircl_barrier_start(c[1 - r->rank % 2], SIRCL_HOST, &q[1]);
	EXPECT(r, sircl_group_end() == SIRCL_SUCCESS);
	EXPECT(r, sircl_wait(&q[1]) == SIRCL_SUCCESS && sircl_wait(&q[0]) == SIRCL_SUCCESS);
	for (int k = 0; k < 2; k++) {
		free(buf[k][0]);
		free(buf[k][1]);
	}
	EXPECT(r, sircl_comm_destroy(c[1]) == SIRCL_SUCCESS);
	end(r);
}

static atomic_int begun;

/* Requests end with the error of their communicator, and only then it may be destroyed. */
static void aborted(struct rank_ctx *r)
{
	static char buf[RANKS_MAX][2][BIG];
	sircl_request_t q[3];
	struct timespec pause = { .tv_nsec = 300 * 1000 * 1000 };

	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, sircl_recv_start(buf[r->rank][0], BIG, SIRCL_INT8, (r->rank + 1) % r->n, r->comm,
				   SIRCL_HOST, &q[0]) == SIRCL_SUCCESS);
	EXPECT(r, sircl_recv_start(buf[r->rank][1], BIG, SIRCL_INT8, r->rank, r->comm, SIRCL_HOST, &q[1]) ==
			  SIRCL_SUCCESS);
	atomic_fetch_add(&begun, 1);
	if (r->rank == 0) {
		while (atomic_load(&begun) < r->n)
			nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
		nanosleep(&pause, NULL); /* all others wait */
		EXPECT(r, sircl_comm_abort(r->comm) == SIRCL_SUCCESS);
	}
	EXPECT(r, sircl_wait(&q[0]) == SIRCL_ABORTED && !q[0]);
	EXPECT(r, sircl_barrier_start(r->comm, SIRCL_HOST, &q[2]) == SIRCL_ABORTED && !q[2]);
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_INVALID_USAGE);
	EXPECT(r, sircl_wait(&q[1]) == SIRCL_ABORTED && !q[1]);
	sircl_comm_destroy(r->comm);
	r->comm = NULL;
}

/* In the child of a fork every call is refused in one sentence, destroy frees, and the parents go on. */
static void forked(struct rank_ctx *r)
{
	int x = 1, y = 0, status = -1;
	sircl_info_t info = { .size = sizeof(info) };
	sircl_result_t e;
	pid_t pid;

	EXPECT(r, sircl_barrier(r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	if (r->rank == 0) {
		pid = fork();
		if (pid == 0) {
			bool ok = sircl_all_reduce(&x, &y, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST) ==
					  SIRCL_INVALID_USAGE &&
				  strstr(sircl_last_error(NULL), "forked") &&
				  sircl_comm_query(r->comm, &info) == SIRCL_INVALID_USAGE &&
				  sircl_comm_abort(r->comm) == SIRCL_INVALID_USAGE &&
				  sircl_comm_async_error(r->comm, &e) == SIRCL_INVALID_USAGE &&
				  sircl_comm_finalize(r->comm) == SIRCL_INVALID_USAGE &&
				  sircl_comm_destroy(r->comm) == SIRCL_SUCCESS;

			_exit(ok ? 0 : 1);
		}
		EXPECT(r, pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
				  WEXITSTATUS(status) == 0);
	}
	EXPECT(r, sircl_all_reduce(&x, &y, 1, SIRCL_INT32, SIRCL_SUM, r->comm, SIRCL_HOST) == SIRCL_SUCCESS &&
			  y == r->n);
	end(r);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*body)(struct rank_ctx *);
	} test[] = {
		{ "started operations, tested and waited for in any order", started },
		{ "more messages at once than a channel's queue holds", many },
		{ "groups: rings in any order, all pairs, with sums between", groups },
		{ "messages go on while their thread waits elsewhere", elsewhere },
		{ "a group with a wrong call starts nothing", refused },
		{ "messages to oneself", oneself },
		{ "groups over two communicators", two },
		{ "requests end with the error of their communicator", aborted },
		{ "a fork's child has dead communicators", forked },
	};
	int n = argc > 1 ? atoi(argv[1]) : 4, failed = 0, passed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (n < 2 || n > RANKS_MAX) {
		fprintf(stderr, "usage: api_group [N], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	if (sircl_get_unique_id(&second) != SIRCL_SUCCESS)
		return 1;
	for (size_t i = 0; i < sizeof(test) / sizeof(*test); i++)
		run_ranks(test[i].name, n, test[i].body) ? failed++ : passed++;
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
