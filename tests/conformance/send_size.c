/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The largest message: the RDS send limit (half of what SO_SNDBUF reports), never above 1 MiB. */
#include "rdsconf.h"

static char data[1048576 + 8], got[1048576 + 8];

static void limit(int snd)
{
	int s = rds_bound(), d = rds_bound();
	unsigned i;

	rds_bufs(s, snd, 0);
	rds_bufs(d, 0, 2000000);
	if (!snd)
		snd = 106496;
	for (i = 0; i < (unsigned)snd; i++)
		data[i] = i * 7 + (i >> 8);
	check(text("%d-plus-1", snd), "-1 EMSGSIZE", "%s", rc(send_to(s, d, data, snd + 1, 0)));
	check(text("%d-plus-1-nonblocking", snd), "-1 EMSGSIZE", "%s",
	      rc(send_to(s, d, data, snd + 1, MSG_DONTWAIT)));
	check(text("%d-exactly", snd), text("%d", snd), "%s", rc(send_to(s, d, data, snd, 0)));
	memset(got, 0, sizeof(got));
	check(text("%d-received", snd), text("%d", snd), "%s", rc(receive(d, got, sizeof(got), 0)));
	check(text("%d-same-bytes", snd), "1", "%d", !memcmp(data, got, snd));
	close(s);
	close(d);
}

/* Above wmem_max only with SO_SNDBUFFORCE; still nothing above 1 MiB. */
static void one_mib(void)
{
	int s = rds_bound(), d = rds_bound(), value = 3000000;
	socklen_t len = sizeof(value);
	unsigned i;

	check("sndbufforce", "0", "%s", rc(setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &value, sizeof(value))));
	check("rcvbufforce", "0", "%s", rc(setsockopt(d, SOL_SOCKET, SO_RCVBUFFORCE, &value, sizeof(value))));
	value = 0;
	getsockopt(s, SOL_SOCKET, SO_SNDBUF, &value, &len);
	check("sndbufforce-value", "6000000", "%d", value);
	value = 0;
	getsockopt(d, SOL_SOCKET, SO_RCVBUF, &value, &len);
	check("rcvbufforce-value", "6000000", "%d", value);
	for (i = 0; i < sizeof(data); i++)
		data[i] = i * 13 + (i >> 12);
	check("above-1-mib", "-1 EMSGSIZE", "%s", rc(send_to(s, d, data, 1048577, 0)));
	check("1-mib", "1048576", "%s", rc(send_to(s, d, data, 1048576, 0)));
	memset(got, 0, sizeof(got));
	check("1-mib-received", "1048576", "%s", rc(receive(d, got, sizeof(got), 0)));
	check("1-mib-same-bytes", "1", "%d", !memcmp(data, got, 1048576));
	close(s);
	close(d);
}

/* The same payload in many pieces. */
static void gathered(void)
{
	static const size_t sizes[] = { 1, 0, 4095, 4096, 4097, 3, 20000 };
	int s = rds_bound(), d = rds_bound();
	struct iovec out[7], in[3];
	struct msghdr m = { .msg_iov = out, .msg_iovlen = 7 };
	struct name to = name_of(d);
	size_t at = 0;
	unsigned i;
	ssize_t r;

	for (i = 0; i < 7; i++) {
		out[i] = (struct iovec){ data + at, sizes[i] };
		at += sizes[i];
	}
	m.msg_name = &to.ss;
	m.msg_namelen = to.len;
	check("gather", "32292", "%s", rc(sendmsg(s, &m, 0)));
	memset(got, 0, sizeof(got));
	in[0] = (struct iovec){ got, 10 };
	in[1] = (struct iovec){ got + 10, 5000 };
	in[2] = (struct iovec){ got + 5010, 100000 };
	m = (struct msghdr){ .msg_iov = in, .msg_iovlen = 3 };
	wait_message(d);
	r = recvmsg(d, &m, MSG_DONTWAIT);
	check("scatter", "32292 same 1", "%s same %d", rc(r), !memcmp(data, got, 32292));
	close(s);
	close(d);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	limit(0);
	limit(3000);
	limit(8192);
	limit(65536);
	limit(200000);
	one_mib();
	gathered();
	return conf_end();
}
