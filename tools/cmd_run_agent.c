/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The far end of `sircl run -H`: what ssh starts on each host. It says hello on its standard output, reads
 * the job from its standard input, starts its ranks, and sends their output line by line.
 *
 * Invariant: when the caller is not there any more (standard input or output has ended), the ranks are ended,
 * with SIGTERM and five seconds later SIGKILL, and then this process ends, whatever they do. It never waits
 * in a write.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cmd_run.h"
#include "sircl.h"

#define OUT_FULL (256u << 10) /* ranks wait when as much has not been taken */

struct agent {
	struct ranks ranks;
	struct buf in, out, line[RANKS_MAX][2]; /* line: read from a rank and not ended yet */
	int rest[RANKS_MAX]
		[2]; /* all ranks have ended: bytes that were in the pipe then; -1: not looked yet */
	int64_t ping_at;
	int ping_ms, sigfd;
	bool job, gone, failed, done; /* gone: the caller; done: FRAME_DONE is in `out` */
	int64_t flush_by; /* with done: the caller has asked for the end and gets no more time; -1: none asked
			   */
};

static void say(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct agent *a, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	frame_add(&a->out, FRAME_SAY, text, strlen(text) + 1, NULL, 0);
}

/* Equal for two ends that see the same abstract sockets as the same user. */
static void say_hello(struct agent *a)
{
	char boot[64] = "?", text[200];
	struct stat net = { 0 }, pid = { 0 };
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (f != NULL) {
		if (fscanf(f, "%63s", boot) != 1)
			boot[0] = '?';
		fclose(f);
	}
	stat("/proc/self/ns/net", &net);
	stat("/proc/self/ns/pid", &pid);
	snprintf(text, sizeof(text), "sircl-agent 1 %s/%lx/%lx/%u\n", boot, (unsigned long)net.st_ino,
		 (unsigned long)pid.st_ino, (unsigned)geteuid());
	buf_add(&a->out, text, strlen(text));
}

