#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sircl run -H with a stand-in for ssh, which starts the far end on this machine. Usage: tests/functional/run_hosts.sh
# [BUILD]. Ends with a line `N passed, N failed, N skipped`; exit 1 if one failed.
# shellcheck disable=SC2016,SC2046 # the ranks expand what is quoted; lists of process ids are split
set -u
cd "$(dirname "$0")/../.." || exit 2
BUILD=$(realpath -m "${1:-${BUILD:-build}}")
SIRCL=$BUILD/sircl
export SIRCL_LAB=${SIRCL_LAB:-$$}
passed=0 failed=0
tmp=$(mktemp -d "/tmp/sircl-hosts-$SIRCL_LAB-XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
[ -x "$SIRCL" ] || { echo "$SIRCL is missing: make first"; exit 2; }

check() { # NAME CONDITION...: the condition is a command
	local name=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $name ($*)"
		sed 's/^/    /' "$tmp/err" 2>/dev/null | head -n 8
	fi
}
is() { [ "$1" = "$2" ]; }
lines() { wc -l <"$1" | tr -d ' '; }
exits() { # STATUS COMMAND...: output in $tmp/out and $tmp/err
	local want=$1 got
	shift
	timeout 90 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	got=$?
	[ "$got" = "$want" ] || { echo "exit status $got, not $want"; return 1; }
}
refuses() { # WORD COMMAND...: exit 2, nothing on stdout, one line on stderr that has WORD, no ssh started
	local word=$1
	shift
	rm -f "$tmp/calls"
	exits 2 "$@" && [ ! -s "$tmp/out" ] && [ ! -e "$tmp/calls" ] && [ "$(lines "$tmp/err")" = 1 ] && grep -qF -- "$word" "$tmp/err"
}
soon() { # COMMAND...: holds within 20 s
	local i
	for ((i = 0; i < 200; i++)); do
		"$@" && return 0
		sleep 0.1
	done
	return 1
}
has_ended() { # PID...; a zombie that nobody has reaped yet has
	local p
	for p in "$@"; do
		case $(cut -d' ' -f3 "/proc/$p/stat" 2>/dev/null) in '' | Z) ;; *) return 1 ;; esac
	done
}
gone() { [ $# -gt 0 ] && soon has_ended "$@"; }
has_lines() { [ -f "$2" ] && [ "$(lines "$2")" -ge "$1" ]; }
await() { # a child of ours, 30 s at most; its status
	local i
	for ((i = 0; i < 300; i++)); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

# The stand-in: HOST and one command line, as ssh gets them. It leads into a namespace of host names only: all are this
# machine. Names of hosts ask for more: dead (cannot connect), mute (never answers), noisy (a greeting before), bare (no
# sircl there), elsewhere (in PATH alone), cut (can be killed without its far end).
cat >"$tmp/ssh" <<'SSH'
#!/bin/bash
echo "$# $*" >>"$T/calls"
host=$1 line=$2
[ $# = 2 ] || { echo "ssh: $# arguments" >&2; exit 255; }
case $host in
dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
mute) echo $$ >>"$T/mute"; exec sleep 100 ;;
noisy) echo "Welcome to noisy"; echo "a banner" >&2 ;;
bare) line="PATH=/nowhere; $(echo "$line" | sed "s,exec sh,exec /bin/sh,; s,'$S',/nowhere/sircl,")" ;;
elsewhere) line=$(echo "$line" | sed "s,'$S',/nowhere/sircl,") ;;
cut) echo $$ >>"$T/cut"; sh -c "$line" <&0; exit ;;
esac
export FAR_HOST=$host
exec sh -c "$line"
SSH
chmod +x "$tmp/ssh"
export T=$tmp S=$SIRCL
run=("$SIRCL" run --ssh "$tmp/ssh")

# --- what a rank gets
check two_hosts_of_two exits 0 "${run[@]}" -H a:2,b:2 -- sh -c \
	'echo "$SIRCL_RANK $SIRCL_NRANKS $SIRCL_LOCAL_RANK $SIRCL_LOCAL_NRANKS $FAR_HOST $SIRCL_LAB"'
