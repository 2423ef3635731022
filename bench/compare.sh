#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The speed gate: all-reduce over shared memory, libsircl against Open MPI, same machine, same method, alternating.
#   bench/compare.sh [--quick] [--ranks N] [--pairs N] [--limit X]
# --quick (the default): 1 KiB, 64 KiB, 4 MiB. Medians over the pairs. Exit 0: no ratio above the limit; 1: one is;
# 2: something did not run; 3: not run, Open MPI is not here.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
ranks=4 pairs=9 limit=1.3
while [ $# -gt 0 ]; do
	case $1 in
	--quick) ;;
	--ranks) ranks=${2:?--ranks needs a number}; shift ;;
	--pairs) pairs=${2:?--pairs needs a number}; shift ;;
	--limit) limit=${2:?--limit needs a number}; shift ;;
	*) echo "compare.sh: no option $1: --quick --ranks N --pairs N --limit X" >&2; exit 2 ;;
	esac
	shift
done
# bytes, timed runs, warm-up runs
sizes=("1024 3000 300" "65536 600 60" "4194304 30 4")

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
mpicc -O2 -o "$tmp/mpi_allreduce" bench/mpi/mpi_allreduce.c || exit 2

mpi() { # bytes iters warmup
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun --oversubscribe -n "$ranks" \
		--mca pml ob1 --mca btl self,vader --mca mpi_yield_when_idle 1 \
		"$tmp/mpi_allreduce" "$1" "$2" "$3" 2>"$tmp/err" | grep -E '^[0-9.]+$'
}
sircl() {
	SIRCL_TRANSPORT=shm timeout 120 "$build/sircl-bench" all_reduce --ranks "$ranks" -b "$1" -e "$1" -n "$2" -w "$3" \
		-d float -c 1 --memory plain 2>"$tmp/err" | awk -v size="$1" '$1 == size { print $6 }'
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

echo "# all-reduce, float, sum, $ranks ranks, $(nproc) cores, shared memory; us, medians of $pairs alternating pairs"
echo "# $(mpirun --version 2>/dev/null | head -n 1); $("$build/sircl" version 2>/dev/null | head -n 1)"
printf '# %10s  %10s  %10s  %7s  %7s\n' size sircl "Open MPI" ratio limit
rc=0
for row in "${sizes[@]}"; do
	read -r bytes iters warmup <<<"$row"
	: >"$tmp/a" && : >"$tmp/b"
	for ((i = 0; i < pairs; i++)); do
		for side in sircl mpi; do
			if [ $side = sircl ]; then us=$(sircl "$bytes" "$iters" "$warmup"); else us=$(mpi "$bytes" "$iters" "$warmup"); fi
			if [ -z "$us" ]; then
				echo "compare.sh: $side failed at $bytes bytes:" >&2
				cat "$tmp/err" >&2
				exit 2
			fi
			echo "$us" >>"$tmp/$([ $side = sircl ] && echo a || echo b)"
		done
	done
	awk -v s="$bytes" -v a="$(median "$tmp/a")" -v b="$(median "$tmp/b")" -v l="$limit" 'BEGIN {
		printf "  %10d  %10.2f  %10.2f  %7.3f  %7.2f%s\n", s, a, b, a / b, l, (a / b > l) ? "  FAILED" : ""
		exit (a / b > l) }' || rc=1
done
exit $rc
