/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_user_copy.c - copies to and from memory that may not be there (user_copy.c): all of it or
 * -EFAULT, and the process lives.
 *
 * Every test runs as the kernel lets it, and with filters of system calls that refuse the calls by
 * which the kernel copies, or the file through which it does, or both: the results must be the same.
 * A filter stays with its process, so each test must have one of its own (Check's fork mode).  Must
 * not know how the copies are made, except for the names of these calls, and that the engine owns no
 * descriptor but that file.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/sys/os.h"
#include "engine/abi/user_copy.h"
#include "tests/refuse.h"
#include "tests/unit/suite.h"

#define PAGE 4096u
#define BIG (300 * PAGE)

static const struct {
	int refused; /* 0: no filter */
	bool no_file;
} modes[] = {{0, false}, {EPERM, false}, {ENOSYS, false}, {0, true}, {EPERM, true}, {ENOSYS, true}};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static unsigned char own[BIG];

/* From here on the two calls have this result: a value of SECCOMP_RET_*. */
static void answer(uint32_t result)
{
	ck_assert_int_eq(answer_call(SYS_process_vm_readv, result), 0);
	ck_assert_int_eq(answer_call(SYS_process_vm_writev, result), 0);
}

static void begin(int mode)
{
	struct iovec v = {own, 1};
	int refused = modes[mode].refused;
	pid_t me = getpid();

	if (modes[mode].no_file)
		ck_assert_int_eq(answer_call(SYS_memfd_create, SECCOMP_RET_ERRNO | EMFILE), 0);
	if (!refused)
		return;
	answer(SECCOMP_RET_ERRNO | (uint32_t)refused);
	ck_assert_int_eq(os_syscall(SYS_process_vm_readv, me, (long)&v, 1, (long)&v, 1, 0), -refused);
	ck_assert_int_eq(os_syscall(SYS_process_vm_writev, me, (long)&v, 1, (long)&v, 1, 0), -refused);
}

static unsigned char *map(size_t len, int prot)
{
	unsigned char *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

static void fill(unsigned char *p, size_t len, unsigned seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (unsigned char)(i * 131 + (i >> 8) * 7 + seed);
}

static int put(const void *at, size_t len)
{
	return rds_ucopy_to(NULL, (uintptr_t)at, own, len);
}

static int fetch(const void *at, size_t len)
{
	return rds_ucopy_from(NULL, own, (uintptr_t)at, len);
}

/* Neither may be touched. */
static void bad(const void *at, size_t len)
{
	ck_assert_int_eq(put(at, len), -EFAULT);
	ck_assert_int_eq(fetch(at, len), -EFAULT);
}

/* Exactly the bytes that were asked for, into memory that was never touched before as well. */
START_TEST(good_memory)
{
	static const size_t lens[] = {1, 7, 100, PAGE - 1, PAGE, PAGE + 1, 65536, BIG - PAGE};
	static const size_t ats[] = {0, 1, 4090, 4095};
	static unsigned char want[BIG];
	unsigned char *m;
	unsigned i, k;

	begin(_i);
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (k = 0; k < sizeof(ats) / sizeof(ats[0]); k++) {
			m = map(BIG, PROT_READ | PROT_WRITE);
			memset(want, 0, sizeof(want));
			fill(own, lens[i], i * 4 + k);
			memcpy(want + ats[k], own, lens[i]);
			errno = 4711;
			ck_assert_int_eq(put(m + ats[k], lens[i]), 0);
			ck_assert_int_eq(errno, 4711);
			ck_assert_mem_eq(m, want, BIG);
			memset(own, 0, sizeof(own));
			ck_assert_int_eq(fetch(m + ats[k], lens[i]), 0);
			ck_assert_int_eq(errno, 4711);
			ck_assert_mem_eq(own, want + ats[k], lens[i]);
			ck_assert(!own[lens[i]]);
			munmap(m, BIG);
		}
}
END_TEST

START_TEST(own_stack)
{
	unsigned char there[3 * PAGE] = {0};

	begin(_i);
	fill(own, sizeof(there), 1);
	ck_assert_int_eq(put(there, sizeof(there)), 0);
	ck_assert_mem_eq(there, own, sizeof(there));
	memset(own, 0, sizeof(there));
	ck_assert_int_eq(fetch(there, sizeof(there)), 0);
	ck_assert_mem_eq(there, own, sizeof(there));
}
END_TEST

START_TEST(not_mapped)
{
	static const uintptr_t wild[] = {
		0, 8, 4095, 0x7ffffffffff8, 0x800000000000, 0xdeadbeefdeadbeef, UINTPTR_MAX - PAGE};
	unsigned char *m = map(3 * PAGE, PROT_READ | PROT_WRITE);
	unsigned i;

	begin(_i);
	ck_assert_int_eq(munmap(m + PAGE, PAGE), 0);
	bad(m + PAGE, 1);
	bad(m + PAGE + 100, 100);
	bad(m + PAGE, PAGE);
	for (i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		bad((void *)wild[i], 1);
		bad((void *)wild[i], 3 * PAGE);
		ck_assert_int_eq(put((void *)wild[i], 0), 0); /* nothing can always be copied */
		ck_assert_int_eq(fetch((void *)wild[i], 0), 0);
	}
	bad((void *)(UINTPTR_MAX - 3), 10); /* it wraps */
	bad(m, SIZE_MAX);
	ck_assert_int_eq(mprotect(m, PAGE, PROT_NONE), 0);
	bad(m, 1);
	bad(m + PAGE - 1, 1);
}
END_TEST

START_TEST(read_only)
{
	unsigned char *one = map(PAGE, PROT_READ | PROT_WRITE), *many = map(BIG, PROT_READ | PROT_WRITE),
		      *copy = malloc(BIG);

	begin(_i);
	ck_assert_ptr_nonnull(copy);
	fill(one, PAGE, 1);
	fill(many, BIG, 2);
	memcpy(copy, many, BIG);
	ck_assert(!mprotect(one, PAGE, PROT_READ) && !mprotect(many, BIG, PROT_READ));
	memset(own, 0xee, sizeof(own));
	ck_assert_int_eq(put(one, 1), -EFAULT);
	ck_assert_int_eq(put(one + 8, PAGE - 8), -EFAULT);
	ck_assert_int_eq(put(many + 5, BIG - 5), -EFAULT);
	ck_assert_int_eq(fetch(one, PAGE), 0);
	ck_assert_mem_eq(own, one, PAGE);
	ck_assert_int_eq(fetch(many, BIG), 0);
	ck_assert_mem_eq(own, copy, BIG);
	ck_assert_mem_eq(many, copy, BIG);
	free(copy);
}
END_TEST

/*
 * The second page, or one in the middle: missing, or not for writing. What lies beside the range
 * stays as it is.
 */
START_TEST(ends_in_a_hole)
{
	unsigned char *m = map(BIG, PROT_READ | PROT_WRITE), *rest = m + 2 * PAGE;

	begin(_i);
	fill(m, BIG, 3);
	memset(own, 0xee, sizeof(own));
	ck_assert_int_eq(mprotect(m + PAGE, PAGE, PROT_READ), 0);
	ck_assert_int_eq(put(m + PAGE - 1, 2), -EFAULT);
	ck_assert_int_eq(put(m + 100, 2 * PAGE), -EFAULT);
	ck_assert_int_eq(fetch(m + PAGE - 1, 2), 0);
	ck_assert_mem_eq(own + 1, m + PAGE, 1);
	ck_assert_int_eq(munmap(m + PAGE, PAGE), 0);
	bad(m + PAGE - 1, 2);
	bad(m + 100, PAGE);
	bad(m + 100, BIG - 200);
	bad(m + PAGE, 2 * PAGE);
	fill(own, BIG, 3);
	ck_assert_mem_eq(m, own, 100);
	ck_assert_mem_eq(rest, own + 2 * PAGE, BIG - 2 * PAGE);
	ck_assert_int_eq(put(m, PAGE), 0);
	ck_assert_int_eq(put(rest, BIG - 2 * PAGE), 0);
	ck_assert_int_eq(fetch(m + PAGE - 1, 1), 0);
}
END_TEST

START_TEST(behind_the_end_of_a_file)
{
	int fd = memfd_create("user_copy", 0), how;
	unsigned char *m;

	begin(_i);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, PAGE + 10), 0);
	for (how = MAP_SHARED; how <= MAP_PRIVATE; how++) {
		m = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, how, fd, 0);
		ck_assert_ptr_ne(m, MAP_FAILED);
		ck_assert_int_eq(put(m, 2 * PAGE), 0);
		ck_assert_int_eq(fetch(m, 2 * PAGE), 0);
		bad(m + 2 * PAGE, 1);
		bad(m + 2 * PAGE - 1, 2);
		bad(m, 8 * PAGE);
		munmap(m, 8 * PAGE);
	}
	close(fd);
}
END_TEST

