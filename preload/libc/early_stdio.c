/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * early_stdio.c - raw versions (early.c) of the calls that calls/stdio.c wraps. No system call does
 * what these do.
 */
#include "preload/libc/early.h"

#include <dlfcn.h>

static int early_refuse(void)
{
	errno = ENOSYS;
	return -1;
}

FILE *early_fdopen(int fd, const char *mode)
{
	EARLY_CALL_LIBC(fdopen, fd, mode);
	early_refuse();
	return NULL;
}

int early_vdprintf(int fd, const char *format, va_list ap)
{
	EARLY_CALL_LIBC(vdprintf, fd, format, ap);
	return early_refuse();
}

/* Never called: the wrappers make a va_list of the arguments first. */
int early_dprintf(int fd, const char *format, ...)
{
	(void)fd, (void)format;
	return early_refuse();
}

int early_dprintf_chk(int fd, int flag, const char *format, ...)
{
	(void)fd, (void)flag, (void)format;
	return early_refuse();
}

#define early___vdprintf_chk early_vdprintf_chk
int early_vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	EARLY_CALL_LIBC(__vdprintf_chk, fd, flag, format, ap);
	return early_refuse();
}

/*
 * Before glibc 2.34 these functions are librt's. A library that the program has loaded after our
 * look-up may have brought librt. librt stays loaded then, which does no harm: only a program that
 * uses it calls these functions.
 */
static void *librt_symbol_find(const char *name)
{
	void *librt = dlopen("librt.so.1", RTLD_LAZY | RTLD_NOLOAD), *found = librt ? dlsym(librt, name) : NULL;

	if (!found)
		(void)dlerror();
	return found;
}

#define EARLY_CALL_LIBRT(name, ...)                                                                                    \
	do {                                                                                                           \
		EARLY_CALL_LIBC(name, __VA_ARGS__);                                                                    \
		__typeof__(libc_real.name) real_ = (__typeof__(real_))librt_symbol_find(#name);                        \
		if (real_)                                                                                             \
			return real_(__VA_ARGS__);                                                                     \
	} while (0)

int early_aio_read(struct aiocb *cb)
{
	EARLY_CALL_LIBRT(aio_read, cb);
	return early_refuse();
}

int early_aio_read64(struct aiocb64 *cb)
{
	EARLY_CALL_LIBRT(aio_read64, cb);
	return early_refuse();
}

int early_aio_write(struct aiocb *cb)
{
	EARLY_CALL_LIBRT(aio_write, cb);
	return early_refuse();
}

int early_aio_write64(struct aiocb64 *cb)
{
	EARLY_CALL_LIBRT(aio_write64, cb);
	return early_refuse();
}

int early_lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *event)
{
	EARLY_CALL_LIBRT(lio_listio, mode, list, n, event);
	return early_refuse();
}

int early_lio_listio64(int mode, struct aiocb64 *const list[], int n, struct sigevent *event)
{
	EARLY_CALL_LIBRT(lio_listio64, mode, list, n, event);
	return early_refuse();
}
