/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sircl-bench: times collectives and checks their results. On the public header and the shared library only.
 * Every rank runs the same; rank 0 prints. Exit status: 0 all right, 1 a check failed, 2 anything else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bench_csv.h"
#include "bench_json.h"
#include "bench_progress.h"

enum { EXIT_OK = 0, EXIT_WRONG = 1, EXIT_TROUBLE = 2 };

struct output {
	FILE *table; /* NULL but on rank 0 */
	FILE *csv; /* NULL if not asked for */
	struct json_file *json; /* NULL if not asked for */
	struct progress progress;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Files are opened before anything runs, so that a bad name is told at once. */
static bool output_open(struct output *out, const struct options *o)
{
	out->table = stdout;
	if (o->csv) {
		out->csv = fopen(o->csv, "we");
		if (!out->csv) {
			fprintf(stderr, "sircl-bench: --csv: cannot write %s: %s\n", o->csv, strerror(errno));
			return false;
		}
		csv_head(out->csv);
	}
	if (o->json)
		out->json = json_open(o->json);
	return !o->json || out->json;
}

static bool output_close(struct output *out, const struct options *o, const struct totals *t, bool complete)
{
	bool ok = true, failed;

	if (out->json)
		ok = json_close(out->json, o, t, complete);
	if (!out->csv)
		return ok;
	failed = ferror(out->csv) != 0; /* before the stream is gone */
	failed |= fclose(out->csv) != 0;
	if (failed) {
		fprintf(stderr, "sircl-bench: --csv: cannot write %s: %s\n", o->csv, strerror(errno));
		ok = false;
	}
	return ok;
}

static void show_row(struct output *out, const struct options *o, int n, const struct row *r)
{
	progress_clear(&out->progress);
	if (out->table)
		table_row(out->table, o, r);
	if (out->csv)
		csv_row(out->csv, o, n, r);
	if (out->json)
		json_row(out->json, o, r);
}

/* One run through the sizes; of a barrier, which has none, one row. */
static bool all_sizes(struct bench *b, const struct row *like, struct output *out, struct totals *t)
{
	size_t bytes = b->kind == KIND_BARRIER ? 0 : b->o->min_bytes;

	do {
		struct row r = *like;

		r.bytes = bytes;
		progress_step(&out->progress, &r, now_s());
		if (!bench_row(b, &r))
			return false;
		totals_add(t, &r);
		show_row(out, b->o, b->s->n, &r);
	} while (b->kind != KIND_BARRIER && options_next_size(b->o, &bytes));
	return true;
}

static bool all_roots(struct bench *b, struct row *like, struct output *out, struct totals *t)
{
	int first = b->o->root, last = b->o->root;

	like->root = -1;
	if (!kind_info(b->kind)->rooted)
		return all_sizes(b, like, out, t);
	if (first == ROOT_ALL) {
		first = 0;
		last = b->s->n - 1;
	}
	for (like->root = first; like->root <= last; like->root++)
		if (!all_sizes(b, like, out, t))
			return false;
	return true;
}

static bool one_kind(struct bench *b, struct output *out, struct totals *t)
{
	int ntypes = b->kind == KIND_BARRIER ? 1 : b->o->ntypes;
	int nops = kind_info(b->kind)->reduces ? b->o->nops : 1;
	struct row like;

	for (int i = 0; i < ntypes; i++)
		for (int j = 0; j < nops; j++) {
			like = (struct row){ .kind = b->kind, .type = b->o->types[i], .op = b->o->ops[j] };
			if (!all_roots(b, &like, out, t))
				return false;
		}
	return true;
}

static bool run_kind(struct session *s, const struct options *o, const struct rank_facts all[], int which,
		     struct output *out, struct totals *t)
{
	struct bench b;
	bool ok;

	if (out->table) {
		progress_clear(&out->progress);
		table_head(out->table, o, o->kinds[which], which ? NULL : all, s->n);
	}
	ok = bench_open(&b, o, s, all, o->kinds[which]) && one_kind(&b, out, t);
	bench_close(&b);
	if (ok && out->table)
		table_foot(out->table, o, t);
	return ok;
}

static bool run(struct session *s, const struct options *o, struct output *out, struct totals *all_kinds)
{
	struct rank_facts *all = calloc((size_t)s->n, sizeof(*all));
	struct totals by_kind[KINDS] = { 0 };
	bool ok = all && session_facts(s, all);

	progress_open(&out->progress, out->table ? stderr : NULL, progress_total(o, s->n), now_s());
	if (ok && out->json)
		json_head(out->json, o, all, s->n);
	for (int i = 0; ok && i < o->nkinds; i++) {
		ok = run_kind(s, o, all, i, out, &by_kind[i]);
		totals_join(all_kinds, &by_kind[i]);
	}
	if (o->nkinds == 1)
		*all_kinds = by_kind[0];
	else if (ok && out->table)
		table_summary(out->table, o, by_kind);
	free(all);
	return ok;
}

static int rank_main(const struct options *o)
{
	struct output out = { 0 };
	struct totals t = { 0 };
	struct session s;
	bool ok = true, written;

	if (!session_open(&s, o))
		return EXIT_TROUBLE;
	if (o->root >= s.n) {
		if (s.rank == 0)
			fprintf(stderr, "sircl-bench: -r %d: the %d ranks are 0 to %d\n", o->root, s.n,
				s.n - 1);
		ok = false;
	} else if (s.rank == 0) {
		ok = output_open(&out, o);
	}
	ok = session_all(&s, ok) && run(&s, o, &out, &t);
	written = output_close(&out, o, &t, ok);
	/* nobody leaves before rank 0 has written: the first to end with a status ends the others */
	ok = ok && session_all(&s, written);
	if (!session_close(&s) || !ok)
		return EXIT_TROUBLE;
	return t.wrong ? EXIT_WRONG : EXIT_OK;
}

int main(int argc, char *argv[])
{
	struct options o;
	char msg[256];

	switch (options_parse(&o, argc, argv, msg, sizeof(msg))) {
	case OPTIONS_HELP:
		options_help(stdout);
		return EXIT_OK;
	case OPTIONS_BAD:
		fprintf(stderr, "sircl-bench: %s\n", msg);
		return EXIT_TROUBLE;
	default:
		break;
	}
	if (ranks_must_launch(&o)) {
		ranks_launch(&o, argv);
		return EXIT_TROUBLE;
	}
	return rank_main(&o);
}
