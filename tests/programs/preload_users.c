/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_users - two users that share a node (RDS_PRELOAD_SHARE=all), and a third one that joins it
 * to disturb them: it tries to open, lock and truncate what belongs to them, says that their port is
 * its own, keeps their port's queue full, and takes ports away before they are bound. Messages pass,
 * and no program fails. Then a port goes from process to process: closed and bound by another one,
 * bound after messages to it, killed and bound again, inherited.
 */
#include "users.h"

#include <glob.h>
#include <signal.h>
#include <stddef.h>
#include <sys/un.h>

#define ONE 70001
#define TWO 70002
#define THREE 70003
#define FLOOD 6000
#define SOON 200

struct order {
	char what;
	int ms;
	struct sockaddr_in at;
};

struct answer {
	int ret; /* or -errno */
	struct sockaddr_in at;
};

struct worker {
	pid_t pid;
	int to, from;
};

/* ---- a worker does what it is told ---- */

static int do_bind(int *fd, struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);

	*fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(*fd >= 0, "socket");
	if (bind(*fd, (struct sockaddr *)at, sizeof(*at)) == 0)
		return getsockname(*fd, (struct sockaddr *)at, &len);
	return -errno;
}

static int do_receive(int fd, int ms, struct sockaddr_in *from)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	socklen_t len = sizeof(*from);
	char text[16];
	int n = -1;

	errno = ETIMEDOUT;
	/* a new connection's congestion map makes a socket readable, too */
	while (n < 0 && poll(&p, 1, ms) == 1)
		n = (int)recvfrom(fd, text, sizeof(text), MSG_DONTWAIT, (struct sockaddr *)from, &len);
	return n < 0 ? -errno : n;
}

static void works_for(int in, int out)
{
	struct order o;
	int fd = -1;

	while (read(in, &o, sizeof(o)) == sizeof(o)) {
		struct answer a = {.ret = 0, .at = o.at};

		switch (o.what) {
		case 'b':
			a.ret = do_bind(&fd, &a.at);
			break;
		case 's':
			a.ret = (int)sendto(fd, "hello", 5, 0, (struct sockaddr *)&o.at, sizeof(o.at));
			a.ret = a.ret < 0 ? -errno : a.ret;
			break;
		case 'r':
			a.ret = do_receive(fd, o.ms, &a.at);
			break;
		case 'c':
			a.ret = close(fd);
			break;
		case 'f': /* the child goes on with the socket */
		case 'k':
			if (fork())
				o.what == 'f' ? exit(0) : raise(SIGKILL);
			break;
		default:
			return;
		}
		check(write(out, &a, sizeof(a)) == sizeof(a), "pipe");
	}
}

static struct worker worker_of(unsigned user)
{
	int there[2], back[2];
	struct worker w;

	check(pipe(there) == 0 && pipe(back) == 0, "pipe");
	check(fcntl(there[1], F_SETFD, FD_CLOEXEC) == 0 && fcntl(back[0], F_SETFD, FD_CLOEXEC) == 0, "fcntl");
	w.pid = runs_as(user, 022, "work", there[0], back[1]);
	w.to = there[1];
	w.from = back[0];
	close(there[0]);
	close(back[1]);
	return w;
}

static int told(struct worker *w, char what, int ms, struct sockaddr_in *at)
{
	struct order o = {.what = what, .ms = ms, .at = at ? *at : loopback(0)};
	struct answer a;

	tell(w->to, &o, sizeof(o));
	hear(w->from, &a, sizeof(a));
	if (at)
		*at = a.at;
	return a.ret;
}

static void ends(struct worker *w)
{
	close(w->to);
	close(w->from);
	finished(w->pid);
}

/* It is no child of ours: of its process only the pipe tells that it has ended. */
static void hangs_up(struct worker *w)
{
	char byte;

	check(read(w->from, &byte, 1) == 0, "pipe");
	close(w->from);
}

static void killed(struct worker *w)
{
	int status;

	kill(w->pid, SIGKILL);
	check(waitpid(w->pid, &status, 0) == w->pid, "waitpid");
	close(w->to);
	close(w->from);
}

static struct sockaddr_in binds(struct worker *w)
{
	struct sockaddr_in at = loopback(0);

	check(told(w, 'b', 0, &at) == 0, "bind");
	return at;
}

/* One sends and the other one receives. */
static void passes(struct worker *from, struct worker *to, struct sockaddr_in at, const char *what)
{
	struct sockaddr_in seen = loopback(0);
	int ret;

	check(told(from, 's', 0, &at) == 5, "%s: sendto", what);
	ret = told(to, 'r', TEST_COMES, &seen);
	check(ret == 5, "%s: %d", what, ret);
}

