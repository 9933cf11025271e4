/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * strays.c CASE [LEN] - writes of LEN bytes (default: a page) to the same place are made in the
 * order in which they are sent, also behind one that is given up: the owner of the region is
 * stopped, and when it goes on it has yet to carry that one out.
 *
 *         listed  nothing happens to it
 *         cancel  RDS_CANCEL_SENT_TO
 *         close   its socket is closed, and another one opened
 *
 * A device could carry out the later writes meanwhile, since it knows the region.  It cannot carry
 * out the first one, because of an atomic, which no device does.  When the message of the last
 * write is there, so are its bytes, and no others.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "rdma.h"

#define PORT 4460
#define WARM 8u /* writes after which a device knows the region */
#define STRAY WARM
#define LAST (WARM + 1)

static size_t len = PAGE;
static struct shared {
	uint64_t cookie;
	_Atomic bool open;
} * shared;

/* ---- the owner ---- */

static void owner(void)
{
	unsigned char *region = pages(PAGE), *want = pages(PAGE);
	int fd = rds_bound(address(0), PORT);
	struct box *b = box_new(fd);
	unsigned i;

	expect(get_mr(fd, region, PAGE, F_WRITE, &shared->cookie), 0, "GET_MR");
	atomic_store(&shared->open, true);
	do {
		struct letter l = box_letter(b);

		check(l.len == sizeof(i), "%zu bytes", l.len);
		memcpy(&i, l.body, sizeof(i));
		free(l.body);
	} while (i != LAST);
	pattern(want, len, LAST);
	expect_bytes(region, want, len, "the last write, whose message came");
	exit(0);
}

/* ---- the writer ---- */

static void send_write(int fd, const struct sockaddr_in *to, size_t bytes, unsigned i)
{
	unsigned char *from = pages(PAGE);

	pattern(from, bytes, i);
	write_numbered(fd, to, (struct op){.cookie = shared->cookie}, (struct vec){(uintptr_t)from, bytes}, i);
}

static void send_atomic(int fd, const struct sockaddr_in *to)
{
	struct atomic72 t = {
		.cookie = shared->cookie, .local_addr = (uintptr_t)pages(PAGE), .u = {1}, .flags = F_SILENT};
	struct out o;

	out_begin(&o, to, NULL, 0);
	out_cmsg(&o, CMSG_FADD, &t, sizeof(t));
	expect(out_send(&o, fd, 0), 0, "the atomic");
}

/* The socket to go on with. */
static int ended(const char *what, int fd, const struct sockaddr_in *to)
{
	if (strcmp(what, "cancel") == 0)
		expect(setsockopt(fd, 276, OPT_CANCEL_SENT_TO, to, sizeof(*to)), 0, "CANCEL_SENT_TO");
	if (strcmp(what, "close") != 0)
		return fd;
	expect(close(fd), 0, "close");
	return rds_bound(address(1), PORT + 1);
}

static void writer(const char *what, pid_t other)
{
	struct sockaddr_in to = name_of(address(0), PORT);
	int fd = rds_bound(address(1), PORT + 1), status;
	struct box *b = box_new(fd);
	unsigned i;

	for (i = 0; i < WARM; i++) {
		send_write(fd, &to, PAGE, i);
		expect_status(b, i + 1, ST_SUCCESS, "write %u", i);
	}
	check(kill(other, SIGSTOP) == 0 && waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status), "%m");
	send_atomic(fd, &to);
	send_write(fd, &to, len, STRAY);
	fd = ended(what, fd, &to);
	send_write(fd, &to, len, LAST);
	usleep(300000); /* a device that does not wait for the owner has done it by then */
	check(kill(other, SIGCONT) == 0, "%m");
	expect_status(box_new(fd), LAST + 1, ST_SUCCESS, "the last write");
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"listed", "cancel", "close"};
	unsigned i, known = 0;
	int status;
	pid_t other;

	for (i = 0; argc >= 2 && i < sizeof(names) / sizeof(names[0]); i++)
		known += strcmp(argv[1], names[i]) == 0;
	if (argc > 2)
		len = strtoul(argv[2], NULL, 0);
	check(known && len && len <= PAGE, "strays listed|cancel|close [LEN]");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED, "mmap: %m");
	other = fork();
	if (!other)
		owner();
	while (!atomic_load(&shared->open))
		usleep(1000);
	writer(argv[1], other);
	check(waitpid(other, &status, 0) == other && status == 0, "the owner failed");
	printf("ok: %s, %zu bytes\n", argv[1], len);
	return 0;
}
