/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cpu.h - copies payload. Blocks of RDS_COPY_ERMS_MIN bytes or more use the string instruction, if
 * the processor has a fast one. Measured between the cores of two processes, the string instruction
 * copies 1 MiB blocks up to four times as fast as libc's vector loops, because these loops fetch
 * every cache line that they are going to overwrite. It copies 8 KiB blocks a little faster. For
 * smaller blocks libc is as good or better.
 */
#ifndef ENGINE_SYS_CPU_H
#define ENGINE_SYS_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#define RDS_COPY_ERMS_MIN 4096

extern bool rds_copy_has_erms; /* the processor has a fast string instruction (ERMS) */
void rds_copy_start(void);

static inline void rds_copy(void *to, const void *from, size_t n)
{
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (n >= RDS_COPY_ERMS_MIN && rds_copy_has_erms) {
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
		return;
	}
#endif
	memcpy(to, from, n);
}

/* Copies the first len bytes of a vector that has at least that many. */
static inline void rds_copy_gather(void *to, const struct iovec *iov, size_t len)
{
	char *at = to;
	size_t n;

	for (; len; iov++) {
		n = iov->iov_len < len ? iov->iov_len : len;
		if (!n) /* the base of an empty element may be any value */
			continue;
		rds_copy(at, iov->iov_base, n);
		at += n;
		len -= n;
	}
}

#endif
