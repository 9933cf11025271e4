/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * standby.c - the borrower's side of lease.h: the standbys that this process keeps of sockets that
 * other processes own, and how this process becomes the owner.
 *
 * There is one entry for each socket, by the inode of the stand-in. While an entry is TAKEN, a
 * thread of this process is becoming the owner, or has become the owner. Then the lease is not let
 * into the table a second time, because closing that descriptor would give up the lock (lease.c).
 * The same holds for sockets that this process's engine has.
 *
 * One lock guards everything. It is held for a few system calls, none of which sleeps. A thread
 * that only looks up what to sleep for takes no lock. A signal handler that makes a call over a
 * channel that exists does not come here (borrower_channel.c).
 *
 * Must not know how a channel is made, nor what becomes of a socket that is taken (handoff_in.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/share/borrower.h"
#include "engine/node/socket_name.h"
#include "engine/share/standby.h"
#include "engine/sys/patience.h"
#include "engine/rds.h"

#define SLOTS 64
#define CHUNKS 1024

pthread_mutex_t standby_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct standby *) chunks[CHUNKS] RDS_TABLE; /* never freed */
static _Atomic unsigned held;

/* ---- entries ---- */

struct standby *standby_next(unsigned *at)
{
	struct standby *chunk;
	unsigned i = *at;

	if (i >= CHUNKS * SLOTS || !(chunk = atomic_load(&chunks[i / SLOTS])))
		return NULL;
	++*at;
	return &chunk[i % SLOTS];
}

struct standby *standby_find(uint64_t inode)
{
	struct standby *h;
	unsigned at;

	for (at = 0; (h = standby_next(&at));)
		if (h->state != FREE && h->inode == inode)
			return h;
	return NULL;
}

static struct standby *standby_new_chunk(unsigned i)
{
	struct standby *chunk;
	unsigned k, part;
	void *mem;

	if (i >= CHUNKS ||
	    os_mmap(SLOTS * sizeof(struct standby), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem))
		return NULL;
	chunk = mem;
	for (k = 0; k < SLOTS; k++)
		for (part = 0; part < PARTS; part++)
			atomic_store(&chunk[k].fd[part], -1);
	atomic_store(&chunks[i], chunk);
	return chunk;
}

struct standby *standby_add(uint64_t inode)
{
	struct standby *h;
	unsigned at;

	for (at = 0; (h = standby_next(&at));)
		if (h->state == FREE)
			break;
	if (!h)
		h = standby_new_chunk(at / SLOTS);
	if (h) {
		h->inode = inode;
		h->hung_up = false;
	}
	return h;
}

void standby_set(struct standby *h, uint32_t state)
{
	unsigned before = h->state == HELD, now = state == HELD;

	h->state = state;
	atomic_fetch_add(&held, now - before);
}

void standby_drop(struct standby *h)
{
	unsigned part;

	for (part = 0; part < PARTS; part++)
		os_close_slot(&h->fd[part]);
	standby_set(h, FREE);
}

int rds_standby_read_lease(int page, struct rds_share_state *st)
{
	struct rds_lease_page *lease;
	void *map;
	int err = rds_lease_is_sound(page) ? 0 : -EPROTO;

	if (!err)
		err = os_mmap(sizeof(*lease), PROT_READ, MAP_SHARED, page, 0, &map);
	if (err)
		return err;
	lease = map;
	if (lease->magic != RDS_SHARE_MAGIC || lease->version != RDS_SHARE_VERSION)
		err = -EPROTO;
	*st = lease->st[atomic_load(&lease->which) & 1];
	st->n_messages = st->n_reports = st->n_unsent = 0;
	os_munmap(map, sizeof(*lease));
	return err;
}

bool rds_standby_any(void)
{
	return atomic_load_explicit(&held, memory_order_relaxed);
}

/* ---- what an owner sends ---- */

static bool standin_is_ours(uint64_t inode)
{
	struct rds_sock *sk = os_process_inherited() ? NULL : rds_sock_by_inode(inode);

	if (sk)
		rds_sock_put(sk);
	return sk;
}

/*
 * There is a standby already, and the socket has a new owner: keeps the new owner's hang-up pipe.
 * Without the pipe (no descriptor was free) sleepers are not woken, but the socket can still be
 * taken over.
 */
