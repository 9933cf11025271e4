/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* SO_RDS_MSG_RXPATH_LATENCY: the option and the control message. */
#include "rdsconf.h"

static int s, d;

static int traces(unsigned n, unsigned a, unsigned b, unsigned c, socklen_t len)
{
	struct rds_rx_trace_so so[2] = { { n, { a, b, c } }, { 0, { 0 } } };

	return setsockopt(d, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, so, len);
}

static void arrives(const char *name, const char *want)
{
	char control[256] __attribute__((aligned(8))), buf[8], out[256] = "";
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control),
	};
	struct rds_cmsg_rx_trace trace;
	struct cmsghdr *c;
	unsigned i;
	long r;

	if (send_to(s, d, "t", 1, 0) != 1 || !wait_message(d))
		conf_die("send");
	r = recvmsg(d, &m, MSG_DONTWAIT);
	for (c = CMSG_FIRSTHDR(&m); r >= 0 && c; c = CMSG_NXTHDR(&m, c)) {
		snprintf(out + strlen(out), sizeof(out) - strlen(out), " [%d %d len %zu", c->cmsg_level, c->cmsg_type,
			 (size_t)c->cmsg_len);
		if (c->cmsg_level == SOL_RDS && c->cmsg_len == CMSG_LEN(sizeof(trace))) {
			memcpy(&trace, CMSG_DATA(c), sizeof(trace));
			snprintf(out + strlen(out), sizeof(out) - strlen(out), " traces %u:", trace.rx_traces);
			for (i = 0; i < trace.rx_traces && i < 3; i++)
				snprintf(out + strlen(out), sizeof(out) - strlen(out), " %u", trace.rx_trace_pos[i]);
		}
		strcat(out, "]");
	}
	check(name, want, "%s flags %s%s", rc(r), msg_flags(m.msg_flags), out);
}

int main(int argc, char **argv)
{
	int value, on = 1;

	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	arrives("off", "1 flags 0");
	check("three", "0", "%s", rc(traces(3, 0, 1, 2, 4)));
	arrives("three-cmsg", "1 flags 0 [276 11 len 48 traces 3: 0 1 2]");
	check("reordered", "0", "%s", rc(traces(3, 2, 0, 1, 4)));
	arrives("reordered-cmsg", "1 flags 0 [276 11 len 48 traces 3: 2 0 1]");
	check("one", "0", "%s", rc(traces(1, 1, 0, 0, 4)));
	arrives("one-cmsg", "1 flags 0 [276 11 len 48 traces 1: 1]");
	check("len-3", "-1 EFAULT", "%s", rc(traces(1, 1, 0, 0, 3)));
	check("len-5", "-1 EFAULT", "%s", rc(traces(1, 1, 0, 0, 5)));
	check("four-traces", "-1 EFAULT", "%s", rc(traces(4, 0, 1, 2, 4)));
	check("bad-pointer", "-1 EFAULT", "%s",
	      rc(setsockopt(d, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, conf_bad, 4)));
	check("position-3", "-1 EFAULT", "%s", rc(traces(2, 0, 3, 0, 4)));
	arrives("off-after-bad-position", "1 flags 0");
	check("again", "0", "%s", rc(traces(2, 0, 2, 0, 4)));
	setsockopt(d, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on));
	arrives("behind-the-timestamp", "1 flags 0 [1 29 len 32] [276 11 len 48 traces 2: 0 2]");
	check("zero", "0", "%s", rc(traces(0, 0, 0, 0, 4)));
	arrives("zero-no-cmsg", "1 flags 0 [1 29 len 32]");
	check("get", "-1 ENOPROTOOPT", "%s",
	      rc(getsockopt(d, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &value, &(socklen_t){ 4 })));
	return conf_end();
}
