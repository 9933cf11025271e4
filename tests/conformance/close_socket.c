/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What close does to messages and ports, and that it does nothing to others. */
#include "rdsconf.h"

static char buf[64];

static void received_messages_are_gone(void)
{
	struct name at = name_here(4140);
	int s = rds_bound(), d = rds_socket();

	if (bind(d, &at.sa, at.len))
		conf_die("bind");
	send_to(s, d, "old", 3, 0);
	wait_message(d);
	close(d);
	d = rds_socket();
	check("port-free-at-once", "0", "%s", rc(bind(d, &at.sa, at.len)));
	check("queue-not-inherited", "-1 EAGAIN", "%s", rc(recv(d, buf, sizeof(buf), MSG_DONTWAIT)));
	check("sender-goes-on", "3", "%s", rc(send_to(s, d, "new", 3, 0)));
	check("new-socket-receives", "3", "%s", rc(receive(d, buf, sizeof(buf), 0)));
	check("new-message", "new", "%.3s", buf);
	close(s);
	close(d);
}

/* A message to a port that no socket has is dropped without an error; later ones arrive. */
static void nobody(void)
{
	struct name at = name_here(4141);
	int s = rds_bound(), d, i, sent = 0;

	for (i = 0; i < 50; i++)
		sent += sendto(s, "lost", 4, MSG_DONTWAIT, &at.sa, at.len) == 4;
	check("to-nobody", "50", "%d", sent);
	all_lost(s);
	d = rds_socket();
	check("bind-afterwards", "0", "%s", rc(bind(d, &at.sa, at.len)));
	check("nothing-kept-for-it", "-1 EAGAIN", "%s", rc(recv(d, buf, sizeof(buf), MSG_DONTWAIT)));
	check("send-now", "4", "%s", rc(sendto(s, "here", 4, 0, &at.sa, at.len)));
	check("arrives-now", "4", "%s", rc(receive(d, buf, sizeof(buf), 0)));
	check("arrived", "here", "%.4s", buf);
	close(s);
	close(d);
}

/* A message that was received by its socket survives the sender. */
static void sender_closes(void)
{
	int s = rds_bound(), d = rds_bound();
	struct name from = { .len = sizeof(from.ss) };
	long r;

	label(s, "closed-sender");
	send_to(s, d, "last words", 10, 0);
	wait_message(d);
	close(s);
	r = recvfrom(d, buf, sizeof(buf), MSG_DONTWAIT, &from.sa, &from.len);
	check("sender-closed", NULL, "%s %s", rc(r), who(&from));
	check("receiver-state", "-1 EAGAIN", "%s", rc(recv(d, buf, sizeof(buf), MSG_DONTWAIT)));
	close(d);
}

static long blocking_receive(void *arg)
{
	return recv(*(int *)arg, buf, sizeof(buf), 0);
}

/* close does not end a receive that sleeps through another descriptor. */
static void sleeping_copy(void)
{
	int s = rds_bound(), d = rds_bound(), copy = dup(d);
	struct helper helper;

	helper_start(&helper, blocking_receive, &copy);
	check("sleeps", "1", "%d", helper_asleep(&helper));
	close(d);
	check("sleeps-on", "1", "%d", helper_asleep(&helper));
	send_to(s, copy, "x", 1, 0);
	check("receives", "1", "%s", rc(helper_result(&helper)));
	close(s);
	close(copy);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	received_messages_are_gone();
	nobody();
	sender_closes();
	sleeping_copy();
	return conf_end();
}
