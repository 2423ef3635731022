/* SPDX-License-Identifier: Apache-2.0 */
/* lane/shm between processes: what ends an epoch (death, however it comes, and nothing else), what it leaves
 * behind, and who has which memory. The child is end 0 (connects), the test is end 1. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "lane_harness.h"
#include "lane/shm_internal.h"

/* One end of a pair whose other end is in another process. */
static void single(struct pair *p, int i)
{
	memset(p, 0, sizeof(*p));
	p->ops = &lane_shm_ops;
	p->e[!i].ctx.clock = h_clock;
	h_end_init(p, i);
}

static void single_close(struct pair *p, int i)
{
	p->ops->close(p->e[i].l);
	arena_destroy(p->e[i].arena);
	arena_destroy(p->e[i].send);
	free(p->e[i].seen);
	key_ring_wipe(&p->e[i].keys);
	log_close(&p->e[i].ctx.log);
	params_free(&p->e[i].ctx.params);
}

struct child {
	pid_t pid;
	int to, from; /* pipes */
};

/* A child that, once it is told the address, is end 0 in epoch 1 and runs `body(pair, from the test, to it)`.
 */
static struct child fork_end(void (*body)(struct pair *, int, int))
{

	struct child c;
	int down[2], up[2];

	ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
	c.pid = fork();
	ck_assert_int_ge(c.pid, 0);
	if (c.pid == 0) {
		struct pair q;
		struct lane_addr addr;
		struct tick t;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		single(&q, 0);
		h_lane_open(&q.e[0]);
		if (read(down[0], &addr, sizeof(addr)) != sizeof(addr))
			_exit(2);
		t = h_tick(&q.e[0]);
		q.ops->connect(q.e[0].l, &t, &addr, 1);
		h_wait(&q, 0, 0, LANE_UP, 2500);
		body(&q, down[0], up[1]);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	c.to = down[1];
	c.from = up[0];
	return c;
}

static void join(struct pair *p, struct child *c)
{
	h_lane_open(&p->e[1]);
	p->ops->allow(p->e[1].l, 1);
	ck_assert_int_eq(write(c->to, &p->e[1].addr, sizeof(p->e[1].addr)), sizeof(p->e[1].addr));
	h_wait(p, 1, p->e[1].nseen, LANE_UP, 2500);
}

static struct child start(struct pair *p, void (*body)(struct pair *, int, int))
{
	struct child c = fork_end(body);

	single(p, 1);
	join(p, &c);
	return c;
}

static void end_child(struct child *c, int sig)
{
	int status;

	if (sig != 0)
		kill(c->pid, sig);
	ck_assert_int_eq(waitpid(c->pid, &status, 0), c->pid);
	close(c->to);
	close(c->from);
}

/* ---- children ---- */
static void body_echo(struct pair *p, int in, int out)
{
	struct end *e = &p->e[0];
	uint64_t got = 0;

	(void)in;
	(void)out;
	for (;;) {
		struct tick t = h_tick(e);

		h_poll(e, &t);
		if (h_count(e, LANE_SUSPECT) > 0)
			_exit(0);
		while ((uint64_t)h_count(e, LANE_NOTE) > got) {
			struct lane_event *ev = NULL;
			uint64_t n = 0;

			for (int i = 0; i < e->nseen; i++)
				if (e->seen[i].ev.ev == LANE_NOTE && n++ == got)
					ev = &e->seen[i].ev;
			uint32_t len = (uint32_t)ev->note.w[1];

			if (!h_filled(arena_base(e->arena), len, (uint32_t)got))
				_exit(3);
			memcpy(arena_base(e->send), arena_base(e->arena), len);
			while (h_put(e, 0, len, p->ops->peer_export(e->l), 0, ev->note.w) == 0)
				;
			got++;
		}
		sched_yield();
	}
}

#define FLOOD_SLOT 32768
/* Puts as fast as it can, round and round the slots, for ever. */
static void body_flood(struct pair *p, int in, int out)
{
	struct end *e = &p->e[0];
	uint64_t note[6] = { 0 };

	(void)in;
	(void)out;
	for (uint64_t i = 0;; i++) {
		struct tick t = h_tick(e);
		uint32_t len = (uint32_t)(i % 7) * 5000 + 8;

		h_fill(arena_base(e->send), 64, (uint32_t)i);
		note[0] = i;
		while (h_put(e, 0, len, p->ops->peer_export(e->l), (i % 16) * FLOOD_SLOT, note) == 0) {
			t = h_tick(e);
			h_poll(e, &t);
		}
		e->nseen = 0;
		if (i % 64 == 0)
			h_poll(e, &t);
	}
}

static void body_poll(struct pair *p, int in, int out)
{
	(void)in;
	(void)out;
	for (;;) {
		h_pump(p);
		if (p->e[0].nseen > 0 && h_count(&p->e[0], LANE_SUSPECT) == 1 &&
		    h_count(&p->e[0], LANE_FENCED) == 0)
			p->ops->fence(p->e[0].l, 1);
		usleep(100);
	}
}

static void body_still(struct pair *p, int in, int out)
{
	char c;

	(void)p;
	(void)!write(out, "u", 1);
	(void)!read(in, &c, 1);
}

/* Forks a child of its own, which inherits the lane's socket, and waits. */
static void body_forks(struct pair *p, int in, int out)
{
	pid_t pid = fork();

	(void)p;
	(void)in;
	if (pid == 0) {
		sleep(20);
		_exit(0);
	}
	(void)!write(out, &pid, sizeof(pid));
	pause();
}

/* ---- tests ---- */
/* Inodes of the memfds in /proc/PID/maps. */
static int memfds(pid_t pid, unsigned long ino[64])
{
	char path[64], line[512];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		unsigned long i;
		bool known = false;

		if (strstr(line, "/memfd:") == NULL || sscanf(line, "%*s %*s %*s %*s %lu", &i) != 1)
			continue;
		for (int k = 0; k < n; k++)
			known = known || ino[k] == i;
		if (!known && n < 64)
			ino[n++] = i;
	}
	fclose(f);
	return n;
}

