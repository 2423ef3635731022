/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lane.h promises, asked of every provider alike. A provider that cannot keep one of these is wrong, or
 * lane.h is. What only one provider has (forks, sockets, fabrics) is in its own tests.
 */
#define HARNESS_SIM 1
#ifdef SIRCL_VERBS
#define HARNESS_VERBS 1 /* over tests/fakeverbs, which is no hardware */
#endif
#include "lane_harness.h"

static const struct lane_ops *const providers[] = {
	&lane_shm_ops,
	&lane_tcp_ops,
	&lane_sim_ops,
#ifdef SIRCL_VERBS
	&lane_verbs_ops,
#endif
};
#define N_PROVIDERS ((int)(sizeof(providers) / sizeof(providers[0])))

/* ---- a stream of checked puts: note.w = { number, offset, len, seed } ---- */
#define SLOTS 16
#define SLOT (H_ARENA / SLOTS)

struct stream {
	struct end *from, *to;
	const struct lane_export *dst;
	const uint8_t *landed; /* where the region of `dst` is at the receiver */
	uint64_t sent, got;
	uint32_t random, max_len;
	uint64_t bytes;
};

static void stream_note(struct stream *s, const struct lane_event *ev)
{
	const uint64_t *w = ev->note.w;

	ck_assert_msg(w[0] == s->got, "%s: note %llu arrived, %llu is next", s->to->pair->ops->name,
		      (unsigned long long)w[0], (unsigned long long)s->got);
	ck_assert_msg(h_filled(s->landed + w[1], w[2], (uint32_t)w[3]),
		      "%s: note %llu arrived before its %llu bytes were there", s->to->pair->ops->name,
		      (unsigned long long)w[0], (unsigned long long)w[2]);
	ck_assert_uint_eq(w[4], ~w[0]);
	ck_assert_uint_eq(w[5], 0x5a5a5a5a5a5a5a5aull);
	s->bytes += w[2];
	s->got++;
}

static void stream_hook(struct end *e, const struct lane_event *ev)
{
	struct stream *s = e->hook_arg;

	if (ev->ev == LANE_NOTE)
		stream_note(s, ev);
}

/* Sends one more if a slot is free: neither its bytes nor its source may be touched before that. */
static bool stream_send(struct stream *s)
{
	size_t slot = (s->sent % SLOTS) * SLOT;
	uint32_t len, seed = (uint32_t)s->sent + 77;
	uint64_t note[6], off;

	/* The source is free when the link at the other end has acknowledged: here, when the note was seen.
	 */
	if (s->sent - s->got >= SLOTS)
		return false;
	len = h_random(&s->random) % 4 == 0 ? h_random(&s->random) % (s->max_len + 1)
					    : h_random(&s->random) % 300;
	off = slot + h_random(&s->random) % (SLOT - len + 1);
	h_fill((uint8_t *)arena_base(s->from->send) + slot, len, seed);
	memcpy(note, (uint64_t[6]){ s->sent, off, len, seed, ~s->sent, 0x5a5a5a5a5a5a5a5aull }, sizeof(note));
	if (h_put(s->from, slot, len, s->dst, off, note) != 1)
		return false;
	s->sent++;
	return true;
}

static void stream_init(struct stream *s, struct pair *p, int from)
{
	*s = (struct stream){ .from = &p->e[from],
			      .to = &p->e[!from],
			      .dst = p->ops->peer_export(p->e[from].l),
			      .landed = arena_base(p->e[!from].arena),
			      .random = 12345u + (uint32_t)from,
			      .max_len = SLOT < p->ops->max_put ? SLOT : p->ops->max_put };
	s->to->hook = stream_hook;
	s->to->hook_arg = s;
}

static void run_stream(struct pair *p, struct stream *s, int n, uint64_t count)
{
	uint64_t until = h_tick(&p->e[0]).now + 20 * SEC;

	for (;;) {
		bool all = true;

		for (int i = 0; i < n; i++) {
			while (s[i].sent < count && stream_send(&s[i]))
				;
			all = all && s[i].got == count;
		}
		if (all)
			return;
		h_pump(p);
		ck_assert_msg(h_tick(&p->e[0]).now < until, "%s: stream stands still at %llu", p->ops->name,
			      (unsigned long long)s[0].got);
	}
}

