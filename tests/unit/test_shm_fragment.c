/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_fragment.c - messages that are too long for their ring (transport/shm/fragment.c), and
 * rings of several sizes (memory.c).
 *
 * Both ends are in this process, but for what a peer should never write: the test writes that.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "tests/unit/shm_wake_helper.h"

#define LONG RDS_MAX_MSG
#define SHORT 100u
#define FLOOR (SHM_CTL_BYTES + 2 * SHM_RING_MIN)

static unsigned char bytes[LONG];
static unsigned came, whole; /* messages; those of them that have their bytes */
static uint64_t last_seq, sent_seq;
static enum rds_rx_verdict verdict;
static struct rds_ep *uep, *tep;
static size_t mapped_most = SIZE_MAX; /* at a time: as if there were no more address space */
static size_t page_large;	      /* bytes of a page, if it is larger than usual */

int __real_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);
int __wrap_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);

int __wrap_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out)
{
	void *room;

	if (len > mapped_most)
		return -ENOMEM;
	if (!page_large)
		return __real_os_mmap(len, prot, flags, fd, off, out);
	ck_assert_int_eq(__real_os_mmap(len + page_large, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &room), 0);
	*out = (void *)(((uintptr_t)room + page_large - 1) / page_large * page_large);
	return os_mmap_over(*out, len, prot, flags, fd, off) ? 0 : -ENOMEM;
}

/* As on a machine with such pages. */
long __real_sysconf(int name);
long __wrap_sysconf(int name);
int __real_munmap(void *at, size_t len);
int __wrap_munmap(void *at, size_t len);

long __wrap_sysconf(int name)
{
	return name == _SC_PAGESIZE && page_large ? (long)page_large : __real_sysconf(name);
}

int __wrap_munmap(void *at, size_t len)
{
	if (!page_large || (uintptr_t)at % page_large == 0)
		return __real_munmap(at, len);
	errno = EINVAL;
	return -1;
}

static enum rds_rx_verdict frag_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)conn, (void)ep;
	came++;
	whole += !memcmp(rx->data, bytes, rx->hdr.len);
	last_seq = rx->hdr.seq;
	if (verdict == RDS_RX_TAKEN)
		free(rx->owned);
	return verdict;
}

static uint64_t frag_sent(struct rds_conn *conn)
{
	(void)conn;
	return sent_seq;
}

static struct rds_transport_up frag_up;

