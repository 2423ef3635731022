/* SPDX-License-Identifier: Apache-2.0 */
/* The key ring and the handshake: who shares a key comes through, and nothing else does. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/auth.h"

#define CTX "job 1, cable 0, lane 2, epoch 7"

struct msg {
	uint8_t b[AUTH_MSG_MAX + 8];
	size_t n;
};

static struct key_ring ring(enum key_kind kind, const char *secret)
{
	struct key_ring r;

	ck_assert_int_eq(key_ring_init(&r), SIRCL_SUCCESS);
	if (secret != NULL)
		ck_assert_int_eq(key_ring_add(&r, kind, secret, strlen(secret)), SIRCL_SUCCESS);
	return r;
}

/* A and B at the beginning of a handshake. */
struct pair {
	struct auth a, b;
};
static struct pair start(const struct key_ring *ra, const struct key_ring *rb)
{
	struct pair p;

	auth_start(&p.a, ra, true, CTX, strlen(CTX), "hello of A", 10);
	auth_start(&p.b, rb, false, CTX, strlen(CTX), "hello, I am B", 13);
	return p;
}

static struct msg step(struct auth *x, const struct msg *in)
{
	struct msg out = { .n = 0 };

	ck_assert_msg(auth_step(x, in != NULL ? in->b : NULL, in != NULL ? in->n : 0, out.b, &out.n) ==
			      SIRCL_SUCCESS,
		      "%s", error_last()->msg);
	ck_assert_uint_le(out.n, AUTH_MSG_MAX);
	return out;
}

static void refused(struct auth *x, const struct msg *in)
{
	struct msg out = { .n = 99 };

	error_clear();
	ck_assert_int_eq(auth_step(x, in->b, in->n, out.b, &out.n), SIRCL_REMOTE_ERROR);
	ck_assert_int_eq(x->state, AUTH_FAILED);
	ck_assert_uint_eq(out.n, 0);
	ck_assert_str_ne(error_last()->msg, "");
	/* and whatever comes later */
	ck_assert_int_eq(auth_step(x, in->b, in->n, out.b, &out.n), SIRCL_REMOTE_ERROR);
	ck_assert_int_eq(x->state, AUTH_FAILED);
}

START_TEST(test_auth_common_key_convinces_both_sides)
{
	struct key_ring r = ring(KEY_UNIQUE_ID, "secret"), q = ring(KEY_UNIQUE_ID, "secret");
	struct pair p = start(&r, &q);
	struct msg m1 = step(&p.a, NULL), m2, m3, none;

	ck_assert_int_eq(p.a.state, AUTH_SENT1);
	m2 = step(&p.b, &m1);
	ck_assert_int_eq(p.b.state, AUTH_SENT2);
	m3 = step(&p.a, &m2);
	ck_assert_int_eq(p.a.state, AUTH_OK);
	none = step(&p.b, &m3);
	ck_assert_uint_eq(none.n, 0);
	ck_assert_int_eq(p.b.state, AUTH_OK);
	ck_assert_uint_eq(p.b.npeer_hello, 10);
	ck_assert_mem_eq(p.b.peer_hello, "hello of A", 10);
	ck_assert_uint_eq(p.a.npeer_hello, 13);
	ck_assert_mem_eq(p.a.peer_hello, "hello, I am B", 13);
}
END_TEST

START_TEST(test_auth_messages_are_self_delimiting_and_bounded)
{
	struct key_ring r = ring(KEY_FILE, "k0");
	uint8_t big[AUTH_HELLO_MAX];
	struct pair p;
	struct msg m;

	for (int i = 1; i < KEYRING_MAX; i++) {
		char s[3] = { 'k', (char)('0' + i), 0 };

		ck_assert_int_eq(key_ring_add(&r, KEY_UNIQUE_ID, s, 2), SIRCL_SUCCESS);
	}
	ck_assert_int_eq(key_ring_add(&r, KEY_FILE, "one more", 8), SIRCL_BAD_CONFIG);
	ck_assert_int_eq(r.n, KEYRING_MAX);
	memset(big, 0x5a, sizeof(big));
	auth_start(&p.a, &r, true, big, 64, big, sizeof(big));
	auth_start(&p.b, &r, false, big, 64, big, sizeof(big));
	for (int i = 0; i < 3; i++) {
		m = step(i % 2 == 0 ? &p.a : &p.b, i == 0 ? NULL : &m);
		ck_assert_uint_eq((size_t)(m.b[0] | m.b[1] << 8), m.n);
	}
	step(&p.b, &m);
	ck_assert_int_eq(p.a.state, AUTH_OK);
	ck_assert_int_eq(p.b.state, AUTH_OK);
	ck_assert_mem_eq(p.a.peer_hello, big, sizeof(big));
}
END_TEST

