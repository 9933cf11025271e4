/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The agent's part for one program with far sockets: a process (under the preload, or on kernel
 * RDS), and in it a thread for each of the program's threads that makes their calls; see far.h.  It
 * ends with the program.
 */
#include "agent.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>

#define LINES 256

/* A thread, by the number that the program's side gave it. */
static struct server {
	pthread_t thread;
	struct helper helper; /* for helper_asleep() */
	int fd;
	uint32_t started, ended; /* numbers of calls */
} servers[LINES];

static void *at(int64_t address)
{
	return (void *)(intptr_t)address;
}

static long socket_call(enum far_what what, const int64_t *a)
{
	switch (what) {
	case FAR_SOCKET:
		return socket(a[0], a[1], a[2]);
	case FAR_BIND:
		return bind(a[0], at(a[1]), a[2]);
	case FAR_CONNECT:
		return connect(a[0], at(a[1]), a[2]);
	case FAR_GETSOCKNAME:
		return getsockname(a[0], at(a[1]), at(a[2]));
	case FAR_GETPEERNAME:
		return getpeername(a[0], at(a[1]), at(a[2]));
	case FAR_SETSOCKOPT:
		return setsockopt(a[0], a[1], a[2], at(a[3]), a[4]);
	case FAR_GETSOCKOPT:
		return getsockopt(a[0], a[1], a[2], at(a[3]), at(a[4]));
	case FAR_SHUTDOWN:
		return shutdown(a[0], a[1]);
	case FAR_FCNTL:
		return fcntl(a[0], a[1], a[2]);
	case FAR_IOCTL:
		return ioctl(a[0], a[1], at(a[2]));
	case FAR_CLOSE:
		return close(a[0]);
	case FAR_DUP:
		return dup(a[0]);
	default:
		errno = ENOSYS;
		return -1;
	}
}

static long data_call(enum far_what what, const int64_t *a)
{
	switch (what) {
	case FAR_SEND:
		return send(a[0], at(a[1]), a[2], a[3]);
	case FAR_SENDTO:
		return sendto(a[0], at(a[1]), a[2], a[3], at(a[4]), a[5]);
	case FAR_SENDMSG:
		return sendmsg(a[0], at(a[1]), a[2]);
	case FAR_SENDMMSG:
		return sendmmsg(a[0], at(a[1]), a[2], a[3]);
	case FAR_RECV:
		return recv(a[0], at(a[1]), a[2], a[3]);
	case FAR_RECVFROM:
		return recvfrom(a[0], at(a[1]), a[2], a[3], at(a[4]), at(a[5]));
	case FAR_RECVMSG:
		return recvmsg(a[0], at(a[1]), a[2]);
	case FAR_RECVMMSG:
		return recvmmsg(a[0], at(a[1]), a[2], a[3], at(a[4]));
	case FAR_READ:
		return read(a[0], at(a[1]), a[2]);
	case FAR_WRITE:
		return write(a[0], at(a[1]), a[2]);
	case FAR_READV:
		return readv(a[0], at(a[1]), a[2]);
	case FAR_WRITEV:
		return writev(a[0], at(a[1]), a[2]);
	default:
		return socket_call(what, a);
	}
}

static long make_call(enum far_what what, const int64_t *a)
{
	switch (what) {
	case FAR_POLL:
		return poll(at(a[0]), a[1], a[2]);
	case FAR_SELECT:
		return select(a[0], at(a[1]), at(a[2]), at(a[3]), at(a[4]));
	case FAR_EPOLL_CREATE:
		return epoll_create1(0);
	case FAR_EPOLL_CTL:
		return epoll_ctl(a[0], a[1], a[2], at(a[3]));
	case FAR_EPOLL_WAIT:
		return epoll_wait(a[0], at(a[1]), a[2], a[3]);
	case FAR_COUNTER:
		return counter(at(a[0]));
	default:
		return data_call(what, a);
	}
}

/*
 * ---- one call: its memory gets places here, and what names it their addresses, for the time that
 * it takes ----
 */

struct job {
	struct far_call call;
	struct far_piece *piece;
	char **at;
	void **was; /* what was where the address has gone */
};

static void **owner_of(struct job *job, unsigned i)
{
	const struct far_piece *piece = &job->piece[i];

	return piece->owner < 0 ? (void **)&job->call.arg[piece->where]
				: (void **)(job->at[piece->owner] + piece->where);
}

