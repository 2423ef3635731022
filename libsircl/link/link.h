/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: up to 8 lanes to one neighbour. Exactly-once, UNORDERED frames, kept until the peer link
 * acknowledges them; fences, replay, striping, heartbeats, reconnection, as the protocol in docs/protocol.md.
 * No credits, no order: that is the channel's (link/chan.h).
 *
 * A frame carries bytes into a region that the peer registered, and a header. Frames name (region, offset),
 * never a lane's key, so any lane can carry or replay them. Region 0 is the link's receive arena, exported by
 * the handshake; others are announced with link_region_add. Nothing else can be written by the peer.
 */
#ifndef LINK_LINK_H
#define LINK_LINK_H
#include "base/arena.h"
#include "lane/lane.h"

struct link;
enum link_side { LINK_NEXT, LINK_PREV, LINK_SIDES };
enum link_state {
	LINK_CONNECTING,
	LINK_UP,
	LINK_DEGRADED /* a lane is down */,
	LINK_TUNNELLED /* later */,
	LINK_DEAD
};

/* What the channel layer authors. Passed through to the peer's `deliver` unchanged. */
struct link_frame {
	uint16_t label; /* channel label on this link, chosen by the channel layer */
	uint8_t kind; /* >= 16: channel layer's; below: the link's own */
	uint8_t flags;
	uint32_t msg, fno, len;
	uint64_t off; /* the channel's offset, not an address */
	uint64_t tag;
	uint8_t lane; /* deliver only: by which it came */
};

/* A registered range, known to all lanes of the link. */
struct link_mem;

struct link_put {
	struct link_frame frame; /* frame.len bytes from src */
	const void *src;
	const struct link_mem *smem; /* region that holds src, NULL: not registered */
	uint16_t region; /* the peer's region, and the offset in it */
	uint64_t dst_off;
	void *owner; /* handed back to ops->released; NULL: nobody wants to know */
	bool ack_soon; /* ask the peer to acknowledge at once instead of lazily: somebody waits for the source
			*/
};

enum link_put_result {
	LINK_PUT_NO, /* no room (window, send memory, no lane up): try again after link_progress */
	LINK_PUT_POSTED, /* the source must stay until ops->released(owner, fno) */
	LINK_PUT_DONE, /* the source is free now; released is not called */
};

/* Callbacks into the channel layer, from inside link_progress (released never from inside link_put). They may
 * call link_put. */
struct link_user_ops {
	/* A frame has arrived, exactly once. Its bytes are in region memory of this end. */
	void (*deliver)(void *user, struct link *, struct tick *, const struct link_frame *);
	/* A LINK_PUT_POSTED frame is acknowledged: its source is free. */
	void (*released)(void *user, struct link *, void *owner, uint32_t fno);
	/* The peer has announced (or, len == 0, withdrawn) a region on all lanes; frames to it are legal from
	 * now on. */
	void (*region)(void *user, struct link *, uint16_t region, uint64_t len);
	/* Once: link_state is LINK_DEAD, every lane is fenced, no put can land any more; link_error tells
	 * why. */
	void (*dead)(void *user, struct link *);
	/* Once, optional: the peer has said goodbye and is gone, with nothing of ours under way to it. The
	 * link can carry no more; that is no error of the link (its state is not LINK_DEAD). */
	void (*left)(void *user, struct link *);
};

struct link_cfg {
	struct sircl_ctx *ctx;
	const struct key_ring *keys;
	const char *lab;
	uint8_t job[16];
	enum link_side side;
	uint16_t cable; /* number of the cable: position of its lower end, n - 1 for the one that closes the
			   ring */
	uint16_t self, peer; /* positions */
	uint16_t self_rank, peer_rank; /* for messages */
	bool connects;
	int nlanes;
	struct {
		const struct lane_ops *ops;
		const char *dev;
		void *provider;
	} lane[LANES_MAX];
	size_t arena_bytes; /* receive memory for channel windows; the link adds its own control slots */
	uint32_t window; /* frames in flight, a power of two, 8..1024; 0: 256 */
	const struct link_user_ops *ops;
	void *user;
};

/* What the peer needs to connect to this end; travels in rendezvous records. */
struct link_addr {
	uint32_t nlanes;
	struct lane_addr lane[LANES_MAX];
};

sircl_result_t link_open(const struct link_cfg *, struct link **);
void link_local_addr(const struct link *, struct link_addr *);
/*
 * Two links of one machine whose lanes with the same number share something on the way to the wire (on a
 * Spark the x4 of a PCI domain): each then prefers lanes on which the other has less under way. One
 * thread drives both. Ends when either is closed, or with NULL for the second.
 */
