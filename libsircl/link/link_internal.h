/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the link share. docs/protocol.md has the rules; the invariants that hold the structure
 * together are:
 *  - [una, next) are the frames sent and not cumulatively acknowledged; next - una <= window; frame s lives
 * in sent[s % window];
 *  - everything below rx_cum is received, rx_bits holds what is received of [rx_cum, rx_cum + window);
 *  - a lane's floor rises only after the lane has reported LANE_FENCED (or never came up in that epoch), and
 * a lane is never UP in an epoch that is not above both floors;
 *  - memory, the retained source of a frame included, is touched by a lane only while the lane is UP or SUSP.
 */
#ifndef LINK_INTERNAL_H
#define LINK_INTERNAL_H
#include "link/frame.h"

#define LINK_BATCH 32 /* events taken from a lane at a time */
#define LINK_BACKOFF_MIN (10 * MSEC)
#define LINK_BACKOFF_MAX (1 * SEC)
#define LINK_GONE_LIMIT (500 * MSEC) /* every lane hung up and none came back: the process is dead */
#define LINK_WHY_MAX 240

enum lane_phase {
	LL_DOWN, /* floor is fenced here */
	LL_TRYING, /* connecting end only: handshake for `epoch` */
	LL_UP,
	LL_SUSP /* nothing more is posted; LANE_FENCED is awaited */
};

struct link_lane {
	struct lane *lane;
	const struct lane_ops *ops;
	enum lane_phase phase;
	uint32_t epoch; /* UP, SUSP: its epoch. TRYING: the one tried */
	uint32_t floor, peer_floor;
	bool fresh; /* UP, but its first STATE has not been posted: no data yet */
	bool state_due; /* a STATE has to go out on this lane */
	bool heard; /* something has arrived in this epoch */
	bool gone; /* the last SUSPECT or DOWN said that there is no process */
	bool stale; /* frames may be retained that were last posted here in an epoch that is over */
	bool late_fence; /* only under LINK_BREAK_NO_FENCE */
	uint32_t states_sent, states_echoed, states_got; /* of this epoch */
	uint32_t probes; /* sent since the last echo */
	uint64_t echoed_at; /* the last echo or probe */
	uint32_t echo_told; /* states_got as of the last header sent */
	uint64_t up_at, sent_at, retry_at, backoff;
	uint64_t silent_since; /* a sister was first heard after this lane's last sound; 0: not silent */
	/* striping: bytes posted, by put, so that LANE_DONE (a count of puts) says how many bytes are through
	 */
	uint64_t posted, done; /* puts */
	uint64_t posted_bytes, done_bytes;
	uint64_t *put_end; /* ring of posted_bytes after each put, done_mask + 1 of them */
	uint32_t done_mask;
	uint64_t head_since; /* since then the oldest put under way is the lane's work */
	uint64_t rate_from, rate_bytes; /* the sample that runs */
	double rate; /* bytes per ns; 0: not known. To judge lateness only */
	uint32_t races; /* it was in */
	double weight; /* speed against its sisters, found in races; the best has 1 */
	uint64_t race_from, race_end, race_bytes; /* the race that runs */
	uint64_t raced_at, tried_at; /* l->striped at its last race, and at that or the last probe */
	uint64_t up_striped; /* l->striped when it came up */
	uint64_t probe_gap; /* an idle lane is probed so many bytes after tried_at */
	uint64_t bytes_sent;
	struct lane_export arena; /* the peer's region 0 as this lane names it */
	struct lane_export peer_exp[LANE_REGIONS_MAX];
	char dev[32];
	char why[LINK_WHY_MAX];
};

enum sent_state {
	SENT_FREE,
	SENT_POSTED, /* last posted on (lane, epoch) */
	SENT_QUEUED, /* must be posted again */
	SENT_ACKED /* the peer has it, or a lossless lane has copied it; waits for una to pass */
};

struct sent_frame {
	struct link_frame frame;
	const void *src;
	const struct link_mem *smem;
	uint64_t dst_off;
	void *owner;
	uint64_t posted_at, post_no;
	uint32_t epoch;
	uint32_t stage; /* bytes of send memory to give back when una passes */
	uint16_t region;
	uint8_t state, lane;
	bool tell; /* released() is owed */
	bool ack_soon;
};

struct link_mem {
	struct link *link;
	void *base;
	size_t len;
	uint16_t id;
	bool used;
	bool exported; /* the peer may write it and is told so */
	uint8_t owe_region; /* lanes whose export has to be announced */
	bool owe_withdraw;
	uint32_t gen; /* counts additions and removals under this number; odd while used */
	struct lane_mem lm[LANES_MAX];
	struct lane_export exp[LANES_MAX];
};

struct peer_region {
	uint32_t gen;
	uint8_t lanes; /* whose export is known */
	bool told; /* ops->region(len) was called and not withdrawn */
	uint64_t len;
};

struct link {
	struct sircl_ctx *ctx;
	struct link_cfg cfg;
	struct link *other; /* of this machine, NULL: none; see link_beside */
	int nlanes, nup;
	bool lossless; /* every lane is: nothing is retained, nothing replayed */
	bool needs_reg;
	uint32_t max_put, copy_limit;
	uint32_t window, mask;
	uint64_t heartbeat, suspect, timeout, start_timeout, ack_delay; /* ns */

