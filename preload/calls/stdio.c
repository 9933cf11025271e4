/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stdio.c - streams on RDS sockets, and POSIX's asynchronous I/O.
 *
 * libc reads and writes a stream inside itself, where no wrapper is called, and would use the
 * stand-in. So a stream on an RDS socket is one with functions of ours (fopencookie) that still has
 * the number. A stream that exists before its number becomes a socket's is out of reach, except for
 * the standard streams of a program that is given a socket as one of these. The functions make
 * calls by number, so they stay right if the number becomes another file's. To libc these are
 * streams of bytes for good: its functions for wide characters fail.
 *
 * Asynchronous I/O is refused: libc's threads would wait for the stand-in for ever.
 */
#include "preload/fdtable/fdtable.h"

#include <stdlib.h>

#include "engine/sys/log.h"
#include "preload/calls/calls.h"

static bool fd_is_rds(int fd)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return false;
	rds_fds_put(sk);
	return true;
}

/* ---- streams ---- */

/*
 * libc puts a trap where other streams have their state of wide characters. freopen() falls into
 * it, and so do fgetws() and ungetwc(). Here they find a state in which nothing was ever read.
 * After freopen() the stream is libc's own and that state is in use, so it stays then.
 */
struct stdio_stream {
	char wide[512] __attribute__((aligned(16))); /* more than libc's structure had in any age */
	FILE *file;
	int fd;
};

static ssize_t stdio_stream_read(void *cookie, char *buf, size_t len)
{
	const struct stdio_stream *s = cookie;

	return read(s->fd, buf, len);
}

/* Returns 0 for an error, as fopencookie() asks for. */
static ssize_t stdio_stream_write(void *cookie, const char *buf, size_t len)
{
	const struct stdio_stream *s = cookie;
	ssize_t n = write(s->fd, buf, len);

	return n < 0 ? 0 : n;
}

/* A socket cannot seek, and neither can its stand-in. The number may have become a file's. */
static int stdio_stream_seek(void *cookie, off64_t *at, int from)
{
	const struct stdio_stream *s = cookie;
	off64_t now = lseek64(s->fd, *at, from);

	if (now < 0)
		return -1;
	*at = now;
	return 0;
}

/* By fclose() alone. */
static int stdio_stream_close(void *cookie)
{
	struct stdio_stream *s = cookie;
	int fd = s->fd;

	if ((char *)s->file->_wide_data == s->wide)
		s->file->_wide_data = NULL;
	free(s);
	return close(fd);
}

static FILE *stdio_stream_open(int fd, const char *mode)
{
	static const cookie_io_functions_t ours = {stdio_stream_read, stdio_stream_write, stdio_stream_seek,
						   stdio_stream_close};
	struct stdio_stream *s = calloc(1, sizeof(*s));
	FILE *f = s ? fopencookie(s, mode, ours) : NULL;

	if (!f) {
		free(s);
		return NULL;
	}
	s->file = f;
	s->fd = fd;
	f->_fileno = fd;
	f->_wide_data = (void *)s->wide;
	return f;
}

FILE *fdopen(int fd, const char *mode)
{
	return likely(!fd_is_rds(fd)) ? libc_real.fdopen(fd, mode) : stdio_stream_open(fd, mode);
}

static void stdio_replace_standard(FILE **which, int fd, const char *mode)
{
	FILE *f = fd_is_rds(fd) ? stdio_stream_open(fd, mode) : NULL;

	if (!f)
		return;
	/* No other stream needs it now. After freopen() the program may. */
	f->_wide_data = (*which)->_wide_data;
	*which = f;
}

void calls_stdio_start(void)
{
	FILE *err = stderr;

	if (likely(!rds_fds_on()))
		return;
	stdio_replace_standard(&stdin, STDIN_FILENO, "r");
	stdio_replace_standard(&stdout, STDOUT_FILENO, "w");
	stdio_replace_standard(&stderr, STDERR_FILENO, "w");
	if (stderr != err)
		setvbuf(stderr, NULL, _IONBF, 0);
}

/* ---- dprintf: RDS refuses the write() ---- */

static int dprintf_refuse(const char *format)
{
	if (!format[0])
		return 0;
	return (int)libc_result(-EOPNOTSUPP);
}

int vdprintf(int fd, const char *format, va_list ap)
{
	return likely(!fd_is_rds(fd)) ? libc_real.vdprintf(fd, format, ap) : dprintf_refuse(format);
}

int __vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	return likely(!fd_is_rds(fd)) ? libc_real.__vdprintf_chk(fd, flag, format, ap) : dprintf_refuse(format);
}

int dprintf(int fd, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vdprintf(fd, format, ap);
	va_end(ap);
	return n;
}

int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = __vdprintf_chk(fd, flag, format, ap);
	va_end(ap);
	return n;
}

/* ---- asynchronous I/O ---- */

static bool aio_refuse(int fd)
{
	if (likely(!fd_is_rds(fd)))
		return false;
	rds_warn_once("aio_read(), aio_write() and lio_listio() are not possible on RDS sockets: ENOSYS");
	errno = ENOSYS;
	return true;
}

int aio_read(struct aiocb *cb)
{
	return aio_refuse(cb->aio_fildes) ? -1 : libc_real.aio_read(cb);
}

int aio_read64(struct aiocb64 *cb)
{
	return aio_refuse(cb->aio_fildes) ? -1 : libc_real.aio_read64(cb);
}

int aio_write(struct aiocb *cb)
{
	return aio_refuse(cb->aio_fildes) ? -1 : libc_real.aio_write(cb);
}

int aio_write64(struct aiocb64 *cb)
{
	return aio_refuse(cb->aio_fildes) ? -1 : libc_real.aio_write64(cb);
}

/* One RDS socket in the list is enough: nothing of the list is done then. */
int lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *event)
{
	for (int i = 0; i < n; i++)
		if (list[i] && list[i]->aio_lio_opcode != LIO_NOP && aio_refuse(list[i]->aio_fildes))
			return -1;
	return libc_real.lio_listio(mode, list, n, event);
}

int lio_listio64(int mode, struct aiocb64 *const list[], int n, struct sigevent *event)
{
	for (int i = 0; i < n; i++)
		if (list[i] && list[i]->aio_lio_opcode != LIO_NOP && aio_refuse(list[i]->aio_fildes))
			return -1;
	return libc_real.lio_listio64(mode, list, n, event);
}
