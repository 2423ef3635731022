# SPDX-License-Identifier: Apache-2.0
# What a guest's script runs in: names and addresses of the ports, four RoCE devices, helpers; then sources the script. Run by init.
#
# A script knows VM_ID (0..3), VM_N, VM_TOP and VM_BUILD (the host's tree and programs, read-only), VM_SHARE (a folder that all guests and
# the host write), VM_IPV4 (1 if there is IPv4), VM_KEY (a fresh secret). What it prints goes to VM_SHARE/out.$VM_ID, its arguments are $@.
# shellcheck shell=bash
set -u
VM_SHARE=/run/vm
# shellcheck disable=SC1091
. $VM_SHARE/env
export VM_ID VM_N VM_TOP VM_BUILD VM_SHARE VM_IPV4 SIRCL_LAB=$VM_LAB LD_LIBRARY_PATH=$VM_BUILD
IFS=, read -ra CABLES <<<"$VM_CABLES"
PASS=0 FAIL=0
REQUESTS=0 BARRIERS=0 PORT=28600

ok() { PASS=$((PASS + 1)); printf '  ok    %s\n' "$*"; }
bad() { FAIL=$((FAIL + 1)); printf '  FAIL  %s\n' "$*"; }
check() { local what=$1; shift; if "$@"; then ok "$what"; else bad "$what"; fi; }
# timed TEST: and how long it took; TESTS of check.sh may leave it out. All guests call it
timed() {
	local from
	case " ${VM_TESTS:-$1} " in *" $1 "*) ;; *) return 0 ;; esac
	from=$(uptime_s)
	"$1"
	barrier
	echo "  -- $1: $(($(uptime_s) - from)) s"
}
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }
uptime_s() { cut -d. -f1 /proc/uptime; }

