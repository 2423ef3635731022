#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Only neighbours share memory: reads /proc/PID/maps of four running ranks; and no socket between ranks carries the payload instead (counted with
# strace: less than 64 KiB per rank while 64 MiB are reduced).
set -u
B=${BUILD:-build}
p=0 f=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-isolation-${SIRCL_LAB:-$$}-XXXXXX")
trap 'kill "$job" 2>/dev/null; wait "$job" 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { p=$((p + 1)); echo "  ok   $*"; }
bad() { f=$((f + 1)); echo "  FAIL $*"; }

"$B/sircl" run -n 4 --transport shm -- "$B/tests/ringcheck" reduce 8388608 400 >"$tmp/out" 2>&1 &
job=$!
for _ in $(seq 1000); do
	pids=$(pgrep -P "$job" -f ringcheck)
	[ "$(for x in $pids; do grep -c memfd: "/proc/$x/maps"; done 2>/dev/null | awk '$1>=4' | wc -l)" = 4 ] && break
	sleep 0.02
done
declare -A maps
for pid in $pids; do
	rank=$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^SIRCL_RANK=//p')
	# device:inode of every shared mapping; anonymous or file, whatever its name
	maps[$rank]=$(awk '$2 ~ /s/ {print $4 ":" $5}' "/proc/$pid/maps" | sort -u)
done
common() { comm -12 <(echo "${maps[$1]:-}") <(echo "${maps[$2]:-}") | grep -c .; }
[ ${#maps[@]} = 4 ] && ok "four ranks are running" || bad "four ranks are running (${#maps[@]})"
for pair in "0 2" "1 3"; do
	# shellcheck disable=SC2086
	[ "$(common $pair)" = 0 ] && ok "opposite ranks $pair share no memory" || bad "opposite ranks $pair share $(common $pair) segments"
done
for pair in "0 1" "1 2" "2 3" "3 0"; do
	# shellcheck disable=SC2086
	[ "$(common $pair)" -ge 2 ] && ok "neighbours $pair share memory" || bad "neighbours $pair share nothing: the test looks at the wrong thing"
done
three=$(for r in 0 1 2 3; do echo "${maps[$r]:-}"; done | sort | uniq -c | awk '$1 > 2' | wc -l)
[ "$three" = 0 ] && ok "each segment is mapped by two ranks at the most" || bad "$three segments are mapped by more than two ranks"
kill "$job"
wait "$job" 2>/dev/null

# -yy names sockets; process_vm_writev is no socket
"$B/sircl" run -n 4 --transport shm -- bash -c 'exec strace -f -yy -qq -e trace=sendto,sendmsg,sendmmsg,write,writev,splice,sendfile -o "$0.$SIRCL_RANK" "$@"' \
	"$tmp/trace" "$B/tests/ringcheck" reduce 8388608 8 >"$tmp/out2" 2>&1 || { bad "traced run"; cat "$tmp/out2"; }
for r in 0 1 2 3; do
	bytes=$(grep -E '(UNIX|TCP|UDP|socket)[^,]*' "$tmp/trace.$r" | sed -n 's/.* = \([0-9]*\)$/\1/p' | paste -sd+ | { read -r e; echo $((${e:-0})); })
	[ -s "$tmp/trace.$r" ] && [ "$bytes" -lt 65536 ] && [ "$bytes" -gt 0 ] && ok "rank $r sent $bytes bytes over sockets (< 64 KiB) while 64 MiB were reduced" ||
		bad "rank $r sent $bytes bytes over sockets"
done
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
