/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * RDS_CMSG_RDMA_STATUS: when there is one, how many of them come at once and in which order, what
 * takes them away; what they say of operations that succeed, fail or are canceled, and what becomes
 * of the messages of these.
 */
#include "rdmaconf.h"

#define NO_KEY 0x7fff00

static int fd, other;
static struct name to;
static uint64_t cookie;
static struct rds_iovec vec[1];

static long start_op(int s, uint64_t key, uint64_t flags, uint64_t token, const char *message)
{
	struct op op = {
		.cookie = key,
		.bytes = vec[0].bytes,
		.local = vec,
		.nr_local = 1,
		.flags = flags,
		.token = token,
		.message = message,
	};

	return rdma(s, &to, &op);
}

/*
 * All that was started before on this connection has ended: an operation of the other socket behind
 * it has. The messages are taken away, all of them "done".
 */
static void all_ended(int messages)
{
	const char *said;

	start_op(other, cookie, READWRITE | NOTIFY_ME, 0x63, NULL);
	said = take(other);
	if (!strstr(said, "63:SUCCESS"))
		check("all-ended", "SUCCESS", "%s", said);
	for (; messages >= 0; messages--)
		if (!strstr(peer_take(), "\"done\""))
			check("all-ended-message", "done", "missing");
}

/*
 * One after another: kernel RDS may exchange two that end at the same time, by a completion and by
 * an acknowledgement.
 */
static void notifications(int n)
{
	int i;

	for (i = 1; i <= n; i++) {
		if (start_op(fd, cookie, READWRITE | NOTIFY_ME, i, NULL) != 4)
			check("operation", "4", "-1");
		all_ended(1);
	}
}

static const char *polled(int s)
{
	struct pollfd pfd = {
		.fd = s,
		.events = POLLIN | POLLPRI | POLLOUT | POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND,
	};

	poll(&pfd, 1, 0);
	return poll_bits(pfd.revents);
}

static void success(void)
{
	check("write", "4", "%s", rc(start_op(fd, cookie, READWRITE | NOTIFY_ME, 0xfedcba9876543210, NULL)));
	check("write-wakes-poll", "1", "%d", wait_in(fd));
	check("write-poll", NULL, "%s", polled(fd));
	check("write-status", NULL, "%s", take(fd));
	check("write-once", "-1 EAGAIN", "%s", take_now(fd));
	check("write-poll-behind", NULL, "%s", polled(fd));
	check("write-message", NULL, "%s", peer_take());
	check("read", "4", "%s", rc(start_op(fd, cookie, NOTIFY_ME | FENCE, 0, NULL)));
	check("read-status", NULL, "%s", take(fd));
	check("read-message", NULL, "%s", peer_take());
	check("empty", "0", "%s", rc(start_op(fd, cookie, READWRITE | NOTIFY_ME, 3, "")));
	check("empty-status", NULL, "%s", take(fd));
	check("empty-message", NULL, "%s", peer_take());
	check("unasked", "4", "%s", rc(start_op(fd, cookie, READWRITE, 4, NULL)));
	check("asked", "4", "%s", rc(start_op(fd, cookie, READWRITE | NOTIFY_ME, 5, NULL)));
	all_ended(2);
	check("asked-status", NULL, "%s", take_now(fd));
	check("asked-only", "-1 EAGAIN", "%s", take_now(fd));
}

/* RDS_RECVERR is for failures. */
static void with_recverr(void)
{
	int on = 1, off = 0;

	setsockopt(fd, SOL_RDS, RDS_RECVERR, &on, sizeof(on));
	check("recverr-unasked", "4", "%s", rc(start_op(fd, cookie, READWRITE, 6, NULL)));
	check("recverr-asked", "4", "%s", rc(start_op(fd, cookie, READWRITE | NOTIFY_ME, 7, NULL)));
	all_ended(2);
	check("recverr-asked-status", NULL, "%s", take_now(fd));
	check("recverr-asked-only", "-1 EAGAIN", "%s", take_now(fd));
	setsockopt(fd, SOL_RDS, RDS_RECVERR, &off, sizeof(off));
}

/* Five at once, with room for this many bytes of control messages. */
static void batches(void)
{
	static const size_t rooms[] = {4096, 160, 159, 128, 96, 64, 63, 48, 32, 31, 24, 16, 15, 1, 0};
	const char *said;
	unsigned i, n;

	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		notifications(5);
		for (n = 0; n < 7; n++) {
			said = take_with(fd, 100, rooms[i], 0, 0);
			check(text("room-%zu-%u", rooms[i], n), NULL, "%s", said);
			if (*said == '-')
				break;
		}
	}
}