static int common(const unsigned long *a, int na, const unsigned long *b, int nb)
{
	int n = 0;

	for (int i = 0; i < na; i++)
		for (int k = 0; k < nb; k++)
			n += a[i] == b[k];
	return n;
}

START_TEST(test_shm_two_processes_exchange_checked_bytes)
{
	struct pair p;
	struct child c;
	uint32_t random = 5;

	c = start(&p, body_echo);
	uint64_t enough = h_clock(NULL) + SEC;

	for (int i = 0; i < 300 && h_clock(NULL) < enough; i++) {
		uint32_t len = h_random(&random) % (i % 10 == 0 ? H_ARENA : 3000);
		uint64_t note[6] = { (uint64_t)i, len };
		int from = p.e[1].nseen;

		h_fill(arena_base(p.e[1].send), len, (uint32_t)i);
		ck_assert_int_eq(h_put(&p.e[1], 0, len, p.ops->peer_export(p.e[1].l), 0, note), 1);
		from = h_wait(&p, 1, from, LANE_NOTE, 5000);
		ck_assert_uint_eq(p.e[1].seen[from].ev.note.w[0], (uint64_t)i);
		ck_assert(h_filled(arena_base(p.e[1].arena), len, (uint32_t)i));
	}
	single_close(&p, 1); /* the child sees LANE_SUSPECT and ends */
	end_child(&c, 0);
}
END_TEST

/* Registered memory of another process: the kernel copies it, or the bounce ring when it may not. */
static void body_writes_user(struct pair *p, int in, int out)
{
	struct end *e = &p->e[0];
	struct lane_export export;
	uint64_t note[6] = { 0 };
	uint32_t len;

	(void)out;
	while (read(in, &export, sizeof(export)) == sizeof(export) &&
	       read(in, &len, sizeof(len)) == sizeof(len)) {
		h_fill(arena_base(e->send), len, len);
		note[0] = ((struct shm_lane *)(void *)e->l)->path.vm_ok;
		while (h_put(e, 0, len, &export, 11, note) == 0)
			h_pump(p);
	}
}

START_TEST(test_shm_writes_registered_memory_of_another_process)
{
	struct pair p;
	struct child c;
	struct lane_mem mem;
	struct lane_export export;
	static const uint32_t lens[] = {
		1, 4000, SHM_SINGLE_COPY - 1, SHM_SINGLE_COPY, 100000, SHM_MAX_PUT - 11
	};
	uint8_t *user = calloc(1, SHM_MAX_PUT);

	ck_assert_ptr_nonnull(user);
	memset(&export, 0, sizeof(export)); /* it is sent with its padding */
	c = start(&p, body_writes_user);
	ck_assert_int_eq(p.ops->reg(p.e[1].l, 3, user, SHM_MAX_PUT, &mem, &export), SIRCL_SUCCESS);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		int from = p.e[1].nseen;

		ck_assert_int_eq(write(c.to, &export, sizeof(export)), sizeof(export));
		ck_assert_int_eq(write(c.to, &lens[i], sizeof(lens[i])), sizeof(lens[i]));
		from = h_wait(&p, 1, from, LANE_NOTE, 5000);
		ck_assert(h_filled(user + 11, lens[i], lens[i]));
		if (i == 0)
			printf("process_vm_writev %s here\n",
			       p.e[1].seen[from].ev.note.w[0] ? "works" : "is refused");
	}
	end_child(&c, SIGKILL);
	single_close(&p, 1);
	free(user);
}
END_TEST

