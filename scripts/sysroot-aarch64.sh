#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fills a folder with what an aarch64 build links against and what its programs load: sysroot-aarch64.sh DIR.
# Debian's arm64 packages are fetched with an apt state of their own and unpacked, so nothing about this machine's
# packages changes and root is not needed. Does nothing when DIR is complete.
set -eu
dir=${1:?sysroot-aarch64.sh DIR}
packages="libc6 libgcc-s1 libsodium23 libsodium-dev libjansson4 libjansson-dev libhwloc15 libhwloc-dev libudev1 check libsubunit0 libsubunit-dev libibverbs1 libibverbs-dev librdmacm1 librdmacm-dev libnl-3-dev libnl-route-3-dev
libnl-3-200 libnl-route-3-200"
[ "$(cat "$dir/complete" 2>/dev/null)" = "$packages" ] && exit 0
command -v apt-get dpkg-deb >/dev/null || { echo "sysroot-aarch64.sh: needs Debian's apt-get and dpkg-deb" >&2; exit 2; }
rm -rf "$dir"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/apt/debs"
apt=$(cd "$dir/apt" && pwd)
opt=(-q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$apt" -o Dir::State::status=/dev/null
	-o Dir::Cache="$apt/cache" -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none)
# shellcheck disable=SC2086
if ! { apt-get "${opt[@]}" update && cd "$apt/debs" && apt-get "${opt[@]}" download $packages; } >"$apt/log" 2>&1; then
	tail -n 20 "$apt/log" >&2
	echo "sysroot-aarch64.sh: Debian's arm64 packages could not be fetched: $packages" >&2
	exit 2
fi
cd "$apt/../"
for d in apt/debs/*.deb; do dpkg-deb -x "$d" .; done
rm -rf apt
echo "$packages" >complete
