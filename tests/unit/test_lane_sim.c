// SPDX-License-Identifier: Apache-2.0
/* The simulated lane: what it promises, and that it is as nasty as it may be. */
#include "sim_pair.h"

/* Where the notes of an end are numbered 0, 1, 2, ...: how many; -1 if out of order. */
static int notes_in_order(const struct pair_end *e)
{
	uint64_t next = 0;

	for (int i = 0; i < e->nlog; i++)
		if (e->log[i].ev == LANE_NOTE && e->log[i].note.w[0] != next++)
			return -1;
	return (int)next;
}

START_TEST(test_sim_notes_come_in_order_after_all_their_bytes)
{
	struct pair *p = pair_up(&sim_hostile, (uint64_t)_i, 2);
	uint64_t off[2] = { 0, 0 };

	for (int k = 0; k < 150; k++) {
		int l = (int)sim_random(p->sim, 2), i = (int)sim_random(p->sim, 2);
		uint32_t len = (uint32_t)sim_random(p->sim, 3000);

		pair_put(&p->end[i][l], off[l], len, 1);
		off[l] += len;
		if (k % 5 == 0)
			pair_for(p, 3000);
	}
	pair_for(p, 10 * MSEC);
	for (int i = 0; i < 2; i++)
		sim_wake(p->sim, p->node[i]); /* LANE_DONE wakes nobody */
	pair_for(p, MSEC);
	for (int l = 0; l < 2; l++)
		for (int i = 0; i < 2; i++) {
			ck_assert_int_eq(notes_in_order(&p->end[i][l]), (int)p->end[!i][l].posted);
			ck_assert_uint_eq(p->end[i][l].torn, 0);
			ck_assert_uint_eq(p->end[i][l].done, p->end[i][l].posted);
		}
	ck_assert_uint_eq(sim_in_flight(p->sim), 0);
	pair_free(p);
}
END_TEST

/* Bytes of a put are seen before its note on some seeds: else "pieces" would be empty words. */
START_TEST(test_sim_bytes_land_in_pieces)
{
	int partly = 0;

	for (uint64_t seed = 1; seed < 60; seed++) {
		struct pair *p = pair_up(&sim_hostile, seed, 1);
		struct pair_end *rx = &p->end[1][0];

		pair_put(&p->end[0][0], 0, 4000, 1);
		while (!pair_count(rx, LANE_NOTE)) {
			uint64_t there = 0;

			pair_for(p, 500);
			for (uint32_t b = 0; b < 4000; b++)
				there += rx->arena[b] == pair_byte(1, 0, b);
			if (!pair_count(rx, LANE_NOTE) && there > 400 && there < 3600)
				partly++;
		}
		pair_free(p);
	}
	ck_assert_int_gt(partly, 20);
}
END_TEST

START_TEST(test_sim_lanes_are_unordered)
{
	int swapped = 0;

	for (uint64_t seed = 1; seed < 60; seed++) {
		struct pair *p = pair_up(&sim_hostile, seed, 2);

		pair_put(&p->end[0][0], 0, 100, 1);
		pair_put(&p->end[0][1], 0, 100, 1);
		pair_for(p, MSEC);
		swapped +=
			p->end[1][1].when[p->end[1][1].nlog - 1] < p->end[1][0].when[p->end[1][0].nlog - 1];
		pair_free(p);
	}
	ck_assert_int_gt(swapped, 10);
	ck_assert_int_lt(swapped, 50);
}
END_TEST

