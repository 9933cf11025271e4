/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info.h - the tables of rds-info(8).  For a process that has the library preloaded.
 */
#ifndef RDSRUN_INFO_H
#define RDSRUN_INFO_H

/* Does each letter stand for a table?  NULL: all are wanted. */
int info_is_sound(const char *letters);
/* Prints these tables.  An exit status. */
int info_show(const char *letters);

#endif
