#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What counts costs works, and the counts stay: bench/ring_cost runs every kind, and the instructions of an all-reduce
# and an all-gather of 8 KiB (bench/instructions.sh) are no more than they were, plus a tenth for other compilers.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${BUILD:-build}
p=0 f=0 s=0
ok() { p=$((p + 1)); echo "  ok   $*"; }
bad() { f=$((f + 1)); echo "  FAIL $*"; }

for kind in all_reduce all_gather reduce_scatter broadcast reduce all_to_all gather scatter barrier; do
	for lanes in sim shm; do
		if out=$(timeout 60 "$B/ring_cost" $lanes 4096 3 $kind 2>&1); then
			ok "ring_cost: $kind over $lanes: $out"
		else
			bad "ring_cost: $kind over $lanes: $out"
		fi
	done
done

most() { # KIND INSTRUCTIONS
	local n
	if [ "$(uname -m)" != x86_64 ] || ! command -v valgrind >/dev/null; then
		s=$((s + 1)) && echo "  skip instructions of $1: counted on x86-64, with valgrind" && return
	fi
	n=$(timeout 150 bench/instructions.sh --kind "$1" 2>/dev/null | tail -n 1)
	if [ -n "$n" ] && [ "$n" -le "$2" ]; then ok "$1 of 8 KiB: $n instructions, at most $2"; else bad "$1 of 8 KiB: ${n:-no} instructions, at most $2"; fi
}
most all_reduce 31000
most all_gather 23800
echo "$p passed, $f failed, $s skipped"
[ $f = 0 ]
