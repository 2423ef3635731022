/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous: rounds, one sentence for all, missing ranks by name, strangers without effect. Ranks are
 * threads. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "fabric/rdv.h"
#include "lane/lane.h"

#define MAX 8

static uint64_t test_clock(void *arg)
{
	struct timespec t;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec;
}

static struct sircl_ctx ctx;
static struct key_ring keys;
static struct address at;
static struct rdv_root *root;

struct member {
	int rank, n, rounds;
	bool fail, vanish, leave, late;
	uint64_t limit_ms;
	const struct key_ring *keys;
	sircl_result_t ret;
	char msg[ERROR_MSG_MAX];
	bool data_ok;
};

static void *run(void *arg)
{
	struct member *m = arg;
	struct rdv r;

	m->data_ok = true;
	m->ret = rdv_join(&r, &ctx, &at, m->keys, m->rank, m->n, test_clock(NULL) + m->limit_ms * MSEC);
	for (int k = 0; k < m->rounds && m->ret == SIRCL_SUCCESS; k++) {
		char mine[64];

		if (k == 1 && m->vanish) {
			close(r.fd);
			r.fd = -1;
			break;
		}
		if (k == 1 && m->leave) { /* what no rank of ours says: a blob, and at once goodbye */
			static const uint8_t words[] = { 1, 0, 0, 0, RDV_BLOB, 'x', 0, 0, 0, 0, RDV_LEAVE };

			ck_assert_int_eq(send(r.fd, words, sizeof(words), MSG_NOSIGNAL), sizeof(words));
			break;
		}
		if (k == 1 && m->late) /* until the root says something, which it has not been asked */
			poll(&(struct pollfd){ .fd = r.fd, .events = POLLIN }, 1, 10000);
		if (k == 1 && m->fail) {
			error_set(SIRCL_BAD_CONFIG, "rank %d has a bad cable", m->rank);
			m->ret = rdv_fail(&r, error_last());
			break;
		}
		snprintf(mine, sizeof(mine), "round %d rank %d", k, m->rank);
		m->ret = rdv_round(&r, mine, k == 2 ? 0 : strlen(mine));
		for (int i = 0; i < m->n && m->ret == SIRCL_SUCCESS; i++) {
			char want[64];

			snprintf(want, sizeof(want), "round %d rank %d", k, i);
			if (k == 2)
				want[0] = '\0';
			if (r.blob[i].len != strlen(want) || memcmp(r.blob[i].p, want, strlen(want)))
				m->data_ok = false;
		}
	}
	snprintf(m->msg, sizeof(m->msg), "%s", m->ret == SIRCL_SUCCESS ? "" : error_last()->msg);
	rdv_leave(&r);
	return NULL;
}

static void setup(void)
{
	const char *lab = getenv("SIRCL_LAB");
	char tag[2 * 6 + 1], name[80];

	ck_assert_int_eq(params_load(&ctx.params), SIRCL_SUCCESS);
	log_init(&ctx.log, &ctx.params, 0);
	ctx.log.level = LOG_NONE;
	ctx.clock = test_clock;
	ck_assert_int_eq(key_ring_init(&keys), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&keys, KEY_UNIQUE_ID, "secret of a test", 16), SIRCL_SUCCESS);
	ck_assert_int_eq(auth_random_hex(tag, 6), SIRCL_SUCCESS);
	snprintf(name, sizeof(name), "unix:@sircl-%.32s-%s", lab ? lab : "test", tag);
	ck_assert_int_eq(address_parse(name, "test", &at), SIRCL_SUCCESS);
	ck_assert_int_eq(rdv_root_start(&ctx, &at, &keys, &root), SIRCL_SUCCESS);
}

static void teardown(void)
{
	rdv_root_stop(root);
	params_free(&ctx.params);
}

static void together(struct member *m, int n)
{
	pthread_t t[MAX];

	for (int i = 0; i < n; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, run, &m[i]), 0);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void fill(struct member *m, int n, int rounds)
{
	memset(m, 0, sizeof(*m) * (size_t)n);
	for (int i = 0; i < n; i++)
		m[i] = (struct member){
			.rank = i, .n = n, .rounds = rounds, .limit_ms = 15000, .keys = &keys
		};
}