/* The same where a message may be lost that was sent before the sender could know. */
static void passes_at_last(struct worker *from, struct worker *to, struct sockaddr_in at, const char *what)
{
	struct sockaddr_in seen;
	int tries, ret = 0;

	for (tries = 0; tries < TEST_COMES / SOON && ret != 5; tries++) {
		check(told(from, 's', 0, &at) == 5, "%s: sendto", what);
		ret = told(to, 'r', SOON, &seen);
	}
	check(ret == 5, "%s: %d", what, ret);
	passes(from, to, at, what);
}

/* ---- the third user ---- */

static void opens_files(void)
{
	char pattern[100];
	unsigned tried = 0;
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/*/node-*", registry);
	check(glob(pattern, 0, NULL, &g) == 0, "glob");
	for (size_t i = 0; i < g.gl_pathc; i++) {
		struct stat st;

		check(stat(g.gl_pathv[i], &st) == 0, "stat");
		if (st.st_uid == THREE)
			continue;
		tried++;
		check(open(g.gl_pathv[i], O_RDONLY) < 0, "%s can be read, and so locked", g.gl_pathv[i]);
		check(open(g.gl_pathv[i], O_WRONLY) < 0, "%s can be written", g.gl_pathv[i]);
		check(truncate(g.gl_pathv[i], 0) < 0, "%s can be truncated", g.gl_pathv[i]);
		check(unlink(g.gl_pathv[i]) < 0, "%s can be removed", g.gl_pathv[i]);
	}
	check(tried >= 2, "%u files", tried);
	globfree(&g);
}

/* The links of both ports: what the registry shows of ours is shown for the other one's as well. */
static void forges(struct sockaddr_in at)
{
	char pattern[100], text[100], name[200];
	ssize_t n;
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/*%u/port-*", registry, THREE);
	check(glob(pattern, 0, NULL, &g) == 0 && g.gl_pathc == 1, "our own port's link");
	n = readlink(g.gl_pathv[0], text, sizeof(text) - 1);
	check(n > 0, "readlink");
	text[n] = 0;
	snprintf(name, sizeof(name), "%s", g.gl_pathv[0]);
	sprintf(strrchr(name, '-'), "-%x", ntohs(at.sin_port));
	check(symlink(text, name) == 0, "symlink");
	globfree(&g);
}

/* The abstract name that ends with that port, as anybody sees it. */
static socklen_t finds_name(unsigned port, struct sockaddr_un *un)
{
	FILE *f = fopen("/proc/net/unix", "r");
	char line[400], end[16], *name = NULL;
	struct stat st;

	check(f && stat(registry, &st) == 0, "/proc/net/unix");
	snprintf(end, sizeof(end), "-%x\n", port);
	while (!name && fgets(line, sizeof(line), f)) {
		char *p = strstr(line, "@rds.port."), *q = p ? strrchr(p, '-') : NULL;

		if (q && !strcmp(q, end) && strtoull(strchr(p, '-') + 1, NULL, 16) == st.st_ino)
			name = p;
	}
	fclose(f);
	check(name, "no name of port %u", port);
	name[strcspn(name, "\n")] = 0;
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path + 1, name + 1, strlen(name + 1));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
}

static void disturbs(int in, int out)
{
	struct sockaddr_in at, own = loopback(0);
	struct sockaddr_un un;
	socklen_t len;
	int rds, fd;

	check(read(in, &at, sizeof(at)) == sizeof(at), "pipe");
	check(do_bind(&rds, &own) == 0, "bind");
	opens_files();
	forges(at);
	len = finds_name(ntohs(at.sin_port), &un);
	/* it may not have that name, but one that the first user wants next */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	check(bind(fd, (struct sockaddr *)&un, len) && errno == EADDRINUSE, "the name of another user's port");
	sprintf(strrchr(un.sun_path + 1, '-'), "-%x", ntohs(at.sin_port) ^ 1);
	check(bind(fd, (struct sockaddr *)&un,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(un.sun_path + 1))) == 0,
	      "bind");
	check(write(out, &own, sizeof(own)) == sizeof(own), "pipe");
	len = finds_name(ntohs(at.sin_port), &un);
	for (int i = 0; i < FLOOD; i++) {
		int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

		check(connect(s, (struct sockaddr *)&un, len) == 0 || errno == EAGAIN, "connect");
		close(s);
	}
	check(write(out, &own, sizeof(own)) == sizeof(own), "pipe");
	check(do_receive(rds, SOON, &own) == -ETIMEDOUT, "the third user got a message");
	check(read(in, &at, sizeof(at)) == 0, "pipe");
}

