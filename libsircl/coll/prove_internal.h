/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the prover. The plans of all positions are unrolled: every step has `slices` instances, every
 * instance two events. START: it may begin to read its sources (RECV: to be landed in). END: its data is
 * there; of a SEND: it is released, its source will not be read again.
 */
#ifndef COLL_PROVE_INTERNAL_H
#define COLL_PROVE_INTERNAL_H
#include "coll/internal.h"

#define PROVE_SLICES 3
#define PROVE_BIG 16384 /* steps of all positions; plans with more are proved with one slice only */

/* One direction of a cable: the steps at both ends, in channel order; as many SENDs as RECVs. */
struct prove_lane {
	int from, to; /* positions */
	int count;
	uint16_t *send, *recv; /* step numbers at `from`, at `to` */
};

struct proof {
	enum coll_kind kind;
	const struct plan *const *plan;
	int n, slices, nlanes;
	int root; /* rank */
	int pos_of[COLL_MAX_RANKS]; /* of a rank; prove_shape fills it in */
	struct prove_lane lane[2 * COLL_MAX_RANKS];
	int base[COLL_MAX_RANKS + 1]; /* first instance of each position */
	bool alias; /* IN is OUT */
	struct plan_report *report;
};

static inline int prove_instance(const struct proof *f, int pos, int step, int slice)
{
	return f->base[pos] + step * f->slices + slice;
}
static inline int prove_start(const struct proof *f, int pos, int step, int slice)
{
	return 2 * prove_instance(f, pos, step, slice);
}
static inline int prove_end(const struct proof *f, int pos, int step, int slice)
{
	return 2 * prove_instance(f, pos, step, slice) + 1;
}

/* Blocks of a class have the same length; only they may meet. */
int prove_class(const struct plan *, const struct plan_span *);
/* Memory of a position: cells are numbered from 0, one for a block. Equal if and only if it is the same
 * place. */
int prove_cell(const struct proof *, int pos, const struct plan_span *);
int prove_cells(const struct plan *);
/* Blocks of IN, of OUT. */
int prove_in_blocks(const struct plan *);
int prove_out_blocks(const struct plan *);
/* Whether a position has IN, has OUT. */
bool prove_has_in(const struct proof *, int pos);
bool prove_has_out(const struct proof *, int pos);
/* A COPY of a place onto itself: the engine leaves it out. */
bool prove_is_nothing(const struct proof *, int pos, const struct plan_step *);
/* Span as text, "out[3]"; into buf, returns buf. */
char *prove_span_text(const struct plan_span *, char *buf, size_t n);
/* Fills in the report's sentence; returns false. */
bool prove_fail(struct proof *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Each part: false with a sentence in the report if it finds a fault; *err if it cannot work. */
bool prove_shape(struct proof *, sircl_result_t *err); /* well formed, paired; fills in lanes and base */
bool prove_order(struct proof *, sircl_result_t *err); /* no cycle, no race */
bool prove_values(struct proof *, const int *order,
		  sircl_result_t *err); /* sums, in an order of all events */
/* Whether it ends with this window and the plans' scratch depth; *pos, *step: who waits for ever. */
bool prove_ends(struct proof *, int window, int *pos, int *step, sircl_result_t *err);
#endif
