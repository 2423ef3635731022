#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A switchless ring of network namespaces: real TCP, real link-down, no path between opposite ranks, no hardware.
#
#   ring.sh up [N] [LANES]     builds a ring of N ranks (default 4) with LANES lanes per cable (default 2), prints its name
#   ring.sh exec RANK CMD...   runs a command as that rank's machine
#   ring.sh test               builds its own ring, runs everything that check-netns is, takes it down; TESTS="NAME.." runs only these
#   ring.sh down               takes the ring down
#
# $SIRCL_LAB names the lab (default for up and test: the process id; for exec and down: the only lab there is). Needs root.
#
# Each rank is a namespace with ports n0.. (cable to the next rank), p0.. (cable to the previous one) and m0 (management,
# 10.253.255.(rank+1)/24). Each cable is a small bridge that joins the LANES ports of both its ends, as the two functions of a cage share one
# wire; a bridge is the management network. The bridges have a namespace of their own. Nothing has a name outside: namespaces live as long
# as their holder processes ("sircl-lab-NAME-r0" ...), and those of `test` die with the script, however it ends, with all that runs in them.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
# shellcheck disable=SC2034 # for tests.sh
build=${BUILD:-$top/build}
NET=10.253.255

die() { echo "ring.sh: $*" >&2; exit 2; }

# holder NAME: the process id of a holder, nothing if there is none
holder() { pgrep -f -o "^sircl-lab-$LAB-$1 infinity$" 2>/dev/null; }

# in_ns PID CMD...: never returns. -r: where this script runs in a chroot, so does the command
in_ns() { local pid=$1; shift; exec setpriv --pdeathsig KILL nsenter -t "$pid" -n -m -r -- "$@"; }

need() {
	[ "$(id -u)" = 0 ] || { echo "ring.sh: not run: needs root for network namespaces"; exit 3; }
	for t in ip tc nsenter setpriv unshare pgrep; do
		command -v $t >/dev/null || die "$t is missing: apt-get install iproute2 util-linux procps"
	done
	unshare -n true 2>/dev/null || { echo "ring.sh: not run: this kernel or container refuses network namespaces"; exit 3; }
}

hold() { # hold NAME [keep]
	local how=(setpriv --pdeathsig KILL)
	[ "${2:-}" = keep ] && how=(setsid)
	# an own /sys shows this namespace's devices; where mounting is refused the library does without
	"${how[@]}" unshare -n -m bash -c 'mount -t sysfs sysfs /sys 2>/dev/null; mount -t tmpfs sircl /mnt 2>/dev/null; exec -a "$0" sleep infinity' \
		"sircl-lab-$LAB-$1" </dev/null >/dev/null 2>&1 &
	disown # bash need not report its end
	for _ in $(seq 100); do
		[ -n "$(holder "$1")" ] && return 0
		sleep 0.02
	done
	die "the namespace of $1 did not start"
}

up() { # up N LANES [keep]
	local n=$1 lanes=$2 keep=${3:-} r l sw next
	[ "$n" -ge 2 ] && [ "$n" -le 64 ] && [ "$lanes" -ge 1 ] && [ "$lanes" -le 8 ] || die "up: 2 to 64 ranks, 1 to 8 lanes"
	[ -z "$(holder sw)" ] || die "lab $LAB exists already: ring.sh down, or another SIRCL_LAB"
	hold sw "$keep"
	sw=$(holder sw)
	PID=()
	for ((r = 0; r < n; r++)); do
		hold "r$r" "$keep"
		PID[r]=$(holder "r$r")
	done
	{
		echo "link add mg type bridge"
		echo "link set mg up"
		for ((r = 0; r < n; r++)); do
			echo "link add c$r type bridge mcast_snooping 0"
			echo "link set c$r up"
		done
		for ((r = 0; r < n; r++)); do
			next=$(((r + 1) % n))
			# a line of two has one cable
			for ((l = 0; l < lanes; l++)); do
				echo "link add c${r}a$l type veth peer name n$l netns ${PID[r]}"
				echo "link add c${r}b$l type veth peer name p$l netns ${PID[next]}"
				echo "link set c${r}a$l master c$r up"
				echo "link set c${r}b$l master c$r up"
			done
			echo "link add m$r type veth peer name m0 netns ${PID[r]}"
			echo "link set m$r master mg up"
		done
	} | nsenter -t "$sw" -n ip -batch - || die "the bridges could not be built"
	for ((r = 0; r < n; r++)); do
		{
			echo "link set lo up"
			for ((l = 0; l < lanes; l++)); do
				echo "link set n$l up"
				echo "link set p$l up"
			done
			echo "addr add $NET.$((r + 1))/24 dev m0"
			echo "link set m0 up"
		} | nsenter -t "${PID[r]}" -n bash -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; for d in /proc/sys/net/ipv6/conf/[npm][0-9]; do echo 0 >$d/accept_dad; done; ip -batch -' ||
			die "rank $r's ports could not be brought up"
	done
}

down() {
	local p
	for p in $(pgrep -f "^sircl-lab-$LAB-(sw|r[0-9]+) infinity$"); do
		kill -9 "$p" 2>/dev/null
	done
	for _ in $(seq 100); do
		pgrep -f "^sircl-lab-$LAB-" >/dev/null || return 0
		sleep 0.02
	done
}

only_lab() {
	[ -n "${SIRCL_LAB:-}" ] && { LAB=$SIRCL_LAB; return; }
	local labs
	labs=$(pgrep -fa '^sircl-lab-.*-sw infinity$' | sed 's/.*sircl-lab-\(.*\)-sw .*/\1/')
	[ -n "$labs" ] || die "there is no lab: ring.sh up"
	[ "$(echo "$labs" | wc -l)" = 1 ] || die "several labs exist ($(echo $labs)): set SIRCL_LAB"
	LAB=$labs
}

case ${1:-} in
up)
	need
	LAB=${SIRCL_LAB:-$$}
	up "${2:-4}" "${3:-2}" keep
	echo "lab $LAB: ${2:-4} ranks, ${3:-2} lanes per cable; SIRCL_LAB=$LAB tests/lab/netns/ring.sh exec 0 ip -br link"
	;;
exec)
	need
	only_lab
	rank=${2:-}
	[ $# -ge 3 ] || die "exec RANK CMD..."
	pid=$(holder "r$rank")
	[ -n "$pid" ] || die "lab $LAB has no rank $rank"
	shift 2
	exec nsenter -t "$pid" -n -m -r -- "$@"
	;;
down)
	need
	only_lab
	down
	;;
short) # for `test`: another lab at the same time, from beginning to end; short, pair or wide
	need
	LAB=${SIRCL_LAB:-$$}
	trap 'down' EXIT
	. "$here/tests.sh"
	"run_${2:-short}"
	;;
shapes) # a part of `test`: jobs on some machines, several ranks on one, two machines
	need
	LAB=${SIRCL_LAB:-$$}
	trap 'down' EXIT
	trap 'exit 143' TERM INT HUP
	. "$here/tests.sh"
	run_shapes
	;;
test)
	need
	LAB=${SIRCL_LAB:-$$}
	trap 'down' EXIT
	trap 'exit 143' TERM INT HUP
	. "$here/tests.sh"
	run_tests
	;;
*)
	sed -n '4,9p' "$0" | sed 's/^# \{0,2\}//'
	exit 2
	;;
esac
