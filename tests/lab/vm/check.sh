#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What check-vm runs: two boots of the lab, one without any IPv4 address and one with. Each guest says what holds; the last line is
# `N passed, N failed, N skipped`. BOOTS="boot_ipv6", TESTS="test_x .." run less. VM_WORK: where kernel and initramfs are kept
# ($BUILD/vm). KEEP=DIR: what the guests and ranks printed stays there.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
export BUILD=${BUILD:-$top/build}
export SIRCL_LAB=${SIRCL_LAB:-$$}
export VM_WORK=${VM_WORK:-$BUILD/vm}
out=${KEEP:-$(mktemp -d "${TMPDIR:-/tmp}/sircl-vm-check-$SIRCL_LAB-XXXXXX")}
[ -n "${KEEP:-}" ] || trap 'rm -rf "$out"' EXIT
child=
trap '[ -n "$child" ] && kill "$child" 2>/dev/null; exit 143' TERM INT HUP
P=0 F=0
LIMIT=860 # seconds for all boots together: the lab ends by itself, also where it is three times slower than on two quiet cores

# count TEXT FILE: lines that say so
count() { [ -e "$2" ] || echo 0; grep -sc "^  $1 " "$2"; }

boot() { # boot NAME [OPTION..]
	local name=$1 rc g p f failed=0
	shift
	mkdir -p "$out/$name"
	"$here/vm.sh" run "$@" -o "$out/$name" -t $((LIMIT - SECONDS)) "$here/$name.sh" >"$out/$name.log" 2>&1 &
	child=$!
	wait $child
	rc=$?
	child=
	if [ $rc = 3 ]; then
		cat "$out/$name.log"
		exit 3
	fi
	echo "-- $name"
	sed 's/^/  /' "$out/$name.log"
	for g in 0 1 2 3; do
		p=$(count ok "$out/$name/out.$g") f=$(count FAIL "$out/$name/out.$g")
		P=$((P + p)) F=$((F + f)) failed=$((failed + f))
		if [ $g = 0 ]; then
			cat "$out/$name/out.0"
		else
			echo "  guest $g: $p passed, $f failed"
			grep -E -B 8 '^  FAIL ' "$out/$name/out.$g"
		fi
	done
	if [ $rc != 0 ] && [ $failed = 0 ]; then # no guest says why
		F=$((F + 1))
		for g in 0 1 2 3; do tail -n 5 "$out/$name/out.$g" "$out/$name/console.$g"; done
	fi
}

# What the guests compare with: the digests over shm, here on the host. Each algorithm with each kind that has it on a ring of 4: exchange is
# that of all, ring that of all_reduce, all_gather and reduce_scatter, and a start takes longer than other kinds beside.
PAIRS="exchange:all two-matchings:all_reduce doubling:all_reduce two-shot:all_reduce ring:all
	pipeline:broadcast pipeline:reduce"
shm_digests() { # shm_digests FOLDER
	local pair args
	mkdir -p "$1"
	echo "$PAIRS" >"$1/pairs"
	for pair in $PAIRS; do
		args="${pair#*:} --algo ${pair%:*} -b 512 -e 32K -f 64 -n 1 -w 0 -d bfloat16 --digest"
		echo "$args" >"$1/args.$pair"
		# shellcheck disable=SC2086
		timeout 60 "$BUILD/sircl-bench" $args --transport shm --ranks 4 >"$1/shm.$pair" 2>&1 || tail -n 3 "$1/shm.$pair"
	done
}

shm_digests "$out/boot_ipv6"
for b in ${BOOTS:-boot_ipv6 boot_ipv4}; do
	case $b in
	boot_ipv4) boot "$b" -4 ;;
	*) boot "$b" ;;
	esac
done
echo "the whole lab: $SECONDS s"
echo "$P passed, $F failed, 0 skipped"
[ $F = 0 ]
