/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of one hop over one lane: two processes put the same number of bytes to and fro. Half the round
 * trip is printed, the median and the best of BATCHES batches, so that whatever else runs on the machine can
 * be told from the lane itself.
 *
 *   lane_pingpong PROVIDER [spin|yield|sleep]
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/arena.h"
#include "lane/lane.h"

#define ARENA (256u << 10)
#define BATCHES 101
#define BATCH_NS (2 * MSEC)

enum waiting { SPIN, YIELD, SLEEP };

struct node {
	const struct lane_ops *ops;
	struct sircl_ctx ctx;
	struct key_ring keys;
	struct arena *arena, *source;
	struct lane *lane;
	struct lane_mem source_mem;
	enum waiting waiting;
	uint64_t notes;
	uint32_t len; /* of the last note's put */
	bool up;
};

static struct tick now(struct node *n)
{
	return ctx_tick(&n->ctx);
}

static void fail(const char *what)
{
	fprintf(stderr, "lane_pingpong: %s: %s\n", what, error_last()->msg);
	exit(1);
}

static void poll_once(struct node *n, struct tick *t)
{
	struct lane_event ev[16];
	int k = n->ops->poll(n->lane, t, ev, 16);

	for (int i = 0; i < k; i++) {
		switch (ev[i].ev) {
		case LANE_NOTE:
			n->notes++;
			n->len = (uint32_t)ev[i].note.w[0];
			break;
		case LANE_UP:
			n->up = true;
			break;
		case LANE_SUSPECT:
		case LANE_DOWN:
			if (n->notes > 0) /* the other process has finished */
				exit(0);
			fprintf(stderr, "lane_pingpong: lane lost: %s\n", ev[i].why);
			exit(1);
		default:
			break;
		}
	}
}

static void wait_notes(struct node *n, uint64_t target)
{
	struct tick t = now(n);

	for (unsigned k = 0; n->notes < target; k++) {
		if (k % 32 == 31) /* as a driver does: the clock is not read for each poll */
			t = now(n);
		poll_once(n, &t);
		if (n->notes >= target)
			return;
		if (n->waiting == YIELD) {
			sched_yield();
		} else if (n->waiting == SLEEP) {
			struct pollfd fds[16];
			int nfds = n->ops->arm(n->lane, fds, 16);

			t = now(n);
			if (nfds >= 0)
				poll(fds, (nfds_t)nfds, 100);
		}
	}
}

static void put(struct node *n, uint32_t len)
{
	struct tick t = { .now = 0 };
	struct lane_put p = { .src = arena_base(n->source),
			      .len = len,
			      .smem = &n->source_mem,
			      .dst = n->ops->peer_export(n->lane),
			      .note = { { len } } };

	while (n->ops->put(n->lane, &t, &p, 1) == 0) {
		t = now(n);
		poll_once(n, &t);
	}
}

static void node_open(struct node *n, int self, struct lane_addr *addr)
{
	char lab[24];
	const char *env = getenv("SIRCL_LAB");

	snprintf(lab, sizeof(lab), "%d", (int)(self == 0 ? getppid() : getpid()));
	if (params_load(&n->ctx.params) != SIRCL_SUCCESS)
		fail("parameters");
	log_init(&n->ctx.log, &n->ctx.params, self);
	n->ctx.rank = self;
	n->ctx.nranks = 2;
	n->ctx.clock = lane_clock_real;
	if (key_ring_init(&n->keys) != SIRCL_SUCCESS ||
	    key_ring_add(&n->keys, KEY_UNIQUE_ID, "ping-pong", 9) != SIRCL_SUCCESS)
		fail("keys");
	if (arena_create(&n->arena, "pingpong", ARENA) != SIRCL_SUCCESS ||
	    arena_create(&n->source, "pingpong-source", ARENA) != SIRCL_SUCCESS)
		fail("memory");
	memset(arena_base(n->source), 1, ARENA);
	struct lane_cfg cfg = { .ctx = &n->ctx,
				.keys = &n->keys,
				.lab = env != NULL && *env != '\0' ? env : lab,
				.self = (uint16_t)self,
				.peer = (uint16_t)!self,
				.connects = self == 0,
				.max_notes = 64,
				.arena_base = arena_base(n->arena),
				.arena_len = ARENA,
				.arena_fd = arena_fd(n->arena) };
	if (n->ops->open(&cfg, &n->lane, addr) != SIRCL_SUCCESS ||
	    n->ops->reg(n->lane, 1, arena_base(n->source), ARENA, &n->source_mem, NULL) != SIRCL_SUCCESS)
		fail("lane");
}

static void come_up(struct node *n)
{
	while (!n->up) {
		struct tick t = now(n);

		poll_once(n, &t);
		sched_yield();
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(struct node *n, uint32_t len)
{
	double hop[BATCHES];
	uint64_t target = n->notes;

	for (int b = -1; b < BATCHES; b++) { /* the first one warms up */
		uint64_t begin = now(n).now, end, rounds = 0;

		do {
			for (int i = 0; i < 50; i++, rounds++) {
				put(n, len);
				wait_notes(n, ++target);
			}
			end = now(n).now;
		} while (end - begin < BATCH_NS);
		if (b >= 0)
			hop[b] = (double)(end - begin) / (double)rounds / 2000;
	}
	qsort(hop, BATCHES, sizeof(hop[0]), by_value);
	printf("%10u B  %9.3f us  %9.3f us\n", len, hop[BATCHES / 2], hop[0]);
	fflush(stdout);
}

/* The other process sends back what it gets, until it is killed. */
static void echo(struct node *n)
{
	for (uint64_t target = 1;; target++) {
		wait_notes(n, target);
		put(n, n->len);
	}
}

int main(int argc, char **argv)
{
	static const uint32_t sizes[] = { 8, 1024, 65536 };
	struct node n = { .waiting = YIELD };
	struct lane_addr addr = { 0 };
	int pair[2];
	pid_t child;

	if (argc < 2 || argc > 3 || (n.ops = lane_provider(argv[1])) == NULL) {
		fprintf(stderr, "usage: lane_pingpong shm|tcp [spin|yield|sleep]\n");
		return 2;
	}
	if (argc == 3)
		n.waiting = strcmp(argv[2], "spin") == 0    ? SPIN
			    : strcmp(argv[2], "sleep") == 0 ? SLEEP
							    : YIELD;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return 1;
	child = fork();
	if (child == 0) {
		struct tick t;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		node_open(&n, 0, &addr);
		if (read(pair[1], &addr, sizeof(addr)) != sizeof(addr))
			return 1;
		t = now(&n);
		if (n.ops->connect(n.lane, &t, &addr, 1) != SIRCL_SUCCESS)
			fail("connect");
		come_up(&n);
		echo(&n);
	}
	close(pair[1]);
	node_open(&n, 1, &addr);
	n.ops->allow(n.lane, 1);
	if (write(pair[0], &addr, sizeof(addr)) != sizeof(addr))
		return 1;
	come_up(&n);
	printf("# %s, one hop (half the round trip), waiting: %s\n#            size     median       best\n",
	       n.ops->name,
	       n.waiting == SPIN    ? "spin"
	       : n.waiting == YIELD ? "yield"
				    : "sleep");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		measure(&n, sizes[i]);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	n.ops->close(n.lane);
	return 0;
}
