/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What lies in the queue of a socket that several processes have: each message goes to one reader,
 * whole and with all that belongs to it; what they send keeps the order in which their calls
 * returned.
 */
#include "rdsconf.h"

#define READERS 5
#define EACH 60
#define CROWD 64
#define CROWD_EACH 8
#define BIG 200000

struct note {
	int sender, number;
};

static int s, d;
static char data[BIG], got[BIG + 1];

static void fill(size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		data[i] = i * 13 + len;
}

/* Everything that recvmsg says of one message, of which there must be one. */
static const char *take(int fd, size_t room, int flags)
{
	char control[256] __attribute__((aligned(8)));
	struct iovec iov[3] = {{got, room / 3}, {got + room / 3, 0}, {got + room / 3, room - room / 3}};
	struct msghdr msg = {
		.msg_iov = iov, .msg_iovlen = 3, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	const char *said;

	said = recvmsg_said(fd, &msg, flags);
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_level != SOL_RDS || c->cmsg_type != RDS_CMSG_CONG_UPDATE)
			said = text("%s cmsg %d/%d len %zu", said, c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
	return said;
}

static long put(int from, int to, size_t len)
{
	fill(len);
	return send_to(from, to, data, len, 0);
}

static void child_reads(void)
{
	check("child-queued", "4", "%d", queued(d));
	check("child-peeks", NULL, "%s", take(d, 5000, MSG_PEEK | MSG_DONTWAIT));
	check("child-peeks-again", NULL, "%s", take(d, 5000, MSG_PEEK | MSG_DONTWAIT));
	check("child-peeks-length", NULL, "%s", take(d, 7, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
	check("child-takes", NULL, "%s", take(d, 5000, MSG_DONTWAIT));
	check("child-takes-part", NULL, "%s", take(d, 10, MSG_DONTWAIT));
	check("child-takes-nothing", NULL, "%s", take(d, 10, MSG_DONTWAIT));
}

/* Sent before the child is there, read by both. */
static void one_queue(void)
{
	put(s, d, 3000);
	put(s, d, 20);
	put(s, d, 0);
	put(s, d, 30);
	check("four-there", "1", "%d", wait_queued(d, 4));
	check("parent-peeks", NULL, "%s", take(d, 5000, MSG_PEEK | MSG_DONTWAIT));
	elsewhere(child_reads);
	check("parent-takes-last", NULL, "%s", take(d, 100, MSG_DONTWAIT));
	check("parent-empty", "-1 EAGAIN", "%s", take(d, 100, MSG_DONTWAIT));
}

static void child_of_faults(void)
{
	struct iovec iov[2] = {{got, 2}, {conf_bad, 2}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	check("child-bad-buffer", "-1 EFAULT", "%s", rc(recv(d, conf_bad, 4, MSG_DONTWAIT)));
	check("child-bad-second-buffer", NULL, "%s", rc(recvmsg(d, &msg, MSG_DONTWAIT)));
	check("child-left", NULL, "%d", queued(d));
	check("child-sends-bad", "-1 EFAULT", "%s", rc(send_to(d, s, conf_bad, 4, 0)));
	check("child-sends-too-much", "-1 EMSGSIZE", "%s", rc(send_to(d, s, data, 150000, MSG_DONTWAIT)));
	check("child-sends-oob", "-1 EOPNOTSUPP", "%s", rc(send_to(d, s, data, 1, MSG_OOB)));
	check("child-receives-oob", "0", "%s", rc(recv(d, data, 1, MSG_OOB)));
}

/* A message that could not be stored is where the kernel would leave it. */
static void faults(void)
{
	rds_bufs(d, 100000 / 2, 0);
	put(s, d, 4);
	put(s, d, 5);
	check("two-for-faults", "1", "%d", wait_queued(d, 2));
	elsewhere(child_of_faults);
	check("after-faults", NULL, "%s", take(d, 10, MSG_DONTWAIT));
	check("after-faults-next", NULL, "%s", take(d, 10, MSG_DONTWAIT));
	check("after-faults-sent", "-1 EAGAIN", "%s", take(s, 10, MSG_DONTWAIT));
	rds_bufs(d, 212992, 0);
}

static void child_big(void)
{
	check("child-sends-big", text("%d", BIG), "%s", rc(put(d, s, BIG)));
	check("child-sends-64k", "65537", "%s", rc(put(d, s, 65537)));
	check("child-takes-big", NULL, "%s", wait_message(d) ? take(d, BIG, MSG_DONTWAIT) : "none");
	check("child-takes-part-of-big", NULL, "%s", wait_message(d) ? take(d, 70000, MSG_DONTWAIT) : "none");
}

static void big(void)
{
	/*
	 * One at a time would fit: two are over a limit, which congests nobody before the next
	 * message.
	 */
	put(s, d, BIG);
	check("big-there", "1", "%d", wait_queued(d, 1));
	put(s, d, 100000);
	check("another-big-there", "1", "%d", wait_queued(d, 2));
	elsewhere(child_big);
	check("big-from-child", NULL, "%s", wait_message(s) ? take(s, BIG, MSG_DONTWAIT) : "none");
	check("64k-from-child", NULL, "%s", wait_message(s) ? take(s, BIG, MSG_DONTWAIT) : "none");
}

static void child_many(void)
{
	struct name to = name_of(s);
	struct mmsghdr out[4] = {0}, in[6] = {0};
	struct iovec iov[10];
	struct timespec ts = {.tv_sec = TEST_COMES / 1000};
	int i, r;

	fill(100);
	for (i = 0; i < 4; i++) {
		iov[i] = (struct iovec){data, 10 + i};
		out[i].msg_hdr =
			(struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1, .msg_name = &to.ss, .msg_namelen = to.len};
	}
	/* The kernel marks all but the last message of a vector, and RDS does not know the mark. */
	check("child-sendmmsg", "-1 EOPNOTSUPP", "%s", rc(sendmmsg(d, out, 4, 0)));
	for (i = 0; i < 4; i++) {
		r = sendmmsg(d, out + i, 1, 0);
		check(text("child-sendmmsg-%d", i), text("1 len %d", 10 + i), "%s len %u", rc(r), out[i].msg_len);
	}
	for (i = 0; i < 6; i++) {
		iov[4 + i] = (struct iovec){got + 100 * i, 100};
		in[i].msg_hdr = (struct msghdr){.msg_iov = &iov[4 + i], .msg_iovlen = 1};
	}
	check("child-recvmmsg", "2", "%d", recvmmsg(d, in, 2, 0, &ts));
	check("child-recvmmsg-lengths", "21 22", "%u %u", in[0].msg_len, in[1].msg_len);
	r = recvmmsg(d, in, 6, MSG_WAITFORONE, NULL);
	check("child-recvmmsg-for-one", "3", "%d", r);
	check("child-recvmmsg-empty", "-1 EAGAIN", "%s", rc(recvmmsg(d, in, 6, MSG_DONTWAIT, NULL)));
}

static void many(void)
{
	size_t len;

	for (len = 21; len < 26; len++)
		put(s, d, len);
	check("five-there", "1", "%d", wait_queued(d, 5));
	elsewhere(child_many);
	for (len = 10; len < 14; len++)
		check(text("sendmmsg-%zu", len), text("%zu", len), "%s", rc(receive(s, got, 100, 0)));
	check("sendmmsg-no-more", "-1 EAGAIN", "%s", rc(recv(s, got, 100, MSG_DONTWAIT)));
}

static void child_stamps(void)
{
	int on = 1;

	check("child-stamped-for-parent", NULL, "%s", wait_message(d) ? take(d, 9, MSG_DONTWAIT) : "none");
	setsockopt(d, SOL_SOCKET, SO_TIMESTAMP, &(int){0}, 4);
	setsockopt(d, SOL_SOCKET, SO_TIMESTAMPNS, &on, 4);
}

static void control(void)
{
	int on = 1;

	setsockopt(d, SOL_SOCKET, SO_TIMESTAMP, &on, 4);
	put(s, d, 8);
	elsewhere(child_stamps);
	put(s, d, 9);
	check("stamped-by-child", NULL, "%s", wait_message(d) ? take(d, 9, MSG_DONTWAIT) : "none");
	setsockopt(d, SOL_SOCKET, SO_TIMESTAMPNS, &(int){0}, 4);
}

/* Two processes take turns to send: one row of messages arrives, as they were sent. */
static void turns(void)
{
	struct other other;
	struct note note;
	int i, wrong = 0;

	if (fork_other(&other)) {
		for (i = 1; i < 40; i += 2) {
			hear(&other);
			send_to(d, s, &(struct note){1, i}, sizeof(note), 0);
			say(&other);
		}
		_exit(0);
	}
	for (i = 0; i < 40; i += 2) {
		send_to(d, s, &(struct note){0, i}, sizeof(note), 0);
		say(&other);
		hear(&other);
	}
	for (i = 0; i < 40; i++)
		wrong += receive(s, &note, sizeof(note), 0) != sizeof(note) || note.number != i;
	check("in-turns", "wrong 0", "wrong %d", wrong);
	check("turns-child", "exit 0", "%s", end_of(&other));
}

static void send_all(int sender)
{
	struct note note = {.sender = sender};

	for (note.number = 0; note.number < EACH; note.number++)
		if (send_to(d, s, &note, sizeof(note), 0) != sizeof(note))
			_exit(1);
}

/* All at once. */
static void senders(void)
{
	int i, wrong = 0, next[READERS] = {0};
	struct other other[READERS];
	struct note note;

	for (i = 0; i < READERS; i++) {
		if (!fork_other(&other[i]))
			continue;
		hear(&other[i]);
		send_all(i);
		_exit(0);
	}
	for (i = 0; i < READERS; i++)
		say(&other[i]);
	for (i = 0; i < READERS * EACH; i++)
		wrong += receive(s, &note, sizeof(note), 0) != sizeof(note) || note.number != next[note.sender]++;
	check("many-senders", "wrong 0", "wrong %d", wrong);
	for (i = 0; i < READERS; i++)
		check(text("sender-%d", i), "exit 0", "%s", end_of(&other[i]));
	check("many-senders-no-more", "-1 EAGAIN", "%s", rc(recv(s, got, 1, MSG_DONTWAIT)));
}

/* Reads until a message says that it is over, and says what it had. */
static void read_all(int report)
{
	struct note note, last = {.number = -1};

	while (recv(d, &note, sizeof(note), 0) == sizeof(note) && note.number >= 0) {
		if (note.number <= last.number)
			_exit(2);
		last = note;
		if (write(report, &note, sizeof(note)) != sizeof(note))
			_exit(3);
	}
}

/* So many messages for so many readers, and one for each that says that it is over. */
static void hand_out(const char *name, int report, int readers, int messages)
{
	int i, twice = 0, missing = 0, times[READERS * EACH + CROWD * CROWD_EACH] = {0};
	struct note note;

	for (i = 0; i < messages; i++)
		send_to(s, d, &(struct note){0, i}, sizeof(note), 0);
	for (i = 0; i < readers; i++)
		send_to(s, d, &(struct note){0, -1}, sizeof(note), 0);
	while (read(report, &note, sizeof(note)) == sizeof(note))
		twice += times[note.number]++ > 0;
	for (i = 0; i < messages; i++)
		missing += !times[i];
	check(name, "missing 0 twice 0", "missing %d twice %d", missing, twice);
	close(report);
}

/* Several blocked in recv: each message comes out once. The readers see their own in order. */
static void readers(void)
{
	struct other other[READERS];
	int i, report[2];

	if (pipe(report))
		conf_die("pipe");
	for (i = 0; i < READERS; i++) {
		if (!fork_other(&other[i]))
			continue;
		close(report[0]);
		read_all(report[1]);
		_exit(0);
	}
	close(report[1]);
	hand_out("many-readers", report[0], READERS, READERS * EACH);
	for (i = 0; i < READERS; i++)
		check(text("reader-%d", i), "exit 0", "%s", end_of(&other[i]));
	check("many-readers-no-more", "-1 EAGAIN", "%s", rc(recv(d, got, 1, MSG_DONTWAIT)));
}

/*
 * As many as a server forks before there is anything to do, each of which takes what comes until it
 * is told that it is over.
 */
static void crowd(void)
{
	int i, ended = 0, report[2];
	pid_t pid[CROWD];

	if (pipe(report))
		conf_die("pipe");
	fflush(stdout);
	for (i = 0; i < CROWD; i++) {
		pid[i] = fork();
		if (pid[i] < 0)
			conf_die("fork");
		if (pid[i])
			continue;
		alarm(test_alarm(60));
		close(report[0]);
		read_all(report[1]);
		_exit(0);
	}
	close(report[1]);
	hand_out("crowd", report[0], CROWD, CROWD * CROWD_EACH);
	for (i = 0; i < CROWD; i++)
		ended += !strcmp(end_of_pid(pid[i]), "exit 0");
	check("crowd-ends", "64", "%d", ended);
	check("crowd-no-more", "-1 EAGAIN", "%s", rc(recv(d, got, 1, MSG_DONTWAIT)));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	label(s, "s");
	label(d, "d");
	rds_bufs(s, 212992, 212992);
	rds_bufs(d, 212992, 212992);
	timeouts(s, SO_SNDTIMEO, TEST_COMES);
	timeouts(d, SO_SNDTIMEO, TEST_COMES);
	warm_up(s, d);
	one_queue();
	faults();
	big();
	many();
	control();
	turns();
	senders();
	readers();
	crowd();
	return conf_end();
}
