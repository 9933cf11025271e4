/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* RDS_INFO_SOCKETS and RDS6_INFO_SOCKETS: what a socket looks like in the lists. */
#include "rdsconf.h"

#include <arpa/inet.h>
#include <sys/stat.h>

static char list[4096 * sizeof(struct rds6_info_socket)];

/* Records may be longer than what is known of them here: the step is what the call returns. */
static int records(int option, socklen_t *len)
{
	int fd = rds_socket(), each;

	*len = sizeof(list);
	each = getsockopt(fd, SOL_RDS, option, list, len);
	if (each <= 0)
		conf_die("RDS_INFO_SOCKETS");
	close(fd);
	return each;
}

static unsigned long inode(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		conf_die("fstat");
	return st.st_ino;
}

static const char *entry4(unsigned long inum)
{
	char bound[INET_ADDRSTRLEN], connected[INET_ADDRSTRLEN];
	socklen_t len, at;
	int each = records(RDS_INFO_SOCKETS, &len);

	for (at = 0; at < len; at += each) {
		const struct rds_info_socket *s = (const void *)(list + at);

		if (s->inum != inum)
			continue;
		inet_ntop(AF_INET, &s->bound_addr, bound, sizeof(bound));
		inet_ntop(AF_INET, &s->connected_addr, connected, sizeof(connected));
		return text("snd %u rcv %u %s:%u to %s:%u", s->sndbuf, s->rcvbuf, bound, ntohs(s->bound_port), connected,
			    ntohs(s->connected_port));
	}
	return "absent";
}

static const char *entry6(unsigned long inum)
{
	char bound[INET6_ADDRSTRLEN], connected[INET6_ADDRSTRLEN];
	socklen_t len, at;
	int each = records(RDS6_INFO_SOCKETS, &len);

	for (at = 0; at < len; at += each) {
		const struct rds6_info_socket *s = (const void *)(list + at);

		if (s->inum != inum)
			continue;
		inet_ntop(AF_INET6, &s->bound_addr, bound, sizeof(bound));
		inet_ntop(AF_INET6, &s->connected_addr, connected, sizeof(connected));
		return text("snd %u rcv %u %s:%u to %s:%u", s->sndbuf, s->rcvbuf, bound, ntohs(s->bound_port), connected,
			    ntohs(s->connected_port));
	}
	return "absent";
}

int main(int argc, char **argv)
{
	struct name at, peer;
	unsigned long inum;
	int fd;

	conf_begin(argc, argv);
	fd = rds_socket();
	inum = inode(fd);
	check("unbound-v4-list", "absent", "%s", entry4(inum));
	check("unbound-v6-list", "snd 106496 rcv 106496 :::0 to :::0", "%s", entry6(inum));
	at = name_here(4120);
	if (bind(fd, &at.sa, at.len))
		conf_die("bind");
	check("bound-v4-list", NULL, "%s", entry4(inum));
	check("bound-v6-list", NULL, "%s", entry6(inum));
	peer = conf_v6 ? name_at("2001:db8::7", 4121) : name_at("192.0.2.7", 4121);
	connect(fd, &peer.sa, peer.len);
	check("connected-v4-list", NULL, "%s", entry4(inum));
	check("connected-v6-list", NULL, "%s", entry6(inum));
	rds_bufs(fd, 5000, 6001);
	check("buffers-v4-list", NULL, "%s", entry4(inum));
	check("buffers-v6-list", NULL, "%s", entry6(inum));
	inum = inode(dup(fd));
	close(fd);
	check("dup-keeps-entry", NULL, "%s", entry6(inum));
	closefrom(3);
	check("closed-v6-list", "absent", "%s", entry6(inum));
	return conf_end();
}
