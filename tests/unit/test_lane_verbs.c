/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the verbs lane does with the device, over tests/fakeverbs (no hardware): messages of a put, choice of
 * the address, what is said about MTU and memory, events of the device, strangers.
 */
#include "lane_verbs_pair.h"
#include <dlfcn.h>
#include <errno.h>
#include <sys/resource.h>
#include "base/dl.h"

START_TEST(test_verbs_tables_of_rdma_core_are_in_the_order_of_their_struct)
{
	const struct verbs_lib *lib;
	void *ibv = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL),
	     *cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!ibv || !cm) {
		ck_assert_int_eq(verbs_lib_open(&lib), SIRCL_SYSTEM_ERROR);
		ck_assert_ptr_nonnull(strstr(error_last()->msg, "apt-get install"));
		return;
	}
	ck_assert_int_eq(verbs_lib_open(&lib), SIRCL_SUCCESS);
#define SAME_IBV(result, name, args) \
	ck_assert_msg((void *)lib->ibv.name == dlsym(ibv, #name), "%s is at another's place", #name);
#define SAME_CM(result, name, args) \
	ck_assert_msg((void *)lib->cm.name == dlsym(cm, #name), "%s is at another's place", #name);
	VERBS_IBV_FUNCTIONS(SAME_IBV)
	VERBS_CM_FUNCTIONS(SAME_CM)
}
END_TEST

START_TEST(test_verbs_small_put_is_one_send_and_a_large_one_two_writes)
{
	static const uint32_t lens[] = { 0, 1, 100, VERBS_EAGER, VERBS_EAGER + 1, VERBS_MAX_PUT };
	struct fakeverbs_counts was, is;
	uint64_t note[6] = { 7 };
	struct vpair v;

	v_open(&v);
	h_up(&v.p, 1);
	h_settle(&v.p, 5);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		int from = v.p.e[1].nseen;
		bool eager = lens[i] <= VERBS_EAGER;

		fakeverbs_counts(&was);
		h_fill(arena_base(v.p.e[0].send), lens[i], (uint32_t)i);
		ck_assert_int_eq(h_put(&v.p.e[0], 0, lens[i], v.p.ops->peer_export(v.p.e[0].l), 64, note), 1);
		h_wait(&v.p, 1, from, LANE_NOTE, 2000);
		ck_assert(h_filled((char *)arena_base(v.p.e[1].arena) + 64, lens[i], (uint32_t)i));
		fakeverbs_counts(&is);
		ck_assert_uint_eq(is.sends - was.sends, eager ? 1 : 0);
		ck_assert_uint_eq(is.writes - was.writes, eager ? 0 : 2);
	}
	v_close(&v);
}
END_TEST

/* The key of memory that puts are sent from is known to no one; who guesses it gets nowhere. */
START_TEST(test_verbs_memory_without_an_export_refuses_sends_and_writes)
{
	static const uint32_t lens[] = { 600, 64 << 10 };

	for (int i = 0; i < 2; i++) {
		struct lane_export guess;
		uint64_t note[6] = { 0 };
		struct vpair v;
		const uint8_t *at;

		v_open(&v);
		h_up(&v.p, 1);
		at = arena_base(v.p.e[1].send);
		guess = (struct lane_export){ .addr = (uintptr_t)at,
					      .len = H_ARENA,
					      .key = v_lane(&v, 1)->region[1].mr->rkey };
		h_fill(arena_base(v.p.e[0].send), lens[i], 200);
		ck_assert_int_eq(h_put(&v.p.e[0], 0, lens[i], &guess, 64, note), 1);
		ck_assert(h_suspected(&v.p));
		h_settle(&v.p, 5);
		ck_assert_int_eq(h_count(&v.p.e[1], LANE_NOTE), 0);
		for (size_t k = 0; k < H_ARENA; k++)
			ck_assert_uint_eq(at[k], 0);
		v_close(&v);
	}
}
END_TEST

static struct rdma_conn_param asked, answered;
static int spy_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	asked = *p;
	return fakeverbs_lib.cm.rdma_connect(id, p);
}
static int spy_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	answered = *p;
	return fakeverbs_lib.cm.rdma_accept(id, p);
}

