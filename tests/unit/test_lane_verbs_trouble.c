/* SPDX-License-Identifier: Apache-2.0 */
/* A verbs lane over tests/fakeverbs (no hardware) whose device, memory or process is in trouble: it says what
 * is wrong and what helps, and does not take its sisters along. */
#include "lane_verbs_pair.h"
#include <errno.h>
#include <sys/resource.h>

START_TEST(test_verbs_memory_with_a_hole_or_that_cannot_be_written_is_refused_with_the_cure)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct lane_export exp;
	struct lane_mem mem;
	struct vpair v;
	char *p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert(p != MAP_FAILED);
	v_open(&v);
	ck_assert_int_eq(munmap(p + page, page), 0);
	ck_assert_int_eq(mprotect(p + 2 * page, page, PROT_READ), 0);
	for (size_t from = 0; from < 3; from += 2) {
		size_t n = from ? page : 3 * page;

		if (from && !madvise(p + from * page, page, MADV_POPULATE_WRITE))
			continue; /* an emulator, which does as if: the fake cannot know either */
		ck_assert_int_eq(verbs_reg(v.p.e[0].l, 5, p + from * page, n, &mem, &exp),
				 SIRCL_SYSTEM_ERROR);
		ck_assert_ptr_nonnull(strstr(error_last()->msg, "bytes at 0x"));
		ck_assert_ptr_nonnull(strstr(error_last()->msg, "mapped and writable from end to end"));
	}
	ck_assert_int_eq(verbs_reg(v.p.e[0].l, 5, p, page, &mem, &exp), SIRCL_SUCCESS);
	verbs_unreg(v.p.e[0].l, &mem);
	v_close(&v);
	munmap(p, page);
	munmap(p + 2 * page, page);
}
END_TEST

/* The link's other lanes need the memory; this one is lost, and says so. */
START_TEST(test_verbs_memory_can_be_registered_although_the_device_has_failed)
{
	static char buf[8192];
	struct lane_export exp;
	struct lane_mem mem;
	struct vpair v;

	v_open(&v);
	h_up(&v.p, 1);
	ck_assert_int_eq(fakeverbs_fatal(v_lane(&v, 0)->device), 0);
	for (int k = 0; k < 2; k++) { /* before the lane knows, and after */
		ck_assert_int_eq(verbs_reg(v.p.e[0].l, 2, buf, sizeof(buf), &mem, &exp), SIRCL_SUCCESS);
		ck_assert_ptr_eq(mem.base, buf);
		ck_assert_uint_eq(exp.len, sizeof(buf));
		verbs_unreg(v.p.e[0].l, &mem);
		ck_assert(v_lane(&v, 0)->dead);
		h_wait(&v.p, 0, 0, LANE_SUSPECT, 2000);
	}
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_device_that_fails_before_the_lane_is_up_is_an_error)
{
	static char buf[8192];
	struct lane_mem mem;
	struct vpair v;

	v_open(&v);
	ck_assert_int_eq(fakeverbs_fatal(v_lane(&v, 0)->device), 0);
	ck_assert_int_eq(verbs_reg(v.p.e[0].l, 2, buf, sizeof(buf), &mem, NULL), SIRCL_SYSTEM_ERROR);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "ibv_reg_mr of 8192 bytes"));
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_out_of_descriptors_says_so_at_every_step)
{
	struct rlimit old, few;
	struct vpair v;
	struct lane_cfg cfg;
	struct lane_addr addr;
	struct lane *l;
	int failed = 0;
	bool opened = false;

	v_open(&v); /* what the process opens once is open */
	cfg = h_cfg(&v.p.e[0]);
	cfg.provider = &v.tune[0];
	cfg.dev = v_lane(&v, 0)->dev;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (rlim_t more = 0; !opened; more++) {
		int first = dup(2);

		ck_assert_int_ge(first, 0);
		close(first);
		ck_assert_uint_le(more, 40);
		few = (struct rlimit){ .rlim_cur = (rlim_t)first + more, .rlim_max = old.rlim_max };
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
		opened = v.p.ops->open(&cfg, &l, &addr) == SIRCL_SUCCESS;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (opened)
			break;
		failed++;
		ck_assert_msg(strstr(error_last()->msg, "open files") != NULL, "%d more: %s", (int)more,
			      error_last()->msg);
	}
	ck_assert_int_ge(failed, 4);
	v.p.ops->close(l);
	v_close(&v);
}
END_TEST

static int no_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)id, (void)p;
	errno = ENOMEM;
	return -1;
}

START_TEST(test_verbs_own_trouble_with_a_peer_does_not_make_it_a_stranger)
{
	struct vpair v;
	struct tick t;

	v_init(&v);
	v.lib[1].cm.rdma_accept = no_accept;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(v_open_end(&v, i), SIRCL_SUCCESS);
	v.p.ops->allow(v.p.e[1].l, 1);
	t = h_tick(&v.p.e[0]);
	ck_assert_int_eq(v.p.ops->connect(v.p.e[0].l, &t, &v.p.e[1].addr, 1), SIRCL_SUCCESS);
	h_wait(&v.p, 0, 0, LANE_DOWN, 10000);
	ck_assert_int_eq(v_logged(&v, "a connection of the peer was not taken, it may try again: verbs lane"),
			 1);
	ck_assert_int_eq(v_logged(&v, "rdma_accept: Cannot allocate memory"), 1);
	ck_assert_int_eq(v_logged(&v, "did not belong here"), 0);
	v_close(&v);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane verbs in trouble (over fakeverbs)");
	TCase *c = tcase_create("trouble");
	SRunner *r;
	int failed;

	tcase_add_test(c, test_verbs_memory_with_a_hole_or_that_cannot_be_written_is_refused_with_the_cure);
	tcase_add_test(c, test_verbs_memory_can_be_registered_although_the_device_has_failed);
	tcase_add_test(c, test_verbs_device_that_fails_before_the_lane_is_up_is_an_error);
	tcase_add_test(c, test_verbs_out_of_descriptors_says_so_at_every_step);
	tcase_add_test(c, test_verbs_own_trouble_with_a_peer_does_not_make_it_a_stranger);
	tcase_set_timeout(c, 60);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
