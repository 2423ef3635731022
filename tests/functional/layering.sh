#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The rooms of the library include only what lies below them and read no clock above lane/; and the script that says so
# notices a room that does not. Ends with `N passed, N failed, N skipped`; exit 1 if one failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
passed=0 failed=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-layering-${SIRCL_LAB:-$$}-XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
check() { # NAME COMMAND...
	local name=$1
	shift
	if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; fi
}
# refuses ROOM LINE: a file of that room with that line is refused, by its name
refuses() {
	rm -rf "$tmp/libsircl"
	mkdir -p "$tmp/libsircl/$1"
	printf '%s\n' "$2" >"$tmp/libsircl/$1/planted.c"
	! scripts/layering.sh "$tmp" >"$tmp/out" && grep -q "^libsircl/$1/planted.c:1: " "$tmp/out"
}
accepts() { ! refuses "$@"; }

check the_tree_is_in_order scripts/layering.sh
check an_include_upwards_is_refused refuses link '#include "engine/engine.h"'
check a_private_header_is_refused refuses engine '#include "link/internal.h"'
check an_include_downwards_is_accepted accepts engine '#include "link/chan.h"'
check a_clock_above_lane_is_refused refuses engine 'int f(struct timespec *t) { return clock_gettime(CLOCK_MONOTONIC, t); }'
check time_above_lane_is_refused refuses fabric 'long f(void) { return time(NULL); }'
check a_clock_in_lane_is_accepted accepts lane 'int f(struct timespec *t) { return clock_gettime(CLOCK_MONOTONIC, t); }'
check the_clock_of_the_context_is_accepted accepts engine 'uint64_t f(struct sircl_ctx *c) { return c->clock(c->clock_arg); }'
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
