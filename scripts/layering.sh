#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Includes point down the house only, and nothing above lane/ reads a clock (time comes in as struct tick, or from
# ctx->clock). layering.sh [DIR]: the house in DIR is looked at (default: the tree). Tests may include anything.
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
	# beside the library: what is named, the public header, and the files of the own folder
	[public]=""
	[tools]="base"
	[tools-inner]="fabric lane base"
	[bench]=""
	[bench-inner]="engine coll link lane reduce device base"
	[examples]=""
	[nccl-net-plugin]="fabric engine link device base"
	[nccl-net-plugin/abi]=""
)

# room_of FILE: the row of MAY that it is under
room_of() {
	local f=${1#libsircl/}
	case $1 in
	libsircl/*) room=${f%%/*} ;;
	include/*) room=public ;;
	tools/cmd_topo* | tools/cmd_doctor* | tools/cmd_sim*) room=tools-inner ;;
	bench/lane_pingpong.c | bench/ring_cost.c | bench/reduce_rate.c) room=bench-inner ;; # a lane, a thread, a sum alone: not what a user measures
	nccl-net-plugin/abi/*) room=nccl-net-plugin/abi ;;
	*) room=${1%%/*} ;;
	esac
}

rc=0
dirs=()
for d in libsircl include tools bench examples nccl-net-plugin; do [ -d "$d" ] && dirs+=("$d"); done
while IFS=: read -r file line inc; do
	room_of "$file"
	target=${inc#*[\"<]}
	target=${target%%[\">]*}
	[ "$target" = sircl/sircl.h ] && continue
	# a folder that is no room of ours (<sys/mman.h>), or a header of the C library
	case $inc in *\<*) case $target in */*) [ -d "libsircl/${target%%/*}" ] || continue ;; *) continue ;; esac ;; esac
	# beside the library, the files of the own folder
	case $file in libsircl/*) ;; *) [ ! -f "${file%/*}/$target" ] || continue ;; esac
	good=
	for m in ${MAY[$room]:-}; do
		case $target in "$m" | "$m"/*) good=1 ;; esac
	done
	[ -n "$good" ] || { echo "$file:$line: room $room may not include $target (allowed: ${MAY[$room]:-the public header alone})"; rc=1; }
	[ "$room" = bench-inner ] && continue # one function alone is private
	case $target in */internal.h | *_internal.h) [ "${target%%/*}" = "$room" ] || { echo "$file:$line: $target is private to its room"; rc=1; } ;; esac
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "${dirs[@]}" --include='*.c' --include='*.h')
while IFS= read -r where; do
	echo "$where: a clock is read above lane/; ctx->clock is the one to ask"
	rc=1
done < <(grep -rnE '\b(clock_gettime|gettimeofday|timespec_get|time|times|clock|rdtsc|__rdtsc|__builtin_ia32_rdtsc)\(' libsircl --include='*.c' --include='*.h' |
	grep -vE '^libsircl/lane/|(->|\.)clock\(|\(\*clock\)' | cut -d: -f1,2)
exit $rc
