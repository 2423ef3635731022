/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the verbs provider share: what goes over the wire, a queue pair with its rdma_cm id, the
 * handshakes in progress, the established connection, the lane.
 *
 * Invariants:
 *  - a lane has at most one connection, and it belongs to one epoch; a connection of epoch e comes up only if
 *    e >= min_epoch, and fence(e) raises min_epoch above e before anything else;
 *  - the peer can write to this end's memory only through a queue pair that is not in the error state, of a
 *    peer that has proved itself: keys of memory are told, and the queue pair allows writing, after the
 *    proof (keys alone can be guessed). LANE_FENCED is reported when the
 *    queue pair is in the error state and its marker at the end of each queue has come out, or the queue pair
 *    is destroyed;
 *  - every work request carries the generation of its queue pair: completions of a queue pair that is gone
 *    (soft-RoCE leaves them in the queue) mean nothing;
 *  - receive slots are posted again before the events of the same poll are handed out, so a peer that keeps
 *    to max_notes always finds one;
 *  - nothing here waits: every event of rdma_cm is acknowledged as soon as it is copied, so destroying an id
 *    has nothing to wait for.
 */
#ifndef LANE_VERBS_INTERNAL_H
#define LANE_VERBS_INTERNAL_H
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "base/arena.h"
#include "base/log.h"
#include "lane/lane.h"
#include "lane/verbs.h"
#include "lane/verbs_lib.h"

#define VERBS_VERSION 1u
#define VERBS_EAGER (8u << 10) /* a put up to this size is one SEND; the link copies as much */
#define VERBS_MAX_PUT (256u << 10)
#define VERBS_INLINE 256u /* asked for; what the device gives is used */
#define VERBS_CHAIN 32 /* puts of one post */
#define VERBS_POLL 32 /* completions of one look */
#define VERBS_ACK_TIMEOUT 14 /* 4.096 us * 2^14 = 67 ms per try: a dead lane is known after about 0.5 s */
#define VERBS_RETRY 6 /* 7 never ends on soft-RoCE */
#define VERBS_RNR_RETRY 7 /* for ever: a peer that is late in posting is not dead */
#define VERBS_HALF_OPEN 8 /* accepted requests whose peer has not proved anything yet */
#define VERBS_KEYS 4 /* fingerprints that fit a connect request */
#define VERBS_HANDSHAKE_NS (2 * SEC)
#define VERBS_WARN_NS (60 * SEC)
#define VERBS_LOOK_NS \
	(2 * MSEC) /* how often a busy lane looks at its descriptors: each look is a system call */
#define VERBS_LOOK_HS_NS (50 * USEC) /* the same while a handshake runs */
#define VERBS_SAY_NS (20 * MSEC) /* how long a fence waits until the peer has been told of it */
#define VERBS_DRAIN_NS (1 * SEC) /* how long it waits for the queues to drain */
#define VERBS_DOWNS 4

/* Private data of a connect request (56 bytes at most, padded with zeros): epoch, bare message 1. */
#define VERBS_REQUEST_BYTES (4u + AUTH_BARE_BYTES(VERBS_KEYS))
_Static_assert(VERBS_REQUEST_BYTES <= 56, "a connect request carries 56 bytes");
/* Private data of the reply: message 2, whose hello is the accepting end's RoCE MTU. */
#define VERBS_MTU_BYTES 4u
_Static_assert(4 + 16 + 8 + VERBS_MTU_BYTES + 32 <= 196, "a reply carries 196 bytes");

/* What an end tells of its memory, after the proof. Little endian. */
struct verbs_hello {
	uint32_t version, max_notes;
	uint64_t arena, arena_len;
	uint32_t arena_key, ring_key;
	uint64_t ring; /* max_notes entries of struct verbs_head */
	uint32_t mtu, netdev_mtu;
};
_Static_assert(sizeof(struct verbs_hello) == 48, "wire format");
/* The first SEND of the connecting end is message 3 and its hello; the answer, which brings it up, a hello.
 */
#define VERBS_PROOF_BYTES (AUTH_MSG3_BYTES + sizeof(struct verbs_hello))
#define VERBS_HS_BUF 128u
_Static_assert(VERBS_PROOF_BYTES <= VERBS_HS_BUF, "a proof fits its buffer");

/*
 * PUT, a SEND: this header, little endian, and `len` bytes, which the receiver copies to their place.
 * WRITTEN: a WRITE has brought the bytes, and a WRITE_WITH_IMM this header, to entry `imm` of the peer's
 * ring. FENCED, a SEND: the sender has fenced; the end of the connection that follows does not mean that its
 * process has gone.
 */
enum verbs_kind { VERBS_PUT = 1, VERBS_WRITTEN = 2, VERBS_FENCED = 3 };
#define VERBS_MAGIC 0x53560000u
struct verbs_head {
	uint32_t kind, crc; /* crc: CRC32C of the header with this field 0 */
	uint64_t addr;
	uint32_t key, len;
	struct lane_note note;
};
_Static_assert(sizeof(struct verbs_head) == 72, "wire format");
#define VERBS_SLOT ((sizeof(struct verbs_head) + VERBS_EAGER + 63) & ~(size_t)63)

