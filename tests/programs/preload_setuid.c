/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_setuid - a service gives up its user, or its group, and the process that goes on with the
 * socket is not the one that bound it: a forked child, or another program image.  New peers reach
 * it, it reaches new peers, and rds-info shows it, as if it had bound the socket itself.  A process
 * of another user that was only passed the descriptor gets nothing else, and cannot go on alone.
 *
 * Each case is a program of its own, because the library reads its options when it is loaded.
 */
#include "users.h"

#include <stdbool.h>

#define USER 70011
#define SOL_RDS 276
#define RECEIVED 10005
#define SOCKETS 10006

static void become(void)
{
	check(setgid(USER) == 0 && setuid(USER) == 0, "setuid");
}

/* ---- peers ---- */

static void ask(int fd, const struct sockaddr_in *to)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[8];

	check(sendto(fd, "hello", 5, 0, (const struct sockaddr *)to, sizeof(*to)) == 5, "sendto");
	check(poll(&p, 1, TEST_COMES) == 1, "no answer comes");
	check(recv(fd, text, sizeof(text), 0) == 5, "recv");
}

static void answer(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char text[8];

	check(poll(&p, 1, TEST_COMES) == 1, "no question comes");
	check(recvfrom(fd, text, sizeof(text), 0, (struct sockaddr *)&from, &len) == 5, "recvfrom");
	check(sendto(fd, text, 5, 0, (struct sockaddr *)&from, len) == 5, "sendto");
}

static void asks(void *to)
{
	struct sockaddr_in at;

	ask(bound(&at), to);
}

static void answers(void *to)
{
	struct sockaddr_in at;
	int fd = bound(&at);

	tell(*(int *)to, &at, sizeof(at));
	answer(fd);
}

/* What rds-info shows for that port: the number in that place of its record; 0: nothing. */
static int shown(int fd, int option, unsigned at, unsigned short port, unsigned number)
{
	unsigned char *out = NULL, *rec;
	socklen_t len = 0;
	int each, found = 0;

	while ((each = getsockopt(fd, SOL_RDS, option, out, &len)) < 0) {
		check(errno == ENOSPC, "option %d", option);
		out = realloc(out, len);
	}
	for (rec = out; rec < out + len; rec += each)
		if (!memcmp(rec + at, &port, sizeof(port)))
			memcpy(&found, rec + number, sizeof(found));
	free(out);
	return found;
}

/* The process that has that port. */
static int who_has(int fd, unsigned short port)
{
	return shown(fd, SOCKETS, 12, port, 28);
}

/* The length of a message that lies unread at that port: its process was asked. */
static int unread(int fd, unsigned short port)
{
	return shown(fd, RECEIVED, 20, port, 8);
}

/* ---- the heir, and what others see of it ---- */

