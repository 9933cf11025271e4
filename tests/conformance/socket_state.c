/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What a fresh socket reports of itself, before and after bind. */
#include "rdsconf.h"

#include <sys/ioctl.h>

static void option(const char *name, int fd, int level, int option_number, const char *want)
{
	int value = -77;
	socklen_t len = sizeof(value);
	int ret = getsockopt(fd, level, option_number, &value, &len);

	if (ret < 0)
		check(name, want, "%s", rc(ret));
	else
		check(name, want, "%s value %d len %u", rc(ret), value, len);
}

static void timeout(const char *name, int fd, int which)
{
	struct timeval tv = { 9, 9 };
	socklen_t len = sizeof(tv);
	int ret = getsockopt(fd, SOL_SOCKET, which, &tv, &len);

	check(name, "0 0.0 len 16", "%s %ld.%ld len %u", rc(ret), (long)tv.tv_sec, (long)tv.tv_usec, len);
}

int main(int argc, char **argv)
{
	uint8_t tos = 9;
	int fd, ret;

	conf_begin(argc, argv);
	fd = rds_socket();
	option("so-type", fd, SOL_SOCKET, SO_TYPE, "0 value 5 len 4");
	option("so-domain", fd, SOL_SOCKET, SO_DOMAIN, "0 value 21 len 4");
	option("so-protocol", fd, SOL_SOCKET, SO_PROTOCOL, "0 value 0 len 4");
	option("so-acceptconn", fd, SOL_SOCKET, SO_ACCEPTCONN, "0 value 0 len 4");
	option("so-error", fd, SOL_SOCKET, SO_ERROR, "0 value 0 len 4");
	option("so-sndbuf", fd, SOL_SOCKET, SO_SNDBUF, "0 value 212992 len 4");
	option("so-rcvbuf", fd, SOL_SOCKET, SO_RCVBUF, "0 value 212992 len 4");
	option("so-reuseaddr", fd, SOL_SOCKET, SO_REUSEADDR, "0 value 0 len 4");
	option("so-timestamp", fd, SOL_SOCKET, SO_TIMESTAMP, "0 value 0 len 4");
	option("so-zerocopy", fd, SOL_SOCKET, SO_ZEROCOPY, "0 value 0 len 4");
	option("rds-recverr", fd, SOL_RDS, RDS_RECVERR, "0 value 0 len 4");
	option("rds-transport", fd, SOL_RDS, SO_RDS_TRANSPORT, "0 value -1 len 4");
	timeout("so-rcvtimeo", fd, SO_RCVTIMEO);
	timeout("so-sndtimeo", fd, SO_SNDTIMEO);
	ret = ioctl(fd, SIOCRDSGETTOS, &tos);
	check("tos", "0 tos 0", "%s tos %u", rc(ret), tos);
	check("recv-unbound-nonblocking", "-1 EAGAIN", "%s", rc(recv(fd, &tos, 1, MSG_DONTWAIT)));
	close(fd);

	fd = rds_bound();
	option("bound-transport", fd, SOL_RDS, SO_RDS_TRANSPORT, text("0 value %d len 4", conf_transport));
	option("bound-so-error", fd, SOL_SOCKET, SO_ERROR, "0 value 0 len 4");
	option("bound-so-type", fd, SOL_SOCKET, SO_TYPE, "0 value 5 len 4");
	return conf_end();
}
