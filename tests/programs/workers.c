/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * workers - as rds-stress without RDMA: a parent probes with a throw-away socket, then forks
 * workers that open sockets of their own; buffers sized for the load and read back, O_NONBLOCK by
 * F_SETFL, congestion monitor on, poll with a time limit, every worker sends requests to all others
 * and acknowledges theirs, with a bounded number outstanding.  Exact size, order and sender of
 * every message; EAGAIN and ENOBUFS are the only errors that mean "later".
 */
#include "program.h"

#include <fcntl.h>
#include <linux/rds.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#define WORKERS 4
#define DEPTH 8
#define REQUESTS 2000
#define REQUEST_SIZE 1024
#define ACK_SIZE 256

struct header {
	uint32_t request; /* else acknowledgement */
	uint32_t number;
	uint32_t from;
};

struct peer {
	struct sockaddr_in sin;
	uint32_t sent, acked, seen; /* requests */
	uint32_t owed;		    /* acknowledgements still to be sent */
};

struct worker {
	int fd;
	uint32_t me;
	struct peer peers[WORKERS];
	uint8_t buf[REQUEST_SIZE];
};

static struct shared {
	struct sockaddr_in sin[WORKERS];
	uint32_t bound, finished;
} * shared;

static void set_up(struct worker *w)
{
	int want = 2 * WORKERS * DEPTH * (REQUEST_SIZE + ACK_SIZE), got = 0, on = 1;
	socklen_t len = sizeof(got);

	check(setsockopt(w->fd, SOL_SOCKET, SO_SNDBUF, &want, sizeof(want)) == 0, "SO_SNDBUF");
	check(setsockopt(w->fd, SOL_SOCKET, SO_RCVBUF, &want, sizeof(want)) == 0, "SO_RCVBUF");
	check(getsockopt(w->fd, SOL_SOCKET, SO_SNDBUF, &got, &len) == 0 && got / 2 >= want, "SO_SNDBUF is %d", got);
	check(getsockopt(w->fd, SOL_SOCKET, SO_RCVBUF, &got, &len) == 0 && got / 2 >= want, "SO_RCVBUF is %d", got);
	check(setsockopt(w->fd, SOL_RDS, RDS_CONG_MONITOR, &on, sizeof(on)) == 0, "RDS_CONG_MONITOR");
	check(fcntl(w->fd, F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
}

static int send_one(struct worker *w, struct peer *p, int request, uint32_t number)
{
	struct header h = {(uint32_t)request, number, w->me};
	size_t size = request ? REQUEST_SIZE : ACK_SIZE;
	struct iovec iov = {w->buf, size};
	struct msghdr msg = {.msg_name = &p->sin, .msg_namelen = sizeof(p->sin), .msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	memset(w->buf, (int)(number & 0xff), size);
	memcpy(w->buf, &h, sizeof(h));
	n = sendmsg(w->fd, &msg, 0);
	if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
		return 0;
	check(n == (ssize_t)size, "sendmsg: %zd", n);
	return 1;
}

static int receive_one(struct worker *w)
{
	struct sockaddr_in from;
	uint8_t control[256];
	struct iovec iov = {w->buf, sizeof(w->buf)};
	struct msghdr msg = {.msg_name = &from,
			     .msg_namelen = sizeof(from),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(w->fd, &msg, MSG_DONTWAIT);
	struct header h;
	struct peer *p;

	if (n < 0) {
		check(errno == EAGAIN, "recvmsg");
		return 0;
	}
	if (n == 0) /* a congestion update alone */
		return 1;
	check(msg.msg_namelen == sizeof(from), "namelen %u", msg.msg_namelen);
	memcpy(&h, w->buf, sizeof(h));
	check(h.from < WORKERS, "from %u", h.from);
	p = &w->peers[h.from];
	check(from.sin_port == p->sin.sin_port && from.sin_addr.s_addr == p->sin.sin_addr.s_addr, "sender's address");
	check(n == (h.request ? REQUEST_SIZE : ACK_SIZE), "size %zd", n);
	check(w->buf[n - 1] == (uint8_t)h.number && w->buf[sizeof(h)] == (uint8_t)h.number, "content");
	check(h.number == (h.request ? p->seen : p->acked), "from %u: %s %u instead of %u", h.from,
	      h.request ? "request" : "acknowledgement", h.number, h.request ? p->seen : p->acked);
	if (h.request) {
		p->seen++;
		p->owed++;
	} else {
		p->acked++;
	}
	return 1;
}

/* Returns whether anything is still wanted from or owed to a peer. */
static int serve_peers(struct worker *w)
{
	int open = 0, i;

	for (i = 0; i < WORKERS; i++) {
		struct peer *p = &w->peers[i];

		if ((uint32_t)i == w->me)
			continue;
		while (p->owed && send_one(w, p, 0, p->seen - p->owed))
			p->owed--;
		while (p->sent < REQUESTS && p->sent - p->acked < DEPTH && send_one(w, p, 1, p->sent))
			p->sent++;
		open |= p->owed || p->acked < REQUESTS || p->seen < REQUESTS;
	}
	return open;
}

static void work(void *arg)
{
	static struct worker w;
	int i, quiet = 0;

	w.me = *(uint32_t *)arg;
	w.fd = bound(&shared->sin[w.me]);
	set_up(&w);
	__atomic_add_fetch(&shared->bound, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&shared->bound, __ATOMIC_SEQ_CST) < WORKERS)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	for (i = 0; i < WORKERS; i++)
		w.peers[i].sin = shared->sin[i];
	while (serve_peers(&w)) {
		struct pollfd p = {.fd = w.fd, .events = POLLIN};
		int n = poll(&p, 1, 1000);

		check(n >= 0, "poll");
		quiet = n ? 0 : quiet + 1;
		if (quiet > TEST_COMES / 1000)
			test_late("nothing to read");
		while (receive_one(&w))
			;
	}
	close(w.fd);
}

int main(void)
{
	struct sockaddr_in sin;
	uint32_t numbers[WORKERS], i;
	pid_t pids[WORKERS];
	int fd;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED, "mmap");
	fd = bound(&sin); /* the probe: an RDS socket before the fork */
	close(fd);
	for (i = 0; i < WORKERS; i++) {
		numbers[i] = i;
		pids[i] = start(work, &numbers[i]);
	}
	for (i = 0; i < WORKERS; i++)
		finished(pids[i]);
	printf("%d workers, %d requests each to each other\n", WORKERS, REQUESTS);
	return 0;
}
