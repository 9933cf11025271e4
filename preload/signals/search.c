/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * search.c - finds the signal frame of a handler that has interrupted a call.
 *
 * Only the unwinder can: it is the oldest one that is younger than the call.
 *
 * libgcc's unwinder is a part of the library where there is an archive of it. Else it is loaded with the
 * first RDS socket, because a handler cannot load it; that costs each process 16 KiB.
 */
#include "preload/signals/search.h"

#ifdef RDS_SIGNAL_FRAME

#include <dlfcn.h>
#include <unwind.h>

#define NESTED 8 /* handlers that are interrupted in such a place */

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
	ucontext_t *last; /* of all */
	bool came;	  /* as far as the call: else the unwinder has stopped */
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
	if (interrupted)
		s->last = frame_at(s->sp);
	if (interrupted && frame_in_call(s->last, s->top)) {
		s->frame = s->last;
		s->frame_run = s->run;
	}
	if (sp == s->top || (s->frame && sp >= s->top)) {
		s->came = true;
		return _URC_END_OF_STACK;
	}
	if (s->sp && (sp < s->sp || (size_t)(sp - s->sp) > CALL_MAX))
		s->run = sp;
	s->sp = sp;
	return _URC_NO_REASON;
}

/*
 * The unwinder stops at code that has no unwind information.  Of a function that has made no frame, such as what
 * AArch64 calls functions of other libraries through (the PLT), the caller is known all the same: the search begins
 * anew as if the signal had interrupted that one.  Other code without unwind information has made a call, as a rule,
 * so the register leads back to that code: there the search ends for good.
 */
bool reentry_search(struct reentry_search *found, const char *top)
{
	struct frame_search s;
	struct {
		ucontext_t *frame;
		uintptr_t pc;
	} moved[NESTED];
	uintptr_t caller;
	unsigned n = 0;

	if (!unwind.backtrace)
		return false;
	for (;;) {
		s = (struct frame_search){.top = top};
		unwind.backtrace(frame_search_step, &s);
		if (!s.last || s.came || n == NESTED || (n && moved[n - 1].frame == s.last) ||
		    !frame_caller(s.last, &moved[n].pc, &caller))
			break;
		moved[n++].frame = s.last;
		frame_set_pc(s.last, caller);
	}
	while (n--)
		frame_set_pc(moved[n].frame, moved[n].pc);
	*found = (struct reentry_search){.frame = s.frame, .run = s.frame_run};
	return s.frame;
}

#endif