START_TEST(test_auth_empty_hello_and_context_work)
{
	struct key_ring r = ring(KEY_FILE, "s");
	struct pair p;
	struct msg m;

	auth_start(&p.a, &r, true, NULL, 0, NULL, 0);
	auth_start(&p.b, &r, false, NULL, 0, NULL, 0);
	m = step(&p.a, NULL);
	m = step(&p.b, &m);
	m = step(&p.a, &m);
	step(&p.b, &m);
	ck_assert_int_eq(p.b.state, AUTH_OK);
	ck_assert_uint_eq(p.a.npeer_hello, 0);
}
END_TEST

START_TEST(test_auth_every_truncation_and_extension_is_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret");
	struct pair p = start(&r, &r), q;
	struct msg m[4] = { { .n = 0 } }, t;

	m[1] = step(&p.a, NULL);
	q = p;
	m[2] = step(&q.b, &m[1]);
	for (size_t n = 0; n <= m[1].n + 4; n++)
		for (int fix = 0; fix < 2 && n != m[1].n; fix++) {
			struct pair x = p;

			t = m[1];
			t.n = n;
			if (fix) { /* the length says the same as the transport: the body must tell */
				t.b[0] = (uint8_t)n;
				t.b[1] = (uint8_t)(n >> 8);
			}
			if (n == 0)
				continue;
			/* only hello's length is free in message 1; then A's side finds out */
			if (auth_step(&x.b, t.b, t.n, t.b, &t.n) == SIRCL_SUCCESS) {
				ck_assert_int_eq(fix, 1);
				refused(&x.a, &t);
			} else {
				ck_assert_int_eq(x.b.state, AUTH_FAILED);
			}
		}
	for (size_t n = 1; n <= m[2].n + 4; n++)
		for (int fix = 0; fix < 2 && n != m[2].n; fix++) {
			struct pair x = q;

			t = m[2];
			t.n = n;
			if (fix) {
				t.b[0] = (uint8_t)n;
				t.b[1] = (uint8_t)(n >> 8);
			}
			refused(&x.a, &t);
		}
	m[3] = step(&q.a, &m[2]);
	for (size_t n = 1; n <= m[3].n + 4; n++)
		for (int fix = 0; fix < 2 && n != m[3].n; fix++) {
			struct pair x = q;

			t = m[3];
			t.n = n;
			if (fix) {
				t.b[0] = (uint8_t)n;
				t.b[1] = (uint8_t)(n >> 8);
			}
			refused(&x.b, &t);
		}
}
END_TEST

START_TEST(test_auth_every_single_bit_flip_is_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret");
	struct pair p, q;
	struct msg m1, m2, m3, t;
	size_t seen_by_b = 0, seen_by_a = 0;

	ck_assert_int_eq(key_ring_add(&r, KEY_UNIQUE_ID, "weaker", 6), SIRCL_SUCCESS);
	p = start(&r, &r);
	m1 = step(&p.a, NULL);
	for (size_t bit = 0; bit < 8 * m1.n; bit++) {
		struct pair x = p;

		t = m1;
		t.b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (auth_step(&x.b, t.b, t.n, t.b, &t.n) != SIRCL_SUCCESS) {
			seen_by_b++;
			continue;
		}
		/* B cannot know yet; A must */
		refused(&x.a, &t);
		seen_by_a++;
	}
	ck_assert_uint_ge(seen_by_b, 32); /* length, type, version */
	ck_assert_uint_ge(seen_by_a, 8 * (16 + 16 + 10)); /* nonce, both fingerprints, hello */
	q = p;
	m2 = step(&q.b, &m1);
	for (size_t bit = 0; bit < 8 * m2.n; bit++) {
		struct pair x = q;

		t = m2;
		t.b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		refused(&x.a, &t);
	}
	m3 = step(&q.a, &m2);
	for (size_t bit = 0; bit < 8 * m3.n; bit++) {
		struct pair x = q;

		t = m3;
		t.b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		refused(&x.b, &t);
	}
	step(&q.b, &m3); /* the true one still passes */
}
END_TEST