sort "$tmp/out" >"$tmp/sorted"
for r in 0 1 2 3; do echo "$r 4 $r 4 $([ $r -lt 2 ] && echo a || echo b) $SIRCL_LAB"; done >"$tmp/want"
check numbered_in_the_order_of_the_list cmp -s "$tmp/sorted" "$tmp/want"
check one_rank_per_host exits 0 "${run[@]}" -H c,a,b -- sh -c 'echo "$SIRCL_RANK $FAR_HOST"'
check in_order is "$(sort "$tmp/out" | tr '\n' ' ')" "0 c 1 a 2 b "
check host_named_twice exits 0 "${run[@]}" -H a,b,a:2 -- sh -c 'echo "$SIRCL_RANK $FAR_HOST"'
check has_two_groups is "$(sort "$tmp/out" | tr '\n' ' ')" "0 a 1 b 2 a 3 a "
rm -f "$tmp/calls"
check n_fills_in_order exits 0 "${run[@]}" -n 3 -H a:2,b:2,c:2 -- sh -c 'echo "$SIRCL_RANK $SIRCL_NRANKS $FAR_HOST"'
check filled is "$(sort "$tmp/out" | tr '\n' ' ')" "0 3 a 1 3 a 2 3 b "
check host_without_ranks_is_not_asked is "$(lines "$tmp/calls")" 2
check user_and_ipv6 exits 0 "${run[@]}" -H 'me@[::1]:2' -- sh -c 'echo "$FAR_HOST"'
check go_to_ssh_without_brackets is "$(sort -u "$tmp/out")" "me@::1"
check sixty_four_ranks exits 0 "${run[@]}" -H a:20,b:20,c:24 -- echo x
check sixty_four_lines is "$(lines "$tmp/out")" 64
check all_reduce exits 0 "${run[@]}" -H a:2,b:2 --transport shm -- "$BUILD/sircl-bench" all_reduce -b 1K -e 64K -f 8 -n 2 -w 1 -c 1
check all_reduce_is_right grep -q 'Out of bounds values : 0 OK' "$tmp/out"
check all_reduce_over_tcp exits 0 "${run[@]}" -H a:2,b:2 --transport tcp --root "127.0.0.1:$((20000 + $$ % 10000))" -- \
	"$BUILD/sircl-bench" all_reduce -b 1K -e 64K -f 8 -n 2 -w 1 -c 1
check tcp_is_right grep -q 'Out of bounds values : 0 OK' "$tmp/out"

# --- environment, directory, root
exits 0 env SIRCL_WINDOW=96K NCCL_X=1 OTHER=2 SIRCL_RANK=9 NAMED='a "b" $c' SIRCL_ROOT=nowhere:1 SIRCL_SECRET=no SIRCL_SSH="$tmp/ssh" \
	"$SIRCL" run -H a -x NAMED -x 'SET=x=y z' --lanes 3 -- sh -c \
	'echo "$SIRCL_WINDOW $NCCL_X $SIRCL_RANK $NAMED $SET $SIRCL_LANES"; case $SIRCL_ROOT in unix:@sircl-*) echo own;; esac; echo ${#SIRCL_SECRET} ${SIRCL_SSH-unset}'
check parameters_and_named_variables_go_along is "$(cat "$tmp/out")" "96K 1 0 a \"b\" \$c x=y z 3
own
64 $tmp/ssh" # SIRCL_SSH: inherited by the stand-in here
# the far end has its own environment: nothing but that which was sent
cat >"$tmp/clean" <<'SSH'
#!/bin/bash
exec env -i PATH="$PATH" HOME=/ sh -c "cd /; $2"
SSH
chmod +x "$tmp/clean"
mkdir -p "$tmp/dir with space"
check clean_environment exits 0 env -C "$tmp/dir with space" OTHER=2 NAMED=5 SIRCL_SLICE=8K "$SIRCL" run -H a --ssh "$tmp/clean" -x NAMED -- sh -c \
	'echo "${OTHER-unset} $NAMED $SIRCL_SLICE ${SIRCL_SSH-unset} $PWD"'
