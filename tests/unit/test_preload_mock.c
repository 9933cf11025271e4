/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* test_preload_mock.c - see test_preload_mock.h.  One lock, one condition: something changed. */
#include "test_preload_mock.h"

#include "engine/share/borrower.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/sys/os.h"

#define NSOCKS 128
#define NMSGS 16
#define MSGLEN 256

struct rds_sock {
	_Atomic int ref; /* numbers and calls */
	int numbers, port, err, lib;
	uint64_t inode;
	bool watched;
	unsigned n;
	struct mock_msg {
		int from;
		size_t len;
		char data[MSGLEN];
	} q[NMSGS];
};

struct rds_wait {
	struct rds_wait *next;
	int efd;
	bool armed, spun;
};

struct mock_counts mock;
unsigned (*rds_hook_hangup)(struct rds_sock *sk);

void rds_abi_note_numbers(bool level)
{
	(void)level;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rds_sock socks[NSOCKS];
static struct rds_wait *waits;
static unsigned changes;
static _Atomic(_Atomic int *) alive; /* a page that the kernel wipes at fork */
static int fail_after, fail_err;

/* ---- life ---- */

static void start(void)
{
	_Atomic int *page;

	pthread_mutex_lock(&lock);
	if (!alive) {
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		madvise(page, 4096, MADV_WIPEONFORK);
		*page = 1;
		alive = page;
	}
	pthread_mutex_unlock(&lock);
}

int rds_call_socket(int type, int protocol, struct rds_sock **out)
{
	int sv[2], rc;
	struct stat st;

	start();
	if ((type & 0xf) != SOCK_SEQPACKET || protocol)
		return -ESOCKTNOSUPPORT;
	rc = os_socketpair(AF_UNIX, SOCK_SEQPACKET | (type & ~0xf), 0, sv);
	if (rc)
		return rc;
	os_fstat(sv[0], &st);
	pthread_mutex_lock(&lock);
	for (struct rds_sock *sk = socks; sk < socks + NSOCKS; sk++) {
		if (sk->ref || sk->numbers)
			continue;
		*sk = (struct rds_sock){.numbers = 1, .lib = os_dup_high(sv[1]), .inode = st.st_ino};
		sk->ref = 1;
		*out = sk;
		mock.open++;
		mock.numbers++;
		pthread_mutex_unlock(&lock);
		return sv[0];
	}
	abort();
}

bool rds_sock_get(struct rds_sock *sk)
{
	int n = sk->ref;

	while (n > 0)
		if (atomic_compare_exchange_weak(&sk->ref, &n, n + 1)) {
			mock.refs++;
			return true;
		}
	return false;
}

void rds_sock_put(struct rds_sock *sk)
{
	mock.refs--;
	sk->ref--;
}

bool rds_sock_enter(struct rds_sock *sk)
{
	return rds_sock_get(sk);
}

void rds_sock_leave(struct rds_sock *sk)
{
	rds_sock_put(sk);
}

static void changed(void)
{
	static const uint64_t one = 1;

	changes++;
	for (struct rds_wait *w = waits; w; w = w->next)
		if (w->armed)
			os_write(w->efd, &one, sizeof(one));
}

static void drop_numbers(struct rds_sock *sk, int n)
{
	pthread_mutex_lock(&lock);
	sk->numbers -= n;
	mock.numbers -= n;
	if (sk->numbers < 0)
		abort();
	if (sk->numbers == 0) {
		os_close(sk->lib);
		sk->port = 0;
		mock.open--;
	}
	changed();
	pthread_mutex_unlock(&lock);
	sk->ref -= n;
}

void rds_call_number_closing(struct rds_sock *sk)
{
	(void)sk;
}

void rds_call_number_closed(struct rds_sock *sk)
{
	drop_numbers(sk, 1);
}

void rds_call_number_added(struct rds_sock *sk)
{
	sk->ref++;
	pthread_mutex_lock(&lock);
	sk->numbers++;
	mock.numbers++;
	pthread_mutex_unlock(&lock);
}

static struct rds_sock *find(int port, uint64_t inode)
{
	for (struct rds_sock *sk = socks; sk < socks + NSOCKS; sk++)
		if (sk->numbers && (port ? sk->port == port : sk->inode == inode))
			return sk;
	return NULL;
}

struct rds_sock *rds_sock_by_inode(uint64_t inode)
{
	struct rds_sock *sk = find(0, inode);

	return sk && rds_sock_get(sk) ? sk : NULL;
}

unsigned mock_hangup(int fd)
{
	struct stat st;
	struct rds_sock *sk;
	unsigned n;

	os_fstat(fd, &st);
	sk = rds_sock_by_inode(st.st_ino);
	os_close(fd); /* behind the table's back, as fclose() does */
	n = rds_hook_hangup(sk);
	drop_numbers(sk, (int)n);
	rds_sock_put(sk);
	return n;
}

/* ---- names and options ---- */

struct sockaddr_in mock_addr(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = (in_port_t)port, .sin_addr = {1}};
}

