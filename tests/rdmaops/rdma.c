/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma.c - calls, control messages and boxes of rdma.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "rdma.h"

#include "../sharing/held.h"

#ifndef PF_RDS
#define PF_RDS 21
#endif
#define SOL_RDS 276

bool same_process, pinned;

/* If it hangs. */
__attribute__((constructor)) static void shows_stacks(void)
{
	test_shows_stacks();
}

/* ---- failing ---- */

__attribute__((format(printf, 3, 0))) static void complain(const char *file, int line, const char *fmt, va_list ap)
{
	const char *base = strrchr(file, '/');

	fflush(stdout);
	fprintf(stderr, "%s:%d: pid %d: ", base ? base + 1 : file, line, (int)getpid());
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(file, line, fmt, ap);
	va_end(ap);
	_exit(1);
}

static const char *result_name(long v, char *buf, size_t len)
{
	if (v < 0)
		snprintf(buf, len, "%ld (%s)", v, strerror((int)-v));
	else
		snprintf(buf, len, "%ld", v);
	return buf;
}

void expect_at(const char *file, int line, const char *what, long got, long want, const char *fmt, ...)
{
	char text[512], a[64], b[64];
	va_list ap;

	if (got == want)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fail_at(file, line, "%s: expected %s, came %s (%s)", text, result_name(want, a, sizeof(a)),
		result_name(got, b, sizeof(b)), what);
}

void expect_bytes_at(const char *file, int line, const void *got, const void *want, size_t len, const char *fmt, ...)
{
	const unsigned char *g = got, *w = want;
	char text[512];
	size_t i, n = 0;
	va_list ap;

	if (memcmp(g, w, len) == 0)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (i = len; i-- > 0;)
		n += g[i] != w[i];
	for (i = 0; g[i] == w[i]; i++)
		;
	fail_at(file, line, "%s: %zu of %zu bytes are wrong, the first at %zu: expected %02x, came %02x", text, n, len,
		i, w[i], g[i]);
}

/* ---- small things ---- */

uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void pattern(void *buf, size_t len, uint64_t key)
{
	unsigned char *p = buf;
	uint64_t word = mix(key), v;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = len - i < 8 ? len - i : 8;
		v = word ^ (word >> 29);
		memcpy(p + i, &v, n);
		word = word * 6364136223846793005ull + 1442695040888963407ull;
	}
}

void *pages(size_t bytes)
{
	size_t len = (bytes + PAGE - 1) / PAGE * PAGE;
	unsigned char *p = mmap(NULL, len + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(p != MAP_FAILED, "mmap: %m");
	check(mprotect(p + PAGE, len, PROT_READ | PROT_WRITE) == 0, "mprotect: %m");
	return p + PAGE;
}

double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

double deadline(void)
{
	return TEST_COMES / 1000.0;
}

void waits_at(const char *file, int line, double *since, const char *fmt, ...)
{
	double age = seconds() - (*since < 0 ? -*since : *since);
	bool late = age > deadline();
	va_list ap;

	if (!late && (*since < 0 || age < 10.0 * test_slow()))
		return;
	*since = *since < 0 ? *since : -*since;
	fprintf(stderr, late ? "LATE " : "still waits: ");
	va_start(ap, fmt);
	complain(file, line, fmt, ap);
	va_end(ap);
	if (late)
		_exit(TEST_LATE);
}

/* ---- sockets and regions ---- */

struct sockaddr_in name_of(uint32_t addr, unsigned port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = addr};
}

uint32_t address(unsigned n)
{
	const char *text = getenv("RDMAOPS_ADDR"), *p;
	unsigned count = 1;
	struct in_addr a;
	char one[64];

	if (!text || !*text)
		return htonl(INADDR_LOOPBACK);
	for (p = text; *p; p++)
		count += *p == ',';
	for (p = text, n %= count; n; n--)
		p = strchr(p, ',') + 1;
	snprintf(one, sizeof(one), "%.*s", (int)strcspn(p, ","), p);
	check(inet_pton(AF_INET, one, &a) == 1, "RDMAOPS_ADDR=%s: %s is no address", text, one);
	return a.s_addr;
}

int rds_socket(int type)
{
	return getenv("RDMAOPS_HELD") ? held_socket(type, false) : socket(PF_RDS, type, 0);
}

int rds_bound(uint32_t addr, unsigned port)
{
	struct sockaddr_in sin = name_of(addr, port);
	int fd = rds_socket(SOCK_SEQPACKET);

	if (fd < 0)
		fail("socket(PF_RDS): %m; is librdspreload.so preloaded?");
	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)))
		fail("bind to %s port %u: %m", inet_ntoa(sin.sin_addr), port);
	return fd;
}

static int set(int fd, int option, const void *value, size_t len)
{
	return setsockopt(fd, SOL_RDS, option, value, (socklen_t)len) ? -errno : 0;
}

int set_int(int fd, int option, int value)
{
	return set(fd, option, &value, sizeof(value));
}

