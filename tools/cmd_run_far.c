/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's side of `sircl run -H`: one ssh per host, at whose other end `sircl run --agent` starts the
 * ranks. All of them have said hello before the first rank is started, so a host that cannot be reached costs
 * nothing on the others. What a far end must know, the secret of the job too, goes through the standard input
 * of its ssh.
 *
 * Invariant: each state of a host has an end: connecting SIRCL_START_TIMEOUT, a far end that was heard the
 * same time without a sign of life, being ended END_MS. Output that nobody takes stops the reading, not this
 * process.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cmd_run.h"
#include "sircl.h"

#define END_MS \
	(3 * GRACE_MS) /* from asking all far ends to end to leaving them; they take 2 * GRACE_MS at most */
#define LEAVE_MS 2000 /* for an ssh to end when its far end has, or after SIGTERM */
#define OUT_FULL (256u << 10)
#define WORDS 400 /* of ssh, or of a shell that does not find sircl */

enum { IN, OUT, ERR }; /* standard streams of an ssh */
enum state { CONNECTING, READY, RUNNING, OVER }; /* READY: hello was heard; OVER: nothing more is expected */

struct far {
	const struct host *host;
	enum state state;
	pid_t ssh; /* 0: reaped */
	int fd[3]; /* our ends of its standard streams; -1: closed */
	struct buf to, from, words;
	char id[160]; /* of the machine */
	int64_t heard; /* ms */
	int wait_status; /* of the ssh, when reaped */
};

struct run {
	struct job *job;
	struct far far[RANKS_MAX];
	struct sink sink[2];
	int sigfd, status, limit_ms;
	bool asked, started; /* for an address; the ranks */
	bool signalled; /* the user wants an end */
	int64_t end_at, kill_at; /* ms; -1: not ending */
	int64_t moved, looped; /* ms: output was taken; limits were looked at */
	char root[300];
	sigset_t mask;
};

static void fail(struct run *r, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void to_far(struct far *f, enum frame type, const void *p, size_t n)
{
	frame_add(&f->to, type, p, n, NULL, 0);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Nothing more is expected: our ends close, and its far end, should there be one, ends what it has. */
static void give_up(struct far *f)
{
	f->state = OVER;
	close_fd(&f->fd[IN]);
	close_fd(&f->fd[OUT]);
	buf_free(&f->to);
}

static void end_all(struct run *r)
{
	if (r->end_at >= 0)
		return;
	r->end_at = now_ms() + END_MS;
	r->moved = now_ms();
	for (int i = 0; i < r->job->hosts; i++) {
		struct far *f = &r->far[i];

		if (f->state == RUNNING)
			to_far(f, FRAME_END, NULL, 0);
		else
			give_up(f);
	}
}

/* A sentence of ours on standard error, behind what the ranks have written. */
static void note(struct run *r, const char *text)
{
	struct buf *b = &r->sink[1].buf;

	buf_add(b, "sircl run: ", 11);
	buf_add(b, text, strlen(text));
	buf_add(b, "\n", 1);
}

/* The first failure is told and decides. */
static void fail(struct run *r, int status, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (r->status == 0) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		note(r, text);
		r->status = status;
	}
	end_all(r);
}

/* ---- our own output ---- */

static void move_output(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		const size_t before = r->sink[i].buf.n;
		const int err = sink_move(&r->sink[i]);

		if (r->sink[i].buf.n != before)
			r->moved = now_ms();
		if (err != 0) /* nobody reads any more, or a full disk */
			fail(r, err == EPIPE ? 128 + SIGPIPE : EXIT_USAGE,
			     "writing the output of the ranks: %s; ending them", strerror(err));
	}
}

static void output(struct run *r, int stream, struct reader *body)
{
	const uint32_t rank = read_u32(body);

	if (!body->bad && rank < RANKS_MAX)
		sink_add(&r->sink[stream], (int)rank, r->job->label, body->p, body->n);
}

/* ---- one host ---- */

