/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp provider between two well-behaved ends: handshake, puts and notes, acknowledgements, fences,
 * epochs. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include "lane_tcp_pair.h"

static uint32_t mix(uint64_t x)
{
	x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
	return (uint32_t)(x >> 32);
}
static void pattern(uint8_t *p, uint32_t len, uint64_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)(mix(seed * 1000003u + i / 4) >> (8 * (i % 4)));
}
static bool is_pattern(const uint8_t *p, uint32_t len, uint64_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)(mix(seed * 1000003u + i / 4) >> (8 * (i % 4))))
			return false;
	return true;
}

START_TEST(test_lane_tcp_comes_up_at_both_ends)
{
	struct pair *p = pair_new();

	pair_open(p);
	pair_up(p, 1);
	ck_assert_int_eq(p->a.seen.down + p->b.seen.down + p->a.seen.suspect + p->b.seen.suspect, 0);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_put_lands_before_its_note)
{
	static const uint32_t len[] = { 0, 1, 8, 4096, 16384, 32768, 32769, 65536, TCP_MAX_PUT };
	struct pair *p = pair_new();
	uint8_t *src = malloc(TCP_MAX_PUT);

	pair_open(p);
	pair_up(p, 1);
	for (unsigned i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		pattern(src, len[i], i);
		ck_assert(end_put(&p->a, src, len[i], 100 + i, i));
		POLL_UNTIL(p, p->b.seen.notes == i + 1);
		ck_assert_uint_eq(p->b.seen.notes, i + 1);
		ck_assert(is_pattern(p->b.arena + 100 + i, len[i], i));
	}
	ck_assert(!p->b.seen.unordered);
	free(src);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_lands_in_registered_regions)
{
	struct pair *p = pair_new();
	uint8_t mine[1000] = { 0 }, src[1000];
	struct lane_mem mem;
	struct lane_export exp;
	struct lane_put put = { .src = src, .len = 900, .dst = &exp, .dst_off = 100, .note = { .w = { 0 } } };

	pair_open(p);
	pair_up(p, 1);
	pattern(src, sizeof(src), 7);
	ck_assert_int_eq(lane_tcp_ops.reg(p->b.l, 5, mine, sizeof(mine), &mem, &exp), SIRCL_SUCCESS);
	ck_assert_int_ne(lane_tcp_ops.reg(p->b.l, 5, mine, sizeof(mine), &mem, &exp), SIRCL_SUCCESS);
	ck_assert_int_ne(lane_tcp_ops.reg(p->b.l, LANE_REGIONS_MAX, mine, sizeof(mine), &mem, &exp),
			 SIRCL_SUCCESS);
	ck_assert_int_eq(lane_tcp_ops.put(p->a.l, &p->a.t, &put, 1), 1);
	POLL_UNTIL(p, p->b.seen.notes == 1);
	ck_assert(is_pattern(mine + 100, 900, 7));
	/* withdrawn: what still comes is refused, not written */
	lane_tcp_ops.unreg(p->b.l, &mem);
	memset(mine, 0, sizeof(mine));
	ck_assert_int_eq(lane_tcp_ops.put(p->a.l, &p->a.t, &put, 1), 1);
	POLL_UNTIL(p, p->b.seen.suspect == 1);
	ck_assert_int_eq(p->b.seen.suspect, 1);
	ck_assert_ptr_nonnull(strstr(p->b.seen.why, "outside"));
	ck_assert_uint_eq(p->b.seen.notes, 1);
	for (unsigned i = 0; i < sizeof(mine); i++)
		ck_assert_int_eq(mine[i], 0);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_memory_withdrawn_in_mid_put_is_not_written)
{
	struct pair *p = pair_new();
	uint8_t *mine = calloc(1, TCP_MAX_PUT), *src = malloc(TCP_MAX_PUT);
	struct lane_mem mem;
	struct lane_export exp;
	struct lane_put put = { .src = src, .len = TCP_MAX_PUT, .dst = &exp };

	/* One record, written in small pieces: it cannot be complete while the sender is not polled. */
	p->tune = (struct tcp_tune){
		.window = 1u << 20, .seg = 256u << 10, .ack_every = 256u << 10, .sndbuf = 1
	};
	pair_open(p);
	pair_up(p, 1);
	memset(src, 7, TCP_MAX_PUT);
	ck_assert_int_eq(lane_tcp_ops.reg(p->b.l, 5, mine, TCP_MAX_PUT, &mem, &exp), SIRCL_SUCCESS);
	ck_assert_int_eq(lane_tcp_ops.put(p->a.l, &p->a.t, &put, 1), 1);
	POLL_END_UNTIL(&p->b, mine[0]);
	ck_assert_int_eq(mine[0], 7);
	ck_assert_uint_eq(p->b.seen.notes, 0);
	lane_tcp_ops.unreg(p->b.l, &mem);
	memset(mine, 0, TCP_MAX_PUT);
	POLL_UNTIL(p, p->b.seen.suspect);
	for (int i = 0; i < 20; i++) {
		end_poll(&p->a);
		end_poll(&p->b);
	}
	ck_assert_int_eq(p->b.seen.suspect, 1);
	ck_assert_uint_eq(p->b.seen.notes, 0);
	for (unsigned i = 0; i < TCP_MAX_PUT; i++)
		if (mine[i])
			ck_abort_msg("byte %u was written after the memory was withdrawn", i);
	free(mine);
	free(src);
	pair_close(p);
}
END_TEST

