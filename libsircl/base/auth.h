/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key ring and the three-message handshake that every connection passes before anything else is parsed.
 * Pure bytes in, bytes out, so that the rendezvous and every lane provider use the same one. Cryptography is
 * libsodium's, opened at run time (base/dl.h).
 *
 * A = connecting side, B = accepting side; K = strongest common key (entries are offered by fingerprint), ctx
 * = caller's context bytes (what the connection is for: job, lane, epoch), which both sides must give alike:
 *   1. A -> B: nonceA, fingerprints of A's keys, A's hello bytes
 *   2. B -> A: nonceB, the chosen fingerprint, B's hello bytes, MAC_K("B", msg1, msg2, ctx)
 *   3. A -> B: MAC_K("A", msg1, msg2, ctx)
 * A is convinced after 2, B after 3. Wrong or unknown keys give SIRCL_REMOTE_ERROR with a sentence; parsers
 * are bounded.
 */
#ifndef BASE_AUTH_H
#define BASE_AUTH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

#define KEY_BYTES 32
#define KEYRING_MAX 8
#define AUTH_HELLO_MAX 128 /* caller's bytes inside messages 1 and 2; MACed, not secret */
#define AUTH_MSG_MAX 512 /* no message is longer */
#define AUTH_MSG3_BYTES 36 /* message 3 is always as long as this */
#define AUTH_BARE_BYTES(keys) (16u + 1u + 8u * (keys)) /* what auth_bare() writes */

enum key_kind { KEY_FILE, KEY_UNIQUE_ID }; /* strongest first */
struct key {
	enum key_kind kind;
	uint8_t secret[KEY_BYTES], fingerprint[8];
};
struct key_ring {
	int n;
	struct key key[KEYRING_MAX];
};

/* SIRCL_SYSTEM_ERROR naming the package if libsodium is not there. */
sircl_result_t key_ring_init(struct key_ring *);
/* Any bytes as key material; hashed to 32. */
sircl_result_t key_ring_add(struct key_ring *, enum key_kind, const void *secret, size_t n);
/* Reads a key file; refused if not a regular file, empty, over 4 KiB, or readable by group or others. */
sircl_result_t key_ring_add_file(struct key_ring *, const char *path);
void key_ring_wipe(struct key_ring *);
/* MAC of a datagram (hello) under the strongest key; 16 bytes. */
sircl_result_t key_ring_mac(const struct key_ring *, const void *msg, size_t n, uint8_t mac[16]);
bool key_ring_verify(const struct key_ring *, const void *msg, size_t n,
		     const uint8_t mac[16]); /* under any key of the ring */
sircl_result_t auth_random(void *buf, size_t n);
/* `n` random bytes as 2 n digits and a NUL. For secrets; KEY_BYTES at most. */
sircl_result_t auth_random_hex(char *hex, size_t n);

enum auth_state { AUTH_START, AUTH_SENT1, AUTH_SENT2, AUTH_OK, AUTH_FAILED };
struct auth {
	const struct key_ring *ring;
	bool connects;
	enum auth_state state;
	int key; /* index of the chosen key */
	int offers; /* most fingerprints in message 1 */
	uint8_t ctx[64], hello[AUTH_HELLO_MAX], peer_hello[AUTH_HELLO_MAX];
	size_t nctx, nhello, npeer_hello;
	uint8_t msg1[AUTH_MSG_MAX], msg2[AUTH_MSG_MAX];
	size_t nmsg1, nmsg2;
};
/* Messages are self-delimiting: 2 bytes little-endian length (of the whole message), then the body. ring must
 * outlive the handshake. */
void auth_start(struct auth *, const struct key_ring *, bool connects, const void *ctx, size_t nctx,
		const void *hello, size_t nhello);
/* Connecting side, before the first step: message 1 offers the `most` strongest keys only. */
void auth_offer(struct auth *, int most);
/*
 * Message 1 for a transport with little room (RDMA connect requests): without hello and without what the
 * receiver can add itself. auth_bare() after the first step; auth_dress() gives the message back, from bytes
 * that may be padded with zeros, and returns its length, or 0 if they are no such message.
 */
size_t auth_bare(const struct auth *, void *bare);
size_t auth_dress(const void *bare, size_t n, void *msg);
/*
 * Feeds one whole message in (in == NULL, nin == 0: the connecting side's first step) and writes the answer
 * to out (at most AUTH_MSG_MAX); *nout = 0 if there is none. After it the state is AUTH_OK when this side is
 * convinced (side A: out still has message 3 to send). peer_hello is trustworthy only then, except that B may
 * look at it after message 1 to refuse early.
 */
sircl_result_t auth_step(struct auth *, const void *in, size_t nin, void *out, size_t *nout);
#endif
