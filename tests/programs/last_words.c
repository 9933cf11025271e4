/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * last_words - as the kernel's RDS tracepoint test (rds_echo): a client on ::1 asks, gets its echo,
 * sends one last message and ends at once.  The kernel has that message on its way by then, so it
 * must arrive.  The client ends in each way in which programs end.  With quick_exit() it sends its
 * only message from a handler, when there is no connection yet.  So do the "late" cases, from
 * handlers that are older than any preloaded library's, and are called last.
 */
#include "program.h"

#define ROUNDS 8

enum leaving { CLOSE_THEN_EXIT, CLOSE_THEN_UNDERSCORE_EXIT, EXIT, QUICK_EXIT, LATE_QUICK_EXIT, LATE_EXIT, LEAVINGS };
static const char *const names[] = {"close and exit", "close and _exit", "exit", "quick_exit", "late, quick_exit", "late, exit"};

struct words {
	int number, last;
	enum leaving how;
};

static int bound6(struct sockaddr_in6 *sin6)
{
	socklen_t len = sizeof(*sin6);
	int fd = socket(PF_RDS, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	check(fd >= 0, "socket");
	memset(sin6, 0, sizeof(*sin6));
	sin6->sin6_family = AF_INET6;
	sin6->sin6_addr = in6addr_loopback;
	check(bind(fd, (struct sockaddr *)sin6, sizeof(*sin6)) == 0, "bind to ::1");
	check(getsockname(fd, (struct sockaddr *)sin6, &len) == 0 && len == sizeof(*sin6), "getsockname");
	check(sin6->sin6_family == AF_INET6 && sin6->sin6_port, "family %d", sin6->sin6_family);
	return fd;
}

static struct {
	struct sockaddr_in6 to;
	struct words words;
	int fd;
} only;

static void say_only(void)
{
	check(sendto(only.fd, &only.words, sizeof(only.words), 0, (struct sockaddr *)&only.to, sizeof(only.to)) ==
		      sizeof(only.words),
	      "only message");
}

static void say_late(void)
{
	if (only.words.how == LATE_QUICK_EXIT)
		say_only();
}

static void say_later(int status, void *arg)
{
	(void)status, (void)arg;
	if (only.words.how == LATE_EXIT && only.words.last)
		say_only();
}

/* Before the constructors of all libraries. */
static void begins(void)
{
	check(at_quick_exit(say_late) == 0 && on_exit(say_later, NULL) == 0, "handlers");
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = begins;

static void client(struct sockaddr_in6 *server, struct words w)
{
	struct sockaddr_in6 me, from;
	socklen_t len = sizeof(from);
	struct words echo;
	int fd = bound6(&me);

	if (w.how >= QUICK_EXIT) {
		w.last = 1;
		only.to = *server;
		only.words = w;
		only.fd = fd;
		if (w.how == LATE_EXIT)
			exit(0);
		check(w.how != QUICK_EXIT || at_quick_exit(say_only) == 0, "at_quick_exit");
		quick_exit(0);
	}
	check(sendto(fd, &w, sizeof(w), 0, (struct sockaddr *)server, sizeof(*server)) == sizeof(w), "first message");
	check(recvfrom(fd, &echo, sizeof(echo), 0, (struct sockaddr *)&from, &len) == sizeof(echo), "echo");
	check(len == sizeof(from) && from.sin6_port == server->sin6_port, "echo from another address");
	check(memcmp(&echo, &w, sizeof(w)) == 0, "echo of %d differs", w.number);
	w.last = 1;
	check(sendto(fd, &w, sizeof(w), 0, (struct sockaddr *)server, sizeof(*server)) == sizeof(w), "last message");
	if (w.how != EXIT)
		close(fd);
	if (w.how == CLOSE_THEN_UNDERSCORE_EXIT)
		_exit(0);
	exit(0);
}

static void receive(int fd, struct words *w, struct sockaddr_in6 *from)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	socklen_t len = sizeof(*from);

	check(poll(&p, 1, TEST_COMES) == 1, "nothing arrived");
	check(recvfrom(fd, w, sizeof(*w), 0, (struct sockaddr *)from, &len) == sizeof(*w), "recvfrom");
	check(len == sizeof(*from) && from->sin6_family == AF_INET6, "sender's address has %u bytes", len);
}

/* The client is a program of its own: it comes with an exec, as the tracepoint test's does. */
static pid_t start_client(const struct sockaddr_in6 *server, int number, enum leaving how)
{
	char port[16], num[16], way[16];
	pid_t pid;

	snprintf(port, sizeof(port), "%u", ntohs(server->sin6_port));
	snprintf(num, sizeof(num), "%d", number);
	snprintf(way, sizeof(way), "%d", (int)how);
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0) {
		execl("/proc/self/exe", "last_words", port, num, way, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void echo(int fd, int number, int how)
{
	struct sockaddr_in6 from;
	struct words w;

	receive(fd, &w, &from);
	check(w.number == number && !w.last, "%s %d: got %d, last %d", names[how], number, w.number, w.last);
	check(sendto(fd, &w, sizeof(w), 0, (struct sockaddr *)&from, sizeof(from)) == sizeof(w), "echo");
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 me, from;
	int fd, how, i;

	if (argc == 4) {
		memset(&me, 0, sizeof(me));
		me.sin6_family = AF_INET6;
		me.sin6_addr = in6addr_loopback;
		me.sin6_port = htons((unsigned short)atoi(argv[1]));
		client(&me, (struct words){.number = atoi(argv[2]), .how = (enum leaving)atoi(argv[3])});
	}
	fd = bound6(&me);
	for (how = 0; how < LEAVINGS; how++) {
		for (i = 0; i < ROUNDS; i++) {
			pid_t pid = start_client(&me, i, (enum leaving)how);
			struct words w;

			if (how < QUICK_EXIT)
				echo(fd, i, how);
			finished(pid); /* it is gone before we look */
			receive(fd, &w, &from);
			check(w.number == i && w.last, "%s %d: got %d, last %d", names[how], i, w.number, w.last);
		}
	}
	close(fd);
	printf("%d last messages from %d ways of leaving\n", ROUNDS * LEAVINGS, LEAVINGS);
	return 0;
}
