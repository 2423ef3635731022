#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the library costs a processor: instructions of one rank per collective (all-reduce of 8 KiB by default), counted by callgrind
# over one process that drives four ranks on simulated lanes. What the simulator itself spends is left out.
#   bench/instructions.sh [--lanes sim|shm] [--bytes N] [--kind all_gather] [--by file|function]
# Prints one number; with --by also where they go. The same build gives the same number on every run, whatever else
# the machine does. Exit 3: not run, valgrind is not here.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
lanes=sim bytes=8192 kind=all_reduce by='' n=50
while [ $# -gt 0 ]; do
	case $1 in
	--lanes) lanes=${2:?--lanes needs sim or shm}; shift ;;
	--bytes) bytes=${2:?--bytes needs a number}; shift ;;
	--kind) kind=${2:?--kind needs a name, as all_reduce}; shift ;;
	--by) by=${2:?--by needs file or function}; shift ;;
	*) echo "instructions.sh: no option $1: --lanes sim|shm --bytes N --kind NAME --by file|function" >&2; exit 2 ;;
	esac
	shift
done
if ! command -v valgrind >/dev/null; then
	echo "instructions.sh: valgrind is not here: apt-get install valgrind" >&2
	exit 3
fi
make -s BUILD="$build" "$build/ring_cost" >&2
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-instructions-${SIRCL_LAB:-$$}-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
if ! timeout 120 valgrind --tool=callgrind --callgrind-out-file="$tmp/out" --collect-atstart=no --toggle-collect=measured* \
	--compress-strings=no --compress-pos=no "$build/ring_cost" "$lanes" "$bytes" "$n" "$kind" >"$tmp/log" 2>&1; then
	cat "$tmp/log" >&2
	exit 1
fi
# A cost line belongs to the file and function named last; the line after calls= is what the callee has spent.
awk -v per=$((n * 4)) -v by="$by" '
	/^fl=|^fi=|^fe=/ { file = substr($0, 4); next }
	/^fn=/ { fn = substr($0, 4); next }
	/^calls=/ { skip = 1; next }
	/^[0-9*+]/ {
		if (skip) { skip = 0; next }
		if (file ~ /lane\/sim|bench\/ring_cost/ || fn ~ /^(measured|operation|run_until|all_done|main)$/) next
		total += $2
		where[by == "file" ? file : fn] += $2
	}
	END {
		if (by != "") for (w in where) if (where[w] >= per) printf "%9.1f  %s\n", where[w] / per, w | "sort -rn"
		if (by != "") close("sort -rn")
		printf "%.0f\n", total / per
	}' "$tmp/out"