START_TEST(test_verbs_both_ends_know_a_dead_lane_after_the_same_time)
{
	struct vpair v;

	v_init(&v);
	v.lib[0].cm.rdma_connect = spy_connect;
	v.lib[1].cm.rdma_accept = spy_accept;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(v_open_end(&v, i), SIRCL_SUCCESS);
	h_up(&v.p, 1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fakeverbs_ack_timeout(v_lane(&v, i)->conn.qp.id), 14);
	ck_assert_uint_eq(asked.retry_count, 6);
	ck_assert_uint_eq(asked.rnr_retry_count, 7);
	ck_assert_uint_eq(answered.rnr_retry_count, 7);
	ck_assert_uint_le(asked.private_data_len, 56);
	ck_assert_uint_le(answered.private_data_len, 196);
	v_close(&v);
}
END_TEST

static int no_option(struct rdma_cm_id *id, int level, int name, void *val, size_t n)
{
	(void)id, (void)level, (void)name, (void)val, (void)n;
	errno = ENOSYS;
	return -1;
}

START_TEST(test_verbs_kernel_without_ack_timeout_is_one_line)
{
	struct vpair v;

	v_init(&v);
	v.lib[0].cm.rdma_set_option = no_option;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(v_open_end(&v, i), SIRCL_SUCCESS);
	for (uint32_t epoch = 1; epoch <= 2; epoch++) {
		int from[2] = { v.p.e[0].nseen, v.p.e[1].nseen };

		h_up(&v.p, epoch);
		for (int i = 0; i < 2; i++)
			v.p.ops->fence(v.p.e[i].l, epoch);
		for (int i = 0; i < 2; i++)
			h_wait(&v.p, i, from[i], LANE_FENCED, 3000);
	}
	ck_assert_int_eq(v_logged(&v, "does not take an ACK timeout"), 1);
	v_close(&v);
}
END_TEST

/* Polls and puts of a busy lane make no system call of ours; only time does. */
START_TEST(test_verbs_puts_and_polls_make_no_system_call)
{
	struct lane_stats was[2], is[2];
	struct tick t;
	struct vpair v;

	v_open(&v);
	h_up(&v.p, 1);
	t = h_tick(&v.p.e[0]);
	for (int i = 0; i < 2; i++) {
		h_poll(&v.p.e[i], &t);
		v.p.ops->stats(v.p.e[i].l, &was[i]);
	}
	for (int k = 0; k < 200; k++) {
		struct lane_put put = { .note.w[0] = (uint64_t)k };
		int before = h_count(&v.p.e[1], LANE_NOTE);

		ck_assert_int_eq(v.p.ops->put(v.p.e[0].l, &t, &put, 1), 1);
		for (int i = 0; i < 200000 && h_count(&v.p.e[1], LANE_NOTE) == before; i++) {
			h_poll(&v.p.e[0], &t); /* time stands still */
			h_poll(&v.p.e[1], &t);
			sched_yield();
		}
	}
	for (int i = 0; i < 2; i++) {
		v.p.ops->stats(v.p.e[i].l, &is[i]);
		ck_assert_uint_eq(is[i].syscalls, was[i].syscalls);
	}
	ck_assert_int_eq(h_count(&v.p.e[1], LANE_NOTE), 200);
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_accepts_no_more_puts_than_notes)
{
	struct lane_put put = { 0 };
	struct tick t;
	struct vpair v;
	int n = 0;

	v_open(&v);
	h_up(&v.p, 1);
	t = h_tick(&v.p.e[0]);
	while (n < 1000 && v.p.ops->put(v.p.e[0].l, &t, &put, 1) == 1)
		n++;
	ck_assert_int_eq(n, 256); /* h_cfg's max_notes; not polled, so none is known to be done */
	for (int i = 0; i < 200000 && h_count(&v.p.e[1], LANE_NOTE) < n; i++)
		h_pump(&v.p);
	ck_assert_int_eq(h_count(&v.p.e[1], LANE_NOTE), n);
	ck_assert_int_eq(v.p.ops->put(v.p.e[0].l, &t, &put, 1), 1);
	ck_assert_int_eq(h_count(&v.p.e[0], LANE_SUSPECT) + h_count(&v.p.e[1], LANE_SUSPECT), 0);
	v_close(&v);
}
END_TEST

