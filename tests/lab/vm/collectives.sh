# SPDX-License-Identifier: Apache-2.0
# libsircl on the ring of guests. Sourced by a guest's script.
# shellcheck shell=bash

# A guest runs 20 to 50 times slower than a machine and has one core: what is late here is not lost.
export SIRCL_START_TIMEOUT=100000 SIRCL_TIMEOUT=100000 SIRCL_HEARTBEAT=500 SIRCL_SUSPECT=5000 SIRCL_DEBUG=info

# judge OUT WHAT: guest 0 says whether all ranks of the last `rank` have ended well
judge() { [ "$VM_ID" != 0 ] || check "$2" all_ranks "$1"; }

no_wrong() { # no_wrong OUT: there are rows, and the columns #wrong of each are 0
	awk '$1 ~ /^[0-9]+$/ { rows++; if ($9 != 0 || $13 != 0) wrong++ } END { exit !(rows > 0 && wrong == 0) }' "$VM_SHARE/$1.0"
}

bench_over() { # bench_over TRANSPORT
	rank "0 1 2 3" 90 "bench-$1" env SIRCL_TRANSPORT="$1" "$VM_BUILD/sircl-bench" all_reduce -b 1K -e 256K -f 16 -n 3 -w 1 -c 1 -d bfloat16
	judge "bench-$1" "sircl-bench all_reduce over $1 lanes, 1 KiB to 256 KiB"
	[ "$VM_ID" = 0 ] || return
	grep -vE 'SIRCL INFO' "$VM_SHARE/bench-$1.0" | sed 's/^/    /'
	check "every element is right" no_wrong "bench-$1"
	check "a ring of 4 with two lanes per cable, found by hello" grep -q 'ring of 4, in cable order: 0 =2= 1 =2= 2 =2= 3 =2= 0' "$VM_SHARE/bench-$1.0"
	check "over $1 lanes" grep -q "lane 1 ($1 eth. *, cable" "$VM_SHARE/bench-$1.0"
}
test_tcp() { bench_over tcp; }
test_verbs() { bench_over verbs; }

RINGCHECK=$VM_BUILD/tests/ringcheck
export SIRCL_TRANSPORT=verbs

# packets that a port has sent, as its driver counts: acknowledgements and heartbeats too
sent() { cat "/sys/class/infiniband/rxe$1/ports/1/hw_counters/sent_pkts"; } # sent ETH

# ---- the same bits as over shm, for each algorithm; check.sh has left shm's digests in VM_SHARE/shm.ALGO ----
# Each kind and its digest. reduce has exchange and pipeline alone; forced to another it takes what suits the class of the lanes, and shm's
# is another class.
digests() { # digests FILE ALGO
	awk -v algo="$2" '/^# sircl-bench / { kind = $3 }
		/^# Digest/ && kind != "" { if (kind != "reduce," || algo == "exchange" || algo == "pipeline") print kind, $4; kind = "" }' "$1"
}
same_digests() { [ -n "$(digests "$VM_SHARE/shm.$1" "$1")" ] && [ "$(digests "$VM_SHARE/shm.$1" "$1")" = "$(digests "$VM_SHARE/digest-$1.0" "$1")" ]; }
test_same_bits() {
	local algo n
	for algo in two-matchings doubling exchange ring two-shot pipeline; do
		# shellcheck disable=SC2046
		rank "0 1 2 3" 120 "digest-$algo" "$VM_BUILD/sircl-bench" $(cat "$VM_SHARE/args.$algo") --algo $algo
		judge "digest-$algo" "SIRCL_ALGO=$algo over verbs lanes: $(cat "$VM_SHARE/args.$algo")"
		[ "$VM_ID" = 0 ] || continue
		n=$(digests "$VM_SHARE/digest-$algo.0" $algo | wc -l)
		check "its bits are shm's ($n kinds)" same_digests $algo
	done
}

