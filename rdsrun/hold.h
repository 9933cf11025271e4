/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * hold.h - addresses of this host, and who has the RDS connections over TCP from them.  For a process
 * that has the library preloaded.
 */
#ifndef RDSRUN_HOLD_H
#define RDSRUN_HOLD_H

#include <stdio.h>

#include "rdsrun/addr.h"

#define RDS_TCP_PORT 16385

/*
 * Binds each of the addresses (NULL ends the list), says so on stderr, and waits for a signal to
 * end.  An exit status.
 */
int hold_addresses(char *const names[]);

/* A TCP socket that does not block. */
int hold_tcp_socket(const struct addr *a);

/* An RDS socket that is bound there; -1: said why not, after `what`. */
int hold_bind(FILE *out, const char *what, const struct addr *local);

/*
 * What rds-info is told by one of its options: n records of `each` bytes, to be freed; NULL if there
 * are none.
 */
unsigned char *hold_info(int fd, int option, size_t *n, int *each);

enum hold_role {
	HOLD_NONE,   /* neither of the two */
	HOLD_OWNER,  /* this process has the connections */
	HOLD_MEMBER, /* another process of the node has them, and forwards */
};

/* `fd` is bound there.  The port may just change hands, so it is looked at for a while. */
enum hold_role hold_role(int fd, const struct addr *local);

/* One line about why there is none, after `what`. */
void hold_explain(FILE *out, const char *what, const struct addr *local);

#endif
