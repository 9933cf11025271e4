/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * pair.c - see pair.h.
 */
#include <sys/mman.h>

#include "pair.h"

struct agent *a;
struct box *b;
unsigned char *p;
uint64_t token;

static size_t own; /* bytes at p */

static void begin_with(size_t bytes)
{
	a = agent_start(0);
	b = box_new(rds_bound(address(0), INIT_PORT));
	p = pages(bytes);
	own = bytes;
}

void begin(void)
{
	begin_with(AREA);
}

uint64_t begin_page(void)
{
	begin_with(PAGE);
	return agent_region(a, 0, PAGE, F_WRITE);
}

void end_unread(void)
{
	box_empty(b, "at the end");
	close(b->fd);
	box_free(b);
	agent_end(a);
	munmap(p - PAGE, own + 2 * PAGE);
}

void end(void)
{
	box_empty(b, "at the end");
	expect(AGENT(a, AGENT_QUIET), 0, "messages that nobody asked for, at the other side");
	end_unread();
}

static struct vec piece; /* 64 bytes at p */

struct op simple(uint64_t cookie, uint64_t flags)
{
	piece = (struct vec){(uintptr_t)p, 64};
	pattern(p, 64, ++token);
	return (struct op){.cookie = cookie, .flags = flags, .token = token, .local = &piece, .nr_local = 1};
}

int send_op(const struct op *op)
{
	return op_send(b->fd, &a->name[0], op);
}

void plain(const char *text)
{
	struct out o;

	out_begin(&o, &a->name[0], text, strlen(text));
	expect(out_send(&o, b->fd, 0), strlen(text), "a plain message");
}

void comes(const char *text, const char *why)
{
	long n = AGENT(a, AGENT_RECV);

	if (n != (long)strlen(text) || memcmp(a->board->body, text, (size_t)n))
		fail("%s: expected the message \"%s\", came \"%.*s\" of %ld bytes", why, text, n < 0 ? 0 : (int)n,
		     (char *)a->board->body, n);
}

void works(uint64_t cookie, const char *why)
{
	struct op op = simple(cookie, F_WRITE | F_NOTIFY);

	op.payload = "works";
	op.len = 5;
	expect(send_op(&op), 5, "%s: sendmsg", why);
	expect_status(b, op.token, ST_SUCCESS, "%s: a write", why);
	comes("works", why);
}
