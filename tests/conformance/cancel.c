/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* RDS_CANCEL_SENT_TO: arguments, how addresses are read, what is taken back. */
#include "rdsconf.h"

static char data[4096];

static const char *cancel_len(int fd, const struct name *to, socklen_t len)
{
	return rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, &to->ss, len));
}

static const char *cancel(int fd, const struct name *to)
{
	return cancel_len(fd, to, to->len);
}

static void arguments(void)
{
	struct name to = name_at("192.0.2.9", 4100);
	int fd = rds_socket();

	check("unbound", "-1 ENOTCONN", "%s", cancel(fd, &to));
	check("unbound-len-0", "-1 ENOTCONN", "%s", cancel_len(fd, &to, 0));
	check("unbound-bad-pointer", "-1 ENOTCONN", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, conf_bad, 16)));
	close(fd);
	fd = rds_bound();
	check("len-0", "-1 EINVAL", "%s", cancel_len(fd, &to, 0));
	check("len-15", "-1 EINVAL", "%s", cancel_len(fd, &to, 15));
	check("null-len-0", "-1 EINVAL", "%s", rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, NULL, 0)));
	check("len-16", "0", "%s", cancel_len(fd, &to, 16));
	check("len-20", "0", "%s", cancel_len(fd, &to, 20));
	check("len-28", "0", "%s", cancel_len(fd, &to, 28));
	check("len-128", "0", "%s", cancel_len(fd, &to, 128));
	check("bad-pointer", "-1 EFAULT", "%s", rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, conf_bad, 16)));
	check("bad-pointer-28", "-1 EFAULT", "%s", rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, conf_bad, 28)));
	to.sa.sa_family = 99;
	check("family-ignored", "0", "%s", cancel_len(fd, &to, 16));
	close(fd);
}

static const char *writable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };

	poll(&pfd, 1, 0);
	return poll_bits(pfd.revents);
}

static void fill(int fd, const struct name *to)
{
	if (sendto(fd, data, sizeof(data), MSG_DONTWAIT, &to->sa, to->len) != (ssize_t)sizeof(data))
		conf_die("fill");
}

static void takes_back(void)
{
	struct name far = name_far(4101), other = name_far(4102), odd = far, four = name_at("192.0.2.9", 4101);
	int fd = rds_bound(), second = rds_bound();

	rds_bufs(fd, sizeof(data), 0);
	rds_bufs(second, sizeof(data), 0);
	settle(fd);
	settle(second);
	fill(fd, &far);
	fill(second, &far);
	check("full", "0", "%s", writable(fd));
	check("another-port", "0", "%s", cancel(fd, &other));
	check("another-port-takes-nothing", "0", "%s", writable(fd));
	if (!conf_v6) {
		check("v4-in-storage-size", "0", "%s", cancel_len(fd, &far, 128));
		check("v4-in-storage-size-takes-nothing", "0", "%s", writable(fd));
	} else {
		check("v4-address", "0", "%s", cancel(fd, &four));
		check("v4-address-takes-nothing", "0", "%s", writable(fd));
		check("v6-in-len-27", "0", "%s", cancel_len(fd, &far, 27));
		check("v6-in-len-27-takes-nothing", "0", "%s", writable(fd));
	}
	odd.sa.sa_family = AF_UNSPEC;
	check("right-one-odd-family", "0", "%s", cancel(fd, &odd));
	check("taken-back", "OUT", "%s", writable(fd));
	check("other-socket-untouched", "0", "%s", writable(second));
	check("send-again", "4096", "%s", rc(sendto(fd, data, sizeof(data), MSG_DONTWAIT, &far.sa, far.len)));
	check("full-again", "0", "%s", writable(fd));
	check("twice", "0", "%s", cancel(fd, &far));
	check("twice-again", "0", "%s", cancel(fd, &far));
	check("writable", "OUT", "%s", writable(fd));
	close(fd);
	close(second);
}

/* What has arrived stays. */
static void delivered(void)
{
	int s = rds_bound(), d = rds_bound();
	struct name to = name_of(d);

	send_to(s, d, "abc", 3, 0);
	wait_message(d);
	check("delivered", "0", "%s", cancel(s, &to));
	check("delivered-stays", "3", "%s", rc(recv(d, data, 10, MSG_DONTWAIT)));
	check("send-after-cancel", "4", "%s", rc(send_to(s, d, "abcd", 4, 0)));
	check("arrives-after-cancel", "4", "%s", rc(receive(d, data, 10, 0)));
	close(s);
	close(d);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	arguments();
	if (!conf_loop)
		takes_back();
	delivered();
	return conf_end();
}
