/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that fail, are interrupted, or do a part of what they were asked: a tcp lane goes on or says
 * why. */
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include "lane_tcp_pair.h"

static struct {
	long calls, at; /* the at-th call fails with err; -1: none */
	int err;
	bool only_io; /* only sendmsg and recvmsg count */
	size_t dribble; /* at most so many bytes at a time; 0: no limit */
	bool hit;
} inject;

static bool fails(bool io)
{
	if (inject.only_io && !io)
		return false;
	if (inject.calls++ != inject.at)
		return false;
	inject.hit = true;
	errno = inject.err;
	return true;
}
static int x_socket(int d, int t, int p)
{
	return fails(false) ? -1 : socket(d, t, p);
}
static int x_setsockopt(int fd, int l, int n, const void *v, socklen_t len)
{
	return fails(false) ? -1 : setsockopt(fd, l, n, v, len);
}
static int x_bind(int fd, const struct sockaddr *a, socklen_t n)
{
	return fails(false) ? -1 : bind(fd, a, n);
}
static int x_listen(int fd, int n)
{
	return fails(false) ? -1 : listen(fd, n);
}
static int x_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	return fails(false) ? -1 : getsockname(fd, a, n);
}
static int x_accept4(int fd, struct sockaddr *a, socklen_t *n, int f)
{
	return fails(false) ? -1 : accept4(fd, a, n, f);
}
static int x_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	return fails(false) ? -1 : connect(fd, a, n);
}
/* A copy of the vector, cut to what may pass. */
static struct msghdr cut(const struct msghdr *m, struct iovec *v)
{
	struct msghdr c = *m;
	size_t left = inject.dribble;

	ck_assert_uint_le(m->msg_iovlen, 2 * TCP_BATCH);
	memcpy(v, m->msg_iov, m->msg_iovlen * sizeof(*v));
	c.msg_iov = v;
	for (size_t i = 0; left && i < m->msg_iovlen; i++) {
		c.msg_iovlen = i + 1;
		if (v[i].iov_len >= left) {
			v[i].iov_len = left;
			break;
		}
		left -= v[i].iov_len;
	}
	return c;
}
static ssize_t x_sendmsg(int fd, const struct msghdr *m, int f)
{
	struct iovec v[2 * TCP_BATCH];
	struct msghdr c = cut(m, v);

	return fails(true) ? -1 : sendmsg(fd, &c, f);
}
static ssize_t x_recvmsg(int fd, struct msghdr *m, int f)
{
	struct iovec v[2 * TCP_BATCH];
	struct msghdr c = cut(m, v);

	return fails(true) ? -1 : recvmsg(fd, &c, f);
}
static const struct tcp_sys x_sys = { .socket = x_socket,
				      .setsockopt = x_setsockopt,
				      .bind = x_bind,
				      .listen = x_listen,
				      .getsockname = x_getsockname,
				      .accept4 = x_accept4,
				      .connect = x_connect,
				      .sendmsg = x_sendmsg,
				      .recvmsg = x_recvmsg };

/*
 * A short run: open, up, puts both ways, fence, up again, a put; what fails is repeated as a link would.
 * Returns the epoch that it took to end well, 0 if it could not even open.
 */
