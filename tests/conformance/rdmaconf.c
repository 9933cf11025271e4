/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Helpers of the programs rdma_*.c; see rdmaconf.h. As in rdsconf.c nothing here may depend on how
 * an implementation of RDS works inside, and nothing may wait without a deadline.
 */
#include "rdmaconf.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum what { MAP, FREE, BLANK_ALL, PATTERN, COMPARE, TAKE, SEND, QUEUED, UNACKED, WORD, SET_WORD, REOPEN, LEAVE };

struct order {
	enum what what;
	uint64_t offset, len, value;
	char say[64];
};

struct answer {
	char said[256];
	uint64_t value;
};

char *arena, *read_only, *hole;
uint64_t last_cookie;

static int line; /* orders and answers */
static pid_t peer;

void rdma_begin(int argc, char **argv)
{
	conf_begin(argc, argv);
	if (!conf_ib)
		conf_skip("no RDMA device");
	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* Far from where others are put, so that nothing fills the hole. */
	read_only =
		mmap((void *)0x40000000UL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	hole = read_only + PAGE;
	if (arena == MAP_FAILED || read_only != (void *)0x40000000UL)
		conf_die("mmap");
	blank();
}

int rdma_begin_pair(int argc, char **argv, struct name *to)
{
	int fd;

	rdma_begin(argc, argv);
	peer_start();
	fd = rds_bound_to(PARENT_PORT);
	*to = peer_name();
	return fd;
}

int rdma_end_pair(int fd)
{
	check("nothing-more-there", "-1 EAGAIN", "%s", peer_take_now());
	check("nothing-more-here", "-1 EAGAIN", "%s", take_now(fd));
	peer_stop();
	close(fd);
	return conf_end();
}

void blank(void)
{
	memset(arena, BLANK, ARENA);
}

static unsigned char byte_of(size_t i, unsigned seed)
{
	return i * 131 + (i >> 8) * 7 + seed;
}

void pattern(char *at, size_t len, unsigned seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		at[i] = byte_of(i, seed);
}

const char *compare(size_t offset, size_t len, unsigned seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if ((unsigned char)arena[offset + i] != byte_of(i, seed))
			return text("differs at %zu", i);
	for (i = 0; i < ARENA; i++)
		if ((i < offset || i >= offset + len) && (unsigned char)arena[i] != BLANK)
			return text("touched at %ld", (long)(i - offset));
	return "same";
}

void spread(struct rds_iovec *vec, unsigned n, size_t offset, size_t len)
{
	char *at = arena + offset;
	unsigned i;

	for (i = 0; i < n; i++) {
		vec[i].addr = (uintptr_t)at;
		vec[i].bytes = i == n - 1 ? len : len / (n - i);
		len -= vec[i].bytes;
		at += vec[i].bytes + 13;
	}
	if (at > arena + ARENA)
		conf_die("spread");
}

void pattern_spread(const struct rds_iovec *vec, unsigned n, unsigned seed)
{
	size_t at = 0, i;
	unsigned k;

	for (k = 0; k < n; k++)
		for (i = 0; i < vec[k].bytes; i++)
			((char *)(uintptr_t)vec[k].addr)[i] = byte_of(at++, seed);
}

const char *compare_spread(const struct rds_iovec *vec, unsigned n, unsigned seed)
{
	size_t at = 0, from, i;
	char *end = arena;
	unsigned k;

	for (k = 0; k <= n; k++) {
		/* what lies in front of a piece, and behind the last one */
		from = k < n ? vec[k].addr - (uintptr_t)arena : ARENA;
		for (; end < arena + from; end++)
			if ((unsigned char)*end != BLANK)
				return text("touched in front of piece %u", k);
		for (i = 0; k < n && i < vec[k].bytes; i++, at++, end++)
			if ((unsigned char)*end != byte_of(at, seed))
				return text("differs at %zu", at);
	}
	return "same";
}

void add(struct controls *c, int type, const void *data, size_t len)
{
	struct cmsghdr *header = (struct cmsghdr *)(c->bytes + c->len);

	if (c->len + CMSG_SPACE(len) > sizeof(c->bytes))
		conf_die("control messages");
	memset(header, 0, CMSG_SPACE(len));
	header->cmsg_level = SOL_RDS;
	header->cmsg_type = type;
	header->cmsg_len = CMSG_LEN(len);
	if (len)
		memcpy(CMSG_DATA(header), data, len);
	c->len += CMSG_SPACE(len);
}

long send_controls(int fd, const struct name *to, const struct controls *c, const void *what, size_t len)
{
	struct iovec iov = {(void *)what, len};
	struct msghdr msg = {
		.msg_name = (void *)&to->ss,
		.msg_namelen = to->len,
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = (void *)c->bytes,
		.msg_controllen = c->len,
	};

	return sendmsg(fd, &msg, MSG_DONTWAIT);
}

long send_control(int fd, const struct name *to, int type, const void *data, size_t size)
{
	struct controls c = {.len = 0};

	add(&c, type, data, size);
	return send_controls(fd, to, &c, "x", 1);
}

long send_two(int fd, const struct name *to, int first, const void *a, size_t a_len, int second, const void *b,
	      size_t b_len)
{
	struct controls c = {.len = 0};

	add(&c, first, a, a_len);
	add(&c, second, b, b_len);
	return send_controls(fd, to, &c, "x", 1);
}

long map(int fd, const struct name *to, const void *addr, uint64_t len, uint64_t flags, uint64_t *cookie)
{
	struct rds_get_mr_args args = {
		.vec = {(uintptr_t)addr, len},
		.cookie_addr = (uintptr_t)cookie,
		.flags = flags,
	};
	long long end = now_ms() + TEST_COMES;
	unsigned looks = 0;
	struct controls c = {.len = 0};
	long r;

	add(&c, RDS_CMSG_RDMA_MAP, &args, sizeof(args));
	while ((r = send_controls(fd, to, &c, "map", 3)) < 0 && (errno == EAGAIN || errno == EINVAL)) {
		if (now_ms() > end)
			test_late("a region that a message shows");
		test_pause(&looks);
	}
	return r;
}

long free_mr(int fd, uint64_t cookie, uint64_t flags)
{
	struct rds_free_mr_args args = {cookie, flags};

	return setsockopt(fd, SOL_RDS, RDS_FREE_MR, &args, sizeof(args));
}

int rds_bound_tos(unsigned port, int tos)
{
	unsigned char byte = tos;
	int fd = rds_bound_to(port);

	if (tos && ioctl(fd, SIOCRDSSETTOS, &byte))
		conf_die("SIOCRDSSETTOS");
	return fd;
}

bool wait_in(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	return poll(&pfd, 1, TEST_COMES) == 1;
}

const char *status_word(int status)
{
	static const char *const words[] = {"SUCCESS", "REMOTE_ERROR", "CANCELED", "DROPPED", "OTHER_ERROR"};

	if (status < 0 || status >= (int)ARRAY_SIZE(words))
		return text("%d", status);
	return words[status];
}

static const char *controls_text(struct msghdr *msg)
{
	const char *said = "";
	struct rds_rdma_notify n;
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level == SOL_RDS && c->cmsg_type == RDS_CMSG_RDMA_STATUS && c->cmsg_len == CMSG_LEN(16)) {
			memcpy(&n.user_token, CMSG_DATA(c), 8);
			memcpy(&n.status, CMSG_DATA(c) + 8, 4);
			said = text("%s status %llx:%s", said, (unsigned long long)n.user_token, status_word(n.status));
		} else if (c->cmsg_level == SOL_RDS && c->cmsg_type == RDS_CMSG_RDMA_DEST &&
			   c->cmsg_len == CMSG_LEN(8)) {
			memcpy(&last_cookie, CMSG_DATA(c), 8);
			said = text("%s dest %llu", said, (unsigned long long)last_cookie >> 32);
		} else {
			said = text("%s cmsg %d/%d len %zu", said, c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
		}
	}
	return said;
}

