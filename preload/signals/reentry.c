/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * reentry.c - how an interrupted call runs to its end while the handler that has interrupted it
 * waits (reentry.h).
 *
 * Both need the same piece of the stack: the handler's frames, with the kernel's signal frame above
 * them, lie where the interrupted call puts its next frames. So there are three steps:
 *
 *   forward  The handler's piece is copied away, and rt_sigreturn() is done on the signal frame,
 *            as if the handler had returned. Only the mask in the frame is changed, so that no
 *            signal comes in between.
 *   back     When the call leaves, the part of its stack that lies in that place is copied away,
 *            the handler's piece is put back, and the handler goes on. The signal frame now leads
 *            to step_after().
 *   after    The handler has returned: the call's piece is put back, and the call leaves.
 *
 * All three copy while they run on a stack of their own. A handler that leaves by siglongjmp()
 * never comes to step_after(). The next handler that interrupts a call frees what it has left
 * behind: the old signal frame lies among the frames of that handler.
 *
 * Not done: on processors other than x86-64 and AArch64, and with libcs other than glibc; under
 * AddressSanitizer, which has marked the handler's frames, and under ThreadSanitizer; with shadow
 * stacks, which let no function return twice.
 */
#include "preload/signals/reentry.h"

#include "engine/sys/os.h"
#include "preload/signals/frame.h"
#include "preload/signals/search.h"

__thread struct reentry_state reentry_state;

/* ---- the sleeps ---- */

/*
 * False: a handler waits for the end of this call. The sleeping function keeps in its own frame
 * what it restores afterwards, and not behind pointers: a thread that is cancelled in the sleep
 * leaves its frame as it is.
 */
static bool reentry_sleep_begin(void)
{
	unsigned depth = reentry_state.depth;

	reentry_state.depth = 0; /* from here on a handler does not wait for the end of this call */
	atomic_signal_fence(memory_order_seq_cst);
	if (likely(!reentry_state.waiting_handler))
		return true;
	reentry_state.depth = depth;
	reentry_state.cut = true;
	errno = EINTR;
	return false;
}

bool reentry_sleep_is_cut(void)
{
	return reentry_state.waiting_handler;
}

static void reentry_sleep_end(char *top, unsigned depth)
{
	if (unlikely(reentry_state.async))
		signals_cancel_defer(top, depth); /* a handler may have ended a call of its own */
	else
		reentry_call_mark(top, depth);
}

ssize_t reentry_sleep_read(int fd, void *buf, size_t len)
{
	unsigned depth = reentry_state.depth;
	char *top = reentry_state.top;
	ssize_t n;

	if (!reentry_sleep_begin())
		return -1;
	n = libc_real.read(fd, buf, len);
	reentry_sleep_end(top, depth);
	return n;
}

int reentry_sleep_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	unsigned depth = reentry_state.depth;
	char *top = reentry_state.top;
	int rc;

	if (!reentry_sleep_begin())
		return -1;
	rc = libc_real.ppoll(fds, n, timeout, mask);
	reentry_sleep_end(top, depth);
	return rc;
}

/*
 * The engine's two sleeps are cancellation points, and are restarted as the kernel restarts them.
 */
static void sleep_init(void)
{
	rds_os_sleep.read = reentry_sleep_read;
	rds_os_sleep.ppoll = reentry_sleep_ppoll;
	rds_os_sleep.cut = reentry_sleep_is_cut;
}

#ifdef RDS_SIGNAL_FRAME

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#define SCRATCH 32768u
/* From the frame where a call begins to the one where it leaves: a few frames of preload/. */
#define LEAVE_MAX 65536u
/*
 * Of stack: what the kernel takes below an interrupted function, with the registers of the largest
 * processors.
 */
#define FRAME_MAX (64u << 10)

struct piece {
	char *low, *copy;
	size_t len, room;
};

