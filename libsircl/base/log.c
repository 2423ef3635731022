/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: formats a line on the stack and hands it to the kernel in one write(2), so that lines of several
 * threads and processes do not mix and a crash loses none. No buffer, no lock.
 */
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/internal.h"
#include "base/param.h"

#define LOG_LINE_MAX 1024

bool log_parse_subsys(const char *list, bool strict, uint32_t *mask)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} names[] = {
		{ "INIT", LOG_INIT }, { "FABRIC", LOG_FABRIC }, { "LANE", LOG_LANE },
		{ "LINK", LOG_LINK }, { "COLL", LOG_COLL },     { "ENGINE", LOG_ENGINE },
		{ "NET", LOG_NET },   { "ENV", LOG_ENV },       { "ALL", LOG_ALL },
	};
	const bool invert = *list == '^';
	uint32_t m = 0;

	for (list += invert; *list != '\0'; list += *list == ',') {
		const size_t len = strcspn(list, ",");
		bool known = false;

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (strlen(names[i].name) == len && strncasecmp(names[i].name, list, len) == 0) {
				m |= names[i].bit;
				known = true;
			}
		if (strict && !known)
			return false;
		list += len;
	}
	*mask = invert ? LOG_ALL & ~m : m;
	return true;
}

/* NCCL's names for the level; `version` prints nothing but errors here. In the order of the table. */
static enum log_level level_of(const char *s)
{
	if (strcmp(s, "none") == 0)
		return LOG_NONE;
	if (strcmp(s, "version") == 0)
		return LOG_ERROR;
	if (strcmp(s, "info") == 0 || strcmp(s, "abort") == 0)
		return LOG_INFO;
	return strcmp(s, "trace") == 0 ? LOG_TRACE : LOG_WARN;
}

/* Expands %h, %p and %%; false if the path does not fit. */
static bool expand(const char *pattern, const char *host, char *out, size_t n)
{
	size_t used = 0;

	for (; *pattern != '\0'; pattern++) {
		int k;

		if (pattern[0] == '%' && pattern[1] == 'h')
			k = snprintf(out + used, n - used, "%s", host);
		else if (pattern[0] == '%' && pattern[1] == 'p')
			k = snprintf(out + used, n - used, "%d", (int)getpid());
		else
			k = snprintf(out + used, n - used, "%c", *pattern);
		if (k < 0 || (size_t)k >= n - used)
			return false;
		used += (size_t)k;
		if (*pattern == '%' && pattern[1] != '\0' && strchr("hp%", pattern[1]) != NULL)
			pattern++;
	}
	return used > 0;
}

void log_init(struct log *l, const struct params *p, int rank)
{
	const char *file = p != NULL ? param_str(p, PARAM_DEBUG_FILE) : NULL;
	const char *subsys = p != NULL ? param_str(p, PARAM_DEBUG_SUBSYS) : NULL;
	char path[512] = "";

	*l = (struct log){ .level = LOG_WARN, .subsys = LOG_ALL, .fd = STDERR_FILENO, .rank = rank };
	if (gethostname(l->host, sizeof(l->host) - 1) != 0)
		snprintf(l->host, sizeof(l->host), "localhost");
	l->host[strcspn(l->host, ".")] = '\0';
	if (p != NULL)
		l->level = level_of(param_str(p, PARAM_DEBUG));
	if (subsys != NULL)
		log_parse_subsys(subsys, false, &l->subsys); /* ours was checked, NCCL's may name more */
	if (file == NULL)
		return;
	if (!expand(file, l->host, path, sizeof(path))) {
		log_warn(l, "%s is too long; the log goes to stderr", param_info(PARAM_DEBUG_FILE)->name);
		return;
	}
	/* appended, so that ranks may share a file; a pipe without a reader is an error, not a wait */
	l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
	if (l->fd < 0) {
		l->fd = STDERR_FILENO;
		log_warn(l, "cannot open the log file %s (%s): %s; the log goes to stderr", path,
			 param_info(PARAM_DEBUG_FILE)->name, strerror(errno));
		return;
	}
	fcntl(l->fd, F_SETFL, O_APPEND);
}

void log_close(struct log *l)
{
	if (l->fd > STDERR_FILENO)
		close(l->fd);
	l->fd = STDERR_FILENO;
}

/* A disk that is full or a reader that is gone must not stop a job: what cannot be written is dropped. */
static void put_line(int fd, const char *line, size_t len)
{
	while (len > 0) {
		const ssize_t k = write(fd, line, len);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return;
		line += k;
		len -= (size_t)k;
	}
}

void log_write(const struct log *l, enum log_level level, enum log_subsys s, const char *fmt, ...)
{
	static const char *const names[] = { "", "ERROR", "WARN", "INFO", "TRACE" };
	const int saved = errno;
	char line[LOG_LINE_MAX], rank[16] = "-";
	int head, body;
	size_t len;
	va_list ap;

	if (level == LOG_NONE || !log_on(l, level, s))
		return;
	if (l->rank >= 0)
		snprintf(rank, sizeof(rank), "%d", l->rank);
	head = snprintf(line, sizeof(line), "%s:%d:%d [%s] SIRCL %s ", l->host, (int)getpid(), (int)gettid(),
			rank, names[level]);
	sircl_assert(head > 0 && (size_t)head < sizeof(line) / 2);
	errno = saved; /* for %m */
	va_start(ap, fmt);
	body = vsnprintf(line + head, sizeof(line) - (size_t)head, fmt, ap);
	va_end(ap);
	len = strlen(line);
	if (body >= (int)sizeof(line) - head)
		memcpy(line + len - 3, "...", 3);
	while (len > (size_t)head && line[len - 1] == '\n')
		line[--len] = '\0';
	/* one entry is one line, whatever a foreign string holds */
	for (size_t i = (size_t)head; i < len; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 127)
			line[i] = '?';
	line[len++] = '\n';
	put_line(l->fd, line, len);
	errno = saved;
}