/* Says at once that the socket is lost, before a peer waits for it. */
static void usable(int fd)
{
	char c;

	check(recv(fd, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "the socket is lost");
}

static void go_on(int fd, int up, int down, bool own_first)
{
	struct sockaddr_in at, own, peer;
	socklen_t len = sizeof(at);
	int mine = own_first ? bound(&own) : -1;
	pid_t me = getpid();

	alarm(test_alarm(60));
	usable(fd);
	check(getsockname(fd, (struct sockaddr *)&at, &len) == 0, "getsockname");
	tell(up, &at, sizeof(at));
	answer(fd);
	hear(down, &peer, sizeof(peer));
	check(who_has(fd, peer.sin_port) > 0, "rds-info does not show the peer");
	ask(fd, &peer);
	mine = own_first ? mine : bound(&own);
	tell(up, &own, sizeof(own));
	answer(mine);
	tell(up, &me, sizeof(me));
	hear(down, &peer, sizeof(peer));
	check(sendto(fd, "unread", 6, 0, (struct sockaddr *)&peer, sizeof(peer)) == 6, "sendto");
	test_until(unread(fd, peer.sin_port) == 6);
	tell(up, &me, sizeof(me));
	hear(down, &me, sizeof(me));
}

static void watch(int up, int down)
{
	struct sockaddr_in at, own, any;
	pid_t pid, peer;
	int fd;

	hear(up, &at, sizeof(at));
	finished(start(asks, &at));
	peer = start(answers, &down);
	hear(up, &own, sizeof(own));
	finished(peer);
	finished(start(asks, &own));
	hear(up, &pid, sizeof(pid));
	fd = bound(&any);
	check(who_has(fd, at.sin_port) == pid && who_has(fd, own.sin_port) == pid, "rds-info shows %d and %d, not %d",
	      who_has(fd, at.sin_port), who_has(fd, own.sin_port), (int)pid);
	tell(down, &any, sizeof(any));
	check(sendto(fd, "unread", 6, 0, (struct sockaddr *)&own, sizeof(own)) == 6, "sendto");
	test_until(unread(fd, own.sin_port) == 6);
	hear(up, &pid, sizeof(pid));
	tell(down, &pid, sizeof(pid));
}

/* ---- the ways there ---- */

/* This program, in that role. */
static void image(char *name, int a, int b, int c)
{
	char number[3][16], *argv[] = {self, name, number[0], number[1], number[2], NULL};

	snprintf(number[0], sizeof(number[0]), "%d", a);
	snprintf(number[1], sizeof(number[1]), "%d", b);
	snprintf(number[2], sizeof(number[2]), "%d", c);
	execv(self, argv);
	program_fail(__FILE__, __LINE__, "execv");
}

static void by_daemon(int up, int down, bool own_first)
{
	struct sockaddr_in at;
	int fd = bound(&at);

	check(daemon(1, 1) == 0, "daemon");
	become();
	go_on(fd, up, down, own_first);
}

/* Nobody has the writing end any more. */
static void await_end(int reading)
{
	struct pollfd p = {.fd = reading, .events = POLLIN};

	check(poll(&p, 1, TEST_COMES) == 1 && p.revents == POLLHUP, "it does not end");
}

static void by_fork(int up, int down, bool own_first, bool parent_ends_first)
{
	struct sockaddr_in at;
	int fd = bound(&at), parent[2], child[2];
	pid_t pid;

	check(pipe(parent) == 0 && pipe(child) == 0, "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	close((pid ? child : parent)[1]);
	if (pid) {
		if (!parent_ends_first)
			await_end(child[0]);
		exit(0);
	}
	if (!parent_ends_first) {
		become();
		close(child[1]);
	}
	await_end(parent[0]);
	if (parent_ends_first)
		become();
	go_on(fd, up, down, own_first);
}

static void by_exec(int up, int down, char *next)
{
	struct sockaddr_in at;
	int fd = bound(&at);
	char *nothing[] = {self, NULL};

	become();
	check(execv("/nonexistent", nothing) < 0, "execv");
	usable(fd);
	image(next, fd, up, down);
}

/* The owner ends when another process has executed the next program. */
static void by_fork_and_exec(int up, int down, bool shares_memory)
{
	struct sockaddr_in at;
	int fd = bound(&at), alive[2];
	pid_t pid;

	check(pipe2(alive, O_CLOEXEC) == 0, "pipe");
	if (shares_memory)
		become();
	pid = shares_memory ? vfork() : fork();
	check(pid >= 0, "fork");
	if (!pid) {
		if (!shares_memory)
			become();
		image("image", fd, up, down);
	}
	close(alive[1]);
	await_end(alive[0]);
	exit(0);
}

/* The shell has the socket, and does not know it. */
static void by_shell(int up, int down)
{
	struct sockaddr_in at;
	char command[200];
	int program = open(self, O_RDONLY);

	check(program >= 0, "%s", self);
	snprintf(command, sizeof(command), "/proc/self/fd/%d image %d %d %d; exit $?", program, bound(&at), up, down);
	become();
	execl("/bin/sh", "sh", "-c", command, NULL);
	program_fail(__FILE__, __LINE__, "execl");
}

/* ---- a passed descriptor ---- */

static void pass(int to, int fd)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} u = {{0}};
	char c = 0;
	struct iovec iov = {&c, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u.buf)};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&m);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(int));
	check(sendmsg(to, &m, 0) == 1, "sendmsg");
}