struct reentry {
	struct reentry *next;
	/*
	 * The kernel's signal frame. Once the handler's piece is saved, the call may write over it.
	 */
	ucontext_t *frame;
	char *end;   /* the end of all that the kernel has put on the stack for the handler */
	bool shared; /* the handler runs on the call's stack */
	/* The handler's piece is from here to the frame. NULL: from its current stack pointer. */
	char *low;
	ucontext_t handler, call, mover;
	struct piece handlers, calls;
	/* signal masks: of the interrupted code, of the handler, meanwhile */
	uint64_t before, mask, blocked;
	stack_t signals; /* the handler's sigaltstack(), on which it may run */
	bool failed;
	char calls_copy[LEAVE_MAX];
	char stack[SCRATCH] __attribute__((aligned(64)));
};

static _Atomic(struct reentry *) reentry_spare;

static void reentry_thread_end(void *arg);
static pthread_key_t thread_key;
/* Also puts a child in order that no fork handler has seen. */
static bool (*process_is_ours)(void);

void reentry_init(bool (*is_ours)(void))
{
	sleep_init();
	process_is_ours = is_ours;
	if (dlsym(RTLD_DEFAULT, "__asan_init") || dlsym(RTLD_DEFAULT, "__tsan_init"))
		return;
	if (stack_is_shadowed())
		return;
	if (pthread_key_create(&thread_key, reentry_thread_end) == 0)
		reentry_search_init();
}

/* ---- the signal frame ---- */

static bool frame_on_call_stack(const ucontext_t *frame)
{
	return (char *)frame < context_stack(frame) && (size_t)(context_stack(frame) - (char *)frame) < FRAME_MAX;
}

/* ---- how the signal was to be handled ---- */

struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};

static bool signal_has_handler(int sig, struct kernel_sigaction *a)
{
	return os_syscall(SYS_rt_sigaction, sig, 0, (long)a, OS_KERNEL_SIGSET, 0, 0) == 0 && a->handler != SIG_DFL &&
	       a->handler != SIG_IGN;
}

static uint64_t signal_bit(int sig)
{
	return UINT64_C(1) << (sig - 1);
}

/*
 * The frame does not say which signal it was. That signal is blocked now and was not before, and
 * all other signals that have become blocked are in its mask. If several signals fit, all of them
 * must have SA_RESTART. If none fits, because another handler has interrupted the first, all that
 * have become blocked must have it. If none has become blocked (SA_NODEFER), all that have handlers
 * must.
 */
static bool signal_restarts(uint64_t before, uint64_t now)
{
	uint64_t came = now & ~before;
	bool all = true, all_likely = true, likely_one = false, all_came = true, one_came = false;
	struct kernel_sigaction a;

	for (int sig = 1; sig < _NSIG; sig++) {
		if (!signal_has_handler(sig, &a))
			continue;
		all &= !!(a.flags & SA_RESTART);
		if (came & signal_bit(sig)) {
			one_came = true;
			all_came &= !!(a.flags & SA_RESTART);
		}
		if ((came & signal_bit(sig)) && !(came & ~(a.mask | signal_bit(sig)))) {
			likely_one = true;
			all_likely &= !!(a.flags & SA_RESTART);
		}
	}
	if (likely_one)
		return all_likely;
	return one_came ? all_came : all;
}

/* Signals of the program's own faults are not held up. */
static uint64_t signal_all_but_faults(void)
{
	return ~(signal_bit(SIGSEGV) | signal_bit(SIGBUS) | signal_bit(SIGFPE) | signal_bit(SIGILL) |
		 signal_bit(SIGTRAP) | signal_bit(SIGSYS));
}

static void signal_mask_swap(const uint64_t *mask, uint64_t *before)
{
	os_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)mask, (long)before, OS_KERNEL_SIGSET, 0, 0);
}

/* ---- pieces of the stack ---- */

static bool piece_reserve(struct piece *p, char *low, const char *high)
{
	p->low = low;
	p->len = high > low ? (size_t)(high - low) : 0;
	if (p->len <= p->room)
		return true;
	if (p->room)
		munmap(p->copy, p->room);
	p->room = (p->len + LEAVE_MAX - 1) & ~(size_t)(LEAVE_MAX - 1);
	p->copy = mmap(NULL, p->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->copy != MAP_FAILED)
		return true;
	p->room = 0;
	return false;
}

