/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Flags and calls of the send family: only MSG_DONTWAIT and MSG_ZEROCOPY are legal. */
#include "rdsconf.h"

#include <signal.h>

static void flags(int fd, const struct name *to)
{
	static const struct {
		const char *name;
		int flag;
	} bad[] = {
		{ "nosignal", MSG_NOSIGNAL }, { "eor", MSG_EOR }, { "more", MSG_MORE }, { "oob", MSG_OOB },
		{ "dontroute", MSG_DONTROUTE }, { "confirm", MSG_CONFIRM }, { "waitall", MSG_WAITALL },
		{ "peek", MSG_PEEK }, { "trunc", MSG_TRUNC }, { "ctrunc", MSG_CTRUNC },
		{ "errqueue", MSG_ERRQUEUE }, { "fastopen", MSG_FASTOPEN }, { "fin", MSG_FIN },
		{ "dontwait-nosignal", MSG_DONTWAIT | MSG_NOSIGNAL },
	};
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		check(text("sendto-%s", bad[i].name), "-1 EOPNOTSUPP", "%s",
		      rc(sendto(fd, "x", 1, bad[i].flag, &to->sa, to->len)));
	check("sendto-none", "1", "%s", rc(sendto(fd, "x", 1, 0, &to->sa, to->len)));
	check("sendto-dontwait", "1", "%s", rc(sendto(fd, "x", 1, MSG_DONTWAIT, &to->sa, to->len)));
}

static void calls(int fd, const struct name *to)
{
	struct iovec iov = { (void *)"abc", 3 };
	struct mmsghdr m[3];
	unsigned i;

	check("connect", "0", "%s", rc(connect(fd, &to->sa, to->len)));
	check("send", "1", "%s", rc(send(fd, "x", 1, 0)));
	check("send-nosignal", "-1 EOPNOTSUPP", "%s", rc(send(fd, "x", 1, MSG_NOSIGNAL)));
	check("write", "-1 EOPNOTSUPP", "%s", rc(write(fd, "x", 1)));
	check("write-0", "-1 EOPNOTSUPP", "%s", rc(write(fd, "x", 0)));
	check("writev", "-1 EOPNOTSUPP", "%s", rc(writev(fd, &iov, 1)));
	memset(m, 0, sizeof(m));
	for (i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_iov = &iov;
		m[i].msg_hdr.msg_iovlen = 1;
		m[i].msg_len = 99;
	}
	check("sendmsg", "3", "%s", rc(sendmsg(fd, &m[0].msg_hdr, 0)));
	check("sendmsg-nosignal", "-1 EOPNOTSUPP", "%s", rc(sendmsg(fd, &m[0].msg_hdr, MSG_NOSIGNAL)));
	m[0].msg_hdr.msg_flags = MSG_EOR;
	check("sendmsg-eor-in-header", "3", "%s", rc(sendmsg(fd, &m[0].msg_hdr, 0)));
	check("sendmmsg-eor-in-header", "-1 EOPNOTSUPP", "%s", rc(sendmmsg(fd, m, 1, 0)));
	m[0].msg_hdr.msg_flags = 0;
	i = sendmmsg(fd, m, 1, 0);
	check("sendmmsg-1", "1 len 3", "%s len %u", rc((int)i), m[0].msg_len);
	m[0].msg_len = 99;
	i = sendmmsg(fd, m, 2, 0);
	check("sendmmsg-2", "-1 EOPNOTSUPP len 99", "%s len %u", rc((int)i), m[0].msg_len);
	check("sendmmsg-3", "-1 EOPNOTSUPP", "%s", rc(sendmmsg(fd, m, 3, MSG_DONTWAIT)));
	check("sendmmsg-0", "0", "%s", rc(sendmmsg(fd, m, 0, 0)));
}

static void not_bound(void)
{
	struct name to = name_here(4040);
	int fd = rds_socket();

	check("flag-before-not-bound", "-1 EOPNOTSUPP", "%s", rc(send(fd, "x", 1, MSG_NOSIGNAL)));
	check("flag-before-bad-name", "-1 EOPNOTSUPP", "%s", rc(sendto(fd, "x", 1, MSG_OOB, &to.sa, 3)));
	check("write-not-bound", "-1 EOPNOTSUPP", "%s", rc(write(fd, "x", 1)));
	check("send-not-bound", "-1 ENOTCONN", "%s", rc(send(fd, "x", 1, 0)));
	check("sendto-not-bound", "-1 ENOTCONN", "%s", rc(sendto(fd, "x", 1, 0, &to.sa, to.len)));
	close(fd);
}

static int sigpipes;

static void on_sigpipe(int sig)
{
	(void)sig;
	sigpipes++;
}

static void no_sigpipe(void)
{
	struct name to = name_here(4041);
	int fd;

	signal(SIGPIPE, on_sigpipe);
	fd = rds_bound();
	check("to-nobody", "1", "%s", rc(sendto(fd, "x", 1, 0, &to.sa, to.len)));
	check("to-nobody-again", "1", "%s", rc(sendto(fd, "x", 1, 0, &to.sa, to.len)));
	check("write-fails", "-1 EOPNOTSUPP", "%s", rc(write(fd, "x", 1)));
	check("sigpipes", "0", "%d", sigpipes);
	close(fd);
}

int main(int argc, char **argv)
{
	struct name to;
	int a, b;

	conf_begin(argc, argv);
	a = rds_bound();
	b = rds_bound();
	to = name_of(b);
	flags(a, &to);
	calls(a, &to);
	not_bound();
	no_sigpipe();
	return conf_end();
}