static int take(int from)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} u = {{0}};
	char c;
	struct iovec iov = {&c, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u.buf)};
	int fd;

	check(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m), "recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

/* Each of the three says when it is ready, and hears when it may go on. */
static struct party {
	int up[2], down[2];
} owner, child, other;
static int passing[2];

static void party_make(struct party *p)
{
	check(pipe(p->up) == 0 && pipe(p->down) == 0, "pipe");
}

static void ready(const struct party *p)
{
	char c = 0;

	tell(p->up[1], &c, 1);
	hear(p->down[0], &c, 1);
}

static void let_on(const struct party *p)
{
	char c = 0;

	tell(p->down[1], &c, 1);
	hear(p->up[0], &c, 1);
}

static void is_other_user(void *log)
{
	int fd, i;
	char c;

	alarm(test_alarm(60));
	check(dup2(*(int *)log, 2) == 2, "dup2");
	become();
	fd = take(passing[0]);
	answer(fd);
	ready(&other); /* the owner ends meanwhile */
	for (i = 0; i < 3; i++)
		check(recv(fd, &c, 1, MSG_DONTWAIT) < 0 && errno == ENOTCONN, "it has another user's port");
	ready(&other); /* the owner's child becomes the owner */
	answer(fd);
	ready(&other);
	exit(0);
}

/* It does not look at the socket before it is told to. */
static void is_child(int fd)
{
	alarm(test_alarm(60));
	ready(&child);
	usable(fd);
	ready(&child);
	exit(0);
}

static void is_owner(void *unused)
{
	struct sockaddr_in at;
	int fd = bound(&at);
	pid_t pid = fork();

	(void)unused;
	check(pid >= 0, "fork");
	if (!pid)
		is_child(fd);
	pass(passing[1], fd);
	tell(owner.up[1], &at, sizeof(at));
	ready(&owner);
}

/* How many of its descriptors are files of root's registry? */
static int files_of_root(pid_t pid)
{
	char path[64], name[400], text[400];
	struct dirent *d;
	ssize_t len;
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	check(dir != NULL, "%s", path);
	while ((d = readdir(dir))) {
		snprintf(name, sizeof(name), "%s/%s", path, d->d_name);
		len = readlink(name, text, sizeof(text) - 1);
		text[len < 0 ? 0 : len] = 0;
		n += strstr(text, "/rdspreload-0/") != NULL;
	}
	closedir(dir);
	return n;
}

static void expect_lines(int log, const char *text, int want)
{
	FILE *f = fdopen(log, "r");
	char line[1000];
	int n = 0;

	check(f && fseek(f, 0, SEEK_SET) == 0, "the log");
	while (fgets(line, sizeof(line), f)) {
		fputs(line, stderr);
		n += strstr(line, text) != NULL;
	}
	check(n == want, "%d lines with '%s'", n, text);
}

/*
 * The owner ends while another user's process and its own child have the socket.  The former cannot
 * become the owner, and does the latter no harm.
 */
static void passed(void)
{
	int log = open(getenv("RDS_PRELOAD_REGISTRY_DIR"), O_TMPFILE | O_RDWR, 0600);
	struct sockaddr_in at;
	pid_t one, another;
	char c;

	check(log >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, passing) == 0, "socketpair");
	party_make(&owner);
	party_make(&child);
	party_make(&other);
	another = start(is_other_user, &log);
	one = start(is_owner, NULL);
	hear(owner.up[0], &at, sizeof(at));
	hear(owner.up[0], &c, 1);
	hear(child.up[0], &c, 1);
	finished(start(asks, &at));
	hear(other.up[0], &c, 1);
	tell(owner.down[1], &c, 1);
	finished(one);
	let_on(&other); /* tries in vain */
	check(files_of_root(another) == 0, "another user has root's registry");
	let_on(&child); /* takes over */
	tell(other.down[1], &c, 1);
	finished(start(asks, &at));
	hear(other.up[0], &c, 1);
	tell(other.down[1], &c, 1);
	tell(child.down[1], &c, 1);
	finished(another);
	close(child.up[1]);
	await_end(child.up[0]);
	expect_lines(log, "another user", 1);
}

