/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* getsockopt(RDS_INFO_*): sizes, ENOSPC, bad buffers; the names of the counters. */
#include "rdsconf.h"

#include <sys/mman.h>

static int fd;

static const char *query(int option, void *buf, socklen_t *len)
{
	return rc(getsockopt(fd, SOL_RDS, option, buf, len));
}

/* Every source: element size when the buffer is large enough. */
static void sources(void)
{
	static const struct {
		const char *name;
		int option;
		const char *want;
	} rows[] = {
		{ "counters", RDS_INFO_COUNTERS, "40" },
		{ "connections", RDS_INFO_CONNECTIONS, "42" },
		{ "send-messages", RDS_INFO_SEND_MESSAGES, "26" },
		{ "retrans-messages", RDS_INFO_RETRANS_MESSAGES, "26" },
		{ "recv-messages", RDS_INFO_RECV_MESSAGES, "26" },
		{ "sockets", RDS_INFO_SOCKETS, "28" },
		{ "connections6", RDS6_INFO_CONNECTIONS, "65" },
		{ "send-messages6", RDS6_INFO_SEND_MESSAGES, "50" },
		{ "retrans-messages6", RDS6_INFO_RETRANS_MESSAGES, "50" },
		{ "recv-messages6", RDS6_INFO_RECV_MESSAGES, "50" },
		{ "sockets6", RDS6_INFO_SOCKETS, "52" },
		{ "none-10002", 10002, "-1 ENOPROTOOPT" },
		{ "none-10009", 10009, "-1 ENOPROTOOPT" },
		{ "none-10010", 10010, "-1 ENOPROTOOPT" },
		{ "none-10018", 10018, "-1 ENOPROTOOPT" },
	};
	static char buf[262144];
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		socklen_t len = sizeof(buf);
		long r = getsockopt(fd, SOL_RDS, rows[i].option, buf, &len);

		check(rows[i].name, rows[i].want, "%s", rc(r));
		if (r > 0)
			check(text("%s-whole-elements", rows[i].name), "0", "%ld", len % r);
	}
}

static void sizing(void)
{
	static char buf[65536];
	socklen_t total = 0, len;
	long r;

	check("null-0", "-1 ENOSPC", "%s", query(RDS_INFO_COUNTERS, NULL, &total));
	check("null-0-total", "1", "%d", total >= 36 * 40 && total % 40 == 0);
	len = 0;
	r = getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, buf, &len);
	check("buffer-0", "-1 ENOSPC same 1", "%s same %d", rc(r), len == total);
	len = 40;
	r = getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, buf, &len);
	check("one-element", "-1 ENOSPC same 1", "%s same %d", rc(r), len == total);
	len = total - 1;
	r = getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, buf, &len);
	check("one-byte-short", "-1 ENOSPC same 1", "%s same %d", rc(r), len == total);
	len = total;
	r = getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, buf, &len);
	check("exactly", "40 same 1", "%s same %d", rc(r), len == total);
	len = sizeof(buf);
	r = getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, buf, &len);
	check("more-than-needed", "40 same 1", "%s same %d", rc(r), len == total);
	len = total + 3;
	r = getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, buf + 1, &len);
	check("unaligned-buffer", "40 conn_reset", "%s %.31s", rc(r), buf + 1);
}

