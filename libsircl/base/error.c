/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's last error. */
#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local struct sircl_error last;

sircl_result_t error_set(sircl_result_t code, const char *fmt, ...)
{
	va_list ap;
	char msg[ERROR_MSG_MAX]; /* arguments may point into `last` */

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	last.code = code;
	snprintf(last.msg, sizeof(last.msg), "%s", msg);
	return code;
}

const struct sircl_error *error_last(void)
{
	return &last;
}

void error_clear(void)
{
	last.code = SIRCL_SUCCESS;
	last.msg[0] = '\0';
}

sircl_result_t error_again(const struct sircl_error *e)
{
	if (e != &last)
		last = *e;
	return last.code;
}

_Noreturn void error_assert_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "libsircl: defect at %s:%d: %s\n", file, line, cond);
	abort();
}
