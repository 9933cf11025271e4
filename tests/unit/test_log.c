/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_log.c - what a line looks like, where it goes, when it is held back, and that it never hurts
 * the program.  Each test runs in a process of its own, so descriptor 2 can be anything.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "tests/mock/clock.h"
#include "tests/unit/suite.h"

static char text[65536];
static char path[] = "/tmp/test_log.XXXXXX";
static int file = -1;

#define MS 1000000ull

/* Descriptor 2 becomes an empty file. */
static void capture(void)
{
	file = mkstemp(path);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(dup2(file, 2), 2);
}

static void uncapture(void)
{
	if (file >= 0)
		unlink(path);
}

/* All that was written to it. */
static const char *captured(void)
{
	ssize_t n = pread(file, text, sizeof(text) - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

static unsigned lines(const char *s)
{
	unsigned n = 0;

	for (; *s; s++)
		n += *s == '\n';
	return n;
}

START_TEST(format)
{
	char want[256];

	capture();
	errno = 4711;
	rds_error("port %d is gone: %s", 7, "bind again");
	ck_assert_int_eq(errno, 4711);
	rds_warn("w");
	snprintf(want, sizeof(want),
		 "rdspreload[%d] %s: error: port 7 is gone: bind again\nrdspreload[%d] %s: warning: w\n", getpid(),
		 program_invocation_short_name, getpid(), program_invocation_short_name);
	ck_assert_str_eq(captured(), want);
}
END_TEST

START_TEST(levels)
{
	capture();
	rds_info("not yet");
	rds_log_setup(RDS_LOG_DEBUG, "");
	rds_info("i");
	rds_debug("d");
	rds_log_setup(RDS_LOG_ERROR, NULL);
	rds_warn("not any more");
	ck_assert_uint_eq(lines(captured()), 2);
	ck_assert_ptr_nonnull(strstr(text, ": info: i\n"));
	ck_assert_ptr_nonnull(strstr(text, ": debug: d\n"));
}
END_TEST

START_TEST(one_line_whatever_is_in_it)
{
	char big[4000];

	capture();
	rds_warn("a\nb\tc\033[31m\177d");
	ck_assert_ptr_nonnull(strstr(captured(), ": a?b?c?[31m?d\n"));
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	rds_warn("%s", big);
	ck_assert_uint_eq(lines(captured()), 2);
	ck_assert_uint_le(strlen(strchr(text, '\n') + 1), 1024);
	ck_assert_uint_gt(strlen(strchr(text, '\n') + 1), 1000);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

static void shout(int i)
{
	rds_warn("shout %d", i);
}

/*
 * A burst, then one per five seconds: of a shortage that lasts.  It cannot be waited for that here;
 * the clock is ours.
 */
START_TEST(rate)
{
	unsigned i;

	mock_now = 1000 * MS;
	capture();
	for (i = 0; i < 100; i++)
		shout(i);
	ck_assert_uint_eq(lines(captured()), 20);
	rds_warn("another place"); /* has its own account */
	ck_assert_ptr_nonnull(strstr(captured(), "another place\n"));
	mock_now += 5000 * MS;
	shout(100);
	ck_assert_ptr_nonnull(strstr(captured(), "shout 100 (80 more like this were held back)\n"));
	shout(101);
	ck_assert_ptr_null(strstr(captured(), "shout 101"));
	mock_now += 1000 * 1000 * MS;
	for (i = 102; i < 200; i++)
		shout(i);
	ck_assert_ptr_nonnull(strstr(captured(), "shout 102 (1 more like this were held back)\n"));
	ck_assert_uint_eq(lines(text), 20 + 1 + 1 + 20);
}
END_TEST

/* What was asked for is said ten times a second, after ten at once: a second of one every 10 ms. */
START_TEST(rate_of_info)
{
	unsigned i;

	rds_log_setup(RDS_LOG_INFO, NULL);
	capture();
	mock_now = 1000 * MS;
	for (i = 0; i < 100; i++, mock_now += 10 * MS)
		rds_info("whisper");
	ck_assert_uint_eq(lines(captured()), 10 + 9);
}
END_TEST

START_TEST(once)
{
	capture();
	for (int i = 0; i < 5; i++)
		rds_warn_once("only once");
	ck_assert_uint_eq(lines(captured()), 1);
}
END_TEST

/* ---- places that must be left alone ---- */

START_TEST(closed_stderr)
{
	capture();
	close(2);
	rds_error("nowhere");
	ck_assert_str_eq(captured(), "");
	ck_assert_int_eq(open("/dev/null", O_RDONLY), 2); /* and nothing took the number */
}
END_TEST

START_TEST(pipe_without_reader)
{
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	signal(SIGPIPE, SIG_DFL);
	dup2(p[1], 2);
	close(p[0]);
	rds_error("would be SIGPIPE");
}
END_TEST

static unsigned signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

/*
 * A daemon's log that is as long as it may be: nobody asked the library to end the daemon.  _i: the
 * program holds that signal back, and has one.
 */
START_TEST(file_at_its_limit)
{
	struct rlimit few = {4096, 4096};
	sigset_t set;
	FILE *f = tmpfile();

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(ftruncate(fileno(f), 4096), 0);
	ck_assert_int_eq(fcntl(fileno(f), F_SETFL, O_APPEND), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
	dup2(fileno(f), 2);
	signal(SIGXFSZ, _i ? on_signal : SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	if (_i) {
		sigprocmask(SIG_BLOCK, &set, NULL);
		raise(SIGXFSZ);
	}
	rds_error("too much");
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	ck_assert_uint_eq(signals, _i ? 1 : 0);
	fclose(f);
}
END_TEST

START_TEST(full_pipe)
{
	static char junk[65536];
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], 2);
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	while (write(p[1], junk, sizeof(junk)) > 0)
		;
	while (write(p[1], junk, 1) > 0)
		;
	fcntl(p[1], F_SETFL, 0);
	rds_error("would block for ever");
}
END_TEST

START_TEST(pipe_with_reader)
{
	char buf[200] = "";
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], 2);
	rds_error("through the pipe");
	ck_assert_int_gt(read(p[0], buf, sizeof(buf) - 1), 0);
	ck_assert_ptr_nonnull(strstr(buf, "through the pipe\n"));
}
END_TEST

/*
 * A stand-in of an RDS socket as descriptor 2 gets nothing; a stream socket, as of a service
 * manager, does.
 */
START_TEST(sockets)
{
	static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM};
	char buf[200] = "";
	int sv[2];

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(socketpair(AF_UNIX, types[i], 0, sv), 0);
		dup2(sv[0], 2);
		rds_error("to a socket");
		ck_assert_int_eq(recv(sv[1], buf, sizeof(buf) - 1, MSG_DONTWAIT) > 0, types[i] == SOCK_STREAM);
	}
	ck_assert_ptr_nonnull(strstr(buf, "to a socket\n"));
}
END_TEST

