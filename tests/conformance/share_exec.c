/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A socket goes through exec: the new program finds it under its number, with its name, options and
 * what lies in its queue, and what comes meanwhile. By fork and exec, vfork and exec, posix_spawn,
 * and exec of the process that made it.
 */
#include "rdsconf.h"

#include <spawn.h>

extern char **environ;

static int s, d;
static char *self;

/* ---- the new program: --child NUMBER NAME, a message is there, another comes ---- */

static int new_program(int fd, const char *name)
{
	struct name from = {.len = sizeof(from.ss)}, own;
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	char buf[20] = "";
	int value = -1;
	long r;

	alarm(test_alarm(60));
	if (fcntl(fd, F_GETFD) < 0) {
		check(text("%s-not-inherited", name), "EBADF", "%s", strerrorname_np(errno));
		return conf_end();
	}
	own = name_of(fd);
	check(text("%s-family", name), NULL, "%d len %u", own.sa.sa_family, own.len);
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &(socklen_t){4});
	check(text("%s-domain", name), text("%d", AF_RDS), "%d", value);
	getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &(socklen_t){4});
	check(text("%s-rcvbuf", name), "60000", "%d", value);
	getsockopt(fd, SOL_RDS, RDS_RECVERR, &value, &(socklen_t){4});
	check(text("%s-recverr", name), "1", "%d", value);
	r = poll(&pfd, 1, TEST_COMES);
	check(text("%s-poll", name), "1 IN", "%ld %s", r, poll_bits(pfd.revents));
	r = recvfrom(fd, buf, sizeof(buf), 0, &from.sa, &from.len);
	check(text("%s-queued", name), "6 before", "%s %.6s", rc(r), buf);
	/* The answer tells that it is here; the next message comes then. */
	check(text("%s-answer", name), "4", "%s", rc(sendto(fd, "here", 4, 0, &from.sa, from.len)));
	r = recv(fd, buf, sizeof(buf), 0);
	check(text("%s-new", name), "5 after", "%s %.5s", rc(r), buf);
	r = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	check(text("%s-empty", name), "-1 EAGAIN", "%s", rc(r));
	return conf_end();
}

/* ---- the old one ---- */

static char *const *arguments(const char *name, int fd)
{
	static char number[20];
	static char *argv[6];

	snprintf(number, sizeof(number), "%d", fd);
	argv[0] = self;
	argv[1] = "--child";
	argv[2] = number;
	argv[3] = (char *)name;
	return argv;
}

static void ready(void)
{
	d = rds_bound();
	rds_bufs(d, 0, 30000);
	setsockopt(d, SOL_RDS, RDS_RECVERR, &(int){1}, 4);
	send_to(s, d, "before", 6, 0);
	if (!wait_message(d))
		conf_die("a message before");
}

/* The parent's part, which keeps its number or has closed it. */
static void play(const char *name, pid_t pid, const struct name *to, int keeps)
{
	char buf[10] = "";

	check(text("%s-is-here", name), "4", "%s", rc(receive(s, buf, 10, 0)));
	sendto(s, "after", 5, 0, &to->sa, to->len);
	check(text("%s-end", name), "exit 0", "%s", end_of_pid(pid));
	if (keeps) {
		check(text("%s-kept-empty", name), "-1 EAGAIN", "%s", rc(recv(d, buf, 10, MSG_DONTWAIT)));
		sendto(s, "mine", 4, 0, &to->sa, to->len);
		check(text("%s-kept", name), "4", "%s", rc(receive(d, buf, 10, 0)));
		close(d);
	}
}

static pid_t fork_and_exec(const char *name)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		execv(self, arguments(name, d));
		_exit(127);
	}
	return pid;
}

static void fork_exec(void)
{
	struct name name;
	pid_t pid;

	ready();
	name = name_of(d);
	pid = fork_and_exec("fork");
	play("fork", pid, &name, 1);
}

static void vfork_exec(void)
{
	char *const *argv;
	struct name name;
	pid_t pid;

	ready();
	name = name_of(d);
	argv = arguments("vfork", d);
	fflush(stdout);
	pid = vfork();
	if (!pid) {
		execv(self, argv);
		_exit(127);
	}
	play("vfork", pid, &name, 1);
}

/* By posix_spawn, under another number. */
static void spawned(void)
{
	posix_spawn_file_actions_t actions;
	struct name name;
	pid_t pid;

	ready();
	name = name_of(d);
	fcntl(d, F_SETFD, FD_CLOEXEC);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, d, 99);
	fflush(stdout);
	errno = posix_spawn(&pid, self, &actions, NULL, arguments("spawn", 99), environ);
	if (errno)
		conf_die("posix_spawn");
	posix_spawn_file_actions_destroy(&actions);
	play("spawn", pid, &name, 1);
}

/* The parent closes its number as soon as the new program is there. */
static void alone(void)
{
	struct name name;
	pid_t pid;

	ready();
	name = name_of(d);
	pid = fork_and_exec("alone");
	close(d);
	play("alone", pid, &name, 0);
}

/*
 * The child makes the socket and takes it through exec itself: the owner becomes another program.
 */
static void same_process(void)
{
	struct other other;
	struct name name;

	if (fork_other(&other)) {
		ready();
		name = name_of(d);
		if (write(other.wr, &name, sizeof(name)) != sizeof(name))
			_exit(126);
		hear(&other);
		execv(self, arguments("same", d));
		_exit(127);
	}
	if (read(other.rd, &name, sizeof(name)) != sizeof(name))
		conf_die("the name of a child's socket");
	say(&other);
	play("same", other.pid, &name, 0);
	close(other.rd);
	close(other.wr);
}

static void close_on_exec(void)
{
	int fd = rds_socket();
	struct name name;
	pid_t pid;

	d = rds_bound();
	name = name_of(d);
	fcntl(d, F_SETFD, FD_CLOEXEC);
	pid = fork_and_exec("cloexec");
	check("cloexec-end", "exit 0", "%s", end_of_pid(pid));
	check("cloexec-still-here", "-1 EADDRINUSE", "%s", rc(bind(fd, &name.sa, name.len)));
	close(d);
	check("cloexec-closed", "0", "%s", rc(bind(fd, &name.sa, name.len)));
	close(fd);
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc > 3 && !strcmp(argv[1], "--child")) {
		setvbuf(stdout, NULL, _IOLBF, 0);
		return new_program(atoi(argv[2]), argv[3]);
	}
	conf_begin(argc, argv);
	s = rds_bound();
	fork_exec();
	vfork_exec();
	spawned();
	alone();
	same_process();
	close_on_exec();
	return conf_end();
}
