# SPDX-License-Identifier: Apache-2.0
# The lab itself, before anything of ours runs on it: ports, addresses, which port hears which, cut lanes, and what the field's own tools
# measure. Sourced by a guest's script.
# shellcheck shell=bash

state_of() { rdma link show "rxe$1/1" | sed 's/.* state \([A-Z]*\) .*/\1/'; } # state_of ETH
is_state() { [ "$(state_of "$1")" = "$2" ]; }
devinfo_says() { ibv_devinfo -d "rxe$1" | grep -q "state:.*$2"; }

no_ipv4() { [ -z "$(ip -4 -o addr show)" ]; }

# Every port of guest 0 against every port of the others: how many pairs hear each other, per guest
hear_all() {
	local a b g n pids=() i=0
	for g in 1 2 3; do
		for a in 0 1 2 3; do
			for b in 0 1 2 3; do
				ping -6 -c 1 -W 3 "$(link_local $g $b)%eth$a" >/dev/null 2>&1 & pids+=($!)
			done
		done
	done
	for g in 1 2 3; do
		n=0
		for _ in {1..16}; do wait "${pids[i]}" && n=$((n + 1)); i=$((i + 1)); done
		HEARD[g]=$n
	done
}

# rping between this guest and both neighbours on every lane: serves the next one's pings, pings the previous one
rping_lane() { # rping_lane LANE
	local l=$1 mine theirs pid rc=0
	mine=$(eth_at "$VM_ID" "$VM_ID" "$l")
	timeout -k 1 200 rping -s -a "$(link_local "$VM_ID" "$mine")%eth$mine" -C 3 >/tmp/rping.s 2>&1 &
	pid=$!
	barrier
	sleep 1 # it listens, or the client's first try is refused and it tries again
	theirs=$(eth_at "$(prev)" "$(prev)" "$l") mine=$(eth_at "$VM_ID" "$(prev)" "$l")
	for _ in 1 2 3; do
		rc=0
		timeout -k 1 60 rping -c -a "$(link_local "$(prev)" "$theirs")%eth$mine" -I "$(link_local "$VM_ID" "$mine")%eth$mine" -C 3 -v >/tmp/rping.c 2>&1 && break
		rc=1
		sleep 1
	done
	[ $rc = 0 ] || cat /tmp/rping.c
	grep -q 'ping data: rdma-ping-2' /tmp/rping.c || rc=1
	barrier
	kill $pid 2>/dev/null
	wait $pid 2>/dev/null
	return $rc
}

test_ports() {
	local l
	check "four RoCE ports, active" [ "$(rdma link | grep -c 'state ACTIVE physical_state LINK_UP')" = 4 ]
	check "with an MTU of 4096" [ "$(ibv_devinfo | grep -c 'active_mtu:.*4096')" = 4 ]
	[ "$VM_IPV4" = 1 ] || check "no IPv4 address on any device" no_ipv4
	check "the management network reaches all" ping_all
}
ping_all() {
	local g
	for ((g = 0; g < VM_N; g++)); do ping -c 1 -W 20 "$(mgmt $g)" >/dev/null 2>&1 || return 1; done
}

# A guest whose clock is wrong would end what is only slow: all say how long guest 0's sleep of 3 s was, with what guest 0 itself measured.
test_clocks() {
	local from took his
	barrier
	from=$(cut -d" " -f1 /proc/uptime | tr -d .)
	[ "$VM_ID" = 0 ] && sleep 3
	barrier
	took=$(($(cut -d' ' -f1 /proc/uptime | tr -d .) - from))
	[ "$VM_ID" != 0 ] || echo $took >"$VM_SHARE/clock"
	barrier
	his=$(<"$VM_SHARE/clock")
	check "this guest's clock goes as guest 0's ($took cs for its $his)" [ $((took * 2)) -gt $((his - 100)) -a $took -lt $((his * 2 + 300)) ]
}

test_map() {
	HEARD=()
	if [ "$VM_ID" = 0 ]; then
		for _ in 1 2 3 4 5; do # an answer may be late, none comes by another way
			hear_all
			[ "${HEARD[1]} ${HEARD[2]} ${HEARD[3]}" = "4 0 4" ] && break
		done
		check "a cable is one wire: two ports of guest 1 are heard by two of guest 0 (4 of 16 pairs): ${HEARD[1]}" [ "${HEARD[1]}" = 4 ]
		check "guest 2 is heard by none (0 of 16 pairs): ${HEARD[2]}" [ "${HEARD[2]}" = 0 ]
		check "guest 3 as guest 1 (4 of 16 pairs): ${HEARD[3]}" [ "${HEARD[3]}" = 4 ]
	fi
	barrier
}