check has_what_was_sent_and_the_directory is "$(cat "$tmp/out")" "unset 5 8K unset $tmp/dir with space"
check arguments_are_unchanged exits 0 "${run[@]}" -H a -- printf '%s|' "a b" '$HOME' "it's" '"' '' '*' $'two\nlines'
check each_of_them is "$(cat "$tmp/out")" "a b|\$HOME|it's|\"||*|two
lines|"
check ssh_command_may_have_options exits 0 "$SIRCL" run --ssh "env OPTION='a b' $tmp/ssh" -H a -- sh -c 'test "$OPTION" = "a b"'
check root_is_handed_on exits 0 "${run[@]}" -H a,b --root far.example -- sh -c 'test "$SIRCL_ROOT" = far.example:28571'
check root_with_port exits 0 "${run[@]}" -H a,b --root far.example:7 -- sh -c 'test "$SIRCL_ROOT" = far.example:7'
check root_ipv6 exits 0 env SIRCL_PORT=99 "${run[@]}" -H a,b --root fd00::1 -- sh -c 'test "$SIRCL_ROOT" = "[fd00::1]:99"'
check where_sircl_lies_elsewhere_it_is_found exits 0 env PATH="$BUILD:$PATH" "${run[@]}" -H elsewhere -- true

# --- the secret
check secret_is_in_no_argument_of_any_process exits 0 "${run[@]}" -H a,b -- sh -c \
	'echo "$SIRCL_SECRET" >"$T/secret$SIRCL_RANK"; cat /proc/[0-9]*/cmdline 2>/dev/null | grep -aqFf "$T/secret$SIRCL_RANK" && exit 1; test ${#SIRCL_SECRET} = 64'
check nor_in_the_environment_of_ssh exits 0 "${run[@]}" -H a -- sh -c \
	'P=$(cut -d" " -f4 /proc/$PPID/stat); for p in $PPID $P; do tr "\0" "\n" <"/proc/$p/environ" | grep -qFf "$T/secret0" && exit 1; done; test -r /proc/$P/environ'
rm -f "$tmp/calls"
exits 0 "${run[@]}" -H a,b -x KEYWORD=geheim -- true
check nor_given_to_ssh is "$(grep -cE '[0-9a-f]{64}|geheim' "$tmp/calls")" 0
check ssh_gets_host_and_one_line is "$(grep -cE "^2 [ab] exec sh -c " "$tmp/calls")" 2

# --- standard streams
head -c 3000000 /dev/urandom >"$tmp/data"
check big_output exits 0 "${run[@]}" -H a -- sh -c 'cat "$T/data"; cat "$T/data" >&2'
check stdout_is_unchanged cmp -s "$tmp/out" "$tmp/data"
check stderr_is_unchanged cmp -s "$tmp/err" "$tmp/data"
seq -f "line %g of a text that is long enough to be torn where pieces end" 20000 >"$tmp/text"
check output_of_four exits 0 "${run[@]}" -H a:2,b:2 -- sh -c 'sed "s/^/$SIRCL_RANK /" "$T/text"'
for r in 0 1 2 3; do sed "s/^/$r /" "$tmp/text"; done >"$tmp/want"
sort "$tmp/want" >"$tmp/want.sorted"
sort "$tmp/out" >"$tmp/sorted"
check no_line_is_torn cmp -s "$tmp/sorted" "$tmp/want.sorted"
check and_each_rank_in_order cmp -s <(grep '^2 ' "$tmp/out") <(grep '^2 ' "$tmp/want")
check label exits 0 "${run[@]}" --label -H a -- sh -c 'printf "one\n\ntw"; sleep 0.3; printf "o"'
check label_on_every_line is "$(cat "$tmp/out")" "0: one
0: 
0: two"
check label_of_two exits 0 "${run[@]}" --label -H a,b -- sh -c 'echo one; echo two >&2'
check each_has_its_own is "$(sort "$tmp/out" "$tmp/err" | tr '\n' ' ')" "0: one 0: two 1: one 1: two "
check no_standard_input exits 0 sh -c "echo text | '$SIRCL' run --ssh '$tmp/ssh' -H a,b -- cat"
check nothing_was_read [ ! -s "$tmp/out" ]
check greetings_go_to_stderr exits 0 "${run[@]}" -H noisy,a -- echo x
check stdout_has_the_ranks_alone is "$(cat "$tmp/out")" "x
x"
check stderr_has_the_greetings is "$(sort "$tmp/err")" "Welcome to noisy
a banner"
rm -f "$tmp/pids"
exits 141 bash -o pipefail -c "'$SIRCL' run --ssh '$tmp/ssh' -H a,b -- sh -c 'echo \$\$ >>$tmp/pids; trap \"\" PIPE; while echo y; do :; done; exec sleep 100' | head -n 1" &&
	check output_that_nobody_reads_ends_the_job gone $(cat "$tmp/pids")
