/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_trunk.c - what an owner has kept in a trunk is what the next one finds, in whatever moment the
 * first one has ended, and whatever others have written there (engine/trunk).
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/sys/os.h"
#include "engine/trunk/memory.h"
#include "tests/unit/suite.h"

static const struct rds_trunk_name name = {.laddr.s6_addr32[3] = 1, .faddr.s6_addr32[3] = 2, .scope = 3, .gen = 4};
static const struct rds_procid one = {.b = {1}}, two = {.b = {2}};
static struct rds_trunk *t;
static struct rds_trunk_image img;
static struct rds_trunk_refs there; /* until the end of the test */

static void setup(void)
{
	int err;

	t = rds_trunk_new(&name, &err);
	ck_assert_ptr_nonnull(t);
	rds_trunk_sending(t, 9);
	rds_trunk_acked(t, 8);
	rds_trunk_received(t, 5, 6);
}

static void teardown(void)
{
	rds_trunk_image_close(&img);
	rds_trunk_refs_drop(&there, UINT64_MAX);
	rds_trunk_put(t);
}

static void stays(struct rds_trunk_ref *ref)
{
	ck_assert_ptr_nonnull(ref);
	rds_trunk_refs_add(&there, ref, 0);
}

static struct rds_trunk_ref *out_from(const struct rds_procid *member, uint32_t number, const char *text)
{
	const struct rds_trunk_message m = {.way = RDS_TRUNK_OUT,
					    .sport = 10,
					    .dport = 20,
					    .len = (uint32_t)strlen(text),
					    .number = number,
					    .member = *member,
					    .data = text};

	return rds_trunk_add(t, &m);
}

static struct rds_trunk_ref *in(uint64_t seq, const char *text)
{
	const struct rds_trunk_message m = {
		.way = RDS_TRUNK_IN, .sport = 20, .dport = 10, .len = (uint32_t)strlen(text), .seq = seq, .data = text};

	return rds_trunk_add(t, &m);
}

static struct rds_trunk_ref *in_to(uint16_t port, size_t len)
{
	static char bytes[RDS_MAX_MSG];
	const struct rds_trunk_message m = {
		.way = RDS_TRUNK_IN, .dport = port, .len = (uint32_t)len, .seq = 1, .data = bytes};

	return rds_trunk_add(t, &m);
}

static struct rds_trunk_ref *in_of(size_t len)
{
	return in_to(0, len);
}

static int look(uint32_t carrier, uint64_t bytes, bool or_less)
{
	const struct rds_trunk_brought b = {.bytes = bytes, .or_less = or_less};

	rds_trunk_image_close(&img);
	return rds_trunk_image_open(atomic_load(&t->memory), carrier, &b, &img);
}

/* Another process becomes the owner, with what was seen. */
static void next_owner(void)
{
	unsigned i;
	int err;

	rds_trunk_put(t);
	t = rds_trunk_new_from(&img, &err);
	ck_assert_ptr_nonnull(t);
	for (i = 0; i < img.nfound; i++)
		stays(img.found[i].ref);
}

static void found(unsigned i, const char *text)
{
	ck_assert_uint_lt(i, img.nfound);
	ck_assert_uint_eq(img.found[i].m.len, strlen(text));
	ck_assert_mem_eq(img.found[i].m.data, text, strlen(text));
}

START_TEST(test_messages)
{
	struct rds_trunk_ref *a = out_from(&one, 1, "first"), *b = in(7, "second"), *c = out_from(&one, 2, "third");

	rds_trunk_ref_number(a, 10);
	rds_trunk_drop(b);
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, 2);
	found(0, "first");
	found(1, "third");
	ck_assert_uint_eq(img.found[0].m.seq, 10);
	ck_assert_uint_eq(img.found[1].m.seq, 0);
	ck_assert_uint_eq(img.found[1].m.dport, 20);
	ck_assert_uint_eq(img.sent, 9);
	ck_assert_uint_eq(img.acked, 8);
	ck_assert_uint_eq(img.next_rx, 5);
	ck_assert_uint_eq(img.peer_gen, 6);
	ck_assert_mem_eq(&img.name, &name, sizeof(name));
	rds_trunk_drop(a);
	rds_trunk_drop(c);
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, 0);
}
END_TEST

