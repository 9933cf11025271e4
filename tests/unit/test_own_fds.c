/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_own_fds.c - the engine's own descriptors are known, moved and forgotten (sys/own_fds.c); a
 * thread may have a descriptor table of its own (fd_table.c); which numbers of a table are open
 * (open_fds.c).
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/node/socket_name.h"
#include "engine/sys/os.h"
#include "tests/unit/suite.h"

START_TEST(high_and_internal)
{
	int low = os_eventfd(0, 0), fd = os_dup_high(low);

	ck_assert_int_ge(fd, 64);
	ck_assert_int_eq(fcntl(low, F_GETFD), -1); /* the original is closed */
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert(os_fd_is_internal(fd));
	ck_assert(!os_fd_is_internal(low));
	ck_assert(!os_fd_is_internal(-1));
	ck_assert(!os_fd_is_internal(INT32_MAX));
	ck_assert_int_eq(os_close(fd), 0);
	ck_assert(!os_fd_is_internal(fd));
	ck_assert_int_eq(os_fd_move_internal(fd), 0); /* nothing to do */
}
END_TEST

/* A number counts once, and moves with its descriptor; a close of another one changes nothing. */
START_TEST(counted)
{
	const unsigned before = os_fds_count();
	int low = os_eventfd(0, 0), fd = os_dup_high(os_eventfd(0, 0));

	ck_assert_uint_eq(os_fds_count(), before + 1);
	ck_assert_int_eq(os_fd_register(fd), 0);
	ck_assert_uint_eq(os_fds_count(), before + 1);
	ck_assert_int_eq(os_fd_move_internal(fd), 0);
	ck_assert(!os_fd_is_internal(fd));
	ck_assert_uint_eq(os_fds_count(), before + 1);
	ck_assert_int_eq(os_close(low), 0);
	ck_assert_uint_eq(os_fds_count(), before + 1);
	for (int i = 64; i < 1024; i++)
		if (os_fd_is_internal(i))
			os_close(i);
	ck_assert_uint_eq(os_fds_count(), 0);
}
END_TEST

START_TEST(no_number_left)
{
	struct rlimit rl;
	int fd, fds[64], n = 0;

	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = 40; /* below the lowest preferred base */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	fd = os_dup_high(os_eventfd(0, 0));
	ck_assert_int_ge(fd, 16);
	ck_assert_int_lt(fd, 40);
	os_close(fd);
	while ((fd = os_eventfd(0, 0)) >= 0)
		fds[n++] = fd;
	ck_assert_int_eq(fd, -EMFILE);
	fd = os_dup_high(fds[n - 1]);
	ck_assert_int_eq(fd, fds[n - 1]); /* kept where it is */
	ck_assert(os_fd_is_internal(fd));
	ck_assert_int_eq(os_fd_move_internal(fd), -EMFILE);
	ck_assert(os_fd_is_internal(fd));
	while (n--)
		os_close(fds[n]);
}
END_TEST

static int hook_calls, hook_old, hook_new;
static bool hook_saw_both;

static void hook(void *arg, int oldfd, int newfd)
{
	hook_calls++;
	if (oldfd < 0)
		return;
	hook_old = oldfd;
	hook_new = newfd;
	hook_saw_both = fcntl(oldfd, F_GETFD) >= 0 && fcntl(newfd, F_GETFD) == FD_CLOEXEC;
	atomic_store((_Atomic int *)arg, newfd);
}

START_TEST(moving)
{
	_Atomic int slot = -1;
	uint64_t v = 5;
	int old;

	ck_assert_int_eq(os_dup_high_slot(os_eventfd(0, EFD_NONBLOCK), &slot), 0);
	old = slot;
	ck_assert_int_eq(os_write(slot, &v, 8), 8);
	ck_assert_int_eq(os_fd_move_internal(old), 0);
	ck_assert_int_ne(slot, old);
	ck_assert(os_fd_is_internal(slot) && !os_fd_is_internal(old));
	ck_assert_int_eq(fcntl(old, F_GETFD), -1);
	ck_assert_int_eq(os_read(slot, &v, 8), 8); /* the same thing behind it */
	ck_assert_uint_eq(v, 5);

	ck_assert_int_eq(os_fd_register_hook(&slot, hook, &slot), 0);
	old = slot;
	ck_assert_int_eq(os_fd_move_internal(old), 0);
	ck_assert_int_eq(hook_calls, 2);
	ck_assert_int_eq(hook_old, old);
	ck_assert_int_eq(hook_new, slot);
	ck_assert(hook_saw_both);
	old = slot;
	os_close_slot(&slot);
	ck_assert_int_eq(slot, -1);
	ck_assert_int_eq(fcntl(old, F_GETFD), -1);
	ck_assert(!os_fd_is_internal(old));
	os_close_slot(&slot); /* twice: nothing */
}
END_TEST

/*
 * A library's descriptor: moved out of the way, closed at exec, and followed to the number that the
 * program gives it.
 */
