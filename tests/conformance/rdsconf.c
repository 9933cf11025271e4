/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Helpers of the conformance programs; see rdsconf.h. Nothing here may depend on how an
 * implementation of RDS works inside, and what waits does so as slow.h says.
 */
#include "rdsconf.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

const char *conf_text;
void *volatile conf_bad = (void *)8;
bool conf_v6;
bool conf_loop;
bool conf_ib;
int conf_transport;

static int failures;
static int checks;

static struct {
	unsigned port;
	const char *word;
} labels[64];
static int nlabels;

void conf_begin(int argc, char **argv)
{
	struct in6_addr six;

	setvbuf(stdout, NULL, _IOLBF, 0);
	test_shows_stacks();
	conf_text = argc > 1 ? argv[1] : "127.0.0.1";
	conf_v6 = inet_pton(AF_INET6, conf_text, &six) == 1;
	conf_loop = !strncmp(conf_text, "127.", 4) || !strcmp(conf_text, "::1");
	conf_ib = argc > 2 && !strcmp(argv[2], "ib");
	conf_transport = conf_ib ? RDS_TRANS_IB : conf_loop ? RDS_TRANS_LOOP : RDS_TRANS_TCP;
}

int conf_end(void)
{
	if (!checks)
		conf_skip("no check applies");
	return failures ? 1 : 0;
}

void conf_skip(const char *why)
{
	printf("skip: %s\n", why);
	exit(77);
}

void conf_die(const char *what)
{
	printf("setup: %s: %s\n", what, strerrorname_np(errno));
	exit(1);
}

void conf_arrives(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char first;

	if (poll(&p, 1, TEST_COMES) != 1 || recv(fd, &first, 1, 0) < 0)
		conf_die("a message that was sent has not arrived");
}

void check(const char *name, const char *want, const char *format, ...)
{
	char got[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(got, sizeof(got), format, args);
	va_end(args);
	checks++;
	if (!want) {
		printf("%s: %s\n", name, got);
	} else if (!strcmp(want, got)) {
		printf("%s: %s ok\n", name, got);
	} else {
		failures++;
		printf("%s: %s FAIL expected %s\n", name, got, want);
	}
}

const char *text(const char *format, ...)
{
	static char pool[64][256];
	static unsigned next;
	char *out = pool[next++ % 64];
	va_list args;
	int saved = errno;

	va_start(args, format);
	vsnprintf(out, sizeof(pool[0]), format, args);
	va_end(args);
	errno = saved;
	return out;
}

const char *rc(long result)
{
	if (result >= 0)
		return text("%ld", result);
	return text("%ld %s", result, strerrorname_np(errno));
}

const char *sign(long result)
{
	if (result < 0)
		return rc(result);
	close(result);
	return "fd";
}

struct bit {
	int bit;
	const char *word;
};

static const char *bit_words(int value, const struct bit *bits, size_t n)
{
	char out[200] = "";
	size_t i;

	for (i = 0; i < n; i++) {
		if (!(value & bits[i].bit))
			continue;
		if (*out)
			strcat(out, "|");
		strcat(out, bits[i].word);
		value &= ~bits[i].bit;
	}
	if (value)
		return text("%s%s0x%x", out, *out ? "|" : "", value);
	return *out ? text("%s", out) : "0";
}

const char *poll_bits(int events)
{
	static const struct bit bits[] = {
		{ POLLIN, "IN" }, { POLLRDNORM, "RDNORM" }, { POLLRDBAND, "RDBAND" }, { POLLPRI, "PRI" },
		{ POLLOUT, "OUT" }, { POLLWRNORM, "WRNORM" }, { POLLWRBAND, "WRBAND" }, { POLLERR, "ERR" },
		{ POLLHUP, "HUP" }, { POLLNVAL, "NVAL" }, { POLLRDHUP, "RDHUP" },
	};

	return bit_words(events, bits, ARRAY_SIZE(bits));
}

const char *msg_flags(int flags)
{
	static const struct bit bits[] = {
		{ MSG_TRUNC, "TRUNC" }, { MSG_CTRUNC, "CTRUNC" }, { MSG_EOR, "EOR" }, { MSG_OOB, "OOB" },
		{ MSG_ERRQUEUE, "ERRQUEUE" },
	};

	return bit_words(flags, bits, ARRAY_SIZE(bits));
}

void label(int fd, const char *word)
{
	struct name name = name_of(fd);

	if (nlabels == (int)ARRAY_SIZE(labels))
		nlabels = 0;
	labels[nlabels].port = name_port(&name);
	labels[nlabels++].word = word;
}

static const char *port_word(unsigned port)
{
	int i;

	for (i = nlabels - 1; i >= 0; i--)
		if (labels[i].port == port)
			return labels[i].word;
	return port ? text("%u", port) : "0";
}

const char *who(const struct name *name)
{
	char address[INET6_ADDRSTRLEN] = "?";

	if (name->len < sizeof(sa_family_t))
		return text("none len %u", name->len);
	switch (name->sa.sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &name->in.sin_addr, address, sizeof(address));
		return text("inet %s port %s len %u", address, port_word(ntohs(name->in.sin_port)), name->len);
	case AF_INET6:
		inet_ntop(AF_INET6, &name->in6.sin6_addr, address, sizeof(address));
		return text("inet6 %s port %s scope %u flow %u len %u", address,
			    port_word(ntohs(name->in6.sin6_port)), name->in6.sin6_scope_id,
			    name->in6.sin6_flowinfo, name->len);
	default:
		return text("family %u len %u", name->sa.sa_family, name->len);
	}
}