# Both lanes of both cables, by our count of bytes and by the driver's of packets, which are of 4096 bytes at most.
test_lane_counters() {
	local l side was=() now e ours used=0 plausible=0
	for l in 0 1 2 3; do was[l]=$(sent $l); done
	SIRCL_ALGO=ring rank "0 1 2 3" 90 count "$RINGCHECK" reduce 1000000 3
	judge count "three all-reduces of 1 MB"
	while read -r _ _ _ side l ours; do
		if [ "$side" = next ]; then e=$(eth_at "$VM_ID" "$VM_ID" "$l"); else e=$(eth_at "$VM_ID" "$(prev)" "$l"); fi
		now=$(($(sent "$e") - was[e]))
		echo "    cable to the $side guest, lane $l (eth$e): $ours bytes by the library, $now packets by the driver"
		[ "$ours" -gt 300000 ] && used=$((used + 1))
		[ $now -ge $((ours / 4096)) ] && plausible=$((plausible + 1))
	done < <(grep "^rank $VM_ID lane" "$VM_SHARE/count.$VM_ID")
	check "all four lanes of this guest carried data" [ $used = 4 ]
	check "and the driver has counted the packets that takes" [ $plausible = 4 ]
}

# ---- what happens to a lane while it carries ----
carries() { [ $(($(sent "$1") - $2)) -gt 200 ]; } # carries ETH BEFORE
up_again() { grep -q "lane $2 (verbs eth.*, cable $1) is up, epoch [2-9]" "$VM_SHARE/$3".*; } # up_again CABLE LANE OUT

cut_and_mend() { # on guest 0
	local e
	[ "$VM_ID" = 0 ] || return 0
	e=$(eth_at 0 0 1)
	wait_until 60 carries "$e" "$(sent "$e")" || return 1
	host cut 0 1 || return 1
	sleep 2
	host mend 0 1
}
test_cut_under_traffic() {
	DURING=cut_and_mend rank "0 1 2 3" 200 cut "$RINGCHECK" reduce 65536 300
	judge cut "300 all-reduces of 64 KiB, every element checked, while lane 1 of cable 0 is cut at both ends and mended"
	[ "$VM_ID" = 0 ] || return
	check "the lane was lost" grep -q 'lane 1 (verbs eth.*, cable 0) epoch 1 is fenced' "$VM_SHARE/cut.0"
	check "and came back" up_again 0 1 cut
	grep -hE 'lane 1 .*cable 0.*(fenced|is up)' "$VM_SHARE/cut.0" "$VM_SHARE/cut.1" | sed 's/^/    /'
}

take_device() { # on guest 2: the port of cable 1, lane 0
	local e
	[ "$VM_ID" = 2 ] || return 0
	e=$(eth_at 2 1 0)
	wait_until 60 carries "$e" "$(sent "$e")" || return 1
	rdma link delete "rxe$e"
}
test_device_removed() {
	local e
	DURING=take_device rank "0 1 2 3" 200 removed "$RINGCHECK" reduce 65536 60
	judge removed "60 all-reduces while a RoCE device is taken from guest 2 (rdma link delete)"
	if [ "$VM_ID" = 2 ]; then
		e=$(eth_at 2 1 0)
		check "it is gone" [ ! -e "/sys/class/infiniband/rxe$e" ]
		grep -h 'SIRCL WARN' "$VM_SHARE/removed.2" | sed 's/^/    /'
		rdma link add "rxe$e" type rxe netdev "eth$e"
		wait_until 20 is_state "$e" ACTIVE
	fi
	barrier
}

