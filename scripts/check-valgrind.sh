#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The unit tests and the simulator under valgrind: decisions on what was never written, reads and writes outside, memory that
# is lost. Check's child processes are followed, so a finding fails its own test. Two programs with a planted finding each
# must fail first.
set -u
cd "$(dirname "$0")/.." || exit 2
command -v valgrind >/dev/null || scripts/setup.sh san || exit 2
# fair-sched: threads that wait for each other by spinning get their turn
export RUNNER="valgrind -q --trace-children=yes --child-silent-after-fork=no --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=99 --fair-sched=yes"
export BUILD=${BUILD:-build} TEST_LIMIT=${TEST_LIMIT:-400} CK_TIMEOUT_MULTIPLIER=40 SIRCL_TEST_SEEDS=${SIRCL_TEST_SEEDS:-60}
export SIM_ARGS=${SIM_ARGS:---only d --seeds 20 --first-seed 1}
# Left out: what bounds real time that is too short here (test_engine_wait, test_lane_tcp_calls), and what needs a network
# namespace, which valgrind refuses (test_lane_tcp_dev). SIRCL_TEST_EMULATED: one test of test_lane_shm_process, since
# valgrind has no pidfd_open. VALGRIND_EXCEPT: others (CI: programs of one thread that enumerate).
export UNIT_EXCEPT="test_engine_wait test_lane_tcp_calls test_lane_tcp_dev ${VALGRIND_EXCEPT:-}" SIRCL_TEST_EMULATED=1

tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-valgrind-${SIRCL_LAB:-$$}-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
plant() { # plant NAME STATEMENTS
	printf '#include <stdlib.h>\nint main(void)\n{\n%s\nreturn 0;\n}\n' "$2" >"$tmp/p.c"
	${CC:-cc} -O0 -g -o "$tmp/p" "$tmp/p.c" || exit 2
	# shellcheck disable=SC2086
	$RUNNER "$tmp/p" >"$tmp/log" 2>&1
	[ $? = 99 ] && return
	echo "check-valgrind: a planted $1 goes unnoticed:"
	cat "$tmp/log"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}
plant leak 'volatile char *p = malloc(10); p[0] = 1; p = NULL;'
plant "decision on memory that was never written" 'int *p = malloc(40), n = 0; if (p[3]) n = 1; free(p); exit(n & 0);'
scripts/check.sh unit
