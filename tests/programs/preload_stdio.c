/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_stdio - streams on sockets: one of fdopen(), and the standard input of a program that is
 * executed with a socket there.  Each read is a datagram.  Writing is refused, as write() is.  Wide
 * characters are refused.  freopen() gives a file.  A stream whose descriptor number now belongs to
 * a file can seek.  Asynchronous reads of sockets have an answer, and those of other descriptors
 * work.
 */
#include "program.h"

#include <aio.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/mman.h>
#include <wchar.h>

static char self[] = "/proc/self/exe", reads[] = "reads", reopens[] = "reopens", seeks[] = "seeks";

static int from;

static void sends(const struct sockaddr_in *to, const char *text)
{
	check(sendto(from, text, strlen(text), 0, (const struct sockaddr *)to, sizeof(*to)) == (ssize_t)strlen(text),
	      "sendto");
}

static void says(FILE *f, const char *text)
{
	char line[100] = "";

	check(fgets(line, sizeof(line), f) && !strcmp(line, text), "read \"%s\", feof %d ferror %d", line, feof(f),
	      ferror(f));
}

static void reading(void)
{
	struct sockaddr_in at;
	char *line = NULL, rest[8];
	size_t room = 0;
	int fd = bound(&at);
	FILE *f = fdopen(fd, "r");

	check(f && fileno(f) == fd, "fdopen");
	sends(&at, "hello\n");
	sends(&at, "world\n");
	sends(&at, "");
	says(f, "hello\n");
	check(getline(&line, &room, f) == 6 && !strcmp(line, "world\n"), "getline");
	check(fgetc(f) == EOF && feof(f) && !ferror(f), "an empty datagram is an end");
	clearerr(f);
	check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
	errno = 0;
	check(fgetc(f) == EOF && ferror(f) && errno == EAGAIN, "nothing is left");
	check(recv(fd, rest, sizeof(rest), MSG_DONTWAIT) == -1 && errno == EAGAIN, "nothing is left");
	free(line);
	check(fclose(f) == 0 && fcntl(fd, F_GETFD) == -1 && errno == EBADF, "fclose");
	close(rebind(&at));
}

