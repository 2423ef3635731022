#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds for aarch64 with Debian's cross compiler and runs the unit tests and the simulator under qemu's user emulation.
# The emulator runs on this machine's memory order, so it shows what does not compile, is not portable or gives other bits,
# not what is ordered too weakly; for that see tests/README.md.
set -u
cd "$(dirname "$0")/.." || exit 2
B=${BUILD_AARCH64:-build-aarch64}
scripts/setup.sh build cross || exit 2
scripts/sysroot-aarch64.sh "$B/sysroot" || exit 2
root=$PWD/$B/sysroot
lib=$root/usr/lib/aarch64-linux-gnu
export PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
make -s -j"$(nproc)" BUILD="$B" CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar CFLAGS=-Werror CPPFLAGS="-isystem $root/usr/include -isystem $root/usr/include/aarch64-linux-gnu" \
	LDFLAGS="-L$lib -Wl,-rpath-link,$lib:$root/lib/aarch64-linux-gnu" programs tests || exit 1
# what a package that misses another would leave out silently
[ -x "$B/tests/unit/test_lane_verbs" ] || { echo "check-aarch64.sh: the cross build has no RDMA lanes: $B/sysroot" >&2; exit 1; }
[ "${1:-}" = build ] && exit 0
# Programs take 5 to 15 times as long as on this machine, so the simulator has fewer seeds. SIRCL_TEST_EMULATED: two tests
# leave out what the emulator has not (MADV_DONTFORK, reading SO_BINDTODEVICE); process_vm_writev, which it has not
# either, leaves shm lanes with the bounce ring.
export BUILD=$B RUNNER="qemu-aarch64 -L $root" TEST_LIMIT=${TEST_LIMIT:-240} CK_TIMEOUT_MULTIPLIER=20
export SIM_ARGS=${SIM_ARGS:---only d --seeds 400 --first-seed 1} SIRCL_TEST_SEEDS=${SIRCL_TEST_SEEDS:-60} SIRCL_TEST_EMULATED=1
exec scripts/check.sh unit
