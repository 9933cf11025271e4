/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * compiler.h - hints to the compiler and container_of(), for every file.
 */
#ifndef ENGINE_SYS_COMPILER_H
#define ENGINE_SYS_COMPILER_H

#include <stddef.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))
/*
 * A variable of some pages that is zero at first, and of which most processes touch little. The linker puts
 * these behind all others, which then lie close together: so a process has few pages of them.
 */
#define RDS_TABLE __attribute__((section(".bss.tables")))
/* One of which the end is used, and one of which the beginning is: they lie side by side. */
#define RDS_TABLE_BEFORE(pair) __attribute__((section(".bss.tables." #pair ".0")))
#define RDS_TABLE_AFTER(pair) __attribute__((section(".bss.tables." #pair ".1")))

#endif