static void under_attack(void)
{
	struct worker one = worker_of(ONE), two = worker_of(TWO), late, root;
	struct sockaddr_in at = binds(&one), other = binds(&two), three, its, next = at;
	int there[2], back[2];
	pid_t attacker;

	passes(&two, &one, at, "before");
	check(pipe(there) == 0 && pipe(back) == 0, "pipe");
	check(fcntl(there[1], F_SETFD, FD_CLOEXEC) == 0, "fcntl");
	attacker = runs_as(THREE, 022, "disturb", there[0], back[1]);
	tell(there[1], &at, sizeof(at));
	hear(back[0], &three, sizeof(three));
	for (int i = 0; i < 50; i++) {
		passes(&two, &one, at, "meanwhile");
		passes(&one, &two, other, "meanwhile");
	}
	/* who looks for the port only now finds the first user's */
	late = worker_of(TWO);
	root = worker_of(0);
	its = binds(&late);
	binds(&root);
	passes(&late, &two, other, "the same user's");
	passes(&two, &late, its, "the same user's");
	passes(&late, &one, at, "late");
	passes(&root, &one, at, "root's");
	hear(back[0], &three, sizeof(three));
	next.sin_port ^= htons(1);
	killed(&late);
	late = worker_of(ONE);
	check(told(&late, 'b', 0, &next) == -EADDRINUSE, "a port that another user has");
	binds(&late);
	passes(&two, &one, at, "afterwards");
	close(there[1]);
	finished(attacker);
	ends(&late);
	ends(&root);
	ends(&one);
	ends(&two);
	close(there[0]);
	close(back[0]);
	close(back[1]);
}

/*
 * The worker leaves its socket to a child, which does not use it at once. Nobody else gets the port
 * meanwhile.
 */
static void inherited(char how, struct worker *w, struct worker *other, struct sockaddr_in at)
{
	struct worker third = worker_of(THREE);
	int i;

	check(told(w, how, 0, NULL) == 0, "fork");
	for (i = 0; i < 100; i++) {
		struct sockaddr_in taken = at;

		check(told(&third, 'b', 0, &taken) == -EADDRINUSE, "%c: another user has taken the port", how);
		check(told(&third, 'c', 0, NULL) == 0, "close");
	}
	ends(&third);
	passes_at_last(other, w, at, how == 'f' ? "inherited" : "inherited of a killed process");
}

/* ---- a port of the first user goes from process to process; the second one's socket stays ---- */

static void moves(void)
{
	struct worker a = worker_of(ONE), b = worker_of(ONE), two = worker_of(TWO);
	struct sockaddr_in at = binds(&a), taken = at, none = binds(&b);

	binds(&two);
	check(told(&two, 'c', 0, NULL) == 0, "close");
	check(told(&two, 'b', 0, &taken) == -EADDRINUSE, "a port that another user has");
	binds(&two);
	/* nobody has it: it is dropped, and known at once when somebody has it */
	check(told(&b, 'c', 0, NULL) == 0, "close");
	check(told(&two, 's', 0, &none) == 5 && told(&two, 's', 0, &none) == 5, "sendto");
	check(told(&b, 'b', 0, &none) == 0, "bound again");
	passes(&two, &b, none, "bound after messages");
	check(told(&b, 'c', 0, NULL) == 0, "close");
	passes(&two, &a, at, "first");
	check(told(&a, 'c', 0, NULL) == 0, "close");
	check(told(&b, 'b', 0, &at) == 0, "bound again by another process");
	passes_at_last(&two, &b, at, "moved");
	killed(&b);
	check(told(&a, 'b', 0, &at) == 0, "bound again after a kill");
	passes_at_last(&two, &a, at, "after a kill");
	/* inherited */
	inherited('f', &a, &two, at);
	inherited('k', &a, &two, at);
	close(a.to);
	hangs_up(&a);
	ends(&two);
}

int main(int argc, char **argv)
{
	if (argc == 4) {
		strcpy(registry, getenv("RDS_PRELOAD_REGISTRY_DIR"));
		argv[1][0] == 'w' ? works_for(atoi(argv[2]), atoi(argv[3])) : disturbs(atoi(argv[2]), atoi(argv[3]));
		return 0;
	}
	if (geteuid()) {
		printf("SKIP: needs root to become others\n");
		return 0;
	}
	registry_for_all();
	setenv("RDS_PRELOAD_SHARE", "all", 1);
	under_attack();
	moves();
	printf("two users, and a third one that disturbs them\n");
	return 0;
}