# Whichever end connects: on cable 0, guest 1 has the lower MTU on lane 0 and guest 0 on lane 1.
lower_mtu() {
	case $VM_ID in 0) eth_at 0 0 1 ;; 1) eth_at 1 0 0 ;; esac
}
path_mtus() { [ "$(cat "$VM_SHARE/mtu."[0-3] | grep -c "path MTU $1 ")" = "$2" ]; } # path_mtus BYTES ENDS
no_lane_lost() { ! grep -qE 'is fenced|is up, epoch [2-9]' "$VM_SHARE/mtu."[0-3]; }
test_mtu() {
	local e from equal=0 mixed=0
	from=$(uptime_s)
	rank "0 1 2 3" 90 equal "$RINGCHECK" reduce 1000000 3
	equal=$(($(uptime_s) - from + 1))
	e=$(lower_mtu)
	if [ -n "$e" ]; then
		ip link set "eth$e" mtu 1500
		wait_until 10 devinfo_mtu "$e" 1024
	fi
	barrier
	from=$(uptime_s)
	rank "0 1 2 3" 90 mtu "$RINGCHECK" reduce 1000000 3
	mixed=$(($(uptime_s) - from))
	judge mtu "all-reduces of 1 MB with two lanes whose ends have MTUs of 4200 and 1500"
	if [ "$VM_ID" = 0 ]; then
		check "packets of 1024 bytes at both ends of both lanes" path_mtus 1024 4
		check "and of 4096 on all others" path_mtus 4096 12
		check "no lane was lost" no_lane_lost
		check "$mixed s, not more than 10 times the $equal s of equal MTUs" [ $mixed -le $((10 * equal)) ]
		check "a warning names it" grep -q 'SIRCL WARN.*the ends differ: MTU' "$VM_SHARE/mtu.0" "$VM_SHARE/mtu.1"
		grep -hi 'SIRCL WARN.*MTU' "$VM_SHARE/mtu.0" "$VM_SHARE/mtu.1" | sed 's/^/    /'
	fi
	[ -z "$e" ] || ip link set "eth$e" mtu 4200
}
devinfo_mtu() { ibv_devinfo -d "rxe$1" | grep -q "active_mtu:.* $2 "; }

test_memlock() {
	AS_USER 1048576
	rank "0 1 2 3" 90 user "${USER_CMD[@]}" "$RINGCHECK" reduce 100000 3
	judge user "an ordinary user with a memlock limit of 1 GiB"
	AS_USER 64
	rank "0 1 2 3" 90 locked "${USER_CMD[@]}" "$RINGCHECK" reduce 100000 3
	check "with 64 KiB it ends with an error" [ "$(cat "$VM_SHARE/locked.rc$VM_ID")" = 1 ]
	check "that names the limit and the cure" grep -qiE 'memlock.*(ulimit|limits|prlimit)|ulimit -l' "$VM_SHARE/locked.$VM_ID"
	[ "$VM_ID" != 0 ] || tail -n 1 "$VM_SHARE/locked.0" | sed 's/^/    /'
}

# ---- GIDs move: with IPv4 ----
gids() { # of this guest, index by index
	local e f
	for e in 0 1 2 3; do
		for f in 0 1 2 3 4 5; do echo "rxe$e $f $(cat "/sys/class/infiniband/rxe$e/ports/1/gids/$f" 2>/dev/null)"; done
	done
}
# Addresses come, and leave in another order, so that those which stay are at other indices and there are holes.
move_gids() {
	local e k
	for e in 0 1 2 3; do
		for k in 1 2 3; do ip addr add "10.$((100 + e)).$k.$((VM_ID + 1))/24" dev "eth$e"; done
		ip addr del "10.$((100 + e)).1.$((VM_ID + 1))/24" dev "eth$e"
		ip -6 addr del "$(link_local "$VM_ID" "$e")/64" dev "eth$e"
		ip -6 addr add "$(link_local "$VM_ID" "$e")/64" dev "eth$e" nodad
		ip addr del "10.$((100 + e)).2.$((VM_ID + 1))/24" dev "eth$e"
	done
}
restore_gids() {
	local e
	for e in 0 1 2 3; do ip -4 addr flush dev "eth$e"; done
}
test_gids_idle() {
	local was
	was=$(gids)
	move_gids
	sleep 1
	check "the GID table is another one" [ "$was" != "$(gids)" ]
	[ "$VM_ID" != 0 ] || { gids | grep -v 0000:0000:0000:0000:0000:0000:0000:0000 | sed 's/^/    /'; }
	rank "0 1 2 3" 90 gids "$RINGCHECK" reduce 100000 5
	judge gids "all-reduces after addresses have come and gone"
	restore_gids
}
move_while_running() {
	local e
	e=$(eth_at "$VM_ID" "$VM_ID" 0)
	wait_until 60 carries "$e" "$(sent "$e")" || return 1
	for _ in 1 2 3; do move_gids; restore_gids; done
}
test_gids_running() {
	DURING=move_while_running rank "0 1 2 3" 200 moved "$RINGCHECK" reduce 65536 60
	judge moved "60 all-reduces while every guest's addresses come and go, the link-local ones too"
	[ "$VM_ID" != 0 ] || grep -h 'SIRCL WARN' "$VM_SHARE/moved.0" | head -n 5 | sed 's/^/    /'
}

