/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock.c - what all of the mock shares: the lock, faults, calls that are to fail, what exists,
 * pipes that tell of events.
 */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/mock/mock_impl.h"

struct mock_knobs mock;
pthread_mutex_t mock_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static unsigned exist[MOCK_KINDS];
static const char *const kinds[MOCK_KINDS] = {
	"device contexts",	 "protection domains", "memory regions", "completion channels", "completion queues",
	"shared receive queues", "queue pairs",	       "event channels", "rdma_cm ids",
};

static const char *const names[MOCK_FNS] = {
#define X(lib, ret, name, params) [MOCK_##name] = #name,
	VERBS_API(X)
#undef X
		[MOCK_ibv_poll_cq] = "ibv_poll_cq",
	[MOCK_ibv_post_send] = "ibv_post_send",
	[MOCK_ibv_post_srq_recv] = "ibv_post_srq_recv",
	[MOCK_ibv_post_recv] = "ibv_post_recv",
	[MOCK_ibv_req_notify_cq] = "ibv_req_notify_cq",
};

static struct rule {
	unsigned calls; /* in all */
	unsigned left;	/* until it fails; 0: does not */
	bool from;
	int err;
} rules[MOCK_FNS];

static struct {
	unsigned left;
	int err;
	const char *hit;
} any;

static struct {
	struct mock_dev *dev;
	unsigned left;
} pull;

void mock_unlock(int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&mock_mutex);
}

void mock_await_none(const unsigned *n)
{
	while (*n) {
		pthread_mutex_unlock(&mock_mutex);
		sched_yield();
		pthread_mutex_lock(&mock_mutex);
	}
}

void mock_fault(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(mock.fault, sizeof(mock.fault), fmt, ap);
	va_end(ap);
	mock.faults++;
	if (!mock.count_faults)
		ck_abort_msg("verbs: %s", mock.fault);
}

/* ---- calls that fail ---- */

/* What makes, starts or posts something. */
static bool can_run_out(enum mock_fn fn)
{
	switch (fn) {
	case MOCK_ibv_open_device:
	case MOCK_ibv_alloc_pd:
	case MOCK_ibv_create_comp_channel:
	case MOCK_ibv_create_cq:
	case MOCK_ibv_create_srq:
	case MOCK_ibv_modify_srq:
	case MOCK_ibv_query_device:
	case MOCK_ibv_query_qp:
	case MOCK_ibv_reg_mr:
	case MOCK_ibv_post_send:
	case MOCK_ibv_post_srq_recv:
	case MOCK_ibv_post_recv:
	case MOCK_ibv_req_notify_cq:
	case MOCK_rdma_accept:
	case MOCK_rdma_bind_addr:
	case MOCK_rdma_connect:
	case MOCK_rdma_create_event_channel:
	case MOCK_rdma_create_id:
	case MOCK_rdma_create_qp:
	case MOCK_rdma_listen:
	case MOCK_rdma_reject:
	case MOCK_rdma_resolve_addr:
	case MOCK_rdma_resolve_route:
	case MOCK_rdma_set_option:
		return true;
	default:
		return false;
	}
}

int mock_fails(enum mock_fn fn)
{
	struct rule *r = &rules[fn];

	r->calls++;
	if (pull.left && !--pull.left)
		mock_dev_remove(pull.dev);
	if (any.left && can_run_out(fn) && !--any.left) {
		any.hit = names[fn];
		return any.err;
	}
	if (!r->left)
		return 0;
	if (--r->left)
		return 0;
	if (r->from)
		r->left = 1;
	return r->err;
}

static void set_rule(enum mock_fn fn, unsigned n, int err, bool from)
{
	MOCK_LOCK;

	rules[fn].left = n;
	rules[fn].err = err;
	rules[fn].from = from;
}

void mock_fail(enum mock_fn fn, unsigned n, int err)
{
	set_rule(fn, n, err, false);
}

