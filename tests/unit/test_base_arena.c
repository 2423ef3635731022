/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: alignment, first fit, no overlap, coalescing, and what a peer that holds the file cannot do. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/arena.h"

static struct arena *make(size_t bytes)
{
	struct arena *a;

	ck_assert_int_eq(arena_create(&a, "sircl-test", bytes), SIRCL_SUCCESS);
	return a;
}

START_TEST(test_arena_is_zeroed_rounded_to_pages_and_page_aligned)
{
	const size_t page = page_size();
	struct arena *a = make(page + 1);
	struct stat st;

	ck_assert_uint_eq(page, (size_t)getpagesize());
	ck_assert_uint_eq(arena_size(a), 2 * page);
	ck_assert_uint_eq((uintptr_t)arena_base(a) % page, 0);
	for (size_t i = 0; i < arena_size(a); i++)
		ck_assert_uint_eq(((unsigned char *)arena_base(a))[i], 0);
	ck_assert_int_eq(fstat(arena_fd(a), &st), 0);
	ck_assert_uint_eq((size_t)st.st_size, 2 * page);
	ck_assert_uint_eq(arena_used(a), 0);
	arena_destroy(a);
	arena_destroy(NULL);
}
END_TEST

START_TEST(test_arena_name_shows_in_maps)
{
	struct arena *a = make(1);
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int found = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) != NULL)
		found += strstr(line, "/memfd:sircl-test") != NULL;
	fclose(f);
	ck_assert_int_ge(found, 1);
	arena_destroy(a);
}
END_TEST

START_TEST(test_arena_refuses_absurd_sizes)
{
	struct arena *a = (void *)1;

	ck_assert_int_eq(arena_create(&a, "x", 0), SIRCL_INVALID_ARGUMENT);
	ck_assert_ptr_null(a);
	ck_assert_int_eq(arena_create(&a, "x", SIZE_MAX), SIRCL_INVALID_ARGUMENT);
	ck_assert_int_ne(arena_create(&a, "x", (size_t)1 << 62), SIRCL_SUCCESS);
	ck_assert_ptr_null(a);
	ck_assert_str_ne(error_last()->msg, "");
}
END_TEST

START_TEST(test_arena_alloc_takes_first_fit_aligned_to_64)
{
	struct arena *a = make(page_size());
	size_t x = arena_alloc(a, 1), y = arena_alloc(a, 65), z = arena_alloc(a, 64);

	ck_assert_uint_eq(x, 0);
	ck_assert_uint_eq(y, 64);
	ck_assert_uint_eq(z, 192);
	ck_assert_uint_eq(arena_used(a), 256);
	arena_free(a, y);
	ck_assert_uint_eq(arena_alloc(a, 129), 256); /* the gap is too small */
	ck_assert_uint_eq(arena_alloc(a, 128), 64); /* and here it fits */
	ck_assert_uint_eq(arena_alloc(a, page_size()), SIZE_MAX);
	ck_assert_uint_eq(arena_alloc(a, SIZE_MAX), SIZE_MAX);
	arena_destroy(a);
}
END_TEST

START_TEST(test_arena_freed_neighbours_become_one_again)
{
	/* every order of freeing three blocks gives the whole arena back */
	static const int order[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					 { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

	for (int k = 0; k < 6; k++) {
		struct arena *a = make(page_size());
		const size_t size = arena_size(a);
		size_t off[3] = { arena_alloc(a, 64), arena_alloc(a, 640), 0 };

		off[2] = arena_alloc(a, size - 704);
		ck_assert_uint_eq(off[2], 704);
		ck_assert_uint_eq(arena_used(a), size);
		ck_assert_uint_eq(arena_alloc(a, 1), SIZE_MAX);
		for (int i = 0; i < 3; i++)
			arena_free(a, off[order[k][i]]);
		ck_assert_uint_eq(arena_used(a), 0);
		ck_assert_uint_eq(arena_alloc(a, size), 0);
		arena_destroy(a);
	}
}
END_TEST

START_TEST(test_arena_random_use_never_overlaps)
{
	enum { N = 200, SIZE = 1 << 20 };
	struct arena *a = make(SIZE);
	unsigned char *owner = calloc(1, SIZE / 64);
	struct {
		size_t off, len;
	} live[N] = { 0 };
	unsigned seed = 1;
	size_t used = 0;

	for (int step = 0; step < 20000; step++) {
		const int i = rand_r(&seed) % N;

		if (live[i].len != 0) {
			memset(owner + live[i].off / 64, 0, live[i].len);
			used -= live[i].len * 64;
			arena_free(a, live[i].off);
			live[i].len = 0;
		} else {
			const size_t bytes = 1 + (size_t)rand_r(&seed) % 20000;
			const size_t off = arena_alloc(a, bytes);

			if (off == SIZE_MAX)
				continue;
			live[i].off = off;
			live[i].len = (bytes + 63) / 64;
			used += live[i].len * 64;
			ck_assert_uint_eq(off % 64, 0);
			ck_assert_uint_le(off + bytes, arena_size(a));
			for (size_t b = 0; b < live[i].len; b++) {
				if (owner[off / 64 + b] != 0)
					ck_abort_msg("block %zu is given out twice", off / 64 + b);
				owner[off / 64 + b] = 1;
			}
		}
		ck_assert_uint_eq(arena_used(a), used);
	}
	for (int i = 0; i < N; i++)
		if (live[i].len != 0)
			arena_free(a, live[i].off);
	ck_assert_uint_eq(arena_alloc(a, SIZE), 0);
	free(owner);
	arena_destroy(a);
}
END_TEST

START_TEST(test_arena_file_cannot_be_shrunk_by_a_peer)
{
	struct arena *a = make(1 << 16);

	ck_assert_int_eq(ftruncate(arena_fd(a), 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fcntl(arena_fd(a), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	arena_destroy(a);
}
END_TEST

START_TEST(test_arena_memory_is_the_file)
{
	struct arena *a = make(1 << 16);
	char *peer = mmap(NULL, arena_size(a), PROT_READ, MAP_SHARED, arena_fd(a), 0);

	ck_assert_ptr_ne(peer, MAP_FAILED);
	strcpy((char *)arena_base(a) + arena_alloc(a, 6), "hello");
	ck_assert_str_eq(peer, "hello");
	munmap(peer, arena_size(a));
	arena_destroy(a);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base_arena");
	TCase *c = tcase_create("arena");
	SRunner *r;
	int failed;

	tcase_add_test(c, test_arena_is_zeroed_rounded_to_pages_and_page_aligned);
	tcase_add_test(c, test_arena_name_shows_in_maps);
	tcase_add_test(c, test_arena_refuses_absurd_sizes);
	tcase_add_test(c, test_arena_alloc_takes_first_fit_aligned_to_64);
	tcase_add_test(c, test_arena_freed_neighbours_become_one_again);
	tcase_add_test(c, test_arena_random_use_never_overlaps);
	tcase_add_test(c, test_arena_file_cannot_be_shrunk_by_a_peer);
	tcase_add_test(c, test_arena_memory_is_the_file);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
