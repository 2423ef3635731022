/* SPDX-License-Identifier: Apache-2.0 */
/* sircl params [--json]: the table of parameters with the values that a library started now would use. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/param.h"
#include "sircl.h"

#define TEXT_MAX 256

/* Bytes of the UTF-8 character at s (RFC 3629), 0 if there is none. */
static int utf8_length(const unsigned char *s)
{
	int n, i;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	for (i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* overlong, surrogates, beyond the last code point */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* A string in JSON; what is no UTF-8 becomes U+FFFD, so that the output is valid whatever the environment. */
static void json_string(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	int n;

	putchar('"');
	while (*s != '\0') {
		n = utf8_length(s);
		if (n == 0)
			printf("\\ufffd");
		else if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else if (*s < ' ' || *s == 127)
			printf("\\u%04x", *s);
		else
			printf("%.*s", n, (const char *)s);
		s += n > 0 ? n : 1;
	}
	putchar('"');
}

static void json_field(const char *name, const char *value)
{
	printf(", \"%s\": ", name);
	json_string(value);
}

static const char *origin_text(const struct params *p, enum param_id id)
{
	switch (p->origin[id]) {
	case PARAM_ENV:
		return "environment";
	case PARAM_NCCL:
		return param_info(id)->nccl;
	case PARAM_DEFAULT:
		break;
	}
	return "default";
}

static void print_json(const struct params *p)
{
	printf("{\n  \"schema_version\": 1,\n  \"parameters\": [");
	for (int i = 0; i < PARAM_COUNT; i++) {
		const enum param_id id = (enum param_id)i;
		const struct param_info *in = param_info(id);
		char text[TEXT_MAX], allowed[TEXT_MAX];

		printf("%s\n    {\"name\": ", i > 0 ? "," : "");
		json_string(in->name);
		if (in->type == PARAM_TYPE_INT || in->type == PARAM_TYPE_SIZE)
			printf(", \"value\": %lld", (long long)param_num(p, id));
		else if (param_str(p, id) == NULL)
			printf(", \"value\": null");
		else if (param_text(p, id, text, sizeof(text)) != NULL && strcmp(text, "(set)") == 0)
			json_field("value", text);
		else
			json_field("value", param_str(p, id)); /* not cut, as `text` may be */
		json_field("origin", origin_text(p, id));
		json_field("default", in->def);
		json_field("allowed", param_allowed(id, allowed, sizeof(allowed)));
		if (in->nccl != NULL)
			json_field("nccl", in->nccl);
		json_field("help", in->help);
		putchar('}');
	}
	printf("\n  ]\n}\n");
}

/* For a terminal: control characters of a value must not reach it. */
static void print_cell(const char *s, int width)
{
	int n = 0;

	for (; *s != '\0'; s++, n++)
		putchar((unsigned char)*s < ' ' || *s == 127 ? '?' : *s);
	if (width > 0)
		printf("%*s", width + 2 - n, "");
}

static void print_table(const struct params *p)
{
	enum { NAME, VALUE, ORIGIN, DEFAULT, ALLOWED, HELP, COLUMNS };
	static const char *const head[COLUMNS] = { "NAME", "VALUE", "ORIGIN", "DEFAULT", "ALLOWED", "HELP" };
	int width[COLUMNS] = { 0 };

	/* once to measure, once to print; row -1 is the head */
	for (int pass = 0; pass < 2; pass++)
		for (int i = -1; i < PARAM_COUNT; i++) {
			const enum param_id id = (enum param_id)(i < 0 ? 0 : i);
			char text[TEXT_MAX], allowed[TEXT_MAX];
			const char *cell[COLUMNS] = {
				[NAME] = param_info(id)->name,
				[VALUE] = param_text(p, id, text, sizeof(text)),
				[ORIGIN] = origin_text(p, id),
				[DEFAULT] = param_info(id)->def,
				[ALLOWED] = param_allowed(id, allowed, sizeof(allowed)),
				[HELP] = param_info(id)->help,
			};

			for (int c = 0; c < COLUMNS; c++) {
				const char *s = i < 0 ? head[c] : cell[c];
				const int n = (int)strlen(s);

				if (pass == 0 && n > width[c])
					width[c] = n;
				else if (pass == 1)
					print_cell(s, c + 1 < COLUMNS ? width[c] : 0);
			}
			if (pass == 1)
				putchar('\n');
		}
}

int cmd_params(int argc, char **argv)
{
	const bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
	struct params p;

	if (argc > 2 || (argc == 2 && !json))
		return tool_error("params", "takes --json or nothing");
	if (params_load(&p) != SIRCL_SUCCESS)
		return tool_error("params", "%s", error_last()->msg);
	if (json)
		print_json(&p);
	else
		print_table(&p);
	params_free(&p);
	return 0;
}
