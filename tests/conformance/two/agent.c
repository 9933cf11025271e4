/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The agent: runs on node 2, starts what belongs to a program of node 1, one program at a time, and
 * sees to it that nothing of one is left when the next begins; see far.h.
 *
 *	agent CONTROL ADDRESS...	serve at the first address; the others are the node's own
 *					for RDS
 *	agent --calls NUMBER		(itself, under the preload) one program's calls
 *	agent --resident ADDRESS...	(the same) a node's process that is always there: of node 2,
 *					and "inside" has one of node 1
 *	agent --meet ADDRESS OTHER	a ping, and what answers it: for "namespaces"
 *
 * To the library a host without any process that has RDS sockets is one that is down, and messages
 * wait for it.  The kernel's answers always: so there is a process with a socket at each address,
 * which does nothing.
 *
 * CONFORMANCE_PRELOAD: the library, or "none".
 */
#include "agent.h"

#include <signal.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define TWIN_WORDS 8
#define RESIDENT_READY 100 /* a descriptor, to which it says that it is there */

#define RENDEZVOUS ":48CB " /* the library's port, as the kernel's tables show it */

static const char *address;

/* With a descriptor to keep, and the library in front. */
static pid_t start(char **words, int keep)
{
	const char *preload = getenv("CONFORMANCE_PRELOAD");
	pid_t pid = fork();

	if (pid)
		return pid;
	fcntl(keep, F_SETFD, 0);
	if (strcmp(preload, "none") != 0)
		setenv("LD_PRELOAD", preload, 1);
	execv(words[0], words);
	_exit(127);
}

/*
 * A program's part ends with it. One that does not (a process in the kernel's RDS may not be to be
 * killed) is left.
 */