check what_a_rank_leaves_in_the_background exits 0 "${run[@]}" -H a -- sh -c 'sleep 100 & echo $! >"$T/left"; echo done'
check holds_nothing_up is "$(cat "$tmp/out")" "done"
kill "$(cat "$tmp/left")"

# --- failures
hang='echo $$ >>"$T/pids"; exec sleep 100'
all_there='while [ "$(wc -l <"$T/pids")" -lt 3 ]; do sleep 0.02; done'
rm -f "$tmp/pids"
: >"$tmp/pids"
check first_failure_is_returned exits 7 "${run[@]}" -H a:2,b:2 -- sh -c "test \$SIRCL_RANK = 2 && { $all_there; exit 7; }; $hang"
check with_rank_and_host is "$(cat "$tmp/err")" "sircl run: rank 2 on b exited with status 7; ending the others"
check no_rank_is_left has_ended $(cat "$tmp/pids")
: >"$tmp/pids"
check killed_rank exits 137 "${run[@]}" -H a:2,b:2 -- sh -c "test \$SIRCL_RANK = 1 && { $all_there; kill -KILL \$\$; }; $hang"
check is_named_with_its_signal is "$(cat "$tmp/err")" "sircl run: rank 1 on a was ended by signal 9 (Killed); ending the others"
check none_is_left_then has_ended $(cat "$tmp/pids")
: >"$tmp/pids"
check rank_that_ignores_term exits 3 "${run[@]}" -H a,b -- bash -c \
	'test $SIRCL_RANK = 0 && { while [ ! -s "$T/pids" ]; do sleep 0.02; done; exit 3; }; trap "" TERM; echo $$ >>"$T/pids"; while :; do sleep 0.2; done'
check is_killed has_ended $(cat "$tmp/pids")
check command_not_found exits 127 "${run[@]}" -H a:2,b -- "$tmp/there-is-no-such-command"
check is_one_sentence_with_host grep -qE "^sircl run: host [ab]: rank [02]: $tmp/there-is-no-such-command: No such file" "$tmp/err"
check command_not_executable exits 126 "${run[@]}" -H a -- "$tmp/data"
mkdir "$tmp/gone"
check directory_that_is_not_there exits 2 sh -c "cd '$tmp/gone' && rmdir '$tmp/gone' && '$SIRCL' run --ssh '$tmp/ssh' -H a -- true"
mkdir "$tmp/here"
cat >"$tmp/rmdir" <<'SSH'
#!/bin/bash
rmdir "$T/here" 2>/dev/null
exec sh -c "cd /; $2"
SSH
chmod +x "$tmp/rmdir"
check directory_missing_there exits 2 env -C "$tmp/here" "$SIRCL" run --ssh "$tmp/rmdir" -H a -- touch "$tmp/ran"
check is_named grep -qF "host a: the working directory '$tmp/here' is not there" "$tmp/err"
check nothing_ran [ ! -e "$tmp/ran" ]

# --- hosts that do not answer, connections that break
check host_that_refuses exits 2 "${run[@]}" -H a,dead -- touch "$tmp/ran"
check in_one_sentence_with_the_words_of_ssh is "$(cat "$tmp/err")" \
	"sircl run: host dead: cannot start sircl there: ssh: connect to host dead port 22: No route to host"
