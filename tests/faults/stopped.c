/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stopped.c - a process that is stopped, and then killed, while it wakes another one takes no other
 * process's wake-ups along.
 *
 * Three processes: a sleeper that answers, a waker, and this one.  A system call filter stops the
 * waker exactly in the write by which it would wake the sleeper.  Messages from this process must
 * be answered then, and again when the waker is dead.
 *
 * Whoever asks next finds the sleeper asleep.  An answer that never comes is a hang.
 *
 * A plain PF_RDS program, except that it knows how a sleeper is woken: by a datagram, or by 8 bytes to a
 * pipe if there have been long messages.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "faults.h"

#define PORT 24000
#define ROUNDS 5
#define BOUND_MS 5000 /* of a question */
#define LONG 1000

static pid_t answers; /* the sleeper */
static int *trapped;  /* shared: what kind of file the waker was about to write to; 0 = it was not */

/* Nobody outlives the test, also not stopped. */
static void child_begins(void)
{
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	alarm(test_alarm(60));
}

static void sleeper(int ready)
{
	int fd = rds_bound(home(), PORT);
	struct sockaddr_in from;
	char c[LONG];

	check(write(ready, "", 1) == 1);
	for (;;) {
		socklen_t len = sizeof(from);

		check(recvfrom(fd, c, sizeof(c), 0, (struct sockaddr *)&from, &len) > 0);
		check(sendto(fd, c, 1, 0, (struct sockaddr *)&from, len) == 1);
	}
}

static void ask(int fd, size_t len, const char *when)
{
	struct sockaddr_in to = name_of(home(), PORT);
	double began = seconds();
	char c[LONG] = "x";

	check(sendto(fd, c, len, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)len);
	if (recv(fd, c, 1, 0) != 1)
		fail("no answer, %s: %s", when, strerror(errno));
	if (seconds() - began > test_bound_ms(BOUND_MS) / 1000.0)
		test_late("an answer, %s: after %.1f s", when, seconds() - began);
	check(test_sleeps(answers));
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	struct stat st;
	int fd = -1;

	(void)sig;
	(void)info;
#if defined(__x86_64__)
	fd = (int)((ucontext_t *)context)->uc_mcontext.gregs[REG_RDI];
#elif defined(__aarch64__)
	fd = (int)((ucontext_t *)context)->uc_mcontext.regs[0];
#else
	(void)context;
#endif
	*trapped = fd >= 0 && fstat(fd, &st) == 0 ? (int)(st.st_mode & S_IFMT) : -1;
	kill(getpid(), SIGSTOP);
}

/* From here on this thread stops in any write of 8 bytes, and where it sends a datagram. */
static void trap_wake_ups(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sendmsg, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 8, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
	struct sigaction sa = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

	check(sigaction(SIGSYS, &sa, NULL) == 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(77);
}

static void waker(int round)
{
	struct sockaddr_in to = name_of(home(), PORT);
	int fd = rds_bound(home(), (unsigned)(PORT + 2 + round)), i;

	for (i = 0; i < 5; i++) /* from the second time on this thread does everything itself */
		ask(fd, round % 2 ? LONG : 1, "to the waker");
	trap_wake_ups();
	check(sendto(fd, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) == 1);
	_exit(2); /* it did not have to wake anybody? */
}

static int one_round(int fd, int round)
{
	int status;
	pid_t pid;

	*trapped = 0;
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		child_begins();
		waker(round);
	}
	check(waitpid(pid, &status, WUNTRACED) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return 77;
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
		test_late("the waker");
	if (!WIFSTOPPED(status))
		fail("the waker ended (%#x) instead of being stopped", (unsigned)status);
	if (*trapped != (round % 2 ? S_IFIFO : S_IFSOCK) && *trapped != -1)
		fail("the waker was stopped in a write to something else (%#o)", (unsigned)*trapped);
	ask(fd, 1, "while another process is stopped");
	ask(fd, 1, "while another process is stopped, once more");
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	ask(fd, 1, "after the other process was killed");
	return 0;
}

int main(void)
{
	int ready[2], fd, round, err = 0;
	char c;

	alarm(test_alarm(60));
	trapped = mmap(NULL, sizeof(*trapped), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(trapped != MAP_FAILED && pipe(ready) == 0);
	answers = fork();
	check(answers >= 0);
	if (!answers) {
		child_begins();
		sleeper(ready[1]);
	}
	check(read(ready[0], &c, 1) == 1);
	fd = rds_bound(home(), PORT + 1);
	ask(fd, 1, "at first");
	for (round = 0; round < ROUNDS && !err; round++)
		err = one_round(fd, round);
	kill(answers, SIGKILL);
	waitpid(answers, NULL, 0);
	if (err) {
		printf("no system call filter can be installed here\n");
		return err;
	}
	printf("ok: %d processes stopped and killed while they woke another\n", ROUNDS);
	return 0;
}
