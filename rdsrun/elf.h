/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * elf.h - the facts about an ELF file that decide whether the dynamic loader can preload a library
 * into it.
 *
 * The file is read by pread() with every offset checked: it may be damaged or hostile.
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
	/* Has a dynamic section: linked by the loader, or by the start-up code of a static PIE. */
	bool dynamic;
	bool go; /* made by the Go toolchain */
	/*
	 * Dynamic loader of an ELF file (empty: none, a static program), or the program of the #!
	 * line.
	 */
	char interp[256];
	char interp_arg[256]; /* the rest of the #! line */
};

/*
 * 0, or a negative errno if the file cannot be read. A file that is neither ELF nor a script is
 * ELF_NOT.
 */
int elf_read(int fd, struct elf_facts *out);

#endif
