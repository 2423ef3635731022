/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lane/shm: lanes between two processes of one machine.
 *
 *   shm.c        the provider's table: open, poll, arm, fence, close; which event comes when
 *   shm_conn.c   how two ends meet: abstract socket, handshake, exchange of descriptors
 *   shm_path.c   one epoch's shared memory: mapping it, noticing the peer's end, giving it back
 *   shm_queue.c  the data path: copy into the peer's memory, notes, waking a sleeper
 *
 * An epoch has one `struct shm_path`. Each end makes a memfd with the queue in which it RECEIVES notes and
 * hands it, its arena's memfd and an eventfd to the peer over the socket; nobody else ever sees them, and
 * nothing of it has a name in the file system. After that the socket only tells that the peer has gone (its
 * end is closed by the kernel however the process ends) and carries two words: REVOKE, "I have stopped
 * putting and ask you to stop", and REVOKED, "I have stopped". The peer has `stopped` when one of the two
 * was received or its process has ended: only then can nothing more land here.
 */
#ifndef LANE_SHM_INTERNAL_H
#define LANE_SHM_INTERNAL_H
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>
#include "lane/lane.h"

#define SHM_MAX_PUT (1u << 20)
#define SHM_LIMIT (2 * SEC) /* of a handshake */
#define SHM_PATIENCE (200 * MSEC) /* with an accepted connection when others wait for its place */
#define SHM_CHECK (1 * MSEC) /* a lane that is polled looks at its sockets this often */
#define SHM_HALF_OPEN 8 /* accepted connections that have proved nothing yet */
#define SHM_LINE 128 /* two cache lines: the neighbour line is prefetched on x86, and is one on some arm */
/*
 * Puts to registered memory from this size on go there in one copy by the kernel (process_vm_writev), smaller
 * ones through the bounce ring in two. Measured on a 2-core virtual x86, best of 400, one process doing both
 * copies: 16 KiB 1.0 us by the kernel and 0.2 in two copies, 64 KiB 3.2 and 2.8, 256 KiB equal, 1 MiB 114 and
 * 129.
 */
#define SHM_SINGLE_COPY (256u << 10)
#define SHM_BOUNCE \
	(2 * SHM_MAX_PUT + (64u << 10)) /* > twice the largest record: a record always fits in the end */

/*
 * TSan cannot see that two mappings are the same memory. Where both ends live in one process of a TSan build,
 * an end uses the peer's own mapping, so that TSan checks every order of the data path. Not otherwise: with a
 * mapping of its own an end survives whatever the other does.
 */
#if defined(__SANITIZE_THREAD__)
#define SHM_DIRECT 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHM_DIRECT 1
#endif
#endif
#ifndef SHM_DIRECT
#define SHM_DIRECT 0
#endif

/* One cache line. `seq` is 1 + the number of the note; written last, so that one line carries all. */
struct shm_note {
	struct lane_note note;
	uint32_t len;
	uint32_t bounce; /* 0, or 1 + offset / 64 of the record in the bounce ring that holds the bytes */
	_Atomic uint64_t seq;
};
_Static_assert(sizeof(struct shm_note) == 64, "a note is one cache line");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
	       "atomics in memory of two processes must be lock-free");

/* The bytes of a put that the receiver copies to their place; they follow, 64-aligned. */
struct shm_record {
	uint64_t off;
	uint64_t end; /* position in the ring (ever growing) up to which this record and what was skipped
			 reach */
	uint32_t region, len;
	uint64_t pad[5];
};
_Static_assert(sizeof(struct shm_record) == 64, "records are 64-aligned");

/* In a memfd of the receiving end. */
struct shm_queue {
	/* written by the receiver */
	_Alignas(SHM_LINE) _Atomic uint64_t consumed; /* notes taken out; partner: the sender's refresh */
	_Atomic uint64_t freed; /* position up to which the bounce ring is free; same partner */
	/* set by the receiver before it sleeps, cleared by whoever ends the sleep */
	_Alignas(SHM_LINE) _Atomic uint32_t armed;
	/* SHM_DIRECT only: ends that use this mapping; the receiver has closed; a sender is copying */
	_Alignas(SHM_LINE) _Atomic uint32_t users;
	_Atomic uint32_t closed, copying;
	_Alignas(SHM_LINE) struct shm_note ring[]; /* then the bounce ring */
};

enum shm_word_kind { SHM_REVOKE = 0x72766b31, SHM_REVOKED = 0x72766b32 };
struct shm_word {
	uint32_t kind, epoch;
};

/* Sent by both ends after mutual proof, with three descriptors (arena, queue, eventfd) and credentials. */
struct shm_setup {
	uint32_t magic, epoch;
	uint32_t entries, bounce;
	uint64_t arena_len;
	uint64_t probe_addr,
		probe; /* a word of the sender's memory and what it holds: may the peer reach it? */
	uint64_t queue_addr, arena_addr; /* SHM_DIRECT within one process only */
};
#define SHM_MAGIC 0x53484d31u

