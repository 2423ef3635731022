#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libsircl.so is self-contained: it needs only libc, libm and ld, no symbol younger than GLIBC_2.34, exports
# exactly the functions of sircl.h, has soname 0, stays loaded, and says which package is missing when libsodium
# is. Usage: tests/functional/selfcontained.sh [BUILD]. Ends with `N passed, N failed, N skipped`.
set -u
cd "$(dirname "$0")/../.." || exit 2
export LC_ALL=C
build=${1:-${BUILD:-build}}
lib=$build/libsircl.so.0
passed=0 failed=0 skipped=0
tmp=$(mktemp -d "/tmp/sircl-self-${SIRCL_LAB:-$$}-XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
[ -f "$lib" ] || { echo "$lib is missing: make $lib"; exit 2; }
command -v readelf >/dev/null || { echo "readelf is missing: apt-get install binutils"; exit 2; }

none() { # NAME TEXT: passes if there is no text
	if [ -z "$2" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $1: $2" | tr '\n' ' '
		echo
	fi
}
# A sanitized library needs its sanitizer: nothing here is about that.
if readelf -Ws "$lib" | grep -qE '__(asan|tsan|ubsan)_'; then
	echo "skipped: $lib is built with a sanitizer"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi

needed=$(readelf -Wd "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
none needs_only_libc_libm_ld "$(echo "$needed" | grep -vE '^(libc\.so\.6|libm\.so\.6|ld-linux-[a-z0-9_-]+\.so\.[0-9]+)$')"
none soname_is_0 "$(readelf -Wd "$lib" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p' | grep -vx 'libsircl\.so\.0')"
none stays_loaded "$(readelf -Wd "$lib" | grep -q NODELETE || echo 'NODELETE is not set')"
none no_symbol_is_younger_than_glibc_2_34 "$(readelf -WV "$lib" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu |
	while read -r v; do
		[ "$(printf '%s\n' "$v" GLIBC_2.34 | sort -V | tail -n 1)" = GLIBC_2.34 ] || echo "$v"
	done)"

# what is exported, without the version's own name, against what the header declares
readelf -W --dyn-syms "$lib" | awk '$7 != "UND" && $8 != "" && NR > 3 { sub(/@.*/, "", $8); print $8 }' |
	grep -vx SIRCL_0 | sort -u >"$tmp/exported"
gcc -E -P -xc include/sircl/sircl.h | tr '\n' ' ' | tr ';{}' '\n' | grep -v typedef |
	grep -oE '\bsircl_[a-z_]+ ?\(' | tr -d '( ' | sort -u >"$tmp/declared"
none the_header_declares_functions "$([ -s "$tmp/declared" ] || echo 'none was found')"
none only_sircl_is_exported "$(grep -v '^sircl_' "$tmp/exported")"
none nothing_is_exported_that_is_not_declared "$(comm -23 "$tmp/exported" "$tmp/declared")"
none everything_declared_is_exported "$(comm -13 "$tmp/exported" "$tmp/declared")"
none every_export_has_version_sircl_0 "$(readelf -W --dyn-syms "$lib" | awk '$7 != "UND" && $8 ~ /^sircl_/ && $8 !~ /@@SIRCL_0$/ { print $8 }')"
none text_is_not_relocated "$(readelf -Wd "$lib" | grep TEXTREL)"
none the_stack_is_not_executable "$(readelf -Wl "$lib" | grep GNU_STACK | grep RWE)"
none page_size_is_asked_for "$(grep -rnE '\bPAGE_SIZE\b' libsircl include)"

# without libsodium: a program that needs a key gets one sentence. The loader is made blind to it by a copy of
# the tool that looks only into an empty folder; a library that is absent and one that cannot be opened are alike.
mkdir "$tmp/lib"
printf 'no library\n' >"$tmp/lib/libsodium.so.23"
LD_LIBRARY_PATH=$tmp/lib "$build/sircl" keygen "$tmp/key" >"$tmp/out" 2>"$tmp/err"
none absent_libsodium_is_an_error "$([ $? = 2 ] || echo "the exit status is not 2")"
none the_error_is_one_sentence "$([ "$(wc -l <"$tmp/err")" -eq 1 ] || cat "$tmp/err")"
none the_error_names_the_package "$(grep -q 'libsodium\.so\.23.*apt-get install libsodium23' "$tmp/err" || cat "$tmp/err")"
none no_file_is_left "$(ls "$tmp/key" 2>/dev/null)"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
