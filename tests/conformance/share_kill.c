/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process that made a socket is killed, and others have the socket.  They go on as if nothing
 * had happened: those that slept in a call, those that did something else, those that have the
 * socket by fork, exec or a descriptor that was passed, and those that are killed in their turn.
 * If all of them are killed, nothing that was sent to the socket comes to the next one with that
 * port.  All that is sent to the socket afterwards arrives once and in order, and so does what lies
 * in its queue at that moment, if a process that goes on has used the socket.  (Over RDMA devices less
 * is promised.)
 */
#include "rdsconf.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#define ROW 20
#define CREW 8

static int s;
static char *self;

/* The latter: for a set that is in a set, or is waited for by poll() and select(). */
enum sleep {
	AWAKE,
	IN_RECV,
	IN_POLL,
	IN_SELECT,
	IN_EPOLL,
	IN_OLD_EPOLL,
	IN_NESTED,
	IN_OLD_NESTED,
	IN_DEEP,
	IN_POLL_SET,
	IN_SELECT_SET,
	IN_POLL_NESTED,
	SLEEPS
};
static const char *const sleeps[SLEEPS] = {"awake",  "recv",	   "poll", "select",   "epoll",	     "old-epoll",
					   "nested", "old-nested", "deep", "poll-set", "select-set", "poll-nested"};

static int old_set;   /* an epoll set with the socket in it, from before the fork */
static int old_outer; /* one with that in it, which was put there first */

static void put(int set, int fd)
{
	epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN});
}

static int outer_of(int set)
{
	int outer = epoll_create1(0);

	put(outer, set);
	return outer;
}

/* Something to be read from the socket is in a set that is in the one that is waited for. */
static void wait_outside(int fd, enum sleep how)
{
	struct epoll_event event = {.events = 0};
	int set = epoll_create1(0), outer = outer_of(set), r;
	struct pollfd pfd = {.events = POLLIN};
	fd_set in;

	put(set, fd);
	pfd.fd = how == IN_POLL_NESTED ? outer_of(set) : set;
	FD_ZERO(&in);
	FD_SET(set, &in);
	if (how == IN_POLL_SET || how == IN_POLL_NESTED)
		r = poll(&pfd, 1, TEST_COMES);
	else if (how == IN_SELECT_SET)
		r = select(set + 1, &in, NULL, NULL, &(struct timeval){TEST_COMES / 1000, 0});
	else
		r = epoll_wait(how == IN_NESTED ? outer
			       : how == IN_DEEP ? outer_of(outer)
						: old_outer,
			       &event, 1, TEST_COMES);
	check(text("%s-wakes", sleeps[how]), "1", "%d", r);
	r = epoll_wait(how == IN_OLD_NESTED ? old_set : set, &event, 1, TEST_COMES);
	check(text("%s-inside", sleeps[how]), "1 IN", "%d %s", r, poll_bits(event.events));
}

static void wait_for_it(int fd, enum sleep how)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN};
	int set = old_set, r;
	fd_set in;

	if (how >= IN_NESTED) {
		wait_outside(fd, how);
		return;
	}
	FD_ZERO(&in);
	FD_SET(fd, &in);
	if (how == IN_EPOLL) {
		set = epoll_create1(0);
		epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	}
	if (how == IN_POLL) {
		r = poll(&pfd, 1, TEST_COMES);
		check("poll-wakes", "1 IN", "%d %s", r, poll_bits(pfd.revents));
	} else if (how == IN_SELECT) {
		r = select(fd + 1, &in, NULL, NULL, &(struct timeval){TEST_COMES / 1000, 0});
		check("select-wakes", "1", "%d", r);
	} else if (how == IN_EPOLL || how == IN_OLD_EPOLL) {
		r = epoll_wait(set, &event, 1, TEST_COMES);
		check(text("%s-wakes", sleeps[how]), "1 IN", "%d %s", r, poll_bits(event.events));
	}
}

/* Reads them all, says so to s, and ends. */
static void read_row(int fd, const char *name)
{
	int i, number, wrong = 0;

	for (i = 0; i < ROW; i++)
		wrong += recv(fd, &number, sizeof(number), 0) != sizeof(number) || number != i;
	check(text("%s-row", name), "wrong 0", "wrong %d", wrong);
	check(text("%s-no-more", name), "-1 EAGAIN", "%s", rc(recv(fd, &number, 4, MSG_DONTWAIT)));
	send_to(fd, s, "done", 4, 0);
}

static void send_row(const struct name *to)
{
	int i;

	for (i = 0; i < ROW; i++)
		sendto(s, &i, sizeof(i), 0, &to->sa, to->len);
}