/* Acknowledged up to a number. */
START_TEST(test_acknowledged)
{
	struct rds_trunk_refs refs = {0};

	rds_trunk_refs_add(&refs, out_from(&one, 1, "a"), 5);
	rds_trunk_refs_add(&refs, out_from(&one, 2, "b"), 7);
	rds_trunk_refs_add(&refs, out_from(&one, 3, "c"), 8);
	rds_trunk_refs_drop(&refs, 4);
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, 3);
	rds_trunk_refs_drop(&refs, 7);
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, 1);
	found(0, "c");
	rds_trunk_refs_drop(&refs, UINT64_MAX);
}
END_TEST

/* Some of them go on to another connection, the last one as well. */
START_TEST(test_refs_taken)
{
	struct rds_trunk_refs refs = {0};
	struct rds_trunk_ref *ref[5], **at = &refs.first;
	unsigned i;

	for (i = 1; i < 5; i++) {
		ref[i] = in(i, "text");
		rds_trunk_refs_add(&refs, ref[i], 2 * i);
	}
	ck_assert_uint_eq(rds_trunk_refs_count(&refs, 4), 3);
	ck_assert_ptr_eq(rds_trunk_refs_take(&refs, &at, 4), ref[2]);
	ck_assert_ptr_null(rds_trunk_refs_take(&refs, &at, 5));
	ck_assert_ptr_eq(rds_trunk_refs_take(&refs, &at, 8), ref[4]);
	ck_assert_ptr_null(rds_trunk_refs_take(&refs, &at, 9));
	rds_trunk_refs_add(&refs, ref[4], 10);
	rds_trunk_drop(ref[2]);
	ck_assert_uint_eq(rds_trunk_refs_count(&refs, 0), 3);
	rds_trunk_refs_drop(&refs, 6);
	ck_assert_uint_eq(rds_trunk_refs_count(&refs, 0), 1);
	rds_trunk_refs_drop(&refs, UINT64_MAX);
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, 0);
}
END_TEST

/* The next owner, and the one after it. */
START_TEST(test_numbers_of_members)
{
	rds_trunk_drop(out_from(&one, 0xfffffff0u, "a"));
	rds_trunk_drop(out_from(&two, 3, "b"));
	ck_assert(!rds_trunk_had(t, &one, 0xfffffff0u)); /* it was this process itself */
	ck_assert_int_eq(look(0, 0, false), 0);
	next_owner();
	ck_assert(rds_trunk_had(t, &one, 0xffffffefu));
	ck_assert(rds_trunk_had(t, &one, 0xfffffff0u));
	ck_assert(!rds_trunk_had(t, &one, 0xfffffff1u));
	ck_assert(!rds_trunk_had(t, &one, 1));
	ck_assert(rds_trunk_had(t, &two, 3));
	ck_assert(!rds_trunk_had(t, &two, 4));
	ck_assert(!rds_trunk_had(t, &two, 0));
	rds_trunk_drop(out_from(&one, 2, "c"));
	ck_assert(!rds_trunk_had(t, &one, 2));
	ck_assert_int_eq(look(0, 0, false), 0);
	next_owner();
	ck_assert(rds_trunk_had(t, &one, 2));
	ck_assert(rds_trunk_had(t, &two, 3));
}
END_TEST

/* Numbers wrap: those of a former owner's time are forgotten before they come again. */
START_TEST(test_numbers_wrap)
{
	uint32_t n, step = 1u << 23;

	rds_trunk_drop(out_from(&one, 100, "a"));
	rds_trunk_drop(out_from(&two, 100, "a"));
	ck_assert_int_eq(look(0, 0, false), 0);
	next_owner();
	ck_assert(!rds_trunk_had(t, &two, 100 + (1u << 31))); /* all others were for other hosts */
	for (n = 100; n < 0xff000000u; n += step) {
		ck_assert(n == 100 || !rds_trunk_had(t, &one, n));
		rds_trunk_drop(out_from(&one, n, "b"));
	}
	ck_assert(!rds_trunk_had(t, &one, 99));
	ck_assert(!rds_trunk_had(t, &one, 100));
	ck_assert(rds_trunk_had(t, &two, 100));
	/* the last one counts for the next owner, not the one that came to us with a higher number */
	rds_trunk_drop(out_from(&two, 1u << 31, "c"));
	rds_trunk_drop(out_from(&two, 3, "d"));
	rds_trunk_drop(out_from(&two, 2, "e"));
	ck_assert_int_eq(look(0, 0, false), 0);
	next_owner();
	ck_assert(rds_trunk_had(t, &two, 3));
	ck_assert(!rds_trunk_had(t, &two, 4));
}
END_TEST