/* ---- the address ---- */

static void gid_at(struct vpair *v, int index, union ibv_gid *gid)
{
	struct verbs_lane *l = v_lane(v, 0);

	memset(gid, 0, sizeof(*gid));
	l->lib->ibv.ibv_query_gid(l->anchor->verbs, (uint8_t)l->port, index, gid);
}

START_TEST(test_verbs_gid_index_is_obeyed_by_value)
{
	static const union ibv_gid zero;
	int valid = 0, tried = 0;

	for (int index = 0; index < 12; index++) {
		union ibv_gid gid;
		struct vpair v;
		sircl_result_t ret;
		char dev[IF_NAMESIZE];

		v_open(&v); /* without: to ask the table */
		snprintf(dev, sizeof(dev), "%s", v_lane(&v, 0)->dev);
		gid_at(&v, index, &gid);
		v.p.ops->close(v.p.e[0].l);
		v.p.e[0].l = NULL;
		v.p.e[0].ctx.params.num[PARAM_GID_INDEX] = index;
		ret = v_open_end(&v, 0);
		tried++;
		if (memcmp(&gid, &zero, sizeof(gid)) != 0) {
			struct sockaddr_in6 s6;
			struct sockaddr_in s4;

			ck_assert_msg(ret == SIRCL_SUCCESS, "%s", error_last()->msg);
			valid++;
			ck_assert_str_eq(v_lane(&v, 0)->dev, dev);
			memcpy(&s6, &v_lane(&v, 0)->local, sizeof(s6));
			memcpy(&s4, &v_lane(&v, 0)->local, sizeof(s4));
			if (s6.sin6_family == AF_INET6)
				ck_assert_mem_eq(&s6.sin6_addr, gid.raw, 16);
			else
				ck_assert_mem_eq(&s4.sin_addr, gid.raw + 12, 4);
			ck_assert_int_eq(v_logged(&v, "GID index"), 1);
		} else {
			ck_assert_int_eq(ret, SIRCL_BAD_CONFIG);
			ck_assert_ptr_nonnull(strstr(error_last()->msg, "valid are 0 ("));
			ck_assert_ptr_nonnull(strstr(error_last()->msg, "SIRCL_GID_INDEX"));
		}
		v_close(&v);
	}
	ck_assert_int_ge(valid, 1);
	ck_assert_int_lt(valid, tried);
}
END_TEST

/* Tables whose order changes under the lane, or that lose another's entry, do not matter; the loss of its own
 * does. */
START_TEST(test_verbs_lane_lives_as_long_as_its_own_address)
{
	char dev[64];
	struct vpair v;

	v_open(&v);
	h_up(&v.p, 1);
	snprintf(dev, sizeof(dev), "%s", v_lane(&v, 0)->device);
	ck_assert_int_eq(fakeverbs_gid_shuffle(dev), 0);
	h_settle(&v.p, 30);
	ck_assert_int_eq(h_count(&v.p.e[0], LANE_SUSPECT) + h_count(&v.p.e[1], LANE_SUSPECT), 0);
	v_close(&v);
}
END_TEST

static bool gids_gone;
static int no_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	if (!gids_gone)
		return fakeverbs_lib.ibv.ibv_query_gid(c, port, index, gid);
	memset(gid, 0, sizeof(*gid));
	return 0;
}

