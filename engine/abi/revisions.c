/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * revisions.c - finds out which revision of the RDMA structures a program uses, and decodes its
 * requests into today's form.
 *
 * No structure carries a version, and all revisions but one have RDMA arguments of the same 56
 * bytes.  The numbers themselves show the order of the words.  Only earlier calls of the process
 * show whether word 6 is a pointer or a token.  If a token were taken for a pointer, the program's
 * memory would be overwritten.  So a pointer needs a proof: an order of words that is not today's,
 * a size that only one revision had, or a call of RDS_BARRIER, which later revisions do not have.
 *
 * Must not know sockets, transports or the program's memory: the caller passes copies, and
 * questions are callbacks.
 */
#include "engine/abi/revisions.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/abi/foreign_memory.h"
#include "engine/sys/options.h"
#include "engine/rds.h"

/* ---- layouts that rds_abi.h does not have ---- */

#define ABI_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "size of struct " #type)
#define ABI_AT(type, field, off) _Static_assert(offsetof(struct type, field) == (off), #type "." #field)

struct args_a0 { /* and a1 */
	struct rds_iovec remote_vec;
	uint64_t r_key;
	uint64_t local_vec_addr;
	uint64_t nr_local;
	uint64_t flags;
	uint64_t rdma_id_addr;
};
ABI_SIZE(args_a0, 56);
ABI_AT(args_a0, r_key, 16);
ABI_AT(args_a0, local_vec_addr, 24);
ABI_AT(args_a0, nr_local, 32);
ABI_AT(args_a0, flags, 40);
ABI_AT(args_a0, rdma_id_addr, 48);

struct args_a2 { /* and b1 */
	uint64_t cookie;
	struct rds_iovec remote_vec;
	uint64_t local_vec_addr;
	uint64_t nr_local;
	uint64_t flags;
	uint64_t rdma_id_addr;
};
ABI_SIZE(args_a2, 56);
ABI_AT(args_a2, remote_vec, 8);
ABI_AT(args_a2, local_vec_addr, 24);
ABI_AT(args_a2, nr_local, 32);
ABI_AT(args_a2, flags, 40);
ABI_AT(args_a2, rdma_id_addr, 48);

struct args_b2 {
	struct args_a2 b1;
	uint32_t user_token;
	uint32_t pad;
};
ABI_SIZE(args_b2, 64);
ABI_AT(args_b2, user_token, 56);

struct args_c {
	uint64_t cookie;
	struct rds_iovec remote_vec;
	uint64_t local_vec_addr;
	uint64_t nr_local;
	uint64_t flags;
	uint32_t user_token;
	uint32_t pad;
};
ABI_SIZE(args_c, 56);
ABI_AT(args_c, remote_vec, 8);
ABI_AT(args_c, flags, 40);
ABI_AT(args_c, user_token, 48);

struct barrier_a0 {	/* to a2 */
	uint32_t daddr; /* be32 */
	uint32_t flags;
	uint64_t rdma_id_addr;
	uint64_t wait_rdma_id;
};
ABI_SIZE(barrier_a0, 24);
ABI_AT(barrier_a0, flags, 4);
ABI_AT(barrier_a0, rdma_id_addr, 8);
ABI_AT(barrier_a0, wait_rdma_id, 16);

struct barrier_b1 {	/* and b2 */
	uint32_t daddr; /* be32 */
	uint32_t hole;
	uint64_t flags;
	uint64_t rdma_id_addr;
	uint64_t wait_rdma_id;
};
ABI_SIZE(barrier_b1, 32);
ABI_AT(barrier_b1, flags, 8);
ABI_AT(barrier_b1, rdma_id_addr, 16);
ABI_AT(barrier_b1, wait_rdma_id, 24);

/*
 * Atomic operations without masks: before 2010-10, and vendor kernels since 2018.  The two operands
 * are in the opposite order of today's.
 */
struct atomic_short {
	uint64_t cookie;
	uint64_t local_addr;
	uint64_t remote_addr;
	uint64_t swap_add;
	uint64_t compare;
	uint64_t flags;
	uint64_t user_token;
};
ABI_SIZE(atomic_short, 56);
ABI_AT(atomic_short, swap_add, 24);
ABI_AT(atomic_short, compare, 32);
ABI_AT(atomic_short, flags, 40);
ABI_AT(atomic_short, user_token, 48);

