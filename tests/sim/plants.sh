#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rules of the protocol broken on purpose: each must make the simulator suite fail within 1,000 seeds, and the same
# build with no rule broken must not. Usage: plants.sh BUILD
set -u
sim=${1:-build}/tests/sim-plant
seeds=1000
bad=0

if ! "$sim" --seeds "$seeds" >/dev/null; then
	echo "no rule broken: FAILED, but it should not"
	bad=1
fi
for plant in no-fence no-dedup early-ack pool; do
	out=$("$sim" --plant "$plant" --seeds "$seeds")
	case $? in
	1) echo "$plant: caught;$(echo "$out" | grep -m 1 '  seed ' | cut -c 1-200)" ;;
	0)
		echo "$plant: NOT caught within $seeds seeds"
		bad=1
		;;
	*)
		echo "$plant: ended with another error"
		bad=1
		;;
	esac
done
exit $bad
