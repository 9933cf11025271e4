/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * elf.h - the few facts about an ELF file that decide whether the dynamic loader can put a library in front of it.
 * Reads the file by pread() with every offset checked: the file may be damaged or hostile.
 */
#ifndef RDSRUN_ELF_H
#define RDSRUN_ELF_H

#include <stdbool.h>
#include <stdint.h>

enum elf_kind { ELF_NOT, ELF_SCRIPT, ELF_FILE };

struct elf_facts {
	enum elf_kind kind;
	int bits;	   /* 32 or 64 */
	unsigned machine;  /* EM_* */
	bool big_endian;
	bool dynamic;	   /* has a dynamic section: the loader links it, directly or by static PIE start-up code */
	bool go;	   /* made by the Go tool chain */
	char interp[256];  /* dynamic loader of an ELF file (empty: none, a static program), or the #! line's program */
	char interp_arg[256]; /* what follows it on the #! line */
};

/* 0, or a negative errno when the file cannot be read.  A file that is neither ELF nor script is ELF_NOT. */
int elf_read(int fd, struct elf_facts *out);

#endif