START_TEST(test_auth_garbage_is_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret");
	unsigned seed = 3;

	for (int i = 0; i < 20000; i++) {
		struct pair p = start(&r, &r);
		struct msg m = { .n = 1 + (size_t)rand_r(&seed) % (sizeof(m.b) - 1) }, m1 = step(&p.a, NULL);

		(void)m1;
		for (size_t k = 0; k < m.n; k++)
			m.b[k] = (uint8_t)rand_r(&seed);
		if (i % 2) { /* a right head gets it past the first check */
			m.b[0] = (uint8_t)m.n;
			m.b[1] = (uint8_t)(m.n >> 8);
			m.b[2] = (uint8_t)(1 + i / 2 % 3);
			m.b[3] = 2;
			m.b[20] &= 7;
		}
		refused(&p.a, &m);
		refused(&p.b, &m);
	}
}
END_TEST

START_TEST(test_auth_first_message_beyond_its_limits_is_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret");
	struct msg m;

	for (int keys = 1; keys <= KEYRING_MAX + 1; keys++)
		for (size_t hello = AUTH_HELLO_MAX - 1; hello <= AUTH_HELLO_MAX + 1; hello++) {
			struct pair p = start(&r, &r);
			const size_t fixed = 4 + 16 + 1, n = fixed + 8 * (size_t)keys + hello;
			const bool good = keys <= KEYRING_MAX && hello <= AUTH_HELLO_MAX;

			memset(&m, 0, sizeof(m));
			m.n = n;
			m.b[0] = (uint8_t)n;
			m.b[1] = (uint8_t)(n >> 8);
			m.b[2] = 1;
			m.b[3] = 2;
			m.b[fixed - 1] = (uint8_t)keys;
			memcpy(m.b + fixed + 8 * (keys - 1), r.key[0].fingerprint, 8);
			if (good) {
				step(&p.b, &m);
				ck_assert_uint_eq(p.b.npeer_hello, hello);
			} else {
				ck_assert_int_eq(auth_step(&p.b, m.b, m.n, m.b, &m.n), SIRCL_REMOTE_ERROR);
				ck_assert_ptr_nonnull(strstr(error_last()->msg, "malformed"));
			}
		}
}
END_TEST

START_TEST(test_auth_bare_first_message_fits_a_connect_request_and_comes_back_whole)
{
	struct key_ring r = ring(KEY_FILE, "k0"), weak = ring(KEY_UNIQUE_ID, "weakest");
	uint8_t bare[AUTH_BARE_BYTES(KEYRING_MAX) + 8] = { 0 };
	struct pair p;
	struct msg m1, back, t;
	size_t n;

	ck_assert_uint_eq(AUTH_BARE_BYTES(4), 49); /* with an epoch: 53 of 56 bytes */
	for (int i = 1; i < 6; i++) {
		char s[3] = { 'k', (char)('0' + i), 0 };

		ck_assert_int_eq(key_ring_add(&r, KEY_FILE, s, 2), SIRCL_SUCCESS);
	}
	ck_assert_int_eq(key_ring_add(&r, KEY_UNIQUE_ID, "weakest", 7), SIRCL_SUCCESS);
	auth_start(&p.a, &r, true, CTX, strlen(CTX), NULL, 0);
	auth_offer(&p.a, 4);
	auth_start(&p.b, &r, false, CTX, strlen(CTX), NULL, 0);
	m1 = step(&p.a, NULL);
	n = auth_bare(&p.a, bare);
	ck_assert_uint_eq(n, AUTH_BARE_BYTES(4));
	for (size_t pad = 0; pad < 4; pad++) {
		back.n = auth_dress(bare, n + pad, back.b);
		ck_assert_uint_eq(back.n, m1.n);
		ck_assert_mem_eq(back.b, m1.b, m1.n);
	}
	for (size_t k = 0; k < n; k++)
		ck_assert_uint_eq(auth_dress(bare, k, t.b), 0);
	bare[n + 2] = 1;
	ck_assert_uint_eq(auth_dress(bare, n + 3, t.b), 0);
	bare[n + 2] = 0;
	for (int keys = 0; keys < 256; keys++)
		if (keys == 0 || keys > 4) {
			bare[16] = (uint8_t)keys;
			ck_assert_uint_eq(auth_dress(bare, n, t.b), 0);
		}
	back = step(&p.b, &back);
	back = step(&p.a, &back);
	step(&p.b, &back);
	ck_assert_int_eq(p.b.state, AUTH_OK);
	/* a peer that has only what was not offered */
	auth_start(&p.b, &weak, false, CTX, strlen(CTX), NULL, 0);
	refused(&p.b, &m1);
}
END_TEST