static uint32_t short_run(void)
{
	struct pair *p = pair_new();
	uint8_t *src = malloc(TCP_MAX_PUT);
	uint32_t e = 0, rounds = 0;
	uint64_t na, nb, until = real_now() + 20 * SEC;
	int up;

	memset(src, 's', TCP_MAX_PUT);
	p->tune.sys = &x_sys;
	if (end_open(p, &p->b, "lo") != SIRCL_SUCCESS || end_open(p, &p->a, "lo") != SIRCL_SUCCESS) {
		ck_assert_uint_ne(strlen(error_last()->msg), 0);
		goto out;
	}
	while (rounds < 2 && real_now() < until) {
		int down = p->a.seen.down;
		int passes = 0;
		bool sent;

		e++;
		up = p->a.seen.up + p->b.seen.up;
		lane_tcp_ops.allow(p->b.l, e);
		ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, e), SIRCL_SUCCESS);
		while (p->a.seen.up + p->b.seen.up < up + 2 && p->a.seen.down == down && !p->b.seen.suspect &&
		       real_now() < until) {
			/* time is the test's own, and runs as soon as the kernel has had some to deliver */
			if (++passes > 50) {
				p->a.t.now += 10 * MSEC;
				p->b.t.now += 10 * MSEC;
				sched_yield();
			}
			end_poll(&p->a);
			end_poll(&p->b);
		}
		p->a.seen.next = p->b.seen.next = na = nb = 0;
		p->a.seen.notes = p->b.seen.notes = 0;
		if (p->a.seen.up + p->b.seen.up == up + 2) {
			sent = end_put(&p->a, "first", 5, 0, na++) && end_put(&p->a, src, 100000, 5, na++) &&
			       end_put(&p->b, "b's", 3, 0, nb++) && end_put(&p->b, src, 70000, 3, nb++);
			while (sent && !(p->a.seen.notes == nb && p->b.seen.notes == na) &&
			       !p->a.seen.suspect && !p->b.seen.suspect && real_now() < until) {
				end_poll(&p->a);
				end_poll(&p->b);
			}
			if (p->a.seen.notes == nb && p->b.seen.notes == na) {
				ck_assert_int_eq(memcmp(p->b.arena, "firstss", 7), 0);
				ck_assert_int_eq(memcmp(p->b.arena + 5, src, 100000), 0);
				ck_assert_int_eq(memcmp(p->a.arena + 3, src, 70000), 0);
				rounds++;
			}
			ck_assert(!p->a.seen.unordered && !p->b.seen.unordered);
		}
		lane_tcp_ops.fence(p->a.l, e);
		lane_tcp_ops.fence(p->b.l, e);
		POLL_UNTIL(p, p->a.seen.fenced_epoch == e && p->b.seen.fenced_epoch == e);
		ck_assert_uint_eq(p->a.seen.fenced_epoch, e);
		ck_assert_uint_eq(p->b.seen.fenced_epoch, e);
		p->a.seen.suspect = p->b.seen.suspect = 0;
	}
	ck_assert_uint_eq(rounds, 2);
out:
	free(src);
	pair_close(p);
	return e;
}

START_TEST(test_lane_tcp_any_one_call_may_fail)
{
	static const int errs[] = { ECONNRESET, ENOMEM, EPERM, EMFILE };
	int fds = open_fds();
	long total = 0;

	for (unsigned i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		inject.hit = true;
		for (long k = 0; inject.hit; k++, total++) {
			uint32_t e;

			inject = (typeof(inject)){ .at = k, .err = errs[i] };
			e = short_run();
			if (!inject.hit)
				ck_assert_uint_eq(e, 2);
			ck_assert_uint_le(e, 4);
			ck_assert_int_eq(open_fds(), fds);
		}
	}
	ck_assert_int_gt(total, 200);
}
END_TEST

START_TEST(test_lane_tcp_interrupted_and_blocked_calls_are_repeated)
{
	static const int errs[] = { EINTR, EAGAIN };

	for (unsigned i = 0; i < 2; i++) {
		inject.hit = true;
		for (long k = 0; inject.hit; k++) {
			inject = (typeof(inject)){ .at = k, .err = errs[i], .only_io = true };
			/* GO is three bytes into an empty socket: if that blocks, the next attempt is made */
			ck_assert_uint_le(short_run(), 3);
		}
	}
}
END_TEST

START_TEST(test_lane_tcp_works_in_the_smallest_pieces)
{
	static const size_t piece[] = { 1000, 79, 17, 7 };

	for (unsigned i = 0; i < sizeof(piece) / sizeof(piece[0]); i++) {
		inject = (typeof(inject)){ .at = -1, .dribble = piece[i] };
		ck_assert_uint_eq(short_run(), 2);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane_tcp_calls");
	TCase *t = tcase_create("hostile");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_lane_tcp_any_one_call_may_fail);
	tcase_add_test(t, test_lane_tcp_interrupted_and_blocked_calls_are_repeated);
	tcase_add_test(t, test_lane_tcp_works_in_the_smallest_pieces);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
