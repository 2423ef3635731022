#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make install and uninstall, the examples built against what was installed and nothing else, and the man pages
# against what they describe: options, parameters, functions. Ends with `N passed, N failed, N skipped`.
set -u
cd "$(dirname "$0")/../.." || exit 2
export LC_ALL=C
B=${BUILD:-build}
passed=0 failed=0 skipped=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sircl-install-${SIRCL_LAB:-$$}-XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
tree=$tmp/tree

pass() { # NAME: by the status of what ran last
	local rc=$?
	if [ $rc = 0 ]; then passed=$((passed + 1)); else
		failed=$((failed + 1))
		echo "FAILED: $1"
		tail -n 8 "$tmp/log"
	fi
}
none() { # NAME TEXT: passes if there is no text
	if [ -z "$2" ]; then passed=$((passed + 1)); else
		failed=$((failed + 1))
		echo "FAILED: $1: $2" | tr '\n' ' '
		echo
	fi
}
install_() { make -s BUILD="$B" DESTDIR="$tree" "$@" >"$tmp/log" 2>&1; }
files() { (cd "$tree" && find . ! -type d | sort); }

# ---- install, twice; uninstall ----
install_ PREFIX=/usr install
pass "make install"
files >"$tmp/first"
(cd "$tree" && find . -type f -exec sha256sum {} + | sort) >"$tmp/first.sums"
none everything_is_there "$(for f in bin/sircl include/sircl/sircl.h lib/libsircl.so lib/libsircl.so.0 lib/libsircl.a lib/pkgconfig/libsircl.pc \
	share/man/man1/sircl.1 share/man/man3/sircl.3 share/man/man3/sircl_all_reduce.3 share/man/man7/sircl.7; do
	[ -e "$tree/usr/$f" ] || echo "$f is missing"
done)"
none links_end_at_the_versioned_library "$([ "$(basename "$(readlink -f "$tree/usr/lib/libsircl.so")")" = "libsircl.so.$("$B/sircl" version | cut -d' ' -f2)" ] || ls -l "$tree/usr/lib")"
none nothing_names_the_staging_folder "$(grep -rlF "$tmp" "$tree")"
install_ PREFIX=/usr install
pass "make install over itself"
files | cmp -s - "$tmp/first" && (cd "$tree" && find . -type f -exec sha256sum {} + | sort) | cmp -s - "$tmp/first.sums"
pass "the second install gives the same files"

# ---- the examples, by pkg-config alone ----
with() { env -u CPATH -u C_INCLUDE_PATH -u LIBRARY_PATH PKG_CONFIG_PATH="$1/usr/lib/pkgconfig" PKG_CONFIG_LIBDIR="$1/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$1" "${@:2}"; }
build_examples() { # TREE OUT ARGS...: from a copy, so that no header of this tree is near
	mkdir -p "$2" && cp -r examples "$2/src" && with "$1" make -s -C "$2/src" OUT="$2" CFLAGS='-Wall -Wextra -Werror' "${@:3}" >"$tmp/log" 2>&1
}
run_examples() { # TREE OUT
	timeout 60 "$1/usr/bin/sircl" run -n 4 -- "$2/all_reduce" >"$tmp/log" 2>&1 &&
		[ "$(grep -c 'of 4: the mean of element 0 is 1.5' "$tmp/log")" = 4 ] &&
		timeout 60 "$1/usr/bin/sircl" run -n 4 -- "$2/send_recv" >"$tmp/log" 2>&1 &&
		[ "$(grep -c 'has what rank [0-3] sent' "$tmp/log")" = 4 ]
}
if ! command -v pkg-config >/dev/null; then
	echo "pkg-config is missing: apt-get install pkg-config"
	skipped=$((skipped + 1))
elif readelf -Ws "$B/libsircl.so.0" | grep -qE '__(asan|tsan|ubsan)_'; then
	skipped=$((skipped + 1)) # a program must be built with the sanitizer as well
else
	build_examples "$tree" "$tmp/shared"
	pass "the examples build against the installed tree"
	none programs_use_the_shared_library "$(for e in all_reduce send_recv; do readelf -d "$tmp/shared/$e" | grep -q 'libsircl\.so\.0' || echo "$e does not"; done)"
	LD_LIBRARY_PATH=$tree/usr/lib run_examples "$tree" "$tmp/shared"
	pass "they run with 4 ranks"
	cp -a "$tree" "$tmp/static-tree" && rm -f "$tmp"/static-tree/usr/lib/libsircl.so*
	build_examples "$tmp/static-tree" "$tmp/static" STATIC=1
	pass "they build against the static library"
	none programs_have_the_library_inside "$(for e in all_reduce send_recv; do readelf -d "$tmp/static/$e" | grep 'libsircl\.so'; done)"
	run_examples "$tree" "$tmp/static"
	pass "and run"
fi
if [ -x "$B/sircl-bench" ]; then
	env -u LD_LIBRARY_PATH timeout 60 "$tree/usr/bin/sircl-bench" all_reduce --ranks 2 -b 8 -e 8 -n 1 -w 0 >"$tmp/log" 2>&1
	pass "the installed sircl-bench finds library and sircl"
fi
install_ PREFIX=/usr uninstall
pass "make uninstall"
none uninstall_leaves_no_file "$(files)"
none uninstall_leaves_no_folder_of_ours "$(find "$tree" -name '*sircl*')"
install_ PREFIX=/opt/x BINDIR=/opt/x/tools LIBDIR=/opt/x/lib/deep MANDIR=/opt/man install
pass "make install with folders of one's own"
none folders_are_those_asked_for "$(for f in /opt/x/tools/sircl /opt/x/lib/deep/libsircl.a /opt/x/lib/deep/pkgconfig/libsircl.pc /opt/man/man7/sircl.7; do
	[ -e "$tree$f" ] || echo "$f is missing"
