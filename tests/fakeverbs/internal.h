/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside fakeverbs. What all processes of a lab share lies in one file (struct fv_shared); memory is touched
 * only by its own process: each has one thread, its NIC, that reads the sources of posted sends into a ring
 * in the shared file and puts what it finds in the rings of its peers into the memory of this process.
 *
 * A ring belongs to the sending queue pair and is read by the receiving one. Reader and writer look at it
 * under their process's fv.mu only, so that a queue pair that is in the error state reads nothing more.
 *
 * Locks, in this order: fv.mu (all but the following), a completion queue's mu, an event queue's mu; the
 * shared lock under fv.mu. Posting takes the queue pair's mu, which the NIC never does, polling the
 * completion queue's, so the race detector sees hardly more order than hardware gives: what a completion,
 * once polled, tells.
 */
#ifndef FAKEVERBS_INTERNAL_H
#define FAKEVERBS_INTERNAL_H
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include "fakeverbs.h"
#undef ibv_get_device_list

#define FV_PROCS 96
#define FV_DEVS 256
#define FV_QPS 1024
#define FV_LISTENERS 1024
#define FV_RING 65536u
#define FV_PACKET 4096u /* payload */
#define FV_ITEMS 1000 /* of one queue pair: more arrives only when some have taken effect */
#define FV_MAIL 128u
#define FV_SGE 16
#define FV_INLINE 512u
#define FV_NEVER UINT64_MAX
#define FV_UNREACHABLE 1000000000u /* ns until a request that was lost has failed */
#define FV_REMOTE 0x80000000u

enum { MSG_REQ = 1, MSG_REP, MSG_RTU, MSG_REJ, MSG_DREQ, MSG_DREP };
enum { CM_REQ_DATA = 56, CM_REP_DATA = 196, CM_REJ_DATA = 148 };

struct fv_msg {
	uint32_t type, from_proc, from_gen, from, to; /* from, to: ids */
	uint32_t slot, num, dev; /* the sender's queue pair and device */
	int32_t status;
	uint8_t retry, rnr, timeout, len;
	uint8_t data[CM_REP_DATA];
	uint8_t src[16], dst[16]; /* addresses and ports of a request */
	uint16_t sport, dport;
	uint32_t mtu; /* of the path, as the connecting end has it: bytes */
};

struct fv_proc {
	_Atomic uint32_t used, gen; /* gen changes when the process has gone */
	_Atomic uint32_t bell, sleeping; /* bell: futex of its NIC */
	_Atomic uint32_t mail_head;
	uint32_t mail_tail;
	struct fv_msg mail[FV_MAIL];
};

struct fv_sdev {
	char name[64], netdev[16];
	uint64_t netns;
	uint32_t naddr, mtu; /* bytes of a RoCE packet */
	/* the same of the ends that connect and that accept, as told; 0: mtu */
	_Atomic uint32_t mtu_connects, mtu_accepts;
	uint8_t addr[8][16];
	_Atomic uint32_t down, fatal, shuffle;
	_Atomic int32_t hole;
	_Atomic uint32_t nev;
	_Atomic uint8_t ev[64];
};

/* One message's part. `bytes` of payload follow. */
struct fv_packet {
	uint32_t total; /* of the ring, with this header; a multiple of 8 */
	uint8_t op, first, last, solicited; /* op 0: the rest of the ring is empty */
	uint32_t msn, msg_len, bytes;
	uint32_t imm, rkey;
	uint64_t raddr;
};
enum { OP_PAD, OP_SEND, OP_SEND_IMM, OP_WRITE, OP_WRITE_IMM };

struct fv_sqp {
	_Atomic uint32_t num; /* 0: free */
	_Atomic uint32_t state; /* enum ibv_qp_state */
	_Atomic uint32_t released; /* the owner has destroyed it; the ring may still be read */
	uint32_t proc, dev, peer_slot, peer_num;
	_Atomic uint32_t rnr_retry;
	_Atomic uint32_t ack; /* messages of the peer that are done */
	_Atomic uint32_t nak; /* enum ibv_wc_status for the peer's message nak_msn */
	_Atomic uint32_t nak_msn;
	_Atomic uint64_t head, tail;
	uint8_t ring[FV_RING] __attribute__((aligned(64)));
};

