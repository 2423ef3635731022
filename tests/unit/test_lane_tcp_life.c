/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a tcp lane between two well-behaved ends: fences, epochs, limits of a handshake, devices. */
#include <net/if.h>
#include <sys/socket.h>
#include "lane_tcp_pair.h"

START_TEST(test_lane_tcp_nothing_lands_after_fenced_whatever_is_in_flight)
{
	uint8_t *src = malloc(TCP_MAX_PUT);

	/* `cut`: how often the receiver polls before it fences */
	for (int cut = 0; cut < 40; cut++) {
		struct pair *p = pair_new();
		uint8_t *copy = malloc(ARENA);
		uint64_t notes;

		pair_open(p);
		pair_up(p, 1);
		memset(src, 0xee, TCP_MAX_PUT);
		for (unsigned i = 0; i < 3; i++)
			ck_assert(end_put(&p->a, src, 1000, i * 1000, i));
		ck_assert(end_put(&p->a, src, TCP_MAX_PUT, 4000, 3));
		for (int i = 0; i < cut; i++) {
			end_poll_max(&p->b, 2);
			if (i % 3 == 2)
				end_poll(&p->a);
		}
		lane_tcp_ops.fence(p->b.l, 1);
		POLL_END_UNTIL(&p->b, p->b.seen.fenced);
		ck_assert_int_eq(p->b.seen.fenced, 1);
		ck_assert_uint_eq(p->b.seen.fenced_epoch, 1);
		ck_assert(!p->b.seen.unordered);
		memcpy(copy, p->b.arena, ARENA);
		notes = p->b.seen.notes;
		for (int i = 0; i < 50; i++) {
			end_poll(&p->a);
			end_poll(&p->b);
		}
		ck_assert_int_eq(memcmp(copy, p->b.arena, ARENA), 0);
		ck_assert_uint_eq(p->b.seen.notes, notes);
		/* the other end hears of it, and that the process lives */
		POLL_UNTIL(p, p->a.seen.suspect);
		ck_assert_int_eq(p->a.seen.suspect, 1);
		ck_assert_uint_eq(p->a.seen.suspect_epoch, 1);
		ck_assert(!end_put(&p->a, src, 8, 0, 4));
		free(copy);
		pair_close(p);
	}
	free(src);
}
END_TEST

