/* SPDX-License-Identifier: Apache-2.0 */
/* Names and numbers only, so nothing needs quotes. */
#include "bench_csv.h"

void csv_head(FILE *f)
{
	fputs("kind,nranks,size,count,type,redop,root,place,time_us,p50_us,p99_us,min_us,max_us,slowest_rank,"
	      "algbw_gbs,busbw_gbs,wrong,digest\n",
	      f);
}

void csv_row(FILE *f, const struct options *o, int nranks, const struct row *r)
{
	static const char *const place[PLACES] = { [OUT_OF_PLACE] = "out", [IN_PLACE] = "in" };

	for (int p = 0; p < PLACES; p++) {
		const struct measured *m = &r->m[p];

		if (!m->done)
			continue;
		fprintf(f, "%s,%d,%zu,%zu,%s,%s,%d,%s,%.3f,%.3f,%.3f,%.3f,%.3f,%d,%.6g,%.6g,",
			kind_info(r->kind)->name, nranks, r->bytes, r->count, row_type(r), row_op(r), r->root,
			place[p], m->mean, m->p50, m->p99, m->min, m->max, m->slowest, m->algbw, m->busbw);
		if (o->check)
			fprintf(f, "%llu", (unsigned long long)m->wrong);
		fputc(',', f);
		if (o->digest)
			fprintf(f, "%016llx", (unsigned long long)r->digest);
		fputc('\n', f);
	}
	fflush(f);
}