START_TEST(adopted)
{
	int number = os_eventfd(0, EFD_NONBLOCK), low = number, old, bad = -1, closed = 999;
	uint64_t v = 3;

	fcntl(number, F_SETFD, 0);
	ck_assert_int_eq(os_fd_adopt(&number), 0);
	ck_assert_int_gt(number, low);
	ck_assert_int_eq(fcntl(low, F_GETFD), -1);
	ck_assert_int_eq(fcntl(number, F_GETFD), FD_CLOEXEC);
	ck_assert(os_fd_is_internal(number));
	ck_assert_int_eq(os_write(number, &v, 8), 8);
	old = number;
	ck_assert_int_eq(os_fd_move_internal(old), 0);
	ck_assert_int_ne(number, old);
	ck_assert(os_fd_is_internal(number) && !os_fd_is_internal(old));
	ck_assert_int_eq(os_read(number, &v, 8), 8);
	old = number;
	ck_assert_int_eq(os_close(number), 0);
	ck_assert(!os_fd_is_internal(old));
	ck_assert_int_eq(os_fd_adopt(&bad), -EBADF);
	ck_assert_int_eq(os_fd_adopt(&closed), -EBADF);
	ck_assert_int_eq(closed, 999);
}
END_TEST

static void collect(int fd, void *arg)
{
	int *v = arg;

	ck_assert_int_lt(v[0], 7);
	v[++v[0]] = fd;
}

START_TEST(each_in_range)
{
	int fd[3], v[8] = { 0 };

	for (int i = 0; i < 3; i++)
		fd[i] = os_dup_high(os_eventfd(0, 0));
	os_fd_each_internal(0, UINT32_MAX, collect, v);
	ck_assert_int_eq(v[0], 3);
	ck_assert(v[1] < v[2] && v[2] < v[3]);
	v[0] = 0;
	os_fd_each_internal((unsigned)fd[1], (unsigned)fd[1], collect, v);
	ck_assert_int_eq(v[0], 1);
	ck_assert_int_eq(v[1], fd[1]);
	for (int i = 0; i < 3; i++)
		os_close(fd[i]);
	v[0] = 0;
	os_fd_each_internal(0, UINT32_MAX, collect, v);
	ck_assert_int_eq(v[0], 0);
}
END_TEST

/*
 * A child by vfork shares the memory of its parent, and so the table of own descriptors, but not
 * the descriptors.  What the child asks for must not happen to the parent.
 */
START_TEST(a_vfork_child_moves_nothing)
{
	static _Atomic int slot = -1;
	int before, *moved; /* shared, because ThreadSanitizer makes a fork of vfork */
	pid_t pid;

	moved = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(moved, MAP_FAILED);
	*moved = -1;

	ck_assert_int_eq(os_dup_high_slot(os_eventfd(0, 0), &slot), 0);
	before = slot;
	pid = vfork();
	if (pid == 0) {
		*moved = os_fd_move_internal(before);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(*moved, 0);
	ck_assert_int_eq(slot, before);
	ck_assert(os_fd_is_internal(before));
	os_close_slot(&slot);
}
END_TEST

static void *churn(void *arg)
{
	_Atomic int slot = -1;

	(void)arg;
	for (int i = 0; i < 2000; i++) {
		if (os_dup_high_slot(os_eventfd(0, 0), &slot))
			return (void *)1;
		if (i % 2)
			os_fd_move_internal(slot);
		if (!os_fd_is_internal(slot))
			return (void *)2;
		os_close_slot(&slot);
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t t[3];
	void *ret;

	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, churn, NULL);
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], &ret);
		ck_assert_ptr_null(ret);
	}
}
END_TEST

static void *with_own_table(void *arg)
{
	const int *fds = arg; /* a pipe, a locked file */
	struct stat a, b;
	int fd, got;

	ck_assert_int_eq(os_fd_table, 0);
	ck_assert_int_eq(os_fstat(fds[2], &a), 0);
	if (os_fd_table_unshare() < 0)
		return arg;
	ck_assert_int_eq(os_fd_table, 1);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(fcntl(fds[i], F_GETFD), -1);
/* for them the standard numbers are kept */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	ck_assert_int_lt(os_write(1, "x", 1), 1); /* no output of the program, whatever is there */
#endif
	fd = os_dup_high(os_eventfd(0, 0));
	ck_assert_int_ge(fd, 3);
	ck_assert(!os_fd_is_internal(fd)); /* it is nothing in the program's table */
	ck_assert_int_eq(os_close(fd), 0);
	got = os_fd_dup_of_main(fds[2]);
	if (got >= 0) {
		ck_assert_int_eq(os_fstat(got, &b), 0);
		ck_assert_int_eq(a.st_ino, b.st_ino);
		os_close(got);
	}
	return NULL;
}

