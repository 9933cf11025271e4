/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_cmsg.c - any bytes as the control buffer of a sendmsg, and any size of buffer for received
 * messages.  Both buffers end where the mapping ends, so one byte too far is a crash.
 *
 * Input: flags, two sizes for the receiving side, then the control buffer.  Each input is tried a
 * second time as another process's (foreign_memory.h): its memory is the control buffer, and
 * nothing else.
 *
 * fuzz-sources: engine/abi/cmsg.c engine/abi/caller.c engine/abi/revisions.c
 * fuzz-sources: engine/sys/uaccess.c engine/sys/os.c engine/sys/signals.c engine/sys/own_fds.c
 * fuzz-sources: engine/sys/fd_table.c engine/sys/options.c engine/sys/log.c
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/abi/cmsg.h"
#include "engine/abi/foreign_memory.h"
#include "engine/sys/uaccess.h"
#include "rds_abi.h"

#define ARENA 8192u
#define KNOBS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* Memory that ends at a hole. */
static unsigned char *arena(void)
{
	unsigned char *p = mmap(NULL, ARENA + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	must(!munmap(p + ARENA, 4096));
	return p;
}

/*
 * Words that could be addresses: the first small number where RDMA arguments could have their local
 * vector gets to point into the control buffer itself (which ends at a hole).  Other numbers of the
 * application's half are moved to where nothing is, because one that hits the sanitizer's own
 * mappings is readable for the kernel and an error for the sanitizer.
 */
static void aim_pointers(unsigned char *control, size_t len)
{
	const size_t vector = CMSG_LEN(offsetof(struct rds_rdma_args, local_vec_addr));
	bool aimed = false;
	uint64_t word;

	for (size_t at = 0; at + sizeof(word) <= len; at += sizeof(word)) {
		memcpy(&word, control + at, sizeof(word));
		if (at >= vector && word <= len && !aimed) {
			word += (uintptr_t)control;
			aimed = true;
		} else if (word >= 0x10000 && word < UINT64_C(1) << 47) {
			word |= UINT64_C(1) << 62;
		}
		memcpy(control + at, &word, sizeof(word));
	}
}

static void send_side(unsigned char *control, size_t len, int flags)
{
	struct msghdr msg = {.msg_control = control, .msg_controllen = len};
	struct rds_cmsg_summary c;
	unsigned ops = RDS_HAS_ARGS | RDS_HAS_ATOMIC;
	int scan, check, refuse;

	rds_user_forget();
	scan = rds_cmsg_scan(&msg, &c);
	must(scan == 0 || scan == -EINVAL);
	must(!c.level || c.level == SOL_RDS || c.level == SOL_RDS_HISTORIC || c.level == SOL_RDS_2006);
	check = rds_cmsg_check(&msg, flags, 0, &c);
	must(check <= 0 && !(scan && !check));
	must(check || !(c.present & ops) || !(c.present & ~ops));
	must(check || !(flags & MSG_ZEROCOPY) || (c.present & RDS_HAS_ZCOPY));
	refuse = rds_cmsg_refuse(&msg);
	must(refuse <= 0 && !(scan && !refuse));
	must(check || !c.present == !refuse);
}

static const unsigned char *theirs;
static size_t theirs_len;

int rds_foreign_memory_copy(struct rds_foreign_memory *m, uint64_t there, void *here, size_t len, bool put)
{
	(void)m;
	must(!put);
	if (there < (uintptr_t)theirs || there - (uintptr_t)theirs > theirs_len ||
	    len > theirs_len - (there - (uintptr_t)theirs))
		return -EFAULT;
	memcpy(here, (const void *)(uintptr_t)there, len);
	return 0;
}

static void send_for_another(unsigned char *control, size_t len, int flags, bool fault)
{
	const struct rds_caller caller = {.fault = fault, .epoch = flags ? 1 : 0};

	theirs = control;
	theirs_len = len;
	rds_caller = &caller;
	send_side(control, len, flags);
	rds_caller = NULL;
}

/* Two messages of the given sizes into room bytes. */
static void receive_side(unsigned char *end, size_t room, size_t first, size_t second)
{
	static const unsigned char body[256];
	unsigned char *start = end - room;
	struct msghdr msg = {.msg_control = start, .msg_controllen = room};
	struct rds_cmsg_out out;
	struct cmsghdr hdr;
	size_t at = 0;

	rds_cmsg_out_init(&out, &msg);
	must(rds_cmsg_put(&out, SOL_RDS, RDS_CMSG_RDMA_DEST, body, first) == 0);
	must(rds_cmsg_put(&out, SOL_RDS, RDS_CMSG_RXPATH_LATENCY, body, second) == 0);
	must(out.used <= room);
	must((room < CMSG_SPACE(first) + CMSG_LEN(second)) == (out.flags == MSG_CTRUNC));
	while (out.used - at >= sizeof(hdr)) { /* what was written can be walked */
		memcpy(&hdr, start + at, sizeof(hdr));
		must(hdr.cmsg_level == SOL_RDS && hdr.cmsg_len >= sizeof(hdr) && hdr.cmsg_len <= out.used - at);
		at += CMSG_ALIGN(hdr.cmsg_len) < out.used - at ? CMSG_ALIGN(hdr.cmsg_len) : out.used - at;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char *from, *to;
	size_t len;

	if (size < KNOBS || size > ARENA)
		return 0;
	if (!from) {
		from = arena();
		to = arena();
	}
	len = size - KNOBS;
	memcpy(from + ARENA - len, data + KNOBS, len);
	aim_pointers(from + ARENA - len, len);
	send_side(from + ARENA - len, len, data[0] & 1 ? MSG_ZEROCOPY : 0);
	send_for_another(from + ARENA - len, len, data[0] & 1 ? MSG_ZEROCOPY : 0, data[0] & 2);
	receive_side(to + ARENA, len, data[1], data[2]);
	return 0;
}
