# SPDX-License-Identifier: Apache-2.0
# The guests' kernel and initramfs; sourced by vm.sh. Debian's kernel package is downloaded with apt-get, which checks its signature, and
# unpacked, not installed: no root. In $work: vmlinuz, initrd, version; written beside and moved, so a build that is ended leaves none.
# shellcheck shell=bash disable=SC2154

# crc32_generic: without it adding an rxe device fails with ENOENT; nothing names it as a dependency
MODULES="virtio_pci virtio_net 9pnet_virtio 9p crc32_generic rdma_rxe ib_cm iw_cm rdma_cm ib_uverbs rdma_ucm sch_netem"

# order DIR MODULE...: the file of each module and of all that it needs, each after what it needs, once
order() {
	local dir=$1 m
	shift
	for m in "$@"; do
		m=${m//-/_}
		case " $ORDERED " in *" $m "*) continue ;; esac
		if [ -z "${FILE_OF[$m]:-}" ]; then
			grep -qE "/${m//_/[_-]}\.ko$" "$dir/modules.builtin" || die "the kernel package has no module $m"
			continue
		fi
		# shellcheck disable=SC2046
		order "$dir" $(tr '\0' '\n' <"${FILE_OF[$m]}" | grep -a '^depends=' | cut -d= -f2 | tr ',' ' ')
		ORDERED+=" $m"
	done
}

package_name() { apt-cache depends --important linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1 | grep .; }
download() { (cd "$2" && apt-get -q download "$1" >log 2>&1); } # download PACKAGE DIR
# get_package DIR: the package file in DIR; prints its name
get_package() {
	local real
	if ! { real=$(package_name) && download "$real" "$1"; } && [ "$(id -u)" = 0 ]; then # apt's lists are missing or old
		apt-get -q update >"$1/log" 2>&1
		real=$(package_name) && download "$real" "$1"
	fi
	[ -n "$real" ] || { echo "vm.sh: apt knows no package linux-image-amd64: apt-get update" >&2; return 3; }
	(cd "$1" && ls ./*.deb 2>/dev/null) || { tail -n 3 "$1/log" >&2; echo "vm.sh: $real cannot be downloaded" >&2; return 3; }
}

# image: builds what is not in $work yet, one process at a time
image() {
	local new deb dir m f lock rc
	mkdir -p "$work" || die "cannot make the work folder $work"
	exec {lock}>"$work/lock"
	flock -w 600 "$lock" || die "another vm.sh has been building in $work for 10 minutes"
	if [ -s "$work/initrd" ] && [ -s "$work/vmlinuz" ] && [ ! "$here/init" -nt "$work/initrd" ] && [ ! "$here/image.sh" -nt "$work/initrd" ]; then
		exec {lock}>&-
		return 0
	fi
	new=$work/new
	rm -rf "$new"
	mkdir -p "$new/root/bin" "$new/root/modules"
	deb=$(get_package "$new")
	rc=$?
	[ $rc = 0 ] || { rm -rf "$new"; exit $rc; }
	dpkg-deb --fsys-tarfile "$new/$deb" | tar -x -C "$new" --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.builtin' \
		'./lib/modules/*/kernel/drivers/*' './lib/modules/*/kernel/net/*' './lib/modules/*/kernel/fs/*' './lib/modules/*/kernel/lib/*' \
		'./lib/modules/*/kernel/crypto/*' './lib/modules/*/kernel/arch/*' || die "$deb cannot be unpacked"
	dir=$(echo "$new"/lib/modules/*)
	declare -A FILE_OF=()
	while IFS= read -r f; do
		m=${f##*/} m=${m%.ko}
		FILE_OF[${m//-/_}]=$f
	done < <(find "$dir/kernel" -name '*.ko')
	ORDERED=
	# shellcheck disable=SC2086
	order "$dir" $MODULES
	for m in $ORDERED; do
		cp "${FILE_OF[$m]}" "$new/root/modules/$m.ko"
		echo "$m"
	done >"$new/root/modules/order"
	cp "$(command -v busybox)" "$new/root/bin/busybox"
	cp "$here/init" "$new/root/init"
	chmod 755 "$new/root/init"
	(cd "$new/root" && find . | cpio --quiet -o -H newc | gzip -1) >"$new/initrd" || die "the initramfs cannot be packed"
	mv "$new"/boot/vmlinuz-* "$work/vmlinuz"
	echo "${dir##*/}" >"$work/version"
	mv "$new/initrd" "$work/initrd"
	rm -rf "$new"
	exec {lock}>&-
}