int get_mr(int fd, const void *addr, size_t bytes, uint64_t flags, uint64_t *cookie)
{
	struct get_mr a = {{(uintptr_t)addr, bytes}, (uintptr_t)cookie, flags};

	return set(fd, OPT_GET_MR, &a, sizeof(a));
}

int get_mr_for_dest(int fd, const struct sockaddr_in *dest, const void *addr, size_t bytes, uint64_t flags,
		    uint64_t *cookie)
{
	struct get_mr_for_dest a = {.vec = {(uintptr_t)addr, bytes}, .cookie_addr = (uintptr_t)cookie, .flags = flags};

	memcpy(a.dest, dest, sizeof(*dest));
	return set(fd, OPT_GET_MR_FOR_DEST, &a, sizeof(a));
}

int free_mr(int fd, uint64_t cookie, uint64_t flags)
{
	struct free_mr a = {cookie, flags};

	return set(fd, OPT_FREE_MR, &a, sizeof(a));
}

/* ---- sending ---- */

void out_begin(struct out *o, const struct sockaddr_in *to, const void *payload, size_t len)
{
	o->to = *to;
	o->iov = (struct iovec){(void *)(uintptr_t)payload, len};
	o->msg = (struct msghdr){.msg_name = &o->to,
				 .msg_namelen = sizeof(o->to),
				 .msg_iov = &o->iov,
				 .msg_iovlen = 1,
				 .msg_control = o->control};
	memset(o->control, 0, sizeof(o->control));
}

void out_cmsg(struct out *o, int type, const void *data, size_t len)
{
	struct cmsghdr *c = (struct cmsghdr *)(void *)(o->control + o->msg.msg_controllen);

	check(o->msg.msg_controllen + CMSG_SPACE(len) <= sizeof(o->control), "too many control messages");
	c->cmsg_level = SOL_RDS;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	o->msg.msg_controllen += CMSG_SPACE(len);
}

int out_send(struct out *o, int fd, int flags)
{
	ssize_t n = sendmsg(fd, &o->msg, flags);

	return n < 0 ? -errno : (int)n;
}

uint64_t vec_bytes(const struct vec *v, unsigned n)
{
	uint64_t sum = 0;

	while (n--)
		sum += v[n].bytes;
	return sum;
}

int op_send(int fd, const struct sockaddr_in *to, const struct op *op)
{
	struct rdma_args a = {.cookie = op->cookie,
			      .remote = {op->remote_addr, vec_bytes(op->local, op->nr_local)},
			      .local_vec = (uintptr_t)op->local,
			      .nr_local = op->nr_local,
			      .flags = op->flags,
			      .token = op->token};
	struct out o;

	out_begin(&o, to, op->payload, op->len);
	out_cmsg(&o, CMSG_ARGS, &a, sizeof(a));
	return out_send(&o, fd, 0);
}

void write_numbered(int fd, const struct sockaddr_in *to, struct op where, struct vec from, unsigned i)
{
	where.flags = F_WRITE | F_NOTIFY;
	where.token = i + 1;
	where.local = &from;
	where.nr_local = 1;
	where.payload = &i;
	where.len = sizeof(i);
	expect(op_send(fd, to, &where), sizeof(i), "write %u", i);
}

/* ---- receiving ---- */

struct box *box_new(int fd)
{
	struct box *b = calloc(1, sizeof(*b));

	check(b, "memory");
	b->fd = fd;
	return b;
}

void box_free(struct box *b)
{
	while (b->letters--)
		free(b->letter[b->first_letter++ % BOX_MAX].body);
	free(b);
}

static void take_status(struct box *b, const struct cmsghdr *c, struct notify *batch, unsigned *n)
{
	check(c->cmsg_len == CMSG_LEN(sizeof(struct notify)), "a notification of %zu bytes, expected 16",
	      (size_t)c->cmsg_len - CMSG_LEN(0));
	check(*n < 8, "more notifications than there is room for");
	memcpy(&batch[(*n)++], CMSG_DATA(c), sizeof(struct notify));
	check(b->notes + *n <= BOX_MAX, "too many notifications");
}

