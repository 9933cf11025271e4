/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * agent.c - the other side's loop, and the calls to it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "agent.h"

/* ---- the other side ---- */

struct other {
	struct box *box[AGENT_SOCKS];
	unsigned char *area;
	size_t area_len;
	struct agent_board *board;
	uint64_t token;
};

static long receive(struct other *o, const struct agent_cmd *c, struct agent_answer *ans)
{
	struct letter l = box_letter(o->box[c->sock]);

	/* the first thing after the message: what the operation before it did must be there */
	if (c->what == AGENT_RECV_FILL)
		pattern(o->area + c->off, c->len, c->key);
	else
		memcpy(o->board->area + c->off, o->area + c->off, c->len);
	memcpy(o->board->body, l.body, l.len);
	free(l.body);
	ans->from = l.from;
	ans->cookie = l.cookie;
	return (long)l.len;
}

static long send_one(struct other *o, const struct agent_cmd *c, struct agent_answer *ans)
{
	struct get_mr map = {{(uintptr_t)o->area + c->off, c->count}, (uintptr_t)&ans->cookie, c->flags};
	unsigned char body[4096];
	struct out out;

	check(c->len <= sizeof(body), "a message of %llu bytes", (unsigned long long)c->len);
	pattern(body, c->len, c->key);
	out_begin(&out, &c->to, body, c->len);
	if (c->cmsg == CMSG_MAP)
		out_cmsg(&out, CMSG_MAP, &map, sizeof(map));
	else if (c->cmsg == CMSG_DEST)
		out_cmsg(&out, CMSG_DEST, &c->cookie, sizeof(c->cookie));
	return out_send(&out, o->box[c->sock]->fd, 0);
}

static long write_one(struct other *o, const struct agent_cmd *c)
{
	struct vec v = {(uintptr_t)o->area + c->off, c->len};
	struct op op = {.cookie = c->cookie,
			.remote_addr = c->remote,
			.flags = F_WRITE | F_NOTIFY,
			.token = ++o->token,
			.local = &v,
			.nr_local = 1};
	int rc = op_send(o->box[c->sock]->fd, &c->to, &op);

	return rc < 0 ? rc : box_status(o->box[c->sock], op.token);
}

static long fadd_many(struct other *o, const struct agent_cmd *c)
{
	struct box *b = o->box[c->sock];
	uint64_t i, *old = (uint64_t *)(void *)(o->area + c->off), first = o->token + 1;
	struct out out;
	int rc;

	for (i = 0; i < c->count; i++) {
		struct atomic72 a = {.cookie = c->cookie,
				     .local_addr = (uintptr_t)&old[i],
				     .remote_addr = c->remote,
				     .u = {c->flags},
				     .flags = F_NOTIFY,
				     .token = ++o->token};

		out_begin(&out, &c->to, NULL, 0);
		out_cmsg(&out, CMSG_FADD, &a, sizeof(a));
		rc = out_send(&out, b->fd, 0);
		if (rc < 0)
			return rc;
		while (b->notes < 32 && box_pump(b))
			;
		if (i >= 16) /* as many in flight */
			expect_status(b, first + i - 16, ST_SUCCESS, "fetch and add number %llu",
				      (unsigned long long)i - 16);
	}
	for (i = i > 16 ? i - 16 : 0; i < c->count; i++)
		expect_status(b, first + i, ST_SUCCESS, "fetch and add number %llu", (unsigned long long)i);
	return 0;
}

static long count_letters(struct box *b)
{
	while (box_pump(b))
		;
	return b->letters;
}

/* What it writes is its own copy's. */
static long fork_filling(unsigned char *at, size_t len, uint64_t key)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		pattern(at, len, key);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	return status;
}

static long other_area(struct other *o, size_t len, int fd)
{
	void *area = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (area == MAP_FAILED)
		return -errno;
	munmap(o->area, o->area_len);
	o->area = area;
	o->area_len = len;
	return 0;
}

static long obey(struct other *o, const struct agent_cmd *c, struct agent_answer *ans)
{
	int fd = o->box[c->sock] ? o->box[c->sock]->fd : -1;
	unsigned char *at = o->area + c->off;

	switch (c->what) {
	case AGENT_GET_MR:
		return get_mr(fd, at, c->len, c->flags, &ans->cookie);
	case AGENT_GET_MR_DEST:
		return get_mr_for_dest(fd, &c->to, at, c->len, c->flags, &ans->cookie);
	case AGENT_FREE:
		return free_mr(fd, c->cookie, c->flags);
	case AGENT_FILL:
		pattern(at, c->len, c->key);
		return 0;
	case AGENT_COPY:
		memcpy(o->board->area + c->off, at, c->len);
		return 0;
	case AGENT_SEND:
		return send_one(o, c, ans);
	case AGENT_RECV:
	case AGENT_RECV_FILL:
		return receive(o, c, ans);
	case AGENT_QUIET:
		return count_letters(o->box[c->sock]);
	case AGENT_UNMAP:
		return munmap(at, c->len) ? -errno : 0;
	case AGENT_PROTECT:
		return mprotect(at, c->len, (int)c->flags) ? -errno : 0;
	case AGENT_MAP:
		return mmap(at, c->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at
			       ? 0
			       : -errno;
	case AGENT_AREA:
		return other_area(o, c->len, (int)c->key);
	case AGENT_DISCARD:
		return madvise(at, c->len, MADV_DONTNEED) ? -errno : 0;
	case AGENT_FORK:
		return fork_filling(at, c->len, c->key);
	case AGENT_CLOSE:
		box_free(o->box[c->sock]);
		o->box[c->sock] = NULL;
		return close(fd) ? -errno : 0;
	case AGENT_RCVBUF:
		return setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){(int)c->len}, sizeof(int)) ? -errno : 0;
	case AGENT_WRITE:
		return write_one(o, c);
	case AGENT_FADD:
		return fadd_many(o, c);
	case AGENT_END:
		break;
	}
	return 0;
}

