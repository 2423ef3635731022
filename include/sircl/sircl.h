/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsircl: collectives on a switchless ring (or line) of machines.
 *
 * A communicator joins `size` ranks, one per process (or per thread: a process may hold several
 * communicators, each used by one thread). Every rank of a communicator must issue the same collectives in
 * the same order. A mismatched call is an error on the ranks that see it, never a hang.
 *
 * Buffers are host memory for now: pass SIRCL_HOST as stream. A call with SIRCL_HOST blocks until the result
 * is in `recv` and the caller may change `send` again. Any other stream gives SIRCL_UNSUPPORTED. Every
 * collective and point-to-point call also has a form that does not block (`_start`, which gives a request)
 * and may be part of a group (sircl_group_begin).
 *
 * Counts are in elements, 0 is allowed. Buffers may have any alignment. A buffer that a rank does not need
 * (send of a broadcast on ranks other than root, and the like) is not looked at and may be NULL.
 *
 * Numerics. All ranks get identical bits; bits depend on type, operation, count, number of ranks, cabling and
 * algorithm, never on lanes, timing or processor. Floats of up to 32 bits are computed in fp32, float64 in
 * fp64, and rounded to the type to nearest even: once with `exchange` and `two-shot`, which sum in rank
 * order; after every + with `two-matchings` and `doubling` ((a+b)+(c+d) by cabling), `ring` and `pipeline`
 * (order of the cabling). float8e4m3 overflows to NaN, the others to infinity; every NaN is the canonical
 * one. Integers wrap modulo 2^n. SIRCL_AVG divides the sum before that last rounding; of integers it sums
 * modulo 2^64 and truncates toward zero, in rank order. SIRCL_MIN and SIRCL_MAX give NaN if any input is NaN.
 * SIRCL_ALGO forces an algorithm, SIRCL_DETERMINISTIC=1 rank order.
 *
 * Errors: every function returns a sircl_result_t. sircl_last_error() gives the sentence that belongs to the
 * last failure: which rank, peer, cable, lane and collective, and what to do. An argument error
 * (SIRCL_INVALID_ARGUMENT, SIRCL_INVALID_USAGE, SIRCL_UNSUPPORTED) leaves the communicator usable and moves
 * no data. Any other error of a collective, a split or a point-to-point call ends the communicator on all
 * ranks: from then on every such call returns the same error, and only sircl_comm_query,
 * sircl_comm_async_error, sircl_last_error, sircl_comm_abort and sircl_comm_destroy are legal. What concerns
 * this rank alone (memory, operations) may also fail with SIRCL_NO_MEMORY or SIRCL_SYSTEM_ERROR and leaves
 * the communicator usable.
 *
 * Threads: calls on different communicators may run at once. Of one communicator, one thread at a time; the
 * exceptions, legal from any thread at any time before sircl_comm_destroy, are sircl_comm_query,
 * sircl_comm_async_error and sircl_comm_abort.
 *
 * Fork: communicators stay with the parent. In the child every call on one gives SIRCL_INVALID_USAGE, besides
 * sircl_comm_destroy, which frees the child's memory of it and leaves the parent's alone; the child may
 * create communicators of its own.
 */
#ifndef SIRCL_H
#define SIRCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* the library itself is built with hidden visibility */
#endif

#define SIRCL_VERSION_MAJOR 0
#define SIRCL_VERSION_MINOR 1
#define SIRCL_VERSION_PATCH 0
#define SIRCL_VERSION (SIRCL_VERSION_MAJOR * 10000 + SIRCL_VERSION_MINOR * 100 + SIRCL_VERSION_PATCH)

