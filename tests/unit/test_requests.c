/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_requests.c - requests over a channel that do not come from this library
 * (share/owner_request.c): calls of all kinds, each well formed, with lengths, flags and options at
 * random or at their bounds.  The owner answers or closes the channel, reads nothing beyond the
 * request, and goes on.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/share/owner.h"
#include "engine/share/memory_grant.h"
#include "engine/calls/start.h"
#include "rds_abi.h"
#include "tests/slow.h"
#include "tests/unit/busy_helper.h"
#include "tests/unit/suite.h"

#define ROUNDS 10000

static struct rds_sock *sock;
static int standin, line = -1;
static uint64_t seed = 1;

static uint32_t any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 16);
}

static uint32_t below(uint32_t n)
{
	return any() % n;
}

/* Often where something begins or ends. */
static uint32_t number(void)
{
	static const uint32_t likely[] = {
		0,     1,     2,     3,	       4,	 8,	     12,	 16,	     24,	32,   36,
		48,    64,    100,   128,      256,	 276,	     1024,	 4096,	     4097,	8192, 20480,
		65535, 65536, 65537, 1u << 20, 1u << 24, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};

	return below(8) ? likely[below(sizeof(likely) / sizeof(*likely))] : any();
}

static uint32_t at_most(uint32_t n)
{
	uint32_t v = number();

	return v <= n ? v : below(n + 1);
}

/* ---- the channel ---- */

static void attach(void)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	struct timeval patience = {.tv_sec = 10};
	struct rds_share_reply a;
	int pair[2], pass[2];

	if (line >= 0)
		close(line);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pass[0] = pair[1];
	pass[1] = standin;
	ck_assert_int_eq(os_pass_send(standin, &hello, sizeof(hello), pass, 2, 0), 0);
	close(pair[1]);
	line = pair[0];
	setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	ck_assert_int_eq(recv(line, &a, sizeof(a), 0), sizeof(a));
	ck_assert_int_eq(a.kind, RDS_SHARE_HELLO);
}

static char packet[RDS_SHARE_PACKET];

/* True: it has been answered, and not by hanging up. */
static bool ask(const struct rds_share_request *q, const void *bytes, size_t len, int memfd, struct rds_share_reply *a)
{
	ssize_t n;

	memcpy(packet, q, sizeof(*q));
	memcpy(packet + sizeof(*q), bytes, len);
	if (os_pass_send(line, packet, sizeof(*q) + len, &memfd, memfd >= 0, 0))
		return false;
	if (q->op == RDS_SHARE_CANCEL || q->op == RDS_SHARE_PUT_BACK)
		return true;
	n = recv(line, packet, sizeof(packet), 0);
	ck_assert(n >= 0 || errno == ECONNRESET);
	if (n < (ssize_t)sizeof(*a))
		return false;
	memcpy(a, packet, sizeof(*a));
	ck_assert_uint_eq(a->magic, RDS_SHARE_MAGIC);
	ck_assert_uint_eq(a->seq, q->seq);
	return a->kind == RDS_SHARE_REPLY;
}

/* It is there still, and knows itself. */
static void ck_lives(void)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SOCKNAME, .seq = 7};
	struct rds_share_reply a;

	attach();
	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_int_eq(a.result, 0);
}

static void setup(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(rds_call_start_engine(), 0);
	standin = rds_call_socket(SOCK_SEQPACKET, 0, &sock);
	ck_assert_int_ge(standin, 0);
	ck_assert_int_eq(rds_call_bind(sock, (struct sockaddr *)&sin, sizeof(sin)), 0);
	attach();
}

/* ---- what is asked ---- */

static char bytes[RDS_SHARE_NAME + RDS_SHARE_CONTROL + RDS_SHARE_INLINE];

static void a_name(struct sockaddr_in *sin)
{
	sin->sin_family = below(8) ? AF_INET : (sa_family_t)any();
	sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin->sin_port = below(4) ? htons(sock->laddr.port) : (in_port_t)any();
}

/*
 * What regions may be of, the key of each that was made last, and whether there is a process whose
 * memory that is.
 */