#define BARRIER_A0_DONTWAIT 0x40 /* MSG_DONTWAIT */
#define LOWEST_POINTER 65536	 /* no mapping is below (vm.mmap_min_addr), no flag is above */

/* ---- proofs of the process's age ---- */

static _Atomic int epoch_shown = RDS_EPOCH_NONE;

/*
 * RDS_PRELOAD_ABI of this program, or of the borrower for which the call is made, which may pass
 * any number.  v2 (2006) had no RDMA, and counts as auto.
 */
static int abi_option(void)
{
	int abi = rds_caller ? rds_caller->abi : (int)rds_options()->abi;

	return abi < RDS_ABI_AUTO || abi > RDS_ABI_D ? RDS_ABI_AUTO : abi;
}

static void epoch_note(int epoch)
{
	int none = RDS_EPOCH_NONE;

	if (!rds_caller && atomic_load_explicit(&epoch_shown, memory_order_relaxed) == RDS_EPOCH_NONE)
		atomic_compare_exchange_strong(&epoch_shown, &none, epoch);
}

enum rds_abi_epoch rds_abi_epoch(void)
{
	switch (abi_option()) {
	case RDS_ABI_A0:
	case RDS_ABI_A1:
	case RDS_ABI_A2:
		return RDS_EPOCH_24;
	case RDS_ABI_B1:
	case RDS_ABI_B2:
		return RDS_EPOCH_32;
	case RDS_ABI_C:
	case RDS_ABI_D:
		return RDS_EPOCH_LATER;
	default:
		if (rds_caller)
			return (enum rds_abi_epoch)rds_caller->epoch;
		return atomic_load_explicit(&epoch_shown, memory_order_relaxed);
	}
}

void rds_abi_note_modern(void)
{
	epoch_note(RDS_EPOCH_LATER);
}

static _Atomic bool uek_shown;

void rds_abi_note_option(int opt)
{
	if (opt >= RDS_RECVERR && (opt < RDS_INFO_FIRST || opt >= RDS_INFO_IB_CONNECTIONS))
		rds_abi_note_modern();
	if (!rds_caller && (opt == RDS6_CONN_RESET || opt == SO_RDS_INQ || opt == RDS_INFO_CONN_PATHS || opt == RDS6_INFO_CONN_PATHS))
		atomic_store_explicit(&uek_shown, true, memory_order_relaxed);
}

bool rds_abi_is_uek(void)
{
	return atomic_load_explicit(&uek_shown, memory_order_relaxed);
}

static _Atomic bool numbers_were_read;
static _Atomic unsigned level_reads;

void rds_abi_note_numbers(bool level)
{
	atomic_store(&numbers_were_read, true);
	atomic_fetch_add(&level_reads, level);
}

bool rds_abi_numbers_read(void)
{
	return rds_caller ? rds_caller->numbers : atomic_load_explicit(&numbers_were_read, memory_order_relaxed);
}

unsigned rds_abi_level_reads(void)
{
	return atomic_load_explicit(&level_reads, memory_order_relaxed);
}

void rds_abi_reset(void)
{
	atomic_store(&epoch_shown, RDS_EPOCH_NONE);
	atomic_store(&uek_shown, false);
	atomic_store(&numbers_were_read, false);
	atomic_store(&level_reads, 0);
}

/* ---- RDS_CMSG_RDMA_ARGS ---- */

#define WORDS 8 /* of the longest revision */

/*
 * The layout of each revision; the local vector is the same in all.  id, token32, token64: 0 if the
 * revision has none.
 */