typedef enum {
	SIRCL_SUCCESS = 0,
	SIRCL_INVALID_ARGUMENT =
		1, /* a bad pointer, type, count, rank or buffer; the communicator is unharmed */
	SIRCL_INVALID_USAGE = 2, /* a call that is not legal now; the communicator is unharmed */
	SIRCL_UNSUPPORTED =
		3, /* legal, but not in this version or on this machine; the communicator is unharmed */
	SIRCL_BAD_CONFIG = 4, /* a parameter, environment variable or configuration file */
	SIRCL_SYSTEM_ERROR = 5, /* a call to the operating system failed, or the hardware (SIRCL_CHECKSUM) */
	SIRCL_NO_MEMORY = 6,
	SIRCL_TIMEOUT = 7, /* something did not happen within its limit */
	SIRCL_REMOTE_ERROR = 8, /* another rank failed, left or died */
	SIRCL_MISMATCH = 9, /* the ranks did not issue the same call */
	SIRCL_ABORTED = 10, /* sircl_comm_abort was called, here or on another rank */
	SIRCL_INTERNAL_ERROR = 11, /* a defect in the library */
	SIRCL_IN_PROGRESS = 12, /* not an error: not finished yet */
} sircl_result_t;

/* Element types. float16, bfloat16 and the two float8 are the bits of IEEE binary16, of the upper half of a
 * float32, and of OCP OFP8. */
typedef enum {
	SIRCL_INT8 = 0,
	SIRCL_UINT8 = 1,
	SIRCL_INT32 = 2,
	SIRCL_UINT32 = 3,
	SIRCL_INT64 = 4,
	SIRCL_UINT64 = 5,
	SIRCL_FLOAT16 = 6,
	SIRCL_FLOAT32 = 7,
	SIRCL_FLOAT64 = 8,
	SIRCL_BFLOAT16 = 9,
	SIRCL_FLOAT8E4M3 = 10,
	SIRCL_FLOAT8E5M2 = 11,
	SIRCL_TYPE_COUNT = 12,
} sircl_type_t;

/* Reduction operations, for all types; besides these, what sircl_op_create_premul_sum makes. */
typedef enum {
	SIRCL_SUM = 0,
	SIRCL_PROD = 1,
	SIRCL_MAX = 2,
	SIRCL_MIN = 3,
	SIRCL_AVG = 4,
	SIRCL_OP_COUNT = 5,
} sircl_op_t;

typedef struct sircl_comm *sircl_comm_t;
typedef struct sircl_request *sircl_request_t;
typedef void *sircl_stream_t;

/* The stream of host memory. Not NULL, which is CUDA's default stream. */
#define SIRCL_HOST ((sircl_stream_t)(intptr_t)-1)

/*
 * What one rank makes and every rank of a communicator needs: a random secret and the address of the
 * rendezvous. Treat it as a secret; it is plain bytes and may be copied.
 */
#define SIRCL_UNIQUE_ID_BYTES 128
typedef struct {
	unsigned char bytes[SIRCL_UNIQUE_ID_BYTES];
} sircl_unique_id_t;

/*
 * Configuration of one communicator. Start from SIRCL_CONFIG_INIT; `size` tells which version of the
 * structure the caller was compiled with, fields added later keep their defaults. A field left at its default
 * follows the environment (sircl params).
 */
typedef struct sircl_config {
	size_t size;
	const char *name; /* in messages; NULL: "comm". Copied */
	uint32_t start_timeout_ms; /* limit for sircl_comm_create; 0: SIRCL_START_TIMEOUT */
	uint32_t op_timeout_ms; /* limit for a stalled transport inside a collective; 0: SIRCL_TIMEOUT */
} sircl_config_t;
#define SIRCL_CONFIG_INIT \
	{ \
		sizeof(struct sircl_config), NULL, 0, 0 \
	}

/* What sircl_comm_query fills in. The caller sets `size` = sizeof(struct sircl_info); no more than that is
 * written. */
typedef struct sircl_info {
	size_t size;
	int rank, nranks;
	int position; /* place along the cables, 0..nranks-1 */
	int ring; /* 1: ring, 0: line */
	int next_rank; /* rank at the end of the NEXT cable, -1: none */
	int prev_rank; /* rank at the end of the PREV cable, -1: none */
	int next_lanes; /* lanes of each cable that are up now */
	int prev_lanes; /* */
	char transport[16]; /* slowest provider of this communicator: "shm", "tcp", ... */
	uint64_t memory_bytes; /* memory that this communicator holds; of a split: without what it shares */
	uint64_t operations; /* collectives and point-to-point operations finished */
	uint64_t bytes_sent[2],
		bytes_received[2]; /* payload over NEXT [0] and PREV [1], relayed traffic included */
	/* Payload put on each lane of NEXT and PREV, frames sent again and the library's own messages
	 * included. Headers are not: under large messages the port's own counter says up to 1 % more over
	 * tcp. */
	uint64_t lane_bytes_sent[2][8];
	uint64_t frames_replayed; /* frames sent again after a lane was lost */
} sircl_info_t;

