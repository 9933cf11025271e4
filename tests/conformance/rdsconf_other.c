/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Helpers of the conformance programs that are about several threads and processes: do they sleep,
 * whose turn is it, how do they end, sockets that go from one to another; see rdsconf.h. As in
 * rdsconf.c, nothing depends on how RDS works inside, and nothing waits without a deadline.
 */
#include "rdsconf.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *helper_main(void *arg)
{
	struct helper *helper = arg;

	__atomic_store_n(&helper->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	helper->result = helper->call(helper->arg);
	helper->error = errno;
	return NULL;
}

void helper_start(struct helper *helper, long (*call)(void *), void *arg)
{
	memset(helper, 0, sizeof(*helper));
	helper->call = call;
	helper->arg = arg;
	errno = pthread_create(&helper->thread, NULL, helper_main, helper);
	if (errno)
		conf_die("pthread_create");
	while (!__atomic_load_n(&helper->tid, __ATOMIC_ACQUIRE))
		usleep(500);
}

/* Asleep in eight looks one after another: not a passing wait for a lock or a page. */
static bool asleep(int tid)
{
	long long end = now_ms() + TEST_COMES;
	int seen = 0;

	while (seen < 8) {
		char state = test_state(tid);

		if (!state || state == 'Z')
			return false;
		if (now_ms() > end)
			test_late("a sleep");
		seen = state == 'S' ? seen + 1 : 0;
		usleep(5000);
	}
	return true;
}

bool helper_asleep(struct helper *helper)
{
	return asleep(helper->tid);
}

bool helper_rests(struct helper *helper)
{
	char state = test_state(helper->tid);

	return state == 'S' || !state;
}

bool process_asleep(int pid)
{
	return asleep(pid);
}

/*
 * All of its threads: the signal stops one after another.  Not with text(): many looks would write
 * over the text that somebody has as a name.
 */
bool process_stopped(int pid)
{
	char path[32];
	struct dirent *task;
	DIR *tasks;
	bool stopped;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	stopped = tasks != NULL;
	while (stopped && (task = readdir(tasks)) != NULL)
		stopped = task->d_name[0] == '.' || test_state(atoi(task->d_name)) == 'T';
	if (tasks)
		closedir(tasks);
	return stopped;
}

bool helper_done(struct helper *helper, int ms)
{
	struct timespec ts;

	if (!helper->joined) {
		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec += ms / 1000;
		ts.tv_nsec += ms % 1000 * 1000000L;
		if (ts.tv_nsec >= 1000000000L) {
			ts.tv_sec++;
			ts.tv_nsec -= 1000000000L;
		}
		if (pthread_timedjoin_np(helper->thread, NULL, &ts))
			return false;
		helper->joined = true;
	}
	errno = helper->error;
	return true;
}

bool helper_ends(struct helper *helper)
{
	if (!helper_done(helper, TEST_COMES))
		test_late("the end of a call");
	return true;
}

long helper_result(struct helper *helper)
{
	helper_ends(helper);
	return helper->result;
}

bool fork_other(struct other *other)
{
	int there[2], back[2];

	if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC))
		conf_die("pipe");
	fflush(stdout);
	other->pid = fork();
	if (other->pid < 0)
		conf_die("fork");
	if (!other->pid)
		alarm(test_alarm(60)); /* earlier than the process that waits for it */
	other->rd = other->pid ? back[0] : there[0];
	other->wr = other->pid ? there[1] : back[1];
	close(other->pid ? there[0] : back[0]);
	close(other->pid ? back[1] : there[1]);
	return !other->pid;
}

void say(const struct other *other)
{
	if (write(other->wr, "", 1) != 1)
		conf_die("say");
}

void hear(const struct other *other)
{
	char byte;
	long r;

	do
		r = read(other->rd, &byte, 1);
	while (r < 0 && errno == EINTR);
	if (r != 1) {
		if (!r)
			end_of_pid(other->pid); /* it may be late, and so are we */
		conf_die("the other process has gone");
	}
}

void until_gone(const struct other *other)
{
	char byte;
	long r;

	do
		r = read(other->rd, &byte, 1);
	while (r > 0 || (r < 0 && errno == EINTR));
}

const char *end_of_pid(int pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return rc(-1);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
		test_late("process %d", pid);
	return WIFEXITED(status) ? text("exit %d", WEXITSTATUS(status)) : text("signal %d", WTERMSIG(status));
}

const char *end_of(const struct other *other)
{
	close(other->rd);
	close(other->wr);
	return end_of_pid(other->pid);
}