static void standby_keep_hangup(struct standby *h, const int *fds, unsigned n, uint64_t lease)
{
	struct stat st;
	unsigned i;

	os_close_slot(&h->fd[HANGUP]);
	h->hung_up = false;
	if (n == 2)
		os_dup_high_slot(fds[HANGUP], &h->fd[HANGUP]);
	for (i = 0; i < n; i++)
		if (n != 2 || i != HANGUP)
			os_close(fds[i]);
	/*
	 * The standby may be of another socket, whose stand-in was closed unnoticed, and whose
	 * inode this socket has got.
	 */
	if (n && (os_fstat(atomic_load(&h->fd[LEASE]), &st) || st.st_ino != lease))
		standby_drop(h);
}

/* Takes the descriptors: all, or all but the mailbox. */
static void standby_keep_fds(uint64_t inode, const int *fds, unsigned n)
{
	struct standby *h = n == PARTS || n == PARTS - 1 ? standby_add(inode) : NULL;
	unsigned i, part;
	int err = 0;

	for (i = 0; i < n; i++) {
		part = i == MAILBOX && n < PARTS ? LEASE : i;
		if (!h || err)
			os_close(fds[i]);
		else
			err = os_dup_high_slot(fds[i], &h->fd[part]);
	}
	if (h && err)
		standby_drop(h);
	else if (h)
		standby_set(h, HELD);
}

ssize_t rds_standby_read_hello(int channel, uint64_t inode, struct rds_share_reply *a)
{
	int fds[OS_PASS_MAX];
	unsigned n, room;
	struct standby *h;
	ssize_t len;
	bool lost;

	pthread_mutex_lock(&standby_lock);
	h = standby_find(inode);
	if (h)
		room = h->state == HELD ? 2 : 0;
	else
		room = standin_is_ours(inode) ? 0 : PARTS;
	len = os_pass_recv_few(channel, a, sizeof(*a), fds, room, &n, &lost, MSG_DONTWAIT);
	if (len > 0 && room == 2)
		standby_keep_hangup(h, fds, n, (uint64_t)a->result);
	else if (len > 0 && !lost)
		standby_keep_fds(inode, fds, n);
	else
		while (n)
			os_close(fds[--n]);
	pthread_mutex_unlock(&standby_lock);
	return len;
}

/* Closes what rds_handoff_peek() returned. */
static void standby_close_parts(const int fds[3])
{
	unsigned i;

	for (i = 0; i < 3; i++)
		if (fds[i] >= 0)
			os_close(fds[i]);
}

bool rds_standby_keep_parked(int fd, uint64_t inode, bool *hidden)
{
	int fds[3], left, err;
	struct standby *h;
	bool mine;

	pthread_mutex_lock(&standby_lock);
	h = standby_find(inode);
	mine = h || standin_is_ours(inode);
	left = mine ? rds_handoff_is_parked(fd) : rds_handoff_peek(fd, fds);
	*hidden = !mine && left > 0 && fds[1] < 0;
	if (left && !mine && fds[1] >= 0 && (h = standby_add(inode))) {
		err = os_dup_high_slot(fds[0], &h->fd[PAIR]);
		if (os_dup_high_slot(fds[1], &h->fd[LEASE]))
			err = -EMFILE;
		if (fds[2] >= 0 && os_dup_high_slot(fds[2], &h->fd[MAILBOX]))
			err = -EMFILE;
		if (err)
			standby_drop(h);
		else
			standby_set(h, HELD);
	} else if (left && !mine && fds[1] >= 0) {
		standby_close_parts(fds);
	}
	pthread_mutex_unlock(&standby_lock);
	return left;
}

void rds_standby_drop(uint64_t inode)
{
	struct standby *h;

	pthread_mutex_lock(&standby_lock);
	h = standby_find(inode);
	if (h && h->state == HELD) {
		standby_drop(h);
		if (!rds_standby_any())
			rds_node_inherited_drop();
	}
	pthread_mutex_unlock(&standby_lock);
}

/* ---- has the owner been killed? ---- */

/*
 * An owner gives up the lock when the parked packet is in place. Otherwise only the kernel frees
 * it.
 */
