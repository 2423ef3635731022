# SPDX-License-Identifier: Apache-2.0
# What `ring.sh test` runs; sourced by it. Each test says what holds; the table and the count come at the end.
# shellcheck shell=bash disable=SC2154
. "$here/shapes.sh"
. "$here/hosts.sh"
. "$here/verbs.sh"
PASS=0 FAIL=0
tmp= # a tmpfs in the mount namespace of the bridges' holder: gone with it

lab_up() { # lab_up N LANES
	up "$1" "$2"
	tmp=/proc/$(holder sw)/root/mnt
	SECRET=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
	PORT=28571 ROOT_AT=0
}

ok() { PASS=$((PASS + 1)); printf '  ok    %s\n' "$*"; }
bad() { FAIL=$((FAIL + 1)); printf '  FAIL  %s\n' "$*"; }
check() { local what=$1; shift; if "$@"; then ok "$what"; else bad "$what"; fi; }

# ranks OUT ORDER CMD...: one process per namespace, rank ORDER[i] in namespace i; all must end within 60 s; output in OUT.RANK
ranks() {
	local out=$1 order pids=() i rc=0 n
	read -ra order <<<"$2"
	shift 2
	n=${#order[@]}
	for ((i = 0; i < n; i++)); do
		(
			in_ns "${PID[i]}" env SIRCL_RANK="${order[i]}" SIRCL_NRANKS="$n" SIRCL_ROOT="$NET.$((ROOT_AT + 1)):$PORT" \
				SIRCL_SECRET="$SECRET" SIRCL_LAB="$LAB" LD_LIBRARY_PATH="$build" timeout -k 5 60 setpriv --pdeathsig KILL "$@"
		) >"$out.${order[i]}" 2>&1 &
		pids+=($!)
	done
	for ((i = 0; i < n; i++)); do
		wait "${pids[i]}" || { rc=1; echo "    rank ${order[i]} failed:"; tail -n 4 "$out.${order[i]}" | sed 's/^/      /'; }
	done
	PORT=$((PORT + 1))
	return $rc
}

counter() { nsenter -t "$1" -n -m -r cat "/sys/class/net/$2/statistics/$3"; } # counter PID DEV tx_bytes

link_local() { nsenter -t "$1" -n ip -6 -o addr show dev "$2" scope link | sed 's/.*inet6 \([^/]*\).*/\1/'; }

pings() { nsenter -t "$1" -n ping -6 -c 1 -W 1 "$2%$3" >/dev/null 2>&1; } # pings PID ADDRESS DEV

# every fabric port of A against every fabric address of B; prints how many answered
reachable() {
	local a=$1 b=$2 dev addr pids=() n=0 p
	for dev in n0 n1 p0 p1; do
		for addr in $(for d in n0 n1 p0 p1; do link_local "${PID[b]}" $d; done); do
			pings "${PID[a]}" "$addr" $dev & pids+=($!)
		done
	done
	for p in "${pids[@]}"; do wait "$p" && n=$((n + 1)); done
	echo $n
}

# the same where 4 should: a ping may come late on a busy machine, so up to five tries
reachable_4() {
	local n try
	for try in 1 2 3 4 5; do
		n=$(reachable "$1" "$2")
		[ "$n" = 4 ] && break
	done
	echo "$n"
}

test_topology() {
	check "rank 0 hears no fabric port of rank 2 (16 pairs)" [ "$(reachable 0 2)" = 0 ]
	check "rank 1 hears no fabric port of rank 3 (16 pairs)" [ "$(reachable 1 3)" = 0 ]
	check "rank 0 hears both ports of rank 1 from both of its own (4 of 16)" [ "$(reachable_4 0 1)" = 4 ]
	check "a cable is one wire: rank 3 hears rank 0 from both ports (4 of 16)" [ "$(reachable_4 3 0)" = 4 ]
}

limit_management() {
	local r
	for r in 0 1 2 3; do
		nsenter -t "${PID[r]}" -n tc qdisc add dev m0 root tbf rate 1mbit burst 32kbit latency 400ms || return 1
	done
}

management_bytes() {
	local r sum=0
	for r in 0 1 2 3; do sum=$((sum + $(counter "${PID[r]}" m0 tx_bytes))); done
	echo $sum
}

test_bench() {
	local kind
	for kind in all_reduce all_gather; do
		if ranks "$tmp/$kind" "0 1 2 3" "$build/sircl-bench" $kind -b 8 -e 16M -f 8 -n 5 -w 1 -c 1 -d bfloat16; then
			sed 's/^/    /' "$tmp/$kind.0"
			ok "sircl-bench $kind, 8 B to 16 MiB over 8 lanes, every element checked"
		else
			bad "sircl-bench $kind"
		fi
	done
}

# every kind, with small sizes, every element checked; a summary line per kind
test_all_kinds() {
	local order type
	for order in "0 1 2 3" "0 2 1 3"; do
		for type in int32 bfloat16; do
			if ranks "$tmp/all" "$order" "$build/sircl-bench" all -b 8 -e 32K -f 64 -n 1 -w 0 -c 1 -d $type; then
				sed -n '/^# Summary/,$p' "$tmp/all.0" | sed 's/^/    /'
				ok "sircl-bench all, $type, ranks in the order $order"
			else
				bad "sircl-bench all, $type, ranks in the order $order"
			fi
		done
	done
}

test_split() {
	check "communicators {0,2} and {1,3}, 30 rounds of all-reduce, broadcast, send and receive" \
		ranks "$tmp/split" "0 1 2 3" "$build/tests/splitcheck" 20000 30
	check "the same with ranks in the order 0-2-1-3" ranks "$tmp/split" "0 2 1 3" "$build/tests/splitcheck" 20000 30
}

test_same_bits_as_shm() {
	local algo a b
	for algo in two-matchings doubling exchange ring; do
		ranks "$tmp/dig" "0 1 2 3" env SIRCL_ALGO=$algo "$build/sircl-bench" all_reduce -b 1K -e 1M -f 8 -n 1 -w 0 -d bfloat16 --digest
		"$build/sircl-bench" all_reduce --ranks 4 --transport shm --algo $algo -b 1K -e 1M -f 8 -n 1 -w 0 -d bfloat16 --digest >"$tmp/shm" 2>&1
		a=$(grep -io 'digest.*' "$tmp/dig.0") b=$(grep -io 'digest.*' "$tmp/shm")
		check "$algo over tcp lanes gives the bits of shm (${a##* })" [ -n "$a" -a "$a" = "$b" ]
	done
}

test_opposite_ranks() {
	check "send/recv between opposite ranks 0 and 2, 40 messages of 1 MiB, through the library of the ranks between" \
		ranks "$tmp/p2p" "0 1 2 3" "$build/tests/ringcheck" p2p 0 2 1048576 20
	check "the same between 1 and 3, 200 messages of 1000 bytes" \
		ranks "$tmp/p2p13" "0 1 2 3" "$build/tests/ringcheck" p2p 1 3 1000 100
}

# A run of large messages: ROWS lane ends, WORST per mille between the kernel's byte counter of one and ours, LEAST percent that the
# smaller lane of a cable carried; false if it failed
count_lanes() {
	local r side dev l ours kernel diff first=0 part
	declare -A was
	ROWS=0 WORST=0 LEAST=50
	for r in 0 1 2 3; do for dev in n0 n1 p0 p1; do was[$r$dev]=$(counter "${PID[r]}" $dev tx_bytes); done; done
	ranks "$tmp/count" "0 1 2 3" env SIRCL_ALGO=ring "$build/tests/ringcheck" reduce 8388608 12 || return 1
	for r in 0 1 2 3; do
		while read -r _ _ _ side l ours; do
			dev=${side:0:1}$l
			kernel=$(($(counter "${PID[r]}" "$dev" tx_bytes) - was[$r$dev]))
			diff=$((ours ? (kernel - ours) * 1000 / ours : 1000))
			[ ${diff#-} -gt "$WORST" ] && WORST=${diff#-}
			ROWS=$((ROWS + 1))
			if [ "$l" = 0 ]; then
				first=$ours
			else
				part=$((first + ours ? first * 100 / (first + ours) : 0))
				[ $part -gt 50 ] && part=$((100 - part))
				[ $part -lt "$LEAST" ] && LEAST=$part
			fi
			printf '    rank %d %s: ours %d, kernel %d bytes, %d per mille\n' "$r" "$dev" "$ours" "$kernel" "$diff"
		done < <(grep ' lane ' "$tmp/count.$r")
	done
}

# The kernel's counter of every lane must be within 5 % of ours, and the two lanes of a cable, which are equal, must carry about the same.
# The machine may be busy and let a lane wait: up to three tries.
test_lane_counters() {
	local try
	for try in 1 2 3; do
		count_lanes || { bad "run for lane counters"; return; }
		[ $ROWS = 16 ] && [ "$WORST" -le 50 ] && [ "$LEAST" -ge 40 ] && break
		echo "    try $try: $ROWS lane ends, worst $WORST per mille, least $LEAST percent"
	done
	check "kernel and library agree on the bytes of all 16 lane ends (worst $WORST per mille)" [ $ROWS = 16 -a "$WORST" -le 50 ]
	check "equal lanes of a cable share its bytes (worst $LEAST : $((100 - LEAST)), at most 40 : 60)" [ $ROWS = 16 -a "$LEAST" -ge 40 ]
}

test_permuted_ranks() {
	ranks "$tmp/perm" "0 2 1 3" "$build/tests/ringcheck" reduce 100000 3 || { bad "ranks placed 0-2-1-3"; return; }
	check "ranks placed 0-2-1-3: the ring follows the cables, not the ranks" \
		grep -q '^rank 0 position 0 ring next 2 prev 3' "$tmp/perm.0"
}

test_line() {
	nsenter -t "${PID[3]}" -n ip link set n0 down
	nsenter -t "${PID[3]}" -n ip link set n1 down
	if ranks "$tmp/line" "0 1 2 3" "$build/tests/ringcheck" reduce 1000000 2; then
		check "a ring with a missing cable starts as a line" grep -q ' line ' "$tmp/line.0"
		check "with one warning that names the ends" [ "$(cat "$tmp"/line.* | grep -c 'SIRCL WARN.*is missing')" = 1 ]
	else
		bad "line"
	fi
	nsenter -t "${PID[3]}" -n ip link set n0 up
	nsenter -t "${PID[3]}" -n ip link set n1 up
}

# Takes DEV of PID down once it carries data: more than 1 MB since the call and 200 kB in the last 100 ms. Writes to OUT how much it carried in
# these; no OUT if it never did.
cut_in_use() { # cut_in_use PID DEV OUT
	local first last now i
	first=$(counter "$1" "$2" tx_bytes) last=$first
	rm -f "$3"
	for ((i = 0; i < 200; i++)); do
		sleep 0.1
		now=$(counter "$1" "$2" tx_bytes)
		if [ $((now - first)) -gt 1000000 ] && [ $((now - last)) -gt 200000 ]; then
			nsenter -t "$1" -n ip link set "$2" down
			echo $((now - last)) >"$3"
			return
		fi
		last=$now
	done
}

# lane_cut PID DEV OUT CMD...: the ranks run CMD, and DEV goes down on the way; $CUT: what it carried in the 100 ms before
lane_cut() {
	local pid=$1 dev=$2 out=$3 rc=0 cutter
	shift 3
	cut_in_use "$pid" "$dev" "$out.bytes" &
	cutter=$!
	ranks "$out" "0 1 2 3" "$@" || rc=1
	CUT=$(cat "$out.bytes" 2>/dev/null)
	kill $cutter 2>/dev/null
	wait $cutter 2>/dev/null
	nsenter -t "$pid" -n ip link set "$dev" up
	return $rc
}

test_lane_lost() {
	check "a lane that goes down during all-reduces changes no result" \
		lane_cut "${PID[0]}" n1 "$tmp/cut" "$build/tests/ringcheck" reduce 4194304 60
	check "it carried data until then (${CUT:-0} bytes in the last 100 ms)" [ "${CUT:-0}" -gt 200000 ]
	check "and is not up at the end of the run, or frames were sent again" \
		bash -c "grep -Eq 'replayed [1-9]' $tmp/cut.0 $tmp/cut.1 || ! grep -q 'lane next 1' $tmp/cut.0"
}

digest_of() { grep -io 'Digest .*' "$1" | tail -n 1; }

# Runs in which a lane goes down end with the same bits as runs in which none does.
test_lane_lost_bits() {
	local run=("$build/sircl-bench" all_reduce -b 8M -e 8M -n 16 -w 0 -c 1 -d bfloat16 --digest) a b
	ranks "$tmp/bits0" "0 1 2 3" "${run[@]}" || { bad "digest of the whole ring"; return; }
	lane_cut "${PID[1]}" p0 "$tmp/bits1" "${run[@]}" || { bad "all-reduces while a lane goes down"; return; }
	check "a lane went down that carried data (${CUT:-0} bytes in the last 100 ms)" [ "${CUT:-0}" -gt 200000 ]
	a=$(digest_of "$tmp/bits0.0") b=$(digest_of "$tmp/bits1.0")
	check "that changes no bit of that run (${a##* })" [ -n "$a" -a "$a" = "$b" ]
}

# The bucket is small: one that holds a frame lets a lane that was idle carry it at once, and a lane that is fast for a frame and slow for
# more is none of a constant rate.
shape_lane() { # shape_lane LANE MBIT: lane LANE of the cable between 0 and 1, both ways
	nsenter -t "${PID[0]}" -n tc qdisc replace dev "n$1" root tbf rate "$2mbit" burst 16kb limit 4mb &&
		nsenter -t "${PID[1]}" -n tc qdisc replace dev "p$1" root tbf rate "$2mbit" burst 16kb limit 4mb
}

unshape_lane() {
	nsenter -t "${PID[0]}" -n tc qdisc del dev "n$1" root
	nsenter -t "${PID[1]}" -n tc qdisc del dev "p$1" root
}

# microseconds of the first two 16 MiB all-reduces, one of them in place. Lanes are to be what limits them, so the ranks run before all others.
reduce_time() { # reduce_time LANES
	ranks "$tmp/rate" "0 1 2 3" env SIRCL_LANES="$1" SIRCL_ALGO=ring nice -n -20 \
		"$build/sircl-bench" all_reduce -b 16M -e 16M -n 1 -w 0 -c 0 -d bfloat16 >&2 || return 1
	awk '$1 == 16777216 { printf "%d", $6 + $10 }' "$tmp/rate.0"
}

median() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }

# One cable has a lane of 100 Mbit/s and one of SLOW; medians of alternating runs with both lanes and with the fast one alone.
# The machine may be busy: up to three tries.
slow_lane_ratio() { # slow_lane_ratio SLOW PERMILLE WHAT
	local slow=$1 least=$2 what=$3 try i a b alone both ratio=0 was slow_bytes
	for try in 1 2 3; do
		alone=() both=()
		shape_lane 0 100 && shape_lane 1 "$slow" || { bad "$what: tc"; return; }
		was=$(counter "${PID[0]}" n1 tx_bytes)
		for i in 1 2 3; do
			a=$(reduce_time 1) && b=$(reduce_time 2) && [ -n "$a" ] && [ -n "$b" ] || { bad "$what: a run failed"; break 2; }
			alone+=("$a") both+=("$b")
		done
		slow_bytes=$(($(counter "${PID[0]}" n1 tx_bytes) - was))
		a=$(median "${alone[@]}") b=$(median "${both[@]}")
		ratio=$((a * 1000 / b))
		echo "    try $try: alone $a us (${alone[*]}), both $b us (${both[*]}): $ratio per mille; the slow lane carried $slow_bytes bytes"
		[ "$ratio" -ge "$least" ] && break
	done
	unshape_lane 0
	unshape_lane 1
	check "$what: $ratio per mille of the fast lane's rate alone, at least $least" [ "$ratio" -ge "$least" ]
}

test_slow_lane() {
	slow_lane_ratio 10 950 "16 MiB all-reduce, lanes of 100 and 10 Mbit/s"
	slow_lane_ratio 50 1275 "16 MiB all-reduce, lanes of 100 and 50 Mbit/s" # 0.85 of 1.5
}

# N = 2 has one cable or two; each in a lab of its own, since this one is a ring of four
run_pair() { # in a lab of 2 ranks
	lab_up 2 2
	ranks "$tmp/two" "0 1" "$build/tests/ringcheck" reduce 1000000 5 || return 1
	grep -m 1 '^rank 0 position' "$tmp/two.0"
	nsenter -t "${PID[1]}" -n ip link set n0 down
	nsenter -t "${PID[1]}" -n ip link set n1 down
	ranks "$tmp/one" "0 1" "$build/tests/ringcheck" reduce 1000000 5 || return 1
	grep -m 1 '^rank 0 position' "$tmp/one.0"
}

run_wide() { # 8 lanes per cable
	lab_up 4 8
	ranks "$tmp/wide" "0 1 2 3" "$build/tests/ringcheck" reduce 4000000 10 || return 1
	grep -c ' lane next ' "$tmp/wide.0"
}

test_other_rings() {
	local out
	out=$(SIRCL_LAB=${LAB}p "$here/ring.sh" short pair 2>&1)
	check "two ranks, two cables: a ring" grep -q ' ring ' <<<"$(sed -n 1p <<<"$out")"
	check "two ranks, one cable: a line" grep -q ' line ' <<<"$(sed -n 2p <<<"$out")"
	out=$(SIRCL_LAB=${LAB}w "$here/ring.sh" short wide 2>&1)
	check "8 lanes per cable are in use ($out)" [ "$out" = 8 ]
}

test_without_ipv6() {
	local r dev i
	for r in 0 1 2 3; do
		for dev in n0 n1 p0 p1; do
			nsenter -t "${PID[r]}" -n bash -c "echo 1 >/proc/sys/net/ipv6/conf/$dev/disable_ipv6"
			# cable and end: any addresses do, link-local IPv4 as NetworkManager would give
			case $dev in n*) i=$((r * 2 + 1)) ;; *) i=$((((r + 3) % 4) * 2 + 2)) ;; esac
			nsenter -t "${PID[r]}" -n ip addr add "169.254.$((i * 2 + ${dev:1})).$((r + 1))/16" dev $dev
		done
	done
	check "IPv6 switched off: lanes over IPv4" ranks "$tmp/v4" "0 1 2 3" "$build/tests/ringcheck" reduce 1000000 3
	check "and as a ring" grep -q ' ring ' "$tmp/v4.0"
}

