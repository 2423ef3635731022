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
	rank "0 1 2 3" 300 "bench-$1" env SIRCL_TRANSPORT="$1" "$VM_BUILD/sircl-bench" all_reduce -b 1K -e 256K -f 16 -n 3 -w 1 -c 1 -d bfloat16
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

# ---- the same bits as over shm: each algorithm forced, for each kind that has it (the list is check.sh's, and so are shm's digests) ----
# Each kind and its digest. A kind forced to an algorithm that it has not takes what suits the class of the lanes, and shm's is another class:
# for the bits of reduce that matters.
digests() { # digests FILE
	awk -v file="$1" '/^# sircl-bench / { kind = $3 }
		/^# Digest/ && kind != "" { if (kind != "reduce," || file !~ /ring:all/) print kind, $4; kind = "" }' "$VM_SHARE/$1"
}
same_digests() { [ -n "$(digests "shm.$1")" ] && [ "$(digests "shm.$1")" = "$(digests "digest-$1.0")" ]; }
test_same_bits() {
	local pair
	for pair in $(<"$VM_SHARE/pairs"); do
		# shellcheck disable=SC2046
		rank "0 1 2 3" 300 "digest-$pair" "$VM_BUILD/sircl-bench" $(<"$VM_SHARE/args.$pair")
		judge "digest-$pair" "over verbs lanes: $(<"$VM_SHARE/args.$pair")"
		[ "$VM_ID" != 0 ] || check "its bits are shm's ($(digests "digest-$pair.0" | wc -l) digests)" same_digests "$pair"
	done
}

# ---- what happens to a lane while it carries. The ranks go on until a file OUT.stop is there, so all of it happens before they end ----
carries() { [ $(($(sent "$1") - $2)) -gt 200 ]; } # carries ETH BEFORE: more than heartbeats
wait_carries() { wait_until 200 carries "$1" "$(sent "$1")" || { echo "eth$1 does not carry"; return 1; }; } # wait_carries ETH

# The newest epoch of a lane that a rank has said to be up, or fenced; 0: none
up_epoch() { newest "$1" "s/.*: lane $3 \(verbs [^)]*, cable $2\) is up, epoch ([0-9]+).*/\1/p"; }         # up_epoch OUT.RANK CABLE LANE
fenced_epoch() { newest "$1" "s/.*: lane $3 \(verbs [^)]*, cable $2\) epoch ([0-9]+) is fenced.*/\1/p"; } # fenced_epoch OUT.RANK CABLE LANE
newest() {
	local n
	n=$(sed -nE "$2" "$VM_SHARE/$1" | sort -n | tail -n 1)
	echo "${n:-0}"
}
at_least() { [ "$("$1" "$2" "$3" "$4")" -ge "$5" ]; } # at_least up_epoch|fenced_epoch OUT.RANK CABLE LANE EPOCH
wait_epoch() { wait_until 200 at_least "$@" || { echo "$*: $("$1" "$2" "$3" "$4")"; return 1; }; }

# then_stop OUT CMD...: the ranks may end when CMD has, or has failed
then_stop() {
	local out=$1 rc
	shift
	"$@"
	rc=$?
	: >"$VM_SHARE/$out.stop"
	return $rc
}
# rank_until OUT BYTES ITERS GUEST CMD...: all-reduces beside which GUEST runs CMD
rank_until() {
	local out=$1 bytes=$2 iters=$3
	[ "$VM_ID" != 0 ] || rm -f "$VM_SHARE/$out".{stop,epochs,did}*
	DURING="only_on $4 then_stop $out ${*:5}" rank "0 1 2 3" 300 "$out" "$RINGCHECK" reduce "$bytes" "$iters" "$VM_SHARE/$out.stop"
}
# all_did OUT: every guest has left a file OUT.did.GUEST
all_did() { [ -e "$VM_SHARE/$1.did.0" ] && [ -e "$VM_SHARE/$1.did.1" ] && [ -e "$VM_SHARE/$1.did.2" ] && [ -e "$VM_SHARE/$1.did.3" ]; }
only_on() { # only_on GUEST CMD...
	[ "$VM_ID" = "$1" ] || return 0
	shift
	"$@"
}

