/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_reentry.c - a handler's call lets the call that it has interrupted run to its end
 * (preload/signals/reentry.h).  No matter what that does to the stack, where the handler runs and
 * how it leaves, both find their own part of the stack as it was.
 *
 * The calls are functions of this program, which interrupt themselves.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <check.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/signals/frame.h"
#include "preload/signals/reentry.h"
#include "test_preload_mock.h"
#include "tests/unit/suite.h"

#define LOCALS 512

/* what has happened, in order: call, sleep left out, handler's call, handler's end */
static char events[16];
static sigjmp_buf out;
static bool jumps;
static int outer = SIGUSR1;
static void *signal_stack;

static void happens(char what)
{
	events[strlen(events)] = what;
}

static void fill(volatile unsigned char *at, unsigned from)
{
	for (unsigned i = 0; i < LOCALS; i++)
		at[i] = (unsigned char)(from + i * 7);
}

static void is_filled(const volatile unsigned char *at, unsigned from)
{
	for (unsigned i = 0; i < LOCALS; i++)
		ck_assert_uint_eq(at[i], (unsigned char)(from + i * 7));
}

/* As a call that needs so much more of the stack after it was interrupted. */
static __attribute__((noinline)) void use_stack(size_t deep)
{
	memset(alloca(deep), 0xa5, deep);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) bool call(int sig, size_t deep, bool sleeps)
{
	volatile unsigned char locals[LOCALS];
	int fds[2];
	char byte;
	bool again;

	reentry_call_begin();
	fill(locals, deep & 0xff);
	if (sig)
		raise(sig);
	use_stack(deep + 1);
	if (sleeps) {
		ck_assert_int_eq(pipe(fds), 0);
		ck_assert_int_eq(reentry_sleep_read(fds[0], &byte, 1), -1);
		ck_assert_int_eq(errno, EINTR);
		happens('s');
		close(fds[0]);
		close(fds[1]);
	}
	is_filled(locals, deep & 0xff);
	happens('c');
	again = reentry_call_end();
	is_filled(locals, deep & 0xff);
	return again;
}

static void handler(int sig)
{
	volatile unsigned char locals[LOCALS];

	fill(locals, 99);
	call(sig == SIGUSR1 ? 0 : SIGUSR1, 3000, false);
	is_filled(locals, 99);
	use_stack(20000);
	happens('h');
	if (jumps && sig == outer)
		siglongjmp(out, 1);
}

/* Interrupted before it has made a call. */
static void interrupted_handler(int sig)
{
	(void)sig;
	raise(SIGUSR1);
	happens('h');
}

#ifdef __aarch64__
/* tgkill(), in code without unwind information that makes no frame. */
void kill_unseen(int process, int thread, int sig);
__asm__(".text\nkill_unseen:\n\tmov x8, #131\n\tsvc #0\n\tret\n");

/* The same, interrupted there. */
static void interrupted_unseen(int sig)
{
	volatile unsigned char locals[LOCALS];

	(void)sig;
	fill(locals, 77);
	kill_unseen(getpid(), (int)syscall(SYS_gettid), SIGUSR1);
	is_filled(locals, 77);
	happens('u');
}
#endif

static void setup(void)
{
	close(mock_bound(1000)); /* the first socket makes ready */
	signal_stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(signal_stack, MAP_FAILED);
	memset(events, 0, sizeof(events));
}

static void teardown(void)
{
	munmap(signal_stack, 1 << 20);
}

static void handle(int sig, int flags)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};
	stack_t own = {.ss_sp = signal_stack, .ss_size = 1 << 20};

	if (flags & SA_ONSTACK)
		ck_assert_int_eq(sigaltstack(&own, NULL), 0);
	ck_assert_int_eq(sigaction(sig, &sa, NULL), 0);
}

static void no_signal_is_held(void)
{
	sigset_t now;

	sigprocmask(SIG_SETMASK, NULL, &now);
	ck_assert(sigisemptyset(&now));
	ck_assert_uint_eq(reentry_state.depth, 0);
	ck_assert_ptr_null(reentry_state.waiting_handler);
}

static const size_t depths[] = {0, 700, 3000, 10000, 200000};
#define DEPTHS (int)(sizeof(depths) / sizeof(depths[0]))

