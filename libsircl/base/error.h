/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. A function returns sircl_result_t; the place that knows most formats the sentence once, with
 * error_set(), into a buffer of the calling thread; nobody above re-words it. api/ copies it into the
 * communicator when the communicator ends.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H
#include "sircl/sircl.h"

#define ERROR_MSG_MAX 640

struct sircl_error {
	sircl_result_t code;
	char msg[ERROR_MSG_MAX];
};

/* Formats the sentence (what, where, what is allowed, the cure), keeps it for this thread, returns `code`. */
sircl_result_t error_set(sircl_result_t code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The calling thread's last error; code SIRCL_SUCCESS and "" if none. Never NULL. */
const struct sircl_error *error_last(void);
void error_clear(void);
/* Makes `e` the calling thread's last error and returns its code. */
sircl_result_t error_again(const struct sircl_error *e);

#define CHECK(call) \
	do { \
		sircl_result_t check_r_ = (call); \
		if (check_r_ != SIRCL_SUCCESS) \
			return check_r_; \
	} while (0)
/* for functions with a local `sircl_result_t ret` */
#define CHECK_GOTO(call, label) \
	do { \
		ret = (call); \
		if (ret != SIRCL_SUCCESS) \
			goto label; \
	} while (0)

/* Stays on in release builds: prints file, line and condition, aborts. For what can only be a defect of ours.
 */
#define sircl_assert(cond) ((cond) ? (void)0 : error_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void error_assert_failed(const char *cond, const char *file, int line);
#endif
