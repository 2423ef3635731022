/* SPDX-License-Identifier: Apache-2.0 */
/* What the handshake needs of the key ring. */
#ifndef BASE_KEYRING_INTERNAL_H
#define BASE_KEYRING_INTERNAL_H
#include "base/auth.h"

struct mac_part {
	const void *p;
	size_t n;
};
/* MAC under one key of a label and some parts, each preceded by its length, so that no two lists of parts
 * give the same bytes. nmac: 16..64; MACs of different length are unrelated. */
sircl_result_t key_mac(const struct key *, const char *label, const struct mac_part *, int nparts,
		       uint8_t *mac, size_t nmac);
/* In constant time. Only after key_mac() has succeeded. */
bool key_equal(const uint8_t *a, const uint8_t *b, size_t n);
#endif
