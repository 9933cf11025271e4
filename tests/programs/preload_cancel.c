/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_cancel - a thread is cancelled in every call that sleeps: on a socket of its own process,
 * and on one that another process has opened, which may be stopped. Afterwards the socket works for
 * others, nothing is lost, no descriptor is left over.
 */
#include "cancel_calls.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { ROUNDS = 6, RACES = 100, HURRIED = 40 };
#define RDS_CANCEL_SENT_TO 1

static int sink; /* where nobody reads */
static struct sockaddr_in at, out_at, sink_at, far_at;
static volatile int tid;

/* ---- a thread that sleeps in one, and is cancelled ---- */

static void *sleeper(void *arg)
{
	const struct call *call = arg;
	ssize_t rc;

	__atomic_store_n(&tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	rc = call->make();
	check(0, "%s returns %zd instead of sleeping", call->name, rc);
	return NULL;
}

static void join(pthread_t thread, const char *name, void **result)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += test_deadline_ms(10000) / 1000;
	if (pthread_timedjoin_np(thread, result, &ts) == 0)
		return;
	fprintf(stderr, "still waits: %s is not cancelled\n", name);
	check(pthread_join(thread, result) == 0, "pthread_join");
}

static void cancel_in(const struct call *call)
{
	pthread_t thread;
	void *result;

	tid = 0;
	check(pthread_create(&thread, NULL, sleeper, (void *)call) == 0, "pthread_create");
	test_until(__atomic_load_n(&tid, __ATOMIC_ACQUIRE));
	test_sleeps(tid);
	pthread_cancel(thread);
	join(thread, call->name, &result);
	check(result == PTHREAD_CANCELED, "%s", call->name);
}

/* Before it sleeps, or on its way there. */
static void cancel_at_once(const struct call *call)
{
	pthread_t thread;
	void *result;

	for (int i = 0; i < HURRIED; i++) {
		check(pthread_create(&thread, NULL, sleeper, (void *)call) == 0, "pthread_create");
		for (volatile int spin = 0; spin < i * 500; spin++)
			;
		pthread_cancel(thread);
		join(thread, call->name, &result);
		check(result == PTHREAD_CANCELED, "%s", call->name);
	}
}

static void send_one(void)
{
	check(sendto(fd, "m", 1, 0, (struct sockaddr *)&at, sizeof(at)) == 1, "sendto");
}

static void drained(int from)
{
	char c[BIG];

	while (recv(from, c, sizeof(c), MSG_DONTWAIT) >= 0)
		;
	check(errno == EAGAIN, "recv");
}

/* What a socket or a connection opens when it is first needed is no leak; one of every round is. */
static void rounds(const struct call *call, void (*after)(const struct call *))
{
	int before = descriptors(), more;

	for (int i = 0; i < ROUNDS; i++) {
		cancel_in(call);
		after(call);
	}
	more = descriptors() - before;
	check(more < ROUNDS, "%s leaves descriptors: %d of %d rounds", call->name, more, ROUNDS);
	cancel_at_once(call);
	after(call);
}

static void after_receive(const struct call *call)
{
	send_one();
	check(call->make() == 1, "%s after a cancelled one", call->name);
	drained(fd);
}

/* ---- sends that cannot go on: the receiver is congested, or the send buffer is full ---- */

static void fill(int err)
{
	ssize_t n;

	do {
		n = sendto(out, data, BIG, MSG_DONTWAIT, (struct sockaddr *)to, sizeof(*to));
	} while (n == BIG);
	check(n == -1 && errno == err, "%zd, errno %d instead of %d", n, errno, err);
}

static void after_congested(const struct call *call)
{
	drained(sink);
	check(call->make() > 0, "%s after a cancelled one", call->name);
	fill(ENOBUFS);
}

static void after_full(const struct call *call)
{
	check(setsockopt(out, 276, RDS_CANCEL_SENT_TO, to, sizeof(*to)) == 0, "RDS_CANCEL_SENT_TO");
	check(call->make() > 0, "%s after a cancelled one", call->name);
	fill(EAGAIN);
}

