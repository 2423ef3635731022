#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing for the groups named (as root, with apt-get); otherwise names them and exits 2.
#   setup.sh [-n] GROUP...      -n: only say what is missing; groups: build check lint san cross compare fresh vm
# Installs nothing, and says nothing, when nothing is missing.
set -u
declare -A GROUP=(
	[build]="gcc make pkg-config libc6-dev libsodium-dev libsodium23 libjansson-dev libhwloc-dev libhwloc15 libibverbs-dev librdmacm-dev"
	[check]="check strace iproute2 iputils-ping util-linux procps binutils python3 groff-base"
	[lint]="clang-format clang-tidy clang shellcheck"
	[san]="clang valgrind"
	[cross]="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
	[compare]="openmpi-bin libopenmpi-dev"
	[fresh]="debootstrap"
	[vm]="qemu-system-x86 busybox-static cpio gzip util-linux iproute2 iputils-ping ibverbs-providers ibverbs-utils rdmacm-utils perftest"
)
only_say=
[ "${1:-}" = -n ] && { only_say=1; shift; }
want=
for g in "$@"; do
	[ -n "${GROUP[$g]:-}" ] || { echo "setup.sh: no group $g: ${!GROUP[*]}" >&2; exit 2; }
	want+=" ${GROUP[$g]}"
done
command -v dpkg-query >/dev/null || { echo "setup.sh: not a Debian system; needed are Debian's packages:$want" >&2; exit 2; }

# -E and clang of another version, pkgconf instead of pkg-config ... count as present when they provide the name
installed=" $(dpkg-query -W -f='${db:Status-Abbrev} ${Package} ${Provides}\n' 2>/dev/null | sed -n 's/^.i  *//p' |
	sed 's/([^)]*)//g; s/,/ /g' | tr '\n' ' ') "
missing=
for p in $want; do
	case "$installed" in *" $p "*) ;; *) case " $missing " in *" $p "*) ;; *) missing+=" $p" ;; esac ;; esac
done
[ -z "$missing" ] && exit 0
if [ -n "$only_say" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "missing Debian packages; install them with:  apt-get install --no-install-recommends$missing" >&2
	exit 2
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
# shellcheck disable=SC2086
if ! { apt-get -q update && apt-get -q -y install --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	rm -f "$log"
	echo "setup.sh: apt-get could not install:$missing" >&2
	exit 2
fi
rm -f "$log"
