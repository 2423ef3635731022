/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-tests' columns, widths and comment lines. */
#include "bench_table.h"
#include "bench_verify.h"

void totals_add(struct totals *t, const struct row *r)
{
	for (int p = 0; p < PLACES; p++) {
		if (!r->m[p].done)
			continue;
		t->wrong += r->m[p].wrong;
		t->busbw += r->m[p].busbw;
		t->values++;
	}
	t->rows++;
	t->wrong += !r->same_bits;
	t->digest = verify_digest(t->digest, &r->digest, sizeof(r->digest));
}

double totals_average(const struct totals *t)
{
	return t->values ? t->busbw / t->values : 0;
}

void totals_join(struct totals *t, const struct totals *more)
{
	t->wrong += more->wrong;
	t->busbw += more->busbw;
	t->values += more->values;
	t->rows += more->rows;
	t->digest = verify_digest(t->digest, &more->digest, sizeof(more->digest));
}

const char *row_type(const struct row *r)
{
	return r->kind == KIND_BARRIER ? "none" : bench_type_name(r->type);
}

const char *row_op(const struct row *r)
{
	return kind_info(r->kind)->reduces ? bench_op_name(r->op) : "none";
}

static void show_ranks(FILE *f, const struct rank_facts all[], int n)
{
	fprintf(f, "#\n# Using devices\n");
	for (int r = 0; r < n; r++)
		fprintf(f,
			"#  Rank %2d Group  0 Pid %6d on %10s device %2d [%s] position %d, lanes next %d "
			"prev %d\n",
			r, all[r].pid, all[r].host, 0, all[r].transport, all[r].position, all[r].next_lanes,
			all[r].prev_lanes);
}

void table_head(FILE *f, const struct options *o, enum bench_kind kind, const struct rank_facts all[], int n)
{
	int version = sircl_version();

	fprintf(f, "# sircl-bench %s, libsircl %d.%d.%d\n", kind_info(kind)->name, version / 10000,
		version / 100 % 100, version % 100);
	fprintf(f,
		"# nThread 1 nGpus 0 minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg "
		"iters: 1 "
		"validation: %d graph: 0\n",
		o->min_bytes, o->max_bytes, o->factor > 1 ? (size_t)o->factor : o->step_bytes,
		o->factor > 1 ? "factor" : "bytes", o->warmup, o->iters, o->check);
	if (all)
		show_ranks(f, all, n);
	fprintf(f, "#\n");
	fprintf(f,
		"# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          "
		"\n",
		"", "", "", "", "");
	fprintf(f, "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s%s\n", "size", "count",
		"type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
		"#wrong", o->digest ? "  digest" : "");
	fprintf(f, "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %5s  %7s  %6s  %6s  %5s\n", "(B)",
		"(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
	fflush(f);
}

void table_row(FILE *f, const struct options *o, const struct row *r)
{
	fprintf(f, "%12zu  %12zu  %8s  %6s  %6d", r->bytes, r->count, row_type(r), row_op(r), r->root);
	for (int p = 0; p < PLACES; p++) {
		const struct measured *m = &r->m[p];

		if (!m->done) {
			fprintf(f, "  %7s  %6s  %6s  %5s", "N/A", "N/A", "N/A", "N/A");
			continue;
		}
		fprintf(f, m->mean >= 10000 ? "  %7.0f" : m->mean >= 100 ? "  %7.1f" : "  %7.2f", m->mean);
		fprintf(f, "  %6.2f  %6.2f", m->algbw, m->busbw);
		if (o->check)
			fprintf(f, "  %5g", (double)m->wrong);
		else
			fprintf(f, "  %5s", "N/A");
	}
	if (o->digest)
		fprintf(f, "  %016llx%s", (unsigned long long)r->digest, r->same_bits ? "" : " ranks differ");
	fprintf(f, "\n");
	fflush(f);
}

void table_foot(FILE *f, const struct options *o, const struct totals *t)
{
	fprintf(f, "# Out of bounds values : %llu %s\n", (unsigned long long)t->wrong,
		t->wrong ? "FAILED" : "OK");
	fprintf(f, "# Avg bus bandwidth    : %g \n", totals_average(t));
	if (o->digest)
		fprintf(f, "# Digest               : %016llx\n", (unsigned long long)t->digest);
	fprintf(f, "#\n");
	fflush(f);
}

void table_summary(FILE *f, const struct options *o, const struct totals by_kind[])
{
	struct totals all = { 0 };

	fprintf(f, "# Summary\n# %-14s  %5s  %10s  %9s\n", "kind", "rows", "wrong", "avg busbw");
	for (int i = 0; i < o->nkinds; i++) {
		const struct totals *t = &by_kind[i];

		fprintf(f, "# %-14s  %5d  %10llu  %9.3f  %s\n", kind_info(o->kinds[i])->name, t->rows,
			(unsigned long long)t->wrong, totals_average(t),
			!o->check  ? "not checked"
			: t->wrong ? "FAILED"
				   : "OK");
		totals_join(&all, t);
	}
	table_foot(f, o, &all);
}