/* ---- the cases ---- */

static void daemon_goes_on(int up, int down)
{
	by_daemon(up, down, false);
}

static void daemon_opens_another(int up, int down)
{
	by_daemon(up, down, true);
}

/* uses: the one in between is an owner, too. */
static void by_two_daemons(int up, int down, bool uses)
{
	struct sockaddr_in at;
	int fd = bound(&at);

	check(daemon(1, 1) == 0, "daemon");
	become();
	if (uses)
		usable(fd);
	check(daemon(1, 1) == 0, "daemon");
	go_on(fd, up, down, false);
}

static void grandchild(int up, int down)
{
	by_two_daemons(up, down, false);
}

static void child_and_grandchild(int up, int down)
{
	by_two_daemons(up, down, true);
}

static void child_changes_first(int up, int down)
{
	by_fork(up, down, false, false);
}

static void parent_ends_first(int up, int down)
{
	by_fork(up, down, true, true);
}

static void exec_goes_on(int up, int down)
{
	by_exec(up, down, "image");
}

static void exec_opens_another(int up, int down)
{
	by_exec(up, down, "opens");
}

static void fork_then_exec(int up, int down)
{
	by_fork_and_exec(up, down, false);
}

static void vfork_then_exec(int up, int down)
{
	by_fork_and_exec(up, down, true);
}

static const struct way {
	char *name;
	const char *share;
	void (*goes)(int up, int down);
} ways[] = {
	{"daemon", "user", daemon_goes_on},
	{"daemon, another socket first", "user", daemon_opens_another},
	{"daemon of a group", "group", daemon_goes_on},
	{"a daemon's daemon", "user", grandchild},
	{"a daemon, and its daemon", "user", child_and_grandchild},
	{"fork, the child changes first", "user", child_changes_first},
	{"fork, the parent ends first", "user", parent_ends_first},
	{"exec", "user", exec_goes_on},
	{"exec, another socket first", "user", exec_opens_another},
	{"exec of a group", "group", exec_goes_on},
	{"fork and exec", "user", fork_then_exec},
	{"vfork and exec", "user", vfork_then_exec},
	{"a shell between", "user", by_shell},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void run_way(const struct way *w)
{
	int up[2], down[2];
	pid_t pid;

	check(pipe(up) == 0 && pipe(down) == 0, "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	close((pid ? up : down)[1]);
	close((pid ? down : up)[0]);
	if (!pid) {
		w->goes(up[1], down[0]);
		exit(0);
	}
	watch(up[0], down[1]);
	finished(pid);
	await_end(up[0]);
}

static void run_all(void)
{
	pid_t pid;
	size_t i;

	for (i = 0; i <= WAYS; i++) {
		printf("%s\n", i < WAYS ? ways[i].name : "passed");
		fflush(stdout);
		setenv("RDS_PRELOAD_SHARE", i < WAYS ? ways[i].share : "user", 1);
		pid = fork();
		check(pid >= 0, "fork");
		if (!pid) {
			char number[16], *argv[] = {self, number, NULL};

			snprintf(number, sizeof(number), "%zu", i);
			execv(self, argv);
			program_fail(__FILE__, __LINE__, "execv");
		}
		finished(pid);
	}
}

int main(int argc, char **argv)
{
	size_t i;

	if (argc == 5) {
		go_on(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), !strcmp(argv[1], "opens"));
		return 0;
	}
	if (geteuid()) {
		printf("SKIP: needs root to become others\n");
		return 0;
	}
	if (argc == 2) {
		i = (size_t)atoi(argv[1]);
		i < WAYS ? run_way(&ways[i]) : passed();
		return 0;
	}
	registry_for_all();
	setenv("RDS_PRELOAD_ABI", "uek", 1); /* rds-info shows process numbers */
	run_all();
	printf("%zu ways to an heir, and a descriptor passed to another user\n", WAYS);
	return 0;
}
