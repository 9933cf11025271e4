/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * namelen - as LTP's recvmsg03: two processes after a fork, both on 127.0.0.1.  recvmsg must store
 * the exact length of the sender's address for any room that it is given, and write no byte behind
 * that address.
 */
#include "program.h"

#include <stdint.h>

static int to_receiver[2], to_sender[2];

static void sender(void *arg)
{
	struct sockaddr_in me, peer;
	char text[] = "exactly one message";
	struct iovec iov = {text, sizeof(text)};
	struct msghdr msg = {.msg_name = &peer, .msg_namelen = sizeof(peer), .msg_iov = &iov, .msg_iovlen = 1};
	int fd = bound(&me), i;

	(void)arg;
	hear(to_sender[0], &peer, sizeof(peer));
	tell(to_receiver[1], &me, sizeof(me));
	for (i = 0; i < 3; i++)
		check(sendmsg(fd, &msg, 0) == (ssize_t)sizeof(text), "sendmsg %d", i);
	hear(to_sender[0], &i, sizeof(i)); /* stay until all has been read */
	close(fd);
}

static void receive(int fd, const struct sockaddr_in *from, socklen_t room)
{
	uint8_t name[64];
	char text[64];
	struct iovec iov = {text, sizeof(text)};
	struct msghdr msg = {.msg_name = name, .msg_namelen = room, .msg_iov = &iov, .msg_iovlen = 1, .msg_flags = -1};
	const struct sockaddr_in *sin = (void *)name;
	size_t i;

	memset(name, 0xee, sizeof(name));
	check(recvmsg(fd, &msg, 0) == (ssize_t)sizeof("exactly one message"), "recvmsg");
	check(strcmp(text, "exactly one message") == 0, "text");
	check(msg.msg_namelen == sizeof(struct sockaddr_in), "namelen %u of room %u", msg.msg_namelen, room);
	check(msg.msg_flags == 0, "flags %#x", (unsigned)msg.msg_flags);
	check(sin->sin_family == AF_INET && sin->sin_port == from->sin_port &&
		      sin->sin_addr.s_addr == htonl(INADDR_LOOPBACK),
	      "address");
	for (i = sizeof(*sin); i < sizeof(name); i++)
		check(name[i] == 0xee, "byte %zu behind the address was written", i);
}

int main(void)
{
	struct sockaddr_in me, peer;
	int fd, done = 1;
	pid_t pid;

	check(pipe(to_receiver) == 0 && pipe(to_sender) == 0, "pipe");
	pid = start(sender, NULL);
	fd = bound(&me);
	tell(to_sender[1], &me, sizeof(me));
	hear(to_receiver[0], &peer, sizeof(peer));
	receive(fd, &peer, sizeof(struct sockaddr_in));
	receive(fd, &peer, sizeof(struct sockaddr_in) + 16);
	receive(fd, &peer, sizeof(struct sockaddr_storage) / 2);
	tell(to_sender[1], &done, sizeof(done));
	finished(pid);
	puts("3 messages, exact name lengths");
	return 0;
}