/* Uses it when it is told to, and then no more. */
static void is_next(int fd, int told, int used)
{
	char byte;

	if (read(told, &byte, 1) != 1)
		_exit(1);
	recv(fd, &byte, 1, MSG_DONTWAIT);
	if (write(used, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static void third_one(int fd, pid_t next, int tell, int used, void (*then)(int fd, pid_t next))
{
	pid_t maker = getppid();
	char byte;

	kill(maker, SIGKILL);
	test_until(getppid() != maker);
	if (write(tell, "", 1) != 1 || read(used, &byte, 1) != 1)
		conf_die("the next one");
	then(fd, next);
	_exit(0);
}

const char *made_and_left(int (*make)(void), void (*then)(int fd, pid_t next))
{
	struct other maker, next, third;
	int fd, turn[2], used[2];

	if (pipe(turn) || pipe(used))
		conf_die("pipe");
	if (fork_other(&maker)) {
		fd = make();
		if (fork_other(&next))
			is_next(fd, turn[0], used[1]);
		if (fork_other(&third))
			third_one(fd, next.pid, turn[1], used[0], then);
		for (;;)
			pause();
	}
	until_gone(&maker);
	return end_of(&maker);
}

void elsewhere(void (*step)(void))
{
	struct other other;
	const char *end;

	if (fork_other(&other)) {
		step();
		_exit(0);
	}
	end = end_of(&other);
	if (strcmp(end, "exit 0") != 0)
		check("the-other-process", "exit 0", "%s", end);
}

void pass_fd(int line, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = "";
	struct iovec iov = {"p", 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(line, &msg, 0) != 1)
		conf_die("pass a descriptor");
}

int passed_fd(int line, int flags)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	int fd;

	if (recvmsg(line, &msg, flags) != 1)
		conf_die("receive a descriptor");
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		conf_die("no descriptor came");
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static const char *from_whom(int fd)
{
	struct name from = {.len = sizeof(from.ss)};
	char buf[20] = "";
	long r = wait_message(fd) ? recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, &from.sa, &from.len) : -1;

	return r < 0 ? rc(r) : text("%ld %.10s from %s", r, buf, who(&from));
}

void use_passed(const char *name, int fd, int to)
{
	struct name own = name_of(fd);
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct stat st;
	int value = -1;

	check(text("%s-name", name), NULL, "%s", who(&own));
	fstat(fd, &st);
	check(text("%s-is-a-socket", name), "1", "%d", S_ISSOCK(st.st_mode));
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &(socklen_t){4});
	check(text("%s-domain", name), text("%d", AF_RDS), "%d", value);
	check(text("%s-first", name), NULL, "%s", from_whom(fd));
	check(text("%s-second", name), NULL, "%s", from_whom(fd));
	check(text("%s-empty", name), "-1 EAGAIN", "%s", rc(recv(fd, &value, 1, MSG_DONTWAIT)));
	settle(fd);
	poll(&pfd, 1, 0);
	check(text("%s-poll", name), "0", "%s", poll_bits(pfd.revents));
	check(text("%s-send", name), "6", "%s", rc(send_to(fd, to, "answer", 6, 0)));
}

void answered(int fd, const char *name)
{
	char buf[10] = "";

	check(text("%s-answer", name), "6", "%s", rc(receive(fd, buf, 10, 0)));
	check(text("%s-answer-is", name), "answer", "%.6s", buf);
}

void two_messages(int from, int to)
{
	send_to(from, to, "one", 3, 0);
	send_to(from, to, "two", 3, 0);
	if (!wait_message(to))
		conf_die("two messages");
}

/* Ports are chosen by a child that is gone; its messages and its name are what is left. */
void name_from(const struct other *other, struct name *name)
{
	if (read(other->rd, name, sizeof(*name)) != sizeof(*name))
		conf_die("no name came");
}

void name_to(const struct other *other, int fd)
{
	struct name name = name_of(fd);

	if (write(other->wr, &name, sizeof(name)) != sizeof(name))
		_exit(99);
}

bool free_again(const struct name *name)
{
	long long end = now_ms() + TEST_COMES;
	unsigned looks = 0;
	bool good = false;

	while (!good) {
		int fd = rds_socket();

		good = !bind(fd, &name->sa, name->len);
		close(fd);
		if (!good && now_ms() > end)
			test_late("a port that is free again");
		if (!good)
			test_pause(&looks);
	}
	return true;
}