run_shapes() {
	lab_up 4 2
	test_shapes
	down
	timed test_pairs
	echo "$PASS passed, $FAIL failed, 0 skipped"
	[ $FAIL = 0 ]
}

run_short() {
	lab_up 4 1
	for _ in 1 2 3; do
		ranks "$tmp/short" "0 1 2 3" "$build/tests/ringcheck" reduce 1048576 "${SHORT_ITERS:-20}" || return 1
	done
}

# processes and namespaces of a lab that still exist: holders by name, everything else by its environment
of_lab() {
	pgrep -f "^sircl-lab-$1-"
	grep -lsz "^SIRCL_LAB=$1\$" /proc/[0-9]*/environ
}

test_two_labs() {
	SIRCL_LAB=${LAB}x "$here/ring.sh" short >"$tmp/other" 2>&1 &
	local other=$!
	check "two labs at once: this one" ranks "$tmp/two" "0 1 2 3" "$build/tests/ringcheck" reduce 1048576 40
	if wait $other; then ok "two labs at once: the other"; else bad "two labs at once: the other"; tail -n 5 "$tmp/other"; fi
	check "the other left nothing behind" [ -z "$(of_lab "${LAB}x")" ]
}

test_killed_lab() {
	SIRCL_LAB=${LAB}k SHORT_ITERS=100000 "$here/ring.sh" short >/dev/null 2>&1 &
	local other=$! i
	for ((i = 0; i < 400; i++)); do
		[ "$(of_lab "${LAB}k" | wc -l)" -gt 12 ] && break
		sleep 0.05
	done
	sleep 0.3
	check "a lab that is about to be killed runs (its processes are seen)" [ "$(of_lab "${LAB}k" | wc -l)" -gt 12 ]
	kill -KILL $other
	wait $other 2>/dev/null
	for ((i = 0; i < 200; i++)); do
		[ -z "$(of_lab "${LAB}k")" ] && break
		sleep 0.05
	done
	check "a killed lab leaves no process and so no namespace" [ -z "$(of_lab "${LAB}k")" ]
}

