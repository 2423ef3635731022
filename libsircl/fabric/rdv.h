/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rendezvous: ranks meet at a root over the management network and exchange records in rounds, each an
 * all-gather of small blobs. Every rank sees the same blobs, so decisions are pure functions of them: go, or
 * one sentence on all ranks. A rank that cannot go on puts its sentence in place of a blob, and the round
 * gives it to everybody; so does a rank that vanishes, and the time limit, which names who is missing.
 *
 * Every connection passes base/auth first. Over a unix socket with no key at all, the peer's uid must be ours
 * instead. Messages after that: u32 length of the body, u8 type, body; bounded by RDV_MSG_MAX.
 */
#ifndef FABRIC_RDV_H
#define FABRIC_RDV_H
#include "base/auth.h"
#include "coll/coll.h"
#include "fabric/address.h"

#define RDV_BLOB_MAX 16384
#define RDV_JOB 16
#define RDV_LAB 40
#define RDV_FIRST (RDV_JOB + 1 + KEY_BYTES + RDV_LAB) /* before the blobs of the first round */
#define RDV_MSG_MAX (RDV_FIRST + COLL_MAX_RANKS * (RDV_BLOB_MAX + 4))
#define RDV_VERSION 1

enum rdv_type { RDV_JOIN = 1, RDV_BLOB, RDV_FAIL, RDV_ROUND, RDV_LEAVE };

struct rdv_root;
/* Listens at `at` (port 0: any; *at is set to the real address) and serves one job from its own thread. Keys
 * are copied. */
sircl_result_t rdv_root_start(struct sircl_ctx *, struct address *at, const struct key_ring *,
			      struct rdv_root **);
/* Waits until the job that is served has left (it is not ended otherwise); true if it has. */
bool rdv_root_finish(struct rdv_root *, uint64_t limit_ns);
/* Lets the root end by itself when its job has left (or with the process); then, or now if it has ended,
 * done(arg) is called from any thread. */
void rdv_root_leave(struct rdv_root *, void (*done)(void *), void *arg);
/* Ends the thread (a job still being served fails by name) and frees. */
void rdv_root_stop(struct rdv_root *);

struct rdv {
	struct sircl_ctx *ctx;
	struct address at;
	int fd, rank, n, round;
	uint64_t limit;
	bool failed; /* the root has told the sentence that ends this start */
	uint8_t *buf; /* RDV_MSG_MAX, holds the last round's answer */
	size_t len;
	uint8_t job[RDV_JOB]; /* after the first round: chosen by the root */
	uint8_t job_key[KEY_BYTES];
	bool has_job_key; /* the root made a key because there was none (one machine, unix socket) */
	char lab[RDV_LAB];
	struct {
		const uint8_t *p;
		size_t len;
	} blob[COLL_MAX_RANKS]; /* of the last round, into buf */
};

/* Connects (retrying until the limit: the root may not be there yet) and joins. */
sircl_result_t rdv_join(struct rdv *, struct sircl_ctx *, const struct address *, const struct key_ring *,
			int rank, int n, uint64_t limit);
/* One round: gives `mine`, waits for everybody's (blob[]). On failure the sentence is that of whoever failed
 * first. */
sircl_result_t rdv_round(struct rdv *, const void *mine, size_t len);
/* Tells everybody that this rank cannot go on; returns e's code. */
sircl_result_t rdv_fail(struct rdv *, const struct sircl_error *e);
void rdv_leave(struct rdv *);

#define RDV_AUTH_CONTEXT "sircl rendezvous 1"
#endif
