/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters, read from the environment once per context. Invariant: after params_load() every number lies in
 * its range and every ENUM is one of its choices; on error the structure is empty.
 */
#include "base/param.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/internal.h"
#include "base/log.h"

#define PARAM_INT(id, name_, nccl_, def_, min_, max_, help_) \
	[PARAM_##id] = { \
		.name = name_, \
		.nccl = nccl_, \
		.help = help_, \
		.type = PARAM_TYPE_INT, \
		.def = def_, \
		.min = min_, \
		.max = max_, \
	},
#define PARAM_SIZE(id, name_, nccl_, def_, min_, max_, help_) \
	[PARAM_##id] = { \
		.name = name_, \
		.nccl = nccl_, \
		.help = help_, \
		.type = PARAM_TYPE_SIZE, \
		.def = def_, \
		.min = min_, \
		.max = max_, \
	},
#define PARAM_ENUM(id, name_, nccl_, def_, choices_, help_) \
	[PARAM_##id] = { \
		.name = name_, \
		.nccl = nccl_, \
		.help = help_, \
		.type = PARAM_TYPE_ENUM, \
		.def = def_, \
		.choices = choices_, \
	},
#define PARAM_STR(id, name_, nccl_, def_, help_) \
	[PARAM_##id] = { \
		.name = name_, \
		.nccl = nccl_, \
		.help = help_, \
		.type = PARAM_TYPE_STR, \
		.def = def_, \
	},
static const struct param_info infos[PARAM_COUNT] = {
#include "base/param_table.h"
};

const struct param_info *param_info(enum param_id id)
{
	return &infos[id];
}

const char *printable(char *buf, size_t n, const char *s)
{
	size_t i;

	for (i = 0; i + 1 < n && s[i] != '\0'; i++)
		buf[i] = (unsigned char)s[i] < ' ' || s[i] == 127 ? '?' : s[i];
	buf[i] = '\0';
	if (s[i] != '\0' && n > 4)
		memcpy(buf + n - 4, "...", 4);
	return buf;
}

/* A decimal integer with optional sign and, if `suffix`, K, M or G. Nothing else, no spaces. */
static bool parse_number(const char *s, bool suffix, int64_t *out)
{
	const bool negative = *s == '-';
	int64_t v = 0, unit = 1;

	s += negative;
	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s - '0', &v))
			return false;
	if (suffix && *s != '\0') {
		if (*s == 'K' || *s == 'k')
			unit = 1 << 10;
		else if (*s == 'M' || *s == 'm')
			unit = 1 << 20;
		else if (*s == 'G' || *s == 'g')
			unit = 1 << 30;
		else
			return false;
		s++;
	}
	if (*s != '\0' || __builtin_mul_overflow(v, unit, &v))
		return false;
	*out = negative ? -v : v;
	return true;
}

/* The choice of "a|b|c" that `s` names, capitals or not; its index and its length, or -1. */
static int find_choice(const char *choices, const char *s, const char **text, size_t *len)
{
	int i;

	for (i = 0;; i++) {
		*text = choices;
		*len = strcspn(choices, "|");
		if (strlen(s) == *len && strncasecmp(choices, s, *len) == 0)
			return i;
		if (choices[*len] == '\0')
			return -1;
		choices += *len + 1;
	}
}

/* Stores one value; false if it is not allowed; *oom when memory is short. */
static bool set(struct params *p, enum param_id id, const char *s, bool *oom)
{
	const struct param_info *in = &infos[id];
	const char *text = s;
	size_t len = strlen(s);
	uint32_t mask;
	int choice;

	switch (in->type) {
	case PARAM_TYPE_INT:
	case PARAM_TYPE_SIZE:
		return parse_number(s, in->type == PARAM_TYPE_SIZE, &p->num[id]) && p->num[id] >= in->min &&
		       p->num[id] <= in->max;
	case PARAM_TYPE_ENUM:
		choice = find_choice(in->choices, s, &text, &len);
		if (choice < 0)
			return false;
		p->num[id] = choice;
		break;
	case PARAM_TYPE_STR:
		if (len == 0)
			return true;
		if (id == PARAM_DEBUG_SUBSYS && p->origin[id] == PARAM_ENV &&
		    !log_parse_subsys(s, true, &mask))
			return false;
		break;
	}
	p->str[id] = strndup(text, len);
	*oom = p->str[id] == NULL;
	return !*oom;
}