/* The sentences of ssh on one line. */
static const char *words(struct far *f, char *text, size_t n)
{
	size_t k = 0;
	bool gap = false;

	for (size_t i = 0; i < f->words.n && k + 4 < n; i++) {
		const uint8_t c = f->words.p[i];

		if (c == '\n' || c == '\r') {
			gap = k > 0;
			continue;
		}
		if (gap) {
			text[k++] = ';';
			text[k++] = ' ';
		}
		gap = false;
		text[k++] = c < ' ' || c == 127 ? '?' : (char)c;
	}
	text[k] = '\0';
	return text;
}

static void lost(struct run *r, struct far *f, const char *why)
{
	const bool connecting = f->state == CONNECTING;
	char text[WORDS + 8], status[80] = "";

	if (f->state == OVER)
		return;
	/* words that came later are on standard error already */
	if (connecting)
		words(f, text, sizeof(text));
	else
		text[0] = '\0';
	if (*why == '\0' && *text == '\0') {
		snprintf(status, sizeof(status), "its ssh has ended with status %d",
			 WIFEXITED(f->wait_status) ? WEXITSTATUS(f->wait_status)
						   : 128 + WTERMSIG(f->wait_status));
		why = status;
	}
	fail(r, EXIT_USAGE, "host %s: %s: %s%s%s%s", f->host->name,
	     connecting ? "cannot start sircl there" : "the connection is lost", why,
	     *why != '\0' && *text != '\0' ? ": " : "", text, r->started ? "; ending the ranks" : "");
	give_up(f);
}

/* What comes before the hello is a shell's or a system's greeting, and goes to our standard error. */
static void take_hello(struct run *r, struct far *f)
{
	static const char hello[] = "sircl-agent 1 ";
	uint8_t *nl;

	while (f->state == CONNECTING && (nl = memchr(f->from.p, '\n', f->from.n)) != NULL) {
		const size_t n = (size_t)(nl + 1 - f->from.p);

		if (n > sizeof(hello) && n - sizeof(hello) < sizeof(f->id) &&
		    memcmp(f->from.p, hello, sizeof(hello) - 1) == 0) {
			memcpy(f->id, f->from.p + sizeof(hello) - 1, n - sizeof(hello));
			f->state = READY;
			buf_add(&r->sink[1].buf, f->words.p, f->words.n);
			f->words.n = 0;
		} else {
			buf_add(&r->sink[1].buf, f->from.p, n);
		}
		buf_drop(&f->from, n);
	}
	if (f->state == CONNECTING && f->from.n > 65536)
		lost(r, f, "it sends something else than sircl does");
}

static void failed(struct run *r, struct far *f, struct reader *body)
{
	struct ending e;
	char text[400];

	e.rank = (int)read_u32(body);
	e.status = (int)read_u32(body);
	e.sig = (int)read_u32(body);
	if (r->status == 0 && !body->bad) {
		r->status = e.status != 0 ? e.status : 1;
		note(r, ranks_text(&e, f->host->name, r->job->n > 1, text, sizeof(text)));
	}
	end_all(r);
}

static void refused(struct run *r, struct far *f, struct reader *body)
{
	const int status = (int)read_u32(body);

	fail(r, status != 0 ? status : EXIT_USAGE, "host %s: %s", f->host->name, read_text(body));
}

static void told(struct run *r, const struct far *f, struct reader *body)
{
	char text[800];

	snprintf(text, sizeof(text), "host %s: %s", f->host->name, read_text(body));
	note(r, text);
}

static void addressed(struct run *r, struct far *f, struct reader *body)
{
	const char *address = read_text(body);

	if (*address == '\0')
		fail(r, EXIT_USAGE,
		     "host %s: no address of it that the others reach was found (its name leads to loopback "
		     "there or "
		     "nowhere): give one with --root ADDRESS",
		     f->host->name);
	else
		root_text(r->root, sizeof(r->root), address, (int)param_num(&r->job->params, PARAM_PORT));
}