/* Of two messages the first one is still under way: the number of the second one is not forgotten. */
START_TEST(test_numbers_stay)
{
	unsigned i;

	stays(out_from(&one, 5, "a"));
	rds_trunk_drop(out_from(&one, 6, "b"));
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(look(0, 0, false), 0);
		ck_assert_uint_eq(img.nfound, 1);
		next_owner();
		ck_assert(rds_trunk_had(t, &one, 6));
		ck_assert(!rds_trunk_had(t, &one, 7));
	}
}
END_TEST

/* Segments are used again; long messages have several, and those that stay are in nobody's way. */
START_TEST(test_room)
{
	static struct rds_trunk_ref *refs[2048];
	unsigned i, n, round;

	for (round = 0; round < 3; round++) {
		for (n = 0; n < 2048 && (refs[n] = in_of(n % 7 ? 100 + n : RDS_MAX_MSG)); n++)
			;
		ck_assert_uint_gt(n, 300);
		ck_assert_uint_lt(n, 2048);
		ck_assert_int_eq(look(0, 0, false), 0);
		ck_assert_uint_eq(img.nfound, n);
		for (i = 0; i < n; i++)
			if (i % 3 != round)
				rds_trunk_drop(refs[i]);
		ck_assert_int_eq(look(0, 0, false), 0);
		ck_assert_uint_eq(img.nfound, (n + 2 - round) / 3);
		ck_assert_ptr_nonnull(refs[2047] = in_of(RDS_MAX_MSG));
		rds_trunk_drop(refs[2047]);
		for (i = round; i < n; i += 3)
			rds_trunk_drop(refs[i]);
	}
	rds_trunk_trim(t);
	ck_assert_uint_le(t->high, 32);
	rds_trunk_drop(in_of(1));
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, 0);
}
END_TEST

/* A member that takes nothing: what others send still has room, in segments of its own. */
START_TEST(test_room_of_each_way)
{
	static struct rds_trunk_ref *refs[2048];
	unsigned i, n;

	for (n = 0; (refs[n] = in_of(RDS_MAX_MSG / 2)); n++)
		;
	ck_assert_ptr_null(in_of(RDS_MAX_MSG));
	for (i = 0; i < 5000; i++)
		rds_trunk_drop(out_from(&one, i + 1, "message"));
	stays(out_from(&one, i + 1, "stays"));
	while (n--)
		rds_trunk_drop(refs[n]);
	/* one of each of many stays: it keeps a segment of its own way */
	for (i = 0; i < 50000; i++) {
		n = i % 100 == 0;
		ck_assert_ptr_nonnull(refs[0] = in_of(1000));
		if (n)
			stays(refs[0]);
		else
			rds_trunk_drop(refs[0]);
		ck_assert_ptr_nonnull(refs[0] = out_from(&one, i + 1, "message"));
		rds_trunk_drop(refs[0]);
	}
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, 501);
}
END_TEST

/* A member that takes nothing, and got a few bytes now and then, keeps no room from what another one takes. */
START_TEST(test_room_of_each_port)
{
	struct rds_trunk_ref *ref;
	unsigned i;

	for (i = 0; i < 2 * TRUNK_SEGS; i++) {
		stays(in_to(4000, 64));
		ref = in_to(4001, TRUNK_SEG / 2);
		ck_assert_ptr_nonnull(ref);
		rds_trunk_drop(ref);
	}
	ck_assert_uint_lt(t->high, 64);
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.nfound, i);
}
END_TEST

