/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* SO_SNDBUF and SO_RCVBUF: doubling, floors, ceilings, bad lengths; the options that force. */
#include "rdsconf.h"

static int fd;

static int get(int which)
{
	int value = -7;
	socklen_t len = sizeof(value);

	getsockopt(fd, SOL_SOCKET, which, &value, &len);
	return value;
}

static void row(const char *name, int which, int value, int want)
{
	int back = which, r = setsockopt(fd, SOL_SOCKET, which, &value, sizeof(value));

	if (which == SO_SNDBUFFORCE)
		back = SO_SNDBUF;
	if (which == SO_RCVBUFFORCE)
		back = SO_RCVBUF;
	check(name, text("0 %d", want), "%s %d", rc(r), get(back));
}

static void bad(int which, const char *name)
{
	int before = get(which), value[2] = { 5000, 0 };
	socklen_t len;
	int r;

	check(text("%s-len-3", name), "-1 EINVAL", "%s", rc(setsockopt(fd, SOL_SOCKET, which, value, 3)));
	check(text("%s-len-0", name), "-1 EINVAL", "%s", rc(setsockopt(fd, SOL_SOCKET, which, value, 0)));
	check(text("%s-len-negative", name), "-1 EINVAL", "%s",
	      rc(setsockopt(fd, SOL_SOCKET, which, value, (socklen_t)-1)));
	check(text("%s-bad-pointer", name), "-1 EFAULT", "%s", rc(setsockopt(fd, SOL_SOCKET, which, conf_bad, 4)));
	check(text("%s-unchanged", name), "1", "%d", get(which) == before);
	check(text("%s-len-8", name), "0", "%s", rc(setsockopt(fd, SOL_SOCKET, which, value, 8)));
	check(text("%s-len-8-value", name), "10000", "%d", get(which));
	len = 8;
	r = getsockopt(fd, SOL_SOCKET, which, value, &len);
	check(text("%s-get-len-8", name), "0 len 4", "%s len %u", rc(r), len);
	len = 2;
	value[0] = -1;
	r = getsockopt(fd, SOL_SOCKET, which, value, &len);
	check(text("%s-get-len-2", name), "0 len 2 value 10000", "%s len %u value %d", rc(r), len, value[0] & 0xffff);
	len = 0;
	r = getsockopt(fd, SOL_SOCKET, which, value, &len);
	check(text("%s-get-len-0", name), "0 len 0", "%s len %u", rc(r), len);
	len = (socklen_t)-1;
	check(text("%s-get-len-negative", name), "-1 EINVAL", "%s", rc(getsockopt(fd, SOL_SOCKET, which, value, &len)));
	len = 4;
	check(text("%s-get-bad-pointer", name), "-1 EFAULT", "%s",
	      rc(getsockopt(fd, SOL_SOCKET, which, conf_bad, &len)));
	check(text("%s-get-null-len", name), "-1 EFAULT", "%s", rc(getsockopt(fd, SOL_SOCKET, which, value, NULL)));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	fd = rds_socket();
	row("snd-0", SO_SNDBUF, 0, 4608);
	row("snd-1", SO_SNDBUF, 1, 4608);
	row("snd-2303", SO_SNDBUF, 2303, 4608);
	row("snd-2304", SO_SNDBUF, 2304, 4608);
	row("snd-2305", SO_SNDBUF, 2305, 4610);
	row("snd-65536", SO_SNDBUF, 65536, 131072);
	row("snd-212992", SO_SNDBUF, 212992, 425984);
	row("snd-large", SO_SNDBUF, 1000000000, 425984);
	row("snd-negative", SO_SNDBUF, -5, 425984);
	row("rcv-0", SO_RCVBUF, 0, 2304);
	row("rcv-1", SO_RCVBUF, 1, 2304);
	row("rcv-1151", SO_RCVBUF, 1151, 2304);
	row("rcv-1152", SO_RCVBUF, 1152, 2304);
	row("rcv-1153", SO_RCVBUF, 1153, 2306);
	row("rcv-65536", SO_RCVBUF, 65536, 131072);
	row("rcv-212992", SO_RCVBUF, 212992, 425984);
	row("rcv-large", SO_RCVBUF, 1000000000, 425984);
	row("rcv-negative", SO_RCVBUF, -5, 425984);
	row("snd-force", SO_SNDBUFFORCE, 10000000, 20000000);
	row("rcv-force", SO_RCVBUFFORCE, 10000000, 20000000);
	row("snd-force-0", SO_SNDBUFFORCE, 0, 4608);
	row("rcv-force-0", SO_RCVBUFFORCE, 0, 2304);
	bad(SO_SNDBUF, "snd");
	bad(SO_RCVBUF, "rcv");
	return conf_end();
}
