/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a functional test, on the public header only. Rank and size come from SIRCL_RANK and
 * SIRCL_NRANKS.
 *
 * ringcheck reduce BYTES ITERS [FILE]: all-reduces of BYTES (float), every element checked; with FILE at
 * least ITERS of them, until rank 0 sees that file, and rank 0 prints how many.
 *
 * ringcheck p2p A B BYTES ITERS: ITERS times A sends BYTES to B, which answers; every byte checked. The
 * others only hold the ring up.
 *
 * ringcheck stay: creates, prints the facts, destroys.
 *
 * ringcheck idle SECONDS: creates, sleeps, prints "rank R idle: X % of a core" and destroys.
 *
 * ringcheck stopped: rank 1 stops itself; rank 0 waits for a message of it into memory that it may write to,
 * and is aborted. The memory must be its own again before the call returns.
 *
 * Rank by rank it prints "rank R position P ring|line next RANK prev RANK" and "rank R lane next|prev L
 * BYTES" (payload sent per lane).
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "sircl/sircl.h"

static int rank, size;
static sircl_comm_t comm;

static void must(sircl_result_t r, const char *what)
{
	if (r == SIRCL_SUCCESS)
		return;
	fprintf(stderr, "ringcheck: rank %d: %s: %s: %s\n", rank, what, sircl_strerror(r),
		sircl_last_error(comm));
	exit(1);
}

static void wrong(const char *what, size_t at)
{
	fprintf(stderr, "ringcheck: rank %d: %s: wrong data at %zu\n", rank, what, at);
	exit(1);
}

/* Rank 0 looks, all do as it says. */
static bool is_there(const char *file)
{
	float there = rank == 0 && access(file, F_OK) == 0;

	must(sircl_broadcast(&there, &there, 1, SIRCL_FLOAT32, 0, comm, SIRCL_HOST), "broadcast");
	return there != 0;
}

static void reduce(size_t bytes, int iters, const char *until)
{
	size_t n = bytes / sizeof(float);
	float *in = malloc(bytes ? bytes : 1), *out = malloc(bytes ? bytes : 1);
	int it;

	if (!in || !out)
		exit(1);
	for (it = 0; it < iters || (until && !is_there(until)); it++) {
		for (size_t i = 0; i < n; i++)
			in[i] = (float)((i * 7 + (size_t)it) % 97 + (size_t)rank);
		must(sircl_all_reduce(in, out, n, SIRCL_FLOAT32, SIRCL_SUM, comm, SIRCL_HOST), "all_reduce");
		for (size_t i = 0; i < n; i++)
			if (out[i] != (float)(((i * 7 + (size_t)it) % 97) * (size_t)size +
					      (size_t)(size * (size - 1) / 2)))
				wrong("all_reduce", i);
	}
	if (until && rank == 0)
		printf("rank 0 all-reduces %d\n", it);
	free(in);
	free(out);
}

static void one_way(unsigned char *buf, size_t bytes, int it, int from, int to)
{
	if (rank == from) {
		for (size_t i = 0; i < bytes; i++)
			buf[i] = (unsigned char)(i * 31 + (size_t)it * 7 + (size_t)from);
		must(sircl_send(buf, bytes, SIRCL_UINT8, to, comm, SIRCL_HOST), "send");
		memset(buf, 0xee, bytes); /* it may be changed now */
	} else {
		memset(buf, 0, bytes);
		must(sircl_recv(buf, bytes, SIRCL_UINT8, from, comm, SIRCL_HOST), "recv");
		for (size_t i = 0; i < bytes; i++)
			if (buf[i] != (unsigned char)(i * 31 + (size_t)it * 7 + (size_t)from))
				wrong("recv", i);
	}
}

static void p2p(int a, int b, size_t bytes, int iters)
{
	unsigned char *buf = malloc(bytes ? bytes : 1);
	float token = 1, sum = 0;

	if (!buf)
		exit(1);
	for (int it = 0; it < iters && (rank == a || rank == b); it++) {
		one_way(buf, bytes, it, a, b);
		one_way(buf, bytes, it, b, a);
	}
	/* the others wait here, and relay meanwhile */
	must(sircl_all_reduce(&token, &sum, 1, SIRCL_FLOAT32, SIRCL_SUM, comm, SIRCL_HOST), "all_reduce");
	if (sum != (float)size)
		wrong("all_reduce", 0);
	free(buf);
}

static void *abort_soon(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		sched_yield();
	nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 * 1000 }, NULL);
	must(sircl_comm_abort(comm), "abort");
	return NULL;
}

