#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How communicators end, over both transports: see ends.c; and what calls do that do not match: mismatch.c.
set -u
B=${BUILD:-build}
p=0 f=0
run() { # run TRANSPORT LANES RANKS ROUNDS
	if SIRCL_TRANSPORT=$1 SIRCL_LANES=$2 timeout 60 "$B/tests/ends" "$3" "$4"; then p=$((p + 1)); else f=$((f + 1)); echo "FAIL: $1, $2 lanes, $3 ranks"; fi
}
run shm 1 4 12
run tcp 2 3 12
mismatch() { # mismatch TRANSPORT RANKS
	if SIRCL_DEBUG=none SIRCL_TRANSPORT=$1 timeout 60 "$B/tests/mismatch" "$2"; then p=$((p + 1)); else f=$((f + 1)); echo "FAIL: mismatch: $1, $2 ranks"; fi
}
mismatch shm 2
mismatch shm 4
mismatch tcp 3
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