done)"
none the_pc_file_has_them "$(grep -qx 'libdir=/opt/x/lib/deep' "$tree/opt/x/lib/deep/pkgconfig/libsircl.pc" || cat "$tree/opt/x/lib/deep/pkgconfig/libsircl.pc")"
if [ -x "$B/sircl-bench" ]; then
	env -u LD_LIBRARY_PATH timeout 60 "$tree/opt/x/tools/sircl-bench" all_reduce --ranks 2 -b 8 -e 8 -n 1 -w 0 >"$tmp/log" 2>&1
	pass "sircl-bench finds them there"
fi
install_ PREFIX=/opt/x BINDIR=/opt/x/tools LIBDIR=/opt/x/lib/deep MANDIR=/opt/man uninstall
none uninstall_leaves_none_there "$(files)"

# ---- the pages ----
if ! command -v groff >/dev/null; then
	echo "groff is missing: apt-get install groff-base"
	echo "$passed passed, $failed failed, $((skipped + 1)) skipped"
	[ $failed = 0 ]
	exit
fi
page() { groff -mdoc -Tascii -P-c "man/$1" 2>/dev/null | sed 's/.\x08//g'; }
# the options that a text names
options() { grep -oE '(^|[][ ,|(])--?[a-zA-Z][a-z_-]*' | tr -d '][ ,|(' | sort -u; }
for p in man/*.[1-9]; do
	none "warnings_of_$p" "$(groff -ww -mdoc -Tascii "$p" 2>&1 >/dev/null)"
	command -v mandoc >/dev/null && none "lint_of_$p" "$(mandoc -Tlint -Wwarning "$p")"
done
if [ -x "$B/sircl-bench" ]; then
	"$B/sircl-bench" --help | options >"$tmp/help"
	page sircl-bench.1 | options >"$tmp/page"
	none the_bench_has_options "$([ "$(wc -l <"$tmp/help")" -gt 20 ] || cat "$tmp/help")"
	none sircl-bench_1_has_every_option "$(comm -23 "$tmp/help" "$tmp/page")"
	none sircl-bench_1_has_no_other_option "$(comm -13 "$tmp/help" "$tmp/page")"
	none sircl-bench_1_has_every_kind "$("$B/sircl-bench" 2>&1 | sed 's/.*kind? //; s/, or all.*//' | tr ' ' '\n' | while read -r k; do
		grep -qE "^\.Cm $k( |$)" man/sircl-bench.1 || echo "$k"
	done)"
fi
"$B/sircl" help | sed -n 's/^  \([a-z]*\) .*/\1/p' >"$tmp/commands"
none sircl_has_commands "$([ "$(wc -l <"$tmp/commands")" -ge 5 ] || cat "$tmp/commands")"
none sircl_1_has_every_command "$(while read -r c; do grep -qx "\.It Cm $c" man/sircl.1 || echo "$c"; done <"$tmp/commands")"
none sircl_1_has_no_other_command "$(sed -n 's/^\.It Cm //p' man/sircl.1 | grep -vxFf "$tmp/commands")"
while read -r c; do "$B/sircl" help "$c"; done <"$tmp/commands" | options >"$tmp/help"
page sircl.1 | options >"$tmp/page"
none sircl_1_has_every_option "$(comm -23 "$tmp/help" "$tmp/page")"
none sircl_1_has_no_other_option "$(comm -13 "$tmp/help" "$tmp/page" | grep -vxE -e '-h|--help|--version')"
if command -v python3 >/dev/null; then
	env -i "$B/sircl" params --json | man/params.py >"$tmp/log" 2>&1
	pass "sircl(7) has every parameter, as the table says it"
else
	skipped=$((skipped + 1))
fi
gcc -E -P -xc include/sircl/sircl.h | tr '\n' ' ' | tr ';{}' '\n' | grep -v typedef | grep -oE '\bsircl_[a-z_]+ ?\(' | tr -d '( ' | sort -u >"$tmp/declared"
none the_header_declares_functions "$([ "$(wc -l <"$tmp/declared")" -gt 20 ] || cat "$tmp/declared")"
sed -n 's/^\.Nm \(sircl_[a-z_]*\).*/\1/p' man/sircl.3 | sort -u >"$tmp/named"
sed -n 's/^\.Fn \(sircl_[a-z_]*\).*/\1/p' man/sircl.3 | sort -u >"$tmp/synopsis"
grep '^\.It Fn' man/sircl.3 | grep -oE 'sircl_[a-z_]+' | sort -u >"$tmp/described"
none sircl_3_names_exactly_the_functions "$(comm -3 "$tmp/declared" "$tmp/named")"
none sircl_3_shows_how_each_is_called "$(comm -3 "$tmp/declared" "$tmp/synopsis")"
none sircl_3_describes_each "$(comm -3 "$tmp/declared" "$tmp/described")"
none each_function_has_its_page "$(sed 's,.*/man3/,,; s/\.3$//' "$tmp/first" | grep '^sircl_' | sort -u | comm -3 "$tmp/declared" -)"

none readme_and_contributing_name_what_is_there "$(grep -ohE '`[a-zA-Z_-]+/[a-zA-Z0-9_./-]*`|\]\([a-zA-Z0-9_./-]+\)' README.md CONTRIBUTING.md | tr -d '`]()' | sort -u | while read -r f; do
	case $f in engine/*) f=libsircl/$f ;; build/* | */test_ROOM_SUBJECT.c | */NAME.sh) continue ;; esac
	[ -e "$f" ] || echo "$f"
done)"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