/* What a work request was: wr_id = kind, generation of the queue pair, number. */
enum verbs_wr { WR_RECV = 1, WR_PUT, WR_HELLO_IN, WR_HELLO_OUT, WR_SAY, WR_MARK_IN, WR_MARK_OUT };
static inline uint64_t verbs_wr_id(enum verbs_wr kind, uint32_t gen, uint32_t number)
{
	return (uint64_t)kind << 56 | (uint64_t)(gen & 0xffffffu) << 32 | number;
}
static inline enum verbs_wr verbs_wr_kind(uint64_t id)
{
	return (enum verbs_wr)(id >> 56);
}
static inline uint32_t verbs_wr_gen(uint64_t id)
{
	return (uint32_t)(id >> 32) & 0xffffffu;
}

struct verbs_qp {
	struct rdma_cm_id *id; /* NULL: none */
	struct ibv_qp *qp; /* not the id's: librdmacm would take it to the path MTU that one end has */
	uint32_t gen;
};

enum verbs_hs_state {
	VERBS_HS_FREE,
	VERBS_HS_ADDR, /* connecting: the address is being resolved */
	VERBS_HS_ROUTE,
	VERBS_HS_REPLY, /* connecting: the reply is awaited */
	VERBS_HS_PROOF, /* accepting: the first SEND is awaited; connecting: the answer to it */
	VERBS_HS_PROVED, /* accepting: convinced, but the lane may not come up yet */
};
struct verbs_hs {
	enum verbs_hs_state state;
	struct verbs_qp qp;
	bool connects;
	uint32_t epoch;
	uint64_t began, limit;
	struct auth auth;
	struct verbs_hello hello; /* the peer's */
	uint8_t *in, *out; /* VERBS_HS_BUF bytes of registered memory each */
};

enum verbs_state {
	VERBS_DOWN,
	VERBS_UP,
	VERBS_SUSPECT,
	VERBS_SAYING, /* fence: the peer is being told */
	VERBS_DRAINING /* fence: in the error state, the markers are awaited */
};

struct verbs_conn {
	struct verbs_qp qp;
	uint32_t epoch;
	struct verbs_hello peer;
	uint32_t put_seq, done_seq; /* puts that were posted, and of which completion is known */
	bool broken; /* a completion with an error: the queue pair is in the error state */
	bool hangup; /* the peer has closed */
	bool said, told, mute; /* the peer has fenced; it knows of our fence; report no note */
	bool mark_in, mark_out; /* markers that have come out */
	uint64_t limit; /* of this stage of the fence */
};

struct verbs_region {
	struct ibv_mr *mr;
	uint8_t *base;
	uint64_t len;
	bool exported;
};

struct verbs_lane {
	struct lane_base base;
	struct lane_cfg cfg;
	const struct verbs_lib *lib;
	uint64_t now; /* of the last call that had a tick */

	/* the device */
	char dev[IF_NAMESIZE]; /* netdev */
	char device[64];
	uint32_t port;
	unsigned ifindex;
	struct sockaddr_storage local; /* port 0 */
	struct rdma_event_channel *events;
	struct rdma_cm_id *anchor; /* bound to `local`; listens at the accepting end */
	struct ibv_context *async; /* a context of our own, for its events alone; NULL after its end */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint32_t mtu, mtu_max, netdev_mtu;
	uint64_t node_guid;
	bool dead; /* the device was removed, or has failed */
	bool no_option, mtu_told; /* said once */

	/* memory of our own: receive slots, headers of puts, the peer's notes, bytes of handshakes */
	struct arena *mem;
	struct ibv_mr *mem_mr, *ring_mr;
	uint8_t *slots, *hs_bytes;
	struct verbs_head *heads;
	struct verbs_head *ring;
	uint8_t *answer;
	uint32_t nslots;
	uint32_t inline_max;
	struct verbs_region region[LANE_REGIONS_MAX];
	uint32_t nregions; /* highest number in use + 1 */

	enum verbs_state state;
	uint32_t min_epoch;
	bool accepting; /* allow() was called since the last epoch */
	struct verbs_conn conn;
	struct lane_export peer_export;
	struct verbs_hs out;
	struct verbs_hs half[VERBS_HALF_OPEN];
	int nhalf;
	uint32_t gen;
	uint64_t warn_next;
	uint32_t strangers;

	/* completions that were taken from the queue and not looked at yet */
	struct ibv_wc wc[VERBS_POLL];
	int wc_at, wc_n;
	uint32_t repost[VERBS_POLL];
	int nrepost;

	bool look,
		notified; /* look: arm() gave the descriptors away; notified: a notification is asked for */
	bool unarmed; /* no descriptor will tell all: a look every millisecond */
	uint64_t next_look;

