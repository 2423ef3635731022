/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: moves one operation as far as it goes, without waiting. It keeps, per step, how many slices
 * were handed to the channel (issued) and how many are finished (done; of a SEND: its source is free). Slices
 * of a step finish in order, because messages of a channel and sums do.
 *
 * A pass looks only at what can have moved: the oldest transfer of each channel and direction, sums whose
 * dependencies moved (a bit per step), and the next message of each channel and direction.
 *
 * A RECV marked for fusion is posted in view mode, without a destination, so as early as there is room; the
 * REDUCE behind it reads the channel's window piece by piece, when its other conditions hold. Every other
 * RECV is posted when its destination may be overwritten.
 */
#include "engine/internal.h"
#include <stdio.h>
#include <string.h>

struct pass {
	struct op *op;
	struct team *team;
	struct tick *tick;
	size_t budget; /* bytes that may still be summed or copied */
	bool moved;
};

void exec_fail(struct op *op, struct tick *tick, int peer)
{
	struct sircl_error err = *error_last();

	team_fail_all(op->team, tick, &err, op->team->cfg.node_of[peer]);
}

/* ---- conditions ---- */

/* Whether slice i of step k may begin: data there, sources of what it overwrites free. */
static bool may_begin(const struct op *op, uint16_t k, uint32_t i)
{
	const struct plan_step *s = &op->plan->step[k];
	const struct plan_info *in = op->info;
	const struct plan_waits *w = &in->waits[k];

	for (unsigned d = 0; d < w->n; d++)
		if (!step_through(&op->run[w->step[d]], i))
			return false;
	if (i < op->round)
		return true;
	/* Scratch holds `round` slices: everybody must be through with the one that lay here before. */
	if (s->op != PLAN_SEND && s->dst.buf == PLAN_SCRATCH && in->stored[s->dst.block])
		for (uint32_t a = in->acc_at[s->dst.block]; a < in->acc_at[s->dst.block + 1]; a++)
			if (!step_through(&op->run[in->acc[a]], i - op->round))
				return false;
	return true;
}

static void finished_slice(struct pass *p, uint16_t k)
{
	const struct plan_info *in = p->op->info;

	p->op->run[k].done++;
	p->op->left--;
	p->moved = true;
	for (uint32_t d = in->dep_at[k]; d < in->dep_at[k + 1]; d++)
		p->op->ready[in->dep[d] / 64] |= 1ull << (in->dep[d] % 64);
}

/* ---- sums and copies ---- */

/* Bytes from `off` on in slice i of an operand; elements of an accumulator are wider. */
static uint8_t *part(const struct op *op, const struct operand *o, uint32_t i, size_t off)
{
	return operand_at(o, i, op->round) + (o->stride == op->slice ? off : off * (o->stride / op->slice));
}

/* Sums `len` bytes (in the type) from `off` on of slice i; piece replaces source `which` if that is >= 0. */
static void sum(struct pass *p, uint16_t k, uint32_t i, size_t off, size_t len, int which, const void *piece)
{
	struct op *op = p->op;
	const struct plan_step *s = &op->plan->step[k];
	const struct step_run *r = &op->run[k];
	const void *src[4];

	for (int n = 0; n < s->nsrc; n++)
		src[n] = n == which ? piece : part(op, &r->src[n], i, off);
	reduce_run(op->args.type, op->args.op,
		   s->flags & (PLAN_ACC_OUT | PLAN_ACC_IN | PLAN_FINISH | PLAN_SCALE),
		   &(struct reduce_arg){ .ranks = (uint32_t)op->team->cfg.n, .scalar = op->args.scalar },
		   part(op, &r->dst, i, off), src, s->nsrc, len / op->elem);
	tick_charge(p->tick, COST_REDUCE, len);
	p->budget -= len < p->budget ? len : p->budget;
}

static void copy(struct pass *p, uint16_t k, uint32_t i, size_t len)
{
	const struct step_run *r = &p->op->run[k];
	uint8_t *dst = operand_at(&r->dst, i, p->op->round);
	const uint8_t *src = operand_at(&r->src[0], i, p->op->round);

	if (dst == src) /* in place */
		return;
	memcpy(dst, src, len);
	tick_charge(p->tick, COST_COPY, len);
	p->budget -= len < p->budget ? len : p->budget;
}

/* Runs step k as far as it goes; false: out of budget. */
static bool run_sum(struct pass *p, uint16_t k)
{
	struct op *op = p->op;
	struct step_run *r = &op->run[k];

	while (r->done < r->nslices && may_begin(op, k, r->done)) {
		if (!p->budget)
			return false;
		if (op->plan->step[k].op == PLAN_COPY)
			copy(p, k, r->done, slice_len(op, r, r->done));
		else
			sum(p, k, r->done, 0, slice_len(op, r, r->done), -1, NULL);
		finished_slice(p, k);
	}
	return true;
}

