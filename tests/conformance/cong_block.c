/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* A blocking send to a congested port: no timeout, signals, what wakes it. */
#include "rdsconf.h"
#include "signals.h"

static char data[8192];
static int s, d;

static long blocking_send(void *arg)
{
	return sendto(s, "blocked", 7, 0, arg, conf_v6 ? 28 : 16);
}

static void congest(int size)
{
	int before = queued(d);

	if (send_to(s, d, data, size, 0) != size)
		conf_die("send");
	wait_queued(d, before + 1);
	cong_told(d, s);
}

static const char *result(struct helper *helper)
{
	return rc(helper_result(helper));
}

static void ends_by_drain(struct name *to)
{
	struct helper helper;

	timeouts(s, SO_SNDTIMEO, 50);
	congest(5000);
	helper_start(&helper, blocking_send, to);
	check("sleeps", "1", "%d", helper_asleep(&helper));
	check("no-timeout", "0", "%d", helper_done(&helper, 200));
	check("drain", "5000", "%s", rc(recv(d, data, sizeof(data), MSG_DONTWAIT)));
	check("wakes", "7", "%s", result(&helper));
	check("arrives", "7", "%s", rc(receive(d, data, sizeof(data), 0)));
	timeouts(s, SO_SNDTIMEO, 0);
}

static void ends_by_signal(struct name *to)
{
	struct helper helper;

	congest(5000);
	catch(0);
	helper_start(&helper, blocking_send, to);
	helper_asleep(&helper);
	pthread_kill(helper.thread, SIGUSR1);
	check("interrupted", "-1 EINTR", "%s", result(&helper));
	catch(SA_RESTART);
	helper_start(&helper, blocking_send, to);
	helper_asleep(&helper);
	pthread_kill(helper.thread, SIGUSR1);
	check("restart-sleeps-on", "1", "%d", helper_asleep(&helper));
	check("restart-signals", "1", "%d", (int)signals);
	recv(d, data, sizeof(data), MSG_DONTWAIT);
	check("restart-wakes", "7", "%s", result(&helper));
	check("restart-arrives", "7", "%s", rc(receive(d, data, sizeof(data), 0)));
	check("interrupted-one-was-not-sent", "-1 EAGAIN", "%s", rc(recv(d, data, 1, MSG_DONTWAIT)));
}

/* Several sleepers, all are woken by one update. */
static void several(struct name *to)
{
	struct helper helpers[3];
	int i, woken = 0;

	congest(5000);
	for (i = 0; i < 3; i++) {
		helper_start(&helpers[i], blocking_send, to);
		helper_asleep(&helpers[i]);
	}
	recv(d, data, sizeof(data), MSG_DONTWAIT);
	for (i = 0; i < 3; i++)
		woken += helper_result(&helpers[i]) == 7;
	check("several-woken", "3", "%d", woken);
	wait_queued(d, 3);
	check("several-arrived", "3", "%d", queued(d));
	while (recv(d, data, sizeof(data), MSG_DONTWAIT) >= 0)
		;
}

/* Closing the congested socket clears the bit; the message is dropped. */
static void ends_by_close(struct name *to)
{
	struct helper helper;

	congest(5000);
	check("nonblocking", "-1 ENOBUFS", "%s", rc(send_to(s, d, "x", 1, MSG_DONTWAIT)));
	helper_start(&helper, blocking_send, to);
	check("sleeps-before-close", "1", "%d", helper_asleep(&helper));
	close(d);
	check("close-wakes", "7", "%s", result(&helper));
	check("nobody-is-not-congested", "1", "%s", rc(sendto(s, "x", 1, MSG_DONTWAIT, &to->sa, to->len)));
	all_lost(s);
	d = rds_socket();
	check("port-again", "0", "%s", rc(bind(d, &to->sa, to->len)));
	check("send-again", "1", "%s", rc(sendto(s, "y", 1, MSG_DONTWAIT, &to->sa, to->len)));
	check("arrives-again", "1", "%s", rc(receive(d, data, sizeof(data), 0)));
}

int main(int argc, char **argv)
{
	struct name to;

	conf_begin(argc, argv);
	if (conf_loop)
		conf_skip("loopback-bound sockets never congest");
	s = rds_bound();
	d = rds_bound();
	to = name_of(d);
	rds_bufs(d, 0, 4096);
	send_to(s, d, "w", 1, MSG_DONTWAIT);
	receive(d, data, 1, 0);
	ends_by_drain(&to);
	ends_by_signal(&to);
	several(&to);
	ends_by_close(&to);
	return conf_end();
}