START_TEST(rounds_give_everybody_the_same_blobs)
{
	struct member m[5];

	fill(m, 5, 6);
	together(m, 5);
	for (int i = 0; i < 5; i++) {
		ck_assert_msg(m[i].ret == SIRCL_SUCCESS, "%s", m[i].msg);
		ck_assert(m[i].data_ok);
	}
	ck_assert(rdv_root_finish(root, 10 * SEC));
}
END_TEST

START_TEST(one_ranks_failure_is_everybodys_sentence)
{
	struct member m[4];

	fill(m, 4, 3);
	m[2].fail = true;
	together(m, 4);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(m[i].ret, SIRCL_BAD_CONFIG);
		ck_assert_str_eq(m[i].msg, "rank 2 has a bad cable");
	}
}
END_TEST

START_TEST(a_rank_that_vanishes_is_named)
{
	struct member m[3];

	fill(m, 3, 3);
	m[1].vanish = true;
	together(m, 3);
	ck_assert_int_eq(m[0].ret, SIRCL_REMOTE_ERROR);
	ck_assert_ptr_nonnull(strstr(m[0].msg, "rank 1 went away"));
	ck_assert_str_eq(m[0].msg, m[2].msg);
}
END_TEST

START_TEST(a_rank_that_leaves_in_the_middle_of_a_round_is_named)
{
	struct member m[3];

	fill(m, 3, 3);
	m[1].leave = true;
	m[0].late = m[2].late = true; /* the root has heard it before the others answer */
	together(m, 3);
	ck_assert_int_eq(m[0].ret, SIRCL_REMOTE_ERROR);
	ck_assert_msg(strstr(m[0].msg, "rank 1 left in the middle of round 1") != NULL, "%s", m[0].msg);
	ck_assert_str_eq(m[0].msg, m[2].msg);
}
END_TEST

START_TEST(missing_ranks_are_named_at_the_limit)
{
	struct member m[4];
	uint64_t t = test_clock(NULL);

	fill(m, 4, 1);
	for (int i = 0; i < 4; i++)
		m[i].limit_ms = 600;
	m[1] = m[3]; /* ranks 1 and 2 of 4 do not come */
	together(m, 1 + 1);
	ck_assert_int_lt((int64_t)((test_clock(NULL) - t) / MSEC), 5000);
	ck_assert_int_eq(m[0].ret, SIRCL_TIMEOUT);
	ck_assert_msg(strstr(m[0].msg, "rank 1, 2 of 4 did not come") != NULL, "%s", m[0].msg);
	ck_assert_str_eq(m[0].msg, m[1].msg);
}
END_TEST

START_TEST(sizes_and_ranks_that_do_not_fit_are_refused)
{
	struct member m[2];

	fill(m, 2, 1);
	m[1].rank = 0;
	together(m, 2);
	ck_assert_int_eq(m[0].ret, SIRCL_INVALID_ARGUMENT);
	ck_assert_msg(strstr(m[0].msg, "two processes came to the rendezvous as rank 0") != NULL, "%s",
		      m[0].msg);
	ck_assert_int_eq(m[1].ret, SIRCL_INVALID_ARGUMENT);
	teardown();
	setup();
	fill(m, 2, 1);
	m[1].n = 3;
	together(m, 2);
	ck_assert_int_eq(m[0].ret, SIRCL_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(m[0].msg, "size"));
}
END_TEST

START_TEST(strangers_with_a_wrong_key_or_garbage_change_nothing)
{
	struct key_ring wrong;
	struct member m[4];
	int fd[3];

	ck_assert_int_eq(key_ring_init(&wrong), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&wrong, KEY_UNIQUE_ID, "another secret", 14), SIRCL_SUCCESS);
	for (int i = 0; i < 3; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM, 0);
		ck_assert_int_eq(connect(fd[i], (struct sockaddr *)&at.ss, at.len), 0);
		ck_assert_int_gt(send(fd[i], "\xff\xff garbage that is no handshake", 30, MSG_NOSIGNAL), 0);
	}
	fill(m, 4, 3);
	m[3].keys = &wrong;
	m[3].rank = 1;
	m[0].n = m[1].n = m[2].n = 3;
	run(&m[3]); /* first: the root is gone when the ranks have met */
	together(m, 3);
	for (int i = 0; i < 3; i++)
		ck_assert_msg(m[i].ret == SIRCL_SUCCESS, "%s", m[i].msg);
	ck_assert_int_ne(m[3].ret, SIRCL_SUCCESS);
	ck_assert_msg(strstr(m[3].msg, "another key") != NULL, "%s", m[3].msg);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}
