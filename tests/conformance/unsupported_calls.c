/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Calls that RDS sockets do not have. */
#include "rdsconf.h"

#include <sys/mman.h>
#include <sys/sendfile.h>

static void on_socket(const char *state, int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char byte = 0;
	void *map;

	check(text("%s-listen", state), "-1 EOPNOTSUPP", "%s", rc(listen(fd, 5)));
	check(text("%s-listen-negative", state), "-1 EOPNOTSUPP", "%s", rc(listen(fd, -1)));
	check(text("%s-accept", state), "-1 EOPNOTSUPP", "%s", rc(accept(fd, NULL, NULL)));
	check(text("%s-accept-address", state), "-1 EOPNOTSUPP", "%s",
	      rc(accept(fd, (struct sockaddr *)&ss, &len)));
	check(text("%s-accept4-flags", state), "-1 EOPNOTSUPP", "%s",
	      rc(accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)));
	check(text("%s-accept4-unknown-flag", state), "-1 EINVAL", "%s", rc(accept4(fd, NULL, NULL, 1)));
	check(text("%s-shutdown-rd", state), "-1 EOPNOTSUPP", "%s", rc(shutdown(fd, SHUT_RD)));
	check(text("%s-shutdown-wr", state), "-1 EOPNOTSUPP", "%s", rc(shutdown(fd, SHUT_WR)));
	check(text("%s-shutdown-rdwr", state), "-1 EOPNOTSUPP", "%s", rc(shutdown(fd, SHUT_RDWR)));
	check(text("%s-shutdown-77", state), "-1 EOPNOTSUPP", "%s", rc(shutdown(fd, 77)));
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	check(text("%s-mmap", state), "-1 ENODEV", "%s", rc(map == MAP_FAILED ? -1 : 0));
	check(text("%s-lseek", state), "-1 ESPIPE", "%s", rc(lseek(fd, 0, SEEK_SET)));
	check(text("%s-pread", state), "-1 ESPIPE", "%s", rc(pread(fd, &byte, 1, 0)));
	check(text("%s-pwrite", state), "-1 ESPIPE", "%s", rc(pwrite(fd, &byte, 1, 0)));
	check(text("%s-fsync", state), "-1 EINVAL", "%s", rc(fsync(fd)));
	check(text("%s-ftruncate", state), "-1 EINVAL", "%s", rc(ftruncate(fd, 0)));
}

static void pairs(void)
{
	int sv[2];

	check("socketpair", "-1 EOPNOTSUPP", "%s", rc(socketpair(AF_RDS, SOCK_SEQPACKET, 0, sv)));
	check("socketpair-cloexec", "-1 EOPNOTSUPP", "%s",
	      rc(socketpair(AF_RDS, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv)));
	check("socketpair-dgram", "-1 ESOCKTNOSUPPORT", "%s", rc(socketpair(AF_RDS, SOCK_DGRAM, 0, sv)));
	check("socketpair-protocol", "-1 ESOCKTNOSUPPORT", "%s", rc(socketpair(AF_RDS, SOCK_SEQPACKET, 3, sv)));
	check("socketpair-bad-flag", "-1 EINVAL", "%s", rc(socketpair(AF_RDS, SOCK_SEQPACKET | 0x10, 0, sv)));
	check("socketpair-type-11", "-1 EINVAL", "%s", rc(socketpair(AF_RDS, 11, 0, sv)));
}

int main(int argc, char **argv)
{
	int fd;

	conf_begin(argc, argv);
	fd = rds_socket();
	on_socket("unbound", fd);
	close(fd);
	fd = rds_bound();
	on_socket("bound", fd);
	close(fd);
	pairs();
	check("listen-closed", "-1 EBADF", "%s", rc(listen(fd, 1)));
	check("shutdown-closed", "-1 EBADF", "%s", rc(shutdown(fd, 1)));
	check("listen-not-a-socket", "-1 ENOTSOCK", "%s", rc(listen(open("/dev/null", O_RDWR), 1)));
	return conf_end();
}
