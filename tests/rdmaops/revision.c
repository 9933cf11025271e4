/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* revision.c - see revision.h. */
#include "revision.h"

#include <errno.h>
#include <poll.h>

struct get_mr_a0 {
	struct vec vec;
	uint64_t key_addr, phy_addr;
};

struct get_mr_a1 { /* and A2 */
	struct vec vec;
	uint64_t key_addr;
	uint8_t use_once, reserved[7];
};

_Static_assert(sizeof(struct get_mr_a0) == 32 && sizeof(struct get_mr_a1) == 32, "GET_MR");
enum age age;
int level = 276;
bool looks_up;
int fd;
struct sockaddr_in peer;

bool has_barrier(void)
{
	return age <= B2;
}

bool has_notice(void)
{
	return age >= B2;
}

int set(int option, const void *value, socklen_t len)
{
	return setsockopt(fd, level, option, value, len) ? -errno : 0;
}

void region_words(void *out, void *addr, uint64_t *cookie, uint64_t *phys, bool once)
{
	struct get_mr_a0 a0 = {{(uintptr_t)addr, LEN}, (uintptr_t)cookie, (uintptr_t)phys};
	struct get_mr_a1 a1 = {{(uintptr_t)addr, LEN}, (uintptr_t)cookie, once, {0x11, 0x22, 0x33, 0, 0x44, 0, 0x7f}};
	struct get_mr b = {{(uintptr_t)addr, LEN}, (uintptr_t)cookie, F_WRITE | (once ? F_USE_ONCE : 0)};

	memcpy(out, age == A0 ? (void *)&a0 : age <= A2 ? (void *)&a1 : (void *)&b, 32);
}

int free_region(uint64_t cookie, bool invalidate)
{
	struct free_mr f = {cookie, invalidate ? (age <= A2 ? 1 : F_INVALIDATE) : 0};

	return set(OPT_FREE_MR, &f, sizeof(f));
}

int barrier_to(uint32_t daddr, uint64_t wait, bool dontwait, uint64_t *mark)
{
	struct barrier24 a = {daddr, dontwait ? MSG_DONTWAIT : 0, (uintptr_t)mark, wait};
	struct barrier32 b = {daddr, 0, dontwait ? 0x10 : 0, (uintptr_t)mark, wait};

	return age <= A2 ? set(OPT_BARRIER, &a, sizeof(a)) : set(OPT_BARRIER, &b, sizeof(b));
}

int barrier(uint64_t wait, bool dontwait, uint64_t *mark)
{
	return barrier_to(peer.sin_addr.s_addr, wait, dontwait, mark);
}

/* ---- what comes ---- */

static void take_note(const struct cmsghdr *c, struct came *m)
{
	size_t len = c->cmsg_len - CMSG_LEN(0);
	uint32_t w[4] = {0};

	memcpy(w, CMSG_DATA(c), len < 16 ? len : 16);
	if (age == D && len != 16)
		fail("a notification: expected 16 bytes, came %zu", len);
	if (age == B2 && len != 8)
		fail("a notification of an operation of 64 bytes: expected 8 bytes, came %zu", len);
	if (age == C && len < 8)
		fail("a notification: expected at least 8 bytes, came %zu", len);
	m->note = true;
	m->token = age == D ? (uint64_t)w[1] << 32 | w[0] : w[0]; /* C reads 8 bytes in any case */
	m->status = (int)(age == D ? w[2] : w[1]);
}

static const socklen_t rooms[] = {sizeof(struct sockaddr_in), 8, sizeof(struct sockaddr_in6), 0, 128};

/*
 * A notification has no sender.  Old programs are those that call RDS_BARRIER or look the numbers
 * up.  They are given the length of an address all the same, as by kernels of that age; later
 * kernels say 0.
 */
static void name_is(const unsigned char *name, socklen_t room, socklen_t len, bool note)
{
	struct sockaddr_in none = {.sin_family = AF_INET};
	bool old = age <= B2 || looks_up;
	socklen_t kept = note && !old ? 0 : room < sizeof(none) ? room : sizeof(none), i;

	expect(len, note ? kept : sizeof(none), "the length of a name, of %u given, of a %s", room,
	       note ? "notification" : "message");
	expect_bytes(name, note ? &none : &peer, kept, "the name");
	for (i = kept; i < 128; i++)
		check(name[i] == 0xee, "byte %u of a name, of %u given, was written to", i, room);
}

struct came next(const char *what)
{
	static unsigned calls;
	double since = seconds();
	_Alignas(8) unsigned char name[128];
	_Alignas(8) unsigned char control[256];
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct cmsghdr *c;
	ssize_t n;

	for (;;) {
		struct came m = {.len = 0};
		struct iovec iov = {m.body, sizeof(m.body)};
		socklen_t room = rooms[calls++ % (sizeof(rooms) / sizeof(rooms[0]))];
		struct msghdr h = {.msg_name = name,
				   .msg_namelen = room,
				   .msg_iov = &iov,
				   .msg_iovlen = 1,
				   .msg_control = control,
				   .msg_controllen = sizeof(control)};

		waits(&since, "%s", what);
		memset(name, 0xee, sizeof(name));
		n = recvmsg(fd, &h, MSG_DONTWAIT);
		if (n < 0) {
			check(errno == EAGAIN, "recvmsg: %m");
			if (poll(&p, 1, 100) == 1 && has_barrier())
				barrier(0, false, NULL); /* POLLIN may have been for it */
			continue;
		}
		m.len = (size_t)n;
		for (c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
			if (c->cmsg_level == level && c->cmsg_type == CMSG_STATUS)
				take_note(c, &m);
			else if (c->cmsg_level == level && c->cmsg_type == CMSG_DEST)
				memcpy(&m.cookie, CMSG_DATA(c), 8);
			else if (c->cmsg_level != level)
				fail("a control message of level %d, expected %d", c->cmsg_level, level);
		}
		m.letter = n > 0;
		name_is(name, room, h.msg_namelen, m.note);
		if (m.letter || m.note)
			return m;
	}
}

int send_with(const void *data, size_t len, int type, const void *cmsg, size_t cmsg_len)
{
	struct out o;

	out_begin(&o, &peer, data, len);
	if (type) {
		out_cmsg(&o, type, cmsg, cmsg_len);
		((struct cmsghdr *)(void *)o.control)->cmsg_level = level;
		if (age <= A2)
			o.msg.msg_controllen = CMSG_LEN(cmsg_len); /* as they did */
	}
	return out_send(&o, fd, 0);
}
