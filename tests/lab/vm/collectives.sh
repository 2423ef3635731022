# SPDX-License-Identifier: Apache-2.0
# libsircl on the ring of guests. Sourced by a guest's script.
# shellcheck shell=bash

# A guest runs 20 to 50 times slower than a machine and has one core: what is late here is not lost.
export SIRCL_START_TIMEOUT=100000 SIRCL_TIMEOUT=100000 SIRCL_HEARTBEAT=500 SIRCL_SUSPECT=5000 SIRCL_DEBUG=info

# judge OUT WHAT: guest 0 says whether all ranks of the last `rank` have ended well
judge() { [ "$VM_ID" != 0 ] || check "$2" all_ranks "$1"; }

no_wrong() { # no_wrong OUT: there are rows, and the columns #wrong of each are 0
	awk '$1 ~ /^[0-9]+$/ { rows++; if ($9 != 0 || $13 != 0) wrong++ } END { exit !(rows > 0 && wrong == 0) }' "$VM_SHARE/$1.0"
}

bench_over() { # bench_over TRANSPORT
	rank "0 1 2 3" 90 "bench-$1" env SIRCL_TRANSPORT="$1" "$VM_BUILD/sircl-bench" all_reduce -b 1K -e 256K -f 16 -n 3 -w 1 -c 1 -d bfloat16
	judge "bench-$1" "sircl-bench all_reduce over $1 lanes, 1 KiB to 256 KiB"
	[ "$VM_ID" = 0 ] || return
	grep -vE 'SIRCL INFO' "$VM_SHARE/bench-$1.0" | sed 's/^/    /'
	check "every element is right" no_wrong "bench-$1"
	check "a ring of 4 with two lanes per cable, found by hello" grep -q 'ring of 4, in cable order: 0 =2= 1 =2= 2 =2= 3 =2= 0' "$VM_SHARE/bench-$1.0"
	check "over $1 lanes" grep -q "lane 1 ($1 eth. *, cable" "$VM_SHARE/bench-$1.0"
}
test_tcp() { bench_over tcp; }
