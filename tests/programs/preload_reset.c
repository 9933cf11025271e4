/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_reset - a child of fork has its parent's socket, which the parent owns.  For
 * RDS_CONN_RESET the CAP_NET_ADMIN of the child counts, which makes the call.
 */
#include "program.h"

#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>

#define CONN_RESET 8
struct conn_reset {
	uint8_t tos;
	struct in_addr src, dst;
};

static int fd;

/* False: this process may not have it. */
static bool net_admin(bool on)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	check(syscall(SYS_capget, &hdr, data) == 0, "capget");
	if (on)
		data[0].effective |= CAP_TO_MASK(CAP_NET_ADMIN);
	else
		data[0].effective &= ~CAP_TO_MASK(CAP_NET_ADMIN);
	return syscall(SYS_capset, &hdr, data) == 0;
}

static int reset(void)
{
	struct conn_reset r = {.src.s_addr = htonl(INADDR_LOOPBACK)};

	return setsockopt(fd, 276, CONN_RESET, &r, sizeof(r)) ? errno : 0;
}

static void child(void *arg)
{
	bool may;

	(void)arg;
	net_admin(false);
	check(reset() == EACCES, "the child may not, whatever its parent may");
	may = net_admin(true);
	check(reset() == (may ? 0 : EACCES), "the child may");
}

static void ended_well(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid && status == 0, "status %#x", (unsigned)status);
}

int main(void)
{
	struct sockaddr_in me;
	bool may;

	fd = bound(&me);
	may = net_admin(true);
	check(reset() == (may ? 0 : EACCES), "with CAP_NET_ADMIN, if it is to be had");
	ended_well(start(child, NULL));
	net_admin(false);
	check(reset() == EACCES, "without CAP_NET_ADMIN");
	ended_well(start(child, NULL));
	close(fd);
	puts("ok");
	return 0;
}