/* ---- many random puts, both ways ---- */

#define FLOW_SLOT 70000u
#define FLOW_SLOTS 14u

struct flow {
	struct end *e;
	uint64_t sent, total, seed;
	uint32_t max_len;
	uint8_t *src; /* FLOW_SLOTS slots */
	_Atomic uint64_t
		checked; /* notes of the peer that this end has checked; the peer reads it for room */
	struct flow *peer;
	uint64_t bad;
};

static uint32_t flow_len(const struct flow *f, uint64_t seq)
{
	uint32_t r = mix(f->seed + seq * 77);

	return r % 4 == 0 ? (r >> 8) % f->max_len : (r >> 8) % 200;
}

static void flow_note(struct end *e, const struct lane_note *note)
{
	struct flow *f = e->arg;
	uint64_t seq = note->w[0];
	uint32_t len = flow_len(f->peer, seq);

	f->bad += note->w[1] != len || note->w[5] != ~0ull ||
		  !is_pattern(e->arena + (seq % FLOW_SLOTS) * FLOW_SLOT, len, f->peer->seed ^ seq);
	/* release: the peer's acquire in flow_send; the slot may be written again after it */
	atomic_store_explicit(&f->checked, f->checked + 1, memory_order_release);
}

static bool flow_finished(const struct flow *f)
{
	return f->sent == f->total && f->checked == f->peer->total;
}

static void flow_send(struct flow *f)
{
	while (f->sent < f->total &&
	       f->sent - atomic_load_explicit(&f->peer->checked, memory_order_acquire) < FLOW_SLOTS) {
		uint32_t len = flow_len(f, f->sent);
		uint8_t *src = f->src + (f->sent % FLOW_SLOTS) * FLOW_SLOT;

		pattern(src, len, f->seed ^ f->sent);
		if (!end_put(f->e, src, len, (f->sent % FLOW_SLOTS) * FLOW_SLOT, f->sent))
			break;
		f->sent++;
	}
}

static void flows_new(struct pair *p, struct flow f[2], uint64_t total, uint32_t max_len)
{
	for (int i = 0; i < 2; i++) {
		f[i] = (struct flow){ .e = i ? &p->b : &p->a,
				      .total = total,
				      .seed = (uint64_t)i + 11,
				      .max_len = max_len,
				      .src = malloc((size_t)FLOW_SLOTS * FLOW_SLOT),
				      .peer = &f[1 - i] };
		f[i].e->on_note = flow_note;
		f[i].e->arg = &f[i];
	}
}

static void flows_check(struct pair *p, struct flow f[2])
{
	for (int i = 0; i < 2; i++) {
		ck_assert(flow_finished(&f[i]));
		ck_assert_uint_eq(f[i].bad, 0);
		ck_assert_int_eq(f[i].e->seen.suspect, 0);
		ck_assert(!f[i].e->seen.unordered);
		free(f[i].src);
	}
	pair_close(p);
}