# ---- the map ----
mgmt() { if [ "$VM_IPV4" = 1 ]; then echo "10.253.254.$(($1 + 1))"; else echo "fd5c::$(($1 + 1))"; fi; } # mgmt GUEST
mgmt_host() { if [ "$VM_IPV4" = 1 ]; then mgmt "$1"; else echo "[$(mgmt "$1")]"; fi; }               # the same before a :port
link_local() { printf 'fe80::5054:ff:fe00:%x\n' $(($1 * 256 + $2)); } # link_local GUEST ETH: follows from its MAC
# eth_at GUEST CABLE LANE: the number of that guest's port, nothing if the cable does not end there
eth_at() {
	local end
	for end in ${CABLES[$2]}; do [ "${end%:*}" = "$1" ] && echo $((2 * ${end#*:} + $3)); done
	return 0
}
next() { echo $(((VM_ID + 1) % VM_N)); } # by cable VM_ID
prev() { echo $(((VM_ID + VM_N - 1) % VM_N)); }

# ---- with the others ----

# wait_until SECONDS CMD...
wait_until() {
	local end=$(($(uptime_s) + $1))
	shift
	until "$@"; do
		[ "$(uptime_s)" -lt $end ] || return 1
		sleep 0.1
	done
}

all_there() { # all_there NAME: or one has ended and never will be
	local g
	for ((g = 0; g < VM_N; g++)); do
		[ -e "$VM_SHARE/barrier.$1.$g" ] && continue
		[ -e "$VM_SHARE/rc.$g" ] && { echo "guest $g has ended and is not at barrier $1"; exit 1; }
		return 1
	done
}

# barrier: all guests get here, in the same order of barriers, within 300 s; else the script ends
barrier() {
	BARRIERS=$((BARRIERS + 1))
	: >"$VM_SHARE/barrier.$BARRIERS.$VM_ID"
	wait_until 300 all_there $BARRIERS || { echo "barrier $BARRIERS: not all guests came"; exit 1; }
}

# host WHAT ARG...: cut or mend CABLE LANE, stop or cont GUEST; done when it returns
host() {
	local said
	REQUESTS=$((REQUESTS + 1))
	echo "$*" >"$VM_SHARE/req.$VM_ID.$REQUESTS.new"
	mv "$VM_SHARE/req.$VM_ID.$REQUESTS.new" "$VM_SHARE/req.$VM_ID.$REQUESTS"
	wait_until 100 test -e "$VM_SHARE/ans.$VM_ID.$REQUESTS" || { echo "host $*: no answer"; return 1; }
	said=$(<"$VM_SHARE/ans.$VM_ID.$REQUESTS")
	[ "${said%% *}" = ok ] || { echo "host $*: $said"; return 1; }
}

# as_user KIB CMD...: as user 1000, with that much lockable memory. AS_USER KIB: its words, for `rank` and others that want a program
as_user() {
	AS_USER "$1"
	shift
	"${USER_CMD[@]}" "$@"
}
AS_USER() { USER_CMD=(prlimit --memlock=$(($1 * 1024)):$(($1 * 1024)) -- setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --); }

# rank ORDER LIMIT OUT CMD...: one rank on each guest, rank ORDER[VM_ID] here ("-": none); output in VM_SHARE/OUT.RANK; all guests call it.
# Returns this guest's status once all have ended, 124 after LIMIT s. DURING, if set, is a command that runs beside it; BESIDE: its status.
rank() {
	local order limit=$2 out=$VM_SHARE/$3 rc=0 root=0 n=0 mine i beside=''
	read -ra order <<<"$1"
	shift 3
	for ((i = 0; i < VM_N; i++)); do
		[ "${order[i]}" = 0 ] && root=$i
		[ "${order[i]}" = - ] || n=$((n + 1))
	done
	mine=${order[VM_ID]}
	PORT=$((PORT + 1))
	barrier # nobody looks at the last run's files any more
	rm -f "$out.$mine" "$out.rc$mine"
	if [ -n "${DURING:-}" ]; then
		$DURING &
		beside=$!
	fi
	if [ "$mine" != - ]; then
		SIRCL_ROOT="$(mgmt_host "$root"):$PORT" SIRCL_KEY="$VM_KEY" SIRCL_RANK="$mine" SIRCL_NRANKS="$n" \
			timeout -k 5 "$limit" "$@" >"$out.$mine" 2>&1 </dev/null
		rc=$?
		echo $rc >"$out.rc$mine"
	fi
	barrier
	BESIDE=0
	if [ -n "$beside" ]; then
		wait $beside
		BESIDE=$?
		[ $BESIDE = 0 ] || echo "    $DURING: failed"
	fi
	return $rc
}
# all_ranks OUT [N]: every one of the N ranks of the last `rank` with that name ended with 0; shows those that did not
all_ranks() {
	local r all=0
	for ((r = 0; r < ${2:-VM_N}; r++)); do
		[ "$(cat "$VM_SHARE/$1.rc$r")" = 0 ] && continue
		all=1
		echo "    rank $r of $1 ended with $(cat "$VM_SHARE/$1.rc$r"):"
		tail -n 6 "$VM_SHARE/$1.$r" | sed 's/^/      /'
	done
	return $all
}

# ---- this machine ----
setup() {
	local p name mac d l
	hostname "vm$VM_ID"
	echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
	ip link set lo up
	for p in /sys/class/net/*; do
		name=${p##*/} mac=$(<"$p/address")
		echo 0 >"/proc/sys/net/ipv6/conf/$name/accept_dad"
		case $mac in
		*:10) ip link set "$name" name mgmt0 ;;
		52:54:00:00:*) ip link set "$name" name "lane${mac##*:0}" ;;
		esac
	done
	for l in 0 1 2 3; do
		ip link set "lane$l" name "eth$l" mtu 4200 up || return 1
	done
	ip link set mgmt0 up
	ip -6 addr add "fd5c::$((VM_ID + 1))/64" dev mgmt0 nodad
	if [ "$VM_IPV4" = 1 ]; then
		ip addr add "10.253.254.$((VM_ID + 1))/24" dev mgmt0
	else
		ip addr del 127.0.0.1/8 dev lo
	fi
	for l in 0 1 2 3; do
		d=eth$l
		rdma link add "rxe$l" type rxe netdev "$d" || return 1
	done
	wait_until 100 ready || { echo "ports are not ready:"; rdma link; ip -br addr; return 1; }
}
ready() { [ "$(rdma link | grep -c 'state ACTIVE')" = 4 ] && [ "$(ip -6 -o addr show scope link | grep -vc tentative)" -ge 5 ]; }

setup || exit 1
barrier
# shellcheck disable=SC2086
set -- $VM_ARGS
# shellcheck disable=SC1090
. "$VM_SCRIPT"
echo "$PASS passed, $FAIL failed"
[ $FAIL = 0 ]