# Both lanes of both cables, by our count of bytes and by the driver's of packets, which are of 4096 bytes at most. Which lane takes how much is
# the library's to choose, by how fast they are: the ranks go on until the drivers of all have seen traffic on all lanes.
used_all() { # on every guest; the last lets the ranks end
	local e rc=0
	for e in 0 1 2 3; do wait_until "${USED_WITHIN:-200}" carries "$e" "${WAS[e]}" || rc=1; done
	: >"$VM_SHARE/count.did.$VM_ID"
	[ "$VM_ID" != 0 ] || then_stop count wait_until 300 all_did count
	return $rc
}
test_lane_counters() {
	local l side now e ours used=0 plausible=0
	WAS=()
	for l in 0 1 2 3; do WAS[l]=$(sent $l); done
	[ "$VM_ID" != 0 ] || rm -f "$VM_SHARE"/count.{stop,did}*
	DURING=used_all SIRCL_ALGO=ring rank "0 1 2 3" 300 count "$RINGCHECK" reduce 400000 3 "$VM_SHARE/count.stop"
	judge count "three all-reduces of 400 kB or more"
	while read -r _ _ _ side l ours; do
		if [ "$side" = next ]; then e=$(eth_at "$VM_ID" "$VM_ID" "$l"); else e=$(eth_at "$VM_ID" "$(prev)" "$l"); fi
		now=$(($(sent "$e") - WAS[e]))
		echo "    cable to the $side guest, lane $l (eth$e): $ours bytes by the library, $now packets by the driver"
		[ "$ours" -gt 20000 ] && used=$((used + 1))
		[ $now -ge $((ours / 4096)) ] && plausible=$((plausible + 1))
	done < <(grep "^rank $VM_ID lane" "$VM_SHARE/count.$VM_ID")
	check "all four lanes of this guest carried data" [ $used = 4 ]
	check "and the driver has counted the packets that takes" [ $plausible = 4 ]
}

# writes the epoch that was up, the newest that is fenced, the one that came up after
cut_and_mend() { # on guest 0
	local e was fenced now
	e=$(eth_at 0 0 1)
	wait_carries "$e" || return 1
	was=$(up_epoch cut.0 0 1)
	host cut 0 1 || return 1
	wait_epoch fenced_epoch cut.0 0 1 "$was" && wait_epoch fenced_epoch cut.1 0 1 "$was" || return 1
	fenced=$(fenced_epoch cut.0 0 1)
	host mend 0 1 || return 1
	wait_epoch up_epoch cut.0 0 1 $((fenced + 1)) || return 1
	wait_carries "$e" || return 1
	now=$(up_epoch cut.0 0 1)
	wait_epoch up_epoch cut.1 0 1 "$now" || return 1
	echo "$was $fenced $now" >"$VM_SHARE/cut.epochs"
}
test_cut_under_traffic() {
	local was=0 fenced=0 now=0
	rank_until cut 65536 300 0 cut_and_mend
	judge cut "300 all-reduces of 64 KiB or more, every element checked, while lane 1 of cable 0 is cut at both ends and mended"
	[ "$VM_ID" = 0 ] || return
	[ -e "$VM_SHARE/cut.epochs" ] && read -r was fenced now <"$VM_SHARE/cut.epochs"
	check "its epoch $was was lost at both ends" [ "$was" -gt 0 -a "$fenced" -ge "$was" ]
	check "and it came back as epoch $now, newer, and carried data again" [ "$now" -gt "$fenced" ]
	grep -hE 'lane 1 .*cable 0.*(fenced|is up)' "$VM_SHARE/cut.0" "$VM_SHARE/cut.1" | sed 's/^/    /'
	grep -h '^rank 0 all-reduces' "$VM_SHARE/cut.0" | sed 's/^/    /'
}