/* Version of the library that is loaded, as SIRCL_VERSION. */
int sircl_version(void);

/* A constant string for a result code, never NULL. */
const char *sircl_strerror(sircl_result_t result);

/*
 * The sentence of the last failure of `comm`, or, for comm == NULL, of the calling thread's last failed call.
 * Never NULL; "" if there was none. Valid until the next call on the same communicator (thread, for NULL);
 * the caller does not free it.
 */
const char *sircl_last_error(sircl_comm_t comm);

/*
 * Makes a unique id and opens its rendezvous in the calling process, which must then create a communicator
 * with it (usually as rank 0) and must stay alive until all ranks have. The caller copies the id to the other
 * ranks by its own means.
 */
sircl_result_t sircl_get_unique_id(sircl_unique_id_t *id);

/*
 * Creates a communicator; every rank calls it, it returns when all are connected, and blocks at most
 * start_timeout_ms. A NULL config means defaults; 0 <= rank < size <= 64. The id is the same on all ranks;
 * with NULL, rendezvous and key come from the environment: sircl run, or SIRCL_ROOT, MASTER_ADDR or
 * SLURM_LAUNCH_NODE_IPADDR with SIRCL_KEY_FILE or SIRCL_KEY (see sircl params). On error *comm is NULL.
 */
sircl_result_t sircl_comm_create(sircl_comm_t *comm, const sircl_config_t *config, int rank, int size,
				 const sircl_unique_id_t *id);

/* Facts about a communicator; see struct sircl_info. Legal from any thread, also after an error. */
sircl_result_t sircl_comm_query(sircl_comm_t comm, sircl_info_t *info);

/* *error = SIRCL_SUCCESS, or what has ended this communicator. Never blocks. Legal from any thread. */
sircl_result_t sircl_comm_async_error(sircl_comm_t comm, sircl_result_t *error);

/* Ends the communicator at once on all ranks: running operations return SIRCL_ABORTED. Never blocks. Legal
 * from any thread. */
sircl_result_t sircl_comm_abort(sircl_comm_t comm);

/*
 * Waits until everything this rank has issued is finished, and until all ranks have called
 * sircl_comm_finalize (or destroy): a rank passes on what others send, so none may leave before. Collective;
 * a rank that calls another collective meanwhile gets SIRCL_MISMATCH. Then only destroy is legal. With
 * requests that were not waited for: SIRCL_INVALID_USAGE, and nothing has changed.
 */
sircl_result_t sircl_comm_finalize(sircl_comm_t comm);

/*
 * Frees a communicator; finalizes it first (see there: all ranks) if that was not done and it has not ended
 * with an error. Frees in any case; a result other than success tells what went wrong. (Not freed is what is
 * no communicator, SIRCL_INVALID_ARGUMENT, or one that another thread is in a call with or that has requests
 * which were not waited for, SIRCL_INVALID_USAGE.) After a split, destroying the last communicator that this
 * rank has of one sircl_comm_create waits until all ranks of that have done so, since until then their
 * traffic may pass through here.
 */
sircl_result_t sircl_comm_destroy(sircl_comm_t comm);

/*
 * Memory that lanes can reach without staging, aligned to the page size, freed by sircl_mem_free or with the
 * communicator. Collectives accept any memory; this is the fastest.
 */
sircl_result_t sircl_mem_alloc(sircl_comm_t comm, size_t bytes, void **ptr);
sircl_result_t sircl_mem_free(sircl_comm_t comm, void *ptr);

/*
 * Makes the caller's memory [ptr, ptr + bytes) reachable without staging. It must stay mapped until
 * sircl_deregister (or destroy): a network card keeps the pages that it was given, so memory that is freed,
 * or mapped anew at the same address, before it is deregistered gives wrong data without an error. Over RoCE
 * lanes it counts against the limit on locked memory (ulimit -l). Ranges of one communicator must not
 * overlap. There is no implicit registration: memory that was never registered may come and go between calls.
 */
