/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the two files of the agent share. */
#ifndef AGENT_H
#define AGENT_H

#include "far.h"

void serve_calls(int listener) __attribute__((noreturn));

#endif