START_TEST(test_lane_delivers_a_note_after_all_bytes_in_order_both_ways)
{
	struct pair p;
	struct stream s[2];
	uint64_t count = 2000;

	h_open(&p, providers[_i]);
	h_up(&p, 1);
	stream_init(&s[0], &p, 0);
	stream_init(&s[1], &p, 1);
	run_stream(&p, s, 2, count);
	h_settle(&p, 5);
	for (int i = 0; i < 2; i++) {
		struct lane_stats st;

		ck_assert_int_eq(h_count(&p.e[i], LANE_SUSPECT), 0);
		ck_assert_uint_le(p.e[i].done, count); /* never more than was put; the last may come late */
		/* a lossless provider has nothing to report: an accepted put is there */
		ck_assert(p.ops->lossless ? p.e[i].done == 0 : p.e[i].done > count / 2);
		p.ops->stats(p.e[i].l, &st);
		ck_assert_uint_eq(st.puts, count);
		ck_assert_uint_eq(st.notes, count);
		ck_assert_uint_eq(st.note_bytes, s[!i].bytes);
		ck_assert_uint_eq(st.put_bytes, s[i].bytes);
	}
	h_close(&p);
}
END_TEST

START_TEST(test_lane_takes_a_batch_in_order_and_notes_without_bytes)
{
	struct pair p;
	struct lane_put put[8] = { 0 };
	int done = 0, from;

	h_open(&p, providers[_i]);
	h_up(&p, 1);
	from = p.e[1].nseen;
	for (int i = 0; i < 8; i++) {
		put[i].note.w[0] = (uint64_t)i;
		if (i % 2 == 1) {
			h_fill((char *)arena_base(p.e[0].send) + i * 64, 64, (uint32_t)i);
			put[i].src = (char *)arena_base(p.e[0].send) + i * 64;
			put[i].len = 64;
			put[i].smem = &p.e[0].send_mem;
			put[i].dst = p.ops->peer_export(p.e[0].l);
			put[i].dst_off = (uint64_t)i * 64;
		}
	}
	while (done < 8) {
		struct tick t = h_tick(&p.e[0]);
		int n = p.ops->put(p.e[0].l, &t, put + done, 8 - done);

		ck_assert_int_ge(n, 0);
		ck_assert_int_le(n, 8 - done);
		done += n;
		h_pump(&p);
	}
	for (int i = 0; i < 8; i++) {
		from = h_wait(&p, 1, from, LANE_NOTE, 2000) + 1;
		ck_assert_uint_eq(p.e[1].seen[from - 1].ev.note.w[0], (uint64_t)i);
		if (i % 2 == 1)
			ck_assert(h_filled((char *)arena_base(p.e[1].arena) + i * 64, 64, (uint32_t)i));
	}
	h_close(&p);
}
END_TEST

START_TEST(test_lane_carries_the_largest_put)
{
	struct pair p;
	uint64_t note[6] = { 1 };
	uint32_t len;

	h_open(&p, providers[_i]);
	h_up(&p, 1);
	len = p.ops->max_put < H_ARENA ? p.ops->max_put : H_ARENA;
	h_fill(arena_base(p.e[1].send), len, 9);
	while (h_put(&p.e[1], 0, len, p.ops->peer_export(p.e[1].l), 0, note) == 0)
		h_pump(&p);
	h_wait(&p, 0, 0, LANE_NOTE, 5000);
	ck_assert(h_filled(arena_base(p.e[0].arena), len, 9));
	h_close(&p);
}
END_TEST

START_TEST(test_lane_exports_the_peers_arena_whole)
{
	struct pair p;

	h_open(&p, providers[_i]);
	h_up(&p, 1);
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(p.ops->peer_export(p.e[i].l)->len, H_ARENA);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_puts_into_other_registered_memory)
{
	struct pair p;
	struct lane_mem mem;
	struct lane_export export;
	struct stream s;
	uint8_t *user = aligned_alloc(64, H_ARENA);

	ck_assert_ptr_nonnull(user);
	memset(user, 0, H_ARENA);
	h_open(&p, providers[_i]);
	h_up(&p, 1);
	ck_assert_int_eq(p.ops->reg(p.e[1].l, 5, user, H_ARENA, &mem, &export), SIRCL_SUCCESS);
	stream_init(&s, &p, 0);
	s.dst = &export;
	s.landed = user;
	run_stream(&p, &s, 1, 600);
	p.ops->unreg(p.e[1].l, &mem);
	h_close(&p);
	free(user);
}
END_TEST