static void begin(void)
{
	unsigned i;

	setup();
	frag_up = up;
	frag_up.message = frag_message;
	frag_up.sent = frag_sent;
	us.shm.t.up = they.shm.t.up = rds_shm.t.up = &frag_up;
	for (i = 0; i < LONG; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	came = whole = 0;
	last_seq = sent_seq = 0;
	verdict = RDS_RX_DONE;
	us.ep.initiator = true;
	uep = (struct rds_ep *)&us.ep;
	tep = (struct rds_ep *)&they.ep;
}

static void end(void)
{
	shm_longs_free(&us.ep);
	shm_longs_free(&they.ep);
	teardown();
}

static int put(uint64_t seq, size_t len, uint64_t *pos)
{
	struct rds_hdr hdr = {.seq = seq, .len = (uint32_t)len, .sport = 1, .dport = 2};
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	struct rds_wire_hdr wire;

	rds_wire_hdr_encode(&hdr, &wire, false);
	if (seq > sent_seq)
		sent_seq = seq;
	return shm_ring_send(uep, &wire, &iov, len, pos);
}

static void they_look(void)
{
	become(&they, &us);
	shm_progress(&rds_shm.t);
	become(&us, &they);
}

/* Each time that they have made room, as the engine would. */
static void all_of_it(void)
{
	unsigned i;

	for (i = 0; i < 1000 && us.ep.unplaced; i++) {
		they_look();
		shm_long_push(uep);
	}
	ck_assert_ptr_null(us.ep.unplaced);
	flush(&us);
	they_look();
}

START_TEST(arrives_whole)
{
	uint64_t pos, later;

	ck_assert_int_eq(put(1, LONG, &pos), 0);
	ck_assert(!shm_ring_settled(uep)); /* it would not outlive this process */
	ck_assert_int_eq(put(2, SHORT, &later), -EAGAIN);
	they_look();
	ck_assert_uint_eq(came, 0);
	ck_assert_int_eq(put(2, SHORT, &later), -EAGAIN); /* there is room, but not its turn */
	all_of_it();
	ck_assert_uint_eq(whole, 1);
	ck_assert_uint_eq(last_seq, 1);
	ck_assert(shm_ring_settled(uep));
	ck_assert_int_eq(put(2, SHORT, &later), 0);
	flush(&us);
	they_look();
	ck_assert_uint_eq(whole, 2);
	ck_assert_uint_eq(last_seq, 2);
}
END_TEST

/* Each length around what is sent as one record, in rings that are as full as can be. */
START_TEST(of_each_length)
{
	const size_t edge = SHM_RING_MIN / 4;
	uint64_t pos, seq = 0;
	size_t len;

	for (len = edge - 2 * SHM_LINE; len <= edge + 2 * SHM_LINE; len++) {
		while (put(seq + 1, len, &pos) == 0)
			seq++;
		flush(&us);
		all_of_it();
		ck_assert_uint_eq(last_seq, seq);
		ck_assert_uint_eq(whole, seq);
	}
	for (len = edge; len <= LONG; len += 12345) {
		ck_assert_int_eq(put(++seq, len, &pos), 0);
		flush(&us);
		all_of_it();
		ck_assert_uint_eq(whole, seq);
	}
	ck_assert_uint_eq(came, seq);
}
END_TEST

START_TEST(is_kept_until_acknowledged)
{
	uint64_t pos[2];

	ck_assert_int_eq(put(1, LONG, &pos[0]), 0);
	all_of_it();
	ck_assert_int_eq(put(2, LONG, &pos[1]), 0);
	all_of_it();
	ck_assert_uint_eq(whole, 2);
	ck_assert_mem_eq(shm_ring_retained(uep, pos[0]), bytes, LONG);
	shm_ring_ack(tep, UINT64_MAX); /* a lie */
	ck_assert_uint_eq(shm_ring_reap(uep), UINT64_MAX);
	ck_assert_mem_eq(shm_ring_retained(uep, pos[0]), bytes, LONG);
	us.ep.seen_acked = 0;
	shm_ring_ack(tep, 1);
	ck_assert_uint_eq(shm_ring_reap(uep), 1);
	ck_assert_ptr_null(shm_ring_retained(uep, pos[0]));
	ck_assert_mem_eq(shm_ring_retained(uep, pos[1]), bytes, LONG);
	shm_ring_ack(tep, 2);
	shm_ring_reap(uep);
	ck_assert_ptr_null(us.ep.longs);
}
END_TEST

/* Not even of one that is under way. */
START_TEST(is_acknowledged_too_early)
{
	uint64_t pos;

	ck_assert_int_eq(put(1, LONG, &pos), 0);
	shm_ring_ack(tep, 1);
	shm_ring_reap(uep);
	all_of_it();
	ck_assert_uint_eq(whole, 1);
	shm_ring_reap(uep);
	ck_assert_ptr_null(us.ep.longs);
}
END_TEST

START_TEST(is_offered_again)
{
	uint64_t pos;

	verdict = _i ? RDS_RX_PAUSE : RDS_RX_LATER;
	ck_assert_int_eq(put(1, SHM_RING_MIN, &pos), 0);
	all_of_it();
	they_look();
	ck_assert_uint_ge(came, 2);
	ck_assert_uint_eq(whole, came);
	ck_assert(they.ep.paused == !!_i);
	ck_assert_ptr_nonnull(they.ep.assembly);
	verdict = RDS_RX_TAKEN;
	they_look();
	ck_assert_ptr_null(they.ep.assembly);
	verdict = RDS_RX_DONE;
	came = 0;
	they_look();
	ck_assert_uint_eq(came, 0);
}
END_TEST

/* What is not read may hold half of the ring: the rest is enough. */
START_TEST(goes_past_what_is_not_read)
{
	uint64_t pos;

	verdict = RDS_RX_TAKEN;
	ck_assert_int_eq(put(1, SHM_RING_MIN / 4, &pos), 0);
	ck_assert_int_eq(put(2, SHM_RING_MIN / 4 - SHM_LINE, &pos), 0);
	flush(&us);
	they_look();
	ck_assert_uint_eq(came, 2);
	verdict = RDS_RX_DONE;
	ck_assert_int_eq(put(3, SHM_RING_MIN, &pos), 0);
	they_look();
	shm_long_push(uep);
	ck_assert_ptr_nonnull(they.ep.assembly);
	ck_assert(they.ep.read - they.ep.freed > SHM_RING_MIN / 2 || us.ep.unplaced == NULL);
	while (they.ep.slot_first != they.ep.slot_next) /* under pressure they are moved */
		shm_ring_release(tep, (void *)(uintptr_t)(they.ep.slot_first + 1));
	all_of_it();
	ck_assert_uint_eq(last_seq, 3);
	ck_assert_uint_eq(whole, 3);
}
END_TEST

/* ---- what a peer should never write ---- */

static void frag(unsigned at, uint64_t seq, uint32_t len, uint32_t rec)
{
	struct shm_rec *r = (struct shm_rec *)(us.ep.tx_data + at);
	const uint64_t lap = SHM_RING_MIN; /* the first positions are elsewhere */
	struct rds_hdr hdr = {.seq = seq, .len = len, .sport = 1, .dport = 2};

	*r = (struct shm_rec){.len = rec, .kind = SHM_REC_FRAGMENT};
	rds_wire_hdr_encode(&hdr, &r->hdr, false);
	memcpy(r + 1, bytes + at, rec - SHM_LINE);
	if (!at)
		they.ep.read = they.ep.freed = lap;
	atomic_store(&us.ep.tx->tail, lap + at + rec);
	shm_ring_drain(&they.ep);
}

static void frag_first(void)
{
	become(&they, &us);
	frag(0, 1, 4096, 1024 + SHM_LINE);
	ck_assert(!they.ep.broken);
	ck_assert_ptr_nonnull(they.ep.assembly);
}

static const struct {
	uint64_t seq;
	uint32_t len;
} others[] = {{2, 4096}, {1, 4095}, {1, 4097}, {1, 512}, {1, 0}, {1, LONG + 1}, {1, UINT32_MAX}};

START_TEST(of_another_message)
{
	frag_first();
	frag(1024 + SHM_LINE, others[_i].seq, others[_i].len, 1024 + SHM_LINE);
	ck_assert(they.ep.broken);
	ck_assert_uint_eq(came, 0);
}
END_TEST

START_TEST(of_no_length)
{
	become(&they, &us);
	frag(0, 1, others[4 + _i].len, 1024 + SHM_LINE);
	ck_assert(they.ep.broken);
	ck_assert_uint_eq(came, 0);
	ck_assert_ptr_null(they.ep.assembly);
}
END_TEST

/* Bytes behind its end are not the message's. */
START_TEST(of_more_than_is_left)
{
	frag_first();
	frag(1024 + SHM_LINE, 1, 4096, 8192 + SHM_LINE);
	ck_assert(!they.ep.broken);
	ck_assert_uint_eq(came, 1);
	ck_assert_ptr_null(they.ep.assembly);
}
END_TEST

/* ---- rings of several sizes ---- */

static void files_of(rlim_t most)
{
	struct rlimit l;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &l), 0);
	l.rlim_cur = most;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &l), 0);
}

