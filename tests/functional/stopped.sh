#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rank is stopped (SIGSTOP). For a moment: nobody minds, no lane is lost. Beyond SIRCL_TIMEOUT: the others end, and every
# sentence names the rank that was stopped; whatever carries the data, in collectives and between two ranks.
set -u
B=${BUILD:-build}
p=0 f=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-stopped-${SIRCL_LAB:-$$}-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
lab=${SIRCL_LAB:-$$}
ok() { p=$((p + 1)); echo "  ok   $*"; }
bad() { f=$((f + 1)); echo "  FAIL $*"; }

# running PID...: until each is a rank that has met the others, known by its background thread; at most 20 s
running() {
	local i pid
	for ((i = 0; i < 400; i++)); do
		for pid in "$@"; do grep -qsx sircl "/proc/$pid/task/"*/comm || break; done
		grep -qsx sircl "/proc/$pid/task/"*/comm && return
		sleep 0.05
	done
}

declare -A pids
start() { # start JOB TRANSPORT N PROGRAM ARGS...: N ranks by hand, since sircl run would end the others itself
	local job=$1 transport=$2 n=$3 i
	shift 3
	for ((i = 0; i < n; i++)); do
		SIRCL_RANK=$i SIRCL_NRANKS=$n SIRCL_TRANSPORT=$transport SIRCL_LANES=2 SIRCL_SECRET=stopped$$ \
			SIRCL_ROOT="unix:@sircl-stopped-$lab-$job" "$B/tests/$1" "${@:2}" >"$tmp/$job.$i" 2>&1 &
		pids[$job.$i]=$!
	done
}
# ends JOB N VICTIM: the others end with status 1 within 8 s and name the victim
ends() {
	local i t named=0 rcs=
	for ((t = 0; t < 80; t++)); do
		for ((i = 0; i < $2; i++)); do [ $i = "$3" ] || ! kill -0 "${pids[$1.$i]}" 2>/dev/null || break; done
		[ $i = "$2" ] && break
		sleep 0.1
	done
	kill -KILL "${pids[$1.$3]}"
	for ((i = 0; i < $2; i++)); do
		[ $i = "$3" ] && continue
		[ $t -lt 80 ] || kill -KILL "${pids[$1.$i]}"
		wait "${pids[$1.$i]}"
		rcs="$rcs $?"
		grep -q "ringcheck:.*rank $3" "$tmp/$1.$i" && named=$((named + 1))
	done 2>/dev/null
	if [ $t -lt 80 ] && [ $named = $(($2 - 1)) ] && [ "$(echo "$rcs" | tr ' ' '\n' | sort -u | tail -n +2)" = 1 ]; then
		ok "$1: all others know that rank $3 has stopped"
	else
		bad "$1: rank $3 stopped: exit$rcs after $((t / 10)) s, $named name it"
		tail -n 2 "$tmp/$1".*
	fi
}

export SIRCL_TIMEOUT=1000
start collective-shm shm 4 ringcheck reduce 65536 1000000
start collective-tcp tcp 3 ringcheck reduce 65536 1000000
start send-shm shm 3 ringcheck p2p 0 1 8 100000000
start relayed-tcp tcp 4 ringcheck p2p 0 2 100000 100000000
start split-tcp tcp 4 splitcheck 1000 1000000
running "${pids[@]}"
sleep 0.7
kill -STOP "${pids[split-tcp.1]}"
kill -STOP "${pids[collective-shm.2]}" "${pids[collective-tcp.0]}" "${pids[send-shm.1]}" "${pids[relayed-tcp.3]}" "${pids[relayed-tcp.1]}"
ends collective-shm 4 2
ends collective-tcp 3 0
ends send-shm 3 1
kill -CONT "${pids[relayed-tcp.3]}" # only the relay stays away
ends relayed-tcp 4 1
# between the members 0 and 2 of a split: rank 3 may end before, for the loss of a neighbour
for ((t = 0; t < 80; t++)); do
	kill -0 "${pids[split-tcp.0]}" 2>/dev/null || kill -0 "${pids[split-tcp.2]}" 2>/dev/null || break
	sleep 0.1
done
if [ $t -lt 80 ] && [ "$(cat "$tmp"/split-tcp.[02] | grep -cE 'splitcheck: .*(rank 1 of (all|communicator)|link (NEXT|PREV) to rank 1 \(cable)')" = 2 ]; then
	ok "split-tcp: ranks 0 and 2 of a split know that rank 1 between them has stopped"
else
	bad "split-tcp: rank 1 stopped, $((t / 10)) s"
	tail -n 2 "$tmp"/split-tcp.[02]
fi
for i in 0 1 2 3; do kill -KILL "${pids[split-tcp.$i]}"; wait "${pids[split-tcp.$i]}"; done 2>/dev/null

unset SIRCL_TIMEOUT
start short-shm shm 3 ringcheck reduce 65536 3000
start short-tcp tcp 3 ringcheck reduce 65536 3000
for job in short-shm short-tcp; do running "${pids[$job.0]}" "${pids[$job.1]}" "${pids[$job.2]}"; done
for _ in 1 2 3; do
	sleep 0.2
	kill -STOP "${pids[short-shm.1]}" "${pids[short-tcp.2]}" 2>/dev/null
	sleep 0.35
	kill -CONT "${pids[short-shm.1]}" "${pids[short-tcp.2]}" 2>/dev/null
done
for job in short-shm short-tcp; do
	rc=0
	for i in 0 1 2; do wait "${pids[$job.$i]}" || rc=$?; done
	if [ $rc = 0 ] && ! grep -q WARN "$tmp/$job".*; then ok "$job: a rank stopped three times for 0.35 s costs nothing"; else
		bad "$job: exit $rc"
		tail -n 3 "$tmp/$job".*
	fi
done
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
