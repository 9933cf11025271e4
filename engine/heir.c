/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * heir.c - the holder's side of will.h: what this process keeps of sockets that others carry, and how it becomes the carrier.
 *
 * One entry for each socket, by the inode of the stand-in.  While it is TAKEN a thread of this process is becoming the carrier, or has become it:
 * then, as for sockets that the engine here has anyway, the will is not let into the table a second time, since closing it would
 * give up the lock (will.c).  Everything under one lock, which is held for a few system calls, none of which sleeps; but who only wants to know
 * what to sleep for takes none.  A signal handler that makes a call over a channel that is there does not come here (away.c).
 *
 * Must not know how a channel is made, nor what becomes of what is taken (adopt.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/away.h"
#include "engine/heir_impl.h"
#include "engine/log.h"
#include "engine/rds.h"

#define SLOTS 64
#define CHUNKS 1024

pthread_mutex_t heir_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct heir *) chunks[CHUNKS]; /* never freed */
static _Atomic unsigned held;

/* ---- entries ---- */

struct heir *heir_next(unsigned *at)
{
	struct heir *chunk;
	unsigned i = *at;

	if (i >= CHUNKS * SLOTS || !(chunk = atomic_load(&chunks[i / SLOTS])))
		return NULL;
	++*at;
	return &chunk[i % SLOTS];
}

static struct heir *find(uint64_t inode)
{
	struct heir *h;
	unsigned at;

	for (at = 0; (h = heir_next(&at));)
		if (h->state != FREE && h->inode == inode)
			return h;
	return NULL;
}

static struct heir *new_chunk(unsigned i)
{
	struct heir *chunk;
	unsigned k, part;
	void *mem;

	if (i >= CHUNKS ||
	    os_mmap(SLOTS * sizeof(struct heir), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem))
		return NULL;
	chunk = mem;
	for (k = 0; k < SLOTS; k++)
		for (part = 0; part < PARTS; part++)
			atomic_store(&chunk[k].fd[part], -1);
	atomic_store(&chunks[i], chunk);
	return chunk;
}

struct heir *heir_add(uint64_t inode)
{
	struct heir *h;
	unsigned at;

	for (at = 0; (h = heir_next(&at));)
		if (h->state == FREE)
			break;
	if (!h)
		h = new_chunk(at / SLOTS);
	if (h)
		h->inode = inode;
	return h;
}

void heir_set(struct heir *h, uint32_t state)
{
	unsigned before = h->state == HELD, now = state == HELD;

	h->state = state;
	atomic_fetch_add(&held, now - before);
}

void heir_drop(struct heir *h)
{
	unsigned part;

	for (part = 0; part < PARTS; part++)
		os_close_slot(&h->fd[part]);
	heir_set(h, FREE);
}

int rds_heir_read(int page, struct rds_share_state *st)
{
	struct rds_share_will *will;
	void *map;
	int err = rds_will_sound(page) ? 0 : -EPROTO;

	if (!err)
		err = os_mmap(sizeof(*will), PROT_READ, MAP_SHARED, page, 0, &map);
	if (err)
		return err;
	will = map;
	if (will->magic != RDS_SHARE_MAGIC || will->version != RDS_SHARE_VERSION)
		err = -EPROTO;
	*st = will->st[atomic_load(&will->which) & 1];
	st->n_messages = st->n_reports = st->n_unsent = 0;
	os_munmap(map, sizeof(*will));
	return err;
}

bool rds_heir_any(void)
{
	return atomic_load_explicit(&held, memory_order_relaxed);
}

/* ---- what a carrier says ---- */

static bool ours(uint64_t inode)
{
	struct rds_sock *sk = os_process_inherited() ? NULL : rds_sock_by_inode(inode);

	if (sk)
		rds_sock_put(sk);
	return sk;
}

/* The next carrier of what is kept already: another line.  Without one (no descriptor was free) nobody is woken, but it can still be taken. */
static void keep_line(struct heir *h, const int *fds, unsigned n, uint64_t will)
{
	struct stat st;
	unsigned i;

	os_close_slot(&h->fd[LINE]);
	if (n == 2)
		os_dup_high_slot(fds[LINE], &h->fd[LINE]);
	for (i = 0; i < n; i++)
		if (n != 2 || i != LINE)
			os_close(fds[i]);
	if (n && (os_fstat(atomic_load(&h->fd[PAGE]), &st) || st.st_ino != will))
		heir_drop(
			h); /* of another socket, whose stand-in was closed behind our back, and whose inode this one has got */
}