sircl_result_t sircl_register(sircl_comm_t comm, void *ptr, size_t bytes);
sircl_result_t sircl_deregister(sircl_comm_t comm, void *ptr);

/*
 * Splits a communicator: ranks that give the same `colour` (>= 0) get a new communicator together, with ranks
 * ordered by (`key`, rank in comm). SIRCL_NO_COLOUR: takes part and gets *child = NULL. Collective over
 * `comm`. config as in sircl_comm_create, NULL: defaults; name NULL: comm's. Members need not be neighbours:
 * what lies between them passes their traffic on. The child shares cables, memory registrations and the
 * engine with its parent, which may be destroyed before it; the cables of a rank are closed with the last of
 * its communicators that came from one sircl_comm_create. A rank that dies ends all of them; an error or an
 * abort ends the one that it happened on. A rank can be rank 0 of 65,532 splits.
 */
#define SIRCL_NO_COLOUR (-1)
sircl_result_t sircl_comm_split(sircl_comm_t comm, int colour, int key, const sircl_config_t *config,
				sircl_comm_t *child);

/*
 * An operation that sums after each rank has multiplied its own elements by `*scalar` (one element of `type`,
 * copied; ranks may differ). The product is rounded to the type (integers wrap), then summed as SIRCL_SUM.
 * For collectives on `comm` with this type only; all ranks of a call must use such an operation. Destroyed by
 * sircl_op_destroy, or with the communicator; calls that were issued before that are not harmed.
 */
sircl_result_t sircl_op_create_premul_sum(sircl_op_t *op, const void *scalar, sircl_type_t type,
					  sircl_comm_t comm);
sircl_result_t sircl_op_destroy(sircl_op_t op, sircl_comm_t comm);

/*
 * recv[i] = op over ranks of send[i], 0 <= i < count, on every rank. In place: send == recv; other overlaps
 * are an error.
 */
sircl_result_t sircl_all_reduce(const void *send, void *recv, size_t count, sircl_type_t type, sircl_op_t op,
				sircl_comm_t comm, sircl_stream_t stream);

/*
 * recv[r * count + i] = send of rank r [i], 0 <= i < count, on every rank; recv holds count * size elements.
 * In place: send == recv + rank * count elements; other overlaps are an error.
 */
sircl_result_t sircl_all_gather(const void *send, void *recv, size_t count, sircl_type_t type,
				sircl_comm_t comm, sircl_stream_t stream);

/*
 * recv[i] = op over ranks of send[rank * count + i], 0 <= i < count: rank r gets share r of the reduction;
 * send holds count * size elements. In place: recv == send + rank * count elements, of which only that share
 * is changed; other overlaps are an error.
 */
sircl_result_t sircl_reduce_scatter(const void *send, void *recv, size_t count, sircl_type_t type,
				    sircl_op_t op, sircl_comm_t comm, sircl_stream_t stream);

/* recv[i] = send of root [i], 0 <= i < count, on every rank. In place (on root): send == recv. */
sircl_result_t sircl_broadcast(const void *send, void *recv, size_t count, sircl_type_t type, int root,
			       sircl_comm_t comm, sircl_stream_t stream);

/* On root: recv[i] = op over ranks of send[i], 0 <= i < count. In place (on root): send == recv. */
sircl_result_t sircl_reduce(const void *send, void *recv, size_t count, sircl_type_t type, sircl_op_t op,
			    int root, sircl_comm_t comm, sircl_stream_t stream);

/*
 * recv[r * count + i] = send of rank r [rank * count + i], 0 <= i < count: everybody gives everybody a share;
 * send and recv hold count * size elements. In place: send == recv.
 */
sircl_result_t sircl_all_to_all(const void *send, void *recv, size_t count, sircl_type_t type,
				sircl_comm_t comm, sircl_stream_t stream);

/*
 * On root: recv[r * count + i] = send of rank r [i], 0 <= i < count; recv holds count * size elements. In
 * place (on root): send == recv + root * count elements.
 */
sircl_result_t sircl_gather(const void *send, void *recv, size_t count, sircl_type_t type, int root,
			    sircl_comm_t comm, sircl_stream_t stream);

/*
 * recv[i] = send of root [rank * count + i], 0 <= i < count; root's send holds count * size elements. In
 * place (on root): recv == send + root * count elements.
 */