START_TEST(test_auth_wrong_key_is_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret"), w = ring(KEY_FILE, "secrets");
	struct pair p = start(&r, &w);
	struct msg m = step(&p.a, NULL);

	refused(&p.b, &m);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "out of turn"));
	/* one who copies the fingerprint but does not have the key: both directions */
	memcpy(w.key[0].fingerprint, r.key[0].fingerprint, sizeof(w.key[0].fingerprint));
	p = start(&r, &w);
	m = step(&p.a, NULL);
	m = step(&p.b, &m);
	refused(&p.a, &m);
	p = start(&w, &r);
	m = step(&p.a, NULL);
	m = step(&p.b, &m);
	refused(&p.a, &m);
}
END_TEST

START_TEST(test_auth_impostor_that_skips_the_check_of_message_2_is_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret"), w = ring(KEY_FILE, "other");
	struct pair p, q;
	struct msg m1, m2, m3;

	/* it talks with B under the copied fingerprint and takes message 3 from a handshake of its own key */
	memcpy(w.key[0].fingerprint, r.key[0].fingerprint, sizeof(w.key[0].fingerprint));
	p = start(&w, &r);
	q = start(&w, &w);
	m1 = step(&p.a, NULL);
	step(&p.b, &m1);
	m1 = step(&q.a, NULL);
	m2 = step(&q.b, &m1);
	m3 = step(&q.a, &m2);
	refused(&p.b, &m3);
}
END_TEST

START_TEST(test_auth_no_common_key_is_refused_with_a_cure)
{
	struct key_ring r = ring(KEY_FILE, "one"), s = ring(KEY_FILE, "two"), none = ring(KEY_FILE, NULL);
	struct pair p = start(&r, &s);
	struct msg m = step(&p.a, NULL), out;

	ck_assert_int_eq(auth_step(&p.b, m.b, m.n, out.b, &out.n), SIRCL_REMOTE_ERROR);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "SIRCL_KEY_FILE"));
	p = start(&r, &none);
	m = step(&p.a, NULL);
	refused(&p.b, &m);
	p = start(&none, &r);
	ck_assert_int_eq(auth_step(&p.a, NULL, 0, out.b, &out.n), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "sircl keygen"));
	ck_assert_int_eq(p.a.state, AUTH_FAILED);
}
END_TEST

START_TEST(test_auth_strongest_common_key_is_chosen_whatever_the_order)
{
	struct key_ring r = ring(KEY_UNIQUE_ID, "id"), s = ring(KEY_FILE, "file");
	struct pair p;
	struct msg m;

	ck_assert_int_eq(key_ring_add(&r, KEY_FILE, "file", 4), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&s, KEY_UNIQUE_ID, "id", 2), SIRCL_SUCCESS);
	for (int swap = 0; swap < 2; swap++) {
		p = swap ? start(&s, &r) : start(&r, &s);
		m = step(&p.a, NULL);
		m = step(&p.b, &m);
		step(&p.a, &m);
		ck_assert_int_eq(p.a.ring->key[p.a.key].kind, KEY_FILE);
		ck_assert_int_eq(p.b.ring->key[p.b.key].kind, KEY_FILE);
	}
	/* only the weak one is common */
	s = ring(KEY_UNIQUE_ID, "id");
	p = start(&r, &s);
	m = step(&p.a, NULL);
	m = step(&p.b, &m);
	step(&p.a, &m);
	ck_assert_int_eq(p.a.ring->key[p.a.key].kind, KEY_UNIQUE_ID);
}
END_TEST

START_TEST(test_auth_different_context_is_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret");
	struct pair p = start(&r, &r);
	struct msg m;

	auth_start(&p.b, &r, false, "job 1, cable 0, lane 2, epoch 8", strlen(CTX), "b", 1);
	m = step(&p.a, NULL);
	m = step(&p.b, &m);
	refused(&p.a, &m);
}
END_TEST

START_TEST(test_auth_replayed_messages_are_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret");
	struct pair p = start(&r, &r), q, x;
	struct msg m1 = step(&p.a, NULL), m2 = step(&p.b, &m1), m3 = step(&p.a, &m2), n1, n2;

	step(&p.b, &m3);
	/* a recorded 2 to a new A */
	q = start(&r, &r);
	n1 = step(&q.a, NULL);
	x = q;
	refused(&x.a, &m2);
	/* a recorded 1 and 3 to a new B: 1 is answered with a fresh nonce, 3 does not fit it */
	n2 = step(&q.b, &m1);
	ck_assert_int_ne(memcmp(n2.b, m2.b, m2.n), 0);
	refused(&q.b, &m3);
	/* a recorded 3 to a B that has a new 1 */
	q = start(&r, &r);
	n1 = step(&q.a, NULL);
	step(&q.b, &n1);
	refused(&q.b, &m3);
	/* the same message twice in one handshake */
	refused(&p.b, &m3);
	refused(&p.a, &m2);
	q = start(&r, &r);
	n1 = step(&q.a, NULL);
	step(&q.b, &n1);
	refused(&q.b, &n1);
}
END_TEST

