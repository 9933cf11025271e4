/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What a receive returns: lengths, truncation, peeking, names, zero-length messages, odd flags. */
#include "rdsconf.h"

static int s, d;
static char buf[256];

static void fill(const char *data, size_t len)
{
	if (send_to(s, d, data, len, 0) != (ssize_t)len || !wait_message(d))
		conf_die("send");
}

static void row(const char *name, size_t len, int flags, const char *want)
{
	struct iovec iov = { buf, len };
	struct name from;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_name = &from.ss, .msg_namelen = sizeof(from.ss) };
	long r;

	memset(buf, '.', sizeof(buf));
	m.msg_flags = -1;
	r = recvmsg(d, &m, flags | MSG_DONTWAIT);
	if (r < 0)
		check(name, want, "%s", rc(r));
	else
		check(name, want, "%s \"%.5s\" flags %s", rc(r), buf, msg_flags(m.msg_flags & ~MSG_CMSG_CLOEXEC));
}

static void truncation(void)
{
	fill("abcdefgh", 8);
	row("peek-short", 3, MSG_PEEK, "3 \"abc..\" flags TRUNC");
	row("peek-trunc", 3, MSG_PEEK | MSG_TRUNC, "8 \"abc..\" flags TRUNC");
	row("peek-nothing", 0, MSG_PEEK, "0 \".....\" flags TRUNC");
	row("peek-length-only", 0, MSG_PEEK | MSG_TRUNC, "8 \".....\" flags TRUNC");
	row("peek-all", 100, MSG_PEEK, "8 \"abcde\" flags 0");
	row("take-short", 3, 0, "3 \"abc..\" flags TRUNC");
	row("rest-is-gone", 100, 0, "-1 EAGAIN");
	fill("abcdefgh", 8);
	row("take-trunc", 3, MSG_TRUNC, "8 \"abc..\" flags TRUNC");
	fill("abcdefgh", 8);
	row("take-exactly", 8, 0, "8 \"abcde\" flags 0");
	fill("abcdefgh", 8);
	row("take-trunc-exactly", 8, MSG_TRUNC, "8 \"abcde\" flags 0");
	fill("abcdefgh", 8);
	row("take-nothing", 0, 0, "0 \".....\" flags TRUNC");
	row("taken", 8, 0, "-1 EAGAIN");
}

/* No descriptor comes this way, but the flag is told all the same. */
static void cloexec(const char *name, int flags, const char *want)
{
	struct iovec iov = { buf, sizeof(buf) };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };
	long r;

	fill("abcd", 4);
	r = recvmsg(d, &m.msg_hdr, flags | MSG_DONTWAIT);
	check(text("%s-asked", name), want, "%s %d", rc(r), (m.msg_hdr.msg_flags & MSG_CMSG_CLOEXEC) != 0);
	fill("abcd", 4);
	r = recvmmsg(d, &m, 1, flags | MSG_DONTWAIT, NULL);
	check(text("%s-asked-mmsg", name), want, "%s %d", rc(r == 1 ? (long)m.msg_len : r),
	      (m.msg_hdr.msg_flags & MSG_CMSG_CLOEXEC) != 0);
}

static void zero_length(void)
{
	struct name from;
	long r;

	fill("", 0);
	row("zero-peek", 5, MSG_PEEK, "0 \".....\" flags 0");
	row("zero-take", 5, 0, "0 \".....\" flags 0");
	row("zero-taken", 5, 0, "-1 EAGAIN");
	fill("", 0);
	from.len = sizeof(from.ss);
	r = recvfrom(d, NULL, 0, MSG_DONTWAIT, &from.sa, &from.len);
	check("zero-has-a-name", NULL, "%s %s", rc(r), who(&from));
	fill("", 0);
	check("zero-read", "0", "%s", rc(read(d, buf, 5)));
}