check and_nothing_ran_elsewhere [ ! -e "$tmp/ran" ]
check host_without_sircl exits 2 "${run[@]}" -H bare -- true
check says_what_its_shell_says grep -qE '^sircl run: host bare: cannot start sircl there: .*sircl: not found' "$tmp/err"
check ssh_that_is_not_there exits 2 "$SIRCL" run --ssh "$tmp/no-such-ssh" -H a -- true
check ssh_is_named grep -q 'no-such-ssh: not found' "$tmp/err"
check host_that_never_answers exits 2 env SIRCL_START_TIMEOUT=5000 "${run[@]}" -H a,mute -- touch "$tmp/ran"
check is_told_with_the_limit is "$(cat "$tmp/err")" "sircl run: host mute: cannot start sircl there: no answer for 5000 ms (SIRCL_START_TIMEOUT)"
check and_nothing_ran_then [ ! -e "$tmp/ran" ]
check and_its_ssh_is_gone gone $(cat "$tmp/mute")

start() { # HOSTS N COMMAND...: in the background, until N lines are in $tmp/pids; $pid
	local hosts=$1 n=$2
	shift 2
	: >"$tmp/pids"
	rm -f "$tmp/cut"
	"${run[@]}" -H "$hosts" -- "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
	pid=$!
	check "ranks_are_there_$hosts" soon has_lines "$n" "$tmp/pids"
}
set -m # else the shell starts what is in the background with SIGINT ignored
start cut,a 2 sh -c "$hang"
kill -KILL "$(cat "$tmp/cut")"
await $pid
check ssh_that_dies_in_the_middle is $? 2
check is_told_with_its_host is "$(tail -n 1 "$tmp/err")" \
	"sircl run: host cut: the connection is lost: its ssh has ended with status 137; ending the ranks"
check its_ranks_and_the_others_are_ended gone $(cat "$tmp/pids")

start a:2,b 3 sh -c "$hang"
agent=$(cut -d' ' -f4 "/proc/$(head -1 "$tmp/pids")/stat")
kill -KILL "$agent"
await $pid
check far_end_that_is_killed is $? 2
check all_are_ended_then gone $(cat "$tmp/pids")

start a:2,b:2 4 sh -c "$hang"
{
	kill -KILL $pid
	await $pid
} 2>/dev/null
check killed_run_leaves_no_rank gone $(cat "$tmp/pids")

start a,b 2 sh -c "$hang"
agent=$(cut -d' ' -f4 "/proc/$(head -1 "$tmp/pids")/stat")
{
	kill -TERM "$agent"
	await $pid
} 2>/dev/null
check far_end_that_is_asked_to_end is $? 2
check ends_its_ranks gone $(cat "$tmp/pids")

SIRCL_START_TIMEOUT=5000 start a,b 2 sh -c "$hang"
agent=$(cut -d' ' -f4 "/proc/$(head -1 "$tmp/pids")/stat")
kill -STOP "$agent"
await $pid
check far_end_that_gives_no_sign_of_life is $? 2
check is_lost grep -q 'the connection is lost: no answer for 5000 ms' "$tmp/err"
check the_other_host_is_ended gone "$(tail -1 "$tmp/pids")"
kill -CONT "$agent"
check and_it_ends_its_ranks_when_it_goes_on gone $(cat "$tmp/pids")

SIRCL_START_TIMEOUT=5000 start a,b 2 sh -c 'echo $$ >>"$T/pids"; while [ ! -e "$T/go" ]; do sleep 0.1; done'
kill -STOP $pid
sleep 7
kill -CONT $pid
sleep 0.5
touch "$tmp/go"
await $pid
check run_that_was_stopped_itself_goes_on is $? 0

# a reader that reads nothing: the run must hear signals, and end
mkfifo "$tmp/fifo"
# shellcheck disable=SC2217
sleep 100 <"$tmp/fifo" &
reader=$!
disown
: >"$tmp/pids"
"${run[@]}" -H a,b -- sh -c 'echo $$ >>"$T/pids"; while echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; do :; done' >"$tmp/fifo" 2>"$tmp/err" &
pid=$!
check ranks_write soon has_lines 2 "$tmp/pids"
sleep 1
kill -INT $pid
await $pid
check output_that_nobody_takes_does_not_keep_signals_out is $? 130
check nor_ranks_alive gone $(cat "$tmp/pids")
kill $reader

