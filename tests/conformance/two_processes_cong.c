/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Congestion between two processes: refused, told, and a blocked sender goes on when the other one
 * reads.
 */
#include "rdsconf.h"

#include <sys/wait.h>

#define PARENT 4160
#define CHILD 4161

static char data[8192];

static long to_child(int fd, size_t len, int flags)
{
	struct name to = name_here(CHILD);

	return sendto(fd, data, len, flags, &to.sa, to.len);
}

/* The child reads one message for each byte that comes down, and says how long it was. */
static void child(int down, int up)
{
	int fd = rds_bound_to(CHILD), length;
	char byte = 'r';

	alarm(test_alarm(60));
	rds_bufs(fd, 0, 4096);
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	if (write(up, &byte, 1) != 1)
		_exit(1);
	while (read(down, &byte, 1) == 1) {
		length = recv(fd, data, sizeof(data), 0);
		if (write(up, &length, sizeof(length)) != sizeof(length))
			_exit(1);
	}
	_exit(0);
}

static int down_fd, up_fd;

static int child_reads(void)
{
	int length = -7;

	if (write(down_fd, "g", 1) != 1 || read(up_fd, &length, sizeof(length)) != sizeof(length))
		conf_die("child");
	return length;
}

static long blocking_send(void *arg)
{
	return to_child(*(int *)arg, 7, 0);
}

/*
 * A sender may learn of it a little late: empty messages until one is refused. Those that were
 * accepted are for the child to read, behind what filled its queue.
 */
static int late;

/*
 * The news of the congestion must be over before the refusal, or it counts as the news of its end.
 */
static long fill(int fd)
{
	long r = to_child(fd, 5000, MSG_DONTWAIT);

	cong_all_told(name_here(CHILD));
	return r;
}

static const char *refused(int fd)
{
	long long end = now_ms() + TEST_COMES;
	unsigned looks = 0;
	long r;

	for (late = 0; (r = to_child(fd, 0, MSG_DONTWAIT)) >= 0; late++) {
		if (now_ms() > end)
			test_late("a refusal");
		test_pause(&looks);
	}
	return rc(r);
}

static void read_late(void)
{
	for (; late; late--)
		child_reads();
}

int main(int argc, char **argv)
{
	int down[2], up[2], fd, on = 1, status = 0;
	struct helper helper;
	struct pollfd pfd;
	pid_t pid;

	conf_begin(argc, argv);
	if (conf_loop)
		conf_skip("loopback-bound sockets never congest");
	if (pipe(down) || pipe(up))
		conf_die("pipe");
	pid = fork();
	if (pid < 0)
		conf_die("fork");
	if (!pid) {
		close(down[1]);
		close(up[0]);
		child(down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	down_fd = down[1];
	up_fd = up[0];
	if (read(up_fd, data, 1) != 1)
		conf_die("child");
	fd = rds_bound_to(PARENT);
	pfd = (struct pollfd){ .fd = fd, .events = POLLIN };
	check("warm-up", "1", "%s", rc(to_child(fd, 1, 0)));
	check("warm-up-read", "1", "%d", child_reads());
	setsockopt(fd, SOL_RDS, RDS_CONG_MONITOR, &on, sizeof(on));
	check("fill", "5000", "%s", rc(fill(fd)));
	check("refused", "-1 ENOBUFS", "%s", refused(fd));
	check("not-told-yet", "0", "%d", poll(&pfd, 1, 50));
	check("child-reads", "5000", "%d", child_reads());
	read_late();
	check("told", "1", "%d", poll(&pfd, 1, TEST_COMES));
	check("told-by-0", "0", "%s", rc(recv(fd, data, 10, MSG_DONTWAIT)));
	check("accepted", "5000", "%s", rc(fill(fd)));
	check("refused-again", "-1 ENOBUFS", "%s", refused(fd));
	helper_start(&helper, blocking_send, &fd);
	check("blocks", "1", "%d", helper_asleep(&helper));
	check("child-reads-again", "5000", "%d", child_reads());
	read_late();
	check("goes-on", "7", "%s", rc(helper_result(&helper)));
	check("child-reads-that", "7", "%d", child_reads());
	check("told-again", "0", "%s", poll(&pfd, 1, TEST_COMES) ? rc(recv(fd, data, 10, MSG_DONTWAIT)) : "asleep");
	check("fill-once-more", "5000", "%s", rc(fill(fd)));
	check("refused-once-more", "-1 ENOBUFS", "%s", refused(fd));
	close(down_fd);
	waitpid(pid, &status, 0);
	check("told-by-exit", "1", "%d", poll(&pfd, 1, TEST_COMES));
	check("told-by-exit-0", "0", "%s", rc(recv(fd, data, 10, MSG_DONTWAIT)));
	check("port-of-the-dead-is-free", "1", "%s", rc(to_child(fd, 1, MSG_DONTWAIT)));
	return conf_end();
}
