/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake of auth.h. A message is: length (2 bytes, little endian, of all of it), type, version, body:
 *   1: nonce[16], n (1 byte), fingerprint[8] * n, hello
 *   2: nonce[16], fingerprint[8], hello, MAC[32]
 *   3: MAC[32]
 * hello takes what is left. A MAC covers a label that only its sender uses, then everything before it in the
 * conversation, each part preceded by its length, then the context. So a message cannot be reflected (label),
 * replayed (the other side's nonce), moved to another connection (context) or to a weaker key (all
 * fingerprints of message 1 are covered). Invariant: a side that has failed once never succeeds.
 */
#include "base/auth.h"
#include <string.h>
#include "base/keyring_internal.h"

#define AUTH_VERSION 2
#define NONCE 16
#define MAC 32
#define FP 8
#define HEAD 4
#define MSG2_FIXED (HEAD + NONCE + FP + MAC)
#define MSG3_BYTES AUTH_MSG3_BYTES

_Static_assert(HEAD + NONCE + 1 + KEYRING_MAX * FP + AUTH_HELLO_MAX <= AUTH_MSG_MAX, "message 1 fits");
_Static_assert(MSG2_FIXED + AUTH_HELLO_MAX <= AUTH_MSG_MAX, "message 2 fits");
_Static_assert(MSG3_BYTES == HEAD + MAC, "message 3 is as long as auth.h says");
_Static_assert(AUTH_BARE_BYTES(1) == NONCE + 1 + FP, "bare messages are as long as auth.h says");

static void put_head(uint8_t *m, size_t n, uint8_t type)
{
	m[0] = (uint8_t)n;
	m[1] = (uint8_t)(n >> 8);
	m[2] = type;
	m[3] = AUTH_VERSION;
}

void auth_start(struct auth *a, const struct key_ring *ring, bool connects, const void *ctx, size_t nctx,
		const void *hello, size_t nhello)
{
	sircl_assert(nctx <= sizeof(a->ctx) && nhello <= sizeof(a->hello));
	memset(a, 0, sizeof(*a));
	a->ring = ring;
	a->connects = connects;
	a->key = -1;
	if (nctx > 0)
		memcpy(a->ctx, ctx, nctx);
	if (nhello > 0)
		memcpy(a->hello, hello, nhello);
	a->nctx = nctx;
	a->nhello = nhello;
	a->offers = KEYRING_MAX;
}

void auth_offer(struct auth *a, int most)
{
	a->offers = most;
}

size_t auth_bare(const struct auth *a, void *bare)
{
	sircl_assert(a->connects && a->nmsg1 > HEAD && a->nhello == 0);
	memcpy(bare, a->msg1 + HEAD, a->nmsg1 - HEAD);
	return a->nmsg1 - HEAD;
}

size_t auth_dress(const void *bare, size_t n, void *msg)
{
	const uint8_t *b = bare;
	size_t want;

	if (n < AUTH_BARE_BYTES(1) || b[NONCE] == 0 || b[NONCE] > KEYRING_MAX)
		return 0;
	want = AUTH_BARE_BYTES(b[NONCE]);
	if (n < want)
		return 0;
	for (size_t i = want; i < n; i++)
		if (b[i] != 0)
			return 0;
	memcpy((uint8_t *)msg + HEAD, b, want);
	put_head(msg, HEAD + want, 1);
	return HEAD + want;
}

/* What the connecting ("A") or accepting ("B") side must send; msg2 as far as `nmsg2`. */
static sircl_result_t expected_mac(const struct auth *a, const char *label, size_t nmsg2, uint8_t mac[MAC])
{
	const struct mac_part part[] = {
		{ a->msg1, a->nmsg1 },
		{ a->msg2, nmsg2 },
		{ a->ctx, a->nctx },
	};

	return key_mac(&a->ring->key[a->key], label, part, 3, mac, MAC);
}

/* `mac` is the one that this side expects; the time does not depend on where they differ. */
static sircl_result_t check_mac(const struct auth *a, const char *label, size_t nmsg2, const uint8_t *mac)
{
	uint8_t want[MAC];

	CHECK(expected_mac(a, label, nmsg2, want));
	if (!key_equal(want, mac, MAC))
		return error_set(
			SIRCL_REMOTE_ERROR,
			"the peer's proof is wrong: it does not have the job's key, belongs to another "
			"connection, or the bytes were changed on the way");
	return SIRCL_SUCCESS;
}

static sircl_result_t make_msg1(struct auth *a)
{
	const int n = a->ring->n < a->offers ? a->ring->n : a->offers;
	uint8_t *p = a->msg1 + HEAD;

	if (a->ring->n == 0)
		return error_set(SIRCL_BAD_CONFIG,
				 "this process has no key to prove itself with; make one with "
				 "`sircl keygen FILE` and set SIRCL_KEY_FILE on all ranks");
	CHECK(auth_random(p, NONCE));
	p += NONCE;
	*p++ = (uint8_t)n;
	for (int i = 0; i < n; i++, p += FP) /* the ring is sorted, strongest first */
		memcpy(p, a->ring->key[i].fingerprint, FP);
	memcpy(p, a->hello, a->nhello);
	a->nmsg1 = (size_t)(p - a->msg1) + a->nhello;
	put_head(a->msg1, a->nmsg1, 1);
	return SIRCL_SUCCESS;
}