/* After a death bytes may still land; after LANE_FENCED none; notes are a prefix and complete. */
START_TEST(test_sim_puts_of_a_dead_lane_land_late_until_fenced)
{
	int late = 0, late_notes = 0, lost = 0, torn = 0;

	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct pair *p = pair_up(&sim_hostile, seed, 1);
		struct pair_end *rx = &p->end[1][0];
		int notes;
		uint8_t *copy = malloc(PAIR_ARENA);

		for (int k = 0; k < 20; k++)
			pair_put(&p->end[0][0], (uint64_t)k * 4096, 4000, 1);
		pair_for(p, seed * 100);
		sim_kill(p->sim, 0, 0, 0);
		notes = pair_count(rx, LANE_NOTE);
		pair_for(p, 40 * USEC); /* what was to land anyway has landed */
		memcpy(copy, rx->arena, PAIR_ARENA);
		pair_for(p, seed % 3 * MSEC);
		late += memcmp(copy, rx->arena, PAIR_ARENA) != 0;
		late_notes += pair_count(rx, LANE_NOTE) > notes;
		lane_sim_ops.fence(rx->lane, 1);
		while (!pair_count(rx, LANE_FENCED))
			pair_for(p, 1000);
		notes = pair_count(rx, LANE_NOTE);
		lost += notes < 20;
		for (int k = notes; k < 20; k++) /* bytes without a note, late */
			torn += memcmp(copy + k * 4096, rx->arena + k * 4096, 4000) != 0;
		ck_assert_int_eq(notes_in_order(rx), notes);
		ck_assert_uint_eq(rx->torn, 0);
		memset(rx->arena, 0xee, PAIR_ARENA);
		pair_for(p, 200 * MSEC);
		memset(copy, 0xee, PAIR_ARENA);
		ck_assert_mem_eq(copy, rx->arena, PAIR_ARENA);
		ck_assert_int_eq(pair_count(rx, LANE_NOTE), notes);
		ck_assert_int_eq(rx->log[rx->nlog - 1].ev, LANE_FENCED);
		ck_assert_uint_eq(sim_in_flight(p->sim), 0);
		free(copy);
		pair_free(p);
	}
	ck_assert_int_gt(late, 30);
	ck_assert_int_gt(late_notes, 20);
	ck_assert_int_gt(lost, 50);
	ck_assert_int_gt(torn, 100);
}
END_TEST

START_TEST(test_sim_death_is_seen_by_the_ends_that_were_named)
{
	for (unsigned seen = 0; seen < 4; seen++) {
		struct pair *p = pair_up(&sim_hostile, seen, 1);

		sim_kill(p->sim, 0, 0, seen);
		pair_for(p, 400 * MSEC);
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(pair_count(&p->end[i][0], LANE_SUSPECT), (int)(seen >> i & 1));
		/* who posts into the dead lane hears of it in the end, once */
		pair_put(&p->end[0][0], 0, 10, 1);
		pair_put(&p->end[0][0], 0, 10, 1);
		pair_for(p, SEC);
		ck_assert_int_eq(pair_count(&p->end[0][0], LANE_SUSPECT), 1);
		ck_assert_int_eq(pair_last(&p->end[0][0], LANE_SUSPECT)->gone, false);
		pair_free(p);
	}
}
END_TEST

START_TEST(test_sim_lane_comes_back_with_a_newer_epoch_only)
{
	struct pair *p = pair_up(&sim_hostile, 5, 1);
	struct pair_end *a = &p->end[0][0], *b = &p->end[1][0];
	struct tick t;

	pair_put(a, 0, 4000, 1);
	sim_kill(p->sim, 0, 0, 3);
	pair_for(p, MSEC);
	lane_sim_ops.fence(a->lane, 1);
	lane_sim_ops.fence(b->lane, 1);
	pair_for(p, 50 * MSEC);
	t = pair_now(p);
	ck_assert_int_eq(lane_sim_ops.connect(a->lane, &t, &b->addr, 1), SIRCL_INVALID_USAGE);
	pair_connect(p, 0, 2);
	pair_for(p, 100 * MSEC); /* the path is still dead */
	ck_assert_int_eq(pair_count(a, LANE_UP), 1);
	ck_assert_int_eq(pair_count(a, LANE_DOWN), 1);
	ck_assert_uint_eq(pair_last(a, LANE_DOWN)->epoch, 2);
	sim_revive(p->sim, 0, 0);
	pair_connect(p, 0, 3);
	pair_for(p, 10 * MSEC);
	ck_assert_int_eq(pair_count(a, LANE_UP), 2);
	ck_assert_int_eq(pair_count(b, LANE_UP), 2);
	ck_assert_uint_eq(pair_last(b, LANE_UP)->epoch, 3);
	a->posted = 0;
	b->nlog = 0;
	pair_put(a, 0, 4000, 9);
	pair_for(p, MSEC);
	ck_assert_int_eq(notes_in_order(b), 1);
	ck_assert_uint_eq(b->torn, 0);
	pair_free(p);
}
END_TEST

/* The accepting end takes its half-open handshake back: it never comes up, and what the other end, which is
 * up, has posted does not land. */