/* ---- the log file ---- */

START_TEST(to_file)
{
	struct stat st;
	int flags, fd, found = -1;

	capture();
	close(2);
	rds_log_setup(RDS_LOG_WARN, path);
	ck_assert_str_eq(captured(), ""); /* opened with the first line */
	rds_error("one");
	rds_error("two");
	ck_assert_uint_eq(lines(captured()), 2);
	/* its number is out of the way, close-on-exec, appending */
	for (fd = 0; fd < 70000; fd++)
		if (fd != file && !fstat(fd, &st) && S_ISREG(st.st_mode) && (flags = fcntl(fd, F_GETFL)) >= 0 &&
		    (flags & O_APPEND))
			found = fd;
	ck_assert_int_ge(found, 64);
	ck_assert_int_eq(fcntl(found, F_GETFD), FD_CLOEXEC);

	/* the program closes the number, or puts another file there */
	close(found);
	rds_error("three");
	ck_assert_uint_eq(lines(captured()), 3);
	fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	ck_assert_int_ge(fd, 0);
	for (int i = 64; i < 70000; i++)
		if (i != file && !fstat(i, &st) && S_ISREG(st.st_mode) && (fcntl(i, F_GETFL) & O_APPEND))
			dup2(fd, i);
	rds_error("four");
	ck_assert_uint_eq(lines(captured()), 4);
	ck_assert_int_eq(lseek(fd, 0, SEEK_END), 0);
}
END_TEST