	/* events that wait for poll */
	bool ev_up, ev_suspect, ev_fenced;
	uint32_t fence_epoch, done;
	uint32_t down[VERBS_DOWNS];
	int ndown;
	bool gone_suspect, gone_down;
	char why_suspect[320], why_down[320];

	struct lane_stats stats;
};

/* verbs_dev.c */
sircl_result_t verbs_open_device(struct verbs_lane *);
void verbs_close_device(struct verbs_lane *);
sircl_result_t verbs_addr_pack(const struct verbs_lane *, struct lane_addr *);
sircl_result_t verbs_addr_unpack(const struct verbs_lane *, const struct lane_addr *,
				 struct sockaddr_storage *);
uint32_t verbs_addr_mtu(const struct lane_addr *); /* RoCE, of a well-formed address */
bool verbs_gid_there(const struct verbs_lane *); /* this lane's own GID is in the device's table */
void verbs_refresh_mtu(struct verbs_lane *);
uint32_t verbs_mtu_bytes(enum ibv_mtu); /* 0: none */
const char *verbs_errno(int err, char *buf, size_t n);
/* The sentence for a call that has failed: "verbs lane 0 of cable 1 ...: what: errno; cure". */
sircl_result_t verbs_error(const struct verbs_lane *, const char *what, int err);
/* " on eth0 (mlx5_0 port 1)" for reasons. Into buf, returns buf. */
#define VERBS_WHERE_MAX 112
const char *verbs_where(const struct verbs_lane *, char buf[VERBS_WHERE_MAX]);

/* verbs_mem.c */
sircl_result_t verbs_open_memory(struct verbs_lane *);
void verbs_close_memory(struct verbs_lane *);
sircl_result_t verbs_reg(struct lane *, uint32_t id, void *, size_t, struct lane_mem *, struct lane_export *);
void verbs_unreg(struct lane *, struct lane_mem *);

/* verbs_cm.c */
void verbs_hs_connect(struct verbs_lane *, const struct sockaddr_storage *, uint32_t epoch);
void verbs_hs_fail(struct verbs_lane *, struct verbs_hs *, bool gone, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void verbs_hs_poll(struct verbs_lane *); /* time limits; brings up what may come up */
void verbs_hs_cancel(struct verbs_lane *, uint32_t below, const char *why);
void verbs_hs_close(struct verbs_lane *);
uint64_t verbs_hs_deadline(const struct verbs_lane *);
void verbs_hs_completion(struct verbs_lane *, struct verbs_hs *, const struct ibv_wc *);

/* verbs_event.c: descriptors */
void verbs_look(struct verbs_lane *);
void verbs_device_dead(struct verbs_lane *, const char *what); /* for good */
void verbs_hs_event(struct verbs_lane *, const struct rdma_cm_event *, const uint8_t *data, size_t n);

/* verbs_qp.c */
/* The peer can write nothing through it until verbs_qp_trust. Both return an errno. */
int verbs_qp_create(struct verbs_lane *, struct verbs_qp *, struct rdma_cm_id *);
int verbs_qp_trust(struct verbs_lane *, struct verbs_qp *);
/* Ready to send and to receive; the request, or the reply, is here. `limit`: the peer's RoCE MTU, 0: not
 * known. Returns an errno. */
int verbs_qp_ready(struct verbs_lane *, struct verbs_qp *, uint32_t limit);
void verbs_qp_destroy(struct verbs_lane *, struct verbs_qp *);
int verbs_post_buffer(struct verbs_lane *, struct verbs_qp *, enum verbs_wr, void *, size_t); /* errno */
int verbs_send_buffer(struct verbs_lane *, struct verbs_qp *, enum verbs_wr, void *, size_t);
int verbs_post_slots(struct verbs_lane *, struct verbs_qp *); /* all of them */
int verbs_post_some(struct verbs_lane *, struct verbs_qp *, const uint32_t *slot,
		    int n); /* VERBS_POLL at most */
void verbs_hello_fill(struct verbs_lane *, struct verbs_hello *);
/* Warns once if the ends differ. netdev 0: not known. */
void verbs_tell_mtu_differs(struct verbs_lane *, uint32_t mtu, uint32_t netdev);
/* Takes the queue pair over. */
void verbs_up(struct verbs_lane *, struct verbs_qp *, uint32_t epoch, const struct verbs_hello *);
void verbs_suspect(struct verbs_lane *, bool gone, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void verbs_suspect_errno(struct verbs_lane *, const char *what, int err);
void verbs_fence_begin(struct verbs_lane *);
void verbs_fence_step(struct verbs_lane *);

/* verbs_data.c */
struct verbs_head *verbs_head_make(struct verbs_lane *, enum verbs_kind, uint64_t addr, uint32_t key,
				   uint32_t len, const struct lane_note *, uint32_t seq);
int verbs_put(struct verbs_lane *, const struct lane_put *, int n);
int verbs_completions(struct verbs_lane *, struct lane_event *, int max);
bool verbs_stash(struct verbs_lane *); /* looks into the queue; true: something is there */
#endif