START_TEST(test_verbs_lane_whose_address_is_taken_away_is_suspected)
{
	struct vpair v;
	int at;

	gids_gone = false;
	v_init(&v);
	v.lib[0].ibv.ibv_query_gid = no_gid;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(v_open_end(&v, i), SIRCL_SUCCESS);
	h_up(&v.p, 1);
	gids_gone = true;
	ck_assert_int_eq(fakeverbs_gid_shuffle(v_lane(&v, 0)->device), 0); /* an event, no more */
	at = h_wait(&v.p, 0, 0, LANE_SUSPECT, 2000);
	ck_assert_ptr_nonnull(strstr(v.p.e[0].seen[at].why, "address"));
	ck_assert_ptr_nonnull(strstr(v.p.e[0].seen[at].why, v_lane(&v, 0)->device));
	ck_assert(!v.p.e[0].seen[at].ev.gone);
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_port_down_is_suspected_at_both_ends_and_comes_back)
{
	char dev[64];
	struct vpair v;

	v_open(&v);
	h_up(&v.p, 1);
	snprintf(dev, sizeof(dev), "%s", v_lane(&v, 0)->device);
	ck_assert_int_eq(fakeverbs_cut(dev), 0);
	for (int i = 0; i < 2; i++) {
		int at = h_wait(&v.p, i, 0, LANE_SUSPECT, 2000);

		ck_assert_ptr_nonnull(strstr(v.p.e[i].seen[at].why, "the port went down"));
		ck_assert_ptr_nonnull(strstr(v.p.e[i].seen[at].why, dev));
		ck_assert(!v.p.e[i].seen[at].ev.gone);
	}
	for (int i = 0; i < 2; i++)
		v.p.ops->fence(v.p.e[i].l, 1);
	for (int i = 0; i < 2; i++)
		h_wait(&v.p, i, 0, LANE_FENCED, 3000);
	ck_assert_int_eq(fakeverbs_mend(dev), 0);
	h_settle(&v.p, 10);
	h_up(&v.p, 2);
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_dead_device_ends_attempts_with_a_sentence)
{
	struct vpair v;
	struct tick t;
	int at;

	v_open(&v);
	h_up(&v.p, 1);
	ck_assert_int_eq(fakeverbs_fatal(v_lane(&v, 0)->device), 0);
	for (int i = 0; i < 2; i++) {
		h_wait(&v.p, i, 0, LANE_SUSPECT, 2000);
		v.p.ops->fence(v.p.e[i].l, 1);
		h_wait(&v.p, i, 0, LANE_FENCED, 3000);
	}
	for (int i = 0; i < 2000 && !v_lane(&v, 0)->dead; i++) /* the queue pair may have failed before */
		h_settle(&v.p, 1);
	t = h_tick(&v.p.e[0]);
	ck_assert_int_eq(v.p.ops->connect(v.p.e[0].l, &t, &v.p.e[1].addr, 2), SIRCL_SUCCESS);
	at = h_wait(&v.p, 0, 0, LANE_DOWN, 100);
	ck_assert_msg(strstr(v.p.e[0].seen[at].why, "a new one can") != NULL, "%s", v.p.e[0].seen[at].why);
	v_close(&v);
}
END_TEST

/* ---- what is said ---- */

static enum ibv_mtu port_mtu; /* end 0 */
static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	int ret = fakeverbs_lib.ibv.ibv_query_port(c, port, a);

	a->active_mtu = port_mtu;
	a->max_mtu = IBV_MTU_4096;
	return ret;
}
static int query_port_4096(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	int ret = fakeverbs_lib.ibv.ibv_query_port(c, port, a);

	a->active_mtu = a->max_mtu = IBV_MTU_4096;
	return ret;
}
static enum ibv_mtu path_mtu;
static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	int ret = fakeverbs_lib.ibv.ibv_query_qp(qp, a, mask, init);

	a->path_mtu = path_mtu;
	return ret;
}

