/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sircl run: starts the ranks of a job on this machine, hands signals on, ends all of them when one fails.
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
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/auth.h"
#include "base/param.h"
#include "sircl.h"

#define RANKS_MAX 64 /* of one communicator */
#define GRACE_MS 5000 /* from SIGTERM to SIGKILL */

struct child {
	pid_t pid;
	bool ended;
};

struct job {
	int n, started, alive, sigfd;
	struct child child[RANKS_MAX];
	char **command;
	const char *lanes, *transport; /* NULL: not given */
	char secret[2 * KEY_BYTES + 1], root[96], lab[32];
	sigset_t old_mask;
	int status; /* of the first rank that failed, as a shell tells it; 0: none */
	int64_t kill_at; /* ms; -1: nobody is being ended */
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* An environment of one variable, to check an option by the rule of its parameter. */
struct one {
	const char *name, *value;
};

static const char *get_one(void *arg, const char *name)
{
	const struct one *o = arg;

	return strcmp(o->name, name) == 0 ? o->value : NULL;
}

static int check_option(const char *option, enum param_id id, const char *value)
{
	struct one o = { param_info(id)->name, value };
	char allowed[192];
	struct params p;

	if (*value == '\0' || params_load_from(&p, get_one, &o) != SIRCL_SUCCESS)
		return tool_error("run", "%s takes %s, not '%s'", option,
				  param_allowed(id, allowed, sizeof(allowed)), value);
	params_free(&p);
	return 0;
}

static int parse(struct job *j, int argc, char **argv)
{
	static const struct option options[] = { { "lanes", required_argument, NULL, 'l' },
						 { "transport", required_argument, NULL, 't' },
						 { NULL, 0, NULL, 0 } };
	char *end = NULL;
	struct params p;
	int c, ret;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:n:", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			errno = 0;
			j->n = (int)strtol(optarg, &end, 10);
			if (errno != 0 || *optarg < '0' || *optarg > '9' || *end != '\0' ||
			    strlen(optarg) > 3 || j->n < 1 || j->n > RANKS_MAX)
				return tool_error("run", "-n takes a number of ranks from 1 to %d, not '%s'",
						  RANKS_MAX, optarg);
			break;
		case 'l':
			j->lanes = optarg;
			break;
		case 't':
			j->transport = optarg;
			break;
		case ':':
			return tool_error("run", "%s needs a value", argv[optind - 1]);
		default:
			return tool_error("run", "there is no option %s; see sircl help run",
					  argv[optind - 1]);
		}
	}
	if (j->n == 0)
		return tool_error("run", "-n N, the number of ranks, is missing");
	if (optind >= argc)
		return tool_error("run", "the command to run is missing: sircl run -n %d -- COMMAND", j->n);
	j->command = argv + optind;
	if (j->lanes != NULL && (ret = check_option("--lanes", PARAM_LANES, j->lanes)) != 0)
		return ret;
	if (j->transport != NULL && (ret = check_option("--transport", PARAM_TRANSPORT, j->transport)) != 0)
		return ret;
	/* what every rank would refuse is said once, here */
	if (params_load(&p) != SIRCL_SUCCESS)
		return tool_error("run", "%s", error_last()->msg);
	snprintf(j->lab, sizeof(j->lab), "%d", (int)getpid());
	if (param_str(&p, PARAM_LAB) != NULL &&
	    snprintf(j->lab, sizeof(j->lab), "%s", param_str(&p, PARAM_LAB)) >= (int)sizeof(j->lab)) {
		params_free(&p);
		return tool_error("run", "SIRCL_LAB is longer than %zu characters", sizeof(j->lab) - 1);
	}
	params_free(&p);
	return 0;
}

/* The secret and the place where the ranks meet: a unix socket without a file, which rank 0's library opens.
 */
static sircl_result_t make_job(struct job *j)
{
	char tag[2 * 8 + 1];

	CHECK(auth_random_hex(j->secret, KEY_BYTES));
	CHECK(auth_random_hex(tag, 8));
	snprintf(j->root, sizeof(j->root), "unix:@sircl-%s-%s", j->lab, tag);
	return SIRCL_SUCCESS;
}

static bool set_number(const char *name, int v)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", v);
	return setenv(name, text, 1) == 0;
}

/* In the child: becomes the rank. Returns only on failure, with errno. */
static void become_rank(const struct job *j, int rank, pid_t parent)
{
	const int null = rank > 0 || isatty(STDIN_FILENO) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return;
	if (getppid() != parent) /* it died before the line above */
		_exit(128 + SIGKILL);
	if (setpgid(0, 0) != 0 || (null >= 0 && dup2(null, STDIN_FILENO) < 0))
		return;
	if (!set_number("SIRCL_RANK", rank) || !set_number("SIRCL_NRANKS", j->n) ||
	    !set_number("SIRCL_LOCAL_RANK", rank) || !set_number("SIRCL_LOCAL_NRANKS", j->n) ||
	    setenv("SIRCL_ROOT", j->root, 1) != 0 || setenv("SIRCL_SECRET", j->secret, 1) != 0 ||
	    setenv("SIRCL_LAB", j->lab, 1) != 0 ||
	    (j->lanes != NULL && setenv("SIRCL_LANES", j->lanes, 1) != 0) ||
	    (j->transport != NULL && setenv("SIRCL_TRANSPORT", j->transport, 1) != 0))
		return;
	sigprocmask(SIG_SETMASK, &j->old_mask, NULL);
	execvp(j->command[0], j->command);
}