START_TEST(test_sim_half_open_end_can_be_taken_back)
{
	int cases = 0, touched = 0;

	for (uint64_t seed = 1; seed < 80; seed++) {
		struct pair *p = pair_make(&sim_hostile, seed, 1);
		struct pair_end *a = &p->end[0][0], *b = &p->end[1][0];

		pair_open_end(p, 0, 0, NULL, 0);
		pair_open_end(p, 1, 0, NULL, 0);
		pair_connect(p, 0, 1);
		while (!pair_count(a, LANE_UP))
			pair_for(p, 100);
		if (!pair_count(b, LANE_UP)) {
			cases++;
			pair_put(a, 0, 4000, 1);
			lane_sim_ops.allow(b->lane, 2);
			memset(b->arena, 0xee, PAIR_ARENA);
			pair_for(p, SEC);
			ck_assert_int_eq(pair_count(b, LANE_UP), 0);
			ck_assert_int_eq(pair_count(b, LANE_NOTE), 0);
			for (uint32_t k = 0; k < 4000; k++)
				touched += b->arena[k] != 0xee;
			ck_assert_int_eq(touched, 0);
			ck_assert_int_eq(pair_count(a, LANE_SUSPECT), 1); /* its put was refused */
			lane_sim_ops.fence(a->lane, 1);
			pair_for(p, 50 * MSEC);
			pair_connect(p, 0, 2);
			pair_for(p, MSEC);
			ck_assert_int_eq(pair_count(b, LANE_UP), 1);
			ck_assert_uint_eq(pair_last(b, LANE_UP)->epoch, 2);
		}
		pair_free(p);
	}
	ck_assert_int_gt(cases, 20);
}
END_TEST

START_TEST(test_sim_accepts_only_epochs_that_were_allowed)
{
	struct pair *p = pair_make(&sim_hostile, 6, 1);
	struct pair_end *a = &p->end[0][0], *b = &p->end[1][0];

	pair_open_end(p, 0, 0, NULL, 0);
	pair_open_end(p, 1, 0, NULL, 0);
	for (uint32_t epoch = 1; epoch <= 3; epoch++) {
		struct tick t = pair_now(p);

		if (epoch > 1)
			lane_sim_ops.allow(b->lane, 3);
		ck_assert_int_eq(lane_sim_ops.connect(a->lane, &t, &b->addr, epoch), SIRCL_SUCCESS);
		pair_for(p, MSEC);
		ck_assert_int_eq(pair_count(a, LANE_DOWN), epoch < 3 ? (int)epoch : 2);
		ck_assert_int_eq(pair_count(b, LANE_UP), epoch == 3);
	}
	ck_assert(!pair_last(a, LANE_DOWN)->gone);
	pair_free(p);
}
END_TEST

START_TEST(test_sim_end_hears_of_a_fence_by_its_posts_or_by_a_newer_request)
{
	struct pair *p = pair_up(&sim_hostile, 3, 2);
	struct tick t = pair_now(p);

	/* lane 0: the accepting end has fenced; the other notices when it posts */
	lane_sim_ops.fence(p->end[1][0].lane, 1);
	pair_for(p, 100 * MSEC);
	ck_assert_int_eq(pair_count(&p->end[0][0], LANE_SUSPECT), 0);
	pair_put(&p->end[0][0], 0, 100, 1);
	pair_for(p, 100 * MSEC);
	ck_assert_int_eq(pair_count(&p->end[0][0], LANE_SUSPECT), 1);
	/* lane 1: the connecting end has fenced and asks again */
	lane_sim_ops.fence(p->end[0][1].lane, 1);
	pair_for(p, 100 * MSEC);
	t = pair_now(p);
	lane_sim_ops.connect(p->end[0][1].lane, &t, &p->end[1][1].addr, 2);
	pair_for(p, MSEC);
	ck_assert_int_eq(pair_count(&p->end[1][1], LANE_SUSPECT), 1);
	ck_assert_int_eq(pair_count(&p->end[0][1], LANE_DOWN), 1);
	pair_free(p);
}
END_TEST

