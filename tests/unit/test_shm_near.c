/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_near.c - the first bytes of a ring, which lie in its control page (transport/shm/layout.h):
 * few messages take no other memory, and none is lost or torn where the data area begins.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/unit/shm_wake_helper.h"

#define LONGEST 300u
#define PAGE 4096u

static unsigned opened;
static bool no_run; /* of addresses: as if there were none so long */

int __real_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);
int __wrap_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);

int __wrap_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out)
{
	ck_assert(off % sysconf(_SC_PAGESIZE) == 0);
	return no_run && fd < 0 ? -ENOMEM : __real_os_mmap(len, prot, flags, fd, off, out);
}

static long page_bytes; /* 0: those of this machine */

long __real_sysconf(int name);
long __wrap_sysconf(int name);

long __wrap_sysconf(int name)
{
	return name == _SC_PAGESIZE && page_bytes ? page_bytes : __real_sysconf(name);
}

int __real_os_open(const char *path, int flags, mode_t mode);
int __wrap_os_open(const char *path, int flags, mode_t mode);

int __wrap_os_open(const char *path, int flags, mode_t mode)
{
	opened += !strcmp(path, "/proc/sys/vm/overcommit_memory");
	return __real_os_open(path, flags, mode);
}

static unsigned char bytes[LONGEST];
static unsigned came;
static size_t sent_len[4096]; /* by number */
static int file;

static enum rds_rx_verdict near_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)conn, (void)ep;
	came++;
	ck_assert_uint_eq(rx->hdr.seq, came);
	ck_assert_uint_eq(rx->hdr.len, sent_len[rx->hdr.seq % 4096]);
	ck_assert_mem_eq(rx->data, bytes, rx->hdr.len);
	return RDS_RX_DONE;
}

static struct rds_transport_up near_up;

static void begin(void)
{
	unsigned i;

	setup();
	near_up = up;
	near_up.message = near_message;
	us.shm.t.up = they.shm.t.up = rds_shm.t.up = &near_up;
	for (i = 0; i < LONGEST; i++)
		bytes[i] = (unsigned char)(i * 7 + 1);
	came = 0;
	us.ep.initiator = true;
	ck_assert_int_eq(shm_rings_create(&us.ep, 4u << 20, &file), 0);
	ck_assert_int_eq(shm_rings_attach(&they.ep, us.ep.size, file), 0);
}

static void end(void)
{
	shm_rings_unmap(&us.ep);
	shm_rings_unmap(&they.ep);
	teardown();
}

static void say(struct side *s, uint64_t seq, size_t len)
{
	struct rds_hdr hdr = {.seq = seq, .len = (uint32_t)len, .sport = 1, .dport = 2};
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	struct rds_wire_hdr wire;
	uint64_t pos;

	sent_len[seq % 4096] = len;
	rds_wire_hdr_encode(&hdr, &wire, false);
	ck_assert_int_eq(shm_ring_send((struct rds_ep *)&s->ep, &wire, &iov, len, &pos), 0);
	ck_assert_mem_eq(shm_ring_retained((struct rds_ep *)&s->ep, pos), bytes, len);
	flush(s);
}

