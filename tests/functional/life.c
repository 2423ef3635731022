/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of communicators as the process around them sees it, on the public header only.
 *
 * life rounds N ROUNDS: N ranks as threads create, all-reduce and destroy, ROUNDS times. What the process
 * holds (descriptors, threads, shared mappings, memory) after a tenth of the rounds and after all of them
 * must be the same.
 *
 * life rank ROUNDS: the same for one rank per process (SIRCL_RANK, SIRCL_NRANKS).
 *
 * life many N: N ranks as threads at once; prints what one of them costs.
 *
 * life leave [return]: the last rank exits (from another function than main, or by returning) with its
 * communicator alive and a message of a neighbour's not received; the others go on until they get an error.
 *
 * life share: two threads call the same communicator at once.
 */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sircl/sircl.h"

enum { COUNT = 5000, RANKS_MAX = 64 };

struct held {
	long fds, threads, shared, rss_kb, heap_kb;
};

static long entries(const char *path)
{
	DIR *d = opendir(path);
	long n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void look(struct held *h, bool alone)
{
	struct mallinfo2 m = mallinfo2();
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	/* a thread that has been joined may be seen a moment longer; none but this one is to be left, except
	 * where ranks live */
	for (int i = 0; i < 200 && alone && entries("/proc/self/task") > 3; i++) /* itself, ".", ".." */
		usleep(10000);
	*h = (struct held){ .fds = entries("/proc/self/fd"), .threads = entries("/proc/self/task") };
	while (f && fgets(line, sizeof(line), f))
		h->shared += strstr(line, "memfd:") != NULL;
	if (f)
		fclose(f);
	f = fopen("/proc/self/statm", "re");
	if (!f || fscanf(f, "%*d %ld", &h->rss_kb) != 1)
		exit(2);
	fclose(f);
	h->rss_kb *= sysconf(_SC_PAGESIZE) / 1024;
	h->heap_kb = (long)((m.uordblks + m.hblkhd) / 1024);
}

/* Heaps of threads that have gone and free lists make memory wander a little; a leak of a page per round and
 * rank would not fit in. */
static int compare(const char *what, const struct held *a, const struct held *b, int rounds, bool say)
{
	bool same = a->fds == b->fds && a->threads == b->threads && a->shared == b->shared &&
		    b->rss_kb - a->rss_kb < 2048 && b->heap_kb - a->heap_kb < 64;

	if (!same || say)
		printf("%s: %s after %d rounds: descriptors %ld %ld, threads %ld %ld, shared mappings %ld "
		       "%ld, "
		       "resident "
		       "%ld %ld KiB, heap %ld %ld KiB\n",
		       what, same ? "the same" : "NOT the same", rounds, a->fds, b->fds, a->threads,
		       b->threads, a->shared, b->shared, a->rss_kb, b->rss_kb, a->heap_kb, b->heap_kb);
	return same ? 0 : 1;
}

struct rank {
	pthread_t thread;
	int rank, n;
	const sircl_unique_id_t *id;
	pthread_barrier_t *meet; /* NULL: nobody waits for anybody */
	uint64_t bytes;
	bool bad;
};

static bool good(const struct rank *r, sircl_comm_t comm, sircl_result_t e, const char *what)
{
	if (e == SIRCL_SUCCESS)
		return true;
	fprintf(stderr, "life: rank %d: %s: %s\n", r->rank, what, sircl_last_error(comm));
	return false;
}

static bool sum_is_right(const struct rank *r, sircl_comm_t comm)
{
	float in[COUNT], out[COUNT];

	for (int i = 0; i < COUNT; i++)
		in[i] = (float)(i % 13 + r->rank);
	if (!good(r, comm, sircl_all_reduce(in, out, COUNT, SIRCL_FLOAT32, SIRCL_SUM, comm, SIRCL_HOST),
		  "all_reduce"))
		return false;
	for (int i = 0; i < COUNT; i++)
		if (out[i] != (float)(i % 13 * r->n + r->n * (r->n - 1) / 2)) {
			fprintf(stderr, "life: rank %d: wrong sum at %d\n", r->rank, i);
			return false;
		}
	return true;
}

static void *one_life(void *arg)
{
	struct rank *r = arg;
	sircl_comm_t comm = NULL;
	sircl_info_t info = { .size = sizeof(info) };

	r->bad = !good(r, NULL, sircl_comm_create(&comm, NULL, r->rank, r->n, r->id), "create") ||
		 !sum_is_right(r, comm) || !good(r, comm, sircl_comm_query(comm, &info), "query");
	r->bytes = info.memory_bytes;
	if (r->meet) {
		pthread_barrier_wait(r->meet);
		pthread_barrier_wait(r->meet);
	}
	r->bad = !good(r, comm, sircl_comm_destroy(comm), "destroy") || r->bad;
	return NULL;
}

static bool start(struct rank *r, int n, const sircl_unique_id_t *id, pthread_barrier_t *meet)
{
	for (int i = 0; i < n; i++) {
		r[i] = (struct rank){ .rank = i, .n = n, .id = id, .meet = meet };
		if (pthread_create(&r[i].thread, NULL, one_life, &r[i]) != 0)
			return false;
	}
	return true;
}

static bool end(struct rank *r, int n)
{
	bool bad = false;

	for (int i = 0; i < n; i++) {
		pthread_join(r[i].thread, NULL);
		bad = bad || r[i].bad;
	}
	return !bad;
}

static int rounds_of_threads(int n, int rounds)
{
	struct held before = { 0 }, after;
	struct rank r[RANKS_MAX];
	sircl_unique_id_t id;

	for (int i = 1; i <= rounds; i++) {
		if (sircl_get_unique_id(&id) != SIRCL_SUCCESS || !start(r, n, &id, NULL) || !end(r, n)) {
			fprintf(stderr, "life: round %d failed: %s\n", i, sircl_last_error(NULL));
			return 1;
		}
		if (i == rounds / 10)
			look(&before, true);
	}
	look(&after, true);
	return compare("ranks as threads", &before, &after, rounds, true);
}

static int rounds_of_processes(int rank, int n, int rounds)
{
	struct rank r = { .rank = rank, .n = n };
	struct held before = { 0 }, after;
	char what[32];

	for (int i = 1; i <= rounds; i++) {
		one_life(&r);
		if (r.bad)
			return 1;
		if (i == rounds / 10)
			look(&before, true);
	}
	look(&after, true);
	snprintf(what, sizeof(what), "rank %d", rank);
	return compare(what, &before, &after, rounds, rank == 0);
}

static int many(int n)
{
	struct held before, with;
	struct rank r[RANKS_MAX];
	sircl_unique_id_t id;
	pthread_barrier_t meet;
	bool well;

	pthread_barrier_init(&meet, NULL, (unsigned)n + 1);
	look(&before, true);
	if (sircl_get_unique_id(&id) != SIRCL_SUCCESS || !start(r, n, &id, &meet))
		return 1;
	pthread_barrier_wait(&meet);
	look(&with, false);
	pthread_barrier_wait(&meet);
	well = end(r, n);
	printf("%d ranks: %s; of each: %ld descriptors, %ld KiB resident, %llu KiB by sircl_comm_query\n", n,
	       well ? "right" : "FAILED", (with.fds - before.fds) / n, (with.rss_kb - before.rss_kb) / n,
	       (unsigned long long)r[0].bytes / 1024);
	return well ? 0 : 1;
}

static int leave(int rank, int n, bool by_return)
{
	static char buf[100000];
	struct rank r = { .rank = rank, .n = n };
	sircl_comm_t comm;
	sircl_result_t e = SIRCL_SUCCESS;

	if (!good(&r, NULL, sircl_comm_create(&comm, NULL, rank, n, NULL), "create") ||
	    !sum_is_right(&r, comm))
		return 1;
	e = sircl_barrier(comm, SIRCL_HOST); /* whoever is in it has its sum */
	if (rank == n - 1) {
		usleep(200 *
		       1000); /* the others may still be in it; where they hear of the end is all the same */
		if (by_return)
			return 0;
		exit(0);
	}
	if (rank == 0 && e == SIRCL_SUCCESS)
		e = sircl_send(buf, sizeof(buf), SIRCL_UINT8, n - 1, comm, SIRCL_HOST);
	while (e == SIRCL_SUCCESS) {
		float x = 1, y;

		e = sircl_all_reduce(&x, &y, 1, SIRCL_FLOAT32, SIRCL_SUM, comm, SIRCL_HOST);
	}
	printf("rank %d: %s\n", rank, sircl_last_error(comm));
	sircl_comm_destroy(comm);
	return 0;
}

struct sharer {
	pthread_t thread;
	sircl_comm_t comm;
	int done, refused, wrong;
};

static void *share_one(void *arg)
{
	struct sharer *s = arg;

	for (int i = 0; i < 2000; i++) {
		float x = (float)i, y = -1;
		/* every other call has a wrong argument, and leaves its sentence in the communicator */
		sircl_result_t e = sircl_all_reduce(&x, i % 2 ? NULL : &y, 1, SIRCL_FLOAT32, SIRCL_SUM,
						    s->comm, SIRCL_HOST);

		if (e == SIRCL_INVALID_USAGE)
			s->refused++;
		else if (e == (i % 2 ? SIRCL_INVALID_ARGUMENT : SIRCL_SUCCESS) && (i % 2 || y == x))
			s->done++;
		else
			s->wrong++;
	}
	return NULL;
}

/* One communicator in two threads at once: a call is done or refused. The threads share nothing else, so
 * what orders one's calls after the other's is the library. */
static int share(void)
{
	struct sharer s[2] = { { .done = 0 } };
	sircl_comm_t comm;
	sircl_unique_id_t id;

	if (sircl_get_unique_id(&id) != SIRCL_SUCCESS ||
	    sircl_comm_create(&comm, NULL, 0, 1, &id) != SIRCL_SUCCESS)
		return 1;
	for (int i = 0; i < 2; i++) {
		s[i].comm = comm;
		if (pthread_create(&s[i].thread, NULL, share_one, &s[i]) != 0)
			return 1;
	}
	for (int i = 0; i < 2; i++)
		pthread_join(s[i].thread, NULL);
	printf("two threads, one communicator: %d calls done, %d refused, %d wrong\n", s[0].done + s[1].done,
	       s[0].refused + s[1].refused, s[0].wrong + s[1].wrong);
	return sircl_comm_destroy(comm) != SIRCL_SUCCESS || s[0].wrong || s[1].wrong;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "", *rank = getenv("SIRCL_RANK"), *n = getenv("SIRCL_NRANKS");
	int a = argc > 2 ? atoi(argv[2]) : 0;

	if (!strcmp(mode, "rounds") && argc == 4 && a >= 2 && a <= RANKS_MAX)
		return rounds_of_threads(a, atoi(argv[3]));
	if (!strcmp(mode, "many") && a >= 2 && a <= RANKS_MAX)
		return many(a);
	if (!strcmp(mode, "share"))
		return share();
	if (!strcmp(mode, "rank") && rank && n && a >= 10)
		return rounds_of_processes(atoi(rank), atoi(n), a);
	if (!strcmp(mode, "leave") && rank && n)
		return leave(atoi(rank), atoi(n), argc > 2);
	fprintf(stderr, "usage: life rounds N ROUNDS | rank ROUNDS | many N | leave [return] | share\n");
	return 2;
}
