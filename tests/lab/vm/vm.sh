#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A switchless ring of four virtual machines with kernel RDMA (soft-RoCE): no hardware, no root, no KVM.
#
#   vm.sh build                     makes the guests' kernel and initramfs
#   vm.sh run [OPTIONS] SCRIPT [ARG...]   boots four guests and runs SCRIPT (bash, sourced by guest.sh) in each, as root
#       -4           management and lanes have IPv4 addresses as well; without it there is no IPv4 anywhere
#       -o DIR       the folder that the guests share with the host, and where out.G (output of guest G) stays
#       -t SECONDS   the whole run's limit (300)
#       -b DIR       folder with the programs, $VM_BUILD in the guests (build)
#   vm.sh cut CABLE LANE            pulls lane 0 or 1 of cable 0..3 of a lab that runs, at both ends; mend CABLE LANE plugs it in
#   vm.sh down                      ends a lab that runs
#
# $SIRCL_LAB names the lab (run: the process id; cut, mend, down: the only lab there is). $VM_WORK: where kernel and initramfs are kept
# (default: in a temporary folder, made anew for each run). Exit status of run: 0 if SCRIPT ended with 0 on every guest; 1 and the
# reasons if not, or if a guest died or the limit has passed; 3 if such guests cannot be run here.
#
# Guest G has eth0..eth3: eth(2c + l) is lane l of cage c. Cable C joins guests C and C+1, at the cages of the table CABLES, which is neither
# all p0-p1 nor all p0-p0. Both lanes of a cable are one segment, as the functions of a cage share a wire: each hears its twin and both
# far ones. mgmt0 is the management network, a hub in guest 0's process: a paused guest 0 stops it. Processes die with this script, however
# it ends. Guests see the host's / read-only, with the rights of who runs this. Emulated: order, loss, death and data are real, times are not.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
CABLES=("0:0 1:0" "1:1 2:0" "2:1 3:1" "3:0 0:1") # guest:cage of both ends
N=4

die() { echo "vm.sh: $*" >&2; exit 2; }
# shellcheck source-path=SCRIPTDIR
. "$here/image.sh"

folder_of() { echo "${TMPDIR:-/tmp}/sircl-vm-$1"; } # sockets, monitors, process ids of a lab

need() {
	local missing=
	command -v qemu-system-x86_64 >/dev/null || missing+=" qemu-system-x86"
	busybox --list 2>/dev/null | grep -q '^insmod$' || missing+=" busybox-static"
	command -v cpio >/dev/null || missing+=" cpio"
	command -v rdma >/dev/null || missing+=" iproute2"
	command -v ibv_devinfo >/dev/null || missing+=" ibverbs-utils"
	[ -e /etc/libibverbs.d/rxe.driver ] || missing+=" ibverbs-providers"
	command -v setpriv >/dev/null || missing+=" util-linux"
	[ -z "$missing" ] || { echo "vm.sh: not run: missing Debian packages; as root: scripts/setup.sh vm (missing:$missing)"; exit 3; }
	[ "$(uname -m)" = x86_64 ] || { echo "vm.sh: not run: the guests' programs are this machine's, and the guests are x86_64"; exit 3; }
}

# is_running FOLDER: its vm.sh holds the lock
is_running() { [ -e "$1/lock" ] && ! flock -n "$1/lock" true 2>/dev/null; }