static void run_sums(struct pass *p)
{
	struct op *op = p->op;

	for (size_t w = 0; w < op->ready_words; w++) {
		while (op->ready[w]) {
			unsigned b = (unsigned)__builtin_ctzll(op->ready[w]);

			op->ready[w] &= ~(1ull << b);
			if (!run_sum(p, (uint16_t)(w * 64 + b))) {
				op->ready[w] |= 1ull << b;
				p->moved = true; /* go on in the next round */
				return;
			}
		}
	}
}

/* ---- what has arrived ---- */

void exec_mismatch(struct team *t, struct tick *tick, const struct team_chan *tc, uint64_t tag,
		   uint64_t our_tag)
{
	char theirs[128], ours[128];
	struct sircl_error err;

	op_tag_text(tag, theirs, sizeof(theirs));
	op_tag_text(our_tag, ours, sizeof(ours));
	error_set(SIRCL_MISMATCH,
		  "%s: rank %d called %s, while rank %d called %s. All ranks must issue the same collectives "
		  "in the "
		  "same order",
		  t->name, team_rank(t, tc->peer), theirs, t->cfg.rank, ours);
	err = *error_last();
	team_fail_all(t, tick, &err, t->cfg.node_of[tc->peer]);
}

static void transfer_failed(struct pass *p, struct team_chan *tc, sircl_result_t code)
{
	const struct sircl_error *why = tc->chan ? chan_error(tc->chan) : NULL;
	char text[128];

	op_text(p->op, text, sizeof(text));
	if (why && why->code != SIRCL_SUCCESS)
		error_set(code, "%s (in %s of %s, by %s)", why->msg, text, p->team->name, p->op->plan->name);
	else
		error_set(code, "%s: a transfer with rank %d ended with result %d in %s, by %s",
			  p->team->name, team_rank(p->team, tc->peer), (int)code, text, p->op->plan->name);
	if (code == SIRCL_REMOTE_ERROR || code == SIRCL_ABORTED)
		team_hearsay(p->team, p->tick, tc);
	else
		exec_fail(p->op, p->tick, tc->peer);
}

static void wrong_length(struct pass *p, struct team_chan *tc, const struct slot *s)
{
	char text[128];

	op_text(p->op, text, sizeof(text));
	error_set(SIRCL_INTERNAL_ERROR,
		  "%s: rank %d sent %llu bytes where step %u of %s expects %u, in %s: do all ranks run the "
		  "same "
		  "version with the same SIRCL_ALGO, SIRCL_SLICE, SIRCL_WINDOW and SIRCL_DETERMINISTIC?",
		  p->team->name, team_rank(p->team, tc->peer), (unsigned long long)s->x.len, s->step,
		  p->op->plan->name, s->len, text);
	exec_fail(p->op, p->tick, tc->peer);
}

/* Sums what is readable of the oldest message; true: the slice is complete. */
static bool sum_from_window(struct pass *p, struct team_chan *tc, struct slot *s)
{
	struct op *op = p->op;
	uint16_t k = (uint16_t)(s->step + 1);
	uint32_t i = op->run[k].done;

	while (s->off < s->len && p->budget && may_begin(op, k, i)) {
		const void *piece;
		size_t n = chan_view(tc->chan, &s->x, &piece);

		if (n > s->len - s->off)
			n = s->len - s->off;
		if (n == 0)
			return false;
		sum(p, k, i, s->off, n, op->info->fused[s->step], piece);
		s->off += (uint32_t)n;
		chan_consume(tc->chan, p->tick, &s->x, n);
		p->moved = true;
	}
	if (s->off < s->len && !p->budget)
		p->moved = true;
	return s->off == s->len;
}

/* Takes what is finished of one channel and direction; false: the operation has failed. */
static bool take_received(struct pass *p, int c)
{
	struct team_chan *tc = &p->team->ch[c];
	struct slot_queue *q = &tc->q[DIR_RECV];

	while (q->head != q->tail) {
		struct slot *s = &q->slot[q->head % EXEC_QUEUE];

		if (s->x.tagged && !s->checked) {
			s->checked = true;
			p->op->heard[c] = true;
			if (s->x.tag != p->op->tag) {
				exec_mismatch(p->team, p->tick, tc, s->x.tag, p->op->tag);
				return false;
			}
		}
		if (s->x.err != SIRCL_SUCCESS) {
			transfer_failed(p, tc, s->x.err);
			return false;
		}
		if (s->view && s->x.tagged && s->off < s->len && sum_from_window(p, tc, s)) {
			finished_slice(p, s->step);
			finished_slice(p, (uint16_t)(s->step + 1));
		}
		if (!s->x.finished || (s->view && s->off < s->len && s->x.len == s->len))
			break;
		if (s->x.len != s->len) {
			wrong_length(p, tc, s);
			return false;
		}
		if (!s->view)
			finished_slice(p, s->step);
		q->head++;
		p->moved = true;
	}
	return true;
}

static bool take_sent(struct pass *p, int c)
{
	struct team_chan *tc = &p->team->ch[c];
	struct slot_queue *q = &tc->q[DIR_SEND];

	while (q->head != q->tail) {
		struct slot *s = &q->slot[q->head % EXEC_QUEUE];

		if (s->x.err != SIRCL_SUCCESS) {
			transfer_failed(p, tc, s->x.err);
			return false;
		}
		if (!s->x.finished)
			break;
		finished_slice(p, s->step);
		q->head++;
	}
	return true;
}

