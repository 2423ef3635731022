/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key ring: a job's keys, strongest first, and what is computed with them (BLAKE2b of libsodium, keyed).
 * Invariant: no two entries have the same secret, and what the caller gave as secret is kept as a hash only.
 */
#include "base/keyring_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/dl.h"

#define KEY_FILE_MAX 4096

/* The prototypes are the header's, the functions are found at run time; the order is that of dl.c. */
struct sodium {
	__typeof__(sodium_init) *init;
	__typeof__(sodium_memcmp) *memcmp;
	__typeof__(sodium_memzero) *memzero;
	__typeof__(randombytes_buf) *random;
	__typeof__(crypto_generichash) *hash;
	__typeof__(crypto_generichash_init) *hash_init;
	__typeof__(crypto_generichash_update) *hash_update;
	__typeof__(crypto_generichash_final) *hash_final;
};

static sircl_result_t sodium_open(const struct sodium **s)
{
	void *const *table;

	CHECK(dl_open(DL_SODIUM, &table));
	*s = (const struct sodium *)(const void *)table;
	if ((*s)->init() < 0) /* may be called again and by several threads */
		return error_set(SIRCL_SYSTEM_ERROR, "libsodium.so.23 has no source of random numbers: "
						     "sodium_init failed; is /dev/urandom there?");
	return SIRCL_SUCCESS;
}

sircl_result_t auth_random(void *buf, size_t n)
{
	const struct sodium *s;

	CHECK(sodium_open(&s));
	s->random(buf, n);
	return SIRCL_SUCCESS;
}

sircl_result_t auth_random_hex(char *hex, size_t n)
{
	static const char digit[] = "0123456789abcdef";
	uint8_t b[KEY_BYTES];

	sircl_assert(n <= sizeof(b));
	CHECK(auth_random(b, n));
	for (size_t i = 0; i < n; i++) {
		hex[2 * i] = digit[b[i] >> 4];
		hex[2 * i + 1] = digit[b[i] & 15];
	}
	hex[2 * n] = '\0';
	explicit_bzero(b, sizeof(b));
	return SIRCL_SUCCESS;
}

static void hash_part(const struct sodium *s, crypto_generichash_state *st, const void *p, size_t n)
{
	uint8_t len[8];

	for (int i = 0; i < 8; i++)
		len[i] = (uint8_t)((uint64_t)n >> 8 * i);
	s->hash_update(st, len, sizeof(len));
	s->hash_update(st, p, n);
}

sircl_result_t key_mac(const struct key *k, const char *label, const struct mac_part *part, int nparts,
		       uint8_t *mac, size_t nmac)
{
	crypto_generichash_state st;
	const struct sodium *s;

	CHECK(sodium_open(&s));
	s->hash_init(&st, k->secret, sizeof(k->secret), nmac);
	hash_part(s, &st, label, strlen(label));
	for (int i = 0; i < nparts; i++)
		hash_part(s, &st, part[i].p, part[i].n);
	s->hash_final(&st, mac, nmac);
	s->memzero(&st, sizeof(st));
	return SIRCL_SUCCESS;
}

bool key_equal(const uint8_t *a, const uint8_t *b, size_t n)
{
	const struct sodium *s;

	return sodium_open(&s) == SIRCL_SUCCESS && s->memcmp(a, b, n) == 0;
}

sircl_result_t key_ring_init(struct key_ring *r)
{
	const struct sodium *s;

	memset(r, 0, sizeof(*r));
	return sodium_open(&s);
}

void key_ring_wipe(struct key_ring *r)
{
	explicit_bzero(r, sizeof(*r));
}

