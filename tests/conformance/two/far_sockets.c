/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Numbers that stand for sockets of the other host, where ports are, and how a call gets there; see
 * far.h.
 *
 * A program's sockets are shared out between the hosts: a new one is of the host that has fewer of
 * those that are open, and if both have the same number it is a far one with CONFORMANCE_FAR=first,
 * else one of this host.
 */
#include "far.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#define NUMBERS 1024
#define MEMORY_MAX (64UL << 20) /* what says that it is longer is not there */

/* ---- numbers and ports ---- */

static struct number {
	int remote;	/* 0: none; else one more than the agent's */
	int remote_set; /* the same of an epoll set's companion */
	unsigned port;
	bool rds; /* by rds_socket() */
} numbers[NUMBERS];

static bool ports_here[65536], ports_there[65536];

static struct number *number(int fd)
{
	static struct number none;

	return fd >= 0 && fd < NUMBERS ? &numbers[fd] : &none;
}

int far_of(int fd)
{
	return number(fd)->remote - 1;
}

int far_set_of(int fd)
{
	return number(fd)->remote_set - 1;
}

void far_set(int fd, int remote)
{
	number(fd)->remote_set = remote + 1;
}

int far_new(int remote)
{
	int fd = eventfd(0, 0);

	if (fd < 0 || fd >= NUMBERS)
		far_die("a number for a far socket");
	numbers[fd] = (struct number){.remote = remote + 1};
	return fd;
}

bool far_next(void)
{
	const char *which = getenv("CONFORMANCE_FAR");
	int i, here = 0, there = 0;

	for (i = 0; i < NUMBERS; i++) {
		here += numbers[i].rds && !numbers[i].remote;
		there += numbers[i].rds && numbers[i].remote;
	}
	return here == there ? which && !strcmp(which, "first") : here > there;
}

int far_counts(int fd)
{
	number(fd)->rds = true;
	return fd;
}

/* Several numbers may be of one socket, which keeps its port until the last of them is closed. */
bool far_gone(int fd)
{
	struct number *gone = number(fd);
	bool far = gone->remote, others = false;
	unsigned port = gone->port;
	int i;

	*gone = (struct number){.remote = 0};
	for (i = 0; i < NUMBERS; i++)
		others |= numbers[i].port == port && !numbers[i].remote == !far;
	if (port && !others)
		*(far ? &ports_there[port] : &ports_here[port]) = false;
	return far;
}

void far_bound(int fd)
{
	struct name name = {.len = sizeof(name.ss)};
	unsigned port;

	if (getsockname(fd, &name.sa, &name.len))
		return;
	port = name_port(&name);
	if (fd >= NUMBERS || !port)
		return;
	numbers[fd].port = port;
	*(far_of(fd) < 0 ? &ports_here[port] : &ports_there[port]) = true;
}

static bool there(int fd, unsigned port, bool binding)
{
	bool far = far_of(fd) >= 0;

	if (binding)
		return far;
	if (port && ports_here[port])
		return false;
	/* Port 0, and those that nobody has: of the other host. */
	return (port && ports_there[port]) || !far;
}

/* Is it all there?  Half of it is nothing that this can deal with. */
static bool readable(const void *at, size_t len, void *copy)
{
	struct iovec to = {copy, len}, from = {(void *)at, len};
	int saved = errno;
	ssize_t n = len > MEMORY_MAX ? -1 : process_vm_readv(getpid(), &to, 1, &from, 1, 0);

	if (n >= 0 && n < (ssize_t)len)
		far_die("memory of which a part is missing");
	errno = saved;
	return n >= 0;
}

const struct sockaddr *far_name(int fd, const void *name, socklen_t len, struct sockaddr_storage *copy, bool binding)
{
	struct name here = name_here(0), other = name_at(getenv("CONFORMANCE_FAR_ADDRESS"), 0);
	struct sockaddr_in *in = (struct sockaddr_in *)copy;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)copy;

	if (!len || len > sizeof(*copy) || len < here.len || !readable(name, len, copy) ||
	    copy->ss_family != here.sa.sa_family)
		return name;
	if (here.sa.sa_family == AF_INET && in->sin_addr.s_addr == here.in.sin_addr.s_addr) {
		if (there(fd, ntohs(in->sin_port), binding))
			in->sin_addr = other.in.sin_addr;
		return (struct sockaddr *)copy;
	}
	if (here.sa.sa_family == AF_INET6 && !memcmp(&in6->sin6_addr, &here.in6.sin6_addr, 16)) {
		if (there(fd, ntohs(in6->sin6_port), binding))
			in6->sin6_addr = other.in6.sin6_addr;
		return (struct sockaddr *)copy;
	}
	return name;
}

/* ---- calls ---- */