START_TEST(test_sim_refused_without_listener_and_gone_with_a_dead_process)
{
	struct pair *p = pair_make(&sim_hostile, 3, 1);
	struct tick t = pair_now(p);

	pair_open_end(p, 0, 0, NULL, 0);
	lane_sim_ops.connect(p->end[0][0].lane, &t, &p->end[1][0].addr, 1);
	pair_for(p, MSEC);
	ck_assert_int_eq(pair_count(&p->end[0][0], LANE_DOWN), 1);
	ck_assert(pair_last(&p->end[0][0], LANE_DOWN)->gone);
	pair_free(p);

	p = pair_up(&sim_hostile, 4, 1);
	pair_put(&p->end[1][0], 0, 4000, 1);
	sim_kill_node(p->sim, p->node[1]);
	pair_for(p, MSEC);
	ck_assert_int_eq(pair_count(&p->end[0][0], LANE_SUSPECT), 1);
	ck_assert(pair_last(&p->end[0][0], LANE_SUSPECT)->gone);
	lane_sim_ops.fence(p->end[0][0].lane, 1);
	pair_for(p, 50 * MSEC);
	t = pair_now(p);
	lane_sim_ops.connect(p->end[0][0].lane, &t, &p->end[1][0].addr, 2);
	pair_for(p, MSEC);
	ck_assert(pair_last(&p->end[0][0], LANE_DOWN)->gone);
	pair_free(p);
}
END_TEST

static bool comes_up(const struct key_ring *a, const struct key_ring *b)
{
	struct pair *p = pair_make(&sim_hostile, 3, 1);
	bool up;

	pair_open_end(p, 0, 0, a, 0);
	pair_open_end(p, 1, 0, b, 0);
	pair_connect(p, 0, 1);
	pair_for(p, 100 * MSEC);
	up = pair_count(&p->end[0][0], LANE_UP) == 1 && pair_count(&p->end[1][0], LANE_UP) == 1;
	ck_assert(up || (!pair_count(&p->end[0][0], LANE_UP) && !pair_count(&p->end[1][0], LANE_UP)));
	ck_assert(up || pair_count(&p->end[0][0], LANE_DOWN) == 1);
	pair_free(p);
	return up;
}

START_TEST(test_sim_comes_up_only_with_a_common_key)
{
	struct key_ring one, two, none = { .n = 0 };

	ck_assert_int_eq(key_ring_init(&one), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_init(&two), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&one, KEY_FILE, "one", 3), SIRCL_SUCCESS);
	ck_assert_int_eq(key_ring_add(&two, KEY_FILE, "two", 3), SIRCL_SUCCESS);
	ck_assert(comes_up(&one, &one));
	ck_assert(!comes_up(&one, &two));
	ck_assert(!comes_up(&one, &none));
	ck_assert(!comes_up(&none, &one));
	key_ring_wipe(&one);
	key_ring_wipe(&two);
}
END_TEST

START_TEST(test_sim_note_comes_twice_when_told_to)
{
	struct pair *p = pair_up(&sim_hostile, 1, 1);

	sim_dup_next(p->sim, 0, 0);
	pair_put(&p->end[0][0], 0, 100, 1);
	pair_put(&p->end[0][0], 100, 100, 1);
	pair_for(p, MSEC);
	ck_assert_int_eq(pair_count(&p->end[1][0], LANE_NOTE), 3);
	pair_free(p);
}
END_TEST

START_TEST(test_sim_frozen_process_goes_on_acknowledging)
{
	struct pair *p = pair_up(&sim_hostile, 1, 1);

	sim_freeze(p->sim, p->node[1], 300 * MSEC);
	for (int i = 0; i < 10; i++)
		pair_put(&p->end[0][0], (uint64_t)i * 100, 100, 1);
	pair_for(p, 299 * MSEC);
	sim_wake(p->sim, p->node[0]);
	pair_for(p, 100 * USEC);
	ck_assert_uint_eq(p->end[0][0].done, 10);
	ck_assert_int_eq(pair_count(&p->end[1][0], LANE_NOTE), 0);
	pair_for(p, 2 * MSEC);
	ck_assert_int_eq(pair_count(&p->end[1][0], LANE_NOTE), 10);
	pair_free(p);
}
END_TEST

START_TEST(test_sim_stalled_lane_is_late_and_loses_nothing)
{
	struct pair *p = pair_up(&sim_hostile, 1, 1);

	for (int i = 0; i < 10; i++)
		pair_put(&p->end[0][0], (uint64_t)i * 100, 100, 1);
	pair_put(&p->end[1][0], 0, 100, 1);
	sim_stall(p->sim, 0, 0, 1, 300 * MSEC);
	pair_for(p, 299 * MSEC);
	ck_assert_int_eq(pair_count(&p->end[1][0], LANE_NOTE), 0);
	ck_assert_int_eq(pair_count(&p->end[0][0], LANE_NOTE), 1);
	pair_for(p, 2 * MSEC);
	ck_assert_int_eq(notes_in_order(&p->end[1][0]), 10);
	pair_free(p);
}
END_TEST