START_TEST(test_auth_reflected_messages_are_refused)
{
	struct key_ring r = ring(KEY_FILE, "secret");
	struct pair p = start(&r, &r), x;
	struct msg m1 = step(&p.a, NULL), m2, m3, t;

	/* A hears itself */
	x = p;
	refused(&x.a, &m1);
	x = p;
	t = m1;
	t.b[2] = 2;
	refused(&x.a, &t);
	/* B hears itself */
	m2 = step(&p.b, &m1);
	x = p;
	refused(&x.b, &m2);
	/* B's own proof, dressed as A's */
	x = p;
	t.n = 36;
	t.b[0] = 36;
	t.b[1] = 0;
	t.b[2] = 3;
	t.b[3] = 2;
	memcpy(t.b + 4, m2.b + m2.n - 32, 32);
	refused(&x.b, &t);
	/* A's proof comes back to A, after the end */
	m3 = step(&p.a, &m2);
	refused(&p.a, &m3);
}
END_TEST

START_TEST(test_key_ring_orders_and_does_not_repeat)
{
	struct key_ring r = ring(KEY_UNIQUE_ID, "x");

	ck_assert_int_eq(key_ring_add(&r, KEY_UNIQUE_ID, "y", 1), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&r, KEY_UNIQUE_ID, "x", 1), SIRCL_SUCCESS);
	ck_assert_int_eq(r.n, 2);
	ck_assert_int_eq(key_ring_add(&r, KEY_FILE, "y", 1), SIRCL_SUCCESS); /* the same, stronger */
	ck_assert_int_eq(r.n, 2);
	ck_assert_int_eq(r.key[0].kind, KEY_FILE);
	ck_assert_int_eq(r.key[1].kind, KEY_UNIQUE_ID);
	ck_assert_int_eq(key_ring_add(&r, KEY_UNIQUE_ID, "y", 1), SIRCL_SUCCESS);
	ck_assert_int_eq(r.key[0].kind, KEY_FILE);
	ck_assert_mem_ne(r.key[0].fingerprint, r.key[1].fingerprint, 8);
	ck_assert_int_eq(key_ring_add(&r, KEY_FILE, "", 0), SIRCL_BAD_CONFIG);
	key_ring_wipe(&r);
	ck_assert_int_eq(r.n, 0);
}
END_TEST

