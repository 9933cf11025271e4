/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handler_forks - a signal handler that has interrupted the allocator starts children, by _Fork()
 * and by clone(), as it may.  The allocator is the program's own: it sends the signal to itself in
 * the middle of a call, and reports any entry before that call is over.
 */
#include "allocator.h"
#include "program.h"

#include <sched.h>
#include <signal.h>

/*
 * Of main's thread: another one would wait in a real allocator.  volatile: compilers know of
 * malloc() that it looks at no variable.
 */
/* the latter: in the middle of a call, and the handler runs */
static __thread volatile int armed, interrupted;
static volatile int forks;

static void allocator_entered(void)
{
	static const char text[] = "the allocator is entered while a signal handler has interrupted it\n";

	if (interrupted) {
		interrupted = 0; /* once is enough */
		(void)!write(2, text, sizeof(text) - 1);
		_exit(1);
	}
	if (armed) {
		armed = 0;
		interrupted = 1;
		raise(SIGUSR1);
		interrupted = 0;
	}
}

static int in_clone(void *arg)
{
	(void)arg;
	return 0;
}

static void ends(pid_t pid)
{
	int status = -1;

	if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
		forks++;
}

static void handler(int sig)
{
	static _Alignas(16) char stack[1 << 16];
	pid_t pid = _Fork();

	(void)sig;
	if (pid == 0)
		execl("/bin/true", "true", NULL);
	ends(pid);
	ends(clone(in_clone, stack + sizeof(stack), SIGCHLD, NULL));
}

static void interrupt(void)
{
	void *volatile p;

	forks = 0;
	armed = 1;
	p = malloc(100);
	free(p);
	check(!armed && forks == 2, "%d children have ended well", forks);
}

int main(void)
{
	struct sockaddr_in at;
	char buf[4];
	int fd;

	check(signal(SIGUSR1, handler) != SIG_ERR, "signal");
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(fd >= 0, "socket");
	interrupt(); /* with a socket that has no name */
	close(fd);
	fd = bound(&at);
	interrupt();
	check(sendto(fd, "hi", 2, 0, (struct sockaddr *)&at, sizeof(at)) == 2, "sendto");
	check(recv(fd, buf, sizeof(buf), 0) == 2, "recv");
	close(fd);
	printf("children of a handler that has interrupted malloc()\n");
	return 0;
}