sircl_result_t key_ring_add(struct key_ring *r, enum key_kind kind, const void *secret, size_t n)
{
	static const char label[] = "sircl key 1"; /* our keys are no one else's hash of the same secret */
	struct key k = { .kind = kind };
	const struct sodium *s;
	uint8_t wide[16];
	sircl_result_t ret;
	int i;

	CHECK(sodium_open(&s));
	if (n == 0)
		return error_set(SIRCL_BAD_CONFIG, "an empty key protects nothing");
	s->hash(k.secret, sizeof(k.secret), secret, n, (const uint8_t *)label, sizeof(label) - 1);
	CHECK_GOTO(key_mac(&k, "sircl fingerprint 1", NULL, 0, wide, sizeof(wide)), out);
	memcpy(k.fingerprint, wide, sizeof(k.fingerprint));
	for (i = 0; i < r->n; i++)
		if (key_equal(r->key[i].secret, k.secret, sizeof(k.secret))) {
			if (r->key[i].kind <= kind)
				goto out; /* known already, and not as a weaker one */
			memmove(&r->key[i], &r->key[i + 1], (size_t)(r->n - i - 1) * sizeof(k));
			r->n--;
			break;
		}
	if (r->n == KEYRING_MAX) {
		ret = error_set(SIRCL_BAD_CONFIG, "more than %d keys in one process", KEYRING_MAX);
		goto out;
	}
	for (i = r->n; i > 0 && r->key[i - 1].kind > kind; i--)
		r->key[i] = r->key[i - 1];
	r->key[i] = k;
	r->n++;
out:
	s->memzero(&k, sizeof(k));
	return ret;
}

/* Reads at most n bytes; -1 with errno. */
static ssize_t read_all(int fd, uint8_t *buf, size_t n)
{
	size_t have = 0;

	while (have < n) {
		const ssize_t k = read(fd, buf + have, n - have);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -1;
		if (k == 0)
			break;
		have += (size_t)k;
	}
	return (ssize_t)have;
}

sircl_result_t key_ring_add_file(struct key_ring *r, const char *path)
{
	uint8_t buf[KEY_FILE_MAX + 1];
	struct stat st;
	sircl_result_t ret;
	ssize_t n;
	int fd;

	/* O_NONBLOCK: a pipe must not stop us; it is refused below */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return error_set(SIRCL_BAD_CONFIG,
				 "the key file %s cannot be opened: %s; make one with `sircl "
				 "keygen %s`",
				 path, strerror(errno), path);
	if (fstat(fd, &st) != 0) {
		ret = error_set(SIRCL_SYSTEM_ERROR, "the key file %s: fstat: %s", path, strerror(errno));
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		ret = error_set(SIRCL_BAD_CONFIG, "the key file %s is not a regular file", path);
		goto out;
	}
	if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
		ret = error_set(
			SIRCL_BAD_CONFIG,
			"the key file %s is open to group or others (mode %03o); chmod 600 %s, and make a "
			"new key if somebody may have read it",
			path, st.st_mode & 0777, path);
		goto out;
	}
	n = read_all(fd, buf, sizeof(buf));
	if (n < 0) {
		ret = error_set(SIRCL_SYSTEM_ERROR, "the key file %s cannot be read: %s", path,
				strerror(errno));
		goto out;
	}
	if (n > KEY_FILE_MAX) {
		ret = error_set(SIRCL_BAD_CONFIG, "the key file %s is longer than %d bytes: is it a key?",
				path, KEY_FILE_MAX);
		goto out;
	}
	/* an editor's or echo's line end is no part of the key: SIRCL_KEY=$(cat FILE) must be the same */
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\r'))
		n--;
	if (n == 0) {
		ret = error_set(SIRCL_BAD_CONFIG,
				"the key file %s is empty; make one with `sircl keygen FILE`", path);
		goto out;
	}
	ret = key_ring_add(r, KEY_FILE, buf, (size_t)n);
out:
	explicit_bzero(buf, sizeof(buf));
	close(fd);
	return ret;
}

sircl_result_t key_ring_mac(const struct key_ring *r, const void *msg, size_t n, uint8_t mac[16])
{
	const struct mac_part part = { msg, n };

	if (r->n == 0)
		return error_set(SIRCL_BAD_CONFIG,
				 "this process has no key to prove itself with; make one with "
				 "`sircl keygen FILE` and set SIRCL_KEY_FILE on all ranks");
	return key_mac(&r->key[0], "sircl datagram 1", &part, 1, mac, 16);
}

bool key_ring_verify(const struct key_ring *r, const void *msg, size_t n, const uint8_t mac[16])
{
	const struct mac_part part = { msg, n };
	bool good = false;
	uint8_t want[16];

	for (int i = 0; i < r->n; i++)
		if (key_mac(&r->key[i], "sircl datagram 1", &part, 1, want, sizeof(want)) == SIRCL_SUCCESS)
			good |= key_equal(want, mac, sizeof(want));
	return good;
}