struct fv_shared {
	_Atomic uint32_t ready;
	pthread_mutex_t mu; /* robust */
	_Atomic uint32_t next; /* ids, queue pair numbers */
	uint32_t next_port;
	struct fv_listener {
		uint32_t used, proc, id;
		uint64_t netns;
		uint8_t addr[16];
		uint16_t port;
	} listener[FV_LISTENERS];
	struct fv_proc proc[FV_PROCS];
	uint32_t ndev;
	struct fv_sdev dev[FV_DEVS];
	struct fv_sqp qp[FV_QPS];
};

/* ---- of one process ---- */
struct evn {
	struct evn *next;
};
struct evq { /* a descriptor that is readable while there are events */
	int fd;
	pthread_mutex_t mu;
	struct evn *first, **last;
};

struct fdev {
	struct ibv_device d;
	struct fv_sdev *s;
	uint32_t index; /* in the shared file */
};

struct fctx {
	struct ibv_context c;
	struct fctx *next;
	struct fdev *dev;
	struct evq async;
	uint32_t seen;
	int refs;
};

struct fasync {
	struct evn n;
	struct ibv_async_event e;
	struct fqp *q;
	struct fcq *cq;
};

struct fpd {
	struct ibv_pd p;
	int refs;
};

struct fmr {
	struct ibv_mr m;
	uint32_t key; /* lkey; the rkey has FV_REMOTE as well */
	int access;
	uint8_t *mem; /* where the device finds it: the same, or an alias of the same pages */
};

struct fchan {
	struct ibv_comp_channel c;
	struct evq q;
	int refs;
};

struct fcqe {
	struct ibv_wc wc;
	struct fqp *q;
	uint32_t upto;
	bool send;
};
struct fcqev {
	struct evn n;
	struct fcq *cq;
};
struct fcq {
	struct ibv_cq c;
	pthread_mutex_t mu;
	struct fcqe *e;
	uint32_t head, count, unacked;
	int armed; /* 1: solicited or failed, 2: any */
	bool dead;
	_Atomic int async_unacked;
	int refs;
};

struct fwqe {
	uint64_t wr_id, raddr;
	uint32_t opcode, imm, rkey, len, msn, off;
	bool signalled, solicited, is_inline;
	int nsge;
	enum ibv_wc_status bad;
	struct ibv_sge sge[FV_SGE];
	uint8_t data[FV_INLINE];
};
struct frwqe {
	uint64_t wr_id;
	int nsge;
	struct ibv_sge sge[FV_SGE];
};

/* What has arrived and not yet taken effect, in order of arrival. */
struct fitem {
	struct fitem *next;
	enum { ITEM_PIECE, ITEM_RECV, ITEM_ACK } kind;
	uint64_t due;
	bool held, landed, solicited;
	uint32_t rkey, len, upto; /* upto: the receive queue after it */
	uint64_t addr;
	uint32_t msn;
	struct ibv_wc wc;
	uint8_t data[];
};

struct fqp {
	struct ibv_qp q;
	struct fqp *next;
	struct fctx *ctx;
	struct fv_sqp *s, *peer;
	uint32_t slot, peer_num, peer_dev;
	uint32_t path_mtu; /* bytes */
	pthread_mutex_t mu;
	struct ibv_qp_cap cap;
	bool sig_all;
	_Atomic uint32_t access; /* what the peer may do: IBV_ACCESS_REMOTE_WRITE or nothing */
	_Atomic uint32_t state; /* enum ibv_qp_state; written under fv.mu */
	struct fwqe *sq;
	struct frwqe *rq;
	/* Counters, modulo 2^32: posted (head), taken (cur), completed (una). Partners: a poster stores head
	 * with release, the NIC loads it with acquire; a poll stores free with release, a poster loads it
	 * with acquire. The NIC takes no lock that a poster takes. */
	_Atomic uint32_t sq_head, rq_head, sq_free, rq_free;
	uint32_t sq_cur, sq_una, rq_cur;
	_Atomic int async_unacked;
	uint32_t tx_msn;
	uint64_t tx_due, ack_due, flush_due, stalled, rnr_since;
	uint8_t retry, rnr_retry, timeout;
	/* the message that is arriving */
	bool rx_active, rx_hold, rnr;
	uint32_t rx_off;
	struct fitem *items, **items_end;
	int nitems;
};