/*
 * A thread that copies a lot, and finds out nevertheless that memory which it has just used is
 * gone, or not for writing.
 */
START_TEST(gone_a_moment_later)
{
	unsigned round;

	begin(_i);
	for (round = 0; round < 50; round++) {
		unsigned char *m = map(BIG, PROT_READ | PROT_WRITE);

		ck_assert_int_eq(put(m, BIG), 0);
		ck_assert_int_eq(put(m, 100), 0);
		ck_assert_int_eq(fetch(m, 100), 0);
		ck_assert_int_eq(mprotect(m, PAGE, PROT_READ), 0);
		ck_assert_int_eq(put(m, 100), -EFAULT);
		ck_assert_int_eq(fetch(m, 100), 0);
		ck_assert_int_eq(munmap(m, BIG), 0);
		bad(m, 100);
		bad(m, BIG);
	}
}
END_TEST

/* Copies of all lengths to good memory, without the calls that are slow. */
static void put_by_file(unsigned char *m, unsigned seed)
{
	static const size_t lens[] = {1, 8, 100, PAGE, PAGE + 1, 65536};
	static unsigned char want[BIG];
	unsigned i;

	memcpy(want, m, BIG);
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		fill(own, lens[i], seed + i);
		memcpy(want + 4090, own, lens[i]);
		ck_assert_int_eq(put(m + 4090, lens[i]), 0);
		ck_assert_mem_eq(m, want, BIG);
	}
}