START_TEST(test_verbs_path_mtu_is_told_and_what_is_wrong_with_it)
{
	/* end 0's port, the path; end 1's port is at 4096 */
	static const struct {
		enum ibv_mtu port, path;
		int differ, small;
	} cases[] = { { IBV_MTU_4096, IBV_MTU_4096, 0, 0 },
		      { IBV_MTU_1024, IBV_MTU_1024, 2, 0 },
		      { IBV_MTU_4096, IBV_MTU_1024, 0, 2 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vpair v;

		v_init(&v);
		port_mtu = cases[i].port;
		path_mtu = cases[i].path;
		v.lib[0].ibv.ibv_query_port = query_port;
		v.lib[1].ibv.ibv_query_port = query_port_4096;
		for (int k = 0; k < 2; k++) {
			v.lib[k].ibv.ibv_query_qp = query_qp;
			ck_assert_int_eq(v_open_end(&v, k), SIRCL_SUCCESS);
		}
		for (uint32_t epoch = 1; epoch <= 2; epoch++) { /* told once */
			int from[2] = { v.p.e[0].nseen, v.p.e[1].nseen };

			h_up(&v.p, epoch);
			for (int k = 0; k < 2; k++)
				v.p.ops->fence(v.p.e[k].l, epoch);
			for (int k = 0; k < 2; k++)
				h_wait(&v.p, k, from[k], LANE_FENCED, 3000);
		}
		ck_assert_int_eq(
			v_logged(&v, cases[i].path == IBV_MTU_4096 ? "path MTU 4096" : "path MTU 1024"), 4);
		ck_assert_int_eq(v_logged(&v, "the ends differ"), cases[i].differ);
		ck_assert_int_eq(v_logged(&v, "the port can 4096: ip link set dev"), cases[i].small);
		v_close(&v);
	}
}
END_TEST

static struct ibv_mr *no_room(struct ibv_pd *pd, void *p, size_t n, int access)
{
	(void)pd, (void)p, (void)n, (void)access;
	errno = ENOMEM;
	return NULL;
}

START_TEST(test_verbs_memory_that_cannot_be_pinned_names_the_limit_and_the_cure)
{
	struct rlimit r = { 64 << 10, 64 << 10 };
	struct vpair v;

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &r), 0);
	v_init(&v);
	v.lib[0].ibv.ibv_reg_mr = no_room;
	ck_assert_int_eq(v_open_end(&v, 0), SIRCL_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "RLIMIT_MEMLOCK) is 64 KiB"));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "ulimit -l unlimited"));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "--ulimit memlock=-1"));
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "limits.conf"));
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_probe_says_what_a_lane_would_find)
{
	struct vpair v;
	struct verbs_port port;

	v_init(&v);
	ck_assert_int_eq(verbs_probe(&v.p.e[0].ctx, "no-such-netdev-at-all", &port), SIRCL_SYSTEM_ERROR);
	ck_assert_str_ne(error_last()->msg, "");
	v_close(&v);
}
END_TEST

/* ---- strangers ---- */

START_TEST(test_verbs_request_that_is_none_makes_no_queue_pair)
{
	struct stranger s[5];
	uint8_t data[56] = { 0 };
	struct auth au;
	uint8_t msg[AUTH_MSG_MAX];
	struct vpair v;
	int before, mine;
	size_t n;

	v_open(&v);
	v.p.ops->allow(v.p.e[1].l, 5);
	h_settle(&v.p, 5);
	auth_start(&au, &v.p.e[0].keys, true, "x", 1, NULL, 0);
	ck_assert_int_eq(auth_step(&au, NULL, 0, msg, &n), SIRCL_SUCCESS);
	for (int i = 0; i < 5; i++) {
		before = fakeverbs_open_objects();
		memset(data, i == 1 ? 0xff : 0, sizeof(data));
		if (i >= 2)
			auth_bare(&au, data + 4);
		data[0] = i == 2 ? 4 : 5; /* a fenced epoch */
		if (i == 3)
			data[4 + 17] ^= 1; /* an unknown key */
		if (i == 4)
			data[55] = 1; /* bytes behind the end */
		knock(&v, &s[i], data, i == 0 ? 3 : 56);
		mine = fakeverbs_open_objects() - before;
		h_settle(&v.p, 10);
		ck_assert_int_eq(v_lane(&v, 1)->nhalf, 0);
		ck_assert_int_le(fakeverbs_open_objects() - before, mine + 1); /* its event of refusal */
	}
	for (int i = 0; i < 5; i++)
		leave(&s[i], NULL);
	h_up(&v.p, 6);
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_half_open_connections_are_bounded_and_keep_nobody_out)
{
	static struct stranger s[20];
	uint8_t data[56] = { 0 }, msg[AUTH_MSG_MAX];
	struct auth au;
	struct vpair v;
	size_t n;

	v_open(&v);
	v.p.e[0].ctx.clock = v.p.e[1].ctx.clock = v_slow_clock; /* half-open ones end after 2 s */
	v.p.ops->allow(v.p.e[1].l, 1);
	auth_start(&au, &v.p.e[0].keys, true, "x", 1, NULL, 0); /* knows a fingerprint, that is no secret */
	ck_assert_int_eq(auth_step(&au, NULL, 0, msg, &n), SIRCL_SUCCESS);
	data[0] = 1;
	auth_bare(&au, data + 4);
	for (int i = 0; i < 20; i++) {
		knock(&v, &s[i], data, 56);
		h_settle(&v.p, 1);
		ck_assert_int_le(v_lane(&v, 1)->nhalf, VERBS_HALF_OPEN);
	}
	wait_half_open(&v, VERBS_HALF_OPEN);
	h_up(&v.p, 1);
	ck_assert_int_eq(v_logged(&v, "dropped 1 connection "), 1); /* one line a minute */
	for (int i = 0; i < 20; i++)
		leave(&s[i], NULL);
	v_close(&v);
}
END_TEST