START_TEST(test_lane_fence_ends_everything_of_the_epoch)
{
	struct pair p;
	struct end *a, *b;
	uint8_t *before = malloc(H_ARENA);
	uint64_t note[6] = { 0 };
	int fenced, accepted = 0;

	ck_assert_ptr_nonnull(before);
	h_open(&p, providers[_i]);
	h_up(&p, 1);
	a = &p.e[0];
	b = &p.e[1];
	h_fill(arena_base(a->send), H_ARENA, 3);
	for (int i = 0; i < 40; i++) { /* in flight when the fence is called */
		note[0] = (uint64_t)i;
		accepted +=
			h_put(a, (size_t)i * 4096, 4096, p.ops->peer_export(a->l), (uint64_t)i * 4096, note);
	}
	ck_assert_int_gt(accepted, 0);
	p.ops->fence(b->l, 1);
	fenced = h_wait(&p, 1, 0, LANE_FENCED, 3000);
	ck_assert_uint_eq(b->seen[fenced].ev.epoch, 1);
	memcpy(before, arena_base(b->arena), H_ARENA);
	for (int i = 0; i < 40; i++) { /* whatever the other end does now, nothing lands */
		note[0] = 1000 + (uint64_t)i;
		h_put(a, (size_t)i * 64, 4096, p.ops->peer_export(a->l), 65536 + (uint64_t)i * 4096, note);
		h_pump(&p);
	}
	h_settle(&p, 20);
	ck_assert_int_eq(memcmp(before, arena_base(b->arena), H_ARENA), 0);
	ck_assert_msg(h_find(b, fenced + 1, LANE_NOTE) < 0, "%s: a note after LANE_FENCED", p.ops->name);
	ck_assert_int_eq(h_count(b, LANE_FENCED), 1);
	for (int i = 0, n = 0; i < b->nseen; i++) { /* what was delivered is a prefix */
		if (b->seen[i].ev.ev != LANE_NOTE)
			continue;
		ck_assert_uint_eq(b->seen[i].ev.note.w[0], (uint64_t)n);
		if (b->pair->ops->lossless)
			ck_assert(h_filled((char *)arena_base(b->arena) + n * 4096, 0, 0));
		n++;
	}
	if (p.ops->lossless)
		ck_assert_int_eq(h_count(b, LANE_NOTE), accepted);
	free(before);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_takes_no_put_before_up_and_after_fence)
{
	struct pair p;
	uint64_t note[6] = { 0 };
	struct lane_export dst;

	h_open(&p, providers[_i]);
	ck_assert_int_eq(h_put(&p.e[0], 0, 0, NULL, 0, note), 0);
	h_up(&p, 1);
	dst = *p.ops->peer_export(p.e[0].l);
	ck_assert_int_eq(h_put(&p.e[0], 0, 8, &dst, 0, note), 1);
	p.ops->fence(p.e[0].l, 1);
	ck_assert_int_eq(h_put(&p.e[0], 0, 8, &dst, 0, note), 0);
	h_wait(&p, 0, 0, LANE_FENCED, 3000);
	ck_assert_int_eq(h_put(&p.e[0], 0, 8, &dst, 0, note), 0);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_comes_up_again_in_a_newer_epoch_only)
{
	struct pair p;
	struct stream s;
	struct tick t;
	int from;

	h_open(&p, providers[_i]);
	h_up(&p, 1);
	for (int i = 0; i < 2; i++)
		p.ops->fence(p.e[i].l, 1);
	for (int i = 0; i < 2; i++)
		h_wait(&p, i, 0, LANE_FENCED, 3000);
	/* an older epoch than the accepting end allows */
	p.ops->allow(p.e[1].l, 3);
	t = h_tick(&p.e[0]);
	from = p.e[0].nseen;
	ck_assert_int_eq(p.ops->connect(p.e[0].l, &t, &p.e[1].addr, 2), SIRCL_SUCCESS);
	from = h_wait(&p, 0, from, LANE_DOWN, 2500);
	ck_assert_uint_eq(p.e[0].seen[from].ev.epoch, 2);
	ck_assert_int_eq(h_count(&p.e[1], LANE_UP), 1);
	h_up(&p, 3);
	stream_init(&s, &p, 0);
	run_stream(&p, &s, 1, 100);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_cancels_a_half_open_epoch)
{
	struct pair p;
	struct tick t;

	h_open(&p, providers[_i]);
	t = h_tick(&p.e[0]);
	ck_assert_int_eq(p.ops->connect(p.e[0].l, &t, &p.e[1].addr, 1), SIRCL_SUCCESS);
	t = h_tick(&p.e[0]);
	h_poll(&p.e[0], &t); /* half-open: the other end has not allowed anything */
	p.ops->allow(p.e[0].l, 2);
	p.ops->allow(p.e[1].l, 1);
	h_settle(&p, 20);
	ck_assert_int_eq(h_count(&p.e[0], LANE_UP), 0);
	h_up(&p, 2);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_suspects_when_the_peer_closes)
{
	struct pair p;
	uint64_t note[6] = { 4 };
	int at;

	h_open(&p, providers[_i]);
	if (h_is_sim(&p)) { /* closing is no event of the simulated fabric: sim_kill is */
		h_close(&p);
		return;
	}
	h_up(&p, 1);
	ck_assert_int_eq(h_put(&p.e[1], 0, 16, p.ops->peer_export(p.e[1].l), 0, note), 1);
	h_settle(&p, 5);
	p.ops->close(p.e[1].l);
	p.e[1].l = NULL;
	at = h_wait(&p, 0, 0, LANE_SUSPECT, 1000);
	ck_assert_uint_eq(p.e[0].seen[at].ev.epoch, 1);
	ck_assert_int_ne(p.e[0].seen[at].why[0], '\0');
	ck_assert(p.e[0].seen[at].ev.gone);
	ck_assert_int_eq(h_count(&p.e[0], LANE_NOTE), 1);
	p.ops->fence(p.e[0].l, 1);
	h_wait(&p, 0, at, LANE_FENCED, 1000);
	h_settle(&p, 5);
	ck_assert_int_eq(h_count(&p.e[0], LANE_SUSPECT), 1);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_connecting_to_nobody_is_down_in_time)
{
	struct pair p;
	struct tick t;
	int at;

	h_open(&p, providers[_i]);
	if (h_is_sim(&p)) {
		h_close(&p);
		return;
	}
	p.ops->close(p.e[1].l);
	p.e[1].l = NULL;
	t = h_tick(&p.e[0]);
	ck_assert_int_eq(p.ops->connect(p.e[0].l, &t, &p.e[1].addr, 1), SIRCL_SUCCESS);
	at = h_wait(&p, 0, 0, LANE_DOWN, 2500);
	ck_assert_uint_eq(p.e[0].seen[at].ev.epoch, 1);
	ck_assert_int_ne(p.e[0].seen[at].why[0], '\0');
	ck_assert(p.e[0].seen[at].ev.gone);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_silent_peer_is_down_in_two_seconds)
{
	struct pair p;
	struct tick t;
	int at;

	h_open(&p, providers[_i]);
	/* It listens, but allows nothing. */
	t = h_tick(&p.e[0]);
	ck_assert_int_eq(p.ops->connect(p.e[0].l, &t, &p.e[1].addr, 1), SIRCL_SUCCESS);
	at = h_wait(&p, 0, 0, LANE_DOWN, 2500);
	ck_assert_int_eq(h_count(&p.e[0], LANE_UP), 0);
	ck_assert(!p.e[0].seen[at].ev.gone || p.ops != &lane_shm_ops);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_refuses_a_wrong_key)
{
	struct pair p;
	struct tick t;

	h_open(&p, providers[_i]);
	key_ring_wipe(&p.e[0].keys);
	ck_assert_int_eq(key_ring_init(&p.e[0].keys), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&p.e[0].keys, KEY_UNIQUE_ID, "another secret!!!", 17), SIRCL_SUCCESS);
	p.ops->allow(p.e[1].l, 1);
	t = h_tick(&p.e[0]);
	ck_assert_int_eq(p.ops->connect(p.e[0].l, &t, &p.e[1].addr, 1), SIRCL_SUCCESS);
	h_wait(&p, 0, 0, LANE_DOWN, 2500);
	h_settle(&p, 10);
	ck_assert_int_eq(h_count(&p.e[0], LANE_UP), 0);
	ck_assert_int_eq(h_count(&p.e[1], LANE_UP), 0);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_suspects_when_the_peer_wants_a_newer_epoch)
{
	struct pair p;
	struct tick t;
	int at;

	h_open(&p, providers[_i]);
	h_up(&p, 1);
	/* The connecting end alone fences and comes back: the other must notice, whichever way. */
	p.ops->fence(p.e[0].l, 1);
	for (int i = 0; i < 200 && h_count(&p.e[0], LANE_FENCED) == 0; i++) {
		h_pump(&p);
		if (!h_is_sim(&p))
			usleep(1000);
	}
	if (h_count(&p.e[0], LANE_FENCED) == 0)
		ck_abort_msg("%s: fence at one end is not complete", p.ops->name);
	t = h_tick(&p.e[0]);
	ck_assert_int_eq(p.ops->connect(p.e[0].l, &t, &p.e[1].addr, 2), SIRCL_SUCCESS);
	at = h_wait(&p, 1, 0, LANE_SUSPECT, 2500);
	ck_assert_uint_eq(p.e[1].seen[at].ev.epoch, 1);
	h_settle(&p, 10); /* the new connection is made, and waits */
	p.ops->fence(p.e[1].l, 1);
	h_wait(&p, 1, at, LANE_FENCED, 2500);
	h_settle(&p, 30);
	ck_assert_int_eq(h_count(&p.e[1], LANE_UP), 1); /* it takes allow() to come up again */
	p.ops->allow(p.e[0].l, 3);
	h_up(&p, 3);
	h_close(&p);
}
END_TEST