enum fid_state {
	ID_IDLE,
	ID_BOUND,
	ID_ADDR,
	ID_ROUTE,
	ID_LISTEN,
	ID_CONNECT,
	ID_RESPONSE, /* the reply is here, rdma_establish() is awaited */
	ID_REQUEST,
	ID_ACCEPTED,
	ID_UP,
	ID_DISC,
	ID_OFF
};
struct fcmev {
	struct evn n;
	struct rdma_cm_event e;
	struct fid *owner; /* whose destruction waits for its acknowledgement */
	uint8_t data[CM_REP_DATA];
};
struct fid {
	struct rdma_cm_id id;
	struct fid *next;
	uint32_t num;
	enum fid_state state;
	struct fctx *ctx;
	uint8_t src[16], dst[16];
	uint16_t sport, dport;
	uint32_t peer_proc, peer_gen, peer_id, peer_dev, peer_slot, peer_num;
	int ack_timeout;
	uint8_t retry, rnr;
	uint32_t mtu; /* of the path: bytes */
	uint32_t num_told; /* the queue pair, to the peer */
	bool delivered; /* the request is in the peer's hands */
	uint64_t due; /* of what `state` waits for */
	uint64_t timewait;
	int listener, backlog, pending;
	_Atomic int unacked;
};
struct fcmchan {
	struct rdma_event_channel c;
	struct evq q;
	int refs;
};

enum fv_kind { K_ID, K_QP, K_CQ, K_PD, K_MR, K_CTX, K_COMPCHAN, K_CMCHAN, K_UNACKED, K_COUNT };

struct fv {
	pthread_mutex_t mu;
	_Atomic int waiters;
	_Atomic bool up, stop;
	bool has_nic;
	int fd;
	char path[128];
	struct fv_shared *s;
	uint32_t self;
	uint64_t netns;
	pthread_t nic;
	struct fdev dev[64];
	int ndev;
	struct fctx *ctxs, *cm_ctx[64];
	struct fqp *qps;
	struct fid *ids;
	struct fmr *mr[4096];
	uint32_t mr_gen;
	uint64_t seed, rng;
	double time;
	bool pin;
	int hold;
	bool look, seeded;
	uint64_t looked;
	_Atomic uint64_t calls, fail_at;
	_Atomic int fail_err;
	_Atomic bool failed;
	_Atomic int objects[K_COUNT];
	_Atomic uint64_t rnr, landed, dropped, disorder, sends, writes, cq_overflows, queue_full;
};
extern struct fv fv;

/* lab.c */
bool fv_attach(bool nic); /* false: errno */
void fv_lock(void);
void fv_unlock(void);
void fv_slock(void);
void fv_sunlock(void);
void fv_bell(uint32_t proc);
bool fv_alive(uint32_t proc, uint32_t gen);
/* device.c */
void fv_devices(void); /* brings the table of devices up to date; fv.mu */
struct fdev *fv_dev_of(const uint8_t addr[16], uint32_t scope);
void fv_dev_event(struct fv_sdev *, enum ibv_event_type);
int fv_gids(struct fdev *, union ibv_gid *, int max); /* the table, holes as zeros */
bool fv_map_addr(const struct sockaddr *, uint8_t out[16], uint16_t *port, uint32_t *scope);
bool fv_fail(int plausible); /* this call fails; errno is set */
_Noreturn void fv_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t fv_now(void);
uint64_t fv_random(uint64_t below); /* fv.mu; 0 without a seed */
void fv_count(enum fv_kind, int);
bool evq_init(struct evq *);
void evq_end(struct evq *);
void evq_push(struct evq *, struct evn *);
struct evn *evq_pop(struct evq *); /* NULL: errno */
bool evq_any(struct evq *);
/* Takes out those that `match`; they are freed after `drop`. */
void evq_purge(struct evq *, bool (*match)(struct evn *, void *), void (*drop)(struct evn *), void *arg);