sircl_result_t sircl_scatter(const void *send, void *recv, size_t count, sircl_type_t type, int root,
			     sircl_comm_t comm, sircl_stream_t stream);

/* Returns when all ranks have called it. */
sircl_result_t sircl_barrier(sircl_comm_t comm, sircl_stream_t stream);

/*
 * Point to point between any two ranks; messages of a pair arrive in order. A send matches the peer's recv of
 * the same count and type. A peer that is no neighbour is reached through the library of the ranks between. A
 * send returns when `buf` may be changed, which may be before the peer has received it. To oneself: only with
 * both the send and the recv in one group, or started.
 */
sircl_result_t sircl_send(const void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
			  sircl_stream_t stream);
sircl_result_t sircl_recv(void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
			  sircl_stream_t stream);

/*
 * The same without waiting. The call checks its arguments and begins; *request is what to wait for; until
 * then the buffers belong to the library. Collectives of one communicator run in the order in which they were
 * started, on all ranks alike; point-to-point operations run beside them. On an error of the arguments
 * nothing has begun and *request is NULL. Requests belong to the thread rule of their communicator and must
 * be waited for (or tested to the end) before it is destroyed; after an error of the communicator they end
 * with that error.
 */
sircl_result_t sircl_all_reduce_start(const void *send, void *recv, size_t count, sircl_type_t type,
				      sircl_op_t op, sircl_comm_t comm, sircl_stream_t stream,
				      sircl_request_t *request);
sircl_result_t sircl_all_gather_start(const void *send, void *recv, size_t count, sircl_type_t type,
				      sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request);
sircl_result_t sircl_reduce_scatter_start(const void *send, void *recv, size_t count, sircl_type_t type,
					  sircl_op_t op, sircl_comm_t comm, sircl_stream_t stream,
					  sircl_request_t *request);
sircl_result_t sircl_broadcast_start(const void *send, void *recv, size_t count, sircl_type_t type, int root,
				     sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request);
sircl_result_t sircl_reduce_start(const void *send, void *recv, size_t count, sircl_type_t type,
				  sircl_op_t op, int root, sircl_comm_t comm, sircl_stream_t stream,
				  sircl_request_t *request);
sircl_result_t sircl_all_to_all_start(const void *send, void *recv, size_t count, sircl_type_t type,
				      sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request);
sircl_result_t sircl_gather_start(const void *send, void *recv, size_t count, sircl_type_t type, int root,
				  sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request);
sircl_result_t sircl_scatter_start(const void *send, void *recv, size_t count, sircl_type_t type, int root,
				   sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request);
sircl_result_t sircl_barrier_start(sircl_comm_t comm, sircl_stream_t stream, sircl_request_t *request);
sircl_result_t sircl_send_start(const void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
				sircl_stream_t stream, sircl_request_t *request);
sircl_result_t sircl_recv_start(void *buf, size_t count, sircl_type_t type, int peer, sircl_comm_t comm,
				sircl_stream_t stream, sircl_request_t *request);

/*
 * sircl_test moves things on and does not block: *done = 1 if the operation has ended, and then the result is
 * returned, the request is freed and *request set to NULL; else *done = 0 and SIRCL_SUCCESS. sircl_wait
 * returns when it has ended. A NULL request has ended with success. Waiting for a message to oneself whose
 * partner was not started is SIRCL_INVALID_USAGE, and the request stays.
 */
sircl_result_t sircl_test(sircl_request_t *request, int *done);
sircl_result_t sircl_wait(sircl_request_t *request);

/*
 * A group: calls of this thread between begin and end, on one or several communicators, are collected and
 * start together at the outermost end; they all progress together, so any order of sends and receives ends.
 * Blocking calls return at once (their results are there when sircl_group_end returns, which waits for all of
 * them); of _start calls the group only does the start. Collectives of one communicator run in the order of
 * the calls. If a call fails its checks it returns that, and sircl_group_end returns the first such error and
 * starts nothing. Only collectives, point-to-point calls, and nested groups are allowed inside; what any
 * thread may call at any time is as well.
 */
sircl_result_t sircl_group_begin(void);
sircl_result_t sircl_group_end(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
