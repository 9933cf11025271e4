/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bind: one binding per socket, one socket per address and port, in this process and in others; and
 * a port that had another socket before.
 */
#include "rdsconf.h"

#include <signal.h>
#include <sys/wait.h>

static long try_bind(int fd, const char *address, unsigned port)
{
	struct name at = name_at(address, port);

	return bind(fd, &at.sa, at.len);
}

static void rebind(void)
{
	int fd = rds_bound();
	struct name before = name_of(fd), after;

	check("rebind-same", "-1 EINVAL", "%s", rc(bind(fd, &before.sa, before.len)));
	check("rebind-other-port", "-1 EINVAL", "%s", rc(try_bind(fd, conf_text, 4010)));
	check("rebind-port-0", "-1 EINVAL", "%s", rc(try_bind(fd, conf_text, 0)));
	check("rebind-foreign", "-1 EINVAL", "%s", rc(try_bind(fd, "192.0.2.1", 0)));
	check("rebind-short", "-1 EINVAL", "%s", rc(bind(fd, &before.sa, 3)));
	after = name_of(fd);
	check("rebind-name-kept", "same 1", "same %d", !memcmp(&before, &after, sizeof(before)));
	close(fd);
}

static void in_use(void)
{
	int one = 1, first = rds_socket(), second = rds_socket(), third;

	check("first", "0", "%s", rc(try_bind(first, conf_text, 4011)));
	check("second-in-use", "-1 EADDRINUSE", "%s", rc(try_bind(second, conf_text, 4011)));
	check("second-reuseaddr", "0", "%s", rc(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one))));
	check("second-still-in-use", "-1 EADDRINUSE", "%s", rc(try_bind(second, conf_text, 4011)));
	check("second-other-port", "0", "%s", rc(try_bind(second, conf_text, 4012)));
	check("close-first", "0", "%s", rc(close(first)));
	third = rds_socket();
	check("third-port-free-at-once", "0", "%s", rc(try_bind(third, conf_text, 4011)));
	close(second);
	close(third);
}

static void addresses(void)
{
	int a = rds_socket(), b = rds_socket(), c = rds_socket(), d = rds_socket();

	check("port-on-127.0.0.3", "0", "%s", rc(try_bind(a, "127.0.0.3", 4013)));
	check("same-port-on-127.0.0.4", "0", "%s", rc(try_bind(b, "127.0.0.4", 4013)));
	check("same-port-on-v6", "0", "%s", rc(try_bind(c, "::1", 4013)));
	check("same-port-mapped", "-1 EADDRINUSE", "%s", rc(try_bind(d, "::ffff:127.0.0.3", 4013)));
	close(a);
	close(b);
	close(c);
	close(d);
}

static void picked(void)
{
	unsigned ports[40], i, j, same = 0, reserved = 0;
	int fds[40];

	for (i = 0; i < ARRAY_SIZE(fds); i++) {
		struct name now;

		fds[i] = rds_bound();
		now = name_of(fds[i]);
		ports[i] = name_port(&now);
		reserved += ports[i] < 2;
		for (j = 0; j < i; j++)
			same += ports[i] == ports[j];
	}
	check("picked-ports", "same 0 reserved 0", "same %u reserved %u", same, reserved);
	for (i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

static void dup_keeps(void)
{
	int a = rds_socket(), b = rds_socket(), copy;

	try_bind(a, conf_text, 4014);
	copy = dup(a);
	close(a);
	check("dup-keeps-binding", "-1 EADDRINUSE", "%s", rc(try_bind(b, conf_text, 4014)));
	close(copy);
	check("last-close-frees", "0", "%s", rc(try_bind(b, conf_text, 4014)));
	close(b);
}

/* A child that binds the port, says so, and waits to be told to go or to be killed. */
static void other_process(const char *how, int sig)
{
	int up[2], down[2], fd, status = 0;
	char word[64] = "";
	pid_t pid;

	if (pipe(up) || pipe(down))
		conf_die("pipe");
	pid = fork();
	if (pid < 0)
		conf_die("fork");
	if (!pid) {
		const char *result;

		close(up[0]);
		close(down[1]);
		fd = rds_socket();
		result = rc(try_bind(fd, conf_text, 4015));
		if (write(up[1], result, strlen(result)) < 0 || read(down[0], word, 1) < 0)
			_exit(1);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	if (read(up[0], word, sizeof(word) - 1) < 0)
		conf_die("read");
	check(text("child-binds-%s", how), "0", "%s", word);
	fd = rds_socket();
	check(text("parent-in-use-%s", how), "-1 EADDRINUSE", "%s", rc(try_bind(fd, conf_text, 4015)));
	if (sig)
		kill(pid, sig);
	close(down[1]);
	waitpid(pid, &status, 0);
	check(text("parent-binds-after-%s", how), "0", "%s", rc(try_bind(fd, conf_text, 4015)));
	close(fd);
	close(up[0]);
}

/*
 * In the last three rounds the socket has no state from before: if other processes own the sockets
 * in turn (run --apart), each has got a new one by then.
 */
#define ROUNDS 13

/*
 * What another process has sent to a socket that is closed by now is not for the next one with its
 * port, even if no process has looked since.
 */
static void had_by_another(void)
{
	struct other sender;
	struct name to;
	int i, round, fd = rds_bound(), came = 0;
	char byte;

	to = name_of(fd);
	if (fork_other(&sender)) {
		close(fd);
		fd = rds_bound();
		sendto(fd, "first", 5, 0, &to.sa, to.len);
		for (round = 0; round < ROUNDS; round++) {
			hear(&sender);
			for (i = 0; i < 5 && round < ROUNDS - 3; i++)
				sendto(fd, "old", 3, MSG_DONTWAIT, &to.sa, to.len);
			say(&sender);
			hear(&sender);
			sendto(fd, "new", 3, 0, &to.sa, to.len);
		}
		_exit(0);
	}
	receive(fd, &byte, 1, 0); /* the kernel, too, has to make a connection first */
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < 500; i++) /* a program that looks so often needs no waking */
			came += recv(fd, &byte, 1, MSG_DONTWAIT) >= 0;
		say(&sender);
		hear(&sender);
		close(fd);
		fd = rds_socket();
		if (bind(fd, &to.sa, to.len))
			conf_die("bind");
		say(&sender);
		/* a new one behind the old ones */
		while (receive(fd, &byte, 1, 0) == 1 && byte != 'n')
			came++;
	}
	came += recv(fd, &byte, 1, MSG_DONTWAIT) >= 0;
	check("messages-to-the-one-before", "0 came", "%d came", came);
	end_of(&sender);
	close(fd);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	/* Before anything is opened here: the children start from nothing. */
	other_process("exit", 0);
	other_process("kill", SIGKILL);
	rebind();
	in_use();
	addresses();
	picked();
	dup_keeps();
	if (conf_loop) /* else they may still be on their way */
		had_by_another();
	return conf_end();
}