START_TEST(by_file)
{
	unsigned char *m = map(BIG, PROT_READ | PROT_WRITE);

	answer(SECCOMP_RET_KILL_PROCESS);
	put_by_file(m, 1);
}
END_TEST

static int file_number;

static void note_number(int fd, void *count)
{
	file_number = fd;
	++*(unsigned *)count;
}

static unsigned find_number(void)
{
	unsigned n = 0;

	os_fd_each_internal(0, ~0u, note_number, &n);
	return n;
}

/* The program wants the number.  Then its own file has it, and is not taken for ours. */
START_TEST(number_moves)
{
	unsigned char *m = map(BIG, PROT_READ | PROT_WRITE);

	answer(SECCOMP_RET_KILL_PROCESS);
	ck_assert_uint_eq(find_number(), 0);
	put_by_file(m, 1);
	ck_assert_uint_eq(find_number(), 1);
	ck_assert(fcntl(file_number, F_GETFD) & FD_CLOEXEC);
	ck_assert_int_eq(os_fd_move_internal(file_number), 0);
	put_by_file(m, 2);
}
END_TEST

/*
 * System calls of the program's own have closed the number (0), or given it to a file (1), a pipe
 * (2), a file that is as long as files can be on most file systems (3), a device with bytes everywhere (4).
 */
START_TEST(number_stolen)
{
	unsigned char *m = map(BIG, PROT_READ | PROT_WRITE);
	int fds[2], file = _i == 4 ? open("/dev/zero", O_RDWR) : memfd_create("stolen", 0);

	ck_assert(file >= 0 && !pipe(fds) && (_i == 4 || !ftruncate(file, _i == 3 ? (off_t)1 << 44 : 1 << 20)));
	put_by_file(m, 1);
	ck_assert_uint_eq(find_number(), 1);
	if (_i)
		ck_assert_int_ge(syscall(SYS_dup3, _i == 2 ? fds[0] : file, file_number, 0), 0);
	else
		ck_assert_int_eq(syscall(SYS_close, file_number), 0);
	put_by_file(m, 2);
	ck_assert_int_eq(munmap(m + BIG - PAGE, PAGE), 0);
	bad(m + BIG - PAGE - 10, 20);
	ck_assert(_i == 0 || fcntl(file_number, F_GETFD) >= 0);
}
END_TEST

