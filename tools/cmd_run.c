/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sircl run: starts the ranks of a job on this machine, or over ssh on several, hands signals on, ends all of
 * them when one fails. This file: the command line, and jobs of one machine.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "cmd_run.h"
#include "sircl.h"

/* An environment of one variable, to check an option by the rule of its parameter. */
struct one {
	const char *name, *value;
};

static const char *get_one(void *arg, const char *name)
{
	const struct one *o = arg;

	return strcmp(o->name, name) == 0 ? o->value : NULL;
}

/* An option that is a parameter goes into our environment, and so to the ranks. */
static int set_parameter(const char *option, enum param_id id, const char *value)
{
	struct one o = { param_info(id)->name, value };
	char allowed[192];
	struct params p;

	if (*value == '\0' || params_load_from(&p, get_one, &o) != SIRCL_SUCCESS)
		return tool_error("run", "%s takes %s, not '%s'", option,
				  param_allowed(id, allowed, sizeof(allowed)), value);
	params_free(&p);
	if (setenv(o.name, value, 1) != 0)
		return tool_error("run", "%s: %s", o.name, strerror(errno));
	return 0;
}

static int set_ranks(struct job *j, const char *text)
{
	char *end = NULL;

	errno = 0;
	j->n = (int)strtol(text, &end, 10);
	if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || strlen(text) > 3 || j->n < 1 ||
	    j->n > RANKS_MAX)
		return tool_error("run", "-n takes a number of ranks from 1 to %d, not '%s'", RANKS_MAX,
				  text);
	return 0;
}

