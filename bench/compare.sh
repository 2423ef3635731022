#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The speed gate: collectives over shared memory, libsircl against Open MPI, same machine, same method, alternating.
#   bench/compare.sh [--quick] [--kinds LIST|all] [--sizes LIST] [--ranks N] [--pairs N] [--limit X]
# --quick (the default): all-reduce of 1 KiB, 64 KiB, 4 MiB. --kinds: names of sircl-bench, with commas; their ratios
# are printed, and held to the limit if --limit is given; all-reduce always is. --sizes: bytes of the larger buffer,
# with commas. Medians over the pairs. Exit 0: no ratio above its limit; 1: one is; 2: something did not run; 3: not
# run, Open MPI is not here.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
ranks=4 pairs=9 limit=1.3 limit_all='' kinds=all_reduce sizes=1024,65536,4194304
while [ $# -gt 0 ]; do
	case $1 in
	--quick) ;;
	--kinds) kinds=${2:?--kinds needs names}; shift ;;
	--sizes) sizes=${2:?--sizes needs bytes}; shift ;;
	--ranks) ranks=${2:?--ranks needs a number}; shift ;;
	--pairs) pairs=${2:?--pairs needs a number}; shift ;;
	--limit) limit=${2:?--limit needs a number}; limit_all=1; shift ;;
	*) echo "compare.sh: no option $1: --quick --kinds LIST --sizes LIST --ranks N --pairs N --limit X" >&2; exit 2 ;;
	esac
	shift
done
if [ "$kinds" = all ]; then
	kinds=all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,gather,scatter,sendrecv,barrier
fi

for tool in mpicc mpirun; do
	if ! command -v "$tool" >/dev/null; then
		echo "compare.sh: $tool is missing: apt-get install openmpi-bin libopenmpi-dev" >&2
		exit 3
	fi
done
if [ ! -x "$build/sircl-bench" ]; then
	echo "compare.sh: $build/sircl-bench is missing: run make" >&2
	exit 2
fi
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-compare-${SIRCL_LAB:-$$}-XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
mpicc -O2 -o "$tmp/mpi_collective" bench/mpi/mpi_collective.c || exit 2

# shellcheck disable=SC2317 # called by the name of the side
mpi() { # kind bytes iters warmup
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun --oversubscribe -n "$ranks" \
		--mca pml ob1 --mca btl self,vader --mca mpi_yield_when_idle 1 \
		"$tmp/mpi_collective" "$1" "$2" "$3" "$4" 2>"$tmp/err" | grep -E '^[0-9.]+$'
}
# shellcheck disable=SC2317
sircl() {
	SIRCL_TRANSPORT=shm timeout 120 "$build/sircl-bench" "$1" --ranks "$ranks" -b "$2" -e "$2" -n "$3" -w "$4" \
		-d float -c 1 --memory plain 2>"$tmp/err" | awk '/^ *[0-9]/ { print $6; exit }'
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# One kind and size: its row. 1: above its limit. Small sizes run for a tenth of a second at least: for some tens of milliseconds after
# their start the scheduler still moves both kinds of ranks about.
row() { # kind bytes
	local iters=$(($2 < 16384 ? 20000 : $2 < 524288 ? 600 : $2 < 16777216 ? 30 : 5)) us bound=$limit
	local warmup=$(((iters + 9) / 10))

	: >"$tmp/a" && : >"$tmp/b"
	for ((i = 0; i < pairs; i++)); do
		for side in sircl mpi; do
			us=$($side "$1" "$2" "$iters" "$warmup")
			if [ -z "$us" ]; then
				echo "compare.sh: $side failed in $1 of $2 bytes:" >&2
				cat "$tmp/err" >&2
				exit 2
			fi
			echo "$us" >>"$tmp/$([ $side = sircl ] && echo a || echo b)"
		done
	done
	if [ "$1" != all_reduce ] && [ -z "$limit_all" ]; then bound=-; fi
	awk -v k="$1" -v s="$2" -v a="$(median "$tmp/a")" -v b="$(median "$tmp/b")" -v l="$bound" 'BEGIN {
		high = l != "-" && a / b > l
		printf "  %-14s  %10d  %10.2f  %10.2f  %7.3f  %7s%s\n", k, s, a, b, a / b, l, high ? "  FAILED" : ""
		exit high }'
}

echo "# float, sum, $ranks ranks, $(nproc) cores, shared memory; us, medians of $pairs alternating pairs"
echo "# $(mpirun --version 2>/dev/null | head -n 1); $("$build/sircl" version 2>/dev/null | head -n 1)"
printf '# %-14s  %10s  %10s  %10s  %7s  %7s\n' kind size sircl "Open MPI" ratio limit
rc=0
for kind in ${kinds//,/ }; do
	for bytes in ${sizes//,/ }; do
		row "$kind" "$bytes" || rc=1
		if [ "$kind" = barrier ]; then break; fi # it has no sizes
	done
done
exit $rc
