# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash
# What "run" and "two" share: making, starting and judging one guest. Sourced; the caller has set
# $here and die().
#
# A guest lives in a directory of its own:
#	job setup	shell scripts that the guest runs (it reads them as files, so that they may
#			hold any bytes)
#	initrd		busybox, the modules, "init"; with guest_files all else, too
#	output		fifo, what the command says; console, qemu.out: logs; status: two lines
#			written by "init"
#	begun		when it was started, by this machine's clock

# guest_cpus N: the processors of each guest where N run at once: at most two, and together no more
# than this machine has
guest_cpus() {
	local each=$(($(nproc) / $1))

	echo $((each > 2 ? 2 : each > 0 ? each : 1))
}

guest_tools() {
	local tool

	for tool in qemu-system-x86_64 busybox cpio flock timeout xz; do
		command -v $tool >/dev/null || die "$tool is missing: apt-get install qemu-system-x86 busybox-static cpio xz-utils"
	done
	guest_busybox=$(command -v busybox)
	if ldd "$guest_busybox" >/dev/null 2>&1; then
		die "$guest_busybox is not static: apt-get install busybox-static"
	fi
}

# guest_kernel RDMA: sets guest_image and guest_moddir; for siw the module is built if need be
guest_kernel() {
	if [ "$1" = siw ]; then
		guest_image=$("$here/siw") || die "no siw"
	else
		guest_image=$("$here/kernel") || die "no kernel"
	fi
	guest_moddir=$guest_image/lib/modules/$(cat "$guest_image/release")
}

# guest_rdma_modules RDMA MODULE...: what "rdma-up RDMA" needs in the guest; refuses what does not
# go together
guest_rdma_modules() {
	case $1 in
	"") ;;
	rxe) echo ib_uverbs rdma_ucm crc32_generic rdma_rxe ;;
	siw)
		# Their listener takes siw's TCP port, and rdma_cm then has no siw device.
		case " ${*:2} " in
		*" rds"*) die "kernel RDS and siw exclude each other" ;;
		esac
		echo ib_uverbs rdma_ucm crc32c_generic siw ;;
	*) die "--rdma is rxe or siw" ;;
	esac
}