START_TEST(test_lane_arm_wakes_for_each_note)
{
	struct pair p;
	uint64_t note[6] = { 0 };

	h_open(&p, providers[_i]);
	if (h_is_sim(&p)) { /* virtual time has no descriptors */
		h_close(&p);
		return;
	}
	h_up(&p, 1);
	h_settle(&p, 5);
	for (int i = 0; i < 50; i++) {
		struct pollfd fds[16];
		int n, before = h_count(&p.e[1], LANE_NOTE);
		struct tick t;

		while ((n = p.ops->arm(p.e[1].l, fds, 16)) < 0) { /* something to report first */
			t = h_tick(&p.e[1]);
			h_poll(&p.e[1], &t);
		}
		ck_assert_int_ge(n, 1);
		if (poll(fds, (nfds_t)n, 0) == 0) { /* asleep */
			note[0] = (uint64_t)i;
			ck_assert_int_eq(h_put(&p.e[0], 0, 32, p.ops->peer_export(p.e[0].l), 0, note), 1);
			ck_assert_int_eq(poll(fds, (nfds_t)n, 2000) > 0, 1);
			for (int k = 0; k < 1000 && h_count(&p.e[1], LANE_NOTE) == before; k++)
				h_pump(&p);
			ck_assert_int_eq(h_count(&p.e[1], LANE_NOTE), before + 1);
		}
		h_pump(&p);
	}
	ck_assert_int_gt(h_count(&p.e[1], LANE_NOTE), 40);
	h_close(&p);
}
END_TEST