static bool standby_is_unowned(const struct standby *h)
{
	return h && h->state == HELD && os_lock_holder(atomic_load(&h->fd[LEASE]), 0, 1) == 0;
}

bool rds_standby_owner_died(int fd)
{
	struct stat st;
	bool yes;

	if (!rds_standby_any() || os_fstat(fd, &st))
		return false;
	pthread_mutex_lock(&standby_lock);
	yes = standby_is_unowned(standby_find(st.st_ino));
	pthread_mutex_unlock(&standby_lock);
	return yes;
}

void rds_standby_show_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct stat st;
	struct standby *h;

	if (os_fstat(fd, &st) || os_poll(&p, 1, 0) > 0)
		return;
	pthread_mutex_lock(&standby_lock);
	h = standby_find(st.st_ino);
	if (standby_is_unowned(h))
		os_send(atomic_load(&h->fd[PAIR]), "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
	pthread_mutex_unlock(&standby_lock);
}

/* ---- becoming the owner ---- */

static bool lease_is_of_standin(int page, int fd)
{
	struct rds_share_state st;
	struct rds_procid name;

	return !rds_standby_read_lease(page, &st) && rds_node_name_read(fd, &name) &&
	       memcmp(&name, &st.name, sizeof(name)) == 0;
}

/* What an invalid lease contains is not asked about: the caller of the take-over refuses it. */
static bool lease_may_be_taken(int page, bool (*may)(const struct rds_share_state *st))
{
	struct rds_share_state st;

	return page < 0 || rds_standby_read_lease(page, &st) || may(&st);
}

/* The caller has the lock on e->page, if the lease is known already. */
static int standby_take_parked(int fd, bool (*may)(const struct rds_share_state *st), struct rds_handoff *e)
{
	struct rds_handoff_packet d;
	int fds[RDS_HANDOFF_FDS], err;

	err = rds_handoff_take_parked(fd, e->page >= 0, &d, fds);
	if (err)
		return err;
	*e = (struct rds_handoff){.pair = fds[0], .page = e->page, .file = fds[1], .mailbox = fds[2], .size = d.size};
	if (fds[3] < 0)
		return 0;
	/*
	 * The packet was behind others, so the lease could not be peeked at. Meanwhile another
	 * borrower may have found no packet, and may have become the owner with its standby.
	 */
	e->page = os_dup_high(fds[3]);
	err = e->page < 0 ? e->page : os_lock(e->page, F_WRLCK, 0, 1, false);
	if (!err && lease_may_be_taken(e->page, may))
		return 0;
	if (!err) { /* the packets before it are gone, so it is put back as it was */
		os_fds_hold();
		err = rds_handoff_park(e->pair, e->file, e->mailbox, e->page, e->size);
		os_fds_release();
		err = err ? err : -EXDEV;
	}
	os_close(e->pair);
	os_close(e->file);
	if (e->mailbox >= 0)
		os_close(e->mailbox);
	if (e->page >= 0)
		os_close(e->page);
	e->page = -1;
	return err == -EXDEV ? err : -EIO;
}

/* There is no parked packet: takes over with the standby. That needs no further descriptor. */
static int standby_take_bare(struct standby *h, struct rds_handoff *e)
{
	if (!h)
		return -EAGAIN;
	e->pair = atomic_load(&h->fd[PAIR]);
	os_fd_register(e->pair);
	atomic_store(&h->fd[PAIR], -1);
	e->mailbox = atomic_load(&h->fd[MAILBOX]);
	if (e->mailbox >= 0)
		os_fd_register(e->mailbox);
	atomic_store(&h->fd[MAILBOX], -1);
	e->file = -1;
	return 0;
}

/* From now on the lease's descriptor is in rds_handoff.page. */
static void standby_mark_taken(uint64_t inode, struct standby *h)
{
	if (!h && !(h = standby_add(inode)))
		return;
	atomic_store(&h->fd[LEASE], -1);
	os_close_slot(&h->fd[PAIR]);
	os_close_slot(&h->fd[MAILBOX]);
	os_close_slot(&h->fd[HANGUP]);
	standby_set(h, TAKEN);
}

