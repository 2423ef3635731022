/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic without plans: conversations between two positions, each way a list of messages whose every byte
 * follows from (conversation, way, message, offset). A receiver compares every byte; after that the buffer is
 * poisoned and must stay so until it is posted again (nothing lands in delivered memory); a source is
 * poisoned as soon as its send is finished (nothing reads a released source).
 */
#ifndef TESTS_SIM_TRAFFIC_H
#define TESTS_SIM_TRAFFIC_H
#include "world.h"

#define CONVS_MAX 24
#define MSGS_MAX 64
#define DEPTH_MAX 4
#define MSG_BYTES_MAX (96u << 10)

struct slot {
	struct xfer x;
	uint8_t *buf;
	size_t room;
	bool view, poisoned;
	size_t seen; /* view: bytes compared */
};

struct way {
	int n; /* messages */
	uint32_t len[MSGS_MAX];
	uint64_t view; /* bit per message: received in view mode */
	int send_depth, recv_depth;
	uint64_t recv_from; /* time before which nothing is posted; NEVER: never, and nothing is expected */
	uint64_t send_from;
	int queued, sent, posted, received;
	struct slot tx[DEPTH_MAX], rx[DEPTH_MAX];
	uint64_t finished_at;
};

struct conv {
	uint32_t id, window;
	int pos[2];
	enum link_side via; /* from pos[0] */
	uint64_t open_at[2];
	struct chan *chan[2];
	struct way way[2]; /* way[i]: from pos[i] */
};

struct traffic {
	struct world *world;
	int nconvs;
	struct conv conv[CONVS_MAX];
	size_t mem_used[WORLD_MAX]; /* of the node's registered memory */
	uint64_t left; /* messages not yet sent or not yet received */
	uint64_t messages, bytes; /* received and compared */
};

void traffic_init(struct traffic *);
/* A conversation without messages; registered: its buffers lie in the nodes' registered memory as long as
 * there is some. */
struct conv *traffic_conv(struct traffic *, int from, int to, enum link_side via, uint32_t window);
void traffic_message(struct way *, uint32_t len, bool view);
/* After all messages are known: buffers. */
void traffic_ready(struct traffic *, struct world *, unsigned registered_percent);
void traffic_step(struct wnode *, struct tick *);
uint64_t traffic_deadline(struct wnode *);
bool traffic_done(struct world *);
void traffic_check_poison(struct traffic *);
/* Closes all channels; afterwards the buffers of what never finished must stay as they are. */
void traffic_close(struct traffic *);
void traffic_free(struct traffic *);
void traffic_where(const struct traffic *, char *buf, size_t n); /* who waits for what, for a hang */
#endif
