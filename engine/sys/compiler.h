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

#endif