START_TEST(test_lane_tcp_notes_that_were_read_come_before_fenced)
{
	struct pair *p = pair_new();
	struct lane_put put[15];
	char x[16] = "0123456789abcde";

	pair_open(p);
	pair_up(p, 1);
	for (unsigned i = 0; i < 15; i++)
		put[i] = (struct lane_put){ .src = x,
					    .len = sizeof(x),
					    .dst = lane_tcp_ops.peer_export(p->a.l),
					    .dst_off = i * 16,
					    .note = { .w = { i } } };
	/* one write, so one receive has them all in the staging buffer; one is reported, then comes the fence
	 */
	ck_assert_int_eq(lane_tcp_ops.put(p->a.l, &p->a.t, put, 15), 15);
	POLL_END_UNTIL(&p->b, end_poll_max(&p->b, 1) == 1);
	ck_assert_uint_eq(p->b.seen.notes, 1);
	lane_tcp_ops.fence(p->b.l, 1);
	while (!p->b.seen.fenced)
		end_poll_max(&p->b, 3);
	ck_assert_uint_eq(p->b.seen.notes, 15);
	ck_assert_int_eq(memcmp(p->b.arena + 14 * 16, x, 16), 0);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_fenced_end_says_so_and_is_not_gone)
{
	struct pair *p = pair_new();

	pair_open(p);
	pair_up(p, 1);
	lane_tcp_ops.fence(p->b.l, 1);
	POLL_UNTIL(p, p->a.seen.suspect && p->b.seen.fenced);
	ck_assert_int_eq(p->a.seen.suspect, 1);
	ck_assert(!p->a.seen.gone);
	ck_assert_ptr_nonnull(strstr(p->a.seen.why, "fenced"));
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_closed_end_is_gone)
{
	struct pair *p = pair_new();

	pair_open(p);
	pair_up(p, 1);
	lane_tcp_ops.close(p->b.l);
	p->b.l = NULL;
	POLL_END_UNTIL(&p->a, p->a.seen.suspect);
	ck_assert_int_eq(p->a.seen.suspect, 1);
	ck_assert(p->a.seen.gone);
	lane_tcp_ops.fence(p->a.l, 1);
	POLL_END_UNTIL(&p->a, p->a.seen.fenced);
	/* nobody listens any more */
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 2), SIRCL_SUCCESS);
	POLL_END_UNTIL(&p->a, p->a.seen.down);
	ck_assert_int_eq(p->a.seen.down, 1);
	ck_assert(p->a.seen.gone);
	ck_assert_ptr_nonnull(strstr(p->a.seen.why, "refused"));
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_reconnects_with_the_next_epoch)
{
	struct pair *p = pair_new();
	char x[16] = "0123456789abcdef";

	pair_open(p);
	for (uint32_t e = 1; e <= 5; e++) {
		pair_up(p, e);
		p->b.seen.next = 0;
		ck_assert(end_put(&p->a, x, sizeof(x), e * 16, 0));
		POLL_UNTIL(p, p->b.seen.notes == e);
		ck_assert_int_eq(memcmp(p->b.arena + e * 16, x, 16), 0);
		lane_tcp_ops.fence(e % 2 ? p->a.l : p->b.l, e);
		POLL_UNTIL(p, p->a.seen.suspect + p->b.seen.suspect == (int)e);
		lane_tcp_ops.fence(e % 2 ? p->b.l : p->a.l, e);
		POLL_UNTIL(p, p->a.seen.fenced == (int)e && p->b.seen.fenced == (int)e);
		ck_assert_int_eq(p->a.seen.fenced, (int)e);
		ck_assert_int_eq(p->b.seen.fenced, (int)e);
	}
	ck_assert(!p->b.seen.unordered);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_old_epoch_is_refused)
{
	struct pair *p = pair_new();

	pair_open(p);
	lane_tcp_ops.allow(p->b.l, 3);
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 2), SIRCL_SUCCESS);
	POLL_UNTIL(p, p->a.seen.down);
	ck_assert_int_eq(p->a.seen.down, 1);
	ck_assert_uint_eq(p->a.seen.down_epoch, 2);
	ck_assert(!p->a.seen.gone);
	ck_assert_int_eq(p->a.seen.up + p->b.seen.up, 0);
	pair_up(p, 3);
	/* and the own floor holds for this end, too */
	lane_tcp_ops.fence(p->a.l, 3);
	POLL_UNTIL(p, p->a.seen.fenced);
	ck_assert_int_ne(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 3), SIRCL_SUCCESS);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_newer_epoch_while_up_is_suspect_then_taken)
{
	struct pair *p = pair_new();

	pair_open(p);
	pair_up(p, 1);
	/* a loses its end without b hearing of it: the socket is kept open by a duplicate */
	int dup_fd = dup(((struct tcp_lane *)(void *)p->a.l)->conn.fd);

	((struct tcp_lane *)(void *)p->a.l)->conn.iov_at = -1; /* ... and cannot say that it has fenced */
	lane_tcp_ops.fence(p->a.l, 1);
	POLL_UNTIL(p, p->a.seen.fenced);
	ck_assert_int_eq(p->b.seen.suspect, 0);
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 2), SIRCL_SUCCESS);
	POLL_UNTIL(p, ((p->b.t.now += MSEC), p->b.seen.suspect));
	ck_assert_int_eq(p->b.seen.suspect, 1);
	ck_assert_uint_eq(p->b.seen.suspect_epoch, 1);
	ck_assert_ptr_nonnull(strstr(p->b.seen.why, "reconnects"));
	ck_assert_int_eq(p->a.seen.up, 1);
	lane_tcp_ops.fence(p->b.l, 1);
	POLL_UNTIL(p, p->b.seen.fenced);
	ck_assert_int_eq(p->a.seen.up, 1); /* not before it is allowed */
	lane_tcp_ops.allow(p->b.l, 2);
	POLL_UNTIL(p, p->a.seen.up == 2 && p->b.seen.up == 2);
	ck_assert_int_eq(p->a.seen.up, 2);
	ck_assert_uint_eq(p->b.seen.up_epoch, 2);
	close(dup_fd);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_cancelled_handshake_never_comes_up)
{
	/* at every stage of the handshake, by either end */
	for (int stage = 0; stage < 12; stage++)
		for (int who = 0; who < 2; who++) {
			struct pair *p = pair_new();

			pair_open(p);
			lane_tcp_ops.allow(p->b.l, 1);
			ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 1), SIRCL_SUCCESS);
			for (int i = 0; i < stage && !(who ? p->b.seen.up : p->a.seen.up); i++)
				end_poll(i % 2 ? &p->a : &p->b);
			if (!(who ? p->b.seen.up : p->a.seen.up)) {
				struct end *e = who ? &p->b : &p->a;

				lane_tcp_ops.allow(e->l, 2);
				for (int i = 0; i < 30; i++) {
					end_poll(&p->a);
					end_poll(&p->b);
				}
				ck_assert_int_eq(e->seen.up, 0);
				POLL_UNTIL(p, p->a.seen.down || p->a.seen.suspect);
				ck_assert_int_eq(p->a.seen.down, 1);
				/* the other end may have come up in between, but hears of it */
				POLL_UNTIL(p, p->b.seen.up == p->b.seen.suspect);
				ck_assert_int_eq(p->b.seen.up, p->b.seen.suspect);
			}
			pair_close(p);
		}
}
END_TEST

