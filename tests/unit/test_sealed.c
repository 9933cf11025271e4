/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_sealed.c - memory of another process is mapped only if no process can make it shorter, then
 * or later.  A file whose seals cannot be read counts as not sealed.  The size is that of the
 * sealed file.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/share/lease.h"
#include "engine/transport/shm/shm.h"
#include "tests/unit/suite.h"

#define ALL (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define RINGS (SHM_CTL_BYTES + 2 * SHM_RING_MIN)

static int refusal;   /* of F_GET_SEALS; 0: the kernel's own answer */
/* the owner makes the file that short, and seals it, as soon as its size was read; 0: never */
static off_t shorter;

int __real_os_fcntl(int fd, int cmd, long arg);
int __wrap_os_fcntl(int fd, int cmd, long arg);
int __real_os_fstat(int fd, struct stat *st);
int __wrap_os_fstat(int fd, struct stat *st);

int __wrap_os_fcntl(int fd, int cmd, long arg)
{
	return cmd == F_GET_SEALS && refusal ? refusal : __real_os_fcntl(fd, cmd, arg);
}

int __wrap_os_fstat(int fd, struct stat *st)
{
	int err = __real_os_fstat(fd, st);

	if (shorter && ftruncate(fd, shorter) == 0)
		fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
	return err;
}

static int file(off_t len, int seals)
{
	int fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(fd, len), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int attach_inbox(int fd)
{
	struct shm_inbox *inbox;

	return shm_inbox_attach(fd, &inbox);
}

static int attach_rings(int fd)
{
	struct shm_ep ep = {0};

	return shm_rings_attach(&ep, SHM_RING_MIN, fd);
}

START_TEST(sealed)
{
	ck_assert_int_eq(attach_inbox(file(SHM_CTL_BYTES, SHM_SEALS)), 0);
	ck_assert_int_eq(attach_rings(file(RINGS, SHM_SEALS)), 0);
	ck_assert(rds_lease_is_sound(file(sizeof(struct rds_lease_page), F_SEAL_SHRINK)));
	ck_assert(os_memfd_is_sealed(file(100, ALL), 100));
}
END_TEST

START_TEST(not_sealed)
{
	ck_assert_int_eq(attach_inbox(file(SHM_CTL_BYTES, F_SEAL_SHRINK)), -EPROTO);
	ck_assert_int_eq(attach_rings(file(RINGS, F_SEAL_GROW)), -EPROTO);
	ck_assert(!rds_lease_is_sound(file(sizeof(struct rds_lease_page), F_SEAL_GROW)));
	ck_assert(!os_memfd_is_sealed(file(100, F_SEAL_SHRINK), 100));
}
END_TEST

START_TEST(another_size)
{
	ck_assert_int_eq(attach_inbox(file(SHM_CTL_BYTES - 1, SHM_SEALS)), -EPROTO);
	ck_assert_int_eq(attach_rings(file(RINGS + 1, SHM_SEALS)), -EPROTO);
	ck_assert(!rds_lease_is_sound(file(sizeof(struct rds_lease_page) - 1, F_SEAL_SHRINK)));
	ck_assert(!os_memfd_is_sealed(file(99, ALL), 100));
}
END_TEST

/* Each error that has the bits of the seals, as a filter of system calls could give it. */
START_TEST(cannot_be_asked)
{
	refusal = -_i;
	ck_assert_int_eq(attach_inbox(file(SHM_CTL_BYTES, 0)), -EPROTO);
	ck_assert_int_eq(attach_rings(file(RINGS, 0)), -EPROTO);
	ck_assert(!rds_lease_is_sound(file(sizeof(struct rds_lease_page), 0)));
	ck_assert(!os_memfd_is_sealed(file(100, 0), 100));
}
END_TEST

START_TEST(shortened_meanwhile)
{
	shorter = SHM_CTL_BYTES;
	ck_assert_int_eq(attach_rings(file(RINGS, 0)), -EPROTO);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sealed");
	TCase *t = suite_case(s, "sealed", NULL, NULL);

	tcase_add_test(t, sealed);
	tcase_add_test(t, not_sealed);
	tcase_add_test(t, another_size);
	tcase_add_loop_test(t, cannot_be_asked, 1, 256);
	tcase_add_test(t, shortened_meanwhile);
	return suite_run(s);
}