/* Accepting side: message 1 in, the strongest common key chosen, message 2 made. */
static sircl_result_t take_msg1(struct auth *a, const uint8_t *m, size_t n)
{
	const size_t fixed = HEAD + NONCE + 1;
	size_t nkeys;
	uint8_t *p;

	nkeys = n < fixed ? 0 : m[fixed - 1];
	if (nkeys == 0 || nkeys > KEYRING_MAX || n < fixed + nkeys * FP ||
	    n > fixed + nkeys * FP + AUTH_HELLO_MAX)
		return error_set(SIRCL_REMOTE_ERROR, "the peer's first message is malformed");
	memcpy(a->msg1, m, n);
	a->nmsg1 = n;
	a->npeer_hello = n - fixed - nkeys * FP;
	memcpy(a->peer_hello, m + fixed + nkeys * FP, a->npeer_hello);
	for (int i = 0; i < a->ring->n && a->key < 0; i++) /* the ring is sorted, strongest first */
		for (size_t k = 0; k < nkeys; k++)
			if (memcmp(a->ring->key[i].fingerprint, m + fixed + k * FP, FP) == 0)
				a->key = i;
	if (a->key < 0)
		return error_set(SIRCL_REMOTE_ERROR,
				 "the peer has none of the %d keys of this process; give all ranks the same "
				 "SIRCL_KEY_FILE, SIRCL_KEY or unique id",
				 a->ring->n);
	p = a->msg2 + HEAD;
	CHECK(auth_random(p, NONCE));
	p += NONCE;
	memcpy(p, a->ring->key[a->key].fingerprint, FP);
	p += FP;
	memcpy(p, a->hello, a->nhello);
	p += a->nhello;
	a->nmsg2 = (size_t)(p - a->msg2) + MAC;
	put_head(a->msg2, a->nmsg2, 2);
	return expected_mac(a, "sircl handshake 2 B", a->nmsg2 - MAC, p);
}

/* Connecting side: message 2 in; the peer is proved after it. */
static sircl_result_t take_msg2(struct auth *a, const uint8_t *m, size_t n, uint8_t *out)
{
	if (n < MSG2_FIXED || n > MSG2_FIXED + AUTH_HELLO_MAX)
		return error_set(SIRCL_REMOTE_ERROR, "the peer's second message is malformed");
	memcpy(a->msg2, m, n);
	a->nmsg2 = n;
	for (int i = 0; i < a->ring->n && a->key < 0; i++)
		if (memcmp(a->ring->key[i].fingerprint, m + HEAD + NONCE, FP) == 0)
			a->key = i;
	if (a->key < 0)
		return error_set(SIRCL_REMOTE_ERROR, "the peer chose a key that this process did not offer");
	CHECK(check_mac(a, "sircl handshake 2 B", n - MAC, m + n - MAC));
	a->npeer_hello = n - MSG2_FIXED;
	memcpy(a->peer_hello, m + HEAD + NONCE + FP, a->npeer_hello);
	put_head(out, MSG3_BYTES, 3);
	return expected_mac(a, "sircl handshake 2 A", n, out + HEAD);
}

static sircl_result_t take_msg3(struct auth *a, const uint8_t *m, size_t n)
{
	if (n != MSG3_BYTES)
		return error_set(SIRCL_REMOTE_ERROR, "the peer's third message is malformed");
	return check_mac(a, "sircl handshake 2 A", a->nmsg2, m + HEAD);
}

/* Length, type and version of a message that came in. */
static sircl_result_t check_head(const uint8_t *m, size_t n, uint8_t type)
{
	if (n < HEAD || n > AUTH_MSG_MAX || (size_t)(m[0] | m[1] << 8) != n)
		return error_set(SIRCL_REMOTE_ERROR, "what came is no handshake message: is that port "
						     "libsircl's?");
	if (m[3] != AUTH_VERSION)
		return error_set(
			SIRCL_REMOTE_ERROR,
			"the peer speaks version %u of the handshake, this process version %d; use one "
			"version of libsircl on all ranks",
			m[3], AUTH_VERSION);
	if (m[2] != type)
		return error_set(SIRCL_REMOTE_ERROR, "handshake message %u came where %u belongs", m[2],
				 type);
	return SIRCL_SUCCESS;
}

sircl_result_t auth_step(struct auth *a, const void *in, size_t nin, void *out, size_t *nout)
{
	sircl_result_t ret;

	*nout = 0;
	if (a->connects && a->state == AUTH_START && nin == 0) {
		CHECK_GOTO(make_msg1(a), failed);
		memcpy(out, a->msg1, a->nmsg1);
		*nout = a->nmsg1;
		a->state = AUTH_SENT1;
	} else if (a->connects && a->state == AUTH_SENT1 && nin > 0) {
		CHECK_GOTO(check_head(in, nin, 2), failed);
		CHECK_GOTO(take_msg2(a, in, nin, out), failed);
		*nout = MSG3_BYTES;
		a->state = AUTH_OK;
	} else if (!a->connects && a->state == AUTH_START && nin > 0) {
		CHECK_GOTO(check_head(in, nin, 1), failed);
		CHECK_GOTO(take_msg1(a, in, nin), failed);
		memcpy(out, a->msg2, a->nmsg2);
		*nout = a->nmsg2;
		a->state = AUTH_SENT2;
	} else if (!a->connects && a->state == AUTH_SENT2 && nin > 0) {
		CHECK_GOTO(check_head(in, nin, 3), failed);
		CHECK_GOTO(take_msg3(a, in, nin), failed);
		a->state = AUTH_OK;
	} else {
		ret = error_set(SIRCL_REMOTE_ERROR, "a handshake message came out of turn");
		goto failed;
	}
	return SIRCL_SUCCESS;
failed:
	a->state = AUTH_FAILED;
	a->npeer_hello = 0;
	*nout = 0;
	return ret;
}
