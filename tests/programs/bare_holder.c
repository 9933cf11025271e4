/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bare_holder - a program that is not under the preload has a socket, by fork and exec.  It has it
 * alone for a while, makes forbidden calls on it, passes it back, and is killed as the last process
 * that has it.  No message is lost, the program reads no byte, what it sends has no effect and
 * stops no other process from receiving, and then the port is free.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/rds.h>
#include <signal.h>
#include <sys/syscall.h>

static void say(int line, char what)
{
	check(send(line, &what, 1, 0) == 1, "to the other program");
}

static void await(int line, char what)
{
	struct pollfd p = {.fd = line, .events = POLLIN};
	char c = 0;

	check(poll(&p, 1, TEST_COMES) == 1 && recv(line, &c, 1, 0) == 1 && c == what,
	      "'%c' from the other program: '%c'", what, c);
}

static int is_readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1 && p.revents == POLLIN;
}

static void pass(int line, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = "";
	struct iovec iov = {(char[]){'p'}, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	check(sendmsg(line, &msg, 0) == 1, "pass it");
}

static int passed(int line)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))), byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct pollfd p = {.fd = line, .events = POLLIN};
	int fd;

	check(poll(&p, 1, TEST_COMES) == 1 && recvmsg(line, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg), "what is passed");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* A descriptor that it sends there is closed again. */
static void sends_a_descriptor(int fd)
{
	struct pollfd p = {.events = 0};
	int line[2];

	check(pipe(line) == 0, "pipe");
	pass(fd, line[1]);
	close(line[1]);
	p.fd = line[0];
	check(poll(&p, 1, TEST_COMES) == 1 && p.revents == POLLHUP, "somebody keeps what was sent there");
	close(line[0]);
}

/*
 * A process without the library sees no RDS socket.  Whatever it calls fails, and it gets no byte:
 * readable looks like the end of a file.
 */
static void tries(int fd)
{
	struct sockaddr_in sin = loopback(htons(4711));
	int value = 1;
	socklen_t len = sizeof(value);
	char buf[10];

	check(bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1, "bind");
	check(connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1, "connect");
	check(setsockopt(fd, SOL_RDS, RDS_RECVERR, &value, len) == -1, "setsockopt");
	check(getsockopt(fd, SOL_RDS, RDS_RECVERR, &value, &len) == -1, "getsockopt");
	(void)!send(fd, "nobody's", 8, MSG_DONTWAIT); /* goes nowhere */
	(void)!send(fd, "", 0, MSG_DONTWAIT);
	sends_a_descriptor(fd);
	check(is_readable(fd, TEST_COMES), "it is not shown that something is there");
	check(recv(fd, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT) == 0, "bytes to be seen");
	check(read(fd, buf, sizeof(buf)) == 0, "bytes to be read");
	check(recv(fd, buf, sizeof(buf), MSG_DONTWAIT) == -1 && errno == EAGAIN, "something is still there");
}

static void bare(int fd, int line, int native)
{
	check(!getenv("LD_PRELOAD"), "under a preload");
	if (!native)
		tries(fd);
	say(line, 'h');
	await(line, 'p');
	pass(line, fd);
	for (;;)
		pause();
}

static pid_t start_bare(int fd, int line)
{
	const char *preload = getenv("LD_PRELOAD");
	char number[20], other[20];
	int native = !preload || !strstr(preload, "librdspreload");
	pid_t pid = fork();

	check(pid >= 0, "fork");
	if (pid)
		return pid;
	snprintf(number, sizeof(number), "%d", fd);
	snprintf(other, sizeof(other), "%d", line);
	unsetenv("LD_PRELOAD");
	execl("/proc/self/exe", "bare_holder", number, other, native ? "1" : "0", (char *)NULL);
	_exit(127);
}

/*
 * The owner of the socket is stopped.  So it finds two things at once: a packet from a call that
 * was not interposed, and behind it the packet of another process.
 */
static void deafens(void)
{
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	int fd = bound(&name), status;
	pid_t carrier = getpid(), pid = fork();

	check(pid >= 0, "fork");
	if (!pid) {
		alarm(test_alarm(60));
		check(kill(carrier, SIGSTOP) == 0, "stop");
		(void)!syscall(SYS_sendto, fd, "", 0, MSG_DONTWAIT, NULL, 0);
		pid = fork();
		if (!pid) {
			check(test_sleeps(getppid()), "who asks"); /* it waits for the answer */
			kill(carrier, SIGCONT);
			_exit(0);
		}
		status = getsockname(fd, (struct sockaddr *)&name, &len) ? 1 : 0;
		_exit(waitpid(pid, NULL, 0) == pid ? status : 2);
	}
	check(waitpid(pid, &status, 0) == pid && status == 0, "who asks is not heard: %#x", status);
	close(fd);
}

static void expect(int fd, const char *want)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char buf[10] = "";
	ssize_t n;

	do { /* it may say so once for news of congestion */
		check(poll(&p, 1, TEST_COMES) == 1, "no '%s'", want);
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN);
	check(n == (ssize_t)strlen(want) && !memcmp(buf, want, (size_t)n), "'%s' instead of '%s'", buf, want);
}

static void put(int from, const struct sockaddr_in *to, const char *text)
{
	check(sendto(from, text, strlen(text), 0, (const struct sockaddr *)to, sizeof(*to)) == (ssize_t)strlen(text), "sendto");
}

static int taken(const struct sockaddr_in *sin)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0), rc = bind(fd, (const struct sockaddr *)sin, sizeof(*sin));

	check(rc == 0 || errno == EADDRINUSE, "bind");
	close(fd);
	return rc != 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in here, there;
	int from, fd, line[2];
	pid_t pid;

	if (argc == 4)
		bare(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
	deafens();
	check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line) == 0, "socketpair");
	check(fcntl(line[0], F_SETFD, FD_CLOEXEC) == 0, "close-on-exec");
	from = bound(&here);
	check(fcntl(from, F_SETFD, FD_CLOEXEC) == 0, "close-on-exec");
	fd = bound(&there);
	put(from, &there, "one");
	put(from, &there, "two");
	pid = start_bare(fd, line[1]);
	await(line[0], 'h');
	expect(fd, "one");
	check(close(fd) == 0 && taken(&there), "the other program has it");
	put(from, &there, "three");
	say(line[0], 'p');
	fd = passed(line[0]);
	expect(fd, "two");
	expect(fd, "three");
	put(fd, &here, "back");
	expect(from, "back");
	check(close(fd) == 0 && taken(&there), "the other program still has it");
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "kill");
	close(bound_again(&there));
	printf("held, passed and dropped by a program without the preload\n");
	return 0;
}