static void take_frames(struct run *r, struct far *f)
{
	struct reader body;
	int type, got = 0;

	while (f->state != OVER && (got = frame_next(&f->from, &type, &body)) > 0) {
		const size_t len = 5 + body.n;

		if (type == FRAME_STDOUT || type == FRAME_STDERR)
			output(r, type == FRAME_STDERR, &body);
		else if (type == FRAME_FAILED)
			failed(r, f, &body);
		else if (type == FRAME_REFUSED)
			refused(r, f, &body);
		else if (type == FRAME_ADDRESS)
			addressed(r, f, &body);
		else if (type == FRAME_SAY)
			told(r, f, &body);
		else if (type == FRAME_DONE)
			give_up(f);
		else if (type != FRAME_PING)
			got = -1;
		if (got < 0)
			break;
		buf_drop(&f->from, len);
	}
	if (got < 0)
		lost(r, f, "it sends something else than sircl does");
}

static void from_far(struct run *r, struct far *f)
{
	const ssize_t k = buf_read(&f->from, f->fd[OUT], 65536);

	if (k < 0) {
		if (f->ssh == 0) /* it has ended, and something else keeps the pipe open */
			close_fd(&f->fd[OUT]);
		return;
	}
	if (k == 0) {
		close_fd(&f->fd[OUT]);
		return;
	}
	f->heard = now_ms();
	if (f->state == CONNECTING)
		take_hello(r, f);
	if (f->state != CONNECTING)
		take_frames(r, f);
}

static void from_ssh(struct run *r, struct far *f)
{
	const ssize_t k = buf_read(&f->words, f->fd[ERR], 4096);

	if (k == 0 || (k < 0 && f->ssh == 0))
		close_fd(&f->fd[ERR]);
	if (k <= 0)
		return;
	if (f->state != CONNECTING) {
		buf_add(&r->sink[1].buf, f->words.p, f->words.n);
		f->words.n = 0;
	}
	if (f->words.n > WORDS)
		buf_drop(&f->words, f->words.n - WORDS);
}

/* ---- all hosts ---- */

static void start_jobs(struct run *r)
{
	const int limit = r->limit_ms / 4, ping = limit < 5000 ? limit : 5000;

	for (int i = 0; i < r->job->hosts; i++) {
		struct far *f = &r->far[i];
		struct buf b = { 0 };
		int first = 0, local = 0;

		for (int k = 0; k < r->job->hosts; k++) {
			if (strcmp(r->far[k].id, f->id) != 0)
				continue;
			local += r->job->host[k].n;
			first += k < i ? r->job->host[k].n : 0;
		}
		hosts_job(r->job, f->host, r->root, first, local, ping, &b);
		if (b.n > FRAME_MAX)
			fail(r, EXIT_USAGE, "arguments and environment have more than %u MiB",
			     FRAME_MAX >> 20);
		else
			to_far(f, FRAME_JOB, b.p, b.n);
		buf_free(&b);
		if (f->state == READY)
			f->state = RUNNING;
	}
	r->started = true;
}

/* When all have said hello: where the ranks meet, then the ranks. */
static void go_on(struct run *r)
{
	struct job *j = r->job;
	int other = 0;

	if (r->started || r->end_at >= 0)
		return;
	for (int i = 0; i < j->hosts; i++) {
		if (r->far[i].state != READY)
			return;
		if (other == 0 && strcmp(r->far[i].id, r->far[0].id) != 0)
			other = i;
	}
	if (j->root != NULL) {
		root_text(r->root, sizeof(r->root), j->root, (int)param_num(&j->params, PARAM_PORT));
	} else if (other == 0) { /* all on one machine */
		snprintf(r->root, sizeof(r->root), "unix:@sircl-%s-%s", j->lab, j->tag);
	} else if (!r->asked) {
		struct buf b = { 0 };

		buf_text(&b, host_bare(j->host[0].name));
		buf_text(&b, host_bare(j->host[other].name));
		to_far(&r->far[0], FRAME_ASK, b.p, b.n);
		buf_free(&b);
		r->asked = true;
	}
	if (r->root[0] != '\0')
		start_jobs(r);
}

