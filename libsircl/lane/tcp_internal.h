/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the tcp provider share: the wire format, one established connection (a stream of records
 * of one epoch), the handshakes in progress, the lane.
 *
 * Invariants:
 *  - a lane has at most one connection, and it belongs to one epoch; a connection of epoch e comes up only if
 *    e >= min_epoch, and fence(e) raises min_epoch above e before anything else;
 *  - bytes reach region memory only from a connection whose lane is not fenced; what was read into the
 * staging buffer before the fence is reported before LANE_FENCED, nothing is read from the socket after
 * fence();
 *  - a record that was begun is finished before another begins, and an end always reads whether or not it can
 *    write, so two ends with full windows cannot wait for each other.
 */
#ifndef LANE_TCP_INTERNAL_H
#define LANE_TCP_INTERNAL_H
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "lane/lane.h"

#define TCP_VERSION 1u

/*
 * Pacing. A sender begins a record only while at most WINDOW - SEG bytes are unacknowledged, so about WINDOW
 * bytes are in flight; the receiver acknowledges at least every ACK_EVERY bytes. With few cores a small
 * window wins: the bytes are still in the cache when the receiver runs, and the sender does not fill
 * megabytes of socket buffer before it is descheduled; but too small a window makes every segment a change of
 * process. Measured with 4 processes in a ring on 2 busy cores (loopback, puts of 256 KiB both ways, medians
 * of 7, GB/s in all, and CPU seconds at best): 64K 0.36, 0.30; 128K 0.73, 0.23; 4M 0.64, 0.32; between two
 * processes 0.76, 0.82, 0.57. The machine was loaded by others: the order holds, the figures hardly. Both
 * ends need the same figures: they are part of the version.
 */
#define TCP_WINDOW (128u << 10)
#define TCP_SEG (64u << 10) /* most payload of one record */
#define TCP_ACK_EVERY (64u << 10)
#define TCP_MAX_PUT (256u << 10)
#define TCP_COPY_LIMIT (8u << 10)
_Static_assert(TCP_ACK_EVERY <= TCP_WINDOW - TCP_SEG, "a sender that waits must be owed an acknowledgement");

#define TCP_STAGE (64u << 10) /* staging buffer for headers and small payloads */
#define TCP_READ (16u << 10) /* most that is read into it at once: a larger payload goes to its place */
#define TCP_BATCH 16 /* records of one sendmsg */
#define TCP_RECEIVES 8 /* receives of one poll */
#define TCP_HALF_OPEN 8 /* accepted sockets whose peer has not proved anything yet */
#define TCP_HANDSHAKE_NS (2 * SEC)
#define TCP_WARN_NS (60 * SEC)
#define TCP_LISTEN_NS (10 * MSEC) /* how often a busy lane that is up looks at its listener */
#define TCP_DOWNS 4

/*
 * Records, little endian. ACK: the first 16 bytes. FENCED: the same; the sender has fenced and
 * closes the socket, so the end that follows does not mean that its process has gone (sent where it can be:
 * not in the middle of a record). PART: 32 bytes and `len` bytes of payload, more records of the same put
 * follow. LAST: all 80 bytes and the payload; then the put is complete. ack_*: cumulative, modulo 2^32: puts
 * whose note was delivered, bytes of PART and LAST records that were taken.
 */
enum tcp_kind { TCP_ACK = 1, TCP_PART = 2, TCP_LAST = 3, TCP_FENCED = 4 };
#define TCP_MAGIC 0x534c0000u /* upper half of tcp_rec.kind */
struct tcp_rec {
	uint32_t kind, crc, ack_puts, ack_bytes; /* crc: CRC32C of the header with this field 0 */
	uint32_t region, len;
	uint64_t off;
	struct lane_note note;
};
#define TCP_ACK_LEN 16u
#define TCP_PART_LEN 32u
#define TCP_LAST_LEN 80u
_Static_assert(sizeof(struct tcp_rec) == TCP_LAST_LEN, "wire format");

/*
 * A connection begins with the preface of the connecting side, in the clear, so that the other end knows
 * which epoch the proof is about (the proof covers it); then the messages of base/auth.h; then GO from the
 * accepting side, once it is up; then records.
 */
#define TCP_PREFACE_LEN 16u
#define TCP_GO_LEN 3u
#define TCP_HELLO_LEN 16u

/* The system calls that can fail here, so that a test can make the k-th one fail. */
struct tcp_sys {
	int (*socket)(int domain, int type, int protocol);
	int (*setsockopt)(int fd, int level, int name, const void *val, socklen_t len);
	int (*bind)(int fd, const struct sockaddr *, socklen_t);
	int (*listen)(int fd, int backlog);
	int (*getsockname)(int fd, struct sockaddr *, socklen_t *);
	int (*accept4)(int fd, struct sockaddr *, socklen_t *, int flags);
	int (*connect)(int fd, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int fd, const struct msghdr *, int flags);
	ssize_t (*recvmsg)(int fd, struct msghdr *, int flags);
};
extern const struct tcp_sys tcp_sys_real;

/* lane_cfg.provider of a tcp lane: NULL, or this (tests, measurements). A zero means the constant above. */
struct tcp_tune {
	const struct tcp_sys *sys;
	uint32_t window, seg, ack_every; /* the same at both ends */
	int sndbuf;
};

struct tcp_conn {
	int fd;
	uint32_t epoch;
	uint64_t peer_len; /* of its region 0 */