/* 0, or the errno of what failed in the parent or the child. */
static int start_rank(struct job *j, int rank)
{
	const pid_t parent = getpid();
	int report[2], err = 0;
	ssize_t k;
	pid_t pid;

	if (pipe2(report, O_CLOEXEC) != 0)
		return errno;
	pid = fork();
	if (pid == 0) {
		become_rank(j, rank, parent);
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
	j->child[rank].pid = pid;
	j->started++;
	j->alive++;
	return 0;
}

static void signal_all(const struct job *j, int sig)
{
	for (int r = 0; r < j->started; r++)
		kill(-j->child[r].pid, sig);
}

static void end_all(struct job *j)
{
	if (j->kill_at >= 0)
		return;
	signal_all(j, SIGTERM);
	signal_all(j, SIGCONT); /* a stopped rank could not end */
	j->kill_at = now_ms() + GRACE_MS;
}

/* Notes which ranks have ended; the first that failed decides. */
static void look_at_children(struct job *j)
{
	for (int r = 0; r < j->started; r++) {
		siginfo_t si = { .si_pid = 0 };
		int status;

		if (j->child[r].ended ||
		    waitid(P_PID, (id_t)j->child[r].pid, &si, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    si.si_pid == 0)
			continue;
		j->child[r].ended = true;
		j->alive--;
		status = si.si_code == CLD_EXITED ? si.si_status : 128 + si.si_status;
		if (status == 0 || j->status != 0)
			continue;
		j->status = status;
		if (si.si_code == CLD_EXITED)
			fprintf(stderr, "sircl run: rank %d exited with status %d%s\n", r, status,
				j->alive > 0 ? "; ending the others" : "");
		else
			fprintf(stderr, "sircl run: rank %d was ended by signal %d (%s)%s\n", r, si.si_status,
				strsignal(si.si_status), j->alive > 0 ? "; ending the others" : "");
		end_all(j);
	}
}

/* Until all ranks have ended; false if one cannot be ended (it hangs in the kernel). A signal that was
 * forwarded sets no limit: how long a rank takes to end on its user's request is its own affair; the next
 * signal may ask more strongly. */
static bool wait_for_all(struct job *j)
{
	bool killed = false;

	for (look_at_children(j); j->alive > 0; look_at_children(j)) {
		struct pollfd p = { .fd = j->sigfd, .events = POLLIN };
		struct signalfd_siginfo si;
		int64_t left = -1;

		if (j->kill_at >= 0 && now_ms() >= j->kill_at) {
			if (killed)
				return false;
			signal_all(j, SIGKILL);
			killed = true;
			j->kill_at = now_ms() + GRACE_MS;
		}
		if (j->kill_at >= 0)
			left = j->kill_at - now_ms();
		if (left < 0 && j->kill_at >= 0)
			left = 0;
		if (poll(&p, 1, (int)left) > 0 && read(j->sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si) &&
		    si.ssi_signo != SIGCHLD)
			signal_all(j, (int)si.ssi_signo);
	}
	return true;
}

int cmd_run(int argc, char **argv)
{
	struct job j = { .kill_at = -1 };
	sigset_t set;
	int ret = parse(&j, argc, argv), err = 0;

	if (ret != 0)
		return ret;
	if (make_job(&j) != SIRCL_SUCCESS)
		return tool_error("run", "%s", error_last()->msg);
	signal(SIGCHLD, SIG_DFL); /* may be inherited as ignored, then nothing could be waited for */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &j.old_mask);
	j.sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (j.sigfd < 0)
		return tool_error("run", "signalfd: %s", strerror(errno));
	for (int r = 0; r < j.n && err == 0; r++)
		err = start_rank(&j, r);
	if (err != 0) {
		tool_error("run", "rank %d: %s: %s", j.started, j.command[0], strerror(err));
		j.status = err == ENOENT ? 127 : 126; /* as a shell tells it */
		end_all(&j);
	}
	if (!wait_for_all(&j))
		for (int r = 0; r < j.started; r++)
			if (!j.child[r].ended)
				tool_error("run",
					   "rank %d (process %d) cannot be ended: it hangs in the kernel", r,
					   (int)j.child[r].pid);
	if (j.status != 0) /* what the ranks have left behind */
		signal_all(&j, SIGKILL);
	for (int r = 0; r < j.started; r++)
		waitpid(j.child[r].pid, NULL, WNOHANG);
	close(j.sigfd);
	explicit_bzero(j.secret, sizeof(j.secret));
	return j.status;
}
