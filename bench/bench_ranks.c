/* SPDX-License-Identifier: Apache-2.0 */
/* Local ranks through `sircl run`, the communicator, gathers. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench_ranks.h"

static int env_int(const char *name, int otherwise)
{
	const char *s = getenv(name);

	return s && *s ? atoi(s) : otherwise;
}

bool ranks_must_launch(const struct options *o)
{
	return o->ranks > 0 && env_int("SIRCL_RANK", -1) < 0;
}

/* The library reads them when the communicator is created. */
static bool to_environment(const struct options *o)
{
	char lanes[16];

	snprintf(lanes, sizeof(lanes), "%d", o->lanes);
	return (!o->lanes || !setenv("SIRCL_LANES", lanes, 1)) &&
	       (!o->transport || !setenv("SIRCL_TRANSPORT", o->transport, 1)) &&
	       (!o->algo || !setenv("SIRCL_ALGO", o->algo, 1));
}

void ranks_launch(const struct options *o, char *argv[])
{
	char self[PATH_MAX], folder[PATH_MAX], run[PATH_MAX + 8], n[16];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char **args;
	int argc = 0, k = 0;

	if (len < 0 || !to_environment(o)) {
		fprintf(stderr, "sircl-bench: cannot start ranks: %s\n", strerror(errno));
		return;
	}
	self[len] = '\0';
	memcpy(folder, self, (size_t)len + 1);
	snprintf(run, sizeof(run), "%s/sircl", dirname(folder));
	snprintf(n, sizeof(n), "%d", o->ranks);
	while (argv[argc])
		argc++;
	args = calloc((size_t)argc + 6, sizeof(args[0]));
	if (!args) {
		fprintf(stderr, "sircl-bench: no memory\n");
		return;
	}
	args[k++] = run;
	args[k++] = (char[]){ "run" };
	args[k++] = (char[]){ "-n" };
	args[k++] = n;
	args[k++] = (char[]){ "--" };
	args[k++] = self;
	for (int i = 1; i < argc; i++)
		args[k++] = argv[i];
	fflush(NULL);
	execv(run, args);
	fprintf(stderr, "sircl-bench: --ranks needs the program sircl beside this one: %s: %s\n", run,
		strerror(errno));
	free(args);
}

bool session_failed(const struct session *s, const char *call)
{
	fprintf(stderr, "sircl-bench: rank %d: %s: %s\n", s->rank, call, sircl_last_error(s->comm));
	return false;
}

/* With one of them alone every rank would take itself for the first, or the only one. */
static bool rank_and_size(void)
{
	bool rank = env_int("SIRCL_RANK", -1) >= 0, size = env_int("SIRCL_NRANKS", 0) > 0;

	if (rank == size)
		return true;
	fprintf(stderr,
		"sircl-bench: %s is set and %s is not: a rank that sircl run has not started needs both\n",
		rank ? "SIRCL_RANK" : "SIRCL_NRANKS", rank ? "SIRCL_NRANKS" : "SIRCL_RANK");
	return false;
}

bool session_open(struct session *s, const struct options *o)
{
	if (!rank_and_size())
		return false;
	*s = (struct session){ .rank = env_int("SIRCL_RANK", 0), .n = env_int("SIRCL_NRANKS", 1) };
	if (o->ranks && o->ranks != s->n) {
		fprintf(stderr, "sircl-bench: --ranks %d, but this process is one of %d ranks already\n",
			o->ranks, s->n);
		return false;
	}
	if (!to_environment(o)) {
		fprintf(stderr, "sircl-bench: no memory\n");
		return false;
	}
	if (sircl_comm_create(&s->comm, NULL, s->rank, s->n, NULL) != SIRCL_SUCCESS)
		return session_failed(s, "sircl_comm_create");
	return true;
}

bool session_gather(const struct session *s, const void *mine, void *all, size_t bytes)
{
	if (sircl_all_gather(mine, all, bytes, SIRCL_UINT8, s->comm, SIRCL_HOST) != SIRCL_SUCCESS)
		return session_failed(s, "sircl_all_gather");
	return true;
}

bool session_all(const struct session *s, bool ok)
{
	uint8_t mine = ok, all[256];

	if (!session_gather(s, &mine, all, 1))
		return false;
	for (int r = 0; r < s->n; r++)
		ok = ok && all[r];
	return ok;
}

/* A kernel's own number: host names need not differ. 0: unknown. */
static uint64_t this_machine(void)
{
	char id[64] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	uint64_t h = 0;

	if (!f)
		return 0;
	if (fgets(id, sizeof(id), f))
		for (const char *c = id; *c; c++)
			h = (h ^ (unsigned char)*c) * 0x100000001b3ull;
	fclose(f);
	return h;
}

bool session_facts(const struct session *s, struct rank_facts all[])
{
	sircl_info_t info = { .size = sizeof(info) };
	struct rank_facts f;

	memset(&f, 0, sizeof(f));
	if (sircl_comm_query(s->comm, &info) != SIRCL_SUCCESS)
		return session_failed(s, "sircl_comm_query");
	f.pid = (int)getpid();
	f.position = info.position;
	f.next_lanes = info.next_lanes;
	f.prev_lanes = info.prev_lanes;
	f.machine = this_machine();
	gethostname(f.host, sizeof(f.host) - 1);
	memcpy(f.transport, info.transport, sizeof(f.transport));
	return session_gather(s, &f, all, sizeof(f));
}

bool session_close(struct session *s)
{
	bool ok = true;

	if (sircl_comm_finalize(s->comm) != SIRCL_SUCCESS)
		ok = session_failed(s, "sircl_comm_finalize");
	if (sircl_comm_destroy(s->comm) != SIRCL_SUCCESS && ok) {
		fprintf(stderr, "sircl-bench: rank %d: sircl_comm_destroy: %s\n", s->rank,
			sircl_last_error(NULL));
		ok = false;
	}
	s->comm = NULL;
	return ok;
}
