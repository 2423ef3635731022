#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Communicators come and go, and the machine is as it was: 300 rounds, a rank that exits without destroy, several jobs at
# once, 64 ranks, ranks that are stopped for seconds. See life.c. Jobs on some of the machines: tests/lab/netns/shapes.sh.
set -u
B=${BUILD:-build}
p=0 f=0
lab=${SIRCL_LAB:-$$}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-life-$lab-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
ok() { p=$((p + 1)); echo "  ok   $*"; }
bad() { f=$((f + 1)); echo "  FAIL $*"; tail -n 4 "$tmp"/out* 2>/dev/null; }
check() { local what=$1; shift; if "$@" >"$tmp/out" 2>&1; then ok "$what"; sed 's/^/         /' "$tmp/out"; else bad "$what"; fi; rm -f "$tmp"/out*; }
# what this library could leave behind outside of processes
outside() { find "$TMPDIR" /dev/shm /tmp -mindepth 1 -maxdepth 1 \( -path "$TMPDIR/*" -o -path '/dev/shm/*sircl*' -o -path "/tmp/*sircl*$lab*" \) ! -path "$tmp"; }
# its sockets have no files: their names in the abstract space carry the lab
sockets() { grep -c "@sircl.*$lab" /proc/net/unix; }

mkdir "$tmp/t"
export SIRCL_LAB=$lab TMPDIR=$tmp/t
outside >"$tmp/before"
rounds=${LIFE_ROUNDS:-300}
for t in shm tcp; do
	check "$t: $rounds rounds of 3 ranks as threads leave the process as it was" env SIRCL_TRANSPORT=$t timeout 100 "$B/tests/life" rounds 3 "$rounds"
done
check "shm: 40 rounds of 4 processes" timeout 60 "$B/sircl" run -n 4 --transport shm -- "$B/tests/life" rank 40
check "tcp: 40 rounds of 3 processes" timeout 60 "$B/sircl" run -n 3 --transport tcp -- "$B/tests/life" rank 40
for t in shm tcp; do
	check "$t: 64 ranks on this machine, as threads" env SIRCL_TRANSPORT=$t timeout 60 "$B/tests/life" many 64
done
check "shm: 64 ranks, as processes" timeout 90 "$B/sircl" run -n 64 --transport shm -- "$B/tests/life" rank 10

check "two threads in one communicator: each call is done or refused" timeout 60 "$B/tests/life" share

leaves() { # leaves TRANSPORT [return]: by hand, since sircl run would end the others itself
	local i rc=0 named=0 pids=()
	for i in 0 1 2 3; do
		SIRCL_RANK=$i SIRCL_NRANKS=4 SIRCL_TRANSPORT=$1 SIRCL_ROOT="unix:@sircl-life-$lab-$1${2:-}" SIRCL_SECRET=life$$ \
			timeout -k 2 30 "$B/tests/life" leave ${2:+"$2"} >"$tmp/leave.$i" 2>&1 &
		pids+=($!)
	done
	for i in 0 1 2 3; do wait "${pids[i]}" || rc=1; done
	for i in 0 1 2; do
		# one sentence, besides warnings about lanes, and it says who
		[ "$(grep -vc 'SIRCL WARN .* lane' "$tmp/leave.$i")" = 1 ] && grep -q '^rank [0-2]: .*rank 3' "$tmp/leave.$i" && named=$((named + 1))
	done
	[ $named = 3 ] || cat "$tmp"/leave.*
	[ $rc = 0 ] && [ $named = 3 ]
}
for t in shm tcp; do
	check "$t: exit without destroy: the others have one sentence that names the rank" leaves $t
	check "$t: the same by return from main" leaves $t return
done

at_once() { # at_once TRANSPORT: three jobs of 4 processes
	local j rc=0 pids=()
	for j in 1 2 3; do
		timeout 60 "$B/sircl" run -n 4 --transport "$1" -- "$B/tests/ringcheck" reduce $((j * 300000)) 60 >"$tmp/job.$j" 2>&1 &
		pids+=($!)
	done
	for j in 1 2 3; do wait "${pids[j - 1]}" || { rc=1; tail -n 3 "$tmp/job.$j"; }; done
	return $rc
}
for t in shm tcp; do check "$t: three jobs at once, each with its own sums" at_once $t; done

# running PID...: until each is a rank that has met the others, known by its background thread; at most 20 s
running() {
	local i pid
	for ((i = 0; i < 400; i++)); do
		for pid in "$@"; do grep -qsx sircl "/proc/$pid/task/"*/comm || break; done
		grep -qsx sircl "/proc/$pid/task/"*/comm && return
		sleep 0.05
	done
}

stopped() { # stopped TRANSPORT: 3 s, far beyond the time at which silence makes a lane suspect
	local i rc=0 pids=()
	for i in 0 1 2 3; do
		SIRCL_RANK=$i SIRCL_NRANKS=4 SIRCL_TRANSPORT=$1 SIRCL_LANES=2 SIRCL_ROOT="unix:@sircl-life-$lab-stop-$1" SIRCL_SECRET=life$$ \
			"$B/tests/ringcheck" reduce 65536 6000 >"$tmp/stop.$i" 2>&1 &
		pids+=($!)
	done
	running "${pids[@]}"
	sleep 0.2
	kill -STOP "${pids[2]}" || rc=1 # still there, or nothing is shown
	sleep 3
	kill -CONT "${pids[2]}"
	for i in 0 1 2 3; do wait "${pids[i]}" || { rc=1; tail -n 2 "$tmp/stop.$i"; }; done
	return $rc
}
for t in shm tcp; do check "$t: a rank that is stopped for 3 s goes on, and so does the job" stopped $t; done

outside >"$tmp/after"
if cmp -s "$tmp/before" "$tmp/after"; then ok "nothing is left in /dev/shm and /tmp"; else bad "left behind: $(comm -13 "$tmp/before" "$tmp/after")"; fi
left=$(sockets)
if [ "$left" = 0 ]; then ok "no socket of this lab is left"; else bad "$left sockets of lab $lab are left"; fi
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
