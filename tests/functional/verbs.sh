#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Verbs lanes between ranks of this machine, over tests/fakeverbs in place of rdma-core: simulated, no RDMA device is used. Every kind, the bits
# of shm, the programs that shm and tcp lanes pass, memory that is mapped anew, refusals, a port that is cut, the cost of doing nothing.
set -u
B=${BUILD:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
export SIRCL_LAB=${SIRCL_LAB:-$$}
F=$B/tests/fakeverbs
[ -e "$F/libibverbs.so.1" ] || { echo "verbs.sh: not run: built without rdma-core's headers (apt-get install libibverbs-dev librdmacm-dev)"; exit 3; }
p=0 f=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-verbs-$SIRCL_LAB-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
ok() { p=$((p + 1)); echo "  ok   $*"; }
bad() { f=$((f + 1)); echo "  FAIL $*"; tail -n 12 "$tmp"/out* 2>/dev/null | sed 's/^/       | /'; }
check() { local what=$1; shift; if "$@" >"$tmp/out" 2>&1; then ok "$what"; else bad "$what"; fi; }
# of what the last check has written
says() { local what=$1; shift; if grep "$@" "$tmp/out" >"$tmp/grep" 2>&1; then ok "... $what"; else bad "... $what"; fi; }
fake() { LD_LIBRARY_PATH=$F timeout -k 2 "$@"; } # fake SECONDS CMD...

# ---- every kind, checked to the bit, and each kind named as right ----
for n in 2 3 4; do
	for lanes in 1 2; do
		check "every kind of $n ranks, $lanes lanes per cable" \
			fake 60 "$B/sircl-bench" all --ranks $n --transport verbs --lanes $lanes -b 8 -e 512K -f 64 -n 2 -w 1 -d bfloat16
		[ "$(grep -cE '^# [a-z_]+ +[1-9][0-9]* +0 +[0-9.]+  OK$' "$tmp/out")" = 10 ] || bad "... not ten kinds without a wrong element"
	done
done

# ---- the bits of shm, for each algorithm that can be forced ----
digest() { sed -n 's/^# Digest *: //p'; }
for ka in all_reduce:two-matchings all_reduce:doubling all_reduce:exchange all_reduce:ring all_reduce:two-shot reduce:pipeline reduce:exchange \
	reduce_scatter:exchange reduce_scatter:ring broadcast:pipeline all_gather:ring all_to_all:exchange; do
	how="${ka%:*} --ranks 4 --algo ${ka#*:} --digest -b 1K -e 1M -f 32 -d bfloat16 -n 1 -w 0"
	# shellcheck disable=SC2086 # words
	want=$(timeout 60 "$B/sircl-bench" $how --transport shm 2>&1 | digest)
	for lanes in 1 2; do
		# shellcheck disable=SC2086
		got=$(fake 60 "$B/sircl-bench" $how --transport verbs --lanes $lanes 2>"$tmp/out" | digest)
		if [ -n "$want" ] && [ "$got" = "$want" ]; then ok "$ka, $lanes lanes: shm's bits, $got"; else bad "$ka, $lanes lanes: ${got:-none} is not shm's $want"; fi
	done
done

# ---- the programs of shm and tcp lanes ----
prog() { # prog LANES PROGRAM ARGS...
	local l=$1
	shift
	check "$* over $l verbs lanes, and no object is left" env FAKEVERBS_LEAKS=1 SIRCL_DEBUG=none SIRCL_TRANSPORT=verbs SIRCL_LANES="$l" LD_LIBRARY_PATH="$F" timeout -k 2 60 "$B/tests/$1" "${@:2}"
}
prog 2 api 3
prog 1 api_kinds 3
prog 2 api_group 4
prog 2 api_split 4
prog 1 api_random 4 101 1
prog 2 api_random 3 102 1
# one heap: those of threads that have gone, with a card's besides, wander by more than it allows
MALLOC_ARENA_MAX=1 prog 2 ends 3 12
prog 1 mismatch 3

# ---- a rank dies: all others know it by name ----
for i in 0 1 2 3; do
	SIRCL_RANK=$i SIRCL_NRANKS=4 SIRCL_TRANSPORT=verbs SIRCL_ROOT="unix:@sircl-verbs-$SIRCL_LAB-death" SIRCL_SECRET=verbs$$ \
		LD_LIBRARY_PATH=$F "$B/tests/ringcheck" reduce 1048576 100000 >"$tmp/out.$i" 2>&1 &
	pids[i]=$!
done
for i in 0 1 2 3; do # each has met the others: it has its background thread
	for _ in $(seq 400); do grep -qsx sircl "/proc/${pids[i]}/task/"*/comm && break; sleep 0.05; done
done
sleep 0.5
for i in 0 1 2 3; do kill -0 "${pids[i]}" 2>/dev/null || bad "rank $i ended before it was killed"; done
kill -KILL "${pids[2]}"
named=0
for i in 0 1 3; do
	for _ in $(seq 150); do kill -0 "${pids[i]}" 2>/dev/null || break; sleep 0.1; done
	kill -KILL "${pids[i]}" 2>/dev/null && echo "still there after 15 s" >>"$tmp/out.$i"
	wait "${pids[i]}" 2>/dev/null
	grep -q "ringcheck: .*rank 2" "$tmp/out.$i" && named=$((named + 1))
done
wait "${pids[2]}" 2>/dev/null
if [ $named = 3 ]; then ok "rank 2 killed: the other three name it and end"; else bad "rank 2 killed: $named of 3 name it"; fi
rm -f "$tmp"/out*

# ---- memory that is mapped anew between collectives, on pages that the card would hold on to ----
for n in 2 4; do
	check "memory freed and mapped anew at the same address, $n ranks" \
		env FAKEVERBS_PIN=1 SIRCL_TRANSPORT=verbs LD_LIBRARY_PATH="$F" timeout -k 2 60 "$B/tests/remap" $n
done
check "the same with registrations that are forgotten does give wrong data, so the fake pins pages" \
	env FAKEVERBS_PIN=1 SIRCL_TRANSPORT=verbs LD_LIBRARY_PATH="$F" timeout -k 2 60 "$B/tests/remap" 2 forgotten

# ---- refusals ----
refused() { # refused WHAT SENTENCE [VARIABLE=VALUE ...]: two ranks, status not 0, both say it
	local what=$1 says=$2
	shift 2
	if ! env "$@" timeout -k 2 30 "$B/sircl" run -n 2 -- "$B/tests/ringcheck" stay >"$tmp/out" 2>&1 && grep -q -- "$says" "$tmp/out"; then
		ok "$what: $(grep -o -m 1 -- "$says.*" "$tmp/out" | cut -c 1-110)"
	else
		bad "$what is not refused with: $says"
	fi
}
refused "SIRCL_HCA that no device matches" 'SIRCL_HCA=nosuch leaves no RDMA device; this machine has .*fake_' \
	LD_LIBRARY_PATH="$F" SIRCL_TRANSPORT=verbs SIRCL_HCA=nosuch
refused "NCCL_IB_HCA that no device matches" 'NCCL_IB_HCA=^fake leaves no RDMA device' \
	LD_LIBRARY_PATH="$F" SIRCL_TRANSPORT=verbs NCCL_IB_HCA=^fake
refused "a GID index that is not in the table" 'SIRCL_GID_INDEX .* is 200' LD_LIBRARY_PATH="$F" SIRCL_TRANSPORT=verbs SIRCL_GID_INDEX=200
if SIRCL_TRANSPORT=verbs timeout 20 "$B/sircl" run -n 2 -- "$B/tests/ringcheck" stay >"$tmp/out" 2>&1; then
	echo "  --   this machine has RDMA devices of its own: what happens without is not looked at"
else
	ok "verbs without a device is refused"
	says "with the cable, a rank and the cure" 'SIRCL_TRANSPORT=verbs, but cable 0 between rank 0 .* and rank 1 .* cannot carry RoCE lanes: rank 0 .*SIRCL_TRANSPORT=auto'
fi
check "auto within a machine is shm, and asks no RDMA device" env FAKEVERBS_FAIL_AT=1 LD_LIBRARY_PATH="$F" SIRCL_DEBUG=info \
	timeout 20 "$B/sircl" run -n 2 -- "$B/tests/ringcheck" stay
says "and says so" 'transport shm (SIRCL_TRANSPORT=auto, 1 machine)'
check "verbs is chosen and told per cable" env LD_LIBRARY_PATH="$F" SIRCL_DEBUG=info SIRCL_LANES=2 \
	timeout 20 "$B/sircl" run -n 2 --transport verbs -- "$B/tests/ringcheck" stay
cp "$tmp/out" "$tmp/info"
says "with devices and MTU" -E 'cable 0: verbs, 2 lanes: rank 0 fake_[a-z0-9]+ port 1 \(RoCE MTU [0-9]+\), fake_.* - rank 1 fake_'
says "and the communicator is of that class" 'rank 0 .*transport verbs'
if unshare -m true 2>/dev/null; then
	# shellcheck disable=SC2016 # the inner shell's
	check "a container whose /sys shows nothing" env LD_LIBRARY_PATH="$F" SIRCL_DEBUG=warn timeout 20 \
		unshare -m sh -c 'mount -t tmpfs none /sys && exec "$@"' sh "$B/sircl" run -n 2 --transport verbs -- "$B/tests/ringcheck" stay
	if grep -q hwloc "$tmp/out"; then bad "... and nothing is heard of hwloc"; else ok "... and nothing is heard of hwloc"; fi
fi
device=$(sed -n 's/.*rank 0 \(fake_[a-z0-9]*\) port 1.*/\1/p' "$tmp/info" | head -n 1)
second=$(sed -n 's/.*rank 0 fake_[a-z0-9]* port 1 (RoCE MTU [0-9]*), \(fake_[a-z0-9]*\) port.*/\1/p' "$tmp/info" | head -n 1)
check "SIRCL_HCA keeps lanes on the device it names" env LD_LIBRARY_PATH="$F" SIRCL_DEBUG=info SIRCL_LANES=2 SIRCL_HCA="=$second:1" \
	timeout 20 "$B/sircl" run -n 2 --transport verbs -- "$B/tests/ringcheck" stay
grep 'cable 0: verbs' "$tmp/out" >"$tmp/lanes"
if grep -q " $second " "$tmp/lanes" && ! grep -q " $device " "$tmp/lanes"; then ok "... $second alone"; else bad "... $second alone"; fi

# ---- a port goes down in mid-run, and comes back ----
if [ -n "$second" ] && [ "$device" != "$second" ]; then
	SIRCL_DEBUG=info LD_LIBRARY_PATH=$F SIRCL_LANES=2 timeout -k 2 90 "$B/sircl" run -n 4 --transport verbs -- \
		"$B/tests/ringcheck" reduce 262144 "${CUT_ITERS:-1500}" >"$tmp/out" 2>&1 &
	run=$!
	for _ in $(seq 300); do grep -q 'communicator .* is up' "$tmp/out" && break; sleep 0.05; done
	sleep 0.7
	kill -0 $run 2>/dev/null && "$F/fakectl" cut "$device" && echo "cut $device" >>"$tmp/out"
	for _ in $(seq 200); do grep -q 'lane 0 (verbs .* is fenced' "$tmp/out" && break; sleep 0.05; done
	kill -0 $run 2>/dev/null && alive=yes || alive=no
	sleep 0.3
	"$F/fakectl" mend "$device"
	if wait "$run" && grep -q 'lane 0 (verbs .* is fenced' "$tmp/out" && [ "$alive" = yes ]; then
		ok "$device cut in mid-run: lanes on it are fenced, all sums are right over the other"
	else
		bad "$device cut in mid-run: alive at the fence: $alive"
	fi
	says "and lanes come up again when it is mended" 'lane 0 (verbs .* is up, epoch [2-9]'
else
	bad "a second device for the second lane: '$device', '$second'"
fi

# ---- a device fails for good in mid-run ----
if [ -n "$second" ] && [ "$device" != "$second" ]; then
	SIRCL_LAB=$SIRCL_LAB-fatal SIRCL_LANES=2 LD_LIBRARY_PATH=$F timeout -k 2 90 "$B/sircl-bench" all_reduce --ranks 3 --transport verbs \
		-b 64K -e 1M -f 2 -n "${FATAL_ITERS:-100}" >"$tmp/out" 2>&1 &
	run=$!
	for _ in $(seq 300); do grep -qE '^ +65536 ' "$tmp/out" && break; sleep 0.05; done
	SIRCL_LAB=$SIRCL_LAB-fatal "$F/fakectl" fatal "$device"
	if wait "$run" && grep -q 'Out of bounds values : 0 OK' "$tmp/out" && grep -q "lane 0 (verbs .* is fenced" "$tmp/out"; then
		ok "$device fails: its lanes are lost, new memory is registered for the others, all sums are right"
	else
		bad "$device fails for good"
	fi
fi

# ---- doing nothing ----
check "4 ranks do nothing for 3 s" fake 30 "$B/sircl" run -n 4 --transport verbs -- "$B/tests/ringcheck" idle 3
sed -n 's/^\(rank . idle: .*\)/         \1 (goal: below 1 %; the fake card is part of it)/p' "$tmp/out"
# shellcheck disable=SC2016 # awk's
if awk '/ idle: / { n++; if ($4 >= 5) bad = 1 } END { exit bad || n != 4 }' "$tmp/out"; then ok "... below 5 % of a core each"; else bad "... not below 5 % of a core each"; fi

echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