/* ---- what can be handed to the channels ---- */

/* Moves the cursor to the next message that exists; false: there is none left. */
static bool settle(const struct op *op, int c, int d, struct cursor *cur)
{
	const uint16_t *list = op->info->list[c][d];

	while (!cur->end) {
		uint64_t first = (uint64_t)cur->round * op->round, last = first + op->round;
		const struct step_run *r = &op->run[list[cur->idx]];

		if (cur->slice < first)
			cur->slice = (uint32_t)first;
		if (cur->slice < r->nslices && cur->slice < last)
			return true;
		cur->slice = (uint32_t)first;
		if (++cur->idx < op->info->nlist[c][d])
			continue;
		cur->idx = 0;
		cur->round++;
		cur->end = last >= op->nslices_max;
	}
	return false;
}

static bool hand_over(struct pass *p, struct team_chan *tc, int d, struct slot *s, uint32_t i)
{
	struct op *op = p->op;
	const struct step_run *r = &op->run[s->step];

	if (d == DIR_SEND)
		return chan_send(tc->chan, p->tick, operand_at(&r->src[0], i, op->round), s->len, op->tag,
				 &s->x);
	if (s->view)
		return chan_recv_view(tc->chan, p->tick, s->len, &s->x);
	return chan_recv(tc->chan, p->tick, operand_at(&r->dst, i, op->round), s->len, &s->x);
}

static bool hand_over_all(struct pass *p, int c, int d)
{
	struct op *op = p->op;
	struct team_chan *tc = &p->team->ch[c];
	struct slot_queue *q = &tc->q[d];
	struct cursor *cur = &op->cur[c][d];

	while (tc->chan && q->tail - q->head < EXEC_QUEUE && settle(op, c, d, cur)) {
		uint16_t k = op->info->list[c][d][cur->idx];
		struct slot *s = &q->slot[q->tail % EXEC_QUEUE];
		bool view = d == DIR_RECV && op->info->fused[k] >= 0;

		if (!view && !may_begin(op, k, cur->slice))
			break;
		s->x = (struct xfer){ .err = SIRCL_SUCCESS };
		s->op = op;
		s->step = k;
		s->view = view;
		s->checked = false;
		s->off = 0;
		s->len = slice_len(op, &op->run[k], cur->slice);
		if (!hand_over(p, tc, d, s, cur->slice)) {
			const struct sircl_error *why = chan_error(tc->chan);

			if (why && why->code != SIRCL_SUCCESS) {
				transfer_failed(p, tc, why->code);
				return false;
			}
			break;
		}
		q->tail++;
		cur->slice++;
		op->run[k].issued++;
		p->moved = true;
	}
	return true;
}

/*
 * Ranks that name different roots may both only send, and wait for each other's window. So where this
 * operation has received all it wants, what has arrived must belong to a later one; a message of this or an
 * earlier number tells of a call that differs.
 */
static bool strayed(struct pass *p)
{
	struct op *op = p->op;

	for (int c = 0; c < PLAN_CHANS; c++) {
		struct team_chan *tc = &p->team->ch[c];
		uint64_t tag;

		if (!tc->chan || !op->cur[c][DIR_RECV].end || tc->q[DIR_RECV].head != tc->q[DIR_RECV].tail ||
		    !chan_peek(tc->chan, &tag))
			continue;
		/* A window holds a few hundred messages, so a neighbour is never further ahead than half of
		 * the numbers. */
		if (((tag - op->number - 1) & OP_TAG_NUMBERS) < OP_TAG_NUMBERS / 2)
			continue;
		exec_mismatch(p->team, p->tick, tc, tag, op->tag);
		return true;
	}
	return false;
}

bool exec_progress(struct op *op, struct tick *tick)
{
	struct pass p = { .op = op, .team = op->team, .tick = tick, .budget = EXEC_BUDGET };

	if (!op->plan || op->left == 0)
		return false;
	/* Receives first, so that what arrives meanwhile has a place; sums between receiving and sending, so
	 * that a result leaves in the pass in which it came about. */
	op->again = true; /* also where a pass ends early */
	for (int c = 0; c < PLAN_CHANS; c++)
		if (!op->cur[c][DIR_RECV].end && !hand_over_all(&p, c, DIR_RECV))
			return true;
	for (int c = 0; c < PLAN_CHANS; c++)
		if (!take_received(&p, c))
			return true;
	run_sums(&p);
	for (int c = 0; c < PLAN_CHANS; c++)
		if ((!op->cur[c][DIR_SEND].end && !hand_over_all(&p, c, DIR_SEND)) || !take_sent(&p, c))
			return true;
	op->again = p.moved;
	if (!p.moved && op->left && strayed(&p))
		return true;
	if (p.moved)
		op->last_move = tick->now;
	else if (tick->now >= op->check_at)
		limit_check(op, tick);
	return p.moved;
}