START_TEST(test_sim_kills_at_the_put_that_was_named)
{
	struct sim_fabric calm = sim_hostile;

	calm.jitter_ns = 0;
	for (int k = 0; k < 10; k++) {
		struct pair *p = pair_up(&calm, 1, 1);

		sim_kill_at_put(p->sim, (uint64_t)k, 3);
		for (int i = 0; i < 10; i++) {
			pair_put(&p->end[0][0], (uint64_t)i * 100, 100, 1);
			pair_for(p, 10 * USEC);
		}
		pair_for(p, 50 * MSEC);
		ck_assert_int_ge(notes_in_order(&p->end[1][0]), k);
		ck_assert_int_le(notes_in_order(&p->end[1][0]), k + 1);
		ck_assert_int_eq(pair_count(&p->end[0][0], LANE_SUSPECT), 1);
		pair_free(p);
	}
}
END_TEST

/* What is in the network when the sender has fenced lands as it was then: nobody reads the source later. */
START_TEST(test_sim_source_is_free_after_the_senders_own_fence)
{
	int late = 0, wrong = 0;

	for (uint64_t seed = 1; seed < 60; seed++) {
		struct pair *p = pair_up(&sim_hostile, seed, 1);
		struct pair_end *a = &p->end[0][0], *b = &p->end[1][0];

		for (int k = 0; k < 20; k++)
			pair_put(a, (uint64_t)k * 4096, 4000, 1);
		pair_for(p, 3000);
		sim_kill(p->sim, 0, 0, 0);
		lane_sim_ops.fence(a->lane, 1);
		while (!pair_count(a, LANE_FENCED))
			pair_for(p, 500);
		lane_sim_ops.unreg(a->lane, &a->smem);
		memset(a->source, 0xee, PAIR_ARENA);
		late += sim_in_flight(p->sim) != 0;
		pair_for(p, 200 * MSEC);
		for (int k = 0; k < 20; k++)
			for (uint32_t i = 0; i < 4000; i++) {
				uint8_t v = b->arena[k * 4096 + (int)i];

				wrong += v != 0 && v != pair_byte(1, (uint64_t)k, i);
			}
		ck_assert_int_eq(wrong, 0);
		ck_assert_str_eq(p->violation, "");
		pair_free(p);
	}
	ck_assert_int_gt(late, 20);
}
END_TEST

START_TEST(test_sim_tells_of_puts_that_touch_unregistered_memory)
{
	struct pair *p = pair_up(&sim_hostile, 77, 1);
	struct lane_export beyond = { .len = 4096, .key = 5 };
	struct tick t = pair_now(p);
	struct lane_put put = {
		.src = p->end[0][0].source, .len = 100, .smem = &p->end[0][0].smem, .dst = &beyond
	};

	lane_sim_ops.put(p->end[0][0].lane, &t, &put, 1);
	pair_for(p, MSEC);
	ck_assert_ptr_nonnull(strstr(p->violation, "seed 77"));
	ck_assert_ptr_nonnull(strstr(p->violation, "region 5"));
	pair_free(p);

	p = pair_up(&sim_hostile, 78, 1);
	pair_put(&p->end[0][0], 0, 100, 1);
	lane_sim_ops.unreg(p->end[0][0].lane, &p->end[0][0].smem);
	pair_for(p, MSEC);
	ck_assert_ptr_nonnull(strstr(p->violation, "no longer registered"));
	pair_free(p);

	p = pair_make(&sim_hostile, 79, 1);
	pair_open_end(p, 0, 0, NULL, 4);
	pair_open_end(p, 1, 0, NULL, 4);
	pair_connect(p, 0, 1);
	pair_for(p, MSEC);
	p->mute = true;
	for (int i = 0; i < 4; i++)
		pair_put(&p->end[0][0], 0, 100, 1);
	pair_for(p, MSEC);
	ck_assert_str_eq(p->violation, "");
	pair_put(&p->end[0][0], 0, 100, 1);
	ck_assert_ptr_nonnull(strstr(p->violation, "4 promised"));
	pair_free(p);
}
END_TEST