/* What came after the last poll and before arm() woke nobody: arm() must see it itself. */
START_TEST(test_lane_arm_sees_what_came_before_it)
{
	struct pair p;
	uint64_t note[6] = { 0 };

	h_open(&p, providers[_i]);
	if (h_is_sim(&p)) {
		h_close(&p);
		return;
	}
	h_up(&p, 1);
	for (int i = 0; i < 20; i++) {
		struct pollfd fds[16];
		int n, before;

		h_settle(&p, 2);
		before = h_count(&p.e[1], LANE_NOTE);
		ck_assert_int_eq(h_put(&p.e[0], 0, 32, p.ops->peer_export(p.e[0].l), 0, note), 1);
		n = p.ops->arm(p.e[1].l, fds, 16);
		if (n >= 0)
			ck_assert_int_gt(poll(fds, (nfds_t)n, 2000), 0);
		for (int k = 0; k < 1000 && h_count(&p.e[1], LANE_NOTE) == before; k++)
			h_pump(&p);
		ck_assert_int_eq(h_count(&p.e[1], LANE_NOTE), before + 1);
	}
	h_close(&p);
}
END_TEST

START_TEST(test_lane_never_writes_outside_the_region)
{
	struct pair p;
	uint64_t note[6] = { 0 };
	static const uint64_t offs[] = { H_ARENA, H_ARENA - 8, UINT64_MAX - 64, 1ull << 63 };

	if (strcmp(providers[_i]->name, "sim") == 0) /* the simulator aborts: it is the link's defect */
		return;
	for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
		struct lane_export lie; /* a sender that goes beyond what was exported is a defect; this one
					   does not know */
		int accepted;

		h_open(&p, providers[_i]);
		h_up(&p, 1);
		h_fill(arena_base(p.e[0].send), 64, 200);
		lie = *p.ops->peer_export(p.e[0].l);
		lie.len = UINT64_MAX;
		accepted = h_put(&p.e[0], 0, 64, &lie, offs[i], note);
		ck_assert_msg(h_suspected(&p), "%s: nobody minds a put outside (accepted %d)", p.ops->name,
			      accepted);
		h_settle(&p, 5);
		ck_assert_int_eq(h_count(&p.e[1], LANE_NOTE), 0);
		for (size_t k = 0; k < H_ARENA; k += 8)
			ck_assert_uint_eq(*(uint64_t *)(void *)((char *)arena_base(p.e[1].arena) + k), 0);
		h_close(&p);
	}
}
END_TEST

