#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Records what libsircl reads of a machine's sysfs, and nothing else: record-sysfs.sh FILE [SYSFS] (default: /sys).
# FILE is plain text; tests/unit/sysfs_tree.h rebuilds the tree from it, and tests/unit/test_fabric_inventory.c reads
# every tests/data/sysfs/*.txt. Needs no root. Lines:
#   f PATH TEXT   a file      l PATH TARGET   a link      u PATH   there, but it cannot be read
#   ! ports N     RDMA ports, counted here             ! link DEVICE/PORT STATE NETDEV     as `rdma link` sees them
set -u
file=${1:?record-sysfs.sh FILE [SYSFS]}
S=${2:-/sys}
S=$(realpath "$S") || exit 2
cd "$S" || exit 2

# real PATH: where it is, from $S; PATH itself if that is outside
real() {
	local r
	r=$(realpath -m --relative-to=. "$1")
	case $r in ..*) echo "$1" ;; *) echo "$r" ;; esac
}
f() { # f PATH...: without starting programs, of which a guest that is emulated starts few a second
	local p v
	for p in "$@"; do
		[ -e "$p" ] || continue
		v=
		[ -f "$p" ] && { IFS= read -r -n 4000 v <"$p"; } 2>/dev/null
		if [ -n "$v" ]; then echo "f $p $v"; else echo "u $p"; fi
	done
}
l() { [ -L "$1" ] && echo "l $1 $(readlink "$1")"; }
# class_link PATH: the link to where it is, if it is one; sets r
class_link() {
	r=$(real "$1")
	[ "$r" = "$1" ] || echo "l $1 ../../$r"
}
# place DIR: the device behind, as far as it says where it is
place() {
	l "$1/device"
	[ -d "$1/device" ] && f "$(real "$1/device")/numa_node"
}
ports=0
record() {
	local d p g r
	for d in class/infiniband/*; do
		[ -e "$d" ] || continue
		class_link "$d"
		f "$r/node_guid" "$r/sys_image_guid" "$r/parent"
		place "$r"
		for p in "$r"/ports/*; do
			[ -d "$p" ] || continue
			ports=$((ports + 1))
			f "$p/state" "$p/rate" "$p/link_layer"
			# of the empty ones a few are enough
			for g in $( (cd "$p/gids" && { printf '%s\n' [0-7]; grep -l '[1-9a-f]' ./* | cut -c3-; } | sort -nu) 2>/dev/null); do
				f "$p/gids/$g" "$p/gid_attrs/types/$g" "$p/gid_attrs/ndevs/$g"
			done
		done
	done
	for d in class/net/*; do
		[ -d "$d" ] || continue
		class_link "$d"
		f "$r/dev_port" "$r/phys_port_name" "$r/phys_switch_id" "$r/operstate" "$r/mtu"
		place "$r"
	done
	for d in bus/pci/devices/*; do
		[ -e "$d/class" ] || continue
		case $(cat "$d/class") in 0x02*) ;; *) continue ;; esac
		r=$(real "$d")
		[ "$r" = "$d" ] || echo "l $d ../../../$r"
		f "$r/numa_node" "$r/local_cpulist"
	done
	for d in devices/system/cpu/cpu[0-9]*; do
		[ -d "$d" ] || continue
		f "$d/cpu_capacity" "$d/cpufreq/cpuinfo_max_freq"
	done
	for d in devices/system/node/node[0-9]*; do
		f "$d/cpulist"
	done
	echo "! ports $ports"
	[ "$S" = /sys ] && command -v rdma >/dev/null && rdma link show 2>/dev/null |
		sed -nE 's/^link ([^ ]+) state ([^ ]+) .*netdev ([^ ]+).*/! link \1 \2 \3/p'
	return 0
}
cd "$OLDPWD" || exit 2
{
	echo "# Recorded by tests/unit/record-sysfs.sh: Linux $(uname -r | cut -d- -f1) $(uname -m)"
	cd "$S" && record
} >"$file"
