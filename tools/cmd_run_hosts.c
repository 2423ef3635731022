/* SPDX-License-Identifier: Apache-2.0 */
/* The list of hosts of `sircl run -H`, which ranks are where, and what the far ends are told. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cmd_run.h"
#include "sircl.h"

extern char **environ;

/* Set for each rank, or ours alone. */
static bool is_ours(const char *name, size_t n)
{
	static const char *const ours[] = { "SIRCL_RANK",         "SIRCL_NRANKS", "SIRCL_LOCAL_RANK",
					    "SIRCL_LOCAL_NRANKS", "SIRCL_ROOT",   "SIRCL_SECRET",
					    "SIRCL_LAB",          "SIRCL_SSH" };

	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		if (strlen(ours[i]) == n && strncmp(ours[i], name, n) == 0)
			return true;
	return false;
}

static int bad_host(const char *entry, size_t n, const char *why)
{
	return tool_error("run",
			  "-H: '%.*s' %s; allowed: HOST, HOST:RANKS, USER@HOST, [IPV6]:RANKS, with commas "
			  "between",
			  (int)n, entry, why);
}

/* One entry of n characters. */
static int parse_host(struct host *h, const char *entry, size_t n)
{
	const char *at = memchr(entry, '@', n), *host = at != NULL ? at + 1 : entry, *end = entry + n;
	const char *colon = memchr(host, ':', (size_t)(end - host)), *name_end = colon != NULL ? colon : end;
	const bool v6 = host < end && *host == '[';
	long ranks = 1;
	char *stop;

	if (v6) {
		name_end = memchr(host, ']', (size_t)(end - host));
		if (name_end == NULL || (name_end + 1 < end && name_end[1] != ':'))
			return bad_host(entry, n, "has no ] at the end of its address");
		colon = name_end + 1 < end ? name_end + 1 : NULL;
		host++;
	}
	if (name_end == host || at == entry)
		return bad_host(entry, n, "names no host");
	if (colon != NULL) {
		const char *digits = colon + 1;

		if (memchr(digits, ':', (size_t)(end - digits)) != NULL)
			return bad_host(entry, n, "has several colons (an IPv6 address goes into brackets)");
		ranks = digits < end && *digits >= '0' && *digits <= '9' ? strtol(digits, &stop, 10) : 0;
		if (ranks < 1 || ranks > RANKS_MAX || stop != end)
			return bad_host(entry, n, "has no number of ranks from 1 to 64 after its colon");
	}
	for (const char *c = entry; c < end; c++)
		if ((unsigned char)*c <= ' ' || *c == 127)
			return bad_host(entry, n, "has a space in it");
	if (*entry == '-' || *host == '-') /* ssh would take it for an option */
		return bad_host(entry, n, "begins with -");
	h->n = (int)ranks;
	if (asprintf(&h->name, "%.*s%.*s", at != NULL ? (int)(at + 1 - entry) : 0, entry,
		     (int)(name_end - host), host) < 0) {
		h->name = NULL;
		return tool_error("run", "out of memory");
	}
	return 0;
}

int hosts_parse(struct job *j, const char *list)
{
	const char *from = list;
	int ret;

	if (j->hosts > 0)
		return tool_error("run",
				  "-H is given twice: name all hosts in one list, with commas between");
	for (;;) {
		const size_t n = strcspn(from, ",");

		if (n == 0)
			return tool_error(
				"run", "-H: '%s' has an empty name in it; allowed: HOST[:RANKS],...", list);
		if (j->hosts == RANKS_MAX)
			return tool_error("run", "-H names more than %d hosts, the most ranks of a job",
					  RANKS_MAX);
		ret = parse_host(&j->host[j->hosts], from, n);
		if (ret != 0)
			return ret;
		j->hosts++;
		if (from[n] == '\0')
			return 0;
		from += n + 1;
	}
}