static bool take(struct job *job, int fd)
{
	unsigned i;

	if (!far_read(fd, &job->call, sizeof(job->call)))
		return false;
	job->piece = calloc(job->call.pieces + 1, sizeof(*job->piece));
	job->at = calloc(job->call.pieces + 1, sizeof(*job->at));
	job->was = calloc(job->call.pieces + 1, sizeof(*job->was));
	if (!far_read(fd, job->piece, job->call.pieces * sizeof(*job->piece)))
		return false;
	for (i = 0; i < job->call.pieces; i++) {
		job->at[i] = malloc(job->piece[i].length);
		if (!far_read(fd, job->at[i], job->piece[i].length))
			return false;
	}
	for (i = 0; i < job->call.pieces; i++) {
		memcpy(&job->was[i], owner_of(job, i), sizeof(void *));
		memcpy(owner_of(job, i), &job->at[i], sizeof(void *));
	}
	return true;
}

static bool give(struct job *job, int fd, const struct far_result *result)
{
	bool good = far_write(fd, result, sizeof(*result));
	unsigned i;

	for (i = 0; i < job->call.pieces; i++)
		memcpy(owner_of(job, i), &job->was[i], sizeof(void *));
	for (i = 0; i < job->call.pieces; i++) {
		if (job->piece[i].back)
			good = good && far_write(fd, job->at[i], job->piece[i].length);
		free(job->at[i]);
	}
	free(job->piece);
	free(job->at);
	free(job->was);
	return good;
}

static void *serve(void *arg)
{
	struct server *server = arg;
	struct far_result result;
	struct job job;

	server->helper.tid = gettid();
	while (take(&job, server->fd)) {
		__atomic_store_n(&server->started, job.call.number, __ATOMIC_RELEASE);
		errno = 0;
		result.result = make_call(job.call.what, job.call.arg);
		result.error = errno;
		__atomic_store_n(&server->ended, job.call.number, __ATOMIC_RELEASE);
		if (!give(&job, server->fd, &result))
			break;
	}
	close(server->fd);
	return NULL;
}

/* ---- questions about calls ---- */

static bool under_way(const struct server *server, uint32_t number)
{
	return __atomic_load_n(&server->started, __ATOMIC_ACQUIRE) == number &&
	       __atomic_load_n(&server->ended, __ATOMIC_ACQUIRE) != number;
}

static int32_t answer(const struct far_question *question)
{
	struct server *server = &servers[question->link % LINES];
	long long end = now_ms() + TEST_COMES;

	while ((int32_t)(__atomic_load_n(&server->started, __ATOMIC_ACQUIRE) - question->number) < 0 && now_ms() < end)
		usleep(500);
	if (!under_way(server, question->number))
		return 0;
	if (question->ask == FAR_ASLEEP)
		return helper_asleep(&server->helper) && under_way(server, question->number);
	return !pthread_kill(server->thread, question->ask == FAR_RESTART ? SIGUSR2 : SIGUSR1);
}

static void *answers(void *arg)
{
	struct far_question question;
	int fd = *(int *)arg;
	int32_t said;

	while (far_read(fd, &question, sizeof(question))) {
		said = answer(&question);
		if (!far_write(fd, &said, sizeof(said)))
			break;
	}
	exit(0); /* as a program ends that does not close its sockets */
}

static void no_action(int sig)
{
	(void)sig;
}

void serve_calls(int listener)
{
	struct sigaction once = {.sa_handler = no_action}, again = {.sa_handler = no_action, .sa_flags = SA_RESTART};
	pthread_t thread;
	int control, fd;
	uint32_t id;

	sigaction(SIGUSR1, &once, NULL);
	sigaction(SIGUSR2, &again, NULL);
	control = far_accept(listener);
	if (control < 0 || pthread_create(&thread, NULL, answers, &control))
		exit(1);
	while ((fd = far_accept(listener)) >= 0) {
		if (!far_read(fd, &id, sizeof(id)))
			continue;
		if (id >= LINES)
			far_die("too many threads");
		servers[id].fd = fd;
		if (pthread_create(&servers[id].thread, NULL, serve, &servers[id]))
			exit(1);
	}
	exit(1);
}