static int standby_lock_lease(int fd, struct standby *h, int *page)
{
	int theirs[3], err;

	if (h) {
		*page = atomic_load(&h->fd[LEASE]);
	} else {
		err = rds_handoff_peek(fd, theirs);
		if (err <= 0)
			return err ? err : -EAGAIN;
		*page = theirs[1];
		theirs[1] = -1;
		standby_close_parts(theirs);
		*page = os_dup_high(*page);
	}
	err = *page < 0 ? 0 : os_lock(*page, F_WRLCK, 0, 1, false);
	if (err && !h)
		os_close(*page);
	return err == -EACCES ? -EAGAIN : err;
}

/*
 * First the lock, then a look for the parked packet. A process that parks the socket keeps the lock
 * until the packet is in place, and a process that takes the packet has the lock as well.
 */
static int standby_take_locked(int fd, uint64_t inode, bool (*may)(const struct rds_share_state *st),
			       struct rds_handoff *e)
{
	struct standby *h = standby_find(inode);
	int err;

	if (h ? h->state == TAKEN : standin_is_ours(inode))
		return -EAGAIN;
	err = standby_lock_lease(fd, h, &e->page);
	if (err)
		return err;
	if (h && !lease_is_of_standin(e->page, fd)) {
		standby_drop(h); /* it is of an earlier socket with that inode */
		return -EAGAIN;
	}
	if (!lease_may_be_taken(e->page, may))
		err = -EXDEV;
	else
		err = rds_handoff_is_parked(fd) ? standby_take_parked(fd, may, e) : standby_take_bare(h, e);
	if (!err)
		standby_mark_taken(inode, h);
	else if (h)
		os_lock(atomic_load(&h->fd[LEASE]), F_UNLCK, 0, 1, false);
	else if (e->page >= 0)
		os_close(e->page);
	return err;
}

int rds_standby_take_over(int fd, uint64_t inode, bool (*may)(const struct rds_share_state *st), struct rds_handoff *e)
{
	int err;

	pthread_mutex_lock(&standby_lock);
	err = standby_take_locked(fd, inode, may, e);
	pthread_mutex_unlock(&standby_lock);
	return err;
}

void rds_standby_done(uint64_t inode)
{
	struct standby *h;

	pthread_mutex_lock(&standby_lock);
	h = standby_find(inode);
	if (h && h->state == TAKEN)
		standby_set(h, FREE);
	pthread_mutex_unlock(&standby_lock);
}

/* ---- this process ends, execs, or closes its last descriptor ---- */

/* Writes the state that the killed owner would have parked, as far as its lease and the stand-in tell. */
static int standby_write_state(int page, int standin, int file, off_t *size)
{
	struct rds_share_state st;
	off_t head = 0;
	int err = rds_standby_read_lease(page, &st);

	if (!err)
		err = os_file_append(file, size, &st, sizeof(st));
	if (!err) {
		st.n_messages = rds_handoff_put_shown(standin, file, size);
		err = os_file_append(file, &head, &st, sizeof(st));
	}
	if (!err)
		err = os_fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	return err < 0 ? err : 0;
}

static void standby_park_bare(struct standby *h, int fd)
{
	int page = atomic_load(&h->fd[LEASE]), file;
	off_t size = 0;

	if (os_lock(page, F_WRLCK, 0, 1, false))
		return;
	file = rds_handoff_is_parked(fd) ? -1 : os_memfd("rds socket", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file >= 0 && !standby_write_state(page, fd, file, &size)) {
		/* This may be the end of the process in a signal handler. */
		if (os_fds_hold_until(os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK))) {
			rds_handoff_park(atomic_load(&h->fd[PAIR]), file, atomic_load(&h->fd[MAILBOX]),
					 atomic_load(&h->fd[LEASE]), (uint64_t)size);
			os_fds_release();
		}
	}
	if (file >= 0)
		os_close(file);
	os_lock(page, F_UNLCK, 0, 1, false);
}

void rds_standby_park(int fd)
{
	struct standby *h;
	struct stat st;

	if (!rds_standby_any() || os_fstat(fd, &st) || pthread_mutex_trylock(&standby_lock))
		return;
	h = standby_find(st.st_ino);
	if (standby_is_unowned(h))
		standby_park_bare(h, fd);
	pthread_mutex_unlock(&standby_lock);
}
