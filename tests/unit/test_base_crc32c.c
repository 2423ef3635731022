/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: the vectors of RFC 3720 B.4, and every path gives the same for every length and alignment. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/crc32c.h"
#include "base/crc32c_internal.h"

typedef uint32_t crc_fn(uint32_t, const void *, size_t);

static void check_vectors(crc_fn *f)
{
	static const uint8_t read_pdu[48] = {
		0x01, 0xc0, [16] = 0x14, [22] = 4, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 2
	};
	uint8_t b[32];

	memset(b, 0, sizeof(b));
	ck_assert_uint_eq(f(0, b, sizeof(b)), 0x8a9136aa);
	memset(b, 0xff, sizeof(b));
	ck_assert_uint_eq(f(0, b, sizeof(b)), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		b[i] = (uint8_t)i;
	ck_assert_uint_eq(f(0, b, sizeof(b)), 0x46dd794e);
	for (int i = 0; i < 32; i++)
		b[i] = (uint8_t)(31 - i);
	ck_assert_uint_eq(f(0, b, sizeof(b)), 0x113fdb5c);
	ck_assert_uint_eq(f(0, read_pdu, sizeof(read_pdu)), 0xd9963a56);
	ck_assert_uint_eq(f(0, "123456789", 9), 0xe3069283);
	ck_assert_uint_eq(f(0, "", 0), 0);
}

START_TEST(test_crc32c_gives_the_vectors_of_rfc3720)
{
	check_vectors(crc32c);
	check_vectors(crc32c_table);
	if (crc32c_have_cpu())
		check_vectors(crc32c_cpu);
	else
		printf("no CRC32C instruction on this CPU: only the table was tested\n");
}
END_TEST

START_TEST(test_crc32c_paths_agree_for_every_length_and_alignment)
{
	uint8_t b[600];
	unsigned seed = 7;

	for (size_t i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)rand_r(&seed);
	for (size_t off = 0; off < 16; off++)
		for (size_t n = 0; n <= 560; n++) {
			const uint32_t s = (uint32_t)rand_r(&seed) * 3u;
			const uint32_t want = crc32c_table(s, b + off, n);

			ck_assert_uint_eq(crc32c(s, b + off, n), want);
			if (crc32c_have_cpu())
				ck_assert_uint_eq(crc32c_cpu(s, b + off, n), want);
		}
}
END_TEST

START_TEST(test_crc32c_chains)
{
	static const char text[] = "the quick brown fox jumps over the lazy dog";
	const size_t n = strlen(text);

	for (size_t k = 0; k <= n; k++)
		ck_assert_uint_eq(crc32c(crc32c(0, text, k), text + k, n - k), crc32c(0, text, n));
}
END_TEST

START_TEST(test_crc32c_sees_every_single_bit)
{
	uint8_t b[48];
	uint32_t good;

	for (size_t i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)(i * 37);
	good = crc32c(0, b, sizeof(b));
	for (size_t bit = 0; bit < 8 * sizeof(b); bit++) {
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_uint_ne(crc32c(0, b, sizeof(b)), good);
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base_crc32c");
	TCase *c = tcase_create("crc32c");
	SRunner *r;
	int failed;

	tcase_add_test(c, test_crc32c_gives_the_vectors_of_rfc3720);
	tcase_add_test(c, test_crc32c_paths_agree_for_every_length_and_alignment);
	tcase_add_test(c, test_crc32c_chains);
	tcase_add_test(c, test_crc32c_sees_every_single_bit);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
