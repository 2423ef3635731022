/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels: ordered messages between two positions, over a link or through relays. ALL flow control is here,
 * per channel, per hop: a frame leaves only if the next hop has room reserved for this channel, so no channel
 * can block another and no cycle of full buffers exists.
 *
 * A channel is bidirectional; each direction has its own window. Both ends open it with the same id, in any
 * order and at any time; opening never blocks: sends are queued until the way is open. A direction's window
 * is a ring of bytes at the receiver of each hop (in that link's arena); a credit names a prefix: a byte
 * offset and a frame number up to which the sender may go. Receives are posted; what arrives before waits in
 * the window. A receive into memory registered with chan_net_register sends a grant, and the rest of the
 * message then lands directly (one-hop channels); else it is staged.
 *
 * Relay memory: exactly `window` bytes per channel and direction on each relay (chan_net_stats.relay_bytes
 * counts it). A relay keeps a frame until the next link has acknowledged it. Frames are relayed in order of
 * the channel.
 *
 * One thread (the driver) uses a chan_net.
 */
#ifndef LINK_CHAN_H
#define LINK_CHAN_H
#include "link/link.h"

#define CHAN_MSG_MAX (1ull << 30) /* bytes of one message; callers split larger ones */

struct chan_net;
struct chan;

/* News that every node of the ring must hear: flooded both ways round over the links, delivered once per node
 * (also to the origin). */
enum notice_kind {
	NOTICE_DEAD = 1 /* `subject` is gone */,
	NOTICE_ABORT = 2 /* communicator `arg` was aborted by `origin` */
};
struct chan_notice {
	enum notice_kind kind;
	uint16_t origin, subject; /* positions */
	uint32_t number; /* the origin's n-th notice */
	uint32_t code; /* sircl_result_t */
	uint64_t arg;
};

struct chan_net_cfg {
	struct sircl_ctx *ctx;
	int self, n; /* position, number of positions */
	bool ring; /* false: a line; positions 0 and n - 1 have one link */
	size_t relay_limit; /* most bytes this node gives to relayed channels; an OPEN beyond it is refused by
			       name */
	void (*notice)(void *user, struct tick *, const struct chan_notice *);
	void *user;
	const uint16_t *rank_of; /* position -> rank, for messages; NULL: identity. Must outlive the net */
};

sircl_result_t chan_net_create(const struct chan_net_cfg *, struct chan_net **);
/* Callbacks to give to link_open (link_cfg.ops, .user), for both sides. */
const struct link_user_ops *chan_net_link_ops(void);
void chan_net_set_link(struct chan_net *, enum link_side, struct link *);
struct link *chan_net_link(const struct chan_net *, enum link_side);
/* Progress of links and channels; true if anything happened, in particular whenever a transfer has changed.
 */
bool chan_net_progress(struct chan_net *, struct tick *);
uint64_t chan_net_deadline(const struct chan_net *);
int chan_net_arm(struct chan_net *, struct pollfd *, int max);
/* Every open channel's partner has opened it too, and its OPEN has come: from then on each of them can be
 * closed to its end. Without that an end may have gone before its partner asks it for anything. */
bool chan_net_met(const struct chan_net *);
void chan_net_destroy(struct chan_net *); /* channels are closed; links are the caller's */

void chan_net_notify(struct chan_net *, struct tick *, enum notice_kind, uint16_t subject, uint32_t code,
		     uint64_t arg);

struct chan_cfg {
	uint32_t id; /* both ends give the same; unique between two positions, and not used again in the life
			of the net: ends that open it find each other by it, however late */
	uint16_t peer; /* position */
	enum link_side via; /* the first hop; both ends must mean the same path: the peer of a channel via
			       NEXT opens it via PREV */
	uint32_t window; /* bytes per direction and hop, a multiple of 4096 (both ends alike; differing: the
			    smaller) */
	uint32_t least; /* where memory is short each hop may give a smaller window, down to this; 0: window
			   or nothing. A multiple of 4096 */
};
/* A window that any stream of messages gets along with, so small that all pairs of n positions have one. */
static inline uint32_t chan_least(int n)
{
	return n <= 16 ? 32768 : 8192;
}

/* The window for SIRCL_WINDOW or SIRCL_RELAY_WINDOW, which may be any number of bytes. */
static inline uint32_t chan_window(int64_t bytes)
{
	return (uint32_t)((bytes + 4095) / 4096 * 4096);
}

/* A transfer: written by progress only, poll it. */
struct xfer {
	uint64_t done; /* send: prefix whose source is free. recv: contiguous prefix landed (view mode:
			  readable in the window) */
	uint64_t len; /* send: as given. recv: real length once finished */
	uint64_t tag; /* recv: the sender's tag, valid from the first frame on (tagged) */
	bool tagged, finished;
	sircl_result_t err; /* not SIRCL_SUCCESS: ended, no put can land in the buffer any more; chan_error
			       has the sentence */
};
/* finished: recv: all landed. send: all handed over and every source byte free. */

sircl_result_t chan_open(struct chan_net *, struct tick *, const struct chan_cfg *, struct chan **);
/*
 * Queues one message; false if the queue (CHAN_QUEUE) is full. tag: 64 bits that the receiver sees with the
 * first frame. Messages arrive in the order queued. len 0 is a message.
 */
#define CHAN_QUEUE 256
bool chan_send(struct chan *, struct tick *, const void *, size_t len, uint64_t tag, struct xfer *);
/* Posts the receive of the next message into buf; a longer message than max ends the transfer with
 * SIRCL_MISMATCH. */
bool chan_recv(struct chan *, struct tick *, void *buf, size_t max, struct xfer *);
/*
 * View mode: the message stays in the window for the caller to read in place (a reduction saves a copy).
 * While this message is the channel's oldest unfinished receive, chan_view gives the next contiguous readable
 * piece (0: nothing yet; pieces end at frame or ring boundaries, multiples of 16 bytes except the last),
 * chan_consume frees `n` bytes of it. xfer.finished: all consumed.
 */
bool chan_recv_view(struct chan *, struct tick *, size_t max, struct xfer *);
size_t chan_view(struct chan *, struct xfer *, const void **p);
void chan_consume(struct chan *, struct tick *, struct xfer *, size_t n);
/*
 * Ends a channel: outstanding transfers end with SIRCL_ABORTED, queued sends that were not started are
 * dropped; the peer's end gets SIRCL_REMOTE_ERROR once it has received what was sent before. The chan is
 * freed when no put can land in its memory any more. Transfers that still may be landed in end only after
 * that (chan_net_progress goes on).
 */
void chan_close(struct chan *, struct tick *);
bool chan_is_open(const struct chan *); /* the far end has opened it too */
bool chan_idle(const struct chan *); /* no send of ours is unfinished or unacknowledged */
const struct sircl_error *chan_error(const struct chan *);
int chan_hops(const struct chan *);
size_t chan_memory(const struct chan *); /* bytes: its window, tables and queues */
/* Links from here to a position by this side; 0: no way (the end of a line, or here). */
int chan_net_hops(const struct chan_net *, uint16_t peer, enum link_side via);
/*
 * The tag of the oldest message of which something has arrived, and for which no receive is posted; false:
 * there is none.
 */
bool chan_peek(const struct chan *, uint64_t *tag);
/*
 * A word beside the stream: it needs no receive and no room in the window, may overtake messages and other
 * words, and only the one that came last is kept. chan_hinted: true once for each that is.
 */
void chan_hint(struct chan *, struct tick *, uint64_t word);
bool chan_hinted(struct chan *, uint64_t *word);

/* Registers memory on both links, so that receives into it can be granted and sends from it are not staged.
 */
sircl_result_t chan_net_register(struct chan_net *, struct tick *, void *, size_t);
sircl_result_t chan_net_deregister(struct chan_net *, struct tick *, void *);

struct chan_net_stats {
	uint64_t relay_bytes, relay_limit, relayed_frames, granted_bytes, staged_bytes, credits_sent;
	uint64_t relay_peak; /* most bytes of relayed channels held at once */
	int channels, relays;
	uint64_t memory_bytes; /* all that channels and relays hold: windows, tables and queues */
};
void chan_net_stats(const struct chan_net *, struct chan_net_stats *);

/* A rule that can be broken on purpose, as link_plant (link/link.h): one pool of window bytes per link,
 * shared by its channels, instead of a window per channel. */
enum chan_break { CHAN_BREAK_POOL = 1 };
#ifdef SIRCL_PLANT
extern unsigned chan_plant;
#else
#define chan_plant 0u
#endif
#endif
