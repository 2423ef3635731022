/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of base/ share among themselves and with their tests. */
#ifndef BASE_INTERNAL_H
#define BASE_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

/* A list of subsystems, "INIT,LINK" or "^LANE", as a mask. `strict`: false on an unknown name; otherwise
 * unknown names (NCCL has more than we) are skipped. */
bool log_parse_subsys(const char *list, bool strict, uint32_t *mask);
#define LOG_SUBSYS_NAMES "INIT, FABRIC, LANE, LINK, COLL, ENGINE, NET, ENV, ALL"

/* Copies a string of foreign origin for a message: bounded, control characters as '?', "..." when cut. */
const char *printable(char *buf, size_t n, const char *s);

/* Opens `soname` and looks up the NULL-terminated `symbols`; a new table in their order. */
sircl_result_t dl_load(const char *soname, const char *package, const char *const *symbols, void ***table);
#endif