static char arena[1 << 16];
static uint32_t keys[8];
static bool has_memory;

/* As it stands in what names memory. */
static uint64_t word(void)
{
	switch (below(8)) {
	case 0:
	case 1:
		return (uint64_t)(uintptr_t)(arena + below(sizeof(arena)));
	case 2:
		return (uint64_t)keys[below(8)] | (uint64_t)below(2) * below(70000) << 32;
	case 3:
		return (uint64_t)any() << 32 | any();
	case 4:
		return number();
	default:
		return below(100);
	}
}

static void words(char *at, uint32_t len)
{
	uint64_t w;
	uint32_t i;

	for (i = 0; has_memory && i + sizeof(w) <= len && i < 400; i += sizeof(w)) {
		w = word();
		memcpy(at + i, &w, sizeof(w));
	}
}

static uint64_t in_arena(void)
{
	return (uint64_t)(uintptr_t)(arena + below(sizeof(arena) - 4096) / 8 * 8);
}

/* One that could be right, and so that there is some region. */
static void a_region(char *at)
{
	struct rds_get_mr_args args = {
		.vec = {in_arena(), 1 + below(4000)}, .cookie_addr = in_arena(), .flags = below(16)};

	memcpy(at, &args, sizeof(args));
}

static void an_operation(char *at)
{
	struct rds_iovec vec[3];
	struct rds_rdma_args args = {.cookie = keys[below(8)],
				     .remote_vec = {below(100), 1 + below(3000)},
				     .local_vec_addr = in_arena(),
				     .nr_local = 1 + below(3),
				     .flags = below(64)};
	unsigned i;

	for (i = 0; i < 3; i++)
		vec[i] = (struct rds_iovec){in_arena(), below(2000)};
	memcpy((void *)(uintptr_t)args.local_vec_addr, vec, sizeof(vec));
	memcpy(at, &args, sizeof(args));
}

static void some_control(char *at, uint32_t len)
{
	struct cmsghdr cm = {.cmsg_len = below(2) ? len : number(),
			     .cmsg_level = below(8) ? 276 : (int)number(),
			     .cmsg_type = (int)below(14)};

	words(at, len);
	if (has_memory && len == sizeof(cm) + sizeof(struct rds_rdma_args) && below(4)) {
		cm = (struct cmsghdr){.cmsg_len = len, .cmsg_level = 276, .cmsg_type = RDS_CMSG_RDMA_ARGS};
		an_operation(at + sizeof(cm));
	}
	if (len >= sizeof(cm))
		memcpy(at, &cm, sizeof(cm));
}

/* So much of these kinds that it could be right. */
static uint32_t control_len(void)
{
	static const uint32_t right[] = {16 + 8, 16 + 32, 16 + 56, 16 + 72, 16 + 160};

	return has_memory && below(4) ? right[below(5)] : at_most(RDS_SHARE_CONTROL);
}

static int some_file(uint32_t big)
{
	int fd = memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, big), 0);
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	return fd;
}

/* Of this process, which must not be the owner's: what it asks for is done to that. */
static void give_memory(void)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_MEMORY};
	struct rds_share_reply a;
	struct rds_grant_address door;

	if (!ask(&q, "", 0, -1, &a) || a.data_len != sizeof(door)) {
		attach();
		return;
	}
	memcpy(&door, packet + sizeof(a), sizeof(door));
	ck_assert_int_eq(rds_borrower_grant_send(&door), 0);
}

/* There is room for that of a region. */
static void some_option(struct rds_share_request *q, char *val)
{
	q->level = 276;
	q->has_name = true;
	q->opt = below(2) ? RDS_GET_MR : (int)below(16);
	q->arg = q->opt == RDS_FREE_MR ? sizeof(struct rds_free_mr_args) : sizeof(struct rds_get_mr_args);
	words(val, q->data_len);
	if (q->opt == RDS_GET_MR && below(4))
		a_region(val);
}