/* Takes the descriptors: all, or all but the inbox. */
static void keep(uint64_t inode, const int *fds, unsigned n)
{
	struct heir *h = n == PARTS || n == PARTS - 1 ? heir_add(inode) : NULL;
	unsigned i, part;
	int err = 0;

	for (i = 0; i < n; i++) {
		part = i == INBOX && n < PARTS ? PAGE : i;
		if (!h || err)
			os_close(fds[i]);
		else
			err = os_dup_high_slot(fds[i], &h->fd[part]);
	}
	if (h && err)
		heir_drop(h);
	else if (h)
		heir_set(h, HELD);
}

ssize_t rds_heir_hello(int channel, uint64_t inode, struct rds_share_answer *a)
{
	int fds[OS_PASS_MAX];
	unsigned n, room;
	struct heir *h;
	ssize_t len;
	bool lost;

	pthread_mutex_lock(&heir_lock);
	h = find(inode);
	if (h)
		room = h->state == HELD ? 2 : 0;
	else
		room = ours(inode) ? 0 : PARTS;
	len = os_pass_recv_few(channel, a, sizeof(*a), fds, room, &n, &lost, MSG_DONTWAIT);
	if (len > 0 && room == 2)
		keep_line(h, fds, n, (uint64_t)a->result);
	else if (len > 0 && !lost)
		keep(inode, fds, n);
	else
		while (n)
			os_close(fds[--n]);
	pthread_mutex_unlock(&heir_lock);
	return len;
}

/* Of a look at a deposit. */
static void close_parts(const int fds[3])
{
	unsigned i;

	for (i = 0; i < 3; i++)
		if (fds[i] >= 0)
			os_close(fds[i]);
}

bool rds_heir_meet(int fd, uint64_t inode)
{
	int fds[3], err;
	struct heir *h;
	bool left, mine;

	pthread_mutex_lock(&heir_lock);
	h = find(inode);
	mine = h || ours(inode);
	left = mine ? rds_deposit_is(fd) : rds_deposit_look(fd, fds) != 0;
	if (left && !mine && fds[1] >= 0 && (h = heir_add(inode))) {
		err = os_dup_high_slot(fds[0], &h->fd[PAIR]);
		if (os_dup_high_slot(fds[1], &h->fd[PAGE]))
			err = -EMFILE;
		if (fds[2] >= 0 && os_dup_high_slot(fds[2], &h->fd[INBOX]))
			err = -EMFILE;
		if (err)
			heir_drop(h);
		else
			heir_set(h, HELD);
	} else if (left && !mine && fds[1] >= 0) {
		close_parts(fds);
	}
	pthread_mutex_unlock(&heir_lock);
	return left;
}

void rds_heir_drop(uint64_t inode)
{
	struct heir *h;

	pthread_mutex_lock(&heir_lock);
	h = find(inode);
	if (h && h->state == HELD)
		heir_drop(h);
	pthread_mutex_unlock(&heir_lock);
}

/* ---- has the carrier been killed? ---- */

/* The lock is let go with a deposit in place, and otherwise only by the kernel. */
static bool free_to_take(const struct heir *h)
{
	return h && h->state == HELD && os_lock_holder(atomic_load(&h->fd[PAGE]), 0, 1) == 0;
}

bool rds_heir_bereaved(int fd)
{
	struct stat st;
	bool yes;

	if (!rds_heir_any() || os_fstat(fd, &st))
		return false;
	pthread_mutex_lock(&heir_lock);
	yes = free_to_take(find(st.st_ino));
	pthread_mutex_unlock(&heir_lock);
	return yes;
}

/*
 * Who sleeps asks this, perhaps in a signal handler that has interrupted who has the lock.  A number that is read here may be closed, or another's,
 * when it is used: then the sleep ends for nothing, or is woken by what comes for all.
 */
static int number_of(const struct heir *h, uint64_t inode, unsigned part)
{
	int fd = atomic_load(&h->fd[part]);

	return atomic_load(&h->state) == HELD && atomic_load(&h->inode) == inode ? fd : -1;
}

