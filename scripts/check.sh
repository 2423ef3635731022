#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs parts of the test suite: check.sh PART..., parts: unit functional netns vm long.
# Every test program ends by itself or is ended; the last line is `N passed, N failed, N skipped`; exit 1 if anything failed.
set -u
cd "$(dirname "$0")/.." || exit 2
export BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
lab=${SIRCL_LAB:-$$}
export SIRCL_LAB=$lab
P=0 F=0 S=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-check-$lab-XXXXXX")
trap 'rm -rf "$tmp"' EXIT

add() { P=$((P + $1)) F=$((F + $2)) S=$((S + $3)); }

# count LOG RC: adds the numbers in a log's last "N passed, ..." line or Check's; a log without either counts as one test
count() {
	local line
	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$1" | tail -n 1)
	if [ -n "$line" ]; then
		# shellcheck disable=SC2046
		set -- "$1" "$2" $(echo "$line" | grep -oE '[0-9]+')
		if [ "$2" != 0 ] && [ "$4" = 0 ]; then set -- "$1" "$2" "$3" 1 "${5:-0}"; fi
		add "$3" "$4" "${5:-0}"
	elif grep -qE '^[0-9]+%: Checks: ' "$1"; then
		local c f
		c=$(sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\).*/\1/p' "$1" | paste -sd+ | bc_)
		f=$(sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\).*/\2+\3/p' "$1" | paste -sd+ | bc_)
		if [ "$2" != 0 ] && [ "$f" = 0 ]; then f=1; fi
		add $((c - f)) "$f" 0
	elif [ "$2" = 0 ]; then
		add 1 0 0
	else
		add 0 1 0
	fi
}
bc_() { local e; read -r e; echo $((e)); }

# one NAME LIMIT CMD...: quiet when it passes
one() {
	local name=$1 limit=$2 log rc t0 t1
	shift 2
	log=$tmp/$(echo "$name" | tr -c 'A-Za-z0-9\n' _)
	t0=$(date +%s%N)
	timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null
	rc=$?
	t1=$(date +%s%N)
	printf '  %-4s %6d ms  %s\n' "$([ $rc = 0 ] && echo ok || { [ $rc = 3 ] && echo SKIP || echo FAIL; })" $(((t1 - t0) / 1000000)) "$name"
	if [ $rc = 3 ] && [ -z "${CI:-}" ]; then
		sed 's/^/       | /' "$log" | tail -n 3
		add 0 0 1
		return
	fi
	if [ $rc != 0 ]; then # what failed may lie far above the end
		grep -nE '(^| )FAIL|:[EF]:' "$log" | head -n 20 | sed 's/^/       > /'
		sed 's/^/       | /' "$log" | tail -n 60
	fi
	[ -n "${SHOW:-}" ] && [ $rc = 0 ] && sed 's/^/       | /' "$log" | tail -n 80
	[ $rc = 124 ] && echo "       | ended after $limit s"
	count "$log" $rc
}

# Unit tests of one thread that mostly compute run beside the others, which sleep, race and measure; so two cores are used.
COMPUTE=" test_bench_verify test_coll_choose test_coll_kinds test_coll_mutate test_coll_numbers test_coll_prove test_engine_exec
	test_engine_kinds test_engine_ring test_engine_teams test_link_stripe test_reduce_kernels test_reduce_values "

# stream NAME TEST...: its numbers go to a file
stream() {
	local name=$1 t
	shift
	P=0 F=0 S=0
	for t in "$@"; do
		# RUNNER: an emulator or valgrind, with its options. SIM_ARGS, TEST_LIMIT: for builds that run slowly
		# shellcheck disable=SC2086
		case $t in
		*/sim) one sim "${TEST_LIMIT:-240}" ${RUNNER:-} "$t" ${SIM_ARGS:-} ;;
		*) one "${t##*/}" "${TEST_LIMIT:-90}" ${RUNNER:-} "$t" ;;
		esac
	done
	echo "$P $F $S" >"$tmp/numbers-$name"
}

unit() {
	local t others=() compute=() n
	for t in "$BUILD"/tests/unit/test_*; do
		case $t in *.o | *.d) continue ;; esac
		# UNIT_EXCEPT: programs of one thread that are too slow for a build that looks for races
		case " ${UNIT_EXCEPT:-} " in *" ${t##*/} "*) echo "  --            left out: ${t##*/}" && continue ;; esac
		case $COMPUTE in *[[:space:]]"${t##*/}"[[:space:]]*) compute+=("$t") ;; *) others+=("$t") ;; esac
	done
	[ -x "$BUILD/tests/sim" ] && others+=("$BUILD/tests/sim") # so that both take about as long
	(stream compute "${compute[@]}") >"$tmp/compute.out" &
	(stream others "${others[@]}")
	wait $!
	cat "$tmp/compute.out"
	for t in compute others; do
		read -ra n <"$tmp/numbers-$t"
		add "${n[0]}" "${n[1]}" "${n[2]}"
	done
}

for part in "$@"; do
	echo "== $part"
	case $part in
	unit)
		unit
		;;
	functional)
		for t in tests/functional/*.sh; do
			one "${t##*/}" 180 bash "$t"
		done
		;;
	netns)
		SHOW=1 one "netns ring" 700 tests/lab/netns/ring.sh test
		;;
	vm)
		SHOW=1 one "ring of virtual machines" 900 tests/lab/vm/check.sh
		;;
	long)
		SHOW=1 one "sim, 10,000 seeds" 1500 "$BUILD/tests/sim" --seeds 10000 --first-seed 1
		SHOW=1 one "sim, every lane loss, every schedule of 10 events" 900 "$BUILD/tests/sim" --only c --events 10
		SHOW=1 one "sim, rates of all-reduce and all-gather with lanes lost and slow" 400 "$BUILD/tests/sim" --only e
		one "planted faults" 900 make -s check-plants BUILD="$BUILD"
		SHOW=1 one "speed gate" 900 bench/compare.sh --quick
		;;
	*)
		echo "check.sh: no part $part: unit functional netns vm long" >&2
		exit 2
		;;
	esac
done
echo "$P passed, $F failed, $S skipped"
[ $F = 0 ]