/* Nothing of the program's is held open by it, and none of its record locks is lost. */
START_TEST(a_table_of_its_own)
{
	int fds[3], status;
	pthread_t t;
	void *unable;
	char c;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	fds[2] = os_memfd("test", MFD_CLOEXEC);
	ck_assert_int_eq(os_lock(fds[2], F_WRLCK, 0, 1, false), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, with_own_table, fds), 0);
	ck_assert_int_eq(pthread_join(t, &unable), 0);
	ck_assert_int_eq(os_fd_table, 0);
	if (unable)
		return; /* an old kernel, or a filter: then it is shared */
	close(fds[1]);
	ck_assert_int_eq(read(fds[0], &c, 1), 0);
	pid = fork();
	if (pid == 0)
		_exit(os_lock_holder(fds[2], 0, 1) != getppid());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

static struct {
	bool seen[1024];
	unsigned n;
} listed;

static int list_one(int fd, void *wrong)
{
	ck_assert_int_lt(fd, 1024);
	*(bool *)wrong |= listed.seen[fd];
	listed.seen[fd] = true;
	listed.n++;
	return 0;
}

static int third(int fd, void *n)
{
	(void)fd;
	return ++*(int *)n == 3 ? 7 : 0;
}

static int close_above(int fd, void *least)
{
	return fd > *(int *)least ? os_close(fd) : 0;
}

/* Each open number once, and nothing else, whether there is a number left for the list or not. */
START_TEST(each_open_number)
{
	struct rlimit rl = {.rlim_cur = 300, .rlim_max = 1024};
	int (*each)(int (*fn)(int, void *), void *) = _i ? os_fds_probe : os_fds_each;
	int last = -1, fd, calls = 0;
	bool wrong = false;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	while ((fd = dup(0)) >= 0)
		last = fd;
	ck_assert_int_eq(last, 299);
	if (!_i) {
		close(17);
		close(200);
	}
	if (_i)
		ck_assert_int_eq(os_fds_each(list_one, &wrong), -EMFILE);
	ck_assert_int_eq(each(list_one, &wrong), 0);
	ck_assert(!wrong);
	ck_assert_uint_eq(listed.n, _i ? 300 : 298);
	for (fd = 0; fd < 300; fd++)
		ck_assert_int_eq(listed.seen[fd], fcntl(fd, F_GETFD) >= 0);
	ck_assert_int_eq(each(third, &calls), 7);
	ck_assert_int_eq(calls, 3);
	last = 100;
	ck_assert_int_eq(each(close_above, &last), 0);
	for (fd = 101; fd < 300; fd++)
		ck_assert_int_lt(fcntl(fd, F_GETFD), 0);
}
END_TEST

/*
 * The process ends in a signal handler that has interrupted this thread while it had the list: what
 * is opened and closed then needs no list.
 */
START_TEST(the_end_in_the_list)
{
	_Atomic int kept = -1, slot = -1, to = -1;
	struct ucred cred;
	struct sockaddr_un nobody = {.sun_family = AF_UNIX, .sun_path = "\0own_fds: nobody"};
	int fd;

	ck_assert_int_eq(os_dup_high_slot(os_eventfd(0, 0), &kept), 0);
	os_fds_hold();
	os_end_begin(1000000);
	ck_assert_int_eq(os_dup_high_slot(os_eventfd(0, 0), &slot), 0);
	ck_assert_int_eq(os_fd_move_slot(&slot, &to), 0);
	ck_assert_int_ge(fcntl(to, F_GETFD), 0);
	fd = to;
	os_close_slot(&to);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	fd = os_dup_high(os_eventfd(0, 0));
	ck_assert_int_eq(os_fd_register(fd), 0);
	os_fds_hold();
	os_fds_release();
	ck_assert(!os_fds_hold_until(0));
	ck_assert_int_eq(os_close(fd), 0);
	fd = kept;
	ck_assert_int_eq(os_close(fd), 0); /* one that is in the list */
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_int_eq(rds_node_name_cred(&nobody, sizeof(nobody), &cred), -ECONNREFUSED);
}
END_TEST

/* For all locks together it waits that long. */
START_TEST(the_end_waits)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	os_end_begin(1000000);
	ck_assert(os_mutex_lock(&lock));
	ck_assert(!os_mutex_lock(&lock));
	pthread_mutex_unlock(&lock);
	ck_assert(os_mutex_lock(&lock)); /* the time is over, but it is free */
	os_end_begin(0);
	pthread_mutex_unlock(&lock);
	ck_assert(os_mutex_lock(&lock));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("own_fds");
	TCase *tc = suite_case(s, "descriptors", NULL, NULL);

	tcase_add_test(tc, high_and_internal);
	tcase_add_test(tc, counted);
	tcase_add_test(tc, no_number_left);
	tcase_add_test(tc, moving);
	tcase_add_test(tc, adopted);
	tcase_add_test(tc, each_in_range);
	tcase_add_loop_test(tc, each_open_number, 0, 2);
	tcase_add_test(tc, a_vfork_child_moves_nothing);
	tcase_add_test(tc, threads);
	tcase_add_test(tc, a_table_of_its_own);
	tcase_add_test(tc, the_end_in_the_list);
	tcase_add_test(tc, the_end_waits);
	return suite_run(s);
}
