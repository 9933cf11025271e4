/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_threads - several threads on one socket: signals (EINTR, SA_RESTART) and cancellation in
 * every call that sleeps, a close while another thread is blocked, sending and receiving at once.
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>

static struct sockaddr_in at, sink_at;
static int fd, ep, sink;
static volatile sig_atomic_t signals;
static volatile int tid;

enum call { RECV, READ, RECVMSG, POLL, SELECT, EPOLL, CALLS };
static const char *const names[] = { "recv", "read", "recvmsg", "poll", "select", "epoll_wait" };

static int sleep_in(enum call call)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct epoll_event ev;
	char buf[16];
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	fd_set r;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	switch (call) {
	case RECV:
		return (int)recv(fd, buf, sizeof(buf), 0);
	case READ:
		return (int)read(fd, buf, sizeof(buf));
	case RECVMSG:
		return (int)recvmsg(fd, &msg, 0);
	case POLL:
		return poll(&p, 1, -1);
	case SELECT:
		return select(fd + 1, &r, NULL, NULL, NULL);
	default:
		return epoll_wait(ep, &ev, 1, -1);
	}
}

struct sleeper {
	enum call call;
	int rc, err, done;
};

static void *sleeper(void *arg)
{
	struct sleeper *s = arg;

	__atomic_store_n(&tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	s->rc = sleep_in(s->call);
	s->err = errno;
	__atomic_store_n(&s->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void sleeps(struct sleeper *s)
{
	bool yes = test_sleeps(__atomic_load_n(&tid, __ATOMIC_ACQUIRE)) && !__atomic_load_n(&s->done, __ATOMIC_ACQUIRE);

	errno = s->err;
	check(yes, "%s returns %d instead of sleeping", names[s->call], s->rc);
}

static pthread_t begin(struct sleeper *s, enum call call)
{
	pthread_t thread;

	*s = (struct sleeper){ .call = call };
	tid = 0;
	check(pthread_create(&thread, NULL, sleeper, s) == 0, "pthread_create");
	test_until(__atomic_load_n(&tid, __ATOMIC_ACQUIRE));
	sleeps(s);
	return thread;
}

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void handler(int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };

	sigaction(SIGUSR1, &sa, NULL);
}

static void send_one(void)
{
	check(sendto(fd, "m", 1, 0, (struct sockaddr *)&at, sizeof(at)) == 1, "sendto");
}

static void drain(void)
{
	char c;

	while (recv(fd, &c, 1, MSG_DONTWAIT) == 1)
		;
}

static void interrupted(enum call call)
{
	struct sleeper s;
	pthread_t thread;
	int before = signals;

	handler(0);
	thread = begin(&s, call);
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
	check(s.rc == -1 && s.err == EINTR, "%s: %d, errno %d instead of EINTR", names[call], s.rc, s.err);
	check(signals == before + 1, "handler");

	/* With SA_RESTART a receive goes on, the waiting calls never do. */
	handler(SA_RESTART);
	thread = begin(&s, call);
	pthread_kill(thread, SIGUSR1);
	if (call <= RECVMSG) {
		test_until(signals == before + 2);
		sleeps(&s);
		send_one();
		pthread_join(thread, NULL);
		check(s.rc == 1, "%s: %d, errno %d after the restart", names[call], s.rc, s.err);
	} else {
		pthread_join(thread, NULL);
		check(s.rc == -1 && s.err == EINTR, "%s: %d, errno %d instead of EINTR", names[call], s.rc, s.err);
	}
}

static void cancelled(enum call call)
{
	struct sleeper s;
	pthread_t thread = begin(&s, call);
	void *result;

	pthread_cancel(thread);
	check(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "%s: not cancelled", names[call]);
	send_one(); /* all locks are free, the socket works */
	check(sleep_in(call) == 1, "%s after a cancelled one", names[call]);
	drain();
}

/*
 * The kernel would let the sleeper wait for a message that cannot come any more; here it is told.
 */
static void closed_under(enum call call)
{
	struct sleeper s;
	pthread_t thread;

	thread = begin(&s, call);
	close(fd);
	pthread_join(thread, NULL);
	check(s.rc == -1 && s.err == EBADF, "%s: %d, errno %d instead of EBADF", names[call], s.rc, s.err);
	fd = bound(&at);
}

enum { MESSAGES = 20000 };

static void *receiver(void *arg)
{
	unsigned number;

	for (unsigned i = 0; i < MESSAGES; i++) {
		check(recv(sink, &number, sizeof(number), 0) == sizeof(number), "recv");
		check(number == i, "message %u instead of %u", number, i);
	}
	return arg;
}

static void both_ways(void)
{
	pthread_t thread;

	sink = bound(&sink_at);
	check(pthread_create(&thread, NULL, receiver, NULL) == 0, "pthread_create");
	for (unsigned i = 0; i < MESSAGES; i++)
		check(sendto(sink, &i, sizeof(i), 0, (struct sockaddr *)&sink_at, sizeof(sink_at)) == sizeof(i), "sendto");
	pthread_join(thread, NULL);
	close(sink);
}

/*
 * A socket's first poll may once report a congestion map that has come with the connection: have
 * that over.
 */
static void settle(void)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	send_one();
	drain();
	poll(&p, 1, 0);
}

int main(void)
{
	struct epoll_event ev = { .events = EPOLLIN };

	fd = bound(&at);
	settle();
	ep = epoll_create1(0);
	check(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "EPOLL_CTL_ADD");
	for (enum call c = RECV; c < CALLS; c++)
		interrupted(c);
	for (enum call c = RECV; c < CALLS; c++)
		cancelled(c);
	for (enum call c = RECV; c <= RECVMSG; c++)
		closed_under(c);
	both_ways();
	close(ep);
	close(fd);
	printf("EINTR, SA_RESTART, cancellation, close, send against receive\n");
	return 0;
}