take_device() { # on guest 2: the port of cable 1, lane 0
	local e was
	e=$(eth_at 2 1 0)
	wait_carries "$e" || return 1
	was=$(up_epoch removed.2 1 0)
	rdma link delete "rxe$e" & # returns when nobody has the device open any more: soft-RoCE's users keep it to their end
	wait_epoch fenced_epoch removed.2 1 0 "$was" && wait_epoch fenced_epoch removed.1 1 0 "$was" || return 1
	wait_carries "$(eth_at 2 1 1)" || return 1
	echo "$was" >"$VM_SHARE/removed.epochs"
}
test_device_removed() {
	local e was=0
	rank_until removed 65536 60 2 take_device
	judge removed "60 all-reduces or more while a RoCE device is taken from guest 2 (rdma link delete)"
	if [ "$VM_ID" = 2 ]; then
		e=$(eth_at 2 1 0)
		[ -e "$VM_SHARE/removed.epochs" ] && read -r was <"$VM_SHARE/removed.epochs"
		check "it is gone" wait_until 100 test ! -e "/sys/class/infiniband/rxe$e"
		check "its lane's epoch $was was lost at both ends, and the other lane of the cable carried" [ "$was" -gt 0 ]
		grep -h 'SIRCL WARN' "$VM_SHARE/removed.2" | sed 's/^/    /'
		rdma link add "rxe$e" type rxe netdev "eth$e"
		check "it can be had back" wait_until 100 is_state "$e" ACTIVE
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
	rank "0 1 2 3" 300 equal "$RINGCHECK" reduce 1000000 3
	equal=$(($(uptime_s) - from + 1))
	e=$(lower_mtu)
	if [ -n "$e" ]; then
		ip link set "eth$e" mtu 1500
		wait_until 10 devinfo_mtu "$e" 1024
	fi
	barrier
	from=$(uptime_s)
	rank "0 1 2 3" 300 mtu "$RINGCHECK" reduce 1000000 3
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
	rank "0 1 2 3" 300 user "${USER_CMD[@]}" "$RINGCHECK" reduce 100000 3
	judge user "an ordinary user with a memlock limit of 1 GiB"
	AS_USER 64
	rank "0 1 2 3" 300 locked "${USER_CMD[@]}" "$RINGCHECK" reduce 100000 3
	check "with 64 KiB it ends with an error" [ "$(cat "$VM_SHARE/locked.rc$VM_ID")" = 1 ]
	check "that names the limit and the cure" grep -qiE 'memlock.*(ulimit|limits|prlimit)|ulimit -l' "$VM_SHARE/locked.$VM_ID"
	[ "$VM_ID" != 0 ] || tail -n 1 "$VM_SHARE/locked.0" | sed 's/^/    /'
}

# ---- GIDs move: with IPv4 ----
gids() { # of this guest, index by index
	local e f gid
	for e in 0 1 2 3; do
		for f in 0 1 2 3 4 5; do
			gid=
			{ read -r gid <"/sys/class/infiniband/rxe$e/ports/1/gids/$f"; } 2>/dev/null
			echo "rxe$e $f $gid"
		done
	done
}
# Addresses come, and leave in another order, so that those which stay are at other indices and there are holes.
move_gids() {
	local e k ll
	for e in 0 1 2 3; do
		for k in 1 2 3; do echo "addr add 10.$((100 + e)).$k.$((VM_ID + 1))/24 dev eth$e"; done
		echo "addr del 10.$((100 + e)).1.$((VM_ID + 1))/24 dev eth$e"
		ll=$(link_local "$VM_ID" "$e")
		echo "addr del $ll/64 dev eth$e"
		echo "addr add $ll/64 dev eth$e nodad"
		echo "addr del 10.$((100 + e)).2.$((VM_ID + 1))/24 dev eth$e"
	done | ip -batch -
}
restore_gids() { printf 'addr flush dev eth%s\n' 0 1 2 3 | ip -4 -batch -; }
gids_moved() { [ "$1" != "$(gids)" ]; }
test_gids_idle() {
	local was
	was=$(gids)
	move_gids
	check "the GID table is another one" wait_until 100 gids_moved "$was"
	[ "$VM_ID" != 0 ] || { gids | grep -v 0000:0000:0000:0000:0000:0000:0000:0000 | sed 's/^/    /'; }
	rank "0 1 2 3" 300 gids "$RINGCHECK" reduce 100000 5
	judge gids "all-reduces after addresses have come and gone"
	restore_gids
}
any_carries() { carries 0 "$1" || carries 1 "$2" || carries 2 "$3" || carries 3 "$4"; }
move_while_running() {
	local e rc=1
	e=$(eth_at "$VM_ID" "$VM_ID" 0)
	if wait_carries "$e"; then
		for _ in 1 2 3; do move_gids; restore_gids; done
		# whichever lanes are up by then
		wait_until 200 any_carries "$(sent 0)" "$(sent 1)" "$(sent 2)" "$(sent 3)"
		rc=$?
	fi
	: >"$VM_SHARE/moved.did.$VM_ID"
	[ "$VM_ID" != 0 ] || then_stop moved wait_until 300 all_did moved
	return $rc
}
test_gids_running() {
	[ "$VM_ID" != 0 ] || rm -f "$VM_SHARE"/moved.{stop,did}*
	DURING=move_while_running rank "0 1 2 3" 300 moved "$RINGCHECK" reduce 65536 60 "$VM_SHARE/moved.stop"
	judge moved "60 all-reduces or more while every guest's addresses come and go, the link-local ones too"
	check "they have, while the lanes carried" [ "$BESIDE" = 0 ]
	[ "$VM_ID" != 0 ] || grep -h 'SIRCL WARN' "$VM_SHARE/moved.0" | head -n 5 | sed 's/^/    /'
}

