#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sircl-bench as its users call it: exit codes, checks that bite, every kind, the same bits whatever carries them, JSON.
set -u
B=${BUILD:-build}
p=0 f=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-bench-${SIRCL_LAB:-$$}-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
bench() { timeout 60 "$B/sircl-bench" "$@" >"$tmp/out" 2>"$tmp/err"; }
ok() { p=$((p + 1)); echo "  ok   $*"; }
bad() { f=$((f + 1)); echo "  FAIL $*"; sed 's/^/       | /' "$tmp/out" "$tmp/err" | tail -n 20; }
# expect RC WHAT ARGS...
expect() {
	local want=$1 what=$2 rc
	shift 2
	bench "$@"
	rc=$?
	if [ $rc = "$want" ]; then ok "$what"; else bad "$what: exit $rc, not $want: $*"; fi
}
says() { if grep -q -- "$1" "$tmp/$2"; then ok "... and says: $1"; else bad "does not say: $1"; fi; }
digest() { sed -n 's/^# Digest *: //p' "$tmp/out"; }
few="-n 2 -w 1"

kinds="all_reduce all_gather reduce_scatter broadcast reduce all_to_all gather scatter sendrecv barrier"
for n in 1 2 3 4 5 8; do
	few_types="-d all"
	[ $n = 8 ] && few_types="-d f8e5m2" # where values of 8 ranks have the least room
	# shellcheck disable=SC2086
	expect 0 "every kind and operation of $n ranks is right" all --ranks $n -o all $few_types -b 1 -e 1K -f 31 -n 1 -w 0
	for k in $kinds; do
		if grep -qE "^# $k +[1-9][0-9]* +0 +[0-9.]+  OK$" "$tmp/out"; then ok "... $k"; else bad "... no line for $k"; fi
	done
done
# shellcheck disable=SC2086
expect 0 "every root of 5 ranks is right, in turning buffers" all --ranks 5 -r all --rotate 3 -d bfloat16 -b 2 -e 300K -f 600 $few
for algo in two-matchings doubling exchange ring; do
	# shellcheck disable=SC2086
	expect 0 "$algo is right for large data in small windows" all_reduce --ranks 4 --algo $algo -b 3M -e 3M -d bfloat16 $few
done
for k in $kinds; do
	# shellcheck disable=SC2086
	expect 1 "a planted error in $k fails the check" $k --ranks 3 -b 1K -e 1K -d int8 --plant-error $few
	says 'Out of bounds values : 1 FAILED' out
done
expect 1 "with all, each kind has its planted error" all --ranks 2 -b 1K -e 1K --plant-error
says 'Out of bounds values : 10 FAILED' out
expect 2 "a wrong option is refused before anything starts" all_reduce --ranks 4 --frobnicate
says 'no such option: --frobnicate' err
SIRCL_ALGO=banana expect 2 "an unknown SIRCL_ALGO is refused" all_reduce --ranks 2
says 'SIRCL_ALGO=banana' err
says 'auto two-matchings exchange ring' err
expect 2 "an algorithm that this fabric cannot have is refused" all_reduce --ranks 3 --algo two-matchings -b 8 -e 8
says 'possible: auto, exchange, ring' err
expect 2 "a root that is no rank is refused" broadcast --ranks 2 -r 2 -b 8 -e 8
says 'the 2 ranks are 0 to 1' err
expect 2 "a CSV file that cannot be written is refused" all_reduce --ranks 2 -b 8 -e 8 --csv "$tmp/no/such/folder"
expect 2 "a JSON file that cannot be written is refused" all_reduce --ranks 2 -b 8 -e 8 --json "$tmp/no/such/folder"
SIRCL_RANK=0 expect 2 "a rank without a size is refused" barrier
says 'SIRCL_RANK is set and SIRCL_NRANKS is not' err
SIRCL_NRANKS=2 expect 2 "a size without a rank is refused" barrier
says 'SIRCL_NRANKS is set and SIRCL_RANK is not' err
expect 0 "help needs nothing" --help