static int parse_options(struct job *j, int argc, char **argv)
{
	static const struct option options[] = {
		{ "lanes", required_argument, NULL, 'l' }, { "transport", required_argument, NULL, 't' },
		{ "ssh", required_argument, NULL, 's' },   { "root", required_argument, NULL, 'r' },
		{ "label", no_argument, NULL, 'L' },       { NULL, 0, NULL, 0 }
	};
	int c, ret = 0;

	opterr = 0;
	while (ret == 0 && (c = getopt_long(argc, argv, "+:n:H:x:", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			ret = set_ranks(j, optarg);
			break;
		case 'H':
			ret = hosts_parse(j, optarg);
			break;
		case 'x':
			ret = hosts_export(j, optarg);
			break;
		case 'l':
			ret = set_parameter("--lanes", PARAM_LANES, optarg);
			break;
		case 't':
			ret = set_parameter("--transport", PARAM_TRANSPORT, optarg);
			break;
		case 's':
			ret = set_parameter("--ssh", PARAM_SSH, optarg);
			j->ssh = optarg;
			break;
		case 'r':
			j->root = optarg;
			break;
		case 'L':
			j->label = true;
			break;
		case ':':
			return tool_error("run", "%s needs a value", argv[optind - 1]);
		default:
			return tool_error("run", "there is no option %s; see sircl help run",
					  argv[optind - 1]);
		}
	}
	return ret;
}

static int parse(struct job *j, int argc, char **argv)
{
	int ret = parse_options(j, argc, argv);

	if (ret != 0)
		return ret;
	if (j->hosts == 0 && (j->ssh != NULL || j->root != NULL || j->label))
		return tool_error("run", "%s is for ranks on several machines: it needs -H HOST,...",
				  j->ssh != NULL    ? "--ssh"
				  : j->root != NULL ? "--root"
						    : "--label");
	if (j->root != NULL && *j->root == '\0')
		return tool_error("run", "--root takes HOST or HOST:PORT, a name or address of the first "
					 "host that all others reach, not ''");
	if (j->n == 0 && j->hosts == 0)
		return tool_error("run", "-n N, the number of ranks, is missing");
	if (optind >= argc)
		return tool_error("run", "the command to run is missing: sircl run %s -- COMMAND",
				  j->hosts > 0 ? "-H HOST,..." : "-n N");
	j->command = argv + optind;
	if (j->hosts > 0 && (ret = hosts_place(j)) != 0)
		return ret;
	/* what every rank would refuse is said once, here */
	if (params_load(&j->params) != SIRCL_SUCCESS)
		return tool_error("run", "%s", error_last()->msg);
	snprintf(j->lab, sizeof(j->lab), "%d", (int)getpid());
	if (param_str(&j->params, PARAM_LAB) != NULL &&
	    snprintf(j->lab, sizeof(j->lab), "%s", param_str(&j->params, PARAM_LAB)) >= (int)sizeof(j->lab))
		return tool_error("run", "SIRCL_LAB is longer than %zu characters", sizeof(j->lab) - 1);
	return 0;
}

/* Notes which ranks have ended; the first that failed decides. */
static void look_at_ranks(struct ranks *rs, int *status)
{
	struct ending e;
	char text[400];

	while (ranks_ended(rs, &e)) {
		if (e.status == 0 || *status != 0)
			continue;
		*status = e.status;
		tool_error("run", "%s", ranks_text(&e, NULL, rs->alive > 0, text, sizeof(text)));
		ranks_end(rs);
	}
}

/* Until all ranks have ended; false if one cannot be ended (it hangs in the kernel). A signal that was
 * forwarded sets no limit: how long a rank takes to end on its user's request is its own affair; the next
 * signal may ask more strongly. */
static bool wait_for_all(struct ranks *rs, int sigfd, int *status)
{
	for (look_at_ranks(rs, status); rs->alive > 0; look_at_ranks(rs, status)) {
		struct pollfd p = { .fd = sigfd, .events = POLLIN };
		struct signalfd_siginfo si;
		const int due = ranks_due(rs);

		if (due == -2)
			return false;
		if (poll(&p, 1, due) > 0 && read(sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si) &&
		    si.ssi_signo != SIGCHLD)
			ranks_signal(rs, (int)si.ssi_signo);
	}
	return true;
}

/* The place where they meet is a unix socket without a file, which rank 0's library opens. */
static int run_here(const struct job *j)
{
	char root[96];
	struct ranks rs = { .n = j->n,
			    .total = j->n,
			    .local_total = j->n,
			    .command = j->command,
			    .root = root,
			    .secret = j->secret,
			    .lab = j->lab };
	int status = 0, err, sigfd;

	snprintf(root, sizeof(root), "unix:@sircl-%s-%s", j->lab, j->tag);
	sigfd = ranks_signals(&rs.mask);
	if (sigfd < 0)
		return tool_error("run", "signalfd: %s", strerror(errno));
	err = ranks_start(&rs);
	if (err != 0) {
		tool_error("run", "rank %d: %s: %s", rs.started, j->command[0], strerror(err));
		status = err == ENOENT ? 127 : 126; /* as a shell tells it */
		ranks_end(&rs);
	}
	if (!wait_for_all(&rs, sigfd, &status))
		for (int r = 0; r < rs.started; r++)
			if (!rs.child[r].ended)
				tool_error("run",
					   "rank %d (process %d) cannot be ended: it hangs in the kernel", r,
					   (int)rs.child[r].pid);
	ranks_close(&rs, status != 0);
	close(sigfd);
	return status;
}

int cmd_run(int argc, char **argv)
{
	struct job j = { 0 };
	int ret;

	if (argc == 2 && strcmp(argv[1], "--agent") == 0)
		return run_agent();
	ret = parse(&j, argc, argv);
	if (ret == 0 && (auth_random_hex(j.secret, KEY_BYTES) != SIRCL_SUCCESS ||
			 auth_random_hex(j.tag, 8) != SIRCL_SUCCESS))
		ret = tool_error("run", "%s", error_last()->msg);
	if (ret == 0)
		ret = j.hosts > 0 ? run_far(&j) : run_here(&j);
	explicit_bzero(j.secret, sizeof(j.secret));
	hosts_free(&j);
	params_free(&j.params);
	return ret;
}