static void piece_save(const struct piece *p)
{
	if (p->len)
		memcpy(p->copy, p->low, p->len);
}

static void piece_restore(const struct piece *p)
{
	if (p->len)
		memcpy(p->low, p->copy, p->len);
}

/* ---- on the stack of its own ---- */

static struct reentry *reentry_from_halves(unsigned low, unsigned high)
{
	return (struct reentry *)((uintptr_t)low | (uintptr_t)high << 32);
}

static void reentry_on_scratch(struct reentry *r, ucontext_t *from, void (*fn)(unsigned low, unsigned high))
{
	getcontext(&r->mover);
	r->mover.uc_stack.ss_sp = r->stack;
	r->mover.uc_stack.ss_size = sizeof(r->stack);
	r->mover.uc_link = NULL;
	makecontext(&r->mover, (void (*)(void))fn, 2, (unsigned)(uintptr_t)r, (unsigned)((uintptr_t)r >> 32));
	swapcontext(from, &r->mover);
}

static void frame_mask_set(const struct reentry *r, const uint64_t *mask)
{
	memcpy(&r->frame->uc_sigmask, mask, OS_KERNEL_SIGSET);
}

static void step_forward(unsigned low, unsigned high)
{
	struct reentry *r = reentry_from_halves(low, high);
	char *from = r->low ? r->low : context_stack(&r->handler);

	if (r->shared && !piece_reserve(&r->handlers, from, r->end)) {
		r->failed = true;
		setcontext(&r->handler);
	}
	piece_save(&r->handlers);
	frame_mask_set(r, &r->blocked);
	frame_return(r->frame);
}

static void step_after(struct reentry *r)
{
	piece_restore(&r->calls);
	setcontext(&r->call);
}

/*
 * The call leaves. Of its stack this saves what lies where the handler's frames were, or below,
 * where the handler goes on.
 */
static void step_back(unsigned low, unsigned high)
{
	struct reentry *r = reentry_from_halves(low, high);

	r->calls = (struct piece){.copy = r->calls_copy, .room = sizeof(r->calls_copy)};
	if (r->shared && !piece_reserve(&r->calls, context_stack(&r->call), r->end))
		__builtin_trap(); /* a function of preload/ with a frame of 64 KiB */
	piece_save(&r->calls);
	piece_restore(&r->handlers);
	frame_lead_to(r->frame, (uintptr_t)step_after, (uintptr_t)r, r->stack + sizeof(r->stack));
	frame_mask_set(r, &r->blocked);
	/*
	 * The signal frame has brought back the call's signal stack. With SS_AUTODISARM it is not
	 * the same as the handler's.
	 */
	sigaltstack(&r->signals, NULL);
	setcontext(&r->handler);
}

/* ---- the three steps ---- */

static bool reentry_on_signal_stack(const struct reentry *r)
{
	const char *low = r->signals.ss_sp, *at = (const char *)r->frame;

	return at >= low && at < low + r->signals.ss_size;
}

/*
 * True: the handler of `old` is over and has not come back. Its frame lies among those of the
 * handler that runs now.
 */
static bool reentry_is_over(const struct reentry *old, const struct reentry *r, const char *here)
{
	const char *frame = (const char *)old->frame, *low = r->shared ? here - CALL_MAX : here;

	return reentry_on_signal_stack(old) == reentry_on_signal_stack(r) && frame >= low &&
	       frame < (const char *)r->frame + sizeof(*r->frame);
}

/* One is kept for reuse: the cost of its pages is most of its cost. */
static void reentry_free(struct reentry *r)
{
	struct reentry *none = NULL;

	if (atomic_compare_exchange_strong(&reentry_spare, &none, r))
		return;
	if (r->handlers.room)
		munmap(r->handlers.copy, r->handlers.room);
	munmap(r, sizeof(*r));
}