test_permuted() {
	rank "0 2 1 3" 90 perm "$RINGCHECK" reduce 100000 3
	judge perm "ranks placed 0-2-1-3"
	[ "$VM_ID" != 0 ] || check "the ring follows the cables" grep -q '^rank 0 position 0 ring next 2 prev 3' "$VM_SHARE/perm.0"
}

# ---- the table: guests 0 and 1 alone, one lane, as ib_send_lat and ib_write_bw (fabric.sh) ----
# packets of both directions in a ping-pong of N messages each way: a port sends its own messages and an acknowledgement of each of its
# peer's, so it counts both. The difference of two runs has neither start nor end.
test_packets() {
	local e n was count=() per
	e=$(eth_at "$VM_ID" 0 0)
	for n in 100 400; do
		[ -z "$e" ] || was=$(sent "$e")
		rank "0 1 - -" 90 packets env SIRCL_LANES=1 SIRCL_HEARTBEAT=10000 SIRCL_SUSPECT=60000 "$RINGCHECK" p2p 0 1 64 $n
		[ "$VM_ID" != 0 ] || check "$n messages of 64 bytes each way between guests 0 and 1" all_ranks packets 2
		[ -z "$e" ] || count+=($(($(sent "$e") - was)))
	done
	[ "$VM_ID" = 0 ] || return
	per=$(((count[1] - count[0]) * 100 / 600))
	echo "    packets: ${count[0]} for 200 messages, ${count[1]} for 800: $((per / 100)).$(printf %02d $((per % 100))) per message"
	check "one packet per eager message (0.95 to 1.10)" [ $per -ge 95 -a $per -le 110 ]
}

test_table() {
	local s t lat bw rc=0
	declare -A us=()
	for _ in 1 2 3 4 5; do
		rank "0 1 - -" 90 table env SIRCL_LANES=1 "$VM_BUILD/sircl-bench" sendrecv -b 8 -e 2M -f 512 -n 5 -w 1 -c 0 || rc=1
		[ "$VM_ID" = 0 ] || continue
		all_ranks table 2 || rc=1
		for s in 8 4096 2097152; do us[$s]+=" $(awk -v s=$s '$1 == s { print $6 }' "$VM_SHARE/table.0")"; done
	done
	[ "$VM_ID" = 0 ] || return
	check "sircl-bench sendrecv between guests 0 and 1, five times" [ $rc = 0 ]
	echo "    size     sircl sendrecv  ib_send_lat / ib_write_bw   (median of 5, one lane, emulation)"
	for s in 8 4096; do
		# shellcheck disable=SC2086
		t=$(median ${us[$s]}) lat=$(awk -v s=$s '$1 == "ib_send_lat" && $2 == s { print $3 }' "$VM_SHARE/perftest")
		awk -v s=$s -v t="$t" -v l="$lat" 'BEGIN { printf "    %7d  %9.0f us    %9.0f us    ratio %.2f\n", s, t, l, l ? t / l : 0 }'
	done
	# shellcheck disable=SC2086
	t=$(median ${us[2097152]}) bw=$(awk '$1 == "ib_write_bw" { print $3 }' "$VM_SHARE/perftest")
	awk -v t="$t" -v b="$bw" 'BEGIN { o = t ? 2097152 / t / 1.048576 : 0; printf "    2097152  %9.2f MB/s  %9.2f MB/s  ratio %.2f (ours both ways at once)\n", o, b, b ? o / b : 0 }'
}
