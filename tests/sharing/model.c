/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * model.c - see model.h.  A socket lives as long as a descriptor of it is in a process or in a
 * mailbox.  A message goes to the socket that is bound to its port when it is sent, or nowhere.
 *
 * Messages from one socket to another arrive in order.  In the kernel messages of different senders
 * do, too; the library promises that only for one sender.
 */
#include <string.h>

#include "model.h"

void model_start(struct model *m)
{
	bool in_order = m->in_order;
	const char *broken = m->broken;
	int i, j;

	memset(m, 0, sizeof(*m));
	m->in_order = in_order;
	m->broken = broken;
	for (i = 0; i < PLACES; i++)
		for (j = 0; j < FDS; j++)
			m->proc[i].fd[j] = -1;
	for (i = 0; i < PORTS; i++)
		m->owner[i] = -1;
}

static void drop(struct model *m, int sock)
{
	struct sock *sk = &m->sock[sock];

	if (--sk->refs)
		return;
	if (sk->port) {
		m->owner[sk->port - FIRST_PORT] = -1;
		m->freed[sk->port - FIRST_PORT] = true;
	}
	memset(sk, 0, sizeof(*sk));
}

int model_new_sock(struct model *m, int place, int slot)
{
	int i;

	for (i = 0; i < SOCKS && m->sock[i].refs; i++)
		;
	if (i == SOCKS)
		return -1;
	memset(&m->sock[i], 0, sizeof(m->sock[i]));
	m->sock[i].refs = 1;
	m->sock[i].maker = place;
	m->sock[i].had = 1u << place;
	m->proc[place].fd[slot] = i;
	m->proc[place].cloexec[slot] = false;
	return i;
}

void model_fork(struct model *m, int place, int child)
{
	struct proc *from = &m->proc[place], *to = &m->proc[child];
	int i;

	to->lives = true;
	for (i = 0; i < FDS; i++) {
		to->fd[i] = from->fd[i];
		to->cloexec[i] = from->cloexec[i];
		if (to->fd[i] < 0)
			continue;
		m->sock[to->fd[i]].refs++;
		m->sock[to->fd[i]].had |= 1u << child;
		m->sock[to->fd[i]].heirs |= (m->sock[to->fd[i]].heirs >> place & 1) << child;
	}
}

uint32_t model_holders(const struct model *m, int sock)
{
	uint32_t by = 0;
	int i, j;

	for (i = 0; i < PLACES; i++)
		for (j = 0; m->proc[i].lives && j < FDS; j++)
			if (m->proc[i].fd[j] == sock)
				by |= 1u << i;
	return by;
}

/* A standby that closes, execs or ends in order parks the socket for all that have it. */
static void leave(struct model *m, int sock, int place)
{
	if (m->sock[sock].heirs >> place & 1)
		m->sock[sock].bereaved = false;
	m->sock[sock].heirs &= ~(1u << place);
}

void model_close(struct model *m, int place, int slot)
{
	int sock = m->proc[place].fd[slot];

	m->proc[place].fd[slot] = -1;
	if (!(model_holders(m, sock) >> place & 1))
		leave(m, sock, place);
	drop(m, sock);
}

void model_exec(struct model *m, int place)
{
	int i;

	for (i = 0; i < FDS; i++)
		if (m->proc[place].fd[i] >= 0)
			leave(m, m->proc[place].fd[i], place);
	for (i = 0; i < FDS; i++)
		if (m->proc[place].fd[i] >= 0 && m->proc[place].cloexec[i])
			model_close(m, place, i);
}

bool model_shared(const struct model *m, int sock, int place)
{
	int i, own = 0;

	for (i = 0; i < FDS; i++)
		own += m->proc[place].fd[i] == sock;
	return own < m->sock[sock].refs;
}

bool model_concerns(const struct model *m, int sock, int place)
{
	const struct sock *sk = &m->sock[sock];
	uint32_t by = sk->had;
	int i;

	for (i = 0; i < sk->queued; i++)
		by |= sk->queue[i].sent_by;
	return by >> place & 1;
}