static const char *next(int fd)
{
	char buf[20] = "";
	long r = wait_message(fd) ? recv(fd, buf, sizeof(buf), MSG_DONTWAIT) : -1;

	return r < 0 ? rc(r) : text("%ld %.10s", r, buf);
}

/* One borrower, by fork. */
static void slept(enum sleep how)
{
	struct other maker, holder;
	struct name to;
	int d;

	if (fork_other(&maker)) {
		d = rds_bound();
		old_set = epoll_create1(0);
		old_outer = outer_of(old_set);
		put(old_set, d);
		if (fork_other(&holder)) {
			if (how == AWAKE)
				hear(&holder);
			wait_for_it(d, how);
			read_row(d, sleeps[how]);
			_exit(0);
		}
		if (how != AWAKE)
			process_asleep(holder.pid);
		name_to(&maker, d);
		hear(&maker);
		if (how == AWAKE)
			say(&holder);
		raise(SIGKILL);
	}
	name_from(&maker, &to);
	say(&maker);
	check(text("%s-end", sleeps[how]), "signal 9", "%s", end_of(&maker));
	send_row(&to);
	check(text("%s-done", sleeps[how]), "4 done", "%s", next(s));
	check(text("%s-port-free", sleeps[how]), "1", "%d", free_again(&to));
}

/* Some sleep in a receive; each message goes to one of them. */
static void crew(void)
{
	struct other maker, others[CREW];
	int i, d, number, got[ROW * CREW] = {0}, wrong = 0, line[2];
	struct name to;

	if (pipe(line))
		conf_die("pipe");
	if (fork_other(&maker)) {
		d = rds_bound();
		for (i = 0; i < CREW; i++) {
			if (!fork_other(&others[i]))
				continue;
			close(line[0]);
			while (recv(d, &number, sizeof(number), 0) == sizeof(number) && number >= 0)
				if (write(line[1], &number, sizeof(number)) != sizeof(number))
					_exit(1);
			_exit(0);
		}
		for (i = 0; i < CREW; i++)
			process_asleep(others[i].pid);
		name_to(&maker, d);
		hear(&maker);
		raise(SIGKILL);
	}
	close(line[1]);
	name_from(&maker, &to);
	say(&maker);
	check("crew-end", "signal 9", "%s", end_of(&maker));
	for (i = 0; i < ROW * CREW; i++)
		sendto(s, &i, sizeof(i), 0, &to.sa, to.len);
	for (i = 0; i < CREW; i++)
		sendto(s, &(int){-1}, sizeof(i), 0, &to.sa, to.len);
	while (read(line[0], &number, sizeof(number)) == sizeof(number)) /* until all have ended */
		got[number]++;
	for (i = 0; i < ROW * CREW; i++)
		wrong += got[i] != 1;
	check("crew-each-once", "wrong 0", "wrong %d", wrong);
	check("crew-port-free", "1", "%d", free_again(&to));
	close(line[0]);
}

/* What is unread when it is killed is read by another one, which has used the socket before. */
static void unread(void)
{
	struct other maker, holder;
	struct name to;
	int d, byte;

	if (fork_other(&maker)) {
		d = rds_bound();
		if (fork_other(&holder)) {
			check("unread-before", "-1 EAGAIN", "%s", rc(recv(d, &byte, 1, MSG_DONTWAIT)));
			say(&holder);
			hear(&holder);
			until_gone(&maker);
			read_row(d, "unread");
			_exit(0);
		}
		hear(&holder);
		name_to(&maker, d);
		hear(&maker);
		say(&holder);
		raise(SIGKILL);
	}
	name_from(&maker, &to);
	send_row(&to);
	say(&maker);
	check("unread-end", "signal 9", "%s", end_of(&maker));
	check("unread-done", "4 done", "%s", next(s));
	check("unread-port-free", "1", "%d", free_again(&to));
}

/* Names and options are the socket's, not the process's. */
static void state(void)
{
	struct name to = name_of(s), own, peer = {.len = sizeof(peer.ss)};
	struct other maker, holder;
	int value, d;

	if (fork_other(&maker)) {
		d = rds_bound();
		label(d, "d");
		if (fork_other(&holder)) {
			hear(&holder);
			value = read(holder.rd, &value, 1); /* until the other one is gone */
			own = name_of(d);
			getpeername(d, &peer.sa, &peer.len);
			check("state-names", NULL, "%s peer %s", who(&own), who(&peer));
			getsockopt(d, SOL_SOCKET, SO_RCVBUF, &value, &(socklen_t){4});
			check("state-rcvbuf", "60000", "%d", value);
			getsockopt(d, SOL_RDS, RDS_RECVERR, &value, &(socklen_t){4});
			check("state-recverr", "1", "%d", value);
			check("state-nonblock", "-1 EAGAIN", "%s", rc(recv(d, &value, 1, 0)));
			check("state-bind", "-1 EINVAL", "%s", rc(bind(d, &own.sa, own.len)));
			check("state-send", "5", "%s", rc(send(d, "after", 5, 0)));
			_exit(0);
		}
		connect(d, &to.sa, to.len);
		rds_bufs(d, 0, 30000);
		setsockopt(d, SOL_RDS, RDS_RECVERR, &(int){1}, 4);
		fcntl(d, F_SETFL, O_NONBLOCK);
		say(&holder);
		raise(SIGKILL);
	}
	until_gone(&maker); /* and the borrower, which has said all that it had to say */
	check("state-end", "signal 9", "%s", end_of(&maker));
	check("state-sent", "5 after", "%s", next(s));
}