START_TEST(test_verbs_ends_of_another_window_say_so)
{
	struct vpair v;
	struct lane_cfg cfg;

	v_init(&v);
	ck_assert_int_eq(v_open_end(&v, 0), SIRCL_SUCCESS);
	cfg = h_cfg(&v.p.e[1]);
	cfg.provider = &v.tune[1];
	cfg.max_notes = 100;
	ck_assert_int_eq(v.p.ops->open(&cfg, &v.p.e[1].l, &v.p.e[1].addr), SIRCL_SUCCESS);
	h_connect(&v.p, 1);
	h_wait(&v.p, 0, 0, LANE_DOWN, 2500);
	ck_assert_int_eq(h_count(&v.p.e[0], LANE_UP) + h_count(&v.p.e[1], LANE_UP), 0);
	ck_assert_int_eq(v_logged(&v, "the peer's window is another"), 1);
	v_close(&v);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane verbs (over fakeverbs)");
	TCase *c = tcase_create("verbs");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, test_verbs_tables_of_rdma_core_are_in_the_order_of_their_struct);
	tcase_add_test(c, test_verbs_small_put_is_one_send_and_a_large_one_two_writes);
	tcase_add_test(c, test_verbs_memory_without_an_export_refuses_sends_and_writes);
	tcase_add_test(c, test_verbs_both_ends_know_a_dead_lane_after_the_same_time);
	tcase_add_test(c, test_verbs_kernel_without_ack_timeout_is_one_line);
	tcase_add_test(c, test_verbs_puts_and_polls_make_no_system_call);
	tcase_add_test(c, test_verbs_accepts_no_more_puts_than_notes);
	tcase_add_test(c, test_verbs_gid_index_is_obeyed_by_value);
	tcase_add_test(c, test_verbs_lane_lives_as_long_as_its_own_address);
	tcase_add_test(c, test_verbs_lane_whose_address_is_taken_away_is_suspected);
	tcase_add_test(c, test_verbs_port_down_is_suspected_at_both_ends_and_comes_back);
	tcase_add_test(c, test_verbs_dead_device_ends_attempts_with_a_sentence);
	tcase_add_test(c, test_verbs_path_mtu_is_told_and_what_is_wrong_with_it);
	tcase_add_test(c, test_verbs_memory_that_cannot_be_pinned_names_the_limit_and_the_cure);
	tcase_add_test(c, test_verbs_probe_says_what_a_lane_would_find);
	tcase_add_test(c, test_verbs_request_that_is_none_makes_no_queue_pair);
	tcase_add_test(c, test_verbs_half_open_connections_are_bounded_and_keep_nobody_out);
	tcase_add_test(c, test_verbs_ends_of_another_window_say_so);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
