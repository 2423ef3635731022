/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters: one table (param_table.h) with name, NCCL fallback, type, default, range, help. Read once per
 * context from the environment. Empty = unset. A bad value is an error that says what is allowed.
 */
#ifndef BASE_PARAM_H
#define BASE_PARAM_H
#include <stddef.h>
#include <stdint.h>
#include "sircl/sircl.h"

enum param_id {
#define PARAM_INT(id, name, nccl, def, min, max, help) PARAM_##id,
#define PARAM_SIZE(id, name, nccl, def, min, max, help) PARAM_##id,
#define PARAM_ENUM(id, name, nccl, def, choices, help) PARAM_##id,
#define PARAM_STR(id, name, nccl, def, help) PARAM_##id,
#include "base/param_table.h"
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_ENUM
#undef PARAM_STR
	PARAM_COUNT
};

enum param_origin { PARAM_DEFAULT, PARAM_ENV, PARAM_NCCL };
enum param_type { PARAM_TYPE_INT, PARAM_TYPE_SIZE, PARAM_TYPE_ENUM, PARAM_TYPE_STR };

struct param_info {
	const char *name, *nccl, *help; /* nccl: NULL if there is no fallback */
	enum param_type type;
	const char *def; /* default as text; "" for unset strings */
	int64_t min, max;
	const char *choices; /* ENUM: "a|b|c" */
};

struct params {
	int64_t num[PARAM_COUNT]; /* INT, SIZE (bytes); ENUM: index of the choice */
	char *str[PARAM_COUNT]; /* STR and ENUM: the text; STR: NULL if unset. Owned */
	enum param_origin origin[PARAM_COUNT];
};

const struct param_info *param_info(enum param_id);
/* Reads the environment. SIRCL_BAD_CONFIG and a sentence on a bad value. SIZE takes K, M, G suffixes. */
sircl_result_t params_load(struct params *);
/* The same from a given getenv, for tests. */
sircl_result_t params_load_from(struct params *, const char *(*get)(void *arg, const char *name), void *arg);
void params_free(struct params *);
/* Value as text for display; secrets (SIRCL_KEY, SIRCL_SECRET) come out as "(set)". Into buf, returns buf. */
const char *param_text(const struct params *, enum param_id, char *buf, size_t n);

/* What is allowed, as a clause: "a whole number from 0 to 8", "one of auto shm tcp". Into buf, returns buf.
 */
const char *param_allowed(enum param_id, char *buf, size_t n);
/* Bytes as "1M", "96K", "100". Into buf, returns buf. */
const char *param_size_text(int64_t bytes, char *buf, size_t n);

static inline int64_t param_num(const struct params *p, enum param_id id)
{
	return p->num[id];
}
static inline const char *param_str(const struct params *p, enum param_id id)
{
	return p->str[id];
}
#endif