/* ---- who was killed is followed by one that is killed ---- */

#define HEIRS 4

/* They are there before the first one goes; each begins when the one before it is gone. */
static void heirs(int fd, const struct other *maker)
{
	struct other before = *maker, after;
	int n = 1;

	while (n < HEIRS && fork_other(&after)) {
		before = after;
		n++;
	}
	if (n < HEIRS)
		hear(&after);
	say(&before);
	until_gone(&before);
	send_to(fd, s, "here", 4, 0);
	check(text("heir-%d", n), "5 hello", "%s", next(fd));
	if (n < HEIRS)
		raise(SIGKILL);
	read_row(fd, "last-heir");
	_exit(0);
}

static void succession(void)
{
	struct other maker, first;
	struct name to;
	int i, d;

	if (fork_other(&maker)) {
		d = rds_bound();
		if (fork_other(&first))
			heirs(d, &first);
		hear(&first);
		name_to(&maker, d);
		hear(&maker);
		raise(SIGKILL);
	}
	name_from(&maker, &to);
	say(&maker);
	check("succession-end", "signal 9", "%s", end_of(&maker));
	for (i = 1; i <= HEIRS; i++) {
		check(text("heir-%d-is-there", i), "4 here", "%s", next(s));
		sendto(s, "hello", 5, 0, &to.sa, to.len);
	}
	send_row(&to);
	check("last-heir-done", "4 done", "%s", next(s));
	check("succession-port-free", "1", "%d", free_again(&to));
}

/* ---- nobody follows ---- */

/* Who has the port next, at once. */
static int next_of(const struct name *name)
{
	int fd = rds_socket();
	long long end = now_ms() + TEST_COMES;

	while (bind(fd, &name->sa, name->len))
		if (now_ms() > end)
			test_late("the port of a socket of the dead");
	return fd;
}

/*
 * The maker, and the next owner, which has never touched the socket: what is sent to it before and
 * after the first one's end is for no other socket.
 */
static void killed_with_it(int d, const struct other *maker, const int *end)
{
	struct other heir;
	char byte;

	if (fork_other(&heir)) {
		close(end[1]);
		(void)!read(end[0], &byte, 1);
		raise(SIGKILL);
	}
	close(end[0]);
	close(end[1]);
	name_to(maker, d);
	hear(maker);
	raise(SIGKILL);
}

static void nobody_follows(void)
{
	struct other maker;
	struct name to;
	int i, d, end[2], came = 0;
	char byte;

	for (i = 0; i < 5; i++) {
		if (pipe(end))
			conf_die("pipe");
		if (fork_other(&maker))
			killed_with_it(rds_bound(), &maker, end);
		close(end[0]);
		name_from(&maker, &to);
		sendto(s, "before", 6, 0, &to.sa, to.len);
		say(&maker);
		end_of_pid(maker.pid);
		sendto(s, "after", 5, 0, &to.sa, to.len);
		close(end[1]);
		until_gone(&maker);
		d = next_of(&to);
		usleep(100000);
		came += recv(d, &byte, 1, MSG_DONTWAIT) >= 0;
		close(d);
	}
	check("for-nobody-else", "0 came", "%d came", came);
}

/* ---- a borrower that did not get it by fork ---- */

/* It has told the maker that it is there, and has not touched the socket. */
static void came_otherwise(const char *name, int fd, const struct other *maker)
{
	alarm(test_alarm(60));
	say(maker);
	until_gone(maker);
	read_row(fd, name);
	_exit(0);
}

static void after_that(const char *name, const struct other *maker)
{
	struct name to;

	name_from(maker, &to);
	say(maker);
	check(text("%s-end", name), "signal 9", "%s", end_of(maker));
	send_row(&to);
	check(text("%s-done", name), "4 done", "%s", next(s));
	check(text("%s-port-free", name), "1", "%d", free_again(&to));
}

static void killed_when_told(const struct other *maker, const struct other *holder, int d)
{
	hear(holder);
	name_to(maker, d);
	hear(maker);
	raise(SIGKILL);
}