static void blocked_sends(struct sockaddr_in *where, int err, void (*after)(const struct call *))
{
	to = where;
	check(connect(out, (struct sockaddr *)to, sizeof(*to)) == 0, "connect");
	fill(err);
	for (size_t i = 0; i < COUNT(sends); i++)
		rounds(&sends[i], after);
	check(setsockopt(out, 276, RDS_CANCEL_SENT_TO, to, sizeof(*to)) == 0, "RDS_CANCEL_SENT_TO");
}

/* ---- RDS_BARRIER of 2008: it waits for an operation whose target stands still ---- */

enum { SOL_RDS_LEVEL = 276, GET_MR = 2, BARRIER = 4, RDMA_ARGS = 1, RDMA_WRITE = 1 };
struct target {
	struct sockaddr_in at;
	uint64_t cookie;
};
static struct target target;
static pid_t target_pid;
static uint64_t last_id;

static void be_target(void *arg)
{
	static char region[BIG];
	struct target me = { 0 };
	uint64_t args[4] = { (uintptr_t)region, BIG, (uintptr_t)&me.cookie, 1 };
	int *pipes = arg, s = bound(&me.at);
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* else it may stand there for ever */
	check(setsockopt(s, SOL_RDS_LEVEL, GET_MR, args, sizeof(args)) == 0, "GET_MR");
	tell(pipes[1], &me, sizeof(me));
	while (recv(s, &c, 1, 0) >= 0)
		;
}

static void process_is(pid_t pid, char state, int sig)
{
	char path[32], text[256], *p;
	FILE *f;

	kill(pid, sig);
	do { /* it may be no child, and waitpid() says nothing of it */
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		f = fopen(path, "r");
		check(f && fgets(text, sizeof(text), f), "%s", path);
		fclose(f);
		p = strrchr(text, ')');
	} while (!p || (p[2] == 'T') != (state == 'T'));
}

static void target_is(char state, int sig)
{
	process_is(target_pid, state, sig);
}

static ssize_t c_barrier(void)
{
	uint64_t mark = 0;
	struct {
		uint32_t daddr, hole;
		uint64_t flags, id_addr, wait_id;
	} args = { target.at.sin_addr.s_addr, 0, 0, (uintptr_t)&mark, last_id };
	int rc = setsockopt(fd, SOL_RDS_LEVEL, BARRIER, &args, sizeof(args));

	return rc == 0 && mark >= last_id ? 1 : -1;
}
static const struct call barrier = CALL(barrier);

static void write_to_target(void)
{
	struct iovec local = { data, BIG }, none = { data, 0 };
	uint64_t args[8] = { target.cookie, 0, BIG, (uintptr_t)&local, 1, RDMA_WRITE, (uintptr_t)&last_id, 0 };
	char control[CMSG_SPACE(sizeof(args))] __attribute__((aligned(8)));
	struct msghdr msg = { .msg_name = &target.at, .msg_namelen = sizeof(target.at), .msg_iov = &none, .msg_iovlen = 1,
			      .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_RDS_LEVEL;
	c->cmsg_type = RDMA_ARGS;
	c->cmsg_len = CMSG_LEN(sizeof(args));
	memcpy(CMSG_DATA(c), args, sizeof(args));
	check(sendmsg(fd, &msg, 0) == 0 && last_id, "RDMA write");
}

static void after_barrier(const struct call *call)
{
	target_is('S', SIGCONT);
	check(call->make() == 1, "RDS_BARRIER after a cancelled one");
	target_is('T', SIGSTOP);
	write_to_target();
}

static void barriers(void)
{
	last_id = 0;
	check(c_barrier() == 1, "RDS_BARRIER"); /* says which age we are of */
	target_is('T', SIGSTOP);
	write_to_target();
	rounds(&barrier, after_barrier);
	target_is('S', SIGCONT);
	check(c_barrier() == 1, "RDS_BARRIER");
}

/* ---- calls that may sleep, and never do ---- */

static unsigned turns;

static void *sends_all_the_time(void *arg)
{
	char c;

	while (sendto(fd, "m", 1, 0, (struct sockaddr *)&at, sizeof(at)) == 1) {
		(void)!recv(fd, &c, 1, MSG_DONTWAIT);
		__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED);
	}
	return arg;
}

