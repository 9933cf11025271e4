/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * search.c - finds the signal frame of a handler that has interrupted a call.
 *
 * Only the unwinder can: it is the oldest one that is younger than the call.  The unwinder does not see past
 * code that has no unwind information, such as that through which AArch64 calls functions of other libraries.
 * If a handler was interrupted there before it has made a call, that handler's place is all that is found.
 *
 * libgcc's unwinder is a part of the library where there is an archive of it. Else it is loaded with the
 * first RDS socket, because a handler cannot load it; that costs each process 16 KiB.
 */
#include "preload/signals/search.h"

#ifdef RDS_SIGNAL_FRAME

#include <dlfcn.h>
#include <unwind.h>

static struct {
	__typeof__(_Unwind_Backtrace) *backtrace;
	__typeof__(_Unwind_GetCFA) *cfa;
	__typeof__(_Unwind_GetIPInfo) *ip;
} unwind;

#ifdef HAVE_GCC_EH
void reentry_search_init(void)
{
	unwind.cfa = _Unwind_GetCFA;
	unwind.ip = _Unwind_GetIPInfo;
	unwind.backtrace = _Unwind_Backtrace;
}
#else
void reentry_search_init(void)
{
	void *lib = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);

	(void)dlerror(); /* a missing library is not the program's business */
	if (!lib)
		return;
	unwind.cfa = (__typeof__(unwind.cfa))dlsym(lib, "_Unwind_GetCFA");
	unwind.ip = (__typeof__(unwind.ip))dlsym(lib, "_Unwind_GetIPInfo");
	if (unwind.cfa && unwind.ip)
		unwind.backtrace = (__typeof__(unwind.backtrace))dlsym(lib, "_Unwind_Backtrace");
}
#endif

struct frame_search {
	const char *top; /* of the call's stack */
	char *sp;	 /* of the function before */
	/*
	 * ... and of the youngest function on the same stack. NULL: that is the stack of the
	 * search.
	 */
	char *run;
	ucontext_t *frame; /* the last one found */
	char *frame_run;
	/* the last one of all; it counts if the search does not come as far as the call, from a stack of its own */
	ucontext_t *last;
	char *last_run;
	bool came;
};

/* Has the signal interrupted the call? */
static bool frame_in_call(const ucontext_t *frame, const char *top)
{
	return context_stack(frame) <= top && (size_t)(top - context_stack(frame)) < CALL_MAX;
}

/*
 * The unwinder starts from the youngest function. Before the interrupted function it shows the one
 * that the handler returns to, whose stack pointer tells where the context lies. Beyond the call
 * there may be another signal frame: the call may be a handler's.
 */
static _Unwind_Reason_Code frame_search_step(struct _Unwind_Context *c, void *arg)
{
	struct frame_search *s = arg;
	char *sp = (char *)unwind.cfa(c);
	int interrupted = 0;

	unwind.ip(c, &interrupted);
	if (interrupted) {
		s->last = frame_at(s->sp);
		s->last_run = s->run;
	}
	if (interrupted && frame_in_call(s->last, s->top)) {
		s->frame = s->last;
		s->frame_run = s->run;
	}
	s->came |= sp == s->top;
	if (s->came || (s->frame && sp >= s->top))
		return _URC_END_OF_STACK;
	if (s->sp && (sp < s->sp || (size_t)(sp - s->sp) > CALL_MAX))
		s->run = sp;
	s->sp = sp;
	return _URC_NO_REASON;
}

bool reentry_stack_has(const stack_t *stack, const char *at)
{
	return at >= (char *)stack->ss_sp && at < (char *)stack->ss_sp + stack->ss_size;
}

static bool frame_is_of_other_stack(const ucontext_t *frame, const char *top)
{
	stack_t signals;

	sigaltstack(NULL, &signals);
	return reentry_stack_has(&signals, context_stack(frame)) && !reentry_stack_has(&signals, top);
}

bool reentry_search(struct reentry_search *found, const char *top)
{
	struct frame_search s = {.top = top};

	if (!unwind.backtrace)
		return false;
	unwind.backtrace(frame_search_step, &s);
	*found = (struct reentry_search){.frame = s.frame, .run = s.frame_run};
	if (!s.frame && !s.came && s.last && frame_is_of_other_stack(s.last, top))
		*found = (struct reentry_search){.frame = s.last, .run = s.last_run};
	return found->frame;
}

#endif