const char *param_allowed(enum param_id id, char *buf, size_t n)
{
	const struct param_info *in = &infos[id];
	char lo[24], hi[24];
	size_t i;

	switch (in->type) {
	case PARAM_TYPE_INT:
		snprintf(buf, n, "a whole number from %lld to %lld", (long long)in->min, (long long)in->max);
		break;
	case PARAM_TYPE_SIZE:
		snprintf(buf, n, "bytes from %s to %s, as a whole number with K, M, G or nothing after it",
			 param_size_text(in->min, lo, sizeof(lo)), param_size_text(in->max, hi, sizeof(hi)));
		break;
	case PARAM_TYPE_ENUM:
		snprintf(buf, n, "one of %s", in->choices);
		for (i = 0; buf[i] != '\0'; i++)
			if (buf[i] == '|')
				buf[i] = ' ';
		break;
	case PARAM_TYPE_STR:
		snprintf(buf, n, "%s",
			 id == PARAM_DEBUG_SUBSYS
				 ? "a list, with ^ before it for all others, of " LOG_SUBSYS_NAMES
				 : "text");
		break;
	}
	return buf;
}

/* NCCL takes any text as NCCL_DEBUG, so a job that runs with NCCL must not fail here. */
static bool nccl_takes_anything(enum param_id id)
{
	return id == PARAM_DEBUG;
}

static sircl_result_t bad_value(const struct params *p, enum param_id id, const char *value)
{
	const struct param_info *in = &infos[id];
	char allowed[192], shown[80];

	param_allowed(id, allowed, sizeof(allowed));
	printable(shown, sizeof(shown), value);
	if (p->origin[id] == PARAM_NCCL)
		return error_set(
			SIRCL_BAD_CONFIG,
			"the environment variable %s=%s, used because %s is not set, is not allowed; "
			"allowed: %s (%s)",
			in->nccl, shown, in->name, allowed, in->help);
	return error_set(SIRCL_BAD_CONFIG, "the environment variable %s=%s is not allowed; allowed: %s (%s)",
			 in->name, shown, allowed, in->help);
}

sircl_result_t params_load_from(struct params *p, const char *(*get)(void *arg, const char *name), void *arg)
{
	sircl_result_t ret;

	memset(p, 0, sizeof(*p));
	for (int i = 0; i < PARAM_COUNT; i++) {
		const enum param_id id = (enum param_id)i;
		const struct param_info *in = &infos[id];
		const char *v = get(arg, in->name);
		bool oom = false;

		p->origin[id] = PARAM_ENV;
		if ((v == NULL || *v == '\0') && in->nccl != NULL) {
			v = get(arg, in->nccl);
			p->origin[id] = PARAM_NCCL;
		}
		if (v != NULL && *v != '\0') {
			if (set(p, id, v, &oom))
				continue;
			if (!oom && !(p->origin[id] == PARAM_NCCL && nccl_takes_anything(id))) {
				ret = bad_value(p, id, v);
				goto err;
			}
		}
		p->origin[id] = PARAM_DEFAULT;
		if (oom || !set(p, id, in->def, &oom)) {
			sircl_assert(oom); /* the default is in its own range */
			ret = error_set(SIRCL_NO_MEMORY, "out of memory while reading parameters");
			goto err;
		}
	}
	return SIRCL_SUCCESS;
err:
	params_free(p);
	return ret;
}

static const char *get_environment(void *arg, const char *name)
{
	(void)arg;
	return getenv(name);
}

sircl_result_t params_load(struct params *p)
{
	return params_load_from(p, get_environment, NULL);
}

void params_free(struct params *p)
{
	for (int i = 0; i < PARAM_COUNT; i++) {
		/* keys do not stay in freed memory */
		if (p->str[i] != NULL)
			explicit_bzero(p->str[i], strlen(p->str[i]));
		free(p->str[i]);
	}
	memset(p, 0, sizeof(*p));
}

const char *param_size_text(int64_t v, char *buf, size_t n)
{
	static const char suffix[] = "\0KMG";
	size_t i = 0;

	while (v != 0 && v % 1024 == 0 && i < 3) {
		v /= 1024;
		i++;
	}
	snprintf(buf, n, "%lld%.1s", (long long)v, suffix + i);
	return buf;
}

const char *param_text(const struct params *p, enum param_id id, char *buf, size_t n)
{
	if (infos[id].type == PARAM_TYPE_SIZE)
		return param_size_text(p->num[id], buf, n);
	if (infos[id].type == PARAM_TYPE_INT)
		snprintf(buf, n, "%lld", (long long)p->num[id]);
	else if (p->str[id] == NULL)
		snprintf(buf, n, "%s", "");
	else if (id == PARAM_KEY || id == PARAM_SECRET)
		snprintf(buf, n, "(set)");
	else
		snprintf(buf, n, "%s", p->str[id]);
	return buf;
}