bool box_pump(struct box *b)
{
	_Alignas(8) unsigned char control[8 * 32];
	static __thread unsigned char body[BODY_MAX];
	struct letter l = {.cookie = 0};
	struct iovec iov = {body, sizeof(body)};
	struct msghdr m = {.msg_name = &l.from,
			   .msg_namelen = sizeof(l.from),
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	ssize_t len = recvmsg(b->fd, &m, MSG_DONTWAIT);
	struct notify batch[8];
	struct cmsghdr *c;
	bool other = false;
	unsigned n = 0;

	if (len < 0) {
		check(errno == EAGAIN, "recvmsg: %m");
		return false;
	}
	check(!(m.msg_flags & MSG_TRUNC), "a message longer than %u bytes", BODY_MAX);
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_RDS)
			continue;
		if (c->cmsg_type == CMSG_STATUS)
			take_status(b, c, batch, &n);
		else if (c->cmsg_type == CMSG_CONG)
			other = true;
		else if (c->cmsg_type == CMSG_DEST)
			memcpy(&l.cookie, CMSG_DATA(c), sizeof(l.cookie));
	}
	if (n) { /* newest first: turned round, so that the ring is in order */
		check(len == 0 && m.msg_namelen == 0, "notifications with data (%zd bytes, name %u)", len,
		      m.msg_namelen);
		while (n--)
			b->note[(b->first_note + b->notes++) % BOX_MAX] = batch[n];
		return true;
	}
	if (other)
		return true;
	check(b->letters < BOX_MAX, "too many messages");
	check(m.msg_namelen == sizeof(l.from), "a message of %zd bytes with a name of %u", len, m.msg_namelen);
	l.len = (size_t)len;
	l.body = malloc(l.len + 1);
	check(l.body, "memory");
	memcpy(l.body, body, l.len);
	b->letter[(b->first_letter + b->letters++) % BOX_MAX] = l;
	return true;
}

int box_wait(struct box *b, int ms)
{
	struct pollfd p = {.fd = b->fd, .events = POLLIN};

	return poll(&p, 1, ms);
}

static bool take_note(struct box *b, uint64_t token, int *status)
{
	unsigned i, j;

	for (i = 0; i < b->notes; i++) {
		struct notify *n = &b->note[(b->first_note + i) % BOX_MAX];

		if (n->token != token)
			continue;
		*status = n->status;
		for (j = i; j > 0; j--)
			b->note[(b->first_note + j) % BOX_MAX] = b->note[(b->first_note + j - 1) % BOX_MAX];
		b->first_note = (b->first_note + 1) % BOX_MAX;
		b->notes--;
		return true;
	}
	return false;
}

int box_status(struct box *b, uint64_t token)
{
	double since = seconds();
	int status;

	while (!take_note(b, token, &status)) {
		if (box_pump(b))
			continue;
		waits(&since, "for the notification with token %llx (%u others, %u messages came)",
		      (unsigned long long)token, b->notes, b->letters);
		box_wait(b, 100);
	}
	return status;
}

struct letter box_letter(struct box *b)
{
	double since = seconds();
	struct letter l;

	while (!b->letters) {
		if (box_pump(b))
			continue;
		waits(&since, "for a message (%u notifications are there)", b->notes);
		box_wait(b, 100);
	}
	l = b->letter[b->first_letter];
	b->first_letter = (b->first_letter + 1) % BOX_MAX;
	b->letters--;
	return l;
}

void box_empty(struct box *b, const char *why)
{
	while (box_pump(b))
		;
	if (b->notes)
		fail("%s: expected no notification, came %u: token %llx, status %d", why, b->notes,
		     (unsigned long long)b->note[b->first_note].token, b->note[b->first_note].status);
	if (b->letters)
		fail("%s: expected no message, came %u: %zu bytes from port %u", why, b->letters,
		     b->letter[b->first_letter].len, ntohs(b->letter[b->first_letter].from.sin_port));
}

int take_notes(int fd, struct notify *n, unsigned room)
{
	_Alignas(8) unsigned char control[16 * 32];
	struct msghdr m = {.msg_control = control, .msg_controllen = room * 32};
	struct cmsghdr *c;
	int count = 0;
	ssize_t len;

	check(room * 32 <= sizeof(control), "room");
	len = recvmsg(fd, &m, MSG_DONTWAIT);
	if (len < 0)
		return -errno;
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_RDS && c->cmsg_type == CMSG_STATUS)
			memcpy(&n[count++], CMSG_DATA(c), sizeof(*n));
	return count;
}

/* ---- cases ---- */

static char skipped[256];

void skip(const char *why, ...)
{
	va_list ap;

	va_start(ap, why);
	vsnprintf(skipped, sizeof(skipped), why, ap);
	va_end(ap);
}

static bool wanted(const char *name, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

int cases_main(int argc, char **argv, const struct test_case *c, unsigned n)
{
	unsigned i, ran = 0, skips = 0;
	int o;

	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (i = 0; i < n; i++)
			puts(c[i].name);
		return 0;
	}
	while ((o = getopt(argc, argv, "lp")) != -1) {
		if (o == 'l')
			same_process = true;
		else if (o == 'p')
			pinned = true;
		else
			return 2;
	}
	alarm(test_alarm(60) * (argc > optind ? 1 : n));
	for (i = 0; i < n; i++) {
		double start = seconds();

		if (!wanted(c[i].name, argv + optind))
			continue;
		skipped[0] = '\0';
		c[i].run();
		if (skipped[0])
			printf("%s: skipped, %s\n", c[i].name, skipped);
		else
			printf("%s: right, %.2f s\n", c[i].name, seconds() - start);
		fflush(stdout);
		skips += skipped[0] != '\0';
		ran++;
	}
	if (!ran)
		fail("no case has such a name");
	return skips == ran ? 77 : 0;
}