static const struct {
	rlim_t file;
	int err;
	uint32_t size; /* asked for: 4 MiB */
} files[] = {
	{FLOOR - 1, -EFBIG, 0},
	{FLOOR, 0, SHM_RING_MIN},
	{SHM_CTL_BYTES + 4 * SHM_RING_MIN - 1, 0, SHM_RING_MIN},
	{SHM_CTL_BYTES + 4 * SHM_RING_MIN, 0, 2 * SHM_RING_MIN},
	{RLIM_INFINITY, 0, 4u << 20},
};

START_TEST(limit_of_files)
{
	struct shm_ep ep = {.initiator = true};
	int fd = -1;

	files_of(files[_i].file);
	ck_assert_int_eq(shm_rings_check_limit(), files[_i].err);
	ck_assert_int_eq(shm_rings_create(&ep, 4u << 20, &fd), files[_i].err);
	ck_assert_uint_eq(ep.size, files[_i].size);
}
END_TEST

/* The acceptor uses less than the initiator has made, both lay it out alike, and it works. */
START_TEST(little_space)
{
	struct shm_ep ours = {.initiator = true}, theirs = {0};
	int fd = -1;

	ck_assert_int_eq(shm_rings_create(&ours, 4u << 20, &fd), 0);
	mapped_most = SHM_SPACE_LEFT + FLOOR;
	ck_assert_int_eq(shm_rings_attach(&theirs, ours.size, fd), 0);
	ck_assert_uint_eq(theirs.size, SHM_RING_MIN);
	ck_assert_int_eq(shm_rings_reduce(&ours, theirs.size), 0);
	ck_assert_int_eq(shm_rings_create(&(struct shm_ep){0}, 4u << 20, &fd), 0);
	mapped_most--; /* the program and its messages need it */
	ck_assert_int_eq(shm_rings_create(&(struct shm_ep){0}, 4u << 20, &fd), -ENOMEM);
	ck_assert_uint_eq(ours.size, SHM_RING_MIN);
	ours.tx_data[SHM_RING_MIN - 1] = 5;
	theirs.tx_data[SHM_RING_MIN - 1] = 6;
	ck_assert_uint_eq(theirs.rx_data[SHM_RING_MIN - 1], 5);
	ck_assert_uint_eq(ours.rx_data[SHM_RING_MIN - 1], 6);
}
END_TEST