START_TEST(test_lane_tcp_fence_of_a_lane_that_is_down_is_answered)
{
	struct pair *p = pair_new();

	pair_open(p);
	lane_tcp_ops.fence(p->a.l, 4);
	end_poll(&p->a);
	ck_assert_int_eq(p->a.seen.fenced, 1);
	ck_assert_uint_eq(p->a.seen.fenced_epoch, 4);
	lane_tcp_ops.fence(p->b.l, 4);
	end_poll(&p->b);
	pair_up(p, 5);
	/* a stale fence harms nothing */
	lane_tcp_ops.fence(p->a.l, 2);
	end_poll(&p->a);
	ck_assert_int_eq(p->a.seen.fenced, 2);
	ck_assert(end_put(&p->a, "x", 1, 0, 0));
	POLL_UNTIL(p, p->b.seen.notes);
	ck_assert_uint_eq(p->b.seen.notes, 1);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_handshake_has_a_limit)
{
	struct pair *p = pair_new();

	pair_open(p); /* b never answers: it is not polled */
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 1), SIRCL_SUCCESS);
	end_poll(&p->a);
	ck_assert_uint_le(lane_tcp_ops.deadline(p->a.l), p->a.t.now + 2 * SEC);
	p->a.t.now = lane_tcp_ops.deadline(p->a.l) - MSEC;
	end_poll(&p->a);
	ck_assert_int_eq(p->a.seen.down, 0);
	p->a.t.now += MSEC;
	end_poll(&p->a);
	ck_assert_int_eq(p->a.seen.down, 1);
	ck_assert(!p->a.seen.gone);
	ck_assert_uint_eq(lane_tcp_ops.deadline(p->a.l), NEVER);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_handshake_waits_for_allow)
{
	struct pair *p = pair_new();

	pair_open(p);
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 1), SIRCL_SUCCESS);
	for (int i = 0; i < 50; i++) {
		end_poll(&p->a);
		end_poll(&p->b);
	}
	ck_assert_int_eq(p->a.seen.up + p->b.seen.up + p->a.seen.down, 0);
	lane_tcp_ops.allow(p->b.l, 1);
	POLL_UNTIL(p, p->a.seen.up && p->b.seen.up);
	ck_assert_int_eq(p->a.seen.up, 1);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_binds_to_its_device)
{
	struct pair *p;
	struct tcp_lane *l;
	char dev[32] = "";
	socklen_t n = sizeof(dev);

	if (getenv("SIRCL_TEST_EMULATED")) /* qemu: it has no getsockopt(SO_BINDTODEVICE) */
		return;
	p = pair_new();
	ck_assert_int_eq(end_open(p, &p->b, "lo"), SIRCL_SUCCESS);
	ck_assert_int_eq(end_open(p, &p->a, "lo"), SIRCL_SUCCESS);
	pair_up(p, 1);
	for (int i = 0; i < 2; i++) {
		l = (struct tcp_lane *)(void *)(i ? p->b.l : p->a.l);
		ck_assert_int_eq(getsockopt(l->conn.fd, SOL_SOCKET, SO_BINDTODEVICE, dev, &n), 0);
		ck_assert_str_eq(dev, "lo");
		n = sizeof(dev);
	}
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_unknown_device_is_an_error_that_names_it)
{
	struct pair *p = pair_new();
	int fds = open_fds();

	ck_assert_int_eq(end_open(p, &p->b, "no-such-dev0"), SIRCL_SYSTEM_ERROR);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "no-such-dev0"));
	ck_assert_int_eq(end_open(p, &p->b, "a-name-that-is-too-long"), SIRCL_BAD_CONFIG);
	ck_assert_int_eq(open_fds(), fds);
	free(p->b.arena);
	free(p);
}
END_TEST

