/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A process that has no descriptor left has a socket whose maker ends, or is killed: it goes on
 * with it, or says at once that it cannot (EMFILE), and can as soon as there are descriptors again.
 * Nothing is lost.
 */
#include "rdsconf.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define LIMIT 256
#define MARGIN 500 /* ms: of a busy machine */
#define FREED 60

static int s;
static const char *stage;
static int first_dup;

static const char *named(const char *what)
{
	return text("%s-%s", stage, what);
}

static void fill_up(void)
{
	int fd;

	first_dup = 0;
	while ((fd = dup(0)) >= 0)
		if (!first_dup)
			first_dup = fd;
	check(named("full"), "-1 EMFILE", "%s", rc(fd));
}

static void free_some(void)
{
	int fd, n = 0;

	for (fd = first_dup; n < FREED && fd < LIMIT; fd++)
		n += !close(fd);
}

/* True: it has what the kernel would have given. */
static bool at_once(const char *what, int want, long r, long long began)
{
	bool got = r == want, said = r < 0 && (errno == EMFILE || errno == EAGAIN);
	long long took = now_ms() - began;

	if (!got && !said)
		check(named(text("%s-result", what)), "", "%s", rc(r));
	check(named(text("%s-at-once", what)), "1", "%d", (got || said) && in_bounds(took, MARGIN));
	return got;
}

/* runs: it uses RDS already.  must: nothing more is needed then. */
static void holder(int fd, const struct other *maker, bool runs, bool must)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	int set = epoll_create1(0), n = 0, own = -1;
	struct epoll_event event = {.events = EPOLLIN};
	char buf[10];
	long long began;

	if (runs)
		own = rds_bound();
	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	settle(fd);
	fill_up();
	say(maker);
	until_gone(maker);
	began = now_ms();
	check(named("poll"), "1", "%s", rc(poll(&pfd, 1, TEST_COMES)));
	check(named("poll-at-once"), "1", "%d", in_bounds(now_ms() - began, MARGIN + 1000));
	began = now_ms();
	check(named("epoll"), "1", "%s", rc(epoll_wait(set, &event, 1, TEST_COMES)));
	check(named("epoll-at-once"), "1", "%d", in_bounds(now_ms() - began, MARGIN + 1000));
	began = now_ms();
	n += at_once("recv", 4, recv(fd, buf, sizeof(buf), 0), began);
	if (must)
		check(named("goes-on"), "1 errno 0", "%d errno %d", n, n ? 0 : errno);
	began = now_ms();
	n += at_once("dontwait", 4, recv(fd, buf, sizeof(buf), MSG_DONTWAIT), began);
	free_some();
	while (n < 3 && recv(fd, buf, sizeof(buf), 0) == 4)
		n++;
	check(named("all-there"), "3", "%d", n);
	check(named("no-more"), "-1 EAGAIN", "%s", rc(recv(fd, buf, sizeof(buf), MSG_DONTWAIT)));
	check(named("send"), "4", "%s", rc(send_to(fd, s, "done", 4, 0)));
	close(own);
	_exit(0);
}

static void gone(const char *name, bool killed, bool runs)
{
	struct other maker, other;
	struct name to;
	char buf[10];
	int d, i;

	stage = name;
	if (fork_other(&maker)) {
		d = rds_bound();
		if (fork_other(&other))
			holder(d, &other, runs, runs && killed);
		hear(&other);
		name_to(&maker, d);
		hear(&maker);
		if (killed)
			raise(SIGKILL);
		_exit(0);
	}
	name_from(&maker, &to);
	say(&maker);
	check(named("end"), killed ? "signal 9" : "exit 0", "%s", end_of(&maker));
	for (i = 0; i < 3; i++)
		sendto(s, "1234", 4, 0, &to.sa, to.len);
	check(named("done"), "1", "%d", wait_message(s) && recv(s, buf, sizeof(buf), MSG_DONTWAIT) == 4);
	check(named("port-free"), "1", "%d", free_again(&to));
}

static void limit(rlim_t n)
{
	struct rlimit rl;

	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = n;
	setrlimit(RLIMIT_NOFILE, &rl);
}

static long sets(void *fd)
{
	timeouts(*(int *)fd, SO_RCVTIMEO, 0);
	return 0;
}

/*
 * One that makes its first calls on a socket while the process that has opened it can open nothing
 * more; the last of them cannot be answered until it can.
 */
static void newcomer(int fd, const struct other *maker)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct helper helper;
	long long began;
	struct name name;
	char buf[10];

	hear(maker);
	began = now_ms();
	limit(LIMIT);
	check(named("nothing-there"), "-1 EAGAIN", "%s", rc(recv(fd, buf, sizeof(buf), MSG_DONTWAIT)));
	settle(fd);
	check(named("poll-nothing"), "0", "%s", rc(poll(&pfd, 1, 200)));
	helper_start(&helper, sets, &fd);
	helper_asleep(&helper);
	say(maker);
	helper_ends(&helper);
	check(named("quick-enough"), "1", "%d", in_bounds(now_ms() - began, 1500 + test_patience_ms(1000)));
	say(maker);
	check(named("recv"), "4", "%s", rc(recv(fd, buf, sizeof(buf), 0)));
	name = name_of(fd);
	check(named("name"), "1", "%d", name_port(&name) != 0);
	_exit(0);
}

/* One that puts the socket into an epoll set meanwhile. */
static void watcher(int fd, const struct other *maker)
{
	struct epoll_event event = {.events = EPOLLIN};
	int set = epoll_create1(0);
	char buf[10];

	hear(maker);
	check(named("epoll-add"), "0", "%s", rc(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)));
	say(maker);
	say(maker);
	check(named("epoll"), "1", "%s", rc(epoll_wait(set, &event, 1, TEST_COMES)));
	check(named("recv"), "4", "%s", rc(recv(fd, buf, sizeof(buf), 0)));
	_exit(0);
}

/* The maker can open things again when the other one waits for that, and then sends it a message. */
static void full_maker(const char *name, void (*child)(int fd, const struct other *maker))
{
	struct other other;
	int d, low;

	stage = name;
	d = rds_bound();
	low = dup(0);
	close(low);
	if (fork_other(&other))
		child(d, &other);
	limit((rlim_t)low);
	check(named("full"), "-1 EMFILE", "%s", rc(dup(0)));
	say(&other);
	hear(&other);
	limit(LIMIT);
	hear(&other);
	check(named("send"), "4", "%s", rc(send_to(s, d, "1234", 4, 0)));
	check(named("end"), "exit 0", "%s", end_of(&other));
	close(d);
}

int main(int argc, char **argv)
{
	struct rlimit rl;

	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = LIMIT;
	setrlimit(RLIMIT_NOFILE, &rl);
	conf_begin(argc, argv);
	if (conf_transport == RDS_TRANS_IB)
		conf_skip("descriptors are those of the process, whatever the transport");
	s = rds_bound();
	label(s, "s");
	gone("exit", false, false);
	gone("kill", true, false);
	gone("exit-runs", false, true);
	gone("kill-runs", true, true);
	full_maker("full-maker", newcomer);
	full_maker("full-maker-epoll", watcher);
	return conf_end();
}
