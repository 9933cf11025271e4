/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * strict.c - a system that promises no memory that it does not have (vm.overcommit_memory=2), and
 * has promised all of it.  Calls may fail, but no process dies.  When there is memory again,
 * messages arrive.
 *
 *         strict start    two processes want their first socket then
 *         strict ring     they have one each, and send each other their first message then
 *         strict data     they have sent each other messages before, and go on
 *
 * A plain PF_RDS program, for root in a guest: other processes get no memory meanwhile.
 * vm.user_reserve_kbytes has to be 0.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 28100
#define MEANWHILE 300 /* calls: more than a ring of messages */
#define LEN 16384
#define STACK (256 << 10)

static char buf[LEN];
static int ready[2], go[2][2];

/* ---- who takes all memory ---- */

static struct piece {
	void *at;
	size_t len;
} pieces[4096];
static unsigned n_pieces;

/* ... but for so much. */
static void take_all(size_t spare)
{
	void *kept = spare ? mmap(NULL, spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;
	size_t len;

	check(kept != MAP_FAILED);
	for (len = (size_t)1 << 30; len >= 4096 && n_pieces < 4096;) {
		void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			len /= 2;
		else
			pieces[n_pieces++] = (struct piece){at, len};
	}
	if (kept)
		munmap(kept, spare);
}

static void give_back(void)
{
	while (n_pieces) {
		n_pieces--;
		munmap(pieces[n_pieces].at, pieces[n_pieces].len);
	}
}

/* ---- the two; a stack that has to grow is another matter ---- */

static void stack_is_there(void)
{
	volatile char deep[STACK];
	unsigned i;

	for (i = 0; i < STACK; i += 4096)
		deep[i] = (char)i;
	check(deep[0] == 0);
}

static void said(void)
{
	check(write(ready[1], "", 1) == 1);
}

static void told(unsigned me)
{
	char c;

	check(read(go[me][0], &c, 1) == 1);
}

static void exchange(int fd, unsigned me, const char *when)
{
	struct sockaddr_in to = name_of(home(), PORT + !me);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int polled;

	if (sendto(fd, buf, 1, 0, (struct sockaddr *)&to, sizeof(to)) != 1)
		fail("cannot send %s: %s", when, strerror(errno));
	do
		polled = poll(&p, 1, TEST_COMES);
	/* it was news of congestion */
	while (polled == 1 && recv(fd, buf, LEN, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	if (polled != 1)
		test_late("what is to come %s", when);
}

/* As much as may go, for a while. */
static void meanwhile(int fd, unsigned me)
{
	struct sockaddr_in to = name_of(home(), PORT + !me);
	unsigned i;

	for (i = 0; i < MEANWHILE; i++) {
		struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};

		sendto(fd, buf, i % 2 ? 1 : LEN, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
		while (recv(fd, buf, LEN, MSG_DONTWAIT) >= 0)
			;
		poll(&p, 1, 1);
	}
}

static int try_socket(unsigned me)
{
	struct sockaddr_in sin = name_of(home(), PORT + me);
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&sin, sizeof(sin))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void one(unsigned me, const char *stage)
{
	bool starts = !strcmp(stage, "start");
	int fd = starts ? -1 : rds_bound(home(), PORT + me);

	stack_is_there();
	said();
	told(me); /* the other one is there, too */
	if (!strcmp(stage, "data"))
		exchange(fd, me, "before");
	said();
	told(me); /* there is no memory now */
	if (starts)
		fd = try_socket(me);
	if (fd >= 0)
		meanwhile(fd, me);
	said();
	told(me); /* there is some */
	if (fd < 0)
		fd = rds_bound(home(), PORT + me);
	said();
	told(me);
	exchange(fd, me, "afterwards");
	said();
	told(me);
	exit(0);
}

static bool both(const pid_t pid[2])
{
	struct pollfd p = {.fd = ready[0], .events = POLLIN};
	unsigned i, n = 0;
	char c;

	while (n < 2) {
		if (poll(&p, 1, 100) == 1)
			n += read(ready[0], &c, 1) == 1;
		for (i = 0; i < 2; i++) {
			siginfo_t si = {0};

			if (waitid(P_PID, (id_t)pid[i], &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid)
				return false;
		}
	}
	return true;
}

static void on(void)
{
	check(write(go[0][1], "", 1) == 1 && write(go[1][1], "", 1) == 1);
}

static void round_of(const char *stage, size_t spare)
{
	bool good;
	pid_t pid[2];
	int status;
	unsigned i;

	for (i = 0; i < 2; i++) {
		pid[i] = fork();
		check(pid[i] >= 0);
		if (!pid[i])
			one(i, stage);
	}
	good = both(pid) && (on(), both(pid));
	take_all(spare);
	good = good && (on(), both(pid));
	give_back();
	for (i = 0; i < 2; i++)
		good = good && (on(), both(pid));
	if (good)
		on();
	for (i = 0; i < 2; i++) {
		if (!good)
			kill(pid[i], SIGTERM);
		check(waitpid(pid[i], &status, 0) == pid[i]);
		if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM))
			fail("%s, %zu KiB left: a process ended with status %#x", stage, spare >> 10, (unsigned)status);
	}
}

int main(int argc, char **argv)
{
	const char *stage = argc > 1 ? argv[1] : "ring";
	FILE *f = fopen("/proc/sys/vm/overcommit_memory", "r");
	size_t spare;
	unsigned n = 0;

	if (!f || fgetc(f) != '2') {
		printf("the system promises more memory than it has\n");
		return 77;
	}
	fclose(f);
	alarm(test_alarm(140));
	check(pipe(ready) == 0 && pipe(go[0]) == 0 && pipe(go[1]) == 0);
	round_of(stage, 0);
	for (spare = 256 << 10; spare <= 16 << 20; spare *= 4, n++)
		round_of(stage, spare);
	printf("%s: %u times without memory, nobody died\n", stage, n + 1);
	return 0;
}
