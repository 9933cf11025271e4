/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Between two hosts the news that a port is congested, or is not any more, takes a while, and
 * programs that were made for one host count on it at once.  So the calls after which they do come
 * back when the news is there: a message that is sent after it, on the same connection, has come.
 * In both directions, between two sockets that the program does not know.
 *
 * These are: a wait for messages in a queue, and a receive after a refusal.
 */
#include "far.h"

bool __real_wait_queued(int fd, int n);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool inside; /* what is sent and received here does not count */
static bool refused;	     /* the program's last send was */
static int here = -1, there = -1;

static int hidden(int fd)
{
	struct name name = name_here(0);

	if (fd < 0 || bind(fd, &name.sa, name.len))
		far_die("a socket for news");
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	return fd;
}

static void open_both(void)
{
	here = hidden(socket(AF_RDS, SOCK_SEQPACKET, 0));
	there = hidden(far_new(far_do(far_make(FAR_SOCKET, AF_RDS, SOCK_SEQPACKET, 0, 0, 0, 0))));
}

static void cross(int from, int to)
{
	char byte;

	if (send_to(from, to, "n", 1, 0) != 1 || recv(to, &byte, 1, 0) != 1)
		far_die("no news");
}

static void until_news(void)
{
	int saved = errno;

	pthread_mutex_lock(&lock);
	inside = true;
	if (here < 0)
		open_both();
	cross(here, there);
	cross(there, here);
	inside = false;
	pthread_mutex_unlock(&lock);
	errno = saved;
}

long far_sent(long result)
{
	if (!inside)
		__atomic_store_n(&refused, result < 0 && errno == ENOBUFS, __ATOMIC_RELAXED);
	return result;
}

long far_received(long result, int flags)
{
	if (!inside && result >= 0 && !(flags & MSG_PEEK) && __atomic_load_n(&refused, __ATOMIC_RELAXED))
		until_news();
	return result;
}

bool __wrap_wait_queued(int fd, int n)
{
	bool good = __real_wait_queued(fd, n);

	until_news();
	return good;
}
