/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through jansson, which knows how to escape a host's name. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "bench_json.h"

struct json_file {
	const char *name;
	FILE *file;
	json_t *root, *rows;
};

struct json_file *json_open(const char *name)
{
	struct json_file *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->name = name;
	j->file = fopen(name, "we");
	if (!j->file) {
		fprintf(stderr, "sircl-bench: --json: cannot write %s: %s\n", name, strerror(errno));
		free(j);
		return NULL;
	}
	j->root = json_object();
	j->rows = json_array();
	return j;
}

/* NULL values are dropped by jansson, and a failure to allocate shows when the whole is written. */
static void put(json_t *o, const char *key, json_t *v)
{
	json_object_set_new(o, key, v);
}

static json_t *hex(uint64_t v)
{
	char text[20];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)v);
	return json_string(text);
}

static const char *setting(const char *name)
{
	const char *s = getenv(name);

	return s && *s ? s : "auto";
}

void json_head(struct json_file *j, const struct options *o, const struct rank_facts all[], int n)
{
	json_t *ranks = json_array();
	char version[32];
	int v = sircl_version();

	snprintf(version, sizeof(version), "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
	put(j->root, "schema_version", json_integer(BENCH_SCHEMA_VERSION));
	put(j->root, "program", json_string("sircl-bench"));
	put(j->root, "library_version", json_string(version));
	put(j->root, "collective", json_string(options_what(o)));
	put(j->root, "nranks", json_integer(n));
	put(j->root, "algo", json_string(setting("SIRCL_ALGO")));
	put(j->root, "transport", json_string(all[0].transport));
	put(j->root, "memory", json_string(o->plain_memory ? "plain" : "alloc"));
	put(j->root, "rotate", json_integer(o->rotate));
	put(j->root, "iters", json_integer(o->iters));
	put(j->root, "warmup_iters", json_integer(o->warmup));
	put(j->root, "check", json_boolean(o->check));
	for (int r = 0; r < n; r++) {
		json_t *x = json_object();

		put(x, "rank", json_integer(r));
		put(x, "pid", json_integer(all[r].pid));
		put(x, "host", json_string(all[r].host));
		put(x, "position", json_integer(all[r].position));
		put(x, "next_lanes", json_integer(all[r].next_lanes));
		put(x, "prev_lanes", json_integer(all[r].prev_lanes));
		json_array_append_new(ranks, x);
	}
	put(j->root, "ranks", ranks);
}

void json_row(struct json_file *j, const struct options *o, const struct row *r)
{
	static const char *const place[PLACES] = { [OUT_OF_PLACE] = "out_of_place", [IN_PLACE] = "in_place" };
	json_t *x = json_object();

	put(x, "collective", json_string(kind_info(r->kind)->name));
	put(x, "size", json_integer((json_int_t)r->bytes));
	put(x, "count", json_integer((json_int_t)r->count));
	put(x, "type", json_string(row_type(r)));
	put(x, "redop", json_string(row_op(r)));
	put(x, "root", json_integer(r->root));
	for (int p = 0; p < PLACES; p++) {
		const struct measured *m = &r->m[p];
		json_t *y = m->done ? json_object() : json_null();

		put(x, place[p], y);
		if (!m->done)
			continue;
		put(y, "time_us", json_real(m->mean));
		put(y, "p50_us", json_real(m->p50));
		put(y, "p99_us", json_real(m->p99));
		put(y, "min_us", json_real(m->min));
		put(y, "max_us", json_real(m->max));
		put(y, "slowest_rank", json_integer(m->slowest));
		put(y, "algbw_gbs", json_real(m->algbw));
		put(y, "busbw_gbs", json_real(m->busbw));
		put(y, "wrong", o->check ? json_integer((json_int_t)m->wrong) : json_null());
	}
	if (o->digest) {
		put(x, "digest", hex(r->digest));
		put(x, "same_bits_on_all_ranks", json_boolean(r->same_bits));
	}
	json_array_append_new(j->rows, x);
}

bool json_close(struct json_file *j, const struct options *o, const struct totals *t, bool complete)
{
	bool ok;

	put(j->root, "results", j->rows);
	put(j->root, "complete", json_boolean(complete));
	put(j->root, "wrong", json_integer((json_int_t)t->wrong));
	put(j->root, "avg_busbw_gbs", json_real(totals_average(t)));
	if (o->digest)
		put(j->root, "digest", hex(t->digest));
	ok = json_dumpf(j->root, j->file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
	     fputc('\n', j->file) != EOF;
	if (fclose(j->file))
		ok = false;
	if (!ok)
		fprintf(stderr, "sircl-bench: --json: cannot write %s: %s\n", j->name, strerror(errno));
	json_decref(j->root);
	free(j);
	return ok;
}