/* nic.c */
bool fv_step(uint64_t now, uint64_t *next); /* fv.mu; true: something moved */
void fv_qp_error(struct fqp *); /* fv.mu */
bool fv_path(uint32_t a, uint32_t b); /* both ports are up */
void cq_push(struct fcq *, const struct ibv_wc *, struct fqp *, uint32_t upto, bool send, bool solicited);
void fv_drop_items(struct fqp *);
uint64_t fv_later(uint64_t now, uint64_t one_in); /* now, or once in so many times a bit after */
void fv_sooner(uint64_t *next, uint64_t at);
uint8_t *fv_memory(const struct fqp *, uint32_t key, bool remote, uint64_t addr, uint32_t len, int access);
bool fv_effects(struct fqp *, uint64_t now, bool all);
void fv_recv_failed(struct fqp *, enum ibv_wc_status, uint64_t wr_id, uint32_t upto);

/* responder.c */
bool fv_responder(struct fqp *, uint64_t now, uint64_t *next); /* fv.mu */

/* queue.c */
int fv_poll_cq(struct ibv_cq *, int, struct ibv_wc *);
int fv_req_notify_cq(struct ibv_cq *, int);
int fv_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
int fv_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
/* verbs.c */
enum ibv_mtu fv_mtu(uint32_t bytes);
uint32_t fv_mtu_bytes(enum ibv_mtu);
uint32_t fv_port_mtu(const struct fv_sdev *, bool connects);
int fv_dead(struct ibv_context *);
static inline struct fctx *ctx_of(struct ibv_context *c)
{
	return (struct fctx *)(void *)c;
}

struct fctx *fv_context(struct fdev *, bool of_cm); /* fv.mu */
void fv_async(struct fctx *, enum ibv_event_type, struct fqp *, struct fcq *);
/* cm.c; all under fv.mu */
void fv_tell(struct fid *owner, struct fid *, enum rdma_cm_event_type, int status, const void *, uint8_t len,
	     uint8_t padded);
struct fid *fv_new_id(struct rdma_event_channel *, void *context, enum rdma_port_space);
void fv_use_device(struct fid *, struct fdev *);
void fv_answer(struct fid *, uint32_t type, int status, const void *, uint8_t len);
/* false: it is lost */
bool fv_send_to(struct fid *, uint32_t proc, uint32_t gen, uint32_t dev, struct fv_msg *);
static inline struct fid *fid_of(struct rdma_cm_id *id)
{
	return (struct fid *)(void *)id;
}
static inline struct fqp *qp_of(struct fid *f)
{
	return (struct fqp *)(void *)f->id.qp;
}
static inline int fails(int err)
{
	errno = err;
	return -1;
}
/* cm_conn.c */
struct fv_sqp *fv_slot(uint32_t dev, uint32_t *slot);
/* The slot of the queue pair with this number; false: there is none. */
bool fv_slot_of(uint32_t num, uint32_t *slot);
/* Attributes that the steps of a queue pair must have, no more and no less. */
#define FV_MASK_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define FV_MASK_RTR \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define FV_MASK_RTS \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
	 IBV_QP_MAX_QP_RD_ATOMIC)
void fv_cm_connected(struct fid *);
/* cm_wire.c */
bool fv_cm_step(uint64_t now, uint64_t *next); /* fv.mu */
void fv_cm_removal(struct fdev *); /* fv.mu */
#endif
