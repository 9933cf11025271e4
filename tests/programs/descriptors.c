/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * descriptors - the effect of RDS on a program's descriptor table.  In the kernel: only its
 * sockets.  Processes that send to the program cost it no descriptor.  With no number left it still
 * receives, answers and wakes.  A pipe that it closes is closed; its record locks stay its own;
 * children inherit no connection.  Messages that wait on a socket that a child has as well are
 * still there when the program has ended without a number left.
 */
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define CLIENTS 12
#define ROUNDS 40

static unsigned entries(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	check(d, "/proc/self/fd");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

struct client {
	struct sockaddr_in server;
	int bound, go, ready; /* pipes */
};

/* One message; then, when told, questions that are answered: asleep for each answer. */
static void client(void *arg)
{
	struct client *c = arg;
	struct sockaddr_in me;
	int fd, i, n;
	char b;

	check(read(c->bound, &b, 1) == 0, "bound");
	fd = bound(&me);
	check(sendto(fd, "hello", 5, 0, (struct sockaddr *)&c->server, sizeof(me)) == 5, "hello");
	tell(c->ready, "", 1);
	check(read(c->go, &b, 1) == 0, "go");
	for (i = 0; i < ROUNDS; i++) {
		check(sendto(fd, &i, sizeof(i), 0, (struct sockaddr *)&c->server, sizeof(me)) == sizeof(i), "question");
		check(recv(fd, &n, sizeof(n), 0) == sizeof(n) && n == i, "answer");
	}
}

static void few(void)
{
	struct rlimit rl;

	check(getrlimit(RLIMIT_NOFILE, &rl) == 0, "getrlimit");
	rl.rlim_cur = 256;
	check(setrlimit(RLIMIT_NOFILE, &rl) == 0, "setrlimit");
}

static void use_up(void)
{
	few();
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	check(errno == EMFILE, "open");
}

static void serve(int fd)
{
	struct sockaddr_in from;
	socklen_t len;
	int left = CLIENTS * ROUNDS, n;

	for (; left; left--) {
		len = sizeof(from);
		check(recvfrom(fd, &n, sizeof(n), 0, (struct sockaddr *)&from, &len) == sizeof(n), "question");
		usleep(left % 8 ? 0 : 300); /* the one who asks is asleep by now */
		check(sendto(fd, &n, sizeof(n), 0, (struct sockaddr *)&from, len) == sizeof(n), "answer");
	}
}

static void peers(bool shared)
{
	struct client c;
	pid_t pids[CLIENTS];
	int is_bound[2], go[2], ready[2], i, fd;
	unsigned before, after;
	char text[8];

	check(pipe(is_bound) == 0 && pipe(go) == 0 && pipe(ready) == 0, "pipe");
	c.bound = is_bound[0];
	c.go = go[0];
	c.ready = ready[1];
	/* bound below, so that the children come before the connections */
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(fd >= 0, "socket");
	close(fd);
	c.server = loopback(htons(22971));
	for (i = 0; i < CLIENTS; i++) {
		fflush(NULL);
		pids[i] = fork();
		check(pids[i] >= 0, "fork");
		if (!pids[i]) {
			close(is_bound[1]);
			close(go[1]);
			client(&c);
			exit(0);
		}
	}
	close(go[0]);
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(bind(fd, (struct sockaddr *)&c.server, sizeof(c.server)) == 0, "bind");
	close(is_bound[1]);
	before = entries();
	for (i = 0; i < CLIENTS; i++) {
		hear(ready[0], text, 1);
		check(recv(fd, text, sizeof(text), 0) == 5, "hello");
	}
	after = entries();
	/* One or the other may have had to be woken, which costs two. */
	check(shared || after < before + CLIENTS, "%u descriptors with %d peers, %u without", after, CLIENTS, before);
	use_up();
	close(go[1]);
	serve(fd);
	for (i = 0; i < CLIENTS; i++)
		finished(pids[i]);
}

static void pipes_and_locks(void *arg)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	FILE *file = tmpfile();
	struct sockaddr_in at;
	int fds[2], fd, status;
	struct pollfd p;
	pid_t pid;

	(void)arg;
	check(file && pipe(fds) == 0, "files");
	check(fcntl(fileno(file), F_SETLK, &fl) == 0, "lock");
	fd = bound(&at); /* the library begins in earnest */
	close(fds[1]);
	p = (struct pollfd){.fd = fds[0], .events = POLLIN};
	check(poll(&p, 1, TEST_COMES) == 1 && p.revents == POLLHUP, "a pipe is held open");
	pid = fork();
	check(pid >= 0, "fork");
	if (!pid)
		_exit(fcntl(fileno(file), F_SETLK, &fl) != -1);
	check(waitpid(pid, &status, 0) == pid && status == 0, "the lock is gone");
	close(fd);
}

/* Has the socket when its parent has ended. */
static void heir(int fd, pid_t parent, int done)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c, next = 'a';

	while (getppid() == parent)
		usleep(1000);
	while (next < 'f') {
		check(poll(&p, 1, TEST_COMES) == 1, "'%c' is lost", next);
		if (recv(fd, &c, 1, MSG_DONTWAIT) == 1)
			check(c == next++, "'%c'", c);
	}
	tell(done, "", 1);
	_exit(0);
}

static void ends_without_a_number(void *done)
{
	struct sockaddr_in me, other;
	struct pollfd p = {.events = POLLIN};
	pid_t self = getpid();
	int fd, from;
	char c;

	few(); /* first: numbers beyond the limit would be of no use */
	fd = bound(&me);
	from = bound(&other);
	if (!fork())
		heir(fd, self, *(int *)done);
	for (c = 'a'; c < 'f'; c++)
		check(sendto(from, &c, 1, 0, (struct sockaddr *)&me, sizeof(me)) == 1, "sendto");
	p.fd = fd;
	check(poll(&p, 1, TEST_COMES) == 1, "no message");
	use_up();
	exit(0);
}

static void left_without_a_number(void)
{
	int done[2];
	char c;

	check(pipe(done) == 0, "pipe");
	/* the next owner's end is seen here */
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "prctl");
	finished(start(ends_without_a_number, &done[1]));
	close(done[1]);
	hear(done[0], &c, 1);
	check(wait(NULL) > 0, "wait");
	close(done[0]);
}

int main(void)
{
	const char *table = getenv("RDS_PRELOAD_HELPER_FDS");

	finished(start(pipes_and_locks, NULL));
	left_without_a_number();
	peers(table && strcmp(table, "shared") == 0);
	printf("%d peers, no number left, a pipe, a lock\n", CLIENTS);
	return 0;
}