static void flow_run(struct pair *p, uint64_t total, uint32_t max_len, int max_events)
{
	struct flow f[2];
	uint64_t limit = real_now() + 20 * SEC;

	flows_new(p, f, total, max_len);
	while (!(flow_finished(&f[0]) && flow_finished(&f[1])) && real_now() < limit)
		for (int i = 0; i < 2; i++) {
			flow_send(&f[i]);
			end_poll_max(f[i].e, max_events);
			if (f[i].e->seen.suspect)
				limit = 0;
		}
	flows_check(p, f);
}

START_TEST(test_lane_tcp_ten_thousand_random_puts_arrive_whole_and_in_order)
{
	struct pair *p = pair_new();

	pair_open(p);
	pair_up(p, 1);
	flow_run(p, 5000, 20000, 64);
}
END_TEST

START_TEST(test_lane_tcp_large_puts_both_ways_do_not_block_each_other)
{
	struct pair *p = pair_new();

	pair_open(p);
	pair_up(p, 1);
	flow_run(p, 400, FLOW_SLOT, 64);
}
END_TEST

START_TEST(test_lane_tcp_partial_writes_continue)
{
	struct pair *p = pair_new();

	p->tune.sndbuf = 1; /* the kernel makes it its minimum, about 4.5 KiB */
	pair_open(p);
	pair_up(p, 1);
	flow_run(p, 500, FLOW_SLOT, 64);
}
END_TEST

START_TEST(test_lane_tcp_one_event_at_a_time_loses_nothing)
{
	struct pair *p = pair_new();

	pair_open(p);
	pair_up(p, 1);
	flow_run(p, 1000, 3000, 1);
}
END_TEST

static void *flow_thread(void *arg)
{
	struct flow *f = arg;
	uint64_t limit = real_now() + 20 * SEC;

	while (!flow_finished(f) && real_now() < limit && !f->e->seen.suspect) {
		struct pollfd fds[16];
		int n;

		flow_send(f);
		if (end_poll(f->e))
			continue;
		n = lane_tcp_ops.arm(f->e->l, fds, 16);
		if (n >= 0 && !(f->sent < f->total && f->sent - f->peer->checked < FLOW_SLOTS))
			poll(fds, (nfds_t)n, 20);
	}
	/* the last acknowledgements and puts have to leave */
	for (limit = real_now() + SEC; !flow_finished(f->peer) && real_now() < limit;)
		end_poll(f->e);
	return NULL;
}

