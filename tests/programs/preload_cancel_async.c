/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_cancel_async - threads that may be cancelled anywhere (PTHREAD_CANCEL_ASYNCHRONOUS) are,
 * outside of calls, in the midst of them and asleep in one; other threads' calls on the same
 * sockets go on, and nothing keeps the sockets.
 */
#include "program.h"

#include <pthread.h>

enum { ROUNDS = 300 };

static int fd;
static struct sockaddr_in at;
static volatile int begun;

static void may_be_cancelled_anywhere(void)
{
	int old;

	check(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old) == 0 && old == PTHREAD_CANCEL_DEFERRED, "type");
	begun = 1;
}

static void *sends_and_receives(void *arg)
{
	char c;

	may_be_cancelled_anywhere();
	for (;;) {
		(void)!sendto(fd, "m", 1, MSG_DONTWAIT, (struct sockaddr *)&at, sizeof(at));
		(void)!recv(fd, &c, 1, MSG_DONTWAIT);
	}
	return arg;
}

static void *makes_sockets(void *arg)
{
	struct sockaddr_in mine;

	may_be_cancelled_anywhere();
	for (;;)
		close(bound(&mine));
	return arg;
}

static void *waits(void *arg)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c;

	may_be_cancelled_anywhere();
	for (;;) {
		poll(&p, 1, -1);
		(void)!recv(fd, &c, 1, 0);
		(void)!sendto(fd, "m", 1, 0, (struct sockaddr *)&at, sizeof(at));
	}
	return arg;
}

static void *calls_nothing(void *arg)
{
	char c = 0;

	check(recv(fd, &c, 1, MSG_DONTWAIT) == 1 || errno == EAGAIN, "recv");
	may_be_cancelled_anywhere();
	(void)!recv(fd, &c, 1, MSG_DONTWAIT);
	for (;;)
		begun++;
	return arg;
}

/* What is said of the type is what the program has set. */
static void types(void)
{
	int old;
	char c;

	may_be_cancelled_anywhere();
	check(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "recv");
	check(pthread_setcanceltype(12345, &old) == EINVAL, "type");
	check(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old) == 0 && old == PTHREAD_CANCEL_ASYNCHRONOUS, "type");
	check(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "recv");
	check(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL) == 0, "type");
}

static void cancelled(void *(*role)(void *), int delay)
{
	pthread_t thread;
	void *result;

	begun = 0;
	check(pthread_create(&thread, NULL, role, NULL) == 0, "pthread_create");
	while (!begun)
		;
	for (volatile int spin = 0; spin < delay; spin++)
		;
	pthread_cancel(thread);
	check(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "not cancelled");
}

static void still_works(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c = 0;

	while (recv(fd, &c, 1, MSG_DONTWAIT) == 1)
		;
	check(errno == EAGAIN, "recv");
	check(sendto(fd, "!", 1, 0, (struct sockaddr *)&at, sizeof(at)) == 1, "sendto");
	check(poll(&p, 1, TEST_COMES) == 1 && recv(fd, &c, 1, 0) == 1 && c == '!', "recv");
}

static void again(const struct sockaddr_in *sin)
{
	int s = socket(PF_RDS, SOCK_SEQPACKET, 0);

	check(s >= 0 && bind(s, (const struct sockaddr *)sin, sizeof(*sin)) == 0, "port %d is still taken",
	      sin->sin_port);
	close(s);
}

int main(void)
{
	void *(*const roles[])(void *) = {sends_and_receives, waits, makes_sockets, calls_nothing};

	fd = bound(&at);
	types();
	for (int i = 0; i < ROUNDS; i++) {
		cancelled(roles[i % 4], i * 50);
		still_works();
	}
	close(fd);
	again(&at);
	printf("cancelled %d times\n", ROUNDS);
	return 0;
}
