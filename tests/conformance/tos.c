/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* SIOCRDSSETTOS and SIOCRDSGETTOS. */
#include "rdsconf.h"

#include <sys/ioctl.h>

static int set(int fd, unsigned long tos)
{
	return ioctl(fd, SIOCRDSSETTOS, &tos);
}

static const char *get(int fd)
{
	unsigned char tos[2] = { 77, 77 };
	int r = ioctl(fd, SIOCRDSGETTOS, tos);

	return text("%s %u next %u", rc(r), tos[0], tos[1]);
}

int main(int argc, char **argv)
{
	char large[64] = { 7 };
	int fd, d;

	conf_begin(argc, argv);
	fd = rds_socket();
	check("get-unbound", "0 0 next 77", "%s", get(fd));
	check("set-unbound", "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCRDSSETTOS, large)));
	check("get-bad-pointer", "-1 EFAULT", "%s", rc(ioctl(fd, SIOCRDSGETTOS, conf_bad)));
	check("set-bad-pointer-unbound", "-1 EFAULT", "%s", rc(ioctl(fd, SIOCRDSSETTOS, conf_bad)));
	close(fd);

	fd = rds_bound();
	d = rds_bound();
	if (conf_loop) {
		check("set-loopback", "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCRDSSETTOS, large)));
		check("get-loopback", "0 0 next 77", "%s", get(fd));
	} else {
		check("set-bad-pointer", "-1 EFAULT", "%s", rc(ioctl(fd, SIOCRDSSETTOS, conf_bad)));
		check("set", "0", "%s", rc(set(fd, 5)));
		if (conf_ib) {
			check("ib-has-tos", "0 5 next 77", "%s", get(fd));
			check("set-again", "-1 EINVAL", "%s", rc(set(fd, 6)));
		} else {
			check("tcp-has-tos-0-only", "0 0 next 77", "%s", get(fd));
			check("set-again-while-0", "0", "%s", rc(set(fd, 6)));
		}
		check("send", "1", "%s", rc(send_to(fd, d, "x", 1, 0)));
		check("set-after-send", "-1 EINVAL", "%s", rc(set(fd, 5)));
		check("set-0-after-send", "-1 EINVAL", "%s", rc(set(fd, 0)));
		check("get-after-send", conf_ib ? "0 5 next 77" : "0 0 next 77", "%s", get(fd));
		check("receiver-may-still-set", "0", "%s", rc(set(d, 5)));
		conf_arrives(d);
	}
	close(fd);
	check("closed", "-1 EBADF", "%s", rc(ioctl(fd, SIOCRDSGETTOS, large)));
	return conf_end();
}
