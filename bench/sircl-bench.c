/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sircl-bench: times collectives and checks their results. On the public header and the shared library only.
 * Every rank runs the same; rank 0 prints. Exit status: 0 all right, 1 a check failed, 2 anything else.
 */
#include <stdlib.h>
#include "bench_json.h"

enum { EXIT_OK = 0, EXIT_WRONG = 1, EXIT_TROUBLE = 2 };

struct output {
	FILE *table; /* NULL but on rank 0 */
	struct json_file *json; /* NULL if not asked for */
};

static void show_head(const struct output *out, const struct options *o, const struct rank_facts all[], int n)
{
	if (out->table)
		table_head(out->table, o, all, n);
	if (out->json)
		json_head(out->json, o, all, n);
}

static void show_row(const struct output *out, const struct options *o, const struct row *r)
{
	if (out->table)
		table_row(out->table, o, r);
	if (out->json)
		json_row(out->json, o, r);
}

static bool all_sizes(struct bench *b, sircl_type_t type, sircl_op_t op, const struct output *out,
		      struct totals *t)
{
	size_t bytes = b->o->min_bytes;
	struct row r;

	do {
		if (!bench_row(b, bytes, type, op, &r))
			return false;
		totals_add(t, &r);
		show_row(out, b->o, &r);
	} while (options_next_size(b->o, &bytes));
	return true;
}

static bool run(struct session *s, const struct options *o, const struct output *out, struct totals *t)
{
	struct rank_facts *all = calloc((size_t)s->n, sizeof(*all));
	struct bench b = { .o = o, .s = s };
	bool ok = all && session_facts(s, all);

	if (ok) {
		show_head(out, o, all, s->n);
		ok = bench_open(&b, o, s);
	}
	for (int i = 0; ok && i < o->ntypes; i++)
		for (int j = 0; ok && j < o->nops; j++)
			ok = all_sizes(&b, o->types[i], o->ops[j], out, t);
	bench_close(&b);
	free(all);
	return ok;
}

static int rank_main(const struct options *o)
{
	struct output out = { 0 };
	struct totals t = { 0 };
	struct session s;
	bool ok = true;

	if (!session_open(&s, o))
		return EXIT_TROUBLE;
	if (s.rank == 0) {
		out.table = stdout;
		if (o->json)
			out.json = json_open(o->json);
		ok = !o->json || out.json;
	}
	ok = session_all(&s, ok) && run(&s, o, &out, &t);
	if (ok && out.table)
		table_foot(out.table, o, &t);
	if (out.json && !json_close(out.json, o, &t, ok))
		ok = false;
	/* nobody leaves before rank 0 has written: the first to end with a status ends the others */
	ok = ok && session_all(&s, ok);
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