void mock_fail_from(enum mock_fn fn, unsigned n, int err)
{
	set_rule(fn, n, err, true);
}

void mock_fail_any(unsigned n, int err)
{
	MOCK_LOCK;

	any.left = n;
	any.err = err;
	any.hit = NULL;
}

bool mock_fail_hit(void)
{
	return any.hit;
}

const char *mock_fail_name(void)
{
	return any.hit ? any.hit : "";
}

void mock_pull_at(struct mock_dev *dev, unsigned n)
{
	MOCK_LOCK;

	pull.dev = dev;
	pull.left = n;
}

bool mock_pulled(void)
{
	return pull.dev && pull.dev->gone;
}

unsigned mock_calls(enum mock_fn fn)
{
	return rules[fn].calls;
}

/* ---- what exists ---- */

void mock_made(enum mock_kind kind)
{
	exist[kind]++;
}

void mock_unmade(enum mock_kind kind)
{
	exist[kind]--;
}

unsigned mock_count(enum mock_kind kind)
{
	return exist[kind];
}

void mock_check_leaks(void)
{
	MOCK_LOCK;
	unsigned i;

	for (i = 0; i < MOCK_KINDS; i++)
		if (exist[i])
			mock_fault("%u %s are left", exist[i], kinds[i]);
}

void mock_got(struct mock_acks *a)
{
	a->got++;
}

void mock_acked(struct mock_acks *a, unsigned n, const char *what)
{
	if (n > a->got - a->acked) {
		mock_fault("%s: %u events acknowledged, %u fetched", what, a->acked + n, a->got);
		n = a->got - a->acked;
	}
	a->acked += n;
}

bool mock_all_acked(const struct mock_acks *a, const char *what)
{
	if (a->got != a->acked)
		mock_fault("%s destroyed with %u events unacknowledged: sleeps for ever", what, a->got - a->acked);
	return a->got == a->acked;
}

/* ---- pipes: a byte for an event ---- */

int mock_pipe(int *out)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		ck_abort_msg("no pipe for the mock");
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	*out = fds[1];
	return fds[0];
}

void mock_pipe_fill(int out, const char *what)
{
	if (write(out, "", 1) != 1)
		mock_fault("%s: too many events that nobody fetches", what);
}

bool mock_pipe_take(int rd, const char *what)
{
	char byte;
	int fl = fcntl(rd, F_GETFL);

	if (fl & O_NONBLOCK)
		return read(rd, &byte, 1) == 1;
	fcntl(rd, F_SETFL, fl | O_NONBLOCK);
	if (read(rd, &byte, 1) == 1) {
		fcntl(rd, F_SETFL, fl);
		return true;
	}
	fcntl(rd, F_SETFL, fl);
	mock_fault("%s: would sleep for an event that does not come", what);
	errno = EINTR;
	return false;
}

/* ---- start ---- */

void mock_moved(void)
{
	static bool running;

	if (!mock.immediate || running)
		return;
	running = true;
	mock_run();
	running = false;
}

void mock_install(void)
{
	MOCK_LOCK;

	mock_wire_reset();
	mock_post_reset();
	mock_cm_reset();
	mock_dev_reset();
	memset(&mock, 0, sizeof(mock));
	mock.copies_on_fork = true;
	memset(exist, 0, sizeof(exist));
	memset(rules, 0, sizeof(rules));
	memset(&any, 0, sizeof(any));
	memset(&pull, 0, sizeof(pull));
	memset(&vb, 0, sizeof(vb));
	mock_dev_install();
	mock_async_install();
	mock_mem_install();
	mock_cq_install();
	mock_qp_install();
	mock_cm_install();
	mock_cm_end_install();
	mock_cm_event_install();
#define X(lib, ret, name, params)                                                                                      \
	if (!vb.name)                                                                                                  \
		ck_abort_msg("the mock has no " #name);
	VERBS_API(X)
#undef X
}
