#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random programs (api_random.c) over both transports, numbers of ranks and lanes, and under the parameters that change how data travels. RANDOM_SEEDS: per row.
set -u
B=${BUILD:-build}
seeds=${RANDOM_SEEDS:-2} first=${RANDOM_FIRST:-1}
p=0 f=0
row() { # row RANKS [VARIABLE=VALUE ...]: ranks as threads
	local n=$1
	shift
	if env "$@" timeout 120 "$B/tests/api_random" "$n" "$first" "$seeds"; then p=$((p + 1)); else f=$((f + 1)); echo "FAIL: $n ranks: $*"; fi
	first=$((first + seeds))
}
row 1 SIRCL_TRANSPORT=shm
row 2 SIRCL_TRANSPORT=shm
row 2 SIRCL_TRANSPORT=tcp SIRCL_LANES=4
row 3 SIRCL_TRANSPORT=tcp SIRCL_LANES=2 SIRCL_CHECKSUM=1
row 4 SIRCL_TRANSPORT=shm SIRCL_LANES=3
row 4 SIRCL_TRANSPORT=tcp SIRCL_WINDOW=65536 SIRCL_RELAY_WINDOW=65536
row 5 SIRCL_TRANSPORT=shm SIRCL_SLICE=512 SIRCL_CHECKSUM=1
row 6 SIRCL_TRANSPORT=tcp
row 7 SIRCL_TRANSPORT=shm SIRCL_WINDOW=65536
row 4 SIRCL_TRANSPORT=shm SIRCL_ALGO=exchange
row 5 SIRCL_TRANSPORT=shm SIRCL_ALGO=two-shot
row 3 SIRCL_TRANSPORT=tcp SIRCL_SPIN=0
row 4 SIRCL_TRANSPORT=shm SIRCL_DETERMINISTIC=1 SIRCL_CPU=generic
seeds=1
row 16 SIRCL_TRANSPORT=shm
for t in shm tcp; do
	if timeout 60 "$B/sircl" run -n 4 --transport $t -- "$B/tests/api_random" 4 "$first" "$seeds"; then p=$((p + 1)); else f=$((f + 1)); echo "FAIL: processes, $t"; fi
done
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