static void ask_anything(void)
{
	static const int levels[] = {276, 276, 276, SOL_SOCKET, 0, -1};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC,
				      .op = (uint16_t)(1 + below(RDS_SHARE_OPS - 1)),
				      .may_wait = (uint8_t)!below(4),
				      .has_name = (uint8_t)below(2),
				      .seq = any(),
				      .flags = below(2) ? 0 : (int)number(),
				      .level = levels[below(6)],
				      .opt = below(8) ? (int)below(80) : (int)number(),
				      .arg = below(8) ? number() : (uint64_t)any() << 32 | any(),
				      .name_len = at_most(RDS_SHARE_NAME),
				      .control_len = below(2) ? 0 : control_len(),
				      .data_len = at_most(RDS_SHARE_INLINE),
				      .room = number(),
				      .control_room = number(),
				      .total = below(2) ? 0 : number(),
				      .names_memory = (uint8_t)below(2),
				      .fault = (uint8_t)!below(8),
				      .word = (uint8_t)any(),
				      .about = (uint8_t)any(),
				      .abi = (int)number(),
				      .epoch = (int)number()};
	struct rds_share_reply a;
	uint32_t i, len;
	int memfd = -1;

	if (!below(8)) {
		q.data_len = 0;
		q.big = 1 + at_most(2 << 20);
		memfd = some_file(q.big);
	}
	len = q.name_len + q.control_len + q.data_len;
	for (i = 0; i < len && i < 400; i++)
		bytes[i] = below(2) ? 0 : (char)any();
	if (q.name_len >= sizeof(struct sockaddr_in))
		a_name((struct sockaddr_in *)(void *)bytes);
	some_control(bytes + q.name_len, q.control_len);
	if (q.op == RDS_SHARE_SETOPT && has_memory && q.data_len >= sizeof(struct rds_get_mr_args))
		some_option(&q, bytes + q.name_len + q.control_len);
	if (!ask(&q, bytes, len, memfd, &a))
		attach(); /* asleep, or hung up */
	else if (q.op != RDS_SHARE_CANCEL && q.op != RDS_SHARE_PUT_BACK && a.made)
		keys[below(8)] = a.made;
	if (has_memory && !below(8))
		give_memory();
	if (memfd >= 0)
		close(memfd);
}

START_TEST(at_random)
{
	const char *want = getenv("REQUESTS_SEED");
	unsigned i;

	seed = want ? strtoull(want, NULL, 0) : (uint64_t)_i + 1;
	for (i = 0; i < ROUNDS; i++)
		ask_anything();
	ck_lives();
}
END_TEST

/* ---- so many that the owner has no descriptor left ---- */

#define CARRIERS 100 /* descriptors */

static void limit(rlim_t n)
{
	struct rlimit rl;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
}

/* Not if it is let in. */
static bool refused(int *channel)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	struct rds_share_reply a;
	int pair[2], pass[2];
	ssize_t n;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pass[0] = pair[1];
	pass[1] = standin;
	ck_assert_int_eq(os_pass_send(standin, &hello, sizeof(hello), pass, 2, 0), 0);
	close(pair[1]);
	n = recv(pair[0], &a, sizeof(a), 0);
	*channel = pair[0];
	if (n == sizeof(a) && a.kind == RDS_SHARE_HELLO)
		return false;
	close(pair[0]);
	return true;
}

static int channels_gone(const int *channels, int n)
{
	struct pollfd p = {.events = POLLIN};
	int i, gone = 0;

	for (i = 0; i < n; i++) {
		p.fd = channels[i];
		gone += poll(&p, 1, 0) == 1;
	}
	return gone;
}

/*
 * Until it is full.  Those that come later get in all the same: some by the helper's reserve, then
 * one for others that have been idle.
 */
static int crowd(void)
{
	int channels[CARRIERS], n = 0, late, later, gone = 0;
	unsigned looks = 0;

	limit(10 * CARRIERS);
	while (n < CARRIERS && !refused(&channels[n]))
		n++;
	if (n == CARRIERS)
		return 2;
	for (later = 0; later < CARRIERS && !gone; later++) {
		while (refused(&late)) /* they have not been idle for long enough, by the real clock */
			test_pause(&looks);
		gone = channels_gone(channels, n);
	}
	return gone > 0 && gone < 20 ? 0 : 4;
}

