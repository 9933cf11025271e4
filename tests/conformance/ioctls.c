/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Generic ioctls and fcntls on an RDS socket. */
#include "rdsconf.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

static void not_there(int fd, const char *state)
{
	char arg[256] = "";
	int n = 0;

	check(text("%s-fionread", state), "-1 ENOTTY", "%s", rc(ioctl(fd, FIONREAD, &n)));
	check(text("%s-siocinq", state), "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCINQ, &n)));
	check(text("%s-siocoutq", state), "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCOUTQ, &n)));
	check(text("%s-siocgstamp", state), "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCGSTAMP_OLD, arg)));
	check(text("%s-siocgstampns", state), "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCGSTAMPNS_OLD, arg)));
	check(text("%s-siocatmark", state), "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCATMARK, arg)));
	check(text("%s-siocgifaddr", state), "-1 ENOTTY", "%s", rc(ioctl(fd, SIOCGIFADDR, arg)));
	check(text("%s-tcgets", state), "-1 ENOTTY", "%s", rc(ioctl(fd, TCGETS, arg)));
	check(text("%s-0x89e2", state), "-1 ENOTTY", "%s", rc(ioctl(fd, 0x89e2, arg)));
	check(text("%s-0x89ef", state), "-1 ENOTTY", "%s", rc(ioctl(fd, 0x89ef, arg)));
	check(text("%s-0", state), "-1 ENOTTY", "%s", rc(ioctl(fd, 0, arg)));
	check(text("%s-unknown", state), "-1 ENOTTY", "%s", rc(ioctl(fd, 0x12345678, arg)));
}

static void generic(int fd)
{
	int on = 1, off = 0, owner = 0, copy;
	char byte;

	check("fionbio-1", "0", "%s", rc(ioctl(fd, FIONBIO, &on)));
	check("fionbio-flag", "1", "%d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
	check("fionbio-recv", "-1 EAGAIN", "%s", rc(recv(fd, &byte, 1, 0)));
	check("fionbio-0", "0", "%s", rc(ioctl(fd, FIONBIO, &off)));
	check("fionbio-flag-gone", "0", "%d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
	check("fionbio-bad-pointer", "-1 EFAULT", "%s", rc(ioctl(fd, FIONBIO, conf_bad)));
	check("fioclex", "0", "%s", rc(ioctl(fd, FIOCLEX)));
	check("fioclex-flag", "1", "%d", fcntl(fd, F_GETFD));
	check("fionclex", "0", "%s", rc(ioctl(fd, FIONCLEX)));
	check("fionclex-flag", "0", "%d", fcntl(fd, F_GETFD));
	check("f-setfl-nonblock", "0", "%s", rc(fcntl(fd, F_SETFL, O_NONBLOCK)));
	check("f-setfl-recv", "-1 EAGAIN", "%s", rc(recv(fd, &byte, 1, 0)));
	check("f-setfl-0", "0", "%s", rc(fcntl(fd, F_SETFL, 0)));
	check("f-getfl", "2", "%d", fcntl(fd, F_GETFL));
	check("f-setown", "0", "%s", rc(fcntl(fd, F_SETOWN, getpid())));
	check("f-getown", "1", "%d", fcntl(fd, F_GETOWN) == getpid());
	check("fiogetown", "0", "%s", rc(ioctl(fd, FIOGETOWN, &owner)));
	check("fiogetown-value", "1", "%d", owner == getpid());
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 50);
	check("f-dupfd-cloexec", "1 cloexec 1", "%d cloexec %d", copy >= 50, fcntl(copy, F_GETFD));
	close(copy);
}

static void device(int fd)
{
	struct ifreq ifr;
	struct ifconf ifc;
	char list[4096];
	int r;

	memset(&ifr, 0, sizeof(ifr));
	strcpy(ifr.ifr_name, "lo");
	r = ioctl(fd, SIOCGIFFLAGS, &ifr);
	check("siocgifflags-lo", "0 loopback 1", "%s loopback %d", rc(r), !!(ifr.ifr_flags & IFF_LOOPBACK));
	r = ioctl(fd, SIOCGIFMTU, &ifr);
	check("siocgifmtu-lo", "0 65536", "%s %d", rc(r), ifr.ifr_mtu);
	r = ioctl(fd, SIOCGIFINDEX, &ifr);
	check("siocgifindex-lo", "0 1", "%s %d", rc(r), ifr.ifr_ifindex);
	ifc.ifc_len = sizeof(list);
	ifc.ifc_buf = list;
	r = ioctl(fd, SIOCGIFCONF, &ifc);
	check("siocgifconf", "0 some 1", "%s some %d", rc(r), ifc.ifc_len >= (int)sizeof(ifr));
	strcpy(ifr.ifr_name, "nosuchdevice");
	check("siocgifflags-unknown", "-1 ENODEV", "%s", rc(ioctl(fd, SIOCGIFFLAGS, &ifr)));
	check("siocgifflags-bad-pointer", "-1 EFAULT", "%s", rc(ioctl(fd, SIOCGIFFLAGS, conf_bad)));
}

int main(int argc, char **argv)
{
	int fd;

	conf_begin(argc, argv);
	fd = rds_socket();
	not_there(fd, "unbound");
	close(fd);
	fd = rds_bound();
	not_there(fd, "bound");
	generic(fd);
	device(fd);
	return conf_end();
}