only_lab() {
	local d labs=()
	if [ -n "${SIRCL_LAB:-}" ]; then
		run=$(folder_of "$SIRCL_LAB")
		is_running "$run" || die "no lab $SIRCL_LAB runs"
		return
	fi
	for d in $(folder_of '*'); do is_running "$d" && labs+=("$d"); done
	[ ${#labs[@]} -gt 0 ] || die "no lab runs: vm.sh run SCRIPT"
	[ ${#labs[@]} = 1 ] || die "several labs run (${labs[*]##*sircl-vm-}): set SIRCL_LAB"
	run=${labs[0]}
}

# ---- monitors: one line of JSON each way, through a pair of pipes ----

qmp() { # qmp GUEST COMMAND [ARGUMENTS]: waits for the answer
	local g=$1 line
	kill -0 "${QEMU[g]}" 2>/dev/null || { echo "guest $g has ended"; return 1; }
	printf '{"execute":"%s"%s}\n' "$2" "${3:+,\"arguments\":$3}" >&"${MON_IN[g]}"
	while IFS= read -r -t 60 -u "${MON_OUT[g]}" line; do
		case $line in
		'{"return"'*) return 0 ;;
		'{"error"'*) echo "guest $g: $line"; return 1 ;;
		esac
	done
	echo "guest $g: its monitor does not answer"
	return 1
}

# lane CABLE LANE up|down: both ends; only an end whose monitor is told sees a port event
lane() {
	local end g eth up=false
	case "$1 $2" in [0-3]' '[01]) ;; *) echo "no lane $2 of cable $1: cables 0..3, lanes 0 and 1"; return 1 ;; esac
	[ "$3" = up ] && up=true
	for end in ${CABLES[$1]}; do
		g=${end%:*} eth=$((2 * ${end#*:} + $2))
		qmp "$g" set_link "{\"name\":\"n$eth\",\"up\":$up}" || return 1
	done
}

serve() { # serve WHAT ARG...: a request of a guest or of another vm.sh
	case $1 in
	cut) lane "${2:-}" "${3:-}" down ;;
	mend) lane "${2:-}" "${3:-}" up ;;
	stop | cont)
		case ${2:-} in
		[123]) qmp "$2" "$1" ;;
		*) echo "$1: guests 1, 2, 3 (guest 0 holds the management hub)"; return 1 ;;
		esac
		;;
	*) echo "no request $1: cut, mend CABLE LANE; stop, cont GUEST"; return 1 ;;
	esac
}

requests() {
	local f what said
	for f in "$share"/req.*; do
		case $f in *'*' | *.new) continue ;; esac
		read -ra what <"$f"
		rm -f "$f"
		said=$(serve "${what[@]}") && said="ok $said"
		echo "$said" >"$share/ans.${f##*/req.}.new"
		mv "$share/ans.${f##*/req.}.new" "$share/ans.${f##*/req.}"
	done
}

ask() { # ask WHAT ARG...: of the vm.sh that runs the lab in $run
	local name i said
	share=$(readlink "$run/share") || die "the lab is only starting"
	name=host$$
	echo "$*" >"$share/req.$name.new"
	mv "$share/req.$name.new" "$share/req.$name"
	for ((i = 0; i < 200; i++)); do
		if [ -e "$share/ans.$name" ]; then
			said=$(<"$share/ans.$name")
			rm -f "$share/ans.$name"
			[ "${said%% *}" = ok ] || die "$said"
			return 0
		fi
		sleep 0.1
	done
	die "the lab does not answer"
}

# ---- guests ----

