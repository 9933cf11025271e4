/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cpu.c - asks once which fast instructions the processor has.
 */
#include "engine/sys/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool rds_copy_has_erms;

void rds_copy_start(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	rds_copy_has_erms = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 9)); /* ERMS */
#endif
}