/* What takes a notification away, and what does not. */
static void taken_by(void)
{
	struct iovec iov = {arena, 100};
	struct mmsghdr many[4];
	struct name from;
	unsigned i;
	long r;

	notifications(1);
	check("by-oob", NULL, "%s", take_with(fd, 100, 100, MSG_OOB, 0));
	check("by-errqueue", "-1 EAGAIN", "%s", take_with(fd, 100, 100, MSG_ERRQUEUE, 0));
	check("by-peek", NULL, "%s", take_with(fd, 100, 100, MSG_PEEK, 0));
	check("by-peek-behind", "-1 EAGAIN", "%s", take_now(fd));
	notifications(1);
	check("by-read", "0", "%s", rc(read(fd, arena, 100)));
	check("by-read-behind", "-1 EAGAIN", "%s", take_now(fd));
	notifications(1);
	check("by-recv", "0", "%s", rc(recv(fd, arena, 100, MSG_DONTWAIT)));
	check("by-recv-behind", "-1 EAGAIN", "%s", take_now(fd));
	notifications(1);
	from.len = sizeof(from.ss);
	check("by-recvfrom", "0", "%s", rc(recvfrom(fd, arena, 100, MSG_DONTWAIT, &from.sa, &from.len)));
	check("by-recvfrom-name", "0", "%u", from.len);
	notifications(1);
	check("by-no-room", NULL, "%s", take_with(fd, 0, 0, 0, 0));
	check("by-no-room-behind", "-1 EAGAIN", "%s", take_now(fd));
	notifications(1);
	check("by-trunc", NULL, "%s", take_with(fd, 100, 100, MSG_TRUNC, 0));

	notifications(3);
	memset(many, 0, sizeof(many));
	for (i = 0; i < ARRAY_SIZE(many); i++)
		many[i].msg_hdr = (struct msghdr){
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = arena + 1000 * i + 1000,
			.msg_controllen = 32,
		};
	r = recvmmsg(fd, many, 4, MSG_DONTWAIT, NULL);
	check("by-recvmmsg", "3", "%s", rc(r));
	for (i = 0; i < 3; i++)
		check(text("by-recvmmsg-%u", i), NULL, "len %u control %zu", many[i].msg_len,
		      (size_t)many[i].msg_hdr.msg_controllen);
	check("by-recvmmsg-behind", "-1 EAGAIN", "%s", take_now(fd));
}

/* Both are there: a notification and data. */
static void before_data(void)
{
	check("data", "5", "%s", peer_send("data1"));
	check("data-2", "5", "%s", peer_send("data2"));
	check("data-there", "1", "%d", wait_queued(fd, 2));
	notifications(3);
	check("data-0", NULL, "%s", take_with(fd, 100, 64, 0, 0));
	check("data-1", NULL, "%s", take_with(fd, 100, 64, MSG_PEEK, 0));
	check("data-2-peek", NULL, "%s", take_with(fd, 100, 64, MSG_PEEK, 0));
	check("data-3", NULL, "%s", take_with(fd, 100, 64, 0, 0));
	notifications(1);
	check("data-4", NULL, "%s", take_with(fd, 100, 64, 0, 0));
	check("data-5", NULL, "%s", take_with(fd, 100, 64, 0, 0));
	check("data-6", "-1 EAGAIN", "%s", take_with(fd, 100, 64, 0, 0));
}

static long blocking_recv(void *arg)
{
	return recv(fd, arg, 100, 0);
}

static void wakes_receiver(void)
{
	struct helper helper;

	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	helper_start(&helper, blocking_recv, arena + PAGE);
	check("receiver-sleeps", "1", "%d", helper_asleep(&helper));
	check("receiver-operation", "4", "%s", rc(start_op(fd, cookie, READWRITE | NOTIFY_ME, 8, NULL)));
	check("receiver-wakes", "1", "%d", helper_ends(&helper));
	check("receiver-result", "0", "%s", rc(helper.result));
	check("receiver-message", NULL, "%s", peer_take());
	timeouts(fd, SO_RCVTIMEO, 0);
}

/* No host has this address, so that all of it stays queued until it is canceled. */
static void canceled(void)
{
	static const uint64_t flags[] = {READWRITE | NOTIFY_ME, NOTIFY_ME, READWRITE, READWRITE | NOTIFY_ME | SILENT};
	struct name far = name_far(4001), elsewhere = name_far(4002);
	struct name peer = to;
	int on = 1, off = 0;
	unsigned i;

	to = far;
	for (i = 0; i < ARRAY_SIZE(flags); i++)
		check(text("queued-%u", i), "1", "%s", rc(start_op(fd, 5, flags[i], 0x20 + i, "q")));
	setsockopt(fd, SOL_RDS, RDS_RECVERR, &on, sizeof(on));
	check("queued-recverr", "1", "%s", rc(start_op(fd, 5, READWRITE, 0x30, "q")));
	check("queued-recverr-notify", "1", "%s", rc(start_op(fd, 5, READWRITE | NOTIFY_ME, 0x31, "q")));
	setsockopt(fd, SOL_RDS, RDS_RECVERR, &off, sizeof(off));
	to = elsewhere;
	check("queued-elsewhere", "1", "%s", rc(start_op(fd, 5, READWRITE | NOTIFY_ME, 0x40, "q")));
	to = peer;
	check("queued-nothing-yet", "-1 EAGAIN", "%s", take_now(fd));
	check("cancel", "0", "%s", rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, &far.ss, far.len)));
	for (i = 0; i < 5; i++)
		check(text("canceled-%u", i), NULL, "%s", take_with(fd, 0, 32, 0, 0));
	check("canceled-no-more", "-1 EAGAIN", "%s", take_now(fd));
	check("cancel-again", "0", "%s", rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, &far.ss, far.len)));
	check("cancel-again-nothing", "-1 EAGAIN", "%s", take_now(fd));
	check("cancel-elsewhere", "0", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, &elsewhere.ss, elsewhere.len)));
	check("canceled-elsewhere", NULL, "%s", take_now(fd));
}

