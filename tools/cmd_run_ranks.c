/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks that a process starts on its own machine, for `sircl run` and for its far end.
 *
 * Every rank is the leader of its own process group. So a signal reaches a rank exactly once, whether a
 * terminal, a supervisor or `kill` sent it (it reaches this process, which forwards it), and what a rank has
 * started ends with it. A group that is not the terminal's own cannot read from it, so rank 0 gets our
 * standard input unless that is a terminal, the others get none.
 *
 * Invariant: a rank that has ended is not reaped before all have, so its process id, and with it the name of
 * its group, cannot belong to somebody else when we signal it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cmd_run.h"

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int ranks_signals(sigset_t *old)
{
	sigset_t set;

	signal(SIGCHLD, SIG_DFL); /* may be inherited as ignored, then nothing could be waited for */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, old);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool set_number(const char *name, int v)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", v);
	return setenv(name, text, 1) == 0;
}

static bool set_streams(const struct ranks *rs, int i, int out, int err)
{
	const bool none = rs->piped || i > 0 || isatty(STDIN_FILENO);
	const int null = none ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;

	if (none && (null < 0 || dup2(null, STDIN_FILENO) < 0))
		return false;
	return !rs->piped || (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0);
}

/* In the child: becomes the rank. Returns only on failure, with errno. */
static void become_rank(const struct ranks *rs, int i, pid_t parent, int out, int err)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return;
	if (getppid() != parent) /* it died before the line above */
		_exit(128 + SIGKILL);
	if (setpgid(0, 0) != 0 || !set_streams(rs, i, out, err))
		return;
	if (!set_number("SIRCL_RANK", rs->first + i) || !set_number("SIRCL_NRANKS", rs->total) ||
	    !set_number("SIRCL_LOCAL_RANK", rs->local_first + i) ||
	    !set_number("SIRCL_LOCAL_NRANKS", rs->local_total) || setenv("SIRCL_ROOT", rs->root, 1) != 0 ||
	    setenv("SIRCL_SECRET", rs->secret, 1) != 0 || setenv("SIRCL_LAB", rs->lab, 1) != 0)
		return;
	if (rs->piped)
		signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &rs->mask, NULL);
	execvp(rs->command[0], rs->command);
}

/* 0, or the errno of what failed in the parent or the child. Writing ends of pipes: out, err. */
static int start_rank(struct ranks *rs, int i, int out, int errfd)
{
	const pid_t parent = getpid();
	int report[2], err = 0;
	ssize_t k;
	pid_t pid;

	if (pipe2(report, O_CLOEXEC) != 0)
		return errno;
	pid = fork();
	if (pid == 0) {
		become_rank(rs, i, parent, out, errfd);
		err = errno;
		k = write(report[1], &err, sizeof(err));
		_exit(k == (ssize_t)sizeof(err) ? 127 : 126);
	}
	err = errno;
	close(report[1]);
	if (pid < 0) {
		close(report[0]);
		return err;
	}
	err = 0;
	do /* ends when the child has become the command: its end of the pipe closes */
		k = read(report[0], &err, sizeof(err));
	while (k < 0 && errno == EINTR);
	close(report[0]);
	if (k > 0) { /* it has ended itself, no rank came to be */
		waitpid(pid, NULL, 0);
		return err;
	}
	rs->child[i].pid = pid;
	rs->started++;
	rs->alive++;
	return 0;
}

/* With pipes for its output; our ends do not make us wait. */
static int start_piped(struct ranks *rs, int i)
{
	int pipes[2][2] = { { -1, -1 }, { -1, -1 } }, err = 0;

	for (int s = 0; s < 2 && err == 0; s++)
		if (pipe2(pipes[s], O_CLOEXEC) != 0 || fcntl(pipes[s][0], F_SETFL, O_NONBLOCK) != 0)
			err = errno;
	if (err == 0)
		err = start_rank(rs, i, pipes[0][1], pipes[1][1]);
	for (int s = 0; s < 2; s++) {
		if (pipes[s][1] >= 0)
			close(pipes[s][1]);
		if (err != 0 && pipes[s][0] >= 0)
			close(pipes[s][0]);
		rs->child[i].out[s] = err == 0 ? pipes[s][0] : -1;
	}
	return err;
}

int ranks_start(struct ranks *rs)
{
	int err = 0;

	rs->kill_at = -1;
	for (int i = 0; i < rs->n && err == 0; i++)
		err = rs->piped ? start_piped(rs, i) : start_rank(rs, i, -1, -1);
	return err;
}

void ranks_signal(const struct ranks *rs, int sig)
{
	for (int i = 0; i < rs->started; i++)
		kill(-rs->child[i].pid, sig);
}

void ranks_end(struct ranks *rs)
{
	if (rs->kill_at >= 0)
		return;
	ranks_signal(rs, SIGTERM);
	ranks_signal(rs, SIGCONT); /* a stopped rank could not end */
	rs->kill_at = now_ms() + GRACE_MS;
}

bool ranks_ended(struct ranks *rs, struct ending *e)
{
	for (int i = 0; i < rs->started; i++) {
		siginfo_t si = { .si_pid = 0 };

		if (rs->child[i].ended ||
		    waitid(P_PID, (id_t)rs->child[i].pid, &si, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    si.si_pid == 0)
			continue;
		rs->child[i].ended = true;
		rs->alive--;
		e->rank = rs->first + i;
		e->sig = si.si_code == CLD_EXITED ? 0 : si.si_status;
		e->status = e->sig != 0 ? 128 + e->sig : si.si_status;
		return true;
	}
	return false;
}

int ranks_due(struct ranks *rs)
{
	int64_t left;

	if (rs->kill_at < 0 || rs->alive == 0)
		return -1;
	left = rs->kill_at - now_ms();
	if (left > 0)
		return (int)left;
	if (rs->killed)
		return -2;
	ranks_signal(rs, SIGKILL);
	rs->killed = true;
	rs->kill_at = now_ms() + GRACE_MS;
	return GRACE_MS;
}

const char *ranks_text(const struct ending *e, const char *host, bool others, char *text, size_t n)
{
	const char *after = others ? "; ending the others" : "", *on = host != NULL ? " on " : "";

	if (host == NULL)
		host = "";
	if (e->sig != 0)
		snprintf(text, n, "rank %d%s%s was ended by signal %d (%s)%s", e->rank, on, host, e->sig,
			 strsignal(e->sig), after);
	else
		snprintf(text, n, "rank %d%s%s exited with status %d%s", e->rank, on, host, e->status, after);
	return text;
}

void ranks_close(struct ranks *rs, bool failed)
{
	if (failed)
		ranks_signal(rs, SIGKILL);
	for (int i = 0; i < rs->started; i++)
		waitpid(rs->child[i].pid, NULL, WNOHANG);
}
