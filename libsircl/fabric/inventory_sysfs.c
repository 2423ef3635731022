/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded reading of sysfs, and the two notations that it has: PCI addresses and lists of CPUs. */
#include "fabric/inventory_sysfs.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX 4096 /* of a directory that are looked at */

static bool path_of(char path[PATH_MAX], const char *fmt, va_list ap)
{
	int n = vsnprintf(path, PATH_MAX, fmt, ap);

	return n > 0 && n < PATH_MAX;
}

/* The file's bytes, at most n - 1 of them and a NUL; -1 also for what is longer. */
static ssize_t read_whole(const char *path, char *buf, size_t n)
{
	/* O_NONBLOCK, O_NOCTTY: a pipe or a terminal in a tree must neither stop nor attach us */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t have = 0;
	ssize_t k = -1;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		do {
			k = read(fd, buf + have, n - have);
			have += k > 0 ? (size_t)k : 0;
		} while ((k > 0 && have < n) || (k < 0 && errno == EINTR));
	}
	close(fd);
	if (k < 0 || have == n)
		return -1;
	buf[have] = '\0';
	return (ssize_t)have;
}

static bool text_of(const char *path, char *buf, size_t n)
{
	ssize_t len = read_whole(path, buf, n);

	while (len > 0 && (buf[len - 1] == '\n' || buf[len - 1] == ' '))
		buf[--len] = '\0';
	for (ssize_t i = 0; i < len; i++)
		if (buf[i] < ' ' || buf[i] > '~')
			len = 0; /* it goes into messages and paths */
	if (len <= 0)
		buf[0] = '\0';
	return len > 0;
}

bool sysfs_text(char *buf, size_t n, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	bool ok;

	buf[0] = '\0';
	va_start(ap, fmt);
	ok = path_of(path, fmt, ap);
	va_end(ap);
	return ok && text_of(path, buf, n);
}

int64_t sysfs_number(int64_t min, int64_t max, int64_t none, const char *fmt, ...)
{
	char path[PATH_MAX], text[32];
	const char *s = text;
	bool negative, ok;
	int64_t v = 0;
	va_list ap;

	va_start(ap, fmt);
	ok = path_of(path, fmt, ap);
	va_end(ap);
	if (!ok || !text_of(path, text, sizeof(text)))
		return none;
	negative = *s == '-';
	s += negative;
	ok = *s != '\0';
	for (; *s; s++)
		if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, *s - '0', &v))
			return none;
	v = negative ? -v : v;
	return ok && v >= min && v <= max ? v : none;
}

bool sysfs_link(char *buf, size_t n, const char *fmt, ...)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *last;
	ssize_t len = -1;
	va_list ap;

	buf[0] = '\0';
	va_start(ap, fmt);
	if (path_of(path, fmt, ap))
		len = readlink(path, target, sizeof(target) - 1);
	va_end(ap);
	if (len <= 0)
		return false;
	target[len] = '\0';
	last = strrchr(target, '/');
	last = last ? last + 1 : target;
	if (strlen(last) == 0 || strlen(last) >= n || !strcmp(last, ".") || !strcmp(last, ".."))
		return false;
	memcpy(buf, last, strlen(last) + 1);
	return true;
}

bool sysfs_exists(const char *fmt, ...)
{
	char path[PATH_MAX];
	struct stat st;
	va_list ap;
	bool ok;

	va_start(ap, fmt);
	ok = path_of(path, fmt, ap);
	va_end(ap);
	return ok && stat(path, &st) == 0;
}

static bool name_fits(const char *s)
{
	if (*s == '.' || strlen(s) >= SYSFS_NAME_MAX)
		return false;
	for (; *s; s++)
		if (*s <= ' ' || *s > '~')
			return false;
	return true;
}

int sysfs_names(char (*name)[SYSFS_NAME_MAX], int max, const char *fmt, ...)
{
	char path[PATH_MAX];
	struct dirent *d;
	int n = 0, k;
	va_list ap;
	DIR *dir;
	bool ok;

	va_start(ap, fmt);
	ok = path_of(path, fmt, ap);
	va_end(ap);
	if (!ok) {
		errno = ENAMETOOLONG;
		return -1;
	}
	dir = opendir(path);
	if (!dir)
		return -1;
	for (int i = 0; i < ENTRIES_MAX && (d = readdir(dir)); i++) {
		if (!name_fits(d->d_name))
			continue;
		for (k = n; k > 0 && strverscmp(name[k - 1], d->d_name) > 0; k--)
			if (k < max)
				memcpy(name[k], name[k - 1], SYSFS_NAME_MAX);
		if (k == max)
			continue;
		memcpy(name[k], d->d_name, strlen(d->d_name) + 1);
		n += n < max;
	}
	closedir(dir);
	return n;
}

/* Hexadecimal digits from *s on, at most `digits`, up to `end`; what follows `end` is the new *s. */
static bool hex_until(const char **s, char end, int digits, uint32_t *v)
{
	int n = 0;

	for (*v = 0; **s != end; (*s)++) {
		char c = (char)(**s | 32);
		int d = **s >= '0' && **s <= '9' ? **s - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (d < 0 || n++ == digits)
			return false;
		*v = *v << 4 | (uint32_t)d;
	}
	*s += end != '\0';
	return n > 0;
}

bool pci_parse(const char *s, uint32_t *domain, uint32_t *bus, uint32_t *slot, uint32_t *function)
{
	return hex_until(&s, ':', 7, domain) && hex_until(&s, ':', 2, bus) && hex_until(&s, '.', 2, slot) &&
	       hex_until(&s, '\0', 1, function) && *slot < 32 && *function < 8;
}

static bool cpu_number(const char **s, int *v)
{
	const char *from = *s;

	for (*v = 0; **s >= '0' && **s <= '9'; (*s)++) {
		*v = *v * 10 + (**s - '0');
		if (*v >= CPU_SETSIZE)
			return false;
	}
	return *s > from;
}

bool cpulist_parse(const char *s, cpu_set_t *set, const char **bad)
{
	int from, to;

	CPU_ZERO(set);
	for (;;) {
		*bad = s;
		if (!cpu_number(&s, &from))
			return false;
		to = from;
		if (*s == '-') {
			s++;
			if (!cpu_number(&s, &to) || to < from)
				return false;
		}
		for (int i = from; i <= to; i++)
			CPU_SET(i, set);
		if (*s == '\0')
			return true;
		if (*s != ',')
			return false;
		s++;
	}
}

const char *cpulist_text(const cpu_set_t *set, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0, to; i < CPU_SETSIZE; i = to + 1) {
		char part[32];
		int len;

		to = i;
		if (!CPU_ISSET(i, set))
			continue;
		while (to + 1 < CPU_SETSIZE && CPU_ISSET(to + 1, set))
			to++;
		len = snprintf(part, sizeof(part), to == i ? "%s%d" : "%s%d-%d", at ? "," : "", i, to);
		if (at + (size_t)len + sizeof("...") > n) {
			memcpy(buf + at, "...", sizeof("..."));
			return buf;
		}
		memcpy(buf + at, part, (size_t)len + 1);
		at += (size_t)len;
	}
	return buf;
}
