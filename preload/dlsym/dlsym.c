/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * dlsym.c - librdsdlsym.so: a look-up of an interposed name through a handle of libc gives the
 * function of librdspreload.so, for programs that call sockets by ctypes.CDLL("libc.so.6") and the
 * like.
 *
 * A shared object of its own. rdsrun preloads it behind the library only if RDS_PRELOAD_DLSYM asks
 * for it: other programs keep the dlsym() that they have. (An audit module could do the same, but
 * it makes the loader keep a second libc and look at every binding.)
 *
 * What always holds: any other look-up jumps on to the next dlsym() with the caller's return
 * address in place, because RTLD_NEXT and RTLD_DEFAULT depend on it. Before the jump there is no
 * allocation, and no call but one of dladdr1(), once. So code that finds the real function by
 * RTLD_NEXT (our library, other preloads, sanitizers, allocators) does not notice. An object that
 * itself defines the name asks for the next definition, even through libc's handle, and gets that
 * one: otherwise its calls would come back to itself for ever. dlvsym() is not interposed: a
 * program that names the version wants libc's function.
 *
 * Knows of the library only its file's name and the names in libc/symbols.def. Nothing here depends
 * on a constructor or calls a string function: sanitizers interpose those, and look up the real
 * ones here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *(*dlsym_fn)(void *handle, const char *name);

/* The next dlsym(). Set by rds_dlsym_pick(), which runs before every use. */
extern dlsym_fn rds_dlsym_next;
dlsym_fn rds_dlsym_next __attribute__((visibility("hidden"), used));

/*
 * ---- dlsym() itself ----
 * Asks rds_dlsym_pick(handle, name, return address). Returns what that gives, or jumps on.
 */

#if defined(__x86_64__) && defined(__LP64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	push %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	push %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	sub $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	mov 24(%rsp), %rdx\n"
	"	call rds_dlsym_pick\n"
	"	add $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	pop %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	pop %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	test %rax, %rax\n"
	"	jne 1f\n"
	"	jmp *rds_dlsym_next(%rip)\n"
	"1:	ret\n"
	"	.cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#elif defined(__aarch64__) && defined(__LP64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	stp x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset x29, -32\n"
	"	.cfi_offset x30, -24\n"
	"	mov x29, sp\n"
	"	stp x0, x1, [sp, #16]\n"
	"	mov x2, x30\n"
	"	bl rds_dlsym_pick\n"
	"	mov x9, x0\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	.cfi_restore x29\n"
	"	.cfi_restore x30\n"
	"	.cfi_def_cfa_offset 0\n"
	"	cbnz x9, 1f\n"
	"	adrp x16, rds_dlsym_next\n"
	"	ldr x16, [x16, :lo12:rds_dlsym_next]\n"
	"	br x16\n"
	"1:	mov x0, x9\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#else
/*
 * On other machines the compiler has to turn a call in tail position into a jump, as it does when
 * it optimizes.
 */
#if __has_attribute(optimize)
__attribute__((optimize("O2")))
#endif
__attribute__((visibility("default"))) void *dlsym(void *restrict handle, const char *restrict name);
void *rds_dlsym_pick(void *handle, const char *name, void *caller);
void *dlsym(void *restrict handle, const char *restrict name)
{
	void *found = rds_dlsym_pick(handle, name, __builtin_return_address(0));

	return found ? found : rds_dlsym_next(handle, name);
}
#endif

static bool string_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* ---- what an object defines, from its own tables: no lock, no allocation, and no dlsym() ---- */

struct tables {
	const ElfW(Sym) *symbols;
	const char *strings;
	const ElfW(Half) *versions;
	const uint32_t *hash;
};

static struct tables object_tables(const struct link_map *map)
{
	struct tables t = {0};

	for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
		/*
		 * The loader has relocated these addresses, except where the section cannot be
		 * written.
		 */
		uintptr_t at = d->d_un.d_ptr < map->l_addr ? d->d_un.d_ptr + map->l_addr : d->d_un.d_ptr;

		if (d->d_tag == DT_SYMTAB)
			t.symbols = (const void *)at;
		else if (d->d_tag == DT_STRTAB)
			t.strings = (const void *)at;
		else if (d->d_tag == DT_VERSYM)
			t.versions = (const void *)at;
		else if (d->d_tag == DT_GNU_HASH)
			t.hash = (const void *)at;
	}
	return t;
}