timed() { # timed TEST: runs it and prints how long it took
	local from=$SECONDS
	case " ${TESTS:-$1} " in *" $1 "*) ;; *) return ;; esac
	"$1"
	echo "  -- $1: $((SECONDS - from)) s"
}

run_tests() {
	local t started moved
	echo "netns ring, lab $LAB: 4 ranks, 2 lanes per cable, management limited to 1 Mbit/s"
	lab_up 4 2
	test_topology
	check "management ports limited" limit_management
	started=$(management_bytes)
	for t in test_bench test_all_kinds test_split test_opposite_ranks test_lane_counters; do timed $t; done
	moved=$(($(management_bytes) - started))
	check "management carried $moved bytes while the payload moved (< 2 MB)" [ "$moved" -lt 2000000 ]
	for t in test_same_bits_as_shm test_permuted_ranks test_line test_lane_lost test_lane_lost_bits test_slow_lane test_verbs_lanes test_other_rings \
		test_without_ipv6 test_two_labs test_killed_lab; do timed $t; done
	timed test_shapes
	timed test_hosts
	down
	timed test_pairs
	check "nothing is left behind" bash -c "! pgrep -f '^sircl-lab-$LAB-'"
	echo "$PASS passed, $FAIL failed, 0 skipped"
	[ $FAIL = 0 ]
}