/* The kernel's frame lies where the call writes as it goes on. */
START_TEST(test_deep)
{
	handle(SIGUSR1, _i < DEPTHS ? 0 : SA_ONSTACK);
	for (unsigned i = 0; i < 3; i++) {
		memset(events, 0, sizeof(events));
		ck_assert(!call(SIGUSR1, depths[_i % DEPTHS], false));
		ck_assert_str_eq(events, "cch");
		no_signal_is_held();
	}
}
END_TEST

/* The handler's call is interrupted in turn. */
START_TEST(test_handlers_too)
{
	handle(SIGUSR1, _i < DEPTHS ? 0 : SA_ONSTACK);
	handle(SIGUSR2, _i < DEPTHS ? 0 : SA_ONSTACK);
	ck_assert(!call(SIGUSR2, depths[_i % DEPTHS], false));
	ck_assert_str_eq(events, "ccchh");
	no_signal_is_held();
}
END_TEST

#ifdef __aarch64__
START_TEST(test_unseen)
{
	struct sigaction sa = {.sa_handler = interrupted_unseen, .sa_flags = _i < DEPTHS ? 0 : SA_ONSTACK};

	handle(SIGUSR1, sa.sa_flags);
	ck_assert_int_eq(sigaction(SIGUSR2, &sa, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		memset(events, 0, sizeof(events));
		ck_assert(!call(SIGUSR2, depths[_i % DEPTHS], false));
		ck_assert_str_eq(events, "cchu");
		no_signal_is_held();
	}
}
END_TEST
#endif

START_TEST(test_jump)
{
	volatile unsigned i;

	handle(SIGUSR1, _i < DEPTHS ? 0 : SA_ONSTACK);
	handle(SIGUSR2, _i < DEPTHS ? 0 : SA_ONSTACK);
	jumps = true;
	for (i = 0; i < 20; i++) {
		memset(events, 0, sizeof(events));
		outer = i % 2 ? SIGUSR1 : SIGUSR2;
		if (!sigsetjmp(out, 1)) {
			call(outer, depths[_i % DEPTHS], false);
			ck_abort_msg("it has not jumped");
		}
		ck_assert_str_eq(events, i % 2 ? "cch" : "ccchh");
		no_signal_is_held();
	}
}
END_TEST

/* Made again if the handler wants it. */
START_TEST(test_sleep)
{
	handle(SIGUSR1, _i ? SA_RESTART : 0);
	ck_assert_int_eq(call(SIGUSR1, 3000, true), _i);
	ck_assert_str_eq(events, "scch");
	no_signal_is_held();
}
END_TEST

/*
 * Two handlers at once: the call is made again if both want it.  A third handler, which has not
 * come, does not count.
 */
START_TEST(test_sleep_of_two)
{
	struct sigaction sa = {.sa_handler = interrupted_handler, .sa_flags = _i & 1 ? SA_RESTART : 0};

	handle(SIGUSR1, _i & 2 ? SA_RESTART : 0);
	handle(SIGALRM, 0);
	ck_assert_int_eq(sigaction(SIGUSR2, &sa, NULL), 0);
	ck_assert_int_eq(call(SIGUSR2, 3000, true), _i == 3);
	ck_assert_str_eq(events, "scchh");
	no_signal_is_held();
}
END_TEST

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(RDS_SIGNAL_FRAME)
#define NOT_HERE 1
#else
#define NOT_HERE 0
#endif

static int run(void)
{
	Suite *s = suite_create("reentry");
	TCase *t = suite_case(s, "calls", setup, teardown);

	tcase_add_loop_test(t, test_deep, 0, 2 * DEPTHS);
	tcase_add_loop_test(t, test_handlers_too, 0, 2 * DEPTHS);
#ifdef __aarch64__ /* elsewhere what calls another library has unwind information */
	tcase_add_loop_test(t, test_unseen, 0, 2 * DEPTHS);
#endif
	tcase_add_loop_test(t, test_jump, 0, 2 * DEPTHS);
	tcase_add_loop_test(t, test_sleep, 0, 2);
	tcase_add_loop_test(t, test_sleep_of_two, 0, 4);
	return suite_run(s);
}

int main(void)
{
	if (!NOT_HERE)
		return run();
	printf("no call is rolled forward under sanitizers, nor elsewhere than on x86-64 and AArch64 with glibc\n");
	return 77;
}
