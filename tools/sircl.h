/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of the tool share. Exit codes: 0 ok, 1 a check failed, 2 usage or tool error, 3 not run.
 */
#ifndef TOOLS_SIRCL_H
#define TOOLS_SIRCL_H

#define EXIT_USAGE 2 /* also: the tool itself failed */

/* Each gets its own name as argv[0] and returns the exit code. */
int cmd_keygen(int argc, char **argv);
int cmd_params(int argc, char **argv);
int cmd_run(int argc, char **argv);

/* "sircl COMMAND: sentence" on stderr; returns EXIT_USAGE. */
int tool_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#endif
