/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of `sircl run` share: the ranks that a process starts itself (cmd_run_ranks.c), the list of
 * hosts (cmd_run_hosts.c), the caller's side of ranks on other machines (cmd_run_far.c) and the far side of
 * it (cmd_run_agent.c), which exchange frames (cmd_run_frame.c) over the standard streams of an ssh.
 */
#ifndef TOOLS_CMD_RUN_H
#define TOOLS_CMD_RUN_H
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/auth.h"
#include "base/param.h"

#define RANKS_MAX 64 /* of one communicator */
#define GRACE_MS 5000 /* from SIGTERM to SIGKILL */

int64_t now_ms(void);

/* ---- ranks of this machine ---- */
struct child {
	pid_t pid;
	bool ended;
	int out[2]; /* with `piped`: our ends of its standard output and error; -1: closed */
};

struct ranks {
	int first, n, total; /* their numbers: first .. first + n - 1 of total */
	int local_first, local_total; /* the same among all ranks of this machine */
	char **command;
	const char *root, *secret, *lab; /* the caller's */
	bool piped; /* output comes to us, no rank has standard input */
	sigset_t mask; /* theirs */
	int started, alive;
	struct child child[RANKS_MAX];
	int64_t kill_at; /* ms; -1: nobody is being ended */
	bool killed;
};

struct ending { /* of a rank */
	int rank; /* its number in the job */
	int status; /* as a shell tells it */
	int sig; /* 0: it has exited */
};

/* Blocks the signals that a job handles and gives a descriptor for them; the mask before goes to *old.
 * Negative on failure, with errno. */
int ranks_signals(sigset_t *old);
/* Starts all; 0, or the errno of the rank number `started`, which could not be. */
int ranks_start(struct ranks *);
void ranks_signal(const struct ranks *, int sig);
/* SIGTERM now, SIGKILL after GRACE_MS; once. */
void ranks_end(struct ranks *);
/* True and how, for each rank that has ended since the last call. */
bool ranks_ended(struct ranks *, struct ending *);
/* What is due, and the milliseconds until the next; -1: nothing; -2: there are ranks that cannot be ended. */
int ranks_due(struct ranks *);
/* "rank 3 on spark2 exited with status 1; ending the others", into text; host: NULL for this machine. */
const char *ranks_text(const struct ending *, const char *host, bool others, char *text, size_t n);
/* Kills what failed ranks have left behind, reaps. */
void ranks_close(struct ranks *, bool failed);

/* ---- bytes and frames ---- */
struct buf {
	uint8_t *p;
	size_t n, cap;
};
/* Ends the program if memory is short. */
void buf_add(struct buf *, const void *, size_t);
void buf_drop(struct buf *, size_t); /* the first bytes */
void buf_free(struct buf *);
void buf_u32(struct buf *, uint32_t);
void buf_text(struct buf *, const char *);
/* Writes what goes without waiting; -1: nobody is there to read any more. */
int buf_write(struct buf *, int fd);
/* Reads what is there, `most` bytes at most; bytes, 0 at the end, -1 nothing now. A broken connection is an
 * end. */
ssize_t buf_read(struct buf *, int fd, size_t most);

struct reader { /* bounded; what is not there sets bad and reads as 0 or "" */
	const uint8_t *p;
	size_t n;
	bool bad;
};
uint32_t read_u32(struct reader *);
const char *read_text(struct reader *); /* points into the frame */

enum frame { /* 1 byte, then the length of the body in 4, little-endian */
	     FRAME_ASK = 'a', /* own host, another host: which address do the others reach? */
	     FRAME_JOB = 'j',
	     FRAME_SIGNAL = 's', /* number */
	     FRAME_END = 'e', /* end the ranks */
	     /* from the far end */
	     FRAME_ADDRESS = 'A', /* text, "": none */
	     FRAME_STDOUT = 'O', /* rank, bytes */
	     FRAME_STDERR = 'E',
	     FRAME_FAILED = 'F', /* rank, status, signal */
	     FRAME_REFUSED = 'R', /* status, sentence: nothing runs */
	     FRAME_SAY = 'S', /* sentence */
	     FRAME_PING = 'P',
	     FRAME_DONE = 'D', /* all have ended, all output is out */
};
#define FRAME_MAX (8u << 20) /* longest body: arguments and environment of a command are shorter */
#define CHUNK 16384 /* longest piece of output in a frame, and so the longest line that is never torn */

void frame_add(struct buf *, enum frame, const void *a, size_t na, const void *b, size_t nb);
/* 1: a frame, to be dropped by buf_drop(5 + its length); 0: not all of it is here; -1: longer than FRAME_MAX.
 */
int frame_next(const struct buf *, int *type, struct reader *body);

/* ---- several machines ---- */
struct host {
	char *name; /* for ssh: HOST or USER@HOST, an IPv6 address without brackets */
	int n, first; /* ranks */
};

struct job { /* what the command line says */
	int n; /* ranks; 0: not given */
	char **command;
	struct host host[RANKS_MAX];
	int hosts; /* 0: this machine */
	const char *ssh, *root;
	char *cwd; /* with hosts */
	bool label;
	char *export[256]; /* -x: names */
	int exports;
	char secret[2 * KEY_BYTES + 1], tag[2 * 8 + 1], lab[32];
	struct params params;
};

/* "HOST[:RANKS],..." into job->host; 0 or an exit code, after a sentence. */
int hosts_parse(struct job *, const char *list);
/* With -n: hosts are filled in the order of the list. The numbers of the ranks. */
int hosts_place(struct job *);
void hosts_free(struct job *);
/* NAME or NAME=VALUE of -x. */
int hosts_export(struct job *, const char *arg);
/* Name of the machine as programs on it would look it up: without the user. */
const char *host_bare(const char *name);
/* "HOST:PORT" of the rendezvous from an address with or without a port. */
void root_text(char *text, size_t n, const char *address, int port);
/* The body of FRAME_JOB for ranks at `host`, of which the machine has `local` from number `local_first` on.
 */
void hosts_job(const struct job *, const struct host *, const char *root, int local_first, int local,
	       int ping_ms, struct buf *);
/* An ssh to `host`, started by the command `ssh`; our ends of its standard streams, none of which makes us
 * wait. 0 or an errno. */
int ssh_start(const char *ssh, const char *host, const sigset_t *mask, pid_t *pid, int fd[3]);

struct sink { /* our standard output or error */
	int fd;
	bool own; /* opened by us, so that a write need not wait */
	struct buf buf;
	bool torn[RANKS_MAX]; /* the last piece of the rank had no end of line */
};
void sink_open(struct sink *, int fd);
void sink_add(struct sink *, int rank, bool label, const uint8_t *, size_t);
/* Writes what goes; an errno where nothing will go any more, and the buffer is empty. */
int sink_move(struct sink *);
void sink_close(struct sink *);

/* Starts the ranks over ssh and waits; the exit status. */
int run_far(struct job *);
/* The far end: `sircl run --agent`. Standard input and output speak frames. */
int run_agent(void);
/* The numeric address of this machine that others reach; false: none was found. */
bool own_address(const char *host, const char *other, char *text, size_t n);
#endif
