/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * box.c - how descriptors outlive their process: the box of an address.
 *
 * A datagram socket that is connected to itself: what is sent there lies in it as long as any process has
 * it, and nobody else can send to it.  The owner leaves a packet for each trunk, with the descriptors of
 * its memory and of its carrier.  A packet that has been replaced is taken out later: so at any moment one
 * is there.  The next owner looks at a packet, leaves one of its own, and only then takes out the old one,
 * unless there is no room for both.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>

#include "engine/node/socket_name.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/trunk/memory.h"

#define NAME "rds.box."
#define BOX_MAGIC 0x786f6274u
#define BOX_BYTES (1 << 20)
#define PACKETS_MAX 4096u
#define TIDY_EVERY 16u

unsigned trunk_box_useless;

static int box_bind(int fd, const struct rds_procid *name)
{
	struct sockaddr_un sun;
	socklen_t len = rds_node_name_address(NAME, name, &sun);
	int err = os_bind(fd, (struct sockaddr *)&sun, len);

	return err == -EADDRINUSE ? os_bind(fd, (struct sockaddr *)&sun, sizeof(sun.sun_family)) : err; /* any name */
}

int rds_trunk_box_new(const struct rds_procid *name)
{
	int fd = os_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err, bytes = BOX_BYTES;
	struct sockaddr_un sun;
	socklen_t len = sizeof(sun);

	if (fd < 0)
		return fd;
	os_setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)); /* the kernel's limit is lower, mostly */
	err = box_bind(fd, name);
	if (!err)
		err = os_getsockname(fd, (struct sockaddr *)&sun, &len);
	if (!err)
		err = os_connect(fd, (struct sockaddr *)&sun, len);
	if (!err)
		return fd;
	os_close(fd);
	return err;
}

/* Nobody can connect to one that is connected to itself. */
bool rds_trunk_box_exists(const struct rds_procid *name)
{
	struct sockaddr_un sun;
	socklen_t len = rds_node_name_address(NAME, name, &sun);
	int fd = os_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool is = fd >= 0 && os_connect(fd, (struct sockaddr *)&sun, len) == -EPERM;

	if (fd >= 0)
		os_close(fd);
	return is;
}

