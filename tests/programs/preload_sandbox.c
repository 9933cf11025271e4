/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_sandbox - programs that shut themselves in when they have bound a socket: each call
 * answers what it answers to a process without one, all threads of the process have the same rights
 * and user namespace afterwards, and the sockets go on, those of before too, with a peer in another
 * process, for which it is not the program's own thread that works: it takes what the program
 * writes into its memory, too, and one is met that has not been heard of before.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/rds.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

extern int capset(void *header, const void *data);

#define SOCKETS 80	/* more than go in one packet */
#define ROOM (64 << 10) /* so much is read where it lies */

struct act {
	const char *name;
	int (*fn)(long arg);
	long arg;
};

static int unshares(long flags)
{
	return unshare((int)flags);
}

static int unshares_by_number(long flags)
{
	return (int)syscall(SYS_unshare, flags);
}

/*
 * No thread can begin behind the first, or none that finds the peers: then the second is refused as
 * to any process of several.
 */
static int unshares_more(long first)
{
	return unshare((int)first) ? -1 : unshare(CLONE_NEWUSER);
}

/* More than an int is. */
static int sleeps_long(long slack)
{
	check(prctl(PR_SET_TIMERSLACK, slack) == 0 && syscall(SYS_prctl, PR_GET_TIMERSLACK) == slack, "slack");
	return 0;
}

static int enters(long type)
{
	int fd = open(type == CLONE_NEWUSER ? "/proc/self/ns/user" : "/proc/self/ns/mnt", O_RDONLY), rc;

	check(fd >= 0, "namespace");
	rc = setns(fd, (int)type);
	close(fd);
	return rc;
}

/*
 * An own user namespace, and from there that of a process which has gone further: with all that it
 * has.
 */
static int enters_child(long types)
{
	int told[2], rc, fd;
	char c;
	pid_t pid;

	check(pipe(told) == 0, "pipe");
	pid = fork();
	if (!pid) {
		c = unshare((int)types) == 0;
		tell(told[1], &c, 1);
		pause();
	}
	hear(told[0], &c, 1);
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	rc = fd < 0 ? -1 : setns(fd, (int)types);
	kill(pid, SIGKILL);
	check(waitpid(pid, NULL, 0) == pid, "waitpid");
	close(fd);
	close(told[0]);
	close(told[1]);
	return rc;
}

static int gives_up_capabilities(long how)
{
	struct __user_cap_header_struct who = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	return how ? (int)syscall(SYS_capset, &who, none) : capset(&who, none);
}

static int gives_up_new(long how)
{
	(void)how;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int gives_up_one(long which)
{
	return prctl(PR_CAPBSET_DROP, which, 0, 0, 0);
}

static const struct act acts[] = {
	{"unshare(CLONE_NEWUSER)", unshares, CLONE_NEWUSER},
	{"unshare(CLONE_NEWUSER) by its number", unshares_by_number, CLONE_NEWUSER},
	{"unshare(CLONE_NEWUSER | many)", unshares,
	 CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_FILES},
	{"unshare(CLONE_NEWPID) and NEWUSER", unshares_more, CLONE_NEWPID},
	{"unshare(CLONE_NEWNET) and NEWUSER", unshares_more, CLONE_NEWNET},
	{"unshare(CLONE_NEWNS)", unshares, CLONE_NEWNS},
	{"unshare(CLONE_FS)", unshares, CLONE_FS},
	{"unshare(CLONE_FILES)", unshares, CLONE_FILES},
	{"unshare(CLONE_THREAD)", unshares, CLONE_THREAD},
	{"unshare(CLONE_SIGHAND)", unshares, CLONE_SIGHAND},
	{"unshare(CLONE_VM)", unshares, CLONE_VM},
	{"unshare(nonsense)", unshares, CLONE_NEWUSER | CLONE_VFORK},
	{"setns(mnt)", enters, CLONE_NEWNS},
	{"setns(own user)", enters, CLONE_NEWUSER},
	{"setns(pidfd, user and others)", enters_child, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS},
	{"capset", gives_up_capabilities, 0},
	{"capset by its number", gives_up_capabilities, 1},
	{"no_new_privs", gives_up_new, 0},
	{"PR_GET_TIMERSLACK by its number", sleeps_long, 3L << 30},
	{"PR_CAPBSET_DROP", gives_up_one, CAP_SYS_CHROOT},
};

struct answer {
	int rc, err;
};

static struct answer made(const struct act *a)
{
	struct answer answer;

	errno = 0;
	answer.rc = a->fn(a->arg);
	answer.err = errno;
	return answer;
}

static void rights(const char *thread, char text[1024])
{
	char path[300], line[256], space[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
	f = fopen(path, "r");
	check(f != NULL, "%s", path);
	text[0] = 0;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "Cap", 3) || !strncmp(line, "NoNewPrivs", 10))
			strncat(text, line, 1023 - strlen(text));
	fclose(f);
	snprintf(path, sizeof(path), "/proc/self/task/%s/ns/user", thread);
	check(readlink(path, space, sizeof(space) - 1) > 0, "%s", path);
	strncat(text, space, 1023 - strlen(text));
}

static void same_rights(const char *name)
{
	char mine[1024], its[1024];
	DIR *dir = opendir("/proc/self/task");
	struct dirent *d;

	check(dir != NULL, "/proc/self/task");
	snprintf(its, sizeof(its), "%d", (int)getpid());
	rights(its, mine);
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		rights(d->d_name, its);
		check(!strcmp(mine, its), "after %s a thread has\n%s\nand the program\n%s", name, its, mine);
	}
	closedir(dir);
}

