/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the peer's software is alive, for those who wait for it. It is heard by heartbeats where lanes have
 * them; where they have none (shm) each look asks for an answer, which the peer's link gives whatever its
 * application does. Looks are counted as well as time, so that a stop of this process itself, in which nobody
 * could hear anything, is not taken for the peer's silence.
 */
#include "link/link.h"

void link_look(struct link *l, struct tick *t, struct link_watch *w)
{
	struct link_stats st;
	uint64_t notes = 0, frames;

	link_stats(l, &st);
	for (int i = 0; i < st.lanes && i < LANES_MAX; i++)
		notes += st.lane[i].notes;
	frames = st.frames_sent + st.frames_received;
	if (!w->begun || notes != w->notes) {
		w->heard_at = t->now;
		w->deaf = 0;
	} else {
		w->deaf++;
	}
	if (!w->begun || frames != w->frames || link_idle(l)) {
		w->moved_at = t->now;
		w->stuck = 0;
	} else {
		w->stuck++;
	}
	w->notes = notes;
	w->frames = frames;
	w->begun = true;
	link_probe(l, t);
}

bool link_is_deaf(const struct link_watch *w, uint64_t now, uint64_t lasting)
{
	return w->begun && w->deaf >= LINK_LOOKS && now - w->heard_at >= lasting;
}

bool link_is_stuck(const struct link_watch *w, uint64_t now, uint64_t lasting)
{
	return w->begun && w->stuck >= LINK_LOOKS && now - w->moved_at >= lasting;
}
