#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Proves the set-up: in a fresh Debian 12 that has nothing but git, gcc, make and ca-certificates, `make demo` and `make check` are all that
# a user needs; a second run installs nothing. Needs root and debootstrap (installed here if missing). FRESH_TARGETS overrides
# what is run (default: demo check).
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "check-fresh: not run: needs root" >&2; exit 3; }
"$top/scripts/setup.sh" fresh
lab=${SIRCL_LAB:-$$}
root=$(mktemp -d "${TMPDIR:-/tmp}/sircl-fresh-$lab-XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root" # a user that is not root lives in it, too
# the mirror this machine uses
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
	sed -n 's/^URIs: *\([^ ]*\/debian\)\/*$/\1/p; s/^deb \(\[[^]]*\] \)*\([^ ]*\/debian\)\/* .*/\2/p' | head -n 1)
mirror=${mirror:-http://deb.debian.org/debian}
echo "check-fresh: debootstrap minbase bookworm"
debootstrap --variant=minbase --include=git,gcc,make,ca-certificates bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
	{ tail -n 20 "$root.log"; rm -f "$root.log"; exit 1; }
rm -f "$root.log"
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
git clone -q --no-hardlinks "$top" "$root/libsircl"
cat >"$root/run.sh" <<'INNER'
set -eu
cd /libsircl
export HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
echo "check-fresh: without root, make demo names the packages and fails with 2"
rc=0
out=$(setpriv --reuid 65534 --regid 65534 --clear-groups make demo 2>&1) || rc=$?
[ $rc = 2 ] && echo "$out" | grep 'apt-get install .*libsodium-dev' || { echo "$out"; exit 1; }
for t in $FRESH_TARGETS; do
	echo "check-fresh: make $t"
	make -j2 "$t" || { echo "check-fresh: make $t failed"; exit 1; }
done
echo "check-fresh: make demo again must install nothing"
if make -j2 demo 2>&1 | tee /tmp/second | grep -q '^installing:'; then
	grep '^installing:' /tmp/second
	exit 1
fi
grep -q 'Avg bus bandwidth' /tmp/second || { cat /tmp/second; exit 1; }
INNER
# a private mount namespace: the root bind-mounted on itself, or mounts below it would leak and `ip netns` fail. With a pid namespace of its
# own nothing can outlive it.
FRESH_TARGETS=${FRESH_TARGETS:-demo check} unshare --mount --pid --fork --kill-child bash -c '
	mount --make-rprivate / && mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" &&
	mount -t tmpfs tmpfs "$0/run" && mount -t tmpfs tmpfs "$0/tmp" && mount --rbind /dev "$0/dev" &&
	exec chroot "$0" /usr/bin/env -i FRESH_TARGETS="$FRESH_TARGETS" SIRCL_LAB="'"$lab"'" ${CI:+CI=$CI} bash /run.sh' "$root"
echo "check-fresh: passed"
