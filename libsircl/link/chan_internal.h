/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the channel layer share: the wire format of its frames, and the state of both halves of a
 * direction on one link.
 *
 * A direction is a stream of messages. On each hop it has a sending half (struct tx) and a receiving half:
 * struct slot, found by the label that the sender chose, answers for it on the wire; struct rx holds the
 * window and the table that puts frames back in order. A channel's end is one tx and one rx on the same link;
 * a relay is, per direction, an rx on one link and a tx on the other. A fragment occupies its length rounded
 * up to 64 bytes of the window, and never wraps: what does not fit before the window's end goes to its start.
 * Both halves compute the places alike.
 *
 * Life of a direction on a hop (s: sender, r: receiver; the link may deliver these in any order):
 *   s OPEN -> relays pass it on at once; the far end answers when its user has opened the channel
 *   r ACCEPT (comes back hop by hop: window, frames and fragment size are the least of the way)
 *   s DATA*, r CREDIT*, r GRANT*
 *   r STOP: no more, and why (also instead of ACCEPT: refused); s answers with FIN
 *   s FIN: frames < fno exist, no others will; why
 *   r GONE: all frames < fno have arrived, the label is free. Nothing can land in r's memory any more
 * So an end that wants its memory back says STOP and waits for the FIN and the frames it counts; this is the
 * revocation of grants too. docs/channels.md has the rules in words. All control frames are without payload;
 * each is owed (a bit), never queued, so that a link without room costs no memory.
 */
#ifndef LINK_CHAN_INTERNAL_H
#define LINK_CHAN_INTERNAL_H
#include "base/crc32c.h"
#include "link/chan.h"

#define CHAN_LABELS 1024u /* directions per link and way; a label is (use of the index) << 10 | index */
#define CHAN_GRANTS 8u /* messages ahead of the oldest unfinished that may be granted */
#define CHAN_GRANT_MIN 32768u /* a smaller receive is not worth a grant */
#define CHAN_DIRECT_FRAG (256u << 10) /* fragment that lands directly, on links with loss; multiple of 64 */
#define CHAN_QUANTUM \
	65536u /* bytes that a channel may send before the next has its turn, but one frame at least */
#define CHAN_ACK_SOON \
	8192u /* a last frame above this asks for an early acknowledgement: its source is waited for */
#define CHAN_TOMBS 256u
#define CHAN_REGS 62
#define CHAN_NOTICES 64u
#define CHAN_RETRY (50 * USEC) /* when to try again to send what a link had no room for */

enum chan_kind {
	CHAN_DATA =
		16, /* msg, fno, len, tag; LAST, DIRECT. off: low half of the window position (direct: the
		       offset in the message); above it CRC32C of the bytes, with SIRCL_CHECKSUM, else 0 */
	CHAN_OPEN, /* msg: id, fno: first frame number, off: window, tag: src | dst << 16 | least window / 64
		      << 32 */
	CHAN_ACCEPT, /* msg: frames, fno: fragment, off: region-0 offset of the window, tag: window */
	CHAN_CREDIT, /* off: window position, fno: frame number up to which the sender may go */
	CHAN_GRANT, /* msg: message, fno: region, off: offset in it of the message's first byte, tag: length
		     */
	CHAN_STOP, /* msg: why, off: detail, tag: at | to << 16 */
	CHAN_FIN, /* the same, and fno: number of the frame after the last */
	CHAN_GONE,
	CHAN_NOTICE, /* label: origin, flags: kind, msg: number, fno: code, off: argument, tag: subject */
	CHAN_HINT, /* off: the word, by the sender's label; passed on by relays */
	CHAN_KIND_END
};
enum chan_flag { CHAN_LAST = 1, CHAN_DIRECT = 2 };

/* Why a direction ended. Positions, as they travel; ranks only in sentences. */
enum chan_why {
	WHY_NONE,
	WHY_CLOSED, /* the user of the end at `at` closed it */
	WHY_BROKEN, /* the cable between `at` and `to` is lost */
	WHY_LIMIT, /* the relay at `at` has given all the memory it may */
	WHY_ARENA, /* the node at `at` has no receive memory left on its link */
	WHY_NO_WAY, /* the path ends at `at` */
	WHY_TABLE, /* `at` has no label left */
	WHY_LEFT, /* the neighbour `to` of `at` has said goodbye: it needs nothing more, and passes nothing on
		   */
	WHY_PROTOCOL, /* `at` has read a frame that must not be */
	WHY_DAMAGED, /* `at` has got other bytes than `to` has sent; detail: lane */
	WHY_END
};
struct reason {
	enum chan_why why;
	uint16_t at, to;
	uint64_t detail;
};