START_TEST(room_for_more)
{
	int status;
	pid_t pid;

	limit(CARRIERS);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(crowd());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	limit(10 * CARRIERS);
	ck_assert_int_eq(status, 0);
	ck_lives();
}
END_TEST

/* ---- at the door ---- */

#define VISITORS 64 /* that the owner lets in at a time */

static int visit(const struct rds_grant_address *door)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&door->name, door->len), 0);
	return fd;
}

static void ask_door(struct rds_grant_address *door)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_MEMORY};
	struct rds_share_reply a;

	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_uint_eq(a.data_len, sizeof(*door));
	memcpy(door, packet + sizeof(a), sizeof(*door));
}

/*
 * One comes in while the place is full, and before the owner has seen that the one which goes for
 * that has said something.
 */
START_TEST(full_house)
{
	struct rds_grant_address door;
	int first, fds[VISITORS], i, said = 0;

	ask_door(&door);
	first = visit(&door);
	for (i = 0; i < VISITORS - 1; i++)
		fds[i] = visit(&door);
	ck_lives(); /* it has seen them all */
	helper_begins_to_wait();
	fds[i] = visit(&door);
	ck_assert_int_eq(send(first, "x", 1, 0), 1);
	helper_goes_on();
	ck_assert_int_eq(recv(first, &said, sizeof(said), 0), -1);
	ck_assert_int_eq(errno, ECONNRESET);
	ck_lives();
	ck_assert_int_eq(send(fds[i], "x", 1, 0), 1);
	ck_assert_int_eq(recv(fds[i], &said, sizeof(said), 0), sizeof(said));
	ck_assert_int_eq(said, -EPERM);
}
END_TEST

/* ---- before there is a channel ---- */

static int kind_of_descriptor(unsigned kind)
{
	int ends[2] = {-1, -1};

	switch (kind) {
	case 0:
		return dup(standin);
	case 1:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 2:
		return epoll_create1(EPOLL_CLOEXEC);
	case 3:
		return memfd_create("something", MFD_CLOEXEC);
	case 4:
		return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	case 5:
		return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	case 6:
		ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
		break;
	default: /* the right kind, but no process has the other end */
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	}
	close(ends[0]);
	return ends[1];
}

static _Atomic unsigned counted, counts;

static void count(struct rds_timer *tm)
{
	const struct rds_owner *c = rds_owner_find(sock);
	const struct rds_owner_channel *h;
	unsigned n = 0;

	(void)tm;
	for (h = c ? c->channels : NULL; h; h = h->next)
		n++;
	atomic_store(&counted, n);
	atomic_fetch_add(&counts, 1);
}

/* How many the owner has: the helper alone may look. */
static unsigned holders(void)
{
	static struct rds_timer look = {.fn = count};
	unsigned before = atomic_load(&counts);

	rds_timer_set(&look, os_now_ns());
	while (atomic_load(&counts) == before)
		os_poll(NULL, 0, 1);
	return atomic_load(&counted);
}

/*
 * A request to attach with descriptors of all kinds, in place of what is to come with it or beside
 * it.
 */
START_TEST(strange_channels)
{
	struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	int fds[4];
	unsigned i, k, n;

	seed = 5;
	for (i = 0; i < 5000; i++) {
		n = below(5);
		for (k = 0; k < n; k++)
			fds[k] = k == 1 && below(4) ? dup(standin) : kind_of_descriptor(below(8));
		hello.version = below(8) ? RDS_SHARE_VERSION : any();
		os_pass_send(standin, &hello,
			     below(4)	? sizeof(hello)
			     : below(4) ? RDS_SHARE_QUIET
					: below(sizeof(hello)),
			     fds, n, below(4) ? 0 : MSG_DONTWAIT);
		while (n)
			close(fds[--n]);
	}
	ck_lives();
	test_until(holders() <= 1); /* all others have been let go */
	ck_assert_uint_eq(holders(), 1);
}
END_TEST