	/* receiving */
	bool rx_open; /* false: end of file, an error, or bytes that are no record */
	bool rx_bad; /* the stream is not to be trusted any more: nothing of it is parsed */
	bool rx_more; /* the last poll left with complete records in the staging buffer */
	bool rx_big; /* large records are coming: read headers alone */
	uint32_t rh, rt; /* staged bytes: [rh, rt) */
	bool in_rec; /* a record's header was taken; `left` bytes of payload are missing */
	bool last;
	uint32_t region, left;
	uint8_t *dst;
	struct lane_note note;
	uint32_t rx_puts, rx_bytes, ack_sent_puts, ack_sent_bytes;

	/* sending */
	bool blocked; /* the socket is full */
	uint32_t head, n; /* queue of puts: q[head], n of them */
	uint32_t off; /* bytes of q[head] that are in records already */
	int iov_at, niov; /* the batch on its way; iov[iov_at..niov) is unsent */
	struct iovec iov[2 * TCP_BATCH];
	struct tcp_rec rec[TCP_BATCH];
	uint32_t tx_puts, tx_bytes, acked_puts, acked_bytes;
};

struct tcp_txput {
	const uint8_t *src;
	uint32_t len, region;
	uint64_t off;
	struct lane_note note;
};

enum tcp_hs_state {
	TCP_HS_FREE,
	TCP_HS_PREFACE, /* accepting: the preface is awaited */
	TCP_HS_AUTH, /* messages of base/auth.h */
	TCP_HS_GO, /* connecting: convinced, GO is awaited */
	TCP_HS_PROVED, /* accepting: convinced, but the lane may not come up yet */
};
struct tcp_hs {
	enum tcp_hs_state state;
	int fd;
	bool connects;
	uint32_t epoch;
	uint64_t began, limit;
	struct auth auth;
	uint8_t in[AUTH_MSG_MAX], out[TCP_PREFACE_LEN + AUTH_MSG_MAX];
	size_t nin, nout, out_at;
};

enum tcp_state {
	TCP_DOWN,
	TCP_UP,
	TCP_SUSPECT,
	TCP_FENCING /* no socket any more; staged records are still to be reported */
};

struct tcp_lane {
	struct lane_base base;
	struct lane_cfg cfg;
	const struct tcp_sys *sys;
	uint32_t window, seg, ack_every;
	int sndbuf;
	char dev[32]; /* "" : loopback */
	unsigned ifindex;
	struct sockaddr_storage local;
	socklen_t local_len;
	int listener; /* -1: the connecting side */
	uint64_t now; /* of the last call that had a tick */

	enum tcp_state state;
	uint32_t min_epoch; /* lowest epoch that may come up */
	bool accepting; /* allow() was called since the last epoch */
	struct tcp_conn conn;
	struct tcp_txput *q; /* cfg.max_notes of them */
	uint8_t *stage;
	struct lane_export peer_export;
	struct {
		uint8_t *base;
		uint64_t len;
		bool used, exported; /* exported: the peer may write it */
	} region[LANE_REGIONS_MAX];

	struct tcp_hs out; /* the connecting side's */
	struct tcp_hs half[TCP_HALF_OPEN];
	int nhalf; /* slots in use */
	bool look; /* arm() gave the listener away: look at it in the next poll */
	uint64_t next_look, listen_pause; /* listen_pause: no descriptors left, do not accept before */
	bool unarmed; /* arm() had no room for every handshake */
	uint64_t warn_next;
	uint32_t strangers; /* dropped since the last warning */

	/* events that wait for poll */
	bool ev_up, ev_suspect, ev_fenced;
	uint32_t fence_epoch, done;
	uint32_t down[TCP_DOWNS];
	int ndown;
	bool gone_suspect, gone_down; /* lane_event.gone */
	char why_suspect[256], why_down[256];

	struct lane_stats stats;
};

/* tcp_sock.c */
sircl_result_t tcp_find_device(struct tcp_lane *);
sircl_result_t tcp_listen(struct tcp_lane *);
sircl_result_t tcp_addr_pack(const struct tcp_lane *, struct lane_addr *);
sircl_result_t tcp_addr_unpack(const struct tcp_lane *, const struct lane_addr *, struct sockaddr_storage *,
			       socklen_t *);
/* A non-blocking socket bound to the device. */
sircl_result_t tcp_socket(struct tcp_lane *, int *fd);
int tcp_prepare(struct tcp_lane *, int fd); /* options of a connection; errno */
const char *tcp_errno(int err, char *buf, size_t n);

/* tcp_hs.c */
void tcp_hs_connect(struct tcp_lane *, const struct sockaddr_storage *, socklen_t, uint32_t epoch);
void tcp_hs_poll(struct tcp_lane *);
void tcp_hs_cancel(struct tcp_lane *, uint32_t below, const char *why); /* all of epochs < below */
void tcp_hs_close(struct tcp_lane *);
uint64_t tcp_hs_deadline(const struct tcp_lane *);
int tcp_hs_arm(struct tcp_lane *, struct pollfd *, int max);

/* tcp_conn.c */
void tcp_up(struct tcp_lane *, int fd, uint32_t epoch, uint64_t peer_len);
/* gone: evidence that the peer's process is not there */
void tcp_suspect(struct tcp_lane *, bool gone, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void tcp_say_fenced(struct tcp_lane *);
void tcp_tx(struct tcp_lane *);
int tcp_rx(struct tcp_lane *, struct lane_event *, int max);
int tcp_rx_staged(struct tcp_lane *, struct lane_event *, int max); /* without reading */
static inline uint32_t tcp_kind_len(uint32_t kind)
{
	return kind == TCP_LAST ? TCP_LAST_LEN : kind == TCP_PART ? TCP_PART_LEN : TCP_ACK_LEN;
}
#endif