START_TEST(test_key_ring_mac_holds_for_the_message_and_any_key_of_the_ring)
{
	struct key_ring r = ring(KEY_FILE, "file"), s = ring(KEY_UNIQUE_ID, "id"),
			none = ring(KEY_FILE, NULL);
	uint8_t mac[16], msg[40] = "hello from a machine";

	ck_assert_int_eq(key_ring_mac(&s, msg, sizeof(msg), mac), SIRCL_SUCCESS);
	ck_assert(!key_ring_verify(&r, msg, sizeof(msg), mac));
	ck_assert(!key_ring_verify(&none, msg, sizeof(msg), mac));
	ck_assert_int_eq(key_ring_mac(&none, msg, sizeof(msg), mac), SIRCL_BAD_CONFIG);
	ck_assert_int_eq(key_ring_add(&r, KEY_UNIQUE_ID, "id", 2), SIRCL_SUCCESS);
	ck_assert(key_ring_verify(&r, msg, sizeof(msg), mac));
	ck_assert_int_eq(key_ring_mac(&r, msg, sizeof(msg), mac), SIRCL_SUCCESS); /* the stronger, first */
	ck_assert(key_ring_verify(&r, msg, sizeof(msg), mac));
	ck_assert(!key_ring_verify(&s, msg, sizeof(msg), mac));
	ck_assert(!key_ring_verify(&r, msg, sizeof(msg) - 1, mac));
	for (size_t bit = 0; bit < 8 * sizeof(msg); bit++) {
		msg[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert(!key_ring_verify(&r, msg, sizeof(msg), mac));
		msg[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t bit = 0; bit < 8 * sizeof(mac); bit++) {
		mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert(!key_ring_verify(&r, msg, sizeof(msg), mac));
		mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

/* Writes a file with that content and mode, adds it, returns the result. */
static sircl_result_t add_file(struct key_ring *r, const char *path, const char *content, size_t n,
			       mode_t mode)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, content, n), (ssize_t)n);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
	return key_ring_add_file(r, path);
}

/* What temporary names carry. */
static const char *lab(void)
{
	static char pid[16];
	const char *name = getenv("SIRCL_LAB");

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	return name ? name : pid;
}

START_TEST(test_key_file_must_be_private_regular_and_of_sane_size)
{
	char dir[64], path[96], fifo[96];
	struct key_ring r = ring(KEY_FILE, NULL), s = ring(KEY_FILE, "the key");
	static char big[5000];

	snprintf(dir, sizeof(dir), "/tmp/sircl-key-%.24s-XXXXXX", lab());
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/key", dir);
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	ck_assert_int_eq(key_ring_add_file(&r, path), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "sircl keygen"));
	for (mode_t m = 1; m <= 077; m <<= 1) {
		ck_assert_int_eq(add_file(&r, path, "the key", 7, 0600 | m), SIRCL_BAD_CONFIG);
		ck_assert_ptr_nonnull(strstr(error_last()->msg, "chmod 600"));
	}
	ck_assert_int_eq(add_file(&r, path, "", 0, 0600), SIRCL_BAD_CONFIG);
	ck_assert_int_eq(add_file(&r, path, "\n\r\n", 3, 0600), SIRCL_BAD_CONFIG);
	memset(big, 'x', sizeof(big));
	ck_assert_int_eq(add_file(&r, path, big, 4097, 0600), SIRCL_BAD_CONFIG);
	ck_assert_int_eq(key_ring_add_file(&r, dir), SIRCL_BAD_CONFIG);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	ck_assert_int_eq(key_ring_add_file(&r, fifo), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "not a regular file"));
	ck_assert_int_eq(r.n, 0);
	ck_assert_int_eq(add_file(&r, path, big, 4096, 0600), SIRCL_SUCCESS);
	ck_assert_int_eq(add_file(&r, path, "the key\n", 8, 0400), SIRCL_SUCCESS);
	ck_assert_int_eq(r.n, 2);
	/* the line end is no part of it */
	ck_assert_mem_eq(r.key[1].secret, s.key[0].secret, KEY_BYTES);
	unlink(path);
	unlink(fifo);
	rmdir(dir);
}
END_TEST

START_TEST(test_auth_random_differs)
{
	uint8_t a[32] = { 0 }, b[32] = { 0 };

	ck_assert_int_eq(auth_random(a, sizeof(a)), SIRCL_SUCCESS);
	ck_assert_int_eq(auth_random(b, sizeof(b)), SIRCL_SUCCESS);
	ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base_auth");
	TCase *c = tcase_create("auth");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_auth_common_key_convinces_both_sides);
	tcase_add_test(c, test_auth_messages_are_self_delimiting_and_bounded);
	tcase_add_test(c, test_auth_empty_hello_and_context_work);
	tcase_add_test(c, test_auth_every_truncation_and_extension_is_refused);
	tcase_add_test(c, test_auth_every_single_bit_flip_is_refused);
	tcase_add_test(c, test_auth_garbage_is_refused);
	tcase_add_test(c, test_auth_first_message_beyond_its_limits_is_refused);
	tcase_add_test(c, test_auth_bare_first_message_fits_a_connect_request_and_comes_back_whole);
	tcase_add_test(c, test_auth_wrong_key_is_refused);
	tcase_add_test(c, test_auth_impostor_that_skips_the_check_of_message_2_is_refused);
	tcase_add_test(c, test_auth_no_common_key_is_refused_with_a_cure);
	tcase_add_test(c, test_auth_strongest_common_key_is_chosen_whatever_the_order);
	tcase_add_test(c, test_auth_different_context_is_refused);
	tcase_add_test(c, test_auth_replayed_messages_are_refused);
	tcase_add_test(c, test_auth_reflected_messages_are_refused);
	tcase_add_test(c, test_key_ring_orders_and_does_not_repeat);
	tcase_add_test(c, test_key_ring_mac_holds_for_the_message_and_any_key_of_the_ring);
	tcase_add_test(c, test_key_file_must_be_private_regular_and_of_sane_size);
	tcase_add_test(c, test_auth_random_differs);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