static void tell_violation(void *arg, const char *sentence)
{
	snprintf(arg, 200, "%s", sentence);
}

/* A peer that guesses what an export would look like: of memory that puts are sent from, as every link has
 * it. */
START_TEST(test_lane_region_without_an_export_cannot_be_written)
{
	struct pair p;
	struct lane_export guess;
	uint64_t note[6] = { 0 };
	const uint8_t *at;
	char violation[200] = "";

	h_open(&p, providers[_i]);
	if (p.sim) /* there it is a defect of the link, and the end of the run */
		sim_on_violation(p.sim, tell_violation, violation);
	h_up(&p, 1);
	at = arena_base(p.e[1].send);
	guess = (struct lane_export){ .addr = (uintptr_t)at, .len = H_ARENA, .key = p.e[1].send_mem.id };
	h_fill(arena_base(p.e[0].send), 600, 200);
	ck_assert_int_eq(h_put(&p.e[0], 0, 600, &guess, 64, note), 1);
	if (!p.sim)
		ck_assert_msg(h_suspected(&p), "%s: nobody minds a put into memory that was not exported",
			      p.ops->name);
	h_settle(&p, 5);
	if (p.sim)
		ck_assert_ptr_nonnull(strstr(violation, "not exported"));
	else
		ck_assert_int_eq(h_count(&p.e[1], LANE_NOTE), 0);
	for (size_t k = 0; k < H_ARENA; k++)
		if (at[k])
			ck_abort_msg("%s: byte %zu was written", p.ops->name, k);
	h_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane conformance");
	TCase *c = tcase_create("promises");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 10);
#define EACH(test) tcase_add_loop_test(c, test, 0, N_PROVIDERS)
	EACH(test_lane_delivers_a_note_after_all_bytes_in_order_both_ways);
	EACH(test_lane_takes_a_batch_in_order_and_notes_without_bytes);
	EACH(test_lane_carries_the_largest_put);
	EACH(test_lane_exports_the_peers_arena_whole);
	EACH(test_lane_puts_into_other_registered_memory);
	EACH(test_lane_fence_ends_everything_of_the_epoch);
	EACH(test_lane_takes_no_put_before_up_and_after_fence);
	EACH(test_lane_comes_up_again_in_a_newer_epoch_only);
	EACH(test_lane_cancels_a_half_open_epoch);
	EACH(test_lane_suspects_when_the_peer_closes);
	EACH(test_lane_connecting_to_nobody_is_down_in_time);
	EACH(test_lane_silent_peer_is_down_in_two_seconds);
	EACH(test_lane_refuses_a_wrong_key);
	EACH(test_lane_suspects_when_the_peer_wants_a_newer_epoch);
	EACH(test_lane_arm_wakes_for_each_note);
	EACH(test_lane_arm_sees_what_came_before_it);
	EACH(test_lane_never_writes_outside_the_region);
	EACH(test_lane_region_without_an_export_cannot_be_written);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? 0 : 1;
}
