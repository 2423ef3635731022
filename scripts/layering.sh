#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Includes point down the house only, and nothing above lane/ reads a clock (time comes in as struct tick, or from
# ctx->clock). layering.sh [DIR]: DIR/libsircl is looked at (default: the tree).
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
declare -A MAY=(
	[base]="base"
	[lane]="lane base"
	[link]="link lane base"
	[reduce]="reduce base"
	[device]="device base"
	[engine]="engine coll link lane reduce device base"
	[coll]="coll engine/plan.h reduce base"
	[fabric]="fabric engine coll link lane base"
	[api]="api fabric coll engine link lane reduce device base"
)
rc=0
while IFS=: read -r file line inc; do
	room=${file#libsircl/}
	room=${room%%/*}
	target=${inc#*\"}
	target=${target%%\"*}
	[ "$target" = sircl/sircl.h ] && continue
	good=
	for m in ${MAY[$room]:-}; do
		case $target in "$m" | "$m"/*) good=1 ;; esac
	done
	[ -n "$good" ] || { echo "$file:$line: room $room may not include $target (allowed: ${MAY[$room]:-nothing})"; rc=1; }
	case $target in */internal.h | *_internal.h) [ "${target%%/*}" = "$room" ] || { echo "$file:$line: $target is private to its room"; rc=1; } ;; esac
done < <(grep -rnE '^#include "' libsircl --include='*.c' --include='*.h')
while IFS= read -r where; do
	echo "$where: a clock is read above lane/; ctx->clock is the one to ask"
	rc=1
done < <(grep -rnE '\b(clock_gettime|gettimeofday|timespec_get|time|times|clock|rdtsc|__rdtsc|__builtin_ia32_rdtsc)\(' libsircl --include='*.c' --include='*.h' |
	grep -vE '^libsircl/lane/|(->|\.)clock\(|\(\*clock\)' | cut -d: -f1,2)
exit $rc