struct name name_at(const char *address, unsigned port)
{
	struct name name;

	memset(&name, 0, sizeof(name));
	if (inet_pton(AF_INET, address, &name.in.sin_addr) == 1) {
		name.in.sin_family = AF_INET;
		name.in.sin_port = htons(port);
		name.len = sizeof(name.in);
		return name;
	}
	if (inet_pton(AF_INET6, address, &name.in6.sin6_addr) != 1) {
		errno = EINVAL;
		conf_die(address);
	}
	name.in6.sin6_family = AF_INET6;
	name.in6.sin6_port = htons(port);
	name.len = sizeof(name.in6);
	return name;
}

struct name name_here(unsigned port)
{
	return name_at(conf_text, port);
}

struct name name_far(unsigned port)
{
	struct name name = name_here(port);

	if (conf_v6)
		name.in6.sin6_addr.s6_addr[15] = 77;
	else
		((uint8_t *)&name.in.sin_addr)[3] = 77;
	return name;
}

struct name name_of(int fd)
{
	struct name name;

	memset(&name, 0, sizeof(name));
	name.len = sizeof(name.ss);
	if (getsockname(fd, &name.sa, &name.len))
		conf_die("getsockname");
	return name;
}

unsigned name_port(const struct name *name)
{
	return ntohs(name->sa.sa_family == AF_INET6 ? name->in6.sin6_port : name->in.sin_port);
}

int rds_bound_to(unsigned port)
{
	struct name name = name_here(port);
	int fd = rds_socket();

	if (bind(fd, &name.sa, name.len))
		conf_die("bind");
	return fd;
}

int rds_bound(void)
{
	return rds_bound_to(0);
}

void rds_bufs(int fd, int snd, int rcv)
{
	if (snd && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &snd, sizeof(snd)))
		conf_die("SO_SNDBUF");
	if (rcv && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcv, sizeof(rcv)))
		conf_die("SO_RCVBUF");
}

ssize_t send_to(int fd, int to, const void *data, size_t len, int flags)
{
	struct name name = name_of(to);

	return sendto(fd, data, len, flags, &name.sa, name.len);
}

bool wait_message(int fd)
{
	long long end = now_ms() + TEST_COMES;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	unsigned looks = 0;

	/* It may be readable for other news, again and again. */
	while (recv(fd, NULL, 0, MSG_PEEK | MSG_DONTWAIT) < 0) {
		if (errno != EAGAIN)
			return false;
		if (now_ms() > end)
			test_late("a message");
		if (poll(&pfd, 1, test_deadline_ms(1000)) > 0)
			test_pause(&looks);
	}
	return true;
}