static void wait_end(pid_t pid)
{
	struct pollfd pfd = {.fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

	if (poll(&pfd, 1, TEST_COMES) == 0) {
		fprintf(stderr, "agent: the part for a program does not end\n");
		kill(pid, SIGKILL);
	} else {
		waitpid(pid, NULL, 0);
	}
	if (pfd.fd >= 0)
		close(pfd.fd);
}

static void resident(char **addresses)
{
	char *words[8] = {"/proc/self/exe", "--resident"};
	int i, ready[2];
	char byte;

	if (pipe2(ready, O_CLOEXEC) || dup2(ready[1], RESIDENT_READY) < 0)
		far_die("pipe");
	close(ready[1]);
	for (i = 0; addresses[i] && i < 5; i++)
		words[i + 2] = addresses[i];
	start(words, RESIDENT_READY);
	close(RESIDENT_READY);
	if (read(ready[0], &byte, 1) != 1)
		far_die("no resident process");
	close(ready[0]);
}

static void stay(char **addresses)
{
	for (; *addresses; addresses++) {
		struct name name = name_at(*addresses, 0);

		if (bind(rds_socket(), &name.sa, name.len))
			far_die("bind");
	}
	if (write(RESIDENT_READY, "r", 1) != 1)
		exit(1);
	for (;;)
		pause();
}

static void meet(const char *own, const char *other)
{
	struct name name = name_at(own, 0), to = name_at(other, 0);
	int fd = rds_socket();

	if (bind(fd, &name.sa, name.len) || sendto(fd, "", 0, MSG_DONTWAIT, &to.sa, to.len))
		far_die("meet");
	conf_arrives(fd);
	exit(0);
}

/*
 * Soft iWARP's listeners are TCP sockets, and it takes one away when a connection to it is closed
 * before it has been accepted: as when a process of the other node ends in the middle of
 * connecting.  Nobody is told, nobody gets through to this node from then on, and when the process
 * that had the listener ends, the kernel uses memory that it has freed.
 */
static bool listens(const char *table)
{
	FILE *file = fopen(table, "r");
	char line[300];
	bool found = false;

	while (file && fgets(line, sizeof(line), file))
		found |= strstr(line, RENDEZVOUS) && strstr(line, " 0A "); /* its state: listens */
	if (file)
		fclose(file);
	return found;
}

static void health(int program)
{
	unsigned good =
		access("/sys/class/infiniband/siw0", F_OK) || (listens("/proc/net/tcp") && listens("/proc/net/tcp6"));

	far_write(program, &good, sizeof(good));
}

static void far_sockets(int program)
{
	unsigned port = 0;
	int listener = far_listen(address, &port);
	char number[12], *words[] = {"/proc/self/exe", "--calls", number, NULL};
	pid_t pid;

	snprintf(number, sizeof(number), "%d", listener);
	pid = start(words, listener);
	close(listener);
	if (far_write(program, &port, sizeof(port)))
		wait_end(pid);
	else
		kill(pid, SIGKILL);
}

/* ---- twins ---- */

static int32_t answer(const struct twin_question *question, pid_t pid)
{
	return question->ask == TWIN_ASLEEP ? process_asleep(pid) : kill(pid, question->signal);
}

/* Until it has ended; its parent asks meanwhile. A kill is answered when that has been the end. */
static int watch(pid_t pid, int parent)
{
	struct pollfd pfd[2] = {{.fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN},
				{.fd = parent, .events = POLLIN}};
	struct twin_question question;
	bool owed = false;
	int32_t said = 0;
	int status = 0;

	while (poll(pfd, 2, -1) < 0 || !pfd[0].revents) {
		if (!far_read(parent, &question, sizeof(question))) {
			kill(pid, SIGKILL);
			pfd[1].fd = -1;
			continue;
		}
		said = answer(&question, pid);
		owed = question.ask == TWIN_KILL;
		if (!owed)
			far_write(parent, &said, sizeof(said));
	}
	waitpid(pid, &status, 0);
	close(pfd[0].fd);
	if (owed)
		far_write(parent, &said, sizeof(said));
	return status;
}

static pid_t start_twin(char **words, int listener, int output)
{
	char number[12];
	pid_t pid;

	snprintf(number, sizeof(number), "%d", listener);
	setenv(TWIN_LISTENER, number, 1);
	snprintf(number, sizeof(number), "%d", output);
	setenv(TWIN_OUTPUT, number, 1);
	fcntl(output, F_SETFD, 0);
	pid = start(words, listener);
	unsetenv(TWIN_LISTENER);
	unsetenv(TWIN_OUTPUT);
	return pid;
}

static void twin(int program, int main_listener, char *text, size_t len)
{
	char *words[TWIN_WORDS + 1] = {NULL}, said[65536];
	struct twin_end end = {.status = 0};
	unsigned port = 0, n;
	int listener = far_listen(address, &port), parent, output[2];
	pid_t pid;

	for (n = 0; len && n < TWIN_WORDS; n++) {
		words[n] = text;
		len -= strlen(text) + 1;
		text += strlen(text) + 1;
	}
	setenv("CONFORMANCE_FAR_ADDRESS", words[0], 1);
	if (!far_write(program, &port, sizeof(port)))
		return;
	/* its second connection: nobody else comes in between */
	parent = far_accept(main_listener);
	if (pipe2(output, O_CLOEXEC))
		far_die("pipe");
	pid = start_twin(words + 1, listener, output[1]);
	close(output[1]);
	close(listener);
	end.status = watch(pid, parent);
	close(parent);
	fcntl(output[0], F_SETFL, O_NONBLOCK);
	end.bytes = 0;
	while (end.bytes < sizeof(said)) {
		ssize_t r = read(output[0], said + end.bytes, sizeof(said) - end.bytes);

		if (r <= 0)
			break;
		end.bytes += r;
	}
	close(output[0]);
	far_write(program, &end, sizeof(end));
	far_write(program, said, end.bytes);
}

static void serve(int listener)
{
	int program = far_accept(listener);
	struct far_start want;
	char words[4096];

	if (program < 0 || !far_read(program, &want, sizeof(want)) || want.bytes > sizeof(words) ||
	    !far_read(program, words, want.bytes))
		fprintf(stderr, "agent: a connection without a meaning\n");
	else if (want.kind == FAR_HEALTH)
		health(program);
	else if (want.kind == FAR_SOCKETS)
		far_sockets(program);
	else
		twin(program, listener, words, want.bytes);
	close(program);
}

int main(int argc, char **argv)
{
	unsigned port = FAR_PORT;
	int listener;

	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "--calls"))
		serve_calls(atoi(argv[2]));
	if (!strcmp(argv[1], "--resident"))
		stay(argv + 2);
	if (!strcmp(argv[1], "--meet") && argc == 4)
		meet(argv[2], argv[3]);
	address = argv[1];
	listener = far_listen(address, &port);
	resident(argv + 2);
	puts("agent: ready");
	fflush(stdout);
	for (;;)
		serve(listener);
}