START_TEST(test_lane_tcp_two_threads_sleep_in_arm_and_miss_nothing)
{
	struct pair *p = pair_new();
	struct flow f[2];
	pthread_t th[2];

	pair_open(p);
	pair_up(p, 1);
	flows_new(p, f, 2000, 20000);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&th[i], NULL, flow_thread, &f[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(th[i], NULL);
	flows_check(p, f);
}
END_TEST

/* ---- acknowledgements ---- */

START_TEST(test_lane_tcp_done_counts_puts_that_the_peer_has_taken)
{
	struct pair *p = pair_new();
	uint8_t *src = calloc(1, 65536);

	pair_open(p);
	pair_up(p, 1);
	ck_assert(end_put(&p->a, src, 65536, 0, 0));
	for (int i = 0; i < 50; i++)
		end_poll(&p->a);
	ck_assert_uint_eq(p->a.seen.done, 0); /* the kernel has it, the peer not */
	POLL_UNTIL(p, p->a.seen.done == 1);
	ck_assert_uint_eq(p->a.seen.done, 1);
	free(src);
	pair_close(p);
}
END_TEST

static unsigned long sends; /* of the process: both ends */

static ssize_t counted_sendmsg(int fd, const struct msghdr *m, int flags)
{
	sends++;
	return sendmsg(fd, m, flags);
}

START_TEST(test_lane_tcp_small_messages_cause_no_records_of_their_own)
{
	struct pair *p = pair_new();
	struct tcp_sys sys = tcp_sys_real;
	struct lane_stats sa, sb;
	char x[64] = "x";

	sys.sendmsg = counted_sendmsg;
	p->tune.sys = &sys;
	pair_open(p);
	pair_up(p, 1);
	sends = 0;
	for (unsigned i = 0; i < 1000; i++) { /* ping-pong */
		ck_assert(end_put(&p->a, x, sizeof(x), 0, i));
		POLL_END_UNTIL(&p->b, p->b.seen.notes == i + 1);
		ck_assert(end_put(&p->b, x, sizeof(x), 0, i));
		POLL_END_UNTIL(&p->a, p->a.seen.notes == i + 1);
	}
	ck_assert_uint_eq(sends, 2000); /* one write for a message, none besides */
	lane_tcp_ops.stats(p->a.l, &sa);
	lane_tcp_ops.stats(p->b.l, &sb);
	ck_assert_uint_eq(sa.puts, 1000);
	ck_assert_uint_eq(sa.put_bytes, 64000);
	ck_assert_uint_eq(sb.notes, 1000);
	ck_assert_uint_eq(sb.note_bytes, 64000);
	/* the acknowledgements in the headers have told b of all but the last */
	ck_assert_uint_eq(p->a.seen.done, 1000);
	ck_assert_uint_eq(p->b.seen.done, 999);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_arm_says_so_when_notes_are_left)
{
	struct pair *p = pair_new();
	struct pollfd fds[16];
	struct lane_put put[3];

	pair_open(p);
	pair_up(p, 1);
	ck_assert_int_ge(lane_tcp_ops.arm(p->b.l, fds, 16), 1);
	for (unsigned i = 0; i < 3; i++)
		put[i] = (struct lane_put){ .note = { .w = { i } } };
	ck_assert_int_eq(lane_tcp_ops.put(p->a.l, &p->a.t, put, 3), 3);
	for (unsigned i = 1; i <= 3; i++) {
		POLL_END_UNTIL(&p->b, end_poll_max(&p->b, 1));
		ck_assert_uint_eq(p->b.seen.notes, i);
		if (i < 3)
			ck_assert_int_eq(lane_tcp_ops.arm(p->b.l, fds, 16), -1);
	}
	ck_assert_int_ge(lane_tcp_ops.arm(p->b.l, fds, 16), 1);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_arm_watches_for_room_only_when_the_socket_is_full)
{
	struct pair *p = pair_new();
	uint8_t *src = calloc(1, TCP_MAX_PUT);
	struct pollfd fds[16];

	p->tune.sndbuf = 1;
	pair_open(p);
	pair_up(p, 1);
	end_poll(&p->a);
	ck_assert_int_eq(lane_tcp_ops.arm(p->a.l, fds, 16), 1); /* the connecting end has no listener */
	ck_assert_int_eq(fds[0].events, POLLIN);
	ck_assert(end_put(&p->a, src, TCP_MAX_PUT, 0, 0));
	for (int i = 0; i < 20; i++)
		end_poll(&p->a);
	ck_assert_int_eq(lane_tcp_ops.arm(p->a.l, fds, 16), 1);
	ck_assert_int_eq(fds[0].events, POLLIN | POLLOUT);
	POLL_UNTIL(p, p->b.seen.notes);
	for (int i = 0; i < 20; i++)
		end_poll(&p->a);
	ck_assert_int_eq(lane_tcp_ops.arm(p->a.l, fds, 16), 1);
	ck_assert_int_eq(fds[0].events, POLLIN);
	free(src);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_listener_is_looked_at_when_it_has_woken_the_driver)
{
	struct pair *p = pair_new();
	struct tcp_lane *b;
	struct pollfd fds[16];
	int fd;
	struct sockaddr_in to = { .sin_family = AF_INET };

	pair_open(p);
	pair_up(p, 1);
	b = (struct tcp_lane *)(void *)p->b.l;
	end_poll(&p->b);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	memcpy(&to.sin_port, p->b.addr.b + 1, 2);
	memcpy(&to.sin_addr, p->b.addr.b + 3, 4);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	ck_assert_int_eq(lane_tcp_ops.arm(p->b.l, fds, 16), 2);
	ck_assert_int_eq(poll(fds, 2, 5000), 1);
	end_poll(&p->b);
	ck_assert_int_eq(b->nhalf, 1);
	close(fd);
	POLL_END_UNTIL(&p->b, b->nhalf == 0);
	ck_assert_int_eq(b->nhalf, 0);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_puts_given_together_leave_in_one_write)
{
	struct pair *p = pair_new();
	struct lane_stats s0, s1;
	struct lane_put put[10];
	char x[64] = "x";

	pair_open(p);
	pair_up(p, 1);
	for (unsigned i = 0; i < 10; i++)
		put[i] = (struct lane_put){ .src = x,
					    .len = sizeof(x),
					    .dst = lane_tcp_ops.peer_export(p->a.l),
					    .note = { .w = { i } } };
	lane_tcp_ops.stats(p->a.l, &s0);
	ck_assert_int_eq(lane_tcp_ops.put(p->a.l, &p->a.t, put, 10), 10);
	lane_tcp_ops.stats(p->a.l, &s1);
	ck_assert_uint_eq(s1.syscalls - s0.syscalls, 1);
	POLL_UNTIL(p, p->b.seen.notes == 10);
	ck_assert(!p->b.seen.unordered);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_idle_poll_is_one_system_call)
{
	struct pair *p = pair_new();
	struct lane_stats s0, s1;

	pair_open(p);
	pair_up(p, 1);
	lane_tcp_ops.stats(p->b.l, &s0);
	for (int i = 0; i < 100; i++)
		end_poll(&p->b);
	lane_tcp_ops.stats(p->b.l, &s1);
	ck_assert_uint_le(s1.syscalls - s0.syscalls, 101); /* one of them may look at the listener */
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_sender_keeps_to_its_window)
{
	struct pair *p = pair_new();
	uint8_t *src = calloc(1, TCP_MAX_PUT);
	const struct tcp_conn *c;

	pair_open(p);
	pair_up(p, 1);
	c = &((struct tcp_lane *)(void *)p->a.l)->conn;
	for (unsigned i = 0; i < 4; i++)
		ck_assert(end_put(&p->a, src, TCP_MAX_PUT, 0, i));
	for (int i = 0; i < 100; i++) {
		ck_assert_uint_le(c->tx_bytes - c->acked_bytes, TCP_WINDOW + TCP_LAST_LEN);
		end_poll(&p->a);
		if (i >= 50)
			end_poll(&p->b);
	}
	POLL_UNTIL(p, p->b.seen.notes == 4);
	ck_assert_uint_eq(p->b.seen.notes, 4);
	free(src);
	pair_close(p);
}
END_TEST

/* ---- fences and epochs ---- */

int main(void)
{
	Suite *s = suite_create("lane_tcp");
	TCase *t = tcase_create("pair");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_lane_tcp_comes_up_at_both_ends);
	tcase_add_test(t, test_lane_tcp_put_lands_before_its_note);
	tcase_add_test(t, test_lane_tcp_lands_in_registered_regions);
	tcase_add_test(t, test_lane_tcp_memory_withdrawn_in_mid_put_is_not_written);
	tcase_add_test(t, test_lane_tcp_ten_thousand_random_puts_arrive_whole_and_in_order);
	tcase_add_test(t, test_lane_tcp_large_puts_both_ways_do_not_block_each_other);
	tcase_add_test(t, test_lane_tcp_partial_writes_continue);
	tcase_add_test(t, test_lane_tcp_one_event_at_a_time_loses_nothing);
	tcase_add_test(t, test_lane_tcp_two_threads_sleep_in_arm_and_miss_nothing);
	tcase_add_test(t, test_lane_tcp_done_counts_puts_that_the_peer_has_taken);
	tcase_add_test(t, test_lane_tcp_small_messages_cause_no_records_of_their_own);
	tcase_add_test(t, test_lane_tcp_arm_says_so_when_notes_are_left);
	tcase_add_test(t, test_lane_tcp_arm_watches_for_room_only_when_the_socket_is_full);
	tcase_add_test(t, test_lane_tcp_listener_is_looked_at_when_it_has_woken_the_driver);
	tcase_add_test(t, test_lane_tcp_puts_given_together_leave_in_one_write);
	tcase_add_test(t, test_lane_tcp_idle_poll_is_one_system_call);
	tcase_add_test(t, test_lane_tcp_sender_keeps_to_its_window);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