static void reads(void)
{
	struct iovec iov[2] = { { buf, 2 }, { buf + 2, 3 } };

	fill("abcd", 4);
	check("read-0-consumes-nothing", "0", "%s", rc(read(d, buf, 0)));
	row("read-0-left-it", 9, MSG_PEEK, "4 \"abcd.\" flags 0");
	check("read", "4", "%s", rc(read(d, buf, sizeof(buf))));
	fill("abcd", 4);
	check("readv", "4", "%s", rc(readv(d, iov, 2)));
	fill("abcdefgh", 8);
	check("readv-short", "5", "%s", rc(readv(d, iov, 2)));
	fill("abcd", 4);
	check("recv-0-consumes", "0", "%s", rc(recv(d, buf, 0, MSG_DONTWAIT)));
	row("recv-0-took-it", 9, 0, "-1 EAGAIN");
	fcntl(d, F_SETFL, O_NONBLOCK);
	check("read-nonblocking-empty", "-1 EAGAIN", "%s", rc(read(d, buf, 1)));
	check("read-0-empty", "0", "%s", rc(read(d, buf, 0)));
	fcntl(d, F_SETFL, 0);
}

static void odd_flags(void)
{
	row("oob-empty", 5, MSG_OOB, "0 \".....\" flags 0");
	row("errqueue-empty", 5, MSG_ERRQUEUE, "-1 EAGAIN");
	fill("abcd", 4);
	check("oob", "0", "%s", rc(recv(d, buf, 5, MSG_OOB)));
	check("errqueue", "-1 EAGAIN", "%s", rc(recv(d, buf, 5, MSG_ERRQUEUE)));
	check("errqueue-blocking", "-1 EAGAIN", "%s", rc(recv(d, buf, 5, MSG_ERRQUEUE)));
	row("waitall-ignored", 50, MSG_WAITALL | MSG_PEEK, "4 \"abcd.\" flags 0");
	row("nosignal-ignored", 50, MSG_NOSIGNAL | MSG_PEEK, "4 \"abcd.\" flags 0");
	row("unknown-ignored", 50, 0x8000000 | MSG_PEEK, "4 \"abcd.\" flags 0");
	row("eor-never-set", 50, MSG_EOR, "4 \"abcd.\" flags 0");
}

static void names(void)
{
	static const socklen_t lens[] = { 0, 1, 2, 8, 16, 28, 128 };
	struct name from;
	unsigned i;
	long r;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		fill("n", 1);
		memset(&from, 0, sizeof(from));
		from.len = lens[i];
		r = recvfrom(d, buf, 1, MSG_DONTWAIT, &from.sa, &from.len);
		if (lens[i] >= 28 || (!conf_v6 && lens[i] >= 16))
			check(text("recvfrom-name-%u", lens[i]), NULL, "%s %s", rc(r), who(&from));
		else
			check(text("recvfrom-name-%u", lens[i]), NULL, "%s len %u", rc(r), from.len);
	}
	fill("n", 1);
	r = recvfrom(d, buf, 1, MSG_DONTWAIT, NULL, NULL);
	check("recvfrom-no-name", "1", "%s", rc(r));
	fill("n", 1);
	from.len = 77;
	r = recvfrom(d, buf, 1, MSG_DONTWAIT, NULL, &from.len);
	check("recvfrom-null-name", "1 len 77", "%s len %u", rc(r), from.len);
	from.len = sizeof(from.ss);
	r = recvfrom(d, buf, 1, MSG_DONTWAIT, &from.sa, &from.len);
	check("recvfrom-empty-len-kept", "-1 EAGAIN len 128", "%s len %u", rc(r), from.len);
}

/* A message of 64 KiB, looked at in the way rds-sink does. */
static void size_first(void)
{
	static char big[65536], got[65536];
	struct msghdr m = { 0 };

	memset(big, 'z', sizeof(big));
	send_to(s, d, big, sizeof(big), 0);
	check("peek-trunc-blocking", "65536", "%s", rc(recvmsg(d, &m, MSG_PEEK | MSG_TRUNC)));
	check("then-take", "65536", "%s", rc(recv(d, got, sizeof(got), 0)));
	check("then-same", "1", "%d", !memcmp(big, got, sizeof(got)));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	label(s, "sender");
	truncation();
	cloexec("cloexec", MSG_CMSG_CLOEXEC, "4 1");
	cloexec("no-cloexec", 0, "4 0");
	zero_length();
	reads();
	odd_flags();
	names();
	size_first();
	return conf_end();
}