static void reentry_free_over(const struct reentry *r, const char *here)
{
	struct reentry **p = &reentry_state.late_handlers, *old;

	while ((old = *p)) {
		if (reentry_is_over(old, r, here)) {
			*p = old->next;
			reentry_free(old);
		} else {
			p = &old->next;
		}
	}
}

/* Frees what handlers that never came back have left. */
static void reentry_thread_end(void *arg)
{
	uint64_t blocked = signal_all_but_faults(), mask;
	struct reentry_state *inside = arg;
	struct reentry *r;

	signal_mask_swap(&blocked, &mask);
	while ((r = inside->late_handlers)) {
		inside->late_handlers = r->next;
		reentry_free(r);
	}
	signal_mask_swap(&mask, NULL);
}

static struct reentry *reentry_new(const struct reentry_search *s)
{
	struct reentry *r = atomic_exchange(&reentry_spare, NULL);

	if (!r)
		r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r == MAP_FAILED)
		return NULL;
	r->handlers.len = r->calls.len = 0;
	r->failed = false;
	r->frame = s->frame;
	r->end = context_stack(s->frame) - RED_ZONE;
	memcpy(&r->before, &s->frame->uc_sigmask, OS_KERNEL_SIGSET);
	r->blocked = signal_all_but_faults();
	r->shared = frame_on_call_stack(s->frame);
	r->low = s->run ? s->run - RED_ZONE : NULL;
	return r;
}

/* Signals are blocked here: the effect of another handler on the call would not be noticed. */
static void reentry_start(const uint64_t *mask)
{
	struct reentry_search s;
	struct reentry *r;

	/*
	 * A child that shares our memory, or has a copy of it that no fork handler has seen, has no
	 * call to finish.
	 */
	if (!process_is_ours() || !reentry_state.depth || reentry_state.waiting_handler ||
	    !reentry_search(&s, reentry_state.top))
		return;
	r = reentry_new(&s);
	if (!r)
		return;
	r->mask = *mask;
	r->blocked |= r->before | r->mask;
	sigaltstack(NULL, &r->signals);
	r->signals.ss_flags &= ~SS_ONSTACK;
	reentry_free_over(r, __builtin_frame_address(0));
	reentry_state.waiting_handler = r;
	reentry_state.cut = false;
	reentry_on_scratch(r, &r->handler, step_forward);
	if (!r->failed)
		return;
	reentry_state.waiting_handler = NULL;
	reentry_free(r);
}

void reentry_call_finish(void)
{
	uint64_t blocked = signal_all_but_faults(), mask;
	int saved = errno;

	signal_mask_swap(&blocked, &mask);
	reentry_start(&mask);
	signal_mask_swap(&mask, NULL);
	errno = saved;
}

/*
 * All of the call but this function is over. If the handler does not come back, this is over, too.
 */
bool reentry_handler_resume(void)
{
	struct reentry *r = reentry_state.waiting_handler, **p;
	bool again = reentry_state.cut && signal_restarts(r->before, r->mask);
	uint64_t before = r->before;
	int saved = errno;

	reentry_state.waiting_handler = NULL;
	/* Not before: this may allocate, and the call may have been in malloc(). */
	pthread_setspecific(thread_key, &reentry_state);
	r->next = reentry_state.late_handlers;
	reentry_state.late_handlers = r;
	reentry_on_scratch(r, &r->call, step_back);
	for (p = &reentry_state.late_handlers; *p != r; p = &(*p)->next)
		;
	*p = r->next;
	reentry_free(r);
	/* Last: a handler may come at once, and may never come back. */
	signal_mask_swap(&before, NULL);
	errno = saved;
	return again;
}

#else

void reentry_init(bool (*is_ours)(void))
{
	(void)is_ours;
	sleep_init();
}

void reentry_call_finish(void)
{
}

bool reentry_handler_resume(void)
{
	return false;
}

#endif