static const struct layout {
	uint8_t size, cookie, remote_addr, remote_bytes, id, token32, token64;
	uint8_t flags; /* the flags that the revision had; other bits may have any value */
} layouts[] = {
#define REMOTE(type) offsetof(struct type, remote_vec.addr), offsetof(struct type, remote_vec.bytes)
#define A0                                                                                                             \
	{                                                                                                              \
		56, offsetof(struct args_a0, r_key), REMOTE(args_a0), offsetof(struct args_a0, rdma_id_addr), 0, 0,    \
			0x03                                                                                           \
	}
	[RDS_ABI_A0] = A0,
	[RDS_ABI_A1] = A0,
	[RDS_ABI_A2] = {56, 0, REMOTE(args_a2), offsetof(struct args_a2, rdma_id_addr), 0, 0, 0x03},
	[RDS_ABI_B1] = {56, 0, REMOTE(args_a2), offsetof(struct args_a2, rdma_id_addr), 0, 0, 0x1f},
	[RDS_ABI_B2] = {64, 0, REMOTE(args_a2), offsetof(struct args_b2, b1.rdma_id_addr),
			offsetof(struct args_b2, user_token), 0, 0x3f},
	[RDS_ABI_C] = {56, 0, REMOTE(args_c), 0, offsetof(struct args_c, user_token), 0, 0x3f},
	[RDS_ABI_D] = {56, 0, REMOTE(rds_rdma_args), 0, 0, offsetof(struct rds_rdma_args, user_token), 0xff},
#undef A0
#undef REMOTE
};
_Static_assert(offsetof(struct rds_rdma_args, flags) == 40 && offsetof(struct rds_rdma_args, user_token) == 48, "d");

struct evidence {
	uint64_t word[WORDS];
	uint64_t local;
	bool (*is_cookie)(void *arg, uint64_t cookie);
	void *arg;
};

/* Of words 0 and 2, is only `word` known as a cookie? */
static bool word_is_only_cookie(const struct evidence *e, int word)
{
	return e->is_cookie && e->is_cookie(e->arg, e->word[word]) && !e->is_cookie(e->arg, e->word[2 - word]);
}

/*
 * The order of words in 56 bytes: 1 address first (a0, a1), 0 cookie first (a2, b1, c, d), or
 * -EINVAL.  L is the sum of the local bytes; programs of the time of RDS_BARRIER always asked for L
 * remote bytes.
 *
 *	epoch	word 1 == L	word 2 == L	answer
 *	32	any		any		cookie first: b1 knows nothing else
 *	24	yes		no		address first
 *		no		yes		cookie first
 *		yes		yes		address first, unless word 0 alone is a known cookie
 *		no		no		-EINVAL: a guess could overwrite memory of the peer
 *	none	yes		no		address first, unless word 0 alone is a known cookie
 *		no		yes		cookie first
 *		yes		yes		cookie first, unless word 2 alone is a known cookie
 *		no		no		cookie first
 *
 * The last row is a program of today that transfers less than the whole of its remote vector, as
 * the kernel permits, or more, which the caller refuses as the kernel does.  If its remote address
 * happens to be L, it looks like an old program (epoch none, first row); then a known cookie
 * decides.  RDS_EPOCH_LATER, and sizes that are not 56, do not get here.
 */
static int args_address_first(const struct evidence *e, enum rds_abi_epoch epoch)
{
	bool address = e->word[1] == e->local, cookie = e->word[2] == e->local;

	if (epoch == RDS_EPOCH_32)
		return 0;
	if (epoch == RDS_EPOCH_24 && !address && !cookie)
		return -EINVAL;
	if (!address)
		return 0;
	if (epoch == RDS_EPOCH_NONE && cookie)
		return word_is_only_cookie(e, 2);
	if (epoch == RDS_EPOCH_24 && !cookie)
		return 1;
	return !word_is_only_cookie(e, 0);
}

/*
 * The revision by which these bytes are decoded.  Only the layout and the meaning of word 6 count,
 * so a0 also stands for a1, and d for c.  Bytes beyond the length of a revision are ignored, as in
 * every kernel.  64 bytes are b2, unless the process has shown RDS_EPOCH_LATER.
 */
static int args_revision(const struct evidence *e, size_t size)
{
	enum rds_abi_epoch epoch = rds_abi_epoch();
	int ret;

	if (abi_option() != RDS_ABI_AUTO)
		return abi_option();
	if (epoch == RDS_EPOCH_LATER)
		return RDS_ABI_D;
	if (size == sizeof(struct args_b2))
		return RDS_ABI_B2;
	if (size != sizeof(struct rds_rdma_args))
		return RDS_ABI_D;
	ret = args_address_first(e, epoch);
	if (ret)
		return ret < 0 ? ret : RDS_ABI_A0;
	/* A program that asks for a notification expects a token in it. */
	if (epoch == RDS_EPOCH_NONE || e->word[offsetof(struct rds_rdma_args, flags) / 8] & RDS_RDMA_NOTIFY_ME)
		return RDS_ABI_D;
	return epoch == RDS_EPOCH_24 ? RDS_ABI_A2 : RDS_ABI_B1;
}

