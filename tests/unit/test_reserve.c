/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_reserve.c - pages that processes share are asked for before they are touched: where the
 * kernel has none that is an error, not a SIGBUS later.
 *
 * A filter says it in the kernel's place; tests/faults/strict.c has a system that really has none.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/transport/shm/shm.h"
#include "engine/share/lease.h"
#include "engine/calls/start.h"
#include "tests/refuse.h"
#include "tests/unit/suite.h"

static struct rds_sock *sock;

static void setup(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(rds_call_start_engine(), 0);
	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &sock), 0);
	ck_assert_int_eq(rds_call_bind(sock, (struct sockaddr *)&sin, sizeof(sin)), 0);
}

static void no_memory(void)
{
	ck_assert_int_eq(refuse_call(SYS_fallocate, ENOSPC), 0);
}

START_TEST(a_will)
{
	no_memory();
	ck_assert_int_eq(rds_lease_make(sock), -ENOMEM);
	ck_assert_ptr_null(atomic_load(&sock->lease));
}
END_TEST

/* Making rings fails, and so does attaching to those of a peer. */
START_TEST(rings)
{
	struct shm_ep ours = {.initiator = true}, theirs = {0};
	int fd = -1;

	ck_assert_int_eq(shm_rings_create(&ours, SHM_RING_MIN, &fd), 0);
	no_memory();
	ck_assert_int_eq(shm_rings_attach(&theirs, SHM_RING_MIN, fd), -ENOMEM);
	ck_assert_int_eq(shm_rings_create(&theirs, SHM_RING_MIN, &fd), -ENOMEM);
}
END_TEST

START_TEST(an_inbox)
{
	int fd = memfd_create("inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct shm_inbox *inbox;

	ck_assert_int_eq(ftruncate(fd, SHM_CTL_BYTES), 0);
	ck_assert_int_eq(shm_inbox_attach(fd, &inbox), -EPROTO);
	ck_assert_int_ge(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW), 0);
	no_memory();
	ck_assert_int_eq(shm_inbox_attach(fd, &inbox), -ENOMEM);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reserve");
	TCase *t = suite_case(s, "reserve", setup, NULL);

	tcase_add_test(t, a_will);
	tcase_add_test(t, rings);
	tcase_add_test(t, an_inbox);
	return suite_run(s);
}
