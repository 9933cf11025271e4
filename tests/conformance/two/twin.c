/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The child of a program that forks lives on the other host: fork() starts the same program there,
 * which goes the same way as far as its own first fork(), and that is the child; see far.h.  So
 * this is for programs that fork before they have opened anything but pipes and pairs of sockets,
 * and whose children do not care for what the parent did before: all of a program's children are
 * alike.
 *
 * On this side a process stands in for the child, which ends as the child has ended, so that it can
 * be waited for.  The pipes and pairs made since the last fork() become TCP connections, in the
 * order of their making on both sides; on those that keep messages apart a length goes first.
 */
#include "far.h"

#include <signal.h>
#include <sys/wait.h>

int __real_pipe(int *ends);
int __real_socketpair(int domain, int type, int protocol, int *ends);
pid_t __real_fork(void);
int __real_kill(pid_t pid, int sig);
bool __real_process_asleep(int pid);
struct name __real_name_here(unsigned port);
int __real_bind(int fd, const struct sockaddr *name, socklen_t len);
ssize_t __real_send(int fd, const void *data, size_t len, int flags);
ssize_t __real_recv(int fd, void *data, size_t len, int flags);
int __real_close(int fd);

#define PAIRS 8
#define NUMBERS 1024

static struct pair {
	int ends[2];
	bool messages;
} pairs[PAIRS];
static unsigned npairs;
static bool keeps_messages[NUMBERS]; /* this number is such a line */
static bool is_twin;
static bool bound[65536];
static pid_t stand_in;
static int questions = -1;

/* ---- what a child is reached by ---- */

static int remember(int r, const int *ends, bool messages)
{
	if (r)
		return r;
	if (npairs == PAIRS)
		far_die("too many pipes");
	pairs[npairs++] = (struct pair){{ends[0], ends[1]}, messages};
	return 0;
}

int __wrap_pipe(int *ends)
{
	return remember(__real_pipe(ends), ends, false);
}

int __wrap_socketpair(int domain, int type, int protocol, int *ends)
{
	return remember(__real_socketpair(domain, type, protocol, ends), ends, type == SOCK_SEQPACKET);
}

/* Both numbers of a pair, of which each side will close one, are now this connection. */
static void becomes(struct pair *pair, int connection)
{
	int i;

	if (connection < 0)
		far_die("a line between parent and child");
	for (i = 0; i < 2; i++) {
		dup2(connection, pair->ends[i]);
		keeps_messages[pair->ends[i]] = pair->messages;
	}
	__real_close(connection);
}

ssize_t __wrap_send(int fd, const void *data, size_t len, int flags)
{
	uint32_t length = len;

	if (fd < 0 || fd >= NUMBERS || !keeps_messages[fd])
		return __real_send(fd, data, len, flags);
	keeps_messages[fd] = false; /* far_write() comes through here */
	if (!far_write(fd, &length, sizeof(length)) || !far_write(fd, data, len))
		len = -1;
	keeps_messages[fd] = true;
	return len;
}

/* The messages are as long as the room for them, or shorter. */
ssize_t __wrap_recv(int fd, void *data, size_t len, int flags)
{
	uint32_t length;
	ssize_t r;

	if (fd < 0 || fd >= NUMBERS || !keeps_messages[fd])
		return __real_recv(fd, data, len, flags);
	keeps_messages[fd] = false;
	if (!far_read(fd, &length, sizeof(length)))
		r = 0;
	else
		r = length <= len && far_read(fd, data, length) ? (ssize_t)length : -1;
	keeps_messages[fd] = true;
	return r;
}

int __wrap_close(int fd)
{
	if (fd >= 0 && fd < NUMBERS)
		keeps_messages[fd] = false;
	return __real_close(fd);
}

/* ---- the child, on the other host ---- */

static int number(const char *variable)
{
	const char *text = getenv(variable);
	int n = text ? atoi(text) : -1;

	unsetenv(variable);
	return n;
}