static uint64_t memory(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(file, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* A hello of each, and a dozen messages of 64 bytes both ways. */
START_TEST(few_messages)
{
	unsigned i;

	for (i = 1; i <= 14; i++) {
		say(&us, i, i < 3 ? 0 : 64);
		ck_assert(shm_ring_drain(&they.ep));
	}
	ck_assert_uint_eq(came, 14);
	came = 0;
	for (i = 1; i <= 14; i++) {
		say(&they, i, i < 3 ? 0 : 64);
		ck_assert(shm_ring_drain(&us.ep));
	}
	ck_assert_uint_eq(came, 14);
	ck_assert_uint_eq(memory(), PAGE);
}
END_TEST

/* Of each length, in both directions, one by one or some at a time: across the edge, and a lap. */
START_TEST(of_each_length)
{
	struct side *from = _i % 2 ? &they : &us, *to = _i % 2 ? &us : &they;
	size_t len = (size_t)_i / 4 * 20;
	unsigned seq;

	for (seq = 1; seq <= 1000; seq++) {
		say(from, seq, len);
		if (_i % 4 < 2 || seq % 10 == 0)
			ck_assert(shm_ring_drain(&to->ep));
	}
	ck_assert_uint_eq(came, 1000);
	ck_assert(!to->ep.broken);
	ck_assert_uint_eq(to->ep.read, from->ep.tail);
	ck_assert_uint_gt(memory(), PAGE);
}
END_TEST

/* So they share a page of page tables.  Each is the page of its own file. */
START_TEST(pages_lie_side_by_side)
{
	struct shm_ep other = {.initiator = true};
	struct shm_inbox *inbox;
	int fd;

	no_run = _i;
	if (_i)
		rds_shm.pages = rds_shm.pages_end = NULL;
	ck_assert_int_eq(shm_rings_create(&other, SHM_RING_MIN, &fd), 0);
	ck_assert_int_eq(shm_inbox_attach(memfd_create("none", 0), &inbox), -EPROTO);
	if (!_i) {
		ck_assert_ptr_eq(they.ep.rings, us.ep.rings + 1);
		ck_assert_ptr_eq(other.rings, us.ep.rings + 2);
	}
	other.rings->ctl[0].near[0] = 1;
	us.ep.rings->ctl[0].near[0] = 2;
	ck_assert_uint_eq(other.rings->ctl[0].near[0], 1);
	ck_assert_uint_eq(they.ep.rings->ctl[0].near[0], 2);
	shm_rings_unmap(&other);
}
END_TEST

/* More than one run of addresses has room for: each has its own page. */
START_TEST(many)
{
	static struct shm_ep eps[600];
	unsigned i;
	int fd;

	for (i = 0; i < 600; i++) {
		ck_assert_int_eq(shm_rings_create(&eps[i], SHM_RING_MIN, &fd), 0);
		eps[i].rings->ctl[1].near[SHM_NEAR_BYTES - 1] = (unsigned char)i;
		os_close(fd);
	}
	ck_assert_uint_lt(opened, 100); /* the kernel's rule is read now and then only */
	for (i = 0; i < 600; i++) {
		ck_assert_uint_eq(eps[i].rings->ctl[1].near[SHM_NEAR_BYTES - 1], (unsigned char)i);
		shm_rings_unmap(&eps[i]);
	}
}
END_TEST

/* One by one, and some at a time. */
START_TEST(of_mixed_lengths)
{
	unsigned seq;

	for (seq = 1; seq <= 2000; seq++) {
		say(&us, seq, seq * 37 % LONGEST);
		if (_i || seq % 3 == 0)
			ck_assert(shm_ring_drain(&they.ep));
	}
	shm_ring_drain(&they.ep);
	ck_assert_uint_eq(came, 2000);
	ck_assert(!they.ep.broken);
}
END_TEST

/* What is mapped begins at a page of the file, also where pages are larger than the control data. */
START_TEST(large_pages)
{
	unsigned seq;

	shm_rings_unmap(&us.ep);
	shm_rings_unmap(&they.ep);
	page_bytes = 65536;
	ck_assert_int_eq(shm_rings_create(&us.ep, 4u << 20, &file), 0);
	ck_assert_int_eq(shm_rings_attach(&they.ep, us.ep.size, file), 0);
	for (seq = 1; seq <= 100; seq++) {
		say(&us, seq, 200);
		ck_assert(shm_ring_drain(&they.ep));
	}
	ck_assert_uint_eq(came, 100);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_near");
	TCase *t = suite_case(s, "near", begin, end);

	tcase_add_test(t, few_messages);
	tcase_add_loop_test(t, of_each_length, 0, 4 * (LONGEST / 20 + 1));
	tcase_add_loop_test(t, of_mixed_lengths, 0, 2);
	tcase_add_test(t, large_pages);
	tcase_add_loop_test(t, pages_lie_side_by_side, 0, 2);
	tcase_add_test(t, many);
	return suite_run(s);
}