# The guests' clock is the emulated HPET: their TSC is the host's, and its calibration on a busy host has been seen wrong by a factor of 7.
boot() { # boot GUEST
	local g=$1 c end side args cage lane eth i o
	# shellcheck disable=SC2054 # qemu's commas
	args=(-name "sircl-vm-$LAB-$g" -nodefaults -no-user-config -display none -no-reboot -M q35 -accel tcg,thread=single -cpu max -m 640 -smp 1
		-kernel "$work/vmlinuz" -initrd "$work/initrd"
		-append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr clocksource=hpet no_timer_check random.trust_cpu=on net.ifnames=0 8250.nr_uarts=1 nmi_watchdog=0 nowatchdog rcupdate.rcu_cpu_stall_suppress=1 vm.id=$g"
		-serial "file:$share/console.$g"
		-chardev "pipe,id=mon,path=$run/mon$g" -mon chardev=mon,mode=control
		-fsdev "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap" -device virtio-9p-pci,fsdev=root,mount_tag=root
		-fsdev "local,id=share,path=$share,security_model=none" -device virtio-9p-pci,fsdev=share,mount_tag=share)
	# The functions of a cage have one function number in two slots, as they have in two PCI domains of a Spark.
	for cage in 0 1; do
		for lane in 0 1; do
			eth=$((2 * cage + lane))
			args+=(-netdev "hubport,id=n$eth,hubid=$((10 + cage))"
				-device "virtio-net-pci,netdev=n$eth,mac=52:54:00:00:0$g:0$eth,host_mtu=4200,romfile=,multifunction=on,addr=$((8 + lane)).$cage")
		done
	done
	for ((c = 0; c < N; c++)); do
		side=a
		for end in ${CABLES[c]}; do
			if [ "${end%:*}" = "$g" ]; then
				args+=(-netdev "dgram,id=w$c,local.type=unix,local.path=$run/c$c$side,remote.type=unix,remote.path=$run/c$c$([ $side = a ] && echo b || echo a)"
					-netdev "hubport,id=h$c,hubid=$((10 + ${end#*:})),netdev=w$c")
			fi
			side=b
		done
	done
	if [ "$g" = 0 ]; then
		args+=(-netdev "hubport,id=m,hubid=1")
		for ((c = 1; c < N; c++)); do
			args+=(-netdev "dgram,id=mw$c,local.type=unix,local.path=$run/m0$c,remote.type=unix,remote.path=$run/m$c"
				-netdev "hubport,id=mh$c,hubid=1,netdev=mw$c")
		done
	else
		args+=(-netdev "dgram,id=m,local.type=unix,local.path=$run/m$g,remote.type=unix,remote.path=$run/m0$g")
	fi
	args+=(-device "virtio-net-pci,netdev=m,mac=52:54:00:00:0$g:10,romfile=,addr=10")
	mkfifo "$run/mon$g.in" "$run/mon$g.out" || die "cannot make pipes in $run"
	exec {i}<>"$run/mon$g.in" {o}<>"$run/mon$g.out"
	MON_IN[g]=$i MON_OUT[g]=$o
	setpriv --pdeathsig KILL qemu-system-x86_64 "${args[@]}" </dev/null >"$run/qemu$g" 2>&1 {LOCK}>&- &
	QEMU[g]=$!
	disown # bash need not report its end
	echo "${QEMU[g]}" >"$run/pid$g"
}

# take_down: ends what runs, by the numbers written down here
take_down() {
	local p
	for p in "${QEMU[@]}"; do kill -KILL "$p" 2>/dev/null; done
	[ -n "${run:-}" ] && rm -rf "$run"
	[ -n "${temporary:-}" ] && rm -rf "$temporary"
}

