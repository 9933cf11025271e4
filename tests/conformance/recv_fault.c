/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Bad pointers in a receive: which of them lose the message. */
#include "rdsconf.h"

static int s, d;
static char buf[16];

static void fill(void)
{
	if (send_to(s, d, "abcd", 4, 0) != 4 || !wait_message(d))
		conf_die("send");
}

static const char *left(void)
{
	return rc(recv(d, buf, sizeof(buf), MSG_DONTWAIT));
}

int main(int argc, char **argv)
{
	struct iovec iov = { conf_bad, 16 }, good = { buf, 16 }, half[2] = { { buf, 2 }, { conf_bad, 2 } };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	static struct iovec many[1025];
	struct name from;
	int one = 1;

	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	fill();
	check("bad-buffer-recv", "-1 EFAULT", "%s", rc(recv(d, conf_bad, 10, MSG_DONTWAIT)));
	check("bad-buffer-read", "-1 EFAULT", "%s", rc(read(d, conf_bad, 10)));
	check("bad-buffer-recvmsg", "-1 EFAULT", "%s", rc(recvmsg(d, &m, MSG_DONTWAIT)));
	m.msg_iov = half;
	m.msg_iovlen = 2;
	check("half-bad-buffer", "-1 EFAULT", "%s", rc(recvmsg(d, &m, MSG_DONTWAIT)));
	check("message-kept", "4", "%s", left());
	fill();
	m.msg_iov = conf_bad;
	check("bad-vector", "-1 EFAULT", "%s", rc(recvmsg(d, &m, MSG_DONTWAIT)));
	check("null-message", "-1 EFAULT", "%s", rc(recvmsg(d, NULL, MSG_DONTWAIT)));
	m.msg_iov = many;
	m.msg_iovlen = 1025;
	check("vector-1025", "-1 EMSGSIZE", "%s", rc(recvmsg(d, &m, MSG_DONTWAIT)));
	m = (struct msghdr){ .msg_iov = &good, .msg_iovlen = 1, .msg_name = &from.ss, .msg_namelen = (socklen_t)-1 };
	check("name-length-negative", "-1 EINVAL", "%s", rc(recvmsg(d, &m, MSG_DONTWAIT)));
	check("kept-after-early-errors", "4", "%s", left());
	fill();
	check("bad-name", "-1 EFAULT", "%s",
	      rc(recvfrom(d, buf, 10, MSG_DONTWAIT, conf_bad, &(socklen_t){ 16 })));
	check("lost-after-bad-name", "-1 EAGAIN", "%s", left());
	fill();
	from.len = (socklen_t)-1;
	check("recvfrom-length-negative", "-1 EINVAL", "%s",
	      rc(recvfrom(d, buf, 10, MSG_DONTWAIT, &from.sa, &from.len)));
	check("lost-after-length-negative", "-1 EAGAIN", "%s", left());
	setsockopt(d, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof(one));
	fill();
	m = (struct msghdr){ .msg_iov = &good, .msg_iovlen = 1, .msg_control = conf_bad, .msg_controllen = 100 };
	check("bad-control", "-1 EFAULT", "%s", rc(recvmsg(d, &m, MSG_DONTWAIT)));
	check("lost-after-bad-control", "-1 EAGAIN", "%s", left());
	check("bad-buffer-empty", "-1 EAGAIN", "%s", rc(recv(d, conf_bad, 10, MSG_DONTWAIT)));
	close(d);
	check("closed", "-1 EBADF", "%s", rc(recv(d, buf, 10, MSG_DONTWAIT)));
	return conf_end();
}
