/* SPDX-License-Identifier: Apache-2.0 */
/* fakeverbs between processes: data, deaths, cables that another process cuts, the file they share. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include "fakeverbs_pair.h"

static char lab[64], path[128];
static int down[2], up[2]; /* pipes to the child and from it */

/* What the child needs in order to connect to the parent and write into its memory. */
struct target {
	struct sockaddr_in addr;
	uint8_t *mem;
	uint32_t rkey;
};

static pid_t start(void)
{
	const char *outer = getenv("SIRCL_LAB");

	snprintf(lab, sizeof(lab), "%s-%d", outer != NULL ? outer : "unit", (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm/sircl-fakeverbs-%s", lab);
	setenv("SIRCL_LAB", lab, 1);
	ck_assert(pipe(down) == 0 && pipe(up) == 0);
	return fork();
}

static void await(int fd)
{
	char c;

	ck_assert(p_readable(fd, 20000));
	ck_assert_int_eq(read(fd, &c, 1), 1);
}

/* The child: connects, writes 40000 bytes and a note. */
static void child(int kind)
{
	struct pair p = { 0 };
	struct target to;
	struct shape s = USUAL;
	struct ibv_mr theirs;

	ck_assert_int_eq(read(down[0], &to, sizeof(to)), sizeof(to));
	p.addr = to.addr;
	p.e[0].ec = rdma_create_event_channel();
	p.e[1].ec = rdma_create_event_channel();
	p_connect(&p, &s, NULL, 0);
	p_event(&p.e[0], RDMA_CM_EVENT_ESTABLISHED, NULL);
	p_fill(p.e[0].mem, P_MEM, 21);
	theirs.rkey = to.rkey;
	p.e[1].mr = &theirs;
	p.e[1].mem = to.mem;
	ck_assert_int_eq(p_write(&p, 0, 1, 0, 0, 40000, 3), 0);
	p.e[1].mr = NULL;
	p.e[1].mem = NULL;
	if (kind == 1) /* killed here */
		await(down[0]);
	p_ok(&p.e[0], 1);
	if (kind == 2) {
		ck_assert_int_eq(fakeverbs_cut("fake_lo"), 0);
		await(down[0]);
	} else {
		ck_assert_int_eq(rdma_disconnect(p.e[0].id), 0);
		p_event(&p.e[0], RDMA_CM_EVENT_DISCONNECTED, NULL);
	}
	p_down(&p);
	exit(0);
}

/* The child ends 0: in good order, 1: killed with its write in flight, 2: having cut the cable. */
START_TEST(test_fake_between_processes)
{
	pid_t pid = start();
	struct pair p;
	struct shape s = USUAL;
	struct rdma_conn_param c = { .rnr_retry_count = 7 };
	struct target to = { 0 };
	struct ibv_async_event ae;
	uint8_t *expected;
	int status;

	if (pid == 0)
		child(_i);
	expected = malloc(P_MEM);
	p_listen(&p);
	p_memory(&p.e[1], p.e[1].anchor->verbs, &s);
	to.addr = p.addr;
	to.mem = p.e[1].mem;
	to.rkey = p.e[1].mr->rkey;
	ck_assert_int_eq(write(down[1], &to, sizeof(to)), sizeof(to));
	p.e[1].id = p_event(&p.e[1], RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	p_objects(&p.e[1], &s);
	fakeverbs_hold(_i == 1);
	ck_assert_int_eq(p_recv(&p.e[1], 9, 0, 0), 0);
	ck_assert_int_eq(rdma_accept(p.e[1].id, &c), 0);
	p_event(&p.e[1], RDMA_CM_EVENT_ESTABLISHED, NULL);
	if (_i == 1) {
		for (int i = 0; fakeverbs_held() == 0; i++) {
			ck_assert_int_lt(i, 5000);
			p_sleep(1);
		}
		p_sleep(50); /* until all of it is in flight */
		ck_assert_int_eq(kill(pid, SIGKILL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		p_event(&p.e[1], RDMA_CM_EVENT_DISCONNECTED, NULL);
		ck_assert_int_eq(p.e[1].mem[0] | p.e[1].mem[39999], 0);
		ck_assert_int_gt(fakeverbs_release(), 0);
	}
	p_ok(&p.e[1], 9);
	p_fill(expected, P_MEM, 21);
	ck_assert_int_eq(memcmp(p.e[1].mem, expected, 40000), 0);
	if (_i == 0)
		p_event(&p.e[1], RDMA_CM_EVENT_DISCONNECTED, NULL);
	if (_i == 2) {
		ck_assert(p_readable(p.e[1].id->verbs->async_fd, 5000));
		ck_assert_int_eq(ibv_get_async_event(p.e[1].id->verbs, &ae), 0);
		ck_assert_int_eq(ae.event_type, IBV_EVENT_PORT_ERR);
		ibv_ack_async_event(&ae);
		ck_assert_int_eq(fakeverbs_mend("fake_lo"), 0);
		ck_assert_int_eq(write(down[1], "x", 1), 1);
	}
	if (_i != 1) {
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	ck_assert_int_eq(access(path, F_OK), 0);
	p_down(&p);
	free(expected);
}
END_TEST

/* The last one removes the file; what a killed one has left is taken for empty. */
START_TEST(test_fake_file_of_the_dead_is_harmless)
{
	struct pair p;
	pid_t pid = start();
	int status;

	for (int round = 0; round < 2; round++) {
		if (pid == 0) {
			p_up(&p, USUAL);
			ck_assert_int_eq(write(up[1], "x", 1), 1);
			if (round == 0)
				await(down[0]);
			p_down(&p);
			exit(0);
		}
		await(up[0]);
		if (round == 0) {
			ck_assert_int_eq(kill(pid, SIGKILL), 0);
			ck_assert_int_eq(waitpid(pid, &status, 0), pid);
			ck_assert_int_eq(access(path, F_OK), 0);
			pid = fork();
		}
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fakeverbs_process");
	TCase *c = tcase_create("process");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_fake_between_processes, 0, 3);
	tcase_add_test(c, test_fake_file_of_the_dead_is_harmless);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