claim() { # the lab's folder, for this process alone
	run=$(folder_of "$LAB")
	[ ${#run} -le 90 ] || die "the name $run is too long for a socket: a shorter TMPDIR or SIRCL_LAB"
	if ! mkdir -m 700 "$run" 2>/dev/null; then
		[ -O "$run" ] || die "$run belongs to somebody else: another SIRCL_LAB"
		if is_running "$run"; then
			local other=$run
			run=
			die "lab $LAB runs already (${other}): vm.sh down, or another SIRCL_LAB"
		fi
		rm -rf "$run" # of a lab that was killed
		mkdir -m 700 "$run" || die "cannot make $run"
	fi
	exec {LOCK}>"$run/lock"
	flock -n "$LOCK" || { run=; die "lab $LAB is being started by another process"; }
	echo $$ >"$run/pid"
}

# verdict GUEST LATE: what became of it, nothing if its script ended with 0. LATE: those that ran when the limit passed
verdict() {
	local g=$1 rc
	if [ -s "$share/rc.$g" ]; then
		rc=$(<"$share/rc.$g")
		[ "$rc" = 0 ] || echo "guest $g: the script ended with $rc"
	elif [[ " $2 " = *" $g "* ]]; then
		echo "guest $g: $([ -e "$share/up.$g" ] && echo "the script was still running" || echo "was still booting")"
	elif [ -e "$share/up.$g" ]; then
		echo "guest $g died while the script ran: $(tail -n 1 "$share/console.$g" 2>/dev/null) $(tail -n 1 "$run/qemu$g")"
	else
		echo "guest $g did not come up: $(tail -n 1 "$share/console.$g" 2>/dev/null) $(tail -n 1 "$run/qemu$g")"
	fi
}

run() {
	local limit=300 ipv4=0 build=${BUILD:-$top/build} see='' d g alive rc=0 line
	share=
	while getopts 4o:t:b: o; do
		case $o in
		4) ipv4=1 ;;
		o) share=$OPTARG ;;
		t) limit=$OPTARG ;;
		b) build=$OPTARG ;;
		*) exit 2 ;;
		esac
	done
	shift $((OPTIND - 1))
	[ $# -ge 1 ] || die "run SCRIPT"
	local script
	script=$(readlink -f "$1")
	[ -f "$script" ] || die "there is no script $1"
	shift
	build=$(readlink -f "$build")
	need
	LAB=${SIRCL_LAB:-$$} QEMU=() MON_IN=() MON_OUT=() temporary='' run=''
	trap take_down EXIT
	trap 'exit 143' TERM INT HUP
	claim
	if [ -z "${VM_WORK:-}" ]; then
		temporary=$(mktemp -d "${TMPDIR:-/tmp}/sircl-vm-work-XXXXXX")
		work=$temporary
	fi
	image
	if [ -z "$share" ]; then
		share=$run/out
	else
		mkdir -p "$share" || die "cannot make $share"
		share=$(readlink -f "$share")
	fi
	mkdir -p "$share"
	rm -f "$share"/{req,ans,up,rc,out,console,barrier}.[0-9h]* "$share/env"
	ln -s "$share" "$run/share.new" && mv -T "$run/share.new" "$run/share"
	for d in "$top" "$build" "${script%/*}"; do
		case $d in /tmp/* | /run/* | /dev/shm/*) see+=" $d" ;; esac
	done
	{
		printf '%s=%q\n' VM_TOP "$top" VM_BUILD "$build" VM_SCRIPT "$script" VM_ARGS "$*" VM_SEE "$see" VM_TESTS "${TESTS:-}" VM_IPV4 $ipv4 VM_N $N VM_LAB "$LAB" \
			VM_CABLES "$(IFS=,; echo "${CABLES[*]}")" VM_KEY "$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')"
	} >"$share/env"
	SECONDS=0
	for ((g = 0; g < N; g++)); do boot $g; done
	for ((g = 0; g < N; g++)); do
		if ! line=$(qmp $g qmp_capabilities); then echo "vm.sh: $line $(tail -n 1 "$run/qemu$g")"; rc=1; fi
	done
	local said='' late=''
	while :; do
		alive=
		for ((g = 0; g < N; g++)); do kill -0 "${QEMU[g]}" 2>/dev/null && alive+=" $g"; done
		[ -z "$alive" ] && break
		if [ $SECONDS -ge "$limit" ] || [ $rc = 1 ]; then
			[ $rc = 1 ] || { late=$alive; echo "vm.sh: ended after $limit s"; }
			break
		fi
		if [ -z "$said" ] && [ -e "$share/up.0" ] && [ -e "$share/up.1" ] && [ -e "$share/up.2" ] && [ -e "$share/up.3" ]; then
			said=1
			echo "vm.sh: lab $LAB: four guests up after $SECONDS s, kernel $(<"$work/version")"
		fi
		requests
		sleep 0.1
	done
	for ((g = 0; g < N; g++)); do
		line=$(verdict $g "$late")
		[ -n "$line" ] && { rc=1; echo "vm.sh: $line"; }
		if [ "$share" = "$run/out" ]; then sed "s/^/$g| /" "$share/out.$g" 2>/dev/null; fi
	done
	echo "vm.sh: lab $LAB: $SECONDS s"
	exit $rc
}

work=${VM_WORK:-}
case ${1:-} in
build)
	[ -n "$work" ] || work=$(mktemp -d "${TMPDIR:-/tmp}/sircl-vm-work-XXXXXX")
	need
	image
	echo "kernel $(<"$work/version") and initramfs in $work: VM_WORK=$work tests/lab/vm/vm.sh run SCRIPT"
	;;
run)
	shift
	run "$@"
	;;
cut | mend)
	[ $# = 3 ] || die "$1 CABLE LANE"
	only_lab
	ask "$@"
	;;
down)
	only_lab
	kill "$(<"$run/pid")"
	for _ in $(seq 100); do
		[ -d "$run" ] || exit 0
		sleep 0.1
	done
	die "lab ${run##*sircl-vm-} does not end"
	;;
*)
	sed -n '5,13p' "$0" | sed 's/^# \{0,1\}//'
	exit 2
	;;
esac
