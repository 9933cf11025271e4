/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Socket options of level SOL_RDS: numbers, lengths, pointers; other levels. */
#include "rdsconf.h"

#include <netinet/tcp.h>

static int fd;

static int set(int option, int value, socklen_t len)
{
	int values[2] = { value, 0 };

	return setsockopt(fd, SOL_RDS, option, values, len);
}

static const char *get(int option, socklen_t len)
{
	int value[2] = { -7, -7 };
	int r = getsockopt(fd, SOL_RDS, option, value, &len);

	return r < 0 ? rc(r) : text("%d value %d len %u", r, value[0], len);
}

static void recverr(void)
{
	check("recverr-default", "0 value 0 len 4", "%s", get(RDS_RECVERR, 4));
	check("recverr-1", "0", "%s", rc(set(RDS_RECVERR, 1, 4)));
	check("recverr-is-1", "0 value 1 len 4", "%s", get(RDS_RECVERR, 4));
	check("recverr-77", "0", "%s", rc(set(RDS_RECVERR, 77, 4)));
	check("recverr-77-is-1", "0 value 1 len 4", "%s", get(RDS_RECVERR, 4));
	check("recverr-0", "0", "%s", rc(set(RDS_RECVERR, 0, 4)));
	check("recverr-is-0", "0 value 0 len 4", "%s", get(RDS_RECVERR, 4));
	check("recverr-negative", "0", "%s", rc(set(RDS_RECVERR, -1, 4)));
	check("recverr-negative-is-1", "0 value 1 len 4", "%s", get(RDS_RECVERR, 4));
	check("recverr-len-3", "-1 EINVAL", "%s", rc(set(RDS_RECVERR, 1, 3)));
	check("recverr-len-0", "-1 EINVAL", "%s", rc(set(RDS_RECVERR, 1, 0)));
	check("recverr-len-8", "0", "%s", rc(set(RDS_RECVERR, 0, 8)));
	check("recverr-bad-pointer", "-1 EFAULT", "%s", rc(setsockopt(fd, SOL_RDS, RDS_RECVERR, conf_bad, 4)));
	check("recverr-len-negative", "-1 EINVAL", "%s", rc(set(RDS_RECVERR, 1, (socklen_t)-1)));
	check("recverr-get-len-3", "-1 EINVAL", "%s", get(RDS_RECVERR, 3));
	check("recverr-get-len-8", "0 value 0 len 4", "%s", get(RDS_RECVERR, 8));
	check("recverr-get-len-negative", "0 value 0 len 4", "%s", get(RDS_RECVERR, (socklen_t)-1));
	check("recverr-get-bad-pointer", "-1 EFAULT", "%s",
	      rc(getsockopt(fd, SOL_RDS, RDS_RECVERR, conf_bad, &(socklen_t){ 4 })));
	check("recverr-get-null-len", "-1 EFAULT", "%s", rc(getsockopt(fd, SOL_RDS, RDS_RECVERR, &fd, NULL)));
}

static void monitor(void)
{
	check("monitor-1", "0", "%s", rc(set(RDS_CONG_MONITOR, 1, 4)));
	check("monitor-2", "0", "%s", rc(set(RDS_CONG_MONITOR, 2, 4)));
	check("monitor-len-8", "0", "%s", rc(set(RDS_CONG_MONITOR, 1, 8)));
	check("monitor-0", "0", "%s", rc(set(RDS_CONG_MONITOR, 0, 4)));
	check("monitor-len-3", "-1 EINVAL", "%s", rc(set(RDS_CONG_MONITOR, 1, 3)));
	check("monitor-bad-pointer", "-1 EFAULT", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_CONG_MONITOR, conf_bad, 4)));
	check("monitor-get", "-1 ENOPROTOOPT", "%s", get(RDS_CONG_MONITOR, 4));
	check("monitor-get-len-8", "-1 ENOPROTOOPT", "%s", get(RDS_CONG_MONITOR, 8));
}

static void numbers(void)
{
	static const int none[] = { 0, 4, 9, 11, 12, 13, 28, 100, 9999, 10002, 10009, 10010, 10018, -1 };
	static const int set_only[] = { RDS_CANCEL_SENT_TO, RDS_GET_MR, RDS_FREE_MR, RDS_GET_MR_FOR_DEST };
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(none); i++) {
		check(text("set-%d", none[i]), "-1 ENOPROTOOPT", "%s", rc(set(none[i], 1, 4)));
		check(text("get-%d", none[i]), "-1 ENOPROTOOPT", "%s", get(none[i], 4));
	}
	for (i = 0; i < ARRAY_SIZE(set_only); i++)
		check(text("get-%d", set_only[i]), "-1 ENOPROTOOPT", "%s", get(set_only[i], 4));
	check("set-info", "-1 ENOPROTOOPT", "%s", rc(set(RDS_INFO_COUNTERS, 1, 4)));
}

static void levels(void)
{
	static const int levels[] = {
		IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_IPV6, 255, 275, 277, 9999,
	};
	unsigned i;
	int value;

	for (i = 0; i < ARRAY_SIZE(levels); i++) {
		socklen_t len = 4;

		value = 1;
		check(text("level-%d-set", levels[i]), "-1 ENOPROTOOPT", "%s",
		      rc(setsockopt(fd, levels[i], 1, &value, 4)));
		check(text("level-%d-get", levels[i]), "-1 ENOPROTOOPT", "%s",
		      rc(getsockopt(fd, levels[i], 1, &value, &len)));
	}
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	fd = rds_socket();
	recverr();
	monitor();
	numbers();
	levels();
	close(fd);
	fd = rds_bound();
	check("bound-recverr", "0 value 0 len 4", "%s", get(RDS_RECVERR, 4));
	check("bound-recverr-1", "0", "%s", rc(set(RDS_RECVERR, 1, 4)));
	check("bound-recverr-is-1", "0 value 1 len 4", "%s", get(RDS_RECVERR, 4));
	check("bound-option-8-as-reset", "-1 EOPNOTSUPP", "%s", rc(set(SO_RDS_TRANSPORT, 0, 12)));
	close(fd);
	check("closed", "-1 EBADF", "%s", rc(set(RDS_RECVERR, 1, 4)));
	return conf_end();
}
