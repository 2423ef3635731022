#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The public header with ranks as threads: both transports, lanes, numbers of ranks; every kind, groups, splits. Under a sanitizer this is where it sees all ranks.
set -u
B=${BUILD:-build}
p=0 f=0
run() { # run TRANSPORT LANES RANKS [PROGRAM ...]
	local t=$1 l=$2 n=$3
	shift 3
	for x in "${@:-api}"; do
		if SIRCL_TRANSPORT=$t SIRCL_LANES=$l timeout 120 "$B/tests/$x" "$n"; then p=$((p + 1)); else f=$((f + 1)); echo "FAIL: $x: $t, $l lanes, $n ranks"; fi
	done
}
all="api api_kinds api_group api_split"
# shellcheck disable=SC2086 # words
run shm 1 4 $all
run tcp 1 4
run tcp 2 4 api_group api_split
run shm 2 2 api api_group
run shm 1 3 api api_kinds api_cost api_oom
# all pairs of many ranks, so many relayed channels
run shm 1 16 api_group
run shm 2 4 api_random
if timeout 120 "$B/tests/life" share; then p=$((p + 1)); else f=$((f + 1)); echo "FAIL: two threads in one communicator"; fi
# shellcheck disable=SC2086
[ -n "${SHORT:-}" ] || { run tcp 4 2 $all; run tcp 1 5 $all; run shm 4 8; run shm 1 6 api_split; }
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