static void writing(void)
{
	struct sockaddr_in at;
	int fd = bound(&at);
	FILE *f;

	check(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
	check(dprintf(fd, "out") == -1 && errno == EOPNOTSUPP, "dprintf");
	f = fdopen(fd, "r+");
	check(f && fprintf(f, "out") == 3, "fprintf");
	check(fflush(f) == EOF && errno == EOPNOTSUPP && ferror(f), "fflush");
	sends(&at, "in\n");
	clearerr(f);
	__fpurge(f);
	says(f, "in\n");
	fclose(f);
}

/* With the socket as its standard input; what it prints. */
static void executes(char *const argv[], const char *sent, const char *wanted)
{
	struct sockaddr_in at;
	int fd = bound(&at), out[2];
	char text[100] = "";
	pid_t pid;

	check(pipe(out) == 0, "pipe");
	sends(&at, sent);
	pid = fork();
	if (!pid) {
		dup2(fd, 0);
		dup2(out[1], 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(out[1]);
	check(read(out[0], text, sizeof(text) - 1) >= 0 && !strcmp(text, wanted), "%s: \"%s\"", argv[0], text);
	finished(pid);
	close(out[0]);
	close(fd);
}

static int reader(void)
{
	char line[100];

	check(fileno(stdin) == 0, "fileno");
	check(fgets(line, sizeof(line), stdin) != NULL, "fgets, feof %d", feof(stdin));
	check(fputs(line, stdout) >= 0, "fputs");
	return 0;
}

static void reopen(FILE *f)
{
	check(freopen("/proc/self/status", "r", f) == f, "freopen");
	check(fgetc(f) == 'N' && fgetc(f) == 'a', "fgetc after freopen");
}

static int reopener(void)
{
	reader();
	reopen(stdin);
	check(fileno(stdin) == 0, "fileno after freopen");
	check(freopen("/proc/self/status", "r", stdin) == stdin && fgetwc(stdin) == L'N', "fgetwc");
	return 0;
}

static void reopening(void)
{
	struct sockaddr_in at;
	FILE *f = fdopen(bound(&at), "r");
	wchar_t wide[100];

	reopen(f);
	check(freopen("/proc/self/status", "r", f) == f, "freopen again");
	check(fgetws(wide, 100, f) && !wcsncmp(wide, L"Name:", 5), "fgetws after freopen");
	fclose(f);
}

/* As of a stream by which bytes were read: they fail, and leave what is there. */
static void wide_characters(void)
{
	struct sockaddr_in at;
	FILE *f = fdopen(bound(&at), "r+");
	wchar_t wide[100];

	sends(&at, "bytes\n");
	check(fwide(f, 1) < 0, "fwide");
	check(!fgetws(wide, 100, f) && fgetwc(f) == WEOF && fwscanf(f, L"b") == EOF, "read");
	check(fwprintf(f, L"out") < 0 && fputws(L"out", f) < 0 && fputwc(L'o', f) == WEOF, "write");
	says(f, "bytes\n");
	check(ungetwc(L'x', f) == L'x' && fgetc(f) == 'x', "ungetwc");
	fclose(f);
}

static int seeker(void)
{
	int fd = memfd_create("seeks", MFD_CLOEXEC);
	char rest[8];

	reader();
	check(fseek(stdin, 0, SEEK_SET) == -1 && errno == ESPIPE, "a socket has no places");
	tell(fd, "abcdef", 6);
	check(dup2(fd, STDIN_FILENO) == STDIN_FILENO, "dup2");
	check(fseek(stdin, 2, SEEK_SET) == 0 && ftell(stdin) == 2, "fseek");
	check(fgetc(stdin) == 'c' && ftell(stdin) == 3, "ftell");
	rewind(stdin);
	check(fgets(rest, sizeof(rest), stdin) && !strcmp(rest, "abcdef"), "rewind");
	return 0;
}

static void asynchronous(void)
{
	struct sockaddr_in at;
	char text[8] = "";
	struct aiocb cb = {.aio_buf = text, .aio_nbytes = sizeof(text)};
	const struct aiocb *list[] = {&cb};
	struct aiocb *many[] = {&cb};
	int p[2];

	cb.aio_fildes = bound(&at);
	sends(&at, "one");
	if (aio_read(&cb) == 0)
		check(aio_suspend(list, 1, NULL) == 0 && aio_return(&cb) == 3, "aio_read");
	else
		check(errno == ENOSYS, "aio_read");
	cb.aio_lio_opcode = LIO_READ;
	sends(&at, "two");
	check(lio_listio(LIO_WAIT, many, 1, NULL) == 0 || errno == ENOSYS, "lio_listio");
	close(cb.aio_fildes);

	check(pipe(p) == 0, "pipe");
	tell(p[1], "pipe", 4);
	cb.aio_fildes = p[0];
	check(aio_read(&cb) == 0 && aio_suspend(list, 1, NULL) == 0 && aio_return(&cb) == 4, "aio_read of a pipe");
}

int main(int argc, char **argv)
{
	char *own[] = {self, reads, NULL}, *reopened[] = {self, reopens, NULL}, *sought[] = {self, seeks, NULL};
	char *sed[] = {"sed", "-n", "s/two/2/p;q", NULL};
	struct sockaddr_in at;

	if (argc > 1)
		return argv[1][2] == 'a' ? reader() : argv[1][2] == 'o' ? reopener() : seeker();
	from = bound(&at);
	reading();
	writing();
	executes(own, "by fgets\n", "by fgets\n");
	reopening();
	wide_characters();
	executes(reopened, "by fgets\n", "by fgets\n");
	executes(sought, "by fgets\n", "by fgets\n");
	executes(sed, "one two\n", "one 2\n");
	asynchronous();
	printf("streams read datagrams\n");
	return 0;
}