/* The sanitizers' mlockall() does nothing. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static size_t pages_of(int memory)
{
	struct stat st;

	ck_assert_int_eq(fstat(memory, &st), 0);
	return (size_t)st.st_blocks * 512;
}

/* A program that locks its memory does not have all of it at once, neither as the owner nor as the next one. */
START_TEST(test_locked_memory)
{
	size_t before;
	int err;

	if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
		ck_assert(errno == EPERM || errno == ENOMEM);
		printf("locked_memory: SKIP: this user may not lock all of it (%s)\n", strerror(errno));
		return;
	}
	rds_trunk_put(t);
	t = rds_trunk_new(&name, &err);
	ck_assert_ptr_nonnull(t);
	rds_trunk_received(t, 5, 6);
	before = pages_of(atomic_load(&t->memory));
	ck_assert_uint_le(before, TRUNK_SEGS_AT);
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(pages_of(atomic_load(&t->memory)), before);
	rds_trunk_image_close(&img);
	ck_assert_int_eq(mlockall(MCL_CURRENT), 0);
	ck_assert_uint_eq(pages_of(atomic_load(&t->memory)), before);
	munlockall();
}
END_TEST
#endif

static void receive(size_t n, char what)
{
	size_t room;
	void *to = rds_trunk_window_room(t, &room);

	ck_assert_uint_le(n, room);
	memset(to, what, n);
	rds_trunk_window_filled(t, n);
}

static void done(size_t n)
{
	rds_trunk_window_frame(t, n);
	rds_trunk_window_done(t);
}

/* Bytes that were read and not handed over; how many the kernel says. */
START_TEST(test_window)
{
	size_t room;

	rds_trunk_window_begin(t, 1, 1000);
	receive(100, 'a');
	done(40);
	ck_assert_int_eq(look(1, 1100, false), 0);
	ck_assert_uint_eq(img.carrier, 1);
	ck_assert_uint_eq(img.at, 1040);
	ck_assert_uint_eq(img.nbytes, 60);
	ck_assert_int_eq(img.bytes[59], 'a');
	/* killed between the end of the read and the store that says so */
	ck_assert_int_eq(look(1, 1110, false), 0);
	ck_assert_uint_eq(img.nbytes, 70);
	/* the peer's end is counted */
	ck_assert_int_eq(look(1, 1101, true), 0);
	ck_assert_uint_eq(img.nbytes, 60);
	ck_assert_int_eq(look(1, 1100, true), 0);
	ck_assert_uint_eq(img.nbytes, 60);
	ck_assert_int_eq(look(1, 1150, true), 0);
	ck_assert_uint_eq(img.nbytes, 110);
	/* the window is full */
	for (rds_trunk_window_room(t, &room); room; rds_trunk_window_room(t, &room))
		receive(room, 'a');
	ck_assert_int_eq(look(1, 1000 + TRUNK_WINDOW + 1, true), 0);
	ck_assert_uint_eq(img.carrier, 1);
	ck_assert_uint_eq(img.nbytes, TRUNK_WINDOW - 40);
	/* all done */
	done(TRUNK_WINDOW - 40);
	ck_assert_int_eq(look(1, 1000 + TRUNK_WINDOW, false), 0);
	ck_assert_uint_eq(img.nbytes, 0);
	ck_assert_uint_eq(img.at, 1000 + TRUNK_WINDOW);
	/* another carrier, of which nothing was read; or something that is not here */
	ck_assert_int_eq(look(2, 0, false), 0);
	ck_assert_uint_eq(img.carrier, 2);
	ck_assert_uint_eq(img.at, 0);
	ck_assert_int_eq(look(2, 5, false), 0);
	ck_assert_uint_eq(img.carrier, 0);
	rds_trunk_window_end(t, 1);
	ck_assert_int_eq(look(1, 1100, false), 0);
	ck_assert_uint_eq(img.carrier, 0);
	ck_assert_int_eq(look(2, 0, false), 0);
	ck_assert_uint_eq(img.carrier, 2);
}
END_TEST

/* Messages of the greatest length, one behind the other, with any number of bytes behind them. */
START_TEST(test_window_is_enough)
{
	const size_t frame = TRUNK_FRAME_MAX;
	size_t n, room, more;
	unsigned i;

	rds_trunk_window_begin(t, 1, 0);
	for (i = 0; i < 50; i++) {
		for (;;) {
			const unsigned char *bytes = rds_trunk_window_bytes(t, &n);

			if (n >= frame) {
				ck_assert_int_eq(bytes[frame - 1], 'a' + (int)(i % 26));
				break;
			}
			rds_trunk_window_fit(t, frame);
			rds_trunk_window_room(t, &room);
			ck_assert_uint_gt(room, 0);
			more = room < 77777 ? room : 77777;
			if (n + more > frame)
				more = frame - n;
			receive(more, (char)('a' + i % 26));
		}
		done(frame);
	}
	ck_assert_int_eq(look(1, 50 * frame, false), 0);
	ck_assert_uint_eq(img.nbytes, 0);
}
END_TEST

