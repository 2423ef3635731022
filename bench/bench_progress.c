/* SPDX-License-Identifier: Apache-2.0 */
/* Written at most five times a second, and wiped before the table goes on. */
#include <unistd.h>
#include "bench_progress.h"

#define EVERY_S 0.2

int progress_total(const struct options *o, int nranks)
{
	size_t bytes = o->min_bytes;
	int sizes = 1, rows = 0;

	while (options_next_size(o, &bytes))
		sizes++;
	for (int i = 0; i < o->nkinds; i++) {
		const struct kind_info *k = kind_info(o->kinds[i]);

		if (o->kinds[i] == KIND_BARRIER)
			rows++;
		else
			rows += sizes * o->ntypes * (k->reduces ? o->nops : 1) *
				(k->rooted && o->root == ROOT_ALL ? nranks : 1);
	}
	return rows;
}

void progress_open(struct progress *p, FILE *to, int total, double now_s)
{
	*p = (struct progress){ .to = to && isatty(fileno(to)) ? to : NULL, .total = total, .start = now_s };
}

void progress_step(struct progress *p, const struct row *next, double now_s)
{
	int row = ++p->done;

	if (!p->to || now_s - p->start < PROGRESS_AFTER_S || now_s - p->last < EVERY_S)
		return;
	p->last = now_s;
	p->shown = true;
	fprintf(p->to, "\r\033[Krow %d of %d, %.0f s: %s, %zu bytes, %s, %s ", row, p->total,
		now_s - p->start, kind_info(next->kind)->name, next->bytes, bench_type_name(next->type),
		bench_op_name(next->op));
	fflush(p->to);
}

void progress_clear(struct progress *p)
{
	if (!p->shown)
		return;
	p->shown = false;
	fputs("\r\033[K", p->to);
	fflush(p->to);
}
