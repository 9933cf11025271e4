/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * elf.c - reads the facts of elf.h from a file.
 *
 * Only the header, the program headers and the section names are looked at. 32 and 64 bit, but only
 * the byte order of this machine: a file of the other order does not run here anyway, and the
 * caller reports it.
 */
#include "rdsrun/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MAX_HEADERS 4096u

static const unsigned char native_order = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? ELFDATA2MSB : ELFDATA2LSB;

static ssize_t read_at(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n;

	if (off > INT64_MAX - len)
		return 0;
	do
		n = pread(fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static bool read_all(int fd, void *buf, size_t len, uint64_t off)
{
	return read_at(fd, buf, len, off) == (ssize_t)len;
}

/* The three tables that are needed, widened to 64 bits. */
struct tables {
	uint64_t phoff, shoff;
	unsigned phnum, phsize, shnum, shsize, shstr;
};

static bool read_header(int fd, const unsigned char *ident, struct elf_facts *f, struct tables *t)
{
	if (ident[EI_CLASS] == ELFCLASS64) {
		Elf64_Ehdr e;

		if (!read_all(fd, &e, sizeof(e), 0))
			return false;
		f->bits = 64;
		f->machine = e.e_machine;
		*t = (struct tables){e.e_phoff,	   e.e_shoff, e.e_phnum,    e.e_phentsize,
				     e.e_shnum, e.e_shentsize, e.e_shstrndx};
		return e.e_phentsize >= sizeof(Elf64_Phdr);
	}
	if (ident[EI_CLASS] == ELFCLASS32) {
		Elf32_Ehdr e;

		if (!read_all(fd, &e, sizeof(e), 0))
			return false;
		f->bits = 32;
		f->machine = e.e_machine;
		*t = (struct tables){e.e_phoff,	   e.e_shoff, e.e_phnum,    e.e_phentsize,
				     e.e_shnum, e.e_shentsize, e.e_shstrndx};
		return e.e_phentsize >= sizeof(Elf32_Phdr);
	}
	return false;
}

static bool read_segment(int fd, int bits, uint64_t at, Elf64_Phdr *out)
{
	Elf32_Phdr p;

	if (bits == 64)
		return read_all(fd, out, sizeof(*out), at);
	if (!read_all(fd, &p, sizeof(p), at))
		return false;
	*out = (Elf64_Phdr){.p_type = p.p_type, .p_offset = p.p_offset, .p_filesz = p.p_filesz};
	return true;
}

static void read_segments(int fd, struct elf_facts *f, const struct tables *t)
{
	for (unsigned i = 0; i < t->phnum && i < MAX_HEADERS; i++) {
		Elf64_Phdr p;

		if (!read_segment(fd, f->bits, t->phoff + (uint64_t)i * t->phsize, &p))
			return;
		if (p.p_type == PT_DYNAMIC)
			f->dynamic = true;
		if (p.p_type == PT_INTERP && p.p_filesz > 1 && p.p_filesz <= sizeof(f->interp)) {
			if (!read_all(fd, f->interp, (size_t)p.p_filesz, p.p_offset))
				f->interp[0] = '\0';
			f->interp[sizeof(f->interp) - 1] = '\0';
		}
	}
}

static bool read_section(int fd, int bits, uint64_t at, uint32_t *name, uint64_t *offset)
{
	Elf64_Shdr s64;
	Elf32_Shdr s32;

	if (bits == 64) {
		if (!read_all(fd, &s64, sizeof(s64), at))
			return false;
		*name = s64.sh_name;
		*offset = s64.sh_offset;
		return true;
	}
	if (!read_all(fd, &s32, sizeof(s32), at))
		return false;
	*name = s32.sh_name;
	*offset = s32.sh_offset;
	return true;
}

/* Go marks its executables with sections of its own, which strip(1) leaves in place. */
static void read_sections(int fd, struct elf_facts *f, const struct tables *t)
{
	uint64_t names, unused;
	uint32_t name;

	if (!read_section(fd, f->bits, t->shoff + (uint64_t)t->shstr * t->shsize, &name, &names))
		return;
	for (unsigned i = 0; i < t->shnum && i < MAX_HEADERS; i++) {
		char text[20] = "";

		if (!read_section(fd, f->bits, t->shoff + (uint64_t)i * t->shsize, &name, &unused))
			return;
		if (read_at(fd, text, sizeof(text) - 1, names + name) <= 0)
			continue;
		if (!strcmp(text, ".go.buildinfo") || !strcmp(text, ".note.go.buildid")) {
			f->go = true;
			return;
		}
	}
}

static void read_script(const char *line, struct elf_facts *f)
{
	size_t n;

	f->kind = ELF_SCRIPT;
	line += strspn(line, " \t");
	n = strcspn(line, " \t\n");
	if (n >= sizeof(f->interp))
		return;
	memcpy(f->interp, line, n);
	line += n;
	line += strspn(line, " \t");
	n = strcspn(line, "\n");
	if (n >= sizeof(f->interp_arg))
		return;
	memcpy(f->interp_arg, line, n);
}

int elf_read(int fd, struct elf_facts *out)
{
	unsigned char head[256] = "";
	struct tables t = {0};
	ssize_t n;

	memset(out, 0, sizeof(*out));
	n = read_at(fd, head, sizeof(head) - 1, 0);
	if (n < 0)
		return (int)n;
	if (n >= 2 && head[0] == '#' && head[1] == '!') {
		read_script((const char *)head + 2, out);
		return 0;
	}
	if (n < EI_NIDENT || memcmp(head, ELFMAG, SELFMAG) != 0)
		return 0;
	out->kind = ELF_FILE;
	out->big_endian = head[EI_DATA] == ELFDATA2MSB;
	if (head[EI_DATA] != native_order || !read_header(fd, head, out, &t))
		return 0;
	read_segments(fd, out, &t);
	if (t.shoff && t.shnum && t.shstr < t.shnum)
		read_sections(fd, out, &t);
	return 0;
}