static void on_signal(struct run *r)
{
	struct signalfd_siginfo si;

	if (read(r->sigfd, &si, sizeof(si)) != (ssize_t)sizeof(si) || si.ssi_signo == SIGCHLD)
		return;
	if (!r->started) {
		fail(r, 128 + (int)si.ssi_signo, "ended by signal %u before the ranks were started",
		     si.ssi_signo);
		return;
	}
	r->signalled = true;
	r->moved = now_ms(); /* what has not been taken has GRACE_MS from now */
	for (int i = 0; i < r->job->hosts; i++) {
		struct buf b = { 0 };

		buf_u32(&b, si.ssi_signo);
		if (r->far[i].state == RUNNING)
			to_far(&r->far[i], FRAME_SIGNAL, b.p, b.n);
		buf_free(&b);
	}
}

static bool is_full(const struct run *r)
{
	return r->sink[0].buf.n >= OUT_FULL || r->sink[1].buf.n >= OUT_FULL;
}

static void reap(struct run *r)
{
	for (int i = 0; i < r->job->hosts; i++) {
		struct far *f = &r->far[i];

		if (f->ssh > 0 && waitpid(f->ssh, &f->wait_status, WNOHANG) == f->ssh)
			f->ssh = 0;
		/* all that it has sent is read first */
		if (f->state != OVER && f->fd[OUT] < 0 && f->ssh == 0 && f->fd[ERR] < 0)
			lost(r, f, "");
	}
}

static void look_at_limits(struct run *r)
{
	const int64_t now = now_ms(), gap = now - r->looped;
	const bool full = is_full(r);
	char text[400];

	r->looped = now;
	for (int i = 0; i < r->job->hosts; i++) {
		struct far *f = &r->far[i];

		/* while we do not read, or have been stopped ourselves, silence means nothing */
		f->heard = full ? now : gap > 1000 ? f->heard + gap : f->heard;
		if (f->state != OVER && now - f->heard > r->limit_ms) {
			snprintf(text, sizeof(text), "no answer for %d ms (SIRCL_START_TIMEOUT)",
				 r->limit_ms);
			lost(r, f, text);
		}
	}
	/* ranks were told to end, and what they say of it lies behind output that nobody takes */
	if (full && (r->signalled || r->end_at >= 0) && now - r->moved > GRACE_MS)
		for (int i = 0; i < 2; i++)
			buf_drop(&r->sink[i].buf, r->sink[i].buf.n);
	for (int i = 0; r->end_at >= 0 && now >= r->end_at && i < r->job->hosts; i++)
		if (r->far[i].state != OVER) {
			snprintf(text, sizeof(text),
				 "host %s: no answer to the request to end; ranks may be left there",
				 r->far[i].host->name);
			note(r, text);
			give_up(&r->far[i]);
		}
}

/* An ssh whose far end is done ends by itself; one that does not is ended. True when none is left. */
static bool are_over(struct run *r)
{
	bool over = true;

	for (int i = 0; i < r->job->hosts; i++)
		if (r->far[i].state != OVER)
			return false;
	for (int i = 0; i < r->job->hosts; i++)
		over = over && r->far[i].ssh == 0;
	if (over)
		return true;
	if (r->kill_at < 0)
		r->kill_at = now_ms() + LEAVE_MS;
	if (now_ms() < r->kill_at)
		return false;
	for (int i = 0; i < r->job->hosts; i++)
		if (r->far[i].ssh > 0) /* a session of its own, and so a group */
			kill(-r->far[i].ssh, SIGTERM);
	return true;
}