/* A child neither writes where its parent does nor has its number. */
START_TEST(forked)
{
	unsigned char *m = map(BIG, PROT_READ | PROT_WRITE);
	int status;
	pid_t pid;

	answer(SECCOMP_RET_KILL_PROCESS);
	put_by_file(m, 1);
	pid = fork();
	if (!pid) {
		unsigned n;

		os_fds_forked();
		rds_ucopy_fork_child();
		n = find_number();
		put_by_file(m, 2);
		_exit(find_number() == n + 1 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	put_by_file(m, 3);
}
END_TEST

#define THREADS 4

static void *put_often(void *seed)
{
	unsigned char bytes[2 * PAGE], *m = map(3 * PAGE, PROT_READ | PROT_WRITE);
	unsigned i;

	for (i = 0; i < 20000; i++) {
		fill(bytes, sizeof(bytes), (unsigned)(uintptr_t)seed + i);
		if (rds_ucopy_to(NULL, (uintptr_t)m + i % PAGE, bytes, sizeof(bytes)) ||
		    memcmp(m + i % PAGE, bytes, sizeof(bytes)))
			return m;
	}
	return NULL;
}

START_TEST(many_threads)
{
	pthread_t t[THREADS];
	unsigned i;
	void *bad;

	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, put_often, (void *)(uintptr_t)(i * 51)), 0);
	for (i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(t[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
}
END_TEST

START_TEST(vectors)
{
	unsigned char *m = map(3 * PAGE, PROT_READ | PROT_WRITE), got[100];
	struct iovec vec[3] = {{m + 10, 5}, {m + PAGE - 3, 3}, {m + 2 * PAGE, 50}};

	begin(_i);
	ck_assert_int_eq(munmap(m + PAGE, PAGE), 0);
	ck_assert_int_eq(rds_ucopy_to_vec(NULL, vec, 3, 3, "abcdefghi", 9), 0);
	ck_assert(!memcmp(m + 13, "ab", 2) && !memcmp(m + PAGE - 3, "cde", 3) && !memcmp(m + 2 * PAGE, "fghi", 4));
	ck_assert_int_eq(rds_ucopy_from_vec(NULL, got, vec, 3, 3, 9), 0);
	ck_assert(!memcmp(got, "abcdefghi", 9));
	ck_assert_int_eq(rds_ucopy_to_vec(NULL, vec, 3, 55, got, 10), -EFAULT); /* beyond its end */
	ck_assert_int_eq(rds_ucopy_from_vec(NULL, got, vec, 3, 55, 10), -EFAULT);
	vec[1].iov_len = 4; /* into the hole */
	ck_assert_int_eq(rds_ucopy_to_vec(NULL, vec, 3, 0, got, 9), -EFAULT);
	ck_assert_int_eq(rds_ucopy_from_vec(NULL, got, vec, 3, 0, 9), -EFAULT);
	/* as far as there is something */
	ck_assert_int_eq(rds_ucopy_to_vec(NULL, vec, 3, 0, "12345678", 8), 0);
	ck_assert(!memcmp(m + 10, "12345", 5) && !memcmp(m + PAGE - 3, "678", 3));
	ck_assert(!memcmp(m + 2 * PAGE, "fghi", 4));
}
END_TEST

/*
 * The program puts up its filter when copies have been made already. Refused once, the calls are
 * not tried again.
 */
START_TEST(refused_later)
{
	unsigned char *m = map(2 * PAGE, PROT_READ | PROT_WRITE);

	ck_assert_int_eq(munmap(m + PAGE, PAGE), 0);
	ck_assert_int_eq(put(m, PAGE), 0);
	bad(m + PAGE - 1, 2);
	begin(_i);
	ck_assert_int_eq(put(m, PAGE), 0);
	bad(m + PAGE - 1, 2);
	if (modes[_i].refused)
		answer(SECCOMP_RET_KILL_PROCESS);
	fill(own, PAGE, 9);
	ck_assert_int_eq(put(m, PAGE), 0);
	ck_assert_mem_eq(m, own, PAGE);
	memset(own, 0, PAGE);
	ck_assert_int_eq(fetch(m, PAGE), 0);
	ck_assert_mem_eq(m, own, PAGE);
	bad(m + PAGE - 1, 2);
}
END_TEST

/* A program without instructions is refused because of that, if filters are known at all. */
static bool filters_known(void)
{
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) < 0 && errno == EFAULT;
}

int main(void)
{
	Suite *s = suite_create("user_copy");
	TCase *t = suite_case(s, "copies", NULL, NULL);
	bool filters = filters_known();
	int n = filters ? (int)MODES : 1;

	if (!filters)
		printf("no filters of system calls here (seccomp): only what the kernel copies is tested\n");
	tcase_add_loop_test(t, good_memory, 0, n);
	tcase_add_loop_test(t, own_stack, 0, n);
	tcase_add_loop_test(t, not_mapped, 0, n);
	tcase_add_loop_test(t, read_only, 0, n);
	tcase_add_loop_test(t, ends_in_a_hole, 0, n);
	tcase_add_loop_test(t, behind_the_end_of_a_file, 0, n);
	tcase_add_loop_test(t, gone_a_moment_later, 0, n);
	if (filters) {
		tcase_add_test(t, by_file);
		tcase_add_test(t, number_moves);
		tcase_add_test(t, forked);
	}
	tcase_add_loop_test(t, number_stolen, 0, 5);
	tcase_add_test(t, many_threads);
	tcase_add_loop_test(t, vectors, 0, n);
	tcase_add_loop_test(t, refused_later, 0, n);
	return suite_run(s);
}
