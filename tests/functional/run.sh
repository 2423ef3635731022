#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sircl run, params, keygen, from the outside. Usage: tests/functional/run.sh [BUILD]. Ends with a line
# `N passed, N failed, N skipped`; exit 1 if one failed.
# shellcheck disable=SC2016,SC2046 # the ranks expand what is quoted; lists of process ids are split
set -u
cd "$(dirname "$0")/../.." || exit 2
SIRCL=$(realpath -m "${1:-${BUILD:-build}}")/sircl
export SIRCL_LAB=${SIRCL_LAB:-$$}
passed=0 failed=0 skipped=0
tmp=$(mktemp -d "/tmp/sircl-run-$SIRCL_LAB-XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
[ -x "$SIRCL" ] || { echo "$SIRCL is missing: make first"; exit 2; }

# check NAME CONDITION...: the condition is a command
check() {
	local name=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $name ($*)"
	fi
}
skip() {
	skipped=$((skipped + 1))
	echo "skipped: $1"
}
is() { [ "$1" = "$2" ]; }
lines() { wc -l <"$1" | tr -d ' '; }
# exits STATUS COMMAND...: runs it with output in $tmp/out and $tmp/err
exits() {
	local want=$1 got
	shift
	timeout 60 "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" = "$want" ] || { echo "exit status $got, not $want"; cat "$tmp/err"; return 1; }
}
refuses() { # WORD COMMAND...: exit 2, nothing on stdout, one line on stderr that has WORD
	local word=$1
	shift
	exits 2 "$@" && [ ! -s "$tmp/out" ] && [ "$(lines "$tmp/err")" = 1 ] && grep -qF -- "$word" "$tmp/err"
}
gone() { # PID...: soon; they would live for 100 s
	local i p left
	for ((i = 0; i < 100; i++)); do
		left=0
		for p in "$@"; do
			# a zombie that nobody has reaped yet has ended
			case $(cut -d' ' -f3 "/proc/$p/stat" 2>/dev/null) in
			'' | Z) ;;
			*) left=1 ;;
			esac
		done
		[ $left = 0 ] && return 0
		sleep 0.1
	done
	return 1
}
wait_for() { # N lines in FILE, at most 20 s
	local i
	for ((i = 0; i < 400; i++)); do
		[ -f "$2" ] && [ "$(lines "$2")" -ge "$1" ] && return 0
		sleep 0.05
	done
	return 1
}