const char *take_with(int fd, size_t room, size_t control, int flags, int ms)
{
	static char bytes[4096] __attribute__((aligned(8)));
	static char got[65536];
	struct name from = {.len = sizeof(from.ss)};
	struct iovec iov = {got, room < sizeof(got) ? room : sizeof(got)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	long long end = now_ms() + ms;
	unsigned looks = 0;
	int shown;
	long r;

	last_cookie = 0;
	for (;;) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};

		msg.msg_name = &from.ss;
		msg.msg_namelen = sizeof(from.ss);
		msg.msg_control = control ? bytes : NULL;
		msg.msg_controllen = control < sizeof(bytes) ? control : sizeof(bytes);
		r = recvmsg(fd, &msg, flags | MSG_DONTWAIT);
		if (r >= 0)
			break;
		if (errno != EAGAIN || !ms)
			return rc(r);
		if (now_ms() >= end && ms < TEST_COMES)
			return "timeout";
		if (now_ms() >= end)
			test_late("a message, or news");
		if (poll(&pfd, 1, test_deadline_ms(1000)) > 0)
			test_pause(&looks);
	}
	from.len = msg.msg_namelen;
	shown = (size_t)r < iov.iov_len ? (int)r : (int)iov.iov_len;
	return text("%ld \"%.*s%s\" flags %s from %s%s", r, shown < 20 ? shown : 20, got, shown > 20 ? "..." : "",
		    msg_flags(msg.msg_flags), from.len ? who(&from) : "none", controls_text(&msg));
}