	/* sending */
	uint64_t una, next;
	uint64_t post_no, acked_post_no; /* posts counted; the latest that is known to be there */
	uint32_t nqueued; /* frames in SENT_QUEUED */
	struct sent_frame *sent;
	struct arena *send_arena; /* region 1, not exported: STATEs first, then the staging ring */
	uint8_t *stage;
	size_t stage_size;
	uint64_t stage_head, stage_tail;
	uint32_t turn; /* lossless lanes and ties take turns */
	uint64_t striped; /* bytes posted on all lanes */
	unsigned racing, rested; /* lanes in the race that runs; those of them that have run out of work */
	uint64_t race_bytes; /* of all of them */
	uint64_t race_gap; /* longest time between two passes in it */
	bool wanted; /* a put was refused and none accepted since */
	uint64_t moved_at; /* una has advanced, or the first frame of an idle link was wanted */

	/* receiving */
	uint64_t rx_cum;
	uint32_t rx_ahead; /* frames received above rx_cum */
	uint32_t rx_news; /* frames received that no header or STATE has acknowledged */
	uint64_t rx_news_bytes;
	uint64_t rx_bits[LINK_WINDOW_MAX / 64]; /* by number modulo window */
	uint64_t ack_at; /* acknowledge by then */
#ifdef SIRCL_PLANT
	uint64_t rx_max;
#endif

	struct arena *arena; /* region 0 */
	struct link_mem region[LANE_REGIONS_MAX];
	int nregions; /* one above the highest number in use */
	struct peer_region peer_region[LANE_REGIONS_MAX];

	bool connecting; /* link_connect was called */
	bool ever_up, dying, dead, state_any, owe_regions;
	bool bye_wanted, bye_sent, peer_bye, left; /* left: the peer went after both BYEs were said */
	bool busy; /* something of `pump` is left to do */
	uint64_t bye_seq;
	uint64_t now, opened_at, gone_since;
	uint64_t before; /* `now` of the pass before this one */
	uint64_t awake_since; /* the end of the last gap in which nobody drove this link */
	uint64_t next_timer;
	unsigned heard; /* lanes heard in this pass */
	uint64_t heard_at; /* the last pass in which any lane was heard */
	uint64_t peer_awake_since; /* the end of the last gap in which no lane was heard */
	struct sircl_error error;
	struct link_addr addr, peer_addr;
	struct link_lane lane[LANES_MAX];
	struct link_stats stats;
	uint64_t bad_headers;
};

/* link_stripe.c: which lane */
int lane_best(const struct link *, uint16_t region, uint32_t len, unsigned without);
void stripe_up(struct link *, struct link_lane *);
void stripe_down(struct link *);
void stripe_posted(struct link *, struct link_lane *, uint64_t now, uint32_t len);
void stripe_done(struct link *, struct link_lane *, uint64_t puts);
void stripe_idle(struct link *); /* nothing is under way, whatever LANE_DONE says */

/* link_put.c: the sending side: retention, replay */
bool put_control(struct link *, struct tick *, const struct link_frame *);
void acked_to(struct link *, struct tick *, uint64_t cum);
void acked_set(struct link *, struct tick *, const struct state_msg *);
void replay_stale(struct link *, int lane, uint32_t floor);
void replay_pump(struct link *, struct tick *);
/* What is heard now comes after a silence of all lanes that several heartbeats should have broken. */
static inline bool peer_paused(const struct link *l, const struct tick *t)
{
	uint64_t beats = 2 * l->heartbeat;

	return t->now - l->heard_at > (beats > l->suspect / 2 ? beats : l->suspect / 2);
}
bool lane_post(struct link *, struct link_lane *, struct tick *, struct frame_hdr *, struct lane_put *);
static inline uint64_t ack_now(const struct link *l)
{
#ifdef SIRCL_PLANT
	if (link_plant & LINK_BREAK_EARLY_ACK)
		return l->rx_max > l->rx_cum ? l->rx_max : l->rx_cum;
#endif
	return l->rx_cum;
}

/* link_state.c: STATE messages */
bool state_send(struct link *, int lane, struct tick *);
void state_send_any(struct link *, struct tick *);
void state_all(struct link *); /* on every path, soon */
void state_got(struct link *, int lane, struct tick *, const struct frame_hdr *);

/* link_recv.c: events of lanes, received frames */
void lane_event(struct link *, int lane, struct tick *, const struct lane_event *);

/* link_lane.c: the state machine of a lane, and timers */
void lane_suspect(struct link *, int lane, struct tick *, const char *why);
void lane_fenced(struct link *, int lane, struct tick *);
void lane_came_up(struct link *, int lane, struct tick *, uint32_t epoch);
void lane_failed(struct link *, int lane, struct tick *, uint32_t epoch);
void lane_peer_floor(struct link *, int lane, struct tick *, uint32_t floor);
void lane_try(struct link *, int lane, struct tick *);
void lane_silence(struct link *, struct tick *);
void link_timers(struct link *, struct tick *, bool quiet);
static inline void timer_at(struct link *l, uint64_t at)
{
	if (at < l->next_timer)
		l->next_timer = at;
}

/* link_region.c */
void region_pump(struct link *, struct tick *);
void region_got(struct link *, const struct frame_hdr *);

/* link_end.c: goodbye and death */
void link_die(struct link *, struct tick *, sircl_result_t, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void end_pump(struct link *, struct tick *);
static inline bool link_quiet_end(const struct link *l)
{
	return l->peer_bye && l->bye_sent;
}
const char *side_name(const struct link *);

/* For tests, before link_connect: both directions begin at these numbers (tx of one end = rx of the other).
 */
void link_test_start(struct link *, uint64_t tx, uint64_t rx);
#endif
