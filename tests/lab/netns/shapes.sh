# SPDX-License-Identifier: Apache-2.0
# Jobs of other shapes than one rank on each machine of a ring; sourced by tests.sh. A machine is a network namespace here.
# shellcheck shell=bash disable=SC2154

# placed OUT "NAMESPACE OF RANK 0, OF RANK 1 ..." CMD...: as `ranks`, with any number of ranks in a namespace
placed() {
	local out=$1 where pids=() r rc=0 n
	read -ra where <<<"$2"
	shift 2
	n=${#where[@]}
	for ((r = 0; r < n; r++)); do
		(
			in_ns "${PID[where[r]]}" env SIRCL_RANK="$r" SIRCL_NRANKS="$n" SIRCL_ROOT="$NET.$((where[0] + 1)):$PORT" \
				SIRCL_SECRET="$SECRET" SIRCL_LAB="$LAB" LD_LIBRARY_PATH="$build" timeout -k 5 60 setpriv --pdeathsig KILL "$@"
		) >"$out.$r" 2>&1 &
		pids+=($!)
	done
	for ((r = 0; r < n; r++)); do
		wait "${pids[r]}" || { rc=1; echo "    rank $r failed:"; tail -n 4 "$out.$r" | sed 's/^/      /'; }
	done
	PORT=$((PORT + 1))
	return $rc
}

# shape WHAT "NAMESPACES" LINE OF RANK 0: 1 MB all-reduces, and the map that rank 0 prints
shape() {
	rm -f "$tmp"/shape.*
	placed "$tmp/shape" "$2" "$build/tests/ringcheck" reduce 1000000 3 || { bad "$1"; return; }
	if grep -q "^rank 0 $3" "$tmp/shape.0"; then
		ok "$1: $3"
	else
		bad "$1: not '$3' but $(grep '^rank 0 pos' "$tmp/shape.0")"
	fi
}

# what ranks of machine 0 said to each other over its loopback device
over_loopback() { counter "${PID[0]}" lo tx_bytes; }

test_shapes() {
	local before
	shape "a job on 3 of the 4 machines" "0 1 2" "position 0 line next 1 prev -1"
	shape "a job on 3 of them, the lowest rank in the middle" "1 0 2" "position 1 line"
	before=$(over_loopback)
	shape "two ranks on one machine, 4 ranks on 3 machines" "0 0 1 2" "position 0 line next 1 prev -1"
	check "they share memory: next to nothing over their loopback device" [ $(($(over_loopback) - before)) -lt 100000 ]
	check "and the job is of the class of its slowest lanes" grep -q '^rank 0 .* transport tcp' "$tmp/shape.0"
	shape "two ranks on one machine of a ring of 4" "0 0 1 2 3" "position 0 ring next 1 prev 4"
	shape "ranks of a machine that are no neighbours by number" "0 1 0 2 3 1" "position 0 ring next 2 prev 4"
	shape "two ranks on each machine, two machines" "0 1 0 1" "position 0 line next 2 prev -1"
	check "and the far pair talks through the relay of both machines" placed "$tmp/far" "0 1 0 1" "$build/tests/ringcheck" p2p 0 3 100000 5
	before=$(over_loopback)
	check "two ranks on one machine over tcp alone, if that is asked for" \
		placed "$tmp/tcp" "0 0 1 2" env SIRCL_TRANSPORT=tcp "$build/tests/ringcheck" reduce 1000000 3
	check "and that goes over the loopback device" [ $(($(over_loopback) - before)) -gt 1000000 ]
	check "two jobs on one ring at once: both end well" two_jobs
}

two_jobs() {
	local other rc=0
	( PORT=$((PORT + 500)); placed "$tmp/joba" "0 1 2 3" "$build/tests/ringcheck" reduce 1048576 40 ) &
	other=$!
	placed "$tmp/jobb" "0 1 2 3" "$build/tests/ringcheck" reduce 1048576 40 || rc=1
	wait $other || rc=1
	return $rc
}

# N = 2: a line with one cable, a ring with two; 8 lanes per cable
test_pairs() {
	lab_up 2 8
	shape "two machines, two cables of 8 lanes" "0 1" "position 0 ring next 1 prev 1"
	check "all 8 lanes of each are up" [ "$(grep -c '^rank 0 lane' "$tmp/shape.0")" = 16 ]
	local l
	for l in 0 1 2 3 4 5 6 7; do nsenter -t "${PID[0]}" -n ip link set p$l down; done
	shape "two machines, one cable" "0 1" "position 0 line next 1 prev -1"
	check "8 lanes on it" [ "$(grep -c '^rank 0 lane' "$tmp/shape.0")" = 8 ]
	down
}