enum owe {
	OWE_OPEN = 1,
	OWE_FIN = 2,
	OWE_ACCEPT = 4,
	OWE_STOP = 8,
	OWE_CREDIT = 16,
	OWE_GRANT = 32,
	OWE_GONE = 64,
	OWE_HINT = 128 /* of a sender, as OPEN and FIN are */
};
/* First member of tx and slot: what must still be said on this side's link. */
struct hop {
	struct hop *next;
	uint8_t owed; /* enum owe */
	uint8_t side;
	bool listed, is_tx;
};

struct grant {
	bool valid;
	uint16_t region;
	uint32_t msg;
	uint64_t off, len;
};

enum tx_state { TX_OPENING, TX_OPEN, TX_FIN, TX_GONE };
struct tx_frame {
	uint32_t len;
	bool last, released;
};
struct tx {
	struct hop h;
	struct tx *next; /* in the list of those that may have something to send */
	bool listed;
	struct chan *chan; /* one of the two */
	struct relay *relay;
	enum tx_state state;
	uint16_t label, src, dst;
	uint32_t id, window, least, nframes, frag;
	uint64_t hint; /* chan_hint: what to say, once the way is open */
	bool hinted;
	uint64_t peer_off; /* the window in the peer's region 0 */
	uint64_t pos, limit; /* next window position; the credit */
	uint32_t fno, flimit, una,
		posted; /* next frame; credit; oldest not released; put and not yet released */
	uint32_t msg;
	uint32_t turn; /* bytes left of its turn; kept while the link is full, so that a turn ends */
	uint64_t pool_held; /* CHAN_BREAK_POOL */
	struct reason why; /* goes with FIN */
	struct tx_frame *frame; /* [nframes], channels only; a relay uses its rx's */
	struct grant grant[CHAN_GRANTS]; /* by message number */
};

enum rx_frame_state { RX_EMPTY, RX_ARRIVED, RX_POSTED, RX_RELEASED };
struct rx_frame {
	uint8_t state, flags, lane;
	uint32_t len, msg, check;
	uint64_t off, tag;
};
struct rx {
	struct slot *slot; /* NULL: not bound, or over on the wire */
	struct chan *chan; /* one of the two */
	struct relay *relay;
	uint8_t *base;
	size_t arena_off;
	uint64_t hint; /* the latest from the sender */
	bool hinted; /* and nobody has taken it yet */
	uint32_t alloc, window, nframes; /* window: as accepted */
	struct rx_frame *frame;
	/* freed <= cons <= next, frame numbers: place free; consumed (relay: sent on); contiguously arrived
	 */
	uint32_t next, cons, freed;
	uint32_t seen; /* channel, view mode: frames that the oldest receive has been told of; >= cons */
	uint32_t msg; /* message that frame `cons` belongs to */
	uint64_t next_pos, freed_pos, told_pos; /* window positions; told: of the last credit */
	uint32_t told;
	bool bound, accepted, fin, discard,
		over; /* discard: nobody wants what arrives. over: frames < fin_fno are all here */
	uint32_t fin_fno;
	struct reason fin_why;
};

/* The receiving half's voice on the wire. */
struct slot {
	struct hop h;
	bool used, opened, refused, fin;
	uint16_t label, src, dst;
	uint32_t id, window, least, first, fin_fno;
	struct reason fin_why, stop;
	struct rx *rx; /* NULL: the user has not opened it yet, or refused */
	uint64_t order; /* of arrival, so that the oldest OPEN is bound first */
};

struct send_msg {
	const void *src;
	size_t len, sent;
	uint64_t tag;
	const struct link_mem *smem;
	struct xfer *x;
};
struct recv_msg {
	uint8_t *buf;
	size_t max, used; /* used: view mode, consumed */
	const struct reg *reg;
	struct xfer *x;
	bool view, complete, granted; /* granted: a GRANT is on its way, so puts may land in buf */
};

struct chan {
	struct chan_net *net;
	struct chan *next;
	struct chan_cfg cfg;
	int hops;
	bool closed, send_ended, recv_ended;
	bool met; /* the peer's OPEN has come (or never will): bound, refused, or found in a tomb */
	bool skip; /* the rest of the present message is unwanted (too long) */
	struct reason send_why, recv_why;
	struct sircl_error err;
	struct tx tx;
	struct rx rx;
	struct send_msg *sq; /* [CHAN_QUEUE]; head: oldest not released, cur: next to send */
	uint32_t s_head, s_cur, s_tail;
	struct recv_msg *rq; /* [CHAN_QUEUE] */
	uint32_t r_head, r_tail, r_grant; /* r_grant: first that may still be granted */
	uint32_t fused; /* view mode: bytes consumed of frame `cons` */
	size_t memory;
};

