/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_rights - ordinary users: one with a umask that keeps that user out, and a second start
 * with a better one; two that share a node (RDS_PRELOAD_SHARE=all), and root with them; a /proc
 * that hides other users' processes.
 */
#include "users.h"

#include <sched.h>
#include <sys/mount.h>

#define ONE 70001
#define TWO 70002
#define MESSAGES 20

static void serve(int said)
{
	struct sockaddr_in at, from;
	int fd = bound(&at);
	char text[8];

	tell(said, &at, sizeof(at));
	for (int i = 0; i < MESSAGES; i++) {
		socklen_t len = sizeof(from);
		struct pollfd p = {.fd = fd, .events = POLLIN};

		check(poll(&p, 1, TEST_COMES) == 1, "question %d does not come", i);
		check(recvfrom(fd, text, sizeof(text), 0, (struct sockaddr *)&from, &len) == 5, "recvfrom");
		check(sendto(fd, text, 5, 0, (struct sockaddr *)&from, len) == 5, "sendto");
	}
}

static void ask(int heard)
{
	struct sockaddr_in at, to;
	int fd = bound(&at);
	char text[8];

	hear(heard, &to, sizeof(to));
	for (int i = 0; i < MESSAGES; i++) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		check(sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, sizeof(to)) == 5, "sendto");
		check(poll(&p, 1, TEST_COMES) == 1, "answer %d does not come", i);
		check(recv(fd, text, sizeof(text), 0) == 5, "recv");
	}
}

static void talk(const char *what, unsigned server, unsigned client, mode_t mask)
{
	pid_t one, other;
	int said[2];

	printf("%s: uid %u and %u, umask %04o\n", what, server, client, (unsigned)mask);
	fflush(stdout);
	check(pipe(said) == 0, "pipe");
	one = runs_as(server, mask, "serve", said[1], -1);
	other = runs_as(client, mask, "ask", said[0], -1);
	close(said[0]);
	close(said[1]);
	finished(other);
	finished(one);
}

static void hidden(void *arg)
{
	(void)arg;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, "hidepid=2")) {
		printf("hidepid was not tried: mount: %s\n", strerror(errno));
		return;
	}
	talk("all, hidepid", ONE, TWO, 022);
	talk("all, hidepid, the other way", TWO, ONE, 022);
}

/*
 * In a pid namespace of its own the new /proc is another one on old kernels, too, so its options
 * are not everybody's.
 */
static void apart(void *arg)
{
	if (unshare(CLONE_NEWPID | CLONE_NEWNS))
		printf("hidepid was not tried: unshare: %s\n", strerror(errno));
	else
		finished(start(hidden, arg));
}

int main(int argc, char **argv)
{
	if (argc == 4) {
		argv[1][0] == 's' ? serve(atoi(argv[2])) : ask(atoi(argv[2]));
		return 0;
	}
	if (geteuid()) {
		printf("SKIP: needs root to become others\n");
		return 0;
	}
	registry_for_all();
	talk("user", ONE, ONE, 0177);
	talk("user", TWO, TWO, 0777);
	talk("user, afterwards", TWO, TWO, 022);
	setenv("RDS_PRELOAD_SHARE", "all", 1);
	talk("all", ONE, 0, 0777);
	talk("all, afterwards", TWO, 0, 022);
	talk("all, afterwards", TWO, ONE, 077);
	finished(start(apart, NULL));
	printf("users, everybody, root, hidden processes\n");
	return 0;
}