static void *receives_all_the_time(void *arg)
{
	char c;

	while (sendto(fd, "m", 1, MSG_DONTWAIT, (struct sockaddr *)&at, sizeof(at)) == 1) {
		check(recv(fd, &c, 1, 0) == 1, "recv");
		__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED);
	}
	return arg;
}

static void busy(const char *name, void *(*role)(void *))
{
	pthread_t thread;
	void *result;

	turns = 0;
	check(pthread_create(&thread, NULL, role, NULL) == 0, "pthread_create");
	test_until(__atomic_load_n(&turns, __ATOMIC_RELAXED) > 1000);
	pthread_cancel(thread);
	join(thread, name, &result);
	check(result == PTHREAD_CANCELED, "%s", name);
	drained(fd);
}

/* ---- a message that comes at that moment is received, or still there ---- */

static void *taker(void *arg)
{
	char c;
	ssize_t n;

	(void)arg;
	n = recv(fd, &c, 1, 0);
	check(n == 1, "recv: %zd", n);
	return fd ? NULL : arg;
}

static void races(void)
{
	for (int i = 0; i < RACES; i++) {
		struct pollfd p = { fd, POLLIN, 0 };
		pthread_t thread;
		void *result;
		char c;

		check(pthread_create(&thread, NULL, taker, NULL) == 0, "pthread_create");
		for (volatile int spin = 0; spin < i * 200; spin++)
			;
		if (i & 1)
			send_one();
		pthread_cancel(thread);
		if (!(i & 1))
			send_one();
		join(thread, "recv", &result);
		if (result != PTHREAD_CANCELED)
			continue;
		check(poll(&p, 1, TEST_COMES) == 1, "cancelled, and the message is lost");
		check(recv(fd, &c, 1, MSG_DONTWAIT) == 1, "cancelled, and the message is lost");
	}
	drained(fd);
}

/* ---- */

static void all(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct pollfd p = { fd, POLLIN, 0 };

	/*
	 * The first poll may report a congestion map that has come with the connection: have that
	 * over.
	 */
	send_one();
	drained(fd);
	poll(&p, 1, 0);
	ep = epoll_create1(0);
	check(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "EPOLL_CTL_ADD");
	for (size_t i = 0; i < COUNT(receives); i++)
		rounds(&receives[i], after_receive);
	for (size_t i = 0; i < COUNT(waits); i++)
		rounds(&waits[i], after_receive);
	busy("send after send", sends_all_the_time);
	busy("recv after recv", receives_all_the_time);
	races();
	barriers();
	blocked_sends(&far_at, EAGAIN, after_full);
	if (sink >= 0) {
		blocked_sends(&sink_at, ENOBUFS, after_congested);
		drained(sink);
	}
	close(ep);
}

/*
 * ---- the process that has opened the socket is stopped: the call waits for that, and is left all
 * the same ----
 */

static void go_on(void)
{
	kill(getppid(), SIGCONT);
}

static sigjmp_buf back;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

static void *jumper(void *arg)
{
	return sigsetjmp(back, 1) ? PTHREAD_CANCELED : sleeper(arg);
}

static void left_while_stopped(const struct call *call, void *(*role)(void *))
{
	static const struct timespec ms = { 0, 1000000 };
	pthread_t thread;
	void *result;
	int in_a_row = 0;

	process_is(getppid(), 'T', SIGSTOP);
	tid = 0;
	check(pthread_create(&thread, NULL, role, (void *)call) == 0, "pthread_create");
	while (in_a_row < 50) { /* more than one look at what has become of the process */
		nanosleep(&ms, NULL);
		in_a_row = __atomic_load_n(&tid, __ATOMIC_ACQUIRE) && test_asleep(tid) ? in_a_row + 1 : 0;
	}
	if (role == jumper)
		pthread_kill(thread, SIGUSR1);
	else
		pthread_cancel(thread);
	join(thread, call->name, &result);
	check(result == PTHREAD_CANCELED, "%s", call->name);
	process_is(getppid(), 'S', SIGCONT);
}

static void after_stopped_receive(const struct call *call)
{
	send_one();
	check(call->make() == 1, "%s after one that was left", call->name);
	drained(fd);
}