int rds_abi_local_vec_decode(const void *body, size_t size, uint64_t *vec, uint64_t *nr)
{
	struct rds_rdma_args args;

	if (size < sizeof(args))
		return -EINVAL;
	memcpy(&args, body, sizeof(args));
	*vec = args.local_vec_addr;
	*nr = args.nr_local;
	return 0;
}

static uint64_t args_word(const struct evidence *e, unsigned offset)
{
	return e->word[offset / 8];
}

int rds_abi_rdma_decode(const void *body, size_t size, uint64_t local_bytes,
			bool (*is_cookie)(void *arg, uint64_t cookie), void *arg, struct rds_rdma_request *out)
{
	struct evidence e = {.local = local_bytes, .is_cookie = is_cookie, .arg = arg};
	const struct layout *l;
	int revision;

	if (size < sizeof(struct rds_rdma_args))
		return -EINVAL;
	memcpy(e.word, body, size < sizeof(e.word) ? size : sizeof(e.word));
	revision = args_revision(&e, size);
	if (revision < 0)
		return revision;
	l = &layouts[revision];
	if (size < l->size)
		return -EINVAL;
	*out = (struct rds_rdma_request){
		.cookie = args_word(&e, l->cookie),
		.remote_addr = args_word(&e, l->remote_addr),
		.remote_bytes = args_word(&e, l->remote_bytes),
		.local_vec = args_word(&e, offsetof(struct rds_rdma_args, local_vec_addr)),
		.nr_local = args_word(&e, offsetof(struct rds_rdma_args, nr_local)),
		.flags = args_word(&e, offsetof(struct rds_rdma_args, flags)),
		.has_id = l->id,
		.id_addr = l->id ? args_word(&e, l->id) : 0,
		.token = l->token64 ? args_word(&e, l->token64) : 0,
		.short_notify = l->token32,
	};
	if (revision != RDS_ABI_D)
		out->flags &= l->flags;
	if (l->token32) {
		uint32_t token;

		memcpy(&token, (const char *)e.word + l->token32, sizeof(token));
		out->token = token;
	}
	return 0;
}

/* ---- memory regions ---- */

enum word3 { FLAGS, USE_ONCE, PHYS_ADDR };

static enum word3 word3_meaning(uint64_t value, bool (*writable)(uint64_t addr))
{
	bool low_byte_is_bool = (value & 0xff) <= 1;

	switch (abi_option()) {
	case RDS_ABI_A0:
		return PHYS_ADDR;
	case RDS_ABI_A1:
	case RDS_ABI_A2:
		return USE_ONCE;
	default:
		break;
	}
	switch (rds_abi_epoch()) {
	case RDS_EPOCH_24:
		/*
		 * The other bytes of a1's word are garbage.  If it is a pointer of a0 whose low
		 * byte looks like a bool, nothing is stored there, which does no harm.
		 */
		return low_byte_is_bool ? USE_ONCE : PHYS_ADDR;
	case RDS_EPOCH_NONE:
		/*
		 * A program of a0 that registers memory, but leaves RDMA to its peers, gives no
		 * other proof.
		 */
		if (value >= LOWEST_POINTER && !low_byte_is_bool && writable && writable(value))
			return PHYS_ADDR;
		return FLAGS;
	default:
		return FLAGS;
	}
}

void rds_abi_mr_decode(const struct rds_get_mr_args *args, bool (*writable)(uint64_t addr), struct rds_mr_request *out)
{
	*out = (struct rds_mr_request){
		.addr = args->vec.addr,
		.bytes = args->vec.bytes,
		.cookie_addr = args->cookie_addr,
	};
	/* Before there were flags, peers could write to every region. */
	switch (word3_meaning(args->flags, writable)) {
	case PHYS_ADDR:
		out->phys_addr = args->flags;
		out->flags = RDS_RDMA_READWRITE;
		break;
	case USE_ONCE:
		out->flags = RDS_RDMA_READWRITE | (args->flags & 0xff ? RDS_RDMA_USE_ONCE : 0);
		break;
	case FLAGS:
		out->flags = args->flags;
	}
}