START_TEST(file_of_a_forked_child)
{
	int status;
	pid_t pid;

	capture();
	rds_log_setup(RDS_LOG_WARN, path);
	rds_error("parent");
	pid = fork();
	if (!pid) {
		for (int i = 3; i < 70000; i++)
			close(i);
		rds_error("child");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	rds_error("parent again");
	ck_assert_uint_eq(lines(captured()), 3);
	ck_assert_ptr_nonnull(strstr(text, "child\n"));
}
END_TEST

START_TEST(file_that_cannot_be)
{
	capture();
	rds_log_setup(RDS_LOG_WARN, "/nonexistent/dir/log");
	rds_error("falls back");
	rds_error("again");
	ck_assert_uint_eq(lines(captured()), 3); /* said once why it is here */
	ck_assert_ptr_nonnull(strstr(text, ": warning: RDS_PRELOAD_LOG_FILE=/nonexistent/dir/log cannot be opened: No such "
					   "file or directory; lines go to standard error\n"));
	ck_assert_ptr_nonnull(strstr(strchr(text, '\n'), "falls back\n"));
}
END_TEST

/* ---- a thread that has no descriptor 2 ---- */

enum { TO_STDERR, TO_PIPE, TO_FILE, TO_STREAM, TO_NOTHING, TO_FULL, TO_NOBODY, TO_SEQPACKET, TABLES };

static void *speaks(void *arg)
{
	int fd;

	if (os_fd_table_unshare() < 0)
		return arg;
	rds_error("from another table");
	fd = os_eventfd(0, 0);
	ck_assert_int_le(fd, 3); /* and it has kept nothing */
	return NULL;
}

static void *speaks_when_full(void *arg)
{
	if (os_fd_table_unshare() < 0)
		return arg;
	rds_log_reserve_fds(NULL);
	while (os_eventfd(0, 0) >= 0)
		;
	rds_error("no number is left");
	ck_assert_int_lt(os_eventfd(0, 0), 0); /* what the line took is kept again */
	rds_error("and still there is none");
	return NULL;
}

START_TEST(from_a_full_table)
{
	struct rlimit few = {.rlim_cur = 100, .rlim_max = 100};
	pthread_t t;
	void *unable;

	capture();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, speaks_when_full, &few), 0);
	ck_assert_int_eq(pthread_join(t, &unable), 0);
	if (unable)
		return; /* old kernel, or a filter */
	ck_assert_uint_eq(lines(captured()), 2);
}
END_TEST

/*
 * Where the line of the program's own threads would go it goes, too, and else nowhere; nothing
 * blocks.
 */
START_TEST(from_another_table)
{
	static char junk[65536];
	char buf[200] = "";
	int p[2];
	pthread_t t;
	void *unable;

	if (_i == TO_STDERR || _i == TO_FILE || _i == TO_NOTHING)
		capture();
	else if (_i == TO_STREAM || _i == TO_SEQPACKET)
		ck_assert_int_eq(socketpair(AF_UNIX, _i == TO_STREAM ? SOCK_STREAM : SOCK_SEQPACKET, 0, p), 0);
	else
		ck_assert_int_eq(pipe(p), 0);
	if (_i == TO_FILE)
		rds_log_setup(RDS_LOG_WARN, path);
	if (_i == TO_FILE || _i == TO_NOTHING)
		close(2);
	else if (_i != TO_STDERR)
		ck_assert_int_eq(dup2(p[1], 2), 2);
	if (_i == TO_NOBODY)
		close(p[0]);
	if (_i == TO_FULL) {
		fcntl(p[1], F_SETFL, O_NONBLOCK);
		while (write(p[1], junk, sizeof(junk)) > 0)
			;
		while (write(p[1], junk, 1) > 0)
			;
		fcntl(p[1], F_SETFL, 0);
	}
	ck_assert_int_eq(pthread_create(&t, NULL, speaks, junk), 0);
	ck_assert_int_eq(pthread_join(t, &unable), 0);
	if (unable)
		return; /* old kernel, or a filter */
	if (_i == TO_STDERR || _i == TO_FILE)
		ck_assert_uint_eq(lines(captured()), 1);
	else if (_i == TO_NOTHING)
		ck_assert_str_eq(captured(), "");
	else if (_i == TO_PIPE || _i == TO_STREAM)
		ck_assert_int_gt(read(p[0], buf, sizeof(buf) - 1), 0);
	else if (_i == TO_SEQPACKET)
		ck_assert_int_eq(recv(p[0], buf, sizeof(buf), MSG_DONTWAIT), -1);
}
END_TEST

