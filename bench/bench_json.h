/* SPDX-License-Identifier: Apache-2.0 */
/* The results as JSON. schema_version changes when a reader of the old one would misunderstand the new one.
 */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H
#include "bench_table.h"

#define BENCH_SCHEMA_VERSION 1

struct json_file;

/* Opens the file at once, so that a bad name is told before anything runs. NULL: has said why. */
struct json_file *json_open(const char *name);
void json_head(struct json_file *, const struct options *, const struct rank_facts[], int n);
void json_row(struct json_file *, const struct options *, const struct row *);
/* Writes everything and closes. complete: no row is missing. False: has said why. */
bool json_close(struct json_file *, const struct options *, const struct totals *, bool complete);
#endif