static void *other_side(void *arg)
{
	struct agent *a = arg;
	struct agent_answer ans = {.result = 0};
	struct other o = {.area = pages(AREA), .area_len = AREA, .board = a->board};
	struct agent_cmd c;
	unsigned i;

	for (i = 0; i < AGENT_SOCKS; i++)
		o.box[i] = box_new(rds_bound(a->name[i].sin_addr.s_addr, ntohs(a->name[i].sin_port)));
	while (send(a->far, &ans, sizeof(ans), 0) == sizeof(ans)) {
		if (recv(a->far, &c, sizeof(c), 0) != sizeof(c) || c.what == AGENT_END)
			break;
		ans = (struct agent_answer){.result = 0};
		ans.result = obey(&o, &c, &ans);
	}
	for (i = 0; i < AGENT_SOCKS; i++)
		if (o.box[i]) {
			close(o.box[i]->fd);
			box_free(o.box[i]);
		}
	munmap(o.area, o.area_len);
	return NULL;
}

/* ---- this side ---- */

struct agent *agent_start(unsigned number)
{
	struct agent *a = calloc(1, sizeof(*a));
	int sv[2];
	unsigned i;

	check(a && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv) == 0, "socketpair: %m");
	a->chan = sv[0];
	a->far = sv[1];
	a->number = number;
	for (i = 0; i < AGENT_SOCKS; i++)
		a->name[i] = name_of(address(number + 1), AGENT_PORT + AGENT_SOCKS * number + i);
	a->board = mmap(NULL, sizeof(*a->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(a->board != MAP_FAILED, "mmap: %m");
	if (same_process) {
		check(pthread_create(&a->thread, NULL, other_side, a) == 0, "pthread_create");
	} else {
		fflush(NULL);
		a->pid = fork();
		check(a->pid >= 0, "fork: %m");
		if (a->pid == 0) {
			close(a->chan);
			other_side(a);
			_exit(0);
		}
		close(a->far);
	}
	check(agent_answer(a) == 0, "the start of the other side");
	return a;
}

void agent_ask(struct agent *a, const struct agent_cmd *cmd)
{
	check(send(a->chan, cmd, sizeof(*cmd), MSG_NOSIGNAL) == sizeof(*cmd), "the other side does not listen: %m");
}

long agent_answer(struct agent *a)
{
	struct pollfd p = {.fd = a->chan, .events = POLLIN};
	int status = 0;
	ssize_t n;

	if (poll(&p, 1, TEST_COMES) != 1)
		test_late("an answer of the other side %u", a->number);
	n = recv(a->chan, &a->last, sizeof(a->last), 0);
	if (n == sizeof(a->last))
		return a->last.result;
	if (a->pid && waitpid(a->pid, &status, 0) == a->pid)
		fail("the other side %u ended: %s %d", a->number, WIFSIGNALED(status) ? "signal" : "status",
		     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	fail("the other side %u ended", a->number);
}

long agent_do(struct agent *a, const struct agent_cmd *cmd)
{
	agent_ask(a, cmd);
	return agent_answer(a);
}

void agent_end(struct agent *a)
{
	struct agent_cmd c = {.what = AGENT_END};
	int status = 0;

	agent_ask(a, &c);
	if (a->pid)
		check(waitpid(a->pid, &status, 0) == a->pid && status == 0, "the other side's end: %x",
		      (unsigned)status);
	else
		check(pthread_join(a->thread, NULL) == 0, "pthread_join");
	if (!a->pid)
		close(a->far);
	close(a->chan);
	munmap(a->board, sizeof(*a->board));
	free(a);
}

bool agent_can_stop(void)
{
	return !same_process && !getenv("RDMAOPS_HELD");
}

void agent_stop(struct agent *a)
{
	int status;

	check(kill(a->pid, SIGSTOP) == 0 && waitpid(a->pid, &status, WUNTRACED) == a->pid && WIFSTOPPED(status),
	      "the other side %u cannot be stopped: %m", a->number);
}

/* There is no other side any more. */
void agent_kill(struct agent *a)
{
	int status;

	check(kill(a->pid, SIGKILL) == 0 && waitpid(a->pid, &status, 0) == a->pid && WIFSIGNALED(status),
	      "the other side %u cannot be killed: %m", a->number);
	close(a->chan);
	munmap(a->board, sizeof(*a->board));
	free(a);
}

void agent_go_on(struct agent *a)
{
	check(kill(a->pid, SIGCONT) == 0, "the other side %u cannot go on: %m", a->number);
}

uint64_t agent_region(struct agent *a, uint64_t off, uint64_t len, uint64_t flags)
{
	expect(AGENT(a, AGENT_GET_MR, .off = off, .len = len, .flags = flags), 0, "GET_MR of %llu bytes at offset %llu",
	       (unsigned long long)len, (unsigned long long)off);
	check(a->last.cookie, "GET_MR stored the cookie 0");
	return a->last.cookie;
}

const unsigned char *agent_memory(struct agent *a, uint64_t off, uint64_t len)
{
	expect(AGENT(a, AGENT_COPY, .off = off, .len = len), 0, "a copy of the memory");
	return a->board->area + off;
}

size_t agent_recv(struct agent *a)
{
	return (size_t)AGENT(a, AGENT_RECV);
}