static bool symbol_is(const struct tables *t, uint32_t i, const char *name)
{
	const ElfW(Sym) *s = &t->symbols[i];
	/* The hidden bit: a version for old programs only. */
	bool old = t->versions && (t->versions[i] & 0x8000);

	return s->st_shndx != SHN_UNDEF && !old && string_same(t->strings + s->st_name, name);
}

/* The function `name` of that object. NULL if there is none, or no GNU hash table to look in. */
static void *object_find_symbol(const struct link_map *map, const char *name)
{
	struct tables t = object_tables(map);
	uint32_t hash = 5381;

	if (!t.symbols || !t.strings || !t.hash)
		return NULL;
	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	uint32_t n = t.hash[0], first = t.hash[1], words = t.hash[2];
	const uint32_t *buckets = (const void *)((const ElfW(Addr) *)&t.hash[4] + words), *chains = buckets + n;

	for (uint32_t i = n ? buckets[hash % n] : 0; i >= first && i; i++) {
		if ((chains[i - first] | 1) == (hash | 1) && symbol_is(&t, i, name))
			return (void *)(map->l_addr + t.symbols[i].st_value);
		if (chains[i - first] & 1)
			break;
	}
	return NULL;
}

static const struct link_map *object_at(const void *address)
{
	struct link_map *map = NULL;
	Dl_info info;

	return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

/* Does its file's name begin with that? */
static bool object_is_called(const struct link_map *map, const char *begin)
{
	const char *name = map->l_name;

	for (const char *c = name; *c; c++)
		if (*c == '/')
			name = c + 1;
	while (*begin && *name == *begin)
		name++, begin++;
	return !*begin;
}

/* ---- whose look-up is it? ---- */

static bool name_is_interposed(const char *name)
{
	static const char *const names[] = {
#define RDS_SYM(name, ret, args, early) #name,
#include "preload/libc/symbols.def"
#undef RDS_SYM
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (string_same(names[i], name))
			return true;
	return false;
}

/*
 * Finds the next dlsym() in the order of loading: another preload's, or in the end libc's, or
 * libdl's in old systems. If no object has a table that can be read here: libc's by the versions
 * that it has (2.2.5 on x86-64, 2.17 on AArch64).
 */
static void dlsym_find_next(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	const struct link_map *map = object_at((const void *)&dlsym_find_next);
	void *found = NULL;

	while (!found && map && (map = map->l_next))
		found = object_find_symbol(map, "dlsym");
	for (size_t i = 0; !found && i < sizeof(versions) / sizeof(versions[0]); i++)
		found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	__atomic_store_n(&rds_dlsym_next, (dlsym_fn)found, __ATOMIC_RELEASE);
}

/*
 * The library's function for a name whose look-up gave `found`, if `found` is libc's own. Else
 * NULL.
 */
static void *symbol_replacement(const void *found, const char *name)
{
	const struct link_map *map = object_at((const void *)&dlsym_find_next), *ours = NULL;
	bool libc = false, seen = false;

	while (map && map->l_prev)
		map = map->l_prev;
	/*
	 * Only our name space: another one has a libc of its own. Only up to libc: the objects that
	 * are there at the start stay, and those behind libc may be unloaded by another thread
	 * meanwhile.
	 */
	for (; map && !(ours && seen); map = map->l_next) {
		if (object_is_called(map, "librdspreload.so"))
			ours = map;
		else if (object_is_called(map, "libc.so.") || object_is_called(map, "libpthread.so."))
			libc |= object_find_symbol(map, name) == found;
		seen |= object_is_called(map, "libc.so.");
	}
	return ours && libc ? object_find_symbol(ours, name) : NULL;
}

/* NULL: the caller jumps on to the next dlsym(). */
__attribute__((visibility("hidden"), used)) void *rds_dlsym_pick(void *handle, const char *name, void *caller);
void *rds_dlsym_pick(void *handle, const char *name, void *caller)
{
	const struct link_map *asks;
	void *found, *ours;

	if (!__atomic_load_n(&rds_dlsym_next, __ATOMIC_ACQUIRE))
		dlsym_find_next();
	if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !name || !name_is_interposed(name))
		return NULL;
	found = rds_dlsym_next(handle, name);
	ours = found ? symbol_replacement(found, name) : NULL;
	if (!ours)
		return NULL;
	asks = object_at(caller);
	return asks && object_find_symbol(asks, name) ? NULL : ours;
}