int listed(int fd, int list)
{
	static struct rds6_info_message messages[4096];
	struct name name = name_of(fd);
	socklen_t len = sizeof(messages);
	unsigned i, n = 0;

	if (getsockopt(fd, SOL_RDS, list, messages, &len) < 0)
		return -1;
	for (i = 0; i < len / sizeof(messages[0]); i++)
		n += ntohs(messages[i].lport) == name_port(&name);
	return n;
}

int queued(int fd)
{
	return listed(fd, RDS6_INFO_RECV_MESSAGES);
}

bool wait_queued(int fd, int n)
{
	long long end = now_ms() + TEST_COMES;
	unsigned looks = 0;
	int now;

	while ((now = queued(fd)) != n) {
		if (now < 0)
			return false;
		if (now_ms() > end)
			test_late("%d messages, where %d were to come", now, n);
		test_pause(&looks);
	}
	return true;
}

bool wait_sent(int fd)
{
	long long end = now_ms() + TEST_COMES;
	unsigned looks = 0;

	while (listed(fd, RDS6_INFO_SEND_MESSAGES)) {
		if (now_ms() > end)
			test_late("messages that leave");
		test_pause(&looks);
	}
	return true;
}

void all_lost(int sender)
{
	int behind = rds_bound();

	wait_sent(sender);
	if (send_to(sender, behind, "behind", 6, 0) != 6)
		conf_die("behind");
	conf_arrives(behind);
	close(behind);
}

/* No poll of the sender, for which that may be news. */
void cong_told(int receiver, int sender)
{
	char byte;

	if (send_to(receiver, sender, "t", 1, 0) != 1 || !wait_queued(sender, 1) || recv(sender, &byte, 1, MSG_DONTWAIT) != 1)
		conf_die("news of congestion");
}

static struct in6_addr mapped(const struct name *name)
{
	struct in6_addr addr = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	if (name->sa.sa_family == AF_INET6)
		return name->in6.sin6_addr;
	memcpy(&addr.s6_addr[12], &name->in.sin_addr, 4);
	return addr;
}

static struct name name_mapped(struct in6_addr addr)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(&addr);
	char said[INET6_ADDRSTRLEN];

	inet_ntop(v4 ? AF_INET : AF_INET6, &addr.s6_addr[v4 ? 12 : 0], said, sizeof(said));
	return name_at(said, 0);
}

/* A message from one of this host's addresses to the other, if both are its own. */
static void crosses(struct in6_addr from, struct in6_addr to)
{
	struct name name = name_mapped(from), peer = name_mapped(to);
	int fd = rds_socket(), there = rds_socket();

	if (!bind(fd, &name.sa, name.len) && !bind(there, &peer.sa, peer.len)) {
		if (send_to(fd, there, "", 1, 0) != 1)
			conf_die("a message for news of congestion");
		conf_arrives(there);
	}
	close(fd);
	close(there);
}

/*
 * A host tells its news on all connections of the address: also on those to another address of
 * this host, which an earlier program has left, and whose news count for every sender here.
 */
static void other_addresses_told(const struct name *there)
{
	static struct rds6_info_connection list[256];
	socklen_t len = sizeof(list);
	struct in6_addr addr = mapped(there), from, to;
	int fd = rds_socket();
	unsigned i;

	if (getsockopt(fd, SOL_RDS, RDS6_INFO_CONNECTIONS, list, &len) < 0)
		conf_die("connections");
	close(fd);
	for (i = 0; i < len / sizeof(list[0]); i++) {
		from = list[i].laddr;
		to = list[i].faddr;
		if (list[i].flags & RDS_INFO_CONNECTION_FLAG_CONNECTED && IN6_ARE_ADDR_EQUAL(&from, &addr) &&
		    !IN6_ARE_ADDR_EQUAL(&to, &addr))
			crosses(from, to);
	}
}

/*
 * News go before any later message of their connection, and the answer to a ping is one.  The
 * kernel has a second connection where an RDMA device talks to itself, for what comes back; so the
 * second ping goes behind all that was to be told when the first was answered.
 */
