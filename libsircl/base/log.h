/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log. Lines look like `host:pid:tid [rank] SIRCL INFO text` on stderr or in SIRCL_DEBUG_FILE (%h host,
 * %p pid, as NCCL's). One INFO line for each choice made; never in the data path. The log is an object of a
 * context; no process-wide state.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include <stdbool.h>
#include <stdint.h>

struct params;
enum log_level { LOG_NONE, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_TRACE };
enum log_subsys {
	LOG_INIT = 1,
	LOG_FABRIC = 2,
	LOG_LANE = 4,
	LOG_LINK = 8,
	LOG_COLL = 16,
	LOG_ENGINE = 32,
	LOG_NET = 64,
	LOG_ENV = 128,
	LOG_ALL = 255
};

struct log {
	enum log_level level;
	uint32_t subsys;
	int fd; /* 2 for stderr */
	int rank; /* -1: not known yet, printed as [-] */
	char host[64];
};

/* Level, subsystems and file from SIRCL_DEBUG, SIRCL_DEBUG_SUBSYS, SIRCL_DEBUG_FILE (fallback NCCL_*).
 * Without SIRCL_DEBUG: WARN. */
void log_init(struct log *, const struct params *, int rank);
void log_close(struct log *);
/* One write(2) per line, so lines of several processes do not mix. Preserves errno. */
void log_write(const struct log *, enum log_level, enum log_subsys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static inline bool log_on(const struct log *l, enum log_level level, enum log_subsys s)
{
	return l->level >= level && (level <= LOG_WARN || (l->subsys & s));
}
#define log_error(l, ...) log_write(l, LOG_ERROR, LOG_ALL, __VA_ARGS__)
#define log_warn(l, ...) log_write(l, LOG_WARN, LOG_ALL, __VA_ARGS__)
#define log_info(l, s, ...) \
	do { \
		if (log_on(l, LOG_INFO, s)) \
			log_write(l, LOG_INFO, s, __VA_ARGS__); \
	} while (0)
#define log_trace(l, s, ...) \
	do { \
		if (log_on(l, LOG_TRACE, s)) \
			log_write(l, LOG_TRACE, s, __VA_ARGS__); \
	} while (0)
#endif