END_TEST

START_TEST(strangers_that_hold_connections_keep_no_rank_out)
{
	enum { HELD = 400 };
	struct member m[4];
	int fd[HELD];

	for (int i = 0; i < HELD; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM, 0);
		ck_assert_int_eq(connect(fd[i], (struct sockaddr *)&at.ss, at.len), 0);
	}
	fill(m, 4, 2);
	together(m, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_msg(m[i].ret == SIRCL_SUCCESS, "%s", m[i].msg);
	for (int i = 0; i < HELD; i++)
		close(fd[i]);
}
END_TEST

START_TEST(nobody_listening_ends_at_the_limit_with_the_address)
{
	struct member m[1];
	struct address saved = at;

	ck_assert_int_eq(address_parse("127.0.0.1:9", "test", &at), SIRCL_SUCCESS);
	fill(m, 1, 1);
	m[0].n = 2;
	m[0].limit_ms = 300;
	run(&m[0]);
	at = saved;
	ck_assert_int_eq(m[0].ret, SIRCL_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(m[0].msg, "127.0.0.1:9"));
}
END_TEST

START_TEST(addresses_and_ids_survive_the_way_and_damage_is_seen)
{
	static const char *good[] = { "127.0.0.1:5", "[::1]:65535", "unix:@x" };
	static const char *bad[] = { "",      "host",   "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:70000", "::1:5",
				     "unix:", "unix:@", "unix:x",   ":5",        "1.2.3.4:5x" };
	uint8_t secret[ID_SECRET] = "0123456789abcde", back[ID_SECRET];
	char text[ADDRESS_TEXT];

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct address a, b;
		sircl_unique_id_t id;

		ck_assert_int_eq(address_parse(good[i], "test", &a), SIRCL_SUCCESS);
		ck_assert_str_eq(address_text(&a, text), good[i]);
		ck_assert_int_eq(id_pack(&id, &a, secret), SIRCL_SUCCESS);
		ck_assert_int_eq(id_unpack(&id, &b, back), SIRCL_SUCCESS);
		ck_assert_str_eq(address_text(&b, text), good[i]);
		ck_assert_mem_eq(secret, back, ID_SECRET);
		for (int bit = 0; bit < SIRCL_UNIQUE_ID_BYTES * 8; bit++) {
			id.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
			ck_assert_int_ne(id_unpack(&id, &b, back), SIRCL_SUCCESS);
			id.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
		}
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct address a;

		ck_assert_msg(address_parse(bad[i], "SIRCL_ROOT", &a) == SIRCL_BAD_CONFIG, "%s", bad[i]);
		ck_assert_ptr_nonnull(strstr(error_last()->msg, "SIRCL_ROOT"));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric/rdv");
	TCase *t = tcase_create("rdv");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, rounds_give_everybody_the_same_blobs);
	tcase_add_test(t, one_ranks_failure_is_everybodys_sentence);
	tcase_add_test(t, a_rank_that_vanishes_is_named);
	tcase_add_test(t, a_rank_that_leaves_in_the_middle_of_a_round_is_named);
	tcase_add_test(t, missing_ranks_are_named_at_the_limit);
	tcase_add_test(t, sizes_and_ranks_that_do_not_fit_are_refused);
	tcase_add_test(t, strangers_with_a_wrong_key_or_garbage_change_nothing);
	tcase_add_test(t, strangers_that_hold_connections_keep_no_rank_out);
	tcase_add_test(t, nobody_listening_ends_at_the_limit_with_the_address);
	tcase_add_test(t, addresses_and_ids_survive_the_way_and_damage_is_seen);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