static void wait_and_move(struct run *r)
{
	struct pollfd p[3 + 3 * RANKS_MAX];
	const bool full = is_full(r);
	nfds_t n = 3;

	p[0] = (struct pollfd){ .fd = r->sigfd, .events = POLLIN };
	for (int i = 0; i < 2; i++)
		p[1 + i] =
			(struct pollfd){ .fd = r->sink[i].buf.n > 0 ? r->sink[i].fd : -1, .events = POLLOUT };
	for (int i = 0; i < r->job->hosts; i++, n += 3) {
		const struct far *f = &r->far[i];

		p[n] = (struct pollfd){ .fd = f->to.n > 0 ? f->fd[IN] : -1, .events = POLLOUT };
		p[n + 1] = (struct pollfd){ .fd = full ? -1 : f->fd[OUT], .events = POLLIN };
		p[n + 2] = (struct pollfd){ .fd = full ? -1 : f->fd[ERR], .events = POLLIN };
	}
	if (poll(p, n, r->limit_ms < 400 ? r->limit_ms / 4 : 100) < 0)
		return;
	if (p[0].revents != 0)
		on_signal(r);
	n = 3;
	for (int i = 0; i < r->job->hosts; i++, n += 3) {
		struct far *f = &r->far[i];

		if (f->fd[ERR] >= 0 && !full && (p[n + 2].revents != 0 || f->ssh == 0))
			from_ssh(r, f);
		if (f->fd[OUT] >= 0 && !full && (p[n + 1].revents != 0 || f->ssh == 0))
			from_far(r, f);
		if (f->fd[IN] >= 0 && buf_write(&f->to, f->fd[IN]) != 0)
			close_fd(&f->fd[IN]);
	}
	move_output(r);
}

/* What the ranks have written goes out; with a job that has failed, or on a signal, not for ever. */
static void flush_sinks(struct run *r)
{
	int64_t until = r->status == 0 && !r->signalled ? INT64_MAX : now_ms() + LEAVE_MS;

	while (r->sink[0].buf.n + r->sink[1].buf.n > 0 && now_ms() < until) {
		struct pollfd p[3] = { { .fd = r->sigfd, .events = POLLIN } };
		struct signalfd_siginfo si;

		for (int i = 0; i < 2; i++)
			p[1 + i] = (struct pollfd){ .fd = r->sink[i].buf.n > 0 ? r->sink[i].fd : -1,
						    .events = POLLOUT };
		poll(p, 3, 100);
		if (read(r->sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si) && si.ssi_signo != SIGCHLD)
			until = now_ms(), r->status = r->status != 0 ? r->status : 128 + (int)si.ssi_signo;
		move_output(r);
	}
	for (int i = 0; i < 2; i++)
		sink_close(&r->sink[i]);
}

int run_far(struct job *j)
{
	static struct run r; /* large */

	r = (struct run){ .job = j, .end_at = -1, .kill_at = -1, .looped = now_ms() };
	r.limit_ms = (int)param_num(&j->params, PARAM_START_TIMEOUT);
	if (r.limit_ms < 2000) /* far ends give a sign of life each 500 ms before they know better */
		r.limit_ms = 2000;
	signal(SIGPIPE, SIG_IGN);
	r.sigfd = ranks_signals(&r.mask);
	if (r.sigfd < 0)
		return tool_error("run", "signalfd: %s", strerror(errno));
	for (int i = 0; i < j->hosts; i++)
		r.far[i] = (struct far){ .host = &j->host[i], .fd = { -1, -1, -1 }, .heard = now_ms() };
	sink_open(&r.sink[0], STDOUT_FILENO);
	sink_open(&r.sink[1], STDERR_FILENO);
	for (int i = 0; i < j->hosts && r.status == 0; i++) {
		const int err = ssh_start(param_str(&j->params, PARAM_SSH), j->host[i].name, &r.mask,
					  &r.far[i].ssh, r.far[i].fd);

		if (err != 0)
			fail(&r, EXIT_USAGE, "host %s: starting an ssh: %s", j->host[i].name, strerror(err));
	}
	while (!are_over(&r)) {
		wait_and_move(&r);
		reap(&r);
		go_on(&r);
		look_at_limits(&r);
	}
	flush_sinks(&r);
	for (int i = 0; i < j->hosts; i++) {
		close_fd(&r.far[i].fd[ERR]);
		buf_free(&r.far[i].from);
		buf_free(&r.far[i].words);
	}
	close(r.sigfd);
	return r.status;
}
