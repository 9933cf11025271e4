/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Connections between the two sides of a far socket or a twin; see far.h. */
#include "far.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>

void far_die(const char *what)
{
	printf("setup: between two hosts: %s: %s\n", what, strerrorname_np(errno));
	fflush(stdout);
	_exit(1);
}

bool far_write(int fd, const void *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data = (const char *)data + n;
		len -= n;
	}
	return true;
}

bool far_read(int fd, void *data, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, data, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data = (char *)data + n;
		len -= n;
	}
	return true;
}

static struct sockaddr_in at(const char *address, unsigned port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	if (inet_pton(AF_INET, address, &in.sin_addr) != 1)
		far_die(address);
	return in;
}

/* Small questions and answers, which must not wait for each other. */
static int at_once(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

int far_dial(const char *address, unsigned port)
{
	struct sockaddr_in to = at(address, port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		close(fd);
		return -1;
	}
	return at_once(fd);
}

int far_listen(const char *address, unsigned *port)
{
	struct sockaddr_in in = at(address, *port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	socklen_t len = sizeof(in);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, (struct sockaddr *)&in, sizeof(in)) || listen(fd, 64) ||
	    getsockname(fd, (struct sockaddr *)&in, &len))
		far_die("listen");
	*port = ntohs(in.sin_port);
	return fd;
}

int far_accept(int listener)
{
	int fd;

	do
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? fd : at_once(fd);
}

const char *far_agent(void)
{
	const char *address = getenv("CONFORMANCE_AGENT");

	if (!address)
		far_die("CONFORMANCE_AGENT");
	return address;
}

int far_begin(enum far_kind kind, const char *words, size_t len, unsigned *port)
{
	struct far_start start = {kind, len};
	int fd = far_dial(far_agent(), FAR_PORT);

	if (fd < 0 || !far_write(fd, &start, sizeof(start)) || !far_write(fd, words, len) ||
	    !far_read(fd, port, sizeof(*port)))
		far_die("no agent");
	return fd;
}
