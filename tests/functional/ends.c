/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How communicators end, with ranks as threads: in order, late, by calls that do not match; and that any
 * number of them may begin and end in one process. `ends [N] [ROUNDS]`; SIRCL_TRANSPORT and SIRCL_LANES
 * choose the lanes.
 */
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include "ranks.h"

static int nranks = 4, rounds = 30;

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pause_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void destroy(struct rank_ctx *r)
{
	EXPECT(r, sircl_comm_destroy(r->comm) == SIRCL_SUCCESS);
	r->comm = NULL;
}

/* No traffic, or only calls with wrong arguments: channels may be closed before their partners have met. */
static void nothing_done(struct rank_ctx *r)
{
	float a[4] = { 0 };
	double t = seconds();

	EXPECT(r, sircl_all_reduce(a, NULL, 4, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) ==
			  SIRCL_INVALID_ARGUMENT);
	destroy(r);
	EXPECT(r, seconds() - t < 10);
}

static atomic_int destroyed;

/* Rank 1 comes when all others are through, which they would not be if they waited for it. */
static void late_to_destroy(struct rank_ctx *r)
{
	EXPECT(r, sircl_comm_finalize(r->comm) == SIRCL_SUCCESS);
	for (int i = 0; r->rank == 1 && atomic_load(&destroyed) < r->n - 1 && i < 200; i++)
		pause_ms(100);
	EXPECT(r, r->rank != 1 || atomic_load(&destroyed) == r->n - 1);
	destroy(r);
	atomic_fetch_add(&destroyed, 1);
}

/* What the library itself does at the end must not be taken for the same call of a user. */
static void gather_meets_finalize(struct rank_ctx *r)
{
	unsigned char mine = 1, all[RANKS_MAX];
	sircl_result_t got = r->rank == 0 ? sircl_all_gather(&mine, all, 1, SIRCL_UINT8, r->comm, SIRCL_HOST)
					  : sircl_comm_finalize(r->comm);
	const char *text = sircl_last_error(r->comm);

	EXPECT(r, got != SIRCL_SUCCESS);
	EXPECT(r, strstr(text, "has failed")
			  ? strstr(text, "different calls") != NULL
			  : strstr(text, "sircl_comm_finalize") && strstr(text, "all_gather"));
	sircl_comm_destroy(r->comm);
	r->comm = NULL;
}

/* A rank that comes late is waited for, in every kind of wait, however long after the limit of the transport.
 */
