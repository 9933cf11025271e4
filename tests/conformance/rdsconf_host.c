/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Helpers of the conformance programs that depend on whose sockets these are, and on which host:
 * the linker may put others in front of them (two/far.h), which it can do between files only; see
 * rdsconf.h.
 */
#include "rdsconf.h"

#include "../sharing/held.h"

int rds_socket(void)
{
	const char *held = getenv("CONFORMANCE_HELD");
	int fd = held ? held_socket(SOCK_SEQPACKET, !strcmp(held, "apart")) : socket(AF_RDS, SOCK_SEQPACKET, 0);

	if (fd < 0)
		conf_die("socket");
	return fd;
}

void rds_next_beside(void)
{
	const char *held = getenv("CONFORMANCE_HELD");
	int i;

	for (i = 1; held && !strcmp(held, "apart") && i < HELD_KEEPERS; i++)
		close(rds_socket());
}

uint64_t counter(const char *name)
{
	static struct rds_info_counter list[200];
	socklen_t len = sizeof(list);
	int fd = socket(AF_RDS, SOCK_SEQPACKET, 0);
	unsigned i;

	if (fd < 0 || getsockopt(fd, SOL_RDS, RDS_INFO_COUNTERS, list, &len) != 40)
		conf_die("RDS_INFO_COUNTERS");
	close(fd);
	for (i = 0; i < len / 40; i++)
		if (!strncmp(list[i].name, name, 32))
			return list[i].value;
	return -1;
}