unsigned rds_away_lines(struct pollfd *p, unsigned room)
{
	struct heir *h;
	unsigned at, n = 0;

	if (!rds_heir_any())
		return 0;
	for (at = 0; (h = heir_next(&at));) {
		if (atomic_load(&h->state) != HELD)
			continue;
		if (n < room)
			p[n] = (struct pollfd){.fd = number_of(h, atomic_load(&h->inode), LINE), .events = 0};
		n++;
	}
	return n;
}

static int part_of(uint64_t inode, unsigned part)
{
	struct heir *h;
	unsigned at;

	if (!rds_heir_any())
		return -1;
	for (at = 0; (h = heir_next(&at));)
		if (atomic_load(&h->inode) == inode && atomic_load(&h->state) == HELD)
			return number_of(h, inode, part);
	return -1;
}

int rds_heir_line(uint64_t inode)
{
	return part_of(inode, LINE);
}

/* Of a number that has been closed meanwhile this says nothing that would be acted upon. */
int rds_heir_carrier(uint64_t inode)
{
	int page = part_of(inode, PAGE);

	return page < 0 ? -1 : os_lock_holder(page, 0, 1);
}

uint64_t rds_heir_timeo(uint64_t inode, bool send)
{
	int page = part_of(inode, PAGE);
	struct rds_share_will will;
	const struct rds_share_state *st;

	if (page < 0 || os_pread(page, &will, sizeof(will), 0) != sizeof(will) || will.magic != RDS_SHARE_MAGIC ||
	    will.version != RDS_SHARE_VERSION)
		return RDS_AWAY_NO_TIMEOUT;
	st = &will.st[will.which & 1];
	return send ? st->sndtimeo_ns : st->rcvtimeo_ns;
}

