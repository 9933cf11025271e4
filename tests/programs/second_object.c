/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * second_object - another preloaded library, as there are many: counts calls of names that the library has, too, and
 * finds the function behind itself by RTLD_NEXT when it is first called; listen() does so through libc's handle.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

unsigned second_calls, second_closes;

static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

#define FORWARD(count, ret, name, types, ...)                                                                          \
	static ret(*real_##name) types;                                                                                \
	if (!real_##name)                                                                                              \
		real_##name = (ret(*) types)next(#name);                                                               \
	__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);                                                               \
	return real_##name(__VA_ARGS__)

int socket(int domain, int type, int protocol)
{
	FORWARD(second_calls, int, socket, (int, int, int), domain, type, protocol);
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	FORWARD(second_calls, int, bind, (int, const struct sockaddr *, socklen_t), fd, addr, len);
}

ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t alen)
{
	FORWARD(second_calls, ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t), fd, buf,
		len, flags, addr, alen);
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	FORWARD(second_calls, ssize_t, recv, (int, void *, size_t, int), fd, buf, len, flags);
}

ssize_t read(int fd, void *buf, size_t len)
{
	FORWARD(second_calls, ssize_t, read, (int, void *, size_t), fd, buf, len);
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	FORWARD(second_calls, int, poll, (struct pollfd *, nfds_t, int), fds, n, timeout);
}

int close(int fd)
{
	FORWARD(second_closes, int, close, (int), fd);
}

/* Through libc's handle: past everything that is preloaded, so only sound where nothing else follows. */
int listen(int fd, int backlog)
{
	static int (*real)(int, int);

	if (!real) {
		void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

		real = libc ? (int (*)(int, int))dlsym(libc, "listen") : NULL;
		if (!real)
			abort();
	}
	__atomic_add_fetch(&second_calls, 1, __ATOMIC_RELAXED);
	return real(fd, backlog);
}

static void __attribute__((constructor)) begin(void)
{
	close(dup(0));
}
