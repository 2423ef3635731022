/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire format of a link: the 48-byte header that travels in every lane note, and the STATE message that
 * travels as the bytes of an unsequenced put into a control slot. Little endian. A header is covered by its
 * own CRC32C; a STATE's bytes are covered by a CRC32C in its header, because the slot that holds them could
 * be written again behind a duplicated note.
 */
#ifndef LINK_FRAME_H
#define LINK_FRAME_H
#include <string.h>
#include "base/crc32c.h"
#include "link/link.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is little endian and so must be the host, for now"
#endif

/* Kinds of the link itself; the channel layer's begin at LINK_KIND_USER. */
enum link_kind {
	LINK_KIND_STATE = 1, /* no seq. fno: number within (lane, epoch), len: bytes of the STATE, tag: their
				CRC */
	LINK_KIND_REGION = 2, /* label: region, flags: lane, msg: generation, fno: key, off: address, tag:
				 length */
	LINK_KIND_WITHDRAW = 3, /* label: region, msg: generation */
	LINK_KIND_BYE = 4, /* no sequenced frame follows */
	LINK_KIND_USER = 16
};

enum link_bits { LINK_BIT_ACK_SOON = 1 };

struct frame_hdr {
	uint32_t seq; /* low half of the frame's number; 0 in a STATE */
	uint32_t ack; /* low half of the cumulative number received in the other direction */
	uint16_t label;
	uint8_t kind, flags;
	uint32_t msg, fno, len;
	uint64_t off, tag;
	uint32_t crc;
	uint8_t echo; /* STATEs received on this lane in this epoch, modulo 256 */
	uint8_t bits;
	uint8_t spare[2];
};
_Static_assert(sizeof(struct frame_hdr) == sizeof(struct lane_note), "a header is a note");
_Static_assert(offsetof(struct frame_hdr, crc) == 40, "no holes");

static inline uint32_t frame_crc(const struct frame_hdr *h)
{
	struct frame_hdr whole = *h;

	whole.crc = 0;
	return crc32c(0, &whole, sizeof(whole));
}

static inline void frame_seal(struct frame_hdr *h, struct lane_note *note)
{
	h->crc = frame_crc(h);
	memcpy(note, h, sizeof(*h));
}

static inline bool frame_open(const struct lane_note *note, struct frame_hdr *h)
{
	memcpy(h, note, sizeof(*h));
	return h->crc == frame_crc(h);
}

#define LINK_WINDOW_MAX 1024u
#define LINK_PATHS (LANES_MAX + 1) /* the last one is the tunnel's place: always 0 for now */
#define STATE_MAGIC 0x31534c53u

/* What a STATE says, in one snapshot: for each path the newest epoch that is fenced here, and what has been
 * received: everything below cum, and of [cum, cum + window) what the bits say. */
struct state_msg {
	uint32_t magic;
	uint16_t window, nlanes; /* must be alike at both ends */
	uint64_t cum;
	uint32_t floor[LINK_PATHS];
	uint32_t spare;
	uint64_t bits[LINK_WINDOW_MAX / 64]; /* only window / 64 words, rounded up, travel */
};
_Static_assert(offsetof(struct state_msg, bits) == 56, "no holes");

static inline uint32_t state_bytes(uint32_t window)
{
	return (uint32_t)offsetof(struct state_msg, bits) + (window + 63) / 64 * 8;
}

/* Control slots: LINK_SLOTS per path at the beginning of region 0, so both ends know where they are. At most
 * LINK_SLOTS - 1 STATEs of a lane are un-echoed (two, one that echoes, LINK_PROBES probes): a slot is never
 * written before it was read. */
#define LINK_SLOTS 16u
#define LINK_PROBES 12u
#define LINK_SLOT_BYTES 256u
#define LINK_CONTROL_BYTES (LINK_PATHS * LINK_SLOTS * LINK_SLOT_BYTES)
_Static_assert(sizeof(struct state_msg) <= LINK_SLOT_BYTES, "a STATE fits in its slot");

static inline size_t slot_off(int lane, uint32_t number)
{
	return ((size_t)lane * LINK_SLOTS + number % LINK_SLOTS) * LINK_SLOT_BYTES;
}
#endif