struct place {
	struct sockaddr_in at;
	uint64_t memory;
};

struct peer {
	int asks, says; /* what we read from it, what we write */
	pid_t pid;
	struct place place;
};

static void peer_goes(int in, int out)
{
	static char room[ROOM];
	struct place me = {.memory = 0};
	struct rds_get_mr_args args = {{(uintptr_t)room, ROOM}, (uintptr_t)&me.memory, RDS_RDMA_READWRITE};
	struct sockaddr_in to;
	int fd = bound(&me.at);

	check(setsockopt(fd, SOL_RDS, RDS_GET_MR, &args, sizeof(args)) == 0, "RDS_GET_MR");
	tell(out, &me, sizeof(me));
	while (read(in, &to, sizeof(to)) == sizeof(to))
		check(sendto(fd, "!", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1, "the peer's sendto");
	exit(0);
}

static struct peer peer_new(void)
{
	int in[2], out[2];
	struct peer p;

	check(pipe(in) == 0 && pipe(out) == 0, "pipe");
	p.pid = fork();
	if (!p.pid) {
		close(in[1]);
		close(out[0]);
		peer_goes(in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	p.asks = out[0];
	p.says = in[1];
	hear(p.asks, &p.place, sizeof(p.place));
	return p;
}

static void peer_ends(const struct peer *p)
{
	int status;

	close(p->says);
	close(p->asks);
	check(waitpid(p->pid, &status, 0) == p->pid && !status, "the peer: %#x", (unsigned)status);
}

/* Into its memory, and hears that it has come. */
static void writes(const struct peer *p, int fd)
{
	static char data[ROOM];
	struct rds_iovec local = {(uintptr_t)data, ROOM};
	struct rds_rdma_args args = {p->place.memory,
				     {0, ROOM},
				     (uintptr_t)&local,
				     1,
				     RDS_RDMA_READWRITE | RDS_RDMA_NOTIFY_ME | RDS_RDMA_SILENT,
				     7};
	struct rds_rdma_notify told = {.status = -1};
	char control[CMSG_SPACE(sizeof(args))] __attribute__((aligned(8)));
	struct msghdr msg = {.msg_name = (void *)&p->place.at,
			     .msg_namelen = sizeof(p->place.at),
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_RDS;
	c->cmsg_type = RDS_CMSG_RDMA_ARGS;
	c->cmsg_len = CMSG_LEN(sizeof(args));
	memcpy(CMSG_DATA(c), &args, sizeof(args));
	check(sendmsg(fd, &msg, 0) == 0, "RDMA write");
	msg = (struct msghdr){.msg_control = control, .msg_controllen = sizeof(control)};
	check(recvmsg(fd, &msg, 0) == 0 && (c = CMSG_FIRSTHDR(&msg)) && c->cmsg_type == RDS_CMSG_RDMA_STATUS,
	      "RDMA status");
	memcpy(&told, CMSG_DATA(c), sizeof(told));
	check(told.user_token == 7 && told.status == RDS_RDMA_SUCCESS, "status %d", (int)told.status);
}

/*
 * It sends, and no process of ours makes a call on the socket until the kernel shows, by a call
 * that is not intercepted, that there is something.
 */
static void hears(const struct peer *p, int fd, const struct sockaddr_in *at)
{
	struct pollfd look = {.fd = fd, .events = POLLIN};
	char c = 0;

	tell(p->says, at, sizeof(*at));
	check(syscall(SYS_poll, &look, 1, TEST_COMES) == 1, "nothing comes");
	check(recv(fd, &c, 1, 0) == 1 && c == '!', "recv");
}

static int refused(const struct act *a, const struct answer *with)
{
	return a->fn == unshares_more && with->rc < 0 && with->err == EINVAL;
}

static void child(void *arg)
{
	const struct act *a = arg;
	struct answer without, with;
	struct sockaddr_in at;
	int told[2], fd = -1, status, i;
	struct peer p, other;
	pid_t pid;

	check(pipe(told) == 0, "pipe");
	pid = fork();
	if (!pid) {
		without = made(a);
		tell(told[1], &without, sizeof(without));
		_exit(0);
	}
	hear(told[0], &without, sizeof(without));
	check(waitpid(pid, &status, 0) == pid && !status, "waitpid");

	p = peer_new();
	other = peer_new();
	for (i = 0; i < (a == acts ? SOCKETS : 1); i++)
		fd = bound(&at);
	hears(&p, fd, &at);
	with = made(a);
	check(refused(a, &with) || (with.rc == without.rc && (with.rc >= 0 || with.err == without.err)),
	      "%s: %d %s, without a socket %d %s", a->name, with.rc, strerror(with.err), without.rc,
	      strerror(without.err));
	same_rights(a->name);
	hears(&p, fd, &at);
	writes(&p, fd);
	writes(&other, fd);
	works();
	close(fd);
	peer_ends(&other); /* it has the pipe of the first */
	peer_ends(&p);
}

int main(void)
{
	unsigned n = sizeof(acts) / sizeof(acts[0]), i;

	for (i = 0; i < n; i++)
		finished(start(child, (void *)(uintptr_t)&acts[i]));
	printf("%u calls\n", n);
	return 0;
}