void link_beside(struct link *, struct link *);
/* Starts connecting all lanes; the link is LINK_UP when all are up, LINK_DEGRADED when at least one is. */
sircl_result_t link_connect(struct link *, struct tick *, const struct link_addr *peer);
enum link_put_result link_put(struct link *, struct tick *, const struct link_put *);
/* Whether a frame would find room now (window and a lane); cheap. */
bool link_room(const struct link *);
/* Most bytes of one frame: the smallest max_put of the link's lanes. Constant from link_open on. */
uint32_t link_max_put(const struct link *);
/* Whether what a lane accepts is at the peer already, copied by this processor. */
bool link_lossless(const struct link *);
/* How long the next frame should be at most: less than link_max_put while the next one may go to a lane whose
 * rate is not known, where a long one could hold up all that comes after it. A multiple of 64. */
uint32_t link_frame_now(const struct link *);
/* Polls lanes, handles what arrived, answers, replays, heartbeats. Returns true if anything happened. */
bool link_progress(struct link *, struct tick *);
uint64_t link_deadline(const struct link *);
/* fds of all lanes before sleeping; -1: something is ready now */
int link_arm(struct link *, struct pollfd *, int max);
enum link_state link_state(const struct link *);
const struct sircl_error *link_error(const struct link *);
struct arena *link_arena(const struct link *); /* region 0; the channel layer allocates windows from it */
size_t link_arena_off(const struct link *,
		      size_t arena_off); /* arena offset as region-0 offset (identity today) */
/* Bytes of the peer's region 0: the least that a lane which has been up has named; 0: none has been. */
uint64_t link_peer_arena(const struct link *);
/* Registers caller's memory on all lanes and announces it to the peer, which may write it from now on. At
 * most 62 at a time, those of link_source_add included. */
sircl_result_t link_region_add(struct link *, struct tick *, void *, size_t, const struct link_mem **);
/* Registers memory that frames are sent from, and no more: it is neither exported nor announced, the peer can
 * not write it. Taken back with link_region_remove. */
sircl_result_t link_source_add(struct link *, void *, size_t, const struct link_mem **);
uint16_t link_mem_region(const struct link_mem *); /* its number, for GRANTs; not of a source */
/* The registered region that holds [p, p + n), or NULL. */
const struct link_mem *link_mem_find(const struct link *, const void *p, size_t n);
/* Legal when no frame from or to it is in flight; else SIRCL_INVALID_USAGE. */
sircl_result_t link_region_remove(struct link *, struct tick *, const struct link_mem *);
/* True if everything posted is acknowledged and everything received is acknowledged to the peer. */
bool link_idle(const struct link *);
/* Two-phase goodbye: says BYE when idle; link_closed is true when both have. After it silence is no error. */
void link_bye(struct link *, struct tick *);
bool link_closed(const struct link *);
/* The peer has our BYE, and with it everything: this end may close; the peer finds it gone, which is no
 * error. */
bool link_bye_taken(const struct link *);
/* Fences every lane, then the link is LINK_DEAD with this error. For time limits and aborts; asynchronous. */
void link_kill(struct link *, struct tick *, const struct sircl_error *why);
void link_close(struct link *);

/* What somebody who waits for the peer has seen of it; begin with zeroes, look several times within a limit.
 */
struct link_watch {
	uint64_t notes, frames; /* counters of the link at the last look */
	uint64_t heard_at, moved_at;
	unsigned deaf, stuck; /* looks since then that saw no change */
	bool begun;
};
#define LINK_LOOKS \
	4 /* as many in vain are a silence; with a look every eighth of a limit that is half of it */
void link_look(struct link *, struct tick *, struct link_watch *);
/* Nothing at all has been heard for `lasting`. */
bool link_is_deaf(const struct link_watch *, uint64_t now, uint64_t lasting);
/* A frame has been waiting for its acknowledgement for `lasting`, and no other moved either. */
bool link_is_stuck(const struct link_watch *, uint64_t now, uint64_t lasting);
/* Asks the peer for a sign of life on lanes without heartbeats; cheap, and no flood if it is stopped. */
void link_probe(struct link *, struct tick *);

struct link_stats {
	uint64_t frames_sent, frames_received, bytes_sent,
		bytes_received; /* of the channel layer; replays not counted */
	uint64_t frames_replayed, duplicates_refused, states_sent, fences, reconnects;
	uint64_t window_bytes, memory_bytes;
	uint16_t cable, peer, peer_rank; /* as in link_cfg */
	int lanes, lanes_up;
	struct lane_stats lane[LANES_MAX];
	uint64_t lane_bytes_sent[LANES_MAX]; /* payload put on each lane, replays included */
	const char *lane_why[LANES_MAX]; /* of a lane that is down: why; until the link is called again */
};
void link_stats(const struct link *, struct link_stats *);

/*
 * Rules that can be broken on purpose, to show that the tests notice. In a build with SIRCL_PLANT a variable
 * that the test program sets before it opens a link; else the constant 0.
 */
enum link_break { LINK_BREAK_NO_FENCE = 1, LINK_BREAK_NO_DEDUP = 2, LINK_BREAK_EARLY_ACK = 4 };
#ifdef SIRCL_PLANT
extern unsigned link_plant;
#else
#define link_plant 0u
#endif
#endif