void cong_all_told(struct name there)
{
	struct name name = name_here(0);
	int i, fd = socket(AF_RDS, SOCK_SEQPACKET, 0);
	char byte;

	*(there.sa.sa_family == AF_INET6 ? &there.in6.sin6_port : &there.in.sin_port) = 0;
	if (fd < 0 || bind(fd, &name.sa, name.len))
		conf_die("a socket for pings");
	for (i = 0; i < 2; i++)
		if (sendto(fd, "", 0, 0, &there.sa, there.len) || receive(fd, &byte, 1, 0))
			conf_die("a ping is not answered");
	close(fd);
	other_addresses_told(&there);
}

void settle(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN | POLLOUT | POLLWRBAND };

	poll(&pfd, 1, 0);
}

void warm_up(int a, int b)
{
	char byte;

	if (send_to(a, b, "w", 1, 0) != 1 || receive(b, &byte, 1, 0) != 1 || send_to(b, a, "w", 1, 0) != 1 ||
	    receive(a, &byte, 1, 0) != 1)
		conf_die("warm up");
	settle(a);
	settle(b);
}

/* Of so many bytes in pieces. */
static unsigned sum(const struct iovec *iov, size_t len)
{
	unsigned n = 17;
	size_t i;

	for (; len; iov++)
		for (i = 0; i < iov->iov_len && len; i++, len--)
			n = n * 31 + ((unsigned char *)iov->iov_base)[i];
	return n;
}

const char *recvmsg_said(int fd, struct msghdr *msg, int flags)
{
	struct name from = {.len = 0};
	size_t i, room = 0;
	long r;

	for (i = 0; i < msg->msg_iovlen; i++) {
		memset(msg->msg_iov[i].iov_base, 0, msg->msg_iov[i].iov_len);
		room += msg->msg_iov[i].iov_len;
	}
	msg->msg_name = &from.ss;
	msg->msg_namelen = sizeof(from.ss);
	r = recvmsg(fd, msg, flags);
	msg->msg_name = NULL;
	if (r < 0) {
		msg->msg_controllen = 0;
		return rc(r);
	}
	from.len = msg->msg_namelen;
	return text("%ld sum %08x flags %s from %s", r, sum(msg->msg_iov, (size_t)r < room ? (size_t)r : room),
		    msg_flags(msg->msg_flags), who(&from));
}

ssize_t receive(int fd, void *data, size_t len, int flags)
{
	if (!wait_message(fd))
		return -1;
	return recv(fd, data, len, flags | MSG_DONTWAIT);
}

const char *epoll_said(int ep, int ms)
{
	struct epoll_event event = {0};
	int r = epoll_wait(ep, &event, 1, ms);

	return r <= 0 ? rc(r) : text("%d %s data %u", r, poll_bits(event.events), event.data.u32);
}

int epoll_set(int ep, int op, int fd, unsigned events)
{
	struct epoll_event event = {.events = events, .data.u32 = 5};

	return epoll_ctl(ep, op, fd, &event);
}

bool in_bounds(long long took, int ms)
{
	if (took >= test_bound_ms(ms))
		test_late("%lld ms, where %d would do", took, ms);
	return true;
}

void timeouts(int fd, int which, int ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	if (setsockopt(fd, SOL_SOCKET, which, &tv, sizeof(tv)))
		conf_die("timeout");
}

long long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static long path0_send(void *arg)
{
	struct name far = name_far(4000);

	return sendto(*(int *)arg, "", 0, 0, &far.sa, far.len);
}

static void no_action(int sig)
{
	(void)sig;
}

int rds_bound_path0(void)
{
	struct sigaction sa = { .sa_handler = no_action };
	struct helper helper;
	int tries, fd;

	sigaction(SIGUSR2, &sa, NULL);
	for (tries = 0; tries < 100; tries++) {
		fd = rds_bound();
		helper_start(&helper, path0_send, &fd);
		if (!helper_asleep(&helper)) {
			if (helper_result(&helper))
				conf_die("send to nobody");
			return fd;
		}
		while (!helper_done(&helper, 50))
			pthread_kill(helper.thread, SIGUSR2);
		close(fd);
	}
	conf_die("no socket on path 0");
}