static void by_exec(void)
{
	struct other maker, holder;
	int d;

	if (fork_other(&maker)) {
		d = rds_bound();
		fcntl(d, F_SETFD, 0);
		if (fork_other(&holder)) {
			char *argv[] = {self,
					"--holder",
					(char *)text("%d", d),
					(char *)text("%d", holder.rd),
					(char *)text("%d", holder.wr),
					(char *)text("%d", s),
					NULL};

			fcntl(holder.rd, F_SETFD, 0);
			fcntl(holder.wr, F_SETFD, 0);
			fcntl(s, F_SETFD, 0);
			execv(self, argv);
			_exit(99);
		}
		killed_when_told(&maker, &holder, d);
	}
	after_that("exec", &maker);
}

static void by_passing(void)
{
	struct other maker, holder;
	int d, line[2];

	if (fork_other(&maker)) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line))
			_exit(98);
		if (fork_other(&holder))
			came_otherwise("passed", passed_fd(line[1], 0), &holder);
		d = rds_bound();
		pass_fd(line[0], d);
		killed_when_told(&maker, &holder, d);
	}
	after_that("passed", &maker);
}

/*
 * It is there when its maker is killed, and closes what it never used, while the only other
 * descriptor lies in a message.
 */
static void close_unused(int fd, const struct other *maker, int sync)
{
	char byte;

	alarm(test_alarm(60));
	until_gone(maker);
	close(fd);
	(void)!write(sync, "c", 1);
	(void)!read(sync, &byte, 1); /* until the other one ends */
	_exit(0);
}

static void on_its_way(void)
{
	struct other maker, holder, heir;
	int d, line[2], sync[2];
	char byte;

	if (fork_other(&maker)) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sync))
			_exit(98);
		if (fork_other(&holder)) {
			alarm(test_alarm(60));
			close(sync[1]);
			say(&holder);
			(void)!read(sync[0], &byte, 1);
			read_row(passed_fd(line[1], 0), "on-its-way");
			_exit(0);
		}
		close(sync[0]);
		d = rds_bound();
		if (fork_other(&heir)) {
			close(line[0]);
			close(line[1]);
			close_unused(d, &heir, sync[1]);
		}
		pass_fd(line[0], d);
		killed_when_told(&maker, &holder, d);
	}
	after_that("on-its-way", &maker);
}

/* It gets the socket, forks a child that does not touch it, reads what lay in it, and is killed. */
static void first_after_its_end(int line)
{
	struct other child;
	int d = passed_fd(line, 0), number, i;

	if (fork_other(&child))
		came_otherwise("ended-on-its-way", d, &child);
	for (i = 0; i < 2; i++)
		(void)!recv(d, &number, sizeof(number), 0);
	hear(&child);
	raise(SIGKILL);
}

/* Its maker ends while the only descriptor lies in a message, and two messages in the socket. */
static void ended_on_its_way(void)
{
	struct other maker, taker;
	int d, i, line[2];
	struct name to;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line))
		conf_die("socketpair");
	if (fork_other(&maker)) {
		d = rds_bound();
		pass_fd(line[0], d);
		name_to(&maker, d);
		close(d);
		hear(&maker);
		_exit(0);
	}
	name_from(&maker, &to);
	for (i = 0; i < 2; i++)
		sendto(s, &i, sizeof(i), 0, &to.sa, to.len);
	say(&maker);
	check("ended-on-its-way-maker", "exit 0", "%s", end_of(&maker));
	if (fork_other(&taker))
		first_after_its_end(line[1]);
	close(line[0]);
	close(line[1]);
	check("ended-on-its-way-taker", "signal 9", "%s", end_of(&taker));
	send_row(&to);
	check("ended-on-its-way-done", "4 done", "%s", next(s));
	check("ended-on-its-way-port-free", "1", "%d", free_again(&to));
}

int main(int argc, char **argv)
{
	enum sleep how;

	if (argc == 6 && !strcmp(argv[1], "--holder")) {
		conf_begin(1, argv);
		s = atoi(argv[5]);
		came_otherwise("exec", atoi(argv[2]), &(struct other){.rd = atoi(argv[3]), .wr = atoi(argv[4])});
	}
	self = argv[0];
	conf_begin(argc, argv);
	if (conf_transport == RDS_TRANS_IB)
		conf_skip("over RDMA devices less is promised of a socket that changes hands (the manual says what)");
	s = rds_bound();
	label(s, "s");
	for (how = 0; how < SLEEPS; how++)
		slept(how);
	crew();
	unread();
	state();
	succession();
	if (conf_loop) /* else the kernel's may still be on their way */
		nobody_follows();
	by_exec();
	by_passing();
	on_its_way();
	ended_on_its_way();
	return conf_end();
}
