/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tcp provider and peers that are none: truncated, garbled and forged handshakes and records, strangers
 * in numbers, system calls that fail. The raw peer speaks the wire format by hand.
 */
#include <errno.h>
#include <endian.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include "base/crc32c.h"
#include "lane_tcp_pair.h"

/* ---- the raw peer ---- */

static int raw_connect(const struct lane_addr *a)
{
	struct sockaddr_in s = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(a->b[0], 4);
	memcpy(&s.sin_port, a->b + 1, 2);
	memcpy(&s.sin_addr, a->b + 3, 4);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&s, sizeof(s)), 0);
	return fd;
}

static void raw_send(int fd, const void *p, size_t n)
{
	if (n)
		ck_assert_int_eq(send(fd, p, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void raw_auth(struct pair *p, struct auth *au, bool connects, uint32_t epoch)
{
	uint8_t ctx[40] = "SIRCLtcp", hello[16] = { 1 };
	uint64_t len = ARENA;

	memcpy(ctx + 8, "a job's identity", 16);
	ctx[24] = 3; /* cable, lane, epoch, from, to, version */
	ctx[26] = 1;
	memcpy(ctx + 28, &epoch, 4);
	ctx[34] = 1;
	ctx[36] = 1;
	memcpy(hello + 4, &epoch, 4);
	memcpy(hello + 8, &len, 8);
	auth_start(au, &p->keys[0], connects, ctx, sizeof(ctx), hello, sizeof(hello));
}

/* Preface and message 1. */
static size_t raw_first(struct pair *p, struct auth *au, uint32_t epoch, uint8_t *out)
{
	uint32_t version = 1;
	size_t n;

	raw_auth(p, au, true, epoch);
	memcpy(out, "SIRCLtcp", 8);
	memcpy(out + 8, &version, 4);
	memcpy(out + 12, &epoch, 4);
	ck_assert_int_eq(auth_step(au, NULL, 0, out + 16, &n), SIRCL_SUCCESS);
	return n + 16;
}

/* Reads one message while polling `e`; 0 if the lane closed. */
static size_t raw_message(struct end *e, int fd, uint8_t *buf)
{
	size_t n = 0, need = 2;
	uint64_t until = real_now() + 5 * SEC;

	while (n < need && real_now() < until) {
		ssize_t r = recv(fd, buf + n, need - n, MSG_DONTWAIT);

		if (r == 0 || (r < 0 && errno != EAGAIN))
			return 0;
		if (r > 0)
			n += (size_t)r;
		if (n == 2)
			need = (size_t)(buf[0] | buf[1] << 8);
		end_poll(e);
	}
	ck_assert_uint_eq(n, need);
	return n;
}

static void some_polls(struct end *e)
{
	for (int i = 0; i < 6; i++)
		end_poll(e);
}

/* The end of a connection has been heard, however late the kernel delivers it. */
static void fds_are(struct end *e, int fds)
{
	some_polls(e);
	POLL_END_UNTIL(e, open_fds() == fds);
	ck_assert_int_eq(open_fds(), fds);
}

/* A connection to `b` as a would make it: proved and up. */
static int raw_up(struct pair *p, uint32_t epoch)
{
	uint8_t buf[2 * AUTH_MSG_MAX], out[AUTH_MSG_MAX];
	struct auth au;
	size_t n, nout;
	int fd = raw_connect(&p->b.addr);

	lane_tcp_ops.allow(p->b.l, epoch);
	raw_send(fd, buf, raw_first(p, &au, epoch, buf));
	n = raw_message(&p->b, fd, buf);
	ck_assert_int_eq(auth_step(&au, buf, n, out, &nout), SIRCL_SUCCESS);
	raw_send(fd, out, nout);
	ck_assert_uint_eq(raw_message(&p->b, fd, buf), 3);
	ck_assert_int_eq(buf[2], 'G');
	POLL_END_UNTIL(&p->b, p->b.seen.up_epoch == epoch);
	ck_assert_uint_eq(p->b.seen.up_epoch, epoch);
	return fd;
}

static void fence_b(struct pair *p, uint32_t epoch)
{
	lane_tcp_ops.fence(p->b.l, epoch);
	POLL_END_UNTIL(&p->b, p->b.seen.fenced_epoch == epoch);
	ck_assert_uint_eq(p->b.seen.fenced_epoch, epoch);
}

static struct tcp_rec raw_rec(uint32_t kind, uint32_t region, uint64_t off, uint32_t len)
{
	struct tcp_rec r = { .kind = htole32(TCP_MAGIC | kind),
			     .region = htole32(region),
			     .len = htole32(len),
			     .off = htole64(off),
			     .note = { .w = { 0, 1, 2, 3, 4, 5 } } };
	return r;
}
static void raw_crc(struct tcp_rec *r)
{
	r->crc = 0;
	r->crc = htole32(crc32c(0, r, tcp_kind_len(le32toh(r->kind) - TCP_MAGIC)));
}

static bool untouched(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static struct pair *pair_b(void)
{
	struct pair *p = pair_new();

	ck_assert_int_eq(end_open(p, &p->b, NULL), SIRCL_SUCCESS);
	ck_assert_int_eq(end_open(p, &p->a, NULL), SIRCL_SUCCESS);
	return p;
}

static int events(const struct seen *s)
{
	return s->up + s->suspect + s->fenced + s->down + (int)s->notes + (int)s->done;
}

/* ---- handshake ---- */

START_TEST(test_lane_tcp_handshake_cut_at_any_byte_has_no_effect)
{
	struct pair *p = pair_b();
	uint8_t buf[2 * AUTH_MSG_MAX], out[AUTH_MSG_MAX];
	size_t n = 1, n3 = 1, k, m;
	struct auth au;
	int fds;

	lane_tcp_ops.allow(p->b.l, 1);
	fds = open_fds();
	for (k = 0; k <= n; k++) { /* preface and message 1; at k == n: all of it, then the end */
		int fd = raw_connect(&p->b.addr);

		n = raw_first(p, &au, 1, buf);
		raw_send(fd, buf, k);
		end_poll(&p->b);
		close(fd);
		fds_are(&p->b, fds);
	}
	for (k = 0; k < n3; k++) { /* message 3 */
		int fd = raw_connect(&p->b.addr);

		raw_send(fd, buf, raw_first(p, &au, 1, buf));
		m = raw_message(&p->b, fd, buf);
		ck_assert_int_eq(auth_step(&au, buf, m, out, &n3), SIRCL_SUCCESS);
		raw_send(fd, out, k);
		end_poll(&p->b);
		close(fd);
		fds_are(&p->b, fds);
	}
	ck_assert_int_eq(events(&p->b.seen), 0);
	pair_up(p, 1);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_handshake_with_any_byte_changed_is_refused)
{
	struct pair *p = pair_b();
	uint8_t buf[2 * AUTH_MSG_MAX], out[AUTH_MSG_MAX];
	size_t n = 1, n3 = 1, k, m;
	struct auth au;
	int fds;

	lane_tcp_ops.allow(p->b.l, 1);
	fds = open_fds();
	for (k = 0; k < n; k++) {
		int fd = raw_connect(&p->b.addr);
		uint8_t in[AUTH_MSG_MAX];
		size_t nout = 0;
		ssize_t r;

		n = raw_first(p, &au, 1, buf);
		buf[k] ^= (uint8_t)(1u << (k % 8));
		raw_send(fd, buf, n);
		some_polls(&p->b);
		/* if it answers all the same, its answer does not convince, or ours does not */
		r = recv(fd, in, sizeof(in), MSG_DONTWAIT);
		if (r > 0 && auth_step(&au, in, (size_t)r, out, &nout) == SIRCL_SUCCESS) {
			(void)!send(fd, out, nout, MSG_NOSIGNAL);
			some_polls(&p->b);
		}
		close(fd);
		fds_are(&p->b, fds);
		ck_assert_int_eq(events(&p->b.seen), 0);
	}
	for (k = 0; k < n3; k++) {
		int fd = raw_connect(&p->b.addr);

		raw_send(fd, buf, raw_first(p, &au, 1, buf));
		m = raw_message(&p->b, fd, buf);
		ck_assert_int_eq(auth_step(&au, buf, m, out, &n3), SIRCL_SUCCESS);
		out[k] ^= (uint8_t)(1u << (k % 8));
		raw_send(fd, out, n3);
		some_polls(&p->b);
		close(fd);
		fds_are(&p->b, fds);
		ck_assert_int_eq(events(&p->b.seen), 0);
	}
	pair_up(p, 1);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_connecting_end_reports_down_wherever_the_peer_stops)
{
	struct pair *p = pair_new();
	struct sockaddr_in s = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct lane_addr at = { .len = 7, .b = { 4 } };
	uint8_t buf[2 * AUTH_MSG_MAX], out[AUTH_MSG_MAX];
	socklen_t sl = sizeof(s);
	size_t k, n2 = 1, m;
	int ls = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds, runs = 0;

	ck_assert_int_eq(bind(ls, (struct sockaddr *)&s, sl), 0);
	ck_assert_int_eq(listen(ls, 4), 0);
	ck_assert_int_eq(getsockname(ls, (struct sockaddr *)&s, &sl), 0);
	memcpy(at.b + 1, &s.sin_port, 2);
	memcpy(at.b + 3, &s.sin_addr, 4);
	ck_assert_int_eq(end_open(p, &p->a, NULL), SIRCL_SUCCESS);
	fds = open_fds();
	/* message 2 cut at k; then whole with garbage, with a cut GO, or changed in byte k instead */
	for (int kind = 0; kind < 3; kind++)
		for (k = 0; k < (kind == 1 ? 5 : n2); k++) {
			struct auth au;
			size_t got = 0;
			int fd, down = p->a.seen.down;

			ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &at, (uint32_t)++runs),
					 SIRCL_SUCCESS);
			fd = accept(ls, NULL, NULL);
			ck_assert_int_ge(fd, 0);
			end_poll(&p->a);
			while (got < 16)
				got += (size_t)recv(fd, buf + got, 16 - got, 0);
			raw_auth(p, &au, false, (uint32_t)runs);
			m = raw_message(&p->a, fd, buf);
			ck_assert_int_eq(auth_step(&au, buf, m, out, &n2), SIRCL_SUCCESS);
			if (kind == 0) {
				raw_send(fd, out, k);
			} else if (kind == 1) {
				static const uint8_t go[5][4] = {
					{ 3 }, { 3, 0 }, { 3, 0, 'X' }, { 4, 0, 'G', 0 }, { 2, 0, 'G' }
				};
				static const uint8_t len[5] = { 1, 2, 3, 4, 3 };

				raw_send(fd, out, n2);
				raw_message(&p->a, fd, buf); /* message 3 */
				raw_send(fd, go[k], len[k]);
			} else {
				out[k] ^= (uint8_t)(1u << (k % 8));
				raw_send(fd, out, n2);
			}
			some_polls(&p->a);
			close(fd);
			POLL_END_UNTIL(&p->a, p->a.seen.down > down);
			ck_assert_int_eq(p->a.seen.down, down + 1);
			ck_assert_uint_eq(p->a.seen.down_epoch, (uint32_t)runs);
			ck_assert(!p->a.seen.gone);
			ck_assert_int_eq(p->a.seen.up, 0);
			ck_assert_int_eq(open_fds(), fds);
		}
	close(ls);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_wrong_key_comes_up_at_neither_end)
{
	struct pair *p = pair_new();

	p->a.ctx.log.level = p->b.ctx.log.level = LOG_NONE;
	pair_keys(p, "the key", "another key");
	pair_open(p);
	lane_tcp_ops.allow(p->b.l, 1);
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 1), SIRCL_SUCCESS);
	POLL_UNTIL(p, p->a.seen.down);
	ck_assert_int_eq(p->a.seen.down, 1);
	ck_assert_int_eq(p->a.seen.up + p->b.seen.up, 0);
	ck_assert_int_eq(events(&p->b.seen), 0);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_other_job_lane_or_position_is_refused)
{
	for (int what = 0; what < 4; what++) {
		struct pair *p = pair_new();
		struct lane_cfg cfg;

		ck_assert_int_eq(end_open(p, &p->b, NULL), SIRCL_SUCCESS);
		p->a.arena = calloc(1, ARENA);
		end_cfg(p, &p->a, NULL, &cfg);
		if (what == 0)
			cfg.job[3] ^= 1;
		else if (what == 1)
			cfg.lane++;
		else if (what == 2)
			cfg.cable++;
		else
			cfg.self++;
		ck_assert_int_eq(lane_tcp_ops.open(&cfg, &p->a.l, &p->a.addr), SIRCL_SUCCESS);
		lane_tcp_ops.allow(p->b.l, 1);
		ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, 1), SIRCL_SUCCESS);
		POLL_UNTIL(p, p->a.seen.down);
		ck_assert_int_eq(p->a.seen.down, 1);
		ck_assert_int_eq(p->a.seen.up + p->b.seen.up, 0);
		pair_close(p);
	}
}
END_TEST

