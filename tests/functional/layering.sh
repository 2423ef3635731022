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
# plant FILE INCLUDED WANTED_RC WHAT: a tree with that one include
plant() {
	rm -rf "$tmp/h"
	mkdir -p "$tmp/h/libsircl/"{base,lane,link,engine,coll,reduce,device,fabric,api} "$tmp/h/$(dirname "$1")"
	echo "#include $2" >"$tmp/h/$1"
	t "$4: $2 in $1" "$3" "$top/scripts/layering.sh" "$tmp/h"
}
plant libsircl/link/a.c '<engine/engine.h>' 1 "angle brackets hide nothing"
plant libsircl/coll/a.c '"engine/engine.h"' 1 "plans are data"
plant libsircl/coll/a.c '"engine/plan.h"' 0 "and this is their format"
plant include/sircl/sircl.h '"base/error.h"' 1 "the public header stands alone"
plant tools/cmd_run.c '"fabric/fabric.h"' 1 "a tool on the public header"
plant tools/cmd_topo.c '"fabric/fabric.h"' 0 "topo looks at cables"
plant bench/bench_measure.c '"engine/engine.h"' 1 "the bench is a user"
plant bench/ring_cost.c '"engine/engine.h"' 0 "instructions are counted inside"
plant examples/all_reduce.c '"base/error.h"' 1 "examples show the public header"
plant examples/all_reduce.c '<sircl/sircl.h>' 0 "as here"
plant nccl-net-plugin/net.c '"api/internal.h"' 1 "the plugin is beside the public functions"
plant nccl-net-plugin/net.c '"coll/coll.h"' 1 "and has no collectives"
plant nccl-net-plugin/net.c '"engine/engine.h"' 0 "it drives channels"
plant nccl-net-plugin/net.c '"engine/internal.h"' 1 "not by what is private to a room"
plant nccl-net-plugin/abi/nccl.c '"engine/engine.h"' 1 "the ABI library is a user"
echo "$p passed, $f failed, 0 skipped"
[ $f = 0 ]