static void refuse(struct agent *a, uint32_t status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void refuse(struct agent *a, uint32_t status, const char *fmt, ...)
{
	struct buf b = { 0 };
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_u32(&b, status);
	buf_text(&b, text);
	frame_add(&a->out, FRAME_REFUSED, b.p, b.n, NULL, 0);
	buf_free(&b);
	a->failed = true;
}

/* Takes the strings where they lie: `in` is not moved while they are in use, that is until the ranks are
 * started. */
static void start_job(struct agent *a, struct reader *r)
{
	struct ranks *rs = &a->ranks;
	const char *cwd;
	uint32_t n;
	int err;

	if (a->job)
		return;
	rs->first = (int)read_u32(r);
	rs->n = (int)read_u32(r);
	rs->total = (int)read_u32(r);
	rs->local_first = (int)read_u32(r);
	rs->local_total = (int)read_u32(r);
	a->ping_ms = (int)read_u32(r);
	rs->root = read_text(r);
	rs->secret = read_text(r);
	rs->lab = read_text(r);
	cwd = read_text(r);
	for (n = read_u32(r); n > 0 && !r->bad; n--) {
		const char *entry = read_text(r), *value = strchr(entry, '=');
		char *name = value != NULL ? strndup(entry, (size_t)(value - entry)) : NULL;

		if (name == NULL || setenv(name, value + 1, 1) != 0)
			r->bad = true;
		free(name);
	}
	n = read_u32(r);
	rs->command = n > 0 && n <= r->n ? calloc(n + 1, sizeof(char *)) : NULL;
	for (uint32_t i = 0; rs->command != NULL && i < n; i++)
		rs->command[i] = (char *)(uintptr_t)read_text(r);
	if (r->bad || rs->command == NULL || rs->n < 1 || rs->n > RANKS_MAX || a->ping_ms < 1) {
		refuse(a, EXIT_USAGE, "does not understand the job: install the same sircl on all hosts");
	} else if (chdir(cwd) != 0) {
		refuse(a, EXIT_USAGE,
		       "the working directory '%s' is not there: %s; start from one that all hosts have", cwd,
		       strerror(errno));
	} else {
		rs->piped = true;
		err = ranks_start(rs);
		if (err != 0) {
			refuse(a, err == ENOENT ? 127 : 126, "rank %d: %s: %s", rs->first + rs->started,
			       rs->command[0], strerror(err));
			ranks_end(rs);
		}
	}
	a->job = true;
	free(rs->command);
	rs->command = NULL;
}

static void answer(struct agent *a, struct reader *r)
{
	const char *host = read_text(r), *other = read_text(r);
	char text[128];

	if (r->bad || !own_address(host, other, text, sizeof(text)))
		text[0] = '\0';
	frame_add(&a->out, FRAME_ADDRESS, text, strlen(text) + 1, NULL, 0);
}

static void leave(struct agent *a)
{
	a->gone = true;
	ranks_end(&a->ranks);
}

static void end(struct agent *a)
{
	if (!a->job)
		leave(a);
	ranks_end(&a->ranks);
	if (a->flush_by < 0)
		a->flush_by = now_ms() + 3 * GRACE_MS;
}

static void from_caller(struct agent *a)
{
	const ssize_t k = buf_read(&a->in, STDIN_FILENO, 65536);
	struct reader r;
	int type, got;

	if (k == 0)
		leave(a);
	while (k > 0 && (got = frame_next(&a->in, &type, &r)) != 0) {
		const size_t len = got > 0 ? 5 + r.n : 0;

		if (got < 0) {
			leave(a);
			return;
		}
		if (type == FRAME_JOB)
			start_job(a, &r);
		else if (type == FRAME_ASK)
			answer(a, &r);
		else if (type == FRAME_SIGNAL)
			ranks_signal(&a->ranks, (int)read_u32(&r));
		else if (type == FRAME_END)
			end(a);
		buf_drop(&a->in, len);
	}
}

static void send_output(struct agent *a, int i, int s, size_t n)
{
	struct buf *b = &a->line[i][s];
	struct buf rank = { 0 };

	if (n == 0)
		return;
	buf_u32(&rank, (uint32_t)(a->ranks.first + i));
	if (!a->gone)
		frame_add(&a->out, s == 0 ? FRAME_STDOUT : FRAME_STDERR, rank.p, rank.n, b->p, n);
	buf_free(&rank);
	buf_drop(b, n);
}

/* Whole lines go on, and a piece of a line that is too long; what is left when the rank has ended too. */
static void from_rank(struct agent *a, int i, int s)
{
	struct child *c = &a->ranks.child[i];
	struct buf *b = &a->line[i][s];
	const bool over = a->ranks.alive == 0;
	const uint8_t *last;
	ssize_t k;

	if (over && a->rest[i][s] < 0 && ioctl(c->out[s], FIONREAD, &a->rest[i][s]) != 0)
		a->rest[i][s] = 0;
	k = buf_read(b, c->out[s], CHUNK - b->n);
	if (over && k > 0)
		a->rest[i][s] -= (int)k;
	if (k > 0) {
		last = memrchr(b->p, '\n', b->n);
		send_output(a, i, s,
			    b->n == CHUNK && last == NULL ? b->n
			    : last != NULL                ? (size_t)(last + 1 - b->p)
							  : 0);
	}
	if (k == 0 ||
	    (over && (k < 0 || a->rest[i][s] <= 0))) { /* what it has started may hold the pipe still */
		send_output(a, i, s, b->n);
		buf_free(b);
		close(c->out[s]);
		c->out[s] = -1;
	}
}

static void look_at_ranks(struct agent *a)
{
	struct ending e;

	while (ranks_ended(&a->ranks, &e)) {
		const uint32_t v[] = { (uint32_t)e.rank, (uint32_t)e.status, (uint32_t)e.sig };
		struct buf b = { 0 };

		if (e.status == 0)
			continue;
		for (int i = 0; i < 3; i++)
			buf_u32(&b, v[i]);
		frame_add(&a->out, FRAME_FAILED, b.p, b.n, NULL, 0);
		buf_free(&b);
		a->failed = true;
		ranks_end(&a->ranks);
	}
}

/* True when nothing is left to be read of the ranks. */
static bool is_read(const struct agent *a)
{
	for (int i = 0; i < a->ranks.started; i++)
		for (int s = 0; s < 2; s++)
			if (a->ranks.child[i].out[s] >= 0)
				return false;
	return true;
}

static int until_next(const struct agent *a, int due)
{
	int64_t left = a->ping_at - now_ms();

	if (a->ranks.alive == 0 && !a->done)
		left = a->out.n < OUT_FULL || a->gone
			       ? 0
			       : left; /* pipes are emptied until they would make us wait */
	if (due >= 0 && due < left)
		left = due;
	return left > 0 ? (int)left : 0;
}

static void wait_and_move(struct agent *a, int due)
{
	struct pollfd p[3 + 2 * RANKS_MAX] = { { .fd = a->gone ? -1 : STDIN_FILENO, .events = POLLIN },
					       { .fd = a->gone ? -1 : STDOUT_FILENO,
						 .events = a->out.n > 0 ? POLLOUT : 0 },
					       { .fd = a->sigfd, .events = POLLIN } };
	const bool full = !a->gone && a->out.n >= OUT_FULL, last = a->ranks.alive == 0;
	struct signalfd_siginfo si;
	nfds_t n = 3;

	for (int i = 0; i < a->ranks.started; i++)
		for (int s = 0; s < 2; s++)
			p[n++] = (struct pollfd){ .fd = full ? -1 : a->ranks.child[i].out[s],
						  .events = POLLIN };
	if (poll(p, n, until_next(a, due)) < 0)
		return;
	n = 3;
	for (int i = 0; i < a->ranks.started; i++)
		for (int s = 0; s < 2; s++, n++)
			if (p[n].fd >= 0 && (p[n].revents != 0 || last))
				from_rank(a, i, s);
	/* a signal to this process means that somebody wants all of it gone */
	if (p[2].revents != 0 && read(a->sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si) &&
	    si.ssi_signo != SIGCHLD)
		leave(a);
	if (p[0].revents != 0)
		from_caller(a);
	if (!a->gone && (p[1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0)
		leave(a);
	if (!a->gone && now_ms() >= a->ping_at) {
		if (a->out.n == 0)
			frame_add(&a->out, FRAME_PING, NULL, 0, NULL, 0);
		a->ping_at = now_ms() + a->ping_ms;
	}
	if (!a->gone && buf_write(&a->out, STDOUT_FILENO) != 0)
		leave(a);
}

/* True when all is said. */
static bool is_over(struct agent *a)
{
	if (a->ranks.alive > 0 || !(a->job || a->gone))
		return false;
	if (a->gone)
		return true;
	if (a->flush_by >= 0 && now_ms() >= a->flush_by)
		return true;
	if (is_read(a) && !a->done) {
		frame_add(&a->out, FRAME_DONE, NULL, 0, NULL, 0);
		a->done = true;
	}
	return a->done && a->out.n == 0;
}

int run_agent(void)
{
	static struct agent a; /* large */

	a = (struct agent){ .ping_ms = 500, .flush_by = -1, .ranks.kill_at = -1 };
	memset(a.rest, 0xff, sizeof(a.rest));
	signal(SIGPIPE, SIG_IGN);
	a.sigfd = ranks_signals(&a.ranks.mask);
	if (a.sigfd < 0 || fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) != 0 ||
	    fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK) != 0)
		return tool_error("run", "at the far end: %s", strerror(errno));
	say_hello(&a);
	a.ping_at = now_ms() + a.ping_ms;
	while (!is_over(&a)) {
		const int due = ranks_due(&a.ranks);

		if (due == -2) {
			say(&a, "%d of its ranks cannot be ended: they hang in the kernel", a.ranks.alive);
			buf_write(&a.out, STDOUT_FILENO);
			break;
		}
		wait_and_move(&a, due);
		look_at_ranks(&a);
	}
	ranks_close(&a.ranks, a.failed || a.gone || a.ranks.kill_at >= 0);
	return 0;
}