START_TEST(test_shm_peer_killed_anywhere_is_suspected_at_once_and_leaves_nothing)
{
	uint32_t random = 17;
	uint64_t worst = 0;
	uint64_t enough = h_clock(NULL) + 2 * SEC; /* on a busy machine */

	for (int round = 0; round < 25 && h_clock(NULL) < enough; round++) {
		struct pair p;
		struct child c;
		uint8_t *before = malloc(H_ARENA);
		uint64_t until, next = 0;
		char line[512];
		int at, checked = 0;
		FILE *f;

		ck_assert_ptr_nonnull(before);
		c = start(&p, body_flood);
		until = h_tick(&p.e[1]).now + h_random(&random) % (3 * MSEC);
		while (h_tick(&p.e[1]).now < until)
			h_pump(&p);
		end_child(&c, SIGKILL); /* returns when it has been reaped */
		until = h_tick(&p.e[1]).now;
		at = h_wait(&p, 1, 0, LANE_SUSPECT, 500);
		if (h_tick(&p.e[1]).now - until > worst)
			worst = h_tick(&p.e[1]).now - until;
		ck_assert(p.e[1].seen[at % H_SEEN].ev.gone);
		p.ops->fence(p.e[1].l, 1);
		h_wait(&p, 1, at, LANE_FENCED, 500);
		memcpy(before, arena_base(p.e[1].arena), H_ARENA);
		if (p.e[1].nseen <= H_SEEN)
			for (int i = 0; i < p.e[1].nseen; i++)
				if (p.e[1].seen[i].ev.ev == LANE_NOTE) {
					ck_assert_uint_eq(p.e[1].seen[i].ev.note.w[0], next);
					next++;
				}
		/* The slots of the last notes are whole, but for the one that the dead put may have begun. */
		for (uint64_t i = next > 16 ? next - 15 : 0; i < next && i + 16 > next; i++, checked++)
			ck_assert(h_filled((uint8_t *)arena_base(p.e[1].arena) + (i % 16) * FLOOD_SLOT, 8,
					   (uint32_t)i));
		h_settle(&p, 2);
		ck_assert_int_eq(memcmp(before, arena_base(p.e[1].arena), H_ARENA), 0);
		single_close(&p, 1);
		f = fopen("/proc/net/unix", "re");
		ck_assert_ptr_nonnull(f);
		while (fgets(line, sizeof(line), f) != NULL) {
			char ours[64];

			snprintf(ours, sizeof(ours), "@sircl/%s/", p.lab);
			ck_assert_msg(strstr(line, ours) == NULL, "left behind: %s", line);
		}
		fclose(f);
		free(before);
	}
	printf("a killed peer was suspected after %llu us at worst\n", (unsigned long long)worst / 1000);
}
END_TEST

START_TEST(test_shm_sleeper_is_woken_when_the_peer_dies)
{
	struct pair p;
	struct child c;
	struct pollfd fds[16];
	struct tick t;
	char b;
	int n;

	c = start(&p, body_still);
	ck_assert_int_eq(read(c.from, &b, 1), 1);
	while ((n = p.ops->arm(p.e[1].l, fds, 16)) < 0)
		h_pump(&p);
	ck_assert_int_eq(poll(fds, (nfds_t)n, 20), 0);
	end_child(&c, SIGKILL);
	ck_assert_int_gt(poll(fds, (nfds_t)n, 1000), 0);
	t = h_tick(&p.e[1]);
	h_poll(&p.e[1], &t); /* the very next poll */
	ck_assert_int_eq(h_count(&p.e[1], LANE_SUSPECT), 1);
	single_close(&p, 1);
}
END_TEST

START_TEST(test_shm_stopped_peer_is_not_suspected_and_fenced_only_when_it_answers)
{
	for (int dies = 0; dies < 2; dies++) {
		struct pair p;
		struct child c;

		c = start(&p, body_poll);
		kill(c.pid, SIGSTOP);
		h_settle(&p, 0);
		for (int i = 0; i < 100; i++) {
			h_pump(&p);
			usleep(1000);
		}
		ck_assert_int_eq(h_count(&p.e[1], LANE_SUSPECT), 0);
		p.ops->fence(p.e[1].l, 1);
		for (int i = 0; i < 50; i++) {
			h_pump(&p);
			usleep(1000);
		}
		ck_assert_int_eq(h_count(&p.e[1], LANE_FENCED), 0);
		kill(c.pid, dies ? SIGKILL : SIGCONT);
		h_wait(&p, 1, 0, LANE_FENCED, 2000);
		ck_assert_int_eq(h_count(&p.e[1], LANE_SUSPECT), 0); /* the link fenced by itself */
		end_child(&c, SIGKILL);
		single_close(&p, 1);
	}
}
END_TEST