# Dependencies first, each module once; modules built into the kernel are not in modules.dep.
guest_module_order() {
	awk -v want="$*" '
	function base(path) { sub(/.*\//, "", path); sub(/\.ko.*/, "", path); gsub(/-/, "_", path); return path }
	function visit(name,   list, n, i) {
		if (name in seen) return
		seen[name] = 1
		if (!(name in path)) { if (!(name in builtin)) { print "missing " name > "/dev/stderr"; bad = 1 }; return }
		n = split(deps[name], list, " ")
		for (i = 1; i <= n; i++) visit(base(list[i]))
		print path[name]
	}
	FILENAME ~ /builtin$/ { builtin[base($1)] = 1; next }
	{ file = $1; sub(/:$/, "", file); name = base(file); path[name] = file; $1 = ""; deps[name] = $0 }
	END { n = split(want, w, " "); for (i = 1; i <= n; i++) { gsub(/-/, "_", w[i]); visit(w[i]) }; exit bad }
	' "$guest_moddir/modules.builtin" "$guest_moddir/modules.dep"
}

# guest_initrd DIR MODULE...: DIR/initrd, whose guest runs DIR/job. If the array guest_files is not
# empty, the guest has these and what they need (see "files") in its memory, and nothing else of
# this machine.
guest_files=()
guest_initrd() {
	local dir=$1 root=$1/initramfs order file

	shift
	mkdir -p "$root/guest/modules"
	cp "$guest_busybox" "$root/guest/busybox"
	cp "$here/init" "$root/init"
	chmod 755 "$root/init"
	[ ${#guest_files[@]} != 0 ] || set -- 9pnet_virtio 9p overlay "$@"
	order=$(guest_module_order virtio_pci "$@") || die "no such module in $guest_moddir"
	for file in $order; do
		cp "$guest_moddir/$file" "$root/guest/modules/" || die "cannot copy $file"
		basename "$file" >>"$root/guest/modules/list"
	done
	echo "$dir/job" >"$root/guest/job"
	if [ ${#guest_files[@]} != 0 ]; then
		"$here/files" "$dir/job" "$dir/setup" "$here/rdma-up" "${guest_files[@]}" >"$root/guest/files" ||
			die "cannot list the files"
	fi
	(cd "$root" && find . | cpio --quiet -o -H newc) >"$dir/initrd" || die "cpio failed"
	# The kernel takes one archive behind the other.
	[ ${#guest_files[@]} = 0 ] || (cd / && cpio --quiet -o -H newc <"$root/guest/files") >>"$dir/initrd" || die "cpio failed"
}

# guest_job DIR RDMA-SETUP SETUP COMMAND ARGS...: DIR/job; RDMA-SETUP is a list of words, SETUP
# shell commands; both, and the command, see the variables of the array guest_env
guest_env=()
guest_job() {
	local dir=$1 rdma=$2 setup=$3

	shift 3
	echo "$setup" >"$dir/setup"
	{
		echo "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C"
		[ ${#guest_env[@]} = 0 ] || echo "export $(guest_quote "${guest_env[@]}")"
		[ ${#guest_files[@]} = 0 ] || echo "mkdir -p $(guest_quote "$PWD") && chmod 1777 /tmp"
		echo "cd $(guest_quote "$PWD") || exit 125"
		[ -z "$rdma" ] || echo "$(guest_quote "$here/rdma-up") $rdma || exit 125"
		[ -z "$setup" ] || echo "sh -e $(guest_quote "$dir/setup") || { echo 'guest: setup failed' >&2; exit 125; }"
		echo "exec $(guest_quote "$@")"
	} >"$dir/job"
}

# The words, so that sh reads them as they are; printf %q would write what only bash reads.
guest_quote() {
	local word

	for word in "$@"; do
		printf "'%s' " "${word//\'/\'\\\'\'}"
	done
}

# guest_tsc DIR: the kernel's arguments that say how fast the guest's time stamp counter runs, so
# that it does not measure (tsc.c says why); none where this cannot be found out: then
# guest_clock_check has to do. With --icount it is known. There whoever waits by looking at a clock
# needs a look for every few nanoseconds, each of which takes the emulator a microsecond: so the
# local timer, which the kernel would measure for 100 ms, is left alone.
guest_tsc() {
	case "$(uname -m) ${guest_clock[*]}" in
	*-icount*) echo "tsc_early_khz=1000000 nolapic_timer" ;;
	x86_64*) "${CC:-cc}" -O1 -o "$1/tsc" "$here/tsc.c" 2>/dev/null && echo "tsc_early_khz=$("$1/tsc")" ;;
	esac
}

# guest_start DIR SECONDS MEGABYTES CPUS QEMU-ARGUMENT...: sets guest_qemu and guest_output, the two
# processes, and guest_hold. The command in the array guest_reader reads what the guest's command
# says; it ends when guest_hold is closed after guest_qemu's end.
guest_reader=(cat)
guest_holds=()
guest_clock=(-accel tcg,thread=multi)
guest_start() {
	local dir=$1 seconds=$2 memory=$3 cpus=$4 tsc host=()

	shift 4
	[ ${#guest_files[@]} != 0 ] ||
		host=(-virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap)
	tsc=$(guest_tsc "$dir")
	mkfifo "$dir/output"
	: >"$dir/console"
	: >"$dir/status"
	guest_now >"$dir/begun"
	# Held open for both directions: neither reader nor emulator can hang in open(), and the
	# reader sees no early end.
	exec {guest_hold}<>"$dir/output"
	guest_holds+=("$guest_hold")
	guest_without_holds "${guest_reader[@]}" <"$dir/output" &
	guest_output=$!
	# No kvm on purpose: /dev/kvm may exist and hang.  Without the promise that "rep movsb" is
	# fast, on which libc and kernel copy with it: it is emulated byte by byte and makes every
	# copy ten times as dear as loads and stores do.
	guest_without_holds timeout --foreground -k 5 "$seconds" qemu-system-x86_64 "${guest_clock[@]}" -cpu max,-erms \
		-smp "$cpus" -m "$memory" -nodefaults -no-user-config -display none -no-reboot -nic none \
		-kernel "$guest_image/vmlinux" -initrd "$dir/initrd" \
		-append "console=ttyS0 quiet loglevel=5 panic=-1 mitigations=off random.trust_cpu=on nokaslr tsc=reliable no_timer_check $tsc" \
		-serial "file:$dir/console" -serial "file:$dir/output" -serial "file:$dir/status" \
		"${host[@]}" "$@" \
		</dev/null >"$dir/qemu.out" 2>&1 &
	guest_qemu=$!
}

# Becomes the command (call it in the background), without the ends of fifos that other guests are
# waited for with.
guest_without_holds() {
	local hold

	for hold in "${guest_holds[@]}"; do
		exec {hold}>&-
	done
	exec "$@"
}

guest_now() {
	local up

	read -r up _ </proc/uptime
	echo "${up%.*}"
}

# guest_clock_check DIR: a line on stderr if the guest's clock, which is the emulator's and not
# checked by anybody, ran ahead of this machine's. Then whatever has a limit in the guest had no
# time, and a failure says nothing.
guest_clock_check() {
	local counted passed

	case "${guest_clock[*]}" in
	*-icount*) return ;; # it counts instructions
	esac
	counted=$(tr -d '\r' <"$1/status" | sed -n 's/^clock \([0-9]*\).*/\1/p')
	passed=$(($(guest_now) - $(cat "$1/begun")))
	if [ -n "$counted" ] && [ "$counted" -gt $((passed + 5)) ]; then
		echo "guest: its clock counted $counted s in $passed: what failed may not have failed" >&2
	fi
}

# guest_kernel_check DIR: on stderr what the guest's kernel has said of a fault of its own. A thread
# that had one in the kernel may stay for ever, with its process, and what waits for that one.
guest_kernel_check() {
	local fault='BUG: |Oops|[Kk]ernel panic|recursive fault|general protection|soft lockup|self-detected stall|blocked for more'

	tr -d '\r' <"$1/console" | grep -aE -A 40 "$fault" | head -n 120 | sed 's/^/guest: its kernel: /' >&2
}

# guest_status DIR CODE SECONDS: the command's exit status on stdout, or 124, 125 with a reason on
# stderr; CODE is QEMU's status
guest_status() {
	local status

	guest_clock_check "$1"
	guest_kernel_check "$1"
	status=$(tr -d '\r' <"$1/status" | head -n 1)
	case $status in
	"exit "*)
		echo "${status#exit }"
		return ;;
	failed*)
		echo "guest: $status" >&2 ;;
	*)
		if [ "$2" = 124 ] || [ "$2" = 137 ]; then
			echo "guest: no end within $3 s" >&2
			echo 124
			return
		fi
		echo "guest: it ended without a status (qemu status $2)" >&2 ;;
	esac
	echo 125
}
