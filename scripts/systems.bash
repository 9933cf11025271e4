# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# systems.bash - fresh systems of Debian's suites, commands in them, and this tree as a tarball.
# Sourced by platforms, aarch64 and compilers, which set $top.  The systems are always removed.
#
# Environment: MMDEBSTRAP_OPTIONS: more options for mmdebstrap.

# systems_begin: an empty $work, which goes with this shell
systems_begin()
{
	[ "$(id -u)" = 0 ] || { echo "${0##*/}: only root can make a system" >&2; exit 2; }
	work=$(mktemp -d "${TMPDIR:-/tmp}/${0##*/}.XXXXXX") || exit 2
	trap 'rm -rf --one-file-system "$work"' EXIT
	trap 'exit 130' INT TERM HUP
	export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
	unset TMPDIR # is not there in those systems
}

# tarball: $tarball, of this tree
tarball()
{
	mkdir "$work/dist" && cd "$work/dist" || exit 2
	{ [ -x "$top/configure" ] || "$top/autogen.sh"; } >&2 && "$top/configure" --quiet >&2 && make -s dist || exit 2
	tarball=$(echo "$work"/dist/*.tar.xz)
	cd "$work" || exit 2
}

# system ROOT SUITE [OPTION...]: makes it, with a user "tester"; options of mmdebstrap
system()
{
	# shellcheck disable=SC2086
	mmdebstrap --mode=root --variant=apt ${MMDEBSTRAP_OPTIONS-} "${@:3}" "$2" "$1" && cp /etc/resolv.conf /etc/hosts "$1/etc/" &&
		printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d" && chmod +x "$1/usr/sbin/policy-rc.d" &&
		enter "$1" apt-get -q update && install "$1" passwd && chroot "$1" useradd --create-home tester
}

# enter [--net] ROOT COMMAND...: there, with its own processes, and with --net with a network of its own
enter()
{
	local own=(--mount --pid --ipc --fork --kill-child) root

	[ "$1" != --net ] || { own+=(--net) && shift; }
	root=$1
	shift
	# shellcheck disable=SC2016
	unshare "${own[@]}" bash -c '
		[[ " $1 " != *" --net "* ]] || ip link set lo up || exit 1
		mount -t proc proc "$2/proc" && mount -t sysfs -o ro sysfs "$2/sys" &&
			mount -t devpts -o newinstance,ptmxmode=666 devpts "$2/dev/pts" &&
			mount -t tmpfs -o mode=1777 shm "$2/dev/shm" || exit 1
		chroot "${@:2}"
		exit $? # not exec: the shell is process 1, and takes leave of those that nobody waits for' "$0" "${own[*]}" "$root" "$@"
}

# user ROOT COMMAND...: the same as an ordinary user, in a network of its own
user()
{
	local root=$1

	shift
	enter --net "$root" runuser -u tester -- "$@"
}

install()
{
	local root=$1

	shift
	enter "$root" apt-get -q -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@"
}