void model_killed(struct model *m, int place)
{
	int i;

	for (i = 0; i < SOCKS; i++) {
		struct sock *sk = &m->sock[i];
		bool was = sk->bereaved;

		if (!sk->refs || !(sk->had >> place & 1))
			continue;
		sk->bereaved = true;
		sk->heirs = model_holders(m, i) & (was ? sk->heirs : ~0u) & ~(1u << place);
	}
	model_end(m, place);
}

void model_end(struct model *m, int place)
{
	int i, j;

	for (i = 0; i < FDS; i++)
		if (m->proc[place].fd[i] >= 0)
			model_close(m, place, i);
	m->proc[place].lives = false;
	for (i = 0; i < SOCKS; i++) {
		if (m->sock[i].refs && m->sock[i].maker == place)
			m->sock[i].maker = -1;
		m->sock[i].had &= ~(1u << place);
		for (j = 0; j < m->sock[i].queued; j++)
			m->sock[i].queue[j].sent_by &= ~(1u << place);
	}
}

void model_dup(struct model *m, int place, int slot, int to)
{
	struct proc *p = &m->proc[place];

	if (slot == to)
		return; /* its flags stay, too */
	m->sock[p->fd[slot]].refs++;
	if (p->fd[to] >= 0)
		model_close(m, place, to);
	p->fd[to] = p->fd[slot];
	p->cloexec[to] = false;
}

void model_pass(struct model *m, int place, int slot, int to)
{
	int sock = m->proc[place].fd[slot];

	m->sock[sock].refs++;
	m->proc[to].mail[m->proc[to].mails++] = sock;
}

static int first_of_mail(struct proc *p)
{
	int sock = p->mail[0];

	memmove(p->mail, p->mail + 1, sizeof(p->mail[0]) * --p->mails);
	return sock;
}

void model_take(struct model *m, int place, int slot, bool cloexec)
{
	m->proc[place].fd[slot] = first_of_mail(&m->proc[place]);
	m->sock[m->proc[place].fd[slot]].had |= 1u << place;
	m->proc[place].cloexec[slot] = cloexec;
}

void model_drop(struct model *m, int place)
{
	drop(m, first_of_mail(&m->proc[place]));
}

void model_bind(struct model *m, int sock, int port)
{
	m->sock[sock].port = port;
	m->owner[port - FIRST_PORT] = sock;
	m->freed[port - FIRST_PORT] = false;
}

void model_send(struct model *m, int from, int port, uint32_t id, uint32_t len)
{
	int to = m->owner[port - FIRST_PORT];
	struct sock *sk;

	if (to < 0)
		return;
	sk = &m->sock[to];
	if (m->broken && !strcmp(m->broken, "lost") && id % 16 == 5)
		return;
	sk->queue[sk->queued++] = (struct note){id, len, m->sock[from].port, m->sock[from].had};
	sk->bytes += len;
	if (m->broken && !strcmp(m->broken, "twice") && id % 16 == 5 && sk->queued < QUEUE)
		sk->queue[sk->queued++] = (struct note){id, len, m->sock[from].port, m->sock[from].had};
}

const char *model_received(struct model *m, int sock, uint32_t id, int len, int from, bool peek)
{
	struct sock *sk = &m->sock[sock];
	int i;

	for (i = 0; i < sk->queued; i++)
		if (m->in_order || sk->queue[i].from == from)
			break;
	if (i == sk->queued)
		return "nothing is there from this sender";
	if (sk->queue[i].id != id)
		return "another message was to come first";
	if (sk->queue[i].from != from)
		return "another sender";
	if (sk->queue[i].len != (uint32_t)len)
		return "another length";
	if (peek)
		return NULL;
	sk->bytes -= len;
	memmove(sk->queue + i, sk->queue + i + 1, sizeof(sk->queue[0]) * (--sk->queued - i));
	return NULL;
}

bool model_carries(const struct model *m, int place)
{
	int i;

	for (i = 0; i < SOCKS; i++)
		if (m->sock[i].refs && m->sock[i].maker == place && model_shared(m, i, place))
			return true;
	return false;
}

int model_count(const struct model *m, int place)
{
	int i, n = 0;

	for (i = 0; i < FDS; i++)
		n += m->proc[place].fd[i] >= 0;
	return n;
}
