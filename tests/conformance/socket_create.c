/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* socket(AF_RDS): types, flags, protocols, descriptor limits. */
#include "rdsconf.h"

#include <sys/resource.h>
#include <sys/stat.h>

static void types(void)
{
	check("type-seqpacket", "fd", "%s", sign(socket(AF_RDS, SOCK_SEQPACKET, 0)));
	check("type-stream", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, SOCK_STREAM, 0)));
	check("type-dgram", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, SOCK_DGRAM, 0)));
	check("type-raw", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, SOCK_RAW, 0)));
	check("type-rdm", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, SOCK_RDM, 0)));
	check("type-zero", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, 0, 0)));
	check("type-10", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, 10, 0)));
	check("type-11", "-1 EINVAL", "%s", sign(socket(AF_RDS, 11, 0)));
	check("type-15", "-1 EINVAL", "%s", sign(socket(AF_RDS, 15, 0)));
	check("type-unknown-flag", "-1 EINVAL", "%s", sign(socket(AF_RDS, SOCK_SEQPACKET | 0x10, 0)));
	check("type-unknown-flag-high", "-1 EINVAL", "%s", sign(socket(AF_RDS, SOCK_SEQPACKET | 0x40000000, 0)));
	check("type-negative", "-1 EINVAL", "%s", sign(socket(AF_RDS, -1, 0)));
	check("type-flag-before-protocol", "-1 EINVAL", "%s", sign(socket(AF_RDS, SOCK_STREAM | 0x10, 7)));
	check("protocol-1", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, SOCK_SEQPACKET, 1)));
	check("protocol-negative", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, SOCK_SEQPACKET, -1)));
	check("protocol-tcp-stream", "-1 ESOCKTNOSUPPORT", "%s", sign(socket(AF_RDS, SOCK_STREAM, IPPROTO_TCP)));
}

static void flags(const char *name, int type, const char *want)
{
	int fd = socket(AF_RDS, type, 0);

	if (fd < 0)
		conf_die("socket");
	check(name, want, "access %d nonblock %d cloexec %d", fcntl(fd, F_GETFL) & O_ACCMODE,
	      !!(fcntl(fd, F_GETFL) & O_NONBLOCK), fcntl(fd, F_GETFD));
	close(fd);
}

static void identity(void)
{
	char link[64] = "", want[64];
	int fd = rds_socket(), ret;
	struct stat st;

	check("fstat", "0", "%s", rc(fstat(fd, &st)));
	check("fstat-is-socket", "1", "%d", S_ISSOCK(st.st_mode));
	snprintf(want, sizeof(want), "socket:[%lu]", (unsigned long)st.st_ino);
	if (readlink(text("/proc/self/fd/%d", fd), link, sizeof(link) - 1) < 0)
		conf_die("readlink");
	check("proc-fd-link", "same inode 1", "same inode %d", !strcmp(link, want));
	errno = 0;
	ret = isatty(fd);
	check("isatty", "0 ENOTTY", "%d %s", ret, strerrorname_np(errno));
	check("close", "0", "%s", rc(close(fd)));
	check("close-again", "-1 EBADF", "%s", rc(close(fd)));
	check("getsockname-closed", "-1 EBADF", "%s", rc(getsockname(fd, NULL, NULL)));
}

static void limits(void)
{
	struct rlimit old, small;
	int fds[256], n = 0, fd;

	getrlimit(RLIMIT_NOFILE, &old);
	small = old;
	small.rlim_cur = 128;
	setrlimit(RLIMIT_NOFILE, &small);
	while (n < 256) {
		fd = socket(AF_RDS, SOCK_SEQPACKET, 0);
		if (fd < 0)
			break;
		fds[n++] = fd;
	}
	check("no-more-descriptors", "-1 EMFILE", "%s", rc(fd));
	while (n)
		close(fds[--n]);
	check("descriptors-again", "fd", "%s", sign(socket(AF_RDS, SOCK_SEQPACKET, 0)));
	setrlimit(RLIMIT_NOFILE, &old);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	types();
	flags("flags-none", SOCK_SEQPACKET, "access 2 nonblock 0 cloexec 0");
	flags("flags-nonblock", SOCK_SEQPACKET | SOCK_NONBLOCK, "access 2 nonblock 1 cloexec 0");
	flags("flags-cloexec", SOCK_SEQPACKET | SOCK_CLOEXEC, "access 2 nonblock 0 cloexec 1");
	flags("flags-both", SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, "access 2 nonblock 1 cloexec 1");
	identity();
	limits();
	return conf_end();
}
