/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * search.h - the signal frame of a handler that has interrupted a call (search.c).
 */
#ifndef PRELOAD_SIGNALS_SEARCH_H
#define PRELOAD_SIGNALS_SEARCH_H

#include <stddef.h>

#include "preload/signals/frame.h"

#ifdef RDS_SIGNAL_FRAME

#define CALL_MAX (8u << 20) /* of stack, that a call may take */

struct reentry_search {
	ucontext_t *frame;
	/*
	 * Where the frames of handlers begin that lie on the same stack as that one. NULL: that is the
	 * stack of the search.
	 */
	char *run;
};

/* Once. */
void reentry_search_init(void);
/* From a handler: which frame has interrupted the call whose stack ends at top?  False: none, or it cannot be found. */
bool reentry_search(struct reentry_search *found, const char *top);

#endif
#endif