/* A message that is kept is done, though this was not said yet. */
START_TEST(test_kept_and_not_done)
{
	struct rds_trunk_ref *ref;

	rds_trunk_window_begin(t, 1, 0);
	receive(200, 'a');
	rds_trunk_window_frame(t, 120);
	ref = in(77, "x");
	ck_assert_int_eq(look(1, 200, false), 0);
	ck_assert_uint_eq(img.at, 120);
	ck_assert_uint_eq(img.nbytes, 80);
	ck_assert_uint_eq(img.next_rx, 78);
	rds_trunk_drop(ref); /* also if the member has got it */
	ck_assert_int_eq(look(1, 200, false), 0);
	ck_assert_uint_eq(img.at, 120);
}
END_TEST

/* All of it is there again. */
static void between(void)
{
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.next_rx, 1);
	ck_assert_uint_eq(img.peer_gen, 6);
}

/* An owner that is killed between the two has not heard of the new generation: the next one will. */
START_TEST(test_new_generation)
{
	rds_trunk_step = between;
	rds_trunk_received(t, 1, 7);
	rds_trunk_step = NULL;
	ck_assert_int_eq(look(0, 0, false), 0);
	ck_assert_uint_eq(img.next_rx, 1);
	ck_assert_uint_eq(img.peer_gen, 7);
}
END_TEST

START_TEST(test_next_owner)
{
	stays(out_from(&one, 1, "first"));
	rds_trunk_window_begin(t, 5, 0);
	receive(100, 'q');
	done(10);
	ck_assert_int_eq(look(5, 100, false), 0);
	next_owner();
	ck_assert_ptr_nonnull(img.found[0].ref);
	ck_assert_int_eq(look(5, 100, false), 0);
	ck_assert_uint_eq(img.nfound, 1);
	found(0, "first");
	ck_assert_uint_eq(img.at, 10);
	ck_assert_uint_eq(img.nbytes, 90);
	ck_assert_int_eq(img.bytes[0], 'q');
	ck_assert_uint_eq(img.sent, 9);
	ck_assert_uint_eq(img.next_rx, 5);
}
END_TEST

