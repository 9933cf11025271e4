/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * frame.h - the kernel's signal frame, as far as processors differ in it.
 *
 * RDS_SIGNAL_FRAME is defined where it is known: elsewhere no call is rolled forward (reentry.c).
 */
#ifndef PRELOAD_SIGNALS_FRAME_H
#define PRELOAD_SIGNALS_FRAME_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "engine/sys/os.h"

#if defined(__x86_64__) && defined(__LP64__) && defined(__GLIBC__)
#define RDS_SIGNAL_FRAME 1
#define RED_ZONE 128 /* below its stack pointer a function may use so much */
#define ARCH_SHSTK_STATUS 0x5005
#define DIRECTION 0x400 /* the direction flag, which a function may expect to be clear */

/* The stack pointer of the function that was interrupted. */
static inline char *context_stack(const ucontext_t *c)
{
	return (char *)c->uc_mcontext.gregs[REG_RSP];
}

/* Where the context lies, by the stack pointer with which a handler returns. */
static inline ucontext_t *frame_at(char *sp)
{
	return (ucontext_t *)(void *)sp;
}

/* The frame leads to that function from now on, as if it were called. */
static inline void frame_lead_to(ucontext_t *c, uintptr_t function, uintptr_t argument, char *stack_end)
{
	greg_t *regs = c->uc_mcontext.gregs;

	regs[REG_RIP] = (greg_t)function;
	regs[REG_RDI] = (greg_t)argument;
	regs[REG_RSP] = (greg_t)(uintptr_t)(stack_end - sizeof(void *));
	regs[REG_EFL] &= ~(greg_t)DIRECTION;
}

/* Code without unwind information does not say where its caller is. */
static inline bool frame_caller(const ucontext_t *c, uintptr_t *pc, uintptr_t *caller)
{
	(void)c;
	(void)pc;
	(void)caller;
	return false;
}

static inline void frame_set_pc(ucontext_t *c, uintptr_t pc)
{
	c->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
}

static inline _Noreturn void frame_return(const ucontext_t *frame)
{
	__asm__ volatile("movq %0, %%rsp\n\tmovl %1, %%eax\n\tsyscall" ::"r"(frame), "i"(SYS_rt_sigreturn) : "memory");
	__builtin_unreachable();
}

static inline bool stack_is_shadowed(void)
{
	unsigned long shadow = 0;

	return os_syscall(SYS_arch_prctl, ARCH_SHSTK_STATUS, (long)&shadow, 0, 0, 0, 0) == 0 && (shadow & 1);
}

#elif defined(__aarch64__) && defined(__LP64__) && defined(__GLIBC__)
#define RDS_SIGNAL_FRAME 1
#define RED_ZONE 0
#define PR_SHADOW_STACK_STATUS 74
#define BRANCH_TYPE 0xc00 /* says that the last instruction was a branch, of a kind that the next has to allow */

static inline char *context_stack(const ucontext_t *c)
{
	return (char *)(uintptr_t)c->uc_mcontext.sp;
}

/* Before it lies what the handler was told of the signal. */
static inline ucontext_t *frame_at(char *sp)
{
	return (ucontext_t *)(void *)(sp + sizeof(siginfo_t));
}

static inline void frame_lead_to(ucontext_t *c, uintptr_t function, uintptr_t argument, char *stack_end)
{
	c->uc_mcontext.pc = function;
	c->uc_mcontext.regs[0] = argument;
	c->uc_mcontext.sp = (uintptr_t)stack_end;
	c->uc_mcontext.pstate &= ~(unsigned long long)BRANCH_TYPE;
}

/* Where the interrupted code is, and where its caller is if it has made no frame. */
static inline bool frame_caller(const ucontext_t *c, uintptr_t *pc, uintptr_t *caller)
{
	*pc = c->uc_mcontext.pc;
	*caller = c->uc_mcontext.regs[30];
	return *pc != *caller;
}

static inline void frame_set_pc(ucontext_t *c, uintptr_t pc)
{
	c->uc_mcontext.pc = pc;
}

static inline _Noreturn void frame_return(const ucontext_t *frame)
{
	register long number __asm__("x8") = SYS_rt_sigreturn;

	__asm__ volatile("mov sp, %0\n\tsvc #0" ::"r"((const char *)frame - sizeof(siginfo_t)), "r"(number) : "memory");
	__builtin_unreachable();
}

static inline bool stack_is_shadowed(void)
{
	unsigned long shadow = 0;

	return os_syscall(SYS_prctl, PR_SHADOW_STACK_STATUS, (long)&shadow, 0, 0, 0, 0) == 0 && (shadow & 1);
}

#endif
#endif