# the same bits over 1, 2, 4 lanes, over tcp, with small slices and windows, in either kind of memory
for algo in two-matchings doubling exchange ring; do
	first=
	for how in "--lanes 1" "--lanes 2" "--lanes 4" "--transport tcp" "--memory plain"; do
		# shellcheck disable=SC2086
		bench all_reduce --ranks 4 --algo $algo --digest -b 1K -e 256K -f 16 -d bfloat16 $few $how || bad "$algo $how"
		first=${first:-$(digest)}
		if [ -n "$first" ] && [ "$(digest)" = "$first" ]; then ok "$algo $how: digest $first"; else bad "$algo $how: $(digest) is not $first"; fi
	done
	# shellcheck disable=SC2086
	SIRCL_SLICE=4096 SIRCL_WINDOW=65536 bench all_reduce --ranks 4 --algo $algo --digest -b 1K -e 256K -f 16 -d bfloat16 $few
	if [ "$(digest)" = "$first" ]; then ok "$algo, small slices and window"; else bad "$algo, small slices: $(digest) is not $first"; fi
	for how in shm tcp; do
		# shellcheck disable=SC2086
		SIRCL_CHECKSUM=1 bench all_reduce --ranks 4 --algo $algo --transport $how --digest -b 1K -e 256K -f 16 -d bfloat16 $few
		if [ "$(digest)" = "$first" ]; then ok "$algo, checksums over $how"; else bad "$algo, checksums over $how: $(digest) is not $first"; fi
	done
	others="${others:-} $first"
done
if [ "$(echo "$others" | tr ' ' '\n' | sort -u | grep -c .)" = 4 ]; then ok "the digests of the algorithms differ: they see the order"; else bad "digests:$others"; fi

expect 0 "JSON is written" all_reduce --ranks 4 -b 8 -e 4K -f 8 -d bfloat16 --digest --json "$tmp/out.json"
if command -v python3 >/dev/null; then
	if python3 - "$tmp/out.json" <<-'PY'
		import json, sys
		j = json.load(open(sys.argv[1]))
		assert j["schema_version"] == 1 and j["complete"] and j["wrong"] == 0 and j["nranks"] == 4
		assert [r["size"] for r in j["results"]] == [8, 64, 512, 4096] and len(j["ranks"]) == 4
		for r in j["results"]:
		    for place in ("out_of_place", "in_place"):
		        m = r[place]
		        assert 0 < m["min_us"] <= m["p50_us"] <= m["p99_us"] <= m["max_us"] and 0 <= m["slowest_rank"] < 4
		        assert m["min_us"] <= m["time_us"] <= m["max_us"] and m["wrong"] == 0
		        assert abs(m["busbw_gbs"] - m["algbw_gbs"] * 1.5) <= 1e-6 * m["busbw_gbs"]
	PY
	then ok "... and has what it should"; else bad "JSON: $(cat "$tmp/out.json")"; fi
fi
# shellcheck disable=SC2086
expect 2 "a full disk is told at the end" barrier --ranks 2 -n 1 --csv /dev/full
says "cannot write /dev/full: No space left" err
if grep -q 'rank . called' "$tmp/err"; then bad "the other rank is left in the middle"; else ok "... and by nobody else"; fi
expect 0 "CSV is written" all --ranks 3 -b 8 -e 64 -f 8 -d float --csv "$tmp/out.csv" $few
if awk -F, 'NR == 1 { n = NF; next } NF != n || $17 != 0 || !($10 <= $11) { exit 1 } { seen[$1]++; rows++ } END { for (k in seen) kinds++; exit !(kinds == 10 && rows == 2 * 2 * 8 + 2 + 1) }' "$tmp/out.csv"; then
	ok "... a line per size and place"
else
	bad "CSV: $(cat "$tmp/out.csv")"
fi
# on a terminal a long run says how far it is; elsewhere it does not. Long enough for any machine, and ended then
if command -v script >/dev/null; then
	how="$B/sircl-bench all_reduce --ranks 2 -b 8 -e 8 -d all -o all -n 20000 -w 0"
	timeout 60 script -qec "$how 2>&1 >/dev/null" /dev/null >"$tmp/out" 2>"$tmp/err" </dev/null &
	for ((i = 0; i < 280; i++)); do
		grep -q 'row [0-9]* of' "$tmp/out" && break
		sleep 0.2
	done
	kill $! 2>/dev/null
	wait $! 2>/dev/null
	says 'row [0-9]* of 60, [0-9]* s: all_reduce, 8 bytes' out
	# shellcheck disable=SC2086
	timeout 4 $how >"$tmp/out" 2>"$tmp/err"
	if grep -q 'row [0-9]* of' "$tmp/err"; then bad "progress without a terminal"; else ok "without a terminal it does not"; fi
fi
# shellcheck disable=SC2086
if timeout 60 "$B/sircl" run -n 3 -- "$B/sircl-bench" all_gather -b 1K -e 1K $few >"$tmp/out" 2>"$tmp/err" && [ "$(grep -c '^# Using devices' "$tmp/out")" = 1 ]; then
	ok "under sircl run, rank 0 alone prints"
else
	bad "under sircl run"
fi
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