static bool is_stopped(pid_t pid)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	if (f)
		fclose(f);
	return state == 'T';
}

/* A process that is stopped may go on at any time, with what it was allowed to do. */
static int stopped(void)
{
	sircl_info_t i = { .size = sizeof(i) };
	size_t bytes = 1 << 20;
	atomic_bool waiting = false;
	sircl_result_t r;
	pthread_t t;
	pid_t pid = getpid();
	void *p;

	if (rank == 1) {
		must(sircl_send(&pid, sizeof(pid), SIRCL_UINT8, 0, comm, SIRCL_HOST), "send");
		raise(SIGSTOP);
		return 0;
	}
	must(sircl_recv(&pid, sizeof(pid), SIRCL_UINT8, 1, comm, SIRCL_HOST), "recv");
	must(sircl_mem_alloc(comm, bytes, &p), "mem_alloc");
	while (!is_stopped(pid))
		nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
	if (pthread_create(&t, NULL, abort_soon, &waiting) != 0)
		exit(1);
	atomic_store(&waiting, true);
	r = sircl_recv(p, bytes, SIRCL_UINT8, 1, comm, SIRCL_HOST);
	must(sircl_comm_query(comm, &i), "query");
	printf("stopped: %s, %d lanes up\n", sircl_strerror(r), i.next_lanes + i.prev_lanes);
	fflush(stdout); /* whoever runs us ends us when rank 1 is gone */
	pthread_join(t, NULL);
	kill(pid, SIGKILL);
	sircl_comm_destroy(comm);
	return 0;
}

static double cpu_seconds(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
		exit(1);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What a communicator costs that nobody uses: heartbeats, and all threads of this process. */
static void idle(int seconds)
{
	double t;

	must(sircl_barrier(comm, SIRCL_HOST), "barrier"); /* the start of the others is over */
	nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 * 1000 }, NULL);
	t = cpu_seconds();
	nanosleep(&(struct timespec){ .tv_sec = seconds }, NULL);
	printf("rank %d idle: %.2f %% of a core\n", rank, (cpu_seconds() - t) * 100 / seconds);
	must(sircl_barrier(comm, SIRCL_HOST), "barrier");
}

static void report(void)
{
	sircl_info_t i = { .size = sizeof(i) };

	must(sircl_comm_query(comm, &i), "query");
	printf("rank %d position %d %s next %d prev %d transport %s replayed %llu\n", rank, i.position,
	       i.ring ? "ring" : "line", i.next_rank, i.prev_rank, i.transport,
	       (unsigned long long)i.frames_replayed);
	for (int l = 0; l < i.next_lanes; l++)
		printf("rank %d lane next %d %llu\n", rank, l, (unsigned long long)i.lane_bytes_sent[0][l]);
	for (int l = 0; l < i.prev_lanes; l++)
		printf("rank %d lane prev %d %llu\n", rank, l, (unsigned long long)i.lane_bytes_sent[1][l]);
	fflush(stdout);
}

static int env(const char *name)
{
	const char *s = getenv(name);

	if (!s || !*s) {
		fprintf(stderr, "ringcheck: %s is not set: start it with sircl run\n", name);
		exit(2);
	}
	return atoi(s);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	sircl_config_t cfg = SIRCL_CONFIG_INIT;

	rank = env("SIRCL_RANK");
	size = env("SIRCL_NRANKS");
	if (!strcmp(mode, "stopped"))
		cfg.op_timeout_ms = 1000; /* longer than until the abort, shorter than until the fence */
	must(sircl_comm_create(&comm, &cfg, rank, size, NULL), "create");
	if (!strcmp(mode, "stopped") && size == 2)
		return stopped();
	if (!strcmp(mode, "reduce") && (argc == 4 || argc == 5))
		reduce((size_t)atoll(argv[2]), atoi(argv[3]), argv[4]);
	else if (!strcmp(mode, "p2p") && argc == 6)
		p2p(atoi(argv[2]), atoi(argv[3]), (size_t)atoll(argv[4]), atoi(argv[5]));
	else if (!strcmp(mode, "idle") && argc == 3 && atoi(argv[2]) > 0)
		idle(atoi(argv[2]));
	else if (strcmp(mode, "stay")) {
		fprintf(stderr, "usage: ringcheck reduce BYTES ITERS [FILE] | p2p A B BYTES ITERS | "
				"idle SECONDS | stay | stopped\n");
		return 2;
	}
	report();
	must(sircl_comm_destroy(comm), "destroy");
	return 0;
}