const char *take(int fd)
{
	return take_with(fd, 65536, 4096, 0, TEST_COMES);
}

const char *take_now(int fd)
{
	return take_with(fd, 65536, 4096, 0, 0);
}

long rdma(int fd, const struct name *to, const struct op *op)
{
	struct rds_rdma_args args = {
		.cookie = op->cookie,
		.remote_vec = {op->offset, op->bytes},
		.local_vec_addr = (uintptr_t)op->local,
		.nr_local = op->nr_local,
		.flags = op->flags,
		.user_token = op->token,
	};
	const char *message = op->message ? op->message : "done";
	struct controls c = {.len = 0};

	add(&c, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	return send_controls(fd, to, &c, message, strlen(message));
}

/* Messages of this socket that lie in the lists of those that are not acknowledged. */
static int unacked(int fd)
{
	return listed(fd, RDS6_INFO_SEND_MESSAGES) + listed(fd, RDS6_INFO_RETRANS_MESSAGES);
}

static bool wait_unacked(int fd, int n)
{
	long long end = now_ms() + TEST_COMES;
	unsigned looks = 0;

	while (unacked(fd) > n) {
		if (now_ms() > end)
			test_late("an acknowledgement");
		test_pause(&looks);
	}
	return true;
}

static const char *peer_maps(int fd, const struct order *o, uint64_t *cookie)
{
	struct name to = name_here(PARENT_PORT);

	return rc(map(fd, &to, arena + o->offset, o->len, o->value, cookie));
}

static void obey(int *fd, const struct order *o, struct answer *a)
{
	struct name to = name_here(PARENT_PORT);
	const char *said = "";

	switch (o->what) {
	case MAP:
		said = peer_maps(*fd, o, &a->value);
		break;
	case FREE:
		said = rc(free_mr(*fd, o->offset, o->value));
		break;
	case BLANK_ALL:
		blank();
		break;
	case PATTERN:
		pattern(arena + o->offset, o->len, o->value);
		break;
	case COMPARE:
		said = compare(o->offset, o->len, o->value);
		break;
	case TAKE:
		said = o->value ? take(*fd) : take_now(*fd);
		a->value = last_cookie;
		break;
	case SEND:
		said = rc(sendto(*fd, o->say, strlen(o->say), 0, &to.sa, to.len));
		break;
	case QUEUED:
		said = wait_queued(*fd, o->value) ? "yes" : text("no, %d", queued(*fd));
		break;
	case UNACKED:
		said = wait_unacked(*fd, o->value) ? "yes" : text("no, %d", unacked(*fd));
		break;
	case WORD:
		memcpy(&a->value, arena + o->offset, 8);
		break;
	case SET_WORD:
		memcpy(arena + o->offset, &o->value, 8);
		break;
	case REOPEN:
		close(*fd);
		*fd = rds_bound_tos(PEER_PORT, o->value);
		break;
	case LEAVE:
		_exit(0);
	}
	snprintf(a->said, sizeof(a->said), "%s", said);
}

static void peer_main(void)
{
	struct answer a = {.said = "ready"};
	int fd = rds_bound_to(PEER_PORT);
	struct order o;

	do {
		alarm(test_alarm(60)); /* if the process that gives the orders is gone */
		if (send(line, &a, sizeof(a), 0) < 0 || recv(line, &o, sizeof(o), 0) != sizeof(o))
			_exit(1);
		memset(&a, 0, sizeof(a));
		obey(&fd, &o, &a);
	} while (true);
}

static struct answer answer(void)
{
	struct answer a = {.said = "the peer is gone"};

	if (recv(line, &a, sizeof(a), 0) != sizeof(a))
		snprintf(a.said, sizeof(a.said), "the peer is gone");
	return a;
}

static struct answer told(struct order o)
{
	if (send(line, &o, sizeof(o), MSG_NOSIGNAL) != sizeof(o))
		conf_die("the peer is gone");
	return answer();
}

#define TOLD(...) told((struct order){.what = __VA_ARGS__})
#define SAID(...) text("%s", TOLD(__VA_ARGS__).said)

void peer_start(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		conf_die("socketpair");
	fflush(stdout);
	peer = fork();
	if (peer < 0)
		conf_die("fork");
	line = ends[!peer];
	close(ends[!!peer]);
	if (!peer)
		peer_main();
	if (strcmp(answer().said, "ready") != 0)
		conf_die("the peer is not ready");
}

void peer_stop(void)
{
	struct order o = {.what = LEAVE};

	if (send(line, &o, sizeof(o), MSG_NOSIGNAL) != sizeof(o))
		conf_die("the peer is gone");
	waitpid(peer, NULL, 0);
	close(line);
}

struct name peer_name(void)
{
	return name_here(PEER_PORT);
}

uint64_t peer_map(size_t offset, size_t len, uint64_t flags)
{
	struct answer a = TOLD(MAP, .offset = offset, .len = len, .value = flags);

	if (strcmp(a.said, "3") != 0)
		conf_die(text("a region of the peer, %s", a.said));
	return a.value;
}

const char *peer_free(uint64_t cookie, uint64_t flags)
{
	return SAID(FREE, .offset = cookie, .value = flags);
}

void peer_blank(void)
{
	TOLD(BLANK_ALL);
}

void peer_pattern(size_t offset, size_t len, unsigned seed)
{
	TOLD(PATTERN, .offset = offset, .len = len, .value = seed);
}

const char *peer_compare(size_t offset, size_t len, unsigned seed)
{
	return SAID(COMPARE, .offset = offset, .len = len, .value = seed);
}

const char *peer_take(void)
{
	struct answer a = TOLD(TAKE, .value = 1);

	last_cookie = a.value;
	return text("%s", a.said);
}

const char *peer_take_now(void)
{
	return SAID(TAKE, .value = 0);
}

const char *peer_send(const char *what)
{
	struct order o = {.what = SEND};

	snprintf(o.say, sizeof(o.say), "%s", what);
	return text("%s", told(o).said);
}

const char *peer_queued(int n)
{
	return SAID(QUEUED, .value = n);
}

const char *peer_unacked(int n)
{
	return SAID(UNACKED, .value = n);
}

uint64_t peer_word(size_t offset)
{
	return TOLD(WORD, .offset = offset).value;
}

void peer_set_word(size_t offset, uint64_t value)
{
	TOLD(SET_WORD, .offset = offset, .value = value);
}

void peer_reopen(int tos)
{
	TOLD(REOPEN, .value = tos);
}

void each_shape(const char *of, const char *to, uint64_t flags, shape_case *one)
{
	static const struct shape table[] = {
		{1, 0, 0, 1},		{1, 4095, 4095, 1},	 {7, 4093, 1, 1},     {8, 16, 32, 2},
		{100, 3, 4090, 9},	{4095, 1, 2, 1},	 {4096, 0, 0, 1},     {4096, 1, 4095, 2},
		{4097, 0, 3, 1},	{8192, 4096, 8192, 9},	 {10000, 77, 5, 9},   {65536, 0, 0, 1},
		{65537, 4095, 4001, 9}, {131072, 2048, 17, 512}, {512, 1, 1, 512},    {MIB - 1, 1, 1, 2},
		{MIB, 0, 0, 1},		{MIB, 4095, 1, 1},	 {MIB, 1, 4095, 512},
	};
	const struct shape *s;
	const char *name;
	uint64_t cookie;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		s = &table[i];
		name = text("%zu-%s-%zu-%s-%zu-in-%u", s->len, of, s->region, to, s->local, s->n);
		peer_blank();
		cookie = peer_map(s->region, s->len, flags);
		one(name, s, cookie, i);
		check(text("%s-free", name), "0", "%s", peer_free(cookie, 0));
	}
}

void each_place(int fd, place_case *one)
{
	static const size_t at[] = {1, 4095, 4096, 5000, 65536, 99990};
	uint64_t cookie = peer_map(REGION_START, at[ARRAY_SIZE(at) - 1] + PLACE_LEN, 0);
	unsigned i;

	take(fd);
	for (i = 0; i < ARRAY_SIZE(at); i++) {
		peer_blank();
		one(text("offset-%zu", at[i]), at[i], cookie, i);
	}
	check("offsets-free", "0", "%s", peer_free(cookie, 0));
}
