/* SPDX-License-Identifier: Apache-2.0 */
/* Starts an ssh for `sircl run -H`, or what the user has named in its place. No secret is in its arguments.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "cmd_run.h"

/* For a shell: in single quotes. */
static void quote(char *to, size_t n, const char *s)
{
	size_t k = 0;

	to[k++] = '\'';
	for (; *s != '\0' && k + 6 < n; s++) {
		if (*s == '\'') {
			memcpy(to + k, "'\\''", 4);
			k += 4;
		} else {
			to[k++] = *s;
		}
	}
	to[k++] = '\'';
	to[k] = '\0';
}

/* This program, where it lies here, if it lies there too; else what the far PATH has. */
static void far_command(char *line, size_t n)
{
	char self[1024], quoted[4200];
	const ssize_t k = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[k > 0 ? k : 0] = '\0';
	quote(quoted, sizeof(quoted), self);
	snprintf(line, n, "exec sh -c 'test -x \"$0\" || exec sircl run --agent; exec \"$0\" run --agent' %s",
		 quoted);
}

static void become_ssh(const char *ssh, const char *host, const sigset_t *mask, const int fd[3])
{
	char line[4400], script[4096];

	far_command(line, sizeof(line));
	/* a shell takes the command apart, so it may have options, quotes, variables */
	if (snprintf(script, sizeof(script), "%s \"$@\"", ssh) >= (int)sizeof(script))
		return;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	/* no terminal: its signals come to us, and a question for a password fails instead of waiting */
	setsid();
	for (int i = 0; i < 3; i++)
		if (dup2(fd[i], i) < 0)
			return;
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execl("/bin/sh", "sh", "-c", script, "sh", host, line, (char *)NULL);
}

int ssh_start(const char *ssh, const char *host, const sigset_t *mask, pid_t *pid, int fd[3])
{
	int far[3] = { -1, -1, -1 }, err = 0;

	for (int i = 0; i < 3 && err == 0; i++) {
		int p[2];

		if (pipe2(p, O_CLOEXEC) != 0) {
			err = errno;
			break;
		}
		far[i] = p[i != 0];
		fd[i] = p[i == 0];
		if (fcntl(fd[i], F_SETFL, O_NONBLOCK) != 0)
			err = errno;
	}
	*pid = err == 0 ? fork() : 0;
	if (err == 0 && *pid == 0) {
		become_ssh(ssh, host, mask, far);
		_exit(126);
	}
	if (*pid < 0) {
		err = errno;
		*pid = 0;
	}
	for (int i = 0; i < 3; i++)
		if (far[i] >= 0)
			close(far[i]);
	return err;
}