struct relay { /* one direction of one channel */
	struct relay *next;
	struct rx rx;
	struct tx tx;
	uint64_t held;
	size_t memory;
};

struct reg {
	uint8_t *p;
	size_t len;
	const struct link_mem *mem[LINK_SIDES];
};

/* An end that came or went without its partner. */
struct tomb {
	bool used, closed_here; /* closed here before the peer's OPEN came; else opened and finished by the
				   peer */
	uint8_t side;
	uint16_t peer;
	uint32_t id;
	struct reason why;
};

struct notice_rec {
	struct chan_notice n;
	uint8_t owed; /* bit per side */
};
struct notice_seen {
	uint32_t top; /* highest number heard of this origin */
	uint64_t bits; /* bit i: top - i heard */
};

struct side {
	struct link *link;
	bool dead, full; /* full: the link had no room at the last try */
	uint64_t region_len[LANE_REGIONS_MAX]; /* of the peer's, announced to us; 0: not (any more) */
	struct hop *ctl, **ctl_end;
	struct tx *data, **data_end;
	struct tx *tx[CHAN_LABELS];
	uint16_t free_label[CHAN_LABELS]; /* ring: the one given back longest ago is used next */
	uint32_t free_head, free_count;
	struct slot slot[CHAN_LABELS];
	const struct link_mem
		*cross; /* the other side's arena, registered here, so that relays need not stage */
	bool cross_tried;
	uint64_t pool_held; /* CHAN_BREAK_POOL */
};

struct chan_net {
	struct chan_net_cfg cfg;
	struct side side[LINK_SIDES];
	struct chan *chans;
	struct relay *relays;
	bool reap; /* something may be freed */
	bool checksum; /* SIRCL_CHECKSUM */
	bool ended; /* a side has ended since the last progress: transfers have changed */
	uint64_t now, opens; /* now: of the last tick */
	uint32_t first; /* number of the first frame and message; 0 but in tests of the wrap */
	struct reg reg[CHAN_REGS];
	int nreg;
	struct tomb tomb[CHAN_TOMBS];
	uint32_t tomb_next;
	struct notice_seen *seen; /* [n] */
	struct notice_rec notice[CHAN_NOTICES];
	uint32_t notice_next, notice_number;
	uint32_t notices_owed; /* bit per side: some are owed there */
	struct chan_net_stats st;
	uint64_t held, protocol_errors, chan_memory;
};

/* Frame and message numbers wrap. */
static inline bool num_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}
static inline uint32_t round64(uint32_t n)
{
	return (n + 63u) & ~63u;
}
/* Where a fragment of `len` bytes goes that comes at window position `pos`. */
static inline uint64_t window_place(uint64_t pos, uint32_t window, uint32_t len)
{
	uint64_t in = pos % window;
	return in + round64(len) > window ? pos + (window - in) : pos;
}
static inline uint32_t window_frag(uint32_t window)
{
	/* in a large one a fragment on the slower of two lanes shall not hold up half of it */
	return window / (window >= 1u << 20 ? 8 : 4) & ~63u;
}
/* The longest fragment that this hop accepts: one that fits every hop from here on. */
static inline uint32_t rx_frag(const struct rx *rx)
{
	uint32_t frag = window_frag(rx->window);
	return rx->relay && rx->relay->tx.frag < frag ? rx->relay->tx.frag : frag;
}
/* Entries of the table of frames for a window: a power of two, so that numbers wrap in it. */
static inline uint32_t window_frames(uint32_t window)
{
	uint32_t n = 16;
	while (n < 256 && n < window / 1024)
		n *= 2;
	return n;
}
static inline int side_of(const struct chan_net *net, const struct link *l)
{
	return net->side[LINK_NEXT].link == l ? LINK_NEXT : LINK_PREV;
}
static inline int rank_at(const struct chan_net *net, uint16_t pos)
{
	return net->cfg.rank_of && pos < net->cfg.n ? net->cfg.rank_of[pos] : pos;
}
/* The position at the other end of a side's link. */
static inline uint16_t neighbour(const struct chan_net *net, int side)
{
	return (uint16_t)((net->cfg.self + (side == LINK_NEXT ? 1 : net->cfg.n - 1)) % net->cfg.n);
}

/* What a frame says of its bytes. */
static inline uint32_t chan_sum(const struct chan_net *net, const void *p, uint32_t len)
{
	return net->checksum ? crc32c(0, p, len) : 0;
}

