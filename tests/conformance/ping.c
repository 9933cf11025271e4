/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Port 0 answers every message with an empty one, without a program behind it. */
#include "rdsconf.h"

static char data[65536];

static const char *pong(int fd)
{
	struct name from = { .len = sizeof(from.ss) };
	long r;

	if (!wait_message(fd))
		return rc(-1);
	r = recvfrom(fd, data, sizeof(data), MSG_DONTWAIT, &from.sa, &from.len);
	return text("%s %s", rc(r), who(&from));
}

static void one(const char *name, int fd, size_t len)
{
	struct name to = name_here(0);

	check(text("%s-send", name), text("%zu", len), "%s", rc(sendto(fd, data, len, 0, &to.sa, to.len)));
	check(text("%s-pong", name), NULL, "%s", pong(fd));
	check(text("%s-only-one", name), "-1 EAGAIN", "%s", rc(recv(fd, data, 1, MSG_DONTWAIT)));
}

/*
 * As rds-ping does it: eight sockets, a zero-length message each, replies told apart by the socket.
 */
static void eight(void)
{
	struct name to = name_here(0);
	struct pollfd pfd[8];
	int i, answered = 0, more = 0;

	for (i = 0; i < 8; i++) {
		pfd[i] = (struct pollfd){ .fd = rds_bound(), .events = POLLIN };
		settle(pfd[i].fd);
	}
	for (i = 0; i < 8; i += 2)
		sendto(pfd[i].fd, NULL, 0, 0, &to.sa, to.len);
	for (i = 0; i < 8; i += 2)
		answered += wait_message(pfd[i].fd) && recvfrom(pfd[i].fd, NULL, 0, MSG_DONTWAIT, NULL, NULL) == 0;
	for (i = 0; i < 8; i++)
		more += recv(pfd[i].fd, data, 1, MSG_DONTWAIT) != -1;
	check("eight-sockets", "answered 4 more 0", "answered %d more %d", answered, more);
	for (i = 0; i < 8; i++)
		close(pfd[i].fd);
}

static void many(int fd)
{
	struct name to = name_here(0);
	int i, got = 0;

	for (i = 0; i < 50; i++)
		sendto(fd, "", 0, 0, &to.sa, to.len);
	for (i = 0; i < 50; i++)
		got += receive(fd, data, 1, 0) == 0;
	check("fifty", "50", "%d", got);
	check("fifty-no-more", "-1 EAGAIN", "%s", rc(recv(fd, data, 1, MSG_DONTWAIT)));
}

int main(int argc, char **argv)
{
	struct name to;
	int fd;

	conf_begin(argc, argv);
	fd = rds_bound();
	one("empty", fd, 0);
	one("payload", fd, 100);
	one("large-payload", fd, sizeof(data));
	to = name_here(0);
	check("connect-to-port-0", "0", "%s", rc(connect(fd, &to.sa, to.len)));
	check("send-to-peer", "0", "%s", rc(send(fd, "", 0, MSG_DONTWAIT)));
	check("pong-to-peer", NULL, "%s", pong(fd));
	eight();
	many(fd);
	return conf_end();
}
