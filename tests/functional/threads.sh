#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The public header with ranks as threads: both transports, lanes, numbers of ranks. Under a sanitizer this is where it sees all ranks.
set -u
B=${BUILD:-build}
p=0 f=0
run() { # run TRANSPORT LANES RANKS
	if SIRCL_TRANSPORT=$1 SIRCL_LANES=$2 timeout 120 "$B/tests/api" "$3"; then p=$((p + 1)); else f=$((f + 1)); echo "FAIL: $1, $2 lanes, $3 ranks"; fi
}
run shm 1 4
run tcp 1 4
run tcp 2 4
run shm 2 2
run shm 1 3
[ -n "${SHORT:-}" ] || { run tcp 4 2; run tcp 1 5; run shm 4 8; }
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
