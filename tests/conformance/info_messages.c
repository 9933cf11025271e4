/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * RDS_INFO_RECV_MESSAGES, _SEND_MESSAGES, _CONNECTIONS: what queued messages look like in the
 * lists.
 */
#include "rdsconf.h"

#include <arpa/inet.h>

static struct rds6_info_message list6[4096];
static struct rds_info_message list4[4096];

static char *append(char *out, const char *part)
{
	strcat(out, part);
	return out;
}

/*
 * Messages of one source from or to a port, in their order: length, addresses, ports by their
 * labels.
 */
static const char *messages6(int fd, int option, int port_of)
{
	struct name name = name_of(port_of);
	socklen_t len = sizeof(list6);
	char out[240] = "", l[INET6_ADDRSTRLEN], f[INET6_ADDRSTRLEN];
	unsigned i;

	if (getsockopt(fd, SOL_RDS, option, list6, &len) < 0)
		return rc(-1);
	for (i = 0; i < len / sizeof(list6[0]); i++) {
		const struct rds6_info_message *m = &list6[i];

		if (ntohs(m->lport) != name_port(&name))
			continue;
		inet_ntop(AF_INET6, &m->laddr, l, sizeof(l));
		inet_ntop(AF_INET6, &m->faddr, f, sizeof(f));
		if (strlen(out) < 150)
			append(out, text("[%u %s > %s flags %u tos %u]", m->len, f, l, m->flags, m->tos));
	}
	return text("%s", *out ? out : "none");
}

/* Linux 6.1 shows no addresses of unsent messages here. */
static const char *messages4(int fd, int option, int port_of)
{
	struct name name = name_of(port_of);
	socklen_t len = sizeof(list4);
	char out[240] = "", l[INET6_ADDRSTRLEN], f[INET6_ADDRSTRLEN];
	unsigned i;

	if (getsockopt(fd, SOL_RDS, option, list4, &len) < 0)
		return rc(-1);
	for (i = 0; i < len / sizeof(list4[0]); i++) {
		const struct rds_info_message *m = &list4[i];

		if (ntohs(m->lport) != name_port(&name))
			continue;
		inet_ntop(AF_INET, &m->laddr, l, sizeof(l));
		inet_ntop(AF_INET, &m->faddr, f, sizeof(f));
		if (strlen(out) < 150)
			append(out, option == RDS_INFO_SEND_MESSAGES ? text("[%u]", m->len) :
				    text("[%u %s > %s flags %u tos %u]", m->len, f, l, m->flags, m->tos));
	}
	return text("%s", *out ? out : "none");
}

static void received(void)
{
	int s = rds_bound(), d = rds_bound();
	char buf[100] = "";

	check("recv-list-empty", "none", "%s", messages6(s, RDS6_INFO_RECV_MESSAGES, d));
	send_to(s, d, buf, 11, 0);
	send_to(s, d, buf, 0, 0);
	send_to(s, d, buf, 33, 0);
	wait_queued(d, 3);
	check("recv-list6", NULL, "%s", messages6(s, RDS6_INFO_RECV_MESSAGES, d));
	check("recv-list4", NULL, "%s", messages4(s, RDS_INFO_RECV_MESSAGES, d));
	recv(d, buf, 100, MSG_DONTWAIT);
	check("recv-list6-one-taken", NULL, "%s", messages6(s, RDS6_INFO_RECV_MESSAGES, d));
	recv(d, buf, 100, MSG_DONTWAIT | MSG_PEEK);
	check("recv-list4-after-peek", NULL, "%s", messages4(s, RDS_INFO_RECV_MESSAGES, d));
	close(d);
	d = rds_bound();
	check("recv-list-new-socket", "none", "%s", messages6(s, RDS6_INFO_RECV_MESSAGES, d));
	close(s);
	close(d);
}

static void unsent(void)
{
	struct name far = name_far(4130);
	int s = rds_bound();

	sendto(s, "12345", 5, MSG_DONTWAIT, &far.sa, far.len);
	sendto(s, "123", 3, MSG_DONTWAIT, &far.sa, far.len);
	check("send-list6", NULL, "%s", messages6(s, RDS6_INFO_SEND_MESSAGES, s));
	check("send-list4", NULL, "%s", messages4(s, RDS_INFO_SEND_MESSAGES, s));
	check("retrans-list6", "none", "%s", messages6(s, RDS6_INFO_RETRANS_MESSAGES, s));
	if (setsockopt(s, SOL_RDS, RDS_CANCEL_SENT_TO, &far.ss, far.len))
		conf_die("cancel");
	check("send-list6-canceled", "none", "%s", messages6(s, RDS6_INFO_SEND_MESSAGES, s));
	close(s);
}

/* The connection of an address with itself, or between two hosts with the other one's. */
static void connection(void)
{
	static struct rds_info_connection list[4096];
	socklen_t len = sizeof(list);
	int s = rds_bound(), d = rds_bound();
	struct name here = name_of(s), there = name_of(d);
	unsigned i, found = 0, up = 0, advanced = 0, terminated = 0;
	char byte;

	send_to(s, d, "x", 1, 0);
	receive(d, &byte, 1, 0);
	check("connections", "42", "%s", rc(getsockopt(s, SOL_RDS, RDS_INFO_CONNECTIONS, list, &len)));
	for (i = 0; i < len / sizeof(list[0]); i++) {
		if (list[i].laddr != here.in.sin_addr.s_addr || list[i].faddr != there.in.sin_addr.s_addr)
			continue;
		found++;
		up += !!(list[i].flags & 4);
		advanced += list[i].next_tx_seq > 1;
		terminated += list[i].transport[15] == 0;
	}
	check("connection-to-itself", NULL, "found %d up %d advanced %d name ends %d", found > 0, up > 0,
	      advanced > 0, terminated == found);
	close(s);
	close(d);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	received();
	if (!conf_loop)
		unsent();
	if (!conf_v6)
		connection();
	return conf_end();
}