void rds_away_show(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct stat st;
	struct heir *h;

	if (os_fstat(fd, &st) || os_poll(&p, 1, 0) > 0)
		return;
	pthread_mutex_lock(&heir_lock);
	h = find(st.st_ino);
	if (free_to_take(h))
		os_send(atomic_load(&h->fd[PAIR]), "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
	pthread_mutex_unlock(&heir_lock);
}

void rds_away_unline(void)
{
	struct pollfd p = {.events = 0};
	struct heir *h;
	unsigned at;

	pthread_mutex_lock(&heir_lock);
	for (at = 0; (h = heir_next(&at));) {
		p.fd = h->state == HELD ? atomic_load(&h->fd[LINE]) : -1;
		if (p.fd >= 0 && os_poll(&p, 1, 0) > 0)
			os_close_slot(&h->fd[LINE]);
	}
	pthread_mutex_unlock(&heir_lock);
}

/* ---- becoming the carrier ---- */

static bool is_wills(int page, int fd)
{
	struct rds_share_state st;
	struct rds_procid name;

	return !rds_heir_read(page, &st) && rds_node_name_read(fd, &name) && memcmp(&name, &st.name, sizeof(name)) == 0;
}

/* Has the lock on the will, if it is known already: h's, or `page`. */
static int take_deposit(int fd, struct rds_estate *e)
{
	struct rds_share_deposit d;
	int fds[RDS_DEPOSIT_FDS], err;

	err = rds_deposit_read(fd, e->page >= 0, &d, fds);
	if (err)
		return err;
	*e = (struct rds_estate){.pair = fds[0], .page = e->page, .file = fds[1], .inbox = fds[2], .size = d.size};
	if (fds[3] < 0)
		return 0;
	/* It was behind something else, so the will was not to be seen; a holder may have found nothing meanwhile, and gone on without. */
	e->page = os_dup_high(fds[3]);
	err = e->page < 0 ? e->page : os_lock(e->page, F_WRLCK, 0, 1, false);
	if (!err)
		return 0;
	os_close(e->pair);
	os_close(e->file);
	if (e->inbox >= 0)
		os_close(e->inbox);
	if (e->page >= 0)
		os_close(e->page);
	e->page = -1;
	return -EIO;
}

/* No deposit: what we keep must do.  It needs no other number. */
static int take_bare(struct heir *h, struct rds_estate *e)
{
	if (!h)
		return -EAGAIN;
	e->pair = atomic_load(&h->fd[PAIR]);
	os_fd_register(e->pair);
	atomic_store(&h->fd[PAIR], -1);
	e->inbox = atomic_load(&h->fd[INBOX]);
	if (e->inbox >= 0)
		os_fd_register(e->inbox);
	atomic_store(&h->fd[INBOX], -1);
	e->file = -1;
	return 0;
}

/* The will's number is in *e from now on. */
static void taken(uint64_t inode, struct heir *h)
{
	if (!h && !(h = heir_add(inode)))
		return;
	atomic_store(&h->fd[PAGE], -1);
	os_close_slot(&h->fd[PAIR]);
	os_close_slot(&h->fd[INBOX]);
	os_close_slot(&h->fd[LINE]);
	heir_set(h, TAKEN);
}

static int lock_will(int fd, struct heir *h, int *page)
{
	int theirs[3], err;

	if (h) {
		*page = atomic_load(&h->fd[PAGE]);
	} else {
		err = rds_deposit_look(fd, theirs);
		if (err <= 0)
			return err ? err : -EAGAIN;
		*page = theirs[1];
		theirs[1] = -1;
		close_parts(theirs);
		*page = os_dup_high(*page);
	}
	err = *page < 0 ? 0 : os_lock(*page, F_WRLCK, 0, 1, false);
	if (err && !h)
		os_close(*page);
	return err == -EACCES ? -EAGAIN : err;
}

/* Who has the lock looks for the deposit: whoever leaves one has the lock until it is there, and so has whoever takes it. */
static int take(int fd, uint64_t inode, struct rds_estate *e)
{
	struct heir *h = find(inode);
	int err;

	if (h ? h->state == TAKEN : ours(inode))
		return -EAGAIN;
	err = lock_will(fd, h, &e->page);
	if (err)
		return err;
	if (h && !is_wills(e->page, fd)) {
		heir_drop(h); /* of an earlier socket with that inode */
		return -EAGAIN;
	}
	err = rds_deposit_is(fd) ? take_deposit(fd, e) : take_bare(h, e);
	if (!err)
		taken(inode, h);
	else if (h)
		os_lock(atomic_load(&h->fd[PAGE]), F_UNLCK, 0, 1, false);
	else if (e->page >= 0)
		os_close(e->page);
	return err;
}

int rds_heir_take(int fd, uint64_t inode, struct rds_estate *e)
{
	int err;

	pthread_mutex_lock(&heir_lock);
	err = take(fd, inode, e);
	pthread_mutex_unlock(&heir_lock);
	return err;
}

void rds_heir_done(uint64_t inode)
{
	struct heir *h;

	pthread_mutex_lock(&heir_lock);
	h = find(inode);
	if (h && h->state == TAKEN)
		heir_set(h, FREE);
	pthread_mutex_unlock(&heir_lock);
}

/* ---- this process ends, execs, or closes its last number ---- */

/* What the deposit of a carrier that was killed would have been, as far as anybody knows. */
static int write_state(int page, int file, off_t *size)
{
	struct rds_share_state st;
	int err = rds_heir_read(page, &st);

	if (!err)
		err = rds_deposit_put(file, size, &st, sizeof(st));
	if (!err)
		err = os_fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	return err < 0 ? err : 0;
}

static void leave_bare(struct heir *h, int fd)
{
	int page = atomic_load(&h->fd[PAGE]), file;
	off_t size = 0;

	if (os_lock(page, F_WRLCK, 0, 1, false))
		return;
	file = rds_deposit_is(fd) ? -1 : os_memfd("rds socket", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file >= 0 && !write_state(page, file, &size)) {
		os_recv_discard(fd); /* what the last carrier has shown there */
		rds_deposit_leave(atomic_load(&h->fd[PAIR]), file, atomic_load(&h->fd[INBOX]), page, (uint64_t)size);
	}
	if (file >= 0)
		os_close(file);
	os_lock(page, F_UNLCK, 0, 1, false);
}

void rds_away_leave(int fd)
{
	struct heir *h;
	struct stat st;

	if (!rds_heir_any() || os_fstat(fd, &st) || pthread_mutex_trylock(&heir_lock))
		return;
	h = find(st.st_ino);
	if (free_to_take(h))
		leave_bare(h, fd);
	pthread_mutex_unlock(&heir_lock);
}