/* By another process, which lets the owner have its memory. */
START_TEST(with_memory)
{
	const char *want = getenv("REQUESTS_SEED");
	unsigned i, given = 0;
	int status;
	pid_t pid;

	seed = want ? strtoull(want, NULL, 0) : (uint64_t)_i + 1;
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		attach();
		has_memory = true;
		for (i = 0; i < ROUNDS; i++) {
			ask_anything();
			given += keys[0] != 0;
		}
		_exit(!given);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	/* what it has asked for may be its own end */
	ck_assert(WIFEXITED(status) || WTERMSIG(status) == SIGSEGV);
	ck_assert_int_eq(WIFEXITED(status) ? WEXITSTATUS(status) : 0, 0);
	ck_assert(atomic_load(&sock->had_ops));
	ck_lives();
}
END_TEST

/* A state with an error that is none could not be handed over to anybody. */
START_TEST(no_error)
{
	static const int none[] = {0, -1, INT32_MIN, RDS_SHARE_ERRNO + 1, INT32_MAX};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SET_ERROR, .opt = EIO};
	struct rds_share_reply a;
	unsigned i;

	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_int_eq(a.result, 0);
	ck_assert_int_eq(rds_sock_take_error(sock), EIO);
	for (i = 0; i < sizeof(none) / sizeof(*none); i++) {
		q.opt = none[i];
		ck_assert(ask(&q, "", 0, -1, &a));
		ck_assert_int_eq(a.result, -EPROTO);
		ck_assert_int_eq(rds_sock_take_error(sock), 0);
	}
}
END_TEST

/*
 * Where addresses are in an option, it is not asked for in this way: they would be taken for the
 * owner's.
 */
START_TEST(others_addresses)
{
	static uint64_t mark = 77; /* the owner's */
	const struct {
		uint32_t daddr, hole;
		uint64_t flags, mark_addr, wait_id;
	} args = {.daddr = htonl(INADDR_LOOPBACK), .mark_addr = (uint64_t)(uintptr_t)&mark};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC,
				      .op = RDS_SHARE_SETOPT,
				      .has_name = true,
				      .level = 276,
				      .opt = RDS_BARRIER,
				      .arg = sizeof(args),
				      .data_len = sizeof(args)};
	struct rds_share_reply a;

	ck_assert(ask(&q, &args, sizeof(args), -1, &a));
	ck_assert_int_eq(a.result, -EPROTO);
	ck_assert_uint_eq(mark, 77);
}
END_TEST

/*
 * The kernel counts the room for a filter in instructions.  Who has the stand-in can give it one.
 */
START_TEST(a_filter)
{
	struct sock_filter code[200];
	struct sock_fprog prog = {.len = 200, .filter = code};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC,
				      .op = RDS_SHARE_GETOPT,
				      .has_name = true,
				      .level = SOL_SOCKET,
				      .opt = SO_GET_FILTER,
				      .arg = 200};
	struct rds_share_reply a;
	unsigned i;

	for (i = 0; i < 200; i++)
		code[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffff);
	ck_assert_int_eq(setsockopt(standin, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)), 0);
	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_int_eq(a.result, -EPROTO);
	q.op = RDS_SHARE_SETOPT;
	q.opt = SO_ATTACH_FILTER;
	q.arg = q.data_len = sizeof(prog);
	ck_assert(ask(&q, &prog, sizeof(prog), -1, &a));
	ck_assert_int_eq(a.result, -EPROTO);
}
END_TEST

/*
 * A borrower that never takes its answers is cut off when there is no more room for them.  Nothing
 * else waits for that.
 */
START_TEST(takes_no_answer)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SOCKNAME};
	int mute = line;
	unsigned i, quick = 0;

	line = -1;
	attach();
	for (i = 0; i < 100000 && send(mute, &q, sizeof(q), MSG_NOSIGNAL) > 0; i++)
		if (i % 100 == 0) {
			struct rds_share_reply a;

			ck_assert(ask(&q, "", 0, -1, &a));
			quick++;
		}
	ck_assert_uint_lt(i, 100000);
	ck_assert_uint_gt(quick, 0);
	ck_lives();
	close(mute);
}
END_TEST

static void send_one(unsigned char number)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(sock->laddr.port)};
	struct iovec iov = {&number, 1};
	struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_call_sendmsg(sock, standin, &msg, 0), 1);
}