int rds_call_bind(struct rds_sock *sk, const struct sockaddr *addr, int addrlen)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;

	if (addrlen < (int)sizeof(*in))
		return -EINVAL;
	if (find(in->sin_port, 0))
		return -EADDRINUSE;
	sk->port = in->sin_port;
	return 0;
}

int rds_call_connect(struct rds_sock *sk, const struct sockaddr *addr, int addrlen)
{
	(void)sk, (void)addr, (void)addrlen;
	return 0;
}

int rds_call_getsockname(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_in in = mock_addr(sk->port);

	memcpy(addr, &in, sizeof(in));
	*len = sizeof(in);
	return 0;
}

int rds_call_getpeername(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len)
{
	(void)sk, (void)addr, (void)len;
	return -ENOTCONN;
}

int rds_call_setsockopt(struct rds_sock *sk, int fd, int level, int opt, const void *val, socklen_t len)
{
	(void)sk, (void)fd, (void)val, (void)len;
	return level == SOL_SOCKET && opt == SO_ATTACH_BPF ? -EBADF : -ENOPROTOOPT;
}

int rds_call_getsockopt(struct rds_sock *sk, int fd, int level, int opt, void *val, socklen_t *len)
{
	(void)sk, (void)fd, (void)level, (void)val, (void)len;
	return opt == 10000 ? 40 : -ENOPROTOOPT;
}

int rds_call_ioctl(struct rds_sock *sk, unsigned long req, void *arg)
{
	(void)sk, (void)arg;
	return req == 0x89e1 ? 0 : -ENOIOCTLCMD;
}

/* ---- data ---- */

bool rds_call_send_fast(struct rds_sock *sk, const void *buf, size_t len, const struct sockaddr *to)
{
	(void)sk;
	(void)buf;
	(void)len;
	(void)to;
	return false;
}

