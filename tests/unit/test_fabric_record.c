/* SPDX-License-Identifier: Apache-2.0 */
/* The records that ranks exchange first: what comes out is what went in, nothing is read beyond the end, and
 * ranks that do not fit together are told why. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/record.h"
#include "fabric/rdv.h"

static uint64_t stopped_clock(void *arg)
{
	(void)arg;
	return 5 * SEC;
}

static const char *none(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return NULL;
}

static void make(struct record *r, const char *host)
{
	struct sircl_ctx ctx = { .clock = stopped_clock };

	ck_assert_int_eq(params_load_from(&ctx.params, none, NULL), SIRCL_SUCCESS);
	strcpy(ctx.host, host);
	record_make(r, &ctx, 65 * SEC);
	params_free(&ctx.params);
}

static size_t full(struct record *r, uint8_t *buf)
{
	make(r, "spark");
	r->nports = MAP_PORTS_MAX;
	for (int i = 0; i < r->nports; i++)
		r->port[i] = (struct map_port){ .name = { 'p', (char)('a' + i) },
						.index = (uint32_t)i + 7,
						.pci_domain = (uint32_t)i,
						.mtu = 9000,
						.excluded = i == 3 };
	return record_write(r, buf, RDV_BLOB_MAX);
}

START_TEST(test_record_comes_out_as_it_went_in)
{
	uint8_t buf[RDV_BLOB_MAX], again[RDV_BLOB_MAX];
	struct record r, back;
	size_t n = full(&r, buf);

	ck_assert_uint_eq(r.limit_ms, 60000);
	ck_assert_int_eq(record_read(&back, 1, buf, n), SIRCL_SUCCESS);
	ck_assert_str_eq(back.host, "spark");
	ck_assert_uint_eq(record_write(&back, again, sizeof(again)), n);
	ck_assert_mem_eq(buf, again, n);
}
END_TEST

/* Each prefix lies at the end of its own allocation, so that a sanitizer sees a byte too many. */
START_TEST(test_record_cut_short_is_refused)
{
	uint8_t buf[RDV_BLOB_MAX];
	struct record r, back;
	size_t n = full(&r, buf);

	for (size_t k = 0; k < n; k++) {
		uint8_t *part = malloc(k ? k : 1);

		memcpy(part, buf, k);
		ck_assert_msg(record_read(&back, 1, part, k) == SIRCL_REMOTE_ERROR, "%zu of %zu bytes", k, n);
		free(part);
	}
}
END_TEST

START_TEST(test_record_garbage_is_read_within_its_bounds)
{
	uint8_t buf[RDV_BLOB_MAX];
	struct record r, back;
	size_t n = full(&r, buf);
	uint32_t rnd = 1;

	for (int k = 0; k < 20000; k++) {
		uint8_t was;
		size_t at;

		rnd = rnd * 1664525u + 1013904223u;
		at = (rnd >> 8) % n;
		was = buf[at];
		buf[at] = (uint8_t)(rnd >> 24);
		if (record_read(&back, 1, buf, n) == SIRCL_SUCCESS) {
			ck_assert_int_le(back.nports, MAP_PORTS_MAX);
			ck_assert_ptr_nonnull(memchr(back.host, 0, sizeof(back.host)));
			for (int i = 0; i < back.nports; i++)
				ck_assert_ptr_nonnull(
					memchr(back.port[i].name, 0, sizeof(back.port[i].name)));
		}
		buf[at] = was;
	}
}
END_TEST

START_TEST(test_record_of_another_wire_format_names_rank_and_host)
{
	uint8_t buf[RDV_BLOB_MAX];
	struct record r, back;
	size_t n;

	full(&r, buf);
	r.wire++;
	n = record_write(&r, buf, sizeof(buf));
	ck_assert_int_eq(record_read(&back, 2, buf, n), SIRCL_REMOTE_ERROR);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "rank 2 (spark)"));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "wire format"));
}
END_TEST

START_TEST(test_records_that_differ_are_told_by_parameter_rank_and_value)
{
	struct record r[3];
	int k = 0;

	make(&r[0], "a");
	make(&r[1], "b");
	make(&r[2], "c");
	ck_assert_int_eq(records_agree(r, 3), SIRCL_SUCCESS);
	/* every one of them counts, and the heartbeat is one */
	for (bool beat = false; k < RECORD_PARAMS_MAX; k++) {
		const char *msg = error_last()->msg;

		r[2].params[k]++;
		if (records_agree(r, 3) == SIRCL_SUCCESS) {
			ck_assert(beat);
			break;
		}
		ck_assert_int_eq(error_last()->code, SIRCL_BAD_CONFIG);
		ck_assert_msg(strstr(msg, " must be the same on all ranks: ") && strstr(msg, "rank 0 (a)") &&
				      strstr(msg, "rank 2 (c)"),
			      "%s", msg);
		beat |= strstr(msg, "SIRCL_HEARTBEAT must") != NULL &&
			strstr(msg, "it is 50 on rank 0 (a) and 51 on rank 2 (c)") != NULL;
		r[2].params[k]--;
	}
}
END_TEST

START_TEST(test_records_with_a_limit_below_three_heartbeats_are_refused)
{
	struct sircl_ctx ctx = { .clock = stopped_clock };
	struct record r;

	ck_assert_int_eq(params_load_from(&ctx.params, none, NULL), SIRCL_SUCCESS);
	ctx.params.num[PARAM_HEARTBEAT] = 100;
	ctx.params.num[PARAM_SUSPECT] = 300;
	record_make(&r, &ctx, 65 * SEC);
	ck_assert_int_eq(records_agree(&r, 1), SIRCL_SUCCESS);
	ctx.params.num[PARAM_SUSPECT] = 299;
	record_make(&r, &ctx, 65 * SEC);
	ck_assert_int_eq(records_agree(&r, 1), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "SIRCL_SUSPECT (299 ms)"));
	params_free(&ctx.params);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric/record");
	TCase *t = tcase_create("record");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_record_comes_out_as_it_went_in);
	tcase_add_test(t, test_record_cut_short_is_refused);
	tcase_add_test(t, test_record_garbage_is_read_within_its_bounds);
	tcase_add_test(t, test_record_of_another_wire_format_names_rank_and_host);
	tcase_add_test(t, test_records_that_differ_are_told_by_parameter_rank_and_value);
	tcase_add_test(t, test_records_with_a_limit_below_three_heartbeats_are_refused);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