/* chan_ctl.c: control frames */
void hop_owe(struct chan_net *, struct hop *, unsigned owed);
void ctl_flush(struct chan_net *, struct tick *, int side);
bool label_take(struct chan_net *, struct tx *, int side);
void tx_hint(struct chan_net *, struct tx *, uint64_t word);
void ctl_deliver(struct chan_net *, struct tick *, int side, const struct link_frame *);
void slot_refuse(struct chan_net *, struct slot *, struct reason);
void slot_clear(struct chan_net *, struct slot *);
/* Says GONE when all is there; call when fin or next has changed. */
void rx_check_over(struct chan_net *, struct tick *, struct rx *);
void rx_stop(struct chan_net *, struct rx *, struct reason); /* nobody wants more of it */

/* chan_send.c: the sending half */
enum pump {
	PUMP_IDLE /* nothing more may go now */,
	PUMP_AGAIN /* the quantum is used */,
	PUMP_FULL /* link */
};
void tx_init(struct tx *, struct chan_net *, int side);
void tx_ready(struct chan_net *, struct tx *); /* it may have something to send */
void tx_pump_now(struct chan_net *, struct tick *, struct tx *); /* the same, at once if nobody else waits */
bool data_flush(struct chan_net *, struct tick *, int side);
/* Places a windowed fragment: false if the credit does not allow it now. */
bool tx_place(const struct chan_net *, const struct tx *, uint32_t len, uint64_t *place);
/* Whether `len` bytes may go in this turn. A fresh turn allows one frame of any size. */
bool tx_turn(struct tx *, uint32_t len);
/* check: CRC32C of the bytes, chan_sum(). */
enum link_put_result tx_put(struct chan_net *, struct tick *, struct tx *, struct link_put *, uint64_t place,
			    uint32_t check);
void tx_credit(struct chan_net *, struct tx *, uint64_t limit, uint32_t flimit);
void tx_released(struct chan_net *, struct tx *, uint32_t fno);
void tx_end(struct chan_net *, struct tx *, struct reason); /* sends no more; FIN says why */
void chan_send_settle(struct chan *); /* xfers after releases */
void chan_send_end(struct chan *, struct reason); /* unsent messages end with an error */

/* chan_recv.c: the receiving half */
/* A window of `window` bytes, or, where the arena has become short, fewer, but `least`. */
sircl_result_t rx_alloc(struct chan_net *, struct rx *, int side, uint32_t window, uint32_t least);
void rx_free(struct chan_net *, struct rx *, int side);
void rx_deliver(struct chan_net *, struct tick *, struct slot *, const struct link_frame *);
void rx_free_frames(struct chan_net *, struct rx *, uint32_t upto);
void chan_recv_advance(struct chan *, struct tick *);
void chan_recv_end(struct chan *, struct tick *, struct reason); /* no more will come than is here */
void chan_recv_owe_grants(struct chan *);
/* Sends GRANTs that are due; false if the link has no room. */
bool chan_recv_grant(struct chan *, struct tick *, struct slot *);

/* chan.c: ends of channels */
struct chan *chan_waiting(struct chan_net *, int side, uint32_t id, uint16_t peer); /* for the peer's OPEN */
void chan_bind(struct chan *, struct slot *); /* or refuses it */
void chan_stopped(struct chan *, struct tick *, struct reason); /* the way out is closed by somebody else */
sircl_result_t reason_code(const struct reason *);
void chan_fail(struct chan *, const struct reason *); /* keeps the first sentence */
void chan_side_dead(struct chan *, struct tick *, struct reason);
struct tomb *tomb_find(struct chan_net *, int side, uint32_t id, uint16_t peer, bool closed_here);
void tomb_add(struct chan_net *, int side, uint32_t id, uint16_t peer, bool closed_here, struct reason);
void chan_reap(struct chan_net *);
void chan_free(struct chan *, bool windows); /* windows: give the window back to the link's arena */
const struct reg *reg_find(const struct chan_net *, const void *, size_t);

/* relay.c */
void relay_open(struct chan_net *, struct slot *);
void relay_accepted(struct chan_net *, struct relay *);
void relay_stopped(struct chan_net *, struct relay *, struct reason);
void relay_arrived(struct chan_net *, struct tick *, struct relay *); /* frames, or FIN */
enum pump relay_pump(struct chan_net *, struct tick *, struct relay *);
void relay_released(struct chan_net *, struct relay *, uint32_t fno);
void relay_side_dead(struct chan_net *, struct tick *, struct relay *, int side, struct reason);
void relay_reap(struct chan_net *, bool all);

/* notice.c */
void notice_deliver(struct chan_net *, struct tick *, int side, const struct link_frame *);
void notice_flush(struct chan_net *, struct tick *, int side);
void notice_side_dead(struct chan_net *, int side);
#endif
