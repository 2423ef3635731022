#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# clang-format, clang-tidy (not of what needs MPI), shellcheck, layering (design: a room includes only headers of the rooms below it). Prints what is wrong; exit 1.
set -u
cd "$(dirname "$0")/.." || exit 2
scripts/setup.sh lint || exit 2
rc=0
tidied=$(mktemp "${TMPDIR:-/tmp}/sircl-tidy-${SIRCL_LAB:-$$}-XXXXXX") || exit 2
trap 'rm -f "$tidied"' EXIT
mapfile -t c < <(git ls-files '*.c' '*.h')
mapfile -t sh < <(git ls-files '*.sh' '.ci/run')
clang-format --dry-run -Werror "${c[@]}" || rc=1
shellcheck -S warning "${sh[@]}" || rc=1
scripts/layering.sh || rc=1
# one file at a time: given several, clang-tidy 14 takes every va_list after the first file's for uninitialised
mapfile -t tidy < <(git ls-files 'libsircl/*.c' 'tools/*.c' 'bench/*.c' ':!bench/mpi')
if ! printf '%s\n' "${tidy[@]}" | xargs -P 2 -n 1 sh -c 'clang-tidy --quiet "$@" -- -std=gnu11 -Iinclude -Ilibsircl -D_GNU_SOURCE -DSIRCL_VERBS -DHAVE_HWLOC 2>/dev/null' sh >"$tidied"; then rc=1; fi
cat "$tidied"
grep -qE 'warning:|error:' "$tidied" && rc=1
[ $rc = 0 ] && echo "lint: clean"
exit $rc