/* What was to be sent by the call that was left is not there. */
static void after_stopped_send(const struct call *call)
{
	char c[BIG];

	check(call->make() == BIG || call->make == c_sendmmsg, "%s after one that was left", call->name);
	check(sendto(out, "m", 1, 0, (struct sockaddr *)to, sizeof(*to)) == 1, "sendto");
	check(recv(fd, c, sizeof(c), 0) == BIG && recv(fd, c, sizeof(c), 0) == 1, "%s was made after it was left", call->name);
}

/* Where a call that was interrupted can be left (librdspreload(7), Calls in signal handlers). */
static int jumps(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
	const char *preload = getenv("LD_PRELOAD");

	return !preload || !strstr(preload, "libasan");
#else
	return 0;
#endif
}

static void stopped_carrier(void)
{
	struct sigaction sa = { .sa_handler = jump, .sa_flags = SA_RESTART };

	atexit(go_on);
	sigaction(SIGUSR1, &sa, NULL);
	to = &at;
	for (size_t i = 0; i < COUNT(receives); i++) {
		left_while_stopped(&receives[i], sleeper);
		after_stopped_receive(&receives[i]);
		if (jumps())
			left_while_stopped(&receives[i], jumper);
		after_stopped_receive(&receives[i]);
	}
	check(connect(out, (struct sockaddr *)to, sizeof(*to)) == 0, "connect");
	for (size_t i = 0; i < COUNT(sends); i++) {
		left_while_stopped(&sends[i], sleeper);
		after_stopped_send(&sends[i]);
		if (jumps())
			left_while_stopped(&sends[i], jumper);
		after_stopped_send(&sends[i]);
	}
}

static void holder(void *arg)
{
	(void)arg;
	all();
	stopped_carrier();
}

/* Sockets of 127.0.0.0/8 know no congestion: any other address of this machine. */
static int bound_elsewhere(struct sockaddr_in *sin)
{
	struct ifaddrs *all_of_them, *i;
	socklen_t len = sizeof(*sin);
	int s = socket(PF_RDS, SOCK_SEQPACKET, 0), rc = -1;

	check(s >= 0, "socket");
	check(getifaddrs(&all_of_them) == 0, "getifaddrs");
	for (i = all_of_them; i && rc; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK))
			continue;
		*sin = *(struct sockaddr_in *)(void *)i->ifa_addr;
		sin->sin_port = 0;
		rc = bind(s, (struct sockaddr *)sin, sizeof(*sin));
	}
	freeifaddrs(all_of_them);
	if (!rc && getsockname(s, (struct sockaddr *)sin, &len) == 0)
		return s;
	close(s);
	return -1;
}

/* No thread is inside of it any more: with its last descriptor it is gone, and its port is free. */
static void ended(int s, struct sockaddr_in *sin)
{
	close(s);
	s = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(bind(s, (struct sockaddr *)sin, sizeof(*sin)) == 0, "port %d is still taken", ntohs(sin->sin_port));
	close(s);
}

int main(void)
{
	int size = 16 * BIG, before, pipes[2];

	check(pipe(pipes) == 0, "pipe");
	target_pid = start(be_target, pipes);
	hear(pipes[0], &target, sizeof(target));
	fd = bound(&at);
	out = bound_elsewhere(&out_at);
	sink = out >= 0 ? bound_elsewhere(&sink_at) : -1;
	if (sink >= 0)
		check(setsockopt(sink, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0, "SO_RCVBUF");
	else
		out = bound(&out_at);
	far_at = loopback(out_at.sin_port);
	inet_pton(AF_INET, "198.51.100.1", &far_at.sin_addr); /* no host has that address */
	all();

	/* The same in a child, for sockets that this process owns. */
	finished(start(holder, NULL));
	before = descriptors();
	finished(start(holder, NULL));
	/* the library's thread, with whose descriptors they may be, has yet to hear of the end */
	test_await(descriptors() <= before, "for the carrier: %d descriptors, then %d", before, descriptors());
	ended(fd, &at);
	ended(out, &out_at);
	if (sink >= 0)
		ended(sink, &sink_at);
	kill(target_pid, SIGKILL);
	waitpid(target_pid, NULL, 0);
	printf("cancelled in %zu calls, at home and away%s\n", COUNT(receives) + COUNT(waits) + COUNT(sends) + 1,
	       sink < 0 ? "; no address but 127.0.0.1: without congestion" : "");
	return 0;
}
