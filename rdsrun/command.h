/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * command.h - what rdsrun is asked to do.
 */
#ifndef RDSRUN_COMMAND_H
#define RDSRUN_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

enum { COMMAND_GO_ON = -1, COMMAND_USAGE = 2, COMMAND_CANNOT_RUN = 126, COMMAND_NOT_FOUND = 127 };

/* At most one of these is asked for. */
enum command_mode {
	COMMAND_RUN, /* a program */
	COMMAND_CHECK,
	COMMAND_HOLD,
	COMMAND_CHECK_PEER,
	COMMAND_PING,
	COMMAND_NODE,
	COMMAND_INFO,
	COMMAND_LIBRARY,
	COMMAND_OPTIONS,
	COMMAND_HELP,
	COMMAND_VERSION,
};

struct command {
	enum command_mode mode;
	const char *program;		/* of CHECK */
	const char *from;		/* of CHECK_PEER and PING; NULL: any */
	const char *count;		/* of PING; NULL: no end */
	bool json, watch;		/* of NODE */
	const char *interval, *metrics; /* NULL: none */
	const char *tables;		/* of INFO; NULL: all */
};

/*
 * Sets the variables that the options stand for.  COMMAND_GO_ON, and operands begin at `optind`; or
 * the status with which to end, which was explained.
 */
int command_parse(int argc, char **argv, struct command *out);
void command_usage(FILE *out);

#endif