int hosts_place(struct job *j)
{
	int places = 0, first = 0;

	for (int i = 0; i < j->hosts; i++)
		places += j->host[i].n;
	if (j->n > places)
		return tool_error("run",
				  "-n %d is more than the %d place%s of -H: write HOST:RANKS for several "
				  "ranks on a host",
				  j->n, places, places == 1 ? "" : "s");
	if (j->n == 0)
		j->n = places;
	if (j->n > RANKS_MAX)
		return tool_error("run", "-H has %d ranks; 1 to %d are allowed", j->n, RANKS_MAX);
	for (int i = 0; i < j->hosts; i++) {
		struct host *h = &j->host[i];

		h->first = first;
		if (h->n > j->n - first)
			h->n = j->n - first;
		first += h->n;
	}
	while (j->host[j->hosts - 1].n == 0) /* not needed, not asked */
		free(j->host[--j->hosts].name);
	/* $PWD, if that is it: the name that users know is more likely the same on all hosts */
	j->cwd = get_current_dir_name();
	if (j->cwd == NULL)
		return tool_error("run", "the working directory: %s; change to one that all hosts have",
				  strerror(errno));
	return 0;
}

void hosts_free(struct job *j)
{
	free(j->cwd);
	for (int i = 0; i < j->hosts; i++)
		free(j->host[i].name);
	for (int i = 0; i < j->exports; i++)
		free(j->export[i]);
}

int hosts_export(struct job *j, const char *arg)
{
	const size_t n = strcspn(arg, "=");
	char *name;

	if (n == 0 || (*arg >= '0' && *arg <= '9') ||
	    strspn(arg, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != n)
		return tool_error(
			"run", "-x takes NAME or NAME=VALUE, a variable of letters, digits and _, not '%s'",
			arg);
	if (is_ours(arg, n))
		return tool_error("run", "-x %.*s: sircl run sets that itself", (int)n, arg);
	if (j->exports == (int)(sizeof(j->export) / sizeof(*j->export)))
		return tool_error("run", "-x is given more than %d times", j->exports);
	name = strndup(arg, n);
	if (name == NULL || (arg[n] == '=' && setenv(name, arg + n + 1, 1) != 0)) {
		free(name);
		return tool_error("run", "out of memory");
	}
	if (getenv(name) == NULL) {
		free(name);
		return tool_error("run", "-x %s: there is no such variable here; set it, or write %s=VALUE",
				  arg, arg);
	}
	j->export[j->exports++] = name;
	return 0;
}

const char *host_bare(const char *name)
{
	const char *at = strchr(name, '@');

	return at != NULL ? at + 1 : name;
}

void root_text(char *text, size_t n, const char *address, int port)
{
	const char *colon = strchr(address, ':');
	const bool v6 = colon != NULL && strchr(colon + 1, ':') != NULL;

	if (*address == '[' ? strstr(address, "]:") != NULL : colon != NULL && !v6)
		snprintf(text, n, "%s", address);
	else
		snprintf(text, n, *address != '[' && v6 ? "[%s]:%d" : "%s:%d", address, port);
}

static bool goes_along(const struct job *j, const char *entry)
{
	const size_t n = strcspn(entry, "=");

	if (is_ours(entry, n))
		return false;
	if (strncmp(entry, "SIRCL_", 6) == 0 || strncmp(entry, "NCCL_", 5) == 0)
		return true;
	for (int i = 0; i < j->exports; i++)
		if (strlen(j->export[i]) == n && strncmp(j->export[i], entry, n) == 0)
			return true;
	return false;
}

void hosts_job(const struct job *j, const struct host *h, const char *root, int local_first, int local,
	       int ping_ms, struct buf *b)
{
	const uint32_t numbers[] = { (uint32_t)h->first,    (uint32_t)h->n,  (uint32_t)j->n,
				     (uint32_t)local_first, (uint32_t)local, (uint32_t)ping_ms };
	uint32_t n = 0;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		buf_u32(b, numbers[i]);
	buf_text(b, root);
	buf_text(b, j->secret);
	buf_text(b, j->lab);
	buf_text(b, j->cwd);
	for (char **e = environ; *e != NULL; e++)
		n += goes_along(j, *e);
	buf_u32(b, n);
	for (char **e = environ; *e != NULL; e++)
		if (goes_along(j, *e))
			buf_text(b, *e);
	for (n = 0; j->command[n] != NULL; n++)
		;
	buf_u32(b, n);
	for (uint32_t i = 0; i < n; i++)
		buf_text(b, j->command[i]);
}