struct shm_map {
	void *base;
	size_t len;
};

struct shm_path {
	bool open; /* the fields below are valid */
	bool failed, reported; /* something ended the epoch; LANE_SUSPECT was reported */
	bool fencing; /* fence() was called: no put is accepted */
	bool stopped; /* the peer will put nothing more (see above) */
	bool gone; /* ... because its end of the socket, or its process, is not there any more */
	bool asked; /* REVOKE is sent */
	uint32_t epoch;

	/* receiving */
	struct shm_map rx;
	struct shm_queue *rxq;
	uint8_t *rx_bounce;
	uint64_t tail; /* notes taken out */
	uint32_t rx_mask;
	int wake_fd; /* wakes this end */

	/* sending */
	struct shm_map tx, arena;
	struct shm_queue *txq;
	uint8_t *tx_bounce;
	uint64_t head, consumed_seen, bounce_head, freed_seen;
	uint32_t tx_entries;
	int peer_wake_fd;
	bool direct; /* tx and arena are the peer's own mappings */
	bool vm_ok; /* process_vm_writev reaches the peer */
	pid_t peer_pid; /* 0: not visible from here */
	int pidfd; /* -1: none */
	int sock;
};

/* SHM_PROVED: an accepted connection that waits until allow() lets its epoch come up */
enum shm_step { SHM_FREE, SHM_DIALLING, SHM_PROVING, SHM_PROVED, SHM_SETTING_UP };
struct shm_conn {
	enum shm_step step;
	int fd;
	uint32_t epoch;
	uint64_t limit; /* 0: to be set by the first poll that has a tick */
	struct auth auth;
	struct shm_path path; /* from SHM_SETTING_UP on: the receiving half */
};

struct shm_lane {
	struct lane_base base; /* first */
	struct lane_cfg cfg;
	char label[96]; /* "rank 0: shm lane 0 of cable 0 to position 1" */
	char name[108]; /* of our socket, without the leading NUL */
	struct lane_addr peer_addr;
	int listen_fd; /* -1: this end connects */

	struct shm_path path;
	bool busy; /* the next poll has something to report or to do at once */
	bool armed; /* arm() was called and no poll since */
	uint64_t next_check;

	bool allowed; /* by allow(), for one coming up */
	uint32_t min_epoch;
	struct shm_conn half; /* our dialling, or the accepted one that has proved itself */
	struct shm_conn stranger[SHM_HALF_OPEN];
	uint64_t next_warn; /* strangers are mentioned once a minute at most */

	bool down_owed, down_gone, fenced_owed;
	uint32_t down_epoch, fenced_epoch;
	char why[192], down_why[192];

	struct lane_mem region[LANE_REGIONS_MAX];
	bool region_exported[LANE_REGIONS_MAX]; /* the peer may write it; sources need no entry */
	struct lane_export peer_export;
	uint64_t probe;
	struct lane_stats stats;
};

/* An address that came as a number from the peer, or is going to it. */
static inline void *shm_at(uint64_t addr)
{
	return (void *)(uintptr_t)addr; /* NOLINT(performance-no-int-to-ptr) */
}

/* shm_conn.c */
sircl_result_t shm_listen(struct shm_lane *);
sircl_result_t shm_dial(struct shm_lane *, uint32_t epoch);
/* Moves all handshakes on. A completed one becomes l->path (the caller reports LANE_UP). */
void shm_conn_progress(struct shm_lane *, struct tick *);
void shm_conn_drop(struct shm_lane *, struct shm_conn *);
/* A handshake is going on: look at its socket at every poll. */
bool shm_conn_any(const struct shm_lane *);

/* shm_path.c */
void shm_path_init(struct shm_path *);
/* The receiving half. Returns the queue's memfd, to be passed to the peer and closed, or -1 and l->down_why.
 */
int shm_path_make(struct shm_lane *, struct shm_path *);
void shm_path_offer(struct shm_lane *, struct shm_path *, uint32_t epoch, bool same_process,
		    struct shm_setup *);
/* The sending half, from the peer's setup. Keeps fd[2]; the caller closes the others. False: l->down_why. */
bool shm_path_join(struct shm_lane *, struct shm_path *, const struct shm_setup *, const int fd[3],
		   pid_t pid);
void shm_path_close(struct shm_lane *, struct shm_path *);
/* Looks at the socket and the peer's process. */
void shm_path_check(struct shm_lane *, struct shm_path *);
void shm_path_revoke(struct shm_lane *, struct shm_path *);
void shm_path_fail(struct shm_lane *, struct shm_path *, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* shm_queue.c */
int shm_queue_put(struct shm_lane *, const struct lane_put *, int n);
/* Up to `max` LANE_NOTE events. */
int shm_queue_drain(struct shm_lane *, struct lane_event *, int max);
bool shm_queue_ready(const struct shm_path *); /* a note waits; seq_cst, see shm_queue.c */
size_t shm_queue_bytes(uint32_t entries);
#endif
