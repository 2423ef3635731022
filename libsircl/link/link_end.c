/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a link ends. In peace: each end says BYE, the last sequenced frame, when it has nothing left; closed
 * when both have and both know. In war: it dies of a time limit, of the peer's process, or by link_kill; then
 * every lane is fenced first, and only after the last fence the channel layer hears of it, so that no put can
 * land in memory that was returned to the user with an error.
 */
#include <stdarg.h>
#include <stdio.h>
#include "link/link_internal.h"

const char *side_name(const struct link *l)
{
	return l->cfg.side == LINK_NEXT ? "NEXT" : "PREV";
}

/* Stops everything; the error is told when the last lane is fenced. */
static void begin(struct link *l, struct tick *t, sircl_result_t code, const char *reason)
{
	l->error.code = code;
	snprintf(l->error.msg, sizeof(l->error.msg), "rank %u: link %s to rank %u (cable %u): %s",
		 l->cfg.self_rank, side_name(l), l->cfg.peer_rank, l->cfg.cable, reason);
	l->dying = l->busy = true;
	for (int i = 0; i < l->nlanes; i++) {
		struct link_lane *ln = &l->lane[i];

		if (ln->phase == LL_UP) {
			snprintf(ln->why, sizeof(ln->why), "up until then");
			lane_suspect(l, i, t, ln->why);
			continue;
		}
		/* nothing may come up any more; a handshake of ours is given up */
		ln->ops->allow(ln->lane, UINT32_MAX);
		if (ln->phase == LL_TRYING)
			ln->phase = LL_DOWN;
	}
	timer_at(l, t->now);
}

void link_die(struct link *l, struct tick *t, sircl_result_t code, const char *fmt, ...)
{
	char reason[ERROR_MSG_MAX];
	va_list ap;

	if (l->dying || l->dead)
		return;
	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	begin(l, t, code, reason);
}

void link_kill(struct link *l, struct tick *t, const struct sircl_error *why)
{
	if (l->dying || l->dead)
		return;
	begin(l, t, why->code, why->msg);
}

/* Appends what is known of each lane. */
static void name_lanes(struct link *l)
{
	size_t n = strlen(l->error.msg);

	for (int i = 0; i < l->nlanes && n < sizeof(l->error.msg) - 1; i++) {
		const struct link_lane *ln = &l->lane[i];

		n += (size_t)snprintf(l->error.msg + n, sizeof(l->error.msg) - n,
				      "%slane %d %s %s epoch %u: %s", i ? "; " : " [", i, ln->ops->name,
				      ln->dev, ln->epoch, ln->why);
	}
	if (n < sizeof(l->error.msg) - 1)
		snprintf(l->error.msg + n, sizeof(l->error.msg) - n, "]");
}

static void finish(struct link *l)
{
	for (int i = 0; i < l->nlanes; i++)
		if (l->lane[i].phase == LL_UP || l->lane[i].phase == LL_SUSP || l->lane[i].late_fence) {
			l->busy = true;
			return;
		}
	l->dead = true;
	name_lanes(l);
	log_info(&l->ctx->log, LOG_LINK, "%s", l->error.msg);
	if (l->cfg.ops->dead)
		l->cfg.ops->dead(l->cfg.user, l);
}

void end_pump(struct link *l, struct tick *t)
{
	if (l->dying) {
		finish(l);
		return;
	}
	if (!l->bye_wanted || l->bye_sent || l->left)
		return;
	if (l->una == l->next && !l->owe_regions) {
		struct link_frame f = { .kind = LINK_KIND_BYE };

		l->bye_sent = put_control(l, t, &f);
	}
	if (!l->bye_sent)
		l->busy = true;
}

void link_bye(struct link *l, struct tick *t)
{
	if (l->bye_wanted)
		return;
	l->bye_wanted = l->busy = true;
	end_pump(l, t);
	timer_at(l, t->now);
}

bool link_closed(const struct link *l)
{
	return (l->left && l->bye_wanted) || (l->bye_sent && l->peer_bye && l->una == l->next && !l->rx_news);
}

bool link_bye_taken(const struct link *l)
{
	return (l->left && l->bye_wanted) || (l->bye_sent && l->una == l->next);
}