ssize_t rds_call_sendmsg(struct rds_sock *sk, int fd, const struct msghdr *msg, int flags)
{
	const struct sockaddr_in *to = msg->msg_name;
	struct rds_sock *dst;
	struct mock_msg *m;
	ssize_t len = 0;

	(void)fd;
	mock.last_flags = flags;
	if (flags & ~MSG_DONTWAIT)
		return -EOPNOTSUPP;
	if (!msg->msg_namelen)
		return -ENOTCONN;
	pthread_mutex_lock(&lock);
	dst = find(to->sin_port, 0);
	if (dst && dst->n < NMSGS) {
		m = &dst->q[dst->n++];
		m->from = sk->port;
		m->len = 0;
		for (size_t i = 0; i < msg->msg_iovlen; i++) {
			memcpy(m->data + m->len, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
			m->len += msg->msg_iov[i].iov_len;
		}
		len = (ssize_t)m->len;
		if (dst->watched && dst->n == 1)
			os_send(dst->lib, "", 1, MSG_DONTWAIT);
		changed();
	}
	pthread_mutex_unlock(&lock);
	return len;
}

static ssize_t take(struct rds_sock *sk, int fd, struct msghdr *msg)
{
	struct mock_msg m = sk->q[0];
	size_t room, len = 0;
	char byte;

	memmove(sk->q, sk->q + 1, --sk->n * sizeof(m));
	if (sk->watched && !sk->n)
		os_recv(fd, &byte, 1, MSG_DONTWAIT);
	for (size_t i = 0; i < msg->msg_iovlen && len < m.len; i++, len += room) {
		room = m.len - len < msg->msg_iov[i].iov_len ? m.len - len : msg->msg_iov[i].iov_len;
		memcpy(msg->msg_iov[i].iov_base, m.data + len, room);
	}
	if (msg->msg_name) {
		struct sockaddr_in from = mock_addr(m.from);

		memcpy(msg->msg_name, &from, sizeof(from));
	}
	msg->msg_namelen = sizeof(struct sockaddr_in);
	msg->msg_controllen = 0;
	return (ssize_t)len;
}

void mock_fail_recv(int after, int err)
{
	fail_after = after;
	fail_err = err;
}

static void end_wait(void *w)
{
	rds_wait_end(w);
}

ssize_t rds_call_recvmsg(struct rds_sock *sk, int fd, struct msghdr *msg, int flags)
{
	struct rds_wait *volatile w = NULL;
	ssize_t rc;

	if (fail_after && --fail_after == 0)
		return fail_err;
	for (;;) {
		pthread_mutex_lock(&lock);
		rc = !sk->numbers ? -EBADF : sk->n ? take(sk, fd, msg) : -EAGAIN;
		pthread_mutex_unlock(&lock);
		if (rc != -EAGAIN || (flags & MSG_DONTWAIT) || (os_fcntl(fd, F_GETFL, 0) & O_NONBLOCK))
			break;
		w = w ? w : rds_wait_begin(0);
		if (!rds_wait_arm(w))
			continue;
		uint64_t v;

		pthread_cleanup_push(end_wait, w);
		rc = rds_os_sleep.read(w->efd, &v, sizeof(v));
		pthread_cleanup_pop(0);
		rds_wait_disarm(w);
		if (rc < 0) {
			rc = -EINTR;
			break;
		}
	}
	if (w)
		rds_wait_end(w);
	return rc;
}

void rds_sock_set_error(struct rds_sock *sk, int err)
{
	sk->err = err;
}

int rds_sock_take_error(struct rds_sock *sk)
{
	int err = sk->err;

	sk->err = 0;
	return err;
}

/* ---- waiting ---- */

short rds_call_poll(struct rds_sock *sk, short events)
{
	short bits = POLLOUT | POLLWRNORM;

	pthread_mutex_lock(&lock);
	if (sk->n)
		bits |= POLLIN | POLLRDNORM;
	pthread_mutex_unlock(&lock);
	return bits & events;
}

bool rds_progress_round(void)
{
	return false;
}

void rds_progress_found_nothing(void)
{
}

static __thread unsigned seen;

struct rds_wait *rds_wait_begin(unsigned nsocks)
{
	struct rds_wait *w = calloc(1, sizeof(*w));

	(void)nsocks;
	w->efd = os_dup_high(os_eventfd(0, 0));
	pthread_mutex_lock(&lock);
	w->next = waits;
	waits = w;
	seen = changes - 1; /* look once more */
	pthread_mutex_unlock(&lock);
	return w;
}

int rds_wait_add(struct rds_wait *w, struct rds_sock *sk, short events)
{
	(void)w, (void)sk, (void)events;
	return 0;
}

bool rds_wait_spin(struct rds_wait *w)
{
	bool first = !w->spun;

	w->spun = true;
	mock.spins += first;
	return first;
}

bool rds_wait_arm(struct rds_wait *w)
{
	pthread_mutex_lock(&lock);
	w->armed = seen == changes;
	seen = changes;
	mock.sleeps += w->armed;
	if (w->armed && mock.wakes)
		os_write(w->efd, &(uint64_t){1}, sizeof(uint64_t));
	pthread_mutex_unlock(&lock);
	return w->armed;
}

bool rds_wait_interrupted(const struct rds_wait *w)
{
	(void)w;
	return false;
}

int rds_wait_fd(const struct rds_wait *w)
{
	return w->efd;
}

void rds_wait_disarm(struct rds_wait *w)
{
	struct pollfd p = {.fd = w->efd, .events = POLLIN};
	uint64_t v;

	pthread_mutex_lock(&lock);
	w->armed = false;
	if (os_poll(&p, 1, 0) > 0)
		os_read(w->efd, &v, sizeof(v));
	pthread_mutex_unlock(&lock);
}

void rds_wait_end(struct rds_wait *w)
{
	pthread_mutex_lock(&lock);
	for (struct rds_wait **p = &waits; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	os_close(w->efd);
	free(w);
}

void rds_sock_watch(struct rds_sock *sk, int fd, bool edge)
{
	(void)fd, (void)edge;
	pthread_mutex_lock(&lock);
	if (!sk->watched && sk->n)
		os_send(sk->lib, "", 1, MSG_DONTWAIT);
	sk->watched = true;
	mock.watched++;
	pthread_mutex_unlock(&lock);
}

/* ---- process ---- */

void rds_engine_join(void)
{
}

int os_process_word(unsigned n, _Atomic int **word)
{
	static _Atomic(_Atomic int *) wiped;
	_Atomic int *page = atomic_load(&wiped);

	if (!page) {
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page == MAP_FAILED || madvise((void *)(uintptr_t)page, 4096, MADV_WIPEONFORK))
			return -ENOMEM;
		atomic_store(&wiped, page);
	}
	*word = page + n;
	return 0;
}

bool os_process_inherited(void)
{
	_Atomic int *page = alive;

	return page && !*page;
}

static void close_one(int fd, void *arg)
{
	(void)arg;
	os_close(fd);
}

void rds_engine_fork_child(void)
{
	if (!os_process_inherited())
		return;
	os_fd_each_internal(0, ~0u, close_one, NULL);
	memset(socks, 0, sizeof(socks));
	memset(&mock, 0, sizeof(mock));
	pthread_mutex_init(&lock, NULL);
	waits = NULL;
	alive = NULL;
	mock.forgotten = 1;
}

bool rds_handoff_is_open(struct rds_sock *sk)
{
	return sk->numbers > 0;
}

_Atomic int mock_internal = -1;

int mock_internal_fd(void)
{
	mock_internal = os_eventfd(0, EFD_CLOEXEC);
	os_fd_register_slot(mock_internal, &mock_internal);
	return mock_internal;
}

int mock_socket(void)
{
	int fd = socket(21, SOCK_SEQPACKET, 0);

	if (fd < 0)
		abort();
	return fd;
}

int mock_bound(int port)
{
	struct sockaddr_in addr = mock_addr(port);
	int fd = mock_socket();

	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
		abort();
	return fd;
}