static bool rings_are_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	bool found = false;
	char line[512];

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "rdspreload-rings") != NULL;
	fclose(maps);
	return found;
}

/* Nothing stays behind of rings that were made smaller. */
START_TEST(all_is_unmapped)
{
	struct shm_ep ours = {.initiator = true}, theirs = {0};
	int fd = -1;

	page_large = _i ? 65536 : 0;
	ck_assert_int_eq(shm_rings_create(&ours, 4u << 20, &fd), 0);
	ck_assert_int_eq(shm_rings_attach(&theirs, ours.size, fd), 0);
	ck_assert_int_eq(shm_rings_reduce(&ours, SHM_RING_MIN), 0);
	ours.tx_data[SHM_RING_MIN - 1] = 5;
	ours.rings->ctl[1].near[0] = 1;
	ck_assert(rings_are_mapped());
	shm_rings_unmap(&ours);
	shm_rings_unmap(&theirs);
	ck_assert(!rings_are_mapped());
	page_large = 0;
}
END_TEST

static const uint64_t sizes[] = {0,
				 1,
				 SHM_RING_MIN / 2,
				 SHM_RING_MIN + 1,
				 3 * SHM_RING_MIN,
				 8u << 20,
				 UINT64_MAX,
				 ((uint64_t)1 << 32) + SHM_RING_MIN};

START_TEST(sizes_that_are_none)
{
	struct shm_ep ours = {.initiator = true}, theirs = {0};
	int fd = -1;

	ck_assert_int_eq(shm_rings_create(&ours, 4u << 20, &fd), 0);
	ck_assert_int_eq(shm_rings_reduce(&ours, sizes[_i]), -EPROTO);
	ck_assert_uint_eq(ours.size, 4u << 20);
	ck_assert_int_eq(shm_rings_attach(&theirs, sizes[_i], fd), -EPROTO);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_fragment");
	TCase *t = suite_case(s, "long", begin, end);

	tcase_add_test(t, arrives_whole);
	tcase_add_test(t, of_each_length);
	tcase_add_test(t, is_kept_until_acknowledged);
	tcase_add_test(t, is_acknowledged_too_early);
	tcase_add_loop_test(t, is_offered_again, 0, 2);
	tcase_add_test(t, goes_past_what_is_not_read);
	tcase_add_loop_test(t, of_another_message, 0, sizeof(others) / sizeof(others[0]));
	tcase_add_loop_test(t, of_no_length, 0, 3);
	tcase_add_test(t, of_more_than_is_left);
	t = suite_case(s, "sizes", NULL, NULL);
	tcase_add_loop_test(t, limit_of_files, 0, sizeof(files) / sizeof(files[0]));
	tcase_add_test(t, little_space);
	tcase_add_loop_test(t, all_is_unmapped, 0, 2);
	tcase_add_loop_test(t, sizes_that_are_none, 0, sizeof(sizes) / sizeof(sizes[0]));
	return suite_run(s);
}
