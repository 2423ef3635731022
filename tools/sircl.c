/* SPDX-License-Identifier: Apache-2.0 */
/* The command `sircl`: a table of commands, each in its own file. */
#include "sircl.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "sircl/sircl.h"

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct command {
	const char *name;
	int (*function)(int argc, char **argv);
	const char *help, *arguments;
} commands[] = {
	{ "run", cmd_run, "starts the ranks of a job, on this machine or on several",
	  "{-n N | -H HOST[:RANKS],... [-n N] [--ssh COMMAND] [--root ADDRESS] [--label]} [--lanes L] "
	  "[--transport auto|shm|tcp|verbs] [-x NAME[=VALUE]]... -- COMMAND [ARGUMENT]..." },
	{ "params", cmd_params, "shows every parameter, its value and where that comes from", "[--json]" },
	{ "keygen", cmd_keygen, "makes a key file for a job that spans machines", "FILE" },
	{ "version", cmd_version, "prints the version", "" },
	{ "help", cmd_help, "prints this, or how a command is used", "[COMMAND]" },
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

int tool_error(const char *command, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "sircl%s%s: %s\n", *command != '\0' ? " " : "", command, text);
	return EXIT_USAGE;
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int cmd_help(int argc, char **argv)
{
	const struct command *c;

	if (argc > 2)
		return tool_error("help", "takes one command at most");
	if (argc == 2) {
		c = find(argv[1]);
		if (c == NULL)
			return tool_error("help", "there is no command '%s'; see sircl help", argv[1]);
		printf("sircl %s%s%s: %s\n", c->name, *c->arguments != '\0' ? " " : "", c->arguments,
		       c->help);
		return 0;
	}
	printf("usage: sircl COMMAND [ARGUMENT]...\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].help);
	printf("\n`sircl help COMMAND` shows the arguments.\n");
	return 0;
}

static int cmd_version(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return tool_error("version", "takes no argument");
	printf("sircl %d.%d.%d\n", SIRCL_VERSION_MAJOR, SIRCL_VERSION_MINOR, SIRCL_VERSION_PATCH);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	const struct command *c;
	char *help[] = { (char[]){ "help" }, argc > 1 ? argv[1] : NULL, NULL };
	int ret;

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	if (*name == '\0')
		return tool_error("", "say what to do: see sircl help");
	c = find(name);
	if (c == NULL)
		return tool_error("", "there is no command '%s'; see sircl help", name);
	if (argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
		ret = cmd_help(2, help);
	else
		ret = c->function(argc - 1, argv + 1);
	if ((fflush(stdout) != 0 || ferror(stdout)) && ret == 0)
		ret = tool_error(name, "writing the output: %s", strerror(errno));
	return ret;
}