START_TEST(test_lane_tcp_two_lanes_side_by_side)
{
	struct pair *p = pair_new(), *q = pair_new();

	pair_open(p);
	pair_open(q);
	ck_assert_int_ne(memcmp(&p->b.addr, &q->b.addr, sizeof(p->b.addr)), 0);
	pair_up(p, 1);
	pair_up(q, 1);
	ck_assert(end_put(&p->a, "p", 1, 0, 0));
	ck_assert(end_put(&q->a, "q", 1, 0, 0));
	POLL_UNTIL(p, p->b.seen.notes == 1);
	POLL_UNTIL(q, q->b.seen.notes == 1);
	ck_assert_int_eq(p->b.arena[0], 'p');
	ck_assert_int_eq(q->b.arena[0], 'q');
	pair_close(p);
	pair_close(q);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane_tcp_life");
	TCase *t = tcase_create("pair");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_lane_tcp_nothing_lands_after_fenced_whatever_is_in_flight);
	tcase_add_test(t, test_lane_tcp_notes_that_were_read_come_before_fenced);
	tcase_add_test(t, test_lane_tcp_fenced_end_says_so_and_is_not_gone);
	tcase_add_test(t, test_lane_tcp_closed_end_is_gone);
	tcase_add_test(t, test_lane_tcp_reconnects_with_the_next_epoch);
	tcase_add_test(t, test_lane_tcp_old_epoch_is_refused);
	tcase_add_test(t, test_lane_tcp_newer_epoch_while_up_is_suspect_then_taken);
	tcase_add_test(t, test_lane_tcp_cancelled_handshake_never_comes_up);
	tcase_add_test(t, test_lane_tcp_fence_of_a_lane_that_is_down_is_answered);
	tcase_add_test(t, test_lane_tcp_handshake_has_a_limit);
	tcase_add_test(t, test_lane_tcp_handshake_waits_for_allow);
	tcase_add_test(t, test_lane_tcp_binds_to_its_device);
	tcase_add_test(t, test_lane_tcp_unknown_device_is_an_error_that_names_it);
	tcase_add_test(t, test_lane_tcp_two_lanes_side_by_side);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