/* What the program says before its fork() is the parent's to say. */
__attribute__((constructor)) static void twin_begins(void)
{
	int nowhere;

	is_twin = getenv(TWIN_LISTENER);
	if (!is_twin)
		return;
	nowhere = open("/dev/null", O_WRONLY);
	dup2(nowhere, 1);
	__real_close(nowhere);
}

static void twin_goes_on(void)
{
	int listener = number(TWIN_LISTENER), output = number(TWIN_OUTPUT);
	unsigned i;

	if (listener < 0)
		far_die("a twin that forks");
	for (i = 0; i < npairs; i++)
		becomes(&pairs[i], far_accept(listener));
	__real_close(listener);
	fflush(stdout);
	dup2(output, 1);
	__real_close(output);
}

/* ---- the parent's side ---- */

/* Until the child has ended: then as it has, with what it has printed. */
static void stands_in(int agent)
{
	struct twin_end end;
	char said[65536];

	if (!far_read(agent, &end, sizeof(end)) || end.bytes > sizeof(said) || !far_read(agent, said, end.bytes))
		far_die("the child's agent is gone");
	if (end.bytes && write(1, said, end.bytes) < 0)
		_exit(99);
	if (WIFSIGNALED(end.status)) {
		signal(WTERMSIG(end.status), SIG_DFL);
		raise(WTERMSIG(end.status));
	}
	_exit(WEXITSTATUS(end.status));
}

/*
 * The address of this host, the program, and its arguments: the other host's address, and the word
 * behind it.
 */
static size_t command(char *words, size_t room)
{
	char path[300];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n < 0)
		far_die("/proc/self/exe");
	path[n] = 0;
	n = snprintf(words, room, "%s%c%s%c%s%c%s", conf_text, 0, path, 0, getenv("CONFORMANCE_FAR_ADDRESS"), 0,
		     conf_ib ? "ib" : "");
	return n + 1;
}

static void start_twin(int *agent)
{
	char words[1000];
	unsigned port, i;

	if (questions >= 0)
		__real_close(questions);
	*agent = far_begin(FAR_TWIN, words, command(words, sizeof(words)), &port);
	questions = far_dial(far_agent(), FAR_PORT);
	if (questions < 0)
		far_die("no agent");
	for (i = 0; i < npairs; i++)
		becomes(&pairs[i], far_dial(far_agent(), port));
}

pid_t __wrap_fork(void)
{
	unsigned i;
	int agent;

	if (is_twin) {
		twin_goes_on();
		return 0;
	}
	start_twin(&agent);
	stand_in = __real_fork();
	if (!stand_in) {
		alarm(0); /* its end is the child's */
		__real_close(questions);
		for (i = 0; i < npairs; i++) {
			__real_close(pairs[i].ends[0]);
			__real_close(pairs[i].ends[1]);
		}
		stands_in(agent);
	}
	__real_close(agent);
	npairs = 0;
	return stand_in;
}

static int32_t asked(enum twin_ask what, int sig)
{
	struct twin_question question = {what, sig};
	int32_t answer;

	if (!far_write(questions, &question, sizeof(question)) || !far_read(questions, &answer, sizeof(answer)))
		far_die("the child's agent is gone");
	return answer;
}

int __wrap_kill(pid_t pid, int sig)
{
	return pid == stand_in ? asked(TWIN_KILL, sig) : __real_kill(pid, sig);
}

bool __wrap_process_asleep(int pid)
{
	return pid == stand_in ? asked(TWIN_ASLEEP, 0) : __real_process_asleep(pid);
}

/* ---- names: what this process has not bound is the other one's ---- */

struct name __wrap_name_here(unsigned port)
{
	return bound[port % 65536] ? __real_name_here(port) : name_at(getenv("CONFORMANCE_FAR_ADDRESS"), port);
}

int __wrap_bind(int fd, const struct sockaddr *name, socklen_t len)
{
	struct name own = {.len = sizeof(own.ss)};
	int r = __real_bind(fd, name, len);

	if (!r && !getsockname(fd, &own.sa, &own.len))
		bound[name_port(&own)] = true;
	return r;
}
