/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node_words.c - what the numbers of a node mean, in words (node.h).
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "rdsrun/node.h"

void node_clean(const uint8_t *from, size_t size, char *to)
{
	size_t i;

	for (i = 0; i < size && from[i]; i++)
		to[i] = from[i] < 0x80 && isprint(from[i]) ? (char)from[i] : '?';
	to[i] = '\0';
}

void node_address(const void *in6, char text[NODE_ADDRESS])
{
	const unsigned char *b = in6;
	struct in6_addr ip;

	memcpy(&ip, in6, sizeof(ip));
	if (IN6_IS_ADDR_V4MAPPED(&ip))
		inet_ntop(AF_INET, b + 12, text, NODE_ADDRESS);
	else
		inet_ntop(AF_INET6, &ip, text, NODE_ADDRESS);
}

void node_address_port(const void *in6, uint16_t be_port, char text[NODE_ADDRESS])
{
	char ip[NODE_ADDRESS];

	node_address(in6, ip);
	if (!strcmp(ip, "::") && !be_port)
		*text = '\0';
	else
		snprintf(text, NODE_ADDRESS, strchr(ip, ':') ? "[%.60s]:%u" : "%.60s:%u", ip, ntohs(be_port));
}

static const struct {
	const char *word, *text;
} answers[RDS_PRELOAD_ANSWERS] = {
	[RDS_PRELOAD_ANSWERED] = {"answered", ""},
	[RDS_PRELOAD_UNBOUND] = {"unbound", "has bound no socket"},
	[RDS_PRELOAD_SILENT] = {"silent", "does not answer in time"},
	[RDS_PRELOAD_BUSY] = {"busy", "is asked by too many at once"},
	[RDS_PRELOAD_OTHER_USER] = {"other-user", "is another user's, and not asked"},
	[RDS_PRELOAD_OTHER_VERSION] = {"other-version", "has another version of the library, which cannot be asked"},
	[RDS_PRELOAD_OLDER_VERSION] = {"older-version", "does not know the question: an older version of the library"},
	[RDS_PRELOAD_NONSENSE] = {"nonsense", "has sent an invalid answer"},
	[RDS_PRELOAD_NO_ROOM] = {"no-room", "could not be asked: no memory, or no descriptors"},
};

/* That a process is stopped is the kernel's word, and explains why it is silent. */
static bool is_stopped(const struct node_process *p)
{
	return (p->told->answer == RDS_PRELOAD_SILENT || p->told->answer == RDS_PRELOAD_BUSY) &&
	       (p->facts.state == 'T' || p->facts.state == 't');
}

const char *node_answer(const struct node_process *p)
{
	if (is_stopped(p))
		return "stopped";
	return p->told->answer < RDS_PRELOAD_ANSWERS ? answers[p->told->answer].word : "unknown";
}

const char *node_answer_text(const struct node_process *p)
{
	if (is_stopped(p))
		return "is stopped";
	return p->told->answer < RDS_PRELOAD_ANSWERS ? answers[p->told->answer].text : "has not answered";
}

const char *node_conn_state(const struct rds_preload_info_connection *c)
{
	if (c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTED)
		return "up";
	if (!memcmp(c->transport, "none", 5))
		return "no-route";
	return c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTING ? "connecting" : "down";
}

int64_t node_conn_since(const struct rds_preload_info_connection *c)
{
	if (c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTED)
		return c->connect_time;
	return c->reset_time ? c->reset_time : c->attempt_time;
}

/* The library gives these, in the numbers of Oracle's rds-info (engine/conn/conn.h). */
const char *node_conn_error(const struct rds_preload_info_connection *c)
{
	switch (c->reason) {
	case 0:
		return "";
	case 5:
		return "cannot connect";
	case 6:
		return "the peer was silent for too long";
	case 7:
		return "no answer to the attempt to connect";
	case 13:
		return "both sides connected at the same time";
	case 22:
		return "the host cannot be reached";
	case 24:
		return "refused";
	case 26:
		return "the peer has closed it";
	case 31:
		return "the peer has broken the protocol";
	}
	return "another reason";
}
