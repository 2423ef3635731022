#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The house: includes point downwards, only lane/ reads a clock; and the check notices when that is broken.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
p=0 f=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-layering-${SIRCL_LAB:-$$}-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
t() { # t WHAT WANTED_RC CMD...
	local what=$1 want=$2 rc
	shift 2
	"$@" >"$tmp/out" 2>&1
	rc=$?
	if [ $rc = "$want" ]; then p=$((p + 1)); echo "  ok   $what"; else f=$((f + 1)); echo "  FAIL $what (rc $rc)"; cat "$tmp/out"; fi
}
t "the tree keeps the layers" 0 "$top/scripts/layering.sh"
mkdir -p "$tmp/libsircl/link" "$tmp/libsircl/lane"
echo '#include "engine/engine.h"' >"$tmp/libsircl/link/a.c"
t "an include that points up the house is found" 1 "$top/scripts/layering.sh" "$tmp"
echo '#include "lane/tcp_internal.h"' >"$tmp/libsircl/link/a.c"
t "a header private to another room is found" 1 "$top/scripts/layering.sh" "$tmp"
echo 'void f(void) { clock_gettime(1, 0); }' >"$tmp/libsircl/link/a.c"
t "a clock above lane/ is found" 1 "$top/scripts/layering.sh" "$tmp"
mv "$tmp/libsircl/link/a.c" "$tmp/libsircl/lane/"
t "lane/ may read one" 0 "$top/scripts/layering.sh" "$tmp"
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
