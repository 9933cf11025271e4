/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* early_stdio.c - early.c's part for calls_stdio.c: no system call does what these do. */
#include "early.h"

static int none(void)
{
	errno = ENOSYS;
	return -1;
}

FILE *early_fdopen(int fd, const char *mode)
{
	GO_ON(fdopen, fd, mode);
	none();
	return NULL;
}

int early_vdprintf(int fd, const char *format, va_list ap)
{
	GO_ON(vdprintf, fd, format, ap);
	return none();
}

/* Never called: the wrappers make a list of the arguments first. */
int early_dprintf(int fd, const char *format, ...)
{
	(void)fd, (void)format;
	return none();
}

int early_dprintf_chk(int fd, int flag, const char *format, ...)
{
	(void)fd, (void)flag, (void)format;
	return none();
}

#define early___vdprintf_chk early_vdprintf_chk
int early_vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	GO_ON(__vdprintf_chk, fd, flag, format, ap);
	return none();
}

int early_aio_read(struct aiocb *cb)
{
	GO_ON(aio_read, cb);
	return none();
}

int early_aio_read64(struct aiocb64 *cb)
{
	GO_ON(aio_read64, cb);
	return none();
}

int early_aio_write(struct aiocb *cb)
{
	GO_ON(aio_write, cb);
	return none();
}

int early_aio_write64(struct aiocb64 *cb)
{
	GO_ON(aio_write64, cb);
	return none();
}

int early_lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *event)
{
	GO_ON(lio_listio, mode, list, n, event);
	return none();
}

int early_lio_listio64(int mode, struct aiocb64 *const list[], int n, struct sigevent *event)
{
	GO_ON(lio_listio64, mode, list, n, event);
	return none();
}
