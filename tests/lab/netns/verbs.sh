# SPDX-License-Identifier: Apache-2.0
# Verbs lanes between the machines of the ring, over tests/fakeverbs in place of rdma-core: simulated, no RDMA device is used, and the bytes do
# not go over the bridges. What is shown is which provider each cable gets, from what hello and both ends say. Sourced by tests.sh.
# shellcheck shell=bash disable=SC2154

# verbs_ranks OUT ORDER WITHOUT CMD...: rank WITHOUT has no rdma-core ("": all have it)
verbs_ranks() {
	local out=$1 order=$2 without=$3
	shift 3
	rm -f "$out".*
	# shellcheck disable=SC2016 # for the ranks to expand
	ranks "$out" "$order" env SIRCL_DEBUG=info FAKE="$build/tests/fakeverbs" WITHOUT="$without" \
		bash -c '[ "$SIRCL_RANK" = "$WITHOUT" ] || export LD_LIBRARY_PATH=$FAKE; exec "$@"' - "$@"
}

cables() { sed -n 's/.* \(cable [0-9]*: [a-z]*, [0-9]* lanes\).*/\1/p' "$1" | sort -u | paste -sd' '; } # of one rank's log

cut_rdma() { # cut_rdma DEV LOG: on machine 0, once the communicator of that log is up; the netdev stays up
	for _ in $(seq 400); do grep -qs 'communicator .* is up' "$2" && break; sleep 0.05; done
	sleep 0.5
	in_ns "${PID[0]}" env SIRCL_LAB="$LAB" "$build/tests/fakeverbs/fakectl" cut "fake_$1"
}

test_verbs_lanes() {
	local all="cable 0: verbs, 2 lanes cable 1: verbs, 2 lanes cable 2: verbs, 2 lanes cable 3: verbs, 2 lanes" r said fenced
	if [ ! -e "$build/tests/fakeverbs/libibverbs.so.1" ]; then
		echo "  --    verbs lanes: built without rdma-core's headers"
		return
	fi
	check "ring with RDMA at every port: all-reduces" verbs_ranks "$tmp/verbs" "0 1 2 3" '' "$build/tests/ringcheck" reduce 1000000 3
	check "every cable runs verbs over both its lanes, and all ranks say the same" \
		[ "$(for r in 0 1 2 3; do cables "$tmp/verbs.$r"; done | sort -u)" = "$all" ]
	check "the job is of that class" grep -q '^rank 0 position 0 ring next 1 prev 3 transport verbs' "$tmp/verbs.0"
	check "all 16 lane ends carried data" [ "$(cat "$tmp"/verbs.? | grep -cE '^rank [0-3] lane (next|prev) [01] [1-9][0-9]{5}')" = 16 ]
	check "ranks placed 0-2-1-3" verbs_ranks "$tmp/verbs" "0 2 1 3" '' "$build/tests/ringcheck" reduce 100000 3
	check "run verbs as well" grep -q '^rank 0 position 0 ring next 2 prev 3 transport verbs' "$tmp/verbs.0"

	check "rank 2 has no rdma-core: all-reduces" verbs_ranks "$tmp/mixed" "0 1 2 3" 2 "$build/tests/ringcheck" reduce 1000000 3
	check "its two cables run tcp, the others verbs, and all ranks say the same" \
		[ "$(for r in 0 1 2 3; do cables "$tmp/mixed.$r"; done | sort -u)" = \
		"cable 0: verbs, 2 lanes cable 1: tcp, 2 lanes cable 2: tcp, 2 lanes cable 3: verbs, 2 lanes" ]
	said=$(grep -o 'cable 1: tcp, 2 lanes; not verbs: rank 2 .*' "$tmp/mixed.0" | head -n 1)
	check "with the reason (${said:0:140})" [ -n "$said" ]
	check "and one warning on rank 0 for each" [ "$(cat "$tmp"/mixed.? | grep -c 'SIRCL WARN .*other cables are faster')" = 2 ]
	check "the job is of the class of the slowest" grep -q '^rank 0 .* transport tcp' "$tmp/mixed.0"
	if verbs_ranks "$tmp/forced" "0 1 2 3" 2 env SIRCL_TRANSPORT=verbs "$build/tests/ringcheck" stay >/dev/null; then
		bad "SIRCL_TRANSPORT=verbs is refused there"
	else
		check "SIRCL_TRANSPORT=verbs is refused there, with one sentence on all ranks" \
			[ "$(cat "$tmp"/forced.? | grep -o 'create: .*SIRCL_TRANSPORT=verbs, but cable 1 between .* rank 2 .*, port p0: .*' | sort -u | wc -l)" = 1 ]
	fi

	rm -f "$tmp"/vcut.*
	cut_rdma n0 "$tmp/vcut.0" &
	check "an RDMA port goes down in mid-run: all sums are right" \
		verbs_ranks "$tmp/vcut" "0 1 2 3" '' "$build/tests/ringcheck" reduce 262144 "${VERBS_CUT_ITERS:-1500}"
	wait $!
	fenced=$(grep -c 'lane 0 (verbs n0, cable 0) epoch 1 is fenced' "$tmp/vcut.0")
	check "and its lane was fenced on the way ($fenced)" [ "$fenced" = 1 ]
}