/* What is written there instead. */
START_TEST(test_nonsense)
{
	struct trunk_entry *e = (struct trunk_entry *)(void *)((char *)t->head + TRUNK_SEGS_AT);
	int file = memfd_create("x", MFD_ALLOW_SEALING);
	const struct rds_trunk_brought none = {0};

	stays(out_from(&one, 1, "first"));
	atomic_store(&t->head->used[3], UINT32_MAX);
	ck_assert_int_eq(look(0, 0, false), -EPROTO);
	atomic_store(&t->head->used[3], 8);
	ck_assert_int_eq(look(0, 0, false), -EPROTO);
	atomic_store(&t->head->used[3], 0);
	e->len = RDS_MAX_MSG;
	ck_assert_int_eq(look(0, 0, false), -EPROTO);
	e->len = UINT32_MAX;
	ck_assert_int_eq(look(0, 0, false), -EPROTO);
	e->len = 5;
	e->way = 9;
	ck_assert_int_eq(look(0, 0, false), -EPROTO);
	e->way = RDS_TRUNK_OUT;
	ck_assert_int_eq(look(0, 0, false), 0);
	rds_trunk_window_begin(t, 1, 0);
	atomic_store(&t->head->base, 1u << 30);
	atomic_store(&t->head->done, 1u << 30);
	ck_assert_int_eq(look(1, 1u << 31, false), 0);
	ck_assert_uint_eq(img.carrier, 0);
	t->head->magic++;
	ck_assert_int_eq(look(0, 0, false), -EPROTO);
	/* another file: too small, or it could become so */
	ck_assert_int_eq(rds_trunk_image_open(file, 0, &none, &img), -EPROTO);
	ck_assert_int_eq(ftruncate(file, (off_t)TRUNK_SIZE), 0);
	ck_assert_int_eq(rds_trunk_image_open(file, 0, &none, &img), -EPROTO);
	ck_assert_int_eq(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ck_assert_int_eq(rds_trunk_image_open(file, 0, &none, &img), -EPROTO);
}
END_TEST

/* ---- the box ---- */

static _Atomic int box = -1;

static void box_setup(void)
{
	struct rds_procid id;

	setup();
	os_random(&id, sizeof(id));
	ck_assert(!rds_trunk_box_exists(&id));
	atomic_store(&box, rds_trunk_box_new(&id));
	ck_assert_int_ge(atomic_load(&box), 0);
	ck_assert(rds_trunk_box_exists(&id));
}

static bool left; /* of the last packet */

static bool note(const struct rds_trunk_packet *p, const int *fds, void *arg)
{
	struct rds_trunk_packet *last = arg;

	ck_assert_int_ge(fds[RDS_TRUNK_MEMORY], 0);
	left = rds_trunk_box_is_left(fds);
	*last = *p;
	return true;
}

START_TEST(test_box)
{
	struct rds_trunk_packet p;
	int pipes[2], fds[RDS_TRUNK_FDS], plain = socket(AF_UNIX, SOCK_DGRAM, 0), err;
	struct rds_trunk *another;
	unsigned i, n, last;

	ck_assert(rds_trunk_box_is_one(atomic_load(&box)));
	ck_assert(!rds_trunk_box_is_one(plain));
	ck_assert(!rds_trunk_box_is_one(atomic_load(&t->memory)));
	ck_assert_int_eq(rds_trunk_box_first(atomic_load(&box), &p, fds), -EAGAIN);
	ck_assert_uint_eq(rds_trunk_carry(t, 0), 0); /* it is in no box */
	ck_assert_int_eq(rds_trunk_box_put(t, &box, -1), 0);
	ck_assert_uint_eq(rds_trunk_box_each(atomic_load(&box), note, &p), 1);
	ck_assert_uint_eq(p.carrier, 0);
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_uint_eq(rds_trunk_carry(t, pipes[0]), 1);
	ck_assert_uint_eq(rds_trunk_carry(t, pipes[0]), 2);
	rds_trunk_box_each(atomic_load(&box), note, &p);
	ck_assert_uint_eq(p.carrier, 2);
	ck_assert(!left);
	rds_trunk_left(t, true);
	rds_trunk_box_each(atomic_load(&box), note, &p);
	ck_assert(left);
	ck_assert_uint_eq(rds_trunk_carry(t, pipes[0]), 3); /* in the middle of that a connection comes up */
	rds_trunk_box_each(atomic_load(&box), note, &p);
	ck_assert(left);
	rds_trunk_left(t, false);
	rds_trunk_box_each(atomic_load(&box), note, &p);
	ck_assert(!left);
	/* those of former carriers, and of trunks that have ended, become few again; the last one is there */
	while (rds_trunk_box_each(atomic_load(&box), note, &p) < 10)
		rds_trunk_carry(t, pipes[0]);
	for (i = 0; i < 100; i++) {
		another = rds_trunk_new(&name, &err);
		ck_assert_int_eq(rds_trunk_box_put(another, &box, -1), 0);
		rds_trunk_put(another);
		ck_assert_uint_gt(last = rds_trunk_carry(t, pipes[0]), 3);
		ck_assert_uint_lt(rds_trunk_box_each(atomic_load(&box), note, &p), 30);
		ck_assert_uint_eq(p.carrier, last);
	}
	for (n = rds_trunk_box_each(atomic_load(&box), note, &p); n > 1; n--)
		rds_trunk_box_drop_first(atomic_load(&box));
	/* what is not valid is passed over, and can be taken out */
	ck_assert_int_eq(send(atomic_load(&box), "x", 1, 0), 1);
	ck_assert_uint_eq(rds_trunk_box_each(atomic_load(&box), note, &p), 2);
	close(pipes[0]);
	ck_assert_int_eq(rds_trunk_box_first(atomic_load(&box), &p, fds), 0);
	ck_assert_int_eq(write(pipes[1], "y", 1), 1); /* the carrier lives on there */
	ck_assert_int_eq(close(fds[0]) | close(fds[1]) | close(fds[2]), 0);
	rds_trunk_box_drop_first(atomic_load(&box));
	ck_assert_int_eq(rds_trunk_box_first(atomic_load(&box), &p, fds), -EPROTO);
	rds_trunk_box_drop_first(atomic_load(&box));
	ck_assert_int_eq(rds_trunk_box_first(atomic_load(&box), &p, fds), -EAGAIN);
}
END_TEST

static bool count_lacking(const struct rds_trunk_packet *p, const int *fds, void *arg)
{
	unsigned *n = arg;

	(void)p;
	*n += fds[RDS_TRUNK_MEMORY] < 0;
	return true;
}

static bool look_for(const struct rds_trunk_packet *p, const int *fds, void *arg)
{
	uint64_t *id = arg;

	(void)fds;
	if (p->id == *id)
		*id = 0;
	return *id;
}

/* Of the packets of other trunks none is lost, though this process has no descriptors for them. */
START_TEST(test_box_few_descriptors)
{
	struct rds_trunk *others[3];
	struct rds_trunk_packet p;
	int fds[RDS_TRUNK_FDS], held[64], n = 0, err, i, used;
	unsigned lacking = 0;
	struct rlimit all, few;
	uint64_t seen;

	ck_assert_int_eq(rds_trunk_box_put(t, &box, -1), 0);
	for (i = 0; i < 3; i++) {
		others[i] = rds_trunk_new(&name, &err);
		ck_assert_int_eq(rds_trunk_box_put(others[i], &box, -1), 0);
	}
	/*
	 * One is enough to leave a packet; it takes two to look at one.  The limit holds for those on
	 * their way, too, unless one is privileged: it has to be above what lies in the box.
	 */
	while ((used = dup(0)) < 64)
		held[n++] = used;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = all;
	few.rlim_cur = (rlim_t)used + 1;
	ck_assert_int_eq(close(used), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_uint_eq(rds_trunk_carry(t, 0), 1);
	ck_assert_int_eq(rds_trunk_box_first(atomic_load(&box), &p, fds), -EMFILE);
	ck_assert_uint_eq(rds_trunk_box_each(atomic_load(&box), count_lacking, &lacking), 5);
	ck_assert_uint_eq(lacking, 5);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
	while (n)
		ck_assert_int_eq(close(held[--n]), 0);
	for (i = 0; i < 100; i++)
		ck_assert_uint_gt(rds_trunk_carry(t, 0), 1);
	ck_assert_uint_lt(rds_trunk_box_each(atomic_load(&box), note, &p), 30);
	for (i = 0; i < 3; i++) {
		seen = others[i]->id;
		rds_trunk_box_each(atomic_load(&box), look_for, &seen);
		ck_assert_uint_eq(seen, 0);
	}
	for (i = 0; i < 3; i++)
		rds_trunk_put(others[i]);
}
END_TEST

/* Who has written it has ended, in any way. */
START_TEST(test_box_outlives)
{
	struct rds_trunk_packet p;
	int fds[RDS_TRUNK_FDS], status;
	pid_t pid = fork();

	if (!pid) {
		setup();
		out_from(&one, 1, "kept");
		_exit(rds_trunk_box_put(t, &box, -1) ? 1 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(rds_trunk_box_first(atomic_load(&box), &p, fds), 0);
	ck_assert(rds_trunk_box_is_left(fds));
	rds_trunk_put(t);
	ck_assert_int_eq(rds_trunk_image_open(fds[0], 0, &(struct rds_trunk_brought){0}, &img), 0);
	found(0, "kept");
	setup();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trunk");
	TCase *tc = suite_case(s, "memory", setup, teardown);

	tcase_add_test(tc, test_messages);
	tcase_add_test(tc, test_acknowledged);
	tcase_add_test(tc, test_refs_taken);
	tcase_add_test(tc, test_numbers_of_members);
	tcase_add_test(tc, test_numbers_wrap);
	tcase_add_test(tc, test_numbers_stay);
	tcase_add_test(tc, test_room);
	tcase_add_test(tc, test_room_of_each_way);
	tcase_add_test(tc, test_room_of_each_port);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test(tc, test_locked_memory);
#endif
	tcase_add_test(tc, test_window);
	tcase_add_test(tc, test_window_is_enough);
	tcase_add_test(tc, test_kept_and_not_done);
	tcase_add_test(tc, test_new_generation);
	tcase_add_test(tc, test_next_owner);
	tcase_add_test(tc, test_nonsense);
	tc = suite_case(s, "box", box_setup, teardown);
	tcase_add_test(tc, test_box);
	tcase_add_test(tc, test_box_few_descriptors);
	tcase_add_test(tc, test_box_outlives);
	return suite_run(s);
}