static uint64_t trace_of(uint64_t seed)
{
	struct pair *p = pair_up(&sim_hostile, seed, 2);
	uint64_t h;

	sim_plan_faults(p->sim, (1u << FAULT_KINDS) - 1, 6, sim_now(p->sim), sim_now(p->sim) + 2 * MSEC);
	for (int k = 0; k < 200; k++) {
		pair_put(&p->end[k & 1][k >> 1 & 1], (uint64_t)k * 1000, 900, 1);
		pair_for(p, 10 * USEC);
	}
	pair_for(p, SEC);
	h = sim_trace(p->sim);
	pair_free(p);
	return h;
}

START_TEST(test_sim_the_same_seed_replays_event_by_event)
{
	for (uint64_t seed = 1; seed < 20; seed++) {
		ck_assert_uint_eq(trace_of(seed), trace_of(seed));
		ck_assert_uint_ne(trace_of(seed), trace_of(seed + 1));
	}
}
END_TEST

/* Random faults: whatever dies for good has a living sister. */
START_TEST(test_sim_random_faults_leave_a_path)
{
	uint64_t struck = 0;

	for (uint64_t seed = 1; seed < 100; seed++) {
		struct pair *p = pair_up(&sim_hostile, seed, 1 + (int)(seed % 3));
		struct sim_fault_count c[FAULT_KINDS];
		uint64_t now = sim_now(p->sim);
		bool path = false;

		sim_plan_faults(p->sim, 1u << FAULT_KILL | (unsigned)(seed & 1) << FAULT_REVIVE, 20, now,
				now + 10 * MSEC);
		for (int k = 0; k < 500; k++) {
			pair_put(&p->end[0][k % p->lanes], 0, 64, 1);
			pair_for(p, 20 * USEC);
		}
		pair_for(p, 2 * SEC);
		for (int l = 0; l < p->lanes; l++) {
			struct tick t;

			lane_sim_ops.fence(p->end[0][l].lane, 1);
			lane_sim_ops.fence(p->end[1][l].lane, 1);
			pair_for(p, 50 * MSEC);
			t = pair_now(p);
			lane_sim_ops.allow(p->end[1][l].lane, 2);
			lane_sim_ops.connect(p->end[0][l].lane, &t, &p->end[1][l].addr, 2);
			pair_for(p, 30 * MSEC);
			path = path || pair_count(&p->end[0][l], LANE_UP) == 2;
		}
		ck_assert(path);
		sim_fault_counts(p->sim, c);
		struck += c[FAULT_KILL].struck;
		pair_free(p);
	}
	ck_assert_uint_gt(struck, 30);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane_sim");
	TCase *c = tcase_create("promises");
	SRunner *run;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_sim_notes_come_in_order_after_all_their_bytes, 0, 30);
	tcase_add_test(c, test_sim_bytes_land_in_pieces);
	tcase_add_test(c, test_sim_lanes_are_unordered);
	tcase_add_test(c, test_sim_puts_of_a_dead_lane_land_late_until_fenced);
	tcase_add_test(c, test_sim_death_is_seen_by_the_ends_that_were_named);
	tcase_add_test(c, test_sim_lane_comes_back_with_a_newer_epoch_only);
	tcase_add_test(c, test_sim_half_open_end_can_be_taken_back);
	tcase_add_test(c, test_sim_accepts_only_epochs_that_were_allowed);
	tcase_add_test(c, test_sim_end_hears_of_a_fence_by_its_posts_or_by_a_newer_request);
	tcase_add_test(c, test_sim_refused_without_listener_and_gone_with_a_dead_process);
	tcase_add_test(c, test_sim_comes_up_only_with_a_common_key);
	tcase_add_test(c, test_sim_note_comes_twice_when_told_to);
	tcase_add_test(c, test_sim_frozen_process_goes_on_acknowledging);
	tcase_add_test(c, test_sim_stalled_lane_is_late_and_loses_nothing);
	tcase_add_test(c, test_sim_kills_at_the_put_that_was_named);
	tcase_add_test(c, test_sim_source_is_free_after_the_senders_own_fence);
	tcase_add_test(c, test_sim_tells_of_puts_that_touch_unregistered_memory);
	tcase_add_test(c, test_sim_the_same_seed_replays_event_by_event);
	tcase_add_test(c, test_sim_random_faults_leave_a_path);
	suite_add_tcase(s, c);
	run = srunner_create(s);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