test_rping() {
	local l
	for l in 0 1; do check "rping over lane $l to the neighbour, by its IPv6 link-local address" rping_lane $l; done
}

# lane 1 of cable 0 is cut: its two ports say so, its twins and the other guests' do not
test_cut() {
	local mine all=0 l
	[ "$VM_ID" = 0 ] && check "lane 1 of cable 0 is pulled" host cut 0 1
	barrier
	mine=$(eth_at "$VM_ID" 0 1)
	if [ -n "$mine" ]; then
		check "that port's link is DOWN" wait_until 100 is_state "$mine" DOWN
		check "and PORT_DOWN for ibv_devinfo" devinfo_says "$mine" PORT_DOWN
	fi
	for l in 0 1 2 3; do [ "$l" = "$mine" ] || is_state "$l" ACTIVE || all=1; done
	check "all others are ACTIVE" [ $all = 0 ]
	barrier
	[ "$VM_ID" = 0 ] && check "it is plugged in again" host mend 0 1
	[ -n "$mine" ] && check "and ACTIVE" wait_until 100 is_state "$mine" ACTIVE
	barrier
}

# ---- what the field's tools measure between guests 0 and 1 on lane 0 of cable 0 ----
gid_of() { # gid_of ETH: index of its link-local GID, wherever it is
	local f
	for f in /sys/class/infiniband/rxe"$1"/ports/1/gids/*; do
		grep -q '^fe80:' "$f" && { echo "${f##*/}"; return; }
	done
}

# perftest OUT TOOL ARG...: guest 1 serves, guest 0 measures; all guests call it. The tools of Debian 12 meet over IPv4 only.
perftest() {
	local out=$1 tool=$2 e rc=0 i
	shift 2
	e=$(eth_at "$VM_ID" 0 0)
	if [ "$VM_ID" = 1 ]; then
		timeout -k 1 200 "$tool" --ipv6 -F -d "rxe$e" -x "$(gid_of "$e")" "$@" >/tmp/perf.s 2>&1 &
		i=$!
		barrier
		wait $i || { rc=1; cat /tmp/perf.s; }
	else
		barrier
		if [ "$VM_ID" = 0 ]; then
			for i in {1..20}; do # until it listens
				sleep 0.5
				timeout -k 1 150 "$tool" --ipv6 -F -d "rxe$e" -x "$(gid_of "$e")" "$@" "$(mgmt 1)" >"$out" 2>&1 && break
				[ "$i" = 20 ] && { rc=1; cat "$out"; }
			done
		fi
	fi
	return $rc
}

# medians of 5; others that need them read VM_SHARE/perftest
LAT_SIZES="8 4096" LAT_ITERS=100 BW_SIZES=2097152
test_perftest() {
	local i s rc=0
	declare -A lat=() bw=()
	[ "$VM_ID" != 0 ] || rm -f "$VM_SHARE/perftest"
	for i in 1 2 3 4 5; do
		[ $rc = 0 ] || break
		for s in $LAT_SIZES; do
			perftest /tmp/lat ib_send_lat -s "$s" -n $LAT_ITERS || rc=1
			[ "$VM_ID" = 0 ] && lat[$s]+=" $(awk -v s="$s" '$1 == s { print $5 }' /tmp/lat)"
		done
		for s in $BW_SIZES; do
			perftest /tmp/bw ib_write_bw -s "$s" -n 8 || rc=1
			[ "$VM_ID" = 0 ] && bw[$s]+=" $(awk -v s="$s" '$1 == s { print $4 }' /tmp/bw)"
		done
	done
	if [ "$VM_ID" -gt 1 ]; then return; fi
	check "ib_send_lat and ib_write_bw run between guests 0 and 1, five times each" [ $rc = 0 ]
	[ "$VM_ID" = 0 ] || return
	for s in $LAT_SIZES; do
		# shellcheck disable=SC2086
		echo "ib_send_lat $s $(median ${lat[$s]}) us" >>"$VM_SHARE/perftest"
		[ "$(wc -w <<<"${lat[$s]}")" = 5 ] || rc=1
	done
	for s in $BW_SIZES; do
		# shellcheck disable=SC2086
		echo "ib_write_bw $s $(median ${bw[$s]}) MB/s" >>"$VM_SHARE/perftest"
		[ "$(wc -w <<<"${bw[$s]}")" = 5 ] || rc=1
	done
	check "each gave a number each time" [ $rc = 0 ]
	echo "    median of 5, guest 0 to guest 1, one lane; emulation, no measure of anything"
	sed 's/^/    /' "$VM_SHARE/perftest"
}