static int log_lines(int log)
{
	char text[8192];
	ssize_t n = pread(log, text, sizeof(text), 0);
	int lines = 0;

	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

START_TEST(test_lane_tcp_strangers_are_bounded_and_keep_nobody_out)
{
	struct pair *p = pair_b();
	int fd[40], fds, i, log = memfd_create("log", MFD_CLOEXEC);

	p->b.ctx.log = (struct log){ .level = LOG_WARN, .fd = log };
	lane_tcp_ops.allow(p->b.l, 1);
	fds = open_fds();
	for (i = 0; i < 40; i++) {
		fd[i] = raw_connect(&p->b.addr);
		if (i % 2)
			raw_send(fd[i], "GET / HTTP/1.0\r\n\r\n", 18);
		end_poll(&p->b);
		ck_assert_int_le(open_fds(), fds + i + 1 + TCP_HALF_OPEN);
	}
	pair_up(p, 1); /* among them */
	/* two seconds later they are gone, and from then on a busy lane does not look at them */
	p->b.t.now += 2 * SEC;
	end_poll(&p->b);
	for (i = 0; i < 40; i++)
		close(fd[i]);
	ck_assert_int_eq(open_fds(), fds + 2);
	ck_assert_int_eq(((struct tcp_lane *)(void *)p->b.l)->nhalf, 0);
	ck_assert(end_put(&p->a, "x", 1, 0, 0));
	POLL_UNTIL(p, p->b.seen.notes);
	ck_assert_uint_eq(p->b.seen.notes, 1);
	ck_assert_int_eq(log_lines(log), 1); /* one warning a minute */
	p->b.t.now += 60 * SEC;
	fd[0] = raw_connect(&p->b.addr);
	raw_send(fd[0], "GET / HTTP/1.0\r\n\r\n", 18);
	p->b.t.now += SEC;
	POLL_END_UNTIL(&p->b, log_lines(log) == 2);
	close(fd[0]);
	ck_assert_int_eq(log_lines(log), 2);
	ck_assert_int_eq(p->b.seen.suspect, 0);
	close(log);
	pair_close(p);
}
END_TEST

/* ---- records ---- */

START_TEST(test_lane_tcp_record_cut_at_any_byte_gives_no_note)
{
	struct pair *p = pair_b();
	uint8_t rec[TCP_LAST_LEN + 16] = { 0 };
	struct tcp_rec r = raw_rec(TCP_LAST, 0, 64, 16);
	uint32_t e = 0;
	int fds = open_fds();

	raw_crc(&r);
	memcpy(rec, &r, sizeof(r));
	memset(rec + TCP_LAST_LEN, 'x', 16);
	for (size_t k = 0; k <= sizeof(rec); k++) {
		int fd = raw_up(p, ++e), suspect = p->b.seen.suspect;

		raw_send(fd, rec, k);
		end_poll(&p->b);
		close(fd);
		POLL_END_UNTIL(&p->b, p->b.seen.suspect > suspect);
		ck_assert_int_eq(p->b.seen.suspect, suspect + 1);
		ck_assert_uint_eq(p->b.seen.suspect_epoch, e);
		ck_assert(p->b.seen.gone);
		ck_assert_uint_eq(p->b.seen.notes, k == sizeof(rec));
		fence_b(p, e);
		ck_assert_int_eq(open_fds(), fds);
	}
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_record_with_any_bit_of_its_header_changed_is_refused)
{
	struct pair *p = pair_b();
	uint8_t rec[TCP_LAST_LEN + 16] = { 0 };
	uint32_t e = 0;

	for (size_t bit = 0; bit < 8 * TCP_LAST_LEN; bit++) {
		struct tcp_rec r = raw_rec(TCP_LAST, 0, 64, 16);
		int fd = raw_up(p, ++e);

		raw_crc(&r);
		memcpy(rec, &r, sizeof(r));
		memset(rec + TCP_LAST_LEN, 'x', 16);
		rec[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		raw_send(fd, rec, sizeof(rec));
		POLL_END_UNTIL(&p->b, p->b.seen.suspect == (int)e);
		ck_assert_int_eq(p->b.seen.suspect, (int)e);
		ck_assert(!p->b.seen.gone);
		close(fd);
		fence_b(p, e);
	}
	ck_assert_uint_eq(p->b.seen.notes, 0);
	ck_assert(untouched(p->b.arena, ARENA));
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_put_outside_the_memory_is_refused)
{
	static const struct {
		uint32_t region;
		uint64_t off;
		uint32_t len;
	} bad[] = { { 0, ARENA, 1 },       { 0, ARENA - 15, 16 },
		    { 0, UINT64_MAX, 16 }, { 0, UINT64_MAX - 7, 16 },
		    { 0, 0, UINT32_MAX },  { 0, 0, ARENA + 1 },
		    { 1, 0, 16 },          { LANE_REGIONS_MAX, 0, 16 },
		    { UINT32_MAX, 0, 16 } };
	struct pair *p = pair_b();
	uint8_t rec[TCP_LAST_LEN + 16];
	uint32_t e = 0;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (uint32_t kind = TCP_PART; kind <= TCP_LAST; kind++) {
			struct tcp_rec r = raw_rec(kind, bad[i].region, bad[i].off, bad[i].len);
			int fd = raw_up(p, ++e);

			raw_crc(&r);
			memset(rec, 'x', sizeof(rec));
			memcpy(rec, &r, tcp_kind_len(kind));
			raw_send(fd, rec, sizeof(rec));
			POLL_END_UNTIL(&p->b, p->b.seen.suspect == (int)e);
			ck_assert_int_eq(p->b.seen.suspect, (int)e);
			ck_assert_ptr_nonnull(strstr(p->b.seen.why, "outside"));
			close(fd);
			fence_b(p, e);
		}
	ck_assert_uint_eq(p->b.seen.notes, 0);
	ck_assert(untouched(p->b.arena, ARENA));
	pair_close(p);
}
END_TEST

/* Registered, so that puts may read it, but not exported: to the peer it does not exist. */
START_TEST(test_lane_tcp_put_into_memory_that_is_not_exported_is_refused)
{
	struct pair *p = pair_b();
	static uint8_t source[256], given[256];
	uint8_t rec[TCP_LAST_LEN + 16];
	struct lane_mem mem[2];
	struct lane_export x;
	uint32_t e = 0;

	ck_assert_int_eq(lane_tcp_ops.reg(p->b.l, 1, source, sizeof(source), &mem[0], NULL), SIRCL_SUCCESS);
	ck_assert_int_eq(lane_tcp_ops.reg(p->b.l, 2, given, sizeof(given), &mem[1], &x), SIRCL_SUCCESS);
	for (uint32_t kind = TCP_PART; kind <= TCP_LAST; kind++)
		for (uint32_t region = 1; region <= 2; region++) {
			struct tcp_rec r = raw_rec(kind, region, 32, 16);
			int fd = raw_up(p, ++e), suspect = p->b.seen.suspect;

			raw_crc(&r);
			memset(rec, 'x', sizeof(rec));
			memcpy(rec, &r, tcp_kind_len(kind));
			raw_send(fd, rec, tcp_kind_len(kind) + 16);
			if (region == 1) {
				POLL_END_UNTIL(&p->b, p->b.seen.suspect > suspect);
				ck_assert_int_eq(p->b.seen.suspect, suspect + 1);
				ck_assert_ptr_nonnull(strstr(p->b.seen.why, "outside"));
			} else { /* what was exported is reached, so the records are right */
				POLL_END_UNTIL(&p->b, given[47]);
				ck_assert_int_eq(p->b.seen.suspect, suspect);
				ck_assert_uint_eq(given[32], 'x');
				ck_assert_uint_eq(given[47], 'x');
				memset(given, 0, sizeof(given));
			}
			close(fd);
			fence_b(p, e);
		}
	ck_assert_uint_eq(p->b.seen.notes, 1);
	ck_assert(untouched(source, sizeof(source)));
	ck_assert(untouched(p->b.arena, ARENA));
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_acknowledgement_of_what_was_not_sent_is_refused)
{
	struct pair *p = pair_b();

	for (uint32_t e = 1; e <= 4; e++) {
		int fd = raw_up(p, e);
		struct tcp_rec r = raw_rec(TCP_ACK, 0, 0, 0);

		ck_assert(end_put(&p->b, "x", 1, 0, 0));
		r.ack_puts = htole32(e == 1 ? 2 : e == 2 ? (uint32_t)-1 : 1);
		r.ack_bytes = htole32(e == 3 ? TCP_LAST_LEN + 2 : TCP_LAST_LEN + 1);
		raw_crc(&r);
		raw_send(fd, &r, TCP_ACK_LEN);
		if (e < 4) {
			POLL_END_UNTIL(&p->b, p->b.seen.suspect == (int)e);
			ck_assert_int_eq(p->b.seen.suspect, (int)e);
			ck_assert_uint_eq(p->b.seen.done, 0);
		} else {
			POLL_END_UNTIL(&p->b, p->b.seen.done);
			ck_assert_uint_eq(p->b.seen.done, 1);
		}
		close(fd);
		fence_b(p, e);
	}
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_garbage_instead_of_records_is_refused)
{
	struct pair *p = pair_b();
	uint8_t junk[5000];
	uint32_t x = 12345;

	for (uint32_t e = 1; e <= 60; e++) {
		int fd = raw_up(p, e);

		for (size_t i = 0; i < sizeof(junk); i++)
			junk[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
		raw_send(fd, junk, sizeof(junk));
		POLL_END_UNTIL(&p->b, p->b.seen.suspect == (int)e);
		ck_assert_int_eq(p->b.seen.suspect, (int)e);
		close(fd);
		fence_b(p, e);
	}
	ck_assert_uint_eq(p->b.seen.notes, 0);
	ck_assert(untouched(p->b.arena, ARENA));
	pair_close(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane_tcp_hostile");
	TCase *t = tcase_create("hostile");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_lane_tcp_handshake_cut_at_any_byte_has_no_effect);
	tcase_add_test(t, test_lane_tcp_handshake_with_any_byte_changed_is_refused);
	tcase_add_test(t, test_lane_tcp_connecting_end_reports_down_wherever_the_peer_stops);
	tcase_add_test(t, test_lane_tcp_wrong_key_comes_up_at_neither_end);
	tcase_add_test(t, test_lane_tcp_other_job_lane_or_position_is_refused);
	tcase_add_test(t, test_lane_tcp_strangers_are_bounded_and_keep_nobody_out);
	tcase_add_test(t, test_lane_tcp_record_cut_at_any_byte_gives_no_note);
	tcase_add_test(t, test_lane_tcp_record_with_any_bit_of_its_header_changed_is_refused);
	tcase_add_test(t, test_lane_tcp_put_outside_the_memory_is_refused);
	tcase_add_test(t, test_lane_tcp_put_into_memory_that_is_not_exported_is_refused);
	tcase_add_test(t, test_lane_tcp_acknowledgement_of_what_was_not_sent_is_refused);
	tcase_add_test(t, test_lane_tcp_garbage_instead_of_records_is_refused);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
