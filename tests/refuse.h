/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * refuse.h - makes a system call fail as in a kernel, a container or a sandbox that does not permit
 * it.
 *
 * For the processes of tests only: it cannot be undone.
 */
#ifndef TESTS_REFUSE_H
#define TESTS_REFUSE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * From here on that call has this result (SECCOMP_RET_*) in all threads of the process.  0, or -1:
 * no filters here (errno).
 */
static inline int answer_call(long nr, uint32_t result)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, result),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
}

/* ... fails with that error. */
static inline int refuse_call(long nr, unsigned error)
{
	return answer_call(nr, SECCOMP_RET_ERRNO | error);
}

#endif
