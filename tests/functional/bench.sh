#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sircl-bench as its users call it: exit codes, checks that bite, the same bits whatever carries them, JSON.
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

for n in 1 2 3 4 5 8; do
	# shellcheck disable=SC2086
	expect 0 "all_reduce of $n ranks is right" all_reduce --ranks $n -b 2 -e 300K -f 7 -d all $few
	# shellcheck disable=SC2086
	expect 0 "all_gather of $n ranks is right" all_gather --ranks $n -b 8 -e 300K -f 9 -d all $few
done
for algo in two-matchings doubling exchange ring; do
	# shellcheck disable=SC2086
	expect 0 "$algo is right for large data in small windows" all_reduce --ranks 4 --algo $algo -b 3M -e 3M -d bfloat16 $few
done
expect 1 "a planted error in an all-reduce fails the check" all_reduce --ranks 4 -b 1K -e 1K --plant-error
says 'Out of bounds values : [1-9].* FAILED' out
expect 1 "a planted error in an all-gather fails the check" all_gather --ranks 3 -b 1K -e 1K --plant-error
expect 2 "a wrong option is refused before anything starts" all_reduce --ranks 4 --frobnicate
says 'no such option: --frobnicate' err
SIRCL_ALGO=banana expect 2 "an unknown SIRCL_ALGO is refused" all_reduce --ranks 2
says 'SIRCL_ALGO=banana' err
says 'auto two-matchings exchange ring' err
expect 2 "an algorithm that this fabric cannot have is refused" all_reduce --ranks 3 --algo two-matchings -b 8 -e 8
says 'possible: auto, exchange, ring' err
expect 2 "a type that cannot be summed yet is refused" all_reduce --ranks 2 -d int32 -b 8 -e 8
expect 2 "a JSON file that cannot be written is refused" all_reduce --ranks 2 -b 8 -e 8 --json "$tmp/no/such/folder"
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
if timeout 60 "$B/sircl" run -n 3 -- "$B/sircl-bench" all_gather -b 1K -e 1K $few >"$tmp/out" 2>"$tmp/err" && [ "$(grep -c '^# Using devices' "$tmp/out")" = 1 ]; then
	ok "under sircl run, rank 0 alone prints"
else
	bad "under sircl run"
fi
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
