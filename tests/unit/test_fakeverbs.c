/* SPDX-License-Identifier: Apache-2.0 */
/* fakeverbs keeps the promises of RC queue pairs, and no more: connections, data, order. */
#include "fakeverbs_pair.h"

START_TEST(test_fake_connects_and_moves_bytes)
{
	struct pair p;
	struct ibv_wc wc;

	fakeverbs_seed((uint64_t)_i);
	p_up(&p, USUAL);
	p_fill(p.e[0].mem, P_MEM, 7);
	ck_assert_int_eq(p_recv(&p.e[1], 1, 0, 20000), 0);
	ck_assert_int_eq(p_send(&p.e[0], 2, 0, 20000, IBV_SEND_SIGNALED), 0);
	p_ok(&p.e[0], 2);
	wc = p_wc(&p.e[1]);
	ck_assert_uint_eq(wc.wr_id, 1);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
	ck_assert_uint_eq(wc.byte_len, 20000);
	ck_assert_int_eq(memcmp(p.e[0].mem, p.e[1].mem, 20000), 0);
	p_down(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fakeverbs");
	TCase *c = tcase_create("data");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_loop_test(c, test_fake_connects_and_moves_bytes, 0, 4);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
