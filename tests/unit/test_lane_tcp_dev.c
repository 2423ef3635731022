/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tcp provider over a device: two network namespaces joined by a veth pair, made by the test itself
 * (root, or user namespaces). Without either, or without the ip command, they are skipped: exit code 3.
 */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/wait.h>
#include "lane_tcp_pair.h"

static int ns_a = -1, ns_b = -1;

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text);
}

static bool run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool run(const char *fmt, ...)
{
	char cmd[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	return system(cmd) == 0;
}

/* va in namespace a, vb in b. */
static bool world(void)
{
	char map[64];
	unsigned uid = getuid();

	if (ns_a >= 0)
		return true;
	if (unshare(CLONE_NEWNET) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
			return false;
		snprintf(map, sizeof(map), "0 %u 1", uid);
		if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", map))
			return false;
	}
	ns_a = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (unshare(CLONE_NEWNET) < 0)
		return false;
	ns_b = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (!run("ip link add vb type veth peer name va 2>/dev/null") ||
	    !run("ip link set va netns /proc/%d/fd/%d", (int)getpid(), ns_a))
		return false;
	return true;
}

static void in(int ns)
{
	ck_assert_int_eq(setns(ns, CLONE_NEWNET), 0);
}

static struct pair *open_over_veth(void)
{
	struct pair *p = pair_new();

	in(ns_b);
	ck_assert_msg(end_open(p, &p->b, "vb") == SIRCL_SUCCESS, "%s", error_last()->msg);
	in(ns_a);
	ck_assert_msg(end_open(p, &p->a, "va") == SIRCL_SUCCESS, "%s", error_last()->msg);
	return p;
}

/* Connects as a link would, with the next epoch until it works; 15 seconds at most. */
static void come_up(struct pair *p)
{
	uint64_t until = real_now() + 15 * SEC, began;

	for (uint32_t e = 1; p->a.seen.up == 0 && real_now() < until; e++) {
		int down = p->a.seen.down;

		lane_tcp_ops.allow(p->b.l, e);
		ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &p->b.addr, e), SIRCL_SUCCESS);
		began = real_now();
		while (!(p->a.seen.up && p->b.seen.up) && p->a.seen.down == down && real_now() < until) {
			p->a.t.now += real_now() - began;
			p->b.t.now += real_now() - began;
			began = real_now();
			end_poll(&p->a);
			end_poll(&p->b);
			usleep(1000);
		}
	}
	ck_assert_int_eq(p->a.seen.up, 1);
	ck_assert_int_eq(p->b.seen.up, 1);
	ck_assert(end_put(&p->a, "over", 4, 0, 0));
	ck_assert(end_put(&p->b, "back", 4, 0, 0));
	POLL_UNTIL(p, p->b.seen.notes && p->a.seen.notes);
	ck_assert_int_eq(memcmp(p->b.arena, "over", 4), 0);
	ck_assert_int_eq(memcmp(p->a.arena, "back", 4), 0);
}

START_TEST(test_lane_tcp_device_that_is_down_or_has_no_address_is_named)
{
	struct pair *p = pair_new();

	ck_assert(world());
	in(ns_b);
	ck_assert_int_eq(end_open(p, &p->b, "vb"), SIRCL_SYSTEM_ERROR);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "vb is down"));
	ck_assert(write_file("/proc/sys/net/ipv6/conf/vb/disable_ipv6", "1"));
	ck_assert(run("ip link set vb up"));
	ck_assert_int_eq(end_open(p, &p->b, "vb"), SIRCL_SYSTEM_ERROR);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "vb has neither"));
	free(p->b.arena);
	free(p);
}
END_TEST

START_TEST(test_lane_tcp_uses_link_local_addresses_as_soon_as_the_port_is_up)
{
	struct pair *p;
	uint64_t until = real_now() + 10 * SEC;

	ck_assert(world());
	in(ns_a);
	ck_assert(run("ip link set va up"));
	in(ns_b);
	ck_assert(run("ip link set vb up"));
	/* the address is there at once, but "tentative": binding to it wants some insistence */
	while (!run("ip -6 addr show dev vb | grep -q fe80") && real_now() < until)
		usleep(1000);
	in(ns_a);
	while (!run("ip -6 addr show dev va | grep -q fe80") && real_now() < until)
		usleep(1000);
	p = open_over_veth();
	ck_assert_int_eq(p->b.addr.b[0], 6);
	ck_assert_int_eq(p->b.addr.b[3], 0xfe);
	come_up(p);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_uses_ipv4_where_ipv6_is_off)
{
	struct pair *p;

	ck_assert(world());
	in(ns_a);
	ck_assert(write_file("/proc/sys/net/ipv6/conf/va/disable_ipv6", "1"));
	ck_assert(run("ip link set va up && ip addr add 192.0.2.1/30 dev va"));
	in(ns_b);
	ck_assert(write_file("/proc/sys/net/ipv6/conf/vb/disable_ipv6", "1"));
	ck_assert(run("ip link set vb up && ip addr add 192.0.2.2/30 dev vb"));
	p = open_over_veth();
	ck_assert_int_eq(p->b.addr.b[0], 4);
	come_up(p);
	/* a device that goes away under the connection: suspect, or silence for the heartbeats; no crash, no
	 * note */
	in(ns_b);
	ck_assert(run("ip link del vb"));
	for (int i = 0; i < 50; i++) {
		end_put(&p->a, "x", 1, 0, 1);
		end_poll(&p->a);
		end_poll(&p->b);
	}
	ck_assert_uint_eq(p->b.seen.notes, 1);
	pair_close(p);
}
END_TEST

START_TEST(test_lane_tcp_different_address_families_are_an_error_with_its_cure)
{
	struct pair *p;
	struct lane_addr six = { .len = 19, .b = { 6, 1, 1, 0xfe, 0x80 } };

	p = pair_new();
	ck_assert_int_eq(end_open(p, &p->a, NULL), SIRCL_SUCCESS);
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &six, 1), SIRCL_BAD_CONFIG);
	ck_assert_ptr_nonnull(strstr(error_last()->msg, "switch IPv6"));
	six.len = 5;
	ck_assert_int_eq(lane_tcp_ops.connect(p->a.l, &p->a.t, &six, 1), SIRCL_INVALID_ARGUMENT);
	pair_close(p);
}
END_TEST

/* In a child: namespaces of this process would stay. */
static bool possible(void)
{
	pid_t child = fork();
	int status = 1;

	if (child == 0)
		_exit(world() ? 0 : 1);
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
	bool can = possible();
	Suite *s = suite_create("lane_tcp_dev");
	TCase *t = tcase_create("veth");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 40);
	if (can) { /* each test is a process of its own with its own namespaces, which end with it */
		tcase_add_test(t, test_lane_tcp_device_that_is_down_or_has_no_address_is_named);
		tcase_add_test(t, test_lane_tcp_uses_link_local_addresses_as_soon_as_the_port_is_up);
		tcase_add_test(t, test_lane_tcp_uses_ipv4_where_ipv6_is_off);
	}
	tcase_add_test(t, test_lane_tcp_different_address_families_are_an_error_with_its_cure);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_set_fork_status(r, CK_FORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	if (!can)
		printf("skipped: network namespaces are not available here\n");
	return failed ? 1 : can ? 0 : 3;
}
