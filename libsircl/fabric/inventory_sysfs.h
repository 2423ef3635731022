/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading sysfs, or what pretends to be it: every read is bounded, nothing blocks, and whatever is not as
 * expected (missing, a directory, too long, not printable) counts as unreadable.
 */
#ifndef FABRIC_INVENTORY_SYSFS_H
#define FABRIC_INVENTORY_SYSFS_H
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSFS_NAME_MAX 64

/* One line without its end, not empty. fmt gives the path. */
bool sysfs_text(char *buf, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A decimal number from min to max and nothing else; otherwise `none`. */
int64_t sysfs_number(int64_t min, int64_t max, int64_t none, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The last component of a link's target. The target need not exist. */
bool sysfs_link(char *buf, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool sysfs_exists(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/*
 * The entries of a directory but those that begin with a dot, in natural order (eth2 before eth10). Of more
 * than max the first in that order. Their number, or -1 and errno.
 */
int sysfs_names(char (*name)[SYSFS_NAME_MAX], int max, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "0000:01:00.1" and nothing else. */
bool pci_parse(const char *text, uint32_t *domain, uint32_t *bus, uint32_t *slot, uint32_t *function);
/* "0-4,7": CPUs below CPU_SETSIZE; on false *bad is where the text stops to be that. */
bool cpulist_parse(const char *text, cpu_set_t *, const char **bad);
/* The other way; "..." at the end if it does not fit. Returns buf. */
const char *cpulist_text(const cpu_set_t *, char *buf, size_t n);
#endif