static void late(struct rank_ctx *r)
{
	float x = 1, sum = 0, y = 0;

	if (r->rank == 1)
		pause_ms(1800);
	if (r->rank == 0)
		EXPECT(r, sircl_recv(&y, 1, SIRCL_FLOAT32, 1, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	if (r->rank == 1)
		EXPECT(r, sircl_send(&x, 1, SIRCL_FLOAT32, 0, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r,
	       sircl_all_reduce(&x, &sum, 1, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST) == SIRCL_SUCCESS);
	EXPECT(r, sum == (float)r->n);
	destroy(r);
}

static int late_ranks(void)
{
	int failed;

	setenv("SIRCL_TIMEOUT", "600", 1);
	failed = run_ranks("a late rank is waited for beyond the limit of the transport", nranks, late);
	unsetenv("SIRCL_TIMEOUT");
	return failed;
}

/* ---- abort by another thread, at any moment ---- */

struct watcher {
	struct rank_ctx *r;
	unsigned seed;
	bool aborts;
	_Atomic bool stop;
	_Atomic double at; /* when it was aborted; 0: not yet */
	int wrong;
};

/* Asks what any thread may ask at any time; one of the ranks' watchers aborts after a while. */
static void *watch(void *arg)
{
	struct watcher *w = arg;
	double until = seconds() + (double)(rand_r(&w->seed) % 40) / 1000;

	while (!atomic_load(&w->stop)) {
		sircl_info_t info = { .size = sizeof(info) };
		sircl_result_t e = SIRCL_INTERNAL_ERROR;

		w->wrong += sircl_comm_query(w->r->comm, &info) != SIRCL_SUCCESS || info.rank != w->r->rank;
		w->wrong += sircl_comm_async_error(w->r->comm, &e) != SIRCL_SUCCESS ||
			    (e != SIRCL_SUCCESS && e != SIRCL_ABORTED);
		if (w->aborts && seconds() >= until) {
			atomic_store(&w->at, seconds());
			w->wrong += sircl_comm_abort(w->r->comm) != SIRCL_SUCCESS;
			w->aborts = false;
		}
		sched_yield();
	}
	return NULL;
}

static unsigned abort_round;

/* Reduces, and sends and receives past a rank, until it is aborted. */
static sircl_result_t work(struct rank_ctx *r, float *a, float *b, size_t count)
{
	int to = (r->rank + r->n / 2) % r->n, from = (r->rank + r->n - r->n / 2) % r->n;
	bool first = r->rank < to;
	sircl_result_t e = sircl_all_reduce(a, b, count, SIRCL_FLOAT32, SIRCL_SUM, r->comm, SIRCL_HOST);

	if (!e && first)
		e = sircl_send(a, count, SIRCL_FLOAT32, to, r->comm, SIRCL_HOST);
	if (!e)
		e = sircl_recv(b, count, SIRCL_FLOAT32, from, r->comm, SIRCL_HOST);
	if (!e && !first)
		e = sircl_send(a, count, SIRCL_FLOAT32, to, r->comm, SIRCL_HOST);
	return e;
}

static void aborted_meanwhile(struct rank_ctx *r)
{
	static const size_t counts[] = { 1, 1000, 50000 };
	struct watcher w = { .r = r,
			     .seed = abort_round * 100 + (unsigned)r->rank,
			     .aborts = abort_round % (unsigned)r->n == (unsigned)r->rank };
	size_t count = counts[abort_round % 3];
	float *a = calloc(count, sizeof(float)), *b = calloc(count, sizeof(float));
	sircl_result_t e;
	pthread_t t;
	double began = seconds();

	if (!a || !b || pthread_create(&t, NULL, watch, &w) != 0)
		exit(1);
	do
		e = work(r, a, b, count);
	while (e == SIRCL_SUCCESS && seconds() - began < 20);
	EXPECT(r, e == SIRCL_ABORTED);
	EXPECT(r, strstr(sircl_last_error(r->comm), "abort") != NULL);
	EXPECT(r, seconds() - began < 5);
	atomic_store(&w.stop, true);
	pthread_join(t, NULL);
	EXPECT(r, w.wrong == 0);
	sircl_comm_destroy(r->comm);
	r->comm = NULL;
	free(a);
	free(b);
}

static int aborts(void)
{
	int failed = 0;

	for (abort_round = 0; abort_round < 12 && !failed; abort_round++)
		failed = run_ranks("aborted by another thread at any moment", nranks / 2 * 2,
				   aborted_meanwhile) != 0;
	return failed;
}

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* A sanitizer's own memory grows, so it is not looked at then. */
static long resident_kb(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	FILE *f = NULL;
#else
	FILE *f = fopen("/proc/self/statm", "r");
#endif
	long size = 0, pages = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%ld %ld", &size, &pages) != 2)
		pages = 0;
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Threads that have just ended may be seen a moment longer. */
static bool as_before(int fds, int threads)
{
	for (int i = 0; i < 200; i++) {
		if (entries("/proc/self/fd") == fds && entries("/proc/self/task") == threads)
			return true;
		pause_ms(10);
	}
	return false;
}

static int many_rounds(void)
{
	int failed = 0, fds = 0, threads = 0, warm = rounds / 3;
	long kb = 0;

	for (int i = 0; i < rounds && !failed; i++) {
		if (i == warm) {
			pause_ms(100);
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
			kb = resident_kb();
		}
		failed = run_ranks("created and destroyed with nothing done", nranks, nothing_done) != 0;
	}
	if (!failed && (!as_before(fds, threads) || resident_kb() > kb + 2048)) {
		printf("  FAIL left behind: %d descriptors (%d before), %d threads (%d), %ld KiB (%ld)\n",
		       entries("/proc/self/fd"), fds, entries("/proc/self/task"), threads, resident_kb(), kb);
		failed = 1;
	}
	printf("  %-4s %d rounds of create and destroy leave descriptors, threads and memory as they were\n",
	       failed ? "FAIL" : "ok", rounds);
	return failed;
}

static int forced(void)
{
	int failed;

	setenv("SIRCL_ALGO", "ring", 1); /* no ring on a line of two: calls that ask for it are refused */
	failed = run_ranks("an algorithm that is not possible does not stop the end", 2, nothing_done);
	unsetenv("SIRCL_ALGO");
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0, passed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	nranks = argc > 1 ? atoi(argv[1]) : nranks;
	rounds = argc > 2 ? atoi(argv[2]) : rounds;
	if (nranks < 2 || nranks > RANKS_MAX || rounds < 1) {
		fprintf(stderr, "usage: ends [N] [ROUNDS], 2 <= N <= %d\n", RANKS_MAX);
		return 2;
	}
	run_ranks("a rank that comes late to destroy keeps nobody", nranks, late_to_destroy) ? failed++
											     : passed++;
	run_ranks("a user's all-gather meets finalize: an error", nranks, gather_meets_finalize) ? failed++
												 : passed++;
	forced() ? failed++ : passed++;
	late_ranks() ? failed++ : passed++;
	aborts() ? failed++ : passed++;
	many_rounds() ? failed++ : passed++;
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
