/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fds.c - our descriptors in both tables (helper/fd_exchange.h).
 *
 * The helper makes and closes them.  A program's thread that needs one and has no number of it asks the
 * helper, which does that thread's work for once, and exports the descriptor for the next time.  So
 * connections that the program never uses take none of its numbers; and if the program has no free
 * number, the helper goes on working for it.
 *
 * A number of the program's is closed by one of its threads, whenever it makes its next call.  What a
 * packet or a call names stays until then: tcp_fd_is_free().
 *
 * Must not know what the descriptors are.
 */
#include "engine/transport/tcp/tcp.h"

/*
 * At the first, second, fourth, eighth ... time that it is missing: the program may be unable to take
 * it, and what can be done without it is done.
 */
static bool fd_export_is_due(unsigned nmissed)
{
	return !(nmissed & (nmissed - 1));
}

/* Helper. */
static void fd_export(struct tcp_fd *f)
{
	int fd = os_fd(&f->fd);

	if (fd < 0 || atomic_load(&f->exporting))
		return;
	atomic_store(&f->exporting, true);
	if (rds_export_to_program(RDS_EXPORT_TCP, f, &fd, 1))
		atomic_store(&f->exporting, false);
	else
		f->exported = true;
}

/* Helper. */
static void fd_asked(struct rds_deferred_call *c)
{
	struct tcp_fd *f = container_of(c, struct tcp_fd, ask);

	if (atomic_exchange(&f->wanted, false))
		fd_export(f);
	if (f->serve)
		f->serve(f); /* may free f */
}

/* Program's thread, out of rds_fd_exchange_take(): one at a time. */
unsigned rds_tcp_fd_exported(void *what, int *fds, unsigned nfds)
{
	struct tcp_fd *f = what;
	bool wanted = nfds == 1 && os_fd(&f->fd) < 0;

	if (wanted)
		os_dup_high_slot(fds[0], &f->fd.n[0]);
	atomic_store(&f->exporting, false);
	return wanted;
}

int tcp_fd_missing(struct tcp_fd *f)
{
	bool due;

	if (!rds_helper_has_own_table() || os_fd_table)
		return -1;
	if (atomic_load(&f->exporting)) {
		rds_fd_exchange_take();
		if (os_fd(&f->fd) >= 0)
			return os_fd(&f->fd);
	}
	due = fd_export_is_due(atomic_fetch_add(&f->nmissed, 1) + 1);
	if (due)
		atomic_store(&f->wanted, true);
	if (due || f->serve)
		rds_helper_defer(&f->ask);
	return -1;
}

/* ---- the end ---- */

/* Helper. */
static void fd_closed(struct rds_deferred_call *c)
{
	struct tcp_fd *f = container_of(c, struct tcp_fd, close);

	f->exported = false;
	f->serve(f);
}

/* Program's thread. */
static void fd_close_program(struct rds_deferred_call *c)
{
	struct tcp_fd *f = container_of(c, struct tcp_fd, close);

	os_close_slot(&f->fd.n[0]);
	c->fn = fd_closed;
	rds_helper_defer(c);
}

void tcp_fd_init(struct tcp_fd *f, void (*serve)(struct tcp_fd *f))
{
	os_fd_init(&f->fd);
	f->ask.fn = fd_asked;
	f->close.fn = fd_close_program;
	f->serve = serve;
}

void tcp_fd_close(struct tcp_fd *f)
{
	os_close_slot(&f->fd.n[os_fd_table]);
	if (f->exported && f->close.fn == fd_close_program)
		rds_helper_defer_to_program(&f->close);
}

bool tcp_fd_is_free(const struct tcp_fd *f)
{
	return !f->exported && !atomic_load(&f->ask.queued);
}