/* The leader of a session: 0 if a process in the background has logged, and goes on. */
static int watch_background(int pty, const char *name)
{
	struct termios t;
	char seen[200];
	int tty, status;
	pid_t pid;

	setsid();
	tty = open(name, O_RDWR);
	if (tty < 0 || ioctl(tty, TIOCSCTTY, 0) || tcgetattr(tty, &t))
		return 1;
	t.c_lflag |= TOSTOP;
	if (tcsetattr(tty, TCSANOW, &t) || dup2(tty, 2) != 2)
		return 2;
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		if (tcgetpgrp(tty) == getpgrp())
			_exit(1);
		rds_warn("from the background");
		_exit(0);
	}
	if (waitpid(pid, &status, WUNTRACED) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
		return 3;
	return read(pty, seen, sizeof(seen)) > 0 ? 0 : 4;
}

/* A terminal that belongs to others (stty tostop): the line is written, and no signal stops the process. */
START_TEST(terminal_of_others)
{
	int pty = posix_openpt(O_RDWR | O_NOCTTY), status;
	char name[100];
	pid_t pid;

	ck_assert(pty >= 0 && grantpt(pty) == 0 && unlockpt(pty) == 0);
	ck_assert_int_eq(ptsname_r(pty, name, sizeof(name)), 0);
	pid = fork();
	if (pid == 0)
		_exit(watch_background(pty, name));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

START_TEST(no_descriptors_left)
{
	struct rlimit before, rl;

	capture();
	getrlimit(RLIMIT_NOFILE, &before);
	rl = before;
	rl.rlim_cur = (rlim_t)file + 1;
	setrlimit(RLIMIT_NOFILE, &rl);
	rds_log_setup(RDS_LOG_WARN, path);
	rds_error("still heard");
	ck_assert_ptr_nonnull(strstr(captured(), "still heard\n"));
	setrlimit(RLIMIT_NOFILE, &before); /* the leak sanitizer needs some at exit */
}
END_TEST

/* ---- threads ---- */

static void *talk(void *arg)
{
	for (int i = 0; i < 1000; i++)
		rds_warn("%s", (const char *)arg);
	return NULL;
}

START_TEST(threads)
{
	static char names[4][40];
	pthread_t t[4];
	char *line, *next;

	capture();
	rds_log_setup(RDS_LOG_WARN, path);
	for (int i = 0; i < 4; i++) {
		memset(names[i], 'a' + i, sizeof(names[i]) - 1);
		pthread_create(&t[i], NULL, talk, names[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	captured();
	ck_assert_uint_ge(lines(text), 10);
	for (line = text; *line; line = next) { /* none is torn */
		next = strchr(line, '\n');
		ck_assert_ptr_nonnull(next);
		*next++ = '\0';
		ck_assert_int_eq(strncmp(line, "rdspreload[", 11), 0);
		ck_assert_uint_eq(strspn(strstr(line, "warning: ") + 9, (char[]){strstr(line, "warning: ")[9], 0}), 39);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("log");
	TCase *c = tcase_create("log");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, uncapture);
	tcase_add_test(c, format);
	tcase_add_test(c, levels);
	tcase_add_test(c, one_line_whatever_is_in_it);
	tcase_add_test(c, rate);
	tcase_add_test(c, rate_of_info);
	tcase_add_test(c, once);
	tcase_add_test(c, closed_stderr);
	tcase_add_test(c, pipe_without_reader);
	tcase_add_loop_test(c, file_at_its_limit, 0, 2);
	tcase_add_test(c, full_pipe);
	tcase_add_test(c, pipe_with_reader);
	tcase_add_test(c, sockets);
	tcase_add_test(c, to_file);
	tcase_add_test(c, file_of_a_forked_child);
	tcase_add_test(c, file_that_cannot_be);
	tcase_add_test(c, terminal_of_others);
	tcase_add_test(c, no_descriptors_left);
	tcase_add_test(c, threads);
	tcase_add_loop_test(c, from_another_table, 0, TABLES);
	tcase_add_test(c, from_a_full_table);
	return suite_run(s);
}