# What an unused communicator costs, in a guest; tests/functional/verbs.sh and a machine have the limit of 1 %.
test_idle() {
	rank "0 1 2 3" 300 idle env SIRCL_HEARTBEAT=50 "$RINGCHECK" idle 5
	judge idle "ranks with nothing to do"
	[ "$VM_ID" != 0 ] || grep -h ' idle: ' "$VM_SHARE"/idle.[0-3] | sed 's/^/    /; s/$/, emulated/'
}

test_permuted() {
	rank "0 2 1 3" 300 perm "$RINGCHECK" reduce 100000 3
	judge perm "ranks placed 0-2-1-3"
	[ "$VM_ID" != 0 ] || check "the ring follows the cables" grep -q '^rank 0 position 0 ring next 2 prev 3' "$VM_SHARE/perm.0"
}

# ---- the table: guests 0 and 1 alone, one lane, as ib_send_lat and ib_write_bw (fabric.sh) ----
# Packets of a ping-pong of N messages each way: a port sends its own messages and an acknowledgement of each of its peer's, and receives as
# many. The difference of two runs has neither start nor end, and next to no heartbeat; what a slow guest made its peer send again, and the
# second acknowledgement of that, is the difference of the devices' duplicate_request.
counters() { # counters ETH: sent, received, duplicates
	local c=/sys/class/infiniband/rxe$1/ports/1/hw_counters
	echo "$(<"$c/sent_pkts") $(<"$c/rcvd_pkts") $(<"$c/duplicate_request")"
}
PACKETS_RUNS="100 400"
test_packets() {
	local e n g again was now d=() sent=() rcvd=() dup=()
	e=$(eth_at "$VM_ID" 0 0)
	for n in $PACKETS_RUNS; do
		[ -z "$e" ] || was=$(counters "$e")
		rank "0 1 - -" 300 packets env SIRCL_LANES=1 SIRCL_HEARTBEAT=10000 SIRCL_SUSPECT=60000 "$RINGCHECK" p2p 0 1 64 "$n"
		[ "$VM_ID" != 0 ] || check "$n messages of 64 bytes each way between guests 0 and 1" all_ranks packets 2
		[ -z "$e" ] || now=$(counters "$e")
		[ -z "$e" ] || echo "$was $now" | awk '{ print $4 - $1, $5 - $2, $6 - $3 }' >"$VM_SHARE/packets.$n.$VM_ID"
	done
	barrier
	[ "$VM_ID" = 0 ] || return
	for g in 0 1; do
		read -ra d <<<"$(cat "$VM_SHARE/packets.${PACKETS_RUNS% *}.$g" "$VM_SHARE/packets.${PACKETS_RUNS#* }.$g" | tr '\n' ' ')"
		sent[g]=$((d[3] - d[0])) rcvd[g]=$((d[4] - d[1])) dup[g]=$((d[5] - d[2]))
	done
	n=$((2 * (${PACKETS_RUNS#* } - ${PACKETS_RUNS% *}))) again=$((dup[0] + dup[1]))
	echo "    packets for $((n / 2)) eager messages each way and their $((n / 2)) acknowledgements each way ($again sent again)"
	for g in 0 1; do
		echo "    guest $g  sent_pkts ${sent[g]}  rcvd_pkts ${rcvd[g]}  per message $(awk -v s=$((sent[g] - again)) -v n=$n 'BEGIN { printf "%.3f", s / n }')"
		check "guest $g sends one packet per eager message (0.95 to 1.05)" [ $(((sent[g] - again) * 100)) -ge $((n * 95)) -a $(((sent[g] - again) * 100)) -le $((n * 105)) ]
	done
}

test_table() {
	local s t lat bw rc=0
	declare -A us=()
	for _ in 1 2 3 4 5; do
		rank "0 1 - -" 300 table env SIRCL_LANES=1 "$VM_BUILD/sircl-bench" sendrecv -b 8 -e 2M -f 512 -n 5 -w 1 -c 0 || rc=1
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