/* One operation with a key that is of no use, and a message behind it. */
static void fails(const char *name, uint64_t key, uint64_t flags, const char *message, int notifies)
{
	check(name, NULL, "%s", rc(start_op(fd, key, flags, 0x50, message)));
	check(text("%s-plain", name), "5", "%s", rc(sendto(fd, "plain", 5, MSG_DONTWAIT, &to.sa, to.len)));
	if (notifies)
		check(text("%s-status", name), NULL, "%s", take(fd));
	check(text("%s-arrives", name), NULL, "%s", peer_take());
	check(text("%s-nothing-else-here", name), "-1 EAGAIN", "%s", take_now(fd));
	check(text("%s-nothing-else-there", name), "-1 EAGAIN", "%s", peer_take_now());
}

static void failures(void)
{
	int on = 1;

	to = peer_name();
	check("warm-up", "4", "%s", rc(sendto(fd, "warm", 4, 0, &to.sa, to.len)));
	check("warm-up-arrives", NULL, "%s", peer_take());
	fails("bad-write", NO_KEY, READWRITE | NOTIFY_ME, "done", 1);
	fails("bad-read", NO_KEY, NOTIFY_ME | FENCE, "done", 1);
	fails("bad-write-empty", NO_KEY, READWRITE | NOTIFY_ME, "", 1);
	fails("bad-write-silent", NO_KEY, READWRITE | NOTIFY_ME | SILENT, "", 1);
	fails("bad-write-unasked", NO_KEY, READWRITE, "done", 0);
	setsockopt(fd, SOL_RDS, RDS_RECVERR, &on, sizeof(on));
	fails("bad-write-recverr", NO_KEY, READWRITE, "done", 1);
	fails("bad-write-recverr-notify", NO_KEY, READWRITE | NOTIFY_ME, "done", 1);
	fails("bad-read-recverr", NO_KEY, FENCE, "done", 1);
}

/*
 * A region that was freed with RDS_RDMA_INVALIDATE is out of reach, once the message that it was
 * made with is acknowledged.
 */
static void freed_key(void)
{
	int i, wrong = 0;

	cookie = peer_map(PAGE, PAGE, 0);
	check("freed-key", NULL, "%s", take(fd));
	settle(fd);
	check("freed-works", "4", "%s", rc(start_op(fd, cookie, READWRITE | NOTIFY_ME, 0x60, NULL)));
	check("freed-works-status", NULL, "%s", take(fd));
	check("freed-works-message", NULL, "%s", peer_take());
	for (i = 0; i < 20; i++) {
		wrong += strcmp(peer_send("x"), "1") != 0;
		wrong += !strstr(take(fd), "\"x\"");
	}
	check("freed-plain", "wrong 0", "wrong %d", wrong);
	check("freed-acked", "yes", "%s", peer_unacked(20));
	check("freed", "0", "%s", peer_free(cookie, INVALIDATE));
	fails("freed-write", cookie, READWRITE | NOTIFY_ME, "done", 1);
}

int main(int argc, char **argv)
{
	rdma_begin(argc, argv);
	peer_start();
	fd = rds_bound_to(PARENT_PORT);
	rds_next_beside();
	other = rds_bound_to(OTHER_PORT);
	to = peer_name();
	vec[0] = (struct rds_iovec){(uintptr_t)arena, 64};
	cookie = peer_map(0, PAGE, 0);
	check("key", NULL, "%s", take(fd));
	settle(fd);
	settle(other);
	success();
	with_recverr();
	batches();
	taken_by();
	before_data();
	wakes_receiver();
	canceled();
	check("free", "0", "%s", peer_free(cookie, 0));
	close(fd);
	/* From here on a connection of its own, without a region: see rdmaconf.h. */
	fd = rds_bound_tos(PARENT_PORT, 12);
	peer_reopen(12);
	failures();
	close(fd);
	fd = rds_bound_tos(PARENT_PORT, 19);
	peer_reopen(19);
	freed_key();
	peer_stop();
	close(other);
	close(fd);
	return conf_end();
}