static void bad_buffers(void)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	socklen_t len = 4000;

	check("unmapped", "-1 EAGAIN", "%s", query(RDS_INFO_COUNTERS, conf_bad, &len));
	munmap(page + 4096, 4096);
	check("half-mapped", "-1 EAGAIN", "%s", query(RDS_INFO_COUNTERS, page + 2000, &len));
	check("len-untouched", "4000", "%u", len);
	mprotect(page, 4096, PROT_READ);
	check("read-only", "-1 EAGAIN", "%s", query(RDS_INFO_COUNTERS, page, &len));
	len = 4000;
	check("null", "-1 EAGAIN", "%s", query(RDS_INFO_COUNTERS, NULL, &len));
	len = (socklen_t)-1;
	check("len-negative", "-1 EINVAL", "%s", query(RDS_INFO_COUNTERS, page, &len));
	len = 0x7fffffff;
	check("len-int-max", "-1 EINVAL", "%s", query(RDS_INFO_COUNTERS, page, &len));
	check("len-null", "-1 EFAULT", "%s", query(RDS_INFO_COUNTERS, page, NULL));
	check("len-unmapped", "-1 EFAULT", "%s", query(RDS_INFO_COUNTERS, page, conf_bad));
	munmap(page, 4096);
}

/* The 36 counters of the core, in this order. */
static void counters(void)
{
	static struct rds_info_counter list[200];
	socklen_t len = sizeof(list);
	char name[33] = "";
	unsigned i, j, nonzero = 0;

	if (getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, list, &len) != 40)
		conf_die("RDS_INFO_COUNTERS");
	for (i = 0; i < 36; i++) {
		memcpy(name, list[i].name, 32);
		check(text("counter-%02u", i + 1), NULL, "%s", name);
		for (j = strlen(name); j < 32; j++)
			nonzero += list[i].name[j] != 0;
	}
	check("names-padded-with-zeros", "0", "%u", nonzero);
}

static void check_difference(const char *name, uint64_t before, uint64_t want)
{
	uint64_t got = counter(name) - before;

	check(text("difference-%s", name), text("%lu", (unsigned long)want), "%lu", (unsigned long)got);
}

static void wait_counted(const char *name, uint64_t before)
{
	long long end = now_ms() + TEST_COMES;
	unsigned looks = 0;

	while (counter(name) == before) {
		if (now_ms() > end)
			test_late("a counter");
		test_pause(&looks);
	}
}

/* What a few known steps add. Nothing else may run meanwhile on this node. */
static void counting(void)
{
	int s = rds_bound(), d = rds_bound();
	struct name nobody = name_here(4110), zero = name_here(0);
	char buf[100] = "";
	uint64_t q, del, to, from, added, freed, nosock, ping, pong, queued_before;

	send_to(s, d, "w", 1, 0);
	receive(d, buf, 1, 0);
	q = counter("recv_queued");
	del = counter("recv_delivered");
	to = counter("copy_to_user");
	from = counter("copy_from_user");
	added = counter("recv_bytes_added_to_sock");
	freed = counter("recv_bytes_freed_fromsock");
	queued_before = counter("send_queued");
	send_to(s, d, buf, 100, 0);
	send_to(s, d, buf, 20, 0);
	wait_queued(d, 2);
	check_difference("recv_queued", q, 2);
	check_difference("send_queued", queued_before, 2);
	check_difference("copy_from_user", from, 120);
	check_difference("recv_bytes_added_to_sock", added, 120);
	recv(d, buf, 100, MSG_DONTWAIT);
	recv(d, buf, 100, MSG_DONTWAIT);
	check_difference("recv_delivered", del, 2);
	check_difference("copy_to_user", to, 120);
	check_difference("recv_bytes_freed_fromsock", freed, 120);
	nosock = counter("recv_drop_no_sock");
	sendto(s, buf, 5, 0, &nobody.sa, nobody.len);
	wait_counted("recv_drop_no_sock", nosock);
	check_difference("recv_drop_no_sock", nosock, 1);
	ping = counter("recv_ping");
	pong = counter("send_pong");
	sendto(s, "", 0, 0, &zero.sa, zero.len);
	receive(s, buf, 1, 0);
	check_difference("recv_ping", ping, 1);
	check_difference("send_pong", pong, 1);
	close(s);
	close(d);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	fd = rds_socket();
	sources();
	sizing();
	bad_buffers();
	counters();
	counting();
	check("set", "-1 ENOPROTOOPT", "%s", rc(setsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, "abcd", 4)));
	return conf_end();
}
