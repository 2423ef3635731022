/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the rendezvous root: its connections and its state. The thread (rdv_root.c) owns everything but
 * what rdv_life.c says. */
#ifndef FABRIC_RDV_INTERNAL_H
#define FABRIC_RDV_INTERNAL_H
#include <pthread.h>
#include <stdatomic.h>
#include "fabric/rdv.h"

/* Strangers: connections that have proved no key yet. All ranks may come at once. */
enum { STRANGERS = COLL_MAX_RANKS + 32, CONNS = COLL_MAX_RANKS + STRANGERS };
#define AUTH_LIMIT (5 * SEC)
#define LINGER (2 * SEC) /* for the last bytes of an answer to a rank that reads slowly */

enum { ROOT_LEFT = 1, ROOT_ENDED };
enum conn_state { CONN_FREE, CONN_AUTH, CONN_JOINING, CONN_MEMBER };

struct conn {
	int fd, rank;
	enum conn_state state;
	struct auth auth;
	uint64_t since;
	uint8_t *in; /* one message: head 5 and body */
	size_t nin, cap;
	uint8_t *out;
	size_t nout, out_at;
};

struct blob {
	uint8_t *p;
	size_t len;
	bool given;
};

struct rdv_root {
	struct sircl_ctx *ctx;
	struct key_ring keys;
	struct address at;
	int listener, quit, over; /* over: readable when the thread is about to end */
	pthread_t thread;
	struct conn conn[CONNS];
	int n, joined, given, left, round;
	int member[COLL_MAX_RANKS]; /* rank -> conn, -1 */
	struct blob blob[COLL_MAX_RANKS];
	uint64_t deadline;
	bool failed, done, started;
	_Atomic int alone; /* 0: owned, ROOT_LEFT: nobody will ask for it, ROOT_ENDED: the thread has ended */
	void (*left_done)(void *);
	void *left_arg;
	sircl_result_t fail_code;
	char fail_msg[ERROR_MSG_MAX];
	uint8_t job[RDV_JOB], job_key[KEY_BYTES];
	char lab[RDV_LAB];
};

/* The thread: serves one job from r, then lets go of it (rdv_root_ended). */
void *rdv_serve(void *root);
/* Called by the thread as its last act: frees r if nobody will ask for it. */
void rdv_root_ended(struct rdv_root *);
#endif