void rds_abi_mr_for_dest_decode(const struct rds_get_mr_for_dest_args *args, struct rds_mr_request *out)
{
	*out = (struct rds_mr_request){
		.addr = args->vec.addr,
		.bytes = args->vec.bytes,
		.cookie_addr = args->cookie_addr,
		.flags = args->flags,
	};
}

/* ---- atomic operations ---- */

static void atomic_from_short(const struct atomic_short *a, struct rds_atomic_request *out)
{
	out->cookie = a->cookie;
	out->local_addr = a->local_addr;
	out->remote_addr = a->remote_addr;
	out->compare = out->swap ? a->compare : 0;
	out->value = a->swap_add;
	out->flags = a->flags;
	out->token = a->user_token;
}

static void atomic_from_args(const struct rds_atomic_args *a, struct rds_atomic_request *out)
{
	out->cookie = a->cookie;
	out->local_addr = a->local_addr;
	out->remote_addr = a->remote_addr;
	out->compare = out->swap ? a->cswp.compare : 0;
	out->value = out->swap ? a->cswp.swap : a->fadd.add;
	out->flags = a->flags;
	out->token = a->user_token;
}
/* The operands are in the same place with and without masks. */
_Static_assert(offsetof(struct rds_atomic_args, cswp.compare) == offsetof(struct rds_atomic_args, m_cswp.compare) &&
		       offsetof(struct rds_atomic_args, cswp.swap) == offsetof(struct rds_atomic_args, m_cswp.swap) &&
		       offsetof(struct rds_atomic_args, fadd.add) == offsetof(struct rds_atomic_args, m_fadd.add),
	       "union of operands");

int rds_abi_atomic_decode(int cmsg_type, const void *body, size_t size, struct rds_atomic_request *out)
{
	bool masked = cmsg_type == RDS_CMSG_MASKED_ATOMIC_CSWP || cmsg_type == RDS_CMSG_MASKED_ATOMIC_FADD;
	struct rds_atomic_args args;
	struct atomic_short old;

	*out = (struct rds_atomic_request){
		.swap = cmsg_type == RDS_CMSG_ATOMIC_CSWP || cmsg_type == RDS_CMSG_MASKED_ATOMIC_CSWP,
	};
	if (out->swap)
		out->compare_mask = out->value_mask = UINT64_MAX;
	if (size == sizeof(old) && !masked) {
		memcpy(&old, body, sizeof(old));
		atomic_from_short(&old, out);
		return 0;
	}
	if (size < sizeof(args))
		return -EINVAL;
	memcpy(&args, body, sizeof(args));
	atomic_from_args(&args, out);
	if (masked && out->swap) {
		out->compare_mask = args.m_cswp.compare_mask;
		out->value_mask = args.m_cswp.swap_mask;
	} else if (masked) {
		out->value_mask = args.m_fadd.nocarry_mask;
	}
	return 0;
}

/* ---- RDS_BARRIER ---- */

int rds_abi_barrier_decode(const void *val, int len, struct rds_barrier_request *out)
{
	if (len == sizeof(struct barrier_a0)) {
		struct barrier_a0 a;

		memcpy(&a, val, sizeof(a));
		*out = (struct rds_barrier_request){a.daddr, a.flags & BARRIER_A0_DONTWAIT, a.rdma_id_addr,
						    a.wait_rdma_id};
		epoch_note(RDS_EPOCH_24);
		return 0;
	}
	if (len == sizeof(struct barrier_b1)) {
		struct barrier_b1 b;

		memcpy(&b, val, sizeof(b));
		*out = (struct rds_barrier_request){b.daddr, b.flags & RDS_RDMA_DONTWAIT, b.rdma_id_addr,
						    b.wait_rdma_id};
		epoch_note(RDS_EPOCH_32);
		return 0;
	}
	return -EINVAL;
}