# --- signals
for sig in INT TERM HUP; do
	rm -f "$tmp/got"
	# a rank notes every signal that it gets and ends a little after the first, so that a second would be seen
	SIG=$sig start a:2,b 3 bash -c \
		'trap "echo \$SIRCL_RANK >>\$T/got; last=1" $SIG; echo x >>$T/pids; while [ -z "$last" ]; do sleep 0.05; done; sleep 0.3; exit 0'
	kill -$sig $pid
	await $pid
	status=$?
	check "${sig}_reaches_every_rank_once" is "$(sort "$tmp/got" 2>/dev/null | tr '\n' ' ')" "0 1 2 "
	check "${sig}_and_the_ranks_decide_the_status" is $status 0
done
start a,b 2 sh -c "$hang"
kill -INT $pid
await $pid
check ranks_that_die_of_it is $? 130
check are_gone gone $(cat "$tmp/pids")
: >"$tmp/mute"
"${run[@]}" -H mute -- true 2>"$tmp/err" &
pid=$!
check ssh_is_there soon has_lines 1 "$tmp/mute"
kill -INT $pid
await $pid
check signal_before_the_start is $? 130
check ends_the_ssh gone $(cat "$tmp/mute")
set +m

# --- wrong use: one sentence, exit 2, no ssh
check host_empty refuses 'empty name' "${run[@]}" -H a,,b -- true
check list_empty refuses 'empty name' "${run[@]}" -H '' -- true
check list_ends_with_a_comma refuses 'empty name' "${run[@]}" -H a, -- true
check no_name_before_the_number refuses 'names no host' "${run[@]}" -H :2 -- true
check no_name_after_the_user refuses 'names no host' "${run[@]}" -H me@ -- true
check no_ranks refuses "'b:0'" "${run[@]}" -H a,b:0 -- true
check ranks_text refuses 'from 1 to 64' "${run[@]}" -H a:x -- true
check ranks_missing refuses 'from 1 to 64' "${run[@]}" -H a: -- true
check ranks_negative refuses 'from 1 to 64' "${run[@]}" -H a:-1 -- true
check ranks_tail refuses 'from 1 to 64' "${run[@]}" -H a:2x,b -- true
check ranks_huge refuses 'from 1 to 64' "${run[@]}" -H a:18446744073709551617 -- true
check ranks_too_many refuses '65 ranks' "${run[@]}" -H a:64,b -- true
check ipv6_without_brackets refuses 'brackets' "${run[@]}" -H fe80::1 -- true
check ipv6_open refuses ']' "${run[@]}" -H '[fe80::1' -- true
check option_as_host refuses "begins with -" "${run[@]}" -H a,-oProxyCommand=x -- true
check space_in_host refuses 'space' "${run[@]}" -H 'a b' -- true
check n_more_than_places refuses '-n 5' "${run[@]}" -n 5 -H a:2,b:2 -- true
check list_twice refuses 'twice' "${run[@]}" -H a -H b -- true
check no_command refuses 'command to run is missing' "${run[@]}" -H a
check ssh_without_hosts refuses 'needs -H' "$SIRCL" run -n 2 --ssh ssh -- true
check root_without_hosts refuses 'needs -H' "$SIRCL" run -n 2 --root a -- true
check label_without_hosts refuses 'needs -H' "$SIRCL" run -n 2 --label -- true
check root_empty refuses '--root' "${run[@]}" -H a --root '' -- true
check ssh_empty refuses '--ssh takes' "$SIRCL" run --ssh '' -H a -- true
check x_unset refuses 'no such variable' env -u NOT_THERE "${run[@]}" -H a -x NOT_THERE -- true
check x_bad_name refuses 'NAME=VALUE' "${run[@]}" -H a -x 'A B=1' -- true
check x_of_ours refuses 'SIRCL_SECRET' "${run[@]}" -H a -x SIRCL_SECRET=x -- true
check bad_parameter refuses 'SIRCL_ALGO=banana' "${run[@]}" -H a -x SIRCL_ALGO=banana -- true
check x_here_too exits 0 "$SIRCL" run -n 2 -x A=5 -- sh -c 'test "$A" = 5'

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
