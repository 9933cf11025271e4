/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * spec.h - the faults that are injected: one event in N on average, 0 never.  fault.c explains
 * them.
 */
#ifndef TESTS_FAULTS_TRANSPORT_SPEC_H
#define TESTS_FAULTS_TRANSPORT_SPEC_H

#include <stdbool.h>
#include <stdint.h>

struct fault_spec {
	uint64_t seed, disconnect, delay, delay_us, drop, connect, accept, send, later, memory, dup, show, post, kill;
};

/* False: not understood, *spec is not valid. */
bool fault_spec_parse(const char *s, struct fault_spec *spec);

#endif