static int receive(int flags)
{
	unsigned char number;
	struct iovec iov = {&number, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return rds_call_recvmsg(sock, standin, &msg, flags) == 1 ? number : -1;
}

static uint32_t in_queue(void)
{
	uint32_t n;

	rx_lock();
	n = sock->rcv_bytes;
	rx_unlock();
	return n;
}

/* So many bytes are there, sooner or later. */
static void await_queue(uint32_t n)
{
	test_until(in_queue() == n);
}

/* Each takes a message, and has it lie in its channel. */
static void take_each(int *channels, unsigned n)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_RECV, .room = 100};
	struct pollfd p = {.events = POLLIN};
	unsigned i;

	for (i = 0; i < n; i++) {
		attach();
		channels[i] = p.fd = line;
		line = -1;
		ck_assert_int_eq(send(channels[i], &q, sizeof(q), 0), sizeof(q));
		ck_assert_int_eq(poll(&p, 1, TEST_COMES), 1);
	}
}

/*
 * Borrowers are killed that have taken messages and not read them.  The messages come back in their
 * order, in whatever order the deaths are noticed.
 */
START_TEST(back_in_order)
{
	static const unsigned orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
	const unsigned *order = orders[_i];
	int channels[4], i;

	for (i = 0; i < 6; i++)
		send_one((unsigned char)i);
	await_queue(6);
	take_each(channels, 4);
	await_queue(2);
	for (i = 0; i < 4; i++) {
		close(channels[order[i]]);
		await_queue((uint32_t)(2 + i + 1));
	}
	take_each(channels, 1); /* the first one, once more */
	await_queue(5);
	close(channels[0]);
	await_queue(6);
	for (i = 0; i < 6; i++)
		ck_assert_int_eq(receive(0), i);
	ck_assert_int_eq(receive(MSG_DONTWAIT), -1);
}
END_TEST

static bool has_ended(pid_t pid)
{
	siginfo_t si = {.si_pid = 0};

	return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == pid;
}

/*
 * The borrower ends with a message in its channel, of which a child that no one knows has a copy
 * until `over` hangs up.
 */
static void ends_with_message(int over)
{
	int channel;
	char c;

	take_each(&channel, 1);
	if (!syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
		(void)!read(over, &c, 1);
	_exit(0);
}

/* Even while no thread waits for it. */
START_TEST(copy_of_a_channel)
{
	int over[2], i;
	pid_t pid;

	ck_assert_int_eq(pipe(over), 0);
	for (i = 0; i < 3; i++)
		send_one((unsigned char)i);
	await_queue(3);
	pid = fork();
	if (!pid) {
		close(over[1]);
		if (_i)
			setpgid(0, 0);
		ends_with_message(over[0]);
	}
	test_until(has_ended(pid));
	if (_i)
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	await_queue(3);
	if (!_i)
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(receive(0), i);
	close(over[1]);
	ck_lives();
}
END_TEST

/* More or less than there is: it is refused as a whole. */
START_TEST(lengths_that_lie)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SOCKNAME, .seq = 7};
	uint32_t *const len[] = {&q.name_len, &q.control_len, &q.data_len};
	struct rds_share_reply a;

	*len[_i / 2] = 10;
	ck_assert(!ask(&q, bytes, _i % 2 ? 9 : 11, -1, &a));
	ck_lives();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("requests");
	TCase *t = suite_case(s, "requests", setup, NULL, 60);

	tcase_add_loop_test(t, at_random, 0, 2);
	tcase_add_loop_test(t, with_memory, 0, 2);
	tcase_add_loop_test(t, lengths_that_lie, 0, 6);
	tcase_add_test(t, room_for_more);
	tcase_add_test(t, full_house);
	tcase_add_test(t, strange_channels);
	tcase_add_test(t, no_error);
	tcase_add_test(t, others_addresses);
	tcase_add_test(t, a_filter);
	tcase_add_test(t, takes_no_answer);
	tcase_add_loop_test(t, back_in_order, 0, 3);
	tcase_add_loop_test(t, copy_of_a_channel, 0, 2);
	return suite_run(s);
}
