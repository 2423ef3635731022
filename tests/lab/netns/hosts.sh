# SPDX-License-Identifier: Apache-2.0
# sircl run -H over the machines of the lab; sourced by tests.sh. A stand-in for ssh enters the namespace that has the address.
# shellcheck shell=bash disable=SC2154,SC2016

# far_ssh: the stand-in. It knows other names too: 127.0.0.1 leads to machine 0, alias0, alias1 ... to each, and nobody else knows these.
far_ssh() {
	local r
	echo '#!/bin/bash'
	echo 'case $1 in'
	for ((r = 0; r < ${#PID[@]}; r++)); do
		echo "$NET.$((r + 1))|alias$r$([ $r = 0 ] && echo '|127.0.0.1')) pid=${PID[r]} ;;"
	done
	echo '*) echo "ssh: no such machine: $1" >&2; exit 255 ;;'
	echo 'esac'
	echo 'exec nsenter -t $pid -n -m -r -w -- sh -c "$2"'
}

# hosts OUT "HOSTS" CMD...: all on standard error and output to OUT
hosts() {
	local out=$1 list=$2 rc
	shift 2
	SIRCL_LAB=$LAB SIRCL_PORT=$PORT timeout -k 5 90 "$build/sircl" run -H "$list" --ssh "${SSH_ENV:-} $tmp/ssh" "$@" >"$out" 2>&1
	rc=$?
	PORT=$((PORT + 1))
	[ $rc = 0 ] || tail -n 4 "$out" | sed 's/^/      /'
	return $rc
}

# root_is WHAT ROOT HOSTS...: where the ranks of these hosts are told to meet
root_is() {
	local port=$PORT
	hosts "$tmp/root" "$3" -- sh -c 'echo "root $SIRCL_ROOT"' || { bad "$1"; return; }
	check "$1" [ "$(grep '^root ' "$tmp/root" | sort -u)" = "root $2:$port" ]
}

test_hosts() {
	local all="$NET.1,$NET.2,$NET.3,$NET.4" pid i p left=
	far_ssh >"$tmp/ssh"
	chmod +x "$tmp/ssh"
	if SIRCL_DEBUG=info hosts "$tmp/far" "$all" --label -- "$build/sircl-bench" all_reduce -b 8 -e 1M -f 8 -n 3 -w 1 -c 1 -d bfloat16; then
		check "sircl run -H over four machines: all-reduce of 8 B to 1 MiB, every element checked" \
			grep -q 'Out of bounds values : 0 OK' "$tmp/far"
		check "over lanes between them, all in one ring" [ "$(grep -c '\[tcp\] position' "$tmp/far")" = 4 ]
		check "the caller's SIRCL_DEBUG is there, and each line has its rank" grep -q '^0: .*SIRCL INFO ring of 4' "$tmp/far"
	else
		bad "sircl run -H over four machines"
	fi
	check "two ranks on the first machine, the others in the order 0-2-1-3" \
		hosts "$tmp/far" "$NET.1:2,$NET.3,$NET.2,$NET.4" -- "$build/tests/ringcheck" reduce 100000 3
	check "the first rank's map has them" grep -q '^rank 0 position 0 ring' "$tmp/far"
	root_is "ranks meet at the first host's address" "$NET.1" "$NET.1,$NET.2"
	root_is "not at one that is loopback there, but where it reaches the others" "$NET.1" "127.0.0.1,$NET.2"
	SSH_ENV="env SSH_CONNECTION='$NET.4 1 $NET.1 22'" root_is "or where ssh has come to, with names that only ssh knows" "$NET.1" "alias0,alias1"
	hosts "$tmp/far" "alias0,alias1" -- true >/dev/null
	check "else one sentence asks for --root" grep -q '^sircl run: host alias0: .*--root ADDRESS$' "$tmp/far"

	SIRCL_LAB=$LAB timeout 60 "$build/sircl" run -H "$all" --ssh "$tmp/ssh" -- sh -c 'echo "rank $$"; exec sleep 100' >"$tmp/far" 2>&1 &
	pid=$!
	for ((i = 0; i < 200; i++)); do
		[ "$(grep -c '^rank' "$tmp/far")" = 4 ] && break
		sleep 0.1
	done
	left=$(sed -n 's/^rank //p' "$tmp/far" | paste -sd,)
	kill -KILL "$(pgrep -P $pid)" "$pid" # timeout and the run itself
	wait $pid 2>/dev/null
	for ((i = 0; i < 200; i++)); do
		p=$(ps -o pid=,stat= -p "$left" | grep -v Z) # a zombie has ended
		[ -z "$p" ] && break
		sleep 0.1
	done
	check "a killed sircl run leaves no rank on any machine" [ "$(echo "$left" | tr , '\n' | wc -l)" = 4 -a -z "$p" ]
}