START_TEST(test_shm_forked_child_of_the_peer_does_not_hide_its_death)
{
	struct pair p;
	struct child c;
	pid_t grandchild;
	unsigned long ours[64], its[64];
	int at;

	if (getenv("SIRCL_TEST_EMULATED")) /* qemu ignores MADV_DONTFORK, valgrind has no pidfd_open */
		return;
	c = start(&p, body_forks);
	ck_assert_int_eq(read(c.from, &grandchild, sizeof(grandchild)), sizeof(grandchild));
	/* nor is it a third one with the memory: but for the arena that its parent itself has made */
	ck_assert_int_le(common(ours, memfds(getpid(), ours), its, memfds(grandchild, its)), 1);
	end_child(&c, SIGKILL);
	at = h_wait(&p, 1, 0, LANE_SUSPECT, 200);
	ck_assert(p.e[1].seen[at].ev.gone);
	kill(grandchild, SIGKILL);
	single_close(&p, 1);
}
END_TEST

START_TEST(test_shm_memory_is_mapped_by_its_two_neighbours_only)
{
	struct pair p[2];
	struct child c[2];
	unsigned long ino[3][64];
	int n[3];
	char b;

	/* A line of three: child, test, child. Both are forked before the test has any memory to inherit. */
	for (int i = 0; i < 2; i++)
		c[i] = fork_end(body_still);
	for (int i = 0; i < 2; i++) {
		single(&p[i], 1);
		join(&p[i], &c[i]);
		ck_assert_int_eq(read(c[i].from, &b, 1), 1);
	}
	n[0] = memfds(c[0].pid, ino[0]);
	n[1] = memfds(getpid(), ino[1]);
	n[2] = memfds(c[1].pid, ino[2]);
	/* two arenas and two queues of notes each */
	ck_assert_int_eq(common(ino[0], n[0], ino[1], n[1]), 4);
	ck_assert_int_eq(common(ino[2], n[2], ino[1], n[1]), 4);
	for (int i = 0; i < n[0]; i++)
		for (int k = 0; k < n[2]; k++)
			ck_assert_msg(ino[0][i] != ino[2][k], "opposite processes share a segment");
	for (int i = 0; i < 2; i++) {
		end_child(&c[i], SIGKILL);
		single_close(&p[i], 1);
	}
}
END_TEST

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

START_TEST(test_shm_leaks_no_descriptor_over_epochs_and_failures)
{
	struct pair p;
	struct tick t;
	int before = open_fds(), up = 0;

	h_open(&p, &lane_shm_ops);
	for (uint32_t epoch = 1; epoch <= 5; epoch++) {
		h_up(&p, epoch);
		if (epoch == 1)
			up = open_fds();
		ck_assert_int_eq(open_fds(), up);
		for (int i = 0; i < 2; i++)
			p.ops->fence(p.e[i].l, epoch);
		for (int i = 0; i < 2; i++)
			h_wait(&p, i, 0, LANE_FENCED, 1000);
		h_settle(&p, 2);
		p.e[0].nseen = p.e[1].nseen = 0;
	}
	/* a handshake that is given up at every step */
	for (int steps = 0; steps < 8; steps++) {
		uint32_t epoch = 100 + (uint32_t)steps * 2;

		h_connect(&p, epoch);
		for (int k = 0; k < steps; k++) {
			t = h_tick(&p.e[k % 2]);
			h_poll(&p.e[k % 2], &t);
		}
		for (int i = 0; i < 2; i++)
			p.ops->fence(p.e[i].l, epoch);
		h_settle(&p, 3);
		p.e[0].nseen = p.e[1].nseen = 0;
	}
	h_up(&p, 200);
	ck_assert_int_eq(open_fds(), up);
	h_close(&p);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane/shm between processes");
	TCase *c = tcase_create("processes");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_shm_two_processes_exchange_checked_bytes);
	tcase_add_test(c, test_shm_writes_registered_memory_of_another_process);
	tcase_add_test(c, test_shm_peer_killed_anywhere_is_suspected_at_once_and_leaves_nothing);
	tcase_add_test(c, test_shm_sleeper_is_woken_when_the_peer_dies);
	tcase_add_test(c, test_shm_stopped_peer_is_not_suspected_and_fenced_only_when_it_answers);
	tcase_add_test(c, test_shm_forked_child_of_the_peer_does_not_hide_its_death);
	tcase_add_test(c, test_shm_memory_is_mapped_by_its_two_neighbours_only);
	tcase_add_test(c, test_shm_leaks_no_descriptor_over_epochs_and_failures);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