/* A thread's connection. */
struct line {
	struct line *next;
	int fd, tid;
	/* 0: there is none yet; the call that is under way, or was the last one */
	uint32_t id, number;
	bool busy;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* lines, control */
static struct line *lines;
/* what is asked about calls goes there, and the agent's part ends with it */
static int control = -1;
static unsigned port;
static pthread_key_t at_end;

static void line_end(void *arg)
{
	struct line *line = arg;

	pthread_mutex_lock(&lock);
	line->tid = 0;
	pthread_mutex_unlock(&lock);
	close(line->fd);
}

static void first_line(void)
{
	int agent = far_begin(FAR_SOCKETS, NULL, 0, &port);

	pthread_key_create(&at_end, line_end);
	control = far_dial(far_agent(), port);
	close(agent);
	if (control < 0)
		far_die("no connection to the agent's part");
}

/* It is there before the thread dials, so that nobody takes it for asleep in its call then. */
static struct line *new_line(void)
{
	struct line *own = calloc(1, sizeof(*own));

	own->tid = syscall(SYS_gettid);
	own->busy = true;
	pthread_mutex_lock(&lock);
	own->next = lines;
	lines = own;
	pthread_mutex_unlock(&lock);
	pthread_setspecific(at_end, own);
	return own;
}

static struct line *own_line(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static __thread struct line *own;
	static uint32_t ids;
	uint32_t id;

	pthread_once(&once, first_line);
	if (own)
		return own;
	own = new_line();
	own->fd = far_dial(far_agent(), port);
	id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
	if (own->fd < 0 || !far_write(own->fd, &id, sizeof(id)))
		far_die("no connection for a thread");
	pthread_mutex_lock(&lock);
	own->id = id;
	own->busy = false;
	pthread_mutex_unlock(&lock);
	return own;
}

static int ask(enum far_ask what, uint32_t id, uint32_t call)
{
	struct far_question question = {what, id, call};
	int32_t answer;

	pthread_mutex_lock(&lock);
	if (!far_write(control, &question, sizeof(question)) || !far_read(control, &answer, sizeof(answer)))
		far_die("the agent's part is gone");
	pthread_mutex_unlock(&lock);
	return answer;
}

int far_asleep(int tid)
{
	struct line *line;
	uint32_t id = 0, call = 0;
	bool busy = false;

	pthread_mutex_lock(&lock);
	for (line = lines; line; line = line->next) {
		if (line->tid == tid && line->busy) {
			busy = true;
			id = line->id;
			call = line->number;
		}
	}
	pthread_mutex_unlock(&lock);
	if (!busy)
		return FAR_NONE;
	return id ? ask(FAR_ASLEEP, id, call) : FAR_DIALS;
}

struct far_made *far_make(enum far_what what, int fd, long a, long b, long c, long d, long e)
{
	struct far_made *made = calloc(1, sizeof(*made));

	made->call = (struct far_call){.what = what, .arg = {fd, a, b, c, d, e}};
	return made;
}

int far_memory(struct far_made *made, const void *at, size_t len, int owner, size_t where, bool back)
{
	char *copy;
	bool good;

	if (owner == FAR_ARG)
		made->call.arg[where] = (long)at;
	if (!at || !len)
		return -1;
	copy = malloc(len > MEMORY_MAX ? 1 : len);
	good = readable(at, len, copy);
	free(copy);
	if (!good)
		return -1;
	if (made->n == ARRAY_SIZE(made->piece))
		far_die("too many pieces of memory");
	made->at[made->n] = (void *)at;
	made->piece[made->n] = (struct far_piece){len, owner, where, back};
	made->bytes += len;
	return made->n++;
}

/*
 * A signal comes while the call sleeps: the thread that makes it gets one of the same kind, and
 * what it then returns counts.
 */
static void until_answered(struct line *line)
{
	struct pollfd pfd = {.fd = line->fd, .events = POLLIN};
	struct sigaction sa;

	while (poll(&pfd, 1, -1) < 0) {
		if (errno != EINTR)
			far_die("poll");
		sigaction(SIGUSR1, NULL, &sa);
		ask(sa.sa_flags & SA_RESTART ? FAR_RESTART : FAR_INTERRUPT, line->id, line->number);
	}
}

static bool send_call(struct line *line, struct far_made *made)
{
	bool good;
	unsigned i;

	made->call.pieces = made->n;
	made->call.bytes = made->bytes;
	made->call.number = line->number;
	good = far_write(line->fd, &made->call, sizeof(made->call)) &&
	       far_write(line->fd, made->piece, made->n * sizeof(made->piece[0]));
	for (i = 0; good && i < made->n; i++)
		good = far_write(line->fd, made->at[i], made->piece[i].length);
	return good;
}

long far_do(struct far_made *made)
{
	struct line *line = own_line();
	struct far_result result;
	unsigned i;
	bool good;

	__atomic_add_fetch(&line->number, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&line->busy, true, __ATOMIC_RELEASE);
	good = send_call(line, made);
	if (good)
		until_answered(line);
	good = good && far_read(line->fd, &result, sizeof(result));
	for (i = 0; good && i < made->n; i++)
		if (made->piece[i].back)
			good = far_read(line->fd, made->at[i], made->piece[i].length);
	__atomic_store_n(&line->busy, false, __ATOMIC_RELEASE);
	if (!good)
		far_die("the agent's part is gone");
	free(made);
	if (result.result < 0)
		errno = result.error;
	return result.result;
}