# Waits for a child of ours, at most 20 s; its status.
await() {
	local i
	for ((i = 0; i < 200; i++)); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

# --- what a rank gets
check env_status exits 0 "$SIRCL" run -n 4 --lanes 2 --transport shm -- sh -c \
	'echo "$SIRCL_RANK $SIRCL_NRANKS $SIRCL_LOCAL_RANK $SIRCL_LOCAL_NRANKS $SIRCL_LANES $SIRCL_TRANSPORT $SIRCL_LAB"'
sort "$tmp/out" >"$tmp/sorted"
for r in 0 1 2 3; do echo "$r 4 $r 4 2 shm $SIRCL_LAB"; done >"$tmp/want"
check env_of_every_rank cmp -s "$tmp/sorted" "$tmp/want"
show='echo "$SIRCL_ROOT $SIRCL_SECRET"'
exits 0 "$SIRCL" run -n 3 -- sh -c "$show" && cp "$tmp/out" "$tmp/first"
exits 0 "$SIRCL" run -n 3 -- sh -c "$show" && cp "$tmp/out" "$tmp/second"
check one_root_and_secret_for_all_ranks is "$(sort -u "$tmp/first" | wc -l)" 1
check root_and_secret_have_their_form grep -qE "^unix:@sircl-$SIRCL_LAB-[0-9a-f]{16} [0-9a-f]{64}$" "$tmp/first"
check root_differs_between_jobs [ "$(head -1 "$tmp/first" | cut -d' ' -f1)" != "$(head -1 "$tmp/second" | cut -d' ' -f1)" ]
check secret_differs_between_jobs [ "$(head -1 "$tmp/first" | cut -d' ' -f2)" != "$(head -1 "$tmp/second" | cut -d' ' -f2)" ]
check lanes_and_transport_stay_unset_if_not_given exits 0 "$SIRCL" run -n 1 -- sh -c 'test -z "${SIRCL_LANES+x}${SIRCL_TRANSPORT+x}"'
check secret_is_in_no_argument exits 0 "$SIRCL" run -n 2 -- sh -c \
	'! cat /proc/$PPID/cmdline /proc/self/cmdline | grep -qF "$SIRCL_SECRET"'
check single_rank exits 0 "$SIRCL" run -n 1 true
check command_keeps_its_own_options exits 0 "$SIRCL" run -n 1 sh -c 'test "$1 $2" = "-n 7"' x -n 7
check sixty_four_ranks exits 0 "$SIRCL" run -n 64 -- echo x
check sixty_four_lines is "$(lines "$tmp/out")" 64

# --- standard streams
head -c 300000 /dev/urandom >"$tmp/data"
check stdin_goes_to_rank_0 exits 0 sh -c "'$SIRCL' run -n 3 -- cat <'$tmp/data'"
check stdout_is_unchanged cmp -s "$tmp/out" "$tmp/data"
check stderr_passes exits 0 "$SIRCL" run -n 2 -- sh -c 'printf "to stderr" >&2'
check stderr_is_unchanged is "$(cat "$tmp/err")" "to stderrto stderr"

# --- exit status, and all are ended when one fails
t0=$(date +%s%N)
check first_failure_is_returned exits 7 "$SIRCL" run -n 4 -- sh -c \
	"echo \$\$ >>'$tmp/pids'; test \$SIRCL_RANK = 2 && { while [ \$(wc -l <'$tmp/pids') -lt 4 ]; do sleep 0.02; done; exit 7; }; exec sleep 100"
ms=$((($(date +%s%N) - t0) / 1000000))
check failure_ends_the_others_at_once [ $ms -lt 4000 ]
check failure_is_told_in_one_line is "$(cat "$tmp/err")" "sircl run: rank 2 exited with status 7; ending the others"
check no_rank_is_left gone $(cat "$tmp/pids")
check signal_is_128_plus_its_number exits 139 "$SIRCL" run -n 2 -- sh -c 'kill -SEGV $$'
check signal_is_named grep -q 'was ended by signal 11' "$tmp/err"
rm -f "$tmp/pids"
t0=$(date +%s%N)
check later_failures_do_not_count exits 3 "$SIRCL" run -n 2 -- sh -c \
	"test \$SIRCL_RANK = 1 && { while [ ! -s '$tmp/pids' ]; do sleep 0.02; done; exit 3; }; trap 'exit 9' TERM; echo \$\$ >>'$tmp/pids'; while :; do sleep 0.05; done"
check term_comes_first [ $((($(date +%s%N) - t0) / 1000000)) -lt 4000 ]
rm -f "$tmp/pids"
t0=$(date +%s%N)
check rank_that_ignores_term exits 3 "$SIRCL" run -n 2 -- bash -c \
	"test \$SIRCL_RANK = 1 && { while [ ! -s '$tmp/pids' ]; do sleep 0.02; done; exit 3; }; trap '' TERM; echo \$\$ >>'$tmp/pids'; while :; do sleep 0.2; done"
ms=$((($(date +%s%N) - t0) / 1000000))
check is_killed_after_5_s [ $ms -ge 4900 -a $ms -lt 9000 ]
check and_is_gone gone $(cat "$tmp/pids")
rm -f "$tmp/pids"
check what_a_rank_started exits 4 "$SIRCL" run -n 2 -- bash -c \
	"if [ \$SIRCL_RANK = 1 ]; then while [ ! -s '$tmp/pids' ]; do sleep 0.02; done; exit 4; fi; (trap '' TERM; exec sleep 100) & echo \$! >>'$tmp/pids'; wait"
check ends_with_it gone $(cat "$tmp/pids")

# --- signals; -m: else the shell starts what is in the background with SIGINT ignored
set -m
for sig in INT TERM HUP; do
	rm -f "$tmp/got" "$tmp/ready"
	# a rank notes every signal that it gets and ends a little after the first, so that a second would be seen
	env -i PATH="$PATH" SIRCL_LAB="$SIRCL_LAB" T="$tmp" SIG=$sig "$SIRCL" run -n 3 -- bash -c \
		'trap "echo \$SIRCL_RANK >>\$T/got; last=1" $SIG; echo x >>$T/ready; while [ -z "$last" ]; do sleep 0.05; done; sleep 0.3; exit 0' 2>/dev/null &
	pid=$!
	wait_for 3 "$tmp/ready"
	kill -$sig $pid
	await $pid
	status=$?
	check "${sig}_reaches_every_rank_once" is "$(sort "$tmp/got" 2>/dev/null | tr '\n' ' ')" "0 1 2 "
	check "${sig}_and_the_ranks_decide_the_status" is $status 0
done
rm -f "$tmp/ready"
"$SIRCL" run -n 2 -- sh -c "echo x >>'$tmp/ready'; exec sleep 100" 2>/dev/null &
pid=$!
wait_for 2 "$tmp/ready"
kill -TERM $pid
await $pid
check ranks_that_die_of_it is $? 143
if command -v script >/dev/null; then
	rm -f "$tmp/got" "$tmp/ready"
	cat >"$tmp/rank.sh" <<-'RANK'
		trap 'echo "$SIRCL_RANK" >>"$T/got"; last=1' INT
		echo x >>"$T/ready"
		for ((i = 0; i < 200; i++)); do
			[ -n "$last" ] && break
			sleep 0.05
		done
		sleep 0.3
	RANK
	{ wait_for 3 "$tmp/ready" && printf '\003' && wait_for 3 "$tmp/got" && sleep 1; } |
		T=$tmp timeout 30 script -qec "$SIRCL run -n 3 -- bash $tmp/rank.sh" /dev/null >/dev/null 2>&1
	check ctrl_c_works_once is "$(sort "$tmp/got" 2>/dev/null | tr '\n' ' ')" "0 1 2 "
	check a_terminal_is_not_read exits 0 timeout 10 script -qec "$SIRCL run -n 2 -- cat" /dev/null
else
	skip "Ctrl-C: script(1) is missing (package bsdutils)"
fi
rm -f "$tmp/pids"
"$SIRCL" run -n 4 -- sh -c "echo \$\$ >>'$tmp/pids'; exec sleep 100" &
pid=$!
wait_for 4 "$tmp/pids"
{
	kill -KILL $pid
	await $pid
} 2>/dev/null
set +m
check killed_run_leaves_no_rank gone $(cat "$tmp/pids")

# --- wrong use: one sentence, exit 2
check usage_no_n refuses '-n N' "$SIRCL" run -- true
check usage_no_command refuses 'command to run is missing' "$SIRCL" run -n 2
check usage_n_0 refuses 'from 1 to 64' "$SIRCL" run -n 0 -- true
check usage_n_text refuses "'x4'" "$SIRCL" run -n x4 -- true
check usage_n_tail refuses "'4x'" "$SIRCL" run -n 4x -- true
check usage_n_negative refuses 'from 1 to 64' "$SIRCL" run -n -1 -- true
check usage_n_big refuses 'from 1 to 64' "$SIRCL" run -n 65 -- true
check usage_n_huge refuses 'from 1 to 64' "$SIRCL" run -n 4294967300 -- true
check usage_lanes refuses "'9'" "$SIRCL" run -n 2 --lanes 9 -- true
check usage_lanes_empty refuses "''" "$SIRCL" run -n 2 --lanes '' -- true
check usage_transport refuses 'auto shm tcp' "$SIRCL" run -n 2 --transport pigeon -- true
check usage_option refuses '--frob' "$SIRCL" run --frob -n 2 -- true
check usage_value refuses 'needs a value' "$SIRCL" run -n
check bad_parameter_is_said_once refuses 'SIRCL_ALGO=banana' env SIRCL_ALGO=banana "$SIRCL" run -n 4 -- true
check command_not_found exits 127 "$SIRCL" run -n 4 -- "$tmp/there-is-no-such-command"
check command_not_found_is_one_sentence is "$(lines "$tmp/err")" 1
check command_not_executable exits 126 "$SIRCL" run -n 4 -- "$tmp/data"
check no_command refuses 'sircl help' "$SIRCL"
check unknown_command refuses "'frob'" "$SIRCL" frob
check help_is_ok exits 0 "$SIRCL" help
check help_names_run grep -q '^  run ' "$tmp/out"
check help_of_a_command exits 0 "$SIRCL" run --help
check help_shows_arguments grep -q -- '--lanes' "$tmp/out"
check help_unknown refuses frob "$SIRCL" help frob
check version_is_ok exits 0 "$SIRCL" version
check version_form grep -qE '^sircl [0-9]+\.[0-9]+\.[0-9]+$' "$tmp/out"
check full_disk_is_noticed exits 2 sh -c "'$SIRCL' params >/dev/full"

# --- params
check params_table exits 0 env SIRCL_WINDOW=96k SIRCL_SECRET=geheim NCCL_DEBUG=INFO "$SIRCL" params
check params_value grep -qE '^SIRCL_WINDOW +96K +environment +1M ' "$tmp/out"
check params_nccl grep -qE '^SIRCL_DEBUG +info +NCCL_DEBUG +warn ' "$tmp/out"
check params_default grep -qE '^SIRCL_ALGO +auto +default ' "$tmp/out"
check params_hides_secrets is "$(grep -c geheim "$tmp/out")" 0
check params_bad_value refuses 'auto two-matchings exchange ring' env SIRCL_ALGO=banana "$SIRCL" params
check params_argument refuses '--json' "$SIRCL" params --xml
if command -v python3 >/dev/null; then
	check params_json exits 0 env SIRCL_WINDOW=96k SIRCL_KEY=geheim SIRCL_IFNAME=$'a"b\\c\n\x01\xff\xed\xa0\x80\xc3\xa4' "$SIRCL" params --json
	check params_json_is_valid python3 -c '
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
p = {x["name"]: x for x in d["parameters"]}
assert d["schema_version"] == 1
assert p["SIRCL_WINDOW"]["value"] == 98304 and p["SIRCL_WINDOW"]["origin"] == "environment"
assert p["SIRCL_LANES"]["value"] == 0 and p["SIRCL_LANES"]["origin"] == "default"
assert p["SIRCL_KEY"]["value"] == "(set)"
assert p["SIRCL_ROOT"]["value"] is None
assert p["SIRCL_IFNAME"]["value"] == "a\"b\\c\n\x01" + 4 * "\ufffd" + "\u00e4", p["SIRCL_IFNAME"]
assert all(x["help"] and x["allowed"] for x in d["parameters"])
' "$tmp/out"
else
	skip "params --json: python3 is missing"
fi

# --- keygen
umask 000
check keygen exits 0 "$SIRCL" keygen "$tmp/key"
umask 022
check keygen_says_what_next grep -q SIRCL_KEY_FILE "$tmp/out"
check keygen_mode is "$(stat -c %a "$tmp/key")" 600
check keygen_content grep -qxE '[0-9a-f]{64}' "$tmp/key"
cp -p "$tmp/key" "$tmp/key.before"
check keygen_keeps_an_existing_key refuses 'is there already' "$SIRCL" keygen "$tmp/key"
check keygen_kept_it cmp -s "$tmp/key" "$tmp/key.before"
check keygen_again exits 0 "$SIRCL" keygen "$tmp/key2"
check keys_differ [ "$(cat "$tmp/key")" != "$(cat "$tmp/key2")" ]
check keygen_no_file refuses 'name of the file' "$SIRCL" keygen
check keygen_no_directory refuses "$tmp/no/key" "$SIRCL" keygen "$tmp/no/key"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