bool rds_trunk_box_is_one(int box)
{
	struct sockaddr_un own, peer;
	socklen_t n = sizeof(own), m = sizeof(peer), size = sizeof(int);
	int type = 0;

	memset(&own, 0, sizeof(own));
	memset(&peer, 0, sizeof(peer));
	return !os_getsockopt(box, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_DGRAM &&
	       !os_getsockname(box, (struct sockaddr *)&own, &n) && own.sun_family == AF_UNIX &&
	       !os_syscall(SYS_getpeername, box, (long)&peer, (long)&m, 0, 0, 0) && n == m && n <= sizeof(own) &&
	       !memcmp(&own, &peer, n);
}

static int box_send(struct rds_trunk *t, uint32_t carrier, int fd)
{
	struct rds_trunk_packet p = {.magic = BOX_MAGIC,
				     .version = TRUNK_VERSION,
				     .laddr = t->name.laddr,
				     .faddr = t->name.faddr,
				     .scope = t->name.scope,
				     .carrier = fd < 0 ? 0 : carrier,
				     .nfds = fd < 0 ? RDS_TRUNK_CARRIER : RDS_TRUNK_FDS,
				     .id = t->id,
				     .made = t->made};
	int fds[RDS_TRUNK_FDS], err, self = (int)os_syscall(SYS_pidfd_open, os_getpid(), 0, 0, 0, 0, 0);

	if (self < 0)
		return self;
	trunk_step();
	os_fds_hold();
	fds[RDS_TRUNK_MEMORY] = atomic_load(&t->memory);
	fds[RDS_TRUNK_OWNER] = self;
	fds[RDS_TRUNK_CARRIER] = fd;
	err = os_pass_send(atomic_load(t->box), &p, sizeof(p), fds, p.nfds, MSG_DONTWAIT);
	os_fds_release();
	os_close(self);
	trunk_step();
	return err;
}

static void packet_close(const int *fds)
{
	unsigned i;

	for (i = 0; i < RDS_TRUNK_FDS; i++)
		if (fds[i] >= 0)
			os_close(fds[i]);
}

/* Is it the last one that a trunk of this process has left? */
static bool packet_is_needed(const struct rds_trunk_packet *p)
{
	const struct rds_trunk *t = trunk_all;

	while (t && t->id != p->id)
		t = t->next;
	return t && p->carrier == t->carried;
}

/* What is needed goes behind, and is never missing.  All packets there are of this process. */
static void box_tidy(int box)
{
	struct rds_trunk_packet p;
	unsigned n = rds_trunk_box_each(box, NULL, NULL);
	int fds[RDS_TRUNK_FDS], err;

	for (; n; n--) {
		err = rds_trunk_box_first(box, &p, fds);
		if (err && err != -EPROTO)
			return;
		if (!err && packet_is_needed(&p))
			err = os_pass_send(box, &p, sizeof(p), fds, p.nfds, MSG_DONTWAIT);
		else if (trunk_box_useless)
			trunk_box_useless--;
		packet_close(fds);
		trunk_step();
		if (err && err != -EPROTO) /* no room for a second one */
			return;
		rds_trunk_box_drop_first(box);
	}
}

static unsigned trunks_here(void)
{
	const struct rds_trunk *t;
	unsigned n = 0;

	for (t = trunk_all; t; t = t->next)
		n++;
	return n;
}

static void leave_failed(int err)
{
	rds_warn_once("what other processes send and get over this one may be lost if it is killed: %s",
		      err == -ETOOMANYREFS ? RDS_LOG_EMFILE : strerror(-err));
}

/* A carrier's number counts, whether it could be left there or not. */
static int trunk_leave(struct rds_trunk *t, int fd)
{
	int err = box_send(t, fd < 0 ? 0 : ++t->packets, fd);

	if (!err)
		t->carried = fd < 0 ? 0 : t->packets;
	return err;
}

int rds_trunk_box_put(struct rds_trunk *t, const _Atomic int *box, int carrier)
{
	int err;

	t->box = box;
	err = trunk_leave(t, carrier);
	if (err)
		leave_failed(err);
	return err;
}

/* Packets that were replaced are taken out when they are many, so that it does not cost more the more there are. */
uint32_t rds_trunk_carry(struct rds_trunk *t, int carrier)
{
	int err;

	if (!t->box)
		return 0;
	if (trunk_box_useless > TIDY_EVERY + trunks_here())
		box_tidy(atomic_load(t->box));
	err = trunk_leave(t, carrier);
	if (err) {
		box_tidy(atomic_load(t->box));
		err = trunk_leave(t, carrier);
	}
	if (err) {
		leave_failed(err);
		return 0;
	}
	trunk_box_useless++;
	return t->packets;
}

/* ---- who takes it over ---- */

static bool packet_is_valid(const struct rds_trunk_packet *p, ssize_t len)
{
	return len == (ssize_t)sizeof(*p) && p->magic == BOX_MAGIC && p->version == TRUNK_VERSION &&
	       p->nfds == (p->carrier ? RDS_TRUNK_FDS : RDS_TRUNK_CARRIER);
}

int rds_trunk_box_first(int box, struct rds_trunk_packet *p, int fds[RDS_TRUNK_FDS])
{
	int got[OS_PASS_MAX];
	unsigned n = 0, i;
	bool lost;
	ssize_t len = os_pass_recv(box, p, sizeof(*p), got, &n, &lost, MSG_PEEK | MSG_DONTWAIT);
	bool valid = len >= 0 && packet_is_valid(p, len), all = valid && !lost && n == p->nfds;

	for (i = 0; i < RDS_TRUNK_FDS; i++)
		fds[i] = all && i < n ? got[i] : -1;
	if (len < 0 || all)
		return len < 0 ? (int)len : 0;
	for (i = 0; i < n; i++)
		os_close(got[i]);
	return valid && lost ? -EMFILE : -EPROTO;
}

static void box_look_from(int box, int byte)
{
	os_setsockopt(box, SOL_SOCKET, SO_PEEK_OFF, &byte, sizeof(byte));
}

unsigned rds_trunk_box_each(int box, bool (*fn)(const struct rds_trunk_packet *p, const int *fds, void *arg), void *arg)
{
	struct rds_trunk_packet p;
	bool more = true;
	unsigned n = 0;
	int fds[RDS_TRUNK_FDS], err;

	box_look_from(box, 0);
	while (more && n < PACKETS_MAX) {
		err = rds_trunk_box_first(box, &p, fds);
		if (err && err != -EPROTO && err != -EMFILE)
			break;
		n++;
		more = err == -EPROTO || !fn || fn(&p, fds, arg);
		packet_close(fds);
	}
	box_look_from(box, -1);
	return n;
}

void rds_trunk_box_drop_first(int box)
{
	struct rds_trunk_packet p;
	int fds[OS_PASS_MAX];
	unsigned n;
	bool lost;

	trunk_step();
	os_pass_recv_few(box, &p, sizeof(p), fds, 0, &n, &lost, MSG_DONTWAIT);
}

static bool memory_is_left(int memory)
{
	const struct trunk_head *h;
	void *map;
	bool left;

	if (os_memfd_sealed_size(memory, F_SEAL_SHRINK) < (int64_t)sizeof(*h) ||
	    os_mmap(sizeof(*h), PROT_READ, MAP_SHARED, memory, 0, &map))
		return false;
	h = map;
	left = atomic_load(&h->left);
	os_munmap(map, sizeof(*h));
	return left;
}

bool rds_trunk_box_is_left(const int *fds)
{
	struct pollfd ended = {.fd = fds[RDS_TRUNK_OWNER], .events = POLLIN};

	return memory_is_left(fds[RDS_TRUNK_MEMORY]) || os_poll(&ended, 1, 0) > 0;
}
